//! The API table: every operation that travels, in one place.
//!
//! [`with_api!`](crate::with_api) hands the table to a macro of the caller's choice. From it come the requests and
//! replies below, the guest library's exported symbols, the worker's dispatch, the digest by which
//! both sides know that they speak the same table, and the compatibility page.
//!
//! An entry reads: number, completion, style, name, the name of its per-thread-default-stream
//! variant if it has one, its arguments with how each travels ([`Arg`]), and what it gives the GPU if it gives it anything.
//!
//! * Completion: `post` has no answer unless one is asked for, and an error of it surfaces at the client's next `wait`;
//!   `call` is answered as soon as it was issued; `fence` is issued in its turn, and done when the GPU has done all
//!   that its stream, or its context, was given before; `wait` may block in
//!   the driver, so the worker runs it beside the stream and other guest threads go on.
//! * What it gives the GPU, at the end of the entry ([`Gives`]): nothing unless it says `work` or `order`.
//! * Style: `plain` means that both sides are made from the entry alone; `guest` that the guest's
//!   symbol is written by hand (in the file of its object) and the worker's side is made from the
//!   entry; `worker` that the guest's symbol is made from the entry and the worker's side is written by hand;
//!   `custom` that both are written by hand.

use std::marker::PhantomData;

use crate::{
    codec::{Blob, Few, Wire},
    cuda::*,
    wire_struct,
};

