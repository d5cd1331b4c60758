// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries, which are images that exist in every context, and their kernels.

use std::{ffi::c_void, sync::Arc};

use gpgpu_protocol::{
    api::{Function, JitLog, Kernel, Library, Module, Object, Request, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr, OutPtr, Text},
    client::{Client, client},
    cuda,
    environment::environment,
    ffi::Result,
    globals,
    image::{self, Jit},
    module::all_names,
    stores::{function::FunctionData, module::ModuleData, objects::Known},
    texture_reference, thread,
};

fn load<'a>(
    to: OutPtr<CUlibrary>,
    contents: impl FnOnce() -> Result<&'a [u8]>,
    jit: &Jit,
) -> Result {
    let client = client()?;
    to.required()?;
    let contents = image::useful(client, contents()?)?;
    let library = client.new_id::<Library>();
    // The host always makes its own copy, so it does not matter whether the program preserves its binary.
    let request = |image| request::cuLibraryLoadData {
        library,
        image,
        options: jit.lower(),
        eager: environment().is_eager,
        log: true,
    };
    let (result, reply) = image::load(client, &contents, request)?;
    jit.raise(&reply.map_or_else(JitLog::default, |reply| reply.log));
    if result != CUDA_SUCCESS {
        return Err(result);
    }
    client
        .objects
        .insert(library, Known::Library(Arc::default()));
    to.set(Library::handle(library))
}

fn kernel(client: &Client, library: u64, name: &str) -> Result<u64> {
    let data = client.objects.library(library)?;
    let mut kernels = data.kernels.lock();
    if let Some(id) = kernels.get(name) {
        return Ok(*id);
    }
    let id = client.new_id::<Kernel>();
    let info = client
        .call(&request::cuLibraryGetKernel {
            kernel: id,
            library,
            name: name.to_owned(),
            info: true,
        })?
        .info;
    // The host described it for the current context's device, or otherwise for the first device.
    let device = client.objects.context_device(thread::current_context());
    let devices = (device.unwrap_or(0), client.hello.devices.len());
    let data = FunctionData::kernel(client, id, name, library, info, devices)?;
    client.objects.insert(id, Known::Kernel(data));
    kernels.insert(name.to_owned(), id);
    Ok(id)
}

fn names(client: &Client, library: CUlibrary) -> Result<Vec<String>> {
    let (library, names) = (Library::id(library), true);
    if !client.has(request::gpgpuLibraryKernelNames::OP) {
        let all = client.call(&request::gpgpuLibraryKernels { library, names })?;
        return Ok(all.names);
    }
    all_names(|first| {
        let some = client.call(&request::gpgpuLibraryKernelNames {
            library,
            first,
            names,
        })?;
        Ok(some.names)
    })
}

pub fn current_context() -> Result<u64> {
    match thread::home(client()?) {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        context => Ok(context),
    }
}

/// The module of a library in a context, which has to be the current one for a new module.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE` if there is no such library; the host's code.
pub fn module(client: &Client, library: u64, context: u64) -> Result<u64> {
    let data = client.objects.library(library)?;
    let mut modules = data.modules.lock();
    let known = modules.get(&context);
    if let Some(id) = known.filter(|id| client.objects.contains(**id)) {
        return Ok(*id);
    }
    let module = client.new_id::<Module>();
    client.call(&request::cuLibraryGetModule { module, library })?;
    let made = ModuleData::new(context, Some(library));
    client.objects.insert(module, Known::Module(made));
    modules.insert(context, module);
    Ok(module)
}

