//! The test programs: the list in `tests/programs/programs.toml`, and building each in every way that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cache::{Inputs, is_fresh, mark_fresh, unmark};
use crate::cuda::Cuda;
use crate::paths::Paths;
use crate::process::run_logged;
use crate::ui::Step;

/// The file with the list, in the sources and in the stage.
pub const LIST: &str = "programs.toml";

/// The whole list.
#[derive(Debug, Deserialize)]
pub struct Programs {
    gencode: Vec<String>,
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
    /// Its name, and that of its executable.
    pub name: String,
    source: String,
    kernel: Option<String>,
    /// The program whose output this one must give too.
    pub same_output_as: Option<String>,
    /// How it is linked: `shared`, `static`, `driver`.
    pub kinds: Vec<String>,
    /// Arguments for a run that takes seconds.
    pub quick: Vec<String>,
    /// Arguments for the problem size of the papers.
    pub paper: Vec<String>,
}

/// One executable to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The program's name.
    pub program: String,
    /// How it is linked.
    pub kind: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Whose output it must give, if not only its own.
    pub same_output_as: Option<String>,
}

impl Run {
    /// The executable below the stage's folder `programs`.
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
                });
            }
        }
        runs
    }
}

/// Builds every program of the list into `stage/programs/KIND/NAME`, those whose inputs changed.
pub fn build(paths: &Paths, cuda: &Cuda, stage: &Path) -> Result<()> {
    let source_dir = paths.root.join("tests/programs");
    let programs = Programs::load(&source_dir)?;
    let out_dir = stage.join("programs");
    fs::create_dir_all(&out_dir)?;
    let shared = shared_inputs(&source_dir)?;
    let mut step = None;
    let mut built = 0;
    for program in &programs.program {
        for kind_name in &program.kinds {
            let kind = programs
                .kind
                .get(kind_name)
                .with_context(|| format!("{LIST}: unknown kind {kind_name}"))?;
            let output = out_dir.join(kind_name).join(&program.name);
            let digest = Inputs::default()
                .text("1")
                .text(&shared)
                .text(&format!("{:?}{:?}", kind.commands, programs.gencode))
                .text(&cuda.home.to_string_lossy())
                .file(&source_dir.join(&program.source))?;
            let digest = match &program.kernel {
                Some(kernel) => digest.file(&source_dir.join(kernel))?,
                None => digest,
            }
            .digest();
            if is_fresh(&output, &digest) {
                continue;
            }
            let step = step.get_or_insert_with(|| Step::new("test programs"));
            unmark(&output);
            build_one(
                paths,
                cuda,
                &source_dir,
                &programs,
                kind,
                program,
                &output,
                step,
            )
            .with_context(|| format!("cannot build {} ({kind_name})", program.name))?;
            mark_fresh(&output, &digest)?;
            built += 1;
        }
    }
    fs::copy(source_dir.join(LIST), out_dir.join(LIST))?;
    if let Some(step) = step {
        step.done(format!("{built} built"));
    }
    Ok(())
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

#[allow(clippy::too_many_arguments)]
fn build_one(
    paths: &Paths,
    cuda: &Cuda,
    source_dir: &Path,
    programs: &Programs,
    kind: &Kind,
    program: &Program,
    output: &Path,
    step: &Step,
) -> Result<()> {
    let work = tempfile::tempdir().context("cannot create a scratch folder")?;
    let made = work.path().join(&program.name);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let replacements = [
        ("{nvcc}", text(&cuda.nvcc())),
        ("{source}", program.source.clone()),
        ("{kernel}", program.kernel.clone().unwrap_or_default()),
        ("{output}", text(&made)),
        ("{work}", text(work.path())),
        ("{libcuda}", text(work.path())),
    ];
    for (index, command) in kind.commands.iter().enumerate() {
        let mut words = Vec::new();
        for word in command {
            if word == "{gencode}" {
                words.extend(programs.gencode.iter().cloned());
                continue;
            }
            words.push(
                replacements
                    .iter()
                    .fold(word.clone(), |word, (from, to)| word.replace(from, to)),
            );
        }
        let Some((program_word, args)) = words.split_first() else {
            bail!("an empty command in {LIST}")
        };
        step.message(&format!("{} {}", program.name, output.display()));
        let log = paths
            .logs()
            .join(format!("program-{}-{index}.log", program.name));
        run_logged(
            Command::new(program_word)
                .args(args)
                .current_dir(source_dir),
            Some(step),
            &log,
        )?;
    }
    install(&made, output)
}

/// Puts `from` at `to` in one step, so that a program that is running keeps its old file.
pub fn install(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("no folder to install into")?;
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
            "gencode = []\n[kind.shared]\ncommands = []\n[[program]]\nname = 'a'\nsource = 'a.cu'\n\
             kinds = ['shared', 'static']\nquick = ['--size', 'small']\npaper = ['--size', 'paper']\n",
        )
        .unwrap();
        let runs = programs.runs(false);
        assert_eq!(runs.len(), 2);
        assert_eq!(runs[1].executable(), Path::new("static/a"));
        assert_eq!(runs[1].args, ["--size", "small"]);
    }
}
