//! The memory that the device can reach, as the process knows it: one map, fed by every allocator.

use std::{collections::BTreeMap, sync::RwLock};

use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    argument::{InPtr, OutPtr},
    border::Result,
    client::{Client, client},
    cuda, thread,
};

/// What kind of memory a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Device memory: an allocation or a module's global.
    Device,
    /// Pinned host memory that CUDA allocated, or that the program registered.
    Host {
        /// The address in kernels and in copies that the worker makes.
        device: u64,
        /// The flags that it was made with.
        flags: u32,
        /// Whether it is the program's own memory.
        registered: bool,
    },
}

/// A range of memory that the device can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The address in the program.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// The context that was current when it was made.
    pub context: u64,
    /// What it is.
    pub kind: Kind,
}

impl Range {
    /// The address by which the worker reaches `address`, which lies in the range.
    pub fn far(&self, address: u64) -> u64 {
        match self.kind {
            Kind::Device => address,
            Kind::Host { device, .. } => device + (address - self.start),
        }
    }
}

/// The map.
#[derive(Debug, Default)]
pub struct Pointers {
    ranges: RwLock<BTreeMap<u64, Range>>,
}

impl Pointers {
    /// Notes a range; it replaces a stale one at the same address.
    pub fn insert(&self, range: Range) {
        self.write(|ranges| ranges.insert(range.start, range));
    }

    /// Forgets the range that starts at `start`. Freed memory is forgotten before the host is asked,
    /// for another thread may be given the same address at once.
    pub fn remove(&self, start: u64) -> Option<Range> {
        self.write(|ranges| ranges.remove(&start))
    }

    /// Forgets every range of a context; they are returned.
    pub fn remove_context(&self, context: u64) -> Vec<Range> {
        self.write(|ranges| {
            ranges
                .extract_if(.., |_, range| range.context == context)
                .map(|(_, range)| range)
                .collect()
        })
    }

    /// The range that `address` lies in, by the program's address or by the device's.
    pub fn find(&self, address: u64) -> Option<Range> {
        let ranges = self
            .ranges
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let by_start = ranges
            .range(..=address)
            .next_back()
            .map(|(_, range)| *range);
        by_start
            .filter(|range| address - range.start < range.bytes)
            .or_else(|| {
                ranges.values().copied().find(|range| match range.kind {
                    Kind::Host { device, .. } => address.wrapping_sub(device) < range.bytes,
                    Kind::Device => false,
                })
            })
    }

    /// The range that holds all of the `bytes` bytes at `address`.
    pub fn find_whole(&self, address: u64, bytes: usize) -> Option<Range> {
        let range = self.find(address)?;
        let start = if address.wrapping_sub(range.start) < range.bytes {
            range.start
        } else {
            range.far(range.start)
        };
        (bytes as u64 <= range.bytes - (address - start)).then_some(range)
    }

    /// What host memory the `bytes` bytes at `address` overlap that is pinned already.
    pub fn overlapping_host(&self, address: u64, bytes: u64) -> Option<Kind> {
        let ranges = self
            .ranges
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = ranges.range(..address.saturating_add(bytes)).rev();
        // Ranges do not overlap each other, so of those of host memory the nearest one tells.
        before
            .map(|(_, range)| range)
            .find(|range| matches!(range.kind, Kind::Host { .. }))
            .filter(|range| range.start + range.bytes > address)
            .map(|range| range.kind)
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, Range>) -> T) -> T {
        change(
            &mut self
                .ranges
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }
}

/// One attribute's value; its variants are the sizes in which CUDA writes it.
enum Value {
    Word(u64),
    Half(u32),
    Flag(bool),
}

impl Value {
    fn give(self, to: *mut std::ffi::c_void) {
        match self {
            Self::Word(value) => OutPtr::nested(to).offer(value),
            Self::Half(value) => OutPtr::nested(to).offer(value),
            Self::Flag(value) => OutPtr::nested(to).offer(u8::from(value)),
        }
    }
}

