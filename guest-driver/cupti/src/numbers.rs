// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers and names of the functions of the driver and runtime APIs: CUPTI's callback ids.

mod driver;
mod runtime;

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char},
    sync::OnceLock,
};

use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status};
use gpgpu_trace::{DRIVER, RUNTIME};

use crate::{enter, give};

/// The number that stands for no function.
pub const NONE: u32 = 0;

/// The functions of an API.
#[derive(Debug)]
pub struct Api {
    /// The names as `cuptiGetCallbackName` gives them, by their numbers.
    names: Vec<CString>,
    /// The names of the exported functions, by their numbers.
    exported: Vec<CString>,
    /// The numbers, by the names of the exported functions.
    numbers: HashMap<&'static [u8], u32>,
}

/// A runtime function's name without the release in which it appeared, as in `_v7000`, and the release.
fn split(name: &str) -> (&str, u32) {
    let parts = name
        .rsplit_once("_v")
        .map(|(name, release)| (name, release.len(), release.parse()));
    match parts {
        // `_v2` is a part of the exported function's name.
        Some((name, 4.., Ok(release))) => (name, release),
        _ => (name, 0),
    }
}

/// The function by whose name NVIDIA's CUPTI reports a call. Of those that compilers call, it reports launches alone,
/// as the program's own launches (seen with CUPTI 13.0, driver 580).
fn reported(exported: &[u8]) -> Option<&[u8]> {
    match exported {
        b"__cudaLaunchKernel" | b"__cudaLaunchKernel_ptsz" => exported.strip_prefix(b"__"),
        _ if exported.starts_with(b"__cuda") => None,
        _ => Some(exported),
    }
}

impl Api {
    fn new(names: &'static str) -> Self {
        let text = |name: &str| CString::new(name).unwrap_or_default();
        let mut api = Self {
            names: vec![text("INVALID")],
            exported: vec![text("INVALID")],
            numbers: HashMap::new(),
        };
        let mut releases = HashMap::<&str, u32>::new();
        for (index, name) in names.split_ascii_whitespace().enumerate() {
            let (exported, release) = split(name);
            // An older and a newer function may have the same name. The libraries export the newer one.
            let newest = releases.entry(exported).or_default();
            if release >= *newest {
                *newest = release;
                api.numbers.insert(exported.as_bytes(), index as u32 + 1);
            }
            api.names.push(text(name));
            api.exported.push(text(exported));
        }
        api
    }

    /// The API of a domain, [`DRIVER`] or [`RUNTIME`].
    pub fn of(domain: u32) -> Option<&'static Self> {
        static APIS: [OnceLock<Api>; 2] = [OnceLock::new(), OnceLock::new()];
        match domain {
            DRIVER => Some(APIS[0].get_or_init(|| Self::new(driver::NAMES))),
            RUNTIME => Some(APIS[1].get_or_init(|| Self::new(runtime::NAMES))),
            _ => None,
        }
    }

    /// The number of an exported function; [`NONE`] if CUPTI has none for it, or does not report its calls.
    pub fn number(&self, exported: &[u8]) -> u32 {
        let Some(exported) = reported(exported) else {
            return NONE;
        };
        let find = |name: &[u8]| self.numbers.get(name).copied();
        // Functions that CUPTI does not know by themselves count as the plain ones.
        let plain = || {
            let without = exported.strip_suffix(b"_ptsz");
            let without = without.or_else(|| exported.strip_suffix(b"_ptds"));
            let name = without.unwrap_or(exported);
            find(name).or_else(|| find(name.strip_suffix(b"_v2")?))
        };
        find(exported).or_else(plain).unwrap_or(NONE)
    }

    /// The name of the exported function with a number.
    pub fn exported(&self, number: u32) -> Option<&CStr> {
        self.exported.get(number as usize).map(CString::as_c_str)
    }

    /// The name that `cuptiGetCallbackName` gives.
    fn name(&self, number: u32) -> Option<&CStr> {
        self.names.get(number as usize).map(CString::as_c_str)
    }

    /// How many numbers there are, with [`NONE`].
    pub fn count(&self) -> u32 {
        self.names.len() as u32
    }
}

/// Makes the tables of the names.
pub fn prepare() {
    for domain in [DRIVER, RUNTIME] {
        let _ = Api::of(domain);
    }
}

