// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Managed memory, by the rules of a device without concurrent managed access.
//!
//! An allocation consists of device memory, and of pages of this process at the same address. Each block of it
//! ([`store`]) is on the device or in this process. If the program accesses a block that is on the device, userfaultfd
//! ([`uffd`]) makes its thread wait. A thread of the library ([`service`]) waits for the GPU, fetches the block and
//! wakes the program's thread. Before work is submitted to the GPU, the blocks that the work may use are sent to the
//! device, and their pages here are dropped ([`before_work`]).
//!
//! **A thread that accesses managed memory must hold no lock or other resource that the service thread needs**, because
//! otherwise both would wait for ever:
//! - code that holds the store's lock accesses no managed memory (`store.rs`);
//! - a thread that sends a block to the device reads pages that are present. If the program has unmapped one of them,
//!   the service thread answers with a page of zeros, and waits for no other thread for that;
//! - copies treat managed memory as device memory, so no thread holds a data block of the ring or of the socket while
//!   it accesses managed memory here;
//! - arguments in managed memory are read before a command is stored anywhere, and results are written after the
//!   command's buffers were released;
//! - no thread holds the locks of the process's objects and pointers while arguments are read or results written, and
//!   each context's own stream is made with its first allocation;
//! - the output of kernels is written in the program's next call, because a thread may hold the C library's stream
//!   while it writes managed memory to it.

mod advice;
mod requests;
mod service;
mod store;
mod uffd;
mod variables;

use std::sync::atomic::{AtomicBool, Ordering};

use gpgpu_client::{
    before,
    log::{self, Level},
};
use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Operation, Property, Request, Stream, request},
    cuda::*,
};

use crate::{
    argument::HostPtr,
    client::{Client, client},
    copy,
    environment::environment,
    ffi::Result,
    graph::library,
    pinned,
    stores::{
        objects::Known,
        pointers::{Kind, Origin, Range},
    },
    thread,
};
use service::Service;
pub use service::in_call;
use store::{Allocation, Attach, Block, Job, Part, Store};
pub use variables::{forget_image, variable};

/// The alignment of device memory.
const GRAIN: usize = 512;
/// The size of a page in bytes.
const PAGE: usize = store::PAGE as usize;
/// The number of attempts to find a range that is free in this process.
const TRIES: usize = 4;

/// All managed memory, and its state.
struct Managed {
    store: Store,
    /// The contexts that may have work in flight, each with a stream for the library's own copies once it needs one.
    contexts: Vec<(u64, Option<u64>)>,
}

static MANAGED: Mutex<Managed> = Mutex::new(Managed {
    store: Store::new(),
    contexts: Vec::new(),
});
/// Signalled when blocks have arrived.
static MOVED: Condvar = Condvar::new();
/// Whether there is managed memory.
static ANY: AtomicBool = AtomicBool::new(false);

fn managed() -> MutexGuard<'static, Managed> {
    MANAGED.lock()
}

/// Whether there is managed memory. A program that has freed all of it launches like one that never had any.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Updates, after a change, whether there is any memory, and whether launches need the hook.
fn tell(managed: &Managed) {
    ANY.store(!managed.store.is_empty(), Ordering::Relaxed);
    before::want(managed.store.owed());
}

