// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A graph in the language of Graphviz.

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
        Work::Empty | Work::Condition(_) | Work::Body | Work::EndBodies => "EMPTY".into(),
        Work::Record(event) => format!("EVENT RECORD\\n{event:#x}"),
        Work::Wait(event) => format!("EVENT WAIT\\n{event:#x}"),
        Work::Alloc(of) => format!("MEM ALLOC\\n{:#x}, {} bytes", of.address, of.bytes),
        Work::Free(of) => format!("MEM FREE\\n{:#x}", of.address),
        Work::Own(_) => "LIBRARY CALL".into(),
    }
}

fn body<G: Gpu>(inner: &mut Inner<G>, graph: u64, text: &mut String) -> Result {
    let nodes = inner.graph(graph)?.nodes.clone();
    for handle in nodes {
        let node = inner.node(handle)?.clone();
        let _ = writeln!(text, "\"{handle:#x}\" [label=\"{}\"]", label(&node.work));
        for (to, _) in &node.dependents {
            let _ = writeln!(text, "\"{handle:#x}\" -> \"{to:#x}\"");
        }
        let own = match &node.work {
            Work::Child(child) => vec![*child],
            Work::Conditional(of) => of.bodies.to_vec(),
            _ => Vec::new(),
        };
        for child in own {
            let _ = writeln!(text, "subgraph \"cluster_{child:#x}\" {{");
            body(inner, child, text)?;
            text.push_str("}\n");
        }
    }
    Ok(())
}

/// The graph with this handle, as text.
pub fn print<G: Gpu>(inner: &mut Inner<G>, graph: u64) -> Result<String> {
    let mut text = format!("digraph \"{graph:#x}\" {{\nnode [shape=\"box\"]\n");
    body(inner, graph, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}
