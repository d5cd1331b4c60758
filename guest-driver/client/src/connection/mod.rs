// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The connection to the device: it sends requests, receives answers, and holds the state for that.

mod by_ring;
mod open;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::{
    api::{Completion, Object, Operation, Property, Request, issued::Shared, object_id, request},
    cuda::*,
    layout::{MAX_ANSWER_BYTES, MAX_DATA_BYTES},
};

use crate::{
    before,
    command::{decode, encode, encode_written, failed, has_output, reply, split},
    ffi::Result,
    log::{self, Level},
    output::{self, Output},
    ring::{Ring, Ticket},
    thread,
    transport::{Data, Failure, Submission, Transport},
    work::{Given, Scope, Work},
};

/// Room for the answer to a transfer, which has little more than a code.
const TRANSFER_ANSWER_BYTES: usize = 256;

/// A connection to the device, for all threads of the process.
pub struct Connection {
    transport: Box<dyn Transport>,
    /// The operations that the host supports too.
    shared: Shared,
    ring: Option<Ring>,
    /// Whether the ring accepts waits, and requests with long answers.
    is_wide: bool,
    serial: AtomicU64,
    corrupted: AtomicBool,
    /// An error of the program's work that a call of the library itself has received. The program's next call that
    /// reports errors returns it.
    deferred: AtomicU32,
    work: Work,
    output: Output,
    waits: QueuedWaits,
}

/// The number of threads that wait for the GPU's work through the command queue. It is bounded, because waits that take the whole queue
/// would keep out the commands that end them.
#[derive(Default)]
struct QueuedWaits {
    count: Mutex<usize>,
    one_less: Condvar,
}

/// A thread's place among [`QueuedWaits`].
struct QueuedWait<'a>(&'a QueuedWaits);

impl QueuedWaits {
    /// The most of them, fewer than the commands for which a queue has room.
    const MOST: usize = 64;

    /// Waits for a place.
    fn enter(&self) -> QueuedWait<'_> {
        let count = self.count.lock();
        let mut count = self
            .one_less
            .wait_while(count, |count| *count >= Self::MOST);
        *count += 1;
        QueuedWait(self)
    }
}

impl Drop for QueuedWait<'_> {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.one_less.notify_one();
    }
}

impl Connection {
    /// Whether the host supports an operation.
    #[inline]
    pub fn has(&self, op: u16) -> bool {
        self.shared.has(op)
    }

    /// Whether a command of `bytes` bytes uses the ring although its caller waits for it.
    pub fn rings_wide(&self, bytes: usize) -> bool {
        self.is_wide && Ring::fits(bytes)
    }

    /// Refuses an operation that the host does not support, and logs its name once.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    #[inline]
    pub fn require(&self, operation: &'static Operation) -> Result {
        if self.shared.has(operation.op) {
            return Ok(());
        }
        log::refuse(
            operation.name,
            "is not supported by this host: its service is older than this library",
        );
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// An id for a new object. Each call returns another one.
    #[inline]
    pub fn new_id<K: Object>(&self) -> u64 {
        object_id::<K>(self.new_serial())
    }

    /// A new serial number.
    #[inline]
    pub fn new_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request and waits for its reply.
    pub fn call<R: Request>(&self, request: &R) -> Result<R::Reply> {
        self.call_with(request, &[], &mut [])
    }

    /// Sends a request with data beside it, and receives data beside the reply.
    pub fn call_with<R: Request>(
        &self,
        request: &R,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<R::Reply> {
        reply(self.exchange(request, input, output)?)
    }

    /// Sends a request with data of any length; see [`Transport::transfer`].
    pub fn transfer<R: Request>(&self, request: &R, data: Data<'_>) -> Result<R::Reply> {
        self.require(R::OPERATION)?;
        before::sending(request);
        let mut answer = [0; TRANSFER_ANSWER_BYTES];
        let sent = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            say_that_waits(R::OPERATION, "transfer");
            self.follow_ring(R::OPERATION, stream);
            self.transport
                .transfer(thread::tag(), stream, data, &mut answer)
                .map_err(|failure| failed(R::NAME, &failure))
        });
        self.work.count(R::OPERATION);
        let length = sent?;
        let answer = &answer[..length.min(answer.len())];
        self.put_output(answer);
        let decoded = decode::<R>(answer)?;
        self.note(decoded.0);
        reply(decoded)
    }

