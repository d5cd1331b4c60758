// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The linker: several PTX texts become one. Its output is text again, which every function that loads an image reads.
//!
//! A name that is not visible outside its text gets another one, so that two texts may have the same. Of several weak
//! definitions of a name the first stays, and of several `.common` ones the largest. The parser resolves `.extern`
//! declarations when the texts are one; the linker refuses an undefined function or variable.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX};

use crate::exec;
use crate::image::{self, Refused};
use crate::ptx;

/// Functions that the device has without a definition.
const BUILT_IN: [&str; 5] = [
    "vprintf",
    "__assertfail",
    "cudaGraphSetConditional",
    "malloc",
    "free",
];

/// The device runtime, for programs that link NVIDIA's library of that name.
const DEVICE_RUNTIME: &str = include_str!("device_runtime.ptx");
/// The content of that library, an archive.
const ITS_MEMBER: &[u8] = b"cuda_device_runtime.o";

/// Whether a file is the library of the device runtime.
pub fn is_device_runtime(file: &[u8]) -> bool {
    let has = |what: &[u8]| file.windows(what.len()).any(|part| part == what);
    file.starts_with(b"!<arch>\n") && has(ITS_MEMBER)
}

/// A text that was added.
struct Input {
    name: String,
    text: String,
    version: u32,
    target: u32,
    /// The bytes of its variables, by their names, and whether they have a value.
    variables: HashMap<String, (usize, bool)>,
}

/// A link that is under way.
#[derive(Default)]
pub struct Linker {
    inputs: Vec<Input>,
    has_device_runtime: bool,
    /// The maximum number of registers of a kernel that does not set it itself.
    pub max_registers: Option<u32>,
}

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    /// A name, a directive with its dot, or a number.
    Word(&'a str),
    /// Anything else: a sign, white space, a comment, a string.
    Other(&'a str),
}

/// The pieces of a text, which together are the text.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.');
    let mut pieces = Vec::new();
    let mut left = text;
    while let Some(first) = left.chars().next() {
        let end = |of: Option<usize>| of.unwrap_or(left.len());
        let (length, word) = if left.starts_with("//") {
            (end(left.find('\n')), false)
        } else if left.starts_with("/*") {
            (end(left.find("*/").map(|at| at + 2)), false)
        } else if first == '"' {
            (end(left[1..].find('"').map(|at| at + 2)), false)
        } else if is_word(first) {
            // `.func` starts a new word, and so does the text after a directive.
            let rest = left[1..].find(|c: char| !is_word(c) || c == '.');
            (end(rest.map(|at| at + 1)), true)
        } else {
            (first.len_utf8(), false)
        };
        let (piece, rest) = left.split_at(length);
        pieces.push(if word {
            Piece::Word(piece)
        } else {
            Piece::Other(piece)
        });
        left = rest;
    }
    pieces
}

/// A statement at the outermost level of a text: a directive with its operands.
#[derive(Debug)]
struct Statement<'a> {
    pieces: Vec<Piece<'a>>,
    linkage: Option<&'a str>,
    /// The name that it declares, if it is a function's or a variable's.
    name: Option<&'a str>,
}

/// The words between the name of a declaration and its directive.
fn is_directive(word: &str) -> bool {
    word.starts_with('.')
}

fn is_fraction(word: &str) -> bool {
    word[1..].starts_with(|c: char| c.is_ascii_digit())
}

impl<'a> Statement<'a> {
    /// Whether one of these words is in it.
    fn has(&self, words: &[&str]) -> bool {
        let is_one = |piece: &Piece<'a>| matches!(piece, Piece::Word(word) if words.contains(word));
        self.pieces.iter().any(is_one)
    }

    /// Whether it is a kernel whose text does not bound its registers.
    fn is_unbound_entry(&self) -> bool {
        self.has(&[".entry"]) && !self.has(&[".maxnreg"])
    }

    /// Whether it defines its name, and does not only declare it.
    fn defines(&self) -> bool {
        let has_body = self.pieces.contains(&Piece::Other("{"));
        self.name.is_some()
            && self.linkage != Some(".extern")
            && (has_body || !self.has(&[".func", ".entry"]))
    }

    /// The same without a body or a value, as a declaration of another text's definition; nothing for an entry, which
    /// no text names.
    fn declaration(&self) -> String {
        let head = |piece: &&Piece<'a>| !matches!(piece, Piece::Other("=" | "{" | ";"));
        let mut text = String::new();
        for piece in self.pieces.iter().take_while(head) {
            match piece {
                Piece::Word(".entry") => return String::new(),
                Piece::Word(word) if self.linkage == Some(word) => text.push_str(".extern"),
                Piece::Word(word) => text.push_str(word),
                Piece::Other(other) => text.push_str(other),
            }
        }
        text + ";"
    }

