// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The context and the GPUs of a command that submits work to a GPU.
//!
//! The driver takes the context from the stream or from the function, and from the thread only if these have none. This
//! module does the same, and makes that context current before the gate and the call: the driver, the gate and the
//! charges then refer to the same context, whatever the command's header names.
//!
//! A green context uses its device's gate, like its primary context. Its streams belong to it; a function belongs to
//! the primary context, and runs in the green one if that is current.
//!
//! Operations with the properties `work` or `order` in the API table pass the gate of that context's GPU, and of each
//! other GPU whose memory a copy or fill accesses, or on which a graph has nodes. The others do not, for these reasons:
//!
//! | | why it passes no gate |
//! |---|---|
//! | a fence of the ring (`ring.rs`) | it passes if the lease is here ([`super::Gates::pass_by`]). If not, the GPU is not asked to write: what was given before is on its way or over, and a question or a wait says which |
//! | questions (`cuStreamQuery`, `cuEventQuery`), waits (`cuStreamSynchronize` …) | they give the GPU nothing |
//! | a mover's copy (`external.rs`) | the mark before it passes; the bytes are the mover's, which has turns of its own |
//! | loads of modules and libraries, `cuFuncLoad` | they may compile for seconds, in which nobody else would have the GPU. The driver copies their code and fills their globals once for each load, within the memory limit; eight are loaded at a time |
//! | allocations, frees, registrations, limits, peer access | page tables and stacks, which the driver changes by itself; the memory limit bounds them |
//! | contexts, streams, events: made and ended | the driver's set-up, within the limits on objects; an end must not wait for a turn |
//!
//! A kernel that accesses another GPU's memory by its address passes only its own GPU's gate, because its accesses are
//! not visible to the worker.

use std::cell::Cell;

use gpgpu_protocol::{
    api::{
        Arg, Array, ArrayForm, BoxCopy, BoxEnd, Context, Copy2D, Event, Flags, Function, Gone,
        GraphExec, GraphNodes, GraphPart, GraphStep, In, JitOption, Kernel, LaunchAttribute,
        LaunchConfig, Library, MemOp, MemPool, MipmappedArray, Module, MultiprocessorSplit, New,
        Object, Out, Physical, Stream, TensorForm, TensorMap, TextureForm, TextureResource,
    },
    codec::{Blob, Wire},
    cuda::*,
};

use super::gpu::note_stream;
use crate::cuda::driver;
use crate::worker::{common::Common, objects::Objects};

/// The arguments of a command that determine where it runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// A stream.
    pub stream: Option<u64>,
    /// A function or kernel.
    pub function: u64,
    /// The contexts of the memory of a copy between devices.
    pub contexts: [u64; 2],
    /// The memory of a copy or fill.
    pub addresses: [u64; 2],
    /// An executable graph.
    pub graph: u64,
    /// The GPUs of that graph, a bit for each.
    pub gpus: u64,
}

/// The effect of an argument of the API table on the place of its command.
pub trait Names: Arg {
    /// Records the argument, whose name is `argument`.
    fn name(_request: &Self::Request, _argument: &str, _named: &mut Named) {}
}

/// A request, of which only the place of its execution is needed.
pub trait Naming {
    /// The arguments that determine it.
    fn named(&self) -> Named;
}

macro_rules! nothing {
    ($($ty:ty),*) => {$(impl Names for $ty {})*};
}

nothing!(
    u8,
    u16,
    u32,
    i32,
    usize,
    bool,
    String,
    Blob,
    Vec<u32>,
    Vec<JitOption>,
    Vec<MemOp>,
    LaunchAttribute,
    TensorForm,
    TensorMap,
    ArrayForm,
    TextureForm,
    TextureResource,
    MultiprocessorSplit
);
// An array of a copy is on the GPU of the copy's context.
nothing!(Array, MipmappedArray);
// A step runs in a context of its own, which the worker enters itself.
nothing!(
    Module, Library, Kernel, Event, MemPool, GraphNodes, GraphPart, GraphStep, Physical
);

impl<const GOOD: u32> Names for Flags<GOOD> {}
impl<T: Wire> Names for Out<T> {}
impl<T: Wire> Names for In<T> {}
impl<K: Object> Names for New<K> {}
impl<K: Object> Names for Gone<K> {}

/// Whether an argument of this name is the address of memory that the GPU accesses for the command.
const fn is_address(argument: &str) -> bool {
    matches!(
        argument.as_bytes(),
        b"dst" | b"src" | b"dstDevice" | b"srcDevice"
    )
}

