// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs that the host certainly makes, so that the program need not wait for them.
//!
//! Only a lack of memory can prevent the host from making a graph of launches like one that it has made before. The
//! host charges a client for the peak of its graphs (`src/worker/executables/charged.rs`), so a graph for which there
//! was room before is not refused either. The library waits for any other graph, and reports the host's refusal
//! immediately.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher, Hash, Hasher},
    sync::LazyLock,
};

use foldhash::fast::RandomState;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{GraphStep, graph_step},
    cuda::CUdevice,
};
use smallvec::SmallVec;

/// The maximum number of remembered forms.
const FORMS: usize = 1 << 12;

/// The GPU memory of the graphs on a device, in bytes.
#[derive(Debug, Default)]
struct Used {
    now: u64,
    /// The largest amount for which the host had room.
    most: u64,
}

#[derive(Debug, Default)]
struct Known {
    forms: HashSet<u64, RandomState>,
    used: HashMap<CUdevice, Used, RandomState>,
}

fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    KNOWN.lock()
}

/// An executable graph's part of the memory, until this is dropped.
#[derive(Debug)]
pub struct Place {
    /// The devices of its contexts. The host charges the whole graph on each of them.
    devices: SmallVec<[CUdevice; 1]>,
    bytes: u64,
    /// The number of the graph's form; `None` for one that is always waited for.
    form: Option<u64>,
}

impl Place {
    /// Counts a graph of these steps, and returns whether the host certainly makes it. `on` are the devices of its
    /// contexts.
    pub fn take(
        steps: &[GraphStep],
        flags: u64,
        on: impl Iterator<Item = CUdevice>,
    ) -> (Self, bool) {
        let mut devices = SmallVec::new();
        for device in on {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let place = Self {
            devices,
            bytes: graph_step::BYTES + graph_step::BYTES_OF_STEP * steps.len() as u64,
            form: form(steps, flags),
        };
        let mut known = known();
        let mut is_sure = place.form.is_some_and(|form| known.forms.contains(&form));
        for device in &place.devices {
            let used = known.used.entry(*device).or_default();
            used.now += place.bytes;
            is_sure &= used.now <= used.most;
        }
        (place, is_sure)
    }

    /// Records that the host has made the graph.
    pub fn is_made(&self) {
        let mut known = known();
        for device in &self.devices {
            let used = known.used.entry(*device).or_default();
            used.most = used.most.max(used.now);
        }
        if let Some(form) = self.form {
            if known.forms.len() >= FORMS {
                known.forms.clear();
            }
            known.forms.insert(form);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut known = known();
        for device in &self.devices {
            if let Some(used) = known.used.get_mut(device) {
                used.now -= self.bytes;
            }
        }
    }
}

/// A number that is equal for graphs that differ only in parameters of launches. `None` for a graph with other steps,
/// because their objects may have ended, and for launches that kernels update.
fn form(steps: &[GraphStep], flags: u64) -> Option<u64> {
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    let mut hasher = STATE.build_hasher();
    (flags, steps.len()).hash(&mut hasher);
    for step in steps {
        if step.kind != graph_step::LAUNCH || !step.numbers.is_empty() {
            return None;
        }
        let launch = &step.launch;
        let grid = [launch.grid_x, launch.grid_y, launch.grid_z];
        let block = [launch.block_x, launch.block_y, launch.block_z];
        (step.enabled, step.context, step.object).hash(&mut hasher);
        (grid, block, launch.shared_bytes, step.params.0.len()).hash(&mut hasher);
        for attribute in &launch.attributes {
            (attribute.id, attribute.value).hash(&mut hasher);
        }
        (launch.attributes.len(), &step.after).hash(&mut hasher);
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::{
        api::{LaunchAttribute, LaunchConfig},
        codec::Blob,
    };

    use super::*;

    fn chain(context: u64, steps: usize) -> Vec<GraphStep> {
        let step = |at: usize| GraphStep {
            kind: graph_step::LAUNCH,
            after: (at as u32).checked_sub(1).into_iter().collect(),
            enabled: true,
            context,
            object: 7,
            launch: LaunchConfig {
                grid_x: 3,
                ..LaunchConfig::default()
            },
            params: Blob(vec![at as u8; 16]),
            ..GraphStep::default()
        };
        (0..steps).map(step).collect()
    }

    fn take(steps: &[GraphStep]) -> (Place, bool) {
        let on = steps.iter().map(|step| (step.context >> 8) as CUdevice);
        Place::take(steps, 0, on)
    }

    fn make(steps: &[GraphStep]) -> (Place, bool) {
        let (place, is_sure) = take(steps);
        place.is_made();
        (place, is_sure)
    }

    #[test]
    fn a_graph_is_sure_if_one_like_it_and_as_much_as_it_takes_was_there_before() {
        let (short, long) = (chain(0x101, 3), chain(0x101, 300));
        let (first, is_sure) = make(&short);
        assert!(!is_sure);
        // Its room is occupied.
        let (second, is_sure) = take(&short);
        assert!(!is_sure);
        drop(second);
        drop(first);
        let (again, is_sure) = take(&short);
        assert!(is_sure);
        // A graph that the host has refused leaves no room.
        drop(take(&long));
        drop(again);
        let (other, is_sure) = take(&long);
        assert!(!is_sure);
        other.is_made();
        drop(other);
        assert!(take(&long).1);
        let pair = [take(&short), take(&short)];
        assert!(pair.iter().all(|(_, is_sure)| *is_sure));
        // On another GPU.
        assert!(!take(&chain(0x201, 3)).1);
    }

    #[test]
    fn a_graph_takes_room_on_all_its_gpus() {
        let alone = chain(0x401, 3);
        drop(make(&alone));
        assert!(take(&alone).1);
        // Two contexts of one GPU.
        let beside = make(&chain(0x402, 3));
        assert!(!take(&alone).1);
        drop(beside);
        assert!(take(&alone).1);
        let mut both = chain(0x501, 4);
        both[2].context = 0x401;
        let (both, _) = take(&both);
        assert!(!take(&alone).1);
        drop(both);
        assert!(take(&alone).1);
    }

    #[test]
    fn the_parameters_of_launches_alone_are_not_in_the_form() {
        let steps = chain(0x301, 4);
        let of = form(&steps, 0).unwrap();
        let with = |change: &dyn Fn(&mut GraphStep)| {
            let mut steps = steps.clone();
            change(&mut steps[2]);
            form(&steps, 0)
        };
        assert_eq!(with(&|step| step.params.0[5] = 99), Some(of));
        let attribute = |value: u8| LaunchAttribute {
            id: 4,
            value: [value; 64],
        };
        let others: [&dyn Fn(&mut GraphStep); 9] = [
            &|step| step.object = 8,
            &|step| step.context = 0x302,
            &|step| step.after = vec![0],
            &|step| step.after = vec![0, 1],
            &|step| step.enabled = false,
            &|step| step.launch.block_y = 2,
            &|step| step.launch.shared_bytes = 1,
            &|step| step.launch.attributes = vec![attribute(1)],
            &|step| step.params.0.push(0),
        ];
        for (at, change) in others.into_iter().enumerate() {
            assert!(with(change).is_some_and(|form| form != of), "{at}");
        }
        let with_value = |value| with(&|step| step.launch.attributes = vec![attribute(value)]);
        assert_ne!(with_value(1), with_value(2));
        assert_ne!(form(&steps, 8), Some(of));
        assert_ne!(form(&steps[..3], 0), Some(of));
        assert_eq!(with(&|step| step.kind = graph_step::FILL), None);
        assert_eq!(with(&|step| step.numbers = vec![1, 0]), None);
    }
}
