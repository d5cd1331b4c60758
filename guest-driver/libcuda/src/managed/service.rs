// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The thread that handles page faults of managed memory.

use std::{
    ffi::c_void,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use gpgpu_client::{
    Given, before,
    log::{self, Level},
    signals,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{api::request, cuda::*};

use super::{
    MOVED, after_call, before_work, drop_pages, managed, own_stream,
    store::{Answer, Attach, BLOCK, Block, Job, Part},
    tell,
    uffd::{Fault, Uffd},
    within,
};
use crate::{argument::HostPtr, client::Client, copy, ffi::Result};

/// The number of bytes that are fetched at a time.
const BOUNCE: usize = 8 * BLOCK as usize;

/// The handler of page faults.
pub struct Service {
    /// The source of the faults.
    pub uffd: Uffd,
    client: &'static Client,
    /// The buffer for data from the device: its pages are present, so that a transfer causes no page faults.
    bounce: Mutex<Bounce>,
}

/// Memory of [`BOUNCE`] bytes, and as many zeros.
struct Bounce {
    memory: *mut u8,
    zeros: *const u8,
}

// SAFETY: the memory is the library's own, for ever, and used under the lock.
unsafe impl Send for Bounce {}

static SERVICE: OnceLock<Option<Service>> = OnceLock::new();

/// The number of callbacks of the program that run at present, and the thread that runs them.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static CALLING_THREAD: AtomicU32 = AtomicU32::new(0);

/// Whether a callback of the program runs.
pub fn is_calling() -> bool {
    CALLS.load(Ordering::SeqCst) != 0
}

/// Calls the program in a stream, whose later work sees the function's writes to managed memory.
pub fn in_call(client: &Client, call: impl FnOnce()) {
    // SAFETY: the call asks for a number and has no conditions.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    CALLING_THREAD.store(thread as u32, Ordering::Relaxed);
    CALLS.fetch_add(1, Ordering::SeqCst);
    call();
    after_call(client);
    CALLS.fetch_sub(1, Ordering::SeqCst);
}

/// The service, started with the first managed memory; `None` if page faults cannot be handled.
pub fn get(client: &'static Client) -> Option<&'static Service> {
    let service = SERVICE.get_or_init(|| {
        Service::new(client)
            .inspect_err(|error| {
                log::say(Level::Info, || {
                    format!(
                        "Managed memory is pinned memory, which kernels reach more slowly: no userfaultfd ({error}); /dev/userfaultfd must be \
                         open to this user"
                    )
                });
            })
            .ok()
    });
    let service = service.as_ref()?;
    static START: OnceLock<bool> = OnceLock::new();
    START
        .get_or_init(|| {
            before::set(before_work);
            signals::spawn("gpgpu-managed", move || service.serve()).is_ok()
        })
        .then_some(service)
}

/// The service, if it was started.
pub fn get_if_there() -> Option<&'static Service> {
    SERVICE.get()?.as_ref()
}

fn anonymous(bytes: usize, protection: i32) -> std::io::Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel finds a place of its own for the mapping.
    let mapped = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(mapped)
    }
}

impl Service {
    fn new(client: &'static Client) -> std::io::Result<Self> {
        Ok(Self {
            uffd: Uffd::open()?,
            client,
            bounce: Mutex::new(Bounce {
                memory: anonymous(BOUNCE, libc::PROT_READ | libc::PROT_WRITE)?.cast(),
                zeros: anonymous(BOUNCE, libc::PROT_READ)?.cast_const().cast(),
            }),
        })
    }

