// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of the software GPU's `libcuda.so.1`: the one that the process has loaded.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use gpgpu_locks::Mutex;
use gpgpu_protocol::software_gpu::{self, Observe, Observer};
use libloading::os::unix::{Library, RTLD_LAZY};

/// A driver's error: `CUresult` other than zero.
pub type Code = u32;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Code = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub const INVALID_CONTEXT: Code = 201;
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
pub const ILLEGAL_ADDRESS: Code = 700;
/// `CUDA_ERROR_MISALIGNED_ADDRESS`.
pub const MISALIGNED_ADDRESS: Code = 716;
/// `CUDA_ERROR_UNKNOWN`.
pub const UNKNOWN: Code = 999;

// glibc's number; `RTLD_NOLOAD` finds a library by its soname, wherever it was loaded from.
const RTLD_NOLOAD: c_int = 4;

type Work = unsafe extern "C" fn(*mut c_void, Code, c_int) -> Code;

/// The functions of the driver that this library calls.
pub struct Driver {
    init: unsafe extern "C" fn(c_uint) -> Code,
    context: unsafe extern "C" fn(*mut *mut c_void) -> Code,
    set_context: unsafe extern "C" fn(*mut c_void) -> Code,
    retain: unsafe extern "C" fn(*mut *mut c_void, c_int) -> Code,
    stream_contexts: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut *mut c_void) -> Code,
    queue: unsafe extern "C" fn(
        *mut c_void,
        *mut c_void,
        Work,
        *mut c_void,
        *mut c_int,
        c_int,
    ) -> Code,
    bytes: unsafe extern "C" fn(*mut *mut c_void, u64, usize, c_int) -> Code,
    context_id: unsafe extern "C" fn(*mut c_void, *mut u64) -> Code,
    stream_id: unsafe extern "C" fn(*mut c_void, *mut u64) -> Code,
    is_capturing: unsafe extern "C" fn(*mut c_void, *mut c_uint) -> Code,
    allocate: unsafe extern "C" fn(*mut u64, usize, *mut c_void) -> Code,
    free: unsafe extern "C" fn(u64, *mut c_void) -> Code,
    observe: Observe,
}

fn check(code: Code) -> Result<(), Code> {
    if code == 0 { Ok(()) } else { Err(code) }
}

/// A context or a stream as the driver names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(pub *mut c_void);

// SAFETY: the driver looks names up and takes them from any thread; no code dereferences one.
unsafe impl Send for Name {}
// SAFETY: as for `Send`.
unsafe impl Sync for Name {}

/// Work that can be done again, by a copy of it: the launches of a graph do.
trait Job: Send {
    fn again(&self) -> Box<dyn Job>;
    fn run(self: Box<Self>) -> Result<(), Code>;
}

impl<F: FnOnce() -> Result<(), Code> + Clone + Send + 'static> Job for F {
    fn again(&self) -> Box<dyn Job> {
        Box::new(self.clone())
    }

    fn run(self: Box<Self>) -> Result<(), Code> {
        self()
    }
}

/// The driver's argument: it may call [`run`] from several threads at once.
type Given = Mutex<Box<dyn Job>>;

unsafe extern "C" fn run(data: *mut c_void, fault: Code, is_last: c_int) -> Code {
    let data = data.cast::<Given>();
    let job = if is_last != 0 {
        // SAFETY: `Driver::queue` made the pointer out of a box, and the driver does not use it any more.
        let given = unsafe { Box::from_raw(data) };
        given.into_inner()
    } else {
        // SAFETY: as above, but the driver has it still.
        let given = unsafe { &*data };
        given.lock().again()
    };
    if fault != 0 {
        return 0;
    }
    // A panic is a defect of ours. It must not go through the driver.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job.run()));
    outcome.map_or(UNKNOWN, |done| done.err().unwrap_or(0))
}

