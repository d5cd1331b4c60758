// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Workers' doorbells: detects which have been rung.
//!
//! A worker shares its doorbell, an eventfd, with this process as one object: it can read it, fill it, and change its
//! blocking mode. So this process neither reads nor writes it. Each write by the worker is an event (`EPOLLET`),
//! whatever its value. A full doorbell refuses its worker's writes, so it silences only that worker.
//!
//! Each event costs this process some microseconds, so a VM has a limit for events, whatever the number of its workers.
//! A bell that is rung beyond the limit is *muffled*: it raises no events, and its worker's account is read every
//! millisecond instead. When the VM has been within its limit for a while, its events are enabled again.

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io,
    time::{Duration, Instant},
};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::Client;
use crate::pace::Pace;

/// The number of events that a VM's bells may raise at once, and the interval for one more. A worker whose commands
/// each need a grant rings some ten thousand times a second.
const BURST: u32 = 20_000;
/// See [`BURST`].
const PERIOD: Duration = Duration::from_micros(50);
/// The interval between two reads of a muffled bell's account.
pub const LOOK: Duration = Duration::from_millis(1);

const RUNG: EpollFlags = EpollFlags::EPOLLIN.union(EpollFlags::EPOLLET);

/// The limits of VMs, and the muffled bells.
#[derive(Debug, Default)]
pub struct Bells {
    paces: HashMap<usize, Pace>,
    muffled: BTreeSet<Client>,
}

impl Bells {
    /// Watches a client's bell.
    ///
    /// # Errors
    /// The host is out of epoll watches.
    pub fn add(epoll: &Epoll, client: Client, bell: &File) -> io::Result<()> {
        Ok(epoll.add(bell, EpollEvent::new(RUNG, client.into()))?)
    }

    /// Handles a ring of a client's bell, and muffles the bell if its VM's bells ring too often.
    pub fn rung(&mut self, epoll: &Epoll, client: Client, vm: usize, bell: &File, now: Instant) {
        if self.pace(vm).take(now) || self.muffled.contains(&client) {
            return;
        }
        if set(epoll, client, bell, EpollFlags::EPOLLET) {
            self.muffled.insert(client);
        }
    }

    /// Enables the events of a muffled bell if its VM's limit allows one. A ring in the meantime raises an event.
    pub fn unmuffle(
        &mut self,
        epoll: &Epoll,
        client: Client,
        vm: usize,
        bell: &File,
        now: Instant,
    ) {
        if self.pace(vm).take(now) && set(epoll, client, bell, RUNG) {
            self.muffled.remove(&client);
        }
    }

    fn pace(&mut self, vm: usize) -> &mut Pace {
        let pace = || Pace::new(BURST, PERIOD);
        self.paces.entry(vm).or_insert_with(pace)
    }

    /// The clients whose accounts have to be read every [`LOOK`].
    pub fn muffled(&self) -> &BTreeSet<Client> {
        &self.muffled
    }

    /// Removes a client that has ended.
    pub fn remove(&mut self, epoll: &Epoll, client: Client, bell: &File) {
        self.muffled.remove(&client);
        // This fails only for a bell that is not watched.
        let _ = epoll.delete(bell);
    }
}

/// Changes the events of a bell; `false` means that this is impossible at present.
fn set(epoll: &Epoll, client: Client, bell: &File, flags: EpollFlags) -> bool {
    let changed = epoll.modify(bell, &mut EpollEvent::new(flags, client.into()));
    changed.is_ok()
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::fd::OwnedFd};

    use nix::sys::{
        epoll::{EpollCreateFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
    };

    use super::*;

    /// A bell in the worst state that a worker can cause: a read blocks.
    fn bell() -> File {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        File::from(OwnedFd::from(bell))
    }

    fn ring(bell: &File) {
        let mut bell = bell;
        bell.write_all(&1_u64.to_ne_bytes()).unwrap();
    }

    fn heard(epoll: &Epoll) -> bool {
        let mut events = [EpollEvent::empty(); 4];
        epoll.wait(&mut events, EpollTimeout::ZERO).unwrap() > 0
    }

    #[test]
    fn each_ring_is_heard_up_to_the_bound_and_then_none_until_the_vm_is_within_it() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let (bell, now) = (bell(), Instant::now());
        let mut bells = Bells::default();
        Bells::add(&epoll, 1, &bell).unwrap();
        assert!(!heard(&epoll));
        for _ in 0..BURST {
            ring(&bell);
            assert!(heard(&epoll));
            assert!(!heard(&epoll), "once for each, though no process reads it");
            bells.rung(&epoll, 1, 7, &bell, now);
            assert!(bells.muffled().is_empty());
        }
        ring(&bell);
        assert!(heard(&epoll));
        bells.rung(&epoll, 1, 7, &bell, now);
        assert!(bells.muffled().contains(&1));
        ring(&bell);
        assert!(!heard(&epoll));
        // Another worker of the same VM shares its limit; another VM has its own.
        let (second, third) = (self::bell(), self::bell());
        Bells::add(&epoll, 2, &second).unwrap();
        Bells::add(&epoll, 3, &third).unwrap();
        bells.rung(&epoll, 2, 7, &second, now);
        bells.rung(&epoll, 3, 8, &third, now);
        assert_eq!(Vec::from_iter(bells.muffled()), [&1, &2]);

        bells.unmuffle(&epoll, 1, 7, &bell, now);
        assert!(!heard(&epoll));
        let later = Instant::now() + PERIOD;
        bells.unmuffle(&epoll, 1, 7, &bell, later);
        assert!(heard(&epoll), "it was rung meanwhile");
        ring(&bell);
        assert!(heard(&epoll));
        bells.remove(&epoll, 1, &bell);
        ring(&bell);
        assert!(!heard(&epoll));
    }

    #[test]
    fn a_bell_that_its_worker_has_filled_or_emptied_delays_no_other() {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let bell = bell();
        Bells::add(&epoll, 1, &bell).unwrap();
        let mut filled = &bell;
        filled.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        assert!(heard(&epoll));
        assert!(!heard(&epoll));
        let mut count = [0; 8];
        std::io::Read::read_exact(&mut filled, &mut count).unwrap();
        assert_eq!(u64::from_ne_bytes(count), u64::MAX - 1);
        ring(&bell);
        std::io::Read::read_exact(&mut filled, &mut count).unwrap();
        assert!(!heard(&epoll), "it is its worker's loss");
        ring(&bell);
        assert!(heard(&epoll));
    }
}
