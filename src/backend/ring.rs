// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A ring of the vhost-user library that also tells the device when the VMM enables or disables it.
//!
//! The vhost-user library calls the device when a ring is stopped, but not when it is disabled. Cloud Hypervisor pauses
//! a VM by disabling its rings, and takes the answer as a promise that nothing writes to the guest's memory any more.
//! The library lets its back end choose the type of rings, so this type notifies the device.

use std::{
    fs::File,
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use vhost_user_backend::{VringRwLock, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error, QueueT};

use super::queue::Memory;

type Result<T> = std::result::Result<T, Error>;
type Switched = Box<dyn Fn(bool) + Send + Sync>;

/// See the module's documentation. A clone is the same ring.
#[derive(Clone)]
pub struct Ring {
    inner: VringRwLock,
    /// Whether the last size that the VMM set is valid for a ring.
    has_size: Arc<AtomicBool>,
    switched: Arc<OnceLock<Switched>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

impl Ring {
    /// Sets the callback that `make` makes. It is called for each enabling (`true`) and disabling of the ring, before
    /// the VMM is answered. Only the first call of this function has an effect.
    pub fn when_switched<S: Fn(bool) + Send + Sync + 'static>(&self, make: impl FnOnce() -> S) {
        self.switched.get_or_init(|| Box::new(make()));
    }
}

impl<'a> VringStateGuard<'a, Memory> for Ring {
    type G = <VringRwLock as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for Ring {
    type G = <VringRwLock as VringStateMutGuard<'a, Memory>>::G;
}

impl VringT<Memory> for Ring {
    fn new(memory: Memory, max_queue_size: u16) -> Result<Self> {
        Ok(Self {
            inner: VringRwLock::new(memory, max_queue_size)?,
            has_size: Arc::new(AtomicBool::new(true)),
            switched: Arc::default(),
        })
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.inner.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.inner.get_mut()
    }

    fn add_used(&self, head: u16, len: u32) -> Result<()> {
        self.inner.add_used(head, len)
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        self.inner.signal_used_queue()
    }

    fn enable_notification(&self) -> Result<bool> {
        self.inner.enable_notification()
    }

    fn disable_notification(&self) -> Result<()> {
        self.inner.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool> {
        self.inner.needs_notification()
    }

    fn set_enabled(&self, enabled: bool) {
        self.inner.set_enabled(enabled);
        if let Some(switched) = self.switched.get() {
            switched(enabled);
        }
    }

    fn set_queue_info(&self, descriptors: u64, available: u64, used: u64) -> Result<()> {
        self.inner.set_queue_info(descriptors, available, used)
    }

    fn queue_next_avail(&self) -> u16 {
        self.inner.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.inner.set_queue_next_avail(base);
    }

    fn set_queue_next_used(&self, index: u16) {
        self.inner.set_queue_next_used(index);
    }

    fn queue_used_idx(&self) -> Result<u16> {
        self.inner.queue_used_idx()
    }

    fn set_queue_size(&self, entries: u16) {
        self.inner.set_queue_size(entries);
        let has_size = self.get_ref().get_queue().size() == entries;
        self.has_size.store(has_size, Ordering::Relaxed);
        if !has_size {
            // The library would continue with the previous size, and write to other places than the driver expects.
            tracing::error!("A virtqueue of {entries} entries is not served: not a power of two");
        }
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.inner.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        let has_size = self.has_size.load(Ordering::Relaxed);
        self.inner.set_queue_ready(ready && has_size);
    }

    fn set_kick(&self, file: Option<File>) {
        self.inner.set_kick(file);
    }

    fn read_kick(&self) -> io::Result<bool> {
        self.inner.read_kick()
    }

    fn set_call(&self, file: Option<File>) {
        self.inner.set_call(file);
    }

    fn set_err(&self, file: Option<File>) {
        self.inner.set_err(file);
    }
}
