// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The limits of a VM's processes, and the sensor values of its GPUs. The supervisor writes them.
//!
//! Workers can read this memory but not write it: a compromised worker must not raise the limit of the others. A seal
//! prevents all processes from mapping it for writing after the supervisor has. It holds sensor values only while the
//! VM may read them, because a compromised worker can read all of this memory.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use gpgpu_locks::Mutex;

use super::{GPUS, GRANULE, Sample, Shared, Words, readings::Readings};

#[derive(Debug)]
#[repr(C)]
struct Raw {
    /// The limit on each GPU, in bytes; 0 for no limit.
    limit: AtomicU64,
    /// The measured size of a context on each GPU, in bytes; 0 if unknown.
    context: [AtomicU64; GPUS],
    /// Whether the VM may read sensors: 1 or 0.
    sensors: AtomicU64,
    /// By GPU, the latest values of its sensors.
    readings: [Readings; GPUS],
}

// SAFETY: made of atomic integers alone.
unsafe impl Words for Raw {}

/// The supervisor's side.
#[derive(Debug)]
pub struct Terms {
    words: Shared<Raw>,
    /// Whether the VM may read sensors. A writer of readings holds the lock, so that no value remains when the
    /// permission ends.
    may_sense: Mutex<bool>,
}

impl Terms {
    /// Terms without a limit, a cost of contexts or sensors.
    ///
    /// # Errors
    /// The host is out of memory or file descriptors, or its kernel is older than Linux 5.1.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            words: Shared::new_for_readers(c"gpgpu-terms")?,
            may_sense: Mutex::new(false),
        })
    }

    /// The memfd, to be passed to workers.
    pub fn file(&self) -> &Arc<File> {
        self.words.file()
    }

    /// Sets the limit, in bytes.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.words
            .limit
            .store(limit.unwrap_or(0), Ordering::Relaxed);
    }

    /// The limit, in bytes, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.words.limit()
    }

    /// Sets the size of a context, in bytes by GPU. It is rounded up to whole granules, because contexts share none.
    pub fn set_context_costs(&self, costs: &[u64]) {
        for (word, cost) in self.words.context.iter().zip(costs) {
            let cost = cost.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX);
            word.store(cost, Ordering::Relaxed);
        }
    }

    /// The size of a context on a GPU, in bytes.
    pub fn context_cost(&self, gpu: usize) -> u64 {
        self.words.context_cost(gpu)
    }

    /// Sets whether the VM may read sensors. If not, no sensor value remains in the memory when this returns.
    pub fn allow_sensors(&self, are_allowed: bool) {
        let mut may_sense = self.may_sense.lock();
        *may_sense = are_allowed;
        let word = u64::from(are_allowed);
        if self.words.sensors.swap(word, Ordering::Relaxed) > word {
            for readings in &self.words.readings {
                readings.write(None);
            }
        }
    }

    /// Publishes a GPU's sensors to the VM, if it may read them.
    pub fn show(&self, gpu: usize, sample: &Sample) {
        let may_sense = self.may_sense.lock();
        if *may_sense && let Some(readings) = self.words.readings.get(gpu) {
            readings.write(Some(sample));
        }
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

/// A worker's side. It only reads, because the memory is mapped for reading.
#[derive(Debug)]
pub struct TermsView(Shared<Raw>);

impl TermsView {
    /// Maps terms that the supervisor has made.
    ///
    /// # Errors
    /// The memory is too short, or cannot be mapped.
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

    /// Whether the VM may read sensors.
    pub fn may_sense(&self) -> bool {
        self.0.sensors.load(Ordering::Relaxed) > 0
    }

    /// The latest values of a GPU's sensors, if known, and a number for [`Self::wait_for_sample`].
    pub fn sample(&self, gpu: usize) -> (u32, Option<Sample>) {
        let readings = self.0.readings.get(gpu);
        readings.map_or((0, None), Readings::read)
    }

    /// Sleeps until a GPU's sample differs from the one for which [`Self::sample`] returned this number, at most for
    /// `limit`.
    pub fn wait_for_sample(&self, gpu: usize, seen: u32, limit: Duration) {
        if let Some(readings) = self.0.readings.get(gpu) {
            readings.wait(seen, limit);
        }
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
        // By its own descriptor, or by another descriptor of the same memory.
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

    fn sample(at: u64) -> Sample {
        Sample::unknown(at)
    }

    #[test]
    fn a_vm_without_the_permission_is_shown_no_sensors() {
        let terms = Terms::new().unwrap();
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        terms.show(3, &sample(7));
        assert_eq!((view.may_sense(), view.sample(3).1), (false, None));
        terms.allow_sensors(true);
        terms.show(3, &sample(8));
        terms.show(GPUS, &sample(8));
        assert_eq!(
            (view.may_sense(), view.sample(3).1),
            (true, Some(sample(8)))
        );
        assert_eq!(view.sample(2).1, None);
        assert_eq!(view.sample(GPUS).1, None);
        // Repeating the permission changes nothing, and revoking it leaves no value.
        terms.allow_sensors(true);
        assert_eq!(view.sample(3).1, Some(sample(8)));
        terms.allow_sensors(false);
        terms.show(3, &sample(9));
        assert_eq!((view.may_sense(), view.sample(3).1), (false, None));
    }

    /// Waits until a thread of this process sleeps.
    fn wait_until_asleep(thread: nix::unistd::Pid) {
        let path = format!("/proc/self/task/{thread}/stat");
        // The state follows the name, which is in brackets.
        while !std::fs::read_to_string(&path).unwrap().contains(") S ") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_sample_wakes_a_worker_that_waits_for_it() {
        let terms = Terms::new().unwrap();
        terms.allow_sensors(true);
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        let (seen, nothing) = view.sample(1);
        assert_eq!(nothing, None);
        let long = Duration::from_secs(3600);
        let waiter = nix::unistd::gettid();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_until_asleep(waiter);
                terms.show(1, &sample(5));
            });
            // A wait may end without a new sample.
            while view.sample(1).1.is_none() {
                view.wait_for_sample(1, seen, long);
            }
        });
        assert_eq!(view.sample(1).1, Some(sample(5)));
    }
}
