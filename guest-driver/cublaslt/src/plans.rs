// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Plans: descriptions of products that the host keeps. A product that a program repeats is sent without its
//! descriptors.
//!
//! A program makes new, equal descriptors for each product, so a plan is found by all bytes of its descriptors. Each
//! thread has its own table. So no other thread destroys a plan between the lookup and the product that names the plan,
//! and no lock is taken. The second product with the same description makes the plan. A program whose descriptions
//! never recur pays only for a hash.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use gpgpu_library::{
    Status,
    forward::{self, Request, new_object},
    handle::sister,
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::libraries::{
    Class, Function,
    Library::CublasLt,
    cublaslt::form::{Algorithm, Formed, put_plan},
};

use crate::{
    LIBRARY,
    call::{Parts, with_written},
    joined::{Joined, hash},
    product::MATMUL,
    sequence::{PLACES, Sequence},
};

const NEW: &Function = CublasLt.find("gpgpuLtPlan");
const END: &Function = CublasLt.find("gpgpuLtPlanForget");

/// The most plans of the process: fewer than the host keeps for one client.
const MOST: usize = Class::CublasLtPlan.most() / 2;
/// The number of products with other descriptions that a plan's entry withstands before it is replaced.
const PATIENCE: u8 = 8;

/// The number of existing plans, of all threads.
static ALIVE: AtomicUsize = AtomicUsize::new(0);
/// Plans of threads that have ended; the next thread that makes a plan destroys them.
static LEFT: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Whether the host keeps no plans, or has refused one.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// A plan that the host keeps.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its id.
    pub id: u64,
    /// The number of its products' form, as far as the plan determines it.
    pub form: u64,
}

/// A plan, and its description.
struct Kept {
    plan: Plan,
    described: Joined<5>,
    algorithm: Option<Algorithm>,
}

impl Kept {
    fn is_for(&self, parts: [&[u8]; 5], algorithm: Option<&Algorithm>) -> bool {
        self.algorithm.as_ref() == algorithm && self.described.is(parts)
    }
}

/// An entry of the table.
#[derive(Default)]
struct Place {
    /// The hash of the latest description, or of the plan's.
    hash: u64,
    patience: u8,
    kept: Option<Box<Kept>>,
}

/// A thread's table.
struct Table {
    places: Vec<Place>,
    sequence: Sequence,
}

impl Table {
    /// The plan of a place, if it is the product's.
    #[inline]
    fn plan_at(
        &mut self,
        at: usize,
        parts: [&[u8]; 5],
        algorithm: Option<&Algorithm>,
    ) -> Option<Plan> {
        let place = self.places.get_mut(at)?;
        let kept = place.kept.as_ref()?;
        let plan = kept.is_for(parts, algorithm).then_some(kept.plan)?;
        place.patience = PATIENCE;
        self.sequence.used(at);
        Some(plan)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // The thread's part of libcuda may have ended before this, so nothing is sent from here.
        let mut left = LEFT.lock();
        left.extend(
            self.places
                .iter()
                .filter_map(|place| Some(place.kept.as_ref()?.plan.id)),
        );
    }
}

thread_local! {
    static TABLE: RefCell<Table> = const {
        RefCell::new(Table { places: Vec::new(), sequence: Sequence::new() })
    };
}

/// The hash of a product's description.
fn hash_of(parts: [&[u8]; 5], algorithm: Option<&Algorithm>) -> u64 {
    let algorithm = algorithm.map_or(&[][..], |of| &of[..]);
    hash(parts.into_iter().chain([algorithm]))
}

/// The table's entry for a product.
#[derive(Debug, Clone, Copy)]
pub enum Found {
    /// A plan for the product.
    Plan(Plan),
    /// No plan; the hash of the product's description.
    Nothing(u64),
    /// The product can have no plan.
    Never,
}

/// Looks up the host's plan for a product.
pub fn find(parts: &Parts<'_>, algorithm: Option<&Algorithm>) -> Found {
    // After the host has refused a plan, no other is requested, because each request would wait. Products with an
    // emulation descriptor have no plans, because few programs have such descriptors.
    let bytes = parts.bytes().filter(|_| !REFUSED.load(Ordering::Relaxed));
    let Some(bytes) = bytes else {
        return Found::Never;
    };
    let find = |table: &RefCell<Table>| {
        let mut table = table.try_borrow_mut().ok()?;
        let expected = table.sequence.expected();
        if let Some(plan) = table.plan_at(expected, bytes, algorithm) {
            return Some(Found::Plan(plan));
        }
        let hash = hash_of(bytes, algorithm);
        let plan = table.plan_at(hash as usize % PLACES, bytes, algorithm);
        Some(plan.map_or(Found::Nothing(hash), Found::Plan))
    };
    TABLE.try_with(find).ok().flatten().unwrap_or(Found::Never)
}

