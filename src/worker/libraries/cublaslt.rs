// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuBLASLt's part of the worker: it makes the library's own descriptors for each call.
//!
//! The descriptors are made again for each call: the library takes 0.15 µs for those of a product. Those of a [`Plan`]
//! live as long as the plan, so a guest that computes the same product repeatedly need not send them.
//!
//! The only values of a guest's host memory that the library gets are scalars, algorithms, and attributes that
//! [`attributes`](gpgpu_protocol::libraries::cublaslt::attributes) lists as numbers or device addresses. The library
//! checks an algorithm's bytes.

use std::{ffi::c_void, mem::transmute, sync::OnceLock};

use gpgpu_protocol::{
    codec::Malformed,
    libraries::{
        SUCCESS,
        call::Value,
        cublaslt::{
            attributes::{
                COLUMNS, COMPUTE_TYPE, Class, EMULATION, LAYOUT_TYPE, LEADING, ROWS, SCALE_TYPE,
                TRANSFORM_SCALE_TYPE,
            },
            form::{
                self as form, ALGORITHM, Algorithm, Check, Descriptor, Descriptors, MAX_SETTING,
                Operands, Product, Question, RESULT, SCALAR, Scalar, Transformation,
            },
            status,
        },
    },
};

use super::{ByHand, Call};
use crate::cuda::library::Library;

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
    "cublasLtGetVersion": version;
    "cublasLtMatmul": multiply;
    "cublasLtMatrixTransform": transform;
    "gpgpuLtPlan": new_plan;
    "gpgpuLtPlanForget": end_plan;
    "gpgpuLtPlanMatmul": multiply_by_plan;
    "cublasLtMatmulAlgoGetHeuristic": |call, words| find(call, words[0], None);
    "cublasLtMatmulAlgoGetHeuristicForStream": |call, words| find(call, words[0], Some(words[3]));
    "cublasLtMatmulAlgoCheck": |call, words| check(call, words[0], None);
    "cublasLtMatmulAlgoCheckForStream": |call, words| check(call, words[0], Some(words[3]));
    "cublasLtMatmulAlgoCapGetAttribute": |call, words| ask(call, words[1], host::capability);
    "cublasLtMatmulAlgoConfigGetAttribute": |call, words| ask(call, words[1], host::setting);
}

/// The library's argument for a pointer.
type Address = *const c_void;
type Gets = unsafe extern "C" fn(Address, u32, *mut u8, usize, *mut usize) -> u32;
type Sets = unsafe extern "C" fn(u64, u32, *const u64, usize) -> u32;
type Ends = unsafe extern "C" fn(u64) -> u32;

macro_rules! functions {
    ($($function:ident: $name:literal $ty:ty;)*) => {
        /// The library's functions that this file calls, each looked up at its first use, because an old library lacks
        /// some.
        mod host {
            use super::*;

            $(pub fn $function() -> Step<$ty> {
                static FOUND: OnceLock<Option<$ty>> = OnceLock::new();
                let found = FOUND.get_or_init(|| {
                    let address = Library::CublasLt.symbol($name).ok()?;
                    // SAFETY: the library's function of this name has this type, by its header.
                    Some(unsafe { transmute::<*const c_void, $ty>(address) })
                });
                found.ok_or(status::NOT_SUPPORTED)
            })*
        }
    };
}

