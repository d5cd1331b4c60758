// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The memory that the device can access, as this process knows it: one map, to which every allocator adds.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use gpgpu_locks::{RwLock, RwLockWriteGuard};
use gpgpu_protocol::cuda::*;

/// The kind of memory of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Device memory: an allocation or a module's global.
    Device,
    /// Pinned host memory that CUDA allocated, or that the program registered.
    Host {
        /// The address for kernels and for copies of the worker.
        device: u64,
        /// The flags with which it was made.
        flags: u32,
        /// Whether it is the program's own memory.
        registered: bool,
    },
}

/// The origin of the program's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A call that allocates or registers.
    Call,
    /// A call that allocates pinned memory: a part of a chunk.
    Part,
    /// A call that allocates, after which another process may have opened the memory.
    Shared,
    /// Another process: the memory was opened here, on a device.
    Opened(CUdevice),
    /// A module or library: the memory is one of its variables.
    Image {
        /// The id; for a library's module, that of the library.
        owner: u64,
        /// Whether the program can access it at the device's address.
        managed: bool,
    },
    /// A memory pool of a device.
    Pool {
        /// Its handle.
        pool: u64,
        /// The device.
        device: CUdevice,
    },
    /// A memory pool of host memory, by its id.
    HostPool(u64),
    /// A call that allocates managed memory, which the program can access at the device's address.
    Managed,
    /// A mapping of physical memory.
    Mapped {
        /// The device of its memory.
        device: CUdevice,
        /// The devices that may read and write it: a bit for each. It belongs to no context.
        open: u64,
        /// The types of handles by which it can be exported.
        types: u32,
    },
}

/// A range of memory that the device can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The address in the program.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The context that was current when it was made.
    pub context: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its origin.
    pub origin: Origin,
}

impl Range {
    /// The address at which the worker accesses `address`, which lies in the range.
    #[inline]
    pub fn far(&self, address: u64) -> u64 {
        match self.kind {
            Kind::Device => address,
            Kind::Host { device, .. } => device + (address - self.start),
        }
    }

    /// The address at which the program accesses `address`, which lies in the range.
    pub fn near(&self, address: u64) -> u64 {
        match address.wrapping_sub(self.start) < self.bytes {
            true => address,
            false => self.start + (address - self.far(self.start)),
        }
    }

    /// The number of bytes from `address`, which lies in the range, to its end.
    fn rest(&self, address: u64) -> u64 {
        self.bytes - (self.near(address) - self.start)
    }

    /// Whether it is pinned host memory, and no managed memory.
    pub fn is_pinned(&self) -> bool {
        matches!(self.kind, Kind::Host { .. }) && !self.is_managed()
    }

    /// Whether the program can access it at the device's address, like managed memory.
    pub fn is_managed(&self) -> bool {
        matches!(
            self.origin,
            Origin::Managed | Origin::Image { managed: true, .. }
        )
    }

    /// Whether device memory is freed by an address. Variables of an image and mappings are not.
    pub fn is_freed_at(address: u64) -> impl Fn(&Self) -> bool {
        move |range| {
            range.start == address
                && (range.kind == Kind::Device || range.origin == Origin::Managed)
                && !matches!(
                    range.origin,
                    Origin::Image { .. } | Origin::Opened(_) | Origin::Mapped { .. }
                )
        }
    }

    /// Whether it contains `address`, an address of the program or of the device.
    fn holds(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
            || address.wrapping_sub(self.far(self.start)) < self.bytes
    }
}

/// The number of ranges that each thread caches.
const RECENT: usize = 8;

/// A thread's last look-ups, and the map's state at that time.
struct Recent {
    state: u64,
    ranges: [Range; RECENT],
    count: usize,
    oldest: usize,
}

thread_local! {
    // No destructor, so that it can be used while the thread is being torn down.
    static RECENTS: RefCell<Recent> = const {
        let nothing = Range { start: 0, bytes: 0, context: 0, kind: Kind::Device, origin: Origin::Call };
        RefCell::new(Recent { state: 0, ranges: [nothing; RECENT], count: 0, oldest: 0 })
    };
}

impl Recent {
    fn keep(&mut self, state: u64, range: Range) {
        if self.state != state {
            (self.state, self.count, self.oldest) = (state, 0, 0);
        }
        let place = if self.count < RECENT {
            self.count += 1;
            self.count - 1
        } else {
            self.oldest = (self.oldest + 1) % RECENT;
            self.oldest
        };
        self.ranges[place] = range;
    }
}

/// A number for each state of each map. No two maps ever have the same.
static STATES: AtomicU64 = AtomicU64::new(1);

