// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Serves `cuda.bindings.runtime`, a module of the Python package cuda-bindings.
//!
//! The package holds a static runtime without symbols, so that [`crate::elf`] finds nothing to redirect. It is in one
//! module of C functions, `cuda.bindings._internal.runtime` (`cuda.bindings._bindings.cyruntime` in 12.9), and a module
//! made by Cython passes its C functions on as capsules in a dictionary, `__pyx_capi__`. The one that takes them is
//! `cuda.bindings.cyruntime`, which all others call. So when Python is about to initialise that module, the capsules of
//! the first get the addresses of our libcudart's functions with the same names. No code of the package changes, and
//! its static runtime stays unused.
//!
//! The audit library shows the moment: it asks [`opened`] about each object, and [`bound`] about each function of the
//! module that is sought.
//!
//! Releases since 12.9.8 and 13.4 have the Apache licence. Those before have NVIDIA's, which allows no changes, so they
//! are left as they are.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use gpgpu_locks::Mutex;

use crate::memory::{self, LONG_JUMP};
use crate::runtime::{self, Runtime};
use crate::say;

/// The function by which Python initialises the module.
const INITIALISE: &CStr = c"PyInit_cyruntime";

/// The modules with the runtime: of the releases since 13.4, and of 12.9.
const MODULES: [&CStr; 2] = [
    c"cuda.bindings._internal.runtime",
    c"cuda.bindings._bindings.cyruntime",
];

/// The variable by which a program chooses default streams of its threads.
const PER_THREAD: &str = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM";

/// The module's own [`INITIALISE`], once Python has sought it.
static ORIGINAL: AtomicUsize = AtomicUsize::new(0);

/// The release that is served.
static RELEASE: Mutex<Option<Release>> = Mutex::new(None);

/// A release of cuda-bindings.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Release {
    /// The name and the version, as in `cuda_bindings-13.5.0`.
    name: String,
    major: u32,
    /// The directory of packages that it is in.
    packages: PathBuf,
}

impl Release {
    /// The release that is installed in a directory of packages, if its licence allows changes.
    ///
    /// # Errors
    /// The reason why it is left as it is.
    fn in_directory(packages: &Path) -> Result<Self, String> {
        let entries = fs::read_dir(packages).map_err(|error| error.to_string())?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let found = names.filter_map(|name| Some(name.strip_suffix(".dist-info")?.to_owned()));
        let mut found = found.filter(|name| name.starts_with("cuda_bindings-"));
        let name = found.next().ok_or("its release is unknown")?;
        let major = name
            .split(['-', '.'])
            .nth(1)
            .and_then(|text| text.parse().ok());
        let major = major.ok_or_else(|| format!("{name} has no version"))?;
        let metadata = packages.join(format!("{name}.dist-info/METADATA"));
        if !has_apache_licence(&metadata) {
            return Err(format!(
                "the licence of {name} allows no changes; 12.9.8, 13.4 and later releases work"
            ));
        }
        let packages = packages.to_owned();
        Ok(Self {
            name,
            major,
            packages,
        })
    }
}

/// Whether the metadata of a Python package names the Apache licence.
fn has_apache_licence(metadata: &Path) -> bool {
    let Ok(file) = File::open(metadata) else {
        return false;
    };
    // An empty line ends the fields; the package's own description follows.
    let lines = BufReader::new(file).lines().map_while(Result::ok);
    let mut fields = lines.take_while(|line| !line.is_empty());
    fields.any(|line| line.strip_prefix("License-Expression:").map(str::trim) == Some("Apache-2.0"))
}

/// The directory of packages that has the file as its module `cuda.bindings.cyruntime`.
fn packages(path: &Path) -> Option<&Path> {
    let file = path.file_name()?.to_str()?;
    let directory = path.parent().filter(|_| file.starts_with("cyruntime."))?;
    let packages = directory.ancestors().nth(2)?;
    (directory == packages.join("cuda/bindings")).then_some(packages)
}

/// An object was mapped. Returns whether [`bound`] is to be asked about its functions.
pub fn opened(path: &Path) -> bool {
    let Some(packages) = packages(path) else {
        return false;
    };
    match Release::in_directory(packages) {
        // The first one of a process is served.
        Ok(release) => RELEASE.lock().get_or_insert(release).packages == packages,
        Err(reason) => {
            if runtime::is_verbose() {
                say(&format!("{}: {reason}; left as it is", path.display()));
            }
            false
        }
    }
}

/// Whether a file belongs to the release that is served.
pub fn has_file(path: &Path) -> bool {
    let release = RELEASE.lock();
    let release = release.as_ref();
    release.is_some_and(|release| path.starts_with(release.packages.join("cuda/bindings")))
}

/// A function of such an object was found at an address. Returns the address that the program gets.
pub fn bound(name: &CStr, address: usize) -> usize {
    if name != INITIALISE {
        return address;
    }
    let unset = ORIGINAL.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
    match unset {
        // The same file was loaded a second time. It stays as it is.
        Err(first) if first != address => address,
        _ => initialise as *const () as usize,
    }
}

/// Serves the package, and then initialises its module. Python calls it with its lock held.
extern "C" fn initialise() -> *mut c_void {
    crate::guarded(|| {
        let release = RELEASE.lock().clone();
        release.map_or(Ok(()), |release| serve(&release))
    });
    // SAFETY: bound() has stored the address of the module's own function, which has this type.
    unsafe {
        let original = ORIGINAL.load(Ordering::Acquire);
        std::mem::transmute::<usize, extern "C" fn() -> *mut c_void>(original)()
    }
}

