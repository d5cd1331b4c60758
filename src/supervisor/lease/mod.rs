// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Leases: they determine which worker may submit work to a GPU, and when.
//!
//! A thread of the supervisor decides ([`schedule`]). Workers and this thread share words of memory
//! ([`crate::account::Lease`]): a worker that waits rings its doorbell, an eventfd, and a grant wakes it by a futex. So
//! a worker that has the GPU sends no request, and other work of the supervisor delays no worker.

mod bells;
mod schedule;

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::{
        Arc,
        atomic::Ordering::SeqCst,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gpgpu_protocol::futex;
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    eventfd::{EfdFlags, EventFd},
};

use crate::{
    account::{Account, GPUS, Lease, Shared, grant, monotonic},
    policy::VmPolicy,
    supervisor::usage::Usage,
};
use bells::Bells;
use schedule::{Action, Client, Schedule, Terms};

/// The GPU time of submitted, unfinished work while several VMs want the GPU.
const SLICE: Duration = Duration::from_millis(3);
/// The maximum number of submitted, unfinished commands in a VM whose kernels have a time limit: the limit applies to
/// all commands in flight together.
const MOST_WATCHED: u32 = 32;
/// The maximum interval between two updates of the VMs' GPU time while the GPU is shared.
const NOTE: Duration = Duration::from_millis(100);
/// The difference between the numbers of successive grants.
const STEP: u32 = grant::MODE + 1;
/// The number of the thread's own eventfd in its event loop. No client has this number.
const ORDERS: u64 = u64::MAX;

/// The reason to end a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// A kernel ran for longer than the VM's limit.
    Kernel,
    /// Its work stayed on a GPU for too long after its turn.
    Overrun,
    /// Its doorbell cannot be watched, so it would wait for a GPU for ever.
    Unwatched,
}

enum Order {
    Vm {
        vm: usize,
        terms: Terms,
        longest_kernel: Option<Duration>,
    },
    Join {
        client: Client,
        vm: usize,
        account: Arc<Shared<Account>>,
        doorbell: Arc<File>,
        gpus: u64,
    },
    Leave(Client),
}

/// The supervisor's handle of the thread.
#[derive(Debug)]
pub struct Leases {
    orders: Option<Sender<Order>>,
    bell: Arc<EventFd>,
    expired: Receiver<(Client, Late)>,
    expiry: Arc<EventFd>,
    usage: Arc<Usage>,
    thread: Option<JoinHandle<()>>,
}

fn eventfd() -> io::Result<Arc<EventFd>> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    Ok(Arc::new(EventFd::from_flags(flags)?))
}

impl Leases {
    /// Starts the thread for `vms` VMs. Without scheduling, all clients may use all GPUs at any time.
    ///
    /// # Errors
    /// The host is out of file descriptors or threads.
    pub fn start(vms: usize, is_scheduled: bool) -> io::Result<Self> {
        let (bell, expiry) = (eventfd()?, eventfd()?);
        let (orders, ordered) = channel();
        let (expire, expired) = channel();
        let usage = Arc::new(Usage::new(vms));
        let mut leases = Self {
            orders: None,
            bell: Arc::clone(&bell),
            expired,
            expiry: Arc::clone(&expiry),
            usage: Arc::clone(&usage),
            thread: None,
        };
        if is_scheduled {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            epoll.add(&*bell, EpollEvent::new(EpollFlags::EPOLLIN, ORDERS))?;
            let mut scheduler = Scheduler {
                epoll,
                bell,
                orders: ordered,
                expire,
                expiry,
                usage,
                vms: HashMap::new(),
                clients: BTreeMap::new(),
                bells: Bells::default(),
                next_look: Instant::now(),
                gpus: (0..GPUS).map(|_| Schedule::default()).collect(),
                looks: vec![None; GPUS],
            };
            let thread = std::thread::Builder::new().name("leases".into());
            leases.thread = Some(thread.spawn(move || scheduler.run())?);
            leases.orders = Some(orders);
        }
        Ok(leases)
    }

