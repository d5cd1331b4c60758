//! A device process without its process: the real state machine ([`Vm`]), a guest's memory and rings, and a supervisor,
//! workers and movers at the other ends of its channels. An input says what each of them does next.
//!
//! The supervisor is trusted and keeps to its protocol, and so is the mover but for what it says in it; the guest and the workers
//! do what they like. Whatever they do, nothing may panic, loop or stay behind.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, CommandHeader, ControlHeader, EVENT_QUEUE, MAX_CLIENTS,
        NUM_QUEUES, Open, Register, Run, Unregister, VERSION, control, status,
    },
};
use nix::{
    poll::PollTimeout,
    sys::{
        memfd::{MFdFlags, memfd_create},
        socket::{MsgFlags, sendmsg},
    },
};
use vhost_device_gpgpu::{
    device::{queue::Restart, vm::Vm, watch::Watch},
    ipc::{
        self, ToWorker, WorkerEnd,
        mover::{FromMover, MoverEnd, ToMover},
    },
    supervisor::link::{DeviceEnd, SupervisorEnd, ToDevice, ToSupervisor},
};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_queue::QueueT;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryAtomic, GuestMemoryMmap, GuestRegionMmap,
    MmapRegion,
};
use zerocopy::{Immutable, IntoBytes};

use crate::input::Input;

/// Entries of each ring, and how far apart the rings lie.
const QUEUE_SIZE: u16 = 256;
const RING_BYTES: u64 = 0x4000;
const AVAIL: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Where requests are put, and the data of commands.
const HEAP: std::ops::Range<u64> = 0x1_0000..0x2_0000;
const DATA: u64 = 0x2_0000;
const DATA_PART: u64 = 0x1_0000;
const DATA_PARTS: u64 = 2;
/// The guest's memory: address, bytes, offset in its file. It is also what is asked for at its edges.
const REGIONS: [(u64, u64, u64); 3] = [
    (0, 0x4_0000, 0),
    (0x4_0000, 0x1_0000, 0x1000),
    (0x10_0000, 0x1_0000, 0),
];

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// More steps than this teach nothing that fewer do not.
const MAX_STEPS: usize = 256;

fn memory() -> &'static GuestMemoryMmap {
    static MEMORY: OnceLock<GuestMemoryMmap> = OnceLock::new();
    MEMORY.get_or_init(|| {
        let region = |&(address, bytes, offset): &(u64, u64, u64)| {
            let file = memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).expect("no memfd");
            let file = std::fs::File::from(file);
            file.set_len(offset + bytes).expect("no room");
            let at = FileOffset::new(file, offset);
            let map = MmapRegion::from_file(at, bytes as usize).expect("no mapping");
            GuestRegionMmap::new(map, GuestAddress(address)).expect("no region")
        };
        GuestMemoryMmap::from_regions(REGIONS.iter().map(region).collect()).expect("no memory")
    })
}

/// Notes which channels the device listens to.
#[derive(Clone, Default)]
struct Slots(Arc<Mutex<BTreeSet<usize>>>);

impl Watch for Slots {
    fn add(&self, _: BorrowedFd<'_>, slot: usize, _: bool) -> std::io::Result<()> {
        self.0.lock().expect("poisoned").insert(slot);
        Ok(())
    }

    fn remove(&self, _: BorrowedFd<'_>, slot: usize, _: bool) {
        self.0.lock().expect("poisoned").remove(&slot);
    }

    fn tick(&self, _: bool) {}
}

/// A worker as the harness plays it.
struct Worker {
    end: Option<WorkerEnd>,
    /// What it was sent and has not answered.
    seqs: Vec<u64>,
    exports: u64,
}

/// See [`Rig::before_reset`].
#[derive(Default)]
struct Leftover {
    /// Workers, by client.
    workers: BTreeSet<u32>,
    /// Moves that a mover was asked for: its GPU, and their numbers.
    moves: BTreeSet<(u32, u64)>,
    /// The rings' used indices at the reset.
    used: Option<[u16; NUM_QUEUES]>,
}

