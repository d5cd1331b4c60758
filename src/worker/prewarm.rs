// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The early context: the primary context of the client's first device, made before the guest's first request; without
//! a client, that of the host's first device.
//!
//! It is invisible to the guest: until the guest retains it, the primary context counts as inactive. The guest's first
//! retain takes over this retention. If a guest begins with another context, or does nothing for some seconds, the
//! worker releases it.

use std::time::{Duration, Instant};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Context, Object},
    cuda::*,
};

use crate::account::Charge;
use crate::cuda::{driver, event_thread::with_slack};

/// The time for which a client may leave the context unused. A program that only queries devices should not hold device
/// memory (half a gigabyte on an H100) as long as it runs.
const PATIENCE: Duration = Duration::from_secs(10);

/// The calls of the driver; tests have their own implementation.
pub trait Contexts: Send + Sync + 'static {
    /// Retains the primary context of a device.
    fn retain(&self, device: CUdevice) -> Result<u64, CUresult>;
    /// Releases it.
    fn release(&self, device: CUdevice);
}

/// The host's driver.
#[derive(Debug, Default)]
pub struct Driver;

impl Contexts for Driver {
    fn retain(&self, device: CUdevice) -> Result<u64, CUresult> {
        let mut context = Context::handle(0);
        // SAFETY: the pointer is to a value that lives across the call.
        with_slack(|| unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Ok(Context::id(context))
    }

    fn release(&self, device: CUdevice) {
        // SAFETY: no pointers.
        if let Err(code) = unsafe { driver::cuDevicePrimaryCtxRelease_v2(device) } {
            tracing::debug!("Releasing the early context: {code}");
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It was not requested.
    None,
    /// Its thread is making it.
    Making,
    /// It exists, and waits for the first retain.
    Held(u64),
    /// Its thread has to release it, or is releasing it.
    Unwanted,
    /// It was taken over or released, or could not be made.
    Over,
}

#[derive(Debug)]
struct Shared {
    state: State,
    /// The device that programs use by default.
    device: CUdevice,
    /// The time at which it is released if it is unused.
    deadline: Option<Instant>,
    /// The client's charge for it.
    charge: Option<Charge>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Prewarm<C = Driver> {
    shared: Mutex<Shared>,
    changed: Condvar,
    contexts: C,
}

impl<C: Contexts + Default> Default for Prewarm<C> {
    fn default() -> Self {
        Self::new(C::default())
    }
}

impl<C: Contexts> Prewarm<C> {
    fn new(contexts: C) -> Self {
        let shared = Shared {
            state: State::None,
            device: 0,
            deadline: None,
            charge: None,
        };
        Self {
            shared: Mutex::new(shared),
            changed: Condvar::new(),
            contexts,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock()
    }

    fn wait<'a>(&self, shared: MutexGuard<'a, Shared>) -> MutexGuard<'a, Shared> {
        self.changed.wait(shared)
    }

    fn settle(&self, shared: &mut Shared, state: State) {
        shared.state = state;
        self.changed.notify_all();
    }

    /// The device, by the driver's number.
    pub fn device(&self) -> CUdevice {
        self.lock().device
    }

    /// Sets the client's first device. The context of another device is useless then, and is released.
    pub fn choose(&self, device: CUdevice) {
        let mut shared = self.lock();
        if shared.device == device {
            return;
        }
        match shared.state {
            State::None => shared.device = device,
            _ => {
                drop(shared);
                self.give_up();
            }
        }
    }

    /// Starts to make it, on a thread of its own, unless that was done before. A failure is not reported, because the
    /// guest's own retain will fail too.
    pub fn make(&'static self) {
        let mut shared = self.lock();
        if shared.state != State::None {
            return;
        }
        shared.state = State::Making;
        let thread = std::thread::Builder::new().name("context".into());
        if let Err(error) = thread.spawn(|| self.live()) {
            tracing::debug!("Cannot start a thread: {error}");
            shared.state = State::Over;
        }
    }

    /// Makes it, and manages it until it is taken over or released.
    fn live(&self) {
        let began = Instant::now();
        let device = self.device();
        let made = self.contexts.retain(device);
        tracing::debug!("Start: context made in {:?}: {made:?}", began.elapsed());
        let mut shared = self.lock();
        match made {
            Ok(context) if shared.state == State::Making => {
                self.settle(&mut shared, State::Held(context));
            }
            Ok(_) => {}
            Err(_) => {
                shared.charge = None;
                self.settle(&mut shared, State::Over);
            }
        }
        loop {
            shared = match (shared.state, shared.deadline) {
                (State::Held(_), Some(deadline)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        shared.state = State::Unwanted;
                        continue;
                    }
                    self.changed.wait_timeout(shared, left).0
                }
                (State::Held(_), None) => self.wait(shared),
                (State::Unwanted, _) => {
                    drop(shared);
                    self.contexts.release(device);
                    let mut shared = self.lock();
                    shared.charge = None;
                    self.settle(&mut shared, State::Over);
                    drop(shared);
                    tracing::debug!("Releasing the unused early context");
                    return;
                }
                _ => return,
            };
        }
    }

    /// Starts the time limit of the context, because there is a client now.
    pub fn serve(&self) {
        self.lock().deadline = Some(Instant::now() + PATIENCE);
        self.changed.notify_all();
    }

    /// Sets the client's charge for it: from before it is made, or from the client's arrival, until it has ended.
    pub fn set_charge(&self, charge: Option<Charge>) {
        let mut shared = self.lock();
        // Otherwise a context that is ending or has ended would keep the charge.
        if !matches!(shared.state, State::Unwanted | State::Over) {
            shared.charge = charge;
        }
    }

    /// The client's charge for it, once it has taken it over.
    pub fn take_charge(&self) -> Option<Charge> {
        self.lock().charge.take()
    }

    /// The context, if it exists now; it is not taken over.
    pub fn peek(&self) -> Option<u64> {
        match self.lock().state {
            State::Held(context) => Some(context),
            _ => None,
        }
    }

    /// Takes over the retention; `None` if there is none, in which case the driver has none of it either.
    pub fn take(&self) -> Option<u64> {
        let mut shared = self.lock();
        loop {
            match shared.state {
                State::Making | State::Unwanted => shared = self.wait(shared),
                State::Held(context) => {
                    self.settle(&mut shared, State::Over);
                    return Some(context);
                }
                State::None | State::Over => {
                    shared.state = State::Over;
                    return None;
                }
            }
        }
    }

    /// Gives it up: its thread releases it, now or once it was made. [`Prewarm::wait_over`] waits for that.
    pub fn give_up(&self) {
        let mut shared = self.lock();
        match shared.state {
            State::None => self.settle(&mut shared, State::Over),
            State::Making | State::Held(_) => self.settle(&mut shared, State::Unwanted),
            State::Unwanted | State::Over => {}
        }
    }

    /// Waits until the driver has no such retention, after [`Prewarm::give_up`].
    pub fn wait_over(&self) {
        let mut shared = self.lock();
        while shared.state != State::Over {
            shared = self.wait(shared);
        }
    }

    /// Whether the driver's primary context is or may be retained here and not by the guest.
    pub fn is_hidden(&self) -> bool {
        !matches!(self.lock().state, State::None | State::Over)
    }

    /// Waits while it is being made or released; returns whether it exists afterwards.
    pub fn wait_made(&self) -> bool {
        let mut shared = self.lock();
        loop {
            match shared.state {
                State::Making | State::Unwanted => shared = self.wait(shared),
                State::Held(_) => return true,
                State::None | State::Over => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    };

    use super::*;

    /// A driver whose retain ends as the test determines, and which reports its releases.
    struct Scripted {
        outcome: Mutex<Receiver<Result<u64, CUresult>>>,
        released: Mutex<Sender<()>>,
    }

    impl Contexts for Scripted {
        fn retain(&self, _: CUdevice) -> Result<u64, CUresult> {
            self.outcome.lock().recv().unwrap()
        }

        fn release(&self, _: CUdevice) {
            self.released.lock().send(()).unwrap();
        }
    }

    struct Test {
        ahead: &'static Prewarm<Scripted>,
        finish: Sender<Result<u64, CUresult>>,
        released: Receiver<()>,
    }

    fn test() -> Test {
        let (finish, outcome) = channel();
        let (release, released) = channel();
        let contexts = Scripted {
            outcome: Mutex::new(outcome),
            released: Mutex::new(release),
        };
        Test {
            ahead: Box::leak(Box::new(Prewarm::new(contexts))),
            finish,
            released,
        }
    }

    #[test]
    fn pitfall_59_the_first_retain_takes_the_retention_over_and_only_the_first() {
        let Test {
            ahead,
            finish,
            released,
        } = test();
        assert!(!ahead.is_hidden());
        ahead.make();
        ahead.make();
        assert!(ahead.is_hidden(), "it may be in the driver already");
        let taker = std::thread::spawn(|| ahead.take());
        finish.send(Ok(7)).unwrap();
        assert_eq!(taker.join().unwrap(), Some(7));
        assert!(!ahead.is_hidden());
        assert_eq!(ahead.take(), None);
        ahead.give_up();
        ahead.wait_over();
        assert!(released.try_recv().is_err(), "it is the guest's now");
    }

    #[test]
    fn an_unwanted_context_is_released_once_even_during_its_creation() {
        for early in [true, false] {
            let Test {
                ahead,
                finish,
                released,
            } = test();
            ahead.make();
            if early {
                ahead.give_up();
                finish.send(Ok(7)).unwrap();
            } else {
                finish.send(Ok(7)).unwrap();
                assert!(ahead.wait_made());
                ahead.give_up();
            }
            ahead.wait_over();
            released.recv().unwrap();
            assert_eq!(ahead.take(), None);
            ahead.make();
            assert!(!ahead.is_hidden(), "it is not made again");
            assert!(released.try_recv().is_err());
        }
    }

    #[test]
    fn the_clients_first_device_is_the_one_unless_another_is_made_already() {
        let Test { ahead, .. } = test();
        assert_eq!(ahead.device(), 0);
        ahead.choose(1);
        assert_eq!(ahead.device(), 1);

        let Test {
            ahead,
            finish,
            released,
        } = test();
        ahead.make();
        ahead.choose(0);
        finish.send(Ok(7)).unwrap();
        assert!(ahead.wait_made(), "it is of use");
        ahead.choose(1);
        ahead.wait_over();
        released.recv().unwrap();
        assert_eq!(ahead.take(), None);
    }

    #[test]
    fn one_that_cannot_be_made_leaves_the_guest_to_try() {
        let Test { ahead, finish, .. } = test();
        ahead.make();
        let waits = Arc::new(std::thread::spawn(|| ahead.take()));
        finish.send(Err(CUDA_ERROR_OUT_OF_MEMORY)).unwrap();
        assert_eq!(Arc::into_inner(waits).unwrap().join().unwrap(), None);
        assert!(!ahead.is_hidden());
    }

    #[test]
    fn a_client_that_does_not_use_it_does_not_keep_it() {
        let Test {
            ahead,
            finish,
            released,
        } = test();
        ahead.make();
        finish.send(Ok(7)).unwrap();
        assert!(ahead.wait_made());
        ahead.lock().deadline = Some(Instant::now());
        ahead.changed.notify_all();
        released.recv().unwrap();
        assert_eq!(ahead.take(), None);
    }
}
