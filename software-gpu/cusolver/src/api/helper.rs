// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles and objects, their settings, and functions about the library itself.

use std::ffi::{c_int, c_void};

use gpgpu_locks::Mutex;
use gpgpu_stand_in::{driver::Name, objects::Objects};

use crate::handle::{
    Answer, GESVDJ, Jacobi, PARAMS, Raw, SYEVJ, create, destroy, enter, enter_with, with,
};
use crate::types::{Result, Status, require};

/// 12.0.4, as `cusolver_common.h` counts.
const VERSION: [c_int; 3] = [12, 0, 4];

/// Defines exported functions of one type.
macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),*) $(|$handle:ident|)? $body:block)*) => {$(
        $(#[$m])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($a: $t),*) -> c_int {
            export!(@call $(($handle))? $body)
        }
    )*};
    (@call ($handle:ident) $body:block) => { enter_with($handle, |$handle| $body) };
    (@call $body:block) => { enter(|| $body) };
}

fn make<T>(objects: &Objects<Mutex<T>>, out: Answer<Raw>, object: T) -> Result {
    require(!out.is_null())?;
    out.set(objects.add(Mutex::new(object)) as Raw)
}

fn end<T>(objects: &Objects<Mutex<T>>, name: Raw) -> Result {
    let ended = objects.remove(name as usize);
    ended.map(|_| ()).ok_or(Status::InvalidValue)
}

/// As NVIDIA's, but for the tolerance, which nothing here asks for.
const JACOBI: Jacobi = Jacobi {
    tolerance: 0.0,
    most: 100,
    sorted: 1,
    rounds: 0,
};

export! {
    /// Makes a handle in the current context, or in the first device's primary one if there is none.
    fn cusolverDnCreate(out: Answer<Raw>) {
        require(!out.is_null())?;
        out.set(create()?)
    }

    /// Waits for the handle's work and destroys the handle.
    fn cusolverDnDestroy(handle: Raw) { destroy(handle) }

    /// The version as one number.
    fn cusolverGetVersion(version: Answer<c_int>) {
        version.set(VERSION[0] * 1000 + VERSION[1] * 100 + VERSION[2])
    }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn cusolverGetProperty(part: c_int, value: Answer<c_int>) {
        let part = usize::try_from(part).ok().and_then(|p| VERSION.get(p));
        value.set(*part.ok_or(Status::InvalidValue)?)
    }

    /// The stream of later work.
    fn cusolverDnSetStream(handle: Raw, stream: *mut c_void) |handle| {
        handle.settings().stream = Name(stream);
        Ok(())
    }

    /// The stream that was set, or NULL.
    fn cusolverDnGetStream(handle: Raw, stream: Answer<*mut c_void>) |handle| {
        stream.set(handle.settings().stream.0)
    }

    /// Makes a handle for functions of sparse matrices, none of which are supported here.
    fn cusolverSpCreate(out: Answer<Raw>) {
        require(!out.is_null())?;
        out.set(create()?)
    }

    /// Waits for the handle's work and destroys the handle.
    fn cusolverSpDestroy(handle: Raw) { destroy(handle) }

    /// The stream of later work.
    fn cusolverSpSetStream(handle: Raw, stream: *mut c_void) |handle| {
        handle.settings().stream = Name(stream);
        Ok(())
    }

    /// Sets whether results may differ from run to run. Here they never do.
    fn cusolverDnSetDeterministicMode(handle: Raw, mode: c_int) |handle| {
        require(matches!(mode, 1 | 2))?;
        handle.settings().deterministic = mode;
        Ok(())
    }

    /// The mode that was set.
    fn cusolverDnGetDeterministicMode(handle: Raw, mode: Answer<c_int>) |handle| {
        mode.set(handle.settings().deterministic)
    }

    /// Options of the generic functions.
    fn cusolverDnCreateParams(out: Answer<Raw>) { make(&PARAMS, out, ()) }

    /// They end.
    fn cusolverDnDestroyParams(params: Raw) { end(&PARAMS, params) }

    /// Sets the algorithm of a function. There is one of each.
    fn cusolverDnSetAdvOptions(params: Raw, function: c_int, algorithm: c_int) {
        require((0..=2).contains(&function) && (0..=2).contains(&algorithm))?;
        with(&PARAMS, params, |()| ())
    }

    /// Options of the singular value decomposition by Jacobi's method.
    fn cusolverDnCreateGesvdjInfo(out: Answer<Raw>) { make(&GESVDJ, out, JACOBI) }

    /// They end.
    fn cusolverDnDestroyGesvdjInfo(info: Raw) { end(&GESVDJ, info) }

    /// Sets the tolerance of the off-diagonal remainder.
    fn cusolverDnXgesvdjSetTolerance(info: Raw, tolerance: f64) {
        with(&GESVDJ, info, |info| info.tolerance = tolerance)
    }

    /// The most rounds.
    fn cusolverDnXgesvdjSetMaxSweeps(info: Raw, most: c_int) {
        with(&GESVDJ, info, |info| info.most = most)
    }

    /// Sets whether values are sorted.
    fn cusolverDnXgesvdjSetSortEig(info: Raw, sorted: c_int) {
        with(&GESVDJ, info, |info| info.sorted = sorted)
    }

    /// The rounds of the last decomposition.
    fn cusolverDnXgesvdjGetSweeps(handle: Raw, info: Raw, rounds: Answer<c_int>) |handle| {
        handle.answer(|_| Ok(()))?;
        rounds.set(with(&GESVDJ, info, |info| info.rounds)?)
    }

    /// The off-diagonal remainder, which is less than the tolerance.
    fn cusolverDnXgesvdjGetResidual(handle: Raw, info: Raw, residual: Answer<f64>) |handle| {
        handle.answer(|_| Ok(()))?;
        residual.set(with(&GESVDJ, info, |info| info.tolerance)? / 2.0)
    }

    /// Options of the eigenvalues by Jacobi's method.
    fn cusolverDnCreateSyevjInfo(out: Answer<Raw>) { make(&SYEVJ, out, JACOBI) }

    /// They end.
    fn cusolverDnDestroySyevjInfo(info: Raw) { end(&SYEVJ, info) }

    /// Sets the tolerance of the off-diagonal remainder.
    fn cusolverDnXsyevjSetTolerance(info: Raw, tolerance: f64) {
        with(&SYEVJ, info, |info| info.tolerance = tolerance)
    }

    /// The most rounds.
    fn cusolverDnXsyevjSetMaxSweeps(info: Raw, most: c_int) {
        with(&SYEVJ, info, |info| info.most = most)
    }

    /// The rounds of the last call.
    fn cusolverDnXsyevjGetSweeps(handle: Raw, info: Raw, rounds: Answer<c_int>) |handle| {
        handle.answer(|_| Ok(()))?;
        rounds.set(with(&SYEVJ, info, |info| info.rounds)?)
    }
}
