// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Landlock rules: they restrict access to files by any path or descriptor, and forbid TCP, and signals and abstract
//! sockets to other processes.
//!
//! The root directory already hides other files from a role. The rules also apply to descriptors from outside it: from
//! a directory's descriptor, a path can lead to other files. On kernels that do not know all kinds of rules, the known
//! ones apply.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope, make_bitflags,
};

use super::{
    Error,
    view::{Entry, Kind},
};

/// The newest ABI that was tested: Linux 6.15.
const KNOWN: ABI = ABI::V7;

const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// The dynamic loader has to run when a worker executes itself again.
const LOAD: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute});
const DEVICE: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev});
/// The driver sets the names of its threads.
const NAME: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | Truncate});
/// The driver stores compiled code there, and removes old entries.
const CACHE: BitFlags<AccessFs> = make_bitflags!(
    AccessFs::{ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer}
);

/// Restricts this thread and the threads that it starts.
///
/// # Errors
/// The kernel has Landlock, but refuses the rules.
pub(super) fn restrict(view: &[Entry], caches: &[OwnedFd]) -> Result<(), Error> {
    let restrict = || {
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            .handle_access(AccessNet::from_all(KNOWN))?
            .scope(Scope::from_all(KNOWN))?
            .create()?;
        for entry in view {
            let allowed = match entry.kind {
                Kind::Libraries => LOAD,
                Kind::Read | Kind::OwnProcess => READ,
                Kind::Device => DEVICE,
            };
            if let Ok(opened) = PathFd::new(&entry.path) {
                rules = allow(rules, opened, entry.is_directory, allowed)?;
            }
            if entry.kind == Kind::OwnProcess
                && let Ok(threads) = PathFd::new(entry.path.join("task"))
            {
                rules = allow(rules, threads, true, NAME)?;
            }
        }
        for cache in caches {
            rules = allow(rules, cache, true, CACHE)?;
        }
        rules.restrict_self()
    };
    let status = restrict().map_err(|error| Error::because("Restricting by Landlock", error))?;
    tracing::debug!("Landlock: {:?}", status.ruleset);
    Ok(())
}

fn allow(
    rules: RulesetCreated,
    place: impl AsFd,
    is_directory: bool,
    allowed: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    // The kernel rejects a rule for a file with an access that only directories have.
    let possible = match is_directory {
        true => AccessFs::from_all(KNOWN),
        false => AccessFs::from_file(KNOWN),
    };
    rules.add_rule(PathBeneath::new(place, allowed & possible))
}
