// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The channels that the event loop watches.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    sync::Arc,
};

use gpgpu_locks::Mutex;
use vhost_user_backend::VringEpollHandler;
use vmm_sys_util::{
    epoll::EventSet,
    event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier},
    timerfd::TimerFd,
};

use super::vhost_user::{AGAIN_EVENT, Backend, FIRST_CHANNEL_EVENT, TICK, TIMER_EVENT};

/// The functions of an event loop that the device's state needs.
pub trait Watch: Send {
    /// Watches a channel for messages, and with `room` also for room.
    ///
    /// # Errors
    /// The host is out of memory or of epoll watches.
    fn add(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) -> io::Result<()>;
    /// Undoes [`Self::add`].
    fn remove(&self, channel: BorrowedFd<'_>, slot: usize);
    /// Changes the interest in room.
    ///
    /// # Errors
    /// As for [`Self::add`]; the channel is then not watched.
    fn set_room(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) -> io::Result<()> {
        // The library's event loop cannot change an interest.
        self.remove(channel, slot);
        self.add(channel, slot, room)
    }
    /// Enables or disables the timer.
    fn tick(&self, wanted: bool);
    /// Schedules the device's remaining work, after other threads had the lock.
    fn again(&self);
}

/// The event loop of the vhost-user library, with a timer and an event that the device raises itself.
pub struct Loop {
    handler: Arc<VringEpollHandler<Arc<Backend>>>,
    timer: Mutex<TimerFd>,
    again: (EventConsumer, EventNotifier),
}

impl Loop {
    /// Adds the timer and the event to the loop.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors.
    pub fn new(handler: Arc<VringEpollHandler<Arc<Backend>>>) -> io::Result<Self> {
        let timer = TimerFd::new()?;
        handler.register_listener(timer.as_raw_fd(), EventSet::IN, u64::from(TIMER_EVENT))?;
        let again = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        // Edge-triggered, so that no reader has to consume the event.
        let once = EventSet::IN | EventSet::EDGE_TRIGGERED;
        handler.register_listener(again.0.as_raw_fd(), once, u64::from(AGAIN_EVENT))?;
        Ok(Self {
            handler,
            timer: Mutex::new(timer),
            again,
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

impl Watch for Loop {
    fn add(&self, channel: BorrowedFd<'_>, slot: usize, room: bool) -> io::Result<()> {
        let fd = channel.as_raw_fd();
        self.handler
            .register_listener(fd, Self::events(room), Self::data(slot))
    }

    fn remove(&self, channel: BorrowedFd<'_>, slot: usize) {
        let fd = channel.as_raw_fd();
        // This fails only if the channel is not watched. The events are ignored.
        let _ = self
            .handler
            .unregister_listener(fd, EventSet::empty(), Self::data(slot));
    }

    fn tick(&self, wanted: bool) {
        let mut timer = self.timer.lock();
        // Setting a timer fails only for an invalid time.
        let _ = if wanted {
            timer.reset(TICK, Some(TICK))
        } else {
            timer.clear()
        };
    }

    fn again(&self) {
        // This fails only after 2^64 notifications.
        let _ = self.again.1.notify();
    }
}
