// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of NVIDIA's libraries in forms that no guest library sends, while another VM computes with the same library.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    thread,
    time::Instant,
};

use gpgpu_protocol::{
    api::{Context, Event, MultiprocessorSplit, Stream, object_id, request},
    codec::{Blob, Few, Reader, Writer},
    cuda::*,
    layout::{StreamAnswer, status as device},
    libraries::{
        Class, Function, Kind, Library, SUCCESS,
        call::{self, PointerMode},
        cublas::status,
        functions,
    },
};
use zerocopy::FromBytes;

use crate::{
    client::{Client, command, raw_command},
    common::LIMIT,
    host::{Host, Random, on_gpu},
    most_lines, vmm,
};

#[path = "networks.rs"]
mod networks;

/// Rows and columns of the matrices.
const N: u64 = 16;
/// The size of an allocation, which has room for a matrix.
pub const BYTES: usize = 4096;
/// Scalars, as the numbers that replace their addresses.
const ONE: u64 = 0x3f80_0000;
/// -0.0, because 0 is NULL.
const ZERO: u64 = 0x8000_0000;

/// A host whose workers have a library to load; `None` if there is none.
pub fn start(policy: &str) -> Option<Host> {
    let stage = std::env::var_os("VIRTIO_GPGPU_STAGE").map(std::path::PathBuf::from);
    let is_there = |stage: &std::path::Path| stage.join("software-gpu/libcublas.so.13").exists();
    if on_gpu() || !stage.as_deref().is_some_and(is_there) {
        eprintln!("skipped: there is no stand-in for cuBLAS; run cargo xtask test");
        return None;
    }
    Host::with(policy, 1)
}

/// The function with this name.
pub fn find(name: &str) -> &'static Function {
    let mut all = functions();
    all.find(|of| of.operation.name == name).unwrap()
}

/// The arguments of a call. For a host address, the number itself is the value.
pub fn written(of: &Function, words: &[u64], mode: PointerMode) -> Option<Vec<u8>> {
    let mut writer = Writer::new();
    let read = |address: u64, to: &mut [u8]| {
        for (byte, from) in to.iter_mut().zip(address.to_le_bytes().into_iter().cycle()) {
            *byte = from;
        }
    };
    call::put(of, words, mode, &mut writer, read).ok()?;
    Some(writer.into_bytes())
}

fn call_of(name: &str, words: &[u64], mode: PointerMode, context: u64) -> Vec<u8> {
    let of = find(name);
    let arguments = written(of, words, mode).unwrap();
    raw_command(of.operation.op, context, &arguments)
}

/// The result of a command: the device's status, the code, and the library's status if there is one.
pub fn send(client: &mut Client<'_>, bytes: &[u8]) -> (u32, CUresult, Option<u32>) {
    let (said, answer, _) = client.raw(bytes, 4096, &[], 0);
    let Ok((head, reply)) = StreamAnswer::read_from_prefix(&answer) else {
        return (said, CUDA_ERROR_UNKNOWN, None);
    };
    let mut reader = Reader::new(reply);
    let status = reader.get::<i32>().ok().map(|status| status as u32);
    if status.is_some() {
        assert!(reader.get::<Few<Blob, 16>>().is_ok());
    }
    (said, head.result.get(), status)
}

/// Sends streams in any order without waiting, with room for this number of bytes in each answer. The device answers
/// all.
pub fn in_any_order(
    client: &mut Client<'_>,
    mut streams: Vec<Vec<u8>>,
    answer: u32,
    random: &mut Random,
    round: u64,
) {
    for at in (1..streams.len()).rev() {
        streams.swap(at, random.below(at as u64 + 1) as usize);
    }
    client.forget();
    let posted: Vec<_> = (streams.iter())
        .map(|stream| client.post(stream, answer))
        .collect();
    for head in posted {
        assert_eq!(client.wait(head), device::OK, "round {round}");
    }
    client.forget();
}

