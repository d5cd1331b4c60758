// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The backend's descriptors by id, with all that the worker knows of them.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, OnceLock},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::libraries::{
    Class, Library, SUCCESS,
    cudnn::{
        backend::{Values, kind, name},
        status,
    },
};

use super::{
    plans::{Description, Plans},
    texts::Texts,
};
use crate::{
    cuda::library,
    worker::{
        grace,
        libraries::{Call, abi},
        session::Session,
    },
};

/// A descriptor of the library. It ends with this value.
#[derive(Debug)]
pub struct Raw(u64);

impl Raw {
    /// The library's new descriptor of a type.
    ///
    /// # Errors
    ///
    /// The library's status.
    pub(super) fn new(call: &Call<'_>, kind: i32) -> Result<Self, u32> {
        let mut raw = 0_u64;
        let words = [kind as u64, &raw mut raw as u64];
        match call.cudnn("cudnnBackendCreateDescriptor", &words) {
            SUCCESS => Ok(Self(raw)),
            status => Err(status),
        }
    }

    /// The library's value.
    pub fn value(&self) -> u64 {
        self.0
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // Tests have some without a library.
        if self.0 == 0 {
            return;
        }
        let function =
            library::Library::from(Library::Cudnn).symbol("cudnnBackendDestroyDescriptor");
        if let Ok(function) = function {
            // SAFETY: the function takes a descriptor of the library, which nothing else ends.
            unsafe { abi::call_with(function, &[self.0], [0.0; abi::MOST_FLOATS]) };
        }
    }
}

/// A descriptor of the backend. A call in progress keeps it, even if the client ends it meanwhile.
#[derive(Debug)]
pub struct Descriptor {
    /// Its type.
    pub kind: i32,
    /// The library's descriptor.
    pub raw: Raw,
    /// Its state.
    pub node: Mutex<Node>,
    /// For a finalised plan: what an execution needs, without a lock.
    pub plan: OnceLock<Plan>,
}

/// A finalised plan.
#[derive(Debug)]
pub struct Plan {
    /// The tensors that may be by value in it.
    pub values: Values,
    /// The library's plan that was made from a kept text, and is used instead. The other one is not finalised.
    pub loaded: Option<Raw>,
}

impl Descriptor {
    /// A new descriptor of a type.
    pub fn new(kind: i32, raw: Raw) -> Self {
        let node = Node {
            about: Description::new(kind),
            ..Node::default()
        };
        Self {
            kind,
            raw,
            node: Mutex::new(node),
            plan: OnceLock::new(),
        }
    }

    /// The library's descriptor that does the work of this one.
    pub fn active(&self) -> &Raw {
        let loaded = self.plan.get().and_then(|plan| plan.loaded.as_ref());
        loaded.unwrap_or(&self.raw)
    }
}

/// The state of a descriptor.
#[derive(Debug, Default)]
pub struct Node {
    /// Whether it is finalised. Afterwards it does not change.
    pub is_final: bool,
    /// Whether another descriptor has it as an attribute, and may refer to its contents.
    pub is_part: bool,
    /// The descriptors in it, by attribute.
    pub parts: HashMap<i32, Vec<Arc<Descriptor>>>,
    /// The library's status for the first refused attribute for whose answer no thread waited.
    pub refused: Option<u32>,
    /// The tensors that may be by value in it.
    pub values: Values,
    /// For a tensor: the ids that were set, ...
    pub ids: Vec<i64>,
    /// ... whether it was set to be by value, ...
    pub is_by_value: bool,
    /// ... and the type of its elements.
    pub data: Option<i32>,
    /// Everything that was set in it.
    pub about: Description,
    /// The handles that were set in it or in descriptors in it: ids and the library's values.
    pub handles: Vec<(u64, u64)>,
}

impl Node {
    /// Records an attribute of a descriptor of a type, whether the library accepts it or not.
    pub fn note(&mut self, kind: i32, name: i32, elements: &[u8]) {
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
        if kind == kind::PLAN && !is_usual {
            self.about.lose();
        }
    }

