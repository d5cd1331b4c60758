// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Makes the dynamic linker take our libraries, and notifies the preload of objects that a program loads late.
//!
//! `gpgpu-run` names `libgpgpu_audit.so` in `LD_AUDIT` (rtld-audit(7)). glibc's dynamic linker then calls it
//!
//! - for each library that is sought ([`la_objsearch`]): a file name that our directory has is taken from there,
//!   whatever `DT_RPATH`, `LD_LIBRARY_PATH` or an absolute path would have found, and so is a copy that a package has
//!   renamed ([`names`]). A name without a version is that of the version which is loaded already, if there is one;
//! - for each object that was mapped ([`la_objopen`]) and before one is unmapped ([`la_objclose`]): it hands these to
//!   the preload, which sends the calls of a static CUDA runtime to our libcudart. The object is not yet relocated then
//!   and none of its code has run;
//! - for each function that is sought ([`la_symbind64`]) in an object for which the preload asks this.
//!
//! Our directory is the one that the preload, `libgpgpu_preload.so`, was loaded from. Without the preload the library
//! does nothing.
//!
//! An audit library lives in a link namespace of its own, with its own copy of each library that it needs. So this one
//! needs none: it calls the kernel itself, and nothing in it can panic or allocate, so that neither the C library nor
//! Rust's is linked. Cargo would link Rust's into any shared library. So it makes a static one, and `cc` links that:
//!
//! ```sh
//! cc -shared -nostdlib -o libgpgpu_audit.so -Wl,--version-script=audit/libgpgpu_audit.map -Wl,-u,la_version \
//!    -Wl,-u,la_objopen -Wl,-u,la_objclose -Wl,-u,la_objsearch -Wl,-u,la_symbind64 -Wl,--gc-sections \
//!    -Wl,-z,now libgpgpu_audit.a
//! ```
//!
//! It defines no `la_pltenter`, and asks for the bindings of no object but those that the preload names. So calls
//! between libraries cost the same as without it: 2.7 ns bound lazily, measured with glibc 2.36 and 2.41. Before glibc
//! 2.35 any audit library adds some 20 ns to such a call (2.31), unless `LD_BIND_NOW` is set. A `dlopen` takes 13 µs
//! longer for each object, and 60 µs for one of 31 MB, for the preload's search through its symbols' names.
//!
//! Other ways were worse. An interposed `dlopen` comes before the file is mapped or after its constructors ran, and
//! does not see `DT_RPATH`. A jump in place of the debugger's hook in the dynamic linker would come in time, at no cost
//! for calls with any glibc, but would conflict with debuggers and see no searches.
//!
//! The dynamic linker holds its lock during each of these calls, so that only one runs at a time.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_long, c_uint};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use names::Parts;

mod files;
mod names;
mod symbols;

/// The file name of the preload.
const PRELOAD: &[u8] = b"libgpgpu_preload.so";

/// The preload's variable of type [`Hooks`].
const HOOKS_SYMBOL: &[u8] = b"gpgpu_preload_hooks";

/// The first version of the interface that has every function used here.
const INTERFACE: c_uint = 1;

/// `LM_ID_BASE`: the namespace of the program.
const BASE_NAMESPACE: c_long = 0;

/// `LA_FLG_BINDTO`: report bindings to the object's symbols.
const BOUND_TO: c_uint = 1;

/// `LA_SER_ORIG`: the name as the program or the library gave it.
const AS_GIVEN: c_uint = 1;

/// The part of glibc's `struct link_map` that is public.
#[repr(C)]
pub struct LinkMap {
    /// The load bias of the file's addresses.
    pub base: usize,
    /// The file's path.
    pub name: *const c_char,
    /// The dynamic section in memory.
    pub dynamic: *const symbols::Dynamic,
    /// The next object of the namespace.
    pub next: *const LinkMap,
    /// The object before it.
    pub previous: *const LinkMap,
}

/// A function of the preload: it takes an object's load address and its path. The result of [`Hooks::opened`] is 1 if
/// [`Hooks::bound`] is to be called for the object's functions, and 0 if not; that of [`Hooks::closed`] means nothing.
pub type Hook = unsafe extern "C" fn(usize, *const c_char) -> c_uint;

