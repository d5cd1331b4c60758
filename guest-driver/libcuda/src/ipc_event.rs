// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events that the program shares with other processes of its VM. The host has separate functions for them. When a call
//! that records one returns, every process sees the record.

use gpgpu_graphs::capture;
use gpgpu_protocol::{
    api::{Event, Object, Request, request},
    cuda::*,
};

use crate::{
    argument::OutPtr,
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    ipc, thread,
};

/// Flags that events can have.
const FLAGS: u32 = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;

/// Whether the host shares events between processes.
pub fn is_served(client: &Client) -> bool {
    client.has(request::gpgpuIpcEventOpen::OP)
}

/// Whether an event is a shared one.
#[inline]
pub fn is_one(client: &Client, event: u64) -> bool {
    client.shareable.is_event(event)
}

/// `cuEventCreate` of a shared event.
pub fn create(client: &Client, event: OutPtr<CUevent>, flags: u32) -> Result {
    ipc::current()?;
    if flags & !FLAGS != 0 || flags & CU_EVENT_DISABLE_TIMING == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = client.new_id::<Event>();
    client.call(&request::gpgpuIpcEventCreate { event: id })?;
    let home = thread::home(client);
    client.shareable.insert_event(id, true, home);
    event.set(Event::handle(id))
}

/// `cuEventRecord` of a shared event.
pub fn record(client: &Client, hStream: u64, event: u64) -> Result {
    if graph::records(client, hStream)? {
        return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let request = request::gpgpuIpcEventRecord { event, hStream };
    client.call(&request).map(drop)
}

/// `cuEventRecordWithFlags` of a shared event.
pub fn record_with_flags(client: &Client, hStream: u64, event: u64, flags: u32) -> Result {
    match flags {
        0 => record(client, hStream, event),
        CU_EVENT_RECORD_EXTERNAL if graph::records(client, hStream)? => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// `cuStreamWaitEvent` for a shared event.
pub fn wait(client: &Client, hStream: u64, event: u64, flags: u32) -> Result {
    if flags > CU_EVENT_WAIT_EXTERNAL {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags == CU_EVENT_WAIT_EXTERNAL && graph::records(client, hStream)? {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    graph::refuse(client, hStream)?;
    let request = request::gpgpuIpcEventWait { hStream, event };
    client.call(&request).map(drop)
}

/// `cuEventQuery` of a shared event.
pub fn query(client: &Client, event: u64) -> Result {
    client
        .call(&request::gpgpuIpcEventQuery { event })
        .map(drop)
}

/// `cuEventSynchronize` of a shared event.
pub fn synchronize(client: &Client, event: u64) -> Result {
    client
        .call(&request::gpgpuIpcEventSynchronize { event })
        .map(drop)
}

/// `cuEventDestroy` of a shared event.
pub fn destroy(client: &Client, event: u64) -> Result {
    client.shareable.remove_event(event);
    capture::forget_event::<Guest>(event);
    let request = request::gpgpuIpcEventDestroy { event };
    if thread::has_context(client) {
        client.post(&request)
    } else {
        client.call(&request).map(drop)
    }
}

cuda! {
    /// `cuIpcGetEventHandle` of an event that this process has made for sharing.
    fn cuIpcGetEventHandle(pHandle: OutPtr<CUipcEventHandle>, event: CUevent) {
        let client = client()?;
        ipc::current()?;
        pHandle.required()?;
        if event.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        client.require(request::gpgpuIpcEventShare::OPERATION)?;
        let event = Event::id(event);
        if !client.shareable.is_own_event(event) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let shared = client.call(&request::gpgpuIpcEventShare { event, name: true })?;
        pHandle.set(CUipcEventHandle { reserved: ipc::handle(&shared.name)? })
    }

    /// `cuIpcOpenEventHandle`. Each call returns another handle of the same event.
    fn cuIpcOpenEventHandle(phEvent: OutPtr<CUevent>, handle: CUipcEventHandle) {
        let client = client()?;
        ipc::current()?;
        phEvent.required()?;
        client.require(request::gpgpuIpcEventOpen::OPERATION)?;
        let event = client.new_id::<Event>();
        client.call(&request::gpgpuIpcEventOpen { event, name: ipc::name(handle.reserved) })?;
        let home = thread::home(client);
        client.shareable.insert_event(event, false, home);
        phEvent.set(Event::handle(event))
    }
}
