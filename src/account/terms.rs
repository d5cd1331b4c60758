// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a VM's processes may have, as the supervisor says.
//!
//! Workers can read it and not write: one that was taken over must not raise the limit of the others. The memory is sealed so that nobody
//! maps it to write any more once the supervisor has.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{GPUS, GRANULE, Shared, Words};

#[derive(Debug)]
#[repr(C)]
struct Raw {
    /// The most bytes on each GPU; 0 for no limit.
    limit: AtomicU64,
    /// What a context costs, in bytes, as was measured on each GPU; 0 if it was not.
    context: [AtomicU64; GPUS],
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Raw {}

/// The supervisor's end.
#[derive(Debug)]
pub struct Terms(Shared<Raw>);

impl Terms {
    /// No limit, and contexts that cost nothing.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors, or its kernel is older than Linux 5.1.
    pub fn new() -> io::Result<Self> {
        Shared::new_for_readers(c"gpgpu-terms").map(Self)
    }

    /// The memory, to be passed on.
    pub fn file(&self) -> &Arc<File> {
        self.0.file()
    }

    /// Sets the limit, in bytes.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.0.limit.store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit, in bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.0.limit()
    }

    /// Says what a context costs, in bytes by GPU. None shares a granule with anything else.
    pub fn set_context_costs(&self, costs: &[u64]) {
        for (word, cost) in self.0.context.iter().zip(costs) {
            let cost = cost.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
            word.store(cost, Ordering::Relaxed);
        }
    }

    /// What a context on a GPU costs, in bytes.
    pub fn context_cost(&self, gpu: usize) -> u64 {
        self.0.context_cost(gpu)
    }
}

impl Raw {
    fn limit(&self) -> Option<u64> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    fn context_cost(&self, gpu: usize) -> u64 {
        let word = self.context.get(gpu);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// A worker's end. Nothing here writes, as the memory is mapped to be read.
#[derive(Debug)]
pub struct TermsView(Shared<Raw>);

impl TermsView {
    /// What the supervisor has made.
    ///
    /// # Errors
    /// It is too short, or cannot be mapped.
    pub fn map(file: Arc<File>) -> io::Result<Self> {
        Shared::map_to_read(file).map(Self)
    }

    /// See [`Terms::limit`].
    pub fn limit(&self) -> Option<u64> {
        self.0.limit()
    }

    /// See [`Terms::context_cost`].
    pub fn context_cost(&self, gpu: usize) -> u64 {
        self.0.context_cost(gpu)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_worker_reads_its_terms_and_cannot_change_them() {
        let terms = Terms::new().unwrap();
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        assert_eq!(view.limit(), None);
        terms.set_limit(Some(1 << 30));
        terms.set_context_costs(&[1]);
        assert_eq!(view.limit(), Some(1 << 30));
        assert_eq!((view.context_cost(0), view.context_cost(1)), (GRANULE, 0));
        // By the descriptor that it has, or by another one of the same memory.
        let path = format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&**terms.file())
        );
        let again = File::options().read(true).write(true).open(path).unwrap();
        for file in [Arc::clone(terms.file()), Arc::new(again)] {
            assert!(file.write_all_at(&[1; 8], 0).is_err());
            assert!(file.set_len(0).is_err());
            assert!(Shared::<Raw>::map(file).is_err());
        }
        assert_eq!(view.limit(), Some(1 << 30));
    }
}
