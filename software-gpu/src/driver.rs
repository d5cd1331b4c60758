// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The driver's state in this process: from `cuInit` to a fault, a fork or the exit.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::{
    CUDA_ERROR_ASSERT, CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_HARDWARE_STACK_ERROR,
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_MISALIGNED_ADDRESS,
    CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN,
    CUdevice, CUresult,
};

use crate::config::Config;
use crate::context::Primary;
use crate::exec::{Fault, FaultKind};
use crate::ffi::Result;
use crate::memory::DeviceMemory;

const BEFORE: u8 = 0;
const READY: u8 = 1;
const FORKED: u8 = 2;
const EXITING: u8 = 3;

/// The interval between two looks for a device that can be lost.
const LOOK: Duration = Duration::from_millis(5);

static STATE: AtomicU8 = AtomicU8::new(BEFORE);
// Never dropped: streams may still run when the process exits.
static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
static IDS: AtomicU64 = AtomicU64::new(1);

/// The state that all contexts share.
pub struct Driver {
    /// Device memory and the host memory that the device can reach.
    pub memory: DeviceMemory,
    primaries: Vec<Mutex<Primary>>,
    /// Makes running kernels stop: set by a fault and at exit.
    pub cancel: AtomicBool,
    fault: AtomicU32,
}

/// A unique number in this process, for contexts, streams and allocations.
pub fn new_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

/// The driver, once `cuInit` has been called.
pub fn get() -> Result<&'static Driver> {
    match STATE.load(Ordering::Acquire) {
        READY => DRIVER
            .get()
            .and_then(Option::as_ref)
            .ok_or(CUDA_ERROR_NOT_INITIALIZED),
        EXITING => Err(CUDA_ERROR_DEINITIALIZED),
        // As CUDA: nothing of the parent's can be used in a forked child.
        _ => Err(CUDA_ERROR_NOT_INITIALIZED),
    }
}

extern "C" fn at_exit() {
    if STATE
        .compare_exchange(READY, EXITING, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
        && let Some(Some(driver)) = DRIVER.get()
    {
        driver.cancel.store(true, Ordering::Release);
    }
}

extern "C" fn after_fork_in_child() {
    if STATE.load(Ordering::Acquire) == READY {
        STATE.store(FORKED, Ordering::Release);
    }
}

/// `cuInit`.
pub fn init() -> Result {
    match STATE.load(Ordering::Acquire) {
        READY => return Ok(()),
        FORKED => return Err(CUDA_ERROR_NOT_INITIALIZED),
        EXITING => return Err(CUDA_ERROR_DEINITIALIZED),
        _ => {}
    }
    if Config::get().is_lost() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    let driver = DRIVER.get_or_init(|| {
        let config = Config::get();
        let memory = DeviceMemory::new(config.memory, config.devices).ok()?;
        // SAFETY: the functions are `extern "C"`, take nothing and live as long as the library, which is never
        // unloaded.
        unsafe {
            libc::atexit(at_exit);
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
        }
        Some(Driver {
            memory,
            primaries: (0..config.devices).map(|_| Mutex::default()).collect(),
            cancel: AtomicBool::new(false),
            fault: AtomicU32::new(0),
        })
    });
    if driver.is_none() {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    let first = STATE
        .compare_exchange(BEFORE, READY, Ordering::AcqRel, Ordering::Acquire)
        .is_ok();
    if first && Config::get().lost.is_some() {
        std::thread::Builder::new()
            .name("bus".into())
            .spawn(watch_bus)
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
    }
    Ok(())
}

/// Waits until the device is lost. Then this process cannot use it again, as with NVIDIA's driver: each call returns
/// `CUDA_ERROR_UNKNOWN`, whether or not the device comes back.
fn watch_bus() {
    while !Config::get().is_lost() {
        std::thread::sleep(LOOK);
    }
    if let Ok(driver) = get() {
        driver.fail(CUDA_ERROR_UNKNOWN);
    }
}

impl Driver {
    /// The primary context of a device.
    ///
    /// # Panics
    /// If the device does not exist: the caller has checked it.
    pub fn primary(&self, device: CUdevice) -> MutexGuard<'_, Primary> {
        let primary = &self.primaries[device as usize];
        primary.lock()
    }

    /// The fault that ended the use of the device, as an error.
    pub fn fault(&self) -> Result {
        match self.fault.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(code),
        }
    }

    /// Notes a fault. The first one stays; kernels that run are stopped, work that waits will not run.
    pub fn fail(&self, code: CUresult) {
        if self
            .fault
            .compare_exchange(0, code, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.cancel.store(true, Ordering::Release);
        }
    }

    /// The code of a kernel's fault. The executor's details go to standard error: those of a failed assertion always,
    /// as with CUDA, others if the environment asks for them.
    pub fn code_of(&self, fault: &Fault) -> CUresult {
        if let FaultKind::Assert { place, expression } = &fault.kind {
            let ([x, y, z], [tx, ty, tz]) = (fault.block, fault.thread);
            eprintln!(
                "{place}: block: [{x},{y},{z}], thread: [{tx},{ty},{tz}] Assertion `{expression}` failed."
            );
        } else if Config::get().verbose && fault.kind != FaultKind::Cancelled {
            eprintln!("software GPU: {fault}");
        }
        match &fault.kind {
            FaultKind::IllegalAddress { .. } => CUDA_ERROR_ILLEGAL_ADDRESS,
            FaultKind::MisalignedAddress { .. } => CUDA_ERROR_MISALIGNED_ADDRESS,
            FaultKind::Assert { .. } => CUDA_ERROR_ASSERT,
            FaultKind::IllegalInstruction(_) => CUDA_ERROR_ILLEGAL_INSTRUCTION,
            FaultKind::StackOverflow => CUDA_ERROR_HARDWARE_STACK_ERROR,
            FaultKind::Deadlock => CUDA_ERROR_LAUNCH_TIMEOUT,
            FaultKind::InvalidLaunch(_) => CUDA_ERROR_INVALID_VALUE,
            FaultKind::Trap
            | FaultKind::Cancelled
            | FaultKind::NoObject(_)
            | FaultKind::OutsideSurface => CUDA_ERROR_LAUNCH_FAILED,
        }
    }
}
