// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's libraries, which the host serves: a table for each, of the functions that the guest sends to the host.
//!
//! The guest's library and the worker are both generated from a function's row: number, completion, style, name,
//! arguments with their kinds ([`Kind`]), and properties, as in [`api`](crate::api). The numbers share one space with
//! the driver's, and never change either.
//!
//! * Style: for `table`, the guest's symbol is generated from the row; for `guest`, it is written by hand.
//! * Completion: a function that computes is a `post`. The guest's library waits for the answer to the first call of a
//!   form that the library has not accepted yet, and posts later calls of this form. A function with a result at a host
//!   address is a `call`, or a `wait` if the library waits for the GPU in it.
//!
//! A request consists of the values of its arguments, in order ([`call`]). A reply consists of the library's status and
//! of each result that the caller wants at a host address, in the order of the arguments.

pub mod call;
mod class;
pub mod cublas;
pub mod cublaslt;
pub mod cudnn;
pub mod cufft;
pub mod curand;
pub mod cusolver;
pub mod cusparse;
pub mod cusparselt;
mod kind;
pub mod nvjpeg;
mod status;
mod table;
pub mod variables;

pub use class::Class;
pub use kind::{Kind, MAX_ARRAY, MAX_SCRATCH, Width};
pub use status::{SUCCESS, Statuses};

use crate::{
    api::{Argument, Completion, Description, Operation, Properties, Property},
    codec::{Field, Shape, Structure},
};
use table::{
    REPLY, completion, descriptions, fits_slot, functions, index, kind, property, table, width,
};

/// A function of a library that the guest sends to the host.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// The function, as any operation.
    pub operation: Operation,
    /// The kinds of its arguments.
    pub kinds: &'static [Kind],
}

impl Function {
    /// The library that has it.
    pub fn library(&self) -> Library {
        let (library, _) =
            place(self.operation.op).expect("the tables begin with the first library's");
        library
    }

    /// The argument that is the handle in whose context and stream the call runs, and its class.
    pub fn handle(&self) -> Option<(usize, Class)> {
        self.find(|kind| match kind {
            Kind::Handle(class) => Some(class),
            _ => None,
        })
    }

    /// The argument that is the object that the call makes, and its class.
    pub fn makes(&self) -> Option<(usize, Class)> {
        self.find(|kind| match kind {
            Kind::New(class) => Some(class),
            _ => None,
        })
    }

    /// The argument that is the object that the call destroys, and its class.
    pub fn ends(&self) -> Option<(usize, Class)> {
        self.find(|kind| match kind {
            Kind::Gone(class) => Some(class),
            _ => None,
        })
    }

    fn find(&self, is: impl Fn(Kind) -> Option<Class>) -> Option<(usize, Class)> {
        let mut kinds = self.kinds.iter().enumerate();
        kinds.find_map(|(at, kind)| Some((at, is(*kind)?)))
    }

    /// Whether the function is this project's own, not one of NVIDIA's library.
    pub fn is_own(&self) -> bool {
        self.operation.name.starts_with("gpgpu")
    }

    /// Whether it asks about the library itself, for example its version: it uses no object and no memory.
    pub fn is_about_library(&self) -> bool {
        let is = |kind: &Kind| matches!(kind, Kind::I32 | Kind::I64 | Kind::Out(_) | Kind::Reply);
        self.operation.completion == Completion::Call && self.kinds.iter().all(is)
    }

    /// Whether the worker's part is written by hand, because the arguments are not those of the library's function.
    pub fn is_composed(&self) -> bool {
        let is = |kind: &Kind| matches!(kind, Kind::Blob | Kind::Reply);
        self.kinds.iter().any(is)
    }
}

macro_rules! libraries {
    ($($(#[doc = $doc:literal])+ $library:ident $name:literal = $first:literal: $with:ident, $module:ident;)*) => {
        /// One of NVIDIA's libraries.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Library {
            $($(#[doc = $doc])+ $library,)*
        }

        impl Library {
            /// All libraries, by their functions' numbers.
            pub const ALL: [Self; [$(Self::$library),*].len()] = [$(Self::$library),*];

            /// The functions that the guest sends to the host, by number.
            pub const fn functions(self) -> &'static [&'static Function] {
                match self {
                    $(Self::$library => {
                        static FUNCTIONS: &[&Function] = table!($with, functions);
                        FUNCTIONS
                    })*
                }
            }

            /// The descriptions of [`Library::functions`], in the same order.
            pub const fn descriptions(self) -> &'static [&'static Description] {
                match self {
                    $(Self::$library => {
                        static DESCRIPTIONS: &[&Description] = table!($with, descriptions);
                        DESCRIPTIONS
                    })*
                }
            }

            /// The number of its first function. A library has 1,024 numbers from there on.
            pub const fn first(self) -> u16 {
                match self {
                    $(Self::$library => $first,)*
                }
            }

            /// Its name, as in `libcublas.so`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$library => $name,)*
                }
            }

            /// The type of its functions' results.
            pub const fn statuses(self) -> &'static Statuses {
                match self {
                    $(Self::$library => &$module::STATUSES,)*
                }
            }
        }
    };
}

