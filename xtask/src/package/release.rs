// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The data that all packages of a build share: version, maintainer and time.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::paths::Paths;
use crate::process::capture;

/// The maintainer of the packages if the workspace has none.
const MAINTAINER: &str = "The virtio-gpgpu authors <virtio-gpgpu@localhost>";

/// A build.
#[derive(Clone, Debug)]
pub struct Release {
    /// The version in Debian's format.
    pub version: String,
    /// Name and address.
    pub maintainer: String,
    /// Seconds since 1970: `SOURCE_DATE_EPOCH`, or the time of the last commit.
    pub epoch: u64,
    /// The same in a changelog's format.
    pub date: String,
    /// The last commit.
    pub commit: String,
}

#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
}

#[derive(Deserialize)]
struct Workspace {
    package: Package,
}

#[derive(Deserialize)]
struct Package {
    version: String,
    #[serde(default)]
    authors: Vec<String>,
}

impl Release {
    /// Reads the workspace's manifest and queries git for the last commit.
    pub fn find(paths: &Paths) -> Result<Self> {
        let manifest = paths.root.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)
            .with_context(|| format!("cannot read {}", manifest.display()))?;
        let Manifest { workspace } = toml::from_str(&text)?;
        let git = |what: &str| -> Result<String> {
            let mut command = Command::new("git");
            command.args(["log", "-1", &format!("--format={what}")]);
            Ok(capture(command.current_dir(&paths.root))?.trim().to_owned())
        };
        let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(epoch) => epoch,
            Err(_) => git("%ct").context("neither SOURCE_DATE_EPOCH nor git gives a date")?,
        };
        let epoch = epoch.parse().context("SOURCE_DATE_EPOCH is not a number")?;
        let date = capture(
            Command::new("date")
                .args(["--utc", "--rfc-email", &format!("--date=@{epoch}")])
                .env("LC_ALL", "C"),
        )?;
        let authors = workspace.package.authors;
        let author = authors.into_iter().find(|author| author.contains('<'));
        Ok(Self {
            version: debian_version(&workspace.package.version),
            maintainer: author.unwrap_or_else(|| MAINTAINER.to_owned()),
            epoch,
            date: date.trim().to_owned(),
            // An archive of the sources has no history.
            commit: git("%H").unwrap_or_default(),
        })
    }

    /// The same with another version.
    pub fn with_version(&self, version: &str) -> Self {
        Self {
            version: version.to_owned(),
            ..self.clone()
        }
    }

    /// The changelog of `package`.
    pub fn changelog(&self, package: &str) -> String {
        let of = match self.commit.as_str() {
            "" => String::new(),
            commit => format!(" of commit {commit}"),
        };
        format!(
            "{package} ({}) unstable; urgency=medium\n\n  * Build{of}.\n\n -- {}  {}\n",
            self.version, self.maintainer, self.date
        )
    }
}

/// Cargo's version in Debian's format: a pre-release sorts before its release.
fn debian_version(version: &str) -> String {
    version.replacen('-', "~", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pre_release_sorts_before_its_release() {
        assert_eq!(debian_version("1.2.3"), "1.2.3");
        assert_eq!(debian_version("1.2.3-rc.1"), "1.2.3~rc.1");
    }
}
