// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoded form of each kind of work.

use gpgpu_graphs::node::{Copy3D, Fill, Kernel, MemOps};
use gpgpu_protocol::{
    api::{
        BoxCopy, BoxEnd, GraphChange, GraphStep, LaunchAttribute, LaunchConfig, graph_step as kind,
        is_node_attribute,
    },
    codec::{Blob, Writer},
    cuda::*,
};

use crate::{client::Client, ffi::Result, graph::calls::Call, memop};

/// A launch's configuration in the protocol's form.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that a node cannot have.
pub fn launch_config(kernel: &Kernel) -> Result<LaunchConfig> {
    let mut attributes = Vec::new();
    for of in &kernel.attributes {
        if !is_node_attribute(of.id) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        attributes.push(LaunchAttribute {
            id: of.id,
            // SAFETY: every bit pattern of the union's 64 bytes is a value of its byte array.
            value: unsafe { of.value.pad },
        });
    }
    Ok(LaunchConfig {
        grid_x: kernel.grid[0],
        grid_y: kernel.grid[1],
        grid_z: kernel.grid[2],
        block_x: kernel.block[0],
        block_y: kernel.block[1],
        block_z: kernel.block[2],
        shared_bytes: kernel.shared,
        stream: 0,
        attributes,
    })
}

/// A launch in the protocol's form; no step waits for it yet.
///
/// # Errors
///
/// As [`launch_config`].
pub fn launch_step(kernel: &Kernel) -> Result<GraphStep> {
    Ok(GraphStep {
        kind: kind::LAUNCH,
        enabled: true,
        context: kernel.context,
        object: kernel.function,
        launch: launch_config(kernel)?,
        params: Blob(kernel.bytes().to_vec()),
        ..GraphStep::default()
    })
}

/// Encodes the change of a step to a launch, as a [`GraphChange`] is encoded.
///
/// # Errors
///
/// As [`launch_config`].
pub fn put_change(writer: &mut Writer, step: u32, enabled: bool, kernel: &Kernel) -> Result {
    if !kernel.attributes.is_empty() {
        let mut to = launch_step(kernel)?;
        to.enabled = enabled;
        writer.put(&GraphChange { step, to });
        return Ok(());
    }
    // The same encoding, without a structure that has every field of a step.
    writer.put(&step);
    writer.put(&kind::LAUNCH);
    writer.put(&Vec::<u32>::new());
    writer.put(&enabled);
    writer.put(&kernel.context);
    writer.put(&kernel.function);
    for number in kernel.grid.into_iter().chain(kernel.block) {
        writer.put(&number);
    }
    writer.put(&kernel.shared);
    let stream = 0_u64;
    writer.put(&stream);
    writer.put(&Vec::<LaunchAttribute>::new());
    writer.bytes(kernel.bytes());
    writer.put(&Vec::<u64>::new());
    Ok(())
}

/// A fill in the protocol's form.
pub fn fill_step(fill: &Fill) -> GraphStep {
    let of = &fill.given;
    GraphStep {
        kind: kind::FILL,
        enabled: true,
        context: fill.context,
        numbers: vec![
            of.dst,
            of.pitch as u64,
            of.value.into(),
            of.elementSize.into(),
            of.width as u64,
            of.height as u64,
        ],
        ..GraphStep::default()
    }
}

/// A copy between sides that the worker can access.
pub fn copy_step(copy: &Copy3D, dst: BoxEnd, src: BoxEnd) -> GraphStep {
    let (kind, numbers) = if dst.array != 0 || src.array != 0 {
        let of = BoxCopy {
            dst,
            src,
            width: copy.width,
            height: copy.height,
            depth: copy.depth,
        };
        (kind::BOX, of.numbers())
    } else {
        let numbers = [
            dst.address,
            src.address,
            dst.pitch as u64,
            src.pitch as u64,
            dst.rows as u64,
            src.rows as u64,
            copy.width as u64,
            copy.height as u64,
            copy.depth as u64,
        ];
        (kind::COPY, numbers.to_vec())
    };
    GraphStep {
        kind,
        enabled: true,
        context: copy.context,
        numbers,
        ..GraphStep::default()
    }
}

/// Memory operations in the protocol's form.
pub fn words_step(client: &Client, of: &MemOps) -> GraphStep {
    let mut numbers = vec![of.flags.into()];
    for op in &of.ops {
        let op = memop::reach(client, memop::read(op));
        numbers.extend([op.operation.into(), op.flags.into(), op.address, op.value]);
    }
    GraphStep {
        kind: kind::WORDS,
        enabled: true,
        context: of.context,
        numbers,
        ..GraphStep::default()
    }
}

/// A call in this process, after other steps.
pub fn call_step(after: Vec<u32>, call: &Call) -> GraphStep {
    GraphStep {
        kind: kind::CALL,
        after,
        enabled: true,
        object: call.id(),
        ..GraphStep::default()
    }
}

/// An empty step that joins those before it.
pub fn nothing() -> GraphStep {
    GraphStep {
        kind: kind::NOTHING,
        enabled: true,
        ..GraphStep::default()
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_graphs::{Signature, node::Shape};

    use super::*;

    #[test]
    fn a_change_of_a_launch_is_encoded_as_its_structure() {
        let attribute = CUlaunchAttribute {
            id: CU_LAUNCH_ATTRIBUTE_PRIORITY,
            pad: [0; 4],
            value: CUlaunchAttributeValue { pad: [3; 64] },
        };
        let shape = Shape {
            grid: [1, 2, 3],
            block: [4, 5, 6],
            shared: 7,
        };
        for (attributes, length) in [(vec![], 0), (vec![], 12), (vec![attribute], 12)] {
            let signature = Signature {
                layout: [(0, length)].into(),
                bytes: length,
                context: 0x210,
            };
            let of = (0x150, 0x210);
            let kernel = Kernel::new(of, shape, attributes, signature, &[9; 12]);
            for enabled in [false, true] {
                let mut written = Writer::new();
                put_change(&mut written, 8, enabled, &kernel).unwrap();
                let mut to = launch_step(&kernel).unwrap();
                to.enabled = enabled;
                let mut whole = Writer::new();
                whole.put(&GraphChange { step: 8, to });
                assert_eq!(written.into_bytes(), whole.into_bytes());
            }
        }
    }
}
