// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The macros that declare the exported functions.

/// Declares exported runtime functions. The body is an expression of type
/// [`Result<()>`](crate::error::Result); its error becomes the calling thread's last error.
///
/// - `fn cudaX(args) { body }` exports `cudaX`.
/// - `fn(ds) cudaX, cudaX_ptsz(args) { body }` exports two functions with the same body. They differ in `ds`, the
///   [`DefaultStream`](crate::stream::DefaultStream) that NULL means.
/// - `pass fn cudaX(args) => cuX;` passes the arguments unchanged to the driver function `cuX`, with a context current;
///   `pass fn(stream) cudaX, cudaX_ptsz(args) => cuX;` also names the argument that is a stream, for which NULL is
///   translated.
macro_rules! export {
    () => {};
    (fn($ds:ident) $name:ident, $per_thread:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::abi::cudaError_t {
            #[allow(unused_variables)]
            let $ds = $crate::stream::DefaultStream::Legacy;
            let traced = $crate::traced::traced!($name ($($arg: $ty),*));
            // SAFETY: the body relies only on CUDA's requirements on callers of this function.
            let code = $crate::error::record(|| unsafe { $body });
            $crate::traced::end(traced, code)
        }
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $per_thread($($arg: $ty),*) -> $crate::abi::cudaError_t {
            #[allow(unused_variables)]
            let $ds = $crate::stream::DefaultStream::PerThread;
            let traced = $crate::traced::traced!($per_thread ($($arg: $ty),*));
            // SAFETY: as above.
            let code = $crate::error::record(|| unsafe { $body });
            $crate::traced::end(traced, code)
        }
        export! { $($rest)* }
    };
    (fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $body:block $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $crate::abi::cudaError_t {
            let traced = $crate::traced::traced!($name ($($arg: $ty),*));
            // SAFETY: the body relies only on CUDA's requirements on callers of this function.
            let code = $crate::error::record(|| unsafe { $body });
            $crate::traced::end(traced, code)
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

/// Declares exported functions that this library does not implement: each returns `cudaErrorNotSupported` and, if
/// logging is on, writes its name once.
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
