// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whole messages, byte for byte.

use std::fmt::Write;

use gpgpu_protocol::{
    api::{
        Context, Function, KnownOperation, LaunchConfig, Request, issued::FAMILY, object_id, reply,
        request,
    },
    codec::{Blob, Wire},
    cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS},
    layout::{
        CommandAnswer, CommandHeader, ControlHeader, Open, OpenAnswer, StreamAnswer, StreamCommand,
        VERSION, control, status,
    },
    ring::Record,
};
use zerocopy::{FromBytes, IntoBytes};

use super::{bytes, decoded, encoded};

/// Shows a message in parts, each with its bytes and their meaning; together they must be `expected`.
fn message(page: &mut String, title: &str, parts: &[(&str, &str)], expected: &[u8]) -> Vec<u8> {
    let _ = write!(page, "{title}\n\n| offset | bytes | |\n|---|---|---|\n");
    let mut whole = Vec::new();
    for (part, what) in parts {
        let _ = writeln!(page, "| {} | `{part}` | {what} |", whole.len());
        whole.extend(bytes(part));
    }
    assert_eq!(whole, expected, "{title}");
    page.push('\n');
    whole
}

fn command<R: Request>(request: &R, context: u64) -> Vec<u8> {
    let arguments = encoded(request);
    let bytes = size_of::<StreamCommand>() + arguments.len();
    let head = StreamCommand {
        bytes: (bytes as u32).into(),
        op: R::OP.into(),
        reserved: 0.into(),
        context: context.into(),
    };
    [head.as_bytes(), &arguments].concat()
}

/// The readable part of a chain on the command queue.
fn chain(stream: &[u8], input: &[u8], answer_bytes: u32, out_bytes: u64) -> Vec<u8> {
    let head = CommandHeader {
        client: 5.into(),
        thread: 1.into(),
        stream_bytes: (stream.len() as u32).into(),
        answer_bytes: answer_bytes.into(),
        in_bytes: (input.len() as u64).into(),
        out_bytes: out_bytes.into(),
        data_offset: 0.into(),
    };
    [head.as_bytes(), stream, input].concat()
}

/// The arguments of the one command of a chain, read again.
fn arguments<R: Request>(chain: &[u8]) -> R {
    let (head, rest) = CommandHeader::read_from_prefix(chain).unwrap();
    let (stream, _) = rest.split_at(head.stream_bytes.get() as usize);
    let (command, arguments) = StreamCommand::read_from_prefix(stream).unwrap();
    assert_eq!(usize::try_from(command.bytes.get()).unwrap(), stream.len());
    assert_eq!(command.op.get(), R::OP);
    decoded(arguments)
}

/// The writable part of a chain, without data.
fn answer<R: Wire>(result: u32, reply: Option<&R>) -> Vec<u8> {
    let head = StreamAnswer {
        result: result.into(),
        flags: 0.into(),
    };
    let results = reply.map(encoded).unwrap_or_default();
    let answer = [head.as_bytes(), &results].concat();
    let first = CommandAnswer {
        status: status::OK.into(),
        answer_bytes: (answer.len() as u32).into(),
    };
    [first.as_bytes(), &answer].concat()
}

fn write_open(page: &mut String) {
    let mut name = [0; 16];
    name[..6].copy_from_slice(b"python");
    let open = Open {
        header: ControlHeader {
            kind: control::OPEN.into(),
            client: 0.into(),
        },
        version: VERSION.into(),
        pid: 4242.into(),
        api_family: FAMILY.into(),
        name,
    };
    let parts = [
        ("01000000", "`kind`: OPEN"),
        ("00000000", "`client`: 0"),
        ("02000000", "`version`"),
        ("92100000", "`pid`: 4242"),
        ("4b727bcddc3cf4fa", "`api_family`"),
        ("707974686f6e0000 0000000000000000", "`name`: \"python\""),
    ];
    let whole = message(page, "OPEN, on the control queue:", &parts, open.as_bytes());
    assert_eq!(Open::read_from_bytes(&whole).unwrap().pid.get(), 4242);
    let opened = OpenAnswer {
        status: status::OK.into(),
        client: 5.into(),
    };
    let parts = [("00000000", "`status`: OK"), ("05000000", "`client`")];
    message(page, "Its answer:", &parts, opened.as_bytes());
}

