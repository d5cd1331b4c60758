// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects that the client shares with other processes of its VM, in both directions.
//!
//! A shared object has a [`Name`] of 64 bytes, which the guest's programs pass to each other: the number of the
//! object's worker, and a secret. A worker of the same VM that has a name gets the object, by [`crate::ipc::peers`].
//! The object's worker makes a descriptor for each request, and keeps none, so only importers keep an object alive.

mod name;

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::cuda::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    common::{Common, random},
    device_memory::{DeviceMemory, Lender},
    shared_events::SharedEvents,
};
use crate::{
    ipc::{
        self,
        peers::{
            Given, HostEnd, Question, TOKEN_BYTES, ToHost, ToSupervisor, ToWorker, VisitorEnd,
            WorkerEnd,
        },
    },
    pace::Pace,
};
use name::MAGIC;
pub use name::{Name, Object, what};

/// The time limit for an answer of another worker, or of the supervisor.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval between two requests to meet a worker with too many pending visitors.
const AGAIN: Duration = Duration::from_millis(2);
/// The number of meetings requested at once, and the interval for one more: half of the supervisor's limits.
const MEETINGS: u32 = 128;
/// See [`MEETINGS`].
const MEETING_PERIOD: Duration = Duration::from_millis(10);
/// The maximum number of shared objects at a time.
const MOST_SHARED: usize = 1 << 20;
/// The number of shared objects from which on it is checked which of them have ended.
const MANY_SHARED: usize = 1024;
/// The maximum number of visitors at a time. A new visitor replaces the oldest one.
const MOST_VISITORS: usize = 1024;

/// A worker to which there is a channel.
#[derive(Debug)]
struct Host {
    end: VisitorEnd,
    /// Held during a request.
    asking: Mutex<()>,
}

/// A worker that requests objects.
#[derive(Debug)]
struct Visitor {
    number: u64,
    end: HostEnd,
    /// Its open objects: the number of an allocation and how often it is open, by the secret.
    loans: HashMap<[u8; TOKEN_BYTES], (u64, u32)>,
}

#[derive(Debug, Default)]
struct Shared {
    objects: HashMap<[u8; TOKEN_BYTES], Object>,
    tokens: HashMap<Object, [u8; TOKEN_BYTES]>,
    /// The number of objects at the last check for ended ones.
    looked: usize,
}

/// The supervisor's answer to the requested meeting.
#[derive(Debug)]
enum Meeting {
    /// Nothing yet.
    Asked(u64),
    Met(OwnedFd),
    NotMet,
    Busy,
    /// The supervisor has ended.
    Over,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Peers {
    common: &'static Common,
    memory: &'static DeviceMemory,
    events: &'static SharedEvents,
    shared: Mutex<Shared>,
    /// Whether the thread that receives from the supervisor and visitors runs.
    started: OnceLock<bool>,
    listens: Mutex<bool>,
    /// The workers to which there are channels, by number.
    hosts: Mutex<HashMap<u64, Arc<Host>>>,
    /// Held during a meeting.
    turn: Mutex<Pace>,
    meeting: Mutex<Meeting>,
    changed: Condvar,
    questions: AtomicU64,
}

impl Peers {
    /// Without shared objects.
    pub fn new(
        common: &'static Common,
        memory: &'static DeviceMemory,
        events: &'static SharedEvents,
    ) -> Self {
        Self {
            common,
            memory,
            events,
            shared: Mutex::default(),
            started: OnceLock::new(),
            listens: Mutex::new(false),
            hosts: Mutex::default(),
            turn: Mutex::new(Pace::new(MEETINGS, MEETING_PERIOD)),
            meeting: Mutex::new(Meeting::NotMet),
            changed: Condvar::new(),
            questions: AtomicU64::new(0),
        }
    }

    /// This worker's channel and number.
    fn own(&self) -> Result<(&'static WorkerEnd, u64), CUresult> {
        let shares = self.common.shares.get().ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        Ok((&shares.peers, shares.number))
    }

