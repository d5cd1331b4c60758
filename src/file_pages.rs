// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The pages of files that contain a guest's memory.

use std::{io, os::fd::AsFd};

use gpgpu_protocol::layout::PAGE_BYTES;
use nix::sys::statfs::{HUGETLBFS_MAGIC, fstatfs};

/// The size in bytes of the pages in which a file can be mapped. Of hugetlbfs, only whole huge pages can.
///
/// # Errors
///
/// Those of `fstatfs`.
pub fn page_bytes(file: impl AsFd) -> io::Result<u64> {
    let system = fstatfs(file)?;
    Ok(match system.filesystem_type() {
        HUGETLBFS_MAGIC => system.block_size() as u64,
        _ => PAGE_BYTES,
    })
}
