//! What belongs to a thread of the program: its context stack, its default stream, its tag.
//!
//! Every access survives a thread whose storage is already gone (a CUDA call in a destructor).

use std::{
    cell::RefCell,
    mem::ManuallyDrop,
    sync::atomic::{AtomicU32, Ordering},
};

use gpgpu_protocol::{
    api::{Stream, request},
    cuda::*,
};

use crate::{
    border::Result,
    client::{Client, client},
    objects::Known,
};

/// What a thread has. It outlives the thread's destructors, for a program may call CUDA in one: so
/// nothing here has a destructor of its own; [`Leaving`] cleans up.
#[derive(Default)]
struct Thread {
    tag: u32,
    contexts: Vec<u64>,
    streams: Vec<(u64, u64)>,
    capture_mode: CUstreamCaptureMode,
    in_callback: bool,
}

/// Runs when the thread ends.
struct Leaving {
    answer: RefCell<Vec<u8>>,
    stream: RefCell<Vec<u8>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let streams = with(|thread| std::mem::take(&mut thread.streams)).unwrap_or_default();
        // A thread's default streams end with it. At the end of the process the host sees to that.
        if let Ok(client) = client() {
            for (_, stream) in streams {
                if client.objects.remove(stream).is_some() {
                    let _ = client.post(&request::cuStreamDestroy_v2 { hStream: stream });
                }
            }
        }
    }
}

thread_local! {
    static THREAD: ManuallyDrop<RefCell<Thread>> = ManuallyDrop::default();
    static LEAVING: Leaving = const { Leaving { answer: RefCell::new(Vec::new()), stream: RefCell::new(Vec::new()) } };
}

fn with<T>(body: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD
        .try_with(|thread| {
            thread
                .try_borrow_mut()
                .ok()
                .map(|mut thread| body(&mut thread))
        })
        .ok()
        .flatten()
}

/// A number that no other thread of the process has or had.
pub fn tag() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    with(|thread| {
        if thread.tag == 0 {
            thread.tag = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        thread.tag
    })
    .unwrap_or(0)
}

/// The id of the current context, or 0.
pub fn current_context() -> u64 {
    with(|thread| thread.contexts.last().copied().unwrap_or(0)).unwrap_or(0)
}

/// `cuCtxSetCurrent`: replaces the top of the stack; 0 pops it.
pub fn set_context(context: u64) {
    with(|thread| {
        thread.contexts.pop();
        if context != 0 {
            thread.contexts.push(context);
        }
    });
}

/// `cuCtxPushCurrent`.
pub fn push_context(context: u64) -> Result {
    with(|thread| thread.contexts.push(context)).ok_or(CUDA_ERROR_DEINITIALIZED)
}

/// `cuCtxPopCurrent`; `None` when the stack is empty.
pub fn pop_context() -> Option<u64> {
    with(|thread| thread.contexts.pop()).flatten()
}

/// The id of a stream handle, where NULL is the legacy stream.
pub fn stream_id(client: &Client, handle: u64) -> Result<u64> {
    if handle == CU_STREAM_PER_THREAD as u64 {
        own_stream(client)
    } else {
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
        thread
            .streams
            .iter()
            .find(|(of, _)| *of == context)
            .map(|(_, id)| *id)
    });
    let known = known.ok_or(CUDA_ERROR_DEINITIALIZED)?;
    if let Some(id) = known.filter(|id| client.objects.contains(*id)) {
        return Ok(id);
    }
    let id = client.new_id::<Stream>();
    client.call(&request::cuStreamCreate {
        phStream: id,
        Flags: CU_STREAM_DEFAULT,
    })?;
    client.objects.insert(id, Known::Plain { context });
    with(|thread| {
        thread.streams.retain(|(of, _)| *of != context);
        thread.streams.push((context, id));
    });
    Ok(id)
}

/// Sets the thread's capture mode and returns the one before.
pub fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    with(|thread| std::mem::replace(&mut thread.capture_mode, mode))
        .unwrap_or(CU_STREAM_CAPTURE_MODE_GLOBAL)
}

/// Whether the thread runs a host callback, in which CUDA may not be called.
pub fn in_callback() -> bool {
    with(|thread| thread.in_callback).unwrap_or(false)
}

/// Says that the thread runs nothing but host callbacks.
pub fn is_for_callbacks() {
    with(|thread| thread.in_callback = true);
}

/// A buffer for an answer.
pub fn take_answer_buffer() -> Vec<u8> {
    let taken = LEAVING.try_with(|leaving| leaving.answer.take());
    taken.unwrap_or_default()
}

/// Gives the buffer back for the thread's next call.
pub fn return_answer_buffer(buffer: Vec<u8>) {
    let _ = LEAVING.try_with(|leaving| leaving.answer.replace(buffer));
}

/// Lends the thread's buffer for commands.
pub fn with_stream_buffer<T>(body: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = LEAVING
        .try_with(|leaving| leaving.stream.take())
        .unwrap_or_default();
    let result = body(&mut buffer);
    let _ = LEAVING.try_with(|leaving| leaving.stream.replace(buffer));
    result
}
