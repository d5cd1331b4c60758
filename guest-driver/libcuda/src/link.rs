// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The just-in-time linker. The worker links, and this process stores the output until the program destroys the linker.

use std::{collections::HashMap, ffi::c_void, sync::Arc};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{JitLog, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr, OutPtr, Text},
    client::client,
    cuda,
    ffi::Result,
    image::{self, Jit},
    thread,
};

/// A linker.
struct Link {
    jit: Jit,
    /// The output. Its address does not change.
    made: Mutex<Option<Box<[u8]>>>,
}

// SAFETY: the program vouches for the options' memory as long as the linker lives, in whichever thread it uses it.
unsafe impl Send for Link {}
// SAFETY: as above; the options are only read, and the program uses a linker in one thread at a time.
unsafe impl Sync for Link {}

static LINKS: Mutex<Option<HashMap<u64, Arc<Link>>>> = Mutex::new(None);

fn links() -> MutexGuard<'static, Option<HashMap<u64, Arc<Link>>>> {
    LINKS.lock()
}

fn find(state: *mut c_void) -> Result<(u64, Arc<Link>)> {
    let id = state as u64;
    let found = links().as_ref().and_then(|links| links.get(&id).cloned());
    Ok((id, found.ok_or(CUDA_ERROR_INVALID_HANDLE)?))
}

fn create(
    count: u32,
    options: InPtr<CUjit_option>,
    values: OutPtr<usize>,
    to: OutPtr<*mut c_void>,
) -> Result {
    let client = client()?;
    to.required()?;
    thread::required_context()?;
    let jit = Jit::new(count, options, values)?;
    let link = client.new_serial();
    let options = jit.lower();
    client.call(&request::gpgpuLinkCreate { link, options })?;
    let made = Mutex::default();
    links()
        .get_or_insert_default()
        .insert(link, Arc::new(Link { jit, made }));
    to.set(link as *mut c_void)
}

/// Adds an input, whose bytes were read when the call returns.
fn add(state: *mut c_void, kind: CUjitInputType, bytes: &[u8], name: String, jit: &Jit) -> Result {
    let client = client()?;
    let (id, link) = find(state)?;
    let request = |image| request::gpgpuLinkAdd {
        link: id,
        kind,
        image,
        name,
        options: jit.lower(),
        log: true,
    };
    let (result, reply) = image::load(client, bytes, request)?;
    link.jit
        .raise(&reply.map_or_else(JitLog::default, |reply| reply.log));
    match result {
        CUDA_SUCCESS => Ok(()),
        code => Err(code),
    }
}

fn add_data(
    state: *mut c_void,
    kind: CUjitInputType,
    data: HostPtr,
    size: usize,
    name: Text,
    jit: Jit,
) -> Result {
    client()?;
    if data.is_null() || size == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // The name is optional.
    let name = name.get().unwrap_or_default();
    add(state, kind, data.bytes(size), name, &jit)
}

fn add_file(state: *mut c_void, kind: CUjitInputType, path: Text, jit: Jit) -> Result {
    client()?;
    let path = path.get()?;
    let bytes = std::fs::read(&path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    add(state, kind, &bytes, path, &jit)
}

fn complete(state: *mut c_void, cubin: OutPtr<*mut c_void>, size: OutPtr<usize>) -> Result {
    let client = client()?;
    cubin.required()?;
    let (id, link) = find(state)?;
    let request = request::gpgpuLinkComplete {
        link: id,
        bytes: true,
        log: true,
    };
    let (result, reply) = client.exchange(&request, &[], &mut [])?;
    let bytes = reply.as_ref().map_or(0, |reply| reply.bytes);
    link.jit
        .raise(&reply.map_or_else(JitLog::default, |reply| reply.log));
    if result != CUDA_SUCCESS {
        return Err(result);
    }
    // A loader that treats the output as text looks for a NUL.
    let length = usize::try_from(bytes).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut whole = vec![0; length + 1];
    for (part, chunk) in whole[..length].chunks_mut(client.block_bytes()).enumerate() {
        let read = request::gpgpuLinkRead {
            link: id,
            offset: (part * client.block_bytes()) as u64,
        };
        client.call_with(&read, &[], chunk)?;
    }
    let mut made = link.made.lock();
    let kept = made.insert(whole.into_boxed_slice());
    size.offer(length);
    cubin.set(kept.as_mut_ptr().cast())
}

cuda! {
    fn cuLinkCreate(numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>, stateOut: OutPtr<*mut c_void>) {
        create(numOptions, options, optionValues, stateOut)
    }

    fn cuLinkCreate_v2(numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>, stateOut: OutPtr<*mut c_void>) {
        create(numOptions, options, optionValues, stateOut)
    }

    #[allow(clippy::too_many_arguments)]
    fn cuLinkAddData(state: *mut c_void, type_: CUjitInputType, data: HostPtr, size: usize, name: Text, numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>) {
        add_data(state, type_, data, size, name, Jit::new(numOptions, options, optionValues)?)
    }

    #[allow(clippy::too_many_arguments)]
    fn cuLinkAddData_v2(state: *mut c_void, type_: CUjitInputType, data: HostPtr, size: usize, name: Text, numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>) {
        add_data(state, type_, data, size, name, Jit::new(numOptions, options, optionValues)?)
    }

    fn cuLinkAddFile(state: *mut c_void, type_: CUjitInputType, path: Text, numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>) {
        add_file(state, type_, path, Jit::new(numOptions, options, optionValues)?)
    }

    fn cuLinkAddFile_v2(state: *mut c_void, type_: CUjitInputType, path: Text, numOptions: u32, options: InPtr<CUjit_option>, optionValues: OutPtr<usize>) {
        add_file(state, type_, path, Jit::new(numOptions, options, optionValues)?)
    }

    fn cuLinkComplete(state: *mut c_void, cubinOut: OutPtr<*mut c_void>, sizeOut: OutPtr<usize>) {
        complete(state, cubinOut, sizeOut)
    }

    fn cuLinkDestroy(state: *mut c_void) {
        let client = client()?;
        let (link, _) = find(state)?;
        client.call(&request::gpgpuLinkDestroy { link })?;
        if let Some(links) = &mut *links() {
            links.remove(&link);
        }
        Ok(())
    }
}
