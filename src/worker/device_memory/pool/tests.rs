// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The pool on a device that is simulated by a table.

use std::{
    collections::BTreeMap,
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use gpgpu_locks::Mutex;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const START: u64 = 0x2000_0000_0000;
const GRANULARITY: u64 = 2 * MIB;

#[derive(Debug, Default)]
struct Table {
    /// The mappings: size and devices, by address.
    mapped: BTreeMap<u64, (u64, Vec<CUdevice>)>,
    /// The device's memory, in bytes.
    left: u64,
    creations: u32,
    refuses_device: Option<CUdevice>,
    /// The number of bytes that can be returned at any time.
    kept: u64,
    refuses_unmap: bool,
    /// The dropped exports.
    released: Vec<u32>,
    /// The address of a chunk whose memory a command uses.
    used: Option<u64>,
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<Table>>);

/// Memory that returns its bytes when it is dropped.
#[derive(Debug)]
struct Bytes(Fake, u64, AtomicBool);

impl Memory for Bytes {
    fn set_kept(&self, is_kept: bool) {
        assert_ne!(self.2.swap(is_kept, Relaxed), is_kept);
        let kept = &mut self.0.table().kept;
        *kept = if is_kept {
            *kept + self.1
        } else {
            *kept - self.1
        };
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let mut table = self.0.table();
        table.left += self.1;
        // In one step, so that a reader finds it either kept or free.
        if self.2.load(Relaxed) {
            table.kept -= self.1;
        }
    }
}

impl Fake {
    fn table(&self) -> gpgpu_locks::MutexGuard<'_, Table> {
        self.0.lock()
    }
}

impl Backend for Fake {
    type Memory = Bytes;

