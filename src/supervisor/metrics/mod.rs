// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What can be seen of VMs and clients from outside: metrics for Prometheus, and the page that `top` reads.
//!
//! The supervisor's event loop tells the [`Board`] who comes and goes; a thread of its own serves what the board and
//! the accounts say ([`Server`]). Neither waits for the other longer than it takes to read a VM's counters.

mod address;
mod board;
mod end;
mod oom;
mod server;
mod status;
mod text;

pub use address::{Address, DEFAULT as DEFAULT_ADDRESS};
pub use board::Board;
pub use end::{ENDS, End};
pub use server::Server;
pub use status::{ClientStatus, GpuStatus, Status, Totals, VmStatus};
