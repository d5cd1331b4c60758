// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs: see [`executables`].

use gpgpu_graphs::abi::{DEVICE_LAUNCH, USE_NODE_PRIORITY};
use gpgpu_protocol::{
    api::{GraphChange, GraphStep, Stream, graph_step, reply, request},
    codec::{Blob, Reader, Wire},
    cuda::*,
};

use super::module::transferred;
use crate::worker::{
    counts,
    dispatch::Outcome,
    executables,
    libraries::{self, Recorded, Wanted},
    session::{Data, Session},
};

/// The steps of a list that was transferred like an image.
fn steps(session: &Session, id: u64, data: Data) -> Result<Vec<GraphStep>, CUresult> {
    read(transferred(session, id, data)?.bytes())
}

fn read<T: Wire>(list: &[u8]) -> Result<Vec<T>, CUresult> {
    let mut reader = Reader::new(list);
    let bad = |_| CUDA_ERROR_INVALID_VALUE;
    let count: usize = reader.get().map_err(bad)?;
    if count > executables::MOST_STEPS {
        return Err(CUDA_ERROR_OUT_OF_MEMORY);
    }
    // No memory is reserved for claimed lengths.
    let mut steps = Vec::new();
    for _ in 0..count {
        steps.push(reader.get().map_err(bad)?);
    }
    reader.end().map_err(bad)?;
    Ok(steps)
}

/// Makes an executable graph.
pub fn gpgpuGraphInstantiate(
    session: &Session,
    request: request::gpgpuGraphInstantiate,
    data: Data,
) -> Outcome<reply::gpgpuGraphInstantiate> {
    let steps = steps(session, request.image, data)?;
    make(session, request.exec, &steps, request.flags)?;
    Ok(reply::gpgpuGraphInstantiate::default())
}

/// The same, with the list in the command.
pub fn gpgpuGraphInstantiateHere(
    session: &Session,
    request: request::gpgpuGraphInstantiateHere,
    _: Data,
) -> Outcome<reply::gpgpuGraphInstantiateHere> {
    let steps = read(&request.steps.0)?;
    make(session, request.exec, &steps, request.flags)?;
    Ok(reply::gpgpuGraphInstantiateHere::default())
}

