// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The lexical rules of PTX, as NVIDIA's `ptxas` follows them.

use crate::Broken;

/// A token, borrowed from the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token<'a> {
    /// A name: an opcode, a register, a label or a variable.
    Word(&'a [u8]),
    /// `.name`, given without the dot: a directive, or a modifier of an opcode.
    Dot(&'a [u8]),
    /// A word that begins with a digit.
    Number(&'a [u8]),
    /// A string.
    Text,
    /// One other character.
    Sign(u8),
}

/// Splits a text; comments and white space are left out.
#[derive(Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

/// Whether a byte can begin a name. Bytes beyond ASCII count, because some version of the compiler may accept them in
/// names.
fn begins_name(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'%') || !byte.is_ascii()
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

/// The number of bytes of the name at the start of `text`. Its first byte counts as a part of it.
fn name_length(text: &[u8]) -> usize {
    let rest = text.iter().skip(1);
    1 + rest.take_while(|byte| is_in_name(**byte)).count()
}

impl<'a> Tokens<'a> {
    /// The tokens of a text.
    pub fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// The number of bytes of the text that remain.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    fn at(&self, index: usize) -> u8 {
        self.rest.get(index).copied().unwrap_or(0)
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Skips all up to and including `end`; returns the skipped part.
    fn skip_past(&mut self, end: &[u8]) -> Result<&'a [u8], Broken> {
        let found = self.rest.windows(end.len()).position(|part| part == end);
        let length = found.ok_or_else(|| Broken::new("a comment or string has no end"))?;
        let skipped = self.take(length);
        self.take(end.len());
        Ok(skipped)
    }

    /// The next token; `None` after the last one.
    ///
    /// # Errors
    /// A comment or string has no end that every compiler sees in the same place.
    pub fn next(&mut self) -> Result<Option<Token<'a>>, Broken> {
        loop {
            let Some(&first) = self.rest.first() else {
                return Ok(None);
            };
            match first {
                b'/' if self.at(1) == b'/' => {
                    // The last line may have no line end.
                    let end = self.rest.iter().position(|byte| *byte == b'\n');
                    self.take(end.unwrap_or(self.rest.len()));
                }
                b'/' if self.at(1) == b'*' => {
                    self.take(2);
                    self.skip_past(b"*/")?;
                }
                b'"' => {
                    self.take(1);
                    // To ptxas a backslash in a string has no meaning. Another reader may take it for an escape.
                    if self.skip_past(b"\"")?.ends_with(b"\\") {
                        return Err(Broken::new("a string ends in a backslash"));
                    }
                    return Ok(Some(Token::Text));
                }
                // ptxas treats DOS's end-of-file character as white space.
                0x0b | 0x1a => {
                    self.take(1);
                }
                space if space.is_ascii_whitespace() => {
                    self.take(1);
                }
                b'.' if self.at(1).is_ascii_alphabetic() || self.at(1) == b'_' => {
                    let mut length = 1 + name_length(&self.rest[1..]);
                    // For example `.shared::cta`.
                    while self.rest[length..].starts_with(b"::") {
                        length += 1 + name_length(&self.rest[length + 1..]);
                    }
                    return Ok(Some(Token::Dot(&self.take(length)[1..])));
                }
                digit if digit.is_ascii_digit() => {
                    let mut length = name_length(self.rest);
                    if self.at(length) == b'.' && self.at(length + 1).is_ascii_digit() {
                        length += 1 + name_length(&self.rest[length + 1..]);
                    }
                    return Ok(Some(Token::Number(self.take(length))));
                }
                name if begins_name(name) => {
                    return Ok(Some(Token::Word(self.take(name_length(self.rest)))));
                }
                sign => {
                    self.take(1);
                    return Ok(Some(Token::Sign(sign)));
                }
            }
        }
    }
}
