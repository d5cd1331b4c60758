// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kind of a program. It determines how the program runs under `gpgpu-run`.

use std::path::Path;

use object::elf;
use object::read::elf::FileHeader as _;

use crate::elf::{Elf, Image, RuntimeFunction, runtime_version};

/// The shared runtimes of the guest's libraries, newest first.
pub const RUNTIMES: [&str; 2] = ["libcudart.so.13", "libcudart.so.12"];

/// How a program uses CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Not an ELF file: most likely a script.
    NotElf,
    /// An ELF file for another machine or word size.
    OtherMachine,
    /// A program for musl, which loads no libraries made for glibc.
    Musl,
    /// An ELF file without a dynamic linker and without CUDA, such as a launcher of other programs.
    Static,
    /// An ELF file without a dynamic linker, so no library can be preloaded, with the static runtime.
    FullyStatic,
    /// Linked with a shared libcudart of this name, directly or through another library (`None`).
    SharedRuntime(Option<String>),
    /// Contains the static runtime of this major version (`None`: older than 11.8) with its symbols.
    StaticRuntime {
        /// Major version.
        version: Option<u32>,
        /// The number of the runtime's functions that were found.
        functions: usize,
    },
    /// Contains the static runtime, stripped of its symbols.
    StrippedRuntime,
    /// Linked with libcuda and no runtime.
    DriverApi,
    /// The file does not use CUDA; a library that it loads may still use it.
    NoCuda,
}

impl Kind {
    /// The file's kind.
    ///
    /// # Errors
    /// The system's error if the file cannot be read.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        if std::fs::metadata(path)?.len() == 0 {
            return Ok(Self::NotElf);
        }
        let Some(image) = Image::open(path) else {
            return Err(std::fs::File::open(path)
                .err()
                .unwrap_or_else(std::io::Error::last_os_error));
        };
        if !image.bytes().starts_with(&elf::ELFMAG) {
            return Ok(Self::NotElf);
        }
        Ok(image
            .elf()
            .map_or(Self::OtherMachine, |elf| Self::of_elf(&elf)))
    }

    fn of_elf(elf: &Elf<'_>) -> Self {
        let functions: Vec<RuntimeFunction> = elf.runtime_functions();
        let needed = elf.needed();
        let needs = |prefix: &str| needed.iter().find(|name| name.starts_with(prefix)).cloned();
        if !elf.has_interpreter() && needed.is_empty() && !is_library(elf) {
            return match functions.is_empty() && !elf.has_stripped_runtime() {
                true => Self::Static,
                false => Self::FullyStatic,
            };
        }
        if elf.is_for_musl() {
            return Self::Musl;
        }
        if !functions.is_empty() {
            return Self::StaticRuntime {
                version: runtime_version(&functions),
                functions: functions.len(),
            };
        }
        if let Some(name) = needs("libcudart") {
            return Self::SharedRuntime(Some(name));
        }
        if elf.imports("__cudaRegisterFatBinary") {
            return Self::SharedRuntime(None);
        }
        if elf.has_stripped_runtime() {
            return Self::StrippedRuntime;
        }
        match needs("libcuda.so") {
            Some(_) => Self::DriverApi,
            None => Self::NoCuda,
        }
    }

    /// A line about the program and its CUDA calls.
    pub fn describe(&self) -> String {
        match self {
            Self::NotElf => "a script or no ELF file: runs as it is; the programs that it starts inherit the libraries".into(),
            Self::OtherMachine => "not an ELF program for x86-64".into(),
            Self::Musl => "linked with musl: runs as it is, without CUDA; our libraries need glibc".into(),
            Self::Static => "fully static, without CUDA: runs as it is; the programs that it starts inherit the libraries".into(),
            Self::FullyStatic => "fully static, with the CUDA runtime: it loads no libraries, ours neither".into(),
            Self::SharedRuntime(Some(name)) if !is_served(name) => format!("linked with a shared CUDA runtime ({name}) that is not served"),
            Self::SharedRuntime(Some(name)) => format!("linked with the shared CUDA runtime ({name}): uses ours"),
            Self::SharedRuntime(None) => "linked with the shared CUDA runtime through another library: uses ours".into(),
            Self::StaticRuntime { version: Some(version), functions } => format!(
                "linked with the static CUDA runtime {version}: the preload sends {functions} functions to our libcudart"
            ),
            Self::StaticRuntime { version: None, .. } => "linked with a static CUDA runtime older than 11.8".into(),
            Self::StrippedRuntime => "linked with the static CUDA runtime and stripped of its symbols".into(),
            Self::DriverApi => "uses the CUDA driver API: runs on our libcuda.so.1".into(),
            Self::NoCuda => "nothing of CUDA in the file itself: libraries that it loads find ours".into(),
        }
    }

    /// Whether the file itself makes CUDA calls.
    pub fn uses_cuda(&self) -> bool {
        match self {
            Self::SharedRuntime(_)
            | Self::StaticRuntime { .. }
            | Self::StrippedRuntime
            | Self::FullyStatic
            | Self::DriverApi => true,
            Self::NotElf | Self::OtherMachine | Self::Musl | Self::Static | Self::NoCuda => false,
        }
    }

    /// The file name of the runtime that the program's calls go to; `None` if it uses none itself, or the name does not
    /// say which.
    pub fn runtime(&self) -> Option<&'static str> {
        let number = |name: &str| {
            name.rsplit_once('.')
                .and_then(|(_, number)| number.parse().ok())
        };
        match self {
            Self::SharedRuntime(Some(name)) => RUNTIMES.into_iter().find(|served| served == name),
            // That of CUDA 12 serves the programs of 11.8, too.
            Self::StaticRuntime { version, .. } => {
                let mut oldest_first = RUNTIMES.into_iter().rev();
                oldest_first.find(|name| number(name) >= *version)
            }
            _ => None,
        }
    }

    /// The reason why the program cannot use the virtual GPU, with a remedy; `None` if it can.
    pub fn obstacle(&self) -> Option<&'static str> {
        match self {
            Self::SharedRuntime(Some(name)) if !is_served(name) => Some(
                "it is linked with a CUDA runtime that is not served; rebuild it with CUDA 12 or 13",
            ),
            Self::OtherMachine => Some("it is no 64-bit x86 program; only those are supported"),
            Self::FullyStatic => Some(
                "it is linked fully statically, so no library can be put in its way; relink it without -static",
            ),
            Self::StaticRuntime { version: None, .. } => {
                Some("its static CUDA runtime is older than 11.8; rebuild it with CUDA 12 or 13")
            }
            Self::StrippedRuntime => Some(
                "it is linked with the static CUDA runtime and stripped, so the runtime's functions cannot be found; \
                 relink it with nvcc -cudart shared, or do not strip it",
            ),
            _ => None,
        }
    }
}

/// Whether the guest's libraries include the shared runtime with this name.
fn is_served(name: &str) -> bool {
    name == "libcudart.so" || RUNTIMES.contains(&name)
}

/// Whether a shared object without an interpreter and without dependencies is a library: it has a name.
fn is_library(elf: &Elf<'_>) -> bool {
    let header = elf.file().elf_header();
    header.e_type(object::Endianness::Little) == elf::ET_DYN && elf.soname().is_some()
}
