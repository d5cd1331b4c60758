// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Workers: one for each client, and some in advance for later clients.

use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::Path,
    sync::Arc,
    time::Instant,
};

use event_manager::{EventOps, EventSet, Events};
use gpgpu_protocol::layout::{MAX_CLIENTS, status};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::{
    Source, Supervisor,
    client::{Name, Warm, Who, Worker},
    metrics::End,
    peers::Peers,
    placement::{self, Placed},
    process::{Process, reason},
};
use crate::{
    account::{Account, Shared},
    ipc::{self, device::ToDevice, peers::SupervisorEnd},
};

/// The VM has its maximum number of clients.
#[derive(Debug, thiserror::Error)]
#[error("worker limit reached (max-clients)")]
struct TooMany;

impl From<TooMany> for io::Error {
    fn from(error: TooMany) -> Self {
        Self::other(error)
    }
}

/// A worker with a client.
struct Served {
    worker: Warm,
    account: Arc<Shared<Account>>,
    /// The GPU that its client sees first, if known.
    first: Option<u32>,
    peers: Peers,
}

impl Supervisor {
    /// Starts a warm worker if one is due.
    pub(super) fn warm_up(&mut self, now: Instant, ops: &mut EventOps<'_>) {
        let label = match &self.vms[..] {
            [only] => only.socket.path().as_os_str(),
            _ => "waiting".as_ref(),
        };
        self.spare
            .fill(&self.config.device, label, &self.outputs, now);
        if !self.warm.is_due(now) {
            return;
        }
        let token = self.token(Source::Worker);
        match self.start_process(Path::new("warm"), token, None, ops) {
            Ok((process, channel)) => {
                tracing::debug!("Worker {} waits for a client", process.id());
                let worker = Warm {
                    process,
                    channel,
                    token,
                };
                self.warm.add(worker, now);
            }
            Err(error) => {
                self.sources.remove(&token);
                let (_, wait) = self.warm.died(|_| false, now);
                tracing::warn!("Cannot start a warm worker: {error}; retrying in {wait:?}");
            }
        }
    }

