//! The process as a client of the device: one for all its threads, made by the first CUDA call.

use std::{
    collections::HashSet,
    sync::{
        Mutex, Once, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use gpgpu_protocol::{
    api::{
        Hello, Object, Operation, Property, Request, issued,
        issued::{KNOWN_AT_ONCE, Shared},
        object_id, request,
    },
    codec::{Reader, Writer},
    cuda::*,
    layout::{MAX_ANSWER_BYTES, StreamAnswer, StreamCommand, status},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    border::Result,
    log::{self, Level},
    memory::Host,
    memory_pool::Pools,
    objects::Objects,
    pointer::Pointers,
    ring::{Ring, Ticket, Waited},
    spare::Spare,
    thread,
    transport::{self, Data, Failure, OpenError, Submission, Transport},
};

/// The highest version of the driver API that this library answers to; a newer host is shown as this.
pub const API_VERSION: i32 = 13000;

/// Room for the answer to a transfer, which is little more than a code.
const TRANSFER_ANSWER_BYTES: usize = 256;

/// The connection and what the process knows.
pub struct Client {
    /// How requests reach the device.
    pub transport: Box<dyn Transport>,
    /// What does not change about the host.
    pub hello: Hello,
    /// The objects that live.
    pub objects: Objects,
    /// The memory that the device can reach.
    pub pointers: Pointers,
    /// Pinned host memory.
    pub host: Host,
    /// Device memory that the program freed.
    pub spare: Spare,
    /// Memory pools.
    pub pools: Pools,
    /// The operations that the host has too.
    shared: Shared,
    /// Those that the program asked for and the host does not have.
    refused: Mutex<HashSet<u16>>,
    ring: Option<Ring>,
    serial: AtomicU64,
    corrupted: AtomicBool,
    /// Counts what gives the GPU work that the host can see the end of.
    work: AtomicU64,
    /// Counts copies to the device whose callers did not wait for the end.
    writes: AtomicU64,
    idle: Mutex<Idle>,
}

/// How much the GPU was given.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// What the host can see the end of.
    pub work: u64,
    /// Copies to the device whose callers did not wait for the end.
    writes: u64,
}

/// How much had been given when a context was last known to have done it.
#[derive(Debug, Default)]
struct Idle {
    context: u64,
    /// All of it.
    all: Given,
    /// The work that the legacy stream waits for.
    legacy: u64,
}

/// What work is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All work of the context, and all that was written.
    All,
    /// The work that the legacy stream waits for: all but that of non-blocking streams.
    Legacy,
}

/// Set to 0, it keeps the client from setting up a ring: all goes by the command queue.
const RING_VARIABLE: &str = "VIRTIO_GPGPU_RING";

static CLIENT: OnceLock<Client> = OnceLock::new();
static CONNECTING: Mutex<()> = Mutex::new(());
static INITIALISED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// The client, after `cuInit`.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a forked child, where CUDA cannot be used.
pub fn client() -> Result<&'static Client> {
    if FORKED.load(Ordering::Relaxed) || !INITIALISED.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if thread::in_callback() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    CLIENT.get().ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

/// `cuInit`: makes the client unless there is one.
pub fn initialise() -> Result {
    connect()?;
    INITIALISED.store(true, Ordering::Release);
    Ok(())
}

/// The client, connected on first need; for what may be asked before `cuInit` too.
pub fn connect() -> Result<&'static Client> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    // Not `get_or_init`: a failed attempt may be repeated, for the device can appear later.
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let _connecting = CONNECTING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let client = Client::open()?;
    watch_forks();
    Ok(CLIENT.get_or_init(|| client))
}

