// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG's objects, JPEGs and batches in forms that no guest library sends, while another VM computes with cuBLAS.

use gpgpu_protocol::{
    codec::Writer,
    layout::status as device,
    libraries::{
        Class, Function, Kind, Library, SUCCESS,
        call::{self, PointerMode},
        nvjpeg::{
            MOST_IMAGES, MOST_KEPT,
            form::{Batch, Image},
            status,
        },
    },
};

use crate::{
    client::{Client, raw_command},
    guest::Guest,
    host::Random,
    libraries::{BYTES, beside, in_any_order, send, start},
    vmm,
};

/// A JPEG of 24 by 16 pixels.
const JPEG: &[u8] = include_bytes!("../libraries/thirds.jpg");
/// `NVJPEG_OUTPUT_RGB`.
const RGB: u64 = 3;

fn call_of(name: &str, words: &[u64], blob: &[u8], context: u64) -> Vec<u8> {
    written(Library::Nvjpeg.find(name), words, blob, context)
}

/// A call whose values at host addresses are zeros.
fn written(of: &Function, words: &[u64], blob: &[u8], context: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    let put = call::put_with(of, words, blob, PointerMode::Host, &mut writer, |_, _| {});
    put.unwrap();
    raw_command(of.operation.op, context, &writer.into_bytes())
}

/// A client with the first object of each class.
struct Attacker<'a> {
    client: Client<'a>,
    context: u64,
    /// Device memory.
    at: u64,
}

impl<'a> Attacker<'a> {
    fn new(guest: &'a mut Guest) -> Self {
        let mut client = Client::open(guest);
        let context = client.context();
        let at = client.alloc(BYTES, context);
        let mut attacker = Self {
            client,
            context,
            at,
        };
        for class in Class::ALL
            .iter()
            .filter(|of| of.library() == Library::Nvjpeg)
        {
            assert_eq!(attacker.make(*class, 1), SUCCESS, "{class:?}");
        }
        attacker
    }

    fn call(&mut self, name: &str, words: &[u64], blob: &[u8]) -> u32 {
        let (said, _, status) = send(&mut self.client, &call_of(name, words, blob, self.context));
        assert_eq!(said, device::OK, "{name}");
        status.unwrap_or_else(|| panic!("{name} has no reply"))
    }

    /// Makes an object.
    fn make(&mut self, class: Class, serial: u64) -> u32 {
        let makes = |of: &&&Function| of.makes().is_some_and(|(_, of)| of == class);
        let of = Library::Nvjpeg.functions().iter().find(makes).unwrap();
        let words: Vec<u64> = of
            .kinds
            .iter()
            .map(|kind| match kind {
                Kind::New(class) => class.id(serial),
                Kind::Handle(class) => class.id(1),
                Kind::I64 => JPEG.len() as u64,
                _ => 0,
            })
            .collect();
        self.call(of.operation.name, &words, &[])
    }

    fn tell(&mut self, images: u64) -> u32 {
        let words = [handle(), state(), images, 1, RGB];
        self.call("nvjpegDecodeBatchedInitialize", &words, &[])
    }

    fn decode(&mut self, batch: &Batch) -> u32 {
        let words = [handle(), state(), 0, 0, 0];
        self.call("nvjpegDecodeBatched", &words, &batch.bytes())
    }

    /// A batch with this number of images.
    fn batch(&self, images: usize) -> Batch {
        let image = Image {
            length: JPEG.len() as u64,
            destination: [self.at, self.at, self.at, 0, 24, 24, 24, 0],
            params: 0,
        };
        Batch {
            images: vec![image; images],
            data: JPEG.repeat(images),
        }
    }
}

fn handle() -> u64 {
    Class::NvjpegHandle.id(1)
}

fn state() -> u64 {
    Class::NvjpegState.id(1)
}

/// Attacks, and checks that a batch is decoded as before.
fn attack_with(attack: impl FnOnce(&mut Attacker<'_>)) {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut attacker = Attacker::new(&mut guest);
        attack(&mut attacker);
        assert_eq!(attacker.tell(2), SUCCESS);
        let good = attacker.batch(2);
        assert_eq!(attacker.decode(&good), SUCCESS);
        attacker.client.close();
    });
}

