// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams and events that are destroyed when they are no longer in use: see [`super::grace`].
//!
//! Their destruction is a post, so its caller does not wait. If another thread's command may use the object, a separate
//! thread destroys it after the end of that command.

use std::{sync::OnceLock, thread, time::Duration};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Event, Object, Stream},
    cuda::*,
};

use super::{
    common::Common,
    grace::{self, Ending, Ticket},
    objects::Entry,
};
use crate::cuda::driver;

/// The first interval between two checks of the thread. It grows as long as nothing can be destroyed.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Hidden objects that wait for their destruction.
#[derive(Debug, Clone, Copy)]
struct Doomed {
    id: u64,
    raw: u64,
    context: u64,
    destroy: Destroy,
    ticket: Ticket,
}

type Destroy = unsafe fn(u64) -> Result<(), CUresult>;

impl Doomed {
    fn is_unused(&self) -> bool {
        self.ticket.has_passed(Ending::Object(self.id))
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Deferred {
    common: &'static Common,
    doomed: Mutex<Vec<Doomed>>,
    more: Condvar,
    started: OnceLock<bool>,
}

/// A kind of object that is destroyed by a post.
pub trait Posted: Object {
    /// The driver's function that destroys it.
    ///
    /// # Safety
    ///
    /// The handle comes from the driver, exists, and is no longer in use.
    unsafe fn destroy(raw: u64) -> Result<(), CUresult>;
}

impl Posted for Stream {
    unsafe fn destroy(raw: u64) -> Result<(), CUresult> {
        // SAFETY: as the caller says.
        unsafe { driver::cuStreamDestroy_v2(raw as CUstream) }
    }
}

impl Posted for Event {
    unsafe fn destroy(raw: u64) -> Result<(), CUresult> {
        // SAFETY: as the caller says.
        unsafe { driver::cuEventDestroy_v2(raw as CUevent) }
    }
}

impl Deferred {
    /// Without any objects.
    pub fn new(common: &'static Common) -> Self {
        Self {
            common,
            doomed: Mutex::default(),
            more: Condvar::new(),
            started: OnceLock::new(),
        }
    }

    fn doomed(&self) -> MutexGuard<'_, Vec<Doomed>> {
        self.doomed.lock()
    }

    /// Destroys an object whose entry [`super::objects::Objects::end`] returned, now or later.
    ///
    /// # Errors
    ///
    /// The driver's error code, if it is already known; the object then still exists.
    pub fn destroy<K: Posted>(&'static self, id: u64, entry: &Entry) -> Result<(), CUresult> {
        let doomed = Doomed {
            id,
            raw: entry.raw,
            context: entry.context,
            destroy: K::destroy,
            ticket: Ticket::now(),
        };
        if !doomed.is_unused() {
            self.doomed().push(doomed);
            if self.starts() {
                self.more.notify_one();
            } else {
                self.sweep();
            }
            return Ok(());
        }
        // SAFETY: the handle came from the table, which no longer gives it out, and it is no longer in use.
        match unsafe { K::destroy(entry.raw) } {
            Ok(()) => self.common.objects.remove(id),
            Err(code) => {
                self.common.objects.keep(id);
                return Err(code);
            }
        }
        Ok(())
    }

    /// Whether the thread runs. Without it, the next destruction checks.
    fn starts(&'static self) -> bool {
        *self.started.get_or_init(|| {
            let thread = thread::Builder::new().name("later".into());
            thread.spawn(|| self.serve()).is_ok()
        })
    }

    fn serve(&self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let mut doomed = self.doomed();
            while doomed.is_empty() {
                pause = SHORTEST_PAUSE;
                doomed = self.more.wait(doomed);
            }
            drop(doomed);
            match self.sweep() {
                true => pause = SHORTEST_PAUSE,
                false => pause = (pause * 2).min(LONGEST_PAUSE),
            }
            thread::sleep(pause);
        }
    }

    /// Destroys objects that are no longer in use; `false` if there were none.
    fn sweep(&self) -> bool {
        let common = self.common;
        let mut any = false;
        loop {
            // A context does not end between this check and the driver's call.
            let _uses = grace::enter(0, false);
            let next = {
                let mut doomed = self.doomed();
                let unused = doomed.iter().position(Doomed::is_unused);
                unused.map(|at| doomed.swap_remove(at))
            };
            let Some(doomed) = next else {
                return any;
            };
            any = true;
            let entered = common.entered();
            if common.enter(doomed.context).is_ok() {
                // SAFETY: as above; its context lives.
                if let Err(code) = unsafe { (doomed.destroy)(doomed.raw) } {
                    tracing::debug!("Destroying a stream or event: {code}");
                }
                common.objects.remove(doomed.id);
            } else if common.objects.home(doomed.context) == doomed.context {
                common.objects.remove(doomed.id);
            }
            // The end of a green context also destroys objects in it.
            if common.entered() != entered {
                let _ = common.enter(entered);
            }
        }
    }

    /// Forgets a context that has ended, with everything in it.
    pub fn forget_context(&self, context: u64) {
        self.doomed().retain(|doomed| doomed.context != context);
    }
}