cuda! {
    fn cuLibraryLoadData(library: OutPtr<CUlibrary>, code: HostPtr, jitOptions: InPtr<CUjit_option>, jitOptionsValues: OutPtr<usize>, numJitOptions: u32, _libraryOptions: *mut CUlibraryOption, _libraryOptionValues: *mut *mut c_void, _numLibraryOptions: u32) {
        load(library, || image::contents(code), &Jit::new(numJitOptions, jitOptions, jitOptionsValues)?)
    }

    fn cuLibraryLoadFromFile(library: OutPtr<CUlibrary>, fileName: Text, jitOptions: InPtr<CUjit_option>, jitOptionsValues: OutPtr<usize>, numJitOptions: u32, _libraryOptions: *mut CUlibraryOption, _libraryOptionValues: *mut *mut c_void, _numLibraryOptions: u32) {
        client()?;
        let bytes = image::from_file(&fileName.get()?)?;
        load(library, || Ok(&bytes), &Jit::new(numJitOptions, jitOptions, jitOptionsValues)?)
    }

    fn cuLibraryUnload(library: CUlibrary) {
        let client = client()?;
        let id = Library::id(library);
        let data = client.objects.library(id)?;
        globals::unload(client, id, || client.call(&request::cuLibraryUnload { library: id }).map(drop))?;
        client.objects.remove(id);
        for dead in data.modules.lock().values().chain(data.functions.lock().values()) {
            client.objects.remove(*dead);
        }
        client.objects.retain(|_, object| !matches!(object, Known::Kernel(kernel) if kernel.parent == id));
        texture_reference::forget_modules(client);
        Ok(())
    }

    fn cuLibraryGetKernel(pKernel: OutPtr<CUkernel>, library: CUlibrary, name: Text) {
        let client = client()?;
        pKernel.required()?;
        pKernel.set(Kernel::handle(kernel(client, Library::id(library), &name.get()?)?))
    }

    fn cuLibraryGetKernelCount(count: OutPtr<u32>, lib: CUlibrary) {
        let client = client()?;
        count.required()?;
        count.set(names(client, lib)?.len() as u32)
    }

    fn cuLibraryEnumerateKernels(kernels: OutPtr<CUkernel>, numKernels: u32, lib: CUlibrary) {
        let client = client()?;
        kernels.required()?;
        for (i, name) in names(client, lib)?.iter().take(numKernels as usize).enumerate() {
            kernels.at(i).offer(Kernel::handle(kernel(client, Library::id(lib), name)?));
        }
        Ok(())
    }

    fn cuLibraryGetModule(pMod: OutPtr<CUmodule>, library: CUlibrary) {
        let client = client()?;
        pMod.required()?;
        pMod.set(Module::handle(module(client, Library::id(library), current_context()?)?))
    }

    fn cuLibraryGetGlobal(dptr: OutPtr<CUdeviceptr>, bytes: OutPtr<usize>, library: CUlibrary, name: Text) {
        let client = client()?;
        if dptr.is_null() && bytes.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let request = request::cuLibraryGetGlobal { library: Library::id(library), name: name.get()?, dptr: true, bytes: true };
        let reply = client.call(&request)?;
        globals::note(client, Library::id(library), reply.dptr, reply.bytes);
        dptr.offer(reply.dptr);
        bytes.offer(reply.bytes);
        Ok(())
    }

    /// `cuLibraryGetManaged`: a variable that is in managed memory of the host's driver.
    fn cuLibraryGetManaged(dptr: OutPtr<CUdeviceptr>, bytes: OutPtr<usize>, library: CUlibrary, name: Text) {
        let client = client()?;
        if dptr.is_null() && bytes.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = Library::id(library);
        let request = request::cuLibraryGetManaged { library: id, name: name.get()?, dptr: true, bytes: true };
        let reply = client.call(&request)?;
        globals::note_managed(client, id, reply.dptr, reply.bytes)?;
        dptr.offer(reply.dptr);
        bytes.offer(reply.bytes);
        Ok(())
    }

    fn cuKernelGetFunction(pFunc: OutPtr<CUfunction>, kernel: CUkernel) {
        let client = client()?;
        pFunc.required()?;
        let context = current_context()?;
        let id = Kernel::id(kernel);
        let data = client.objects.function(id)?;
        let library = client.objects.library(data.parent)?;
        let mut functions = library.functions.lock();
        if let Some(function) = functions.get(&(id, context)).filter(|id| client.objects.contains(**id)) {
            return pFunc.set(Function::handle(*function));
        }
        let function = client.new_id::<Function>();
        client.call(&request::cuKernelGetFunction { function, kernel: id })?;
        client.objects.insert(function, Known::Function(FunctionData::of_kernel(&data, context)));
        functions.insert((id, context), function);
        pFunc.set(Function::handle(function))
    }

    fn cuKernelGetLibrary(pLib: OutPtr<CUlibrary>, kernel: CUkernel) {
        let data = client()?.objects.function(Kernel::id(kernel))?;
        pLib.set(Library::handle(data.parent))
    }
}
