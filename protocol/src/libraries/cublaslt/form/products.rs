// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products and transformations.

use super::{
    super::attributes::{Class, POINTER_MODE, TRANSFORM_POINTER_MODE},
    Algorithm, Described, Descriptor, Descriptors, Scalar, Sink, get_algorithm, get_optional,
    places, put_descriptor,
};
use crate::codec::{Malformed, Reader};

/// Writes a plan: a product's descriptors, and its algorithm unless the library chooses one.
pub fn put_plan<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    described: &Described<'_, T>,
    algorithm: Option<&Algorithm>,
) {
    described.put(sink);
    sink.value(algorithm.is_some().into());
    if let Some(bytes) = algorithm {
        sink.bytes(bytes);
    }
}

/// A decoded plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The product's descriptors.
    pub descriptors: Descriptors,
    /// The algorithm; `None` if the library chooses one.
    pub algorithm: Option<Algorithm>,
}

impl Plan {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            descriptors: Descriptors::get(reader)?,
            algorithm: get_optional(reader, get_algorithm)?,
        })
    }

    /// Decodes a plan.
    ///
    /// # Errors
    ///
    /// The bytes are invalid.
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let plan = Self::read(reader)?;
        reader.end()?;
        Ok(plan)
    }

    /// The `cublasLtPointerMode_t`.
    pub fn mode(&self) -> u64 {
        let operation = &self.descriptors.operation;
        operation.get_or_default(Class::Operation, POINTER_MODE)
    }
}

/// The operands of a plan: `D = alpha op(A) op(B) + beta C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operands {
    /// Alpha and beta.
    pub scalars: [Scalar; 2],
    /// The device addresses of A, B, C and D.
    pub matrices: [u64; 4],
    /// The workspace's device address and its bytes.
    pub workspace: (u64, u64),
}

impl Operands {
    /// Writes them.
    pub fn put(&self, sink: &mut (impl Sink + ?Sized)) {
        for scalar in self.scalars {
            scalar.put(sink);
        }
        for address in self.matrices {
            sink.address(address);
        }
        sink.address(self.workspace.0);
        sink.value(self.workspace.1);
    }

    fn read(reader: &mut Reader<'_>, mode: u64) -> Result<Self, Malformed> {
        let scalars = get_scalars(reader, mode)?;
        let mut matrices = [0; 4];
        for address in &mut matrices {
            *address = reader.word()?;
        }
        Ok(Self {
            scalars,
            matrices,
            workspace: (reader.word()?, reader.word()?),
        })
    }

    /// Decodes the operands of a plan with this pointer mode.
    ///
    /// # Errors
    ///
    /// The bytes are invalid, or a scalar is at another place than the pointer mode says.
    pub fn get(bytes: &[u8], mode: u64) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let operands = Self::read(reader, mode)?;
        reader.end()?;
        Ok(operands)
    }
}

/// Writes a product: a plan and its operands.
pub fn put_product<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    described: &Described<'_, T>,
    algorithm: Option<&Algorithm>,
    operands: &Operands,
) {
    put_plan(sink, described, algorithm);
    operands.put(sink);
}

/// A decoded product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Product {
    /// Its descriptors and its algorithm.
    pub plan: Plan,
    /// Its operands.
    pub operands: Operands,
}

fn get_scalars(reader: &mut Reader<'_>, mode: u64) -> Result<[Scalar; 2], Malformed> {
    let [alpha, beta] = places(mode).ok_or(Malformed::Range)?;
    Ok([Scalar::get(reader, alpha)?, Scalar::get(reader, beta)?])
}

impl Product {
    /// Decodes a product.
    ///
    /// # Errors
    ///
    /// The bytes are invalid, or a scalar is at another place than the pointer mode says.
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let plan = Plan::read(reader)?;
        let operands = Operands::read(reader, plan.mode())?;
        reader.end()?;
        Ok(Self { plan, operands })
    }
}

/// Writes a transformation: `C = alpha op(A) + beta op(B)`. A program may leave layouts out; the library decides
/// whether it accepts that.
pub fn put_transformation<T: AsRef<[u8]>>(
    sink: &mut (impl Sink + ?Sized),
    operation: &T,
    layouts: [Option<&T>; 3],
    scalars: [Scalar; 2],
    matrices: [u64; 3],
) {
    put_descriptor(sink, Class::Transform, operation.as_ref());
    for layout in layouts {
        sink.value(layout.is_some().into());
        if let Some(layout) = layout {
            put_descriptor(sink, Class::Layout, layout.as_ref());
        }
    }
    for scalar in scalars {
        scalar.put(sink);
    }
    for address in matrices {
        sink.address(address);
    }
}

/// A decoded transformation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transformation {
    /// Its kind.
    pub operation: Descriptor,
    /// The layouts of A, B and C.
    pub layouts: [Option<Descriptor>; 3],
    /// Alpha and beta.
    pub scalars: [Scalar; 2],
    /// The device addresses of A, B and C.
    pub matrices: [u64; 3],
}

impl Transformation {
    /// Decodes a transformation.
    ///
    /// # Errors
    ///
    /// As [`Product::get`].
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = &mut Reader::new(bytes);
        let operation = Descriptor::get(reader, Class::Transform)?;
        let mut layouts = [None, None, None];
        for layout in &mut layouts {
            *layout = get_optional(reader, |reader| Descriptor::get(reader, Class::Layout))?;
        }
        let mode = operation.get_or_default(Class::Transform, TRANSFORM_POINTER_MODE);
        let transformation = Self {
            operation,
            layouts,
            scalars: get_scalars(reader, mode)?,
            matrices: [reader.word()?, reader.word()?, reader.word()?],
        };
        reader.end()?;
        Ok(transformation)
    }
}
