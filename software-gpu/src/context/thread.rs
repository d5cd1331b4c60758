// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Each thread's stack of contexts.

use std::cell::RefCell;
use std::sync::Arc;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT,
};

use super::{CONTEXTS, Context, named};
use crate::ffi::Result;
use crate::stack::Stack;

thread_local! {
    // Without a destructor, so that calls of a program still find the context while a thread or the process ends.
    static STACK: RefCell<Stack> = const { RefCell::new(Stack::new()) };
}

fn with_stack<T>(f: impl FnOnce(&mut Stack) -> T) -> Result<T> {
    STACK
        .try_with(|stack| f(&mut stack.borrow_mut()))
        .map_err(|_| CUDA_ERROR_DEINITIALIZED)
}

/// The calling thread's current context.
pub fn current() -> Result<Arc<Context>> {
    let handle = current_handle()?;
    if handle == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    match CONTEXTS.find(handle) {
        Some(context) if !context.is_destroyed() => Ok(context),
        _ => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    }
}

/// The handle of the calling thread's current context, or zero. It may have been destroyed.
pub fn current_handle() -> Result<u64> {
    with_stack(|stack| stack.top().unwrap_or(0))
}

/// The context that `handle` names, or the current one for NULL.
pub fn named_or_current(handle: u64) -> Result<Arc<Context>> {
    match handle {
        0 => current(),
        handle => named(handle),
    }
}

/// Pushes a context on the calling thread's stack.
pub fn push(handle: u64) -> Result {
    with_stack(|stack| stack.push(handle))
}

/// Pops the calling thread's current context.
pub fn pop() -> Result<u64> {
    with_stack(Stack::pop)?.ok_or(CUDA_ERROR_INVALID_CONTEXT)
}

/// Replaces the top of the calling thread's stack; zero pops it.
pub fn replace(handle: u64) -> Result {
    with_stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    })
}
