// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Chunks of guest memory, on [`crate::cuda::double`].

use super::*;
use crate::cuda::double;
use crate::ipc::sealed_memfd;

fn memory(bytes: u64) -> OwnedFd {
    sealed_memfd(c"test", bytes).unwrap().into()
}

#[test]
fn only_whole_pages_of_memory_are_taken() {
    let new = |offset, bytes| GuestFile::new(1, memory(4 * PAGE_BYTES), offset, bytes);
    assert_eq!(new(PAGE_BYTES, PAGE_BYTES).unwrap().bytes(), PAGE_BYTES);
    assert!(new(1, PAGE_BYTES).is_err());
    assert!(new(0, 1).is_err());
    assert!(new(0, 0).is_err());
    assert!(new(u64::MAX - 4095, PAGE_BYTES).is_err());
    assert!(new(PAGE_BYTES, u64::MAX - 4095).is_err());
    let program = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    assert!(GuestFile::new(1, program, 0, PAGE_BYTES).is_err());
}

#[test]
fn a_chunk_is_the_part_of_the_file_that_it_should_be() {
    use std::os::unix::fs::FileExt;
    let file = sealed_memfd(c"test", 3 * CHUNK_BYTES).unwrap();
    let last = 2 * PAGE_BYTES + CHUNK_BYTES;
    file.write_all_at(b"chunk", last).unwrap();
    let part = GuestFile::new(1, file.into(), 2 * PAGE_BYTES, CHUNK_BYTES + PAGE_BYTES).unwrap();
    assert_eq!(part.map(0).unwrap().bytes as u64, CHUNK_BYTES);
    let mapping = part.map(1).unwrap();
    assert_eq!(mapping.bytes as u64, PAGE_BYTES);
    // SAFETY: mapped, and no thread writes there.
    let bytes = unsafe { std::slice::from_raw_parts(mapping.start().cast::<u8>(), 5) };
    assert_eq!(bytes, b"chunk");
}

/// A process has 128 TiB of addresses, which all VMs of a mover share.
#[test]
fn memory_that_is_named_takes_no_addresses() {
    let whole = 64 << 40;
    let named: Vec<_> = (0..64)
        .map(|_| Arc::new(GuestFile::new(1, memory(whole), 0, whole).unwrap()))
        .collect();
    let last = whole / CHUNK_BYTES - 1;
    let mapped: Vec<_> = named.iter().map(|file| file.map(last).unwrap()).collect();
    let other = GuestFile::new(1, memory(CHUNK_BYTES), 0, CHUNK_BYTES).unwrap();
    other.map(0).unwrap();
    drop(mapped);
}

fn file(vm: u32, bytes: u64) -> Arc<GuestFile> {
    Arc::new(GuestFile::new(vm, memory(bytes), 0, bytes).unwrap())
}

fn bounded(most: usize) -> Chunks {
    let table = PageTable::open().unwrap();
    Chunks {
        most,
        ..Chunks::new(table)
    }
}

/// Accesses the pages of a chunk, as the driver does when it pins it.
fn touch(chunk: &Chunk) {
    for at in (0..chunk.mapping.bytes).step_by(PAGE_BYTES as usize) {
        let page = chunk.mapping.start().wrapping_byte_add(at).cast::<u8>();
        // SAFETY: mapped, and of no value.
        unsafe { page.write_volatile(page.read_volatile()) };
    }
}

#[test]
fn pitfall_90_a_chunk_that_has_lost_a_page_is_registered_again() {
    use nix::fcntl::{FallocateFlags, fallocate};
    let _alone = double::alone();
    let chunks = bounded(8);
    let memory = sealed_memfd(c"test", 2 * CHUNK_BYTES).unwrap();
    let copy = memory.try_clone().unwrap().into();
    let file = Arc::new(GuestFile::new(1, copy, 0, 2 * CHUNK_BYTES).unwrap());
    let of_run = |run| {
        let (mut pieces, mut held) = (Vec::new(), Vec::new());
        chunks.pieces(&file, run, &mut pieces, &mut held).unwrap();
        let [chunk] = <[_; 1]>::try_from(held).unwrap();
        touch(&chunk);
        chunk
    };
    let (low, high) = (0..PAGE_BYTES, CHUNK_BYTES..CHUNK_BYTES + 1);
    let before = [of_run(low.clone()), of_run(high.clone())];
    assert!(Arc::ptr_eq(&before[0], &of_run(low.clone())));
    // Far from the copied bytes, in the first chunk.
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&memory, how, 77 * 4096, 4096).unwrap();
    let after = [of_run(low.clone()), of_run(high)];
    assert!(!Arc::ptr_eq(&before[0], &after[0]));
    assert!(Arc::ptr_eq(&before[1], &after[1]));
    assert!(Arc::ptr_eq(&after[0], &of_run(low)));
    assert_eq!(registered(&chunks, 1), 2);
}

#[test]
fn pitfall_90_the_host_gets_pages_back_without_a_copy() {
    use nix::fcntl::{FallocateFlags, fallocate};
    let _alone = double::alone();
    let chunks = bounded(200);
    let count = SWEPT as u64 + 40;
    let memory = sealed_memfd(c"test", count * CHUNK_BYTES).unwrap();
    let copy = memory.try_clone().unwrap().into();
    let file = Arc::new(GuestFile::new(1, copy, 0, 2 * CHUNK_BYTES).unwrap());
    for index in 0..2 {
        touch(&chunks.chunk(&file, index).unwrap());
    }
    chunks.sweep();
    assert_eq!(registered(&chunks, 1), 2);
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&memory, how, CHUNK_BYTES as i64 + 4096, 4096).unwrap();
    chunks.sweep();
    assert_eq!(registered(&chunks, 1), 1);
    assert!(chunks.state().chunks.contains_key(&(file.id, 0)));
    // More chunks without pages than one sweep checks: two sweeps find all.
    let copy = memory.try_clone().unwrap().into();
    let large = Arc::new(GuestFile::new(2, copy, 0, count * CHUNK_BYTES).unwrap());
    use_chunks(&chunks, &large, 0..count);
    chunks.sweep();
    assert_eq!(registered(&chunks, 2), 40);
    chunks.sweep();
    assert_eq!(registered(&chunks, 2), 0);
    assert_eq!(registered(&chunks, 1), 1);
}

