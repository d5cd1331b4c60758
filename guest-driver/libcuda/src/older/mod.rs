// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Symbols of older headers for functions of which only the name has changed.

mod narrow;

use gpgpu_protocol::{check_signature, cuda::*};

use crate::argument::{HostPtr, OutPtr};

macro_rules! older_names {
    ($($(#[$meta:meta])* $older:ident = $path:path as ($($arg:ident : $ty:ty),*);)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// As for the function that it names.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $older($($arg: $ty),*) -> CUresult {
            // SAFETY: the caller vouches for the same arguments.
            unsafe { $path($($arg),*) }
        }
        check_signature!($older($($ty),*));
    )*};
}

older_names! {
    /// `cuMemHostRegister` as headers before CUDA 6.5 named it.
    cuMemHostRegister = crate::pinned::cuMemHostRegister_v2 as (p: HostPtr, bytesize: usize, Flags: u32);
    /// `cuCtxPopCurrent` as headers before CUDA 4.0 named it.
    cuCtxPopCurrent = crate::context::cuCtxPopCurrent_v2 as (pctx: OutPtr<CUcontext>);
    /// `cuEventDestroy` as headers before CUDA 4.0 named it.
    cuEventDestroy = crate::event::cuEventDestroy_v2 as (event: CUevent);
    /// `cuStreamDestroy` as headers before CUDA 4.0 named it.
    cuStreamDestroy = crate::stream::cuStreamDestroy_v2 as (stream: CUstream);
    /// `cuCtxDestroy` as headers before CUDA 4.0 named it.
    cuCtxDestroy = crate::context::cuCtxDestroy_v2 as (context: CUcontext);
    /// `cuDevicePrimaryCtxRelease` as headers before CUDA 11 named it.
    cuDevicePrimaryCtxRelease = crate::context::cuDevicePrimaryCtxRelease_v2 as (device: CUdevice);
    /// `cuDevicePrimaryCtxReset` as headers before CUDA 11 named it.
    cuDevicePrimaryCtxReset = crate::context::cuDevicePrimaryCtxReset_v2 as (device: CUdevice);
    /// `cuDevicePrimaryCtxSetFlags` as headers before CUDA 11 named it.
    cuDevicePrimaryCtxSetFlags = crate::context::cuDevicePrimaryCtxSetFlags_v2 as (device: CUdevice, flags: u32);
}
