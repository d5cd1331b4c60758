// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Encodings of cuSPARSELt's descriptors and plans that no guest library writes, while another VM computes with cuBLAS.

use gpgpu_protocol::{
    api::request,
    codec::Writer,
    layout::status as device,
    libraries::{
        Class, Library, SUCCESS,
        call::{self, PointerMode},
        cusparselt::{
            attributes::{ALPHA_VECTOR, BIAS},
            form::{DENSE, Form, Matrix, Product, Scalar, Selection},
            status,
        },
    },
};

use crate::{
    client::{Client, command, raw_command},
    guest::Guest,
    host::Random,
    libraries::{BYTES, beside, in_any_order, send, start},
    vmm,
};

/// Rows and columns.
const N: i64 = 16;
/// `CUDA_R_32F`, `CUSPARSE_ORDER_ROW` and `CUSPARSE_COMPUTE_32F`.
const SINGLE: i32 = 0;
const BY_ROWS: i32 = 2;
const COMPUTE: i32 = 2;

const ONE: Scalar = Scalar::Here(0x3f80_0000);
const ZERO: Scalar = Scalar::Here(0);

fn matrix(sparsity: u32) -> Matrix {
    Matrix {
        rows: N,
        columns: N,
        leading: N,
        alignment: 16,
        data: SINGLE,
        order: BY_ROWS,
        sparsity,
        ..Matrix::default()
    }
}

/// A selection for the product of a sparse and a dense matrix.
fn selection() -> Selection {
    let dense = matrix(DENSE);
    Selection {
        product: Product {
            matrices: [matrix(0), dense, dense, dense],
            compute: COMPUTE,
            ..Product::default()
        },
        ..Selection::default()
    }
}

fn call_of(name: &str, words: &[u64], blob: &[u8], context: u64) -> Vec<u8> {
    let of = Library::CusparseLt.find(name);
    let mut writer = Writer::new();
    call::put_with(of, words, blob, PointerMode::Host, &mut writer, |_, _| {}).unwrap();
    raw_command(of.operation.op, context, &writer.into_bytes())
}

/// The library's status of a call that the worker executes.
fn lt(client: &mut Client<'_>, name: &str, words: &[u64], blob: &[u8], context: u64) -> u32 {
    let (said, _, status) = send(client, &call_of(name, words, blob, context));
    assert_eq!(said, device::OK, "{name}");
    status.unwrap_or_else(|| panic!("{name} has no reply"))
}

fn handle(serial: u64) -> u64 {
    Class::CusparseLtHandle.id(serial)
}

fn plan(serial: u64) -> u64 {
    Class::CusparseLtPlan.id(serial)
}

/// The words of a product: its handle, its plan, and the addresses of its factors and its result.
fn product(handle: u64, plan: u64, [a, d]: [u64; 2]) -> [u64; 9] {
    [handle, plan, 0, a, a, d, d, 0, 0]
}

/// Compresses a matrix of zeros to multiply with; returns its address, and one for the result.
fn prepare(client: &mut Client<'_>, context: u64) -> [u64; 2] {
    let [dense, at, buffer, to] = [(); 4].map(|()| client.alloc(BYTES, context));
    let words = [handle(1), 0, 1, 0, dense, at, buffer, 0];
    let blob = matrix(0).bytes();
    let compressed = lt(client, "cusparseLtSpMMACompress2", &words, &blob, context);
    assert_eq!(compressed, SUCCESS);
    [at, to]
}

/// A client with two handles, and memory for a product.
struct Attacker<'a> {
    client: Client<'a>,
    context: u64,
    /// The addresses of the compressed matrix and the result.
    places: [u64; 2],
}

impl<'a> Attacker<'a> {
    fn new(guest: &'a mut Guest) -> Self {
        let mut client = Client::open(guest);
        let context = client.context();
        for serial in [1, 2] {
            let words = [handle(serial)];
            let made = lt(&mut client, "cusparseLtInit", &words, &[], context);
            assert_eq!(made, SUCCESS);
        }
        let places = prepare(&mut client, context);
        Self {
            client,
            context,
            places,
        }
    }

