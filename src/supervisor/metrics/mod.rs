// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The public view of VMs and clients: metrics for Prometheus, and the page that `top` reads.
//!
//! The supervisor's event loop records starts and ends on the [`Board`]; a separate thread serves the board and the
//! accounts ([`Server`]). Neither waits for the other for longer than it takes to read a VM's counters.

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
