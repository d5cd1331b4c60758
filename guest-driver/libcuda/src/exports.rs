// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The exported functions that the API table describes completely.

use gpgpu_protocol::{
    api::{Arg, request, *},
    check_signature,
    cuda::*,
    with_api,
};

use crate::{
    argument::GuestArg,
    client::{Client, client},
    ffi::{Result, end, enter, permit, traced},
    thread,
};

macro_rules! send {
    (post, $client:ident, $request:ident, $known:expr) => {
        if $known && thread::has_context($client) {
            $client.post(&$request).map(|()| None)
        } else {
            $client.call(&$request).map(Some)
        }
    };
    ($answered:ident, $client:ident, $request:ident, $known:expr) => {
        $client.call(&$request).map(Some)
    };
}

macro_rules! function {
    ($completion:ident $name:ident ($($arg:ident : $ty:ty),*)) => {
        /// As CUDA's documentation of the driver API describes it.
        ///
        /// # Safety
        ///
        /// Pointers are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        #[allow(clippy::not_unsafe_ptr_arg_deref)]
        pub unsafe extern "C" fn $name($($arg: <$ty as Arg>::C),*) -> CUresult {
            fn body(client: &Client, $($arg: <$ty as Arg>::C),*) -> Result {
                let request = request::$name { $($arg: <$ty as GuestArg>::lower(client, $arg)?),* };
                let _known = true $(&& <$ty as GuestArg>::is_known(client, &request.$arg))*;
                if let Some(_reply) = send!($completion, client, request, _known)? {
                    $(<$ty as GuestArg>::raise(client, $arg, _reply.$arg);)*
                }
                $(<$ty as GuestArg>::settle(client, $arg, &request.$arg);)*
                Ok(())
            }
            let traced = traced!($name ($($arg: <$ty as Arg>::C),*));
            let code = enter(stringify!($name), || {
                permit!($name);
                body(client()?, $($arg),*)
            });
            end(traced, code)
        }
        check_signature!($name($(<$ty as Arg>::C),*));
    };
}

macro_rules! export {
    (plain $completion:ident $name:ident ($($args:tt)*)) => {
        function!($completion $name ($($args)*));
    };
    (worker $($rest:tt)*) => {
        export!(plain $($rest)*);
    };
    ($by_hand:ident $($rest:tt)*) => {};
}

macro_rules! exports {
    ($($(#[doc = $doc:literal])* $op:literal $completion:ident $style:ident $name:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*) $($is:ident)*;)*) => {
        $(export!($style $completion $name $($per_thread)? ($($arg: $ty),*));)*
    };
}

with_api!(exports);
