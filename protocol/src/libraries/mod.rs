//! NVIDIA's libraries, which the host serves: a table for each, of functions that travel.
//!
//! The guest's library and the worker are both made from a function's row alone: number, completion, style, name, arguments
//! with their kinds ([`Kind`]), and properties, as in [`api`](crate::api). Numbers are of the same space, and as lasting.
//!
//! * Style: `table` means that the guest's symbol is made from the row; `guest` that it is written by hand.
//! * Completion: a function that computes is a `post`. The guest's library asks for the answer when it calls a function with
//!   arguments of which the library has not accepted the like yet, and posts from then on. What has a result at a host address
//!   is a `wait`.
//!
//! A request is what its arguments say, one after the other ([`call`]). A reply is the library's status, then each result that
//! the caller wants at a host address, in the order of the arguments.

pub mod call;
mod cublas;

use crate::{
    api::{Argument, Completion, CublasHandle, Object, Operation, Property},
    codec::{Field, Shape, Structure},
    with_cublas,
};

/// How wide a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// So many bytes.
    Bytes(u8),
    /// So many values of the type that another argument names (`cudaDataType`).
    Data {
        /// Which argument.
        of: u8,
        /// How many values.
        times: u8,
    },
    /// As wide as a scalar of a product: the type by a `cublasComputeType_t`, complex if the result's type is.
    Compute {
        /// The argument that is the compute type.
        compute: u8,
        /// The argument that is the result's type.
        of: u8,
    },
}

/// The bytes of a value of a `cudaDataType`, or `None` if there is no such type.
fn data_bytes(data: u64) -> Option<usize> {
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
    /// Bytes, by the call's arguments; `None` if the argument that says it has no value that is known.
    pub fn bytes(self, words: &[u64]) -> Option<usize> {
        // Types are C enumerations: the upper half of the word is not theirs.
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

/// What an argument is, and so how it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A handle of the library: its id.
    Handle,
    /// The handle that the call makes: an id that the guest chose.
    New,
    /// The handle that the call ends: its id.
    Gone,
    /// A stream: its id.
    Stream,
    /// An `int` or an enumeration.
    I32,
    /// An `int64_t`, `long long` or `size_t`.
    I64,
    /// A device address, as it is.
    Device,
    /// A value that the library reads: 1 and the bytes, or 0 and a device address, by the pointer mode.
    Scalar(Width),
    /// A value that the library writes: 1, and the reply has the bytes, or 0 and a device address, by the pointer mode.
    Result(Width),
    /// A value that the library reads and writes: as a scalar, and the reply has the bytes if the request had.
    InOut(Width),
    /// A value that the library writes at a host address: whether it is wanted.
    Out(Width),
    /// Values at a host address, as many as the argument with this number says.
    Array(Width, u8),
    /// Like an array if the pointer mode is the host's, else 0 and a device address.
    Scalars(Width, u8),
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

impl Kind {
    /// How it travels.
    pub const fn shape(self) -> &'static Shape {
        match self {
            Self::Handle | Self::New | Self::Gone | Self::Stream | Self::Device => {
                &Shape::Scalar("u64")
            }
            Self::I32 => &Shape::Scalar("i32"),
            Self::I64 => &Shape::Scalar("i64"),
            Self::Scalar(_) | Self::Result(_) | Self::InOut(_) | Self::Scalars(..) => {
                &ADDRESS_OR_BYTES
            }
            Self::Out(_) => &Shape::Scalar("bool"),
            Self::Array(..) => &Shape::Bytes,
        }
    }
}

/// A function of a library that travels.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// What it is, as any operation.
    pub operation: Operation,
    /// The kinds of its arguments.
    pub kinds: &'static [Kind],
}

