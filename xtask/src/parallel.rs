// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Work on all processors.

use std::num::NonZero;
use std::thread;

use anyhow::{Result, bail};
use gpgpu_locks::Mutex;

/// Calls `act` with each of `items`, on as many threads as there are processors.
///
/// # Errors
/// The first of `act`'s errors, in the order of the threads. A thread with an error takes no further item, but the
/// others do.
pub fn for_each<T: Send>(items: Vec<T>, act: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().next();
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let work = || -> Result<()> {
            while let Some(item) = next() {
                act(item)?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter()
            .try_for_each(|end| end.unwrap_or_else(|_| bail!("a thread panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once_and_an_error_is_returned() {
        let seen = Mutex::new(Vec::new());
        for_each((0..100).collect(), |item| {
            seen.lock().push(item);
            Ok(())
        })
        .unwrap();
        let mut seen = seen.into_inner();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());

        let failed = for_each(vec![1, 2, 3], |item| {
            anyhow::ensure!(item != 2, "two");
            Ok(())
        });
        assert_eq!(failed.unwrap_err().to_string(), "two");
    }
}
