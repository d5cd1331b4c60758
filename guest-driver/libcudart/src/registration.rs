// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions that nvcc's stubs call. Images, kernels and variables are recorded when the program starts, and loaded
//! at their first use. No function here calls the driver before that.

use crate::abi::*;
use crate::context::current;
use crate::driver::Driver;
use crate::error::{self, Result};
use gpgpu_locks::{Mutex, RwLock};
use gpgpu_protocol::cuda::*;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The wrapper that nvcc puts around an image.
#[repr(C)]
struct FatbinWrapper {
    magic: c_uint,
    version: c_uint,
    data: *const c_void,
    prelinked: *const c_void,
}

const FATBIN_WRAPPER_MAGIC: c_uint = 0x4662_43b1;

/// An image of the program. It is leaked, because the program's static data contains handles to it.
pub struct Image {
    wrapper: *const FatbinWrapper,
    library: AtomicPtr<CUlib_st>,
    loading: Mutex<()>,
}

// SAFETY: the wrapper is the program's constant data; the rest is made for threads.
unsafe impl Send for Image {}
// SAFETY: as above.
unsafe impl Sync for Image {}

impl Image {
    /// The driver's library of this image, loaded at first use.
    fn library(&self, driver: &Driver) -> Result<CUlibrary> {
        let library = self.library.load(Ordering::Acquire);
        if !library.is_null() {
            return Ok(library);
        }
        let _guard = self.loading.lock();
        let mut library = self.library.load(Ordering::Acquire);
        if library.is_null() {
            // SAFETY: the program registered the wrapper, and registered images stay.
            let wrapper = unsafe { &*self.wrapper };
            // The wrapper of relocatable device code lists prelinked images; any other wrapper has everything in the
            // image.
            let code = if wrapper.magic == FATBIN_WRAPPER_MAGIC && wrapper.version == 1 {
                wrapper.data
            } else {
                self.wrapper.cast()
            };
            // SAFETY: `library` outlives the call; the image says its own size.
            unsafe {
                driver.cuLibraryLoadData(
                    &mut library,
                    code,
                    null_mut(),
                    null_mut(),
                    0,
                    null_mut(),
                    null_mut(),
                    0,
                )
            }?;
            self.library.store(library, Ordering::Release);
        }
        Ok(library)
    }
}

/// A kernel that the program registered.
pub struct Kernel {
    image: &'static Image,
    name: *const c_char,
    handle: AtomicPtr<CUkern_st>,
}

impl Kernel {
    /// Whether its image and this address are in the same object file.
    fn is_in_object_of(&self, stub: usize) -> bool {
        object_of(self.image.wrapper.addr()) == object_of(stub)
    }
}

/// The place of the object file that contains an address.
fn object_of(address: usize) -> Option<usize> {
    // SAFETY: all-zero is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let at = std::ptr::without_provenance::<c_void>(address);
    // SAFETY: `info` outlives the call; any address may be asked for.
    let is_found = unsafe { libc::dladdr(at, &mut info) } != 0;
    is_found.then_some(info.dli_fbase.addr())
}

// SAFETY: the name is the program's constant data.
unsafe impl Send for Kernel {}
// SAFETY: as above.
unsafe impl Sync for Kernel {}

impl Kernel {
    fn handle(&self, driver: &Driver) -> Result<CUkernel> {
        let mut kernel = self.handle.load(Ordering::Acquire);
        if kernel.is_null() {
            let library = self.image.library(driver)?;
            // SAFETY: `kernel` outlives the call, the name is the program's.
            unsafe { driver.cuLibraryGetKernel(&mut kernel, library, self.name) }.map_err(
                |error| match error {
                    error::SYMBOL_NOT_FOUND => error::INVALID_DEVICE_FUNCTION,
                    other => other,
                },
            )?;
            self.handle.store(kernel, Ordering::Release);
        }
        Ok(kernel)
    }
}

/// A variable that the program registered.
struct Variable {
    image: &'static Image,
    name: *const c_char,
    size: usize,
    /// The program's pointer to a `__managed__` variable, which must be filled.
    managed: *mut *mut c_void,
}