    fn new(pieces: Vec<Piece<'a>>) -> Self {
        let mut linkage = None;
        let mut name = None;
        let mut declares = false;
        let mut is_function = false;
        let mut depth = 0;
        for piece in &pieces {
            match piece {
                Piece::Other("(") => depth += 1,
                Piece::Other(")") => depth -= 1,
                Piece::Word(word @ (".visible" | ".extern" | ".weak" | ".common")) => {
                    linkage = linkage.or(Some(*word));
                }
                Piece::Word(".func" | ".entry") => (declares, is_function) = (true, true),
                Piece::Word(".global" | ".const" | ".shared") if depth == 0 => declares = true,
                // Results and attributes are in parentheses.
                Piece::Word(word) if declares && depth == 0 && name.is_none() => {
                    let is_number = word.starts_with(|c: char| c.is_ascii_digit());
                    if !is_directive(word) && !is_number {
                        name = Some(*word);
                    }
                }
                Piece::Other("{" | "=") if !is_function => break,
                Piece::Other("{") => break,
                _ => {}
            }
        }
        Self {
            pieces,
            linkage,
            name,
        }
    }
}

/// The statements of a text. Each ends with a semicolon, or with the brace that closes its body; the header of the text
/// is not included.
fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut statements = Vec::new();
    let mut pieces_of = Vec::new();
    let mut depth = 0;
    let mut head = false;
    let mut is_data = false;
    for piece in pieces(text) {
        match piece {
            Piece::Word(".version" | ".target" | ".address_size") if depth == 0 => head = true,
            // A version has a dot too.
            Piece::Word(word) if is_directive(word) && !is_fraction(word) => head = false,
            _ => {}
        }
        if head {
            continue;
        }
        pieces_of.push(piece);
        let ends = match piece {
            Piece::Other("=") if depth == 0 => {
                is_data = true;
                false
            }
            Piece::Other("{") => {
                depth += 1;
                false
            }
            Piece::Other("}") => {
                depth -= 1;
                // A list of values is followed by a semicolon.
                depth == 0 && !is_data
            }
            Piece::Other(";") => depth == 0,
            // `.file` and `.loc` end with their line.
            Piece::Other("\n") if depth == 0 => {
                let words = pieces_of
                    .iter()
                    .find(|piece| matches!(piece, Piece::Word(_)));
                matches!(words, Some(Piece::Word(".file" | ".loc" | ".pragma")))
            }
            _ => false,
        };
        if ends {
            is_data = false;
            statements.push(Statement::new(std::mem::take(&mut pieces_of)));
        }
    }
    statements.push(Statement::new(pieces_of));
    statements
}

impl Linker {
    /// Adds a text under a name, for a device of `capability` (times ten).
    ///
    /// # Errors
    /// It is no text that the device could load.
    pub fn add(&mut self, name: &str, text: String, capability: u32) -> Result<(), Refused> {
        let module = image::parse(&text, capability)?;
        let variables = module.globals.iter();
        let variables =
            variables.map(|of| (of.name.clone(), (of.size, !of.initialiser.is_empty())));
        self.inputs.push(Input {
            name: name.to_owned(),
            text,
            version: module.version,
            target: module.target,
            variables: variables.collect(),
        });
        Ok(())
    }

    /// Adds the device runtime: [`is_device_runtime`].
    ///
    /// # Errors
    /// The device is too old for it.
    pub fn add_device_runtime(&mut self, capability: u32) -> Result<(), Refused> {
        self.add("cudadevrt", DEVICE_RUNTIME.to_owned(), capability)?;
        self.has_device_runtime = true;
        Ok(())
    }

