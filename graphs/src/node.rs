// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The content of a node. It includes copies of all data that its parameters point to.

use std::{any::Any, ffi::c_void, sync::Arc};

use gpgpu_protocol::cuda::*;

use crate::{
    Gpu, Result, Signature,
    abi::{
        CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS,
        CUgraphEdgeData, CUstreamBatchMemOpParams, kind,
    },
    conditional::{Condition, Conditional},
    objects::Allocation,
    updatable::{self, DeviceNode, Shared},
};

/// The most bytes of a launch's parameters.
const MOST_PARAMETERS: usize = 32764;

/// A launch.
pub struct Kernel {
    /// The function's or kernel's handle.
    pub function: u64,
    /// The handle of the context that it runs in.
    pub context: u64,
    /// The number of blocks.
    pub grid: [u32; 3],
    /// The number of threads of a block.
    pub block: [u32; 3],
    /// The bytes of dynamic shared memory.
    pub shared: u32,
    /// Launch attributes, except the one that `device_node` represents.
    pub attributes: Vec<CUlaunchAttribute>,
    /// The driver's node, if kernels update the launch, or, for a clone, its original.
    pub device_node: Option<DeviceNode>,
    /// The function's parameters.
    pub signature: Signature,
    /// The parameter buffer, aligned as CUDA aligns parameters, followed by the address of each parameter in it: the
    /// node's `kernelParams`. Programs get both addresses.
    values: Box<[u128]>,
}

/// The shape of a launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shape {
    /// The number of blocks.
    pub grid: [u32; 3],
    /// The number of threads of a block.
    pub block: [u32; 3],
    /// The bytes of dynamic shared memory.
    pub shared: u32,
}

/// The size of a function's parameter buffer, in words of 16 bytes.
fn buffer_words(signature: &Signature) -> usize {
    signature.bytes.div_ceil(16)
}

impl Kernel {
    /// A launch with these parameters, which are laid out as in the buffer.
    pub fn new(
        of: (u64, u64),
        shape: Shape,
        attributes: Vec<CUlaunchAttribute>,
        signature: Signature,
        bytes: &[u8],
    ) -> Self {
        Self::with(of, shape, attributes, signature, |buffer| {
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
        })
    }

    /// A launch whose parameters `write` writes to the zeroed buffer.
    pub fn with(
        (function, context): (u64, u64),
        shape: Shape,
        attributes: Vec<CUlaunchAttribute>,
        signature: Signature,
        write: impl FnOnce(&mut [u8]),
    ) -> Self {
        let buffer = buffer_words(&signature);
        let pointers = signature.layout.len().div_ceil(2);
        let mut values = vec![0_u128; buffer + pointers].into_boxed_slice();
        let start = values.as_mut_ptr();
        // SAFETY: the buffer has at least so many bytes, and is this function's alone.
        write(unsafe { std::slice::from_raw_parts_mut(start.cast(), signature.bytes) });
        let pointers = start.wrapping_add(buffer).cast::<*mut c_void>();
        for (at, (offset, _)) in signature.layout.iter().enumerate() {
            let address = start.cast::<u8>().wrapping_add(*offset).cast();
            // SAFETY: there are two addresses in each word behind the buffer, and one for each parameter.
            unsafe { pointers.add(at).write(address) };
        }
        Self {
            function,
            context,
            grid: shape.grid,
            block: shape.block,
            shared: shape.shared,
            attributes,
            device_node: None,
            signature,
            values,
        }
    }

    /// The same with other attributes.
    pub fn with_attributes(&self, attributes: Vec<CUlaunchAttribute>) -> Self {
        let of = (self.function, self.context);
        let signature = self.signature.clone();
        Self {
            device_node: self.device_node.clone(),
            ..Self::new(of, self.shape(), attributes, signature, self.bytes())
        }
    }

    /// The driver's node, if kernels update the launch, and its name in kernels.
    pub fn driver_node(&self) -> Option<(u64, &Shared)> {
        let node = self.device_node.as_ref()?;
        Some((node.name, node.of.as_ref()?))
    }

    /// The same for a clone of its graph: kernels update the original.
    pub fn in_clone(&self) -> Self {
        let node = self.device_node.as_ref();
        Self {
            device_node: node.map(|of| DeviceNode { of: None, ..*of }),
            ..self.with_attributes(self.attributes.clone())
        }
    }

