// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Blocks: warps, barriers and shared memory.

use super::env::{Cache, Env};
use super::lanes::{each, pred, reg, set_pred};
use super::program::{Barrier, BarrierKind, Inst, LANES, Program, Special, Stop};
use super::run::Shape;
use super::warp::{Pause, State, Warp};
use super::{Fault, FaultKind};

/// Barriers 0 to 15, and the cluster's.
const BARRIERS: usize = 17;

#[derive(Debug, Clone)]
struct One {
    /// Threads expected; zero for all that are left.
    expected: u32,
    arrived: Vec<u32>,
    /// Threads whose predicate held.
    holds: u32,
    voters: u32,
    /// Times that the barrier has opened.
    phase: u64,
    busy: bool,
}

/// The barriers of a block.
#[derive(Debug)]
pub(super) struct Barriers {
    all: Vec<One>,
    live: Vec<u32>,
    /// Barriers that have opened and whose waiters are still to be released.
    opened: Vec<(u8, u32, u32)>,
}

impl Barriers {
    fn new(warps: usize) -> Self {
        let one = One {
            expected: 0,
            arrived: vec![0; warps],
            holds: 0,
            voters: 0,
            phase: 0,
            busy: false,
        };
        Self {
            all: vec![one; BARRIERS],
            live: vec![0; warps],
            opened: Vec::new(),
        }
    }

    /// Lanes `mask` of a warp arrive. Returns the barrier to wait at, or `None` if no wait is needed.
    pub(super) fn arrive(
        &mut self,
        warp: usize,
        env: &mut Env<'_, '_>,
        i: &Inst,
        b: &Barrier,
        mask: u32,
    ) -> Result<Option<u8>, Stop> {
        let lane = mask.trailing_zeros() as usize;
        // SAFETY: decoded operands are registers of this file.
        let (number, expected) = unsafe {
            (
                (*reg::<u32>(env.regs, i.a))[lane],
                (*reg::<u32>(env.regs, i.b))[lane],
            )
        };
        let Some(one) = self.all.get_mut(number as usize) else {
            return Err(Stop {
                kind: FaultKind::IllegalInstruction(format!("barrier {number}")),
                lane,
            });
        };
        if b.kind == BarrierKind::Wait {
            // The warp arrived before; it waits unless the barrier has opened since.
            return Ok((one.arrived[warp] & mask != 0).then_some(number as u8));
        }
        one.expected = expected;
        one.arrived[warp] |= mask;
        one.busy = true;
        if !matches!(b.kind, BarrierKind::Sync | BarrierKind::Arrive) {
            // SAFETY: as above.
            let p = unsafe { *pred(env.regs, i.c) } ^ if b.negate { !0 } else { 0 };
            one.holds += (p & mask).count_ones();
            one.voters += mask.count_ones();
        }
        if one.arrived[warp] & self.live[warp] == self.live[warp] || expected != 0 {
            self.check(number as usize);
        }
        Ok(Some(number as u8))
    }

    fn check(&mut self, number: usize) {
        let one = &mut self.all[number];
        let mut count = 0;
        let mut all = true;
        for (&a, &l) in one.arrived.iter().zip(&self.live) {
            // A warp of which every thread that is left has arrived counts whole, as on a GPU.
            count += if a != 0 && l & !a == 0 {
                LANES as u32
            } else {
                a.count_ones()
            };
            all &= l & !a == 0;
        }
        let open = if one.expected == 0 {
            all
        } else {
            count >= one.expected
        };
        if open {
            self.opened.push((number as u8, one.holds, one.voters));
            one.arrived.fill(0);
            one.holds = 0;
            one.voters = 0;
            one.phase += 1;
            one.busy = false;
        }
    }

    /// A warp has lost lanes: barriers may open that waited for them.
    pub(super) fn exited(&mut self, warp: usize, live: u32) {
        self.live[warp] = live;
        for n in 0..BARRIERS {
            if self.all[n].busy {
                self.check(n);
            }
        }
    }
}