    /// Records handles on which it depends.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if there are too many.
    pub fn depend(&mut self, handles: &[(u64, u64)]) -> Result<(), u32> {
        for handle in handles {
            if !self.handles.contains(handle) {
                self.handles.push(*handle);
            }
        }
        if self.handles.len() > 1 {
            // They can be of two GPUs.
            self.about.lose();
        }
        match self.handles.len() > MOST_HANDLES {
            true => Err(status::NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// Refuses a descriptor that has a handle which has ended: the library would use it.
    pub fn check_handles(&self, session: &Session) -> Result<(), u32> {
        let is_there = |(id, raw): &(u64, u64)| {
            let entry = session.objects.entry_of(Class::CudnnHandle, *id);
            entry.is_some_and(|entry| entry.raw == *raw)
        };
        match self.handles.iter().all(is_there) {
            true => Ok(()),
            false => Err(status::BAD_PARAM),
        }
    }

    /// Adds tensors that may be by value in it.
    ///
    /// # Errors
    ///
    /// `NOT_SUPPORTED` if there are too many.
    pub fn add_values(&mut self, values: &Values) -> Result<(), u32> {
        let mut all = self.values.clone();
        all.add_all(values);
        if all.len() > MOST_VALUES {
            return Err(status::NOT_SUPPORTED);
        }
        self.values = all;
        Ok(())
    }

    /// Adds the tensor itself, if it may be by value.
    ///
    /// # Errors
    ///
    /// As [`Self::add_values`]; `BAD_PARAM` for a tensor without a number: its value could not be told from an address.
    pub fn settle(&mut self) -> Result<(), u32> {
        if !self.is_by_value {
            return Ok(());
        }
        if self.ids.is_empty() {
            return Err(status::BAD_PARAM);
        }
        let mut own = Values::default();
        for id in &self.ids {
            own.add(*id, self.data);
        }
        self.add_values(&own)
    }
}

/// The maximum number of ids that are set for a tensor, one after the other: a program sets one.
pub const MOST_IDS: usize = 64;
/// The maximum number of tensors by value in a descriptor. Each descriptor has a list of its own.
const MOST_VALUES: usize = 128;
/// The maximum number of handles in a descriptor: a program has one.
const MOST_HANDLES: usize = 4;

/// The backend's descriptors, by id.
#[derive(Debug, Default)]
pub struct Graphs {
    all: Mutex<HashMap<u64, Arc<Descriptor>>>,
    /// The texts of plans.
    pub texts: Texts,
    /// The kept plans.
    pub plans: Plans,
}

impl Graphs {
    /// Adds a descriptor; returns whether its id was free. If two threads make descriptors with one id, one of them
    /// fails.
    pub fn add(&self, id: u64, kind: i32, raw: Raw) -> bool {
        match self.all.lock().entry(id) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(place) => {
                place.insert(Arc::new(Descriptor::new(kind, raw)));
                true
            }
        }
    }

    /// Gives an id to another descriptor, if it has `of`. Calls and descriptors that have the earlier one keep it.
    pub fn replace(&self, id: u64, of: &Arc<Descriptor>, by: Arc<Descriptor>) {
        if let Some(place) = self.all.lock().get_mut(&id)
            && Arc::ptr_eq(place, of)
        {
            *place = by;
        }
    }

    /// The descriptor with an id.
    pub fn find(&self, id: u64) -> Option<Arc<Descriptor>> {
        self.all.lock().get(&id).cloned()
    }

    /// Removes a descriptor. The last call that uses it ends it.
    pub fn remove(&self, id: u64) -> Option<Arc<Descriptor>> {
        self.all.lock().remove(&id)
    }

    /// The descriptors with these ids, each once, in the order of the ids. `None` if one does not exist.
    pub fn find_all(&self, ids: impl Iterator<Item = u64>) -> Option<Found> {
        let mut ids: Vec<u64> = ids.collect();
        ids.sort_unstable();
        ids.dedup();
        let all = self.all.lock();
        let found = ids
            .into_iter()
            .map(|id| Some((id, Arc::clone(all.get(&id)?))));
        found.collect::<Option<_>>().map(Found)
    }
}

/// The descriptors that a call uses.
pub struct Found(Vec<(u64, Arc<Descriptor>)>);

impl Found {
    /// The number of descriptors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One of them, to be kept.
    pub fn get(&self, id: u64) -> Option<Arc<Descriptor>> {
        let at = self.0.binary_search_by_key(&id, |of| of.0).ok()?;
        Some(Arc::clone(&self.0[at].1))
    }

    /// Locks all of them, each once: two ids can have one descriptor. Every thread locks them in the order of their
    /// addresses.
    pub fn lock(&self) -> Locked<'_> {
        let mut all: Vec<_> = self.0.iter().map(|(_, of)| of).collect();
        all.sort_unstable_by_key(|of| Arc::as_ptr(of));
        all.dedup_by(|one, other| Arc::ptr_eq(one, other));
        let nodes = all.into_iter();
        let nodes = nodes.map(|of| (Arc::as_ptr(of), grace::lock(&of.node)));
        Locked {
            found: self,
            nodes: nodes.collect(),
        }
    }
}

/// Descriptors that are locked for one call.
pub struct Locked<'a> {
    found: &'a Found,
    /// Their states, by the descriptors' addresses.
    nodes: Vec<(*const Descriptor, MutexGuard<'a, Node>)>,
}

impl<'a> Locked<'a> {
    /// One of them.
    pub fn of(&self, id: u64) -> &'a Descriptor {
        let at = self.found.0.binary_search_by_key(&id, |of| of.0);
        &self.found.0[at.expect("it was found")].1
    }

