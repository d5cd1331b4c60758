// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! One device's memory, and the thread that returns its idle part.

use std::{
    sync::{Arc, OnceLock, atomic::AtomicBool},
    time::Duration,
};

use gpgpu_locks::{Condvar, Mutex};

use super::{driver::Chunks, pool::Pool};
use crate::account::Quota;

/// The time for which idle memory is kept.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of idle bytes that are kept for longer: a chunk for small allocations.
const KEEP_LONG: u64 = 16 << 20;

/// One device's memory.
#[derive(Debug)]
pub(super) struct Device {
    pub pool: Pool<Chunks>,
    /// Whether the driver has refused to make chunks.
    pub is_refused: AtomicBool,
    pub trimmer: Trimmer,
}

/// Returns a device's idle memory after a while, on a separate thread, because the driver may take long.
#[derive(Debug, Default)]
pub(super) struct Trimmer {
    /// Whether memory became idle since the last check.
    due: Arc<(Mutex<bool>, Condvar)>,
    started: OnceLock<bool>,
}

impl Trimmer {
    /// Records that memory became idle; `idle` bytes are idle now.
    pub fn notice(&self, device: &Arc<Device>, idle: u64) {
        if idle == 0 {
            return;
        }
        let started = *self.started.get_or_init(|| {
            let (due, device) = (Arc::clone(&self.due), Arc::clone(device));
            let thread = std::thread::Builder::new().name("trim".into());
            thread.spawn(move || Self::serve(&due, &device)).is_ok()
        });
        if started {
            let (due, changed) = &*self.due;
            *due.lock() = true;
            changed.notify_one();
        } else if idle > device.pool.keep() {
            device.pool.trim(device.pool.keep());
        }
    }

    fn serve((due, changed): &(Mutex<bool>, Condvar), device: &Device) {
        loop {
            let mut now = due.lock();
            while !*now {
                now = changed.wait(now);
            }
            // As long as memory keeps becoming idle, it is in use.
            while *now {
                *now = false;
                drop(now);
                device.pool.trim(device.pool.keep());
                now = due.lock();
                if !*now {
                    (now, _) = changed.wait_timeout(now, PATIENCE);
                }
            }
            drop(now);
            device.pool.trim(KEEP_LONG.max(device.pool.promised()));
        }
    }
}

impl Device {
    /// Returns idle memory whenever another process of the VM needs it, on a separate thread.
    pub fn listen(self: &Arc<Self>, quota: Quota) {
        let (this, device) = (Arc::clone(self), self.pool.device());
        let mut seen = quota.asked(device);
        let thread = std::thread::Builder::new().name("give".into());
        let spawned = thread.spawn(move || {
            loop {
                quota.wait_asked(device, seen);
                let asked = quota.asked(device);
                if asked != seen {
                    seen = asked;
                    this.pool.press();
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!("Cannot start a thread: {error}");
        }
    }
}
