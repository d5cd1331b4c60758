// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions about cuDNN itself, its errors, and a handle's stream.

use std::{
    cell::Cell,
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_client::log::{self, Level};
use gpgpu_library::{
    Object, Status,
    forward::{Request, set_stream},
    handle,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, SUCCESS, cudnn::status},
};

use crate::{HANDLE, LIBRARY, calls::free, enter, give};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::Cudnn};

    pub const VERSION: &Function = Cudnn.find("cudnnGetVersion");
    pub const DEVICE_VERSION: &Function = Cudnn.find("cudnnGetMaxDeviceVersion");
    pub const PROPERTY: &Function = Cudnn.find("cudnnGetProperty");
    pub const RUNTIME_VERSION: &Function = Cudnn.find("cudnnGetCudartVersion");
}

thread_local! {
    /// The thread's last failed function, and its status.
    static LAST: Cell<(&'static str, Status)> = const { Cell::new(("", SUCCESS)) };
}

/// Records a function's status.
pub fn note(name: &'static str, status: Status) {
    if status != SUCCESS {
        let _ = LAST.try_with(|last| last.set((name, status)));
    }
}

/// `cudnnGetErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetErrorString(status: Status) -> *const c_char {
    LIBRARY.statuses().name(status).as_ptr()
}

/// `cudnnGetLastErrorString`: the function's name and its status. The host library's longer text is not available.
///
/// # Safety
///
/// `message` is NULL or has room for `max_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetLastErrorString(message: *mut c_char, max_size: usize) {
    let (name, last) = LAST.try_with(Cell::get).unwrap_or(("", SUCCESS));
    let text = match last {
        SUCCESS => String::new(),
        last => {
            let statuses = LIBRARY.statuses();
            let [status, text] =
                [statuses.name(last), statuses.text(last)].map(CStr::to_string_lossy);
            format!("{name}: {status}: {text}")
        }
    };
    let Some(room) = max_size.checked_sub(1).filter(|_| !message.is_null()) else {
        return;
    };
    let count = text.len().min(room);
    // SAFETY: there is room for one byte more than is copied.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), message.cast(), count);
        message.add(count).write(0);
    }
}

/// A constant that the host's library reports; 0 if the query fails.
fn version(function: &'static Function, known: &AtomicUsize) -> usize {
    match known.load(Ordering::Relaxed) {
        0 => {}
        version => return version,
    }
    let asked = std::panic::catch_unwind(|| Request::new(function, &[1]).ask_for());
    let version = match asked {
        Ok(Ok(reply)) => reply.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
        _ => None,
    };
    let Some(version) = version else {
        log::say(Level::Error, || {
            format!(
                "{}: the host's cuDNN does not answer",
                function.operation.name
            )
        });
        return 0;
    };
    known.store(version as usize, Ordering::Relaxed);
    version as usize
}

/// `cudnnGetVersion`: the version of the host's library.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    version(function::VERSION, &KNOWN)
}

/// `cudnnGetMaxDeviceVersion`: the value of the host's library.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetMaxDeviceVersion() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    version(function::DEVICE_VERSION, &KNOWN)
}

/// `cudnnGetCudartVersion`: the value of the host's library.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    version(function::RUNTIME_VERSION, &KNOWN)
}

/// `cudnnGetProperty`: a part of the host library's version.
///
/// # Safety
///
/// `value` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetProperty(kind: c_int, value: *mut c_int) -> Status {
    enter("cudnnGetProperty", || {
        if value.is_null() {
            return Err(status::NULL_POINTER);
        }
        let words = [kind as u64, value as u64];
        Request::new(function::PROPERTY, &words).send(free())
    })
}

macro_rules! checks {
    ($($name:ident)*) => {$(
        /// cuDNN's function of this name. The host's parts of cuDNN have one version.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Status {
            SUCCESS
        }
    )*};
}

checks! {
    cudnnGraphVersionCheck cudnnOpsVersionCheck cudnnCnnVersionCheck cudnnAdvVersionCheck
    cudnnSubquadraticOpsVersionCheck
}

/// `cudnnQueryRuntimeError`: errors of kernels are reported when the process synchronises.
///
/// # Safety
///
/// `rstatus` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnQueryRuntimeError(
    handle: Object,
    rstatus: *mut Status,
    _mode: c_int,
    _tag: *mut c_void,
) -> Status {
    enter("cudnnQueryRuntimeError", || {
        handle::find(HANDLE, handle)?;
        // SAFETY: promised by the caller.
        unsafe { give(rstatus, SUCCESS) }
    })
}

/// The program's arguments of `cudnnSetCallback`.
#[derive(Clone, Copy)]
struct Callback {
    mask: c_uint,
    data: usize,
    function: usize,
}

static CALLBACK: Mutex<Callback> = Mutex::new(Callback {
    mask: 0,
    data: 0,
    function: 0,
});

/// `cudnnSetCallback`: stores the callback, which is never called, because cuDNN would log on the host.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetCallback(mask: c_uint, udata: *mut c_void, fptr: *mut c_void) -> Status {
    *CALLBACK.lock() = Callback {
        mask,
        data: udata as usize,
        function: fptr as usize,
    };
    SUCCESS
}

/// `cudnnGetCallback`.
///
/// # Safety
///
/// The pointers are NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetCallback(
    mask: *mut c_uint,
    udata: *mut *mut c_void,
    fptr: *mut *mut c_void,
) -> Status {
    let known = *CALLBACK.lock();
    enter("cudnnGetCallback", || {
        // SAFETY: promised by the caller.
        unsafe {
            give(mask, known.mask)?;
            give(udata, known.data as *mut c_void)?;
            give(fptr, known.function as *mut c_void)
        }
    })
}

/// `cudnnSetStream`.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: Object, streamId: CUstream) -> Status {
    enter("cudnnSetStream", || set_stream(HANDLE, handle, streamId))
}

/// `cudnnGetStream`.
///
/// # Safety
///
/// `streamId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnGetStream(handle: Object, streamId: *mut CUstream) -> Status {
    enter("cudnnGetStream", || {
        let known = handle::find(HANDLE, handle)?;
        let told = known.told().stream;
        // SAFETY: promised by the caller.
        unsafe { give(streamId, told as CUstream) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_is_cut_to_the_buffers_length() {
        note("cudnnDestroy", status::BAD_PARAM);
        note("cudnnCreate", SUCCESS);
        let mut room = [1_u8; 64];
        // SAFETY: there is that much room.
        unsafe { cudnnGetLastErrorString(room.as_mut_ptr().cast(), 12) };
        assert_eq!((&room[..12], room[12]), (&b"cudnnDestro\0"[..], 1));
        // SAFETY: there is no room.
        unsafe { cudnnGetLastErrorString(room.as_mut_ptr().cast(), 0) };
        assert_eq!(room[0], b'c');
    }
}
