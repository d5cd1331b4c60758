// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pages of guest memory that the host cannot provide: the file system that backs the memory is full, or its pool of
//! huge pages is empty.
//!
//! An access to such a page raises `SIGBUS`, which would end this process and perhaps the VM. The handler maps a page
//! of zeros there, and the access continues. Each copy calls [`restored`] before and [`count`] after. If the numbers
//! differ, a page of zeros was in place at some time, perhaps because of another thread's access. The copied data is
//! then invalid, and [`restore`] maps the guest's own page again, so that the next access tries it. The handler ignores
//! addresses outside of guest memory; there, the signal ends the process.

use std::{
    collections::BTreeMap,
    ffi::{c_int, c_void},
    fs::File,
    io,
    num::NonZeroUsize,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::layout::PAGE_BYTES;
use nix::sys::{
    mman::{MapFlags, ProtFlags, mmap},
    signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction},
};
use vm_memory::{GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use crate::{file_pages, log_limit::LogLimit};

/// Four times the number of regions that a VMM may add (509), because chains in flight keep removed regions.
const MAX_REGIONS: usize = 2048;
/// More pages than one copy accesses.
const MAX_PAGES: usize = 2048;
/// The number of times that the handler looks up a region that is not recorded yet, 1 ms apart.
const LOOKS: u32 = 1000;

/// A range of addresses that the handler repairs. An end of 0 marks a free entry.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    page: AtomicUsize,
}

impl Range {
    /// Start, end and the size of pages.
    fn get(&self) -> Option<(usize, usize, usize)> {
        let end = self.end.load(Ordering::Acquire);
        let (start, page) = (
            self.start.load(Ordering::Acquire),
            self.page.load(Ordering::Acquire),
        );
        // The end did not change, so the entry was not replaced in the meantime.
        (end != 0 && end == self.end.load(Ordering::Acquire)).then_some((start, end, page))
    }

