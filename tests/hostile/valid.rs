// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The commands with which an attack begins: they are as valid as any program's.

#![allow(non_snake_case)]

use gpgpu_protocol::{
    api::{
        Event, Function, LaunchAttribute, MemOp, MemPool, Module, Physical, Stream, TensorForm,
        TensorMap, object_id, request,
    },
    codec::Blob,
    cuda::*,
};

use super::{Attack, BYTES, CLIENT, PIECE, PINNED, Place, RESERVED, Sent};
use crate::client::{KERNELS, launch};

impl Attack<'_> {
    /// A command as a program would send it.
    pub fn valid(&mut self) -> Sent {
        let at = self.random.below(self.places.len() as u64) as usize;
        let mut place = self.places[at].clone();
        if at == 0 && self.random.below(4) == 0 {
            let greens = self.greens.clone();
            place.context = self.pick(&greens).unwrap_or(place.context);
        }
        let context = place.context;
        let mut streams = place.streams.clone();
        streams.extend([0, 0, 1]);
        let hStream = self.pick(&streams).unwrap_or(0);
        let memory: Vec<u64> = [place.memory.clone(), vec![CLIENT + PINNED]].concat();
        let (dst, src) = (
            self.pick(&memory).unwrap_or(0),
            self.pick(&memory).unwrap_or(0),
        );
        let ByteCount = self.random.below(BYTES as u64 + 1) as usize;
        match self.random.below(35) {
            0..4 => self.launch(&place, hStream, 16),
            4 | 5 => self.copy(context, (dst, src, ByteCount, hStream)),
            6 | 7 => self.fill(context, (dst, ByteCount, hStream)),
            8..11 => self.order(at, hStream),
            11 | 12 => self.make(at),
            13 | 14 => self.end(at),
            15 | 16 => self.synchronise(&place, hStream),
            17 => self.pooled(at, hStream),
            20 | 21 => self.mapped((context, hStream), ByteCount),
            22..25 => self.graphed(&place, hStream),
            25 => self.words((context, hStream), dst),
            26 => self.linked(context, dst),
            27 | 28 => self.pictured((context, hStream), dst),
            29 | 30 => self.shared((context, hStream), dst),
            31 | 32 => self.greened(),
            33 | 34 => self.traced(&place, hStream),
            18 => match self.random.below(7) {
                0 => {
                    let register = request::cuMemHostRegister_v2 {
                        address: CLIENT + PINNED,
                        bytes: BYTES,
                        flags: 0,
                        device: true,
                    };
                    Sent::new(&register, context)
                }
                1 => {
                    let address = CLIENT + PINNED;
                    Sent::new(&request::cuMemHostUnregister { address }, context)
                }
                2 => {
                    let dev = self.random.below(3) as i32 - 1;
                    Sent::new(&request::gpgpuDeviceUsage { dev, usage: true }, 0)
                }
                3 => Sent::new(&request::gpgpuDriverVersion { version: true }, 0),
                4 => {
                    let dev = self.random.below(3) as i32 - 1;
                    Sent::new(&request::gpgpuDeviceSensors { dev, sensors: true }, 0)
                }
                5 => {
                    let (dptr, dev) = (dst, self.random.below(3) as i32 - 1);
                    let reach = request::gpgpuMemoryReach {
                        dptr,
                        dev,
                        reaches: true,
                    };
                    Sent::new(&reach, context)
                }
                _ => Sent::new(&request::cuMemFree_v2 { dptr: dst }, context),
            },
            _ => {
                let other = self.pick(&[0, at, at / 2]).unwrap_or(0);
                let copy = request::cuMemcpyPeerAsync {
                    dstDevice: dst,
                    dstContext: context,
                    srcDevice: src,
                    srcContext: self.places[other].context,
                    ByteCount,
                    hStream,
                };
                Sent::new(&copy, context)
            }
        }
    }

    pub fn launch(&mut self, place: &Place, stream: u64, part: u32) -> Sent {
        let func = self.pick(&place.functions).unwrap_or(0);
        let to = self.pick(&place.memory).unwrap_or(0);
        let launch = launch(func, stream, to, self.turns / part);
        Sent {
            // The function, the shared memory and the stream. A changed grid or parameter could make a kernel endless
            // or faulty.
            words: Some(&[0, 7, 8]),
            ..Sent::new(&launch, place.context)
        }
    }

    fn copy(
        &mut self,
        context: u64,
        (dst, src, ByteCount, hStream): (u64, u64, usize, u64),
    ) -> Sent {
        let data = vec![3; ByteCount];
        match self.random.below(8) {
            0 => {
                let copy = request::cuMemcpy {
                    dst,
                    src,
                    ByteCount,
                };
                Sent::new(&copy, context)
            }
            1 => {
                let copy = request::cuMemcpyDtoD_v2 {
                    dstDevice: dst,
                    srcDevice: src,
                    ByteCount,
                };
                Sent::new(&copy, context)
            }
            2 => {
                let synchronous = self.random.below(2) == 0;
                let copy = request::gpgpuCopyIn {
                    dst,
                    hStream,
                    synchronous,
                };
                Sent::new(&copy, context).with(&data, 0)
            }
            3 => {
                let copy = request::gpgpuCopyOut { src, hStream };
                Sent::new(&copy, context).with(&[], ByteCount as u64)
            }
            4 => {
                let bytes = Blob(vec![9; ByteCount % 2048]);
                let copy = request::gpgpuWrite {
                    dst,
                    hStream,
                    bytes,
                };
                Sent::new(&copy, context)
            }
            5 => {
                let block = self.random.below(17) as u32;
                let copy = request::gpgpuBlockIn {
                    dst,
                    block,
                    ByteCount,
                    hStream,
                };
                Sent::new(&copy, context)
            }
            6 => {
                let block = self.random.below(17) as u32;
                let copy = request::gpgpuBlockOut {
                    src,
                    block,
                    ByteCount,
                    hStream,
                };
                Sent::new(&copy, context)
            }
            _ => {
                let copy = request::cuMemcpyAsync {
                    dst,
                    src,
                    ByteCount,
                    hStream,
                };
                Sent::new(&copy, context)
            }
        }
    }

    fn fill(&mut self, context: u64, (dstDevice, N, hStream): (u64, usize, u64)) -> Sent {
        match self.random.below(3) {
            0 => Sent::new(
                &request::cuMemsetD8_v2 {
                    dstDevice,
                    uc: 1,
                    N,
                },
                context,
            ),
            1 => {
                let fill = request::cuMemsetD32Async {
                    dstDevice,
                    ui: 1,
                    N: N / 4,
                    hStream,
                };
                Sent::new(&fill, context)
            }
            _ => {
                let fill = request::cuMemsetD2D8Async {
                    dstDevice,
                    dstPitch: 512,
                    uc: 1,
                    Width: 256,
                    Height: N / 512,
                    hStream,
                };
                Sent::new(&fill, context)
            }
        }
    }

    /// Events, and waits for them.
    fn order(&mut self, at: usize, hStream: u64) -> Sent {
        let place = self.places[at].clone();
        let context = place.context;
        let Some(hEvent) = self.pick(&place.events) else {
            return self.event(at);
        };
        let hCtx = context;
        match self.random.below(8) {
            0 | 1 => Sent::new(&request::cuEventRecord { hEvent, hStream }, context),
            6 => Sent::new(&request::cuCtxRecordEvent { hCtx, hEvent }, context),
            7 => Sent::new(&request::cuCtxWaitEvent { hCtx, hEvent }, context),
            2 => {
                let (word, value) = (self.random.below(5000) as u32, self.sequence);
                let mark = request::gpgpuEventMark {
                    hEvent,
                    hStream,
                    word,
                    value,
                };
                Sent::new(&mark, context)
            }
            3 => {
                let wait = request::cuStreamWaitEvent {
                    hStream,
                    hEvent,
                    Flags: 0,
                };
                Sent::new(&wait, context)
            }
            4 => Sent::new(&request::cuEventQuery { hEvent }, context),
            _ => Sent::new(&request::cuEventSynchronize { hEvent }, context),
        }
    }

    fn synchronise(&mut self, place: &Place, hStream: u64) -> Sent {
        match self.random.below(6) {
            0 => Sent::new(&request::cuStreamQuery { hStream }, place.context),
            3 => {
                let output = request::gpgpuOutput {
                    output: true,
                    error: true,
                    more: true,
                };
                Sent::new(&output, place.context)
            }
            4 => {
                let object = self.pick(&place.modules).unwrap_or(0);
                let prints = true;
                let ask = request::gpgpuMayPrint { object, prints };
                Sent::new(&ask, place.context)
            }
            5 => {
                let func = self.pick(&place.functions).unwrap_or(0);
                let prints = true;
                let ask = request::gpgpuFunctionPrints { func, prints };
                Sent::new(&ask, place.context)
            }
            1 => Sent::new(&request::cuStreamSynchronize { hStream }, place.context),
            _ => Sent::new(&request::cuCtxSynchronize {}, place.context),
        }
    }

    fn event(&mut self, at: usize) -> Sent {
        let phEvent = object_id::<Event>(self.next_serial());
        self.places[at].events.push(phEvent);
        let make = request::cuEventCreate { phEvent, Flags: 2 };
        Sent::new(&make, self.places[at].context)
    }

    /// Makes an object.
    fn make(&mut self, at: usize) -> Sent {
        let context = self.places[at].context;
        let serial = self.next_serial();
        match self.random.below(8) {
            0..3 => self.event(at),
            3 | 4 => {
                let phStream = object_id::<Stream>(serial);
                self.places[at].streams.push(phStream);
                let Flags = self.random.below(2) as u32;
                Sent::new(&request::cuStreamCreate { phStream, Flags }, context)
            }
            5 => {
                let module = object_id::<Module>(serial);
                self.places[at].modules.push(module);
                let load = request::cuModuleLoadDataEx {
                    module,
                    image: 0,
                    options: Vec::new(),
                    eager: false,
                    log: true,
                };
                Sent::new(&load, context).with(KERNELS.as_bytes(), 0)
            }
            6 => {
                let function = object_id::<Function>(serial);
                let modules = self.places[at].modules.clone();
                let hmod = self.pick(&modules).unwrap_or(0);
                self.places[at].functions.push(function);
                let get = request::cuModuleGetFunction {
                    function,
                    hmod,
                    name: "busy".into(),
                    info: true,
                };
                Sent::new(&get, context)
            }
            _ => {
                let pool = object_id::<MemPool>(serial);
                self.pools.push(pool);
                let make = request::cuMemPoolCreate {
                    pool,
                    dev: 0,
                    maxSize: 0,
                };
                Sent::new(&make, context)
            }
        }
    }

    /// Destroys one of several objects, which other threads may be using.
    fn end(&mut self, at: usize) -> Sent {
        let place = &mut self.places[at];
        let context = place.context;
        let kinds = [
            &mut place.streams,
            &mut place.events,
            &mut place.modules,
            &mut self.pools,
        ];
        let which = self.random.below(4) as usize;
        let [streams, events, modules, pools] = kinds;
        let from = [streams, events, modules, pools].into_iter().nth(which);
        let id = match from {
            Some(ids) if ids.len() > 2 => {
                let index = self.random.below(ids.len() as u64) as usize;
                ids.swap_remove(index)
            }
            _ => return self.event(at),
        };
        self.gone.push(id);
        match which {
            0 => Sent::new(&request::cuStreamDestroy_v2 { hStream: id }, context),
            1 => Sent::new(&request::cuEventDestroy_v2 { hEvent: id }, context),
            2 => Sent::new(&request::cuModuleUnload { hmod: id }, context),
            _ => Sent::new(&request::cuMemPoolDestroy { pool: id }, context),
        }
    }

    /// Words that streams write, and attributes of streams.
    fn words(&mut self, (context, hStream): (u64, u64), address: u64) -> Sent {
        match self.random.below(4) {
            0 => {
                let write = |operation| MemOp {
                    operation,
                    flags: 0,
                    address,
                    value: 1,
                };
                let ops = vec![
                    write(CU_STREAM_MEM_OP_WRITE_VALUE_32),
                    write(CU_STREAM_MEM_OP_BARRIER),
                    write(CU_STREAM_MEM_OP_WRITE_VALUE_64),
                ];
                let flags = 0;
                let write = request::gpgpuMemOps {
                    hStream,
                    ops,
                    flags,
                };
                Sent {
                    // Only the stream: another operation may be an endless wait.
                    words: Some(&[0]),
                    ..Sent::new(&write, context)
                }
            }
            1 => {
                let value = LaunchAttribute {
                    id: CU_LAUNCH_ATTRIBUTE_PRIORITY,
                    ..LaunchAttribute::default()
                };
                Sent::new(&request::cuStreamSetAttribute { hStream, value }, context)
            }
            2 => {
                let get = request::cuStreamGetAttribute {
                    hStream,
                    attr: CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                    value_out: true,
                };
                Sent::new(&get, context)
            }
            _ => {
                let (dst, src) = (hStream, 0);
                Sent::new(&request::cuStreamCopyAttributes { dst, src }, context)
            }
        }
    }

    /// Linkers with few ids, so that several commands use and destroy one at the same time, and tensor maps.
    fn linked(&mut self, context: u64, address: u64) -> Sent {
        let link = 1 + self.random.below(3);
        match self.random.below(8) {
            0 | 1 => {
                let options = Vec::new();
                Sent::new(&request::gpgpuLinkCreate { link, options }, context)
            }
            2 => {
                let add = request::gpgpuLinkAdd {
                    link,
                    kind: CU_JIT_INPUT_PTX,
                    image: 0,
                    name: "input".into(),
                    options: Vec::new(),
                    log: true,
                };
                Sent::new(&add, context).with(KERNELS.as_bytes(), 0)
            }
            3 => {
                let complete = request::gpgpuLinkComplete {
                    link,
                    bytes: true,
                    log: true,
                };
                Sent::new(&complete, context)
            }
            4 => {
                let offset = self.random.below(2) * KERNELS.len() as u64 / 2;
                Sent::new(&request::gpgpuLinkRead { link, offset }, context).with(&[], 64)
            }
            5 => Sent::new(&request::gpgpuLinkDestroy { link }, context),
            6 => {
                let form = TensorForm {
                    kind: 0,
                    data_type: 7,
                    address,
                    dims: vec![64; 2],
                    strides: vec![256],
                    element_strides: vec![1; 2],
                    box_dims: vec![16; 2],
                    modes: vec![0; 4],
                    ..TensorForm::default()
                };
                Sent::new(&request::gpgpuTensorMapEncode { form, map: true }, context)
            }
            _ => {
                let replace = request::gpgpuTensorMapReplaceAddress {
                    old: TensorMap::default(),
                    address,
                    map: true,
                };
                Sent::new(&replace, context)
            }
        }
    }

    /// Objects that processes share: names of few objects, as good as others' and never right, and events with few ids.
    fn shared(&mut self, (context, hStream): (u64, u64), dptr: u64) -> Sent {
        let event = object_id::<Event>(1 << 40 | self.random.below(3));
        let physical = self.physical.clone();
        let handle = self.pick(&physical).unwrap_or(0);
        let what = self.random.below(6) as u32;
        let owner = self.random.below(8);
        let name = Blob(
            [
                &0x5049_6767_u32.to_le_bytes()[..],
                &what.to_le_bytes(),
                &owner.to_le_bytes(),
                &[0; 48],
            ]
            .concat(),
        );
        match self.random.below(18) {
            14 => {
                let mempool = self.pick(&self.pools.clone()).unwrap_or(0);
                let share = request::gpgpuPoolShare {
                    pool: mempool,
                    name: true,
                };
                Sent::new(&share, context)
            }
            15 => {
                let pool = object_id::<MemPool>(self.next_serial());
                self.pools.push(pool);
                let import = request::gpgpuPoolImport {
                    pool,
                    name,
                    dev: true,
                };
                Sent::new(&import, context)
            }
            16 => Sent::new(&request::gpgpuPooledShare { dptr, name: true }, context),
            17 => {
                let pool = self.pick(&self.pools.clone()).unwrap_or(0);
                let open = request::gpgpuPooledOpen {
                    pool,
                    name,
                    dptr: true,
                    bytes: true,
                };
                Sent::new(&open, context)
            }
            0 | 1 => {
                let bytes = BYTES as u64;
                let name = true;
                Sent::new(&request::gpgpuIpcShare { dptr, bytes, name }, context)
            }
            2 => {
                let open = request::gpgpuIpcOpen {
                    name,
                    dptr: true,
                    bytes: true,
                    dev: true,
                };
                Sent::new(&open, context)
            }
            3 => Sent::new(&request::cuIpcCloseMemHandle { dptr }, context),
            4 if physical.len() < 8 => {
                let handle = object_id::<Physical>(self.next_serial());
                self.physical.push(handle);
                let (size, dev) = (PIECE as usize, 0);
                Sent::new(&request::gpgpuCreateShareable { handle, size, dev }, 0)
            }
            4 | 5 => {
                let name = true;
                Sent::new(&request::gpgpuPhysicalShare { handle, name }, 0)
            }
            6 => {
                let import = request::gpgpuPhysicalImport {
                    handle: object_id::<Physical>(self.next_serial()),
                    name,
                    dev: true,
                    bytes: true,
                };
                Sent::new(&import, 0)
            }
            7 => Sent::new(&request::gpgpuIpcEventCreate { event }, context),
            8 => Sent::new(&request::gpgpuIpcEventDestroy { event }, context),
            9 => {
                let name = true;
                Sent::new(&request::gpgpuIpcEventShare { event, name }, context)
            }
            10 => Sent::new(&request::gpgpuIpcEventOpen { event, name }, context),
            11 => Sent::new(&request::gpgpuIpcEventRecord { event, hStream }, context),
            12 => Sent::new(&request::gpgpuIpcEventWait { hStream, event }, context),
            _ => match self.random.below(2) {
                0 => Sent::new(&request::gpgpuIpcEventQuery { event }, context),
                _ => Sent::new(&request::gpgpuIpcEventSynchronize { event }, context),
            },
        }
    }

    /// Virtual memory: mappings that change during copies.
    fn mapped(&mut self, (context, hStream): (u64, u64), ByteCount: usize) -> Sent {
        let (reserved, physical) = (self.reserved.clone(), self.physical.clone());
        let start = self.pick(&reserved).unwrap_or(0);
        let ptr = start + self.random.below(4) * PIECE;
        let handle = self.pick(&physical).unwrap_or(0);
        let size = PIECE as usize;
        match self.random.below(12) {
            0 | 1 if physical.len() < 8 => {
                let handle = object_id::<Physical>(self.next_serial());
                self.physical.push(handle);
                let dev = 0;
                Sent::new(&request::cuMemCreate { handle, size, dev }, 0)
            }
            0..4 => {
                let map = request::cuMemMap {
                    ptr,
                    size,
                    offset: 0,
                    handle,
                    dev: true,
                };
                Sent::new(&map, 0)
            }
            4 | 5 => {
                let access = request::cuMemSetAccess {
                    ptr,
                    size,
                    dev: 0,
                    flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                };
                Sent::new(&access, 0)
            }
            6 => Sent::new(&request::cuMemUnmap { ptr, size }, 0),
            7 => {
                let index = physical.iter().position(|id| *id == handle);
                if let Some(index) = index {
                    self.gone.push(self.physical.swap_remove(index));
                }
                Sent::new(&request::cuMemRelease { handle }, 0)
            }
            8 => {
                let retain = request::cuMemRetainAllocationHandle {
                    handle: true,
                    addr: ptr,
                };
                Sent::new(&retain, 0)
            }
            9 => {
                let size = RESERVED as usize;
                Sent::new(&request::cuMemAddressFree { ptr: start, size }, 0)
            }
            10 => {
                // At its former address, if it was freed.
                let reserve = request::cuMemAddressReserve {
                    ptr: true,
                    size: RESERVED as usize,
                    alignment: 0,
                    addr: start,
                };
                Sent::new(&reserve, 0)
            }
            _ => self.copy(context, (ptr, ptr, ByteCount, hStream)),
        }
    }

    /// Stream-ordered memory.
    fn pooled(&mut self, at: usize, hStream: u64) -> Sent {
        let place = self.places[at].clone();
        let context = place.context;
        let pools = self.pools.clone();
        let pool = self.pick(&pools).unwrap_or(0);
        match self.random.below(3) {
            0 => {
                let alloc = request::cuMemAllocFromPoolAsync {
                    dptr: true,
                    bytesize: BYTES,
                    pool,
                    hStream,
                };
                Sent::new(&alloc, context)
            }
            1 => {
                let dptr = self.pick(&place.memory).unwrap_or(0);
                Sent::new(&request::cuMemFreeAsync { dptr, hStream }, context)
            }
            _ => {
                let trim = request::cuMemPoolTrimTo {
                    pool,
                    minBytesToKeep: 0,
                };
                Sent::new(&trim, context)
            }
        }
    }
}
