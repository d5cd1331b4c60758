// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Variables of modules and libraries that are in managed memory (`__managed__`).
//!
//! The host's driver has them in its own memory, at an address that it chooses. This process maps pages at the same
//! address, and blocks move like those of an allocation.

use gpgpu_client::log::{self, Level};
use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::CUDA_ERROR_NOT_SUPPORTED;

use super::{
    managed, place, send, service,
    service::Service,
    store::{Allocation, PAGE, Part},
    take_away_all, tell, wait,
};
use crate::{client::Client, ffi::Result, thread};

/// Held while a variable is placed, because two threads may look up the same one.
static PLACING: Mutex<()> = Mutex::new(());

/// Makes a variable of the image `owner` accessible to the program at its address on the device.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if page faults of this process cannot be handled, or if the address is not free in it.
pub fn variable(client: &'static Client, owner: u64, start: u64, bytes: u64) -> Result {
    let _one = PLACING.lock();
    let is_it = |part: &Part| part.start == start;
    let there = managed()
        .store
        .at(start)
        .map(|of| of.parts.iter().any(is_it));
    if there.unwrap_or(false) {
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
    let whole = Part {
        start,
        bytes,
        context: thread::home(client),
        image: owner,
    };
    let pieces = pieces(whole).ok_or_else(|| cannot("the host names no such addresses"))?;
    for (piece, is_shared) in pieces {
        if !is_shared && place(service, piece.start, piece.bytes as usize) {
            insert(Allocation::of_image(piece, false));
        } else if !(is_shared && share(client, service, piece)) {
            take_away_all(managed(), |part| {
                part.image == owner && part.within(start, bytes).is_some()
            });
            return Err(cannot("the process uses the variable's address"));
        }
    }
    Ok(())
}

/// The pieces of a variable, and whether each belongs to a page that other variables may share: NVIDIA's driver stores
/// small variables one after the other. `None` for addresses that do not exist.
fn pieces(of: Part) -> Option<Vec<(Part, bool)>> {
    let end = of.start.checked_add(of.bytes)?;
    let first = of.start.checked_next_multiple_of(PAGE)?.min(end);
    let last = (end & !(PAGE - 1)).max(first);
    let piece = |start: u64, end: u64| Part {
        start,
        bytes: end - start,
        ..of
    };
    let all = [
        (piece(of.start, first), true),
        (piece(first, last), false),
        (piece(last, end), true),
    ];
    Some(all.into_iter().filter(|(of, _)| of.bytes != 0).collect())
}

fn insert(of: Allocation) {
    let mut managed = managed();
    managed.store.insert(of);
    tell(&managed);
}

/// Adds a piece to its page, which is mapped for the first piece. Returns whether there is such a page.
fn share(client: &'static Client, service: &Service, piece: Part) -> bool {
    let page = piece.start & !(PAGE - 1);
    let mut all = managed();
    loop {
        while all.store.is_moving(page) {
            all = wait(all);
        }
        match all.store.get(page).map(|of| of.is_shared) {
            Some(true) if all.store.share(piece) => return true,
            Some(true) => {
                // The page is here, but the new variable's value is not.
                drop(all);
                send(client, true, |of| 0..usize::from(of.start == page));
                all = managed();
            }
            Some(false) => return false,
            None => break,
        }
    }
    drop(all);
    if !place(service, page, PAGE as usize) {
        return false;
    }
    insert(Allocation::of_image(piece, true));
    true
}

/// Handles the unload of a module or a library: the program can no longer use its variables.
pub fn forget_image(owner: u64) {
    if super::any() {
        take_away_all(managed(), |part| part.image == owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_cut_at_pages() {
        const AT: u64 = 0x2000_0000_0000;
        let cut = |start, bytes| {
            let of = Part {
                start,
                bytes,
                context: 1,
                image: 2,
            };
            let all = pieces(of)?.into_iter();
            Some(
                all.map(|(of, shared)| (of.start - AT, of.bytes, shared))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(cut(AT, 8192), Some(vec![(0, 8192, false)]));
        assert_eq!(cut(AT + 512, 4), Some(vec![(512, 4, true)]));
        assert_eq!(cut(AT + 512, 3584), Some(vec![(512, 3584, true)]));
        assert_eq!(
            cut(AT + 1024, 5000),
            Some(vec![(1024, 3072, true), (4096, 1928, true)])
        );
        assert_eq!(
            cut(AT + 512, 8192),
            Some(vec![
                (512, 3584, true),
                (4096, 4096, false),
                (8192, 512, true)
            ])
        );
        assert_eq!(
            cut(AT, 5000),
            Some(vec![(0, 4096, false), (4096, 904, true)])
        );
        assert_eq!(cut(u64::MAX - 1, 2), None);
        assert_eq!(cut(u64::MAX - 5, 2), None);
    }
}
