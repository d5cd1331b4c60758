// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Encodings of cuBLASLt's descriptors that no guest library writes, while another VM computes.

use gpgpu_protocol::{
    api::{Context, Stream, object_id, request},
    codec::Writer,
    layout::status as device,
    libraries::{
        Class, Library,
        call::{self, PointerMode},
        cublaslt::{
            attributes::{self, COLUMNS, LEADING, POINTER_MODE, ROWS},
            form::{
                ALGORITHM, Described, Formed, MAX_RESULTS, Operands, Scalar, put_check, put_plan,
                put_product, put_question,
            },
            status,
        },
    },
};

use crate::{
    client::{self, Client, raw_command},
    guest::Guest,
    host::Random,
    libraries::{BYTES, beside, check_product, create, in_any_order, send, start},
    vmm,
};

/// Rows and columns of the matrices.
const N: u64 = 16;
/// The scalars of a product that adds nothing.
const SCALARS: [f32; 2] = [1.0, 0.0];

fn packed(class: attributes::Class, values: &[(u16, u64)]) -> Vec<u8> {
    let mut packed = class.defaults().to_vec();
    for (number, value) in values {
        assert!(class.write(&mut packed, *number, *value));
    }
    packed
}

/// A product of square matrices of single precision.
struct Product {
    operation: Vec<u8>,
    layout: Vec<u8>,
}

impl Product {
    fn new(mode: u64) -> Self {
        let values = [(ROWS, N), (COLUMNS, N), (LEADING, N)];
        Self {
            operation: packed(
                attributes::Class::Operation,
                &[(0, 68), (POINTER_MODE, mode)],
            ),
            layout: packed(attributes::Class::Layout, &values),
        }
    }

    fn written(&self, put: impl FnOnce(&mut Formed<'_>, &Described<'_, Vec<u8>>)) -> Vec<u8> {
        let mut writer = Writer::new();
        let described = Described {
            operation: &self.operation,
            emulation: None,
            layouts: [&self.layout; 4],
        };
        put(&mut Formed::new(0, &mut writer), &described);
        writer.into_bytes()
    }

    fn product(
        &self,
        at: [u64; 3],
        scalars: [Scalar; 2],
        algorithm: Option<[u8; ALGORITHM]>,
    ) -> Vec<u8> {
        let operands = operands(at, scalars);
        self.written(|sink, described| {
            put_product(sink, described, algorithm.as_ref(), &operands);
        })
    }

    fn plan(&self) -> Vec<u8> {
        self.written(|sink, described| put_plan(sink, described, None))
    }
}

fn operands([a, b, c]: [u64; 3], scalars: [Scalar; 2]) -> Operands {
    Operands {
        scalars,
        matrices: [a, b, c, c],
        workspace: (0, 0),
    }
}

/// The content of a product by a plan.
fn by_plan(at: [u64; 3], scalars: [Scalar; 2]) -> Vec<u8> {
    let mut writer = Writer::new();
    operands(at, scalars).put(&mut Formed::new(0, &mut writer));
    writer.into_bytes()
}

fn here(value: f32) -> Scalar {
    Scalar::Here([value.to_bits().into(), 0])
}

fn command(name: &str, words: &[u64], blob: &[u8], context: u64) -> Vec<u8> {
    let of = Library::CublasLt.find(name);
    let mut writer = Writer::new();
    call::put_with(of, words, blob, PointerMode::Host, &mut writer, |_, _| {}).unwrap();
    raw_command(of.operation.op, context, &writer.into_bytes())
}

/// The library's status of a call that the worker executes.
fn lt(client: &mut Client<'_>, name: &str, words: &[u64], blob: &[u8], context: u64) -> u32 {
    let (said, _, status) = send(client, &command(name, words, blob, context));
    assert_eq!(said, device::OK, "{name}");
    status.unwrap_or_else(|| panic!("{name} has no reply"))
}