    /// Whether this client owns the object with this name.
    pub fn is_own(&self, name: &Name) -> bool {
        self.own().is_ok_and(|(_, number)| number == name.owner)
    }

    /// The client's own object with this name, if it is shared.
    pub fn own_object(&self, name: &Name) -> Option<Object> {
        self.shared.lock().objects.get(&name.token).copied()
    }

    fn is_there(&self, object: Object) -> bool {
        match object {
            Object::Memory(lent) | Object::Pooled(lent, _) => {
                self.memory.is_allocation(lent.start, lent.id) || self.memory.is_lent(lent.id)
            }
            Object::Physical(number) => self.memory.is_physical(number),
            Object::Event(id) => self.events.page(id).is_ok(),
        }
    }

    /// Shares an object: from now on a worker with the name may get it. The same object always has the same name.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the limit; `CUDA_ERROR_NOT_SUPPORTED` in a worker without a supervisor.
    pub fn share(&'static self, object: Object) -> Result<Name, CUresult> {
        let (end, owner) = self.own()?;
        let named = |token| Name {
            magic: MAGIC,
            what: object.what(),
            owner,
            token,
            pool: object.pool(),
            gpu: 0,
            zeros: [0; 2],
        };
        if !self.start(end) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        self.listen(end, owner)?;
        let mut shared = self.shared.lock();
        if let Some(token) = shared.tokens.get(&object) {
            return Ok(named(*token));
        }
        if shared.tokens.len() >= MANY_SHARED.max(2 * shared.looked) {
            let Shared {
                objects, tokens, ..
            } = &mut *shared;
            objects.retain(|_, object| self.is_there(*object));
            tokens.retain(|object, _| self.is_there(*object));
            shared.looked = shared.tokens.len();
        }
        if shared.tokens.len() >= MOST_SHARED {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let mut token = [0; TOKEN_BYTES];
        random(&mut token)?;
        shared.objects.insert(token, object);
        shared.tokens.insert(object, token);
        Ok(named(token))
    }

    /// Lets others meet this worker. The supervisor must know before any process has a name: it may handle another
    /// worker's later request first. It answers in order, so its answer to a question shows that it knows.
    fn listen(&self, end: &WorkerEnd, owner: u64) -> Result<(), CUresult> {
        let mut listens = self.listens.lock();
        if *listens {
            return Ok(());
        }
        end.send(&ToSupervisor::Listen)
            .map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
        let _turn = self.turn.lock();
        // No worker meets itself.
        self.meet(end, owner, Instant::now() + PATIENCE);
        *listens = true;
        Ok(())
    }

    /// The name of a memory pool of the client. Pools themselves are not shared, so the name has no secret.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` in a worker without a supervisor.
    pub fn name_pool(&self, pool: u64, gpu: u64) -> Result<Name, CUresult> {
        let (_, owner) = self.own()?;
        Ok(Name {
            magic: MAGIC,
            what: what::POOL,
            owner,
            token: [0; TOKEN_BYTES],
            pool,
            gpu,
            zeros: [0; 2],
        })
    }

    /// Gives the client one of its own allocations, in the form in which another worker would get it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such allocation.
    pub fn give_own(&self, name: &Name) -> Result<(Given, OwnedFd), CUresult> {
        match self.own_object(name) {
            Some(Object::Pooled(lent, _)) if name.what == what::POOLED => {
                let given = self.memory.give_allocation(lent);
                given.ok_or(CUDA_ERROR_INVALID_VALUE)
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Requests an object from its worker. The caller's command must be narrow: it waits for that worker, for a few
    /// seconds at most.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if its worker has no such object; `CUDA_ERROR_INVALID_HANDLE` if the worker has
    /// ended, belongs to another VM, or does not answer.
    pub fn ask(&'static self, name: &Name) -> Result<(Given, OwnedFd), CUresult> {
        let deadline = Instant::now() + PATIENCE;
        let host = self.host(name.owner, deadline)?;
        let question = Question {
            seq: self.questions.fetch_add(1, Ordering::Relaxed),
            what: name.what,
            token: name.token,
        };
        let answer = {
            let _asking = host.asking.lock();
            host.end.ask(question, deadline)
        };
        match answer {
            Ok(Some(given)) => Ok(given),
            Ok(None) => Err(CUDA_ERROR_INVALID_VALUE),
            Err(error) => {
                tracing::debug!("Worker {} does not answer: {error}", name.owner);
                let mut hosts = self.hosts.lock();
                if (hosts.get(&name.owner)).is_some_and(|other| Arc::ptr_eq(other, &host)) {
                    hosts.remove(&name.owner);
                }
                Err(CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// The channel to the worker with this number.
    fn host(&'static self, number: u64, deadline: Instant) -> Result<Arc<Host>, CUresult> {
        let (end, _) = self.own()?;
        let known = || self.hosts.lock().get(&number).cloned();
        if let Some(host) = known() {
            return Ok(host);
        }
        if !self.start(end) {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let mut pace = self.turn.lock();
        if let Some(host) = known() {
            return Ok(host);
        }
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            if !pace.take(now) {
                thread::sleep(MEETING_PERIOD);
                continue;
            }
            match self.meet(end, number, deadline) {
                Meeting::Met(channel) => {
                    let host = Arc::new(Host {
                        end: VisitorEnd::new(channel),
                        asking: Mutex::default(),
                    });
                    let mut hosts = self.hosts.lock();
                    // Remove the channels to workers that have ended.
                    hosts.retain(|_, host| !ipc::has_hung_up(host.end.as_fd()));
                    hosts.insert(number, Arc::clone(&host));
                    return Ok(host);
                }
                Meeting::Busy => thread::sleep(AGAIN),
                _ => return Err(CUDA_ERROR_INVALID_HANDLE),
            }
        }
    }

    /// Requests a channel to a worker from the supervisor.
    fn meet(&self, end: &WorkerEnd, number: u64, deadline: Instant) -> Meeting {
        let mut meeting = self.meeting.lock();
        if matches!(*meeting, Meeting::Over) {
            return Meeting::Over;
        }
        *meeting = Meeting::Asked(number);
        if end.send(&ToSupervisor::Meet(number)).is_err() {
            return Meeting::Over;
        }
        loop {
            match &*meeting {
                Meeting::Asked(_) => {}
                Meeting::Over => return Meeting::Over,
                _ => return std::mem::replace(&mut meeting, Meeting::NotMet),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *meeting = Meeting::NotMet;
                return Meeting::NotMet;
            }
            (meeting, _) = self.changed.wait_timeout(meeting, left);
        }
    }

    /// Starts the thread, unless it runs.
    fn start(&'static self, end: &'static WorkerEnd) -> bool {
        *self.started.get_or_init(|| {
            let thread = thread::Builder::new().name("peers".into());
            thread.spawn(move || self.serve(end)).is_ok()
        })
    }

    /// Receives from the supervisor and visitors.
    fn serve(&self, end: &WorkerEnd) {
        let mut visitors: Vec<Visitor> = Vec::new();
        loop {
            let mut fds = vec![PollFd::new(end.as_fd(), PollFlags::POLLIN)];
            fds.extend(
                visitors
                    .iter()
                    .map(|visitor| PollFd::new(visitor.end.as_fd(), PollFlags::POLLIN)),
            );
            if let Err(errno) = poll(&mut fds, PollTimeout::NONE)
                && errno != nix::errno::Errno::EINTR
            {
                tracing::error!("Waiting for other workers: {errno}");
                break;
            }
            let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            let ready: Vec<bool> = fds.iter().map(is_ready).collect();
            let mut at = 0;
            visitors.retain_mut(|visitor| {
                at += 1;
                let stays = !ready[at] || self.answer(visitor).is_ok();
                if !stays {
                    self.leave(visitor);
                }
                stays
            });
            if ready[0] && self.hear(end, &mut visitors).is_err() {
                break;
            }
        }
        *self.meeting.lock() = Meeting::Over;
        self.changed.notify_all();
    }

    /// Handles messages of the supervisor.
    fn hear(&self, end: &WorkerEnd, visitors: &mut Vec<Visitor>) -> ipc::Result<()> {
        let Some(message) = end.recv()? else {
            return Ok(());
        };
        let (number, answer) = match message {
            ToWorker::Visitor(number, channel) => {
                end.send(&ToSupervisor::Taken)?;
                // A worker has one channel to another, so the previous one has failed.
                let before = visitors.iter().position(|visitor| visitor.number == number);
                let is_full = visitors.len() >= MOST_VISITORS;
                if let Some(at) = before.or(is_full.then_some(0)) {
                    self.leave(&visitors.remove(at));
                }
                visitors.push(Visitor {
                    number,
                    end: HostEnd::new(channel),
                    loans: HashMap::new(),
                });
                return Ok(());
            }
            ToWorker::Met(number, channel) => {
                end.send(&ToSupervisor::Taken)?;
                (number, Meeting::Met(channel))
            }
            ToWorker::Lost(number) => {
                end.send(&ToSupervisor::Taken)?;
                (number, Meeting::NotMet)
            }
            ToWorker::NotMet(number) => (number, Meeting::NotMet),
            ToWorker::Busy(number) => (number, Meeting::Busy),
        };
        let mut meeting = self.meeting.lock();
        // The answer to a meeting that was given up has no receiver.
        if matches!(*meeting, Meeting::Asked(wanted) if wanted == number) {
            *meeting = answer;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Handles the end of a visitor, with its open objects.
    fn leave(&self, visitor: &Visitor) {
        for (id, times) in visitor.loans.values() {
            self.memory.end_loans(*id, *times);
        }
    }

    /// Handles messages of a visitor.
    fn answer(&self, visitor: &mut Visitor) -> ipc::Result<()> {
        let question = match visitor.end.recv()? {
            None => return Ok(()),
            Some(ToHost::Ask(question)) => question,
            Some(ToHost::Return(token, times)) => {
                // Not more often than it has opened it.
                if let Some((id, open)) = visitor.loans.get_mut(&token) {
                    let times = times.min(*open);
                    *open -= times;
                    self.memory.end_loans(*id, times);
                    if *open == 0 {
                        visitor.loans.remove(&token);
                    }
                }
                return Ok(());
            }
        };
        let object = self.shared.lock().objects.get(&question.token).copied();
        let object = object.filter(|object| object.what() == question.what);
        match object {
            Some(Object::Event(id)) => {
                // The page's own descriptor: see `shared_events`.
                let page = self.events.page(id).ok();
                let given = page.as_ref().map(|page| page.file().as_fd());
                visitor
                    .end
                    .answer(question.seq, given.map(|file| (Given::default(), file)))
            }
            Some(Object::Memory(lent) | Object::Pooled(lent, _)) => {
                let given = self.memory.give_allocation(lent);
                if given.is_some() {
                    let loan = visitor.loans.entry(question.token);
                    loan.or_insert((lent.id, 0)).1 += 1;
                }
                let given = given.as_ref().map(|(given, file)| (*given, file.as_fd()));
                visitor.end.answer(question.seq, given)
            }
            Some(Object::Physical(number)) => {
                let given = self.memory.give_physical(number);
                let given = given.as_ref().map(|(given, file)| (*given, file.as_fd()));
                visitor.end.answer(question.seq, given)
            }
            None => visitor.end.answer(question.seq, None),
        }
    }
}

impl Lender for Peers {
    fn returned(&self, name: &Name, times: u32) {
        if self.is_own(name) {
            if let Some(Object::Memory(lent) | Object::Pooled(lent, _)) = self.own_object(name) {
                self.memory.end_loans(lent.id, times);
            }
            return;
        }
        let host = self.hosts.lock().get(&name.owner).cloned();
        if let Some(host) = host
            && let Err(error) = host.end.give_back(name.token, times)
        {
            // An object of a worker that does not read stays open until this worker ends.
            tracing::debug!("Worker {}: {error}", name.owner);
        }
    }
}
