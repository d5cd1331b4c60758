//! Decides where each function of a static runtime is to go, and makes the jumps.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;

use crate::elf::{self, Image, RuntimeFunction};
use crate::memory::{self, ABSOLUTE_JUMP, RELATIVE_JUMP};
use crate::objects::{self, LoadedObject};
use crate::runtime::{self, Runtime};
use crate::say;

/// One function to overwrite, in memory.
struct Patch {
    name: String,
    address: u64,
    room: u64,
    protection: c_int,
    target: Target,
}

/// Where a function goes.
enum Target {
    Ours(u64),
    Missing,
}

/// Looks at everything that is loaded and redirects each static runtime. Costs one search through the symbol names of
/// each file where there is none.
///
/// # Errors
/// Says why a program with a static runtime could not be served.
pub fn redirect_loaded_objects() -> Result<(), String> {
    let mut runtimes: HashMap<u32, Runtime> = HashMap::new();
    for object in objects::loaded_objects() {
        let Some(image) = Image::open(&object.path) else {
            continue;
        };
        let functions = match image.elf() {
            // A libcudart is a runtime itself, ours perhaps, and is called as one.
            Some(elf) if !is_shared_runtime(&elf, &object) => elf.runtime_functions(),
            _ => continue,
        };
        if functions.is_empty() {
            continue;
        }
        let path = match object.is_executable {
            true => std::env::current_exe().unwrap_or_else(|_| object.path.clone()),
            false => object.path.clone(),
        };
        if !object.was_loaded_from(image.bytes()) {
            say(&format!(
                "{} changed while it started; left as it is",
                path.display()
            ));
            continue;
        }
        let version = elf::runtime_version(&functions).ok_or_else(|| {
            format!(
                "{} holds a static CUDA runtime older than 12; rebuild it with CUDA 12 or 13",
                path.display()
            )
        })?;
        let runtime = match runtimes.entry(version) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(Runtime::load(version).map_err(|error| {
                    format!(
                        "{} needs our libcudart.so.{version}: {error}",
                        path.display()
                    )
                })?)
            }
        };
        let count = redirect(&object, functions, runtime)?;
        if std::env::var_os("GPGPU_PRELOAD_VERBOSE").is_some_and(|value| value == "1") {
            say(&format!(
                "{}: {count} functions go to libcudart.so.{version}",
                path.display()
            ));
        }
    }
    Ok(())
}

fn is_shared_runtime(elf: &elf::Elf<'_>, object: &LoadedObject) -> bool {
    !object.is_executable
        && elf
            .soname()
            .is_some_and(|name| name.starts_with("libcudart.so"))
}

/// Redirects one object's functions and returns how many.
fn redirect(
    object: &LoadedObject,
    functions: Vec<RuntimeFunction>,
    runtime: &Runtime,
) -> Result<usize, String> {
    let patches = plan(object, functions, runtime);
    let code_of = |patch: &Patch| match patch.target {
        Target::Ours(address) => memory::absolute_jump(address).to_vec(),
        Target::Missing => runtime::missing_function(&patch.name),
    };

    // Stand-ins, and a step on the way for functions too short for a long jump, are code of our own.
    let mut code = Vec::new();
    let mut offsets = Vec::new();
    let mut near: Option<(u64, u64)> = None;
    for patch in &patches {
        let short = patch.room < ABSOLUTE_JUMP as u64;
        offsets.push((short || matches!(patch.target, Target::Missing)).then_some(code.len()));
        if offsets.last().is_some_and(Option::is_some) {
            code.extend(code_of(patch));
        }
        if short {
            let (low, high) = near.unwrap_or((patch.address, patch.address));
            near = Some((
                low.min(patch.address),
                high.max(patch.address + ABSOLUTE_JUMP as u64),
            ));
        }
    }
    let base = match code.is_empty() {
        true => 0,
        false => memory::map_code(&code, near)
            .map_err(|error| format!("No memory for jumps near the program: {error}"))?,
    };

    for (patch, offset) in patches.iter().zip(offsets) {
        let target = match (offset, &patch.target) {
            (None, Target::Ours(address)) => *address,
            (offset, _) => base + offset.unwrap_or_default() as u64,
        };
        let jump = match patch.room >= ABSOLUTE_JUMP as u64 {
            true => memory::absolute_jump(target).to_vec(),
            false => match memory::relative_jump(patch.address, target) {
                Some(jump) => jump.to_vec(),
                None => return Err(format!("{} is out of reach", patch.name)),
            },
        };
        // SAFETY: plan() saw to it that the bytes belong to this function alone and lie in an executable segment with
        // that protection. The program has not begun to run, and this code lies on other pages.
        unsafe { memory::overwrite(patch.address, &jump, patch.protection) }
            .map_err(|error| format!("{} cannot be redirected: {error}", patch.name))?;
    }
    Ok(patches.len())
}

/// The functions to overwrite, each place once.
fn plan(object: &LoadedObject, functions: Vec<RuntimeFunction>, runtime: &Runtime) -> Vec<Patch> {
    let mut patches: BTreeMap<u64, Patch> = BTreeMap::new();
    for function in functions {
        let target = match runtime.function(&function.name) {
            Some(address) => Target::Ours(address),
            // Not CUDA's but the program's own, by its name.
            None if !elf::is_runtime_function(&function.name) => continue,
            None if runtime::returns_error_code(&function.name) => Target::Missing,
            None => continue,
        };
        let symbol = object.base.wrapping_add(function.address);
        let (address, room) = match function.indirect {
            false => (symbol, function.room),
            true => match implementation(object, symbol) {
                // How long it is is not known; its own symbol, if it has one, is not CUDA's.
                Some(address) => (address, ABSOLUTE_JUMP as u64),
                None => continue,
            },
        };
        if room < RELATIVE_JUMP as u64 {
            say(&format!(
                "{} is too short to redirect ({room} bytes); left as it is",
                function.name
            ));
            continue;
        }
        let length = room.min(ABSOLUTE_JUMP as u64);
        let Some(protection) = object.text_protection(address, length) else {
            say(&format!(
                "{} lies outside the program's code; left as it is",
                function.name
            ));
            continue;
        };
        let patch = Patch {
            name: function.name,
            address,
            room,
            protection,
            target,
        };
        match patches.get(&address) {
            // Two names for one function: one that ours has is better than one that it lacks.
            Some(Patch {
                target: Target::Ours(_),
                ..
            }) => {}
            _ => {
                patches.insert(address, patch);
            }
        }
    }
    patches.into_values().collect()
}

/// What an indirect function's resolver chooses.
fn implementation(object: &LoadedObject, resolver: u64) -> Option<u64> {
    object.text_protection(resolver, 1)?;
    // SAFETY: a symbol of type STT_GNU_IFUNC is a function without arguments that returns an address. The dynamic
    // linker has called it already, when it relocated the object, or would at its first use.
    let address = unsafe {
        let resolve: extern "C" fn() -> u64 = std::mem::transmute(resolver as usize);
        resolve()
    };
    object
        .text_protection(address, ABSOLUTE_JUMP as u64)
        .map(|_| address)
}
