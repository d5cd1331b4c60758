// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuRAND's functions that are not served: exported, so that programs start, and honest when called.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::curand::status;

// The library keeps addresses of its own memory in the structure, which the program's kernels can write to, and follows
// them when it is asked to end one.
unsupported! { status::ARCH_MISMATCH;
    curandCreatePoissonDistribution curandDestroyDistribution
}
