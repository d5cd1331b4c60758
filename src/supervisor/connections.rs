// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Connections of VMMs: a device process for each.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, PipeReader},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::Arc,
    time::{Duration, Instant},
};

use event_manager::{EventOps, EventSet, Events};

use super::{
    Source, Supervisor,
    client::Device,
    hold::hold,
    new_token,
    process::{Process, reason},
    spare::Spare,
    vm::CONNECT_PERIOD,
};
use crate::{
    ipc::{
        self,
        device::{ToDevice, ToSupervisor},
    },
    pace::Pace,
};

/// The pause of a socket whose next connection can be neither served nor refused.
const PAUSE: Duration = Duration::from_secs(1);
/// The number of messages of a device process that are handled in a row.
const BATCH: usize = 16;
/// The number of messages that a device process may send at once, and the interval for one more. It sends a few for
/// each client, and a reset closes all clients at once.
const MESSAGE_BURST: u32 = 2048;
/// See [`MESSAGE_BURST`].
const MESSAGE_PERIOD: Duration = Duration::from_millis(5);
/// The number of workers that a device process may start at once, and the interval for one more. The device process
/// limits itself to half as many at once, so delayed messages do not exceed the limit.
const START_BURST: u32 = 128;
/// See [`START_BURST`].
const START_PERIOD: Duration = Duration::from_millis(50);

impl Supervisor {
    /// Watches the listeners that may accept another connection.
    pub(super) fn arm(&mut self, ops: &mut EventOps<'_>) {
        for vm in &mut self.vms {
            let full = vm.connections >= self.config.max_connections;
            let wanted = !full && vm.paused.is_none();
            if wanted == vm.armed {
                continue;
            }
            let events = Events::with_data(&vm.socket, vm.token, EventSet::IN);
            let done = if wanted {
                ops.add(events)
            } else {
                ops.remove(events)
            };
            match done {
                Ok(()) => vm.armed = wanted,
                Err(error) => {
                    tracing::error!("{}: {error}", vm.socket.path().display());
                }
            }
            if full && vm.may_log() {
                tracing::warn!(
                    vm = vm.policy.name,
                    "{}: {} connections; new ones wait",
                    vm.socket.path().display(),
                    vm.connections
                );
            }
        }
    }

    /// Ends the pauses of sockets that are over; returns the end of the next one.
    pub(super) fn resume(&mut self, now: Instant) -> Option<Instant> {
        for vm in &mut self.vms {
            vm.paused.take_if(|until| *until <= now);
        }
        self.vms.iter().filter_map(|vm| vm.paused).min()
    }

    /// Accepts a connection, and starts a device process for it.
    pub(super) fn connect(&mut self, index: usize, ops: &mut EventOps<'_>) {
        let accepted = match self.vms[index].socket.accept() {
            Ok(None) => return,
            Ok(Some(connection)) => Ok(connection),
            Err(error) => {
                let vm = &mut self.vms[index];
                // Otherwise the connection would stay pending for ever.
                if !vm.socket.reject() {
                    vm.paused = Some(Instant::now() + PAUSE);
                }
                Err(error)
            }
        };
        let key = self.token(Source::Device);
        let started =
            accepted.and_then(|connection| self.start_device(key, index, connection, ops));
        let vm = &mut self.vms[index];
        match started {
            Ok(device) => {
                let process = device.process.id();
                self.outputs.assign(process, &vm.devices_said);
                if vm.may_log() {
                    tracing::info!(
                        vm = vm.policy.name,
                        device = process,
                        "{}: VM connected (process {process})",
                        vm.socket.path().display()
                    );
                }
                vm.connections += 1;
                self.board.set_connections(index, vm.connections);
                let now = Instant::now();
                if !vm.connects.take(now) {
                    vm.paused = Some(now + CONNECT_PERIOD);
                }
                self.devices.insert(key, device);
            }
            Err(error) => {
                if vm.may_log() {
                    tracing::error!(
                        vm = vm.policy.name,
                        reason = %error,
                        "{}: cannot start a device process: {error}",
                        vm.socket.path().display()
                    );
                }
                self.sources.remove(&key);
            }
        }
    }