/// One of NVIDIA's libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Library {
    /// cuBLAS.
    Cublas,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Cublas];

    /// Its functions that travel, by number.
    pub const fn functions(self) -> &'static [&'static Function] {
        match self {
            Self::Cublas => CUBLAS,
        }
    }

    /// The function with a name.
    ///
    /// # Panics
    ///
    /// If there is none: names are the table's, and constants.
    pub const fn find(self, name: &str) -> &'static Function {
        let functions = self.functions();
        let mut at = 0;
        while at < functions.len() {
            if is_same(functions[at].operation.name, name) {
                return functions[at];
            }
            at += 1;
        }
        panic!("the table has no such function")
    }

    /// The number of its first function; functions of a library have the 1,024 numbers from there on.
    pub const fn first(self) -> u16 {
        match self {
            Self::Cublas => 0x1000,
        }
    }

    /// Its name, as in `libcublas.so`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cublas => "cublas",
        }
    }

    /// The function that tells it where scalars and results are.
    pub const fn sets_pointer_mode(self) -> &'static str {
        match self {
            Self::Cublas => "cublasSetPointerMode_v2",
        }
    }

    /// The function that tells it where a handle's work goes.
    pub const fn sets_stream(self) -> &'static str {
        match self {
            Self::Cublas => "cublasSetStream_v2",
        }
    }

    /// The kind of its handles, in their ids.
    pub const fn handle_kind(self) -> u8 {
        match self {
            Self::Cublas => CublasHandle::KIND,
        }
    }
}

/// What functions return (`cublasStatus_t`).
pub mod status {
    use std::ffi::CStr;

    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// There is no such handle, or no library.
    pub const NOT_INITIALIZED: u32 = 1;
    /// Memory ran out.
    pub const ALLOC_FAILED: u32 = 3;
    /// An argument is wrong.
    pub const INVALID_VALUE: u32 = 7;
    /// An access to device memory failed.
    pub const MAPPING_ERROR: u32 = 11;
    /// The GPU failed, or what the handle needs is gone.
    pub const EXECUTION_FAILED: u32 = 13;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 14;
    /// There is no such function here, or it does not do that.
    pub const NOT_SUPPORTED: u32 = 15;

    /// The statuses that have names.
    const NAMES: &[(u32, &CStr, &CStr)] = &[
        (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
        (
            1,
            c"CUBLAS_STATUS_NOT_INITIALIZED",
            c"the library was not initialized",
        ),
        (
            3,
            c"CUBLAS_STATUS_ALLOC_FAILED",
            c"the resource allocation failed",
        ),
        (
            7,
            c"CUBLAS_STATUS_INVALID_VALUE",
            c"an unsupported value or parameter was passed to the function",
        ),
        (
            8,
            c"CUBLAS_STATUS_ARCH_MISMATCH",
            c"the function requires a feature absent from the device architecture",
        ),
        (
            11,
            c"CUBLAS_STATUS_MAPPING_ERROR",
            c"an access to GPU memory space failed",
        ),
        (
            13,
            c"CUBLAS_STATUS_EXECUTION_FAILED",
            c"the GPU program failed to execute",
        ),
        (
            14,
            c"CUBLAS_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
        (
            15,
            c"CUBLAS_STATUS_NOT_SUPPORTED",
            c"the requested functionality is not supported",
        ),
        (
            16,
            c"CUBLAS_STATUS_LICENSE_ERROR",
            c"the requested functionality requires some license",
        ),
    ];

    fn named(status: u32) -> Option<(&'static CStr, &'static CStr)> {
        let found = NAMES.iter().find(|(number, ..)| *number == status);
        found.map(|(_, name, text)| (*name, *text))
    }

    /// A status's name.
    pub fn name(status: u32) -> &'static CStr {
        named(status).map_or(c"CUBLAS_STATUS_<unknown>", |(name, _)| name)
    }

    /// A status in words.
    pub fn text(status: u32) -> &'static CStr {
        named(status).map_or(c"unknown status", |(_, text)| text)
    }
}

