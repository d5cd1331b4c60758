// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A client of a guest that sends its worker the library's commands, or others.

use std::time::{Duration, Instant};

use gpgpu_protocol::{
    api::{Context, Event, Function, LaunchConfig, Module, Request, Stream, object_id, request},
    codec::{Blob, Reader, Wire, Writer},
    cuda::*,
    layout::{COMMAND_QUEUE, CommandAnswer, StreamAnswer, StreamCommand, status},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::guest::{Guest, Used};

/// An encoded request.
pub fn command<R: Request>(request: &R, context: u64) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(request);
    raw_command(R::OP, context, &writer.into_bytes())
}

/// Any bytes as the arguments of an operation.
pub fn raw_command(op: u16, context: u64, arguments: &[u8]) -> Vec<u8> {
    let head = StreamCommand {
        bytes: ((size_of::<StreamCommand>() + arguments.len()) as u32).into(),
        op: op.into(),
        reserved: 0.into(),
        context: context.into(),
    };
    [head.as_bytes(), arguments].concat()
}

/// `busy` computes for a number of turns; `endless` never ends; `deep` has more local memory than a thread has by
/// default; `scribble` writes to 64 KiB from byte 64 on until the third word is nonzero, and then adds 1 to the first
/// word.
pub const KERNELS: &str = "
.version 6.4
.target sm_70
.address_size 64
.visible .global .texref line;
.visible .global .surfref area;
.visible .entry busy(.param .u64 to, .param .u32 turns)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .b64 %d;
    ld.param.u64 %d, [to];
    ld.param.u32 %r0, [turns];
    mov.u32 %r1, 0;
    mov.u32 %r2, 1;
again:
    mul.lo.u32 %r2, %r2, 1664525;
    add.u32 %r2, %r2, 1013904223;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p, %r1, %r0;
    @%p bra again;
    st.global.u32 [%d+4], %r2;
    atom.global.add.u32 %r3, [%d], 1;
    ret;
}
.visible .entry endless(.param .u64 to, .param .u32 turns)
{
    .reg .pred %p;
    .reg .b32 %r;
    .reg .b64 %d;
    ld.param.u64 %d, [to];
again:
    ld.volatile.global.u32 %r, [%d+8];
    setp.eq.u32 %p, %r, 0;
    @%p bra again;
    ret;
}
.visible .entry deep(.param .u64 to, .param .u32 turns)
{
    .local .align 8 .b8 many[8192];
    .reg .b32 %r<2>;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [to];
    ld.param.u32 %r0, [turns];
    mov.u64 %d1, many;
    and.b32 %r1, %r0, 1023;
    cvt.u64.u32 %d2, %r1;
    add.u64 %d1, %d1, %d2;
    st.local.u8 [%d1], %r0;
    ld.local.u8 %r1, [%d1+7];
    st.global.u32 [%d0+4], %r1;
    ret;
}
.visible .entry scribble(.param .u64 to, .param .u32 turns)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %d<3>;
    ld.param.u64 %d0, [to];
    ld.param.u32 %r0, [turns];
again:
    add.u32 %r0, %r0, 68;
    and.b32 %r1, %r0, 65532;
    max.u32 %r1, %r1, 64;
    cvt.u64.u32 %d1, %r1;
    add.u64 %d2, %d0, %d1;
    st.volatile.global.u32 [%d2], %r0;
    ld.volatile.global.u32 %r2, [%d0+8];
    setp.eq.u32 %p, %r2, 0;
    @%p bra again;
    atom.global.add.u32 %r3, [%d0], 1;
    ret;
}
\0";

/// A launch of one thread of one of [`KERNELS`].
pub fn launch(func: u64, stream: u64, to: u64, turns: u32) -> request::cuLaunchKernelEx {
    let one = LaunchConfig {
        grid_x: 1,
        grid_y: 1,
        grid_z: 1,
        block_x: 1,
        block_y: 1,
        block_z: 1,
        stream,
        ..LaunchConfig::default()
    };
    let params = [&to.to_le_bytes()[..], &turns.to_le_bytes()].concat();
    request::cuLaunchKernelEx {
        func,
        config: one,
        params: Blob(params),
    }
}

/// A function's result, and data.
type Said<R> = (<R as Request>::Reply, Vec<u8>);

/// See the module's documentation.
pub struct Client<'a> {
    guest: &'a mut Guest,
    id: u32,
    /// Buffers from this address on are for the next command.
    mark: u64,
}

