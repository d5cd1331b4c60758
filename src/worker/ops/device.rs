// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries about pairs of devices. The hello describes single devices.

use gpgpu_protocol::api::{reply, request};

use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// `cuDeviceCanAccessPeer`.
pub fn cuDeviceCanAccessPeer(
    session: &Session,
    request: request::cuDeviceCanAccessPeer,
    _: Data,
) -> Outcome<reply::cuDeviceCanAccessPeer> {
    let (dev, peer) = (session.gpu(request.dev)?, session.gpu(request.peerDev)?);
    let (mut can, mut to) = (0, std::ptr::null_mut());
    if request.canAccessPeer {
        to = &raw mut can;
    }
    // SAFETY: the pointer is to a value that lives across the call, or NULL.
    unsafe { driver::cuDeviceCanAccessPeer(to, dev, peer)? };
    Ok(reply::cuDeviceCanAccessPeer {
        canAccessPeer: can,
        ..Default::default()
    })
}

/// `cuDeviceGetP2PAttribute`.
pub fn cuDeviceGetP2PAttribute(
    session: &Session,
    request: request::cuDeviceGetP2PAttribute,
    _: Data,
) -> Outcome<reply::cuDeviceGetP2PAttribute> {
    let from = session.gpu(request.srcDevice)?;
    let to = session.gpu(request.dstDevice)?;
    let (mut value, mut place) = (0, std::ptr::null_mut());
    if request.value {
        place = &raw mut value;
    }
    // SAFETY: the pointer is to a value that lives across the call, or NULL.
    unsafe { driver::cuDeviceGetP2PAttribute(place, request.attrib, from, to)? };
    Ok(reply::cuDeviceGetP2PAttribute {
        value,
        ..Default::default()
    })
}
