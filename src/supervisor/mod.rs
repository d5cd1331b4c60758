// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor: it starts and watches all other processes. Of guests it reads only names, printed lines and
//! counters.
//!
//! It starts a device process for each connection of a VMM, and a worker for each client that a device process opens;
//! it passes the worker's channel to the device process. It starts a mover for each GPU, to which device processes get
//! channels too. The only data of a guest that reaches it are the name and number of a guest process, which it logs.

pub mod cache;
mod child_output;
mod client;
mod connections;
mod gpu;
mod helper;
mod hold;
mod lease;
pub mod measure;
pub mod metrics;
mod movers;
mod peers;
mod placement;
mod process;
mod reload;
pub mod sensors;
mod socket;
mod spare;
mod usage;
mod vm;
mod warm;
mod workers;

use std::{
    collections::HashMap,
    fs::File,
    io::{self, PipeReader},
    os::fd::{AsRawFd, BorrowedFd},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber, SubscriberOps};
use vmm_sys_util::{errno, timerfd::TimerFd};

use crate::{
    ipc::device::ToDevice,
    policy::{Libraries, VmPolicy},
};
use child_output::ChildOutputs;
use client::{Device, Warm, Worker};
use lease::Leases;
use metrics::Board;
use movers::Movers;
use process::Process;
use sensors::Sensors;
use spare::Spares;
use vm::Vm;
use warm::Pool;

pub use gpu::{Chosen, Error as GpuError, Gpu, choose, probe};
pub use process::{Program, reason};
pub use reload::Reload;
pub use usage::Usage;

/// The time after the kill of all processes until the log names those that have not ended.
const END_LIMIT: Duration = Duration::from_secs(2);
/// The maximum wait for them after that. systemd waits for 90 s.
const STUCK_LIMIT: Duration = Duration::from_secs(60);

