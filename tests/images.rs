// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The charges of images against a VM's memory limit: every form of image, by every way into a context.
//!
//! The requests are made by a guest that sends its worker commands that no library sends, so only the host's own
//! accounting applies. `cargo xtask test` names the directory with the software GPU in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU, and compare charges with
//! the driver's use.

mod common;
// Some of it is only for the tests of hostile guests.
#[allow(dead_code)]
#[path = "common/client.rs"]
mod client;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
// Some of it is only for the tests of isolation.
#[path = "images/forms.rs"]
mod forms;
#[allow(dead_code)]
#[path = "common/hosts/installed.rs"]
mod host;

use gpgpu_protocol::{
    api::{
        Context, Function, Kernel, LaunchConfig, Library, Module, Object, Stream, object_id,
        request,
    },
    codec::Blob,
    cuda::*,
};

use client::Client;
use guest::{Guest, Vmm};
use host::{BackEnd, Options, on_gpu};

const MIB: u64 = 1 << 20;

/// The size of the variable in most images.
const VARIABLE: u64 = 64 * MIB;

/// The unit of charges, and of the driver's allocations.
const STEP: u64 = 2 * MIB;

/// The memory of a context on the software GPU, in MiB.
const CONTEXT: u64 = 31;

fn limit() -> u64 {
    (if on_gpu() { 6144 } else { 512 }) * MIB
}

/// A back end whose VMs have a limit.
fn start() -> Option<BackEnd> {
    let vm = |number: usize| {
        let limit = limit();
        format!(
            "[[vm]]\nname = \"vm{number}\"\nsocket = \"DIR/vm{number}\"\nmemory = \"{limit}B\"\n"
        )
    };
    BackEnd::start_with(&Options {
        config: Some(&(vm(0) + &vm(1))),
        prepare: &|command| {
            command
                // The next warm worker would use device memory while a test measures it.
                .args(["--warm-workers", "0"])
                .env("VIRTIO_GPGPU_SOFTWARE_CONTEXT", CONTEXT.to_string())
                .env("VIRTIO_GPGPU_SOFTWARE_DEVICES", "2");
        },
        ..Options::default()
    })
}

fn boot(back_end: &BackEnd) -> Guest {
    Guest::boot(&back_end.socket(0), Vmm::qemu())
}

/// An image with a kernel, and a variable that is larger than the rest of the image.
fn image() -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible.global.align 8 .b8 big[{VARIABLE}];\n\
         .visible .entry k() {{ .reg .b64 %rd<3>; mov.u64 %rd1, big; st.global.u8 [%rd1], 1; ret; }}\n"
    )
}

/// The free memory on a context's device for a client of the limited VM, in bytes.
fn free(client: &mut Client<'_>, context: u64) -> u64 {
    let info = request::cuMemGetInfo_v2 {
        free: true,
        total: true,
    };
    client.works(&info, context, &[], 0).0.free as u64
}

fn create_context(client: &mut Client<'_>, id: u64, dev: i32) -> CUresult {
    let create = request::cuCtxCreate_v2 {
        pctx: id,
        flags: 0,
        dev,
    };
    client.call(&create, 0, &[], 0).0
}

fn load_library(client: &mut Client<'_>, serial: u64, context: u64) -> (u64, CUresult) {
    let library = object_id::<Library>(serial);
    let load = request::cuLibraryLoadData {
        library,
        image: 0,
        options: Vec::new(),
        eager: false,
        log: false,
    };
    let code = client.call(&load, context, image().as_bytes(), 0).0;
    (library, code)
}

fn get_kernel(client: &mut Client<'_>, library: u64, serial: u64, context: u64) -> u64 {
    let kernel = object_id::<Kernel>(serial);
    let name = "k".to_owned();
    let get = request::cuLibraryGetKernel {
        kernel,
        library,
        name,
        info: false,
    };
    client.works(&get, context, &[], 0);
    kernel
}

fn one_thread(stream: u64) -> LaunchConfig {
    LaunchConfig {
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x: 1,
        block_y: 1,
        block_z: 1,
        shared_bytes: 0,
        stream,
        attributes: Vec::new(),
    }
}

/// The ways in which the driver loads a library into the current context.
const WAYS: &[&str] = &["global", "module", "function", "occupancy", "launch"];

