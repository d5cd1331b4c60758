// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! General products: single ones, with an array of pointers, or with a stride.

use std::ffi::{c_int, c_longlong};

use half::f16;

use crate::dense::{Dense, blend};
use crate::handle::{Argument, Handle};
use crate::number::{C32, C64, Load, Number, Store};
use crate::types::{Operation, Result, Status};
use gpgpu_stand_in::memory::{Matrix, Memory, Outcome, Vector};

use super::{family, matrix, require};

/// The addresses of the matrices of one operand.
#[derive(Debug, Clone, Copy)]
pub enum Places {
    /// From an address on, with this distance in elements.
    Strided(u64, i64),
    /// From an array of addresses in device memory.
    Array(u64),
}

impl Places {
    /// One matrix at `address`.
    pub fn one<T>(address: *const T) -> Self {
        Self::Strided(address as u64, 0)
    }

    /// Matrices from `address` on, `stride` elements apart.
    pub fn strided<T>(address: *const T, stride: i64) -> Self {
        Self::Strided(address as u64, stride)
    }

    /// Matrices at the addresses in an array.
    pub fn array<T>(address: *const *const T) -> Self {
        Self::Array(address as u64)
    }

    /// Whether it is NULL.
    fn is_null(self) -> bool {
        matches!(self, Self::Strided(0, _) | Self::Array(0))
    }

    // Reads the array, if there is one.
    fn read(self, memory: &Memory, count: i64) -> Outcome<Vec<u64>> {
        match self {
            Self::Strided(..) => Ok(Vec::new()),
            Self::Array(address) => memory.vector(Vector {
                address,
                count,
                step: 1,
            }),
        }
    }

    // The address of the i-th matrix, whose elements have `size` bytes.
    fn at(self, array: &[u64], i: i64, size: usize) -> u64 {
        match self {
            Self::Strided(first, stride) => {
                first.wrapping_add_signed(stride.wrapping_mul(size as i64).wrapping_mul(i))
            }
            Self::Array(_) => array[i as usize],
        }
    }
}

/// One operand: where its matrices are, and from one column to the next.
pub type Operand = (Places, i64);

/// Products to compute: `c = alpha op(a) op(b) + beta c`.
#[derive(Debug, Clone, Copy)]
pub struct Products {
    operations: [Operation; 2],
    shape: [i64; 3],
    count: i64,
    places: [Places; 3],
    // Of one product, without addresses.
    matrices: [Matrix; 3],
}

impl Products {
    /// Products from a function's arguments; `shape` is m, n and k.
    ///
    /// # Errors
    /// `InvalidValue` for a number that is negative or no operation, and for columns that overlap.
    pub fn new(
        operations: [c_int; 2],
        shape: [i64; 3],
        [a, b, c]: [Operand; 3],
        count: i64,
    ) -> Result<Self> {
        let [m, n, k] = shape;
        let operations = [
            Operation::new(operations[0])?,
            Operation::new(operations[1])?,
        ];
        require(m >= 0 && n >= 0 && k >= 0 && count >= 0)?;
        let nowhere = std::ptr::null::<u8>();
        let matrices = [
            matrix(nowhere, operations[0].stored(m, k), a.1)?,
            matrix(nowhere, operations[1].stored(k, n), b.1)?,
            matrix(nowhere, (m, n), c.1)?,
        ];
        Ok(Self {
            operations,
            shape,
            count,
            places: [a.0, b.0, c.0],
            matrices,
        })
    }

    /// Whether an integer product is possible: words of four values in `a` and `b`.
    pub fn has_whole_words(&self) -> bool {
        let is_whole = |i: usize| {
            let at_words = match self.places[i] {
                Places::Strided(address, stride) => address.is_multiple_of(4) && stride % 4 == 0,
                // The array is read when the work runs.
                Places::Array(_) => true,
            };
            at_words && self.matrices[i].leading % 4 == 0
        };
        is_whole(0) && is_whole(1)
    }

