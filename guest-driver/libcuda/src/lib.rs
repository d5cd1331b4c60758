// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcuda.so.1` for a virtio-gpgpu guest: the CUDA driver API as a command stream.
//!
//! A call enters through [`ffi`], which converts C arguments to checked ones ([`argument`]). It is answered from the
//! process's state ([`client`], [`thread`]) or sent as an entry of the API table ([`gpgpu_protocol::api`]) over the
//! client's connection ([`gpgpu_client`]). There is one file for each kind of CUDA object.

#![allow(non_snake_case)]

mod absent;
mod argument;
mod array;
mod array_copy;
mod batch;
mod batch3d;
mod boxes;
mod callback;
mod client;
#[cfg(test)]
mod compatibility;
mod context;
mod copy;
mod copy_rows;
mod coredump;
mod device;
mod display;
mod entry;
mod environment;
mod error;
mod event;
mod exports;
mod ffi;
mod fill;
mod function;
mod globals;
mod graph;
mod green;
mod host_pool;
mod image;
mod ipc;
mod ipc_event;
mod launch;
mod launch_older;
mod library;
mod library_variables;
mod link;
mod logs;
mod managed;
mod memop;
mod memory;
mod memory_pool;
mod module;
mod occupancy;
mod older;
mod pinned;
mod pointer;
mod settings;
mod shared_pool;
mod sisters;
mod stores;
mod stream;
mod stream_attribute;
mod tensor_map;
mod texture;
mod texture_reference;
mod thread;
mod unsupported;
mod virtual_memory;
mod visible;