/// A function of the preload: it takes the name and the address of a function, and returns the address to give.
pub type BoundHook = unsafe extern "C" fn(*const c_char, usize) -> usize;

/// The preload's interface, which is null until the preload is ready.
#[repr(C)]
pub struct Hooks {
    /// Called when an object was mapped: a [`Hook`].
    pub opened: AtomicPtr<()>,
    /// Called before an object is unmapped: a [`Hook`].
    pub closed: AtomicPtr<()>,
    /// Called when a function was found: a [`BoundHook`].
    pub bound: AtomicPtr<()>,
}

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(std::ptr::null_mut());

/// The longest path that the kernel takes, with the terminating zero.
const PATH_MAX: usize = 4096;

/// Our directory with a trailing slash, followed by the file name of the search.
struct PathBuffer(UnsafeCell<[u8; PATH_MAX]>);

// SAFETY: only the dynamic linker's calls touch it, and it makes one at a time, under its lock.
unsafe impl Sync for PathBuffer {}

static PATH: PathBuffer = PathBuffer(UnsafeCell::new([0; PATH_MAX]));

/// The length of the directory in [`PATH`], in bytes; 0 while it is unknown.
static DIRECTORY_LENGTH: AtomicUsize = AtomicUsize::new(0);

/// Accepts the interface's version.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(_version: c_uint) -> c_uint {
    INTERFACE
}

/// An object was mapped. Asks for the bindings of its functions if the preload wants them.
///
/// # Safety
/// The dynamic linker calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(
    map: *const LinkMap,
    namespace: c_long,
    _cookie: *mut usize,
) -> c_uint {
    if namespace != BASE_NAMESPACE || map.is_null() {
        return 0;
    }
    // SAFETY: the linker passes a valid entry of its list, which nothing changes meanwhile, and whose name is a
    // terminated string.
    unsafe {
        let map = &*map;
        let length = string_length(map.name);
        if DIRECTORY_LENGTH.load(Ordering::Relaxed) == 0 {
            preload_found(map, length);
            return 0;
        }
        match call(hook(|hooks| &hooks.opened), map) {
            0 => 0,
            _ => BOUND_TO,
        }
    }
}

/// A function was found, by `dlsym` or for a relocation, in an object for which [`la_objopen`] has asked this. Gives
/// the address that the seeker gets.
///
/// # Safety
/// The dynamic linker calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_symbind64(
    symbol: *const symbols::Symbol,
    _index: c_uint,
    _from: *const usize,
    _to: *const usize,
    _flags: *mut c_uint,
    name: *const c_char,
) -> usize {
    // SAFETY: the linker passes a symbol whose value is the function's address, and a terminated name; the hook is one
    // of the preload's, of this type.
    unsafe {
        let address = symbols::value(symbol);
        let hook = hook(|hooks| &hooks.bound);
        if hook.is_null() {
            return address;
        }
        std::mem::transmute::<*mut (), BoundHook>(hook)(name, address)
    }
}

/// An object is going to be unmapped. Its destructors have run.
///
/// # Safety
/// The dynamic linker calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objclose(cookie: *const usize) -> c_uint {
    // SAFETY: a cookie holds the address of its object's entry unless an audit library changes it; this one does not,
    // and each has its own.
    unsafe {
        if let Some(map) = cookie
            .as_ref()
            .and_then(|map| (*map as *const LinkMap).as_ref())
        {
            call(hook(|hooks| &hooks.closed), map);
        }
    }
    0
}

