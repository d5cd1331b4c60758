// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The byte strings in libraries' requests that a worker decodes: products, plans and queries of cuBLASLt, cuDNN's
//! variant packs and values, selections and scalars of cuSPARSELt, and batches of nvJPEG.
//!
//! Everything that can be decoded must be the same after it is encoded and decoded again.
#![no_main]

use gpgpu_protocol::{
    codec::{Reader, Writer},
    libraries::{
        cublaslt::{
            attributes::Class,
            form::{
                Check, Described, Descriptor, Descriptors, Formed, Operands, Plan, Product,
                Question, Sink, Transformation, put_check, put_plan, put_product, put_question,
                put_transformation,
            },
        },
        cudnn::backend::{Pack, Values},
        cusparselt::form::{Form, Scalar, Selection},
        nvjpeg::form::Batch,
    },
};
use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::input::Input;

/// A descriptor in the guest's form.
fn packed(class: Class, of: &Descriptor) -> Vec<u8> {
    let mut packed = class.defaults().to_vec();
    for (number, value) in of.set() {
        assert!(class.write(&mut packed, *number, *value));
    }
    packed
}

/// A product's descriptors: the operation's, its emulation's, and the layouts.
struct Packed {
    operation: Vec<u8>,
    emulation: Option<Vec<u8>>,
    layouts: [Vec<u8>; 4],
}

impl Packed {
    fn of(all: &Descriptors) -> Self {
        let emulation = all.emulation.as_ref();
        Self {
            operation: packed(Class::Operation, &all.operation),
            emulation: emulation.map(|of| packed(Class::Emulation, of)),
            layouts: all.layouts.each_ref().map(|of| packed(Class::Layout, of)),
        }
    }

    fn described(&self) -> Described<'_, Vec<u8>> {
        Described {
            operation: &self.operation,
            emulation: self.emulation.as_ref(),
            layouts: self.layouts.each_ref(),
        }
    }
}

/// The output of `put`.
fn written(put: impl FnOnce(&mut Formed<'_>)) -> Vec<u8> {
    let mut writer = Writer::new();
    put(&mut Formed::new(0, &mut writer));
    writer.into_bytes()
}

fn product(bytes: &[u8]) -> Option<Vec<u8>> {
    let of = Product::get(bytes).ok()?;
    let all = Packed::of(&of.plan.descriptors);
    let (described, algorithm) = (all.described(), of.plan.algorithm.as_ref());
    let put = |sink: &mut Formed<'_>| put_product(sink, &described, algorithm, &of.operands);
    Some(written(put))
}

fn plan(bytes: &[u8]) -> Option<Vec<u8>> {
    let of = Plan::get(bytes).ok()?;
    let all = Packed::of(&of.descriptors);
    Some(written(|sink| {
        put_plan(sink, &all.described(), of.algorithm.as_ref());
    }))
}

/// The first word stands for the plan's pointer mode.
fn operands(bytes: &[u8]) -> Option<Vec<u8>> {
    let mode = Reader::new(bytes).word().ok()?;
    let of = Operands::get(&bytes[8..], mode).ok()?;
    Some(written(|sink| {
        sink.value(mode);
        of.put(sink);
    }))
}

fn transformation(bytes: &[u8]) -> Option<Vec<u8>> {
    let of = Transformation::get(bytes).ok()?;
    let operation = packed(Class::Transform, &of.operation);
    let layouts = of.layouts.each_ref();
    let layouts = layouts.map(|layout| layout.as_ref().map(|of| packed(Class::Layout, of)));
    let layouts = layouts.each_ref().map(Option::as_ref);
    Some(written(|sink| {
        put_transformation(sink, &operation, layouts, of.scalars, of.matrices);
    }))
}

fn question(bytes: &[u8]) -> Option<Vec<u8>> {
    let of = Question::get(bytes).ok()?;
    let all = Packed::of(&of.descriptors);
    let preference = of
        .preference
        .as_ref()
        .map(|of| packed(Class::Preference, of));
    let (described, preference) = (all.described(), preference.as_ref());
    Some(written(|sink| {
        put_question(sink, &described, preference, of.wanted as u64, &of.given);
    }))
}

fn check(bytes: &[u8]) -> Option<Vec<u8>> {
    let of = Check::get(bytes).ok()?;
    let all = Packed::of(&of.descriptors);
    Some(written(|sink| {
        put_check(sink, &all.described(), &of.algorithm);
    }))
}

fn pack(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut writer = Writer::new();
    Pack::read(bytes).ok()?.write(&mut writer);
    Some(writer.into_bytes())
}

fn values(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(Values::read(bytes).ok()?.write())
}

fn selection(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(Selection::get(bytes).ok()?.bytes())
}

fn scalars(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(<[Scalar; 2]>::get(bytes).ok()?.bytes())
}

fn batch(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(Batch::get(bytes).ok()?.bytes())
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let again = match input.u8() % 11 {
        0 => product,
        1 => transformation,
        2 => question,
        3 => check,
        4 => pack,
        5 => values,
        6 => selection,
        7 => scalars,
        8 => plan,
        9 => operands,
        _ => batch,
    };
    // The first encoding leaves out attributes with the values of a new descriptor.
    if let Some(first) = again(input.rest()) {
        assert_eq!(again(&first).as_ref(), Some(&first));
    }
});
