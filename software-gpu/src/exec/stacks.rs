// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Call stacks of a warp's lanes.
//!
//! Every function has its registers and its variables at the same place for all its calls. So a recursive call saves
//! the lanes' values, to be restored at the return, and moves the function's `.local` variables, because their
//! addresses may be in use.

use super::FaultKind;
use super::env::Env;
use super::lanes::{each, reg};
use super::program::{Again, Call, LANES, Op, Program};

/// The most that calls of functions that run already keep of a warp: as much for each lane as a GPU's thread has local
/// memory.
const MOST_KEPT: usize = LANES * (512 << 10);
/// The deepest call of a function that runs already: frames are looked for one by one.
const DEEPEST: u32 = 8 << 10;

/// A call that has not returned: the innermost one of a stack, which is linked to its parent.
#[derive(Debug, Default)]
struct Frame {
    /// The lanes in there, or in calls from there. Without any the frame is free.
    lanes: u32,
    /// Instruction of the call.
    call: u32,
    /// Index of the callee.
    callee: u32,
    parent: u32,
    depth: u32,
    /// The number of used bytes of the stack for variables, this call's included.
    used: u32,
    /// The lanes' values in the registers and parameters of a function that ran already, one lane's after the other;
    /// empty if it did not.
    kept: Vec<u8>,
}

/// The stacks, as a tree of frames. The frame with number 0 is the kernel's own.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    frames: Vec<Frame>,
    /// Bytes in all that is kept.
    kept: usize,
}

impl Stacks {
    /// Only the kernel itself is running.
    pub(super) fn clear(&mut self) {
        self.frames.clear();
        self.frames.push(Frame {
            lanes: !0,
            ..Frame::default()
        });
        self.kept = 0;
    }

    /// The number of calls that have led to a frame.
    pub(super) fn depth(&self, frame: u32) -> u32 {
        self.frames[frame as usize].depth
    }

    /// The frame of a call: lanes that have reached the same call in the same way share one.
    fn push(&mut self, (parent, call, callee): (u32, u32, u32), lanes: u32) -> u32 {
        let is_same =
            |f: &Frame| f.lanes != 0 && (f.parent, f.call, f.callee) == (parent, call, callee);
        let is_free = |f: &Frame| f.lanes == 0;
        let mut later = self.frames.iter().skip(1);
        if let Some(same) = later.position(is_same) {
            self.frames[same + 1].lanes |= lanes;
            return same as u32 + 1;
        }
        let of = &self.frames[parent as usize];
        let frame = Frame {
            lanes,
            call,
            callee,
            parent,
            depth: of.depth + 1,
            used: of.used,
            kept: Vec::new(),
        };
        let free = self.frames.iter().position(is_free);
        let number = free.unwrap_or(self.frames.len());
        match self.frames.get_mut(number) {
            Some(place) => *place = frame,
            None => self.frames.push(frame),
        }
        number as u32
    }

    /// Lanes call a function: the parent's frame, the instruction, and the callee's index. Gives the new frame.
    ///
    /// # Errors
    /// The stack is full.
    pub(super) fn enter(
        &mut self,
        program: &Program,
        env: &mut Env<'_, '_>,
        at: (u32, u32, u32),
        lanes: u32,
    ) -> Result<u32, FaultKind> {
        let (parent, _, callee) = at;
        let number = self.push(at, lanes);
        let Some(again) = &program.callees[callee as usize].again else {
            return Ok(number);
        };
        let mut shift = 0;
        if self.runs(parent, callee) {
            if self.depth(number) > DEEPEST {
                return Err(FaultKind::StackOverflow);
            }
            let (start, bytes) = again.variables;
            let free = program.local + self.frames[parent as usize].used as usize;
            shift = (free - start as usize).next_multiple_of(again.align as usize);
            let end = start as usize + shift + bytes as usize;
            if bytes > 0 {
                if end > program.local + program.stack {
                    return Err(FaultKind::StackOverflow);
                }
                self.frames[number as usize].used = (end - program.local) as u32;
            }
            self.keep(env, number, again, lanes)?;
        }
        // SAFETY: the decoder placed this register in the file.
        unsafe {
            each(lanes, |l| {
                (*reg::<u64>(env.regs, again.shift))[l] = shift as u64
            })
        };
        Ok(number)
    }

    /// Whether a function runs in a frame or one that has led there.
    fn runs(&self, frame: u32, callee: u32) -> bool {
        let mut number = frame;
        while number != 0 {
            let frame = &self.frames[number as usize];
            if frame.callee == callee {
                return true;
            }
            number = frame.parent;
        }
        false
    }

    /// Saves the lanes' values in the registers and parameters of a function.
    fn keep(
        &mut self,
        env: &mut Env<'_, '_>,
        number: u32,
        again: &Again,
        lanes: u32,
    ) -> Result<(), FaultKind> {
        let bytes = again.bytes();
        let frame = &mut self.frames[number as usize];
        if frame.kept.is_empty() {
            if self.kept + bytes * LANES > MOST_KEPT {
                return Err(FaultKind::StackOverflow);
            }
            self.kept += bytes * LANES;
            frame.kept = vec![0; bytes * LANES];
        }
        let kept = &mut frame.kept;
        each(lanes, |lane| {
            let mut at = lane * bytes;
            pieces(env, again, lane, |piece| {
                let (to, of) = (&mut kept[at..], piece.len());
                match piece {
                    // SAFETY: `pieces` answers for the pointer and the length.
                    Piece::Bytes(from, of) => unsafe {
                        to.as_mut_ptr().copy_from_nonoverlapping(from, of);
                    },
                    // SAFETY: as above.
                    Piece::Bit(from) => to[0] = unsafe { *from >> lane & 1 } as u8,
                }
                at += of;
            });
        });
        Ok(())
    }

