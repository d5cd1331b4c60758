//! gpgpu-run and the preload for programs linked with the static CUDA runtime.
