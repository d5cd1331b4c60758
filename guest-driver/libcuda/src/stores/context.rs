// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of a context.

use std::sync::atomic::AtomicU32;

use gpgpu_protocol::cuda::*;

use super::{answers::Answers, launches::Limits};

/// The numbers of a context's cached answers.
pub mod answer {
    /// `cuCtxGetFlags`.
    pub const FLAGS: usize = 0;
    /// `cuCtxGetApiVersion`.
    pub const API_VERSION: usize = 1;
    /// `cuCtxGetId`.
    pub const ID: usize = 2;
    /// `cuCtxGetStreamPriorityRange`.
    pub const LEAST_PRIORITY: usize = 3;
    /// See [`LEAST_PRIORITY`].
    pub const GREATEST_PRIORITY: usize = 4;
    /// `cuCtxGetCacheConfig`.
    pub const CACHE_CONFIG: usize = 5;
    /// `cuCtxGetSharedMemConfig`.
    pub const SHARED_CONFIG: usize = 6;
    /// `cuCtxGetLimit`, by limit from here on.
    pub const LIMITS: usize = 8;
    /// The state of the context's legacy stream, from here on.
    pub const LEGACY_STREAM: usize = 20;
    /// Their number.
    pub const COUNT: usize = 24;
}

/// The process's state of a context.
#[derive(Debug)]
pub struct ContextData {
    /// Its device.
    pub device: CUdevice,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// For a green context, the id of its primary context.
    pub home: Option<u64>,
    /// The number of calls of `cuCtxAttach`, minus those of `cuCtxDetach`.
    pub attached: AtomicU32,
    /// The permitted properties of its launches.
    pub limits: Limits,
    /// The host's answers about it, by the numbers in [`answer`].
    pub answers: Answers<{ answer::COUNT }>,
}
