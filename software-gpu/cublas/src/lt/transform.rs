// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of matrices, transposed and in another order.

use std::ffi::{c_int, c_void};

use half::{bf16, f16};

use gpgpu_stand_in::call::Argument;
use gpgpu_stand_in::driver::Name;
use gpgpu_stand_in::memory::{Memory, Outcome, Scalar};

use crate::dense::Dense;
use crate::handle::{RawHandle, enter_with};
use crate::number::{Load, Number, Store};
use crate::types::data::{R_16BF, R_16F, R_32F, R_64F};
use crate::types::{Operation, Result, Status};

use super::descriptor::{Class, Raw, read};
use super::product::Layout;
use super::{on_device, scalar};

/// An input matrix: its place, its layout, and the operation on it.
#[derive(Debug, Clone, Copy)]
struct Input {
    address: u64,
    layout: Layout,
    operation: Operation,
}

impl Input {
    fn new(address: u64, layout: Raw, operation: i64) -> Result<Option<Self>> {
        if address == 0 {
            return Ok(None);
        }
        Ok(Some(Self {
            address,
            layout: Layout::new(layout)?,
            operation: Operation::new(operation as c_int)?,
        }))
    }

    fn fits(&self, output: &Layout) -> bool {
        let shape = self.layout.shape(self.operation);
        shape == output.shape(Operation::None) && self.layout.count() == output.count()
    }
}

fn run<N: Number, T: Store<N> + Load<N>>(
    memory: &Memory,
    inputs: [Option<Input>; 2],
    scalars: [Scalar<N>; 2],
    output: (u64, Layout),
) -> Outcome {
    let (address, layout) = output;
    let (rows, columns) = layout.shape(Operation::None);
    for i in 0..layout.count() {
        layout.check::<N, T>(memory, address, i)?;
        let mut sums = Dense::new(rows as usize, columns as usize, |_, _| N::default());
        for (input, factor) in inputs.iter().zip(&scalars) {
            let factor = factor.get(memory)?;
            let Some(input) = input.filter(|_| !factor.is_nothing()) else {
                continue;
            };
            let read = input
                .layout
                .read::<N, T>(memory, input.address, i, input.operation)?;
            for (sum, value) in sums.data.iter_mut().zip(read.data) {
                *sum += factor * value;
            }
        }
        layout.write::<N, T>(memory, address, i, sums)?;
    }
    Ok(())
}

/// Queues a copy in a stream: the sum of two matrices, each of which may be missing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixTransform(
    handle: RawHandle,
    operation: Raw,
    alpha: Argument<c_void>,
    a: u64,
    a_layout: Raw,
    beta: Argument<c_void>,
    b: u64,
    b_layout: Raw,
    c: u64,
    c_layout: Raw,
    stream: *mut c_void,
) -> c_int {
    enter_with(handle, |handle| {
        let of = read(Class::Transform, operation)?;
        let inputs = [
            Input::new(a, a_layout, of.int(2))?,
            Input::new(b, b_layout, of.int(3))?,
        ];
        let output = Layout::new(c_layout)?;
        let fits = inputs.iter().flatten().all(|input| input.fits(&output));
        if !fits || c == 0 {
            return Err(Status::InvalidValue);
        }
        let data = output.data;
        if inputs
            .iter()
            .flatten()
            .any(|input| input.layout.data != data)
        {
            return Err(Status::NotSupported);
        }
        let on_device = on_device(of.get(1))?;
        macro_rules! queue {
            ($n:ty, $t:ty) => {{
                let alpha = scalar(alpha.cast::<$n>(), on_device)?;
                let beta = scalar(beta.cast::<$n>(), on_device)?;
                handle.run_in(Name(stream), move |memory| {
                    run::<$n, $t>(&memory, inputs, [alpha, beta], (c, output))
                })
            }};
        }
        match (of.int(0) as c_int, data) {
            (R_32F, R_32F) => queue!(f32, f32),
            (R_32F, R_16F) => queue!(f32, f16),
            (R_32F, R_16BF) => queue!(f32, bf16),
            (R_64F, R_64F) => queue!(f64, f64),
            _ => Err(Status::NotSupported),
        }
    })
}
