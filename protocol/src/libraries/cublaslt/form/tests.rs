// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::{
    super::attributes::{Attribute, BATCH_COUNT, COLUMNS, LEADING, POINTER_MODE, ROWS, SCALE_TYPE},
    *,
};

const BIAS: u16 = 8;
const EPILOGUE: u16 = 7;

fn packed(class: Class, values: &[(u16, u64)]) -> Vec<u8> {
    let mut packed = class.defaults().to_vec();
    for (number, value) in values {
        assert!(class.write(&mut packed, *number, *value));
    }
    packed
}

fn operation(values: &[(u16, u64)]) -> Vec<u8> {
    packed(Class::Operation, values)
}

fn here(value: f32) -> Scalar {
    Scalar::Here([value.to_bits().into(), 0])
}

/// The parts of a product; each test changes one of them.
#[derive(Clone)]
struct Parts {
    operation: Vec<u8>,
    emulation: Option<Vec<u8>>,
    layouts: [Vec<u8>; 4],
    algorithm: Option<Algorithm>,
    operands: Operands,
}

impl Parts {
    fn new() -> Self {
        let layout = |columns| {
            packed(
                Class::Layout,
                &[(ROWS, 64), (COLUMNS, columns), (LEADING, 64)],
            )
        };
        Self {
            operation: operation(&[(0, 68), (SCALE_TYPE, 0), (EPILOGUE, 6), (BIAS, 0x7000)]),
            emulation: None,
            layouts: [layout(8), layout(16), layout(24), layout(24)],
            algorithm: Some([7; ALGORITHM]),
            operands: Operands {
                scalars: [here(2.0), here(0.0)],
                matrices: [0x1000, 0x2000, 0x3000, 0x4000],
                workspace: (0x5000, 1 << 20),
            },
        }
    }

    fn described(&self) -> Described<'_, Vec<u8>> {
        Described {
            operation: &self.operation,
            emulation: self.emulation.as_ref(),
            layouts: self.layouts.each_ref(),
        }
    }

    fn put(&self, sink: &mut impl Sink) {
        let (algorithm, described) = (self.algorithm.as_ref(), self.described());
        put_product(sink, &described, algorithm, &self.operands);
    }

    fn written(&self) -> (Vec<u8>, u64) {
        let mut writer = Writer::new();
        let mut formed = Formed::new(1, &mut writer);
        self.put(&mut formed);
        let form = formed.form();
        (writer.into_bytes(), form)
    }
}

#[test]
fn a_product_arrives_as_it_was_written() {
    let mut parts = Parts::new();
    parts.emulation = Some(packed(Class::Emulation, &[(0, 2), (5, 0x9000)]));
    let (bytes, _) = parts.written();
    let product = Product::get(&bytes).unwrap();
    // The scale type is the default.
    let set = [(0, 68), (EPILOGUE, 6), (BIAS, 0x7000)];
    assert_eq!(product.plan.descriptors.operation.set(), set);
    let emulation = product.plan.descriptors.emulation.as_ref().unwrap();
    assert_eq!(emulation.set(), [(0, 2), (5, 0x9000)]);
    let columns = product.plan.descriptors.layouts.each_ref();
    let columns = columns.map(|of| of.get_or_default(Class::Layout, COLUMNS));
    assert_eq!(columns, [8, 16, 24, 24]);
    let batches = product.plan.descriptors.layouts[0].get_or_default(Class::Layout, BATCH_COUNT);
    assert_eq!(batches, 1);
    assert_eq!(product.plan.algorithm, Some([7; ALGORITHM]));
    assert_eq!(product.operands, parts.operands);
    for cut in 0..bytes.len() {
        assert!(Product::get(&bytes[..cut]).is_err(), "{cut}");
    }
    assert!(Product::get(&[bytes, vec![0; 8]].concat()).is_err());
}

