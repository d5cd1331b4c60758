// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest's reports on its serial console.

/// A guest's report on one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobReport {
    /// The job's name.
    pub id: String,
    /// Its exit status as a shell reports it; `None` if the guest ended before the job did.
    pub rc: Option<i32>,
    /// Its duration in the guest, in milliseconds.
    pub ms: u64,
    /// Its whole output.
    pub output: String,
}

/// A guest's reports.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The release of its kernel.
    pub kernel: String,
    /// The number of times that its init has started.
    pub boots: u32,
    /// The status of loading the module; `None` if there was none.
    pub module_rc: Option<i32>,
    /// Its jobs, in order.
    pub jobs: Vec<JobReport>,
    /// Errors in the guest's kernel log.
    pub kernel_complaints: Vec<String>,
    /// Whether it is waiting for jobs on its console.
    pub takes_jobs: bool,
    /// Whether it ran all jobs and powered off.
    pub finished: bool,
    /// Everything on its console.
    pub console: String,
}

impl Report {
    /// Processes one line of the console.
    pub(super) fn line(&mut self, line: &str) {
        self.console.push_str(line);
        self.console.push('\n');
        let marker = line.find("==> ").map(|at| line.split_at(at));
        let Some((before, marker)) = marker else {
            self.output(line, true);
            return;
        };
        if !before.is_empty() {
            self.output(before, true);
        }
        let mut words = marker["==> ".len()..].split_whitespace();
        let field = |name: &str| {
            marker.split_whitespace().find_map(|word| {
                word.strip_prefix(name)
                    .and_then(|rest| rest.strip_prefix('='))
            })
        };
        match words.next() {
            Some("guest") => {
                self.kernel = field("kernel").unwrap_or("").to_owned();
                self.boots += 1;
                self.takes_jobs = false;
            }
            Some("module") => self.module_rc = field("rc").and_then(|rc| rc.parse().ok()),
            Some("begin") => self.jobs.push(JobReport {
                id: words.next().unwrap_or("").to_owned(),
                ..JobReport::default()
            }),
            Some("end") => {
                let id = words.next().unwrap_or("");
                if let Some(job) = self.jobs.iter_mut().rev().find(|job| job.id == id) {
                    job.rc = field("rc").and_then(|rc| rc.parse().ok());
                    job.ms = field("ms").and_then(|ms| ms.parse().ok()).unwrap_or(0);
                }
            }
            Some("kernel") => self
                .kernel_complaints
                .push(marker["==> kernel ".len()..].to_owned()),
            Some("console") => self.takes_jobs = true,
            Some("finished") => self.finished = true,
            _ => self.output(marker, true),
        }
    }

    fn output(&mut self, text: &str, newline: bool) {
        if let Some(job) = self.jobs.last_mut().filter(|job| job.rc.is_none()) {
            job.output.push_str(text);
            if newline {
                job.output.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_becomes_a_report() {
        let mut report = Report::default();
        for line in [
            "[    1.0] noise",
            "==> guest kernel=6.12.1 boot_ms=2500",
            "==> module rc=0",
            "==> begin a/shared",
            "RESULT name=a checksum=1",
            "no newline==> end a/shared rc=0 ms=120",
            "==> begin b/static",
            "wrong",
            "==> end b/static rc=1 ms=7",
            "==> kernel WARNING: at x",
            "==> begin c/static",
        ] {
            report.line(line);
        }
        assert_eq!(report.kernel, "6.12.1");
        assert_eq!(report.module_rc, Some(0));
        assert_eq!(report.jobs.len(), 3);
        assert_eq!(
            report.jobs[0].output,
            "RESULT name=a checksum=1\nno newline\n"
        );
        assert_eq!((report.jobs[0].rc, report.jobs[0].ms), (Some(0), 120));
        assert_eq!(report.jobs[1].rc, Some(1));
        assert_eq!(report.jobs[2].rc, None);
        assert_eq!(report.kernel_complaints, ["WARNING: at x"]);
        assert!(!report.finished);
    }
}