    fn create(
        &self,
        address: u64,
        bytes: u64,
        devices: &[CUdevice],
        _: Patience,
    ) -> Result<Bytes, CUresult> {
        let mut table = self.table();
        assert!(address.is_multiple_of(GRANULARITY) && bytes.is_multiple_of(GRANULARITY));
        if bytes > table.left {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        // The addresses around a chunk are unmapped.
        for (start, (length, _)) in &table.mapped {
            assert!(
                start + length + GRANULARITY <= address || address + bytes + GRANULARITY <= *start
            );
        }
        table.left -= bytes;
        table.creations += 1;
        table.mapped.insert(address, (bytes, devices.to_vec()));
        Ok(Bytes(self.clone(), bytes, AtomicBool::new(false)))
    }

    fn unmap(&self, address: u64, bytes: u64) -> bool {
        let mut table = self.table();
        let (mapped, _) = table.mapped.remove(&address).unwrap();
        assert_eq!(mapped, bytes);
        !table.refuses_unmap
    }

    fn grant(&self, address: u64, _: u64, device: CUdevice) -> Result<(), CUresult> {
        let mut table = self.table();
        if table.refuses_device == Some(device) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        table.mapped.get_mut(&address).unwrap().1.push(device);
        Ok(())
    }

    fn export(&self, _: &Bytes) -> Result<OwnedFd, CUresult> {
        Ok(File::open("/dev/null").unwrap().into())
    }

    fn released(&self, numbers: &[u32]) {
        self.table().released.extend(numbers);
    }

    fn is_unused(&self, _: Option<Ticket>, address: u64, _: u64) -> bool {
        self.table().used != Some(address)
    }
}

fn pool(memory: u64, keep: u64) -> (Fake, Pool<Fake>) {
    let fake = Fake::default();
    fake.table().left = memory;
    let shape = Shape {
        start: START,
        bytes: 64 << 30,
        granularity: GRANULARITY,
        keep,
        device: 0,
    };
    (fake.clone(), Pool::new(fake, shape))
}

fn allocate(pool: &Pool<Fake>, bytes: u64) -> Result<(u64, u64), CUresult> {
    let taken = pool.taken(bytes).unwrap();
    pool.allocate(taken).map(|address| (address, taken))
}

#[test]
fn a_chunk_that_a_command_uses_stays_when_others_are_given_back() {
    let (fake, pool) = pool(64 * MIB, 0);
    let (first, taken) = allocate(&pool, 32 * MIB).unwrap();
    let (second, _) = allocate(&pool, 32 * MIB).unwrap();
    fake.table().used = Some(first);
    pool.free(first, taken);
    pool.free(second, taken);
    assert!(pool.trim(0));
    assert_eq!(fake.table().mapped.keys().collect::<Vec<_>>(), [&first]);
    assert!(!pool.press());
    // An allocation that needs the memory waits a moment for the command to end.
    let ends = std::thread::spawn({
        let fake = fake.clone();
        move || fake.table().used = None
    });
    let all = allocate(&pool, 64 * MIB).unwrap();
    ends.join().unwrap();
    assert_eq!(fake.table().mapped.keys().collect::<Vec<_>>(), [&all.0]);
}

#[test]
fn small_allocations_share_a_chunk_and_large_ones_have_their_own() {
    let (fake, pool) = pool(1 << 30, 0);
    let (first, taken) = allocate(&pool, 1).unwrap();
    assert_eq!(taken, 512);
    assert_eq!(allocate(&pool, 100).unwrap().0, first + 512);
    assert_eq!(allocate(&pool, MIB).unwrap().0, first + 1024);
    assert_eq!(fake.table().creations, 1);
    let (large, taken) = allocate(&pool, 40 * MIB + 1).unwrap();
    assert_eq!(taken, 42 * MIB);
    assert!(fake.table().mapped[&large].0 == taken);
    assert!(pool.owns(first) && pool.owns(large) && !pool.owns(START - 1));
}

#[test]
fn pitfall_68_unallocated_memory_counts_as_kept_until_it_is_returned() {
    let (fake, pool) = pool(1 << 30, 1 << 30);
    let kept = || fake.table().kept;
    let (large, large_taken) = allocate(&pool, 40 * MIB).unwrap();
    let small: Vec<_> = (0..2).map(|_| allocate(&pool, MIB).unwrap()).collect();
    assert_eq!(kept(), 0);
    pool.free(large, large_taken);
    assert_eq!(kept(), 40 * MIB);
    pool.free(small[0].0, small[0].1);
    assert_eq!(kept(), 40 * MIB, "the chunk is in use");
    pool.free(small[1].0, small[1].1);
    let chunk = kept() - 40 * MIB;
    assert!(chunk >= 2 * MIB);
    // In use again.
    pool.try_allocate(large_taken).unwrap();
    assert_eq!(kept(), chunk);
    allocate(&pool, 512).unwrap();
    assert_eq!(kept(), 0);
    pool.free(large, large_taken);
    assert!(pool.trim(0));
    assert_eq!(kept(), 0);
    // Memory that the driver cannot unmap is lost.
    let (large, large_taken) = allocate(&pool, 40 * MIB).unwrap();
    pool.free(large, large_taken);
    fake.table().refuses_unmap = true;
    let left = fake.table().left;
    pool.trim(0);
    assert_eq!((kept(), fake.table().left), (0, left));
}

#[test]
fn freed_memory_is_kept_until_it_is_needed_elsewhere() {
    let (fake, pool) = pool(256 * MIB, 256 * MIB);
    let (address, taken) = allocate(&pool, 128 * MIB).unwrap();
    assert_eq!(pool.try_allocate(taken), None);
    assert_eq!(pool.free(address, taken), taken);
    assert_eq!(pool.free_bytes(), taken);
    assert_eq!(pool.try_allocate(taken), Some(address));
    pool.free(address, taken);
    // An allocation of another size cannot use it, and has no room beside it.
    let (other, taken) = allocate(&pool, 200 * MIB).unwrap();
    assert_eq!(fake.table().creations, 2);
    assert_eq!(pool.free_bytes(), 0);
    pool.free(other, taken);
    assert!(pool.trim(0));
    assert!(!pool.trim(0));
    assert_eq!(fake.table().left, 256 * MIB);
    assert!(!pool.has_chunks());
}

#[test]
fn pitfall_70_the_last_bytes_can_be_allocated_and_failures_leave_nothing() {
    let (fake, pool) = pool(6 * MIB, 0);
    // Less than the size of the first shared chunk.
    let (address, taken) = allocate(&pool, MIB).unwrap();
    assert_eq!(fake.table().mapped[&address].0, 2 * MIB);
    assert_eq!(
        allocate(&pool, 5 * MIB).unwrap_err(),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    let (second, more) = allocate(&pool, 4 * MIB).unwrap();
    assert_eq!(fake.table().left, 0);
    assert_eq!(
        allocate(&pool, MIB + 1).unwrap_err(),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    pool.free(address, taken);
    pool.free(second, more);
    pool.trim(0);
    assert_eq!(fake.table().left, 6 * MIB);
}

#[test]
fn another_device_gets_present_and_later_memory() {
    let (fake, pool) = pool(1 << 30, 0);
    let (before, _) = allocate(&pool, 64 * MIB).unwrap();
    pool.share(1).unwrap();
    pool.share(1).unwrap();
    let (after, _) = allocate(&pool, 64 * MIB).unwrap();
    assert_eq!(fake.table().mapped[&before].1, [0, 1]);
    assert_eq!(fake.table().mapped[&after].1, [0, 1]);
    fake.table().refuses_device = Some(2);
    assert_eq!(pool.share(2), Err(CUDA_ERROR_INVALID_DEVICE));
}

#[test]
fn the_number_of_an_export_is_reported_at_its_end_and_never_reused() {
    let (fake, pool) = pool(1 << 30, 0);
    let take_released = || std::mem::take(&mut fake.table().released);
    let (address, taken) = allocate(&pool, 64 * MIB).unwrap();
    let place = pool.place(address + 4096, 60 * MIB).unwrap();
    assert_eq!(place.offset, 4096);
    assert_eq!(
        pool.place(address + 4096, 64 * MIB),
        None,
        "past the chunk's end"
    );
    let (_, bytes) = pool.export(place.export).unwrap().unwrap();
    assert_eq!(bytes, taken);
    assert!(take_released().is_empty());
    pool.free(address, taken);
    assert!(
        take_released().is_empty(),
        "it is kept, and so is its export"
    );
    pool.trim(0);
    assert_eq!(take_released(), [place.export]);
    assert!(take_released().is_empty());
    assert!(pool.export(place.export).is_none());
    let (again, taken) = allocate(&pool, 64 * MIB).unwrap();
    assert_eq!(again, address);
    assert_ne!(pool.place(again, taken).unwrap().export, place.export);
    // Only exported chunks have to be dropped.
    let (unasked, taken) = allocate(&pool, 34 * MIB).unwrap();
    pool.free(unasked, taken);
    pool.trim(0);
    assert!(take_released().is_empty());
}

#[test]
fn pitfall_70_threads_that_fill_a_device_get_all_of_it_and_give_it_back() {
    let (fake, pool) = pool(256 * MIB, 0);
    let held = Mutex::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            let (pool, held) = (&pool, &held);
            scope.spawn(move || {
                let mut mine = Vec::new();
                for round in 0..200_u64 {
                    let bytes = (thread * 37 + round * 101) % 48 * MIB + 1;
                    match allocate(pool, bytes) {
                        Ok(got) => {
                            *held.lock() += got.1;
                            assert!(*held.lock() <= 256 * MIB);
                            mine.push(got);
                        }
                        Err(code) => {
                            assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY);
                            for (address, taken) in mine.drain(..) {
                                *held.lock() -= taken;
                                pool.free(address, taken);
                            }
                        }
                    }
                }
                for (address, taken) in mine {
                    *held.lock() -= taken;
                    pool.free(address, taken);
                }
            });
        }
    });
    pool.trim(0);
    assert_eq!(fake.table().left, 256 * MIB);
    let (address, taken) = allocate(&pool, 256 * MIB).unwrap();
    assert_eq!((address, taken), (START + GRANULARITY, 256 * MIB));
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Free(prop::sample::Index),
    Trim(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..8192_u64).prop_map(Step::Allocate),
        3 => (1..40 * MIB).prop_map(Step::Allocate),
        5 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => (0..64 * MIB).prop_map(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn allocations_never_overlap_lie_in_mapped_memory_and_all_comes_back(
        steps in prop::collection::vec(step(), 1..300),
    ) {
        const MEMORY: u64 = 512 * MIB;
        let (fake, pool) = pool(MEMORY, 64 * MIB);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(bytes) => match allocate(&pool, bytes) {
                    Ok((address, taken)) => {
                        prop_assert!(taken >= bytes && address % ALIGNMENT == 0);
                        for (other, length) in &live {
                            prop_assert!(other + length <= address || address + taken <= *other);
                        }
                        let table = fake.table();
                        let (start, (length, _)) =
                            table.mapped.range(..=address).next_back().unwrap();
                        prop_assert!(address + taken <= start + length);
                        drop(table);
                        live.push((address, taken));
                    }
                    Err(code) => prop_assert_eq!(code, CUDA_ERROR_OUT_OF_MEMORY),
                },
                Step::Free(index) => {
                    if !live.is_empty() {
                        let (address, taken) = live.swap_remove(index.index(live.len()));
                        pool.free(address, taken);
                    }
                }
                Step::Trim(keep) => {
                    pool.trim(keep);
                }
            }
            // Memory that is not allocated is free, here or on the device.
            let held: u64 = live.iter().map(|(_, taken)| taken).sum();
            prop_assert_eq!(held + pool.free_bytes() + fake.table().left, MEMORY);
        }
        for (address, taken) in live {
            pool.free(address, taken);
        }
        pool.trim(0);
        prop_assert_eq!(fake.table().left, MEMORY);
        prop_assert!(fake.table().mapped.is_empty());
        // All addresses are one free range again.
        prop_assert!(pool.state().addresses.take_whole(START + GRANULARITY, (64 << 30) - GRANULARITY));
    }
}

