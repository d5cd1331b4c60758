// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Vectors, in both pointer modes, with all kinds of steps.

mod common;

use std::ffi::c_int;

use common::*;
use half::{bf16, f16};

/// A vector in device memory with steps between its elements, and its elements in BLAS's order.
struct Vector<T> {
    address: u64,
    step: c_int,
    values: Vec<C64>,
    all: Vec<T>,
}

const COUNT: usize = 11;
const N: c_int = COUNT as c_int;

impl<T: Number> Vector<T> {
    fn new(seed: u64, step: c_int) -> Self {
        let every = step.unsigned_abs() as usize;
        let all = numbers::<T>(seed, (COUNT - 1) * every + 1);
        let mut vector = Self {
            address: upload(&all),
            step,
            values: Vec::new(),
            all,
        };
        vector.values = vector.pick(&vector.all);
        vector
    }

    fn pick(&self, all: &[T]) -> Vec<C64> {
        let every = self.step.unsigned_abs() as usize;
        let mut values: Vec<_> = all.iter().step_by(every).map(|x| x.value()).collect();
        if self.step < 0 {
            values.reverse();
        }
        values
    }

    #[track_caller]
    fn assert_is(&self, expected: impl Fn(usize) -> C64, what: &str) {
        let all = download::<T>(self.address, self.all.len());
        for (i, found) in self.pick(&all).into_iter().enumerate() {
            assert_close(T::new(found), expected(i), what);
        }
        let every = self.step.unsigned_abs() as usize;
        for (i, (now, before)) in all.iter().zip(&self.all).enumerate() {
            assert!(i % every == 0 || now.value() == before.value(), "{what}");
        }
    }
}

fn updates<T: Number>() {
    let handle = handle();
    for (device, sx, sy) in [(false, 1, 1), (true, 2, -3), (false, -2, 1)] {
        on_device(handle, device);
        let alpha = T::new(C64::new(1.5, -0.5));
        let at = Scalar::new(alpha, device);
        let fresh = || (Vector::<T>::new(1, sx), Vector::<T>::new(2, sy));

        let (x, y) = fresh();
        ok!(&named::<T>("axpy_v2"); handle, N, at.at(), x.address, sx, y.address, sy);
        y.assert_is(|i| alpha.value() * x.values[i] + y.values[i], "axpy");

        let (x, y) = fresh();
        ok!(&named::<T>("axpy_v2_64"); handle, COUNT as i64, at.at(), x.address, i64::from(sx), y.address, i64::from(sy));
        y.assert_is(|i| alpha.value() * x.values[i] + y.values[i], "axpy_64");

        let (x, y) = fresh();
        ok!(&named::<T>("copy_v2"); handle, N, x.address, sx, y.address, sy);
        y.assert_is(|i| x.values[i], "copy");

        let (x, y) = fresh();
        ok!(&named::<T>("swap_v2"); handle, N, x.address, sx, y.address, sy);
        x.assert_is(|i| y.values[i], "swap");
        y.assert_is(|i| x.values[i], "swap");

        let (x, _) = fresh();
        ok!(&named::<T>("scal_v2"); handle, N, at.at(), x.address, sx);
        let factor = if sx > 0 {
            alpha.value()
        } else {
            C64::new(1.0, 0.0)
        };
        x.assert_is(|i| factor * x.values[i], "scal");
    }
}

fn answer<R: Number>(device: bool, f: impl FnOnce(u64)) -> R {
    if device {
        let at = upload(&[poison::<R>()]);
        f(at);
        return download::<R>(at, 1)[0];
    }
    let mut result = poison::<R>();
    f(&raw mut result as u64);
    result
}

fn results<T: Number, R: Number>(real_prefix: &str) {
    let handle = handle();
    for (device, sx, sy) in [(false, 1, 1), (true, 3, -2)] {
        on_device(handle, device);
        let (x, y) = (Vector::<T>::new(5, sx), Vector::<T>::new(6, sy));
        for (name, conjugate) in [("dot_v2", false), ("dotu_v2", false), ("dotc_v2", true)] {
            if T::COMPLEX == (name == "dot_v2") {
                continue;
            }
            let found = answer::<T>(device, |at| {
                ok!(&named::<T>(name); handle, N, x.address, sx, y.address, sy, at);
            });
            let pairs = x.values.iter().zip(&y.values);
            let sum = pairs
                .map(|(x, y)| if conjugate { x.conj() } else { *x } * y)
                .sum();
            assert_close(found, sum, name);
        }
        let real = |name: &str| {
            let name = format!("cublas{real_prefix}{name}_v2");
            answer::<R>(device, |at| ok!(&name; handle, N, x.address, sx, at))
        };
        let squares: f64 = x.values.iter().map(|x| x.norm_sqr()).sum();
        assert_close(real("nrm2"), squares.sqrt().into(), "nrm2");
        let sizes: Vec<f64> = x.values.iter().map(|x| x.l1_norm()).collect();
        assert_close(real("asum"), sizes.iter().sum::<f64>().into(), "asum");
        let letter = T::LETTER.to_lowercase();
        let extreme = |name: &str| {
            let found = answer::<i32>(device, |at| {
                ok!(&format!("cublasI{letter}{name}_v2"); handle, N, x.address, sx, at);
            });
            let index = answer::<i64>(device, |at| {
                ok!(&format!("cublasI{letter}{name}_v2_64"); handle, COUNT as i64, x.address, i64::from(sx), at);
            });
            assert_eq!(i64::from(found), index);
            found as usize - 1
        };
        let largest = sizes.iter().copied().fold(0.0, f64::max);
        let smallest = sizes.iter().copied().fold(f64::MAX, f64::min);
        let first = |size: f64| sizes.iter().position(|s| *s == size).unwrap();
        assert_eq!(extreme("amax"), first(largest));
        assert_eq!(extreme("amin"), first(smallest));
        let nothing = answer::<i32>(device, |at| {
            ok!(&format!("cublasI{letter}amax_v2"); handle, 0, x.address, sx, at);
        });
        assert_eq!(nothing, 0);
    }
}

