// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The layouts of the records that [`gpgpu_protocol::cupti`] does not have, and the sizes of all.

use std::{ffi::c_void, mem::offset_of};

use gpgpu_protocol::cupti::{
    Api, ExternalCorrelation, GraphTrace, Kernel, Memcpy, MemcpyPeer, Memset, kind as kinds,
};

/// `CUpti_ActivitySynchronization2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Synchronization {
    /// [`kinds::SYNCHRONIZATION`].
    pub kind: u32,
    /// `CUpti_ActivitySynchronizationType`.
    pub of: u32,
    /// The call's begin.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// The call's number.
    pub correlation: u32,
    /// The context's number.
    pub context: u32,
    /// The stream's number, or [`UNKNOWN`].
    pub stream: u32,
    /// The event's number, or [`UNKNOWN`].
    pub event: u32,
    /// The number of the event's record.
    pub event_sync: u64,
    /// The call's result.
    pub result: u32,
    /// Nothing.
    pub pad: u32,
}

/// `CUpti_ActivityCudaEvent2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CudaEvent {
    /// [`kinds::CUDA_EVENT`].
    pub kind: u32,
    /// The call's number.
    pub correlation: u32,
    /// The context's number.
    pub context: u32,
    /// The stream's number, or [`UNKNOWN`].
    pub stream: u32,
    /// The event's number.
    pub event: u32,
    /// Nothing.
    pub pad: u32,
    /// The device.
    pub device: u32,
    /// Nothing.
    pub pad2: u32,
    /// NULL.
    pub reserved: *mut c_void,
    /// The time on the device; 0.
    pub timestamp: u64,
    /// The number of the record.
    pub event_sync: u64,
}

/// `CUPTI_SYNCHRONIZATION_INVALID_VALUE`, and the same value for other numbers that are unknown.
pub const UNKNOWN: u32 = u32::MAX;

const _: () = {
    assert!(size_of::<Synchronization>() == 56 && offset_of!(Synchronization, event_sync) == 40);
    assert!(size_of::<CudaEvent>() == 56 && offset_of!(CudaEvent, event_sync) == 48);
};

/// A record of CUPTI's.
///
/// # Safety
///
/// The type is `repr(C)` without padding, and its first field is the kind, of a size that [`size_of_kind`] knows. The
/// size is a multiple of 8 bytes.
pub unsafe trait Record: Copy {}

macro_rules! records {
    ($($type:ident: $($kind:ident)*;)*) => {
        $(
            // SAFETY: all fields that C would pad are declared, and the size is listed below.
            unsafe impl Record for $type {}
            const _: () = assert!(size_of::<$type>().is_multiple_of(8));
        )*

        /// The size of the records of a kind, in bytes; `None` for a kind without records.
        pub fn size_of_kind(kind: u32) -> Option<usize> {
            match kind {
                $($(kinds::$kind)|* => Some(size_of::<$type>()),)*
                _ => None,
            }
        }
    };
}

records! {
    Memcpy: MEMCPY;
    Memset: MEMSET;
    Kernel: KERNEL CONCURRENT_KERNEL;
    Api: DRIVER RUNTIME;
    MemcpyPeer: MEMCPY2;
    Synchronization: SYNCHRONIZATION;
    CudaEvent: CUDA_EVENT;
    ExternalCorrelation: EXTERNAL_CORRELATION;
    GraphTrace: GRAPH_TRACE;
}
