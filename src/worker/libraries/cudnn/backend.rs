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
//! change. This module passes neither to the library.
//!
//! A plan has a text from which another plan can be made: [`Texts`]. Plans that take long to build are made in this way
//! for other processes: [`Plans`].

use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
    time::Instant,
};

use gpgpu_locks::{Mutex, MutexGuard};
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
    plans::{Description, Plans},
    texts::Texts,
};
use crate::worker::{
    grace,
    libraries::{Call, Outcome},
};

/// The state of a descriptor of the backend.
#[derive(Debug, Default)]
struct Node {
    /// Its type.
    kind: i32,
    /// Whether it is finalised. Afterwards it does not change.
    is_final: bool,
    /// The library's status for the first refused attribute for whose answer no thread waited.
    refused: Option<u32>,
    /// The tensors that may be by value in it.
    values: Values,
    /// For a tensor: the ids that were set, ...
    ids: Vec<i64>,
    /// ... whether it was set to be by value, ...
    is_by_value: bool,
    /// ... and the type of its elements.
    data: Option<i32>,
    /// Everything that was set in it.
    about: Description,
    /// The id of the handle that was set in it or in a descriptor in it.
    handle: Option<u64>,
    /// For a plan: the library's plan that was made from a kept text, and is used instead.
    loaded: Option<u64>,
    /// Whether the plan that it replaces is finalised, too.
    is_built: bool,
}

impl Node {
    /// Records an attribute, whether the library accepts it or not.
    fn note(&mut self, name: i32, elements: &[u8]) {
        let mut first = [0; 8];
        let length = elements.len().min(8);
        first[..length].copy_from_slice(&elements[..length]);
        match name {
            name::TENSOR_ID => self.ids.push(i64::from_le_bytes(first)),
            name::TENSOR_IS_BY_VALUE => self.is_by_value |= first != [0; 8],
            name::TENSOR_DATA_TYPE => self.data = Some(i64::from_le_bytes(first) as i32),
            _ => {}
        }
        // Other attributes of a plan say more than its configuration, such as the cache of its kernels.
        let is_usual = matches!(name, name::PLAN_HANDLE | name::PLAN_CONFIG);
        if self.kind == kind::PLAN && !is_usual {
            self.about.lose();
        }
    }

    /// Records a handle on which it depends. Two handles can be of two GPUs.
    fn depend(&mut self, handle: Option<u64>) {
        if self.handle.is_some() && handle.is_some() && self.handle != handle {
            self.about.lose();
        }
        self.handle = self.handle.or(handle);
    }

    /// Adds the tensors of an attribute to those that may be by value.
    fn settle(&mut self) {
        if self.is_by_value {
            for id in self.ids.drain(..) {
                self.values.add(id, self.data);
            }
        }
    }
}

/// The maximum number of ids that are set for a tensor, one after the other: a program sets one.
const MOST_IDS: usize = 64;

/// The backend's descriptors, by id.
#[derive(Debug, Default)]
pub struct Graphs {
    nodes: Mutex<HashMap<u64, Arc<Mutex<Node>>>>,
    texts: Texts,
    plans: Plans,
}

impl Graphs {
    fn all(&self) -> MutexGuard<'_, HashMap<u64, Arc<Mutex<Node>>>> {
        self.nodes.lock()
    }

    /// Reserves an id for a descriptor; returns whether it was free. If two threads make descriptors with one id, one
    /// of them fails.
    fn begin(&self, id: u64, kind: i32) -> bool {
        match self.all().entry(id) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(place) => {
                place.insert(Arc::new(Mutex::new(Node {
                    kind,
                    about: Description::new(kind),
                    ..Node::default()
                })));
                true
            }
        }
    }

    /// The descriptors with these ids, each once, in the order of the ids: every thread locks them in this order.
    /// `None` if one does not exist.
    fn find(&self, ids: impl Iterator<Item = u64>) -> Option<Nodes> {
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        let all = self.all();
        let nodes = ids
            .into_iter()
            .map(|id| Some((id, Arc::clone(all.get(&id)?))));
        nodes.collect::<Option<_>>().map(Nodes)
    }
}

/// The descriptors that a call uses.
struct Nodes(Vec<(u64, Arc<Mutex<Node>>)>);

impl Nodes {
    /// Locks all of them.
    fn lock(&self) -> Locked<'_> {
        let nodes = self.0.iter().map(|(id, node)| (*id, grace::lock(node)));
        Locked(nodes.collect())
    }
}

/// Descriptors that are locked for one call.
struct Locked<'a>(Vec<(u64, MutexGuard<'a, Node>)>);

