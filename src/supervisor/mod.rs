//! The supervisor: starts and watches all other processes, and reads no guest data.
//!
//! For each connection of a VMM it starts a device process, and for each client that a device
//! process opens a worker, whose channel it passes on. For each GPU it starts a mover, to which device
//! processes get channels too. Nothing that a guest sends reaches it but the name and number of a guest
//! process, which it logs.

pub mod cache;
mod client;
mod gpu;
mod lease;
pub mod link;
pub mod measure;
pub mod metrics;
mod movers;
mod placement;
mod process;
mod reload;
mod socket;
mod spare;
mod usage;
mod vm;
mod voices;
mod warm;

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use gpgpu_protocol::layout::{MAX_CLIENTS, status};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{
    account::{Account, Shared},
    ipc,
    log_limit::LogLimit,
    policy::VmPolicy,
};
use client::{Device, Name, Warm, Who, Worker};
use lease::Leases;
use link::{ToDevice, ToSupervisor};
use metrics::{Board, End};
use movers::Movers;
use placement::Placed;
use process::Process;
use spare::{Spare, Spares};
use vm::{CONNECT_PERIOD, Vm};
use voices::Voices;
use warm::Pool;

pub use gpu::{Error as GpuError, Gpu, choose, probe};
pub use movers::MAX_GPUS;
pub use process::{Program, reason};
pub use reload::Reload;
pub use usage::Usage;

/// How long all processes have to be gone once they were killed.
const END_LIMIT: Duration = Duration::from_secs(2);
/// How long a socket is left alone whose next connection can neither be served nor refused.
const PAUSE: Duration = Duration::from_secs(1);