/// After a fork the child has the parent's connection but must not use it, nor close it: it would
/// speak for the parent. CUDA does not work in such a child natively either.
fn watch_forks() {
    extern "C" fn in_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler is a function that only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

impl Client {
    fn open() -> Result<Self> {
        let began = Instant::now();
        let transport = transport::open().map_err(|problem| {
            log::say(Level::Error, || problem.to_string());
            problem.code()
        })?;
        let connected = began.elapsed();
        let mut client = Self {
            transport,
            hello: Hello::default(),
            objects: Objects::default(),
            pointers: Pointers::default(),
            host: Host::default(),
            spare: Spare::default(),
            pools: Pools::default(),
            shared: Shared::default(),
            refused: Mutex::default(),
            ring: None,
            serial: AtomicU64::new(1),
            corrupted: AtomicBool::new(false),
            work: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            idle: Mutex::default(),
        };
        client.shared = client.ask_for_operations()?;
        client.hello = client.call(&request::gpgpuHello { hello: true })?.hello;
        client.hello.driver_version = client.hello.driver_version.min(API_VERSION);
        if std::env::var_os(RING_VARIABLE).is_none_or(|value| value != "0") {
            client.ring = client.open_ring();
        }
        log::say(Level::Debug, || {
            format!(
                "Start: connected in {connected:?}, ready in {:?}",
                began.elapsed()
            )
        });
        Ok(client)
    }

    /// The operations that this library and the host share. The host may be older or newer.
    fn ask_for_operations(&self) -> Result<Shared> {
        let mut shared = Shared::default();
        let mut answer = vec![0; MAX_ANSWER_BYTES];
        let mut first = 0;
        loop {
            let question = request::gpgpuOperations {
                first,
                operations: true,
            };
            let mut stream = Vec::new();
            encode(&question, &mut stream);
            let submission = Submission {
                thread: thread::tag(),
                stream: &stream,
                input: &[],
                answer: &mut answer,
                output: &mut [],
            };
            let length = match self.transport.submit(submission) {
                // It does not know the question.
                Err(Failure::Status(status::MALFORMED)) => {
                    shared.add(issued::first_table());
                    break;
                }
                other => other.map_err(|failure| failed::<request::gpgpuOperations>(&failure))?,
            };
            let decoded = decode::<request::gpgpuOperations>(&answer[..length.min(answer.len())]);
            let (CUDA_SUCCESS, Some(reply)) = decoded? else {
                return Err(CUDA_ERROR_UNKNOWN);
            };
            let (count, last) = (reply.operations.len(), reply.operations.last());
            let next = last.map_or(0, |last| u32::from(last.op) + 1);
            shared.add(reply.operations);
            if count < KNOWN_AT_ONCE || next <= first {
                break;
            }
            first = next;
        }
        if shared.has(request::gpgpuHello::OP) {
            return Ok(shared);
        }
        log::say(Level::Error, || OpenError::Version.to_string());
        Err(OpenError::Version.code())
    }

    /// Refuses an operation that the host does not have, and names it once.
    fn require<R: Request>(&self) -> Result {
        if self.shared.has(R::OP) {
            return Ok(());
        }
        self.refuse(R::OPERATION)
    }

    #[cold]
    fn refuse(&self, operation: &Operation) -> Result {
        let mut named = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if named.insert(operation.op) {
            log::say(Level::Error, || {
                let name = operation.name;
                format!(
                    "{name} is not supported by this host: its service is older than this library"
                )
            });
        }
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// A ring, unless there is no memory that can be pinned for it: everything works without, slower.
    fn open_ring(&self) -> Option<Ring> {
        let ring = Ring::new(&*self.transport)
            .inspect_err(|failure| log::say(Level::Info, || format!("No ring: {failure}")))
            .ok()?;
        let address = ring.address();
        match self.call(&request::gpgpuRingSetup { address }) {
            Ok(_) => Some(ring),
            Err(code) => {
                log::say(Level::Info, || format!("No ring: {code}"));
                None
            }
        }
    }

    /// An id for a new object; none is given twice.
    pub fn new_id<K: Object>(&self) -> u64 {
        object_id::<K>(self.new_serial())
    }

    /// A number that was not given before.
    pub fn new_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its reply.
    pub fn call<R: Request>(&self, request: &R) -> Result<R::Reply> {
        self.call_with(request, &[], &mut [])
    }

    /// Sends a request with data beside it, and takes data beside the reply.
    pub fn call_with<R: Request>(
        &self,
        request: &R,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<R::Reply> {
        let (result, reply) = self.exchange(request, input, output)?;
        match (result, reply) {
            (CUDA_SUCCESS, Some(reply)) => Ok(reply),
            (CUDA_SUCCESS, None) => Err(CUDA_ERROR_UNKNOWN),
            (code, _) => Err(code),
        }
    }

    /// Sends a request that takes data of any length, and moves that; see [`Transport::transfer`].
    pub fn transfer<R: Request>(&self, request: &R, data: Data<'_>) -> Result<R::Reply> {
        self.require::<R>()?;
        let mut answer = [0; TRANSFER_ANSWER_BYTES];
        let sent = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            self.follow_ring::<R>(stream);
            self.transport
                .transfer(thread::tag(), stream, data, &mut answer)
                .map_err(|failure| failed::<R>(&failure))
        });
        self.count::<R>();
        let length = sent?;
        match decode::<R>(&answer[..length.min(answer.len())])? {
            (CUDA_SUCCESS, Some(reply)) => Ok(reply),
            (CUDA_SUCCESS, None) => Err(CUDA_ERROR_UNKNOWN),
            (code, _) => {
                if is_sticky(code) {
                    self.corrupted.store(true, Ordering::Relaxed);
                }
                Err(code)
            }
        }
    }

    /// Like [`Client::call_with`], for the operations whose reply says something when they fail too.
    pub fn exchange<R: Request>(
        &self,
        request: &R,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CUresult, Option<R::Reply>)> {
        self.require::<R>()?;
        let given = self.given();
        let mut answer = thread::take_answer_buffer();
        let outcome = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            if input.is_empty()
                && output.is_empty()
                && R::OPERATION.rings
                && let Some(ring) = self.ring.as_ref().filter(|_| Ring::fits(stream.len()))
                && self.exchange_by_ring::<R>(ring, stream, &mut answer)? == Waited::Over
            {
                return Ok(answer.len());
            }
            self.exchange_by_queue::<R>(stream, input, output, &mut answer)
        });
        self.count::<R>();
        let decoded = outcome.and_then(|length| decode::<R>(&answer[..length.min(answer.len())]));
        thread::return_answer_buffer(answer);
        match decoded {
            Ok((CUDA_SUCCESS, _)) if R::OP == request::cuCtxSynchronize::OP => {
                self.set_idle(given, Scope::All);
            }
            Ok((code, _)) if is_sticky(code) => {
                self.corrupted.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        decoded
    }

    fn exchange_by_ring<R: Request>(
        &self,
        ring: &Ring,
        stream: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<Waited> {
        let ticket = self.request_by_ring::<R>(ring, stream)?;
        self.wait_by_ring::<R>(ring, ticket, answer)
    }

    fn request_by_ring<R: Request>(&self, ring: &Ring, stream: &[u8]) -> Result<Ticket> {
        ring.request(thread::tag(), stream, || self.wake(), || self.is_served())
            .map_err(|failure| failed::<R>(&failure))
    }

    fn wait_by_ring<R: Request>(
        &self,
        ring: &Ring,
        ticket: Ticket,
        answer: &mut Vec<u8>,
    ) -> Result<Waited> {
        ring.wait(ticket, answer, || self.is_done(ticket))
            .inspect_err(|code| {
                log::say(Level::Debug, || {
                    format!("{}: {code} while waiting", R::NAME)
                });
                if is_sticky(*code) {
                    self.corrupted.store(true, Ordering::Relaxed);
                }
            })
    }

    /// Wakes the worker's end of the ring.
    fn wake(&self) -> std::result::Result<(), Failure> {
        if let Some(ring) = self
            .ring
            .as_ref()
            .filter(|_| self.transport.is_on_this_machine())
        {
            ring.wake();
            return Ok(());
        }
        let mut stream = Vec::new();
        encode(&request::gpgpuRingWake {}, &mut stream);
        self.transport.post(thread::tag(), &stream)
    }

    /// Whether the worker is done with what the ticket stands for; an error says that it is gone, or that it never will be.
    fn is_done(&self, ticket: Ticket) -> Result<bool> {
        let Ticket {
            slot,
            sequence,
            position,
        } = ticket;
        let mut stream = Vec::new();
        let question = request::gpgpuFenceStatus {
            slot,
            sequence,
            position,
            over: true,
        };
        encode(&question, &mut stream);
        let mut answer = [0; 64];
        let submission = Submission {
            thread: thread::tag(),
            stream: &stream,
            input: &[],
            answer: &mut answer,
            output: &mut [],
        };
        let length = self
            .transport
            .submit(submission)
            .map_err(|failure| failed::<request::gpgpuFenceStatus>(&failure))?;
        match decode::<request::gpgpuFenceStatus>(&answer[..length.min(answer.len())])? {
            (CUDA_SUCCESS, Some(reply)) => Ok(reply.over != 0),
            (CUDA_SUCCESS, None) => Err(CUDA_ERROR_UNKNOWN),
            (code, _) => Err(code),
        }
    }

    /// Whether the worker lives, for who waits for nothing but that it goes on.
    fn is_served(&self) -> std::result::Result<(), Failure> {
        self.is_done(Ticket::default())
            .map(drop)
            .map_err(|_| Failure::Os(libc::ENOTCONN))
    }

    fn exchange_by_queue<R: Request>(
        &self,
        stream: &mut Vec<u8>,
        input: &[u8],
        output: &mut [u8],
        answer: &mut Vec<u8>,
    ) -> Result<usize> {
        self.follow_ring::<R>(stream);
        answer.resize(MAX_ANSWER_BYTES, 0);
        let submission = Submission {
            thread: thread::tag(),
            stream,
            input,
            answer,
            output,
        };
        self.transport
            .submit(submission)
            .map_err(|failure| failed::<R>(&failure))
    }

    /// Puts before commands for the command queue what keeps them behind the ring's.
    fn follow_ring<R: Request>(&self, stream: &mut Vec<u8>) {
        let Some(ring) = &self.ring else { return };
        // What is about the client itself depends on nothing, and must not wait.
        if R::OPERATION.is(Property::Client) {
            return;
        }
        let position = ring.position();
        let mut first = Vec::new();
        encode(&request::gpgpuRingAfter { position }, &mut first);
        stream.splice(0..0, first);
    }

    /// Sends a request that needs no answer; an error surfaces at a later call. Once the GPU's state is corrupted,
    /// every call has to say so, and is answered.
    pub fn post<R: Request>(&self, request: &R) -> Result {
        if self.corrupted.load(Ordering::Relaxed) {
            return self.call(request).map(drop);
        }
        self.require::<R>()?;
        let posted = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            match &self.ring {
                Some(ring) if R::OPERATION.rings && Ring::fits(stream.len()) => {
                    ring.post(thread::tag(), stream, || self.wake(), || self.is_served())
                }
                _ => {
                    self.follow_ring::<R>(stream);
                    self.transport.post(thread::tag(), stream)
                }
            }
        });
        self.count::<R>();
        posted.map_err(|failure| failed::<R>(&failure))
    }

    /// The ring, if there is one and the GPU is well.
    pub fn ring(&self) -> Option<&Ring> {
        self.ring
            .as_ref()
            .filter(|_| !self.corrupted.load(Ordering::Relaxed))
    }

    /// Sends a `fence` request by the ring without waiting for its end.
    pub fn begin<R: Request>(&self, ring: &Ring, request: &R) -> Result<Ticket> {
        self.require::<R>()?;
        let sent = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            self.request_by_ring::<R>(ring, stream)
        });
        self.count::<R>();
        sent
    }

    /// Waits for the end of what [`Client::begin`] sent; `false` if the worker left it alone.
    pub fn end<R: Request>(&self, ring: &Ring, ticket: Ticket) -> Result<bool> {
        let mut answer = thread::take_answer_buffer();
        let waited = self.wait_by_ring::<R>(ring, ticket, &mut answer);
        let decoded = waited.and_then(|waited| Ok((waited, decode::<R>(&answer)?.0)));
        thread::return_answer_buffer(answer);
        match decoded? {
            (Waited::Elsewhere, _) => Ok(false),
            (Waited::Over, CUDA_SUCCESS) => Ok(true),
            (Waited::Over, code) => {
                if is_sticky(code) {
                    self.corrupted.store(true, Ordering::Relaxed);
                }
                Err(code)
            }
        }
    }

    /// Counts a request that was just sent. Never before: a thread that synchronises in between would take it for done.
    fn count<R: Request>(&self) {
        if R::OPERATION.leaves_work() {
            self.work.fetch_add(1, Ordering::Release);
        }
        if R::OPERATION.is(Property::Write) {
            self.writes.fetch_add(1, Ordering::Release);
        }
    }

    /// How much the GPU was given, to be told to [`Client::set_idle`] when a synchronisation that begins now is over.
    pub fn given(&self) -> Given {
        Given {
            work: self.work.load(Ordering::Acquire),
            writes: self.writes.load(Ordering::Acquire),
        }
    }

    /// The current context has done what was `given`.
    pub fn set_idle(&self, given: Given, scope: Scope) {
        let mut idle = self.idle();
        let context = thread::current_context();
        if idle.context != context {
            *idle = Idle {
                context,
                ..Idle::default()
            };
        }
        idle.legacy = given.work;
        if scope == Scope::All {
            idle.all = given;
        }
    }

    /// Whether the current context is known to have done what it was given.
    pub fn is_idle(&self, scope: Scope) -> bool {
        let (idle, given) = (self.idle(), self.given());
        let is_done = match scope {
            Scope::All => idle.all == given,
            Scope::Legacy => idle.legacy == given.work,
        };
        // A context in which nothing was done counts as busy, which costs little once.
        idle.context == thread::current_context() && is_done
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the GPU's state is corrupted: then the host alone knows what a call comes to.
    pub fn is_corrupted(&self) -> bool {
        self.corrupted.load(Ordering::Relaxed)
    }

    /// The most bytes of data that go with one request.
    pub fn block_bytes(&self) -> usize {
        self.transport.block_bytes()
    }
}

