// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA's environment variables that this library implements itself, because the worker's driver has the service's
//! environment. [`crate::visible`] has the variables that select devices.

use std::sync::OnceLock;

use gpgpu_client::variable::trusted;

/// The process's environment variables, which are read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `CUDA_LAUNCH_BLOCKING`: each launch waits for its kernel, and returns its error too.
    pub waits_for_launches: bool,
    /// `CUDA_MODULE_LOADING=EAGER`: functions are loaded with their image.
    pub is_eager: bool,
    /// `CUDA_FORCE_JIT`, `CUDA_FORCE_PTX_JIT`: machine code in a fatbin is not used.
    pub forces_jit: bool,
    /// `CUDA_DISABLE_JIT`, `CUDA_DISABLE_PTX_JIT`: text is not compiled.
    pub disables_jit: bool,
    /// `CUDA_GRAPHS_USE_NODE_PRIORITY`: as if every graph were instantiated with the flag of that name.
    pub uses_node_priority: bool,
    /// `CUDA_MANAGED_FORCE_DEVICE_ALLOC`: managed memory that no device memory can serve fails.
    pub forces_device_memory: bool,
}

impl Environment {
    /// Reads variables by `get`.
    fn read(get: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| get(name).is_some_and(|of| of == value);
        let is_set = |name: &str| get(name).is_some_and(|of| !matches!(of.trim(), "" | "0"));
        Self {
            waits_for_launches: is_set("CUDA_LAUNCH_BLOCKING"),
            is_eager: is("CUDA_MODULE_LOADING", "EAGER"),
            // NVIDIA's driver (580) accepts only 1 for these.
            forces_jit: is("CUDA_FORCE_JIT", "1") || is("CUDA_FORCE_PTX_JIT", "1"),
            disables_jit: is("CUDA_DISABLE_JIT", "1") || is("CUDA_DISABLE_PTX_JIT", "1"),
            uses_node_priority: is("CUDA_GRAPHS_USE_NODE_PRIORITY", "1"),
            forces_device_memory: is_set("CUDA_MANAGED_FORCE_DEVICE_ALLOC"),
        }
    }
}

/// `CUDA_LOG_FILE`: the file for messages about failed calls. It counts from the first failed call, which may come before `cuInit`.
pub fn log_file() -> Option<&'static str> {
    static FILE: OnceLock<Option<String>> = OnceLock::new();
    let read = || trusted("CUDA_LOG_FILE")?.into_string().ok();
    FILE.get_or_init(read).as_deref()
}

/// This process's environment variables, as they were at `cuInit` or, before it, at the first call that depends on one.
pub fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| Environment::read(|name| std::env::var(name).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_nvidias_driver_reads_them() {
        let of = |variables: &[(&str, &str)]| {
            Environment::read(|name| {
                let found = variables.iter().find(|(of, _)| *of == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(of(&[]), Environment::default());
        for value in ["0", "2", "", "yes"] {
            let jit = of(&[("CUDA_FORCE_JIT", value), ("CUDA_DISABLE_PTX_JIT", value)]);
            assert_eq!(jit, Environment::default());
        }
        assert!(of(&[("CUDA_FORCE_PTX_JIT", "1")]).forces_jit);
        assert!(of(&[("CUDA_DISABLE_JIT", "1")]).disables_jit);
        assert!(of(&[("CUDA_LAUNCH_BLOCKING", "2")]).waits_for_launches);
        assert!(!of(&[("CUDA_LAUNCH_BLOCKING", " 0")]).waits_for_launches);
        assert!(!of(&[("CUDA_MODULE_LOADING", "LAZY")]).is_eager);
    }
}
