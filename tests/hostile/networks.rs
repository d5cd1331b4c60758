// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The descriptors of cuDNN's backend in forms that no guest library sends. If a tensor is by value, the library reads
//! it at a host address, which a guest must not be able to choose.

use gpgpu_protocol::libraries::cudnn::{
    backend::{Pack, Place, VALUE_BYTES, element, kind, name},
    status,
};

use super::*;

/// A descriptor of the backend.
fn id(serial: u64) -> u64 {
    Class::CudnnBackend.id(serial)
}

/// The number and the arguments of a call, with the bytes of its blob.
fn written(name: &str, words: &[u64], blob: &[u8]) -> (u16, Vec<u8>) {
    let of = Library::Cudnn.find(name);
    let mut writer = Writer::new();
    let mode = PointerMode::Host;
    call::put_with(of, words, blob, mode, &mut writer, |_, to| to.fill(0)).unwrap();
    (of.operation.op, writer.into_bytes())
}

/// A call.
fn call(name: &str, words: &[u64], blob: &[u8], context: u64) -> Vec<u8> {
    let (op, arguments) = written(name, words, blob);
    raw_command(op, context, &arguments)
}

/// A call whose arguments and answer are data, with room for an answer of this size; returns the operation's code, and
/// the content of the answer.
fn long(
    client: &mut Client<'_>,
    (op, arguments): (u16, &[u8]),
    context: u64,
    out: u64,
) -> (CUresult, Option<Vec<u8>>) {
    let request = request::gpgpuLongCall {
        operation: op.into(),
        context,
        result: true,
        bytes: true,
    };
    let (code, said) = client.call(&request, 0, arguments, out);
    let content = said.map(|(reply, mut data)| {
        let rest = data.split_off(reply.bytes as usize);
        assert!(rest.iter().all(|byte| *byte == 0), "data of other commands");
        data
    });
    (code, content)
}

/// The library's status of a call.
fn said(client: &mut Client<'_>, bytes: &[u8]) -> u32 {
    let (said, _, status) = send(client, bytes);
    assert_eq!(said, device::OK);
    status.expect("a reply")
}

fn make(serial: u64, kind: i32) -> Vec<u8> {
    call(
        "cudnnBackendCreateDescriptor",
        &[kind as u64, id(serial)],
        &[],
        0,
    )
}

fn set_many(serial: u64, name: i32, of: i32, count: u64, elements: &[u8]) -> Vec<u8> {
    let words = [id(serial), name as u64, of as u64, count, 0, 0];
    call("cudnnBackendSetAttribute", &words, elements, 0)
}

fn set(serial: u64, name: i32, of: i32, words: &[u64]) -> Vec<u8> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    set_many(serial, name, of, words.len() as u64, &bytes)
}

fn set_one(serial: u64, name: i32, of: i32, value: i32) -> Vec<u8> {
    set_many(serial, name, of, 1, &value.to_le_bytes())
}

fn finalize(serial: u64) -> Vec<u8> {
    call("cudnnBackendFinalize", &[id(serial), 1], &[], 0)
}

fn get(serial: u64, name: i32, of: i32, requested: u64, targets: &[u64]) -> Vec<u8> {
    let bytes: Vec<u8> = targets.iter().flat_map(|word| word.to_le_bytes()).collect();
    let words = [id(serial), name as u64, of as u64, requested, 0, 1, 1];
    call("cudnnBackendGetAttribute", &words, &bytes, 0)
}

fn execute(handle: u64, plan: u64, operands: &[(i64, Place)], context: u64) -> Vec<u8> {
    let pack = Pack {
        operands: operands.to_vec(),
        workspace: Some(0),
    };
    let mut writer = Writer::new();
    pack.write(&mut writer);
    let words = [handle, id(plan), 0];
    call("cudnnBackendExecute", &words, &writer.into_bytes(), context)
}

/// A tensor of two by two numbers, or a number by value. Its serial number is also its number in the graph.
fn tensor(serial: u64, is_by_value: bool) -> Vec<Vec<u8>> {
    let size = if is_by_value { 1 } else { 2 };
    vec![
        make(serial, kind::TENSOR),
        set_one(serial, name::TENSOR_DATA_TYPE, element::DATA_TYPE, 0),
        set(serial, 902, element::INT64, &[size, size]),
        set(serial, 903, element::INT64, &[size, 1]),
        set(serial, name::TENSOR_ID, element::INT64, &[serial]),
        set_many(
            serial,
            name::TENSOR_IS_BY_VALUE,
            element::BOOLEAN,
            1,
            &[is_by_value.into()],
        ),
        finalize(serial),
    ]
}

