// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Python modules that hold a stripped static runtime and publish their functions.

mod common;

use std::path::PathBuf;

use common::{Bench, STATIC_RUNTIME, stderr, stdout};

/// What both sides know of Python's objects.
const OBJECTS: &str = r#"
#include <stddef.h>
struct type { int unused; };
extern struct type PyModuleDef_Type;
struct object { size_t count; EXTRA struct type *type; };
struct slot { int id; void *value; };
struct definition { struct object head; size_t base[3]; const char *name, *doc; ptrdiff_t size; void *methods; struct slot *slots; };
struct capsule { struct object head; const char *name; void *pointer; };
struct entry { const char *key; struct capsule *value; };
struct module { struct object head; const char *name; struct entry *dictionary; };
"#;

/// As much of Python as imports a module and calls what it publishes.
const PYTHON: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct type PyModuleDef_Type;
void *PyObject_GetAttrString(void *module, const char *name) {
    return strcmp(name, "__pyx_capi__") ? 0 : ((struct module *)module)->dictionary;
}
void Py_DecRef(void *object) {}
void PyErr_Clear(void) {}
const char *PyModule_GetName(void *module) { return ((struct module *)module)->name; }
int PyDict_Next(void *dictionary, ptrdiff_t *at, void **key, void **value) {
    struct entry *entry = (struct entry *)dictionary + *at;
    if (!entry->key) return 0;
    *key = (void *)entry->key; *value = entry->value; ++*at;
    return 1;
}
const char *PyUnicode_AsUTF8AndSize(void *text, ptrdiff_t *size) { return text; }
const char *PyCapsule_GetName(void *capsule) { return ((struct capsule *)capsule)->name; }
int PyCapsule_SetPointer(void *capsule, void *pointer) { ((struct capsule *)capsule)->pointer = pointer; return 0; }

int main(int argc, char **argv) {
    for (int at = 2; at < argc; ++at) {
        struct module module = {.name = argv[1]};
        void *file = dlopen(argv[at], RTLD_NOW);
        if (!file) { puts(dlerror()); return 1; }
        struct object *(*init)(void) = dlsym(file, "PyInit_runtime");
        struct object *made = init();
        struct module *complete = (void *)made;
        if (made->type == &PyModuleDef_Type) {
            complete = &module;
            for (struct slot *slot = ((struct definition *)made)->slots; slot->id; ++slot)
                if (slot->id == 2 && ((int (*)(void *))slot->value)(&module)) return 2;
        }
        for (struct entry *entry = complete->dictionary; entry->key; ++entry)
            printf("%s %d\n", entry->key, ((int (*)(int))entry->value->pointer)(1));
    }
    return 0;
}
"#;

/// A module. Its functions pass on what they get to a static runtime; one does something else.
const MODULE: &str = r#"
static const char *marker = "/cudart.shm.%x";
#define PASS(name) static int pass_##name(int x) { return name(x); }
PASS(cudaMalloc) PASS(cudaGetDeviceProperties) PASS(cudaOwnHelper) PASS(cudaGraphCreate)
static int text(int x) { return 7; }
static struct capsule capsules[] = {
    {{1}, "cudaError_t (void **, size_t)", pass_cudaMalloc},
    {{1}, "cudaError_t (struct cudaDeviceProp *, int)", pass_cudaGetDeviceProperties},
    {{1}, "cudaError_t (int)", pass_cudaOwnHelper},
    {{1}, "cudaError_t (cudaGraph_t *, unsigned int)", pass_cudaGraphCreate},
    {{1}, "char const *(cudaError_t)", text},
#ifdef V12
    {{1}, "cudaError_t (struct cudaDeviceProp *, int)", pass_cudaGetDeviceProperties},
#endif
};
static struct entry dictionary[] = {
    {"_cudaMalloc", &capsules[0]}, {"cudaGetDeviceProperties", &capsules[1]}, {"_cudaOwnHelper", &capsules[2]},
    {"_cudaGraphCreate", &capsules[3]}, {"_cudaGetErrorName", &capsules[4]},
#ifdef V12
    {"_cudaGetDeviceProperties_v2", &capsules[5]},
#endif
    {0},
};
static int execute(struct module *module) { module->dictionary = marker ? dictionary : 0; return 0; }
static struct slot slots[] = {{1, 0}, {2, execute}, {0}};
static struct definition definition = {{1}, {0}, "runtime", 0, 0, 0, slots};
static struct module complete = {{1}, "complete", dictionary};
__attribute__((visibility("default"))) void *PyInit_runtime(void) {
    definition.head.type = &PyModuleDef_Type;
    return SINGLE ? (void *)&complete : &definition;
}
"#;

