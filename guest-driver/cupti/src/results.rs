// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The results of CUPTI's functions.

use std::ffi::{CStr, c_char};

use gpgpu_protocol::cupti::{INVALID_PARAMETER, SUCCESS, Status};

use crate::LAST;

/// `CUptiResult` by its numbers.
const RESULTS: &[(u32, &CStr)] = &[
    (0, c"CUPTI_SUCCESS"),
    (1, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (2, c"CUPTI_ERROR_INVALID_DEVICE"),
    (3, c"CUPTI_ERROR_INVALID_CONTEXT"),
    (4, c"CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID"),
    (5, c"CUPTI_ERROR_INVALID_EVENT_ID"),
    (6, c"CUPTI_ERROR_INVALID_EVENT_NAME"),
    (7, c"CUPTI_ERROR_INVALID_OPERATION"),
    (8, c"CUPTI_ERROR_OUT_OF_MEMORY"),
    (9, c"CUPTI_ERROR_HARDWARE"),
    (10, c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"),
    (11, c"CUPTI_ERROR_API_NOT_IMPLEMENTED"),
    (12, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (13, c"CUPTI_ERROR_NOT_READY"),
    (14, c"CUPTI_ERROR_NOT_COMPATIBLE"),
    (15, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (16, c"CUPTI_ERROR_INVALID_METRIC_ID"),
    (17, c"CUPTI_ERROR_INVALID_METRIC_NAME"),
    (18, c"CUPTI_ERROR_QUEUE_EMPTY"),
    (19, c"CUPTI_ERROR_INVALID_HANDLE"),
    (20, c"CUPTI_ERROR_INVALID_STREAM"),
    (21, c"CUPTI_ERROR_INVALID_KIND"),
    (22, c"CUPTI_ERROR_INVALID_EVENT_VALUE"),
    (23, c"CUPTI_ERROR_DISABLED"),
    (24, c"CUPTI_ERROR_INVALID_MODULE"),
    (25, c"CUPTI_ERROR_INVALID_METRIC_VALUE"),
    (26, c"CUPTI_ERROR_HARDWARE_BUSY"),
    (27, c"CUPTI_ERROR_NOT_SUPPORTED"),
    (28, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED"),
    (29, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE"),
    (31, c"CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS"),
    (32, c"CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED"),
    (33, c"CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED"),
    (34, c"CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE"),
    (35, c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
    (36, c"CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED"),
    (37, c"CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE"),
    (38, c"CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED"),
    (39, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
    (
        40,
        c"CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES",
    ),
    (41, c"CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED"),
    (42, c"CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED"),
    (43, c"CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED"),
    (44, c"CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED"),
    (45, c"CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED"),
    (46, c"CUPTI_ERROR_INVALID_CHIP_NAME"),
    (47, c"CUPTI_ERROR_HES_TRACE_NOT_SUPPORTED_ON_MPS"),
    (999, c"CUPTI_ERROR_UNKNOWN"),
    (0, c"CUPTI_ERROR_FORCE_INT"),
];

/// `cuptiGetResultString`: a result's name.
///
/// # Safety
///
/// `str` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(result: Status, str: *mut *const c_char) -> Status {
    let found = RESULTS.iter().find(|(number, _)| *number == result);
    let Some((_, name)) = found.filter(|_| !str.is_null()) else {
        return INVALID_PARAMETER;
    };
    // SAFETY: promised by the caller.
    unsafe { str.write(name.as_ptr()) };
    SUCCESS
}

/// `cuptiGetErrorMessage`: the result's name, too.
///
/// # Safety
///
/// As for [`cuptiGetResultString`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetErrorMessage(result: Status, str: *mut *const c_char) -> Status {
    // SAFETY: promised by the caller.
    unsafe { cuptiGetResultString(result, str) }
}

/// `cuptiGetLastError`: the status of the thread's last function that failed, which it forgets.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiGetLastError() -> Status {
    LAST.try_with(|last| last.replace(SUCCESS))
        .unwrap_or(SUCCESS)
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;
    use crate::enter;

    #[test]
    fn results_have_names() {
        let mut text: *const c_char = null();
        // SAFETY: the pointer is to a value that lives across the call.
        assert_eq!(unsafe { cuptiGetResultString(27, &mut text) }, SUCCESS);
        // SAFETY: a string was given.
        let name = unsafe { CStr::from_ptr(text) };
        assert_eq!(name, c"CUPTI_ERROR_NOT_SUPPORTED");
        // SAFETY: as above; NULL is refused.
        unsafe {
            assert_eq!(cuptiGetErrorMessage(30, &mut text), INVALID_PARAMETER);
            assert_eq!(cuptiGetResultString(0, null_mut()), INVALID_PARAMETER);
        }
    }

    #[test]
    fn the_last_failure_is_given_once() {
        assert_eq!(enter(|| Err(21)), 21);
        assert_eq!(enter(|| Ok(())), SUCCESS);
        assert_eq!((cuptiGetLastError(), cuptiGetLastError()), (21, SUCCESS));
        assert_eq!(enter(|| panic!("on purpose")), 999);
    }
}
