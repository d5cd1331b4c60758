// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kinds of arguments, and the widths of values.

use super::class::Class;
use crate::codec::{Field, Shape, Structure};

/// The width of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// So many bytes.
    Bytes(u8),
    /// This number of values of the type that another argument names (`cudaDataType`).
    Data {
        /// The number of the argument.
        of: u8,
        /// The number of values.
        times: u8,
    },
    /// The width of a product's scalar: its type follows from a `cublasComputeType_t`, and it is complex if the
    /// result's type is.
    Compute {
        /// The index of the argument that is the compute type.
        compute: u8,
        /// The index of the argument that is the result's type.
        of: u8,
    },
}

/// The bytes of a value of a `cudaDataType`, or `None` if there is no such type.
#[inline]
pub(super) fn data_bytes(data: u64) -> Option<usize> {
    Some(match data {
        // Real and complex: 32F, 64F, 16F, 8I, 8U, 32I, 32U, 16BF, 16I, 16U, 64I, 64U, 8F.
        0 | 10 | 12 => 4,
        4 | 11 | 13 => 8,
        1 | 24 | 26 => 8,
        5 | 25 | 27 => 16,
        2 | 14 | 20 | 22 => 2,
        6 | 15 | 21 | 23 => 4,
        3 | 8 | 28 | 29 => 1,
        7 | 9 => 2,
        _ => return None,
    })
}

/// Whether a `cudaDataType` is complex.
fn is_complex(data: u64) -> bool {
    matches!(data, 4..=7 | 9 | 11 | 13 | 15 | 17 | 19 | 21 | 23 | 25 | 27)
}

/// The bytes of a real scalar of a `cublasComputeType_t`, or `None` if there is no such type.
fn compute_bytes(compute: u64) -> Option<usize> {
    Some(match compute {
        64 | 65 => 2,
        68 | 69 | 72..=75 | 77 | 78 => 4,
        70 | 71 | 79 => 8,
        _ => return None,
    })
}

impl Width {
    /// The width in bytes, for these arguments; `None` if the argument that names the type has no known value.
    pub fn bytes(self, words: &[u64]) -> Option<usize> {
        // Types are C enumerations: the upper half of the word is undefined.
        let word = |at: u8| {
            words
                .get(usize::from(at))
                .map(|word| u64::from(*word as u32))
        };
        match self {
            Self::Bytes(bytes) => Some(bytes.into()),
            Self::Data { of, times } => Some(data_bytes(word(of)?)? * usize::from(times)),
            Self::Compute { compute, of } => {
                let (compute, of) = (word(compute)?, word(of)?);
                let is_integer = matches!(compute, 72 | 73);
                let times = 1 + usize::from(is_complex(of) && !is_integer);
                Some(compute_bytes(compute)? * times)
            }
        }
    }
}

/// The most values of an array at a host address.
pub const MAX_ARRAY: u64 = 1 << 10;

/// The most host memory, in bytes, that the library gets as work space for a call.
pub const MAX_SCRATCH: u64 = 1 << 30;

/// The kind of an argument, which determines its encoding.
///
/// "By the pointer mode" means that the pointer mode of the call's handle says whether the value is at a host or a
/// device address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The handle in whose context and stream the call runs: its id.
    Handle(Class),
    /// The object that the call makes: an id that the guest chose.
    New(Class),
    /// The object that the call destroys: its id.
    Gone(Class),
    /// An object that the call uses: its id, or 0 for NULL.
    Object(Class),
    /// A stream: its id.
    Stream,
    /// An `int` or an enumeration.
    I32,
    /// An `int64_t`, `long long` or `size_t`.
    I64,
    /// A `float` by value.
    F32,
    /// A `double` by value.
    F64,
    /// A device address, unchanged.
    Device,
    /// A value that the library reads: 1 and the bytes, or 0 and a device address, by the pointer mode.
    Scalar(Width),
    /// A value that the library writes: 1, and the reply has the bytes, or 0 and a device address, by the pointer mode.
    Result(Width),
    /// A value that the library reads and writes: encoded as a scalar; the reply has the bytes if the request had them.
    InOut(Width),
    /// Like an array if the pointer mode is the host's, else 0 and a device address.
    Scalars(Width, u8),
    /// A value that the library reads at a host address: 1 and the bytes, or 0 for NULL.
    In(Width),
    /// A value that the library writes at a host address: whether it is wanted.
    Out(Width),
    /// A value that the library reads and writes at a host address: as [`Kind::In`], and the reply has the bytes.
    Update(Width),
    /// Values at a host address, as many as the argument with this number says.
    Array(Width, u8),
    /// The same, or NULL: 1 and the bytes, or 0.
    List(Width, u8),
    /// Values that the library writes at a host address, as many as the argument with this number says: whether they
    /// are wanted.
    Outs(Width, u8),
    /// Host memory that the library uses during the call, with as many bytes as the argument with this number says:
    /// whether it is present. Its content is not transferred.
    Scratch(u8),
    /// Bytes into which the guest's library encodes several arguments. The worker's part of the function is written by
    /// hand.
    Blob,
    /// Bytes of variable length that the worker's part of the function returns.
    Reply,
}

static ADDRESS_OR_BYTES: Shape = Shape::Structure(&Structure {
    name: "AddressOrBytes",
    doc: &["A value at a host address, which travels, or the device address of one."],
    fields: &[
        Field {
            name: "is_here",
            doc: &["Whether it travels."],
            shape: &Shape::Scalar("bool"),
        },
        Field {
            name: "value",
            doc: &[
                "Its bytes if it travels, unless the host is to write it; else its device address, a `u64`.",
            ],
            shape: &Shape::Bytes,
        },
    ],
});

static BYTES_OR_NULL: Shape = Shape::Structure(&Structure {
    name: "BytesOrNull",
    doc: &["A value at a host address, or NULL."],
    fields: &[
        Field {
            name: "is_here",
            doc: &["Whether there is one."],
            shape: &Shape::Scalar("bool"),
        },
        Field {
            name: "value",
            doc: &["Its bytes, if there is one."],
            shape: &Shape::Bytes,
        },
    ],
});

impl Kind {
    /// The encoding.
    pub const fn shape(self) -> &'static Shape {
        match self {
            Self::Handle(_)
            | Self::New(_)
            | Self::Gone(_)
            | Self::Object(_)
            | Self::Stream
            | Self::F64
            | Self::Device => &Shape::Scalar("u64"),
            Self::I32 => &Shape::Scalar("i32"),
            Self::F32 => &Shape::Scalar("u32"),
            Self::I64 => &Shape::Scalar("i64"),
            Self::Scalar(_) | Self::Result(_) | Self::InOut(_) | Self::Scalars(..) => {
                &ADDRESS_OR_BYTES
            }
            Self::In(_) | Self::Update(_) | Self::List(..) => &BYTES_OR_NULL,
            Self::Out(_) | Self::Outs(..) | Self::Scratch(_) | Self::Reply => {
                &Shape::Scalar("bool")
            }
            Self::Array(..) | Self::Blob => &Shape::Bytes,
        }
    }

    /// Whether the reply has a value for it, in at least one of the pointer modes.
    pub const fn has_result(self) -> bool {
        matches!(
            self,
            Self::Result(_)
                | Self::InOut(_)
                | Self::Out(_)
                | Self::Update(_)
                | Self::Outs(..)
                | Self::Reply
        )
    }

    /// Whether the pointer mode says where the value is.
    pub const fn is_by_mode(self) -> bool {
        matches!(
            self,
            Self::Scalar(_) | Self::Result(_) | Self::InOut(_) | Self::Scalars(..)
        )
    }
}
