// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The GPUs' sensors, for VMs that may read them.
//!
//! When a guest reads a sensor, its worker asks the supervisor for a sample. A thread gets it from a process that has
//! NVML open ([`nvml`]), and writes it to the memory of that worker's VM ([`Terms`]). NVML is called only when guests
//! ask, and at most once in [`SAMPLE_AGE`] for each GPU. So an idle host does nothing here.

pub mod nvml;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::api::Sensor;

use super::{Supervisor, helper::Helper, process::Program};
use crate::{
    account::{GPUS, SAMPLE_AGE, Sample, Terms, monotonic},
    policy::VmPolicy,
};

/// The time limit for the process's first answer. The driver starts slowly.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time limit for any other answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The pause after a failure. The log has a line for each failure.
const PAUSE: Duration = Duration::from_secs(30);
/// The time for which the process is kept while no guest asks. It prevents the driver from powering down idle GPUs.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

type Values = [Option<u64>; Sensor::COUNT];

/// The samples that the thread has to take.
#[derive(Debug)]
struct Orders {
    /// The GPUs of each VM, a bit for each. So orders need a fixed amount of memory, however often workers ask.
    gpus: Vec<u64>,
    /// Whether the thread has to end.
    end: bool,
}

/// The orders for the thread.
#[derive(Debug)]
struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock()
    }
}

/// The supervisor's handle of the thread. Dropping it ends the thread.
#[derive(Debug)]
pub struct Sensors(Option<Arc<Desk>>);

impl Sensors {
    /// Starts the thread for VMs with these terms. Without a program no GPU has sensors.
    ///
    /// # Errors
    /// The host is out of threads.
    pub fn start(program: Option<Program>, vms: Vec<Arc<Terms>>) -> io::Result<Self> {
        match program {
            Some(program) => Self::start_for(program, vms, IDLE_LIMIT),
            None => Ok(Self(None)),
        }
    }

    fn start_for(program: Program, vms: Vec<Arc<Terms>>, idle: Duration) -> io::Result<Self> {
        let orders = Orders {
            gpus: vec![0; vms.len()],
            end: false,
        };
        let desk = Arc::new(Desk {
            orders: Mutex::new(orders),
            changed: Condvar::new(),
        });
        let mut sampler = Sampler {
            desk: Arc::clone(&desk),
            vms,
            idle,
            latest: [None; GPUS],
            source: Source {
                program,
                helper: None,
                not_before: None,
            },
        };
        let thread = std::thread::Builder::new().name("sensors".into());
        thread.spawn(move || sampler.run())?;
        Ok(Self(Some(desk)))
    }

    /// Orders a sample of a GPU, below [`GPUS`], for a VM.
    fn sample(&self, vm: usize, gpu: u32) {
        let Some(desk) = &self.0 else {
            return;
        };
        if let Some(gpus) = desk.lock().gpus.get_mut(vm) {
            *gpus |= 1 << gpu;
        }
        desk.changed.notify_one();
    }
}

impl Drop for Sensors {
    fn drop(&mut self) {
        // Do not wait for the thread: it may be in a driver that does not answer. Its process ends with the supervisor.
        if let Some(desk) = &self.0 {
            desk.lock().end = true;
            desk.changed.notify_one();
        }
    }
}

impl Supervisor {
    /// Handles a worker's request for a sample of a GPU. A compromised worker may request any GPU.
    pub(super) fn sense(&mut self, vm: usize, gpu: u64) {
        let gpu = permitted(&self.vms[vm].policy, self.config.gpus, gpu);
        if let Some(gpu) = gpu {
            self.sensors.sample(vm, gpu);
        }
    }
}

/// The GPU with this number, if the host has it and the VM may read its sensors. A host whose GPUs are unknown counts
/// as one without GPUs.
fn permitted(policy: &VmPolicy, host: u32, gpu: u64) -> Option<u32> {
    let gpu = u32::try_from(gpu).ok()?;
    let is_there = (gpu as usize) < GPUS && (host == 0 || gpu < host);
    (policy.sensors && is_there && policy.may_use(gpu)).then_some(gpu)
}

/// The thread.
struct Sampler {
    desk: Arc<Desk>,
    vms: Vec<Arc<Terms>>,
    /// The time for which the process is kept while no guest asks.
    idle: Duration,
    /// The last sample of each GPU, which several VMs may share.
    latest: [Option<Sample>; GPUS],
    source: Source,
}

