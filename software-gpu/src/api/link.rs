// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The just-in-time linker.

use std::ffi::{c_uint, c_void};
use std::sync::Arc;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::{
    CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY, CU_JIT_INPUT_LIBRARY, CU_JIT_INPUT_NVVM,
    CU_JIT_INPUT_OBJECT, CU_JIT_INPUT_PTX, CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUjit_option, CUjitInputType,
};

use super::module::Options;
use crate::config::Config;
use crate::ffi::{Pointer, Result, Text, export};
use crate::handle::Table;
use crate::image::{self, Refused};
use crate::link::{Linker, is_device_runtime};

static LINKS: Table<Link> = Table::new(0x11);

struct Link {
    handle: u64,
    state: Mutex<State>,
}

struct State {
    linker: Linker,
    options: Options,
    /// Followed by a NUL.
    made: Vec<u8>,
}

// SAFETY: the caller vouches for the options' memory as long as the link lives, in whichever thread it uses it.
unsafe impl Send for State {}

impl Link {
    fn named(handle: *mut c_void) -> Result<Arc<Self>> {
        LINKS.get(handle as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn add(&self, kind: CUjitInputType, name: Option<String>, bytes: &[u8]) -> Result {
        let capability = Config::get().capability;
        let mut state = self.lock();
        let State {
            linker, options, ..
        } = &mut *state;
        options.report(|| match kind {
            // The linker's own output is text too.
            CU_JIT_INPUT_PTX | CU_JIT_INPUT_FATBINARY | CU_JIT_INPUT_CUBIN => {
                let text = image::from_file(bytes, capability)?;
                linker.add(&name.unwrap_or_default(), text, capability)
            }
            CU_JIT_INPUT_LIBRARY if is_device_runtime(bytes) => {
                linker.add_device_runtime(capability)
            }
            _ => Err(Refused::new(
                CUDA_ERROR_NO_BINARY_FOR_GPU,
                "this device links text, and the library of the device runtime, alone",
            )),
        })
    }
}

fn check(kind: CUjitInputType) -> Result {
    match kind {
        CU_JIT_INPUT_CUBIN
        | CU_JIT_INPUT_PTX
        | CU_JIT_INPUT_FATBINARY
        | CU_JIT_INPUT_OBJECT
        | CU_JIT_INPUT_LIBRARY
        | CU_JIT_INPUT_NVVM => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn create(
    count: c_uint,
    options: Pointer<CUjit_option>,
    values: Pointer<*mut c_void>,
    out: Pointer<*mut c_void>,
) -> Result {
    out.required()?;
    let options = Options::read(count, options, values)?;
    let mut linker = Linker::default();
    linker.max_registers = options.max_registers();
    let link = LINKS.insert_with(|handle| Link {
        handle,
        state: Mutex::new(State {
            linker,
            options,
            made: Vec::new(),
        }),
    });
    out.set(link.handle as *mut c_void)
}

fn add_data(
    state: *mut c_void,
    kind: CUjitInputType,
    data: Pointer<c_void>,
    size: usize,
    name: Text,
) -> Result {
    let link = Link::named(state)?;
    check(kind)?;
    if size == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let bytes = data.cast::<u8>().array(size)?;
    link.add(kind, name.name().ok(), &bytes)
}

fn add_file(state: *mut c_void, kind: CUjitInputType, path: Text) -> Result {
    let link = Link::named(state)?;
    check(kind)?;
    let path = path.name()?;
    let bytes = std::fs::read(&path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    link.add(kind, Some(path), &bytes)
}

export! {
    /// `cuLinkCreate`: the error log and the wall time are served; other options change nothing.
    context fn cuLinkCreate_v2(count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>, out: Pointer<*mut c_void>) |_| {
        create(count, options, values, out)
    }

    /// As [`cuLinkCreate_v2`].
    context fn cuLinkCreate(count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>, out: Pointer<*mut c_void>) |_| {
        create(count, options, values, out)
    }

    /// `cuLinkAddData`: PTX, fatbins that have some, and the linker's output.
    context fn cuLinkAddData_v2(state: *mut c_void, kind: CUjitInputType, data: Pointer<c_void>, size: usize, name: Text, count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>) |_| {
        Options::read(count, options, values)?;
        add_data(state, kind, data, size, name)
    }

    /// As [`cuLinkAddData_v2`].
    context fn cuLinkAddData(state: *mut c_void, kind: CUjitInputType, data: Pointer<c_void>, size: usize, name: Text, count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>) |_| {
        Options::read(count, options, values)?;
        add_data(state, kind, data, size, name)
    }

    /// `cuLinkAddFile`.
    context fn cuLinkAddFile_v2(state: *mut c_void, kind: CUjitInputType, path: Text, count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>) |_| {
        Options::read(count, options, values)?;
        add_file(state, kind, path)
    }

    /// As [`cuLinkAddFile_v2`].
    context fn cuLinkAddFile(state: *mut c_void, kind: CUjitInputType, path: Text, count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>) |_| {
        Options::read(count, options, values)?;
        add_file(state, kind, path)
    }

    /// `cuLinkComplete`: the output lives as long as the linker.
    context fn cuLinkComplete(state: *mut c_void, out: Pointer<*mut c_void>, size: Pointer<usize>) |_| {
        out.required()?;
        let link = Link::named(state)?;
        let mut state = link.lock();
        let State { linker, options, made } = &mut *state;
        let text = options.report(|| linker.complete(Config::get().capability))?;
        *made = text.into_bytes();
        made.push(0);
        size.set_if(made.len());
        out.set(made.as_mut_ptr().cast())
    }

    /// `cuLinkDestroy`.
    context fn cuLinkDestroy(state: *mut c_void) |_| {
        LINKS.remove(state as u64).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}
