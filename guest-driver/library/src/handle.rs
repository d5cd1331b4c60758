// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles: ids that this process chose, and their settings in the host's library.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use gpgpu_client::{forks, log, sister::Sister};
use gpgpu_locks::{Mutex, MutexGuard, RwLock};
use gpgpu_protocol::{
    cuda::CU_STREAM_PER_THREAD,
    libraries::{Class, Library, call::PointerMode},
};

use crate::{Object, Status, mix};

/// The most forms of calls that a handle remembers as accepted.
const ACCEPTED: usize = 1 << 14;

/// The number of forms that are found without a lock.
const RECENT: usize = 64;

/// The most accepted values of settings that a handle remembers.
const MOST_VALUES: usize = 256;

/// The number of settings that a library keeps for a handle, besides its stream and its pointer mode. The library
/// assigns an index to each.
pub const SETTINGS: usize = 8;

/// A handle's settings in the host's library.
#[derive(Debug, Default)]
pub struct Told {
    /// The stream's handle.
    pub stream: usize,
    /// The stream's id.
    stream_id: u64,
    /// The workspace and its bytes; `None` for the library's own.
    workspace: Option<(u64, u64)>,
    /// Whether the handle's stream must be set once more before the next computation: that removes the handle's
    /// workspace, as the program's call did.
    is_owed: bool,
    /// The default of each setting is 0.
    settings: [i32; SETTINGS],
    /// The values that the library has accepted, with their settings.
    values: HashSet<(usize, i32)>,
}

impl Told {
    /// Records a stream; returns whether to send it now. A handle of cuBLAS loses its workspace when it gets a stream,
    /// even its current one. Programs set the same stream and the same workspace before each call: then nothing
    /// changes.
    pub fn give_stream(&mut self, stream: usize, id: u64) -> bool {
        self.stream = stream;
        if self.stream_id == id {
            self.is_owed |= self.workspace.is_some();
            return false;
        }
        (self.stream_id, self.workspace, self.is_owed) = (id, None, false);
        true
    }

    /// Records a workspace; returns whether to send it.
    pub fn give_workspace(&mut self, address: u64, bytes: u64) -> bool {
        self.is_owed = false;
        let given = Some((address, bytes));
        std::mem::replace(&mut self.workspace, given) != given
    }

    /// Records the stream of the next computation; returns whether to send it now.
    fn take_owed(&mut self, id: u64) -> bool {
        let is_owed = std::mem::take(&mut self.is_owed);
        if is_owed {
            self.workspace = None;
        }
        std::mem::replace(&mut self.stream_id, id) != id || is_owed
    }

    /// Whether each call runs in the default stream of the thread that makes it.
    fn is_per_thread(&self) -> bool {
        self.stream == CU_STREAM_PER_THREAD
    }

    /// The stream's id.
    pub fn stream_id(&self) -> u64 {
        self.stream_id
    }

    /// The program's workspace and its bytes, if it has set one.
    pub fn workspace(&self) -> Option<(u64, u64)> {
        self.workspace
    }

    /// A setting's value.
    pub fn setting(&self, of: usize) -> i32 {
        self.settings[of]
    }

    /// Whether the library accepts a value of a setting: it is the default, or was accepted before.
    pub fn accepts(&self, of: usize, value: i32) -> bool {
        value == 0 || self.values.contains(&(of, value))
    }
}

/// A handle that exists.
#[derive(Debug)]
pub struct Handle {
    mode: AtomicU32,
    told: Mutex<Told>,
    /// Whether [`Handle::settle`] has to look at [`Told`]. It is read without the lock.
    is_owed: AtomicBool,
    /// A number for [`Told::settings`], which may influence the library's decision about a call.
    settings: AtomicU64,
    /// Forms that were accepted, mixed with that number.
    accepted: Mutex<HashSet<u64>>,
    /// Some of the accepted forms, which are found without a lock; 0 for an empty entry.
    recent: [AtomicU64; RECENT],
}

impl Default for Handle {
    fn default() -> Self {
        Self {
            mode: AtomicU32::default(),
            told: Mutex::default(),
            is_owed: AtomicBool::default(),
            settings: AtomicU64::default(),
            accepted: Mutex::default(),
            recent: [const { AtomicU64::new(0) }; RECENT],
        }
    }
}

