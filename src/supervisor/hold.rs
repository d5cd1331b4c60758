// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Keeps a VMM's connection open as long as a process may write to its VM's memory.
//!
//! A VMM that sees the end of its connection reuses the memory, or connects again. So each process that can write to
//! the memory keeps the connection open. It stays open even if all processes are killed at once and one of them takes
//! long to end.
//!
//! A worker must not have the connection itself, because descriptors of all of the guest's memory arrive on it. It has
//! a hold instead: a listener with one pending connection, on which the VMM's connection is in flight. The kernel
//! closes the pending connection only with the last descriptor of the listener. Only `accept` could take it out, and
//! the list of system calls of workers and movers lacks that call. So they get a hold only if other calls kill them.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use crate::ipc;

/// Makes a hold: the connection stays open until the hold's last descriptor is closed.
///
/// # Errors
/// The host is out of descriptors.
pub fn hold(connection: &UnixStream) -> io::Result<Arc<File>> {
    let (listener, inside) = ipc::queued_connection()?;
    ipc::send_some(inside.as_fd(), &[0], &[connection.as_raw_fd()]).map_err(io::Error::other)?;
    Ok(Arc::new(listener.into()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use nix::{
        errno::Errno,
        sys::socket::{MsgFlags, recv},
    };

    use super::*;

    #[test]
    fn a_connection_is_open_as_long_as_anybody_has_a_hold_and_cannot_be_received_from_it() {
        let (mut vmm, ours) = UnixStream::pair().unwrap();
        let first = hold(&ours).unwrap();
        drop(ours);
        let second = first.try_clone().unwrap();
        drop(first);
        assert!(!ipc::has_hung_up(vmm.as_fd()));
        let received = recv(second.as_raw_fd(), &mut [0], MsgFlags::MSG_DONTWAIT);
        assert_eq!(received, Err(Errno::EINVAL));
        drop(second);
        assert_eq!(vmm.read(&mut [0]).unwrap(), 0);
    }
}