fn write_launch(page: &mut String) {
    let launch = request::cuLaunchKernelEx {
        func: object_id::<Function>(9),
        config: LaunchConfig {
            grid_x: 64,
            grid_y: 1,
            grid_z: 1,
            block_x: 256,
            block_y: 1,
            block_z: 1,
            ..LaunchConfig::default()
        },
        params: Blob(
            [
                &0x0000_7f12_3400_0000_u64.to_le_bytes()[..],
                &1000_u32.to_le_bytes(),
            ]
            .concat(),
        ),
    };
    let stream = command(&launch, object_id::<Context>(2));
    let command_parts = [
        ("78000000", "`bytes`: 120"),
        ("0109", "`op`: `cuLaunchKernelEx`"),
        ("0000", "`reserved`"),
        (
            "1002000000000000",
            "`context`: the second object of the client",
        ),
        ("3009000000000000", "`func`: the ninth object of the client"),
        ("4000000000000000", "`config`: `grid_x`"),
        ("0100000000000000", "`grid_y`"),
        ("0100000000000000", "`grid_z`"),
        ("0001000000000000", "`block_x`"),
        ("0100000000000000", "`block_y`"),
        ("0100000000000000", "`block_z`"),
        ("0000000000000000", "`shared_bytes`"),
        ("0000000000000000", "`stream`: the legacy stream"),
        ("0000000000000000", "`attributes`: a list of none"),
        ("0c00000000000000", "`params`: a byte string of 12 bytes"),
        ("00000034127f0000", "the first parameter, a pointer"),
        ("e8030000", "the second, a number of 32 bits: 1000"),
        ("00000000", "zeros up to a multiple of eight"),
    ];
    let header = [
        ("05000000", "`client`"),
        ("01000000", "`thread`"),
        ("78000000", "`stream_bytes`: 120"),
        ("00000000", "`answer_bytes`: no answer is wanted"),
        ("0000000000000000", "`in_bytes`"),
        ("0000000000000000", "`out_bytes`"),
        ("0000000000000000", "`data_offset`"),
    ];
    let parts: Vec<_> = header.into_iter().chain(command_parts).collect();
    let expected = chain(&stream, &[], 0, 0);
    let title = "A posted launch, on the command queue: the readable part of its chain:";
    let whole = message(page, title, &parts, &expected);
    let read: request::cuLaunchKernelEx = arguments(&whole);
    assert_eq!((read.func, read.config), (launch.func, launch.config));
    assert_eq!(read.params, launch.params);

    let record = Record {
        bytes: 16 + 120,
        slot: u32::MAX,
        sequence: 0,
        thread: 1,
    };
    let expected = [record.as_bytes(), &stream].concat();
    let header = [
        ("88000000", "`bytes`: 136"),
        ("ffffffff", "`slot`: no answer"),
        ("00000000", "`sequence`"),
        ("01000000", "`thread`"),
    ];
    let parts: Vec<_> = header.into_iter().chain(command_parts).collect();
    message(
        page,
        "The same launch as a record of the ring:",
        &parts,
        &expected,
    );
}

fn write_copies(page: &mut String) {
    let copy = request::gpgpuCopyIn {
        dst: 0x7f12_3400_0000,
        hStream: 0,
        synchronous: true,
    };
    let data = *b"ABCDEFGHIJKL";
    let expected = chain(&command(&copy, object_id::<Context>(2)), &data, 256, 0);
    let parts = [
        ("05000000", "`client`"),
        ("01000000", "`thread`"),
        ("28000000", "`stream_bytes`: 40"),
        ("00010000", "`answer_bytes`: 256"),
        ("0c00000000000000", "`in_bytes`: 12"),
        ("0000000000000000", "`out_bytes`"),
        ("0000000000000000", "`data_offset`"),
        ("28000000", "`bytes`: 40"),
        ("0704", "`op`: `gpgpuCopyIn`"),
        ("0000", "`reserved`"),
        ("1002000000000000", "`context`"),
        ("00000034127f0000", "`dst`"),
        ("0000000000000000", "`hStream`"),
        ("0100000000000000", "`synchronous`: true"),
        ("4142434445464748 494a4b4c", "`in`"),
    ];
    let title = "A copy of 12 bytes to device memory, on the command queue:";
    let whole = message(page, title, &parts, &expected);
    let read: request::gpgpuCopyIn = arguments(&whole);
    assert_eq!((read.dst, read.synchronous), (copy.dst, copy.synchronous));

    let done = reply::gpgpuCopyIn::default();
    let parts = [
        ("00000000", "`status`: OK"),
        ("08000000", "`answer_written`: 8"),
        ("00000000", "`result`: `CUDA_SUCCESS`"),
        ("00000000", "`flags`"),
    ];
    let title = "Its answer, which has no results; the used length is 16:";
    message(page, title, &parts, &answer(CUDA_SUCCESS, Some(&done)));

    let copy = request::gpgpuCopyOut {
        src: 0x7f12_3400_0000,
        hStream: 0,
    };
    let expected = chain(&command(&copy, object_id::<Context>(2)), &[], 16, 12);
    let parts = [
        ("05000000", "`client`"),
        ("01000000", "`thread`"),
        ("20000000", "`stream_bytes`: 32"),
        ("10000000", "`answer_bytes`: 16"),
        ("0000000000000000", "`in_bytes`"),
        ("0c00000000000000", "`out_bytes`: 12"),
        ("0000000000000000", "`data_offset`"),
        ("20000000", "`bytes`: 32"),
        ("0804", "`op`: `gpgpuCopyOut`"),
        ("0000", "`reserved`"),
        ("1002000000000000", "`context`"),
        ("00000034127f0000", "`src`"),
        ("0000000000000000", "`hStream`"),
    ];
    let whole = message(page, "A copy of the same bytes back:", &parts, &expected);
    let read: request::gpgpuCopyOut = arguments(&whole);
    assert_eq!(read.src, copy.src);
    let done = reply::gpgpuCopyOut::default();
    let mut expected = answer(CUDA_SUCCESS, Some(&done));
    expected.extend([0; 8]);
    expected.extend(data);
    let parts = [
        ("00000000", "`status`: OK"),
        ("08000000", "`answer_written`: 8"),
        ("00000000", "`result`: `CUDA_SUCCESS`"),
        ("00000000", "`flags`"),
        ("0000000000000000", "the rest of `answer`, as zeros"),
        ("4142434445464748 494a4b4c", "`out`"),
    ];
    let title = "Its answer: `out` begins 16 bytes after `answer` does, and the used length is 36:";
    message(page, title, &parts, &expected);
}

