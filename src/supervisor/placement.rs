// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The GPUs that the clients of a VM see, and their order.
//!
//! Most programs use device 0, so the choice of that GPU matters. When the first client of a VM opens, the first GPU is
//! the one with the largest expected share. The VMs with clients on a GPU share it by their weights: on a GPU where
//! other VMs with a total weight of W have clients, a VM of weight w would have w / (W + w). Each client counts only on
//! its first GPU, because its use of other GPUs is not known in advance. Between otherwise equal GPUs, free device
//! memory decides, and then the number, because waiting workers have their contexts on GPU 0.
//!
//! As long as a VM has clients, new ones get the same order: cooperating processes on several GPUs, one each, identify
//! the GPUs by their numbers, as they do without a VM.

/// A running client.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    /// Its VM.
    pub vm: usize,
    /// The VM's weight.
    pub weight: u32,
    /// The GPU that it sees first.
    pub gpu: u32,
}

/// The GPUs of `allowed`, the best one for a VM without clients first. `clients` are those of other VMs, and `charged`
/// returns the used bytes of a GPU's memory.
pub fn order(
    allowed: impl IntoIterator<Item = u32>,
    clients: &[Placed],
    charged: impl Fn(u32) -> u64,
) -> Vec<u32> {
    let cost = |gpu: u32| {
        let here = clients.iter().filter(|client| client.gpu == gpu);
        let mut vms: Vec<_> = here.map(|client| (client.vm, client.weight)).collect();
        let count = vms.len();
        vms.sort_unstable();
        vms.dedup();
        // The share is the VM's weight divided by the sum of these weights and its own.
        let weights: u64 = vms.iter().map(|(_, weight)| u64::from(*weight)).sum();
        (weights, count, charged(gpu), gpu)
    };
    let mut gpus: Vec<u32> = allowed.into_iter().collect();
    gpus.sort_by_cached_key(|gpu| cost(*gpu));
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(gpu: u32, vm: usize, weight: u32) -> Placed {
        Placed { vm, weight, gpu }
    }

    #[test]
    fn an_idle_host_is_filled_from_its_first_gpu() {
        let mut clients = Vec::new();
        for (vm, expected) in [0, 1, 2, 0, 1, 2].into_iter().enumerate() {
            let order = order(0..3, &clients, |_| 0);
            assert_eq!(order[0], expected, "{clients:?}");
            clients.push(at(expected, vm, 100));
        }
        assert_eq!(order([2, 1], &[], |_| 0), [1, 2]);
    }

    #[test]
    fn a_vm_is_placed_on_the_gpu_of_its_largest_share() {
        // A GPU with one heavy VM, and one with two light ones.
        let clients = [at(0, 1, 1000), at(1, 2, 100), at(1, 3, 100)];
        assert_eq!(order(0..2, &clients, |_| 0), [1, 0]);
        // The number of another VM's clients does not change its weight; but fewer clients are better.
        let clients = [at(0, 1, 100), at(0, 1, 100), at(1, 2, 100)];
        assert_eq!(order(0..2, &clients, |_| 0), [1, 0]);
    }

    #[test]
    fn between_equals_the_gpu_with_more_memory_left_is_first() {
        let charged = |gpu| if gpu == 0 { 1 << 30 } else { 0 };
        assert_eq!(order(0..2, &[], charged), [1, 0]);
    }

    #[test]
    fn no_gpu_is_added_or_lost() {
        let clients = [at(5, 1, 1), at(2, 1, 1)];
        let mut all = order([2, 5, 7], &clients, |_| 0);
        all.sort_unstable();
        assert_eq!(all, [2, 5, 7]);
        assert!(order([], &clients, |_| 0).is_empty());
    }
}
