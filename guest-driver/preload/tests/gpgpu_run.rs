// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `gpgpu-run` from a user's point of view.

mod common;

use common::{Bench, STATIC_RUNTIME, stderr, stdout};

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn runs_a_static_program_on_our_runtime_and_passes_its_arguments_and_exit_code() {
    let bench = Bench::new();
    let main = r#"
        #include <stdio.h>
        #include <stdlib.h>
        int cudaMalloc(int);
        int main(int argc, char **argv) {
            cudaMalloc(1);
            for (int i = 1; i < argc; ++i) puts(argv[i]);
            puts(getenv("LD_LIBRARY_PATH")); puts(getenv("LD_PRELOAD"));
            return 42;
        }"#;
    let program = bench.compile(
        "program",
        &[("main.c", main), ("static.c", STATIC_RUNTIME)],
        &[],
    );
    let output = bench.gpgpu_run(true, &["--", text(&program), "--check", "-x", "--"]);
    let lib = bench.path("lib").canonicalize().unwrap();
    let expected = format!(
        "RIGHT 13 cudaMalloc\n--check\n-x\n--\n{0}\n{0}/libgpgpu_preload.so\n",
        lib.display()
    );
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(42));
}

#[test]
fn keeps_the_users_own_libraries() {
    let bench = Bench::new();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpgpu-run"))
        .env("LD_LIBRARY_PATH", "/users/libraries")
        .env("LD_PRELOAD", bench.path("lib/libcuda.so.1"))
        .env("LD_AUDIT", "/users/audit.so")
        .env("VIRTIO_GPGPU", "unix:/nonexistent.sock")
        .args(["--libdir", text(&bench.path("lib")), "env"])
        .output()
        .unwrap();
    let lib = bench.path("lib").canonicalize().unwrap();
    let lines = stdout(&output);
    assert!(
        lines.contains(&format!(
            "LD_LIBRARY_PATH={}:/users/libraries\n",
            lib.display()
        )),
        "{lines}"
    );
    let preload = format!(
        "LD_PRELOAD={}:{}/libgpgpu_preload.so\n",
        text(&bench.path("lib/libcuda.so.1")),
        lib.display()
    );
    assert!(lines.contains(&preload), "{lines}");
    let audit = format!(
        "LD_AUDIT=/users/audit.so:{}/libgpgpu_audit.so\n",
        lib.display()
    );
    assert!(lines.contains(&audit), "{lines}");
}

/// NCCL determines by itself how it reaches other GPUs.
#[test]
fn nccl_is_as_the_user_has_set_it() {
    let bench = Bench::new();
    let said = |by_user: Option<&str>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_gpgpu-run"));
        command
            .env_remove("NCCL_P2P_DISABLE")
            .env_remove("NCCL_CUMEM_ENABLE")
            .envs(by_user.map(|value| ("NCCL_P2P_DISABLE", value)))
            .env("VIRTIO_GPGPU", "unix:/nonexistent.sock")
            .args(["--libdir", text(&bench.path("lib")), "env"]);
        stdout(&command.output().unwrap())
    };
    assert!(!said(None).contains("NCCL_"));
    let with = said(Some("1"));
    assert!(with.contains("NCCL_P2P_DISABLE=1\n") && !with.contains("NCCL_CUMEM"));
}