// SAFETY: pointers to the program's static data.
unsafe impl Send for Variable {}
// SAFETY: as above.
unsafe impl Sync for Variable {}

/// A hasher for addresses: a multiplication spreads them well enough.
#[derive(Default, Clone)]
struct AddressHasher(u64);

impl std::hash::Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, value: usize) {
        let mixed = (self.0 ^ value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Addresses<T> = HashMap<usize, T, std::hash::BuildHasherDefault<AddressHasher>>;

#[derive(Default)]
struct Registry {
    kernels: Addresses<&'static Kernel>,
    /// Further registrations of addresses that are in `kernels`, the oldest first.
    others: Vec<(usize, &'static Kernel)>,
    variables: Addresses<&'static Variable>,
    /// Handles of the driver that callers passed as kernels.
    handles: HashSet<usize, std::hash::BuildHasherDefault<AddressHasher>>,
}

impl Registry {
    /// Adds a kernel. Libraries of which one interposes the other's stub register the same address; the kernel of the
    /// stub's own object is the one that it launches, as with a runtime in each library.
    fn add_kernel(&mut self, stub: usize, kernel: &'static Kernel) {
        match self.kernels.insert(stub, kernel) {
            Some(before) if before.is_in_object_of(stub) => {
                self.kernels.insert(stub, before);
                self.others.push((stub, kernel));
            }
            Some(before) => self.others.push((stub, before)),
            None => {}
        }
    }

    /// Removes an image's kernels and variables.
    fn remove(&mut self, image: &Image) {
        let is_left = |kernel: &Kernel| !std::ptr::eq(kernel.image, image);
        self.others.retain(|(_, kernel)| is_left(kernel));
        self.kernels.retain(|_, kernel| is_left(kernel));
        for (stub, kernel) in std::mem::take(&mut self.others) {
            self.add_kernel(stub, kernel);
        }
        self.variables
            .retain(|_, variable| !std::ptr::eq(variable.image, image));
    }
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(RwLock::default);
/// Counts the changes of the registry.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The number of kernels that each thread caches: a power of two.
const RECENT: usize = 32;

/// A kernel that a thread used, and the value of [`CHANGES`] at that time.
#[derive(Clone, Copy)]
struct Recent {
    function: usize,
    changes: u64,
    kernel: CUkernel,
}

thread_local! {
    // No destructor, so that it can be used while the thread is being torn down.
    static RECENTS: [Cell<Recent>; RECENT] = const {
        [const { Cell::new(Recent { function: 0, changes: 0, kernel: null_mut() }) }; RECENT]
    };
}

fn read<T>(look: impl FnOnce(&Registry) -> T) -> T {
    look(&REGISTRY.read())
}

fn write<T>(change: impl FnOnce(&mut Registry) -> T) -> T {
    let mut registry = REGISTRY.write();
    let result = change(&mut registry);
    // The lock is still held, so later lookups use the changed registry.
    CHANGES.fetch_add(1, Ordering::Release);
    result
}

/// The kernel for a caller's argument: the address of a registered kernel's stub, or a kernel handle of the driver
/// (`cudaKernel_t`).
pub fn kernel(driver: &Driver, function: *const c_void) -> Result<CUkernel> {
    // Read before the registry is read: a change in between invalidates the cached entry.
    let changes = CHANGES.load(Ordering::Acquire);
    let function_at = function.addr();
    let place = (function_at >> 4) ^ (function_at >> 12);
    RECENTS.with(|recents| {
        let slot = &recents[place % RECENT];
        let recent = slot.get();
        if recent.function == function_at && recent.changes == changes && !recent.kernel.is_null() {
            return Ok(recent.kernel);
        }
        let kernel = registered(driver, function)?;
        slot.set(Recent {
            function: function_at,
            changes,
            kernel,
        });
        Ok(kernel)
    })
}

/// Like [`kernel`], from the registry.
fn registered(driver: &Driver, function: *const c_void) -> Result<CUkernel> {
    if function.is_null() {
        return Err(error::INVALID_DEVICE_FUNCTION);
    }
    let (kernel, known) = read(|registry| {
        let kernel = registry.kernels.get(&function.addr()).copied();
        (kernel, registry.handles.contains(&function.addr()))
    });
    if let Some(kernel) = kernel {
        return kernel.handle(driver);
    }
    if !known {
        // A handle is never an address inside a loaded object. A host function that is no kernel always is one, and
        // must not reach the driver, which would take it for a handle.
        if object_of(function.addr()).is_some() {
            return Err(error::not_a_kernel());
        }
        write(|registry| registry.handles.insert(function.addr()));
    }
    Ok(function.cast_mut().cast())
}

/// Like [`kernel`], in the form that launches and occupancy queries take.
pub fn launchable(driver: &Driver, function: *const c_void) -> Result<CUfunction> {
    kernel(driver, function).map(|kernel| kernel.cast())
}

/// The stub of a registered kernel, given its function in the current context; `None` if the kernel is not registered.
pub fn host_function(driver: &Driver, function: CUfunction) -> Option<*mut c_void> {
    read(|registry| {
        registry.kernels.iter().find_map(|(host, kernel)| {
            let handle = kernel.handle.load(Ordering::Acquire);
            let mut own = null_mut();
            // SAFETY: a handle of the driver's; `own` outlives the call.
            let same = !handle.is_null()
                && (handle.cast() == function
                    || unsafe { driver.cuKernelGetFunction(&mut own, handle) }.is_ok()
                        && own == function);
            same.then(|| std::ptr::with_exposed_provenance_mut(*host))
        })
    })
}

/// The address of a registered variable in the current context, and its size.
pub fn symbol(variable: *const c_void) -> Result<(*mut c_void, usize)> {
    let driver = current()?;
    let variable = read(|registry| registry.variables.get(&variable.addr()).copied())
        .ok_or(error::INVALID_SYMBOL)?;
    variable.locate(driver)
}

impl Variable {
    fn locate(&self, driver: &Driver) -> Result<(*mut c_void, usize)> {
        let library = self.image.library(driver)?;
        let (mut pointer, mut size) = (0, 0);
        // SAFETY: the locals outlive the calls, the name is the program's.
        unsafe {
            if self.managed.is_null() {
                driver.cuLibraryGetGlobal(&mut pointer, &mut size, library, self.name)
            } else {
                driver.cuLibraryGetManaged(&mut pointer, &mut size, library, self.name)
            }
        }
        .map_err(|error| match error {
            error::SYMBOL_NOT_FOUND => error::INVALID_SYMBOL,
            other => other,
        })?;
        Ok((pointer as *mut c_void, size))
    }
}

/// The most launch configurations between `<<<…>>>` and the stubs that take them. Further ones replace the oldest: a
/// program that throws an exception while it computes a launch's arguments leaves its configuration behind.
const CONFIGURATIONS: usize = 32;

#[derive(Clone, Copy)]
struct Configuration {
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: cudaStream_t,
}

thread_local! {
    // No destructor, so that it can be used while the thread is being torn down.
    /// The number of configurations, and the place of the next one.
    static TOP: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static STACK: [Cell<Configuration>; CONFIGURATIONS] = const {
        [const {
            Cell::new(Configuration {
                grid: dim3 { x: 0, y: 0, z: 0 },
                block: dim3 { x: 0, y: 0, z: 0 },
                shared: 0,
                stream: null_mut(),
            })
        }; CONFIGURATIONS]
    };
}

/// Returns zero: the configuration is stored. Otherwise the program would skip the launch.
#[unsafe(no_mangle)]
extern "C" fn __cudaPushCallConfiguration(
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: cudaStream_t,
) -> c_uint {
    let (count, next) = TOP.get();
    STACK.with(|stack| {
        stack[next].set(Configuration {
            grid,
            block,
            shared,
            stream,
        });
    });
    TOP.set((CONFIGURATIONS.min(count + 1), (next + 1) % CONFIGURATIONS));
    error::SUCCESS
}

export! {
    fn __cudaPopCallConfiguration(grid: *mut dim3, block: *mut dim3, shared: *mut usize, stream: *mut cudaStream_t) {
        let (count, next) = TOP.get();
        let count = count.checked_sub(1).ok_or(error::MISSING_CONFIGURATION)?;
        let last = (next + CONFIGURATIONS - 1) % CONFIGURATIONS;
        let kept = STACK.with(|stack| stack[last].get());
        TOP.set((count, last));
        grid.write(kept.grid);
        block.write(kept.block);
        shared.write(kept.shared);
        stream.write(kept.stream);
        Ok(())
    }

    // nvcc 13's stubs ask once and keep the answer forever. The stub's own address is a handle that outlives every
    // reset, and returning it loads nothing.
    fn __cudaGetKernel(kernel: *mut cudaKernel_t, function: *const c_void) {
        if kernel.is_null() {
            return Err(error::INVALID_VALUE);
        }
        kernel.write(function.cast_mut().cast());
        Ok(())
    }

    fn cudaGetKernel(kernel_out: *mut cudaKernel_t, function: *const c_void) {
        let driver = current()?;
        if kernel_out.is_null() {
            return Err(error::INVALID_VALUE);
        }
        kernel_out.write(kernel(driver, function)?);
        Ok(())
    }

    fn cudaGetFuncBySymbol(function_out: *mut cudaFunction_t, function: *const c_void) {
        let driver = current()?;
        if function_out.is_null() {
            return Err(error::INVALID_VALUE);
        }
        driver.cuKernelGetFunction(function_out, kernel(driver, function)?)
    }

    fn cudaGetSymbolAddress(pointer: *mut *mut c_void, variable: *const c_void) {
        let (address, _) = symbol(variable)?;
        if pointer.is_null() {
            return Err(error::INVALID_VALUE);
        }
        pointer.write(address);
        Ok(())
    }

    fn cudaGetSymbolSize(size_out: *mut usize, variable: *const c_void) {
        let (_, size) = symbol(variable)?;
        if size_out.is_null() {
            return Err(error::INVALID_VALUE);
        }
        size_out.write(size);
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void {
    let image = Box::new(Image {
        wrapper: wrapper.cast(),
        library: AtomicPtr::new(null_mut()),
        loading: Mutex::new(()),
    });
    Box::into_raw(image).cast()
}

#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

/// The image for a handle that [`__cudaRegisterFatBinary`] returned.
///
/// # Safety
/// The handle came from there; null is `None`.
unsafe fn image(handle: *mut *mut c_void) -> Option<&'static Image> {
    // SAFETY: promised by the caller; images are leaked.
    unsafe { handle.cast::<Image>().as_ref() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    // SAFETY: nvcc's stubs pass their own arguments on.
    let Some(image) = (unsafe { image(handle) }) else {
        return;
    };
    write(|registry| registry.remove(image));
    let library = image.library.swap(null_mut(), Ordering::AcqRel);
    // At exit the driver may already be unloaded, and it cleans up by itself. So only an object that is unloaded while
    // the program runs unloads its library.
    if !library.is_null()
        && let Ok(driver) = crate::driver::driver()
    {
        // SAFETY: loaded by this image and taken out of it.
        let _ = unsafe { driver.cuLibraryUnload(library) };
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    host: *const c_char,
    _device: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _tid: *mut c_void,
    _bid: *mut c_void,
    _block: *mut dim3,
    _grid: *mut dim3,
    _warp_size: *mut c_int,
) {
    // SAFETY: nvcc's stubs pass their own arguments on.
    let Some(image) = (unsafe { image(handle) }) else {
        return;
    };
    let kernel = Box::leak(Box::new(Kernel {
        image,
        name,
        handle: AtomicPtr::new(null_mut()),
    }));
    write(|registry| registry.add_kernel(host.addr(), kernel));
}

fn register_variable(
    image: &'static Image,
    host: usize,
    name: *const c_char,
    size: usize,
    managed: *mut *mut c_void,
) {
    let variable = Box::leak(Box::new(Variable {
        image,
        name,
        size,
        managed,
    }));
    write(|registry| registry.variables.insert(host, variable));
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    host: *mut c_char,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: nvcc's stubs pass their own arguments on.
    if let Some(image) = unsafe { image(handle) } {
        register_variable(image, host.addr(), name, size, null_mut());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterHostVar(
    handle: *mut *mut c_void,
    name: *const c_char,
    host: *mut c_char,
    size: usize,
) {
    // SAFETY: nvcc's stubs pass their own arguments on.
    if let Some(image) = unsafe { image(handle) } {
        register_variable(image, host.addr(), name, size, null_mut());
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    _device: *mut c_char,
    name: *const c_char,
    _external: c_int,
    size: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: nvcc's stubs pass their own arguments on.
    if let Some(image) = unsafe { image(handle) } {
        register_variable(image, host.addr(), name, size, host);
    }
}

/// Fills the program's pointers to its `__managed__` variables; returns 0 if that failed for one.
#[unsafe(no_mangle)]
unsafe extern "C" fn __cudaInitModule(handle: *mut *mut c_void) -> c_char {
    // SAFETY: nvcc's stubs pass their own arguments on.
    let Some(image) = (unsafe { image(handle) }) else {
        return 0;
    };
    let managed: Vec<(usize, &'static Variable)> = read(|registry| {
        registry
            .variables
            .iter()
            .filter(|(_, variable)| {
                std::ptr::eq(variable.image, image) && !variable.managed.is_null()
            })
            .map(|(host, variable)| (*host, *variable))
            .collect()
    });
    let filled = error::record(|| {
        let driver = current()?;
        for (_, variable) in &managed {
            let (pointer, size) = variable.locate(driver)?;
            if size < variable.size {
                return Err(error::INVALID_SYMBOL);
            }
            // SAFETY: the program's own pointer, registered for being filled.
            unsafe { variable.managed.write(pointer) };
            // The variable is also found by the address that its pointer now contains.
            write(|registry| registry.variables.insert(pointer.addr(), variable));
        }
        Ok(())
    });
    c_char::from(filled == error::SUCCESS)
}

/// Tables of functions for host and device. Programs that nvcc compiles with default options have none.
#[unsafe(no_mangle)]
extern "C" fn __cudaRegisterUnifiedTable(
    _handle: *mut *mut c_void,
    _table: *const c_void,
) -> *const c_void {
    static NAMED: crate::log::Once = crate::log::Once::new();
    NAMED.unsupported("__cudaRegisterUnifiedTable");
    null()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(wrapper: *const FatbinWrapper) -> &'static Kernel {
        let image = Box::leak(Box::new(Image {
            wrapper,
            library: AtomicPtr::new(null_mut()),
            loading: Mutex::new(()),
        }));
        Box::leak(Box::new(Kernel {
            image,
            name: c"kernel".as_ptr(),
            handle: AtomicPtr::new(null_mut()),
        }))
    }

    /// One library's stub interposes another's, in each order of registrations, and each library may be unloaded.
    #[test]
    fn a_stub_launches_the_kernel_of_its_own_object() {
        static STUB: [u64; 4] = [7; 4];
        let stub = STUB.as_ptr().addr();
        let elsewhere = Box::leak(Box::new([0_u64; 4])).as_ptr().cast();
        for own_is_first in [true, false] {
            let (own, other) = (kernel(STUB.as_ptr().cast()), kernel(elsewhere));
            let mut registry = Registry::default();
            let both = if own_is_first {
                [own, other]
            } else {
                [other, own]
            };
            for kernel in both {
                registry.add_kernel(stub, kernel);
            }
            assert!(std::ptr::eq(registry.kernels[&stub], own));
            let gone = if own_is_first { other } else { own };
            registry.remove(gone.image);
            let left = if own_is_first { own } else { other };
            assert!(std::ptr::eq(registry.kernels[&stub], left));
            registry.remove(left.image);
            assert!(registry.kernels.is_empty() && registry.others.is_empty());
        }
    }
}