/// Hands the API table to `$callback!`.
#[macro_export]
macro_rules! with_api {
    ($callback:ident) => {
        $callback! {
            // Client.
            0x0001 call custom gpgpuHello(hello: Out<Hello>);
            0x0002 call custom gpgpuImageWrite(image: u64, bytes: u64);
            0x0003 call custom gpgpuImageFind(image: u64, bytes: u64, hash: Blob, known: Out<u32>);
            0x0004 wait custom gpgpuNextCallback(callback: Out<u64>, status: Out<u32>);
            0x0005 post custom gpgpuCallbackDone(callback: u64);
            0x0006 call custom gpgpuErrorText(code: u32, text: Out<String>);
            // The ring; see `ring`.
            0x0010 call custom gpgpuRingSetup(address: u64);
            0x0011 post custom gpgpuRingWake();
            0x0012 call custom gpgpuRingAfter(position: u64);
            0x0013 call custom gpgpuFenceStatus(slot: u32, sequence: u32, position: u64, over: Out<u32>);

            // Devices; what does not change is part of the hello. A device is the guest's number for it here and wherever else an
            // argument is one, so the worker's side is written by hand: the host's number may be another.
            0x0101 call custom cuDeviceCanAccessPeer(canAccessPeer: Out<i32>, dev: i32, peerDev: i32);
            0x0102 call worker cuDeviceGetP2PAttribute(value: Out<i32>, attrib: u32, srcDevice: i32, dstDevice: i32);
            0x0103 call custom cuDevicePrimaryCtxRetain(pctx: New<Context>, dev: i32);
            0x0104 wait custom cuDevicePrimaryCtxRelease_v2(dev: i32);
            0x0105 wait custom cuDevicePrimaryCtxReset_v2(dev: i32);
            0x0106 call custom cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32);
            0x0107 call custom cuDevicePrimaryCtxGetState(dev: i32, flags: Out<u32>, active: Out<i32>);

            // Contexts.
            0x0201 call custom cuCtxCreate_v2(pctx: New<Context>, flags: u32, dev: i32);
            0x0202 wait custom cuCtxDestroy_v2(ctx: Context);
            0x0203 fence plain cuCtxSynchronize();
            0x0204 call guest cuCtxGetLimit(pvalue: Out<usize>, limit: u32);
            0x0205 call custom cuCtxSetLimit(limit: u32, value: usize);
            0x0206 call guest cuCtxGetCacheConfig(pconfig: Out<u32>);
            0x0207 call guest cuCtxSetCacheConfig(config: u32);
            0x0208 call guest cuCtxGetSharedMemConfig(pConfig: Out<u32>);
            0x0209 call guest cuCtxSetSharedMemConfig(config: u32);
            0x020a call guest cuCtxGetStreamPriorityRange(leastPriority: Out<i32>, greatestPriority: Out<i32>);
            0x020b call guest cuCtxGetApiVersion(ctx: Context, version: Out<u32>);
            0x020c call plain cuCtxResetPersistingL2Cache() order;
            0x020d call guest cuCtxGetFlags(flags: Out<u32>);
            0x020e call guest cuCtxSetFlags(flags: u32);
            0x020f call worker cuCtxEnablePeerAccess(peerContext: Context, Flags: u32);
            0x0210 call plain cuCtxDisablePeerAccess(peerContext: Context);
            0x0211 call guest cuCtxGetId(ctx: Context, ctxId: Out<u64>);

            // Memory.
            0x0301 call custom cuMemAlloc_v2(dptr: Out<u64>, bytesize: usize);
            0x0302 call custom cuMemAllocPitch_v2(dptr: Out<u64>, pPitch: Out<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32);
            0x0303 wait custom cuMemFree_v2(dptr: u64);
            0x0304 call custom cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>);
            0x0305 call custom cuMemGetAddressRange_v2(pbase: Out<u64>, psize: Out<usize>, dptr: u64);
            0x0306 wait custom cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32, device: Out<u64>);
            0x0307 wait custom cuMemHostUnregister(address: u64);
            0x0308 call worker cuPointerSetAttribute(value: In<u32>, attribute: u32, ptr: u64);
            0x0309 call custom gpgpuPointerAttribute(value: Out<u64>, attribute: u32, ptr: u64);
            // Of memory that nothing uses any more: the library has seen the end of the context's work.
            0x030a post custom gpgpuFreeIdle(dptr: u64);

            // Memory in a stream's order, and pools. What the process can keep for itself (which pool a device has, what
            // was let in) it does.
            0x0310 call custom cuMemAllocFromPoolAsync(dptr: Out<u64>, bytesize: usize, pool: MemPool, hStream: Stream);
            0x0311 post custom cuMemFreeAsync(dptr: u64, hStream: Stream) order;
            0x0312 call custom cuMemPoolCreate(pool: New<MemPool>, dev: i32, maxSize: usize);
            0x0313 wait custom cuMemPoolDestroy(pool: Gone<MemPool>);
            0x0314 wait custom cuMemPoolTrimTo(pool: MemPool, minBytesToKeep: usize);
            0x0315 call custom cuMemPoolGetAttribute(pool: MemPool, attr: u32, value: Out<u64>);
            0x0316 wait custom cuMemPoolSetAttribute(pool: MemPool, attr: u32, value: u64);
            0x0317 wait custom cuMemPoolSetAccess(pool: MemPool, dev: i32, flags: u32);
            // Memory ran out: waits until some that was freed in a stream's order is there.
            0x0318 wait custom gpgpuReclaim(more: Out<u32>);

            // Copies between device and registered memory; the guest library chose the form.
            0x0401 fence custom cuMemcpy(dst: u64, src: u64, ByteCount: usize) work;
            0x0402 post custom cuMemcpyAsync(dst: u64, src: u64, ByteCount: usize, hStream: Stream) work;
            0x0403 wait custom cuMemcpyDtoD_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize) work;
            0x0404 wait custom cuMemcpyPeer(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize) work;
            0x0405 post custom cuMemcpyPeerAsync(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize, hStream: Stream) work;
            0x0406 wait custom gpgpuCopy2D(copy: Copy2D, hStream: Stream, synchronous: bool) work;
            // Copies from and to pageable memory: the bytes travel beside the stream.
            0x0407 wait custom gpgpuCopyIn(dst: u64, hStream: Stream, synchronous: bool) work;
            0x0408 wait custom gpgpuCopyOut(src: u64, hStream: Stream) work;
            0x0409 wait custom gpgpuCopyIn2D(dst: u64, pitch: usize, width: usize, height: usize, hStream: Stream, synchronous: bool) work;
            0x040a wait custom gpgpuCopyOut2D(src: u64, pitch: usize, width: usize, height: usize, hStream: Stream) work;
            // Small copies from and to pageable memory by the ring: the bytes in the command, or in data blocks.
            0x040b post custom gpgpuWrite(dst: u64, hStream: Stream, bytes: Blob) work;
            0x040c fence custom gpgpuBlockIn(dst: u64, block: u32, ByteCount: usize, hStream: Stream) work;
            0x040d fence custom gpgpuBlockOut(src: u64, block: u32, ByteCount: usize, hStream: Stream) work;

            // Fills.
            0x0501 wait custom cuMemsetD8_v2(dstDevice: u64, uc: u8, N: usize) work;
            0x0502 wait custom cuMemsetD16_v2(dstDevice: u64, us: u16, N: usize) work;
            0x0503 wait custom cuMemsetD32_v2(dstDevice: u64, ui: u32, N: usize) work;
            0x0504 wait custom cuMemsetD2D8_v2(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize) work;
            0x0505 wait custom cuMemsetD2D16_v2(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize) work;
            0x0506 wait custom cuMemsetD2D32_v2(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize) work;
            0x0507 post custom cuMemsetD8Async(dstDevice: u64, uc: u8, N: usize, hStream: Stream) work;
            0x0508 post custom cuMemsetD16Async(dstDevice: u64, us: u16, N: usize, hStream: Stream) work;
            0x0509 post custom cuMemsetD32Async(dstDevice: u64, ui: u32, N: usize, hStream: Stream) work;
            0x050a post custom cuMemsetD2D8Async(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: Stream) work;
            0x050b post custom cuMemsetD2D16Async(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: Stream) work;
            0x050c post custom cuMemsetD2D32Async(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize, hStream: Stream) work;

            // Modules.
            0x0601 wait custom cuModuleLoadDataEx(module: u64, image: u64, options: Vec<JitOption>, eager: bool, log: Out<JitLog>);
            0x0602 wait custom cuModuleUnload(hmod: Module);
            0x0603 call custom cuModuleGetFunction(function: u64, hmod: Module, name: String, info: Out<FunctionInfo>);
            0x0604 call custom cuModuleGetGlobal_v2(hmod: Module, name: String, dptr: Out<u64>, bytes: Out<usize>);
            0x0605 call custom gpgpuModuleFunctions(hmod: Module, names: Out<Vec<String>>);

            // Libraries.
            0x0701 wait custom cuLibraryLoadData(library: u64, image: u64, options: Vec<JitOption>, eager: bool, log: Out<JitLog>);
            0x0702 wait custom cuLibraryUnload(library: Library);
            0x0703 call custom cuLibraryGetKernel(kernel: u64, library: Library, name: String, info: Out<FunctionInfo>);
            0x0704 call custom cuLibraryGetGlobal(library: Library, name: String, dptr: Out<u64>, bytes: Out<usize>);
            0x0705 call custom gpgpuLibraryKernels(library: Library, names: Out<Vec<String>>);
            0x0706 call custom cuLibraryGetModule(module: u64, library: Library);
            0x0707 call custom cuKernelGetFunction(function: u64, kernel: Kernel);
            0x0708 call custom cuKernelGetAttribute(pi: Out<i32>, attrib: u32, kernel: Kernel, dev: i32);
            0x0709 call custom cuKernelSetAttribute(attrib: u32, val: i32, kernel: Kernel, dev: i32);
            0x070a call custom cuKernelSetCacheConfig(kernel: Kernel, config: u32, dev: i32);

            // Functions.
            0x0801 call guest cuFuncGetAttribute(pi: Out<i32>, attrib: u32, hfunc: Function);
            0x0802 call guest cuFuncSetAttribute(hfunc: Function, attrib: u32, value: i32);
            0x0803 call guest cuFuncSetCacheConfig(hfunc: Function, config: u32);
            0x0804 call guest cuFuncSetSharedMemConfig(hfunc: Function, config: u32);
            0x0805 call guest cuFuncIsLoaded(state: Out<u32>, function: Function);
            0x0806 wait worker cuFuncLoad(function: Function);
            0x0807 call guest cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: Out<i32>, func: Function, blockSize: i32, dynamicSMemSize: usize);
            0x0808 call guest cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: Out<i32>, func: Function, blockSize: i32, dynamicSMemSize: usize, flags: u32);
            0x0809 call guest cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize: Out<usize>, func: Function, numBlocks: i32, blockSize: i32);
            0x080a call custom cuOccupancyMaxActiveClusters(func: Function, config: LaunchConfig, clusters: Out<i32>);
            0x080b call custom cuOccupancyMaxPotentialClusterSize(func: Function, config: LaunchConfig, size: Out<i32>);
            0x080c call custom gpgpuFunctionParams(func: Function, params: Out<Vec<ParamInfo>>);

            // Launches.
            0x0901 post custom cuLaunchKernelEx(func: Function, config: LaunchConfig, params: Blob) work;
            0x0902 post custom cuLaunchHostFunc(hStream: Stream, callback: u64) work;
            0x0903 post custom cuStreamAddCallback(hStream: Stream, callback: u64) work;

            // Streams.
            0x0a01 post plain cuStreamCreate(phStream: New<Stream>, Flags: Flags<1>);
            0x0a02 post plain cuStreamCreateWithPriority(phStream: New<Stream>, flags: Flags<1>, priority: i32);
            0x0a03 post custom cuStreamDestroy_v2(hStream: Gone<Stream>);
            0x0a04 call plain cuStreamQuery cuStreamQuery_ptsz (hStream: Stream);
            0x0a05 fence plain cuStreamSynchronize cuStreamSynchronize_ptsz (hStream: Stream);
            0x0a06 post plain cuStreamWaitEvent cuStreamWaitEvent_ptsz (hStream: Stream, hEvent: Event, Flags: u32) order;
            0x0a07 call guest cuStreamGetFlags cuStreamGetFlags_ptsz (hStream: Stream, flags: Out<u32>);
            0x0a08 call guest cuStreamGetPriority cuStreamGetPriority_ptsz (hStream: Stream, priority: Out<i32>);
            0x0a09 call guest cuStreamGetId cuStreamGetId_ptsz (hStream: Stream, streamId: Out<u64>);

            // Events.
            0x0b01 post plain cuEventCreate(phEvent: New<Event>, Flags: Flags<3>);
            0x0b02 post worker cuEventDestroy_v2(hEvent: Gone<Event>);
            0x0b03 post guest cuEventRecord cuEventRecord_ptsz (hEvent: Event, hStream: Stream) order;
            0x0b04 post guest cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (hEvent: Event, hStream: Stream, flags: u32) order;
            0x0b05 call guest cuEventQuery(hEvent: Event);
            0x0b06 wait custom cuEventSynchronize(hEvent: Event);
            0x0b10 post custom gpgpuEventMark(hEvent: Event, hStream: Stream, word: u32, value: u32) order;
            0x0b07 call plain cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);
            0x0b08 call plain cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);
        }
    };
}

