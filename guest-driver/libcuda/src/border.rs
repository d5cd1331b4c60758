//! Where C calls come in: no panic leaves, every failure is a `CUresult`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gpgpu_protocol::cuda::*;

use crate::log::{self, Level};

/// What a CUDA function comes to: nothing, or the code of its failure.
pub type Result<T = ()> = std::result::Result<T, CUresult>;

/// Runs the body of the CUDA function `name`.
pub fn enter(name: &str, body: impl FnOnce() -> Result) -> CUresult {
    // A panic is a bug of this library; unwinding into C would be undefined behaviour on top.
    let code = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => CUDA_ERROR_UNKNOWN,
    };
    if code != CUDA_SUCCESS {
        log::say(Level::Debug, || {
            format!(
                "{name} returns {code} ({})",
                result_name(code).unwrap_or("unknown")
            )
        });
    }
    code
}

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