/// The library's status of a call that the worker executes.
fn blas(client: &mut Client<'_>, name: &str, words: &[u64], context: u64) -> u32 {
    let bytes = call_of(name, words, PointerMode::Host, context);
    let (said, _, status) = send(client, &bytes);
    assert_eq!(said, device::OK, "{name}");
    status.unwrap_or_else(|| panic!("{name} has no reply"))
}

pub fn create(client: &mut Client<'_>, serial: u64, context: u64) -> u64 {
    let id = Class::CublasHandle.id(serial);
    let made = blas(client, "cublasCreate_v2", &[id], context);
    assert_eq!(made, status::SUCCESS);
    id
}

/// A product of square single-precision matrices, none of which is transposed.
pub fn product(handle: u64, [a, b, c]: [u64; 3]) -> [u64; 14] {
    [handle, 0, 0, N, N, N, ONE, a, N, b, N, ZERO, c, N]
}

fn multiply(client: &mut Client<'_>, handle: u64, at: [u64; 3], context: u64) -> u32 {
    blas(client, "cublasSgemm_v2", &product(handle, at), context)
}

/// Checks that a client computes the right result.
pub fn check_product(client: &mut Client<'_>, handle: u64, at: [u64; 3], context: u64, seed: u64) {
    let n = N as usize;
    let number = |seed: u64, at: usize| ((at as u64 * 7 + seed) % 9) as f32 - 4.0;
    let [a, b] = [seed, seed + 3].map(|seed| (0..n * n).map(|at| number(seed, at)).collect());
    let factors: [Vec<f32>; 2] = [a, b];
    for (values, dst) in factors.iter().zip(at) {
        let copy = request::gpgpuCopyIn {
            dst,
            hStream: 0,
            synchronous: true,
        };
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        client.works(&copy, context, &bytes, 0);
    }
    let done = multiply(client, handle, at, context);
    assert_eq!(done, status::SUCCESS);
    let copy = request::gpgpuCopyOut {
        src: at[2],
        hStream: 0,
    };
    let (_, got) = client.works(&copy, context, &[], N * N * 4);
    let [a, b] = &factors;
    for (place, bytes) in got.chunks_exact(4).enumerate() {
        let (row, column) = (place % n, place / n);
        let right: f32 = (0..n).map(|k| a[row + k * n] * b[k + column * n]).sum();
        let got = f32::from_le_bytes(bytes.try_into().unwrap());
        assert_eq!(got, right, "row {row}, column {column}");
    }
}

/// Calls `attack` while the other VM multiplies; that VM also multiplies before and after it.
pub fn beside(host: &Host, attack: impl FnOnce()) {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut guest = host.boot(1, vmm());
            let mut client = Client::open(&mut guest);
            let context = client.context();
            let handle = create(&mut client, 1, context);
            let at = [(); 3].map(|()| client.alloc(BYTES, context));
            while !stop.load(Relaxed) {
                let seed = rounds.fetch_add(1, Relaxed) as u64;
                check_product(&mut client, handle, at, context, seed);
            }
            client.close();
        });
        let _stop = Stop(&stop);
        let goes_on = || {
            let (from, deadline) = (rounds.load(Relaxed), Instant::now() + LIMIT);
            while rounds.load(Relaxed) < from + 3 {
                assert!(!neighbour.is_finished(), "the neighbour has failed");
                assert!(Instant::now() < deadline, "the neighbour does not get on");
                thread::yield_now();
            }
        };
        goes_on();
        attack();
        goes_on();
    });
}