/// Uses a library, and a kernel of it, in a context.
fn place(
    client: &mut Client<'_>,
    way: &str,
    (library, kernel): (u64, u64),
    context: u64,
    serial: u64,
) -> CUresult {
    let name = "big".to_owned();
    match way {
        "global" => {
            let get = request::cuLibraryGetGlobal {
                library,
                name,
                dptr: true,
                bytes: true,
            };
            client.call(&get, context, &[], 0).0
        }
        "module" => {
            let module = object_id::<Module>(serial);
            let get = request::cuLibraryGetModule { module, library };
            client.call(&get, context, &[], 0).0
        }
        "function" => {
            let function = object_id::<Function>(serial);
            let get = request::cuKernelGetFunction { function, kernel };
            client.call(&get, context, &[], 0).0
        }
        "occupancy" => {
            let ask = request::cuOccupancyMaxActiveBlocksPerMultiprocessor {
                numBlocks: true,
                func: kernel,
                blockSize: 32,
                dynamicSMemSize: 0,
            };
            client.call(&ask, context, &[], 0).0
        }
        _ => {
            let launch = request::cuLaunchKernelEx {
                func: kernel,
                config: one_thread(0),
                params: Blob(Vec::new()),
            };
            client.call(&launch, context, &[], 0).0
        }
    }
}

/// Whether this is the charge of an image besides its variable.
fn is_one_image(bytes: u64) -> bool {
    (VARIABLE..VARIABLE + 4 * MIB).contains(&bytes)
}

#[test]
fn a_library_counts_in_each_context_from_its_first_use_there() {
    let Some(back_end) = start() else { return };
    let mut guest = boot(&back_end);
    let mut client = Client::open(&mut guest);
    let first = client.context();
    let before = free(&mut client, first);
    let (library, code) = load_library(&mut client, 1, first);
    assert_eq!(code, CUDA_SUCCESS);
    let kernel = get_kernel(&mut client, library, 1, first);
    assert!(is_one_image(before - free(&mut client, first)));
    for (way, serial) in WAYS.iter().zip(10..) {
        // It is already in the first context.
        assert_eq!(
            place(&mut client, way, (library, kernel), first, 2 * serial),
            0
        );
        assert!(is_one_image(before - free(&mut client, first)), "{way}");
        let other = object_id::<Context>(serial);
        assert_eq!(create_context(&mut client, other, 0), CUDA_SUCCESS);
        let with_context = free(&mut client, other);
        for _ in 0..2 {
            let code = place(&mut client, way, (library, kernel), other, 2 * serial + 1);
            // The second time, an object with this number already exists.
            assert!(
                code == CUDA_SUCCESS || code == CUDA_ERROR_INVALID_VALUE,
                "{way}: {code}"
            );
            let taken = with_context - free(&mut client, other);
            assert!(is_one_image(taken), "{way}: {taken}");
        }
        // It is returned with the context.
        let destroy = request::cuCtxDestroy_v2 { ctx: other };
        client.works(&destroy, 0, &[], 0);
        assert!(is_one_image(before - free(&mut client, first)), "{way}");
    }
    let unload = request::cuLibraryUnload { library };
    client.works(&unload, first, &[], 0);
    assert_eq!(free(&mut client, first), before);
}

#[test]
fn a_library_that_has_no_room_in_a_context_is_not_placed_there() {
    let Some(back_end) = start() else { return };
    let mut guest = boot(&back_end);
    let mut client = Client::open(&mut guest);
    let first = client.context();
    let (library, code) = load_library(&mut client, 1, first);
    assert_eq!(code, CUDA_SUCCESS);
    let kernel = get_kernel(&mut client, library, 1, first);
    let other = object_id::<Context>(2);
    assert_eq!(create_context(&mut client, other, 0), CUDA_SUCCESS);
    // That only takes functions, as in CUDA, so it does not load the library into a context.
    let load = request::cuFuncLoad { function: kernel };
    let code = client.call(&load, other, &[], 0).0;
    assert_eq!(code, CUDA_ERROR_INVALID_HANDLE);
    let room = free(&mut client, other);
    let rest = client.alloc((room - VARIABLE / 2) as usize, first);
    let left = free(&mut client, other);
    for (way, serial) in WAYS.iter().zip(10..) {
        let code = place(&mut client, way, (library, kernel), other, serial);
        assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY, "{way}");
        assert_eq!(free(&mut client, other), left, "{way}");
    }
    // A stream of that context does not circumvent the limit.
    let stream = object_id::<Stream>(3);
    let create = request::cuStreamCreate {
        phStream: stream,
        Flags: 1,
    };
    client.works(&create, other, &[], 0);
    let launch = request::cuLaunchKernelEx {
        func: kernel,
        config: one_thread(stream),
        params: Blob(Vec::new()),
    };
    let code = client.call(&launch, first, &[], 0).0;
    assert_ne!(code, CUDA_SUCCESS);
    // Nor does another library, and a refused one leaves nothing behind.
    let (_, code) = load_library(&mut client, 9, other);
    assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY);
    let free_memory = request::cuMemFree_v2 { dptr: rest };
    client.works(&free_memory, first, &[], 0);
    for (way, serial) in WAYS.iter().zip(10..) {
        let code = place(&mut client, way, (library, kernel), other, serial);
        assert_eq!(code, CUDA_SUCCESS, "{way}");
    }
}

