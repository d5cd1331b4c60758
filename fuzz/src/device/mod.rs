// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device without its process: the real state machine ([`Vm`]), a guest's memory and rings, and a supervisor, workers
//! and movers at the other ends of its channels. An input determines the next step of each of them.
//!
//! The supervisor is trusted and follows its protocol, and so does the mover except for its messages' content. The
//! guest and the workers are arbitrary. Whatever they do, the device must not panic, loop or leave anything behind.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONFIG_SPACE_BYTES, CONTROL_QUEUE, CommandHeader, Config, ControlHeader,
        EVENT_QUEUE, MAX_CLIENTS, NUM_QUEUES, Open, Register, Run, Unregister, VERSION, control,
        status,
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
    backend::{queue::Restart, ring::Ring, vhost_user::config_bytes, vm::Vm, watch::Watch},
    ipc::{
        self, ToWorker, WorkerEnd,
        device::{DeviceEnd, SupervisorEnd, ToDevice, ToSupervisor},
        mover::{FromMover, MoverEnd, ToMover},
    },
};
use vhost_user_backend::VringT;
use virtio_queue::QueueT;
use vm_memory::{
    Bytes, FileOffset, GuestAddress, GuestMemoryAtomic, GuestMemoryMmap, GuestRegionMmap,
    MmapRegion,
};
use zerocopy::{Immutable, IntoBytes};

use self::guest::read_config;
use crate::input::Input;

mod guest;
mod others;

/// The entries of each ring, and the distance between rings.
const QUEUE_SIZE: u16 = 256;
const RING_BYTES: u64 = 0x4000;
const AVAIL: u64 = 0x2000;
const USED: u64 = 0x3000;
/// The guest addresses of requests, and of the data of commands.
const HEAP: std::ops::Range<u64> = 0x1_0000..0x2_0000;
const DATA: u64 = 0x2_0000;
const DATA_PART: u64 = 0x1_0000;
const DATA_PARTS: u64 = 2;
/// The guest's memory: address, size, offset in its file. Requests at its edges use it too.
const REGIONS: [(u64, u64, u64); 3] = [
    (0, 0x4_0000, 0),
    (0x4_0000, 0x1_0000, 0x1000),
    (0x10_0000, 0x1_0000, 0),
];

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// More steps find nothing more; these are enough for more clients than a VM may have.
const MAX_STEPS: usize = MAX_CLIENTS + 64;
/// The most clients that a short input opens.
const MANY: usize = 4;

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
        keep_freed_memory();
        GuestMemoryMmap::from_regions(REGIONS.iter().map(region).collect()).expect("no memory")
    })
}

/// Makes the allocator keep freed memory: returning it and allocating it again, page by page, takes longer than most
/// inputs.
fn keep_freed_memory() {
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: sets a number of the allocator.
        unsafe { libc::mallopt(parameter, 16 << 20) };
    }
}

/// Records the channels that the device listens to.
#[derive(Clone, Default)]
struct Slots(Arc<Mutex<BTreeSet<usize>>>);

impl Watch for Slots {
    fn add(&self, _: BorrowedFd<'_>, slot: usize, _: bool) -> std::io::Result<()> {
        self.0.lock().expect("poisoned").insert(slot);
        Ok(())
    }

    fn remove(&self, _: BorrowedFd<'_>, slot: usize) {
        self.0.lock().expect("poisoned").remove(&slot);
    }

    fn tick(&self, _: bool) {}

    fn again(&self) {}
}

/// A worker that the harness simulates.
struct Worker {
    end: Option<WorkerEnd>,
    /// The messages that it has not answered yet.
    seqs: Vec<u64>,
    exports: u64,
}

/// See [`Rig::before_reset`].
#[derive(Default)]
struct Leftover {
    /// Workers, by client.
    workers: BTreeSet<u32>,
    /// Requested moves: the mover's GPU, and their numbers.
    moves: BTreeSet<(u32, u64)>,
    /// The rings' used indices at the reset.
    used: Option<[u16; NUM_QUEUES]>,
}

