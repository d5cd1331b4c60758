//! `libcublas.so` for a virtio-gpgpu guest: calls travel to the host, whose own cuBLAS carries them out.
//!
//! What the table has ([`gpgpu_protocol::libraries`]) is exported from its row ([`exports`]) and sent ([`forward`]). What a handle was told is
//! kept here ([`handle`]), so that asking for it, and telling it again, costs nothing. The rest is made of libcuda's functions
//! ([`transfer`]), or says what cuBLAS says on a CPU ([`state`], [`words`]).

#![allow(non_snake_case)]

#[cfg(test)]
mod compatibility;
mod exports;
mod forward;
mod handle;
mod state;
mod transfer;
mod unsupported;
mod words;

/// What every function returns (`cublasStatus_t`).
pub type Status = u32;
