// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The backend: descriptors with attributes, which graphs, plans and variant packs consist of.
//!
//! Descriptors are kept by the host, except variant packs, which stay here. Each execution carries a whole pack: a
//! device address for each tensor, or the value itself for a tensor that the plan has by value ([`Values`]). Setting an
//! attribute waits for the host's answer, unless one of the same name, type and length was accepted. If the library
//! refuses a later one, the descriptor's finalisation reports it.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    ffi::{c_int, c_void},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_library::{
    Object, Status,
    forward::{self, Request, settle},
    handle,
};
use gpgpu_locks::{Mutex, MutexGuard, RwLock};
use gpgpu_protocol::{
    codec::Writer,
    libraries::{
        Class, Function,
        cudnn::{
            backend::{Values, bytes, element, kind, width},
            status,
        },
    },
};

use crate::{HANDLE, calls::free, enter, give, pack::Pack};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::Cudnn};

    pub const CREATE: &Function = Cudnn.find("cudnnBackendCreateDescriptor");
    pub const DESTROY: &Function = Cudnn.find("cudnnBackendDestroyDescriptor");
    pub const SET: &Function = Cudnn.find("cudnnBackendSetAttribute");
    pub const GET: &Function = Cudnn.find("cudnnBackendGetAttribute");
    pub const FINALIZE: &Function = Cudnn.find("cudnnBackendFinalize");
    pub const EXECUTE: &Function = Cudnn.find("cudnnBackendExecute");
    pub const WORKSPACE: &Function = Cudnn.find("cudnnGetExecutionPlanWorkspaceSize");
}

/// A finalised plan.
#[derive(Debug, Default)]
struct Plan {
    values: Values,
    /// The executions that the host's library has accepted, by form.
    accepted: Mutex<HashSet<u64>>,
}

/// A descriptor that exists.
#[derive(Debug)]
enum Descriptor {
    Pack(Mutex<Pack>),
    Plan(OnceLock<Plan>),
    /// A descriptor of another type; whether it is finalised.
    Other(i32, AtomicBool),
}

static DESCRIPTORS: RwLock<Option<HashMap<u64, Arc<Descriptor>>>> = RwLock::new(None);

fn find(of: Object) -> Result<Arc<Descriptor>, Status> {
    if of.is_null() {
        return Err(status::NULL_POINTER);
    }
    let all = DESCRIPTORS.read();
    let found = all.as_ref().and_then(|all| all.get(&(of as u64)));
    found.cloned().ok_or(status::BAD_PARAM)
}

/// The attributes that were accepted: type of descriptors, name, type and number of elements.
type Accepted = HashSet<(i32, i32, i32, i64)>;

fn accepted() -> MutexGuard<'static, Accepted> {
    static ACCEPTED: OnceLock<Mutex<Accepted>> = OnceLock::new();
    ACCEPTED.get_or_init(Mutex::default).lock()
}

/// The most attributes that are remembered, and the most executions of a plan.
const REMEMBERED: usize = 1 << 12;

/// `cudnnBackendCreateDescriptor`.
///
/// # Safety
///
/// `descriptor` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendCreateDescriptor(
    descriptorType: c_int,
    descriptor: *mut Object,
) -> Status {
    enter("cudnnBackendCreateDescriptor", || {
        if descriptor.is_null() {
            return Err(status::NULL_POINTER);
        }
        let id = forward::new_object(Class::CudnnBackend)?;
        let made = match descriptorType {
            kind::PACK => Descriptor::Pack(Mutex::default()),
            other => {
                let words = [other as u64, id];
                Request::new(function::CREATE, &words).send(free())?;
                match other {
                    kind::PLAN => Descriptor::Plan(OnceLock::new()),
                    other => Descriptor::Other(other, AtomicBool::new(false)),
                }
            }
        };
        let mut all = DESCRIPTORS.write();
        all.get_or_insert_default().insert(id, Arc::new(made));
        // SAFETY: promised by the caller.
        unsafe { give(descriptor, id as Object) }
    })
}

/// `cudnnBackendDestroyDescriptor`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendDestroyDescriptor(descriptor: Object) -> Status {
    enter("cudnnBackendDestroyDescriptor", || {
        if descriptor.is_null() {
            return Err(status::NULL_POINTER);
        }
        let gone = {
            let mut all = DESCRIPTORS.write();
            let gone = all
                .as_mut()
                .and_then(|all| all.remove(&(descriptor as u64)));
            gone.ok_or(status::BAD_PARAM)?
        };
        match *gone {
            Descriptor::Pack(_) => Ok(()),
            _ => Request::new(function::DESTROY, &[descriptor as u64]).post(),
        }
    })
}

