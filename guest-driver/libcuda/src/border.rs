//! Where C calls come in: the exported functions, none of which lets a panic out.

pub use gpgpu_client::ffi::{Result, enter};

/// Declares exported CUDA functions. Arguments are C-compatible types ([`crate::argument`]), so the body is safe code, and a
/// function whose arguments are not the driver API's does not compile.
#[macro_export]
macro_rules! cuda {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident : $ty:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        ///
        /// The arguments are as CUDA's documentation asks: pointers are NULL or valid for what the function reads or writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> gpgpu_protocol::cuda::CUresult {
            $crate::border::enter(stringify!($name), || $body)
        }
        gpgpu_protocol::check_signature!($name($($ty),*));
    )*};
}
