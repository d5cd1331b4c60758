// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG (nvjpeg.h).
//!
//! A request carries a JPEG as bytes, never as an address. Up to [`INLINE`] bytes are in the call's `data`, which is
//! one JPEG, or in its `images`, which [`form`] describes. More bytes are sent ahead, in pieces, to an object of this
//! project's own (`gpgpuJpegBytes`), which the call names as `more`. An image (`nvjpegImage_t`) has device addresses
//! and distances between rows, and is sent unchanged.
//!
//! The program's allocators have no rows: the host's part allocates memory and charges it.

pub mod form;

use super::Statuses;
use crate::layout::MAX_DATA_BYTES;

/// The functions' results (`nvjpegStatus_t`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// The library is missing.
    pub const NOT_INITIALIZED: u32 = 1;
    /// An argument is wrong.
    pub const INVALID_PARAMETER: u32 = 2;
    /// Memory ran out.
    pub const ALLOCATOR_FAILURE: u32 = 5;
    /// The GPU failed, or an object that the call needs was destroyed.
    pub const EXECUTION_FAILED: u32 = 6;
    /// The GPU does not support this.
    pub const ARCH_MISMATCH: u32 = 7;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 8;
    /// The function does not exist here, or does not support this.
    pub const NOT_SUPPORTED: u32 = 9;
}

/// `nvjpegStatus_t`. It has no status for an invalid handle.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::INVALID_PARAMETER,
    not_initialized: status::NOT_INITIALIZED,
    alloc_failed: status::ALLOCATOR_FAILURE,
    invalid_value: status::INVALID_PARAMETER,
    execution_failed: status::EXECUTION_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
    names: &[
        (0, c"NVJPEG_STATUS_SUCCESS", c"no errors"),
        (
            1,
            c"NVJPEG_STATUS_NOT_INITIALIZED",
            c"the library is not initialized",
        ),
        (
            2,
            c"NVJPEG_STATUS_INVALID_PARAMETER",
            c"an argument is wrong",
        ),
        (3, c"NVJPEG_STATUS_BAD_JPEG", c"the JPEG cannot be parsed"),
        (
            4,
            c"NVJPEG_STATUS_JPEG_NOT_SUPPORTED",
            c"a JPEG of this kind is not supported",
        ),
        (5, c"NVJPEG_STATUS_ALLOCATOR_FAILURE", c"memory ran out"),
        (6, c"NVJPEG_STATUS_EXECUTION_FAILED", c"the GPU failed"),
        (
            7,
            c"NVJPEG_STATUS_ARCH_MISMATCH",
            c"the GPU does not support it",
        ),
        (
            8,
            c"NVJPEG_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
        (
            9,
            c"NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
            c"the implementation does not support it",
        ),
        (
            10,
            c"NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
            c"the JPEG is incomplete",
        ),
    ],
    unknown: (c"NVJPEG_STATUS_<unknown>", c"unknown status"),
};

/// The most bytes of JPEGs that a call carries: all arguments and the answer's room are data of one command.
pub const INLINE: usize = MAX_DATA_BYTES - (256 << 10);

/// The most bytes of a piece, either of JPEGs that are sent ahead of a call or of an encoded JPEG that is fetched.
pub const PIECE: usize = 3 << 20;

/// The most bytes of JPEGs that the host keeps for a client, in all of its objects.
pub const MOST_KEPT: u64 = 1 << 30;

/// The most components of an image (`NVJPEG_MAX_COMPONENT`).
pub const COMPONENTS: usize = 4;

/// The most images of a batch.
pub const MOST_IMAGES: usize = 1 << 12;

/// The largest padding of a handle: it rounds allocations up to a multiple of its padding.
pub const MOST_PADDING: u64 = 1 << 20;

/// The backends of `nvjpegBackend_t` that read JPEGs in device memory, which no supported call passes.
pub const DEVICE_BACKENDS: [i32; 2] = [4, 5];

