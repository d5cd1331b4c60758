// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The listening sockets.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

/// A listening socket. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    /// A spare descriptor. If the process is out of descriptors, it is closed so that a connection can be accepted and
    /// refused.
    reserve: Option<File>,
    listener: UnixListener,
    path: PathBuf,
    /// The device and inode of the file, so that a successor's file is not removed.
    file: (u64, u64),
}

impl Socket {
    /// Binds `path`. A stale socket, on which no process listens, is replaced.
    ///
    /// # Errors
    /// Another process listens there, or may listen there on a socket of another user; another kind of file exists
    /// there, or the directory does not allow it.
    pub fn bind(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "a file that is not a socket exists there",
                ));
            }
            Ok(_) => match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path)?;
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!(
                            "a socket exists there, and whether a process listens cannot be tested: {error}"
                        ),
                    ));
                }
                _ => {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "another process listens there",
                    ));
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let reserve = File::open("/dev/null")?;
        let listener = UnixListener::bind(path)?;
        // A pending connection may be closed before it is accepted.
        listener.set_nonblocking(true)?;
        let file = fs::symlink_metadata(path)?;
        Ok(Self {
            reserve: Some(reserve),
            listener,
            path: path.to_owned(),
            file: (file.dev(), file.ino()),
        })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket itself, which does not block.
    pub fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Accepts the connection that has waited longest, if there is one.
    ///
    /// # Errors
    /// The host is out of file descriptors.
    pub fn accept(&self) -> io::Result<Option<UnixStream>> {
        loop {
            match self.listener.accept() {
                Ok((connection, _)) => return Ok(Some(connection)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(None),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Refuses the connection that has waited longest, if there is one; `false` if that is impossible too.
    pub fn reject(&mut self) -> bool {
        let rejected = self.accept().is_ok() || {
            self.reserve = None;
            self.accept().is_ok()
        };
        if self.reserve.is_none() {
            self.reserve = File::open("/dev/null").ok();
        }
        rejected
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> i32 {
        self.listener.as_raw_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours = |file: fs::Metadata| (file.dev(), file.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpgpu.sock");
        let stale = UnixListener::bind(&path).unwrap();
        assert_eq!(
            Socket::bind(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(stale);
        let socket = Socket::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
        drop(socket);
        assert!(!path.exists());

        fs::write(&path, "precious").unwrap();
        assert_eq!(
            Socket::bind(&path).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    #[test]
    fn accepting_never_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpgpu.sock");
        let mut socket = Socket::bind(&path).unwrap();
        assert!(socket.accept().unwrap().is_none());
        assert!(socket.reject());
        let _waiting = UnixStream::connect(&path).unwrap();
        assert!(socket.accept().unwrap().is_some());
        assert!(socket.accept().unwrap().is_none());
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gpgpu.sock");
        let first = Socket::bind(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let second = Socket::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
