// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Generators: numbers of settings.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use crate::numbers::{Place, Words};
use crate::types::{Result, Status};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome, Plain, Vector},
    objects::Objects,
    work::Work,
};

/// A `curandGenerator_t`.
pub type RawGenerator = *mut c_void;

/// The settings of a generator.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// The position of its sequence.
    pub place: Place,
}

/// A generator's object.
pub struct Generator {
    work: Work,
    kind: c_int,
    settings: Mutex<Settings>,
}

// As handles of the stand-in for cuBLAS: no addresses.
static GENERATORS: Objects<Generator> = Objects::new(0xC0A4_0000_0000_0000, 16);

/// Makes a generator of a type in the current context.
pub fn create(kind: c_int) -> Result<RawGenerator> {
    let kind = match kind {
        100 => 101,
        101 | 121 | 141 | 142 | 161 => kind,
        // Quasirandom ones are not made here.
        _ => return Err(Status::TypeError),
    };
    let generator = Generator {
        work: Work::here().ok_or(Status::InitializationFailed)?,
        kind,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            place: Place {
                seed: 0,
                sequence: kind as u64,
                taken: 0,
            },
        }),
    };
    Ok(GENERATORS.add(generator) as RawGenerator)
}

/// Destroys a generator after its work has ended.
pub fn destroy(name: RawGenerator) -> Result {
    let generator = GENERATORS.remove(name as usize);
    let generator = generator.ok_or(Status::NotInitialized)?;
    let stream = generator.settings().stream;
    generator.work.wait(stream);
    Ok(())
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// The same for a function that takes a generator.
pub fn enter_with(name: RawGenerator, f: impl FnOnce(&Generator) -> Result) -> c_int {
    enter(|| {
        let generator = GENERATORS.find(name as usize);
        f(&*generator.ok_or(Status::NotInitialized)?)
    })
}

/// The number of numbers that work makes before it writes them.
const PIECE: usize = 1 << 16;

impl Generator {
    /// The settings, to read or change.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    /// Whether an offset can be set: not for the twisters.
    pub fn has_offset(&self) -> bool {
        !matches!(self.kind, 141 | 142)
    }

    /// Queues work in the generator's stream that writes `count` numbers. Each call of `make` returns `N` of them, made
    /// from `words` words.
    pub fn generate<T: Plain, const N: usize>(
        &self,
        address: u64,
        count: usize,
        words: u64,
        make: impl Fn(&mut Words) -> [T; N] + Clone + Send + 'static,
    ) -> Result {
        if count == 0 {
            return Ok(());
        }
        if address == 0 {
            return Err(Status::OutOfRange);
        }
        if !count.is_multiple_of(N) {
            return Err(Status::LengthNotMultiple);
        }
        let all = i64::try_from(count).map_err(|_| Status::OutOfRange)?;
        let mut settings = self.settings();
        let mut from = settings.place.words();
        let taken = ((count / N) as u64).wrapping_mul(words);
        settings.place.taken = settings.place.taken.wrapping_add(taken);
        let stream = settings.stream;
        drop(settings);
        let work = move |memory: Memory| -> Outcome {
            let vector = |address, count| Vector {
                address,
                count,
                step: 1,
            };
            memory.check_vector::<T>(vector(address, all))?;
            let (mut at, mut left) = (address, count);
            while left > 0 {
                let now = left.min(PIECE);
                let values: Vec<T> = (0..now / N).flat_map(|_| make(&mut from)).collect();
                memory.set_vector(vector(at, now as i64), &values)?;
                at += (now * size_of::<T>()) as u64;
                left -= now;
            }
            Ok(())
        };
        let queued = self.work.queue(stream, false, work);
        queued.map_err(|_| Status::LaunchFailure)
    }
}
