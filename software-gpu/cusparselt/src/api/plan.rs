// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Selections of an algorithm, plans, and the products that they compute.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{memory::Scalar, objects::Objects};

use crate::handle::{Answer, Argument, RawHandle};
use crate::product::{Work, workspace};
use crate::structures::{Named, PLAN, Product, SELECTION, attribute, end, read};
use crate::types::{Result, Status, require};

use super::{export, give, take};

/// The number of algorithms.
const ALGORITHMS: c_int = 2;
/// `CUSPARSELT_SPLIT_K_MODE_ONE_KERNEL`.
const ONE_KERNEL: c_int = 1;

/// The selection, by the number of the attribute. All but the algorithm are about the computation on a GPU, and the
/// length of a search: here they change nothing but the workspace.
type Selected = [c_int; 6];

/// The numbers of the attributes.
mod selected {
    pub const ALGORITHM: usize = 0;
    pub const ALGORITHMS: usize = 1;
    pub const PARTS: usize = 3;
}

/// The selection for a product. Its plans change it.
#[derive(Debug)]
pub struct Selection {
    inner: i64,
    selected: Mutex<Selected>,
}

/// A product with its selection.
#[derive(Debug)]
pub struct Plan {
    /// The product.
    pub product: Product,
    selection: Arc<Selection>,
}

static SELECTIONS: Objects<Selection> = Objects::new(0xC5B3_0000_0000_0000, 16);
static PLANS: Objects<Plan> = Objects::new(0xC5B4_0000_0000_0000, 16);

impl Selection {
    fn selected(&self) -> MutexGuard<'_, Selected> {
        self.selected.lock()
    }
}

fn selection(from: Argument<Named<SELECTION>>) -> Result<Arc<Selection>> {
    let found = SELECTIONS.find(read(from)?.number as usize);
    found.ok_or(Status::InvalidValue)
}

/// The plan in a program's structure. Its handle is not checked: callers must not mix handles.
///
/// # Errors
/// `InvalidValue` if it is no plan.
pub fn plan(from: Argument<Named<PLAN>>) -> Result<Arc<Plan>> {
    let found = PLANS.find(read(from)?.number as usize);
    found.ok_or(Status::InvalidValue)
}

fn work(
    plan: &Plan,
    scalars: [Argument<f32>; 2],
    at: [u64; 4],
    space: u64,
    streams: Argument<*mut c_void>,
    count: c_int,
) -> Result<(Work, *mut c_void)> {
    let product = plan.product;
    let vectors = [attribute::ALPHA_VECTOR, attribute::BETA_VECTOR].map(|of| product.flag(of));
    let mut read = [Scalar::Host(0.0); 2];
    for ((to, pointer), is_vector) in read.iter_mut().zip(scalars).zip(vectors) {
        *to = match is_vector {
            true if pointer.is_null() => return Err(Status::InvalidValue),
            true => Scalar::Device(pointer.address()),
            false => Scalar::Host(pointer.get::<Status>()?),
        };
    }
    let [a, b, c, d] = at;
    let reads_c = !matches!(read[1], Scalar::Host(0.0));
    require([a, b, d].into_iter().all(|at| at != 0) && (c != 0 || !reads_c))?;
    let selected = *plan.selection.selected();
    let needs_space = workspace(&product, selected[selected::PARTS]) != 0;
    require(!(needs_space && space == 0) && count >= 0)?;
    // Work runs in the first; the others have nothing to do.
    let stream = match count {
        0 => std::ptr::null_mut(),
        _ => streams.cast::<u64>().get::<Status>()? as *mut c_void,
    };
    let work = Work {
        product,
        at,
        scalars: read,
        algorithm: selected[selected::ALGORITHM],
    };
    Ok((work, stream))
}

