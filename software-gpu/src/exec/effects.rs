// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What kernels do beside their memory, by functions that the device has.

use super::FaultKind;
use super::env::Env;
use super::lanes::each;
use super::program::{Inst, Stop};

/// Where it goes.
pub trait Effects: Sync {
    /// Takes the text of one call of `printf`.
    fn print(&self, text: Vec<u8>);

    /// Sets the value with this number, on which conditional nodes of the launched graph depend. `false` if there is none: the kernel was
    /// launched otherwise, or the graph has fewer.
    fn set_condition(&self, _number: u64, _value: u32) -> bool {
        false
    }
}

/// `cudaGraphSetConditional`: `list` has the places of its parameters in local memory. A number of no value is an illegal address, as with
/// NVIDIA's driver.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn set_condition(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    let mut stopped = Ok(());
    each(mask, |lane| {
        let number = env.parameter(lane, i.list.first().copied());
        let value = env.parameter_word(lane, i.list.get(1).copied());
        if stopped.is_ok() && !env.output.set_condition(number, value) {
            let kind = FaultKind::IllegalAddress {
                address: number,
                len: 4,
                write: true,
            };
            stopped = Err(Stop { kind, lane });
        }
    });
    stopped
}