/// `cuptiGetCallbackName`: the name of a function of the driver or runtime API. A runtime function's name ends with its
/// release, as NVIDIA's CUPTI gives it: `cudaLaunchKernel_v7000`.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for another domain or an unknown number.
///
/// # Safety
///
/// `name` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackName(
    domain: u32,
    cbid: u32,
    name: *mut *const c_char,
) -> Status {
    enter(|| {
        let found = Api::of(domain).and_then(|api| api.name(cbid));
        let found = found.ok_or(INVALID_PARAMETER)?;
        // SAFETY: promised by the caller.
        unsafe { give(name, found.as_ptr()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(domain: u32, name: &str) -> u32 {
        Api::of(domain).map_or(NONE, |api| api.number(name.as_bytes()))
    }

    /// The numbers are the positions in the lists, so a lost or repeated name would shift others.
    #[test]
    fn names_are_complete_and_have_no_duplicates() {
        for (domain, count, samples) in [
            (
                DRIVER,
                807,
                [
                    ("cuInit", 1),
                    ("cuLaunchKernel", 307),
                    ("cuLaunchKernelEx_ptsz", 653),
                ],
            ),
            (
                RUNTIME,
                523,
                [
                    ("cudaDriverGetVersion", 1),
                    ("cudaLaunchKernel", 211),
                    ("cudaMemcpyAsync_ptsz", 225),
                ],
            ),
        ] {
            let api = Api::of(domain).unwrap();
            assert_eq!(api.count(), count);
            let mut names = api.names.clone();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), count as usize);
            for (name, expected) in samples {
                assert_eq!(number(domain, name), expected, "{name}");
            }
        }
    }

    #[test]
    fn an_exported_function_is_the_newest_of_its_name() {
        let name = |number| Api::of(RUNTIME).unwrap().name(number).unwrap();
        let of = |exported| name(number(RUNTIME, exported));
        assert_eq!(of("cudaGraphInstantiate"), c"cudaGraphInstantiate_v12000");
        assert_eq!(
            of("cudaStreamGetCaptureInfo_v2"),
            c"cudaStreamGetCaptureInfo_v2_v11030"
        );
        assert_eq!(of("cudaLaunchKernelExC"), c"cudaLaunchKernelExC_v11060");
        // A version of the driver API is a function of its own.
        assert_eq!(number(DRIVER, "cuMemAlloc"), 29);
        let exported = Api::of(DRIVER).unwrap().exported(243);
        assert_eq!(exported, Some(c"cuMemAlloc_v2"));
    }

    #[test]
    fn functions_without_a_number_of_their_own_count_as_the_plain_ones() {
        assert_eq!(number(DRIVER, "cuInit_ptsz"), 1);
        assert_eq!(number(DRIVER, "cuMemAlloc_v2"), 243);
        let properties = number(RUNTIME, "cudaGetDeviceProperties");
        assert_ne!(properties, NONE);
        assert_eq!(number(RUNTIME, "cudaGetDeviceProperties_v2"), properties);
        assert_eq!(number(DRIVER, "cuNoSuchFunction"), NONE);
        for plain in ["cudaLaunchKernel", "cudaLaunchKernel_ptsz"] {
            assert_ne!(number(RUNTIME, plain), NONE);
            assert_eq!(
                number(RUNTIME, &format!("__{plain}")),
                number(RUNTIME, plain)
            );
        }
        for compilers in ["__cudaPushCallConfiguration", "__cudaRegisterFatBinary"] {
            assert_eq!(number(RUNTIME, compilers), NONE);
        }
        assert_eq!(number(3, "cuInit"), NONE);
    }

    #[test]
    fn names_are_those_of_nvidias_library() {
        let name = |domain, number| {
            let mut name = std::ptr::null();
            // SAFETY: the pointer is to a value that lives across the call.
            let status = unsafe { cuptiGetCallbackName(domain, number, &mut name) };
            // SAFETY: a name was given.
            (status == 0).then(|| unsafe { CStr::from_ptr(name) })
        };
        assert_eq!(name(DRIVER, 307), Some(c"cuLaunchKernel"));
        assert_eq!(name(RUNTIME, 211), Some(c"cudaLaunchKernel_v7000"));
        assert_eq!(name(RUNTIME, 0), Some(c"INVALID"));
        assert_eq!(name(RUNTIME, 523), None);
        assert_eq!(name(3, 1), None);
        // SAFETY: NULL is refused.
        let status = unsafe { cuptiGetCallbackName(DRIVER, 1, std::ptr::null_mut()) };
        assert_eq!(status, INVALID_PARAMETER);
        let exported = Api::of(RUNTIME).unwrap().exported(211);
        assert_eq!(exported, Some(c"cudaLaunchKernel"));
    }
}
