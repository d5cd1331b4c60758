// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Contexts.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api::{Context, Event, Object, reply, request},
    cuda::*,
};

use super::{green::end_all, image::device_attribute, library::device};
use crate::cuda::{driver, event_thread::with_slack};
use crate::worker::{
    captures,
    charges::Owner,
    dispatch::Outcome,
    grace::{self, Ticket, Unload},
    objects::Entry,
    places::{AHEAD, Places},
    session::{Data, Session},
    traces,
};

/// The maximum time for which a context's end waits for commands of other threads in that context. CUDA does not define
/// their results.
pub const LONGEST_END: Duration = Duration::from_secs(10);
/// The maximum wait for a thread of the worker itself that waits for the context's work. With the context, the driver
/// ends a kernel that never ends.
const LONGEST_WATCH: Duration = Duration::from_secs(1);

/// Ends a context by `destroy`, which gets the driver's handle, once no other command uses it any more.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT` if there is no such context, or it is already ending; those of `destroy`, in which case
/// the context still exists.
pub(super) fn end(
    session: &Session,
    context: u64,
    destroy: impl FnOnce(CUcontext) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let entry = session.end_context(context)?;
    let unload = Unload::begin();
    // This thread's current context may be one that another thread is ending.
    let _ = session.enter(0);
    grace::narrow(&[]);
    let mut ticket = unload.ticket();
    for _ in 0..2 {
        if ticket
            .wait_for_context(context, LONGEST_WATCH, LONGEST_END)
            .is_err()
        {
            tracing::warn!(
                "A context was destroyed, and another thread of the program still uses it {} s later: client terminated",
                LONGEST_END.as_secs()
            );
            // Without the driver's own clean-up, because a thread is inside it.
            // SAFETY: it ends the process.
            unsafe { libc::_exit(1) };
        }
        // Those commands may have made objects in it in the meantime, which others may have looked up.
        session.hide(context);
        ticket = Ticket::now();
    }
    let ended = destroy(Context::handle(entry.raw));
    match ended {
        Ok(()) => session.forget_context(context),
        Err(_) => session.keep_context(context),
    }
    session.forget_current();
    ended
}

/// The primary contexts. The lock's holder may wait for commands to end, so a command that waits for the lock is
/// outside.
pub(super) fn primary(session: &Session) -> gpgpu_locks::MutexGuard<'_, HashMap<CUdevice, u64>> {
    let _paused = grace::pause();
    session.primary.lock()
}

/// The context that was made in advance, if it is on this device. It is of no use to a client that begins with another
/// device.
fn ahead(session: &Session, dev: CUdevice) -> Option<u64> {
    if dev == session.prewarm.device() {
        session.prewarm.take()
    } else {
        session.prewarm.give_up();
        None
    }
}

/// Drops the charges of libraries in the context that was made in advance, once it has ended without an owner. The
/// caller holds the lock of [`primary`].
fn settle_ahead(session: &Session) {
    if !session.prewarm.is_hidden() {
        session.charges.leave_libraries(AHEAD);
    }
}

/// The primary context of a GPU: the client's, or [`AHEAD`] for the one that was made in advance.
fn primary_now(session: &Session, table: &HashMap<CUdevice, u64>, dev: CUdevice) -> Option<u64> {
    if let Some(&context) = table.get(&dev) {
        return Some(context);
    }
    if !session.prewarm.wait_made() {
        settle_ahead(session);
        return None;
    }
    (dev == session.prewarm.device()).then_some(AHEAD)
}

/// Calls `body`, for which the driver may load a library into the current context or into the primary context of a GPU.
///
/// # Errors
/// Those of `body`; the library exceeds the VM's limit there.
pub fn where_it_is_loaded(
    session: &Session,
    dev: CUdevice,
    places: Option<&Places>,
    body: impl FnOnce() -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let Some(places) = places else {
        return body();
    };
    let memory = session.device_memory;
    if session.current() != 0 {
        places.enter(memory, session.current())?;
    }
    // The client neither makes nor ends the primary context meanwhile.
    let table = primary(session);
    if let Some(context) = primary_now(session, &table, dev) {
        places.enter_on(memory, context, dev)?;
    }
    body()
}

