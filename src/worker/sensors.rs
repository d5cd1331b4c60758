// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The GPUs' sensors, as the supervisor provides them to the client's VM.
//!
//! This process does not call NVML: it reads the supervisor's values in the VM's terms, and requests a sample from the
//! supervisor if those are too old.

use std::{
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Sensor, SensorValue},
    cuda::*,
};

use crate::{
    account::{GPUS, SAMPLE_AGE, Sample, TermsView, monotonic},
    pace::Pace,
};

/// The maximum time for which a guest waits for a sample. After that the values are unknown.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of samples that are requested at once, and the interval for one more: a quarter of the messages that the
/// supervisor accepts.
const BURST: u32 = 16;
/// See [`BURST`].
const PERIOD: Duration = Duration::from_millis(20);

/// The rate limit of the client's requests.
#[derive(Debug)]
pub struct Sensors(Mutex<Pace>);

impl Default for Sensors {
    fn default() -> Self {
        Self(Mutex::new(Pace::new(BURST, PERIOD)))
    }
}

impl Sensors {
    /// The known values of a GPU's sensors, by the host's number of the GPU. `ask` requests a sample from the
    /// supervisor.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if the VM may not read sensors, `CUDA_ERROR_INVALID_DEVICE` for an invalid number of
    /// a GPU.
    pub fn read(
        &self,
        terms: &TermsView,
        gpu: CUdevice,
        ask: impl Fn(usize),
    ) -> Result<Vec<SensorValue>, CUresult> {
        let gpu = usize::try_from(gpu).ok().filter(|gpu| *gpu < GPUS);
        let gpu = gpu.ok_or(CUDA_ERROR_INVALID_DEVICE)?;
        let age = u64::try_from(SAMPLE_AGE.as_nanos()).unwrap_or(u64::MAX);
        let oldest = monotonic().saturating_sub(age);
        let is_new = |sample: &Sample| sample.at >= oldest;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (seen, sample) = terms.sample(gpu);
            // Checked last: values that were read while the permission ended are not returned.
            if !terms.may_sense() {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            if let Some(sample) = sample.filter(is_new) {
                return Ok(known(&sample));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            if self.may_ask() {
                ask(gpu);
                terms.wait_for_sample(gpu, seen, left);
            } else {
                thread::sleep(PERIOD.min(left));
            }
        }
    }

    fn may_ask(&self) -> bool {
        let mut pace = self.0.lock();
        pace.take(Instant::now())
    }
}

fn known(sample: &Sample) -> Vec<SensorValue> {
    let all = Sensor::ALL.iter().zip(sample.values);
    let known = all.filter_map(|(sensor, value)| {
        Some(SensorValue {
            sensor: sensor.number(),
            value: value?,
        })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, sync::Arc};

    use super::*;
    use crate::account::Terms;

    fn terms() -> (Terms, TermsView) {
        let terms = Terms::new().unwrap();
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        (terms, view)
    }

    fn sample(at: u64, power: u64) -> Sample {
        let mut sample = Sample::unknown(at);
        sample.values[Sensor::Power.number() as usize] = Some(power);
        sample
    }

    fn power(value: u64) -> Vec<SensorValue> {
        let sensor = Sensor::Power.number();
        vec![SensorValue { sensor, value }]
    }

    #[test]
    fn without_permission_the_supervisor_is_not_asked() {
        let (terms, view) = terms();
        let ask = |_| panic!("unexpected query");
        let read = || Sensors::default().read(&view, 0, ask);
        assert_eq!(read(), Err(CUDA_ERROR_NOT_SUPPORTED));
        terms.allow_sensors(true);
        terms.show(0, &sample(monotonic(), 5));
        assert_eq!(read(), Ok(power(5)));
        terms.allow_sensors(false);
        assert_eq!(read(), Err(CUDA_ERROR_NOT_SUPPORTED));
    }

    #[test]
    fn a_permission_that_ends_during_the_question_gives_nothing() {
        let (terms, view) = terms();
        terms.allow_sensors(true);
        let ask = |_| {
            terms.show(0, &sample(monotonic(), 5));
            terms.allow_sensors(false);
        };
        let read = Sensors::default().read(&view, 0, ask);
        assert_eq!(read, Err(CUDA_ERROR_NOT_SUPPORTED));
    }

    #[test]
    fn a_sample_that_is_too_old_is_replaced_and_a_new_one_serves_again() {
        let (terms, view) = terms();
        terms.allow_sensors(true);
        let age = SAMPLE_AGE.as_nanos() as u64;
        terms.show(3, &sample(monotonic() - 2 * age, 5));
        let asked = Cell::new(0);
        let ask = |gpu| {
            assert_eq!(gpu, 3);
            asked.set(asked.get() + 1);
            terms.show(gpu, &sample(monotonic(), 6));
        };
        let sensors = Sensors::default();
        assert_eq!(sensors.read(&view, 3, ask), Ok(power(6)));
        assert_eq!(asked.get(), 1);
        let sample = sample(u64::MAX, 7);
        terms.show(3, &sample);
        assert_eq!(sensors.read(&view, 3, ask), Ok(power(7)));
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_silent_supervisor_delays_a_query_only_briefly() {
        let (terms, view) = terms();
        terms.allow_sensors(true);
        let begin = Instant::now();
        let sensors = Sensors::default();
        assert_eq!(sensors.read(&view, 0, |_| {}), Ok(Vec::new()));
        assert!(begin.elapsed() >= PATIENCE);
        for wrong in [-1, GPUS as CUdevice, CUdevice::MAX] {
            let read = sensors.read(&view, wrong, |_| {});
            assert_eq!(read, Err(CUDA_ERROR_INVALID_DEVICE), "{wrong}");
        }
    }

    #[test]
    fn no_more_samples_are_asked_for_than_the_supervisor_bears() {
        let (terms, view) = terms();
        terms.allow_sensors(true);
        let asked = Cell::new(0);
        // Each sample is too old already, so the next check requests another.
        let ask = |gpu| {
            asked.set(asked.get() + 1);
            terms.show(gpu, &sample(1, 5));
        };
        assert_eq!(Sensors::default().read(&view, 0, ask), Ok(Vec::new()));
        let most = BURST + (PATIENCE.as_nanos() / PERIOD.as_nanos()) as u32 + 1;
        assert!(asked.get() <= most, "{} of {most}", asked.get());
    }
}
