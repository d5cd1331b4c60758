// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A worker that executes the first byte of a stream, and calls no CUDA.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use gpgpu_protocol::{api::Sensor, futex, layout::status};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{ControlMessage, MsgFlags, Shutdown, sendmsg, shutdown},
};
use vhost_device_gpgpu::{
    account::{Account, Shared, grant},
    ipc::{MAX_MESSAGE_BYTES, Span, ToWorker, WorkerEnd},
};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// Takes the GPU's lease for a moment, answers with the stream, and returns the data.
pub const STEP: u8 = 1;
/// Sends more descriptors than any message can have.
pub const MANY_FILES: u8 = 2;
/// Sends more descriptors than this message has.
pub const TWO_FILES: u8 = 3;
/// Sends less than a header.
pub const SHORT: u8 = 4;
/// Sends more bytes than any message has.
pub const LONG: u8 = 5;
/// Closes one direction of its channel.
pub const HALF: u8 = 6;
/// Sends unrequested answers forever, and never reads.
pub const FLOOD: u8 = 7;
/// Exports memory that cannot be withdrawn.
pub const WILD: u8 = 8;
/// Rings the doorbell forever, from two threads.
pub const RING: u8 = 9;
/// Prints forever, to pipes for which it does not wait.
pub const PRINT: u8 = 10;
/// Takes its own ring back before the supervisor can, so that the supervisor would wait for the next ring, which never
/// comes.
pub const LURE: u8 = 11;
/// Sends the supervisor more descriptors than any message can have, and then an invalid message.
pub const FILES_FOR_OTHERS: u8 = 12;
/// Accepts visitors and asks to meet every worker, forever, and never reads.
pub const MEET: u8 = 13;

/// Asks for the sensors of all GPUs, many times, and searches all of its VM's terms for values: the answer's second
/// byte is the number of GPUs for which it has found values.
pub const SENSE: u8 = 14;

/// The values of the test's sensors.
pub const VALUE: u64 = 0x5ec2_e75e_c2e7;

/// The size of a message's head, whose first word is its kind.
const HEAD: usize = 72;
const DONE: u32 = 67;
const EXPORT: u32 = 68;
const UNEXPORT: u32 = 69;
const MEETING: u32 = 65;
const LISTEN: u32 = 67;
const ASKING: u32 = 68;

/// The longest wait of the supervisor's lure for the GPU.
const PATIENCE: Duration = Duration::from_millis(50);

struct Shares {
    account: Shared<Account>,
    doorbell: File,
    /// The channel by which workers meet.
    peers: OwnedFd,
    /// The VM's limits and state.
    terms: File,
}

impl Shares {
    fn ring(&self) {
        let _ = (&self.doorbell).write(&1_u64.to_ne_bytes());
    }

    /// Waits for the GPU, so long at most, and gives it back.
    fn take_turn(&self, limit: Duration) -> bool {
        let lease = &self.account.leases[0];
        let number = |word: u32| word & !grant::MODE;
        let began = Instant::now();
        self.account.used.fetch_or(1, SeqCst);
        lease.wants.store(1, SeqCst);
        self.ring();
        let word = loop {
            let word = lease.grant.load(SeqCst);
            let is_new = number(word) != lease.returned.load(SeqCst);
            if word & grant::MODE != grant::CLOSED && is_new {
                break word;
            }
            if began.elapsed() > limit {
                return false;
            }
            futex::wait_for(&lease.grant, word, limit);
        };
        lease.wants.store(0, SeqCst);
        lease.returned.store(number(word), SeqCst);
        self.ring();
        true
    }
}

/// Does not wait from now on.
fn set_nonblocking(file: impl AsFd, is_nonblocking: bool) {
    let mut flags = OFlag::empty();
    flags.set(OFlag::O_NONBLOCK, is_nonblocking);
    fcntl(file, FcntlArg::F_SETFL(flags)).unwrap();
}

fn send(channel: &impl AsFd, bytes: &[u8], files: &[i32]) -> bool {
    let rights = [ControlMessage::ScmRights(files)];
    let rights = if files.is_empty() { &[][..] } else { &rights };
    let iov = [std::io::IoSlice::new(bytes)];
    let to = channel.as_fd().as_raw_fd();
    sendmsg::<()>(to, &iov, rights, MsgFlags::MSG_NOSIGNAL, None).is_ok()
}

fn head(kind: u32) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&kind.to_ne_bytes());
    head
}

/// A message of the channel by which workers meet.
fn meeting(kind: u32, number: u64) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&kind.to_ne_bytes());
    head[8..].copy_from_slice(&number.to_ne_bytes());
    head
}

