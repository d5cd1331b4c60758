// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sends the CUDA runtime calls of statically linked programs and libraries to our `libcudart`.
//!
//! nvcc links the CUDA runtime statically by default, and that runtime asks the driver for a self-test that only
//! NVIDIA's driver answers. Unless the program was stripped, its symbol table has the names of the runtime's functions.
//! `libgpgpu_preload.so`, named in `LD_PRELOAD`, finds them before the program's own constructors run (they register
//! the program's kernels) and overwrites the start of each such function with a jump to the same-named function of our
//! `libcudart.so.12` (for 11.8 and 12) or `.13`, which is loaded at the first such call. A program without a static
//! runtime stays exactly as it is: no function is hooked, no library loaded.
//!
//! Libraries that the program loads later, by `dlopen`, are followed with the help of the dynamic linker:
//! `libgpgpu_audit.so`, named in `LD_AUDIT` (the package `gpgpu-audit`), learns of each as soon as it is mapped, before
//! it is relocated and before its constructors run, and calls [`HOOKS`]. A jump needs no relocation. Interposing
//! `dlopen` would come too late: constructors run inside it.
//!
//! NVIDIA's own libraries ([`nvidia`]) are never changed; their licence forbids it.
//!
//! | module | what it does |
//! |---|---|
//! | [`elf`] | finds the static runtime's functions in an ELF file |
//! | [`nvidia`] | knows NVIDIA's libraries by their names |
//! | [`objects`] | lists what the dynamic linker has loaded |
//! | [`memory`] | maps code and overwrites functions, never writable and executable at once |
//! | [`runtime`] | loads our libcudart and stands in for functions that it lacks |
//! | [`redirect`] | decides and makes the jumps |
//! | [`bindings`] | serves the Python package cuda-bindings, whose static runtime has no symbols |
//! | [`program`] | finds the kind of a program, for `gpgpu-run` |
//!
//! Environment: `GPGPU_LIBDIR` names the directory of our libraries (default: the preload's own, then
//! `LD_LIBRARY_PATH`); `GPGPU_PRELOAD_VERBOSE=1` lists the redirected files on stderr, and the stripped libraries with
//! kernels.
//!
//! Limits: stripped libraries that do not export the runtime's functions are not touched (but see [`bindings`]), nor
//! are calls that link-time optimisation has inlined, nor objects that a program loads into a link namespace of its own
//! (`dlmopen`). x86-64 and glibc only: musl's dynamic linker cannot load the preload, and `gpgpu-run` leaves it out for
//! a program with that linker. Programs that run with more rights than their caller (set-user-ID) ignore both
//! libraries.

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

pub mod bindings;
pub mod elf;
pub mod memory;
pub mod nvidia;
pub mod objects;
pub mod program;
pub mod redirect;
pub mod runtime;

/// Prints one line on stderr under the preload's name.
pub(crate) fn say(message: &str) {
    gpgpu_client::log::write(&format!("gpgpu-preload: {message}"));
}

/// Runs when the library is loaded, with the arguments that glibc passes to every constructor. A panic or an error must
/// not end the program: most programs with the preload do not need it.
extern "C" fn constructor(_argc: c_int, _argv: *mut *mut c_char, envp: *mut *mut c_char) {
    if is_in_program() {
        return;
    }
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: glibc's own variable; the process has one thread now. This constructor runs before libc's, which would
    // set it, and a dlopen runs libc's with the present value: an empty environment for the program, if unset.
    unsafe {
        if environ.is_null() {
            environ = envp;
        }
    }
    // Reads the environment while there are no other threads.
    runtime::is_verbose();
    guarded(redirect::redirect_loaded_objects);
    let hooks = [
        (&HOOKS.bound, bound as *const ()),
        (&HOOKS.closed, closed as *const ()),
        (&HOOKS.opened, opened as *const ()),
    ];
    for (hook, function) in hooks {
        hook.store(function.cast_mut(), Ordering::Release);
    }
}

/// Reports an error, if there was one.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), String> + std::panic::UnwindSafe) {
    match std::panic::catch_unwind(work) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => say(&error),
        Err(_) => say("internal error; the program runs as it is"),
    }
}

/// The functions that `libgpgpu_audit.so` calls: null until the program's own objects are handled.
#[repr(C)]
pub struct Hooks {
    opened: AtomicPtr<()>,
    closed: AtomicPtr<()>,
    bound: AtomicPtr<()>,
}

/// `libgpgpu_audit.so` finds it by its name. It is all zeros in the file, so it is valid before the preload is
/// relocated.
#[unsafe(export_name = "gpgpu_preload_hooks")]
pub static HOOKS: Hooks = Hooks {
    opened: AtomicPtr::new(std::ptr::null_mut()),
    closed: AtomicPtr::new(std::ptr::null_mut()),
    bound: AtomicPtr::new(std::ptr::null_mut()),
};

/// An object was mapped at `base`. Returns whether [`bound`] is to be called for its functions. The dynamic linker
/// holds its lock.
unsafe extern "C" fn opened(base: usize, path: *const c_char) -> c_uint {
    if path.is_null() {
        return 0;
    }
    // SAFETY: the dynamic linker's terminated string, which lives as long as the object.
    let path = Path::new(OsStr::from_bytes(
        unsafe { CStr::from_ptr(path) }.to_bytes(),
    ));
    guarded(|| redirect::object_opened(base as u64, path));
    let is_served = std::panic::catch_unwind(|| bindings::opened(path));
    c_uint::from(is_served.unwrap_or(false))
}

/// A function of such an object is about to be given to the program. Returns the address that the program gets. The
/// dynamic linker holds its lock.
unsafe extern "C" fn bound(name: *const c_char, address: usize) -> usize {
    // SAFETY: the dynamic linker's terminated string.
    bindings::bound(unsafe { CStr::from_ptr(name) }, address)
}

/// The object at `base` is about to be unmapped. The dynamic linker holds its lock.
unsafe extern "C" fn closed(base: usize, _path: *const c_char) -> c_uint {
    guarded(|| {
        redirect::object_closed(base as u64);
        Ok(())
    });
    0
}

/// Whether this code is part of the program: gpgpu-run contains it, and redirects nothing in itself.
fn is_in_program() -> bool {
    let object = |at: *const c_void| {
        // SAFETY: all-zero is a valid value.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `info` outlives the call; any address may be asked for.
        let is_known = unsafe { libc::dladdr(at, &mut info) } != 0;
        is_known.then_some(info.dli_fbase.addr())
    };
    // SAFETY: reads a value that the kernel gave to the process.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let entry = object(std::ptr::without_provenance(entry as usize));
    entry.is_some() && entry == object(constructor as *const c_void)
}

/// A constructor as glibc calls it: number of arguments, arguments, environment.
type Constructor = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

/// `build.rs` marks the shared library `DF_1_INITFIRST`, so that this entry runs before the constructors of every
/// other object, libraries with a static runtime among them.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: Constructor = constructor;
