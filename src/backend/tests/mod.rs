// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The state machine without a VMM: the test provides rings in memory, a supervisor, workers and movers.

use std::{
    collections::BTreeSet,
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, CommandAnswer, CommandHeader, ControlAnswer, ControlHeader,
        MAX_CLIENTS, MAX_RUNS, NUM_QUEUES, Open, Register, Run, VERSION, control, status,
    },
};
use nix::sys::{
    socket::{setsockopt, sockopt::ReceiveTimeout},
    time::{TimeVal, TimeValLike},
};
use vhost_user_backend::VringT;
use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use virtio_queue::QueueT as _;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap,
    GuestRegionMmap, MmapRegion,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::{
    client::MOVER_BYTES,
    control::{LEAST_REGISTERED, MAX_RUNS_UNDER_WAY},
    lost_pages,
    queue::{Memory, Queue},
    ring::{Ring, UNALIGNED},
    vm::Vm,
    watch::Watch,
};
use crate::ipc::{
    self, ToWorker, WorkerEnd,
    device::{DeviceEnd, SupervisorEnd, ToDevice, ToSupervisor},
    mover::{FromMover, MOVE_LIMIT, MoverEnd, ToMover},
};

/// The size of each ring: its descriptors, then the available ring, then the used ring.
const RING_BYTES: u64 = 0x5000;
const AVAIL: u64 = 0x2000;
const USED: u64 = 0x3000;
const ENTRIES: u16 = 512;
/// The guest address of requests and answers, one after the other.
const HEAP: u64 = NUM_QUEUES as u64 * RING_BYTES;
const GUEST_BYTES: u64 = 0x10_0000;

