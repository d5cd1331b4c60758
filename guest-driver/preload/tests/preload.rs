// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Programs with a static runtime under the preload.

mod common;

use common::{Bench, MAIN, STATIC_RUNTIME, stderr, stdout};

const REDIRECTED: &str = "RIGHT 13 __cudaRegisterFatBinary\nRIGHT 13 cudaMalloc\nRIGHT 13 cudaLaunchKernel\n\
                          RIGHT 13 cudaGetDeviceProperties\n";

/// Sorts all lines but the constructor's, because the compiler chooses the order in which arguments are evaluated.
fn check_redirected(output: &std::process::Output) {
    let text = stdout(output);
    assert!(
        text.starts_with("RIGHT 13 __cudaRegisterFatBinary\n"),
        "{text}{}",
        stderr(output)
    );
    for line in REDIRECTED.lines() {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        text.ends_with("3 4 5\n") && !text.contains("WRONG"),
        "{text}"
    );
    assert_eq!(stderr(output), "");
    assert!(output.status.success());
}

#[test]
fn pitfall_52_static_runtime_is_redirected_before_constructors() {
    let bench = Bench::new();
    for flags in [
        ["-O0", "-pie", "-fPIE"],
        ["-O2", "-pie", "-fPIE"],
        ["-O0", "-no-pie", "-fno-pie"],
        ["-O2", "-no-pie", "-fno-pie"],
    ] {
        check_redirected(&bench.run(&bench.static_program(&flags)));
    }
}

#[test]
fn local_symbols_and_link_time_optimisation() {
    let bench = Bench::new();
    std::fs::write(bench.path("hidden.map"), "{ local: *; };").unwrap();
    let flags = [
        "-O2",
        "-Wl,--version-script=hidden.map",
        "-fvisibility=hidden",
    ];
    check_redirected(&bench.run(&bench.static_program(&flags)));
    check_redirected(&bench.run(&bench.static_program(&["-O2", "-flto", "-flto-partition=none"])));
}

#[test]
fn the_runtimes_version_decides() {
    let bench = Bench::new();
    let text = stdout(&bench.run(&bench.static_program(&["-DV12"])));
    assert!(
        text.contains("RIGHT 12 cudaMalloc") && !text.contains("RIGHT 13"),
        "{text}"
    );
}

#[test]
fn calls_of_runtime_11_8_go_to_that_of_12_or_to_the_changed_functions() {
    let bench = Bench::new();
    let removed = "W(cudaBindTexture) W(__cudaRegisterTexture) W(cudaGraphInstantiate)";
    let main = r#"
        #include <stdio.h>
        int cudaMalloc(int), cudaGraphInstantiate(int), cudaBindTexture(int), __cudaRegisterTexture(int);
        int main(void) {
            printf("%d\n", cudaMalloc(1));
            printf("%d\n", cudaGraphInstantiate(1));
            printf("%d %d\n", cudaBindTexture(1), __cudaRegisterTexture(1));
        }"#;
    let program = |more: &str| {
        let runtime = format!("{STATIC_RUNTIME}\n{removed}\n{more}");
        let sources = [("main.c", main), ("static.c", runtime.as_str())];
        bench.compile("program", &sources, &["-O1"])
    };
    let output = bench.run(&program("W(cudaLaunchKernelExC)"));
    assert_eq!(
        stdout(&output),
        "RIGHT 12 cudaMalloc\n2\nRIGHT 12 cudart11_cudaGraphInstantiate\n2\n801 801\n"
    );
    assert!(stderr(&output).contains("cudaBindTexture is not supported"));
    // An older runtime has shorter structures.
    let output = bench.run(&program(""));
    assert!(stderr(&output).contains("older than 11.8"));
    assert!(!stdout(&output).contains("RIGHT"));
}

