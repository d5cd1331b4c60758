// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! How VMMs set up the device.

use std::{
    fs::{File, OpenOptions},
    path::{Path, PathBuf},
};

use nix::sys::memfd::{MFdFlags, memfd_create};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// A VMM's settings of the device.
#[derive(Clone)]
pub struct Vmm {
    /// The number of entries of each ring.
    pub queue_size: u16,
    /// Ring features that it permits; the driver decides about indirect descriptors.
    pub event_idx: bool,
    /// Regions of guest memory: address, size, offset in its file.
    pub regions: Vec<(u64, u64, u64)>,
    /// Protocol features that it supports.
    pub protocol: VhostUserProtocolFeatures,
    /// Whether memory regions are added one by one.
    pub mem_slots: bool,
    /// The directory of the regions' files. By default the files have no path.
    pub directory: Option<PathBuf>,
}

impl Vmm {
    /// QEMU's vhost-user-test-device: one region.
    pub fn qemu() -> Self {
        Self {
            queue_size: 1024,
            event_idx: true,
            regions: vec![(0, 64 << 20, 0)],
            protocol: VhostUserProtocolFeatures::CONFIG
                | VhostUserProtocolFeatures::MQ
                | VhostUserProtocolFeatures::REPLY_ACK
                | VhostUserProtocolFeatures::RESET_DEVICE,
            mem_slots: false,
            directory: None,
        }
    }

    /// Cloud Hypervisor's generic vhost-user device: a hole below 4 GiB, a file for each region.
    pub fn cloud_hypervisor() -> Self {
        Self {
            queue_size: 256,
            event_idx: true,
            regions: vec![
                (0, 32 << 20, 0),
                (32 << 20, 16 << 20, 0x10_0000),
                (1 << 32, 16 << 20, 0),
            ],
            protocol: VhostUserProtocolFeatures::CONFIG
                | VhostUserProtocolFeatures::MQ
                | VhostUserProtocolFeatures::REPLY_ACK
                | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS,
            mem_slots: true,
            directory: None,
        }
    }
}

impl Vmm {
    /// Memory for a VM.
    pub fn memory(&self) -> GuestMemoryMmap {
        let places = self.regions.iter();
        let regions = places.map(|&place| region(self.directory.as_deref(), place));
        GuestMemoryMmap::from_regions(regions.collect()).unwrap()
    }
}

fn region(directory: Option<&Path>, (address, bytes, offset): (u64, u64, u64)) -> GuestRegionMmap {
    let file = match directory {
        None => File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap()),
        Some(directory) => OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(directory.join(format!("ram-{address:x}")))
            .unwrap(),
    };
    file.set_len(offset + bytes).unwrap();
    let map = MmapRegion::from_file(FileOffset::new(file, offset), bytes as usize).unwrap();
    GuestRegionMmap::new(map, GuestAddress(address)).unwrap()
}