fn write_answers(page: &mut String) {
    let allocated = reply::cuMemAlloc_v2 {
        dptr: 0x7f12_3400_0000,
        ..Default::default()
    };
    let parts = [
        ("00000000", "`status`: OK"),
        ("10000000", "`answer_written`: 16"),
        ("00000000", "`result`: `CUDA_SUCCESS`"),
        ("00000000", "`flags`"),
        ("00000034127f0000", "`dptr`"),
    ];
    let title = "An answer to `cuMemAlloc_v2`:";
    let whole = message(page, title, &parts, &answer(CUDA_SUCCESS, Some(&allocated)));
    let read: reply::cuMemAlloc_v2 = decoded(&whole[16..]);
    assert_eq!(read.dptr, allocated.dptr);

    let parts = [
        ("00000000", "`status`: OK"),
        ("08000000", "`answer_written`: 8"),
        ("01000000", "`result`: `CUDA_ERROR_INVALID_VALUE`"),
        ("00000000", "`flags`"),
    ];
    let title = "An answer with an error of CUDA, to the same command, without results:";
    let failed = answer::<reply::cuMemAlloc_v2>(CUDA_ERROR_INVALID_VALUE, None);
    message(page, title, &parts, &failed);

    let malformed = CommandAnswer {
        status: status::MALFORMED.into(),
        answer_bytes: 0.into(),
    };
    let parts = [
        ("01000000", "`status`: MALFORMED"),
        ("00000000", "`answer_written`: 0"),
    ];
    let title = "An answer to a command that the device does not know:";
    message(page, title, &parts, malformed.as_bytes());

    let known = reply::gpgpuOperations {
        operations: vec![KnownOperation {
            op: request::gpgpuEventMark::OP,
            layout: request::gpgpuEventMark::OPERATION.layout(),
        }],
        ..Default::default()
    };
    let parts = [
        ("00000000", "`status`: OK"),
        ("20000000", "`answer_written`: 32"),
        ("00000000", "`result`: `CUDA_SUCCESS`"),
        ("00000000", "`flags`"),
        ("0100000000000000", "`operations`: a list of one"),
        ("100b000000000000", "`op`: `gpgpuEventMark`"),
        ("d400fe7b4ec1fd76", "`layout`"),
    ];
    let title = "An answer to `gpgpuOperations` with a `first` of 0x0b10, where no operation has a higher number:";
    let whole = message(page, title, &parts, &answer(CUDA_SUCCESS, Some(&known)));
    let read: reply::gpgpuOperations = decoded(&whole[16..]);
    assert_eq!(read.operations, known.operations);
}

pub fn write(page: &mut String) {
    page.push_str(
        "## A.2 Messages\n\n\
         Whole messages: the structures of virtio-gpgpu.md with the encoding of A.1. Client 5 sends them. Offsets are from the \
         beginning of the chain's part, or of the record.\n\n",
    );
    write_open(page);
    write_launch(page);
    write_copies(page);
    write_answers(page);
}
