// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The cuFFT API, every function under NVIDIA's own name. Integers replace C's enumerations.
#![allow(non_snake_case)]
// They are NVIDIA's, and documented there.
#![allow(missing_docs)]
// cuFFT's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

use std::ffi::{c_int, c_void};

use gpgpu_stand_in::{
    call::{Answer, Argument},
    driver::Name,
};

use crate::layout::{Embedding, Shape};
use crate::plan::{Made, Plan, RawPlan, create, destroy, enter, enter_with};
use crate::types::{Result, Status, Type};

/// 12.1.0, as `cufft.h` counts.
const VERSION: [c_int; 3] = [12, 1, 0];

/// Defines exported functions.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) $(|$plan:ident|)? $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> c_int {
            export!(@call $(($plan))? $body)
        }
    )*};
    (@call ($plan:ident) $body:block) => { enter_with($plan, |$plan| $body) };
    (@call $body:block) => { enter(|| $body) };
}

/// A transform whose elements lie one after the other.
fn basic(sizes: &[c_int], kind: c_int, batch: c_int) -> Result<Made> {
    let sizes: Vec<i64> = sizes.iter().map(|size| (*size).into()).collect();
    Made::new(Shape::new(&sizes, batch.into())?, Type::new(kind)?, None)
}

/// A caller's description of one side: the sizes that it is embedded in, or NULL, a stride and a distance.
type Side<I> = (Argument<I>, I, I);

fn count(rank: c_int) -> Result<usize> {
    match rank {
        1..=3 => Ok(rank as usize),
        _ => Err(Status::InvalidValue),
    }
}

/// A transform from the arguments of the functions for batches. If the sizes of either side are NULL, both sides have
/// the basic layout.
fn many<I: gpgpu_stand_in::memory::Plain + Into<i64>>(
    rank: c_int,
    sizes: Argument<I>,
    [input, output]: [Side<I>; 2],
    kind: Type,
    batch: I,
) -> Result<Made> {
    // NVIDIA's library reads the first size even if there is none.
    std::hint::black_box(sizes.get::<Status>()?);
    let rank = count(rank)?;
    let wide = |of: Argument<I>| -> Result<Vec<i64>> {
        let values: Vec<I> = of.array::<Status>(rank)?;
        Ok(values.into_iter().map(Into::into).collect())
    };
    let embed = |(sizes, stride, distance): Side<I>| -> Result<Embedding> {
        Ok(Embedding {
            sizes: wide(sizes)?,
            stride: stride.into(),
            distance: distance.into(),
        })
    };
    let shape = Shape::new(&wide(sizes)?, batch.into())?;
    let is_basic = input.0.is_null() || output.0.is_null();
    let embeddings = match is_basic {
        true => None,
        false => Some((embed(input)?, embed(output)?)),
    };
    Made::new(shape, kind, embeddings)
}

/// Makes a plan with a transform.
fn plan(out: Answer<RawPlan>, made: Result<Made>) -> Result {
    let made = made?;
    if out.is_null() {
        return Err(Status::InvalidValue);
    }
    let name = create()?;
    make(name, |plan| plan.make(made).map(|_| ()))?;
    out.set(name)
}

fn make(name: RawPlan, f: impl FnOnce(&Plan) -> Result) -> Result {
    match enter_with(name, f) {
        0 => Ok(()),
        _ => Err(Status::InternalError),
    }
}