/// Elements in the program's memory.
///
/// # Safety
///
/// There are so many bytes at the address, if it is not NULL.
unsafe fn elements<'a>(at: *const c_void, bytes: usize) -> Result<&'a [u8], Status> {
    match (bytes, at.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(status::NULL_POINTER),
        // SAFETY: promised by the caller.
        (bytes, false) => Ok(unsafe { std::slice::from_raw_parts(at.cast(), bytes) }),
    }
}

/// `cudnnBackendSetAttribute`.
///
/// # Safety
///
/// There are so many elements of this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendSetAttribute(
    descriptor: Object,
    attributeName: c_int,
    attributeType: c_int,
    elementCount: i64,
    arrayOfElements: *const c_void,
) -> Status {
    enter("cudnnBackendSetAttribute", || {
        let known = find(descriptor)?;
        let count = u64::try_from(elementCount).map_err(|_| status::BAD_PARAM)?;
        let length = bytes(attributeType, count).ok_or(match width(attributeType) {
            None => status::ATTRIBUTE_TYPE,
            Some(_) => status::BAD_PARAM,
        })?;
        // SAFETY: promised by the caller.
        let elements = unsafe { elements(arrayOfElements, length) }?;
        let of = match *known {
            Descriptor::Pack(ref pack) => {
                return pack.lock().set(attributeName, attributeType, elements);
            }
            Descriptor::Plan(ref plan) if plan.get().is_none() => kind::PLAN,
            Descriptor::Other(of, ref is_final) if !is_final.load(Ordering::Relaxed) => of,
            // A finalised descriptor cannot be changed.
            _ => return Err(status::BAD_PARAM),
        };
        let form = (of, attributeName, attributeType, elementCount);
        let is_posted = accepted().contains(&form);
        let words = [
            descriptor as u64,
            attributeName as u64,
            attributeType as u64,
            count,
            0,
            is_posted.into(),
        ];
        let request = Request {
            blob: elements,
            ..Request::new(function::SET, &words)
        };
        if is_posted {
            return request.post();
        }
        request.ask()?;
        let mut accepted = accepted();
        if accepted.len() >= REMEMBERED {
            accepted.clear();
        }
        accepted.insert(form);
        Ok(())
    })
}

/// `cudnnBackendFinalize`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendFinalize(descriptor: Object) -> Status {
    enter("cudnnBackendFinalize", || {
        let id = descriptor as u64;
        match *find(descriptor)? {
            Descriptor::Pack(ref pack) => {
                let mut pack = pack.lock();
                if pack.ids.len() != pack.pointers.len() {
                    return Err(status::BAD_PARAM);
                }
                pack.is_final = true;
                Ok(())
            }
            Descriptor::Plan(ref plan) => {
                let reply = Request::new(function::FINALIZE, &[id, 1]).ask_for()?;
                let values = Values::read(&reply).map_err(|_| status::INTERNAL_ERROR)?;
                let _ = plan.set(Plan {
                    values,
                    ..Plan::default()
                });
                Ok(())
            }
            Descriptor::Other(_, ref is_final) => {
                Request::new(function::FINALIZE, &[id, 0]).ask()?;
                is_final.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    })
}

/// `cudnnBackendGetAttribute`. If the elements are descriptors, the caller provides them, and they are set to the
/// attribute's descriptors.
///
/// # Safety
///
/// The pointers are NULL or the caller's to write to: the second to so many elements of this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnBackendGetAttribute(
    descriptor: Object,
    attributeName: c_int,
    attributeType: c_int,
    requestedElementCount: i64,
    elementCount: *mut i64,
    arrayOfElements: *mut c_void,
) -> Status {
    enter("cudnnBackendGetAttribute", || {
        let known = find(descriptor)?;
        let width = width(attributeType).ok_or(status::ATTRIBUTE_TYPE)?;
        let requested = match arrayOfElements.is_null() {
            true => 0,
            false => u64::try_from(requestedElementCount).map_err(|_| status::BAD_PARAM)?,
        };
        let length = bytes(attributeType, requested).ok_or(status::BAD_PARAM)?;
        let reply = if let Descriptor::Pack(pack) = &*known {
            let words = pack.lock().get(attributeName, attributeType)?;
            if !elementCount.is_null() {
                // SAFETY: promised by the caller.
                unsafe { give(elementCount, words.len() as i64) }?;
            }
            let words = words.into_iter().take(requested as usize);
            words.flat_map(u64::to_ne_bytes).collect()
        } else {
            let descriptors = match attributeType {
                // SAFETY: promised by the caller.
                element::DESCRIPTOR => unsafe { elements(arrayOfElements, length) }?,
                _ => &[],
            };
            let words = [
                descriptor as u64,
                attributeName as u64,
                attributeType as u64,
                requested,
                0,
                elementCount as u64,
                u64::from(requested != 0),
            ];
            Request {
                blob: descriptors,
                longest: length,
                ..Request::new(function::GET, &words)
            }
            .ask_for()?
        };
        if reply.len() > length || reply.len() % width != 0 {
            return Err(status::INTERNAL_ERROR);
        }
        // SAFETY: promised by the caller; without an array there is nothing to write.
        unsafe {
            std::ptr::copy_nonoverlapping(reply.as_ptr(), arrayOfElements.cast(), reply.len());
        }
        Ok(())
    })
}

