// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state of a thread of the program: its context stack, its default stream.
//!
//! All functions also work in a thread whose thread-local storage was destroyed (a CUDA call in a destructor).

use std::{cell::RefCell, mem::ManuallyDrop};

pub use gpgpu_client::thread::{
    current_context, has, is_for_callbacks, pop_context, push_context, set_context, within,
};
use gpgpu_protocol::{
    api::{Stream, request},
    cuda::*,
};

use crate::{
    client::{Client, client},
    ffi::Result,
    green,
    stores::objects::Known,
};

/// The state of a thread. It remains usable after the thread's destructors, because a program may call CUDA in one. So
/// no field has a destructor; [`Leaving`] cleans up.
struct Thread {
    /// Default streams: the context's id and the stream's.
    streams: RefCell<Vec<(u64, u64)>>,
}

/// Runs at the end of a thread that had a default stream.
struct Leaving;

impl Drop for Leaving {
    fn drop(&mut self) {
        let streams = with(|thread| {
            let mut streams = thread.streams.try_borrow_mut().ok()?;
            Some(std::mem::take(&mut *streams))
        });
        // A thread's default streams end with it. At the end of the process the host destroys them.
        if let Ok(client) = client() {
            for (_, stream) in streams.flatten().unwrap_or_default() {
                client.leave_stream(stream);
                if client.objects.remove(stream).is_some() {
                    let _ = client.post(&request::cuStreamDestroy_v2 { hStream: stream });
                }
            }
        }
    }
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            streams: RefCell::new(Vec::new()),
        })
    };
    static LEAVING: Leaving = const { Leaving };
}

fn with<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| body(thread)).ok()
}

/// The calling thread's current context, which may have ended.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT` if there is none.
pub fn required_context() -> Result<u64> {
    match current_context() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        context => Ok(context),
    }
}

/// Whether the calling thread has an existing current context: without one, no call is known to be valid.
pub fn has_context(client: &Client) -> bool {
    let context = current_context();
    context != 0 && client.objects.contains(context)
}

/// The context that owns objects of the calling thread: its current one, or a green one's primary context. Streams
/// belong to the current one.
pub fn home(client: &Client) -> u64 {
    green::home(client, current_context())
}

/// The id of a stream handle, where NULL is the legacy stream.
pub fn stream_id(client: &Client, handle: u64) -> Result<u64> {
    if handle == CU_STREAM_PER_THREAD as u64 {
        own_stream(client)
    } else {
        green::check_stream(handle)?;
        Ok(handle)
    }
}

/// The id of a stream handle, where NULL is the calling thread's own stream.
pub fn stream_id_per_thread(client: &Client, handle: u64) -> Result<u64> {
    if handle == 0 {
        own_stream(client)
    } else {
        stream_id(client, handle)
    }
}

/// The calling thread's default stream in the current context: a blocking stream like any other.
fn own_stream(client: &Client) -> Result<u64> {
    let context = current_context();
    if context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let known = with(|thread| {
        let streams = thread.streams.try_borrow().ok()?;
        let own = streams.iter().find(|(of, _)| *of == context);
        Some(own.map(|(_, id)| *id))
    });
    let known = known.flatten().ok_or(CUDA_ERROR_DEINITIALIZED)?;
    if let Some(id) = known.filter(|id| client.objects.contains(*id)) {
        return Ok(id);
    }
    let id = client.new_id::<Stream>();
    let request = request::cuStreamCreate {
        phStream: id,
        Flags: CU_STREAM_DEFAULT,
    };
    if has_context(client) {
        client.post(&request)?;
    } else {
        client.call(&request)?;
    }
    client.objects.insert(id, Known::made::<Stream>(context));
    // Registers the destructor that destroys the stream.
    let _ = LEAVING.try_with(|_| ());
    with(|thread| {
        if let Ok(mut streams) = thread.streams.try_borrow_mut() {
            streams.retain(|(of, _)| *of != context);
            streams.push((context, id));
        }
    });
    Ok(id)
}
