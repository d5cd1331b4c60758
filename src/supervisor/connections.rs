//! Connections of VMMs: a device process for each.

use std::{
    collections::HashMap,
    io,
    time::{Duration, Instant},
};

use event_manager::{EventOps, EventSet, Events};

use super::{
    Source, Supervisor,
    client::Device,
    link::{ToDevice, ToSupervisor},
    new_token,
    process::reason,
    spare::Spare,
    vm::CONNECT_PERIOD,
};
use crate::ipc;

/// How long a socket is left alone whose next connection can neither be served nor refused.
const PAUSE: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Watches the listeners that may have another connection.
    pub(super) fn arm(&mut self, ops: &mut EventOps<'_>) {
        for vm in &mut self.vms {
            let full = vm.connections >= self.config.max_connections;
            let wanted = !vm.accepting && !full && vm.paused.is_none();
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
                    "{}: {} connections, further ones have to wait",
                    vm.socket.path().display(),
                    vm.connections
                );
            }
        }
    }

    /// Watches sockets again that were left alone for long enough; when the next has been.
    pub(super) fn go_on(&mut self, now: Instant, ops: &mut EventOps<'_>) -> Option<Instant> {
        for vm in &mut self.vms {
            vm.paused.take_if(|until| *until <= now);
        }
        self.arm(ops);
        self.vms.iter().filter_map(|vm| vm.paused).min()
    }

    /// Starts a device process for the connection that waits at a listener.
    pub(super) fn connect(&mut self, index: usize, ops: &mut EventOps<'_>) {
        let key = self.token(Source::Device(0));
        let path = self.vms[index].socket.path().to_owned();
        match self.start_device(key, index, ops) {
            Ok(device) => {
                let vm = &mut self.vms[index];
                self.voices.assign(device.process.id(), &vm.devices_said);
                if vm.may_log() {
                    tracing::info!(
                        vm = vm.policy.name,
                        device = device.process.id(),
                        "{}: VM connected (process {})",
                        path.display(),
                        device.process.id()
                    );
                }
                self.devices.insert(key, device);
                self.sources.insert(key, Source::Device(key));
                vm.connections += 1;
                vm.accepting = true;
                self.board.set_connections(index, vm.connections);
                let now = Instant::now();
                if !vm.connects.take(now) {
                    vm.paused = Some(now + CONNECT_PERIOD);
                }
            }
            Err(error) => {
                self.sources.remove(&key);
                let vm = &mut self.vms[index];
                if vm.may_log() {
                    tracing::error!(
                        vm = vm.policy.name,
                        reason = %error,
                        "{}: cannot start a device process: {error}",
                        path.display()
                    );
                }
                // It would be there for ever.
                if !vm.socket.reject() {
                    vm.paused = Some(Instant::now() + PAUSE);
                }
            }
        }
    }

    fn start_device(
        &mut self,
        key: u32,
        index: usize,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Device> {
        let vm = &self.vms[index];
        let (socket, max_clients) = (&vm.socket, vm.policy.max_clients as u32);
        let serve = |spare: Spare| {
            let listener = socket.listener().try_clone()?.into();
            let told = spare.link.send(&ToDevice::Serve {
                listener,
                max_clients,
            });
            told.map(|()| spare).map_err(io::Error::other)
        };
        let spare = self.spare.take(Instant::now());
        let started = match spare.map(serve) {
            Some(Ok(spare)) => spare,
            // There was none, or it has died.
            _ => serve(Spare::start(
                &self.config.device,
                socket.path().as_os_str(),
                &self.voices,
            )?)?,
        };
        let Spare { process, link } = started;
        let link_token = self.token(Source::Link(key));
        let watch = |ops: &mut EventOps<'_>, events| ops.add(events).map_err(io::Error::other);
        watch(ops, Events::with_data(&process, key, EventSet::IN))?;
        watch(ops, Events::with_data(&link, link_token, EventSet::IN))?;
        Ok(Device {
            process,
            link,
            link_token,
            vm: index,
            accepted: false,
            workers: HashMap::new(),
        })
    }

    /// Handles what a device process says.
    pub(super) fn hear(&mut self, key: u32, ops: &mut EventOps<'_>) {
        loop {
            let Some(device) = self.devices.get_mut(&key) else {
                return;
            };
            match device.link.recv() {
                Ok(None) => return,
                Ok(Some(ToSupervisor::Accepted)) => {
                    device.accepted = true;
                    let index = device.vm;
                    self.vms[index].accepting = false;
                }
                Ok(Some(ToSupervisor::StartWorker { client, pid, name })) => {
                    self.start_worker(key, client, pid, &name, ops);
                }
                Ok(Some(ToSupervisor::CloseWorker { client, kill })) => {
                    let worker = device.workers.get(&client);
                    if let Some(worker) = worker.and_then(|worker| self.workers.get_mut(worker)) {
                        worker.close(kill);
                    }
                }
                Ok(Some(ToSupervisor::StartMover { gpu })) => {
                    let token =
                        || new_token(&mut self.sources, &mut self.last_token, Source::Mover(gpu));
                    let tenant = self.vms[device.vm].tenant(device.vm);
                    let user = (key, tenant);
                    let answer = match self.movers.connect(gpu, user, token, ops) {
                        Ok(channel) => ToDevice::MoverStarted { gpu, channel },
                        Err(error) => {
                            tracing::debug!("GPU {gpu}: no mover: {error}");
                            ToDevice::MoverFailed { gpu }
                        }
                    };
                    device.tell(&answer);
                }
                Ok(Some(ToSupervisor::KillMover { gpu })) => self.movers.kill(gpu),
                Err(error) => {
                    // The end of the link comes before the end of the process, and says less.
                    let events = Events::with_data(&device.link, device.link_token, EventSet::IN);
                    let _ = ops.remove(events);
                    if !matches!(error, ipc::Error::Closed) && self.vms[device.vm].may_log() {
                        tracing::error!("Device process {}: {error}", device.process.id());
                    }
                    device.process.kill();
                    return;
                }
            }
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
        let _ = ops.remove(Events::with_data(&device.process, key, EventSet::IN));
        // It is not watched any more if it was closed before.
        let _ = ops.remove(Events::with_data(
            &device.link,
            device.link_token,
            EventSet::IN,
        ));
        // One that ended in order has waited for its workers. Of one that failed, the VMM may connect again at once.
        for worker in device.workers.values() {
            if let Some(worker) = self.workers.get_mut(worker) {
                worker.close(true);
            }
        }
        let vm = &mut self.vms[device.vm];
        vm.connections -= 1;
        self.board.set_connections(device.vm, vm.connections);
        if !device.accepted {
            vm.accepting = false;
            vm.socket.reject();
        }
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
