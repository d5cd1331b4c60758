// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fills: the `cuMemset` family.
//!
//! The driver would check the chunk that contains the memory, not the allocation, so the range is checked here.

use gpgpu_protocol::{
    api::{Stream, reply, request},
    cuda::*,
};

use super::copy::{known, known_plane, plane_bytes};
use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

fn stream(session: &Session, id: u64) -> Result<CUstream, CUresult> {
    session.objects.raw::<Stream>(id).map(|raw| raw as CUstream)
}

/// Checks the range of a fill of `count` values. An empty fill accesses nothing, and the driver refuses an unaligned
/// one.
fn check<T>(session: &Session, dst: u64, count: usize) -> Result<(), CUresult> {
    if count == 0 {
        return Ok(());
    }
    let bytes = count.checked_mul(size_of::<T>());
    known(session, dst, bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?).map(drop)
}

/// The same for rows.
fn check_plane<T>(
    session: &Session,
    dst: u64,
    pitch: usize,
    width: usize,
    height: usize,
) -> Result<(), CUresult> {
    if width == 0 || height == 0 {
        return Ok(());
    }
    let row = width.checked_mul(size_of::<T>());
    known_plane(
        session,
        dst,
        pitch,
        row.ok_or(CUDA_ERROR_INVALID_VALUE)?,
        height,
    )
    .map(drop)
}

macro_rules! linear {
    ($($name:ident, $async:ident: $value:ident: $ty:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub fn $name(session: &Session, request: request::$name, _: Data) -> Outcome<reply::$name> {
            check::<$ty>(session, request.dstDevice, request.N)?;
            let bytes = request.N.saturating_mul(size_of::<$ty>()) as u64;
            session.wait_in(0, &[(request.dstDevice, bytes)]);
            // SAFETY: the range is memory that the guest has, or empty.
            unsafe { driver::$name(request.dstDevice, request.$value, request.N)? };
            session.device_memory.settle(&[request.dstDevice])?;
            Ok(reply::$name { dstDevice: (), $value: (), N: () })
        }

        #[doc = concat!("`", stringify!($async), "`.")]
        pub fn $async(session: &Session, request: request::$async, _: Data) -> Outcome<reply::$async> {
            let stream = stream(session, request.hStream)?;
            check::<$ty>(session, request.dstDevice, request.N)?;
            // SAFETY: as above; the stream is the driver's and lives.
            unsafe { driver::$async(request.dstDevice, request.$value, request.N, stream)? };
            Ok(reply::$async { dstDevice: (), $value: (), N: (), hStream: () })
        }
    )*};
}

linear! {
    cuMemsetD8_v2, cuMemsetD8Async: uc: u8;
    cuMemsetD16_v2, cuMemsetD16Async: us: u16;
    cuMemsetD32_v2, cuMemsetD32Async: ui: u32;
}

macro_rules! pitched {
    ($($name:ident, $async:ident: $value:ident: $ty:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        pub fn $name(session: &Session, request: request::$name, _: Data) -> Outcome<reply::$name> {
            let r = request;
            check_plane::<$ty>(session, r.dstDevice, r.dstPitch, r.Width, r.Height)?;
            let row = r.Width.saturating_mul(size_of::<$ty>());
            session.wait_in(0, &[(r.dstDevice, plane_bytes(r.dstPitch, row, r.Height))]);
            // SAFETY: as above.
            unsafe { driver::$name(r.dstDevice, r.dstPitch, r.$value, r.Width, r.Height)? };
            session.device_memory.settle(&[r.dstDevice])?;
            Ok(reply::$name { dstDevice: (), dstPitch: (), $value: (), Width: (), Height: () })
        }

        #[doc = concat!("`", stringify!($async), "`.")]
        pub fn $async(session: &Session, request: request::$async, _: Data) -> Outcome<reply::$async> {
            let r = request;
            let stream = stream(session, r.hStream)?;
            check_plane::<$ty>(session, r.dstDevice, r.dstPitch, r.Width, r.Height)?;
            // SAFETY: as above; the stream is the driver's and lives.
            unsafe { driver::$async(r.dstDevice, r.dstPitch, r.$value, r.Width, r.Height, stream)? };
            Ok(reply::$async { dstDevice: (), dstPitch: (), $value: (), Width: (), Height: (), hStream: () })
        }
    )*};
}

pitched! {
    cuMemsetD2D8_v2, cuMemsetD2D8Async: uc: u8;
    cuMemsetD2D16_v2, cuMemsetD2D16Async: us: u16;
    cuMemsetD2D32_v2, cuMemsetD2D32Async: ui: u32;
}
