// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Writes the first inputs of fuzzing: real programs' messages, by the library's own codec. `cargo run -p
//! gpgpu-protocol --example fuzz_seeds` writes them to `fuzz/corpus`, and `cargo xtask fuzz --minimise` keeps those
//! that add coverage.

use std::{fs, path::Path};

use gpgpu_protocol::{
    api::{Context, Event, Function, LaunchConfig, Module, Request, Stream, object_id, request},
    codec::{Blob, Wire, Writer},
    layout::StreamCommand,
    libraries::{
        Class, Library,
        call::{self, PointerMode},
        cublaslt::{
            attributes,
            form::{
                ALGORITHM, Described, Formed, Operands, Scalar, Sink, put_check, put_plan,
                put_product, put_question, put_transformation,
            },
        },
        cudnn::backend::{Pack, Place, VALUE_BYTES, Values},
        cusparselt::form::{self as sparse, Form},
        nvjpeg::form::{Batch, Image},
    },
    ring::Record,
};
use zerocopy::IntoBytes;

fn main() -> std::io::Result<()> {
    streams()?;
    rings()?;
    queues()?;
    forms()?;
    messages()?;
    images()
}

fn seed(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(format!("seed-{name}")), bytes)
}

fn command<R: Request + Wire>(request: &R) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(request);
    written(R::OP, &writer.into_bytes())
}

fn written(op: u16, arguments: &[u8]) -> Vec<u8> {
    let head = StreamCommand {
        bytes: ((size_of::<StreamCommand>() + arguments.len()) as u32).into(),
        op: op.into(),
        reserved: 0.into(),
        context: object_id::<Context>(1).into(),
    };
    [head.as_bytes(), arguments].concat()
}

/// The commands of a small program.
fn program() -> Vec<(&'static str, Vec<u8>)> {
    let id = |serial| object_id::<Stream>(serial);
    let config = LaunchConfig {
        grid_x: 4,
        grid_y: 1,
        grid_z: 1,
        block_x: 128,
        block_y: 1,
        block_z: 1,
        shared_bytes: 0,
        stream: id(1),
        attributes: Vec::new(),
    };
    vec![
        ("hello", command(&request::gpgpuHello { hello: true })),
        (
            "retain",
            command(&request::cuDevicePrimaryCtxRetain {
                pctx: object_id::<Context>(1),
                dev: 0,
            }),
        ),
        (
            "alloc",
            command(&request::cuMemAlloc_v2 {
                dptr: true,
                bytesize: 4096,
            }),
        ),
        (
            "load",
            command(&request::cuModuleLoadDataEx {
                module: object_id::<Module>(1),
                image: 0,
                options: vec![gpgpu_protocol::api::JitOption {
                    option: 5,
                    value: 4096,
                }],
                eager: false,
                log: true,
            }),
        ),
        (
            "function",
            command(&request::cuModuleGetFunction {
                function: object_id::<Function>(1),
                hmod: object_id::<Module>(1),
                name: "add".into(),
                info: true,
            }),
        ),
        (
            "launch",
            command(&request::cuLaunchKernelEx {
                func: object_id::<Function>(1),
                config,
                params: Blob(vec![7; 24]),
            }),
        ),
        (
            "write",
            command(&request::gpgpuWrite {
                dst: 1 << 44,
                hStream: id(1),
                bytes: Blob(b"sixteen and some".to_vec()),
            }),
        ),
        (
            "copy-in",
            command(&request::gpgpuCopyIn {
                dst: 1 << 44,
                hStream: id(1),
                synchronous: true,
            }),
        ),
        (
            "copy-out",
            command(&request::gpgpuCopyOut {
                src: 1 << 44,
                hStream: id(1),
            }),
        ),
        (
            "find",
            command(&request::gpgpuImageFind {
                image: 3,
                bytes: 100_000,
                hash: Blob(vec![9; 32]),
                known: true,
            }),
        ),
        (
            "mark",
            command(&request::gpgpuEventMark {
                hEvent: object_id::<Event>(1),
                hStream: id(1),
                word: 3,
                value: 1,
            }),
        ),
        ("synchronize", command(&request::cuCtxSynchronize {})),
    ]
}

