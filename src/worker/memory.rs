// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that the worker shares: the staging area, and the registered memory of its guest process.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    ffi::c_void,
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::Arc,
    time::Duration,
};

use gpgpu_locks::{Condvar, Mutex, RwLock, RwLockWriteGuard};
use gpgpu_protocol::{
    api::Context,
    cuda::*,
    layout::{PAGE_BYTES, status},
};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use super::{
    common::Common,
    grace::{self, Ending, Name, Ticket},
};
use crate::cuda::driver;
use crate::file_pages;
use crate::ipc::{MapRun, REST_BYTES, Rest, Span};

/// The staging area for data between guest pages and the driver.
#[derive(Debug)]
pub struct Staging {
    base: NonNull<c_void>,
    size: u64,
}

// SAFETY: the mapping stays until the process ends; each part belongs to one command at a time.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Sync for Staging {}

impl Staging {
    /// Maps the staging area, and the page behind it.
    ///
    /// # Errors
    ///
    /// The host is out of memory.
    pub fn map(file: &OwnedFd, size: u64) -> io::Result<Self> {
        let length = usize::try_from(size)
            .ok()
            .and_then(|size| size.checked_add(REST_BYTES))
            .and_then(NonZeroUsize::new)
            .ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file sealed against shrinking.
        let base = unsafe {
            mmap(
                None,
                length,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                file.as_fd(),
                0,
            )?
        };
        Ok(Self { base, size })
    }

    /// The shared words by which the device process requests a rest.
    pub fn rest(&self) -> &'static Rest {
        // SAFETY: the page lies behind the area, which is whole pages, and stays mapped until the process ends.
        unsafe { Rest::at(self.base.as_ptr().cast::<u8>().add(self.size as usize)) }
    }

    /// The address of a span; `None` if it exceeds the area.
    pub fn address(&self, span: Span) -> Option<*mut c_void> {
        let end = span.offset.checked_add(span.len)?;
        (end <= self.size).then(|| self.base.as_ptr().wrapping_byte_add(span.offset as usize))
    }
}

/// Memory of the guest process, mapped here.
#[derive(Debug, Clone, Copy)]
struct Region {
    /// Its address in the guest process.
    guest: u64,
    /// Its address here: the same, unless that was not free.
    here: u64,
    bytes: u64,
}

/// Memory that CUDA has pinned: a part of one region, or of several adjoining ones.
#[derive(Debug, Clone, Copy)]
struct Registration {
    here: u64,
    device: u64,
    bytes: u64,
    context: u64,
    /// Whether a thread is about to unpin it. No command begins to use it any more.
    is_ending: bool,
}

impl Registration {
    fn ending(&self) -> Ending {
        let (start, bytes) = (self.device, self.bytes);
        Ending::Memory { start, bytes }
    }

    fn touches(&self, region: &Region) -> bool {
        self.here < region.here + region.bytes && self.here + self.bytes > region.here
    }

    fn pinned(&self) -> Pinned {
        Pinned {
            bytes: self.bytes,
            context: self.context,
        }
    }
}

/// The interval between two checks for the end of a context.
const LOOK: Duration = Duration::from_millis(5);

/// The regions, and their pinned parts.
#[derive(Debug, Default)]
pub struct Regions {
    state: Mutex<State>,
    /// Signalled when a registration has ended.
    changed: Condvar,
    /// The pinned memory, by device address: for queries, which must not wait while memory is being pinned.
    pinned: RwLock<BTreeMap<u64, Pinned>>,
}

#[derive(Debug, Clone, Copy)]
struct Pinned {
    bytes: u64,
    context: u64,
}

#[derive(Debug, Default)]
struct State {
    regions: HashMap<u32, Region>,
    /// By the address in the guest.
    registered: HashMap<u64, Registration>,
    /// The ring's addresses in the guest, which stay mapped until the process ends.
    kept: Vec<(u64, u64)>,
}

impl State {
    /// The address here of a range of the guest, if all of it is mapped contiguously.
    fn place(&self, guest: u64, bytes: u64) -> Option<u64> {
        let end = guest.checked_add(bytes)?;
        let containing = |address: u64| {
            self.regions
                .values()
                .find(|region| address.wrapping_sub(region.guest) < region.bytes)
        };
        let first = containing(guest)?;
        let mut reached = first.guest + first.bytes;
        while reached < end {
            let next = containing(reached)?;
            if next.here.wrapping_sub(next.guest) != first.here.wrapping_sub(first.guest) {
                return None;
            }
            reached = next.guest + next.bytes;
        }
        Some(first.here + (guest - first.guest))
    }

