// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers that a program gives to its own regions of calls: a stack for each thread and kind.

use std::cell::RefCell;

use gpgpu_protocol::cupti::{INVALID_PARAMETER, QUEUE_EMPTY, Status};

use crate::{enter, give};

/// One more than the largest `CUpti_ExternalCorrelationKind`.
const KINDS: usize = 6;

thread_local! {
    static STACKS: RefCell<[Vec<u64>; KINDS]> = const { RefCell::new([const { Vec::new() }; KINDS]) };
}

/// Calls a function with each kind that has a number in this thread, and the latest number.
pub fn each(mut take: impl FnMut(u32, u64)) {
    let tops = STACKS.try_with(|stacks| {
        let stacks = stacks.borrow();
        std::array::from_fn::<_, KINDS, _>(|kind| stacks[kind].last().copied())
    });
    for (kind, top) in tops.unwrap_or_default().into_iter().enumerate() {
        if let Some(top) = top {
            take(kind as u32, top);
        }
    }
}

/// Uses a kind's stack of this thread.
fn with<T>(kind: u32, body: impl FnOnce(&mut Vec<u64>) -> T) -> Result<T, Status> {
    if kind == 0 || kind as usize >= KINDS {
        return Err(INVALID_PARAMETER);
    }
    let outcome = STACKS.try_with(|stacks| body(&mut stacks.borrow_mut()[kind as usize]));
    outcome.map_err(|_| INVALID_PARAMETER)
}

/// `cuptiActivityPushExternalCorrelationId`: gives later calls of this thread a number of the program.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an invalid kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> Status {
    enter(|| with(kind, |stack| stack.push(id)))
}

/// `cuptiActivityPopExternalCorrelationId`: ends the region of the latest number of this kind in this thread.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an invalid kind, and with `CUPTI_ERROR_QUEUE_EMPTY` if there is none.
///
/// # Safety
///
/// `lastId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(
    kind: u32,
    lastId: *mut u64,
) -> Status {
    enter(|| {
        let last = with(kind, Vec::pop)?.ok_or(QUEUE_EMPTY)?;
        if !lastId.is_null() {
            // SAFETY: promised by the caller.
            unsafe { give(lastId, last) }?;
        }
        Ok(())
    })
}
