// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arrays: creation, description and destruction.

use gpgpu_protocol::{
    api::{Array, ArrayForm, MipmappedArray, Object, reply, request},
    cuda::*,
};

use super::library::device;
use crate::cuda::driver;
use crate::worker::{
    arrays::{self, form, native},
    charges::Owner,
    dispatch::Outcome,
    grace::{self, Ending, Name, Ticket},
    objects::{Begun, Entry},
    session::{Data, Session},
};

/// The driver's description of an array.
fn describe(array: CUarray) -> Result<ArrayForm, CUresult> {
    let mut native = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: the array is the driver's and lives; the pointer is to a value that lives across the call.
    unsafe { driver::cuArray3DGetDescriptor_v2(&mut native, array)? };
    Ok(form(&native))
}

/// Makes an array.
pub fn gpgpuArrayCreate(
    session: &Session,
    request: request::gpgpuArrayCreate,
    _: Data,
) -> Outcome<reply::gpgpuArrayCreate> {
    let begun = session.objects.begin::<Array>(request.array)?;
    let native = native(&request.form)?;
    let device = device(session);
    let charge = session.device_memory.reserve_array(&native, None, device)?;
    let mut array = Array::handle(0);
    // SAFETY: the pointers are to values that live across the call.
    unsafe { driver::cuArray3DCreate_v2(&mut array, &native)? };
    let made = describe(array).inspect_err(|_| {
        // SAFETY: the array was just made, and no other code knows it.
        let _ = unsafe { driver::cuArrayDestroy(array) };
    })?;
    arrays::keep(session, begun, Array::id(array), device, charge);
    Ok(reply::gpgpuArrayCreate {
        made,
        ..Default::default()
    })
}

/// `cuArrayDestroy`.
pub fn cuArrayDestroy(
    session: &Session,
    request: request::cuArrayDestroy,
    _: Data,
) -> Outcome<reply::cuArrayDestroy> {
    let id = request.hArray;
    // A part of another array ends with that array.
    match session.objects.entry::<Array>(id) {
        Some(entry) if entry.parent == 0 => {}
        _ => return Err(CUDA_ERROR_INVALID_HANDLE.into()),
    }
    let entry = session.objects.end::<Array>(id)?;
    end(session, id, &entry, || {
        // SAFETY: the handle is the driver's, and no command uses it any more.
        unsafe { driver::cuArrayDestroy(Array::handle(entry.raw)) }
    })?;
    Ok(reply::cuArrayDestroy::default())
}

/// Destroys a hidden array, by `destroy`, once no other command uses it.
fn end(
    session: &Session,
    id: u64,
    entry: &Entry,
    destroy: impl FnOnce() -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    // Parts that are made from here on are hidden.
    if session.arrays.has_parts(id) {
        session.objects.hide_children(id);
    }
    let [home, entered] = session.used();
    grace::narrow(&[Name::Object(entry.context), home, entered]);
    Ticket::now().wait(Ending::Object(id));
    let ended = destroy();
    match ended {
        Ok(()) => {
            session.charges.forget(Owner::Array(id));
            if session.arrays.has_parts(id) {
                session.objects.remove_with_children(id);
            } else {
                session.objects.remove(id);
            }
            session.arrays.forget(id);
        }
        Err(_) => session.objects.keep_with_children(id),
    }
    ended
}

/// Makes a mipmapped array.
pub fn gpgpuMipmappedArrayCreate(
    session: &Session,
    request: request::gpgpuMipmappedArrayCreate,
    _: Data,
) -> Outcome<reply::gpgpuMipmappedArrayCreate> {
    let begun = session.objects.begin::<MipmappedArray>(request.mipmap)?;
    let native = native(&request.form)?;
    let device = device(session);
    let levels = request.levels;
    let memory = &session.device_memory;
    let charge = memory.reserve_array(&native, Some(levels), device)?;
    let mut array = MipmappedArray::handle(0);
    // SAFETY: the pointers are to values that live across the call.
    unsafe { driver::cuMipmappedArrayCreate(&mut array, &native, levels)? };
    let raw = MipmappedArray::id(array);
    arrays::keep(session, begun, raw, device, charge);
    Ok(reply::gpgpuMipmappedArrayCreate {
        count: levels_of(array),
        ..Default::default()
    })
}