#[test]
fn a_library_counts_on_the_gpu_whose_context_it_is_placed_in() {
    let Some(back_end) = start() else { return };
    let mut guest = boot(&back_end);
    let mut client = Client::open(&mut guest);
    let first = client.context();
    let second = object_id::<Context>(2);
    if create_context(&mut client, second, 1) == CUDA_ERROR_INVALID_DEVICE {
        eprintln!("skipped: there is one GPU");
        return;
    }
    let before = [first, second].map(|context| free(&mut client, context));
    // A library that was loaded without a context is in none.
    let (library, code) = load_library(&mut client, 1, 0);
    assert_eq!(code, CUDA_SUCCESS);
    let taken = |client: &mut Client<'_>| {
        [0, 1].map(|gpu| before[gpu] - free(client, [first, second][gpu]))
    };
    assert_eq!(taken(&mut client), [0, 0]);
    assert_eq!(place(&mut client, "global", (library, 0), second, 5), 0);
    let [on_first, on_second] = taken(&mut client);
    assert!(
        on_first == 0 && is_one_image(on_second),
        "{on_first} {on_second}"
    );
    assert_eq!(place(&mut client, "module", (library, 0), first, 6), 0);
    assert!(taken(&mut client).into_iter().all(is_one_image));
    let unload = request::cuLibraryUnload { library };
    client.works(&unload, first, &[], 0);
    assert_eq!(taken(&mut client), [0, 0]);
}

#[test]
fn a_number_of_the_guests_choosing_gives_nothing_back() {
    let Some(back_end) = start() else { return };
    let mut guest = boot(&back_end);
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let before = free(&mut client, context);
    let heap = request::cuCtxSetLimit {
        limit: CU_LIMIT_MALLOC_HEAP_SIZE,
        value: (72 * MIB) as usize,
    };
    client.works(&heap, context, &[], 0);
    let charged = before - free(&mut client, context);
    assert_eq!(charged, 64 * MIB);
    for limit in [
        CU_LIMIT_STACK_SIZE,
        CU_LIMIT_PRINTF_FIFO_SIZE,
        CU_LIMIT_MALLOC_HEAP_SIZE,
    ] {
        let other = context | u64::from(limit + 1) << 56;
        assert_eq!(other as u8, Context::KIND);
        if create_context(&mut client, other, 0) == CUDA_SUCCESS {
            let destroy = request::cuCtxDestroy_v2 { ctx: other };
            client.works(&destroy, 0, &[], 0);
        }
        assert_eq!(before - free(&mut client, context), charged, "{other:#x}");
    }
}

/// A module of each form: its charge, and the driver's use.
#[test]
fn no_form_of_an_image_takes_more_than_it_is_charged() {
    let Some(back_end) = start() else { return };
    let mut guest = boot(&back_end);
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let load = |client: &mut Client<'_>, serial: u64, image: &[u8]| {
        let module = object_id::<Module>(serial);
        let load = request::cuModuleLoadDataEx {
            module,
            image: 0,
            options: Vec::new(),
            eager: true,
            log: false,
        };
        (module, client.call(&load, context, image, 0).0)
    };
    // The memory that the driver allocates once for all images.
    let (_, code) = load(&mut client, 1, image().as_bytes());
    assert_eq!(code, CUDA_SUCCESS);
    // Large enough to be noticed among the driver's other allocations.
    let size = if on_gpu() { VARIABLE } else { 8 * MIB };
    let (mut worst, mut loaded) = (0, 0);
    for (form, serial) in forms::generate(1, size).iter().zip(2..) {
        let (before, outside) = (free(&mut client, context), back_end.device_memory());
        let (module, code) = load(&mut client, serial, form.as_bytes());
        let text = form.replace('\n', "\\n");
        if code != CUDA_SUCCESS {
            // An image that the driver refuses needs no charge, and leaves none.
            println!("{code}: {text}");
            assert_eq!(free(&mut client, context), before, "{text}");
            continue;
        }
        let charged = before - free(&mut client, context);
        let taken = back_end.device_memory().saturating_sub(outside);
        assert!(charged + STEP >= size, "{charged} are charged for {text}");
        let more = taken.saturating_sub(charged);
        assert!(
            more <= STEP,
            "{more} more than {charged} are taken for {text}"
        );
        worst = worst.max(more);
        loaded += 1;
        let unload = request::cuModuleUnload { hmod: module };
        client.works(&unload, context, &[], 0);
        assert_eq!(free(&mut client, context), before, "{text}");
    }
    println!("{loaded} forms are loaded, none takes more than {worst} bytes beyond its charge");
    assert!(loaded >= 40, "{loaded}");
}
