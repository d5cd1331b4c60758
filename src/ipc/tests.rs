// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
use std::{
    os::{fd::AsFd, unix::fs::FileExt},
    sync::Arc,
};

use gpgpu_protocol::layout::{MAX_ANSWER_BYTES, MAX_STREAM_BYTES, status};
use zerocopy::IntoBytes;

use super::{
    messages::{Header, kind},
    *,
};

fn channel() -> (DeviceEnd, WorkerEnd) {
    let (device, worker) = pair().unwrap();
    (DeviceEnd::new(device), WorkerEnd::new(worker))
}

fn file(bytes: &[u8]) -> Arc<File> {
    let file = sealed_memfd(c"test", bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    Arc::new(file)
}

#[test]
fn the_worker_receives_the_devices_messages() {
    let (device, worker) = channel();
    assert!(device.send(&Message::setup(file(b"staging!"), 8)).unwrap());
    let Some(ToWorker::Setup { staging, size: 8 }) = worker.recv().unwrap() else {
        panic!("no setup");
    };
    let mut content = [0; 8];
    File::from(staging).read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"staging!");

    let input = Span { offset: 4, len: 2 };
    let output = Span { offset: 6, len: 1 };
    let data = CommandData {
        external: false,
        input,
        output,
        offset: 1 << 40,
    };
    let mut message = Message::command(9, 7, 100, data, 3);
    message.payload_mut().copy_from_slice(b"abc");
    assert!(device.send(&message).unwrap());
    match worker.recv().unwrap().unwrap() {
        ToWorker::Command {
            seq: 9,
            thread: 7,
            answer_bytes: 100,
            external: false,
            input: i,
            output: o,
            data_offset: 0x100_0000_0000,
            stream,
        } => {
            assert_eq!((i, o, &stream[..]), (input, output, &b"abc"[..]));
        }
        other => panic!("{other:?}"),
    }

    let files = vec![file(b"first"), file(b"second")];
    let runs = [(1, 0x1000, 0x2000), (0, 0, 0x1000), (1, 0x8000, 0x1000)];
    assert!(
        device
            .send(&Message::map(10, 3, 0x7000_0000, 0x4000, files, &runs).unwrap())
            .unwrap()
    );
    match worker.recv().unwrap().unwrap() {
        ToWorker::Map {
            seq: 10,
            region: 3,
            address: 0x7000_0000,
            length: 0x4000,
            runs: got,
        } => {
            let got: Vec<_> = got
                .into_iter()
                .map(|run| {
                    let mut byte = [0];
                    let file = File::from(run.file.try_clone().unwrap());
                    file.read_exact_at(&mut byte, 0).unwrap();
                    (byte[0], run.offset, run.length)
                })
                .collect();
            assert_eq!(
                got,
                [
                    (b's', 0x1000, 0x2000),
                    (b'f', 0, 0x1000),
                    (b's', 0x8000, 0x1000)
                ]
            );
        }
        other => panic!("{other:?}"),
    }

    assert!(device.send(&Message::unmap(11, 3)).unwrap());
    assert!(matches!(
        worker.recv().unwrap(),
        Some(ToWorker::Unmap { seq: 11, region: 3 })
    ));
    drop(device);
    assert!(
        worker.recv().unwrap().is_none(),
        "the end of the channel is no error"
    );
}

#[test]
fn the_device_receives_the_workers_messages() {
    let (device, worker) = channel();
    let mut buffer = Vec::new();
    assert_eq!(device.recv(&mut buffer).unwrap(), None);
    worker.ready(status::NO_GPU).unwrap();
    let ready = FromWorker::Ready {
        status: status::NO_GPU,
    };
    assert_eq!(device.recv(&mut buffer).unwrap(), Some(ready));
    let answer = vec![0xa5; MAX_ANSWER_BYTES];
    worker.answer(1, status::OK, &answer, 77).unwrap();
    assert_eq!(
        device.recv(&mut buffer).unwrap(),
        Some(FromWorker::Answer {
            seq: 1,
            status: status::OK,
            out_bytes: 77,
            answer: &answer
        })
    );
    assert!(
        worker
            .answer(1, status::OK, &vec![0; MAX_ANSWER_BYTES + 1], 0)
            .is_err()
    );
    worker.done(2, status::NO_RESOURCES).unwrap();
    let done = FromWorker::Done {
        seq: 2,
        status: status::NO_RESOURCES,
    };
    assert_eq!(device.recv(&mut buffer).unwrap(), Some(done));
    drop(worker);
    assert!(matches!(device.recv(&mut buffer), Err(Error::Closed)));
    assert!(matches!(
        device.send(&Message::unmap(1, 1)),
        Err(Error::Closed)
    ));
}