/// Waits until other threads have moved their blocks.
fn wait(managed: MutexGuard<'static, Managed>) -> MutexGuard<'static, Managed> {
    MOVED.wait(managed)
}

/// Calls `what` in a context, as a call of the library itself.
///
/// The answer may be an error of an earlier command of the program. It is stored for the program, and the operation is
/// repeated.
fn within<T>(client: &Client, context: u64, what: impl Fn() -> Result<T>) -> Result<T> {
    let was_own = before::set_own(true);
    let done = thread::push_context(context).and_then(|()| {
        let done = what().or_else(|code| {
            if client.is_corrupted() {
                return Err(code);
            }
            let done = what()?;
            client.defer(code);
            Ok(done)
        });
        thread::pop_context();
        done
    });
    before::set_own(was_own);
    done
}

/// The library's own non-blocking stream of the current context.
fn own_stream(client: &Client) -> Result<u64> {
    let context = thread::current_context();
    let find = |managed: &Managed| {
        let found = managed.contexts.iter().find(|(of, _)| *of == context);
        found.and_then(|(_, stream)| *stream)
    };
    if let Some(stream) = find(&managed()) {
        return Ok(stream);
    }
    let id = client.new_id::<Stream>();
    client.call(&request::cuStreamCreate {
        phStream: id,
        Flags: CU_STREAM_NON_BLOCKING,
    })?;
    client.objects.insert(id, Known::made::<Stream>(context));
    let mut managed = managed();
    match managed.contexts.iter_mut().find(|(of, _)| *of == context) {
        Some((_, stream)) => *stream = Some(id),
        None => managed.contexts.push((context, Some(id))),
    }
    Ok(id)
}

/// Waits for the library's own copies.
fn finish(client: &Client, stream: u64) -> Result {
    client
        .call(&request::cuStreamSynchronize { hStream: stream })
        .map(drop)
}

/// Adds a context whose work may use managed memory.
pub fn note_context(context: u64) {
    managed().contexts.push((context, None));
}

/// Handles the end of a context. Its managed memory exists neither here nor on the device any more.
pub fn forget_context(context: u64) {
    let mut managed = managed();
    managed.contexts.retain(|(of, _)| *of != context);
    take_away_all(managed, |part| part.context == context);
}

/// Handles the end of a stream.
pub fn forget_stream(stream: u64) {
    if any() {
        let mut managed = managed();
        managed.store.forget_stream(stream);
        tell(&managed);
    }
}

/// Forgets an allocation, and unmaps its pages, once no thread moves a block of it.
fn take_away(
    mut managed: MutexGuard<'static, Managed>,
    start: u64,
) -> MutexGuard<'static, Managed> {
    while managed.store.is_moving(start) {
        managed = wait(managed);
    }
    let gone = managed.store.remove(start);
    tell(&managed);
    if let Some(of) = gone.filter(|of| !of.is_pinned) {
        // SAFETY: the pages are of a mapping that this library made for the allocation, which is gone: a program that
        // goes on using them is wrong, and finds none. Threads that wait for one of them are woken by the kernel.
        unsafe { libc::munmap(of.start as *mut libc::c_void, of.span() as usize) };
    }
    managed
}

/// Forgets the parts that have ended, and each allocation without remaining parts.
fn take_away_all(mut managed: MutexGuard<'static, Managed>, is_gone: impl Fn(&Part) -> bool) {
    let all = managed.store.iter();
    let gone: Vec<_> = all
        .filter(|of| of.parts.iter().any(&is_gone))
        .map(|of| of.start)
        .collect();
    for start in gone {
        while managed.store.is_moving(start) {
            managed = wait(managed);
        }
        if managed.store.remove_parts(start, &is_gone) {
            managed = take_away(managed, start);
        }
    }
}

/// Maps pages of this process at an address that must be free.
fn map(start: u64, bytes: usize) -> bool {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping.
    let mapped = unsafe { libc::mmap(start as *mut libc::c_void, bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    if mapped as u64 != start {
        // SAFETY: a kernel from before MAP_FIXED_NOREPLACE took the address as a hint; the mapping was just made, and
        // no other code has it.
        unsafe { libc::munmap(mapped, bytes) };
        return false;
    }
    // A forked child has no thread that would handle its faults.
    // SAFETY: the mapping was just made.
    unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTFORK) };
    drop_range(mapped, bytes);
    true
}

