// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The backend's descriptors, which refer to each other, and the execution of plans.
//!
//! A variant pack holds addresses of device memory. The exception are tensors that an operation has by value: for them
//! cuDNN reads the value at a host address. It must not read at an address that the guest chose. Therefore each
//! descriptor's [`Node`] records the tensors that may be by value in descriptors made from it, and never removes a
//! record. The worker makes a variant pack for each execution: the values of tensors that the plan may have by value
//! are in memory of this process, and no others.
//!
//! cuDNN accepts a descriptor of one type in place of another, and descriptors that are not finalised, which can still
//! change. This module passes neither to the library. A descriptor in others does not change any more: a query into it
//! gives its id to another one.
//!
//! A plan has a text from which another plan can be made: [`super::texts`]. Plans that take long to build are made in
//! this way for other processes: [`plans`].

use std::{sync::Arc, time::Instant};

use gpgpu_protocol::{
    cuda::CUDA_ERROR_INVALID_VALUE,
    libraries::{
        Class, SUCCESS,
        cudnn::{
            backend::{Pack, Place, VALUE_BYTES, Values, bytes, element, kind, name, takes, width},
            status,
        },
    },
};

use super::{
    descriptors::{Descriptor, Graphs, MOST_IDS, Node, Plan, Raw},
    plans::{self, Description},
};
use crate::worker::{
    grace,
    libraries::{Call, Outcome},
    session::Session,
};

/// Memory for elements that a library reads or writes: aligned for any type, with some surplus.
pub struct Room(Vec<[u64; 2]>);

impl Room {
    fn new(length: usize) -> Self {
        Self(vec![[0; 2]; length / 16 + 8])
    }

    pub fn with(elements: &[u8]) -> Self {
        let mut room = Self::new(elements.len());
        for (word, bytes) in room.0.iter_mut().flatten().zip(elements.chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(whole);
        }
        room
    }

    pub fn of(words: impl Iterator<Item = u64>) -> Self {
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        Self::with(&bytes)
    }

    pub fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }

    fn bytes(&self, length: usize) -> Vec<u8> {
        let bytes = self.0.iter().flatten().flat_map(|word| word.to_le_bytes());
        bytes.take(length).collect()
    }

    fn word(&self) -> u64 {
        self.0[0][0]
    }
}

