// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A command's objects exist until the command ends. The tests run two threads of a guest at once, on
//! [`crate::cuda::double`].

use std::{
    num::NonZeroUsize,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use gpgpu_locks::MutexGuard;
use gpgpu_protocol::{
    api::{
        Array, BoxCopy, BoxEnd, Context, Event, Function, GraphExec, GraphStep, LaunchConfig,
        MemPool, Module, Physical, Request, Stream, object_id, request,
    },
    codec::{Blob, Writer},
    cuda::*,
    layout::{StreamCommand, status},
};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use zerocopy::IntoBytes;

use super::{
    arrays,
    device_memory::enter_stream,
    dispatch::Until,
    executables::Recorder,
    objects::Entry,
    session::{Data, Session},
};
use crate::cuda::double;
use crate::ipc::{MapRun, sealed_memfd};

/// The time for which the tests wait for an event that must not happen.
pub(super) const A_WHILE: Duration = Duration::from_millis(300);

/// A client with two contexts. Each has a stream and an event, and the first has a module with a function.
pub(super) struct Rig {
    pub session: &'static Session,
    pub contexts: [u64; 2],
    pub streams: [u64; 2],
    pub events: [u64; 2],
    pub module: u64,
    pub function: u64,
    /// The driver belongs to the whole process.
    _alone: MutexGuard<'static, ()>,
}

impl Rig {
    pub fn new() -> Self {
        let session: &'static Session = Box::leak(Box::new(Session::new(None)));
        let rig = Self {
            session,
            contexts: [1, 2].map(object_id::<Context>),
            streams: [1, 2].map(object_id::<Stream>),
            events: [1, 2].map(object_id::<Event>),
            module: object_id::<Module>(1),
            function: object_id::<Function>(1),
            _alone: double::alone(),
        };
        for index in 0..2 {
            let (pctx, phStream, phEvent) =
                (rig.contexts[index], rig.streams[index], rig.events[index]);
            let (flags, dev) = (0, 0);
            rig.works(request::cuCtxCreate_v2 { pctx, flags, dev }, 0);
            rig.works(request::cuStreamCreate { phStream, Flags: 0 }, pctx);
            rig.works(request::cuEventCreate { phEvent, Flags: 0 }, pctx);
        }
        let module = double::make();
        let objects = &session.objects;
        objects.insert(rig.module, Entry::new(module, rig.contexts[0]));
        let function = Entry {
            parent: rig.module,
            ..Entry::new(module, rig.contexts[0])
        };
        objects.insert(rig.function, function);
        rig
    }

    pub fn works<R: Request>(&self, request: R, context: u64) {
        assert_eq!(run(self.session, request, context), CUDA_SUCCESS);
    }

    /// A command of another thread of the guest.
    fn begin<R: Request + Send + 'static>(&self, request: R, context: u64) -> JoinHandle<CUresult> {
        let session = self.session;
        thread::spawn(move || run(session, request, context))
    }

    pub fn launch(&self) -> request::cuLaunchKernelEx {
        let config = LaunchConfig {
            grid_x: 1,
            grid_y: 1,
            grid_z: 1,
            block_x: 1,
            block_y: 1,
            block_z: 1,
            shared_bytes: 0,
            stream: self.streams[0],
            attributes: Vec::new(),
        };
        request::cuLaunchKernelEx {
            func: self.function,
            config,
            params: Blob(Vec::new()),
        }
    }

    /// The steps of a graph of each kind.
    pub fn steps(&self) -> Vec<GraphStep> {
        let (dst, src) = (self.alloc(), self.alloc());
        let of = |kind, object, numbers: &[u64]| GraphStep {
            kind,
            context: self.contexts[0],
            object,
            numbers: numbers.to_vec(),
            enabled: true,
            ..GraphStep::default()
        };
        let launch = GraphStep {
            launch: LaunchConfig {
                stream: 0,
                ..self.launch().config
            },
            ..of(0, self.function, &[])
        };
        let copy = of(1, 0, &[dst, src, 64, 64, 1, 1, 64, 1, 1]);
        let fill = of(2, 0, &[dst, 64, 7, 1, 64, 1]);
        let (record, wait) = (of(5, self.events[0], &[]), of(6, self.events[0], &[]));
        let steps = [
            launch,
            copy,
            fill,
            of(3, 99, &[]),
            of(4, 0, &[]),
            record,
            wait,
            of(
                8,
                0,
                &[0, CU_STREAM_MEM_OP_WRITE_VALUE_32.into(), 0, dst, 7],
            ),
            of(13, 0, &self.boxed(dst, self.array()).numbers()),
        ];
        let behind = |(at, step)| GraphStep {
            after: (at > 0).then(|| at as u32 - 1).into_iter().collect(),
            ..step
        };
        steps.into_iter().enumerate().map(behind).collect()
    }

    /// A copy of a row from an array to memory.
    pub fn boxed(&self, dst: u64, array: u64) -> BoxCopy {
        BoxCopy {
            dst: BoxEnd {
                address: dst,
                pitch: 64,
                rows: 1,
                ..BoxEnd::default()
            },
            src: BoxEnd {
                array,
                ..BoxEnd::default()
            },
            width: 64,
            height: 1,
            depth: 1,
        }
    }

    /// A new executable graph.
    pub fn executable(&self) -> u64 {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let id = object_id::<GraphExec>(SERIAL.fetch_add(1, Relaxed));
        let steps = self.steps();
        let made = self.session.executables.make(self.session, id, &steps, 0);
        assert_eq!(made, Ok(()));
        id
    }

    /// An array of the first context.
    pub fn array(&self) -> u64 {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let id = object_id::<Array>(SERIAL.fetch_add(1, Relaxed));
        self.session.enter(self.contexts[0]).unwrap();
        let begun = self.session.begin::<Array>(id).unwrap();
        arrays::keep(self.session, begun, double::make(), 0, None);
        id
    }

    fn record(&self) -> request::cuEventRecord {
        request::cuEventRecord {
            hEvent: self.events[0],
            hStream: self.streams[0],
        }
    }

    /// Memory of the guest, registered.
    pub fn register(&self, number: u32, address: u64) {
        let file = Arc::new(OwnedFd::from(sealed_memfd(c"test", BYTES).unwrap()));
        let run = MapRun {
            file,
            offset: 0,
            length: BYTES,
        };
        let mapped = self.session.regions.map(number, address, BYTES, &[run]);
        assert_eq!(mapped, status::OK);
        let bytes = BYTES as usize;
        let register = request::cuMemHostRegister_v2 {
            address,
            bytes,
            flags: 0,
            device: true,
        };
        self.works(register, self.contexts[0]);
    }

    fn copy(&self, dst: u64, src: u64) -> request::cuMemcpyAsync {
        request::cuMemcpyAsync {
            dst,
            src,
            ByteCount: BYTES as usize,
            hStream: self.streams[0],
        }
    }

    /// Device memory of the driver's own.
    pub fn alloc(&self) -> u64 {
        self.alloc_in(self.contexts[0])
    }

    /// Memory of a context.
    pub fn alloc_in(&self, context: u64) -> u64 {
        self.works(request::cuStreamQuery { hStream: 0 }, context);
        self.session.device_memory.allocate(context, BYTES).unwrap()
    }
}

