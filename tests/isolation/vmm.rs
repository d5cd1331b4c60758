// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VMM whose guest makes the driver API's commands by itself, for events that a guest program with the library cannot
//! cause: the VM is powered off or reset, or the guest's kernel closes a client, during copies.

use std::path::PathBuf;

use gpgpu_protocol::{
    api::{Context, Request, object_id, request},
    codec::{Reader, Wire, Writer},
    cuda::{CUDA_SUCCESS, CUresult},
    layout::{COMMAND_QUEUE, CONTROL_QUEUE, MAX_DATA_BYTES, StreamAnswer, StreamCommand, status},
};
use nix::sys::signal::{Signal, kill};
use vhost::vhost_user::VhostUserFrontend;
use zerocopy::{FromBytes, IntoBytes};

use super::{
    bystander::Bystander,
    contained,
    guest::{Guest, Vmm},
    host::BackEnd,
};

const ANSWER_BYTES: u32 = 256;
/// The number of pending copies when the event happens.
const COPIES: usize = 8;
const MEMORY_BYTES: u64 = 64 << 20;

/// A VM with one client, which has a context and some device memory.
pub struct Vm {
    /// The VM.
    pub guest: Guest,
    /// The client.
    pub client: u32,
    context: u64,
    /// The device memory.
    pub memory: u64,
    serial: u64,
}

impl Vm {
    /// Boots it at a socket, with RAM in files of this directory if one is given.
    pub fn boot(back_end: &BackEnd, vm: usize, directory: Option<PathBuf>) -> Self {
        let vmm = Vmm {
            regions: vec![(0, 64 << 20, 0)],
            directory,
            ..Vmm::qemu()
        };
        let mut this = Self {
            guest: Guest::boot(&back_end.socket(vm), vmm),
            client: 0,
            context: 0,
            memory: 0,
            serial: 0,
        };
        this.open();
        this
    }

    /// Opens a client, as a new process does.
    pub fn open(&mut self) {
        self.client = self.guest.open();
        self.serial += 1;
        let context = object_id::<Context>(self.serial);
        self.context = 0;
        self.call(&request::cuDevicePrimaryCtxRetain {
            pctx: context,
            dev: 0,
        })
        .unwrap();
        self.context = context;
        let allocated = self.call(&request::cuMemAlloc_v2 {
            dptr: true,
            bytesize: MEMORY_BYTES as usize,
        });
        self.memory = allocated.unwrap().dptr;
    }

    fn encode<R: Request>(&self, request: &R) -> Vec<u8> {
        let mut writer = Writer::on(vec![0; size_of::<StreamCommand>()]);
        request.put(&mut writer);
        let mut bytes = writer.into_bytes();
        let header = StreamCommand {
            bytes: (bytes.len() as u32).into(),
            op: R::OP.into(),
            reserved: 0.into(),
            context: self.context.into(),
        };
        bytes[..size_of::<StreamCommand>()].copy_from_slice(header.as_bytes());
        bytes
    }

    /// Calls a function.
    pub fn call<R: Request>(&mut self, request: &R) -> Result<R::Reply, CUresult> {
        let stream = self.encode(request);
        let (status, answer, _) = self
            .guest
            .command(self.client, &stream, ANSWER_BYTES, &[], 0);
        assert_eq!(status, status::OK, "{}", R::NAME);
        let (head, rest) = StreamAnswer::read_from_prefix(&answer).unwrap();
        match head.result.get() {
            CUDA_SUCCESS => Ok(R::Reply::get(&mut Reader::new(rest)).unwrap()),
            code => Err(code),
        }
    }

    /// The stream for a copy between device memory and pageable memory.
    pub fn copy(&self, offset: u64, to_guest: bool) -> Vec<u8> {
        let at = self.memory + offset;
        if to_guest {
            self.encode(&request::gpgpuCopyOut {
                src: at,
                hStream: 0,
            })
        } else {
            self.encode(&request::gpgpuCopyIn {
                dst: at,
                hStream: 0,
                synchronous: true,
            })
        }
    }

    /// Begins copies in both directions, and waits until the first one is complete: the others are at different stages.
    fn in_mid_copy(&mut self) -> Vec<u16> {
        let bytes = MAX_DATA_BYTES;
        let (from, to) = (self.guest.alloc(bytes), self.guest.alloc(bytes));
        let mut heads = Vec::new();
        for number in 0..COPIES {
            let to_guest = number % 2 == 1;
            let stream = self.copy((number * bytes) as u64, to_guest);
            let buffers = [(if to_guest { to } else { from }, bytes as u32)];
            let head =
                self.guest
                    .post_buffers(self.client, &stream, ANSWER_BYTES, &buffers, to_guest);
            heads.push(head);
        }
        let first = heads.remove(0);
        let used = self.guest.wait(COMMAND_QUEUE, first);
        assert_eq!(used.status(), status::OK);
        self.guest.forget_buffers(from);
        heads
    }

