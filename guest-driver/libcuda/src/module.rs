// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Modules: images loaded into one context.

use gpgpu_protocol::{
    api::{Function, JitLog, Module, Object, Request, request},
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
    stores::{function::FunctionData, module::ModuleData, objects::Known},
    texture_reference, thread,
};

/// Collects all names: `some` returns those from an index on, as many as fit into an answer.
///
/// # Errors
///
/// Those of `some`.
pub fn all_names(some: impl Fn(u32) -> Result<Vec<String>>) -> Result<Vec<String>> {
    let mut names = Vec::new();
    loop {
        let more = some(names.len() as u32)?;
        if more.is_empty() {
            return Ok(names);
        }
        names.extend(more);
    }
}

/// The names of a module's functions.
fn names(client: &Client, hmod: u64) -> Result<Vec<String>> {
    let names = true;
    if !client.has(request::gpgpuModuleFunctionNames::OP) {
        let all = client.call(&request::gpgpuModuleFunctions { hmod, names })?;
        return Ok(all.names);
    }
    all_names(|first| {
        let some = client.call(&request::gpgpuModuleFunctionNames { hmod, first, names })?;
        Ok(some.names)
    })
}

fn load<'a>(
    to: OutPtr<CUmodule>,
    contents: impl FnOnce() -> Result<&'a [u8]>,
    jit: &Jit,
) -> Result {
    let client = client()?;
    to.required()?;
    thread::required_context()?;
    let contents = image::useful(client, contents()?)?;
    let module = client.new_id::<Module>();
    let request = |image| request::cuModuleLoadDataEx {
        module,
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
    client.objects.insert(
        module,
        Known::Module(ModuleData::new(thread::home(client), None)),
    );
    to.set(Module::handle(module))
}

/// The function of a module with this name, which is looked up once and then cached.
fn function(client: &Client, hmod: u64, name: &str) -> Result<u64> {
    let module = client.objects.module(hmod)?;
    let mut functions = module.functions.lock();
    if let Some(id) = functions.get(name) {
        return Ok(*id);
    }
    let id = client.new_id::<Function>();
    let request = request::cuModuleGetFunction {
        function: id,
        hmod,
        name: name.to_owned(),
        info: true,
    };
    let info = client.call(&request)?.info;
    let data = FunctionData::new(client, id, name, (module.context, hmod), info)?;
    client.objects.insert(id, Known::Function(data));
    functions.insert(name.to_owned(), id);
    Ok(id)
}

cuda! {
    fn cuModuleLoadData(module: OutPtr<CUmodule>, image: HostPtr) {
        load(module, || image::contents(image), &Jit::none())
    }

    fn cuModuleLoadDataEx(module: OutPtr<CUmodule>, image: HostPtr, numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>) {
        load(module, || image::contents(image), &Jit::new(numOptions, options, optionValues)?)
    }

    fn cuModuleLoadFatBinary(module: OutPtr<CUmodule>, fatCubin: HostPtr) {
        load(module, || image::contents(fatCubin), &Jit::none())
    }

    fn cuModuleLoad(module: OutPtr<CUmodule>, fname: Text) {
        client()?;
        thread::required_context()?;
        let bytes = image::from_file(&fname.get()?)?;
        load(module, || Ok(&bytes), &Jit::none())
    }

    fn cuModuleUnload(hmod: CUmodule) {
        let client = client()?;
        let id = Module::id(hmod);
        let module = client.objects.module(id)?;
        globals::unload(client, id, || client.call(&request::cuModuleUnload { hmod: id }).map(drop))?;
        client.objects.remove(id);
        client.objects.retain(|_, object| !matches!(object, Known::Function(function) if function.parent == id));
        texture_reference::forget_modules(client);
        drop(module);
        Ok(())
    }

    fn cuModuleGetFunction(hfunc: OutPtr<CUfunction>, hmod: CUmodule, name: Text) {
        let client = client()?;
        hfunc.required()?;
        hfunc.set(Function::handle(function(client, Module::id(hmod), &name.get()?)?))
    }

    fn cuModuleGetGlobal_v2(dptr: OutPtr<CUdeviceptr>, bytes: OutPtr<usize>, hmod: CUmodule, name: Text) {
        let client = client()?;
        let id = Module::id(hmod);
        let request = request::cuModuleGetGlobal_v2 { hmod: id, name: name.get()?, dptr: true, bytes: true };
        if dptr.is_null() && bytes.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let reply = client.call(&request)?;
        let library = client.objects.module(id).ok().and_then(|module| module.library);
        globals::note(client, library.unwrap_or(id), reply.dptr, reply.bytes);
        dptr.offer(reply.dptr);
        bytes.offer(reply.bytes);
        Ok(())
    }

    fn cuModuleGetFunctionCount(count: OutPtr<u32>, module: CUmodule) {
        let client = client()?;
        count.required()?;
        count.set(names(client, Module::id(module))?.len() as u32)
    }

    fn cuModuleEnumerateFunctions(functions: OutPtr<CUfunction>, numFunctions: u32, module: CUmodule) {
        let client = client()?;
        functions.required()?;
        let id = Module::id(module);
        for (i, name) in names(client, id)?.iter().take(numFunctions as usize).enumerate() {
            functions.at(i).offer(Function::handle(function(client, id, name)?));
        }
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: OutPtr<CUmoduleLoadingMode>) {
        client()?;
        mode.set(if environment().is_eager { CU_MODULE_EAGER_LOADING } else { CU_MODULE_LAZY_LOADING })
    }
}
