// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcusolver.so.12` whose dense functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuSOLVER API under their own names, one file per family;
//! - [`handle`]: handles and the objects that calls take with them, and how a call becomes work in a handle's stream;
//! - [`dense`]: factorisations, systems, eigenvalues and singular values of matrices that were read, on nalgebra;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.
//!
//! [`gpgpu_stand_in`] is the common part of all stand-ins.

pub mod api;
pub mod dense;
pub mod handle;
pub mod types;
