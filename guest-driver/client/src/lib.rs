// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest process as a client of the device: the part that all libraries of the guest share.
//!
//! A [`Connection`] sends entries of the API table ([`gpgpu_protocol::api`]) over a [`transport`]: the kernel driver's
//! device file, or a vhost-user socket if there is no VM. Commands that must cost only a few stores use the [`ring`].
//! An error is a `CUresult` ([`ffi`]).
//!
//! Each library is a `cdylib` that contains this crate, with its own connection, thread tags and current context.

pub mod before;
mod command;
mod connection;
pub mod data_blocks;
pub mod ffi;
pub mod forks;
pub mod handles;
mod local_time;
pub mod log;
mod output;
pub mod parallel_copy;
pub mod ring;
pub mod signals;
pub mod sister;
pub mod thread;
pub mod trace;
pub mod transport;
pub mod variable;
mod work;

pub use connection::Connection;
pub use local_time::local_time;
pub use output::put as put_out;
pub use work::{Given, Scope};
