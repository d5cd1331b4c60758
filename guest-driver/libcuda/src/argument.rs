// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! C arguments as checked values.
//!
//! The types here have the layout of the C argument. Only C callers make them, and guarantee the properties that CUDA's
//! documentation requires, which makes their methods sound.

use std::{
    ffi::{CStr, c_char, c_void},
    slice,
};

use gpgpu_protocol::{
    api::{
        Arg, Context, Event, Flags, Function, Gone, In, Kernel, Library, Module, New, Object, Out,
        Stream, object_kind,
    },
    codec::Wire,
    cuda::*,
    driver_api::check::Abi,
};

use crate::{client::Client, ffi::Result, stores::objects::Known, thread};

/// A pointer to a result.
#[repr(transparent)]
pub struct OutPtr<T>(*mut T);

// Not derived: a pointer can be copied whatever its target type.
impl<T> Clone for OutPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for OutPtr<T> {}

impl<T> OutPtr<T> {
    /// Whether the caller wants no result.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Stores the result; `CUDA_ERROR_INVALID_VALUE` if the pointer is NULL.
    pub fn set(self, value: T) -> Result {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.offer(value);
        Ok(())
    }

    /// Fails with `CUDA_ERROR_INVALID_VALUE` if the pointer is NULL.
    pub fn required(self) -> Result<Self> {
        if self.0.is_null() {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else {
            Ok(self)
        }
    }

    /// Stores the result if the pointer is not NULL.
    pub fn offer(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: a pointer that a C caller gives and that is not NULL is valid for a write of T.
            unsafe { self.0.write(value) };
        }
    }

    /// The `index`-th element of an array of results.
    pub fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// The current value, if the caller passes one; `None` for NULL.
    pub fn read(self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: as in `offer`, for a read; used for in-out arguments only.
        (!self.0.is_null()).then(|| unsafe { self.0.read() })
    }

    /// The pointer itself.
    pub fn raw(self) -> *mut T {
        self.0
    }

    /// Wraps a pointer inside another argument of a C caller.
    pub fn nested(pointer: *mut c_void) -> Self {
        Self(pointer.cast())
    }
}

impl OutPtr<u8> {
    /// Writes text with its NUL into a buffer of `length` bytes, cut to fit, as CUDA's name getters do.
    pub fn set_text(self, text: &str, length: usize) -> Result {
        if self.0.is_null() || length == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let count = text.len().min(length - 1);
        for (i, byte) in text.bytes().take(count).chain([0]).enumerate() {
            self.at(i).offer(byte);
        }
        Ok(())
    }
}

/// A pointer to a value.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct InPtr<T>(*const T);

impl<T: Copy> InPtr<T> {
    /// The value; `CUDA_ERROR_INVALID_VALUE` if the pointer is NULL.
    pub fn get(self) -> Result<T> {
        self.at(0)
    }

    /// The `index`-th element of an array.
    pub fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a C caller gives an array long enough for the function's reads.
        Ok(unsafe { self.0.wrapping_add(index).read() })
    }

    /// Whether the pointer is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Wraps a pointer inside another argument of a C caller.
    pub fn nested(pointer: *const c_void) -> Self {
        Self(pointer.cast())
    }
}

/// A C string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// The text; `CUDA_ERROR_INVALID_VALUE` for NULL.
    pub fn get(self) -> Result<String> {
        if self.0.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: a C caller gives a NUL-terminated string.
        Ok(unsafe { CStr::from_ptr(self.0) }
            .to_string_lossy()
            .into_owned())
    }
}

/// Host memory that a call reads or writes until it returns.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct HostPtr(*mut c_void);

impl HostPtr {
    /// The address.
    pub fn address(self) -> u64 {
        self.0 as u64
    }

    /// The memory at an address that a C caller passed as an integer.
    pub fn at(address: u64) -> Self {
        Self(address as *mut c_void)
    }

    /// The pointer advanced by `bytes`.
    pub fn add(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }

    /// Whether it is NULL.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The bytes, for reading; they exist until the call returns.
    pub fn bytes<'a>(self, length: usize) -> &'a [u8] {
        if length == 0 {
            return &[];
        }
        // SAFETY: a C caller gives memory that is readable for the length that it names.
        unsafe { slice::from_raw_parts(self.0.cast(), length) }
    }

    /// Copies `bytes` here; the ranges may overlap.
    pub fn store(self, bytes: &[u8]) {
        // SAFETY: a C caller gives memory that is writable for the length that it names.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.0.cast(), bytes.len()) };
    }

    /// The bytes, for writing; they exist until the call returns.
    pub fn bytes_mut<'a>(self, length: usize) -> &'a mut [u8] {
        if length == 0 {
            return &mut [];
        }
        // SAFETY: a C caller gives memory that is writable for the length that it names, and CUDA forbids other uses of
        // a copy's destination meanwhile.
        unsafe { slice::from_raw_parts_mut(self.0.cast(), length) }
    }
}