/// Passes nvJPEG's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_nvjpeg {
    ($callback:ident) => {
        $callback! {
            0x3000 call guest nvjpegCreateEx(handle: new[NvjpegHandle], backend: i32, flags: i32);
            0x3001 wait table nvjpegDestroy(handle: gone[NvjpegHandle]);
            0x3002 call guest nvjpegGetProperty(property: i32, value: out[4]) pure;
            0x3003 call guest nvjpegGetCudartProperty(property: i32, value: out[4]) pure;
            0x3004 call table nvjpegSetDeviceMemoryPadding(padding: i64, handle: handle[NvjpegHandle]);
            0x3005 call table nvjpegGetDeviceMemoryPadding(padding: out[8], handle: handle[NvjpegHandle]);
            0x3006 call table nvjpegSetPinnedMemoryPadding(padding: i64, handle: handle[NvjpegHandle]);
            0x3007 call table nvjpegGetPinnedMemoryPadding(padding: out[8], handle: handle[NvjpegHandle]);
            0x3008 call table nvjpegGetHardwareDecoderInfo(handle: handle[NvjpegHandle], engines: out[4], cores: out[4]);
            0x3009 call table nvjpegGetHardwareEncoderInfo(handle: handle[NvjpegHandle], engines: out[4]);
            0x300a call guest gpgpuJpegBytes(handle: handle[NvjpegHandle], bytes: new[NvjpegBytes], length: i64);
            0x300b call guest gpgpuJpegBytesFill(handle: handle[NvjpegHandle], bytes: object[NvjpegBytes], at: i64, piece: blob);
            0x300c call guest gpgpuJpegBytesEnd(bytes: gone[NvjpegBytes]);
            0x300d call guest nvjpegJpegStateCreate(handle: handle[NvjpegHandle], state: new[NvjpegState]);
            0x300e wait table nvjpegJpegStateDestroy(state: gone[NvjpegState]);
            0x300f call guest nvjpegGetImageInfo(handle: handle[NvjpegHandle], data: blob, more: object[NvjpegBytes], components: out[4], subsampling: out[4], widths: out[16], heights: out[16]);
            0x3010 wait guest nvjpegDecode(handle: handle[NvjpegHandle], state: object[NvjpegState], data: blob, more: object[NvjpegBytes], format: i32, destination: in[64], stream: stream) work;
            0x3011 wait guest nvjpegDecodeBatchedInitialize(handle: handle[NvjpegHandle], state: object[NvjpegState], batch: i32, threads: i32, format: i32);
            0x3012 wait table nvjpegDecodeBatchedPreAllocate(handle: handle[NvjpegHandle], state: object[NvjpegState], batch: i32, width: i32, height: i32, subsampling: i32, format: i32);
            0x3013 wait guest nvjpegDecodeBatchedParseJpegTables(handle: handle[NvjpegHandle], state: object[NvjpegState], data: blob, more: object[NvjpegBytes]);
            0x3014 wait guest nvjpegDecodeBatched(handle: handle[NvjpegHandle], state: object[NvjpegState], images: blob, more: object[NvjpegBytes], stream: stream) work;
            0x3015 wait guest nvjpegDecodeBatchedEx(handle: handle[NvjpegHandle], state: object[NvjpegState], images: blob, more: object[NvjpegBytes], stream: stream) work;
            0x3016 call guest nvjpegEncoderStateCreate(handle: handle[NvjpegHandle], state: new[NvjpegEncoderState], stream: stream);
            0x3017 call guest nvjpegEncoderStateCreateWithBackend(handle: handle[NvjpegHandle], state: new[NvjpegEncoderState], backend: i32, stream: stream);
            0x3018 wait table nvjpegEncoderStateDestroy(state: gone[NvjpegEncoderState]);
            0x3019 call guest nvjpegEncoderParamsCreate(handle: handle[NvjpegHandle], params: new[NvjpegEncoderParams], stream: stream);
            0x301a wait table nvjpegEncoderParamsDestroy(params: gone[NvjpegEncoderParams]);
            0x301b call guest nvjpegEncoderParamsSetQuality(params: object[NvjpegEncoderParams], quality: i32, stream: stream);
            0x301c call guest nvjpegEncoderParamsSetEncoding(params: object[NvjpegEncoderParams], encoding: i32, stream: stream);
            0x301d call guest nvjpegEncoderParamsSetOptimizedHuffman(params: object[NvjpegEncoderParams], optimized: i32, stream: stream);
            0x301e call guest nvjpegEncoderParamsSetSamplingFactors(params: object[NvjpegEncoderParams], subsampling: i32, stream: stream);
            0x301f call guest nvjpegEncoderParamsSetRestartInterval(params: object[NvjpegEncoderParams], interval: i32, stream: stream);
            0x3020 call guest nvjpegEncoderParamsCopyMetadata(state: object[NvjpegEncoderState], params: object[NvjpegEncoderParams], jpeg: object[NvjpegStream], stream: stream);
            0x3021 call guest nvjpegEncoderParamsCopyQuantizationTables(params: object[NvjpegEncoderParams], jpeg: object[NvjpegStream], stream: stream);
            0x3022 call guest nvjpegEncoderParamsCopyHuffmanTables(state: object[NvjpegEncoderState], params: object[NvjpegEncoderParams], jpeg: object[NvjpegStream], stream: stream);
            0x3023 call table nvjpegEncodeGetBufferSize(handle: handle[NvjpegHandle], params: object[NvjpegEncoderParams], width: i32, height: i32, length: out[8]);
            0x3024 wait guest nvjpegEncodeYUV(handle: handle[NvjpegHandle], state: object[NvjpegEncoderState], params: object[NvjpegEncoderParams], source: in[64], subsampling: i32, width: i32, height: i32, stream: stream) work;
            0x3025 wait guest nvjpegEncodeImage(handle: handle[NvjpegHandle], state: object[NvjpegEncoderState], params: object[NvjpegEncoderParams], source: in[64], format: i32, width: i32, height: i32, stream: stream) work;
            0x3026 wait guest nvjpegEncode(handle: handle[NvjpegHandle], state: object[NvjpegEncoderState], params: object[NvjpegEncoderParams], source: in[64], subsampling: i32, format: i32, width: i32, height: i32, stream: stream) work;
            0x3027 wait guest nvjpegEncodeRetrieveBitstream(handle: handle[NvjpegHandle], state: object[NvjpegEncoderState], room: i64, from: i64, stream: stream, length: out[8], piece: reply) work;
            0x3028 wait guest nvjpegEncodeRetrieveBitstreamDevice(handle: handle[NvjpegHandle], state: object[NvjpegEncoderState], data: device, length: inout[8], stream: stream) work;
            0x3029 call guest nvjpegBufferPinnedCreate(handle: handle[NvjpegHandle], buffer: new[NvjpegPinned]);
            0x302a wait guest nvjpegBufferPinnedResize(buffer: object[NvjpegPinned], size: i64, stream: stream);
            0x302b wait table nvjpegBufferPinnedDestroy(buffer: gone[NvjpegPinned]);
            0x302c call guest nvjpegBufferDeviceCreate(handle: handle[NvjpegHandle], buffer: new[NvjpegDevice]);
            0x302d wait guest nvjpegBufferDeviceResize(buffer: object[NvjpegDevice], size: i64, stream: stream);
            0x302e call table nvjpegBufferDeviceRetrieve(buffer: object[NvjpegDevice], size: out[8], address: out[8]);
            0x302f wait table nvjpegBufferDeviceDestroy(buffer: gone[NvjpegDevice]);
            0x3030 call table nvjpegStateAttachPinnedBuffer(state: object[NvjpegState], buffer: object[NvjpegPinned]);
            0x3031 call table nvjpegStateAttachDeviceBuffer(state: object[NvjpegState], buffer: object[NvjpegDevice]);
            0x3032 call guest nvjpegJpegStreamCreate(handle: handle[NvjpegHandle], jpeg: new[NvjpegStream]);
            0x3033 wait table nvjpegJpegStreamDestroy(jpeg: gone[NvjpegStream]);
            0x3034 wait guest nvjpegJpegStreamParse(handle: handle[NvjpegHandle], data: blob, more: object[NvjpegBytes], metadata: i32, save: i32, jpeg: object[NvjpegStream]);
            0x3035 wait guest nvjpegJpegStreamParseHeader(handle: handle[NvjpegHandle], data: blob, more: object[NvjpegBytes], jpeg: object[NvjpegStream]);
            0x3036 wait guest nvjpegJpegStreamParseTables(handle: handle[NvjpegHandle], data: blob, more: object[NvjpegBytes], jpeg: object[NvjpegStream]);
            0x3037 call table nvjpegJpegStreamGetJpegEncoding(jpeg: object[NvjpegStream], encoding: out[4]);
            0x3038 call table nvjpegJpegStreamGetFrameDimensions(jpeg: object[NvjpegStream], width: out[4], height: out[4]);
            0x3039 call table nvjpegJpegStreamGetComponentsNum(jpeg: object[NvjpegStream], components: out[4]);
            0x303a call table nvjpegJpegStreamGetComponentDimensions(jpeg: object[NvjpegStream], component: i32, width: out[4], height: out[4]);
            0x303b call table nvjpegJpegStreamGetExifOrientation(jpeg: object[NvjpegStream], orientation: out[4]);
            0x303c call table nvjpegJpegStreamGetSamplePrecision(jpeg: object[NvjpegStream], precision: out[4]);
            0x303d call table nvjpegJpegStreamGetChromaSubsampling(jpeg: object[NvjpegStream], subsampling: out[4]);
            0x303e call guest nvjpegDecodeParamsCreate(handle: handle[NvjpegHandle], params: new[NvjpegDecodeParams]);
            0x303f wait table nvjpegDecodeParamsDestroy(params: gone[NvjpegDecodeParams]);
            0x3040 call table nvjpegDecodeParamsSetOutputFormat(params: object[NvjpegDecodeParams], format: i32);
            0x3041 call table nvjpegDecodeParamsSetROI(params: object[NvjpegDecodeParams], x: i32, y: i32, width: i32, height: i32);
            0x3042 call table nvjpegDecodeParamsSetAllowCMYK(params: object[NvjpegDecodeParams], allow: i32);
            0x3043 call table nvjpegDecodeParamsSetScaleFactor(params: object[NvjpegDecodeParams], factor: i32);
            0x3044 call table nvjpegDecodeParamsSetExifOrientation(params: object[NvjpegDecodeParams], orientation: i32);
            0x3045 call guest nvjpegDecoderCreate(handle: handle[NvjpegHandle], backend: i32, decoder: new[NvjpegDecoder]);
            0x3046 wait table nvjpegDecoderDestroy(decoder: gone[NvjpegDecoder]);
            0x3047 call table nvjpegDecoderJpegSupported(decoder: object[NvjpegDecoder], jpeg: object[NvjpegStream], params: object[NvjpegDecodeParams], supported: out[4]);
            0x3048 call table nvjpegDecodeBatchedSupported(handle: handle[NvjpegHandle], jpeg: object[NvjpegStream], supported: out[4]);
            0x3049 call table nvjpegDecodeBatchedSupportedEx(handle: handle[NvjpegHandle], jpeg: object[NvjpegStream], params: object[NvjpegDecodeParams], supported: out[4]);
            0x304a call guest nvjpegDecoderStateCreate(handle: handle[NvjpegHandle], decoder: object[NvjpegDecoder], state: new[NvjpegState]);
            0x304b wait guest nvjpegDecodeJpeg(handle: handle[NvjpegHandle], decoder: object[NvjpegDecoder], state: object[NvjpegState], jpeg: object[NvjpegStream], destination: in[64], params: object[NvjpegDecodeParams], stream: stream) work;
            0x304c wait table nvjpegDecodeJpegHost(handle: handle[NvjpegHandle], decoder: object[NvjpegDecoder], state: object[NvjpegState], params: object[NvjpegDecodeParams], jpeg: object[NvjpegStream]);
            0x304d wait guest nvjpegDecodeJpegTransferToDevice(handle: handle[NvjpegHandle], decoder: object[NvjpegDecoder], state: object[NvjpegState], jpeg: object[NvjpegStream], stream: stream) work;
            0x304e wait guest nvjpegDecodeJpegDevice(handle: handle[NvjpegHandle], decoder: object[NvjpegDecoder], state: object[NvjpegState], destination: in[64], stream: stream) work;
        }
    };
}