export! {
    /// Selects the first algorithm for a product.
    fn cusparseLtMatmulAlgSelectionInit(
        handle: Argument<RawHandle>, selection: Answer<Named<SELECTION>>, product: Argument<Product>, algorithm: c_int,
    ) |handle| {
        let _ = handle;
        let product = read(product)?;
        require(algorithm == 0 && !selection.is_null())?;
        let made = Selection {
            inner: crate::product::sparse(&product)?.shape().1,
            selected: Mutex::new([0, ALGORITHMS, 5, 1, ONE_KERNEL, 0]),
        };
        selection.set(Named::new(SELECTIONS.add(made)))
    }

    /// Destroys a selection. Plans that were made from it keep it.
    fn cusparseLtMatmulAlgSelectionDestroy(selection: Answer<Named<SELECTION>>) {
        let ended = SELECTIONS.remove(end(selection)?.number as usize);
        ended.map(drop).ok_or(Status::InvalidValue)
    }

    /// Selects.
    fn cusparseLtMatmulAlgSetAttribute(
        handle: Argument<RawHandle>, selection: Argument<Named<SELECTION>>, number: c_int, data: Argument<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let of = self::selection(selection)?;
        let value = take(data, size, 4)? as c_int;
        let right = match number {
            0 => (0..ALGORITHMS).contains(&value),
            2 => value > 0,
            3 => (1..=of.inner).contains(&value.into()),
            4 => matches!(value, 1 | 2),
            5 => value >= 0,
            _ => false,
        };
        require(right)?;
        of.selected()[number as usize] = value;
        Ok(())
    }

    /// The selection.
    fn cusparseLtMatmulAlgGetAttribute(
        handle: Argument<RawHandle>, selection: Argument<Named<SELECTION>>, number: c_int, data: Answer<u8>, size: usize,
    ) |handle| {
        let _ = handle;
        let selected = *self::selection(selection)?.selected();
        let value = usize::try_from(number).ok().and_then(|number| selected.get(number));
        give(data, size, 4, *value.ok_or(Status::InvalidValue)? as u64)
    }

    /// Makes a plan from a product's present values and from a selection.
    fn cusparseLtMatmulPlanInit(
        handle: Argument<RawHandle>, plan: Answer<Named<PLAN>>, product: Argument<Product>, selection: Argument<Named<SELECTION>>,
    ) |handle| {
        let _ = handle;
        let (product, selection) = (read(product)?, self::selection(selection)?);
        require(!plan.is_null())?;
        plan.set(Named::new(PLANS.add(Plan { product, selection })))
    }

    /// Ends a plan.
    fn cusparseLtMatmulPlanDestroy(plan: Answer<Named<PLAN>>) {
        let ended = PLANS.remove(end(plan)?.number as usize);
        ended.map(drop).ok_or(Status::InvalidValue)
    }

    /// The bytes that a product needs to work in.
    fn cusparseLtMatmulGetWorkspace(handle: Argument<RawHandle>, plan: Argument<Named<PLAN>>, bytes: Answer<u64>) |handle| {
        let _ = handle;
        let plan = self::plan(plan)?;
        let parts = plan.selection.selected()[selected::PARTS];
        bytes.set(workspace(&plan.product, parts))
    }

    /// Computes a product.
    fn cusparseLtMatmul(
        handle: Argument<RawHandle>, plan: Argument<Named<PLAN>>, alpha: Argument<f32>, a: u64, b: u64, beta: Argument<f32>, c: u64, d: u64, space: u64,
        streams: Argument<*mut c_void>, count: c_int,
    ) |handle| {
        let plan = self::plan(plan)?;
        let (work, stream) = work(&plan, [alpha, beta], [a, b, c, d], space, streams, count)?;
        handle.run(stream, false, move |memory| work.run(&memory))
    }

    /// Computes a product by every algorithm, and selects the last one, for they are all as fast.
    fn cusparseLtMatmulSearch(
        handle: Argument<RawHandle>, plan: Argument<Named<PLAN>>, alpha: Argument<f32>, a: u64, b: u64, beta: Argument<f32>, c: u64, d: u64, space: u64,
        streams: Argument<*mut c_void>, count: c_int,
    ) |handle| {
        let plan = self::plan(plan)?;
        let (work, stream) = work(&plan, [alpha, beta], [a, b, c, d], space, streams, count)?;
        for algorithm in 0..ALGORITHMS {
            let work = Work { algorithm, ..work };
            handle.run(stream, true, move |memory| work.run(&memory))?;
            plan.selection.selected()[selected::ALGORITHM] = algorithm;
        }
        Ok(())
    }
}

const _: () = assert!(selected::ALGORITHMS == 1);
