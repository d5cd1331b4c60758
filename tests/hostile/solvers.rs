// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects of cuSOLVER and cuSPARSE in forms that no guest library sends, while another VM computes with cuBLAS.

use gpgpu_protocol::{
    api::request,
    codec::Writer,
    layout::status as device,
    libraries::{Class, Library, MAX_SCRATCH, SUCCESS, call::PointerMode, function},
};

use crate::{
    client::{Client, command, raw_command},
    host::Random,
    libraries::{beside, in_any_order, send, start, written},
    vmm,
};

/// The status of both libraries for a wrong argument.
const INVALID_VALUE: u32 = 3;
/// The size of an allocation.
const BYTES: usize = 4096;
/// Rows and columns.
const N: u64 = 8;
/// `CUDA_R_64F`.
const DOUBLE: u64 = 1;
/// Indices of 32 bits.
const INDEX: u64 = 2;

fn call_of(name: &str, words: &[u64], context: u64) -> Vec<u8> {
    let library = match name.starts_with("cusolver") {
        true => Library::Cusolver,
        false => Library::Cusparse,
    };
    let of = library.find(name);
    let arguments = written(of, words, PointerMode::Host).unwrap();
    raw_command(of.operation.op, context, &arguments)
}

/// The library's status of a call that the worker executes.
fn call(client: &mut Client<'_>, name: &str, words: &[u64], context: u64) -> u32 {
    let (said, _, status) = send(client, &call_of(name, words, context));
    assert_eq!(said, device::OK, "{name}");
    status.unwrap()
}

#[track_caller]
fn good(client: &mut Client<'_>, name: &str, words: &[u64], context: u64) {
    assert_eq!(call(client, name, words, context), SUCCESS, "{name}");
}

/// A generic factorisation with these options.
fn factor(handle: u64, params: u64, at: u64, room: u64) -> [u64; 12] {
    [
        handle, params, 0, N, DOUBLE, at, N, DOUBLE, at, 256, 1, room,
    ]
}

fn with_info(of: [u64; 12], info: u64) -> Vec<u64> {
    [&of[..], &[info]].concat()
}

/// An object of another class, another library's, a destroyed one, or none in place of an object.
#[test]
fn pitfall_63_objects_are_of_their_class_and_there() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let [at, info] = [(); 2].map(|()| client.alloc(BYTES, context));
        let id = |class: Class| class.id(1);
        for (name, class) in [
            ("cusolverDnCreate", Class::CusolverDn),
            ("cusolverDnCreateParams", Class::CusolverDnParams),
            ("cusolverDnCreateGesvdjInfo", Class::GesvdjInfo),
            ("cusolverDnCreateSyevjInfo", Class::SyevjInfo),
            ("cusparseCreate", Class::CusparseHandle),
            ("cusparseCreateMatDescr", Class::CusparseMatDescr),
        ] {
            good(&mut client, name, &[id(class)], context);
            // It cannot be made twice, nor with an id of another class.
            for twice in [id(class), id(class) ^ 1, 0, at] {
                assert_ne!(call(&mut client, name, &[twice], context), SUCCESS);
            }
        }
        let handle = id(Class::CusolverDn);
        let words = |params| with_info(factor(handle, params, at, 96), info);
        let params = id(Class::CusolverDnParams);
        good(&mut client, "cusolverDnXpotrf", &words(params), context);
        let never = Class::CusolverDnParams.id(9);
        for none in [
            handle,
            id(Class::GesvdjInfo),
            id(Class::SyevjInfo),
            id(Class::CusparseMatDescr),
            never,
            at,
            context,
            u64::MAX,
        ] {
            let said = call(&mut client, "cusolverDnXpotrf", &words(none), context);
            assert_eq!(said, INVALID_VALUE, "{none:#x}");
            for name in ["cusolverDnXgesvdjSetMaxSweeps", "cusparseSetMatType"] {
                let is_own = (name.contains("gesvdj") && none == id(Class::GesvdjInfo))
                    || (name.contains("Mat") && none == id(Class::CusparseMatDescr));
                let said = call(&mut client, name, &[none, 1], context);
                assert_eq!(said == SUCCESS, is_own, "{name} {none:#x}");
            }
            let ends = call(&mut client, "cusolverDnDestroyParams", &[none], context);
            assert_ne!(ends, SUCCESS, "{none:#x}");
        }
        good(&mut client, "cusolverDnDestroyParams", &[params], context);
        let said = call(&mut client, "cusolverDnXpotrf", &words(params), context);
        assert_eq!(said, INVALID_VALUE);
        // Its id is free again.
        good(&mut client, "cusolverDnCreateParams", &[params], context);
        good(&mut client, "cusolverDnXpotrf", &words(params), context);
        client.close();
    });
}

