// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use std::{
    cell::RefCell,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use super::*;

/// A ring's memory in one process.
struct Memory(Vec<u64>);

impl Memory {
    fn new() -> Self {
        Self(vec![0; RING_BYTES / 8 + 512])
    }

    fn area(&mut self) -> Area<'static> {
        let base = self.0.as_mut_ptr().cast::<u8>();
        let aligned = base.wrapping_add(base.align_offset(4096));
        // SAFETY: the tests keep the memory longer than its users.
        unsafe { Area::new(aligned) }
    }
}

fn pattern(seed: u64, words: usize) -> Vec<u64> {
    (0..words as u64)
        .map(|i| seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i))
        .collect()
}

#[test]
fn pitfall_80_records_of_every_length_survive_every_wrap() {
    let last = COMMAND_BYTES as u64 - 8;
    for start in [0, 8, last, (1 << 32) - 8, u64::MAX - 127, u64::MAX - 7] {
        let mut memory = Memory::new();
        let area = memory.area();
        let mut producer = Producer::new(area, start);
        let mut consumer = Consumer::new(area, start);
        let mut got = Vec::new();
        let (mut sent, mut received) = (0_u64, 0_u64);
        while received < 2000 {
            let words = |n: u64| (n * 37 % (MAX_RECORD_BYTES as u64 / 8 - 2)) as usize;
            while sent < 2000
                && producer.append(
                    NO_SLOT,
                    sent as u32,
                    7,
                    pattern(sent, words(sent)).as_bytes(),
                )
            {
                sent += 1;
            }
            assert!(sent > received, "an empty ring has room for any record");
            for _ in 0..1 + received % 3 {
                let Some(record) = consumer.next(&mut got).unwrap() else {
                    break;
                };
                assert_eq!((record.sequence, record.thread), (received as u32, 7));
                assert_eq!(got, pattern(received, words(received)));
                received += 1;
            }
        }
        assert!(!consumer.has_more());
    }
}

#[test]
fn pitfall_80_full_is_not_empty() {
    let mut memory = Memory::new();
    let area = memory.area();
    let mut producer = Producer::new(area, 0);
    let mut consumer = Consumer::new(area, 0);
    let whole = vec![0; MAX_RECORD_BYTES - RECORD_HEAD];
    for _ in 0..COMMAND_BYTES / MAX_RECORD_BYTES {
        assert!(producer.append(NO_SLOT, 1, 0, &whole));
    }
    assert!(!producer.append(NO_SLOT, 1, 0, &[]));
    assert!(consumer.has_more());
    // The device publishes its head only when there is much room, or all of it.
    assert!(consumer.next(&mut Vec::new()).unwrap().is_some());
    assert!(producer.append(NO_SLOT, 1, 0, &[]));
    while consumer.next(&mut Vec::new()).unwrap().is_some() {}
    for _ in 0..COMMAND_BYTES / MAX_RECORD_BYTES - 1 {
        assert!(producer.append(NO_SLOT, 1, 0, &whole));
    }
}

#[test]
fn pitfall_81_an_invalid_ring_is_refused_whatever_the_guest_writes() {
    let mut memory = Memory::new();
    let area = memory.area();
    let tail = |value: u64| area.u64_at(TAIL).store(value, Ordering::Release);
    let word = |value: u64| area.u64_at(COMMAND_OFFSET).store(value, Ordering::Release);
    let next = || Consumer::new(area, 0).next(&mut Vec::new());
    for wrong in [1, 12, COMMAND_BYTES as u64 + 8, u64::MAX - 7] {
        tail(wrong);
        assert_eq!(next(), Err(Broken::Tail), "{wrong:#x}");
    }
    tail(64);
    for bytes in [0_u64, 7, 8, 12, 72, u64::from(u32::MAX)] {
        word(bytes);
        assert_eq!(next(), Err(Broken::Length), "{bytes}");
    }
    // Filler that reaches past the tail is invalid.
    word(72 | u64::from(FILLER) << 32);
    assert_eq!(next(), Err(Broken::Length));
}

#[test]
fn pitfall_81_a_guest_that_rewrites_the_ring_under_the_reader_gets_an_error_or_its_own_bytes() {
    let mut memory = Memory::new();
    let area = memory.area();
    let stop = Arc::new(AtomicBool::new(false));
    let hostile = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            let mut n = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                area.u64_at(COMMAND_OFFSET + (n >> 20) as usize % 64 * 8)
                    .store(n >> 50 << 3 | (n & 3) << 62, Ordering::Relaxed);
                area.u64_at(TAIL).store(n >> 45, Ordering::Relaxed);
            }
        })
    };
    let mut commands = Vec::new();
    for _ in 0..200_000 {
        let mut consumer = Consumer::new(area, 0);
        while let Ok(Some(record)) = consumer.next(&mut commands) {
            assert_eq!(commands.len() * 8 + RECORD_HEAD, record.bytes as usize);
        }
    }
    stop.store(true, Ordering::Relaxed);
    hostile.join().unwrap();
}

