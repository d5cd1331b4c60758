// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Matrices and products, and their attributes.

use std::ffi::{c_int, c_uint};

use crate::handle::{Answer, Argument, RawHandle};
use crate::product::check;
use crate::structures::{Matrix, Product, attribute, end, read};
use crate::types::{Status, require};

use super::{export, give, take};

/// The size of each attribute of a product, in bytes.
const WIDTHS: [usize; attribute::COUNT] = [4, 4, 4, 4, 4, 4, 4, 8, 8, 8];

fn of_product(number: c_int) -> Result<(usize, usize), Status> {
    match usize::try_from(number) {
        Ok(number) if number < WIDTHS.len() => Ok((number, WIDTHS[number])),
        // Scales for types that are not supported here.
        Ok(10..20) => Err(Status::NotSupported),
        _ => Err(Status::InvalidValue),
    }
}

export! {
    /// A matrix.
    fn cusparseLtDenseDescriptorInit(
        handle: Argument<RawHandle>, matrix: Answer<Matrix>, rows: i64, columns: i64, leading: i64, alignment: c_uint, data: c_int, order: c_int,
    ) |handle| {
        let _ = handle;
        matrix.set(Matrix::new((rows, columns, leading), alignment, data, order, false)?)
    }

    /// A matrix of which half is zero.
    fn cusparseLtStructuredDescriptorInit(
        handle: Argument<RawHandle>, matrix: Answer<Matrix>, rows: i64, columns: i64, leading: i64, alignment: c_uint, data: c_int, order: c_int,
        sparsity: c_uint,
    ) |handle| {
        let _ = handle;
        require(sparsity == 0)?;
        matrix.set(Matrix::new((rows, columns, leading), alignment, data, order, true)?)
    }

    /// Ends a matrix. Products that were described with it do not change.
    fn cusparseLtMatDescriptorDestroy(matrix: Answer<Matrix>) { end(matrix).map(drop) }

    /// Sets the number of matrices, or the distance between them.
    fn cusparseLtMatDescSetAttribute(
        handle: Argument<RawHandle>, matrix: Answer<Matrix>, number: c_int, data: Argument<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let mut of = read(matrix.as_argument())?;
        match number {
            0 => {
                of.batch = take(data, size, 4)? as c_int;
                require(of.batch > 0)?;
            }
            1 => of.stride = take(data, size, 8)? as i64,
            _ => return Err(Status::InvalidValue),
        }
        matrix.set(of)
    }

    /// Returns the present values.
    fn cusparseLtMatDescGetAttribute(
        handle: Argument<RawHandle>, matrix: Argument<Matrix>, number: c_int, data: Answer<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let of = read(matrix)?;
        match number {
            0 => give(data, size, 4, of.batch as u64),
            1 => give(data, size, 8, of.stride as u64),
            _ => Err(Status::InvalidValue),
        }
    }

    /// A product of matrices with their present values.
    fn cusparseLtMatmulDescriptorInit(
        handle: Argument<RawHandle>, product: Answer<Product>, of_a: c_int, of_b: c_int, a: Argument<Matrix>, b: Argument<Matrix>, c: Argument<Matrix>,
        d: Argument<Matrix>, compute: c_int,
    ) |handle| {
        let _ = handle;
        let of = Product::new([read(a)?, read(b)?, read(c)?, read(d)?], [of_a, of_b], compute);
        check(&of)?;
        require(of.matrices.iter().all(|matrix| matrix.batch == of.matrices[3].batch))?;
        product.set(of)
    }

    /// The epilogue of a product, and the place of its scalars.
    fn cusparseLtMatmulDescSetAttribute(
        handle: Argument<RawHandle>, product: Answer<Product>, number: c_int, data: Argument<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let mut of = read(product.as_argument())?;
        let (number, bytes) = of_product(number)?;
        of.set[number] = take(data, size, bytes)?;
        product.set(of)
    }

    /// Returns the present values.
    fn cusparseLtMatmulDescGetAttribute(
        handle: Argument<RawHandle>, product: Argument<Product>, number: c_int, data: Answer<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let of = read(product)?;
        let (number, bytes) = of_product(number)?;
        give(data, size, bytes, of.set[number])
    }
}
