// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's libraries, end to end: the service on the software GPU, the stand-ins on the host, and guest programs that
//! use this project's libraries with NVIDIA's names.
//!
//! This program is both sides: a test starts the service and, with `gpgpu-run`, this program again as the guest's, with
//! its part in an environment variable. `VIRTIO_GPGPU_STAGE` names the directory of the programs; on a GPU
//! `VIRTIO_GPGPU_TEST_LIBRARIES` names the directories of NVIDIA's own libraries. Without them the tests are skipped,
//! with a message.

mod common;
// Some of it is only for the tests of isolation.
#[path = "libraries/calls.rs"]
mod calls;
#[path = "libraries/captures.rs"]
mod captures;
#[path = "libraries/dense.rs"]
mod dense;
#[path = "libraries/descriptors.rs"]
mod descriptors;
#[path = "libraries/device.rs"]
mod device;
#[allow(dead_code)]
#[path = "common/hosts/installed.rs"]
mod host;
#[path = "libraries/jpegs.rs"]
mod jpegs;
#[path = "libraries/networks.rs"]
mod networks;
#[path = "libraries/random.rs"]
mod random;
#[path = "libraries/sparse.rs"]
mod sparse;
#[path = "libraries/structured.rs"]
mod structured;
#[path = "libraries/structured_wrong.rs"]
mod structured_wrong;
#[path = "libraries/symbols.rs"]
mod symbols;
#[path = "libraries/threads.rs"]
mod threads;
#[path = "libraries/traces.rs"]
mod traces;
#[path = "libraries/transforms.rs"]
mod transforms;
#[path = "libraries/variables.rs"]
mod variables;
#[path = "libraries/wrapper.rs"]
mod wrapper;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    path::{Path, PathBuf},
    process::Command,
};

use host::{BackEnd, Guest, Options, on_gpu, stage, wait_for};

/// The variable with the guest program's part.
const PART: &str = "VIRTIO_GPGPU_TEST_PART";
const MIB: u64 = 1 << 20;
/// The charge of a handle.
const HANDLE: u64 = 96 * MIB;

/// Not a test: the guest program.
#[test]
fn guest() {
    match std::env::var(PART).as_deref() {
        Ok("wrapper") => wrapper::run(),
        Ok("descriptors") => descriptors::run(),
        Ok("plans") => descriptors::plans(),
        Ok("settings") => symbols::settings(),
        Ok("sizes") => symbols::sizes(),
        Ok("transfers") => symbols::transfers(),
        Ok("order") => symbols::order(),
        Ok("tf32") => variables::tf32(),
        Ok("green") => symbols::green(),
        Ok("fault") => symbols::fault(),
        Ok("without") => symbols::without(),
        Ok("limit") => symbols::limit(),
        Ok("dense systems") => dense::systems(),
        Ok("dense values") => dense::values(),
        Ok("dense wrong") => dense::wrong(),
        Ok("sparse products") => sparse::products(),
        Ok("sparse values") => sparse::values(),
        Ok("sparse wrong") => sparse::wrong(),
        Ok("structured products") => structured::products(),
        Ok("structured search") => structured::search(),
        Ok("structured lost") => structured::lost_plans(),
        Ok("structured pruning") => structured::pruning(),
        Ok("structured wrong") => structured_wrong::wrong(),
        Ok("structured without") => structured_wrong::without(),
        Ok("convolutions") => networks::convolutions(),
        Ok("graphs") => networks::graphs(),
        Ok("kept plans") => networks::kept(),
        Ok("captures") => captures::launches(),
        Ok("captures-workspaces") => captures::workspaces(),
        Ok("captures-wrong") => captures::wrong(),
        Ok("refusals") => networks::refusals(),
        Ok("transforms") => transforms::wrapper(),
        Ok("transforms-settings") => transforms::settings(),
        Ok("transforms-memory") => transforms::memory(),
        Ok("transforms-race") => transforms::race(),
        Ok("jpegs decoding") => jpegs::decoding(),
        Ok("jpegs steps") => jpegs::steps(),
        Ok("jpegs batches") => jpegs::batches(),
        Ok("jpegs encoding") => jpegs::encoding(),
        Ok("jpegs limit") => jpegs::limit(),
        Ok("traces") => traces::work(),
        Ok("traces of graphs") => traces::graphs(),
        Ok("traces of libraries") => traces::libraries(),
        Ok("traces of crowds") => traces::crowds(),
        Ok("traces without") => traces::without(),
        Ok("traces limit") => traces::limit(),
        Ok("own streams") => threads::own_streams(),
        Ok("questions") => threads::questions(),
        Ok("host numbers") => threads::host_numbers(),
        Ok("random") => random::wrapper(),
        Ok("random-symbols") => random::symbols(),
        Ok(part) => panic!("{part} is no part"),
        Err(_) => {}
    }
}

