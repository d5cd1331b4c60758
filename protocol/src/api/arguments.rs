// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The forms of arguments in requests and replies, and the kinds of objects.

use std::marker::PhantomData;

use super::{
    ArrayForm, BoxCopy, BoxEnd, Copy2D, GraphStep, JitOption, LaunchAttribute, LaunchConfig, MemOp,
    MultiprocessorSplit, TensorForm, TensorMap, TextureForm, TextureResource,
};
use crate::{
    codec::{Blob, Wire},
    cuda::*,
};

/// How an argument is encoded: its form in CUDA's C signature, in a request and in a reply.
pub trait Arg {
    /// The argument's type in the C signature.
    type C: Copy;
    /// Its part of the request.
    type Request: Wire;
    /// Its part of the reply.
    type Reply: Wire;

    /// The id of the stream in the argument; `None` if it is not a stream.
    #[inline]
    fn stream(_: &Self::Request) -> Option<u64> {
        None
    }
}

macro_rules! by_value {
    ($($ty:ty),*) => {$(
        impl Arg for $ty {
            type C = $ty;
            type Request = $ty;
            type Reply = ();
        }
    )*};
}

by_value!(u8, u16, u32, u64, i32, usize);

macro_rules! custom_only {
    ($($ty:ty),*) => {$(
        impl Arg for $ty {
            type C = ();
            type Request = $ty;
            type Reply = ();
        }
    )*};
}

custom_only!(
    bool,
    String,
    Blob,
    Vec<u32>,
    Vec<JitOption>,
    Vec<MemOp>,
    LaunchAttribute,
    LaunchConfig,
    GraphStep,
    Copy2D,
    TensorForm,
    TensorMap,
    ArrayForm,
    BoxCopy,
    BoxEnd,
    TextureForm,
    TextureResource,
    MultiprocessorSplit
);

/// Flags. Those in `GOOD` are valid in any combination; with others, the host is asked.
pub struct Flags<const GOOD: u32> {}

impl<const GOOD: u32> Arg for Flags<GOOD> {
    type C = u32;
    type Request = u32;
    type Reply = ();
}

/// A result that the caller receives through a pointer, which may be NULL. The request says whether it is NULL, and the
/// host's driver defines the meaning of NULL.
pub struct Out<T>(PhantomData<T>);

impl<T: Wire> Arg for Out<T> {
    type C = *mut T;
    type Request = bool;
    type Reply = T;
}

/// A value that the caller passes through a pointer, which may be NULL.
pub struct In<T>(PhantomData<T>);

impl<T: Wire> Arg for In<T> {
    type C = *const T;
    type Request = Option<T>;
    type Reply = ();
}

/// A kind of object that has handles.
pub trait Object {
    /// The handle's C type.
    type Handle: Copy;
    /// The kind's number: the low byte of its ids, so that an id of another kind is always detected.
    const KIND: u8;
    /// Handles that are not ids and have the same meaning in every process.
    const SPECIAL: &'static [u64] = &[0];
    /// The handle for an id in the guest process, or for a host pointer in the worker.
    fn handle(id: u64) -> Self::Handle;
    /// The id of a handle.
    fn id(handle: Self::Handle) -> u64;
}

/// A kind of object, for code that lists all kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in the table.
    pub name: &'static str,
    /// The description, line by line.
    pub doc: &'static [&'static str],
    /// [`Object::KIND`].
    pub number: u8,
    /// [`Object::SPECIAL`].
    pub special: &'static [u64],
}

macro_rules! objects {
    ($($(#[doc = $doc:literal])* $name:ident = $kind:literal: $handle:ty $(, special $special:expr)?;)*) => {
    $(
        $(#[doc = $doc])*
        pub struct $name;

        impl Object for $name {
            type Handle = $handle;
            const KIND: u8 = $kind;
            $(const SPECIAL: &'static [u64] = $special;)?

            fn handle(id: u64) -> $handle {
                id as $handle
            }

            fn id(handle: $handle) -> u64 {
                handle as u64
            }
        }

        impl Arg for $name {
            type C = $handle;
            type Request = u64;
            type Reply = ();

            #[inline]
            fn stream(of: &u64) -> Option<u64> {
                (<Self as Object>::KIND == <Stream as Object>::KIND).then_some(*of)
            }
        }
    )*

        /// Every kind of object.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: stringify!($name),
            doc: &[$($doc),*],
            number: <$name as Object>::KIND,
            special: <$name as Object>::SPECIAL,
        }),*];
    };
}

objects! {
    /// A context, by handle; 0 means the current one where CUDA gives NULL that meaning. Green contexts are included.
    Context = 0x10: CUcontext;
    /// A module, by handle.
    Module = 0x20: CUmodule;
    /// A function, by handle; the id of a kernel is accepted too.
    Function = 0x30: CUfunction;
    /// A library, by handle.
    Library = 0x40: CUlibrary;
    /// A kernel, by handle.
    Kernel = 0x50: CUkernel;
    /// A stream, by handle; 0 and 1 are the legacy stream. The per-thread stream is never sent: the guest library makes
    /// a stream for each thread.
    Stream = 0x60: CUstream, special &[0, CU_STREAM_LEGACY as u64];
    /// An event, by handle.
    Event = 0x70: CUevent;
    /// A memory pool, by handle; the id of a device's default pool is derived from the device's number.
    MemPool = 0x80: CUmemoryPool, special &[];
    /// Physical device memory, by handle.
    Physical = 0x88: CUmemGenericAllocationHandle, special &[];
    /// The driver's nodes for a graph's launches that kernels update.
    GraphNodes = 0x8b: u64, special &[];
    /// An executable graph, by handle.
    GraphExec = 0x8c: CUgraphExec, special &[];
    /// A part of graphs: the recorded GPU work of a call of a library.
    GraphPart = 0x8d: u64, special &[];
    /// An array, by handle; levels of mipmapped arrays and planes of arrays are arrays too.
    Array = 0x8e: CUarray, special &[];
    /// A mipmapped array, by handle.
    MipmappedArray = 0x8f: CUmipmappedArray, special &[];
}

/// An object that the call creates, with an id that the guest chose and never reuses.
pub struct New<K>(PhantomData<K>);

impl<K: Object> Arg for New<K> {
    type C = *mut K::Handle;
    type Request = u64;
    type Reply = ();
}

/// An object that the call destroys.
pub struct Gone<K>(PhantomData<K>);

impl<K: Object> Arg for Gone<K> {
    type C = K::Handle;
    type Request = u64;
    type Reply = ();
}

/// The id of the `serial`-th object of kind `K`.
pub fn object_id<K: Object>(serial: u64) -> u64 {
    object_id_of(K::KIND, serial)
}

/// The id of the `serial`-th object of the kind with this number.
pub fn object_id_of(kind: u8, serial: u64) -> u64 {
    serial << 8 | u64::from(kind)
}

/// The serial number of the first device's default pool. Other objects have smaller ones.
const DEFAULT_POOLS: u64 = 1 << 48;

/// The id of a device's default pool, by the guest's number for the device.
pub fn default_pool(device: CUdevice) -> u64 {
    object_id::<MemPool>(DEFAULT_POOLS + u64::from(device as u32))
}

/// The device whose default pool has this id; `None` for any other id.
pub fn device_of_default_pool(id: u64) -> Option<CUdevice> {
    let number = (id >> 8).checked_sub(DEFAULT_POOLS)?;
    let device = CUdevice::try_from(number).ok()?;
    (default_pool(device) == id).then_some(device)
}

/// The kind's number in an id.
pub const fn object_kind(id: u64) -> u8 {
    id as u8
}
