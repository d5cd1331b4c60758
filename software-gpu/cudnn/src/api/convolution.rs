// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Convolutions by the old API.

use std::ffi::c_int;

use gpgpu_stand_in::call::{Answer, Argument};

use super::export;
use crate::compute;
use crate::handle::{Convolution, Filter, Raw, factors, find, said};
use crate::tensor::{Tensor, channels_last, packed};
use crate::types::{Result, Status, require};

/// The resources of an algorithm (`cudnnConvolutionFwdAlgoPerf_t`).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Performance {
    algorithm: c_int,
    status: c_int,
    milliseconds: f32,
    bytes: usize,
    is_deterministic: c_int,
    math: c_int,
    reserved: [c_int; 3],
}

/// The one algorithm: an implicit product of matrices.
const ALGORITHM: c_int = 0;
/// The number of algorithms that cuDNN has.
const ALGORITHMS: c_int = 8;

/// A convolution, its filters as a tensor, and the sizes of the output.
fn plan(
    x: &Tensor,
    filter: Raw,
    convolution: Raw,
) -> Result<(compute::Convolution, Tensor, Vec<i64>)> {
    let (filter, how): (Filter, Convolution) = (said(filter)?, said(convolution)?);
    require(x.data == filter.data)?;
    let strides = match filter.format {
        1 => channels_last(&filter.sizes),
        _ => packed(&filter.sizes),
    };
    let (plan, sizes) = compute::Convolution::new(
        &x.sizes,
        &filter.sizes,
        &how.window,
        how.groups.max(1),
        how.is_flipped,
    )?;
    let filters = Tensor::new(filter.data, filter.sizes, strides)?;
    Ok((plan, filters, sizes))
}

fn check(x: Raw, filter: Raw, convolution: Raw, y: Raw) -> Result {
    let (x, y): (Tensor, Tensor) = (said(x)?, said(y)?);
    let (_, _, sizes) = plan(&x, filter, convolution)?;
    require(sizes == y.sizes && x.data == y.data)
}

fn rank(asked: c_int, count: Answer<c_int>, to: Answer<Performance>, milliseconds: f32) -> Result {
    require(asked > 0)?;
    count.set::<Status>(1)?;
    to.set(Performance {
        algorithm: ALGORITHM,
        status: 0,
        milliseconds,
        bytes: 0,
        is_deterministic: 1,
        math: 0,
        reserved: [0; 3],
    })
}

export! {
    /// The output sizes of a convolution of two dimensions.
    fn cudnnGetConvolution2dForwardOutputDim(
        convolution: Raw, x: Raw, filter: Raw, n: Answer<c_int>, c: Answer<c_int>, h: Answer<c_int>,
        w: Answer<c_int>,
    ) {
        let (_, _, sizes) = plan(&said(x)?, filter, convolution)?;
        require(sizes.len() == 4)?;
        for (to, size) in [n, c, h, w].into_iter().zip(sizes) {
            to.set::<Status>(size as c_int)?;
        }
        Ok(())
    }

    /// The output sizes.
    fn cudnnGetConvolutionNdForwardOutputDim(
        convolution: Raw, x: Raw, filter: Raw, count: c_int, to: Answer<c_int>,
    ) {
        let (_, _, sizes) = plan(&said(x)?, filter, convolution)?;
        require(usize::try_from(count) == Ok(sizes.len()))?;
        for (at, size) in sizes.into_iter().enumerate() {
            to.at(at).set::<Status>(size as c_int)?;
        }
        Ok(())
    }

    /// The number of algorithms that cuDNN has.
    fn cudnnGetConvolutionForwardAlgorithmMaxCount(handle: Raw, count: Answer<c_int>) {
        find(handle)?;
        count.set(ALGORITHMS)
    }

    /// The best algorithms: the only one.
    fn cudnnGetConvolutionForwardAlgorithm_v7(
        handle: Raw, x: Raw, filter: Raw, convolution: Raw, y: Raw, asked: c_int,
        count: Answer<c_int>, to: Answer<Performance>,
    ) {
        find(handle)?;
        check(x, filter, convolution, y)?;
        rank(asked, count, to, -1.0)
    }

    /// Returns the best algorithms, without the trial that its name promises.
    fn cudnnFindConvolutionForwardAlgorithm(
        handle: Raw, x: Raw, filter: Raw, convolution: Raw, y: Raw, asked: c_int,
        count: Answer<c_int>, to: Answer<Performance>,
    ) {
        find(handle)?;
        check(x, filter, convolution, y)?;
        rank(asked, count, to, 0.5)
    }

    /// Nothing.
    fn cudnnGetConvolutionForwardWorkspaceSize(
        handle: Raw, x: Raw, filter: Raw, convolution: Raw, y: Raw, algorithm: c_int,
        size: Answer<usize>,
    ) {
        find(handle)?;
        check(x, filter, convolution, y)?;
        match algorithm {
            ALGORITHM => size.set(0),
            1..ALGORITHMS => Err(Status::NotSupported),
            _ => Err(Status::BadParam),
        }
    }

    /// Computes a convolution. The workspace is not used.
    fn cudnnConvolutionForward(
        handle: Raw, alpha: Argument<f64>, x: Raw, x_at: u64, filter: Raw, w_at: u64,
        convolution: Raw, algorithm: c_int, _workspace: u64, _size: usize, beta: Argument<f64>, y: Raw,
        y_at: u64,
    ) {
        let handle = find(handle)?;
        check(x, filter, convolution, y)?;
        match algorithm {
            ALGORITHM => {}
            1..ALGORITHMS => return Err(Status::NotSupported),
            _ => return Err(Status::BadParam),
        }
        let (x, y): (Tensor, Tensor) = (said(x)?, said(y)?);
        let factors = factors(x.data, [alpha, beta])?;
        let (plan, filters, sizes) = plan(&x, filter, convolution)?;
        require(sizes == y.sizes && x_at != 0 && w_at != 0 && y_at != 0)?;
        handle.run(move |memory| {
            let (x, w) = (x.read(&memory, x_at)?, filters.read(&memory, w_at)?);
            y.write(&memory, y_at, plan.run(&x, &w), factors)
        })
    }
}
