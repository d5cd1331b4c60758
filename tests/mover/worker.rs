// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A worker with device memory of the software GPU, which executes streams of five 64-bit numbers.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
    os::fd::{AsFd, FromRawFd, OwnedFd},
};

use gpgpu_protocol::{cuda::*, layout::status};
use libloading::{Library, Symbol};
use vhost_device_gpgpu::ipc::{ToWorker, WorkerEnd};
use vm_memory::{FileOffset, MmapRegion};

/// Allocates and exports device memory of this size, under a number.
pub const EXPORT: u64 = 1;
/// Copies to or from the export, at an offset.
pub const COPY: u64 = 2;
/// The same, through the staging area only.
pub const COPY_STAGED: u64 = 3;
/// Withdraws an export.
pub const UNEXPORT: u64 = 4;
/// Names a part of an export for the data, whether or not it exists.
pub const CLAIM: u64 = 5;
/// Exports something that is not device memory, with this size, under a number.
pub const EXPORT_RUBBISH: u64 = 6;
/// Reports that this part of its stream was executed, and asks for the data to be staged.
pub const CARRIED_OUT: u64 = 7;

/// Lets a kernel read an address, or the start of an export if the address is 0; answers with the result of a
/// synchronisation.
pub const PEEK: u64 = 8;

/// Answers with the number of free bytes of device memory.
pub const FREE: u64 = 9;

/// Reads a number and writes it back.
const PEEK_KERNEL: &str = "
.version 6.4
.target sm_70
.address_size 64
.visible .entry peek(.param .u64 from, .param .u64 to)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [from];
    ld.param.u64 %d1, [to];
    ld.global.u32 %r0, [%d0];
    st.global.u32 [%d1], %r0;
    ret;
}
\0";

/// The variable that makes a test program a worker.
pub const MODE: &str = "WORKER_OF_A_MOVER";

type Result2<A> = unsafe extern "C" fn(A) -> CUresult;

struct Cuda(Library);

impl Cuda {
    /// A function of the library.
    fn get<F>(&self, name: &str) -> Symbol<'_, F> {
        // SAFETY: the callers give each function the type that CUDA gives it.
        unsafe { self.0.get(name.as_bytes()).expect(name) }
    }
}

fn check(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

struct Memory {
    address: CUdeviceptr,
    bytes: u64,
    handle: CUmemGenericAllocationHandle,
}

fn create(cuda: &Cuda, bytes: u64) -> (Memory, OwnedFd) {
    let location = CUmemLocation {
        type_: CU_MEM_LOCATION_TYPE_DEVICE,
        id: 0,
    };
    let properties = CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location,
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    };
    let access = CUmemAccessDesc {
        location,
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let (mut handle, mut address, mut fd) = (0, 0, -1);
    let length = bytes as usize;
    // SAFETY: the functions have these types, and the pointers are to values that live across the calls.
    unsafe {
        let make: Symbol<
            unsafe extern "C" fn(*mut u64, usize, *const CUmemAllocationProp, u64) -> CUresult,
        > = cuda.get("cuMemCreate");
        check(make(&mut handle, length, &properties, 0));
        let reserve: Symbol<unsafe extern "C" fn(*mut u64, usize, usize, u64, u64) -> CUresult> =
            cuda.get("cuMemAddressReserve");
        check(reserve(&mut address, length, 0, 0, 0));
        let map: Symbol<unsafe extern "C" fn(u64, usize, usize, u64, u64) -> CUresult> =
            cuda.get("cuMemMap");
        check(map(address, length, 0, handle, 0));
        let allow: Symbol<
            unsafe extern "C" fn(u64, usize, *const CUmemAccessDesc, usize) -> CUresult,
        > = cuda.get("cuMemSetAccess");
        check(allow(address, length, &access, 1));
        let export: Symbol<unsafe extern "C" fn(*mut c_void, u64, u32, u64) -> CUresult> =
            cuda.get("cuMemExportToShareableHandle");
        let kind = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        check(export((&raw mut fd).cast(), handle, kind, 0));
        let memory = Memory {
            address,
            bytes,
            handle,
        };
        (memory, OwnedFd::from_raw_fd(fd))
    }
}

fn release(cuda: &Cuda, memory: &Memory) {
    let unmap: Symbol<unsafe extern "C" fn(u64, usize) -> CUresult> = cuda.get("cuMemUnmap");
    let free: Symbol<unsafe extern "C" fn(u64, usize) -> CUresult> = cuda.get("cuMemAddressFree");
    let release: Symbol<Result2<u64>> = cuda.get("cuMemRelease");
    // SAFETY: as above; the memory was mapped as a whole.
    unsafe {
        check(unmap(memory.address, memory.bytes as usize));
        check(free(memory.address, memory.bytes as usize));
        check(release(memory.handle));
    }
}

fn start(cuda: &Cuda) {
    let mut context: CUcontext = std::ptr::null_mut();
    let init: Symbol<Result2<u32>> = cuda.get("cuInit");
    let retain: Symbol<unsafe extern "C" fn(*mut CUcontext, c_int) -> CUresult> =
        cuda.get("cuDevicePrimaryCtxRetain");
    let enter: Symbol<Result2<CUcontext>> = cuda.get("cuCtxSetCurrent");
    // SAFETY: as above.
    unsafe {
        check(init(0));
        check(retain(&mut context, 0));
        check(enter(context));
    }
}

/// The result of a synchronisation after a kernel has read `address` and written `scratch`.
fn peek(cuda: &Cuda, address: u64, scratch: u64) -> CUresult {
    let load: Symbol<unsafe extern "C" fn(*mut CUmodule, *const c_void) -> CUresult> =
        cuda.get("cuModuleLoadData");
    let find: Symbol<
        unsafe extern "C" fn(*mut CUfunction, CUmodule, *const std::ffi::c_char) -> CUresult,
    > = cuda.get("cuModuleGetFunction");
    type Launch = unsafe extern "C" fn(
        CUfunction,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        CUstream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> CUresult;
    let launch: Symbol<Launch> = cuda.get("cuLaunchKernel");
    let synchronise: Symbol<unsafe extern "C" fn() -> CUresult> = cuda.get("cuCtxSynchronize");
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (mut address, mut scratch) = (address, scratch);
    let none: *mut c_void = std::ptr::null_mut();
    let mut parameters: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut scratch).cast()];
    // SAFETY: as above.
    unsafe {
        check(load(&mut module, PEEK_KERNEL.as_ptr().cast()));
        check(find(&mut function, module, c"peek".as_ptr()));
        let parameters = parameters.as_mut_ptr();
        check(launch(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            none.cast(),
            parameters,
            none.cast(),
        ));
        synchronise()
    }
}

