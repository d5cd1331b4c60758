//! vhost-user back end that runs CUDA for virtual machines without a GPU.

pub mod ipc;
