// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decides where each function of a static runtime jumps to, and writes the jumps.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::c_int;
use std::path::{Path, PathBuf};

use gpgpu_locks::Mutex;

use crate::bindings;
use crate::elf::{self, Elf, Image, RuntimeFunction};
use crate::memory::{self, LONG_JUMP, RELATIVE_JUMP};
use crate::nvidia;
use crate::objects::{self, LoadedObject};
use crate::runtime::{self, Runtime};
use crate::say;

/// One function to overwrite, in memory.
struct Patch {
    name: String,
    address: u64,
    room: u64,
    protection: c_int,
}

/// Memory for jumps near an object that was loaded late.
struct Nearby {
    /// The object's base; `None` once the object is closed, so that another one can use the memory. The memory stays
    /// mapped: the dynamic linker closes objects at the program's end too, and their functions may still be called
    /// then.
    owner: Option<u64>,
    address: u64,
    length: usize,
}

/// The state. It is used only while the dynamic linker holds its lock, or before the program has threads. So its own
/// lock is never contended, and its holder waits for nothing but the file system.
#[derive(Default)]
struct State {
    runtimes: HashMap<u32, Runtime>,
    nearby: Vec<Nearby>,
    /// Stripped libraries that were reported.
    named: HashSet<PathBuf>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);

fn with_state<T>(work: impl FnOnce(&mut State) -> T) -> Option<T> {
    let mut state = STATE.try_lock()?;
    Some(work(state.get_or_insert_default()))
}

/// When an object is redirected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// At the program's start, when the object is already relocated.
    Start,
    /// Right after the object was mapped, before it is relocated.
    Mapped,
}

/// Examines all loaded objects and redirects each static runtime. In a file without a runtime, this costs one search
/// through the symbols' names.
///
/// # Errors
/// Says, for each object, why it could not be served. The others are served.
pub fn redirect_loaded_objects() -> Result<(), String> {
    let work = |state: &mut State| {
        let mut problems = Vec::new();
        for object in objects::loaded_objects() {
            let path = object.path.clone();
            problems.extend(state.look_at(&path, Moment::Start, || Some(object)).err());
        }
        problems
    };
    match with_state(work) {
        Some(problems) if !problems.is_empty() => Err(problems.join("\n")),
        _ => Ok(()),
    }
}

/// Redirects the static runtime of an object that the dynamic linker has mapped at `base` just now, if it has one.
///
/// # Errors
/// Says why an object with a static runtime could not be served.
pub fn object_opened(base: u64, path: &Path) -> Result<(), String> {
    let find = || {
        let mut objects = objects::loaded_objects().into_iter();
        objects.find(|object| object.base == base && object.path == path)
    };
    with_state(|state| state.look_at(path, Moment::Mapped, find)).unwrap_or(Ok(()))
}

/// Releases the resources of an object that is about to be unmapped.
pub fn object_closed(base: u64) {
    with_state(|state| {
        for nearby in &mut state.nearby {
            if nearby.owner == Some(base) {
                nearby.owner = None;
            }
        }
    });
}

impl State {
    fn look_at(
        &mut self,
        path: &Path,
        moment: Moment,
        object: impl FnOnce() -> Option<LoadedObject>,
    ) -> Result<(), String> {
        if nvidia::is_nvidias_file(path) {
            return Ok(());
        }
        let Some(image) = Image::open(path) else {
            return Ok(());
        };
        let Some(elf) = image.elf() else {
            return Ok(());
        };
        let functions = elf.runtime_functions();
        if functions.is_empty() {
            self.name_stripped(&elf, path);
            return Ok(());
        }
        // A libcudart, perhaps ours, is itself a runtime, and programs call it as one.
        if elf.soname().is_some_and(|name| nvidia::is_nvidias(&name)) {
            return Ok(());
        }
        let Some(object) = object() else {
            say(&format!("{} was not found; left as it is", path.display()));
            return Ok(());
        };
        let path = match object.is_executable {
            true => std::env::current_exe().unwrap_or_else(|_| path.to_owned()),
            false => path.to_owned(),
        };
        let shown = path.display();
        if !object.was_loaded_from(image.bytes()) {
            say(&format!("{shown} changed while it started; left as it is"));
            return Ok(());
        }
        let version = elf::runtime_version(&functions).ok_or_else(|| {
            format!(
                "{shown} holds a static CUDA runtime older than 11.8; rebuild it with CUDA 12 or 13"
            )
        })?;
        let count = self.redirect(&object, functions, version, moment, &path)?;
        if runtime::is_verbose() {
            say(&format!(
                "{shown}: {count} functions of CUDA {version} go to our libcudart"
            ));
        }
        Ok(())
    }

    /// Reports once that a library has kernels and no symbols.
    fn name_stripped(&mut self, elf: &Elf<'_>, path: &Path) {
        if runtime::is_verbose()
            && !bindings::has_file(path)
            && elf.has_stripped_runtime()
            && !elf.soname().is_some_and(|name| nvidia::is_nvidias(&name))
            && self.named.insert(path.to_owned())
        {
            say(&format!(
                "{} may hold a static CUDA runtime and is stripped; left as it is",
                path.display()
            ));
        }
    }

