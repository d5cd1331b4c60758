// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A virtqueue: takes chains off the ring and returns them.
//!
//! The device writes to a ring or to a chain's buffers only while the ring runs, and under the ring's lock. A VMM's
//! request to stop or disable a ring also takes that lock, so this process writes nothing after the answer to that
//! request. A mover's copies end before the answer ([`super::vhost_user`]). A chain that completes while the ring does
//! not run waits until the ring runs again, or is forgotten after a reset by the driver.

use std::{collections::VecDeque, sync::Arc};

use gpgpu_protocol::layout::{CommandAnswer, ControlAnswer, EVENT_QUEUE};
use vhost_user_backend::{VringState, VringStateMutGuard, VringT};
use virtio_queue::QueueT;
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use zerocopy::IntoBytes;

use super::{chain::Chain, ring::Ring, staging::Block};

/// The number of chains that are taken off a queue before others can get the device's lock.
const BATCH: usize = 1024;

/// The memory of a VM.
pub type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

/// The content of a chain's writable part.
#[derive(Debug)]
pub enum Answer {
    /// Nothing, because there is no room for an answer.
    None,
    /// A structure.
    Bytes(Vec<u8>),
    /// A command's answer.
    Command {
        /// One of [`gpgpu_protocol::layout::status`].
        status: u32,
        /// The answer, at most `wanted` bytes.
        answer: Vec<u8>,
        /// The size of the answer that the driver asked for, in bytes. Data follows after that many bytes.
        wanted: u32,
        /// Data for the guest.
        out: Option<Out>,
    },
}

/// The place of a command's data for the guest.
#[derive(Debug)]
pub enum Out {
    /// In this many bytes of a block of the staging area.
    Staged(Block, u64),
    /// Already at its destination: the number of bytes.
    Placed(u64),
}

impl Answer {
    /// The answer to a control request.
    pub fn control(status: u32, value: u32) -> Self {
        let answer = ControlAnswer {
            status: status.into(),
            reserved: value.into(),
        };
        Self::Bytes(answer.as_bytes().to_vec())
    }

    /// The answer to a command that was not executed.
    pub fn refusal(status: u32) -> Self {
        Self::Command {
            status,
            answer: Vec::new(),
            wanted: 0,
            out: None,
        }
    }

    /// Writes the answer into the chain, and returns the number of bytes.
    fn write(&self, chain: &Chain) -> u32 {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => chain.write(0, bytes).map_or(0, |()| bytes.len() as u32),
            Self::Command {
                status,
                answer,
                wanted,
                out,
            } => {
                Self::write_command(chain, *status, answer, *wanted, out.as_ref()).unwrap_or_else(
                    // Some of the answer's buffers are outside the guest's memory; those of its header may be valid.
                    |error| Self::write_command(chain, error.status(), &[], 0, None).unwrap_or(0),
                )
            }
        }
    }

    fn write_command(
        chain: &Chain,
        status: u32,
        answer: &[u8],
        wanted: u32,
        out: Option<&Out>,
    ) -> Result<u32, super::chain::Error> {
        const HEAD: u64 = size_of::<CommandAnswer>() as u64;
        let head = CommandAnswer {
            status: status.into(),
            answer_bytes: (answer.len() as u32).into(),
        };
        let mut used = HEAD + answer.len() as u64;
        chain.write(HEAD, answer)?;
        let bytes = match out {
            Some(Out::Staged(_, bytes) | Out::Placed(bytes)) => *bytes,
            None => 0,
        };
        if bytes > 0 {
            // The used length includes the room that the answer did not fill.
            chain.write(used, &vec![0; wanted as usize - answer.len()])?;
            let at = HEAD + u64::from(wanted);
            used = at + bytes;
            if let Some(Out::Staged(block, bytes)) = out
                && let Some(data) = block.slice(*bytes)
            {
                chain.write_volatile(at, data)?;
            }
        }
        chain.write(0, head.as_bytes())?;
        Ok(used as u32)
    }
}

