// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Host callbacks: functions of the program that a stream calls.
//!
//! The worker's stream stops at a callback until the program has run it. Callbacks run on a separate thread, which asks
//! the worker for the next one and reports when it has run. So no call of the program's threads waits for a callback,
//! and no callback waits for them.

use std::{collections::HashMap, ffi::c_void, sync::Once};

use gpgpu_client::{
    log::{self, Level},
    signals,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::{self, calls},
    launch::DefaultStream,
    managed, stream, thread,
};

enum Callback {
    /// A function of the library itself.
    Own(Box<dyn FnOnce() + Send>),
    Host {
        function: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    },
    Stream {
        function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
        stream: CUstream,
        data: *mut c_void,
    },
}

impl Callback {
    fn run(self, status: CUresult) {
        match self {
            Self::Own(what) => what(),
            // SAFETY: the program gave this function and this pointer for this one call.
            Self::Host { function, data } => unsafe { function(data) },
            Self::Stream {
                function,
                stream,
                data,
            } => {
                // SAFETY: as above.
                unsafe { function(stream, status, data) }
            }
        }
    }
}

// SAFETY: CUDA runs callbacks on a thread of its own; the program's data pointer is handed on untouched.
unsafe impl Send for Callback {}

static PENDING: Mutex<Option<HashMap<u64, Callback>>> = Mutex::new(None);

fn pending<T>(body: impl FnOnce(&mut HashMap<u64, Callback>) -> T) -> T {
    body(PENDING.lock().get_or_insert_default())
}

fn serve(client: &'static Client) {
    thread::is_for_callbacks();
    loop {
        let Ok(next) = client.call(&request::gpgpuNextCallback {
            callback: true,
            status: true,
        }) else {
            return; // The client is gone; no callback will come any more.
        };
        match pending(|callbacks| callbacks.remove(&next.callback)) {
            Some(callback) => managed::in_call(client, || callback.run(next.status)),
            None => managed::in_call(client, || calls::run(next.callback)),
        }
        if client
            .post(&request::gpgpuCallbackDone {
                callback: next.callback,
            })
            .is_err()
        {
            return;
        }
    }
}

/// Starts the thread for callbacks.
pub fn start(client: &'static Client) {
    static START: Once = Once::new();
    START.call_once(|| {
        let started = signals::spawn("gpgpu-callbacks", move || serve(client));
        if let Err(error) = started {
            log::say(Level::Error, || {
                format!("Cannot start the thread for host callbacks: {error}")
            });
        }
    });
}

fn enqueue(callback: Callback, send: impl FnOnce(&Client, u64) -> Result) -> Result {
    let client = client()?;
    start(client);
    let id = client.new_serial();
    pending(|callbacks| callbacks.insert(id, callback));
    send(client, id).inspect_err(|_| {
        pending(|callbacks| callbacks.remove(&id));
    })
}

/// Calls a function when a stream reaches this point.
pub fn call(hStream: u64, what: Box<dyn FnOnce() + Send>) -> Result {
    enqueue(Callback::Own(what), |client, callback| {
        client
            .call(&request::cuLaunchHostFunc { hStream, callback })
            .map(drop)
    })
}

fn host(shape: DefaultStream, stream: CUstream, function: CUhostFn, data: *mut c_void) -> Result {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let hStream = stream::lower(shape, stream)?;
    if graph::host(client()?, hStream, function, data)? {
        return Ok(());
    }
    enqueue(Callback::Host { function, data }, |client, callback| {
        let request = request::cuLaunchHostFunc { hStream, callback };
        // Without the ring, posts would take all places of the command queue, and the callbacks' thread needs one.
        let is_accepted = thread::has_context(client) && client.objects.knows_stream(hStream);
        match client.ring().is_some() && is_accepted {
            true => client.post(&request),
            false => client.call(&request).map(drop),
        }
    })
}

/// The greatest `CUhostTaskSyncMode`: `CU_HOST_TASK_SPINWAIT`. 0 is `CU_HOST_TASK_BLOCKING`.
const SPIN_WAIT: u32 = 1;

/// Checks a `CUhostTaskSyncMode`. The mode determines how the thread that makes the calls waits for the next one: it
/// blocks or spins. Here that thread waits for a message of the host, and always blocks. The second mode gives the same
/// result, and is not faster.
fn check_mode(mode: u32) -> Result {
    if mode > SPIN_WAIT {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

fn with_status(
    shape: DefaultStream,
    stream: CUstream,
    function: CUstreamCallback,
    data: *mut c_void,
    flags: u32,
) -> Result {
    let function = function.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let hStream = stream::lower(shape, stream)?;
    graph::refuse(client()?, hStream)?;
    enqueue(
        Callback::Stream {
            function,
            stream,
            data,
        },
        |client, callback| {
            client
                .call(&request::cuStreamAddCallback { hStream, callback })
                .map(drop)
        },
    )
}

cuda! {
    fn cuLaunchHostFunc(hStream: CUstream, fnc: CUhostFn, userData: *mut c_void) {
        host(DefaultStream::Legacy, hStream, fnc, userData)
    }

    fn cuLaunchHostFunc_ptsz(hStream: CUstream, fnc: CUhostFn, userData: *mut c_void) {
        host(DefaultStream::PerThread, hStream, fnc, userData)
    }

    fn cuLaunchHostFunc_v2(hStream: CUstream, fnc: CUhostFn, userData: *mut c_void, syncMode: u32) {
        check_mode(syncMode)?;
        host(DefaultStream::Legacy, hStream, fnc, userData)
    }

    fn cuLaunchHostFunc_v2_ptsz(hStream: CUstream, fnc: CUhostFn, userData: *mut c_void, syncMode: u32) {
        check_mode(syncMode)?;
        host(DefaultStream::PerThread, hStream, fnc, userData)
    }

    fn cuStreamAddCallback(hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: u32) {
        with_status(DefaultStream::Legacy, hStream, callback, userData, flags)
    }

    fn cuStreamAddCallback_ptsz(hStream: CUstream, callback: CUstreamCallback, userData: *mut c_void, flags: u32) {
        with_status(DefaultStream::PerThread, hStream, callback, userData, flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_call_blocks_or_spins() {
        assert_eq!([0, 1].map(check_mode), [Ok(()), Ok(())]);
        let refused = Err(CUDA_ERROR_INVALID_VALUE);
        assert_eq!([2, u32::MAX].map(check_mode), [refused; 2]);
    }
}