    /// The same, as a launch that kernels update.
    pub fn with_device_node(&self, made: DeviceNode) -> Self {
        Self {
            device_node: Some(made),
            ..self.with_attributes(self.attributes.clone())
        }
    }

    /// Its shape.
    pub fn shape(&self) -> Shape {
        Shape {
            grid: self.grid,
            block: self.block,
            shared: self.shared,
        }
    }

    /// The parameter buffer.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer has at least so many bytes, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.values.as_ptr().cast(), self.signature.bytes) }
    }

    /// Gives a launch the priority of its stream, unless it has an own one.
    pub fn inherit_priority(&mut self, priority: i32) {
        let id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
        if self.attribute(id).is_none() {
            let mut words = [0; 8];
            words[0] = u64::from(priority.cast_unsigned());
            self.attributes.push(CUlaunchAttribute {
                id,
                pad: [0; 4],
                value: CUlaunchAttributeValue { words },
            });
        }
    }

    /// An attribute.
    pub fn attribute(&self, id: CUlaunchAttributeID) -> Option<CUlaunchAttributeValue> {
        if id == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE {
            return self
                .device_node
                .as_ref()
                .map(|of| updatable::value(of.name));
        }
        let found = self.attributes.iter().find(|of| of.id == id);
        found.map(|of| of.value)
    }

    /// The launch as CUDA's structure; its pointers are valid as long as `self`.
    pub fn to_abi(&self) -> CUDA_KERNEL_NODE_PARAMS {
        let params = if self.signature.layout.is_empty() {
            std::ptr::null_mut()
        } else {
            let pointers = self
                .values
                .as_ptr()
                .wrapping_add(buffer_words(&self.signature));
            pointers.cast_mut().cast()
        };
        CUDA_KERNEL_NODE_PARAMS {
            func: self.function as CUfunction,
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared,
            kernelParams: params,
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: self.context as CUcontext,
        }
    }

    /// Reads CUDA's structure and everything that it points to. `before` is the node's earlier launch, whose attributes
    /// are kept.
    ///
    /// # Safety
    ///
    /// `params` is valid, as CUDA's documentation requires.
    pub unsafe fn read<G: Gpu>(
        params: &CUDA_KERNEL_NODE_PARAMS,
        before: Option<&Self>,
    ) -> Result<Self> {
        let function = if params.func.is_null() {
            params.kern as u64
        } else {
            params.func as u64
        };
        if function == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let signature = G::signature(function)?;
        let context = match (params.ctx as u64, signature.context) {
            (0, 0) => G::context()?,
            (0, of) | (of, _) => of,
        };
        // SAFETY: promised by the caller.
        let bytes = unsafe { parameters(&signature, params.kernelParams, params.extra) }?;
        let shape = Shape {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared: params.sharedMemBytes,
        };
        let attributes = before.map(|of| of.attributes.clone()).unwrap_or_default();
        let kernel = Self {
            device_node: before.and_then(|of| of.device_node.clone()),
            ..Self::new((function, context), shape, attributes, signature, &bytes)
        };
        G::check_kernel(&kernel)?;
        Ok(kernel)
    }
}