/// The change of a queue's ring since the last check.
#[derive(Debug, PartialEq, Eq)]
pub enum Restart {
    /// None: it runs, or continues where it was stopped.
    None,
    /// It was set up again: the driver has reset the device.
    Reset,
}

/// The state of a ring as the device knows it. Chains are taken and returned only in state `Started`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The VMM has not started it yet.
    #[default]
    New,
    /// It was started.
    Started,
    /// It was stopped at these indices of the available and the used ring.
    Stopped(u16, u16),
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Queue {
    index: usize,
    ring: Option<Ring>,
    standing: Standing,
    /// The number of resets. A chain of an earlier generation no longer belongs to the device.
    generation: u64,
    outstanding: usize,
    parked: VecDeque<(Chain, Answer)>,
    /// Whether used chains were added without a notification of the driver.
    unannounced: bool,
    /// Whether chains were left on the ring because the maximum number is in flight.
    stalled: bool,
}

impl Queue {
    /// The queue of this number, without a ring.
    pub fn new(index: usize) -> Self {
        Self {
            index,
            ..Self::default()
        }
    }

    /// Stores the ring, which was started, enabled or kicked.
    pub fn attach(&mut self, ring: &Ring) -> Restart {
        self.ring.get_or_insert_with(|| ring.clone());
        self.look()
    }

    /// Checks for changes of the ring.
    pub fn look(&mut self) -> Restart {
        let Some(ring) = &self.ring else {
            return Restart::None;
        };
        let mut state = ring.get_mut();
        if !runs(&state) {
            return Restart::None;
        }
        let queue = state.get_queue_mut();
        let (available, used) = (queue.next_avail(), queue.next_used());
        let before = std::mem::replace(&mut self.standing, Standing::Started);
        if before == Standing::Started {
            return Restart::None;
        }
        // The device returns an event's chain as soon as it takes it. So the available ring holds the driver's buffers
        // from the used index on, whatever start index the VMM sets. Cloud Hypervisor, which can reconnect while a
        // driver runs, sets it behind all available chains.
        if self.index == EVENT_QUEUE && self.outstanding == 0 {
            queue.set_next_avail(used);
        }
        // A ring that was set up again begins at 0; one that continues has both indices where they were. The used index
        // is read from the guest's memory, where it is right even if the VMM's copy is 0 again after 2^16 chains.
        match before {
            Standing::Stopped(at, had_used) if (at, had_used) != (available, used) => {
                Restart::Reset
            }
            _ => Restart::None,
        }
    }

    /// Notes that the ring was stopped.
    pub fn stop(&mut self) {
        if let Some(ring) = &self.ring
            && self.standing == Standing::Started
        {
            let state = ring.get_ref();
            let queue = state.get_queue();
            self.standing = Standing::Stopped(queue.next_avail(), queue.next_used());
        }
        self.unannounced = false;
    }

    /// Forgets all chains.
    pub fn reset(&mut self) {
        self.generation += 1;
        self.outstanding = 0;
        self.parked.clear();
        self.stalled = false;
        self.unannounced = false;
        if matches!(self.standing, Standing::Stopped(..)) {
            self.standing = Standing::New;
        }
    }

    /// Whether the ring runs, or was never started.
    pub fn is_running_or_new(&self) -> bool {
        self.ring.is_none() || self.running().is_some()
    }

