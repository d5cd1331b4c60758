// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the fuzz targets share: how inputs are read, and a device process without its process.

pub mod device;
pub mod input;