/// Memory of a fixed size, aligned to a cache line.
pub(super) struct Bytes {
    lines: Vec<[u64; 8]>,
}

impl Bytes {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            lines: vec![[0; 8]; bytes.div_ceil(64) + 2],
        }
    }

    pub(super) fn pointer(&mut self) -> *mut u8 {
        let p = self.lines.as_mut_ptr().cast::<u8>();
        // SAFETY: two lines more than asked for were allocated.
        unsafe { p.add(p.align_offset(64)) }
    }
}

/// A resident block.
pub(super) struct Block {
    pub(super) id: u64,
    pub(super) ctaid: [u32; 3],
    warps: Vec<Warp>,
    barriers: Barriers,
    files: Vec<Bytes>,
    locals: Vec<Bytes>,
    shared: Bytes,
    shared_bytes: usize,
    /// The last errors of each warp's lanes.
    errors: Vec<[u32; LANES]>,
    next: usize,
}

/// The end of a turn of a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Done,
    More,
}

impl Block {
    pub(super) fn new(program: &Program, shape: &Shape) -> Self {
        let threads = shape.threads();
        let n = threads.div_ceil(LANES as u32) as usize;
        let shared_bytes = program.shared + shape.launch.dynamic_shared_bytes;
        let mut block = Self {
            id: 0,
            ctaid: [0; 3],
            warps: (0..n).map(|_| Warp::default()).collect(),
            barriers: Barriers::new(n),
            files: (0..n).map(|_| Bytes::new(program.frame)).collect(),
            locals: (0..n)
                .map(|_| Bytes::new((program.local + program.stack) * LANES))
                .collect(),
            shared: Bytes::new(shared_bytes),
            shared_bytes,
            errors: vec![[0; LANES]; n],
            next: 0,
        };
        for w in 0..n {
            let regs = block.files[w].pointer();
            for &(at, size, v) in &program.constants {
                fill(regs, at, size, |_| v);
            }
            block.specials(program, shape, w, false);
        }
        block
    }

    /// Special registers of warp `w`: those that depend on the block's place, or all others.
    fn specials(&mut self, program: &Program, shape: &Shape, w: usize, placed: bool) {
        let regs = self.files[w].pointer();
        for &(at, size, s) in &program.specials {
            let moves = matches!(
                s,
                Special::Ctaid(_)
                    | Special::SmId
                    | Special::ClusterId(_)
                    | Special::ClusterCtaid(_)
                    | Special::ClusterCtaRank
            );
            if moves == placed {
                fill(regs, at, size, |lane| {
                    shape.special(program, s, self.ctaid, w as u32, lane as u32)
                });
            }
        }
    }

    /// Makes this the block of linear index `id`.
    pub(super) fn start(&mut self, program: &Program, shape: &Shape, id: u64) {
        self.id = id;
        self.ctaid = shape.ctaid(id);
        let threads = shape.threads();
        for w in 0..self.warps.len() {
            let left = threads - (w * LANES) as u32;
            let lanes = if left >= 32 { !0 } else { (1 << left) - 1 };
            self.warps[w].reset(lanes);
            self.barriers.live[w] = lanes;
            self.specials(program, shape, w, true);
        }
        self.errors.fill([0; LANES]);
        for one in &mut self.barriers.all {
            one.arrived.fill(0);
            one.busy = false;
            one.holds = 0;
            one.voters = 0;
        }
        self.barriers.opened.clear();
        self.next = 0;
    }