functions! {
    version: "cublasLtGetVersion" unsafe extern "C" fn() -> usize;
    new_operation: "cublasLtMatmulDescCreate" unsafe extern "C" fn(*mut u64, u32, u32) -> u32;
    set_operation: "cublasLtMatmulDescSetAttribute" Sets;
    end_operation: "cublasLtMatmulDescDestroy" Ends;
    new_layout: "cublasLtMatrixLayoutCreate" unsafe extern "C" fn(*mut u64, u32, u64, u64, i64) -> u32;
    set_layout: "cublasLtMatrixLayoutSetAttribute" Sets;
    end_layout: "cublasLtMatrixLayoutDestroy" Ends;
    new_preference: "cublasLtMatmulPreferenceCreate" unsafe extern "C" fn(*mut u64) -> u32;
    set_preference: "cublasLtMatmulPreferenceSetAttribute" Sets;
    end_preference: "cublasLtMatmulPreferenceDestroy" Ends;
    new_transform: "cublasLtMatrixTransformDescCreate" unsafe extern "C" fn(*mut u64, u32) -> u32;
    set_transform: "cublasLtMatrixTransformDescSetAttribute" Sets;
    end_transform: "cublasLtMatrixTransformDescDestroy" Ends;
    new_emulation: "cublasLtEmulationDescCreate" unsafe extern "C" fn(*mut u64) -> u32;
    set_emulation: "cublasLtEmulationDescSetAttribute" Sets;
    end_emulation: "cublasLtEmulationDescDestroy" Ends;
    multiply: "cublasLtMatmul" unsafe extern "C" fn(
        u64, u64, Address, u64, u64, u64, u64, Address, u64, u64, u64, u64, Address, u64, u64, u64,
    ) -> u32;
    transform: "cublasLtMatrixTransform" unsafe extern "C" fn(
        u64, u64, Address, u64, u64, Address, u64, u64, u64, u64, u64,
    ) -> u32;
    find: "cublasLtMatmulAlgoGetHeuristic" unsafe extern "C" fn(
        u64, u64, u64, u64, u64, u64, u64, i32, *mut Found, *mut i32,
    ) -> u32;
    find_for_stream: "cublasLtMatmulAlgoGetHeuristicForStream" unsafe extern "C" fn(
        u64, u64, u64, u64, u64, u64, u64, i32, *mut Found, *mut i32, u64,
    ) -> u32;
    check: "cublasLtMatmulAlgoCheck" unsafe extern "C" fn(
        u64, u64, u64, u64, u64, u64, Address, *mut Found,
    ) -> u32;
    check_for_stream: "cublasLtMatmulAlgoCheckForStream" unsafe extern "C" fn(
        u64, u64, u64, u64, u64, u64, Address, *mut Found, u64,
    ) -> u32;
    capability: "cublasLtMatmulAlgoCapGetAttribute" Gets;
    setting: "cublasLtMatmulAlgoConfigGetAttribute" Gets;
}

/// The result of a step before the library computes: the error is the call's status.
type Step<T> = Result<T, u32>;

fn done(status: u32) -> Step<()> {
    match status {
        SUCCESS => Ok(()),
        other => Err(other),
    }
}

/// Decodes an argument's bytes.
fn read<T>(call: &Call<'_>, at: usize, get: impl FnOnce(&[u8]) -> Result<T, Malformed>) -> Step<T> {
    match call.values.get(at) {
        Some(Value::Bytes(bytes, _)) => get(bytes).map_err(|_| status::INVALID_VALUE),
        _ => Err(status::INVALID_VALUE),
    }
}

/// Returns bytes if the caller wants them.
fn give(call: &mut Call<'_>, at: usize, bytes: Vec<u8>) {
    if let Some(Value::Bytes(to, true)) = call.values.get_mut(at) {
        *to = bytes;
    }
}

/// A descriptor of the library.
struct Made {
    raw: u64,
    end: Ends,
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: the library has made it, and no other code has it.
        unsafe { (self.end)(self.raw) };
    }
}

impl Made {
    /// Makes a descriptor from its encoding, and from that of an emulation descriptor to which it points.
    fn new(class: Class, of: &Descriptor, emulation: Option<&Self>) -> Step<Self> {
        let value = |number| of.get_or_default(class, number);
        let type_of = |number| value(number) as u32;
        let mut raw = 0;
        let to = &raw mut raw;
        let (set, end) = match class {
            Class::Operation => (host::set_operation()?, host::end_operation()?),
            Class::Layout => (host::set_layout()?, host::end_layout()?),
            Class::Preference => (host::set_preference()?, host::end_preference()?),
            Class::Transform => (host::set_transform()?, host::end_transform()?),
            Class::Emulation => (host::set_emulation()?, host::end_emulation()?),
        };
        // SAFETY: the library writes a descriptor's address, and takes any numbers for the rest.
        done(unsafe {
            match class {
                Class::Operation => {
                    let (compute, scale) = (type_of(COMPUTE_TYPE), type_of(SCALE_TYPE));
                    host::new_operation()?(to, compute, scale)
                }
                Class::Layout => {
                    let (rows, columns) = (value(ROWS), value(COLUMNS));
                    let leading = value(LEADING) as i64;
                    host::new_layout()?(to, type_of(LAYOUT_TYPE), rows, columns, leading)
                }
                Class::Preference => host::new_preference()?(to),
                Class::Transform => host::new_transform()?(to, type_of(TRANSFORM_SCALE_TYPE)),
                Class::Emulation => host::new_emulation()?(to),
            }
        })?;
        let made = Self { raw, end };
        let emulation = emulation.map(|emulation| (EMULATION, emulation.raw));
        for (number, value) in of.set().iter().copied().chain(emulation) {
            let bytes = class.find(number).map_or(0, |(_, of)| of.bytes);
            // SAFETY: the descriptor lives, and the value has at least as many bytes. It is a number or a device
            // address, by the table, or the address of a descriptor that outlives this one's use.
            done(unsafe { set(made.raw, number.into(), &value, bytes.into()) })?;
        }
        Ok(made)
    }
}

/// The descriptors of a product.
struct Parts {
    operation: Made,
    // Dropped after the descriptors that point to it.
    _emulation: Option<Made>,
    layouts: [Made; 4],
}