#[test]
fn pitfall_68_promised_memory_stays_until_memory_runs_out() {
    let (fake, pool) = pool(128 * MIB, 0);
    let (address, taken) = allocate(&pool, 96 * MIB).unwrap();
    pool.promise(96 * MIB);
    pool.free(address, taken);
    pool.trim(pool.keep());
    assert_eq!(fake.table().left, 32 * MIB);
    assert_eq!(pool.pressures(), 0);
    // An allocation of another size needs the memory.
    let (_, other) = allocate(&pool, 64 * MIB).unwrap();
    assert_eq!(other, 64 * MIB);
    assert_eq!((pool.pressures(), pool.promised()), (1, 0));
    assert_eq!(fake.table().left, 64 * MIB);
}

#[test]
fn an_allocation_is_given_back_in_parts_as_well() {
    let (fake, pool) = pool(64 * MIB, 0);
    let (address, taken) = allocate(&pool, 4 * MIB).unwrap();
    pool.free(address + MIB, MIB);
    pool.free(address, MIB);
    assert_eq!(allocate(&pool, 2 * MIB).unwrap(), (address, 2 * MIB));
    pool.free(address + 2 * MIB, taken - 2 * MIB);
    pool.free(address, 2 * MIB);
    assert!(pool.trim(0));
    assert_eq!(fake.table().left, 64 * MIB);
}
