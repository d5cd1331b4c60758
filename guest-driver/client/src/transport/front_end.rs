// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as its own front end: it sends a VMM's messages to the device process, over the vhost-user socket.

use std::{
    collections::HashMap,
    fmt::Display,
    fs::File,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::layout::{Config, NUM_QUEUES};
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{
        Frontend, VhostUserFrontend,
        message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures},
    },
};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, FromZeros};

use super::{Failure, files::Mapped, queue::Geometry, shared::Shared};
use crate::{
    log::{self, Level},
    signals,
};

const VIRTIO_F_VERSION_1: u64 = 1 << 32;
const VHOST_USER_F_PROTOCOL_FEATURES: u64 = 1 << 30;
/// The first address of added regions: above all addresses of a process, so that no ring appears to lie in one.
const FIRST_REGION: u64 = 1 << 47;

/// The time limit for the setup of the device.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ends the connection unless it is dropped within the time limit: a peer that accepts and then does not answer causes
/// an error, not a hang.
pub struct Patience {
    _dropped: mpsc::Sender<()>,
    ended: Arc<AtomicBool>,
}

impl Patience {
    /// Starts the time limit.
    pub fn start(stream: &UnixStream) -> std::io::Result<Self> {
        let stream = stream.try_clone()?;
        let (sender, receiver) = mpsc::channel::<()>();
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ended);
        let run = move || {
            if receiver.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                ending.store(true, Ordering::Release);
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
        };
        signals::spawn("gpgpu-patience", run)?;
        Ok(Self {
            _dropped: sender,
            ended,
        })
    }

    /// The reason for a failure of the setup: the given one, unless it is that the time limit has passed.
    pub fn reason(&self, error: impl Display) -> String {
        match self.ended.load(Ordering::Acquire) {
            true => format!(
                "no answer within {} s; the back end may have reached its limit of connections (--max-connections)",
                PATIENCE.as_secs()
            ),
            false => error.to_string(),
        }
    }
}

/// The front end's end of the connection, with the memory that was sent to the device process.
pub struct FrontEnd {
    frontend: Frontend,
    /// Whether the device process accepts memory regions after the start.
    can_add: bool,
    regions: Mutex<Regions>,
}

/// Parts of files that were added to the memory shared with the device process.
struct Regions {
    /// The start of the next region.
    next: u64,
    /// By the file's device and inode, and the part's offset and size.
    known: HashMap<Part, Region>,
}

type Part = ((u64, u64), u64, u64);

struct Region {
    /// The start: a guest-physical address, which here is only a number.
    address: u64,
    users: usize,
    file: File,
}

impl Region {
    fn info(&self, (_, offset, bytes): Part) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: self.address,
            memory_size: bytes,
            // Rings are never in these regions, so the address only has to be unique among regions.
            userspace_addr: self.address,
            mmap_offset: offset,
            mmap_handle: self.file.as_raw_fd(),
        }
    }
}

/// A part of a file that the device process uses as memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Added {
    part: Part,
    /// The guest-physical address of the requested pages.
    pub address: u64,
}

impl FrontEnd {
    /// Sends the features and the memory of the front end. Also returns the device's configuration space.
    pub fn negotiate(stream: UnixStream, shared: &Shared) -> vhost::Result<(Self, Config)> {
        let mut frontend = Frontend::from_stream(stream, NUM_QUEUES as u64);
        frontend.set_owner()?;
        let offered = frontend.get_features()?;
        frontend.set_features(offered & (VIRTIO_F_VERSION_1 | VHOST_USER_F_PROTOCOL_FEATURES))?;
        let wanted = VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        let offered = frontend.get_protocol_features()?;
        frontend.set_protocol_features(offered & wanted)?;
        let empty = [0; size_of::<Config>()];
        let (_, bytes) =
            frontend.get_config(0, empty.len() as u32, VhostUserConfigFlags::empty(), &empty)?;
        let config = Config::read_from_bytes(&bytes).unwrap_or_else(|_| Config::new_zeroed());
        frontend.set_mem_table(&[VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: shared.bytes(),
            userspace_addr: shared.at(0) as u64,
            mmap_offset: 0,
            mmap_handle: shared.file().as_raw_fd(),
        }])?;
        let front_end = Self {
            frontend,
            can_add: offered.contains(VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS),
            regions: Mutex::new(Regions {
                next: FIRST_REGION,
                known: HashMap::new(),
            }),
        };
        Ok((front_end, config))
    }

    /// Starts a queue.
    pub fn start_queue(
        &self,
        index: usize,
        geometry: &Geometry,
        shared: &Shared,
        kick: &EventFd,
        call: &EventFd,
    ) -> vhost::Result<()> {
        let base = shared.at(0) as u64;
        let vring = VringConfigData {
            queue_max_size: geometry.size(),
            queue_size: geometry.size(),
            flags: 0,
            desc_table_addr: base + geometry.start,
            used_ring_addr: base + geometry.used(),
            avail_ring_addr: base + geometry.available(),
            log_addr: None,
        };
        let frontend = &self.frontend;
        frontend.set_vring_num(index, vring.queue_size)?;
        frontend.set_vring_addr(index, &vring)?;
        frontend.set_vring_base(index, 0)?;
        frontend.set_vring_call(index, call)?;
        frontend.set_vring_kick(index, kick)?;
        frontend.clone().set_vring_enable(index, true)
    }

    /// The connection's descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.frontend.as_raw_fd()
    }

    /// Whether memory can be added.
    pub fn can_add(&self) -> bool {
        self.can_add
    }

    fn regions(&self) -> MutexGuard<'_, Regions> {
        self.regions.lock()
    }

    /// Adds pages of a file to the memory that is shared with the device process. The same pages of a file are added
    /// once, however often they are mapped.
    ///
    /// # Errors
    /// The device process has no room for more regions, or has ended.
    pub fn add(&self, mapped: Mapped, bytes: u64) -> Result<Added, Failure> {
        let start = mapped.offset & !(mapped.page - 1);
        let end = (mapped.offset + bytes).next_multiple_of(mapped.page);
        let part = (mapped.identity, start, end - start);
        let mut regions = self.regions();
        if !regions.known.contains_key(&part) {
            let region = Region {
                address: regions.next,
                users: 0,
                file: mapped.file,
            };
            // The request that names these pages must not overtake this message.
            self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
            self.frontend
                .clone()
                .add_mem_region(&region.info(part))
                .map_err(|_| Failure::Os(libc::ENOMEM))?;
            regions.next += part.2;
            regions.known.insert(part, region);
        }
        let region = regions.known.get_mut(&part).ok_or(Failure::Os(libc::EIO))?;
        region.users += 1;
        Ok(Added {
            part,
            address: region.address + (mapped.offset - start),
        })
    }

    /// Removes pages that were added, once they are removed as often as they were added. Nothing may be registered
    /// there any more.
    pub fn remove(&self, added: Added) {
        let mut regions = self.regions();
        let Some(region) = regions.known.get_mut(&added.part) else {
            return;
        };
        region.users -= 1;
        if region.users == 0
            && let Some(region) = regions.known.remove(&added.part)
            // If the other end does not remove it, it has ended or keeps the region: the address is not reused.
            && let Err(error) = self.frontend.clone().remove_mem_region(&region.info(added.part))
        {
            log::say(Level::Info, || {
                format!("The host keeps memory that the program has unregistered: {error}")
            });
        }
    }
}
