// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The descriptors of the old API.

use std::ffi::c_int;

use gpgpu_stand_in::call::{Answer, Argument};

use super::export;
use crate::compute::{Pooling, Window, activation};
use crate::handle::{Activation, Convolution, Filter, Pool, Raw, describe, forget, said, say};
use crate::tensor::{MOST_DIMENSIONS, Tensor, channels_last, packed};
use crate::types::{Data, Result, Status, require};

macro_rules! kinds {
    ($($create:ident $destroy:ident $of:ty;)*) => {
        export! {$(
            /// Makes a descriptor.
            fn $create(out: Answer<Raw>) { describe::<$of>(out) }

            /// Ends a descriptor.
            fn $destroy(descriptor: Raw) { forget::<$of>(descriptor) }
        )*}
    };
}

kinds! {
    cudnnCreateTensorDescriptor cudnnDestroyTensorDescriptor Tensor;
    cudnnCreateFilterDescriptor cudnnDestroyFilterDescriptor Filter;
    cudnnCreateConvolutionDescriptor cudnnDestroyConvolutionDescriptor Convolution;
    cudnnCreatePoolingDescriptor cudnnDestroyPoolingDescriptor Pool;
    cudnnCreateActivationDescriptor cudnnDestroyActivationDescriptor Activation;
}

fn list(values: Argument<c_int>, count: c_int) -> Result<Vec<i64>> {
    let count = usize::try_from(count).map_err(|_| Status::BadParam)?;
    if count > MOST_DIMENSIONS {
        return Err(Status::NotSupported);
    }
    let values = values.array::<Status>(count)?;
    Ok(values.into_iter().map(i64::from).collect())
}

fn strides(format: c_int, sizes: &[i64]) -> Result<Vec<i64>> {
    // The product is checked with the tensor.
    require(sizes.iter().all(|size| (1..1 << 31).contains(size)))?;
    let product = sizes
        .iter()
        .try_fold(1_i64, |all, size| all.checked_mul(*size));
    product.ok_or(Status::NotSupported)?;
    match format {
        0 => Ok(packed(sizes)),
        1 => Ok(channels_last(sizes)),
        2 => Err(Status::NotSupported),
        _ => Err(Status::BadParam),
    }
}

fn set(tensor: Raw, data: c_int, sizes: Vec<i64>, strides: Vec<i64>) -> Result {
    let new = Tensor::new(Data::new(data)?, sizes, strides)?;
    say(tensor, |tensor: &mut Tensor| {
        *tensor = new;
        Ok(())
    })
}

/// Writes the first `asked` numbers.
fn give(to: Answer<c_int>, asked: c_int, values: &[i64]) -> Result {
    let values = values.iter().take(usize::try_from(asked).unwrap_or(0));
    for (at, value) in values.enumerate() {
        to.at(at).set::<Status>(*value as c_int)?;
    }
    Ok(())
}

/// Writes a number each.
fn spread<const N: usize>(to: [Answer<c_int>; N], values: impl IntoIterator<Item = i64>) -> Result {
    let mut values = values.into_iter();
    for to in to {
        to.set::<Status>(values.next().ok_or(Status::BadParam)? as c_int)?;
    }
    Ok(())
}