/// Ids of other kinds, of other contexts, used twice, or destroyed.
#[test]
fn pitfall_63_invalid_handles_are_refused() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let other = client.create_context(2, 0);
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let (stream, foreign) = (client.stream(1, context), client.stream(2, other));
        let handle = create(&mut client, 1, context);

        let never = Class::CublasHandle.id(77);
        for none in [stream, context, 0, 1, 2, never, handle ^ 0x10, u64::MAX] {
            let said = multiply(&mut client, none, at, context);
            assert_eq!(said, status::NOT_INITIALIZED, "{none:#x}");
            for (name, words) in [
                ("cublasDestroy_v2", &[none][..]),
                ("cublasSetStream_v2", &[none, stream]),
                ("cublasSetPointerMode_v2", &[none, 1]),
                ("cublasSetMathMode", &[none, 1]),
                ("cublasGetVersion_v2", &[none, 1]),
            ] {
                let said = blas(&mut client, name, words, context);
                assert_eq!(said, status::NOT_INITIALIZED, "{name} {none:#x}");
            }
        }
        // No new handle has the id of another object or of another kind, or is in no context.
        for id in [handle, stream, object_id::<Stream>(9), 0, 1, u64::MAX] {
            let said = blas(&mut client, "cublasCreate_v2", &[id], context);
            assert_eq!(said, status::INVALID_VALUE, "{id:#x}");
        }
        for none in [0, stream, object_id::<Context>(9)] {
            let said = blas(&mut client, "cublasCreate_v2", &[never], none);
            assert_ne!(said, status::SUCCESS, "in {none:#x}");
        }
        // The stream must be in the handle's context, whatever the header says.
        for none in [foreign, handle, context, object_id::<Event>(1), 7, u64::MAX] {
            for header in [context, other, 0] {
                let words = [handle, none];
                let said = blas(&mut client, "cublasSetStream_v2", &words, header);
                assert_ne!(said, status::SUCCESS, "{none:#x}");
            }
        }
        check_product(&mut client, handle, at, context, 1);

        // A stream that is destroyed while a handle uses it.
        let words = [handle, stream];
        let said = blas(&mut client, "cublasSetStream_v2", &words, context);
        assert_eq!(said, status::SUCCESS);
        let end = request::cuStreamDestroy_v2 { hStream: stream };
        client.works(&end, context, &[], 0);
        assert_ne!(
            multiply(&mut client, handle, at, context),
            status::SUCCESS,
            "its stream is gone"
        );
        // Another stream with its id is not the library's.
        assert_eq!(client.stream(1, context), stream);
        assert_ne!(
            multiply(&mut client, handle, at, context),
            status::SUCCESS,
            "it has the stream that is gone"
        );
        let said = blas(&mut client, "cublasSetStream_v2", &[handle, 0], context);
        assert_eq!(said, status::SUCCESS);
        check_product(&mut client, handle, at, context, 2);

        // A context that is destroyed while it has a handle, and an id that is free again.
        let far = create(&mut client, 2, other);
        let end = request::cuCtxDestroy_v2 { ctx: other };
        client.works(&end, 0, &[], 0);
        for header in [context, other, 0] {
            let said = multiply(&mut client, far, at, header);
            assert_eq!(said, status::NOT_INITIALIZED);
            let said = blas(&mut client, "cublasDestroy_v2", &[far], header);
            assert_eq!(said, status::NOT_INITIALIZED);
        }
        assert_eq!(create(&mut client, 2, context), far);
        check_product(&mut client, far, at, context, 3);
        client.close();
    });
}

/// A handle that is destroyed with its green context leaves its memory in the primary one, and so its charge: no other
/// handle with its id may return it.
#[test]
fn pitfall_69_a_green_context_does_not_end_the_charge_of_a_handle() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let green = object_id::<Context>(7);
        let split = MultiprocessorSplit {
            green: 0,
            groups: 1,
            minimum: 2,
            flags: 0,
        };
        let make = request::gpgpuGreenCtxCreate {
            green,
            dev: 0,
            split,
            groups: vec![0],
            flags: 1,
        };
        client.works(&make, context, &[], 0);
        let handle = create(&mut client, 1, green);
        let end = request::gpgpuGreenCtxDestroy { green };
        client.works(&end, context, &[], 0);
        let said = multiply(&mut client, handle, at, context);
        assert_eq!(said, status::NOT_INITIALIZED);
        let said = blas(&mut client, "cublasCreate_v2", &[handle], context);
        assert_ne!(said, status::SUCCESS, "it would be charged and freed twice");
        let other = create(&mut client, 2, context);
        check_product(&mut client, other, at, context, 1);
        client.close();
    });
}

