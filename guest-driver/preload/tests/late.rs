// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries that a program loads late, and the file that the dynamic linker chooses.

mod common;

use std::process::Command;

use common::{Bench, STATIC_RUNTIME, stderr, stdout};

/// A module with a static runtime of its own, which it calls from its constructor and from `work`.
const MODULE: &str = r#"
__attribute__((constructor)) static void registers(void) { __cudaRegisterFatBinary(1); }
__attribute__((visibility("default"))) int work(int x) { return cudaMalloc(x) + cudaLaunchKernel(x); }
"#;

const MODULE_FLAGS: [&str; 4] = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden"];

/// The output of the module and of `work` on success.
const WORKED: &str =
    "RIGHT 13 __cudaRegisterFatBinary\nRIGHT 13 cudaMalloc\nRIGHT 13 cudaLaunchKernel\n";

fn module(bench: &Bench, name: &str, flags: &[&str]) -> std::path::PathBuf {
    let source = format!("{STATIC_RUNTIME}\n{MODULE}");
    bench.compile(
        name,
        &[("module.c", &source)],
        &[&MODULE_FLAGS, flags].concat(),
    )
}

/// A program that opens each file in its arguments, calls its `work` and closes it, REPEAT times.
fn opener(bench: &Bench) -> std::path::PathBuf {
    let main = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <stdlib.h>
        int main(int argc, char **argv) {
            int times = getenv("REPEAT") ? atoi(getenv("REPEAT")) : 1;
            for (int i = 0; i < times; ++i)
                for (int at = 1; at < argc; ++at) {
                    void *module = dlopen(argv[at], RTLD_NOW);
                    if (!module) { puts(dlerror()); return 1; }
                    int (*work)(int) = dlsym(module, "work");
                    if (work && work(1) != 4) return 2;
                    if (dlclose(module)) return 3;
                }
            return 0;
        }"#;
    bench.compile("opener", &[("opener.c", main)], &["-ldl"])
}

#[test]
fn a_module_is_redirected_before_its_constructors() {
    let bench = Bench::new();
    let opener = opener(&bench);
    for flags in [
        &[][..],
        &["-Wl,-z,lazy"],
        &["-Wl,-z,now"],
        &["-Wl,-Bsymbolic"],
    ] {
        let module = module(&bench, "module.so", flags);
        let output = bench.followed(&opener).arg(&module).output().unwrap();
        assert_eq!(stdout(&output), WORKED, "{}", stderr(&output));
        assert_eq!(stderr(&output), "");
        assert!(output.status.success());
    }
    // Without the audit library no later object is redirected.
    let module = module(&bench, "module.so", &[]);
    let output = bench
        .followed(&opener)
        .env_remove("LD_AUDIT")
        .arg(&module)
        .output()
        .unwrap();
    assert!(stdout(&output).starts_with("WRONG"), "{}", stdout(&output));
}

#[test]
fn modules_of_both_versions_and_a_stripped_one_that_exports_the_runtime() {
    let bench = Bench::new();
    let opener = opener(&bench);
    let paths = [
        module(&bench, "thirteen.so", &[]),
        module(&bench, "twelve.so", &["-DV12"]),
        module(
            &bench,
            "exports.so",
            &["-fvisibility=default", "-s", "-Wl,-Bsymbolic"],
        ),
    ];
    let output = bench.followed(&opener).args(&paths).output().unwrap();
    let expected = format!("{WORKED}{}{WORKED}", WORKED.replace("13", "12"));
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}

