// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of NVIDIA's libraries in streams that are captured.
//!
//! Only the host's copy of the library knows the kernels of a call. So a call on a captured stream is recorded on the
//! host, and this process has a node for the recording.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use gpgpu_graphs::{Gpu, Stream, capture, node::Work, objects::Allocation};
use gpgpu_locks::RwLock;
use gpgpu_protocol::{
    api::{GraphPart, Operation, Property, Request, request},
    codec::Blob,
    cuda::*,
    libraries::{
        Class, Function, Kind, Library,
        call::{self, Value},
        function, functions,
    },
};

use super::{Guest, executable::end, named};
use crate::{client::Client, device::attribute, ffi::Result};

/// The recorded GPU work of a library's call on the host. It ends with its last node.
#[derive(Debug)]
pub struct Part {
    /// Its id.
    pub id: u64,
    /// The id of its context.
    pub context: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        end(
            &[self.context],
            &request::gpgpuGraphForget { part: self.id },
        );
    }
}

/// The effect of a call on the stream of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// The second argument is the stream of the first.
    Stream,
    /// The handle in this argument is destroyed.
    End(usize),
}

/// The functions that affect the stream of a handle, by operation.
static SAYING: LazyLock<Vec<(u16, Says)>> = LazyLock::new(|| {
    let sets = |of: &Function| {
        Class::ALL
            .iter()
            .any(|class| class.sets_stream() == Some(of.operation.name))
    };
    let all = functions().filter_map(|of| match of.ends() {
        _ if sets(of) => Some((of.operation.op, Says::Stream)),
        Some((at, class)) if class.sets_stream().is_some() => {
            Some((of.operation.op, Says::End(at)))
        }
        _ => None,
    });
    all.collect()
});

/// The stream of each handle as it was set; a handle without an entry has the legacy stream.
static STREAMS: RwLock<Option<HashMap<u64, u64>>> = RwLock::new(None);

/// Records the stream of a handle.
fn note(function: &Function, says: Says, arguments: &[u8]) {
    let Ok(values) = call::get(function, arguments) else {
        return;
    };
    let mut streams = STREAMS.write();
    let streams = streams.get_or_insert_default();
    match (says, values.as_slice()) {
        (Says::Stream, [Value::Word(handle), Value::Word(stream)]) => {
            streams.insert(*handle, *stream);
        }
        (Says::End(at), values) => {
            if let Some(Value::Word(handle)) = values.get(at) {
                streams.remove(handle);
            }
        }
        _ => {}
    }
}

/// The id of the stream to which a call submits work.
fn stream_of(function: &Function, values: &[Value]) -> Option<u64> {
    let word = |at: usize| match values.get(at)? {
        Value::Word(word) => Some(*word),
        Value::Bytes(..) => None,
    };
    if let Some(at) = function.kinds.iter().position(|kind| *kind == Kind::Stream) {
        return word(at);
    }
    let (at, _) = function.handle()?;
    let streams = STREAMS.read();
    let known = streams.as_ref().and_then(|all| all.get(&word(at)?));
    Some(known.copied().unwrap_or(0))
}

/// The id of the stream to which a call with these arguments submits work; `None` if it is unknown.
pub fn stream(operation: &Operation, arguments: &[u8]) -> Option<u64> {
    let (_, of) = function(operation.op)?;
    stream_of(of, &call::get(of, arguments).ok()?)
}

/// The host's reply to a recorded call.
struct Made {
    part: u64,
    result: CUresult,
    reply: Blob,
    ended: CUresult,
    commands: u32,
    /// The number of bytes that the library allocated.
    memory: u64,
}

/// Sends a call to the host to be recorded.
fn ask(client: &Client, op: u16, arguments: &[u8], workspace: Option<&Allocation>) -> Result<Made> {
    let part = client.new_id::<GraphPart>();
    let (op, arguments) = (op.into(), Blob(arguments.to_vec()));
    if client.has(request::gpgpuGraphRecordWith::OPERATION.op) {
        let made = client.call(&request::gpgpuGraphRecordWith {
            part,
            op,
            arguments,
            workspace: workspace.map_or(0, Allocation::address),
            bytes: workspace.map_or(0, |of| of.bytes as u64),
            result: true,
            reply: true,
            ended: true,
            commands: true,
            memory: true,
        })?;
        return Ok(Made {
            part,
            result: made.result,
            reply: made.reply,
            ended: made.ended,
            commands: made.commands,
            memory: made.memory,
        });
    }
    // A host without graphs has no such operation.
    let made = client.call(&request::gpgpuGraphRecord {
        part,
        op,
        arguments,
        result: true,
        reply: true,
        ended: true,
        commands: true,
    })?;
    Ok(Made {
        part,
        result: made.result,
        reply: made.reply,
        ended: made.ended,
        commands: made.commands,
        memory: 0,
    })
}

