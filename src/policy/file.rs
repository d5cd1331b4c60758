// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The policy as a file.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

use super::{
    Libraries, MAX_NAME, MAX_SOCKET_PATH, Policies, VmPolicy,
    values::{Gpus, LongestKernel, MaxClients, Memory, OverrunLimit, PauseLimit, Weight},
};

/// More than the number of VMs on any host.
const MAX_VMS: usize = 1024;

/// An error in a policy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct Error {
    /// The file, with the line if one line is wrong; or the flag.
    pub place: String,
    /// The error.
    pub message: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Whole {
    #[serde(default)]
    defaults: Defaults,
    #[serde(default)]
    libraries: LibrarySection,
    #[serde(default)]
    vm: Vec<Section>,
}

/// The directories of NVIDIA's libraries, for all VMs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct LibrarySection {
    #[serde(default)]
    folders: Vec<Spanned<PathBuf>>,
    #[serde(default)]
    ahead: Vec<Spanned<String>>,
    traces: Option<bool>,
}

/// The values for VMs that do not set them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Defaults {
    gpus: Option<Spanned<Gpus>>,
    memory: Option<Memory>,
    weight: Option<Weight>,
    max_clients: Option<MaxClients>,
    longest_kernel: Option<LongestKernel>,
    overrun_limit: Option<OverrunLimit>,
    pause_limit: Option<PauseLimit>,
    sensors: Option<bool>,
}

/// One VM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Section {
    name: Option<Spanned<String>>,
    socket: Spanned<PathBuf>,
    gpus: Option<Spanned<Gpus>>,
    memory: Option<Memory>,
    weight: Option<Weight>,
    max_clients: Option<MaxClients>,
    longest_kernel: Option<LongestKernel>,
    overrun_limit: Option<OverrunLimit>,
    pause_limit: Option<PauseLimit>,
    sensors: Option<bool>,
}

/// A file's path and text, for the places of errors.
#[derive(Debug)]
struct Source<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    /// The file and the line.
    fn place(&self, span: &Range<usize>) -> String {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        format!("{}:{line}", self.file.display())
    }

    /// An error in the line of `span`.
    fn wrong(&self, span: &Range<usize>, message: String) -> Error {
        Error {
            place: self.place(span),
            message,
        }
    }
}

impl LibrarySection {
    fn read(&self, source: &Source<'_>) -> Result<Libraries, Error> {
        let mut libraries = Libraries::default();
        if let Some(traces) = self.traces {
            libraries.traces = traces;
        }
        for directory in &self.folders {
            let added = libraries.add_directory(directory.as_ref());
            added.map_err(|message| source.wrong(&directory.span(), message))?;
        }
        for name in &self.ahead {
            let library = name.as_ref().parse();
            libraries.add_ahead(library.map_err(|message| source.wrong(&name.span(), message))?);
        }
        Ok(libraries)
    }
}

impl Section {
    /// Sets the values that the section or `defaults` contains. Returns the place of the GPUs, if either has them.
    fn set(self, vm: &mut VmPolicy, defaults: &Defaults) -> Option<Range<usize>> {
        let gpus = self.gpus.or_else(|| defaults.gpus.clone());
        let gpus_at = gpus.as_ref().map(Spanned::span);
        vm.gpus = gpus.and_then(|gpus| gpus.into_inner().0);
        let Memory(memory) = self.memory.or(defaults.memory).unwrap_or_default();
        vm.memory = memory;
        let Weight(weight) = self.weight.or(defaults.weight).unwrap_or_default();
        vm.weight = weight;
        let most = self.max_clients.or(defaults.max_clients);
        let MaxClients(most) = most.unwrap_or_default();
        vm.max_clients = most;
        let longest = self.longest_kernel.or(defaults.longest_kernel);
        let LongestKernel(longest) = longest.unwrap_or_default();
        vm.longest_kernel = longest;
        let limit = self.overrun_limit.or(defaults.overrun_limit);
        let OverrunLimit(limit) = limit.unwrap_or_default();
        vm.overrun_limit = limit;
        let limit = self.pause_limit.or(defaults.pause_limit);
        let PauseLimit(limit) = limit.unwrap_or_default();
        vm.pause_limit = limit;
        vm.sensors = self.sensors.or(defaults.sensors).unwrap_or_default();
        gpus_at
    }
}

impl Policies {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has an invalid value; the error names the line.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(|error| Error {
            place: file.display().to_string(),
            message: error.to_string(),
        })?;
        Self::parse(file, &text)
    }

    /// Parses a file's text.
    ///
    /// # Errors
    /// As [`Policies::read`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        let source = Source { file, text };
        let whole: Whole = match toml::from_str(text) {
            Ok(whole) => whole,
            Err(error) => {
                let span = error.span().unwrap_or_default();
                return Err(source.wrong(&span, error.message().replace('\n', "; ")));
            }
        };
        if whole.vm.is_empty() {
            return Err(Error {
                place: file.display().to_string(),
                message: "no [[vm]] section found".to_owned(),
            });
        }
        let mut policies = Self {
            vms: Vec::new(),
            libraries: whole.libraries.read(&source)?,
            file: Some(file.to_owned()),
            places: Vec::new(),
        };
        let mut known: Vec<PathBuf> = Vec::new();
        for section in whole.vm {
            let (socket, at) = (section.socket.as_ref(), section.socket.span());
            let resolved = check_socket(socket).map_err(|message| source.wrong(&at, message))?;
            if policies.vms.len() >= MAX_VMS {
                return Err(source.wrong(&at, format!("more than {MAX_VMS} VMs")));
            }
            if let Some(other) = known.iter().position(|other| *other == resolved) {
                let other = &policies.vms[other].name;
                return Err(source.wrong(&at, format!("VM {other:?} has the same socket")));
            }
            known.push(resolved);
            let mut vm = VmPolicy::new(socket.clone());
            let named = section.name.as_ref();
            let named = named.map_or_else(|| at.clone(), Spanned::span);
            if let Some(name) = &section.name {
                vm.name.clone_from(name.as_ref());
            }
            check_name(&vm.name).map_err(|message| source.wrong(&named, message))?;
            if policies.vms.iter().any(|other| other.name == vm.name) {
                let message = format!("another VM has the name {:?}", vm.name);
                return Err(source.wrong(&named, message));
            }
            let gpus_at = section.set(&mut vm, &whole.defaults).unwrap_or(at);
            policies.vms.push(vm);
            policies.places.push(source.place(&gpus_at));
        }
        Ok(policies)
    }
}

/// Checks the path of a socket, and returns it in a form that is unique for each socket.
fn check_socket(path: &Path) -> Result<PathBuf, String> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(format!(
            "a socket's path has at most {MAX_SOCKET_PATH} bytes, this one has {}",
            path.as_os_str().len()
        ));
    }
    let Some(name) = path.file_name() else {
        return Err("not the path of a socket".to_owned());
    };
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    match parent.canonicalize() {
        Ok(parent) if parent.is_dir() => Ok(parent.join(name)),
        Ok(_) => Err(format!("{} is not a directory", parent.display())),
        Err(error) => Err(format!("directory {}: {error}", parent.display())),
    }
}

/// Checks the name of a VM for logs and metrics.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(format!("a name has 1 to {MAX_NAME} bytes"));
    }
    if name.chars().any(char::is_control) {
        return Err("a name has no control characters".to_owned());
    }
    Ok(())
}
