// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products with an epilogue.

use std::ffi::{c_int, c_void};

use half::{bf16, f16};

use gpgpu_stand_in::call::Argument;
use gpgpu_stand_in::driver::Name;
use gpgpu_stand_in::memory::{Matrix, Memory, Outcome, Scalar, Vector};

use crate::dense::{Dense, blend};
use crate::handle::{Handle, RawHandle, enter_with};
use crate::number::{Integer, Load, Number, Store};
use crate::types::data::{R_8I, R_16BF, R_16F, R_32F, R_32I, R_64F};
use crate::types::{Compute, Operation, Result, Status};

use super::algorithm::Algorithm;
use super::descriptor::{Class, Descriptor, Raw, read};
use super::{on_device, scalar};

/// The layout of a matrix, or of a batch of them, in memory.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The type of its elements (`cudaDataType_t`).
    pub data: c_int,
    by_rows: bool,
    rows: i64,
    columns: i64,
    leading: i64,
    count: i64,
    stride: i64,
}

impl Layout {
    /// A layout from its descriptor.
    ///
    /// # Errors
    /// `InvalidValue` if rows or columns overlap, `NotSupported` for orders and batches of other kinds.
    pub fn new(raw: Raw) -> Result<Self> {
        let of = read(Class::Layout, raw)?;
        if of.get(1) > 1 || !of.has_no_other(&[0, 1, 2, 3, 4, 5, 6]) {
            return Err(Status::NotSupported);
        }
        let layout = Self {
            data: of.int(0) as c_int,
            by_rows: of.get(1) == 1,
            rows: of.int(2),
            columns: of.int(3),
            leading: of.int(4),
            count: of.int(5),
            stride: of.int(6),
        };
        let (inner, outer) = layout.stored();
        let is_good = inner > 0 && outer > 0 && layout.leading >= inner && layout.count > 0;
        match is_good {
            true => Ok(layout),
            false => Err(Status::InvalidValue),
        }
    }

    // Its shape in column-major order.
    fn stored(&self) -> (i64, i64) {
        match self.by_rows {
            true => (self.columns, self.rows),
            false => (self.rows, self.columns),
        }
    }

    /// Its shape after an operation.
    pub fn shape(&self, operation: Operation) -> (i64, i64) {
        operation.stored(self.rows, self.columns)
    }

    /// The number of matrices.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// The i-th matrix, as columns one after the other, whose elements have `size` bytes.
    fn at(&self, address: u64, i: i64, size: usize) -> Matrix {
        let (rows, columns) = self.stored();
        let distance = self.stride.wrapping_mul(i).wrapping_mul(size as i64);
        Matrix {
            address: address.wrapping_add_signed(distance),
            rows,
            columns,
            leading: self.leading,
        }
    }

    /// Reads the i-th matrix, after an operation.
    pub fn read<N: Number, T: Load<N>>(
        &self,
        memory: &Memory,
        address: u64,
        i: i64,
        operation: Operation,
    ) -> Outcome<Dense<N>> {
        let read = Dense::read::<T>(memory, self.at(address, i, size_of::<T>()))?;
        let read = match self.by_rows {
            true => read.apply(Operation::Transpose),
            false => read,
        };
        Ok(read.apply(operation))
    }

    /// Checks that the i-th matrix can be written.
    pub fn check<N: Number, T: Store<N>>(&self, memory: &Memory, address: u64, i: i64) -> Outcome {
        memory.check_matrix::<T>(self.at(address, i, size_of::<T>()))
    }

    /// Writes the i-th matrix.
    pub fn write<N: Number, T: Store<N>>(
        &self,
        memory: &Memory,
        address: u64,
        i: i64,
        matrix: Dense<N>,
    ) -> Outcome {
        let stored = match self.by_rows {
            true => matrix.apply(Operation::Transpose),
            false => matrix,
        };
        let values: Vec<T> = stored.data.into_iter().map(T::store).collect();
        memory.set_matrix(self.at(address, i, size_of::<T>()), &values, |_, _| true)
    }
}

/// The epilogue of a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activation {
    None,
    Relu,
    Gelu,
}

/// A number to which an epilogue can be applied.
trait Activate: Number {
    fn activate(self, by: Activation) -> Self;
}

macro_rules! activate {
    ($($t:ident),*) => {$(
        impl Activate for $t {
            fn activate(self, by: Activation) -> Self {
                match by {
                    Activation::None => self,
                    Activation::Relu => self.max(0.0),
                    // With the hyperbolic tangent, as cuBLASLt documents.
                    Activation::Gelu => {
                        let inner = self + 0.044715 * self * self * self;
                        0.5 * self * (1.0 + (std::$t::consts::FRAC_2_PI.sqrt() * inner).tanh())
                    }
                }
            }
        }
    )*};
}
activate!(f32, f64);

