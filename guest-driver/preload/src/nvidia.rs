// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVIDIA's own libraries. Their licence does not allow changes, even in memory, so the preload changes none.

use std::path::Path;

/// The prefixes of the names of NVIDIA's libraries. NCCL is not in the list: its licence allows changes.
const BEGINNINGS: [&str; 37] = [
    "libaccinj",
    "libcal.",
    "libcublas",
    "libcuda.",
    "libcudadebugger",
    "libcudart",
    "libcudla",
    "libcudnn",
    "libcudss",
    "libcufft",
    "libcufile",
    "libcuinj",
    "libcupti",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libcustatevec",
    "libcutensor",
    "libnpp",
    "libnvblas",
    "libnvcomp",
    "libnvcudla",
    "libnvfatbin",
    "libnvidia",
    "libnvinfer",
    "libnvimgcodec",
    "libnvJitLink",
    "libnvjitlink",
    "libnvjpeg",
    "libnvonnxparser",
    "libnvoptix",
    "libnvperf",
    "libnvrtc",
    "libnvshmem",
    "libnvToolsExt",
    "libnvtx",
    "libnvvm",
];

/// Whether this name of a library, its file's or its own (`DT_SONAME`), is one of NVIDIA's.
pub fn is_nvidias(name: &str) -> bool {
    BEGINNINGS
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// Like [`is_nvidias`], for a file's path.
pub fn is_nvidias_file(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| is_nvidias(&name.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidias_are_told_from_others() {
        for name in [
            "libcublasLt.so.13",
            "libcudnn_ops.so.9",
            "libnvJitLink.so.13",
            "libcuda.so.1",
            "libcurand-1a2b3c.so.10",
        ] {
            assert!(is_nvidias(name), "{name}");
        }
        for name in [
            "libnccl.so.2",
            "libtorch_cuda.so",
            "runtime.cpython-311-x86_64-linux-gnu.so",
            "",
        ] {
            assert!(!is_nvidias(name), "{name}");
        }
        assert!(is_nvidias_file(Path::new("/a/libcufft.so.12")));
        assert!(!is_nvidias_file(Path::new("/libcufft/libx.so")));
    }
}
