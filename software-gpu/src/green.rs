// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Multiprocessors, how they are split, and the green contexts that have some of them.
//!
//! A resource is a structure of the program. Its part for the library's use contains the multiprocessors, a bit for
//! each, and the number of the split that made it.

use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use crate::config::{Config, MULTIPROCESSORS};
use crate::context::Context;
use crate::ffi::Result;
use crate::handle::Table;

/// All descriptors. CUDA has no function that destroys one.
pub static DESCRIPTORS: Table<Descriptor> = Table::new(0x6d);

/// Multiprocessors of a device, a bit for each.
pub type Bits = u32;

const _: () = assert!(MULTIPROCESSORS <= Bits::BITS);

/// All multiprocessors of a device.
pub const ALL: Bits = Bits::MAX >> (Bits::BITS - MULTIPROCESSORS);

/// The word after the type in a resource of this device.
const MARK: u32 = 0x736d_7061;

/// The resources of a green context that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The device.
    pub device: CUdevice,
    /// Its multiprocessors.
    pub bits: Bits,
}

/// The content of a green context.
pub struct Green {
    /// The primary context that it is a part of.
    pub home: Arc<Context>,
    /// Its multiprocessors.
    pub bits: Bits,
}

/// The multiprocessors of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource {
    /// The device.
    pub device: CUdevice,
    /// Its multiprocessors.
    pub bits: Bits,
    /// The source of the split, the maximum number of groups, their minimum size, and the flags; `None` without a
    /// split.
    pub split: Option<(Bits, u32, u32, u32)>,
}

/// The minimum size of a group, and the divisor of the size, as on NVIDIA's devices of the same capability.
fn granularity(flags: u32) -> (u32, u32) {
    if flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING != 0 {
        (2, 2)
    } else if Config::get().has_clusters() {
        (8, 8)
    } else {
        (4, 2)
    }
}

impl Resource {
    /// The program's form.
    pub fn show(self) -> CUdevResource {
        let mut internal = [0; 23];
        let (is_split, split) = match self.split {
            Some(split) => (1, split),
            None => (0, (0, 0, 0, 0)),
        };
        let device = self.device as u32;
        let (of, groups, minimum, flags) = split;
        internal[..8].copy_from_slice(&[
            MARK, device, self.bits, is_split, of, groups, minimum, flags,
        ]);
        let (least, alignment) = match self.split {
            Some(_) => (0, 0),
            None => granularity(0),
        };
        CUdevResource {
            type_: CU_DEV_RESOURCE_TYPE_SM,
            internal,
            sm: CUdevSmResource {
                smCount: self.bits.count_ones(),
                minSmPartitionSize: least,
                smCoscheduledAlignment: alignment,
            },
            ..CUdevResource::default()
        }
    }