/// See the module's page.
pub struct Rig {
    vm: Vm,
    slots: Slots,
    supervisor: SupervisorEnd,
    rings: [VringRwLock; NUM_QUEUES],
    avail: [u16; NUM_QUEUES],
    descriptor: [u16; NUM_QUEUES],
    heap: u64,
    /// Clients whose workers were asked for.
    asked: Vec<u32>,
    /// Workers that were started, by client.
    workers: BTreeMap<u32, Worker>,
    movers_asked: BTreeSet<u32>,
    movers: HashMap<u32, (MoverEnd, Vec<u64>)>,
    /// What may still write to memory of before the last reset.
    before_reset: Leftover,
    now: Instant,
}

impl Rig {
    /// A device without clients.
    pub fn new() -> Self {
        let memory = memory();
        let zeros = [0; 0x1_0000];
        for at in (0..DATA).step_by(zeros.len()) {
            memory
                .write_slice(&zeros, GuestAddress(at))
                .expect("outside");
        }
        let memory = GuestMemoryAtomic::new(memory.clone());
        let (ours, theirs) = ipc::pair().expect("no sockets");
        let slots = Slots::default();
        let vm = Vm::new(
            memory.clone(),
            DeviceEnd::new(theirs),
            Box::new(slots.clone()),
        );
        let rings =
            std::array::from_fn(|_| VringRwLock::new(memory.clone(), QUEUE_SIZE).expect("no ring"));
        let mut rig = Self {
            vm,
            slots,
            supervisor: SupervisorEnd::new(ours),
            rings,
            avail: [0; NUM_QUEUES],
            descriptor: [0; NUM_QUEUES],
            heap: HEAP.start,
            asked: Vec::new(),
            workers: BTreeMap::new(),
            movers_asked: BTreeSet::new(),
            movers: HashMap::new(),
            before_reset: Leftover::default(),
            now: Instant::now(),
        };
        for queue in 0..NUM_QUEUES {
            let base = queue as u64 * RING_BYTES;
            let ring = &rig.rings[queue];
            ring.set_queue_size(QUEUE_SIZE);
            ring.set_queue_info(base, base + AVAIL, base + USED)
                .expect("no ring");
            rig.start(queue, 0);
        }
        rig
    }

    /// A device with a client that is served, has memory registered, and whose worker has passed device memory on to a mover.
    pub fn with_client() -> Self {
        let mut rig = Self::new();
        rig.open();
        rig.kick(CONTROL_QUEUE);
        rig.answer_supervisor(0);
        rig.worker_says(1, |end, _| end.ready(status::OK));
        rig.start_movers();
        let handle = memory_handle();
        rig.worker_says(1, |end, worker| {
            worker.exports = 1;
            end.export(1, 1 << 30, 0, handle)
        });
        rig.mover_says(0, |end, _| end.send(FromMover::Ready));
        rig
    }

    /// Does what an input says, to its end; then everything ends, in one of two orders.
    pub fn run(mut self, input: &mut Input<'_>) {
        let reset_last = input.len() % 2 == 1;
        for _ in 0..MAX_STEPS {
            if input.is_empty() {
                break;
            }
            self.step(input);
        }
        if reset_last {
            self.end_all();
        }
        self.finish();
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 24 {
            0 => self.open(),
            1 => self.close(input),
            2 => self.register(input),
            3 => self.unregister(input),
            4 => self.raw_request(input),
            5..=7 => self.command(input),
            8 => {
                let bytes = u32::from(input.u8());
                let at = self.place(&[]);
                self.chain(EVENT_QUEUE, &[(at, bytes, WRITE)], 0);
            }
            9 => self.raw_descriptor(input),
            10 => {
                let queue = usize::from(input.u8()) % NUM_QUEUES;
                self.avail[queue] = self.avail[queue].wrapping_add(input.u16());
                self.publish(queue);
            }
            11 => {
                let at = input.u32() as u64 % 0x5_0000;
                let length = input.u8();
                let bytes = input.bytes(length.into());
                let _ = memory().write_slice(bytes, GuestAddress(at));
            }
            12 => self.kick(usize::from(input.u8()) % NUM_QUEUES),
            13 => {
                let how = input.u8();
                self.answer_supervisor(how);
            }
            14 => self.worker_ends(input),
            15..=18 => self.worker_does(input),
            19 => {
                self.start_movers();
                self.mover_does(input);
            }
            20 => {
                self.now += Duration::from_secs(u64::from(input.u8()) * 4);
                let now = self.now;
                self.vm.tick(now);
            }
            21 => {
                let queue = usize::from(input.u8()) % NUM_QUEUES;
                self.stop(queue);
                if input.u8() & 1 == 0 {
                    let base = match input.u8() {
                        0 => 0,
                        1 => input.u16(),
                        _ => self.rings[queue].queue_next_avail(),
                    };
                    self.start(queue, base);
                }
            }
            22 => {
                let queue = usize::from(input.u8()) % NUM_QUEUES;
                let base = self.rings[queue].queue_next_avail();
                self.start(queue, base);
            }
            _ => self.reset(),
        }
        // What a VMM's kick would do, and what comes of it.
        self.settle();
    }