/// Host memory as work space: more than any client gets, and as much as a client may request.
#[test]
fn pitfall_81_memory_of_the_hosts_is_bounded() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let [at, info] = [(); 2].map(|()| client.alloc(BYTES, context));
        let [handle, params] = [Class::CusolverDn, Class::CusolverDnParams].map(|of| of.id(1));
        good(&mut client, "cusolverDnCreate", &[handle], context);
        good(&mut client, "cusolverDnCreateParams", &[params], context);
        let of = Library::Cusolver.find("cusolverDnXpotrf");
        let words = with_info(factor(handle, params, at, 96), info);
        let right = written(of, &words, PointerMode::Host).unwrap();
        // Every argument is a word of the request here.
        assert_eq!(right.len(), 8 * words.len());
        for bytes in [MAX_SCRATCH + 1, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX] {
            let mut wrong = right.clone();
            wrong[8 * 11..8 * 12].copy_from_slice(&bytes.to_le_bytes());
            let (said, ..) = send(&mut client, &raw_command(of.operation.op, context, &wrong));
            assert_eq!(said, device::MALFORMED, "{bytes:#x}");
        }
        let mut none = right.clone();
        none[8 * 11..8 * 12].copy_from_slice(&0_u64.to_le_bytes());
        let (said, _, status) = send(&mut client, &raw_command(of.operation.op, context, &none));
        assert_eq!((said, status), (device::OK, Some(INVALID_VALUE)));
        let (said, _, status) = send(&mut client, &raw_command(of.operation.op, context, &right));
        assert_eq!((said, status), (device::OK, Some(SUCCESS)));
        client.close();
    });
}

/// A thread of a guest makes, sets and destroys the descriptors that others compute with, and their context.
#[test]
fn pitfall_63_a_descriptor_can_end_under_its_users() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let primary = client.context();
        let at = client.alloc(BYTES, primary);
        let mut random = Random(7);
        for round in 0..150 {
            let is_own = round % 4 == 0;
            let serial = 100 + round;
            let context = match is_own {
                true => client.create_context(serial, 0),
                false => primary,
            };
            let id = |class: Class| class.id(serial);
            let [handle, a, x, y, product] = [
                Class::CusparseHandle,
                Class::SpMat,
                Class::DnVec,
                Class::DnVec,
                Class::SpGemm,
            ]
            .map(id);
            let call = |name: &str, words: &[u64]| call_of(name, words, context);
            let make_matrix = [a, N, N, 0, at, at, at, INDEX, INDEX, 0, DOUBLE];
            let makes = [
                call("cusparseCreate", &[handle]),
                call("cusparseCreateCsr", &make_matrix),
                call("cusparseCreateDnVec", &[x, N, at, DOUBLE]),
                call("cusparseSpGEMM_createDescr", &[product]),
            ]
            .concat();
            let one = 0x3ff0;
            let multiply = [handle, 0, one, a, x, one, y, DOUBLE, 0, at];
            let square = [handle, 0, 0, one, a, a, one, a, DOUBLE, 0, product, one, at];
            let mut streams = vec![
                makes.clone(),
                call("cusparseSpMV", &multiply),
                call("cusparseSpMV", &multiply),
                call("cusparseSpGEMM_compute", &square),
                call("cusparseSpMatSetValues", &[a, at]),
                call("cusparseSpMatGetSize", &[a, 1, 1, 1]),
                call("cusparseDestroySpMat", &[a]),
                call("cusparseDestroyDnVec", &[x]),
                call("cusparseSpGEMM_destroyDescr", &[product]),
                call("cusparseDestroySpMat", &[a]),
                makes,
            ];
            if is_own {
                streams.push(command(&request::cuCtxDestroy_v2 { ctx: context }, 0));
            }
            in_any_order(&mut client, streams, 512, &mut random, round);
            // Clean up.
            for (name, id) in [
                ("cusparseDestroySpMat", a),
                ("cusparseDestroyDnVec", x),
                ("cusparseSpGEMM_destroyDescr", product),
                ("cusparseDestroy", handle),
            ] {
                send(&mut client, &call(name, &[id]));
            }
        }
        // A stale object is reported once.
        let sync = request::cuCtxSynchronize {};
        client.call(&sync, primary, &[], 0);
        let [handle, matrix] = [Class::CusparseHandle.id(1), Class::SpMat.id(1)];
        good(&mut client, "cusparseCreate", &[handle], primary);
        let words = [matrix, N, N, 0, at, at, at, INDEX, INDEX, 0, DOUBLE];
        good(&mut client, "cusparseCreateCsr", &words, primary);
        good(
            &mut client,
            "cusparseSpMatGetSize",
            &[matrix, 1, 1, 1],
            primary,
        );
        client.close();
    });
}

/// Attributes and other arrays whose length is another argument.
#[test]
fn pitfall_81_arrays_are_as_long_as_is_said() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = client.alloc(BYTES, context);
        let matrix = Class::SpMat.id(1);
        let words = [matrix, N, N, 0, at, at, at, INDEX, INDEX, 0, DOUBLE];
        good(&mut client, "cusparseCreateCsr", &words, context);
        let op = Library::Cusparse
            .find("cusparseSpMatSetAttribute")
            .operation
            .op;
        assert!(function(op).is_some());
        for (said_to_be, is) in [
            (4_u64, 3_usize),
            (4, 5),
            (0, 4),
            (u64::MAX, 4),
            (1025, 1025),
        ] {
            let mut writer = Writer::new();
            writer.word(matrix);
            writer.word(0);
            writer.bytes_with(is, |to| to.fill(0));
            writer.word(said_to_be);
            let bytes = raw_command(op, context, &writer.into_bytes());
            let (said, ..) = send(&mut client, &bytes);
            assert_eq!(said, device::MALFORMED, "{said_to_be} {is}");
        }
        good(
            &mut client,
            "cusparseSpMatSetAttribute",
            &[matrix, 0, 1 << 32, 4],
            context,
        );
        client.close();
    });
}
