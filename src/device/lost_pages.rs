//! Pages of guest memory that cannot be had: what backs the memory is a file system that is full, or a pool of huge pages
//! that is empty.
//!
//! Touching such a page raises `SIGBUS`, which would end this process and, with it, perhaps the VM. Here a handler puts a page of
//! zeros in its place, so that the access goes on. Who copies asks [`count`] before and after, and if it has changed, [`restore`]
//! maps the guest's own page again, for the next access to find it or not: what was read or written meanwhile was nothing of the
//! guest's. Ranges that are not guest memory are none of the handler's business; there, the signal ends the process.

use std::{
    ffi::{c_int, c_void},
    io,
    num::NonZeroUsize,
    sync::{
        Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use gpgpu_protocol::layout::PAGE_BYTES;
use nix::sys::{
    mman::{MapFlags, ProtFlags, mmap},
    signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
    statfs::{HUGETLBFS_MAGIC, fstatfs},
};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use crate::log_limit::LogLimit;

/// More regions than a VMM can describe, twice: those before a change and those after.
const MAX_REGIONS: usize = 1024;
/// More pages than one copy touches.
const MAX_PAGES: usize = 2048;

/// A range of addresses that the handler may mend. An end of 0 says that there is none.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

/// What the handler reads, and nothing else: it must not wait.
static RANGES: [Range; MAX_REGIONS] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
    }
}; MAX_REGIONS];
/// The pages in whose place there are others.
static PAGES: [AtomicUsize; MAX_PAGES] = [const { AtomicUsize::new(0) }; MAX_PAGES];
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The memories that are in use, with how many ranges each has in [`RANGES`], in order.
static MEMORIES: Mutex<Vec<(Weak<GuestMemoryMmap>, usize)>> = Mutex::new(Vec::new());

fn memories() -> MutexGuard<'static, Vec<(Weak<GuestMemoryMmap>, usize)>> {
    MEMORIES
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Installs the handler, for the whole process.
///
/// # Errors
/// The kernel refuses; it does not.
pub fn install() -> io::Result<()> {
    let handler = SigHandler::SigAction(on_sigbus);
    let action = SigAction::new(
        handler,
        SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK,
        SigSet::empty(),
    );
    // SAFETY: the handler reads atomics and calls mmap alone, which the kernel carries out without a lock of this process.
    unsafe { sigaction(Signal::SIGBUS, &action)? };
    Ok(())
}

/// How many pages could not be had so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Takes note of a VM's memory; a memory that nobody holds any more is forgotten.
pub fn watch(memory: &std::sync::Arc<GuestMemoryMmap>) {
    let mut memories = memories();
    let known = |(known, _): &(Weak<GuestMemoryMmap>, usize)| {
        known.as_ptr() == std::sync::Arc::as_ptr(memory)
    };
    if memories.iter().any(known) {
        return;
    }
    memories.retain(|(memory, _)| memory.strong_count() > 0);
    memories.push((std::sync::Arc::downgrade(memory), 0));
    // Written anew as a whole: no access of this process is under way that the caller could not wait for, as it holds the lock of
    // the device's state.
    let mut at = 0;
    for (memory, ranges) in memories.iter_mut() {
        *ranges = 0;
        let Some(memory) = memory.upgrade() else {
            continue;
        };
        for region in memory.iter() {
            let Some(range) = RANGES.get(at) else { break };
            let (Some(file), start) = (region.file_offset(), region.as_ptr() as usize) else {
                continue;
            };
            range.end.store(0, Ordering::Release);
            range.start.store(start, Ordering::Release);
            range.page.store(page_bytes(file.file()), Ordering::Release);
            range
                .end
                .store(start + region.len() as usize, Ordering::Release);
            at += 1;
            *ranges += 1;
        }
    }
    for range in &RANGES[at..] {
        range.end.store(0, Ordering::Release);
    }
}

/// The size of the pages that a file's mappings consist of.
fn page_bytes(file: &std::fs::File) -> usize {
    match fstatfs(file) {
        Ok(system) if system.filesystem_type() == HUGETLBFS_MAGIC => system.block_size() as usize,
        _ => PAGE_BYTES as usize,
    }
}