/// The commands of a program that multiplies matrices.
fn products() -> Vec<(&'static str, Vec<u8>)> {
    use PointerMode::{Device, Host};
    let (handle, memory) = (Class::CublasHandle.id(1), 1 << 44);
    let call = |name, words: &[u64], mode| {
        let of = Library::Cublas.find(name);
        let mut writer = Writer::new();
        call::put(of, words, mode, &mut writer, |_, to| to.fill(0x3f)).expect("a good call");
        (name, written(of.operation.op, &writer.into_bytes()))
    };
    let square = [handle, 0, 1, 8, 8, 8, 1, memory, 8, memory, 8, 1, memory, 8];
    let dot = [handle, 8, memory, 1, memory, 1, memory];
    // Singles by way of singles, in two groups of one product each.
    let mut grouped = [memory; 20];
    (grouped[0], grouped[8], grouped[11], grouped[15]) = (handle, 0, 0, 0);
    (grouped[17], grouped[19]) = (2, 68);
    vec![
        call("cublasCreate_v2", &[handle], Host),
        call(
            "cublasSetStream_v2",
            &[handle, object_id::<Stream>(1)],
            Host,
        ),
        call("cublasSetMathMode", &[handle, 3], Host),
        call("cublasSetWorkspace_v2", &[handle, memory, 4 << 20], Host),
        call("cublasGetVersion_v2", &[handle, memory], Host),
        call("cublasSgemm_v2", &square, Host),
        call("cublasDgemm_v2_64", &square, Host),
        call("cublasSdot_v2", &dot, Host),
        call("cublasGemmGroupedBatchedEx", &grouped, Host),
        call("cublasDrotmg_v2", &[handle, 1, 1, 1, 1, 1], Host),
        call("cublasSetPointerMode_v2", &[handle, 1], Host),
        call("cublasDdot_v2_64", &dot, Device),
        call("cublasDestroy_v2", &[handle], Host),
    ]
}

fn streams() -> std::io::Result<()> {
    for (name, commands) in [("program", program()), ("products", products())] {
        let mut whole = vec![0];
        for (name, bytes) in commands {
            seed("stream", name, &[&[0], &bytes[..]].concat())?;
            whole.extend(bytes);
        }
        seed("stream", name, &whole)?;
    }
    Ok(())
}

/// Composite parts of requests of libraries: a byte for the form, and one of its kind.
fn forms() -> std::io::Result<()> {
    let packed = |class: attributes::Class, set: &[(u16, u64)]| {
        let mut packed = class.defaults().to_vec();
        for (number, value) in set {
            class.write(&mut packed, *number, *value);
        }
        packed
    };
    let operation = packed(
        attributes::Class::Operation,
        &[(attributes::COMPUTE_TYPE, 68), (8, 0x7000_0000_0010)],
    );
    let layout = packed(
        attributes::Class::Layout,
        &[
            (attributes::ROWS, 64),
            (attributes::COLUMNS, 8),
            (attributes::LEADING, 64),
        ],
    );
    let [emulation, preference, transform] = [
        attributes::Class::Emulation,
        attributes::Class::Preference,
        attributes::Class::Transform,
    ]
    .map(|class| packed(class, &[(1, 1)]));
    let described = Described {
        operation: &operation,
        emulation: Some(&emulation),
        layouts: [&layout; 4],
    };
    let (algorithm, scalars) = ([5; ALGORITHM], [Scalar::Here([0x3f; 2]); 2]);
    let written = |form: u8, put: &dyn Fn(&mut Formed<'_>)| {
        let mut writer = Writer::new();
        put(&mut Formed::new(0, &mut writer));
        [&[form][..], &writer.into_bytes()].concat()
    };
    let [a, b, c] = [1_u64 << 44, 2 << 44, 3 << 44];
    let operands = Operands {
        scalars,
        matrices: [a, b, c, c],
        workspace: (a, 4096),
    };
    let product = written(0, &|sink| {
        put_product(sink, &described, Some(&algorithm), &operands);
    });
    let plan = written(8, &|sink| put_plan(sink, &described, Some(&algorithm)));
    let by_plan = written(9, &|sink| {
        sink.value(0);
        operands.put(sink);
    });
    let transformation = written(1, &|sink| {
        let layouts = [Some(&layout), None, Some(&layout)];
        put_transformation(sink, &transform, layouts, scalars, [a, 0, c]);
    });
    let question = written(2, &|sink| {
        put_question(sink, &described, Some(&preference), 2, &[algorithm]);
    });
    let check = written(3, &|sink| put_check(sink, &described, &algorithm));
    let mut pack = Writer::on(vec![4]);
    Pack {
        operands: vec![(7, Place::Device(a)), (9, Place::Value([1; VALUE_BYTES]))],
        workspace: Some(b),
    }
    .write(&mut pack);
    let mut values = Values::default();
    values.add(9, Some(0));
    let mut selection = sparse::Selection::default();
    selection.product.matrices[0].set.set(0, 2);
    selection.product.set.set(8, a);
    selection.set.set(0, 1);
    let at = [sparse::Scalar::Here(1), sparse::Scalar::At(a)];
    let image = Image {
        length: 3,
        destination: [a, b, c, 0, 8, 8, 8, 0],
        params: 0,
    };
    let batch = Batch {
        images: vec![image; 2],
        data: vec![0xff; 6],
    };
    for (name, bytes) in [
        ("batch", [&[10][..], &batch.bytes()].concat()),
        ("selection", [&[6][..], &selection.bytes()].concat()),
        ("scalars", [&[7][..], &at.bytes()].concat()),
        ("product", product),
        ("plan", plan),
        ("operands", by_plan),
        ("transformation", transformation),
        ("question", question),
        ("check", check),
        ("pack", pack.into_bytes()),
        ("values", [&[5][..], &values.write()].concat()),
    ] {
        seed("forms", name, &bytes)?;
    }
    Ok(())
}

