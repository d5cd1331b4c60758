//! The CUDA runtime API on the public driver API alone.