impl<'a> Client<'a> {
    /// Opens a client.
    pub fn open(guest: &'a mut Guest) -> Self {
        let mark = guest.alloc(0);
        let id = guest.open();
        Self { guest, id, mark }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its VM.
    pub fn guest(&mut self) -> &mut Guest {
        self.guest
    }

    /// Closes it.
    pub fn close(self) {
        self.guest.forget_buffers(self.mark);
        assert_eq!(self.guest.close(self.id), status::OK);
    }

    /// Frees the buffers of all commands: none may be pending.
    pub fn forget(&mut self) {
        self.guest.forget_buffers(self.mark);
    }

    /// Waits for a posted command; returns the device's status.
    pub fn wait(&mut self, head: u16) -> u32 {
        self.guest.wait(COMMAND_QUEUE, head).status()
    }

    /// Sends a stream; returns the device's status, the answer and the data.
    pub fn raw(
        &mut self,
        stream: &[u8],
        answer: u32,
        input: &[u8],
        out: u64,
    ) -> (u32, Vec<u8>, Vec<u8>) {
        self.guest.forget_buffers(self.mark);
        let head = self.guest.post(self.id, stream, answer, input, out);
        self.guest.wait(COMMAND_QUEUE, head).split(answer)
    }

    /// The same without data from the guest; returns the completed chain.
    // Some test programs do not use it.
    #[allow(dead_code)]
    pub fn used(&mut self, stream: &[u8], answer: u32, out: u64) -> Used {
        self.guest.forget_buffers(self.mark);
        let head = self.guest.post(self.id, stream, answer, &[], out);
        self.guest.wait(COMMAND_QUEUE, head)
    }

    /// Sends a stream without waiting for its answer. Its buffers stay allocated.
    pub fn post(&mut self, stream: &[u8], answer: u32) -> u16 {
        self.guest.post(self.id, stream, answer, &[], 0)
    }

    /// The same with room for data.
    pub fn post_out(&mut self, stream: &[u8], answer: u32, out: u64) -> u16 {
        self.guest.post(self.id, stream, answer, &[], out)
    }

    /// The same with data.
    pub fn post_data(&mut self, stream: &[u8], answer: u32, input: &[u8]) -> u16 {
        self.guest.post(self.id, stream, answer, input, 0)
    }

    /// Calls a function; returns its code and its results.
    pub fn call<R: Request>(
        &mut self,
        request: &R,
        context: u64,
        input: &[u8],
        out: u64,
    ) -> (CUresult, Option<Said<R>>) {
        let (status, answer, data) = self.raw(&command(request, context), 60_000, input, out);
        assert_eq!(status, status::OK, "{}", R::NAME);
        let (head, reply) = StreamAnswer::read_from_prefix(&answer).expect("no answer");
        let code = head.result.get();
        let reply = (code == CUDA_SUCCESS).then(|| {
            let reply = R::Reply::get(&mut Reader::new(reply)).expect("not a reply");
            (reply, data)
        });
        (code, reply)
    }

    /// Calls a function that must succeed.
    pub fn works<R: Request>(
        &mut self,
        request: &R,
        context: u64,
        input: &[u8],
        out: u64,
    ) -> Said<R> {
        let (code, reply) = self.call(request, context, input, out);
        reply.unwrap_or_else(|| panic!("{}: error {code}", R::NAME))
    }

    /// Retains the primary context of device 0.
    pub fn context(&mut self) -> u64 {
        let id = object_id::<Context>(1);
        let retain = request::cuDevicePrimaryCtxRetain { pctx: id, dev: 0 };
        self.works(&retain, 0, &[], 0);
        id
    }

    /// Device memory.
    pub fn alloc(&mut self, bytesize: usize, context: u64) -> u64 {
        let alloc = request::cuMemAlloc_v2 {
            dptr: true,
            bytesize,
        };
        self.works(&alloc, context, &[], 0).0.dptr
    }

    /// Makes a context.
    pub fn create_context(&mut self, serial: u64, dev: i32) -> u64 {
        let id = object_id::<Context>(serial);
        let make = request::cuCtxCreate_v2 {
            pctx: id,
            flags: 0,
            dev,
        };
        self.works(&make, 0, &[], 0);
        id
    }

    /// A non-blocking stream.
    pub fn stream(&mut self, serial: u64, context: u64) -> u64 {
        let id = object_id::<Stream>(serial);
        let make = request::cuStreamCreate {
            phStream: id,
            Flags: CU_STREAM_NON_BLOCKING,
        };
        self.works(&make, context, &[], 0);
        id
    }

    /// Loads [`KERNELS`] as a module, and gets the function `name` with the same serial number; `asked` is the context
    /// of that query.
    pub fn function(&mut self, serial: u64, name: &str, context: u64, asked: u64) -> u64 {
        let (module, function) = (object_id::<Module>(serial), object_id::<Function>(serial));
        let load = request::cuModuleLoadDataEx {
            module,
            image: 0,
            options: Vec::new(),
            eager: false,
            log: true,
        };
        self.works(&load, context, KERNELS.as_bytes(), 0);
        let get = request::cuModuleGetFunction {
            function,
            hmod: module,
            name: name.to_owned(),
            info: true,
        };
        self.works(&get, asked, &[], 0);
        function
    }

    /// Waits for a stream.
    pub fn synchronize(&mut self, stream: u64, context: u64) -> CUresult {
        let wait = request::cuStreamSynchronize { hStream: stream };
        self.call(&wait, context, &[], 0).0
    }

    /// The number of turns of `busy` that take 20 ms.
    pub fn turns(&mut self, busy: u64, address: u64, stream: u64, context: u64) -> u32 {
        let mut turns = 1 << 10;
        loop {
            let begin = Instant::now();
            self.works(&launch(busy, stream, address, turns), context, &[], 0);
            assert_eq!(self.synchronize(stream, context), CUDA_SUCCESS);
            if begin.elapsed() > Duration::from_millis(20) || turns >= 1 << 28 {
                return turns;
            }
            turns *= 2;
        }
    }

    /// Ids and numbers for invalid operations: existing, former and invented ones.
    pub fn handles(&mut self) -> Vec<u64> {
        let context = self.context();
        let address = self.alloc(4096, context);
        let streams = [1, 2].map(object_id::<Stream>);
        let events = [1, 2].map(object_id::<Event>);
        for (stream, event) in streams.into_iter().zip(events) {
            let make = request::cuStreamCreate {
                phStream: stream,
                Flags: 1,
            };
            self.works(&make, context, &[], 0);
            let make = request::cuEventCreate {
                phEvent: event,
                Flags: 2,
            };
            self.works(&make, context, &[], 0);
        }
        let gone = request::cuStreamDestroy_v2 {
            hStream: streams[1],
        };
        self.works(&gone, context, &[], 0);
        let kinds = 0x10..0x80;
        let mut pool = vec![0, 1, 2, 8, 4096, address, address + 4095, context];
        pool.extend(streams.into_iter().chain(events));
        pool.extend(kinds.step_by(0x10).map(|kind| 999 << 8 | kind));
        pool.extend([1 << 31, 1 << 32, 1 << 47, 1 << 62, u64::MAX, u64::MAX - 7]);
        pool
    }

    /// Registers memory of the guest, at the same address in the client, and makes the worker serve a ring in it.
    pub fn share_ring(&mut self, at: u64, bytes: u64) {
        let address = (1 << 44) + at;
        let bytes = bytes.next_multiple_of(4096);
        self.guest
            .register(self.id, address, bytes, &[(at, bytes)])
            .expect("not registered");
        let setup = request::gpgpuRingSetup { address };
        self.works(&setup, 0, &[], 0);
        let again = self.call(&setup, 0, &[], 0).0;
        assert_eq!(again, CUDA_ERROR_INVALID_VALUE, "a client has one ring");
    }

    /// Makes the ring accept all operations that it can.
    pub fn widen_ring(&mut self) {
        self.works(&request::gpgpuRingWide {}, 0, &[], 0);
        // No answer is kept for a slot without a request, or for one that does not exist.
        for slot in [0, 63, 64, u32::MAX] {
            let fetch = request::gpgpuRingAnswer {
                slot,
                sequence: 0,
                answer: true,
            };
            let code = self.call(&fetch, 0, &[], 0).0;
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "slot {slot}");
        }
    }

    /// Blocks the legacy stream until [`Self::unblock`].
    pub fn block(&mut self, context: u64) -> u64 {
        let callback = 77;
        let wait = request::cuLaunchHostFunc {
            hStream: 0,
            callback,
        };
        self.works(&wait, context, &[], 0);
        // The callback runs now.
        let next = request::gpgpuNextCallback {
            callback: true,
            status: true,
        };
        assert_eq!(self.works(&next, context, &[], 0).0.callback, callback);
        callback
    }

    /// See [`Self::block`].
    pub fn unblock(&mut self, callback: u64) {
        self.guest.forget_buffers(self.mark);
        let done = command(&request::gpgpuCallbackDone { callback }, 0);
        let head = self.guest.post(self.id, &done, 16, &[], 0);
        let used = self.guest.wait(COMMAND_QUEUE, head);
        assert_eq!(used.head::<CommandAnswer>().status.get(), status::OK);
    }
}
