//! Functions and kernels: their parameters, their attributes, what fits where.

use std::{
    ffi::CString,
    os::raw::c_char,
    sync::{Arc, Mutex},
};

use gpgpu_protocol::{
    api::{AttributeValue, Function, FunctionInfo, Kernel, Module, Object, ParamInfo, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    border::Result,
    client::{Client, client},
    cuda,
    launch::{Shape, lower_config},
    thread,
};

/// What the process knows of a function, or of a kernel of a library.
#[derive(Debug)]
pub struct FunctionData {
    /// The name, as CUDA gives it out: it stays where it is for as long as the module lives.
    pub name: CString,
    /// The context, or 0 for a kernel, which is in all.
    pub context: u64,
    /// The module or library that it comes from.
    pub parent: u64,
    /// Where each parameter stands.
    pub params: Vec<ParamInfo>,
    attributes: Mutex<Vec<AttributeValue>>,
}

impl FunctionData {
    /// A function as the host described it.
    pub fn new(name: &str, context: u64, parent: u64, info: FunctionInfo) -> Arc<Self> {
        Arc::new(Self {
            name: CString::new(name).unwrap_or_default(),
            context,
            parent,
            params: info.params,
            attributes: Mutex::new(info.attributes),
        })
    }

    /// The bytes of all parameters together.
    pub fn param_bytes(&self) -> usize {
        self.params
            .iter()
            .map(|param| param.offset as usize + param.size as usize)
            .max()
            .unwrap_or(0)
    }

    /// An attribute, if it is known.
    pub fn attribute(&self, attribute: CUfunction_attribute) -> Option<i32> {
        let attributes = self
            .attributes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        attributes
            .get(attribute as usize)
            .filter(|answer| answer.result == CUDA_SUCCESS)
            .map(|answer| answer.value)
    }

    /// The attributes may have changed: until they are known again, the host judges every launch.
    fn forget_attributes(&self) {
        self.attributes
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clear();
    }
}

fn param(
    client: &Client,
    id: u64,
    index: usize,
    offset: OutPtr<usize>,
    size: OutPtr<usize>,
) -> Result {
    let function = client.objects.function(id)?;
    let param = function.params.get(index).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    offset.required()?;
    offset.offer(param.offset as usize);
    size.offer(param.size as usize);
    Ok(())
}

/// How much dynamic shared memory a block takes: a constant, or a function of its threads.
fn dynamic_shared(by_threads: CUoccupancyB2DSize, constant: usize, threads: i32) -> usize {
    match by_threads {
        // SAFETY: the program gave the function for this use.
        Some(function) => unsafe { function(threads) },
        None => constant,
    }
}

/// The block size with the most threads on a multiprocessor, and how many blocks fill the device.
fn potential_block_size(
    grid: OutPtr<i32>,
    block: OutPtr<i32>,
    func: u64,
    (by_threads, constant): (CUoccupancyB2DSize, usize),
    limit: i32,
    flags: u32,
) -> Result {
    let client = client()?;
    grid.required()?;
    block.required()?;
    let device = client
        .objects
        .context_device(thread::current_context())
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let info = crate::device::device(device)?;
    let attribute = |attribute| crate::device::attribute(info, attribute);
    let warp = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    let per_processor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    let processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let request = request::cuFuncGetAttribute {
        pi: true,
        attrib: CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        hfunc: func,
    };
    let mut most = client
        .call(&request)?
        .pi
        .min(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?);
    if limit > 0 {
        most = most.min(limit);
    }
    let (mut best_threads, mut best_block, mut best_count) = (0, 0, 0);
    let mut threads = (most + warp - 1) / warp.max(1) * warp;
    while threads > 0 {
        let size = threads.min(most);
        let request = request::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
            numBlocks: true,
            func,
            blockSize: size,
            dynamicSMemSize: dynamic_shared(by_threads, constant, size),
            flags,
        };
        let count = client.call(&request)?.numBlocks;
        if count * size > best_threads {
            (best_threads, best_block, best_count) = (count * size, size, count);
        }
        // Nothing smaller can hold more threads than all that there are.
        if best_threads == per_processor {
            break;
        }
        threads -= warp.max(1);
    }
    grid.offer(best_count * processors);
    block.offer(best_block);
    Ok(())
}