/// Scalars and results at places where the library does not access them, and requests with the wrong length
/// (GPGPU-DEV-70).
#[test]
fn pitfall_81_scalars_are_where_the_handles_mode_says() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let handle = create(&mut client, 1, context);
        let mut on_device = product(handle, at);
        (on_device[6], on_device[11]) = (at[0], at[1]);
        let dot = [handle, N, at[0], 1, at[1], 1, at[2]];
        let calls = [("cublasSgemm_v2", &on_device[..]), ("cublasSdot_v2", &dot)];
        let modes = [PointerMode::Host, PointerMode::Device];
        for (number, own) in [(0, 0), (1, 1), (0, 0)] {
            let words = [handle, number];
            let said = blas(&mut client, "cublasSetPointerMode_v2", &words, context);
            assert_eq!(said, status::SUCCESS);
            for (name, words) in calls {
                for (mode, sent) in modes.into_iter().enumerate() {
                    let bytes = call_of(name, words, sent, context);
                    let (said, _, got) = send(&mut client, &bytes);
                    let right = match mode == own {
                        true => status::SUCCESS,
                        false => status::INVALID_VALUE,
                    };
                    assert_eq!((said, got), (device::OK, Some(right)), "{name} {sent:?}");
                }
            }
        }
        let said = blas(
            &mut client,
            "cublasSetPointerMode_v2",
            &[handle, 2],
            context,
        );
        assert_eq!(said, status::INVALID_VALUE);

        let of = find("cublasSgemm_v2");
        let good = written(of, &product(handle, at), PointerMode::Host).unwrap();
        for length in 0..good.len() + 24 {
            let mut bytes = good.clone();
            bytes.resize(length, 0);
            let (said, code, _) = send(&mut client, &raw_command(of.operation.op, context, &bytes));
            let is_whole = length == good.len();
            let right = if is_whole {
                device::OK
            } else {
                device::MALFORMED
            };
            assert_eq!(said, right, "{length} bytes");
            assert_eq!(code == CUDA_SUCCESS, is_whole, "{length} bytes");
        }
        check_product(&mut client, handle, at, context, 1);
        client.close();
    });
}

/// An unlimited number of handles.
#[test]
fn pitfall_73_handles_are_bounded() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let most = 1 << 10;
        for serial in 0..most {
            create(&mut client, serial, context);
        }
        for serial in most..most + 50 {
            let id = Class::CublasHandle.id(serial);
            let said = blas(&mut client, "cublasCreate_v2", &[id], context);
            assert_eq!(said, status::ALLOC_FAILED);
        }
        let first = Class::CublasHandle.id(0);
        let said = blas(&mut client, "cublasDestroy_v2", &[first], context);
        assert_eq!(said, status::SUCCESS);
        let handle = create(&mut client, most, context);
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        check_product(&mut client, handle, at, context, 1);
        client.close();
    });
}

/// A thread of a guest destroys the handle, the stream or the context that other threads use, and several make one
/// handle.
#[test]
fn pitfall_63_a_handle_can_end_under_its_users() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let primary = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, primary));
        let mut random = Random(5);
        for round in 0..200 {
            let serial = 100 + round;
            let is_own = round % 4 == 0;
            let context = match is_own {
                true => client.create_context(serial, 0),
                false => primary,
            };
            let stream = client.stream(serial, context);
            let id = Class::CublasHandle.id(serial);
            let call = |name: &str, words: &[u64]| call_of(name, words, PointerMode::Host, context);
            let make = call("cublasCreate_v2", &[id]);
            let destroy = call("cublasDestroy_v2", &[id]);
            let mut streams = vec![
                // A stream with several commands of one thread.
                [
                    make.clone(),
                    call("cublasSetStream_v2", &[id, stream]),
                    call("cublasSgemm_v2", &product(id, at)),
                ]
                .concat(),
                call("cublasSgemm_v2", &product(id, at)),
                call("cublasSdot_v2", &[id, N, at[0], 1, at[1], 1, 1]),
                call("cublasSasum_v2", &[id, N, at[0], 1, 1]),
                call("cublasSetPointerMode_v2", &[id, 1]),
                call_of(
                    "cublasSdot_v2",
                    &[id, N, at[0], 1, at[1], 1, at[2]],
                    PointerMode::Device,
                    context,
                ),
                make,
                destroy.clone(),
                command(&request::cuStreamDestroy_v2 { hStream: stream }, context),
                destroy,
            ];
            if is_own {
                streams.push(command(&request::cuCtxDestroy_v2 { ctx: context }, 0));
            }
            in_any_order(&mut client, streams, 64, &mut random, round);
            // Clean up.
            send(&mut client, &call("cublasDestroy_v2", &[id]));
        }
        // A stale object is reported once.
        let sync = request::cuCtxSynchronize {};
        client.call(&sync, primary, &[], 0);
        let handle = create(&mut client, 1, primary);
        check_product(&mut client, handle, at, primary, 1);
        client.close();
    });
}