/// The map. Each thread caches its last look-ups, so most look-ups take no lock.
#[derive(Debug, Default)]
pub struct Pointers {
    map: RwLock<Map>,
    /// The number of the state, which differs after every change; 0 before the first one.
    state: AtomicU64,
    /// Whether addresses were ever reserved.
    any_reserved: AtomicBool,
    /// Whether any memory ever got `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
    any_synchronous: AtomicBool,
}

#[derive(Debug, Default)]
struct Map {
    /// By their first addresses in the program.
    ranges: BTreeMap<u64, Range>,
    /// The program's first addresses of ranges with another device address, by that address.
    elsewhere: BTreeMap<u64, u64>,
    /// The numbers of ranges by their first addresses, once they were queried.
    ids: BTreeMap<u64, u64>,
    /// The sizes of reservations by their first addresses.
    reserved: BTreeMap<u64, u64>,
}

impl Map {
    fn insert(&mut self, range: Range) {
        self.remove(range.start);
        if range.far(range.start) != range.start {
            self.elsewhere.insert(range.far(range.start), range.start);
        }
        self.ranges.insert(range.start, range);
    }

    fn remove(&mut self, start: u64) -> Option<Range> {
        let range = self.ranges.remove(&start)?;
        self.elsewhere.remove(&range.far(range.start));
        self.ids.remove(&start);
        Some(range)
    }

    /// The reservation that contains an address: its start and size.
    fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &bytes) = self.reserved.range(..=address).next_back()?;
        (address - start < bytes).then_some((start, bytes))
    }

    /// The mappings of one reservation that contain a range, as one: `first` is the one in which it begins.
    fn span(&self, first: Range, address: u64, bytes: usize) -> Option<Range> {
        let (start, length) = self.reservation(address)?;
        if bytes as u64 > length - (address - start) {
            return None;
        }
        let mut whole = first;
        while address + bytes as u64 > whole.start + whole.bytes {
            let next = self.ranges.get(&(whole.start + whole.bytes))?;
            let (Origin::Mapped { open, .. }, Origin::Mapped { open: more, .. }) =
                (&mut whole.origin, next.origin)
            else {
                return None;
            };
            *open &= more;
            whole.bytes += next.bytes;
        }
        Some(whole)
    }

    /// The starts of the mappings in a range.
    fn mapped(&self, start: u64, bytes: u64) -> Vec<u64> {
        let end = start.saturating_add(bytes);
        let within = self.ranges.range(start..end);
        within
            .filter(|(_, range)| matches!(range.origin, Origin::Mapped { .. }))
            .filter(|(_, range)| range.bytes <= end - range.start)
            .map(|(start, _)| *start)
            .collect()
    }

    fn find(&self, address: u64) -> Option<Range> {
        let at = |start: &u64| self.ranges.get(start).copied();
        let nearest = self.ranges.range(..=address).next_back();
        nearest
            .map(|(_, range)| *range)
            .filter(|range| address - range.start < range.bytes)
            .or_else(|| {
                let (device, start) = self.elsewhere.range(..=address).next_back()?;
                at(start).filter(|range| address - device < range.bytes)
            })
    }
}

impl Pointers {
    /// Adds a range, which replaces a stale one at the same address.
    pub fn insert(&self, range: Range) {
        self.write(|map| map.insert(range));
    }

    /// Removes the range that starts at `start`. Freed memory is removed before the host is called, because another
    /// thread may get the same address immediately.
    pub fn remove(&self, start: u64) -> Option<Range> {
        self.write(|map| map.remove(start))
    }

    /// Removes every range of a context, and returns them.
    pub fn remove_context(&self, context: u64) -> Vec<Range> {
        self.write(|map| {
            let of_context = map.ranges.values().filter(|range| range.context == context);
            let starts: Vec<_> = of_context.map(|range| range.start).collect();
            starts
                .into_iter()
                .filter_map(|start| map.remove(start))
                .collect()
        })
    }

    /// Removes the variables of a module or a library.
    pub fn remove_image(&self, image: u64) {
        self.write(|map| {
            let is_its = |range: &&Range| matches!(range.origin, Origin::Image { owner, .. } if owner == image);
            let starts: Vec<_> = map.ranges.values().filter(is_its).map(|range| range.start).collect();
            for start in starts {
                map.remove(start);
            }
        });
    }

    /// Adds reserved addresses.
    pub fn reserve(&self, start: u64, bytes: u64) {
        self.any_reserved.store(true, Ordering::Relaxed);
        self.locked().reserved.insert(start, bytes);
    }

    /// Removes the reservation that starts at `start`; returns its size.
    pub fn unreserve(&self, start: u64) -> Option<u64> {
        self.locked().reserved.remove(&start)
    }