/// What cannot be done without.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket cannot be listened at.
    #[error("Cannot listen at {0}: {1}")]
    Listen(String, #[source] io::Error),
    /// The scheduler cannot be started.
    #[error("Cannot start the scheduler: {0}")]
    Leases(#[source] io::Error),
    /// What workers print cannot be listened to.
    #[error("Cannot listen to workers: {0}")]
    Voices(#[source] io::Error),
    /// The event loop cannot go on.
    #[error("The event loop failed: {0}")]
    Events(event_manager::Error),
}

/// What a supervisor does.
#[derive(Debug, Clone)]
pub struct Config {
    /// The VMs, and what each may have.
    pub vms: Vec<VmPolicy>,
    /// How many GPUs the host has; 0 if that is not known, and then they are all VMs' in the driver's order.
    pub gpus: u32,
    /// How many connections it serves at a time on each of them; more wait.
    pub max_connections: usize,
    /// How device processes are started; their standard input is their [`link`].
    pub device: Program,
    /// How workers are started; their standard input is their [`ipc::WorkerEnd`].
    pub worker: Program,
    /// How many workers are kept ready for clients to come; for all sockets together.
    pub warm_workers: usize,
    /// Where workers' drivers keep what they compile, if anywhere.
    pub cache: Option<cache::Cache>,
    /// Whether VMs that want the same GPU take turns; if not, it is left to the driver.
    pub scheduler: bool,
    /// How movers are started, if there are to be any; the GPU's number follows, and their standard input
    /// is where [`ipc::mover::take_channel`] takes channels.
    pub mover: Option<Program>,
    /// What a context costs on each GPU, in bytes, as [`measure`] found it: a VM's limit counts it.
    pub context_costs: Vec<u64>,
}

/// What a watched descriptor is.
#[derive(Debug, Clone, Copy)]
enum Source {
    Stop,
    Reload,
    Listener(usize),
    Link(u32),
    Device(u32),
    Worker(u32),
    /// The mover of a GPU.
    Mover(u32),
    /// Clients with kernels that ran for too long.
    Leases,
}

/// See the module's page.
pub struct Supervisor {
    config: Config,
    vms: Vec<Vm>,
    devices: HashMap<u32, Device>,
    workers: HashMap<u32, Worker>,
    warm: Pool<Warm>,
    spare: Spares,
    movers: Movers,
    leases: Leases,
    /// Who is there, for the metrics.
    board: Arc<Board>,
    voices: Voices,
    sources: HashMap<u32, Source>,
    last_token: u32,
    stop: i32,
    stopped: bool,
    reload: Option<Reload>,
}

impl Supervisor {
    /// Listens at all sockets.
    ///
    /// # Errors
    /// [`Error::Listen`]; those that were bound before are removed.
    pub fn new(config: Config) -> Result<Self, Error> {
        let vms = config.vms.iter().map(|policy| {
            Vm::new(policy.clone(), config.cache.as_ref(), &config.context_costs)
                .map_err(|error| Error::Listen(policy.socket.display().to_string(), error))
        });
        let vms = vms.collect::<Result<Vec<Vm>, _>>()?;
        let leases = Leases::start(vms.len(), config.scheduler).map_err(Error::Leases)?;
        let ledgers = vms.iter().map(|vm| (&vm.policy, &vm.ledger));
        let board = Board::new(ledgers, config.gpus, Arc::clone(leases.usage()));
        let movers = Movers::new(config.mover.clone());
        let voices = Voices::new().map_err(Error::Voices)?;
        let supervisor = Self {
            warm: Pool::new(config.warm_workers, Instant::now()),
            spare: Spares::new(config.warm_workers > 0, Instant::now()),
            config,
            vms,
            devices: HashMap::new(),
            workers: HashMap::new(),
            movers,
            leases,
            board: Arc::new(board),
            voices,
            sources: HashMap::new(),
            last_token: 0,
            stop: -1,
            stopped: false,
            reload: None,
        };
        supervisor.policies_changed();
        Ok(supervisor)
    }

    /// Makes the VMs' policies known to who acts on them.
    pub fn policies_changed(&self) {
        for (number, vm) in self.vms.iter().enumerate() {
            vm.apply();
            self.leases.set_vm(number, &vm.policy);
            self.board.set_policy(number, &vm.policy);
        }
    }

    /// Has the policy read again, whenever that is asked for.
    pub fn reload_by(&mut self, reload: Reload) {
        self.reload = Some(reload);
    }

    /// Who is there, for [`metrics::Server`].
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Serves until `stop` can be read. Then all processes are gone, and the sockets removed.
    ///
    /// # Errors
    /// [`Error::Events`].
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), Error> {
        self.stop = stop.as_raw_fd();
        let this = Arc::new(Mutex::new(self));
        let mut events = EventManager::<Arc<Mutex<Self>>>::new().map_err(Error::Events)?;
        let id = events.add_subscriber(Arc::clone(&this));
        loop {
            let timeout = {
                let mut this = this.lock().unwrap_or_else(PoisonError::into_inner);
                if this.stopped {
                    break;
                }
                let now = Instant::now();
                let mut ops = events.event_ops(id).map_err(Error::Events)?;
                this.warm_up(now, &mut ops);
                let (warm, movers) = (
                    this.warm.iter_mut().count(),
                    this.movers.processes().count(),
                );
                this.board.set_processes(warm, movers);
                let paused = this.go_on(now, &mut ops);
                let due = [this.warm.due(), this.spare.due(), paused]
                    .into_iter()
                    .flatten()
                    .min();
                let due = due.map(|due| due.saturating_duration_since(now).as_millis() as i32 + 1);
                let timeouts = [Some(this.kill_late(now)), due].into_iter().flatten();
                timeouts.filter(|timeout| *timeout >= 0).min().unwrap_or(-1)
            };
            events.run_with_timeout(timeout).map_err(Error::Events)?;
        }
        tracing::info!("Stopping");
        this.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .end_all();
        Ok(())
    }

    fn token(&mut self, source: Source) -> u32 {
        new_token(&mut self.sources, &mut self.last_token, source)
    }

    /// Watches the listeners that may have another connection.
    fn arm(&mut self, ops: &mut EventOps<'_>) {
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
            if full {
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
    fn go_on(&mut self, now: Instant, ops: &mut EventOps<'_>) -> Option<Instant> {
        for vm in &mut self.vms {
            vm.paused.take_if(|until| *until <= now);
        }
        self.arm(ops);
        self.vms.iter().filter_map(|vm| vm.paused).min()
    }

    /// Starts a device process for the connection that waits at a listener.
    fn connect(&mut self, index: usize, ops: &mut EventOps<'_>) {
        let key = self.token(Source::Device(0));
        let path = self.vms[index].socket.path().to_owned();
        match self.start_device(key, index, ops) {
            Ok(device) => {
                let vm = &mut self.vms[index];
                tracing::info!(
                    vm = vm.policy.name,
                    device = device.process.id(),
                    "{}: VM connected (process {})",
                    path.display(),
                    device.process.id()
                );
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
                if vm.log.allow() {
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
        let socket = &self.vms[index].socket;
        let serve = |spare: Spare| {
            let listener = socket.listener().try_clone()?.into();
            let told = spare.link.send(&ToDevice::Serve { listener });
            told.map(|()| spare).map_err(io::Error::other)
        };
        let spare = self.spare.take(Instant::now());
        let started = match spare.map(serve) {
            Some(Ok(spare)) => spare,
            // There was none, or it has died.
            _ => serve(Spare::start(
                &self.config.device,
                socket.path().as_os_str(),
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
            log: LogLimit::default(),
        })
    }

    /// Handles what a device process says.
    fn hear(&mut self, key: u32, ops: &mut EventOps<'_>) {
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
                    let answer = match self.movers.connect(gpu, key, token, ops) {
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
                    if !matches!(error, ipc::Error::Closed) {
                        tracing::error!("Device process {}: {error}", device.process.id());
                    }
                    device.process.kill();
                    return;
                }
            }
        }
    }

    /// Starts a worker ahead of need, if one is due.
    fn warm_up(&mut self, now: Instant, ops: &mut EventOps<'_>) {
        let label = match &self.vms[..] {
            [only] => only.socket.path().as_os_str(),
            _ => "waiting".as_ref(),
        };
        self.spare.fill(&self.config.device, label, now);
        if !self.warm.is_due(now) {
            return;
        }
        let token = self.token(Source::Worker(0));
        match self.start_process(Path::new("warm"), token, None, ops) {
            Ok((process, channel)) => {
                tracing::debug!("Worker {} waits for a client", process.id());
                self.sources.insert(token, Source::Worker(token));
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
                tracing::warn!("Cannot start a worker ahead of need: {error}; again in {wait:?}");
            }
        }
    }

    /// A worker for a client of a device: a warm one, or a fresh one. It is told that it serves.
    fn find_worker(
        &mut self,
        path: &Path,
        serving: ipc::Serving<Arc<File>>,
        ops: &mut EventOps<'_>,
    ) -> io::Result<Warm> {
        let message = ipc::Message::serve(serving);
        while let Some(mut worker) = self.warm.take(Instant::now()) {
            // One that has died is noticed here or by its event, whichever comes first.
            if worker.process.ended().is_none() && tell(&worker.channel, &message).is_ok() {
                return Ok(worker);
            }
            self.sources.remove(&worker.token);
            let events = Events::with_data(&worker.process, worker.token, EventSet::IN);
            let _ = ops.remove(events);
        }
        let token = self.token(Source::Worker(0));
        let worker = self
            .start_process(path, token, Some(&message), ops)
            .map(|(process, channel)| Warm {
                process,
                channel,
                token,
            })
            .inspect_err(|_| {
                self.sources.remove(&token);
            })?;
        self.sources.insert(token, Source::Worker(token));
        Ok(worker)
    }

    /// A worker for the client at a place of a VM's ledger, and what it shares with the supervisor.
    fn serve(
        &mut self,
        vm: usize,
        slot: u32,
        path: &Path,
        ops: &mut EventOps<'_>,
    ) -> io::Result<(Warm, Arc<Shared<Account>>, Option<u32>)> {
        let gpus = self.gpus_for(vm);
        let first = gpus.first().copied();
        let account = Arc::new(Shared::<Account>::new(c"gpgpu-account")?);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let doorbell: Arc<File> = Arc::new(OwnedFd::from(EventFd::from_flags(flags)?).into());
        let serving = ipc::Serving {
            account: Arc::clone(account.file()),
            ledger: Arc::clone(self.vms[vm].ledger.file()),
            doorbell: Arc::clone(&doorbell),
            cache: self.vms[vm].cache.clone(),
            slot,
            gpus,
        };
        let worker = self.find_worker(path, serving, ops)?;
        self.leases.join(worker.token, vm, &account, &doorbell);
        Ok((worker, account, first))
    }

    /// The GPUs for a new client of a VM, in the order in which it sees them.
    fn gpus_for(&self, vm: usize) -> Vec<u32> {
        let workers = self.workers.values().filter(|worker| !worker.closed);
        let clients: Vec<Placed> = workers
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
        let policy = &self.vms[vm].policy;
        let allowed = policy.gpus.clone();
        let allowed = allowed.unwrap_or_else(|| (0..self.config.gpus).collect());
        placement::order(allowed, (vm, policy.weight), &clients, charged)
    }

    /// Starts a worker, and gives back the device's end of its channel. One that has a client finds the message that says so as it
    /// starts: it must not take itself for one that has none, which ends where it has no GPU.
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
        let program = &self.config.worker;
        let process = program.start_heard(theirs, path.as_os_str(), &self.voices)?;
        ops.add(Events::with_data(&process, token, EventSet::IN))
            .map_err(io::Error::other)?;
        Ok((process, channel))
    }

    fn start_worker(
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
        let is_new = device.workers.len() < MAX_CLIENTS && !device.workers.contains_key(&client);
        let slot = is_new.then(|| self.vms[vm].take_slot()).flatten();
        let found = match slot {
            Some(slot) => self.serve(vm, slot, &path, ops),
            None => Err(io::Error::other("it has as many workers as it may have")),
        };
        if let (Err(_), Some(slot)) = (&found, slot) {
            self.vms[vm].give_slot(slot);
        }
        let Some(device) = self.devices.get_mut(&key) else {
            return;
        };
        let answer = match found {
            Ok((worker, account, gpu)) => {
                let Warm {
                    process,
                    channel,
                    token,
                } = worker;
                let slot = slot.unwrap_or_default();
                self.board.opened(vm, &who, process.id(), slot, &account);
                self.voices.assign(process.id(), &self.vms[vm].said);
                if device.log.allow() {
                    tracing::info!(
                        vm = who.vm,
                        client,
                        name = who.name,
                        guest_process = pid,
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
                    slot,
                    gpu,
                    who,
                    deadline: None,
                    closed: false,
                    killed: false,
                    expired: false,
                };
                self.workers.insert(token, worker);
                device.workers.insert(client, token);
                ToDevice::WorkerStarted {
                    client,
                    channel: channel.into(),
                }
            }
            Err(error) => {
                self.board.refused(vm);
                if device.log.allow() {
                    tracing::error!(
                        vm = who.vm,
                        client,
                        name = who.name,
                        guest_process = pid,
                        reason = End::Refused.label(),
                        "{who}: cannot start a worker: {error}"
                    );
                }
                ToDevice::WorkerFailed {
                    client,
                    status: status::NO_RESOURCES,
                }
            }
        };
        device.tell(&answer);
    }

    fn device_ended(&mut self, key: u32, ops: &mut EventOps<'_>) {
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
        for worker in device.workers.values() {
            if let Some(worker) = self.workers.get_mut(worker) {
                worker.close(false);
            }
        }
        let vm = &mut self.vms[device.vm];
        vm.connections -= 1;
        self.board.set_connections(device.vm, vm.connections);
        if !device.accepted {
            vm.accepting = false;
            vm.socket.reject();
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

    /// A worker that no client had yet is gone, if it was one.
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
            tracing::warn!(
                worker = worker.process.id(),
                reason = reason(ended),
                "Worker {} died before a client came: {}; another in {wait:?}",
                worker.process.id(),
                reason(ended)
            );
        }
    }

    fn worker_ended(&mut self, token: u32, ops: &mut EventOps<'_>) {
        self.warm_ended(token, ops);
        let Some(ended) = self
            .workers
            .get_mut(&token)
            .and_then(|worker| worker.process.ended())
        else {
            return;
        };
        let Some(worker) = self.workers.remove(&token) else {
            return;
        };
        self.sources.remove(&token);
        let _ = ops.remove(Events::with_data(&worker.process, token, EventSet::IN));
        self.leases.leave(token);
        let end = worker.end(ended, || self.board.out_of_memory());
        self.board.ended(worker.vm, worker.process.id(), end);
        self.vms[worker.vm].give_slot(worker.slot);
        let device = self.devices.get_mut(&worker.device);
        let limit = device.map(|device| {
            device.workers.remove(&worker.client);
            device.tell(&ToDevice::WorkerExited {
                client: worker.client,
                code: ended.code().unwrap_or(0) as u32,
                signal: ended.signal().unwrap_or(0) as u32,
            });
            &mut device.log
        });
        worker.log_end(ended, end, limit);
    }

    /// Ends the workers of clients whose kernels ran for longer than they may.
    fn end_expired(&mut self) {
        for token in self.leases.take_expired() {
            if let Some(worker) = self.workers.get_mut(&token) {
                worker.expire(self.vms[worker.vm].policy.longest_kernel);
            }
        }
    }

    fn mover_ended(&mut self, gpu: u32, token: u32, ops: &mut EventOps<'_>) {
        let Some(ended) = self.movers.ended(gpu, token, ops) else {
            return;
        };
        self.sources.remove(&token);
        for key in ended.users {
            if let Some(device) = self.devices.get_mut(&key) {
                device.tell(&ToDevice::MoverExited { gpu: ended.gpu });
            }
        }
    }

    /// Kills workers that had their time, and says in how many milliseconds the next has.
    fn kill_late(&mut self, now: Instant) -> i32 {
        let mut timeout = -1;
        for worker in self.workers.values_mut() {
            let Some(deadline) = worker.deadline else {
                continue;
            };
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                worker.deadline = None;
                worker.kill();
            } else {
                let left = left.as_millis() as i32 + 1;
                timeout = if timeout < 0 { left } else { timeout.min(left) };
            }
        }
        timeout
    }

    /// Ends all processes, and waits until they are gone, but not for ever.
    fn end_all(&mut self) {
        let devices = self.devices.values_mut().map(|device| &mut device.process);
        let workers = self.workers.values_mut().map(|worker| &mut worker.process);
        let warm = self.warm.iter_mut().map(|worker| &mut worker.process);
        let all = devices
            .chain(workers)
            .chain(warm)
            .chain(self.spare.process());
        let mut processes: Vec<&mut Process> = all.chain(self.movers.processes()).collect();
        for process in &mut processes {
            process.kill();
        }
        let deadline = Instant::now() + END_LIMIT;
        for process in &mut processes {
            if !process.wait(deadline) {
                tracing::error!("Process {} does not end", process.id());
            }
        }
        self.devices.clear();
        self.warm.clear();
        self.spare.clear();
        self.workers.clear();
        self.movers.clear();
        self.vms.clear();
    }
}

/// A number for a descriptor to be watched, and what it stands for.
fn new_token(sources: &mut HashMap<u32, Source>, last: &mut u32, source: Source) -> u32 {
    loop {
        *last = last.wrapping_add(1);
        if !sources.contains_key(last) {
            break;
        }
    }
    sources.insert(*last, source);
    *last
}

fn tell(channel: &ipc::DeviceEnd, message: &ipc::Message) -> io::Result<()> {
    match channel.send(message) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(io::Error::other(error)),
    }
}

impl MutEventSubscriber for Supervisor {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        for index in 0..self.vms.len() {
            self.vms[index].token = self.token(Source::Listener(index));
        }
        let token = self.token(Source::Stop);
        if let Err(error) = ops.add(Events::with_data_raw(self.stop, token, EventSet::IN)) {
            tracing::error!("Cannot watch for signals: {error}");
            self.stopped = true;
        }
        let token = self.token(Source::Reload);
        if let Some(reload) = &self.reload
            && let Err(error) = ops.add(Events::with_data(reload, token, EventSet::IN))
        {
            tracing::error!("Cannot watch for SIGHUP: {error}");
        }
        let token = self.token(Source::Leases);
        if let Err(error) = ops.add(Events::with_data(&self.leases, token, EventSet::IN)) {
            tracing::error!("Cannot watch the scheduler: {error}");
            self.stopped = true;
        }
        self.arm(ops);
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        match self.sources.get(&events.data()) {
            Some(Source::Stop) => self.stopped = true,
            Some(Source::Reload) => self.reload(),
            Some(&Source::Listener(index)) if !self.vms[index].accepting => {
                self.connect(index, ops);
            }
            Some(&Source::Link(key)) => self.hear(key, ops),
            Some(&Source::Device(key)) => {
                // What it said last comes first.
                self.hear(key, ops);
                self.device_ended(key, ops);
            }
            Some(&Source::Worker(token)) => self.worker_ended(token, ops),
            Some(Source::Leases) => self.end_expired(),
            Some(&Source::Mover(gpu)) => self.mover_ended(gpu, events.data(), ops),
            Some(Source::Listener(_)) | None => {}
        }
        self.arm(ops);
    }
}