/// Calls `body` in a context, in which a library may be loaded. If the thread has none, that is the primary context of a
/// GPU, which exists at least until `body` returns. The driver answers some queries only in a context.
///
/// # Errors
/// Those of `body`; the context cannot be made, or the library exceeds the VM's limit there.
pub fn in_some_context<T>(
    session: &Session,
    dev: CUdevice,
    places: Option<&Places>,
    body: impl FnOnce() -> Outcome<T>,
) -> Outcome<T> {
    let memory = session.device_memory;
    if session.current() != 0 {
        if let Some(places) = places {
            places.enter(memory, session.current())?;
        }
        return body();
    }
    // The client neither makes nor ends the context meanwhile.
    let table = primary(session);
    // A context that ends with this call is charged until then, and so is the library in it.
    let _charges = match (primary_now(session, &table, dev), places) {
        (Some(context), places) => {
            if let Some(places) = places {
                places.enter_on(memory, context, dev)?;
            }
            (None, None)
        }
        (None, Some(places)) => (memory.reserve_context(dev)?, places.visit(memory, dev)?),
        (None, None) => (memory.reserve_context(dev)?, None),
    };
    let mut context = Context::handle(0);
    // SAFETY: the pointers are to values that live across the calls, here and below.
    with_slack(|| unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, dev) })?;
    // SAFETY: as above; the context is retained.
    let pushed = unsafe { driver::cuCtxPushCurrent_v2(context) };
    let result = match pushed {
        Ok(()) => body(),
        Err(code) => Err(code.into()),
    };
    // SAFETY: as above.
    unsafe {
        if pushed.is_ok() {
            let _ = driver::cuCtxPopCurrent_v2(&mut context);
        }
        let _ = driver::cuDevicePrimaryCtxRelease_v2(dev);
    }
    session.forget_current();
    result
}

/// The flags that take effect only when a context is made: those of core dumps.
const MADE_WITH: u32 = CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE;

/// `cuDevicePrimaryCtxSetFlags`.
pub fn cuDevicePrimaryCtxSetFlags_v2(
    session: &Session,
    request: request::cuDevicePrimaryCtxSetFlags_v2,
    _: Data,
) -> Outcome<reply::cuDevicePrimaryCtxSetFlags_v2> {
    let dev = session.gpu(request.dev)?;
    grace::narrow(&[]);
    if dev == session.prewarm.device()
        && request.flags & MADE_WITH != 0
        && session.prewarm.wait_made()
    {
        session.prewarm.give_up();
        session.prewarm.wait_over();
    }
    // SAFETY: no pointers.
    unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(dev, request.flags)? };
    Ok(reply::cuDevicePrimaryCtxSetFlags_v2::default())
}

/// `cuDevicePrimaryCtxGetState`. A context that was made in advance does not count as active yet.
pub fn cuDevicePrimaryCtxGetState(
    session: &Session,
    request: request::cuDevicePrimaryCtxGetState,
    _: Data,
) -> Outcome<reply::cuDevicePrimaryCtxGetState> {
    let dev = session.gpu(request.dev)?;
    let (mut flags, mut active) = (0, 0);
    let hidden = dev == session.prewarm.device() && session.prewarm.is_hidden();
    let (mut to_flags, mut to_active) = (std::ptr::null_mut(), std::ptr::null_mut());
    if request.flags {
        to_flags = &raw mut flags;
    }
    if request.active {
        to_active = &raw mut active;
    }
    // SAFETY: the pointers are to values that live across the call, or NULL.
    unsafe { driver::cuDevicePrimaryCtxGetState(dev, to_flags, to_active)? };
    if hidden {
        active = 0;
    }
    Ok(reply::cuDevicePrimaryCtxGetState {
        flags,
        active,
        ..Default::default()
    })
}

/// `cuDevicePrimaryCtxRetain`. The guest counts references, so this comes once until the last release.
pub fn cuDevicePrimaryCtxRetain(
    session: &Session,
    request: request::cuDevicePrimaryCtxRetain,
    _: Data,
) -> Outcome<reply::cuDevicePrimaryCtxRetain> {
    let dev = session.gpu(request.dev)?;
    grace::narrow(&[]);
    let begun = session.objects.begin::<Context>(request.pctx)?;
    let mut table = primary(session);
    if table.contains_key(&dev) {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let traced = traces::reserve(session, dev)?;
    let began = Instant::now();
    let ahead = ahead(session, dev);
    let is_taken_over = ahead.is_some();
    let (context, charge) = match ahead {
        Some(context) => (context, session.prewarm.take_charge()),
        None => {
            let charge = session.device_memory.reserve_context(dev)?;
            let mut context = Context::handle(0);
            // SAFETY: the pointer is to a value that lives across the call.
            with_slack(|| unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, dev) })?;
            (Context::id(context), charge)
        }
    };
    let owner = Owner::Context(request.pctx);
    session.charges.keep(owner, request.pctx, charge);
    match is_taken_over {
        true => session.charges.take_over(request.pctx),
        false => settle_ahead(session),
    }
    session.traces.keep(session, request.pctx, traced);
    tracing::debug!("Start: primary context ready after {:?}", began.elapsed());
    begun.finish(Entry::new(context, 0));
    table.insert(dev, request.pctx);
    session.gates.note_gpu(dev);
    Ok(reply::cuDevicePrimaryCtxRetain::default())
}

