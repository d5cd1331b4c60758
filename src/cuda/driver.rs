//! The host's driver API: NVIDIA's libcuda or the software GPU's, loaded through cudarc.
//!
//! Functions are called by symbol with integers where CUDA has enumerations, because a guest chooses
//! them: a value that a Rust enumeration does not have would be undefined behaviour.

use std::{
    ffi::{c_char, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::sys;
use gpgpu_protocol::cuda::*;

/// The address of a symbol, or `None` if the library does not have it.
///
/// Call this only once it is known that there is a libcuda ([`is_present`]).
#[cfg(not(test))]
pub fn symbol(name: &str) -> Option<*const c_void> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: a symbol's address is taken, not used; the library is never unloaded.
    unsafe {
        sys::culib()
            .get::<*const c_void>(name.as_bytes_with_nul())
            .ok()
            .map(|found| *found)
    }
}

#[cfg(test)]
pub use super::double::symbol;

/// Whether there is a libcuda to load.
pub fn is_present() -> bool {
    // SAFETY: loads the library that this process is for; its initialisers are trusted.
    unsafe { sys::is_culib_present() }
}

/// A function that the host's libcuda may lack.
#[derive(Debug)]
pub struct Symbol {
    name: &'static str,
    address: OnceLock<Option<usize>>,
}

impl Symbol {
    /// The function of this name; looked up at its first use.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            address: OnceLock::new(),
        }
    }

    /// Its address; `CUDA_ERROR_NOT_SUPPORTED` where the host's driver is too old to have it.
    pub fn address(&self) -> Result<*const c_void, CUresult> {
        let find = || symbol(self.name).map(|found| found as usize);
        self.address
            .get_or_init(find)
            .map(|found| found as *const c_void)
            .ok_or(CUDA_ERROR_NOT_SUPPORTED)
    }
}

/// Whether a kernel has failed, or the device: from then on every call of the process may fail.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether the driver has ever given an error that ends what is on the GPU. It may have come over that since.
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Whether a code says that the contexts of the process are lost.
fn is_sticky(code: CUresult) -> bool {
    matches!(
        code,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            ..=CUDA_ERROR_LAUNCH_FAILED | CUDA_ERROR_TENSOR_MEMORY_LEAK | CUDA_ERROR_UNKNOWN
    )
}

/// Turns a result code into a `Result`.
pub fn check(code: CUresult) -> Result<(), CUresult> {
    if code == CUDA_SUCCESS {
        return Ok(());
    }
    if is_sticky(code) {
        FAILED.store(true, Ordering::Relaxed);
    }
    Err(code)
}

/// Declares functions of the driver API, with [`Symbol`] and [`check`] in scope.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident : $ty:ty),*);)*) => {$(
        /// The driver API's function of this name.
        ///
        /// # Safety
        ///
        /// Handles are ones that the driver gave out and that live; pointers are NULL or valid as CUDA asks.
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe fn $name($($arg: $ty),*) -> Result<(), CUresult> {
            static SYMBOL: Symbol = Symbol::new(stringify!($name));
            let address = SYMBOL.address()?;
            // SAFETY: a symbol of this name has this signature in every libcuda.
            let function: unsafe extern "C" fn($($ty),*) -> CUresult = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller vouches for the arguments.
            check(unsafe { function($($arg),*) })
        }
    )*};
}