const BYTES: u64 = 0x10000;
const HERE: u64 = 0x1234_5670_0000;
const THERE: u64 = 0x1234_5680_0000;

pub(super) fn run<R: Request>(session: &Session, request: R, context: u64) -> CUresult {
    let mut writer = Writer::new();
    writer.put(&request);
    let arguments = writer.into_bytes();
    let head = StreamCommand {
        bytes: ((size_of::<StreamCommand>() + arguments.len()) as u32).into(),
        op: R::OP.into(),
        reserved: 0.into(),
        context: context.into(),
    };
    let stream = [head.as_bytes(), &arguments].concat();
    let wait = |_, until: &Until, _| until.wait(session).map(|()| 0);
    let (answer, _) = super::execute(session, &stream, Data::none(), wait).unwrap();
    answer.result
}

/// Maps memory of the worker at an address of the guest, if that is free, and returns its first byte.
fn fill_hole(at: u64) -> Option<*mut u8> {
    let (wish, bytes) = (
        NonZeroUsize::new(at as usize),
        NonZeroUsize::new(BYTES as usize)?,
    );
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is replaced.
    let mapped = unsafe { mmap_anonymous(wish, bytes, protection, flags) };
    mapped.ok().map(|mapped| mapped.as_ptr().cast())
}

fn unmap(at: u64) {
    // SAFETY: the tests map so much there.
    unsafe { munmap(NonNull::new(at as *mut _).unwrap(), BYTES as usize).unwrap() };
}

