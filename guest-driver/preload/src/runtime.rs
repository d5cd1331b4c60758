// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Our libcudart, and how a redirected function reaches its replacement there.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ffi::{CStr, CString, OsStr, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::elf::Image;

/// `cudaErrorNotSupported`.
const NOT_SUPPORTED: u32 = 801;

/// The version of libcudart that replaces a static runtime of major version 11.
const FOR_ELEVEN: u32 = 12;

/// The prefix of our functions' names that replace functions of CUDA 11 whose arguments or structures have changed
/// since.
const OF_ELEVEN: &str = "cudart11_";

/// The environment, read once before the program has threads that could change it.
struct Settings {
    directories: Vec<PathBuf>,
    verbose: bool,
}

fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let named = env::var_os("GPGPU_LIBDIR").filter(|named| !named.is_empty());
        let named = named.map(PathBuf::from);
        let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let others = env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
        Settings {
            directories: named
                .into_iter()
                .chain(own_directory())
                .chain(others)
                .collect(),
            verbose: env::var_os("GPGPU_PRELOAD_VERBOSE").is_some_and(|value| value == "1"),
        }
    })
}

/// Whether to report redirections. The first call reads the environment.
pub fn is_verbose() -> bool {
    settings().verbose
}

/// A libcudart that receives the program's calls. It is loaded at the first call: when a library's functions are
/// redirected, that library may itself be being loaded, and the dynamic linker loads one library at a time.
pub struct Runtime {
    library: &'static Library,
    exports: HashSet<String>,
    /// Whether it replaces a runtime of CUDA 11.
    is_eleven: bool,
    entries: HashMap<String, &'static Entry>,
}

/// Its file, and the dynamic linker's handle once it is loaded. It is never unloaded: the program jumps into it.
struct Library {
    file: CString,
    handle: AtomicPtr<c_void>,
}

/// A redirected function.
#[repr(C)]
pub struct Entry {
    /// The target of the redirected function: first [`resolve`], then our function or [`missing`]. The jump in the
    /// function's place reads it, and leaves the entry's own address in `r11`.
    target: AtomicU64,
    name: CString,
    library: &'static Library,
    said: AtomicBool,
}

impl Entry {
    /// The address that [`crate::memory::long_jump`] takes.
    pub fn address(&'static self) -> u64 {
        std::ptr::from_ref(self) as u64
    }
}

impl Runtime {
    /// Finds the library for a static runtime of that major version, `libcudart.so.12` or `.13`, in `$GPGPU_LIBDIR`,
    /// the preload's own directory or `$LD_LIBRARY_PATH`.
    ///
    /// # Errors
    /// Says that there is none.
    pub fn find(version: u32) -> Result<Self, String> {
        let name = format!("libcudart.so.{}", version.max(FOR_ELEVEN));
        for directory in &settings().directories {
            let path = directory.join(&name);
            let Some(image) = Image::open(&path) else {
                continue;
            };
            let (Some(elf), Ok(file)) = (image.elf(), CString::new(path.as_os_str().as_bytes()))
            else {
                continue;
            };
            let handle = AtomicPtr::new(null_mut());
            return Ok(Self {
                library: Box::leak(Box::new(Library { file, handle })),
                exports: elf.exports(),
                is_eleven: version < FOR_ELEVEN,
                entries: HashMap::new(),
            });
        }
        Err(format!(
            "it is neither in GPGPU_LIBDIR nor beside the preload nor in LD_LIBRARY_PATH ({name})"
        ))
    }

    /// Whether our library has the function.
    pub fn has(&self, name: &str) -> bool {
        self.own_name(name).is_some()
    }

    /// The name of our function that replaces the program's.
    fn own_name(&self, name: &str) -> Option<String> {
        let changed = self.is_eleven.then(|| format!("{OF_ELEVEN}{name}"));
        let names = changed.into_iter().chain([name.to_owned()]);
        names.into_iter().find(|name| self.exports.contains(name))
    }

