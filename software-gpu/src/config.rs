// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device's size and limits, and the environment variables that change them.

use std::path::PathBuf;
use std::sync::OnceLock;

/// `cuDriverGetVersion`: CUDA 13.0.
pub const DRIVER_VERSION: i32 = 13000;
/// `cuDeviceGetName`.
pub const DEVICE_NAME: &str = "virtio-gpgpu software GPU";
/// `cuDeviceGetUuid` of the first device; the others count the last byte up.
pub const DEVICE_UUID: [u8; 16] = *b"virtio-gpgpu-sw0";
/// Devices at most.
pub const MAX_DEVICES: usize = 16;
/// Bus number of the first device in `cuDeviceGetPCIBusId`: a place where no real device sits. The others count down.
pub const PCI_BUS: i32 = 0xff;
/// Device number there.
pub const PCI_DEVICE: i32 = 0x1f;

/// Threads of a warp.
pub const WARP_SIZE: u32 = 32;
/// Threads of a block at most.
pub const MAX_THREADS_PER_BLOCK: u32 = 1024;
/// Block dimensions at most.
pub const MAX_BLOCK_DIM: [u32; 3] = [1024, 1024, 64];
/// Grid dimensions at most.
pub const MAX_GRID_DIM: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Shared memory of a block without opting in, in bytes.
pub const SHARED_PER_BLOCK: usize = 48 << 10;
/// Shared memory of a block with `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`, in bytes.
pub const SHARED_PER_BLOCK_OPTIN: usize = 163 << 10;
/// Shared memory of a multiprocessor, in bytes.
pub const SHARED_PER_MULTIPROCESSOR: usize = 164 << 10;
/// Shared memory that the system keeps of each block, in bytes.
pub const SHARED_RESERVED_PER_BLOCK: usize = 1 << 10;
/// Multiprocessors: a fixed number, so that cooperative limits do not depend on the host.
pub const MULTIPROCESSORS: u32 = 16;
/// Threads that a multiprocessor holds at once.
pub const THREADS_PER_MULTIPROCESSOR: u32 = 2048;
/// Blocks that a multiprocessor holds at once.
pub const BLOCKS_PER_MULTIPROCESSOR: u32 = 32;
/// Registers of a multiprocessor, and of a block at most.
pub const REGISTERS: u32 = 65536;
/// Blocks of a cluster at most, where clusters exist.
pub const MAX_CLUSTER_BLOCKS: u32 = 8;
/// Alignment of every device allocation, in bytes.
pub const ALLOCATION_ALIGNMENT: u64 = 512;
/// The unit of sizes and addresses of virtual memory management, in bytes.
pub const GRANULARITY: u64 = 2 << 20;
/// Alignment of a pitch, in bytes.
pub const PITCH_ALIGNMENT: usize = 512;
/// Pitch at most, in bytes.
pub const MAX_PITCH: usize = 0x7fff_ffff;
/// The alignment of an array's memory.
pub const ARRAY_ALIGNMENT: u64 = 64 << 10;
/// The most elements of an array of one dimension.
pub const MAX_TEXTURE1D: usize = 131_072;
/// The most elements and rows of an array of two dimensions.
pub const MAX_TEXTURE2D: [usize; 2] = [131_072, 65_536];
/// The most elements, rows and slices of an array of three dimensions.
pub const MAX_TEXTURE3D: [usize; 3] = [16_384; 3];
/// The same of one that is deep.
pub const MAX_TEXTURE3D_DEEP: [usize; 3] = [8192, 8192, 32_768];
/// The most elements and rows of a layer, of a face, of a level and of an array to gather from.
pub const MAX_LAYERED: usize = 32_768;
/// The most layers.
pub const MAX_LAYERS: usize = 2048;
/// The most layers of faces.
pub const MAX_CUBE_LAYERS: usize = 2046;
/// The most elements of a texture of linear memory.
pub const MAX_LINEAR: usize = 1 << 28;
/// The most elements of a row, rows and bytes of a row of a texture of rows in memory.
pub const MAX_LINEAR2D: [usize; 3] = [131_072, 65_000, 2_097_120];
/// The unit of the bytes of such a row.
pub const TEXTURE_PITCH_ALIGNMENT: usize = 32;
/// The alignment of a texture's memory.
pub const TEXTURE_ALIGNMENT: u64 = 512;
/// Greatest (most urgent) stream priority; the least is 0.
pub const GREATEST_PRIORITY: i32 = -5;