/// Makes an object of a class.
fn create_of(client: &mut Client<'_>, class: Class, serial: u64, context: u64) -> u64 {
    let id = class.id(serial);
    let made = match class {
        Class::CufftPlan => blas(client, "cufftCreate", &[id], context),
        // The type XORWOW.
        Class::CurandGenerator => blas(client, "curandCreateGenerator", &[id, 101], context),
        _ => blas(client, "cublasCreate_v2", &[id], context),
    };
    assert_eq!(made, status::SUCCESS, "{class:?}");
    id
}

/// Makes a plan's transform of 16 complex numbers, which needs a work area, and sets one.
fn make_transform(client: &mut Client<'_>, plan: u64, area: u64, context: u64) {
    let words = [plan, 16, 0x29, 1, 1];
    assert_eq!(blas(client, "cufftMakePlan1d", &words, context), 0);
    assert_eq!(blas(client, "cufftSetWorkArea", &[plan, area], context), 0);
}

/// Invalid plans and generators, unsupported transforms, and positions beyond the end of tables.
#[test]
fn pitfall_63_invalid_plans_and_generators_are_refused() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = client.alloc(BYTES, context);
        let plan = create_of(&mut client, Class::CufftPlan, 1, context);
        let generator = create_of(&mut client, Class::CurandGenerator, 1, context);
        let handle = create(&mut client, 1, context);

        let (invalid_plan, no_generator) = (1, 101);
        for none in [handle, context, 0, 1, plan ^ 0x10, u64::MAX] {
            let calls = [
                ("cufftXtExec", &[none, at, at, 1][..], invalid_plan),
                ("cufftMakePlan1d", &[none, 16, 0x29, 1, 1], invalid_plan),
                ("cufftSetWorkArea", &[none, at], invalid_plan),
                ("cufftDestroy", &[none], invalid_plan),
                ("curandGenerate", &[none, at, 16], no_generator),
                ("curandSetGeneratorOffset", &[none, 16], no_generator),
                ("curandDestroyGenerator", &[none], no_generator),
            ];
            for (name, words, right) in calls {
                let said = blas(&mut client, name, words, context);
                assert_eq!(said, right, "{name} {none:#x}");
            }
        }
        // Each is valid only for its own class.
        let said = blas(&mut client, "cufftXtExec", &[generator, at, at, 1], context);
        assert_eq!(said, invalid_plan);
        let said = blas(&mut client, "curandGenerate", &[plan, at, 16], context);
        assert_eq!(said, no_generator);
        let said = blas(&mut client, "curandGenerate", &[generator, at, 16], context);
        assert_eq!(said, status::SUCCESS);

        // Plans without a result: without a transform, in a thousand dimensions, and of arbitrary size.
        let said = blas(&mut client, "cufftXtExec", &[plan, at, at, 1], context);
        assert_eq!(said, invalid_plan);
        for (rank, batch) in [(1000, 1), (0, 1), (3, 1 << 31), (1, u64::MAX), (3, 1 << 62)] {
            let sizes = 0x0100_0000_0100_0000;
            let words = [plan, rank, sizes, 0, 1, 1, 0, 1, 1, 0x29, batch, 1];
            for name in ["cufftMakePlanMany", "cufftMakePlanMany64"] {
                let said = blas(&mut client, name, &words, context);
                assert_ne!(said, status::SUCCESS, "{name} of {rank} and {batch:#x}");
            }
        }
        make_transform(&mut client, plan, at, context);
        let words = [plan, at, at, 1];
        assert_eq!(blas(&mut client, "cufftXtExec", &words, context), 0);

        // The length of the tables is fixed.
        let table = 20_000 * 32 * 4;
        for (set, from, is_good) in [
            (101, 0, true),
            (102, table - 1, true),
            (101, table, true),
            (101, table + 1, false),
            (101, u64::MAX, false),
            (101, 1 << 63, false),
            (103, 0, false),
            (104, table, false),
            (u64::MAX, 0, false),
        ] {
            let name = "curandGetDirectionVectors32";
            // Without the reply, which is longer than the checked part.
            let said = blas(&mut client, name, &[set, from, 0], context);
            assert_eq!(said == status::SUCCESS, is_good, "{set} from {from:#x}");
        }
        client.close();
    });
}