/// Uses some chunks of a file, in order.
fn use_chunks(chunks: &Chunks, file: &Arc<GuestFile>, indices: std::ops::Range<u64>) {
    for index in indices {
        chunks.chunk(file, index).unwrap();
    }
}

fn registered(chunks: &Chunks, vm: u32) -> usize {
    let state = chunks.state();
    let of_vm = |entry: &&Entry| entry.chunk.file.vm == vm;
    state.chunks.values().filter(of_vm).count()
}

/// This holds for small chunks of many files and for large ones.
#[test]
fn a_vm_that_names_much_memory_costs_no_other_vm_a_chunk() {
    let _alone = double::alone();
    let chunks = bounded(96);
    let honest = [1, 2].map(|vm| file(vm, 32 * CHUNK_BYTES));
    for file in &honest {
        use_chunks(&chunks, file, 0..32);
    }
    use_chunks(&chunks, &file(3, 1000 * CHUNK_BYTES), 0..1000);
    let small: Vec<_> = (0..200).map(|_| file(3, PAGE_BYTES)).collect();
    for file in &small {
        use_chunks(&chunks, file, 0..1);
    }
    let all = [1, 2, 3].map(|vm| registered(&chunks, vm));
    assert_eq!(all[..2], [32, 32]);
    assert!((16..=32).contains(&all[2]), "{all:?}");
    // It has kept its most recently used chunks.
    let state = chunks.state();
    assert!(state.chunks.contains_key(&(small[199].id, 0)));
}

#[test]
fn a_vm_with_more_than_its_share_gives_way_to_one_with_less() {
    let _alone = double::alone();
    let chunks = bounded(64);
    let (first, second) = (file(1, 64 * CHUNK_BYTES), file(2, 64 * CHUNK_BYTES));
    use_chunks(&chunks, &first, 0..64);
    use_chunks(&chunks, &second, 0..32);
    assert_eq!(registered(&chunks, 2), 32);
    assert!(registered(&chunks, 1) >= 32);
    // It has kept its most recently used chunks.
    assert!(chunks.state().chunks.contains_key(&(first.id, 63)));
}

/// A device process can name files that cannot be mapped for writing, or whose pages the driver cannot pin.
#[test]
fn memory_that_cannot_be_registered_costs_others_a_few_chunks_at_most() {
    let _alone = double::alone();
    use std::fs::OpenOptions;
    let chunks = bounded(1000);
    let honest = file(1, 64 * CHUNK_BYTES);
    use_chunks(&chunks, &honest, 0..64);

    let in_memory = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    in_memory.as_file().set_len(PAGE_BYTES).unwrap();
    for _ in 0..100 {
        let readable = OpenOptions::new().read(true).open(in_memory.path());
        let file = GuestFile::new(2, readable.unwrap().into(), 0, PAGE_BYTES).unwrap();
        assert!(chunks.chunk(&Arc::new(file), 0).is_err());
    }
    assert_eq!(registered(&chunks, 1), 64, "there was room enough");

    for _ in 0..100 {
        let file = file(2, double::REFUSED_BYTES as u64);
        assert!(chunks.chunk(&file, 0).is_err());
    }
    assert_eq!(registered(&chunks, 1), 64 - EVICTED);
}

/// A VM whose balloon grows and shrinks at every copy must not delay other VMs' use of the driver.
#[test]
fn a_vm_whose_chunks_lose_pages_all_the_time_has_its_copies_staged() {
    let start = Instant::now();
    let mut state = State::default();
    let times = |count: u32| (0..count).map(|at| start + LOSING / 100 * at);
    for now in times(MOST_LOST - 1) {
        state.note_loss(1, now);
        assert!(!state.loses(1, now));
    }
    let last = start + LOSING / 100 * (MOST_LOST - 1);
    state.note_loss(1, last);
    assert!(state.loses(1, last) && !state.loses(2, last));
    // The period begins with the first loss.
    let end = start + LOSING;
    assert!(state.loses(1, end - Duration::from_nanos(1)) && !state.loses(1, end));
    state.note_loss(1, end);
    assert!(!state.loses(1, end));

    let _alone = double::alone();
    let chunks = bounded(8);
    let (losing, other) = (file(1, CHUNK_BYTES), file(2, CHUNK_BYTES));
    // The driver here pins no pages, so each chunk has lost all of its pages.
    chunks.chunk(&losing, 0).unwrap();
    chunks
        .state()
        .lost
        .insert(1, (Instant::now() + LOSING, MOST_LOST - 1));
    assert_eq!(
        chunks.chunk(&losing, 0).err(),
        Some(CUDA_ERROR_NOT_SUPPORTED)
    );
    assert_eq!(
        chunks.chunk(&losing, 0).err(),
        Some(CUDA_ERROR_NOT_SUPPORTED)
    );
    assert!(chunks.chunk(&other, 0).is_ok());
    chunks.state().lost.clear();
    assert!(chunks.chunk(&losing, 0).is_ok());
}
