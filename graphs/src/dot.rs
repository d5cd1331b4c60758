// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Prints a graph in the language of Graphviz. The names of graphs and nodes contain the ids of `cuGraphGetId` and
//! `cuGraphNodeGetLocalId`, and the labels of nodes contain their handles.

use std::fmt::Write;

use crate::{Gpu, Result, node::Work, store::Inner};

fn label(work: &Work) -> String {
    match work {
        Work::Kernel(of) => format!(
            "KERNEL\\nfunction {:#x}\\ngrid {:?} block {:?} shared {}",
            of.function, of.grid, of.block, of.shared
        ),
        Work::Copy(of) => format!(
            "MEMCPY\\n{:#x} to {:#x}\\n{} x {} x {} bytes",
            of.src | of.src_array,
            of.dst | of.dst_array,
            of.width,
            of.height,
            of.depth
        ),
        Work::Fill(of) => format!(
            "MEMSET\\n{:#x} value {:#x}\\n{} x {} of {} bytes",
            of.given.dst, of.given.value, of.given.width, of.given.height, of.given.elementSize
        ),
        Work::Host(_) => "HOST".into(),
        Work::MemOps(of) => format!("BATCH MEM OP\\n{} operations", of.ops.len()),
        Work::Child(_) => "CHILD GRAPH".into(),
        Work::Conditional(of) => format!(
            "CONDITIONAL\\nvalue {}, {} bodies",
            of.condition,
            of.bodies.len()
        ),
        Work::Empty | Work::Condition(_) | Work::Edges(_) | Work::Body | Work::EndBodies => {
            "EMPTY".into()
        }
        Work::Record(event) => format!("EVENT RECORD\\n{event:#x}"),
        Work::Wait(event) => format!("EVENT WAIT\\n{event:#x}"),
        Work::Alloc(of) => format!("MEM ALLOC\\n{:#x}, {} bytes", of.address(), of.bytes),
        Work::Free(of) => format!("MEM FREE\\n{:#x}", of.address()),
        Work::Own(_) => "LIBRARY CALL".into(),
    }
}

fn body<G: Gpu>(inner: &mut Inner<G>, graph: u64, text: &mut String) -> Result {
    let (id, nodes) = {
        let graph = inner.graph(graph)?;
        (graph.id, graph.nodes.clone())
    };
    for handle in nodes {
        let node = inner.node(handle)?.clone();
        let name = format!("graph_{id}_node_{}", node.number);
        let what = label(&node.work);
        let _ = writeln!(text, "\"{name}\" [label=\"{what}\\nhandle {handle:#x}\"]");
        for (to, _) in &node.dependents {
            let to = inner.node(*to)?.number;
            let _ = writeln!(text, "\"{name}\" -> \"graph_{id}_node_{to}\"");
        }
        let own = match &node.work {
            Work::Child(child) => vec![*child],
            Work::Conditional(of) => of.bodies.to_vec(),
            _ => Vec::new(),
        };
        for child in own {
            let id = inner.graph(child)?.id;
            let _ = writeln!(text, "subgraph \"cluster_graph_{id}\" {{");
            body(inner, child, text)?;
            text.push_str("}\n");
        }
    }
    Ok(())
}

/// The graph with this handle, as text.
pub fn print<G: Gpu>(inner: &mut Inner<G>, graph: u64) -> Result<String> {
    let id = inner.graph(graph)?.id;
    let mut text = format!("digraph \"graph_{id}\" {{\nnode [shape=\"box\"]\n");
    body(inner, graph, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}