/// The environment's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Device memory of each device in bytes: `VIRTIO_GPGPU_SOFTWARE_MEMORY`, in MiB.
    pub memory: u64,
    /// The memory of a context, in bytes: `VIRTIO_GPGPU_SOFTWARE_CONTEXT`, in MiB; none unless set.
    pub context: u64,
    /// The number of devices: `VIRTIO_GPGPU_SOFTWARE_DEVICES`, one unless set.
    pub devices: usize,
    /// Devices can reach each other's memory: unless `VIRTIO_GPGPU_SOFTWARE_PEERS=0`.
    pub peers: bool,
    /// Compute capability times ten: `VIRTIO_GPGPU_SOFTWARE_CAPABILITY`, `8.0` unless set, `9.0` for clusters.
    pub capability: u32,
    /// Report faults on standard error: `VIRTIO_GPGPU_SOFTWARE_VERBOSE=1`.
    pub verbose: bool,
    /// While a file of this name exists the device is lost, like a GPU that fell off the bus:
    /// `VIRTIO_GPGPU_SOFTWARE_LOST`.
    pub lost: Option<PathBuf>,
    /// Report that kernels reach pageable memory, as a GPU with HMM or ATS does: `VIRTIO_GPGPU_SOFTWARE_PAGEABLE=1`.
    /// They do not; this is for tests of the reaction to it.
    pub pageable: bool,
    /// End the process when a call names a destroyed object, because a driver might use freed memory:
    /// `VIRTIO_GPGPU_SOFTWARE_STALE=abort`. Otherwise it is an error.
    pub aborts_on_stale: bool,
}

impl Config {
    /// Reads settings through `variable`. Invalid values count as unset.
    pub fn from(variable: impl Fn(&str) -> Option<String>) -> Self {
        let memory = variable("VIRTIO_GPGPU_SOFTWARE_MEMORY")
            .and_then(|v| v.trim().parse::<u64>().ok())
            .filter(|mib| (1..=1 << 24).contains(mib))
            .unwrap_or(4096);
        let devices = variable("VIRTIO_GPGPU_SOFTWARE_DEVICES")
            .and_then(|v| v.trim().parse().ok())
            .filter(|devices| (1..=MAX_DEVICES).contains(devices))
            .unwrap_or(1);
        let capability = variable("VIRTIO_GPGPU_SOFTWARE_CAPABILITY")
            .and_then(|v| {
                let (major, minor) = v.trim().split_once('.')?;
                Some(major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?)
            })
            .filter(|c| (50..=129).contains(c))
            .unwrap_or(80);
        let context = variable("VIRTIO_GPGPU_SOFTWARE_CONTEXT")
            .and_then(|v| v.trim().parse::<u64>().ok())
            .filter(|mib| *mib <= 1 << 24)
            .unwrap_or(0);
        let lost = variable("VIRTIO_GPGPU_SOFTWARE_LOST").map(PathBuf::from);
        let is_set = |name| variable(name).is_some_and(|v| v != "0");
        let verbose = is_set("VIRTIO_GPGPU_SOFTWARE_VERBOSE");
        let peers = variable("VIRTIO_GPGPU_SOFTWARE_PEERS").is_none_or(|v| v != "0");
        let pageable = is_set("VIRTIO_GPGPU_SOFTWARE_PAGEABLE");
        let aborts_on_stale =
            variable("VIRTIO_GPGPU_SOFTWARE_STALE").is_some_and(|what| what == "abort");
        Self {
            memory: memory << 20,
            context: context << 20,
            devices,
            peers,
            capability,
            verbose,
            lost,
            pageable,
            aborts_on_stale,
        }
    }

    /// The process's settings, read once.
    pub fn get() -> &'static Self {
        static CONFIG: OnceLock<Config> = OnceLock::new();
        CONFIG.get_or_init(|| Self::from(|name| std::env::var(name).ok()))
    }

    /// Whether the device is lost now.
    pub fn is_lost(&self) -> bool {
        self.lost.as_ref().is_some_and(|file| file.exists())
    }

    /// Whether kernels may be launched in clusters.
    pub fn has_clusters(&self) -> bool {
        self.capability >= 90
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_ignored() {
        let none = Config::from(|_| None);
        assert_eq!((none.memory, none.capability), (4 << 30, 80));
        assert!(!none.pageable && !none.aborts_on_stale);
        assert_eq!((none.devices, none.peers), (1, true));
        let set = Config::from(|name| {
            Some(
                if name.ends_with("MEMORY") {
                    "64"
                } else {
                    "9.0"
                }
                .to_owned(),
            )
        });
        assert_eq!((set.memory, set.capability), (64 << 20, 90));
        assert!(set.has_clusters());
        let bad = Config::from(|_| Some("many".to_owned()));
        assert_eq!((bad.memory, bad.capability), (4 << 30, 80));
        assert_eq!(bad.devices, 1);
        let devices = |count: &str| Config::from(|_| Some(count.to_owned())).devices;
        assert_eq!((devices("3"), devices("0"), devices("17")), (3, 1, 1));
        assert!(!Config::from(|_| Some("0".to_owned())).peers && bad.peers);
    }
}