impl Handle {
    /// Where scalars and results are: host or device.
    pub fn mode(&self) -> PointerMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => PointerMode::Host,
            _ => PointerMode::Device,
        }
    }

    /// Records where scalars and results are from now on.
    pub fn set_mode(&self, mode: PointerMode) {
        self.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// The settings in the library.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock()
    }

    /// Records whether the stream has to be checked before the next computation; `told` is [`Handle::told`].
    pub fn set_owed(&self, told: &Told) {
        let is_owed = told.is_owed || told.is_per_thread();
        self.is_owed.store(is_owed, Ordering::Relaxed);
    }

    /// Sends the stream before the next computation, if necessary: once more, or that of the calling thread, whose id
    /// `own` returns. Other threads wait until `tell` has sent it. While the caller keeps the result, no other thread
    /// gives the handle another stream.
    ///
    /// # Errors
    ///
    /// The errors of `own` and of `tell`.
    pub fn settle(
        &self,
        own: impl FnOnce() -> Result<u64, Status>,
        tell: impl FnOnce(&Told) -> Result<(), Status>,
    ) -> Result<Option<MutexGuard<'_, Told>>, Status> {
        if !self.is_owed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut told = self.told();
        let is_per_thread = told.is_per_thread();
        let id = match is_per_thread {
            true => own()?,
            false => told.stream_id,
        };
        if told.take_owed(id) {
            tell(&told)?;
        }
        self.set_owed(&told);
        Ok(is_per_thread.then_some(told))
    }

    /// Records a setting that the library has accepted; `told` is [`Handle::told`].
    pub fn set(&self, told: &mut Told, of: usize, value: i32) {
        told.settings[of] = value;
        if told.values.len() == MOST_VALUES {
            told.values.clear();
        }
        told.values.insert((of, value));
        // Without settings, it is 0.
        let all = told.settings.iter().rev();
        let number = all.fold(0, |all, value| match (all, *value) {
            (0, 0) => 0,
            (all, value) => mix(all, u64::from(value as u32) + 1),
        });
        self.settings.store(number, Ordering::Relaxed);
    }

    /// A form under the present settings.
    fn under_settings(&self, form: u64) -> u64 {
        match self.settings.load(Ordering::Relaxed) {
            0 => form,
            settings => mix(form, settings),
        }
    }

    /// Whether the library has accepted a call of this form under the present settings.
    pub fn has_accepted(&self, form: u64) -> bool {
        let kind = self.under_settings(form);
        let recent = &self.recent[kind as usize % RECENT];
        if recent.load(Ordering::Relaxed) == kind && kind != 0 {
            return true;
        }
        let accepted = self.accepted.lock();
        let is_accepted = accepted.contains(&kind);
        if is_accepted {
            // Under the lock: a form that was forgotten meanwhile must not come back.
            recent.store(kind, Ordering::Relaxed);
        }
        is_accepted
    }

    /// Records that the library has accepted a call of this form under the present settings.
    pub fn accept(&self, form: u64) {
        let kind = self.under_settings(form);
        let mut accepted = self.accepted.lock();
        if accepted.len() >= ACCEPTED {
            accepted.clear();
        }
        accepted.insert(kind);
        self.recent[kind as usize % RECENT].store(kind, Ordering::Relaxed);
    }

    /// Forgets the accepted forms, because a setting has changed that may influence the library's decision and is not
    /// in [`Told`].
    pub fn forget_accepted(&self) {
        let mut accepted = self.accepted.lock();
        accepted.clear();
        for recent in &self.recent {
            recent.store(0, Ordering::Relaxed);
        }
    }
}

static HANDLES: RwLock<Option<HashMap<u64, Arc<Handle>>>> = RwLock::new(None);
/// Counts the destroyed handles.
static ENDED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The handle that the thread used last, and the value of [`ENDED`] at that time.
    static LAST: Cell<Option<(u64, u64, Arc<Handle>)>> = const { Cell::new(None) };
}

/// Records a new handle.
pub fn insert(id: u64) {
    let mut handles = HANDLES.write();
    handles.get_or_insert_default().insert(id, Arc::default());
}

/// Removes a handle; `None` if there is none.
pub fn remove(handle: Object) -> Option<Arc<Handle>> {
    let mut handles = HANDLES.write();
    let removed = handles.as_mut()?.remove(&(handle as u64));
    ENDED.fetch_add(1, Ordering::Release);
    removed
}

/// Runs `body` with the handle behind a program's pointer. The handle that the thread used last is found without a
/// lock.
///
/// # Errors
///
/// The library's status for a bad handle if there is none; the errors of `body`.
pub fn with<T>(
    class: Class,
    handle: Object,
    body: impl FnOnce(&Handle) -> Result<T, Status>,
) -> Result<T, Status> {
    let (id, ended) = (handle as u64, ENDED.load(Ordering::Acquire));
    let last = LAST.try_with(Cell::take).ok().flatten();
    let last = match last {
        Some((of, when, known)) if (of, when) == (id, ended) => (of, when, known),
        _ => (id, ended, find(class, handle)?),
    };
    let outcome = body(&last.2);
    let _ = LAST.try_with(|place| place.set(Some(last)));
    outcome
}

/// The handle behind a program's pointer.
///
/// # Errors
///
/// The library's status for a bad handle if there is none.
pub fn find(class: Class, handle: Object) -> Result<Arc<Handle>, Status> {
    let handles = HANDLES.read();
    let found = handles.as_ref().and_then(|all| all.get(&(handle as u64)));
    let found = found.filter(|_| class.takes(handle as u64));
    found.cloned().ok_or(class.library().statuses().bad_handle)
}

