// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/nvjpeg.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    objects {
        nvjpegCreate nvjpegCreateSimple nvjpegCreateEx nvjpegCreateExV2 nvjpegGetProperty
        nvjpegGetCudartProperty nvjpegJpegStateCreate nvjpegJpegStreamCreate
        nvjpegDecodeParamsCreate nvjpegEncoderStateCreate nvjpegEncoderStateCreateWithBackend
        nvjpegEncoderParamsCreate nvjpegDecoderCreate nvjpegDecoderStateCreate
        nvjpegBufferPinnedCreate nvjpegBufferPinnedCreateV2 nvjpegBufferDeviceCreate
        nvjpegBufferDeviceCreateV2
    }
    jpegs {
        nvjpegGetImageInfo nvjpegDecode nvjpegDecodeBatchedParseJpegTables nvjpegJpegStreamParse
        nvjpegJpegStreamParseHeader nvjpegJpegStreamParseTables
    }
    batches { nvjpegDecodeBatchedInitialize nvjpegDecodeBatched nvjpegDecodeBatchedEx }
    encoded { nvjpegEncodeRetrieveBitstream }
    streams {
        nvjpegDecodeJpeg nvjpegDecodeJpegTransferToDevice nvjpegDecodeJpegDevice
        nvjpegBufferPinnedResize nvjpegBufferDeviceResize nvjpegEncoderParamsSetQuality
        nvjpegEncoderParamsSetEncoding nvjpegEncoderParamsSetOptimizedHuffman
        nvjpegEncoderParamsSetSamplingFactors nvjpegEncoderParamsSetRestartInterval
        nvjpegEncoderParamsCopyMetadata nvjpegEncoderParamsCopyQuantizationTables
        nvjpegEncoderParamsCopyHuffmanTables nvjpegEncodeYUV nvjpegEncodeImage nvjpegEncode
        nvjpegEncodeRetrieveBitstreamDevice
    }
}

const TEXT: &str = "\
# nvJPEG

`libnvjpeg.so.12` and `.13`. [The rules for all libraries](../libraries.md#rules-for-all-libraries) apply. A copy that a
package has under another name, as torchvision's, leads to these too.

## Differences from NVIDIA's

- **JPEGs travel as bytes.** Up to 3.75 MiB are sent with the call, longer ones before it, in pieces of 3 MiB. The host
  keeps the bytes as long as its library may read them. So a program may change its own as soon as the call has
  returned, whatever it asks a stream to save. Each call that is given a JPEG sends it, also one that only describes it.
  The host keeps at most 1 GiB of JPEGs for a process, those of a batch together. Beyond that a call returns
  `NVJPEG_STATUS_ALLOCATOR_FAILURE`.
- **Images stay in device memory.** Only their addresses travel.
- **Completion.** A call that decodes returns when the host's library has done its part on the CPU; the rest is work in
  the call's stream, as natively. `nvjpegEncodeRetrieveBitstream` returns when the bytes are in the program's memory.
- **Threads.** One call at a time uses a handle. Threads that are to decode at the same time need a handle each.
- **Backends** are the host's: `NVJPEG_BACKEND_HARDWARE` fails as the host's library says. `NVJPEG_BACKEND_GPU_HYBRID_DEVICE`
  and `NVJPEG_BACKEND_HARDWARE_DEVICE` are not supported, as they read JPEGs in device memory.
- **Allocators of the program** are not supported: `nvjpegCreate`, `nvjpegCreateEx`, `nvjpegCreateExV2` and the functions
  that create buffers return `NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED` if one is given. The host allocates, and the
  device memory is charged to the VM. Pinned memory of the host is at most 2 GiB for a process.
- **Objects** may end in any order: the host keeps a handle, a buffer or a decoder as long as a state uses it.
- **Limits**: a batch has at most 4096 images, and the host uses at most 16 threads for it. A padding is at most 1 MiB.
  Sides are at most 65,535 pixels.
- A handle is charged 32 MiB of GPU memory.
- **Not supported**: `nvjpegBufferPinnedRetrieve`, as the buffer is memory of the host. `nvjpegEncoderParamsCopyHuffmanTables`
  needs the host's library of CUDA 12; that of CUDA 13 does not have it.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-nvjpeg", "nvjpeg"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