/// The parameter buffer of a launch, from either of CUDA's two forms of parameters.
///
/// # Safety
///
/// The pointers are NULL, or valid as CUDA requires for a function with this signature.
pub unsafe fn parameters(
    signature: &Signature,
    each: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; signature.bytes];
    if extra.is_null() {
        for (index, (offset, size)) in signature.layout.iter().enumerate() {
            if each.is_null() {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            // SAFETY: there is a pointer for each parameter, and each leads to so many bytes.
            unsafe {
                let from = each.add(index).read().cast::<u8>();
                if from.is_null() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                let to = &mut bytes[*offset..offset + size];
                from.copy_to_nonoverlapping(to.as_mut_ptr(), *size);
            }
        }
        return Ok(bytes);
    }
    if !each.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let (mut packed, mut size) = (std::ptr::null::<u8>(), None);
    let mut at = extra.cast::<usize>();
    // SAFETY: the list is of names and values by turns, and ends with `CU_LAUNCH_PARAM_END`.
    unsafe {
        loop {
            match at.read() {
                CU_LAUNCH_PARAM_END => break,
                CU_LAUNCH_PARAM_BUFFER_POINTER => packed = at.add(1).read() as *const u8,
                CU_LAUNCH_PARAM_BUFFER_SIZE => {
                    size = Some((at.add(1).read() as *const usize).read());
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            at = at.add(2);
        }
        let size = size.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if (packed.is_null() && size > 0) || size > MOST_PARAMETERS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if size > 0 {
            packed.copy_to_nonoverlapping(bytes.as_mut_ptr(), size.min(bytes.len()));
        }
    }
    Ok(bytes)
}

/// A copy, as the program described it and as it is executed.
#[derive(Debug, Clone, Copy)]
pub struct Copy3D {
    /// The program's description.
    pub given: CUDA_MEMCPY3D,
    /// The handle of the context that it runs in.
    pub context: u64,
    /// The destination array, or 0; `given` has the position in it.
    pub dst_array: u64,
    /// The source array, or 0.
    pub src_array: u64,
    /// The first byte of the destination, if that is not an array.
    pub dst: u64,
    /// The first byte of the source, if that is not an array.
    pub src: u64,
    /// The distance between rows of the destination, in bytes.
    pub dst_pitch: usize,
    /// The distance between rows of the source, in bytes.
    pub src_pitch: usize,
    /// The distance between slices of the destination, in rows.
    pub dst_height: usize,
    /// The distance between slices of the source, in rows.
    pub src_height: usize,
    /// The bytes of a row.
    pub width: usize,
    /// The number of rows.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

// SAFETY: the addresses are the program's; nothing here reads or writes there.
unsafe impl Send for Copy3D {}
// SAFETY: as above.
unsafe impl Sync for Copy3D {}

/// One side of a copy: its first byte, its pitch and its height. For an array, the first byte is 0.
fn side(
    (kind, host, device, array): (CUmemorytype, u64, u64, u64),
    (x, y, z): (usize, usize, usize),
    (pitch, height): (usize, usize),
    (width, rows, depth): (usize, usize, usize),
) -> Result<(u64, usize, usize)> {
    let bad = CUDA_ERROR_INVALID_VALUE;
    let row = x.checked_add(width).ok_or(bad)?;
    let column = y.checked_add(rows).ok_or(bad)?;
    let base = match kind {
        CU_MEMORYTYPE_HOST => host,
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
        CU_MEMORYTYPE_ARRAY if array != 0 => return Ok((0, row, column)),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    // With one row the pitch has no meaning, and with one slice the height has none.
    let pitch = if pitch == 0 || rows == 1 && depth == 1 && y == 0 && z == 0 {
        row.max(pitch)
    } else {
        pitch
    };
    let height = if height == 0 || depth == 1 && z == 0 {
        column.max(height)
    } else {
        height
    };
    if base == 0 || pitch < row || height < column {
        return Err(bad);
    }
    let skipped = z
        .checked_mul(height)
        .and_then(|skipped| skipped.checked_add(y)?.checked_mul(pitch)?.checked_add(x));
    let start = skipped.and_then(|skipped| base.checked_add(skipped as u64));
    Ok((start.ok_or(bad)?, pitch, height))
}

impl Copy3D {
    /// Analyses and checks a description.
    pub fn new(given: &CUDA_MEMCPY3D, context: u64) -> Result<Self> {
        let c = given;
        if c.srcLOD != 0 || c.dstLOD != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let extent = (c.WidthInBytes, c.Height, c.Depth);
        let array = |kind, array: CUarray| match kind {
            CU_MEMORYTYPE_ARRAY => array as u64,
            _ => 0,
        };
        let dst_array = array(c.dstMemoryType, c.dstArray);
        let src_array = array(c.srcMemoryType, c.srcArray);
        if extent.0 == 0 || extent.1 == 0 || extent.2 == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (dst, dst_pitch, dst_height) = side(
            (c.dstMemoryType, c.dstHost as u64, c.dstDevice, dst_array),
            (c.dstXInBytes, c.dstY, c.dstZ),
            (c.dstPitch, c.dstHeight),
            extent,
        )?;
        let (src, src_pitch, src_height) = side(
            (c.srcMemoryType, c.srcHost as u64, c.srcDevice, src_array),
            (c.srcXInBytes, c.srcY, c.srcZ),
            (c.srcPitch, c.srcHeight),
            extent,
        )?;
        Ok(Self {
            given: *given,
            context,
            dst_array,
            src_array,
            dst,
            src,
            dst_pitch,
            src_pitch,
            dst_height,
            src_height,
            width: c.WidthInBytes,
            height: c.Height,
            depth: c.Depth,
        })
    }

    /// A copy of a row.
    pub fn line(
        (dst_kind, dst): (CUmemorytype, u64),
        (src_kind, src): (CUmemorytype, u64),
        bytes: usize,
        context: u64,
    ) -> Result<Self> {
        // SAFETY: all members are numbers and pointers, of which zero is a value.
        let mut copy: CUDA_MEMCPY3D = unsafe { std::mem::zeroed() };
        (copy.dstMemoryType, copy.srcMemoryType) = (dst_kind, src_kind);
        (copy.dstHost, copy.srcHost) = (dst as *mut c_void, src as *const c_void);
        (copy.dstDevice, copy.srcDevice) = (dst, src);
        (copy.dstPitch, copy.srcPitch) = (bytes, bytes);
        (copy.dstHeight, copy.srcHeight) = (1, 1);
        (copy.WidthInBytes, copy.Height, copy.Depth) = (bytes, 1, 1);
        Self::new(&copy, context)
    }

    /// Whether it copies the same bytes between the same places.
    pub fn does_as(&self, other: &Self) -> bool {
        let ends = |of: &Self| {
            let given = &of.given;
            let dst = (given.dstXInBytes, given.dstY, given.dstZ);
            let src = (given.srcXInBytes, given.srcY, given.srcZ);
            (
                (of.dst_array, of.dst, of.dst_pitch, of.dst_height, dst),
                (of.src_array, of.src, of.src_pitch, of.src_height, src),
            )
        };
        let size = |of: &Self| (of.width, of.height, of.depth);
        ends(self) == ends(other) && size(self) == size(other)
    }

    fn extent(&self, pitch: usize, height: usize) -> Result<usize> {
        let rows = (self.depth - 1)
            .checked_mul(height)
            .and_then(|rows| rows.checked_add(self.height - 1));
        let bytes = rows.and_then(|rows| rows.checked_mul(pitch)?.checked_add(self.width));
        bytes.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The distance from the destination's first byte to the end of its last one.
    pub fn dst_extent(&self) -> Result<usize> {
        self.extent(self.dst_pitch, self.dst_height)
    }

    /// The distance from the source's first byte to the end of its last one.
    pub fn src_extent(&self) -> Result<usize> {
        self.extent(self.src_pitch, self.src_height)
    }
}

/// A fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// The program's description.
    pub given: CUDA_MEMSET_NODE_PARAMS,
    /// The handle of the context that it runs in.
    pub context: u64,
}

impl Fill {
    /// Checks a description.
    pub fn new(given: CUDA_MEMSET_NODE_PARAMS, context: u64) -> Result<Self> {
        let mut given = given;
        let row = given.width.checked_mul(given.elementSize as usize);
        let row = row.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if given.height == 1 {
            given.pitch = row;
        }
        let size = given.elementSize as usize;
        let good = matches!(size, 1 | 2 | 4)
            && given.width > 0
            && given.height > 0
            && given.dst != 0
            && given.dst.is_multiple_of(size as u64)
            && given.pitch.is_multiple_of(size)
            && given.pitch >= row;
        if !good {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let fill = Self { given, context };
        fill.extent()?;
        Ok(fill)
    }

    /// The bytes of a row.
    pub fn row(&self) -> usize {
        self.given
            .width
            .saturating_mul(self.given.elementSize as usize)
    }

    /// The distance from the first byte to the end of the last one.
    pub fn extent(&self) -> Result<usize> {
        let rows = (self.given.height - 1).checked_mul(self.given.pitch);
        let bytes = rows.and_then(|rows| rows.checked_add(self.row()));
        bytes.ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// The most operations of a batch, as CUDA documents it.
pub const MOST_MEM_OPS: u32 = 256;

/// A batch of memory operations: words are written and waited for.
#[derive(Debug, PartialEq, Eq)]
pub struct MemOps {
    /// The handle of the context that it runs in.
    pub context: u64,
    /// The flags of the batch.
    pub flags: u32,
    /// The operations. Programs get the address of the first.
    pub ops: Box<[CUstreamBatchMemOpParams]>,
}

impl MemOps {
    /// Reads CUDA's structure, and the operations that it points to.
    ///
    /// # Safety
    ///
    /// `given` is valid, as CUDA's documentation requires.
    pub unsafe fn read(given: &CUDA_BATCH_MEM_OP_NODE_PARAMS, context: u64) -> Result<Self> {
        let is_there = !given.paramArray.is_null() && given.paramArray.is_aligned();
        if !is_there || given.count == 0 || given.count > MOST_MEM_OPS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let list = given.paramArray.cast_const();
        // SAFETY: there are so many operations, and their words are numbers.
        let ops = unsafe { std::slice::from_raw_parts(list, given.count as usize) };
        Ok(Self {
            context,
            flags: given.flags,
            ops: ops.into(),
        })
    }

    /// The batch as CUDA's structure; its pointers are valid as long as `self`.
    pub fn to_abi(&self) -> CUDA_BATCH_MEM_OP_NODE_PARAMS {
        CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: self.context as CUcontext,
            count: self.ops.len() as u32,
            paramArray: self.ops.as_ptr().cast_mut(),
            flags: self.flags,
        }
    }
}

/// A host function.
#[derive(Clone, Copy)]
pub struct Host(pub CUDA_HOST_NODE_PARAMS);

// SAFETY: CUDA calls the function on a thread of its own, with the pointer as the program gave it.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// The content of a node.
#[derive(Clone)]
pub enum Work {
    /// A launch.
    Kernel(Arc<Kernel>),
    /// A copy.
    Copy(Box<Copy3D>),
    /// A fill.
    Fill(Fill),
    /// A host function.
    Host(Host),
    /// A batch of memory operations.
    MemOps(Arc<MemOps>),
    /// A child graph, by handle.
    Child(u64),
    /// Nothing.
    Empty,
    /// Records the event with this handle.
    Record(u64),
    /// Waits for the event with this handle.
    Wait(u64),
    /// Allocates memory.
    Alloc(Arc<Allocation>),
    /// Frees memory.
    Free(Arc<Allocation>),
    /// A conditional node: a value selects one of the node's own graphs.
    Conditional(Arc<Conditional>),
    /// Only in a list of steps: a value that later steps depend on.
    Condition(Condition),
    /// Only in a list of steps: the edges from the next step to each of its dependencies.
    Edges(Arc<[CUgraphEdgeData]>),
    /// Only in a list of steps: the start of a body of the last conditional step.
    Body,
    /// Only in a list of steps: the end of the last conditional step's last body.
    EndBodies,
    /// Work that the driver itself has recorded.
    Own(Arc<dyn Any + Send + Sync>),
}

impl Work {
    /// Whether this edge is possible from a node of this kind to one like `to`, as observed on an H100 (driver
    /// 580.159.04).
    pub fn leads(&self, to: &Self, edge: CUgraphEdgeData) -> bool {
        let (from_launch, to_launch) = (
            matches!(self, Self::Kernel(_)),
            matches!(to, Self::Kernel(_)),
        );
        edge.is_whole()
            || from_launch && edge == CUgraphEdgeData::LAUNCH_ORDER
            || from_launch
                && to_launch
                && [
                    CUgraphEdgeData::PROGRAMMATIC,
                    CUgraphEdgeData::PROGRAMMATIC_FROM_START,
                ]
                .contains(&edge)
    }

    /// The `CUgraphNodeType`.
    pub fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => kind::KERNEL,
            Self::Copy(_) => kind::MEMCPY,
            Self::Fill(_) => kind::MEMSET,
            Self::Host(_) => kind::HOST,
            Self::MemOps(_) => kind::BATCH_MEM_OP,
            Self::Child(_) | Self::Own(_) => kind::GRAPH,
            Self::Conditional(_) => kind::CONDITIONAL,
            // Markers of a list are no nodes.
            Self::Empty | Self::Condition(_) | Self::Edges(_) | Self::Body | Self::EndBodies => {
                kind::EMPTY
            }
            Self::Record(_) => kind::EVENT_RECORD,
            Self::Wait(_) => kind::WAIT_EVENT,
            Self::Alloc(_) => kind::MEM_ALLOC,
            Self::Free(_) => kind::MEM_FREE,
        }
    }
}
