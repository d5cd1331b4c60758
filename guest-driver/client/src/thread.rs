// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state of a thread of the program: its tag, its context stack, its buffers.
//!
//! All functions also work in a thread whose thread-local storage was destroyed (a CUDA call in a destructor).

use std::{
    cell::{Cell, RefCell},
    mem::ManuallyDrop,
    sync::atomic::{AtomicU32, Ordering},
};

use gpgpu_protocol::cuda::*;

use crate::ffi::Result;

/// The state of a thread. It remains usable after the thread's destructors, because a program may call CUDA in one. So
/// no field may have a destructor.
struct Thread {
    tag: Cell<u32>,
    /// The current context, which is the top of the stack, or 0.
    current: Cell<u64>,
    /// The stack below the current context.
    below: RefCell<Vec<u64>>,
    in_callback: Cell<bool>,
}

/// Dropped when the thread ends. Later calls work without it.
struct Buffers {
    answer: RefCell<Vec<u8>>,
    stream: RefCell<Vec<u8>>,
}

thread_local! {
    static THREAD: ManuallyDrop<Thread> = const {
        ManuallyDrop::new(Thread {
            tag: Cell::new(0),
            current: Cell::new(0),
            below: RefCell::new(Vec::new()),
            in_callback: Cell::new(false),
        })
    };
    static BUFFERS: Buffers = const { Buffers { answer: RefCell::new(Vec::new()), stream: RefCell::new(Vec::new()) } };
}

#[inline]
fn with<T>(body: impl FnOnce(&Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| body(thread)).ok()
}

/// A number that is unique among all past and present threads of the process.
#[inline]
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
#[inline]
pub fn current_context() -> u64 {
    with(|thread| thread.current.get()).unwrap_or(0)
}

/// `cuCtxSetCurrent`: replaces the top of the stack; 0 pops it.
#[inline]
pub fn set_context(context: u64) {
    if context == 0 {
        pop_context();
    } else {
        with(|thread| thread.current.set(context));
    }
}

/// `cuCtxPushCurrent`.
///
/// # Errors
///
/// `CUDA_ERROR_DEINITIALIZED` in a thread whose storage was destroyed.
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

/// Calls `body` in a context, whichever is current.
///
/// # Errors
///
/// Those of `body`, and `CUDA_ERROR_DEINITIALIZED` if the thread's stack of contexts cannot be used any more.
pub fn within<T>(context: u64, body: impl FnOnce() -> Result<T>) -> Result<T> {
    push_context(context)?;
    let result = body();
    pop_context();
    result
}

/// Whether a context is on the thread's stack.
pub fn has(context: u64) -> bool {
    let has = with(|thread| {
        let below = thread.below.try_borrow();
        thread.current.get() == context || below.is_ok_and(|below| below.contains(&context))
    });
    has.unwrap_or(false)
}

/// Whether the thread runs a host callback, which must not call CUDA.
#[inline]
pub fn in_callback() -> bool {
    with(|thread| thread.in_callback.get()).unwrap_or(false)
}

/// Declares that the thread runs only host callbacks.
pub fn is_for_callbacks() {
    with(|thread| thread.in_callback.set(true));
}

/// A buffer for an answer.
#[inline]
pub(crate) fn take_answer_buffer() -> Vec<u8> {
    let taken = BUFFERS.try_with(|buffers| buffers.answer.take());
    taken.unwrap_or_default()
}

/// Returns the buffer for the thread's next call.
#[inline]
pub(crate) fn return_answer_buffer(buffer: Vec<u8>) {
    let _ = BUFFERS.try_with(|buffers| buffers.answer.replace(buffer));
}

/// Calls `body` with the thread's buffer for commands.
#[inline]
pub(crate) fn with_stream_buffer<T>(body: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut buffer = BUFFERS
        .try_with(|buffers| buffers.stream.take())
        .unwrap_or_default();
    let result = body(&mut buffer);
    let _ = BUFFERS.try_with(|buffers| buffers.stream.replace(buffer));
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_context_replaces_the_top_of_the_stack_and_nothing_pops_it() {
        std::thread::spawn(|| {
            assert_eq!((current_context(), pop_context()), (0, None));
            push_context(1).unwrap();
            push_context(2).unwrap();
            set_context(3);
            assert_eq!(current_context(), 3);
            set_context(0);
            assert_eq!(current_context(), 1);
            assert_eq!((pop_context(), current_context()), (Some(1), 0));
        })
        .join()
        .unwrap();
    }
}
