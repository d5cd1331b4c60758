//! The functions that are not there yet: exported, so that programs start, and honest when called.

use std::{collections::HashSet, sync::Mutex};

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::cuda::*;

fn refuse(name: &'static str) -> CUresult {
    static NAMED: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut named = NAMED
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if named.get_or_insert_default().insert(name) {
        log::say(Level::Error, || format!("{name} is not supported yet"));
    }
    CUDA_ERROR_NOT_SUPPORTED
}

macro_rules! unsupported {
    ($($name:ident)*) => {$(
        /// Not supported yet.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> CUresult {
            refuse(stringify!($name))
        }
    )*};
}

// Every entry point that neither the API table nor a file of this crate defines (build.rs).
include!(concat!(env!("OUT_DIR"), "/unsupported.rs"));
