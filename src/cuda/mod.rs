// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's CUDA, for all roles.

pub mod cupti;
#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod double;
pub mod driver;
pub mod environment;
pub mod event_thread;
pub mod library;