fn rings() -> std::io::Result<()> {
    let mut records = Vec::new();
    for (sequence, (_, commands)) in program().into_iter().enumerate() {
        let head = Record {
            bytes: (size_of::<Record>() + commands.len()) as u32,
            slot: sequence as u32 % 3,
            sequence: sequence as u32 + 1,
            thread: 1,
        };
        records.extend_from_slice(head.as_bytes());
        records.extend(commands);
    }
    let tail = records.len() as u32;
    // The start, the tail, and the writes of the other thread: places and values.
    let calm = [&[0, 253][..], &tail.to_le_bytes(), &[0]].concat();
    let busy = [
        &[253, 0xf0, 0xff, 0, 0, 253][..],
        &tail.to_le_bytes(),
        &[
            3, 0, 255, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 12, 16, 210, 254, 7,
        ],
    ]
    .concat();
    seed("ring", "calm", &[calm, records.clone()].concat())?;
    seed("ring", "busy", &[busy, records].concat())
}

/// A script for the device: see `fuzz/src/device/mod.rs`.
fn queues() -> std::io::Result<()> {
    // Open, started, ready; register and answered; a command, answered; unregister, answered; close, exits.
    let life = [
        &[0, 13, 0, 15, 0, 0, 0][..],
        &[2, 0, 0, 16, 1, 16, 4, 15, 0, 3, 0, 0],
        &[
            5, 0, 0, 4, 1, 2, 3, 4, 16, 0, 0, 0, 15, 0, 1, 0, 0, 4, 0, 9, 9, 9, 9,
        ],
        &[3, 0, 1, 15, 0, 3, 0, 0],
        &[8, 16, 1, 0, 14, 0, 0],
    ]
    .concat();
    seed("control_queue", "life", &life)?;
    // Many, some of which fail; events; a reset.
    let many = [
        &[0, 0, 0, 0, 13, 0, 13, 1, 13, 0, 15, 0, 0, 0, 15, 1, 0, 1][..],
        &[8, 16, 14, 0, 1, 14, 0, 0, 12, 2, 20, 20, 23, 14, 0, 0],
    ]
    .concat();
    seed("control_queue", "many", &many)?;
    // Data by the staging area, and by a mover in both directions; a mover that dies; a stopped ring.
    let stage = [
        &[5, 0, 0, 4, 1, 2, 3, 4, 8, 100, 100, 0][..],
        &[15, 0, 1, 0, 0, 2, 7, 7, 100],
    ]
    .concat();
    seed("command_queue", "staged", &stage)?;
    let to_device: &[u8] = &[5, 0, 0, 4, 1, 2, 3, 4, 8, 251, 16, 0, 0];
    let to_guest: &[u8] = &[5, 0, 1, 4, 1, 2, 3, 4, 8, 0, 251, 32, 0];
    let moved: &[u8] = &[15, 0, 6, 0, 1, 0, 0, 2, 5, 5, 19, 0, 1, 0];
    let staged: &[u8] = &[15, 0, 7, 0, 0, 15, 0, 1, 0, 0, 0, 0];
    seed("command_queue", "moved-in", &[to_device, moved].concat())?;
    seed("command_queue", "moved-out", &[to_guest, moved].concat())?;
    seed(
        "command_queue",
        "not-movable",
        &[to_device, staged].concat(),
    )?;
    let dies: &[u8] = &[15, 0, 6, 0, 1, 0, 0, 0, 19, 0, 3, 15, 0, 1, 0, 0, 0, 0];
    seed("command_queue", "mover-dies", &[to_guest, dies].concat())?;
    let stops: &[u8] = &[21, 1, 1, 15, 0, 1, 0, 0, 0, 0, 22, 1, 12, 1];
    seed("command_queue", "stopped", &[to_device, stops].concat())?;
    ends(to_device)
}