    /// The resource of a structure of the program's.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_RESOURCE_TYPE` if it is of no type that there is,
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` if this device has not made it.
    pub fn read(shown: &CUdevResource) -> Result<Self> {
        if shown.type_ != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let [mark, device, bits, is_split, of, groups, minimum, flags, ..] = shown.internal;
        let has_device = (device as usize) < Config::get().devices;
        if mark != MARK || !has_device || bits == 0 || bits & !ALL != 0 {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        Ok(Self {
            device: device as CUdevice,
            bits,
            split: (is_split != 0).then_some((of, groups, minimum, flags)),
        })
    }

    /// Splits it into at most `most` groups, of at least `minimum` multiprocessors each, and returns the remainder.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for a group of a split, and for too few multiprocessors;
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other.
    pub fn split(self, most: u32, minimum: u32, flags: u32) -> Result<(Vec<Self>, Option<Self>)> {
        let both = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING
            | CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
        if flags & both == both {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let count = self.bits.count_ones();
        if self.split.is_some() || minimum > count {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let (least, alignment) = granularity(flags);
        // All of them can form a group, whatever their number is.
        let size = minimum.max(least).next_multiple_of(alignment).min(count);
        let split = Some((self.bits, most, minimum, flags));
        let part = |bits| Self {
            bits,
            split,
            ..self
        };
        let mut left = self.bits;
        let mut groups = Vec::new();
        while (groups.len() as u32) < most && left.count_ones() >= size {
            let mut bits = 0;
            for _ in 0..size {
                let lowest = left & left.wrapping_neg();
                bits |= lowest;
                left &= !lowest;
            }
            groups.push(part(bits));
        }
        Ok((groups, (left != 0).then(|| part(left))))
    }
}

impl Descriptor {
    /// The descriptor of resources: a single one, or several from one split.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for none, `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for those of several splits.
    pub fn of(resources: &[Resource]) -> Result<Self> {
        let (first, others) = resources.split_first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut bits = first.bits;
        for other in others {
            let is_same = other.device == first.device && other.split == first.split;
            if !is_same || first.split.is_none() {
                return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
            }
            bits |= other.bits;
        }
        Ok(Self {
            device: first.device,
            bits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Resource = Resource {
        device: 0,
        bits: ALL,
        split: None,
    };

    #[test]
    fn groups_are_disjoint_and_complete_with_the_remainder() {
        for (most, minimum, flags, groups, size) in [
            (1, 8, 0, 1, 8),
            (u32::MAX, 4, 0, 4, 4),
            (1, 0, 0, 1, 4),
            (8, 5, 0, 2, 6),
            (8, 1, 1, 8, 2),
            (1, MULTIPROCESSORS, 0, 1, MULTIPROCESSORS),
            (2, MULTIPROCESSORS - 1, 0, 1, MULTIPROCESSORS),
        ] {
            let (made, left) = WHOLE.split(most, minimum, flags).unwrap();
            assert_eq!(made.len(), groups, "{most} of {minimum}");
            let mut seen = left.map_or(0, |left| left.bits);
            for of in &made {
                assert_eq!((of.bits.count_ones(), seen & of.bits), (size, 0));
                seen |= of.bits;
                assert_eq!(Resource::read(&of.show()), Ok(*of));
            }
            assert_eq!(seen, ALL);
            // The same split gives the same groups.
            assert_eq!(WHOLE.split(most, minimum, flags), Ok((made, left)));
        }
    }

    #[test]
    fn a_group_is_not_split_again_and_groups_of_one_split_combine() {
        let bad = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        assert_eq!(WHOLE.split(1, MULTIPROCESSORS + 1, 0), Err(bad));
        assert_eq!(WHOLE.split(1, 4, 3), Err(CUDA_ERROR_INVALID_VALUE));
        let (groups, left) = WHOLE.split(2, 4, 0).unwrap();
        assert_eq!(groups[0].split(1, 2, 1), Err(bad));
        let both = Descriptor::of(&groups).unwrap();
        assert_eq!(both.bits.count_ones(), 8);
        let rest = Descriptor::of(&[groups[0], left.unwrap()]).unwrap();
        assert_eq!(rest.bits.count_ones(), MULTIPROCESSORS - 4);
        let (others, _) = WHOLE.split(2, 6, 0).unwrap();
        assert_eq!(Descriptor::of(&[groups[0], others[1]]), Err(bad));
        assert_eq!(Descriptor::of(&[WHOLE, WHOLE]), Err(bad));
        assert_eq!(Descriptor::of(&[]), Err(CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn an_unknown_resource_is_refused() {
        let none = CUdevResource::default();
        assert_eq!(Resource::read(&none), Err(CUDA_ERROR_INVALID_RESOURCE_TYPE));
        let good = WHOLE.show();
        for (word, value) in [(0, 0), (1, 99), (2, 0), (2, !0)] {
            let mut bad = good;
            bad.internal[word] = value;
            assert_eq!(
                Resource::read(&bad),
                Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
            );
        }
    }
}