    fn settle(&mut self) {
        let mut more = self.vm.settle();
        for _ in 0..8 {
            if !more {
                break;
            }
            more = self.vm.resume();
        }
        while let Some(message) = self.supervisor.recv().expect("the device sent nonsense") {
            match message {
                ToSupervisor::StartWorker { client, .. } => {
                    assert!(!self.workers.contains_key(&client) && !self.asked.contains(&client));
                    self.asked.push(client);
                    assert!(self.asked.len() + self.workers.len() <= MAX_CLIENTS);
                }
                ToSupervisor::StartMover { gpu } => {
                    assert!(self.movers_asked.insert(gpu));
                }
                _ => {}
            }
        }
        self.check_reset();
    }

    fn kick(&mut self, queue: usize) {
        if self.vm.queues[queue].attach(&self.rings[queue]) == Restart::Reset {
            self.reset();
        }
        self.vm.process(queue);
        self.settle();
    }

    fn stop(&mut self, queue: usize) {
        self.rings[queue].set_queue_ready(false);
        self.vm.queues[queue].stop();
    }

    fn start(&mut self, queue: usize, base: u16) {
        let ring = &self.rings[queue];
        ring.set_queue_next_avail(base);
        ring.set_queue_ready(true);
        ring.set_enabled(true);
        if self.vm.queues[queue].attach(ring) == Restart::Reset {
            self.reset();
        }
    }

    /// The driver has reset the device. What runs at this moment may write to memory of before.
    fn reset(&mut self) {
        self.vm.reset();
        self.before_reset.workers.extend(self.workers.keys());
        for (&gpu, (_, seqs)) in &self.movers {
            let moves = seqs.iter().map(|&seq| (gpu, seq));
            self.before_reset.moves.extend(moves);
        }
        self.check_reset();
    }

    /// A reset is over once nothing of before it can write, and not earlier (GPGPU-DEV-8): until then it is not answered, and
    /// no chain is given back.
    fn check_reset(&mut self) {
        let Leftover {
            workers,
            moves,
            used,
        } = &mut self.before_reset;
        workers.retain(|client| self.workers.contains_key(client));
        moves.retain(|(gpu, seq)| {
            let mover = self.movers.get(gpu);
            mover.is_some_and(|(_, seqs)| seqs.contains(seq))
        });
        // The guest may overwrite what its rings say.
        let now: [u16; NUM_QUEUES] =
            std::array::from_fn(|queue| self.rings[queue].get_ref().get_queue().next_used());
        if workers.is_empty() && moves.is_empty() {
            *used = None;
            return;
        }
        assert!(
            self.vm.is_leaving(),
            "a reset is over while something may write"
        );
        assert_eq!(
            *used.get_or_insert(now),
            now,
            "a request is answered while something may write"
        );
    }

