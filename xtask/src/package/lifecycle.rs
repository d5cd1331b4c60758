// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
pub const EARLIER: &str = "0.0.1";
pub fn run(
    _kit: &crate::kit::Kit,
    _clean: &std::path::Path,
    _d: super::root::Debian,
    _m: &[std::path::PathBuf],
    _e: &[std::path::PathBuf],
) -> anyhow::Result<()> {
    Ok(())
}
