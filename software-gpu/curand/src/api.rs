// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuRAND API, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// They are NVIDIA's, and documented there.
#![allow(missing_docs)]

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use gpgpu_stand_in::{call::Answer, driver::Name};
use rand_chacha::rand_core::Rng;
use rand_distr::Poisson;

use crate::generator::{Generator, RawGenerator, create, destroy, enter, enter_with};
use crate::numbers::{Place, normal, poisson, uniform, uniform_double};
use crate::types::{Result, Status};

/// 10.4.1, as `curand.h` counts.
const VERSION: [c_int; 3] = [10, 4, 1];

/// Dimensions of the tables of quasirandom sequences.
const DIMENSIONS: usize = 20_000;

/// Defines exported functions.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) $(|$generator:ident|)? $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> c_int {
            export!(@call $(($generator))? $body)
        }
    )*};
    (@call ($generator:ident) $body:block) => { enter_with($generator, |$generator| $body) };
    (@call $body:block) => { enter(|| $body) };
}

/// A table of words for a quasirandom sequence: always the same, and not NVIDIA's.
struct Table<T>(OnceLock<Vec<T>>);

impl<T: 'static> Table<T> {
    const fn new() -> Self {
        Self(OnceLock::new())
    }

    fn get(&'static self, seed: u64, count: usize, word: fn(&mut dyn Rng) -> T) -> *const c_void {
        let table = self.0.get_or_init(|| {
            let mut words = Place {
                seed,
                sequence: 0,
                taken: 0,
            }
            .words();
            (0..count).map(|_| word(&mut words)).collect()
        });
        table.as_ptr().cast()
    }
}

fn word(words: &mut dyn Rng) -> u32 {
    words.next_u32()
}

fn long_word(words: &mut dyn Rng) -> u64 {
    words.next_u64()
}

fn normals(
    generator: &Generator,
    out: *mut c_void,
    count: usize,
    made: impl Fn(f64) -> f32 + Clone + Send + 'static,
) -> Result {
    generator.generate(out as u64, count, 2, move |words| {
        let (one, other) = (uniform(words), uniform(words));
        normal(one.into(), other.into()).map(&made)
    })
}

fn normals_double(
    generator: &Generator,
    out: *mut c_void,
    count: usize,
    made: impl Fn(f64) -> f64 + Clone + Send + 'static,
) -> Result {
    generator.generate(out as u64, count, 4, move |words| {
        let (one, other) = (uniform_double(words), uniform_double(words));
        normal(one, other).map(&made)
    })
}

