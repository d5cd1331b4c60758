//! The operations whose worker side is written by hand, one file for each kind of object.
//!
//! Each function is named as its entry of the API table.

mod callback;
mod client;
mod context;
mod copy;
mod device;
mod fill;
mod function;
pub mod image;
mod launch;
mod library;
mod memory;
mod memory_pool;
mod module;
mod ring;
mod stream;

pub use callback::*;
pub use client::*;
pub use context::*;
pub use copy::*;
pub use device::*;
pub use fill::*;
pub use function::*;
pub use launch::*;
pub use library::*;
pub use memory::*;
pub use memory_pool::*;
pub use module::*;
pub use ring::*;
pub use stream::*;
