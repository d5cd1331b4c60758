//! libcuda.so.1 for a virtio-gpgpu guest.
