// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Environment variables that NVIDIA's libraries read in the process that calls them.
//!
//! That process is the worker, so the guest's library sends their values.

use super::Class;

/// Sizes and numbers of the workspaces of a handle of cuBLAS.
const WORKSPACE: &str = "CUBLAS_WORKSPACE_CONFIG";

/// The variables that travel, as the operation `gpgpuLibraryVariable` lists them: those of NVIDIA's documentation that
/// change results or the use of memory (cuBLAS, "Results reproducibility" and "Floating-point emulation"; CUDA C++
/// programming guide, "Environment variables"). Variables that name files, or that log, concern the host.
pub const VARIABLES: [&str; 6] = [
    WORKSPACE,
    "NVIDIA_TF32_OVERRIDE",
    "CUBLAS_EMULATE_SINGLE_PRECISION",
    "CUBLAS_EMULATE_DOUBLE_PRECISION",
    "CUBLAS_EMULATION_STRATEGY",
    "CUBLAS_FIXEDPOINT_EMULATION_MANTISSA_BIT_COUNT",
];

/// The length of the longest value, in bytes.
pub const LONGEST_VALUE: usize = 64;

/// The memory of a handle of cuBLAS without its workspaces, in bytes, on an H100.
const WITHOUT_WORKSPACES: u64 = 36 << 20;

/// The maximum total size of the workspaces of a handle, in KiB: the rest of its charge.
const LARGEST_WORKSPACE: u64 = (Class::CublasHandle.device_bytes() - WITHOUT_WORKSPACES) / 1024;

/// Whether a variable may travel with this value: letters of ASCII, digits, `_`, `:`, `,`, `.` and `-`, and workspaces
/// of at most 60 MiB together.
pub fn may_travel(name: &str, value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_:,.-".contains(&byte);
    VARIABLES.contains(&name)
        && value.len() <= LONGEST_VALUE
        && value.bytes().all(is_plain)
        && (name != WORKSPACE || workspace(value).is_some_and(|size| size <= LARGEST_WORKSPACE))
}

/// The size of the workspaces of `:SIZE:COUNT`, once or more often, in KiB; `None` for another form.
fn workspace(value: &str) -> Option<u64> {
    let numbers: Option<Vec<u64>> = value
        .strip_prefix(':')?
        .split(':')
        .map(|number| number.parse().ok())
        .collect();
    let numbers = numbers.filter(|numbers| numbers.len().is_multiple_of(2))?;
    numbers
        .chunks(2)
        .try_fold(0u64, |sum, of| sum.checked_add(of[0].checked_mul(of[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_numbers_and_words_travel_and_others_do_not() {
        assert!(may_travel(WORKSPACE, ":4096:2:16:8"));
        assert!(may_travel("CUBLAS_EMULATION_STRATEGY", "performant"));
        assert!(may_travel("NVIDIA_TF32_OVERRIDE", ""));
        for value in ["/etc/passwd", "%s", "a b", "a\0", "é", &"1".repeat(65)] {
            assert!(!may_travel("NVIDIA_TF32_OVERRIDE", value), "{value}");
        }
        assert!(!may_travel("LD_PRELOAD", "1"));
        assert!(!may_travel("CUBLASLT_LOG_FILE", "1"));
    }

    #[test]
    fn the_specification_and_the_manual_list_the_variables_and_the_limits() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for page in ["spec/operations.md", "docs/libraries.md"] {
            let text = std::fs::read_to_string(root.join(page)).unwrap();
            let limits = [
                format!("at most {} MiB", LARGEST_WORKSPACE >> 10),
                format!("at most {LONGEST_VALUE} "),
            ];
            for word in VARIABLES
                .iter()
                .copied()
                .chain(limits.iter().map(String::as_str))
            {
                assert!(text.contains(word), "{page}: {word}");
            }
        }
    }

    #[test]
    fn a_workspace_is_not_larger_than_its_charge() {
        assert_eq!(workspace(":4096:8"), Some(32 << 10));
        assert_eq!(workspace(":4096:2:16:8"), Some(8320));
        for value in [":16:8", ":0:0", ":4096:15"] {
            assert!(may_travel(WORKSPACE, value), "{value}");
        }
        let huge = format!(":{}:2:{0}:2", u64::MAX / 2);
        for value in [
            "", ":", ":4096", "4096:8", ":-1:8", ":4096:16", ":4096:8:", &huge,
        ] {
            assert!(!may_travel(WORKSPACE, value), "{value}");
        }
    }
}
