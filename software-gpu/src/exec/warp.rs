// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Warps: groups of lanes with a program counter each, and the loop that runs them.

use super::env::Env;
use super::lanes::{each, pred, reg};
use super::program::{BarrierKind, Call, Inst, NONE, Op, Program, Stop};
use super::stacks::{Stacks, copy_locals};
use super::{FaultKind, block::Barriers};

/// Whether a group can run, and the reason if it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Waits for lanes of the warp at its instruction.
    Parked,
    /// Waits at the block barrier of this number.
    Barrier(u8),
}

/// Lanes that are at the same place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) pc: u32,
    pub(super) mask: u32,
    /// Call stack: a frame's number in [`Stacks`], zero for none.
    pub(super) stack: u32,
    pub(super) state: State,
}

/// One warp's control state.
#[derive(Debug, Default)]
pub(super) struct Warp {
    pub(super) groups: Vec<Group>,
    /// Lanes that have not exited.
    pub(super) live: u32,
    stacks: Stacks,
    /// The group, in order, that gets the next slice: more than zero after one has used up a slice while others waited.
    turn: usize,
}

/// The reason that a warp stopped running.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The slice is used up.
    Slice,
    /// Nothing can run until a barrier opens, or all lanes have exited.
    Blocked,
}

impl Warp {
    pub(super) fn reset(&mut self, lanes: u32) {
        self.groups.clear();
        self.groups.push(Group {
            pc: 0,
            mask: lanes,
            stack: 0,
            state: State::Ready,
        });
        self.live = lanes;
        self.stacks.clear();
        self.turn = 0;
    }

    pub(super) fn runnable(&self) -> bool {
        self.groups
            .iter()
            .any(|g| !matches!(g.state, State::Barrier(_)))
    }

    fn order(&self, g: &Group) -> (u32, u32) {
        (u32::MAX - self.stacks.depth(g.stack), g.pc)
    }

    /// Joins groups at the same place; barriers excepted.
    fn merge(&mut self) {
        let mut i = 0;
        while i < self.groups.len() {
            let mut k = i + 1;
            while k < self.groups.len() {
                let (a, b) = (self.groups[i], self.groups[k]);
                let free = |s| !matches!(s, State::Barrier(_));
                if a.pc == b.pc && a.stack == b.stack && free(a.state) && free(b.state) {
                    self.groups[i].mask |= b.mask;
                    self.groups[i].state = State::Ready;
                    self.groups.swap_remove(k);
                } else {
                    k += 1;
                }
            }
            i += 1;
        }
    }

    /// Takes the group to run next out of the list, with the program counter at which to look again and whether it must
    /// not park.
    fn pick(&mut self) -> Option<(Group, u32, bool)> {
        if self.groups.len() > 1 {
            self.merge();
        }
        let mut ready: Vec<usize> = Vec::new();
        let chosen;
        let mut forced = false;
        if self.groups.len() == 1 {
            match self.groups[0].state {
                State::Barrier(_) => return None,
                s => forced = s == State::Parked,
            }
            chosen = 0;
        } else {
            ready.extend((0..self.groups.len()).filter(|&i| self.groups[i].state == State::Ready));
            if ready.is_empty() {
                forced = true;
                ready.extend(
                    (0..self.groups.len()).filter(|&i| self.groups[i].state == State::Parked),
                );
            }
            if ready.is_empty() {
                return None;
            }
            ready.sort_by_key(|&i| self.order(&self.groups[i]));
            chosen = ready[self.turn % ready.len()];
        }
        let g = self.groups.swap_remove(chosen);
        let stop = self
            .groups
            .iter()
            .filter(|o| o.stack == g.stack && o.pc > g.pc && !matches!(o.state, State::Barrier(_)))
            .map(|o| o.pc)
            .min()
            .unwrap_or(u32::MAX);
        Some((g, stop, forced))
    }