export! {
    /// A tensor of four dimensions, by its layout.
    fn cudnnSetTensor4dDescriptor(
        tensor: Raw, format: c_int, data: c_int, n: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        let sizes = [n, c, h, w].map(i64::from).to_vec();
        let strides = strides(format, &sizes)?;
        set(tensor, data, sizes, strides)
    }

    /// A tensor of four dimensions, by its strides.
    fn cudnnSetTensor4dDescriptorEx(
        tensor: Raw, data: c_int, n: c_int, c: c_int, h: c_int, w: c_int,
        nStride: c_int, cStride: c_int, hStride: c_int, wStride: c_int,
    ) {
        let strides = [nStride, cStride, hStride, wStride].map(i64::from).to_vec();
        set(tensor, data, [n, c, h, w].map(i64::from).to_vec(), strides)
    }

    /// A tensor, by its strides.
    fn cudnnSetTensorNdDescriptor(
        tensor: Raw, data: c_int, count: c_int, sizes: Argument<c_int>, strides: Argument<c_int>,
    ) {
        set(tensor, data, list(sizes, count)?, list(strides, count)?)
    }

    /// A tensor, by its layout.
    fn cudnnSetTensorNdDescriptorEx(
        tensor: Raw, format: c_int, data: c_int, count: c_int, sizes: Argument<c_int>,
    ) {
        let sizes = list(sizes, count)?;
        let strides = strides(format, &sizes)?;
        set(tensor, data, sizes, strides)
    }

    /// The settings.
    fn cudnnGetTensorNdDescriptor(
        tensor: Raw, asked: c_int, data: Answer<c_int>, count: Answer<c_int>,
        sizes: Answer<c_int>, strides: Answer<c_int>,
    ) {
        let tensor: Tensor = said(tensor)?;
        data.set::<Status>(tensor.data.number())?;
        count.set::<Status>(tensor.sizes.len() as c_int)?;
        give(sizes, asked, &tensor.sizes)?;
        give(strides, asked, &tensor.strides)
    }

    /// The settings of a tensor of four dimensions.
    fn cudnnGetTensor4dDescriptor(
        tensor: Raw, data: Answer<c_int>, n: Answer<c_int>, c: Answer<c_int>, h: Answer<c_int>,
        w: Answer<c_int>, nStride: Answer<c_int>, cStride: Answer<c_int>, hStride: Answer<c_int>,
        wStride: Answer<c_int>,
    ) {
        let tensor: Tensor = said(tensor)?;
        require(tensor.sizes.len() == 4)?;
        data.set::<Status>(tensor.data.number())?;
        spread([n, c, h, w], tensor.sizes)?;
        spread([nStride, cStride, hStride, wStride], tensor.strides)
    }

    /// The distance from the first element to the end of the last one.
    fn cudnnGetTensorSizeInBytes(tensor: Raw, size: Answer<usize>) {
        size.set(said::<Tensor>(tensor)?.bytes())
    }

    /// The tensor of the scales of a normalisation: one for each channel, or for each element of an image.
    fn cudnnDeriveBNTensorDescriptor(derived: Raw, x: Raw, mode: c_int) {
        let x: Tensor = said(x)?;
        require((0..=2).contains(&mode) && x.sizes.len() >= 4)?;
        let mut sizes = x.sizes;
        sizes[0] = 1;
        if mode != 0 {
            sizes[2..].fill(1);
        }
        let strides = packed(&sizes);
        set(derived, x.data.number(), sizes, strides)
    }

    /// Filters of two dimensions.
    fn cudnnSetFilter4dDescriptor(
        filter: Raw, data: c_int, format: c_int, k: c_int, c: c_int, h: c_int, w: c_int,
    ) {
        set_filter(filter, data, format, [k, c, h, w].map(i64::from).to_vec())
    }

    /// Filters.
    fn cudnnSetFilterNdDescriptor(
        filter: Raw, data: c_int, format: c_int, count: c_int, sizes: Argument<c_int>,
    ) {
        set_filter(filter, data, format, list(sizes, count)?)
    }

    /// The settings.
    fn cudnnGetFilterNdDescriptor(
        filter: Raw, asked: c_int, data: Answer<c_int>, format: Answer<c_int>, count: Answer<c_int>,
        sizes: Answer<c_int>,
    ) {
        let filter: Filter = said(filter)?;
        data.set::<Status>(filter.data.number())?;
        format.set::<Status>(filter.format)?;
        count.set::<Status>(filter.sizes.len() as c_int)?;
        give(sizes, asked, &filter.sizes)
    }

    /// A convolution of two dimensions.
    fn cudnnSetConvolution2dDescriptor(
        convolution: Raw, pad_h: c_int, pad_w: c_int, u: c_int, v: c_int, dilation_h: c_int,
        dilation_w: c_int, mode: c_int, data: c_int,
    ) {
        let pair = |of: [c_int; 2]| of.map(i64::from).to_vec();
        let window = Window {
            padding: pair([pad_h, pad_w]),
            stride: pair([u, v]),
            dilation: pair([dilation_h, dilation_w]),
        };
        set_convolution(convolution, window, mode, data)
    }

    /// A convolution.
    fn cudnnSetConvolutionNdDescriptor(
        convolution: Raw, count: c_int, padding: Argument<c_int>, stride: Argument<c_int>,
        dilation: Argument<c_int>, mode: c_int, data: c_int,
    ) {
        let window = Window {
            padding: list(padding, count)?,
            stride: list(stride, count)?,
            dilation: list(dilation, count)?,
        };
        set_convolution(convolution, window, mode, data)
    }

    /// Groups of channels, which do not see each other.
    fn cudnnSetConvolutionGroupCount(convolution: Raw, groups: c_int) {
        require(groups > 0)?;
        say(convolution, |convolution: &mut Convolution| {
            convolution.groups = groups.into();
            Ok(())
        })
    }

    /// The settings.
    fn cudnnGetConvolutionGroupCount(convolution: Raw, groups: Answer<c_int>) {
        groups.set(said::<Convolution>(convolution)?.groups as c_int)
    }

    /// Changes nothing.
    fn cudnnSetConvolutionMathType(convolution: Raw, math: c_int) {
        require((0..=3).contains(&math))?;
        say(convolution, |convolution: &mut Convolution| {
            convolution.math = math;
            Ok(())
        })
    }

    /// The settings.
    fn cudnnGetConvolutionMathType(convolution: Raw, math: Answer<c_int>) {
        math.set(said::<Convolution>(convolution)?.math)
    }

    /// Pooling of two dimensions.
    fn cudnnSetPooling2dDescriptor(
        pool: Raw, mode: c_int, _nan: c_int, height: c_int, width: c_int, vertical: c_int,
        horizontal: c_int, down: c_int, right: c_int,
    ) {
        let pair = |of: [c_int; 2]| of.map(i64::from).to_vec();
        let moves = [pair([vertical, horizontal]), pair([down, right])];
        set_pool(pool, mode, pair([height, width]), moves)
    }

    /// Pooling.
    fn cudnnSetPoolingNdDescriptor(
        pool: Raw, mode: c_int, _nan: c_int, count: c_int, sizes: Argument<c_int>,
        padding: Argument<c_int>, stride: Argument<c_int>,
    ) {
        let moves = [list(padding, count)?, list(stride, count)?];
        set_pool(pool, mode, list(sizes, count)?, moves)
    }

    /// A function of one number.
    fn cudnnSetActivationDescriptor(descriptor: Raw, mode: c_int, nan: c_int, coefficient: f64) {
        let _ = activation(mode, coefficient)?;
        say(descriptor, |of: &mut Activation| {
            *of = Activation { mode, nan, coefficient };
            Ok(())
        })
    }

    /// The settings.
    fn cudnnGetActivationDescriptor(
        descriptor: Raw, mode: Answer<c_int>, nan: Answer<c_int>, coefficient: Answer<f64>,
    ) {
        let of: Activation = said(descriptor)?;
        mode.set::<Status>(of.mode)?;
        nan.set::<Status>(of.nan)?;
        coefficient.set(of.coefficient)
    }
}

