// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texts of plans, from which the process can make other plans.

use std::sync::Arc;

use gpgpu_locks::Mutex;

use crate::graph::Operation;
use crate::types::{Result, Status};

/// The bytes of a text. NVIDIA's can be as long: they contain the code of kernels.
const BYTES: usize = 100_000;
const BEGIN: &str = "{\"plan\": ";

/// The operations of plans whose texts were requested.
static PLANS: Mutex<Vec<Arc<Operation>>> = Mutex::new(Vec::new());

/// The text of a plan, with a NUL at its end.
pub fn of(plan: &Arc<Operation>) -> Vec<u8> {
    let mut plans = PLANS.lock();
    let known = plans.iter().position(|of| Arc::ptr_eq(of, plan));
    let number = known.unwrap_or_else(|| {
        plans.push(Arc::clone(plan));
        plans.len() - 1
    });
    let mut text = format!("{BEGIN}{number}}}").into_bytes();
    text.resize(BYTES, b' ');
    text.push(0);
    text
}

/// The plan with a text.
///
/// # Errors
/// `BadParam` if there is none.
pub fn plan(text: &[u8]) -> Result<Arc<Operation>> {
    let text = str::from_utf8(text).map_err(|_| Status::BadParam)?;
    let text = text.trim_end_matches([' ', '\0']);
    let number = text
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix('}'));
    let number: Option<usize> = number.and_then(|number| number.parse().ok());
    let found = number.and_then(|number| PLANS.lock().get(number).cloned());
    found.ok_or(Status::BadParam)
}
