// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The directories of the operator's copies of NVIDIA's libraries. They are for all VMs, because a worker sees the
//! directories before its client is known.

use std::{
    ffi::{OsStr, OsString},
    fmt, fs,
    fs::File,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use crate::cuda::library::{self, Library};

/// The worker's argument, and the flag, for a directory.
const DIRECTORY: &str = "--libraries=";
/// The worker's argument, and the flag, for the names of libraries to open ahead.
const AHEAD: &str = "--libraries-ahead=";
/// The worker's argument, and the flag, that forbids traces.
const NO_TRACES: &str = "--libraries-traces=false";

/// Directories that hold more than libraries. Workers would see their whole content.
const TOO_MUCH: &[&str] = &[
    "/",
    "/boot",
    "/etc",
    "/home",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/run",
    "/srv",
    "/tmp",
    "/usr",
    "/usr/local",
    "/var",
    "/var/lib",
    "/var/tmp",
];
/// Directories that hold no files at all.
const NO_FILES: &[&str] = &["/dev", "/proc", "/sys"];

/// The directories, and the libraries that workers open before they have a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    /// The directories, with all links followed, in the order in which they are searched.
    pub directories: Vec<PathBuf>,
    /// The libraries that a worker opens while it waits for its client.
    pub ahead: Vec<Library>,
    /// Whether programs of guests may trace their work with CUPTI.
    pub traces: bool,
}

impl Default for Libraries {
    fn default() -> Self {
        Self {
            directories: Vec::new(),
            ahead: Vec::new(),
            traces: true,
        }
    }
}

impl Libraries {
    /// Adds a directory as the operator writes it.
    ///
    /// # Errors
    /// The path cannot be such a directory.
    pub fn add_directory(&mut self, directory: &Path) -> Result<(), String> {
        let shown = directory.display();
        if !directory.is_absolute() {
            return Err(format!("{shown} is not an absolute path"));
        }
        let found = directory.canonicalize();
        let found = found.map_err(|error| format!("directory {shown}: {error}"))?;
        if !found.is_dir() {
            return Err(format!("{shown} is not a directory"));
        }
        let is_too_much = TOO_MUCH.iter().any(|path| found == Path::new(path));
        if is_too_much || NO_FILES.iter().any(|path| found.starts_with(path)) {
            return Err(format!(
                "{shown} is not a directory of libraries, and workers would see all of it"
            ));
        }
        if !self.directories.contains(&found) {
            self.directories.push(found);
        }
        Ok(())
    }

    /// Adds a library to those that workers open ahead.
    pub fn add_ahead(&mut self, library: Library) {
        if !self.ahead.contains(&library) {
            self.ahead.push(library);
        }
    }

    /// The same, but with `directory` if no directory is named.
    pub fn or(mut self, directory: Option<&Path>) -> Self {
        if self.directories.is_empty() {
            self.directories.extend(directory.map(Path::to_owned));
        }
        self
    }

    /// The directories, with either all libraries or none to be opened ahead.
    pub fn to_be_tried(&self, all: bool) -> Self {
        let ahead = match all {
            true => Library::ALL.into(),
            false => Vec::new(),
        };
        Self {
            directories: self.directories.clone(),
            ahead,
            traces: self.traces,
        }
    }

    /// The libraries as arguments of a worker.
    pub fn to_arguments(&self) -> Vec<OsString> {
        let argument = |start: &str, value: &OsStr| {
            let mut argument = OsString::from(start);
            argument.push(value);
            argument
        };
        let directories = self.directories.iter();
        let mut arguments: Vec<_> = directories
            .map(|f| argument(DIRECTORY, f.as_os_str()))
            .collect();
        if !self.ahead.is_empty() {
            arguments.push(argument(AHEAD, names(&self.ahead).as_ref()));
        }
        if !self.traces {
            arguments.push(NO_TRACES.into());
        }
        arguments
    }

