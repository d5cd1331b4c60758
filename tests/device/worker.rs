// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A worker that executes the first byte of a stream, and calls no CUDA.

use std::{fs::File, os::fd::AsFd};

use gpgpu_protocol::layout::status;
use nix::poll::PollTimeout;
use vhost_device_gpgpu::ipc::{MapRun, Span, ToWorker, WorkerEnd};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// Answers with the stream, and returns the data.
pub const ECHO: u8 = 1;
/// Answers when a [`RELEASE`] is executed.
pub const HOLD: u8 = 2;
/// Answers all held commands, then itself.
pub const RELEASE: u8 = 3;
/// Is killed by SIGSEGV.
pub const CRASH: u8 = 4;
/// Exits without an answer.
pub const EXIT: u8 = 5;
/// Answers with the first 8 bytes of the region whose number is the next byte, then adds 1 to each.
pub const TOUCH: u8 = 6;
/// Answers more than was requested.
pub const LIE: u8 = 7;
/// Answers with its own error, `MALFORMED`, and no data.
pub const REFUSE: u8 = 8;
/// Stops receiving forever.
pub const STUCK: u8 = 9;
/// Answers with its process id.
pub const PID: u8 = 10;
/// Answers with the offset of its data in the whole transfer.
pub const OFFSET: u8 = 11;

/// The variable with the mode of a worker.
pub const MODE: &str = "FAKE_WORKER";

struct Region {
    number: u32,
    runs: Vec<MmapRegion>,
}

fn map(runs: &[MapRun]) -> Vec<MmapRegion> {
    runs.iter()
        .map(|run| {
            let file = File::from(run.file.try_clone().unwrap());
            let at = FileOffset::new(file, run.offset);
            MmapRegion::from_file(at, run.length as usize).unwrap()
        })
        .collect()
}

/// The main function of a worker, until its channel is closed.
pub fn run(mode: &str) {
    let channel = WorkerEnd::new(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    if mode == "cold-death" && !channel.wait(PollTimeout::ZERO).unwrap() {
        std::process::exit(1);
    }
    match channel.recv().unwrap() {
        // A worker holds the connection open until its process ends.
        Some(ToWorker::Serve(serving)) => std::mem::forget(serving.hold),
        None => return,
        Some(_) => panic!("the first message is not Serve"),
    }
    match mode {
        "mute" => {}
        "no-gpu" => return channel.ready(status::NO_GPU).unwrap(),
        "crash" => std::process::abort(),
        _ if channel.ready(status::OK).is_err() => return,
        _ => {}
    }
    let Some(ToWorker::Setup { staging, size }) = channel.recv().unwrap() else {
        return;
    };
    let staging =
        MmapRegion::<()>::from_file(FileOffset::new(staging.into(), 0), size as usize).unwrap();
    let mut regions: Vec<Region> = Vec::new();
    let mut held: Vec<(u64, Vec<u8>, Span, Span)> = Vec::new();
    let echo = |seq, stream: &[u8], wanted: u32, input: Span, output: Span| {
        let mut data = vec![0; input.len.min(output.len) as usize];
        let whole = staging.as_volatile_slice();
        whole.read_slice(&mut data, input.offset as usize).unwrap();
        whole.write_slice(&data, output.offset as usize).unwrap();
        let answer = &stream[..stream.len().min(wanted as usize)];
        let _ = channel.answer(seq, status::OK, answer, data.len() as u64);
    };
    while let Some(message) = channel.recv().unwrap() {
        match message {
            ToWorker::Serve(_) | ToWorker::Setup { .. } => panic!("a second setup"),
            ToWorker::Map {
                seq,
                region,
                length,
                runs,
                ..
            } => {
                assert_eq!(runs.iter().map(|run| run.length).sum::<u64>(), length);
                regions.push(Region {
                    number: region,
                    runs: map(&runs),
                });
                channel.done(seq, status::OK).unwrap();
            }
            ToWorker::Unmap { seq, region } => {
                let before = regions.len();
                regions.retain(|known| known.number != region);
                assert_eq!(regions.len() + 1, before);
                channel.done(seq, status::OK).unwrap();
            }
            ToWorker::Command {
                seq,
                answer_bytes,
                input,
                output,
                data_offset,
                stream,
                ..
            } => match stream[0] {
                HOLD => held.push((seq, stream, input, output)),
                RELEASE => {
                    for (seq, stream, input, output) in held.drain(..) {
                        echo(seq, &stream, answer_bytes, input, output);
                    }
                    echo(seq, &stream, answer_bytes, input, output);
                }
                CRASH => {
                    // SAFETY: neither call touches memory; without the handler of the standard
                    // library the signal ends the process.
                    unsafe {
                        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                        libc::raise(libc::SIGSEGV);
                    }
                }
                EXIT => return,
                TOUCH => {
                    let region = regions
                        .iter()
                        .find(|known| known.number == u32::from(stream[1]));
                    let first = &region.expect("not registered").runs[0];
                    let mut bytes = [0; 8];
                    first.as_volatile_slice().read_slice(&mut bytes, 0).unwrap();
                    channel.answer(seq, status::OK, &bytes, 0).unwrap();
                    first
                        .as_volatile_slice()
                        .write_slice(&bytes.map(|byte| byte + 1), 0)
                        .unwrap();
                }
                LIE => {
                    let _ = channel.answer(seq, status::OK, &vec![0; answer_bytes as usize + 1], 0);
                }
                REFUSE => channel.answer(seq, status::MALFORMED, &[], 0).unwrap(),
                OFFSET => {
                    let bytes = data_offset.to_ne_bytes();
                    channel.answer(seq, status::OK, &bytes, 0).unwrap();
                }
                STUCK => loop {
                    std::thread::park();
                },
                PID => {
                    let id = std::process::id().to_ne_bytes();
                    channel.answer(seq, status::OK, &id, 0).unwrap();
                }
                _ => echo(seq, &stream, answer_bytes, input, output),
            },
        }
    }
    if mode == "stubborn" {
        loop {
            std::thread::park();
        }
    }
}
