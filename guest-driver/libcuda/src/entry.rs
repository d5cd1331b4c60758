// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Look-ups of functions by programs, by name and version.

use std::{
    ffi::{CStr, CString, c_void},
    sync::OnceLock,
};

use gpgpu_protocol::{
    cuda::*,
    driver_api::{ENTRY_POINTS, EntryPoint},
};

use crate::{
    argument::{OutPtr, Text},
    client::API_VERSION,
    cuda,
    ffi::Result,
};

/// The result of a search for an entry point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Symbol(&'static str),
    TooNew,
    Unknown,
}

/// The symbol for `name` in `version`; if `per_thread`, its variant with per-thread default streams.
fn find(name: &str, version: u32, per_thread: bool) -> Found {
    let start = ENTRY_POINTS.partition_point(|entry| entry.name < name);
    let of_name = || {
        ENTRY_POINTS[start..]
            .iter()
            .take_while(|entry| entry.name == name)
    };
    let newest = |wanted: bool| {
        let fits = |entry: &&EntryPoint| entry.per_thread == wanted && entry.since <= version;
        of_name().filter(fits).last()
    };
    // Per-thread default streams were introduced with CUDA 7.
    if per_thread && version < 7000 && of_name().any(|entry| entry.per_thread) {
        return Found::TooNew;
    }
    let found = if per_thread {
        newest(true).or_else(|| newest(false))
    } else {
        newest(false)
    };
    match found {
        Some(entry) => Found::Symbol(entry.symbol),
        None if of_name().next().is_some() => Found::TooNew,
        None => Found::Unknown,
    }
}

/// This library, to look up only its own symbols.
fn own_library() -> Option<usize> {
    static HANDLE: OnceLock<Option<usize>> = OnceLock::new();
    *HANDLE.get_or_init(|| {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
        // SAFETY: the address is one of this library's, and `info` is read only if it was filled in.
        let handle = unsafe {
            if libc::dladdr(own_library as *const c_void, info.as_mut_ptr()) == 0 {
                return None;
            }
            libc::dlopen(
                info.assume_init().dli_fname,
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            )
        };
        (!handle.is_null()).then_some(handle as usize)
    })
}

fn address(symbol: &CStr) -> *mut c_void {
    let library = own_library().map_or(libc::RTLD_DEFAULT, |handle| handle as *mut c_void);
    // SAFETY: the handle stays open for ever, and the symbol is NUL-terminated.
    unsafe { libc::dlsym(library, symbol.as_ptr()) }
}

fn look_up(
    name: Text,
    to: OutPtr<*mut c_void>,
    version: i32,
    flags: u64,
    status: OutPtr<CUdriverProcAddressQueryResult>,
) -> Result<CUdriverProcAddressQueryResult> {
    let name = name.get()?;
    to.required()?;
    to.offer(std::ptr::null_mut());
    if flags > 3 || version > API_VERSION {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let per_thread = flags & u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    let outcome = match find(&name, version.max(0) as u32, per_thread) {
        Found::Symbol(symbol) => {
            let found =
                CString::new(symbol).map_or(std::ptr::null_mut(), |symbol| address(&symbol));
            to.offer(found);
            if found.is_null() {
                CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
            } else {
                CU_GET_PROC_ADDRESS_SUCCESS
            }
        }
        Found::TooNew => CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        Found::Unknown => CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    };
    status.offer(outcome);
    Ok(outcome)
}

cuda! {
    fn cuGetProcAddress(symbol: Text, pfn: OutPtr<*mut c_void>, cudaVersion: i32, flags: u64) {
        // The form of CUDA 11 has no status argument, so it fails by its result.
        match look_up(symbol, pfn, cudaVersion, flags, OutPtr::nested(std::ptr::null_mut()))? {
            CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
            _ => Err(CUDA_ERROR_NOT_FOUND),
        }
    }

    fn cuGetProcAddress_v2(symbol: Text, pfn: OutPtr<*mut c_void>, cudaVersion: i32, flags: u64, symbolStatus: OutPtr<CUdriverProcAddressQueryResult>) {
        look_up(symbol, pfn, cudaVersion, flags, symbolStatus).map(drop)
    }

    /// `cuGetExportTable`: this library has no private tables.
    fn cuGetExportTable(ppExportTable: OutPtr<*const c_void>, _pExportTableId: *const CUuuid) {
        ppExportTable.set(std::ptr::null())?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_50_the_version_decides_which_symbol_a_name_means() {
        assert_eq!(find("cuMemAlloc", 3010, false), Found::Symbol("cuMemAlloc"));
        assert_eq!(
            find("cuMemAlloc", 12000, false),
            Found::Symbol("cuMemAlloc_v2")
        );
        assert_eq!(
            find("cuGetProcAddress", 11080, false),
            Found::Symbol("cuGetProcAddress")
        );
        assert_eq!(
            find("cuGetProcAddress", 12000, false),
            Found::Symbol("cuGetProcAddress_v2")
        );
        assert_eq!(
            find("cuCtxGetDevice", 12090, false),
            Found::Symbol("cuCtxGetDevice")
        );
        assert_eq!(
            find("cuCtxGetDevice", 13000, false),
            Found::Symbol("cuCtxGetDevice_v2")
        );
        assert_eq!(find("cuLibraryLoadData", 11000, false), Found::TooNew);
        assert_eq!(find("cuNoSuchFunction", 13000, false), Found::Unknown);
    }

    #[test]
    fn pitfall_21_an_existing_per_thread_variant_is_found() {
        assert_eq!(
            find("cuMemcpyHtoD", 12000, true),
            Found::Symbol("cuMemcpyHtoD_v2_ptds")
        );
        assert_eq!(
            find("cuLaunchKernel", 12000, true),
            Found::Symbol("cuLaunchKernel_ptsz")
        );
        assert_eq!(
            find("cuMemAlloc", 12000, true),
            Found::Symbol("cuMemAlloc_v2")
        );
        assert_eq!(find("cuLaunchKernel", 6050, true), Found::TooNew);
    }
}