    /// Computes them in the handle's stream: `A` is the type of `a` and `b`, `C` that of `c`, and `S` that of the
    /// scalars.
    pub fn run<N: Number, S: Load<N>, A: Load<N>, C: Store<N>>(
        self,
        handle: &Handle,
        alpha: Argument<S>,
        beta: Argument<S>,
    ) -> Result {
        let (alpha, beta) = (handle.scalar(alpha)?, handle.scalar(beta)?);
        let [m, n, _] = self.shape;
        if m == 0 || n == 0 || self.count == 0 {
            return Ok(());
        }
        if self.places[2].is_null() {
            return Err(Status::InvalidValue);
        }
        handle.run(move |memory| {
            let (alpha, beta) = (alpha.get(&memory)?.load(), beta.get(&memory)?.load());
            let needs_product = self.shape[2] > 0 && !alpha.is_nothing();
            let [in_a, in_b, in_c] = self.places;
            let outputs = in_c.read(&memory, self.count)?;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            if needs_product {
                (a, b) = (
                    in_a.read(&memory, self.count)?,
                    in_b.read(&memory, self.count)?,
                );
            }
            for i in 0..self.count {
                let input = needs_product.then(|| {
                    (
                        in_a.at(&a, i, size_of::<A>()),
                        in_b.at(&b, i, size_of::<A>()),
                    )
                });
                let output = in_c.at(&outputs, i, size_of::<C>());
                self.one::<N, A, C>(&memory, input, output, alpha, beta)?;
            }
            Ok(())
        })
    }

    fn one<N: Number, A: Load<N>, C: Store<N>>(
        &self,
        memory: &Memory,
        input: Option<(u64, u64)>,
        output: u64,
        alpha: N,
        beta: N,
    ) -> Outcome {
        let place = |i: usize, address| Matrix {
            address,
            ..self.matrices[i]
        };
        let read = |i: usize, address| -> Outcome<Dense<N>> {
            Ok(Dense::read::<A>(memory, place(i, address))?.apply(self.operations[i]))
        };
        let c = place(2, output);
        memory.check_matrix::<C>(c)?;
        let product = match input {
            Some((a, b)) => read(0, a)?.times(&read(1, b)?),
            None => Dense::new(c.rows as usize, c.columns as usize, |_, _| N::default()),
        };
        let values: Vec<C> = if beta.is_nothing() {
            let new = product.data.into_iter();
            new.map(|x| C::store(alpha * x)).collect()
        } else {
            let old = memory.matrix::<C>(c)?;
            let pairs = product.data.into_iter().zip(old);
            pairs
                .map(|(x, old)| C::store(blend(alpha, x, beta, old.load())))
                .collect()
        };
        memory.set_matrix(c, &values, |_, _| true)
    }
}

// The second type of each is the type of the computation.
family! {
    [cublasSgemm_v2 f32: f32, cublasDgemm_v2 f64: f64, cublasCgemm_v2 C32: C32, cublasZgemm_v2 C64: C64, cublasHgemm f16: f32]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const T, lda: Int,
        b: *const T, ldb: Int, beta: Argument<T>, c: *mut T, ldc: Int,
    ) |handle| {
        let operands = [(Places::one(a), lda.into()), (Places::one(b), ldb.into()), (Places::one(c), ldc.into())];
        Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, 1)?
            .run::<S, T, T, T>(handle, alpha, beta)
    }

    [
        cublasSgemmBatched f32: f32, cublasDgemmBatched f64: f64, cublasCgemmBatched C32: C32, cublasZgemmBatched C64: C64,
        cublasHgemmBatched f16: f32,
    ]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const *const T, lda: Int,
        b: *const *const T, ldb: Int, beta: Argument<T>, c: *const *const T, ldc: Int, count: Int,
    ) |handle| {
        let operands = [(Places::array(a), lda.into()), (Places::array(b), ldb.into()), (Places::array(c), ldc.into())];
        Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, count.into())?
            .run::<S, T, T, T>(handle, alpha, beta)
    }

    [
        cublasSgemmStridedBatched f32: f32, cublasDgemmStridedBatched f64: f64, cublasCgemmStridedBatched C32: C32,
        cublasZgemmStridedBatched C64: C64, cublasHgemmStridedBatched f16: f32,
    ]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const T, lda: Int, stride_a: c_longlong,
        b: *const T, ldb: Int, stride_b: c_longlong, beta: Argument<T>, c: *mut T, ldc: Int, stride_c: c_longlong, count: Int,
    ) |handle| {
        let operands = [
            (Places::strided(a, stride_a), lda.into()),
            (Places::strided(b, stride_b), ldb.into()),
            (Places::strided(c, stride_c), ldc.into()),
        ];
        Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, count.into())?
            .run::<S, T, T, T>(handle, alpha, beta)
    }
}