/// A product that names a plan equals one that contains the plan, and has the same form.
#[test]
fn a_plan_and_its_operands_are_the_product() {
    let parts = Parts::new();
    let (whole, form) = parts.written();
    let mut plan = Writer::new();
    let mut formed = Formed::new(1, &mut plan);
    put_plan(&mut formed, &parts.described(), parts.algorithm.as_ref());
    let so_far = formed.form();
    let mut operands = Writer::new();
    let mut formed = Formed::behind(so_far, &mut operands);
    parts.operands.put(&mut formed);
    assert_eq!(formed.form(), form);
    let (plan, operands) = (plan.into_bytes(), operands.into_bytes());
    assert_eq!([&plan[..], &operands[..]].concat(), whole);
    let product = Product::get(&whole).unwrap();
    assert_eq!(Plan::get(&plan), Ok(product.plan));
    assert_eq!(Operands::get(&operands, 0), Ok(product.operands));
    // The scalars are at host addresses.
    assert!(Operands::get(&operands, 1).is_err());
    for (bytes, is_plan) in [(plan, true), (operands, false)] {
        let is_good = |bytes: &[u8]| match is_plan {
            true => Plan::get(bytes).is_ok(),
            false => Operands::get(bytes, 0).is_ok(),
        };
        assert!((0..bytes.len()).all(|cut| !is_good(&bytes[..cut])));
        assert!(!is_good(&[bytes, vec![0; 8]].concat()));
    }
}

#[test]
fn only_deciding_parts_are_in_the_form() {
    let parts = Parts::new();
    let (_, form) = parts.written();
    let form_with = |change: &dyn Fn(&mut Parts)| {
        let mut parts = parts.clone();
        change(&mut parts);
        let mut full = [Form::default(), Form::default()];
        Parts::new().put(&mut full[0]);
        parts.put(&mut full[1]);
        let form_too = parts.written().1;
        assert_eq!(form == form_too, full[0].0 == full[1].0);
        form_too
    };
    for same in [
        &(|parts: &mut Parts| parts.operands.matrices[2] = 0x7_0000) as &dyn Fn(&mut Parts),
        &|parts| parts.operation = operation(&[(0, 68), (EPILOGUE, 6), (BIAS, 0x1_0000)]),
        &|parts| parts.operands.scalars[0] = here(3.0),
        &|parts| parts.operands.workspace.0 = 0x6000,
    ] {
        assert_eq!(form_with(same), form);
    }
    for other in [
        &(|parts: &mut Parts| parts.operands.matrices[2] = 0x3008) as &dyn Fn(&mut Parts),
        &|parts| parts.operands.matrices[2] = 0,
        &|parts| parts.operation = operation(&[(0, 68), (EPILOGUE, 6), (BIAS, 0x7002)]),
        &|parts| parts.operation = operation(&[(0, 68), (EPILOGUE, 4), (BIAS, 0x7000)]),
        &|parts| parts.layouts[1] = parts.layouts[0].clone(),
        &|parts| parts.operands.scalars[1] = here(1.0),
        &|parts| parts.algorithm = None,
        &|parts| parts.algorithm = Some([8; ALGORITHM]),
        &|parts| parts.operands.workspace.1 = 0,
    ] {
        assert_ne!(form_with(other), form);
    }
}

/// GPGPU-DEV-69: the host reads nothing at an address that the guest chose.
#[test]
fn scalars_are_where_the_pointer_mode_says_and_nowhere_else() {
    let at = Scalar::At(0x8000);
    let (here, null) = (here(1.0), Scalar::At(0));
    for (mode, good) in [
        (0, [[here; 2], [null; 2]].as_slice()),
        (1, &[[at; 2], [null; 2]]),
        (2, &[[at; 2]]),
        (3, &[[at, here], [at, null]]),
        (4, &[[at, here]]),
        (5, &[]),
        (u64::from(u32::MAX), &[]),
    ] {
        for scalars in [
            [here; 2],
            [at; 2],
            [at, here],
            [here, at],
            [null; 2],
            [at, null],
        ] {
            let mut parts = Parts::new();
            parts.operation = operation(&[(POINTER_MODE, mode)]);
            parts.operands.scalars = scalars;
            let has_mode = places(mode).is_some();
            let is_good = good.contains(&scalars)
                || has_mode && (scalars == [null; 2] || scalars == [at, null] && mode != 0);
            let got = Product::get(&parts.written().0);
            assert_eq!(got.is_ok(), is_good, "{mode} {scalars:?}");
        }
    }
}

