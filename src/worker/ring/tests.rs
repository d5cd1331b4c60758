// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A wide ring, on [`crate::cuda::double`].

use std::{
    fs,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use gpgpu_protocol::{api::request, layout::status, ring::Producer};

use super::*;
use crate::{
    cuda::double,
    ipc::{MapRun, sealed_memfd},
    worker::{crowds_tests::command, lifetimes_tests::Rig},
};

/// The addresses of the guest's ring, and of memory that it fills. Each test has others, because mappings remain.
fn addresses() -> (u64, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(0x1235_0000_0000);
    let ring = NEXT.fetch_add(2 << 24, Ordering::Relaxed);
    (ring, ring + (1 << 24))
}

/// A client with a served ring, and the guest's end of it.
struct Guest {
    rig: Rig,
    area: Area<'static>,
    producer: Producer<'static>,
    fill: Vec<u8>,
    query: Vec<u8>,
}

impl Guest {
    fn new(is_wide: bool) -> Self {
        let rig = Rig::new();
        let session = rig.session;
        let (at, here) = addresses();
        rig.register(1, here);
        let bytes = (RING_BYTES as u64).next_multiple_of(4096);
        let file = Arc::new(OwnedFd::from(sealed_memfd(c"ring", bytes).unwrap()));
        let run = MapRun {
            file,
            offset: 0,
            length: bytes,
        };
        assert_eq!(session.regions.map(2, at, bytes, &[run]), status::OK);
        rig.works(request::gpgpuRingSetup { address: at }, 0);
        if is_wide {
            rig.works(request::gpgpuRingWide {}, 0);
        }
        let base = session.regions.keep(at, bytes).unwrap();
        // SAFETY: the regions keep the memory mapped from now on.
        let area = unsafe { Area::new(base as *mut u8) };
        let producer = Producer::new(area, 0);
        serve(session, Pool::default()).unwrap();
        let fill = request::cuMemsetD8_v2 {
            dstDevice: here,
            uc: 7,
            N: 64,
        };
        let query = request::cuStreamQuery {
            hStream: rig.streams[0],
        };
        Self {
            fill: command(&fill, rig.contexts[0]),
            query: command(&query, rig.contexts[0]),
            rig,
            area,
            producer,
        }
    }

    fn ring(&self) -> &'static Ring {
        self.rig.session.ring.get().unwrap()
    }

    /// Appends commands, and returns their end position.
    fn send(&mut self, slot: u32, sequence: u32, commands: &[u8]) -> u64 {
        assert!(self.producer.append(slot, sequence, 1, commands));
        self.ring().wake(self.rig.session);
        self.producer.tail()
    }

    /// Waits for a slot's answer: its code and its fences.
    fn answer(&self, slot: u32, sequence: u32) -> (CUresult, u32) {
        let slot = self.area.slot(slot as usize);
        let fences = loop {
            match slot.answered(sequence) {
                Some(fences) => break fences,
                None => thread::yield_now(),
            }
        };
        let mut bytes = Vec::new();
        slot.take(&mut bytes);
        let code = bytes
            .first_chunk()
            .map_or(CUDA_SUCCESS, |code| u32::from_le_bytes(*code));
        (code, fences)
    }
}

#[test]
fn pitfall_27_a_wait_by_a_wide_ring_holds_nothing_up_that_comes_behind_it() {
    let mut guest = Guest::new(true);
    let (fill, query) = (guest.fill.clone(), guest.query.clone());
    let held = double::hold("cuMemsetD8_v2");
    let end = guest.send(0, 1, &fill);
    held.wait();
    guest.send(1, 2, &query);
    assert_eq!(guest.answer(1, 2), (CUDA_SUCCESS, 0));
    // It is in progress, although the ring has finished its record.
    guest.ring().wait(end).unwrap();
    assert_eq!(guest.area.slot(0).answered(1), None);
    assert_eq!(
        guest.ring().is_over(guest.rig.session, 0, 1, end),
        Ok(false)
    );
    // A second request of its slot is not executed.
    let again = guest.send(0, 3, &fill);
    guest.ring().wait(again).unwrap();
    assert_eq!(guest.rig.session.take_deferred(), CUDA_ERROR_INVALID_VALUE);
    drop(held);
    assert_eq!(guest.answer(0, 1), (CUDA_SUCCESS, 0));
    // Then the slot can be used again.
    guest.send(0, 4, &fill);
    assert_eq!(guest.answer(0, 4), (CUDA_SUCCESS, 0));
    assert_eq!(double::calls("cuMemsetD8_v2"), 2);
    assert_eq!(double::wrong(), [""; 0]);
}

/// As soon as a guest has the answer of a wait, it may use the slot for the next one.
#[test]
fn a_slot_is_free_when_its_answer_is_there() {
    let mut guest = Guest::new(true);
    let fill = guest.fill.clone();
    for sequence in 1..20_000 {
        guest.send(0, sequence, &fill);
        assert_eq!(guest.answer(0, sequence), (CUDA_SUCCESS, 0));
        assert_eq!(guest.rig.session.take_deferred(), CUDA_SUCCESS);
    }
}

