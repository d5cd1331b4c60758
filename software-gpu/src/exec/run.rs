// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Spreads the blocks of a launch over worker threads.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use gpgpu_locks::Mutex;

use super::block::{Block, Turn};
use super::effects::Effects;
use super::env::{Cache, GRID_WINDOW};
use super::memory::Memory;
use super::program::{Program, Special};
use super::runtime::Runtime;
use super::{Fault, FaultKind, Launch};

/// Blocks that one worker keeps resident when the first ones do not end by themselves.
const RESIDENT: usize = 64;

/// A launch in progress.
pub(super) struct Shape<'a> {
    pub(super) launch: &'a Launch,
    pub(super) params: &'a [u8],
    pub(super) workspace: &'a [u64; 8],
    pub(super) epoch: Instant,
    pub(super) output: &'a dyn Effects,
    pub(super) runtime: &'a Runtime<'a>,
    cancel: &'a AtomicBool,
    abort: AtomicBool,
    workers: u32,
    grid_id: u64,
}

impl Shape<'_> {
    pub(super) fn threads(&self) -> u32 {
        self.launch.block.iter().product()
    }

    pub(super) fn stopped(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.abort.load(Ordering::Relaxed)
    }

    pub(super) fn ctaid(&self, id: u64) -> [u32; 3] {
        let [x, y, _] = self.launch.grid.map(u64::from);
        [(id % x) as u32, (id / x % y) as u32, (id / x / y) as u32]
    }

    pub(super) fn tid(&self, linear: u32) -> [u32; 3] {
        let [x, y, _] = self.launch.block;
        [linear % x, linear / x % y, linear / x / y]
    }

    pub(super) fn special(
        &self,
        program: &Program,
        s: Special,
        ctaid: [u32; 3],
        warp: u32,
        lane: u32,
    ) -> u64 {
        let l = self.launch;
        let in_cluster = |k: usize| ctaid[k] % l.cluster[k];
        let v = match s {
            // Lanes past the block's end never run; any value will do.
            Special::Tid(k) => self.tid(warp * 32 + lane)[usize::from(k)],
            Special::Ntid(k) => l.block[usize::from(k)],
            Special::Ctaid(k) => ctaid[usize::from(k)],
            Special::Nctaid(k) => l.grid[usize::from(k)],
            Special::LaneId => lane,
            Special::WarpId => warp,
            Special::NWarpId => self.threads().div_ceil(32),
            Special::SmId => (u64::from(ctaid[0])
                + u64::from(l.grid[0])
                    * (u64::from(ctaid[1]) + u64::from(l.grid[1]) * u64::from(ctaid[2])))
            .wrapping_rem(u64::from(self.workers)) as u32,
            Special::NSmId => self.workers,
            Special::GridId => return self.grid_id,
            Special::LaneMask(k) => match k {
                0 => 1 << lane,
                1 => (1 << lane) - 1,
                2 => ((1u32 << lane) - 1) | 1 << lane,
                3 => !(((1u32 << lane) - 1) | 1 << lane),
                _ => !((1u32 << lane) - 1),
            },
            Special::DynamicShared => l.dynamic_shared_bytes as u32,
            Special::TotalShared | Special::AggrShared => {
                (program.shared + l.dynamic_shared_bytes) as u32
            }
            Special::ClusterId(k) => ctaid[usize::from(k)] / l.cluster[usize::from(k)],
            Special::NClusterId(k) => l.grid[usize::from(k)] / l.cluster[usize::from(k)],
            Special::ClusterCtaid(k) => in_cluster(usize::from(k)),
            Special::ClusterNctaid(k) => l.cluster[usize::from(k)],
            Special::ClusterCtaRank => {
                in_cluster(0) + l.cluster[0] * (in_cluster(1) + l.cluster[1] * in_cluster(2))
            }
            Special::ClusterNctaRank => l.cluster.iter().product(),
            Special::IsExplicitCluster => u32::from(l.cluster != [1; 3]),
            // The workspace's address, for grid-wide synchronisation; zero means that the launch is not cooperative.
            Special::EnvReg(1) if l.cooperative => (GRID_WINDOW >> 32) as u32,
            Special::EnvReg(_) | Special::Zero => 0,
        };
        u64::from(v)
    }
}

fn invalid(program: &Program, why: impl Into<String>) -> Fault {
    Fault {
        kind: FaultKind::InvalidLaunch(why.into()),
        kernel: program.name.clone(),
        line: 0,
        block: [0; 3],
        thread: [0; 3],
    }
}

