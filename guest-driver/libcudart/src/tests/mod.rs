//! The runtime on a driver that the tests play.
pub mod fake;
