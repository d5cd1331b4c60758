// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The test programs: reads the list in `tests/programs/programs.toml`, and builds each program in every way that it
//! lists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::cuda::Cuda;
use crate::parallel;
use crate::paths::Paths;
use crate::process::run_logged;
use crate::ui::Step;

/// The file with the list, in the sources and in the stage.
pub const LIST: &str = "programs.toml";

/// The whole list.
#[derive(Debug, Deserialize)]
pub struct Programs {
    gencode: Vec<String>,
    /// The command that makes `{object}` from a program's source.
    object: Vec<String>,
    kind: BTreeMap<String, Kind>,
    /// The programs in the order of the list.
    pub program: Vec<Program>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    commands: Vec<Vec<String>>,
}

/// One program.
#[derive(Clone, Debug, Deserialize)]
pub struct Program {
    /// Its name, and the name of its executable.
    pub name: String,
    source: String,
    kernel: Option<String>,
    /// The program whose output this one must also give.
    pub same_output_as: Option<String>,
    /// The linkages: `shared`, `static`, `driver`.
    pub kinds: Vec<String>,
    /// Arguments for a run that takes seconds.
    pub quick: Vec<String>,
    /// Arguments for the problem size of the papers.
    pub paper: Vec<String>,
    /// Whether it uses operations that the earlier commit's parts lack, so that it does not run with them.
    #[serde(default)]
    pub newer: bool,
}

/// One executable to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's name.
    pub program: String,
    /// The linkage.
    pub kind: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The program whose output it must also give, if any.
    pub same_output_as: Option<String>,
    /// Whether it uses operations that the earlier commit's parts lack.
    pub newer: bool,
}

impl Run {
    /// The executable below the stage's directory `programs`.
    pub fn executable(&self) -> PathBuf {
        Path::new(&self.kind).join(&self.program)
    }
}

impl Programs {
    /// Reads the list in `dir`.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join(LIST);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is malformed", path.display()))
    }

    /// Every executable, with the arguments of the paper's size or of the quick one.
    pub fn runs(&self, paper: bool) -> Vec<Run> {
        let mut runs = Vec::new();
        for program in &self.program {
            for kind in &program.kinds {
                runs.push(Run {
                    program: program.name.clone(),
                    kind: kind.clone(),
                    args: if paper {
                        program.paper.clone()
                    } else {
                        program.quick.clone()
                    },
                    same_output_as: program.same_output_as.clone(),
                    newer: program.newer,
                });
            }
        }
        runs
    }
}

/// Builds every program of the list into `stage/programs/KIND/NAME` if its inputs changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Path) -> Result<()> {
    let source_dir = paths.root.join("tests/programs");
    let programs = Programs::load(&source_dir)?;
    let out_dir = stage.join("programs");
    fs::create_dir_all(&out_dir)?;
    let shared = shared_inputs(&source_dir)?;
    let (mut stale, mut count) = (Vec::new(), 0);
    for program in &programs.program {
        let mut executables = Vec::new();
        for kind_name in &program.kinds {
            let kind = programs
                .kind
                .get(kind_name)
                .with_context(|| format!("{LIST}: unknown kind {kind_name}"))?;
            let output = out_dir.join(kind_name).join(&program.name);
            let inputs = Inputs::default()
                .text("2")
                .text(&shared)
                .text(&format!(
                    "{:?}{:?}{:?}",
                    programs.object, kind.commands, programs.gencode
                ))
                .text(&cuda.home.to_string_lossy())
                .file(&source_dir.join(&program.source))?;
            let inputs = match &program.kernel {
                Some(kernel) => inputs.file(&source_dir.join(kernel))?,
                None => inputs,
            };
            let digest = inputs.digest();
            if !is_fresh(&output, &digest) {
                executables.push(Executable {
                    kind_name,
                    kind,
                    output,
                    digest,
                });
            }
        }
        count += executables.len();
        if !executables.is_empty() {
            stale.push(Job {
                program,
                executables,
            });
        }
    }
    fs::copy(source_dir.join(LIST), out_dir.join(LIST))?;
    if stale.is_empty() {
        return Ok(());
    }
    let step = Step::new("test programs");
    let builder = Builder {
        paths,
        cuda,
        source_dir: &source_dir,
        object: &programs.object,
        gencode: &programs.gencode,
        step: &step,
    };
    parallel::for_each(stale, |job| builder.build(&job))?;
    step.done(format!("{count} built"));
    Ok(())
}