/// The number of levels. The driver does not report it, except by an error for a level that does not exist.
fn levels_of(array: CUmipmappedArray) -> u32 {
    let mut level = Array::handle(0);
    let is_there = |number: &u32| {
        // SAFETY: the array is the driver's and lives; the pointer is to a value that lives across the call.
        unsafe { driver::cuMipmappedArrayGetLevel(&mut level, array, *number) }.is_ok()
    };
    (0..32).take_while(is_there).count() as u32
}

/// `cuMipmappedArrayDestroy`.
pub fn cuMipmappedArrayDestroy(
    session: &Session,
    request: request::cuMipmappedArrayDestroy,
    _: Data,
) -> Outcome<reply::cuMipmappedArrayDestroy> {
    let id = request.hMipmappedArray;
    let entry = session.objects.end::<MipmappedArray>(id)?;
    end(session, id, &entry, || {
        // SAFETY: the handle is the driver's, and no command uses it or one of its levels any more: those name it as
        // well.
        unsafe { driver::cuMipmappedArrayDestroy(MipmappedArray::handle(entry.raw)) }
    })?;
    Ok(reply::cuMipmappedArrayDestroy::default())
}

/// Records a part of an array or mipmapped array under an id, with its kind.
fn keep_part(
    session: &Session,
    (begun, parent): (Begun<'_>, u64),
    of: &Entry,
    part: CUarray,
) -> Result<ArrayForm, CUresult> {
    let made = describe(part)?;
    session.arrays.note_part(begun.id(), parent);
    let entry = Entry {
        parent,
        ..Entry::new(Array::id(part), of.context)
    };
    begun.finish(entry);
    Ok(made)
}

/// `cuMipmappedArrayGetLevel`.
pub fn gpgpuMipmappedArrayLevel(
    session: &Session,
    request: request::gpgpuMipmappedArrayLevel,
    _: Data,
) -> Outcome<reply::gpgpuMipmappedArrayLevel> {
    let begun = session.objects.begin::<Array>(request.level)?;
    let entry = session.objects.entry::<MipmappedArray>(request.mipmap);
    let entry = entry.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let mut level = Array::handle(0);
    // SAFETY: the array is the driver's and lives; the pointer is to a value that lives across the call.
    unsafe {
        let of = MipmappedArray::handle(entry.raw);
        driver::cuMipmappedArrayGetLevel(&mut level, of, request.number)?;
    }
    let made = keep_part(session, (begun, request.mipmap), &entry, level)?;
    Ok(reply::gpgpuMipmappedArrayLevel {
        made,
        ..Default::default()
    })
}

/// `cuArrayGetPlane`.
pub fn gpgpuArrayPlane(
    session: &Session,
    request: request::gpgpuArrayPlane,
    _: Data,
) -> Outcome<reply::gpgpuArrayPlane> {
    let begun = session.objects.begin::<Array>(request.plane)?;
    let entry = session.objects.entry::<Array>(request.array);
    let entry = entry.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let mut plane = Array::handle(0);
    // SAFETY: as above.
    unsafe { driver::cuArrayGetPlane(&mut plane, Array::handle(entry.raw), request.number)? };
    let made = keep_part(session, (begun, request.array), &entry, plane)?;
    Ok(reply::gpgpuArrayPlane {
        made,
        ..Default::default()
    })
}

/// `cuArrayGetMemoryRequirements`.
pub fn gpgpuArrayMemory(
    session: &Session,
    request: request::gpgpuArrayMemory,
    _: Data,
) -> Outcome<reply::gpgpuArrayMemory> {
    let device = session.gpu(request.dev)?;
    let array = Array::handle(session.objects.raw::<Array>(request.array)?);
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: as above.
    unsafe { driver::cuArrayGetMemoryRequirements(&mut needs, array, device)? };
    Ok(reply::gpgpuArrayMemory {
        size: needs.size,
        alignment: needs.alignment,
        ..Default::default()
    })
}

/// `cuMipmappedArrayGetMemoryRequirements`.
pub fn gpgpuMipmappedArrayMemory(
    session: &Session,
    request: request::gpgpuMipmappedArrayMemory,
    _: Data,
) -> Outcome<reply::gpgpuMipmappedArrayMemory> {
    let device = session.gpu(request.dev)?;
    let raw = session.objects.raw::<MipmappedArray>(request.mipmap)?;
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: as above.
    unsafe {
        let array = MipmappedArray::handle(raw);
        driver::cuMipmappedArrayGetMemoryRequirements(&mut needs, array, device)?;
    };
    Ok(reply::gpgpuMipmappedArrayMemory {
        size: needs.size,
        alignment: needs.alignment,
        ..Default::default()
    })
}