libraries! {
    /// cuBLAS.
    Cublas "cublas" = 0x1000: with_cublas, cublas;
    /// cuBLASLt.
    CublasLt "cublaslt" = 0x1400: with_cublaslt, cublaslt;
    /// cuFFT.
    Cufft "cufft" = 0x1800: with_cufft, cufft;
    /// cuRAND.
    Curand "curand" = 0x1c00: with_curand, curand;
    /// cuSOLVER.
    Cusolver "cusolver" = 0x2000: with_cusolver, cusolver;
    /// cuSPARSE.
    Cusparse "cusparse" = 0x2400: with_cusparse, cusparse;
    /// cuDNN.
    Cudnn "cudnn" = 0x2800: with_cudnn, cudnn;
    /// cuSPARSELt.
    CusparseLt "cusparselt" = 0x2c00: with_cusparselt, cusparselt;
    /// nvJPEG.
    Nvjpeg "nvjpeg" = 0x3000: with_nvjpeg, nvjpeg;
}

impl Library {
    /// The function with a number.
    ///
    /// # Panics
    ///
    /// If the library has no function with this number. Callers pass a constant from the table, so the build fails in
    /// that case.
    pub const fn row(self, op: u16) -> &'static Function {
        self.functions()[(op - self.first()) as usize]
    }

    /// The function with a name.
    ///
    /// # Panics
    ///
    /// If the library has no function of this name. Callers pass a constant from the table.
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
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The function with this number and its library; `None` if there is none.
pub fn function(op: u16) -> Option<(Library, &'static Function)> {
    let (library, at) = place(op)?;
    library.functions().get(at).map(|of| (library, *of))
}

/// The description of the function with this number; `None` if there is none.
pub fn description(op: u16) -> Option<&'static Description> {
    let (library, at) = place(op)?;
    library.descriptions().get(at).copied()
}

/// The library to which this number belongs, and the function's index there.
#[inline]
fn place(op: u16) -> Option<(Library, usize)> {
    let mut libraries = Library::ALL.into_iter().rev();
    libraries.find_map(|library| Some((library, usize::from(op.checked_sub(library.first())?))))
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
                let description = of.operation.description();
                assert!(std::ptr::eq(description, library.descriptions()[at]));
                assert_eq!(of.kinds.len(), description.arguments.len());
                assert!(std::ptr::eq(library.row(of.operation.op), *of));
                assert_eq!(of.library(), library);
            }
            let behind = library.first() + library.functions().len() as u16;
            assert_eq!(function(behind), None);
        }
        assert_eq!(function(0x0901), None);
    }

    #[test]
    fn results_that_may_be_long_do_not_go_by_the_ring() {
        let rings = |name: &str| Library::Curand.find(name).operation.rings;
        assert!(!rings("curandGetDirectionVectors32") && rings("curandGenerate"));
        for of in functions() {
            let is_long = |kind: &Kind| matches!(kind, Kind::Reply | Kind::Outs(..));
            assert!(!of.operation.rings || !of.kinds.iter().any(is_long));
        }
    }

    #[test]
    fn a_layout_stands_for_the_width_of_values_too() {
        // They differ in nothing else.
        let [single, double] =
            ["cublasSaxpy_v2", "cublasDaxpy_v2"].map(|name| Library::Cublas.find(name));
        let names = |of: &Function| -> Vec<_> {
            of.operation
                .description()
                .arguments
                .iter()
                .map(|of| of.name)
                .collect()
        };
        assert_eq!(names(single), names(double));
        assert_ne!(single.operation.layout(), double.operation.layout());
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
        // The upper half of a register is undefined.
        assert_eq!(bytes(64 | 7 << 32, 2), Some(2));
        let modified = Library::Cublas.find("cublasDrotmg_v2");
        assert_eq!(modified.kinds[5], Kind::InOut(Width::Bytes(40)));
    }
}