/// Makes the command of a request, in place of what `stream` holds.
fn encode<R: Request>(request: &R, stream: &mut Vec<u8>) {
    let mut bytes = std::mem::take(stream);
    bytes.clear();
    bytes.resize(size_of::<StreamCommand>(), 0);
    let mut writer = Writer::on(bytes);
    request.put(&mut writer);
    let mut bytes = writer.into_bytes();
    let header = StreamCommand {
        bytes: (bytes.len() as u32).into(),
        op: R::OP.into(),
        reserved: 0.into(),
        context: thread::current_context().into(),
    };
    bytes[..size_of::<StreamCommand>()].copy_from_slice(header.as_bytes());
    *stream = bytes;
}

fn decode<R: Request>(answer: &[u8]) -> Result<(CUresult, Option<R::Reply>)> {
    let (head, rest) = StreamAnswer::read_from_prefix(answer).map_err(|_| CUDA_ERROR_UNKNOWN)?;
    let reply = if rest.is_empty() && head.result.get() != CUDA_SUCCESS {
        None
    } else {
        Some(
            Reader::new(rest)
                .get::<R::Reply>()
                .map_err(|_| CUDA_ERROR_UNKNOWN)?,
        )
    };
    Ok((head.result.get(), reply))
}

/// What a program is told when the device, not CUDA, failed. A client whose worker is gone gets one
/// code for every later call, and one that CUDA itself gives for something outside of CUDA.
fn failed<R: Request>(failure: &Failure) -> CUresult {
    let code = match failure {
        Failure::Status(status::NO_GPU) => CUDA_ERROR_NO_DEVICE,
        Failure::Status(status::NO_RESOURCES | status::LIMIT) => CUDA_ERROR_OUT_OF_MEMORY,
        Failure::Status(status::BAD_ADDRESS) => CUDA_ERROR_INVALID_VALUE,
        Failure::Status(status::VERSION_MISMATCH) => CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        Failure::Os(libc::EFAULT) => CUDA_ERROR_INVALID_VALUE,
        Failure::Os(libc::ENOMEM) => CUDA_ERROR_OUT_OF_MEMORY,
        Failure::Status(_) | Failure::Os(_) => CUDA_ERROR_EXTERNAL_DEVICE,
    };
    log::say(Level::Debug, || format!("{}: {failure}", R::NAME));
    code
}
