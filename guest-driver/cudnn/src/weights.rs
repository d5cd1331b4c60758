// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The places of a network's weights and biases (`cudnnGetRNNWeightParams`). They depend on the network's settings alone,
//! and PyTorch asks for all of them before each run. So the library asks the host once, and then answers itself.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use foldhash::fast::RandomState;
use gpgpu_library::{
    Status,
    forward::{Request, contents},
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::libraries::{Class, Function, Library::Cudnn, cudnn::MOST_DIMENSIONS};

use crate::tensors;

const SET_TENSOR: &Function = Cudnn.find("cudnnSetTensorNdDescriptor");

/// A descriptor's settings, as `cudnnGetTensorNdDescriptor` returns them: the type, the number of dimensions, their
/// sizes and strides.
pub type Said = [i32; 2 + 2 * MOST_DIMENSIONS as usize];

/// A question, without the addresses in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Question {
    /// The handle: an answer may depend on its GPU.
    pub handle: u64,
    /// The settings of the network's descriptor.
    pub network: u64,
    /// The layer.
    pub layer: i32,
    /// The size of the weight space in bytes.
    pub bytes: usize,
    /// The number of the weight in its layer.
    pub id: i32,
    /// Whether the weight and the bias are wanted.
    pub wanted: [bool; 2],
}

/// The place of a weight or a bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Its offset in the weight space.
    offset: u64,
    said: Said,
    /// The number of these settings.
    number: u64,
}

/// An answer: the places of the weight and of the bias, if there are such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places([Option<Place>; 2]);

static KNOWN: Mutex<Option<HashMap<Question, Places, RandomState>>> = Mutex::new(None);

/// The most answers that are kept.
const MOST: usize = 1 << 12;

/// The addresses and settings in the host's reply.
pub fn read(reply: &[u8]) -> Option<([u64; 2], [Said; 2])> {
    let (found, said) = reply.split_at_checked(16)?;
    let [weight, bias] = *found.as_chunks().0 else {
        return None;
    };
    let ([of_weight, of_bias], []) = said.as_chunks::<{ size_of::<Said>() }>() else {
        return None;
    };
    let said = |bytes: &[u8; size_of::<Said>()]| {
        let mut values = bytes.as_chunks().0.iter();
        std::array::from_fn(|_| values.next().map_or(0, |value| i32::from_le_bytes(*value)))
    };
    let found = [weight, bias].map(u64::from_le_bytes);
    Some((found, [said(of_weight), said(of_bias)]))
}

impl Places {
    /// The places in a space of `bytes` bytes; `None` if an address is not in it.
    fn new(space: u64, bytes: usize, found: [u64; 2], said: [Said; 2]) -> Option<Self> {
        let mut places = [None; 2];
        for (i, place) in found.into_iter().enumerate() {
            if place != 0 {
                let offset = place.checked_sub(space);
                let offset = offset.filter(|offset| space != 0 && *offset < bytes as u64)?;
                places[i] = Some(Place {
                    offset,
                    said: said[i],
                    number: number_of(&said[i]),
                });
            }
        }
        Some(Self(places))
    }

    /// The addresses in a space; 0 for none.
    fn addresses(&self, space: u64) -> [u64; 2] {
        self.0
            .map(|place| place.map_or(0, |place| space.wrapping_add(place.offset)))
    }

    /// Sets the descriptors, and returns the addresses.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    pub fn tell(&self, space: u64, descriptors: [u64; 2]) -> Result<[u64; 2], Status> {
        for (descriptor, place) in descriptors.into_iter().zip(&self.0) {
            let Some(place) = place.filter(|_| descriptor != 0) else {
                continue;
            };
            // PyTorch asks with the same descriptor again and again.
            if contents::find(descriptor) == Some(place.number) {
                continue;
            }
            let said = place.said;
            let [data, dimensions, ref values @ ..] = said;
            let (sizes, strides) = values.split_at(MOST_DIMENSIONS as usize);
            let words = [
                descriptor,
                data as u64,
                dimensions as u64,
                sizes.as_ptr() as u64,
                strides.as_ptr() as u64,
            ];
            Request::new(SET_TENSOR, &words).post()?;
            note(descriptor, &said);
        }
        Ok(self.addresses(space))
    }
}