fn set_filter(filter: Raw, data: c_int, format: c_int, sizes: Vec<i64>) -> Result {
    let data = Data::new(data)?;
    // Its sizes are checked like a tensor's.
    Tensor::new(data, sizes.clone(), strides(format, &sizes)?)?;
    require(sizes.len() >= 3)?;
    say(filter, |filter: &mut Filter| {
        *filter = Filter {
            data,
            format,
            sizes,
        };
        Ok(())
    })
}

fn set_convolution(convolution: Raw, window: Window, mode: c_int, data: c_int) -> Result {
    let data = Data::new(data)?;
    require((0..=1).contains(&mode) && !window.padding.is_empty())?;
    require(window.padding.iter().all(|of| *of >= 0))?;
    let positive = window.stride.iter().chain(&window.dilation);
    require(positive.into_iter().all(|of| *of > 0))?;
    say(convolution, |convolution: &mut Convolution| {
        *convolution = Convolution {
            window,
            data,
            is_flipped: mode == 0,
            groups: convolution.groups.max(1),
            math: convolution.math,
        };
        Ok(())
    })
}

fn set_pool(pool: Raw, mode: c_int, sizes: Vec<i64>, [padding, stride]: [Vec<i64>; 2]) -> Result {
    let mode = match mode {
        0 | 3 => Pooling::Largest,
        1 => Pooling::Average,
        2 => Pooling::AverageWithin,
        _ => return Err(Status::BadParam),
    };
    require(!sizes.is_empty() && sizes.iter().chain(&stride).all(|of| *of > 0))?;
    require(
        padding
            .iter()
            .zip(&sizes)
            .all(|(pad, of)| (0..*of).contains(pad)),
    )?;
    say(pool, |pool: &mut Pool| {
        let dilation = vec![1; sizes.len()];
        *pool = Pool {
            mode,
            sizes,
            window: Window {
                padding,
                stride,
                dilation,
            },
        };
        Ok(())
    })
}
