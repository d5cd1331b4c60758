// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The Python package cuda-bindings, whose static runtime has no symbols, in a program that stands in for Python.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use common::{Bench, stderr, stdout};

/// Imports the modules in its arguments and then calls the functions in MODULE's dictionary. It has as much of Python
/// as the preload uses.
const PYTHON: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef struct { const char *key, *kind; int (*function)(int); } Capsule;
#define W(name) static int name(int x) { printf("WRONG " #name "\n"); return x + 1000; }
W(cudaMalloc) W(cudaMemcpy) W(cudaStreamQuery) W(cudaNewFunction) W(cudaOwnHelper) W(helper)
static Capsule capsules[] = {
    {"_cudaMalloc", "cudaError_t (void **, size_t)", cudaMalloc},
    {"_cudaMemcpy", "cudaError_t (void *, const void *, size_t, enum cudaMemcpyKind)", cudaMemcpy},
    {"_cudaStreamQuery", "cudaError_t (cudaStream_t)", cudaStreamQuery},
    {"_cudaNewFunction", "cudaError_t (int)", cudaNewFunction},
    {"_cudaOwnHelper", "int (int)", cudaOwnHelper},
    {"_helper", "cudaError_t (int)", helper},
    {"a number", NULL, NULL},
};
enum { COUNT = sizeof capsules / sizeof *capsules };
static int is_raised, is_initialised;
static char module, dictionary;
void *PyImport_ImportModule(const char *name) {
    if (!strcmp(name, getenv("MODULE"))) return &module;
    is_raised = 1;
    return NULL;
}
void *PyObject_GetAttrString(void *of, const char *name) {
    return of == &module && !strcmp(name, "__pyx_capi__") ? &dictionary : NULL;
}
int PyDict_Next(void *of, long *at, void **key, void **value) {
    if (of != &dictionary || *at == COUNT) return 0;
    *key = *value = &capsules[(*at)++];
    return 1;
}
const char *PyUnicode_AsUTF8AndSize(void *of, long *size) { return ((Capsule *)of)->key; }
const char *PyCapsule_GetName(void *of) {
    is_raised |= !((Capsule *)of)->kind;
    return ((Capsule *)of)->kind;
}
int PyCapsule_SetPointer(void *of, void *to) { ((Capsule *)of)->function = to; return 0; }
void PyErr_Clear(void) { is_raised = 0; }
void Py_DecRef(void *of) {}
int main(int argc, char **argv) {
    for (int at = 1; at < argc; ++at) {
        void *library = dlopen(argv[at], RTLD_NOW);
        if (!library) { puts(dlerror()); return 1; }
        void *(*initialise)(void) = dlsym(library, "PyInit_cyruntime");
        if (initialise() != (void *)7) return 2;
        if (is_raised) return 3;
        int (*plain)(int) = dlsym(library, "plain");
        if (plain(1) != 2) return 4;
    }
    for (int at = 0; at < COUNT; ++at)
        if (capsules[at].kind) printf("%s %d\n", capsules[at].key, capsules[at].function(1));
    return 0;
}
"#;