/// Drops pages of a mapping for managed memory. A program that locks its memory (`mlockall`) also locks these pages: the
/// kernel then neither drops them nor lets the device own their content, so they are unlocked.
fn drop_range(start: *mut libc::c_void, bytes: usize) {
    // SAFETY: the caller's pages are of a mapping of this library's, and their content is not needed.
    let dropped = unsafe { libc::madvise(start, bytes, libc::MADV_DONTNEED) };
    if dropped == 0 {
        return;
    }
    // SAFETY: as above. munlock changes no content.
    let again = unsafe {
        libc::munlock(start, bytes);
        libc::madvise(start, bytes, libc::MADV_DONTNEED)
    };
    assert_eq!(again, 0, "pages of managed memory cannot be dropped");
}

/// Maps and registers the pages of an allocation.
fn place(service: &Service, start: u64, span: usize) -> bool {
    if !map(start, span) {
        return false;
    }
    if service.uffd.register(start, span as u64).is_ok() {
        return true;
    }
    // SAFETY: the mapping was just made, and no other code has it.
    unsafe { libc::munmap(start as *mut libc::c_void, span) };
    false
}

/// Allocates device memory at addresses that are free in this process: the start of the device memory, and the
/// allocation in it.
fn place_anywhere(client: &Client, service: &Service, bytes: usize) -> Result<Option<(u64, u64)>> {
    let span = bytes
        .checked_next_multiple_of(PAGE)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    let roomy = span
        .checked_add(PAGE - GRAIN)
        .ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
    // Most memory starts at a page boundary, so more than the pages themselves is rarely needed.
    let (mut bytesize, mut is_taken) = (span, false);
    let mut unused = Vec::new();
    let mut found = Ok(None);
    for _ in 0..TRIES {
        let request = request::cuMemAlloc_v2 {
            dptr: true,
            bytesize,
        };
        let base = match client.allocate(|| client.call(&request)) {
            Ok(reply) => reply.dptr,
            Err(code) => {
                found = Err(code);
                break;
            }
        };
        let start = base.next_multiple_of(PAGE as u64);
        if start - base > (bytesize - span) as u64 {
            bytesize = roomy;
        } else if place(service, start, span) {
            found = Ok(Some((base, start)));
            break;
        } else {
            is_taken = true;
        }
        unused.push(base);
    }
    for dptr in unused {
        // It was never used.
        client.post(&request::gpgpuFreeIdle { dptr })?;
    }
    if is_taken && matches!(found, Ok(None)) {
        log::say(Level::Info, || {
            "Managed memory: this process has something at the device's addresses; it is pinned memory instead".into()
        });
    }
    found
}

/// Fills device memory with zeros, like NVIDIA's managed memory.
fn clear(client: &Client, start: u64, bytes: usize) -> Result {
    within(client, thread::home(client), || {
        let stream = own_stream(client)?;
        client.post(&request::cuMemsetD8Async {
            dstDevice: start,
            uc: 0,
            N: bytes,
            hStream: stream,
        })?;
        finish(client, stream)
    })
}

/// Whether each device can access device memory of one of them, and gives them access. A host without that operation
/// gives none, and is not called.
fn is_reached(client: &Client, context: u64, dptr: u64) -> Result<bool> {
    let count = client.hello.devices.len() as CUdevice;
    if count < 2 || !client.has(request::gpgpuMemoryReach::OP) {
        return Ok(true);
    }
    /// Devices to whose memory all others have access.
    static REACHED: Mutex<Vec<CUdevice>> = Mutex::new(Vec::new());
    let reached = || REACHED.lock();
    let home = client.objects.context_device(context);
    let home = home.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    if reached().contains(&home) {
        return Ok(true);
    }
    for dev in (0..count).filter(|dev| *dev != home) {
        let reaches = true;
        let question = request::gpgpuMemoryReach { dptr, dev, reaches };
        if client.call(&question)?.reaches == 0 {
            return Ok(false);
        }
    }
    reached().push(home);
    Ok(true)
}

