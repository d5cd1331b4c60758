// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cuGraphExecUpdate`: whether a graph differs from an executable one only in parameters.

use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result,
    abi::updated,
    exec::{Exec, Step, flatten},
    node::{Copy3D, Host, Kernel, MemOps, Work},
    store::Inner,
};

/// The reason why a graph cannot replace an executable one: a `CUgraphExecUpdateResult`, the node, and the other node,
/// 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference(pub u32, pub u64, pub u64);

fn same_attribute(one: &Kernel, other: &Kernel, id: CUlaunchAttributeID) -> bool {
    let words = |kernel: &Kernel| {
        let value = kernel.attribute(id);
        // SAFETY: every bit pattern of the union's 64 bytes is one of its words.
        value.map_or([0; 8], |value| unsafe { value.words })
    };
    words(one) == words(other)
}

fn compare_kernels(one: &Kernel, other: &Kernel) -> u32 {
    if one.context != other.context {
        return updated::FUNCTION_CHANGED;
    }
    let fixed = [
        CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        CU_LAUNCH_ATTRIBUTE_PRIORITY,
    ];
    let has_none = one.attributes.is_empty() && other.attributes.is_empty();
    if has_none || fixed.iter().all(|id| same_attribute(one, other, *id)) {
        updated::SUCCESS
    } else {
        updated::ATTRIBUTES_CHANGED
    }
}

/// Whether a copy can be changed to another one. They must be in the same context and between memory of the same types,
/// and be rows or equal.
pub fn copies_match(one: &Copy3D, other: &Copy3D) -> bool {
    let is_line = |of: &Copy3D| of.height == 1 && of.depth == 1;
    one.context == other.context
        && one.given.srcMemoryType == other.given.srcMemoryType
        && one.given.dstMemoryType == other.given.dstMemoryType
        && (is_line(one) && is_line(other) || one.does_as(other))
}

/// Whether a batch differs from another only in addresses, values and conditions.
fn batches_match(one: &MemOps, other: &MemOps) -> bool {
    /// The bits of a wait's flags that are its condition.
    const CONDITION: u64 = 3;
    let fixed = |of: &MemOps| -> Vec<_> {
        let parts = of.ops.iter();
        parts
            .map(|[operation, _, _, flags, ..]| (*operation, flags & !CONDITION))
            .collect()
    };
    (one.context, one.flags) == (other.context, other.flags) && fixed(one) == fixed(other)
}

/// The kind of difference between two steps: a `CUgraphExecUpdateResult`.
pub fn compare(one: &Work, other: &Work) -> u32 {
    if one.kind() != other.kind() {
        return updated::NODE_TYPE_CHANGED;
    }
    let if_same = |same: bool| {
        if same {
            updated::SUCCESS
        } else {
            updated::PARAMETERS_CHANGED
        }
    };
    match (one, other) {
        (Work::Kernel(one), Work::Kernel(other)) => compare_kernels(one, other),
        (Work::Copy(one), Work::Copy(other)) => if_same(copies_match(one, other)),
        (Work::Fill(one), Work::Fill(other)) => if_same(
            one.context == other.context
                && one.given.elementSize == other.given.elementSize
                && (one.given.height == 1) == (other.given.height == 1),
        ),
        (Work::MemOps(one), Work::MemOps(other)) => if_same(batches_match(one, other)),
        (Work::Conditional(one), Work::Conditional(other)) => if_same(
            (one.condition, one.kind, one.context, one.bodies.len())
                == (
                    other.condition,
                    other.kind,
                    other.context,
                    other.bodies.len(),
                ),
        ),
        (Work::Condition(one), Work::Condition(other)) => if_same(
            (one.context, one.default, one.flags) == (other.context, other.default, other.flags),
        ),
        (Work::Edges(one), Work::Edges(other)) if one != other => updated::TOPOLOGY_CHANGED,
        // Neither is a node: a body begins or ends where the other graph has another step.
        (one, other) if std::mem::discriminant(one) != std::mem::discriminant(other) => {
            updated::TOPOLOGY_CHANGED
        }
        (Work::Alloc(one), Work::Alloc(other)) | (Work::Free(one), Work::Free(other)) => {
            if Arc::ptr_eq(one, other) {
                updated::SUCCESS
            } else {
                updated::NOT_SUPPORTED
            }
        }
        _ => updated::SUCCESS,
    }
}