/// Resets and stopped rings while a mover moves, limits that are reached, and the configuration.
fn ends(to_device: &[u8]) -> std::io::Result<()> {
    let asks: &[u8] = &[15, 0, 6, 0, 1, 0, 0, 0];
    let cancelled: &[u8] = &[20, 1, 0, 19, 0, 1, 128, 14, 0, 0, 13, 0];
    for (name, ends) in [
        ("reset", &[23][..]),
        ("stop", &[21, 1, 0, 2]),
        ("late", &[20, 9]),
        ("nonsense", &[19, 0, 4, 200, 23]),
    ] {
        let script = [to_device, asks, ends, cancelled].concat();
        seed("command_queue", &format!("{name}-in-move"), &script)?;
    }
    // More workers than the VM's operator lets it have.
    seed("control_queue", "few-clients", &[25, 1, 0, 0, 13, 0, 13, 0])?;
    seed("control_queue", "configuration", &[24, 3, 4, 72, 0])
}

fn messages() -> std::io::Result<()> {
    // To a device process: an answer, an export with its file, a move.
    let head = |kind: u32, length: u64, payload: u32| {
        let mut bytes = [kind.to_ne_bytes(), 0u32.to_ne_bytes()].concat();
        for word in [7, 0, length, 0, 0, 0, 0] {
            bytes.extend(u64::to_ne_bytes(word));
        }
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(payload.to_ne_bytes());
        bytes.resize(bytes.len() + payload as usize, 1);
        bytes
    };
    let mut all = vec![0];
    for (files, message) in [
        (0, head(65, 0, 0)),
        (0, head(66, 4, 24)),
        (1, head(68, 4096, 0)),
        (0, head(70, 1, 8)),
    ] {
        all.push(files);
        all.extend((message.len() as u16).to_le_bytes());
        all.extend(message);
    }
    seed("messages", "worker", &all)?;
    for (to, kind, files, bytes) in [
        (1, 66u32, 0, 48),
        (2, 66, 0, 32),
        (3, 5, 0, 48),
        (3, 1, 1, 48),
        (4, 2, 1, 32),
        // A mover that is late, a cancelled move, a connection with its VM's limit, orders to a mover.
        (2, 69, 0, 32),
        (3, 6, 0, 48),
        (4, 1, 1, 32),
        (6, 129, 1, 12),
        (6, 130, 0, 12),
        (6, 131, 1, 12),
        // With more files than anybody takes.
        (0, 68, 3, 72),
        (1, 65, 2, 48),
        (2, 66, 200, 32),
        (6, 129, 7, 12),
    ] {
        let mut message = kind.to_ne_bytes().to_vec();
        message.resize(bytes, 0);
        let mut input = vec![to, files];
        input.extend((bytes as u16).to_le_bytes());
        input.extend(message);
        seed("messages", &format!("to-{to}-{kind}-{files}"), &input)?;
    }
    worker_messages(head)
}

