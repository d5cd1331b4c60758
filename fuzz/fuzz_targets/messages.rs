// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The messages between the processes: those from a compromised worker to its device process, and those that each of
//! the other processes gets from a compromised sender. A dropped message must leave no descriptor open.
#![no_main]

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::OnceLock,
};

use libfuzzer_sys::fuzz_target;
use nix::sys::memfd::{MFdFlags, memfd_create};
use vhost_device_gpgpu::ipc::{self, device, mover, peers};
use virtio_gpgpu_fuzz::{
    device::{lowest_free_descriptor, send_raw},
    input::Input,
};

/// The most messages of one input.
const MOST: usize = 16;
/// The size of the file that is sent with messages.
const FILE_BYTES: u64 = 4096;

/// The payload of messages: the list of runs, for messages with such a list.
fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = memfd_create(c"list", MFdFlags::MFD_CLOEXEC).expect("no memfd");
        let file = File::from(file);
        file.set_len(FILE_BYTES).expect("no room");
        file
    })
}

/// The number of files for a message; before some messages, the list of runs is written anew.
fn files(input: &mut Input<'_>) -> usize {
    match input.u8() {
        few @ 0..=127 => usize::from(few % 8),
        few @ 128..=191 => {
            let length = usize::from(input.u8());
            let list = input.bytes(length);
            file().write_all_at(list, 0).expect("no room");
            usize::from(few % 8)
        }
        many => usize::from(many),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let list = file();
    let before = lowest_free_descriptor();
    let mut input = Input::new(bytes);
    let (ours, theirs) = ipc::pair().expect("no sockets");
    let to = input.u8() % 11;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let files = files(&mut input);
        let length = usize::from(input.u16() % 1024);
        let message = input.bytes(length);
        send_raw(ours.as_fd(), message, &vec![list.as_raw_fd(); files]);
    }
    // All waiters notice the end.
    drop(ours);
    receive(to, theirs);
    assert_eq!(lowest_free_descriptor(), before, "a descriptor is kept");
});

fn receive(to: u8, socket: OwnedFd) {
    match to {
        0 => {
            let end = ipc::DeviceEnd::new(socket);
            let mut buffer = Vec::new();
            while let Ok(Some(message)) = end.recv(&mut buffer) {
                if let ipc::FromWorker::Answer { answer, .. }
                | ipc::FromWorker::Move { answer, .. } = message
                {
                    assert!(answer.len() <= ipc::MAX_MESSAGE_BYTES);
                }
            }
        }
        1 => {
            let end = mover::DeviceEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        2 => {
            let end = device::SupervisorEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        3 => {
            let end = mover::MoverEnd::new(socket);
            let mut buffer = Vec::new();
            while let Ok(message) = end.recv(&mut buffer) {
                if let mover::ToMover::Move(what) = message {
                    assert!(what.runs.len() <= mover::MAX_RUNS);
                }
            }
        }
        4 => {
            let end = device::DeviceEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        5 => {
            let end = ipc::WorkerEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        6 => while let Ok(Some(_)) = mover::take_order(socket.as_fd()) {},
        7 => {
            let end = peers::SupervisorEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        8 => {
            let end = peers::WorkerEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        9 => {
            let end = peers::HostEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        _ => {
            let end = peers::VisitorEnd::new(socket);
            let question = peers::Question {
                seq: 1,
                what: 1,
                token: [0; peers::TOKEN_BYTES],
            };
            let now = std::time::Instant::now();
            while let Ok(Some(_)) = end.ask(question, now) {}
        }
    }
}