    /// The ring, locked, if it runs and its changes were handled.
    fn running(&self) -> Option<<Ring as VringStateMutGuard<'_, Memory>>::G> {
        let ring = self.ring.as_ref()?;
        let state = ring.get_mut();
        let runs = self.standing == Standing::Started && runs(&state);
        runs.then_some(state)
    }

    /// Calls `take` with chains of the ring until there are none, too many are in flight or a batch is full; `true`
    /// means that there may be more.
    pub fn drain<T>(
        this: &mut T,
        queue: impl Fn(&mut T) -> &mut Self,
        memory: &Memory,
        mut take: impl FnMut(&mut T, Chain),
    ) -> bool {
        let mut taken = 0;
        let mut in_vain = false;
        loop {
            queue(this).notify_me(false);
            let before = taken;
            while taken < BATCH {
                let Some(chain) = queue(this).pop(memory) else {
                    break;
                };
                taken += 1;
                take(this, chain);
            }
            if taken == BATCH {
                return true;
            }
            if queue(this).stalled || !queue(this).notify_me(true) {
                return false;
            }
            // The driver may have made chains available without a kick since the last check, so check again. If there
            // is still nothing to take, the available ring is invalid.
            if taken == before && std::mem::replace(&mut in_vain, true) {
                return false;
            }
        }
    }

    /// Takes the next chain.
    pub fn pop(&mut self, memory: &Memory) -> Option<Chain> {
        self.stalled = false;
        let mut state = self.running()?;
        // A driver cannot have more chains in flight than the ring has descriptors, unless it makes the same one
        // available repeatedly.
        if self.outstanding >= usize::from(state.get_queue().size()) {
            drop(state);
            self.stalled = true;
            return None;
        }
        let memory = memory.memory().into_inner();
        let chain = state
            .get_queue_mut()
            .pop_descriptor_chain(Arc::clone(&memory))?;
        drop(state);
        self.outstanding += 1;
        Some(Chain::new(chain, memory, self.index, self.generation))
    }

    /// Enables or disables kicks for available chains; `true` means that chains are already available.
    pub fn notify_me(&mut self, wanted: bool) -> bool {
        let Some(mut state) = self.running() else {
            return false;
        };
        if wanted {
            state.enable_notification().unwrap_or(false)
        } else {
            // Superfluous kicks do no harm.
            let _ = state.disable_notification();
            false
        }
    }

    /// Returns a chain to the driver.
    pub fn complete(&mut self, chain: Chain, answer: Answer) {
        if chain.generation != self.generation {
            return;
        }
        if let Some(unwritten) = self.write(chain, answer) {
            self.parked.push_back(unwritten);
        }
    }

    /// Returns the chains that completed while the ring did not run.
    pub fn flush(&mut self) {
        while let Some((chain, answer)) = self.parked.pop_front() {
            if let Some(unwritten) = self.write(chain, answer) {
                self.parked.push_front(unwritten);
                return;
            }
        }
    }

    /// Writes an answer, or returns it to the caller if the ring does not run.
    fn write(&mut self, chain: Chain, answer: Answer) -> Option<(Chain, Answer)> {
        let Some(mut state) = self.running() else {
            return Some((chain, answer));
        };
        let used = answer.write(&chain);
        // This fails if the driver has put the ring outside its memory, or has made a descriptor available that does
        // not exist. Such a driver cannot get the answer.
        let _ = state.add_used(chain.head, used);
        drop(state);
        self.outstanding -= 1;
        self.unannounced = true;
        None
    }

    /// Interrupts the driver if chains were returned and it asked for interrupts. The VMM may not have set up the
    /// interrupt.
    pub fn announce(&mut self) {
        if !std::mem::take(&mut self.unannounced) {
            return;
        }
        let Some(ring) = &self.ring else { return };
        let mut state = ring.get_mut();
        // Without event indices the library says yes, whatever the driver's flag is.
        let wants = match state.get_queue().event_idx_enabled() {
            true => state.needs_notification().unwrap_or(true),
            false => ring.wants_interrupt(state.get_queue().avail_ring()),
        };
        if wants {
            let _ = state.signal_used_queue();
        }
    }

    /// Whether there is now room for chains that were left on the ring.
    pub fn has_room_again(&self) -> bool {
        self.stalled
            && self
                .running()
                .is_some_and(|state| self.outstanding < usize::from(state.get_queue().size()))
    }

    /// Whether the device may write to the guest for this queue's chains.
    pub fn may_write(&self) -> bool {
        self.running().is_some()
    }

    /// The number of chains that were taken and not returned yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

/// Whether a ring is started and enabled.
fn runs(state: &VringState) -> bool {
    state.is_enabled() && state.get_queue().ready()
}
