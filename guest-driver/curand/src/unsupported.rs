// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuRAND's functions that are not supported. They are exported, so that programs start, and return an error.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::curand::status;

// The library stores addresses of its own memory in the structure, which the program's kernels can overwrite, and
// follows them when it destroys the object.
unsupported! { status::ARCH_MISMATCH;
    curandCreatePoissonDistribution curandDestroyDistribution
}
