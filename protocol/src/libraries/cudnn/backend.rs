// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoding of the backend's attributes.
//!
//! An attribute is an array of elements, whose width follows from its type. Handles and descriptors are encoded as ids.
//! Variant packs stay in the guest. Each execution carries their pointers: a device address for each tensor, or the
//! value itself if the plan has the tensor by value. The host lists these tensors ([`Values`]) when it finalises a
//! plan, so that both sides use the same list.

use crate::codec::{Malformed, Reader, Writer};

use super::data_bytes;

/// The types of descriptors that this project interprets (`cudnnBackendDescriptorType_t`).
pub mod kind {
    /// A plan that can be executed.
    pub const PLAN: i32 = 5;
    /// A variant pack: the places of the tensors of an execution.
    pub const PACK: i32 = 16;
    /// A tensor.
    pub const TENSOR: i32 = 17;
}

/// The types of attributes that this project interprets (`cudnnBackendAttributeType_t`).
pub mod element {
    /// `cudnnHandle_t`.
    pub const HANDLE: i32 = 0;
    /// `cudnnDataType_t`.
    pub const DATA_TYPE: i32 = 1;
    /// `bool`.
    pub const BOOLEAN: i32 = 2;
    /// `int64_t`.
    pub const INT64: i32 = 3;
    /// `void *`.
    pub const POINTER: i32 = 6;
    /// `cudnnBackendDescriptor_t`.
    pub const DESCRIPTOR: i32 = 15;
    /// `char`.
    pub const CHAR: i32 = 24;
}

/// The names of attributes that this project interprets (`cudnnBackendAttributeName_t`).
pub mod name {
    /// A plan's handle.
    pub const PLAN_HANDLE: i32 = 400;
    /// Its configuration of an engine.
    pub const PLAN_CONFIG: i32 = 401;
    /// The size of its workspace.
    pub const PLAN_WORKSPACE: i32 = 402;
    /// A plan's text.
    pub const PLAN_TEXT: i32 = 405;
    /// A tensor's type of elements.
    pub const TENSOR_DATA_TYPE: i32 = 901;
    /// A tensor's number in its graph.
    pub const TENSOR_ID: i32 = 906;
    /// Whether a tensor is a value in host memory.
    pub const TENSOR_IS_BY_VALUE: i32 = 908;
    /// A variant pack's tensors, by number.
    pub const PACK_IDS: i32 = 1000;
    /// Their addresses.
    pub const PACK_POINTERS: i32 = 1001;
    /// The plan's workspace.
    pub const PACK_WORKSPACE: i32 = 1003;
}

/// The most elements of an attribute.
pub const MOST_ELEMENTS: u64 = 1 << 24;

/// The most tensors of a variant pack.
pub const MOST_OPERANDS: usize = 1 << 12;

/// Whether a descriptor type is an operation.
const fn is_operation(of: i32) -> bool {
    matches!(of, 10..=14 | 19 | 20 | 22 | 23 | 25..=31 | 33 | 35..=37 | 39..=50)
}

/// Whether the attribute with this name takes descriptors of this type; `None` if no attribute of this name is known to
/// take descriptors. cuDNN does not check the type, and would use a descriptor of another type as one of this type.
pub fn takes(name: i32, of: i32) -> Option<bool> {
    let right = match name {
        // Operations.
        801 => return Some(is_operation(of)),
        // A graph: of heuristics, engines and kernel caches, and one inside an operation.
        201 | 1300 | 1642 | 2400 | 2811 | 2867 => 15,
        // Configurations.
        202 | 401 | 2401 => 3,
        // The device.
        204 | 407 | 1307 => 38,
        // An engine, intermediates, choices of knobs, a kernel cache, knobs, and layouts.
        300 => 2,
        301 => 6,
        302 => 7,
        406 => 34,
        1302 => 8,
        1304 => 9,
        // The kinds of operations: convolution, pointwise, product, reduction, resampling, random numbers, softmax.
        702 | 708 | 714 => 1,
        750 => 0,
        1523 => 18,
        1612 => 21,
        1716 | 1725 => 24,
        2312 => 32,
        2814 => 45,
        // Tensors of convolutions, pointwise operations, statistics and their ends, and of offsets.
        703..=705 | 709..=711 | 715..=717 | 751..=753 | 756..=758 | 772..=774 | 782..=796 | 913 => {
            kind::TENSOR
        }
        // Of products, reductions, normalisations' gradients, resampling, concatenations and signals.
        1520..=1522 | 1525..=1527 | 1610 | 1611 | 1613 | 1621..=1630 => kind::TENSOR,
        1710..=1712 | 1720..=1722 | 1726 | 1727 | 1801 | 1803 | 1901 | 1903 | 1904 => kind::TENSOR,
        // Of paged caches, normalisations, reshaping, bands, random numbers and scaled blocks.
        1950..=1953 | 2002..=2014 | 2101..=2110 | 2200 | 2201 | 2250 | 2251 => kind::TENSOR,
        2256 | 2257 | 2270 | 2271 | 2310 | 2311 | 2313 | 2500..=2502 | 2600..=2602 => kind::TENSOR,
        // Attention, experts, masks, softmax, and moves of elements.
        2800..=2810 | 2815..=2817 | 2820..=2829 | 2851..=2864 | 2870..=2873 | 2875 => kind::TENSOR,
        2902..=2907 | 2952..=2955 | 3000..=3006 | 3008 | 3009 | 3100..=3105 => kind::TENSOR,
        3200 | 3201 | 3300 | 3301 | 3400..=3402 | 3410..=3412 => kind::TENSOR,
        _ => return None,
    };
    Some(of == right)
}

