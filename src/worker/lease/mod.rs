// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker's side of sharing a GPU between VMs: see [`gate`].

mod gate;
mod gpu;
mod pace;
mod place;

use std::{
    cell::Cell,
    io::Write,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{api::Gives, cuda::*};

use self::{
    gate::{Gate, Inside, Work},
    gpu::{Gpu, Mark},
    place::{place, set_passed, set_placed},
};
pub use self::{
    gate::{wake_later, weigh},
    gpu::note_stream,
    place::{Named, Names, Naming, bit, current_gpu, gpu_of_memory, use_gpus, use_stream},
};
use super::{callbacks::Blocked, common::Common, device_memory::DeviceMemory, grace};
use crate::account::GPUS;

/// The gates of the GPUs that this worker has used.
#[derive(Debug)]
pub struct Gates {
    common: &'static Common,
    device_memory: &'static DeviceMemory,
    gates: Mutex<Opened>,
    /// The GPUs on which the client has had contexts, a bit for each.
    used: AtomicU64,
}

/// See [`Gates`].
#[derive(Debug, Default)]
struct Opened {
    by_gpu: Vec<(usize, &'static Gate<Gpu>)>,
    /// Whether all are held, including those that are opened later.
    held: bool,
}

/// The right to submit the work of one command to GPUs, until this is dropped.
#[derive(Default)]
pub struct Passage {
    inside: Option<Inside<'static, Gpu>>,
    /// The other GPUs, if the command uses several.
    others: Vec<Inside<'static, Gpu>>,
}

impl Passage {
    /// Whether no other VM wants the GPU, and nothing limits the work in flight.
    pub fn is_open(&self) -> bool {
        self.others.is_empty() && self.inside.as_ref().is_none_or(Inside::is_open)
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        // The mark needs the recorded stream.
        self.inside = None;
        self.others.clear();
        gate::weigh(1);
        set_placed(0);
    }
}

impl std::fmt::Debug for Gate<Gpu> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

thread_local! {
    /// The gate of the context to which this thread last submitted work, with [`Common::changes`] at that time.
    static LAST: Cell<(u64, u64, Option<&'static Gate<Gpu>>)> = const { Cell::new((0, 0, None)) };
}

/// Passes a gate. A command that only orders work passes if this process has the lease, however much is in flight.
fn pass(gate: &'static Gate<Gpu>, gives: Gives) -> Inside<'static, Gpu> {
    let at_once = match gives {
        Gives::Order => gate.pass_by(),
        _ => None,
    };
    at_once.unwrap_or_else(|| gate.enter())
}

impl Gates {
    /// No gates yet, for a client with this memory.
    pub fn new(common: &'static Common, device_memory: &'static DeviceMemory) -> Self {
        Self {
            common,
            device_memory,
            gates: Mutex::default(),
            used: AtomicU64::new(0),
        }
    }

    /// Makes the context of a command current, and waits until the command may use its GPUs.
    ///
    /// # Errors
    ///
    /// As [`place()`]; the driver's error code.
    pub fn enter(&self, header: u64, named: &Named, gives: Gives) -> Result<Passage, CUresult> {
        let context = place(self.common, header, named)?;
        grace::set_context(context);
        let gate = self.gate(context)?;
        let mut passage = Passage::default();
        set_placed(context);
        let names_gpus = named.addresses != [0; 2] || named.contexts != [0; 2] || named.gpus != 0;
        if names_gpus && self.spans() {
            let gpus = place::gpus(self.common, named)?;
            set_passed(&gpus);
            // Commands for several GPUs enter their gates in this order, so that no two wait for each other.
            for gpu in gpus {
                let gate = self.at(gpu);
                passage.others.extend(gate.map(|gate| pass(gate, gives)));
            }
        } else {
            passage.inside = gate.map(|gate| pass(gate, gives));
        }
        // Its context may have ended while it waited at the gate.
        self.common.enter(context)?;
        Ok(passage)
    }

    /// Passes the gate of the current context's GPU for a command that only orders work, if this process has the lease;
    /// `None` if not.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` if there is none; the driver's error code.
    pub fn pass_by(&self) -> Result<Option<Passage>, CUresult> {
        let context = self.common.entered();
        if context == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let inside = match self.gate(context)? {
            Some(gate) => match gate.pass_by() {
                None => return Ok(None),
                passed => passed,
            },
            None => None,
        };
        set_placed(context);
        Ok(Some(Passage {
            inside,
            others: Vec::new(),
        }))
    }

    /// Records that the client has a context on a GPU.
    pub fn note_gpu(&self, device: CUdevice) {
        let gpu = bit(device.try_into().unwrap_or(usize::MAX));
        self.used.fetch_or(gpu, Ordering::Relaxed);
    }

    /// Whether the client may have memory on more than one GPU.
    pub fn spans(&self) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        !(used == 0 || used.is_power_of_two()) || self.device_memory.spans_devices()
    }

    /// The gate of the current context's GPU.
    fn gate(&self, context: u64) -> Result<Option<&'static Gate<Gpu>>, CUresult> {
        let changes = self.common.changes();
        match LAST.get() {
            (last, when, gate) if last == context && when == changes => Ok(gate),
            _ => {
                let gate = self.at(current_gpu()?);
                LAST.set((context, changes, gate));
                Ok(gate)
            }
        }
    }

    /// The gate of a GPU that will have work of the current context; `None` if there is nothing to share. Its marks are
    /// events of the primary context, which exists longer than green ones, so they also cover work in a green context
    /// that has ended.
    fn at(&self, gpu: usize) -> Option<&'static Gate<Gpu>> {
        if gpu >= GPUS {
            return None;
        }
        let mut gates = self.lock();
        let gate = match gates.by_gpu.iter().find(|(of, _)| *of == gpu) {
            Some((_, gate)) => *gate,
            None => {
                let gate = open(self.common, gpu)?;
                if gates.held {
                    gate.hold();
                }
                gates.by_gpu.push((gpu, gate));
                gate
            }
        };
        gate.work.join(self.common.current());
        Some(gate)
    }

    /// Removes a context that the driver has destroyed. [`Self::settle`] follows once its id is free.
    pub fn leave(&self, context: u64) {
        for gate in self.opened() {
            gate.work.leave(context);
        }
    }

    /// Wakes gates' threads that wait for the end of a context: it has left the table of objects, or is back there.
    pub fn settle(&self) {
        for gate in self.opened() {
            gate.work.settle();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.gates.lock()
    }

    fn opened(&self) -> Vec<&'static Gate<Gpu>> {
        let gates = self.lock();
        gates.by_gpu.iter().map(|(_, gate)| *gate).collect()
    }

    /// Closes all gates, whatever the grants, until [`Self::let_go`].
    pub fn hold(&self) {
        let mut gates = self.lock();
        gates.held = true;
        gates.by_gpu.iter().for_each(|(_, gate)| gate.hold());
    }

    /// Lets commands pass again.
    pub fn let_go(&self) {
        let mut gates = self.lock();
        gates.held = false;
        gates.by_gpu.iter().for_each(|(_, gate)| gate.let_go());
    }

    /// For a thread that [wakes gates' threads later](wake_later): wakes those that have to be woken.
    pub fn rouse(&self) {
        if gate::has_to_wake() {
            self.opened().into_iter().for_each(Gate::rouse);
        }
    }

    /// Makes threads that wait at a gate check whether it is held.
    pub fn nudge(&self) {
        self.opened().into_iter().for_each(Gate::nudge);
    }

    /// Submits work in the current context by `give`, for a thread that has passed. Returns a mark that the GPU passes
    /// once the stream has done the earlier work, if that can be known.
    pub fn behind_mark<T>(&self, give: impl FnOnce() -> T) -> (T, Option<Behind>) {
        let Ok(Some(gate)) = self.gate(self.common.entered()) else {
            return (give(), None);
        };
        let (given, mark) = gate.behind_mark(give);
        (given, mark.map(|mark| Behind { gate, mark }))
    }

    /// Whether the GPUs are idle, except for streams that wait for host callbacks. The gates must be held.
    pub fn are_still(&self, blocked: &Blocked) -> bool {
        let mut gates = self.opened().into_iter();
        gates.all(|gate| !gate.is_inside() && gate.work.is_still(blocked))
    }

    /// Waits until the GPUs have done their work. The gates must be held.
    pub fn drain(&self) {
        self.opened().into_iter().for_each(Gate::drain);
    }
}

/// A mark before submitted work.
#[derive(Debug, Clone, Copy)]
pub struct Behind {
    gate: &'static Gate<Gpu>,
    mark: Mark,
}

impl Behind {
    /// Whether the GPU has done the work before it.
    pub fn has_passed(&self) -> bool {
        self.gate.work.has_passed(&self.mark)
    }

    /// Releases it.
    pub fn release(self) {
        self.gate.work.release(self.mark);
    }
}

/// Makes the gate of a GPU, with its thread.
fn open(common: &'static Common, gpu: usize) -> Option<&'static Gate<Gpu>> {
    // Without a supervisor, as in unit tests, all commands pass.
    let shares = common.shares.get()?;
    let ring_bell = || {
        // The write fails only if the doorbell is full, in which case the supervisor reads the lease anyway.
        let _ = (&shares.doorbell).write(&1_u64.to_ne_bytes());
    };
    let account = &shares.account;
    let vm_busy_ns = shares.quota.busy_ns(gpu)?;
    account.used.fetch_or(1 << gpu, Ordering::SeqCst);
    let gate: &'static Gate<Gpu> = Box::leak(Box::new(Gate::new(
        &account.leases[gpu],
        &account.counters,
        vm_busy_ns,
        Gpu::new(common),
        Box::new(ring_bell),
    )));
    let started = thread::Builder::new()
        .name("lease".into())
        .spawn(move || gate.serve());
    if let Err(error) = started {
        // Without the thread a lease would never be returned.
        tracing::error!("Cannot start a thread: {error}");
        std::process::exit(1);
    }
    Some(gate)
}
