// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VMs and clients. The supervisor's event loop writes them, and the metrics thread reads them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use gpgpu_locks::{Mutex, MutexGuard};

use super::{ClientStatus, ENDS, End, GpuStatus, Status, Totals, VmStatus, oom::Oom};
use crate::{
    account::{Account, GPUS, Holding, Ledger, Shared, Terms},
    policy::VmPolicy,
    supervisor::{client::Who, usage::Usage},
};

/// See the module's documentation.
pub struct Board {
    started: Instant,
    vms: Vec<Vm>,
    usage: Arc<Usage>,
    oom: Oom,
    /// The number of GPUs of the host.
    gpus: u32,
    warm_workers: AtomicU64,
    movers: AtomicU64,
}

struct Vm {
    name: Mutex<String>,
    socket: String,
    ledger: Arc<Shared<Ledger>>,
    terms: Arc<Terms>,
    gpus: Option<Vec<u32>>,
    weight: AtomicU32,
    max_clients: AtomicU64,
    /// In nanoseconds; 0 for no limit.
    longest_kernel: AtomicU64,
    connections: AtomicU64,
    clients: Mutex<Clients>,
}

/// Each side holds the lock for microseconds, as long as it takes to read all clients' counters.
#[derive(Default)]
struct Clients {
    there: Vec<Client>,
    gone: Totals,
    /// The GPU time of ended clients under open grants, in nanoseconds, in the VM's order of GPUs.
    gone_alone: Vec<u64>,
    opened: u64,
    ends: [u64; ENDS.len()],
}

struct Client {
    who: Arc<Who>,
    worker: u32,
    slot: u32,
    since: Instant,
    account: Arc<Shared<Account>>,
    /// The largest values seen: a worker may write any number, but totals never decrease.
    seen: Totals,
    /// The same for [`crate::account::Lease::busy_ns`], in the VM's order of GPUs.
    seen_alone: Vec<u64>,
}

impl Client {
    fn look(&mut self, gpus: &[u32]) -> Totals {
        self.seen = self.seen.most(Totals::of(&self.account.counters));
        self.seen_alone.resize(gpus.len(), 0);
        for (seen, gpu) in self.seen_alone.iter_mut().zip(gpus) {
            let lease = self.account.leases.get(*gpu as usize);
            let busy = lease.map_or(0, |lease| lease.busy_ns.load(Relaxed));
            *seen = busy.max(*seen);
        }
        self.seen
    }
}

/// Adds to each of `sums`.
fn add_each(sums: &mut Vec<u64>, values: &[u64]) {
    sums.resize(values.len().max(sums.len()), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.saturating_add(*value);
    }
}

impl Vm {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }
}

impl Board {
    /// A board for VMs with these ledgers and limits, without clients, on a host with this many GPUs.
    pub fn new<'a>(
        vms: impl Iterator<Item = (&'a VmPolicy, &'a Arc<Shared<Ledger>>, &'a Arc<Terms>)>,
        gpus: u32,
        usage: Arc<Usage>,
    ) -> Self {
        let vms = vms.map(|(policy, ledger, terms)| Vm {
            name: Mutex::new(policy.name.clone()),
            socket: policy.socket.display().to_string(),
            ledger: Arc::clone(ledger),
            terms: Arc::clone(terms),
            gpus: policy.gpus.clone(),
            weight: AtomicU32::new(0),
            max_clients: AtomicU64::new(0),
            longest_kernel: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            clients: Mutex::default(),
        });
        Self {
            started: Instant::now(),
            vms: vms.collect(),
            usage,
            oom: Oom::new(),
            gpus: gpus.min(GPUS as u32),
            warm_workers: AtomicU64::new(0),
            movers: AtomicU64::new(0),
        }
    }

