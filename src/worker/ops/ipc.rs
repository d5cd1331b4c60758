// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects that processes of one VM share: memory and events.

use std::os::fd::OwnedFd;

use gpgpu_protocol::{
    api::{Stream, reply, request},
    codec::Blob,
    cuda::*,
};
use zerocopy::IntoBytes;

use crate::{
    cuda::driver,
    ipc::peers::Given,
    worker::{
        device_memory::Lender,
        dispatch::Outcome,
        grace,
        peers::{Name, Object, what},
        session::{Data, Session},
    },
};

/// Requests an object from its worker, which must be another one.
fn ask(session: &Session, name: &Name) -> Result<(Given, OwnedFd), CUresult> {
    // This takes long. The command looks up its objects afterwards.
    grace::narrow(&session.used());
    session.peers.ask(name)
}

/// A name in the protocol's form.
fn blob(name: &Name) -> Blob {
    Blob(name.as_bytes().to_vec())
}

/// Shares the allocation that contains an address.
pub fn gpgpuIpcShare(
    session: &Session,
    request: request::gpgpuIpcShare,
    _: Data,
) -> Outcome<reply::gpgpuIpcShare> {
    let memory = session.device_memory;
    let object = memory.shareable(request.dptr, request.bytes)?;
    let name = session.peers.share(object)?;
    Ok(reply::gpgpuIpcShare {
        name: blob(&name),
        ..Default::default()
    })
}

/// Opens another process's allocation.
pub fn gpgpuIpcOpen(
    session: &Session,
    request: request::gpgpuIpcOpen,
    _: Data,
) -> Outcome<reply::gpgpuIpcOpen> {
    let name = Name::read(&request.name.0, what::MEMORY)?;
    if session.peers.is_own(&name) {
        return Err(CUDA_ERROR_INVALID_CONTEXT.into());
    }
    let (given, file) = ask(session, &name)?;
    let context = session.current();
    let memory = session.device_memory;
    let opened = memory.open(context, &name, &given, &file);
    let (dptr, bytes, dev) = opened.inspect_err(|_| session.peers.returned(&name, 1))?;
    Ok(reply::gpgpuIpcOpen {
        dptr,
        bytes,
        dev,
        ..Default::default()
    })
}

/// `cuIpcCloseMemHandle`.
pub fn cuIpcCloseMemHandle(
    session: &Session,
    request: request::cuIpcCloseMemHandle,
    _: Data,
) -> Outcome<reply::cuIpcCloseMemHandle> {
    session.device_memory.close(request.dptr)?;
    Ok(reply::cuIpcCloseMemHandle::default())
}

/// Shares physical memory.
pub fn gpgpuPhysicalShare(
    session: &Session,
    request: request::gpgpuPhysicalShare,
    _: Data,
) -> Outcome<reply::gpgpuPhysicalShare> {
    let object = session.device_memory.shareable_physical(request.handle)?;
    let name = session.peers.share(object)?;
    Ok(reply::gpgpuPhysicalShare {
        name: blob(&name),
        ..Default::default()
    })
}

/// Imports physical memory.
pub fn gpgpuPhysicalImport(
    session: &Session,
    request: request::gpgpuPhysicalImport,
    _: Data,
) -> Outcome<reply::gpgpuPhysicalImport> {
    let name = Name::read(&request.name.0, what::PHYSICAL)?;
    let memory = session.device_memory;
    let (dev, bytes) = if session.peers.is_own(&name) {
        match session.peers.own_object(&name) {
            Some(Object::Physical(number)) => memory.import_own(request.handle, number)?,
            _ => return Err(CUDA_ERROR_INVALID_VALUE.into()),
        }
    } else {
        let (given, file) = ask(session, &name)?;
        memory.import_physical(request.handle, &given, &file)?
    };
    Ok(reply::gpgpuPhysicalImport {
        dev,
        bytes,
        ..Default::default()
    })
}

/// Names a memory pool.
pub fn gpgpuPoolShare(
    session: &Session,
    request: request::gpgpuPoolShare,
    _: Data,
) -> Outcome<reply::gpgpuPoolShare> {
    let device = session.device_memory.shareable_pool(request.pool)?;
    let name = session.peers.name_pool(request.pool, device as u64)?;
    Ok(reply::gpgpuPoolShare {
        name: blob(&name),
        ..Default::default()
    })
}

/// Imports a memory pool.
pub fn gpgpuPoolImport(
    session: &Session,
    request: request::gpgpuPoolImport,
    _: Data,
) -> Outcome<reply::gpgpuPoolImport> {
    let name = Name::read(&request.name.0, what::POOL)?;
    let memory = session.device_memory;
    let dev = memory.import_pool(request.pool, &name)?;
    Ok(reply::gpgpuPoolImport {
        dev,
        ..Default::default()
    })
}