/// Allocates managed memory. If the faults of this process's pages cannot be handled, it is pinned memory, which the
/// program and the GPU also access at one address. It is also pinned memory if a device cannot access another one's
/// memory, as natively.
pub fn allocate(client: &'static Client, bytes: usize, attach: Attach) -> Result<u64> {
    let context = thread::home(client);
    let Some(service) = service::get(client) else {
        return pinned(client, bytes, attach);
    };
    let Some((base, start)) = place_anywhere(client, service, bytes)? else {
        return pinned(client, bytes, attach);
    };
    let span = bytes.next_multiple_of(PAGE);
    let reached = is_reached(client, context, base);
    if reached != Ok(true) {
        // SAFETY: the mapping was just made, and no other code has it.
        unsafe { libc::munmap(start as *mut libc::c_void, span) };
        client.post(&request::gpgpuFreeIdle { dptr: base })?;
        reached?;
        if environment().forces_device_memory {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        return pinned(client, bytes, attach);
    }
    {
        let mut managed = managed();
        let of = Allocation::new(start, bytes as u64, base, context, attach);
        managed.store.insert(of);
        tell(&managed);
    }
    if let Err(code) = clear(client, start, span) {
        drop(take_away(managed(), start));
        let _ = client.call(&request::cuMemFree_v2 { dptr: base });
        return Err(code);
    }
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context,
        kind: Kind::Device,
        origin: Origin::Managed,
    });
    Ok(start)
}

/// Pinned memory that counts as managed.
fn pinned(client: &Client, bytes: usize, attach: Attach) -> Result<u64> {
    let start = pinned::allocate_pages(client, bytes, CU_MEMHOSTALLOC_PORTABLE).inspect_err(|code| {
        if *code == CUDA_ERROR_OUT_OF_MEMORY && service::get_if_there().is_none() {
            log::refuse(
                "Managed memory",
                "is pinned memory here, for which RLIMIT_MEMLOCK is too low: let this user open /dev/userfaultfd, or raise the limit",
            );
        }
    })?;
    if let Some(range) = client.pointers.remove(start) {
        client.pointers.insert(Range {
            origin: Origin::Managed,
            ..range
        });
        let of = Allocation::new(start, bytes as u64, start, range.context, attach);
        let mut managed = managed();
        managed.store.insert(of.pinned());
        tell(&managed);
    }
    Ok(start)
}

/// Frees managed memory, once the work of its context is complete.
pub fn free(client: &Client, range: &Range) -> Result {
    // A callback of this work may still use the program's pages.
    within(client, range.context, || {
        client.call(&request::cuCtxSynchronize {}).map(drop)
    })?;
    if let Kind::Host { .. } = range.kind {
        drop(take_away(managed(), range.start));
        return pinned::release(client, range);
    }
    // Another thread may have been faster.
    let removed = client.pointers.remove(range.start);
    removed.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let mut managed = managed();
    let base = managed.store.get(range.start).map(|of| of.base);
    drop(take_away(managed, range.start));
    let dptr = base.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    client.call(&request::cuMemFree_v2 { dptr }).map(drop)
}

/// Moves the blocks in `wants` of each allocation to the device, and waits for other threads that move some; `is_patient`
/// as in [`Store::send`](store::Store::send).
fn send(client: &Client, is_patient: bool, wants: impl Fn(&Allocation) -> std::ops::Range<usize>) {
    let mut managed = managed();
    loop {
        let (jobs, others) = managed.store.send(is_patient, &wants);
        tell(&managed);
        if jobs.is_empty() {
            if !others {
                return;
            }
            managed = wait(managed);
            continue;
        }
        drop(managed);
        send_jobs(client, &jobs);
        managed = self::managed();
    }
}

/// Drops the pages of blocks that are on the device.
fn drop_pages(job: &Job) {
    // The mapping stays as long as a block of the allocation is moving.
    drop_range(job.start as *mut libc::c_void, job.span as usize);
}

