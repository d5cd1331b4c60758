// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Variant packs, which contain the places of an execution's tensors. They stay in the program's process. Values are
//! read from their addresses when a plan is executed.

use std::hash::{DefaultHasher, Hash, Hasher};

use gpgpu_library::Status;
use gpgpu_protocol::{
    codec::Writer,
    libraries::cudnn::{
        backend::{
            MOST_OPERANDS, Place, VALUE_BYTES, Values, element, name, put_place, put_workspace,
        },
        status,
    },
};

/// A variant pack. Nothing is read from its addresses before an execution.
#[derive(Debug, Default)]
pub struct Pack {
    /// Whether it is finalised.
    pub is_final: bool,
    /// The tensors, by number.
    pub ids: Vec<i64>,
    /// Their addresses.
    pub pointers: Vec<u64>,
    /// The plan's workspace.
    pub workspace: Option<u64>,
}

impl Pack {
    /// Sets an attribute.
    ///
    /// # Errors
    ///
    /// cuDNN's status.
    pub fn set(&mut self, name: i32, of: i32, elements: &[u8]) -> Result<(), Status> {
        if self.is_final {
            return Err(status::BAD_PARAM);
        }
        let expected = match name {
            name::PACK_IDS => element::INT64,
            name::PACK_POINTERS | name::PACK_WORKSPACE => element::POINTER,
            // Intermediates, which no version of cuDNN has, and sizes that override the graph's.
            _ if elements.is_empty() => return Ok(()),
            _ => return Err(status::NOT_SUPPORTED),
        };
        if of != expected {
            return Err(status::ATTRIBUTE_TYPE);
        }
        let (words, _) = elements.as_chunks::<8>();
        if words.len() > MOST_OPERANDS {
            return Err(status::BAD_PARAM);
        }
        match (name, words) {
            (name::PACK_IDS, words) => {
                self.ids = words.iter().map(|of| i64::from_ne_bytes(*of)).collect();
            }
            (name::PACK_POINTERS, words) => {
                self.pointers = words.iter().map(|of| u64::from_ne_bytes(*of)).collect();
            }
            (_, [one]) => self.workspace = Some(u64::from_ne_bytes(*one)),
            _ => return Err(status::BAD_PARAM),
        }
        Ok(())
    }

    /// Reads an attribute as words.
    ///
    /// # Errors
    ///
    /// cuDNN's status.
    pub fn get(&self, name: i32, of: i32) -> Result<Vec<u64>, Status> {
        let expected = match name {
            name::PACK_IDS => element::INT64,
            name::PACK_POINTERS | name::PACK_WORKSPACE => element::POINTER,
            _ => return Err(status::NOT_SUPPORTED),
        };
        match name {
            _ if !self.is_final => Err(status::NOT_INITIALIZED),
            _ if of != expected => Err(status::ATTRIBUTE_TYPE),
            name::PACK_IDS => Ok(self.ids.iter().map(|id| *id as u64).collect()),
            name::PACK_POINTERS => Ok(self.pointers.clone()),
            _ => Ok(self.workspace.into_iter().collect()),
        }
    }