#[test]
fn a_function_that_ours_lacks_says_so_once_and_the_programs_own_is_left() {
    let bench = Bench::new();
    let main = r#"
        #include <stdio.h>
        int cudaGraphCreate(int), cudaOwnHelper(int);
        int main(void) {
            printf("%d\n", cudaGraphCreate(1)); printf("%d\n", cudaGraphCreate(2)); printf("%d\n", cudaOwnHelper(5));
        }"#;
    let program = bench.compile(
        "program",
        &[("main.c", main), ("static.c", STATIC_RUNTIME)],
        &["-O1"],
    );
    let output = bench.run(&program);
    assert_eq!(stdout(&output), "801\n801\nWRONG cudaOwnHelper\n1005\n");
    assert_eq!(
        stderr(&output)
            .matches("cudaGraphCreate is not supported")
            .count(),
        1,
        "{}",
        stderr(&output)
    );
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn short_functions_get_a_short_jump_or_are_left_with_a_word() {
    let bench = Bench::new();
    let short = r#"
        .text
        .macro function name
        .globl \name
        .type \name, @function
        \name:
        .endm
        function __cudaRegisterFatBinary
            .rept 20
            nop
            .endr
            ret
            .size __cudaRegisterFatBinary, 21
        function cudaMalloc
            mov $99, %eax
            ret
            .size cudaMalloc, 6
        function cudaLaunchKernel
            xor %eax, %eax
            ret
            .size cudaLaunchKernel, 3
        function cudaGetDeviceProperties
            mov $98, %eax
            ret
            .size cudaGetDeviceProperties, 6
        .section .note.GNU-stack,"",@progbits
        "#;
    for pie in ["-pie", "-no-pie"] {
        let output = bench.run(&bench.compile(
            "program",
            &[("main.c", MAIN), ("short.S", short)],
            &[pie, "-fPIE"],
        ));
        assert!(
            stdout(&output).contains("RIGHT 13 cudaMalloc\n"),
            "{}{}",
            stdout(&output),
            stderr(&output)
        );
        assert!(stdout(&output).ends_with("3 0 5\n"), "{}", stdout(&output));
        assert!(
            stderr(&output).contains("cudaLaunchKernel is too short"),
            "{}",
            stderr(&output)
        );
    }
}

/// XLA has such jumps: the program opens a libcudart itself, at the first of these calls.
#[test]
fn jumps_of_a_programs_own_are_left_without_a_word() {
    let bench = Bench::new();
    let jumps = r#"
        .text
        .macro jump name
        .globl \name
        .type \name, @function
        \name:
            jmp own
        .endm
        jump __cudaRegisterFatBinary
        jump cudaMalloc
        jump cudaLaunchKernel
        jump cudaGetDeviceProperties
        .section .note.GNU-stack,"",@progbits
        "#;
    let own = "int own(int x) { return x + 10; }";
    let program = bench.compile(
        "program",
        &[("main.c", MAIN), ("jumps.S", jumps), ("own.c", own)],
        &[],
    );
    let output = bench.run(&program);
    assert_eq!(stdout(&output), "12 13 14\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn an_indirect_function_is_redirected_where_its_resolver_points() {
    let bench = Bench::new();
    let indirect = r#"
        #include <stdio.h>
        int __cudaRegisterFatBinary(int x) { printf("WRONG\n"); return x; }
        int cudaMalloc(int x) { printf("WRONG\n"); return x; }
        int cudaGetDeviceProperties(int x) { printf("WRONG\n"); return x; }
        static int chosen(int x) { printf("WRONG chosen\n"); return x; }
        static void *resolve(void) { return chosen; }
        int cudaLaunchKernel(int) __attribute__((ifunc("resolve")));
        "#;
    for pie in ["-pie", "-no-pie"] {
        let output = bench.run(&bench.compile(
            "program",
            &[("main.c", MAIN), ("static.c", indirect)],
            &[pie],
        ));
        check_redirected(&output);
    }
}

#[test]
fn a_library_with_a_static_runtime_is_redirected_before_its_constructors() {
    let bench = Bench::new();
    let library = format!(
        "{STATIC_RUNTIME}\n__attribute__((constructor)) static void registers(void) {{ __cudaRegisterFatBinary(1); }}\nint work(void) {{ return cudaMalloc(2); }}"
    );
    bench.compile(
        "libwork.so",
        &[("work.c", &library)],
        &[
            "-shared",
            "-fPIC",
            "-Wl,-Bsymbolic",
            "-fvisibility=hidden",
            "-Dwork=__attribute__((visibility(\"default\")))work",
        ],
    );
    let main = "int work(void); int main(void) { return work() - 3; }";
    let program = bench.compile(
        "program",
        &[("main.c", main)],
        &["-L.", "-lwork", "-Wl,-rpath,$ORIGIN"],
    );
    let output = bench.run(&program);
    assert_eq!(
        stdout(&output),
        "RIGHT 13 __cudaRegisterFatBinary\nRIGHT 13 cudaMalloc\n",
        "{}",
        stderr(&output)
    );
    assert!(output.status.success());
}

#[test]
fn no_page_is_writable_and_executable_afterwards() {
    let bench = Bench::new();
    let main = r#"
        #include <stdio.h>
        int __cudaRegisterFatBinary(int);
        int main(void) {
            __cudaRegisterFatBinary(1);
            char line[512]; FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, sizeof line, maps)) fputs(line, stdout);
        }"#;
    let program = bench.compile(
        "program",
        &[("main.c", main), ("static.c", STATIC_RUNTIME)],
        &[],
    );
    let text = stdout(&bench.run(&program));
    assert!(
        text.contains("RIGHT 13") && text.contains("libcudart.so.13"),
        "{text}"
    );
    // With the space, no directory's name is meant.
    assert!(!text.contains("wxp "), "{text}");
}