    /// Checks that a small copy in both directions is right.
    pub fn works(&mut self) {
        let data: Vec<u8> = (0..4096).map(|at| (at * 7) as u8).collect();
        let stream = self.copy(64, false);
        let (code, ..) = self
            .guest
            .command(self.client, &stream, ANSWER_BYTES, &data, 0);
        assert_eq!(code, status::OK);
        let stream = self.copy(64, true);
        let head = self
            .guest
            .post(self.client, &stream, ANSWER_BYTES, &[], 4096);
        let used = self.guest.wait(COMMAND_QUEUE, head);
        let (code, _, back) = used.split(ANSWER_BYTES);
        assert_eq!(code, status::OK);
        assert!(back == data);
    }
}

/// The number of times that each event is repeated, at different moments of the copies.
const TIMES: usize = 3;

#[test]
fn pitfall_62_a_vm_powered_off_in_mid_copy_leaves_nothing() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    contained(
        &back_end,
        &bystander,
        "VM powered off in mid-copy",
        |fault| {
            for time in 0..TIMES {
                let mut vm = Vm::boot(&back_end, 0, None);
                vm.in_mid_copy();
                if time > 0 {
                    // As when a VMM shuts down; otherwise it is killed.
                    for queue in 0..3 {
                        vm.guest.stop_ring(queue);
                    }
                }
                drop(vm);
                fault.ended();
            }
        },
    );
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_vm_reset_in_mid_copy_leaves_nothing_and_goes_on() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    let from = back_end.log.count();
    contained(&back_end, &bystander, "VM reset in mid-copy", |fault| {
        let mut vm = Vm::boot(&back_end, 0, None);
        let device = back_end.device(0, from);
        for _ in 0..TIMES {
            vm.in_mid_copy();
            vm.guest.frontend.reset_device().unwrap();
            vm.guest.reset_driver();
            vm.open();
            vm.works();
        }
        assert!(kill(device, None).is_ok(), "the device process stays");
        drop(vm);
        fault.ended();
    });
    bystander.end();
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_client_closed_or_dead_in_mid_copy_leaves_its_vm_alone() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    contained(
        &back_end,
        &bystander,
        "guest process killed in mid-copy, in a VM",
        |fault| {
            let from = back_end.log.count();
            let mut vm = Vm::boot(&back_end, 0, None);
            let device = back_end.device(0, from);
            for _ in 0..TIMES {
                let heads = vm.in_mid_copy();
                let client = vm.client;
                let close = Guest::close_request(client);
                let closing = vm.guest.post_control(close.as_bytes());
                // Its chains are returned before the answer to `CLOSE`: then the pages are the guest's again.
                let used = vm.guest.wait(CONTROL_QUEUE, closing);
                assert_eq!(used.status(), status::OK);
                for head in heads {
                    let status = vm.guest.wait(COMMAND_QUEUE, head).status();
                    assert!(
                        [status::OK, status::CLIENT_DEAD].contains(&status),
                        "{status}"
                    );
                }
                vm.open();
                vm.works();
            }
            assert!(kill(device, None).is_ok(), "the device process stays");
            drop(vm);
            fault.ended();
        },
    );
    contained(
        &back_end,
        &bystander,
        "worker killed in mid-copy, in a VM",
        |fault| {
            let from = back_end.log.count();
            let mut vm = Vm::boot(&back_end, 0, None);
            let device = back_end.device(0, from);
            let mut at = from;
            for _ in 0..TIMES {
                let worker = back_end.worker(0, at);
                at = back_end.log.count();
                let heads = vm.in_mid_copy();
                kill(worker, Signal::SIGKILL).unwrap();
                for head in heads {
                    let status = vm.guest.wait(COMMAND_QUEUE, head).status();
                    assert!(
                        [status::OK, status::CLIENT_DEAD].contains(&status),
                        "{status}"
                    );
                }
                let client = vm.client;
                assert_eq!(vm.guest.close(client), status::OK);
                vm.open();
                vm.works();
            }
            assert!(kill(device, None).is_ok(), "the device process stays");
            drop(vm);
            fault.ended();
        },
    );
    bystander.end();
    assert!(back_end.lives());
}