impl Sampler {
    fn run(&mut self) {
        while let Some(orders) = self.next() {
            for (vm, gpus) in orders.into_iter().enumerate() {
                for gpu in (0..GPUS).filter(|gpu| gpus >> gpu & 1 != 0) {
                    let sample = self.sample(gpu);
                    self.vms[vm].show(gpu, &sample);
                }
            }
        }
    }

    /// Waits for orders: the GPUs to sample for each VM; `None` at the end.
    fn next(&mut self) -> Option<Vec<u64>> {
        let mut orders = self.desk.lock();
        loop {
            if orders.end {
                return None;
            }
            if orders.gpus.iter().any(|gpus| *gpus > 0) {
                let none = vec![0; orders.gpus.len()];
                return Some(std::mem::replace(&mut orders.gpus, none));
            }
            let changed = &self.desk.changed;
            if self.source.helper.is_none() {
                orders = changed.wait(orders);
                continue;
            }
            let waited;
            (orders, waited) = changed.wait_timeout(orders, self.idle);
            if waited.timed_out() {
                self.source.helper = None;
            }
        }
    }

    /// A sample of a GPU that is recent enough.
    fn sample(&mut self, gpu: usize) -> Sample {
        let newest = u64::try_from(SAMPLE_AGE.as_nanos()).unwrap_or(u64::MAX);
        if let Some(sample) = self.latest[gpu]
            && monotonic().saturating_sub(sample.at) < newest
        {
            return sample;
        }
        let values = self.source.read(gpu);
        let mut sample = Sample::unknown(monotonic());
        sample.values = values.unwrap_or(sample.values);
        self.latest[gpu] = Some(sample);
        sample
    }
}

/// The source of samples.
struct Source {
    program: Program,
    /// The process, if it has been started.
    helper: Option<Helper>,
    /// The time from which it may be started again after a failure.
    not_before: Option<Instant>,
}

impl Source {
    /// The values of a GPU's sensors; `None` if they cannot be read at present.
    fn read(&mut self, gpu: usize) -> Option<Values> {
        let now = Instant::now();
        if self.not_before.is_some_and(|then| now < then) {
            return None;
        }
        // A process that has failed is killed: a late answer would be taken for the answer to another question.
        let (helper, limit) = match self.helper.take() {
            Some(helper) => (Ok(helper), ANSWER_LIMIT),
            None => (Helper::start(&self.program), START_LIMIT),
        };
        let read = helper.and_then(|mut helper| {
            let line = helper.ask(format!("{gpu}\n").as_bytes(), now + limit)?;
            Ok((parse(&line)?, helper))
        });
        match read {
            Ok((values, helper)) => {
                self.helper = Some(helper);
                Some(values)
            }
            Err(error) => {
                tracing::warn!(
                    "GPU {gpu}: VMs cannot read its sensors: {error}; retrying in {PAUSE:?}"
                );
                self.not_before = Some(Instant::now() + PAUSE);
                None
            }
        }
    }
}

/// Parses an answer of the process: a number for each sensor, or `-` for an unknown value.
///
/// # Errors
/// The line, if it has another form. It then describes an error.
fn parse(line: &str) -> Result<Values, String> {
    let mut values = [None; Sensor::COUNT];
    let mut words = line.split(' ');
    for value in &mut values {
        *value = match words.next() {
            Some("-") => None,
            Some(word) => Some(word.parse().map_err(|_| line.to_owned())?),
            None => return Err(line.to_owned()),
        };
    }
    words.next().map_or(Ok(values), |_| Err(line.to_owned()))
}

