// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Words in registered host memory that streams write, and that a thread or another process polls.

mod common;

use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use gpgpu_protocol::cuda::*;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous};

const PTX: &CStr = cr#"
.version 8.0
.target sm_80
.address_size 64

// Adds one to every word.
.visible .entry step(.param .u64 words)
{
    .reg .b32 %r<5>;
    .reg .b64 %d<3>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u64 %d1, [words];
    mul.wide.u32 %d2, %r4, 4;
    add.s64 %d1, %d1, %d2;
    ld.global.u32 %r1, [%d1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%d1], %r1;
    ret;
}

// Ends when the word is not zero.
.visible .entry spin(.param .u64 word)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [word];
AGAIN:
    ld.volatile.global.u32 %r1, [%d1];
    setp.eq.u32 %p, %r1, 0;
    @%p bra AGAIN;
    ret;
}
"#;

const FLAGS: u32 = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
const WORDS: usize = 16 << 10;
const BYTES: usize = WORDS * 4;
/// A page of words to poll, then the data.
const REGION: usize = 4096 + BYTES;

/// A file's pages at an address that was reserved before, as a worker maps its client's memory.
fn map_fixed(file: BorrowedFd<'_>) -> &'static [AtomicU32] {
    let length = NonZeroUsize::new(REGION).unwrap();
    // SAFETY: a new reservation, then pages in its place; no test unmaps them.
    let start = unsafe {
        let none = ProtFlags::PROT_NONE;
        let reserved = mmap_anonymous(None, length, none, MapFlags::MAP_PRIVATE).unwrap();
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        mmap(Some(reserved.addr()), length, both, flags, file, 0).unwrap()
    };
    // SAFETY: mapped above, whole words.
    unsafe { std::slice::from_raw_parts(start.as_ptr().cast(), REGION / 4) }
}

fn shared_file() -> OwnedFd {
    let file = memfd_create(c"fence-test", MFdFlags::MFD_CLOEXEC).unwrap();
    nix::unistd::ftruncate(&file, REGION as i64).unwrap();
    file
}

fn register(region: &[AtomicU32]) {
    ok!(cuMemHostRegister_v2(
        region.as_ptr() as *mut c_void,
        region.len() * 4,
        FLAGS
    ));
}

fn address(word: &AtomicU32) -> CUdeviceptr {
    let mut device = 0;
    ok!(cuMemHostGetDevicePointer_v2(
        &mut device,
        word.as_ptr().cast(),
        0
    ));
    assert_eq!(device, word.as_ptr() as u64);
    device
}

fn wait_for(word: &AtomicU32, value: u32) {
    while word.load(Ordering::Acquire) != value {
        std::thread::yield_now();
    }
}

fn step(f: CUfunction, words: CUdeviceptr, stream: CUstream) {
    let mut words = words;
    let arguments = &mut [(&raw mut words).cast()];
    assert_eq!(
        launch(f, (WORDS / 256) as u32, 256, stream, arguments),
        CUDA_SUCCESS
    );
}

#[test]
fn another_process_that_sees_the_word_sees_the_copies_before_it() {
    const MARK: &str = "SOFTWARE_GPU_TEST_POLLS";
    const ROUNDS: u32 = 40;
    if std::env::var_os(MARK).is_some() {
        return poll(ROUNDS);
    }
    context();
    let file = shared_file();
    let region = map_fixed(file.as_fd());
    register(region);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "another_process_that_sees_the_word_sees_the_copies_before_it",
            "--exact",
        ])
        .env(MARK, "1")
        .stdin(file)
        .spawn()
        .unwrap();
    let f = function(module(PTX), c"step");
    let (d, s, t) = (alloc(BYTES), stream(0), stream(NON_BLOCKING));
    ok!(cuMemsetD32_v2(d, 0, WORDS));
    ok!(cuCtxSynchronize());
    for round in 1..=ROUNDS {
        // A blocking, a non-blocking and the NULL stream by turns.
        let stream = [s, t, NULL_STREAM][round as usize % 3];
        step(f, d, stream);
        ok!(cuMemcpyDtoHAsync_v2(
            region[1024..].as_ptr() as *mut c_void,
            d,
            BYTES,
            stream
        ));
        ok!(cuStreamWriteValue32_v2(
            stream,
            address(&region[0]),
            round,
            0
        ));
        // The other process has looked at it all.
        while region[1].load(Ordering::Acquire) != round {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
    }
    assert!(child.wait().unwrap().success());
}

