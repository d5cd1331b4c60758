// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuSPARSELt's part of the worker: it makes the library's own descriptors for each call.
//!
//! The library's structures point to each other, and programs never destroy some of them. So those of a plan live as
//! long as the plan, and those of any other call as long as the call. The only values of a guest's memory that the
//! library gets are scalars, and attributes that [`attributes`](gpgpu_protocol::libraries::cusparselt::attributes)
//! lists as numbers or device addresses.

use std::{
    ffi::c_void,
    sync::{Arc, atomic::AtomicU64},
};

use gpgpu_protocol::{
    api::Context,
    codec::Writer,
    libraries::{
        Kind, SUCCESS,
        call::Value,
        cusparselt::{
            attributes::{Class, FOUND},
            form::{DENSE, Form, Matrix, Product, Scalar, Selection, Set},
            status,
        },
    },
};

use super::{ByHand, Call, abi};
use crate::{cuda::library::Library, worker::grace};

macro_rules! parts {
    ($($name:literal: $part:expr;)*) => {
        /// The functions with a part in this file.
        pub const BY_HAND: &[(&str, ByHand)] = &[$(($name, |call, words| {
            let part: fn(&mut Call<'_>, &[u64]) -> Step<()> = $part;
            Ok(part(call, words).err().unwrap_or(SUCCESS))
        })),*];
    };
}

parts! {
    "cusparseLtInit": init;
    "cusparseLtDestroy": destroy;
    "cusparseLtDenseDescriptorInit": |call, words| matrix(call, words[0]).map(drop);
    "cusparseLtStructuredDescriptorInit": |call, words| matrix(call, words[0]).map(drop);
    "cusparseLtMatDescSetAttribute": |call, words| matrix(call, words[0]).map(drop);
    "cusparseLtMatDescGetAttribute": |call, words| {
        let of = matrix(call, words[0])?;
        tell(call, words, Class::Matrix, "cusparseLtMatDescGetAttribute", &of)
    };
    "cusparseLtMatmulDescriptorInit": |call, words| product(call, words[0]).map(drop);
    "cusparseLtMatmulDescSetAttribute": |call, words| product(call, words[0]).map(drop);
    "cusparseLtMatmulDescGetAttribute": |call, words| {
        let of = product(call, words[0])?;
        tell(call, words, Class::Product, "cusparseLtMatmulDescGetAttribute", &of.descriptor)
    };
    "cusparseLtMatmulAlgSelectionInit": |call, words| selection(call, words[0], 1).map(drop);
    "cusparseLtMatmulAlgSetAttribute": |call, words| selection(call, words[0], 1).map(drop);
    "cusparseLtMatmulAlgGetAttribute": |call, words| {
        let of = selection(call, words[0], 1)?;
        tell(call, words, Class::Selection, "cusparseLtMatmulAlgGetAttribute", &of.algorithm)
    };
    "cusparseLtMatmulPlanInit": new_plan;
    "cusparseLtMatmulPlanDestroy": end_plan;
    "cusparseLtMatmulGetWorkspace": |call, words| {
        let of = Planned::new(words[0], selection(call, words[0], 1)?)?;
        host("cusparseLtMatmulGetWorkspace", &[words[0], of.plan.at(), words[2]])
    };
    "cusparseLtMatmul": |call, words| multiply(call, words, "cusparseLtMatmul");
    "cusparseLtMatmulSearch": search;
    "cusparseLtSpMMAPrune": |call, words| of_product(call, words, "cusparseLtSpMMAPrune");
    "cusparseLtSpMMAPruneCheck": |call, words| of_product(call, words, "cusparseLtSpMMAPruneCheck");
    "cusparseLtSpMMAPrune2": |call, words| of_matrix(call, words, "cusparseLtSpMMAPrune2");
    "cusparseLtSpMMAPruneCheck2": |call, words| of_matrix(call, words, "cusparseLtSpMMAPruneCheck2");
    "cusparseLtSpMMACompressedSize": |call, words| {
        let of = Planned::new(words[0], selection(call, words[0], 1)?)?;
        host("cusparseLtSpMMACompressedSize", &[words[0], of.plan.at(), words[2], words[3]])
    };
    "cusparseLtSpMMACompressedSize2": |call, words| of_matrix(call, words, "cusparseLtSpMMACompressedSize2");
    "cusparseLtSpMMACompress": |_, words| {
        let mut all = words.to_vec();
        all[1] = with_plan(words, |plan| Ok(plan.planned.plan.at()))?;
        host("cusparseLtSpMMACompress", &all)
    };
    "cusparseLtSpMMACompress2": |call, words| of_matrix(call, words, "cusparseLtSpMMACompress2");
}

/// The result of a step: the error is the call's status.
type Step<T> = Result<T, u32>;

/// The size of a structure in words: the largest, of versions before 0.8, has 11,024 bytes.
const WORDS: usize = (12 << 10) / 8;

/// A structure of the library, at an address that does not change. Only the library accesses its contents.
#[repr(C, align(64))]
struct Room([AtomicU64; WORDS]);

impl Room {
    fn new() -> Box<Self> {
        Box::new(Self([const { AtomicU64::new(0) }; WORDS]))
    }

    fn at(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

/// Calls a function of the library that takes no floating-point numbers.
fn host(name: &'static str, words: &[u64]) -> Step<()> {
    let found = Library::CusparseLt.symbol(name);
    let address: *const c_void = found.map_err(|_| status::NOT_SUPPORTED)?;
    // SAFETY: callers give the library's own structures, which live across the call; values as wide as the function
    // reads or writes; and device addresses where the library takes them for such.
    match unsafe { abi::call_with(address, words, [0.0; abi::MOST_FLOATS]) } {
        SUCCESS => Ok(()),
        other => Err(other),
    }
}

/// Decodes an argument's bytes.
fn read<T: Form>(call: &Call<'_>, at: usize) -> Step<T> {
    match call.values.get(at) {
        Some(Value::Bytes(bytes, _)) => T::get(bytes).map_err(|_| status::INVALID_VALUE),
        _ => Err(status::INVALID_VALUE),
    }
}

/// A descriptor of the library, and the function that destroys it, if it was made.
struct Made {
    room: Box<Room>,
    end: Option<&'static str>,
}

impl Made {
    /// Makes a descriptor with `make`, and sets its attributes.
    fn new<const N: usize>(
        handle: u64,
        make: impl FnOnce(u64) -> Step<()>,
        end: Option<&'static str>,
        (class, set): (Class, &'static str),
        values: &Set<N>,
    ) -> Step<Self> {
        let room = Room::new();
        make(room.at())?;
        let made = Self { room, end };
        for (number, value) in values.iter() {
            let of = class.attributes().get(number);
            let bytes = of.map_or(0, |of| of.bytes.into());
            let value = &raw const value as u64;
            host(set, &[handle, made.at(), number as u64, value, bytes])?;
        }
        Ok(made)
    }

    fn at(&self) -> u64 {
        self.room.at()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            // The result does not matter: an old version has no such function for some descriptors, and the others do
            // not fail.
            let _ = host(end, &[self.at()]);
        }
    }
}

fn new_matrix(handle: u64, of: &Matrix) -> Step<Made> {
    let shape = [of.rows, of.columns, of.leading].map(|of| of as u64);
    let [rows, columns, leading] = shape;
    let (alignment, data, order) = (of.alignment.into(), of.data as u64, of.order as u64);
    let make = |at| {
        let words = [handle, at, rows, columns, leading, alignment, data, order];
        match of.sparsity {
            DENSE => host("cusparseLtDenseDescriptorInit", &words),
            sparsity => {
                let words: Vec<u64> = words.into_iter().chain([sparsity.into()]).collect();
                host("cusparseLtStructuredDescriptorInit", &words)
            }
        }
    };
    let end = Some("cusparseLtMatDescriptorDestroy");
    let set = (Class::Matrix, "cusparseLtMatDescSetAttribute");
    Made::new(handle, make, end, set, &of.set)
}

/// The library's descriptors for a product. Fields are dropped in this order: a descriptor before those to which it
/// points.
struct Described {
    descriptor: Made,
    _matrices: [Made; 4],
}

impl Described {
    fn new(handle: u64, of: &Product) -> Step<Self> {
        let [a, b, c, d] = of.matrices.each_ref().map(|of| new_matrix(handle, of));
        let matrices = [a?, b?, c?, d?];
        let make = |at| {
            let [a, b] = of.operations.map(|of| of as u64);
            let [m, n, c, d] = matrices.each_ref().map(Made::at);
            let words = [handle, at, a, b, m, n, c, d, of.compute as u64];
            host("cusparseLtMatmulDescriptorInit", &words)
        };
        let set = (Class::Product, "cusparseLtMatmulDescSetAttribute");
        let descriptor = Made::new(handle, make, None, set, &of.set)?;
        Ok(Self {
            descriptor,
            _matrices: matrices,
        })
    }
}

/// The same with an algorithm.
struct Selected {
    algorithm: Made,
    described: Described,
}

impl Selected {
    fn new(handle: u64, of: &Selection) -> Step<Self> {
        let described = Described::new(handle, &of.product)?;
        let make = |at| {
            let words = [handle, at, described.descriptor.at(), 0];
            host("cusparseLtMatmulAlgSelectionInit", &words)
        };
        let end = Some("cusparseLtMatmulAlgSelectionDestroy");
        let set = (Class::Selection, "cusparseLtMatmulAlgSetAttribute");
        let algorithm = Made::new(handle, make, end, set, &of.set)?;
        Ok(Self {
            algorithm,
            described,
        })
    }
}

/// The same with a plan.
struct Planned {
    plan: Made,
    selected: Selected,
}

impl Planned {
    fn new(handle: u64, selected: Selected) -> Step<Self> {
        let make = |at| {
            let (product, algorithm) = (&selected.described.descriptor, &selected.algorithm);
            let words = [handle, at, product.at(), algorithm.at()];
            host("cusparseLtMatmulPlanInit", &words)
        };
        let end = Some("cusparseLtMatmulPlanDestroy");
        // A plan has no attributes.
        let nothing = (Class::Matrix, "cusparseLtMatDescSetAttribute");
        let plan = Made::new(handle, make, end, nothing, &Set::<0>::default())?;
        Ok(Self { plan, selected })
    }
}

/// The object of a plan.
struct Plan {
    planned: Planned,
    product: Product,
    /// The context of its handle.
    context: u64,
    /// The handle's structure, to which the library's plan may point.
    handle: Arc<Room>,
}

fn matrix(call: &Call<'_>, handle: u64) -> Step<Made> {
    new_matrix(handle, &read(call, 1)?)
}

fn product(call: &Call<'_>, handle: u64) -> Step<Described> {
    Described::new(handle, &read(call, 1)?)
}

fn selection(call: &Call<'_>, handle: u64, at: usize) -> Step<Selected> {
    Selected::new(handle, &read(call, at)?)
}

/// Makes a handle.
fn init(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let room: Arc<Room> = Room::new().into();
    match call.call_library("cusparseLtInit", &[Kind::I64], &[room.at()]) {
        SUCCESS => {}
        other => return Err(other),
    }
    // SAFETY: the creator of an object passes a pointer to a word. The object has this count from here on.
    unsafe { *(words[0] as *mut u64) = Arc::into_raw(room) as u64 };
    Ok(())
}

/// Destroys a handle. Its structure exists as long as plans that were made with it.
fn destroy(_: &mut Call<'_>, words: &[u64]) -> Step<()> {
    // SAFETY: `init` has written an object of this class, and it can no longer be found.
    let room = unsafe { Arc::from_raw(words[0] as *const Room) };
    host("cusparseLtDestroy", &[room.at()])
}

/// Returns an attribute of a descriptor.
fn tell(call: &Call<'_>, words: &[u64], class: Class, name: &'static str, of: &Made) -> Step<()> {
    let (at, attribute) = class
        .find(call.word(2) as i32)
        .ok_or(status::INVALID_VALUE)?;
    if words[3] == 0 {
        return Err(status::INVALID_VALUE);
    }
    // The buffer has eight bytes, which are zero.
    let bytes = attribute.bytes.into();
    host(name, &[words[0], of.at(), at as u64, words[3], bytes])
}

/// Calls a function with a product's descriptor.
fn of_product(call: &mut Call<'_>, words: &[u64], name: &'static str) -> Step<()> {
    let of = product(call, words[0])?;
    let mut all = words.to_vec();
    all[1] = of.descriptor.at();
    host(name, &all)
}

/// The same with a matrix's descriptor.
fn of_matrix(call: &mut Call<'_>, words: &[u64], name: &'static str) -> Step<()> {
    let of = matrix(call, words[0])?;
    let mut all = words.to_vec();
    all[1] = of.at();
    host(name, &all)
}

/// Makes a plan, and stores its parts.
fn new_plan(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let of: Selection = read(call, 2)?;
    let planned = Planned::new(words[0], Selected::new(words[0], &of)?)?;
    let room = words[0] as *const Room;
    // SAFETY: `init` has written an object of this class, and it lives across the call.
    let handle = unsafe {
        Arc::increment_strong_count(room);
        Arc::from_raw(room)
    };
    let plan = Box::new(Plan {
        planned,
        product: of.product,
        context: call
            .session
            .objects
            .live_context_of(call.word(0))
            .unwrap_or(0),
        handle,
    });
    // SAFETY: the creator of an object passes a pointer to a word. The object is the plan's only owner from here on.
    unsafe { *(words[1] as *mut u64) = Box::into_raw(plan) as u64 };
    Ok(())
}

/// Destroys a plan, in its context if that still exists.
fn end_plan(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    // SAFETY: `new_plan` has written an object of this class, and it can no longer be found.
    let plan = unsafe { Box::from_raw(words[0] as *mut Plan) };
    let session = call.session;
    // First: an end of the context that begins after this waits for this command.
    grace::set_context(plan.context);
    if session.objects.raw::<Context>(plan.context).is_ok() {
        // Without its context, the library still frees its host memory.
        let _ = session.enter(plan.context);
    }
    drop(plan);
    Ok(())
}

/// Calls `body` with the plan in the second argument, if it belongs to the handle in the first.
fn with_plan<T>(words: &[u64], body: impl FnOnce(&Plan) -> Step<T>) -> Step<T> {
    if words[1] == 0 {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: `new_plan` has written an object of this class. It does not end while this command runs.
    let plan = unsafe { &*(words[1] as *const Plan) };
    // Calls of a handle exclude each other, so only this call uses the plan.
    if Arc::as_ptr(&plan.handle) as u64 != words[0] {
        return Err(status::INVALID_VALUE);
    }
    body(plan)
}

/// Computes a plan's product.
fn multiply(call: &mut Call<'_>, words: &[u64], name: &'static str) -> Step<()> {
    let scalars: [Scalar; 2] = read(call, 2)?;
    with_plan(words, |plan| {
        if !plan.product.takes(scalars) {
            return Err(status::INVALID_VALUE);
        }
        // As wide as the widest type, in case a version reads more than single precision.
        let here = scalars.map(|of| match of {
            Scalar::Here(bits) => [u64::from(bits), 0],
            Scalar::At(_) => [0; 2],
        });
        let at = |at: usize| match scalars[at] {
            Scalar::Here(_) => &raw const here[at] as u64,
            Scalar::At(address) => address,
        };
        let [a, b, c, d, workspace, stream] =
            [words[3], words[4], words[5], words[6], words[7], words[8]];
        let (of, streams) = (plan.planned.plan.at(), &raw const stream as u64);
        let all = [
            words[0],
            of,
            at(0),
            a,
            b,
            at(1),
            c,
            d,
            workspace,
            streams,
            1,
        ];
        host(name, &all)
    })
}

/// Searches for the best algorithm, and returns the result.
fn search(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    multiply(call, words, "cusparseLtMatmulSearch")?;
    let mut found = Writer::new();
    with_plan(words, |plan| {
        let algorithm = plan.planned.selected.algorithm.at();
        for number in FOUND {
            let mut value = 0_u64;
            let told = [words[0], algorithm, number as u64, &raw mut value as u64, 4];
            // This version or this product may not have the attribute.
            if host("cusparseLtMatmulAlgGetAttribute", &told).is_ok() {
                found.word(number as u64);
                found.word(value);
            }
        }
        Ok(())
    })?;
    if let Some(Value::Bytes(reply, true)) = call.values.last_mut() {
        *reply = found.into_bytes();
    }
    Ok(())
}