/// The commands that make plan 9, a product of tensor 1 and value 2 into tensor 3.
fn product_plan(handle: u64) -> Vec<Vec<u8>> {
    let mut all = vec![make(4, 0), set_one(4, 0, 14, 1), finalize(4)];
    for serial in 1..4 {
        all.extend(tensor(serial, serial == 2));
    }
    all.push(make(5, 13));
    for (name, serial) in [(750, 4), (751, 1), (752, 2), (753, 3)] {
        all.push(set(5, name, element::DESCRIPTOR, &[id(serial)]));
    }
    all.extend([finalize(5), make(6, 15)]);
    all.extend([set(6, 801, element::DESCRIPTOR, &[id(5)]), finalize(6)]);
    all.extend([make(7, 4), set(7, 201, element::DESCRIPTOR, &[id(6)])]);
    all.extend([set_one(7, 200, 8, 0), finalize(7), make(8, 3)]);
    all.push(get(7, 202, element::DESCRIPTOR, 1, &[id(8)]));
    all.extend([make(9, kind::PLAN), set(9, 400, element::HANDLE, &[handle])]);
    all.extend([set(9, 401, element::DESCRIPTOR, &[id(8)]), finalize(9)]);
    all
}

fn new_handle(client: &mut Client<'_>, context: u64) -> u64 {
    let handle = Class::CudnnHandle.id(1);
    let made = said(client, &call("cudnnCreate", &[handle], &[], context));
    assert_eq!(made, status::SUCCESS);
    handle
}

/// Runs `body` for a client with a context and a handle of cuDNN, while another VM works.
fn with_handle(body: impl FnOnce(&mut Client<'_>, u64, u64)) {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let handle = new_handle(&mut client, context);
        body(&mut client, context, handle);
        client.close();
    });
}

/// Makes the plan of a product.
fn make_product_plan(client: &mut Client<'_>, handle: u64) {
    for (at, command) in product_plan(handle).iter().enumerate() {
        assert_eq!(said(client, command), status::SUCCESS, "command {at}");
    }
}

/// Addresses in place of values, and attributes that would make a value an address.
#[test]
fn pitfall_81_no_address_stands_for_a_value() {
    with_handle(|client, context, handle| {
        make_product_plan(client, handle);
        let at = client.alloc(BYTES, context);
        let (here, mut value) = (Place::Device(at), [0; VALUE_BYTES]);
        value[..4].copy_from_slice(&2_f32.to_le_bytes());
        let value = Place::Value(value);
        let nowhere = Place::Device(0x1000);
        let good = [(1, here), (2, value), (3, here)];
        for wrong in [
            vec![(1, here), (2, here), (3, here)],
            vec![(1, here), (2, nowhere), (3, here)],
            vec![(1, value), (2, value), (3, here)],
            vec![(1, here), (2, value), (3, value)],
            vec![(1, here), (2, value), (2, nowhere), (3, here)],
            vec![(2, nowhere)],
            vec![],
            vec![(1, here); 1 << 10],
        ] {
            let command = execute(handle, 9, &wrong, context);
            let status = said(client, &command);
            assert_eq!(status, status::BAD_PARAM, "{} tensors", wrong.len());
        }
        let command = execute(handle, 9, &good, context);
        assert_eq!(said(client, &command), status::SUCCESS);

        // A finalised descriptor cannot be changed.
        for (serial, name, is) in [
            (1, name::TENSOR_IS_BY_VALUE, 1),
            (2, name::TENSOR_IS_BY_VALUE, 0),
        ] {
            let command = set_many(serial, name, element::BOOLEAN, 1, &[is]);
            assert_eq!(said(client, &command), status::BAD_PARAM);
        }
        let command = set(2, name::TENSOR_ID, element::INT64, &[1]);
        assert_eq!(said(client, &command), status::BAD_PARAM);
        // A tensor that was by value while it was made counts as such, whatever it is in the end.
        for command in [
            make(20, kind::TENSOR),
            set(20, name::TENSOR_ID, element::INT64, &[1]),
            set_many(20, name::TENSOR_IS_BY_VALUE, element::BOOLEAN, 1, &[1]),
            set_many(20, name::TENSOR_IS_BY_VALUE, element::BOOLEAN, 1, &[0]),
        ] {
            assert_eq!(said(client, &command), status::SUCCESS);
        }
        // Variant packs are made by the worker, and other pointers are invalid.
        assert_eq!(said(client, &make(21, kind::PACK)), status::NOT_SUPPORTED);
        for (of, count) in [(element::POINTER, 1), (element::CHAR, 8)] {
            for name in [name::PACK_POINTERS, name::PACK_WORKSPACE, 405, 906] {
                let command = set_many(20, name, of, count, &[0x41; 8]);
                assert_eq!(said(client, &command), status::NOT_SUPPORTED);
            }
        }
        for of in [element::POINTER, element::HANDLE] {
            let command = get(9, 400, of, 1, &[]);
            assert_eq!(said(client, &command), status::NOT_SUPPORTED);
        }
        let command = execute(handle, 9, &good, context);
        assert_eq!(said(client, &command), status::SUCCESS);
    });
}