export! {
    /// Makes a plan without a transform.
    fn cufftCreate(out: Answer<RawPlan>) {
        if out.is_null() {
            return Err(Status::InvalidValue);
        }
        out.set(create()?)
    }

    /// Waits for the plan's work and destroys the plan.
    fn cufftDestroy(plan: RawPlan) { destroy(plan) }

    /// The version as one number.
    fn cufftGetVersion(version: Answer<c_int>) {
        version.set(VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cufftGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|p| VERSION.get(p));
        value.set(*part.ok_or(Status::InvalidValue)?)
    }

    fn cufftPlan1d(out: Answer<RawPlan>, nx: c_int, kind: c_int, batch: c_int) {
        plan(out, basic(&[nx], kind, batch))
    }

    fn cufftPlan2d(out: Answer<RawPlan>, nx: c_int, ny: c_int, kind: c_int) {
        plan(out, basic(&[nx, ny], kind, 1))
    }

    fn cufftPlan3d(out: Answer<RawPlan>, nx: c_int, ny: c_int, nz: c_int, kind: c_int) {
        plan(out, basic(&[nx, ny, nz], kind, 1))
    }

    fn cufftPlanMany(
        out: Answer<RawPlan>, rank: c_int, n: Argument<c_int>,
        inembed: Argument<c_int>, istride: c_int, idist: c_int,
        onembed: Argument<c_int>, ostride: c_int, odist: c_int, kind: c_int, batch: c_int,
    ) {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        plan(out, many(rank, n, sides, Type::new(kind)?, batch))
    }

    fn cufftMakePlan1d(plan: RawPlan, nx: c_int, kind: c_int, batch: c_int, size: Answer<usize>) |plan| {
        size.set(plan.make(basic(&[nx], kind, batch)?)?)
    }

    fn cufftMakePlan2d(plan: RawPlan, nx: c_int, ny: c_int, kind: c_int, size: Answer<usize>) |plan| {
        size.set(plan.make(basic(&[nx, ny], kind, 1)?)?)
    }

    fn cufftMakePlan3d(plan: RawPlan, nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: Answer<usize>) |plan| {
        size.set(plan.make(basic(&[nx, ny, nz], kind, 1)?)?)
    }

    fn cufftMakePlanMany(
        plan: RawPlan, rank: c_int, n: Argument<c_int>,
        inembed: Argument<c_int>, istride: c_int, idist: c_int,
        onembed: Argument<c_int>, ostride: c_int, odist: c_int, kind: c_int, batch: c_int, size: Answer<usize>,
    ) |plan| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        size.set(plan.make(many(rank, n, sides, Type::new(kind)?, batch)?)?)
    }

    fn cufftMakePlanMany64(
        plan: RawPlan, rank: c_int, n: Argument<i64>,
        inembed: Argument<i64>, istride: i64, idist: i64,
        onembed: Argument<i64>, ostride: i64, odist: i64, kind: c_int, batch: i64, size: Answer<usize>,
    ) |plan| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        size.set(plan.make(many(rank, n, sides, Type::new(kind)?, batch)?)?)
    }

    fn cufftXtMakePlanMany(
        plan: RawPlan, rank: c_int, n: Argument<i64>,
        inembed: Argument<i64>, istride: i64, idist: i64, input: c_int,
        onembed: Argument<i64>, ostride: i64, odist: i64, output: c_int, batch: i64,
        size: Answer<usize>, arithmetic: c_int,
    ) |plan| {
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        let kind = Type::of_data(input, output, arithmetic)?;
        size.set(plan.make(many(rank, n, sides, kind, batch)?)?)
    }

    fn cufftGetSize1d(plan: RawPlan, nx: c_int, kind: c_int, batch: c_int, size: Answer<usize>) |plan| {
        let _ = plan;
        size.set(basic(&[nx], kind, batch)?.work_size())
    }

    fn cufftGetSize2d(plan: RawPlan, nx: c_int, ny: c_int, kind: c_int, size: Answer<usize>) |plan| {
        let _ = plan;
        size.set(basic(&[nx, ny], kind, 1)?.work_size())
    }

    fn cufftGetSize3d(plan: RawPlan, nx: c_int, ny: c_int, nz: c_int, kind: c_int, size: Answer<usize>) |plan| {
        let _ = plan;
        size.set(basic(&[nx, ny, nz], kind, 1)?.work_size())
    }

    fn cufftGetSizeMany(
        plan: RawPlan, rank: c_int, n: Argument<c_int>,
        inembed: Argument<c_int>, istride: c_int, idist: c_int,
        onembed: Argument<c_int>, ostride: c_int, odist: c_int, kind: c_int, batch: c_int, size: Answer<usize>,
    ) |plan| {
        let _ = plan;
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        size.set(many(rank, n, sides, Type::new(kind)?, batch)?.work_size())
    }

    fn cufftGetSizeMany64(
        plan: RawPlan, rank: c_int, n: Argument<i64>,
        inembed: Argument<i64>, istride: i64, idist: i64,
        onembed: Argument<i64>, ostride: i64, odist: i64, kind: c_int, batch: i64, size: Answer<usize>,
    ) |plan| {
        let _ = plan;
        let sides = [(inembed, istride, idist), (onembed, ostride, odist)];
        size.set(many(rank, n, sides, Type::new(kind)?, batch)?.work_size())
    }

    /// The work area that the plan needs.
    fn cufftGetSize(plan: RawPlan, size: Answer<usize>) |plan| {
        let made = plan.settings().made.clone();
        size.set(made.ok_or(Status::InvalidPlan)?.work_size())
    }

    /// Sets whether the plan allocates its work area itself; must be called before its transform is set.
    fn cufftSetAutoAllocation(plan: RawPlan, allocates: c_int) |plan| {
        let mut settings = plan.settings();
        if settings.made.is_some() || !matches!(allocates, 0 | 1) {
            return Err(Status::InvalidValue);
        }
        settings.allocates = allocates == 1;
        Ok(())
    }

    /// The work area of the plan's transforms from here on.
    fn cufftSetWorkArea(plan: RawPlan, area: *mut c_void) |plan| {
        plan.settings().area = (!area.is_null()).then_some(area as u64);
        Ok(())
    }

    /// The stream of the plan's work.
    fn cufftSetStream(plan: RawPlan, stream: *mut c_void) |plan| {
        plan.settings().stream = Name(stream);
        Ok(())
    }

    /// Sets a property, 1 to 4, which changes nothing here.
    fn cufftSetPlanPropertyInt64(plan: RawPlan, property: c_int, value: i64) |plan| {
        let mut settings = plan.settings();
        let place = usize::try_from(property - 1).ok();
        let place = place.and_then(|at| settings.properties.get_mut(at));
        *place.ok_or(Status::InvalidValue)? = value;
        Ok(())
    }

    fn cufftGetPlanPropertyInt64(plan: RawPlan, property: c_int, value: Answer<i64>) |plan| {
        let settings = plan.settings();
        let place = usize::try_from(property - 1).ok();
        let place = place.and_then(|at| settings.properties.get(at));
        value.set(*place.ok_or(Status::InvalidValue)?)
    }

    fn cufftExecC2C(plan: RawPlan, input: *mut c_void, output: *mut c_void, direction: c_int) |plan| {
        plan.execute(Some(Type::new(0x29)?), input as u64, output as u64, direction)
    }

    fn cufftExecR2C(plan: RawPlan, input: *mut c_void, output: *mut c_void) |plan| {
        plan.execute(Some(Type::new(0x2a)?), input as u64, output as u64, -1)
    }

    fn cufftExecC2R(plan: RawPlan, input: *mut c_void, output: *mut c_void) |plan| {
        plan.execute(Some(Type::new(0x2c)?), input as u64, output as u64, 1)
    }

    fn cufftExecZ2Z(plan: RawPlan, input: *mut c_void, output: *mut c_void, direction: c_int) |plan| {
        plan.execute(Some(Type::new(0x69)?), input as u64, output as u64, direction)
    }

    fn cufftExecD2Z(plan: RawPlan, input: *mut c_void, output: *mut c_void) |plan| {
        plan.execute(Some(Type::new(0x6a)?), input as u64, output as u64, -1)
    }

    fn cufftExecZ2D(plan: RawPlan, input: *mut c_void, output: *mut c_void) |plan| {
        plan.execute(Some(Type::new(0x6c)?), input as u64, output as u64, 1)
    }

    fn cufftXtExec(plan: RawPlan, input: *mut c_void, output: *mut c_void, direction: c_int) |plan| {
        plan.execute(None, input as u64, output as u64, direction)
    }
}
