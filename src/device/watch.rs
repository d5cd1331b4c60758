//! Which channels the event loop listens to.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use vhost_user_backend::VringEpollHandler;
use vmm_sys_util::{epoll::EventSet, timerfd::TimerFd};

use super::backend::{Backend, FIRST_CHANNEL_EVENT, TIMER_EVENT};

/// How often clients that are being opened are looked at.
const TICK: Duration = Duration::from_secs(1);

/// An event loop, as the device's state needs it.
pub trait Watch: Send {
    /// Listens to a channel, and where `room` for room in it too.
    ///
    /// # Errors
    /// The host is out of memory or watches.
    fn add(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) -> io::Result<()>;
    /// Undoes [`Self::add`].
    fn remove(&self, channel: BorrowedFd<'_>, slot: usize, room: bool);
    /// Says whether the device's state wants to look at the clock from time to time.
    fn tick(&self, wanted: bool);
}

/// The event loop of the command queue's thread, and a timer in that of the control queue's.
pub struct Loops {
    command: Arc<VringEpollHandler<Arc<Backend>>>,
    timer: Mutex<TimerFd>,
}

impl Loops {
    /// Takes the two loops, and adds the timer.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    pub fn new(
        control: &VringEpollHandler<Arc<Backend>>,
        command: Arc<VringEpollHandler<Arc<Backend>>>,
    ) -> io::Result<Self> {
        let timer = TimerFd::new()?;
        control.register_listener(timer.as_raw_fd(), EventSet::IN, u64::from(TIMER_EVENT))?;
        Ok(Self {
            command,
            timer: Mutex::new(timer),
        })
    }

    fn events(room: bool) -> EventSet {
        if room {
            EventSet::IN | EventSet::OUT
        } else {
            EventSet::IN
        }
    }

    fn data(slot: usize) -> u64 {
        u64::from(FIRST_CHANNEL_EVENT) + slot as u64
    }
}

impl Watch for Loops {
    fn add(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) -> io::Result<()> {
        let fd = channel.as_raw_fd();
        self.command
            .register_listener(fd, Self::events(room), Self::data(slot))
    }

    fn remove(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) {
        let fd = channel.as_raw_fd();
        // This fails only for a channel that is not watched.
        let _ = self
            .command
            .unregister_listener(fd, Self::events(room), Self::data(slot));
    }

    fn tick(&self, wanted: bool) {
        let mut timer = self
            .timer
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Setting a timer fails only for times that are not valid.
        let _ = if wanted {
            timer.reset(TICK, Some(TICK))
        } else {
            timer.clear()
        };
    }
}
