// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Parts of graphs: the recorded GPU work of a library's call.
//!
//! The library's work is captured in a stream that exists only for this call and that no other code knows. So no other
//! work gets into the part, and no other command uses a captured stream. The capture uses the relaxed mode, which does
//! not restrict other threads.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use gpgpu_graphs::abi::{CUDA_MEM_ALLOC_NODE_PARAMS, kind};
use gpgpu_locks::RwLockWriteGuard;
use gpgpu_protocol::{api::GraphPart, cuda::*};

use super::Owned;
use crate::{cuda::driver, worker::captures};

/// The maximum nesting depth of a library's graphs.
const DEEPEST: usize = 8;

/// A part.
#[derive(Debug)]
pub struct Part {
    raw: CUgraph,
    /// The id of its context.
    pub(super) context: u64,
    /// The number of launches, copies and fills.
    pub commands: u64,
    /// The counter of nodes and the number of nodes counted there.
    counted: Option<(Arc<AtomicUsize>, usize)>,
}

// SAFETY: the driver's handle can be used by any thread; a finished part is only copied from, which the driver allows
// several threads at once, and ended when it is no longer in use.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

impl Drop for Part {
    fn drop(&mut self) {
        // SAFETY: the graph is the driver's, and this alone ends it.
        let _ = unsafe { driver::cuGraphDestroy(self.raw) };
        if let Some((counted, nodes)) = &self.counted {
            counted.fetch_sub(*nodes, Ordering::Relaxed);
        }
    }
}

/// The reason why there is no part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The error.
    pub code: CUresult,
    /// The bytes of device memory that the recorded work would allocate.
    pub memory: u64,
}

impl From<CUresult> for Refused {
    fn from(code: CUresult) -> Self {
        Self { code, memory: 0 }
    }
}

/// Whether the memory of a copy exists as long as the part: an array or device memory. The buffers of the recorded call
/// belong to this process, and end with the call.
fn stays(kind: CUmemorytype, address: CUdeviceptr, type_of: impl Fn(u64) -> CUmemorytype) -> bool {
    match kind {
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_ARRAY => true,
        CU_MEMORYTYPE_UNIFIED => type_of(address) == CU_MEMORYTYPE_DEVICE,
        _ => false,
    }
}

/// The type of the memory at an address; 0 if it is not CUDA's.
fn type_of(address: u64) -> CUmemorytype {
    let mut of: CUmemorytype = 0;
    // SAFETY: the pointer is to a value that lives across the call and is as large as the attribute; the address is
    // only looked up.
    let asked = unsafe {
        driver::cuPointerGetAttribute(
            (&raw mut of).cast(),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            address,
        )
    };
    asked.map_or(0, |()| of)
}

/// Checks a copy of a part.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for a copy from or to host memory.
fn check_copy(node: CUgraphNode) -> Result<(), Refused> {
    // SAFETY: all members are numbers and pointers, of which zero is a value.
    let mut of: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
    // SAFETY: the node is the graph's; the pointer is to a value that lives across the call.
    unsafe { driver::cuGraphMemcpyNodeGetParams(node, &mut of) }?;
    let ends = [
        (of.srcMemoryType, of.srcDevice),
        (of.dstMemoryType, of.dstDevice),
    ];
    match ends.into_iter().all(|(kind, at)| stays(kind, at, type_of)) {
        true => Ok(()),
        false => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.into()),
    }
}

/// The nodes of a driver's graph.
///
/// # Errors
///
/// The driver's error code.
pub fn nodes_of(graph: CUgraph) -> Result<Vec<CUgraphNode>, CUresult> {
    let mut count = 0;
    // SAFETY: the graph is the driver's; NULL asks for the number alone.
    unsafe { driver::cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) }?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count > 0 {
        // SAFETY: there is room for so many.
        unsafe { driver::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) }?;
    }
    Ok(nodes)
}

/// The number of nodes, and the number of launches, copies and fills among them.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for a node that a part cannot have: allocations, host functions, events,
/// copies from or to host memory.
fn count(graph: CUgraph, depth: usize) -> Result<(usize, u64), Refused> {
    let (mut all, mut commands, mut memory) = (0, 0, 0);
    for node in nodes_of(graph)? {
        let mut of = u32::MAX;
        // SAFETY: the node is the graph's; the pointer is to a value that lives across the call.
        unsafe { driver::cuGraphNodeGetType(node, &mut of) }?;
        all += 1;
        match of {
            kind::KERNEL | kind::MEMSET => commands += 1,
            kind::MEMCPY => {
                check_copy(node)?;
                commands += 1;
            }
            kind::EMPTY => {}
            kind::GRAPH if depth < DEEPEST => {
                let mut child = std::ptr::null_mut();
                // SAFETY: as above.
                match unsafe { driver::cuGraphChildGraphNodeGetGraph(node, &mut child) } {
                    Ok(()) => {
                        let (more, given) = count(child, depth + 1)?;
                        (all, commands) = (all + more, commands + given);
                    }
                    // The software GPU cannot list the nodes of its libraries.
                    Err(CUDA_ERROR_NOT_SUPPORTED) => commands += 1,
                    Err(code) => return Err(code.into()),
                }
            }
            kind::MEM_ALLOC => {
                // SAFETY: all members are numbers and pointers, of which zero is a value.
                let mut of: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { std::mem::zeroed() };
                // SAFETY: the node is the graph's; the pointer is to a value that lives across the call.
                unsafe { driver::cuGraphMemAllocNodeGetParams(node, (&raw mut of).cast()) }?;
                memory += of.bytesize as u64;
            }
            // The allocation is refused already.
            kind::MEM_FREE if memory > 0 => {}
            _ => return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.into()),
        }
    }
    if memory > 0 {
        let code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        return Err(Refused { code, memory });
    }
    Ok((all, commands))
}