fn attack(how: u8, channel: &Arc<WorkerEnd>, shares: &Arc<Shares>) -> bool {
    let null = File::open("/dev/null").unwrap();
    match how {
        MANY_FILES => drop(send(&**channel, &head(DONE), &[null.as_raw_fd(); 253])),
        TWO_FILES => drop(send(&**channel, &head(EXPORT), &[null.as_raw_fd(); 2])),
        SHORT => drop(send(&**channel, &[0; 5], &[])),
        LONG => drop(send(&**channel, &vec![0; MAX_MESSAGE_BYTES + 1], &[])),
        HALF => shutdown(channel.as_fd().as_raw_fd(), Shutdown::Write).unwrap(),
        FLOOD => while send(&**channel, &head(DONE), &[]) {},
        WILD => while send(&**channel, &head(UNEXPORT), &[]) {},
        RING => {
            shares.account.leases[0].wants.store(1, SeqCst);
            shares.account.used.fetch_or(u64::MAX, SeqCst);
            for _ in 0..2 {
                let shares = Arc::clone(shares);
                thread::spawn(move || {
                    loop {
                        shares.ring();
                    }
                });
            }
            return true;
        }
        LURE => {
            set_nonblocking(&shares.doorbell, false);
            for _ in 0..2 {
                let shares = Arc::clone(shares);
                thread::spawn(move || while (&shares.doorbell).read(&mut [0; 8]).is_ok() {});
            }
            let shares = Arc::clone(shares);
            thread::spawn(move || while shares.take_turn(PATIENCE) {})
                .join()
                .unwrap();
            return true;
        }
        FILES_FOR_OTHERS => {
            send(&shares.peers, &meeting(LISTEN, 0), &[null.as_raw_fd(); 253]);
            send(&shares.peers, &[0; 5], &[]);
            return true;
        }
        MEET => {
            let shares = Arc::clone(shares);
            send(&shares.peers, &meeting(LISTEN, 0), &[]);
            thread::spawn(move || {
                while (1..64).all(|number| send(&shares.peers, &meeting(MEETING, number), &[])) {}
            });
            return true;
        }
        PRINT => {
            set_nonblocking(std::io::stdout(), true);
            set_nonblocking(std::io::stderr(), true);
            thread::spawn(|| {
                loop {
                    let _ = std::io::stdout().write(&[b'x'; 4096]);
                    let _ = std::io::stderr().write(b"a line of the log\n");
                }
            });
            return true;
        }
        _ => return true,
    }
    false
}

/// See [`SENSE`].
fn sensed(shares: &Shares) -> u8 {
    let numbers = (0..64).chain([1 << 32, u64::MAX]);
    for gpu in numbers {
        send(&shares.peers, &meeting(ASKING, gpu), &[]);
    }
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        let mut terms = Vec::new();
        (&shares.terms).seek(SeekFrom::Start(0)).unwrap();
        (&shares.terms).read_to_end(&mut terms).unwrap();
        let words = terms.chunks_exact(8);
        let found = words.filter(|word| **word == VALUE.to_ne_bytes()).count() / Sensor::COUNT;
        if found > 0 || Instant::now() > deadline {
            return found as u8;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The worker's life: until its channel is closed.
pub fn run(channel: OwnedFd) {
    let channel = Arc::new(WorkerEnd::new(channel));
    let Ok(Some(ToWorker::Serve(serving))) = channel.recv() else {
        return;
    };
    let shares = Arc::new(Shares {
        account: Shared::map(Arc::new(serving.account.into())).unwrap(),
        doorbell: serving.doorbell.into(),
        peers: serving.peers,
        terms: serving.terms.into(),
    });
    if channel.ready(status::OK).is_err() {
        return;
    }
    let Ok(Some(ToWorker::Setup { staging, size })) = channel.recv() else {
        return;
    };
    let staging =
        MmapRegion::<()>::from_file(FileOffset::new(staging.into(), 0), size as usize).unwrap();
    let echo = |stream: &[u8], wanted: u32, input: Span, output: Span| {
        let mut data = vec![0; input.len.min(output.len) as usize];
        let whole = staging.as_volatile_slice();
        whole.read_slice(&mut data, input.offset as usize).unwrap();
        whole.write_slice(&data, output.offset as usize).unwrap();
        (
            stream[..stream.len().min(wanted as usize)].to_vec(),
            data.len() as u64,
        )
    };
    while let Ok(Some(message)) = channel.recv() {
        let ToWorker::Command {
            seq,
            answer_bytes,
            input,
            output,
            stream,
            ..
        } = message
        else {
            continue;
        };
        if stream[0] == STEP {
            shares.take_turn(Duration::from_secs(60));
        } else if !attack(stream[0], &channel, &shares) {
            continue;
        }
        let (mut answer, bytes) = echo(&stream, answer_bytes, input, output);
        if stream[0] == SENSE {
            answer[1] = sensed(&shares);
        }
        let _ = channel.answer(seq, status::OK, &answer, bytes);
    }
}