    /// Redirects one object's functions and returns their number.
    fn redirect(
        &mut self,
        object: &LoadedObject,
        functions: Vec<RuntimeFunction>,
        version: u32,
        moment: Moment,
        path: &Path,
    ) -> Result<usize, String> {
        let runtime = match self.runtimes.entry(version) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Runtime::find(version).map_err(|error| {
                    format!(
                        "{} needs our libcudart.so.{version}: {error}",
                        path.display()
                    )
                })?)
            }
        };
        let patches = plan(object, functions, runtime, moment);
        let mut jump_of = |patch: &Patch| memory::long_jump(runtime.entry(&patch.name).address());

        // A function that is too short for a long jump needs one within reach of a relative jump.
        let is_short = |patch: &&Patch| patch.room < LONG_JUMP as u64;
        let short: Vec<&Patch> = patches.iter().filter(is_short).collect();
        let mut nearby = 0;
        if let (Some(first), Some(last)) = (short.first(), short.last()) {
            let code: Vec<u8> = short.iter().flat_map(|patch| jump_of(patch)).collect();
            let range = (first.address, last.address + LONG_JUMP as u64);
            let owner = (moment == Moment::Mapped).then_some(object.base);
            nearby = nearby_code(&mut self.nearby, owner, &code, range)
                .map_err(|error| format!("No memory for jumps near the program: {error}"))?;
        }
        for patch in &patches {
            let jump = match is_short(&patch) {
                false => jump_of(patch).to_vec(),
                true => {
                    let jump = memory::relative_jump(patch.address, nearby);
                    nearby += LONG_JUMP as u64;
                    jump.ok_or_else(|| format!("{} is out of reach", patch.name))?
                        .to_vec()
                }
            };
            // SAFETY: plan() saw to it that the bytes belong to this function alone and lie in an executable segment
            // with that protection. None of the object's code has begun to run, and this code lies on other pages.
            unsafe { memory::overwrite(patch.address, &jump, patch.protection) }
                .map_err(|error| format!("{} cannot be redirected: {error}", patch.name))?;
        }
        Ok(patches.len())
    }
}

/// Places code within reach of a range, if possible where a closed object had its code.
fn nearby_code(
    known: &mut Vec<Nearby>,
    owner: Option<u64>,
    code: &[u8],
    range: (u64, u64),
) -> std::io::Result<u64> {
    let reaches = |from| memory::relative_jump(range.0, from).is_some();
    let free = known.iter_mut().find(|nearby| {
        nearby.owner.is_none()
            && nearby.length >= code.len()
            && reaches(nearby.address)
            && memory::relative_jump(range.1, nearby.address + code.len() as u64).is_some()
    });
    if let (Some(nearby), Some(_)) = (free, owner) {
        // SAFETY: the memory is mapped code of ours, and only functions jumped there that are no longer mapped.
        unsafe { memory::overwrite(nearby.address, code, libc::PROT_READ | libc::PROT_EXEC) }?;
        nearby.owner = owner;
        return Ok(nearby.address);
    }
    let address = memory::map_code(code, Some(range))?;
    if owner.is_some() {
        known.push(Nearby {
            owner,
            address,
            length: code.len(),
        });
    }
    Ok(address)
}

/// The functions to overwrite, each address once.
fn plan(
    object: &LoadedObject,
    functions: Vec<RuntimeFunction>,
    runtime: &Runtime,
    moment: Moment,
) -> Vec<Patch> {
    let mut patches: BTreeMap<u64, Patch> = BTreeMap::new();
    for function in functions {
        let is_ours = runtime.has(&function.name);
        // Our library has no such function: it is the program's own, by its name, or works without redirection.
        if !is_ours
            && (!elf::is_runtime_function(&function.name)
                || !runtime::returns_error_code(&function.name))
        {
            continue;
        }
        let symbol = object.base.wrapping_add(function.address);
        let (address, room) = match (function.indirect, moment) {
            (false, _) => (symbol, function.room),
            (true, Moment::Start) => match implementation(object, symbol) {
                // Its length is unknown. If it has a symbol of its own, that is not CUDA's.
                Some(address) => (address, LONG_JUMP as u64),
                None => continue,
            },
            // Its resolver cannot run before the object is relocated.
            (true, Moment::Mapped) => {
                say(&format!(
                    "{} is an indirect function; left as it is",
                    function.name
                ));
                continue;
            }
        };
        if room < RELATIVE_JUMP as u64 {
            say(&format!(
                "{} is too short to redirect ({room} bytes); left as it is",
                function.name
            ));
            continue;
        }
        let length = room.min(LONG_JUMP as u64);
        let Some(protection) = object.text_protection(address, length) else {
            say(&format!(
                "{} lies outside the program's code; left as it is",
                function.name
            ));
            continue;
        };
        // Two names for one function: prefer the name that our library has.
        if patches
            .get(&address)
            .is_none_or(|other| !runtime.has(&other.name))
        {
            let patch = Patch {
                name: function.name,
                address,
                room,
                protection,
            };
            patches.insert(address, patch);
        }
    }
    patches.into_values().collect()
}

/// The function that an indirect function's resolver chooses.
fn implementation(object: &LoadedObject, resolver: u64) -> Option<u64> {
    object.text_protection(resolver, 1)?;
    // SAFETY: a symbol of type STT_GNU_IFUNC is a function without arguments that returns an address. The dynamic
    // linker has called it already, when it relocated the object, or would at its first use.
    let address = unsafe {
        let resolve: extern "C" fn() -> u64 = std::mem::transmute(resolver as usize);
        resolve()
    };
    object
        .text_protection(address, LONG_JUMP as u64)
        .map(|_| address)
}
