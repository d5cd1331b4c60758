// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use super::{
    super::{pair, sealed_memfd},
    *,
};
use crate::account::Shared;

#[test]
fn the_mover_accepts_the_supervisors_orders() {
    let (ours, theirs) = pair().unwrap();
    let (channel, other) = pair().unwrap();
    let tenant = |vm, weight| Tenant { vm, weight };
    let holds = [channel.as_fd(); MAX_HOLDS];
    pass_channel(ours.as_fd(), tenant(3, 200), channel.as_fd(), &holds).unwrap();
    set_weight(ours.as_fd(), tenant(3, 50)).unwrap();
    pass_progress(ours.as_fd(), channel.as_fd()).unwrap();
    drop(channel);
    let Some(Order::Serve(end, of, holds)) = take_order(theirs.as_fd()).unwrap() else {
        panic!("not a channel");
    };
    assert_eq!((of, holds.len()), (tenant(3, 200), MAX_HOLDS));
    end.send(FromMover::Ready);
    assert!(matches!(
        DeviceEnd::new(other).recv(),
        Ok(Some(FromMover::Ready))
    ));
    let Some(Order::Weigh(of)) = take_order(theirs.as_fd()).unwrap() else {
        panic!("not a weight");
    };
    assert_eq!(of, tenant(3, 50));
    let progress = take_order(theirs.as_fd()).unwrap();
    assert!(matches!(progress, Some(Order::Report(_))));
    send(ours.as_fd(), &[&[0; 5]], &[], MsgFlags::empty()).unwrap();
    assert!(take_order(theirs.as_fd()).is_err());
    drop(ours);
    assert!(take_order(theirs.as_fd()).unwrap().is_none());
}

/// The time for which it waited for its turn does not count.
#[test]
fn a_mover_is_stuck_by_a_move_that_it_has_begun_long_ago() {
    let progress = Shared::<Progress>::new(c"test").unwrap();
    let limit = MOVE_LIMIT.as_nanos() as u64;
    assert!(!progress.is_stuck(u64::MAX));
    progress.begun[1][2].store(1000, Ordering::Relaxed);
    assert!(!progress.is_stuck(1000 + limit));
    assert!(progress.is_stuck(1001 + limit));
    assert!(!progress.is_stuck(999), "begun after the clock was read");
    progress.begun[1][2].store(0, Ordering::Relaxed);
    assert!(!progress.is_stuck(1001 + limit));
}

#[test]
fn the_mover_receives_the_devices_messages() {
    let (ours, theirs) = pair().unwrap();
    let (device, mover) = (DeviceEnd::new(ours), MoverEnd::new(theirs));
    let mut buffer = Vec::new();
    let file = Arc::new(sealed_memfd(c"test", 8192).unwrap());
    let runs = (0..MAX_RUNS as u32).map(|at| Run {
        file: 7,
        bytes: at + 1,
        offset: u64::from(at) << 32,
    });
    let what = Move {
        seq: 1 << 40,
        direction: Direction::ToGuest,
        export: 9,
        offset: 1 << 41,
        runs: runs.collect(),
    };
    for message in [
        Message::file(7, 4096, 8192, Arc::clone(&file)),
        Message::r#move(&what),
        Message::unexport(9),
    ] {
        assert!(device.send(&message).unwrap());
    }
    assert!(matches!(
        mover.recv(&mut buffer).unwrap(),
        ToMover::File {
            number: 7,
            offset: 4096,
            bytes: 8192,
            ..
        }
    ));
    match mover.recv(&mut buffer).unwrap() {
        ToMover::Move(received) => assert_eq!(received, what),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        mover.recv(&mut buffer).unwrap(),
        ToMover::Unexport { number: 9 }
    ));
    // A message without its file is invalid.
    let bare = Message {
        file: None,
        ..Message::export(1, 4096, file)
    };
    assert!(device.send(&bare).unwrap());
    assert!(matches!(mover.recv(&mut buffer), Err(Error::Malformed(_))));
    mover.send(FromMover::Moved { seq: 3, done: true });
    assert_eq!(
        device.recv().unwrap(),
        Some(FromMover::Moved { seq: 3, done: true })
    );
    assert_eq!(device.recv().unwrap(), None);
}

/// The mover continues to serve other VMs.
#[test]
fn pitfall_82_a_device_process_that_does_not_read_is_not_waited_for() {
    let (ours, theirs) = pair().unwrap();
    let (device, mover) = (DeviceEnd::new(ours), MoverEnd::new(theirs));
    for seq in 0..1 << 17 {
        mover.send(FromMover::Moved { seq, done: true });
    }
    assert!(matches!(mover.recv(&mut Vec::new()), Err(Error::Closed)));
    let sent = std::iter::from_fn(|| device.recv().ok().flatten()).count();
    assert!(sent > 1000 && sent < 1 << 17, "{sent}");
}
