// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls on a handle, with their data.

use std::{cell::Cell, collections::VecDeque};

use gpgpu_library::{
    Object, Status,
    forward::Request,
    handle::{self, Handle},
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    codec::Writer,
    libraries::{
        Class, Function,
        cublaslt::{
            attributes::Class as Kind,
            form::{Described, Formed, Operands},
            status,
        },
    },
};

use crate::{
    HANDLE,
    descriptor::{Descriptor, Raw},
    plans::Plan,
};

/// The most handles of our libcublas that are known here: as many as can exist at once.
const FOREIGN: usize = 1 << 10;

/// Records a handle that our libcublas has made.
fn insert_foreign(id: u64) {
    static KNOWN: Mutex<VecDeque<u64>> = Mutex::new(VecDeque::new());
    let mut known = KNOWN.lock();
    if known.len() >= FOREIGN
        && let Some(oldest) = known.pop_front()
    {
        handle::remove(oldest as Object);
    }
    known.push_back(id);
    handle::insert(id);
}

/// Calls `body` with the state of a handle. A handle of cuBLAS is valid here too: libcublas has made it, and this
/// library first sees it when it is used.
///
/// # Errors
///
/// `NOT_INITIALIZED` if there is no such handle; the errors of `body`.
pub fn on_handle<T>(
    handle: Object,
    body: impl FnOnce(&Handle) -> Result<T, Status>,
) -> Result<T, Status> {
    let mut body = Some(body);
    let mut run = |known: &Handle| {
        let body = body.take();
        body.map_or(Err(status::INTERNAL_ERROR), |body| body(known))
    };
    let is_cublas = Class::CublasHandle.has(handle as u64);
    if !is_cublas {
        return handle::with(HANDLE, handle, run);
    }
    let mut outcome = None;
    let known = handle::with(HANDLE, handle, |known| {
        outcome = Some(run(known));
        Ok(())
    });
    if known.is_err() {
        insert_foreign(handle as u64);
        outcome = Some(handle::with(HANDLE, handle, run));
    }
    let outcome = outcome.unwrap_or(Err(status::INTERNAL_ERROR));
    if matches!(outcome, Err(status::NOT_INITIALIZED)) {
        // The host does not know the handle.
        handle::remove(handle);
    }
    outcome
}

/// A product's descriptors, for one call.
pub struct Parts<'a> {
    operation: Descriptor<'a>,
    emulation: Option<Descriptor<'a>>,
    layouts: [Descriptor<'a>; 4],
}

impl<'a> Parts<'a> {
    /// Reads the descriptors; the layouts are those of A, B, C and D.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if one is invalid.
    ///
    /// # Safety
    ///
    /// The pointers are NULL or to descriptors that do not change while these values live.
    // The result would be copied twice on its way out of a function.
    #[inline(always)]
    pub unsafe fn read(operation: Raw, [a, b, c, d]: [Raw; 4]) -> Result<Self, Status> {
        // SAFETY: promised by the caller.
        unsafe {
            let operation = Descriptor::read(Kind::Operation, operation)?;
            let layout = |raw| Descriptor::read(Kind::Layout, raw);
            Ok(Self {
                emulation: operation.emulation()?,
                operation,
                layouts: [layout(a)?, layout(b)?, layout(c)?, layout(d)?],
            })
        }
    }

    /// The operation's descriptor.
    pub fn operation(&self) -> &Descriptor<'a> {
        &self.operation
    }

    /// The bytes of the operation's descriptor and of the layouts; `None` if there is also an emulation descriptor.
    pub fn bytes(&self) -> Option<[&[u8]; 5]> {
        let [a, b, c, d] = self.layouts.each_ref().map(AsRef::as_ref);
        let all = [self.operation.as_ref(), a, b, c, d];
        self.emulation.is_none().then_some(all)
    }

    /// All descriptors, ready to be written.
    pub fn described(&self) -> Described<'_, Descriptor<'a>> {
        Described {
            operation: &self.operation,
            emulation: self.emulation.as_ref(),
            layouts: self.layouts.each_ref(),
        }
    }
}

thread_local! {
    /// A buffer for the data, so that a call allocates nothing.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes a call's data, and passes it to `send` with the number of its form.
pub fn with_written<T>(
    op: u16,
    put: impl FnOnce(&mut Formed<'_>),
    send: impl FnOnce(&[u8], u64) -> T,
) -> T {
    written_behind(op.into(), put, send)
}

/// Like [`with_written`], for the rest of a request; `form` is the number of the part before it.
fn written_behind<T>(
    form: u64,
    put: impl FnOnce(&mut Formed<'_>),
    send: impl FnOnce(&[u8], u64) -> T,
) -> T {
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.clear();
    let mut writer = Writer::on(room);
    let mut formed = Formed::behind(form, &mut writer);
    put(&mut formed);
    let form = formed.form();
    let blob = writer.into_bytes();
    let sent = send(&blob, form);
    let _ = ROOM.try_with(|room| room.set(blob));
    sent
}

/// Sends work on a handle and a stream. Waits only if the library has not yet accepted work of its form.
///
/// # Errors
///
/// The library's status, or the status for libcuda's code.
pub fn send_work(
    function: &'static Function,
    known: &Handle,
    handle: Object,
    stream: u64,
    put: impl FnOnce(&mut Formed<'_>),
) -> Result<(), Status> {
    let put = |formed: &mut Formed<'_>| {
        put(formed);
        formed.count_in(stream);
    };
    with_written(function.operation.op, put, |blob, form| {
        let words = [handle as u64, 0, stream];
        let request = Request {
            blob,
            ..Request::new(function, &words)
        };
        if known.has_accepted(form) {
            return request.post();
        }
        request.ask()?;
        known.accept(form);
        Ok(())
    })
}

/// Posts a product by its plan, if the library has accepted one of its form. Returns whether it did.
///
/// # Errors
///
/// The status for libcuda's code.
pub fn post_by_plan(
    function: &'static Function,
    known: &Handle,
    handle: Object,
    stream: u64,
    plan: Plan,
    operands: &Operands,
) -> Result<bool, Status> {
    let put = |formed: &mut Formed<'_>| {
        operands.put(formed);
        formed.count_in(stream);
    };
    written_behind(plan.form, put, |blob, form| {
        if !known.has_accepted(form) {
            return Ok(false);
        }
        let words = [handle as u64, plan.id, 0, stream];
        let request = Request {
            blob,
            ..Request::new(function, &words)
        };
        request.post()?;
        Ok(true)
    })
}