export! {
    /// Makes a generator of a type in the current context, or in the first device's primary one if there is none.
    fn curandCreateGenerator(out: Answer<RawGenerator>, kind: c_int) {
        if out.is_null() {
            return Err(Status::OutOfRange);
        }
        out.set(create(kind)?)
    }

    /// Waits for the generator's work and destroys the generator.
    fn curandDestroyGenerator(generator: RawGenerator) { destroy(generator) }

    /// The version as one number.
    fn curandGetVersion(version: Answer<c_int>) {
        version.set(VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn curandGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|p| VERSION.get(p));
        value.set(*part.ok_or(Status::OutOfRange)?)
    }

    fn curandSetStream(generator: RawGenerator, stream: *mut c_void) |generator| {
        generator.settings().stream = Name(stream);
        Ok(())
    }

    /// Takes the sequence of a seed. As with NVIDIA's library, the offset stays; a twister, which has none, begins.
    fn curandSetPseudoRandomGeneratorSeed(generator: RawGenerator, seed: u64) |generator| {
        let mut settings = generator.settings();
        settings.place.seed = seed;
        if !generator.has_offset() {
            settings.place.taken = 0;
        }
        Ok(())
    }

    /// Goes to a word of the sequence.
    fn curandSetGeneratorOffset(generator: RawGenerator, offset: u64) |generator| {
        if !generator.has_offset() {
            return Err(Status::TypeError);
        }
        generator.settings().place.taken = offset;
        Ok(())
    }

    /// The order of results, 100 to 104, which changes nothing here.
    fn curandSetGeneratorOrdering(generator: RawGenerator, ordering: c_int) |generator| {
        let _ = generator;
        match ordering {
            100..=104 => Ok(()),
            _ => Err(Status::OutOfRange),
        }
    }

    /// Is for quasirandom generators, which are not made here.
    fn curandSetQuasiRandomGeneratorDimensions(generator: RawGenerator, _dimensions: u32) |generator| {
        let _ = generator;
        Err(Status::TypeError)
    }

    /// There is nothing to prepare.
    fn curandGenerateSeeds(generator: RawGenerator) |generator| {
        let _ = generator;
        Ok(())
    }

    fn curandGenerate(generator: RawGenerator, out: *mut c_void, count: usize) |generator| {
        generator.generate(out as u64, count, 1, |words| [words.next_u32()])
    }

    fn curandGenerateUniform(generator: RawGenerator, out: *mut c_void, count: usize) |generator| {
        generator.generate(out as u64, count, 1, |words| [uniform(words)])
    }

    fn curandGenerateUniformDouble(generator: RawGenerator, out: *mut c_void, count: usize) |generator| {
        generator.generate(out as u64, count, 2, |words| [uniform_double(words)])
    }

    fn curandGenerateNormal(
        generator: RawGenerator, out: *mut c_void, count: usize, mean: f32, deviation: f32,
    ) |generator| {
        normals(generator, out, count, move |x| mean + deviation * x as f32)
    }

    fn curandGenerateNormalDouble(
        generator: RawGenerator, out: *mut c_void, count: usize, mean: f64, deviation: f64,
    ) |generator| {
        normals_double(generator, out, count, move |x| mean + deviation * x)
    }

    fn curandGenerateLogNormal(
        generator: RawGenerator, out: *mut c_void, count: usize, mean: f32, deviation: f32,
    ) |generator| {
        normals(generator, out, count, move |x| (mean + deviation * x as f32).exp())
    }

    fn curandGenerateLogNormalDouble(
        generator: RawGenerator, out: *mut c_void, count: usize, mean: f64, deviation: f64,
    ) |generator| {
        normals_double(generator, out, count, move |x| (mean + deviation * x).exp())
    }

    fn curandGeneratePoisson(generator: RawGenerator, out: *mut c_void, count: usize, lambda: f64) |generator| {
        let of = Poisson::new(lambda).map_err(|_| Status::OutOfRange)?;
        generator.generate(out as u64, count, 2, move |words| [poisson(words, &of)])
    }

    /// The address of the table of 32 words for each dimension, for sets 101 and 102.
    fn curandGetDirectionVectors32(vectors: Answer<*const c_void>, set: c_int) {
        static SETS: [Table<u32>; 2] = [Table::new(), Table::new()];
        let at = usize::try_from(set - 101).ok();
        let table = at.and_then(|at| SETS.get(at)).ok_or(Status::OutOfRange)?;
        vectors.set(table.get(set as u64, 32 * DIMENSIONS, word))
    }

    /// The same of 64 words, for sets 103 and 104.
    fn curandGetDirectionVectors64(vectors: Answer<*const c_void>, set: c_int) {
        static SETS: [Table<u64>; 2] = [Table::new(), Table::new()];
        let at = usize::try_from(set - 103).ok();
        let table = at.and_then(|at| SETS.get(at)).ok_or(Status::OutOfRange)?;
        vectors.set(table.get(set as u64, 64 * DIMENSIONS, long_word))
    }

    /// The address of the table of a word for each dimension.
    fn curandGetScrambleConstants32(constants: Answer<*const c_void>) {
        static TABLE: Table<u32> = Table::new();
        constants.set(TABLE.get(32, DIMENSIONS, word))
    }

    fn curandGetScrambleConstants64(constants: Answer<*const c_void>) {
        static TABLE: Table<u64> = Table::new();
        constants.set(TABLE.get(64, DIMENSIONS, long_word))
    }
}

/// Only the 64-bit quasirandom generators make 64-bit numbers.
#[unsafe(no_mangle)]
pub extern "C" fn curandGenerateLongLong(
    generator: RawGenerator,
    _out: *mut c_void,
    _count: usize,
) -> c_int {
    enter_with(generator, |_| Err(Status::TypeError))
}
