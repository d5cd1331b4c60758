// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! virtio-gpgpu: the API table, the command stream and all layouts that guest and host share.

pub mod api;
pub mod codec;
#[allow(non_snake_case, non_upper_case_globals)]
pub mod cuda;
pub mod cupti;
pub mod driver_api;
pub mod futex;
pub mod layout;
pub mod libraries;
pub mod nvml;
pub mod ring;
pub mod software_gpu;
