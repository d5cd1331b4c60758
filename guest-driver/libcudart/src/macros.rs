// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The macros by which each exported function is declared, once.

/// Declares exported runtime functions. The body is an expression of type
/// [`Result<()>`](crate::error::Result); its error becomes the calling thread's last error.
///
/// - `fn cudaX(args) { body }` exports `cudaX`.
/// - `fn(ds) cudaX, cudaX_ptsz(args) { body }` exports two functions of one body that
///   differ in `ds`, the [`DefaultStream`](crate::stream::DefaultStream) they mean by NULL.
/// - `pass fn cudaX(args) => cuX;` hands the arguments to the driver function `cuX` as they are,
///   with a context current; `pass fn(stream) cudaX, cudaX_ptsz(args) => cuX;` also says which
///   argument is a stream that NULL has to be translated for.
macro_rules! export {
    () => {};
    (fn($ds:ident) $name:ident, $per_thread:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::abi::cudaError_t {
            #[allow(unused_variables)]
            let $ds = $crate::stream::DefaultStream::Legacy;
            // SAFETY: the body relies only on CUDA's requirements on callers of this function.
            $crate::error::record(|| unsafe { $body })
        }
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $per_thread($($arg: $ty),*) -> $crate::abi::cudaError_t {
            #[allow(unused_variables)]
            let $ds = $crate::stream::DefaultStream::PerThread;
            // SAFETY: as above.
            $crate::error::record(|| unsafe { $body })
        }
        export! { $($rest)* }
    };
    (fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::abi::cudaError_t {
            // SAFETY: the body relies only on CUDA's requirements on callers of this function.
            $crate::error::record(|| unsafe { $body })
        }
        export! { $($rest)* }
    };
    (pass fn($stream:ident) $name:ident, $per_thread:ident ($($arg:ident: $ty:ty),* $(,)?) => $driver:ident; $($rest:tt)*) => {
        export! {
            fn(ds) $name, $per_thread ($($arg: $ty),*) {
                let $stream = ds.of($stream);
                $crate::context::current()?.$driver($($arg),*)
            }
            $($rest)*
        }
    };
    (pass fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) => $driver:ident; $($rest:tt)*) => {
        export! {
            fn $name($($arg: $ty),*) {
                $crate::context::current()?.$driver($($arg),*)
            }
            $($rest)*
        }
    };
}

/// Declares exported functions that this library does not have: each returns
/// `cudaErrorNotSupported` and, with logging on, names itself once.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> $crate::abi::cudaError_t {
            static NAMED: $crate::log::Once = $crate::log::Once::new();
            NAMED.unsupported(stringify!($name));
            $crate::error::record(|| Err($crate::error::NOT_SUPPORTED))
        }
    )*};
}
