// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoded form of each kind of work.

use gpgpu_graphs::node::{Copy3D, Fill, Kernel, MemOps};
use gpgpu_protocol::{
    api::{
        BoxCopy, BoxEnd, GraphStep, LaunchAttribute, LaunchConfig, graph_step as kind,
        is_node_attribute,
    },
    codec::Blob,
    cuda::*,
};

use crate::{client::Client, ffi::Result, graph::calls::Call, memop};

/// A launch's configuration, as it travels.
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

/// A launch, as it travels; it has no waiter.
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

/// A fill, as it travels.
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

/// A copy between ends that the worker reaches.
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

/// Operations with words, as they travel.
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

/// A call in this process, behind other steps.
pub fn call_step(after: Vec<u32>, call: &Call) -> GraphStep {
    GraphStep {
        kind: kind::CALL,
        after,
        enabled: true,
        object: call.id(),
        ..GraphStep::default()
    }
}

/// A step that does nothing, and joins those before it.
pub fn nothing() -> GraphStep {
    GraphStep {
        kind: kind::NOTHING,
        enabled: true,
        ..GraphStep::default()
    }
}