/// The module that takes the functions.
const TAKER: &str = "
#include <stdio.h>
void *PyInit_cyruntime(void) { puts(\"initialised\"); return (void *)7; }
int plain(int x) { return x + 1; }
";

const UNCHANGED: &str = "initialised
WRONG cudaMalloc
_cudaMalloc 1001
WRONG cudaMemcpy
_cudaMemcpy 1001
WRONG cudaStreamQuery
_cudaStreamQuery 1001
WRONG cudaNewFunction
_cudaNewFunction 1001
WRONG cudaOwnHelper
_cudaOwnHelper 1001
WRONG helper
_helper 1001
";

/// The output when the functions go to our libcudart of a version.
fn served(version: u32, memcpy: &str, query: &str) -> String {
    format!(
        "initialised
RIGHT {version} cudaMalloc
_cudaMalloc 2
RIGHT {version} {memcpy}
_cudaMemcpy 2
RIGHT {version} {query}
_cudaStreamQuery 2
_cudaNewFunction 801
WRONG cudaOwnHelper
_cudaOwnHelper 1001
WRONG helper
_helper 1001
"
    )
}

const NEW: &str = "cuda.bindings._internal.runtime";
const OLD: &str = "cuda.bindings._bindings.cyruntime";
const APACHE: &str = "Apache-2.0";
const NVIDIAS: &str = "LicenseRef-NVIDIA-SOFTWARE-LICENSE";

/// A directory of packages with cuda-bindings.
fn installed(bench: &Bench, packages: &str, version: &str, licence: &str) -> PathBuf {
    let directory = format!("{packages}/cuda/bindings");
    let metadata = bench.path(&format!("{packages}/cuda_bindings-{version}.dist-info"));
    fs::create_dir_all(bench.path(&directory)).unwrap();
    fs::create_dir_all(&metadata).unwrap();
    let text = format!(
        "Metadata-Version: 2.4\nName: cuda-bindings\nLicense-Expression: {licence}\n\nLicense-Expression: {APACHE}\n"
    );
    fs::write(metadata.join("METADATA"), text).unwrap();
    let file = format!("{directory}/cyruntime.cpython-312-x86_64-linux-gnu.so");
    bench.compile(&file, &[("taker.c", TAKER)], &["-shared", "-fPIC"])
}

/// Imports the modules in the stand-in for Python.
fn import(bench: &Bench, module: &str, files: &[&PathBuf], environment: &[(&str, &str)]) -> Output {
    let python = bench.compile("python", &[("python.c", PYTHON)], &["-rdynamic", "-ldl"]);
    let mut command = bench.followed(&python);
    command.env("MODULE", module).args(files);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

#[test]
fn functions_of_the_package_go_to_our_runtime_of_its_version() {
    let bench = Bench::new();
    let per_thread = |value| [("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", value)];
    for (version, module, major) in [("13.5.0", NEW, 13), ("12.9.10", OLD, 12)] {
        let file = installed(&bench, version, version, APACHE);
        for value in ["0", "1", "no number"] {
            let output = import(&bench, module, &[&file], &per_thread(value));
            let expected = match value {
                "1" => served(major, "cudaMemcpy_ptds", "cudaStreamQuery_ptsz"),
                _ => served(major, "cudaMemcpy", "cudaStreamQuery"),
            };
            assert_eq!(stdout(&output), expected, "{}", stderr(&output));
            let lacking = "cudaNewFunction is not supported; it returns cudaErrorNotSupported";
            assert_eq!(stderr(&output), format!("gpgpu-preload: {lacking}\n"));
        }
    }
}

#[test]
fn a_package_under_nvidias_licence_is_unchanged() {
    let bench = Bench::new();
    let file = installed(&bench, "site", "13.3.1", NVIDIAS);
    let output = import(&bench, NEW, &[&file], &[]);
    assert_eq!(stdout(&output), UNCHANGED);
    assert_eq!(stderr(&output), "");
    let output = import(&bench, NEW, &[&file], &[("GPGPU_PRELOAD_VERBOSE", "1")]);
    assert_eq!(stdout(&output), UNCHANGED);
    let said = stderr(&output);
    assert!(
        said.contains("the licence of cuda_bindings-13.3.1 allows no changes"),
        "{said}"
    );
}

#[test]
fn other_modules_of_that_name_and_incomplete_packages_are_unchanged() {
    let bench = Bench::new();
    let flags = ["-shared", "-fPIC"];
    fs::create_dir_all(bench.path("other/bindings")).unwrap();
    let other = bench.compile("other/bindings/cyruntime.so", &[("taker.c", TAKER)], &flags);
    let unknown = installed(&bench, "unknown", "13.5.0", APACHE);
    fs::remove_dir_all(bench.path("unknown/cuda_bindings-13.5.0.dist-info")).unwrap();
    let moved = installed(&bench, "moved", "13.5.0", APACHE);
    for (module, file) in [(NEW, &other), (NEW, &unknown), ("cuda.elsewhere", &moved)] {
        let output = import(&bench, module, &[file], &[]);
        assert_eq!(stdout(&output), UNCHANGED, "{}", file.display());
    }
}

/// Two installations in one process: the first is served, and the second one's module is initialised as it is.
#[test]
fn a_second_copy_is_initialised_by_its_own_function() {
    let bench = Bench::new();
    let first = installed(&bench, "first", "13.5.0", APACHE);
    let second = installed(&bench, "second", "13.4.1", APACHE);
    let again = [&first, &second, &first];
    let output = import(&bench, NEW, &again, &[]);
    let functions = served(13, "cudaMemcpy", "cudaStreamQuery");
    let expected = format!("initialised\ninitialised\n{functions}");
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}
