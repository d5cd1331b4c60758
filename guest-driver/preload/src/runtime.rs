//! Our libcudart, and stand-ins for the functions that it lacks.

use std::env;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// `cudaErrorNotSupported`.
const NOT_SUPPORTED: u32 = 801;

/// A libcudart in this process. It is never unloaded: the program jumps into it.
pub struct Runtime {
    handle: *mut c_void,
}

impl Runtime {
    /// Loads `libcudart.so.<version>` from `$GPGPU_LIBDIR`, the preload's own folder or the loader's search path.
    ///
    /// # Errors
    /// The loader's words about the last place.
    pub fn load(version: u32) -> Result<Self, String> {
        let name = format!("libcudart.so.{version}");
        let folders = env::var_os("GPGPU_LIBDIR")
            .map(PathBuf::from)
            .into_iter()
            .chain(own_folder());
        let files = folders
            .map(|folder| folder.join(&name))
            .filter(|file| file.exists());
        let mut error = String::new();
        for file in files.chain([PathBuf::from(&name)]) {
            let Ok(path) = CString::new(file.as_os_str().as_bytes()) else {
                continue;
            };
            // SAFETY: the path is a terminated string; the library's constructors are its own affair.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if !handle.is_null() {
                return Ok(Self { handle });
            }
            error = loader_error();
        }
        Err(error)
    }

    /// The address of an exported function.
    pub fn function(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open for ever, the name a terminated string.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        (!address.is_null()).then_some(address as u64)
    }
}

fn loader_error() -> String {
    // SAFETY: dlerror gives null or a string that lives until this thread's next call to the loader.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => String::from("unknown error"),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

/// The folder that this library was loaded from.
fn own_folder() -> Option<PathBuf> {
    // SAFETY: dladdr fills the structure from an address of this library; a zeroed one is valid.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_folder as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()))
    };
    Some(file.canonicalize().ok()?.parent()?.to_owned())
}

/// A function of the static runtime that our libcudart does not have.
struct Missing {
    name: CString,
    said: AtomicBool,
}

/// Where the program arrives when it calls a function that is missing.
extern "C" fn missing_called(missing: &Missing) -> u32 {
    if !missing.said.swap(true, Ordering::Relaxed) {
        let name = missing.name.to_string_lossy();
        crate::say(&format!(
            "{name} is not supported; it returns cudaErrorNotSupported"
        ));
    }
    NOT_SUPPORTED
}

/// Whether a stand-in that returns an error code suits the function. Those that return strings or structures compute
/// something simple from their arguments, and the static runtime's own go on doing so.
pub fn returns_error_code(name: &str) -> bool {
    let others = [
        "cudaGetErrorName",
        "cudaGetErrorString",
        "cudaCreateChannelDesc",
    ];
    !others.contains(&name) && !name.starts_with("__cuda")
}

/// Code that tells `missing_called` which function was called. What it refers to lives for ever.
pub fn missing_function(name: &str) -> Vec<u8> {
    let missing: &'static Missing = Box::leak(Box::new(Missing {
        name: CString::new(name).unwrap_or_default(),
        said: AtomicBool::new(false),
    }));
    let mut code = vec![0x48, 0xbf]; // mov $missing, %rdi
    code.extend((missing as *const Missing as u64).to_le_bytes());
    let handler: extern "C" fn(&Missing) -> u32 = missing_called;
    code.extend(crate::memory::absolute_jump(handler as usize as u64));
    code
}
