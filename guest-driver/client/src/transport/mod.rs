// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The transport of requests to the device: the kernel driver's device file, or a vhost-user socket.

mod children;
mod files;
mod front_end;
mod kernel;
mod queue;
mod shared;
mod socket;
mod window;

use std::{
    ffi::{CString, OsStr},
    fmt, io,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

use gpgpu_protocol::{cuda::*, layout::status};
use thiserror::Error;

use crate::variable;

/// The kernel driver's device file.
const DEVICE: &str = "/dev/virtio-gpgpu";
/// Names a socket to use in place of the device file: `unix:` and a path.
const VARIABLE: &str = "VIRTIO_GPGPU";

/// One exchange.
pub struct Submission<'a> {
    /// The calling thread's tag.
    pub thread: u32,
    /// The commands.
    pub stream: &'a [u8],
    /// Data for the device, at most [`Transport::block_bytes`].
    pub input: &'a [u8],
    /// The buffer for the answer.
    pub answer: &'a mut [u8],
    /// The buffer for data from the device, at most [`Transport::block_bytes`].
    pub output: &'a mut [u8],
}

/// The data of a transfer.
pub enum Data<'a> {
    /// To the device.
    In(&'a [u8]),
    /// From the device.
    Out(&'a mut [u8]),
}

impl Data<'_> {
    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::In(from) => from.len(),
            Self::Out(to) => to.len(),
        }
    }
}

/// The reason why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The device answered with this status.
    Status(u32),
    /// A system call failed with this errno, or the connection broke.
    Os(i32),
}

impl Failure {
    fn last() -> Self {
        Self::Os(
            io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        )
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Os(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(status::CLIENT_DEAD) => {
                f.write_str("the process that served this one on the host is gone")
            }
            Self::Status(status::LIMIT) => {
                f.write_str("a limit of the VM is reached, such as max-clients")
            }
            Self::Status(status::NO_RESOURCES) => {
                f.write_str("the host has no memory left, or could not start a worker")
            }
            Self::Status(status::NO_GPU) => f.write_str("the host has no usable GPU"),
            Self::Status(status::VERSION_MISMATCH) => {
                f.write_str("the host's service is of another version than the driver")
            }
            Self::Status(status) => write!(f, "the device answers with status {status}"),
            Self::Os(errno) => write!(f, "{}", io::Error::from_raw_os_error(errno)),
        }
    }
}

/// Memory that the worker maps at the same address as the program.
#[derive(Debug)]
pub struct Pinned {
    /// The first page's address.
    pub address: u64,
    bytes: usize,
    region: u32,
    backing: Backing,
}

impl Pinned {
    /// The address after the last page.
    pub fn end(&self) -> u64 {
        self.address + self.bytes as u64
    }
}

#[derive(Debug, Clone, Copy)]
enum Backing {
    /// A mapping that was made for this purpose.
    Own,
    /// The program's own pages.
    Program,
    /// A part of the memory shared with the device process, which replaces the program's pages if there were any.
    Shared { offset: u64, program: bool },
    /// The program's own pages, of a file that was passed to the device process.
    Added(front_end::Added),
}

/// A transport of requests to the device. All methods may be called by several threads at once.
pub trait Transport: Send + Sync {
    /// Sends commands and waits for the answer; returns its length.
    fn submit(&self, submission: Submission<'_>) -> Result<usize, Failure>;
    /// Sends commands without an answer. They run after all commands sent before and ahead of all sent later.
    fn post(&self, thread: u32, stream: &[u8]) -> Result<(), Failure>;
    /// Transfers data of any length by commands that process it block by block, several at a time. When it returns,
    /// sent data was read, and received data is complete. Returns the length of the answer, which is that of the last
    /// block, or of the first block that failed, after which no more are sent.
    fn transfer(
        &self,
        thread: u32,
        stream: &[u8],
        data: Data<'_>,
        answer: &mut [u8],
    ) -> Result<usize, Failure>;
    /// The maximum size of the data in one exchange, in bytes.
    fn block_bytes(&self) -> usize;
    /// Whether the worker runs on the same kernel, so that a word of shared memory can wake it.
    fn is_on_this_machine(&self) -> bool;
    /// Allocates pinned memory, filled with zeros.
    fn allocate(&self, bytes: usize) -> Result<Pinned, Failure>;
    /// Pins the program's own pages.
    fn pin(&self, address: u64, bytes: usize, read_only: bool) -> Result<Pinned, Failure>;
    /// Frees pinned memory, or unpins the program's pages.
    fn release(&self, pinned: Pinned);
}

/// The reason why there is no connection, with a remedy.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no device.
    #[error(
        "No GPU here: {DEVICE} is missing. Add the device to the virtual machine and load virtio_gpgpu, or set {VARIABLE}=unix:PATH"
    )]
    NoDevice,
    /// The device file cannot be opened.
    #[error("Cannot open {DEVICE}: {0}")]
    Device(#[source] io::Error),
    /// [`VARIABLE`] has another form.
    #[error("{VARIABLE}={0} is not of the form unix:PATH")]
    Variable(String),
    /// The socket's peer cannot be reached or does not speak vhost-user.
    #[error("Cannot reach the device at {0}: {1}")]
    Socket(PathBuf, String),
    /// The peer is not a virtio-gpgpu device of this version.
    #[error(
        "The device speaks another version of the protocol than this library: install the guest libraries of the host's version"
    )]
    Version,
    /// The device did not make this process a client.
    #[error("The host refuses this process ({0}); its log has the reason")]
    Refused(Failure),
}

impl OpenError {
    /// The code that `cuInit` returns for it.
    pub fn code(&self) -> CUresult {
        match self {
            Self::Version | Self::Refused(Failure::Status(status::VERSION_MISMATCH)) => {
                CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
            }
            Self::Refused(Failure::Status(status::NO_RESOURCES | status::LIMIT)) => {
                CUDA_ERROR_OUT_OF_MEMORY
            }
            _ => CUDA_ERROR_NO_DEVICE,
        }
    }
}

/// Whether there is a device that this process may not open: a file of a group that its user is not in.
pub fn is_forbidden() -> bool {
    let path = match variable::trusted(VARIABLE) {
        Some(name) => socket_of(&name),
        None => Some(PathBuf::from(DEVICE)),
    };
    let path = path.and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
    path.is_some_and(|path| {
        // SAFETY: the path is a string that lives across the call.
        let result = unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) };
        result != 0 && io::Error::last_os_error().kind() == io::ErrorKind::PermissionDenied
    })
}

/// Connects to the device of the environment.
pub fn open() -> Result<Box<dyn Transport>, OpenError> {
    let Some(name) = variable::trusted(VARIABLE) else {
        return Ok(Box::new(kernel::Device::open()?));
    };
    match socket_of(&name) {
        Some(path) => Ok(Box::new(socket::Socket::connect(path)?)),
        None => Err(OpenError::Variable(name.to_string_lossy().into_owned())),
    }
}

/// The path of a socket that [`VARIABLE`] names.
fn socket_of(name: &OsStr) -> Option<PathBuf> {
    let path = name.as_bytes().strip_prefix(b"unix:")?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// This process's name, for the host's log.
fn process_name() -> [u8; 16] {
    let mut name = [0; 16];
    if let Ok(comm) = std::fs::read("/proc/self/comm") {
        for (to, from) in name
            .iter_mut()
            .zip(comm.into_iter().take_while(|byte| *byte != b'\n').take(15))
        {
            *to = from;
        }
    }
    name
}