/// A plan's text makes plans with the same tensors by value, and no other text makes any. The text is longer than a
/// command.
#[test]
fn pitfall_81_a_text_makes_plans_with_the_values_of_its_own() {
    with_handle(|client, context, handle| {
        make_product_plan(client, handle);
        let read = |content: &[u8]| {
            let mut reader = Reader::new(content);
            let status: i32 = reader.get().unwrap();
            let results: Few<Blob, 16> = reader.get().unwrap();
            (status as u32, results.into_vec())
        };
        let get = |requested: u64| {
            let words = [id(9), 405, element::CHAR as u64, requested, 0, 1, 1];
            written("cudnnBackendGetAttribute", &words, &[])
        };
        let set = |serial: u64, text: &[u8]| {
            let (name, of, length) = (405, element::CHAR as u64, text.len() as u64);
            let words = [id(serial), name, of, length, 0, 0];
            written("cudnnBackendSetAttribute", &words, text)
        };
        let (op, arguments) = get(300_000);
        let asked = (op, &arguments[..]);
        let (code, content) = long(client, asked, 0, 400_000);
        assert_eq!(code, CUDA_SUCCESS);
        let (status, results) = read(&content.unwrap());
        assert_eq!((status, results.len()), (status::SUCCESS, 2));
        let text = results[1].0.clone();
        assert!(text.len() > 64 << 10, "{} bytes", text.len());
        // Too little room for the answer, and operations that belong to no library.
        for out in [0, 1, text.len() as u64] {
            let short = long(client, asked, 0, out);
            assert_eq!(short, (CUDA_ERROR_OUT_OF_MEMORY, None));
        }
        let own = <request::gpgpuLongCall as gpgpu_protocol::api::Request>::OP;
        for (op, arguments) in [
            (own, &arguments[..]),
            (u16::MAX, &[]),
            (op, &[]),
            (op, &[7; 9]),
        ] {
            let none = long(client, (op, arguments), 0, 400_000);
            assert_eq!(none, (CUDA_ERROR_INVALID_VALUE, None));
        }

        // An invalid context.
        let another = Class::CudnnHandle.id(2);
        let (op, arguments) = written("cudnnCreate", &[another], &[]);
        for none in [7, handle, u64::MAX] {
            let (code, content) = long(client, (op, &arguments), none, 64);
            assert_eq!(code, CUDA_SUCCESS);
            assert_ne!(read(&content.unwrap()).0, status::SUCCESS, "{none:#x}");
        }

        let mut status_of = |(op, arguments): (u16, Vec<u8>)| {
            let (code, content) = long(client, (op, &arguments), 0, 400_000);
            assert_eq!(code, CUDA_SUCCESS);
            read(&content.unwrap()).0
        };
        let make = |serial| {
            let words = [kind::PLAN as u64, id(serial)];
            written("cudnnBackendCreateDescriptor", &words, &[])
        };
        assert_eq!(status_of(make(30)), status::SUCCESS);
        let mut changed = text.clone();
        changed[40] ^= 1;
        // A part of a text that the library has returned is invalid, too.
        assert_eq!(status_of(get(text.len() as u64 / 2)), status::SUCCESS);
        for wrong in [&changed[..], &text[..text.len() / 2], b"{\"plan\": 0}", b""] {
            assert_eq!(status_of(set(30, wrong)), status::NOT_SUPPORTED);
        }
        assert_eq!(status_of(set(5, &text)), status::BAD_PARAM);
        assert_eq!(status_of(set(30, &text)), status::SUCCESS);
        let by_handle = self::set(30, 400, element::HANDLE, &[handle]);
        for command in [by_handle, finalize(30)] {
            assert_eq!(said(client, &command), status::SUCCESS);
        }
        let at = client.alloc(BYTES, context);
        let (here, value) = (Place::Device(at), Place::Value([0; VALUE_BYTES]));
        for (second, right) in [(here, status::BAD_PARAM), (value, status::SUCCESS)] {
            let command = execute(handle, 30, &[(1, here), (2, second), (3, here)], context);
            assert_eq!(said(client, &command), right);
        }
    });
}