/// The number of blocks of a launch that the kernel allows, or the reason that it does not.
pub(super) fn check(program: &Program, launch: &Launch) -> Result<u64, &'static str> {
    let blocks = launch
        .grid
        .iter()
        .try_fold(1u64, |n, &g| n.checked_mul(u64::from(g)))
        .filter(|&n| n > 0)
        .ok_or("grid without blocks or too large")?;
    let threads = launch.block.iter().try_fold(1u32, |n, &b| n.checked_mul(b));
    if !threads.is_some_and(|t| t > 0 && t <= program.max_threads) {
        return Err("block size");
    }
    if program.required_block.is_some_and(|b| b != launch.block) {
        return Err("the kernel requires another block shape");
    }
    if launch
        .cluster
        .iter()
        .zip(&launch.grid)
        .any(|(&c, &g)| c == 0 || g % c != 0)
    {
        return Err("cluster shape");
    }
    if program.clustered && launch.cluster != [1; 3] {
        return Err(
            "the kernel synchronises clusters, of which only those of one block are supported",
        );
    }
    Ok(blocks)
}

/// Checks the launch and runs it.
pub(super) fn run(
    program: &Program,
    launch: &Launch,
    params: &[u8],
    memory: &dyn Memory,
    (cancel, output, runtime): (&AtomicBool, &dyn Effects, &Runtime<'_>),
) -> Result<(), Fault> {
    static GRID: AtomicU64 = AtomicU64::new(1);
    let blocks = check(program, launch).map_err(|why| invalid(program, why))?;
    if params.len() < program.param_bytes {
        return Err(invalid(program, "parameters missing"));
    }
    // Parameters are read in place, so they need the alignment that the kernel counts on.
    let mut aligned = vec![0u128; params.len().div_ceil(16)];
    // SAFETY: the copy has at least as many bytes.
    let params = unsafe {
        let p = aligned.as_mut_ptr().cast::<u8>();
        std::ptr::copy_nonoverlapping(params.as_ptr(), p, params.len());
        std::slice::from_raw_parts(p, params.len())
    };
    let workspace = Box::new([0u64; 8]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let workers = cores.min(blocks) as u32;
    let shape = Shape {
        launch,
        params,
        workspace: &workspace,
        epoch: Instant::now(),
        output,
        runtime,
        cancel,
        abort: AtomicBool::new(false),
        workers,
        grid_id: GRID.fetch_add(1, Ordering::Relaxed),
    };
    let next = AtomicU64::new(0);
    let fault: Mutex<Option<Box<Fault>>> = Mutex::new(None);
    let work = || {
        if let Err(f) = worker(program, &shape, memory, &next, blocks) {
            shape.abort.store(true, Ordering::Relaxed);
            let mut slot = fault.lock();
            slot.get_or_insert(f);
        }
    };
    if workers == 1 {
        work();
    } else {
        std::thread::scope(|s| {
            for _ in 1..workers {
                s.spawn(work);
            }
            work();
        });
    }
    if let Some(f) = fault.into_inner() {
        return Err(*f);
    }
    if cancel.load(Ordering::Relaxed) {
        let mut f = invalid(program, "");
        f.kind = FaultKind::Cancelled;
        return Err(f);
    }
    Ok(())
}

fn worker<'a>(
    program: &'a Program,
    shape: &'a Shape<'a>,
    memory: &'a dyn Memory,
    next: &AtomicU64,
    blocks: u64,
) -> Result<(), Box<Fault>> {
    let mut cache = Cache::new(memory);
    let mut resident: Vec<Block> = Vec::new();
    let mut free: Vec<Block> = Vec::new();
    let claim = || {
        let n = next.fetch_add(1, Ordering::Relaxed);
        (n < blocks).then_some(n)
    };
    let mut more = true;
    let mut patience = 0u32;
    loop {
        let room = resident.is_empty() || patience >= 16;
        if more && room {
            patience = 0;
            loop {
                let Some(id) = claim() else {
                    more = false;
                    break;
                };
                let mut b = free.pop().unwrap_or_else(|| Block::new(program, shape));
                b.start(program, shape, id);
                resident.push(b);
                // All blocks of a cooperative launch must be somewhere; they are dealt out one by one.
                if !shape.launch.cooperative
                    || resident.len() as u64 >= blocks.div_ceil(u64::from(shape.workers))
                {
                    break;
                }
            }
        }
        if resident.is_empty() {
            return Ok(());
        }
        cache.refresh();
        let mut i = 0;
        while i < resident.len() {
            if shape.stopped() {
                return Ok(());
            }
            match resident[i].turn(program, shape, &mut cache, 16)? {
                Turn::Done => free.push(resident.swap_remove(i)),
                Turn::More => i += 1,
            }
        }
        if !resident.is_empty() {
            // The awaited threads may need this processor.
            std::thread::yield_now();
            if !shape.launch.cooperative && resident.len() < RESIDENT {
                patience += 1;
            }
        }
    }
}
