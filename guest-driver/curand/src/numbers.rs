// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions that generate numbers, into device memory or through it into the program's memory.

use std::ffi::c_void;

use gpgpu_library::{Object, Status, Word, forward};
use gpgpu_protocol::libraries::{Function, Library, curand::status};

use crate::{enter, generators::aside};

/// Generates numbers of a width: the second argument is their address, and the third their number.
///
/// # Safety
///
/// For a host generator, the address has room for them.
unsafe fn generate(
    function: &'static Function,
    width: u64,
    generator: Object,
    output: *mut c_void,
    count: usize,
    more: &[u64],
) -> Result<(), Status> {
    let send = |address: u64| {
        let words = [generator as u64, address, count as u64];
        forward::send(function, &[&words, more].concat())
    };
    let Some(aside) = aside(generator) else {
        return send(output as u64);
    };
    if output.is_null() {
        return Err(status::OUT_OF_RANGE);
    }
    let bytes = (count as u64).checked_mul(width);
    let bytes = bytes.ok_or(status::ALLOCATION_FAILED)?;
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: promised by the caller.
    unsafe { aside.fetch(output, bytes, send) }
}

macro_rules! generate {
    ($($name:ident $width:literal ($($argument:ident: $type:ty),*);)*) => {$(
        /// cuRAND's function of this name.
        ///
        /// # Safety
        ///
        /// If the generator is one for the host, `outputPtr` has room for `num` numbers.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            generator: Object,
            outputPtr: *mut c_void,
            num: usize,
            $($argument: $type),*
        ) -> Status {
            const FUNCTION: &Function = Library::Curand.find(stringify!($name));
            let more: &[u64] = &[$($argument.word()),*];
            // SAFETY: promised by the caller.
            enter(|| unsafe { generate(FUNCTION, $width, generator, outputPtr, num, more) })
        }
    )*};
}

generate! {
    curandGenerate 4 ();
    curandGenerateLongLong 8 ();
    curandGenerateUniform 4 ();
    curandGenerateUniformDouble 8 ();
    curandGenerateNormal 4 (mean: f32, stddev: f32);
    curandGenerateNormalDouble 8 (mean: f64, stddev: f64);
    curandGenerateLogNormal 4 (mean: f32, stddev: f32);
    curandGenerateLogNormalDouble 8 (mean: f64, stddev: f64);
    curandGeneratePoisson 4 (lambda: f64);
    curandGeneratePoissonMethod 4 (lambda: f64, method: i32);
}