/// Records that the library has accepted a product without a plan, whose description has this hash. A repeated
/// description gets a plan.
pub fn met(hash: u64, parts: &Parts<'_>, algorithm: Option<&Algorithm>) {
    let note = |table: &RefCell<Table>| {
        let Ok(mut table) = table.try_borrow_mut() else {
            return;
        };
        if table.places.is_empty() {
            table.places.resize_with(PLACES, Place::default);
        }
        let place = &mut table.places[hash as usize % PLACES];
        let is_same = place.hash == hash;
        match place.kept {
            // A plan of another description with the same hash, or a product whose form was new.
            Some(_) if is_same => {}
            None if is_same => {
                place.kept = make(parts, algorithm).ok().flatten().map(Box::new);
                place.patience = PATIENCE;
            }
            _ => {
                place.patience = place.patience.saturating_sub(1);
                if place.kept.is_none() || place.patience == 0 {
                    place.hash = hash;
                    if let Some(kept) = place.kept.take() {
                        end(kept.plan.id);
                    }
                }
            }
        }
    };
    let _ = TABLE.try_with(note);
}

fn end(id: u64) {
    ALIVE.fetch_sub(1, Ordering::Relaxed);
    // The result is irrelevant: without a host there is no plan either.
    let _ = forward::send(END, &[id]);
}

/// Whether the host keeps plans; older hosts do not.
fn is_kept() -> Result<bool, Status> {
    let kept = sister(LIBRARY)?.has(NEW.operation.op);
    kept.map_err(|code| LIBRARY.statuses().of_code(code))
}

/// Makes the host create a plan; `None` if it keeps none, or there are too many.
fn make(parts: &Parts<'_>, algorithm: Option<&Algorithm>) -> Result<Option<Kept>, Status> {
    if !is_kept()? {
        REFUSED.store(true, Ordering::Relaxed);
        return Ok(None);
    }
    let left = std::mem::take(&mut *LEFT.lock());
    left.into_iter().for_each(end);
    let Some(bytes) = parts.bytes() else {
        return Ok(None);
    };
    if ALIVE.fetch_add(1, Ordering::Relaxed) >= MOST {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
        return Ok(None);
    }
    let put = |sink: &mut Formed<'_>| put_plan(sink, &parts.described(), algorithm);
    let made: Result<_, Status> = with_written(MATMUL.operation.op, put, |blob, form| {
        let id = new_object(Class::CublasLtPlan)?;
        let words = [id, 0];
        let request = Request {
            blob,
            ..Request::new(NEW, &words)
        };
        // This waits, because no call may name a plan that the host could not create.
        request.ask()?;
        Ok(Plan { id, form })
    });
    let plan = made.inspect_err(|_| {
        REFUSED.store(true, Ordering::Relaxed);
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    })?;
    Ok(Some(Kept {
        plan,
        described: Joined::new(bytes),
        algorithm: algorithm.copied(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_description_counts() {
        let words = |seed: u8| -> Vec<u8> { (0..64).map(|at| seed.wrapping_mul(at)).collect() };
        let all: Vec<Vec<u8>> = (1..6).map(words).collect();
        let parts = |all: &[Vec<u8>]| -> [Vec<u8>; 5] { all.to_vec().try_into().unwrap() };
        fn of(all: &[Vec<u8>; 5]) -> [&[u8]; 5] {
            all.each_ref().map(Vec::as_slice)
        }
        let first = parts(&all);
        let algorithm = [7; 64];
        let kept = Kept {
            plan: Plan { id: 1, form: 2 },
            described: Joined::new(of(&first)),
            algorithm: Some(algorithm),
        };
        assert!(kept.is_for(of(&first), Some(&algorithm)));
        let same = hash_of(of(&first), Some(&algorithm));
        let mut others = Vec::new();
        for (part, at) in (0..5).flat_map(|part| [(part, 0), (part, 31), (part, 63)]) {
            let mut other = first.clone();
            other[part][at] ^= 1;
            others.push((other, Some(algorithm)));
        }
        let mut swapped = first.clone();
        swapped.swap(1, 2);
        others.push((swapped, Some(algorithm)));
        others.push((first.clone(), None));
        others.push((first.clone(), Some([8; 64])));
        for (at, (other, algorithm)) in others.iter().enumerate() {
            assert!(!kept.is_for(of(other), algorithm.as_ref()), "{at}");
            assert_ne!(hash_of(of(other), algorithm.as_ref()), same, "{at}");
        }
        // The same bytes, divided differently, and a part that is longer by less than a word.
        let mut divided = first.clone();
        let last = divided[0].split_off(56);
        divided[1].splice(..0, last);
        let mut longer = first.clone();
        longer[4].push(0);
        for other in [divided, longer] {
            assert!(!kept.is_for(of(&other), Some(&algorithm)));
        }
    }
}
