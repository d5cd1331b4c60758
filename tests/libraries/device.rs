// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of guest programs for the libraries: device memory, and calls by name with C's types.

use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUresult, CUstream};

/// Makes a call of CUDA that must succeed.
macro_rules! cuda {
    ($name:ident($($arg:expr),*)) => {
        // SAFETY: pointers are to values that live across the call, or to as many bytes as it says.
        assert_eq!(unsafe { sys::$name($($arg),*) }, CUresult::CUDA_SUCCESS, stringify!($name))
    };
}

/// Calls a function of a library by name. Arguments have C's types, or their width; the result is the status.
macro_rules! call {
    (@any $arg:expr) => { _ };
    ($library:expr, $name:expr; $($arg:expr),* $(,)?) => {{
        // SAFETY: the function has such arguments; pointers are NULL, device addresses or to values that live across
        // the call.
        unsafe {
            let function = $library.get::<unsafe extern "C" fn($(call!(@any $arg)),*) -> u32>($name.as_bytes());
            function.unwrap_or_else(|error| panic!("{}: {error}", $name))($($arg),*)
        }
    }};
}

/// Makes a call that must succeed.
macro_rules! ok {
    ($library:expr, $name:expr; $($arg:expr),* $(,)?) => {
        assert_eq!(call!($library, $name; $($arg),*), 0, "{}", $name)
    };
}

pub(crate) use {call, cuda, ok};

/// Makes the first device's context current.
pub fn begin() {
    let mut context = null_mut();
    cuda!(cuInit(0));
    cuda!(cuDevicePrimaryCtxRetain(&mut context, 0));
    cuda!(cuCtxSetCurrent(context));
}

/// A non-blocking stream.
pub fn new_stream() -> CUstream {
    let mut stream = null_mut();
    cuda!(cuStreamCreate(&mut stream, 1));
    stream
}

/// Waits for all work.
pub fn synchronize() {
    cuda!(cuCtxSynchronize());
}

/// Device memory with these values.
pub fn upload<T: Copy>(values: &[T]) -> u64 {
    let (mut address, bytes) = (0, size_of_val(values));
    cuda!(cuMemAlloc_v2(&mut address, bytes.max(1)));
    if bytes > 0 {
        write(address, values);
    }
    address
}

/// Writes values to device memory. They are visible to non-blocking streams too: a copy from pageable memory may return
/// before its bytes are there.
pub fn write<T: Copy>(address: u64, values: &[T]) {
    cuda!(cuMemcpyHtoD_v2(
        address,
        values.as_ptr().cast(),
        size_of_val(values)
    ));
    synchronize();
}

/// The content of device memory after all work is complete.
pub fn download<T: Copy + Default>(address: u64, count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    synchronize();
    let bytes = size_of_val(&values[..]);
    cuda!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), address, bytes));
    values
}
