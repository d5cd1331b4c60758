// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of functions of the program, and of this library, by executable graphs, once for each launch of the graph.
//!
//! A graph may end while its launches are in flight. So a call is kept until it was made as often as expected.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::{Mutex, MutexGuard};

use crate::client::Client;

/// The function to call.
type What = Arc<dyn Fn() + Send + Sync>;

struct Entry {
    what: What,
    /// The number of outstanding calls.
    expected: i64,
    /// Whether its graph has dropped it.
    is_over: bool,
}

static CALLS: Mutex<Option<HashMap<u64, Entry>>> = Mutex::new(None);

fn calls() -> MutexGuard<'static, Option<HashMap<u64, Entry>>> {
    CALLS.lock()
}

/// A call of an executable graph, until this is dropped.
#[derive(Debug)]
pub struct Call(u64);

impl Call {
    /// A call, with a unique number.
    pub fn new(client: &Client, what: impl Fn() + Send + Sync + 'static) -> Self {
        let id = client.new_serial();
        let entry = Entry {
            what: Arc::new(what),
            expected: 0,
            is_over: false,
        };
        calls().get_or_insert_default().insert(id, entry);
        Self(id)
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.0
    }

    /// Expects this many more calls.
    pub fn expect(&self, more: i64) {
        if let Some(entry) = calls().as_mut().and_then(|all| all.get_mut(&self.0)) {
            entry.expected += more;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        // Its resources may end with it, which takes time and other locks.
        let _gone = {
            let mut all = calls();
            let Some(all) = all.as_mut() else { return };
            match all.get_mut(&self.0) {
                Some(entry) if entry.expected > 0 => {
                    entry.is_over = true;
                    None
                }
                _ => all.remove(&self.0),
            }
        };
    }
}

/// Makes a call that a stream has reached.
pub fn run(id: u64) {
    let what = match calls().as_ref().and_then(|all| all.get(&id)) {
        Some(entry) => Arc::clone(&entry.what),
        None => return,
    };
    what();
    let _gone = {
        let mut all = calls();
        let Some(all) = all.as_mut() else { return };
        match all.get_mut(&id) {
            Some(entry) => {
                entry.expected -= 1;
                let ends = entry.is_over && entry.expected <= 0;
                ends.then(|| all.remove(&id))
            }
            None => None,
        }
    };
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn call(id: u64, count: &Arc<AtomicU32>) -> Call {
        let count = Arc::clone(count);
        let what = Arc::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let entry = Entry {
            what,
            expected: 0,
            is_over: false,
        };
        calls().get_or_insert_default().insert(id, entry);
        Call(id)
    }

    #[test]
    fn pitfall_40_a_call_stays_until_every_launch_has_made_it() {
        let count = Arc::new(AtomicU32::new(0));
        let of = call(u64::MAX, &count);
        of.expect(2);
        run(u64::MAX);
        drop(of);
        run(u64::MAX);
        // The call no longer exists, so it is ignored.
        run(u64::MAX);
        assert_eq!(count.load(Ordering::Relaxed), 2);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn pitfall_40_a_call_without_a_launch_ends_with_its_graph() {
        let count = Arc::new(AtomicU32::new(0));
        drop(call(u64::MAX - 1, &count));
        run(u64::MAX - 1);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&count), 1);
    }
}
