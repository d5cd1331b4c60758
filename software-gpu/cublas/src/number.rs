// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Numbers as they are stored in memory, and as they are computed with.

use std::num::Wrapping;
use std::ops::{Add, AddAssign, Mul};

use gpgpu_stand_in::memory::Plain;
use half::{bf16, f16};
use matrixmultiply::CGemmOption;
use num_complex::{Complex, ComplexFloat};

/// Two `f32`.
pub type C32 = Complex<f32>;
/// Two `f64`.
pub type C64 = Complex<f64>;

/// A number that matrices can be multiplied of.
pub trait Number:
    Plain + Default + PartialEq + Add<Output = Self> + Mul<Output = Self> + AddAssign
{
    /// The complex conjugate; itself if real.
    fn conjugate(self) -> Self;

    /// The product of an `m` by `k` and a `k` by `n` matrix, columns one after the other.
    fn product(a: &[Self], b: &[Self], shape: [usize; 3]) -> Vec<Self>;

    /// Whether it is zero.
    fn is_nothing(self) -> bool {
        self == Self::default()
    }
}

// The matrices must have the number of elements that the shape says, because the function to which their addresses are
// passed relies on it.
fn check<T>(a: &[T], b: &[T], [m, n, k]: [usize; 3]) {
    assert!(a.len() == m * k && b.len() == k * n);
}

macro_rules! real {
    ($($t:ty, $gemm:ident);*) => {$(
        impl Number for $t {
            fn conjugate(self) -> Self {
                self
            }

            fn product(a: &[Self], b: &[Self], shape: [usize; 3]) -> Vec<Self> {
                check(a, b, shape);
                let [m, n, k] = shape;
                let mut c = vec![Self::default(); m * n];
                let (one, zero) = (Self::from(1u8), Self::from(0u8));
                // SAFETY: the matrices have as many elements as the shape says, and `c` is no other's.
                unsafe {
                    matrixmultiply::$gemm(
                        m, k, n, one, a.as_ptr(), 1, m as isize, b.as_ptr(), 1, k as isize,
                        zero, c.as_mut_ptr(), 1, m as isize,
                    );
                }
                c
            }
        }
    )*};
}
real!(f32, sgemm; f64, dgemm);

macro_rules! complex {
    ($($t:ty, $gemm:ident);*) => {$(
        impl Number for Complex<$t> {
            fn conjugate(self) -> Self {
                self.conj()
            }

            fn product(a: &[Self], b: &[Self], shape: [usize; 3]) -> Vec<Self> {
                check(a, b, shape);
                let [m, n, k] = shape;
                let mut c = vec![Self::default(); m * n];
                let (one, zero) = ([1.0, 0.0], [0.0, 0.0]);
                let kind = CGemmOption::Standard;
                // SAFETY: as for real numbers; a complex number has the layout of an array of two.
                unsafe {
                    matrixmultiply::$gemm(
                        kind, kind, m, k, n, one, a.as_ptr().cast(), 1, m as isize,
                        b.as_ptr().cast(), 1, k as isize, zero, c.as_mut_ptr().cast(), 1, m as isize,
                    );
                }
                c
            }
        }
    )*};
}
complex!(f32, cgemm; f64, zgemm);

impl Number for Wrapping<i32> {
    fn conjugate(self) -> Self {
        self
    }

    fn product(a: &[Self], b: &[Self], shape: [usize; 3]) -> Vec<Self> {
        check(a, b, shape);
        let [m, _, k] = shape;
        let mut c = vec![Self::default(); m * shape[1]];
        if m == 0 || k == 0 {
            return c;
        }
        for (c, b) in c.chunks_exact_mut(m).zip(b.chunks_exact(k)) {
            for (a, factor) in a.chunks_exact(m).zip(b) {
                c.iter_mut().zip(a).for_each(|(c, a)| *c += *a * *factor);
            }
        }
        c
    }
}

/// A number of levels 1 to 3: real or complex, single or double.
pub trait Field:
    Number + ComplexFloat<Real: Number + ComplexFloat<Real = Self::Real> + Into<f64>>
{
    /// A real number as one of these.
    fn real(value: Self::Real) -> Self;
    /// The product with a real number, which leaves infinities unchanged.
    fn scaled(self, by: Self::Real) -> Self;
    /// A real number from one of double precision, rounded.
    fn round(value: f64) -> Self::Real;
}

macro_rules! field {
    ($($t:ident),*) => {$(
        impl Field for $t {
            fn real(value: $t) -> Self {
                value
            }
            fn scaled(self, by: $t) -> Self {
                self * by
            }
            fn round(value: f64) -> $t {
                value as $t
            }
        }
        impl Field for Complex<$t> {
            fn real(value: $t) -> Self {
                value.into()
            }
            fn scaled(self, by: $t) -> Self {
                self * by
            }
            fn round(value: f64) -> $t {
                value as $t
            }
        }
    )*};
}
field!(f32, f64);

/// The type in memory of values that are computed as `N`.
pub trait Load<N>: Plain {
    /// The number.
    fn load(self) -> N;
}

/// The value in memory for an `N`.
pub trait Store<N>: Load<N> {
    /// The number, rounded.
    fn store(number: N) -> Self;
}

impl<N: Number> Load<N> for N {
    fn load(self) -> N {
        self
    }
}

impl<N: Number> Store<N> for N {
    fn store(number: N) -> Self {
        number
    }
}

macro_rules! small {
    ($($t:ty),*) => {$(
        impl Load<f32> for $t {
            fn load(self) -> f32 {
                self.to_f32()
            }
        }
        impl Store<f32> for $t {
            fn store(number: f32) -> Self {
                Self::from_f32(number)
            }
        }
    )*};
}
small!(f16, bf16);

/// An `f32` in memory that is rounded to TF32, with 10 bits of its fraction, before use.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Tf32(f32);

// SAFETY: it is an `f32`.
unsafe impl Plain for Tf32 {}

impl Load<f32> for Tf32 {
    fn load(self) -> f32 {
        if !self.0.is_finite() {
            return self.0;
        }
        // To nearest, ties away from zero, as the conversion `cvt.rna.tf32.f32` does.
        f32::from_bits((self.0.to_bits() + (1 << 12)) & !((1 << 13) - 1))
    }
}

impl Load<f32> for i8 {
    fn load(self) -> f32 {
        self.into()
    }
}

impl Load<Wrapping<i32>> for i8 {
    fn load(self) -> Wrapping<i32> {
        Wrapping(self.into())
    }
}

impl Load<C32> for Complex<i8> {
    fn load(self) -> C32 {
        C32::new(self.re.into(), self.im.into())
    }
}

/// An index as BLAS counts: from one, in the width of the function's other integers.
pub trait Index: Plain {
    /// The number as an index.
    fn index(value: usize) -> Self;
}

impl Index for i32 {
    fn index(value: usize) -> Self {
        value as Self
    }
}

impl Index for i64 {
    fn index(value: usize) -> Self {
        value as Self
    }
}

/// 32-bit integers, which wrap around as the device's do.
pub type Integer = Wrapping<i32>;