    /// Sets a VM's name and limits. Its limit of device memory is in its terms.
    pub fn set_policy(&self, vm: usize, policy: &VmPolicy) {
        let Some(vm) = self.vms.get(vm) else { return };
        vm.name.lock().clone_from(&policy.name);
        vm.weight.store(policy.weight, Relaxed);
        vm.max_clients.store(policy.max_clients as u64, Relaxed);
        let longest = policy.longest_kernel.map_or(0, |longest| {
            u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX)
        });
        vm.longest_kernel.store(longest, Relaxed);
    }

    /// Sets the number of a VM's connections.
    pub fn set_connections(&self, vm: usize, connections: usize) {
        if let Some(vm) = self.vms.get(vm) {
            vm.connections.store(connections as u64, Relaxed);
        }
    }

    /// Sets the numbers of warm workers and of running movers.
    pub fn set_processes(&self, warm_workers: usize, movers: usize) {
        self.warm_workers.store(warm_workers as u64, Relaxed);
        self.movers.store(movers as u64, Relaxed);
    }

    /// Adds a client of a VM: the process `worker` serves it, with this slot of the VM's ledger.
    pub fn opened(
        &self,
        vm: usize,
        who: &Arc<Who>,
        worker: u32,
        slot: u32,
        account: &Arc<Shared<Account>>,
    ) {
        let Some(vm) = self.vms.get(vm) else { return };
        let mut clients = vm.clients();
        clients.opened += 1;
        clients.there.push(Client {
            who: Arc::clone(who),
            worker,
            slot,
            since: Instant::now(),
            account: Arc::clone(account),
            seen: Totals::default(),
            seen_alone: Vec::new(),
        });
    }

    /// Removes a client whose worker, the process `worker`, has ended.
    pub fn ended(&self, vm: usize, worker: u32, end: End) {
        let Some(vm) = self.vms.get(vm) else { return };
        let gpus = self.gpus(vm);
        let mut clients = vm.clients();
        let Some(position) = clients
            .there
            .iter()
            .position(|client| client.worker == worker)
        else {
            return;
        };
        let mut client = clients.there.swap_remove(position);
        clients.gone = clients.gone.plus(client.look(&gpus));
        add_each(&mut clients.gone_alone, &client.seen_alone);
        clients.ends[end as usize] += 1;
    }

    /// Records that a client of a VM was refused.
    pub fn refused(&self, vm: usize) {
        if let Some(vm) = self.vms.get(vm) {
            vm.clients().ends[End::Refused as usize] += 1;
        }
    }

    /// Whether the kernel has recently killed processes for lack of memory.
    pub fn out_of_memory(&self) -> bool {
        self.oom.look()
    }

    /// The present status of all VMs and GPUs.
    pub fn status(&self) -> Status {
        self.oom.look();
        let vms = self.vms.iter().enumerate();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            warm_workers: self.warm_workers.load(Relaxed),
            movers: self.movers.load(Relaxed),
            vms: vms.map(|(index, vm)| self.vm(index, vm)).collect(),
        }
    }

    /// The GPUs that a VM may use.
    fn gpus(&self, vm: &Vm) -> Vec<u32> {
        let gpus = vm.gpus.clone();
        gpus.unwrap_or_else(|| (0..self.gpus).collect())
    }

    fn vm(&self, index: usize, vm: &Vm) -> VmStatus {
        let gpus = self.gpus(vm);
        let mut memory = vec![0_u64; gpus.len()];
        let mut state = vm.clients();
        let mut totals = state.gone;
        let mut alone = state.gone_alone.clone();
        alone.resize(gpus.len(), 0);
        let (mut queued_commands, mut pinned_bytes) = (0_u64, 0_u64);
        let mut clients = Vec::with_capacity(state.there.len());
        for client in &mut state.there {
            // Only slots that were used: the pages of the others may never have been accessed.
            let charged = |gpu: &u32| {
                let slots = vm.ledger.held.get(*gpu as usize);
                let slot = slots.and_then(|slots| slots.get(client.slot as usize));
                slot.map_or(0, |slot| Holding::read(slot).charged)
            };
            let mut all = 0_u64;
            for (gpu, sum) in gpus.iter().zip(&mut memory) {
                let bytes = charged(gpu);
                *sum = sum.saturating_add(bytes);
                all = all.saturating_add(bytes);
            }
            let counters = &client.account.counters;
            let (queued, pinned) = (counters.queued.load(Relaxed), counters.pinned.load(Relaxed));
            let done = client.look(&gpus);
            add_each(&mut alone, &client.seen_alone);
            totals = totals.plus(done);
            queued_commands = queued_commands.saturating_add(queued);
            pinned_bytes = pinned_bytes.saturating_add(pinned);
            clients.push(ClientStatus {
                client: client.who.client,
                name: client.who.name.clone(),
                guest_process: client.who.guest_process,
                worker: client.worker,
                seconds: client.since.elapsed().as_secs_f64(),
                memory_bytes: all,
                alone_seconds: seconds(
                    client
                        .seen_alone
                        .iter()
                        .fold(0, |a, b| a.saturating_add(*b)),
                ),
                totals: done,
                queued_commands: queued,
                pinned_bytes: pinned,
            });
        }
        let (opened, ends) = (state.opened, state.ends);
        drop(state);
        let longest = vm.longest_kernel.load(Relaxed);
        let gpus = gpus.iter().zip(memory).zip(alone);
        let gpus = gpus.map(|((gpu, memory_bytes), alone)| GpuStatus {
            gpu: *gpu,
            seconds: self.usage.of(index, *gpu as usize).as_secs_f64() + seconds(alone),
            memory_bytes,
        });
        VmStatus {
            name: vm.name.lock().clone(),
            socket: vm.socket.clone(),
            weight: vm.weight.load(Relaxed),
            memory_limit_bytes: vm.terms.limit(),
            max_clients: vm.max_clients.load(Relaxed),
            longest_kernel_seconds: (longest > 0).then_some(longest as f64 / 1e9),
            connections: vm.connections.load(Relaxed),
            gpus: gpus.collect(),
            totals,
            queued_commands,
            pinned_bytes,
            clients_opened: opened,
            client_ends: ENDS
                .iter()
                .zip(ends)
                .map(|(end, count)| (end.label().to_owned(), count))
                .collect(),
            clients,
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account;

    fn board() -> (Board, Arc<Shared<Ledger>>) {
        let mut policy = VmPolicy::new("/run/vm".into());
        policy.gpus = Some(vec![0, 2]);
        let ledger = Arc::new(Shared::<Ledger>::new(c"test").unwrap());
        let terms = Arc::new(Terms::new().unwrap());
        terms.set_limit(Some(1 << 30));
        let vms = [(&policy, &ledger, &terms)].into_iter();
        let board = Board::new(vms, 3, Arc::new(Usage::new(1)));
        board.set_policy(0, &policy);
        (board, ledger)
    }

    fn who(client: u32) -> Arc<Who> {
        Arc::new(Who {
            vm: "vm".into(),
            path: "/run/vm".into(),
            client,
            name: "python3".into(),
            guest_process: 77,
        })
    }

    fn account() -> Arc<Shared<Account>> {
        Arc::new(Shared::<Account>::new(c"test").unwrap())
    }

    #[test]
    fn a_changed_policy_changes_the_vms_name_and_limits() {
        let (board, _) = board();
        let policy = VmPolicy {
            name: "other".into(),
            weight: 7,
            ..VmPolicy::new("/run/vm".into())
        };
        board.set_policy(0, &policy);
        let status = board.status();
        assert_eq!((&*status.vms[0].name, status.vms[0].weight), ("other", 7));
    }

    #[test]
    fn totals_keep_the_counts_of_ended_clients() {
        let (board, ledger) = board();
        let accounts = [account(), account()];
        for (index, account) in accounts.iter().enumerate() {
            let index = index as u32;
            board.opened(0, &who(index), 1000 + index, index, account);
            account::add(&account.counters.launches, 5);
            account.counters.queued.store(3, Relaxed);
        }
        let memory = 6 * account::GRANULE;
        ledger.held[2][1].store(Holding::of(memory, 0).word(), Relaxed);
        let before = board.status().vms.remove(0);
        assert_eq!((before.totals.launches, before.queued_commands), (10, 6));
        assert_eq!(before.clients.len(), 2);
        assert_eq!(
            before
                .gpus
                .iter()
                .map(|gpu| (gpu.gpu, gpu.memory_bytes))
                .collect::<Vec<_>>(),
            [(0, 0), (2, memory)]
        );
        assert_eq!(before.memory_limit_bytes, Some(1 << 30));

        account::add(&accounts[1].counters.launches, 1);
        account::add(&accounts[0].leases[2].busy_ns, 2_000_000_000);
        account::add(&accounts[1].leases[2].busy_ns, 1_000_000_000);
        board.ended(0, 1001, End::Killed);
        ledger.clear(1);
        board.ended(0, 1001, End::Killed);
        board.refused(0);
        let after = board.status().vms.remove(0);
        assert_eq!((after.totals.launches, after.queued_commands), (11, 3));
        assert_eq!((after.clients.len(), after.clients_opened), (1, 2));
        assert_eq!(after.client_ends["killed"], 1);
        assert_eq!(after.client_ends["refused"], 1);
        assert_eq!(after.client_ends.values().sum::<u64>(), 2);
        assert_eq!(
            after.client_ends.len(),
            ENDS.len(),
            "the reasons with none are there too"
        );
        assert_eq!(after.gpus[1].memory_bytes, 0);
        let seconds: Vec<_> = after.gpus.iter().map(|gpu| gpu.seconds).collect();
        assert_eq!(seconds, [0.0, 3.0]);
    }

    #[test]
    fn a_worker_that_counts_backwards_takes_nothing_away() {
        let (board, _ledger) = board();
        let account = account();
        board.opened(0, &who(1), 1000, 0, &account);
        account.counters.bytes_to_device.store(100, Relaxed);
        assert_eq!(board.status().vms[0].totals.bytes_to_device, 100);
        account.counters.bytes_to_device.store(1, Relaxed);
        assert_eq!(board.status().vms[0].totals.bytes_to_device, 100);
        board.ended(0, 1000, End::Closed);
        assert_eq!(board.status().vms[0].totals.bytes_to_device, 100);
        // A worker that writes a wrong amount does not make the sum overflow either.
        for worker in 1..4 {
            board.opened(0, &who(1), worker, 0, &account);
        }
        account.counters.bytes_to_device.store(u64::MAX, Relaxed);
        assert_eq!(board.status().vms[0].totals.bytes_to_device, u64::MAX);
    }
}
