// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Python modules that hold a static runtime without symbols, as `cuda.bindings` does.
//!
//! Such a file exports one function alone, `PyInit_NAME`. But a module that Cython has made publishes its C functions
//! for other modules: the dictionary `__pyx_capi__` has a capsule with the address of each, by its name, and other
//! modules take them from there when they are imported. So the module's functions `cudaX` or `_cudaX`, which pass
//! their arguments to the runtime's `cudaX`, are published as ours. None of the module's code is changed.
//!
//! The dictionary is there once the module has been executed. To be called then, [`follow`] makes the symbol
//! `PyInit_NAME` lead to [`initialise`], before anybody has looked it up. That calls the module's own function and
//! adds a step behind those by which Python executes the module (`Py_mod_exec`): [`executed`].

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::elf::{self, PythonModule};
use crate::memory;
use crate::runtime::{self, Runtime};
use crate::say;

/// `Py_mod_exec`.
const EXECUTE: c_int = 2;

/// How many steps a module may have. Modules of Cython have four.
const MOST_STEPS: usize = 64;

/// If this variable is a number other than 0, the functions of `cuda.bindings` call those of a second module that has
/// the runtime of per-thread default streams. Which of both a function calls is not known outside.
const PER_THREAD: &str = "CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM";

/// A followed module.
#[repr(C)]
pub struct Module {
    /// Where the symbol leads, by a jump that leaves the module's own address in `r11`.
    target: AtomicU64,
    /// The module's own `PyInit_NAME`.
    original: AtomicU64,
    /// The jump.
    code: AtomicU64,
}

/// Makes the symbol `PyInit_NAME` of a module that was mapped at `base` just now lead here. `known` is what this
/// returned for the same file, if it was open before.
///
/// # Errors
/// What the system says if there is no memory, or the symbol cannot be written.
pub fn follow(
    module: &PythonModule,
    base: u64,
    known: Option<&'static Module>,
) -> std::io::Result<&'static Module> {
    let followed = match known {
        Some(followed) => followed,
        None => {
            let followed: &'static Module = Box::leak(Box::new(Module {
                target: AtomicU64::new(called as *const () as u64),
                original: AtomicU64::new(0),
                code: AtomicU64::new(0),
            }));
            let slot = std::ptr::from_ref(followed) as u64;
            let code = memory::map_code(&memory::long_jump(slot), None)?;
            followed.code.store(code, Ordering::Release);
            followed
        }
    };
    let original = base.wrapping_add(module.function);
    followed.original.store(original, Ordering::Release);
    // The dynamic linker adds the base to what the symbol says.
    let value = followed.code.load(Ordering::Acquire).wrapping_sub(base);
    let symbol = base.wrapping_add(module.symbol_value);
    // SAFETY: the eight bytes are the value of a symbol of an object that was mapped just now, in its private and
    // read-only memory; nobody has looked the symbol up yet. It leads to a function of the same type.
    unsafe { memory::overwrite(symbol, &value.to_le_bytes(), libc::PROT_READ) }?;
    Ok(followed)
}

/// Where Python arrives when it calls `PyInit_NAME`.
#[unsafe(naked)]
unsafe extern "C" fn called() {
    std::arch::naked_asm!("mov rdi, r11", "jmp {initialise}", initialise = sym initialise)
}

/// Does what `PyInit_NAME` does, and adds a step to the module's definition.
extern "C" fn initialise(module: &Module) -> *mut c_void {
    let original = module.original.load(Ordering::Acquire) as usize;
    // SAFETY: the module's own function, which has this type by Python's rules, called as Python calls it.
    let made = unsafe {
        let original: extern "C" fn() -> *mut c_void = std::mem::transmute(original);
        original()
    };
    crate::guarded(|| add_step(made));
    made
}

/// A `PyModuleDef_Slot`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    id: c_int,
    value: *mut c_void,
}

/// A `PyModuleDef` behind its object's header: `m_init`, `m_index`, `m_copy`, then what the module's author wrote.
#[repr(C)]
struct Definition {
    base: [usize; 3],
    name: *const c_char,
    doc: *const c_char,
    size: isize,
    methods: *mut c_void,
    slots: *mut Slot,
}