impl Locked<'_> {
    /// One of the descriptors.
    fn of(&mut self, id: u64) -> &mut Node {
        let at = self.0.binary_search_by_key(&id, |node| node.0);
        &mut self.0[at.expect("it was locked")].1
    }
}

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
    let (session, id) = (call.session, call.word(1));
    // The worker makes these itself for each execution.
    let of = words[0] as i32;
    if of == kind::PACK {
        return Ok(status::NOT_SUPPORTED);
    }
    if !session.graphs.begin(id, of) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let status = call.cudnn("cudnnBackendCreateDescriptor", words);
    if status != SUCCESS {
        session.graphs.all().remove(&id);
    }
    Ok(status)
}

pub fn destroy(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let gone = call.session.graphs.all().remove(&call.word(0));
    if let Some(loaded) = gone.and_then(|node| node.lock().loaded) {
        call.cudnn("cudnnBackendDestroyDescriptor", &[loaded]);
    }
    Ok(call.cudnn("cudnnBackendDestroyDescriptor", words))
}

/// Bytes as words.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> + Clone {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Refuses a descriptor whose type is not the attribute's, because the library would accept it.
fn right_type(name: u64, kind: i32) -> Result<(), u32> {
    match takes(name as i32, kind) {
        Some(true) => Ok(()),
        Some(false) => Err(status::DESCRIPTOR_TYPE),
        None => Err(status::NOT_SUPPORTED),
    }
}