/// How an argument travels: as it stands in CUDA's C signature, in a request and in a reply.
pub trait Arg {
    /// The argument's type in the C signature.
    type C: Copy;
    /// What the request holds of it.
    type Request: Wire;
    /// What the reply holds of it.
    type Reply: Wire;
}

macro_rules! by_value {
    ($($ty:ty),*) => {$(
        impl Arg for $ty {
            type C = $ty;
            type Request = $ty;
            type Reply = ();
        }
    )*};
}

by_value!(u8, u16, u32, u64, i32, usize);

macro_rules! custom_only {
    ($($ty:ty),*) => {$(
        impl Arg for $ty {
            type C = ();
            type Request = $ty;
            type Reply = ();
        }
    )*};
}

custom_only!(bool, String, Blob, Vec<JitOption>, LaunchConfig, Copy2D);

/// Flags, of which those in `GOOD` are good in any combination: with others, the host is asked.
pub struct Flags<const GOOD: u32> {}

impl<const GOOD: u32> Arg for Flags<GOOD> {
    type C = u32;
    type Request = u32;
    type Reply = ();
}

/// A result that the caller wants at a pointer, which may be NULL: the request says whether it is
/// not, and the host's driver decides what NULL means.
pub struct Out<T>(PhantomData<T>);

impl<T: Wire> Arg for Out<T> {
    type C = *mut T;
    type Request = bool;
    type Reply = T;
}

