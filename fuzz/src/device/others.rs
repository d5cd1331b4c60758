// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor, workers and movers.

use super::*;

impl Rig {
    /// The supervisor starts a requested worker, or fails to.
    pub(super) fn answer_supervisor(&mut self, how: u8) {
        if self.asked.is_empty() {
            // Or the last request was for a mover, which does not exist now.
            if how & 1 != 0
                && let Some(gpu) = self.movers_asked.pop_first()
            {
                self.vm.supervisor_says(ToDevice::MoverFailed { gpu });
                self.settle();
            }
            return;
        }
        let client = self.asked.remove(usize::from(how >> 1) % self.asked.len());
        let is_full = self.workers.len() >= self.max_clients;
        if is_full || how & 1 != 0 {
            let status = match is_full {
                true => status::LIMIT,
                false => status::NO_RESOURCES,
            };
            self.vm
                .supervisor_says(ToDevice::WorkerFailed { client, status });
            return self.settle();
        }
        let (ours, theirs) = ipc::pair().expect("no sockets");
        let worker = Worker {
            end: Some(WorkerEnd::new(ours)),
            seqs: Vec::new(),
            exports: 0,
        };
        self.workers.insert(client, worker);
        self.vm.supervisor_says(ToDevice::WorkerStarted {
            client,
            channel: theirs,
        });
        self.settle();
    }

    /// A worker has ended, and its supervisor reports it.
    pub(super) fn exit(&mut self, client: u32) {
        if self.workers.remove(&client).is_some() {
            self.vm.supervisor_says(ToDevice::WorkerExited {
                client,
                code: 0,
                signal: 9,
            });
        }
    }

    pub(super) fn worker_ends(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        if input.u8() & 1 == 0 {
            self.exit(client);
            return self.settle();
        }
        // Its channel closes before the supervisor knows.
        if let Some(worker) = self.workers.get_mut(&client) {
            worker.end = None;
        }
        self.hear();
    }

    /// Makes the device read all channels with messages.
    pub(super) fn hear(&mut self) {
        let slots: Vec<usize> = self
            .slots
            .0
            .lock()
            .expect("poisoned")
            .iter()
            .copied()
            .collect();
        for slot in slots {
            self.vm.worker_speaks(slot);
        }
        self.settle();
    }

    pub(super) fn worker_says(
        &mut self,
        client: u32,
        say: impl FnOnce(&WorkerEnd, &mut Worker) -> ipc::Result<()>,
    ) {
        if let Some(worker) = self.workers.get_mut(&client)
            && let Some(end) = worker.end.take()
        {
            // The device may have closed the channel.
            let _ = say(&end, worker);
            worker.end = Some(end);
        }
        self.hear();
    }

    pub(super) fn worker_does(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let what = input.u8();
        self.worker_says(client, |end, worker| {
            listen(end, worker);
            let mut seq = |worker: &mut Worker| match input.u8() {
                255 => input.u64(),
                _ if worker.seqs.is_empty() => input.u8().into(),
                choice => {
                    let index = usize::from(choice) % worker.seqs.len();
                    worker.seqs.swap_remove(index)
                }
            };
            match what % 9 {
                0 => end.ready(u32::from(input.u8() & 1) * status::NO_GPU),
                1 | 2 => {
                    let seq = seq(worker);
                    let status = u32::from(input.u8() % 10);
                    let (length, out) = (input.u8(), input.number());
                    end.answer(seq, status, input.bytes(length.into()), out)
                }
                3 => {
                    let seq = seq(worker);
                    end.done(seq, u32::from(input.u8() % 10))
                }
                4 => {
                    let number = match input.u8() & 1 {
                        0 => worker.exports.wrapping_add(1),
                        _ => input.number(),
                    };
                    worker.exports = number;
                    let gpu = input.u8() % 40;
                    end.export(number, input.number(), gpu.into(), memory_handle())
                }
                5 => end.unexport(input.number()),
                6 => {
                    let seq = seq(worker);
                    let place = (input.number(), input.number());
                    let carried_out = input.number() as u32;
                    let length = input.u8();
                    end.r#move(seq, place, carried_out, input.bytes(length.into()))
                }
                7 => {
                    let seq = seq(worker);
                    end.not_movable(seq, input.number() as u32)
                }
                _ => {
                    let fds = vec![memory_handle().as_raw_fd(); usize::from(input.u8() % 4)];
                    let length = input.u8();
                    send_raw(end.as_fd(), input.bytes(length.into()), &fds);
                    Ok(())
                }
            }
        });
    }

    pub(super) fn start_movers(&mut self) {
        for gpu in std::mem::take(&mut self.movers_asked) {
            let (ours, theirs) = ipc::pair().expect("no sockets");
            self.movers.insert(gpu, (MoverEnd::new(ours), Vec::new()));
            self.vm.supervisor_says(ToDevice::MoverStarted {
                gpu,
                channel: theirs,
            });
        }
        self.settle();
    }

    pub(super) fn mover_says(&mut self, gpu: u32, say: impl FnOnce(&MoverEnd, &mut Vec<u64>)) {
        if let Some((end, seqs)) = self.movers.get_mut(&gpu) {
            while readable(end.as_fd()) {
                match end.recv(&mut self.buffer) {
                    Ok(ToMover::Move(what)) => seqs.push(what.seq),
                    Ok(_) => {}
                    Err(ipc::Error::Closed) => break,
                    Err(error) => panic!("a mover was sent nonsense: {error}"),
                }
            }
            say(end, seqs);
        }
        self.hear();
    }

    pub(super) fn mover_does(&mut self, input: &mut Input<'_>) {
        let gpu = u32::from(input.u8() & 1);
        match input.u8() % 6 {
            0 => self.mover_says(gpu, |end, _| end.send(FromMover::Ready)),
            1 => {
                let choice = usize::from(input.u8());
                self.mover_says(gpu, |end, seqs| {
                    if !seqs.is_empty() {
                        let seq = seqs.swap_remove(choice % seqs.len());
                        let done = choice & 128 == 0;
                        end.send(FromMover::Moved { seq, done });
                    }
                });
            }
            2 => self.mover_says(gpu, |end, _| end.close()),
            // A mover reports when its moves are complete.
            5 => self.mover_says(gpu, |end, seqs| {
                seqs.clear();
                end.leave();
            }),
            // Usually of a move that was not requested.
            4 => {
                let seq = input.number();
                self.mover_says(gpu, |end, seqs| {
                    seqs.retain(|&known| known != seq);
                    end.send(FromMover::Moved { seq, done: true });
                });
            }
            _ => {
                self.mover_exits(gpu);
                self.settle();
            }
        }
    }

    pub(super) fn mover_exits(&mut self, gpu: u32) {
        if self.movers.remove(&gpu).is_some() {
            self.vm.supervisor_says(ToDevice::MoverExited { gpu });
        }
    }
}

/// Reads the messages to a worker, which must all be valid.
fn listen(end: &WorkerEnd, worker: &mut Worker) {
    while end.wait(PollTimeout::ZERO).is_ok_and(|there| there) {
        match end.recv() {
            Ok(Some(
                ToWorker::Command { seq, .. }
                | ToWorker::Map { seq, .. }
                | ToWorker::Unmap { seq, .. },
            )) => worker.seqs.push(seq),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => panic!("a worker was sent nonsense: {error}"),
        }
    }
}

fn readable(socket: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, poll};
    poll(
        &mut [PollFd::new(socket, PollFlags::POLLIN)],
        PollTimeout::ZERO,
    )
    .is_ok_and(|ready| ready > 0)
}