fn python(bench: &Bench, extra: &str) -> PathBuf {
    let source = format!("{OBJECTS}{PYTHON}");
    let extra = format!("-DEXTRA={extra}");
    bench.compile(
        "python",
        &[("python.c", &source)],
        &["-rdynamic", "-ldl", &extra],
    )
}

fn module(bench: &Bench, name: &str, flags: &[&str]) -> PathBuf {
    let source = format!("{STATIC_RUNTIME}{OBJECTS}{MODULE}");
    let own = ["-shared", "-fPIC", "-s", "-fvisibility=hidden"];
    bench.compile(name, &[("module.c", &source)], &[&own, flags].concat())
}

/// What calls of a module's functions print if those of the runtime are ours.
fn ours(version: &str) -> String {
    format!(
        "RIGHT {version} cudaMalloc\n_cudaMalloc 2\nRIGHT {version} cudaGetDeviceProperties\n\
         cudaGetDeviceProperties 2\nWRONG cudaOwnHelper\n_cudaOwnHelper 1001\n_cudaGraphCreate 801\n_cudaGetErrorName 7\n"
    )
}

#[test]
fn a_module_publishes_our_functions() {
    let bench = Bench::new();
    // An object's header as usual, and that of Python without a global lock.
    for extra in ["", "size_t more[2];"] {
        let python = python(&bench, extra);
        let extra = format!("-DEXTRA={extra}");
        for single in ["-DSINGLE=0", "-DSINGLE=1"] {
            let module = module(&bench, "module.so", &[&extra, single]);
            let output = bench
                .followed(&python)
                .args(["runtime"])
                // The second time, the file is open already.
                .args([&module, &module])
                .output()
                .unwrap();
            assert_eq!(stdout(&output), ours("13").repeat(2), "{}", stderr(&output));
            let said = stderr(&output);
            assert_eq!(said.matches("cudaGraphCreate is not supported").count(), 1);
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(output.status.success());
        }
    }
}

#[test]
fn the_version_is_the_modules_own() {
    let bench = Bench::new();
    let python = python(&bench, "");
    let module = module(&bench, "module.so", &["-DEXTRA=", "-DSINGLE=0", "-DV12"]);
    let mut command = bench.followed(&python);
    let output = command.arg("runtime").arg(&module).output().unwrap();
    let said = stdout(&output);
    assert!(said.starts_with(&ours("12")), "{said}{}", stderr(&output));
}

#[test]
fn a_module_that_chooses_by_a_variable_goes_on_to() {
    let bench = Bench::new();
    let python = python(&bench, "");
    let module = module(&bench, "module.so", &["-DEXTRA=", "-DSINGLE=0"]);
    let run = |name: &str, chosen: &str| {
        let mut command = bench.followed(&python);
        command.env("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", chosen);
        stdout(&command.arg(name).arg(&module).output().unwrap())
    };
    assert_eq!(run("runtime", "0"), ours("13"));
    assert!(run("runtime", "1").starts_with("WRONG cudaMalloc\n"));
    assert!(run("runtime_ptds", "1").starts_with("RIGHT 13 cudaMalloc\n"));
}

#[test]
fn a_module_without_a_runtime_is_untouched() {
    let bench = Bench::new();
    let python = python(&bench, "");
    let source = format!("{STATIC_RUNTIME}{OBJECTS}{MODULE}").replace("/cudart.shm.", "/other.");
    let flags = [
        "-shared",
        "-fPIC",
        "-s",
        "-fvisibility=hidden",
        "-DEXTRA=",
        "-DSINGLE=0",
    ];
    let module = bench.compile("module.so", &[("module.c", &source)], &flags);
    let mut command = bench.followed(&python);
    let output = command.arg("runtime").arg(&module).output().unwrap();
    assert!(stdout(&output).starts_with("WRONG cudaMalloc\n"));
    assert_eq!(stderr(&output), "");
}
