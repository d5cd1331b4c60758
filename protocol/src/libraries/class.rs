// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The objects of libraries: handles, plans and descriptors.

use super::{Kind, Library};
use crate::api::{object_id_of, object_kind};

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal: $($word:ident $($value:literal)?),+;)*) => {
        /// A class of objects. Its number is the kind in its objects' ids, as for the driver's objects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Class {
            $($(#[doc = $doc])+ $name = $number,)*
        }

        impl Class {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn about(self) -> About {
                match self {
                    $(Self::$name => about!(About::of(stringify!($name), &[$($doc),+]); $($word $($value)?),+),)*
                }
            }
        }
    };
}

macro_rules! about {
    ($about:expr; $($word:ident $($value:literal)?),*) => {{
        let about = $about;
        $(let about = about.$word($($value)?);)*
        about
    }};
}

/// The description of a class.
#[derive(Clone, Copy)]
struct About {
    name: &'static str,
    doc: &'static [&'static str],
    sets_stream: Option<&'static str>,
    sets_pointer_mode: Option<&'static str>,
    device_mib: u64,
    most: usize,
    is_in_context: bool,
    is_handle: bool,
}

impl About {
    const fn of(name: &'static str, doc: &'static [&'static str]) -> Self {
        Self {
            name,
            doc,
            sets_stream: None,
            sets_pointer_mode: None,
            device_mib: 0,
            most: 0,
            is_in_context: true,
            is_handle: false,
        }
    }

    /// Marks a descriptor: it is in the host's memory alone, so it belongs to no context.
    const fn descriptor(mut self) -> Self {
        (self.is_in_context, self.most) = (false, 1 << 18);
        self
    }

    /// Marks a handle: it costs the host megabytes, so a client has at most a thousand.
    const fn handle(mut self) -> Self {
        (self.is_handle, self.most) = (true, 1 << 10);
        self
    }

    /// So many there may be at once.
    const fn most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    const fn stream(mut self, function: &'static str) -> Self {
        self.sets_stream = Some(function);
        self
    }

    const fn pointer_mode(mut self, function: &'static str) -> Self {
        self.sets_pointer_mode = Some(function);
        self
    }

    const fn mib(mut self, mib: u64) -> Self {
        self.device_mib = mib;
        self
    }
}

// `handle` or `descriptor` is the sort of object. `stream` names the function that sets the stream of an object's work;
// only handles have one. `pointer_mode` names the function that says where scalars and results are. `mib` is charged to
// the GPU's memory when an object is made.
classes! {
    /// `cublasHandle_t`, which is a `cublasLtHandle_t` too. It took 68 MiB on an H100.
    CublasHandle = 0x90: handle, stream "cublasSetStream_v2", pointer_mode "cublasSetPointerMode_v2", mib 96;
    /// A `cublasLtHandle_t` that is no handle of cuBLAS. Its calls name their streams, and their descriptors say where
    /// scalars are.
    CublasLtHandle = 0x91: handle, mib 32;
    /// A plan: the descriptors and the algorithm of a product of cuBLASLt, which the host keeps. CUDA has no such object.
    CublasLtPlan = 0x92: descriptor, most 4096;
    /// `cufftHandle`. Frameworks keep thousands; the tables of a long transform are charged when it is made.
    CufftPlan = 0x98: handle, most 8192, stream "cufftSetStream", mib 2;
    /// `curandGenerator_t`. The states of the largest, MT19937, are 20 MiB.
    CurandGenerator = 0x9c: handle, stream "curandSetStream", mib 32;
    /// `cusolverDnHandle_t`. It took 96 MiB on an H100.
    CusolverDn = 0xa0: handle, stream "cusolverDnSetStream", mib 128;
    /// `cusolverDnParams_t`.
    CusolverDnParams = 0xa1: descriptor;
    /// `gesvdjInfo_t`.
    GesvdjInfo = 0xa2: descriptor;
    /// `syevjInfo_t`.
    SyevjInfo = 0xa3: descriptor;
    /// `cusolverDnIRSParams_t`.
    IrsParams = 0xa4: descriptor;
    /// `cusolverDnIRSInfos_t`.
    IrsInfos = 0xa5: descriptor;
    /// `cusolverSpHandle_t`.
    CusolverSp = 0xa6: handle, stream "cusolverSpSetStream", mib 32;
    /// `csrqrInfo_t`, which has GPU memory.
    CsrqrInfo = 0xa7: most 1024;
    /// `cusparseHandle_t`.
    CusparseHandle = 0xb0: handle, stream "cusparseSetStream", pointer_mode "cusparseSetPointerMode", mib 32;
    /// `cusparseMatDescr_t`.
    CusparseMatDescr = 0xb1: descriptor;
    /// `cusparseSpVecDescr_t`.
    SpVec = 0xb2: descriptor;
    /// `cusparseDnVecDescr_t`.
    DnVec = 0xb3: descriptor;
    /// `cusparseSpMatDescr_t`.
    SpMat = 0xb4: descriptor;
    /// `cusparseDnMatDescr_t`.
    DnMat = 0xb5: descriptor;
    /// `cusparseSpGEMMDescr_t`.
    SpGemm = 0xb6: most 4096;
    /// `cusparseSpSVDescr_t`.
    SpSv = 0xb7: most 4096;
    /// `cusparseSpSMDescr_t`.
    SpSm = 0xb8: most 4096;
    /// `cusparseSpGEAMDescr_t`.
    SpGeam = 0xb9: most 4096;
    /// `bsrsv2Info_t`, which has GPU memory, like the other objects of the older functions.
    Bsrsv2Info = 0xba: most 1024;
    /// `bsrsm2Info_t`.
    Bsrsm2Info = 0xbb: most 1024;
    /// `csric02Info_t`.
    Csric02Info = 0xbc: most 1024;
    /// `bsric02Info_t`.
    Bsric02Info = 0xbd: most 1024;
    /// `csrilu02Info_t`.
    Csrilu02Info = 0xbe: most 1024;
    /// `bsrilu02Info_t`.
    Bsrilu02Info = 0xbf: most 1024;
    /// `csru2csrInfo_t`.
    Csru2csrInfo = 0xc0: most 1024;
    /// `pruneInfo_t`.
    PruneInfo = 0xc1: most 1024;
    /// `cudnnHandle_t`.
    CudnnHandle = 0xd0: handle, stream "cudnnSetStream", mib 32;
    /// `cudnnTensorDescriptor_t`.
    CudnnTensor = 0xd1: descriptor;
    /// `cudnnFilterDescriptor_t`.
    CudnnFilter = 0xd2: descriptor;
    /// `cudnnConvolutionDescriptor_t`.
    CudnnConvolution = 0xd3: descriptor;
    /// `cudnnPoolingDescriptor_t`.
    CudnnPooling = 0xd4: descriptor;
    /// `cudnnActivationDescriptor_t`.
    CudnnActivation = 0xd5: descriptor;
    /// `cudnnLRNDescriptor_t`.
    CudnnLrn = 0xd6: descriptor;
    /// `cudnnDropoutDescriptor_t`.
    CudnnDropout = 0xd7: descriptor;
    /// `cudnnSpatialTransformerDescriptor_t`.
    CudnnSpatialTransformer = 0xd8: descriptor;
    /// `cudnnOpTensorDescriptor_t`.
    CudnnOpTensor = 0xd9: descriptor;
    /// `cudnnReduceTensorDescriptor_t`.
    CudnnReduceTensor = 0xda: descriptor;
    /// `cudnnRNNDescriptor_t`.
    CudnnRnn = 0xdb: descriptor;
    /// `cudnnRNNDataDescriptor_t`.
    CudnnRnnData = 0xdc: descriptor;
    /// `cudnnCTCLossDescriptor_t`.
    CudnnCtcLoss = 0xdd: descriptor;
    /// `cudnnTensorTransformDescriptor_t`.
    CudnnTensorTransform = 0xde: descriptor;
    /// `cudnnBackendDescriptor_t`, of any type but a variant pack.
    CudnnBackend = 0xdf: descriptor;
    /// `nvjpegHandle_t`. Its calls name their streams.
    NvjpegHandle = 0xe0: handle, mib 32;
    /// `nvjpegJpegState_t`, which has GPU memory, like most of nvJPEG's objects.
    NvjpegState = 0xe1: most 1024;
    /// `nvjpegJpegDecoder_t`.
    NvjpegDecoder = 0xe2: most 1024;
    /// `nvjpegJpegStream_t`, with the bytes of the JPEG that it has parsed.
    NvjpegStream = 0xe3: most 4096;
    /// `nvjpegDecodeParams_t`.
    NvjpegDecodeParams = 0xe4: most 4096;
    /// `nvjpegBufferPinned_t`.
    NvjpegPinned = 0xe5: most 4096;
    /// `nvjpegBufferDevice_t`.
    NvjpegDevice = 0xe6: most 4096;
    /// `nvjpegEncoderState_t`.
    NvjpegEncoderState = 0xe7: most 1024;
    /// `nvjpegEncoderParams_t`.
    NvjpegEncoderParams = 0xe8: most 4096;
    /// Bytes of JPEGs that are sent ahead of a call. CUDA has no such object.
    NvjpegBytes = 0xe9: most 64;
    /// `cusparseLtHandle_t`. Its calls name their streams.
    CusparseLtHandle = 0xf0: handle, mib 32;
    /// `cusparseLtMatmulPlan_t`, with the descriptors that it was made from. It belongs to one handle.
    CusparseLtPlan = 0xf1: descriptor, most 4096;
}

impl Class {
    /// The kind in its objects' ids.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The class with this number; `None` if there is none.
    pub fn from_number(number: u8) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|class| class.number() == number)
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        self.about().name
    }

    /// Its description.
    pub const fn doc(self) -> &'static [&'static str] {
        self.about().doc
    }

    /// The function that sets the stream of an object's work; `None` for a class without GPU work.
    pub const fn sets_stream(self) -> Option<&'static str> {
        self.about().sets_stream
    }

    /// The function that says where scalars and results are; `None` if they are always at host addresses.
    pub const fn sets_pointer_mode(self) -> Option<&'static str> {
        self.about().sets_pointer_mode
    }

    /// Whether the object is a handle: calls run in its context and stream.
    pub const fn is_handle(self) -> bool {
        self.about().is_handle
    }

    /// Whether an object belongs to a context and is destroyed with it.
    pub const fn is_in_context(self) -> bool {
        self.about().is_in_context
    }

    /// The bytes of GPU memory that are charged when an object is made.
    pub const fn device_bytes(self) -> u64 {
        self.about().device_mib << 20
    }

    /// The most objects of this class that one client has.
    pub const fn most(self) -> usize {
        self.about().most
    }

    /// The library that makes the objects of this class.
    ///
    /// # Panics
    ///
    /// If no library makes them; a test checks each class.
    pub const fn library(self) -> Library {
        // A table, because every call asks for this.
        static MAKERS: [Option<Library>; 1 << u8::BITS] = makers();
        MAKERS[self as usize].expect("a library makes objects of each class")
    }

    /// The id of the `serial`-th object.
    pub fn id(self, serial: u64) -> u64 {
        object_id_of(self.number(), serial)
    }

    /// Whether this is the id of an object of this class.
    pub const fn has(self, id: u64) -> bool {
        object_kind(id) == self.number()
    }

    /// Whether a function that takes objects of this class takes the object with this id: libraries share some classes.
    pub const fn takes(self, id: u64) -> bool {
        let is_of_cublas = matches!(self, Self::CublasLtHandle) && Self::CublasHandle.has(id);
        self.has(id) || is_of_cublas
    }
}