impl Number for i64 {
    const LETTER: &str = "L";
    const COMPLEX: bool = false;
    const TOLERANCE: f64 = 0.0;
    fn new(value: C64) -> Self {
        value.re as i64
    }
    fn value(self) -> C64 {
        (self as f64).into()
    }
}

fn rotations<T: Number, S: Number, R: Number>(prefix: &str) {
    let handle = handle();
    for device in [false, true] {
        on_device(handle, device);
        let (x, y) = (Vector::<T>::new(7, 2), Vector::<T>::new(8, -1));
        let (c, s) = (R::new(C64::new(0.5, 0.0)), S::new(C64::new(0.25, 0.75)));
        let (at_c, at_s) = (Scalar::new(c, device), Scalar::new(s, device));
        ok!(&format!("cublas{prefix}rot_v2"); handle, N, x.address, 2, y.address, -1, at_c.at(), at_s.at());
        let (c, s) = (c.value(), s.value());
        x.assert_is(|i| c * x.values[i] + s * y.values[i], "rot");
        y.assert_is(|i| c * y.values[i] - s.conj() * x.values[i], "rot");
    }
}

#[test]
fn vectors_are_updated() {
    updates::<f32>();
    updates::<f64>();
    updates::<C32>();
    updates::<C64>();
    let handle = handle();
    let (x, factor) = (Vector::<C32>::new(9, 1), 2f32);
    ok!("cublasCsscal_v2"; handle, N, &factor, x.address, 1);
    x.assert_is(|i| 2.0 * x.values[i], "csscal");
    let (x, factor) = (Vector::<C64>::new(9, 1), 2f64);
    ok!("cublasZdscal_v2"; handle, N, &factor, x.address, 1);
    x.assert_is(|i| 2.0 * x.values[i], "zdscal");
}

#[test]
fn results_are_right_wherever_they_go() {
    results::<f32, f32>("S");
    results::<f64, f64>("D");
    results::<C32, f32>("Sc");
    results::<C64, f64>("Dz");
}

#[test]
fn planes_are_rotated() {
    rotations::<f32, f32, f32>("S");
    rotations::<f64, f64, f64>("D");
    rotations::<C32, C32, f32>("C");
    rotations::<C32, f32, f32>("Cs");
    rotations::<C64, C64, f64>("Z");
    rotations::<C64, f64, f64>("Zd");
}

#[test]
fn norms_neither_overflow_nor_underflow() {
    let handle = handle();
    for scale in [1e200f64, 1e-200] {
        let x = upload(&[3.0 * scale, 4.0 * scale]);
        let found = answer::<f64>(false, |at| ok!("cublasDnrm2_v2"; handle, 2, x, 1, at));
        assert!((found / scale - 5.0).abs() < 1e-12, "{found}");
    }
}

fn by_types<E: Number, S: Number, R: Number>([e, s, r]: [c_int; 3]) {
    let handle = handle();
    for device in [false, true] {
        on_device(handle, device);
        let (x, y) = (Vector::<E>::new(1, 1), Vector::<E>::new(2, 2));
        let alpha = S::new(C64::new(0.5, 1.0));
        let at = Scalar::new(alpha, device);
        ok!("cublasAxpyEx"; handle, N, at.at(), s, x.address, e, 1, y.address, e, 2, s);
        y.assert_is(|i| alpha.value() * x.values[i] + y.values[i], "AxpyEx");
        ok!("cublasScalEx"; handle, N, at.at(), s, x.address, e, 1, s);
        x.assert_is(|i| alpha.value() * x.values[i], "ScalEx");
        let (x, y) = (Vector::<E>::new(3, 1), Vector::<E>::new(4, 2));
        for (name, conjugate) in [("cublasDotEx", false), ("cublasDotcEx", true)] {
            let found = answer::<E>(device, |at| {
                ok!(name; handle, N, x.address, e, 1, y.address, e, 2, at, e, s);
            });
            let pairs = x.values.iter().zip(&y.values);
            let sum = pairs
                .map(|(x, y)| if conjugate { x.conj() } else { *x } * y)
                .sum();
            assert_close(found, sum, name);
        }
        let execution = if E::COMPLEX { r } else { s };
        let found = answer::<R>(device, |at| {
            ok!("cublasNrm2Ex"; handle, N, x.address, e, 1, at, r, execution);
        });
        let squares: f64 = x.values.iter().map(|x| x.norm_sqr()).sum();
        assert_close(found, squares.sqrt().into(), "Nrm2Ex");
        let refused = call!("cublasScalEx"; handle, N, at.at(), s, x.address, 3, 1, s);
        assert_eq!(refused, 15);
    }
}

#[test]
fn vectors_by_types() {
    by_types::<f16, f32, f16>([2, 0, 2]);
    by_types::<bf16, f32, bf16>([14, 0, 14]);
    by_types::<f32, f32, f32>([0, 0, 0]);
    by_types::<f64, f64, f64>([1, 1, 1]);
    by_types::<C32, C32, f32>([4, 4, 0]);
    by_types::<C64, C64, f64>([5, 5, 1]);
}