/// A library is sought. Gives the path of ours if our directory has a file of that name, the name as it was otherwise.
///
/// A name other than the file's own has to be noted with our library, because the dynamic linker looks for it when it
/// checks the versions that a library needs, and ends the program if no object has it. It notes the name that was given
/// if it then loads the library by our path. If the library is loaded already, it notes the name only if that leads to
/// the same file by a search. So the name stays as it is then, and the first directory in which it is sought has our
/// library.
///
/// # Safety
/// The dynamic linker calls it with a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    cookie: *const usize,
    flag: c_uint,
) -> *const c_char {
    let directory = DIRECTORY_LENGTH.load(Ordering::Relaxed);
    if directory == 0 || name.is_null() {
        return name;
    }
    // SAFETY: the name is a terminated string; the buffer is this call's alone, and the linker has copied the result of
    // an earlier call. A cookie holds the address of the entry of the object that seeks, as la_objclose says.
    unsafe {
        let length = string_length(name);
        let start = after_last_slash(name, length);
        let file = name.add(start);
        let Some(parts) = Parts::of(file, length - start) else {
            return name;
        };
        let is_plain = parts.is_plain(file);
        if (is_plain && flag != AS_GIVEN) || directory + parts.end >= PATH_MAX {
            return name;
        }
        let path = PATH.0.get().cast::<u8>();
        if !find_in_directory(path.add(directory), path, file, parts) {
            return name;
        }
        let seeker = (cookie.as_ref()).map_or(std::ptr::null(), |map| *map as *const LinkMap);
        if !parts.has_version() {
            take_loaded_version(seeker, path, directory + parts.stem + 3);
        }
        let is_answer = match flag {
            AS_GIVEN => is_plain || start > 0 || !is_loaded(seeker, path, directory),
            _ => is_loaded(seeker, path, directory),
        };
        if is_answer { path.cast() } else { name }
    }
}

/// Puts the name of a library behind our directory's in the buffer, without a hash, and with as much of its version as
/// a file there has. Whether there is one.
///
/// # Safety
/// `to` lies in the buffer at `path`, behind the directory, and the name fits. The parts are the name's.
unsafe fn find_in_directory(
    to: *mut u8,
    path: *const u8,
    file: *const c_char,
    parts: Parts,
) -> bool {
    // SAFETY: the caller's promise; a plain name is no longer than the name.
    unsafe {
        let mut parts = parts;
        copy(to, file.cast(), parts.stem);
        loop {
            let rest = parts.end - parts.suffix;
            copy(to.add(parts.stem), file.add(parts.suffix).cast(), rest);
            to.add(parts.stem + rest).write_volatile(0);
            if files::exists(path) {
                return true;
            }
            match parts.shorter(file) {
                Some(shorter) => parts = shorter,
                None => return false,
            }
        }
    }
}

/// Replaces the path of a library without a version, `length` bytes, by that of a version which is loaded.
///
/// # Safety
/// The seeker is null or an entry of the dynamic linker's list; the path lies in the buffer.
unsafe fn take_loaded_version(seeker: *const LinkMap, path: *mut u8, length: usize) {
    // SAFETY: the caller's promise; nothing changes the list meanwhile, and names have their terminating zero.
    unsafe {
        let found = Objects::beside(seeker).find(|object| {
            starts_with(object.name, path.cast(), length) && read(object.name, length) == b'.'
        });
        if let Some(object) = found {
            let whole = string_length(object.name);
            if whole < PATH_MAX {
                copy(path, object.name.cast(), whole + 1);
            }
        }
    }
}

/// Whether an object of the seeker's namespace was loaded from the file at `path`, by whatever name of our directory.
///
/// # Safety
/// The seeker is null or an entry of the dynamic linker's list; `path` is a terminated string, at least `directory`
/// long.
unsafe fn is_loaded(seeker: *const LinkMap, path: *const u8, directory: usize) -> bool {
    // SAFETY: the caller's promise; nothing changes the list meanwhile.
    unsafe {
        let Some(identity) = files::identity(path) else {
            return false;
        };
        Objects::beside(seeker).any(|object| {
            starts_with(object.name, path.cast(), directory)
                && files::identity(object.name.cast()) == Some(identity)
        })
    }
}

/// The objects of a namespace, in the order in which they were loaded.
struct Objects(*const LinkMap);

impl Objects {
    /// Those of the namespace of an object; none for null.
    ///
    /// # Safety
    /// It is null or an entry of the dynamic linker's list, which does not change as long as this is used.
    unsafe fn beside(object: *const LinkMap) -> Self {
        let mut first = object;
        // SAFETY: the caller's promise: the entry before the first is null.
        while let Some(before) = unsafe { first.as_ref().and_then(|map| map.previous.as_ref()) } {
            first = before;
        }
        Self(first)
    }
}

impl Iterator for Objects {
    type Item = &'static LinkMap;