/// Stores a value in the first free place.
fn note(places: &mut [u64; 2], value: u64) {
    if let Some(place) = places.iter_mut().find(|place| **place == 0) {
        *place = value;
    }
}

impl Names for u64 {
    fn name(request: &u64, argument: &str, named: &mut Named) {
        if is_address(argument) {
            note(&mut named.addresses, *request);
        }
    }
}

impl Names for Copy2D {
    fn name(request: &Self, _: &str, named: &mut Named) {
        named.addresses = [request.dst, request.src];
    }
}

impl Names for BoxCopy {
    fn name(request: &Self, argument: &str, named: &mut Named) {
        BoxEnd::name(&request.dst, argument, named);
        BoxEnd::name(&request.src, argument, named);
    }
}

impl Names for BoxEnd {
    fn name(request: &Self, _: &str, named: &mut Named) {
        if request.array == 0 {
            note(&mut named.addresses, request.address);
        }
    }
}

impl Names for Context {
    fn name(request: &u64, _: &str, named: &mut Named) {
        note(&mut named.contexts, *request);
    }
}

impl Names for Stream {
    fn name(request: &u64, _: &str, named: &mut Named) {
        named.stream = Some(*request);
    }
}

impl Names for GraphExec {
    fn name(request: &u64, _: &str, named: &mut Named) {
        named.graph = *request;
    }
}

impl Names for Function {
    fn name(request: &u64, _: &str, named: &mut Named) {
        named.function = *request;
    }
}

impl Names for LaunchConfig {
    fn name(request: &Self, _: &str, named: &mut Named) {
        named.stream = Some(request.stream);
    }
}

/// The number of objects whose contexts a thread caches.
const KEPT: usize = 64;

thread_local! {
    /// Objects, [`Objects::ends`] at the time of their look-up, and their contexts.
    static CONTEXTS: [Cell<(u64, u64, u64)>; KEPT] = const { [const { Cell::new((0, 0, 0)) }; KEPT] };
    /// The context of the command that this thread is submitting to the driver; 0 for none.
    static PLACED: Cell<u64> = const { Cell::new(0) };
    /// The GPUs whose gates the command has passed, a bit for each, if it needed several.
    static PASSED: Cell<u64> = const { Cell::new(0) };
}

/// The bit of a GPU in a set of GPUs.
pub fn bit(gpu: usize) -> u64 {
    1_u64.checked_shl(gpu as u32).unwrap_or(0)
}

/// The context of a stream or function; 0 for a kernel, which has none. `None` if there is no such object.
fn context_of(objects: &Objects, id: u64) -> Option<u64> {
    // Read before the look-up, so that a later end invalidates the result.
    let ends = objects.ends();
    CONTEXTS.with(|kept| {
        let place = &kept[(id >> 8) as usize % KEPT];
        match place.get() {
            (of, when, context) if of == id && when == ends => Some(context),
            _ => {
                let context = objects.live_context_of(id)?;
                place.set((id, ends, context));
                Some(context)
            }
        }
    })
}

