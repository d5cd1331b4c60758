// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions that run and are called again (`ptx/recursion.cu`), against the same functions here.

#[path = "ptx/device.rs"]
mod device;

use device::{Device, Params, shape};
use software_gpu::exec::FaultKind;

/// One result of each thread of a kernel.
fn results(kernel: &str, blocks: u32, threads: u32) -> Vec<u32> {
    let mut d = Device::new(include_str!("ptx/recursion.ptx"), 64 << 20);
    let n = (blocks * threads) as usize;
    let out = d.put(&vec![0u32; n]);
    let p = Params::new().add(out);
    d.launch(kernel, &shape(blocks, threads), &p).unwrap();
    d.get(out, n)
}

fn fibonacci(n: u32) -> u32 {
    if n < 2 {
        n
    } else {
        fibonacci(n - 1) + fibonacci(n - 2)
    }
}

#[test]
fn lanes_return_from_calls_of_different_depths() {
    for (i, got) in results("fibonacci_of_each", 3, 70).into_iter().enumerate() {
        assert_eq!(got, fibonacci(i as u32 % 16), "thread {i}");
    }
}

#[test]
fn a_result_is_an_argument_of_the_next_call() {
    fn ackermann(m: u32, n: u32) -> u32 {
        match (m, n) {
            (0, n) => n + 1,
            (m, 0) => ackermann(m - 1, 1),
            (m, n) => ackermann(m - 1, ackermann(m, n - 1)),
        }
    }
    for (i, got) in (0..).zip(results("ackermann_of_each", 1, 64)) {
        assert_eq!(got, ackermann(i % 3, i / 8), "thread {i}");
    }
}

/// The variables of each call lie at a place of their own, and can be reached from the calls below.
#[test]
fn each_call_has_variables_of_its_own() {
    fn walk(all: &[[u32; 3]]) -> u32 {
        let values = all.iter().rev().flatten();
        values.fold(0, |sum, value| sum.wrapping_mul(3).wrapping_add(*value))
    }
    fn below(all: &mut Vec<[u32; 3]>, is_left: bool, depth: u32) -> u32 {
        let own = match is_left {
            true => [depth, depth + 1, depth * 2],
            false => [100 - depth, 7, depth],
        };
        all.push(own);
        let below = match depth {
            0 => walk(all),
            _ => below(all, !is_left, depth - 1),
        };
        all.pop();
        match is_left {
            true => below.wrapping_add(own[depth as usize % 3]),
            false => {
                let own = own[(depth as usize + 1) % 3];
                below.wrapping_mul(2).wrapping_sub(own)
            }
        }
    }
    for (i, got) in (0..).zip(results("variables_of_all_calls", 1, 96)) {
        assert_eq!(got, below(&mut Vec::new(), true, i % 12), "thread {i}");
    }
}

#[test]
fn a_thread_can_end_inside_of_the_calls() {
    for (i, got) in (0..).zip(results("some_end_below", 1, 64)) {
        let right = match i % 2 {
            0 => fibonacci(i % 10),
            _ => 1000 + i,
        };
        assert_eq!(got, right, "thread {i}");
    }
}

#[test]
fn functions_are_called_again_by_their_addresses() {
    fn again(n: u32, a: u32) -> u32 {
        match n {
            0 => (a + 1) * 2,
            _ => again(n - 1, a) * 2 + n,
        }
    }
    for (i, got) in (0..).zip(results("by_addresses", 1, 64)) {
        assert_eq!(got, again(i % 9, i), "thread {i}");
    }
}

#[test]
fn a_stack_has_an_end() {
    let mut d = Device::new(include_str!("ptx/recursion.ptx"), 1 << 20);
    let out = d.put(&[0u32; 64]);
    let p = Params::new().add(out);
    let fault = d.launch("never_returns", &shape(1, 64), &p).unwrap_err();
    assert_eq!(fault.kind, FaultKind::StackOverflow);
}
