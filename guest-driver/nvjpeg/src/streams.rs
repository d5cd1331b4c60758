// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions whose only peculiarity is that their stream is sent as an id.

use std::ffi::c_int;

use gpgpu_library::{Object, Status, Word, forward};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library},
};

use crate::{enter, stream_id};

macro_rules! on_streams {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// nvJPEG's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers to host memory are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($argument: $type,)* stream: CUstream) -> Status {
            const FUNCTION: &Function = Library::Nvjpeg.find(stringify!($name));
            enter(|| {
                let stream = stream_id(stream)?;
                forward::send(FUNCTION, &[$($argument.word(),)* stream])
            })
        }
    )*};
}

on_streams! {
    nvjpegDecodeJpeg(handle: Object, decoder: Object, decoder_state: Object, jpeg_bitstream: Object, destination: Object, decode_params: Object);
    nvjpegDecodeJpegTransferToDevice(handle: Object, decoder: Object, decoder_state: Object, jpeg_stream: Object);
    nvjpegDecodeJpegDevice(handle: Object, decoder: Object, decoder_state: Object, destination: Object);
    nvjpegBufferPinnedResize(buffer: Object, size: i64);
    nvjpegBufferDeviceResize(buffer: Object, size: i64);
    nvjpegEncoderParamsSetQuality(encoder_params: Object, quality: c_int);
    nvjpegEncoderParamsSetEncoding(encoder_params: Object, etype: c_int);
    nvjpegEncoderParamsSetOptimizedHuffman(encoder_params: Object, optimized: c_int);
    nvjpegEncoderParamsSetSamplingFactors(encoder_params: Object, chroma_subsampling: c_int);
    nvjpegEncoderParamsSetRestartInterval(encoder_params: Object, restart_interval: c_int);
    nvjpegEncoderParamsCopyMetadata(encoder_state: Object, encode_params: Object, jpeg_stream: Object);
    nvjpegEncoderParamsCopyQuantizationTables(encode_params: Object, jpeg_stream: Object);
    nvjpegEncoderParamsCopyHuffmanTables(encoder_state: Object, encode_params: Object, jpeg_stream: Object);
    nvjpegEncodeYUV(handle: Object, encoder_state: Object, encoder_params: Object, source: Object, chroma_subsampling: c_int, image_width: c_int, image_height: c_int);
    nvjpegEncodeImage(handle: Object, encoder_state: Object, encoder_params: Object, source: Object, input_format: c_int, image_width: c_int, image_height: c_int);
    nvjpegEncode(handle: Object, encoder_state: Object, encoder_params: Object, source: Object, input_subsampling: c_int, input_format: c_int, image_width: c_int, image_height: c_int);
    nvjpegEncodeRetrieveBitstreamDevice(handle: Object, encoder_state: Object, data: Object, length: Object);
}