/// See the module's documentation.
pub struct Rig {
    vm: Vm,
    slots: Slots,
    supervisor: SupervisorEnd,
    rings: [Ring; NUM_QUEUES],
    avail: [u16; NUM_QUEUES],
    descriptor: [u16; NUM_QUEUES],
    heap: u64,
    /// Clients for which workers were requested.
    asked: Vec<u32>,
    /// Workers that were started, by client.
    workers: BTreeMap<u32, Worker>,
    movers_asked: BTreeSet<u32>,
    movers: HashMap<u32, (MoverEnd, Vec<u64>)>,
    /// The processes that may still write to memory that was shared before the last reset.
    before_reset: Leftover,
    /// The used indices of stopped rings.
    stopped: [Option<u16>; NUM_QUEUES],
    /// The number of workers that the supervisor permits for the VM.
    max_clients: usize,
    /// The number of clients that were opened so far.
    opened: usize,
    /// Whether the input is long enough to open as many clients as a VM may have.
    is_long: bool,
    /// The buffer for a mover's messages.
    buffer: Vec<u8>,
    now: Instant,
}

/// Applies an input to a device, and checks that the device leaves nothing behind.
pub fn play(device: fn() -> Rig, input: &[u8]) {
    memory();
    let before = lowest_free_descriptor();
    device().run(&mut Input::new(input));
    assert_eq!(lowest_free_descriptor(), before, "a descriptor is kept");
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
            std::array::from_fn(|_| Ring::new(memory.clone(), QUEUE_SIZE).expect("no ring"));
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
            stopped: [None; NUM_QUEUES],
            max_clients: MAX_CLIENTS,
            opened: 0,
            is_long: false,
            buffer: Vec::new(),
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

    /// A device with a client that is served and has registered memory, and whose worker has passed device memory to a
    /// mover.
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

    /// Applies an input to its end; then ends everything, in one of two orders.
    pub fn run(mut self, input: &mut Input<'_>) {
        let (reset_last, is_closed) = (input.len() % 2 == 1, input.len() % 4 < 2);
        self.is_long = input.len() > MAX_CLIENTS;
        for _ in 0..MAX_STEPS {
            if input.is_empty() {
                break;
            }
            self.step(input);
        }
        if reset_last {
            self.end_all();
        }
        self.finish(is_closed);
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.u8() % 26 {
            // Each client takes as long as a short input, so only long inputs open many.
            0 if self.opened < MANY || self.is_long => self.open(),
            0 => {}
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
                // A large distance makes a ring's old chains available all at once, which takes long.
                let ahead = match input.u8() {
                    255 => input.u16(),
                    few => u16::from(few % 4),
                };
                self.avail[queue] = self.avail[queue].wrapping_add(ahead);
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
                self.settle();
            }
            21 => {
                let queue = usize::from(input.u8()) % NUM_QUEUES;
                self.stop(queue);
                if input.u8() & 1 == 0 {
                    let base = match input.u8() {
                        0 => 0,
                        1 => input.u16(),
                        few @ 2..=9 => {
                            let next = self.rings[queue].queue_next_avail();
                            next.wrapping_sub(few.into())
                        }
                        _ => self.rings[queue].queue_next_avail(),
                    };
                    self.start(queue, base);
                }
                self.settle();
            }
            22 => {
                let queue = usize::from(input.u8()) % NUM_QUEUES;
                let base = self.rings[queue].queue_next_avail();
                self.start(queue, base);
                self.settle();
            }
            23 => {
                self.reset();
                self.settle();
            }
            24 => read_config(input),
            // The operator changes it.
            _ => self.max_clients = usize::from(input.u8()),
        }
    }

    /// Handles the result of a call, as the back end does after each call.
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
        self.check_stopped();
        let is_alone = self.workers.is_empty() && self.asked.is_empty() && self.movers.is_empty();
        assert!(
            !is_alone || !self.vm.is_ending(),
            "a VMM waits for what has ended"
        );
    }

    /// Checks that no chain is returned on a stopped ring.
    fn check_stopped(&self) {
        for (queue, used) in self.stopped.iter().enumerate() {
            let now = self.used(queue);
            assert!(
                used.is_none_or(|used| used == now),
                "a stopped ring is written"
            );
        }
    }

    /// The device's used index, because the guest may overwrite the one in its ring.
    fn used(&self, queue: usize) -> u16 {
        self.rings[queue].get_ref().get_queue().next_used()
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
        self.vm.cancel_moves();
        self.stopped[queue] = Some(self.used(queue));
    }

    fn start(&mut self, queue: usize, base: u16) {
        self.stopped[queue] = None;
        let ring = &self.rings[queue];
        ring.set_queue_next_avail(base);
        ring.set_queue_ready(true);
        ring.set_enabled(true);
        if self.vm.queues[queue].attach(ring) == Restart::Reset {
            self.reset();
        }
    }

    /// The driver has reset the device. Processes that are running now may write to memory that was shared before.
    fn reset(&mut self) {
        self.vm.reset();
        self.before_reset.workers.extend(self.workers.keys());
        for (&gpu, (_, seqs)) in &self.movers {
            let moves = seqs.iter().map(|&seq| (gpu, seq));
            self.before_reset.moves.extend(moves);
        }
        self.check_reset();
    }

    /// A reset is complete when no process from before can write, and not earlier (GPGPU-DEV-8). Until then it is not
    /// answered, and no chain is returned.
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
        if workers.is_empty() && moves.is_empty() {
            *used = None;
            return;
        }
        let now = std::array::from_fn(|queue| self.rings[queue].get_ref().get_queue().next_used());
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

    /// Starts the rings, and ends everything that a chain may wait for: the device must return all chains that it has
    /// taken.
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
            let waits = self.vm.queues.iter().any(|queue| queue.outstanding() > 0);
            if !waits && self.asked.is_empty() && self.workers.is_empty() {
                break;
            }
        }
        for queue in &self.vm.queues {
            assert_eq!(queue.outstanding(), 0, "a driver waits for ever");
        }
    }

    /// The connection is closed: from now on no ring is written.
    fn close_connection(&mut self) {
        self.vm.finish();
        for queue in 0..NUM_QUEUES {
            self.stopped[queue] = Some(self.used(queue));
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
        self.settle();
    }

    /// The driver resets the device, or the connection `is_closed`, and all processes end: nothing may stay behind.
    fn finish(mut self, is_closed: bool) {
        match is_closed {
            true => self.close_connection(),
            false => self.reset(),
        }
        self.settle();
        self.fail_asked();
        self.end_processes();
        assert!(
            !self.vm.is_leaving(),
            "something is waited for that cannot come"
        );
        self.settle();
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

/// A descriptor that stands for device memory.
fn memory_handle() -> BorrowedFd<'static> {
    static HANDLE: OnceLock<OwnedFd> = OnceLock::new();
    HANDLE
        .get_or_init(|| memfd_create(c"device", MFdFlags::MFD_CLOEXEC).expect("no memfd"))
        .as_fd()
}

/// The number that the next descriptor gets. It is the same as before if no descriptor was left open.
pub fn lowest_free_descriptor() -> i32 {
    let copy = memory_handle().try_clone_to_owned();
    copy.expect("no descriptors").as_raw_fd()
}

/// Sends bytes and descriptors as one message, which may be invalid.
pub fn send_raw(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[i32]) {
    use nix::sys::socket::ControlMessage;
    let rights = [ControlMessage::ScmRights(fds)];
    let rights = if fds.is_empty() { &[][..] } else { &rights[..] };
    let iov = [std::io::IoSlice::new(bytes)];
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let _ = sendmsg::<()>(socket.as_raw_fd(), &iov, rights, flags, None);
}