impl Parts {
    fn new(of: &Descriptors) -> Step<Self> {
        let emulation = of.emulation.as_ref();
        let emulation = emulation.map(|of| Made::new(Class::Emulation, of, None));
        let emulation = emulation.transpose()?;
        let operation = Made::new(Class::Operation, &of.operation, emulation.as_ref())?;
        let layout = |of| Made::new(Class::Layout, of, None);
        let [a, b, c, d] = &of.layouts;
        Ok(Self {
            operation,
            _emulation: emulation,
            layouts: [layout(a)?, layout(b)?, layout(c)?, layout(d)?],
        })
    }

    fn layouts(&self) -> [u64; 4] {
        self.layouts.each_ref().map(|of| of.raw)
    }
}

/// A scalar's bytes, aligned for every type.
#[repr(align(16))]
struct Aligned([u64; SCALAR / 8]);

/// Alpha and beta, stored as long as the library may read them.
struct Scalars([(Scalar, Aligned); 2]);

impl Scalars {
    fn new(scalars: [Scalar; 2]) -> Self {
        Self(scalars.map(|scalar| match scalar {
            Scalar::Here(words) => (scalar, Aligned(words)),
            Scalar::At(_) => (scalar, Aligned([0; SCALAR / 8])),
        }))
    }

    /// Their addresses for the library: here or on the device, by the pointer mode, which was checked when they were
    /// decoded.
    fn addresses(&self) -> [Address; 2] {
        self.0.each_ref().map(|(scalar, bytes)| match scalar {
            Scalar::Here(_) => bytes.0.as_ptr().cast(),
            Scalar::At(address) => *address as Address,
        })
    }
}

/// An algorithm in the library's form.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Aside(Algorithm);

/// A `cublasLtMatmulHeuristicResult_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Found([u8; RESULT]);

const _: () = assert!(size_of::<Aside>() == ALGORITHM && size_of::<Found>() == RESULT);

fn version(call: &mut Call<'_>, _: &[u64]) -> Step<()> {
    let version = host::version()?;
    // SAFETY: it takes nothing.
    let version = unsafe { version() } as u64;
    give(call, 0, version.to_le_bytes().into());
    Ok(())
}

/// The descriptors and the algorithm of a product in the library's form.
struct Plan {
    parts: Parts,
    algorithm: Option<Aside>,
    /// Its `cublasLtPointerMode_t`.
    mode: u64,
}

impl Plan {
    fn new(of: &form::Plan) -> Step<Self> {
        Ok(Self {
            parts: Parts::new(&of.descriptors)?,
            algorithm: of.algorithm.map(Aside),
            mode: of.mode(),
        })
    }

    fn multiply(&self, handle: u64, stream: u64, of: &Operands) -> Step<()> {
        let multiply = host::multiply()?;
        let ([a, b, c, d], [of_a, of_b, of_c, of_d]) = (of.matrices, self.parts.layouts());
        let scalars = Scalars::new(of.scalars);
        let [alpha, beta] = scalars.addresses();
        let algorithm: Address = match &self.algorithm {
            Some(algorithm) => (&raw const *algorithm).cast(),
            None => std::ptr::null(),
        };
        let (operation, (workspace, bytes)) = (self.parts.operation.raw, of.workspace);
        // SAFETY: the handle, the stream and the descriptors are the library's own and live. Scalars are here, with
        // room for the widest type, or at device addresses as the descriptor says. The other addresses are the
        // device's, and the guest's choice of them harms only its own context. An algorithm's bytes can harm only this
        // process, which is the guest process's own.
        done(unsafe {
            multiply(
                handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d, of_d, algorithm,
                workspace, bytes, stream,
            )
        })
    }
}

fn multiply(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let product = read(call, 1, Product::get)?;
    Plan::new(&product.plan)?.multiply(words[0], words[2], &product.operands)
}

/// Makes a plan for later products.
fn new_plan(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let plan = Box::new(Plan::new(&read(call, 1, form::Plan::get)?)?);
    // SAFETY: the creator of an object passes a pointer to a word. The object is the plan's only owner from here on.
    unsafe { *(words[0] as *mut u64) = Box::into_raw(plan) as u64 };
    Ok(())
}

fn end_plan(_: &mut Call<'_>, words: &[u64]) -> Step<()> {
    // SAFETY: `new_plan` has written an object of this class, and it can no longer be found.
    drop(unsafe { Box::from_raw(words[0] as *mut Plan) });
    Ok(())
}

