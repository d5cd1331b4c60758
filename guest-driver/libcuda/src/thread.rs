//! What belongs to a thread of the program: its context stack, its default stream, its tag.
//!
//! Every access survives a thread whose storage is already gone (a CUDA call in a destructor).

use std::{
    cell::{Cell, RefCell},
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
    objects::{self, Known},
};

/// What a thread has. It outlives the thread's destructors, for a program may call CUDA in one: so
/// nothing here has a destructor of its own; [`Leaving`] cleans up.
struct Thread {
    tag: Cell<u32>,
    /// The current context, which is the top of the stack, or 0.
    current: Cell<u64>,
    /// The stack below the current context.
    below: RefCell<Vec<u64>>,
    /// Default streams: the context's id and the stream's.
    streams: RefCell<Vec<(u64, u64)>>,
    capture_mode: Cell<CUstreamCaptureMode>,
    in_callback: Cell<bool>,
    keeps_recent: Cell<bool>,
}

/// Runs when the thread ends.
struct Leaving {
    answer: RefCell<Vec<u8>>,
    stream: RefCell<Vec<u8>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let streams = with(|thread| {
            let mut streams = thread.streams.try_borrow_mut().ok()?;
            Some(std::mem::take(&mut *streams))
        });
        // A thread's default streams end with it. At the end of the process the host sees to that.
        if let Ok(client) = client() {
            for (_, stream) in streams.flatten().unwrap_or_default() {
                if client.objects.remove(stream).is_some() {
                    let _ = client.post(&request::cuStreamDestroy_v2 { hStream: stream });
                }
            }
        }
        objects::forget_recent();
    }
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            tag: Cell::new(0),
            current: Cell::new(0),
            below: RefCell::new(Vec::new()),
            streams: RefCell::new(Vec::new()),
            capture_mode: Cell::new(CU_STREAM_CAPTURE_MODE_GLOBAL),
            in_callback: Cell::new(false),
            keeps_recent: Cell::new(false),
        })
    };
    static LEAVING: Leaving = const { Leaving { answer: RefCell::new(Vec::new()), stream: RefCell::new(Vec::new()) } };
}

fn with<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| body(thread)).ok()
}

/// The thread keeps something that has to be given back when it ends.
pub fn keeps_recent() {
    with(|thread| {
        if !thread.keeps_recent.replace(true) {
            // Touching it is what makes its destructor run.
            let _ = LEAVING.try_with(|_| ());
        }
    });
}

/// A number that no other thread of the process has or had.
pub fn tag() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    with(|thread| {
        if thread.tag.get() == 0 {
            thread.tag.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        thread.tag.get()
    })
    .unwrap_or(0)
}

/// The id of the current context, or 0.
pub fn current_context() -> u64 {
    with(|thread| thread.current.get()).unwrap_or(0)
}

/// Whether the calling thread has a current context that was not destroyed: without one, no call is sure to be right.
pub fn has_context(client: &Client) -> bool {
    let context = current_context();
    context != 0 && client.objects.contains(context)
}

/// `cuCtxSetCurrent`: replaces the top of the stack; 0 pops it.
pub fn set_context(context: u64) {
    if context == 0 {
        pop_context();
    } else {
        with(|thread| thread.current.set(context));
    }
}

/// `cuCtxPushCurrent`.
pub fn push_context(context: u64) -> Result {
    with(|thread| {
        let before = thread.current.replace(context);
        if before != 0
            && let Ok(mut below) = thread.below.try_borrow_mut()
        {
            below.push(before);
        }
    })
    .ok_or(CUDA_ERROR_DEINITIALIZED)
}

/// `cuCtxPopCurrent`; `None` when the stack is empty.
pub fn pop_context() -> Option<u64> {
    with(|thread| {
        let next = thread
            .below
            .try_borrow_mut()
            .ok()
            .and_then(|mut below| below.pop());
        thread.current.replace(next.unwrap_or(0))
    })
    .filter(|context| *context != 0)
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
    // The thread's end is the stream's.
    keeps_recent();
    with(|thread| {
        if let Ok(mut streams) = thread.streams.try_borrow_mut() {
            streams.retain(|(of, _)| *of != context);
            streams.push((context, id));
        }
    });
    Ok(id)
}

/// Sets the thread's capture mode and returns the one before.
pub fn exchange_capture_mode(mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    with(|thread| thread.capture_mode.replace(mode)).unwrap_or(CU_STREAM_CAPTURE_MODE_GLOBAL)
}

/// Whether the thread runs a host callback, in which CUDA may not be called.
pub fn in_callback() -> bool {
    with(|thread| thread.in_callback.get()).unwrap_or(false)
}

/// Says that the thread runs nothing but host callbacks.
pub fn is_for_callbacks() {
    with(|thread| thread.in_callback.set(true));
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