/// Adds [`executed`] to the steps of a definition that `PyInit_NAME` has returned. A module that is complete already
/// (single-phase initialisation) has its functions published.
fn add_step(made: *mut c_void) -> Result<(), String> {
    if made.is_null() {
        return Ok(());
    }
    let definition_type = symbol(c"PyModuleDef_Type")?;
    // Where an object has its type: behind its count of references, which is longer in Python without a global lock.
    let has_type = |at: usize| {
        // SAFETY: a Python object; each build's header holds at least four words, or a definition follows it.
        unsafe { *made.cast::<*mut c_void>().add(at) == definition_type }
    };
    let header = match () {
        () if has_type(1) => 2,
        () if has_type(3) => 4,
        () => {
            publish(made)?;
            return Ok(());
        }
    };
    // SAFETY: the object is a definition, by its type; its fields follow the header, and nobody else uses it before
    // this function returns, for Python holds the lock of the module's import.
    let definition = unsafe { &mut *made.cast::<usize>().add(header).cast::<Definition>() };
    if definition.slots.is_null() {
        return Ok(());
    }
    let mut steps = Vec::new();
    for at in 0..MOST_STEPS {
        // SAFETY: the array ends with an entry of id 0, which is not passed.
        let slot = unsafe { *definition.slots.add(at) };
        if slot.value == executed as *mut c_void {
            return Ok(());
        }
        if slot.id == 0 {
            let value = executed as *mut c_void;
            steps.push(Slot { id: EXECUTE, value });
            steps.push(slot);
            definition.slots = Box::leak(steps.into_boxed_slice()).as_mut_ptr();
            return Ok(());
        }
        steps.push(slot);
    }
    Err("a Python module has too many steps; left as it is".into())
}

/// The last step by which a followed module is executed.
extern "C" fn executed(module: *mut c_void) -> c_int {
    crate::guarded(|| publish(module).map(drop));
    0
}

/// What is used of Python, which the program or one of its libraries exports.
struct Python {
    get_attribute: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
    release: extern "C" fn(*mut c_void),
    clear_error: extern "C" fn(),
    module_name: extern "C" fn(*mut c_void) -> *const c_char,
    dictionary_next:
        extern "C" fn(*mut c_void, *mut isize, *mut *mut c_void, *mut *mut c_void) -> c_int,
    text: extern "C" fn(*mut c_void, *mut isize) -> *const c_char,
    capsule_name: extern "C" fn(*mut c_void) -> *const c_char,
    set_capsule_pointer: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
}

fn symbol(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name is a terminated string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    match found.is_null() {
        true => Err(format!(
            "Python does not export {}; a module with a static CUDA runtime is left as it is",
            name.to_string_lossy()
        )),
        false => Ok(found),
    }
}

impl Python {
    fn find() -> Result<Self, String> {
        // SAFETY: functions of Python's C API, each of which has this type in all versions of Python 3.
        unsafe {
            Ok(Self {
                get_attribute: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(*mut c_void, *const c_char) -> *mut c_void,
                >(symbol(c"PyObject_GetAttrString")?),
                release: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(symbol(
                    c"Py_DecRef",
                )?),
                clear_error: std::mem::transmute::<*mut c_void, extern "C" fn()>(symbol(
                    c"PyErr_Clear",
                )?),
                module_name: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(*mut c_void) -> *const c_char,
                >(symbol(c"PyModule_GetName")?),
                dictionary_next: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(
                        *mut c_void,
                        *mut isize,
                        *mut *mut c_void,
                        *mut *mut c_void,
                    ) -> c_int,
                >(symbol(c"PyDict_Next")?),
                text: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(*mut c_void, *mut isize) -> *const c_char,
                >(symbol(c"PyUnicode_AsUTF8AndSize")?),
                capsule_name: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(*mut c_void) -> *const c_char,
                >(symbol(c"PyCapsule_GetName")?),
                set_capsule_pointer: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(*mut c_void, *mut c_void) -> c_int,
                >(symbol(c"PyCapsule_SetPointer")?),
            })
        }
    }

