// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG's functions that are not served: exported, so that programs start, and honest when called.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::nvjpeg::status;

// The buffer is memory of the host, whose address means nothing to the program.
unsupported! { status::NOT_SUPPORTED;
    nvjpegBufferPinnedRetrieve
}