/// Makes the context current in which a command with these arguments runs, and returns it.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT` if there is none, `CUDA_ERROR_CONTEXT_IS_DESTROYED` if the header's was destroyed,
/// `CUDA_ERROR_INVALID_HANDLE` if there is no such stream.
pub fn place(common: &Common, header: u64, named: &Named) -> Result<u64, CUresult> {
    let objects = &common.objects;
    let context = match named.stream {
        Some(stream) if !Stream::SPECIAL.contains(&stream) => {
            // The context of an object of another kind does not count.
            let is_stream = gpgpu_protocol::api::object_kind(stream) == Stream::KIND;
            let context = is_stream.then(|| context_of(objects, stream)).flatten();
            context.ok_or(CUDA_ERROR_INVALID_HANDLE)?
        }
        _ if named.function != 0 => match context_of(objects, named.function) {
            // A kernel runs in the context of its launch. The operation refuses an object that does not exist.
            None | Some(0) => header,
            // If a green context is current, it runs there.
            Some(context) if header != context && objects.home(header) == context => header,
            Some(context) => context,
        },
        None if header == 0 => named.contexts[0],
        _ => header,
    };
    if context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if header != context && header != 0 {
        let header = objects.raw::<Context>(header);
        header.map_err(|_| CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    }
    common.enter(context)?;
    Ok(context)
}

/// Records the context of the command that this thread is about to submit to the driver; 0 afterwards.
pub fn set_placed(context: u64) {
    PLACED.set(context);
    PASSED.set(0);
    note_stream(0);
}

/// Records that the present command has passed the gates of these GPUs.
pub fn set_passed(gpus: &[usize]) {
    PASSED.set(gpus.iter().fold(0, |all, gpu| all | bit(*gpu)));
}

/// Checks that the present command may submit work to these GPUs, a bit for each. After it has passed the gates,
/// another thread may have changed the object that determined them.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE` if it has not passed all their gates; the driver's error code.
pub fn use_gpus(gpus: u64) -> Result<(), CUresult> {
    let passed = match PASSED.get() {
        0 => bit(current_gpu()?),
        several => several,
    };
    match gpus & !passed {
        0 => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

/// Records the stream of the present command. If the command has passed a gate, the stream must belong to its context:
/// after the gate, another thread may have made a stream with the same id.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE` if it does not.
pub fn use_stream(raw: u64, context: u64) -> Result<(), CUresult> {
    let placed = PLACED.get();
    if placed != 0 && placed != context {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    note_stream(raw);
    Ok(())
}

/// The current context's GPU.
///
/// # Errors
///
/// The driver's error code.
pub fn current_gpu() -> Result<usize, CUresult> {
    let mut device = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuCtxGetDevice(&mut device)? };
    usize::try_from(device).map_err(|_| CUDA_ERROR_INVALID_DEVICE)
}

/// The GPU of the memory at an address; `None` for host memory, or no memory.
pub fn gpu_of_memory(address: u64) -> Option<usize> {
    let ask = |which| {
        let mut value = 0_i32;
        // SAFETY: both attributes are 32 bits long, and the value lives across the call; the address is only looked up.
        unsafe {
            driver::cuPointerGetAttribute((&raw mut value).cast(), which, address).ok()?;
        }
        Some(value)
    };
    let kind = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
    if kind as u32 != CU_MEMORYTYPE_DEVICE {
        return None;
    }
    usize::try_from(ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)?).ok()
}

/// The GPUs to which a command of the current context submits work, in order.
///
/// # Errors
///
/// The driver's error code; `CUDA_ERROR_INVALID_CONTEXT` for an invalid context.
pub fn gpus(common: &Common, named: &Named) -> Result<Vec<usize>, CUresult> {
    let context = common.entered();
    let mut gpus = vec![current_gpu()?];
    let memory = named.addresses.iter().filter(|address| **address != 0);
    gpus.extend(memory.filter_map(|address| gpu_of_memory(*address)));
    gpus.extend((0..u64::BITS as usize).filter(|gpu| named.gpus & bit(*gpu) != 0));
    for other in named.contexts {
        if other != 0 && other != context {
            let there = common.enter(other).and_then(|()| current_gpu());
            common.enter(context)?;
            gpus.push(there.map_err(|_| CUDA_ERROR_INVALID_CONTEXT)?);
        }
    }
    gpus.sort_unstable();
    gpus.dedup();
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::{
        api::{Property, is},
        with_api,
    };

    use super::*;

    macro_rules! arguments {
        ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
            const ARGUMENTS: &[(u16, &str, &[(&str, &str)])] =
                &[$(($op, stringify!($name), &[$((stringify!($arg), stringify!($ty))),*])),*];
        };
    }

    with_api!(arguments);

    #[test]
    fn every_64_bit_argument_of_work_has_a_known_kind() {
        for (op, operation, arguments) in ARGUMENTS {
            if !is(*op, Property::Work) {
                continue;
            }
            for (argument, _) in arguments.iter().filter(|(_, ty)| *ty == "u64") {
                assert!(
                    is_address(argument) || *argument == "callback",
                    "is {argument} of {operation} an address?"
                );
            }
        }
    }

    #[test]
    fn memory_at_an_end_of_a_box_counts_and_an_arrays_address_does_not() {
        let end = |array, address| BoxEnd {
            array,
            address,
            ..Default::default()
        };
        let named = |end: BoxEnd| {
            let mut named = Named::default();
            BoxEnd::name(&end, "to", &mut named);
            named.addresses
        };
        assert_eq!(named(end(0, 0x7000)), [0x7000, 0]);
        assert_eq!(named(end(5, 0x7000)), [0, 0]);
    }
}