/// The process's libcuda, for a use after which forked children cannot use CUDA.
///
/// # Errors
///
/// The library's status for `not initialised` if libcuda is not this project's.
pub fn sister(library: Library) -> Result<Sister, Status> {
    forks::watch();
    libcuda(library)
}

/// The process's libcuda.
///
/// # Errors
///
/// As [`sister`].
pub fn libcuda(library: Library) -> Result<Sister, Status> {
    static SISTER: OnceLock<Option<Sister>> = OnceLock::new();
    let found = SISTER.get_or_init(|| {
        let found = Sister::find();
        if found.is_none() {
            log::say(log::Level::Error, || {
                let name = library.name();
                format!("lib{name}: the process's libcuda.so.1 is not virtio-gpgpu's; start the program with gpgpu-run")
            });
        }
        found
    });
    found.ok_or(library.statuses().not_initialized)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_form_is_known_until_a_setting_changes() {
        let handle = Handle::default();
        // The first two share an entry of the recent ones.
        let kinds = [7, 7 + RECENT as u64, 0];
        for kind in kinds {
            assert!(!handle.has_accepted(kind));
            handle.accept(kind);
        }
        assert!(kinds.iter().all(|kind| handle.has_accepted(*kind)));
        assert!(!handle.has_accepted(7 + 2 * RECENT as u64));
        handle.forget_accepted();
        assert!(!kinds.iter().any(|kind| handle.has_accepted(*kind)));
    }

    #[test]
    fn an_accepted_form_is_known_again_under_the_same_settings() {
        let handle = Handle::default();
        let set = |of, value| {
            let mut told = handle.told();
            let accepts = told.accepts(of, value);
            handle.set(&mut told, of, value);
            accepts
        };
        handle.accept(7);
        assert!(!set(2, 3) && !handle.has_accepted(7));
        handle.accept(7);
        handle.accept(8);
        assert!(!set(1, 3) && !handle.has_accepted(7));
        assert!(set(1, 0) && handle.has_accepted(7));
        assert!(set(2, 0) && handle.has_accepted(7) && !handle.has_accepted(8));
        assert!(set(2, 3) && handle.has_accepted(8));
        assert!(!set(2, 4) && !handle.has_accepted(8));
    }

    #[test]
    fn setting_the_same_stream_and_workspace_again_sends_nothing() {
        let mut told = Told::default();
        // A new handle has the legacy stream, and the program has given it no workspace.
        assert!(!told.give_stream(0, 0) && !told.take_owed(0));
        assert!(told.give_stream(7, 0x160));
        assert!(told.give_workspace(0x1000, 64));
        for _ in 0..2 {
            assert!(!told.give_stream(7, 0x160));
            assert!(told.is_owed);
            assert!(!told.give_workspace(0x1000, 64));
            assert!(!told.take_owed(0x160));
        }
        // A computation in between uses cuBLAS's own workspace, as natively.
        assert!(!told.give_stream(7, 0x160));
        assert!(told.take_owed(0x160) && !told.take_owed(0x160));
        assert!(told.give_workspace(0x1000, 64));
        // Another stream or workspace is sent at once, so nothing is left to send.
        assert!(!told.give_stream(7, 0x160));
        assert!(told.give_workspace(0x2000, 64) && !told.take_owed(0x160));
        assert!(!told.give_stream(7, 0x160));
        assert!(told.give_stream(8, 0x260) && !told.take_owed(0x260));
        assert!(told.give_workspace(0x2000, 64));
    }

    #[test]
    fn a_handle_with_the_threads_own_stream_follows_the_thread() {
        let handle = Handle::default();
        let calls = |own: u64| {
            let mut told = None;
            let tell = |now: &Told| {
                told = Some(now.stream_id());
                Ok(())
            };
            let kept = handle.settle(|| Ok(own), tell);
            (kept.unwrap().is_some(), told)
        };
        let own = CU_STREAM_PER_THREAD;
        assert_eq!(calls(0x160), (false, None));
        {
            let mut told = handle.told();
            assert!(told.give_stream(own, 0x160) && told.give_workspace(0x1000, 64));
            handle.set_owed(&told);
        }
        assert_eq!(calls(0x160), (true, None));
        // The program's workspace stays, as natively: the stream is the same.
        assert_eq!(calls(0x260), (true, Some(0x260)));
        assert_eq!(handle.told().workspace(), Some((0x1000, 64)));
        assert_eq!(calls(0x260), (true, None));
        {
            let mut told = handle.told();
            assert!(told.give_stream(7, 0x360));
            handle.set_owed(&told);
        }
        assert_eq!(calls(0x160), (false, None));
    }

    #[test]
    fn a_handle_that_has_ended_is_not_found_again() {
        let handle = 0x190 as Object;
        let is_there = || with(Class::CublasHandle, handle, |_| Ok(())).is_ok();
        assert!(!is_there());
        insert(handle as u64);
        assert!(is_there() && is_there());
        assert!(remove(handle).is_some());
        assert!(!is_there());
        assert!(remove(handle).is_none());
    }
}