/// A thread of a guest destroys the plan or the generator that other threads use.
#[test]
fn pitfall_63_a_plan_can_end_while_it_is_executed() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let mut random = Random(9);
        for round in 0..100 {
            let serial = 100 + round;
            let plan = create_of(&mut client, Class::CufftPlan, serial, context);
            let generator = create_of(&mut client, Class::CurandGenerator, serial, context);
            make_transform(&mut client, plan, at[2], context);
            let call = |name: &str, words: &[u64]| call_of(name, words, PointerMode::Host, context);
            let streams = vec![
                call("cufftXtExec", &[plan, at[0], at[1], 1]),
                call("cufftExecC2C", &[plan, at[1], at[0], -1_i64 as u64]),
                call("cufftSetWorkArea", &[plan, at[2]]),
                call("cufftDestroy", &[plan]),
                call("cufftDestroy", &[plan]),
                call("curandGenerate", &[generator, at[0], 1000]),
                call("curandGenerateUniformDouble", &[generator, at[1], 500]),
                call("curandDestroyGenerator", &[generator]),
                call("curandDestroyGenerator", &[generator]),
            ];
            in_any_order(&mut client, streams, 64, &mut random, round);
        }
        // A stale object is reported once.
        let sync = request::cuCtxSynchronize {};
        client.call(&sync, context, &[], 0);
        let handle = create(&mut client, 1, context);
        check_product(&mut client, handle, at, context, 1);
        client.close();
    });
}

/// Every function with arbitrary arguments.
#[test]
fn pitfall_81_any_words_affect_only_their_client() {
    // A product may be endless.
    let Some(host) = start("longest-kernel = \"2s\"") else {
        return;
    };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let (lines, begin) = (host.lines(), Instant::now());
        let mut random = Random(6);
        let (mut died, mut failed, mut sent) = (0, 0, 0);
        let rounds = 12;
        let mut calls = (0..rounds).flat_map(|_| functions());
        let mut next = calls.next();
        while next.is_some() {
            let mut client = Client::open(&mut guest);
            let pool = client.handles();
            let context = object_id::<Context>(1);
            let at = [(); 3].map(|()| client.alloc(BYTES, context));
            let handles = handles_of_all(&mut client, context);
            while let Some(of) = next {
                next = calls.next();
                sent += 1;
                let bytes = any_call(&mut random, of, &pool, &handles, at, context);
                let (said, _, _) = send(&mut client, &bytes);
                if said == device::CLIENT_DEAD {
                    died += 1;
                    eprintln!("{} cost its worker", of.operation.name);
                    break;
                }
                // A table's piece does not fit this answer.
                let is_answered = [device::OK, device::MALFORMED, device::LIMIT].contains(&said);
                assert!(is_answered, "{}: {said}", of.operation.name);
                let sync = command(&request::cuCtxSynchronize {}, context);
                let (said, code, _) = send(&mut client, &sync);
                if said != device::OK || code >= CUDA_ERROR_ILLEGAL_ADDRESS {
                    failed += 1;
                    break;
                }
            }
            client.close();
        }
        eprintln!("{sent} calls, {failed} faults, {died} dead workers");
        let lines = host.lines() - lines;
        assert!(lines < most_lines(begin), "{lines} lines");
        // No request of a guest may end the stand-in.
        assert_eq!(died, 0);
        assert!(sent > failed * 2, "most calls should not be the last");
    });
}