functions! {
    fn cuInit(flags: u32);
    fn cuEventCreate(event: *mut CUevent, flags: u32);
    fn cuEventSynchronize(event: CUevent);
    fn cuEventDestroy_v2(event: CUevent);
    fn cuDriverGetVersion(version: *mut i32);
    fn cuDeviceGetCount(count: *mut i32);
    fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice);
    fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, dev: CUdevice);
    fn cuDeviceTotalMem_v2(bytes: *mut usize, dev: CUdevice);
    fn cuDeviceGetPCIBusId(id: *mut c_char, len: i32, dev: CUdevice);
    fn cuDeviceGetAttribute(value: *mut i32, attribute: CUdevice_attribute, dev: CUdevice);
    fn cuDeviceGetProperties(properties: *mut CUdevprop, dev: CUdevice);
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, dev: CUdevice);
    fn cuDevicePrimaryCtxRelease_v2(dev: CUdevice);
    fn cuDevicePrimaryCtxReset_v2(dev: CUdevice);
    fn cuDevicePrimaryCtxSetFlags_v2(dev: CUdevice, flags: u32);
    fn cuDevicePrimaryCtxGetState(dev: CUdevice, flags: *mut u32, active: *mut i32);
    fn cuCtxCreate_v2(context: *mut CUcontext, flags: u32, dev: CUdevice);
    fn cuCtxDestroy_v2(context: CUcontext);
    fn cuCtxSetCurrent(context: CUcontext);
    fn cuCtxSynchronize();
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit);
    fn cuCtxSetLimit(limit: CUlimit, value: usize);
    fn cuCtxPopCurrent_v2(context: *mut CUcontext);
    fn cuCtxGetDevice(dev: *mut CUdevice);
    fn cuCtxEnablePeerAccess(peer: CUcontext, flags: u32);
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, from: CUdevice, to: CUdevice);
    fn cuDeviceCanAccessPeer(can: *mut i32, dev: CUdevice, peer: CUdevice);
    fn cuGetErrorString(code: CUresult, text: *mut *const c_char);
    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32);
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize);
    fn cuMemFree_v2(address: CUdeviceptr);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    fn cuMemAddressReserve(start: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: u64);
    fn cuMemAddressFree(start: CUdeviceptr, bytes: usize);
    fn cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const CUmemAllocationProp, option: CUmemAllocationGranularity_flags);
    fn cuMemCreate(handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp, flags: u64);
    fn cuMemRelease(handle: CUmemGenericAllocationHandle);
    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize);
    fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    fn cuMemExportToShareableHandle(export: *mut c_void, handle: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType, flags: u64);
    fn cuPointerSetAttribute(value: *const c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr);
    fn cuMemHostUnregister(pointer: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(device: *mut CUdeviceptr, pointer: *mut c_void, flags: u32);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: CUpointer_attribute, pointer: CUdeviceptr);
    fn cuMemGetAddressRange_v2(base: *mut CUdeviceptr, size: *mut usize, pointer: CUdeviceptr);
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, bytes: usize);
    fn cuMemcpyPeer(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize);
    fn cuMemcpyPeerAsync(dst: CUdeviceptr, dst_context: CUcontext, src: CUdeviceptr, src_context: CUcontext, bytes: usize, stream: CUstream);
    fn cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, bytes: usize, stream: CUstream);
    fn cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, bytes: usize, stream: CUstream);
    fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    fn cuMemsetD8_v2(dst: CUdeviceptr, value: u8, count: usize);
    fn cuMemsetD8Async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    fn cuMemsetD2D8_v2(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    fn cuMemsetD2D8Async(dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);
    fn cuMemsetD16_v2(dst: CUdeviceptr, value: u16, count: usize);
    fn cuMemsetD16Async(dst: CUdeviceptr, value: u16, count: usize, stream: CUstream);
    fn cuMemsetD2D16_v2(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize);
    fn cuMemsetD2D16Async(dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: CUstream);
    fn cuMemsetD32_v2(dst: CUdeviceptr, value: u32, count: usize);
    fn cuMemsetD32Async(dst: CUdeviceptr, value: u32, count: usize, stream: CUstream);
    fn cuMemsetD2D32_v2(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize);
    fn cuMemsetD2D32Async(dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: CUstream);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuStreamDestroy_v2(stream: CUstream);
    fn cuStreamQuery(stream: CUstream);
    fn cuStreamGetFlags(stream: CUstream, flags: *mut u32);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: u32, flags: u32);
    fn cuModuleLoadDataEx(module: *mut CUmodule, image: *const c_void, count: u32, options: *mut CUjit_option, values: *mut *mut c_void);
    fn cuModuleUnload(module: CUmodule);
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
    fn cuModuleGetGlobal_v2(address: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    fn cuModuleGetFunctionCount(count: *mut u32, module: CUmodule);
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: u32, module: CUmodule);
    fn cuFuncLoad(function: CUfunction);
    fn cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    fn cuFuncGetAttribute(value: *mut i32, attribute: CUfunction_attribute, function: CUfunction);
    fn cuLibraryLoadData(library: *mut CUlibrary, image: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void, count: u32, library_options: *mut CUlibraryOption, library_values: *mut *mut c_void, library_count: u32);
    fn cuLibraryUnload(library: CUlibrary);
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetGlobal(address: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    fn cuLibraryGetKernelCount(count: *mut u32, library: CUlibrary);
    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: u32, library: CUlibrary);
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary);
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    fn cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);
    fn cuKernelGetAttribute(value: *mut i32, attribute: CUfunction_attribute, kernel: CUkernel, dev: CUdevice);
    fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: i32, kernel: CUkernel, dev: CUdevice);
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, dev: CUdevice);
    fn cuOccupancyMaxActiveClusters(count: *mut i32, function: CUfunction, config: *const CUlaunchConfig);
    fn cuOccupancyMaxPotentialClusterSize(size: *mut i32, function: CUfunction, config: *const CUlaunchConfig);
    fn cuLaunchKernel(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuLaunchHostFunc(stream: CUstream, function: CUhostFn, data: *mut c_void);
    fn cuStreamAddCallback(stream: CUstream, function: CUstreamCallback, data: *mut c_void, flags: u32);
    fn cuDeviceGet(dev: *mut CUdevice, ordinal: i32);
    fn cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32);
    fn cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: CUmemAllocationHandleType);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuStreamCreate(stream: *mut CUstream, flags: u32);
}