/// Formats values for [`parse`].
fn print(values: &Values) -> String {
    let words = values.map(|value| value.map_or("-".to_owned(), |value| value.to_string()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::TermsView;

    /// A process that records each question in a file and answers it with the same line.
    fn program(directory: &std::path::Path, line: &str) -> Program {
        let asked = directory.join("asked");
        let script = format!(
            "while read gpu; do echo $gpu >> {}; echo '{line}'; done",
            asked.display()
        );
        Program {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
        }
    }

    fn values() -> Values {
        let mut values = [Some(7); Sensor::COUNT];
        values[1] = None;
        values
    }

    fn wait_for(view: &TermsView, gpu: usize) -> Sample {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let (_, Some(sample)) = view.sample(gpu) {
                return sample;
            }
            assert!(Instant::now() < deadline, "no sample comes");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_answer_is_exactly_one_word_for_each_sensor() {
        let line = print(&values());
        assert_eq!(parse(&line), Ok(values()));
        let short = line.rsplit_once(' ').map_or("", |(short, _)| short);
        for wrong in [short, &format!("{line} 1"), &line.replace('-', "x"), ""] {
            assert_eq!(parse(wrong), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn a_vm_senses_its_own_gpus_alone_and_only_if_it_may() {
        let mut policy = VmPolicy {
            gpus: Some(vec![1, 63]),
            ..VmPolicy::new("/tmp/a".into())
        };
        assert_eq!(permitted(&policy, 64, 1), None, "off by default");
        policy.sensors = true;
        assert_eq!(permitted(&policy, 64, 1), Some(1));
        for foreign in [0, 2, 64, 1 << 32 | 1, u64::MAX] {
            assert_eq!(permitted(&policy, 64, foreign), None, "{foreign}");
        }
        assert_eq!(permitted(&policy, 2, 63), None, "not on this host");
        policy.gpus = None;
        assert_eq!(permitted(&policy, 0, 63), Some(63));
        assert_eq!(permitted(&policy, 0, 64), None);
    }

    #[test]
    fn only_a_permitted_vm_that_asks_gets_the_sample() {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), &print(&values()));
        let vms: Vec<_> = (0..3).map(|_| Arc::new(Terms::new().unwrap())).collect();
        let views: Vec<_> = (vms.iter())
            .map(|vm| TermsView::map(Arc::clone(vm.file())).unwrap())
            .collect();
        vms[0].allow_sensors(true);
        vms[1].allow_sensors(true);
        let sensors = Sensors::start(Some(program), vms.clone()).unwrap();
        // The policy of the last VM has changed since it was checked.
        sensors.sample(2, 5);
        sensors.sample(0, 5);
        assert_eq!(wait_for(&views[0], 5).values, values());
        assert_eq!(views[0].sample(4).1, None, "another GPU");
        assert_eq!(views[1].sample(5).1, None, "it has not asked");
        assert_eq!(views[2].sample(5).1, None, "it may not know");
    }

    #[test]
    fn a_gpu_is_asked_no_more_often_than_samples_get_old() {
        let directory = tempfile::tempdir().unwrap();
        let program = program(directory.path(), &print(&values()));
        let terms = Arc::new(Terms::new().unwrap());
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        terms.allow_sensors(true);
        let sensors = Sensors::start(Some(program), vec![terms]).unwrap();
        let begin = Instant::now();
        for _ in 0..100 {
            let (seen, _) = view.sample(0);
            sensors.sample(0, 0);
            view.wait_for_sample(0, seen, Duration::from_secs(60));
        }
        let most = begin.elapsed().as_nanos() / SAMPLE_AGE.as_nanos() + 1;
        let asked = std::fs::read_to_string(directory.path().join("asked")).unwrap();
        let count = asked.lines().count();
        assert!(count > 0 && count as u128 <= most, "{count} of {most}");
    }

    #[test]
    fn the_process_ends_without_requests_and_starts_again() {
        let directory = tempfile::tempdir().unwrap();
        let pid = directory.path().join("pid");
        let mut program = program(directory.path(), &print(&values()));
        let script = program.arguments[1].to_string_lossy();
        program.arguments[1] = format!("echo $$ > {}; {script}", pid.display()).into();
        let terms = Arc::new(Terms::new().unwrap());
        let view = TermsView::map(Arc::clone(terms.file())).unwrap();
        terms.allow_sensors(true);
        let idle = Duration::from_millis(300);
        let sensors = Sensors::start_for(program, vec![terms], idle).unwrap();
        assert!(!pid.exists(), "no query yet");
        let mut last = String::new();
        for gpu in [0, 1] {
            sensors.sample(0, gpu);
            wait_for(&view, gpu as usize);
            let this = std::fs::read_to_string(&pid).unwrap().trim().to_owned();
            assert_ne!(this, last);
            let process = std::path::PathBuf::from(format!("/proc/{this}"));
            let deadline = Instant::now() + Duration::from_secs(60);
            while process.exists() {
                assert!(Instant::now() < deadline, "it never ends");
                std::thread::sleep(Duration::from_millis(1));
            }
            last = this;
        }
    }

    #[test]
    fn a_process_that_fails_leaves_the_values_unknown_and_is_not_asked_again_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let mut source = Source {
            program: program(directory.path(), "no driver"),
            helper: None,
            not_before: None,
        };
        assert_eq!(source.read(0), None);
        assert!(source.helper.is_none(), "it has to end");
        assert_eq!(source.read(0), None);
        let asked = std::fs::read_to_string(directory.path().join("asked")).unwrap();
        assert_eq!(asked, "0\n");
        source.not_before = None;
        source.program.program = "/nowhere".into();
        assert_eq!(source.read(0), None);
        assert!(source.not_before.is_some());
    }
}