/// A worker that sleeps, woken only if the flag requires it.
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

#[test]
fn pitfall_79_no_wake_up_is_lost() {
    lose_no_wake_up(false);
}

#[test]
fn pitfall_79_no_wake_up_of_a_relaxed_ring_is_lost() {
    lose_no_wake_up(true);
}

fn lose_no_wake_up(is_relaxed: bool) {
    const ROUNDS: u32 = 100_000;
    let mut memory = Memory::new();
    let area = memory.area();
    let mut producer = Producer::new(area, 0);
    if is_relaxed {
        producer.relax();
    }
    let mut consumer = Consumer::new(area, 0);
    let bell = Arc::new(Bell {
        rung: Mutex::new(false),
        ring: Condvar::new(),
    });
    let worker = {
        let bell = Arc::clone(&bell);
        thread::spawn(move || {
            let mut commands = Vec::new();
            let mut expected = 1;
            while expected <= ROUNDS {
                while let Some(record) = consumer.next(&mut commands).unwrap() {
                    assert_eq!(record.sequence, expected);
                    area.slot(0)
                        .answer(record.sequence, 0, &commands[0].to_le_bytes(), &[]);
                    expected += 1;
                }
                if expected <= ROUNDS && consumer.prepare_to_sleep() {
                    // There is no other time-out: a lost wake-up hangs the test.
                    consumer.sleep(is_relaxed, |_, limit| {
                        let limit = limit.unwrap_or(Duration::MAX);
                        let rung = bell.rung.lock().unwrap();
                        let (mut rung, _) = bell
                            .ring
                            .wait_timeout_while(rung, limit, |rung| !*rung)
                            .unwrap();
                        *rung = false;
                    });
                    consumer.awake();
                }
            }
        })
    };
    let mut answer = Vec::new();
    for sequence in 1..=ROUNDS {
        let word = u64::from(sequence) * 3;
        assert!(producer.append(0, sequence, 0, &word.to_le_bytes()));
        if producer.must_wake() {
            *bell.rung.lock().unwrap() = true;
            bell.ring.notify_one();
        }
        while area.slot(0).answered(sequence).is_none() {
            std::hint::spin_loop();
            thread::yield_now();
        }
        area.slot(0).take(&mut answer);
        assert_eq!(answer, word.to_le_bytes());
    }
    worker.join().unwrap();
}

/// The driver checks for a sleeping device too early, and the device sees its new tail late. GPGPU-DEV-75,
/// GPGPU-DRV-40.
#[test]
fn pitfall_79_the_device_of_a_relaxed_ring_looks_again() {
    let mut memory = Memory::new();
    let area = memory.area();
    let producer = RefCell::new(Producer::new(area, 0));
    let mut consumer = Consumer::new(area, 0);
    assert!(consumer.prepare_to_sleep());
    consumer.sleep(true, |sleeping, limit| {
        assert_eq!(sleeping.load(Ordering::Relaxed), 1);
        assert!(limit.is_some_and(|limit| limit <= LOOKS_AGAIN_AFTER));
        let mut producer = producer.borrow_mut();
        if producer.tail() == 0 {
            assert!(producer.append(NO_SLOT, 1, 0, &[]));
        }
    });
    consumer.awake();
    assert!(consumer.next(&mut Vec::new()).unwrap().is_some());

    // Waits that end early count, too, and only the last one has no limit.
    assert!(consumer.prepare_to_sleep());
    let begin = Instant::now();
    let waits = RefCell::new(Vec::new());
    consumer.sleep(true, |_, limit| {
        assert!(limit.is_some() || begin.elapsed() >= LOOKS_AGAIN_AFTER);
        waits.borrow_mut().push(limit.is_some());
    });
    let waits = waits.into_inner();
    assert_eq!(waits.iter().filter(|has_limit| !**has_limit).count(), 1);
    assert_eq!(waits.last(), Some(&false));
    assert!(waits.len() > 1);
    // The driver has woken it, so the device need not wait.
    area.sleeping().store(0, Ordering::Relaxed);
    consumer.sleep(true, |_, limit| assert_eq!(limit, None));
}

#[test]
fn a_slot_distinguishes_a_request_from_the_previous_one() {
    let mut memory = Memory::new();
    let slot = memory.area().slot(3);
    slot.clear();
    assert_eq!(slot.answered(5), None);
    slot.answer(5, 2, b"fo", b"ur");
    assert_eq!(slot.answered(5), Some(2));
    assert_eq!(slot.answered(6), None);
    slot.fence(1).store(5, Ordering::Release);
    slot.clear();
    assert_eq!(
        (slot.answered(5), slot.fence(1).load(Ordering::Relaxed)),
        (None, 0)
    );
}
