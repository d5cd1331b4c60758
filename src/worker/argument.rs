// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The path of an argument of the API table: from a request into a call of the driver, and into the reply.

use gpgpu_protocol::{
    api::{
        Arg, Context, Event, Flags, Function, In, Kernel, Library, Module, New, Object, Out, Stream,
    },
    codec::Wire,
    cuda::*,
};

use super::{
    objects::{Begun, Entry},
    session::Session,
};
use crate::cuda::driver;

/// An argument in the worker.
pub trait WorkerArg: Arg {
    /// The argument during the driver's call.
    type Held;

    /// Looks up the object of the request.
    fn hold(session: &Session, request: Self::Request) -> Result<Self::Held, CUresult>;
    /// The argument in the driver's form. A pointer is valid as long as `held`.
    fn pass(held: &mut Self::Held) -> Self::C;
    /// After success: records objects that were made or ended, and returns the argument's part of the reply.
    fn settle(session: &Session, held: Self::Held) -> Self::Reply;
}

macro_rules! by_value {
    ($($ty:ty),*) => {$(
        impl WorkerArg for $ty {
            type Held = $ty;

            fn hold(_: &Session, request: $ty) -> Result<$ty, CUresult> {
                Ok(request)
            }

            fn pass(held: &mut $ty) -> $ty {
                *held
            }

            fn settle(_: &Session, _: $ty) {}
        }
    )*};
}

by_value!(u8, u16, u32, u64, i32, usize);

impl<const GOOD: u32> WorkerArg for Flags<GOOD> {
    type Held = u32;

    fn hold(_: &Session, request: u32) -> Result<u32, CUresult> {
        Ok(request)
    }

    fn pass(held: &mut u32) -> u32 {
        *held
    }

    fn settle(_: &Session, _: u32) {}
}

impl<T: Wire + Default> WorkerArg for Out<T> {
    type Held = (bool, T);

    fn hold(_: &Session, wanted: bool) -> Result<(bool, T), CUresult> {
        Ok((wanted, T::default()))
    }

    fn pass((wanted, value): &mut (bool, T)) -> *mut T {
        if *wanted { value } else { std::ptr::null_mut() }
    }

    fn settle(_: &Session, (_, value): (bool, T)) -> T {
        value
    }
}

impl<T: Wire> WorkerArg for In<T> {
    type Held = Option<T>;

    fn hold(_: &Session, request: Option<T>) -> Result<Option<T>, CUresult> {
        Ok(request)
    }

    fn pass(held: &mut Option<T>) -> *const T {
        held.as_ref().map_or(std::ptr::null(), std::ptr::from_ref)
    }

    fn settle(_: &Session, _: Option<T>) {}
}

macro_rules! handles {
    ($($kind:ty),*) => {$(
        impl WorkerArg for $kind {
            type Held = u64;

            fn hold(session: &Session, id: u64) -> Result<u64, CUresult> {
                session.objects.raw::<$kind>(id)
            }

            fn pass(raw: &mut u64) -> <$kind as Object>::Handle {
                <$kind as Object>::handle(*raw)
            }

            fn settle(_: &Session, _: u64) {}
        }
    )*};
}

handles!(Context, Module, Library, Kernel, Stream, Event);

impl WorkerArg for Function {
    type Held = u64;

    fn hold(session: &Session, id: u64) -> Result<u64, CUresult> {
        Ok(session.function(id)?.raw)
    }

    fn pass(raw: &mut u64) -> CUfunction {
        Function::handle(*raw)
    }

    fn settle(_: &Session, _: u64) {}
}

impl<K: Object> WorkerArg for New<K> {
    type Held = (Begun<'static>, K::Handle);

    fn hold(session: &Session, id: u64) -> Result<Self::Held, CUresult> {
        Ok((session.begin::<K>(id)?, K::handle(0)))
    }

    fn pass((_, handle): &mut Self::Held) -> *mut K::Handle {
        handle
    }

    fn settle(session: &Session, (begun, handle): Self::Held) {
        let id = begun.id();
        let context = match K::KIND {
            Stream::KIND => session.entered(),
            _ => session.current(),
        };
        begun.finish(Entry::new(K::id(handle), context));
        if K::KIND == Stream::KIND {
            let mut flags = 0;
            // SAFETY: the driver has just made the stream; the pointer is to a value that lives across the call.
            let asked = unsafe { driver::cuStreamGetFlags(K::id(handle) as CUstream, &mut flags) };
            let is_apart = asked.is_err() || flags & CU_STREAM_NON_BLOCKING != 0;
            session.objects.list_stream(id, context, is_apart);
        }
    }
}