/// A worker's last messages are received, even if it has not read all messages that it was sent.
#[test]
fn messages_sent_before_the_end_arrive() {
    let (device, worker) = channel();
    assert!(device.send(&Message::unmap(1, 1)).unwrap());
    worker.ready(status::NO_GPU).unwrap();
    drop(worker);
    let mut buffer = Vec::new();
    let ready = FromWorker::Ready {
        status: status::NO_GPU,
    };
    assert_eq!(device.recv(&mut buffer).unwrap(), Some(ready));
    assert!(matches!(device.recv(&mut buffer), Err(Error::Closed)));
}

/// Threads of a worker answer at the same time, and every answer arrives complete.
#[test]
fn any_thread_may_answer() {
    let (device, worker) = channel();
    let mut seen = [false; 400];
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let worker = &worker;
            scope.spawn(move || {
                for seq in (thread..400u64).step_by(4) {
                    worker
                        .answer(seq, 0, &vec![seq as u8; 1000 + seq as usize], seq)
                        .unwrap();
                }
            });
        }
        let mut buffer = Vec::new();
        let mut left = seen.len();
        while left > 0 {
            let mut fds = [nix::poll::PollFd::new(
                device.as_fd(),
                nix::poll::PollFlags::POLLIN,
            )];
            nix::poll::poll(&mut fds, nix::poll::PollTimeout::NONE).unwrap();
            while let Some(message) = device.recv(&mut buffer).unwrap() {
                let FromWorker::Answer {
                    seq,
                    out_bytes,
                    answer,
                    ..
                } = message
                else {
                    panic!("{message:?}");
                };
                assert_eq!((out_bytes, answer.len()), (seq, 1000 + seq as usize));
                assert!(answer.iter().all(|&byte| byte == seq as u8));
                assert!(!std::mem::replace(&mut seen[seq as usize], true));
                left -= 1;
            }
        }
    });
}

/// If a worker does not read, the channel becomes full, but the device process does not wait. The longest message is
/// sent once the worker reads.
#[test]
fn pitfall_82_a_full_channel_does_not_block() {
    let (device, worker) = channel();
    let none = CommandData::default();
    let message = |seq| Message::command(seq, 0, 0, none, MAX_STREAM_BYTES);
    let mut sent = 0;
    while device.send(&message(sent)).unwrap() {
        sent += 1;
    }
    assert!(sent > 0);
    for expected in 0..sent {
        let received = worker.recv().unwrap();
        let Some(ToWorker::Command { seq, stream, .. }) = received else {
            panic!("{received:?}");
        };
        assert_eq!((seq, stream.len()), (expected, MAX_STREAM_BYTES));
    }
    assert!(device.send(&message(sent)).unwrap());
}

#[test]
fn nonsense_from_a_worker_is_an_error() {
    let (device, worker) = pair().unwrap();
    let device = DeviceEnd::new(device);
    let mut buffer = Vec::new();
    let mut refused = |bytes: &[u8], fds: &[RawFd]| {
        assert!(send(worker.as_fd(), &[bytes], fds, MsgFlags::empty()).unwrap());
        matches!(device.recv(&mut buffer), Err(Error::Malformed(_)))
    };
    let header = |kind, payload| Header {
        kind,
        payload,
        ..Header::default()
    };
    assert!(refused(b"short", &[]));
    assert!(refused(header(99, 0).as_bytes(), &[]));
    assert!(refused(header(kind::ANSWER, 5).as_bytes(), &[]));
    assert!(refused(&vec![0; MAX_MESSAGE_BYTES + 1], &[]));
    assert!(refused(
        header(kind::DONE, 0).as_bytes(),
        &[worker.as_raw_fd()]
    ));
    assert!(!refused(header(kind::DONE, 0).as_bytes(), &[]));
}

