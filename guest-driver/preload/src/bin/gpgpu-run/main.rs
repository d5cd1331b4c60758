// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Runs a program with virtio-gpgpu's libraries in place of NVIDIA's.

mod check;
mod pipe;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use gpgpu_preload::program::Kind;

const LIBCUDA: &str = "libcuda.so.1";
const PRELOAD: &str = "libgpgpu_preload.so";
const AUDIT: &str = "libgpgpu_audit.so";
const DEVICE: &str = "/dev/virtio-gpgpu";
const CONNECTION: &str = "VIRTIO_GPGPU";

/// Run a program with virtio-gpgpu's CUDA libraries
///
/// CUDA calls of PROGRAM, and of the programs that it starts, go to the virtual GPU. PROGRAM itself is not changed.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Options {
    /// Print the kind of the program, the libraries, the device, the variables, and whether the program would run; run
    /// nothing
    #[arg(long)]
    check: bool,

    /// Directory of the libraries [env: GPGPU_LIBDIR] [default: ../lib/virtio-gpgpu beside this program, then
    /// /usr/lib/virtio-gpgpu]
    #[arg(long, value_name = "DIR")]
    libdir: Option<PathBuf>,

    /// Run even without a virtual GPU, for example with the software GPU's libcuda.so.1 in the libraries' directory
    #[arg(long)]
    no_device_check: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// A message and the exit code that a shell would give: 1 refused, 126 cannot run, 127 not found.
struct Failure(u8, String);

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure(code, message)) => {
            eprintln!("gpgpu-run: {message}");
            ExitCode::from(code)
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let program = find_program(&options.command[0])?;
    let shown = program.display();
    let kind = Kind::of(&program).map_err(|error| Failure(126, format!("{shown}: {error}")))?;
    // An empty variable counts as unset, as LD_LIBRARY_PATH does.
    let variable = env::var_os("GPGPU_LIBDIR").filter(|value| !value.is_empty());
    let libdir = options.libdir.clone().or(variable.map(PathBuf::from));
    let libraries = libraries(libdir.as_deref(), &kind);
    if options.check {
        return check::run(&program, &kind, &libraries, options.no_device_check);
    }
    if let Some(obstacle) = obstacle(&program, &kind) {
        return Err(Failure(
            1,
            format!("{shown} cannot use the virtual GPU: {obstacle}"),
        ));
    }
    let directory = libraries.map_err(|message| Failure(1, message))?;
    if !works_without_device(&kind)
        && !options.no_device_check
        && let Some(message) = no_device()
    {
        return Err(Failure(1, message));
    }
    let mut command = Command::new(&program);
    command
        .arg0(&options.command[0])
        .args(&options.command[1..])
        .envs(settings(&directory, &kind));
    pipe::keep(&mut command);
    let error = command.exec();
    Err(Failure(
        126,
        match missing_interpreter(&program) {
            Some(interpreter) => format!("{shown}: its interpreter {interpreter} does not exist"),
            None => format!("{shown}: {error}"),
        },
    ))
}

/// The reason why the program cannot use the virtual GPU, with a remedy; `None` if it can.
fn obstacle(program: &Path, kind: &Kind) -> Option<&'static str> {
    kind.obstacle().or_else(|| {
        (kind.uses_cuda() && takes_rights(program)).then_some(
            "it runs as another user than its caller (set-user-ID), so the dynamic linker ignores our libraries; start \
             it as that user",
        )
    })
}

/// Whether the kernel gives the program the rights of another user or group than the caller's.
fn takes_rights(program: &Path) -> bool {
    program.metadata().is_ok_and(|data| {
        // SAFETY: the calls only return numbers.
        let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
        let takes = |bit: libc::mode_t| data.mode() & bit != 0;
        takes(libc::S_ISUID) && data.uid() != user || takes(libc::S_ISGID) && data.gid() != group
    })
}

/// The interpreter of a script's first line, if that file does not exist.
fn missing_interpreter(program: &Path) -> Option<String> {
    // The kernel reads no more of the line.
    let mut start = Vec::new();
    let file = File::open(program).ok()?;
    file.take(256).read_to_end(&mut start).ok()?;
    let line = start
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let line = String::from_utf8_lossy(line);
    let interpreter = line.split_whitespace().next()?;
    (!Path::new(interpreter).exists()).then(|| interpreter.to_owned())
}