    /// A text that Python has given; none for an error.
    fn string(&self, text: *const c_char) -> Option<String> {
        if text.is_null() {
            (self.clear_error)();
            return None;
        }
        // SAFETY: a terminated string of an object that the caller refers to.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }
}

/// A function that the module publishes.
struct Published {
    /// The runtime's name of it.
    name: String,
    capsule: *mut c_void,
}

/// Makes the module publish our functions in place of its own; how many they are. Python's lock is held.
fn publish(module: *mut c_void) -> Result<usize, String> {
    let python = Python::find()?;
    let dictionary = (python.get_attribute)(module, c"__pyx_capi__".as_ptr());
    if dictionary.is_null() {
        (python.clear_error)();
        return Ok(0);
    }
    let named = python.string((python.module_name)(module));
    let done = publish_in(&python, dictionary, &named.unwrap_or_default());
    (python.release)(dictionary);
    done
}

fn publish_in(python: &Python, dictionary: *mut c_void, module: &str) -> Result<usize, String> {
    // As CUDA itself calls them.
    let per_thread = module.ends_with("_ptds");
    let chosen = std::env::var(PER_THREAD).ok();
    let is_chosen = chosen.is_some_and(|text| text.trim().parse().is_ok_and(|n: i64| n != 0));
    if is_chosen && !per_thread {
        return Ok(0);
    }
    let (mut functions, mut at) = (Vec::new(), 0);
    let (mut key, mut value) = (null_mut(), null_mut());
    while (python.dictionary_next)(dictionary, &mut at, &mut key, &mut value) != 0 {
        let name = python.string((python.text)(key, null_mut()));
        // A capsule's name is the function's type; Python says that other objects are none.
        let signature = python.string((python.capsule_name)(value));
        let (Some(name), Some(signature)) = (name, signature) else {
            continue;
        };
        if let Some(name) = runtimes_name(&name, &signature) {
            functions.push(Published {
                name: name.to_owned(),
                capsule: value,
            });
        }
    }
    if functions.is_empty() {
        return Ok(0);
    }
    let version = elf::version_of(|name| functions.iter().any(|function| function.name == name))
        .ok_or_else(|| format!("{module} holds a static CUDA runtime older than 12"))?;
    // Of this module's functions alone. Whoever holds the lock needs no other, but those of the file system.
    static RUNTIMES: Mutex<Option<HashMap<u32, Runtime>>> = Mutex::new(None);
    let mut runtimes = RUNTIMES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtimes = runtimes.get_or_insert_default();
    let runtime = match runtimes.entry(version) {
        std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
        std::collections::hash_map::Entry::Vacant(entry) => entry.insert(
            Runtime::find(version)
                .map_err(|error| format!("{module} needs our libcudart.so.{version}: {error}"))?,
        ),
    };
    let name_of = |function: &Published| {
        let variants = ["_ptsz", "_ptds"].map(|suffix| format!("{}{suffix}", function.name));
        let variant = variants.into_iter().find(|name| runtime.has(name));
        variant
            .filter(|_| per_thread)
            .unwrap_or_else(|| function.name.clone())
    };
    let names: Vec<String> = functions.iter().map(name_of).collect();
    let jumps: Vec<u8> = names
        .iter()
        .flat_map(|name| memory::long_jump(runtime.entry(name).address()))
        .collect();
    let code = memory::map_code(&jumps, None)
        .map_err(|error| format!("No memory for the functions of {module}: {error}"))?;
    for (index, function) in functions.iter().enumerate() {
        let target = code + (index * memory::LONG_JUMP) as u64;
        (python.set_capsule_pointer)(function.capsule, target as *mut c_void);
    }
    if runtime::is_verbose() {
        let count = functions.len();
        say(&format!(
            "{module}: {count} functions go to libcudart.so.{version}"
        ));
    }
    Ok(functions.len())
}

/// The runtime's name of a function that a module publishes by `name`, if it passes on what it gets. Functions that
/// return something else than an error code work by themselves.
fn runtimes_name<'a>(name: &'a str, signature: &str) -> Option<&'a str> {
    let name = name.strip_prefix('_').unwrap_or(name);
    let is_passed_on = signature.starts_with("cudaError_t (")
        && elf::is_runtime_function(name)
        && runtime::returns_error_code(name);
    is_passed_on.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_the_runtimes_by_name_and_type() {
        let synchronize = Some("cudaDeviceSynchronize");
        let code = "cudaError_t (void)";
        assert_eq!(runtimes_name("_cudaDeviceSynchronize", code), synchronize);
        assert_eq!(runtimes_name("cudaDeviceSynchronize", code), synchronize);
        assert_eq!(runtimes_name("cudaDeviceSynchronize", "int (void)"), None);
        assert_eq!(runtimes_name("_cudaOwnHelper", code), None);
        assert_eq!(runtimes_name("_getLocalRuntimeVersion", code), None);
        let text = "char const *(cudaError_t)";
        assert_eq!(runtimes_name("_cudaGetErrorName", text), None);
    }
}
