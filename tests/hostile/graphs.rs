// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs that are made, changed, launched and destroyed while their objects are made and destroyed.

#![allow(non_snake_case)]

use gpgpu_protocol::{
    api::{
        Array, BoxCopy, BoxEnd, GraphChange, GraphExec, GraphNodes, GraphStep, graph_edge,
        graph_step, object_id, request,
    },
    codec::{Blob, Writer},
};

use super::{Attack, BYTES, CLIENT, PINNED, Place, Sent};
use crate::client::launch;

impl Attack<'_> {
    /// A command about a graph.
    pub fn graphed(&mut self, place: &Place, hStream: u64) -> Sent {
        let context = place.context;
        let known = self.executables.clone();
        let (exec, steps) = self.pick(&known).unwrap_or((0, 1));
        match self.random.below(11) {
            10 => self.updated(place),
            0 | 1 if known.len() < 16 => {
                let exec = object_id::<GraphExec>(self.next_serial());
                let (list, steps) = self.list(place);
                self.executables.push((exec, steps));
                let (image, flags) = (0, 0);
                match self.random.below(3) {
                    0 => {
                        let steps = Blob(list);
                        let make = request::gpgpuGraphInstantiateHere { exec, steps, flags };
                        return Sent::new(&make, context);
                    }
                    1 => {
                        let steps = Blob(list);
                        let make = request::gpgpuGraphInstantiateFew { exec, steps, flags };
                        return Sent::new(&make, context);
                    }
                    _ => {}
                }
                let make = request::gpgpuGraphInstantiate { exec, image, flags };
                Sent::new(&make, context).with(&list, 0)
            }
            0..6 => {
                let launch = request::cuGraphLaunch {
                    hGraphExec: exec,
                    hStream,
                };
                Sent {
                    words: Some(&[0, 1]),
                    ..Sent::new(&launch, context)
                }
            }
            6 => {
                let step = self.random.below(u64::from(steps)) as u32;
                let to = self.step(place, step);
                if self.random.below(2) == 0 {
                    let changes = self.changes(place, steps);
                    return Sent::new(&request::gpgpuGraphSetSteps { exec, changes }, context);
                }
                Sent {
                    words: Some(&[0]),
                    ..Sent::new(&request::gpgpuGraphSetStep { exec, step, to }, context)
                }
            }
            7 => {
                let (list, _) = self.list(place);
                if self.random.below(2) == 0 {
                    let steps = Blob(list);
                    return Sent::new(&request::gpgpuGraphUpdateHere { exec, steps }, context);
                }
                let update = request::gpgpuGraphUpdate { exec, image: 0 };
                Sent::new(&update, context).with(&list, 0)
            }
            8 => {
                let upload = request::cuGraphUpload {
                    hGraphExec: exec,
                    hStream,
                };
                Sent::new(&upload, context)
            }
            _ => {
                let at = known.iter().position(|(id, _)| *id == exec);
                if let Some(at) = at {
                    self.gone.push(self.executables.swap_remove(at).0);
                }
                let end = request::cuGraphExecDestroy { hGraphExec: exec };
                Sent::new(&end, context)
            }
        }
    }

    /// A command for launches that kernels update.
    fn updated(&mut self, place: &Place) -> Sent {
        let context = place.context;
        let nodes = self.graph_nodes;
        match self.random.below(8) {
            0 => {
                self.graph_nodes = object_id::<GraphNodes>(self.next_serial());
                let nodes = self.graph_nodes;
                Sent::new(&request::gpgpuGraphNodes { nodes }, context)
            }
            1 => Sent::new(&request::gpgpuGraphNodesForget { nodes }, context),
            _ => {
                let mut step = self.step(place, 0);
                if self.random.below(8) != 0 {
                    step.numbers.clear();
                }
                let node = request::gpgpuGraphNode {
                    nodes,
                    step,
                    node: true,
                    name: true,
                };
                Sent::new(&node, context)
            }
        }
    }

    /// Changes of some of a graph's steps; the list may be truncated.
    fn changes(&mut self, place: &Place, steps: u32) -> Blob {
        let count = self.random.below(4);
        let changes: Vec<GraphChange> = (0..count)
            .map(|_| {
                let step = self.random.below(u64::from(steps) + 1) as u32;
                let to = self.step(place, step);
                GraphChange { step, to }
            })
            .collect();
        let mut writer = Writer::new();
        writer.put(&changes);
        let mut bytes = writer.into_bytes();
        if self.random.below(8) == 0 {
            bytes.truncate(self.random.below(bytes.len() as u64) as usize);
        }
        Blob(bytes)
    }

    /// A list of steps, some of which may be wrong: the list may be truncated, or one of its bytes changed.
    fn list(&mut self, place: &Place) -> (Vec<u8>, u32) {
        let count = 1 + self.random.below(6) as u32;
        let mut steps: Vec<GraphStep> = (0..count).map(|at| self.step(place, at)).collect();
        if self.random.below(3) == 0 {
            steps = self.bodies(place, steps);
        }
        let count = steps.len() as u32;
        let mut writer = Writer::new();
        writer.put(&steps);
        let mut bytes = writer.into_bytes();
        match self.random.below(8) {
            0 => bytes.truncate(self.random.below(bytes.len() as u64) as usize),
            // The count: anything.
            1 => bytes[..8].copy_from_slice(&self.random.next().to_le_bytes()),
            _ => {}
        }
        (bytes, count)
    }

    /// The steps in bodies of conditional steps, two of which are sometimes exchanged. No loop begins with a true
    /// value, because nothing would end it.
    fn bodies(&mut self, place: &Place, inner: Vec<GraphStep>) -> Vec<GraphStep> {
        const IF: u64 = 0;
        const SWITCH: u64 = 2;
        let mark = |kind: u32, object: u64, numbers: Vec<u64>| GraphStep {
            kind,
            context: place.context,
            object,
            numbers,
            ..GraphStep::default()
        };
        let values = 1 + self.random.below(2);
        let mut steps: Vec<GraphStep> = (0..values)
            .map(|_| {
                mark(
                    graph_step::VALUE,
                    0,
                    vec![self.random.below(3), self.random.below(3)],
                )
            })
            .collect();
        let of = if self.random.below(2) == 0 {
            IF
        } else {
            SWITCH
        };
        let count = 1 + self.random.below(3);
        let value = 1 + self.random.below(2);
        steps.push(mark(graph_step::CONDITIONAL, value, vec![of, count]));
        for body in 0..count {
            steps.push(mark(graph_step::BODY, 0, Vec::new()));
            let first = steps.len() as u32;
            let copies = inner.iter().cloned().map(|mut step| {
                step.after.iter_mut().for_each(|after| *after += first);
                step
            });
            if body == 0 || self.random.below(2) == 0 {
                steps.extend(copies);
            }
        }
        steps.push(mark(graph_step::END, 0, Vec::new()));
        if self.random.below(3) == 0 {
            let [one, other] = [0, 1].map(|_| self.random.below(steps.len() as u64) as usize);
            steps.swap(one, other);
        }
        steps
    }

    /// A copy between memory and an array, or between arrays.
    fn boxed(&mut self, address: u64) -> BoxCopy {
        let mut end = || BoxEnd {
            array: object_id::<Array>(1 + self.random.below(4)),
            address,
            pitch: 64,
            rows: 2,
            ..BoxEnd::default()
        };
        let (dst, src) = (end(), end());
        let mut copy = BoxCopy {
            dst,
            src,
            width: 64,
            height: 2,
            depth: 1,
        };
        match self.random.below(3) {
            0 => copy.dst.array = 0,
            1 => copy.src.array = 0,
            _ => {}
        }
        copy
    }

    /// An edge that usually exists.
    fn edge(&mut self) -> u64 {
        match self.random.below(8) {
            0 => self.random.next(),
            1..4 => graph_edge([1, 0, 1]),
            4 => graph_edge([2, 0, 1]),
            5 => graph_edge([2, 0, 0]),
            _ => 0,
        }
    }

    /// A step with this number.
    fn step(&mut self, place: &Place, at: u32) -> GraphStep {
        let memory: Vec<u64> = [place.memory.clone(), vec![CLIENT + PINNED]].concat();
        let (dst, src) = (
            self.pick(&memory).unwrap_or(0),
            self.pick(&memory).unwrap_or(0),
        );
        let bytes = 1 + self.random.below(BYTES as u64);
        let event = self.pick(&place.events).unwrap_or(0);
        let func = self.pick(&place.functions).unwrap_or(0);
        let kernel = launch(func, 0, dst, self.turns / 16);
        let after = (0..at).filter(|_| self.random.below(2) == 0).collect();
        let of = GraphStep {
            kind: self.random.below(u64::from(graph_step::EDGES) + 1) as u32,
            after,
            enabled: self.random.below(4) != 0,
            context: place.context,
            ..GraphStep::default()
        };
        match of.kind {
            0 => GraphStep {
                object: func,
                launch: kernel.config,
                params: kernel.params,
                numbers: match self.random.below(4) {
                    0 => vec![self.graph_nodes, self.random.below(3)],
                    _ => Vec::new(),
                },
                ..of
            },
            1 => GraphStep {
                numbers: vec![dst, src, bytes, bytes, 1, 1, bytes, 1, 1],
                ..of
            },
            2 => GraphStep {
                numbers: vec![dst, bytes, 7, 1, bytes, 1],
                ..of
            },
            // The callbacks are not fetched, so a stream that calls one would stop.
            3 => GraphStep { kind: 4, ..of },
            5 | 6 => GraphStep {
                object: event,
                ..of
            },
            // The next step may have this number of dependencies.
            graph_step::EDGES => GraphStep {
                numbers: (0..self.random.below(4)).map(|_| self.edge()).collect(),
                after: Vec::new(),
                ..of
            },
            graph_step::BOX => GraphStep {
                numbers: self.boxed(dst).numbers(),
                ..of
            },
            _ => GraphStep {
                params: Blob(Vec::new()),
                object: self.random.next(),
                ..of
            },
        }
    }
}
