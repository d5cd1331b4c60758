// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! PTX text to a resolved intermediate form.
//!
//! [`parse`] checks the text's structure and resolves every name (registers, labels, variables, functions), so that the
//! executor meets indices only. [`crate::exec::LoadedModule`] decides the meaning of an opcode and its modifiers when
//! it decodes the functions; both steps belong to loading a module and both report a line.

mod arguments;
mod arrays;
mod calls;
mod constant;
mod function;
mod ir;
mod lexer;
mod parser;

pub use ir::*;

/// The reason that PTX text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ptx line {line}: {message}")]
pub struct Error {
    /// Line of the text, counted from one.
    pub line: u32,
    /// The error.
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

/// Parses the text of one PTX module (PTX ISA, "Syntax" and "Directives"). The caller cuts off a trailing NUL, as in
/// `cuModuleLoadData` images.
pub fn parse(text: &str) -> Result<Module, Error> {
    parser::Parser::new(text)?.module()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    /// Each of these once hung the parser, used up its stack or its memory, or ran over an integer.
    #[test]
    fn hostile_text_is_refused() {
        let nested = |open: &str| open.repeat(100_000);
        let registers = ".reg .b8 %a<4000000>;".repeat(1000);
        let refused = [
            ".func .attribute(".to_owned(),
            format!(".global .u32 a[4] = {};", nested("{")),
            format!(".entry k() {{ mov.u32 {}", nested("{")),
            format!(".entry k() {{ mov.u32 {}", nested("(")),
            format!(".entry k() {{ {registers} }}"),
            ".global .align 4611686018427387904 .b8 a[1];".to_owned(),
            ".entry k(.param .align 8 .b8 p[1000000000]) { ret; }".to_owned(),
        ];
        for text in refused {
            assert!(parse(&format!("{HEAD}{text}")).is_err(), "{:.60}", text);
        }
        let huge = ".entry k() .maxntid 4294967295, 4294967295, 2 { ret; }";
        let module = parse(&format!("{HEAD}{huge}")).unwrap();
        assert_eq!(module.kernels[0].max_threads, u32::MAX);
        assert!(parse(".version 4294967295\n").unwrap().version > 90);
    }
}