/// The size of cuBLAS's own workspace in bytes, which depends on the GPU's architecture (`cublasSetWorkspace`).
fn default_workspace(context: u64) -> Result<u64> {
    let info = crate::device::device(Guest::device(context)?)?;
    let major = attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    Ok(if major >= 9 { 32 << 20 } else { 4 << 20 })
}

/// Records a call on the host. If a handle has no workspace of the program, cuBLAS allocates one by nodes of the
/// captured graph. This function does the same: the workspace of the call is memory of the captured graph. So graphs
/// that run at the same time do not share it, as natively.
fn recorded(
    client: &Client,
    stream: &Stream,
    op: u16,
    arguments: &[u8],
) -> (Result<Made>, Option<Arc<Allocation>>) {
    let first = ask(client, op, arguments, None);
    let is_cublas = matches!(function(op), Some((Library::Cublas, _)));
    let memory = match &first {
        Ok(first) if is_cublas && first.result == CUDA_SUCCESS && first.memory > 0 => first.memory,
        _ => return (first, None),
    };
    let again = || {
        let bytes = default_workspace(stream.context)?.max(memory.next_multiple_of(256));
        let workspace = capture::allocate::<Guest>(stream, bytes as usize)?;
        Ok((ask(client, op, arguments, Some(&workspace))?, workspace))
    };
    match again() {
        Ok((made, workspace)) => (Ok(made), Some(workspace)),
        Err(code) => (Err(code), None),
    }
}

/// Decodes a call's answer.
pub type Read<'a> = &'a mut dyn FnMut(&[u8]);

/// Records a library's call if its stream is captured, passes the answer to `read`, and returns whether it did. Without
/// a reader of the answer, an error of the call is also the error of this function.
///
/// # Errors
///
/// Those of the capture, or the code of a call that failed without a reply. If the library has done something that
/// cannot be recorded, the capture becomes invalid.
pub fn record(
    client: &Client,
    operation: &'static Operation,
    arguments: &[u8],
    read: Option<Read<'_>>,
) -> Result<bool> {
    if !operation.is(Property::Work) {
        // This call submits no work, but may set a handle's stream.
        if let Some((op, says)) = SAYING.iter().find(|(op, _)| *op == operation.op)
            && let Some((_, of)) = function(*op)
        {
            note(of, *says, arguments);
        }
        return Ok(false);
    }
    if !capture::any::<Guest>() {
        return Ok(false);
    }
    let Some((_, of)) = function(operation.op) else {
        return Ok(false);
    };
    let Ok(values) = call::get(of, arguments) else {
        return Ok(false);
    };
    let Some(stream) = stream_of(of, &values) else {
        return Ok(false);
    };
    // The host refuses a stream that has ended.
    let Ok(stream) = named(client, stream) else {
        return Ok(false);
    };
    if !capture::records::<Guest>(&stream)? {
        return Ok(false);
    }
    let (made, workspace) = recorded(client, &stream, operation.op, arguments);
    if !matches!(&made, Ok(made) if made.ended == CUDA_SUCCESS) {
        // The capture becomes invalid; the call's own result is returned.
        let _ = capture::refuse::<Guest>(&stream);
    }
    let made = made?;
    if made.ended == CUDA_SUCCESS && made.commands > 0 {
        let part = Part {
            id: made.part,
            context: stream.context,
        };
        let add = |work| capture::record_work::<Guest>(&stream, || Ok(work));
        if let Some(workspace) = &workspace {
            add(Work::Alloc(Arc::clone(workspace)))?;
        }
        add(Work::Own(Arc::new(part)))?;
        if let Some(workspace) = workspace {
            add(Work::Free(workspace))?;
        }
    }
    match (made.result, made.ended, read) {
        (CUDA_SUCCESS, CUDA_SUCCESS, None) => {}
        (CUDA_SUCCESS, ended @ 1.., _) => return Err(ended),
        (_, _, Some(read)) => read(&made.reply.0),
        (code, _, None) => return Err(code),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_says_nothing_of_the_stream_of_a_handle() {
        let says = |of: &Function| SAYING.iter().any(|(op, _)| *op == of.operation.op);
        assert!(functions().any(says));
        let work = functions().filter(|of| of.operation.is(Property::Work));
        let both: Vec<_> = work.filter(|of| says(of)).collect();
        assert!(both.is_empty(), "{both:?}");
    }
}
