// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts: parts of a device's multiprocessors.
//!
//! A resource is a structure of the program, part of which belongs to the library. There this library stores the split
//! from which the multiprocessors come, as numbers; the bytes of the host's driver stay on the host. A descriptor is a
//! list of such numbers, stored here.
//!
//! A green context is a context with an id of its own, which the command's header names: it has its own streams,
//! launches in its default stream and waits for its work. Objects that are made while it is current belong to the
//! primary context ([`home`]), which it retains.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{
        Context, MultiprocessorSplit, Multiprocessors, Object, REMAINING, Stream, object_kind,
        request,
    },
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    context, cuda,
    device::device,
    event,
    ffi::Result,
    settings,
    stores::{context::answer, objects::Known},
    thread,
};

/// Whether a green context was ever made.
static ANY: AtomicBool = AtomicBool::new(false);
/// Whether one with streams has ended.
static ANY_ENDED: AtomicBool = AtomicBool::new(false);
/// The streams of green contexts that have ended, whose handles have their own error code.
static ENDED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);
/// The multiprocessors of each descriptor, by its index in this list. CUDA has no function that destroys one, so equal
/// lists are stored once.
static DESCRIPTORS: Mutex<Vec<Wanted>> = Mutex::new(Vec::new());

/// The first word of a resource of this library.
const MARK: u32 = 0x6770_6d73;

/// Multiprocessors that a program has as a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resource {
    device: CUdevice,
    /// The split from which they come, or the source of a split, which has no groups.
    split: MultiprocessorSplit,
    /// The group's number.
    group: u32,
}

/// The multiprocessors of a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    device: CUdevice,
    split: MultiprocessorSplit,
    /// Numbers of groups, sorted and without duplicates.
    groups: Vec<u32>,
}

impl Resource {
    /// All multiprocessors of a device, or of a green context on it.
    fn whole(device: CUdevice, green: u64) -> Self {
        let split = MultiprocessorSplit {
            green,
            ..MultiprocessorSplit::default()
        };
        Self {
            device,
            split,
            group: 0,
        }
    }

    /// The resource in the program's form.
    fn show(&self, of: Multiprocessors) -> CUdevResource {
        let MultiprocessorSplit {
            green,
            groups,
            minimum,
            flags,
        } = self.split;
        let mut internal = [0; 23];
        internal[..8].copy_from_slice(&[
            MARK,
            self.device as u32,
            green as u32,
            (green >> 32) as u32,
            groups,
            minimum,
            flags,
            self.group,
        ]);
        CUdevResource {
            type_: CU_DEV_RESOURCE_TYPE_SM,
            internal,
            sm: CUdevSmResource {
                smCount: of.count,
                minSmPartitionSize: of.minimum,
                smCoscheduledAlignment: of.alignment,
            },
            ..CUdevResource::default()
        }
    }