/// The supervisor accepts only messages of its own kinds, without a payload or files. A mover's message has no payload
/// either.
#[test]
fn nonsense_from_a_device_process_or_a_mover_is_an_error() {
    let (ours, theirs) = pair().unwrap();
    let end = device::SupervisorEnd::new(theirs);
    let refused = |bytes: &[u8], fds: &[RawFd]| {
        assert!(send(ours.as_fd(), &[bytes], fds, MsgFlags::empty()).unwrap());
        matches!(end.recv(), Err(Error::Malformed(_)))
    };
    let start = |kind: u32, bytes: usize| {
        let mut message = vec![0; bytes];
        message[..4].copy_from_slice(&kind.to_ne_bytes());
        message
    };
    assert!(refused(&start(68, 31), &[]), "too short");
    assert!(refused(&start(68, 33), &[]), "too long");
    assert!(refused(&start(1, 32), &[]), "a kind for the device process");
    assert!(refused(&start(68, 32), &[ours.as_raw_fd()]), "a file");
    assert!(!refused(&start(68, 32), &[]));

    let (ours, theirs) = pair().unwrap();
    let end = mover::DeviceEnd::new(theirs);
    let mut counting = start(65, 48);
    send(ours.as_fd(), &[&counting], &[], MsgFlags::empty()).unwrap();
    assert_eq!(end.recv().unwrap(), Some(mover::FromMover::Ready));
    // Runs that the message does not contain.
    counting[40] = 1;
    send(ours.as_fd(), &[&counting], &[], MsgFlags::empty()).unwrap();
    assert!(matches!(end.recv(), Err(Error::Malformed(_))));
}

/// While too many descriptors are in flight, the supervisor's messages arrive without theirs: the device process is told
/// that there is no worker, and no process is taken for one that does not read.
#[test]
fn a_message_goes_without_its_file_if_too_many_are_in_flight() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "ipc::tests::crowded", "--ignored"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(output.contains("1 passed"), "{output}");
}

/// The limit of descriptors in flight is that of the process and does not hold for privileged ones.
#[test]
#[ignore = "a process of its own, for the test above"]
fn crowded() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    let (ours, theirs) = pair().unwrap();
    let supervisor = device::SupervisorEnd::new(ours);
    let device = device::DeviceEnd::new(theirs);
    let (to_worker, _worker) = channel();
    let started = |client| device::ToDevice::WorkerStarted {
        client,
        channel: file(b"x").try_clone().unwrap().into(),
    };
    let messages = [started(1), started(2)];
    let map = Message::setup(file(b"staging!"), 8);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    caps::clear(None, caps::CapSet::Effective).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
    let sent = messages.each_ref().map(|message| supervisor.send(message));
    let full = to_worker.send(&map);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert!(matches!(full, Err(Error::Crowded)), "{full:?}");
    // Descriptors of other processes of the user may have been in flight before the first message.
    device.recv().unwrap().unwrap();
    let second = device.recv().unwrap();
    assert!(
        matches!(
            second,
            Some(device::ToDevice::WorkerFailed { client: 2, .. })
        ),
        "{second:?}"
    );
    assert!(to_worker.send(&map).unwrap());
}

/// A length in a message does not determine the size of an allocation, whoever sent the message.
#[test]
fn pitfall_81_a_list_of_more_runs_than_there_may_be_is_refused() {
    let (device, worker) = channel();
    let header = Header {
        kind: kind::MAP,
        count: u32::MAX,
        ..Header::default()
    };
    let list = file(&[0; 64]);
    let sent = send(
        device.as_fd(),
        &[header.as_bytes()],
        &[list.as_raw_fd()],
        MsgFlags::empty(),
    );
    assert!(sent.unwrap());
    assert!(matches!(worker.recv(), Err(Error::Malformed(_))));
}

