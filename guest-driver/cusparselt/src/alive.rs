// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! This process's plans on the host. Programs need not destroy their plans, and some make a new one for each product in
//! the same structure, but the host limits their number. At that limit, the least recently used plan is destroyed: such
//! a program has lost it.

use std::collections::HashMap;

use gpgpu_library::Status;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::libraries::cusparselt::status;

use crate::PLAN;

/// Plans, ordered by their last use.
#[derive(Debug, Default)]
struct Plans {
    used: HashMap<u64, u64>,
    clock: u64,
}

impl Plans {
    /// Adds a plan. Returns and removes the plan that must be destroyed for it, if any.
    fn add(&mut self, id: u64, most: usize) -> Option<u64> {
        let oldest = match self.used.len() < most {
            true => None,
            false => self.used.iter().min_by_key(|(_, used)| **used),
        };
        let oldest = oldest.map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.used.remove(&oldest);
        }
        self.clock += 1;
        self.used.insert(id, self.clock);
        oldest
    }

    fn use_one(&mut self, id: u64) -> Result<(), Status> {
        self.clock += 1;
        let used = self.used.get_mut(&id).ok_or(status::INVALID_VALUE)?;
        *used = self.clock;
        Ok(())
    }
}

fn plans() -> MutexGuard<'static, Option<Plans>> {
    static PLANS: Mutex<Option<Plans>> = Mutex::new(None);
    PLANS.lock()
}

/// Records a plan that is about to be made. Returns the one that must be destroyed before, if any.
pub fn add(id: u64) -> Option<u64> {
    plans().get_or_insert_default().add(id, PLAN.most())
}

/// Records that a plan is used.
///
/// # Errors
///
/// `INVALID_VALUE` if there is no such plan any more.
pub fn use_one(id: u64) -> Result<(), Status> {
    plans().get_or_insert_default().use_one(id)
}

/// Removes a plan. Returns whether it existed.
pub fn forget(id: u64) -> bool {
    let mut plans = plans();
    plans.get_or_insert_default().used.remove(&id).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_that_was_used_longest_ago_makes_room() {
        let mut plans = Plans::default();
        for id in [1, 2, 3] {
            assert_eq!(plans.add(id, 3), None);
        }
        assert_eq!(plans.use_one(1), Ok(()));
        assert_eq!(plans.use_one(9), Err(status::INVALID_VALUE));
        assert_eq!(plans.add(4, 3), Some(2));
        assert_eq!(plans.add(5, 3), Some(3));
        assert_eq!(plans.use_one(2), Err(status::INVALID_VALUE));
        plans.used.remove(&4);
        assert_eq!(plans.add(6, 3), None);
        assert_eq!(plans.add(7, 3), Some(1));
    }
}