/// The library that makes objects of each class, by the class's number.
const fn makers() -> [Option<Library>; 1 << u8::BITS] {
    let mut makers = [None; 1 << u8::BITS];
    let mut of = 0;
    while of < Library::ALL.len() {
        let (library, mut at) = (Library::ALL[of], 0);
        let functions = library.functions();
        while at < functions.len() {
            let (kinds, mut argument) = (functions[at].kinds, 0);
            while argument < kinds.len() {
                if let Kind::New(class) = kinds[argument] {
                    makers[class as usize] = Some(library);
                }
                argument += 1;
            }
            at += 1;
        }
        of += 1;
    }
    makers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::KINDS, libraries::functions};

    #[test]
    fn each_class_has_a_number_of_its_own() {
        for (at, class) in Class::ALL.iter().enumerate() {
            assert_eq!(Class::from_number(class.number()), Some(*class));
            let others = &Class::ALL[at + 1..];
            assert!(others.iter().all(|of| of.number() != class.number()));
            assert!(KINDS.iter().all(|of| of.number != class.number()));
            assert!(class.most() > 0, "{class:?}");
            assert!(class.has(class.id(7)));
            assert!(class.library().functions().len() > 1);
        }
        assert_eq!(Class::from_number(0x10), None);
    }

    /// Programs pass cuBLASLt a handle of cuBLAS, which is valid natively.
    #[test]
    fn a_handle_of_cublas_is_one_of_cublaslt_and_not_the_other_way_round() {
        let [blas, lt] = [Class::CublasHandle, Class::CublasLtHandle];
        assert!(lt.takes(blas.id(3)) && lt.takes(lt.id(3)));
        assert!(blas.takes(blas.id(3)) && !blas.takes(lt.id(3)));
        assert!(!lt.has(blas.id(3)));
        assert!([0, 1, 0x110].iter().all(|id| !lt.takes(*id)));
    }

    #[test]
    fn functions_that_a_class_names_are_in_the_tables() {
        for class in Class::ALL {
            for name in [class.sets_stream(), class.sets_pointer_mode()]
                .into_iter()
                .flatten()
            {
                assert!(functions().any(|of| of.operation.name == name), "{name}");
            }
        }
    }
}
