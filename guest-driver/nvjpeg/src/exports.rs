// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The exported functions that the table describes completely.

gpgpu_library::export_rows_of!(crate::LIBRARY, with_nvjpeg);
