// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names of kernels, which live as long as the process, and numbers of the driver's functions.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};

use gpgpu_locks::Mutex;

static NAMES: Mutex<BTreeSet<&'static CStr>> = Mutex::new(BTreeSet::new());

/// A name as the records have it: programs read it after the kernel's module is gone.
pub fn keep(name: &CStr) -> *const c_char {
    let mut names = NAMES.lock();
    if let Some(kept) = names.get(name) {
        return kept.as_ptr();
    }
    let kept: &'static CStr = Box::leak(name.into());
    names.insert(kept);
    kept.as_ptr()
}

/// The number of a function of the driver, of `CUpti_driver_api_trace_cbid`; 0 if it is not listed.
pub fn callback(function: &CStr) -> u32 {
    let known = |name: &str| FUNCTIONS.binary_search_by_key(&name, |(name, _)| name).ok();
    let index = function.to_str().ok().and_then(known);
    index.map_or(0, |index| FUNCTIONS[index].1)
}

/// The functions that give work, in the order of their names.
const FUNCTIONS: [(&str, u32); 85] = [
    ("cuGraphLaunch", 514),
    ("cuGraphLaunch_ptsz", 515),
    ("cuLaunchCooperativeKernel", 477),
    ("cuLaunchCooperativeKernel_ptsz", 478),
    ("cuLaunchHostFunc", 527),
    ("cuLaunchHostFunc_ptsz", 528),
    ("cuLaunchKernel", 307),
    ("cuLaunchKernelEx", 652),
    ("cuLaunchKernelEx_ptsz", 653),
    ("cuLaunchKernel_ptsz", 442),
    ("cuMemcpy2DAsync_v2", 289),
    ("cuMemcpy2DAsync_v2_ptsz", 424),
    ("cuMemcpy2DUnaligned_v2", 288),
    ("cuMemcpy2DUnaligned_v2_ptds", 406),
    ("cuMemcpy2D_v2", 287),
    ("cuMemcpy2D_v2_ptds", 405),
    ("cuMemcpy3DAsync_v2", 291),
    ("cuMemcpy3DAsync_v2_ptsz", 425),
    ("cuMemcpy3DPeer", 320),
    ("cuMemcpy3DPeerAsync", 321),
    ("cuMemcpy3DPeerAsync_ptsz", 427),
    ("cuMemcpy3DPeer_ptds", 410),
    ("cuMemcpy3D_v2", 290),
    ("cuMemcpy3D_v2_ptds", 407),
    ("cuMemcpyAsync", 306),
    ("cuMemcpyAsync_ptsz", 418),
    ("cuMemcpyAtoA_v2", 286),
    ("cuMemcpyAtoA_v2_ptds", 404),
    ("cuMemcpyAtoD_v2", 284),
    ("cuMemcpyAtoD_v2_ptds", 401),
    ("cuMemcpyAtoHAsync_v2", 283),
    ("cuMemcpyAtoHAsync_v2_ptsz", 420),
    ("cuMemcpyAtoH_v2", 282),
    ("cuMemcpyAtoH_v2_ptds", 403),
    ("cuMemcpyBatchAsync", 776),
    ("cuMemcpyBatchAsync_ptsz", 777),
    ("cuMemcpyBatchAsync_v2", 796),
    ("cuMemcpyBatchAsync_v2_ptsz", 797),
    ("cuMemcpyDtoA_v2", 285),
    ("cuMemcpyDtoA_v2_ptds", 400),
    ("cuMemcpyDtoDAsync_v2", 281),
    ("cuMemcpyDtoDAsync_v2_ptsz", 423),
    ("cuMemcpyDtoD_v2", 280),
    ("cuMemcpyDtoD_v2_ptds", 399),
    ("cuMemcpyDtoHAsync_v2", 279),
    ("cuMemcpyDtoHAsync_v2_ptsz", 422),
    ("cuMemcpyDtoH_v2", 278),
    ("cuMemcpyDtoH_v2_ptds", 398),
    ("cuMemcpyHtoAAsync_v2", 293),
    ("cuMemcpyHtoAAsync_v2_ptsz", 419),
    ("cuMemcpyHtoA_v2", 292),
    ("cuMemcpyHtoA_v2_ptds", 402),
    ("cuMemcpyHtoDAsync_v2", 277),
    ("cuMemcpyHtoDAsync_v2_ptsz", 421),
    ("cuMemcpyHtoD_v2", 276),
    ("cuMemcpyHtoD_v2_ptds", 397),
    ("cuMemcpyPeer", 318),
    ("cuMemcpyPeerAsync", 319),
    ("cuMemcpyPeerAsync_ptsz", 426),
    ("cuMemcpyPeer_ptds", 409),
    ("cuMemcpy_ptds", 408),
    ("cuMemsetD16Async", 218),
    ("cuMemsetD16Async_ptsz", 429),
    ("cuMemsetD16_v2", 250),
    ("cuMemsetD16_v2_ptds", 412),
    ("cuMemsetD2D16Async", 224),
    ("cuMemsetD2D16Async_ptsz", 432),
    ("cuMemsetD2D16_v2", 253),
    ("cuMemsetD2D16_v2_ptds", 415),
    ("cuMemsetD2D32Async", 226),
    ("cuMemsetD2D32Async_ptsz", 433),
    ("cuMemsetD2D32_v2", 254),
    ("cuMemsetD2D32_v2_ptds", 416),
    ("cuMemsetD2D8Async", 222),
    ("cuMemsetD2D8Async_ptsz", 431),
    ("cuMemsetD2D8_v2", 252),
    ("cuMemsetD2D8_v2_ptds", 414),
    ("cuMemsetD32Async", 220),
    ("cuMemsetD32Async_ptsz", 430),
    ("cuMemsetD32_v2", 251),
    ("cuMemsetD32_v2_ptds", 413),
    ("cuMemsetD8Async", 216),
    ("cuMemsetD8Async_ptsz", 428),
    ("cuMemsetD8_v2", 249),
    ("cuMemsetD8_v2_ptds", 411),
];
