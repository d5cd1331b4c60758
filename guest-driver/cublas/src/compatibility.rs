//! The page on NVIDIA's libraries: made from the table and from what this library exports by hand, and checked to be up to date.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use gpgpu_protocol::{
    api::Completion,
    libraries::{Function, Kind, Library, MAX_ARRAY},
};

macro_rules! by_hand {
    ($($file:ident { $($name:ident)* })*) => {
        /// The functions that are written by hand, by their files. Each is there, or this does not compile.
        const BY_HAND: &[(&str, &[&str])] =
            &[$((concat!(stringify!($file), ".rs"), &[$(stringify!($name)),*])),*];

        $($(const _: () = {
            let _ = crate::$file::$name;
        };)*)*
    };
}

by_hand! {
    state {
        cublasCreate_v2 cublasDestroy_v2 cublasGetVersion_v2 cublasGetProperty cublasSetStream_v2
        cublasGetStream_v2 cublasSetPointerMode_v2 cublasGetPointerMode_v2 cublasSetWorkspace_v2
        cublasSetMathMode cublasGetMathMode cublasSetAtomicsMode cublasGetAtomicsMode
        cublasSetSmCountTarget cublasGetSmCountTarget cublasSetEmulationStrategy
        cublasGetEmulationStrategy
    }
    transfer {
        cublasSetVector cublasSetVector_64 cublasSetVectorAsync cublasSetVectorAsync_64
        cublasGetVector cublasGetVector_64 cublasGetVectorAsync cublasGetVectorAsync_64
        cublasSetMatrix cublasSetMatrix_64 cublasSetMatrixAsync cublasSetMatrixAsync_64
        cublasGetMatrix cublasGetMatrix_64 cublasGetMatrixAsync cublasGetMatrixAsync_64
    }
    words {
        cublasGetStatusName cublasGetStatusString cublasGetCudartVersion cublasLoggerConfigure
        cublasSetLoggerCallback cublasGetLoggerCallback cublasXerbla
    }
}

/// How a function completes, and where it stands.
#[derive(PartialEq, Eq)]
struct Row {
    completes: &'static str,
    file: &'static str,
}

/// How a function of the table completes, as its caller sees it.
fn completes(function: &Function) -> &'static str {
    let has_array = function
        .kinds
        .iter()
        .any(|kind| matches!(kind, Kind::Array(..)));
    match function.operation.completion {
        // Each call is asked about: what an array holds is no part of a call's form.
        Completion::Post if has_array => Completion::Call.word(),
        completion => completion.word(),
    }
}

fn rows() -> BTreeMap<&'static str, Row> {
    let mut rows = BTreeMap::new();
    for function in Library::Cublas.functions() {
        let row = Row {
            completes: completes(function),
            file: "",
        };
        rows.insert(function.operation.name, row);
    }
    for (file, names) in BY_HAND {
        for name in *names {
            let row = rows.entry(name).or_insert(Row {
                completes: "guest",
                file: "",
            });
            assert_eq!(row.file, "", "{name} is exported twice");
            row.file = file;
        }
    }
    for function in Library::Cublas.functions() {
        let of = &function.operation;
        let is_by_hand = !rows[of.name].file.is_empty();
        assert_eq!(is_by_hand, of.style == "guest", "{}", of.name);
    }
    rows
}

