// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The start of a worker: the driver, the description of the host, and the wait for a client.
//!
//! A worker that was started in advance has done the first two, and has no data of any guest, when its client comes.
//! For a worker that was started for a client, the client is already waiting.

use std::{
    fs::File,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use gpgpu_protocol::{
    api::{Context, Object},
    cuda::*,
    layout::status,
};
use nix::poll::PollTimeout;

use super::{
    Error, Options, crowds, kernel_output::Pipes, ops, session::Session, shared_memory::Shares,
};
use crate::cuda::{
    cupti, driver,
    library::{self, Library},
};
use crate::{
    ipc::{self, ToWorker, WorkerEnd},
    sandbox::{self, Role},
};

/// The descriptor whose `/proc` entry is the driver's directory of compiled code: the driver opens that path whenever
/// it compiles, so the directory can be chosen when the client is known. See [`cache_variables`].
const CACHE: RawFd = 100;

/// The maximum size of compiled code that is kept for one VM, in bytes.
const CACHE_BYTES: u64 = 256 << 20;

/// The variables that make a worker's driver store compiled code in the directory of [`ToWorker::Serve`], or nowhere. A
/// size that the operator has set is kept.
pub fn cache_variables(keep: bool) -> Vec<(&'static str, String)> {
    if !keep {
        return vec![("CUDA_CACHE_DISABLE", "1".to_owned())];
    }
    let mut variables = vec![("CUDA_CACHE_PATH", format!("/proc/self/fd/{CACHE}"))];
    if std::env::var_os("CUDA_CACHE_MAXSIZE").is_none() {
        variables.push(("CUDA_CACHE_MAXSIZE", CACHE_BYTES.to_string()));
    }
    variables
}

/// The reason why a worker does not serve.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// There is no driver.
    #[error("Cannot load libcuda.so.1")]
    NoLibrary,
    /// The driver cannot be initialised.
    #[error("cuInit fails with {0} ({1})")]
    Init(CUresult, &'static str),
    /// The driver has no device.
    #[error("No GPU found")]
    NoDevice,
    /// See [`Options::allow_pageable_access`].
    #[error(
        "GPU {0} can reach pageable memory (HMM or ATS), so a guest's kernels could rewrite the worker. \
         Switch HMM off with the option uvm_disable_hmm=1 of the module nvidia-uvm, or accept the risk with --allow-pageable-access"
    )]
    PageableAccess(CUdevice),
}

/// Loads the driver, waits for a client, and reports that the worker is ready; `false` means that no client will come.
///
/// # Errors
/// The channel fails; [`Error::Refused`] if there is no client yet to which the reason could be reported.
pub fn start(end: &WorkerEnd, options: &Options, session: &'static Session) -> Result<bool, Error> {
    let began = Instant::now();
    hold_place()?;
    library::configure(options.libraries.directories.clone());
    if options.libraries.traces {
        cupti::permit();
    }
    if !options.crowds {
        crowds::switch_off();
    }
    let waiting = end.wait(PollTimeout::ZERO)?;
    let refusal = load(options, session).err();
    // If a client is waiting, its first device is known soon.
    if refusal.is_none() && !waiting && options.warm_contexts {
        session.prewarm.make();
    }
    tracing::debug!("Start: driver ready after {:?}", began.elapsed());
    if !waiting {
        if let Some(refusal) = &refusal
            && !end.wait(PollTimeout::ZERO)?
            && !end.turn_away()?
        {
            // The supervisor starts another worker in its place later.
            return Err(Error::Refused(refusal.clone()));
        }
        if refusal.is_none() {
            open_ahead(end, &options.libraries.ahead)?;
        }
        end.wait(PollTimeout::NONE)?;
        if let Err(code) = check(session) {
            // The GPU has failed in the meantime. A new process may work, or reports the error.
            tracing::warn!("The early context has failed with {code}: restarting");
            return Err(again(end));
        }
    }
    let pipes = Pipes::new().map_err(Error::Printed)?;
    let taken = Instant::now();
    // From here on, messages may depend on a guest.
    sandbox::tighten(Role::Worker, options.sandbox)?;
    match end.recv()? {
        None => return Ok(false),
        Some(ToWorker::Serve(mut serving)) => {
            if let Some(cache) = serving.cache.take() {
                place(cache)?;
            }
            if let Some(hold) = serving.hold.take() {
                // Linux closes a process's files from the last number to the first, so it closes the GPU's before this
                // one.
                nix::unistd::dup2_stdin(hold).map_err(|error| Error::Hold(error.into()))?;
            }
            session.printed.capture(pipes).map_err(Error::Printed)?;
            let shares = Shares::new(serving).map_err(Error::Shares)?;
            session.device_memory.limit_by(shares.quota.clone());
            session.prewarm.choose(shares.first_gpu());
            let _ = session.shares.set(shares);
        }
        Some(_) => return Err(ipc::Error::Malformed("the first message is not Serve").into()),
    }
    match refusal {
        None => {
            charge_ahead(session);
            session.prewarm.make();
            session.prewarm.serve();
            end.ready(status::OK)?;
        }
        Some(refusal) => {
            tracing::error!("{refusal}");
            end.ready(status::NO_GPU)?;
        }
    }
    tracing::debug!(
        "Start: ready {:?} after the client came, {:?} in all",
        taken.elapsed(),
        began.elapsed()
    );
    Ok(true)
}

/// Opens libraries until a client comes, because the client may need none of them.
fn open_ahead(end: &WorkerEnd, libraries: &[Library]) -> Result<(), Error> {
    let began = Instant::now();
    let mut open = 0;
    for library in libraries {
        if end.wait(PollTimeout::ZERO)? {
            break;
        }
        // The log has the reason if one cannot be opened.
        open += usize::from(library.open().is_ok());
    }
    if !libraries.is_empty() {
        tracing::debug!(
            "Start: {open} of {} libraries opened ahead in {:?}",
            libraries.len(),
            began.elapsed()
        );
    }
    Ok(())
}

