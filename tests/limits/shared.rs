// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory that processes share: it counts for each process that has it open, and never leaves its VM.

use crate::{MIB, Program, host::wait_for, limit, start};

/// A name of a program's last allocation, with which another one can open it.
fn share(program: &mut Program) -> Vec<u64> {
    let answer = program.ask("share");
    assert_eq!((answer[0], answer.len()), (0, 65), "{answer:?}");
    answer[1..].to_vec()
}

fn open(handle: &[u64]) -> String {
    let bytes: Vec<String> = handle.iter().map(u64::to_string).collect();
    format!("open {}", bytes.join(" "))
}

#[test]
fn pitfall_65_shared_memory_counts_for_each_process_that_has_it() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    let free = one.info().0;
    let part = free / 3 / (2 * MIB) * (2 * MIB);
    // There is no room for more than half twice.
    one.succeeds(&format!("alloc {}", 2 * part));
    let whole = share(&mut one);
    other.has_no_room(&open(&whole));
    assert_eq!(other.info().0, free - 2 * part);
    one.succeeds("free");
    one.succeeds(&format!("alloc {part}"));
    let handle = share(&mut one);
    other.succeeds(&open(&handle));
    assert_eq!(other.info().0, free - 2 * part);
    // Opening it once more counts once more.
    other.succeeds(&open(&handle));
    assert_eq!(other.info().0, free - 2 * part);
    other.succeeds("close");
    // Memory that its owner has freed exists as long as others have it open, and counts for them.
    one.succeeds("free");
    assert_eq!(other.info().0, free - 2 * part);
    one.has_no_room(&format!("alloc {}", 2 * part));
    other.succeeds("close");
    wait_for("what was lent", || (one.info().0 == free).then_some(()));
    one.succeeds(&format!("alloc {}", 2 * part));
    one.succeeds("free");
    // The memory of a dead process, and the memory that it had open, is returned, and no more.
    one.succeeds(&format!("alloc {part}"));
    let handle = share(&mut one);
    other.succeeds(&open(&handle));
    one.0.kill();
    // Its context is destroyed too.
    wait_for("what a dead process had", || {
        (other.info().0 > free - part).then_some(())
    });
    other.has_no_room(&format!("alloc {free}"));
    let mut third = Program::start(&back_end, 0);
    third.has_no_room(&format!("alloc {}", free - part + 2 * MIB));
    assert_eq!(third.info().0, free - part);
    other.0.kill();
    wait_for("what the last had open", || {
        (third.info().0 > free).then_some(())
    });
}

#[test]
fn pitfall_65_memory_of_shared_pools_counts_and_stays_in_its_vm() {
    const INVALID_VALUE: u64 = 1;
    const INVALID_HANDLE: u64 = 400;
    const UNKNOWN: u64 = 999;
    const INVALID_DEVICE: u64 = 101;
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    let mut stranger = Program::start(&back_end, 1);
    let share = |program: &mut Program, bytes: u64| {
        let answer = program.ask(&format!("share-pooled {bytes}"));
        assert_eq!((answer[0], answer.len()), (0, 145), "{answer:?}");
        answer[1..].to_vec()
    };
    let open = |pooled: &[u64]| {
        let bytes: Vec<String> = pooled.iter().map(u64::to_string).collect();
        format!("open-pooled {}", bytes.join(" "))
    };
    let (free, free_of_stranger) = (one.info().0, stranger.info().0);
    let part = free / 3 / (2 * MIB) * (2 * MIB);
    let pooled = share(&mut one, 2 * part);
    // There is no room for more than half twice.
    other.has_no_room(&open(&pooled));
    one.succeeds("free");
    wait_for("what was freed", || (one.info().0 == free).then_some(()));
    let pooled = share(&mut one, part);
    other.succeeds(&open(&pooled));
    assert_eq!(other.info().0, free - 2 * part);
    // Memory that its owner has freed exists as long as others have it open, and counts for them.
    one.succeeds("free");
    assert_eq!(other.info().0, free - 2 * part);
    one.has_no_room(&format!("alloc {}", 2 * part));
    other.succeeds("free-pooled");
    wait_for("what was lent", || (one.info().0 == free).then_some(()));
    // A stranger's descriptor with the pool's name opens nothing.
    let pooled = share(&mut one, part);
    assert_eq!(stranger.ask(&open(&pooled)), [INVALID_HANDLE]);
    // Guesses of the pool, its owner and its GPU; of the allocation and its secret.
    for at in 0..pooled.len() {
        let mut guess = pooled.clone();
        guess[at] ^= 0x80;
        let answer = other.ask(&open(&guess))[0];
        let refused = [INVALID_VALUE, INVALID_DEVICE, INVALID_HANDLE, UNKNOWN];
        assert!(refused.contains(&answer), "byte {at}: {answer}");
        assert_ne!(stranger.ask(&open(&guess)), [0], "byte {at}");
    }
    assert_eq!(stranger.info().0, free_of_stranger);
    // The memory that a dead process had open is returned, and no more.
    other.0.kill();
    wait_for("what a dead process had", || {
        (one.info().0 >= free - part).then_some(())
    });
    one.succeeds("free");
}

#[test]
fn pitfall_65_handles_are_good_in_their_own_vm_alone() {
    const INVALID_VALUE: u64 = 1;
    const INVALID_HANDLE: u64 = 400;

    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    let mut stranger = Program::start(&back_end, 1);
    one.succeeds(&format!("alloc {}", 40 * MIB));
    let handle = share(&mut one);
    assert_eq!(stranger.ask(&open(&handle)), [INVALID_HANDLE]);
    other.succeeds(&open(&handle));
    // Guesses of the secret, of the owner, and of the kind.
    for at in 0..64 {
        let mut guess = handle.clone();
        guess[at] ^= 0x80;
        let answer = other.ask(&open(&guess));
        let is_owner = (8..16).contains(&at);
        let wanted = if is_owner {
            INVALID_HANDLE
        } else {
            INVALID_VALUE
        };
        assert_eq!(answer, [wanted], "byte {at}");
        assert_ne!(stranger.ask(&open(&guess)), [0], "byte {at}");
    }
    // The stranger tries again and again, and others are served as before.
    for _ in 0..300 {
        assert_eq!(stranger.ask(&open(&handle)), [INVALID_HANDLE]);
    }
    for _ in 0..20 {
        other.succeeds(&open(&handle));
        other.succeeds("close");
    }
    one.0.kill();
    other.succeeds("close");
    wait_for("the end of the owner", || {
        (other.ask(&open(&handle)) == [INVALID_HANDLE]).then_some(())
    });
}