/// A fatal error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A socket cannot be bound.
    #[error("Cannot listen at {0}: {1}")]
    Listen(String, #[source] io::Error),
    /// The scheduler cannot be started.
    #[error("Cannot start the scheduler: {0}")]
    Leases(#[source] io::Error),
    /// The thread for sensors cannot be started.
    #[error("Cannot start to read sensors: {0}")]
    Sensors(#[source] io::Error),
    /// The output of workers cannot be read.
    #[error("Cannot watch workers: {0}")]
    ChildOutputs(#[source] io::Error),
    /// The host is out of file descriptors.
    #[error("Cannot make a timer: {0}")]
    Timer(#[source] errno::Error),
    /// The event loop failed.
    #[error("The event loop failed: {0}")]
    Events(event_manager::Error),
}

/// The configuration of a supervisor.
#[derive(Debug, Clone)]
pub struct Config {
    /// The VMs and their limits.
    pub vms: Vec<VmPolicy>,
    /// The number of GPUs of the host; 0 if unknown, in which case all VMs get all GPUs in the driver's order.
    pub gpus: u32,
    /// The maximum number of connections at a time on each socket; more wait.
    pub max_connections: usize,
    /// The program of device processes; their standard input is their [`DeviceEnd`](crate::ipc::device::DeviceEnd).
    pub device: Program,
    /// The program of workers; their standard input is their [`crate::ipc::WorkerEnd`].
    pub worker: Program,
    /// The number of workers that are kept ready for clients, for all sockets together.
    pub warm_workers: usize,
    /// The directory of the compile caches, if any.
    pub cache: Option<cache::Cache>,
    /// Whether VMs that want the same GPU take turns; if not, the driver schedules them.
    pub scheduler: bool,
    /// Whether workers and movers keep VMMs' connections open (see `hold.rs`). This requires that system calls outside
    /// their list kill them.
    pub may_hold: bool,
    /// The program of movers, if they are enabled; the GPU's number is appended. [`crate::ipc::mover::take_order`]
    /// receives orders from their standard input.
    pub mover: Option<Program>,
    /// The size of a context on each GPU, in bytes, as measured by [`measure`]: a VM's limit includes it.
    pub context_costs: Vec<u64>,
    /// The program that reads the GPUs' sensors, if enabled. [`sensors::nvml`] receives questions from its standard
    /// input.
    pub sensors: Option<Program>,
}

/// The meaning of a watched descriptor.
///
/// The supervisor is one subscriber, not one for each source. event-manager lets a handler add descriptors only to its
/// own subscriber, and the handler of one source starts and ends others: a device process's message starts and ends
/// workers.
#[derive(Debug, Clone, Copy)]
enum Source {
    Stop,
    Reload,
    Listener(usize),
    /// The timer for the next action.
    Timer,
    /// The link to the device process with this token.
    Link(u32),
    Device,
    Worker,
    /// The channel of the worker with this token for connections to other workers.
    Peers(u32),
    /// The mover of a GPU.
    Mover(u32),
    /// A channel of a device process that has ended. A mover is about to leave it.
    Left,
    /// Clients with kernels that ran for too long.
    Leases,
}

/// See the module's documentation.
pub struct Supervisor {
    config: Config,
    vms: Vec<Vm>,
    devices: HashMap<u32, Device>,
    workers: HashMap<u32, Worker>,
    /// The holds of connections whose device process has ended, while a mover may still copy for it.
    held: HashMap<u32, (PipeReader, Arc<File>)>,
    warm: Pool<Warm>,
    spare: Spares,
    movers: Movers,
    leases: Leases,
    sensors: Sensors,
    /// The VMs and clients, for the metrics.
    board: Arc<Board>,
    outputs: ChildOutputs,
    sources: HashMap<u32, Source>,
    last_token: u32,
    /// Expires when the next action is due.
    timer: TimerFd,
    /// The last worker's number for other workers.
    last_number: u64,
    stop: i32,
    stopped: bool,
    reload: Option<Reload>,
    libraries: Libraries,
    /// The directory of libraries if the policy names none.
    own_libraries: Option<PathBuf>,
}

impl Supervisor {
    /// Binds all sockets.
    ///
    /// # Errors
    /// See [`Error`]; sockets that were already bound are removed.
    pub fn new(config: Config) -> Result<Self, Error> {
        let vms = config.vms.iter().map(|policy| {
            Vm::new(policy.clone(), config.cache.as_ref(), &config.context_costs)
                .map_err(|error| Error::Listen(policy.socket.display().to_string(), error))
        });
        let vms = vms.collect::<Result<Vec<Vm>, _>>()?;
        let leases = Leases::start(vms.len(), config.scheduler).map_err(Error::Leases)?;
        for (number, vm) in vms.iter().enumerate() {
            leases.usage().tell(number, &vm.ledger);
        }
        let ledgers = vms.iter().map(|vm| (&vm.policy, &vm.ledger, &vm.terms));
        let board = Board::new(ledgers, config.gpus, Arc::clone(leases.usage()));
        let movers = Movers::new(config.mover.clone());
        let terms = vms.iter().map(|vm| Arc::clone(&vm.terms)).collect();
        let sensors = Sensors::start(config.sensors.clone(), terms).map_err(Error::Sensors)?;
        let outputs = ChildOutputs::new().map_err(Error::ChildOutputs)?;
        let supervisor = Self {
            warm: Pool::new(config.warm_workers, Instant::now()),
            spare: Spares::new(config.warm_workers > 0, Instant::now()),
            config,
            vms,
            devices: HashMap::new(),
            workers: HashMap::new(),
            held: HashMap::new(),
            movers,
            leases,
            sensors,
            board: Arc::new(board),
            outputs,
            sources: HashMap::new(),
            last_token: 0,
            timer: TimerFd::new().map_err(Error::Timer)?,
            last_number: 0,
            stop: -1,
            stopped: false,
            reload: None,
            libraries: Libraries::default(),
            own_libraries: None,
        };
        supervisor.policies_changed();
        Ok(supervisor)
    }

    /// Passes the VMs' policies to the processes and threads that apply them.
    pub fn policies_changed(&self) {
        for (number, vm) in self.vms.iter().enumerate() {
            vm.apply();
            self.leases.set_vm(number, &vm.policy);
            self.board.set_policy(number, &vm.policy);
            self.movers.set_weight(vm.tenant(number));
        }
    }

    /// Sets the source of new policies at run time.
    pub fn reload_by(&mut self, reload: Reload) {
        self.reload = Some(reload);
    }

    /// Has workers open NVIDIA's libraries in the directories of the policy, or in `own` if it names none.
    pub fn offer_libraries(&mut self, libraries: Libraries, own: Option<PathBuf>) {
        self.libraries = libraries.or(own.as_deref());
        self.own_libraries = own;
    }

    /// The VMs and clients, for [`metrics::Server`].
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Serves until `stop` is readable. Then all processes are ended, and the sockets are removed.
    ///
    /// # Errors
    /// [`Error::Events`].
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), Error> {
        self.stop = stop.as_raw_fd();
        let mut events = EventManager::new().map_err(Error::Events)?;
        let id = events.add_subscriber(self);
        while !events.subscriber_mut(id).map_err(Error::Events)?.stopped {
            events.run().map_err(Error::Events)?;
        }
        let mut this = events.remove_subscriber(id).map_err(Error::Events)?;
        tracing::info!("Stopping");
        this.end_all();
        Ok(())
    }

    /// Executes the actions that are due, and sets the timer for the next one.
    fn go_on(&mut self, ops: &mut EventOps<'_>) {
        let now = Instant::now();
        self.warm_up(now, ops);
        let warm = self.warm.iter_mut().count();
        self.board
            .set_processes(warm, self.movers.processes().count());
        let resumed = self.resume(now);
        self.arm(ops);
        let late = self.kill_late(now);
        let due = [self.warm.due(), self.spare.due(), resumed, late];
        // Setting a timer fails only for an invalid time. It also clears an earlier expiration.
        let _ = match due.into_iter().flatten().min() {
            // A time of zero would disarm it.
            Some(due) => {
                let left = due.saturating_duration_since(Instant::now());
                self.timer.reset(left.max(Duration::from_nanos(1)), None)
            }
            None => self.timer.clear(),
        };
    }

    fn token(&mut self, source: Source) -> u32 {
        new_token(&mut self.sources, &mut self.last_token, source)
    }

    fn mover_ended(&mut self, gpu: u32, token: u32, ops: &mut EventOps<'_>) {
        let Some(ended) = self.movers.ended(gpu, token, ops) else {
            return;
        };
        self.sources.remove(&token);
        self.outputs.forget(ended.process);
        for key in ended.users {
            if let Some(device) = self.devices.get_mut(&key) {
                device.tell(&ToDevice::MoverExited { gpu: ended.gpu });
            }
        }
    }

    /// Ends all processes, and waits for them for a limited time. Until then connections stay open; see [`hold`].
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
        process::wait_for_all(processes, END_LIMIT, STUCK_LIMIT);
        self.held.clear();
        self.devices.clear();
        self.warm.clear();
        self.spare.clear();
        self.workers.clear();
        self.movers.clear();
        self.vms.clear();
    }
}

/// A number for a new descriptor to watch, and its meaning.
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

impl MutEventSubscriber for Supervisor {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        for index in 0..self.vms.len() {
            self.vms[index].token = self.token(Source::Listener(index));
        }
        let needed = [
            (self.stop, Source::Stop, "for signals"),
            (self.timer.as_raw_fd(), Source::Timer, "the timer"),
            (self.leases.as_raw_fd(), Source::Leases, "the scheduler"),
        ];
        for (fd, source, what) in needed {
            let token = self.token(source);
            if let Err(error) = ops.add(Events::with_data_raw(fd, token, EventSet::IN)) {
                tracing::error!("Cannot watch {what}: {error}");
                self.stopped = true;
            }
        }
        let token = self.token(Source::Reload);
        if let Some(reload) = &self.reload
            && let Err(error) = ops.add(Events::with_data(reload, token, EventSet::IN))
        {
            tracing::error!("Cannot watch for SIGHUP: {error}");
        }
        self.go_on(ops);
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        let token = events.data();
        match self.sources.get(&token) {
            Some(Source::Stop) => self.stopped = true,
            Some(Source::Reload) => self.reload(ops),
            Some(&Source::Listener(index)) => self.connect(index, ops),
            Some(&Source::Link(device)) => self.hear(device, ops),
            Some(Source::Device) => {
                // Its last messages are handled first.
                self.hear(token, ops);
                self.device_ended(token, ops);
            }
            Some(Source::Worker) => self.worker_ended(token, ops),
            Some(&Source::Peers(worker)) => self.hear_worker(worker, ops),
            Some(Source::Leases) => self.end_expired(),
            Some(Source::Left) => self.mover_left(token, ops),
            Some(&Source::Mover(gpu)) => self.mover_ended(gpu, token, ops),
            Some(Source::Timer) | None => {}
        }
        if !self.stopped {
            self.go_on(ops);
        }
    }
}