    /// The text that all of them become.
    ///
    /// # Errors
    /// There is no text, two define the same name, or a needed name has no definition.
    pub fn complete(&self, capability: u32) -> Result<String, Refused> {
        let Some(version) = self.inputs.iter().map(|input| input.version).max() else {
            return Err(Refused::new(CUDA_ERROR_INVALID_IMAGE, "nothing to link"));
        };
        let target = self.inputs.iter().map(|input| input.target).max();
        let mut whole = format!(
            ".version {}.{}\n.target sm_{}\n.address_size 64\n",
            version / 10,
            version % 10,
            target.unwrap_or(0)
        );
        let texts: Vec<_> = self
            .inputs
            .iter()
            .map(|input| statements(&input.text))
            .collect();
        let strong = texts
            .iter()
            .flatten()
            .filter(|of| of.linkage == Some(".visible") && of.defines());
        let mut defined: HashSet<&str> = strong.filter_map(|of| of.name).collect();
        let largest = self.largest(&texts);
        for (number, statements) in texts.iter().enumerate() {
            let names = local_names(&texts, number);
            for statement in statements {
                let is_another = match (statement.linkage, statement.name) {
                    (Some(".common"), Some(name)) => largest[name] != number,
                    _ => false,
                };
                if let (Some(".weak" | ".common"), Some(name)) = (statement.linkage, statement.name)
                    && statement.defines()
                    && (is_another || !defined.insert(name))
                {
                    // The remaining definition may follow its users.
                    whole.push_str(&statement.declaration());
                    continue;
                }
                let mut bound = self.max_registers.filter(|_| statement.is_unbound_entry());
                for piece in &statement.pieces {
                    if *piece == Piece::Other("{")
                        && let Some(most) = bound.take()
                    {
                        let _ = write!(whole, ".maxnreg {most} ");
                    }
                    match piece {
                        Piece::Word(word) => whole.push_str(names.get(word).map_or(word, |n| n)),
                        Piece::Other(text) => whole.push_str(text),
                    }
                }
            }
            whole.push('\n');
        }
        let module = image::parse(&whole, capability)?;
        self.check(&module)?;
        Ok(whole)
    }

    /// The number of the text with the largest of the `.common` variables of each name; of several the one with a
    /// value, or else the first.
    fn largest<'a>(&self, texts: &[Vec<Statement<'a>>]) -> HashMap<&'a str, usize> {
        let mut largest = HashMap::new();
        for (number, text) in texts.iter().enumerate() {
            let common = text.iter().filter(|of| of.linkage == Some(".common"));
            for name in common.filter_map(|of| of.name) {
                let size = |number: usize| self.inputs[number].variables.get(name);
                let best = largest.entry(name).or_insert(number);
                if size(number) > size(*best) {
                    *best = number;
                }
            }
        }
        largest
    }

    /// Refuses undefined names.
    fn check(&self, module: &ptx::Module) -> Result<(), Refused> {
        let mut missing = String::new();
        let mut say = |name: &str| {
            let user = self.inputs.iter().find(|input| input.text.contains(name));
            let user = user.map_or("", |input| &input.name);
            let _ = writeln!(
                missing,
                "error   : Undefined reference to '{name}' in '{user}'"
            );
        };
        let functions = module
            .functions
            .iter()
            .filter(|function| !function.has_body);
        let is_known = |name: &str| {
            BUILT_IN.contains(&name) || self.has_device_runtime && exec::is_function(name)
        };
        for function in functions.filter(|of| !is_known(&of.name)) {
            say(&function.name);
        }
        for variable in module.globals.iter().filter(|variable| variable.is_extern) {
            say(&variable.name);
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Refused::new(CUDA_ERROR_INVALID_PTX, missing)),
        }
    }
}

