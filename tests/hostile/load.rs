// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A well-behaved VM that always needs the GPU: its results are checked, and its share is measured.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::JoinHandle,
};

use gpgpu_protocol::{api::request, cuda::*, layout::status};

use crate::{
    client::{Client, command, launch},
    host::Host,
    vmm,
};

/// The processes of the VM: while one checks its results, the other has work on the GPU.
const PROCESSES: usize = 2;
/// The number of kernels that a process submits before it checks the results.
const KERNELS: u32 = 4;

/// The number of turns of a kernel of about 3 ms, on a GPU without other users.
pub fn turns(host: &Host, vm: usize) -> u32 {
    let mut guest = host.boot(vm, vmm());
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let busy = client.function(1, "busy", context, context);
    let stream = client.stream(1, context);
    let address = client.alloc(4096, context);
    let turns = client.turns(busy, address, stream, context) / 8;
    client.close();
    turns
}

/// See the module's documentation.
pub struct Load {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts it in a VM, with kernels of this number of turns, and waits until all its processes are working.
    pub fn start(host: &Host, vm: usize, turns: u32) -> Self {
        let (stop, rounds) = (Arc::default(), Arc::<AtomicUsize>::default());
        let threads = (0..PROCESSES).map(|_| {
            let guest = host.boot(vm, vmm());
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            std::thread::spawn(move || work(guest, turns, &stop, &rounds))
        });
        let threads = threads.collect();
        let load = Self {
            stop,
            rounds,
            threads,
        };
        host.wait_until("the load works", || load.rounds() >= 4);
        load
    }

    /// The number of times that results were checked and right.
    pub fn rounds(&self) -> usize {
        let ended = self.threads.iter().any(JoinHandle::is_finished);
        assert!(!ended, "a process of the load has failed");
        self.rounds.load(Relaxed)
    }

    /// Ends it; all its results must have been right.
    pub fn finish(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("a process of the load has failed");
        }
    }
}

fn work(mut guest: crate::guest::Guest, turns: u32, stop: &AtomicBool, rounds: &AtomicUsize) {
    let mut client = Client::open(&mut guest);
    let context = client.context();
    let busy = client.function(1, "busy", context, context);
    let stream = client.stream(1, context);
    let bytes = 64 << 10;
    let address = client.alloc(4096 + bytes, context);
    let clear = request::cuMemsetD8_v2 {
        dstDevice: address,
        uc: 0,
        N: 4096,
    };
    client.works(&clear, context, &[], 0);
    let kernel = command(&launch(busy, stream, address, turns), context);
    let mut launched = 0_u32;
    while !stop.load(Relaxed) {
        client.forget();
        let posted = [0; KERNELS as usize].map(|_| client.post(&kernel, 0));
        for head in posted {
            assert_eq!(client.wait(head), status::OK);
        }
        launched += KERNELS;
        assert_eq!(client.synchronize(stream, context), CUDA_SUCCESS);
        let data: Vec<u8> = (0..bytes)
            .map(|at| (at as u32 * 7 + launched) as u8)
            .collect();
        let copy = request::gpgpuCopyIn {
            dst: address + 4096,
            hStream: stream,
            synchronous: true,
        };
        client.works(&copy, context, &data, 0);
        let copy = request::gpgpuCopyOut {
            src: address,
            hStream: stream,
        };
        let (_, back) = client.works(&copy, context, &[], 4096 + bytes as u64);
        let counted = u32::from_le_bytes(back[..4].try_into().unwrap());
        assert_eq!(counted, launched, "kernels that have run");
        assert!(back[4096..] == data, "the memory is not its own");
        rounds.fetch_add(1, Relaxed);
    }
    client.close();
}