    /// The state of one of them.
    pub fn node(&mut self, id: u64) -> &mut Node {
        let of = std::ptr::from_ref(self.of(id));
        let at = self.nodes.binary_search_by_key(&of, |node| node.0);
        &mut self.nodes[at.expect("it was locked")].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(ids: std::ops::Range<i64>) -> Values {
        let mut values = Values::default();
        ids.for_each(|id| values.add(id, Some(0)));
        values
    }

    #[test]
    fn a_tensor_that_may_be_by_value_stays_so() {
        let mut node = Node::default();
        for (name, elements) in [
            (name::TENSOR_ID, &7_i64.to_le_bytes()[..]),
            (name::TENSOR_IS_BY_VALUE, &[1]),
            (name::TENSOR_IS_BY_VALUE, &[0]),
            (name::TENSOR_DATA_TYPE, &1_i32.to_le_bytes()),
            (name::TENSOR_ID, &8_i64.to_le_bytes()),
        ] {
            node.note(kind::TENSOR, name, elements);
        }
        assert_eq!(node.settle(), Ok(()));
        assert_eq!(
            [7, 8, 9].map(|id| node.values.bytes(id)),
            [Some(8), Some(8), None]
        );
    }

    #[test]
    fn a_tensor_by_value_has_a_number() {
        let mut node = Node::default();
        node.note(kind::TENSOR, name::TENSOR_IS_BY_VALUE, &[1]);
        assert_eq!(node.settle(), Err(status::BAD_PARAM));
    }

    #[test]
    fn tensors_by_value_and_handles_are_limited() {
        let mut node = Node::default();
        let most = MOST_VALUES as i64;
        assert_eq!(node.add_values(&values(0..most)), Ok(()));
        assert_eq!(node.add_values(&values(1..most)), Ok(()));
        let refused = node.add_values(&values(most..most + 1));
        assert_eq!(refused, Err(status::NOT_SUPPORTED));
        assert_eq!(node.values, values(0..most));
        for handle in 0..MOST_HANDLES as u64 {
            assert_eq!(node.depend(&[(handle, 1), (handle, 1)]), Ok(()));
        }
        // Another handle with the id of one that has ended.
        assert_eq!(node.depend(&[(0, 2)]), Err(status::NOT_SUPPORTED));
    }

    #[test]
    fn a_plan_with_more_than_its_configuration_is_not_described() {
        let described = |name| {
            let mut node = Node {
                about: Description::new(kind::PLAN),
                ..Node::default()
            };
            node.note(kind::PLAN, name, &[0; 8]);
            node.about != Description::default()
        };
        assert!(described(name::PLAN_HANDLE) && described(name::PLAN_CONFIG));
        assert!(!described(name::PLAN_TEXT) && !described(406));
        let mut node = Node {
            about: Description::new(kind::PLAN),
            ..Node::default()
        };
        node.depend(&[(1, 1)]).unwrap();
        assert_ne!(node.about, Description::default());
        node.depend(&[(2, 2)]).unwrap();
        assert_eq!(node.about, Description::default());
    }

    #[test]
    fn an_id_is_one_descriptors() {
        let graphs = Graphs::default();
        assert!(graphs.add(0x1d0, 17, Raw(0)) && !graphs.add(0x1d0, 5, Raw(0)));
        assert!(graphs.find_all([0x1d0, 0x2d0].into_iter()).is_none());
        assert!(graphs.add(0x2d0, 5, Raw(0)));
        // Twice, and in any order.
        let found = graphs.find_all([0x2d0, 0x1d0, 0x2d0].into_iter()).unwrap();
        assert_eq!(found.len(), 2);
        let mut locked = found.lock();
        locked.node(0x2d0).is_final = true;
        assert!(!locked.node(0x1d0).is_final);
        assert_eq!([0x1d0, 0x2d0].map(|id| locked.of(id).kind), [17, 5]);
        // A call keeps those that it has found.
        assert!(graphs.remove(0x2d0).is_some() && graphs.find(0x2d0).is_none());
        assert!(graphs.add(0x2d0, 17, Raw(0)));
        assert_eq!(locked.of(0x2d0).kind, 5);
    }

    #[test]
    fn two_ids_can_have_one_descriptor() {
        let graphs = Graphs::default();
        assert!(graphs.add(0x1d0, 3, Raw(0)) && graphs.add(0x2d0, 3, Raw(0)));
        let [one, other] = [0x1d0, 0x2d0].map(|id| graphs.find(id).unwrap());
        graphs.replace(0x2d0, &one, Arc::clone(&one));
        assert!(Arc::ptr_eq(&graphs.find(0x2d0).unwrap(), &other));
        graphs.replace(0x2d0, &other, one);
        let found = graphs.find_all([0x1d0, 0x2d0].into_iter()).unwrap();
        let mut locked = found.lock();
        locked.node(0x1d0).is_final = true;
        assert!(locked.node(0x2d0).is_final);
    }
}