impl Driver {
    /// The driver; `None` if there is none, or it is not the software GPU's.
    pub fn get() -> Option<&'static Self> {
        static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();
        DRIVER.get_or_init(Self::load).as_ref()
    }

    fn load() -> Option<Self> {
        // SAFETY: a driver is a library that runs nothing harmful as it is loaded; most often it is loaded already.
        let library = unsafe {
            Library::open(Some("libcuda.so.1"), RTLD_LAZY | RTLD_NOLOAD)
                .or_else(|_| Library::open(Some("libcuda.so.1"), RTLD_LAZY))
        };
        // It stays loaded forever, because its functions may be called at any time.
        let library = Box::leak(Box::new(library.ok()?));
        // SAFETY: the functions have these signatures, by cuda.h, by `software-gpu/src/api/library_work.rs` and by
        // `software-gpu/src/observe`.
        unsafe {
            Some(Self {
                init: *library.get(b"cuInit").ok()?,
                context: *library.get(b"cuCtxGetCurrent").ok()?,
                set_context: *library.get(b"cuCtxSetCurrent").ok()?,
                retain: *library.get(b"cuDevicePrimaryCtxRetain").ok()?,
                stream_contexts: *library.get(b"cuStreamGetCtx_v2").ok()?,
                queue: *library.get(b"softwareGpuQueue").ok()?,
                bytes: *library.get(b"softwareGpuBytes").ok()?,
                context_id: *library.get(b"cuCtxGetId").ok()?,
                stream_id: *library.get(b"cuStreamGetId").ok()?,
                is_capturing: *library.get(b"cuStreamIsCapturing").ok()?,
                allocate: *library.get(b"cuMemAllocAsync").ok()?,
                free: *library.get(b"cuMemFreeAsync").ok()?,
                observe: *library.get(software_gpu::OBSERVE.to_bytes()).ok()?,
            })
        }
    }

    /// Calls a function with a stream. If the stream is captured, it has this number of bytes of memory meanwhile,
    /// which NVIDIA's libraries also allocate for the work of a graph.
    ///
    /// # Errors
    /// The driver's, and those of `body`.
    pub fn with_memory<T>(
        &self,
        stream: Name,
        bytes: usize,
        body: impl FnOnce() -> Result<T, Code>,
    ) -> Result<T, Code> {
        let (mut status, mut address) = (0, 0);
        // SAFETY: the pointers are to values that live across the calls.
        unsafe {
            check((self.is_capturing)(stream.0, &mut status))?;
            if status == 0 {
                return body();
            }
            check((self.allocate)(&mut address, bytes, stream.0))?;
            let outcome = body();
            check((self.free)(address, stream.0))?;
            outcome
        }
    }

    /// The calling thread's current context, if it has one.
    pub fn current(&self) -> Option<Name> {
        let mut context = null_mut();
        // SAFETY: the pointer is valid for the call.
        let code = unsafe { (self.context)(&mut context) };
        (code == 0 && !context.is_null()).then_some(Name(context))
    }

    /// The context that the current one is a part of: the primary one for a green context, and itself for any other.
    pub fn home(&self) -> Option<Name> {
        let (mut context, mut green) = (null_mut(), null_mut());
        // SAFETY: the pointers are valid for the call.
        let code = unsafe { (self.stream_contexts)(null_mut(), &mut context, &mut green) };
        (code == 0 && !context.is_null()).then_some(Name(context))
    }

    /// The current context. If there is none, the first device's primary context becomes current, as with the runtime
    /// in NVIDIA's libraries.
    ///
    /// # Errors
    /// The driver's.
    pub fn current_or_primary(&self) -> Result<Name, Code> {
        if let Some(context) = self.current() {
            return Ok(context);
        }
        let mut context = null_mut();
        // SAFETY: the pointer is valid for the call, and the context that is set is the one just retained.
        unsafe {
            check((self.init)(0))?;
            check((self.retain)(&mut context, 0))?;
            check((self.set_context)(context))?;
        }
        Ok(Name(context))
    }

    /// Queues work in a stream of a context (NULL is its legacy stream), and waits for its end if `wait` is set. An
    /// error of the work is a fault: it ends the process's use of the device. If the stream is captured, launches of
    /// the graph execute the work.
    ///
    /// # Errors
    /// The driver's: the stream does not belong to the context, an earlier fault, or with `wait` one of this work.
    pub fn queue(
        &self,
        context: Name,
        stream: Name,
        wait: bool,
        work: impl FnOnce() -> Result<(), Code> + Clone + Send + 'static,
    ) -> Result<(), Code> {
        let job: Box<dyn Job> = Box::new(work);
        let data = Box::into_raw(Box::new(Given::new(job)));
        let mut queued = 0;
        // SAFETY: `run` takes the box over. Names may be anything.
        let code = unsafe {
            (self.queue)(
                context.0,
                stream.0,
                run,
                data.cast(),
                &mut queued,
                wait.into(),
            )
        };
        if queued == 0 {
            // SAFETY: the box has no other owner.
            drop(unsafe { Box::from_raw(data) });
        }
        check(code)
    }

    /// Makes this the observer of the process's work, or ends the observation.
    ///
    /// # Errors
    /// The driver's: it is of another version.
    pub fn observe(&self, observer: Option<&'static Observer>) -> Result<(), Code> {
        let observer = observer.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: the observer is NULL, or lives as long as the process.
        check(unsafe { (self.observe)(observer) })
    }

    /// The number of a context; NULL is the current one.
    ///
    /// # Errors
    /// The driver's.
    pub fn context_id(&self, context: Name) -> Result<u64, Code> {
        let mut id = 0;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { (self.context_id)(context.0, &mut id) })?;
        Ok(id)
    }

    /// The number of a stream; NULL is the current context's legacy stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn stream_id(&self, stream: Name) -> Result<u64, Code> {
        let mut id = 0;
        // SAFETY: as above.
        check(unsafe { (self.stream_id)(stream.0, &mut id) })?;
        Ok(id)
    }

    /// The CPU's address of bytes of device memory, for work that runs in a stream.
    ///
    /// # Errors
    /// `ILLEGAL_ADDRESS` if the device may not reach all of them.
    pub fn bytes(&self, address: u64, size: usize, write: bool) -> Result<*mut u8, Code> {
        let mut bytes = null_mut();
        // SAFETY: the pointer is valid for the call.
        check(unsafe { (self.bytes)(&mut bytes, address, size, write.into()) })?;
        Ok(bytes.cast())
    }
}