/// The reply of every function: a status, and what it gives at host addresses.
static REPLY: Shape = Shape::Structure(&Structure {
    name: "LibraryReply",
    doc: &["What a function of a library comes to."],
    fields: &[
        Field {
            name: "status",
            doc: &["What the function returned."],
            shape: &Shape::Scalar("i32"),
        },
        Field {
            name: "results",
            doc: &[
                "The values that the host wrote for host addresses, in the order of the arguments.",
            ],
            shape: &Shape::List(&Shape::Bytes, Some(16)),
        },
    ],
});

const fn index(names: &[&str], name: &str) -> u8 {
    let mut at = 0;
    while at < names.len() {
        if is_same(names[at], name) {
            return at as u8;
        }
        at += 1;
    }
    panic!("an argument's width is said by no argument of the function")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

macro_rules! width {
    ($names:ident; computeType) => {
        Width::Compute {
            compute: index($names, "computeType"),
            of: index($names, "Ctype"),
        }
    };
    ($names:ident; $bytes:literal) => {
        Width::Bytes($bytes)
    };
    ($names:ident; $bytes:literal * $times:literal) => {
        Width::Bytes($bytes * $times)
    };
    ($names:ident; $of:ident) => {
        width!($names; $of * 1)
    };
    ($names:ident; $of:ident * $times:literal) => {
        Width::Data {
            of: index($names, stringify!($of)),
            times: $times,
        }
    };
}

macro_rules! kind {
    ($names:ident; handle) => {
        Kind::Handle
    };
    ($names:ident; new) => {
        Kind::New
    };
    ($names:ident; gone) => {
        Kind::Gone
    };
    ($names:ident; stream) => {
        Kind::Stream
    };
    ($names:ident; i32) => {
        Kind::I32
    };
    ($names:ident; i64) => {
        Kind::I64
    };
    ($names:ident; device) => {
        Kind::Device
    };
    ($names:ident; scalar $($of:tt)*) => {
        Kind::Scalar(width!($names; $($of)*))
    };
    ($names:ident; result $($of:tt)*) => {
        Kind::Result(width!($names; $($of)*))
    };
    ($names:ident; in_out $($of:tt)*) => {
        Kind::InOut(width!($names; $($of)*))
    };
    ($names:ident; out $($of:tt)*) => {
        Kind::Out(width!($names; $($of)*))
    };
    ($names:ident; array $of:tt, $count:ident) => {
        Kind::Array(width!($names; $of), index($names, stringify!($count)))
    };
    ($names:ident; scalars $of:tt, $count:ident) => {
        Kind::Scalars(width!($names; $of), index($names, stringify!($count)))
    };
}

macro_rules! completion {
    (post) => {
        Completion::Post
    };
    (call) => {
        Completion::Call
    };
    (wait) => {
        Completion::Wait
    };
}

macro_rules! property {
    (work) => {
        Property::Work
    };
}

macro_rules! functions {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        &[$({
            #[allow(dead_code)]
            const NAMES: &[&str] = &[$(stringify!($arg)),*];
            &Function {
                operation: Operation {
                    op: $op,
                    completion: completion!($completion),
                    style: stringify!($style),
                    name: stringify!($name),
                    doc: &["The library's function of this name."],
                    per_thread: &[],
                    arguments: &[$(Argument {
                        name: stringify!($arg),
                        travels: stringify!($kind $($($of)*)?),
                    }),*],
                    properties: &[$(property!($is)),*],
                    request: &Shape::Structure(&Structure {
                        name: stringify!($name),
                        doc: &[],
                        // With its kind, so that the layout number stands for a value's width too.
                        fields: &[$(Field {
                            name: concat!(stringify!($arg), " ", stringify!($kind) $(, $(" ", stringify!($of)),*)?),
                            doc: &[],
                            shape: kind!(NAMES; $kind $($($of)*)?).shape(),
                        }),*],
                    }),
                    reply: &REPLY,
                    rings: !matches!(completion!($completion), Completion::Wait),
                },
                kinds: &[$(kind!(NAMES; $kind $($($of)*)?)),*],
            }
        },)*]
    };
}