/// The directories of NVIDIA's libraries, or the one of the stand-ins; `None` if there is none.
fn libraries() -> Option<String> {
    if on_gpu() {
        let named = std::env::var("VIRTIO_GPGPU_TEST_LIBRARIES");
        let named = named.ok().filter(|named| !named.is_empty());
        if named.is_none() {
            eprintln!(
                "skipped: VIRTIO_GPGPU_TEST_LIBRARIES names no directory of NVIDIA's libraries"
            );
        }
        return named;
    }
    let directory = stage()?.join("software-gpu");
    if !directory.join("libcublas.so.13").exists() {
        eprintln!("skipped: there is no stand-in for cuBLAS; run cargo xtask test");
        return None;
    }
    Some(fs::canonicalize(directory).unwrap().display().to_string())
}

/// The limit of a VM, in MiB. On a GPU it includes room for a context, because the context's size is measured while
/// other tests use the GPU.
fn limit(on_software_gpu: u64) -> u64 {
    if on_gpu() { 16 << 10 } else { on_software_gpu }
}

/// A policy with these directories and with this limit for each VM, in MiB.
fn policy(libraries: &str, limit: u64) -> String {
    let directories: Vec<_> = libraries.split(':').collect();
    let vm = |number| {
        format!(
            "[[vm]]\nname = \"vm{number}\"\nsocket = \"DIR/vm{number}\"\nmemory = \"{limit}MiB\"\n"
        )
    };
    format!("[libraries]\nfolders = {directories:?}\n{}{}", vm(0), vm(1))
}

/// A back end with libraries in these directories.
fn start(libraries: &str) -> Option<BackEnd> {
    start_with(libraries, &[])
}

/// The same, with more flags.
fn start_with(libraries: &str, flags: &[&str]) -> Option<BackEnd> {
    let directories = libraries
        .split(':')
        .flat_map(|directory| ["--libraries", directory]);
    let arguments: Vec<_> = directories.chain(flags.iter().copied()).collect();
    BackEnd::start_with(&Options {
        arguments: &arguments,
        ..Options::default()
    })
}

/// This program in a VM, with a part.
fn command(back_end: &BackEnd, vm: usize, part: &str) -> Command {
    let mut command = back_end.command(vm, &back_end.staged("bin/gpgpu-run"));
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "guest", "--nocapture"])
        .env(PART, part);
    command
}

/// Runs a part, which must succeed.
fn run(back_end: &BackEnd, part: &str) {
    let (status, said) = Guest::spawn(command(back_end, 0, part)).end();
    let has_run = status.success() && said.contains("1 passed");
    assert!(has_run, "{part}: {status}: {said}");
}

fn runs(part: &str) {
    let Some(back_end) = libraries().and_then(|libraries| start(&libraries)) else {
        return;
    };
    run(&back_end, part);
}

/// With another project's wrapper.
#[test]
fn programs_of_cudarc_give_the_native_results() {
    runs("wrapper");
}

/// A request carries cuBLASLt's descriptors with the product that uses them.
#[test]
fn products_of_descriptors_are_as_they_say() {
    runs("descriptors");
}

/// The host keeps the description of a repeated product.
#[test]
fn products_that_come_again_are_those_of_their_own_descriptors() {
    runs("plans");
}

/// The same with cuDNN.
#[test]
fn convolutions_of_cudarc_give_the_native_results() {
    runs("convolutions");
}

#[test]
fn graphs_are_executed_with_tensors_and_with_values() {
    runs("graphs");
}

/// The files below a directory that contain kept plans, with their inodes.
fn kept_plans(below: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(below).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut kept_plans(&entry.path()));
        } else if entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(b"cudnn-plan-")
        {
            found.insert(entry.path(), entry.metadata().unwrap().ino());
        }
    }
    found
}