    fn lt(&mut self, name: &str, words: &[u64], blob: &[u8]) -> u32 {
        lt(&mut self.client, name, words, blob, self.context)
    }

    /// Makes a plan from the first handle.
    fn make(&mut self, plan: u64, blob: &[u8]) -> u32 {
        self.lt("cusparseLtMatmulPlanInit", &[handle(1), plan, 0], blob)
    }

    fn multiply(&mut self, handle: u64, plan: u64, scalars: [Scalar; 2]) -> u32 {
        let words = product(handle, plan, self.places);
        self.lt("cusparseLtMatmul", &words, &scalars.bytes())
    }
}

/// Attacks with a good plan, the first one, and checks that it computes as before.
fn attack_with(attack: impl FnOnce(&mut Attacker<'_>)) {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut attacker = Attacker::new(&mut guest);
        let good = selection().bytes();
        assert_eq!(attacker.make(plan(1), &good), SUCCESS);
        // It cannot be made twice.
        assert_ne!(attacker.make(plan(1), &good), SUCCESS);
        attack(&mut attacker);
        let said = attacker.multiply(handle(1), plan(1), [ONE, ZERO]);
        assert_eq!(said, SUCCESS);
        attacker.client.close();
    });
}

/// Scalars at host addresses, and plans that are invalid or another handle's.
#[test]
fn pitfall_81_structured_products_of_other_plans_and_scalars_are_refused() {
    attack_with(|attacker| {
        let context = attacker.context;
        let [at, _] = attacker.places;
        let mut vectors = selection();
        vectors.product.set.set(ALPHA_VECTOR, 1);
        let vectors = vectors.bytes();
        assert_eq!(attacker.make(plan(2), &vectors), SUCCESS);
        assert_ne!(attacker.make(plan(2), &vectors), SUCCESS);
        assert_eq!(attacker.multiply(handle(1), plan(1), [ONE, ZERO]), SUCCESS);
        assert_eq!(
            attacker.multiply(handle(1), plan(2), [Scalar::At(at), ZERO]),
            SUCCESS
        );
        // An address where the library reads host memory, and a value where it reads device memory.
        for address in [at, 0x1000, 0x7fff_ffff_f000, u64::MAX, 0] {
            for scalars in [[Scalar::At(address), ZERO], [ONE, Scalar::At(address)]] {
                assert_eq!(
                    attacker.multiply(handle(1), plan(1), scalars),
                    status::INVALID_VALUE
                );
            }
            let scalars = [Scalar::At(at), Scalar::At(address)];
            assert_eq!(
                attacker.multiply(handle(1), plan(2), scalars),
                status::INVALID_VALUE
            );
        }
        assert_eq!(
            attacker.multiply(handle(1), plan(2), [ONE, ZERO]),
            status::INVALID_VALUE
        );
        assert_eq!(
            attacker.multiply(handle(2), plan(1), [ONE, ZERO]),
            status::INVALID_VALUE
        );
        for none in [
            0,
            1,
            handle(1),
            plan(9),
            Class::SpMat.id(1),
            plan(1) ^ 2,
            at,
            context,
            u64::MAX,
        ] {
            assert_ne!(
                attacker.multiply(handle(1), none, [ONE, ZERO]),
                SUCCESS,
                "{none:#x}"
            );
            let is_it = none == handle(1);
            let said = attacker.multiply(none, plan(1), [ONE, ZERO]);
            assert_eq!(said == SUCCESS, is_it, "{none:#x}");
        }
    });
}

