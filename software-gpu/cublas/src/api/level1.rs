// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Level 1: vectors.

use num_complex::ComplexFloat;

use crate::handle::{Answer, Argument, Handle};
use crate::number::{C32, C64, Field, Index, Load, Number, Store};
use crate::types::Result;
use gpgpu_stand_in::memory::{Plain, Vector};

use super::{family, vector};

/// `y = alpha x + y`.
pub fn axpy<N: Number, S: Load<N>, E: Store<N>>(
    handle: &Handle,
    alpha: Argument<S>,
    x: Vector,
    y: Vector,
) -> Result {
    let alpha = handle.scalar(alpha)?;
    if y.count <= 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let alpha = alpha.get(&memory)?.load();
        if alpha.is_nothing() {
            return Ok(());
        }
        let mut sums = memory.vector::<E>(y)?;
        for (sum, x) in sums.iter_mut().zip(memory.vector::<E>(x)?) {
            *sum = E::store(alpha * x.load() + sum.load());
        }
        memory.set_vector(y, &sums)
    })
}

/// `x = alpha x`.
pub fn scal<N: Number, S: Load<N>, E: Store<N>>(
    handle: &Handle,
    alpha: Argument<S>,
    x: Vector,
) -> Result {
    let alpha = handle.scalar(alpha)?;
    if x.count <= 0 || x.step <= 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let alpha = alpha.get(&memory)?.load();
        let mut values = memory.vector::<E>(x)?;
        values
            .iter_mut()
            .for_each(|x| *x = E::store(alpha * x.load()));
        memory.set_vector(x, &values)
    })
}

fn scal_real<N: Field>(handle: &Handle, alpha: Argument<N::Real>, x: Vector) -> Result {
    let alpha = handle.scalar(alpha)?;
    if x.count <= 0 || x.step <= 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let alpha = alpha.get(&memory)?;
        let mut values = memory.vector::<N>(x)?;
        values.iter_mut().for_each(|x| *x = x.scaled(alpha));
        memory.set_vector(x, &values)
    })
}

fn copy<T: Plain>(handle: &Handle, x: Vector, y: Vector) -> Result {
    if x.count <= 0 {
        return Ok(());
    }
    handle.run(move |memory| memory.set_vector(y, &memory.vector::<T>(x)?))
}

fn swap<T: Plain>(handle: &Handle, x: Vector, y: Vector) -> Result {
    if x.count <= 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let (old_x, old_y) = (memory.vector::<T>(x)?, memory.vector::<T>(y)?);
        memory.set_vector(x, &old_y)?;
        memory.set_vector(y, &old_x)
    })
}

/// The sum of `x` times `y`; `x` may be conjugated.
pub fn dot<N: Number, E: Store<N>>(
    handle: &Handle,
    conjugate: bool,
    x: Vector,
    y: Vector,
    result: Answer<E>,
) -> Result {
    handle.answer(result, move |memory| {
        let mut sum = N::default();
        let pairs = memory.vector::<E>(x)?.into_iter().zip(memory.vector(y)?);
        for (x, y) in pairs {
            let (x, y): (N, N) = (x.load(), E::load(y));
            sum += if conjugate { x.conjugate() } else { x } * y;
        }
        Ok(E::store(sum))
    })
}

/// The length of a vector whose parts are these, without overflow.
fn length(parts: impl Iterator<Item = f64> + Clone) -> f64 {
    let sum: f64 = parts.clone().map(|x| x * x).sum();
    if sum.is_nan() || sum.is_normal() && sum > 1e-290 {
        return sum.sqrt();
    }
    let largest = parts.clone().fold(0.0, |a, x| f64::max(a, x.abs()));
    if largest == 0.0 || largest.is_infinite() {
        return largest;
    }
    let scaled: f64 = parts.map(|x| (x / largest).powi(2)).sum();
    largest * scaled.sqrt()
}

/// The Euclidean norm. As in all functions below, the result is zero without elements or with a step that is not
/// positive.
pub fn nrm2<N: Field, E: Load<N>, R: Store<N::Real>>(
    handle: &Handle,
    x: Vector,
    result: Answer<R>,
) -> Result
where
    N::Real: Field<Real = N::Real>,
{
    handle.answer(result, move |memory| {
        let x = forwards(x);
        let values = memory.vector::<E>(x)?;
        let parts = values.iter().flat_map(|x| {
            let number: N = x.load();
            [number.re().into(), number.im().into()]
        });
        Ok(R::store(N::round(length(parts))))
    })
}

fn forwards(x: Vector) -> Vector {
    let count = if x.step > 0 { x.count } else { 0 };
    Vector { count, ..x }
}

fn asum<N: Field>(handle: &Handle, x: Vector, result: Answer<N::Real>) -> Result {
    handle.answer(result, move |memory| {
        let values = memory.vector::<N>(forwards(x))?;
        let sizes = values.iter().map(|x| -> f64 { x.l1_norm().into() });
        Ok(N::round(sizes.sum()))
    })
}