fn page() -> String {
    let rows = rows();
    let by_hand = rows.values().filter(|row| !row.file.is_empty()).count();
    let mut page = format!(
        "# What of NVIDIA's libraries works in a guest\n\n\
         **Checked on the stand-in alone: no run with NVIDIA's own cuBLAS on a GPU is recorded yet.** The stand-in is a `libcublas.so.13` that computes on the \
         CPU, with [some of the functions](../software-gpu/cublas/README.md). Two programs of the demo and `tests/libraries.rs` call them through the guest's library. What the \
         stand-in lacks, this project has called nowhere.\n\n\
         Made from the table (`protocol/src/libraries/cublas.rs`) and the exported functions (`guest-driver/cublas/src`); do not edit it by hand: \
         `UPDATE_DOCS=1 cargo test -p gpgpu-cublas compatibility` makes it again.\n\n\
         One library is served: **cuBLAS**, as `libcublas.so.12` and `libcublas.so.13`. The host needs a [copy of its own](operating.md#nvidias-libraries); without one \
         `cublasCreate` returns `CUBLAS_STATUS_NOT_INITIALIZED`. cuDNN, cuFFT, cuRAND, cuSPARSE, cuSOLVER and cuSPARSELt are not served; nor is cuBLASLt, whose functions are there, return `CUBLAS_STATUS_NOT_SUPPORTED` and name themselves once: NVIDIA's own would take a handle of cuBLAS for one of its own. \
         [How it works](design.md#nvidias-libraries), and [what a hostile guest can do with it](security.md#nvidias-libraries).\n\n\
         ## What differs from NVIDIA's\n\n\
         - **Errors of posted calls.** When a handle makes a call in a form that is new to it, the call waits for what the host's library says. Calls of that form return at once from \
         then on. If one fails nevertheless, the error surfaces at a later synchronising call of libcuda, as a code of CUDA's. The form is the function and all its arguments \
         but the values of scalars; of an address only the alignment counts, and whether it is NULL. A new math mode, atomics mode, number of multiprocessors or emulation strategy makes every form new.\n\
         - **Functions with a result** (dot products, norms, sums, indices, rotations) make the caller wait, as NVIDIA's do where the result is at a host address; here they do so where it stays on the device too.\n\
         - **`…GroupedBatched` functions** take at most {MAX_ARRAY} groups: more are `CUBLAS_STATUS_INVALID_VALUE`. Each call waits for the host's library.\n\
         - **The logger does nothing.** `cublasLoggerConfigure` and `cublasSetLoggerCallback` succeed, nothing is logged, and no callback is called.\n\
         - **Environment variables** of the program, such as `CUBLAS_WORKSPACE_CONFIG`, do not reach the host's library.\n\
         - `cublasGetCudartVersion` says 13000, whatever the host has. `cublasGetVersion` and `cublasGetProperty` say what the host's library says.\n\
         - **A function that the host's copy lacks** returns `CUBLAS_STATUS_NOT_SUPPORTED`. On a host from before there were libraries `cublasCreate` returns `CUBLAS_STATUS_NOT_INITIALIZED`.\n\
         - **Stream capture** does not work: the driver API refuses it [for all work](compatibility.md).\n\
         - **Not supported**: the old API of `cublas.h` (`cublasInit`, `cublasSgemm` without a handle and so on), cublasXt, and settings of emulated arithmetic that came with CUDA 13. They are \
         exported, return `CUBLAS_STATUS_NOT_SUPPORTED` and name themselves once on standard error. Who links cuBLAS statically (`libcublas_static.a`) does not come here.\n\n\
         ## Functions\n\n\
         How a call completes: *post* returns at once, but for the first call of a form; *call* returns when the host's library has issued it; *wait* returns when the function is done, and \
         other threads of the program go on meanwhile. *Guest* is answered in the program's own process, or made of libcuda's functions.\n\n\
         Of the {} functions {by_hand} are written by hand, in the file of `guest-driver/cublas/src` that the last column names; the others are made from the table. Those of `state.rs` call the host only \
         if it has to be told something new, or asked what the guest does not know. Where `_64` is said there is a function of that ending, too, which completes alike.\n\n\
         | function | also | completes | by hand |\n|---|---|---|---|\n",
        rows.len()
    );
    for (name, row) in &rows {
        let is_like_the_other = |of: &str| rows.get(of) == Some(row);
        if name.strip_suffix("_64").is_some_and(is_like_the_other) {
            continue;
        }
        let wide = match is_like_the_other(&format!("{name}_64")) {
            true => "`_64`",
            false => "",
        };
        let _ = writeln!(
            page,
            "| `{name}` | {wide} | {} | {} |",
            row.completes, row.file
        );
    }
    page
}

#[test]
fn the_page_on_libraries_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/libraries.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/libraries.md is out of date: UPDATE_DOCS=1 cargo test -p gpgpu-cublas compatibility"
    );
}