/// `cuDevicePrimaryCtxRelease` of the last reference.
pub fn cuDevicePrimaryCtxRelease_v2(
    session: &Session,
    request: request::cuDevicePrimaryCtxRelease_v2,
    _: Data,
) -> Outcome<reply::cuDevicePrimaryCtxRelease_v2> {
    let dev = session.gpu(request.dev)?;
    let mut table = primary(session);
    let context = *table.get(&dev).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    // The guest's library releases it with the last of them.
    end_all(session, context)?;
    // SAFETY: no pointers; the context is no longer in use.
    end(session, context, |_| unsafe {
        driver::cuDevicePrimaryCtxRelease_v2(dev)
    })?;
    table.remove(&dev);
    Ok(reply::cuDevicePrimaryCtxRelease_v2::default())
}

/// `cuDevicePrimaryCtxReset`. This also ends the worker's own retention.
pub fn cuDevicePrimaryCtxReset_v2(
    session: &Session,
    request: request::cuDevicePrimaryCtxReset_v2,
    _: Data,
) -> Outcome<reply::cuDevicePrimaryCtxReset_v2> {
    let dev = session.gpu(request.dev)?;
    grace::narrow(&[]);
    let mut table = primary(session);
    if dev == session.prewarm.device() && session.prewarm.wait_made() {
        // For the guest only the flags can be reset, because it has not used the context.
        // SAFETY: no pointers.
        unsafe { driver::cuDevicePrimaryCtxSetFlags_v2(dev, 0)? };
        return Ok(reply::cuDevicePrimaryCtxReset_v2::default());
    }
    // SAFETY: no pointers; the context is no longer in use.
    let reset = || unsafe { driver::cuDevicePrimaryCtxReset_v2(dev) };
    let Some(&context) = table.get(&dev) else {
        reset()?;
        session.forget_current();
        return Ok(reply::cuDevicePrimaryCtxReset_v2::default());
    };
    end_all(session, context)?;
    end(session, context, |_| {
        reset()?;
        // With the worker's own reference, a later release would not end the context.
        // SAFETY: as above.
        let _ = unsafe { driver::cuDevicePrimaryCtxRelease_v2(dev) };
        Ok(())
    })?;
    table.remove(&dev);
    Ok(reply::cuDevicePrimaryCtxReset_v2::default())
}

/// `cuCtxCreate`. The guest tracks the current context itself, so the new one is popped at once.
pub fn cuCtxCreate_v2(
    session: &Session,
    request: request::cuCtxCreate_v2,
    _: Data,
) -> Outcome<reply::cuCtxCreate_v2> {
    let dev = session.gpu(request.dev)?;
    grace::narrow(&[]);
    let begun = session.objects.begin::<Context>(request.pctx)?;
    let traced = traces::reserve(session, dev)?;
    let mut context = Context::handle(0);
    let mut create = || {
        let charge = session.device_memory.reserve_context(dev)?;
        // SAFETY: the pointer is to a value that lives across the call.
        with_slack(|| unsafe { driver::cuCtxCreate_v2(&mut context, request.flags, dev) })?;
        Ok(charge)
    };
    // A client that makes a context does not plan to use the primary one. If that was released first, or while this one
    // is made, the client would wait for both.
    let charge = match create() {
        Err(CUDA_ERROR_OUT_OF_MEMORY) => {
            session.prewarm.give_up();
            session.prewarm.wait_over();
            create()?
        }
        created => created?,
    };
    let owner = Owner::Context(request.pctx);
    session.charges.keep(owner, request.pctx, charge);
    session.traces.keep(session, request.pctx, traced);
    session.prewarm.give_up();
    // SAFETY: as above.
    unsafe {
        let mut popped = Context::handle(0);
        let _ = driver::cuCtxPopCurrent_v2(&mut popped);
    }
    session.forget_current();
    begun.finish(Entry::new(Context::id(context), 0));
    session.gates.note_gpu(dev);
    Ok(reply::cuCtxCreate_v2::default())
}

/// `cuCtxDestroy`.
pub fn cuCtxDestroy_v2(
    session: &Session,
    request: request::cuCtxDestroy_v2,
    _: Data,
) -> Outcome<reply::cuCtxDestroy_v2> {
    let context = session.objects.raw::<Context>(request.ctx)?;
    let is_green = session.objects.context_of(request.ctx) != 0;
    let is_primary = || primary(session).values().any(|id| *id == request.ctx);
    if context == 0 || is_green || is_primary() {
        return Err(CUDA_ERROR_INVALID_CONTEXT.into());
    }
    // SAFETY: the handle is the driver's, and the context is no longer in use.
    end(session, request.ctx, |context| unsafe {
        driver::cuCtxDestroy_v2(context)
    })?;
    Ok(reply::cuCtxDestroy_v2::default())
}

