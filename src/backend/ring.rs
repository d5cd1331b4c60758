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
        atomic::{AtomicBool, Ordering, fence},
    },
};

use vhost_user_backend::{VringRwLock, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::{Error, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace};

use super::queue::Memory;

/// A size that no ring has, which the front end's messages carry in place of addresses that are not aligned.
pub const UNALIGNED: u16 = 3;
/// `VIRTQ_AVAIL_F_NO_INTERRUPT`.
const NO_INTERRUPT: u16 = 1;

type Result<T> = std::result::Result<T, Error>;
type Switched = Box<dyn Fn(bool) + Send + Sync>;

/// See the module's documentation. A clone is the same ring.
#[derive(Clone)]
pub struct Ring {
    inner: VringRwLock,
    memory: Memory,
    /// Whether the last size and the last addresses that the VMM set are valid for a ring. The guest chooses them.
    is_valid: Arc<AtomicBool>,
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

    /// Whether the driver wants an interrupt for returned chains: the flag `VIRTQ_AVAIL_F_NO_INTERRUPT` at the start of
    /// the available ring, which counts without event indices (VIRTIO 1.3, 2.7.7).
    pub fn wants_interrupt(&self, available: u64) -> bool {
        // The driver must see the used index before its flag is read, or have cleared the flag before.
        fence(Ordering::SeqCst);
        let flags = self
            .memory
            .memory()
            .load::<u16>(GuestAddress(available), Ordering::Acquire);
        flags.map_or(true, |flags| u16::from_le(flags) & NO_INTERRUPT == 0)
    }

    /// Keeps the ring from being served until the VMM sets a size and addresses again: an error would end the
    /// connection, and with it the device.
    fn refuse(&self, why: &str) {
        self.is_valid.store(false, Ordering::Relaxed);
        tracing::error!("A virtqueue is not served: {why}");
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
            inner: VringRwLock::new(memory.clone(), max_queue_size)?,
            memory,
            is_valid: Arc::new(AtomicBool::new(true)),
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
        if let Err(error) = self.inner.set_queue_info(descriptors, available, used) {
            self.refuse(&error.to_string());
        }
        Ok(())
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
        Ok(self.inner.queue_used_idx().unwrap_or_else(|error| {
            self.refuse(&error.to_string());
            0
        }))
    }

    fn set_queue_size(&self, entries: u16) {
        self.inner.set_queue_size(entries);
        self.is_valid.store(true, Ordering::Relaxed);
        if entries == UNALIGNED {
            self.refuse("its addresses are not aligned");
        } else if self.get_ref().get_queue().size() != entries {
            // The library would continue with the previous size, and write to other places than the driver expects.
            self.refuse(&format!("{entries} entries are no power of two"));
        }
    }

    fn set_queue_event_idx(&self, enabled: bool) {
        self.inner.set_queue_event_idx(enabled);
    }

    fn set_queue_ready(&self, ready: bool) {
        let is_valid = self.is_valid.load(Ordering::Relaxed);
        self.inner.set_queue_ready(ready && is_valid);
    }

    fn set_kick(&self, file: Option<File>) {
        self.inner.set_kick(file);
    }

    fn read_kick(&self) -> io::Result<bool> {
        match self.inner.read_kick() {
            // A kick on the descriptor that this one replaced. An error would end the ring's thread.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            read => read,
        }
    }

    fn set_call(&self, file: Option<File>) {
        self.inner.set_call(file);
    }

    fn set_err(&self, file: Option<File>) {
        self.inner.set_err(file);
    }
}
