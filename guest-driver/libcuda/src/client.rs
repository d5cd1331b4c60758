// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process as a client of the device. There is one client for all threads, made by the first CUDA call.

use std::{
    ops::Deref,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_client::{Connection, forks, thread};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Hello, request},
    cuda::*,
};

use crate::{
    environment::environment,
    ffi::Result,
    graph::left,
    stores::{
        arrays::Arrays,
        freed::Freed,
        host::Host,
        host_parts::HostParts,
        host_pools::HostPools,
        objects::Objects,
        pointers::{Origin, Pointers, Range},
        pools::Pools,
        references::References,
        shareable::Shareable,
    },
    visible,
};

/// The highest version of the driver API that this library reports. A newer host is reported as this version.
pub const API_VERSION: i32 = 13000;

/// The connection and the process's state.
pub struct Client {
    /// The connection to the device.
    pub connection: Connection,
    /// The constant properties of the host.
    pub hello: Hello,
    /// Whether `hello` lists all devices, in the host's order.
    pub sees_all: bool,
    /// The existing objects.
    pub objects: Objects,
    /// The memory that the device can access.
    pub pointers: Pointers,
    /// Pinned host memory.
    pub host: Host,
    /// Pinned memory for small allocations.
    pub host_parts: HostParts,
    /// Device memory that the program freed.
    pub freed: Freed,
    /// Memory pools.
    pub pools: Pools,
    /// Memory pools of the host.
    pub host_pools: HostPools,
    /// Arrays, textures and surfaces.
    pub arrays: Arrays,
    /// Texture and surface references.
    pub references: References,
    /// Physical memory that can be shared with other processes.
    pub shareable: Shareable,
}

static CLIENT: OnceLock<Client> = OnceLock::new();
static CONNECTING: Mutex<Opened> = Mutex::new(Opened(None));
static INITIALISED: AtomicBool = AtomicBool::new(false);

/// The client, after `cuInit`.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_INITIALIZED` before `cuInit` and in a forked child, where CUDA cannot be used.
pub fn client() -> Result<&'static Client> {
    if forks::is_child() || !INITIALISED.load(Ordering::Acquire) {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    if thread::in_callback() {
        return Err(CUDA_ERROR_NOT_PERMITTED);
    }
    CLIENT.get().ok_or(CUDA_ERROR_NOT_INITIALIZED)
}

/// The same, for a thread that has a current context.
///
/// # Errors
///
/// As [`client`] and [`crate::thread::required_context`].
pub fn client_in_context() -> Result<&'static Client> {
    let client = client()?;
    crate::thread::required_context()?;
    Ok(client)
}

gpgpu_client::held_over_forks! {
    /// Lets a forked child connect, whatever other threads do at that time.
    fn watch_connecting() for CONNECTING: Opened
}

/// Runs when the library is loaded: a fork that has begun would not call handlers that are registered then.
#[used]
#[unsafe(link_section = ".init_array")]
static WATCH_CONNECTING: extern "C" fn() = {
    extern "C" fn watch() {
        watch_connecting();
    }
    watch
};

/// `cuInit`: makes the client unless there is one.
///
/// # Errors
///
/// `CUDA_ERROR_NO_DEVICE` if the program sees no device.
pub fn initialise() -> Result {
    if connect()?.hello.devices.is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    INITIALISED.store(true, Ordering::Release);
    Ok(())
}

/// The client, connected at its first use; also for calls before `cuInit`.
pub fn connect() -> Result<&'static Client> {
    if forks::is_child() {
        return Err(CUDA_ERROR_NOT_INITIALIZED);
    }
    // Not `get_or_init`: a failed attempt may be repeated, because the device can appear later.
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    let mut opened = CONNECTING.lock();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    opened.get()?;
    let mut client = opened.take().ok_or(CUDA_ERROR_NOT_INITIALIZED)?;
    client.select_devices()?;
    forks::watch();
    environment();
    Ok(CLIENT.get_or_init(|| client))
}

/// Asks the host by the process's connection. This does not initialise CUDA: a child that is forked later can use CUDA.
///
/// # Errors
///
/// As [`connect`]; the errors of `ask`.
pub fn ask_host<T>(ask: impl FnOnce(&Client) -> Result<T>) -> Result<T> {
    if forks::is_child() || CLIENT.get().is_some() {
        return ask(connect()?);
    }
    let mut opened = CONNECTING.lock();
    match CLIENT.get() {
        Some(client) => ask(client),
        None => ask(opened.get()?),
    }
}