/// A worker stores such a plan in a new file. So a file that stays was used.
#[test]
fn plans_that_take_long_are_kept_for_the_vms_other_processes() {
    // NVIDIA's library takes a short time for these.
    let Some(libraries) = libraries().filter(|_| !on_gpu()) else {
        return;
    };
    let cache = tempfile::tempdir().unwrap();
    let Some(back_end) = BackEnd::start_with(&Options {
        arguments: &["--libraries", &libraries],
        prepare: &|command| {
            command
                .env("CUDA_CACHE_PATH", cache.path())
                .env("VIRTIO_GPGPU_SOFTWARE_COMPILE", "10");
        },
        ..Options::default()
    }) else {
        return;
    };
    let run_in = |vm| {
        let (status, said) = Guest::spawn(command(&back_end, vm, "kept plans")).end();
        let has_run = status.success() && said.contains("1 passed");
        assert!(has_run, "{status}: {said}");
        kept_plans(cache.path())
    };
    let first = run_in(0);
    assert!(!first.is_empty());
    assert_eq!(run_in(0), first);

    // Other VMs have their own, ...
    let both = run_in(1);
    let others: Vec<_> = both
        .keys()
        .filter(|path| !first.contains_key(*path))
        .collect();
    assert_eq!(others.len(), first.len());
    // ... which are no plans for this one. Neither are parts of a text.
    let files: Vec<_> = first.keys().collect();
    for (file, other) in files.iter().zip(&others) {
        assert_eq!(file.file_name(), other.file_name());
    }
    fs::copy(others[0], files[0]).unwrap();
    for file in &files[1..] {
        let text = fs::read(file).unwrap();
        fs::write(file, &text[..text.len() / 2]).unwrap();
    }
    let replaced = run_in(0);
    assert!(replaced.keys().eq(both.keys()));
    assert!(files.iter().all(|file| replaced[*file] != first[*file]));
    assert_eq!(run_in(0), replaced);
}

#[test]
fn descriptors_are_told_back_and_wrong_ones_are_refused() {
    runs("refusals");
}

#[test]
fn settings_are_read_back_and_invalid_handles_are_refused() {
    runs("settings");
}

#[test]
fn wrong_sizes_are_refused_before_and_after_good_ones() {
    runs("sizes");
}

#[test]
fn matrices_and_vectors_are_copied_element_by_element() {
    runs("transfers");
}

#[test]
fn products_and_copies_keep_the_order_of_their_stream() {
    runs("order");
}

#[test]
fn traced_work_leads_to_its_call_and_to_the_programs_number() {
    runs("traces");
}

#[test]
fn kernels_of_graphs_are_traced_one_by_one() {
    runs("traces of graphs");
}

#[test]
fn kernels_of_libraries_are_traced() {
    runs("traces of libraries");
}

/// Without a profiler the worker submits such launches as graphs.
#[test]
fn each_launch_of_a_crowd_is_traced() {
    runs("traces of crowds");
}

#[test]
fn without_the_hosts_cupti_only_calls_are_traced() {
    if libraries().is_none() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let Some(back_end) = start(&empty.path().display().to_string()) else {
        return;
    };
    run(&back_end, "traces without");
}

#[test]
fn without_the_operators_permission_only_calls_are_traced() {
    let Some(libraries) = libraries() else { return };
    let Some(back_end) = start_with(&libraries, &["--libraries-traces=false"]) else {
        return;
    };
    run(&back_end, "traces without");
}

/// CUPTI has device memory of its own, which counts.
#[test]
fn traces_need_room_within_the_limit() {
    // On a GPU a context alone may take more than the limit of this test.
    let Some(libraries) = libraries().filter(|_| !on_gpu()) else {
        return;
    };
    let Some(back_end) = BackEnd::start_with(&Options {
        config: Some(&policy(&libraries, 48)),
        ..Options::default()
    }) else {
        return;
    };
    run(&back_end, "traces limit");
}

