// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Every way to launch a kernel.
#![allow(missing_docs)]

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cuda::CUlaunchConfig;
use gpgpu_stand_in::ok;

#[test]
fn every_form_of_a_launch_has_a_record() {
    let session = Session::new();
    let (f, _) = kernel();
    let (at, stream) = (LIBRARIES.allocate(4), stream());
    let none: Raw = null_mut();
    let mut arguments = [&raw const at];
    let (one, two) = (1_u32, 2_u32);
    Session::enable(&ALL);
    ok!(LIBRARIES, "cuMemsetD32Async"; at, 0_u32, 1_usize, stream);
    ok!(LIBRARIES, "cuLaunchKernel"; f, two, one, one, one, one, one, 0_u32, stream, arguments.as_mut_ptr(), none);
    ok!(LIBRARIES, "cuLaunchCooperativeKernel"; f, one, two, one, one, one, one, 0_u32, stream, arguments.as_mut_ptr());
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 2,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream.cast(),
        attrs: null_mut(),
        numAttrs: 0,
    };
    ok!(LIBRARIES, "cuLaunchKernelEx"; &config, f, arguments.as_mut_ptr(), none);
    ok!(LIBRARIES, "cuStreamSynchronize"; stream);
    let records = session.records();
    let kernels = only!(records, Kernel);
    let seen: Vec<_> = kernels.iter().map(|of| (of.grid, of.launch_type)).collect();
    assert_eq!(seen, [([2, 1, 1], 0), ([1, 2, 1], 1), ([1, 1, 2], 0)]);
    let grids: Vec<_> = kernels.iter().map(|of| of.grid_id).collect();
    assert!(grids.windows(2).all(|pair| pair[0] < pair[1]));
    // `CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel` and the others.
    let calls: Vec<_> = only!(records, Call).iter().map(|of| of.callback).collect();
    assert_eq!(calls[1..], [307, 477, 652]);
}

unsafe extern "C" fn work(_: *mut c_void, _: u32, _: c_int) -> u32 {
    0
}

#[test]
fn the_work_of_a_library_is_a_kernel() {
    let session = Session::new();
    let (stream, mut context): (_, Raw) = (stream(), null_mut());
    ok!(LIBRARIES, "cuCtxGetCurrent"; &mut context);
    Session::enable(&ALL);
    let (data, mut queued): (Raw, c_int) = (null_mut(), 0);
    ok!(LIBRARIES, "softwareGpuQueue"; context, stream, work as *const (), data, &mut queued, 1);
    assert_eq!(queued, 1);
    let records = session.records();
    assert_eq!(records.len(), 2);
    let kernel = only!(records, Kernel)[0];
    assert_eq!(kernel.correlation, only!(records, Call)[0].correlation);
    let names: Vec<_> = records
        .iter()
        .filter(|of| matches!(of, Record::Kernel(_)))
        .collect();
    assert_eq!(names[0].name(), "software_gpu_library");
}