/// A value that the caller gives by a pointer, which may be NULL.
pub struct In<T>(PhantomData<T>);

impl<T: Wire> Arg for In<T> {
    type C = *const T;
    type Request = Option<T>;
    type Reply = ();
}

/// A kind of object that has handles.
pub trait Object {
    /// The handle's C type.
    type Handle: Copy;
    /// The kind's number: the low byte of its ids, so that an id of another kind is never taken for one.
    const KIND: u8;
    /// Handles that are no ids and mean the same to every process.
    const SPECIAL: &'static [u64] = &[0];
    /// The handle that stands for an id in the guest process, or for a host pointer in the worker.
    fn handle(id: u64) -> Self::Handle;
    /// The id that a handle stands for.
    fn id(handle: Self::Handle) -> u64;
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident = $kind:literal: $handle:ty $(, special $special:expr)?;)*) => {$(
        $(#[$doc])*
        pub struct $name;

        impl Object for $name {
            type Handle = $handle;
            const KIND: u8 = $kind;
            $(const SPECIAL: &'static [u64] = $special;)?

            fn handle(id: u64) -> $handle {
                id as $handle
            }

            fn id(handle: $handle) -> u64 {
                handle as u64
            }
        }

        impl Arg for $name {
            type C = $handle;
            type Request = u64;
            type Reply = ();
        }
    )*};
}

objects! {
    /// A context, by handle; 0 means the current one where CUDA lets NULL mean that.
    Context = 0x10: CUcontext;
    /// A module, by handle.
    Module = 0x20: CUmodule;
    /// A function, by handle; the id of a [`Kernel`] is one too.
    Function = 0x30: CUfunction;
    /// A library, by handle.
    Library = 0x40: CUlibrary;
    /// A kernel, by handle.
    Kernel = 0x50: CUkernel;
    /// A stream, by handle; 0 and 1 are the legacy stream. The per-thread stream never travels: the
    /// guest library has a stream of its own for each thread.
    Stream = 0x60: CUstream, special &[0, CU_STREAM_LEGACY as u64];
    /// An event, by handle.
    Event = 0x70: CUevent;
    /// A memory pool, by handle; [`default_pool`] has the ids of devices' own.
    MemPool = 0x80: CUmemoryPool, special &[];
}

/// An object that the call creates, under an id that the guest chose and never chooses again.
pub struct New<K>(PhantomData<K>);

impl<K: Object> Arg for New<K> {
    type C = *mut K::Handle;
    type Request = u64;
    type Reply = ();
}

/// An object that the call ends.
pub struct Gone<K>(PhantomData<K>);

impl<K: Object> Arg for Gone<K> {
    type C = K::Handle;
    type Request = u64;
    type Reply = ();
}

/// The id of the `serial`-th object of kind `K`.
pub fn object_id<K: Object>(serial: u64) -> u64 {
    serial << 8 | u64::from(K::KIND)
}

/// The serial number of the first device's own pool; no object that is made has one so high.
const DEFAULT_POOLS: u64 = 1 << 48;

/// The id of the pool that a device has of its own, by the guest's number for the device.
pub fn default_pool(device: CUdevice) -> u64 {
    object_id::<MemPool>(DEFAULT_POOLS + u64::from(device as u32))
}

/// The device whose own pool has this id; `None` for any other id.
pub fn device_of_default_pool(id: u64) -> Option<CUdevice> {
    let number = (id >> 8).checked_sub(DEFAULT_POOLS)?;
    let device = CUdevice::try_from(number).ok()?;
    (default_pool(device) == id).then_some(device)
}

/// The kind's number in an id.
pub fn object_kind(id: u64) -> u8 {
    id as u8
}

wire_struct! {
    /// What a client learns when it opens: everything about the host that does not change.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct Hello {
        /// `cuDriverGetVersion` of the host.
        pub driver_version: i32,
        /// The devices, by ordinal.
        pub devices: Vec<DeviceInfo>,
    }

    /// What does not change about a device.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct DeviceInfo {
        /// `cuDeviceGetName`.
        pub name: String,
        /// `cuDeviceGetUuid_v2`.
        pub uuid: [u8; 16],
        /// `cuDeviceTotalMem_v2`, in bytes.
        pub total_memory: u64,
        /// `cuDeviceGetPCIBusId`.
        pub pci_bus_id: String,
        /// `cuDeviceGetAttribute` by attribute: the result and the value.
        pub attributes: Vec<AttributeValue>,
        /// `cuDeviceGetProperties`: the fields of `CUdevprop` in their order.
        pub properties: Vec<i32>,
    }

    /// An attribute's value, or why there is none.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct AttributeValue {
        /// The `CUresult` of asking.
        pub result: u32,
        /// The value, if the result is success.
        pub value: i32,
    }

    /// One option of the just-in-time linker.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct JitOption {
        /// The `CUjit_option`.
        pub option: u32,
        /// Its value; for a log's buffer, ignored.
        pub value: u64,
    }

    /// What the just-in-time linker wrote.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct JitLog {
        /// The information log.
        pub info: Blob,
        /// The error log.
        pub error: Blob,
        /// `CU_JIT_WALL_TIME`, in milliseconds.
        pub wall_time: f32,
        /// `CU_JIT_THREADS_PER_BLOCK` as it came back.
        pub threads_per_block: u32,
    }

    /// What a function is, as far as a launch needs to know.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct FunctionInfo {
        /// The first parameters, in order.
        pub params: Few<ParamInfo, 64>,
        /// Whether there are more: `gpgpuFunctionParams` has them.
        pub has_more: bool,
        /// `cuFuncGetAttribute` by attribute; without a current context, empty.
        pub attributes: Few<AttributeValue, 64>,
    }

    /// Where a parameter stands in a function's parameter buffer.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct ParamInfo {
        /// Bytes from the start.
        pub offset: u32,
        /// Bytes.
        pub size: u32,
    }

    /// A launch's shape.
    #[derive(Debug, Clone, Default, PartialEq, Eq)]
    pub struct LaunchConfig {
        /// Blocks in x, y and z.
        pub grid_x: u32,
        /// See `grid_x`.
        pub grid_y: u32,
        /// See `grid_x`.
        pub grid_z: u32,
        /// Threads of a block in x, y and z.
        pub block_x: u32,
        /// See `block_x`.
        pub block_y: u32,
        /// See `block_x`.
        pub block_z: u32,
        /// Bytes of dynamic shared memory.
        pub shared_bytes: u32,
        /// The stream's id.
        pub stream: u64,
        /// Launch attributes.
        pub attributes: Vec<LaunchAttribute>,
    }

    /// A launch attribute: one whose value holds no handle and no host pointer.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct LaunchAttribute {
        /// The `CUlaunchAttributeID`.
        pub id: u32,
        /// The `CUlaunchAttributeValue`.
        pub value: [u8; 64],
    }

    /// A two-dimensional copy between memory that the worker can address.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Copy2D {
        /// The first byte of the destination.
        pub dst: u64,
        /// Bytes from row to row of the destination.
        pub dst_pitch: usize,
        /// The first byte of the source.
        pub src: u64,
        /// Bytes from row to row of the source.
        pub src_pitch: usize,
        /// Bytes of a row.
        pub width: usize,
        /// Rows.
        pub height: usize,
    }
}

