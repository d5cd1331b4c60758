// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Building the programs of `benches/programs`.

use std::path::PathBuf;

use anyhow::Result;

use crate::artifacts::Stage;
use crate::cuda::Cuda;
use crate::make::MakefileDirectory;
use crate::paths::Paths;

const DIRECTORY: MakefileDirectory<'_> = MakefileDirectory {
    source: "benches/programs",
    part: "bench",
    label: "benchmark programs",
    programs: &[
        "calls",
        "copies",
        "start",
        "idle",
        "load",
        "runtime",
        "floors",
        "library-calls",
        "features",
    ],
    data: &[],
};

/// The directory of the programs in a stage.
pub fn dir(stage: &Stage) -> PathBuf {
    stage.dir.join(DIRECTORY.part)
}

/// Builds the programs into the stage, if their sources changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Stage) -> Result<()> {
    DIRECTORY.build(paths, cuda, stage)
}
