// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The addresses that the guest has reserved, in windows that are never returned to the driver.

use std::collections::BTreeMap;

/// The alignment of addresses and sizes of reservations, in bytes: the granularity of NVIDIA's driver.
pub const GRANULARITY: u64 = 2 << 20;
/// The maximum number of reservations.
const MOST: usize = 16 << 10;

/// The windows and the reservations in them.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Start and size in bytes.
    windows: Vec<(u64, u64)>,
    /// The size of each reservation in bytes, by its start.
    reserved: BTreeMap<u64, u64>,
}

impl Addresses {
    /// Adds a window, which must not overlap others.
    pub fn add(&mut self, start: u64, bytes: u64) {
        self.windows.push((start, bytes));
    }

    /// Whether the maximum number of reservations is reached.
    pub fn has_many(&self) -> bool {
        self.reserved.len() >= MOST
    }

    /// Reserves `bytes` bytes at a multiple of `alignment`, a power of two: at `wish` if that is free, otherwise at the
    /// first place of a window with room. `None` if there is none.
    pub fn reserve(&mut self, bytes: u64, alignment: u64, wish: u64) -> Option<u64> {
        let alignment = alignment.max(GRANULARITY);
        let start = if self.is_free(wish, bytes) && wish.is_multiple_of(alignment) {
            wish
        } else {
            let windows = self.windows.iter();
            windows
                .filter_map(|window| self.first_fit(*window, bytes, alignment))
                .next()?
        };
        self.reserved.insert(start, bytes);
        Some(start)
    }

    /// Whether a range lies in a window and nothing is reserved in it.
    fn is_free(&self, start: u64, bytes: u64) -> bool {
        let Some(end) = start.checked_add(bytes) else {
            return false;
        };
        let window = |(first, length): &(u64, u64)| start >= *first && end <= first + length;
        let before = self.reserved.range(..end).next_back();
        self.windows.iter().any(window) && before.is_none_or(|(of, length)| of + length <= start)
    }

    /// The first place in a window with room. A granule stays free behind the previous reservation, so that a kernel
    /// that runs past its end faults.
    fn first_fit(&self, (first, length): (u64, u64), bytes: u64, alignment: u64) -> Option<u64> {
        let end = first + length;
        let mut at = first.checked_next_multiple_of(alignment)?;
        for (start, length) in self.reserved.range(first..end) {
            if at.checked_add(bytes)?.checked_add(GRANULARITY)? <= *start {
                break;
            }
            at = (start + length + GRANULARITY).checked_next_multiple_of(alignment)?;
        }
        (at.checked_add(bytes)? <= end).then_some(at)
    }

    /// The reservation that contains an address: its start and size.
    pub fn around(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.reserved.range(..=address).next_back()?;
        (address - start < bytes).then_some((start, bytes))
    }

    /// The start of the reservation that contains the whole range.
    pub fn holds(&self, address: u64, bytes: u64) -> Option<u64> {
        let (start, length) = self.around(address)?;
        (bytes <= length - (address - start)).then_some(start)
    }

    /// Frees a whole reservation; `false` if there is none of that size there.
    pub fn free(&mut self, start: u64, bytes: u64) -> bool {
        let is_there = self.reserved.get(&start) == Some(&bytes);
        if is_there {
            self.reserved.remove(&start);
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = GRANULARITY;
    const START: u64 = 1 << 40;

    fn addresses() -> Addresses {
        let mut addresses = Addresses::default();
        addresses.add(START, 64 * G);
        addresses
    }

    #[test]
    fn wishes_are_granted_where_they_can_be_and_nothing_overlaps() {
        let mut a = addresses();
        assert_eq!(a.reserve(4 * G, 0, START + 8 * G), Some(START + 8 * G));
        // Directly behind it, as a program does that grows a buffer in place.
        assert_eq!(a.reserve(G, 0, START + 12 * G), Some(START + 12 * G));
        for taken in [START + 7 * G, START + 8 * G, START + 11 * G, START + 12 * G] {
            let got = a.reserve(2 * G, 0, taken).unwrap();
            assert_ne!(got, taken);
            assert!(a.free(got, 2 * G));
        }
        for outside in [
            0,
            G,
            START - G,
            START + 63 * G,
            START + 64 * G,
            !0 - G + 1,
            START + 1,
        ] {
            assert_eq!(a.reserve(2 * G, 0, outside), Some(START), "{outside:#x}");
            assert!(a.free(START, 2 * G));
        }
    }

    #[test]
    fn a_granule_stays_free_between_reservations_and_alignment_is_kept() {
        let mut a = addresses();
        assert_eq!(a.reserve(G, 0, 0), Some(START));
        assert_eq!(a.reserve(G, 8 * G, 0), Some(START + 8 * G));
        assert_eq!(a.reserve(6 * G, 0, 0), Some(START + 10 * G));
        assert_eq!(a.reserve(5 * G, 0, 0), Some(START + 2 * G));
        assert_eq!(a.reserve(64 * G, 0, 0), None);
        assert_eq!(a.reserve(u64::MAX - G + 1, 0, 0), None);
        assert_eq!(a.reserve(G, 1 << 63, 0), None);
        a.add(START + 100 * G, 64 * G);
        assert_eq!(a.reserve(64 * G, 0, 0), Some(START + 100 * G));
    }

    #[test]
    fn ranges_lie_in_one_reservation_or_in_none() {
        let mut a = addresses();
        a.reserve(2 * G, 0, START).unwrap();
        a.reserve(2 * G, 0, START + 2 * G).unwrap();
        assert_eq!(a.holds(START + G, G), Some(START));
        assert_eq!(a.holds(START + 2 * G, 2 * G), Some(START + 2 * G));
        assert_eq!(a.holds(START + G, 2 * G), None);
        assert_eq!(a.holds(START + G, u64::MAX), None);
        assert_eq!(a.around(START + 4 * G), None);
        assert!(!a.free(START, 4 * G) && !a.free(START + G, G));
        assert!(a.free(START, 2 * G) && !a.free(START, 2 * G));
    }

    #[test]
    fn pitfall_73_there_are_only_so_many() {
        let mut a = Addresses::default();
        a.add(START, 1 << 42);
        while !a.has_many() {
            a.reserve(G, 0, 0).unwrap();
        }
        assert_eq!(a.reserved.len(), MOST);
    }
}