#[test]
fn a_run_within_a_run_names_each_library_once() {
    let bench = Bench::new();
    let other = bench.path("other");
    std::fs::create_dir(&other).unwrap();
    for name in ["libgpgpu_preload.so", "libgpgpu_audit.so", "libcuda.so.1"] {
        std::fs::copy(bench.path("lib").join(name), other.join(name)).unwrap();
    }
    let run = env!("CARGO_BIN_EXE_gpgpu-run");
    let output = bench.gpgpu_run(true, &[run, "--libdir", text(&other), "env"]);
    let (lines, other) = (stdout(&output), other.canonicalize().unwrap());
    for (variable, name) in [("LD_PRELOAD", "preload"), ("LD_AUDIT", "audit")] {
        let line = format!("{variable}={}/libgpgpu_{name}.so\n", other.display());
        assert!(lines.contains(&line), "{lines}");
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_module_is_followed_by_all_that_the_program_starts() {
    let bench = Bench::new();
    let module = format!(
        "{STATIC_RUNTIME}\n__attribute__((constructor)) static void registers(void) {{ __cudaRegisterFatBinary(1); }}"
    );
    let flags = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden"];
    bench.compile("module.so", &[("module.c", &module)], &flags);
    let main = "#include <dlfcn.h>\nint main(int c, char **v) { return !dlopen(v[1], RTLD_NOW); }";
    bench.compile("opener", &[("opener.c", main)], &["-ldl"]);
    let script = format!(
        "cd {} && ./opener ./module.so && env ./opener ./module.so",
        text(bench.directory.path())
    );
    let output = bench.gpgpu_run(true, &["sh", "-c", &script]);
    let expected = "RIGHT 13 __cudaRegisterFatBinary\n".repeat(2);
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}

#[test]
fn refuses_a_directory_that_the_dynamic_linker_would_split() {
    let bench = Bench::new();
    for name in ["a space", "a:colon"] {
        let copy = bench.path(name);
        let copied = std::process::Command::new("cp")
            .args(["-r", text(&bench.path("lib")), text(&copy)])
            .status();
        assert!(copied.unwrap().success());
        let output = bench.gpgpu_run(true, &["--libdir", text(&copy), "true"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr(&output).contains("a space or a colon"),
            "{}",
            stderr(&output)
        );
    }
}

/// gpgpu-run contains the preload's code, and its own libraries are none of the preload's business.
#[test]
fn a_static_runtime_in_a_preloaded_library_does_not_concern_gpgpu_run_itself() {
    let bench = Bench::new();
    let flags = ["-shared", "-fPIC"];
    let module = bench.compile("hook.so", &[("hook.c", STATIC_RUNTIME)], &flags);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_gpgpu-run"))
        .env("LD_PRELOAD", module)
        .env("GPGPU_LIBDIR", "")
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(stderr(&output), "");
    assert!(output.status.success());
}

#[test]
fn refuses_a_program_with_an_old_shared_runtime() {
    let bench = Bench::new();
    let flags = ["-shared", "-Wl,-soname,libcudart.so.11.0"];
    let source = [("old.c", "int cudaMalloc(int of) { return of; }")];
    let library = bench.compile("libcudart.so.11.0", &source, &flags);
    let main = "int cudaMalloc(int); int main(void) { return cudaMalloc(0); }";
    let program = bench.compile("program", &[("main.c", main)], &[text(&library)]);
    for arguments in [vec![text(&program)], vec!["--check", text(&program)]] {
        let output = bench.gpgpu_run(true, &arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = stdout(&output) + &stderr(&output);
        assert!(said.contains("not served"), "{said}");
    }
}

#[test]
fn refuses_a_stripped_static_program_and_says_how_to_relink_it() {
    let bench = Bench::new();
    let sources = [("main.c", common::MAIN), ("static.c", STATIC_RUNTIME)];
    let program = bench.compile("program", &sources, &["-s"]);
    for arguments in [vec![text(&program)], vec!["--check", text(&program)]] {
        let output = bench.gpgpu_run(true, &arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = stdout(&output) + &stderr(&output);
        assert!(
            said.contains("stripped") && said.contains("-cudart shared"),
            "{said}"
        );
        assert!(!said.contains("WRONG"));
    }
}

#[test]
fn without_a_device_one_line_names_the_remedy_and_scripts_run() {
    let bench = Bench::new();
    let program = bench.static_program(&[]);
    let output = bench.gpgpu_run(false, &[text(&program)]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output), "");
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(
        stderr(&output).contains("modprobe virtio_gpgpu"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        bench
            .gpgpu_run(false, &["--no-device-check", text(&program)])
            .status
            .code(),
        Some(0)
    );

    let script = bench.script("#!/bin/sh\necho script $1\n");
    assert_eq!(
        stdout(&bench.gpgpu_run(false, &[text(&script), "one"])),
        "script one\n"
    );
}

#[test]
fn check_distinguishes_the_kinds_and_runs_nothing() {
    let bench = Bench::new();
    let kind = |arguments: &[&str], path: &std::path::Path| {
        let output = bench.gpgpu_run(true, &[&["--check"], arguments, &[text(path)]].concat());
        assert!(!stdout(&output).contains("WRONG") && !stdout(&output).contains("RIGHT"));
        (stdout(&output), output.status.code())
    };
    let (said, code) = kind(&[], &bench.static_program(&[]));
    assert!(
        said.contains("static CUDA runtime 13") && said.contains("runs"),
        "{said}"
    );
    for variable in [
        "GPGPU_LIBDIR=",
        "LD_LIBRARY_PATH=",
        "LD_PRELOAD=",
        "LD_AUDIT=",
    ] {
        assert!(said.contains(variable), "{said}");
    }
    assert_eq!(code, Some(0));
    let plain = ("main.c", "int main(void) { return 0; }");
    assert!(
        kind(&[], &bench.compile("plain", &[plain], &[]))
            .0
            .contains("nothing of CUDA")
    );
    // A library that carries a library with a static runtime as data.
    let flags = ["-shared", "-fPIC", "-s", "-fvisibility=hidden"];
    bench.compile("carried.so", &[("carried.c", STATIC_RUNTIME)], &flags);
    let carries =
        ".section .rodata\n.incbin \"carried.so\"\n.section .note.GNU-stack,\"\",@progbits\n";
    let sources = [plain, ("carries.S", carries)];
    let (said, code) = kind(&[], &bench.compile("carries", &sources, &[]));
    assert!(said.contains("nothing of CUDA"), "{said}");
    assert_eq!(code, Some(0));
    let (said, code) = kind(&[], &bench.compile("launcher", &[plain], &["-static"]));
    assert!(said.contains("fully static, without CUDA"), "{said}");
    assert_eq!(code, Some(0));
    let sources = [("main.c", common::MAIN), ("static.c", STATIC_RUNTIME)];
    for flags in [vec!["-static"], vec!["-static", "-s"]] {
        let (said, code) = kind(&[], &bench.compile("full", &sources, &flags));
        assert!(said.contains("relink it without -static"), "{said}");
        assert_eq!(code, Some(1));
    }
    let driver = ["-Wl,--no-as-needed", "lib/libcuda.so.1"];
    let soname = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
    bench.compile("lib/libcuda.so.1", &[("empty.c", "")], &soname);
    // With and without kernels.
    let kernels = "__attribute__((section(\".nv_fatbin\"))) int kernels = 1;";
    for kernels in ["", kernels] {
        let sources = [plain, ("kernels.c", kernels)];
        let program = bench.compile("driver", &sources, &driver);
        let (said, code) = kind(&[], &program);
        assert!(said.contains("driver API"), "{said}");
        assert_eq!(code, Some(0));
    }
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libcudart.so.12"];
    bench.compile("lib/libcudart.so.12", &[("empty.c", "")], &shared);
    let shared = bench.compile(
        "shared",
        &[plain],
        &["-Wl,--no-as-needed", "lib/libcudart.so.12"],
    );
    assert!(
        kind(&[], &shared)
            .0
            .contains("shared CUDA runtime (libcudart.so.12)")
    );

    let musl = ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"];
    let (said, code) = kind(&[], &bench.compile("musl", &[plain], &musl));
    assert!(
        said.contains("linked with musl") && !said.contains("LD_PRELOAD"),
        "{said}"
    );
    assert_eq!(code, Some(0));

    // The same program for a 32-bit machine: the class and the machine of its header.
    let mut bytes = std::fs::read(bench.path("plain")).unwrap();
    bytes[4] = 1;
    bytes[18] = 3;
    std::fs::write(bench.path("plain"), bytes).unwrap();
    let (said, code) = kind(&[], &bench.path("plain"));
    assert!(said.contains("not an ELF program for x86-64"), "{said}");
    assert_eq!(code, Some(1));
}

/// A launcher in one static file, as package managers and init programs are.
#[test]
fn a_static_launcher_passes_the_libraries_on() {
    let bench = Bench::new();
    let main = "#include <unistd.h>\nint main(int c, char **v) { execv(v[1], v + 1); return 99; }";
    let launcher = bench.compile("launcher", &[("launcher.c", main)], &["-static"]);
    let program = bench.static_program(&[]);
    let output = bench.gpgpu_run(true, &[text(&launcher), text(&program)]);
    assert!(
        stdout(&output).starts_with("RIGHT 13"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_program_gets_the_callers_disposition_of_a_broken_pipe() {
    let bench = Bench::new();
    let dispositions = "grep SigIgn /proc/self/status";
    for script in [
        dispositions.to_owned(),
        format!("trap '' PIPE; {dispositions}"),
    ] {
        let shell = |command: &mut std::process::Command| {
            let output = command.args(["-c", &script]).output().unwrap();
            stdout(&output)
        };
        let run = env!("CARGO_BIN_EXE_gpgpu-run");
        let with = format!("exec {run} {dispositions}");
        let script_with = script.replace(dispositions, &with);
        let output = std::process::Command::new("sh")
            .env("GPGPU_LIBDIR", bench.path("lib"))
            .env("VIRTIO_GPGPU", "unix:/nonexistent.sock")
            .args(["-c", &script_with])
            .output()
            .unwrap();
        let directly = shell(&mut std::process::Command::new("sh"));
        assert_eq!(stdout(&output), directly, "{}", stderr(&output));
    }
}

#[test]
fn an_unknown_option_is_not_taken_for_the_program() {
    let bench = Bench::new();
    let output = bench.gpgpu_run(true, &["--chek", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let output = bench.gpgpu_run(true, &["echo", "--chek", "--check"]);
    assert_eq!(stdout(&output), "--chek --check\n");
}

#[test]
fn check_fails_where_the_program_would() {
    let bench = Bench::new();
    let refused = |arguments: &[&str], because: &str| {
        let output = bench.gpgpu_run(true, &[&["--check"], arguments].concat());
        let said = stdout(&output);
        assert!(said.contains(because), "{said}");
        assert!(said.contains("result:    refused"), "{said}");
        assert_eq!(output.status.code(), Some(1));
        let output = bench.gpgpu_run(true, arguments);
        assert_eq!(
            output.status.code(),
            Some(if because.contains("interpreter") {
                126
            } else {
                1
            })
        );
        assert!(stderr(&output).contains(because), "{}", stderr(&output));
    };
    let script = bench.script("#!/nonexistent/interpreter -x\n");
    refused(
        &[text(&script)],
        "its interpreter /nonexistent/interpreter does not exist",
    );

    let program = bench.static_program(&[]);
    let copy = bench.path("other lib");
    std::fs::rename(bench.path("lib"), &copy).unwrap();
    refused(
        &["--libdir", text(&copy), text(&program)],
        "a space or a colon",
    );
    std::fs::rename(&copy, bench.path("lib")).unwrap();
    std::fs::remove_file(bench.path("lib/libcudart.so.13")).unwrap();
    refused(&[text(&program)], "libcudart.so.13 is missing");
}

#[test]
fn a_report_that_is_not_read_to_its_end_is_no_failure() {
    let bench = Bench::new();
    let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_gpgpu-run"))
        .env("GPGPU_LIBDIR", bench.path("lib"))
        .env("VIRTIO_GPGPU", "unix:/nonexistent.sock")
        .args(["--check", "true"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(process.stdout.take());
    let output = process.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), stderr(&output).as_str()),
        (Some(0), "")
    );
}

#[test]
fn says_what_is_missing() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .gpgpu_run(true, &["no-such-program-anywhere"])
            .status
            .code(),
        Some(127)
    );
    assert_eq!(
        bench.gpgpu_run(true, &["/etc/passwd"]).status.code(),
        Some(126)
    );
    std::fs::remove_file(bench.path("lib/libgpgpu_preload.so")).unwrap();
    let output = bench.gpgpu_run(true, &["true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--libdir"), "{}", stderr(&output));
}