/// A file that stands for memory of a guest or of a GPU.
fn file(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// A guest's memory, in a file as a mover needs it.
fn guest_memory() -> Memory {
    let at = FileOffset::new(file(GUEST_BYTES), 0);
    let map = MmapRegion::from_file(at, GUEST_BYTES as usize).unwrap();
    let region = GuestRegionMmap::new(map, GuestAddress(0)).unwrap();
    GuestMemoryAtomic::new(GuestMemoryMmap::from_regions(vec![region]).unwrap())
}

/// The ring of a queue, set up and running.
fn ring(memory: &Memory, queue: usize) -> Ring {
    let ring = Ring::new(memory.clone(), ENTRIES).unwrap();
    let base = queue as u64 * RING_BYTES;
    ring.set_queue_info(base, base + AVAIL, base + USED)
        .unwrap();
    ring.set_queue_size(ENTRIES);
    ring.set_queue_ready(true);
    ring.set_enabled(true);
    ring
}

/// The device's requests to the event loop.
#[derive(Default)]
struct Asked {
    clock: bool,
    slots: BTreeSet<usize>,
}

impl Watch for Arc<Mutex<Asked>> {
    fn add(&self, _: BorrowedFd<'_>, slot: usize, _: bool) -> std::io::Result<()> {
        self.lock().slots.insert(slot);
        Ok(())
    }

    fn remove(&self, _: BorrowedFd<'_>, slot: usize) {
        self.lock().slots.remove(&slot);
    }

    fn tick(&self, wanted: bool) {
        self.lock().clock = wanted;
    }

    fn again(&self) {}
}

/// A device and all its peers.
struct Rig {
    memory: Memory,
    rings: [Ring; NUM_QUEUES],
    vm: Vm,
    supervisor: SupervisorEnd,
    asked: Arc<Mutex<Asked>>,
    made_available: [u16; NUM_QUEUES],
    descriptors: [u16; NUM_QUEUES],
    heap: u64,
    _loses_no_page: lost_pages::tests::Device,
}

impl Rig {
    fn new() -> Self {
        let loses_no_page = lost_pages::tests::Device::new();
        let memory = guest_memory();
        let (ours, theirs) = ipc::pair().unwrap();
        let asked = Arc::<Mutex<Asked>>::default();
        let watch = Box::new(Arc::clone(&asked));
        let mut vm = Vm::new(memory.clone(), DeviceEnd::new(theirs), watch);
        let rings = std::array::from_fn(|queue| ring(&memory, queue));
        for (state, ring) in vm.queues.iter_mut().zip(&rings) {
            state.attach(ring);
        }
        Self {
            memory,
            rings,
            vm,
            supervisor: SupervisorEnd::new(ours),
            asked,
            made_available: [0; NUM_QUEUES],
            descriptors: [0; NUM_QUEUES],
            heap: HEAP,
            _loses_no_page: loses_no_page,
        }
    }

    fn write(&self, value: &(impl IntoBytes + Immutable + ?Sized), at: u64) {
        let memory = self.memory.memory();
        memory
            .write_slice(value.as_bytes(), GuestAddress(at))
            .unwrap();
    }

    fn read<T: FromBytes + IntoBytes + KnownLayout>(&self, at: u64) -> T {
        let mut value = T::new_zeroed();
        let memory = self.memory.memory();
        memory
            .read_slice(value.as_mut_bytes(), GuestAddress(at))
            .unwrap();
        value
    }

    /// Makes a chain available: the header, `more` readable bytes, and room for an answer and `more` writable bytes.
    /// Returns the address of the answer.
    fn send(
        &mut self,
        queue: usize,
        head: &(impl IntoBytes + Immutable + ?Sized),
        more: u64,
    ) -> u64 {
        let base = queue as u64 * RING_BYTES;
        let request = self.heap;
        let answer = request + head.as_bytes().len() as u64 + more;
        let room = 8;
        self.heap = answer + room;
        self.write(head, request);
        let first = self.descriptors[queue];
        let parts = [
            (request, answer - request, VRING_DESC_F_NEXT),
            (answer, room, VRING_DESC_F_WRITE),
        ];
        for (number, (address, bytes, flags)) in (first..).zip(parts) {
            let at = base + u64::from(number) * 16;
            self.write(&address, at);
            self.write(&(bytes as u32), at + 8);
            self.write(&(flags as u16), at + 12);
            self.write(&(number + 1), at + 14);
        }
        self.descriptors[queue] += parts.len() as u16;
        let entry = u64::from(self.made_available[queue]);
        self.write(&first, base + AVAIL + 4 + entry * 2);
        self.make_available(queue, 1);
        answer
    }

    /// Makes this many more entries of the ring available, whatever their content, and kicks.
    fn make_available(&mut self, queue: usize, entries: u16) {
        self.made_available[queue] += entries;
        let base = queue as u64 * RING_BYTES;
        self.write(&self.made_available[queue], base + AVAIL + 2);
        self.vm.process(queue);
    }

    /// The number of returned chains of a queue.
    fn used(&self, queue: usize) -> u16 {
        self.read(queue as u64 * RING_BYTES + USED + 2)
    }

    /// The status of a request's answer.
    fn status(&self, answer: u64) -> u32 {
        self.read::<ControlAnswer>(answer).status.get()
    }

    fn open(&mut self) -> u64 {
        let open = Open {
            header: header(control::OPEN, 0),
            version: VERSION.into(),
            pid: 1.into(),
            api_family: api::issued::FAMILY.into(),
            name: [b'x'; 16],
        };
        self.send(CONTROL_QUEUE, &open, 0)
    }

    /// A served client, and its worker's end of the channel.
    fn served(&mut self) -> (u32, WorkerEnd) {
        let answer = self.open();
        let (client, worker) = self.start_worker();
        worker.ready(status::OK).unwrap();
        self.hear();
        assert_eq!(self.status(answer), status::OK);
        assert!(matches!(worker.recv(), Ok(Some(ToWorker::Setup { .. }))));
        (client, worker)
    }

    /// Starts the requested worker.
    fn start_worker(&mut self) -> (u32, WorkerEnd) {
        let Some(ToSupervisor::StartWorker { client, .. }) = self.next() else {
            panic!("no worker was asked for");
        };
        let (ours, channel) = ipc::pair().unwrap();
        let worker = WorkerEnd::new(ours);
        self.vm
            .supervisor_says(ToDevice::WorkerStarted { client, channel });
        (client, worker)
    }

    fn worker_exits(&mut self, client: u32) {
        self.vm.supervisor_says(ToDevice::WorkerExited {
            client,
            code: 0,
            signal: 9,
        });
    }

    /// The next request to the supervisor.
    fn next(&self) -> Option<ToSupervisor> {
        self.supervisor.recv().unwrap()
    }

    /// Lets the device receive the messages on its channels.
    fn hear(&mut self) {
        let slots = self.asked.lock().slots.clone();
        for slot in slots {
            self.vm.worker_speaks(slot);
        }
    }
}

fn header(kind: u32, client: u32) -> ControlHeader {
    ControlHeader {
        kind: kind.into(),
        client: client.into(),
    }
}

/// A worker that never reports that it is ready is given up, and its client's `OPEN` is answered.
#[test]
fn pitfall_83_opening_has_an_end() {
    let mut rig = Rig::new();
    let answer = rig.open();
    let Some(ToSupervisor::StartWorker { client, pid: 1, .. }) = rig.next() else {
        panic!("no worker was asked for");
    };
    assert_eq!(rig.next(), Some(ToSupervisor::StartMover { gpu: 0 }));
    let clock = |rig: &Rig| rig.asked.lock().clock;
    assert!(clock(&rig));
    rig.vm.tick(Instant::now() + Duration::from_secs(1));
    assert_eq!(rig.used(CONTROL_QUEUE), 0);
    assert!(clock(&rig));

    rig.vm.tick(Instant::now() + Duration::from_secs(600));
    assert_eq!(rig.used(CONTROL_QUEUE), 1);
    assert!(!clock(&rig));
    let close = ToSupervisor::CloseWorker { client, kill: true };
    assert_eq!(rig.next(), Some(close));
    assert_eq!(rig.status(answer), status::NO_RESOURCES);
}

/// A worker that sends an invalid message before it is ready is ended, and its client's `OPEN` is answered and
/// forgotten.
#[test]
fn an_open_whose_worker_makes_no_sense_is_answered() {
    let mut rig = Rig::new();
    let answer = rig.open();
    let (client, worker) = rig.start_worker();
    worker.unexport(1).unwrap();
    rig.hear();
    assert_eq!(rig.used(CONTROL_QUEUE), 1);
    assert_eq!(rig.status(answer), status::NO_RESOURCES);
    let close = ToSupervisor::CloseWorker { client, kill: true };
    let asked = std::iter::from_fn(|| rig.next()).last();
    assert_eq!(asked, Some(close));
    assert!(rig.vm.is_leaving());
    rig.worker_exits(client);
    assert!(!rig.vm.is_leaving());
    let answer = rig.send(CONTROL_QUEUE, &header(control::CLOSE, client), 0);
    assert_eq!(rig.status(answer), status::NO_CLIENT);
}

/// A chain that arrives between the check of an empty ring and the request for kicks is taken, although its driver was
/// told not to kick.
#[test]
fn pitfall_79_a_chain_that_comes_while_the_device_looks_is_not_left() {
    struct Device {
        queue: Queue,
        looks: u32,
    }
    let memory = guest_memory();
    let guest = memory.memory();
    guest.write_obj(HEAP, GuestAddress(0)).unwrap();
    guest.write_obj(8u32, GuestAddress(8)).unwrap();
    let ring = ring(&memory, 0);
    for comes_at in 0..8 {
        let mut device = Device {
            queue: Queue::new(CONTROL_QUEUE),
            looks: 0,
        };
        device.queue.attach(&ring);
        let available: u16 = guest.read_obj(GuestAddress(AVAIL + 2)).unwrap();
        let mut taken = 0;
        // The driver adds a chain whenever the device is about to check the queue.
        let append = || {
            let tail = GuestAddress(AVAIL + 2);
            guest.write_obj(available + 1, tail).unwrap();
        };
        Queue::drain(
            &mut device,
            |device: &mut Device| {
                if device.looks == comes_at {
                    append();
                }
                device.looks += 1;
                &mut device.queue
            },
            &memory,
            |_, _| taken += 1,
        );
        let asked_for_kicks = guest.read_obj::<u16>(GuestAddress(USED)).unwrap() & 1 == 0;
        let came = device.looks > comes_at;
        assert_eq!(taken == 1, came, "a chain at look {comes_at}");
        assert!(asked_for_kicks);
        if !came {
            break;
        }
        assert!(comes_at < 7, "the device looks for ever");
    }
}

/// If a guest opens clients as fast as it can, their workers are started at a bounded rate, in order, and up to the
/// limit.
#[test]
fn workers_are_started_at_a_rate() {
    let mut rig = Rig::new();
    rig.open();
    // The same chain, repeatedly.
    let opens = 300;
    rig.make_available(CONTROL_QUEUE, opens - 1);

    let mut last = 0;
    let mut asked = |rig: &Rig| {
        let mut count = 0;
        while let Some(message) = rig.next() {
            if let ToSupervisor::StartWorker { client, .. } = message {
                assert!(client > last, "in their order");
                last = client;
                count += 1;
            }
        }
        count
    };
    let at_once = asked(&rig);
    assert!((1..100).contains(&at_once), "{at_once} at once");
    let refused = usize::from(rig.used(CONTROL_QUEUE));
    assert_eq!(refused, usize::from(opens) - MAX_CLIENTS);
    let begin = Instant::now();
    let mut all = at_once;
    for second in 1..60 {
        rig.vm.tick(begin + Duration::from_secs(second));
        let more = asked(&rig);
        assert!(more <= 21, "{more} in a second");
        all += more;
    }
    assert_eq!(all, MAX_CLIENTS, "each has its turn");
    // A reset need not wait for workers that were not requested.
    rig.vm.reset();
    assert_eq!(rig.vm.leaving.len(), MAX_CLIENTS);
}

/// The head of a REGISTER request, which its runs follow.
fn registration(client: u32, address: u64, length: u64, runs: &[Run]) -> Register {
    Register {
        header: header(control::REGISTER, client),
        address: address.into(),
        length: length.into(),
        runs: (runs.len() as u32).into(),
        reserved: 0.into(),
    }
}

/// Stuck workers cost the host a bounded number of lists of runs.
#[test]
fn runs_that_workers_have_not_mapped_are_bounded() {
    let mut rig = Rig::new();
    let (client, worker) = rig.served();
    let run = Run {
        address: 0.into(),
        length: 4096.into(),
    };
    let runs = vec![run; MAX_RUNS];
    let length = MAX_RUNS as u64 * 4096;
    let register = |number: usize| registration(client, number as u64 * length, length, &runs);
    let request = [register(0).as_bytes(), runs.as_bytes()].concat();
    let answer = rig.send(CONTROL_QUEUE, &request[..], 0);
    // The same chain with another address each time.
    let head = rig.descriptors[CONTROL_QUEUE] - 2;
    let again = |rig: &mut Rig, number: usize| {
        rig.write(&register(number), answer - request.len() as u64);
        let entry = u64::from(rig.made_available[CONTROL_QUEUE]);
        let ring = CONTROL_QUEUE as u64 * RING_BYTES + AVAIL + 4;
        rig.write(&head, ring + entry * 2);
        rig.make_available(CONTROL_QUEUE, 1);
    };
    let most = MAX_RUNS_UNDER_WAY / MAX_RUNS;
    for number in 1..most {
        again(&mut rig, number);
    }
    assert_eq!(rig.used(CONTROL_QUEUE), 1, "the OPEN alone");
    again(&mut rig, most);
    assert_eq!(rig.used(CONTROL_QUEUE), 2);
    assert_eq!(rig.status(answer), status::NO_RESOURCES);
    // A registration that is mapped makes room for another.
    let Ok(Some(ToWorker::Map { seq, .. })) = worker.recv() else {
        panic!("no registration came");
    };
    worker.done(seq, status::OK).unwrap();
    rig.hear();
    assert_eq!(rig.used(CONTROL_QUEUE), 3);
    again(&mut rig, most);
    assert_eq!(rig.used(CONTROL_QUEUE), 3);
    again(&mut rig, most + 1);
    assert_eq!(rig.used(CONTROL_QUEUE), 4);
}

/// Addresses and sizes are the guest's choice, and an error would end the device.
#[test]
fn a_ring_that_cannot_be_one_is_not_served_until_it_is_set_up_anew() {
    let memory = guest_memory();
    let ring = ring(&memory, COMMAND_QUEUE);
    let is_ready = || ring.get_ref().get_queue().ready();
    let base = COMMAND_QUEUE as u64 * RING_BYTES;
    for break_it in [&(|| ring.set_queue_size(UNALIGNED)) as &dyn Fn(), &|| {
        ring.set_queue_info(base, base + AVAIL, GUEST_BYTES - 2)
            .unwrap();
        assert_eq!(ring.queue_used_idx().unwrap(), 0);
    }] {
        ring.set_queue_size(ENTRIES);
        break_it();
        ring.set_queue_ready(true);
        assert!(!is_ready());
        ring.set_queue_size(ENTRIES);
        ring.set_queue_info(base, base + AVAIL, base + USED)
            .unwrap();
        ring.set_queue_ready(true);
        assert!(is_ready());
    }
}

#[test]
fn without_event_indices_the_drivers_flag_decides_about_interrupts() {
    let memory = guest_memory();
    let ring = ring(&memory, COMMAND_QUEUE);
    let available = COMMAND_QUEUE as u64 * RING_BYTES + AVAIL;
    for (flags, wants) in [(0_u16, true), (1, false), (2, true)] {
        let memory = memory.memory();
        memory
            .write_slice(&flags.to_le_bytes(), GuestAddress(available))
            .unwrap();
        assert_eq!(ring.wants_interrupt(available), wants, "{flags}");
    }
}

/// A guest may register the same page again and again, and each time costs the host and the GPU page tables.
#[test]
fn registered_bytes_are_bounded() {
    let mut rig = Rig::new();
    let (client, worker) = rig.served();
    let run = Run {
        address: 0.into(),
        length: (1 << 20).into(),
    };
    let runs = vec![run; 8 << 10];
    let length = runs.len() as u64 * (1 << 20);
    let register = |rig: &mut Rig, number: u64, is_mapped: bool| {
        let head = registration(client, number * length, length, &runs);
        let request = [head.as_bytes(), runs.as_bytes()].concat();
        let answer = rig.send(CONTROL_QUEUE, &request[..], 0);
        if is_mapped {
            let Ok(Some(ToWorker::Map { seq, .. })) = worker.recv() else {
                panic!("no registration came");
            };
            worker.done(seq, status::OK).unwrap();
            rig.hear();
        }
        rig.status(answer)
    };
    let most = LEAST_REGISTERED / length;
    for number in 0..most {
        assert_eq!(register(&mut rig, number, true), status::OK);
    }
    assert_eq!(register(&mut rig, most, false), status::LIMIT);
}

/// A client whose worker has ended while a mover copies for it.
struct Copying {
    rig: Rig,
    client: u32,
    worker: WorkerEnd,
    command: u64,
    mover: MoverEnd,
    seq: u64,
}

impl Copying {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (client, worker) = rig.served();
        let device = file(MOVER_BYTES);
        worker.export(1, MOVER_BYTES, 0, device.as_fd()).unwrap();
        let (ours, channel) = ipc::pair().unwrap();
        // A missing event fails the test, and does not hang it.
        setsockopt(&ours, ReceiveTimeout, &TimeVal::seconds(60)).unwrap();
        let mover = MoverEnd::new(ours);
        rig.vm
            .supervisor_says(ToDevice::MoverStarted { gpu: 0, channel });
        mover.send(FromMover::Ready);
        rig.hear();

        let stream = [0; 8];
        let head = CommandHeader {
            client: client.into(),
            thread: 1.into(),
            stream_bytes: (stream.len() as u32).into(),
            answer_bytes: 0.into(),
            in_bytes: MOVER_BYTES.into(),
            out_bytes: 0.into(),
            data_offset: 0.into(),
        };
        let head = [head.as_bytes(), &stream].concat();
        let command = rig.send(COMMAND_QUEUE, &head[..], MOVER_BYTES);
        let Ok(Some(ToWorker::Command { seq, .. })) = worker.recv() else {
            panic!("no command came");
        };
        worker.r#move(seq, (1, 0), 0, &[]).unwrap();
        rig.hear();
        let mut buffer = Vec::new();
        assert!(matches!(mover.recv(&mut buffer), Ok(ToMover::File { .. })));
        let export = mover.recv(&mut buffer);
        assert!(matches!(export, Ok(ToMover::Export { .. })));
        assert!(matches!(mover.recv(&mut buffer), Ok(ToMover::Move(what)) if what.seq == seq));
        Self {
            rig,
            client,
            worker,
            command,
            mover,
            seq,
        }
    }

    fn close(&mut self) -> u64 {
        let close = header(control::CLOSE, self.client);
        self.rig.send(CONTROL_QUEUE, &close, 0)
    }

    /// Ends the moves: the mover reports that they are done, or its process ends.
    fn moves_end(&mut self, done: bool) {
        if done {
            let seq = self.seq;
            self.mover.send(FromMover::Moved { seq, done });
            self.rig.hear();
        } else {
            self.rig
                .vm
                .supervisor_says(ToDevice::MoverExited { gpu: 0 });
        }
    }
}