/// The libraries read them in the worker, which has the service's environment.
#[test]
fn variables_of_a_program_reach_the_libraries_but_not_other_programs() {
    let Some(back_end) = libraries().and_then(|libraries| start(&libraries)) else {
        return;
    };
    let run_with = |value: Option<&str>| {
        let mut command = command(&back_end, 0, "tf32");
        command.env_remove("NVIDIA_TF32_OVERRIDE");
        if let Some(value) = value {
            command.env("NVIDIA_TF32_OVERRIDE", value);
        }
        let (status, said) = Guest::spawn(command).end();
        assert!(
            status.success() && said.contains("1 passed"),
            "{value:?}: {status}: {said}"
        );
        said
    };
    run_with(None);
    run_with(Some("0"));
    run_with(None);
    let said = run_with(Some("../0"));
    assert!(
        said.contains("NVIDIA_TF32_OVERRIDE has no effect"),
        "{said}"
    );
}

#[test]
fn handles_work_in_the_green_contexts_of_their_primary_one() {
    runs("green");
}

#[test]
fn captured_calls_are_done_by_each_launch_of_the_graph() {
    runs("captures");
}

#[test]
fn a_captured_graph_has_a_workspace_if_its_handle_has_none() {
    runs("captures-workspaces");
}

#[test]
fn work_that_a_capture_cannot_record_ends_it_and_is_not_done() {
    runs("captures-wrong");
}

#[test]
fn dense_systems_are_solved_in_their_stream() {
    runs("dense systems");
}

#[test]
fn dense_decompositions_give_values_at_host_addresses() {
    runs("dense values");
}

#[test]
fn solvers_refuse_objects_of_other_classes_and_invalid_sizes() {
    runs("dense wrong");
}

#[test]
fn sparse_products_are_those_of_their_descriptors() {
    runs("sparse products");
}

#[test]
fn settings_of_sparse_descriptors_are_read_back() {
    runs("sparse values");
}

#[test]
fn sparse_descriptors_of_other_classes_and_ended_ones_are_refused() {
    runs("sparse wrong");
}

#[test]
fn structured_products_are_those_of_their_descriptors() {
    runs("structured products");
}

#[test]
fn a_search_changes_its_plan_and_its_selection() {
    runs("structured search");
}

#[test]
fn structured_plans_that_a_program_loses_make_room_for_others() {
    runs("structured lost");
}

#[test]
fn structured_matrices_are_pruned_checked_and_compressed() {
    runs("structured pruning");
}

#[test]
fn invalid_and_ended_structured_descriptors_are_refused() {
    runs("structured wrong");
}

#[test]
fn jpegs_are_decoded_into_device_memory() {
    runs("jpegs decoding");
}

#[test]
fn jpegs_are_decoded_step_by_step_whatever_ends_first() {
    runs("jpegs steps");
}

#[test]
fn batches_of_jpegs_are_as_long_as_their_state_was_told() {
    runs("jpegs batches");
}

#[test]
fn images_are_encoded_and_jpegs_of_any_length_travel() {
    runs("jpegs encoding");
}

#[test]
fn the_memory_of_jpegs_counts_and_ends_with_its_context() {
    let Some(libraries) = libraries() else { return };
    let policy = policy(&libraries, limit(256));
    let back_end = BackEnd::start_with(&Options {
        config: Some(&policy),
        ..Options::default()
    });
    let Some(back_end) = back_end else { return };
    run(&back_end, "jpegs limit");
}

/// A posted call that fails on the GPU is reported when the process synchronises, and costs only this process.
#[test]
fn a_fault_of_a_posted_call_costs_its_process_alone() {
    let Some(back_end) = libraries().and_then(|libraries| start(&libraries)) else {
        return;
    };
    run(&back_end, "fault");
    run(&back_end, "order");
}

/// A guest's user can list the libraries and their versions.
#[test]
fn the_wrapper_lists_the_libraries_of_the_host() {
    let Some(back_end) = libraries().and_then(|libraries| start(&libraries)) else {
        return;
    };
    let mut command = back_end.command(0, &back_end.staged("bin/gpgpu-run"));
    command.args(["--check", "/bin/true"]);
    let (_, said) = Guest::spawn(command).end();
    for name in ["libcublas: ", "libcusparselt: "] {
        let line = said.lines().find_map(|line| line.split_once(name));
        let (_, version) = line.unwrap_or_else(|| panic!("{said}"));
        let parts: Vec<Result<u32, _>> = version.split('.').map(str::parse).collect();
        assert!(
            parts.len() == 3 && parts.iter().all(Result::is_ok),
            "{said}"
        );
    }
}