/// A client with a handle of each library, and memory for a product.
struct Attacker<'a> {
    client: Client<'a>,
    context: u64,
    /// Its handle of cuBLAS.
    blas: u64,
    /// Its handle of cuBLASLt.
    own: u64,
    /// Its matrices.
    at: [u64; 3],
}

impl<'a> Attacker<'a> {
    fn new(guest: &'a mut Guest) -> Self {
        let mut client = Client::open(guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let blas = create(&mut client, 1, context);
        let mut attacker = Self {
            client,
            context,
            blas,
            own: Class::CublasLtHandle.id(1),
            at,
        };
        let made = attacker.lt("cublasLtCreate", &[attacker.own], &[]);
        assert_eq!(made, status::SUCCESS);
        attacker
    }

    fn lt(&mut self, name: &str, words: &[u64], blob: &[u8]) -> u32 {
        lt(&mut self.client, name, words, blob, self.context)
    }

    fn multiply(&mut self, handle: u64, stream: u64, blob: &[u8]) -> u32 {
        self.lt("cublasLtMatmul", &[handle, 0, stream], blob)
    }

    /// A product with scalars at host addresses.
    fn good(&self) -> Vec<u8> {
        Product::new(0).product(self.at, SCALARS.map(here), None)
    }
}

/// Attacks, and checks that the client's handles compute and are destroyed as before.
fn attack_with(attack: impl FnOnce(&mut Attacker<'_>)) {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut attacker = Attacker::new(&mut guest);
        attack(&mut attacker);
        let Attacker {
            blas,
            own,
            at,
            context,
            ..
        } = attacker;
        check_product(&mut attacker.client, blas, at, context, 1);
        let ended = attacker.lt("cublasLtDestroy", &[own], &[]);
        assert_eq!(ended, status::SUCCESS);
        let good = attacker.good();
        let said = attacker.multiply(own, 0, &good);
        assert_eq!(said, status::NOT_INITIALIZED);
        attacker.client.close();
    });
}

/// Replaces some words of `good`, but none of the last `keep`, by words of `pool`.
fn spoil(random: &mut Random, good: &[u8], keep: usize, pool: &[u64]) -> Vec<u8> {
    let mut blob = good.to_vec();
    for _ in 0..=random.below(3) {
        let place = 8 * random.below((blob.len() / 8 - keep) as u64) as usize;
        let value = pool[random.below(pool.len() as u64) as usize];
        blob[place..place + 8].copy_from_slice(&value.to_le_bytes());
    }
    blob
}

/// Handles that are invalid or destroyed, and streams of other contexts.
#[test]
fn pitfall_81_a_product_has_a_handle_and_a_stream_of_its_context() {
    attack_with(|attacker| {
        let (context, blas, own) = (attacker.context, attacker.blas, attacker.own);
        let other = attacker.client.create_context(2, 0);
        let stream = attacker.client.stream(1, context);
        let foreign = attacker.client.stream(2, other);
        let good = attacker.good();
        for handle in [blas, own] {
            for stream in [0, stream] {
                let said = attacker.multiply(handle, stream, &good);
                assert_eq!(said, status::SUCCESS);
            }
            for none in [foreign, handle, context, 7, u64::MAX] {
                let said = attacker.multiply(handle, none, &good);
                assert_ne!(said, status::SUCCESS, "{none:#x}");
            }
        }
        let never = [Class::CublasHandle, Class::CublasLtHandle].map(|class| class.id(77));
        for none in [
            0,
            1,
            stream,
            context,
            never[0],
            never[1],
            own ^ 0x10,
            u64::MAX,
        ] {
            let said = attacker.multiply(none, 0, &good);
            assert_eq!(said, status::NOT_INITIALIZED, "{none:#x}");
        }

        // A context that is destroyed while it has a handle.
        let far = Class::CublasLtHandle.id(2);
        let made = lt(&mut attacker.client, "cublasLtCreate", &[far], &[], other);
        assert_eq!(made, status::SUCCESS);
        let end = request::cuCtxDestroy_v2 { ctx: other };
        attacker.client.works(&end, 0, &[], 0);
        let said = attacker.multiply(far, 0, &good);
        assert_eq!(said, status::NOT_INITIALIZED);
        for id in [
            own,
            blas,
            object_id::<Stream>(9),
            object_id::<Context>(9),
            0,
        ] {
            let said = attacker.lt("cublasLtCreate", &[id], &[]);
            assert_eq!(said, status::INVALID_VALUE, "{id:#x}");
        }
    });
}

