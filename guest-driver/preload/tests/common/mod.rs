// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Programs and libraries that the tests compile with the C compiler.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A "static runtime": every function prints WRONG, so a call that is not redirected is visible.
pub const STATIC_RUNTIME: &str = r#"
#include <stdio.h>
#define W(name) __attribute__((noipa)) int name(int x) { printf("WRONG " #name "\n"); return x + 1000; }
W(__cudaRegisterFatBinary) W(cudaMalloc) W(cudaLaunchKernel) W(cudaGetDeviceProperties) W(cudaGraphCreate)
W(cudaOwnHelper)
__attribute__((used)) static const char text[] = "CUDA driver version is insufficient for CUDA runtime version";
#ifdef V12
W(cudaGetDeviceProperties_v2)
#endif
"#;

/// Calls the runtime from a constructor, as code made by nvcc does, and from main.
pub const MAIN: &str = r#"
#include <stdio.h>
int __cudaRegisterFatBinary(int), cudaMalloc(int), cudaLaunchKernel(int), cudaGetDeviceProperties(int);
__attribute__((constructor)) static void registers(void) { __cudaRegisterFatBinary(1); }
int main(int argc, char **argv) {
    int (*volatile by_pointer)(int) = cudaLaunchKernel;
    printf("%d %d %d\n", cudaMalloc(2), by_pointer(3), cudaGetDeviceProperties(4));
    return 0;
}
"#;

/// A replacement for our libcudart: every function prints RIGHT and the library's version.
const SHARED_RUNTIME: &str = r#"
#include <stdio.h>
#define R(name) int name(int x) { printf("RIGHT " VERSION " " #name "\n"); return x + 1; }
R(__cudaRegisterFatBinary) R(cudaMalloc) R(cudaLaunchKernel) R(cudaGetDeviceProperties) R(cudaGraphInstantiate)
R(cudart11_cudaGraphInstantiate) R(cudaMemcpy) R(cudaMemcpy_ptds) R(cudaStreamQuery) R(cudaStreamQuery_ptsz)
"#;

pub struct Bench {
    pub directory: TempDir,
}

impl Bench {
    /// A directory with `lib/libcudart.so.12`, `.13`, an empty libcuda.so.1 and the preload.
    pub fn new() -> Self {
        let bench = Self {
            directory: TempDir::new().unwrap(),
        };
        std::fs::create_dir(bench.path("lib")).unwrap();
        for version in ["12", "13"] {
            let name = format!("lib/libcudart.so.{version}");
            let define = format!("-DVERSION=\"{version}\"");
            bench.compile(
                &name,
                &[("runtime.c", SHARED_RUNTIME)],
                &["-shared", "-fPIC", &define],
            );
        }
        bench.compile(
            "lib/libcuda.so.1",
            &[("empty.c", "")],
            &["-shared", "-fPIC"],
        );
        std::fs::copy(
            built("libgpgpu_preload.so"),
            bench.path("lib/libgpgpu_preload.so"),
        )
        .unwrap();
        bench.link_audit();
        bench
    }

    /// Links the audit library as it is installed.
    fn link_audit(&self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("audit/libgpgpu_audit.map");
        let mut command = Command::new("gcc");
        command.args([
            "-shared",
            "-nostdlib",
            "-Wl,--gc-sections",
            "-Wl,-z,now",
            "-o",
        ]);
        command.arg(self.path("lib/libgpgpu_audit.so"));
        command.arg(format!("-Wl,--version-script={}", source.display()));
        for name in ["version", "objopen", "objclose", "objsearch", "symbind64"] {
            command.arg(format!("-Wl,-u,la_{name}"));
        }
        let linked = command.arg(built("libgpgpu_audit.a")).output().unwrap();
        assert!(linked.status.success(), "{}", stderr(&linked));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn compile(&self, output: &str, sources: &[(&str, &str)], flags: &[&str]) -> PathBuf {
        let output = self.path(output);
        let mut command = Command::new("gcc");
        command
            .current_dir(self.directory.path())
            .args(["-w", "-o"])
            .arg(&output);
        for (name, text) in sources {
            std::fs::write(self.path(name), text).unwrap();
            command.arg(name);
        }
        let result = command
            .args(flags)
            .output()
            .expect("gcc is needed for these tests");
        assert!(
            result.status.success(),
            "{}",
            String::from_utf8_lossy(&result.stderr)
        );
        output
    }

    /// An executable script with this text.
    pub fn script(&self, text: &str) -> PathBuf {
        let script = self.path("script");
        std::fs::write(&script, text).unwrap();
        std::fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        script
    }

    /// A program with the fake static runtime.
    pub fn static_program(&self, flags: &[&str]) -> PathBuf {
        self.compile(
            "program",
            &[("main.c", MAIN), ("static.c", STATIC_RUNTIME)],
            flags,
        )
    }

    /// The program with the preload alone, as gpgpu-run starts it.
    pub fn run(&self, program: &Path) -> Output {
        Command::new(program)
            .env("LD_PRELOAD", self.path("lib/libgpgpu_preload.so"))
            .env_remove("GPGPU_LIBDIR")
            .output()
            .unwrap()
    }

    /// The program with preload and audit library, as gpgpu-run starts it.
    pub fn followed(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", self.path("lib/libgpgpu_preload.so"))
            .env("LD_AUDIT", self.path("lib/libgpgpu_audit.so"))
            .env_remove("GPGPU_LIBDIR")
            .env_remove("LD_LIBRARY_PATH");
        command
    }

    /// Runs `gpgpu-run` with the test's libraries and, unless `device` is false, with a connection.
    pub fn gpgpu_run(&self, device: bool, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpgpu-run"));
        command
            .env("GPGPU_LIBDIR", self.path("lib"))
            .env_remove("LD_AUDIT")
            .env_remove("LD_PRELOAD")
            .env_remove("LD_LIBRARY_PATH");
        match device {
            true => command.env("VIRTIO_GPGPU", "unix:/nonexistent.sock"),
            false => command.env_remove("VIRTIO_GPGPU"),
        };
        command.args(arguments).output().unwrap()
    }
}

/// A library that Cargo has built beside the programs: the newest one, because its name may contain a hash.
fn built(name: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_gpgpu-run")).parent().unwrap();
    let (stem, extension) = name.split_once('.').unwrap();
    let is_it = |file: &PathBuf| {
        let text = file.file_name().unwrap().to_string_lossy().into_owned();
        let hash = text
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_suffix(&format!(".{extension}")));
        hash.is_some_and(|hash| hash.is_empty() || hash.starts_with('-'))
    };
    let newest = [programs.to_owned(), programs.join("deps")]
        .iter()
        .flat_map(|directory| std::fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(is_it)
        .max_by_key(|file| file.metadata().and_then(|data| data.modified()).unwrap());
    newest.unwrap_or_else(|| panic!("cargo builds {name}"))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