fn attribute(client: &Client, attribute: CUpointer_attribute, address: u64) -> Result<Value> {
    let range = client
        .pointers
        .find(address)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let on_host = matches!(range.kind, Kind::Host { .. });
    let offset = address
        - if address.wrapping_sub(range.start) < range.bytes {
            range.start
        } else {
            range.far(range.start)
        };
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => Value::Word(range.context),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Half(if on_host {
            CU_MEMORYTYPE_HOST
        } else {
            CU_MEMORYTYPE_DEVICE
        }),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Word(range.far(range.start) + offset),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if on_host => Value::Word(range.start + offset),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => return Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Flag(false),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            Value::Half(client.objects.context_device(range.context).unwrap_or(0) as u32)
        }
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Flag(false),
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Word(range.far(range.start)),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Word(range.bytes),
        CU_POINTER_ATTRIBUTE_MAPPED => Value::Flag(true),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Value::Word(0),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Word(0),
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUDA_ERROR_NOT_SUPPORTED),
        // The rest is the host's to say.
        other => {
            let request = request::gpgpuPointerAttribute {
                value: true,
                attribute: other,
                ptr: range.far(range.start) + offset,
            };
            let value = client.call(&request)?.value;
            match other {
                CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Word(value),
                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Flag(value != 0),
                _ => Value::Half(value as u32),
            }
        }
    })
}

cuda! {
    /// `cuPointerGetAttribute`: from the process's own map, but for what only the host knows.
    fn cuPointerGetAttribute(data: OutPtr<std::ffi::c_void>, attr: CUpointer_attribute, ptr: CUdeviceptr) {
        let client = client()?;
        data.required()?;
        attribute(client, attr, ptr)?.give(data.raw());
        Ok(())
    }

    /// `cuPointerGetAttributes`: success, with zeros, where the pointer is unknown.
    fn cuPointerGetAttributes(numAttributes: u32, attributes: InPtr<CUpointer_attribute>, data: InPtr<*mut std::ffi::c_void>, ptr: CUdeviceptr) {
        let client = client()?;
        if thread::current_context() == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        for i in 0..numAttributes as usize {
            let (which, to) = (attributes.at(i)?, data.at(i)?);
            match attribute(client, which, ptr) {
                Ok(value) => value.give(to),
                Err(_) => match which {
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Half(-2_i32 as u32).give(to),
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Half(0).give(to),
                    CU_POINTER_ATTRIBUTE_IS_MANAGED | CU_POINTER_ATTRIBUTE_MAPPED | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                    | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Flag(false).give(to),
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Value::Half(0).give(to),
                    _ => Value::Word(0).give(to),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(start: u64, bytes: u64) -> Range {
        Range {
            start,
            bytes,
            context: 1,
            kind: Kind::Device,
        }
    }

    #[test]
    fn a_range_is_found_by_every_address_in_it_and_by_no_other() {
        let pointers = Pointers::default();
        pointers.insert(device(0x1000, 0x100));
        assert!(pointers.find(0xfff).is_none());
        assert!(pointers.find(0x1000).is_some());
        assert!(pointers.find(0x10ff).is_some());
        assert!(pointers.find(0x1100).is_none());
        assert!(pointers.find_whole(0x1080, 0x80).is_some());
        assert!(pointers.find_whole(0x1080, 0x81).is_none());
    }

    #[test]
    fn pitfall_11_registered_memory_is_found_by_its_device_address_too() {
        let pointers = Pointers::default();
        pointers.insert(Range {
            start: 0x5000,
            bytes: 0x1000,
            context: 1,
            kind: Kind::Host {
                device: 0x9000,
                flags: 0,
                registered: true,
            },
        });
        let range = pointers.find(0x9800).unwrap();
        assert_eq!((range.start, range.far(0x5800)), (0x5000, 0x9800));
        assert!(pointers.find_whole(0x9800, 0x800).is_some());
        assert!(pointers.find_whole(0x9800, 0x801).is_none());
    }

    #[test]
    fn pitfall_17_freed_memory_is_unknown_and_its_address_can_become_another_kind() {
        let pointers = Pointers::default();
        pointers.insert(device(0x1000, 0x100));
        pointers.remove(0x1000);
        assert!(pointers.find(0x1010).is_none());
        let host = Kind::Host {
            device: 0x1000,
            flags: 0,
            registered: false,
        };
        pointers.insert(Range {
            kind: host,
            ..device(0x1000, 0x10)
        });
        assert_eq!(pointers.find(0x1008).unwrap().kind, host);
    }
}
