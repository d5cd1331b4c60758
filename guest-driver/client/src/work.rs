// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tracks the GPU's work, and the part of it that a context is known to have done.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::api::{Operation, Property};

use crate::thread;

/// The amount of work that was submitted to the GPU.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Given {
    /// Work whose completion the host can observe.
    pub work: u64,
    /// Copies to the device for whose completion no caller has waited.
    writes: u64,
}

/// The kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// All work of the context, and all copies to the device.
    All,
    /// The work for which the legacy stream waits: all except that of non-blocking streams.
    Legacy,
}

/// Numbers of requests. They only grow, so if a sum of two is unchanged, both are.
#[derive(Debug, Default)]
struct Counts {
    /// GPU work whose completion the host can observe.
    work: AtomicU64,
    /// Copies to the device for whose completion no caller waits.
    writes: AtomicU64,
    /// All requests except queries, and requests for whose completion the caller waits.
    sent: AtomicU64,
}

impl Counts {
    /// Counts a request by `add`.
    #[inline]
    fn count(&self, operation: &Operation, add: impl Fn(&AtomicU64)) {
        let is_work = operation.leaves_work();
        let is_write = operation.is(Property::Write);
        // First: a thread that sees the request in another number then sees it in this one too.
        if !operation.is(Property::Observes) || is_work || is_write {
            add(&self.sent);
        }
        if is_work {
            add(&self.work);
        }
        if is_write {
            add(&self.writes);
        }
    }
}

/// The counts of a connection.
#[derive(Debug, Default)]
pub struct Work {
    /// Posts in the ring for which no thread waits. One thread at a time counts them.
    appended: Counts,
    /// All other requests.
    others: Counts,
    idle: Mutex<Idle>,
    settled: Mutex<SettledStream>,
}

/// The stream that was settled last, as by [`Work::set_stream_idle`], and the amount of work at that time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct SettledStream {
    stream: u64,
    context: u64,
    given: Given,
}

/// A stream that had done all its work when this much had been sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct IdleStream {
    stream: u64,
    /// The current context, because special handles are streams of it.
    context: u64,
    sent: u64,
    /// Whether there is no pending work for which the stream's next work would wait.
    is_settled: bool,
}

thread_local! {
    /// The stream that the thread last found idle.
    static IDLE_STREAM: Cell<Option<IdleStream>> = const { Cell::new(None) };
}

/// The amount of work when a context was last known to have done it.
#[derive(Debug, Default)]
struct Idle {
    context: u64,
    /// All of it.
    all: Given,
    /// The work for which the legacy stream waits.
    legacy: u64,
    /// What had been sent before the context's last synchronisation.
    sent: Option<u64>,
}

impl Work {
    /// Counts a request that was just sent. Not before it is sent: otherwise a thread that synchronises in between
    /// would consider it done.
    #[inline]
    pub fn count(&self, operation: &Operation) {
        self.others.count(operation, |count| {
            count.fetch_add(1, Ordering::Release);
        });
    }

    /// The same for a request that was appended to the ring. Only the thread that holds the ring's lock counts these.
    #[inline]
    pub fn count_appended(&self, operation: &Operation) {
        self.appended.count(operation, |count| {
            // An atomic addition would wait until the ring's tail is visible.
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
        });
    }