    /// Runs until the warp blocks or `fuel` backward branches are spent.
    pub(super) fn run(
        &mut self,
        index: usize,
        program: &Program,
        env: &mut Env<'_, '_>,
        barriers: &mut Barriers,
        mut fuel: u32,
    ) -> Result<Pause, (Stop, u32)> {
        let code = &program.code[..];
        'pick: while let Some((mut g, stop, mut forced)) = self.pick() {
            g.state = State::Ready;
            env.live = self.live;
            loop {
                // The end of the code is an exit, so that every counter is in range.
                let i = &code[g.pc as usize];
                let mut mask = g.mask;
                if i.guard != NONE {
                    // SAFETY: decoded guards are predicates of this file.
                    let p = unsafe { *pred(env.regs, i.guard) };
                    mask &= if i.negate { !p } else { p };
                }
                match &i.op {
                    Op::Alu(f) => {
                        // SAFETY: decoded operands are registers of this file.
                        unsafe { f(env.regs, i, mask) };
                    }
                    Op::Env(f) => {
                        // SAFETY: as above.
                        unsafe { f(env, i, mask) }.map_err(|s| (s, i.line))?;
                    }
                    Op::Branch(target) => {
                        if mask != 0 {
                            let back = *target <= g.pc;
                            if mask == g.mask {
                                g.pc = *target;
                            } else {
                                self.groups.push(Group {
                                    mask,
                                    pc: *target,
                                    ..g
                                });
                                g.mask &= !mask;
                                g.pc += 1;
                            }
                            if back {
                                if fuel == 0 {
                                    self.groups.push(g);
                                    self.turn = if self.groups.len() > 1 {
                                        self.turn + 1
                                    } else {
                                        0
                                    };
                                    return Ok(Pause::Slice);
                                }
                                fuel -= 1;
                            }
                            if !self.groups.is_empty() {
                                self.groups.push(g);
                                continue 'pick;
                            }
                            continue;
                        }
                    }
                    Op::Collective(f) => {
                        // SAFETY: decoded operands are registers of this file.
                        unsafe {
                            if mask != 0 {
                                let first = mask.trailing_zeros() as usize;
                                let members = (*reg::<u32>(env.regs, i.e))[first] & self.live;
                                if members & !mask != 0 && !forced && !self.groups.is_empty() {
                                    g.state = State::Parked;
                                    self.groups.push(g);
                                    continue 'pick;
                                }
                            }
                            f(env, i, mask).map_err(|s| (s, i.line))?;
                        }
                    }
                    Op::WarpSync => {
                        if mask != 0 {
                            let first = mask.trailing_zeros() as usize;
                            // SAFETY: as above.
                            let members =
                                unsafe { (*reg::<u32>(env.regs, i.a))[first] } & self.live;
                            if members & !mask != 0 && !forced && !self.groups.is_empty() {
                                g.state = State::Parked;
                                self.groups.push(g);
                                continue 'pick;
                            }
                        }
                    }
                    Op::Nop => {}
                    Op::Exit => {
                        if mask != 0 {
                            self.live &= !mask;
                            env.live = self.live;
                            barriers.exited(index, self.live);
                            self.stacks.exit(g.stack, mask);
                            g.mask &= !mask;
                            if g.mask == 0 {
                                self.turn = 0;
                                continue 'pick;
                            }
                        }
                    }
                    Op::Return => {
                        if mask != 0 {
                            if g.stack == 0 {
                                self.live &= !mask;
                                env.live = self.live;
                                barriers.exited(index, self.live);
                            } else {
                                let (call, stack) = self.stacks.leave(program, env, g.stack, mask);
                                self.groups.push(Group {
                                    pc: call + 1,
                                    mask,
                                    stack,
                                    state: State::Ready,
                                });
                            }
                            g.mask &= !mask;
                            if g.mask != 0 {
                                g.pc += 1;
                                self.groups.push(g);
                            }
                            continue 'pick;
                        }
                    }
                    Op::Call(call) => {
                        if mask != 0 {
                            self.call(program, env, i, call, g, mask)
                                .map_err(|s| (s, i.line))?;
                            g.mask &= !mask;
                            if g.mask != 0 {
                                g.pc += 1;
                                self.groups.push(g);
                            }
                            continue 'pick;
                        }
                    }
                    Op::BranchIndex(targets) => {
                        if mask != 0 {
                            let mut left = mask;
                            while left != 0 {
                                let first = left.trailing_zeros() as usize;
                                // SAFETY: the index is a 32-bit register of this file.
                                let index = unsafe { &*reg::<u32>(env.regs, i.a) };
                                let mut same = 0;
                                each(left, |l| same |= u32::from(index[l] == index[first]) << l);
                                let Some(&pc) = targets.get(index[first] as usize) else {
                                    let kind = FaultKind::IllegalInstruction(
                                        "brx.idx past its list".into(),
                                    );
                                    return Err((Stop { kind, lane: first }, i.line));
                                };
                                if pc <= g.pc {
                                    fuel = fuel.saturating_sub(1);
                                }
                                self.groups.push(Group {
                                    pc,
                                    mask: same,
                                    ..g
                                });
                                left &= !same;
                            }
                            g.mask &= !mask;
                            if g.mask != 0 {
                                g.pc += 1;
                                self.groups.push(g);
                            }
                            if fuel == 0 {
                                return Ok(Pause::Slice);
                            }
                            continue 'pick;
                        }
                    }
                    Op::Barrier(b) => {
                        if mask != 0 {
                            // Lanes whose guard is off continue; a barrier in divergent code counts threads.
                            if mask != g.mask {
                                self.groups.push(Group {
                                    pc: g.pc + 1,
                                    mask: g.mask & !mask,
                                    ..g
                                });
                                g.mask = mask;
                            }
                            let number = barriers
                                .arrive(index, env, i, b, mask)
                                .map_err(|s| (s, i.line))?;
                            if b.kind != BarrierKind::Arrive {
                                if let Some(n) = number {
                                    g.state = State::Barrier(n);
                                } else {
                                    g.pc += 1;
                                }
                                self.groups.push(g);
                                continue 'pick;
                            }
                        }
                    }
                    Op::Trap | Op::Assert | Op::Unsupported(_) => {
                        if mask != 0 {
                            let lane = mask.trailing_zeros() as usize;
                            return Err((
                                Stop {
                                    kind: special_fault(env, i, lane),
                                    lane,
                                },
                                i.line,
                            ));
                        }
                    }
                    Op::Yield => {
                        if mask != 0 {
                            g.pc += 1;
                            self.groups.push(g);
                            self.turn = if self.groups.len() > 1 {
                                self.turn + 1
                            } else {
                                0
                            };
                            return Ok(Pause::Slice);
                        }
                    }
                }
                g.pc += 1;
                forced = false;
                if g.pc >= stop {
                    self.groups.push(g);
                    continue 'pick;
                }
            }
        }
        Ok(Pause::Blocked)
    }

    fn call(
        &mut self,
        program: &Program,
        env: &mut Env<'_, '_>,
        i: &Inst,
        call: &Call,
        g: Group,
        mask: u32,
    ) -> Result<(), Stop> {
        let mut left = mask;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let (callee, same) = match call.target {
                Some(c) => (c, left),
                None => {
                    // SAFETY: the address is a 64-bit register of this file.
                    let a = unsafe { &*reg::<u64>(env.regs, i.a) };
                    let mut same = 0;
                    each(left, |l| same |= u32::from(a[l] == a[first]) << l);
                    let found = program.callees.iter().position(|c| c.address == a[first]);
                    let Some(c) = found else {
                        return Err(Stop {
                            kind: FaultKind::IllegalInstruction(
                                "call to an unknown function".into(),
                            ),
                            lane: first,
                        });
                    };
                    (c as u32, same)
                }
            };
            let c = &program.callees[callee as usize];
            let at = (g.stack, g.pc, callee);
            let stack = self.stacks.enter(program, env, at, same);
            let stack = stack.map_err(|kind| Stop { kind, lane: first })?;
            copy_locals(env, &call.arguments, &c.params, same);
            self.groups.push(Group {
                pc: c.entry,
                mask: same,
                stack,
                state: State::Ready,
            });
            left &= !same;
        }
        Ok(())
    }
}

#[cold]
fn special_fault(env: &mut Env<'_, '_>, i: &Inst, lane: usize) -> FaultKind {
    match &i.op {
        Op::Assert => super::system::assertion(env, i, lane),
        Op::Unsupported(why) => FaultKind::IllegalInstruction(why.to_string()),
        _ => FaultKind::Trap,
    }
}