/// The library reads as many values as its state was initialised for.
#[test]
fn pitfall_81_batches_of_other_lengths_than_their_state_was_told_are_refused() {
    attack_with(|attacker| {
        let wrong = status::INVALID_PARAMETER;
        let one = attacker.batch(1);
        assert_eq!(attacker.decode(&one), wrong);
        for told in [0, MOST_IMAGES as u64 + 1, 1 << 31, u64::MAX] {
            assert_eq!(attacker.tell(told), wrong, "{told}");
            assert_eq!(attacker.decode(&one), wrong, "{told}");
        }
        assert_eq!(attacker.tell(3), SUCCESS);
        for images in [0, 1, 2, 4, 100] {
            let batch = attacker.batch(images);
            assert_eq!(attacker.decode(&batch), wrong, "{images}");
        }
        let good = attacker.batch(3);
        assert_eq!(attacker.decode(&good), SUCCESS);
        // Lengths that do not match the bytes.
        for length in [0, 1, JPEG.len() as u64 + 1, 1 << 40, u64::MAX / 3, u64::MAX] {
            let mut batch = good.clone();
            batch.images[1].length = length;
            assert_eq!(attacker.decode(&batch), wrong, "{length}");
        }
        let mut long = good.clone();
        long.data.push(0);
        assert_eq!(attacker.decode(&long), wrong);
        // Parameters where there should be none, and invalid ones.
        let [params, other] = [Class::NvjpegDecodeParams, Class::NvjpegStream].map(|of| of.id(1));
        let mut batch = good.clone();
        batch.images[2].params = params;
        assert_eq!(attacker.decode(&batch), wrong);
        let mut with = |ids: [u64; 3]| {
            for (image, id) in batch.images.iter_mut().zip(ids) {
                image.params = id;
            }
            let words = [handle(), state(), 0, 0, 0];
            attacker.call("nvjpegDecodeBatchedEx", &words, &batch.bytes())
        };
        assert_eq!(with([params; 3]), SUCCESS);
        for none in [0, 1, other, handle(), params + 0x100, u64::MAX] {
            assert_eq!(with([params, none, params]), wrong, "{none:#x}");
        }
    });
}

/// Bytes that were sent ahead can only be written within their room, and not after a call has taken them.
#[test]
fn pitfall_81_bytes_that_a_call_has_are_not_written_any_more() {
    attack_with(|attacker| {
        let wrong = status::INVALID_PARAMETER;
        let [bytes, stream] = [Class::NvjpegBytes, Class::NvjpegStream].map(|of| of.id(1));
        let fill = |attacker: &mut Attacker<'_>, at: u64, piece: &[u8]| {
            attacker.call("gpgpuJpegBytesFill", &[handle(), bytes, at, 0], piece)
        };
        let parse = |attacker: &mut Attacker<'_>, more: u64, blob: &[u8]| {
            let words = [handle(), 0, more, 0, 0, stream];
            attacker.call("nvjpegJpegStreamParse", &words, blob)
        };
        for at in [1, JPEG.len() as u64, 1 << 63, u64::MAX] {
            assert_eq!(fill(attacker, at, JPEG), wrong, "{at}");
        }
        assert_eq!(fill(attacker, 0, &JPEG[..100]), SUCCESS);
        assert_ne!(parse(attacker, bytes, &[]), SUCCESS);
        // The stream has taken them, and they are no JPEG.
        let said = attacker.call("nvjpegJpegStreamGetSamplePrecision", &[stream, 1], &[]);
        assert_eq!(said, wrong);
        assert_eq!(fill(attacker, 0, JPEG), wrong);
        assert_eq!(parse(attacker, 0, JPEG), SUCCESS);
        assert_eq!(fill(attacker, 0, JPEG), SUCCESS);
        assert_eq!(parse(attacker, bytes, &[]), SUCCESS);
        assert_eq!(parse(attacker, bytes, JPEG), wrong);
        assert_eq!(parse(attacker, stream, JPEG), wrong);
        assert_eq!(parse(attacker, 0, &[]), wrong);
        assert_eq!(attacker.call("gpgpuJpegBytesEnd", &[bytes], &[]), SUCCESS);
        let mut size = |serial: u64, length: u64| {
            let words = [handle(), Class::NvjpegBytes.id(serial), length];
            attacker.call("gpgpuJpegBytes", &words, &[])
        };
        for length in [0, MOST_KEPT + 1, u64::MAX] {
            assert_eq!(size(2, length), wrong, "{length}");
        }
        assert_eq!(size(2, MOST_KEPT / 2), SUCCESS);
        // The stream's bytes count too.
        assert_eq!(size(3, MOST_KEPT / 2), status::ALLOCATOR_FAILURE);
    });
}