/// Descriptors of any length and with any words, scalars at host addresses, and invalid algorithms.
#[test]
fn pitfall_81_invalid_products_are_refused() {
    attack_with(|attacker| {
        let (own, at) = (attacker.own, attacker.at);
        let good = attacker.good();
        for length in 0..good.len() + 24 {
            let mut bytes = good.clone();
            bytes.resize(length, 0);
            let right = match length == good.len() {
                true => status::SUCCESS,
                false => status::INVALID_VALUE,
            };
            let said = attacker.multiply(own, 0, &bytes);
            assert_eq!(said, right, "{length} bytes");
        }
        // Scalars at other places than the mode says, and invalid modes.
        let at_host = Scalar::At(0x7fff_0000_0000);
        let scalars = SCALARS.map(here);
        for (mode, scalars) in [
            (0, [at_host, scalars[1]]),
            (0, [scalars[0], at_host]),
            (1, scalars),
            (3, [scalars[0]; 2]),
            (4, [Scalar::At(at[0]), at_host]),
            (5, scalars),
            (0xffff_ffff, [at_host; 2]),
        ] {
            let blob = Product::new(mode).product(at, scalars, None);
            let said = attacker.multiply(own, 0, &blob);
            assert_eq!(said, status::INVALID_VALUE, "{mode}");
        }
        for byte in [0, 1, 0xff] {
            let blob = Product::new(0).product(at, scalars, Some([byte; ALGORITHM]));
            let said = attacker.multiply(own, 0, &blob);
            assert_eq!(said, status::NOT_SUPPORTED);
        }
        // Small words, which the stand-in may accept or not, so that what it accepts is in its memory. Addresses do not
        // change.
        let mut random = Random(7);
        for _ in 0..2000 {
            let blob = spoil(&mut random, &good, 6, &[0, 1, 2, 3, 8, 38, 41, 64]);
            attacker.multiply(own, 0, &blob);
        }
    });
}

/// Queries with any words, for no or too many algorithms, and invalid algorithms.
#[test]
fn pitfall_81_queries_of_invalid_algorithms_are_refused() {
    attack_with(|attacker| {
        let (own, at) = (attacker.own, attacker.at);
        let preference = packed(attributes::Class::Preference, &[]);
        let question = Product::new(0).written(|sink, described| {
            put_question(sink, described, Some(&preference), 4, &[]);
        });
        // Any words, because the stand-in only reads them.
        let mut random = Random(7);
        let pool = [0, 1, 4, 1 << 31, 1 << 32, u64::MAX, at[0], own];
        for _ in 0..2000 {
            let blob = spoil(&mut random, &question, 0, &pool);
            attacker.lt("cublasLtMatmulAlgoGetHeuristic", &[own, 0, 1], &blob);
        }
        for (wanted, given, is_good) in [
            (1, 0, true),
            (MAX_RESULTS as u64, 0, true),
            (MAX_RESULTS as u64 + 1, 0, false),
            (0, 0, false),
            (u64::MAX, 0, false),
            (1, 2, false),
        ] {
            let given = vec![[0x11; ALGORITHM]; given];
            let blob = Product::new(0).written(|sink, described| {
                put_question(sink, described, Some(&preference), wanted, &given);
            });
            let said = attacker.lt("cublasLtMatmulAlgoGetHeuristic", &[own, 0, 1], &blob);
            assert_eq!(said == status::SUCCESS, is_good, "{wanted}");
        }
        let check = Product::new(0)
            .written(|sink, described| put_check(sink, described, &[0x22; ALGORITHM]));
        for (words, blob) in [([own, 0, 1], &check[..]), ([own, 0, 0], &check[8..])] {
            let said = attacker.lt("cublasLtMatmulAlgoCheck", &words, blob);
            assert_eq!(said, status::INVALID_VALUE);
        }
        // The row determines the size of an algorithm.
        let of = Library::CublasLt.find("cublasLtMatmulAlgoConfigGetAttribute");
        for bytes in [0, 8, 56, 72, 1 << 12] {
            let mut writer = Writer::new();
            writer.word(1);
            writer.bytes(&vec![0; bytes]);
            writer.word(1);
            writer.word(1);
            let bytes = raw_command(of.operation.op, attacker.context, &writer.into_bytes());
            assert_eq!(send(&mut attacker.client, &bytes).0, device::MALFORMED);
        }
    });
}