/// Shares an allocation of a memory pool.
pub fn gpgpuPooledShare(
    session: &Session,
    request: request::gpgpuPooledShare,
    _: Data,
) -> Outcome<reply::gpgpuPooledShare> {
    let object = session.device_memory.shareable_pooled(request.dptr)?;
    let name = session.peers.share(object)?;
    Ok(reply::gpgpuPooledShare {
        name: blob(&name),
        ..Default::default()
    })
}

/// Opens an allocation of an imported memory pool.
pub fn gpgpuPooledOpen(
    session: &Session,
    request: request::gpgpuPooledOpen,
    _: Data,
) -> Outcome<reply::gpgpuPooledOpen> {
    let name = Name::read(&request.name.0, what::POOLED)?;
    let memory = session.device_memory;
    memory.check_pool(request.pool, &name)?;
    let (given, file) = match session.peers.is_own(&name) {
        true => session.peers.give_own(&name)?,
        false => ask(session, &name)?,
    };
    let home = (session.current(), request.pool);
    let opened = memory.open_pooled(home, &name, &given, &file);
    let (dptr, bytes) = opened.inspect_err(|_| session.peers.returned(&name, 1))?;
    Ok(reply::gpgpuPooledOpen {
        dptr,
        bytes,
        ..Default::default()
    })
}

/// Makes an event that other processes may open.
pub fn gpgpuIpcEventCreate(
    session: &Session,
    request: request::gpgpuIpcEventCreate,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventCreate> {
    session.shared_events.create(request.event)?;
    Ok(reply::gpgpuIpcEventCreate::default())
}

/// Shares an event.
pub fn gpgpuIpcEventShare(
    session: &Session,
    request: request::gpgpuIpcEventShare,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventShare> {
    if !session.shared_events.is_own(request.event) {
        return Err(CUDA_ERROR_INVALID_HANDLE.into());
    }
    let name = session.peers.share(Object::Event(request.event))?;
    Ok(reply::gpgpuIpcEventShare {
        name: blob(&name),
        ..Default::default()
    })
}

/// Opens another process's event.
pub fn gpgpuIpcEventOpen(
    session: &Session,
    request: request::gpgpuIpcEventOpen,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventOpen> {
    let name = Name::read(&request.name.0, what::EVENT).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
    if session.peers.is_own(&name) {
        return Err(CUDA_ERROR_INVALID_CONTEXT.into());
    }
    let asked = || {
        let given = ask(session, &name);
        given
            .map(|(_, file)| file)
            .map_err(|_| CUDA_ERROR_MAP_FAILED)
    };
    session.shared_events.open(request.event, &name, asked)?;
    Ok(reply::gpgpuIpcEventOpen::default())
}

/// Ends a shared event.
pub fn gpgpuIpcEventDestroy(
    session: &Session,
    request: request::gpgpuIpcEventDestroy,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventDestroy> {
    session.shared_events.destroy(request.event)?;
    Ok(reply::gpgpuIpcEventDestroy::default())
}

/// Records a shared event.
pub fn gpgpuIpcEventRecord(
    session: &Session,
    request: request::gpgpuIpcEventRecord,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventRecord> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    session.shared_events.record(request.event, stream)?;
    Ok(reply::gpgpuIpcEventRecord::default())
}

/// Makes a stream wait for a shared event.
pub fn gpgpuIpcEventWait(
    session: &Session,
    request: request::gpgpuIpcEventWait,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventWait> {
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    session.shared_events.wait(request.event, stream)?;
    Ok(reply::gpgpuIpcEventWait::default())
}

/// Checks that the current context's work has not failed: after a failure, records may never complete.
fn has_failed() -> Result<(), CUresult> {
    // SAFETY: the legacy stream always is.
    match unsafe { driver::cuStreamQuery(std::ptr::null_mut()) } {
        Err(code) if code != CUDA_ERROR_NOT_READY => Err(code),
        _ => Ok(()),
    }
}

/// Queries a shared event.
pub fn gpgpuIpcEventQuery(
    session: &Session,
    request: request::gpgpuIpcEventQuery,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventQuery> {
    if session.shared_events.is_over(request.event)? {
        return Ok(reply::gpgpuIpcEventQuery::default());
    }
    has_failed()?;
    Err(CUDA_ERROR_NOT_READY.into())
}

/// Waits for a shared event.
pub fn gpgpuIpcEventSynchronize(
    session: &Session,
    request: request::gpgpuIpcEventSynchronize,
    _: Data,
) -> Outcome<reply::gpgpuIpcEventSynchronize> {
    grace::narrow(&session.used());
    session
        .shared_events
        .synchronize(request.event, has_failed)?;
    Ok(reply::gpgpuIpcEventSynchronize::default())
}
