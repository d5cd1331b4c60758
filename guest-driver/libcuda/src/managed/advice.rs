// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A program's advice about managed memory. It can be read back, but moves nothing.

use gpgpu_protocol::cuda::*;

/// `CU_DEVICE_CPU`, the host's number in answers.
pub const HOST: i32 = -1;
/// `CU_DEVICE_INVALID`: no place, or several places.
pub const NOWHERE: i32 = -2;

/// `CUmem_advise`.
pub mod advise {
    pub const SET_READ_MOSTLY: u32 = 1;
    pub const UNSET_READ_MOSTLY: u32 = 2;
    pub const SET_PREFERRED_LOCATION: u32 = 3;
    pub const UNSET_PREFERRED_LOCATION: u32 = 4;
    pub const SET_ACCESSED_BY: u32 = 5;
    pub const UNSET_ACCESSED_BY: u32 = 6;
}

/// `CUmem_range_attribute`.
pub mod range {
    pub const READ_MOSTLY: u32 = 1;
    pub const PREFERRED_LOCATION: u32 = 2;
    pub const ACCESSED_BY: u32 = 3;
    pub const LAST_PREFETCH_LOCATION: u32 = 4;
    pub const PREFERRED_LOCATION_TYPE: u32 = 5;
    pub const PREFERRED_LOCATION_ID: u32 = 6;
    pub const LAST_PREFETCH_LOCATION_TYPE: u32 = 7;
    pub const LAST_PREFETCH_LOCATION_ID: u32 = 8;
}

/// A named place: its kind, and its number in answers.
pub type Place = (CUmemLocationType, i32);

/// No place.
const NONE: Place = (CU_MEM_LOCATION_TYPE_INVALID, NOWHERE);

/// The advice for one block.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    /// It is mostly read.
    pub read_mostly: bool,
    /// Its preferred place.
    pub preferred: Option<Place>,
    /// The announced users: devices, in order, and [`HOST`].
    pub accessed_by: Vec<i32>,
    /// The place of its last prefetch.
    pub prefetched: Option<Place>,
}

impl Advice {
    /// Applies a piece of advice about a place.
    pub fn take(&mut self, advice: u32, place: Place) {
        let who = if place.0 == CU_MEM_LOCATION_TYPE_DEVICE {
            place.1
        } else {
            HOST
        };
        match advice {
            advise::SET_READ_MOSTLY => self.read_mostly = true,
            advise::UNSET_READ_MOSTLY => self.read_mostly = false,
            advise::SET_PREFERRED_LOCATION => self.preferred = Some(place),
            advise::UNSET_PREFERRED_LOCATION => self.preferred = None,
            advise::SET_ACCESSED_BY if !self.accessed_by.contains(&who) => {
                self.accessed_by.push(who);
                // Devices first, in their order.
                self.accessed_by.sort_by_key(|of| of.cast_unsigned());
            }
            advise::UNSET_ACCESSED_BY => self.accessed_by.retain(|of| *of != who),
            _ => {}
        }
    }
}

/// The device number in the answer to an older query.
fn device(place: Place) -> i32 {
    match place.0 {
        CU_MEM_LOCATION_TYPE_INVALID | CU_MEM_LOCATION_TYPE_DEVICE => place.1,
        _ => HOST,
    }
}

/// The common place of all blocks.
fn common(of: &[Advice], which: impl Fn(&Advice) -> Option<Place>) -> Place {
    let mut all = of.iter().map(|of| which(of).unwrap_or(NONE));
    let first = all.next().unwrap_or(NONE);
    if all.all(|of| of == first) {
        first
    } else {
        NONE
    }
}

/// The answer to a query about some blocks, with as many numbers as there is room for.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for an invalid query or size.
pub fn answer(of: &[Advice], attribute: u32, bytes: usize) -> Result<Vec<i32>, CUresult> {
    if attribute == range::ACCESSED_BY {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let is_common = |who: &&i32| of.iter().all(|of| of.accessed_by.contains(who));
        let first = of.first().map(|of| of.accessed_by.as_slice());
        let mut all: Vec<_> = first
            .unwrap_or_default()
            .iter()
            .filter(is_common)
            .copied()
            .collect();
        all.resize(bytes / 4, NOWHERE);
        return Ok(all);
    }
    if bytes != 4 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let preferred = || common(of, |of| of.preferred);
    let prefetched = || common(of, |of| of.prefetched);
    Ok(vec![match attribute {
        range::READ_MOSTLY => i32::from(of.iter().all(|of| of.read_mostly)),
        range::PREFERRED_LOCATION => device(preferred()),
        range::LAST_PREFETCH_LOCATION => device(prefetched()),
        range::PREFERRED_LOCATION_TYPE => preferred().0.cast_signed(),
        range::PREFERRED_LOCATION_ID => preferred().1,
        range::LAST_PREFETCH_LOCATION_TYPE => prefetched().0.cast_signed(),
        range::LAST_PREFETCH_LOCATION_ID => prefetched().1,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Place = (CU_MEM_LOCATION_TYPE_DEVICE, 0);
    const CPU: Place = (CU_MEM_LOCATION_TYPE_HOST, HOST);

    #[test]
    fn answers_are_those_of_nvidias_driver() {
        let mut blocks = vec![Advice::default(); 2];
        assert_eq!(answer(&blocks, range::READ_MOSTLY, 4), Ok(vec![0]));
        assert_eq!(answer(&blocks, range::PREFERRED_LOCATION, 4), Ok(vec![-2]));
        assert_eq!(answer(&blocks, range::ACCESSED_BY, 12), Ok(vec![-2; 3]));
        for block in &mut blocks {
            block.take(advise::SET_PREFERRED_LOCATION, GPU);
            block.take(advise::SET_ACCESSED_BY, CPU);
            block.take(advise::SET_ACCESSED_BY, GPU);
        }
        assert_eq!(answer(&blocks, range::ACCESSED_BY, 12), Ok(vec![0, -1, -2]));
        assert_eq!(
            answer(&blocks, range::PREFERRED_LOCATION_TYPE, 4),
            Ok(vec![1])
        );
        blocks[0].take(advise::SET_PREFERRED_LOCATION, CPU);
        assert_eq!(answer(&blocks, range::PREFERRED_LOCATION, 4), Ok(vec![-2]));
        assert_eq!(
            answer(&blocks[..1], range::PREFERRED_LOCATION, 4),
            Ok(vec![-1])
        );
        blocks[1].take(advise::UNSET_ACCESSED_BY, GPU);
        assert_eq!(answer(&blocks, range::ACCESSED_BY, 8), Ok(vec![-1, -2]));
        for (attribute, bytes) in [(1, 8), (1, 0), (3, 3), (3, 0), (0, 4), (99, 4)] {
            assert_eq!(
                answer(&blocks, attribute, bytes),
                Err(CUDA_ERROR_INVALID_VALUE)
            );
        }
    }
}