    /// Lanes return from a call: they have its results in its place, and the saved values. Returns the instruction of
    /// the call, and the frame in which it is.
    pub(super) fn leave(
        &mut self,
        program: &Program,
        env: &mut Env<'_, '_>,
        number: u32,
        lanes: u32,
    ) -> (u32, u32) {
        let frame = &self.frames[number as usize];
        let (call, parent) = (frame.call, frame.parent);
        let callee = &program.callees[frame.callee as usize];
        if let Op::Call(of) = &program.code[call as usize].op {
            match &callee.again {
                Some(again) if !frame.kept.is_empty() => {
                    restore(env, again, &frame.kept, &callee.returns, of, lanes);
                }
                _ => copy_locals(env, &callee.returns, &of.results, lanes),
            }
        }
        self.release(number, lanes);
        (call, parent)
    }

    /// Lanes end inside a call.
    pub(super) fn exit(&mut self, number: u32, lanes: u32) {
        let mut number = number;
        while number != 0 {
            let parent = self.frames[number as usize].parent;
            self.release(number, lanes);
            number = parent;
        }
    }

    /// Lanes are not in a frame any more.
    fn release(&mut self, number: u32, lanes: u32) {
        let frame = &mut self.frames[number as usize];
        frame.lanes &= !lanes;
        if frame.lanes == 0 {
            self.kept -= frame.kept.len();
            frame.kept = Vec::new();
        }
    }
}

/// A part of a lane's values of a function.
enum Piece {
    /// So many bytes.
    Bytes(*mut u8, usize),
    /// The lane's bit of a predicate.
    Bit(*mut u32),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(_, bytes) => *bytes,
            Self::Bit(_) => 1,
        }
    }
}

/// All that a lane has in the registers and parameters of a function.
fn pieces(env: &Env<'_, '_>, again: &Again, lane: usize, mut f: impl FnMut(Piece)) {
    for &(place, size) in &again.registers {
        let size = usize::from(size);
        // SAFETY: the decoder placed the register's lanes in the file.
        let at = unsafe { env.regs.add(place as usize + lane * size) };
        f(match size {
            0 => Piece::Bit(at.cast()),
            _ => Piece::Bytes(at, size),
        });
    }
    let own = lane * env.local_bytes as usize;
    for &(place, size) in &again.params {
        // SAFETY: the decoder placed the variable in the lane's local memory.
        let at = unsafe { env.local.add(own + place as usize) };
        f(Piece::Bytes(at, size as usize));
    }
}

/// Restores the lanes' saved values, and then the results of the call.
fn restore(
    env: &mut Env<'_, '_>,
    again: &Again,
    kept: &[u8],
    returns: &[(u32, u32)],
    call: &Call,
    lanes: u32,
) {
    let bytes = again.bytes();
    let mut results = Vec::new();
    each(lanes, |lane| {
        let own = lane * env.local_bytes as usize;
        results.clear();
        for &(place, size) in returns {
            // SAFETY: the decoder placed the variable in the lane's local memory.
            let from = unsafe {
                std::slice::from_raw_parts(env.local.add(own + place as usize), size as usize)
            };
            results.extend_from_slice(from);
        }
        let mut at = lane * bytes;
        pieces(env, again, lane, |piece| {
            let (from, of) = (&kept[at..], piece.len());
            match piece {
                // SAFETY: `pieces` answers for the pointer and the length.
                Piece::Bytes(to, of) => unsafe { to.copy_from_nonoverlapping(from.as_ptr(), of) },
                // SAFETY: as above.
                Piece::Bit(to) => unsafe {
                    *to = *to & !(1 << lane) | u32::from(from[0]) << lane;
                },
            }
            at += of;
        });
        let mut at = 0;
        for (&(_, size), &(place, room)) in returns.iter().zip(&call.results) {
            let from = &results[at..][..size.min(room) as usize];
            // SAFETY: as for the returned variables.
            unsafe {
                let to = env.local.add(own + place as usize);
                to.copy_from_nonoverlapping(from.as_ptr(), from.len());
            }
            at += size as usize;
        }
    });
}

/// Copies parameter variables of the lanes `mask` between places in their local memory.
pub(super) fn copy_locals(
    env: &mut Env<'_, '_>,
    from: &[(u32, u32)],
    to: &[(u32, u32)],
    mask: u32,
) {
    for (&(f, n), &(t, m)) in from.iter().zip(to) {
        let n = n.min(m) as usize;
        each(mask, |l| {
            let base = l * env.local_bytes as usize;
            // SAFETY: the decoder placed both variables inside the lane's local memory; they may not overlap.
            unsafe {
                let src = env.local.add(base + f as usize);
                std::ptr::copy(src, env.local.add(base + t as usize), n);
            }
        });
    }
}