cuda! {
    fn cuFuncGetModule(hmod: OutPtr<CUmodule>, hfunc: CUfunction) {
        let function = client()?.objects.function(Function::id(hfunc))?;
        hmod.set(Module::handle(function.parent))
    }

    fn cuFuncGetName(name: OutPtr<*const c_char>, hfunc: CUfunction) {
        let function = client()?.objects.function(Function::id(hfunc))?;
        name.set(function.name.as_ptr())
    }

    fn cuKernelGetName(name: OutPtr<*const c_char>, hfunc: CUkernel) {
        let function = client()?.objects.function(Kernel::id(hfunc))?;
        name.set(function.name.as_ptr())
    }

    fn cuFuncGetParamInfo(func: CUfunction, paramIndex: usize, paramOffset: OutPtr<usize>, paramSize: OutPtr<usize>) {
        param(client()?, Function::id(func), paramIndex, paramOffset, paramSize)
    }

    fn cuKernelGetParamInfo(kernel: CUkernel, paramIndex: usize, paramOffset: OutPtr<usize>, paramSize: OutPtr<usize>) {
        param(client()?, Kernel::id(kernel), paramIndex, paramOffset, paramSize)
    }

    fn cuFuncSetAttribute(hfunc: CUfunction, attrib: CUfunction_attribute, value: i32) {
        let client = client()?;
        if let Ok(function) = client.objects.function(Function::id(hfunc)) {
            function.forget_attributes();
        }
        client.call(&request::cuFuncSetAttribute { hfunc: Function::id(hfunc), attrib, value }).map(drop)
    }

    fn cuKernelSetAttribute(attrib: CUfunction_attribute, val: i32, kernel: CUkernel, dev: CUdevice) {
        let client = client()?;
        if let Ok(function) = client.objects.function(Kernel::id(kernel)) {
            function.forget_attributes();
        }
        client.call(&request::cuKernelSetAttribute { attrib, val, kernel: Kernel::id(kernel), dev }).map(drop)
    }

    fn cuOccupancyMaxPotentialBlockSize(minGridSize: OutPtr<i32>, blockSize: OutPtr<i32>, func: CUfunction, blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize, blockSizeLimit: i32) {
        potential_block_size(minGridSize, blockSize, Function::id(func), (blockSizeToDynamicSMemSize, dynamicSMemSize), blockSizeLimit, 0)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize: OutPtr<i32>, blockSize: OutPtr<i32>, func: CUfunction, blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize, blockSizeLimit: i32, flags: u32) {
        potential_block_size(minGridSize, blockSize, Function::id(func), (blockSizeToDynamicSMemSize, dynamicSMemSize), blockSizeLimit, flags)
    }

    fn cuOccupancyMaxActiveClusters(numClusters: OutPtr<i32>, func: CUfunction, config: InPtr<CUlaunchConfig>) {
        let client = client()?;
        let config = lower_config(client, config, Shape::Legacy)?;
        let reply = client.call(&request::cuOccupancyMaxActiveClusters { func: Function::id(func), config, clusters: true })?;
        numClusters.set(reply.clusters)
    }

    fn cuOccupancyMaxPotentialClusterSize(clusterSize: OutPtr<i32>, func: CUfunction, config: InPtr<CUlaunchConfig>) {
        let client = client()?;
        let config = lower_config(client, config, Shape::Legacy)?;
        let reply = client.call(&request::cuOccupancyMaxPotentialClusterSize { func: Function::id(func), config, size: true })?;
        clusterSize.set(reply.size)
    }
}