    /// Finds a worker for a client of a device process, a warm one or a new one, and sends it the order to serve.
    fn find_worker(
        &mut self,
        path: &Path,
        serving: ipc::Serving<Arc<File>>,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Warm> {
        let message = ipc::Message::serve(serving);
        while let Some(mut worker) = self.warm.take(Instant::now()) {
            // Its death is noticed here or by its event, whichever comes first.
            if worker.process.ended().is_none() && tell(&worker.channel, &message).is_ok() {
                return Ok(worker);
            }
            self.forget_warm(&worker, ops);
        }
        let token = self.token(Source::Worker);
        self.start_process(path, token, Some(&message), ops)
            .map(|(process, channel)| Warm {
                process,
                channel,
                token,
            })
            .inspect_err(|_| {
                self.sources.remove(&token);
            })
    }

    /// Ends the workers without a client, because workers that are started from now on see other files.
    pub(super) fn replace_warm(&mut self, ops: &mut EventOps<'_>) {
        for worker in self.warm.take_all(Instant::now()) {
            // Dropping it ends the process.
            self.forget_warm(&worker, ops);
        }
    }

    /// Stops watching a worker without a client.
    fn forget_warm(&mut self, worker: &Warm, ops: &mut EventOps<'_>) {
        self.outputs.forget(worker.process.id());
        self.sources.remove(&worker.token);
        let events = Events::with_data(&worker.process, worker.token, EventSet::IN);
        let _ = ops.remove(events);
    }

    /// Describes the client in a slot of a VM's ledger for its worker, and makes the memory that the worker shares with
    /// the supervisor.
    fn serve(
        &mut self,
        vm: usize,
        slot: u32,
        path: &Path,
        hold: Option<Arc<File>>,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Served> {
        let gpus = self.gpus_for(vm);
        let (first, leased) = (gpus.first().copied(), gpus.clone());
        let account = Arc::new(Shared::<Account>::new(c"gpgpu-account")?);
        // No thread reads it: only the event matters.
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let doorbell: Arc<File> = Arc::new(OwnedFd::from(EventFd::from_flags(flags)?).into());
        let (peers, theirs) = ipc::pair()?;
        self.last_number += 1;
        let number = self.last_number;
        let serving = ipc::Serving {
            account: Arc::clone(account.file()),
            ledger: Arc::clone(self.vms[vm].ledger.file()),
            terms: Arc::clone(self.vms[vm].terms.file()),
            doorbell: Arc::clone(&doorbell),
            peers: Arc::new(theirs.into()),
            hold,
            number,
            cache: self.vms[vm].cache.clone(),
            slot,
            gpus,
        };
        let worker = self.find_worker(path, serving, ops)?;
        self.leases
            .join(worker.token, vm, &account, &doorbell, &leased);
        let token = self.token(Source::Peers(worker.token));
        let mut peers = Peers::new(SupervisorEnd::new(peers), token, number);
        peers.watch(ops);
        Ok(Served {
            worker,
            account,
            first,
            peers,
        })
    }

    /// The GPUs for a new client of a VM, in its order: the same as for the VM's other clients.
    fn gpus_for(&mut self, vm: usize) -> Vec<u32> {
        let there = self.workers.values().filter(|worker| !worker.closed);
        if there.clone().any(|worker| worker.vm == vm) {
            return self.vms[vm].gpus.clone();
        }
        let clients: Vec<Placed> = there
            .filter_map(|worker| {
                Some(Placed {
                    vm: worker.vm,
                    weight: self.vms[worker.vm].policy.weight,
                    gpu: worker.gpu?,
                })
            })
            .collect();
        let charged = |gpu: u32| {
            let vms = self.vms.iter();
            vms.map(|vm| vm.ledger.used(gpu as usize)).sum()
        };
        let allowed = self.vms[vm].policy.gpus.clone();
        let allowed = allowed.unwrap_or_else(|| (0..self.config.gpus).collect());
        let gpus = placement::order(allowed, &clients, charged);
        self.vms[vm].gpus.clone_from(&gpus);
        gpus
    }

    /// Starts a worker, and returns the device's end of its channel. If it has a client, the message about it is in the
    /// channel before the start: a worker without a client ends if there is no GPU, and must not mistake itself for
    /// one.
    fn start_process(
        &self,
        path: &Path,
        token: u32,
        first: Option<&ipc::Message>,
        ops: &mut EventOps<'_>,
    ) -> io::Result<(Process, ipc::DeviceEnd)> {
        let (ours, theirs) = ipc::pair()?;
        let channel = ipc::DeviceEnd::new(ours);
        if let Some(message) = first {
            tell(&channel, message)?;
        }
        let mut program = self.config.worker.clone();
        program.arguments.extend(self.libraries.to_arguments());
        let outputs = ("Worker", &self.outputs);
        let process = program.start_heard(theirs, path.as_os_str(), outputs)?;
        ops.add(Events::with_data(&process, token, EventSet::IN))
            .map_err(io::Error::other)?;
        Ok((process, channel))
    }

    pub(super) fn start_worker(
        &mut self,
        key: u32,
        client: u32,
        pid: u32,
        name: &[u8; 16],
        ops: &mut EventOps<'_>,
    ) {
        let began = Instant::now();
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        let vm = &self.vms[device.vm];
        let path = vm.socket.path().to_owned();
        let who = Arc::new(Who {
            vm: vm.policy.name.clone(),
            path: path.clone(),
            client,
            name: Name(name).to_string(),
            guest_process: pid,
        });
        let vm = device.vm;
        let hold = Arc::clone(&device.hold);
        let hold = self.config.may_hold.then_some(hold);
        let is_new = device.workers.len() < MAX_CLIENTS
            && !device.workers.contains_key(&client)
            && device.starts.take(began);
        let slot = is_new.then(|| self.vms[vm].take_slot(pid)).flatten();
        let found = match slot {
            Some(slot) => self.serve(vm, slot, &path, hold, ops),
            None => Err(TooMany.into()),
        };
        if let (Err(_), Some(slot)) = (&found, slot) {
            self.vms[vm].give_slot(slot);
        }
        let answer = match found {
            Ok(served) => {
                self.worker_started((key, vm, slot.unwrap_or_default()), served, who, began)
            }
            Err(error) => Some(self.worker_refused(vm, &who, &error)),
        };
        if let (Some(device), Some(answer)) = (self.devices.get_mut(&key), answer) {
            device.tell(&answer);
        }
    }

    /// Records a client's worker and the start time; returns the message for its device process.
    fn worker_started(
        &mut self,
        (key, vm, slot): (u32, usize, u32),
        served: Served,
        who: Arc<Who>,
        began: Instant,
    ) -> Option<ToDevice> {
        let Served {
            worker,
            account,
            first: gpu,
            peers,
        } = served;
        let Warm {
            process,
            channel,
            token,
        } = worker;
        let device = self.devices.get_mut(&key)?;
        let client = who.client;
        self.board.opened(vm, &who, process.id(), slot, &account);
        self.outputs.assign(process.id(), &self.vms[vm].said);
        if self.vms[vm].may_log() {
            tracing::info!(
                vm = who.vm,
                client,
                name = who.name,
                guest_process = who.guest_process,
                worker = process.id(),
                "{who} opened (worker {})",
                process.id()
            );
            tracing::debug!("Worker {} found in {:?}", process.id(), began.elapsed());
            if let Some(gpu) = gpu {
                tracing::debug!("Worker {}: GPU {gpu} first", process.id());
            }
        }
        let worker = Worker {
            process,
            device: key,
            client,
            vm,
            peers,
            slot,
            gpu,
            who,
            deadline: None,
            hold: Arc::clone(&device.hold),
            closed: false,
            killed: false,
            expired: None,
        };
        self.workers.insert(token, worker);
        device.workers.insert(client, token);
        Some(ToDevice::WorkerStarted {
            client,
            channel: channel.into(),
        })
    }

    /// Records that a client got no worker; returns the message for its device process.
    fn worker_refused(&mut self, vm: usize, who: &Who, error: &io::Error) -> ToDevice {
        self.board.refused(vm);
        if self.vms[vm].may_log() {
            tracing::error!(
                vm = who.vm,
                client = who.client,
                name = who.name,
                guest_process = who.guest_process,
                reason = End::Refused.label(),
                "{who}: cannot start a worker: {error}"
            );
        }
        let at_limit = error.get_ref().is_some_and(|error| error.is::<TooMany>());
        ToDevice::WorkerFailed {
            client: who.client,
            status: match at_limit {
                true => status::LIMIT,
                false => status::NO_RESOURCES,
            },
        }
    }

    /// Handles the end of a worker without a client, if it was one.
    fn warm_ended(&mut self, token: u32, ops: &mut EventOps<'_>) {
        let found = self.warm.iter_mut().find(|worker| worker.token == token);
        let Some(ended) = found.and_then(|worker| worker.process.ended()) else {
            return;
        };
        let (worker, wait) = self
            .warm
            .died(|worker| worker.token == token, Instant::now());
        self.sources.remove(&token);
        if let Some(worker) = worker {
            let _ = ops.remove(Events::with_data(&worker.process, token, EventSet::IN));
            self.outputs.forget(worker.process.id());
            tracing::warn!(
                worker = worker.process.id(),
                reason = reason(ended),
                "Worker {} died before a client came: {}; another in {wait:?}",
                worker.process.id(),
                reason(ended)
            );
        }
    }

    pub(super) fn worker_ended(&mut self, token: u32, ops: &mut EventOps<'_>) {
        self.warm_ended(token, ops);
        let Some(ended) = self
            .workers
            .get_mut(&token)
            .and_then(|worker| worker.process.ended())
        else {
            return;
        };
        let Some(mut worker) = self.workers.remove(&token) else {
            return;
        };
        self.sources.remove(&token);
        let _ = ops.remove(Events::with_data(&worker.process, token, EventSet::IN));
        worker.peers.close(ops);
        self.sources.remove(&worker.peers.token);
        self.leases.leave(token);
        self.outputs.forget(worker.process.id());
        let end = worker.end(ended, || self.board.out_of_memory());
        self.board.ended(worker.vm, worker.process.id(), end);
        self.vms[worker.vm].give_slot(worker.slot);
        if let Some(device) = self.devices.get_mut(&worker.device) {
            device.workers.remove(&worker.client);
            device.tell(&ToDevice::WorkerExited {
                client: worker.client,
                code: ended.code().unwrap_or(0) as u32,
                signal: ended.signal().unwrap_or(0) as u32,
            });
        }
        if self.vms[worker.vm].may_log() {
            worker.log_end(ended, end);
        }
    }

    /// Ends the workers of clients that kept a GPU for longer than allowed.
    pub(super) fn end_expired(&mut self) {
        for (token, late) in self.leases.take_expired() {
            if let Some(worker) = self.workers.get_mut(&token) {
                worker.expire(late);
                let vm = &mut self.vms[worker.vm];
                if vm.may_log() {
                    worker.log_expired(late, &vm.policy);
                }
            }
        }
    }

    /// Kills workers whose deadline has passed, and logs those that cannot be killed; returns the next deadline.
    pub(super) fn kill_late(&mut self, now: Instant) -> Option<Instant> {
        for worker in self.workers.values_mut() {
            if worker.deadline.is_some_and(|deadline| deadline <= now) {
                worker.deadline_passed();
            }
        }
        self.workers
            .values()
            .filter_map(|worker| worker.deadline)
            .min()
    }
}

fn tell(channel: &ipc::DeviceEnd, message: &ipc::Message) -> io::Result<()> {
    match channel.send(message) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(io::Error::other(error)),
    }
}
