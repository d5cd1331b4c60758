//! The host's CUDA, as every role calls it.

#[cfg(test)]
#[allow(non_snake_case)]
pub(crate) mod double;
pub mod driver;
pub mod library;