fn poll(rounds: u32) {
    let region = map_fixed(std::io::stdin().as_fd());
    for round in 1..=rounds {
        wait_for(&region[0], round);
        for word in &region[1024..] {
            assert_eq!(word.load(Ordering::Relaxed), round);
        }
        region[1].store(round, Ordering::Release);
    }
}

const NON_BLOCKING: u32 = CU_STREAM_NON_BLOCKING;

#[test]
fn the_null_streams_word_comes_after_blocking_streams_only() {
    context();
    let file = shared_file();
    let region = map_fixed(file.as_fd());
    register(region);
    let (blocking, free) = (stream(0), stream(NON_BLOCKING));
    let held = Gate::hold(free);
    ok!(cuStreamWriteValue32_v2(free, address(&region[1]), 1, 0));
    let gate = Gate::hold(blocking);
    ok!(cuStreamWriteValue32_v2(
        NULL_STREAM,
        address(&region[0]),
        1,
        0
    ));
    assert_eq!(cu!(cuStreamQuery(NULL_STREAM)), CUDA_ERROR_NOT_READY);
    assert_eq!(region[0].load(Ordering::Acquire), 0);
    gate.open();
    wait_for(&region[0], 1);
    assert_eq!(region[1].load(Ordering::Acquire), 0);
    held.open();
    wait_for(&region[1], 1);
    ok!(cuMemHostUnregister(region.as_ptr() as *mut c_void));
    assert_eq!(
        cu!(cuStreamWriteValue32_v2(free, region.as_ptr() as u64, 2, 0)),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn no_word_is_written_after_a_fault() {
    if !in_child("no_word_is_written_after_a_fault") {
        return;
    }
    context();
    let file = shared_file();
    let region = map_fixed(file.as_fd());
    register(region);
    let (s, t) = (stream(0), stream(NON_BLOCKING));
    let f = function(module(PTX), c"step");
    let word = |index: usize| address(&region[index]);
    let write = |stream, word| cu!(cuStreamWriteValue32_v2(stream, word, 1, 0));
    let (first, second, third) = (word(0), word(1), word(2));
    // All is queued before the kernel runs: calls after the fault are refused.
    let gate = Gate::hold(s);
    assert_eq!(write(s, first), CUDA_SUCCESS);
    step(f, 0x1000, s);
    assert_eq!(write(s, second), CUDA_SUCCESS);
    assert_eq!(write(NULL_STREAM, third), CUDA_SUCCESS);
    gate.open();
    assert_eq!(cu!(cuStreamSynchronize(s)), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(write(t, second), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
    let words: Vec<_> = region[..3]
        .iter()
        .map(|w| w.load(Ordering::Acquire))
        .collect();
    assert_eq!(words, [1, 0, 0]);
}

#[test]
fn an_endless_kernel_delays_no_other_stream() {
    let cx = context() as usize;
    let m = module(PTX);
    let endless = stream(NON_BLOCKING);
    let stop = pinned(1);
    let mut word = stop[0].as_ptr() as u64;
    assert_eq!(
        launch(
            function(m, c"spin"),
            1,
            32,
            endless,
            &mut [(&raw mut word).cast()]
        ),
        CUDA_SUCCESS
    );
    let m = m as usize;
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            std::thread::spawn(move || {
                ok!(cuCtxSetCurrent(cx as CUcontext));
                let f = function(m as CUmodule, c"step");
                let s = stream(if thread % 2 == 0 { NON_BLOCKING } else { 0 });
                let (d, words) = (alloc(BYTES), pinned(1 + WORDS));
                ok!(cuMemsetD32Async(d, 0, WORDS, s));
                for round in 1..=10u32 {
                    step(f, d, s);
                    ok!(cuMemcpyDtoHAsync_v2(
                        words[1..].as_ptr() as *mut c_void,
                        d,
                        BYTES,
                        s
                    ));
                    ok!(cuStreamWriteValue32_v2(s, address(&words[0]), round, 0));
                    wait_for(&words[0], round);
                    assert_eq!(words[WORDS].load(Ordering::Acquire), round);
                }
                // Other calls are not blocked either.
                let e = event(0);
                ok!(cuEventRecord(e, s));
                ok!(cuEventSynchronize(e));
                assert_eq!(read(d, 1), [10]);
                ok!(cuStreamSynchronize(NULL_STREAM));
                module(PTX);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(cu!(cuStreamQuery(endless)), CUDA_ERROR_NOT_READY);
    stop[0].store(1, Ordering::Release);
    ok!(cuStreamSynchronize(endless));
}
