//! Handles: ids that this process chose, and what cuBLAS was told of each.

use std::{
    collections::{HashMap, HashSet},
    ffi::c_void,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
};

use gpgpu_client::{log, sister::Sister};
use gpgpu_protocol::libraries::{call::PointerMode, status};

use crate::Status;

/// A handle as the program has it: its id as a pointer.
pub type CublasHandle = *mut c_void;

/// The most kinds of calls of a handle that are remembered as accepted.
const ACCEPTED: usize = 1 << 14;

/// What can be told of a handle and asked for again, beside its stream and its pointer mode.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// `cublasSetMathMode`.
    #[default]
    Math,
    /// `cublasSetAtomicsMode`.
    Atomics,
    /// `cublasSetSmCountTarget`.
    SmCount,
    /// `cublasSetEmulationStrategy`.
    Emulation,
}

/// What cuBLAS was told of a handle.
#[derive(Debug, Default)]
pub struct Told {
    /// The stream's handle.
    pub stream: usize,
    /// The stream's id.
    pub stream_id: u64,
    /// The workspace and its bytes; `None` for cuBLAS's own.
    pub workspace: Option<(u64, u64)>,
    settings: HashMap<Setting, i32>,
}

impl Told {
    /// A setting's value: 0 as long as none was told, which is each one's default.
    pub fn setting(&self, of: Setting) -> i32 {
        self.settings.get(&of).copied().unwrap_or_default()
    }

    /// Notes a setting.
    pub fn set(&mut self, of: Setting, value: i32) {
        self.settings.insert(of, value);
    }
}

/// A handle that lives.
#[derive(Debug, Default)]
pub struct Handle {
    mode: AtomicU32,
    told: Mutex<Told>,
    accepted: Mutex<HashSet<u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// Where scalars and results are.
    pub fn mode(&self) -> PointerMode {
        match self.mode.load(Ordering::Relaxed) {
            0 => PointerMode::Host,
            _ => PointerMode::Device,
        }
    }

    /// Notes where scalars and results are from now on.
    pub fn set_mode(&self, mode: PointerMode) {
        self.mode.store(mode as u32, Ordering::Relaxed);
    }

    /// What cuBLAS was told.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        locked(&self.told)
    }

    /// Whether cuBLAS has accepted a call of this kind.
    pub fn has_accepted(&self, kind: u64) -> bool {
        locked(&self.accepted).contains(&kind)
    }

    /// Notes that cuBLAS has accepted a call of this kind.
    pub fn accept(&self, kind: u64) {
        let mut accepted = locked(&self.accepted);
        if accepted.len() >= ACCEPTED {
            accepted.clear();
        }
        accepted.insert(kind);
    }

    /// A setting has changed, by which cuBLAS may decide otherwise.
    pub fn forget_accepted(&self) {
        locked(&self.accepted).clear();
    }
}

static HANDLES: RwLock<Option<HashMap<u64, Arc<Handle>>>> = RwLock::new(None);

/// Notes a new handle.
pub fn insert(id: u64) {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.get_or_insert_default().insert(id, Arc::default());
}

/// Takes a handle out; `None` if there is none.
pub fn remove(handle: CublasHandle) -> Option<Arc<Handle>> {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.as_mut()?.remove(&(handle as u64))
}

/// The handle behind a program's pointer.
///
/// # Errors
///
/// `NOT_INITIALIZED` if there is none.
pub fn find(handle: CublasHandle) -> Result<Arc<Handle>, Status> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    let found = handles.as_ref().and_then(|all| all.get(&(handle as u64)));
    found.cloned().ok_or(status::NOT_INITIALIZED)
}

/// The process's libcuda.
///
/// # Errors
///
/// `NOT_INITIALIZED` if it is not this project's.
pub fn sister() -> Result<Sister, Status> {
    static SISTER: OnceLock<Option<Sister>> = OnceLock::new();
    let found = SISTER.get_or_init(|| {
        let found = Sister::find();
        if found.is_none() {
            log::say(log::Level::Error, || {
                "libcublas: the process's libcuda.so.1 is not virtio-gpgpu's; start the program with gpgpu-run".into()
            });
        }
        found
    });
    found.ok_or(status::NOT_INITIALIZED)
}