/// The first difference between two lists of steps that an update cannot apply.
pub fn compare_steps(before: &[Step], after: &[Step]) -> Option<Difference> {
    if before.len() != after.len() {
        return Some(Difference(updated::TOPOLOGY_CHANGED, 0, 0));
    }
    for (one, other) in before.iter().zip(after) {
        let sorted = |step: &Step| {
            let mut after = step.after.clone();
            after.sort_unstable();
            after
        };
        if one.after != other.after && sorted(one) != sorted(other) {
            return Some(Difference(updated::TOPOLOGY_CHANGED, other.node, one.node));
        }
        match compare(&one.work, &other.work) {
            updated::SUCCESS => {}
            result => return Some(Difference(result, other.node, 0)),
        }
    }
    None
}

/// The differences between a step and its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Changed {
    Nothing,
    /// The values of a launch's parameters.
    Parameters,
    /// Its content.
    Work,
    /// More than its content.
    More,
}

/// The steps that differ between two matching lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Their indices.
    pub steps: Vec<usize>,
    /// Whether they differ only in the values of launches' parameters: a driver has no reason to refuse them.
    pub are_parameters: bool,
}

fn changed_kernel(one: &Kernel, other: &Kernel) -> Changed {
    let holds = |of: &CUlaunchAttribute| same_attribute(one, other, of.id);
    if !one.attributes.iter().chain(&other.attributes).all(holds) {
        return Changed::More;
    }
    if (one.function, one.shape()) != (other.function, other.shape())
        || one.bytes().len() != other.bytes().len()
    {
        Changed::Work
    } else if one.bytes() != other.bytes() {
        Changed::Parameters
    } else {
        Changed::Nothing
    }
}

fn changed(one: &Work, other: &Work) -> Changed {
    let is_same = match (one, other) {
        (Work::Kernel(one), Work::Kernel(other)) => return changed_kernel(one, other),
        (Work::Copy(one), Work::Copy(other)) => one.does_as(other),
        (Work::Fill(one), Work::Fill(other)) => one == other,
        (Work::MemOps(one), Work::MemOps(other)) => one == other,
        (Work::Host(Host(one)), Work::Host(Host(other))) => {
            one.function.map(|of| of as usize) == other.function.map(|of| of as usize)
                && one.userData == other.userData
        }
        (Work::Record(one), Work::Record(other)) | (Work::Wait(one), Work::Wait(other)) => {
            one == other
        }
        (Work::Own(one), Work::Own(other)) => Arc::ptr_eq(one, other),
        // Steps of these kinds are equal if they match.
        (Work::Empty, Work::Empty)
        | (Work::Alloc(_), Work::Alloc(_))
        | (Work::Free(_), Work::Free(_))
        | (Work::Conditional(_), Work::Conditional(_))
        | (Work::Condition(_), Work::Condition(_))
        | (Work::Edges(_), Work::Edges(_))
        | (Work::Body, Work::Body)
        | (Work::EndBodies, Work::EndBodies) => true,
        _ => return Changed::More,
    };
    if is_same {
        Changed::Nothing
    } else {
        Changed::Work
    }
}

/// The steps that differ, of matching ones; `None` if one differs in more than its content. The iterator yields each
/// step's content before and after, in the steps' order.
fn changes_of<'a>(steps: impl Iterator<Item = (&'a Work, &'a Work)>) -> Option<Changes> {
    let mut differ = Vec::new();
    let mut most = Changed::Nothing;
    for (index, (before, after)) in steps.enumerate() {
        let changed = changed(before, after);
        if changed != Changed::Nothing {
            differ.push(index);
        }
        most = most.max(changed);
    }
    (most <= Changed::Work).then_some(Changes {
        steps: differ,
        are_parameters: most <= Changed::Parameters,
    })
}

/// The steps that differ between two matching lists; `None` if one differs in more than its content.
pub fn changes(before: &[Step], after: &[Step]) -> Option<Changes> {
    let works = before.iter().zip(after);
    changes_of(works.map(|(one, other)| (&one.work, &other.work)))
}

