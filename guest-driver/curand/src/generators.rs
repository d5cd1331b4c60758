// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation, destruction and settings of generators.

use std::{collections::HashSet, sync::OnceLock};

use gpgpu_library::{
    Object, Status,
    forward::{self, context, stream_id, tell_stream},
    handle,
};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library, curand::status},
};

use crate::{GENERATOR, LIBRARY, enter};

const CREATE: &Function = Library::Curand.find("curandCreateGenerator");
const DESTROY: &Function = Library::Curand.find("curandDestroyGenerator");
const VERSION: &Function = Library::Curand.find("curandGetVersion");
const PROPERTY: &Function = Library::Curand.find("curandGetProperty");
const ORDERING: &Function = Library::Curand.find("curandSetGeneratorOrdering");
const DIMENSIONS: &Function = Library::Curand.find("curandSetQuasiRandomGeneratorDimensions");

/// `CURAND_ORDERING_PSEUDO_DYNAMIC`, which host generators do not support.
const DYNAMIC: i32 = 104;

/// The host generators: their numbers go to host memory.
fn for_host() -> MutexGuard<'static, HashSet<u64>> {
    static ALL: OnceLock<Mutex<HashSet<u64>>> = OnceLock::new();
    let all = ALL.get_or_init(Mutex::default);
    all.lock()
}

/// Whether a generator writes to host memory.
pub fn is_for_host(generator: Object) -> bool {
    for_host().contains(&(generator as u64))
}

/// `curandCreateGenerator`.
///
/// # Safety
///
/// `generator` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGenerator(generator: *mut Object, rng_type: i32) -> Status {
    enter(|| forward::send(CREATE, &[generator as u64, rng_type as u64]))
}

/// `curandCreateGeneratorHost`: makes a generator on the GPU, which has all types of them, too.
///
/// # Safety
///
/// `generator` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandCreateGeneratorHost(
    generator: *mut Object,
    rng_type: i32,
) -> Status {
    enter(|| {
        forward::send(CREATE, &[generator as u64, rng_type as u64])?;
        // SAFETY: the caller gives an address for the generator, where it was just written.
        let made = unsafe { generator.read() };
        for_host().insert(made as u64);
        Ok(())
    })
}

/// `curandDestroyGenerator`.
#[unsafe(no_mangle)]
pub extern "C" fn curandDestroyGenerator(generator: Object) -> Status {
    enter(|| {
        for_host().remove(&(generator as u64));
        forward::send(DESTROY, &[generator as u64])
    })
}

/// `curandGetVersion`.
///
/// # Safety
///
/// `version` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandGetVersion(version: *mut i32) -> Status {
    enter(|| {
        if version.is_null() {
            return Err(status::OUT_OF_RANGE);
        }
        context(LIBRARY)?;
        forward::send(VERSION, &[version as u64])
    })
}

/// `curandGetProperty`.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn curandGetProperty(property: i32, value: *mut i32) -> Status {
    enter(|| {
        if value.is_null() {
            return Err(status::OUT_OF_RANGE);
        }
        context(LIBRARY)?;
        forward::send(PROPERTY, &[property as u64, value as u64])
    })
}

/// `curandSetStream`. For a host generator, calls wait for the numbers, whatever the stream is.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetStream(generator: Object, stream: CUstream) -> Status {
    enter(|| {
        handle::with(GENERATOR, generator, |known| {
            let id = stream_id(LIBRARY, stream as u64)?;
            if is_for_host(generator) || !known.told().give_stream(stream as usize, id) {
                return Ok(());
            }
            tell_stream(GENERATOR, generator as u64, id)
        })
    })
}

/// Sends the library a setting that influences which calls it accepts.
fn set(function: &'static Function, generator: Object, value: u64) -> Result<(), Status> {
    forward::send(function, &[generator as u64, value])?;
    let known = handle::find(GENERATOR, generator)?;
    known.forget_accepted();
    Ok(())
}

/// `curandSetGeneratorOrdering`.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetGeneratorOrdering(generator: Object, order: i32) -> Status {
    enter(|| {
        if order == DYNAMIC && is_for_host(generator) {
            return Err(status::OUT_OF_RANGE);
        }
        set(ORDERING, generator, order as u64)
    })
}

/// `curandSetQuasiRandomGeneratorDimensions`.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetQuasiRandomGeneratorDimensions(
    generator: Object,
    num_dimensions: u32,
) -> Status {
    enter(|| set(DIMENSIONS, generator, num_dimensions.into()))
}
