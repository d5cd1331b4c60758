// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texts of cuDNN's plans (`CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION`), from which other plans can be made.
//!
//! The tensors of such a plan are those of the first one. The worker accepts only texts that the library has given
//! here: of others the tensors are unknown, and the library would trust them.

use std::collections::HashMap;

use gpgpu_protocol::libraries::cudnn::backend::Values;

/// The most texts of plans that are remembered.
const MOST_TEXTS: usize = 1 << 10;

/// The texts of plans that the library has given: the tensors that may be by value in each, by the text's hash.
#[derive(Debug, Default)]
pub struct Texts(HashMap<[u8; 32], Values>);

impl Texts {
    /// A program may pass the NUL at the end on, or not.
    fn hash(text: &[u8]) -> [u8; 32] {
        let end = text.iter().rposition(|byte| *byte != 0);
        *blake3::hash(&text[..end.map_or(0, |last| last + 1)]).as_bytes()
    }

    /// The library has given a whole text of a plan with these tensors.
    pub fn remember(&mut self, text: &[u8], values: &Values) {
        if self.0.len() >= MOST_TEXTS {
            self.0.clear();
        }
        self.0.insert(Self::hash(text), values.clone());
    }

    /// The tensors that may be by value in a plan with this text; `None` if the library has not given it.
    pub fn values(&self, text: &[u8]) -> Option<&Values> {
        self.0.get(&Self::hash(text))
    }
}
