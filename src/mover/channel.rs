// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device process's channel: its files, its exports and its moves.
//!
//! Every number and range is checked against the files and exports of this channel: a VM's moves access only that VM's
//! files and exports.

use std::{
    collections::{HashMap, HashSet},
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use gpgpu_protocol::{
    cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice},
    layout::MAX_DATA_BYTES,
};

use super::{
    Shared,
    engine::{Job, MAX_SHORT},
    export::{Import, Imported},
    guest::GuestFile,
    plan::Plan,
};
use crate::ipc::{
    Error, Result,
    mover::{Direction, FromMover, MAX_EXPORTS, MAX_FILES, MAX_MOVES, Move, MoverEnd, ToMover},
};

/// The least that a move counts for its turn, in bytes.
const LEAST_CHARGE: u64 = 256 << 10;

/// See the module's documentation.
pub struct Channel {
    vm: u32,
    number: u64,
    end: Arc<MoverEnd>,
    shared: Arc<Shared>,
    device: CUdevice,
    imported: Arc<Imported>,
    files: HashMap<u32, Arc<GuestFile>>,
    exports: HashMap<u64, Arc<Import>>,
    /// Exports that could not be imported. Their moves are answered as not done.
    useless: HashSet<u64>,
    under_way: Arc<AtomicUsize>,
    /// Each move holds one of the senders until it ends, so the receiver sees the last sender dropped once all moves
    /// have ended.
    over: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

impl Channel {
    /// A channel without files, exports or moves. It belongs to a VM and has a number of its own.
    pub fn new(
        (vm, number): (u32, u64),
        end: MoverEnd,
        shared: Arc<Shared>,
        (device, imported): (CUdevice, Arc<Imported>),
    ) -> Self {
        Self {
            vm,
            number,
            end: Arc::new(end),
            shared,
            device,
            imported,
            files: HashMap::new(),
            exports: HashMap::new(),
            useless: HashSet::new(),
            under_way: Arc::default(),
            over: mpsc::channel(),
        }
    }

    /// Serves the channel until its device process ends, leaves, or sends an invalid message. Reports the end once none
    /// of its moves is in flight. The context must be current.
    pub fn serve(mut self) {
        self.end.send(FromMover::Ready);
        // The device process waits for the last message, so a panic here must not prevent it.
        match catch_unwind(AssertUnwindSafe(|| self.hear_all())) {
            Ok(Error::Closed) => {}
            Ok(error) => tracing::error!("Channel {}: {error}", self.number),
            Err(_) => tracing::error!("Bug: channel {} panicked", self.number),
        }
        self.leave();
    }

    fn hear_all(&mut self) -> Error {
        let mut buffer = Vec::new();
        loop {
            let heard = self.end.recv(&mut buffer);
            if let Err(error) = heard.and_then(|message| self.hear(message)) {
                return error;
            }
        }
    }

    /// Cancels the moves that have not begun.
    fn cancel(&self) {
        for turns in [&self.shared.to_device, &self.shared.to_guest] {
            for job in turns.take_all(self.number) {
                job.end(false);
            }
        }
    }

    /// Ends the channel's moves, releases its files and exports, and reports this.
    fn leave(self) {
        self.end.stop_hearing();
        self.cancel();
        let (sender, all_over) = self.over;
        drop(sender);
        // An error here means that the last sender was dropped.
        let _ = all_over.recv();
        for file in self.files.values() {
            self.shared.chunks.forget(file);
        }
        drop((self.files, self.exports));
        self.end.leave();
        self.shared.log_counters();
    }

    fn hear(&mut self, message: ToMover) -> Result<()> {
        match message {
            ToMover::File {
                number,
                offset,
                bytes,
                file,
            } => {
                if self.files.len() >= MAX_FILES || self.files.contains_key(&number) {
                    return Err(Error::Malformed("file limit exceeded"));
                }
                match GuestFile::new(self.vm, file, offset, bytes) {
                    Ok(file) => drop(self.files.insert(number, Arc::new(file))),
                    // Moves that name the file are answered as not done.
                    Err(error) => tracing::warn!("Guest memory cannot be used: {error}"),
                }
            }
            ToMover::Forget { number } => {
                if let Some(file) = self.files.remove(&number) {
                    self.shared.chunks.forget(&file);
                }
            }
            ToMover::Export {
                number,
                bytes,
                handle,
            } => {
                let known = self.exports.len() + self.useless.len();
                let again = self.exports.contains_key(&number) || self.useless.contains(&number);
                if known >= MAX_EXPORTS || again {
                    return Err(Error::Malformed("export limit exceeded"));
                }
                let share = self.imported.take(self.vm, bytes);
                let import = share
                    .ok_or(CUDA_ERROR_OUT_OF_MEMORY)
                    .and_then(|share| Import::new(&handle, share, self.device));
                match import {
                    Ok(import) => drop(self.exports.insert(number, Arc::new(import))),
                    Err(code) => {
                        tracing::debug!("Export {number} of {bytes} bytes: error {code}");
                        self.useless.insert(number);
                    }
                }
            }
            ToMover::Unexport { number } => {
                // The last owner of a move drops the export.
                self.exports.remove(&number);
                self.useless.remove(&number);
            }
            ToMover::Move(what) => self.take(what)?,
            ToMover::Cancel => self.cancel(),
        }
        Ok(())
    }