#[test]
fn pitfall_66_a_program_without_cuda_is_untouched() {
    let bench = Bench::new();
    // Prints a sum that its own code computes, and whether the preload brought a CUDA library.
    let main = r#"
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        #include <sys/wait.h>
        extern char __executable_start[], etext[];
        int cudaCheck(int x) { return x * 3; }
        int main(int argc, char **argv) {
            unsigned long sum = cudaCheck(argc);
            for (volatile unsigned char *at = (void *)__executable_start; at < (unsigned char *)etext; ++at) sum = sum * 31 + *at;
            printf("%lx\n", sum);
            char line[512]; FILE *maps = fopen("/proc/self/maps", "r");
            char access[8]; while (fgets(line, sizeof line, maps)) if (sscanf(line, "%*s %7s", access) == 1 && (strstr(line, "cuda") || strstr(access, "wx"))) puts(line);
            fflush(stdout);
            if (argc == 1) { if (!fork()) execl("/proc/self/exe", argv[0], "child", NULL); wait(NULL); }
        }"#;
    for pie in ["-pie", "-no-pie"] {
        let program = bench.compile("program", &[("main.c", main)], &[pie]);
        let plain = std::process::Command::new(&program).output().unwrap();
        let output = bench.run(&program);
        assert_eq!(stdout(&output), stdout(&plain));
        assert_eq!(stderr(&output), "");
        assert_eq!(stdout(&plain).lines().count(), 2);
    }
}

#[test]
fn an_nvcc_program_runs_on_our_libcudart() {
    let Some(cuda) = std::env::var_os("CUDA_HOME").map(std::path::PathBuf::from) else {
        eprintln!("skipped: CUDA_HOME names no toolkit");
        return;
    };
    let bench = Bench::new();
    let source = "#include <cstdio>\n__global__ void kernel(int *p) { *p = 1; }\n\
                  int main() { int *p = nullptr; kernel<<<1, 1>>>(p); printf(\"%d\\n\", (int)cudaMalloc(&p, 4)); }";
    std::fs::write(bench.path("a.cu"), source).unwrap();
    let program = bench.path("a");
    let made = std::process::Command::new(cuda.join("bin/nvcc"))
        .args(["-gencode", "arch=compute_80,code=compute_80", "-o"])
        .args([&program, &bench.path("a.cu")])
        .status()
        .unwrap();
    assert!(made.success());
    // The functions that nvcc's code needs; each prints that it was called.
    let runtime = r#"
        #include <stdio.h>
        static char handle[64];
        void **__cudaRegisterFatBinary(void *f) { puts("registered"); return (void **)handle; }
        void __cudaRegisterFatBinaryEnd(void **h) {}
        void __cudaRegisterFunction(void **h, const char *f, char *d, const char *name, int t, void *a, void *b, void *c, void *e, int *w) { puts(name); }
        void __cudaUnregisterFatBinary(void **h) {}
        char __cudaInitModule(void **h) { return 0; }
        unsigned __cudaPushCallConfiguration(long a, int b, long c, int d, long e, void *s) { return 0; }
        int __cudaPopCallConfiguration(void *a, void *b, long *c, void *d) { return 0; }
        int __cudaGetKernel(void **k, const void *f) { *k = (void *)f; return 0; }
        int cudaGetKernel(void **k, const void *f) { *k = (void *)f; return 0; }
        int __cudaLaunchKernel(void) { puts("launched"); return 0; }
        int cudaLaunchKernel(void) { puts("launched"); return 0; }
        int cudaMalloc(void **p, long n) { return 42; }
        "#;
    bench.compile(
        "lib/libcudart.so.13",
        &[("runtime.c", runtime)],
        &["-shared", "-fPIC"],
    );
    let output = bench.run(&program);
    let text = stdout(&output);
    assert_eq!(
        text,
        "registered\n_Z6kernelPi\nlaunched\n42\n",
        "{}",
        stderr(&output)
    );
}