    /// The time that the VMs had on the GPUs under paced grants.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.usage
    }

    /// Sets a VM's weight and limits.
    pub fn set_vm(&self, vm: usize, policy: &VmPolicy) {
        self.order(Order::Vm {
            vm,
            terms: Terms {
                weight: policy.weight,
                is_watched: policy.longest_kernel.is_some(),
                overrun_limit: policy.overrun_limit,
            },
            longest_kernel: policy.longest_kernel,
        });
    }

    /// Adds a client with a worker, which may use these GPUs; an empty list means all.
    pub fn join(
        &self,
        client: Client,
        vm: usize,
        account: &Arc<Shared<Account>>,
        doorbell: &Arc<File>,
        gpus: &[u32],
    ) {
        if self.orders.is_none() {
            for lease in &account.leases {
                lease.grant.store(STEP | grant::OPEN, SeqCst);
            }
        }
        self.order(Order::Join {
            client,
            vm,
            account: Arc::clone(account),
            doorbell: Arc::clone(doorbell),
            gpus: bits(gpus),
        });
    }

    /// Removes a client whose worker has ended.
    pub fn leave(&self, client: Client) {
        self.order(Order::Leave(client));
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_ok()
        {
            let _ = self.bell.write(1);
        }
    }

    /// The clients that kept a GPU for longer than allowed, since the last call. [`Self::as_fd`] is readable if there
    /// are any.
    pub fn take_expired(&self) -> Vec<(Client, Late)> {
        let _ = self.expiry.read();
        self.expired.try_iter().collect()
    }
}

impl AsFd for Leases {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.expiry.as_fd()
    }
}

