//! `cuGetProcAddress`: functions by name and CUDA version.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use gpgpu_protocol::cuda::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND,
    CUdriverProcAddressQueryResult,
};

use super::proc_address_table::{Entry, entries};
use crate::border::{Pointer, Result, Text, export};
use crate::config::DRIVER_VERSION;

// The versions of a name, oldest first.
fn versions(name: &str) -> Option<&'static [Entry]> {
    static TABLE: OnceLock<HashMap<&'static str, Vec<Entry>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<_, Vec<Entry>> = HashMap::new();
        for entry in entries() {
            table.entry(entry.name).or_default().push(entry);
        }
        for versions in table.values_mut() {
            versions.sort_by_key(|e| e.version);
        }
        table
    });
    table.get(name).map(Vec::as_slice)
}

fn find(
    name: &str,
    version: c_int,
    per_thread: bool,
) -> (*mut c_void, CUdriverProcAddressQueryResult) {
    let Some(versions) = versions(name) else {
        return (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    };
    // The default streams of threads came with CUDA 7.
    let too_old = |e: &Entry| per_thread && e.per_thread.is_some() && version < 7000;
    match versions
        .iter()
        .rev()
        .find(|e| e.version <= version)
        .filter(|e| !too_old(e))
    {
        Some(entry) => {
            let address = entry
                .per_thread
                .filter(|_| per_thread)
                .unwrap_or(entry.address);
            (address as *mut c_void, CU_GET_PROC_ADDRESS_SUCCESS)
        }
        None => (
            std::ptr::null_mut(),
            CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        ),
    }
}

fn look_up(
    name: Text,
    out: Pointer<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Result<CUdriverProcAddressQueryResult> {
    let name = name.name()?;
    out.required()?;
    let known = u64::from(
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    );
    if flags & !known != 0 || flags == known || version > DRIVER_VERSION {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let per_thread = flags == u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    let (address, status) = find(&name, version, per_thread);
    out.set(address)?;
    Ok(status)
}

export! {
    /// `cuGetProcAddress`, of CUDA 11.3: `CUDA_ERROR_NOT_FOUND` where there is no such function.
    always fn cuGetProcAddress(name: Text, out: Pointer<*mut c_void>, version: c_int, flags: u64) |()| {
        match look_up(name, out, version, flags)? {
            CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
            _ => Err(CUDA_ERROR_NOT_FOUND),
        }
    }

    /// `cuGetProcAddress`, of CUDA 12.0: `status`, if not NULL, says why `out` is NULL.
    always fn cuGetProcAddress_v2(name: Text, out: Pointer<*mut c_void>, version: c_int, flags: u64, status: Pointer<CUdriverProcAddressQueryResult>) |()| {
        let found = look_up(name, out, version, flags)?;
        status.set_if(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_decides() {
        let (v2, status) = find("cuCtxCreate", 11000, false);
        assert_eq!(status, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_eq!(v2, super::super::context::cuCtxCreate_v2 as *mut c_void);
        assert_eq!(
            find("cuCtxCreate", 13000, false).0,
            super::super::context::cuCtxCreate_v4 as *mut c_void
        );
        assert_eq!(
            find("cuLibraryLoadData", 11080, false).1,
            CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
        );
        assert_eq!(
            find("cuNothing", 13000, false).1,
            CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        );
        // Versions are asked for by number: a suffixed name is no name.
        assert_eq!(
            find("cuMemAlloc_v2", 13000, false).1,
            CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        );
    }

    #[test]
    fn per_thread_variants_are_found_where_there_are_any() {
        let legacy = find("cuLaunchKernel", 13000, false).0;
        let per_thread = find("cuLaunchKernel", 13000, true).0;
        assert_ne!(legacy, per_thread);
        assert_eq!(
            find("cuMemAlloc", 13000, false),
            find("cuMemAlloc", 13000, true)
        );
    }
}
