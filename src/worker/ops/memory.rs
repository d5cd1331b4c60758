//! Registered memory and what the driver says of addresses.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{reply, request},
    cuda::*,
};

use crate::worker::{
    dispatch::Outcome,
    driver,
    session::{Data, Session},
};

/// Pins memory that the device process has mapped here before.
pub fn cuMemHostRegister_v2(
    session: &Session,
    request: request::cuMemHostRegister_v2,
    _: Data,
) -> Outcome<reply::cuMemHostRegister_v2> {
    // Read-only and I/O memory need rights that this process's mapping decides, not the guest.
    let flags = request.flags & (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    let device = session.regions.register(
        session.current(),
        request.address,
        request.bytes as u64,
        flags,
    )?;
    Ok(reply::cuMemHostRegister_v2 {
        address: (),
        bytes: (),
        flags: (),
        device,
    })
}

/// Lets it go.
pub fn cuMemHostUnregister(
    session: &Session,
    request: request::cuMemHostUnregister,
    _: Data,
) -> Outcome<reply::cuMemHostUnregister> {
    session.regions.unregister(request.address)?;
    Ok(reply::cuMemHostUnregister { address: () })
}

/// `cuPointerGetAttribute`, for the attributes that only the host knows and that hold no pointer.
pub fn gpgpuPointerAttribute(
    _: &Session,
    request: request::gpgpuPointerAttribute,
    _: Data,
) -> Outcome<reply::gpgpuPointerAttribute> {
    const TOLD: &[CUpointer_attribute] = &[
        CU_POINTER_ATTRIBUTE_BUFFER_ID,
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    ];
    if !TOLD.contains(&request.attribute) {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    // No attribute of these is larger; what the driver leaves of it stays zero.
    let mut value = 0_u64;
    let to: *mut c_void = std::ptr::from_mut(&mut value).cast();
    // SAFETY: the pointer is to a value that lives across the call and is as large as any of these attributes.
    unsafe { driver::cuPointerGetAttribute(to, request.attribute, request.ptr)? };
    Ok(reply::gpgpuPointerAttribute {
        value,
        attribute: (),
        ptr: (),
    })
}
