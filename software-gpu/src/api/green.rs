// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts, and the multiprocessors that they consist of.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CU_DEV_RESOURCE_TYPE_SM, CU_GREEN_CTX_DEFAULT_STREAM, CU_STREAM_NON_BLOCKING,
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_RESOURCE_TYPE, CUDA_ERROR_INVALID_VALUE,
    CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUevent, CUgreenCtx,
    CUstream,
};

use super::device::check;
use super::{event, stream};
use crate::config::MULTIPROCESSORS;
use crate::context::{self, Context};
use crate::ffi::{Pointer, Result, export, refuse_in_callback};
use crate::green::{ALL, DESCRIPTORS, Descriptor, Green, Resource};

/// The green context that a handle names.
fn named(handle: CUgreenCtx) -> Result<Arc<Context>> {
    let context = context::named(handle as u64)?;
    match context.green {
        Some(_) => Ok(context),
        None => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

fn resource(of: Resource, out: Pointer<CUdevResource>, kind: CUdevResourceType) -> Result {
    out.required()?;
    if kind != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    out.set(of.show())
}

/// A context's part of its device.
fn of_context(context: &Context) -> Resource {
    Resource {
        device: context.device,
        bits: context.green.as_ref().map_or(ALL, |green| green.bits),
        split: None,
    }
}

export! {
    /// `cuDeviceGetDevResource`.
    initialised fn cuDeviceGetDevResource(device: CUdevice, out: Pointer<CUdevResource>, kind: CUdevResourceType) |_| {
        check(device)?;
        resource(Resource { device, bits: ALL, split: None }, out, kind)
    }

    /// `cuCtxGetDevResource`.
    initialised fn cuCtxGetDevResource(context: CUcontext, out: Pointer<CUdevResource>, kind: CUdevResourceType) |_| {
        resource(of_context(&*context::named(context as u64)?), out, kind)
    }

    /// `cuGreenCtxGetDevResource`.
    initialised fn cuGreenCtxGetDevResource(context: CUgreenCtx, out: Pointer<CUdevResource>, kind: CUdevResourceType) |_| {
        resource(of_context(&*named(context)?), out, kind)
    }

    /// `cuDevSmResourceSplitByCount`: without groups, how many there would be.
    initialised fn cuDevSmResourceSplitByCount(
        groups: Pointer<CUdevResource>, count: Pointer<c_uint>, input: Pointer<CUdevResource>, remaining: Pointer<CUdevResource>,
        flags: c_uint, minimum: c_uint,
    ) |_| {
        let input = input.get()?;
        let most = if groups.is_null() { MULTIPROCESSORS } else { count.get()? };
        count.required()?;
        if most == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (made, left) = Resource::read(&input)?.split(most, minimum, flags)?;
        count.set(made.len() as c_uint)?;
        if !groups.is_null() {
            for (index, of) in made.iter().enumerate() {
                groups.at(index).set(of.show())?;
            }
        }
        remaining.set_if(left.map(Resource::show).unwrap_or_default());
        Ok(())
    }

    /// `cuDevResourceGenerateDesc`.
    initialised fn cuDevResourceGenerateDesc(out: Pointer<CUdevResourceDesc>, resources: Pointer<CUdevResource>, count: c_uint) |_| {
        out.required()?;
        let resources = resources.required()?.array(count as usize)?;
        let resources: Vec<_> = resources.iter().map(Resource::read).collect::<Result<_>>()?;
        let descriptor = Descriptor::of(&resources)?;
        let mut handle = 0;
        DESCRIPTORS.insert_with(|own| {
            handle = own;
            descriptor
        });
        out.set(handle as CUdevResourceDesc)
    }

    /// `cuGreenCtxCreate`; NULL is the whole device.
    healthy fn cuGreenCtxCreate(out: Pointer<CUgreenCtx>, descriptor: CUdevResourceDesc, device: CUdevice, flags: c_uint) |driver| {
        refuse_in_callback()?;
        out.required()?;
        check(device)?;
        if flags != CU_GREEN_CTX_DEFAULT_STREAM {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let bits = match descriptor as u64 {
            0 => ALL,
            handle => {
                let descriptor = DESCRIPTORS.get(handle).filter(|of| of.device == device);
                descriptor.ok_or(CUDA_ERROR_INVALID_VALUE)?.bits
            }
        };
        let home = Context::retain_primary(driver, device)?;
        let made = context::named(home).and_then(|home| Context::create_green(Green { home, bits }));
        match made {
            Ok(made) => out.set(made.handle as CUgreenCtx),
            Err(code) => {
                Context::release_primary(driver, device)?;
                Err(code)
            }
        }
    }

    /// `cuGreenCtxDestroy`: when its work is done.
    initialised fn cuGreenCtxDestroy(context: CUgreenCtx) |driver| {
        let context = named(context)?;
        context.end_green();
        Context::release_primary(driver, context.device)
    }

    /// `cuCtxFromGreenCtx`: the same handle.
    initialised fn cuCtxFromGreenCtx(out: Pointer<CUcontext>, context: CUgreenCtx) |_| {
        out.required()?;
        out.set(named(context)?.handle as CUcontext)
    }

    /// `cuGreenCtxStreamCreate`: no stream of it is ordered with its default stream.
    healthy fn cuGreenCtxStreamCreate(out: Pointer<CUstream>, context: CUgreenCtx, flags: c_uint, priority: c_int) |_| {
        refuse_in_callback()?;
        let context = named(context)?;
        if flags != CU_STREAM_NON_BLOCKING {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        stream::create(&context, out, flags, priority)
    }

    /// `cuGreenCtxRecordEvent`.
    healthy fn cuGreenCtxRecordEvent(context: CUgreenCtx, event: CUevent) |_| {
        event::record_all(&*named(context)?, event)
    }

    /// `cuGreenCtxWaitEvent`.
    healthy fn cuGreenCtxWaitEvent(context: CUgreenCtx, event: CUevent) |_| {
        event::hold_all(&*named(context)?, event)
    }

    /// `cuGreenCtxGetId`: NULL is the current one.
    initialised fn cuGreenCtxGetId(context: CUgreenCtx, id: Pointer<c_ulonglong>) |_| {
        let handle = if context.is_null() { context::current_handle()? } else { context as u64 };
        id.set(named(handle as CUgreenCtx)?.own)
    }
}
