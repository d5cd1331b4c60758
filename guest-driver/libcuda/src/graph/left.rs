// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory of graphs that have ended. Freeing memory waits for all work of its context, which the end of a graph does
//! not: the memory is kept until that work is known to be complete.

use std::sync::atomic::{AtomicBool, Ordering};

use gpgpu_client::Scope;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::api::request;

use crate::{
    client::Client,
    ffi::Result,
    pinned,
    stores::pointers::{Kind, Range},
    thread,
};

/// The maximum amount of kept memory in bytes. The thread that leaves more waits.
const MOST: u64 = 256 << 20;

/// The memory, by its ranges.
static LEFT: Mutex<Vec<Range>> = Mutex::new(Vec::new());

/// Whether there is any.
static ANY: AtomicBool = AtomicBool::new(false);

fn left() -> MutexGuard<'static, Vec<Range>> {
    LEFT.lock()
}

/// Takes the memory for which `is_wanted` holds.
fn take(is_wanted: impl Fn(&Range) -> bool) -> Vec<Range> {
    if !ANY.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let mut left = left();
    let taken = left.extract_if(.., |range| is_wanted(range)).collect();
    ANY.store(!left.is_empty(), Ordering::Relaxed);
    taken
}

fn keep(range: Range) -> u64 {
    let mut left = left();
    left.push(range);
    ANY.store(true, Ordering::Relaxed);
    left.iter().map(|range| range.bytes).sum()
}

/// Frees memory that starts at `start`: now if that waits for nothing, otherwise later.
pub fn leave(client: &Client, start: u64) {
    let Some(range) = client.pointers.find(start) else {
        return;
    };
    if is_idle(client, range.context) {
        free(client, range);
    } else if keep(range) > MOST {
        free_all(client);
    }
}

fn is_idle(client: &Client, context: u64) -> bool {
    thread::current_context() == context && client.is_idle(Scope::All)
}

/// Frees a range, or keeps it if nothing can be freed here, for example in a call by a stream.
fn free(client: &Client, range: Range) {
    let freed = match range.kind {
        Kind::Host { .. } => pinned::free(range.start, false),
        Kind::Device => free_device(client, range.start),
    };
    if freed.is_err() && client.objects.context_device(range.context).is_some() {
        keep(range);
    }
}

fn free_device(client: &Client, dptr: u64) -> Result {
    let Some(range) = client.pointers.remove(dptr) else {
        return Ok(());
    };
    let freed = client.call(&request::cuMemFree_v2 { dptr });
    freed
        .map(drop)
        .inspect_err(|_| client.pointers.insert(range))
}

/// Frees the memory of the current context if its work is known to be complete.
pub fn free_idle(client: &Client) {
    let context = thread::current_context();
    if ANY.load(Ordering::Relaxed) && is_idle(client, context) {
        let taken = take(|range| range.context == context);
        taken.into_iter().for_each(|range| free(client, range));
    }
}

/// Frees all memory, once the work of its contexts is complete. Returns whether there was any.
pub fn free_all(client: &Client) -> bool {
    let taken = take(|_| true);
    let any = !taken.is_empty();
    taken.into_iter().for_each(|range| free(client, range));
    any
}

/// Forgets the memory of a context, which ends with it.
pub fn forget_context(context: u64) {
    drop(take(|range| range.context == context));
}