impl AsRawFd for Leases {
    fn as_raw_fd(&self) -> i32 {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.bell.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// GPUs as the bits of a word; an empty list means all.
fn bits(gpus: &[u32]) -> u64 {
    match gpus {
        [] => u64::MAX,
        _ => gpus
            .iter()
            .fold(0, |bits, gpu| bits | 1 << (gpu % u64::BITS)),
    }
}

/// The thread's state of a client.
struct Member {
    vm: usize,
    account: Arc<Shared<Account>>,
    doorbell: Arc<File>,
    /// The GPUs that it may use, a bit for each. The worker itself may claim to use any.
    gpus: u64,
    /// By GPU.
    grants: BTreeMap<usize, Granted>,
    /// Whether it was found to run a kernel for too long.
    is_expired: bool,
}

/// A client's grants on one GPU.
#[derive(Default)]
struct Granted {
    /// The number of the last grant.
    number: u32,
    /// The numbers of the grants that were not returned yet, oldest first.
    out: Vec<u32>,
}

struct Scheduler {
    epoll: Epoll,
    bell: Arc<EventFd>,
    orders: Receiver<Order>,
    expire: Sender<(Client, Late)>,
    expiry: Arc<EventFd>,
    usage: Arc<Usage>,
    /// The maximum run time of each VM's kernels.
    vms: HashMap<usize, Option<Duration>>,
    clients: BTreeMap<Client, Member>,
    bells: Bells,
    /// The time of the next check of clients that ring too often.
    next_look: Instant,
    gpus: Vec<Schedule>,
    /// The time of the next check of each GPU, in nanoseconds.
    looks: Vec<Option<u64>>,
}

impl Scheduler {
    fn run(&mut self) {
        let mut events = [EpollEvent::empty(); 64];
        loop {
            let ready = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(ready) => ready,
                Err(nix::errno::Errno::EINTR) => 0,
                Err(error) => {
                    tracing::error!("The scheduler failed: {error}");
                    return;
                }
            };
            let mut due = 0_u64;
            for event in &events[..ready] {
                match event.data() {
                    ORDERS => {
                        let _ = self.bell.read();
                        loop {
                            match self.orders.try_recv() {
                                Ok(order) => due |= self.obey(order),
                                Err(TryRecvError::Empty) => break,
                                Err(TryRecvError::Disconnected) => return,
                            }
                        }
                    }
                    client => due |= self.rung(client as Client),
                }
            }
            due |= self.hear_muffled();
            let now = monotonic();
            for gpu in 0..GPUS {
                if due & 1 << gpu != 0 || self.looks[gpu].is_some_and(|look| look <= now) {
                    self.decide(gpu, now);
                    self.find_overrunning(gpu, now);
                }
            }
            self.find_expired(now);
        }
    }

    /// The time until the next action.
    fn timeout(&self) -> EpollTimeout {
        let now = monotonic();
        let watch = self.watch_interval().map(|watch| now + watch);
        let is_muffled = !self.bells.muffled().is_empty();
        let muffled = is_muffled.then(|| now + bells::LOOK.as_nanos() as u64);
        let looks = self.looks.iter().copied().flatten();
        match looks.chain(watch).chain(muffled).min() {
            None => EpollTimeout::NONE,
            Some(look) => {
                let left = look.saturating_sub(now).div_ceil(1_000_000);
                EpollTimeout::try_from(left.min(60_000) as i32).unwrap_or(EpollTimeout::ZERO)
            }
        }
    }

    fn obey(&mut self, order: Order) -> u64 {
        match order {
            Order::Vm {
                vm,
                terms,
                longest_kernel,
            } => {
                self.vms.insert(vm, longest_kernel);
                for gpu in &mut self.gpus {
                    gpu.set_vm(vm, terms);
                }
                // The VM's clients may have grants that its new terms do not allow.
                u64::MAX
            }
            Order::Join {
                client,
                vm,
                account,
                doorbell,
                gpus,
            } => {
                if let Err(error) = Bells::add(&self.epoll, client, &doorbell) {
                    tracing::error!("A client cannot be scheduled: {error}");
                    self.give_up(client, Late::Unwatched);
                    return 0;
                }
                let member = Member {
                    vm,
                    account,
                    doorbell,
                    gpus,
                    grants: BTreeMap::new(),
                    is_expired: false,
                };
                self.clients.insert(client, member);
                // It may have rung before its bell was watched.
                self.hear(client)
            }
            Order::Leave(client) => {
                let Some(member) = self.clients.remove(&client) else {
                    return 0;
                };
                self.bells.remove(&self.epoll, client, &member.doorbell);
                let now = monotonic();
                let mut due = 0;
                for gpu in member.grants.keys() {
                    self.gpus[*gpu].leave(client, now);
                    due |= 1 << gpu;
                }
                due
            }
        }
    }

    /// Handles a ring of a client's doorbell; returns the GPUs that it affects, a bit for each.
    fn rung(&mut self, client: Client) -> u64 {
        if let Some(member) = self.clients.get(&client) {
            let now = Instant::now();
            self.bells
                .rung(&self.epoll, client, member.vm, &member.doorbell, now);
        }
        self.hear(client)
    }

    /// Reads the accounts of clients that ring too often for events.
    fn hear_muffled(&mut self) -> u64 {
        let mut due = 0;
        let now = Instant::now();
        if self.bells.muffled().is_empty() || now < self.next_look {
            return due;
        }
        self.next_look = now + bells::LOOK;
        for client in self.bells.muffled().clone() {
            due |= self.hear(client);
            if let Some(member) = self.clients.get(&client) {
                self.bells
                    .unmuffle(&self.epoll, client, member.vm, &member.doorbell, now);
            }
        }
        due
    }

    /// Reads a client's account. Returns the GPUs whose state may have changed, a bit for each.
    fn hear(&mut self, client: Client) -> u64 {
        let Some(member) = self.clients.get_mut(&client) else {
            return 0;
        };
        let now = monotonic();
        let used = member.account.used.load(SeqCst) & member.gpus;
        for gpu in (0..GPUS).filter(|gpu| used & 1 << gpu != 0) {
            let schedule = &mut self.gpus[gpu];
            let granted = member.grants.entry(gpu).or_insert_with(|| {
                schedule.join(client, member.vm);
                Granted::default()
            });
            let lease = &member.account.leases[gpu];
            let returned = lease.returned.load(SeqCst);
            if let Some(place) = granted.out.iter().position(|number| *number == returned) {
                granted.out.drain(..=place);
                if granted.out.is_empty() {
                    schedule.came_back(client, now);
                } else {
                    schedule.overrun_ended(client, now);
                }
            }
            let is_last = granted.out.last() == Some(&lease.ending.load(SeqCst));
            if is_last && !granted.out.is_empty() {
                schedule.is_ending(client, now);
            }
            let burst = lease.burst_ns.load(SeqCst);
            schedule.wants(client, lease.wants.load(SeqCst) > 0, burst, now);
        }
        used
    }

    fn decide(&mut self, gpu: usize, now: u64) {
        let (actions, look) = self.gpus[gpu].decide(now);
        for (vm, time) in self.gpus[gpu].take_had() {
            self.usage.add(vm, gpu, Duration::from_nanos(time));
        }
        self.looks[gpu] = match self.gpus[gpu].is_paced() {
            true => Some(look.unwrap_or(u64::MAX).min(now + NOTE.as_nanos() as u64)),
            false => look,
        };
        for action in actions {
            let client = action.client();
            let Some(member) = self.clients.get_mut(&client) else {
                continue;
            };
            let is_watched = self.vms.get(&member.vm).is_some_and(Option::is_some);
            let Some(granted) = member.grants.get_mut(&gpu) else {
                continue;
            };
            tracing::trace!(gpu, vm = member.vm, at = now / 1000, "{action:?}");
            granted.carry_out(action, &member.account.leases[gpu], is_watched);
        }
    }

    /// The maximum interval between two checks of the kernels in flight, in nanoseconds; `None` if no kernel has a
    /// limit.
    fn watch_interval(&self) -> Option<u64> {
        let limits = self.clients.values().filter(|member| {
            let mut grants = member.grants.values();
            !member.is_expired && grants.any(|granted| !granted.out.is_empty())
        });
        let limits = limits.filter_map(|member| *self.vms.get(&member.vm)?);
        let shortest = limits.min()?.as_nanos() as u64;
        Some((shortest / 4).clamp(5_000_000, 250_000_000))
    }

    /// Finds the clients with a kernel in flight for longer than its limit.
    fn find_expired(&mut self, now: u64) {
        let mut expired = Vec::new();
        for (client, member) in &mut self.clients {
            let Some(limit) = self.vms.get(&member.vm).copied().flatten() else {
                continue;
            };
            let is_late = |gpu: &usize| is_late(&member.account.leases[*gpu], limit, now);
            if !member.is_expired && member.grants.keys().any(is_late) {
                member.is_expired = true;
                expired.push(*client);
            }
        }
        for client in expired {
            self.give_up(client, Late::Kernel);
        }
    }

    /// Finds the clients whose work stays on a GPU for too long after their turn.
    fn find_overrunning(&mut self, gpu: usize, now: u64) {
        for client in self.gpus[gpu].overrunning(now) {
            let member = self.clients.get_mut(&client);
            if let Some(member) = member.filter(|member| !member.is_expired) {
                member.is_expired = true;
                self.give_up(client, Late::Overrun);
            }
        }
    }

    fn give_up(&self, client: Client, late: Late) {
        if self.expire.send((client, late)).is_ok() {
            let _ = self.expiry.write(1);
        }
    }
}

/// Whether commands that are in flight together took longer than the limit of that many kernels: then one of them
/// exceeded its own.
fn is_late(lease: &Lease, limit: Duration, now: u64) -> bool {
    let since = lease.pass_since.load(SeqCst);
    let commands = lease.pass_commands.load(SeqCst).clamp(1, MOST_WATCHED);
    since != 0 && now.saturating_sub(since) as u128 > limit.as_nanos() * u128::from(commands)
}

impl Granted {
    /// Passes the action to the worker.
    fn carry_out(&mut self, action: Action, lease: &Lease, is_watched: bool) {
        let mode = match action {
            Action::Open(_) => grant::OPEN,
            Action::Pace(_) => grant::PACED,
            Action::Revoke(_) => grant::CLOSED,
            // A worker that has the GPU for a turn reads this word continuously.
            Action::Until(_, until) => return lease.until.store(until.unwrap_or(0), SeqCst),
        };
        // A grant that is opened further or revoked keeps its number.
        let is_new = match action {
            Action::Open(_) => self.out.last() != Some(&self.number),
            Action::Pace(_) => true,
            Action::Revoke(_) | Action::Until(..) => false,
        };
        if is_new {
            lease.until.store(0, SeqCst);
            self.number = self.number.wrapping_add(STEP).max(STEP);
            self.out.push(self.number);
        }
        lease.slice.store(SLICE.as_micros() as u32, SeqCst);
        let most = if is_watched { MOST_WATCHED } else { 0 };
        lease.most.store(most, SeqCst);
        lease.grant.store(self.number | mode, SeqCst);
        futex::wake(&lease.grant);
    }
}

#[cfg(test)]
mod tests;
