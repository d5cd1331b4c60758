// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Modules.

use std::collections::HashMap;
use std::ffi::{CStr, OsStr, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use gpgpu_protocol::cuda::{
    CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_GLOBAL_SYMBOL_ADDRESSES,
    CU_JIT_GLOBAL_SYMBOL_COUNT, CU_JIT_GLOBAL_SYMBOL_NAMES, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    CU_JIT_MAX_REGISTERS, CU_JIT_NUM_OPTIONS, CU_JIT_WALL_TIME, CU_MODULE_LAZY_LOADING,
    CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUdeviceptr,
    CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode,
};

use crate::config::Config;
use crate::context::Context;
use crate::ffi::{Pointer, Result, Text, export};
use crate::image::{self, Refused};
use crate::module::{MODULES, Module};
use crate::ptx;

/// The JIT options of a load. CUDA passes numbers in place of pointers.
pub(super) struct Options {
    list: Vec<(CUjit_option, u64)>,
    values: Pointer<u64>,
}

impl Options {
    /// No options.
    pub fn none() -> Self {
        Self {
            list: Vec::new(),
            values: Pointer::null(),
        }
    }

    /// Reads the caller's options; `CUDA_ERROR_INVALID_VALUE` for one that CUDA does not have.
    pub fn read(
        count: c_uint,
        options: Pointer<CUjit_option>,
        values: Pointer<*mut c_void>,
    ) -> Result<Self> {
        let values = values.cast::<u64>();
        let list = options
            .array(count as usize)?
            .into_iter()
            .zip(values.array(count as usize)?);
        let list: Vec<_> = list.collect();
        if list.iter().any(|(o, _)| *o >= CU_JIT_NUM_OPTIONS) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self { list, values })
    }

    fn value(&self, option: CUjit_option) -> Option<u64> {
        self.list
            .iter()
            .find(|(o, _)| *o == option)
            .map(|(_, v)| *v)
    }

    /// `CU_JIT_MAX_REGISTERS`, if it is a bound.
    pub fn max_registers(&self) -> Option<u32> {
        let most = self.value(CU_JIT_MAX_REGISTERS)? as u32;
        (most > 0).then_some(most)
    }

    fn answer(&self, option: CUjit_option, value: u64) {
        if let Some(index) = self.list.iter().position(|(o, _)| *o == option) {
            self.values.at(index).set_if(value);
        }
    }

    // The error log, truncated to the caller's buffer and terminated by NUL. Its size option returns the written
    // length.
    fn log(&self, message: &str) {
        let size = self
            .value(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            .map_or(0, |v| v as u32 as usize);
        let buffer = self.value(CU_JIT_ERROR_LOG_BUFFER).unwrap_or(0) as *mut u8;
        let mut written = 0;
        if !buffer.is_null() && size > 0 {
            // SAFETY: the caller said that the buffer has `size` bytes.
            let buffer = unsafe { Pointer::new(buffer) };
            for byte in message.bytes().take(size - 1) {
                buffer.at(written).set_if(byte);
                written += 1;
            }
            buffer.at(written).set_if(0);
        }
        self.answer(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, written as u64);
        self.answer(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 0);
    }

    fn symbols(&self) -> Result<HashMap<String, u64>> {
        let count = self
            .value(CU_JIT_GLOBAL_SYMBOL_COUNT)
            .map_or(0, |v| v as u32 as usize);
        let pointer = |option| self.value(option).unwrap_or(0) as *mut u64;
        // SAFETY: the caller said that both lists have `count` members.
        let (names, addresses) = unsafe {
            (
                Pointer::new(pointer(CU_JIT_GLOBAL_SYMBOL_NAMES)).cast::<Text>(),
                Pointer::new(pointer(CU_JIT_GLOBAL_SYMBOL_ADDRESSES)),
            )
        };
        let pairs = names.array(count)?.into_iter().zip(addresses.array(count)?);
        pairs
            .map(|(name, address)| Ok((name.name()?, address)))
            .collect()
    }

    /// Calls `work`, and reports the result as the caller requested.
    pub fn report<T>(&self, work: impl FnOnce() -> std::result::Result<T, Refused>) -> Result<T> {
        let start = Instant::now();
        let result = work();
        let milliseconds = start.elapsed().as_secs_f32() * 1e3;
        self.answer(CU_JIT_WALL_TIME, milliseconds.to_bits().into());
        self.log(result.as_ref().err().map_or("", |r| r.message.as_str()));
        result.map_err(|refused| {
            if Config::get().verbose {
                eprintln!("software GPU: {refused}");
            }
            refused.code
        })
    }
}

/// Parses the image at `image`.
pub(super) fn parse(image: Pointer<u8>) -> std::result::Result<Arc<ptx::Module>, Refused> {
    let capability = Config::get().capability;
    let text = image::from_memory(image, capability)?;
    Ok(Arc::new(image::parse(&text, capability)?))
}

/// Parses the image in the file called `path`.
pub(super) fn parse_file(path: &CStr) -> std::result::Result<Arc<ptx::Module>, Refused> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let contents = std::fs::read(path).map_err(|e| {
        Refused::new(
            CUDA_ERROR_FILE_NOT_FOUND,
            format!("{}: {e}", path.display()),
        )
    })?;
    let capability = Config::get().capability;
    let text = image::from_file(&contents, capability)?;
    Ok(Arc::new(image::parse(&text, capability)?))
}