/// The main function of a worker, until its channel is closed.
pub fn run() {
    let channel = WorkerEnd::new(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    // SAFETY: the library's initialisers are trusted.
    let cuda = Cuda(unsafe { Library::new("libcuda.so.1").unwrap() });
    start(&cuda);
    channel.ready(status::OK).unwrap();
    let mut memories: HashMap<u64, Memory> = HashMap::new();
    let mut staging = None;
    let copy: Symbol<unsafe extern "C" fn(u64, u64, usize) -> CUresult> = cuda.get("cuMemcpy");
    while let Some(message) = channel.recv().unwrap() {
        let (seq, external, input, output, stream) = match message {
            ToWorker::Setup {
                staging: file,
                size,
            } => {
                let file = FileOffset::new(file.into(), 0);
                staging = Some(MmapRegion::<()>::from_file(file, size as usize).unwrap());
                continue;
            }
            ToWorker::Command {
                seq,
                external,
                input,
                output,
                stream,
                ..
            } => (seq, external, input, output, stream),
            _ => continue,
        };
        let number = |at: usize| {
            // A part of a stream may be left: the numbers come last.
            let from = stream.len() - 40 + at * 8;
            u64::from_ne_bytes(stream[from..from + 8].try_into().unwrap())
        };
        let (op, export, offset) = (number(0), number(1), number(2));
        let answer = |text: &[u8], bytes| channel.answer(seq, status::OK, text, bytes).unwrap();
        match op {
            EXPORT => {
                let (memory, handle) = create(&cuda, offset);
                channel.export(export, offset, 0, handle.as_fd()).unwrap();
                memories.insert(export, memory);
                answer(b"exported", 0);
            }
            EXPORT_RUBBISH => {
                let file = tempfile::tempfile().unwrap();
                channel.export(export, offset, 0, file.as_fd()).unwrap();
                answer(b"exported", 0);
            }
            UNEXPORT => {
                release(&cuda, &memories.remove(&export).unwrap());
                channel.unexport(export).unwrap();
                answer(b"given back", 0);
            }
            FREE => {
                let info: Symbol<unsafe extern "C" fn(*mut usize, *mut usize) -> CUresult> =
                    cuda.get("cuMemGetInfo_v2");
                let (mut free, mut total) = (0, 0);
                // SAFETY: as above.
                unsafe { check(info(&mut free, &mut total)) };
                answer(free.to_string().as_bytes(), 0);
            }
            PEEK => {
                let scratch = memories[&1].address;
                let address = if export == 0 { scratch } else { export };
                let code = peek(&cuda, address, scratch + 64);
                answer(format!("code {code}").as_bytes(), 0);
            }
            COPY if external => channel.r#move(seq, (export, offset), 0, b"moved").unwrap(),
            CLAIM if external => {
                let _ = channel.r#move(seq, (export, offset), number(3) as u32, b"moved");
            }
            CARRIED_OUT if external => channel.not_movable(seq, number(3) as u32).unwrap(),
            COPY_STAGED if external => channel.not_movable(seq, 0).unwrap(),
            _ => {
                let area = staging.as_ref().unwrap().as_ptr() as u64;
                if let Some(memory) = memories.get(&export) {
                    let there = memory.address + offset;
                    let (to, from, bytes) = match input.len {
                        0 => (area + output.offset, there, output.len),
                        bytes => (there, area + input.offset, bytes),
                    };
                    // SAFETY: the staging area and the memory are mapped, and as long as that.
                    unsafe { check(copy(to, from, bytes as usize)) };
                }
                let rest = format!("staged {}", stream.len() / 40);
                answer(rest.as_bytes(), output.len);
            }
        }
    }
}
