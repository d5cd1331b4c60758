// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as programs get it: by `dlopen`, with names looked up at run time.

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

use libloading::Library;

type ProcAddress =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut u32) -> u32;

fn library() -> Library {
    let exe = std::env::current_exe().unwrap();
    let path: PathBuf = exe.parent().unwrap().join("libsoftware_gpu.so");
    // SAFETY: our own library; its constructors do nothing.
    unsafe { Library::new(path) }.unwrap()
}

fn symbol(library: &Library, name: &str) -> Option<usize> {
    // SAFETY: only the address is used.
    unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }
        .ok()
        .map(|f| *f as usize)
}

#[test]
fn pitfall_50_names_and_versions_lead_to_the_exported_symbols() {
    let library = library();
    // SAFETY: the symbol has this signature.
    let look_up = *unsafe { library.get::<ProcAddress>(b"cuGetProcAddress_v2") }.unwrap();
    let ask = |name: &str, version, flags| {
        let (mut address, mut status) = (null_mut(), 9);
        let name = CString::new(name).unwrap();
        // SAFETY: every pointer is valid for the call.
        let code = unsafe { look_up(name.as_ptr(), &mut address, version, flags, &mut status) };
        (code, address as usize, status)
    };
    for (name, version, flags, exported) in [
        ("cuInit", 12000, 0, "cuInit"),
        ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2"),
        ("cuMemCreate", 12000, 0, "cuMemCreate"),
        (
            "cuMemRetainAllocationHandle",
            12000,
            0,
            "cuMemRetainAllocationHandle",
        ),
        ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
        ("cuCtxGetDevice", 12090, 0, "cuCtxGetDevice"),
        ("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice_v2"),
        ("cuMemcpyHtoD", 12000, 1, "cuMemcpyHtoD_v2"),
        ("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds"),
        ("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz"),
        (
            "cuStreamGetCaptureInfo",
            11030,
            2,
            "cuStreamGetCaptureInfo_v2_ptsz",
        ),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ] {
        let expected = symbol(&library, exported).expect(exported);
        assert_eq!(
            ask(name, version, flags),
            (0, expected, 0),
            "{name} {version}"
        );
    }
    assert_eq!(ask("cuNoSuchThing", 13000, 0), (0, 0, 1));
    assert_eq!(ask("cuLibraryLoadData", 11080, 0), (0, 0, 2));
    assert_eq!(ask("cuInit", 13010, 0).0, 1, "newer than the driver");
    assert_eq!(ask("cuInit", 12000, 8).0, 1, "no such flag");
}