impl Activate for Integer {
    fn activate(self, by: Activation) -> Self {
        match by {
            Activation::Relu => self.max(Self::default()),
            _ => self,
        }
    }
}

/// The supported combinations of types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Types {
    Half,
    HalfToHalf,
    HalfToSingle,
    BrainToBrain,
    BrainToSingle,
    Single,
    Double,
    Integer,
}

impl Types {
    fn new(compute: c_int, scale: c_int, [a, b, c, d]: [c_int; 4]) -> Result<Self> {
        use Compute::{Double, Half, Integer, Single, SingleOnly, Tf32};
        if a != b || c != d {
            return Err(Status::NotSupported);
        }
        Ok(match (Compute::new(compute)?, scale, a, c) {
            (Half, R_16F, R_16F, R_16F) => Self::Half,
            (Single, R_32F, R_16F, R_16F) => Self::HalfToHalf,
            (Single, R_32F, R_16F, R_32F) => Self::HalfToSingle,
            (Single, R_32F, R_16BF, R_16BF) => Self::BrainToBrain,
            (Single, R_32F, R_16BF, R_32F) => Self::BrainToSingle,
            (Single | SingleOnly | Tf32, R_32F, R_32F, R_32F) => Self::Single,
            (Double, R_64F, R_64F, R_64F) => Self::Double,
            (Integer, R_32I, R_8I, R_32I) => Self::Integer,
            _ => return Err(Status::NotSupported),
        })
    }
}

/// Checks that products of these types can be computed.
///
/// # Errors
/// `NotSupported` if they cannot, `InvalidValue` if a type is invalid.
pub fn check_types(compute: c_int, scale: c_int, data: [c_int; 4]) -> Result {
    Types::new(compute, scale, data).map(drop)
}

/// A product, without addresses except those of its descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    types: Types,
    operations: [Operation; 2],
    layouts: [Layout; 4],
    on_device: bool,
    bias: Option<(u64, i64)>,
    activation: Activation,
}

impl Product {
    /// A product from its descriptors.
    ///
    /// # Errors
    /// `InvalidValue` if the matrices do not fit each other, `NotSupported` for an unsupported combination.
    pub fn new(operation: Raw, layouts: [Raw; 4]) -> Result<Self> {
        let of = read(Class::Operation, operation)?;
        let mut made = [Layout::new(layouts[0])?; 4];
        for (to, raw) in made.iter_mut().zip(layouts) {
            *to = Layout::new(raw)?;
        }
        let int = |number| of.int(number) as c_int;
        let operations = [Operation::new(int(3))?, Operation::new(int(4))?];
        let (m, k) = made[0].shape(operations[0]);
        let (inner, n) = made[1].shape(operations[1]);
        let fits = inner == k && made[2..].iter().all(|of| (of.rows, of.columns) == (m, n));
        if !fits || made.iter().any(|of| of.count != made[3].count) {
            return Err(Status::InvalidValue);
        }
        // The attributes that have no effect here: the target number of multiprocessors, and the permission of inexact
        // sums.
        if !of.has_no_other(&[0, 1, 2, 3, 4, 7, 8, 10, 15, 25, 26]) {
            return Err(Status::NotSupported);
        }
        let data = made.map(|of| of.data);
        let (bias, activation) = epilogue(&of, data[3])?;
        let types = Types::new(int(0), int(1), data)?;
        if types == Types::Integer && (bias.is_some() || activation == Activation::Gelu) {
            return Err(Status::NotSupported);
        }
        Ok(Self {
            types,
            operations,
            layouts: made,
            on_device: on_device(of.get(2))?,
            bias,
            activation,
        })
    }

    fn queue(
        self,
        handle: &Handle,
        stream: Name,
        scalars: [Argument<c_void>; 2],
        at: [u64; 4],
    ) -> Result {
        macro_rules! queue {
            ($n:ty, $s:ty, $a:ty, $c:ty) => {{
                let [alpha, beta] = scalars.map(|of| scalar(of.cast::<$s>(), self.on_device));
                let (alpha, beta) = (alpha?, beta?);
                handle.run_in(stream, move |memory| {
                    self.run::<$n, $s, $a, $c>(&memory, [alpha, beta], at)
                })
            }};
        }
        match self.types {
            Types::Half => queue!(f32, f16, f16, f16),
            Types::HalfToHalf => queue!(f32, f32, f16, f16),
            Types::HalfToSingle => queue!(f32, f32, f16, f32),
            Types::BrainToBrain => queue!(f32, f32, bf16, bf16),
            Types::BrainToSingle => queue!(f32, f32, bf16, f32),
            Types::Single => queue!(f32, f32, f32, f32),
            Types::Double => queue!(f64, f64, f64, f64),
            Types::Integer => queue!(Integer, Integer, i8, Integer),
        }
    }

