// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The table itself; [`api`](crate::api) says how to read it.

/// Passes the API table to `$callback!`.
#[macro_export]
macro_rules! with_api {
    ($callback:ident) => {
        $callback! {
            // Client.
            /// Describes the host: its driver's version and the devices that the client may use. A device is named, here and in every
            /// other operation, by its place in this list, from 0.
            0x0001 call custom gpgpuHello(hello: Out<Hello>) client;
            /// Writes the `in` of its chain to the image with the number `image`, `data_offset` bytes from the image's start. `bytes`
            /// is the length of the whole image. The client chooses the number, other than 0; parts may come in any order, and the
            /// image is complete once as many bytes were written as it is long.
            0x0002 call custom gpgpuImageWrite(image: u64, bytes: u64) client input transfer;
            /// Queries whether the host still has an image of so many bytes with this BLAKE3 hash (32 bytes) that the client
            /// has loaded before. `known` is 1 if so: the image is then complete under the number `image`, as if written.
            0x0003 call custom gpgpuImageFind(image: u64, bytes: u64, hash: Blob, known: Out<u32>) client;
            /// Waits until a stream reaches a host callback, and returns the number that the client chose for it and
            /// the `CUresult` for the program's function. Each callback is returned once.
            0x0004 wait custom gpgpuNextCallback(callback: Out<u64>, status: Out<u32>) client;
            /// Reports that the program has run a callback: its stream continues.
            0x0005 post custom gpgpuCallbackDone(callback: u64) client;
            /// The text of the host driver's `cuGetErrorString` for a code.
            0x0006 call custom gpgpuErrorText(code: u32, text: Out<String>) client;
            /// The operations that the device has, from number `first` on, in the order of their numbers: at most 2048,
            /// fewer only if there are no more.
            0x0007 call custom gpgpuOperations(first: u32, operations: Out<Vec<KnownOperation>>) client;
            /// The libraries of NVIDIA that the host serves, each with the version of its own copy.
            0x0008 call custom gpgpuLibraries(libraries: Out<Vec<KnownLibrary>>) client;
            /// Restricts the client to these of its devices, in this order: they are numbers from the hello, and from then on a
            /// device's number is its position among them. It fails with `CUDA_ERROR_INVALID_VALUE` for an empty list, a
            /// repeated or unknown device, and if it succeeded before.
            0x0009 call custom gpgpuSelectDevices(devices: Vec<u32>) client;
            /// Sets an environment variable that NVIDIA's libraries read, for the client's process alone, before it uses one
            /// of them: `CUBLAS_WORKSPACE_CONFIG` with workspaces of at most 60 MiB together, `NVIDIA_TF32_OVERRIDE`,
            /// `CUBLAS_EMULATE_SINGLE_PRECISION`, `CUBLAS_EMULATE_DOUBLE_PRECISION`, `CUBLAS_EMULATION_STRATEGY` or
            /// `CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT`. A value has at most 64 bytes: letters, digits and `_:,.-`. A
            /// variable that the operator has set for the service stays as it is, and so does one that was set before. It
            /// fails with `CUDA_ERROR_INVALID_VALUE` for others.
            0x000a call custom gpgpuLibraryVariable(name: String, value: String) client;
            // The ring; see `ring`.
            /// Sets the client's ring up at this address of its registered memory. It fails if the client has a ring already, or if
            /// the address is not a multiple of 4096, or if the ring does not lie as a whole in registered memory.
            0x0010 call custom gpgpuRingSetup(address: u64) client;
            /// Wakes the device, which reads the ring's `tail`. It fails if there is no ring.
            0x0011 post custom gpgpuRingWake() client;
            /// Delays later commands of the stream until the device has executed the records up to this `tail`. It fails if
            /// nothing was appended there.
            0x0012 call custom gpgpuRingAfter(position: u64) client;
            /// Queries whether the request of a slot is complete: `slot` and `sequence` are those of its record,
            /// `position` is the `tail` behind it. `over` is 1 if the device has executed the records up to there and
            /// the GPU has reached the request's fences. The result is the error that prevents the fences, if there is
            /// one.
            0x0013 call custom gpgpuFenceStatus(slot: u32, sequence: u32, position: u64, over: Out<u32>) client;

            /// Makes the client's ring wide: it then accepts every operation that has no data beside the stream and
            /// does not concern the client itself. The device executes a `wait` beside later records of the ring. It
            /// fails if there is no ring.
            0x0014 call custom gpgpuRingWide() client;
            /// Returns the answer of a slot's request that is too long for the slot: `slot` and `sequence` are those of
            /// its record. `answer` is the content that the slot would have. Each answer is returned once, and only
            /// until the slot has another one.
            0x0015 call custom gpgpuRingAnswer(slot: u32, sequence: u32, answer: Out<Blob>) client;

            /// Makes the ring relaxed: the device reads `tail` once more a moment after it has set `sleeping`, so the driver may
            /// read `sleeping` without a barrier. It fails if there is no ring.
            0x0016 call custom gpgpuRingRelaxed() client;

            /// Executes an operation of a library whose arguments or answer are too long for a command: the arguments
            /// are the `in`. `context` is that of the operation, `result` its result, and `bytes` the length of its
            /// answer's content, which is at the beginning of the `out`. It fails with `CUDA_ERROR_OUT_OF_MEMORY` if
            /// that is too short, and with `CUDA_ERROR_INVALID_VALUE` for a malformed call.
            0x0017 wait custom gpgpuLongCall(operation: u32, context: u64, result: Out<u32>, bytes: Out<u64>) device input output;

            // Output of kernels.
            /// Returns text that kernels and the driver have printed, in order: the text for standard output, and the
            /// text for standard error. `more` is 1 if there may be more of it.
            0x0c00 call custom gpgpuOutput(output: Out<Blob>, error: Out<Blob>, more: Out<u32>) client;
            /// Whether functions of a module or library may print: `prints` is 0 only if none does. Output is available
            /// once the host's driver has waited for the work, so a client uses the command queue to wait for the work
            /// of functions that may print.
            0x0c01 wait custom gpgpuMayPrint(object: u64, prints: Out<u32>) client;
            /// Whether a function, or a kernel of a library, may print: `prints` is 0 only if it does not. `func` is the id of either.
            0x0c02 wait custom gpgpuFunctionPrints(func: u64, prints: Out<u32>) client;

            // Devices. The hello has their constant properties. A device is the guest's number for it, here and in
            // every other argument. The worker's side is written by hand, because the host's number may differ.
            /// Whether the device `dev` can access the memory of the device `peerDev`: 1 or 0.
            0x0101 call custom cuDeviceCanAccessPeer(canAccessPeer: Out<i32>, dev: i32, peerDev: i32) device;
            /// An attribute of the link between two devices.
            0x0102 call worker cuDeviceGetP2PAttribute(value: Out<i32>, attrib: u32, srcDevice: i32, dstDevice: i32) device;
            /// Makes the primary context of a device an object of the client, with an id that the client chose. The
            /// client counts its program's retains and sends only the first: a second one before the context was
            /// released or reset fails with `CUDA_ERROR_INVALID_VALUE`.
            0x0103 call custom cuDevicePrimaryCtxRetain(pctx: New<Context>, dev: i32) device;
            /// Ends the primary context, and its id: the client sends only the program's last release.
            0x0104 wait custom cuDevicePrimaryCtxRelease_v2(dev: i32) device;
            /// Resets the primary context. If the client has retained it, its id ends, and no release may follow.
            0x0105 wait custom cuDevicePrimaryCtxReset_v2(dev: i32) device;
            /// Sets the flags of a device's primary context.
            0x0106 call custom cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32) device;
            /// The flags of a device's primary context, and whether it is active. One that the device has made before
            /// the client requested it is not active.
            0x0107 call custom cuDevicePrimaryCtxGetState(dev: i32, flags: Out<u32>, active: Out<i32>) device;

            // Contexts.
            /// Makes a context with an id that the client chose. It does not become current: each command's header
            /// names the current context.
            0x0201 call custom cuCtxCreate_v2(pctx: New<Context>, flags: u32, dev: i32) device;
            /// Ends a context and everything in it. It fails with `CUDA_ERROR_INVALID_CONTEXT` for a primary context
            /// and if the id is 0. It waits for commands of other threads in the context; if one does not end, the
            /// client may be ended.
            0x0202 wait custom cuCtxDestroy_v2(ctx: Context) device;
            /// Waits for all work of the current context.
            0x0203 fence guest cuCtxSynchronize() observes;
            /// A limit of the current context.
            0x0204 call guest cuCtxGetLimit(pvalue: Out<usize>, limit: u32);
            /// Sets a limit of the current context. If the virtual machine has a limit of device memory, the memory of
            /// the context's limit is charged to it. A limit whose memory does not fit or is unknown is not raised:
            /// both fail with `CUDA_ERROR_OUT_OF_MEMORY`.
            0x0205 call custom cuCtxSetLimit(limit: u32, value: usize);
            /// The cache configuration of the current context.
            0x0206 call guest cuCtxGetCacheConfig(pconfig: Out<u32>);
            /// Sets the cache configuration of the current context.
            0x0207 call guest cuCtxSetCacheConfig(config: u32);
            /// The configuration of the current context's shared memory.
            0x0208 call guest cuCtxGetSharedMemConfig(pConfig: Out<u32>);
            /// Sets the configuration of the current context's shared memory.
            0x0209 call guest cuCtxSetSharedMemConfig(config: u32);
            /// The range of priorities that streams of the current context can have.
            0x020a call guest cuCtxGetStreamPriorityRange(leastPriority: Out<i32>, greatestPriority: Out<i32>);
            /// The version of the API of a context; the id 0 is NULL, the current one.
            0x020b call guest cuCtxGetApiVersion(ctx: Context, version: Out<u32>);
            /// Resets the persisting lines of the L2 cache.
            0x020c call plain cuCtxResetPersistingL2Cache() order;
            /// The flags of the current context.
            0x020d call guest cuCtxGetFlags(flags: Out<u32>);
            /// Sets flags of the current context.
            0x020e call guest cuCtxSetFlags(flags: u32);
            /// Gives the current context access to the memory of the peer context's device.
            0x020f call worker cuCtxEnablePeerAccess(peerContext: Context, Flags: u32);
            /// Undoes `cuCtxEnablePeerAccess`. Access to memory that the device manages itself may remain.
            0x0210 call plain cuCtxDisablePeerAccess(peerContext: Context);
            /// CUDA's number for a context, which is not the id of this protocol; the id 0 is NULL, the current one.
            0x0211 call guest cuCtxGetId(ctx: Context, ctxId: Out<u64>);

            // Memory.
            /// Allocates device memory in the current context. If `dptr` is not wanted, it fails like an allocation of
            /// 0 bytes.
            0x0301 call custom cuMemAlloc_v2(dptr: Out<u64>, bytesize: usize) memory;
            /// Allocates rows of device memory in the current context. It fails with `CUDA_ERROR_INVALID_VALUE` unless both results
            /// are wanted.
            0x0302 call custom cuMemAllocPitch_v2(dptr: Out<u64>, pPitch: Out<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) memory;
            /// Frees device memory once the work of its context is done.
            0x0303 wait custom cuMemFree_v2(dptr: u64) memory;
            /// The free and total bytes of the current context's device that the virtual machine may use.
            0x0304 call custom cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) memory;
            /// The allocation or global that contains an address: its start and its size.
            0x0305 call custom cuMemGetAddressRange_v2(pbase: Out<u64>, psize: Out<usize>, dptr: u64) memory;
            /// Pins memory of the process for the GPU, in the current context. `address` is the process's address, and
            /// the range must lie in consecutive regions that were registered on the control queue. Of the flags, only
            /// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_DEVICEMAP` count. `device` is the address by which
            /// every other operation names the memory; it may differ from the process's.
            0x0306 wait custom cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32, device: Out<u64>) memory;
            /// Unpins memory. `address` is the process's address by which it was pinned.
            0x0307 wait custom cuMemHostUnregister(address: u64) memory;
            /// Sets an attribute of an address whose value has 4 bytes. Without a value, the function of CUDA gets a NULL pointer.
            0x0308 call custom cuPointerSetAttribute(value: In<u32>, attribute: u32, ptr: u64) memory;
            /// The host driver's `cuPointerGetAttribute` of an address, for the attributes
            /// `CU_POINTER_ATTRIBUTE_BUFFER_ID`, `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`,
            /// `CU_POINTER_ATTRIBUTE_ACCESS_FLAGS`, `CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE` and, of a global,
            /// `CU_POINTER_ATTRIBUTE_IS_MANAGED`; any other fails with `CUDA_ERROR_INVALID_VALUE`, and the last one on
            /// back ends without managed variables. The value is zero-extended.
            0x0309 call custom gpgpuPointerAttribute(value: Out<u64>, attribute: u32, ptr: u64) memory;
            /// Frees device memory that nothing uses any more: the client has observed the end of its context's work.
            /// It is not an error if no allocation begins there.
            0x030a post custom gpgpuFreeIdle(dptr: u64) device memory;
            /// Gives a device access to device memory of another one, and to all other memory of the client there:
            /// `reaches` is 1 if the device can access it. It is 0 if the devices are not connected.
            0x030b call custom gpgpuMemoryReach(dptr: u64, dev: i32, reaches: Out<u32>) memory;

            // Stream-ordered memory, and pools. The process itself stores the rest (a device's current pool, granted
            // access).
            /// Allocates memory of a pool in stream order; the address is answered when the command was issued.
            /// `cuMemAllocAsync` is sent as this operation, with the device's current pool. It does not wait for memory
            /// that was freed in stream order: see `gpgpuReclaim`. If `dptr` is not wanted, it fails.
            0x0310 call custom cuMemAllocFromPoolAsync(dptr: Out<u64>, bytesize: usize, pool: MemPool, hStream: Stream) memory;
            /// Frees device memory in stream order.
            0x0311 post custom cuMemFreeAsync(dptr: u64, hStream: Stream) order memory;
            /// Makes a memory pool on a device, with an id that the client chose. `maxSize` is the maximum size of its
            /// allocations together in bytes, 0 for no limit.
            0x0312 call custom cuMemPoolCreate(pool: New<MemPool>, dev: i32, maxSize: usize) device memory;
            /// Ends a memory pool; its allocations exist until they are freed. It fails with `CUDA_ERROR_INVALID_VALUE`
            /// for a device's default pool.
            0x0313 wait custom cuMemPoolDestroy(pool: Gone<MemPool>) device memory;
            /// Returns memory that a pool keeps, until it has at most `minBytesToKeep` bytes.
            0x0314 wait custom cuMemPoolTrimTo(pool: MemPool, minBytesToKeep: usize) device memory;
            /// An attribute of a pool. A value of 32 bits is zero-extended.
            0x0315 call custom cuMemPoolGetAttribute(pool: MemPool, attr: u32, value: Out<u64>) device memory;
            /// Sets an attribute of a pool. A value of 32 bits is zero-extended.
            0x0316 wait custom cuMemPoolSetAttribute(pool: MemPool, attr: u32, value: u64) device memory;
            /// Grants one device access to a pool's memory, or declares that it needs none. CUDA's function takes a
            /// list; each of its entries is sent as a separate command. `flags` is a `CUmemAccess_flags`. A device
            /// keeps granted access as long as the client exists.
            0x0317 wait custom cuMemPoolSetAccess(pool: MemPool, dev: i32, flags: u32) device memory;
            /// For a client that ran out of memory: waits, for a limited time, until memory that was freed in stream
            /// order is available. `more` is 0 if there was none, and 1 if a new attempt may succeed.
            0x0318 wait custom gpgpuReclaim(more: Out<u32>) memory;

            // Virtual memory: addresses and physical memory separately. Neither belongs to a context.
            /// Reserves addresses of devices: `size` bytes, at a multiple of `alignment`, at `addr` if that is free and
            /// the device has addresses there. 0 for `alignment` or `addr` means any. `size` is a multiple of the
            /// granularity, 2 MiB. The device limits the number of reservations and their total size: above that it
            /// fails with `CUDA_ERROR_OUT_OF_MEMORY`.
            0x0320 call custom cuMemAddressReserve(ptr: Out<u64>, size: usize, alignment: usize, addr: u64) device memory;
            /// Frees a whole reservation without mappings.
            0x0321 wait custom cuMemAddressFree(ptr: u64, size: usize) device memory;
            /// Makes physical memory of a device, with an id that the client chose. It cannot be exported. It exists as
            /// long as it has a reference or is mapped, and is charged to the virtual machine's limit until then.
            0x0322 wait custom cuMemCreate(handle: New<Physical>, size: usize, dev: i32) device memory;
            /// Drops a reference to physical memory. `cuMemCreate` makes one, and so does each
            /// `cuMemRetainAllocationHandle`.
            0x0323 wait custom cuMemRelease(handle: Physical) device memory;
            /// Maps physical memory to unmapped addresses of one reservation: the whole memory, so `offset` is 0 and
            /// `size` is that of the memory. No device has access yet. `dev` is the device of the memory.
            0x0324 wait custom cuMemMap(ptr: u64, size: usize, offset: usize, handle: Physical, dev: Out<i32>) device memory;
            /// Removes mappings: one or several adjacent whole mappings of one reservation. It waits for commands of
            /// other threads that use them, but not for the GPU.
            0x0325 wait custom cuMemUnmap(ptr: u64, size: usize) device memory;
            /// Sets one device's access to mappings: one or several adjacent whole mappings of one reservation. CUDA's
            /// function takes a list; each of its entries is sent as a separate command. `flags` is a
            /// `CUmemAccess_flags`.
            0x0326 wait custom cuMemSetAccess(ptr: u64, size: usize, dev: i32, flags: u32) device memory;
            /// A device's access to the mapping that contains an address: a `CUmemAccess_flags`.
            0x0327 call custom cuMemGetAccess(flags: Out<u64>, dev: i32, ptr: u64) device memory;
            /// Adds a reference to the physical memory that is mapped at an address, and returns its id: the one with
            /// which it was made, even if no reference was left.
            0x0328 call custom cuMemRetainAllocationHandle(handle: Out<u64>, addr: u64) device memory;
            /// The device and the size of the physical memory of a handle.
            0x0329 call custom gpgpuPhysicalMemory(handle: Physical, dev: Out<i32>, bytes: Out<u64>) device memory;

            // Copies between device and registered memory. The guest library chooses the form.
            /// Copies in the legacy stream, and is complete when that stream has done it. Both addresses are device
            /// addresses of device memory or pinned memory.
            0x0401 fence custom cuMemcpy(dst: u64, src: u64, ByteCount: usize) work memory observes;
            /// Copies in stream order. Both addresses are device addresses of device memory or pinned memory.
            0x0402 post custom cuMemcpyAsync(dst: u64, src: u64, ByteCount: usize, hStream: Stream) work memory;
            /// Copies between device memory, in the legacy stream; it is complete when CUDA's function returns.
            0x0403 wait custom cuMemcpyDtoD_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize) work memory observes;
            /// Copies between device memory of two contexts; it is complete when CUDA's function returns.
            0x0404 wait custom cuMemcpyPeer(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize) work memory;
            /// Copies between device memory of two contexts, in stream order.
            0x0405 post custom cuMemcpyPeerAsync(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize, hStream: Stream) work memory;
            /// Copies rows in stream order; every address is a device address of device memory or pinned memory. With
            /// `synchronous`, it is complete when the stream has done it; otherwise, when it was issued.
            0x0406 wait custom gpgpuCopy2D(copy: Copy2D, hStream: Stream, synchronous: bool) work memory observes;
            // Copies from and to pageable memory. The bytes are sent beside the stream.
            /// Copies the `in` of its chain to `dst`, in stream order: as many bytes as there are. With `synchronous`,
            /// it is complete when the stream has done the copy; otherwise, when the bytes were read.
            0x0407 wait custom gpgpuCopyIn(dst: u64, hStream: Stream, synchronous: bool) work memory observes input transfer;
            /// Copies from `src` to the `out` of its chain, in stream order: as many bytes as that has. It is complete
            /// when they are there.
            0x0408 wait custom gpgpuCopyOut(src: u64, hStream: Stream) work memory observes output transfer;
            /// Copies the `in` of its chain to rows at `dst`, in stream order. The rows of the data are contiguous:
            /// `in_bytes` is `width` times `height`. `synchronous` is as in `gpgpuCopyIn`.
            0x0409 wait custom gpgpuCopyIn2D(dst: u64, pitch: usize, width: usize, height: usize, hStream: Stream, synchronous: bool) work memory observes input;
            /// Copies rows at `src` to the `out` of its chain, in stream order. The rows of the data are contiguous:
            /// `out_bytes` is `width` times `height`. It is complete when they are there.
            0x040a wait custom gpgpuCopyOut2D(src: u64, pitch: usize, width: usize, height: usize, hStream: Stream) work memory observes output;
            // Small copies from and to pageable memory through the ring: the bytes are in the command, or in data
            // blocks.
            /// Copies the bytes in the command to `dst`, in stream order. They were read when the command was issued,
            /// and the GPU may get them later.
            0x040b post custom gpgpuWrite(dst: u64, hStream: Stream, bytes: Blob) work memory write;
            /// Copies from the ring's data blocks to `dst`, in stream order: `ByteCount` bytes from the start of the
            /// block with this number. They may extend into the following blocks.
            0x040c fence custom gpgpuBlockIn(dst: u64, block: u32, ByteCount: usize, hStream: Stream) work memory write block observes;
            /// Copies from `src` to the ring's data blocks, in stream order: `ByteCount` bytes from the start of the
            /// block with this number. They may extend into the following blocks.
            0x040d fence custom gpgpuBlockOut(src: u64, block: u32, ByteCount: usize, hStream: Stream) work memory waited block observes;

            // Fills.
            /// Fills `N` bytes, in the legacy stream; it is done when CUDA's function returns.
            0x0501 wait custom cuMemsetD8_v2(dstDevice: u64, uc: u8, N: usize) work memory;
            /// Fills `N` numbers of 16 bits, in the legacy stream; it is done when CUDA's function returns.
            0x0502 wait custom cuMemsetD16_v2(dstDevice: u64, us: u16, N: usize) work memory;
            /// Fills `N` numbers of 32 bits, in the legacy stream; it is done when CUDA's function returns.
            0x0503 wait custom cuMemsetD32_v2(dstDevice: u64, ui: u32, N: usize) work memory;
            /// Fills rows of `Width` bytes, in the legacy stream; it is done when CUDA's function returns.
            0x0504 wait custom cuMemsetD2D8_v2(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize) work memory;
            /// Fills rows of `Width` numbers of 16 bits, in the legacy stream; it is done when CUDA's function returns.
            0x0505 wait custom cuMemsetD2D16_v2(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize) work memory;
            /// Fills rows of `Width` numbers of 32 bits, in the legacy stream; it is done when CUDA's function returns.
            0x0506 wait custom cuMemsetD2D32_v2(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize) work memory;
            /// Fills `N` bytes, in a stream's order.
            0x0507 post custom cuMemsetD8Async(dstDevice: u64, uc: u8, N: usize, hStream: Stream) work memory;
            /// Fills `N` numbers of 16 bits, in a stream's order.
            0x0508 post custom cuMemsetD16Async(dstDevice: u64, us: u16, N: usize, hStream: Stream) work memory;
            /// Fills `N` numbers of 32 bits, in a stream's order.
            0x0509 post custom cuMemsetD32Async(dstDevice: u64, ui: u32, N: usize, hStream: Stream) work memory;
            /// Fills rows of `Width` bytes, in a stream's order.
            0x050a post custom cuMemsetD2D8Async(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: Stream) work memory;
            /// Fills rows of `Width` numbers of 16 bits, in a stream's order.
            0x050b post custom cuMemsetD2D16Async(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: Stream) work memory;
            /// Fills rows of `Width` numbers of 32 bits, in a stream's order.
            0x050c post custom cuMemsetD2D32Async(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize, hStream: Stream) work memory;

            // Modules.
            /// Loads an image into the current context as a module, whose id, `module`, the client chose. With an
            /// `image` of 0, the image is the `in` of its chain. Any other is the number of a complete transferred
            /// image, which the load consumes: it has to be transferred again before the next load. It is a fatbin, a
            /// cubin or PTX text, and not the wrapper of a fatbin. Options whose values are pointers are not sent,
            /// except those of the logs' buffers, which mean that the log is wanted. With `eager`, all functions are
            /// loaded at once. The reply has `log` even if the linker has failed.
            0x0601 wait custom cuModuleLoadDataEx(module: u64, image: u64, options: Vec<JitOption>, eager: bool, log: Out<JitLog>) input;
            /// Ends a module and its functions.
            0x0602 wait custom cuModuleUnload(hmod: Module);
            /// Looks up a function by its name and makes it an object of the client, whose id, `function`, the client
            /// chose.
            0x0603 call custom cuModuleGetFunction(function: u64, hmod: Module, name: String, info: Out<FunctionInfo>);
            /// Looks up a global of a module by its name: its address and its size.
            0x0604 call custom cuModuleGetGlobal_v2(hmod: Module, name: String, dptr: Out<u64>, bytes: Out<usize>);
            /// The names of a module's functions.
            0x0605 call custom gpgpuModuleFunctions(hmod: Module, names: Out<Vec<String>>);
            /// Whether a module has a texture reference with this name or, with `surface`, a surface reference: it
            /// fails with `CUDA_ERROR_NOT_FOUND` if not.
            0x0606 call custom gpgpuModuleReference(hmod: Module, name: String, surface: bool);
            /// Sets a whole texture reference of a module: its sampling, and its resource. Later launches use it. With
            /// an `hmod` of 0 the device sets a reference of its own, which no kernel reads, to check the values.
            /// `format` and `channels` of the resource are those of `cuTexRefSetFormat`, and its `flags` those of
            /// `cuTexRefSetArray`. `offset` is the distance of an address from a texture's alignment, in bytes. If
            /// `offset` is not wanted, an unaligned address fails for a `CU_RESOURCE_TYPE_LINEAR`.
            0x0607 call custom gpgpuTextureReferenceSet(hmod: Module, name: String, resource: TextureResource, texture: TextureForm, offset: Out<usize>);
            /// Sets the array of a module's surface reference.
            0x0608 call custom gpgpuSurfaceReferenceSet(hmod: Module, name: String, array: Array);
            /// The names of a module's functions from number `first` on, as many as fit into the longest answer: none only if
            /// there are no more.
            0x0609 call custom gpgpuModuleFunctionNames(hmod: Module, first: u32, names: Out<Vec<String>>);

            // Libraries.
            /// Loads an image as a library, whose id, `library`, the client chose. `image`, `options`, `eager` and
            /// `log` are as in `cuModuleLoadDataEx`; CUDA's options of libraries are not sent. With `eager`, the
            /// kernels are loaded into the current context, if there is one.
            0x0701 wait custom cuLibraryLoadData(library: u64, image: u64, options: Vec<JitOption>, eager: bool, log: Out<JitLog>) device input;
            /// Ends a library with its kernels, and with its modules and their functions.
            0x0702 wait custom cuLibraryUnload(library: Library) device;
            /// Looks up a kernel by its name and makes it an object of the client, whose id, `kernel`, the client
            /// chose. `info` describes the kernel on the device of the current context, or on the client's first
            /// device.
            0x0703 call custom cuLibraryGetKernel(kernel: u64, library: Library, name: String, info: Out<FunctionInfo>) device;
            /// Looks up a global of a library by its name: its address in the current context, and its size.
            0x0704 call custom cuLibraryGetGlobal(library: Library, name: String, dptr: Out<u64>, bytes: Out<usize>);
            /// The names of a library's kernels.
            0x0705 call custom gpgpuLibraryKernels(library: Library, names: Out<Vec<String>>) device;
            /// The names of a library's kernels, as `gpgpuModuleFunctionNames` returns those of functions.
            0x070c call custom gpgpuLibraryKernelNames(library: Library, first: u32, names: Out<Vec<String>>) device;
            /// Makes the module of a library in the current context an object of the client, whose id, `module`, the
            /// client chose. It ends with the library.
            0x0706 call custom cuLibraryGetModule(module: u64, library: Library);
            /// Makes the function of a kernel in the current context an object of the client, whose id, `function`, the
            /// client chose. It ends with the library.
            0x0707 call custom cuKernelGetFunction(function: u64, kernel: Kernel);
            /// An attribute of a kernel on a device.
            0x0708 call custom cuKernelGetAttribute(pi: Out<i32>, attrib: u32, kernel: Kernel, dev: i32);
            /// Sets an attribute of a kernel on a device.
            0x0709 call custom cuKernelSetAttribute(attrib: u32, val: i32, kernel: Kernel, dev: i32);
            /// Sets the cache configuration of a kernel on a device.
            0x070a call custom cuKernelSetCacheConfig(kernel: Kernel, config: u32, dev: i32);
            /// Looks up a managed variable of a library by its name: its address and its size.
            0x070b call custom cuLibraryGetManaged(library: Library, name: String, dptr: Out<u64>, bytes: Out<usize>);
            // The just-in-time linker.
            /// Makes a linker in the current context with a number that the client chose and that no other existing
            /// linker has. `options` are as in `cuModuleLoadDataEx`.
            0x0710 wait custom gpgpuLinkCreate(link: u64, options: Vec<JitOption>);
            /// Adds an input of the type `kind`, a `CUjitInputType`, to a linker. `image` is as in
            /// `cuModuleLoadDataEx`; a NUL is appended to text. The reply has `log` even if the linker has failed.
            0x0711 wait custom gpgpuLinkAdd(link: u64, kind: u32, image: u64, name: String, options: Vec<JitOption>, log: Out<JitLog>) input;
            /// Links the inputs of a linker: `bytes` is the length of its output. The reply has `log` even if the
            /// linker has failed.
            0x0712 wait custom gpgpuLinkComplete(link: u64, bytes: Out<u64>, log: Out<JitLog>);
            /// Copies a linker's output, from `offset` on, to the `out` of its chain: as many bytes as that has.
            0x0713 wait custom gpgpuLinkRead(link: u64, offset: u64) output;
            /// Ends a linker.
            0x0714 wait custom gpgpuLinkDestroy(link: u64);

            // Functions.
            /// An attribute of a function.
            0x0801 call guest cuFuncGetAttribute(pi: Out<i32>, attrib: u32, hfunc: Function);
            /// Sets an attribute of a function.
            0x0802 call guest cuFuncSetAttribute(hfunc: Function, attrib: u32, value: i32);
            /// Sets the cache configuration of a function.
            0x0803 call guest cuFuncSetCacheConfig(hfunc: Function, config: u32);
            /// Sets the configuration of a function's shared memory.
            0x0804 call guest cuFuncSetSharedMemConfig(hfunc: Function, config: u32);
            /// Whether a function is loaded: a `CUfunctionLoadingState`.
            0x0805 call guest cuFuncIsLoaded(state: Out<u32>, function: Function);
            /// Loads a function, if it is not loaded yet. It fails with `CUDA_ERROR_INVALID_HANDLE` for the id of a
            /// kernel.
            0x0806 wait worker cuFuncLoad(function: Function);
            /// The number of blocks of a function that fit on a multiprocessor.
            0x0807 call guest cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: Out<i32>, func: Function, blockSize: i32, dynamicSMemSize: usize);
            /// The number of blocks of a function that fit on a multiprocessor, with flags.
            0x0808 call guest cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: Out<i32>, func: Function, blockSize: i32, dynamicSMemSize: usize, flags: u32);
            /// The bytes of dynamic shared memory that each of this many blocks of a function can have.
            0x0809 call guest cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize: Out<usize>, func: Function, numBlocks: i32, blockSize: i32);
            /// The number of clusters of such a launch that fit on the device.
            0x080a call custom cuOccupancyMaxActiveClusters(func: Function, config: LaunchConfig, clusters: Out<i32>);
            /// The maximum size of the clusters of such a launch.
            0x080b call custom cuOccupancyMaxPotentialClusterSize(func: Function, config: LaunchConfig, size: Out<i32>);
            /// All parameters of a function or kernel, for those with more than fit into `FunctionInfo`.
            0x080c call custom gpgpuFunctionParams(func: Function, params: Out<Vec<ParamInfo>>);

            // Launches.
            /// Launches a function or kernel. `params` is the whole parameter buffer: each parameter's bytes at the
            /// offset in the reply of its look-up, and as many bytes as the sum of the last one's offset and size; any
            /// other length fails with `CUDA_ERROR_INVALID_VALUE`. Every launch function of CUDA is sent as this
            /// operation.
            0x0901 post custom cuLaunchKernelEx(func: Function, config: LaunchConfig, params: Blob) work;
            /// Makes a stream call the program: the stream stops at the callback until `gpgpuCallbackDone`. `callback`
            /// is a number that the client chose, which `gpgpuNextCallback` returns with the result 0.
            0x0902 post custom cuLaunchHostFunc(hStream: Stream, callback: u64) work;
            /// As `cuLaunchHostFunc`, but `gpgpuNextCallback` returns the number with the result that CUDA passes to
            /// such a function.
            0x0903 post custom cuStreamAddCallback(hStream: Stream, callback: u64) work;

            // Tensor maps.
            /// Encodes a tensor map, the GPU's description of a tensor for its copies. Lists of inconsistent lengths
            /// fail with `CUDA_ERROR_INVALID_VALUE`.
            0x0910 call custom gpgpuTensorMapEncode(form: TensorForm, map: Out<TensorMap>) device;
            /// A tensor map with another address.
            0x0911 call custom gpgpuTensorMapReplaceAddress(old: TensorMap, address: u64, map: Out<TensorMap>) device;

            // Streams.
            /// Makes a stream in the current context, with an id that the client chose.
            0x0a01 post plain cuStreamCreate(phStream: New<Stream>, Flags: Flags<1>);
            /// Makes a stream in the current context, with an id that the client chose.
            0x0a02 post plain cuStreamCreateWithPriority(phStream: New<Stream>, flags: Flags<1>, priority: i32);
            /// Ends a stream. Its pending work still completes.
            0x0a03 post custom cuStreamDestroy_v2(hStream: Gone<Stream>) device;
            /// Whether a stream has done all its work: the result is `CUDA_ERROR_NOT_READY` until it has.
            0x0a04 call guest cuStreamQuery cuStreamQuery_ptsz (hStream: Stream) observes;
            /// Waits for all work of a stream.
            0x0a05 fence guest cuStreamSynchronize cuStreamSynchronize_ptsz (hStream: Stream) observes;
            /// Has a stream wait for an event.
            0x0a06 post custom cuStreamWaitEvent cuStreamWaitEvent_ptsz (hStream: Stream, hEvent: Event, Flags: u32) order mark;
            /// The flags of a stream.
            0x0a07 call guest cuStreamGetFlags cuStreamGetFlags_ptsz (hStream: Stream, flags: Out<u32>);
            /// The priority of a stream.
            0x0a08 call guest cuStreamGetPriority cuStreamGetPriority_ptsz (hStream: Stream, priority: Out<i32>);
            /// CUDA's number for a stream, which is not the id of this protocol.
            0x0a09 call guest cuStreamGetId cuStreamGetId_ptsz (hStream: Stream, streamId: Out<u64>);
            /// Queues memory operations in a stream, in order: write a word, or wait until it has a value; at most 256.
            /// Each word must be in device memory or in pinned memory of the client. `flags` is that of
            /// `cuStreamBatchMemOp`. A wait that does not end blocks its stream, and counts as work in flight.
            0x0a10 call custom gpgpuMemOps(hStream: Stream, ops: Vec<MemOp>, flags: u32) order mark memory;
            /// An attribute of a stream.
            0x0a11 call custom cuStreamGetAttribute(hStream: Stream, attr: u32, value_out: Out<LaunchAttribute>);
            /// Sets an attribute of a stream.
            0x0a12 call custom cuStreamSetAttribute(hStream: Stream, value: LaunchAttribute);
            /// Copies the attributes of one stream to another.
            0x0a13 call custom cuStreamCopyAttributes(dst: Stream, src: Stream);
            /// As `cuStreamSynchronize`, but the device waits in the host's driver, which then writes the output of
            /// kernels.
            0x0a14 wait custom gpgpuStreamFinish(hStream: Stream) observes;

            // Events.
            /// Makes an event in the current context, with an id that the client chose.
            0x0b01 post guest cuEventCreate(phEvent: New<Event>, Flags: Flags<3>);
            /// Ends an event.
            0x0b02 post custom cuEventDestroy_v2(hEvent: Gone<Event>) device;
            /// Records an event in a stream.
            0x0b03 post custom cuEventRecord cuEventRecord_ptsz (hEvent: Event, hStream: Stream) order mark;
            /// Records an event in a stream, with flags.
            0x0b04 post custom cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (hEvent: Event, hStream: Stream, flags: u32) order mark;
            /// Whether an event's latest record is complete: the result is `CUDA_ERROR_NOT_READY` until it is.
            0x0b05 call guest cuEventQuery(hEvent: Event) observes;
            /// Waits until an event's latest record is complete.
            0x0b06 wait custom cuEventSynchronize(hEvent: Event) observes;
            /// Records an event in a stream, and makes the GPU then write `value` to the ring's event word with the
            /// number `word`, from 0. If the GPU cannot write there, it only records the event. It fails if there is no
            /// ring or no such word.
            0x0b10 post custom gpgpuEventMark(hEvent: Event, hStream: Stream, word: u32, value: u32) order mark;
            /// The time between two events, in milliseconds.
            0x0b07 call guest cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);
            /// The time between two events, in milliseconds, as the function of CUDA 12.8 and later returns it.
            0x0b08 call guest cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);

            // Tracing of work, for profilers.
            /// The later commands of the stream belong to the program's call with the number `call`, other than 0.
            /// `TracedWork` names it.
            0x0c10 post custom gpgpuTraceCall(call: u32) device;
            /// Traces the kinds of work of the sum `kinds`, and no others: 1 for kernels, 2 for copies, 4 for fills,
            /// 8 for graphs as a whole, whose nodes then are not traced, and 0 for nothing. Each context of a client that
            /// traces is charged 64 MiB until it ends. `version` is that of the host's CUPTI. It fails with
            /// `CUDA_ERROR_NOT_SUPPORTED` if the host has none, and with `CUDA_ERROR_INVALID_VALUE` for other kinds.
            0x0c11 wait custom gpgpuTraceWork(kinds: u32, version: Out<u32>) device;
            /// The time of the clock that stamps traced work, in nanoseconds.
            0x0c12 call custom gpgpuTraceClock(now: Out<u64>) device;
            /// Takes records of traced work: each once, the oldest first. With `flush` 1, the device first collects
            /// those of all work that has ended. `names` are names of kernels that no earlier answer had. `dropped`
            /// is the number of records that were lost, in total; `more` is 1 if there are more records.
            0x0c13 wait custom gpgpuTraceTake(flush: u32, works: Out<Vec<TracedWork>>, names: Out<Vec<String>>, dropped: Out<u64>, more: Out<u32>) device;
            /// The numbers of a stream and of its context, as in records of traced work. It fails with
            /// `CUDA_ERROR_NOT_SUPPORTED` if the host has no CUPTI.
            0x0c14 call custom gpgpuTraceNumbers(hStream: Stream, context: Out<u32>, stream: Out<u32>);

            // Operations on all work of a context.
            /// Records an event behind all work of the context `hCtx`, to which the event belongs.
            0x0c40 post custom cuCtxRecordEvent(hCtx: Context, hEvent: Event) order mark;
            /// Makes all later work of the context `hCtx` wait for an event.
            0x0c41 post custom cuCtxWaitEvent(hCtx: Context, hEvent: Event) order mark;

            // Queries of NVML; the client needs no context.
            /// The virtual machine's limit and use of the device `dev`. By this query the client declares that it is
            /// not about to use a context: a context that was made for it in advance is released first, and is not
            /// counted.
            0x0d00 wait custom gpgpuDeviceUsage(dev: i32, usage: Out<DeviceUsage>) client;
            /// The version of the host's GPU driver, as in `580.65.06`; empty if unknown.
            0x0d01 call custom gpgpuDriverVersion(version: Out<String>) client;
            /// The sensors of the device `dev` with known values, in the order of their numbers. The values are of one
            /// time, and up to 0.1 s old. It fails with `CUDA_ERROR_NOT_SUPPORTED` if the virtual machine may not read
            /// sensors. Like `gpgpuDeviceUsage`, it releases a context that was made in advance.
            0x0d02 wait custom gpgpuDeviceSensors(dev: i32, sensors: Out<Vec<SensorValue>>) client;

            // Objects that processes of one virtual machine share. A name has 64 bytes; any process of the same virtual
            // machine that has it may open its object. Only the device reads its content.
            /// Returns the name of the allocation that contains an address, one of `cuMemAlloc` or `cuMemAllocPitch`:
            /// of its first `bytes` bytes, or of all if it has fewer. The same bytes have the same name. A process that
            /// opens it may be able to access memory beside it, as with CUDA's own function. Opened memory exists until
            /// it is closed, even if the allocation is freed.
            0x0d20 call custom gpgpuIpcShare(dptr: u64, bytes: u64, name: Out<Blob>) memory;
            /// Opens another process's allocation in the current context: `bytes` bytes at `dptr`, in the memory of
            /// `dev`. It is charged to the virtual machine's limit here as well as in the process that made it. An
            /// allocation that is already open in the context is opened once more, and has to be closed as often. It
            /// fails with `CUDA_ERROR_INVALID_VALUE` for an invalid name and for an allocation that has ended, with
            /// `CUDA_ERROR_INVALID_HANDLE` for an allocation of a process that has ended or of another virtual machine,
            /// and for one that is open in another context, with `CUDA_ERROR_INVALID_CONTEXT` for one of the client's
            /// own, and with `CUDA_ERROR_INVALID_DEVICE` for memory of a device that the client does not have.
            0x0d21 wait custom gpgpuIpcOpen(name: Blob, dptr: Out<u64>, bytes: Out<u64>, dev: Out<i32>) memory;
            /// Closes memory that was opened at an address, once the work of the context in which it was opened is
            /// done.
            0x0d22 wait custom cuIpcCloseMemHandle(dptr: u64) memory;
            /// Makes shareable physical memory, otherwise like `cuMemCreate`.
            0x0d23 wait custom gpgpuCreateShareable(handle: New<Physical>, size: usize, dev: i32) device memory;
            /// Returns the name of shareable physical memory. A process with the name may import the memory as long as
            /// this client has it.
            0x0d24 call custom gpgpuPhysicalShare(handle: Physical, name: Out<Blob>) device memory;
            /// Imports physical memory with an id that the client chose: `bytes` bytes of the memory of `dev`. It
            /// exists as long as any process has it, and is charged to the virtual machine's limit for each of them. It
            /// fails as `gpgpuIpcOpen` does, but a client may import its own memory.
            0x0d25 wait custom gpgpuPhysicalImport(handle: New<Physical>, name: Blob, dev: Out<i32>, bytes: Out<u64>) device memory;
            /// Returns the name of a memory pool that the client has made. It opens nothing: each allocation has a name
            /// of its own.
            0x0d26 call custom gpgpuPoolShare(pool: MemPool, name: Out<Blob>) memory;
            /// Imports a memory pool, of the memory of `dev`, with an id that the client chose. Nothing can be
            /// allocated from it, and it has no attributes: such operations fail with `CUDA_ERROR_INVALID_VALUE`. It is
            /// destroyed like any other, but not while allocations of it are open.
            0x0d27 call custom gpgpuPoolImport(pool: New<MemPool>, name: Blob, dev: Out<i32>) memory;
            /// Returns the name of an allocation, which starts at `dptr`, of a memory pool that the client has made.
            0x0d28 call custom gpgpuPooledShare(dptr: u64, name: Out<Blob>) memory;
            /// Opens an allocation of an imported memory pool, which may be the client's own, in the current context:
            /// `bytes` bytes at `dptr`. It is charged to the limit and fails as with `gpgpuIpcOpen`. An allocation that
            /// is already open is returned again, and is closed once, like the client's own memory is freed: by
            /// `cuMemFree` or `cuMemFreeAsync`.
            0x0d29 wait custom gpgpuPooledOpen(pool: MemPool, name: Blob, dptr: Out<u64>, bytes: Out<u64>) memory;

            /// Makes an event that other processes may open, with an id of the kind Event that the client chose. Only the
            /// following operations accept it, and they accept no other events.
            0x0d30 call custom gpgpuIpcEventCreate(event: u64);
            /// Returns the name of such an event that the client has made.
            0x0d31 call custom gpgpuIpcEventShare(event: u64, name: Out<Blob>) client;
            /// Opens another process's event with an id that the client chose. It fails with `CUDA_ERROR_MAP_FAILED`
            /// for an invalid name and for an event that has ended or belongs to another virtual machine, and with
            /// `CUDA_ERROR_INVALID_CONTEXT` for one of the client's own.
            0x0d32 wait custom gpgpuIpcEventOpen(event: u64, name: Blob);
            /// Ends such an event for this client.
            0x0d33 post custom gpgpuIpcEventDestroy(event: u64) client;
            /// Records such an event in a stream. After the answer, every process's waits and queries refer to this
            /// record. A record of a process that has died is complete.
            0x0d34 call custom gpgpuIpcEventRecord(event: u64, hStream: Stream) order;
            /// Makes a stream wait for the record that is the latest now.
            0x0d35 call custom gpgpuIpcEventWait(hStream: Stream, event: u64) order;
            /// Fails with `CUDA_ERROR_NOT_READY` if the latest record is not complete.
            0x0d36 call custom gpgpuIpcEventQuery(event: u64) observes;
            /// Waits until the record that is the latest now is complete.
            0x0d37 wait custom gpgpuIpcEventSynchronize(event: u64) observes;

            // Graphs. The client implements graphs and captures itself; the device receives executable graphs.
            /// Makes an executable graph, with an id that the client chose, from a list of `GraphStep`, at most 2^18: a
            /// count, then that many of them. It is transferred as an image is in `cuModuleLoadDataEx`. `flags` are
            /// those of `cuGraphInstantiateWithFlags`; `CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY` has an effect,
            /// and, on devices that have `gpgpuGraphHandle`, `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`. Older hosts
            /// refuse contexts of several devices with `CUDA_ERROR_NOT_SUPPORTED`.
            0x0e01 wait custom gpgpuGraphInstantiate(exec: New<GraphExec>, image: u64, flags: u64) memory input;
            /// Ends an executable graph. Its pending launches still complete. It is not an error if it has ended with one
            /// of its contexts.
            0x0e02 post custom cuGraphExecDestroy(hGraphExec: Gone<GraphExec>) device;
            /// Launches an executable graph in a stream, of any device: older hosts refuse one that is not on the graph's
            /// device with `CUDA_ERROR_NOT_SUPPORTED`. It fails with `CUDA_ERROR_INVALID_HANDLE` if a function or an
            /// event of the graph has ended, and with `CUDA_ERROR_INVALID_VALUE` if memory of a copy or fill has been
            /// freed.
            0x0e03 post custom cuGraphLaunch(hGraphExec: GraphExec, hStream: Stream) work memory;
            /// Uploads an executable graph to its devices, in stream order.
            0x0e04 call custom cuGraphUpload(hGraphExec: GraphExec, hStream: Stream) order memory;
            /// Updates an executable graph to another list of as many steps, with the same order between them. The list
            /// is transferred as in `gpgpuGraphInstantiate`.
            0x0e05 wait custom gpgpuGraphUpdate(exec: GraphExec, image: u64) memory input;
            /// Changes the step of an executable graph with this number, from 0. Its kind, its context and its
            /// dependencies do not change.
            0x0e06 call custom gpgpuGraphSetStep(exec: GraphExec, step: u32, to: GraphStep) memory;
            /// Checks whether a step is possible: the result is the error if it is not.
            0x0e07 call custom gpgpuGraphCheck(step: GraphStep) memory;
            /// Executes a command of a library ([A.8](#a8-functions-of-libraries)) that submits GPU work, on a handle
            /// or a stream, but records that work instead of submitting it. `op` and `arguments` are the command's.
            /// `result` and `reply` answer the command. `ended` is the error if the library's work cannot be recorded:
            /// then there is no part. Otherwise `commands` is the number of launches, copies and fills of the part;
            /// with 0 there is none.
            0x0e08 wait custom gpgpuGraphRecord(part: New<GraphPart>, op: u32, arguments: Blob, result: Out<u32>, reply: Out<Blob>, ended: Out<u32>, commands: Out<u32>);
            /// Ends a part. Executable graphs that have it keep it. It is not an error if it has ended with its context.
            0x0e09 post custom gpgpuGraphForget(part: Gone<GraphPart>) device;
            /// As `gpgpuGraphInstantiate`, with the list in the command, so that a ring can accept it.
            0x0e0a wait custom gpgpuGraphInstantiateHere(exec: New<GraphExec>, steps: Blob, flags: u64) memory;
            /// As `gpgpuGraphUpdate`, with the list in the command.
            0x0e0b wait custom gpgpuGraphUpdateHere(exec: GraphExec, steps: Blob) memory;
            /// Checks whether graphs in the current context can have values on which conditional steps depend: `flags`
            /// is 1 for one with a default, or 0. Older hosts have no such steps.
            0x0e0c call custom gpgpuGraphCondition(default: u32, flags: u32);
            /// As `gpgpuGraphSetStep`, for several steps: `changes` is a count, then that many `GraphChange`. If it
            /// fails, it may have changed some of them.
            0x0e0d call custom gpgpuGraphSetSteps(exec: GraphExec, changes: Blob) memory;
            /// As `gpgpuGraphInstantiateHere`, with at most 256 steps: the device makes it before it executes later
            /// commands.
            0x0e0e call custom gpgpuGraphInstantiateFew(exec: New<GraphExec>, steps: Blob, flags: u64) memory;
            /// Checks whether steps can wait for a part of a launch: whether lists may have steps 14. Older hosts do
            /// not support them, nor do drivers before CUDA 12.3.
            0x0e0f call custom gpgpuGraphEdges() client;
            /// As `gpgpuGraphRecord`. If `workspace` is not 0, the call's handle, which is one of cuBLAS, has `bytes` bytes there as its workspace
            /// during the call. If the library allocated memory in the call, `ended` is an error, and `memory` says how many bytes;
            /// otherwise `memory` is 0.
            0x0e10 wait custom gpgpuGraphRecordWith(part: New<GraphPart>, op: u32, arguments: Blob, workspace: u64, bytes: u64, result: Out<u32>, reply: Out<Blob>, ended: Out<u32>, commands: Out<u32>, memory: Out<u64>);
            /// The name by which kernels launch an executable graph that was instantiated with
            /// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`. It fails with `CUDA_ERROR_INVALID_VALUE` for another graph.
            /// The name does not change while the graph exists.
            0x0e11 call custom gpgpuGraphHandle(exec: GraphExec, handle: Out<u64>) client;
            /// Makes an empty set of driver nodes for a graph. An executable graph of a list that names them contains
            /// all of them. They can be in one executable graph at a time, and in another when that has ended.
            0x0e12 call custom gpgpuGraphNodes(nodes: New<GraphNodes>) client;
            /// Adds the node of a launch that kernels update (`CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`).
            /// `step` is the launch, without waits. `node` is the node's number, from 0, and `name` its name for
            /// kernels, which does not change.
            0x0e13 call custom gpgpuGraphNode(nodes: GraphNodes, step: GraphStep, node: Out<u32>, name: Out<u64>) memory;
            /// Ends the nodes of a graph. An executable graph with them continues to exist. It is not an error if they have
            /// ended with a context.
            0x0e14 post custom gpgpuGraphNodesForget(nodes: Gone<GraphNodes>) device;

            // Arrays, textures and surfaces.
            /// Makes an array in the current context, with an id that the client chose. `form` is the requested array,
            /// `made` is its description by `cuArray3DGetDescriptor`. Its memory is charged to the virtual machine's
            /// limit until it ends. Sparse arrays and those without memory of their own fail with
            /// `CUDA_ERROR_NOT_SUPPORTED`.
            0x0f00 call custom gpgpuArrayCreate(array: New<Array>, form: ArrayForm, made: Out<ArrayForm>);
            /// Ends an array, and its planes. A level ends only with its mipmapped array: for a level, as for a plane,
            /// it fails with `CUDA_ERROR_INVALID_HANDLE`.
            0x0f01 wait custom cuArrayDestroy(hArray: Gone<Array>);
            /// Makes a mipmapped array of at most this many levels, as `gpgpuArrayCreate` makes an array. `count` is
            /// the number of its levels.
            0x0f02 call custom gpgpuMipmappedArrayCreate(mipmap: New<MipmappedArray>, form: ArrayForm, levels: u32, count: Out<u32>);
            /// Ends a mipmapped array, with its levels.
            0x0f03 wait custom cuMipmappedArrayDestroy(hMipmappedArray: Gone<MipmappedArray>);
            /// Makes a level of a mipmapped array an object of the client, whose id it chose. It ends with the mipmapped array.
            0x0f04 call custom gpgpuMipmappedArrayLevel(level: New<Array>, mipmap: MipmappedArray, number: u32, made: Out<ArrayForm>);
            /// Makes a plane of an array an object of the client, whose id it chose. It ends with the array.
            0x0f05 call custom gpgpuArrayPlane(plane: New<Array>, array: Array, number: u32, made: Out<ArrayForm>);
            /// The memory that an array would take on a device, in bytes, and its alignment.
            0x0f06 call custom gpgpuArrayMemory(array: Array, dev: i32, size: Out<usize>, alignment: Out<usize>) device;
            /// The same for a mipmapped array.
            0x0f07 call custom gpgpuMipmappedArrayMemory(mipmap: MipmappedArray, dev: i32, size: Out<usize>, alignment: Out<usize>) device;
            /// Copies a box in stream order. A side that is memory has a device address of device memory or pinned
            /// memory. It fails with `CUDA_ERROR_INVALID_VALUE` if the box exceeds an array, or cuts an element. With
            /// `synchronous`, it is complete when the stream has done it; otherwise, when it was issued.
            0x0f08 wait custom gpgpuBoxCopy(copy: BoxCopy, hStream: Stream, synchronous: bool) work memory observes;
            /// Copies the `in` of its chain into an array, in stream order. The rows and the slices of the data are
            /// contiguous: `in_bytes` is `width` times `height` times `depth`. It is complete when the bytes were read,
            /// or with `synchronous` when the stream has done it.
            0x0f09 wait custom gpgpuBoxIn(to: BoxEnd, width: usize, height: usize, depth: usize, hStream: Stream, synchronous: bool) work observes input;
            /// Copies from an array to the `out` of its chain, in stream order. The rows and slices are as in
            /// `gpgpuBoxIn`. It is complete when the bytes are there.
            0x0f0a wait custom gpgpuBoxOut(from: BoxEnd, width: usize, height: usize, depth: usize, hStream: Stream) work observes output;
            /// Copies a box in stream order. Each side is an array, or memory with a device address of device memory
            /// or pinned memory.
            0x0f0b post custom gpgpuBoxCopyAsync(copy: BoxCopy, hStream: Stream) work memory;
            // Small boxes of pageable memory through the ring's data blocks.
            /// Copies from the ring's data blocks to an array or to memory, in stream order: the bytes from the start
            /// of the block with this number. They may extend into the following blocks. Rows and slices of the data
            /// are contiguous.
            0x0f0c fence custom gpgpuBlockBoxIn(to: BoxEnd, width: usize, height: usize, depth: usize, block: u32, hStream: Stream) work memory write block observes;
            /// Copies from an array or from memory to the ring's data blocks, in stream order, as `gpgpuBlockBoxIn`
            /// copies from them.
            0x0f0d fence custom gpgpuBlockBoxOut(from: BoxEnd, width: usize, height: usize, depth: usize, block: u32, hStream: Stream) work memory waited block observes;
            /// Makes a texture object in the current context. `object` is the driver's own value for it, which the
            /// client passes to kernels. All memory that it reads must be the client's. Without a `view`, the function
            /// of CUDA gets a NULL pointer.
            0x0f10 call custom gpgpuTexObjectCreate(object: Out<u64>, resource: TextureResource, texture: TextureForm, view: In<TextureView>) memory;
            /// Ends a texture object, by the value that `gpgpuTexObjectCreate` returned.
            0x0f11 wait custom cuTexObjectDestroy(texObject: u64);
            /// Makes a surface object in the current context, as `gpgpuTexObjectCreate` makes a texture object.
            0x0f12 call custom gpgpuSurfObjectCreate(object: Out<u64>, resource: TextureResource);
            /// Ends a surface object, by the value that `gpgpuSurfObjectCreate` returned.
            0x0f13 wait custom cuSurfObjectDestroy(surfObject: u64);
            /// The maximum number of elements of a format in a texture of linear memory on a device.
            0x0f14 call worker cuDeviceGetTexture1DLinearMaxWidth(maxWidthInElements: Out<usize>, format: u32, numChannels: u32, dev: i32) device;

            // Green contexts. A client names multiprocessors by the split from which they come; the device repeats the
            // split. The resources of its own driver stay there.
            /// The multiprocessors of a device.
            0x0f80 call custom gpgpuDeviceMultiprocessors(dev: i32, all: Out<Multiprocessors>) device;
            /// The multiprocessors of a context: those of its device, or those with which a green context was made.
            0x0f81 call custom gpgpuContextMultiprocessors(ctx: Context, all: Out<Multiprocessors>) device;
            /// The result of a split of a device's multiprocessors: groups, as many as there are or were requested, and
            /// the remainder.
            0x0f82 call custom gpgpuMultiprocessorSplit(dev: i32, split: MultiprocessorSplit, groups: Out<Vec<Multiprocessors>>, remaining: Out<Multiprocessors>) device;
            /// Makes a green context with an id that the client chose. It has the `groups` of a split, by number, where
            /// 2³² − 1 is the remainder of the split; or, without a split, all multiprocessors that would be split. The
            /// client must have retained the device's primary context. Objects that are made while the green context is
            /// current belong to the primary context, except streams. It fails with
            /// `CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION` for groups that the split does not have.
            0x0f83 call custom gpgpuGreenCtxCreate(green: New<Context>, dev: i32, split: MultiprocessorSplit, groups: Vec<u32>, flags: u32) device;
            /// Ends a green context, with its streams, once their work is done. It ends with its primary context too.
            0x0f84 wait custom gpgpuGreenCtxDestroy(green: Context) device;
            /// Makes a stream of a green context with an id that the client chose.
            0x0f85 call custom gpgpuGreenCtxStreamCreate(stream: New<Stream>, green: Context, flags: u32, priority: i32) device;
        }
    };
}
