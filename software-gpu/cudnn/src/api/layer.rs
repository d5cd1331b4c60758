// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Layers by the old API that are no convolutions.

use std::ffi::c_int;

use gpgpu_stand_in::call::{Answer, Argument};

use super::export;
use crate::compute::{activation, pool, softmax};
use crate::handle::{Activation, Pool, Raw, factors, find, said};
use crate::tensor::Tensor;
use crate::types::{Data, Result, Status, require};

fn like(x: Raw, y: Raw) -> Result<(Tensor, Tensor)> {
    let (x, y): (Tensor, Tensor) = (said(x)?, said(y)?);
    require(!x.sizes.is_empty() && x.sizes == y.sizes && x.data == y.data)?;
    Ok((x, y))
}

export! {
    /// A function of each number.
    fn cudnnActivationForward(
        handle: Raw, descriptor: Raw, alpha: Argument<f64>, x: Raw, x_at: u64, beta: Argument<f64>,
        y: Raw, y_at: u64,
    ) {
        let handle = find(handle)?;
        let (x, y) = like(x, y)?;
        let of: Activation = said(descriptor)?;
        let function = activation(of.mode, of.coefficient)?;
        let factors = factors(x.data, [alpha, beta])?;
        handle.run(move |memory| {
            let values = x.read(&memory, x_at)?;
            y.write(&memory, y_at, values.into_iter().map(function).collect(), factors)
        })
    }

    /// The output sizes of pooling.
    fn cudnnGetPoolingNdForwardOutputDim(descriptor: Raw, x: Raw, count: c_int, to: Answer<c_int>) {
        let (x, of): (Tensor, Pool) = (said(x)?, said(descriptor)?);
        require(usize::try_from(count) == Ok(x.sizes.len()) && x.sizes.len() >= 3)?;
        let output = of.window.output(&x.sizes[2..], &of.sizes)?;
        for (at, size) in x.sizes[..2].iter().chain(&output).enumerate() {
            to.at(at).set::<Status>(*size as c_int)?;
        }
        Ok(())
    }

    /// Pools images.
    fn cudnnPoolingForward(
        handle: Raw, descriptor: Raw, alpha: Argument<f64>, x: Raw, x_at: u64, beta: Argument<f64>,
        y: Raw, y_at: u64,
    ) {
        let handle = find(handle)?;
        let (x, y): (Tensor, Tensor) = (said(x)?, said(y)?);
        let of: Pool = said(descriptor)?;
        require(x.sizes.len() >= 3 && x.data == y.data)?;
        let output = of.window.output(&x.sizes[2..], &of.sizes)?;
        require(y.sizes == [&x.sizes[..2], &output[..]].concat())?;
        let factors = factors(x.data, [alpha, beta])?;
        handle.run(move |memory| {
            let values = x.read(&memory, x_at)?;
            let pooled = pool(of.mode, &values, &x.sizes, &of.sizes, &of.window);
            // It was checked above.
            let pooled = pooled.map_err(|_| gpgpu_stand_in::driver::UNKNOWN)?;
            y.write(&memory, y_at, pooled, factors)
        })
    }

    /// The softmax of each image, or of each pixel over the channels.
    fn cudnnSoftmaxForward(
        handle: Raw, algorithm: c_int, mode: c_int, alpha: Argument<f64>, x: Raw, x_at: u64,
        beta: Argument<f64>, y: Raw, y_at: u64,
    ) {
        let handle = find(handle)?;
        let (x, y) = like(x, y)?;
        require((0..=2).contains(&algorithm) && (0..=1).contains(&mode))?;
        let factors = factors(x.data, [alpha, beta])?;
        let (images, channels) = (x.size(0) as usize, x.size(1) as usize);
        let rest = x.elements() / images / channels;
        let shape = match mode {
            0 => [images, channels * rest, 1],
            _ => [images, channels, rest],
        };
        handle.run(move |memory| {
            let values = x.read(&memory, x_at)?;
            let values = softmax(&values, shape, algorithm == 2);
            y.write(&memory, y_at, values, factors)
        })
    }

    /// Normalises by a mean and a variance that are known.
    fn cudnnBatchNormalizationForwardInference(
        handle: Raw, mode: c_int, alpha: Argument<f64>, beta: Argument<f64>, x: Raw, x_at: u64, y: Raw,
        y_at: u64, derived: Raw, scale: u64, bias: u64, mean: u64, variance: u64, epsilon: f64,
    ) {
        let handle = find(handle)?;
        let (x, y) = like(x, y)?;
        let of: Tensor = said(derived)?;
        require((0..=2).contains(&mode) && of.sizes.len() == x.sizes.len() && epsilon >= 0.0)?;
        let is_fit = |at: usize| match (at, mode) {
            (0, _) => of.sizes[at] == 1,
            (1, _) | (_, 0) => of.sizes[at] == x.sizes[at],
            _ => of.sizes[at] == 1,
        };
        require((0..x.sizes.len()).all(is_fit))?;
        let factors = factors(x.data, [alpha, beta])?;
        let each = x.elements() / x.size(0) as usize;
        let shared = each / of.elements();
        handle.run(move |memory| {
            let read = |at| of.read(&memory, at);
            let (scale, bias) = (read(scale)?, read(bias)?);
            let (mean, variance) = (read(mean)?, read(variance)?);
            let values = x.read(&memory, x_at)?.into_iter().enumerate();
            let values = values.map(|(at, value)| {
                let of = at % each / shared;
                let normal = (value - mean[of]) / (variance[of] + epsilon).sqrt();
                scale[of] * normal + bias[of]
            });
            y.write(&memory, y_at, values.collect(), factors)
        })
    }

    /// Gives all elements the same value.
    fn cudnnSetTensor(handle: Raw, y: Raw, y_at: u64, value: Argument<f64>) {
        let (handle, y): (_, Tensor) = (find(handle)?, said(y)?);
        let value = match y.data {
            Data::Single => value.cast::<f32>().get::<Status>()?.into(),
            Data::Double => value.get::<Status>()?,
        };
        require(!y.sizes.is_empty())?;
        handle.run(move |memory| y.write(&memory, y_at, vec![value; y.elements()], [1.0, 0.0]))
    }

    /// Multiplies all elements.
    fn cudnnScaleTensor(handle: Raw, y: Raw, y_at: u64, alpha: Argument<f64>) {
        let (handle, y): (_, Tensor) = (find(handle)?, said(y)?);
        let [alpha, _] = factors(y.data, [alpha, alpha])?;
        require(!y.sizes.is_empty())?;
        handle.run(move |memory| {
            let values = y.read(&memory, y_at)?;
            y.write(&memory, y_at, values, [alpha, 0.0])
        })
    }
}