/// Descriptors of any length and with any words.
#[test]
fn pitfall_81_invalid_structured_descriptors_are_refused() {
    attack_with(|attacker| {
        let good = selection().bytes();
        let mut make = |blob: &[u8]| {
            let made = attacker.make(plan(3), blob);
            if made == SUCCESS {
                let ended = attacker.lt("cusparseLtMatmulPlanDestroy", &[plan(3)], &[]);
                assert_eq!(ended, SUCCESS);
            }
            made
        };
        for end in (0..good.len()).step_by(4) {
            assert_eq!(make(&good[..end]), status::INVALID_VALUE, "{end}");
        }
        assert_eq!(make(&[&good[..], &[0; 8]].concat()), status::INVALID_VALUE);
        assert_eq!(make(&[0xff; 4096]), status::INVALID_VALUE);
        let mut random = Random(5);
        for round in 0..2000 {
            let mut wrong = selection();
            wrong.product.set.set(BIAS, random.below(u64::MAX));
            let mut wrong = wrong.bytes();
            for _ in 0..1 + random.below(3) {
                let place = random.below(wrong.len() as u64 / 4) as usize * 4;
                let value = match random.below(4) {
                    0 => u32::MAX,
                    1 => i32::MIN as u32,
                    2 => random.below(40) as u32,
                    _ => random.below(1 << 32) as u32,
                };
                wrong[place..place + 4].copy_from_slice(&value.to_le_bytes());
            }
            let made = make(&wrong);
            assert!(made <= status::NOT_SUPPORTED, "{round}: {made}");
        }
        assert_eq!(make(&good), SUCCESS);
    });
}

/// A thread of a guest destroys the plans that others compute with, their handle, and their context.
#[test]
fn pitfall_63_a_plan_can_end_under_its_users() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let primary = client.context();
        let first = lt(&mut client, "cusparseLtInit", &[handle(1)], &[], primary);
        assert_eq!(first, SUCCESS);
        let places = prepare(&mut client, primary);
        let [at, _] = places;
        let (of, scalars) = (selection().bytes(), [ONE, ZERO].bytes());
        let mut random = Random(11);
        for round in 0..150 {
            let is_own = round % 4 == 0;
            let serial = 100 + round;
            let context = match is_own {
                true => client.create_context(serial, 0),
                false => primary,
            };
            let (handle, plan) = (handle(serial), plan(serial));
            let call = |name: &str, words: &[u64], blob: &[u8]| call_of(name, words, blob, context);
            let words = product(handle, plan, places);
            let makes = [
                call("cusparseLtInit", &[handle], &[]),
                call("cusparseLtMatmulPlanInit", &[handle, plan, 0], &of),
            ]
            .concat();
            let search = [&words[..], &[1]].concat();
            let mut streams = vec![
                makes.clone(),
                call("cusparseLtMatmul", &words, &scalars),
                call("cusparseLtMatmul", &words, &scalars),
                call("cusparseLtMatmulSearch", &search, &scalars),
                call(
                    "cusparseLtSpMMACompress",
                    &[handle, plan, at, at, at, 0],
                    &[],
                ),
                call("cusparseLtMatmulGetWorkspace", &[handle, 0, 1], &of),
                call("cusparseLtMatmulPlanDestroy", &[plan], &[]),
                call("cusparseLtDestroy", &[handle], &[]),
                call("cusparseLtMatmulPlanDestroy", &[plan], &[]),
                makes,
            ];
            if is_own {
                streams.push(command(&request::cuCtxDestroy_v2 { ctx: context }, 0));
            }
            in_any_order(&mut client, streams, 512, &mut random, round);
            // Clean up: a plan outlives its handle.
            for (name, id) in [
                ("cusparseLtDestroy", handle),
                ("cusparseLtMatmulPlanDestroy", plan),
            ] {
                send(&mut client, &call_of(name, &[id], &[], primary));
            }
        }
        // A stale object is reported once.
        let sync = request::cuCtxSynchronize {};
        client.call(&sync, primary, &[], 0);
        let words = [handle(1), plan(1), 0];
        assert_eq!(
            lt(
                &mut client,
                "cusparseLtMatmulPlanInit",
                &words,
                &of,
                primary
            ),
            SUCCESS
        );
        let words = product(handle(1), plan(1), places);
        assert_eq!(
            lt(&mut client, "cusparseLtMatmul", &words, &scalars, primary),
            SUCCESS
        );
        client.close();
    });
}