    fn serve(&'static self) {
        // GPU work of this thread is the library's own.
        before::set_own(true);
        let mut settled = None;
        loop {
            let mut fd = libc::pollfd {
                fd: self.uffd.fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: the array is one entry long.
            let ready = unsafe { libc::poll(&mut fd, 1, -1) };
            if ready < 0
                && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted
            {
                return;
            }
            while let Some(fault) = self.uffd.next() {
                self.answer(fault, &mut settled);
            }
        }
    }

    fn answer(&self, fault: Fault, settled: &mut Option<Given>) {
        let mut managed = managed();
        match managed.store.answer(
            fault.address,
            fault.writes,
            fault.is_protected,
            self.uffd.has_protection(),
        ) {
            Answer::Fetch(job) => {
                tell(&managed);
                drop(managed);
                if job.is_copied {
                    self.settle(&job, fault.thread, settled);
                }
                self.fetch(&job);
            }
            Answer::Unprotect(start, span) => {
                tell(&managed);
                self.uffd.protect(start, span, false);
                self.uffd.wake(start, span);
            }
            Answer::Zero(page) => {
                // Under the lock: this library drops pages only in the states that the store defines for it.
                if self.uffd.zero(page)
                    && let Some((start, span)) = managed.store.was_taken(page)
                {
                    tell(&managed);
                    self.uffd.protect(start, span, false);
                    self.uffd.wake(start, span);
                }
                self.uffd.wake(page, 4096);
            }
            Answer::Again => self.uffd.wake(fault.address & !4095, 4096),
            Answer::Later => {}
        }
    }

    /// Waits for the work that may use blocks: of all contexts for global blocks, of one stream, or of the streams with
    /// copies that name them.
    ///
    /// While a callback of the program runs, this does not wait: the stream continues only when the callback returns,
    /// and by CUDA's rules work that uses the memory is complete when the program accesses it.
    fn settle(&self, job: &Job, thread: u32, settled: &mut Option<Given>) {
        let is_call = thread != 0 && thread == CALLING_THREAD.load(Ordering::Relaxed);
        if !is_call && !is_calling() {
            self.wait_for_work(job, settled);
        }
    }

    /// The same, even while a callback runs.
    pub fn wait_for_work(&self, job: &Job, settled: &mut Option<Given>) {
        let context;
        let (attach, used, contexts) = {
            let mut managed = managed();
            let contexts: Vec<_> = managed.contexts.iter().map(|(of, _)| *of).collect();
            let Some(of) = managed.store.get(job.allocation) else {
                return;
            };
            // A page of variables is global; other memory has one part.
            context = of.parts.first().map_or(0, |part| part.context);
            (of.attach, std::mem::take(&mut of.used), contexts)
        };
        let everything = || {
            for context in &contexts {
                // A context that has failed has no work any more.
                let _ = within(self.client, *context, || {
                    self.client.call(&request::cuCtxSynchronize {}).map(drop)
                });
            }
        };
        let streams = match attach {
            Attach::Global => {
                let given = self.client.given();
                if *settled != Some(given) {
                    everything();
                    *settled = Some(given);
                }
                return;
            }
            Attach::Host => used,
            Attach::Single(own) => used.into_iter().chain([own]).collect(),
        };
        for hStream in streams {
            let waited = within(self.client, context, || {
                self.client
                    .call(&request::cuStreamSynchronize { hStream })
                    .map(drop)
            });
            if waited == Err(CUDA_ERROR_INVALID_HANDLE) {
                // A stream may end before its work is complete.
                everything();
            }
        }
    }

    /// Fetches blocks, and wakes the threads that wait for them.
    pub fn fetch(&self, job: &Job) {
        let span = job.span as usize;
        {
            let bounce = self.bounce.lock();
            let contents: &[u8] = if job.is_copied {
                // SAFETY: the memory is as long as the longest job, and this thread's under the lock.
                let to = unsafe { std::slice::from_raw_parts_mut(bounce.memory, span) };
                self.read(job, to);
                to
            } else {
                // SAFETY: the memory is as long as the longest job, and no thread writes to it.
                unsafe { std::slice::from_raw_parts(bounce.zeros, span) }
            };
            let (first, others) = contents.split_at(span.min(BLOCK as usize));
            self.uffd.fill(job.start, first, job.protect);
            self.uffd.fill(job.start + BLOCK, others, true);
        }
        let is_clean = job.protect && self.uffd.has_protection();
        let mut managed = managed();
        let to = if is_clean { Block::Clean } else { Block::Dirty };
        let outdated = managed.store.arrived(job, to);
        tell(&managed);
        drop(managed);
        for job in &outdated {
            drop_pages(job);
            super::managed().store.set(job, Block::Device);
        }
        self.uffd.wake(job.start, job.span);
        MOVED.notify_all();
    }

    /// Reads the device's part of a job; the rest is zero.
    fn read(&self, job: &Job, to: &mut [u8]) {
        match job.parts.as_slice() {
            [whole] if whole.start == job.start => to[whole.bytes as usize..].fill(0),
            _ => to.fill(0),
        }
        for part in &job.parts {
            let at = (part.start - job.start) as usize;
            let to = &mut to[at..at + part.bytes as usize];
            if let Err(code) = self.read_part(part, to) {
                log::say(Level::Error, || {
                    format!("Managed memory at {:#x} is lost: {code}", part.start)
                });
                to.fill(0);
            }
        }
    }

    fn read_part(&self, part: &Part, to: &mut [u8]) -> Result {
        let place = HostPtr::at(to.as_mut_ptr() as u64);
        within(self.client, part.context, || {
            let stream = own_stream(self.client)?;
            copy::fetch(self.client, place, part.start, to.len(), stream)
        })
    }
}
