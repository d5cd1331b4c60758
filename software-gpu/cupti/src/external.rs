// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers that a thread has given to the calls that it makes: a stack for each kind.

use std::cell::RefCell;

/// The kinds: `CUPTI_EXTERNAL_CORRELATION_KIND_UNKNOWN` to `CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2`.
const KINDS: std::ops::RangeInclusive<u32> = 1..=5;

thread_local! {
    static STACKS: RefCell<[Vec<u64>; 5]> = const { RefCell::new([const { Vec::new() }; 5]) };
}

fn index(kind: u32) -> Option<usize> {
    KINDS
        .contains(&kind)
        .then(|| (kind - KINDS.start()) as usize)
}

/// Pushes a number; `false` for an invalid kind.
pub fn push(kind: u32, number: u64) -> bool {
    let Some(index) = index(kind) else {
        return false;
    };
    STACKS
        .try_with(|stacks| stacks.borrow_mut()[index].push(number))
        .is_ok()
}

/// Pops a number: `None` for an invalid kind, and `Some(None)` if there is no number.
pub fn pop(kind: u32) -> Option<Option<u64>> {
    let index = index(kind)?;
    let popped = STACKS.try_with(|stacks| stacks.borrow_mut()[index].pop());
    Some(popped.ok().flatten())
}

/// The last number of each kind that has one, with the kind.
pub fn last() -> Vec<(u32, u64)> {
    let last = STACKS.try_with(|stacks| {
        let stacks = stacks.borrow();
        let all = KINDS.zip(stacks.iter());
        all.filter_map(|(kind, stack)| Some((kind, *stack.last()?)))
            .collect()
    });
    last.unwrap_or_default()
}