/// Maps the guest's pages again where others are in their place, and says so in the log. Until then what is written there is lost.
pub fn restore() {
    let memories = memories();
    let mut restored = 0;
    for page in &PAGES {
        let address = page.swap(0, Ordering::AcqRel);
        if address == 0 {
            continue;
        }
        restored += 1;
        let mapped = memories
            .iter()
            .filter_map(|(memory, _)| memory.upgrade())
            .find_map(|memory| remap(&memory, address));
        if !matches!(mapped, Some(Ok(())) | None) {
            // It stays zeros, and the next access to it is lost without a word; there is nothing better to do.
            tracing::error!("A page of the guest's memory cannot be mapped again: {mapped:?}");
        }
    }
    static LIMIT: Mutex<Option<LogLimit>> = Mutex::new(None);
    let mut limit = LIMIT
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if restored > 0 && limit.get_or_insert_default().allow() {
        tracing::error!(
            "{restored} pages of the guest's memory cannot be had: what backs it is full. What needed them was refused"
        );
    }
}

fn remap(memory: &GuestMemoryMmap, address: usize) -> Option<nix::Result<()>> {
    let region = memory
        .iter()
        .find(|region| address.wrapping_sub(region.as_ptr() as usize) < region.len() as usize)?;
    let backing = region.file_offset()?;
    let within = (address - region.as_ptr() as usize) as u64;
    let bytes = page_bytes(backing.file());
    let place = Option::zip(NonZeroUsize::new(address), NonZeroUsize::new(bytes));
    let Some((place, bytes)) = place else {
        return Some(Err(nix::errno::Errno::EINVAL));
    };
    // SAFETY: the page is one of this region's, which `memory` keeps mapped, and becomes what it was before.
    let mapped = unsafe {
        mmap(
            Some(place),
            bytes,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED,
            backing.file(),
            (backing.start() + within) as i64,
        )
    };
    Some(mapped.map(drop))
}

/// The handler.
extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid one.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code == libc::BUS_ADRERR && replace(address) {
        return;
    }
    // The access is made again, and ends the process as it would have.
    // SAFETY: sets a disposition, nothing else.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Puts zeros in the place of the page with this address; `false` if it is not guest memory, or there were too many.
fn replace(address: usize) -> bool {
    let found = RANGES.iter().find_map(|range| {
        let (start, end) = (
            range.start.load(Ordering::Acquire),
            range.end.load(Ordering::Acquire),
        );
        (start <= address && address < end).then(|| range.page.load(Ordering::Acquire))
    });
    let Some(bytes) = found.filter(|bytes| bytes.is_power_of_two()) else {
        return false;
    };
    let page = address & !(bytes - 1);
    let noted = PAGES.iter().any(|place| {
        place
            .compare_exchange(0, page, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    });
    if !noted {
        return false;
    }
    COUNT.fetch_add(1, Ordering::Relaxed);
    // SAFETY: reads and writes the errno of this thread, which the call below may change under the code that was interrupted.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: the page is guest memory, which may change at any time, and which nothing but copies of its bytes ever reads.
    let mapped = unsafe {
        libc::mmap(
            page as *mut c_void,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    mapped != libc::MAP_FAILED
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Arc};

    use vm_memory::{Bytes, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

    use super::*;

    /// Memory whose file has fewer pages than its region: those beyond are as those of a full file system.
    fn memory(file: &File, pages: usize) -> Arc<GuestMemoryMmap> {
        let offset = FileOffset::new(file.try_clone().unwrap(), 0);
        let map = MmapRegion::from_file(offset, pages * PAGE_BYTES as usize);
        let region = GuestRegionMmap::new(map.unwrap(), GuestAddress(0)).unwrap();
        Arc::new(GuestMemoryMmap::from_regions(vec![region]).unwrap())
    }

    #[test]
    fn pitfall_62_a_page_that_cannot_be_had_is_noticed_and_comes_back() {
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * PAGE_BYTES).unwrap();
        let memory = memory(&file, 4);
        watch(&memory);
        file.set_len(PAGE_BYTES).unwrap();
        let at = GuestAddress(2 * PAGE_BYTES);
        let before = count();
        assert_eq!(memory.read_obj::<u64>(at).unwrap(), 0);
        memory.write_obj(7u64, at).unwrap();
        assert_eq!(
            count(),
            before + 1,
            "the second access finds the page of zeros"
        );
        restore();
        // Still not there.
        memory.write_obj(8u64, at).unwrap();
        assert_eq!(count(), before + 2);
        restore();
        file.set_len(4 * PAGE_BYTES).unwrap();
        assert_eq!(memory.read_obj::<u64>(at).unwrap(), 0);
        memory.write_obj(9u64, at).unwrap();
        assert_eq!(count(), before + 2);
        use std::os::unix::fs::FileExt;
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 2 * PAGE_BYTES).unwrap();
        assert_eq!(
            u64::from_le_bytes(word),
            9,
            "it is the guest's own page again"
        );
    }
}
