//! The messages between the processes: what a worker that a guest has taken over sends to its device process, and what each
//! of the others is sent by a process that is not as it should be.
#![no_main]

use std::os::fd::{AsFd, OwnedFd};

use libfuzzer_sys::fuzz_target;
use vhost_device_gpgpu::{
    ipc::{self, mover},
    supervisor::link,
};
use virtio_gpgpu_fuzz::{device::send_raw, input::Input};

/// Messages of one input.
const MOST: usize = 16;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let (ours, theirs) = ipc::pair().expect("no sockets");
    let to = input.u8() % 6;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let files = usize::from(input.u8() % 5);
        let length = usize::from(input.u16() % 1024);
        let message = input.bytes(length);
        send_raw(ours.as_fd(), message, &vec![0; files]);
    }
    // Whoever waits is told of the end.
    drop(ours);
    receive(to, theirs);
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
            let end = link::SupervisorEnd::new(socket);
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
            let end = link::DeviceEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
        _ => {
            let end = ipc::WorkerEnd::new(socket);
            while let Ok(Some(_)) = end.recv() {}
        }
    }
}