/// Charges the client for the context that was made in advance. If its limit does not allow it, the context is
/// released.
fn charge_ahead(session: &Session) {
    match session
        .device_memory
        .reserve_context(session.prewarm.device())
    {
        Ok(charge) => session.prewarm.set_charge(charge),
        Err(_) => session.prewarm.give_up(),
    }
}

fn load(options: &Options, session: &Session) -> Result<(), Refusal> {
    let began = Instant::now();
    if !driver::is_present() {
        return Err(Refusal::NoLibrary);
    }
    let loaded = began.elapsed();
    driver::note_version();
    let mut count = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let started = unsafe { driver::cuInit(0).and_then(|()| driver::cuDeviceGetCount(&mut count)) };
    started.map_err(|code| Refusal::Init(code, result_name(code).unwrap_or("unknown")))?;
    let initialised = began.elapsed();
    if count == 0 {
        return Err(Refusal::NoDevice);
    }
    let reaches = |dev| {
        let mut value = 0;
        let attribute = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
        // SAFETY: as above. A driver that cannot say is one that might.
        unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, dev) }.is_err() || value != 0
    };
    check_reach(count, reaches, options)?;
    // Before a context is made on another thread, which would delay this. If it fails, the client's own request reports
    // the error.
    if let Ok(hello) = ops::hello() {
        let _ = session.hello.set(hello);
    }
    tracing::debug!(
        "Start: libcuda loaded in {loaded:?}, cuInit in {:?}, {count} devices described in {:?}",
        initialised - loaded,
        began.elapsed() - initialised
    );
    Ok(())
}

fn check_reach(
    count: i32,
    reaches: impl Fn(CUdevice) -> bool,
    options: &Options,
) -> Result<(), Refusal> {
    match (0..count).find(|dev| reaches(*dev)) {
        Some(dev) if !options.allow_pageable_access => Err(Refusal::PageableAccess(dev)),
        _ => Ok(()),
    }
}

/// Checks that the context that was made in advance, if any, still works.
fn check(session: &Session) -> Result<(), CUresult> {
    let Some(context) = session.prewarm.peek() else {
        return Ok(());
    };
    // SAFETY: the handle is the driver's, and no other code has it yet.
    unsafe {
        driver::cuCtxSetCurrent(Context::handle(context))?;
        driver::cuCtxSynchronize()?;
        driver::cuCtxSetCurrent(Context::handle(0))
    }
}

/// Replaces this process by a new one with the same channel, on which the client waits.
fn again(end: &WorkerEnd) -> Error {
    let failed = |error: std::io::Error| Error::Again(error);
    let prepare = || {
        nix::unistd::dup2_stdin(end.as_fd())?;
        // Started in the same way: by its own file, even if another one is at its path, or by a loader.
        let arguments = std::fs::read("/proc/self/cmdline")?;
        Ok::<_, std::io::Error>(arguments)
    };
    let arguments = match prepare() {
        Ok(arguments) => arguments,
        Err(error) => return failed(error),
    };
    let mut arguments = arguments
        .strip_suffix(&[0])
        .unwrap_or(&arguments)
        .split(|byte| *byte == 0)
        .map(std::os::unix::ffi::OsStrExt::from_bytes);
    let name: &std::ffi::OsStr = arguments.next().unwrap_or_default();
    failed(
        Command::new("/proc/self/exe")
            .arg0(name)
            .args(arguments)
            .exec(),
    )
}

/// Reserves the number of the cache's descriptor, so that no other file gets it.
fn hold_place() -> Result<(), Error> {
    let file = File::open("/proc/self").map_err(Error::Cache)?;
    place(file.into())
}

/// The path of a file beside the VM's compiled code, which all workers of the VM share. Without a cache there is no
/// such directory.
pub fn beside_cache(name: &str) -> PathBuf {
    Path::new("/proc/self/fd")
        .join(CACHE.to_string())
        .join(name)
}

fn place(directory: OwnedFd) -> Result<(), Error> {
    // SAFETY: takes numbers alone. The number is this module's own from the worker's first moments on, so no other file
    // is closed.
    let placed = unsafe { libc::dup3(directory.as_raw_fd(), CACHE, libc::O_CLOEXEC) };
    if placed < 0 {
        return Err(Error::Cache(std::io::Error::last_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_reaches_pageable_memory_is_refused_unless_the_operator_accepts_it() {
        let reaching = |dev| dev == 1;
        assert_eq!(check_reach(1, reaching, &Options::default()), Ok(()));
        assert_eq!(
            check_reach(2, reaching, &Options::default()),
            Err(Refusal::PageableAccess(1))
        );
        let accepted = Options {
            allow_pageable_access: true,
            ..Options::default()
        };
        assert_eq!(check_reach(2, reaching, &accepted), Ok(()));
        assert!(
            Refusal::PageableAccess(1)
                .to_string()
                .contains("uvm_disable_hmm=1")
        );
    }

    #[test]
    fn the_drivers_cache_is_where_the_client_is_or_nowhere() {
        let value = |keep: bool, name: &str| {
            let variables = cache_variables(keep);
            variables
                .into_iter()
                .find(|(variable, _)| *variable == name)
                .map(|(_, value)| value)
        };
        assert_eq!(
            value(true, "CUDA_CACHE_PATH").as_deref(),
            Some("/proc/self/fd/100")
        );
        assert_eq!(value(false, "CUDA_CACHE_DISABLE").as_deref(), Some("1"));
        assert_eq!(value(false, "CUDA_CACHE_PATH"), None);
    }
}