#[test]
fn without_a_library_its_calls_fail_and_all_else_works() {
    if libraries().is_none() {
        return;
    }
    let empty = tempfile::tempdir().unwrap();
    let Some(back_end) = start(&empty.path().display().to_string()) else {
        return;
    };
    run(&back_end, "without");
    run(&back_end, "structured without");
    let line = back_end.log.find(0, "libcublas.so").unwrap();
    for said in ["is in none of --libraries", "nvidia-cublas"] {
        assert!(line.contains(said), "{line}");
    }
}

/// The first VM's charge, from the metrics at a socket.
fn charged(socket: &Path) -> u64 {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let of_vm = page
        .lines()
        .filter(|line| line.starts_with("virtio_gpgpu_memory_bytes{") && line.contains("\"vm0\""));
    let values = of_vm.map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap());
    values.sum::<f64>() as u64
}

/// A handle is charged to its VM until it is destroyed.
#[test]
fn a_handle_needs_room_within_the_limit_and_gives_it_back() {
    let Some(libraries) = libraries() else { return };
    let policy = policy(&libraries, limit(256));
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("metrics");
    let metrics = format!("unix:{}", socket.display());
    let back_end = BackEnd::start_with(&Options {
        config: Some(&policy),
        arguments: &["--metrics", &metrics],
        prepare: &|command| {
            command.env("VIRTIO_GPGPU_SOFTWARE_CONTEXT", "31");
        },
        ..Options::default()
    });
    let Some(back_end) = back_end else { return };
    let mut guest = Guest::spawn(command(&back_end, 0, "limit"));
    guest.wait_for("freed");
    let before = charged(&socket);
    assert!(guest.ask("make").contains("made"));
    assert_eq!(charged(&socket), before + HANDLE);
    assert!(guest.ask("destroy").contains("destroyed"));
    assert_eq!(charged(&socket), before);
    // A process also leaves no objects behind that it did not destroy.
    assert!(guest.ask("make").contains("made"));
    let (status, said) = guest.end();
    assert!(status.success(), "{status}: {said}");
    wait_for("the charge of a process that ended", || {
        (charged(&socket) == 0).then_some(())
    });
}

#[test]
fn a_handle_with_the_per_thread_stream_follows_the_calling_thread() {
    runs("own streams");
}

#[test]
fn a_librarys_version_is_known_without_cuda_and_before_a_fork() {
    runs("questions");
}

#[test]
fn numbers_for_the_host_concern_no_context_and_no_capture() {
    runs("host numbers");
}

#[test]
fn transforms_of_cudarc_give_the_native_results() {
    runs("transforms");
}

#[test]
fn invalid_plans_and_sizes_of_transforms_are_refused() {
    runs("transforms-settings");
}

#[test]
fn a_plan_destroyed_during_its_execution_affects_no_other() {
    let Some(back_end) = libraries().and_then(|libraries| start(&libraries)) else {
        return;
    };
    run(&back_end, "transforms-race");
    run(&back_end, "transforms");
}

#[test]
fn a_plans_work_area_counts_as_the_guests_memory() {
    let Some(libraries) = libraries() else { return };
    let policy = policy(&libraries, limit(1024));
    let back_end = BackEnd::start_with(&Options {
        config: Some(&policy),
        ..Options::default()
    });
    if let Some(back_end) = back_end {
        run(&back_end, "transforms-memory");
    }
}

#[test]
fn random_numbers_of_cudarc_are_distributed_as_asked_for_and_come_again() {
    runs("random");
}

#[test]
fn random_numbers_and_tables_reach_the_program() {
    let Some(libraries) = libraries() else { return };
    let Some(back_end) = start(&libraries) else {
        return;
    };
    // Under a name that no guest library has.
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("libhosts.so");
    let mut files = libraries
        .split(':')
        .map(|directory| Path::new(directory).join("libcurand.so.10"));
    let file = files.find(|file| file.exists());
    fs::copy(file.expect("cuRAND in one of the directories"), &copy).unwrap();
    let mut command = command(&back_end, 0, "random-symbols");
    command.env(random::HOSTS, &copy);
    let (status, said) = Guest::spawn(command).end();
    assert!(
        status.success() && said.contains("1 passed"),
        "{status}: {said}"
    );
}