/// New names for definitions that are not visible outside a text and share a name with another text. If no text shows
/// the name, the first one keeps it, because the host looks it up.
fn local_names<'a>(texts: &[Vec<Statement<'a>>], number: usize) -> HashMap<&'a str, String> {
    let shown = |text: &Vec<Statement<'a>>| -> HashSet<&'a str> {
        let shown = text.iter().filter(|of| of.linkage.is_some());
        shown.filter_map(|of| of.name).collect()
    };
    let mut taken = HashSet::new();
    for (other, text) in texts.iter().enumerate() {
        if other < number {
            taken.extend(text.iter().filter_map(|of| of.name));
        } else if other > number {
            taken.extend(shown(text));
        }
    }
    let own = shown(&texts[number]);
    let names = texts[number].iter().filter_map(|of| of.name);
    // A name that is declared again with its linkage is not local.
    let local = names.filter(|name| taken.contains(name) && !own.contains(name));
    local
        .map(|name| (name, format!("{name}$link{number}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";
    const CALLER: &str = "
        .extern .func (.param .b32 r) twice (.param .b32 p);
        .extern .global .align 4 .u32 shared_count;
        .global .align 4 .u32 own = 5;
        .func (.param .b32 r) helper (.param .b32 p) { ret; } // a } that is none
        .visible .entry start(.param .u64 out) { .reg .b32 %a; { call (_), helper, (%a); } ret; }
        .weak .func any() { ret; }
        ";
    const CALLEE: &str = "
        .file 1 \"x;{.cu\"
        .visible .global .align 4 .u32 shared_count = {7};
        .global .align 4 .u32 own = 6;
        .func (.param .b32 r) helper (.param .b32 p) { ret; }
        .visible .func (.param .b32 r) twice (.param .b32 p) { ret; }
        .weak .func any() { ret; }
        ";

    fn link(texts: &[&str]) -> Result<String, Refused> {
        let mut linker = Linker::default();
        for (number, text) in texts.iter().enumerate() {
            linker.add(&format!("text {number}"), format!("{HEAD}{text}"), 90)?;
        }
        linker.complete(90)
    }

    #[test]
    fn names_of_one_text_find_definitions_of_another_and_local_ones_stay_apart() {
        let caller = CALLER.replace("{ call (_), helper, (%a); }", "");
        for texts in [[&caller[..], CALLEE], [CALLEE, &caller]] {
            let whole = link(&texts).unwrap();
            let module = ptx::parse(&whole).unwrap();
            assert_eq!(module.kernels.len(), 1, "{whole}");
            let values: Vec<_> = module
                .globals
                .iter()
                .map(|of| of.initialiser.clone())
                .collect();
            assert_eq!(values.len(), 3, "{whole}");
            for value in [5_u32, 6, 7] {
                assert!(values.contains(&value.to_le_bytes().to_vec()), "{whole}");
            }
            let helpers = module.functions.iter();
            assert_eq!(
                helpers.filter(|of| of.name.starts_with("helper")).count(),
                2
            );
        }
    }

    #[test]
    fn an_undefined_name_is_refused_by_name() {
        let refused =
            link(&[".extern .func missing();\n.visible .entry k() { ret; }"]).unwrap_err();
        assert!(
            refused.message.contains("'missing' in 'text 0'"),
            "{refused}"
        );
        assert!(link(&[]).is_err());
        let twice = ".visible .func same() { ret; }";
        assert!(link(&[twice, twice]).is_err());
    }

    #[test]
    fn one_definition_stays_and_all_texts_find_it() {
        let user = ".visible .entry k() { .reg .b64 %a; mov.u64 %a, shared_place; ret; }";
        let common = |what: &str| format!(".common .global .align 8 .b8 shared_place{what};{user}");
        let small = common("[8]");
        let large = common("[16] = {1, 2}").replace(user, "");
        for texts in [[&small[..], &large], [&large, &small]] {
            let module = ptx::parse(&link(&texts).unwrap()).unwrap();
            let all = module.globals.iter();
            let sizes: Vec<_> = all.map(|of| (of.size, of.initialiser[1])).collect();
            assert_eq!(sizes, [(16, 2)]);
        }
        let weak = ".weak .func f () { ret; } .visible .entry u() { call f; ret; }";
        assert!(link(&[weak, ".visible .func f () { ret; }"]).is_ok());
        let strong = ".visible .global .align 8 .b8 shared_place[24];";
        for texts in [[&small[..], strong], [strong, &small]] {
            let module = ptx::parse(&link(&texts).unwrap()).unwrap();
            assert_eq!(module.globals.len(), 1);
            assert_eq!(module.globals[0].size, 24);
        }
    }

    #[test]
    fn a_bound_of_registers_applies_to_kernels_without_one() {
        let registers = ".reg .b64 %d<400>; ret;";
        let mut linker = Linker::default();
        let text = format!(
            "{HEAD}.visible .entry k() {{ {registers} }}\n.visible .entry own() .maxnreg 40 {{ {registers} }}"
        );
        linker.add("text", text, 90).unwrap();
        let bounds = |linker: &Linker| {
            let module = ptx::parse(&linker.complete(90).unwrap()).unwrap();
            module
                .kernels
                .iter()
                .map(|of| of.registers)
                .collect::<Vec<_>>()
        };
        assert_eq!(bounds(&linker), [128, 40]);
        linker.max_registers = Some(57);
        assert_eq!(bounds(&linker), [57, 40]);
    }

    fn text_of(statement: &Statement<'_>) -> String {
        let of = |piece: &Piece<'_>| match piece {
            Piece::Word(text) | Piece::Other(text) => text.to_string(),
        };
        statement.pieces.iter().map(of).collect()
    }

    #[test]
    fn the_pieces_of_a_text_are_the_text() {
        let text = format!("{HEAD}{CALLER}{CALLEE}/* /* }} \" */ \"unfinished");
        let both = format!("{CALLER}{CALLEE}");
        let all: String = statements(&both).iter().map(text_of).collect();
        assert_eq!(all, both);
        let again: String = pieces(&text)
            .iter()
            .map(|piece| match piece {
                Piece::Word(text) | Piece::Other(text) => *text,
            })
            .collect();
        assert_eq!(again, text);
    }
}
