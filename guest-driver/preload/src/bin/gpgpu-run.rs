// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Runs a program with virtio-gpgpu's libraries in place of NVIDIA's.

use std::env;
use std::ffi::{CString, OsStr, OsString, c_void};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Parser;
use gpgpu_client::sister::Sister;
use gpgpu_preload::program::Kind;
use gpgpu_protocol::{
    api::{KnownLibrary, Request as _, reply, request},
    codec::{Reader, Writer},
    cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS},
    driver_api::signature,
};

/// The files of NVIDIA's driver of which JAX wants one to exist. The guest's package makes the second.
const OF_NVIDIA: [&str; 2] = ["/dev/nvidia0", "/dev/nvidiactl"];
const PRELOAD: &str = "libgpgpu_preload.so";
const AUDIT: &str = "libgpgpu_audit.so";
const LIBRARIES: [&str; 5] = [
    "libcuda.so.1",
    "libcudart.so.13",
    "libcudart.so.12",
    PRELOAD,
    AUDIT,
];
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
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
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
    let libraries = libraries(libdir.as_deref());
    if options.check {
        return check(&program, &kind, &libraries);
    }
    if let Some(obstacle) = kind.obstacle() {
        return Err(Failure(
            1,
            format!("{shown} cannot use the virtual GPU: {obstacle}"),
        ));
    }
    let directory = libraries.map_err(|message| Failure(1, message))?;
    // The dynamic linker's lists of libraries have no quotes.
    if directory
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| b" :".contains(byte))
    {
        let message =
            "a space or a colon in the path keeps the dynamic linker from loading libraries there";
        return Err(Failure(1, format!("{}: {message}", directory.display())));
    }
    if !works_without_device(&kind)
        && !options.no_device_check
        && let Some(message) = no_device()
    {
        return Err(Failure(1, message));
    }
    let error = Command::new(&program)
        .arg0(&options.command[0])
        .args(&options.command[1..])
        .envs(settings(&directory, &kind))
        .exec();
    Err(Failure(126, format!("{shown}: {error}")))
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

/// Prints the report of `--check`. Fails if a run would be refused.
fn check(program: &Path, kind: &Kind, libraries: &Result<PathBuf, String>) -> Result<(), Failure> {
    println!("program:   {}", program.display());
    println!("kind:      {}", kind.describe());
    match libraries {
        Ok(directory) => {
            println!("libraries: {}", directory.display());
            for name in LIBRARIES
                .iter()
                .filter(|name| !directory.join(name).exists())
            {
                println!("           {name} is missing");
            }
            for (at, (variable, value)) in settings(directory, kind).iter().enumerate() {
                let title = if at == 0 { "sets:" } else { "" };
                println!("{title:10} {variable}={}", value.display());
            }
        }
        Err(message) => println!("libraries: {message}"),
    }
    let device = no_device();
    match (&device, env::var(CONNECTION)) {
        (Some(message), _) => println!("device:    {message}"),
        (None, Ok(connection)) if !connection.is_empty() => {
            println!("device:    {CONNECTION}={connection}")
        }
        _ => println!("device:    {DEVICE}"),
    }
    if device.is_none() && !OF_NVIDIA.iter().any(|file| Path::new(file).exists()) {
        println!(
            "           JAX uses the CPU, because {} is missing",
            OF_NVIDIA[1]
        );
    }
    if let (Ok(directory), None) = (libraries, &device) {
        for (at, line) in served(directory).iter().enumerate() {
            let title = if at == 0 { "served:" } else { "" };
            println!("{title:10} {line}");
        }
    }
    match (kind.obstacle(), libraries, device) {
        (Some(obstacle), ..) => {
            println!("result:    refused: {obstacle}");
            Err(Failure(1, "the program would be refused".into()))
        }
        (None, Ok(_), None) => {
            println!("result:    runs");
            Ok(())
        }
        (None, Ok(_), Some(_)) if works_without_device(kind) => {
            println!("result:    runs, and CUDA finds no device");
            Ok(())
        }
        _ => {
            println!("result:    refused until the problem above is fixed");
            Err(Failure(1, "the program would be refused".into()))
        }
    }
}

/// A description of the host's copies of NVIDIA's libraries, one per line.
fn served(directory: &Path) -> Vec<String> {
    let unknown = |why: &str| vec![format!("not known: {why}")];
    let Ok(libcuda) = CString::new(directory.join("libcuda.so.1").as_os_str().as_bytes()) else {
        return unknown("the directory's name has a zero byte");
    };
    // SAFETY: the path lives across the call; the library is this project's, and stays for good. From here on its name
    // means this file.
    let loaded = unsafe { libc::dlopen(libcuda.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    let sister = (!loaded.is_null()).then(Sister::find).flatten();
    // SAFETY: the name is a string, and the library was loaded.
    let init = sister.map(|_| unsafe { libc::dlsym(loaded, c"cuInit".as_ptr()) });
    let (Some(sister), Some(init)) = (sister, init.filter(|init| !init.is_null())) else {
        return unknown("libcuda.so.1 cannot be loaded");
    };
    // SAFETY: libcuda's function of this name is of this type.
    let init = unsafe { std::mem::transmute::<*mut c_void, signature::cuInit>(init) };
    // SAFETY: it takes a number.
    let code = unsafe { init(0) };
    if code != CUDA_SUCCESS {
        return unknown(&format!("the device cannot be used, error {code}"));
    }
    let mut request = Writer::new();
    request.put(&request::gpgpuLibraries { libraries: true });
    let answer = sister.call(
        request::gpgpuLibraries::OPERATION,
        &request.into_bytes(),
        |reply| Reader::new(reply).get::<reply::gpgpuLibraries>().ok(),
    );
    match answer {
        Ok(Some(reply)) => reply.libraries.iter().map(line).collect(),
        Ok(None) => unknown("the host's answer cannot be read"),
        Err(CUDA_ERROR_NOT_SUPPORTED) => unknown("the host's service is older than this program"),
        Err(code) => unknown(&format!("the device cannot be used, error {code}")),
    }
}

fn line(of: &KnownLibrary) -> String {
    match of.version.as_str() {
        "" if of.name == "cupti" => {
            "libcupti: the host has no copy, or its operator does not permit traces".to_owned()
        }
        "" => format!("lib{}: the host has no copy", of.name),
        version => format!("lib{}: {version}", of.name),
    }
}

/// Whether the program runs without a virtual GPU, because it makes no CUDA calls itself.
fn works_without_device(kind: &Kind) -> bool {
    matches!(kind, Kind::NotElf | Kind::Musl)
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

/// The directory of our libraries, as an absolute path: the program may change its working directory.
fn libraries(wished: Option<&Path>) -> Result<PathBuf, String> {
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
    found.ok_or_else(|| {
        let places: Vec<_> = candidates
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        format!(
            "{PRELOAD} was not found in {}; --libdir names its directory",
            places.join(" or ")
        )
    })
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
