//! PTX text to a resolved intermediate form.
//!
//! [`parse`] checks the text's structure and resolves every name (registers, labels, variables, functions), so that the
//! executor meets indices only. What an opcode and its modifiers mean is decided when [`crate::exec::LoadedModule`] decodes
//! the functions; both steps belong to loading a module and both report a line.

mod function;
mod ir;
mod lexer;
mod parser;

pub use ir::*;

/// Why PTX text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ptx line {line}: {message}")]
pub struct Error {
    /// Line of the text, counted from one.
    pub line: u32,
    /// What is wrong there.
    pub message: String,
}

impl Error {
    /// An error at `line`.
    pub fn new(line: u32, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
        }
    }
}

/// Parses the text of one PTX module (PTX ISA, "Syntax" and "Directives"). A trailing NUL, as `cuModuleLoadData` images
/// have it, is the caller's to cut off.
pub fn parse(text: &str) -> Result<Module, Error> {
    parser::Parser::new(text)?.module()
}
