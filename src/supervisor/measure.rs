// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a context costs: measured once, when the service starts, for a VM's limit counts its contexts too.
//!
//! Two processes that do nothing else make a context on each GPU. What the first finds free before the second has made its
//! own, and finds no more after, is what one costs. Other programs that use the GPU meanwhile make the figure wrong.

use std::{
    io::{BufRead, BufReader, Write},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, ExitCode, Stdio},
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api::{Context, Object},
    cuda::*,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::process::Program;
use crate::cuda::driver;

/// How long all of it may take: drivers take their time to come up.
const LIMIT: Duration = Duration::from_secs(60);

/// One of the two processes; it ends with this.
struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    deadline: Instant,
}

impl Holder {
    fn start(program: &Program, deadline: Instant) -> Result<Self, String> {
        let mut child = program
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.program.display()))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err("no pipes".to_owned());
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            deadline,
        })
    }

    /// Has it carry an order out, and tell what is free of each GPU then, in bytes.
    fn free(&mut self, order: Order) -> Result<Vec<u64>, String> {
        let written = self.input.write_all(&[order as u8]);
        written.map_err(|error| error.to_string())?;
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(
            self.output.get_ref().as_fd(),
            PollFlags::POLLIN,
        )];
        if poll(&mut fds, timeout) == Ok(0) {
            return Err("the driver does not answer".to_owned());
        }
        let mut line = String::new();
        // It writes a line at once.
        let read = self.output.read_line(&mut line);
        read.map_err(|error| error.to_string())?;
        let free: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        free.map_err(|_| line.trim().to_owned())
            .and_then(|free| match free.is_empty() {
                true => Err("the driver failed".to_owned()),
                false => Ok(free),
            })
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What one of the processes is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Tell = b't' as isize,
    /// To make one more context on each GPU, and tell.
    MakeAnother = b'm' as isize,
}

/// What a context costs on each GPU, in bytes. `program` is this program in the role that [`hold`] is.
///
/// # Errors
/// Why that is not known.
pub fn context_costs(program: &Program) -> Result<Vec<u64>, String> {
    let deadline = Instant::now() + LIMIT;
    let mut first = Holder::start(program, deadline)?;
    let alone = first.free(Order::Tell)?;
    let mut second = Holder::start(program, deadline)?;
    second.free(Order::Tell)?;
    let beside = first.free(Order::Tell)?;
    drop(second);
    let costs = |after: &[u64]| -> Vec<u64> {
        let pairs = alone.iter().zip(after);
        pairs
            .map(|(before, after)| before.saturating_sub(*after))
            .collect()
    };
    let found = costs(&beside);
    if found.iter().any(|cost| *cost > 0) {
        return Ok(found);
    }
    // The software GPU's memory is each process's own.
    Ok(costs(&first.free(Order::MakeAnother)?))
}

/// One of the processes: holds contexts until its standard input ends.
pub fn hold() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => {
            println!("{}", result_name(code).unwrap_or("no driver"));
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), CUresult> {
    if !driver::is_present() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    let mut count = 0;
    // SAFETY: the pointers are to values that live across the calls, here and below.
    unsafe {
        driver::cuInit(0)?;
        driver::cuDeviceGetCount(&mut count)?;
    }
    let mut contexts = Vec::new();
    for device in 0..count {
        let mut context = Context::handle(0);
        // SAFETY: as above.
        unsafe { driver::cuDevicePrimaryCtxRetain(&mut context, device)? };
        contexts.push(context);
    }
    let mut orders = std::io::stdin().lock();
    loop {
        let order = match orders.fill_buf() {
            Ok([order, ..]) => *order,
            _ => return Ok(()),
        };
        orders.consume(1);
        if order == Order::MakeAnother as u8 {
            for device in 0..count {
                let mut context = Context::handle(0);
                // SAFETY: as above. It ends with the process.
                unsafe { driver::cuCtxCreate_v2(&mut context, 0, device)? };
            }
        }
        let mut line = String::new();
        for context in &contexts {
            let (mut free, mut total) = (0, 0);
            // SAFETY: as above; the context is the driver's and lives.
            unsafe {
                driver::cuCtxSetCurrent(*context)?;
                driver::cuMemGetInfo_v2(&mut free, &mut total)?;
            }
            line += &format!("{free} ");
        }
        println!("{line}");
    }
}