#[test]
fn closed_and_opened_again_and_again_leaves_nothing_behind() {
    let bench = Bench::new();
    let main = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        static int maps(void) {
            int lines = 0, c; FILE *file = fopen("/proc/self/maps", "r");
            while ((c = getc(file)) != EOF) lines += c == '\n';
            fclose(file);
            return lines;
        }
        int main(int argc, char **argv) {
            int early = 0;
            for (int i = 0; i < 200; ++i) {
                for (int at = 1; at < argc; ++at) {
                    void *module = dlopen(argv[at], RTLD_NOW);
                    int (*work)(int) = module ? dlsym(module, "work") : 0;
                    if (!work || work(1) != 4 || dlclose(module)) return 1;
                }
                if (i == 20) early = maps();
            }
            fprintf(stderr, "%d more\n", maps() - early);
        }"#;
    let program = bench.compile("program", &[("main.c", main)], &["-ldl"]);
    // The module's functions are too short for a long jump, so it needs memory nearby.
    let short = r#"
        .macro function name
        .type \name, @function
        \name:
            mov $99, %eax
            ret
            .size \name, 6
        .endm
        .text
        function cudaMalloc
        function cudaLaunchKernel
        function __cudaRegisterFatBinary
        .globl work
        .type work, @function
        work:
            push %rbx
            mov %edi, %ebx
            call cudaMalloc
            mov %ebx, %edi
            mov %eax, %ebx
            call cudaLaunchKernel
            add %ebx, %eax
            pop %rbx
            ret
            .size work, . - work
        .section .note.GNU-stack,"",@progbits
        "#;
    let modules = [
        module(&bench, "module.so", &[]),
        bench.compile("short.so", &[("short.S", short)], &["-shared"]),
    ];
    let output = bench.followed(&program).args(&modules).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let calls = WORKED.to_owned() + "RIGHT 13 cudaMalloc\nRIGHT 13 cudaLaunchKernel\n";
    assert_eq!(stdout(&output), calls.repeat(200));
    assert_eq!(stderr(&output), "0 more\n");
}

#[test]
fn by_eight_threads_at_once_in_a_child_and_in_a_grandchild() {
    let bench = Bench::new();
    let main = r#"
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        #include <sys/wait.h>
        static char *path;
        static void *opens(void *unused) {
            for (int i = 0; i < 50; ++i) {
                void *module = dlopen(path, RTLD_NOW);
                int (*work)(int) = module ? dlsym(module, "work") : 0;
                if (!work || work(1) != 4 || dlclose(module)) return "failed";
            }
            return 0;
        }
        static int threads(void) {
            pthread_t thread[8]; int failed = 0; void *result;
            for (int i = 0; i < 8; ++i) pthread_create(&thread[i], 0, opens, 0);
            for (int i = 0; i < 8; ++i) { pthread_join(thread[i], &result); failed += result != 0; }
            return failed;
        }
        int main(int argc, char **argv) {
            int status = 0;
            path = argv[1];
            if (argc > 2) return threads();
            if (!fork()) { if (threads()) _exit(1); fflush(stdout); execl("/proc/self/exe", argv[0], path, "again", NULL); }
            wait(&status);
            return status ? 1 : threads();
        }"#;
    let program = bench.compile("program", &[("main.c", main)], &["-ldl", "-lpthread"]);
    // The threads' output is interleaved, so only count it.
    let module = module(&bench, "module.so", &[]);
    let output = bench.followed(&program).arg(&module).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(!text.contains("WRONG"));
    assert_eq!(text.matches("RIGHT 13 cudaMalloc\n").count(), 3 * 8 * 50);
    assert_eq!(stderr(&output), "");
}

