// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests on the control queue.

use std::time::{Duration, Instant};

use gpgpu_protocol::{
    api,
    layout::{
        ControlAnswer, ControlHeader, MAX_CLIENTS, MAX_RUNS, Open, PAGE_BYTES, Register, Run,
        Unregister, VERSION, control, status,
    },
};
use vm_memory::GuestAddressSpace;
use zerocopy::FromBytes;

use super::{
    chain::Chain,
    client::{Client, Phase, Request, RequestKind},
    memory::{ram, translate},
    queue::Answer,
    vm::Vm,
};
use crate::{
    ipc::{Message, device::ToSupervisor},
    pace::Pace,
};

/// The bytes that a client may register, in sizes of the VM's memory: a process can map a page twice.
const CLIENT_REGISTERED: u64 = 2;
/// The same for all clients of a connection together: processes share memory. A VM has one connection.
const CONNECTION_REGISTERED: u64 = 4;
/// The bytes that may be registered, however small the memory is.
pub(super) const LEAST_REGISTERED: u64 = 16 << 30;
/// The time limit for a worker to report that it is ready. A first context on a busy host with eight GPUs takes some
/// ten seconds.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The number of workers that a connection may start at once, and the interval after which it may start one more. The
/// start of a worker and its driver costs the host 0.1 to 0.3 s of a core. The limits keep a guest that opens and
/// closes clients in a loop from occupying all cores.
const START_BURST: u32 = 64;
const START_PERIOD: Duration = Duration::from_millis(50);

/// The maximum number of runs that a connection's workers have not mapped yet. Each takes 24 bytes of a file, and
/// workers may be stuck.
pub const MAX_RUNS_UNDER_WAY: usize = 64 * MAX_RUNS;

/// The rate limit for starts of a connection's workers.
pub fn start_pace() -> Pace {
    Pace::new(START_BURST, START_PERIOD)
}

impl Vm {
    /// Executes a control request, or starts its execution.
    pub(super) fn control(&mut self, chain: Chain) {
        if chain.writable.bytes() < size_of::<ControlAnswer>() as u64 {
            return self.complete(chain, Answer::None);
        }
        let header = match chain.read_object::<ControlHeader>(0) {
            Ok(header) if !chain.misshapen => header,
            Ok(_) => return self.refuse(chain, status::MALFORMED),
            Err(error) => return self.refuse(chain, error.status()),
        };
        let client = header.client.get();
        match header.kind.get() {
            control::OPEN => self.open(chain),
            control::CLOSE => self.close(chain, client),
            control::REGISTER => self.register(chain, client),
            control::UNREGISTER => self.unregister(chain, client),
            _ => self.refuse(chain, status::UNKNOWN_REQUEST),
        }
    }

    /// Answers a control request that is not executed.
    fn refuse(&mut self, chain: Chain, status: u32) {
        if self.log.allow() {
            tracing::warn!("A control request was refused with status {status}");
        }
        self.complete(chain, Answer::control(status, 0));
    }

    fn open(&mut self, chain: Chain) {
        let open: Open = match chain.read_object(0) {
            Ok(open) => open,
            Err(error) => return self.refuse(chain, error.status()),
        };
        if open.header.client.get() != 0 {
            return self.refuse(chain, status::MALFORMED);
        }
        if open.version.get() != VERSION || open.api_family.get() != api::issued::FAMILY {
            return self.refuse(chain, status::VERSION_MISMATCH);
        }
        // Each client is a process of the host until its worker has ended.
        if self.clients.len() + self.leaving.len() >= MAX_CLIENTS {
            return self.refuse(chain, status::LIMIT);
        }
        let id = self.new_client_id();
        let request = ToSupervisor::StartWorker {
            client: id,
            pid: open.pid.get(),
            name: open.name,
        };
        self.want_clock();
        self.clients.insert(id, Client::new(chain, request));
        self.to_start.push_back(id);
        self.start_workers(Instant::now());
        // The mover is then ready before the first large copy.
        self.want_mover(0);
    }

    /// Requests the workers of waiting clients, as many as the rate limit allows.
    pub(super) fn start_workers(&mut self, now: Instant) {
        while let Some(&id) = self.to_start.front() {
            if !self.starts.take(now) {
                return;
            }
            self.to_start.pop_front();
            self.start_worker(id);
        }
    }

    fn start_worker(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let deadline = Instant::now() + START_LIMIT;
        let (chain, request) = match std::mem::replace(&mut client.phase, Phase::Dead) {
            Phase::Waiting { chain, request } => (chain, request),
            other => return client.phase = other,
        };
        if let Err(error) = self.link.send(&request) {
            self.clients.remove(&id);
            if self.log.allow() {
                tracing::error!("Client {id}: cannot ask for a worker: {error}");
            }
            return self.refuse(chain, status::NO_RESOURCES);
        }
        client.phase = Phase::Starting { chain, deadline };
    }

    fn close(&mut self, chain: Chain, id: u32) {
        // The driver cannot know the number of a client that is being opened.
        match self.clients.get_mut(&id) {
            Some(client) if client.closing.is_none() => match client.phase {
                Phase::Waiting { .. } | Phase::Starting { .. } => {
                    self.refuse(chain, status::NO_CLIENT);
                }
                Phase::Live => {
                    client.closing = Some(chain);
                    self.end(id, false);
                }
                Phase::Ending => client.closing = Some(chain),
                Phase::Dead => {
                    self.forget(id);
                    self.complete(chain, Answer::control(status::OK, 0));
                }
            },
            _ => self.refuse(chain, status::NO_CLIENT),
        }
    }