/// The bytes of an element of an attribute's type; `None` if there is no such type.
pub fn width(of: i32) -> Option<usize> {
    Some(match of {
        element::BOOLEAN | element::CHAR => 1,
        // `double` has 5.
        element::HANDLE | element::INT64 | 5 | element::POINTER | element::DESCRIPTOR => 8,
        // `cudnnFraction_t`: two integers of 64 bits.
        26 => 16,
        // Enumerations, `float` with 4, and `int32_t` with 23.
        1..=33 => 4,
        _ => return None,
    })
}

/// The bytes of an attribute; `None` if there is no such type, or it has too many elements.
pub fn bytes(of: i32, count: u64) -> Option<usize> {
    let width = width(of)?;
    (count <= MOST_ELEMENTS).then(|| width * count as usize)
}

/// The room for a value in host memory: no element is wider.
pub const VALUE_BYTES: usize = 32;

/// The tensors that a plan has by value: their numbers in ascending order, and the bytes of each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values(Vec<(i64, u8)>);

impl Values {
    /// Adds a tensor by its number and its type. An unknown type counts as the widest one. A tensor that is already in
    /// the list gets the wider of both types.
    pub fn add(&mut self, id: i64, data: Option<i32>) {
        let bytes = data.and_then(data_bytes).unwrap_or(VALUE_BYTES) as u8;
        match self.0.binary_search_by_key(&id, |of| of.0) {
            Ok(at) => self.0[at].1 = self.0[at].1.max(bytes),
            Err(at) => self.0.insert(at, (id, bytes)),
        }
    }

    /// Adds the tensors of another list.
    pub fn add_all(&mut self, others: &Self) {
        for (id, bytes) in &others.0 {
            match self.0.binary_search_by_key(id, |of| of.0) {
                Ok(at) => self.0[at].1 = self.0[at].1.max(*bytes),
                Err(at) => self.0.insert(at, (*id, *bytes)),
            }
        }
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of a tensor by value; `None` for one on the device.
    pub fn bytes(&self, id: i64) -> Option<usize> {
        let at = self.0.binary_search_by_key(&id, |of| of.0).ok()?;
        Some(self.0[at].1.into())
    }

    /// Encodes the list.
    pub fn write(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        for (id, bytes) in &self.0 {
            writer.put(id);
            writer.word((*bytes).into());
        }
        writer.into_bytes()
    }

    /// Decodes a list that [`Values::write`] wrote.
    ///
    /// # Errors
    ///
    /// The bytes are no such list.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut values = Self::default();
        for _ in 0..bytes.len() / 16 {
            let id = reader.get()?;
            let bytes = u8::try_from(reader.word()?).map_err(|_| Malformed::Range)?;
            if usize::from(bytes) > VALUE_BYTES || values.0.last().is_some_and(|of| of.0 >= id) {
                return Err(Malformed::Range);
            }
            values.0.push((id, bytes));
        }
        reader.end()?;
        Ok(values)
    }
}

/// The place of a tensor of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At a device address.
    Device(u64),
    /// In the request: its value, padded with zeros.
    Value([u8; VALUE_BYTES]),
}