    fn next(&mut self) -> Option<Self::Item> {
        // SAFETY: an entry of the list, or null behind the last, as `beside` was promised.
        let object = unsafe { self.0.as_ref() }?;
        self.0 = object.next;
        Some(object)
    }
}

/// Whether a name is longer than `length` bytes and begins with as many of another.
///
/// # Safety
/// Both are terminated strings, the first perhaps null, and the second is at least as long.
unsafe fn starts_with(name: *const c_char, beginning: *const c_char, length: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        string_length(name) > length && (0..length).all(|at| read(name, at) == read(beginning, at))
    }
}

/// Remembers the directory and the hooks if the object is the preload.
///
/// # Safety
/// The entry is valid, and `length` is its name's.
unsafe fn preload_found(map: &LinkMap, length: usize) {
    // SAFETY: as the caller says; the buffer is written under the linker's lock, before anybody reads it.
    unsafe {
        let start = after_last_slash(map.name, length);
        if start == 0
            || start + PRELOAD.len() >= PATH_MAX
            || !equals(map.name.add(start), length - start, PRELOAD)
        {
            return;
        }
        let Some(hooks) = symbols::find(map, HOOKS_SYMBOL) else {
            return;
        };
        HOOKS.store(hooks as *mut Hooks, Ordering::Relaxed);
        copy(PATH.0.get().cast(), map.name.cast(), start);
        // The dynamic linker would take a dollar sign for a token: LD_LIBRARY_PATH alone serves such a directory. A
        // length beyond the buffer's end stands for it, so that the search ends here and no name ever fits.
        let has_token = (0..start).any(|at| read(map.name, at) == b'$');
        DIRECTORY_LENGTH.store(if has_token { PATH_MAX } else { start }, Ordering::Relaxed);
    }
}

/// One of the preload's hooks; null until it is ready.
fn hook(of: impl FnOnce(&Hooks) -> &AtomicPtr<()>) -> *mut () {
    // SAFETY: the pointer is null or the preload's variable; the preload is never unloaded.
    unsafe { HOOKS.load(Ordering::Relaxed).as_ref() }.map_or(std::ptr::null_mut(), |hooks| {
        of(hooks).load(Ordering::Acquire)
    })
}

/// The hook's result; 0 without one.
///
/// # Safety
/// `hook` is null or a [`Hook`] of the preload's.
unsafe fn call(hook: *mut (), map: &LinkMap) -> c_uint {
    if hook.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute::<*mut (), Hook>(hook)(map.base, map.name) }
}

/// One byte. Volatile, here and below, because the compiler would make a call to the C library of a loop otherwise.
///
/// # Safety
/// The byte exists.
unsafe fn read(text: *const c_char, at: usize) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { text.add(at).cast::<u8>().read_volatile() }
}

/// # Safety
/// The string is terminated, or null: as long as none then.
unsafe fn string_length(text: *const c_char) -> usize {
    let mut length = 0;
    // SAFETY: the caller's promise; the loop ends at the terminating zero.
    while !text.is_null() && unsafe { read(text, length) } != 0 {
        length += 1;
    }
    length
}

/// # Safety
/// `length` bytes are there.
unsafe fn after_last_slash(text: *const c_char, length: usize) -> usize {
    let mut start = length;
    // SAFETY: the caller's promise.
    while start > 0 && unsafe { read(text, start - 1) } != b'/' {
        start -= 1;
    }
    start
}

/// # Safety
/// `length` bytes of `text` are there.
unsafe fn equals(text: *const c_char, length: usize, other: &[u8]) -> bool {
    length == other.len()
        // SAFETY: the caller's promise, as both are equally long.
        && (0..length).all(|at| unsafe { read(text, at) == other.as_ptr().add(at).read_volatile() })
}

/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
unsafe fn copy(to: *mut u8, from: *const u8, length: usize) {
    for at in 0..length {
        // SAFETY: the caller's promise.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_preload_names_stay_as_they_are() {
        let name = c"/usr/lib/libcuda.so.1".as_ptr();
        // SAFETY: a terminated string; no cookie is looked at.
        let found = unsafe { la_objsearch(name, std::ptr::null(), AS_GIVEN) };
        assert_eq!(found, name);
    }
}