fn number_of(said: &Said) -> u64 {
    let mut hash = DefaultHasher::new();
    said.hash(&mut hash);
    hash.finish()
}

/// Records the settings of a descriptor.
pub fn note(descriptor: u64, said: &Said) {
    contents::set(descriptor, number_of(said));
    tensors::note(descriptor, said[0]);
}

/// The answer to a question that was asked before, if the descriptors that it sets are tensors' and exist. The host
/// refuses others.
pub fn known(question: &Question, descriptors: [u64; 2]) -> Option<Places> {
    let is_tensor = |id: u64| id == 0 || Class::CudnnTensor.takes(id) && contents::are_known(id);
    if !descriptors.into_iter().all(is_tensor) {
        return None;
    }
    KNOWN.lock().as_ref()?.get(question).copied()
}

/// Records the host's answer, unless a descriptor is to be emptied: only the library can do that.
pub fn learn(question: Question, space: u64, found: [u64; 2], said: [Said; 2]) {
    let mut each = question.wanted.iter().zip(found);
    if each.any(|(is_wanted, place)| *is_wanted && place == 0) {
        return;
    }
    if let Some(places) = Places::new(space, question.bytes, found, said) {
        let mut known = KNOWN.lock();
        let known = known.get_or_insert_default();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(question, places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: Said = [2, 3, 1, 48, 24, 0, 0, 0, 0, 0, 1152, 24, 1, 0, 0, 0, 0, 0];

    #[test]
    fn an_answer_holds_for_the_same_network_at_any_address() {
        let question = Question {
            handle: 1,
            network: 7,
            layer: 0,
            bytes: 0x2000,
            id: 3,
            wanted: [true, false],
        };
        learn(question, 0x5000, [0x5100, 0], [SAID, [0; 18]]);
        let places = known(&question, [0, 0]).unwrap();
        assert_eq!(places.addresses(0x9000), [0x9100, 0]);
        let place = places.0[0].unwrap();
        assert_eq!((place.offset, place.said), (0x100, SAID));
        assert_eq!(places.0[1], None);
        let others = [
            Question {
                network: 8,
                ..question
            },
            Question {
                layer: 1,
                ..question
            },
            Question { id: 4, ..question },
            Question {
                bytes: 0x2004,
                ..question
            },
            Question {
                wanted: [true; 2],
                ..question
            },
            Question {
                handle: 2,
                ..question
            },
        ];
        assert!(others.iter().all(|other| known(other, [0, 0]).is_none()));
        // A descriptor that does not exist.
        assert!(known(&question, [0x1d0, 0]).is_none());
        // A network without biases: cuDNN empties the descriptor of one.
        let both = Question {
            id: 5,
            wanted: [true; 2],
            ..question
        };
        learn(both, 0x5000, [0x5100, 0], [SAID, [0; 18]]);
        assert!(known(&both, [0, 0]).is_none());
    }

    #[test]
    fn an_address_outside_of_the_space_is_not_kept() {
        for (space, found) in [(0x5000, 0x4fff), (0x5000, 0x7000), (0, 0x100)] {
            assert_eq!(Places::new(space, 0x2000, [found, 0], [SAID; 2]), None);
        }
        let none = Places::new(0x5000, 0x2000, [0, 0], [SAID; 2]).unwrap();
        assert_eq!(none.addresses(0x9000), [0, 0]);
    }

    #[test]
    fn a_reply_has_two_addresses_and_two_settings() {
        let mut reply: Vec<u8> = [0x10_u64, 0x20]
            .iter()
            .flat_map(|of| of.to_le_bytes())
            .collect();
        reply.extend(SAID.iter().chain(&[0; 18]).flat_map(|of| of.to_le_bytes()));
        assert_eq!(read(&reply), Some(([0x10, 0x20], [SAID, [0; 18]])));
        assert_eq!(read(&reply[1..]), None);
        reply.push(0);
        assert_eq!(read(&reply), None);
    }
}
