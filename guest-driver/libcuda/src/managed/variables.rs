// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Variables of modules and libraries that are in managed memory (`__managed__`).
//!
//! The host's driver has them in memory of its own, at an address that it chose. This process maps pages at the same address, and
//! blocks move as those of an allocation do.

use std::sync::{Mutex, PoisonError, atomic::Ordering};

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::cuda::CUDA_ERROR_NOT_SUPPORTED;

use super::{
    ANY, PAGE, managed, place, service,
    store::{Allocation, Attach},
    take_away_all, tell,
};
use crate::{border::Result, client::Client, thread};

/// One variable is placed at a time: two threads may look up the same one.
static PLACING: Mutex<()> = Mutex::new(());

/// Lets the program reach a variable of the image `owner` at its address on the device.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if pages of this process cannot be watched, or if it has something at the address.
pub fn variable(client: &'static Client, owner: u64, start: u64, bytes: u64) -> Result {
    let _one = PLACING.lock().unwrap_or_else(PoisonError::into_inner);
    if managed().store.get(start).is_some() {
        return Ok(());
    }
    let cannot = |why: &str| {
        log::say(Level::Error, || {
            format!("The program cannot use a __managed__ variable of {bytes} bytes: {why}")
        });
        CUDA_ERROR_NOT_SUPPORTED
    };
    let service =
        service::get(client).ok_or_else(|| cannot("the process may not use userfaultfd"))?;
    let span = bytes.next_multiple_of(PAGE as u64) as usize;
    if !start.is_multiple_of(PAGE as u64) || !place(service, start, span) {
        return Err(cannot("the process uses the variable's address"));
    }
    let of = Allocation::new(start, bytes, start, thread::home(client), Attach::Global);
    let mut managed = managed();
    managed.store.insert(of.of_image(owner));
    ANY.store(true, Ordering::Relaxed);
    tell(&managed);
    Ok(())
}

/// A module or a library is about to be unloaded: the program can no longer use its variables.
pub fn forget_image(owner: u64) {
    if super::any() {
        take_away_all(managed(), |of| of.image == owner);
    }
}