    #[inline]
    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let (appended, others) = (of(&self.appended), of(&self.others));
        appended.load(Ordering::Acquire) + others.load(Ordering::Acquire)
    }

    /// The number of requests that were sent, except queries.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sum(|counts| &counts.sent)
    }

    /// Records that a stream has done all its work before [`Work::sent`] was `sent`, and that no other work was
    /// submitted to it before.
    ///
    /// `is_settled`: other streams have also done all work for which the stream's next work would wait. A query or a
    /// wait does not show this: a blocking stream without work may still wait for the legacy stream.
    pub fn set_stream_idle(&self, stream: u64, sent: u64, is_settled: bool) {
        let found = IdleStream {
            stream,
            context: thread::current_context(),
            sent,
            is_settled: true,
        };
        let is_settled = is_settled || IDLE_STREAM.get() == Some(found);
        IDLE_STREAM.set(Some(IdleStream {
            is_settled,
            ..found
        }));
        if is_settled {
            let settled = SettledStream {
                stream,
                context: found.context,
                given: self.given(),
            };
            // Another thread may have given the stream work since it was found idle.
            if self.sent() == sent {
                *self.settled.lock() = settled;
            }
        }
    }

    /// Whether no work was submitted since a stream was settled. If the host nevertheless finds work in it, that is a
    /// record of an event that is complete for the program, or a mark of the host behind one.
    pub fn was_left_settled(&self, stream: u64) -> bool {
        let settled = SettledStream {
            stream,
            context: thread::current_context(),
            given: self.given(),
        };
        *self.settled.lock() == settled
    }

    /// Whether a stream is known to be idle: this thread has found it idle, and nothing was sent since.
    #[inline]
    pub fn is_stream_idle(&self, stream: u64) -> bool {
        self.idle_stream(stream).is_some()
    }

    /// Whether a stream is known to be idle and settled, as [`Work::set_stream_idle`] says.
    #[inline]
    pub fn is_stream_settled(&self, stream: u64) -> bool {
        self.idle_stream(stream).is_some_and(|of| of.is_settled)
    }

    #[inline]
    fn idle_stream(&self, stream: u64) -> Option<IdleStream> {
        IDLE_STREAM.get().filter(|of| {
            of.stream == stream && of.sent == self.sent() && of.context == thread::current_context()
        })
    }

    /// The amount of work that was submitted to the GPU.
    #[inline]
    pub fn given(&self) -> Given {
        Given {
            work: self.sum(|counts| &counts.work),
            writes: self.sum(|counts| &counts.writes),
        }
    }

    /// Records that the current context has done all work up to `given`.
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

    /// Records that the current context was synchronised, after [`Work::given`] and [`Work::sent`] had these values.
    pub fn set_synchronised(&self, given: Given, sent: u64) {
        // At once: other threads may work in other contexts.
        *self.idle() = Idle {
            context: thread::current_context(),
            all: given,
            legacy: given.work,
            sent: Some(sent),
        };
    }

    /// Whether nothing was sent since the current context was synchronised, so that another synchronisation would find
    /// neither work nor an error.
    pub fn is_synchronised(&self) -> bool {
        let (idle, sent) = (self.idle(), self.sent());
        idle.context == thread::current_context() && idle.sent == Some(sent)
    }

    /// Whether the current context is known to have done all its work.
    pub fn is_idle(&self, scope: Scope) -> bool {
        let (idle, given) = (self.idle(), self.given());
        let is_done = match scope {
            Scope::All => idle.all == given,
            Scope::Legacy => idle.legacy == given.work,
        };
        // A context in which no work was done counts as busy, which costs little and only once.
        idle.context == thread::current_context() && is_done
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock()
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Request, request};

    use super::*;

    #[test]
    fn a_stream_is_idle_until_anything_is_sent_but_a_look() {
        std::thread::spawn(|| {
            let work = Work::default();
            thread::set_context(1);
            assert!(!work.is_stream_idle(0));
            work.set_stream_idle(7, work.sent(), false);
            work.count(request::cuStreamQuery::OPERATION);
            work.count(request::cuEventQuery::OPERATION);
            work.count(request::cuStreamSynchronize::OPERATION);
            // Its caller waits for its completion.
            work.count(request::gpgpuBlockOut::OPERATION);
            assert!(work.is_stream_idle(7) && !work.is_stream_idle(8));
            // A handle may stand for another context's stream.
            thread::set_context(2);
            assert!(!work.is_stream_idle(7));
            thread::set_context(1);
            for operation in [
                request::cuLaunchKernelEx::OPERATION,
                request::cuStreamWaitEvent::OPERATION,
                request::cuStreamDestroy_v2::OPERATION,
                request::gpgpuEventMark::OPERATION,
                request::cuMemcpyAsync::OPERATION,
                request::gpgpuBlockIn::OPERATION,
                request::gpgpuWrite::OPERATION,
                request::cuLaunchHostFunc::OPERATION,
            ] {
                for count in [Work::count, Work::count_appended] {
                    work.set_stream_idle(7, work.sent(), true);
                    count(&work, operation);
                    assert!(!work.is_stream_idle(7), "{}", operation.name);
                    assert!(!work.is_stream_settled(7), "{}", operation.name);
                }
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_stream_that_is_found_idle_again_stays_settled() {
        std::thread::spawn(|| {
            let work = Work::default();
            thread::set_context(1);
            work.set_stream_idle(7, work.sent(), false);
            assert!(work.is_stream_idle(7) && !work.is_stream_settled(7));
            work.set_stream_idle(7, work.sent(), true);
            assert!(work.is_stream_settled(7));
            work.set_stream_idle(7, work.sent(), false);
            assert!(work.is_stream_settled(7));
            work.count(request::cuEventDestroy_v2::OPERATION);
            assert!(
                !work.is_stream_idle(7) && work.was_left_settled(7) && !work.was_left_settled(8)
            );
            // After other work was sent, a query does not show the stream's dependencies.
            work.count(request::cuEventRecord::OPERATION);
            work.set_stream_idle(7, work.sent(), false);
            assert!(work.is_stream_idle(7) && !work.is_stream_settled(7));
            assert!(!work.was_left_settled(7));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_context_is_synchronised_until_something_is_sent() {
        std::thread::spawn(|| {
            let work = Work::default();
            let synchronise = || work.set_synchronised(work.given(), work.sent());
            thread::set_context(1);
            assert!(!work.is_synchronised());
            synchronise();
            assert!(work.is_synchronised() && work.is_idle(Scope::All));
            // A wait and a query find nothing new.
            work.count(request::cuCtxSynchronize::OPERATION);
            work.count(request::cuStreamQuery::OPERATION);
            assert!(work.is_synchronised());
            // A post that is no work may fail later.
            for operation in [
                request::cuEventDestroy_v2::OPERATION,
                request::cuLaunchKernelEx::OPERATION,
            ] {
                for count in [Work::count, Work::count_appended] {
                    synchronise();
                    count(&work, operation);
                    assert!(!work.is_synchronised(), "{}", operation.name);
                    // The legacy stream alone.
                    work.set_idle(work.given(), Scope::Legacy);
                    assert!(!work.is_synchronised());
                }
            }
            synchronise();
            thread::set_context(2);
            assert!(!work.is_synchronised());
            work.set_idle(work.given(), Scope::All);
            thread::set_context(1);
            assert!(!work.is_synchronised());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_context_is_idle_until_something_is_given_and_no_other_context_is() {
        std::thread::spawn(|| {
            let work = Work::default();
            thread::set_context(1);
            assert!(!work.is_idle(Scope::All));
            work.set_idle(work.given(), Scope::All);
            assert!(work.is_idle(Scope::All) && work.is_idle(Scope::Legacy));
            thread::set_context(2);
            assert!(!work.is_idle(Scope::All));
            thread::set_context(1);
            for count in [Work::count, Work::count_appended] {
                work.set_idle(work.given(), Scope::All);
                count(&work, request::cuLaunchKernelEx::OPERATION);
                assert!(!work.is_idle(Scope::All) && !work.is_idle(Scope::Legacy));
                work.set_idle(work.given(), Scope::Legacy);
                assert!(!work.is_idle(Scope::All) && work.is_idle(Scope::Legacy));
            }
        })
        .join()
        .unwrap();
    }
}