/// A program's executables that must be built.
struct Job<'a> {
    program: &'a Program,
    executables: Vec<Executable<'a>>,
}

/// One executable of a job.
struct Executable<'a> {
    kind_name: &'a str,
    kind: &'a Kind,
    output: PathBuf,
    digest: String,
}

/// The data that all builds share.
struct Builder<'a> {
    paths: &'a Paths,
    cuda: &'a Cuda,
    source_dir: &'a Path,
    object: &'a [String],
    gencode: &'a [String],
    step: &'a Step,
}

/// A digest over the headers and helpers that any program may include.
fn shared_inputs(dir: &Path) -> Result<String> {
    let mut names: Vec<_> = fs::read_dir(dir)?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    let mut inputs = Inputs::default();
    for path in names {
        if path
            .extension()
            .is_some_and(|extension| extension == "h" || extension == "c")
        {
            inputs = inputs.file(&path)?;
        }
    }
    Ok(inputs.digest())
}

impl Builder<'_> {
    /// Builds a program's executables. Kinds that name `{object}` share one object file.
    fn build(&self, job: &Job) -> Result<()> {
        let common = tempfile::tempdir().context("cannot create a scratch directory")?;
        let object = common.path().join("object.o");
        for of in &job.executables {
            self.link(job.program, of, &object)
                .with_context(|| format!("cannot build {} ({})", job.program.name, of.kind_name))?;
        }
        Ok(())
    }

    /// Runs the commands of the executable's kind and installs the output. The first executable that needs the object
    /// makes it.
    fn link(&self, program: &Program, of: &Executable, object: &Path) -> Result<()> {
        unmark(&of.output);
        let work = tempfile::tempdir().context("cannot create a scratch directory")?;
        let made = work.path().join(&program.name);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let replacements = [
            ("{nvcc}", text(&self.cuda.nvcc())),
            ("{source}", program.source.clone()),
            ("{kernel}", program.kernel.clone().unwrap_or_default()),
            ("{object}", text(object)),
            ("{output}", text(&made)),
            ("{work}", text(work.path())),
            ("{libcuda}", text(work.path())),
        ];
        let run = |command: &[String], log: &str| {
            let log = format!("program-{}-{}-{log}.log", program.name, of.kind_name);
            self.run(command, &replacements, &log)
        };
        self.step
            .message(&format!("{} ({})", program.name, of.kind_name));
        for (index, command) in of.kind.commands.iter().enumerate() {
            if command.iter().any(|word| word == "{object}") && !object.exists() {
                run(self.object, "object")?;
            }
            run(command, &index.to_string())?;
        }
        install(&made, &of.output)?;
        mark_fresh(&of.output, &of.digest)
    }

    /// Runs one command of the list in the sources' directory.
    fn run(&self, command: &[String], replacements: &[(&str, String)], log: &str) -> Result<()> {
        let mut words = Vec::new();
        for word in command {
            if word == "{gencode}" {
                words.extend(self.gencode.iter().cloned());
                continue;
            }
            words.push(
                replacements
                    .iter()
                    .fold(word.clone(), |word, (from, to)| word.replace(from, to)),
            );
        }
        let Some((first, args)) = words.split_first() else {
            bail!("an empty command in {LIST}")
        };
        run_logged(
            Command::new(first).args(args).current_dir(self.source_dir),
            None,
            &self.paths.logs().join(log),
        )
        .map(drop)
    }
}

/// Moves `from` to `to` atomically, so that a running program keeps its old file.
pub fn install(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("no directory to install into")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let fresh = parent.join(format!(".{name}.new"));
    fs::copy(from, &fresh).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::rename(&fresh, to).with_context(|| format!("cannot install {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_a_program_is_a_run() {
        let programs: Programs = toml::from_str(
            "gencode = []\nobject = []\n[kind.shared]\ncommands = []\n[[program]]\nname = 'a'\nsource = 'a.cu'\n\
             kinds = ['shared', 'static']\nquick = ['--size', 'small']\npaper = ['--size', 'paper']\n",
        )
        .unwrap();
        let runs = programs.runs(false);
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[1].executable(), Path::new("static/a"));
        assert_eq!(runs[1].args, ["--size", "small"]);
    }
}
