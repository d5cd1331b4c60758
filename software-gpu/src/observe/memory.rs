// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory of copies and fills as an observer knows it.

use gpgpu_protocol::cupti::memory_kind;
use gpgpu_protocol::software_gpu::Memory;

use crate::context::{self, Context};
use crate::driver;
use crate::memory::{Allocation, Place};

/// A side of a copy.
pub trait Side {
    /// Its memory as the observer knows it.
    fn memory(&self) -> Memory;
}

impl Side for Place {
    fn memory(&self) -> Memory {
        match self {
            Self::Known(of) => memory_of(of),
            Self::Pageable => PAGEABLE,
        }
    }
}

/// Memory of the program's own.
const PAGEABLE: Memory = Memory {
    device: 0,
    context: 0,
    kind: memory_kind::PAGEABLE,
};

/// An allocation as the observer knows it.
pub fn memory_of(of: &Allocation) -> Memory {
    let kind = match (of.is_host(), of.is_managed()) {
        (true, _) => memory_kind::PINNED,
        (_, true) => memory_kind::MANAGED,
        _ => memory_kind::DEVICE,
    };
    Memory {
        device: of.device as u32,
        context: of.context as u32,
        kind,
    }
}

/// The memory of a node.
#[derive(Debug, Clone, Copy)]
pub struct OfNode {
    /// The address, if it is no array.
    pub address: u64,
    /// The handle of the array's context.
    pub array: Option<u64>,
}

impl OfNode {
    /// The memory at an address.
    pub fn address(address: u64) -> Self {
        let array = None;
        Self { address, array }
    }
}

impl Side for OfNode {
    fn memory(&self) -> Memory {
        if let Some(context) = self.array {
            return array(context::named(context).ok().as_deref());
        }
        let classify = |driver: &driver::Driver| driver.memory.classify(self.address, 1, false);
        match driver::get().and_then(classify) {
            Ok(place) => place.memory(),
            Err(_) => PAGEABLE,
        }
    }
}

/// An array in a context as the observer knows it.
pub fn array(context: Option<&Context>) -> Memory {
    Memory {
        device: context.map_or(0, |of| of.device as u32),
        context: context.map_or(0, |of| of.own as u32),
        kind: memory_kind::ARRAY,
    }
}
