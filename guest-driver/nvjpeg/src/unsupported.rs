// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG's functions that are not supported. They are exported, so that programs start, and return an error.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::nvjpeg::status;

// The buffer is memory of the host, so its address is meaningless to the program.
unsupported! { status::NOT_SUPPORTED;
    nvjpegBufferPinnedRetrieve
}