/// Plans that are invalid, destroyed or an earlier process's, too many plans, and operands that do not match them.
#[test]
fn pitfall_81_invalid_plans_compute_nothing() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let blas = create(&mut client, 1, context);
        let own = Class::CublasLtHandle.id(1);
        let made = lt(&mut client, "cublasLtCreate", &[own], &[], context);
        assert_eq!(made, status::SUCCESS);
        let plan = |serial: u64| Class::CublasLtPlan.id(serial);
        let scalars = [here(1.0), here(0.0)];
        let (good, on_device) = (Product::new(0).plan(), Product::new(1).plan());
        let make = |client: &mut Client<'_>, id: u64, blob: &[u8]| {
            lt(client, "gpgpuLtPlan", &[id, 0], blob, context)
        };
        for (serial, blob) in [(1, &good), (2, &good), (3, &on_device)] {
            assert_eq!(make(&mut client, plan(serial), blob), status::SUCCESS);
        }
        for id in [plan(1), own, blas, 0, object_id::<Stream>(9)] {
            let again = make(&mut client, id, &good);
            assert_eq!(again, status::INVALID_VALUE, "{id:#x}");
        }
        for length in (0..good.len()).chain([good.len() + 8]) {
            let mut bytes = good.clone();
            bytes.resize(length, 0);
            let made = make(&mut client, plan(4), &bytes);
            assert_eq!(made, status::INVALID_VALUE, "{length} bytes");
        }

        let multiply = |client: &mut Client<'_>, handle: u64, plan: u64, blob: &[u8]| {
            let words = [handle, plan, 0, 0];
            lt(client, "gpgpuLtPlanMatmul", &words, blob, context)
        };
        let here_too = by_plan(at, scalars);
        let there = by_plan(at, [Scalar::At(at[0]); 2]);
        for handle in [own, blas] {
            for (plan, blob) in [
                (plan(1), &here_too),
                (plan(2), &here_too),
                (plan(3), &there),
            ] {
                let done = multiply(&mut client, handle, plan, blob);
                assert_eq!(done, status::SUCCESS);
            }
        }
        // GPGPU-DEV-69: the plan says where scalars are.
        for (plan, blob) in [(plan(1), &there), (plan(3), &here_too)] {
            let done = multiply(&mut client, own, plan, blob);
            assert_eq!(done, status::INVALID_VALUE);
        }
        for none in [0, 1, plan(4), plan(1 << 20), own, blas, context, u64::MAX] {
            let done = multiply(&mut client, own, none, &here_too);
            assert_eq!(done, status::INVALID_VALUE, "{none:#x}");
        }
        for length in (0..here_too.len()).chain([here_too.len() + 8]) {
            let mut bytes = here_too.clone();
            bytes.resize(length, 0);
            let done = multiply(&mut client, own, plan(1), &bytes);
            assert_eq!(done, status::INVALID_VALUE, "{length} bytes");
        }

        let forget =
            |client: &mut Client<'_>, id: u64| lt(client, "gpgpuLtPlanForget", &[id], &[], context);
        assert_eq!(forget(&mut client, plan(2)), status::SUCCESS);
        for none in [plan(2), plan(9), 0, u64::MAX] {
            assert_ne!(forget(&mut client, none), status::SUCCESS, "{none:#x}");
        }
        let done = multiply(&mut client, own, plan(2), &here_too);
        assert_eq!(done, status::INVALID_VALUE);

        // As many as one client may have, and then replacements.
        let most = Class::CublasLtPlan.most() as u64;
        let (first, last) = (10, 10 + most - 2);
        for serial in first..last {
            assert_eq!(make(&mut client, plan(serial), &good), status::SUCCESS);
        }
        assert_ne!(make(&mut client, plan(last), &good), status::SUCCESS);
        assert_eq!(forget(&mut client, plan(first)), status::SUCCESS);
        assert_eq!(make(&mut client, plan(last), &good), status::SUCCESS);
        check_product(&mut client, blas, at, context, 1);
        client.close();

        // The guest's next process has none of these plans.
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let blas = create(&mut client, 1, context);
        let words = [blas, plan(1), 0, 0];
        let done = lt(&mut client, "gpgpuLtPlanMatmul", &words, &here_too, context);
        assert_eq!(done, status::INVALID_VALUE);
        let ended = lt(&mut client, "gpgpuLtPlanForget", &[plan(1)], &[], context);
        assert_ne!(ended, status::SUCCESS);
        client.close();
    });
}

