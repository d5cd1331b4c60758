//! The worker's side of sharing a GPU between VMs: see [`gate`].

mod gate;
mod gpu;
mod pace;

use std::{
    cell::Cell,
    io::Write,
    sync::{Mutex, PoisonError, atomic::Ordering},
    thread,
};

use gpgpu_protocol::api::gives_work;

pub use self::gpu::note_stream;
use self::{
    gate::{Gate, Inside},
    gpu::Gpu,
};
use super::{driver, session::Session};
use crate::account::GPUS;

/// The gates of the GPUs that this worker has used.
#[derive(Debug, Default)]
pub struct Gates {
    by_gpu: Mutex<Vec<(usize, &'static Gate<Gpu>)>>,
}

impl std::fmt::Debug for Gate<Gpu> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

thread_local! {
    /// The gate of the context that this thread gave work in last, with [`Session::changes`] at that time.
    static LAST: Cell<(u64, u64, Option<&'static Gate<Gpu>>)> = const { Cell::new((0, 0, None)) };
}

impl Gates {
    /// Passes the gate of the current context's GPU, if the operation gives it work.
    pub fn enter(&self, session: &Session, op: u16) -> Option<Inside<'static, Gpu>> {
        if !gives_work(op) {
            return None;
        }
        let (context, changes) = (session.current(), session.changes());
        let gate = match LAST.get() {
            (last, when, gate) if last == context && when == changes => gate,
            _ => {
                let gate = self.find(session, context);
                LAST.set((context, changes, gate));
                gate
            }
        }?;
        note_stream(0);
        Some(gate.enter())
    }

    fn find(&self, session: &Session, context: u64) -> Option<&'static Gate<Gpu>> {
        if context == 0 {
            return None;
        }
        let mut device = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuCtxGetDevice(&mut device) }.ok()?;
        let gpu = usize::try_from(device).ok().filter(|gpu| *gpu < GPUS)?;
        let mut gates = self.by_gpu.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = match gates.iter().find(|(of, _)| *of == gpu) {
            Some((_, gate)) => *gate,
            None => {
                let gate = open(session, gpu)?;
                gates.push((gpu, gate));
                gate
            }
        };
        gate.work.join(context);
        Some(gate)
    }

    /// A context is about to end: nothing here uses it any more.
    pub fn leave(&self, context: u64) {
        let gates = || {
            let gates = self.by_gpu.lock().unwrap_or_else(PoisonError::into_inner);
            gates.iter().map(|(_, gate)| *gate).collect::<Vec<_>>()
        };
        for gate in gates() {
            gate.work.leave(context);
        }
    }
}

/// Makes the gate of a GPU, with its thread.
fn open(session: &Session, gpu: usize) -> Option<&'static Gate<Gpu>> {
    // Where there is nothing to share with, as in tests of parts of a worker, all passes.
    let session: &'static Session = session.whole.get()?;
    let shares = session.shares.get()?;
    let ring_bell = || {
        // It is full only if the supervisor is to look anyway.
        let _ = (&shares.doorbell).write(&1_u64.to_ne_bytes());
    };
    let account = &shares.account;
    account.used.fetch_or(1 << gpu, Ordering::SeqCst);
    let gate: &'static Gate<Gpu> = Box::leak(Box::new(Gate::new(
        &account.leases[gpu],
        &account.counters,
        Gpu::new(session),
        Box::new(ring_bell),
    )));
    let started = thread::Builder::new()
        .name("lease".into())
        .spawn(move || gate.serve());
    if let Err(error) = started {
        // Without it a lease would never come back.
        tracing::error!("Cannot start a thread: {error}");
        std::process::exit(1);
    }
    Some(gate)
}
