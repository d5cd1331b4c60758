// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches as before CUDA 4.0: a function keeps its block shape, its shared memory and its parameters, and a launch takes them.

use std::{
    ffi::c_void,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use gpgpu_protocol::{
    api::{Function, Object},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    border::Result,
    client::client,
    cuda,
    launch::{DefaultStream, launch, plain},
    stores::{function::FunctionData, objects::Known},
    thread,
};

/// The most bytes of parameters that a function can be given this way.
const MOST_BYTES: usize = 4096;

/// What a function's next launch of this kind takes.
#[derive(Debug, Default)]
struct Setup {
    /// The block's extents; none was given at first.
    block: Option<[u32; 3]>,
    shared: u32,
    /// The bytes of parameters, as the program said.
    bytes: usize,
    params: Vec<u8>,
}

/// A function's [`Setup`], made when the program first gives it one.
#[derive(Debug, Default)]
pub struct Kept(OnceLock<Box<Mutex<Setup>>>);

impl Kept {
    fn locked(&self) -> MutexGuard<'_, Setup> {
        let setup = self.0.get_or_init(Box::default);
        setup.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What `body` comes to with a function's setup.
fn with<T>(function: CUfunction, body: impl FnOnce(&FunctionData, &mut Setup) -> Result<T>) -> Result<T> {
    let client = client()?;
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    match client.objects.get(Function::id(function)) {
        Some(Known::Function(data)) => body(&data, &mut data.older.locked()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

fn set(function: CUfunction, offset: i32, bytes: &[u8]) -> Result {
    with(function, |_, setup| {
        let offset = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = offset.checked_add(bytes.len()).filter(|end| *end <= MOST_BYTES);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if setup.params.len() < end {
            setup.params.resize(end, 0);
        }
        setup.params[offset..end].copy_from_slice(bytes);
        Ok(())
    })
}

/// Launches a function as it was set up.
fn run(function: CUfunction, (width, height): (i32, i32), stream: CUstream) -> Result {
    let client = client()?;
    let (block, shared, packed) = with(function, |data, setup| {
        let block = setup.block.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if setup.bytes < data.param_bytes {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut packed = setup.params.clone();
        packed.resize(setup.bytes.max(1), 0);
        Ok((block, setup.shared, packed))
    })?;
    let extent = |value: i32| u32::try_from(value).map_err(|_| CUDA_ERROR_INVALID_VALUE);
    let grid = (extent(width)?, extent(height)?, 1);
    let stream = DefaultStream::Legacy.stream(client, stream)?;
    let config = plain(grid, block.into(), shared, stream);
    let length = packed.len();
    let extra = [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        packed.as_ptr() as usize,
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        &raw const length as usize,
        CU_LAUNCH_PARAM_END,
    ];
    let none = InPtr::nested(std::ptr::null());
    let extra = InPtr::nested(extra.as_ptr().cast::<c_void>());
    launch(client, function, &config, none, extra)
}

cuda! {
    fn cuFuncSetBlockShape(hfunc: CUfunction, x: i32, y: i32, z: i32) {
        with(hfunc, |_, setup| {
            let mut block = [0; 3];
            for (extent, given) in block.iter_mut().zip([x, y, z]) {
                *extent = u32::try_from(given).ok().filter(|extent| *extent > 0).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            }
            setup.block = Some(block);
            Ok(())
        })
    }

    fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: u32) {
        with(hfunc, |_, setup| {
            setup.shared = bytes;
            Ok(())
        })
    }

    fn cuParamSetSize(hfunc: CUfunction, numbytes: u32) {
        with(hfunc, |_, setup| {
            if numbytes as usize > MOST_BYTES {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            setup.bytes = numbytes as usize;
            Ok(())
        })
    }

    fn cuParamSeti(hfunc: CUfunction, offset: i32, value: u32) {
        set(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetf(hfunc: CUfunction, offset: i32, value: f32) {
        set(hfunc, offset, &value.to_ne_bytes())
    }

    fn cuParamSetv(hfunc: CUfunction, offset: i32, ptr: HostPtr, numbytes: u32) {
        if ptr.is_null() || numbytes as usize > MOST_BYTES {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        set(hfunc, offset, ptr.bytes(numbytes as usize))
    }

    fn cuLaunch(f: CUfunction) {
        run(f, (1, 1), std::ptr::null_mut())
    }

    fn cuLaunchGrid(f: CUfunction, grid_width: i32, grid_height: i32) {
        run(f, (grid_width, grid_height), std::ptr::null_mut())
    }

    fn cuLaunchGridAsync(f: CUfunction, grid_width: i32, grid_height: i32, hStream: CUstream) {
        run(f, (grid_width, grid_height), hStream)
    }
}
