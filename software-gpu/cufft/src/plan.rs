// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Plans: numbers of settings.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome, Plain},
    objects::Objects,
    work::Work,
};
use num_complex::Complex;
use rustfft::{FftDirection, FftNum};

use crate::layout::{Embedding, Layout, Shape, sides};
use crate::transform;
use crate::types::{Direction, Result, Status, Type};

/// A `cufftHandle`.
pub type RawPlan = c_int;

/// The transform of a plan.
#[derive(Debug, Clone)]
pub struct Made {
    shape: Shape,
    kind: Type,
    /// The caller's description of either side, if given.
    embedded: Option<(Layout, Layout)>,
}

impl Made {
    /// A transform of a shape, with its data as a caller embeds it or one element after the other.
    pub fn new(
        shape: Shape,
        kind: Type,
        embeddings: Option<(Embedding, Embedding)>,
    ) -> Result<Self> {
        let embedded = embeddings.map(|(input, output)| -> Result<_> {
            let (of_input, of_output) = sides(&shape, kind.direction);
            Ok((
                Layout::embedded(of_input, &input, shape.batch)?,
                Layout::embedded(of_output, &output, shape.batch)?,
            ))
        });
        let embedded = embedded.transpose()?;
        Ok(Self {
            shape,
            kind,
            embedded,
        })
    }

    /// The bytes that NVIDIA's library would need besides the data; here they are only checked to exist.
    pub fn work_size(&self) -> usize {
        let number = if self.kind.is_double { 16 } else { 8 };
        (self.shape.count() * self.shape.batch as usize * number).next_multiple_of(256)
    }

    fn layouts(&self, in_place: bool) -> Result<(Layout, Layout)> {
        if let Some(both) = &self.embedded {
            return Ok(both.clone());
        }
        let (input, output) = sides(&self.shape, self.kind.direction);
        let pads = |direction| in_place && self.kind.direction == direction;
        Ok((
            Layout::basic(input, pads(Direction::FromReal), self.shape.batch)?,
            Layout::basic(output, pads(Direction::ToReal), self.shape.batch)?,
        ))
    }
}

/// The settings of a plan.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// Whether the plan is to get a work area by itself.
    pub allocates: bool,
    /// The work area that the caller gave it.
    pub area: Option<u64>,
    /// Properties by their numbers, 1 to 4.
    pub properties: [i64; 4],
    /// Its transform, once it is set.
    pub made: Option<Arc<Made>>,
}

/// A plan's object.
pub struct Plan {
    work: Work,
    settings: Mutex<Settings>,
}

static PLANS: Objects<Plan> = Objects::new(0, 1);

/// Makes a plan in the current context, without a transform.
pub fn create() -> Result<RawPlan> {
    let plan = Plan {
        work: Work::here().ok_or(Status::SetupFailed)?,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            allocates: true,
            area: None,
            properties: [0, 1, 0, 0],
            made: None,
        }),
    };
    RawPlan::try_from(PLANS.add(plan)).map_err(|_| Status::InternalError)
}

/// Destroys a plan after its work has ended.
pub fn destroy(name: RawPlan) -> Result {
    let number = usize::try_from(name).map_err(|_| Status::InvalidPlan)?;
    let plan = PLANS.remove(number).ok_or(Status::InvalidPlan)?;
    let stream = plan.settings().stream;
    plan.work.wait(stream);
    Ok(())
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// The same for a function that takes a plan.
pub fn enter_with(name: RawPlan, f: impl FnOnce(&Plan) -> Result) -> c_int {
    enter(|| {
        let number = usize::try_from(name).map_err(|_| Status::InvalidPlan)?;
        let plan = PLANS.find(number).ok_or(Status::InvalidPlan)?;
        f(&plan)
    })
}

/// The addresses of a call's data, and the direction.
#[derive(Debug, Clone, Copy)]
struct Data {
    input: u64,
    output: u64,
    direction: FftDirection,
}

/// Computes all transforms of a plan.
fn compute<T: FftNum + Plain>(memory: &Memory, made: &Made, data: Data) -> Outcome
where
    Complex<T>: Plain,
{
    let layouts = made.layouts(data.input == data.output);
    let (input, output) = layouts.map_err(|_| gpgpu_stand_in::driver::UNKNOWN)?;
    let shape = &made.shape;
    for of in 0..shape.batch {
        let (from, to) = (input.places(of), output.places(of));
        let (room, length) = (input.length(), output.length());
        match made.kind.direction {
            Direction::Complex => {
                let mut values = memory.gather::<Complex<T>>(data.input, room, from)?;
                transform::complex(shape, data.direction, &mut values);
                memory.scatter(data.output, length, to, &values)?;
            }
            Direction::FromReal => {
                let values = memory.gather::<T>(data.input, room, from)?;
                let values = transform::from_real(shape, &values);
                memory.scatter(data.output, length, to, &values)?;
            }
            Direction::ToReal => {
                let values = memory.gather::<Complex<T>>(data.input, room, from)?;
                let values = transform::to_real(shape, &values);
                memory.scatter(data.output, length, to, &values)?;
            }
        }
    }
    Ok(())
}

impl Plan {
    /// The settings, to read or change.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    /// Sets the plan's transform. A plan has one transform for ever.
    pub fn make(&self, made: Made) -> Result<usize> {
        let mut settings = self.settings();
        if settings.made.is_some() {
            return Err(Status::InvalidPlan);
        }
        let size = made.work_size();
        settings.made = Some(Arc::new(made));
        Ok(size)
    }

    /// Queues the plan's transforms in its stream. `kind` is the type that the function is for, if it is for one;
    /// `direction` is `CUFFT_FORWARD`, -1, or `CUFFT_INVERSE`, 1.
    pub fn execute(&self, kind: Option<Type>, input: u64, output: u64, direction: c_int) -> Result {
        let settings = self.settings().clone();
        let made = settings.made.ok_or(Status::InvalidPlan)?;
        if kind.is_some_and(|kind| kind != made.kind) {
            return Err(Status::InvalidType);
        }
        if input == 0 || output == 0 || !matches!(direction, -1 | 1) {
            return Err(Status::InvalidValue);
        }
        if !settings.allocates && settings.area.is_none() {
            return Err(Status::NoWorkspace);
        }
        let data = Data {
            input,
            output,
            direction: match direction {
                -1 => FftDirection::Forward,
                _ => FftDirection::Inverse,
            },
        };
        let work = move |memory: Memory| {
            // An area that is invalid or overlaps the data is visible in the result.
            if let Some(area) = settings.area {
                memory.fill(area, made.work_size(), 0xa5)?;
            }
            match made.kind.is_double {
                false => compute::<f32>(&memory, &made, data),
                true => compute::<f64>(&memory, &made, data),
            }
        };
        let queued = self.work.queue(settings.stream, false, work);
        queued.map_err(|_| Status::ExecFailed)
    }
}