/// Two handles of each class; the second one has its scalars on the device.
fn handles_of_all(client: &mut Client<'_>, context: u64) -> HashMap<Class, [u64; 2]> {
    let classes = Class::ALL.iter().filter(|class| class.is_handle());
    let all = classes.map(|class| {
        let mut send_good = |of: &Function, words: &[u64]| {
            let arguments = written(of, words, PointerMode::Host).unwrap();
            let bytes = raw_command(of.operation.op, context, &arguments);
            let (said, _, status) = send(client, &bytes);
            assert_eq!((said, status), (device::OK, Some(SUCCESS)), "{class:?}");
        };
        let makes = |of: &&Function| of.makes().is_some_and(|(_, made)| made == *class);
        let create = functions().find(makes).unwrap();
        let ids = [1, 2].map(|serial| class.id(serial));
        for id in ids {
            match class {
                // XORWOW.
                Class::CurandGenerator => send_good(create, &[id, 101]),
                // The default backend, and no flags.
                Class::NvjpegHandle => send_good(create, &[id, 0, 0]),
                _ => send_good(create, &[id]),
            }
        }
        if let Some(name) = class.sets_pointer_mode() {
            send_good(class.library().find(name), &[ids[1], 1]);
        }
        (*class, ids)
    });
    all.collect()
}

/// A call of a function whose arguments are often valid.
fn any_call(
    random: &mut Random,
    of: &Function,
    pool: &[u64],
    handles: &HashMap<Class, [u64; 2]>,
    at: [u64; 3],
    context: u64,
) -> Vec<u8> {
    let any = |random: &mut Random, from: &[u64]| from[random.below(from.len() as u64) as usize];
    let which = usize::from(random.below(2) != 0);
    let mode = [PointerMode::Host, PointerMode::Device][which];
    let words: Vec<u64> = (of.kinds.iter())
        .map(|kind| {
            if random.below(24) == 0 {
                return any(random, pool);
            }
            match kind {
                Kind::Handle(class) => handles[class][which],
                // Sizes, and values of enumerations.
                Kind::I32 | Kind::I64 => {
                    let some = [0, 1, 2, 3, 4, 8, 16, 64, 68, u64::MAX, 1 << 31, 1 << 32 | 3];
                    let is_wild = random.below(6) == 0;
                    any(random, &some[if is_wild { 0..12 } else { 0..9 }])
                }
                Kind::Gone(class) | Kind::New(class) if class.is_handle() => {
                    class.id(random.below(50))
                }
                // There are few, so that they often exist.
                Kind::Gone(class) | Kind::New(class) | Kind::Object(class) => {
                    class.id(random.below(6))
                }
                Kind::Stream => any(random, pool),
                Kind::Out(_) => 1,
                _ if mode == PointerMode::Host && !matches!(kind, Kind::Device) => ONE,
                _ => any(random, &at),
            }
        })
        .collect();
    let words = written(of, &words, mode).unwrap_or_default();
    // Sometimes another word replaces one that the guest's library has encoded.
    let mut bytes = raw_command(of.operation.op, context, &words);
    if random.below(4) == 0 && words.len() >= 8 {
        let place = bytes.len() - words.len() + 8 * random.below(words.len() as u64 / 8) as usize;
        bytes[place..place + 8].copy_from_slice(&any(random, pool).to_le_bytes());
    }
    bytes
}