/// Descriptors that contain themselves or each other, invalid ids, and lengths that do not match the data.
#[test]
fn pitfall_63_descriptors_hold_finalised_parts_and_the_received_length() {
    with_handle(|client, context, handle| {
        for serial in [1, 2] {
            assert_eq!(said(client, &make(serial, 13)), status::SUCCESS);
        }
        for (serial, other) in [(1, 1), (1, 2), (2, 1)] {
            let command = set(serial, 751, element::DESCRIPTOR, &[id(other)]);
            assert_eq!(said(client, &command), status::DESCRIPTOR_TYPE);
        }
        // Of the right type, and not finalised.
        assert_eq!(said(client, &make(4, kind::TENSOR)), status::SUCCESS);
        let command = set(4, 913, element::DESCRIPTOR, &[id(4)]);
        assert_eq!(said(client, &command), status::NOT_FINALIZED);
        let command = set(1, 751, element::DESCRIPTOR, &[id(4)]);
        assert_eq!(said(client, &command), status::NOT_FINALIZED);
        // An attribute that does not take descriptors.
        let command = set(1, 902, element::DESCRIPTOR, &[id(4)]);
        assert_eq!(said(client, &command), status::NOT_SUPPORTED);
        for none in [0, id(3), handle ^ 0x100, context, 7, u64::MAX] {
            for of in [element::DESCRIPTOR, element::HANDLE] {
                let command = set(1, 751, of, &[none]);
                assert_eq!(said(client, &command), status::BAD_PARAM, "{none:#x}");
            }
        }
        // An id belongs to only one descriptor.
        let (said_twice, code, _) = send(client, &make(1, 13));
        assert_eq!((said_twice, code), (device::OK, CUDA_ERROR_INVALID_VALUE));
        for count in [0, 2, 1 << 24, 1 << 40, 1 << 61, u64::MAX] {
            let command = set_many(1, 700, element::INT64, count, &[0; 8]);
            assert_ne!(said(client, &command), status::SUCCESS, "{count:#x}");
            let command = get(1, 700, element::INT64, count, &[]);
            assert_ne!(said(client, &command), status::SUCCESS, "{count:#x}");
            let command = get(1, 700, element::DESCRIPTOR, count, &[id(2)]);
            assert_ne!(said(client, &command), status::SUCCESS, "{count:#x}");
        }
        for of in [-1, 34, i32::MAX] {
            let command = set_many(1, 700, of, 1, &[0; 8]);
            assert_eq!(said(client, &command), status::ATTRIBUTE_TYPE);
        }
        let command = get(1, 700, element::DESCRIPTOR, 1, &[id(1)]);
        assert_eq!(said(client, &command), status::BAD_PARAM);
    });
}

/// Several threads of a guest make, set, finalise, read, execute and destroy the same descriptors.
#[test]
fn pitfall_63_descriptors_can_end_under_their_users() {
    with_handle(|client, context, handle| {
        let at = client.alloc(BYTES, context);
        let here = Place::Device(at);
        let good = [(1, here), (2, Place::Value([0; VALUE_BYTES])), (3, here)];
        let end = |serial| call("cudnnBackendDestroyDescriptor", &[id(serial)], &[], 0);
        let mut random = Random(8);
        for round in 0..100 {
            let mut streams: Vec<Vec<u8>> = vec![
                product_plan(handle).concat(),
                product_plan(handle).concat(),
                execute(handle, 9, &good, context),
                execute(handle, 9, &good, context),
                set(9, 401, element::DESCRIPTOR, &[id(8), id(7), id(6)]),
                get(7, 202, element::DESCRIPTOR, 1, &[id(8)]),
                finalize(5),
            ];
            streams.extend((1..10).map(end));
            in_any_order(client, streams, 4096, &mut random, round);
            // Clean up.
            for serial in 1..10 {
                send(client, &end(serial));
            }
        }
        make_product_plan(client, handle);
        let command = execute(handle, 9, &good, context);
        assert_eq!(said(client, &command), status::SUCCESS);
    });
}