/// A variant pack: the places of an execution's tensors, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pack {
    /// The tensors.
    pub operands: Vec<(i64, Place)>,
    /// The device address of the plan's workspace; `None` if the program gave none.
    pub workspace: Option<u64>,
}

/// Writes a pack's workspace, its first part.
pub fn put_workspace(writer: &mut Writer, workspace: Option<u64>) {
    writer.put(&workspace);
}

/// Writes a tensor of a pack.
pub fn put_place(writer: &mut Writer, id: i64, place: &Place) {
    writer.put(&id);
    match place {
        Place::Device(address) => {
            writer.put(&false);
            writer.word(*address);
        }
        Place::Value(bytes) => {
            writer.put(&true);
            writer.put(bytes);
        }
    }
}

impl Pack {
    /// Encodes the pack.
    pub fn write(&self, writer: &mut Writer) {
        put_workspace(writer, self.workspace);
        for (id, place) in &self.operands {
            put_place(writer, *id, place);
        }
    }

    /// Decodes a pack that [`Pack::write`] wrote.
    ///
    /// # Errors
    ///
    /// The bytes are no such pack, or there are too many tensors.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut pack = Self {
            operands: Vec::new(),
            workspace: reader.get()?,
        };
        while reader.end().is_err() {
            if pack.operands.len() == MOST_OPERANDS {
                return Err(Malformed::Range);
            }
            let id = reader.get()?;
            pack.operands.push(match reader.get::<bool>()? {
                false => (id, Place::Device(reader.word()?)),
                true => (id, Place::Value(reader.get()?)),
            });
        }
        Ok(pack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(pack: &Pack) -> Vec<u8> {
        let mut writer = Writer::new();
        pack.write(&mut writer);
        writer.into_bytes()
    }

    #[test]
    fn a_pack_is_read_as_it_was_written() {
        let pack = Pack {
            operands: vec![
                (7, Place::Device(0x7000)),
                (-1, Place::Value([3; VALUE_BYTES])),
            ],
            workspace: Some(0x9000),
        };
        let bytes = written(&pack);
        assert_eq!(Pack::read(&bytes).unwrap(), pack);
        for length in 0..bytes.len() {
            // The first tensor alone is a valid pack, too.
            let read = Pack::read(&bytes[..length]);
            assert!(
                read.is_err() || read.unwrap().operands.len() < 2,
                "{length}"
            );
        }
        let many = Pack {
            operands: vec![(0, Place::Device(0)); MOST_OPERANDS + 1],
            workspace: None,
        };
        assert!(Pack::read(&written(&many)).is_err());
    }

    #[test]
    fn values_only_become_more_and_wider() {
        let mut values = Values::default();
        values.add(5, Some(0));
        values.add(3, None);
        let mut others = Values::default();
        others.add(5, Some(1));
        others.add(9, Some(2));
        values.add_all(&others);
        let bytes = |id| values.bytes(id);
        assert_eq!([3, 5, 9, 4].map(bytes), [Some(32), Some(8), Some(2), None]);
        assert_eq!(Values::read(&values.write()).unwrap(), values);
        // Repeated and unordered numbers are invalid.
        let list = values.write();
        for wrong in [
            [&list[..16], &list[..16]].concat(),
            [&list[16..], &list[..16]].concat(),
        ] {
            assert!(Values::read(&wrong).is_err());
        }
    }

    #[test]
    fn an_attribute_takes_one_type_of_descriptors() {
        let types = |name| {
            (0..64)
                .filter(|of| takes(name, *of) == Some(true))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            [201, 300, 751, 913].map(types),
            [vec![15], vec![2], vec![17], vec![17]]
        );
        assert!(types(801).contains(&10) && !types(801).contains(&17) && types(801).len() == 32);
        for name in (0..4000).filter(|name| takes(*name, 0).is_some()) {
            assert!(name == 801 || types(name).len() == 1, "{name}");
        }
        // A size, and a pack's pointers.
        assert_eq!([902, 1001, -1].map(|name| takes(name, 17)), [None; 3]);
    }

    #[test]
    fn attributes_are_as_wide_as_their_types() {
        let widths: Vec<_> = (0..34).map(|of| width(of).unwrap()).collect();
        assert_eq!(widths.iter().sum::<usize>(), 4 * 26 + 5 * 8 + 2 + 16);
        assert_eq!((width(34), width(-1)), (None, None));
        assert_eq!(bytes(element::INT64, 3), Some(24));
        assert_eq!(bytes(element::INT64, u64::MAX), None);
    }
}