    fn set(&self, start: usize, end: usize, page: usize) {
        self.clear();
        self.start.store(start, Ordering::Release);
        self.page.store(page, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    fn clear(&self) {
        self.end.store(0, Ordering::SeqCst);
    }
}

/// The state that the handler reads without a lock.
static RANGES: [Range; MAX_REGIONS] = [const {
    Range {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
    }
}; MAX_REGIONS];
/// The addresses of the replaced pages; 0 marks a free entry.
static PAGES: [AtomicUsize; MAX_PAGES] = [const { AtomicUsize::new(0) }; MAX_PAGES];
/// Marks an entry of [`PAGES`] whose page is being replaced. It is not an address of a page.
const RESERVED: usize = 1;
/// Each page is counted before its replacement is mapped, so that a copy that reads zeros notices it.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// The number of replaced pages that were restored.
static RESTORED: AtomicU64 = AtomicU64::new(0);

/// The memory maps in use: the last one, and those of chains in flight.
static MEMORIES: Mutex<Vec<Weak<GuestMemoryMmap>>> = Mutex::new(Vec::new());

fn memories() -> MutexGuard<'static, Vec<Weak<GuestMemoryMmap>>> {
    MEMORIES.lock()
}

/// Installs the handler, for the whole process.
///
/// # Errors
/// The kernel refuses, which does not happen.
pub fn install() -> io::Result<()> {
    let handler = SigHandler::SigAction(on_sigbus);
    let action = SigAction::new(
        handler,
        SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK,
        SigSet::empty(),
    );
    // SAFETY: the handler accesses atomics and the thread's errno, and calls mmap, poll and signal alone, which take no
    // lock of this process and allocate nothing.
    unsafe { sigaction(Signal::SIGBUS, &action)? };
    Ok(())
}

/// The number of pages that were unavailable so far.
pub fn count() -> u64 {
    COUNT.load(Ordering::Acquire)
}

/// The number of replaced pages that were restored so far. It is less than [`count`] while a page of zeros is in place.
pub fn restored() -> u64 {
    RESTORED.load(Ordering::Acquire)
}

/// Whether pages of zeros replace pages of the guest, or are about to.
pub fn are_left() -> bool {
    count() != restored()
}

/// Records a VM's memory map, and forgets maps that are no longer in use.
///
/// Memory maps share regions: when a VMM adds or removes a region, the new map has all other regions of the old one. A
/// region is therefore one range, in however many maps it is, and the range keeps its entry as long as one of the maps
/// has it.
pub fn watch(memory: &Arc<GuestMemoryMmap>) {
    let mut memories = memories();
    memories.retain(|known| known.strong_count() > 0);
    if !memories
        .iter()
        .any(|known| known.as_ptr() == Arc::as_ptr(memory))
    {
        memories.push(Arc::downgrade(memory));
    }
    let held: Vec<_> = memories.iter().filter_map(Weak::upgrade).collect();
    let regions = held.iter().flat_map(|memory| memory.iter());
    // The key is the address in this process, where only one region can be.
    let mut wanted: BTreeMap<usize, (usize, &File)> = regions
        .filter_map(|region| {
            let start = region.as_ptr() as usize;
            let end = start + region.len() as usize;
            Some((start, (end, region.file_offset()?.file())))
        })
        .collect();
    for range in &RANGES {
        let Some((start, end, _)) = range.get() else {
            continue;
        };
        match wanted.remove(&start) {
            // Another region may be at this address now, with a file of another kind.
            Some((same, file)) if same == end => {
                range.page.store(page_bytes(file), Ordering::Release);
            }
            Some(other) => {
                range.clear();
                wanted.insert(start, other);
            }
            None => range.clear(),
        }
    }
    let mut free = RANGES.iter().filter(|range| range.get().is_none());
    for (start, (end, file)) in wanted {
        let Some(range) = free.next() else {
            return tracing::error!(
                "More than {MAX_REGIONS} regions of guest memory: an unavailable page of the newest ends the VM"
            );
        };
        range.set(start, end, page_bytes(file));
    }
}

/// The page size of a file's mappings.
fn page_bytes(file: &File) -> usize {
    file_pages::page_bytes(file).unwrap_or(PAGE_BYTES) as usize
}

/// Maps the guest's pages again where pages of zeros replace them, and logs this. Writes to the replacements are lost.
pub fn restore() {
    let memories = memories();
    let mut restored = 0;
    for page in &PAGES {
        let address = page.load(Ordering::Acquire);
        // The handler still replaces the page of a reserved entry. Until another call restores it, `are_left` is true.
        if address == 0 || address == RESERVED {
            continue;
        }
        // No other thread changes an entry with an address: this one has the lock.
        page.store(0, Ordering::Release);
        restored += 1;
        let mapped = memories
            .iter()
            .filter_map(Weak::upgrade)
            .find_map(|memory| remap(&memory, address));
        if !matches!(mapped, Some(Ok(())) | None) {
            // The page stays zero, and the next access to it is lost without notice. There is no better way.
            tracing::error!("Cannot remap a guest page: {mapped:?}");
        }
    }
    RESTORED.fetch_add(restored, Ordering::Release);
    static LIMIT: Mutex<Option<LogLimit>> = Mutex::new(None);
    let mut limit = LIMIT.lock();
    if restored > 0 && limit.get_or_insert_default().allow() {
        tracing::error!(
            "{restored} guest pages unavailable (backing store full or host memory error); requests that need them failed"
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
    // SAFETY: the page is in this region, which `memory` keeps mapped, and becomes the guest's again.
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

/// The signal handler.
extern "C" fn on_sigbus(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid one.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    match code {
        // The kernel found an error in a page that no thread accesses at present.
        libc::BUS_MCEERR_AO => return,
        // An unavailable page, or one that the machine has lost. The next access to a lost page also raises this.
        libc::BUS_ADRERR | libc::BUS_MCEERR_AR if replace(address) => return,
        _ => {}
    }
    // The access is made again, and ends the process as it would have.
    // SAFETY: sets a disposition, nothing else.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// The page size of the region with this address.
fn page_bytes_at(address: usize) -> Option<usize> {
    let mut ranges = RANGES.iter().filter_map(Range::get);
    ranges.find_map(|(start, end, page)| (start <= address && address < end).then_some(page))
}

/// Replaces the page at this address by zeros; `false` if it is not guest memory, or if too many pages were replaced.
fn replace(address: usize) -> bool {
    // SAFETY: reads and writes the errno of this thread, which the calls below may change under the code that was
    // interrupted.
    let error = unsafe { *libc::__errno_location() };
    let mut found = page_bytes_at(address);
    // The vhost-user library's threads may access new memory before the library reports it.
    for _ in 0..LOOKS {
        if found.is_some() {
            break;
        }
        #[cfg(test)]
        tests::LOOKS_IN_VAIN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: waits for a millisecond, and for nothing else.
        unsafe { libc::poll(std::ptr::null_mut(), 0, 1) };
        found = page_bytes_at(address);
    }
    let replaced = found.is_some_and(|bytes| replace_page(address, bytes));
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = error };
    replaced
}

/// Replaces the page of `bytes` bytes at this address by zeros.
fn replace_page(address: usize, bytes: usize) -> bool {
    if !bytes.is_power_of_two() {
        return false;
    }
    let page = address & !(bytes - 1);
    let Some(place) = reserve() else {
        return false;
    };
    // SAFETY: the page is guest memory, which may change at any time, and which nothing but copies of its bytes ever
    // reads.
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
    // Only now: otherwise `restore` might map the guest's page before this maps zeros, and forget the page.
    place.store(page, Ordering::Release);
    mapped != libc::MAP_FAILED
}

/// Reserves an entry for a page that is about to be replaced, and counts the page.
fn reserve() -> Option<&'static AtomicUsize> {
    let place = PAGES.iter().find(|place| {
        place
            .compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    })?;
    COUNT.fetch_add(1, Ordering::SeqCst);
    Some(place)
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::FileExt;

    use gpgpu_locks::Condvar;
    use vm_memory::{Bytes, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

    use super::*;

    /// The number of look-ups of the handler that did not find a region.
    pub(super) static LOOKS_IN_VAIN: AtomicU64 = AtomicU64::new(0);

    /// The number of running tests of devices. The count of lost pages belongs to the process: a page that a test here
    /// loses would fail chains of other tests' devices, which would restore it.
    static DEVICES: Mutex<usize> = Mutex::new(0);
    static FEWER: Condvar = Condvar::new();

    fn devices() -> MutexGuard<'static, usize> {
        DEVICES.lock()
    }

    /// Held by a test of a device: no test here runs at the same time.
    pub struct Device;

    impl Device {
        pub fn new() -> Self {
            *devices() += 1;
            Self
        }
    }

    impl Drop for Device {
        fn drop(&mut self) {
            *devices() -= 1;
            FEWER.notify_all();
        }
    }

    /// Held by a test here: no other test of this module and no test of a device runs at the same time.
    fn alone() -> MutexGuard<'static, usize> {
        let alone = FEWER.wait_while(devices(), |devices| *devices > 0);
        // Forgets the regions of earlier tests, at whose addresses this test's may be.
        watch(&Arc::new(GuestMemoryMmap::new()));
        alone
    }

    fn region(file: &File, at: u64, pages: u64) -> GuestRegionMmap {
        let offset = FileOffset::new(file.try_clone().unwrap(), at);
        let map = MmapRegion::from_file(offset, (pages * PAGE_BYTES) as usize);
        GuestRegionMmap::new(map.unwrap(), GuestAddress(at)).unwrap()
    }

    /// Memory whose file has fewer pages than its region: the others are unavailable, as on a full file system.
    fn memory(file: &File, pages: u64) -> Arc<GuestMemoryMmap> {
        Arc::new(GuestMemoryMmap::from_regions(vec![region(file, 0, pages)]).unwrap())
    }

    #[test]
    fn pitfall_62_a_page_that_cannot_be_had_is_noticed_and_comes_back() {
        let _alone = alone();
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
        assert!(are_left());
        restore();
        assert!(!are_left());
        // It is still unavailable.
        memory.write_obj(8u64, at).unwrap();
        assert_eq!(count(), before + 2);
        restore();
        file.set_len(4 * PAGE_BYTES).unwrap();
        assert_eq!(memory.read_obj::<u64>(at).unwrap(), 0);
        memory.write_obj(9u64, at).unwrap();
        assert_eq!(count(), before + 2);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 2 * PAGE_BYTES).unwrap();
        assert_eq!(
            u64::from_le_bytes(word),
            9,
            "it is the guest's own page again"
        );
    }

    /// Each region is protected when a VMM adds regions one by one while chains hold earlier memory maps, and when it
    /// replaces removed regions by others.
    #[test]
    fn pitfall_62_each_of_many_regions_that_come_one_by_one_is_protected() {
        const COUNT: u64 = 512;
        let _alone = alone();
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * COUNT * PAGE_BYTES).unwrap();
        let mut memory = Arc::new(GuestMemoryMmap::new());
        let mut held = Vec::new();
        for number in 0..2 * COUNT {
            let added = Arc::new(region(&file, number * PAGE_BYTES, 1));
            let mut next = memory.insert_region(added).unwrap();
            if let Some(oldest) = number.checked_sub(COUNT) {
                let at = GuestAddress(oldest * PAGE_BYTES);
                next = next.remove_region(at, PAGE_BYTES).unwrap().0;
            }
            memory = Arc::new(next);
            watch(&memory);
            if number % 64 == 0 {
                held.push(Arc::clone(&memory));
            }
        }
        file.set_len(0).unwrap();
        let before = count();
        for number in COUNT..2 * COUNT {
            let at = GuestAddress(number * PAGE_BYTES);
            assert_eq!(memory.read_obj::<u64>(at).unwrap(), 0, "region {number}");
        }
        assert_eq!(count(), before + COUNT);
        // The removed page belongs to a chain as long as the chain holds the memory map.
        assert_eq!(held[0].read_obj::<u64>(GuestAddress(0)).unwrap(), 0);
        assert_eq!(count(), before + COUNT + 1);
        restore();
        let ranges = || RANGES.iter().filter_map(Range::get).count();
        assert!(ranges() as u64 >= COUNT);
        drop((held, memory));
        let last = super::tests::memory(&file, 1);
        watch(&last);
        assert!(
            (ranges() as u64) < COUNT,
            "pages without a holder are forgotten"
        );
    }

