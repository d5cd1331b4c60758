// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The attributes of cuSPARSELt's descriptors: their sizes and types.
//!
//! Both sides use these tables. The worker passes the library no attribute that the tables lack: the library takes some
//! attributes for host addresses, and a guest could choose such an address.

/// The owners of attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// `cusparseLtMatDescriptor_t`: a matrix.
    Matrix,
    /// `cusparseLtMatmulDescriptor_t`: a product.
    Product,
    /// `cusparseLtMatmulAlgSelection_t`: the algorithm of a product.
    Selection,
}

/// The type of an attribute's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A number.
    Value,
    /// 0 or 1: whether a scalar is a vector in device memory.
    Vector,
    /// An address in device memory.
    Device,
    /// A number that programs cannot set: the library reports it.
    Told,
}

/// An attribute. Its number is its place in the class's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute {
    /// Its size in bytes: 4 or 8.
    pub bytes: u8,
    /// The type of its value.
    pub holds: Holds,
}

/// `CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING`.
pub const ALPHA_VECTOR: usize = 5;
/// `CUSPARSELT_MATMUL_BETA_VECTOR_SCALING`.
pub const BETA_VECTOR: usize = 6;
/// `CUSPARSELT_MATMUL_BIAS_POINTER`.
pub const BIAS: usize = 8;
/// `CUSPARSELT_MATMUL_ALG_CONFIG_ID`, `…SPLIT_K`, `…SPLIT_K_MODE` and `…SPLIT_K_BUFFERS`: the results of a search.
pub const FOUND: [usize; 4] = [0, 3, 4, 5];

/// The number of attributes of a matrix.
pub const MATRIX: usize = 2;
/// The number of attributes of a product.
pub const PRODUCT: usize = 20;
/// The number of attributes of a selection.
pub const SELECTION: usize = 6;

const fn number(bytes: u8) -> Attribute {
    let holds = Holds::Value;
    Attribute { bytes, holds }
}

const VECTOR: Attribute = Attribute {
    bytes: 4,
    holds: Holds::Vector,
};
const ADDRESS: Attribute = Attribute {
    bytes: 8,
    holds: Holds::Device,
};
const TOLD: Attribute = Attribute {
    bytes: 4,
    holds: Holds::Told,
};

/// The number of matrices in a batch, and the distance between them.
const OF_MATRIX: [Attribute; MATRIX] = [number(4), number(8)];

const OF_PRODUCT: [Attribute; PRODUCT] = [
    // ReLU, its upper bound and its threshold; GELU and its factor.
    number(4),
    number(4),
    number(4),
    number(4),
    number(4),
    // Whether alpha and beta are vectors.
    VECTOR,
    VECTOR,
    // The distance of the biases of a batch; the bias; the sparse matrix.
    number(8),
    ADDRESS,
    ADDRESS,
    // The modes and the factors of the scaling of A, B, C, D and of the divisor of D.
    number(4),
    number(4),
    number(4),
    number(4),
    number(4),
    ADDRESS,
    ADDRESS,
    ADDRESS,
    ADDRESS,
    ADDRESS,
];

/// The configuration and the number of configurations; the iterations of a search; the parts of K, how they are added,
/// and the buffers for that.
const OF_SELECTION: [Attribute; SELECTION] =
    [number(4), TOLD, number(4), number(4), number(4), number(4)];

impl Class {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Matrix, Self::Product, Self::Selection];

    /// Its attributes, by number.
    pub const fn attributes(self) -> &'static [Attribute] {
        match self {
            Self::Matrix => &OF_MATRIX,
            Self::Product => &OF_PRODUCT,
            Self::Selection => &OF_SELECTION,
        }
    }

    /// The attribute with this number, an `int` in C; `None` if there is none.
    pub fn find(self, number: i32) -> Option<(usize, Attribute)> {
        let at = usize::try_from(number).ok()?;
        Some((at, *self.attributes().get(at)?))
    }
}

impl Attribute {
    /// Whether a program can set the attribute to this value.
    pub const fn takes(self, value: u64) -> bool {
        match self.holds {
            Holds::Told => false,
            Holds::Vector => value <= 1,
            Holds::Value | Holds::Device => self.bytes == 8 || value <= u32::MAX as u64,
        }
    }
}