/// Waits until a condition holds that another thread causes.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::yield_now();
    }
}

#[test]
fn a_stream_and_an_event_that_a_call_uses_are_destroyed_after_it() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    // A record into a full stream blocks inside the driver, like a wait for the stream.
    type Begin = fn(&Rig) -> JoinHandle<CUresult>;
    let waits: [(&str, Begin); 3] = [
        ("cuEventRecord", |rig| {
            rig.begin(rig.record(), rig.contexts[0])
        }),
        ("cuStreamSynchronize", |rig| {
            let hStream = rig.streams[1];
            rig.begin(request::cuStreamSynchronize { hStream }, rig.contexts[0])
        }),
        ("cuEventSynchronize", |rig| {
            let hEvent = rig.events[1];
            rig.begin(request::cuEventSynchronize { hEvent }, rig.contexts[0])
        }),
    ];
    let held = waits.map(|(name, begin)| {
        let held = double::hold(name);
        let thread = begin(&rig);
        held.wait();
        (held, thread)
    });
    // The guest does not wait for the destruction.
    for (hStream, hEvent) in rig.streams.into_iter().zip(rig.events) {
        rig.works(request::cuStreamDestroy_v2 { hStream }, context);
        rig.works(request::cuEventDestroy_v2 { hEvent }, context);
        let query = request::cuStreamQuery { hStream };
        assert_eq!(run(rig.session, query, context), CUDA_ERROR_INVALID_HANDLE);
        let twice = request::cuEventDestroy_v2 { hEvent };
        assert_eq!(run(rig.session, twice, context), CUDA_ERROR_INVALID_HANDLE);
    }
    assert!(!double::is_called("cuStreamDestroy_v2", A_WHILE));
    assert!(!double::is_called("cuEventDestroy_v2", Duration::ZERO));
    for (held, thread) in held {
        drop(held);
        assert_eq!(thread.join().unwrap(), CUDA_SUCCESS);
    }
    until(|| double::calls("cuStreamDestroy_v2") == 2 && double::calls("cuEventDestroy_v2") == 2);
    // Their ids are free once they have ended.
    let again = |phStream| {
        run(
            rig.session,
            request::cuStreamCreate { phStream, Flags: 0 },
            context,
        )
    };
    until(|| again(rig.streams[0]) == CUDA_SUCCESS);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn objects_that_no_other_thread_can_use_are_destroyed_at_once() {
    let rig = Rig::new();
    let [context, other] = rig.contexts;
    // A wait for another object or for a callback does not delay it.
    let held = double::hold("cuStreamSynchronize");
    let hStream = rig.streams[1];
    let waits = rig.begin(request::cuStreamSynchronize { hStream }, other);
    let next = request::gpgpuNextCallback {
        callback: true,
        status: true,
    };
    let next = rig.begin(next, context);
    held.wait();
    let hStream = rig.streams[0];
    rig.works(request::cuStreamDestroy_v2 { hStream }, context);
    assert_eq!(double::calls("cuStreamDestroy_v2"), 1);
    rig.works(request::cuModuleUnload { hmod: rig.module }, context);
    assert_eq!(double::calls("cuModuleUnload"), 1);
    rig.works(request::cuCtxDestroy_v2 { ctx: context }, other);
    assert_eq!(double::calls("cuCtxDestroy_v2"), 1);
    drop(held);
    assert_eq!(waits.join().unwrap(), CUDA_SUCCESS);
    thread::spawn({
        let session = rig.session;
        move || session.callbacks.run(7, 0, CUDA_SUCCESS)
    });
    assert_eq!(next.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_module_is_unloaded_after_the_launch_that_has_found_its_function() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    let held = double::hold("cuLaunchKernel");
    let launch = rig.begin(rig.launch(), context);
    held.wait();
    let unload = rig.begin(request::cuModuleUnload { hmod: rig.module }, context);
    assert!(!double::is_called("cuModuleUnload", A_WHILE));
    // No new command begins to use it in the meantime.
    assert_eq!(
        run(rig.session, rig.launch(), context),
        CUDA_ERROR_INVALID_HANDLE
    );
    drop(held);
    assert_eq!(launch.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(unload.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(double::calls("cuModuleUnload"), 1);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn pitfall_63_two_creations_under_one_id_make_one_object() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    let phStream = object_id::<Stream>(1 << 40);
    let create = || request::cuStreamCreate { phStream, Flags: 0 };
    let before = double::calls("cuStreamCreate");
    let held = double::hold("cuStreamCreate");
    let first = rig.begin(create(), context);
    held.wait();
    let second = rig.begin(create(), context);
    // It is refused while the first is in progress; otherwise the driver would make both.
    until(|| second.is_finished() || double::calls("cuStreamCreate") == before + 2);
    drop(held);
    assert_eq!(first.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(second.join().unwrap(), CUDA_ERROR_INVALID_VALUE);
    let hStream = phStream;
    rig.works(request::cuStreamDestroy_v2 { hStream }, context);
    assert_eq!(double::calls("cuStreamDestroy_v2"), 1);
    rig.works(create(), context);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn a_context_is_destroyed_after_the_calls_that_use_its_objects() {
    let rig = Rig::new();
    let [context, other] = rig.contexts;
    let sync = double::hold("cuCtxSynchronize");
    let record = double::hold("cuEventRecord");
    let waits = rig.begin(request::cuCtxSynchronize {}, context);
    // With another context as the current one.
    let records = rig.begin(rig.record(), other);
    sync.wait();
    record.wait();
    let destroy = rig.begin(request::cuCtxDestroy_v2 { ctx: context }, other);
    assert!(!double::is_called("cuCtxDestroy_v2", A_WHILE));
    let twice = request::cuCtxDestroy_v2 { ctx: context };
    assert_eq!(
        run(rig.session, twice, other),
        CUDA_ERROR_INVALID_CONTEXT,
        "it ends already"
    );
    let hStream = rig.streams[0];
    let query = request::cuStreamQuery { hStream };
    assert_eq!(run(rig.session, query, other), CUDA_ERROR_INVALID_HANDLE);
    drop(sync);
    assert_eq!(waits.join().unwrap(), CUDA_SUCCESS);
    assert!(!double::is_called("cuCtxDestroy_v2", A_WHILE));
    drop(record);
    assert_eq!(records.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(destroy.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(double::calls("cuCtxDestroy_v2"), 1);
    assert_eq!(double::wrong(), [""; 0]);
}

/// The driver refuses to wait for a context in which a stream is being captured, and invalidates the capture.
#[test]
fn no_context_is_waited_for_while_a_call_is_recorded() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    rig.session.enter(context).unwrap();
    let recorder = Recorder::new().unwrap();
    recorder.begin().unwrap();
    let waits = rig.begin(request::cuCtxSynchronize {}, context);
    assert!(!double::is_called("cuCtxSynchronize", A_WHILE));
    recorder.stop();
    assert_eq!(waits.join().unwrap(), CUDA_SUCCESS);
    assert!(double::is_called("cuCtxSynchronize", Duration::ZERO));
}

#[test]
fn a_stream_with_a_pending_destruction_ends_with_its_context() {
    let rig = Rig::new();
    let [context, other] = rig.contexts;
    let held = double::hold("cuEventRecord");
    let records = rig.begin(rig.record(), context);
    held.wait();
    let hStream = rig.streams[0];
    rig.works(request::cuStreamDestroy_v2 { hStream }, context);
    let destroy = rig.begin(request::cuCtxDestroy_v2 { ctx: context }, other);
    until(|| rig.session.objects.raw::<Context>(context).is_err());
    drop(held);
    assert_eq!(records.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(destroy.join().unwrap(), CUDA_SUCCESS);
    assert!(double::calls("cuStreamDestroy_v2") <= 1);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn memory_of_the_guest_is_not_unmapped_under_a_copy_that_has_found_it() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    rig.register(1, HERE);
    rig.register(2, THERE);
    // SAFETY: it was just mapped.
    unsafe { (THERE as *mut u8).write_bytes(0xee, BYTES as usize) };
    // Between the check of the addresses and their use.
    let held = double::hold("cuMemcpyAsync");
    let copy = rig.begin(rig.copy(HERE, THERE), context);
    held.wait();
    let session = rig.session;
    let unmapped = thread::spawn(move || session.regions.unmap(session, 1));
    until(|| !session.regions.holds(HERE, 1));
    // Mappings of the worker could get the addresses of the guest's memory.
    thread::sleep(A_WHILE);
    let early = fill_hole(HERE);
    assert!(!unmapped.is_finished(), "the guest has its memory back");
    let again = run(session, rig.copy(HERE, THERE), context);
    assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
    drop(held);
    assert_eq!(copy.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(unmapped.join().unwrap(), status::OK);
    let hole = early.or_else(|| fill_hole(HERE)).unwrap();
    // SAFETY: it was just mapped.
    let byte = unsafe { hole.read_volatile() };
    assert_eq!(byte, 0, "the guest's bytes are in the worker's own memory");
    unmap(HERE);
    assert_eq!(session.regions.unmap(session, 2), status::OK);
    assert_eq!(double::calls("cuMemHostUnregister"), 2);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn memory_is_unregistered_after_the_copy_that_has_found_it_and_other_memory_at_once() {
    let rig = Rig::new();
    let [context, other] = rig.contexts;
    rig.register(1, HERE);
    rig.register(2, THERE);
    let held = double::hold("cuMemsetD8_v2");
    let fill = request::cuMemsetD8_v2 {
        dstDevice: HERE,
        uc: 7,
        N: 64,
    };
    let fill = rig.begin(fill, context);
    held.wait();
    // A launch that waits for room delays no memory.
    let launches = double::hold("cuLaunchKernel");
    let launch = rig.begin(rig.launch(), context);
    launches.wait();
    rig.works(request::cuMemHostUnregister { address: THERE }, other);
    assert_eq!(double::calls("cuMemHostUnregister"), 1);
    assert_eq!(rig.session.regions.unmap(rig.session, 2), status::OK);
    let unregister = rig.begin(request::cuMemHostUnregister { address: HERE }, other);
    thread::sleep(A_WHILE);
    assert_eq!(double::calls("cuMemHostUnregister"), 1);
    drop(held);
    assert_eq!(fill.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(unregister.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(rig.session.regions.unmap(rig.session, 1), status::OK);
    drop(launches);
    assert_eq!(launch.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn memory_of_the_drivers_own_is_freed_after_the_copy_that_has_found_it() {
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    for is_posted in [false, true] {
        let before = double::calls("cuMemFree_v2");
        let (dst, src) = (rig.alloc(), rig.alloc());
        let held = double::hold("cuMemcpyAsync");
        let copy = rig.begin(rig.copy(dst, src), context);
        held.wait();
        let free = match is_posted {
            true => rig.begin(request::gpgpuFreeIdle { dptr: dst }, context),
            false => rig.begin(request::cuMemFree_v2 { dptr: dst }, context),
        };
        thread::sleep(A_WHILE);
        assert_eq!(double::calls("cuMemFree_v2"), before);
        // The driver still knows it, but it has no owner any more.
        let again = run(rig.session, rig.copy(dst, src), context);
        assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
        let twice = run(rig.session, request::cuMemFree_v2 { dptr: dst }, context);
        assert_eq!(twice, CUDA_ERROR_INVALID_VALUE);
        rig.works(request::gpgpuFreeIdle { dptr: src }, context);
        assert_eq!(double::calls("cuMemFree_v2"), before);
        drop(held);
        assert_eq!(copy.join().unwrap(), CUDA_SUCCESS);
        assert_eq!(free.join().unwrap(), CUDA_SUCCESS);
        until(|| double::calls("cuMemFree_v2") == before + 2);
    }
    assert_eq!(double::wrong(), [""; 0]);
}

/// Memory that was freed in stream order is reused by requests for at most its units.
#[test]
fn memory_of_the_drivers_own_that_a_stream_hands_on_has_whole_units() {
    let rig = Rig::new();
    let (memory, pool) = (&rig.session.device_memory, object_id::<MemPool>(1));
    memory.create_mempool(pool, 0, 0).unwrap();
    let (key, raw) = enter_stream(rig.session, rig.streams[0]).unwrap();
    let first = memory.allocate_ordered(key, pool, 1000).unwrap();
    memory.free_ordered(key, raw, first).unwrap();
    let second = memory.allocate_ordered(key, pool, 1020).unwrap();
    assert_eq!(second, first);
    assert!(double::bytes_at(second).unwrap() >= 1020);
}

#[test]
fn memory_is_unmapped_after_the_fill_that_has_found_it_and_released_after_both() {
    const PIECE: usize = 2 << 20;
    let rig = Rig::new();
    let [context, _] = rig.contexts;
    let memory = rig.session.device_memory;
    let [ptr, other] = [0; 2].map(|wish| memory.reserve_addresses(PIECE as u64, 0, wish).unwrap());
    let (handle, size) = (object_id::<Physical>(1), PIECE);
    rig.works(
        request::cuMemCreate {
            handle,
            size,
            dev: 0,
        },
        0,
    );
    for ptr in [ptr, other] {
        let map = request::cuMemMap {
            ptr,
            size,
            offset: 0,
            handle,
            dev: true,
        };
        rig.works(map, 0);
        let access = request::cuMemSetAccess {
            ptr,
            size,
            dev: 0,
            flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        rig.works(access, 0);
    }
    let fill = || request::cuMemsetD8_v2 {
        dstDevice: ptr,
        uc: 1,
        N: PIECE,
    };
    let unmaps = || double::calls("cuMemUnmap");
    let held = double::hold("cuMemsetD8_v2");
    let first = rig.begin(fill(), context);
    held.wait();
    let unmap = rig.begin(request::cuMemUnmap { ptr, size }, 0);
    until(|| memory.access(ptr, 0).is_err());
    assert_eq!(run(rig.session, fill(), context), CUDA_ERROR_INVALID_VALUE);
    // Other memory is not delayed, and the handle ends with its last mapping.
    rig.works(request::cuMemRelease { handle }, 0);
    rig.works(request::cuMemUnmap { ptr: other, size }, 0);
    thread::sleep(A_WHILE);
    assert_eq!((unmaps(), double::calls("cuMemRelease")), (1, 0));
    let free = || request::cuMemAddressFree { ptr, size };
    assert_eq!(run(rig.session, free(), 0), CUDA_ERROR_INVALID_VALUE);
    let twice = request::cuMemUnmap { ptr, size };
    assert_eq!(run(rig.session, twice, 0), CUDA_ERROR_INVALID_VALUE);
    drop(held);
    assert_eq!(first.join().unwrap(), CUDA_SUCCESS);
    assert_eq!(unmap.join().unwrap(), CUDA_SUCCESS);
    assert_eq!((unmaps(), double::calls("cuMemRelease")), (2, 1));
    rig.works(free(), 0);
    // The addresses remain reserved. The driver is not asked about memory that no longer exists.
    let fills = double::calls("cuMemsetD8_v2");
    assert_eq!(run(rig.session, fill(), context), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(double::calls("cuMemsetD8_v2"), fills);
    assert_eq!(double::wrong(), [""; 0]);
}

#[test]
fn absent_memory_is_opened_to_no_device() {
    let rig = Rig::new();
    let reach = |dptr, dev| {
        let reaches = true;
        let question = request::gpgpuMemoryReach { dptr, dev, reaches };
        run(rig.session, question, rig.contexts[0])
    };
    let before = double::calls("cuMemSetAccess");
    for (dptr, dev) in [(0, 0), (1 << 20, 1), (u64::MAX, 0), (0, -1)] {
        assert_eq!(reach(dptr, dev), CUDA_ERROR_INVALID_VALUE, "{dptr:#x}");
    }
    assert_eq!(double::calls("cuMemSetAccess"), before);
}