/// The same, with so few steps that other commands can wait for it: no other thread has to be woken, and the driver's
/// code is in this core's cache.
pub fn gpgpuGraphInstantiateFew(
    session: &Session,
    request: request::gpgpuGraphInstantiateFew,
    _: Data,
) -> Outcome<reply::gpgpuGraphInstantiateFew> {
    let steps = read(&request.steps.0)?;
    if steps.len() > graph_step::FEW {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    make(session, request.exec, &steps, request.flags)?;
    Ok(reply::gpgpuGraphInstantiateFew::default())
}

fn make(session: &Session, exec: u64, steps: &[GraphStep], flags: u64) -> Result<(), CUresult> {
    let flags = flags & (DEVICE_LAUNCH | USE_NODE_PRIORITY);
    session.executables.make(session, exec, steps, flags)
}

/// `cuGraphExecDestroy`.
pub fn cuGraphExecDestroy(
    session: &Session,
    request: request::cuGraphExecDestroy,
    _: Data,
) -> Outcome<reply::cuGraphExecDestroy> {
    // It may have ended with a context.
    let _ = session.executables.graphs.end(request.hGraphExec);
    Ok(reply::cuGraphExecDestroy::default())
}

/// `cuGraphLaunch`.
pub fn cuGraphLaunch(
    session: &Session,
    request: request::cuGraphLaunch,
    _: Data,
) -> Outcome<reply::cuGraphLaunch> {
    let executable = session.executables.graphs.find(request.hGraphExec)?;
    executable.launch(session, request.hStream)?;
    counts::launch();
    Ok(reply::cuGraphLaunch::default())
}

/// `cuGraphUpload`.
pub fn cuGraphUpload(
    session: &Session,
    request: request::cuGraphUpload,
    _: Data,
) -> Outcome<reply::cuGraphUpload> {
    let executable = session.executables.graphs.find(request.hGraphExec)?;
    let stream = session.objects.raw::<Stream>(request.hStream)? as CUstream;
    executable.upload(session, stream)?;
    Ok(reply::cuGraphUpload::default())
}

/// The name by which kernels launch an executable graph.
pub fn gpgpuGraphHandle(
    session: &Session,
    request: request::gpgpuGraphHandle,
    _: Data,
) -> Outcome<reply::gpgpuGraphHandle> {
    let handle = session.executables.graphs.find(request.exec)?.handle()?;
    Ok(reply::gpgpuGraphHandle { exec: (), handle })
}

/// Makes an empty set of driver nodes for a graph.
pub fn gpgpuGraphNodes(
    session: &Session,
    request: request::gpgpuGraphNodes,
    _: Data,
) -> Outcome<reply::gpgpuGraphNodes> {
    session.executables.make_nodes(request.nodes)?;
    Ok(reply::gpgpuGraphNodes::default())
}

/// Adds the node of a launch that kernels update.
pub fn gpgpuGraphNode(
    session: &Session,
    request: request::gpgpuGraphNode,
    _: Data,
) -> Outcome<reply::gpgpuGraphNode> {
    let nodes = session.executables.nodes.find(request.nodes)?;
    let (node, name) = nodes.add(session, &request.step)?;
    Ok(reply::gpgpuGraphNode {
        node,
        name,
        ..reply::gpgpuGraphNode::default()
    })
}

/// Ends the driver's nodes of a graph.
pub fn gpgpuGraphNodesForget(
    session: &Session,
    request: request::gpgpuGraphNodesForget,
    _: Data,
) -> Outcome<reply::gpgpuGraphNodesForget> {
    // It may have ended with a context.
    let _ = session.executables.nodes.end(request.nodes);
    Ok(reply::gpgpuGraphNodesForget::default())
}

/// Changes all of an executable graph.
pub fn gpgpuGraphUpdate(
    session: &Session,
    request: request::gpgpuGraphUpdate,
    data: Data,
) -> Outcome<reply::gpgpuGraphUpdate> {
    let executable = session.executables.graphs.find(request.exec)?;
    let steps = steps(session, request.image, data)?;
    executable.update(session, &steps)?;
    Ok(reply::gpgpuGraphUpdate::default())
}

/// The same, with the list in the command.
pub fn gpgpuGraphUpdateHere(
    session: &Session,
    request: request::gpgpuGraphUpdateHere,
    _: Data,
) -> Outcome<reply::gpgpuGraphUpdateHere> {
    let executable = session.executables.graphs.find(request.exec)?;
    executable.update(session, &read(&request.steps.0)?)?;
    Ok(reply::gpgpuGraphUpdateHere::default())
}

/// Changes a step of an executable graph.
pub fn gpgpuGraphSetStep(
    session: &Session,
    request: request::gpgpuGraphSetStep,
    _: Data,
) -> Outcome<reply::gpgpuGraphSetStep> {
    let executable = session.executables.graphs.find(request.exec)?;
    let (step, to) = (request.step, request.to);
    executable.set(session, &[GraphChange { step, to }])?;
    Ok(reply::gpgpuGraphSetStep::default())
}

/// Changes several steps.
pub fn gpgpuGraphSetSteps(
    session: &Session,
    request: request::gpgpuGraphSetSteps,
    _: Data,
) -> Outcome<reply::gpgpuGraphSetSteps> {
    let executable = session.executables.graphs.find(request.exec)?;
    executable.set(session, &read(&request.changes.0)?)?;
    Ok(reply::gpgpuGraphSetSteps::default())
}

/// Checks whether a step is possible.
pub fn gpgpuGraphCheck(
    session: &Session,
    request: request::gpgpuGraphCheck,
    _: Data,
) -> Outcome<reply::gpgpuGraphCheck> {
    executables::check(session, &request.step)?;
    Ok(reply::gpgpuGraphCheck::default())
}

/// Checks whether graphs can have values on which conditional steps depend.
pub fn gpgpuGraphCondition(
    session: &Session,
    request: request::gpgpuGraphCondition,
    _: Data,
) -> Outcome<reply::gpgpuGraphCondition> {
    executables::check_condition(session, request.default, request.flags)?;
    Ok(reply::gpgpuGraphCondition::default())
}

/// Checks whether steps can wait for a part of a launch.
pub fn gpgpuGraphEdges(
    _: &Session,
    _: request::gpgpuGraphEdges,
    _: Data,
) -> Outcome<reply::gpgpuGraphEdges> {
    executables::check_edges()?;
    Ok(reply::gpgpuGraphEdges::default())
}

/// Records the GPU work of a library's call.
pub fn gpgpuGraphRecord(
    session: &Session,
    request: request::gpgpuGraphRecord,
    _: Data,
) -> Outcome<reply::gpgpuGraphRecord> {
    let wanted = Wanted {
        part: request.part,
        workspace: None,
    };
    let recorded = record(session, wanted, request.op, &request.arguments)?;
    Ok(reply::gpgpuGraphRecord {
        part: (),
        op: (),
        arguments: (),
        result: recorded.answer.result,
        ended: recorded.ended(),
        commands: recorded.count(),
        reply: Blob(recorded.answer.into_reply()),
    })
}

/// The same, with a workspace for the call. The reply has the number of bytes that the library allocated.
pub fn gpgpuGraphRecordWith(
    session: &Session,
    request: request::gpgpuGraphRecordWith,
    _: Data,
) -> Outcome<reply::gpgpuGraphRecordWith> {
    let workspace = (request.workspace, request.bytes);
    let wanted = Wanted {
        part: request.part,
        workspace: (workspace.0 != 0).then_some(workspace),
    };
    let recorded = record(session, wanted, request.op, &request.arguments)?;
    Ok(reply::gpgpuGraphRecordWith {
        part: (),
        op: (),
        arguments: (),
        workspace: (),
        bytes: (),
        result: recorded.answer.result,
        ended: recorded.ended(),
        commands: recorded.count(),
        memory: recorded.memory(),
        reply: Blob(recorded.answer.into_reply()),
    })
}

fn record(
    session: &Session,
    wanted: Wanted,
    op: u32,
    arguments: &Blob,
) -> Result<Recorded, CUresult> {
    let op = u16::try_from(op).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    libraries::record(session, wanted, op, &arguments.0)
}

/// Ends a part.
pub fn gpgpuGraphForget(
    session: &Session,
    request: request::gpgpuGraphForget,
    _: Data,
) -> Outcome<reply::gpgpuGraphForget> {
    // It may have ended with a context.
    let _ = session.executables.parts.end(request.part);
    Ok(reply::gpgpuGraphForget::default())
}