    /// Puts bytes where the guest puts its requests.
    fn place(&mut self, bytes: &[u8]) -> u64 {
        let room = (bytes.len() as u64).next_multiple_of(64).max(256);
        if self.heap + room > HEAP.end {
            self.heap = HEAP.start;
        }
        let at = self.heap;
        self.heap += room;
        memory()
            .write_slice(bytes, GuestAddress(at))
            .expect("outside");
        at
    }

    fn write<T: IntoBytes + Immutable>(&self, value: &T, at: u64) {
        let _ = memory().write_slice(value.as_bytes(), GuestAddress(at));
    }

    fn write_descriptor(&self, at: u64, (address, len, flags): (u64, u32, u16), next: u16) {
        self.write(&address, at);
        self.write(&len, at + 8);
        self.write(&flags, at + 12);
        self.write(&next, at + 14);
    }

    fn publish(&self, queue: usize) {
        let base = queue as u64 * RING_BYTES;
        self.write(&self.avail[queue], base + AVAIL + 2);
    }

    /// Makes a chain available; `how` may break it.
    fn chain(&mut self, queue: usize, parts: &[(u64, u32, u16)], how: u8) {
        let base = queue as u64 * RING_BYTES;
        let first = self.descriptor[queue];
        let indirect = how & 1 != 0;
        let table = if indirect { HEAP.end - 0x2000 } else { base };
        for (index, &(address, len, flags)) in parts.iter().enumerate() {
            let number = match indirect {
                true => index as u16,
                false => first.wrapping_add(index as u16) % QUEUE_SIZE,
            };
            let next = match (indirect, how & 2 != 0 && index + 1 == parts.len()) {
                // A loop.
                (true, true) => 0,
                (false, true) => first,
                _ => number.wrapping_add(1),
            };
            let more = index + 1 < parts.len() || how & 2 != 0;
            let flags = flags | if more { NEXT } else { 0 };
            let next = if indirect { next } else { next % QUEUE_SIZE };
            self.write_descriptor(table + u64::from(number) * 16, (address, len, flags), next);
        }
        let mut used = parts.len() as u16;
        if indirect {
            let len = parts.len() as u32 * 16;
            self.write_descriptor(base + u64::from(first) * 16, (table, len, INDIRECT), 0);
            used = 1;
        }
        self.descriptor[queue] = first.wrapping_add(used) % QUEUE_SIZE;
        let slot = u64::from(self.avail[queue] % QUEUE_SIZE);
        self.write(&first, base + AVAIL + 4 + slot * 2);
        self.avail[queue] = self.avail[queue].wrapping_add(1);
        self.publish(queue);
        if how & 4 == 0 {
            self.kick(queue);
        }
    }

    fn request(&mut self, bytes: &[u8], how: u8) {
        let at = self.place(bytes);
        let answer = self.place(&[]);
        let short = u32::from(how >> 4);
        let parts = [
            (at, bytes.len() as u32 - short.min(bytes.len() as u32), 0),
            (answer, if how & 8 == 0 { 8 } else { short }, WRITE),
        ];
        self.chain(CONTROL_QUEUE, &parts, how);
    }