/// The launch attributes that travel: those that hold neither a handle nor a host pointer.
pub const LAUNCH_ATTRIBUTES: &[CUlaunchAttributeID] = &[
    CU_LAUNCH_ATTRIBUTE_IGNORE,
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];

/// When an operation is answered; see the module's page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// Not at all, unless the caller asks.
    Post,
    /// When it was issued.
    Call,
    /// When the GPU has done what was issued before it.
    Fence,
    /// When it is done.
    Wait,
}

/// What an operation gives the GPU to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// Nothing that can be held back: a question, a wait, or a call whose use of the GPU is the driver's own (an allocation's page
    /// tables, the code and the globals of a module).
    Nothing,
    /// A mark in a stream, or a wait for one: an event, a free in the stream's order.
    Order,
    /// A copy, a fill, a kernel or a host function.
    Work,
}

/// One entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Its number.
    pub op: u16,
    /// How it completes.
    pub completion: Completion,
    /// Its style: `plain`, `guest`, `worker` or `custom`.
    pub style: &'static str,
    /// Its name: the CUDA function's symbol, or a name of ours.
    pub name: &'static str,
    /// The symbol of the variant with per-thread default streams, if the table makes it.
    pub per_thread: &'static [&'static str],
}

/// The request of one operation.
pub trait Request: Wire {
    /// The operation's number.
    const OP: u16;
    /// The operation's name.
    const NAME: &'static str;
    /// How it completes.
    const COMPLETION: Completion;
    /// What it gives the GPU.
    const GIVES: Gives;
    /// What answers it.
    type Reply: Wire;
    /// Whether it travels by the ring where there is one: not what may block, nor what may have a long answer, nor
    /// what is about the client itself, which does not depend on the stream.
    const RINGS: bool =
        Self::OP >> 8 != 0 && !matches!(Self::COMPLETION, Completion::Wait) && Self::Reply::BOUNDED;
    /// Whether it gives the GPU work that the host can see the end of.
    const IS_WORK: bool = is_work(Self::OP);
    /// Whether it writes to device memory, and its caller does not wait for the bytes to be there.
    const IS_WRITE: bool = is_write(Self::OP);
}

