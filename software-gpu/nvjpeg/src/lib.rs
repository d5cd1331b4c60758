// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libnvjpeg.so.13` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the nvJPEG API under their own names;
//! - [`objects`]: handles, states, streams, parameters and buffers;
//! - [`decoded`], [`encoded`]: JPEGs and planes of pixels, in ordinary Rust, by zune-jpeg and jpeg-encoder;
//! - [`header`]: the header of a JPEG;
//! - [`types`]: NVIDIA's numbers and structures.
//!
//! Device memory, streams and the driver are [`gpgpu_stand_in`]'s. Pixels differ from NVIDIA's in their last bits.

pub mod api;
pub mod decoded;
pub mod encoded;
pub mod header;
pub mod objects;
pub mod types;