/// To a worker: the client to serve, its staging area, a command, memory that is mapped and unmapped.
fn worker_messages(head: impl Fn(u32, u64, u32) -> Vec<u8>) -> std::io::Result<()> {
    let mut all = vec![5];
    let mut push = |files: &[u8], message: Vec<u8>| {
        all.extend(files);
        all.extend((message.len() as u16).to_le_bytes());
        all.extend(message);
    };
    push(&[5], head(5, 0, 8));
    push(&[1], head(1, 64 << 20, 0));
    push(&[0], head(2, 0, 16));
    let mut map = head(3, 8192, 0);
    // Two runs of one file, which lie in the list.
    map[64] = 2;
    let mut list = [0_u8; 48];
    (list[8], list[16]) = (16, 16);
    push(&[&[130, 48][..], &list[..]].concat(), map);
    push(&[0], head(4, 0, 0));
    seed("messages", "to-5", &all)
}

fn images() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let text = fs::read_to_string(root.join("src/mover/gather.ptx"))?;
    seed("ptx", "gather", text.as_bytes())?;
    let small = "\
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .f32 table[4] = {0f3f800000, 2.5, 3, 0d4000000000000000};
.const .u64 where[1] = {generic(table)+8};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r<3>; ld.param.u32 %r1, [a]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret; }
.visible .entry k(.param .u64 p, .param .align 8 .b8 pair[16]) .maxntid 256, 1, 1
{
 .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .f32 %f<4>;
 .shared .align 8 .b64 bar; .local .align 4 .b8 stack[16];
 ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 7;
 @%p1 bra DONE;
 { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; call.uni (y), twice, (x); ld.param.b32 %r2, [y]; }
 mul.wide.u32 %rd3, %r2, 4; add.s64 %rd4, %rd2, %rd3; ld.global.v2.f32 {%f1, %f2}, [%rd4+-8]; fma.rn.f32 %f3, %f1, %f2, 0f40000000;
 shfl.sync.bfly.b32 %r3|%p1, %r2, 1, 31, -1; atom.global.add.u32 %r4, [%rd2], 1; bar.sync 0; st.global.f32 [%rd4], %f3;
DONE: ret;
}
";
    seed("ptx", "small", small.as_bytes())?;
    seed("fatbin", "text", &small.as_bytes()[..44])?;
    let plain = small.as_bytes();
    let entry = |kind: u16, arch: u32, flags: u64, payload: &[u8], plain: usize| {
        let padded = payload.len().next_multiple_of(8);
        let mut e = Vec::new();
        e.extend(kind.to_le_bytes());
        e.extend(0x101u16.to_le_bytes());
        e.extend(64u32.to_le_bytes());
        e.extend((padded as u64).to_le_bytes());
        e.extend((payload.len() as u32).to_le_bytes());
        e.extend([0; 8]);
        e.extend(arch.to_le_bytes());
        e.extend([0; 8]);
        e.extend(flags.to_le_bytes());
        e.extend([0; 8]);
        e.extend((plain as u64).to_le_bytes());
        e.extend(payload);
        e.resize(64 + padded, 0);
        e
    };
    let container = |entries: Vec<u8>| {
        let mut c = Vec::new();
        c.extend(0xba55_ed50u32.to_le_bytes());
        c.extend(1u16.to_le_bytes());
        c.extend(16u16.to_le_bytes());
        c.extend((entries.len() as u64).to_le_bytes());
        c.extend(entries);
        c
    };
    // The head of the text, as LZ4 and Zstandard have it without compression.
    let head = &plain[..60];
    let lz4 = [&[0xf0, 45][..], head].concat();
    let zstd = [
        &[
            0x28,
            0xb5,
            0x2f,
            0xfd,
            0x20,
            60,
            1 | (60 << 3) as u8,
            (60 >> 5) as u8,
            0,
        ][..],
        head,
    ]
    .concat();
    let cubin = entry(2, 80, 0, b"\x7fELF....", 0);
    seed(
        "fatbin",
        "plain",
        &container([cubin, entry(1, 80, 0, plain, 0)].concat()),
    )?;
    seed("fatbin", "lz4", &container(entry(1, 80, 0x2000, &lz4, 60)))?;
    seed(
        "fatbin",
        "zstd",
        &container(entry(1, 80, 0x8000, &zstd, 60)),
    )
}