    fn run<N: Activate, S: Load<N>, A: Load<N>, C: Store<N>>(
        &self,
        memory: &Memory,
        scalars: [Scalar<S>; 2],
        at: [u64; 4],
    ) -> Outcome {
        let alpha = scalars[0].get(memory)?.load();
        let beta = scalars[1].get(memory)?.load();
        let [a, b, c, d] = self.layouts;
        for i in 0..d.count {
            d.check::<N, C>(memory, at[3], i)?;
            let left = a.read::<N, A>(memory, at[0], i, self.operations[0])?;
            let right = b.read::<N, A>(memory, at[1], i, self.operations[1])?;
            let mut sums = left.times(&right);
            let old = match beta.is_nothing() {
                true => None,
                false => Some(c.read::<N, C>(memory, at[2], i, Operation::None)?),
            };
            let bias = self.read_bias::<N, C>(memory, sums.rows, i)?;
            let rows = sums.rows;
            for (place, sum) in sums.data.iter_mut().enumerate() {
                let old = old.as_ref().map_or(N::default(), |old| old.data[place]);
                let mut value = blend(alpha, *sum, beta, old);
                if let Some(bias) = &bias {
                    value += bias[place % rows];
                }
                *sum = value.activate(self.activation);
            }
            d.write::<N, C>(memory, at[3], i, sums)?;
        }
        Ok(())
    }

    fn read_bias<N: Number, C: Store<N>>(
        &self,
        memory: &Memory,
        rows: usize,
        i: i64,
    ) -> Outcome<Option<Vec<N>>> {
        let Some((first, stride)) = self.bias else {
            return Ok(None);
        };
        let distance = stride.wrapping_mul(i).wrapping_mul(size_of::<C>() as i64);
        let vector = Vector {
            address: first.wrapping_add_signed(distance),
            count: rows as i64,
            step: 1,
        };
        let read = memory.vector::<C>(vector)?;
        Ok(Some(read.into_iter().map(C::load).collect()))
    }
}

// The bias's address and stride, and the activation, of a product whose result has elements of a type.
fn epilogue(of: &Descriptor, data: c_int) -> Result<(Option<(u64, i64)>, Activation)> {
    const RELU: u64 = 2;
    const BIAS: u64 = 4;
    const GELU: u64 = 32;
    let epilogue = of.get(7);
    let activation = match epilogue & !BIAS {
        0 if epilogue == BIAS => Activation::None,
        1 if epilogue == 1 => Activation::None,
        RELU => Activation::Relu,
        GELU => Activation::Gelu,
        _ => return Err(Status::NotSupported),
    };
    if epilogue & BIAS == 0 {
        return Ok((None, activation));
    }
    let is_like_result = [-1, data.into()].contains(&of.int(26));
    match (is_like_result, of.get(8)) {
        (false, _) => Err(Status::NotSupported),
        (true, 0) => Err(Status::InvalidValue),
        (true, address) => Ok((Some((address, of.int(10))), activation)),
    }
}

/// Queues a product in a stream. The algorithm may be NULL, but must not be invalid.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: RawHandle,
    operation: Raw,
    alpha: Argument<c_void>,
    a: u64,
    a_layout: Raw,
    b: u64,
    b_layout: Raw,
    beta: Argument<c_void>,
    c: u64,
    c_layout: Raw,
    d: u64,
    d_layout: Raw,
    algorithm: Argument<Algorithm>,
    _workspace: u64,
    _workspace_bytes: usize,
    stream: *mut c_void,
) -> c_int {
    enter_with(handle, |handle| {
        let layouts = [a_layout, b_layout, c_layout, d_layout];
        let product = Product::new(operation, layouts)?;
        if !algorithm.is_null() {
            // NVIDIA's library returns the same status for other bytes.
            let checked = algorithm.get::<Status>()?.check();
            checked.map_err(|_| Status::NotSupported)?;
        }
        // C may be missing if beta is zero, which is known only when the work runs.
        if [a, b, d].contains(&0) {
            return Err(Status::InvalidValue);
        }
        product.queue(handle, Name(stream), [alpha, beta], [a, b, c, d])
    })
}
