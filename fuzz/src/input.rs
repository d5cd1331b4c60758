// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An input, which is read from its start. A missing rest counts as zeros, so every input is valid.

/// See the module's documentation.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The number of bytes left.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Up to `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// The remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    fn fixed<const N: usize>(&mut self) -> [u8; N] {
        let taken = self.bytes(N);
        let mut all = [0; N];
        all[..taken.len()].copy_from_slice(taken);
        all
    }

    /// A byte.
    pub fn u8(&mut self) -> u8 {
        self.fixed::<1>()[0]
    }

    /// Two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.fixed())
    }

    /// Four bytes.
    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.fixed())
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.fixed())
    }

    /// A number that is usually small, and sometimes at an edge: a small one takes one byte.
    pub fn number(&mut self) -> u64 {
        match self.u8() {
            255 => self.u64(),
            254 => u64::MAX - u64::from(self.u8()),
            253 => u64::from(self.u32()),
            252 => u64::from(self.u8()) << 12,
            251 => u64::from(self.u8()) << 16,
            small => u64::from(small),
        }
    }
}