/// The driver's version.
///
/// # Errors
///
/// As [`ask_host`].
pub fn driver_version() -> Result<i32> {
    ask_host(|client| Ok(client.hello.driver_version))
}

/// A client before its first use, and the process that has opened it.
struct Opened(Option<(u32, Client)>);

impl Opened {
    /// This process's client.
    fn get(&mut self) -> Result<&Client> {
        let process = std::process::id();
        // A parent's client is the parent's to use and to close.
        if self.0.as_ref().is_some_and(|(of, _)| *of != process) {
            std::mem::forget(self.0.take());
        }
        if self.0.is_none() {
            self.0 = Some((process, Client::open()?));
        }
        let opened = self.0.as_ref().map(|(_, client)| client);
        opened.ok_or(CUDA_ERROR_NOT_INITIALIZED)
    }

    fn take(&mut self) -> Option<Client> {
        self.0.take().map(|(_, client)| client)
    }
}

impl Client {
    fn open() -> Result<Self> {
        let (connection, mut hello) = Connection::open()?;
        hello.driver_version = hello.driver_version.min(API_VERSION);
        let pools = Pools::new(hello.devices.len());
        Ok(Self {
            connection,
            hello,
            sees_all: true,
            objects: Objects::default(),
            pointers: Pointers::default(),
            host: Host::default(),
            host_parts: HostParts::default(),
            freed: Freed::default(),
            pools,
            host_pools: HostPools::default(),
            arrays: Arrays::default(),
            references: References::default(),
            shareable: Shareable::default(),
        })
    }

    /// Selects the devices that the program sees, by the variables at its `cuInit`. It may have asked for the driver's
    /// version before it set them.
    fn select_devices(&mut self) -> Result {
        self.sees_all = visible::select(&self.connection, &mut self.hello)?;
        self.pools = Pools::new(self.hello.devices.len());
        Ok(())
    }

    /// Allocates by `ask`. If the host has no memory, first returns the memory that the library keeps, and then waits
    /// for memory that was freed in stream order.
    pub fn allocate<T>(&self, ask: impl Fn() -> Result<T>) -> Result<T> {
        match ask() {
            Err(CUDA_ERROR_OUT_OF_MEMORY) => {
                self.give_back_spare();
                left::free_all(self);
            }
            other => return other,
        }
        let mut is_last = !self.pools.any_freed.load(Ordering::Relaxed);
        loop {
            match ask() {
                Err(CUDA_ERROR_OUT_OF_MEMORY) if !is_last => {}
                other => return other,
            }
            // If there is nothing more to return, another thread may have returned the last of it.
            is_last = self.call(&request::gpgpuReclaim { more: true })?.more == 0;
        }
    }

    /// The range that contains all `bytes` bytes at `address`, if the current context can certainly read and write
    /// them.
    #[inline]
    pub fn whole(&self, address: u64, bytes: usize) -> Option<Range> {
        let range = self.pointers.find_whole(address, bytes)?;
        let is_open = match range.origin {
            Origin::Mapped { open, .. } => {
                let device = self.objects.context_device(thread::current_context())?;
                open.checked_shr(device as u32).unwrap_or(0) & 1 != 0
            }
            _ => true,
        };
        is_open.then_some(range)
    }

    /// Frees memory for the program; see [`Freed::free`].
    pub fn spare(&self, range: &Range) -> Result<bool> {
        // The next owner must not get the attribute.
        if self.pointers.any_synchronous() {
            return Ok(false);
        }
        self.freed.free(&self.connection, range)
    }

    /// Handles the use of an address that the program may have freed; see [`Freed::disown`].
    #[inline]
    pub fn disown(&self, address: u64) {
        let any_ordered = self.freed.disown(&self.connection, address);
        self.note_freed(any_ordered);
    }

    /// Returns all kept memory, before calls whose results would show it.
    pub fn give_back_spare(&self) {
        self.note_freed(self.freed.give_back(&self.connection));
    }

    /// Returns memory that is kept for a stream that is about to end.
    pub fn leave_stream(&self, stream: u64) {
        self.note_freed(self.freed.leave_stream(&self.connection, stream));
    }

    /// Records that memory may have been freed in stream order.
    pub fn note_freed(&self, any_ordered: bool) {
        if any_ordered {
            self.pools.any_freed.store(true, Ordering::Relaxed);
        }
    }
}

/// Requests use the client's connection.
impl Deref for Client {
    type Target = Connection;

    #[inline]
    fn deref(&self) -> &Connection {
        &self.connection
    }
}
