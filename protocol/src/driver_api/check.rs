// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Checks at compile time that a function of this project has CUDA's signature.
//!
//! Functions exported to C take arguments of checked types, which contain one pointer each, instead of C's pointers. So
//! their types differ from those in [`signature`](super::signature), but each of their parameters is passed like C's
//! ([`Abi`]).

use std::ffi::c_void;

/// A type that a function can take where its C signature has `C`.
///
/// # Safety
///
/// It is passed like `C`, and every value of `C` that a caller may pass is a value of it.
pub unsafe trait Abi<C> {}

// SAFETY: they are the same.
unsafe impl<T> Abi<T> for T {}

// SAFETY: both are pointers; the function knows the meaning of untyped memory.
unsafe impl Abi<*const c_void> for *const u32 {}

/// A function that can stand for one of type `S`.
pub trait Implements<S> {}

macro_rules! functions {
    ($($own:ident as $c:ident),*) => {
        impl<R, $($own: Abi<$c>, $c),*> Implements<unsafe extern "C" fn($($c),*) -> R>
            for unsafe extern "C" fn($($own),*) -> R {}
    };
}

functions!();
functions!(A as A1);
functions!(A as A1, B as B1);
functions!(A as A1, B as B1, C as C1);
functions!(A as A1, B as B1, C as C1, D as D1);
functions!(A as A1, B as B1, C as C1, D as D1, E as E1);
functions!(A as A1, B as B1, C as C1, D as D1, E as E1, F as F1);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1, J as J1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1, J as J1,
    K as K1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1, J as J1,
    K as K1, L as L1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1, J as J1,
    K as K1, L as L1, M as M1, N as N1, O as O1
);
functions!(
    A as A1, B as B1, C as C1, D as D1, E as E1, F as F1, G as G1, H as H1, I as I1, J as J1,
    K as K1, L as L1, M as M1, N as N1, O as O1, P as P1
);

/// Compiles if a function of type `F` can replace one of type `S`.
pub const fn implements<S, F: Implements<S>>() {}

/// Checks the parameters of the exported function with this symbol against the driver API's. There is no code at run
/// time.
#[macro_export]
macro_rules! check_signature {
    ($symbol:ident ($($ty:ty),* $(,)?)) => {
        const _: () = $crate::driver_api::check::implements::<
            $crate::driver_api::signature::$symbol,
            unsafe extern "C" fn($($ty),*) -> $crate::cuda::CUresult,
        >();
    };
}