    /// Returns the chain if its client has a worker; otherwise answers or defers it.
    fn for_live_client(&mut self, chain: Chain, id: u32) -> Option<Chain> {
        match self
            .clients
            .get_mut(&id)
            .map(|client| (&client.phase, &mut client.deferred))
        {
            Some((Phase::Live, _)) => return Some(chain),
            // Its worker can still access the memory that the request names.
            Some((Phase::Ending, deferred)) => deferred.push(chain),
            Some((Phase::Dead, _)) => {
                self.complete(chain, Answer::control(status::CLIENT_DEAD, 0));
            }
            Some((Phase::Waiting { .. } | Phase::Starting { .. }, _)) | None => {
                self.refuse(chain, status::NO_CLIENT)
            }
        }
        None
    }

    fn register(&mut self, chain: Chain, id: u32) {
        let request: Register = match chain.read_object(0) {
            Ok(request) => request,
            Err(error) => return self.refuse(chain, error.status()),
        };
        let Some(chain) = self.for_live_client(chain, id) else {
            return;
        };
        match self.map(&chain, id, &request) {
            Ok((seq, message, region)) => {
                let kind = RequestKind::Map(region);
                let runs = request.runs.get() as usize;
                if let Some(client) = self.clients.get_mut(&id) {
                    client.push_request(seq, message, Request { chain, kind, runs });
                }
                self.pump(id);
            }
            Err(status) => self.refuse(chain, status),
        }
    }

    /// Checks the size of all registrations with a new one. A guest may register a page several times, and the host's
    /// driver needs page tables for each time, also on the GPU.
    fn check_registered(&mut self, id: u32, length: u64, ram: u64) -> Result<(), u32> {
        let most = |times: u64| ram.saturating_mul(times).max(LEAST_REGISTERED);
        let own = self
            .clients
            .get(&id)
            .map_or(0, |client| client.regions.bytes());
        let all = self.clients.values().map(|client| client.regions.bytes());
        let all = all.fold(length, u64::saturating_add);
        if own.saturating_add(length) > most(CLIENT_REGISTERED) || all > most(CONNECTION_REGISTERED)
        {
            if self.log.allow() {
                tracing::warn!(
                    "Client {id}: registration of {} MiB refused: it has {} MiB, all clients with it {} MiB, and the \
                     memory has {} MiB",
                    length >> 20,
                    own >> 20,
                    all >> 20,
                    ram >> 20
                );
            }
            return Err(status::LIMIT);
        }
        Ok(())
    }

    /// Checks a registration, and makes the message for the worker.
    fn map(
        &mut self,
        chain: &Chain,
        id: u32,
        request: &Register,
    ) -> Result<(u64, Message, u32), u32> {
        let (address, length) = (request.address.get(), request.length.get());
        let count = request.runs.get() as usize;
        if count == 0 || length == 0 || address % PAGE_BYTES != 0 || length % PAGE_BYTES != 0 {
            return Err(status::MALFORMED);
        }
        if count > MAX_RUNS {
            return Err(status::LIMIT);
        }
        let under_way: usize = self.clients.values().map(Client::runs_under_way).sum();
        if under_way + count > MAX_RUNS_UNDER_WAY {
            return Err(status::NO_RESOURCES);
        }
        let mut bytes = vec![0; count * size_of::<Run>()];
        chain
            .read(size_of::<Register>() as u64, &mut bytes)
            .map_err(super::chain::Error::status)?;
        let runs = <[Run]>::ref_from_bytes(&bytes).map_err(|_| status::MALFORMED)?;
        let pieces = {
            let memory = self.memory.memory();
            self.check_registered(id, length, ram(&memory))?;
            translate(&memory, runs, length)?
        };
        let client = self.clients.get_mut(&id).ok_or(status::NO_CLIENT)?;
        let region = client.regions.insert(address, length)?;
        self.next_seq += 1;
        let seq = self.next_seq;
        match Message::map(seq, region, address, length, pieces.files, &pieces.runs) {
            Ok(message) => Ok((seq, message, region)),
            Err(error) => {
                client.regions.remove(region);
                if self.log.allow() {
                    tracing::error!("Client {id}: cannot pass memory to its worker: {error}");
                }
                Err(status::NO_RESOURCES)
            }
        }
    }

    fn unregister(&mut self, chain: Chain, id: u32) {
        let request: Unregister = match chain.read_object(0) {
            Ok(request) => request,
            Err(error) => return self.refuse(chain, error.status()),
        };
        let Some(chain) = self.for_live_client(chain, id) else {
            return;
        };
        let region = request.region.get();
        self.next_seq += 1;
        let seq = self.next_seq;
        match self.clients.get_mut(&id) {
            Some(client) if client.can_unmap(region) => {
                let kind = RequestKind::Unmap(region);
                let request = Request {
                    chain,
                    kind,
                    runs: 0,
                };
                client.push_request(seq, Message::unmap(seq, region), request);
                self.pump(id);
            }
            _ => self.refuse(chain, status::BAD_ADDRESS),
        }
    }
}
