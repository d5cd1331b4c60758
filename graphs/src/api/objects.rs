// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! User objects of graphs, and the memory of graphs.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use super::{get, required, set};
use crate::{
    Gpu, Result,
    abi::*,
    objects::{self, UserObject},
    store::Tag,
};

fn positive(count: u32) -> Result<u64> {
    if count == 0 || count > i32::MAX as u32 {
        Err(CUDA_ERROR_INVALID_VALUE)
    } else {
        Ok(count.into())
    }
}

/// `cuUserObjectCreate`.
pub unsafe fn cuUserObjectCreate<G: Gpu, const PT: bool>(
    to: *mut *mut c_void,
    data: *mut c_void,
    destroy: CUhostFn,
    count: u32,
    flags: u32,
) -> Result {
    G::ready()?;
    required(to)?;
    let destroy = destroy.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags != USER_OBJECT_NO_DESTRUCTOR_SYNC {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let object = UserObject::new(destroy, data, positive(count)?);
    let handle = G::store().with(|inner| {
        let handle = inner.new_handle(Tag::Object);
        inner.objects.insert(handle, object);
        handle
    });
    // SAFETY: promised by the caller.
    unsafe { set(to, handle as *mut c_void) }
}

/// `cuUserObjectRetain`.
pub unsafe fn cuUserObjectRetain<G: Gpu, const PT: bool>(
    object: *mut c_void,
    count: u32,
) -> Result {
    G::ready()?;
    let count = positive(count)?;
    G::store().with(|inner| inner.retain(object as u64, count))
}

/// `cuUserObjectRelease`.
pub unsafe fn cuUserObjectRelease<G: Gpu, const PT: bool>(
    object: *mut c_void,
    count: u32,
) -> Result {
    G::ready()?;
    let count = positive(count)?;
    G::store().with(|inner| inner.release(object as u64, count))
}

/// `cuGraphRetainUserObject`.
pub unsafe fn cuGraphRetainUserObject<G: Gpu, const PT: bool>(
    graph: CUgraph,
    object: *mut c_void,
    count: u32,
    flags: u32,
) -> Result {
    G::ready()?;
    let count = positive(count)?;
    if flags > GRAPH_USER_OBJECT_MOVE {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let object = object as u64;
    G::store().with(|inner| {
        inner.graph(graph as u64)?;
        if flags == GRAPH_USER_OBJECT_MOVE {
            // The program's references become the graph's.
            let of = inner.objects.get(&object).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if of.count < count {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        } else {
            inner.retain(object, count)?;
        }
        let held = &mut inner.graph(graph as u64)?.objects;
        match held.iter_mut().find(|(of, _)| *of == object) {
            Some((_, held)) => *held += count,
            None => held.push((object, count)),
        }
        Ok(())
    })
}

/// `cuGraphReleaseUserObject`.
pub unsafe fn cuGraphReleaseUserObject<G: Gpu, const PT: bool>(
    graph: CUgraph,
    object: *mut c_void,
    count: u32,
) -> Result {
    G::ready()?;
    let count = positive(count)?;
    G::store().with(|inner| {
        let held = &mut inner.graph(graph as u64)?.objects;
        let of = held.iter_mut().find(|(of, _)| *of == object as u64);
        let (_, has) = of.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        *has = has.checked_sub(count).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        held.retain(|(_, count)| *count > 0);
        inner.release(object as u64, count)
    })
}

fn check_device<G: Gpu>(device: CUdevice) -> Result {
    if G::has_device(device) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_DEVICE)
    }
}

/// `cuDeviceGraphMemTrim`: memory is freed with its last user, so there is nothing to trim.
pub unsafe fn cuDeviceGraphMemTrim<G: Gpu, const PT: bool>(device: CUdevice) -> Result {
    G::ready()?;
    check_device::<G>(device)
}

/// `cuDeviceGetGraphMemAttribute`.
pub unsafe fn cuDeviceGetGraphMemAttribute<G: Gpu, const PT: bool>(
    device: CUdevice,
    attribute: u32,
    value: *mut c_void,
) -> Result {
    G::ready()?;
    check_device::<G>(device)?;
    // SAFETY: each of them is a `cuuint64_t`.
    unsafe { set(value.cast(), objects::usage(device, attribute)?) }
}

/// `cuDeviceSetGraphMemAttribute`.
pub unsafe fn cuDeviceSetGraphMemAttribute<G: Gpu, const PT: bool>(
    device: CUdevice,
    attribute: u32,
    value: *mut c_void,
) -> Result {
    G::ready()?;
    check_device::<G>(device)?;
    // SAFETY: as above.
    objects::reset_usage(device, attribute, unsafe { get(value.cast()) }?)
}
