// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation, destruction and settings of generators.

use std::{collections::HashMap, sync::OnceLock};

use gpgpu_library::{
    Object, Status,
    forward::{self, set_stream, stream_id},
    handle,
    memory::Aside,
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

/// The host generators, whose numbers go to host memory, with the context and the stream that make the numbers.
fn for_host() -> MutexGuard<'static, HashMap<u64, Aside>> {
    static ALL: OnceLock<Mutex<HashMap<u64, Aside>>> = OnceLock::new();
    let all = ALL.get_or_init(Mutex::default);
    all.lock()
}

/// The context and the stream of a generator that writes to host memory.
pub fn aside(generator: Object) -> Option<Aside> {
    for_host().get(&(generator as u64)).copied()
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
        let aside = Aside::new(LIBRARY)
            .and_then(|aside| set_stream(GENERATOR, made, aside.stream()).map(|()| aside));
        let aside = aside.inspect_err(|_| {
            let _ = forward::send(DESTROY, &[made as u64]);
        })?;
        for_host().insert(made as u64, aside);
        Ok(())
    })
}

/// `curandDestroyGenerator`.
#[unsafe(no_mangle)]
pub extern "C" fn curandDestroyGenerator(generator: Object) -> Status {
    enter(|| {
        let aside = for_host().remove(&(generator as u64));
        let destroyed = forward::send(DESTROY, &[generator as u64]);
        aside.into_iter().for_each(Aside::end);
        destroyed
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
        forward::send(PROPERTY, &[property as u64, value as u64])
    })
}

/// `curandSetStream`. For a host generator, calls wait for the numbers, whatever the stream is.
#[unsafe(no_mangle)]
pub extern "C" fn curandSetStream(generator: Object, stream: CUstream) -> Status {
    enter(|| match aside(generator) {
        Some(_) => stream_id(LIBRARY, stream as u64).map(drop),
        None => set_stream(GENERATOR, generator, stream),
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
        if order == DYNAMIC && aside(generator).is_some() {
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