    fn take(&mut self, what: Move) -> Result<()> {
        if self.under_way.load(Ordering::Acquire) >= MAX_MOVES {
            return Err(Error::Malformed("move limit exceeded"));
        }
        let Some((plan, held)) = self.plan(&what) else {
            let (seq, done) = (what.seq, false);
            self.end.send(FromMover::Moved { seq, done });
            return Ok(());
        };
        self.under_way.fetch_add(1, Ordering::AcqRel);
        let (engine, kernel) = plan.bytes();
        let (end, under_way, seq) = (Arc::clone(&self.end), Arc::clone(&self.under_way), what.seq);
        // A move that is dropped after a failure may still be in flight, so it never counts as ended.
        let over = ManuallyDrop::new(self.over.0.clone());
        let job = Job {
            plan,
            held,
            done: Box::new(move |done| {
                under_way.fetch_sub(1, Ordering::AcqRel);
                end.send(FromMover::Moved { seq, done });
                drop(ManuallyDrop::into_inner(over));
            }),
        };
        let turns = match what.direction {
            Direction::ToDevice => &self.shared.to_device,
            Direction::ToGuest => &self.shared.to_guest,
        };
        // A small move takes the GPU longer than its bytes.
        let charged = (engine + kernel).max(LEAST_CHARGE);
        turns.push(self.vm, self.number, charged, job);
        Ok(())
    }

    /// Checks a move against the channel's files and exports; `None` if it is invalid.
    #[allow(clippy::type_complexity)]
    fn plan(&self, what: &Move) -> Option<(Plan, (Arc<Import>, Vec<Arc<super::guest::Chunk>>))> {
        let bytes: u64 = what.runs.iter().map(|run| u64::from(run.bytes)).sum();
        if bytes == 0 || bytes > MAX_DATA_BYTES as u64 {
            return None;
        }
        let import = self.exports.get(&what.export)?;
        let device = import.address(what.offset, bytes)?;
        let (mut pieces, mut chunks) = (Vec::with_capacity(what.runs.len()), Vec::new());
        for run in &what.runs {
            let file = self.files.get(&run.file)?;
            let end = run.offset.checked_add(u64::from(run.bytes))?;
            if end > file.bytes() {
                return None;
            }
            self.shared
                .chunks
                .pieces(file, run.offset..end, &mut pieces, &mut chunks)
                .ok()?;
        }
        let plan = Plan::new(&pieces, device, what.direction);
        (plan.short.len() <= MAX_SHORT).then(|| (plan, (Arc::clone(import), chunks)))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::fd::{AsFd, OwnedFd},
        thread,
        time::Duration,
    };

    use nix::sys::socket::MsgFlags;

    use super::{super::PageTable, *};
    use crate::ipc::{self, mover::DeviceEnd};

    /// The time for which the tests wait for an event that must not happen.
    const A_WHILE: Duration = Duration::from_millis(300);

    fn channel(socket: OwnedFd) -> Channel {
        let device = (0, Arc::new(Imported::new(0)));
        let shared = Arc::new(Shared::new(PageTable::open().unwrap()));
        Channel::new((1, 1), MoverEnd::new(socket), shared, device)
    }

    /// The last message of a mover, if there is one.
    fn last(device: &DeviceEnd) -> Option<FromMover> {
        std::iter::from_fn(|| device.recv().ok().flatten()).last()
    }

    /// This holds for each reason to leave.
    #[test]
    fn a_mover_leaves_a_channel_once_its_moves_are_over() {
        type End = fn(&DeviceEnd, OwnedFd);
        let ends: [End; 2] = [
            |device, _| device.leave(),
            |_, socket| {
                let sent = ipc::send(socket.as_fd(), &[b"nonsense"], &[], MsgFlags::empty());
                assert!(sent.unwrap());
            },
        ];
        for end in ends {
            let (ours, theirs) = ipc::pair().unwrap();
            let channel = channel(theirs);
            let under_way = channel.over.0.clone();
            let serving = thread::spawn(move || channel.serve());
            let socket = ours.try_clone().unwrap();
            let device = DeviceEnd::new(ours);
            end(&device, socket);
            thread::sleep(A_WHILE);
            assert_eq!(last(&device), Some(FromMover::Ready), "a move is under way");
            drop(under_way);
            serving.join().unwrap();
            assert_eq!(last(&device), Some(FromMover::Left));
            assert!(matches!(device.recv(), Err(Error::Closed)));
        }
    }
}