pub fn create(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    // The worker makes these itself for each execution.
    let of = words[0] as i32;
    if of == kind::PACK {
        return Ok(status::NOT_SUPPORTED);
    }
    let raw = match Raw::new(call, of) {
        Ok(raw) => raw,
        Err(status) => return Ok(status),
    };
    // SAFETY: the second argument is the address of the word for the new object, which lives.
    unsafe { (words[1] as *mut u64).write(raw.value()) };
    match call.session.graphs.add(call.word(1), of, raw) {
        true => Ok(SUCCESS),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

pub fn destroy(call: &mut Call<'_>, _words: &[u64]) -> Outcome {
    let gone = call.session.graphs.remove(call.word(0));
    // The last call that uses it ends it.
    Ok(gone.map_or(status::BAD_PARAM, |_| SUCCESS))
}

/// Bytes as words.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + Clone {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Refuses a descriptor whose type is not the attribute's, because the library would accept it.
fn right_type(name: i32, kind: i32) -> Result<(), u32> {
    match takes(name, kind) {
        Some(true) => Ok(()),
        Some(false) => Err(status::DESCRIPTOR_TYPE),
        None => Err(status::NOT_SUPPORTED),
    }
}

pub fn set_attribute(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let [_, name, of, mut count, _, is_posted] = *words else {
        return Ok(status::INTERNAL_ERROR);
    };
    let (session, id) = (call.session, call.word(0));
    let (of, elements) = (of as i32, call.bytes(4));
    let ids = match of {
        element::DESCRIPTOR => elements,
        _ => &[],
    };
    let Some(found) = session.graphs.find_all(words_of(ids).chain([id])) else {
        return Ok(status::BAD_PARAM);
    };
    let mut locked = found.lock();
    let Descriptor { kind, raw, .. } = locked.of(id);
    let mut set = || {
        match bytes(of, count) {
            None => return Err(status::ATTRIBUTE_TYPE),
            Some(bytes) if bytes != elements.len() => return Err(status::BAD_PARAM),
            Some(_) => {}
        }
        if locked.node(id).is_final {
            return Err(status::BAD_PARAM);
        }
        let name = name as i32;
        let mut room = match of {
            element::CHAR if name == name::PLAN_TEXT => {
                let opened = session.graphs.texts.open(elements, &[]);
                let (text, values) = opened.ok_or(status::NOT_SUPPORTED)?;
                if *kind != kind::PLAN {
                    return Err(status::BAD_PARAM);
                }
                locked.node(id).add_values(&values)?;
                count = text.len() as u64;
                Room::with(&text)
            }
            // Attributes with the address of a value on the host, and attributes that contain the whole, unknown
            // contents of another descriptor.
            element::POINTER | element::CHAR => return Err(status::NOT_SUPPORTED),
            element::HANDLE => {
                let node = locked.node(id);
                let mut raws = Vec::new();
                for handle in words_of(elements) {
                    let entry = session.objects.entry_of(Class::CudnnHandle, handle);
                    let entry = entry.ok_or(status::BAD_PARAM)?;
                    node.depend(&[(handle, entry.raw)])?;
                    match plans::gpu_of(session, entry.context) {
                        Some(gpu) => node.about.set(name, of, &gpu),
                        None => node.about.lose(),
                    }
                    raws.push(entry.raw);
                }
                Room::of(raws.into_iter())
            }
            element::DESCRIPTOR => {
                let (mut values, mut handles) = (Values::default(), Vec::new());
                let (mut abouts, mut raws) = (Vec::new(), Vec::new());
                for id in words_of(elements) {
                    let of = locked.of(id);
                    right_type(name, of.kind)?;
                    let node = locked.node(id);
                    if !node.is_final {
                        return Err(status::NOT_FINALIZED);
                    }
                    values.add_all(&node.values);
                    handles.extend_from_slice(&node.handles);
                    abouts.push(node.about);
                    raws.push(of.raw.value());
                }
                let node = locked.node(id);
                node.add_values(&values)?;
                node.depend(&handles)?;
                node.about.set_descriptors(name, &abouts);
                Room::of(raws.into_iter())
            }
            _ => {
                locked.node(id).about.set(name, of, elements);
                Room::with(elements)
            }
        };
        let node = locked.node(id);
        node.note(*kind, name, elements);
        if node.ids.len() > MOST_IDS {
            return Err(status::BAD_PARAM);
        }
        let words = [raw.value(), name as u64, of as u64, count, room.address()];
        let status = call.cudnn("cudnnBackendSetAttribute", &words);
        if status != SUCCESS {
            node.about.lose();
            return Err(status);
        }
        if of == element::DESCRIPTOR {
            // The library may refer to them.
            let parts = words_of(elements).filter_map(|id| found.get(id)).collect();
            node.parts.insert(name, parts);
            for id in words_of(elements) {
                locked.node(id).is_part = true;
            }
        }
        Ok(())
    };
    match set() {
        Ok(()) => Ok(SUCCESS),
        // The finalisation reports errors of settings for which no thread waited.
        Err(status) if is_posted as i32 != 0 => {
            let node = locked.node(id);
            if !node.is_final {
                node.refused.get_or_insert(status);
            }
            Ok(SUCCESS)
        }
        Err(status) => Ok(status),
    }
}

/// The maximum size of a returned attribute in bytes.
const MOST_BYTES: usize = 1 << 24;

/// Prepares a descriptor as the target of a query. If others refer to it, its id gets a new one, and they keep it.
///
/// # Errors
///
/// The library's status.
fn prepare(call: &Call<'_>, id: u64) -> Result<(), u32> {
    let graphs = &call.session.graphs;
    let target = graphs.find(id).ok_or(status::BAD_PARAM)?;
    if grace::lock(&target.node).is_part {
        let new = Descriptor::new(target.kind, Raw::new(call, target.kind)?);
        graphs.replace(id, &target, Arc::new(new));
    }
    Ok(())
}

/// Answers a query of a plan's configuration with the one that was set: a plan that was made from a text has none.
/// Returns the number of configurations, and gives the first target's id to this one.
///
/// # Errors
///
/// A status for an invalid target.
fn give_configuration(
    session: &Session,
    plan: &Node,
    target: Option<(u64, Arc<Descriptor>)>,
) -> Result<usize, u32> {
    let config = plan.parts.get(&name::PLAN_CONFIG);
    let Some(config) = config.and_then(|all| all.first()) else {
        return Ok(0);
    };
    if let Some((id, target)) = target {
        right_type(name::PLAN_CONFIG, target.kind)?;
        session.graphs.replace(id, &target, Arc::clone(config));
    }
    Ok(1)
}

pub fn get_attribute(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let [_, name, of, requested, _, to_count, to] = *words else {
        return Ok(status::INTERNAL_ERROR);
    };
    let (session, id) = (call.session, call.word(0));
    let (name, of) = (name as i32, of as i32);
    // Addresses of this process must not leave it.
    if matches!(of, element::POINTER | element::HANDLE) {
        return Ok(status::NOT_SUPPORTED);
    }
    let requested = if to == 0 { 0 } else { requested };
    let (Some(length), Some(width)) = (bytes(of, requested), width(of)) else {
        return Ok(match width(of) {
            None => status::ATTRIBUTE_TYPE,
            Some(_) => status::BAD_PARAM,
        });
    };
    let is_descriptors = of == element::DESCRIPTOR;
    let targets: Vec<u64> = match is_descriptors {
        true => words_of(call.bytes(4)).collect(),
        false => Vec::new(),
    };
    if length > MOST_BYTES || targets.len() * 8 != if is_descriptors { length } else { 0 } {
        return Ok(status::BAD_PARAM);
    }
    for target in &targets {
        if let Err(status) = prepare(call, *target) {
            return Ok(status);
        }
    }
    let Some(found) = session.graphs.find_all(targets.iter().copied().chain([id])) else {
        return Ok(status::BAD_PARAM);
    };
    // Each of them once.
    if found.len() != targets.len() + 1 {
        return Ok(status::BAD_PARAM);
    }
    let mut locked = found.lock();
    let descriptor = locked.of(id);
    let is_loaded = descriptor
        .plan
        .get()
        .is_some_and(|plan| plan.loaded.is_some());
    if is_loaded && name == name::PLAN_CONFIG && is_descriptors {
        let target = targets.first().and_then(|id| Some((*id, found.get(*id)?)));
        let given = match give_configuration(session, locked.node(id), target) {
            Ok(given) => given,
            Err(status) => return Ok(status),
        };
        if to_count != 0 {
            call.answer(5, (given as u64).to_le_bytes().to_vec());
        }
        return Ok(SUCCESS);
    }
    let mut room = Room::new(length);
    let mut about = Description::default();
    if is_descriptors {
        let raws = targets.iter().map(|id| locked.of(*id).raw.value());
        room = Room::of(raws);
        // The library makes them like parts of this one.
        let node = locked.node(id);
        let (values, handles) = (node.values.clone(), node.handles.clone());
        if node.is_final {
            about = node.about;
        }
        for target in &targets {
            let kind = locked.of(*target).kind;
            let target = locked.node(*target);
            // Another thread may just have set it in a descriptor.
            let unused = (!target.is_part).then_some(()).ok_or(status::BAD_PARAM);
            let prepared = right_type(name, kind)
                .and(unused)
                .and_then(|()| target.add_values(&values))
                .and_then(|()| target.depend(&handles));
            if let Err(status) = prepared {
                return Ok(status);
            }
        }
    }
    let mut count = Room::new(8);
    let node = locked.node(id);
    let is_text = name == name::PLAN_TEXT && of == element::CHAR;
    // A finalised plan is complete.
    let checked = match descriptor.kind == kind::PLAN && node.is_final {
        true => Ok(()),
        false => node.check_handles(session),
    };
    if let Err(status) = checked {
        return Ok(status);
    }
    let raw = descriptor.active().value();
    if is_text && descriptor.kind == kind::PLAN && node.is_final {
        let text = match text(call, raw) {
            Ok(text) => session.graphs.texts.seal(&text, &node.values, &[]),
            Err(status) => return Ok(status),
        };
        if to_count != 0 {
            call.answer(5, (text.len() as u64).to_le_bytes().to_vec());
        }
        call.answer(6, text[..text.len().min(length)].to_vec());
        return Ok(SUCCESS);
    }
    let at = if requested == 0 { 0 } else { room.address() };
    let words = [raw, name as u64, of as u64, requested, count.address(), at];
    let status = call.cudnn("cudnnBackendGetAttribute", &words);
    let given = match status {
        SUCCESS => (count.word() as i64).clamp(0, requested as i64) as usize,
        _ => 0,
    };
    for (at, target) in targets.iter().enumerate() {
        let target = locked.node(*target);
        if at < given {
            target.is_final = true;
            target.about.become_part(about, name, at);
        } else {
            target.about.lose();
        }
    }
    if status != SUCCESS {
        return Ok(status);
    }
    if to_count != 0 {
        call.answer(5, count.bytes(8));
    }
    let given = if is_descriptors { 0 } else { given * width };
    call.answer(6, room.bytes(given));
    Ok(SUCCESS)
}

/// A plan's whole text.
///
/// # Errors
///
/// The library's status; `NOT_SUPPORTED` for a text that is too long.
pub fn text(call: &Call<'_>, plan: u64) -> Result<Vec<u8>, u32> {
    let mut count = Room::new(8);
    let mut get = |requested: u64, to: u64| {
        let (name, of) = (name::PLAN_TEXT as u64, element::CHAR as u64);
        let words = [plan, name, of, requested, count.address(), to];
        match call.cudnn("cudnnBackendGetAttribute", &words) {
            SUCCESS => Ok(count.word()),
            status => Err(status),
        }
    };
    let length = get(0, 0)?;
    if length > MOST_BYTES as u64 {
        return Err(status::NOT_SUPPORTED);
    }
    let mut room = Room::new(length as usize);
    let given = get(length, room.address())?;
    Ok(room.bytes(given.min(length) as usize))
}

pub fn finalize(call: &mut Call<'_>, _words: &[u64]) -> Outcome {
    let Some(descriptor) = call.session.graphs.find(call.word(0)) else {
        return Ok(status::BAD_PARAM);
    };
    let mut node = grace::lock(&descriptor.node);
    if node.is_final {
        return Ok(status::BAD_PARAM);
    }
    if let Some(status) = node.refused {
        return Ok(status);
    }
    let done = node
        .settle()
        .and_then(|()| node.check_handles(call.session))
        .and_then(|()| match descriptor.kind {
            kind::PLAN => {
                let loaded = build(call, &descriptor, &node)?;
                let _ = descriptor.plan.set(Plan {
                    values: node.values.clone(),
                    loaded,
                });
                Ok(())
            }
            _ => match call.cudnn("cudnnBackendFinalize", &[descriptor.raw.value()]) {
                SUCCESS => Ok(()),
                status => Err(status),
            },
        });
    if let Err(status) = done {
        return Ok(status);
    }
    node.is_final = true;
    call.answer(1, node.values.write());
    Ok(SUCCESS)
}

/// Builds a plan, or makes another one from a kept text, which it returns.
///
/// # Errors
///
/// The library's status.
fn build(call: &Call<'_>, of: &Descriptor, node: &Node) -> Result<Option<Raw>, u32> {
    let Graphs { texts, plans, .. } = &call.session.graphs;
    let place = plans.place(call, node.about, &node.handles, &node.values);
    if let Some(place) = &place
        && let Some(loaded) = plans.load(call, place, texts, &node.values)
    {
        return Ok(Some(loaded));
    }
    let began = Instant::now();
    match call.cudnn("cudnnBackendFinalize", &[of.raw.value()]) {
        SUCCESS => {}
        status => return Err(status),
    }
    if let Some(place) = &place {
        let plan = (of.raw.value(), &node.values);
        plans.keep(call, place, texts, plan, began.elapsed());
    }
    Ok(None)
}

/// A variant pack of the library for a plan, with the values to which it points.
struct HostPack {
    pack: Raw,
    plan: Arc<Descriptor>,
    /// The values do not move, because the library has their addresses.
    _values: Vec<[u8; VALUE_BYTES]>,
}

impl HostPack {
    /// Makes a variant pack for the plan that is the second argument, from an argument's encoding. This waits for no
    /// lock, so the handle that the call has looked up stays.
    fn new(call: &Call<'_>, at: usize) -> Result<Self, u32> {
        let pack = Pack::read(call.bytes(at)).map_err(|_| status::BAD_PARAM)?;
        let plan = call.session.graphs.find(call.word(1));
        let plan = plan.ok_or(status::BAD_PARAM)?;
        if plan.kind != kind::PLAN {
            return Err(status::BAD_PARAM);
        }
        let made = plan.plan.get().ok_or(status::NOT_FINALIZED)?;
        let (addresses, values) = places(&pack, &made.values).ok_or(status::BAD_PARAM)?;
        let raw = Raw::new(call, kind::PACK)?;
        let done = |status| match status {
            SUCCESS => Ok(()),
            status => Err(status),
        };
        let set = |name: i32, of: i32, words: Vec<u64>| {
            let (count, mut room) = (words.len() as u64, Room::of(words.into_iter()));
            let words = [raw.value(), name as u64, of as u64, count, room.address()];
            done(call.cudnn("cudnnBackendSetAttribute", &words))
        };
        let ids = pack.operands.iter().map(|(id, _)| *id as u64);
        set(name::PACK_POINTERS, element::POINTER, addresses)?;
        set(name::PACK_IDS, element::INT64, ids.collect())?;
        if let Some(address) = pack.workspace {
            set(name::PACK_WORKSPACE, element::POINTER, vec![address])?;
        }
        done(call.cudnn("cudnnBackendFinalize", &[raw.value()]))?;
        Ok(Self {
            pack: raw,
            plan,
            _values: values,
        })
    }
}

/// The addresses of a pack's tensors, and the values of those that are by value. `None` if a tensor is by value in the
/// pack but not in the plan, or the reverse: the library would use an address of the guest as one of this process.
fn places(pack: &Pack, by_value: &Values) -> Option<(Vec<u64>, Vec<[u8; VALUE_BYTES]>)> {
    let mut values = Vec::with_capacity(pack.operands.len());
    let mut addresses = Vec::with_capacity(pack.operands.len());
    for (id, place) in &pack.operands {
        addresses.push(match (by_value.bytes(*id), place) {
            (None, Place::Device(address)) => *address,
            (Some(_), Place::Value(bytes)) => {
                // The capacity suffices for all, so the values do not move.
                values.push(*bytes);
                values.last()? as *const _ as u64
            }
            _ => return None,
        });
    }
    Some((addresses, values))
}

pub fn execute(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    Ok(match HostPack::new(call, 2) {
        Ok(of) => {
            let words = [words[0], of.plan.active().value(), of.pack.value()];
            call.cudnn("cudnnBackendExecute", &words)
        }
        Err(status) => status,
    })
}

pub fn workspace_size(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    Ok(match HostPack::new(call, 2) {
        Ok(of) => {
            let words = [
                words[0],
                of.plan.active().value(),
                of.pack.value(),
                words[3],
            ];
            call.cudnn("cudnnGetExecutionPlanWorkspaceSize", &words)
        }
        Err(status) => status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_of_the_guests_stands_for_a_value() {
        let mut values = Values::default();
        values.add(2, Some(0));
        let of = |operands: &[(i64, Place)]| {
            let pack = Pack {
                operands: operands.to_vec(),
                workspace: None,
            };
            places(&pack, &values)
        };
        let value = Place::Value([7; VALUE_BYTES]);
        let (addresses, kept) = of(&[(1, Place::Device(0x1000)), (2, value)]).unwrap();
        assert_eq!(addresses, [0x1000, kept.as_ptr() as u64]);
        assert_eq!(kept, [[7; VALUE_BYTES]]);
        assert!(of(&[(2, Place::Device(0x1000))]).is_none());
        assert!(of(&[(1, value)]).is_none());
        assert!(of(&[(2, value), (2, Place::Device(0x1000))]).is_none());
    }

    #[test]
    fn room_holds_what_it_is_given() {
        for length in [0, 1, 7, 8, 9, 31] {
            let bytes: Vec<u8> = (1..=length).collect();
            let room = Room::with(&bytes);
            assert_eq!(room.bytes(bytes.len()), bytes);
        }
    }
}