/// Whether an operation writes to device memory without the host seeing when the bytes arrive, but by a later command in the
/// stream.
const fn is_write(op: u16) -> bool {
    use request::*;
    matches!(op, gpgpuWrite::OP | gpgpuBlockIn::OP)
}

/// Whether an operation gives the GPU work that the host can see the end of: copies, fills, launches, and what orders them.
pub const fn is_work(op: u16) -> bool {
    use request::*;
    match op {
        _ if is_write(op) => false,
        // Its caller waits for it.
        gpgpuBlockOut::OP => false,
        cuStreamWaitEvent::OP
        | cuEventRecord::OP
        | cuEventRecordWithFlags::OP
        | gpgpuEventMark::OP => true,
        _ => matches!(gives(op), Gives::Work),
    }
}

macro_rules! gives {
    () => {
        Gives::Nothing
    };
    (order) => {
        Gives::Order
    };
    (work) => {
        Gives::Work
    };
}

macro_rules! completion {
    (post) => {
        Completion::Post
    };
    (call) => {
        Completion::Call
    };
    (fence) => {
        Completion::Fence
    };
    (wait) => {
        Completion::Wait
    };
}

macro_rules! define {
    ($($op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($gives:ident)?;)*) => {
        /// The requests: an argument is here as its [`Arg::Request`].
        #[allow(non_camel_case_types, non_snake_case, missing_docs)]
        pub mod request {
            use super::*;
            wire_struct! {$(
                #[derive(Debug, Clone)]
                pub struct $name { $(pub $arg: <$ty as Arg>::Request,)* }
            )*}
            $(impl Request for $name {
                const OP: u16 = $op;
                const NAME: &'static str = stringify!($name);
                const COMPLETION: Completion = completion!($completion);
                const GIVES: Gives = gives!($($gives)?);
                type Reply = reply::$name;
            })*
        }

        /// The replies: an argument is here as its [`Arg::Reply`].
        #[allow(non_camel_case_types, non_snake_case, missing_docs)]
        pub mod reply {
            use super::*;
            wire_struct! {$(
                #[derive(Debug, Clone)]
                pub struct $name { $(pub $arg: <$ty as Arg>::Reply,)* }
            )*}
        }

        /// How the operation with this number completes, or `None` if there is none.
        pub fn completion(op: u16) -> Option<Completion> {
            match op {
                $($op => Some(completion!($completion)),)*
                _ => None,
            }
        }

        /// What the operation with this number gives the GPU.
        pub const fn gives(op: u16) -> Gives {
            match op {
                $($op => gives!($($gives)?),)*
                _ => Gives::Nothing,
            }
        }

        /// The name of the operation with this number.
        pub fn name(op: u16) -> Option<&'static str> {
            match op {
                $($op => Some(stringify!($name)),)*
                _ => None,
            }
        }

        /// Every operation, in the table's order.
        pub const OPERATIONS: &[Operation] = &[$(Operation {
            op: $op,
            completion: completion!($completion),
            style: stringify!($style),
            name: stringify!($name),
            per_thread: &[$(stringify!($per_thread))?],
        },)*];

        const DIGESTED: &str = concat!($(
            stringify!($op $completion $name), $("(", stringify!($arg), ":", stringify!($ty), ")",)* ";",
        )*);
    };
}

