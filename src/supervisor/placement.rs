//! Which GPUs a new client sees, in which order.
//!
//! Most programs use device 0, so what matters is which GPU that is. A client gets the GPU first where it can expect the
//! largest share. The VMs that have clients on a GPU share it by their weights, and a VM's clients share what it gets; so on a
//! GPU where other VMs with weights of W in all have clients, and its own VM, of weight w, has n already, it would have
//! w / (W + w) / (n + 1). A client counts where it has its first GPU: what programs do with further ones is not known before
//! they do it. Device memory decides between GPUs that are alike otherwise, and then the number, since workers that wait
//! have their contexts on GPU 0.

/// A client that is there.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    /// Its VM.
    pub vm: usize,
    /// The VM's weight.
    pub weight: u32,
    /// The GPU that it sees first.
    pub gpu: u32,
}

/// The GPUs of `allowed`, the best one for a new client of a VM first; `charged` says how many bytes of a GPU's memory are
/// taken.
pub fn order(
    allowed: impl IntoIterator<Item = u32>,
    (vm, weight): (usize, u32),
    clients: &[Placed],
    charged: impl Fn(u32) -> u64,
) -> Vec<u32> {
    let cost = |gpu: u32| {
        let here = clients.iter().filter(|client| client.gpu == gpu);
        let own = here.clone().filter(|client| client.vm == vm).count() as u64;
        let mut others: Vec<_> = here
            .filter(|client| client.vm != vm)
            .map(|client| (client.vm, client.weight))
            .collect();
        let count = own + others.len() as u64;
        others.sort_unstable();
        others.dedup();
        let weights: u64 = others.iter().map(|(_, weight)| u64::from(*weight)).sum();
        // The share is the VM's weight, which is the same everywhere, by this.
        let share = (weights + u64::from(weight)) * (own + 1);
        (share, count, charged(gpu), gpu)
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
        for expected in [0, 1, 2, 0, 1, 2] {
            let order = order(0..3, (0, 100), &clients, |_| 0);
            assert_eq!(order[0], expected, "{clients:?}");
            clients.push(at(expected, 0, 100));
        }
        assert_eq!(order([2, 1], (0, 100), &[], |_| 0), [1, 2]);
    }

    #[test]
    fn a_client_goes_where_its_share_is_largest() {
        // A GPU with one heavy VM, and one with two light ones.
        let clients = [at(0, 1, 1000), at(1, 2, 100), at(1, 3, 100)];
        assert_eq!(order(0..2, (0, 100), &clients, |_| 0), [1, 0]);
        // Its own VM's clients share what the VM gets.
        let clients = [at(0, 0, 100), at(0, 0, 100), at(1, 1, 100)];
        assert_eq!(order(0..2, (0, 100), &clients, |_| 0), [1, 0]);
        // However many clients another VM has, its weight is the same; but fewer are better.
        let clients = [at(0, 1, 100), at(0, 1, 100), at(1, 2, 100)];
        assert_eq!(order(0..2, (0, 100), &clients, |_| 0), [1, 0]);
    }

    #[test]
    fn between_equals_the_gpu_with_more_memory_left_is_first() {
        let charged = |gpu| if gpu == 0 { 1 << 30 } else { 0 };
        assert_eq!(order(0..2, (0, 100), &[], charged), [1, 0]);
    }

    #[test]
    fn no_gpu_is_added_or_lost() {
        let clients = [at(5, 1, 1), at(2, 1, 1)];
        let mut all = order([2, 5, 7], (0, 1), &clients, |_| 0);
        all.sort_unstable();
        assert_eq!(all, [2, 5, 7]);
        assert!(order([], (0, 1), &clients, |_| 0).is_empty());
    }
}