/// The environment variables to set. All processes that the program starts inherit them.
fn settings(directory: &Path, kind: &Kind) -> Vec<(&'static str, OsString)> {
    let path = env::var_os("LD_LIBRARY_PATH");
    let mut settings = vec![
        ("GPGPU_LIBDIR", directory.into()),
        (
            "LD_LIBRARY_PATH",
            joined(directory.as_os_str(), path.as_deref()),
        ),
    ];
    for (variable, name) in [("LD_PRELOAD", PRELOAD), ("LD_AUDIT", AUDIT)] {
        let file = directory.join(name);
        // musl's dynamic linker would refuse to start the program with them.
        if file.exists() && *kind != Kind::Musl {
            let others = others(&env::var_os(variable).unwrap_or_default(), name);
            settings.push((variable, joined(&others, Some(file.as_os_str()))));
        }
    }
    settings
}

/// The list without libraries of this file name, which an outer gpgpu-run has put there.
fn others(list: &OsStr, name: &str) -> OsString {
    let is_ours =
        |entry: &&[u8]| Path::new(OsStr::from_bytes(entry)).file_name() == Some(name.as_ref());
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    match list
        .as_bytes()
        .split(is_separator)
        .any(|entry| is_ours(&entry))
    {
        false => list.to_owned(),
        true => {
            let entries = list.as_bytes().split(is_separator);
            let others: Vec<&[u8]> = entries.filter(|entry| !is_ours(entry)).collect();
            OsString::from_vec(others.join(&b':'))
        }
    }
}

/// Whether the program runs without a virtual GPU, because it makes no CUDA calls itself.
fn works_without_device(kind: &Kind) -> bool {
    matches!(kind, Kind::NotElf | Kind::Musl | Kind::Static)
}

/// The remedy for a missing device; `None` if there is one.
fn no_device() -> Option<String> {
    let connected = env::var_os(CONNECTION).is_some_and(|value| !value.is_empty());
    (!connected && !Path::new(DEVICE).exists()).then(|| {
        format!(
            "no virtual GPU: {DEVICE} does not exist. In a VM, load the driver (modprobe virtio_gpgpu); elsewhere set \
             {CONNECTION}=unix:/path/to.sock"
        )
    })
}

/// The program's path, searched along PATH like a shell does.
fn find_program(name: &OsStr) -> Result<PathBuf, Failure> {
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let shown = name.to_string_lossy();
    if shown.contains('/') {
        let path = PathBuf::from(name);
        return match (path.exists(), runs(&path)) {
            (_, true) => Ok(path),
            (true, false) => Err(Failure(126, format!("{shown} is not an executable file"))),
            (false, false) => Err(Failure(127, format!("{shown} does not exist"))),
        };
    }
    let directories = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&directories)
        .map(|directory| directory.join(name))
        .find(|path| runs(path))
        .ok_or_else(|| Failure(127, format!("{shown} was not found in PATH")))
}

/// The directory of our libraries, as an absolute path: the program may change its working directory. It has those that
/// a program of this kind needs.
fn libraries(wished: Option<&Path>, kind: &Kind) -> Result<PathBuf, String> {
    let candidates = match wished {
        Some(directory) => vec![directory.to_owned()],
        None => {
            let own = env::current_exe().ok();
            let beside = own
                .as_deref()
                .and_then(Path::parent)
                .map(|bin| bin.join("../lib/virtio-gpgpu"));
            beside
                .into_iter()
                .chain([PathBuf::from("/usr/lib/virtio-gpgpu")])
                .collect()
        }
    };
    let found = candidates
        .iter()
        .find(|directory| directory.join(PRELOAD).is_file());
    let found = found.and_then(|directory| directory.canonicalize().ok());
    let found = found.ok_or_else(|| {
        let places: Vec<_> = candidates
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        format!(
            "{PRELOAD} was not found in {}; --libdir names its directory",
            places.join(" or ")
        )
    })?;
    let shown = found.display();
    // The dynamic linker's lists of libraries have no quotes.
    let splits = |byte: &u8| b" :".contains(byte);
    if found.as_os_str().as_bytes().iter().any(splits) {
        return Err(format!(
            "{shown}: a space or a colon in the path keeps the dynamic linker from loading libraries there"
        ));
    }
    let is_missing = |name: &&str| !found.join(name).exists();
    let missing: Vec<&str> = needed(kind).into_iter().filter(is_missing).collect();
    match missing.is_empty() {
        true => Ok(found),
        false => Err(format!("{shown}: {} is missing", missing.join(", "))),
    }
}

/// The libraries that a program of this kind needs beside the preload.
fn needed(kind: &Kind) -> Vec<&'static str> {
    let mut names = vec![LIBCUDA, AUDIT];
    names.extend(kind.runtime());
    names
}

/// Joins two lists for the dynamic linker.
fn joined(first: &OsStr, second: Option<&OsStr>) -> OsString {
    let mut list = first.to_owned();
    if let Some(second) = second.filter(|second| !second.is_empty()) {
        if !list.is_empty() {
            list.push(":");
        }
        list.push(second);
    }
    list
}