/// Whether a step differs from the earlier one only in the values of a launch's parameters.
pub(crate) fn changes_parameters(before: &Step, after: &Step) -> bool {
    before.enabled == after.enabled && changed(&before.work, &after.work) <= Changed::Parameters
}

/// The changes from steps to a graph whose nodes correspond to the steps one by one and in order, and the new content
/// of each. `None` for any other graph, and for one that cannot replace the steps.
fn changes_of_nodes<G: Gpu>(
    inner: &Inner<G>,
    graph: u64,
    before: &[Step],
) -> Option<(Changes, Vec<Work>)> {
    let of = inner.graphs.get(&graph)?;
    if of.nodes.len() != before.len() || !of.conditions.is_empty() {
        return None;
    }
    let nodes: Vec<_> = of.nodes.iter().map(|handle| &inner.nodes[handle]).collect();
    for (place, (node, step)) in nodes.iter().zip(before).enumerate() {
        let waits = node
            .dependencies
            .iter()
            .map(|(of, _)| inner.nodes[of].number);
        let is_step = node.number as usize == place
            && node.dependencies.iter().all(|(_, edge)| edge.is_whole())
            && waits.eq(step.after.iter().copied())
            && !matches!(node.work, Work::Child(_) | Work::Conditional(_));
        if !is_step || compare(&step.work, &node.work) != updated::SUCCESS {
            return None;
        }
    }
    let works = before.iter().zip(&nodes);
    let changes = changes_of(works.map(|(step, node)| (&step.work, &node.work)))?;
    let work = |place: &usize| nodes[*place].work.clone();
    let works = changes.steps.iter().map(work).collect();
    Some((changes, works))
}

/// Updates an executable graph from a graph whose nodes correspond to its steps one by one. Returns whether that was
/// possible.
fn update_by_nodes<G: Gpu>(exec: &Exec<G>, graph: u64) -> Result<bool> {
    let before = Arc::clone(&exec.state().steps);
    let found = G::store().with(|inner| changes_of_nodes(inner, graph, &before));
    let Some((changes, mut works)) = found else {
        return Ok(false);
    };
    let mut state = exec.state();
    // Another thread may have changed it meanwhile.
    if !Arc::ptr_eq(&before, &state.steps) {
        return Ok(false);
    }
    drop(before);
    let steps = Arc::make_mut(&mut state.steps);
    let swap = |steps: &mut [Step], works: &mut [Work]| {
        for (place, work) in changes.steps.iter().zip(works) {
            std::mem::swap(&mut steps[*place].work, work);
        }
    };
    swap(steps, &mut works);
    G::update(&exec.of, steps, Some(&changes)).inspect_err(|_| swap(steps, &mut works))?;
    Ok(true)
}

/// Updates an executable graph from a graph, whose user objects replace those that it holds.
///
/// # Errors
///
/// The difference, with `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`; or the driver's error.
pub fn update<G: Gpu>(
    exec: &Exec<G>,
    graph: u64,
) -> std::result::Result<(), (CUresult, Option<Difference>)> {
    let held = G::store().with(|inner| inner.hold(graph));
    let held = held.map_err(|code| (code, None))?;
    update_steps(exec, graph)?;
    exec.objects.replace(held);
    Ok(())
}

fn update_steps<G: Gpu>(
    exec: &Exec<G>,
    graph: u64,
) -> std::result::Result<(), (CUresult, Option<Difference>)> {
    if update_by_nodes(exec, graph).map_err(|code| (code, None))? {
        return Ok(());
    }
    let flat = G::store().with(|inner| flatten(inner, graph));
    let (mut steps, _) = flat.map_err(|code| (code, None))?;
    let mut state = exec.state();
    if let Some(difference) = compare_steps(&state.steps, &steps) {
        return Err((CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, Some(difference)));
    }
    for (step, before) in steps.iter_mut().zip(state.steps.iter()) {
        step.enabled = before.enabled;
        step.node = before.node;
    }
    let changed = changes(&state.steps, &steps);
    G::update(&exec.of, &steps, changed.as_ref()).map_err(|code| (code, None))?;
    state.steps = Arc::new(steps);
    Ok(())
}
