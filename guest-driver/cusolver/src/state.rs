// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation and destruction of handles, and their settings.

use gpgpu_library::{
    Object, Status, forward,
    forward::{Request, set_stream},
    give,
    handle::find,
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Class, Function, Library::Cusolver},
};

use crate::{LIBRARY, enter};

/// Returns a handle's stream.
///
/// # Safety
///
/// `stream` is NULL or the caller's to write to.
unsafe fn get_stream(class: Class, handle: Object, stream: *mut CUstream) -> Status {
    enter(|| {
        let told = find(class, handle)?.told().stream;
        // SAFETY: promised by the caller.
        unsafe { give(LIBRARY, stream, told as CUstream) }
    })
}

macro_rules! handles {
    ($($class:ident: $create:ident $destroy:ident $set:ident $get:ident;)*) => {$(
        /// cuSOLVER's function of this name.
        ///
        /// # Safety
        ///
        /// `handle` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(handle: *mut Object) -> Status {
            const CREATE: &Function = Cusolver.find(stringify!($create));
            enter(|| forward::send(CREATE, &[handle as u64]))
        }

        /// cuSOLVER's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $destroy(handle: Object) -> Status {
            const DESTROY: &Function = Cusolver.find(stringify!($destroy));
            enter(|| forward::send(DESTROY, &[handle as u64]))
        }

        /// cuSOLVER's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(handle: Object, streamId: CUstream) -> Status {
            enter(|| set_stream(Class::$class, handle, streamId))
        }

        /// cuSOLVER's function of this name.
        ///
        /// # Safety
        ///
        /// `streamId` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(handle: Object, streamId: *mut CUstream) -> Status {
            // SAFETY: promised by the caller.
            unsafe { get_stream(Class::$class, handle, streamId) }
        }
    )*};
}

handles! {
    CusolverDn: cusolverDnCreate cusolverDnDestroy cusolverDnSetStream cusolverDnGetStream;
    CusolverSp: cusolverSpCreate cusolverSpDestroy cusolverSpSetStream cusolverSpGetStream;
}

/// Sends a setting to cuSOLVER. It may change which calls cuSOLVER accepts, and the sizes of workspaces.
fn set(function: &'static Function, handle: Object, value: i32) -> Status {
    enter(|| {
        let known = find(Class::CusolverDn, handle)?;
        Request::new(function, &[handle as u64, value as u64]).ask()?;
        known.forget_accepted();
        forward::forget_answers();
        Ok(())
    })
}

macro_rules! settings {
    ($($name:ident)*) => {$(
        /// cuSOLVER's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: Object, value: i32) -> Status {
            const SET: &Function = Cusolver.find(stringify!($name));
            set(SET, handle, value)
        }
    )*};
}

settings! {
    cusolverDnSetDeterministicMode
    cusolverDnSetMathMode
    cusolverDnSetEmulationStrategy
    cusolverDnSetEmulationSpecialValuesSupport
    cusolverDnSetFixedPointEmulationMantissaControl
    cusolverDnSetFixedPointEmulationMaxMantissaBitCount
    cusolverDnSetFixedPointEmulationMantissaBitOffset
}
