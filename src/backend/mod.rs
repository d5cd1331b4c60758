// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device process. Each connection of a VMM has one.
//!
//! It is the vhost-user back end of one VM. It serves the virtqueues ([`queue`], [`chain`]), manages the VM's clients
//! ([`client`]), and passes their commands to their workers ([`control`], [`command`]). Data goes through staging
//! memory, so that a worker needs no access to the guest's memory ([`staging`]), or by a mover ([`movers`], [`runs`]).
//! [`vm`] holds the state, and [`vhost_user`] connects it to the vhost-user library's threads.
//!
//! A VMM may end its VM when its back end ends, so this process must not fail. It runs no CUDA and no code of the
//! guest, does no unbounded allocation, does not panic, and waits without a limit only for the end of writers to the
//! guest's memory ([`reset`]). A page of the guest's memory that the host cannot provide fails only the requests that
//! need it ([`lost_pages`]).

pub mod chain;
mod client;
mod command;
mod control;
mod front_end;
mod lost_pages;
mod memory;
mod movers;
pub mod queue;
mod reset;
mod rest;
pub mod ring;
pub mod runs;
pub mod staging;
pub mod vhost_user;
pub mod vm;
pub mod watch;
mod worker_messages;

use std::{
    hash::{BuildHasher, RandomState},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use gpgpu_protocol::layout::Config;
use vhost::vhost_user::Error as VhostUserError;
use vhost_user_backend::VhostUserDaemon;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use crate::ipc::{
    self,
    device::{DeviceEnd, ToDevice},
};
pub use front_end::FrontEnd;
use vhost_user::{Backend, LINK_EVENT};
use vm::Vm;
use watch::{Loop, Watch};

/// The reason why a device process ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The supervisor has ended, or belongs to another build.
    #[error("The supervisor: {0}")]
    Link(#[from] ipc::Error),
    /// The supervisor's first message is not the expected one.
    #[error("No connection from the supervisor")]
    NothingToServe,
    /// The setup failed.
    #[error("{0}: {1}")]
    Io(&'static str, #[source] io::Error),
    /// The vhost-user library failed, or the front end sent an invalid message.
    #[error("vhost-user: {0}")]
    VhostUser(vhost_user_backend::Error),
}

/// Serves one connection until the VMM closes it. The front end is made before the process enters its sandbox, which
/// forbids making sockets.
///
/// # Errors
/// See [`Error`]. A VMM that disconnects is not an error.
pub fn run(link: OwnedFd, mut front_end: FrontEnd) -> Result<(), Error> {
    lost_pages::install().map_err(|error| Error::Io("Installing a signal handler", error))?;
    let link = DeviceEnd::new(link);
    let ToDevice::Serve {
        connection,
        max_clients,
        pause_limit,
    } = link.wait()?
    else {
        return Err(Error::NothingToServe);
    };
    // The state owns the link; this copy is for the event loop.
    let link_events = link
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Error::Io("Duplicating the link", error))?;

    let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
    let mut vm = Vm::new(memory.clone(), link, Box::new(Nothing));
    vm.limit_rests(pause_limit);
    let config = Config::with_clients(max_clients).of_instance(instance());
    let backend = Backend::new(vm, config);
    let backend = Arc::new(backend.map_err(|error| Error::Io("Setting up an event", error))?);
    let mut daemon = VhostUserDaemon::new("vhost-user".to_owned(), Arc::clone(&backend), memory)
        .map_err(Error::VhostUser)?;
    let handlers = daemon.get_epoll_handlers();
    let [handler] = &handlers[..] else {
        return Err(Error::NothingToServe);
    };
    let events =
        Loop::new(Arc::clone(handler)).map_err(|error| Error::Io("Setting up a timer", error))?;
    backend.lock().set_watch(Box::new(events));
    handler
        .register_listener(link_events.as_raw_fd(), EventSet::IN, u64::from(LINK_EVENT))
        .map_err(|error| Error::Io("Watching the link", error))?;

    front_end
        .forward(connection, backend.ends())
        .map_err(|error| Error::Io("Starting to serve the connection", error))?;
    daemon
        .start(&mut front_end.listener)
        .map_err(Error::VhostUser)?;
    let ended = daemon.wait();
    vhost_user::finish(&mut backend.lock());
    match ended {
        // A front end may disconnect, or be killed, in the middle of a message.
        Err(vhost_user_backend::Error::HandleRequest(
            VhostUserError::Disconnected | VhostUserError::PartialMessage,
        )) => Ok(()),
        result => result.map_err(Error::VhostUser),
    }
    // The process ends now: the workers see that their channels are closed, and the supervisor ends them.
}

/// A number that no other device process has. A VMM may reconnect to another device process while its driver has
/// clients of this one.
fn instance() -> u64 {
    // Each process has random keys.
    RandomState::new().hash_one(std::process::id()).max(1)
}

/// Stands in for the event loop before it exists. There are no clients at that time.
struct Nothing;

impl Watch for Nothing {
    fn add(&self, _: BorrowedFd<'_>, _: usize, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: BorrowedFd<'_>, _: usize) {}

    fn tick(&self, _: bool) {}

    fn again(&self) {}
}

#[cfg(test)]
mod tests;