    /// Passes a connection to a device process: the spare one, or a new one.
    fn start_device(
        &mut self,
        key: u32,
        index: usize,
        connection: UnixStream,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Device> {
        let vm = &self.vms[index];
        let hold = hold(&connection)?;
        let message = ToDevice::Serve {
            connection: connection.into(),
            max_clients: vm.policy.max_clients as u32,
            pause_limit: vm.policy.pause_limit,
        };
        let path = vm.socket.path();
        let serve = |spare: Spare| {
            let told = spare.link.send(&message);
            told.map(|()| spare).map_err(io::Error::other)
        };
        let spare = self.spare.take(Instant::now());
        let started = match spare.map(serve) {
            Some(Ok(spare)) => spare,
            // There was no spare process, or it has died.
            _ => serve(Spare::start(
                &self.config.device,
                path.as_os_str(),
                &self.outputs,
            )?)?,
        };
        let Spare { process, link } = started;
        let link_token = self.token(Source::Link(key));
        let events = [
            Events::with_data(&process, key, EventSet::IN),
            Events::with_data(&link, link_token, EventSet::IN),
        ];
        if let Err(error) = watch_both(ops, events) {
            self.sources.remove(&link_token);
            return Err(error);
        }
        Ok(Device {
            process,
            link,
            link_token,
            hold,
            channels: Vec::new(),
            vm: index,
            workers: HashMap::new(),
            messages: Pace::new(MESSAGE_BURST, MESSAGE_PERIOD),
            starts: Pace::new(START_BURST, START_PERIOD),
            is_given_up: false,
        })
    }

    /// Handles a limited number of messages of a device process.
    pub(super) fn hear(&mut self, key: u32, ops: &mut EventOps<'_>) {
        for _ in 0..BATCH {
            let Some(device) = self.devices.get_mut(&key) else {
                return;
            };
            let message = match device.link.recv() {
                Ok(None) => return,
                Ok(Some(_)) if !device.messages.take(Instant::now()) => Err(ipc::Error::Malformed(
                    "message limit of a device process exceeded",
                )),
                Ok(Some(message)) => Ok(message),
                Err(error) => Err(error),
            };
            match message {
                Ok(message) => self.obey(key, message, ops),
                Err(error) => {
                    // The end of the link precedes the end of the process, which has the exit status.
                    let events = Events::with_data(&device.link, device.link_token, EventSet::IN);
                    let _ = ops.remove(events);
                    let is_news = !matches!(error, ipc::Error::Closed) && !device.is_given_up;
                    if is_news && self.vms[device.vm].may_log() {
                        tracing::error!("Device process {}: {error}", device.process.id());
                    }
                    device.is_given_up = true;
                    device.process.kill();
                    return;
                }
            }
        }
    }

    /// Executes a request of a device process.
    fn obey(&mut self, key: u32, message: ToSupervisor, ops: &mut EventOps<'_>) {
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        match message {
            ToSupervisor::StartWorker { client, pid, name } => {
                self.start_worker(key, client, pid, &name, ops);
            }
            ToSupervisor::CloseWorker { client, kill } => {
                let worker = device.workers.get(&client);
                if let Some(worker) = worker.and_then(|worker| self.workers.get_mut(worker)) {
                    worker.close(kill);
                }
            }
            ToSupervisor::StartMover { gpu } => {
                let watch = |process: &Process| {
                    let token =
                        new_token(&mut self.sources, &mut self.last_token, Source::Mover(gpu));
                    ops.add(Events::with_data(process, token, EventSet::IN))
                        .map_err(|error| {
                            self.sources.remove(&token);
                            io::Error::other(error)
                        })
                };
                let user = (key, self.vms[device.vm].tenant(device.vm));
                let hold = self.config.may_hold.then_some(&*device.hold);
                let is_known = self.config.gpus == 0 || gpu < self.config.gpus;
                let channel = match is_known {
                    true => self.movers.connect(gpu, user, hold, watch, &self.outputs),
                    false => Err(io::ErrorKind::NotFound.into()),
                };
                let answer = match channel {
                    Ok((channel, left)) => {
                        device
                            .channels
                            .retain(|channel| !ipc::has_hung_up(channel.as_fd()));
                        device.channels.push(left);
                        ToDevice::MoverStarted { gpu, channel }
                    }
                    Err(error) => {
                        tracing::debug!("GPU {gpu}: no mover: {error}");
                        ToDevice::MoverFailed { gpu }
                    }
                };
                device.tell(&answer);
            }
            ToSupervisor::MoverLate { gpu } => self.movers.check(gpu),
        }
    }

    /// Keeps a VMM's connection open until a mover has left a channel.
    fn wait_for_mover(&mut self, hold: Arc<File>, channel: PipeReader, ops: &mut EventOps<'_>) {
        let token = self.token(Source::Left);
        let events = Events::with_data(&channel, token, EventSet::IN);
        match ops.add(events) {
            Ok(()) => {
                self.held.insert(token, (channel, hold));
            }
            Err(error) => {
                self.sources.remove(&token);
                tracing::error!("Cannot watch a closing mover: {error}");
            }
        }
    }

    /// Handles a mover that has left the channel of a device process that has ended.
    pub(super) fn mover_left(&mut self, token: u32, ops: &mut EventOps<'_>) {
        self.sources.remove(&token);
        if let Some((channel, _)) = self.held.remove(&token) {
            let _ = ops.remove(Events::with_data(&channel, token, EventSet::IN));
        }
    }

    pub(super) fn device_ended(&mut self, key: u32, ops: &mut EventOps<'_>) {
        let Some(ended) = self
            .devices
            .get_mut(&key)
            .and_then(|device| device.process.ended())
        else {
            return;
        };
        let Some(device) = self.devices.remove(&key) else {
            return;
        };
        self.sources.remove(&key);
        self.sources.remove(&device.link_token);
        self.movers.forget_user(key);
        self.outputs.forget(device.process.id());
        let _ = ops.remove(Events::with_data(&device.process, key, EventSet::IN));
        // It may have been closed before, and is then not watched.
        let _ = ops.remove(Events::with_data(
            &device.link,
            device.link_token,
            EventSet::IN,
        ));
        // A device process that ended in order has waited for its workers. If it failed, its workers hold the
        // connection until they have ended.
        for worker in device.workers.values() {
            if let Some(worker) = self.workers.get_mut(worker) {
                worker.close(true);
            }
        }
        // So do movers, as long as they copy for it.
        for channel in device.channels {
            self.wait_for_mover(Arc::clone(&device.hold), channel, ops);
        }
        let vm = &mut self.vms[device.vm];
        vm.connections -= 1;
        self.board.set_connections(device.vm, vm.connections);
        if !vm.may_log() {
            return;
        }
        let path = vm.socket.path().display();
        if ended.success() {
            tracing::info!(
                vm = vm.policy.name,
                device = device.process.id(),
                "{path}: VM disconnected (process {})",
                device.process.id()
            );
        } else {
            let reason = reason(ended);
            tracing::error!(
                vm = vm.policy.name,
                device = device.process.id(),
                reason,
                "{path}: device process {} failed: {reason}",
                device.process.id()
            );
        }
    }
}

/// Watches both descriptors or none: the event loop rejects a descriptor whose number it still has.
fn watch_both(ops: &mut EventOps<'_>, [first, second]: [Events; 2]) -> io::Result<()> {
    ops.add(first).map_err(io::Error::other)?;
    ops.add(second).map_err(|error| {
        let _ = ops.remove(first);
        io::Error::other(error)
    })
}

#[cfg(test)]
mod tests {
    use event_manager::{EventManager, MutEventSubscriber, SubscriberOps};

    use super::*;

    struct Nobody;

    impl MutEventSubscriber for Nobody {
        fn process(&mut self, _: Events, _: &mut EventOps<'_>) {}

        fn init(&mut self, _: &mut EventOps<'_>) {}
    }

    /// If a descriptor cannot be watched, none is left behind: the next descriptor with the same number could not be
    /// watched.
    #[test]
    fn of_two_descriptors_both_are_watched_or_none() {
        let mut manager = EventManager::new().unwrap();
        let id = manager.add_subscriber(Nobody);
        let mut ops = manager.event_ops(id).unwrap();
        let (first, second) = UnixStream::pair().unwrap();
        let events = [&first, &second].map(|end| Events::with_data(end, 1, EventSet::IN));
        ops.add(events[1]).unwrap();
        assert!(watch_both(&mut ops, events).is_err());
        ops.remove(events[1]).unwrap();
        watch_both(&mut ops, events).unwrap();
    }
}