    /// Writes the pack for an execution; `read` reads the bytes at an address of the program. Returns a number that
    /// executions of the same form share.
    ///
    /// # Errors
    ///
    /// The pack is not finalised, or a value has no address.
    pub fn write(
        &self,
        values: &Values,
        writer: &mut Writer,
        mut read: impl FnMut(u64, &mut [u8]),
    ) -> Result<u64, Status> {
        if !self.is_final {
            return Err(status::NOT_FINALIZED);
        }
        let mut form = DefaultHasher::new();
        // The alignment influences the choice of kernels.
        let look = |address: u64| (address == 0, address.trailing_zeros().min(7));
        self.workspace.map(look).hash(&mut form);
        put_workspace(writer, self.workspace);
        for (id, pointer) in self.ids.iter().zip(&self.pointers) {
            let place = match values.bytes(*id) {
                None => {
                    (id, look(*pointer)).hash(&mut form);
                    Place::Device(*pointer)
                }
                Some(_) if *pointer == 0 => return Err(status::NULL_POINTER),
                Some(bytes) => {
                    id.hash(&mut form);
                    let mut value = [0; VALUE_BYTES];
                    read(*pointer, &mut value[..bytes]);
                    Place::Value(value)
                }
            };
            put_place(writer, *id, &place);
        }
        Ok(form.finish())
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::libraries::cudnn::backend;

    use super::*;

    fn pack(ids: &[i64], pointers: &[u64], workspace: u64) -> Pack {
        let bytes = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_ne_bytes()).collect()
        };
        let mut pack = Pack::default();
        let ids: Vec<u64> = ids.iter().map(|id| *id as u64).collect();
        pack.set(name::PACK_POINTERS, element::POINTER, &bytes(pointers))
            .unwrap();
        pack.set(name::PACK_IDS, element::INT64, &bytes(&ids))
            .unwrap();
        pack.set(name::PACK_WORKSPACE, element::POINTER, &bytes(&[workspace]))
            .unwrap();
        pack.is_final = true;
        pack
    }

    fn written(pack: &Pack, values: &Values) -> (backend::Pack, u64) {
        let mut writer = Writer::new();
        let read = |address: u64, to: &mut [u8]| to.fill(address as u8);
        let form = pack.write(values, &mut writer, read).unwrap();
        (backend::Pack::read(&writer.into_bytes()).unwrap(), form)
    }

    #[test]
    fn a_value_is_read_when_it_is_executed_and_no_further() {
        let mut values = Values::default();
        values.add(8, Some(0));
        let (sent, _) = written(&pack(&[7, 8], &[0x1000, 0x42], 0x100), &values);
        let mut value = [0; VALUE_BYTES];
        value[..4].fill(0x42);
        let operands = vec![(7, Place::Device(0x1000)), (8, Place::Value(value))];
        let workspace = Some(0x100);
        assert_eq!(
            sent,
            backend::Pack {
                operands,
                workspace
            }
        );
        let nowhere = pack(&[8], &[0], 0);
        let refused = nowhere.write(&values, &mut Writer::new(), |_, _| {});
        assert_eq!(refused, Err(status::NULL_POINTER));
    }

    #[test]
    fn executions_have_one_form_for_all_addresses_and_values() {
        let mut values = Values::default();
        values.add(8, Some(0));
        let form = |ids: &[i64], pointers: &[u64], workspace| {
            written(&pack(ids, pointers, workspace), &values).1
        };
        let one = form(&[7, 8], &[0x1000, 0x42], 0x100);
        assert_eq!(one, form(&[7, 8], &[0x2000, 0x43], 0x200));
        for other in [
            form(&[7, 8], &[0x1010, 0x42], 0x100),
            form(&[7, 8], &[0, 0x42], 0x100),
            form(&[7, 8], &[0x1000, 0x42], 0),
            form(&[9, 8], &[0x1000, 0x42], 0x100),
            form(&[7], &[0x1000], 0x100),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_pack_is_of_the_types_that_cudnn_has() {
        let mut of = Pack::default();
        let word = 1_u64.to_ne_bytes();
        for (name, kind, elements, refused) in [
            (
                name::PACK_IDS,
                element::POINTER,
                &word[..],
                status::ATTRIBUTE_TYPE,
            ),
            (
                name::PACK_POINTERS,
                element::INT64,
                &word,
                status::ATTRIBUTE_TYPE,
            ),
            (
                name::PACK_WORKSPACE,
                element::POINTER,
                &[],
                status::BAD_PARAM,
            ),
            (1011, element::INT64, &word, status::NOT_SUPPORTED),
            (5, element::INT64, &word, status::NOT_SUPPORTED),
        ] {
            assert_eq!(of.set(name, kind, elements), Err(refused), "{name}");
        }
        assert_eq!(of.set(1002, element::POINTER, &[]), Ok(()));
        assert_eq!(
            of.get(name::PACK_IDS, element::INT64),
            Err(status::NOT_INITIALIZED)
        );
        let many = vec![0; 8 * (MOST_OPERANDS + 1)];
        assert_eq!(
            of.set(name::PACK_IDS, element::INT64, &many),
            Err(status::BAD_PARAM)
        );
        of.is_final = true;
        assert_eq!(
            of.set(name::PACK_IDS, element::INT64, &word),
            Err(status::BAD_PARAM)
        );
    }
}