with_api!(define);

/// A digest of the API table (FNV-1a, 64 bits): sides whose digests differ do not understand each other.
pub const fn digest() -> u64 {
    DIGEST
}

/// A constant, for the table is long.
const DIGEST: u64 = {
    let bytes = DIGESTED.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0100_0000_01b3);
        i += 1;
    }
    hash
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique() {
        for (i, operation) in OPERATIONS.iter().enumerate() {
            for other in &OPERATIONS[..i] {
                assert_ne!(
                    operation.op, other.op,
                    "{} and {}",
                    operation.name, other.name
                );
                assert_ne!(operation.name, other.name);
            }
        }
    }

    #[test]
    fn an_id_tells_its_kind() {
        let id = object_id::<Event>(7);
        assert_eq!(object_kind(id), Event::KIND);
        assert!(!Event::SPECIAL.contains(&id));
        assert_ne!(id, object_id::<Stream>(7));
    }

    #[test]
    fn the_pool_of_a_device_is_told_from_pools_that_were_made() {
        for device in [0, 7, CUdevice::MAX] {
            let id = default_pool(device);
            assert_eq!(object_kind(id), MemPool::KIND);
            assert_eq!(device_of_default_pool(id), Some(device));
        }
        for id in [
            0,
            object_id::<MemPool>(1),
            default_pool(0) + 1,
            default_pool(-1),
        ] {
            assert_eq!(device_of_default_pool(id), None, "{id:#x}");
        }
    }
}