macro_rules! passed_as {
    ($($ty:ty as $c:ty $(, of any $t:ident)?;)*) => {$(
        // SAFETY: the type has the layout of a pointer, and whatever a C caller passes is a value of it.
        unsafe impl$(<$t>)? Abi<$c> for $ty {}
    )*};
}

passed_as! {
    OutPtr<T> as *mut T, of any T;
    InPtr<T> as *const T, of any T;
    // Memory that is writable in C but that the function only reads.
    InPtr<T> as *mut T, of any T;
    Text as *const c_char;
    HostPtr as *mut c_void;
    HostPtr as *const c_void;
    // Arrays whose elements are pointers or integers, depending on another argument; and those that are never written
    // through this type.
    OutPtr<usize> as *mut *mut c_void;
    InPtr<usize> as *mut *mut c_void;
    InPtr<*const c_void> as *mut *mut c_void;
}

/// The path of an argument of a plain entry of the API table: from C into a request, and from a reply to C.
pub trait GuestArg: Arg {
    /// The argument's part of the request.
    fn lower(client: &Client, argument: Self::C) -> Result<Self::Request>;

    /// Whether the argument is known to be valid, so that a post needs no answer.
    fn is_known(_client: &Client, _request: &Self::Request) -> bool {
        true
    }

    /// Stores the results of the successful call for the caller.
    fn raise(_client: &Client, _argument: Self::C, _reply: Self::Reply) {}

    /// Records objects that the successful call made or ended.
    fn settle(_client: &Client, _argument: Self::C, _request: &Self::Request) {}
}

macro_rules! by_value {
    ($($ty:ty),*) => {$(
        impl GuestArg for $ty {
            fn lower(_: &Client, argument: $ty) -> Result<$ty> {
                Ok(argument)
            }
        }
    )*};
}

by_value!(u8, u16, u64, i32, usize);

impl GuestArg for u32 {
    fn lower(_: &Client, argument: u32) -> Result<u32> {
        Ok(argument)
    }

    /// A value of 0 is valid everywhere. The host checks any other flags before the caller continues.
    fn is_known(_: &Client, request: &u32) -> bool {
        *request == 0
    }
}

impl<const GOOD: u32> GuestArg for Flags<GOOD> {
    fn lower(_: &Client, argument: u32) -> Result<u32> {
        Ok(argument)
    }

    /// The host checks all other flags before the caller continues.
    fn is_known(_: &Client, request: &u32) -> bool {
        request & !GOOD == 0
    }
}

impl<T: Wire> GuestArg for Out<T> {
    fn lower(_: &Client, argument: *mut T) -> Result<bool> {
        Ok(!argument.is_null())
    }

    fn raise(_: &Client, argument: *mut T, reply: T) {
        OutPtr(argument).offer(reply);
    }
}

impl<T: Wire + Copy> GuestArg for In<T> {
    fn lower(_: &Client, argument: *const T) -> Result<Option<T>> {
        Ok(InPtr(argument).get().ok())
    }
}

macro_rules! handles {
    ($($kind:ty),*) => {$(
        impl GuestArg for $kind {
            fn lower(_: &Client, argument: <$kind as Object>::Handle) -> Result<u64> {
                Ok(<$kind as Object>::id(argument))
            }

            fn is_known(client: &Client, request: &u64) -> bool {
                // NULL is an error of the call.
                object_kind(*request) == <$kind as Object>::KIND && client.objects.contains(*request)
            }
        }
    )*};
}

handles!(Context, Module, Function, Library, Kernel, Event);

impl GuestArg for Stream {
    fn lower(client: &Client, argument: CUstream) -> Result<u64> {
        thread::stream_id(client, argument as u64)
    }

    fn is_known(client: &Client, request: &u64) -> bool {
        client.objects.knows_stream(*request)
    }
}

impl<K: Object> GuestArg for New<K> {
    fn lower(client: &Client, argument: *mut K::Handle) -> Result<u64> {
        OutPtr(argument).required()?;
        Ok(client.new_id::<K>())
    }

    fn settle(client: &Client, argument: *mut K::Handle, request: &u64) {
        let context = match K::KIND {
            Stream::KIND => thread::current_context(),
            _ => thread::home(client),
        };
        client.objects.insert(*request, Known::made::<K>(context));
        OutPtr(argument).offer(K::handle(*request));
    }
}

impl<K: Object> GuestArg for Gone<K> {
    fn lower(_: &Client, argument: K::Handle) -> Result<u64> {
        Ok(K::id(argument))
    }

    fn is_known(client: &Client, request: &u64) -> bool {
        object_kind(*request) == K::KIND && client.objects.contains(*request)
    }

    fn settle(client: &Client, _: K::Handle, request: &u64) {
        client.objects.remove(*request);
    }
}