#[test]
fn descriptors_have_each_attribute_once_and_no_other() {
    let parts = Parts::new();
    let (good, _) = parts.written();
    let word = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        Product::get(&bytes)
    };
    // The count, then the numbers and values of three attributes.
    assert!(word(2, 70).is_ok());
    assert!(word(4, 2).is_ok());
    for (at, value) in [
        (0, 2),
        (0, 4),
        (0, u64::MAX),
        // Out of order, repeated, and of unknown numbers.
        (1, 9),
        (1, 7),
        (3, 0),
        (3, 0x1_0007),
        (5, 200),
        // Wider than the library's.
        (2, 1 << 32),
        // An address of the host.
        (5, 38),
        // Whether there is one.
        (7, 2),
    ] {
        assert!(word(at, value).is_err(), "{at} {value}");
    }
}

#[test]
fn the_other_requests_arrive_as_they_were_written() {
    let parts = Parts::new();
    let mut writer = Writer::new();
    let sink = &mut Formed::new(2, &mut writer);
    let operation = packed(Class::Transform, &[(2, 1)]);
    let [a, _, c, _] = &parts.layouts;
    let matrices = [0x1000, 0, 0x3000];
    put_transformation(
        sink,
        &operation,
        [Some(a), None, Some(c)],
        parts.operands.scalars,
        matrices,
    );
    let bytes = writer.into_bytes();
    let transformation = Transformation::get(&bytes).unwrap();
    assert_eq!(transformation.operation.set(), [(2, 1)]);
    assert!(transformation.layouts[1].is_none() && transformation.layouts[2].is_some());
    assert_eq!(transformation.scalars, parts.operands.scalars);
    assert_eq!(transformation.matrices, matrices);

    let preference = packed(Class::Preference, &[(1, 1 << 22)]);
    for (wanted, given, is_good) in [
        (1, 0, true),
        (MAX_RESULTS as u64, 1, true),
        (2, 2, true),
        (0, 0, false),
        (1, 2, false),
        (MAX_RESULTS as u64 + 1, 0, false),
        (u64::MAX, 0, false),
    ] {
        let mut writer = Writer::new();
        let sink = &mut Formed::new(3, &mut writer);
        let given = vec![[9; ALGORITHM]; given];
        put_question(sink, &parts.described(), Some(&preference), wanted, &given);
        let got = Question::get(&writer.into_bytes());
        assert_eq!(got.is_ok(), is_good, "{wanted}");
        if let Ok(question) = got {
            assert_eq!(question.wanted as u64, wanted);
            assert_eq!(question.given, given);
            assert_eq!(question.preference.unwrap().set(), [(1, 1 << 22)]);
        }
    }

    let mut writer = Writer::new();
    put_check(
        &mut Formed::new(4, &mut writer),
        &parts.described(),
        &[5; ALGORITHM],
    );
    let check = Check::get(&writer.into_bytes()).unwrap();
    assert_eq!(check.algorithm, [5; ALGORITHM]);
    assert_eq!(check.descriptors.layouts[3].set().len(), 3);
}

#[test]
fn attributes_other_than_defaults_are_written_however_short_the_descriptor() {
    let mut state = 1_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    for class in Class::ALL {
        for round in 0..200 {
            let mut values = packed(class, &[]);
            for of in class.attributes() {
                if random() % (1 + round % 4) == 0 {
                    let value = random() & (u64::MAX >> (64 - 8 * of.bytes));
                    class.write(&mut values, of.number, value);
                }
            }
            // The length of an older or a newer header's structure.
            values.resize(random() as usize % (class.packed() + 16), 0xee);
            let differs = |of: &&Attribute| {
                let value = class.read(&values, of.number);
                value.is_some_and(|value| value != of.default) && of.holds != Holds::Emulation
            };
            let set: Vec<_> = class.attributes().iter().filter(differs).collect();
            let mut right = Writer::new();
            right.word(set.len() as u64);
            for of in set {
                right.word(of.number.into());
                right.word(class.read(&values, of.number).unwrap());
            }
            let mut found = Writer::new();
            put_descriptor(&mut Formed::new(0, &mut found), class, &values);
            let (found, right) = (found.into_bytes(), right.into_bytes());
            assert_eq!(found, right, "{class:?} {}", values.len());
        }
    }
}