    fn open(&mut self) {
        let open = Open {
            header: header(control::OPEN, 0),
            version: VERSION.into(),
            pid: 1.into(),
            api_digest: api::digest().into(),
            name: *b"fuzz\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        self.request(open.as_bytes(), 0);
    }

    fn close(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        self.request(header(control::CLOSE, client).as_bytes(), 0);
    }

    fn register(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let how = input.u8();
        let address = input.number() << 12;
        let count = usize::from(input.u8() % 16);
        let runs: Vec<Run> = (0..count)
            .map(|_| Run {
                address: (input.number() << 12).into(),
                length: (input.number() << 12).into(),
            })
            .collect();
        let length: u64 = match how & 1 {
            0 => runs
                .iter()
                .fold(0, |sum: u64, run| sum.wrapping_add(run.length.get())),
            _ => input.number() << 12,
        };
        let register = Register {
            header: header(control::REGISTER, client),
            address: address.into(),
            length: length.into(),
            runs: match how & 2 {
                0 => count as u32,
                _ => input.u32(),
            }
            .into(),
            reserved: 0.into(),
        };
        let bytes = [register.as_bytes(), runs.as_bytes()].concat();
        self.request(&bytes, how & !3);
    }

    fn unregister(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let unregister = Unregister {
            header: header(control::UNREGISTER, client),
            region: u32::from(input.u8()).into(),
            reserved: 0.into(),
        };
        self.request(unregister.as_bytes(), 0);
    }

    fn raw_request(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let length = input.u8();
        let bytes = input.bytes(length.into());
        self.request(bytes, how);
    }

    fn command(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let how = input.u8();
        let length = input.u8();
        let stream = input.bytes(length.into());
        let (answer, data_in, data_out) = (input.number(), input.number(), input.number());
        let offset = input.number();
        let head = CommandHeader {
            client: client.into(),
            thread: 1.into(),
            stream_bytes: match how & 8 {
                0 => stream.len() as u32,
                _ => input.u32(),
            }
            .into(),
            answer_bytes: (answer as u32).into(),
            in_bytes: data_in.into(),
            out_bytes: data_out.into(),
            data_offset: offset.into(),
        };
        let bytes = [head.as_bytes(), stream].concat();
        let mut parts = vec![(self.place(&bytes), bytes.len() as u32, 0)];
        data_parts(data_in, 0, &mut parts);
        // The answers of all commands lie over each other.
        parts.push((DATA, 8u32.saturating_add(answer.min(1 << 20) as u32), WRITE));
        data_parts(data_out, WRITE, &mut parts);
        if how & 16 != 0 {
            parts.pop();
        }
        if how & 32 != 0 {
            parts.reverse();
        }
        self.chain(COMMAND_QUEUE, &parts, how);
    }

    fn raw_descriptor(&mut self, input: &mut Input<'_>) {
        let queue = usize::from(input.u8()) % NUM_QUEUES;
        let index = u64::from(input.u8());
        let address = match input.number() {
            page @ 0..=255 => page << 10,
            other => other,
        };
        let (len, flags, next) = (input.number() as u32, input.u8().into(), input.u8().into());
        let at = queue as u64 * RING_BYTES + index * 16;
        self.write_descriptor(at, (address, len, flags), next);
    }

    /// A client: one that there is, mostly.
    fn client(&self, input: &mut Input<'_>) -> u32 {
        let choice = input.u8();
        let known = self.workers.keys().chain(&self.asked);
        match choice {
            255 => input.u32(),
            _ => known
                .copied()
                .nth(usize::from(choice))
                .unwrap_or(u32::from(choice)),
        }
    }

    /// The supervisor starts a worker that it was asked for, or cannot.
    fn answer_supervisor(&mut self, how: u8) {
        if self.asked.is_empty() {
            // Or what was asked for last is a mover, which there is not now.
            if how & 1 != 0
                && let Some(gpu) = self.movers_asked.pop_first()
            {
                self.vm.supervisor_says(ToDevice::MoverFailed { gpu });
            }
            return;
        }
        let client = self.asked.remove(usize::from(how >> 1) % self.asked.len());
        if how & 1 != 0 {
            let status = status::NO_RESOURCES;
            self.vm
                .supervisor_says(ToDevice::WorkerFailed { client, status });
            return;
        }
        let (ours, theirs) = ipc::pair().expect("no sockets");
        let worker = Worker {
            end: Some(WorkerEnd::new(ours)),
            seqs: Vec::new(),
            exports: 0,
        };
        self.workers.insert(client, worker);
        self.vm.supervisor_says(ToDevice::WorkerStarted {
            client,
            channel: theirs,
        });
        self.settle();
    }

    fn exit(&mut self, client: u32) {
        if self.workers.remove(&client).is_some() {
            self.vm.supervisor_says(ToDevice::WorkerExited {
                client,
                code: 0,
                signal: 9,
            });
            self.settle();
        }
    }

    fn worker_ends(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        if input.u8() & 1 == 0 {
            return self.exit(client);
        }
        // Its channel closes before the supervisor knows.
        if let Some(worker) = self.workers.get_mut(&client) {
            worker.end = None;
        }
        self.hear();
    }

    /// Lets the device listen to all channels on which something was said.
    fn hear(&mut self) {
        let slots: Vec<usize> = self
            .slots
            .0
            .lock()
            .expect("poisoned")
            .iter()
            .copied()
            .collect();
        for slot in slots {
            self.vm.worker_speaks(slot);
        }
        self.settle();
    }

    fn worker_says(
        &mut self,
        client: u32,
        say: impl FnOnce(&WorkerEnd, &mut Worker) -> ipc::Result<()>,
    ) {
        if let Some(worker) = self.workers.get_mut(&client)
            && let Some(end) = worker.end.take()
        {
            // The device may have closed the channel.
            let _ = say(&end, worker);
            worker.end = Some(end);
        }
        self.hear();
    }

    fn worker_does(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let what = input.u8();
        self.worker_says(client, |end, worker| {
            listen(end, worker);
            let mut seq = |worker: &mut Worker| match input.u8() {
                255 => input.u64(),
                _ if worker.seqs.is_empty() => input.u8().into(),
                choice => {
                    let index = usize::from(choice) % worker.seqs.len();
                    worker.seqs.swap_remove(index)
                }
            };
            match what % 9 {
                0 => end.ready(u32::from(input.u8() & 1) * status::NO_GPU),
                1 | 2 => {
                    let seq = seq(worker);
                    let status = u32::from(input.u8() % 10);
                    let (length, out) = (input.u8(), input.number());
                    end.answer(seq, status, input.bytes(length.into()), out)
                }
                3 => {
                    let seq = seq(worker);
                    end.done(seq, u32::from(input.u8() % 10))
                }
                4 => {
                    let number = match input.u8() & 1 {
                        0 => worker.exports.wrapping_add(1),
                        _ => input.number(),
                    };
                    worker.exports = number;
                    let gpu = input.u8() % 40;
                    end.export(number, input.number(), gpu.into(), memory_handle())
                }
                5 => end.unexport(input.number()),
                6 => {
                    let seq = seq(worker);
                    let place = (input.number(), input.number());
                    let carried_out = input.number() as u32;
                    let length = input.u8();
                    end.r#move(seq, place, carried_out, input.bytes(length.into()))
                }
                7 => {
                    let seq = seq(worker);
                    end.not_movable(seq, input.number() as u32)
                }
                _ => {
                    let fds = vec![memory_handle().as_raw_fd(); usize::from(input.u8() % 4)];
                    let length = input.u8();
                    send_raw(end.as_fd(), input.bytes(length.into()), &fds);
                    Ok(())
                }
            }
        });
    }

    fn start_movers(&mut self) {
        for gpu in std::mem::take(&mut self.movers_asked) {
            let (ours, theirs) = ipc::pair().expect("no sockets");
            self.movers.insert(gpu, (MoverEnd::new(ours), Vec::new()));
            self.vm.supervisor_says(ToDevice::MoverStarted {
                gpu,
                channel: theirs,
            });
        }
        self.settle();
    }

    fn mover_says(&mut self, gpu: u32, say: impl FnOnce(&MoverEnd, &mut Vec<u64>)) {
        if let Some((end, seqs)) = self.movers.get_mut(&gpu) {
            let mut buffer = Vec::new();
            while readable(end.as_fd()) {
                match end.recv(&mut buffer) {
                    Ok(ToMover::Move(what)) => seqs.push(what.seq),
                    Ok(_) => {}
                    Err(ipc::Error::Closed) => break,
                    Err(error) => panic!("a mover was sent nonsense: {error}"),
                }
            }
            say(end, seqs);
        }
        self.hear();
    }

    fn mover_does(&mut self, input: &mut Input<'_>) {
        let gpu = u32::from(input.u8() & 1);
        match input.u8() % 5 {
            0 => self.mover_says(gpu, |end, _| end.send(FromMover::Ready)),
            1 => {
                let choice = usize::from(input.u8());
                self.mover_says(gpu, |end, seqs| {
                    if !seqs.is_empty() {
                        let seq = seqs.swap_remove(choice % seqs.len());
                        let done = choice & 128 == 0;
                        end.send(FromMover::Moved { seq, done });
                    }
                });
            }
            2 => self.mover_says(gpu, |end, _| end.close()),
            3 => self.mover_says(gpu, |end, _| end.leave()),
            _ => self.mover_exits(gpu),
        }
    }

    fn mover_exits(&mut self, gpu: u32) {
        if self.movers.remove(&gpu).is_some() {
            self.vm.supervisor_says(ToDevice::MoverExited { gpu });
            self.settle();
        }
    }

    /// The rings run, and all end that a chain may wait for: what the device has taken it gives back.
    fn end_all(&mut self) {
        for queue in 0..NUM_QUEUES {
            let base = self.rings[queue].queue_next_avail();
            self.start(queue, base);
            self.kick(queue);
        }
        // Clients that wait for their turn get it, and then no worker.
        for _ in 0..16 {
            self.fail_asked();
            self.end_processes();
            self.now += Duration::from_secs(60);
            let now = self.now;
            self.vm.tick(now);
            self.settle();
        }
        for queue in &self.vm.queues {
            assert_eq!(queue.outstanding(), 0, "a driver waits for ever");
        }
    }

    fn fail_asked(&mut self) {
        for client in std::mem::take(&mut self.asked) {
            let status = status::NO_RESOURCES;
            self.vm
                .supervisor_says(ToDevice::WorkerFailed { client, status });
        }
    }

    fn end_processes(&mut self) {
        let clients: Vec<u32> = self.workers.keys().copied().collect();
        for client in clients {
            self.exit(client);
        }
        let gpus: Vec<u32> = self.movers.keys().copied().collect();
        for gpu in gpus {
            self.mover_exits(gpu);
        }
    }

    /// The driver resets the device, and all processes end: nothing stays behind.
    fn finish(mut self) {
        self.reset();
        self.settle();
        self.fail_asked();
        self.end_processes();
        assert!(
            !self.vm.is_leaving(),
            "something is waited for that cannot come"
        );
        assert!(
            self.slots.0.lock().expect("poisoned").is_empty(),
            "a channel is listened to for nobody"
        );
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

fn header(kind: u32, client: u32) -> ControlHeader {
    ControlHeader {
        kind: kind.into(),
        client: client.into(),
    }
}

/// Descriptors for so much data, which lies in the same pages again and again.
fn data_parts(bytes: u64, flags: u16, parts: &mut Vec<(u64, u32, u16)>) {
    let mut left = bytes;
    let mut number = 0;
    while left > 0 && number < 96 {
        let len = left.min(DATA_PART);
        parts.push((DATA + number % DATA_PARTS * DATA_PART, len as u32, flags));
        left -= len;
        number += 1;
    }
}

/// Takes what a worker was sent, all of which must be what a worker understands.
fn listen(end: &WorkerEnd, worker: &mut Worker) {
    while end.wait(PollTimeout::ZERO).is_ok_and(|there| there) {
        match end.recv() {
            Ok(Some(
                ToWorker::Command { seq, .. }
                | ToWorker::Map { seq, .. }
                | ToWorker::Unmap { seq, .. },
            )) => worker.seqs.push(seq),
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => panic!("a worker was sent nonsense: {error}"),
        }
    }
}

fn readable(socket: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, poll};
    poll(
        &mut [PollFd::new(socket, PollFlags::POLLIN)],
        PollTimeout::ZERO,
    )
    .is_ok_and(|ready| ready > 0)
}

/// A descriptor that stands for device memory.
fn memory_handle() -> BorrowedFd<'static> {
    static HANDLE: OnceLock<OwnedFd> = OnceLock::new();
    HANDLE
        .get_or_init(|| memfd_create(c"device", MFdFlags::MFD_CLOEXEC).expect("no memfd"))
        .as_fd()
}

/// Sends bytes and descriptors as one message, as no code of ours would.
pub fn send_raw(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[i32]) {
    use nix::sys::socket::ControlMessage;
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let iov = [std::io::IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let _ = sendmsg::<()>(socket.as_raw_fd(), &iov, rights, flags, None);
}
