// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! libcuda's part of the tracing of calls ([`gpgpu_trace`]): the switch, and the number of a thread's traced call.

use std::{
    cell::Cell,
    ffi::c_int,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use gpgpu_trace::{Call, Copied, Observer, Trace, VERSION};

use crate::thread;

/// The switch of this process.
pub static TRACE: Trace = Trace {
    version: VERSION,
    bytes: size_of::<Trace>() as u32,
    active: AtomicU32::new(0),
    enter,
    leave,
    observe,
};

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The number of the thread's traced call, or 0.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    /// Whether the thread is in a traced call: its calls of other functions are the library's own.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

fn observer() -> Option<&'static Observer> {
    // SAFETY: an observer is a static of a library that stays loaded.
    unsafe { OBSERVER.load(Ordering::Acquire).as_ref() }
}

unsafe extern "C" fn observe(observer: *const Observer, active: u32) {
    if !observer.is_null() {
        OBSERVER.store(observer.cast_mut(), Ordering::Release);
    }
    TRACE.active.store(active, Ordering::Release);
}

unsafe extern "C" fn enter(call: *mut Call) -> c_int {
    let Some(observer) = observer() else { return 0 };
    // A thread whose storage was destroyed traces nothing.
    if INSIDE
        .try_with(|inside| inside.replace(true))
        .unwrap_or(true)
    {
        return 0;
    }
    // SAFETY: the call is the caller's, and lives until it is left.
    unsafe {
        (*call).context = thread::current_context();
        (observer.begin)(call);
        NUMBER.set((*call).number);
    }
    1
}

unsafe extern "C" fn leave(call: *mut Call) {
    NUMBER.set(0);
    if let Some(observer) = observer() {
        // SAFETY: as above.
        unsafe {
            (*call).context = thread::current_context();
            (observer.end)(call);
        }
    }
    INSIDE.set(false);
}

/// The number of this thread's traced call; 0 if there is none, or the host traces no work.
#[inline]
pub fn number() -> u32 {
    if !TRACE.has_work() {
        return 0;
    }
    NUMBER.try_with(Cell::get).unwrap_or(0)
}

/// The observer's time, if this thread's call is traced: the begin of a copy that [`copied`] reports.
#[inline]
pub fn begin_copy() -> Option<u64> {
    if number() == 0 {
        return None;
    }
    // SAFETY: takes nothing.
    observer().map(|observer| unsafe { (observer.now)() })
}

/// Reports a copy of pageable memory, which began at `start`, as a part of this thread's call. The function adds the
/// number, the times and the context.
#[cold]
pub fn copied(start: u64, mut copy: Copied) {
    let Some(observer) = observer() else { return };
    copy.call = number();
    copy.start = start;
    copy.context = thread::current_context();
    // SAFETY: the structure lives across the call.
    unsafe {
        copy.end = (observer.now)();
        (observer.copied)(&copy);
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::{
        api::{Request, request},
        codec::Reader,
        layout::StreamCommand,
    };
    use gpgpu_trace::{CALLS, DRIVER, RUNTIME, Traced, WORK};
    use zerocopy::FromBytes;

    use super::*;
    use crate::command::{encode, encode_written};

    unsafe extern "C" fn begin(call: *mut Call) {
        // SAFETY: the call's thread passes it, as to the functions below.
        unsafe { (*call).number = (*call).domain + 70 };
    }
    unsafe extern "C" fn end(call: *mut Call) {
        // SAFETY: as above.
        unsafe { *(*call).result += 1 };
    }
    unsafe extern "C" fn now() -> u64 {
        5
    }
    unsafe extern "C" fn ignore(_: *const Copied) {}

    static OBSERVES: Observer = Observer {
        begin,
        end,
        now,
        copied: ignore,
    };

    /// The operations of a stream, with the first argument of each.
    fn commands(mut stream: &[u8]) -> Vec<(u16, u64)> {
        let mut found = Vec::new();
        while let Ok((head, rest)) = StreamCommand::read_from_prefix(stream) {
            let bytes = head.bytes.get() as usize - size_of::<StreamCommand>();
            let first = Reader::new(&rest[..bytes]).get::<u64>().unwrap_or_default();
            found.push((head.op.get(), first));
            stream = &rest[bytes..];
        }
        found
    }

    fn sent() -> Vec<(u16, u64)> {
        let mut stream = vec![1; 100];
        encode(&request::cuStreamQuery { hStream: 9 }, &mut stream);
        let mut written = Vec::new();
        let operation = request::cuStreamQuery::OPERATION;
        encode_written(operation, &9_u64.to_le_bytes(), &mut written);
        assert_eq!(stream, written);
        commands(&stream)
    }

    #[test]
    fn commands_of_a_traced_call_begin_with_its_number() {
        let query = (request::cuStreamQuery::OP, 9);
        assert_eq!(sent(), [query]);
        // SAFETY: the observer is a static.
        unsafe { observe(&OBSERVES, CALLS) };
        let call = Traced::begin(&TRACE, DRIVER, "cuOne", ()).unwrap();
        // The host traces no work, and may be too old to know the command.
        assert_eq!(sent(), [query]);
        assert_eq!(call.end(4), 5);
        // SAFETY: as above.
        unsafe { observe(&OBSERVES, CALLS | WORK) };
        assert!(begin_copy().is_none());
        let call = Traced::begin(&TRACE, DRIVER, "cuOne", (1_u32, 2_u64)).unwrap();
        assert_eq!(sent(), [(request::gpgpuTraceCall::OP, 71), query]);
        assert_eq!(begin_copy(), Some(5));
        // A call within a call is the library's own.
        assert!(Traced::begin(&TRACE, RUNTIME, "cudaOne", ()).is_none());
        // It must be the first of its stream.
        let mut stream = Vec::new();
        encode(&request::gpgpuRingAfter { position: 3 }, &mut stream);
        assert_eq!(commands(&stream), [(request::gpgpuRingAfter::OP, 3)]);
        assert_eq!(call.end(4), 5);
        assert_eq!(sent(), [query]);
        let call = Traced::begin(&TRACE, RUNTIME, "cudaOne", ()).unwrap();
        assert_eq!(sent(), [(request::gpgpuTraceCall::OP, 72), query]);
        call.end(0);
        // SAFETY: as above.
        unsafe { observe(std::ptr::null(), 0) };
        assert_eq!(sent(), [query]);
    }
}