/// A stream for a recording.
#[derive(Debug)]
pub struct Recorder {
    stream: CUstream,
    /// The permission to capture during the recording.
    open: RefCell<Option<RwLockWriteGuard<'static, ()>>>,
    /// The recording, once it has ended.
    outcome: Cell<Result<CUgraph, CUresult>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
        if let Ok(left) = self.outcome.get()
            && !left.is_null()
        {
            // SAFETY: no other code has the graph.
            let _ = unsafe { driver::cuGraphDestroy(left) };
        }
        // SAFETY: the stream is this one's own.
        let _ = unsafe { driver::cuStreamDestroy_v2(self.stream) };
    }
}

impl Recorder {
    /// A stream in the current context.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn new() -> Result<Self, CUresult> {
        let mut stream = std::ptr::null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING) }?;
        Ok(Self {
            stream,
            open: RefCell::new(None),
            outcome: Cell::new(Ok(std::ptr::null_mut())),
        })
    }

    /// The driver's handle.
    pub fn raw(&self) -> u64 {
        self.stream as u64
    }

    /// Begins to record the stream's work.
    ///
    /// # Errors
    ///
    /// The driver's error code.
    pub fn begin(&self) -> Result<(), CUresult> {
        let open = captures::capture();
        // SAFETY: the stream is this one's own.
        unsafe { driver::cuStreamBeginCapture_v2(self.stream, CU_STREAM_CAPTURE_MODE_RELAXED) }?;
        self.open.replace(Some(open));
        Ok(())
    }

    /// Ends the recording. If there is none, [`Recorder::finish`] returns the reason.
    pub fn stop(&self) {
        let mut graph = std::ptr::null_mut();
        if let Some(_open) = self.open.take() {
            // SAFETY: the stream is this one's own; the pointer is to a value that lives across the call.
            let ended = unsafe { driver::cuStreamEndCapture(self.stream, &mut graph) };
            self.outcome.set(ended.map(|()| graph));
        }
    }

    /// The recording; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// The driver's error code; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for work that a part cannot have;
    /// `CUDA_ERROR_OUT_OF_MEMORY` if the client has reached its limit of nodes.
    pub fn finish(
        &self,
        context: u64,
        counted: &Arc<AtomicUsize>,
    ) -> Result<Option<Part>, Refused> {
        self.stop();
        let raw = self.outcome.replace(Ok(std::ptr::null_mut()))?;
        if raw.is_null() {
            return Ok(None);
        }
        let mut part = Part {
            raw,
            context,
            commands: 0,
            counted: None,
        };
        let (nodes, commands) = count(part.raw, 0)?;
        if nodes == 0 {
            return Ok(None);
        }
        super::reserve(counted, nodes)?;
        (part.commands, part.counted) = (commands.max(1), Some((Arc::clone(counted), nodes)));
        Ok(Some(part))
    }
}

impl Owned for Part {
    type Kind = GraphPart;
    const MOST: usize = 256 << 10;

    fn is_in(&self, context: u64) -> bool {
        self.context == context
    }
}

impl Part {
    /// The driver's handle.
    pub fn raw(&self) -> CUgraph {
        self.raw
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.counted.as_ref().map_or(0, |(_, nodes)| *nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_63_no_part_copies_from_or_to_memory_of_the_worker() {
        let type_of = |address| match address {
            1 => CU_MEMORYTYPE_DEVICE,
            2 => CU_MEMORYTYPE_HOST,
            _ => 0,
        };
        let stays = |kind, address| stays(kind, address, type_of);
        assert!(stays(CU_MEMORYTYPE_DEVICE, 5) && stays(CU_MEMORYTYPE_ARRAY, 0));
        assert!(stays(CU_MEMORYTYPE_UNIFIED, 1));
        for (kind, address) in [
            (CU_MEMORYTYPE_HOST, 0),
            (CU_MEMORYTYPE_UNIFIED, 2),
            (CU_MEMORYTYPE_UNIFIED, 3),
            (0, 1),
        ] {
            assert!(!stays(kind, address), "{kind} {address}");
        }
    }
}
