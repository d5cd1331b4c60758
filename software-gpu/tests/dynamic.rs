// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Kernels that launch kernels: order, errors and limits of the device runtime.

#[path = "ptx/device.rs"]
mod device;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Device, Params, shape};
use software_gpu::exec::{Fault, FaultKind};
use software_gpu::link::Linker;

const KERNELS: &str = include_str!("ptx/dynamic.ptx");

fn linked() -> String {
    let mut linker = Linker::default();
    linker.add("kernels", KERNELS.to_owned(), 90).unwrap();
    linker.add_device_runtime(90).unwrap();
    linker.complete(90).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs one thread of a kernel with a number: the words that it and its children have left, and the fault.
fn run_with(kernel: &str, value: u32, words: usize) -> (Vec<u32>, Result<(), Fault>) {
    let mut d = Device::new(&linked(), 1 << 20);
    let out = d.put(&vec![0_u32; words]);
    let result = d.launch(kernel, &shape(1, 1), &Params::new().add(out).add(value));
    (d.get(out, words), result)
}

fn run(kernel: &str, value: u32, words: usize) -> Vec<u32> {
    let (words, result) = run_with(kernel, value, words);
    result.unwrap();
    words
}

/// The numbers that kernels have noted, in their order.
fn notes(kernel: &str, value: u32) -> Vec<u32> {
    let words = run(kernel, value, 64);
    words[1..=words[0] as usize].to_vec()
}

#[test]
fn children_run_in_the_order_of_streams_and_tails_at_the_end() {
    assert_eq!(notes("family", 10), [10, 11, 13, 12]);
    let expected = [1, 10, 11, 13, 12, 20, 40, 30, 31, 33, 32];
    assert_eq!(notes("ancestor", 0), expected);
}

#[test]
fn all_threads_of_all_blocks_launch() {
    let mut d = Device::new(&linked(), 1 << 20);
    let out = d.put(&vec![0_u32; 2000]);
    let params = Params::new().add(out).add(7_u32);
    d.launch("each", &shape(6, 50), &params).unwrap();
    let words = d.get::<u32>(out, 2000);
    // Two threads of each child.
    assert_eq!(words[0], 600);
    assert_eq!(words[1..].iter().filter(|word| **word == 7).count(), 600);
}

#[test]
fn a_kernel_launches_itself_again_and_again() {
    assert_eq!(run("chain", 20_000, 1)[0], 20_001);
    assert_eq!(run("tree", 9, 1)[0], 512);
}

#[test]
fn an_endless_chain_of_launches_is_cancelled() {
    let mut d = Device::new(&linked(), 1 << 20);
    let out = d.put(&[0_u32]);
    let cancel = Arc::clone(&d.cancel);
    let params = Params::new().add(out).add(u32::MAX);
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        cancel.store(true, Ordering::Release);
    });
    let fault = d.launch("chain", &shape(1, 1), &params).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Cancelled);
    ends.join().unwrap();
}

#[test]
fn waiting_launches_are_bounded() {
    let words = run("many", 3000, 4);
    // Launches that succeeded and ran, the error, the error again, and none after it was taken.
    assert_eq!(words, [2048, 69, 69, 0]);
    assert_eq!(run("many", 2000, 4), [2000, 0, 0, 0]);
}

#[test]
fn invalid_launches_are_the_callers_errors() {
    let words = run("wrong", 0, 16);
    let expected = [
        98, 98, 98, 98, // addresses of no kernel
        9, 9, 9, // shapes
        400, 400, // streams
        0, 1, 1, // a buffer twice, and none
        1, 400, 1, // an event in a tail, a stream without flags
    ];
    assert_eq!(words[..expected.len()], expected);
}

#[test]
fn a_childs_fault_is_the_launchs() {
    let (words, result) = run_with("broken", 0, 4);
    let fault = result.unwrap_err();
    assert_eq!(fault.kernel, "bad");
    assert!(matches!(fault.kind, FaultKind::IllegalAddress { .. }));
    // The sibling before it ran, the one after it did not.
    assert_eq!(words[0], 1);
}

#[test]
fn a_parameter_buffer_ends() {
    let (_, result) = run_with("beyond", 16, 4);
    let kind = result.unwrap_err().kind;
    assert!(matches!(kind, FaultKind::IllegalAddress { .. }), "{kind:?}");
    assert!(run_with("beyond", 8, 4).1.is_ok());
}

#[test]
fn copies_and_fills_keep_the_order_of_their_stream() {
    let words = run("moves", 5, 8);
    assert_eq!(
        words,
        [0x0101_0101, 5, 0x0101_0101, 5, 0x0202_0202, 0, 0, 1]
    );
    let (_, result) = run_with("stray", 0, 4);
    let kind = result.unwrap_err().kind;
    assert!(matches!(kind, FaultKind::IllegalAddress { .. }), "{kind:?}");
}

#[test]
fn the_functions_are_in_the_library() {
    let mut linker = Linker::default();
    linker.add("kernels", KERNELS.to_owned(), 90).unwrap();
    let refused = linker.complete(90).unwrap_err();
    let name = "'__cudaCDP2LaunchDeviceV2'";
    assert!(refused.message.contains(name), "{refused}");
}
