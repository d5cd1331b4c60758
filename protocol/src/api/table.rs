//! The table itself; [`api`](crate::api) says how to read it.

/// Hands the API table to `$callback!`.
#[macro_export]
macro_rules! with_api {
    ($callback:ident) => {
        $callback! {
            // Client.
            0x0001 call custom gpgpuHello(hello: Out<Hello>) client;
            0x0002 call custom gpgpuImageWrite(image: u64, bytes: u64) client;
            0x0003 call custom gpgpuImageFind(image: u64, bytes: u64, hash: Blob, known: Out<u32>) client;
            0x0004 wait custom gpgpuNextCallback(callback: Out<u64>, status: Out<u32>) client;
            0x0005 post custom gpgpuCallbackDone(callback: u64) client;
            0x0006 call custom gpgpuErrorText(code: u32, text: Out<String>) client;
            0x0007 call custom gpgpuOperations(first: u32, operations: Out<Vec<KnownOperation>>) client;
            // The ring; see `ring`.
            0x0010 call custom gpgpuRingSetup(address: u64) client;
            0x0011 post custom gpgpuRingWake() client;
            0x0012 call custom gpgpuRingAfter(position: u64) client;
            0x0013 call custom gpgpuFenceStatus(slot: u32, sequence: u32, position: u64, over: Out<u32>) client;

            // Devices; what does not change is part of the hello. A device is the guest's number for it here and wherever else an
            // argument is one, so the worker's side is written by hand: the host's number may be another.
            0x0101 call custom cuDeviceCanAccessPeer(canAccessPeer: Out<i32>, dev: i32, peerDev: i32) device;
            0x0102 call worker cuDeviceGetP2PAttribute(value: Out<i32>, attrib: u32, srcDevice: i32, dstDevice: i32) device;
            0x0103 call custom cuDevicePrimaryCtxRetain(pctx: New<Context>, dev: i32) device;
            0x0104 wait custom cuDevicePrimaryCtxRelease_v2(dev: i32) device;
            0x0105 wait custom cuDevicePrimaryCtxReset_v2(dev: i32) device;
            0x0106 call custom cuDevicePrimaryCtxSetFlags_v2(dev: i32, flags: u32) device;
            0x0107 call custom cuDevicePrimaryCtxGetState(dev: i32, flags: Out<u32>, active: Out<i32>) device;

            // Contexts.
            0x0201 call custom cuCtxCreate_v2(pctx: New<Context>, flags: u32, dev: i32);
            0x0202 wait custom cuCtxDestroy_v2(ctx: Context);
            0x0203 fence plain cuCtxSynchronize() observes;
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
            0x0301 call custom cuMemAlloc_v2(dptr: Out<u64>, bytesize: usize) memory;
            0x0302 call custom cuMemAllocPitch_v2(dptr: Out<u64>, pPitch: Out<usize>, WidthInBytes: usize, Height: usize, ElementSizeBytes: u32) memory;
            0x0303 wait custom cuMemFree_v2(dptr: u64) memory;
            0x0304 call custom cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) memory;
            0x0305 call custom cuMemGetAddressRange_v2(pbase: Out<u64>, psize: Out<usize>, dptr: u64) memory;
            0x0306 wait custom cuMemHostRegister_v2(address: u64, bytes: usize, flags: u32, device: Out<u64>) memory;
            0x0307 wait custom cuMemHostUnregister(address: u64) memory;
            0x0308 call worker cuPointerSetAttribute(value: In<u32>, attribute: u32, ptr: u64) memory;
            0x0309 call custom gpgpuPointerAttribute(value: Out<u64>, attribute: u32, ptr: u64) memory;
            // Of memory that nothing uses any more: the library has seen the end of the context's work.
            0x030a post custom gpgpuFreeIdle(dptr: u64) memory;

            // Memory in a stream's order, and pools. What the process can keep for itself (which pool a device has, what
            // was let in) it does.
            0x0310 call custom cuMemAllocFromPoolAsync(dptr: Out<u64>, bytesize: usize, pool: MemPool, hStream: Stream) memory;
            0x0311 post custom cuMemFreeAsync(dptr: u64, hStream: Stream) order memory;
            0x0312 call custom cuMemPoolCreate(pool: New<MemPool>, dev: i32, maxSize: usize) memory;
            0x0313 wait custom cuMemPoolDestroy(pool: Gone<MemPool>) memory;
            0x0314 wait custom cuMemPoolTrimTo(pool: MemPool, minBytesToKeep: usize) memory;
            0x0315 call custom cuMemPoolGetAttribute(pool: MemPool, attr: u32, value: Out<u64>) memory;
            0x0316 wait custom cuMemPoolSetAttribute(pool: MemPool, attr: u32, value: u64) memory;
            0x0317 wait custom cuMemPoolSetAccess(pool: MemPool, dev: i32, flags: u32) memory;
            // Memory ran out: waits until some that was freed in a stream's order is there.
            0x0318 wait custom gpgpuReclaim(more: Out<u32>) memory;

            // Copies between device and registered memory; the guest library chose the form.
            0x0401 fence custom cuMemcpy(dst: u64, src: u64, ByteCount: usize) work memory observes;
            0x0402 post custom cuMemcpyAsync(dst: u64, src: u64, ByteCount: usize, hStream: Stream) work memory;
            0x0403 wait custom cuMemcpyDtoD_v2(dstDevice: u64, srcDevice: u64, ByteCount: usize) work memory observes;
            0x0404 wait custom cuMemcpyPeer(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize) work memory;
            0x0405 post custom cuMemcpyPeerAsync(dstDevice: u64, dstContext: Context, srcDevice: u64, srcContext: Context, ByteCount: usize, hStream: Stream) work memory;
            0x0406 wait custom gpgpuCopy2D(copy: Copy2D, hStream: Stream, synchronous: bool) work memory observes;
            // Copies from and to pageable memory: the bytes travel beside the stream.
            0x0407 wait custom gpgpuCopyIn(dst: u64, hStream: Stream, synchronous: bool) work memory observes;
            0x0408 wait custom gpgpuCopyOut(src: u64, hStream: Stream) work memory observes;
            0x0409 wait custom gpgpuCopyIn2D(dst: u64, pitch: usize, width: usize, height: usize, hStream: Stream, synchronous: bool) work memory observes;
            0x040a wait custom gpgpuCopyOut2D(src: u64, pitch: usize, width: usize, height: usize, hStream: Stream) work memory observes;
            // Small copies from and to pageable memory by the ring: the bytes in the command, or in data blocks.
            0x040b post custom gpgpuWrite(dst: u64, hStream: Stream, bytes: Blob) work memory write;
            0x040c fence custom gpgpuBlockIn(dst: u64, block: u32, ByteCount: usize, hStream: Stream) work memory write block observes;
            0x040d fence custom gpgpuBlockOut(src: u64, block: u32, ByteCount: usize, hStream: Stream) work memory waited block observes;

            // Fills.
            0x0501 wait custom cuMemsetD8_v2(dstDevice: u64, uc: u8, N: usize) work memory;
            0x0502 wait custom cuMemsetD16_v2(dstDevice: u64, us: u16, N: usize) work memory;
            0x0503 wait custom cuMemsetD32_v2(dstDevice: u64, ui: u32, N: usize) work memory;
            0x0504 wait custom cuMemsetD2D8_v2(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize) work memory;
            0x0505 wait custom cuMemsetD2D16_v2(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize) work memory;
            0x0506 wait custom cuMemsetD2D32_v2(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize) work memory;
            0x0507 post custom cuMemsetD8Async(dstDevice: u64, uc: u8, N: usize, hStream: Stream) work memory;
            0x0508 post custom cuMemsetD16Async(dstDevice: u64, us: u16, N: usize, hStream: Stream) work memory;
            0x0509 post custom cuMemsetD32Async(dstDevice: u64, ui: u32, N: usize, hStream: Stream) work memory;
            0x050a post custom cuMemsetD2D8Async(dstDevice: u64, dstPitch: usize, uc: u8, Width: usize, Height: usize, hStream: Stream) work memory;
            0x050b post custom cuMemsetD2D16Async(dstDevice: u64, dstPitch: usize, us: u16, Width: usize, Height: usize, hStream: Stream) work memory;
            0x050c post custom cuMemsetD2D32Async(dstDevice: u64, dstPitch: usize, ui: u32, Width: usize, Height: usize, hStream: Stream) work memory;

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
            0x0a04 call plain cuStreamQuery cuStreamQuery_ptsz (hStream: Stream) observes;
            0x0a05 fence plain cuStreamSynchronize cuStreamSynchronize_ptsz (hStream: Stream) observes;
            0x0a06 post plain cuStreamWaitEvent cuStreamWaitEvent_ptsz (hStream: Stream, hEvent: Event, Flags: u32) order mark;
            0x0a07 call guest cuStreamGetFlags cuStreamGetFlags_ptsz (hStream: Stream, flags: Out<u32>);
            0x0a08 call guest cuStreamGetPriority cuStreamGetPriority_ptsz (hStream: Stream, priority: Out<i32>);
            0x0a09 call guest cuStreamGetId cuStreamGetId_ptsz (hStream: Stream, streamId: Out<u64>);

            // Events.
            0x0b01 post plain cuEventCreate(phEvent: New<Event>, Flags: Flags<3>);
            0x0b02 post worker cuEventDestroy_v2(hEvent: Gone<Event>);
            0x0b03 post guest cuEventRecord cuEventRecord_ptsz (hEvent: Event, hStream: Stream) order mark;
            0x0b04 post guest cuEventRecordWithFlags cuEventRecordWithFlags_ptsz (hEvent: Event, hStream: Stream, flags: u32) order mark;
            0x0b05 call guest cuEventQuery(hEvent: Event) observes;
            0x0b06 wait custom cuEventSynchronize(hEvent: Event) observes;
            0x0b10 post custom gpgpuEventMark(hEvent: Event, hStream: Stream, word: u32, value: u32) order mark;
            0x0b07 call plain cuEventElapsedTime(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);
            0x0b08 call plain cuEventElapsedTime_v2(pMilliseconds: Out<f32>, hStart: Event, hEnd: Event);
        }
    };
}