macro_rules! python {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of Python's stable interface, in the process that calls.
        #[allow(non_snake_case)]
        struct Python {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Python {
            fn find() -> Option<Self> {
                Some(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: a terminated string. Python's function of that name has this type.
                        unsafe {
                            type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
                            let found = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr().cast());
                            std::mem::transmute::<*mut c_void, Option<Function>>(found)?
                        }
                    },)*
                })
            }
        }
    };
}

/// A `PyObject`.
type Object = *mut c_void;

python! {
    PyImport_ImportModule(*const c_char) -> Object;
    PyObject_GetAttrString(Object, *const c_char) -> Object;
    PyDict_Next(Object, *mut isize, *mut Object, *mut Object) -> c_int;
    PyUnicode_AsUTF8AndSize(Object, *mut isize) -> *const c_char;
    PyCapsule_GetName(Object) -> *const c_char;
    PyCapsule_SetPointer(Object, *mut c_void) -> c_int;
    PyErr_Clear();
    Py_DecRef(Object);
}

/// A function that a module passes on: its name, its type in Cython's words, and its capsule.
struct Passed {
    name: String,
    kind: String,
    capsule: Object,
}

impl Python {
    /// The result, or `None` for NULL, after which no exception is left.
    fn given(&self, object: Object) -> Option<Object> {
        if object.is_null() {
            // SAFETY: Python's lock is held.
            unsafe { (self.PyErr_Clear)() };
            return None;
        }
        Some(object)
    }

    fn text(&self, text: *const c_char) -> Option<String> {
        self.given(text.cast_mut().cast())?;
        // SAFETY: Python gave a terminated string, whose object lives on.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// The dictionary of the first of [`MODULES`] that exists. It lives as long as its module, which Python keeps.
    fn dictionary(&self) -> Option<Object> {
        MODULES.iter().find_map(|module| {
            // SAFETY: Python's lock is held, the names are terminated, and a reference less leaves the module's own.
            unsafe {
                let module = self.given((self.PyImport_ImportModule)(module.as_ptr()))?;
                let found = (self.PyObject_GetAttrString)(module, c"__pyx_capi__".as_ptr());
                (self.Py_DecRef)(module);
                let found = self.given(found)?;
                (self.Py_DecRef)(found);
                Some(found)
            }
        })
    }

    /// The C functions in a module's dictionary.
    fn passed(&self, dictionary: Object) -> Vec<Passed> {
        let mut functions = Vec::new();
        let (mut at, mut key, mut capsule) = (0, null_mut(), null_mut());
        // SAFETY: Python's lock is held, the dictionary lives, and nothing changes it meanwhile.
        while unsafe { (self.PyDict_Next)(dictionary, &mut at, &mut key, &mut capsule) } != 0 {
            // SAFETY: as above; the objects are the dictionary's.
            let (name, kind) = unsafe {
                (
                    (self.PyUnicode_AsUTF8AndSize)(key, null_mut()),
                    (self.PyCapsule_GetName)(capsule),
                )
            };
            if let (Some(name), Some(kind)) = (self.text(name), self.text(kind)) {
                functions.push(Passed {
                    name,
                    kind,
                    capsule,
                });
            }
        }
        functions
    }
}

/// The name of our function that replaces a function of the module's, or of the one that our library lacks.
fn replacement(function: &Passed, runtime: &Runtime, per_thread: bool) -> Option<String> {
    let name = function.name.strip_prefix('_')?;
    let is_code = function.kind.starts_with("cudaError_t (");
    if !name.starts_with("cuda") || !(runtime.has(name) || is_code) {
        return None;
    }
    let suffixes = ["_ptsz", "_ptds"].iter().filter(|_| per_thread);
    let mut names = suffixes.map(|suffix| format!("{name}{suffix}"));
    let special = names.find(|name| runtime.has(name));
    Some(special.unwrap_or_else(|| name.to_owned()))
}

/// Points the capsules to our libcudart's functions.
fn serve(release: &Release) -> Result<(), String> {
    let refused = |reason: &str| format!("{} is left as it is: {reason}", release.name);
    let python = Python::find().ok_or_else(|| refused("Python's functions were not found"))?;
    let dictionary = python.dictionary();
    let dictionary = dictionary.ok_or_else(|| refused("it has no module with the runtime"))?;
    let mut runtime = Runtime::find(release.major).map_err(|error| refused(&error))?;
    // The package reads it at its first call, as a number.
    let per_thread = std::env::var(PER_THREAD)
        .is_ok_and(|value| value.trim().parse::<i64>().is_ok_and(|number| number != 0));
    let found: Vec<_> = python
        .passed(dictionary)
        .into_iter()
        .filter_map(|function| {
            Some((
                replacement(&function, &runtime, per_thread)?,
                function.capsule,
            ))
        })
        .collect();
    let code: Vec<u8> = found
        .iter()
        .flat_map(|(name, _)| memory::long_jump(runtime.entry(name).address()))
        .collect();
    let code = memory::map_code(&code, None).map_err(|error| refused(&error.to_string()))?;
    for (at, (_, capsule)) in found.iter().enumerate() {
        let address = code as usize + at * LONG_JUMP;
        // SAFETY: Python's lock is held, and the capsule is the dictionary's. Its holders call the address with the
        // arguments of the CUDA function with that name, which the code there continues at.
        if unsafe { (python.PyCapsule_SetPointer)(*capsule, address as *mut c_void) } != 0 {
            python.given(null_mut());
        }
    }
    if runtime::is_verbose() {
        let (count, name) = (found.len(), &release.name);
        say(&format!("{name}: {count} functions go to our libcudart"));
    }
    Ok(())
}