    /// Runs the warps in turn, each for a slice, for a bounded number of rounds.
    pub(super) fn turn<'a>(
        &mut self,
        program: &'a Program,
        shape: &'a Shape<'a>,
        cache: &mut Cache<'a>,
        rounds: u32,
    ) -> Result<Turn, Box<Fault>> {
        for _ in 0..rounds {
            let mut progress = false;
            let mut alive = false;
            for w in 0..self.warps.len() {
                if self.warps[w].live == 0 {
                    continue;
                }
                alive = true;
                if !self.warps[w].runnable() {
                    continue;
                }
                progress = true;
                let mut env = Env {
                    regs: self.files[w].pointer(),
                    cache,
                    shared: self.shared.pointer(),
                    shared_bytes: self.shared_bytes as u64,
                    local: self.locals[w].pointer(),
                    local_bytes: (program.local + program.stack) as u64,
                    params: shape.params,
                    grid: shape.workspace,
                    live: 0,
                    epoch: shape.epoch,
                    output: shape.output,
                    runtime: shape.runtime,
                    errors: &mut self.errors[w],
                };
                let r = self.warps[w].run(w, program, &mut env, &mut self.barriers, 2000);
                match r {
                    Ok(Pause::Slice | Pause::Blocked) => {}
                    Err((stop, line)) => {
                        let linear = (w * LANES + stop.lane) as u32;
                        return Err(Box::new(Fault {
                            kind: stop.kind,
                            kernel: program.name.clone(),
                            line,
                            block: self.ctaid,
                            thread: shape.tid(linear),
                        }));
                    }
                }
                self.release(program);
            }
            if !alive {
                return Ok(Turn::Done);
            }
            if !progress {
                let w = self.warps.iter().position(|w| w.live != 0).unwrap_or(0);
                let g = self.warps[w].groups.first();
                let lane = g.map_or(0, |g| g.mask.trailing_zeros());
                return Err(Box::new(Fault {
                    kind: FaultKind::Deadlock,
                    kernel: program.name.clone(),
                    line: g.map_or(0, |g| program.code[g.pc as usize].line),
                    block: self.ctaid,
                    thread: shape.tid((w * LANES) as u32 + lane),
                }));
            }
            if shape.stopped() {
                return Ok(Turn::More);
            }
        }
        Ok(Turn::More)
    }

    /// Lets the waiters of opened barriers continue.
    fn release(&mut self, program: &Program) {
        while let Some((number, holds, voters)) = self.barriers.opened.pop() {
            for w in 0..self.warps.len() {
                let regs = self.files[w].pointer();
                for g in &mut self.warps[w].groups {
                    if g.state != State::Barrier(number) {
                        continue;
                    }
                    let i = &program.code[g.pc as usize];
                    if let super::program::Op::Barrier(b) = &i.op {
                        // SAFETY: decoded operands are registers of this file.
                        unsafe {
                            match b.kind {
                                BarrierKind::Popc => {
                                    each(g.mask, |l| (*reg::<u32>(regs, i.d))[l] = holds);
                                }
                                BarrierKind::And => {
                                    set_pred(
                                        regs,
                                        i.d,
                                        g.mask,
                                        if holds == voters { !0 } else { 0 },
                                    );
                                }
                                BarrierKind::Or => {
                                    set_pred(regs, i.d, g.mask, if holds != 0 { !0 } else { 0 });
                                }
                                _ => {}
                            }
                        }
                    }
                    g.pc += 1;
                    g.state = State::Ready;
                }
            }
        }
    }
}

/// Writes a value to every lane of a register, or to a predicate's word.
fn fill(regs: *mut u8, at: u32, size: u8, f: impl Fn(usize) -> u64) {
    // SAFETY: the decoder placed constants and special registers inside the file.
    unsafe {
        match size {
            0 => *pred(regs, at) = if f(0) != 0 { !0 } else { 0 },
            1 => each(!0, |l| (*reg::<u8>(regs, at))[l] = f(l) as u8),
            2 => each(!0, |l| (*reg::<u16>(regs, at))[l] = f(l) as u16),
            4 => each(!0, |l| (*reg::<u32>(regs, at))[l] = f(l) as u32),
            _ => each(!0, |l| (*reg::<u64>(regs, at))[l] = f(l)),
        }
    }
}