    /// Like [`Connection::call_with`], for operations that may also reply when they fail.
    pub fn exchange<R: Request>(
        &self,
        request: &R,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(CUresult, Option<R::Reply>)> {
        self.require(R::OPERATION)?;
        before::sending(request);
        let (given, sent) = (self.given(), self.sent());
        let printing = self.output.mark();
        let mut answer = thread::take_answer_buffer();
        let outcome = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            self.send(R::OPERATION, stream, input, output, &mut answer)
        });
        self.work.count(R::OPERATION);
        let decoded = outcome.and_then(|length| {
            let answer = &answer[..length.min(answer.len())];
            self.put_output(answer);
            decode::<R>(answer)
        });
        thread::return_answer_buffer(answer);
        match decoded {
            Ok((CUDA_SUCCESS, _)) if R::OP == request::cuCtxSynchronize::OP => {
                self.work.set_synchronised(given, sent);
                if !before::is_own() {
                    self.output.waited(printing);
                }
            }
            Ok((code, _)) => self.note(code),
            Err(_) => {}
        }
        if R::OPERATION.is(Property::Observes)
            && matches!(decoded, Ok((CUDA_SUCCESS, _)))
            && let Some(code) = self.take_deferred()
        {
            return Ok((code, None));
        }
        decoded
    }

    /// Stores an error of the program's work that a call of the library itself has received.
    pub fn defer(&self, code: CUresult) {
        let _ = self.deferred.compare_exchange(
            CUDA_SUCCESS,
            code,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }

    /// Takes the stored error.
    #[inline]
    fn take_deferred(&self) -> Option<CUresult> {
        if self.deferred.load(Ordering::Relaxed) == CUDA_SUCCESS || before::is_own() {
            return None;
        }
        Some(self.deferred.swap(CUDA_SUCCESS, Ordering::Relaxed))
            .filter(|code| *code != CUDA_SUCCESS)
    }

    /// Sends a request whose arguments are already encoded, and decodes its reply.
    ///
    /// # Errors
    ///
    /// The operation's code if there is no reply.
    pub fn call_written<T>(
        &self,
        operation: &'static Operation,
        arguments: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.require(operation)?;
        let mut answer = thread::take_answer_buffer();
        let outcome = thread::with_stream_buffer(|stream| {
            encode_written(operation, arguments, stream);
            self.send(operation, stream, &[], &mut [], &mut answer)
        });
        self.work.count(operation);
        let read = outcome.and_then(|length| {
            let answer = &answer[..length.min(answer.len())];
            self.put_output(answer);
            let (code, rest) = split(answer)?;
            self.note(code);
            match code {
                CUDA_SUCCESS => Ok(read(rest)),
                _ if !rest.is_empty() => Ok(read(rest)),
                code => Err(code),
            }
        });
        thread::return_answer_buffer(answer);
        read
    }

    /// The same for a library's operation whose arguments or answer are too long for a command: the reply has at most
    /// `most` bytes.
    ///
    /// # Errors
    ///
    /// As [`Connection::call_written`]; `CUDA_ERROR_OUT_OF_MEMORY` if both together exceed a command's data.
    pub fn call_long<T>(
        &self,
        operation: &'static Operation,
        arguments: &[u8],
        most: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.require(operation)?;
        let room = MAX_DATA_BYTES.checked_sub(arguments.len());
        let most = room.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?.min(most);
        let request = request::gpgpuLongCall {
            operation: operation.op.into(),
            context: thread::current_context(),
            result: true,
            bytes: true,
        };
        let mut content = vec![0; most];
        let exchanged = self.exchange(&request, arguments, &mut content);
        self.work.count(operation);
        let said = reply(exchanged?)?;
        self.note(said.result);
        let bytes = usize::try_from(said.bytes).ok();
        let content = bytes.and_then(|bytes| content.get(..bytes));
        match content.ok_or(CUDA_ERROR_UNKNOWN)? {
            [] if said.result != CUDA_SUCCESS => Err(said.result),
            content => Ok(read(content)),
        }
    }

    /// Like [`Connection::post`], for an operation whose arguments are already encoded.
    ///
    /// # Errors
    ///
    /// The request could not be sent.
    pub fn post_written(&self, operation: &'static Operation, arguments: &[u8]) -> Result {
        if self.corrupted.load(Ordering::Relaxed) {
            return self.call_written(operation, arguments, |_| ());
        }
        self.require(operation)?;
        let posted = thread::with_stream_buffer(|stream| {
            encode_written(operation, arguments, stream);
            self.post_command(operation, stream)
        });
        posted.map_err(|failure| failed(operation.name, &failure))
    }

    /// Sends a command and waits for its answer, through the ring if possible; returns the answer's length.
    fn send(
        &self,
        operation: &'static Operation,
        stream: &mut Vec<u8>,
        input: &[u8],
        output: &mut [u8],
        answer: &mut Vec<u8>,
    ) -> Result<usize> {
        if input.is_empty()
            && output.is_empty()
            && (operation.rings || self.is_wide && operation.rings_wide)
            && !(operation.completion == Completion::Fence && self.output.is_due())
            && let Some(ring) = self.ring.as_ref().filter(|_| Ring::fits(stream.len()))
            && self.exchange_by_ring(operation, ring, stream, answer)?
        {
            return Ok(answer.len());
        }
        self.exchange_by_queue(operation, stream, input, output, answer)
    }

    /// Sends a request only through the command queue, ahead of all commands in the ring; returns the answer's length.
    fn ask<R: Request>(
        &self,
        question: &R,
        answer: &mut [u8],
    ) -> std::result::Result<usize, Failure> {
        let mut stream = Vec::new();
        encode(question, &mut stream);
        self.transport.submit(Submission {
            thread: thread::tag(),
            stream: &stream,
            input: &[],
            answer,
            output: &mut [],
        })
    }

    /// Checks that the worker exists, for callers that wait only for its progress.
    fn is_served(&self) -> std::result::Result<(), Failure> {
        self.is_done(Ticket::default())
            .map(drop)
            .map_err(|_| Failure::Os(libc::ENOTCONN))
    }

    fn exchange_by_queue(
        &self,
        operation: &Operation,
        stream: &mut Vec<u8>,
        input: &[u8],
        output: &mut [u8],
        answer: &mut Vec<u8>,
    ) -> Result<usize> {
        say_that_waits(operation, "command queue");
        let is_fence = operation.completion == Completion::Fence;
        let _place = is_fence.then(|| self.waits.enter());
        self.follow_ring(operation, stream);
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
            .map_err(|failure| failed(operation.name, &failure))
    }

    /// Prepends a command that orders commands of the command queue behind those in the ring.
    fn follow_ring(&self, operation: &Operation, stream: &mut Vec<u8>) {
        let Some(ring) = &self.ring else { return };
        // Requests about the client itself do not depend on others, and must not wait.
        if operation.is(Property::Client) {
            return;
        }
        let position = ring.position();
        let mut first = Vec::new();
        encode(&request::gpgpuRingAfter { position }, &mut first);
        stream.splice(0..0, first);
    }

    /// Sends a request that needs no answer; a later call reports an error. Once the GPU's state is corrupted, every
    /// call has to report it, and so waits for an answer.
    pub fn post<R: Request>(&self, request: &R) -> Result {
        if self.corrupted.load(Ordering::Relaxed) {
            return self.call(request).map(drop);
        }
        self.require(R::OPERATION)?;
        before::sending(request);
        let posted = thread::with_stream_buffer(|stream| {
            encode(request, stream);
            self.post_command(R::OPERATION, stream)
        });
        posted.map_err(|failure| failed(R::NAME, &failure))
    }

    /// Sends a request like [`Self::post`], unless that would block; `None` if it would, in which case nothing was
    /// sent. `Some(true)` means that the caller must [wake the worker](Self::wake_worker). The caller may hold locks
    /// that callbacks of the program need.
    #[inline]
    pub fn try_post<R: Request>(&self, request: &R) -> Option<bool> {
        let is_ready = !self.is_corrupted() && self.shared.has(R::OP);
        let waits = const { before::uses_memory::<R>() } && before::is_wanted();
        let ring = self.ring.as_ref().filter(|_| is_ready && !waits)?;
        let operation = R::OPERATION;
        thread::with_stream_buffer(|stream| {
            encode(request, stream);
            if !operation.rings || !Ring::fits(stream.len()) {
                return None;
            }
            let appended = || self.work.count_appended(operation);
            ring.try_post(thread::tag(), stream, appended)
        })
    }

    /// Wakes the worker after a request that was posted.
    ///
    /// # Errors
    ///
    /// The client has ended.
    #[cold]
    pub fn wake_worker(&self) -> Result {
        self.wake()
            .map_err(|failure| failed(request::gpgpuRingWake::NAME, &failure))
    }

    #[inline]
    fn post_command(
        &self,
        operation: &'static Operation,
        stream: &mut Vec<u8>,
    ) -> std::result::Result<(), Failure> {
        match &self.ring {
            Some(ring) if operation.rings && Ring::fits(stream.len()) => {
                let appended = || self.work.count_appended(operation);
                ring.post(
                    thread::tag(),
                    stream,
                    appended,
                    || self.wake(),
                    || self.is_served(),
                )
            }
            _ => {
                self.follow_ring(operation, stream);
                let posted = self.transport.post(thread::tag(), stream);
                self.work.count(operation);
                posted
            }
        }
    }

    /// Whether the GPU's state is corrupted. Then only the host knows the result of a call.
    #[inline]
    pub fn is_corrupted(&self) -> bool {
        self.corrupted.load(Ordering::Relaxed)
    }

    /// Records a code after which every call fails with the same code.
    #[inline]
    fn note(&self, code: CUresult) {
        if is_sticky(code) && !self.corrupted.swap(true, Ordering::Relaxed) {
            // A failed request may have reported it.
            self.take_output();
        }
    }

    /// Whether a function of this module or library may print, according to the host. Old hosts log the output of
    /// kernels; newer ones give one answer for all functions of a module.
    ///
    /// # Errors
    ///
    /// The client has ended.
    pub fn may_print(&self, func: u64, parent: u64) -> Result<bool> {
        let prints = true;
        if self.shared.has(request::gpgpuFunctionPrints::OP) {
            let question = request::gpgpuFunctionPrints { func, prints };
            return Ok(self.call(&question)?.prints != 0);
        }
        let question = request::gpgpuMayPrint {
            object: parent,
            prints,
        };
        Ok(self.shared.has(request::gpgpuMayPrint::OP) && self.call(&question)?.prints != 0)
    }

    /// Records a launch that may print.
    pub fn launched_printing(&self) {
        self.output.launched();
    }

    /// Fetches and writes the output of kernels, if an answer reports any.
    #[inline]
    fn put_output(&self, answer: &[u8]) {
        if has_output(answer) {
            self.take_output();
        } else if self.output.is_due() && !before::is_own() {
            self.output.wait_for_others();
        }
    }

    #[cold]
    fn take_output(&self) {
        // Not in a call of the library itself: a thread of the program may hold the C library's stream and wait for the
        // work that the call concerns. The program's next call writes the text.
        if before::is_own() || !self.shared.has(request::gpgpuOutput::OP) {
            return;
        }
        let _taking = self.output.take();
        let mut answer = vec![0; MAX_ANSWER_BYTES];
        loop {
            let question = request::gpgpuOutput {
                output: true,
                error: true,
                more: true,
            };
            // Without an answer the client has ended, and the present call will report that.
            let Ok(length) = self.ask(&question, &mut answer) else {
                return;
            };
            let decoded = decode::<request::gpgpuOutput>(&answer[..length.min(answer.len())]);
            let Ok(taken) = decoded.and_then(reply) else {
                return;
            };
            output::put(&taken.output.0, &taken.error.0);
            if taken.more == 0 {
                return;
            }
        }
    }

    /// The amount of work submitted to the GPU. Pass it to [`Connection::set_idle`] when a synchronisation that begins
    /// now is over.
    #[inline]
    pub fn given(&self) -> Given {
        self.work.given()
    }

    /// Records that the current context has done all work up to `given`.
    pub fn set_idle(&self, given: Given, scope: Scope) {
        self.work.set_idle(given, scope);
    }

    /// Whether a synchronisation of the current context would find nothing that an earlier one has not found: no work,
    /// no error and no output.
    pub fn is_synchronised(&self) -> bool {
        self.work.is_synchronised()
            && self.deferred.load(Ordering::Relaxed) == CUDA_SUCCESS
            && !self.is_corrupted()
            && !self.output.is_due()
    }

    /// The number of requests that were sent, except queries.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.work.sent()
    }

    /// Records that a stream has done all work before [`Connection::sent`] was `sent`. With `is_settled`, there is also
    /// no pending work for which its next work would wait, as shown by a complete record of an event in it.
    pub fn set_stream_idle(&self, stream: u64, sent: u64, is_settled: bool) {
        self.work.set_stream_idle(stream, sent, is_settled);
    }

    /// Whether a stream is known to be idle, and the host has nothing else to report.
    #[inline]
    pub fn is_stream_idle(&self, stream: u64) -> bool {
        self.work.is_stream_idle(stream) && !self.is_corrupted() && !self.output.is_due()
    }

    /// Whether a stream's next record of an event is known to complete at once, and the host has nothing else to
    /// report.
    #[inline]
    pub fn is_stream_settled(&self, stream: u64) -> bool {
        self.work.is_stream_settled(stream) && !self.is_corrupted() && !self.output.is_due()
    }

    /// Whether no work was submitted since a stream was settled. The host may nevertheless find it busy for a moment.
    pub fn was_left_settled(&self, stream: u64) -> bool {
        self.work.was_left_settled(stream) && !self.is_corrupted() && !self.output.is_due()
    }

    /// Whether a wait must be one in the host's driver, which writes the output of kernels only during waits. `false`
    /// without a wide ring, where each such wait uses the command queue and thus waits in the driver.
    pub fn waits_for_text(&self) -> bool {
        self.output.is_due() && self.is_wide
    }

    /// Whether the current context is known to have done all its work.
    pub fn is_idle(&self, scope: Scope) -> bool {
        self.work.is_idle(scope)
    }

    /// Waits until the current context has done all its work, unless it is known to have done it.
    ///
    /// # Errors
    ///
    /// The error of the context's earlier work.
    pub fn finish_context(&self) -> Result {
        if self.is_idle(Scope::All) {
            return Ok(());
        }
        self.call(&request::cuCtxSynchronize {}).map(drop)
    }

    /// The transport of requests to the device.
    #[inline]
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// The maximum number of bytes of data with one request.
    pub fn block_bytes(&self) -> usize {
        self.transport.block_bytes()
    }
}

/// Logs that a call waits for the host. Such calls are the first thing to count when a program is slow.
fn say_that_waits(operation: &Operation, on: &str) {
    log::say(Level::Trace, || format!("{} waits: {on}", operation.name));
}