fn multiply_by_plan(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    if words[1] == 0 {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: `new_plan` has written an object of this class. It does not end while this command runs, and does not
    // change: the library only reads descriptors.
    let plan = unsafe { &*(words[1] as *const Plan) };
    let operands = read(call, 2, |bytes| Operands::get(bytes, plan.mode))?;
    plan.multiply(words[0], words[3], &operands)
}

fn transform(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (handle, stream) = (words[0], words[2]);
    let of = read(call, 1, Transformation::get)?;
    let transform = host::transform()?;
    let operation = Made::new(Class::Transform, &of.operation, None)?;
    let mut layouts = [None, None, None];
    for (layout, of) in layouts.iter_mut().zip(&of.layouts) {
        if let Some(of) = of {
            *layout = Some(Made::new(Class::Layout, of, None)?);
        }
    }
    let raw = |layout: &Option<Made>| layout.as_ref().map_or(0, |layout| layout.raw);
    let ([a, b, c], [of_a, of_b, of_c]) = (of.matrices, layouts.each_ref().map(raw));
    let scalars = Scalars::new(of.scalars);
    let [alpha, beta] = scalars.addresses();
    let raw = operation.raw;
    // SAFETY: as for a product.
    done(unsafe { transform(handle, raw, alpha, a, of_a, beta, b, of_b, c, of_c, stream) })
}

fn find(call: &mut Call<'_>, handle: u64, stream: Option<u64>) -> Step<()> {
    let question = read(call, 1, Question::get)?;
    let parts = Parts::new(&question.descriptors)?;
    let preference = question.preference.as_ref();
    let preference = preference.map(|of| Made::new(Class::Preference, of, None));
    let preference = preference.transpose()?;
    let preference = preference.as_ref().map_or(0, |preference| preference.raw);
    let mut found = vec![Found([0; RESULT]); question.wanted];
    for (found, given) in found.iter_mut().zip(&question.given) {
        found.0[..ALGORITHM].copy_from_slice(given);
    }
    let (operation, [a, b, c, d]) = (parts.operation.raw, parts.layouts());
    let (wanted, results) = (question.wanted as i32, found.as_mut_ptr());
    let mut count = 0;
    // SAFETY: the handle, the stream and the descriptors are the library's own and live; there is room for as many
    // results as it may write.
    done(unsafe {
        match stream {
            None => {
                let find = host::find()?;
                find(
                    handle, operation, a, b, c, d, preference, wanted, results, &mut count,
                )
            }
            Some(stream) => {
                let find = host::find_for_stream()?;
                find(
                    handle, operation, a, b, c, d, preference, wanted, results, &mut count, stream,
                )
            }
        }
    })?;
    found.truncate(count.max(0) as usize);
    let bytes: Vec<u8> = found.iter().flat_map(|found| found.0).collect();
    give(call, 2, bytes);
    Ok(())
}

fn check(call: &mut Call<'_>, handle: u64, stream: Option<u64>) -> Step<()> {
    let question = read(call, 1, Check::get)?;
    let parts = Parts::new(&question.descriptors)?;
    let algorithm = Aside(question.algorithm);
    let algorithm: Address = (&raw const algorithm).cast();
    let mut found = Found([0; RESULT]);
    let (operation, [a, b, c, d]) = (parts.operation.raw, parts.layouts());
    // SAFETY: as for a heuristic; the algorithm is as many bytes as the library's are.
    done(unsafe {
        match stream {
            None => {
                let check = host::check()?;
                check(handle, operation, a, b, c, d, algorithm, &mut found)
            }
            Some(stream) => {
                let check = host::check_for_stream()?;
                check(handle, operation, a, b, c, d, algorithm, &mut found, stream)
            }
        }
    })?;
    give(call, 2, found.0.into());
    Ok(())
}

/// The value of an algorithm's attribute, of any length.
fn ask(call: &mut Call<'_>, number: u64, get: fn() -> Step<Gets>) -> Step<()> {
    let get = get()?;
    let algorithm = read(call, 0, |bytes| {
        bytes.try_into().map(Aside).map_err(|_| Malformed::Range)
    })?;
    let algorithm: Address = (&raw const algorithm).cast();
    let mut bytes = 0;
    // SAFETY: the algorithm is as many bytes as the library's are. Of no room it says how many bytes there are.
    done(unsafe {
        get(
            algorithm,
            number as u32,
            std::ptr::null_mut(),
            0,
            &mut bytes,
        )
    })?;
    if bytes > MAX_SETTING {
        return Err(status::NOT_SUPPORTED);
    }
    // Lists consist of words.
    let mut value = vec![0_u64; bytes.div_ceil(8)];
    let to = value.as_mut_ptr().cast();
    let mut written = 0;
    // SAFETY: as above; there is as much room.
    done(unsafe { get(algorithm, number as u32, to, bytes, &mut written) })?;
    let mut value: Vec<u8> = value.into_iter().flat_map(u64::to_le_bytes).collect();
    value.truncate(written.min(bytes));
    give(call, 2, value);
    Ok(())
}