/// A thread of a guest destroys the plans that others compute with, their handle, and their context.
#[test]
fn pitfall_63_a_product_of_a_plan_can_lose_it() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let primary = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, primary));
        let (of, operands) = (Product::new(0).plan(), by_plan(at, [here(1.0), here(0.0)]));
        let mut random = Random(13);
        for round in 0..150 {
            let is_own = round % 4 == 0;
            let serial = 100 + round;
            let context = match is_own {
                true => client.create_context(serial, 0),
                false => primary,
            };
            let handle = Class::CublasLtHandle.id(serial);
            let plan = Class::CublasLtPlan.id(serial);
            let call = |name: &str, words: &[u64], blob: &[u8]| command(name, words, blob, context);
            let makes = [
                call("cublasLtCreate", &[handle], &[]),
                call("gpgpuLtPlan", &[plan, 0], &of),
            ]
            .concat();
            let multiply = call("gpgpuLtPlanMatmul", &[handle, plan, 0, 0], &operands);
            let forget = call("gpgpuLtPlanForget", &[plan], &[]);
            let mut streams = vec![
                makes.clone(),
                multiply.clone(),
                multiply.clone(),
                multiply,
                forget.clone(),
                call("cublasLtDestroy", &[handle], &[]),
                forget,
                makes,
            ];
            if is_own {
                let end = request::cuCtxDestroy_v2 { ctx: context };
                streams.push(client::command(&end, 0));
            }
            in_any_order(&mut client, streams, 512, &mut random, round);
            // Clean up: a plan outlives its handle.
            for (name, id) in [("cublasLtDestroy", handle), ("gpgpuLtPlanForget", plan)] {
                send(&mut client, &command(name, &[id], &[], primary));
            }
        }
        // A stale object is reported once.
        let sync = request::cuCtxSynchronize {};
        client.call(&sync, primary, &[], 0);
        let blas = create(&mut client, 1, primary);
        let plan = Class::CublasLtPlan.id(1);
        let made = lt(&mut client, "gpgpuLtPlan", &[plan, 0], &of, primary);
        assert_eq!(made, status::SUCCESS);
        let words = [blas, plan, 0, 0];
        let done = lt(&mut client, "gpgpuLtPlanMatmul", &words, &operands, primary);
        assert_eq!(done, status::SUCCESS);
        check_product(&mut client, blas, at, primary, 1);
        client.close();
    });
}
