// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The mover: one process for each GPU, which copies between guests' memory and workers' device memory.
//!
//! Guest memory is mapped here and registered with CUDA ([`guest`]), and workers' device memory is imported
//! ([`export`]). A move is a copy between the two ([`plan`], [`engine`]), requested by a device process on its channel
//! ([`channel`]). So a worker, whose address space a guest's kernel may be able to read and write, has no guest memory
//! mapped for these copies, and a device process, whose end would end its VM, does not call CUDA.
//!
//! This process runs no code of guests, and no kernel except the one that copies. It may end at any time: device
//! processes then copy through the worker's staging area.

mod channel;
mod engine;
mod export;
mod guest;
mod holes;
mod plan;
mod queue;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use gpgpu_protocol::cuda::*;

use crate::{
    cuda::{driver, event_thread::with_slack},
    ipc::{
        self,
        mover::{Order, Tenant},
    },
    sandbox::{self, Role, Settings},
};
use channel::Channel;
use engine::{Counters, Engine, Job, Progress};
use export::Imported;
use guest::Chunks;
pub use holes::PageTable;
use queue::Turns;

/// The reason why a mover ends before the supervisor.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The supervisor sent an invalid message, or the channel failed.
    #[error("The supervisor: {0}")]
    Link(#[from] ipc::Error),
    /// There is no libcuda.
    #[error("Cannot load libcuda.so.1")]
    NoLibrary,
    /// The device cannot be used.
    #[error("GPU {0} cannot be used: {1} ({name})", name = result_name(*.1).unwrap_or("unknown"))]
    Cuda(i32, CUresult),
    /// The kernel does not let this process read its page table.
    #[error("Cannot open /proc/self/pagemap: {0}")]
    PageTable(#[source] io::Error),
    /// The memory shared with the supervisor cannot be mapped.
    #[error("Cannot share the progress of moves: {0}")]
    Progress(#[source] io::Error),
    /// The host is out of threads.
    #[error("Cannot start a thread: {0}")]
    Thread(#[source] io::Error),
    /// The sandbox cannot be set up.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
}

/// The interval between two checks for pages that the host has taken back, while guest memory is pinned.
const SWEEP: Duration = Duration::from_secs(2);

/// The state that the threads of a mover share.
struct Shared {
    chunks: Chunks,
    to_device: Arc<Turns<Job>>,
    to_guest: Arc<Turns<Job>>,
    counters: Counters,
}

impl Shared {
    fn new(table: PageTable) -> Self {
        Self {
            chunks: Chunks::new(table),
            to_device: Arc::default(),
            to_guest: Arc::default(),
            counters: Counters::default(),
        }
    }

    fn log_counters(&self) {
        tracing::debug!(
            "Moved {} bytes by the copy engine and {} by the kernel",
            self.counters.engine.load(Ordering::Relaxed),
            self.counters.kernel.load(Ordering::Relaxed)
        );
    }
}

/// A context that is passed to other threads.
#[derive(Clone, Copy)]
struct SharedContext(CUcontext);

// SAFETY: a context may be current in any number of threads.
unsafe impl Send for SharedContext {}

impl SharedContext {
    fn enter(self) -> Result<(), CUresult> {
        // SAFETY: the context is the primary one, which is never released.
        unsafe { driver::cuCtxSetCurrent(self.0) }
    }
}

/// Serves the channels that the supervisor passes, on the GPU with this ordinal, until the supervisor ends. The page
/// table must be that of this process.
///
/// # Errors
/// See [`Error`].
pub fn run(link: OwnedFd, ordinal: i32, settings: Settings, table: PageTable) -> Result<(), Error> {
    let failed = |code| Error::Cuda(ordinal, code);
    let (device, context) = open(ordinal)?;
    let progress = match ipc::mover::take_order(link.as_fd())? {
        Some(Order::Report(progress)) => Arc::new(progress.into()),
        None => return Ok(()),
        Some(_) => return Err(ipc::Error::Malformed("no memory for progress").into()),
    };
    let progress = Progress::map(progress).map_err(Error::Progress)?;
    let progress = Arc::new(progress);
    let mut memory = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuDeviceTotalMem_v2(&mut memory, device) }.map_err(failed)?;
    let imported = Arc::new(Imported::new(memory as u64));
    let shared = Arc::new(Shared::new(table));
    let engines = [
        ("to-device", &shared.to_device),
        ("to-guest", &shared.to_guest),
    ];
    for (direction, (name, turns)) in engines.into_iter().enumerate() {
        let engine = Engine::new(Arc::clone(turns), direction, &progress).map_err(failed)?;
        let shared = Arc::clone(&shared);
        start(name, context, move || {
            match catch_unwind(AssertUnwindSafe(|| engine.run(&shared.counters))) {
                Ok(lost) => tracing::error!("GPU {ordinal}: {lost}"),
                Err(_) => tracing::error!("Bug: thread {name} panicked"),
            }
            // No request is answered. The device processes handle the end of the mover.
            std::process::exit(1);
        })?;
    }
    let sweeping = Arc::clone(&shared);
    start("sweeper", context, move || {
        loop {
            sweeping.chunks.wait_for_some();
            std::thread::sleep(SWEEP);
            sweeping.chunks.sweep();
        }
    })?;
    // From here on, messages may depend on guests.
    sandbox::tighten(Role::Mover, settings)?;
    let mut number = 0;
    while let Some(order) = ipc::mover::take_order(link.as_fd())? {
        let Tenant { vm, weight } = match &order {
            Order::Serve(_, tenant, _) | Order::Weigh(tenant) => *tenant,
            Order::Report(_) => continue,
        };
        for turns in [&shared.to_device, &shared.to_guest] {
            turns.set_weight(vm, weight);
        }
        if let Order::Serve(end, _, holds) = order {
            number += 1;
            let device = (device, Arc::clone(&imported));
            let channel = Channel::new((vm, number), end, Arc::clone(&shared), device);
            start("channel", context, move || {
                channel.serve();
                // None of the channel's moves is in flight any more.
                drop(holds);
            })?;
        }
    }
    shared.log_counters();
    Ok(())
}

fn open(ordinal: i32) -> Result<(CUdevice, SharedContext), Error> {
    if !driver::is_present() {
        return Err(Error::NoLibrary);
    }
    let (mut device, mut context) = (0, std::ptr::null_mut());
    // SAFETY: the pointers are to values that live across the calls.
    let opened = unsafe {
        driver::cuInit(0)
            .and_then(|()| driver::cuDeviceGet(&mut device, ordinal))
            .and_then(|()| with_slack(|| driver::cuDevicePrimaryCtxRetain(&mut context, device)))
    };
    let context = SharedContext(context);
    opened
        .and_then(|()| context.enter())
        .map_err(|code| Error::Cuda(ordinal, code))?;
    Ok((device, context))
}

/// Runs `act` on a thread of its own, with the context current.
fn start(
    name: &str,
    context: SharedContext,
    act: impl FnOnce() + Send + 'static,
) -> Result<(), Error> {
    let run = move || match context.enter() {
        Ok(()) => act(),
        Err(code) => tracing::error!("A thread cannot enter the context: {code}"),
    };
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map(drop).map_err(Error::Thread)
}
