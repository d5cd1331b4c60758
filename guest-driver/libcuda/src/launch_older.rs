// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches as before CUDA 4.0: block shape, shared memory and parameters are set on the function, and a launch uses
//! them.

use std::{ffi::c_void, sync::OnceLock};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Function, Object},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    client::client,
    cuda,
    ffi::Result,
    launch::{DefaultStream, launch, plain},
    stores::{function::FunctionData, objects::Known},
    texture_reference, thread,
};

/// The maximum size of a function's parameters in bytes.
const MOST_BYTES: u32 = 32_764;
/// The maximum size of shared memory for such a launch, in bytes.
const MOST_SHARED: u32 = 48 << 10;
/// The maximum number of threads of a block in each dimension.
const MOST_THREADS: [u32; 3] = [1024, 1024, 64];
/// The maximum number of rows of blocks.
const MOST_ROWS: u32 = 65_535;

/// The settings of a function's next launch.
#[derive(Debug)]
struct Setup {
    block: [u32; 3],
    shared: u32,
    /// The size of the parameters, as the program has set it.
    bytes: usize,
    params: Vec<u8>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            block: [1; 3],
            shared: 0,
            bytes: 0,
            params: Vec::new(),
        }
    }
}

/// A size of parameters in whole words, as in the driver.
fn words(bytes: u32) -> u32 {
    bytes.wrapping_add(3) & !3
}

/// A function's [`Setup`], made when the program first sets a value.
#[derive(Debug, Default)]
pub struct Kept(OnceLock<Box<Mutex<Setup>>>);

impl Kept {
    fn locked(&self) -> MutexGuard<'_, Setup> {
        let setup = self.0.get_or_init(Box::default);
        setup.lock()
    }
}

/// Calls `body` with a function's setup.
fn with<T>(
    function: CUfunction,
    body: impl FnOnce(&FunctionData, &mut Setup) -> Result<T>,
) -> Result<T> {
    let client = client()?;
    thread::required_context()?;
    match client.objects.get(Function::id(function)) {
        Some(Known::Function(data)) => body(&data, &mut data.older.locked()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

fn set(function: CUfunction, offset: i32, bytes: &[u8]) -> Result {
    with(function, |_, setup| {
        let offset = usize::try_from(offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = offset
            .checked_add(bytes.len())
            .filter(|end| *end <= MOST_BYTES as usize);
        let end = end.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if setup.params.len() < end {
            setup.params.resize(end, 0);
        }
        setup.params[offset..end].copy_from_slice(bytes);
        Ok(())
    })
}

/// Launches a function with its setup.
fn run(function: CUfunction, (width, height): (i32, i32), stream: CUstream) -> Result {
    let client = client()?;
    let extent = |value: i32, most: u32| {
        let value = u32::try_from(value).ok();
        value
            .filter(|value| (1..=most).contains(value))
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    };
    let grid = (extent(width, u32::MAX)?, extent(height, MOST_ROWS)?, 1);
    let (block, shared, packed) = with(function, |data, setup| {
        if setup.bytes > words(data.param_bytes as u32) as usize {
            return Err(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        }
        let mut packed = setup.params.clone();
        packed.resize(data.param_bytes, 0);
        Ok((setup.block, setup.shared, packed))
    })?;
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
    launch(client, function, &config, none, extra).map(drop)
}

cuda! {
    fn cuFuncSetBlockShape(hfunc: CUfunction, x: i32, y: i32, z: i32) {
        with(hfunc, |_, setup| {
            let mut block = [0; 3];
            for ((extent, given), most) in block.iter_mut().zip([x, y, z]).zip(MOST_THREADS) {
                let given = u32::try_from(given).ok().filter(|given| (1..=most).contains(given));
                *extent = given.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            }
            if block.iter().product::<u32>() > MOST_THREADS[0] {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            setup.block = block;
            Ok(())
        })
    }

    fn cuFuncSetSharedSize(hfunc: CUfunction, bytes: u32) {
        with(hfunc, |_, setup| {
            if bytes > MOST_SHARED {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            setup.shared = bytes;
            Ok(())
        })
    }

    fn cuParamSetSize(hfunc: CUfunction, numbytes: u32) {
        with(hfunc, |_, setup| {
            let bytes = words(numbytes);
            if bytes > MOST_BYTES {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            setup.bytes = bytes as usize;
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
        if ptr.is_null() || numbytes > MOST_BYTES {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        set(hfunc, offset, ptr.bytes(numbytes as usize))
    }

    /// `cuParamSetTexRef`: each launch uses its module's references whether or not they were set.
    fn cuParamSetTexRef(hfunc: CUfunction, _texunit: i32, hTexRef: *mut c_void) {
        with(hfunc, |_, _| match hTexRef.is_null() {
            true => Err(CUDA_ERROR_INVALID_HANDLE),
            false if texture_reference::is_one(hTexRef) => Ok(()),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        })
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