    /// The multiprocessors of a structure of the program. The host checks that the groups exist.
    fn read(shown: &CUdevResource) -> Result<Self> {
        if shown.type_ != CU_DEV_RESOURCE_TYPE_SM {
            return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
        }
        let [mark, of, low, high, groups, minimum, flags, group, ..] = shown.internal;
        let of = of as CUdevice;
        if mark != MARK || device(of).is_err() {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let split = MultiprocessorSplit {
            green: u64::from(low) | u64::from(high) << 32,
            groups,
            minimum,
            flags,
        };
        Ok(Self {
            device: of,
            split,
            group,
        })
    }

    fn is_whole(&self) -> bool {
        self.split.groups == 0
    }
}

impl Wanted {
    /// The multiprocessors of one resource, or of groups of one split.
    fn of(resources: &[Resource]) -> Result<Self> {
        let (first, others) = resources.split_first().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let is_like = |of: &Resource| (of.device, of.split) == (first.device, first.split);
        if !others.is_empty() && (first.is_whole() || !others.iter().all(is_like)) {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let mut groups: Vec<_> = match first.is_whole() {
            true => Vec::new(),
            false => resources.iter().map(|of| of.group).collect(),
        };
        groups.sort_unstable();
        groups.dedup();
        Ok(Self {
            device: first.device,
            split: first.split,
            groups,
        })
    }

    /// The descriptor.
    fn describe(self) -> CUdevResourceDesc {
        let mut all = DESCRIPTORS.lock();
        let known = all.iter().position(|of| *of == self);
        let place = known.unwrap_or_else(|| {
            all.push(self);
            all.len() - 1
        });
        // Not a pointer, but a multiple of 16, as pointers to descriptors are.
        ((place + 1) << 4) as CUdevResourceDesc
    }

    /// The multiprocessors of a descriptor.
    fn find(descriptor: CUdevResourceDesc) -> Result<Self> {
        let number = descriptor as usize;
        let place = (number >> 4).checked_sub(1).filter(|_| number & 15 == 0);
        let all = DESCRIPTORS.lock();
        let found = place.and_then(|place| all.get(place));
        found.cloned().ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}

/// Whether a green context was ever made.
#[inline]
pub fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// The context that owns objects made in a context: itself, or a green one's primary context.
#[inline]
pub fn home(client: &Client, context: u64) -> u64 {
    if !any() {
        return context;
    }
    let look = |object: &Known| match object {
        Known::Context(of) => of.home,
        _ => None,
    };
    client
        .objects
        .look(context, look)
        .flatten()
        .unwrap_or(context)
}

/// Refuses a stream whose green context has ended, as the driver does.
///
/// # Errors
///
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
#[inline]
pub fn check_stream(stream: u64) -> Result {
    if !ANY_ENDED.load(Ordering::Relaxed) {
        return Ok(());
    }
    match &*ENDED.lock() {
        Some(ended) if ended.contains(&stream) => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        _ => Ok(()),
    }
}

/// The id of the green context of a handle.
fn named(client: &Client, handle: CUgreenCtx) -> Result<u64> {
    let id = handle as u64;
    match client.objects.context(id) {
        Some(context) if context.home.is_some() => Ok(id),
        _ => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// The streams of a context.
fn streams(client: &Client, context: u64) -> Vec<u64> {
    client
        .objects
        .ids(|id, object| object_kind(id) == Stream::KIND && object.context() == Some(context))
}

/// Handles the end of a green context, with its streams.
fn forget(client: &Client, green: u64) {
    let streams = streams(client, green);
    if !streams.is_empty() {
        ENDED.lock().get_or_insert_default().extend(streams);
        ANY_ENDED.store(true, Ordering::Relaxed);
    }
    context::forget(client, green);
}

/// Handles the end of a primary context, with its green contexts.
pub fn forget_all(client: &Client, home: u64) {
    if !any() {
        return;
    }
    let is_part = |_, object: &Known| matches!(object, Known::Context(of) if of.home == Some(home));
    for green in client.objects.ids(is_part) {
        forget(client, green);
    }
}

/// Returns a resource to the program, of the only type that exists.
fn give(
    out: OutPtr<CUdevResource>,
    kind: CUdevResourceType,
    of: Resource,
    ask: impl FnOnce() -> Result<Multiprocessors>,
) -> Result {
    out.required()?;
    if kind != CU_DEV_RESOURCE_TYPE_SM {
        return Err(CUDA_ERROR_INVALID_RESOURCE_TYPE);
    }
    out.set(of.show(ask()?))
}

fn of_device(
    client: &Client,
    dev: CUdevice,
    out: OutPtr<CUdevResource>,
    kind: CUdevResourceType,
) -> Result {
    give(out, kind, Resource::whole(dev, 0), || {
        let request = request::gpgpuDeviceMultiprocessors { dev, all: true };
        Ok(client.call(&request)?.all)
    })
}

fn of_green(
    client: &Client,
    green: u64,
    out: OutPtr<CUdevResource>,
    kind: CUdevResourceType,
) -> Result {
    let dev = client.objects.context_device(green);
    let whole = Resource::whole(dev.ok_or(CUDA_ERROR_INVALID_CONTEXT)?, green);
    give(out, kind, whole, || {
        let request = request::gpgpuContextMultiprocessors {
            ctx: green,
            all: true,
        };
        Ok(client.call(&request)?.all)
    })
}

fn of_context(
    client: &Client,
    id: u64,
    out: OutPtr<CUdevResource>,
    kind: CUdevResourceType,
) -> Result {
    let context = client
        .objects
        .context(id)
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    match context.home {
        Some(_) => of_green(client, id, out, kind),
        None => of_device(client, context.device, out, kind),
    }
}

fn create(phCtx: OutPtr<CUgreenCtx>, desc: CUdevResourceDesc, dev: CUdevice, flags: u32) -> Result {
    let client = client()?;
    phCtx.required()?;
    device(dev)?;
    // NULL means the whole device, as natively.
    let wanted = match desc.is_null() {
        true => Wanted::of(&[Resource::whole(dev, 0)])?,
        false => Wanted::find(desc)?,
    };
    if wanted.device != dev {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let home = context::retain_primary(dev)?;
    let green = client.new_id::<Context>();
    let request = request::gpgpuGreenCtxCreate {
        green,
        dev,
        split: wanted.split,
        groups: wanted.groups,
        flags,
    };
    if let Err(code) = client.call(&request) {
        context::release_primary(dev)?;
        return Err(code);
    }
    ANY.store(true, Ordering::Relaxed);
    client
        .objects
        .insert(green, context::known(dev, false, Some(home)));
    phCtx.set(green as CUgreenCtx)
}

fn destroy(hCtx: CUgreenCtx) -> Result {
    let client = client()?;
    let green = named(client, hCtx)?;
    let dev = client.objects.context_device(green);
    // Memory that was freed in their order is returned before they end.
    for stream in streams(client, green) {
        client.leave_stream(stream);
    }
    client.call(&request::gpgpuGreenCtxDestroy { green })?;
    forget(client, green);
    context::release_primary(dev.ok_or(CUDA_ERROR_INVALID_CONTEXT)?)
}

cuda! {
    fn cuDeviceGetDevResource(device_: CUdevice, resource: OutPtr<CUdevResource>, type_: CUdevResourceType) {
        let client = client()?;
        device(device_)?;
        of_device(client, device_, resource, type_)
    }

    fn cuCtxGetDevResource(hCtx: CUcontext, resource: OutPtr<CUdevResource>, type_: CUdevResourceType) {
        of_context(client()?, Context::id(hCtx), resource, type_)
    }

    fn cuStreamGetDevResource(hStream: CUstream, resource: OutPtr<CUdevResource>, type_: CUdevResourceType) {
        of_context(client()?, crate::stream::context(hStream)?, resource, type_)
    }

    fn cuStreamGetDevResource_ptsz(hStream: CUstream, resource: OutPtr<CUdevResource>, type_: CUdevResourceType) {
        of_context(client()?, crate::stream::context(hStream)?, resource, type_)
    }

    fn cuGreenCtxGetDevResource(hCtx: CUgreenCtx, resource: OutPtr<CUdevResource>, type_: CUdevResourceType) {
        let client = client()?;
        of_green(client, named(client, hCtx)?, resource, type_)
    }

    /// `cuDevSmResourceSplitByCount`. Without an array of groups, returns their possible number.
    fn cuDevSmResourceSplitByCount(result: OutPtr<CUdevResource>, nbGroups: OutPtr<u32>, input: InPtr<CUdevResource>, remaining: OutPtr<CUdevResource>, useFlags: u32, minCount: u32) {
        let client = client()?;
        let most = nbGroups.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let of = Resource::read(&input.get()?)?;
        if !of.is_whole() {
            return Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        }
        let most = if result.is_null() { u32::MAX } else { most };
        if most == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let split = MultiprocessorSplit { groups: most, minimum: minCount, flags: useFlags, ..of.split };
        let request = request::gpgpuMultiprocessorSplit { dev: of.device, split, groups: true, remaining: true };
        let reply = client.call(&request)?;
        let part = |group, is: Multiprocessors| Resource { split, group, ..of }.show(is);
        // The array has room for as many as the program requests.
        let groups = reply.groups.iter().take(most as usize);
        nbGroups.set(groups.len() as u32)?;
        if !result.is_null() {
            for (number, is) in groups.enumerate() {
                result.at(number).offer(part(number as u32, *is));
            }
        }
        remaining.offer(match reply.remaining.count {
            0 => CUdevResource::default(),
            _ => part(REMAINING, reply.remaining),
        });
        Ok(())
    }

    fn cuDevResourceGenerateDesc(phDesc: OutPtr<CUdevResourceDesc>, resources: InPtr<CUdevResource>, nbResources: u32) {
        client()?;
        phDesc.required()?;
        let read = |at| Resource::read(&resources.at(at)?);
        let resources: Vec<_> = (0..nbResources as usize).map(read).collect::<Result<_>>()?;
        phDesc.set(Wanted::of(&resources)?.describe())
    }

    fn cuGreenCtxCreate(phCtx: OutPtr<CUgreenCtx>, desc: CUdevResourceDesc, dev: CUdevice, flags: u32) {
        create(phCtx, desc, dev, flags)
    }

    fn cuGreenCtxDestroy(hCtx: CUgreenCtx) {
        destroy(hCtx)
    }

    /// `cuCtxFromGreenCtx`: the same handle, as natively.
    fn cuCtxFromGreenCtx(pContext: OutPtr<CUcontext>, hCtx: CUgreenCtx) {
        let client = client()?;
        pContext.required()?;
        pContext.set(Context::handle(named(client, hCtx)?))
    }

    fn cuGreenCtxStreamCreate(phStream: OutPtr<CUstream>, greenCtx: CUgreenCtx, flags: u32, priority: i32) {
        let client = client()?;
        let green = named(client, greenCtx)?;
        phStream.required()?;
        let stream = client.new_id::<Stream>();
        client.call(&request::gpgpuGreenCtxStreamCreate { stream, green, flags, priority })?;
        client.objects.insert(stream, Known::made::<Stream>(green));
        phStream.set(Stream::handle(stream))
    }

    fn cuGreenCtxRecordEvent(hCtx: CUgreenCtx, hEvent: CUevent) {
        event::record_all(Context::handle(named(client()?, hCtx)?), hEvent)
    }

    fn cuGreenCtxWaitEvent(hCtx: CUgreenCtx, hEvent: CUevent) {
        event::hold_all(Context::handle(named(client()?, hCtx)?), hEvent)
    }

    /// `cuGreenCtxGetId`. NULL means the current one.
    fn cuGreenCtxGetId(greenCtx: CUgreenCtx, greenCtxId: OutPtr<u64>) {
        let client = client()?;
        let handle = if greenCtx.is_null() { thread::current_context() as CUgreenCtx } else { greenCtx };
        let ctx = named(client, handle)?;
        greenCtxId.required()?;
        let ask = || Ok(client.call(&request::cuCtxGetId { ctx, ctxId: true })?.ctxId);
        greenCtxId.set(settings::ask(client, ctx, answer::ID, ask)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(groups: u32, group: u32) -> Resource {
        let split = MultiprocessorSplit {
            groups,
            minimum: 8,
            ..MultiprocessorSplit::default()
        };
        Resource {
            device: 0,
            split,
            group,
        }
    }

    #[test]
    fn groups_of_one_split_go_together_and_a_descriptor_is_there_once() {
        let bad = Err(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        assert_eq!(Wanted::of(&[part(2, 0), part(3, 1)]), bad);
        let whole = Resource::whole(0, 0);
        assert_eq!(Wanted::of(&[whole, whole]), bad);
        assert_eq!(Wanted::of(&[]), Err(CUDA_ERROR_INVALID_VALUE));
        let both = Wanted::of(&[part(2, 1), part(2, 0), part(2, 1)]).unwrap();
        assert_eq!(both.groups, [0, 1]);
        let (first, again) = (both.clone().describe(), both.clone().describe());
        assert_eq!(first, again);
        assert_eq!(Wanted::find(first), Ok(both));
        let other = Wanted::of(&[part(2, REMAINING)]).unwrap().describe();
        assert_ne!(other, first);
        for garbage in [0_usize, 1, 0x18, 0xdead_bee0, usize::MAX] {
            let found = Wanted::find(garbage as CUdevResourceDesc);
            assert_eq!(found, Err(CUDA_ERROR_INVALID_VALUE), "{garbage:#x}");
        }
    }
}