    /// Another thread restores pages while the handler replaces one.
    #[test]
    fn a_page_that_is_being_replaced_is_restored_later() {
        let _alone = alone();
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES).unwrap();
        let memory = memory(&file, 1);
        watch(&memory);
        memory.write_obj(7u64, GuestAddress(0)).unwrap();
        let before = count();
        let place = reserve().unwrap();
        assert_eq!(count(), before + 1);
        restore();
        assert_eq!(place.load(Ordering::Relaxed), RESERVED);
        assert!(are_left());
        let page = memory.iter().next().unwrap().as_ptr() as usize;
        place.store(page, Ordering::Release);
        restore();
        assert!(!are_left());
        assert_eq!(place.load(Ordering::Relaxed), 0);
        assert_eq!(memory.read_obj::<u64>(GuestAddress(0)).unwrap(), 7);
    }

    /// The library's threads may access new memory before it is recorded.
    #[test]
    fn a_page_that_is_lost_before_its_memory_is_watched_is_noticed() {
        let _alone = alone();
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        let memory = memory(&file, 1);
        let before = count();
        let looks = LOOKS_IN_VAIN.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let read = scope.spawn(|| memory.read_obj::<u64>(GuestAddress(0)).unwrap());
            while LOOKS_IN_VAIN.load(Ordering::Relaxed) == looks {
                std::thread::yield_now();
            }
            watch(&memory);
            assert_eq!(read.join().unwrap(), 0);
        });
        assert_eq!(count(), before + 1);
        restore();
    }

    /// The machine has lost a page. A test cannot cause this, so it calls the handler as the kernel does.
    #[test]
    fn a_page_that_the_machine_has_lost_ends_nothing() {
        let _alone = alone();
        install().unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE_BYTES).unwrap();
        let memory = memory(&file, 1);
        watch(&memory);
        memory.write_obj(7u64, GuestAddress(0)).unwrap();
        let before = count();
        let signal = |code: c_int, address: *mut u8| {
            let mut bytes = [0u64; size_of::<libc::siginfo_t>() / 8];
            // SAFETY: the first three fields of `siginfo_t` are integers, and a fault's address follows at 16 bytes.
            unsafe {
                let info = bytes.as_mut_ptr().cast::<c_int>();
                info.write(libc::SIGBUS);
                info.add(2).write(code);
                bytes.as_mut_ptr().add(2).write(address as u64);
                on_sigbus(
                    libc::SIGBUS,
                    bytes.as_mut_ptr().cast(),
                    std::ptr::null_mut(),
                );
            }
        };
        let page = memory.iter().next().unwrap().as_ptr();
        signal(libc::BUS_MCEERR_AO, page);
        assert_eq!(memory.read_obj::<u64>(GuestAddress(0)).unwrap(), 7);
        signal(libc::BUS_MCEERR_AR, page);
        assert_eq!(count(), before + 1);
        assert_eq!(memory.read_obj::<u64>(GuestAddress(0)).unwrap(), 0);
        restore();
        assert_eq!(memory.read_obj::<u64>(GuestAddress(0)).unwrap(), 7);
        // SAFETY: asks for a disposition.
        let now = unsafe {
            let mut now = std::mem::zeroed::<libc::sigaction>();
            libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut now);
            now.sa_sigaction
        };
        assert_ne!(now, libc::SIG_DFL, "the next one is taken too");
    }
}