fn load(cx: &Context, out: Pointer<CUmodule>, image: Pointer<c_void>, options: &Options) -> Result {
    out.required()?;
    image.required()?;
    let symbols = options.symbols()?;
    let module = options.report(|| Module::load(&parse(image.cast())?, cx, &symbols))?;
    out.set(module.handle as CUmodule)
}

pub(super) fn named(module: CUmodule) -> Result<Arc<Module>> {
    MODULES.get(module as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
}

export! {
    /// `cuModuleLoad`.
    context fn cuModuleLoad(out: Pointer<CUmodule>, path: Text) |cx| {
        out.required()?;
        let path = path.get()?;
        let module = Options::none().report(|| Module::load(&parse_file(path)?, &cx, &HashMap::new()))?;
        out.set(module.handle as CUmodule)
    }

    /// `cuModuleLoadData`: PTX text, or a fatbin that has some.
    context fn cuModuleLoadData(out: Pointer<CUmodule>, image: Pointer<c_void>) |cx| {
        load(&cx, out, image, &Options::none())
    }

    /// `cuModuleLoadDataEx`: the error log, the wall time and global symbols are served; other options change nothing.
    context fn cuModuleLoadDataEx(out: Pointer<CUmodule>, image: Pointer<c_void>, count: c_uint, options: Pointer<CUjit_option>, values: Pointer<*mut c_void>) |cx| {
        load(&cx, out, image, &Options::read(count, options, values)?)
    }

    /// `cuModuleLoadFatBinary`.
    context fn cuModuleLoadFatBinary(out: Pointer<CUmodule>, image: Pointer<c_void>) |cx| {
        load(&cx, out, image, &Options::none())
    }

    /// `cuModuleUnload`: waits for the module's users.
    context fn cuModuleUnload(module: CUmodule) |_| {
        let module = named(module)?;
        if module.library.is_some() {
            return Err(gpgpu_protocol::cuda::CUDA_ERROR_NOT_PERMITTED);
        }
        module.unload();
        Ok(())
    }

    /// `cuModuleGetLoadingMode`: libraries load when first used.
    initialised fn cuModuleGetLoadingMode(mode: Pointer<CUmoduleLoadingMode>) |_| {
        mode.set(CU_MODULE_LAZY_LOADING)
    }

    /// `cuModuleGetFunction`.
    context fn cuModuleGetFunction(out: Pointer<CUfunction>, module: CUmodule, name: Text) |_| {
        out.required()?;
        let (module, name) = (named(module)?, name.name()?);
        if name.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        out.set(module.function(&name)? as CUfunction)
    }

    /// `cuModuleGetFunctionCount`.
    context fn cuModuleGetFunctionCount(count: Pointer<c_uint>, module: CUmodule) |_| {
        count.set(named(module)?.functions.len() as c_uint)
    }

    /// `cuModuleEnumerateFunctions`: as many as there are and the caller has room for.
    context fn cuModuleEnumerateFunctions(out: Pointer<CUfunction>, room: c_uint, module: CUmodule) |_| {
        let module = named(module)?;
        for (index, function) in module.functions.iter().take(room as usize).enumerate() {
            out.required()?.at(index).set(*function as CUfunction)?;
        }
        Ok(())
    }

    /// `cuModuleGetGlobal`: one of the out pointers may be NULL.
    context fn cuModuleGetGlobal_v2(address: Pointer<CUdeviceptr>, size: Pointer<usize>, module: CUmodule, name: Text) |_| {
        let (start, bytes) = named(module)?.global(&name.name()?)?;
        if address.is_null() && size.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        address.set_if(start);
        size.set_if(bytes);
        Ok(())
    }
}
