//! virtio-gpgpu: the API table, the command stream and every layout that guest and host share.

#[allow(non_snake_case, non_upper_case_globals)]
pub mod cuda;