/// The device process cannot tell why a move takes long: it reports this to the supervisor, and the move continues.
#[test]
fn a_slow_move_is_reported_and_still_ends() {
    let mut copying = Copying::new();
    while copying.rig.next().is_some() {}
    let later = Instant::now() + MOVE_LIMIT + Duration::from_secs(1);
    for round in 0..2 {
        let now = later + Duration::from_secs(round);
        copying.rig.vm.tick(now);
        let told = Some(ToSupervisor::MoverLate { gpu: 0 });
        assert_eq!(copying.rig.next(), told);
        assert_eq!(copying.rig.used(COMMAND_QUEUE), 0);
    }
    copying.moves_end(true);
    assert_eq!(copying.rig.used(COMMAND_QUEUE), 1);
    while copying.rig.next().is_some() {}
    copying.rig.vm.tick(later + Duration::from_secs(9));
    assert_eq!(copying.rig.next(), None);
}

/// The end of a client whose worker has ended waits for its moves, and then completes.
#[test]
fn the_end_of_a_client_waits_for_its_moves() {
    for (close_first, done) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut copying = Copying::new();
        // Before or after the worker's end.
        let mut close = close_first.then(|| copying.close());
        copying.rig.worker_exits(copying.client);
        close = close.or_else(|| Some(copying.close()));
        let used = |copying: &Copying, queue| copying.rig.used(queue);
        assert_eq!(used(&copying, CONTROL_QUEUE), 1, "the OPEN alone");
        assert_eq!(used(&copying, COMMAND_QUEUE), 0);
        copying.moves_end(done);
        assert_eq!(used(&copying, CONTROL_QUEUE), 2);
        assert_eq!(copying.rig.status(close.unwrap()), status::OK);
        assert_eq!(used(&copying, COMMAND_QUEUE), 1);
        let answer: CommandAnswer = copying.rig.read(copying.command);
        assert_eq!(answer.status.get(), status::CLIENT_DEAD);
        assert!(!copying.rig.vm.is_leaving());
    }
}

mod resets;
mod rings;
