//! What this process is: the supervisor, or one of the processes that it starts.

use std::{fs::File, io, os::fd::OwnedFd};

use nix::sys::{
    prctl,
    signal::{SigSet, Signal},
};

/// The first argument of a device process.
pub const DEVICE: &str = "device-process";
/// The first argument of a worker.
pub const WORKER: &str = "worker-process";
/// The first argument of a mover; its GPU's number follows.
pub const MOVER: &str = "mover-process";
/// The first argument of a process that looks for a GPU.
pub const PROBE: &str = "gpu-probe";

/// A worker's argument, and the supervisor's option.
pub const ALLOW_PAGEABLE_ACCESS: &str = "--allow-pageable-access";

/// A worker's argument: it makes a context before there is a client.
pub const WARM_CONTEXTS: &str = "--warm-contexts";

/// Makes this process end with the supervisor, and undoes what it has inherited.
///
/// # Errors
/// The kernel refuses; it does not.
pub fn settle() -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The supervisor blocks the signals that it reads from a descriptor.
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Takes the socket that the supervisor has passed as the standard input.
///
/// # Errors
/// The process was not started by a supervisor.
pub fn take_channel() -> io::Result<OwnedFd> {
    let channel = io::stdin();
    nix::sys::socket::getsockopt(&channel, nix::sys::socket::sockopt::SockType)
        .map_err(|_| io::Error::other("This role is started by the supervisor, not by hand"))?;
    let channel = std::os::fd::AsFd::as_fd(&channel).try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(channel)
}