/// Moves blocks to the device. A block that cannot be moved stays here.
fn send_jobs(client: &Client, jobs: &[Job]) {
    let Some(service) = service::get_if_there() else {
        return;
    };
    let uffd = &service.uffd;
    let copied = || jobs.iter().filter(|job| job.is_copied);
    let mut contexts: Vec<u64> = copied()
        .flat_map(|job| job.parts.iter().map(|part| part.context))
        .collect();
    contexts.sort_unstable();
    contexts.dedup();
    for job in copied() {
        // Writes of the program wait from here on until the block is on the device, so none is lost.
        uffd.protect(job.start, job.span, true);
    }
    let mut failed = Vec::new();
    for context in contexts {
        let sent = within(client, context, || {
            let stream = own_stream(client)?;
            let parts = copied().flat_map(|job| &job.parts);
            for part in parts.filter(|part| part.context == context) {
                let from = HostPtr::at(part.start);
                copy::send(client, part.start, from, part.bytes as usize, stream)?;
            }
            finish(client, stream)
        });
        if sent.is_err() {
            failed.push(context);
        }
    }
    for job in jobs {
        let is_of_failed = |part: &Part| failed.contains(&part.context);
        let is_lost = job.is_copied && job.parts.iter().any(is_of_failed);
        if is_lost {
            managed().store.set(job, Block::Dirty);
            uffd.protect(job.start, job.span, false);
        } else {
            managed().store.set(job, Block::Dropping);
            drop_pages(job);
            managed().store.set(job, Block::Device);
        }
        uffd.wake(job.start, job.span);
    }
    tell(&managed());
    MOVED.notify_all();
}

/// Called before a stream receives work: moves the blocks that the work may use to the device.
pub fn before_work(stream: u64) {
    if before::is_own() {
        return;
    }
    let Ok(client) = client() else { return };
    send(client, true, |of| {
        if of.is_for(stream) {
            0..of.advice.len()
        } else {
            0..0
        }
    });
}

/// Called at the end of a function that the program has put into a stream: moves all blocks to the device. The work
/// behind the function was submitted before the function used them.
///
/// A block that another thread waits for is not one of the function's, and its thread may wait for this stream.
fn after_call(client: &Client) {
    if any() {
        send(client, false, |of| 0..of.advice.len());
    }
}

/// Called before a library submits work to a stream.
pub fn before_library(operation: &Operation, arguments: &[u8]) {
    if before::is_wanted() && operation.is(Property::Work) {
        before_work(library::stream(operation, arguments).unwrap_or(0));
    }
}

/// Called before a copy or a fill of a stream names memory: moves its managed blocks to the device, whatever their
/// attachment.
pub fn names(client: &Client, address: u64, bytes: usize, stream: u64) {
    if !any() || before::is_own() {
        return;
    }
    {
        let mut managed = managed();
        // Blocks that the stream may use are moved with the other blocks of the stream.
        let mut others = false;
        for of in managed.store.within(address, bytes as u64) {
            if of.is_for(stream) {
                continue;
            }
            others = true;
            if !of.used.contains(&stream) {
                of.used.push(stream);
            }
        }
        if !others {
            return;
        }
    }
    send(client, true, |of| of.blocks_of(address, bytes as u64));
}

/// Whether an address lies in managed memory.
pub fn holds(address: u64) -> bool {
    any() && managed().store.at(address).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_memory_is_in_use_until_the_last_of_it_is_freed() {
        assert!(!any());
        for start in [0x10_0000, 0x20_0000] {
            let mut managed = managed();
            let of = Allocation::new(start, 8, start, 1, Attach::Global);
            managed.store.insert(of.pinned());
            tell(&managed);
        }
        drop(take_away(managed(), 0x10_0000));
        assert!(any());
        drop(take_away(managed(), 0x20_0000));
        assert!(!any());
    }
}
