//! What the operator grants to each VM.

use std::{path::PathBuf, time::Duration};

use crate::account::CLIENTS;

/// The weight of a VM that was given none.
pub const DEFAULT_WEIGHT: u32 = 100;

/// What one VM may have. A VM is what connects to one socket, however many connections and clients that are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmPolicy {
    /// What the log and the metrics call it.
    pub name: String,
    /// Where it connects.
    pub socket: PathBuf,
    /// The GPUs that it may use, as the host's driver numbers them; `None` for all.
    pub gpus: Option<Vec<u32>>,
    /// The most bytes of device memory that its processes may hold together on each GPU; `None` for no limit but the GPU's.
    pub memory: Option<u64>,
    /// Its share of a GPU that several VMs want, relative to the others' weights.
    pub weight: u32,
    /// The most processes that may use CUDA at a time.
    pub max_clients: usize,
    /// The longest that one kernel may run; one that runs longer ends with its worker. `None` for no limit.
    pub longest_kernel: Option<Duration>,
}

impl VmPolicy {
    /// What a VM may have of which nothing is said but where it connects.
    pub fn new(socket: PathBuf) -> Self {
        Self {
            name: socket.display().to_string(),
            socket,
            gpus: None,
            memory: None,
            weight: DEFAULT_WEIGHT,
            max_clients: CLIENTS,
            longest_kernel: None,
        }
    }
}
