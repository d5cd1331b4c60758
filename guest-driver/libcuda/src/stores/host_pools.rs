// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools of the host: all pools, the current ones, granted access, and their blocks.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use super::blocks::{Blocks, Unused};

/// The place of a pool's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Anywhere on the host.
    Host,
    /// A NUMA node of the host.
    Node(i32),
}

/// An event of this library itself, and its context.
#[derive(Debug, Clone, Copy)]
pub struct OwnEvent {
    /// The event's id.
    pub id: u64,
    /// The id of its context, with which it ends.
    pub context: u64,
}

/// Events that are not in use. No event is destroyed except by its context, because a destruction could return an error
/// of the program's work.
type Spare = Arc<Mutex<Vec<OwnEvent>>>;

/// An event behind a free. It can be reused afterwards.
#[derive(Debug)]
pub struct Mark {
    /// The event.
    pub event: OwnEvent,
    spare: Spare,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.spare.lock().push(self.event);
    }
}

/// A pool.
pub struct HostPool {
    /// Its memory.
    pub place: Place,
    /// Whether it is the default pool of its place, which cannot be destroyed.
    pub is_own: bool,
    /// Whether the program has destroyed it: only memory in use keeps it.
    pub is_destroyed: bool,
    /// The maximum size in bytes; 0 for no limit.
    pub most: u64,
    /// The three ways to reuse memory. Only the last has an effect: a stream may wait for others if the pool cannot
    /// grow.
    pub reuse: [bool; 3],
    /// The number of bytes that it keeps when the program waits for the GPU.
    pub threshold: u64,
    /// The access of devices. The host's cannot be withdrawn.
    pub access: HashMap<CUdevice, CUmemAccess_flags>,
    /// Its memory.
    pub blocks: Blocks<Mark>,
}

impl HostPool {
    /// A pool without memory.
    pub fn new(place: Place, most: u64, is_own: bool) -> Self {
        Self {
            place,
            is_own,
            is_destroyed: false,
            most,
            reuse: [true; 3],
            threshold: 0,
            access: HashMap::new(),
            blocks: Blocks::default(),
        }
    }

    /// Removes the chunks that it does not keep.
    pub fn shed(&mut self) -> Vec<Unused> {
        self.blocks
            .shed(if self.is_destroyed { 0 } else { self.threshold })
    }
}

/// The pools of the process.
#[derive(Default)]
pub struct HostPools {
    table: Mutex<Table>,
    spare: Spare,
    /// Whether there ever was a pool.
    any: AtomicBool,
    /// Whether memory was freed since the program last waited for the GPU, or was not idle at that time.
    pub any_freed: AtomicBool,
}

/// The state of pools.
#[derive(Default)]
pub struct Table {
    /// All pools, by their ids.
    pub pools: HashMap<u64, HostPool>,
    /// The default pools of places.
    pub own: HashMap<Place, u64>,
    /// The pools that the program has set for places.
    pub current: HashMap<Place, u64>,
}

impl Table {
    /// A pool that exists for the program.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such pool.
    pub fn pool(&mut self, id: u64) -> Result<&mut HostPool, CUresult> {
        let pool = self.pools.get_mut(&id).filter(|pool| !pool.is_destroyed);
        pool.ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

impl HostPools {
    /// The state of pools, under a lock. No thread waits for the host under it.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Adds a pool.
    pub fn add(&self, id: u64, pool: HostPool) {
        self.table().pools.insert(id, pool);
        self.any.store(true, Ordering::Release);
    }

    /// Whether there ever was a pool.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether an id belongs to a host pool, or to a destroyed one that still has memory.
    #[inline]
    pub fn has(&self, id: u64) -> bool {
        self.any() && self.table().pools.contains_key(&id)
    }

    /// An event of a context: an unused one, or one that `make` makes.
    ///
    /// # Errors
    ///
    /// Those of `make`.
    pub fn mark(
        &self,
        context: u64,
        make: impl FnOnce() -> Result<u64, CUresult>,
    ) -> Result<Mark, CUresult> {
        let spare = {
            let mut spare = self.spare.lock();
            let at = spare.iter().position(|event| event.context == context);
            at.map(|at| spare.swap_remove(at))
        };
        let event = match spare {
            Some(event) => event,
            None => OwnEvent {
                id: make()?,
                context,
            },
        };
        let spare = Arc::clone(&self.spare);
        Ok(Mark { event, spare })
    }

    /// Handles the end of a context with its events: the program keeps its memory, but the chunks get no more blocks.
    pub fn forget_context(&self, context: u64) {
        for pool in self.table().pools.values_mut() {
            pool.blocks.forget_context(context);
        }
        self.spare.lock().retain(|event| event.context != context);
    }

    /// Whether a device was given access to a pool's memory.
    pub fn is_open_to(&self, id: u64, device: Option<CUdevice>) -> bool {
        let table = self.table();
        let pool = table.pools.get(&id);
        let flags = pool.and_then(|pool| pool.access.get(&device?).copied());
        flags.is_some_and(|flags| flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
    }
}