#[test]
fn a_wait_is_refused_by_a_ring_that_is_not_wide_and_where_nobody_waits_for_it() {
    let mut guest = Guest::new(false);
    let fill = guest.fill.clone();
    guest.send(0, 1, &fill);
    assert_eq!(guest.answer(0, 1), (CUDA_ERROR_INVALID_VALUE, 0));
    guest.rig.works(request::gpgpuRingWide {}, 0);
    let end = guest.send(NO_SLOT, 2, &fill);
    guest.ring().wait(end).unwrap();
    assert_eq!(guest.rig.session.take_deferred(), CUDA_ERROR_INVALID_VALUE);
    // Commands that concern the client itself use the command queue, whatever the ring. The ring's thread could not
    // wake itself.
    let status = request::gpgpuFenceStatus {
        slot: 0,
        sequence: 1,
        position: end,
        over: true,
    };
    let about_client = [
        command(&request::gpgpuHello { hello: true }, 0),
        command(&request::gpgpuRingWake {}, 0),
        command(&request::gpgpuRingRelaxed {}, 0),
        command(&status, 0),
    ];
    for (sequence, command) in (3..).zip(about_client) {
        guest.send(0, sequence, &command);
        assert_eq!(guest.answer(0, sequence), (CUDA_ERROR_INVALID_VALUE, 0));
    }
    assert_eq!(double::calls("cuMemsetD8_v2"), 0);
}

/// A driver that misses that the device sleeps is nevertheless served a moment later. GPGPU-DEV-75.
#[test]
fn pitfall_79_a_relaxed_ring_needs_no_wake_up_while_the_device_falls_asleep() {
    let mut guest = Guest::new(true);
    let query = guest.query.clone();
    guest.rig.works(request::gpgpuRingRelaxed {}, 0);
    // If the test's thread does not run for a moment, it is too late, so there are several attempts.
    let served = (1..200).any(|sequence| {
        while guest.area.sleeping().load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        assert!(guest.producer.append(1, sequence, 1, &query));
        let slot = guest.area.slot(1);
        let is_served = poll_for(Duration::from_millis(20), || {
            slot.answered(sequence).is_some()
        });
        guest.ring().wake(guest.rig.session);
        assert_eq!(guest.answer(1, sequence), (CUDA_SUCCESS, 0));
        is_served
    });
    assert!(served, "nothing without a wake-up");
}

/// The commands of a paused VM may request a wake-up of the ring's thread. GPGPU-DEV-65.
#[test]
fn pitfall_88_a_wake_up_writes_nothing_until_it_may() {
    let guest = Guest::new(true);
    let (ring, session) = (guest.ring(), guest.rig.session);
    let sleeping = guest.area.sleeping();
    while sleeping.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    session.ring_writes.stop();
    let (say, number) = mpsc::channel();
    let waker = thread::spawn(move || {
        say.send(nix::unistd::gettid()).unwrap();
        ring.wake(session);
    });
    let stat = format!("/proc/self/task/{}/stat", number.recv().unwrap());
    let waits = || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") S "));
    while !waits() && !waker.is_finished() {
        thread::yield_now();
    }
    assert_eq!(sleeping.load(Ordering::Relaxed), 1);
    assert!(!waker.is_finished());
    session.ring_writes.go_on();
    waker.join().unwrap();
}

#[test]
fn a_long_answer_is_kept_for_its_request_and_given_once() {
    let guest = Guest::new(true);
    let (ring, session) = (guest.ring(), guest.rig.session);
    let record = |sequence| Record {
        bytes: 16,
        slot: 5,
        sequence,
        thread: 1,
    };
    let answer = |sequence, bytes| {
        let answer = Answer::with_reply(CUDA_SUCCESS, vec![7; bytes]);
        ring.answer(session, &record(sequence), Ok((answer, 0)), |write| write());
    };
    answer(8, SLOT_ANSWER_BYTES);
    assert_eq!(guest.answer(5, 8), (CUDA_SUCCESS, KEPT));
    for (slot, sequence) in [(5, 7), (4, 8), (SLOTS as u32, 8), (u32::MAX, 8)] {
        assert_eq!(
            ring.take_kept(slot, sequence),
            Err(CUDA_ERROR_INVALID_VALUE)
        );
    }
    let kept = ring.take_kept(5, 8).unwrap();
    assert_eq!((kept.len(), kept[8]), (8 + SLOT_ANSWER_BYTES, 7));
    assert_eq!(ring.take_kept(5, 8), Err(CUDA_ERROR_INVALID_VALUE));
    // The next answer replaces it. One that does not fit into an answer of the command queue is an error.
    answer(9, SLOT_ANSWER_BYTES);
    answer(10, SLOT_ANSWER_BYTES);
    assert_eq!(ring.take_kept(5, 9), Err(CUDA_ERROR_INVALID_VALUE));
    answer(11, MAX_ANSWER_BYTES);
    assert_eq!(guest.answer(5, 11), (CUDA_ERROR_UNKNOWN, 0));
}