    /// The function's entry, the same for all programs and libraries that have it. A function that our library lacks
    /// says so at its first call, and returns `cudaErrorNotSupported`.
    pub fn entry(&mut self, name: &str) -> &'static Entry {
        if let Some(entry) = self.entries.get(name) {
            return entry;
        }
        let own = self.own_name(name);
        let target = match own {
            Some(_) => resolve as *const () as u64,
            None => missing as *const () as u64,
        };
        let entry: &'static Entry = Box::leak(Box::new(Entry {
            target: AtomicU64::new(target),
            name: CString::new(own.as_deref().unwrap_or(name)).unwrap_or_default(),
            library: self.library,
            said: AtomicBool::new(false),
        }));
        self.entries.insert(name.to_owned(), entry);
        entry
    }
}

/// Finds the function at its first call, and continues there as if it had been called directly. Argument registers are
/// preserved.
#[unsafe(naked)]
unsafe extern "C" fn resolve() {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push r10",
        "push rax",
        "push r11",
        "sub rsp, 128",
        ".cfi_adjust_cfa_offset 200",
        "movaps [rsp], xmm0",
        "movaps [rsp + 16], xmm1",
        "movaps [rsp + 32], xmm2",
        "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4",
        "movaps [rsp + 80], xmm5",
        "movaps [rsp + 96], xmm6",
        "movaps [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {find}",
        "mov [rsp + 128], rax",
        "movaps xmm0, [rsp]",
        "movaps xmm1, [rsp + 16]",
        "movaps xmm2, [rsp + 32]",
        "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]",
        "movaps xmm5, [rsp + 80]",
        "movaps xmm6, [rsp + 96]",
        "movaps xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r11",
        "pop rax",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -200",
        "jmp r11",
        ".cfi_endproc",
        find = sym find,
    )
}

/// The target of an entry whose function our library lacks.
#[unsafe(naked)]
unsafe extern "C" fn missing() {
    std::arch::naked_asm!("mov rdi, r11", "jmp {called}", called = sym missing_called)
}

/// The address of the entry's function. Takes only the dynamic linker's lock, whose waiters may hold any other lock.
extern "C" fn find(entry: &Entry) -> u64 {
    let library = entry.library;
    let mut handle = library.handle.load(Ordering::Acquire);
    if handle.is_null() {
        // SAFETY: the path is a terminated string; the library's constructors are its own affair. Several threads may
        // come here at once: each gets the same handle.
        handle = unsafe { libc::dlopen(library.file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            crate::say(&loader_error());
        }
        library.handle.store(handle, Ordering::Release);
    }
    let address = match handle.is_null() {
        true => null_mut(),
        // SAFETY: the handle is open for ever, the name a terminated string.
        false => unsafe { libc::dlsym(handle, entry.name.as_ptr()) },
    };
    let target = match address.is_null() {
        true => missing as *const () as u64,
        false => address as u64,
    };
    entry.target.store(target, Ordering::Release);
    target
}

extern "C" fn missing_called(entry: &Entry) -> u32 {
    if !entry.said.swap(true, Ordering::Relaxed) {
        let name = entry.name.to_string_lossy();
        crate::say(&format!(
            "{name} is not supported; it returns cudaErrorNotSupported"
        ));
    }
    NOT_SUPPORTED
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

/// The directory that this library was loaded from.
fn own_directory() -> Option<PathBuf> {
    // SAFETY: dladdr fills the structure from an address of this library; a zeroed one is valid.
    let file = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own_directory as *const c_void, &mut info) == 0 || info.dli_fname.is_null()
        {
            return None;
        }
        PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes()))
    };
    Some(file.canonicalize().ok()?.parent()?.to_owned())
}

/// Whether a stub that returns an error code can replace the function. Functions that return strings or structures
/// compute something simple from their arguments, so those of the static runtime stay. Functions of CUDA 11 that
/// register references return nothing; the static runtime's versions would take our handles for NVIDIA's.
pub fn returns_error_code(name: &str) -> bool {
    let others = [
        "cudaGetErrorName",
        "cudaGetErrorString",
        "cudaCreateChannelDesc",
    ];
    let registers = ["__cudaRegisterTexture", "__cudaRegisterSurface"];
    registers.contains(&name) || (!others.contains(&name) && !name.starts_with("__cuda"))
}
