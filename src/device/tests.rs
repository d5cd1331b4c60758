//! The state machine without a VMM: a ring in memory, and a supervisor that says nothing.

use std::{
    os::fd::BorrowedFd,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api,
    layout::{
        CONTROL_QUEUE, ControlAnswer, ControlHeader, MAX_CLIENTS, Open, VERSION, control, status,
    },
};
use vhost_user_backend::{VringRwLock, VringT};
use virtio_bindings::virtio_ring::{VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use zerocopy::{FromBytes, IntoBytes};

use super::{queue::Queue, vm::Vm, watch::Watch};
use crate::{
    ipc,
    supervisor::link::{DeviceEnd, SupervisorEnd, ToSupervisor},
};

const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const ANSWER: u64 = 0x4000;

/// Notes whether the clock is wanted.
struct Clock(Arc<Mutex<bool>>);

impl Watch for Clock {
    fn add(&self, _: BorrowedFd<'_>, _: usize, _: bool) -> std::io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: BorrowedFd<'_>, _: usize, _: bool) {}

    fn tick(&self, wanted: bool) {
        *self.0.lock().unwrap() = wanted;
    }
}

fn open() -> Open {
    Open {
        header: ControlHeader {
            kind: control::OPEN.into(),
            client: 0.into(),
        },
        version: VERSION.into(),
        pid: 1.into(),
        api_digest: api::digest().into(),
        name: [b'x'; 16],
    }
}

/// A worker that never says that it is ready is given up, and its client answered.
#[test]
fn pitfall_83_opening_has_an_end() {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap();
    let descriptor = |at: u64, address: u64, len: u32, flags: u32, next: u16| {
        memory.write_obj(address, GuestAddress(at)).unwrap();
        memory.write_obj(len, GuestAddress(at + 8)).unwrap();
        memory
            .write_obj(flags as u16, GuestAddress(at + 12))
            .unwrap();
        memory.write_obj(next, GuestAddress(at + 14)).unwrap();
    };
    descriptor(0, 0x3000, size_of::<Open>() as u32, VRING_DESC_F_NEXT, 1);
    descriptor(16, ANSWER, 8, VRING_DESC_F_WRITE, 0);
    memory
        .write_slice(open().as_bytes(), GuestAddress(0x3000))
        .unwrap();
    memory.write_obj(1u16, GuestAddress(AVAIL + 2)).unwrap();

    let memory = GuestMemoryAtomic::new(memory);
    let (ours, theirs) = ipc::pair().unwrap();
    let supervisor = SupervisorEnd::new(ours);
    let wanted = Arc::new(Mutex::new(false));
    let clock = Box::new(Clock(Arc::clone(&wanted)));
    let mut vm = Vm::new(memory.clone(), DeviceEnd::new(theirs), clock);
    let vring = VringRwLock::new(memory.clone(), 16).unwrap();
    vring.set_queue_info(0, AVAIL, USED).unwrap();
    vring.set_queue_ready(true);
    vring.set_enabled(true);
    vm.queues[CONTROL_QUEUE].attach(&vring);
    vm.process(CONTROL_QUEUE);

    let used = || -> u16 { memory.memory().read_obj(GuestAddress(USED + 2)).unwrap() };
    let Some(ToSupervisor::StartWorker { client, pid: 1, .. }) = supervisor.recv().unwrap() else {
        panic!("no worker was asked for");
    };
    let mover = ToSupervisor::StartMover { gpu: 0 };
    assert_eq!(supervisor.recv().unwrap(), Some(mover));
    assert!(*wanted.lock().unwrap());
    vm.tick(Instant::now() + Duration::from_secs(1));
    assert_eq!(used(), 0);
    assert!(*wanted.lock().unwrap());

    vm.tick(Instant::now() + Duration::from_secs(600));
    assert_eq!(used(), 1);
    assert!(!*wanted.lock().unwrap());
    let close = ToSupervisor::CloseWorker { client, kill: true };
    assert_eq!(supervisor.recv().unwrap(), Some(close));
    let mut answer = [0; 8];
    memory
        .memory()
        .read_slice(&mut answer, GuestAddress(ANSWER))
        .unwrap();
    let answer = ControlAnswer::read_from_bytes(&answer).unwrap();
    assert_eq!(answer.status.get(), status::NO_RESOURCES);
}

/// A chain that comes between the look at an empty ring and the wish for kicks is taken: its driver was told not to kick.
#[test]
fn pitfall_79_a_chain_that_comes_while_the_device_looks_is_not_left() {
    struct Device {
        queue: Queue,
        looks: u32,
    }
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap();
    memory.write_obj(0x3000u64, GuestAddress(0)).unwrap();
    memory.write_obj(8u32, GuestAddress(8)).unwrap();
    let memory = GuestMemoryAtomic::new(memory);
    let vring = VringRwLock::new(memory.clone(), 16).unwrap();
    vring.set_queue_info(0, AVAIL, USED).unwrap();
    vring.set_queue_ready(true);
    vring.set_enabled(true);
    for comes_at in 0..8 {
        let mut device = Device {
            queue: Queue::new(CONTROL_QUEUE),
            looks: 0,
        };
        device.queue.attach(&vring);
        let guest = memory.memory();
        let available: u16 = guest.read_obj(GuestAddress(AVAIL + 2)).unwrap();
        let mut taken = 0;
        // Whenever the device turns to the queue, the driver may have been faster.
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

/// A guest that opens clients as fast as it can has them started at a rate, in their order, and no more than there may be.
#[test]
fn workers_are_started_at_a_rate() {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap();
    let descriptor = |at: u64, address: u64, len: u32, flags: u32, next: u16| {
        memory.write_obj(address, GuestAddress(at)).unwrap();
        memory.write_obj(len, GuestAddress(at + 8)).unwrap();
        memory
            .write_obj(flags as u16, GuestAddress(at + 12))
            .unwrap();
        memory.write_obj(next, GuestAddress(at + 14)).unwrap();
    };
    descriptor(0, 0x3000, size_of::<Open>() as u32, VRING_DESC_F_NEXT, 1);
    descriptor(16, ANSWER, 8, VRING_DESC_F_WRITE, 0);
    memory
        .write_slice(open().as_bytes(), GuestAddress(0x3000))
        .unwrap();
    // The same chain, again and again.
    let opens = 300;
    memory
        .write_obj(opens as u16, GuestAddress(AVAIL + 2))
        .unwrap();

    let memory = GuestMemoryAtomic::new(memory);
    let (ours, theirs) = ipc::pair().unwrap();
    let supervisor = SupervisorEnd::new(ours);
    let clock = Box::new(Clock(Arc::default()));
    let mut vm = Vm::new(memory.clone(), DeviceEnd::new(theirs), clock);
    let vring = VringRwLock::new(memory.clone(), 512).unwrap();
    vring.set_queue_info(0, AVAIL, USED).unwrap();
    vring.set_queue_size(512);
    vring.set_queue_ready(true);
    vring.set_enabled(true);
    vm.queues[CONTROL_QUEUE].attach(&vring);
    vm.process(CONTROL_QUEUE);

    let mut last = 0;
    let mut asked = || {
        let mut count = 0;
        while let Some(message) = supervisor.recv().unwrap() {
            if let ToSupervisor::StartWorker { client, .. } = message {
                assert!(client > last, "in their order");
                last = client;
                count += 1;
            }
        }
        count
    };
    let at_once = asked();
    assert!((1..100).contains(&at_once), "{at_once} at once");
    let refused: u16 = memory.memory().read_obj(GuestAddress(USED + 2)).unwrap();
    assert_eq!(usize::from(refused), opens - MAX_CLIENTS);
    let begin = Instant::now();
    let mut all = at_once;
    for second in 1..60 {
        vm.tick(begin + Duration::from_secs(second));
        let more = asked();
        assert!(more <= 21, "{more} in a second");
        all += more;
    }
    assert_eq!(all, MAX_CLIENTS, "each has its turn");
    // Those that were not asked for have nothing that a reset would wait for.
    vm.reset();
    assert_eq!(vm.leaving.len(), MAX_CLIENTS);
}
