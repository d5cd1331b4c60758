// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuFFT's plans, and their GPU memory.
//!
//! A plan never allocates its work area: the guest provides it from its own memory, which is charged as such. The
//! library keeps a table of roots of unity for each dimension, and larger ones for sizes with large prime factors.
//! These are charged when a plan is made.

use gpgpu_protocol::{
    cuda::*,
    libraries::{Class, Kind, SUCCESS, call::Value},
};

use super::{ByHand, Call, Outcome};
use crate::worker::{charges::Owner, lease::current_gpu};

/// The size of a dimension's table for each element, in bytes: four complex numbers in double precision.
const ELEMENT_BYTES: u64 = 64;
/// The maximum number of elements of a table for a size that is a product of small primes: such a transform is computed
/// in steps.
const MOST_IN_STEPS: u64 = 1 << 16;
/// The largest of the small primes. A size with a larger prime factor is transformed by convolution (Bluestein's
/// algorithm), whose table is as long as the data.
const LARGEST_PRIME: u64 = 127;

pub const BY_HAND: &[(&str, ByHand)] = &[
    ("cufftCreate", create),
    ("cufftMakePlan1d", |call, words| make(call, words, 1..2)),
    ("cufftMakePlan2d", |call, words| make(call, words, 1..3)),
    ("cufftMakePlan3d", |call, words| make(call, words, 1..4)),
    ("cufftMakePlanMany", |call, words| make_many(call, words, 4)),
    ("cufftMakePlanMany64", |call, words| {
        make_many(call, words, 8)
    }),
    ("cufftXtMakePlanMany", |call, words| {
        make_many(call, words, 8)
    }),
];

/// Makes a plan that allocates no memory by itself.
fn create(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let status = call.call_library("cufftCreate", call.function.kinds, words);
    if status != SUCCESS {
        return Ok(status);
    }
    // SAFETY: the creator of an object passes a pointer to a word, in which the library has written the plan's number.
    let plan = unsafe { *(words[0] as *const u64) };
    let plan_of = Kind::Handle(Class::CufftPlan);
    let told = call.call_library("cufftSetAutoAllocation", &[plan_of, Kind::I32], &[plan, 0]);
    if told != SUCCESS {
        call.call_library("cufftDestroy", &[plan_of], &[plan]);
    }
    Ok(told)
}

/// Makes a transform whose sizes are these arguments.
fn make(call: &mut Call<'_>, words: &[u64], sizes: std::ops::Range<usize>) -> Outcome {
    let sizes = words[sizes].iter().map(|size| i64::from(*size as i32));
    make_charged(call, words, tables(sizes))
}

/// Makes a transform whose sizes are in an array of values of this width.
fn make_many(call: &mut Call<'_>, words: &[u64], width: usize) -> Outcome {
    let bytes = match call.values.get(2) {
        Some(Value::Bytes(bytes, _)) => tables(sizes(bytes, width)),
        _ => 0,
    };
    make_charged(call, words, bytes)
}

/// The sizes in an array of values of this width, 4 or 8.
fn sizes(of: &[u8], width: usize) -> impl Iterator<Item = i64> {
    of.chunks_exact(width).map(|size| match *size {
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]).into(),
        _ => {
            let mut word = [0; 8];
            word[..size.len()].copy_from_slice(size);
            i64::from_le_bytes(word)
        }
    })
}

/// The size of the tables for these sizes. The library refuses sizes that are not positive.
fn tables(sizes: impl Iterator<Item = i64>) -> u64 {
    let elements = sizes.map(|size| match u64::try_from(size) {
        Ok(size) if is_product_of_small(size) => size.min(MOST_IN_STEPS),
        Ok(size) => size,
        Err(_) => 0,
    });
    let elements = elements.fold(0, u64::saturating_add);
    elements.saturating_mul(ELEMENT_BYTES)
}

fn is_product_of_small(mut size: u64) -> bool {
    for prime in 2..=LARGEST_PRIME {
        while size != 0 && size.is_multiple_of(prime) {
            size /= prime;
        }
    }
    size <= 1
}

/// Makes a transform, and charges its tables to the plan.
fn make_charged(call: &mut Call<'_>, words: &[u64], bytes: u64) -> Outcome {
    let (session, plan) = (call.session, call.word(0));
    let context = session.objects.live_context_of(plan);
    let context = context.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let charge = session
        .device_memory
        .reserve(current_gpu()? as CUdevice, bytes)?;
    let function = call.function;
    let status = call.call_library(function.operation.name, function.kinds, words);
    if status == SUCCESS {
        // The library's memory remains allocated when a green context ends.
        let home = session.objects.home(context);
        session.charges.keep(Owner::Handle(plan), home, charge);
    }
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transform_is_charged_for_each_dimension() {
        let many = |of: &[i64]| tables(of.iter().copied());
        assert_eq!(many(&[8, 100]), 108 * ELEMENT_BYTES);
        assert_eq!(many(&[1 << 27]), MOST_IN_STEPS * ELEMENT_BYTES);
        // 131 is prime.
        assert_eq!(many(&[131 << 20]), (131 << 20) * ELEMENT_BYTES);
        assert_eq!(many(&[0, -1, i64::MIN]), 0);
        // The result saturates above any limit, and does not wrap around.
        assert_eq!(many(&[i64::MAX, i64::MAX, 3]), u64::MAX);
    }

    #[test]
    fn sizes_are_read_as_wide_as_they_are() {
        let read = |of: &[u8], width| sizes(of, width).collect::<Vec<_>>();
        let narrow = [8_i32, -3].map(i32::to_le_bytes).concat();
        assert_eq!(read(&narrow, 4), [8, -3]);
        let wide = [1_i64 << 40, -3].map(i64::to_le_bytes).concat();
        assert_eq!(read(&wide, 8), [1 << 40, -3]);
    }
}