    /// Marks a registration as ending, so that the caller's thread alone unpins it. `None` if there is none, or if
    /// another thread unpins it.
    fn begin_ending(&mut self, guest: u64) -> Option<Registration> {
        let found = self.registered.get_mut(&guest)?;
        let was_ending = std::mem::replace(&mut found.is_ending, true);
        (!was_ending).then_some(*found)
    }
}

impl Regions {
    fn state(&self) -> gpgpu_locks::MutexGuard<'_, State> {
        self.state.lock()
    }

    fn pinned(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Pinned>> {
        self.pinned.write()
    }

    /// Maps a region, at the guest's own address if that is free here. Returns a [`status`].
    pub fn map(&self, number: u32, guest: u64, bytes: u64, runs: &[MapRun]) -> u32 {
        match map_runs(guest, bytes, runs) {
            Ok(here) => {
                self.state()
                    .regions
                    .insert(number, Region { guest, here, bytes });
                status::OK
            }
            Err(error) => {
                if super::may_log() {
                    tracing::warn!(
                        "Cannot map {bytes} bytes of the guest in {} runs: {error}",
                        runs.len()
                    );
                }
                status::NO_RESOURCES
            }
        }
    }

    /// The address here of a range of the guest. Its regions stay mapped from now on.
    pub fn keep(&self, guest: u64, bytes: u64) -> Option<u64> {
        let mut state = self.state();
        let here = state.place(guest, bytes)?;
        state.kept.push((guest, guest + bytes));
        Some(here)
    }

    /// Unmaps a region once no command can use it any more, after its memory was unpinned. Returns a [`status`].
    ///
    /// No earlier command writes to a later mapping at the same addresses: the commands have ended, and
    /// `cuMemHostUnregister` returns when the GPU does not access the memory any more.
    pub fn unmap(&self, common: &Common, number: u32) -> u32 {
        let mut state = self.state();
        let Some(&region) = state.regions.get(&number) else {
            return status::BAD_ADDRESS;
        };
        let (start, end) = (region.guest, region.guest + region.bytes);
        if (state.kept.iter()).any(|(from, to)| *from < end && start < *to) {
            return status::BAD_ADDRESS;
        }
        // From now on no part of it is registered, and look-ups do not find it.
        state.regions.remove(&number);
        let mut ended = true;
        loop {
            let touching = |registration: &&Registration| registration.touches(&region);
            let found = (state.registered.iter()).find(|(_, registration)| touching(registration));
            let Some((&guest, &registration)) = found else {
                break;
            };
            let is_there = common.objects.entry::<Context>(registration.context);
            if registration.is_ending || is_there.is_none() {
                // Another thread unpins it, or ends its context.
                (state, _) = self.changed.wait_timeout(state, LOOK);
                continue;
            }
            // Under the same lock, so that no other thread begins to unpin it.
            let registration = state.begin_ending(guest);
            drop(state);
            let unpinned = registration.map(|of| self.unpin(common, guest, of));
            state = self.state();
            if let Some(Err(_)) = unpinned
                && let Entry::Occupied(entry) = state.registered.entry(guest)
                && !entry.get().is_ending
                && entry.get().touches(&region)
            {
                // For example the error of a failed context. The pin then ends with the process. If another thread
                // unpins it by now, that thread's result counts.
                self.pinned().remove(&entry.remove().device);
                ended = false;
            }
        }
        drop(state);
        // A command that has found it registered may still use it.
        let ticket = Ticket::now();
        ticket.wait(Ending::Memory {
            start: region.here,
            bytes: region.bytes,
        });
        if ended {
            unmap_range(region.here, region.bytes);
        } else {
            // CUDA still associates the addresses with the old memory, so they are not reused.
            reserve_range(region.here, region.bytes);
        }
        status::OK
    }

    /// `cuMemHostRegister` of a part of a region; returns its device address.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no region contains it, or the driver's own error code.
    pub fn register(
        &self,
        context: u64,
        guest: u64,
        bytes: u64,
        flags: u32,
    ) -> Result<CUdeviceptr, CUresult> {
        let mut state = self.state();
        let here = state.place(guest, bytes).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if state.registered.contains_key(&guest) {
            return Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        // SAFETY: the range is mapped and stays so until it is unregistered.
        let device = unsafe { driver::register_host(here as *mut c_void, bytes as usize, flags)? };
        state.registered.insert(
            guest,
            Registration {
                here,
                device,
                bytes,
                context,
                is_ending: false,
            },
        );
        self.pinned().insert(device, Pinned { bytes, context });
        Ok(device)
    }

    /// Whether all `bytes` bytes at a device address are registered memory.
    pub fn holds(&self, address: u64, bytes: u64) -> bool {
        let pinned = self.pinned.read();
        let before = pinned.range(..=address).next_back();
        before.is_some_and(|(start, range)| {
            let offset = address - start;
            offset < range.bytes && bytes <= range.bytes - offset
        })
    }

    /// The total number of pinned bytes.
    pub fn pinned_bytes(&self) -> u64 {
        let pinned = self.pinned.read();
        pinned
            .values()
            .fold(0, |sum, range| sum.saturating_add(range.bytes))
    }

    /// The context with which registered memory ends, if the address is in such memory.
    pub fn context_of(&self, address: u64) -> Option<u64> {
        let pinned = self.pinned.read();
        let (start, range) = pinned.range(..=address).next_back()?;
        (address - start < range.bytes).then_some(range.context)
    }

    /// `cuMemHostUnregister`, once no command uses the memory any more.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`, or the driver's own error code.
    pub fn unregister(&self, common: &Common, guest: u64) -> Result<(), CUresult> {
        let registration = self.state().begin_ending(guest);
        let registration = registration.ok_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        self.unpin(common, guest, registration)
    }

    /// Unpins memory for which [`State::begin_ending`] has chosen this thread.
    fn unpin(
        &self,
        common: &Common,
        guest: u64,
        registration: Registration,
    ) -> Result<(), CUresult> {
        // From now on it does not count as pinned, because it may be unpinned at any moment.
        self.pinned().remove(&registration.device);
        let ticket = Ticket::now();
        let result = {
            // The context in which it was made does not end in the meantime.
            let _uses = grace::enter(registration.context, false);
            let entered = common.enter(registration.context);
            grace::narrow(&[Name::Object(registration.context)]);
            entered.map_err(|_| None).and_then(|()| {
                ticket.wait(registration.ending());
                // SAFETY: the address was registered and not unregistered since, and it is no longer in use.
                unsafe { driver::cuMemHostUnregister(registration.here as *mut c_void) }
                    .map_err(Some)
            })
        };
        let mut state = self.state();
        match (result, state.registered.get_mut(&guest)) {
            (Ok(()), _) => {
                state.registered.remove(&guest);
            }
            (Err(code), Some(registration)) => {
                registration.is_ending = false;
                // Otherwise it ends with its context.
                if code.is_some() {
                    let pinned = registration.pinned();
                    self.pinned().insert(registration.device, pinned);
                }
            }
            (Err(_), None) => {}
        }
        drop(state);
        self.changed.notify_all();
        result.map_err(|code| code.unwrap_or(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED))
    }

    /// Prepares for the end of a context, with which its pins end: no command begins to use them any more.
    pub fn end_context(&self, context: u64) {
        self.pinned().retain(|_, pinned| pinned.context != context);
    }

    /// Cancels the end of a context.
    pub fn keep_context(&self, context: u64) {
        let state = self.state();
        let kept = |of: &&Registration| of.context == context && !of.is_ending;
        let kept = state.registered.values().filter(kept);
        let mut pinned = self.pinned();
        pinned.extend(kept.map(|of| (of.device, of.pinned())));
    }

    /// Forgets the pins of a context that has ended.
    pub fn forget_context(&self, context: u64) {
        self.state()
            .registered
            .retain(|_, registration| registration.context != context);
        self.pinned().retain(|_, pinned| pinned.context != context);
        self.changed.notify_all();
    }
}

fn map_runs(guest: u64, bytes: u64, runs: &[MapRun]) -> io::Result<u64> {
    let length = usize::try_from(bytes)
        .ok()
        .and_then(NonZeroUsize::new)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let total = runs
        .iter()
        .try_fold(0_u64, |sum, run| sum.checked_add(run.length));
    let aligned = runs
        .iter()
        .all(|run| run.offset.is_multiple_of(PAGE_BYTES) && run.length.is_multiple_of(PAGE_BYTES));
    if total != Some(bytes) || !aligned || !guest.is_multiple_of(PAGE_BYTES) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let page = largest_page(runs)?;
    let is_whole = |at: u64| at.is_multiple_of(page);
    let are_whole = runs
        .iter()
        .all(|run| is_whole(run.offset) && is_whole(run.length));
    if !are_whole || !is_whole(guest) {
        return Err(io::Error::other(
            "the VM's memory is in hugetlbfs, of which only whole huge pages can be mapped",
        ));
    }
    let reserve = |wish: Option<NonZeroUsize>, flags| {
        // SAFETY: without MAP_FIXED nothing that is mapped already is replaced.
        unsafe {
            mmap_anonymous(
                wish,
                length,
                ProtFlags::PROT_NONE,
                MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | flags,
            )
        }
    };
    let wish = NonZeroUsize::new(guest as usize);
    // Without the guest's address, the kernel's choice need not be a multiple of a huge page.
    let anywhere = |error| match page {
        PAGE_BYTES => reserve(None, MapFlags::empty()),
        _ => Err(error),
    };
    let base = reserve(wish, MapFlags::MAP_FIXED_NOREPLACE).or_else(anywhere)?;
    let start = base.as_ptr() as u64;
    let mut at = start;
    for run in runs {
        let mapped = match (
            NonZeroUsize::new(at as usize),
            NonZeroUsize::new(run.length as usize),
        ) {
            // SAFETY: replaces a part of the range just reserved.
            (Some(address), Some(length)) => unsafe {
                let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
                let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
                mmap(
                    Some(address),
                    length,
                    protection,
                    flags,
                    run.file.as_fd(),
                    run.offset as i64,
                )
            },
            _ => Err(nix::errno::Errno::EINVAL),
        };
        if let Err(error) = mapped {
            unmap_range(start, bytes);
            return Err(error.into());
        }
        at += run.length;
    }
    // For memory that is allocated when it is pinned here. If the host refuses, it is allocated in small pages.
    // SAFETY: advice about the range just mapped.
    let _ = unsafe { madvise(base, bytes as usize, MmapAdvise::MADV_HUGEPAGE) };
    Ok(start)
}

/// The largest page of the runs' files. The kernel maps whole pages of hugetlbfs only: with `MAP_FIXED` a shorter length
/// is rounded up, and replaces mappings behind the range.
fn largest_page(runs: &[MapRun]) -> io::Result<u64> {
    let mut page = PAGE_BYTES;
    let mut last: Option<&Arc<OwnedFd>> = None;
    for run in runs {
        if last.is_some_and(|last| Arc::ptr_eq(last, &run.file)) {
            continue;
        }
        last = Some(&run.file);
        page = page.max(file_pages::page_bytes(&run.file)?);
    }
    Ok(page)
}

fn unmap_range(start: u64, bytes: u64) {
    if let Some(start) = NonNull::new(start as *mut c_void) {
        // SAFETY: the range is a region's, which nothing refers to any longer.
        let _ = unsafe { munmap(start, bytes as usize) };
    }
}

/// Replaces a range by an inaccessible mapping.
fn reserve_range(start: u64, bytes: u64) {
    let (Some(start), Some(bytes)) = (
        NonZeroUsize::new(start as usize),
        NonZeroUsize::new(bytes as usize),
    ) else {
        return;
    };
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED;
    // SAFETY: the range is a region's, which nothing refers to any longer but the driver by its address.
    if let Err(error) = unsafe { mmap_anonymous(Some(start), bytes, ProtFlags::PROT_NONE, flags) } {
        // If the memory stays mapped, it is still the guest's own.
        tracing::debug!("A region stays mapped: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::{fd::FromRawFd, unix::fs::FileExt};

    use super::*;
    use crate::ipc::sealed_memfd;

    #[test]
    fn runs_are_mapped_in_their_order_at_the_guests_address() {
        let file = sealed_memfd(c"test", 3 * PAGE_BYTES).unwrap();
        for page in 0..3 {
            file.write_all_at(&[page as u8 + 1], page * PAGE_BYTES)
                .unwrap();
        }
        let file = Arc::new(OwnedFd::from(file));
        let run = |page: u64| MapRun {
            file: Arc::clone(&file),
            offset: page * PAGE_BYTES,
            length: PAGE_BYTES,
        };
        let guest = 0x1234_5660_0000;
        let here = map_runs(guest, 2 * PAGE_BYTES, &[run(2), run(0)]).unwrap();
        assert_eq!(here, guest);
        let byte = |address: u64| {
            // SAFETY: both pages were just mapped.
            unsafe { (address as *const u8).read_volatile() }
        };
        assert_eq!((byte(here), byte(here + PAGE_BYTES)), (3, 1));
        // An existing mapping is not replaced: the second mapping gets another address.
        let elsewhere = map_runs(guest, PAGE_BYTES, &[run(1)]).unwrap();
        assert_ne!(elsewhere, guest);
        assert_eq!((byte(here), byte(elsewhere)), (3, 2));
        unmap_range(here, 2 * PAGE_BYTES);
        unmap_range(elsewhere, PAGE_BYTES);
    }

    /// The kernel would map a whole huge page for each of these, and replace the mappings behind the range.
    #[test]
    fn a_part_of_a_huge_page_is_not_mapped() {
        let flags = libc::MFD_CLOEXEC | libc::MFD_HUGETLB;
        // SAFETY: the name is a string; the descriptor is checked before it is owned.
        let file = unsafe {
            let fd = libc::memfd_create(c"huge".as_ptr(), flags);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        let run = |offset, length| MapRun {
            file: Arc::new(file.try_clone().unwrap()),
            offset,
            length,
        };
        let page = largest_page(&[run(0, PAGE_BYTES)]).unwrap();
        assert!(page > PAGE_BYTES, "{page}");
        let guest = 0x1234_0000_0000;
        for (guest, run) in [
            (guest, run(0, PAGE_BYTES)),
            (guest, run(PAGE_BYTES, page)),
            (guest + PAGE_BYTES, run(0, page)),
        ] {
            let error = map_runs(guest, run.length, &[run]).unwrap_err();
            assert!(error.to_string().contains("hugetlbfs"), "{error}");
        }
    }

    #[test]
    fn pitfall_15_a_range_may_lie_in_regions_that_follow_each_other() {
        let region = |guest, here| Region {
            guest,
            here,
            bytes: 0x1000,
        };
        let mut state = State::default();
        state.regions.insert(1, region(0x1000, 0x1000));
        state.regions.insert(2, region(0x2000, 0x2000));
        state.regions.insert(3, region(0x3000, 0x9000));
        assert_eq!(state.place(0x1800, 0x1000), Some(0x1800));
        assert_eq!(
            state.place(0x2800, 0x1000),
            None,
            "the third region lies elsewhere"
        );
        assert_eq!(state.place(0x3800, 0x800), Some(0x9800));
        assert_eq!(state.place(0x3800, 0x801), None);
        assert_eq!(state.place(0x800, 0x100), None);
    }

    #[test]
    fn pitfall_27_whether_memory_is_pinned_is_known_while_other_memory_is_being_pinned() {
        let regions = Regions::default();
        let range = |bytes| Pinned { bytes, context: 1 };
        regions.pinned().insert(0x1000, range(0x1000));
        regions.pinned().insert(0x4000, range(0x800));
        let pinning = regions.state();
        assert!(regions.holds(0x1000, 0x1000) && regions.holds(0x47ff, 1));
        assert!(!regions.holds(0x1000, 0x1001) && !regions.holds(0x4800, 0));
        assert!(!regions.holds(0xfff, 1) && !regions.holds(u64::MAX, 1));
        assert_eq!(regions.pinned_bytes(), 0x1800);
        drop(pinning);
        regions.forget_context(1);
        assert_eq!(regions.pinned_bytes(), 0);
        assert!(!regions.holds(0x1000, 1));
    }

    #[test]
    fn one_thread_unpins_a_registration() {
        let mut state = State::default();
        assert!(state.begin_ending(0x1000).is_none());
        let registration = Registration {
            here: 0x1000,
            device: 0x1000,
            bytes: 0x1000,
            context: 1,
            is_ending: false,
        };
        state.registered.insert(0x1000, registration);
        assert!(state.begin_ending(0x1000).is_some());
        assert!(
            state.begin_ending(0x1000).is_none(),
            "another thread has it"
        );
    }

    #[test]
    fn runs_that_do_not_add_up_are_refused() {
        let file = Arc::new(OwnedFd::from(sealed_memfd(c"test", PAGE_BYTES).unwrap()));
        let run = MapRun {
            file,
            offset: 0,
            length: PAGE_BYTES,
        };
        assert!(map_runs(0x1234_5660_0000, 2 * PAGE_BYTES, std::slice::from_ref(&run)).is_err());
        assert!(map_runs(0x1234_5660_0001, PAGE_BYTES, std::slice::from_ref(&run)).is_err());
        assert!(map_runs(0x1234_5660_0000, 0, &[]).is_err());
    }
}