    /// The reservation that contains an address, whatever is mapped there: its start and size.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        if !self.any_reserved.load(Ordering::Relaxed) {
            return None;
        }
        self.read(|map| map.reservation(address))
    }

    /// Removes the mappings in a range, and returns them.
    pub fn remove_mapped(&self, start: u64, bytes: u64) -> Vec<Range> {
        self.write(|map| {
            let starts = map.mapped(start, bytes).into_iter();
            starts.filter_map(|start| map.remove(start)).collect()
        })
    }

    /// Records that other processes may open an allocation of a context from now on: it is not kept for reuse once it
    /// is freed.
    pub fn share(&self, start: u64) {
        self.write(|map| {
            if let Some(range) = map.ranges.get_mut(&start)
                && range.origin == Origin::Call
            {
                range.origin = Origin::Shared;
            }
        });
    }

    /// Sets whether a device may read and write the mappings in a range.
    pub fn set_open(&self, start: u64, bytes: u64, device: CUdevice, is_open: bool) {
        self.write(|map| {
            for start in map.mapped(start, bytes) {
                if let Some(range) = map.ranges.get_mut(&start)
                    && let Origin::Mapped { open, .. } = &mut range.origin
                {
                    let bit = 1_u64.checked_shl(device as u32).unwrap_or(0);
                    *open = *open & !bit | if is_open { bit } else { 0 };
                }
            }
        });
    }

    /// The range that contains `address`, an address of the program or of the device.
    pub fn find(&self, address: u64) -> Option<Range> {
        // The state is read before the map, so that a change in between outdates the cached look-up.
        let state = self.state.load(Ordering::Acquire);
        if state == 0 {
            return None;
        }
        let at_hand = |recents: &RefCell<Recent>| {
            let recent = recents.try_borrow().ok()?;
            let ranges = &recent.ranges[..recent.count];
            let found = ranges.iter().find(|range| range.holds(address));
            found.filter(|_| recent.state == state).copied()
        };
        if let Ok(Some(range)) = RECENTS.try_with(at_hand) {
            return Some(range);
        }
        let found = self.read(|map| map.find(address));
        if let Some(range) = found {
            let _ = RECENTS.try_with(|recents| {
                if let Ok(mut recent) = recents.try_borrow_mut() {
                    recent.keep(state, range);
                }
            });
        }
        found
    }

    /// The range that contains all `bytes` bytes at `address`. Adjoining mappings in one reservation are one range.
    #[inline]
    pub fn find_whole(&self, address: u64, bytes: usize) -> Option<Range> {
        let range = self.find(address)?;
        if bytes as u64 <= range.rest(address) {
            return Some(range);
        }
        matches!(range.origin, Origin::Mapped { .. })
            .then(|| self.read(|map| map.span(range, address, bytes)))?
    }

    /// Whether the `bytes` bytes at `address` begin in pinned memory or in an allocation, and go beyond its end. The
    /// host does not know the end: it has chunks of pinned memory, and allocations of rounded sizes.
    pub fn overruns(&self, address: u64, bytes: usize) -> bool {
        let is_bounded = |range: &Range| {
            matches!(range.kind, Kind::Host { .. })
                || matches!(
                    range.origin,
                    Origin::Call | Origin::Shared | Origin::Managed
                )
        };
        self.find(address)
            .is_some_and(|range| is_bounded(&range) && bytes as u64 > range.rest(address))
    }

    /// Whether some memory may have `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`. The host knows which, and makes calls wait for
    /// it.
    #[inline]
    pub fn any_synchronous(&self) -> bool {
        self.any_synchronous.load(Ordering::Relaxed)
    }

    /// Records that some has.
    pub fn set_synchronous(&self) {
        self.any_synchronous.store(true, Ordering::Relaxed);
    }

    /// The pinned host memory that overlaps the `bytes` bytes at `address`.
    pub fn overlapping_host(&self, address: u64, bytes: u64) -> Option<Kind> {
        self.read(|map| {
            let before = map.ranges.range(..address.saturating_add(bytes)).rev();
            // Ranges do not overlap each other, so the nearest range of host memory decides.
            before
                .map(|(_, range)| range)
                .find(|range| matches!(range.kind, Kind::Host { .. }))
                .filter(|range| range.start + range.bytes > address)
                .map(|range| range.kind)
        })
    }

    /// A number for the range that starts at `start`, unique among all past and present ranges of this process. It is
    /// not the host's: one allocation there can contain several of the program's, one after the other or side by side.
    pub fn buffer_id(&self, start: u64) -> Option<u64> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if let Some(id) = self.read(|map| map.ids.get(&start).copied()) {
            return Some(id);
        }
        let mut map = self.locked();
        map.ranges.get(&start)?;
        let id = map.ids.entry(start);
        Some(*id.or_insert_with(|| NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    fn read<T>(&self, look: impl FnOnce(&Map) -> T) -> T {
        look(&self.map.read())
    }

    fn locked(&self) -> RwLockWriteGuard<'_, Map> {
        self.map.write()
    }

    fn write<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        let mut map = self.locked();
        let result = change(&mut map);
        let next = STATES.fetch_add(1, Ordering::Relaxed);
        self.state.store(next, Ordering::Release);
        result
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
            origin: Origin::Call,
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
    fn pitfall_17_mappings_side_by_side_are_one_within_their_reservation() {
        let pointers = Pointers::default();
        assert_eq!(pointers.reservation(0x1000), None);
        pointers.reserve(0x1000, 0x300);
        pointers.reserve(0x1300, 0x100);
        for start in [0x1000, 0x1100, 0x1300] {
            pointers.insert(Range {
                context: 0,
                origin: Origin::Mapped {
                    device: 1,
                    open: 0,
                    types: 0,
                },
                ..device(start, 0x100)
            });
        }
        let open = |address, bytes| match pointers.find_whole(address, bytes)?.origin {
            Origin::Mapped { open, .. } => Some(open),
            _ => None,
        };
        assert_eq!(open(0x1080, 0x180), Some(0));
        assert_eq!(open(0x1080, 0x181), None, "nothing is mapped there");
        assert_eq!(open(0x1080, usize::MAX), None);
        assert_eq!(pointers.reservation(0x12ff), Some((0x1000, 0x300)));
        pointers.set_open(0x1000, 0x200, 1, true);
        pointers.set_open(0x1100, 0x100, 0, true);
        assert_eq!(
            open(0x1000, 0x200),
            Some(2),
            "both may be written by device 1 alone"
        );
        assert_eq!(open(0x1100, 0x100), Some(3));
        pointers.set_open(0x1080, 0x100, 1, false);
        assert_eq!(open(0x1000, 0x200), Some(2), "no part of a mapping");
        // Another reservation begins where this one ends.
        pointers.insert(Range {
            context: 0,
            origin: Origin::Mapped {
                device: 1,
                open: 0,
                types: 0,
            },
            ..device(0x1200, 0x100)
        });
        assert_eq!(open(0x1200, 0x100), Some(0));
        assert_eq!(open(0x1200, 0x101), None);
        let gone = pointers.remove_mapped(0x1080, 0x280);
        let starts: Vec<_> = gone.iter().map(|range| range.start).collect();
        assert_eq!(starts, [0x1100, 0x1200]);
        assert!(pointers.find(0x1100).is_none() && pointers.find(0x1000).is_some());
        assert!(!Range::is_freed_at(0x1000)(&pointers.find(0x1000).unwrap()));
        assert_eq!(pointers.unreserve(0x1300), Some(0x100));
        assert_eq!(pointers.unreserve(0x1300), None);
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
            origin: Origin::Call,
        });
        let range = pointers.find(0x9800).unwrap();
        assert_eq!((range.start, range.far(0x5800)), (0x5000, 0x9800));
        assert!(pointers.find_whole(0x9800, 0x800).is_some());
        assert!(pointers.find_whole(0x9800, 0x801).is_none());
        pointers.remove(0x5000);
        assert!(pointers.find(0x9800).is_none());
    }

    #[test]
    fn a_threads_last_look_up_belongs_to_its_map_and_state() {
        let (one, other) = (Pointers::default(), Pointers::default());
        for start in 0..2 * RECENT as u64 {
            one.insert(device(start * 0x1000, 0x100));
        }
        other.insert(device(0, 0x10));
        for _ in 0..2 {
            for start in 0..2 * RECENT as u64 {
                let found = one.find(start * 0x1000 + 0x20).map(|range| range.start);
                assert_eq!(found, Some(start * 0x1000));
            }
            assert!(other.find(0x20).is_none());
            assert!(other.find(0x8).is_some());
        }
        std::thread::scope(|scope| {
            scope.spawn(|| one.remove(0x1000));
        });
        assert!(one.find(0x1020).is_none());
        assert_eq!(one.remove_context(1).len(), 2 * RECENT - 1);
        assert!(one.find(0x20).is_none());
    }

    #[test]
    fn a_buffer_keeps_its_number_and_the_next_one_there_has_another() {
        let pointers = Pointers::default();
        pointers.insert(device(0x1000, 0x100));
        let first = pointers.buffer_id(0x1000).unwrap();
        assert_eq!(pointers.buffer_id(0x1000), Some(first));
        pointers.remove(0x1000);
        assert_eq!(pointers.buffer_id(0x1000), None);
        pointers.insert(device(0x1000, 0x100));
        assert_ne!(pointers.buffer_id(0x1000), Some(first));
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