#[test]
fn nvidias_libraries_and_libraries_without_a_runtime_are_untouched() {
    let bench = Bench::new();
    // Compares the mapped code with the file's.
    let main = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <link.h>
        #include <stdio.h>
        #include <string.h>
        #include <stdlib.h>
        static char *file;
        static int compare(struct dl_phdr_info *info, size_t size, void *path) {
            if (strcmp(info->dlpi_name, path)) return 0;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const ElfW(Phdr) *header = &info->dlpi_phdr[i];
                if (header->p_type == PT_LOAD && header->p_flags & PF_X)
                    puts(memcmp((char *)info->dlpi_addr + header->p_vaddr, file + header->p_offset, header->p_filesz)
                         ? "changed" : "same");
            }
            return 1;
        }
        int main(int argc, char **argv) {
            for (int at = 1; at < argc; ++at) {
                FILE *stream = fopen(argv[at], "r");
                file = malloc(1 << 20); fread(file, 1, 1 << 20, stream); fclose(stream);
                if (!dlopen(argv[at], RTLD_NOW) || !dl_iterate_phdr(compare, argv[at])) return 1;
            }
        }"#;
    let program = bench.compile("program", &[("main.c", main)], &["-ldl"]);
    let source = STATIC_RUNTIME;
    let library = |name: &str, source: &str, flags: &[&str]| {
        bench.compile(
            name,
            &[("library.c", source)],
            &[&["-shared", "-fPIC"], flags].concat(),
        )
    };
    let files = [
        library("libcublas.so.13", source, &[]),
        library("renamed.so", source, &["-Wl,-soname,libcufft.so.12"]),
        library("libplain.so", "int work(int x) { return 4; }", &[]),
        library("stripped.so", source, &["-s", "-fvisibility=hidden"]),
        library("libnccl.so.2", source, &["-Wl,-soname,libnccl.so.2"]),
    ];
    let output = bench
        .followed(&program)
        .args(&files)
        .arg(&files[3])
        .env("GPGPU_PRELOAD_VERBOSE", "1")
        .output()
        .unwrap();
    assert_eq!(
        stdout(&output),
        "same\nsame\nsame\nsame\nchanged\nsame\n",
        "{}",
        stderr(&output)
    );
    let said = stderr(&output);
    assert_eq!(said.matches("stripped.so may hold").count(), 1, "{said}");
    assert!(
        said.contains("libnccl.so.2: 5 functions of CUDA 13 go to"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// A library with one function, `WHICH()`, which returns the library's place.
fn placed(bench: &Bench, directory: &str, name: &str, flags: &[&str]) {
    std::fs::create_dir_all(bench.path(directory)).unwrap();
    let source = format!(
        "const char *which_{}(void) {{ return \"{directory}\"; }}",
        &name[3..4]
    );
    let soname = format!("-Wl,-soname,{name}");
    bench.compile(
        &format!("{directory}/{name}"),
        &[("placed.c", &source)],
        &[&["-shared", "-fPIC", &soname], flags].concat(),
    );
}

#[test]
fn our_directory_wins_for_the_files_that_it_has() {
    let bench = Bench::new();
    std::fs::write(bench.path("map"), "VERSION_1 { *; };").unwrap();
    let versioned = ["-Wl,--version-script=map"];
    placed(&bench, "lib", "libx.so.7", &versioned);
    placed(&bench, "other", "libx.so.7", &versioned);
    placed(&bench, "other", "liby.so.7", &[]);
    let main = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        const char *which_x(void), *which_y(void);
        int main(int argc, char **argv) {
            printf("%s %s\n", which_x(), which_y());
            for (int at = 1; at < argc; ++at) {
                void *library = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
                const char *(*x)(void) = dlsym(library, "which_x"), *(*y)(void) = dlsym(library, "which_y");
                puts(x ? x() : y());
            }
        }"#;
    let dt_rpath = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/other"];
    let files = ["other/libx.so.7", "other/liby.so.7", "-ldl"];
    let program = bench.compile(
        "program",
        &[("main.c", main)],
        &[dt_rpath, files[..2].try_into().unwrap()].concat(),
    );
    // A program that is not linked with them and opens them by path alone.
    let late = bench.compile(
        "late",
        &[(
            "late.c",
            &main.replace("printf(\"%s %s\\n\", which_x(), which_y());", ""),
        )],
        &["-ldl"],
    );
    let (x, y) = (bench.path("other/libx.so.7"), bench.path("other/liby.so.7"));
    let path = bench.path("other");
    let run = |program: &std::path::Path, ours: bool| {
        let mut command = bench.followed(program);
        if !ours {
            command.env_remove("LD_AUDIT");
        }
        let output = command
            .env("LD_LIBRARY_PATH", &path)
            .args([&x, &y])
            .args(["libx.so.7", "liby.so.7"])
            .output()
            .unwrap();
        assert_eq!(stderr(&output), "");
        stdout(&output)
    };
    assert_eq!(run(&program, true), "lib other\nlib\nother\nlib\nother\n");
    assert_eq!(
        run(&program, false),
        "other other\nother\nother\nother\nother\n"
    );
    assert_eq!(run(&late, true), "lib\nother\nlib\nother\n");
    assert_eq!(run(&late, false), "other\nother\nother\nother\n");
}

#[test]
fn copies_that_packages_have_renamed_are_ours() {
    let bench = Bench::new();
    std::fs::write(bench.path("map"), "VERSION_1 { *; };").unwrap();
    let versioned = ["-Wl,--version-script=map"];
    placed(&bench, "lib", "libx.so.7", &versioned);
    std::os::unix::fs::symlink("libx.so.7", bench.path("lib/libx.so")).unwrap();
    let copies = [
        "libx-0a1b2c3d.so.7.1.2",
        "libx.4e5f6a7b.so.7",
        "libx.so.7.1.2",
    ];
    for copy in copies {
        placed(&bench, "package", copy, &versioned);
    }
    // Our directory has none of these files.
    let others = ["libx-0a1b2c3d.so.8", "liby-0a1b2c3d.so.7"];
    for other in others {
        placed(&bench, "package", other, &versioned);
    }
    let link = |output: &str, library: &str, flags: &[&str]| {
        let source = "const char *which_x(void); const char *work(void) { return which_x(); }";
        let library = format!("package/{library}");
        let rpath = "-Wl,-rpath,$ORIGIN/package";
        let needed = ["-fPIC", &library, rpath];
        bench.compile(output, &[("needs.c", source)], &[flags, &needed].concat())
    };
    let modules = [0, 1, 2].map(|at| link(&format!("needs{at}.so"), copies[at], &["-shared"]));
    // Prints which library answers for each library in its arguments, or for each module's function.
    let main = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv) {
            for (int at = 1; at < argc; ++at) {
                void *library = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
                if (!library) { puts(dlerror()); return 1; }
                const char *(*who)(void) = 0;
                for (const char *names[] = {"work", "which_x", "which_y", 0}, **name = names; *name && !who; ++name)
                    who = dlsym(library, *name);
                // The text lies in the library, so the dynamic linker finds the library's file by the text's address.
                Dl_info info;
                char directory[32];
                snprintf(directory, sizeof directory, "/%s/", who());
                if (!dladdr(who(), &info) || !strstr(info.dli_fname, directory)) return 2;
                puts(who());
            }
        }"#;
    let program = bench.compile("program", &[("main.c", main)], &["-ldl"]);
    let run = |files: &[&std::path::Path]| {
        let output = bench.followed(&program).args(files).output().unwrap();
        assert_eq!(stderr(&output), "", "{files:?}");
        assert!(output.status.success(), "{files:?}");
        stdout(&output)
    };
    let [first, second, third] = modules.each_ref().map(|path| path.as_path());
    let plain = std::path::Path::new("libx.so.7");
    let for_linking = std::path::Path::new("libx.so");
    let copy = bench.path("package").join(copies[0]);
    for files in [
        &[first][..],
        &[second],
        &[third],
        &[&copy],
        // The library is already loaded when the name is searched, by either name.
        &[first, second, third, first],
        &[plain, second, &copy, first, third],
        &[for_linking, first, second],
        &[&copy, first],
    ] {
        assert_eq!(run(files), "lib\n".repeat(files.len()), "{files:?}");
    }
    for other in others {
        assert_eq!(run(&[&bench.path("package").join(other)]), "package\n");
    }
    // A program that is itself linked with a copy.
    let main = "#include <stdio.h>\nconst char *which_x(void); int main(void) { puts(which_x()); }";
    let rpath = "-Wl,-rpath,$ORIGIN/package";
    for copy in copies {
        let library = format!("package/{copy}");
        let linked = bench.compile("linked", &[("main.c", main)], &[&library, rpath]);
        let output = bench.followed(&linked).output().unwrap();
        assert_eq!(stdout(&output), "lib\n", "{copy}: {}", stderr(&output));
    }
}

#[test]
fn a_name_without_a_version_is_that_of_the_loaded_one() {
    let bench = Bench::new();
    for version in ["libx.so.7", "libx.so.8"] {
        placed(&bench, "lib", version, &[]);
    }
    std::os::unix::fs::symlink("libx.so.8", bench.path("lib/libx.so")).unwrap();
    // Prints the file of each library in its arguments.
    let main = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        #include <string.h>
        int main(int argc, char **argv) {
            for (int at = 1; at < argc; ++at) {
                void *library = dlopen(argv[at], RTLD_NOW | RTLD_LOCAL);
                Dl_info info;
                if (!library || !dladdr(dlsym(library, "which_x"), &info)) return 1;
                puts(strrchr(info.dli_fname, '/') + 1);
            }
        }"#;
    let program = bench.compile("program", &[("main.c", main)], &["-ldl"]);
    for (names, expected) in [
        (&["libx.so"][..], "libx.so\n"),
        (&["libx.so.7", "libx.so"], "libx.so.7\nlibx.so.7\n"),
        (&["libx.so.8", "libx.so"], "libx.so.8\nlibx.so.8\n"),
        (&["libx.so.7", "/usr/lib/libx.so"], "libx.so.7\nlibx.so.7\n"),
    ] {
        let output = bench.followed(&program).args(names).output().unwrap();
        assert_eq!(stdout(&output), expected, "{names:?}: {}", stderr(&output));
    }
}

#[test]
fn a_program_without_cuda_sees_no_change() {
    let bench = Bench::new();
    bench.compile(
        "libplain.so",
        &[("plain.c", "int plain(int x) { return x + 1; }")],
        &["-shared", "-fPIC"],
    );
    // Prints the mapped libraries, and the word at the start of the table of lazily bound functions. If any audit
    // library asks to see calls, the dynamic linker puts the address of its profiling code there.
    let main = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <link.h>
        #include <stdio.h>
        int plain(int);
        extern ElfW(Addr) _GLOBAL_OFFSET_TABLE_[];
        static int name(struct dl_phdr_info *info, size_t size, void *unused) { puts(info->dlpi_name); return 0; }
        int main(void) {
            dl_iterate_phdr(name, 0);
            Dl_info info; struct link_map *map = 0;
            dladdr1((void *)_GLOBAL_OFFSET_TABLE_[2], &info, (void **)&map, RTLD_DL_LINKMAP);
            printf("%lx\n", _GLOBAL_OFFSET_TABLE_[2] - map->l_addr);
            return plain(-1);
        }"#;
    let program = bench.compile(
        "program",
        &[("main.c", main)],
        &[
            "-Wl,-z,lazy",
            "-Wl,-z,norelro",
            "libplain.so",
            "-Wl,-rpath,$ORIGIN",
            "-ldl",
        ],
    );
    let plain = Command::new(&program).output().unwrap();
    let ours = bench.followed(&program).output().unwrap();
    assert!(ours.status.success());
    assert_eq!(stderr(&ours), "");
    let extra = bench.path("lib/libgpgpu_preload.so");
    let text = stdout(&ours);
    let (preload, others): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| *line == extra.to_str().unwrap());
    assert_eq!(preload.len(), 1);
    // libgcc_s comes with the preload.
    let others: Vec<&str> = others
        .into_iter()
        .filter(|line| !line.contains("libgcc_s"))
        .collect();
    assert_eq!(others, stdout(&plain).lines().collect::<Vec<_>>());
}

#[test]
fn the_audit_library_has_no_dependencies_and_audits_no_calls() {
    let bench = Bench::new();
    let symbols = Command::new("nm")
        .arg("-D")
        .arg(bench.path("lib/libgpgpu_audit.so"))
        .output()
        .unwrap();
    let names: Vec<String> = stdout(&symbols)
        .lines()
        .map(|line| line.split(' ').skip(1).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        names,
        [
            "T la_objclose",
            "T la_objopen",
            "T la_objsearch",
            "T la_symbind64",
            "T la_version"
        ]
    );
    let needed = Command::new("readelf")
        .arg("-dW")
        .arg(bench.path("lib/libgpgpu_audit.so"))
        .output()
        .unwrap();
    assert!(!stdout(&needed).contains("NEEDED"), "{}", stdout(&needed));
}