    /// The libraries of a worker's arguments.
    pub fn from_arguments(arguments: impl Iterator<Item = OsString>) -> Self {
        let mut libraries = Self::default();
        for argument in arguments {
            let bytes = argument.as_bytes();
            if let Some(directory) = bytes.strip_prefix(DIRECTORY.as_bytes()) {
                libraries
                    .directories
                    .push(OsStr::from_bytes(directory).into());
            } else if let Some(names) = bytes.strip_prefix(AHEAD.as_bytes()) {
                let names = String::from_utf8_lossy(names);
                libraries.ahead = names.split(',').flat_map(str::parse).collect();
            } else if bytes == NO_TRACES.as_bytes() {
                libraries.traces = false;
            }
        }
        libraries
    }

    /// Warnings about likely mistakes: directories without libraries, and libraries to open ahead that do not exist.
    /// `own` is the directory that applies if none is named.
    pub fn doubts(&self, own: Option<&Path>) -> Vec<String> {
        let is_idle =
            |directory: &&PathBuf| !names_in(directory).iter().any(|name| is_nvidias(name));
        let idle = self.directories.iter().filter(is_idle).map(|directory| {
            let directory = directory.display();
            format!("{directory} contains none of NVIDIA's libraries")
        });
        let directories = self.clone().or(own).directories;
        let lacks = |library: &&Library| library.find(&directories).is_none();
        let lacking = self.ahead.iter().filter(lacks).map(|library| {
            let absence = library::absence(*library, &directories);
            format!("{library} cannot be loaded ahead: {absence}")
        });
        idle.chain(lacking).collect()
    }

    /// A text for each library: the file that workers open, and its version if the file's name contains it.
    pub fn found(&self) -> Vec<String> {
        let found = |library: Library| {
            if library == Library::Cupti && !self.traces {
                return format!("{library}: not used, because guests may not trace");
            }
            let Some(path) = library.find(&self.directories) else {
                return format!(
                    "{library}: {}",
                    library::absence(library, &self.directories)
                );
            };
            let ahead = match self.ahead.contains(&library) {
                true => ", loaded ahead",
                false => "",
            };
            match version(&path) {
                Some(version) => format!("{library}: {}, version {version}{ahead}", path.display()),
                None => format!("{library}: {}{ahead}", path.display()),
            }
        };
        Library::ALL.into_iter().map(found).collect()
    }

    /// A text for each library to be opened ahead that exists, but that this process cannot open.
    pub fn broken(&self) -> Vec<String> {
        let ahead = self.ahead.iter();
        ahead
            .filter_map(|each| library::why_not(*each, &self.directories))
            .collect()
    }

    /// The files of NVIDIA's libraries in the directories that this process, in a worker's sandbox, cannot read, with
    /// the reasons.
    pub fn unreadable(&self) -> Vec<String> {
        let mut unreadable = Vec::new();
        for directory in &self.directories {
            if let Err(error) = fs::read_dir(directory) {
                unreadable.push(format!("{}: {error}", directory.display()));
            }
            let names = names_in(directory).into_iter();
            for name in names.filter(|name| is_nvidias(name)) {
                let path = directory.join(name);
                if let Err(error) = File::open(&path) {
                    let shown = path.display();
                    match fs::read_link(&path) {
                        Ok(to) => {
                            unreadable.push(format!("{shown}, a link to {}: {error}", to.display()))
                        }
                        Err(_) => unreadable.push(format!("{shown}: {error}")),
                    }
                }
            }
        }
        unreadable
    }
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directories: Vec<String> = self
            .directories
            .iter()
            .map(|f| f.display().to_string())
            .collect();
        match &directories[..] {
            [] => f.write_str("none")?,
            directories => f.write_str(&directories.join(":"))?,
        }
        match &self.ahead[..] {
            [] => {}
            ahead => write!(f, " (ahead: {})", names(ahead))?,
        }
        match self.traces {
            true => Ok(()),
            false => f.write_str(" (without traces)"),
        }
    }
}

fn names(libraries: &[Library]) -> String {
    let names: Vec<&str> = libraries.iter().map(|library| library.name()).collect();
    names.join(",")
}

/// The links in a directory that have the names of NVIDIA's libraries.
pub fn links_in(directory: &Path) -> Vec<PathBuf> {
    let names = names_in(directory).into_iter();
    let paths = names
        .filter(|name| is_nvidias(name))
        .map(|name| directory.join(name));
    paths.filter(|path| path.is_symlink()).collect()
}

