//! Sends the CUDA runtime calls of statically linked programs to our `libcudart`.
//!
//! nvcc links the CUDA runtime into the program unless it is told otherwise, and that runtime asks the driver for a
//! self-test that only NVIDIA's driver answers. Unless the program was stripped, the runtime's functions can be found
//! by name in its symbol table. `libgpgpu_preload.so`, named in `LD_PRELOAD`, does so before the program's own
//! constructors run (they register the program's kernels) and overwrites the start of each such function with a
//! jump to the same-named function of our `libcudart.so.12` or `.13`. A program without a static runtime is left
//! exactly as it is: no function is hooked, no library loaded.
//!
//! | module | what it does |
//! |---|---|
//! | [`elf`] | finds the static runtime's functions in an ELF file |
//! | [`objects`] | lists what the dynamic linker has loaded |
//! | [`memory`] | maps code and overwrites functions, never writable and executable at once |
//! | [`runtime`] | loads our libcudart and stands in for functions that it lacks |
//! | [`redirect`] | decides and makes the jumps |
//! | [`program`] | tells what kind of program a file is, for `gpgpu-run` |
//!
//! Environment: `GPGPU_LIBDIR` names the folder of our libraries (default: the preload's own, then the loader's
//! search path); `GPGPU_PRELOAD_VERBOSE=1` says on stderr what was redirected.
//!
//! Limits: libraries that a program loads later by `dlopen` are not touched; nor are stripped ones, nor calls that
//! link-time optimisation has inlined. x86-64 and glibc only.

use std::ffi::{c_char, c_int};

pub mod elf;
pub mod memory;
pub mod objects;
pub mod program;
pub mod redirect;
pub mod runtime;

/// Prints one line on stderr under the preload's name.
pub(crate) fn say(message: &str) {
    eprintln!("gpgpu-preload: {message}");
}

/// Runs when the library is loaded, with what glibc passes to every constructor. A panic or an error must not take the
/// program with it: most programs under the preload have no use for it.
extern "C" fn constructor(_argc: c_int, _argv: *mut *mut c_char, envp: *mut *mut c_char) {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: glibc's own variable; the process has one thread now. This constructor runs before libc's, which would
    // set it, and a dlopen runs libc's with whatever stands there: an empty environment for the program, if nothing.
    unsafe {
        if environ.is_null() {
            environ = envp;
        }
    }
    match std::panic::catch_unwind(redirect::redirect_loaded_objects) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => say(&error),
        Err(_) => say("internal error; the program runs as it is"),
    }
}

/// A constructor as glibc calls it: number of arguments, arguments, environment.
type Constructor = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

/// `build.rs` marks the shared library `DF_1_INITFIRST`, so that this entry runs before the constructors of every
/// other object, libraries with a static runtime among them.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: Constructor = constructor;