/// The index of the first element that is better than all others, counted from one.
fn best<N: Field, I: Index>(
    handle: &Handle,
    x: Vector,
    result: Answer<I>,
    is_better: fn(f64, f64) -> bool,
) -> Result {
    handle.answer(result, move |memory| {
        let values = memory.vector::<N>(forwards(x))?;
        let mut found: Option<(usize, f64)> = None;
        for (i, x) in values.iter().enumerate() {
            let size = x.l1_norm().into();
            if found.is_none_or(|(_, best)| is_better(size, best)) {
                found = Some((i + 1, size));
            }
        }
        Ok(I::index(found.map_or(0, |(i, _)| i)))
    })
}

/// `x = c x + s y`, `y = c y - conj(s) x`.
fn rot<N: Field, S: Plain + Into<N>>(
    handle: &Handle,
    x: Vector,
    y: Vector,
    c: Argument<N::Real>,
    s: Argument<S>,
) -> Result {
    let (c, s) = (handle.scalar(c)?, handle.scalar(s)?);
    if x.count <= 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let c = c.get(&memory)?;
        let s: N = s.get(&memory)?.into();
        let (mut xs, mut ys) = (memory.vector::<N>(x)?, memory.vector::<N>(y)?);
        for (x, y) in xs.iter_mut().zip(&mut ys) {
            (*x, *y) = (x.scaled(c) + s * *y, y.scaled(c) - s.conjugate() * *x);
        }
        memory.set_vector(x, &xs)?;
        memory.set_vector(y, &ys)
    })
}

family! {
    [cublasSaxpy_v2 f32, cublasDaxpy_v2 f64, cublasCaxpy_v2 C32, cublasZaxpy_v2 C64]
    (n: Int, alpha: Argument<T>, x: *const T, incx: Int, y: *mut T, incy: Int) |handle| {
        axpy::<T, T, T>(handle, alpha, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()))
    }

    [cublasSscal_v2 f32, cublasDscal_v2 f64, cublasCscal_v2 C32, cublasZscal_v2 C64]
    (n: Int, alpha: Argument<T>, x: *mut T, incx: Int) |handle| {
        scal::<T, T, T>(handle, alpha, vector(x, n.into(), incx.into()))
    }

    [cublasCsscal_v2 C32: f32, cublasZdscal_v2 C64: f64]
    (n: Int, alpha: Argument<S>, x: *mut T, incx: Int) |handle| {
        scal_real::<T>(handle, alpha, vector(x, n.into(), incx.into()))
    }

    [cublasScopy_v2 f32, cublasDcopy_v2 f64, cublasCcopy_v2 C32, cublasZcopy_v2 C64]
    (n: Int, x: *const T, incx: Int, y: *mut T, incy: Int) |handle| {
        copy::<T>(handle, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()))
    }

    [cublasSswap_v2 f32, cublasDswap_v2 f64, cublasCswap_v2 C32, cublasZswap_v2 C64]
    (n: Int, x: *mut T, incx: Int, y: *mut T, incy: Int) |handle| {
        swap::<T>(handle, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()))
    }

    [cublasSdot_v2 f32, cublasDdot_v2 f64, cublasCdotu_v2 C32, cublasZdotu_v2 C64]
    (n: Int, x: *const T, incx: Int, y: *const T, incy: Int, result: Answer<T>) |handle| {
        dot::<T, T>(handle, false, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()), result)
    }

    [cublasCdotc_v2 C32, cublasZdotc_v2 C64]
    (n: Int, x: *const T, incx: Int, y: *const T, incy: Int, result: Answer<T>) |handle| {
        dot::<T, T>(handle, true, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()), result)
    }

    [cublasSnrm2_v2 f32: f32, cublasDnrm2_v2 f64: f64, cublasScnrm2_v2 C32: f32, cublasDznrm2_v2 C64: f64]
    (n: Int, x: *const T, incx: Int, result: Answer<S>) |handle| {
        nrm2::<T, T, S>(handle, vector(x, n.into(), incx.into()), result)
    }

    [cublasSasum_v2 f32: f32, cublasDasum_v2 f64: f64, cublasScasum_v2 C32: f32, cublasDzasum_v2 C64: f64]
    (n: Int, x: *const T, incx: Int, result: Answer<S>) |handle| {
        asum::<T>(handle, vector(x, n.into(), incx.into()), result)
    }

    [cublasIsamax_v2 f32, cublasIdamax_v2 f64, cublasIcamax_v2 C32, cublasIzamax_v2 C64]
    (n: Int, x: *const T, incx: Int, result: Answer<Int>) |handle| {
        best::<T, Int>(handle, vector(x, n.into(), incx.into()), result, |new, old| new > old)
    }

    [cublasIsamin_v2 f32, cublasIdamin_v2 f64, cublasIcamin_v2 C32, cublasIzamin_v2 C64]
    (n: Int, x: *const T, incx: Int, result: Answer<Int>) |handle| {
        best::<T, Int>(handle, vector(x, n.into(), incx.into()), result, |new, old| new < old)
    }

    [
        cublasSrot_v2 f32: f32, cublasDrot_v2 f64: f64, cublasCrot_v2 C32: C32, cublasZrot_v2 C64: C64,
        cublasCsrot_v2 C32: f32, cublasZdrot_v2 C64: f64,
    ]
    (n: Int, x: *mut T, incx: Int, y: *mut T, incy: Int, c: Argument<<T as ComplexFloat>::Real>, s: Argument<S>) |handle| {
        rot::<T, S>(handle, vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()), c, s)
    }
}
