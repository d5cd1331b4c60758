//! The process as a client of the device: one for all its threads, made by the first CUDA call.

use std::sync::{
    Mutex, Once, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use gpgpu_protocol::{
    api::{Hello, Object, Request, object_id, request},
    codec::{Reader, Writer},
    cuda::*,
    layout::{StreamAnswer, StreamCommand, status},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    border::Result,
    log::{self, Level},
    memory::Host,
    objects::Objects,
    pointer::Pointers,
    thread,
    transport::{self, Failure, Submission, Transport},
};

/// The highest version of the driver API that this library answers to; a newer host is shown as this.
pub const API_VERSION: i32 = 13000;

/// The errors after which every call of the process fails with the same.
const STICKY: &[CUresult] = &[
    CUDA_ERROR_ECC_UNCORRECTABLE,
    CUDA_ERROR_NVLINK_UNCORRECTABLE,
    CUDA_ERROR_CONTAINED,
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_LAUNCH_TIMEOUT,
    CUDA_ERROR_ASSERT,
    CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_INSTRUCTION,
    CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_INVALID_ADDRESS_SPACE,
    CUDA_ERROR_INVALID_PC,
    CUDA_ERROR_LAUNCH_FAILED,
    CUDA_ERROR_EXTERNAL_DEVICE,
];

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
    serial: AtomicU64,
    corrupted: AtomicBool,
}

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
        let transport = transport::open().map_err(|problem| {
            log::say(Level::Error, || problem.to_string());
            problem.code()
        })?;
        let mut client = Self {
            transport,
            hello: Hello::default(),
            objects: Objects::default(),
            pointers: Pointers::default(),
            host: Host::default(),
            serial: AtomicU64::new(1),
            corrupted: AtomicBool::new(false),
        };
        client.hello = client.call(&request::gpgpuHello { hello: true })?.hello;
        client.hello.driver_version = client.hello.driver_version.min(API_VERSION);
        Ok(client)
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

    /// Like [`Client::call_with`], for the operations whose reply says something when they fail too.
    pub fn exchange<R: Request>(
        &self,
        request: &R,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CUresult, Option<R::Reply>)> {
        let stream = command(request);
        let mut answer = thread::take_answer_buffer();
        let submission = Submission {
            thread: thread::tag(),
            stream: &stream,
            input,
            answer: &mut answer,
            output,
        };
        let outcome = self
            .transport
            .submit(submission)
            .map_err(|failure| failed::<R>(&failure));
        let decoded = outcome.and_then(|length| decode::<R>(&answer[..length.min(answer.len())]));
        thread::return_answer_buffer(answer);
        if let Ok((code, _)) = decoded
            && STICKY.contains(&code)
        {
            self.corrupted.store(true, Ordering::Relaxed);
        }
        decoded
    }

    /// Sends a request that needs no answer; an error surfaces at a later call. Once the GPU's state is corrupted,
    /// every call has to say so, and is answered.
    pub fn post<R: Request>(&self, request: &R) -> Result {
        if self.corrupted.load(Ordering::Relaxed) {
            return self.call(request).map(drop);
        }
        self.transport
            .post(thread::tag(), &command(request))
            .map_err(|failure| failed::<R>(&failure))
    }

    /// The most bytes of data that go with one request.
    pub fn block_bytes(&self) -> usize {
        self.transport.block_bytes()
    }
}

fn command<R: Request>(request: &R) -> Vec<u8> {
    let mut writer = Writer::on(vec![0; size_of::<StreamCommand>()]);
    request.put(&mut writer);
    let mut bytes = writer.into_bytes();
    let header = StreamCommand {
        bytes: (bytes.len() as u32).into(),
        op: R::OP.into(),
        reserved: 0.into(),
        context: thread::current_context().into(),
    };
    bytes[..size_of::<StreamCommand>()].copy_from_slice(header.as_bytes());
    bytes
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
