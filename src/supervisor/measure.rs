// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Measures the size of a context once at the start of the service, because a VM's limit includes its contexts.
//!
//! Two processes that do nothing else make a context on each GPU. The size is the difference in free memory before and
//! after the second one's context. Other programs that use the GPU at that time falsify the result.

use std::{
    io::BufRead,
    process::ExitCode,
    time::{Duration, Instant},
};

use gpgpu_protocol::{
    api::{Context, Object},
    cuda::*,
};

use super::{helper::Helper, process::Program};
use crate::cuda::driver;

/// The time limit for the measurement. Drivers start slowly.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends one of the two processes a command, and returns the free bytes of each GPU afterwards.
fn free(process: &mut Helper, order: Order, deadline: Instant) -> Result<Vec<u64>, String> {
    let line = process.ask(&[order as u8], deadline)?;
    let free: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
    free.map_err(|_| line)
}

/// A command to one of the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Tell = b't' as isize,
    /// Makes one more context on each GPU, and prints the free memory.
    MakeAnother = b'm' as isize,
}

/// The size of a context on each GPU, in bytes. `program` is this program in the role of [`hold`].
///
/// # Errors
/// The reason why the size is unknown.
pub fn context_costs(program: &Program) -> Result<Vec<u64>, String> {
    let deadline = Instant::now() + LIMIT;
    let mut first = Helper::start(program)?;
    let alone = free(&mut first, Order::Tell, deadline)?;
    let mut second = Helper::start(program)?;
    free(&mut second, Order::Tell, deadline)?;
    let beside = free(&mut first, Order::Tell, deadline)?;
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
    // The software GPU's memory belongs to each process separately.
    Ok(costs(&free(&mut first, Order::MakeAnother, deadline)?))
}

/// The main function of these processes: holds contexts until its standard input ends.
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