/// Every end closes surplus descriptors: the other end of the pipe sees that no process has them.
#[test]
fn descriptors_that_no_message_has_are_closed() {
    use std::io::Read;

    let head = |kind, bytes: usize| {
        let mut head = vec![0; bytes];
        head[..4].copy_from_slice(&u32::to_ne_bytes(kind));
        head
    };
    type End = Box<dyn Fn(OwnedFd) -> bool>;
    let malformed = |error: Option<Error>| matches!(error, Some(Error::Malformed(_)));
    let ends: [(usize, u32, End); 6] = [
        (
            size_of::<Header>(),
            kind::DONE,
            Box::new(move |fd| malformed(DeviceEnd::new(fd).recv(&mut Vec::new()).err())),
        ),
        (
            48,
            66,
            Box::new(move |fd| malformed(mover::DeviceEnd::new(fd).recv().err())),
        ),
        (
            48,
            2,
            Box::new(move |fd| malformed(mover::MoverEnd::new(fd).recv(&mut Vec::new()).err())),
        ),
        (
            32,
            67,
            Box::new(move |fd| malformed(device::SupervisorEnd::new(fd).recv().err())),
        ),
        (
            16,
            67,
            Box::new(move |fd| malformed(peers::SupervisorEnd::new(fd).recv().err())),
        ),
        (
            72,
            129,
            Box::new(move |fd| malformed(peers::HostEnd::new(fd).recv().err())),
        ),
    ];
    for (number, (bytes, kind, is_refused)) in ends.iter().enumerate() {
        for count in [1, 2, 250, 253] {
            let (ours, theirs) = pair().unwrap();
            let (mut reader, writer) = io::pipe().unwrap();
            let files = vec![writer.as_raw_fd(); count];
            let message = head(*kind, *bytes);
            assert!(send(ours.as_fd(), &[&message], &files, MsgFlags::empty()).unwrap());
            drop(writer);
            assert!(is_refused(theirs), "end {number} takes {count}");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "end {number} of {count}");
        }
    }
}

#[test]
fn a_visitor_receives_the_answer_to_its_question_and_no_other() {
    use peers::{Given, HostEnd, Question, ToHost, VisitorEnd};
    use std::time::{Duration, Instant};

    let (ours, theirs) = pair().unwrap();
    let (visitor, host) = (VisitorEnd::new(ours), HostEnd::new(theirs));
    let question = |seq| Question {
        seq,
        what: 1,
        token: [7; peers::TOKEN_BYTES],
    };
    let given = Given {
        number: 3,
        bytes: 64,
        offset: 8,
        length: 16,
        gpu: 1,
        detail: 0,
    };
    let soon = || Instant::now() + Duration::from_secs(5);
    let answers = std::thread::spawn(move || {
        let null = File::open("/dev/null").unwrap();
        for seq in 1..4 {
            // The request may arrive a moment later.
            let asked = loop {
                match host.recv().unwrap() {
                    Some(message) => break message,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(asked, ToHost::Ask(question(seq)));
            match seq {
                // The answer to a request that was given up arrives late.
                1 => {
                    host.answer(0, Some((given, null.as_fd()))).unwrap();
                    host.answer(1, Some((given, null.as_fd()))).unwrap();
                }
                2 => host.answer(2, None).unwrap(),
                _ => host.answer(3, Some((given, null.as_fd()))).unwrap(),
            }
        }
        host
    });
    let (got, _file) = visitor.ask(question(1), soon()).unwrap().unwrap();
    assert_eq!(got, given);
    assert!(visitor.ask(question(2), soon()).unwrap().is_none());
    assert!(visitor.ask(question(3), soon()).unwrap().is_some());
    let host = answers.join().unwrap();
    visitor.give_back([7; peers::TOKEN_BYTES], 2).unwrap();
    let returned = ToHost::Return([7; peers::TOKEN_BYTES], 2);
    assert_eq!(host.recv().unwrap(), Some(returned));
    // The wait for a host that does not answer is limited, and a host that has ended is not waited for.
    let now = Instant::now();
    assert!(matches!(
        visitor.ask(question(4), now),
        Err(Error::Malformed(_))
    ));
    drop(host);
    assert!(matches!(
        visitor.ask(question(5), soon()),
        Err(Error::Closed)
    ));
}