/// Any words, with bytes that are JPEGs, batches or nothing.
#[test]
fn pitfall_81_any_calls_of_nvjpeg_cost_nobody_but_their_client() {
    attack_with(|attacker| {
        let mut random = Random(11);
        let functions = Library::Nvjpeg.functions();
        let mut batch = attacker.batch(2);
        let blobs = [
            Vec::new(),
            JPEG.to_vec(),
            JPEG[..JPEG.len() / 2].to_vec(),
            vec![0xff; 64],
            batch.bytes(),
            {
                batch.images[1].params = Class::NvjpegDecodeParams.id(1);
                batch.images[0].params = Class::NvjpegDecodeParams.id(2);
                batch.bytes()
            },
        ];
        let mut good = 0;
        for round in 0..6000 {
            let of = functions[random.below(functions.len() as u64) as usize];
            let words: Vec<u64> = of
                .kinds
                .iter()
                .map(|kind| match kind {
                    _ if random.below(40) == 0 => random.below(u64::MAX),
                    // The handle for the final check is kept.
                    Kind::Gone(Class::NvjpegHandle | Class::NvjpegState) => 0,
                    Kind::Handle(class) => class.id(1),
                    Kind::New(class) | Kind::Gone(class) | Kind::Object(class) => {
                        class.id(1 + random.below(3))
                    }
                    Kind::I32 | Kind::I64 => {
                        [0, 1, 2, 3, 16, 24, 0xc0, u64::MAX][random.below(8) as usize]
                    }
                    Kind::Stream => 0,
                    Kind::Out(_) | Kind::In(_) | Kind::Update(_) => {
                        u64::from(random.below(30) != 0)
                    }
                    _ => attacker.at,
                })
                .collect();
            if of
                .ends()
                .is_some_and(|(at, _)| words[at] == handle() || words[at] == state())
            {
                continue;
            }
            let blob = &blobs[random.below(blobs.len() as u64) as usize];
            let bytes = written(of, &words, blob, attacker.context);
            let (said, _, status) = send(&mut attacker.client, &bytes);
            let name = of.operation.name;
            // An encoded JPEG does not fit this answer.
            assert!(
                [device::OK, device::LIMIT].contains(&said),
                "{round}: {name}: {said}"
            );
            good += u32::from(status == Some(SUCCESS));
        }
        assert!(good > 600, "{good}");
    });
}

/// A guest's threads destroy objects that others use, in any order.
#[test]
fn pitfall_63_jpegs_can_end_while_they_are_decoded() {
    attack_with(|attacker| {
        let mut random = Random(12);
        let context = attacker.context;
        for round in 0..60 {
            let serial = 10 + round;
            let id = |class: Class| class.id(serial);
            let all = [
                Class::NvjpegHandle,
                Class::NvjpegDecoder,
                Class::NvjpegState,
                Class::NvjpegStream,
                Class::NvjpegDecodeParams,
                Class::NvjpegPinned,
                Class::NvjpegDevice,
            ];
            let [handle, decoder, state, stream, params, pinned, gpu] = all.map(id);
            let mut made = |name: &str, words: &[u64], blob: &[u8]| {
                assert_eq!(attacker.call(name, words, blob), SUCCESS, "{name}");
            };
            made("nvjpegCreateEx", &[handle, 0, 0], &[]);
            made("nvjpegDecoderCreate", &[handle, 0, decoder], &[]);
            made("nvjpegDecoderStateCreate", &[handle, decoder, state], &[]);
            made("nvjpegJpegStreamCreate", &[handle, stream], &[]);
            made("nvjpegDecodeParamsCreate", &[handle, params], &[]);
            made("nvjpegDecodeParamsSetOutputFormat", &[params, RGB], &[]);
            made("nvjpegBufferPinnedCreate", &[handle, pinned], &[]);
            made("nvjpegBufferDeviceCreate", &[handle, gpu], &[]);
            made("nvjpegBufferDeviceResize", &[gpu, 4096, 0], &[]);
            made("nvjpegStateAttachDeviceBuffer", &[state, gpu], &[]);
            made("nvjpegStateAttachPinnedBuffer", &[state, pinned], &[]);
            let parse = [handle, 0, 0, 0, 0, stream];
            made("nvjpegJpegStreamParse", &parse, JPEG);
            let call = |name: &str, words: &[u64]| call_of(name, words, JPEG, context);
            let host = [handle, decoder, state, params, stream];
            let streams = vec![
                call("nvjpegDecodeJpegHost", &host),
                call("nvjpegDecodeJpegHost", &host),
                call(
                    "nvjpegDecodeJpegTransferToDevice",
                    &[handle, decoder, state, stream, 0],
                ),
                call("nvjpegJpegStreamParse", &parse),
                call("nvjpegBufferDeviceResize", &[gpu, 1 << 20, 0]),
                call("nvjpegDecoderDestroy", &[decoder]),
                call("nvjpegJpegStreamDestroy", &[stream]),
                call("nvjpegDecodeParamsDestroy", &[params]),
                call("nvjpegBufferPinnedDestroy", &[pinned]),
                call("nvjpegBufferDeviceDestroy", &[gpu]),
                call("nvjpegJpegStateDestroy", &[state]),
                call("nvjpegDestroy", &[handle]),
            ];
            in_any_order(&mut attacker.client, streams, 64, &mut random, round);
        }
    });
}