fn names_in(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries.map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

/// Whether a file name belongs to one of NVIDIA's libraries, or to a dependency.
fn is_nvidias(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let starts = name.starts_with(b"libcu") || name.starts_with(b"libnv");
    starts && name.windows(3).any(|part| part == b".so")
}

/// The part behind `.so.` in the name of the file to which a path leads.
fn version(path: &Path) -> Option<String> {
    let file = path.canonicalize().ok()?;
    let name = file.file_name()?.to_str()?;
    let (_, version) = name.split_once(".so.")?;
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    version
        .split('.')
        .all(is_number)
        .then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const NOTHING: [&str; 0] = [];

    #[test]
    fn directories_are_absolute_exist_and_hold_libraries_alone() {
        let whole = tempfile::tempdir().unwrap();
        let whole = whole.path().canonicalize().unwrap();
        let real = whole.join("cuda-13/lib64");
        fs::create_dir_all(&real).unwrap();
        symlink(whole.join("cuda-13"), whole.join("cuda")).unwrap();
        fs::write(whole.join("file"), "").unwrap();
        let mut libraries = Libraries::default();
        libraries.add_directory(&whole.join("cuda/lib64")).unwrap();
        libraries.add_directory(&real).unwrap();
        assert_eq!(libraries.directories, [real]);
        for (wrong, says) in [
            ("lib".into(), "not an absolute path"),
            (whole.join("nowhere"), "No such file"),
            (whole.join("file"), "is not a directory"),
            ("/".into(), "workers would see"),
            ("/usr/../etc".into(), "workers would see"),
            ("/proc/self".into(), "workers would see"),
        ] {
            let message = libraries.add_directory(&wrong).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn settings_survive_the_way_to_a_worker() {
        let libraries = Libraries {
            directories: vec![
                "/a b/lib".into(),
                OsStr::from_bytes(b"/\xff:/=").into(),
                "/c".into(),
            ],
            ahead: vec![Library::Cudnn, Library::CublasLt],
            traces: false,
        };
        for libraries in [libraries, Libraries::default()] {
            let arguments = libraries.to_arguments();
            let others = ["worker-process", "--sandbox=none", "--warm-contexts"];
            let whole = others.map(OsString::from).into_iter().chain(arguments);
            assert_eq!(Libraries::from_arguments(whole), libraries);
        }
    }

    #[test]
    fn found_libraries_are_listed_with_their_versions() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path().canonicalize().unwrap();
        let file = |name: &str| fs::write(directory.join(name), "").unwrap();
        let mut libraries = Libraries::default();
        libraries.add_directory(&directory).unwrap();
        libraries.add_ahead(Library::Cublas);
        libraries.add_ahead(Library::Cublas);
        let doubts = libraries.doubts(None);
        assert!(doubts[0].ends_with("contains none of NVIDIA's libraries"));
        assert!(doubts[1].starts_with("cublas cannot be loaded ahead: libcublas.so.13"));
        file("libcublas.so.13.1.0.3");
        symlink("libcublas.so.13.1.0.3", directory.join("libcublas.so.13")).unwrap();
        file("libcurand.so.10");
        assert_eq!(libraries.doubts(None), NOTHING);
        let unnamed = Libraries {
            directories: Vec::new(),
            ..libraries.clone()
        };
        assert_eq!(unnamed.doubts(Some(&directory)), NOTHING);
        assert_eq!(unnamed.doubts(None).len(), 1);
        let shown = directory.display();
        let found = libraries.found();
        assert_eq!(
            found[0],
            format!("cublas: {shown}/libcublas.so.13, version 13.1.0.3, loaded ahead")
        );
        assert_eq!(
            found[4],
            format!("curand: {shown}/libcurand.so.10, version 10")
        );
        assert!(found[2].contains("PyPI's nvidia-cudnn-cu13"), "{found:?}");
        assert_eq!(libraries.unreadable(), NOTHING);
        symlink("/nowhere", directory.join("libcudnn.so.9")).unwrap();
        let unreadable = libraries.unreadable();
        assert!(
            unreadable[0].contains("a link to /nowhere: No such file"),
            "{unreadable:?}"
        );
        assert_eq!(links_in(&directory).len(), 2);
        assert_eq!(libraries.to_string(), format!("{shown} (ahead: cublas)"));
    }
}