thread_local! {
    /// A buffer for an encoded variant pack.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes a pack for a plan, and passes the pack and the form of its execution to `send`.
fn with_written(
    plan: &Plan,
    pack: Object,
    send: impl FnOnce(&[u8], u64) -> Result<(), Status>,
) -> Result<(), Status> {
    let pack = find(pack)?;
    let Descriptor::Pack(pack) = &*pack else {
        return Err(status::BAD_PARAM);
    };
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.clear();
    let mut writer = Writer::on(room);
    let form = pack.lock().write(&plan.values, &mut writer, |address, to| {
        // SAFETY: the program says by the pack that there is a value of the tensor's type.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len());
        }
    });
    let written = writer.into_bytes();
    let sent = form.and_then(|form| send(&written, form));
    let _ = ROOM.try_with(|room| room.set(written));
    sent
}

/// Runs `body` with a finalised plan.
fn with_plan(plan: Object, body: impl FnOnce(&Plan) -> Result<(), Status>) -> Result<(), Status> {
    match &*find(plan)? {
        Descriptor::Plan(plan) => body(plan.get().ok_or(status::NOT_FINALIZED)?),
        _ => Err(status::BAD_PARAM),
    }
}

fn request<'a>(function: &'static Function, words: &'a [u64], blob: &'a [u8]) -> Request<'a> {
    Request {
        blob,
        ..Request::new(function, words)
    }
}

/// `cudnnBackendExecute`. Waits if the plan has not yet been executed with a pack of this form.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnBackendExecute(
    handle: Object,
    executionPlan: Object,
    variantPack: Object,
) -> Status {
    enter("cudnnBackendExecute", || {
        handle::with(HANDLE, handle, |known| {
            with_plan(executionPlan, |plan| {
                with_written(plan, variantPack, |blob, form| {
                    let _settled = settle(HANDLE, handle as u64, known)?;
                    let words = [handle as u64, executionPlan as u64, 0];
                    let request = request(function::EXECUTE, &words, blob);
                    if plan.accepted.lock().contains(&form) {
                        return request.post();
                    }
                    request.ask()?;
                    let mut accepted = plan.accepted.lock();
                    if accepted.len() >= REMEMBERED {
                        accepted.clear();
                    }
                    accepted.insert(form);
                    Ok(())
                })
            })
        })
    })
}

/// `cudnnGetExecutionPlanWorkspaceSize`.
///
/// # Safety
///
/// `workspaceSizeInBytes` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetExecutionPlanWorkspaceSize(
    handle: Object,
    executionPlan: Object,
    variantPack: Object,
    workspaceSizeInBytes: *mut usize,
) -> Status {
    enter("cudnnGetExecutionPlanWorkspaceSize", || {
        if workspaceSizeInBytes.is_null() {
            return Err(status::NULL_POINTER);
        }
        handle::with(HANDLE, handle, |_| {
            with_plan(executionPlan, |plan| {
                with_written(plan, variantPack, |blob, _| {
                    let to = workspaceSizeInBytes as u64;
                    let words = [handle as u64, executionPlan as u64, 0, to];
                    request(function::WORKSPACE, &words, blob).ask()
                })
            })
        })
    })
}