pub fn set_attribute(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let [raw, name, of, mut count, _, is_posted] = *words else {
        return Ok(status::INTERNAL_ERROR);
    };
    let (session, id) = (call.session, call.word(0));
    let (of, elements) = (of as i32, call.bytes(4));
    let ids = match of {
        element::DESCRIPTOR => elements,
        _ => &[],
    };
    let Some(nodes) = session.graphs.find(words_of(ids).chain([id])) else {
        return Ok(status::BAD_PARAM);
    };
    let mut nodes = nodes.lock();
    let mut set = || {
        match bytes(of, count) {
            None => return Err(status::ATTRIBUTE_TYPE),
            Some(bytes) if bytes != elements.len() => return Err(status::BAD_PARAM),
            Some(_) => {}
        }
        if nodes.of(id).is_final {
            return Err(status::BAD_PARAM);
        }
        let raw_of = |class: Class| {
            let found = words_of(elements).map(|id| Some(session.objects.entry_of(class, id)?.raw));
            let found: Option<Vec<u64>> = found.collect();
            found.ok_or(status::BAD_PARAM)
        };
        let mut room = match of {
            element::CHAR if name as i32 == name::PLAN_TEXT => {
                let opened = session.graphs.texts.open(elements);
                let (text, values) = opened.ok_or(status::NOT_SUPPORTED)?;
                let node = nodes.of(id);
                if node.kind != kind::PLAN {
                    return Err(status::BAD_PARAM);
                }
                node.values.add_all(&values);
                count = text.len() as u64;
                Room::with(&text)
            }
            // Attributes with the address of a value on the host, and attributes that contain the whole, unknown
            // contents of another descriptor.
            element::POINTER | element::CHAR => return Err(status::NOT_SUPPORTED),
            element::HANDLE => Room::of(raw_of(Class::CudnnHandle)?.into_iter()),
            element::DESCRIPTOR => {
                let mut values = Values::default();
                let mut parts = Vec::new();
                for id in words_of(elements) {
                    let node = nodes.of(id);
                    right_type(name, node.kind)?;
                    if !node.is_final {
                        return Err(status::NOT_FINALIZED);
                    }
                    values.add_all(&node.values);
                    parts.push((node.about, node.handle));
                }
                let node = nodes.of(id);
                node.values.add_all(&values);
                for (_, handle) in &parts {
                    node.depend(*handle);
                }
                let parts: Vec<_> = parts.into_iter().map(|(about, _)| about).collect();
                node.about.set_descriptors(name as i32, &parts);
                Room::of(raw_of(Class::CudnnBackend)?.into_iter())
            }
            _ => Room::with(elements),
        };
        let node = nodes.of(id);
        node.note(name as i32, elements);
        if node.ids.len() > MOST_IDS {
            return Err(status::BAD_PARAM);
        }
        match of {
            element::DESCRIPTOR => {}
            element::HANDLE => {
                for handle in words_of(elements) {
                    node.depend(Some(handle));
                }
                node.about.set(name as i32, of, &[]);
            }
            _ => node.about.set(name as i32, of, elements),
        }
        let words = [raw, name, of as u64, count, room.address()];
        match call.cudnn("cudnnBackendSetAttribute", &words) {
            SUCCESS => Ok(()),
            status => {
                node.about.lose();
                Err(status)
            }
        }
    };
    match set() {
        Ok(()) => Ok(SUCCESS),
        // The finalisation reports errors of settings for which no thread waited.
        Err(status) if is_posted as i32 != 0 => {
            let node = nodes.of(id);
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

/// The library's descriptor for queries of an attribute. A plan that was made from a kept text lacks some of a built
/// plan's attributes. The first query of one builds the plan.
///
/// # Errors
///
/// The library's status.
fn queried(call: &Call<'_>, node: &mut Node, raw: u64, name: i32) -> Result<u64, u32> {
    match node.loaded {
        Some(loaded) if matches!(name, name::PLAN_WORKSPACE | name::PLAN_TEXT) => Ok(loaded),
        Some(_) if !node.is_built => match call.cudnn("cudnnBackendFinalize", &[raw]) {
            SUCCESS => {
                node.is_built = true;
                Ok(raw)
            }
            status => Err(status),
        },
        _ => Ok(raw),
    }
}

pub fn get_attribute(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let [raw, name, of, requested, _, to_count, to] = *words else {
        return Ok(status::INTERNAL_ERROR);
    };
    let (session, id) = (call.session, call.word(0));
    let of = of as i32;
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
    if targets.contains(&id) {
        return Ok(status::BAD_PARAM);
    }
    let Some(nodes) = session.graphs.find(targets.iter().copied().chain([id])) else {
        return Ok(status::BAD_PARAM);
    };
    let mut nodes = nodes.lock();
    let mut room = Room::new(length);
    if is_descriptors {
        let entries = targets.iter().map(|id| {
            let entry = session.objects.entry_of(Class::CudnnBackend, *id);
            entry.map(|entry| entry.raw)
        });
        let Some(raw) = entries.collect::<Option<Vec<u64>>>() else {
            return Ok(status::BAD_PARAM);
        };
        room = Room::of(raw.into_iter());
        // The library makes them like parts of this one.
        let node = nodes.of(id);
        let (values, handle) = (node.values.clone(), node.handle);
        let about = match node.is_final {
            true => node.about,
            false => Description::default(),
        };
        for (at, target) in targets.iter().enumerate() {
            let target = nodes.of(*target);
            if let Err(status) = right_type(name, target.kind) {
                return Ok(status);
            }
            target.values.add_all(&values);
            target.about.become_part(about, name as i32, at);
            target.depend(handle);
        }
    }
    let mut count = Room::new(8);
    let node = nodes.of(id);
    let raw = match queried(call, node, raw, name as i32) {
        Ok(raw) => raw,
        Err(status) => return Ok(status),
    };
    let is_text = name as i32 == name::PLAN_TEXT && of == element::CHAR;
    if is_text && node.kind == kind::PLAN && node.is_final {
        let text = match text(call, raw) {
            Ok(text) => session.graphs.texts.seal(&text, &node.values),
            Err(status) => return Ok(status),
        };
        if to_count != 0 {
            call.answer(5, (text.len() as u64).to_le_bytes().to_vec());
        }
        call.answer(6, text[..text.len().min(length)].to_vec());
        return Ok(SUCCESS);
    }
    let at = if requested == 0 { 0 } else { room.address() };
    let words = [raw, name, of as u64, requested, count.address(), at];
    let status = call.cudnn("cudnnBackendGetAttribute", &words);
    if status != SUCCESS {
        return Ok(status);
    }
    let given = (count.word() as i64).clamp(0, requested as i64) as usize;
    for target in targets.iter().take(given) {
        nodes.of(*target).is_final = true;
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

pub fn finalize(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let id = call.word(0);
    let Some(nodes) = call.session.graphs.find([id].into_iter()) else {
        return Ok(status::BAD_PARAM);
    };
    let mut nodes = nodes.lock();
    let node = nodes.of(id);
    if node.is_final {
        return Ok(status::BAD_PARAM);
    }
    if let Some(status) = node.refused {
        return Ok(status);
    }
    node.settle();
    let status = match node.kind {
        kind::PLAN => finalize_plan(call, node, words[0]),
        _ => call.cudnn("cudnnBackendFinalize", &words[..1]),
    };
    if status == SUCCESS {
        node.is_final = true;
        let values = node.values.write();
        call.answer(1, values);
    }
    Ok(status)
}

/// Makes a plan from a kept text, or builds it.
fn finalize_plan(call: &Call<'_>, node: &mut Node, raw: u64) -> u32 {
    let Graphs { texts, plans, .. } = &call.session.graphs;
    let place = plans.place(call, node.about, node.handle);
    if let Some(place) = &place
        && let Some(loaded) = plans.load(call, place, texts, &node.values)
    {
        node.loaded = Some(loaded.take());
        return SUCCESS;
    }
    let began = Instant::now();
    let status = call.cudnn("cudnnBackendFinalize", &[raw]);
    if status == SUCCESS
        && let Some(place) = &place
    {
        plans.keep(call, place, texts, (raw, &node.values), began.elapsed());
    }
    status
}

/// A variant pack of the library, with the values to which it points.
struct HostPack<'a> {
    call: &'a Call<'a>,
    raw: u64,
    /// The library's plan.
    plan: u64,
    /// The values do not move, because the library has their addresses.
    _values: Vec<[u8; VALUE_BYTES]>,
}

impl<'a> HostPack<'a> {
    /// Makes a variant pack for the plan that is the second argument, from an argument's encoding.
    fn new(call: &'a Call<'a>, at: usize, words: &[u64]) -> Result<Self, u32> {
        let plan = call.word(1);
        let pack = Pack::read(call.bytes(at)).map_err(|_| status::BAD_PARAM)?;
        let nodes = call.session.graphs.find([plan].into_iter());
        let nodes = nodes.ok_or(status::BAD_PARAM)?;
        let mut nodes = nodes.lock();
        let node = nodes.of(plan);
        if node.kind != kind::PLAN {
            return Err(status::BAD_PARAM);
        }
        if !node.is_final {
            return Err(status::NOT_FINALIZED);
        }
        let (addresses, values) = places(&pack, &node.values).ok_or(status::BAD_PARAM)?;
        let plan = node.loaded.unwrap_or(words[1]);
        drop(nodes);
        let done = |status| match status {
            SUCCESS => Ok(()),
            status => Err(status),
        };
        let mut raw = 0_u64;
        let words = [kind::PACK as u64, &raw mut raw as u64];
        done(call.cudnn("cudnnBackendCreateDescriptor", &words))?;
        let made = Self {
            call,
            raw,
            plan,
            _values: values,
        };
        let set = |name: i32, of: i32, words: Vec<u64>| {
            let (count, mut room) = (words.len() as u64, Room::of(words.into_iter()));
            let words = [raw, name as u64, of as u64, count, room.address()];
            done(call.cudnn("cudnnBackendSetAttribute", &words))
        };
        let ids = pack.operands.iter().map(|(id, _)| *id as u64);
        set(name::PACK_POINTERS, element::POINTER, addresses)?;
        set(name::PACK_IDS, element::INT64, ids.collect())?;
        if let Some(address) = pack.workspace {
            set(name::PACK_WORKSPACE, element::POINTER, vec![address])?;
        }
        done(call.cudnn("cudnnBackendFinalize", &[raw]))?;
        Ok(made)
    }
}

impl Drop for HostPack<'_> {
    fn drop(&mut self) {
        self.call
            .cudnn("cudnnBackendDestroyDescriptor", &[self.raw]);
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
    Ok(match HostPack::new(call, 2, words) {
        Ok(pack) => call.cudnn("cudnnBackendExecute", &[words[0], pack.plan, pack.raw]),
        Err(status) => status,
    })
}

pub fn workspace_size(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    Ok(match HostPack::new(call, 2, words) {
        Ok(pack) => {
            let words = [words[0], pack.plan, pack.raw, words[3]];
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
    fn a_tensor_that_may_be_by_value_stays_so() {
        let mut node = Node::default();
        node.note(name::TENSOR_ID, &7_i64.to_le_bytes());
        node.note(name::TENSOR_IS_BY_VALUE, &[1]);
        node.note(name::TENSOR_IS_BY_VALUE, &[0]);
        node.note(name::TENSOR_DATA_TYPE, &1_i32.to_le_bytes());
        node.note(name::TENSOR_ID, &8_i64.to_le_bytes());
        node.settle();
        assert_eq!(
            [7, 8, 9].map(|id| node.values.bytes(id)),
            [Some(8), Some(8), None]
        );
    }

    #[test]
    fn an_id_is_one_descriptors() {
        let graphs = Graphs::default();
        assert!(graphs.begin(0x1d0, 17) && !graphs.begin(0x1d0, 5));
        assert!(graphs.find([0x1d0, 0x2d0].into_iter()).is_none());
        assert!(graphs.begin(0x2d0, 5));
        // Twice, and in any order.
        let nodes = graphs.find([0x2d0, 0x1d0, 0x2d0].into_iter()).unwrap();
        let mut locked = nodes.lock();
        locked.of(0x2d0).is_final = true;
        assert!(!locked.of(0x1d0).is_final);
        assert_eq!([0x1d0, 0x2d0].map(|id| locked.of(id).kind), [17, 5]);
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
