// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the fuzz targets: reading inputs, and a device process without its process.

pub mod device;
pub mod input;