/// Hands over a table's rows.
macro_rules! table {
    ($with:ident) => {
        $with!(functions)
    };
}

static CUBLAS: &[&Function] = table!(with_cublas);

/// The function with a number, and its library; `None` if there is none.
pub fn function(op: u16) -> Option<(Library, &'static Function)> {
    Library::ALL.into_iter().find_map(|library| {
        let at = op.checked_sub(library.first())?;
        let function = library.functions().get(usize::from(at))?;
        (function.operation.op == op).then_some((library, *function))
    })
}

/// Every function of every library.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    Library::ALL
        .into_iter()
        .flat_map(|library| library.functions().iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_its_number() {
        for library in Library::ALL {
            assert!(library.functions().len() <= 1 << 10);
            for (at, of) in library.functions().iter().enumerate() {
                assert_eq!(
                    usize::from(of.operation.op),
                    usize::from(library.first()) + at
                );
                assert_eq!(function(of.operation.op), Some((library, *of)));
                assert_eq!(of.kinds.len(), of.operation.arguments.len());
            }
            let behind = library.first() + library.functions().len() as u16;
            assert_eq!(function(behind), None);
        }
        assert_eq!(function(0x0901), None);
    }

    #[test]
    fn a_layout_stands_for_the_width_of_values_too() {
        // They differ in nothing else.
        let [single, double] =
            ["cublasSaxpy_v2", "cublasDaxpy_v2"].map(|name| Library::Cublas.find(name));
        let names =
            |of: &Function| -> Vec<_> { of.operation.arguments.iter().map(|of| of.name).collect() };
        assert_eq!(names(single), names(double));
        assert_ne!(single.operation.layout(), double.operation.layout());
    }

    #[test]
    fn every_status_has_a_name_and_no_other_number_has() {
        use status::*;
        for of in [
            SUCCESS,
            NOT_INITIALIZED,
            ALLOC_FAILED,
            INVALID_VALUE,
            MAPPING_ERROR,
            EXECUTION_FAILED,
            INTERNAL_ERROR,
            NOT_SUPPORTED,
        ] {
            assert_ne!(name(of), name(99), "{of}");
            assert_ne!(text(of), text(99), "{of}");
        }
        assert_eq!(name(NOT_SUPPORTED), c"CUBLAS_STATUS_NOT_SUPPORTED");
        assert_eq!(name(99), c"CUBLAS_STATUS_<unknown>");
    }

    #[test]
    fn a_scalar_is_as_wide_as_the_argument_says_that_names_its_type() {
        let gemm = Library::Cublas.find("cublasGemmEx");
        let alpha = gemm.kinds[6];
        let Kind::Scalar(width) = alpha else {
            panic!("{alpha:?}")
        };
        // The compute type is argument 17, the type of C argument 15.
        let bytes = |compute, of| {
            let mut words = vec![0; 19];
            (words[17], words[15]) = (compute, of);
            width.bytes(&words)
        };
        // 16F, 32F, 32F of halves, 32F of complex, 64F, 64F of complex, 32I.
        assert_eq!(bytes(64, 2), Some(2));
        assert_eq!(bytes(68, 0), Some(4));
        assert_eq!(bytes(68, 2), Some(4));
        assert_eq!(bytes(68, 4), Some(8));
        assert_eq!(bytes(70, 1), Some(8));
        assert_eq!(bytes(70, 5), Some(16));
        assert_eq!(bytes(72, 10), Some(4));
        assert_eq!(bytes(1, 0), None);
        // The upper half of a register is nobody's.
        assert_eq!(bytes(64 | 7 << 32, 2), Some(2));
        let modified = Library::Cublas.find("cublasDrotmg_v2");
        assert_eq!(modified.kinds[5], Kind::InOut(Width::Bytes(40)));
    }
}