/// `cuCtxRecordEvent`.
pub fn cuCtxRecordEvent(
    session: &Session,
    request: request::cuCtxRecordEvent,
    _: Data,
) -> Outcome<reply::cuCtxRecordEvent> {
    let context = Context::handle(session.objects.raw::<Context>(request.hCtx)?);
    let event = session.objects.raw::<Event>(request.hEvent)? as CUevent;
    // SAFETY: both handles are the driver's and live until this ends, or NULL.
    captures::outside(|| unsafe { driver::cuCtxRecordEvent(context, event) })?;
    Ok(reply::cuCtxRecordEvent::default())
}

/// `cuCtxWaitEvent`.
pub fn cuCtxWaitEvent(
    session: &Session,
    request: request::cuCtxWaitEvent,
    _: Data,
) -> Outcome<reply::cuCtxWaitEvent> {
    let context = Context::handle(session.objects.raw::<Context>(request.hCtx)?);
    let event = session.objects.raw::<Event>(request.hEvent)? as CUevent;
    // SAFETY: both handles are the driver's and live until this ends, or NULL.
    captures::outside(|| unsafe { driver::cuCtxWaitEvent(context, event) })?;
    Ok(reply::cuCtxWaitEvent::default())
}

/// `cuCtxEnablePeerAccess`. Access to memory in chunks is granted separately, and remains when peer access is disabled
/// again.
pub fn cuCtxEnablePeerAccess(
    session: &Session,
    request: request::cuCtxEnablePeerAccess,
    _: Data,
) -> Outcome<reply::cuCtxEnablePeerAccess> {
    let peer = session.objects.raw::<Context>(request.peerContext)?;
    // SAFETY: the handle is the driver's and lives, or NULL.
    unsafe { driver::cuCtxEnablePeerAccess(Context::handle(peer), request.Flags)? };
    session.device_memory.enable_peer(request.peerContext)?;
    Ok(reply::cuCtxEnablePeerAccess::default())
}

/// The default stack size of a thread in bytes.
pub const DEFAULT_STACK: u32 = 1024;
/// The default size of `printf`'s buffer in bytes.
const DEFAULT_PRINTF: u64 = 1 << 20;
/// The default size of kernels' heap in bytes.
const DEFAULT_HEAP: u64 = 8 << 20;

/// Charges the memory of a limit of the current context above a context's default. An earlier charge counts; it is
/// dropped with the context, because it is unknown when the driver frees the memory.
fn reserve_for(session: &Session, limit: CUlimit, bytes: u64) -> Result<(), CUresult> {
    let context = session.current();
    if context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    let owner = Owner::Limit(context, limit);
    let missing = bytes.saturating_sub(session.charges.bytes(owner));
    let charge = session.device_memory.reserve(device(session), missing)?;
    session.charges.keep(owner, context, charge);
    Ok(())
}

/// Charges the stacks of as many threads as the device can run at a time, each with `bytes` bytes: the driver reserves
/// that much.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
pub fn reserve_stack(session: &Session, bytes: u64) -> Result<(), CUresult> {
    let device = device(session);
    let processors = device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    let threads = device_attribute(device, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
    let more = bytes.saturating_sub(DEFAULT_STACK.into());
    let all = more.saturating_mul(processors).saturating_mul(threads);
    reserve_for(session, CU_LIMIT_STACK_SIZE, all)
}

/// `cuCtxSetLimit`. If the VM has a memory limit, context limits whose memory is unknown cannot be raised.
pub fn cuCtxSetLimit(
    session: &Session,
    request: request::cuCtxSetLimit,
    _: Data,
) -> Outcome<reply::cuCtxSetLimit> {
    let request::cuCtxSetLimit { limit, value } = request;
    let is_limited = session
        .shares
        .get()
        .is_some_and(|shares| shares.quota.limit().is_some());
    let bytes = value as u64;
    match limit {
        CU_LIMIT_STACK_SIZE => reserve_stack(session, bytes)?,
        CU_LIMIT_PRINTF_FIFO_SIZE => {
            reserve_for(session, limit, bytes.saturating_sub(DEFAULT_PRINTF))?;
        }
        CU_LIMIT_MALLOC_HEAP_SIZE => {
            reserve_for(session, limit, bytes.saturating_sub(DEFAULT_HEAP))?;
        }
        CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH | CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
            if is_limited =>
        {
            let mut now = 0;
            // SAFETY: the pointer is to a value that lives across the call.
            unsafe { driver::cuCtxGetLimit(&mut now, limit)? };
            if value > now {
                return Err(CUDA_ERROR_OUT_OF_MEMORY.into());
            }
        }
        _ => {}
    }
    // SAFETY: no pointers.
    unsafe { driver::cuCtxSetLimit(limit, value)? };
    Ok(reply::cuCtxSetLimit::default())
}
