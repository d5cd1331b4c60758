// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Launches of graphs that kernels update.
//!
//! Such a launch has a record in device memory, whose address is its name for kernels. The functions of the device
//! runtime write to the record (`device_runtime.ptx`), and a launch of the graph reads it when it reaches the node. The
//! program's own changes are copied to the record with the next launch or upload.

use std::collections::HashMap;
use std::sync::Arc;

use gpgpu_graphs::{
    exec::Step,
    node::{Kernel, Work},
    updatable::DeviceNode,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::CUDA_ERROR_ILLEGAL_ADDRESS;

use crate::api::copy::{Rows, copy_now};
use crate::api::memory;
use crate::context;
use crate::driver;
use crate::ffi::Result;

/// The first word of a record that kernels can update.
const MARK: u32 = 0x7570_6474;
/// The place of the parameters in a record, in bytes; words are before them.
const PARAMS: usize = 32;

/// A record, until it is dropped.
struct Record(u64);

impl Drop for Record {
    fn drop(&mut self) {
        // If the context was destroyed, so was its memory.
        if let Ok(driver) = driver::get() {
            let _ = memory::free(driver, self.0);
        }
    }
}

/// A launch with the values of its record.
pub struct Now {
    pub enabled: bool,
    pub grid: [u32; 3],
    pub params: Vec<u8>,
}

/// A record for a launch, which kernels cannot update yet.
pub fn device_node(kernel: &Kernel) -> Result<DeviceNode> {
    /// The most bytes of a kernel's parameters.
    const MOST: usize = 32764;
    let context = context::named(kernel.context)?;
    // Another function may take this one's place.
    let name = memory::allocate(PARAMS + MOST, &context)?;
    let record = Record(name);
    write(name, &[0; PARAMS])?;
    let of = Some(Arc::new(record) as _);
    Ok(DeviceNode { name, of })
}

fn write(to: u64, bytes: &[u8]) -> Result {
    copy_now(&Rows::line(to, bytes.as_ptr() as u64, bytes.len()))
}

fn read(from: u64, bytes: &mut [u8]) -> Result {
    copy_now(&Rows::line(bytes.as_mut_ptr() as u64, from, bytes.len()))
}

/// The launch with its present values.
pub fn now(name: u64, kernel: &Kernel) -> Result<Now> {
    let mut bytes = vec![0; PARAMS + kernel.bytes().len()];
    read(name, &mut bytes)?;
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let grid = [word(12), word(16), word(20)];
    // A kernel can write anything there.
    if word(0) != MARK || grid.contains(&0) {
        return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    Ok(Now {
        enabled: word(8) != 0,
        grid,
        params: bytes.split_off(PARAMS),
    })
}

/// The steps of an executable graph that are in their records, by number, as the program set them.
#[derive(Default)]
pub struct Records(Mutex<HashMap<usize, (Arc<Kernel>, bool)>>);

impl Records {
    /// Writes the steps that the program has changed to their records.
    pub fn write(&self, steps: &[Step]) -> Result {
        let mut written = self.0.lock();
        for (index, step) in steps.iter().enumerate() {
            let Work::Kernel(kernel) = &step.work else {
                continue;
            };
            let Some((name, _)) = kernel.driver_node() else {
                continue;
            };
            let is_written = |(of, enabled): &(Arc<Kernel>, bool)| {
                Arc::ptr_eq(of, kernel) && *enabled == step.enabled
            };
            if written.get(&index).is_some_and(is_written) {
                continue;
            }
            let [x, y, z] = kernel.grid;
            let words = [
                MARK,
                kernel.bytes().len() as u32,
                step.enabled.into(),
                x,
                y,
                z,
                0,
                0,
            ];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            bytes.extend_from_slice(kernel.bytes());
            write(name, &bytes)?;
            written.insert(index, (Arc::clone(kernel), step.enabled));
        }
        Ok(())
    }
}

/// Whether kernels update one of these steps.
pub fn any(steps: &[Step]) -> bool {
    steps.iter().any(|step| name(step).is_some())
}

/// The name of a step in kernels, if they update it.
pub fn name(step: &Step) -> Option<u64> {
    match &step.work {
        Work::Kernel(kernel) => kernel.driver_node().map(|(name, _)| name),
        _ => None,
    }
}
