// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The report of `--check`.

use std::env;
use std::ffi::{CString, c_void};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gpgpu_client::sister::Sister;
use gpgpu_preload::program::Kind;
use gpgpu_protocol::{
    api::{KnownLibrary, Request as _, reply, request},
    codec::{Reader, Writer},
    cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS},
    driver_api::signature,
};

use super::{
    CONNECTION, DEVICE, Failure, LIBCUDA, missing_interpreter, no_device, obstacle, settings,
    works_without_device,
};

/// The files of NVIDIA's driver of which JAX wants one to exist. The guest's package makes the second.
const OF_NVIDIA: [&str; 2] = ["/dev/nvidia0", "/dev/nvidiactl"];

/// Prints the report. Fails if a run would be refused, or if CUDA would fail at its start.
pub fn run(
    program: &Path,
    kind: &Kind,
    libraries: &Result<PathBuf, String>,
    is_any_device_right: bool,
) -> Result<(), Failure> {
    let mut text = String::new();
    let mut line = |title: &str, line: &str| {
        let _ = writeln!(text, "{title:10} {line}");
    };
    line("program:", &program.display().to_string());
    line("kind:", &kind.describe());
    match libraries {
        Ok(directory) => {
            line("libraries:", &directory.display().to_string());
            for (at, (variable, value)) in settings(directory, kind).iter().enumerate() {
                let title = if at == 0 { "sets:" } else { "" };
                line(title, &format!("{variable}={}", value.display()));
            }
        }
        Err(message) => line("libraries:", message),
    }
    let device = match is_any_device_right {
        true => None,
        false => no_device(),
    };
    match (&device, env::var(CONNECTION)) {
        (Some(message), _) => line("device:", message),
        (None, Ok(connection)) if !connection.is_empty() => {
            line("device:", &format!("{CONNECTION}={connection}"));
        }
        _ => line("device:", DEVICE),
    }
    if device.is_none() && !OF_NVIDIA.iter().any(|file| Path::new(file).exists()) {
        let missing = format!("JAX uses the CPU, because {} is missing", OF_NVIDIA[1]);
        line("", &missing);
    }
    let mut works = true;
    if let (Ok(directory), None) = (libraries, &device) {
        let lines = match served(directory) {
            Ok(lines) => lines,
            Err(Unknown::Fails(why)) => {
                works = is_any_device_right;
                vec![format!("not known: {why}")]
            }
            Err(Unknown::Other(why)) => vec![format!("not known: {why}")],
        };
        for (at, served) in lines.iter().enumerate() {
            line(if at == 0 { "served:" } else { "" }, served);
        }
    }
    let interpreter = missing_interpreter(program);
    let result = match (obstacle(program, kind), libraries, device) {
        (Some(obstacle), ..) => Err(format!("refused: {obstacle}")),
        _ if interpreter.is_some() => Err(format!(
            "refused: its interpreter {} does not exist",
            interpreter.unwrap_or_default()
        )),
        (None, Ok(_), None) if works => Ok("runs"),
        (None, Ok(_), None) => Err("CUDA fails until the problem above is fixed".to_owned()),
        (None, Ok(_), Some(_)) if works_without_device(kind) => {
            Ok("runs, and CUDA finds no device")
        }
        _ => Err("refused until the problem above is fixed".to_owned()),
    };
    line(
        "result:",
        match &result {
            Ok(result) => result,
            Err(result) => result,
        },
    );
    // The reader may have read enough, and closed its end.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    match result {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure(1, "the program would not work".into())),
    }
}

/// The reason why the host's copies of NVIDIA's libraries are not known.
enum Unknown {
    /// CUDA does not work here.
    Fails(String),
    /// CUDA may work.
    Other(String),
}

/// A description of the host's copies of NVIDIA's libraries, one per line.
fn served(directory: &Path) -> Result<Vec<String>, Unknown> {
    let fails = |why: &str| Unknown::Fails(why.to_owned());
    let libcuda = CString::new(directory.join(LIBCUDA).as_os_str().as_bytes());
    let libcuda = libcuda.map_err(|_| fails("the directory's name has a zero byte"))?;
    // SAFETY: the path lives across the call; the library is this project's, and stays for good. From here on its name
    // means this file.
    let loaded = unsafe { libc::dlopen(libcuda.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if loaded.is_null() {
        return Err(fails("libcuda.so.1 cannot be loaded"));
    }
    let Some(sister) = Sister::find() else {
        return Err(Unknown::Other("libcuda.so.1 is of another kind".to_owned()));
    };
    // SAFETY: the name is a string, and the library was loaded.
    let init = unsafe { libc::dlsym(loaded, c"cuInit".as_ptr()) };
    if init.is_null() {
        return Err(fails("libcuda.so.1 has no cuInit"));
    }
    // SAFETY: libcuda's function of this name is of this type.
    let init = unsafe { std::mem::transmute::<*mut c_void, signature::cuInit>(init) };
    // SAFETY: it takes a number.
    let code = unsafe { init(0) };
    if code != CUDA_SUCCESS {
        return Err(fails(&format!("the device cannot be used, error {code}")));
    }
    let mut request = Writer::new();
    request.put(&request::gpgpuLibraries { libraries: true });
    let answer = sister.call(
        request::gpgpuLibraries::OPERATION,
        &request.into_bytes(),
        |reply| Reader::new(reply).get::<reply::gpgpuLibraries>().ok(),
    );
    match answer {
        Ok(Some(reply)) => Ok(reply.libraries.iter().map(line).collect()),
        Ok(None) => Err(fails("the host's answer cannot be read")),
        Err(CUDA_ERROR_NOT_SUPPORTED) => Err(Unknown::Other(
            "the host's service is older than this program".to_owned(),
        )),
        Err(code) => Err(fails(&format!("the device cannot be used, error {code}"))),
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
