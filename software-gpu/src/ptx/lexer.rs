// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Splits PTX text into tokens.

use super::Error;

/// A token; text is borrowed from the module's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Token<'a> {
    /// A name: an opcode, a register (`%r1`), a label or a variable.
    Word(&'a str),
    /// `.name`, without the dot; it may contain `::`.
    Dot(&'a str),
    /// An integer.
    Integer(i64),
    /// An integer that ends in `U`, or that does not fit a signed one.
    Unsigned(u64),
    /// `0f…`
    Single(u32),
    /// `0d…` or a decimal fraction.
    Double(u64),
    /// A quoted string, its quotes removed.
    Text(&'a str),
    /// Any other character.
    Punct(char),
    /// The end.
    End,
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_' || c == b'$'
}

/// All tokens of `text` with their lines.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, Error> {
    let b = text.as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4);
    let mut line = 1u32;
    let mut i = 0;
    let at = |i: usize| b.get(i).copied().unwrap_or(0);
    while i < b.len() {
        let c = b[i];
        match c {
            b'\n' => {
                line += 1;
                i += 1;
            }
            // As to ptxas, the end of a file in DOS is white space.
            b' ' | b'\t' | b'\r' | 0x0c | 0x1a => i += 1,
            b'/' if at(i + 1) == b'/' => {
                while i < b.len() && b[i] != b'\n' {
                    i += 1;
                }
            }
            b'/' if at(i + 1) == b'*' => {
                let end = end_of_comment(text, i, line)?;
                line += b[i..end].iter().filter(|c| **c == b'\n').count() as u32;
                i = end;
            }
            b'"' => {
                let (token, next) = string(text, i, line)?;
                out.push((token, line));
                i = next;
            }
            b'.' if at(i + 1).is_ascii_alphabetic() || at(i + 1) == b'_' => {
                let end = end_of_dotted(b, i + 1);
                out.push((Token::Dot(&text[i + 1..end]), line));
                i = end;
            }
            // The geometry of a texture: `.2d`.
            b'.' if matches!(at(i + 1), b'1'..=b'3')
                && at(i + 2) == b'd'
                && !is_word(at(i + 3)) =>
            {
                out.push((Token::Dot(&text[i + 1..i + 3]), line));
                i += 3;
            }
            b'0'..=b'9' => {
                let (token, next) = number(text, i, line)?;
                out.push((token, line));
                i = next;
            }
            _ if c == b'%' || c == b'_' || c == b'$' || c.is_ascii_alphabetic() => {
                let start = i;
                i += 1;
                while is_word(at(i)) {
                    i += 1;
                }
                out.push((Token::Word(&text[start..i]), line));
            }
            _ if c.is_ascii_graphic() => {
                out.push((Token::Punct(char::from(c)), line));
                i += 1;
            }
            0 => break,
            _ => {
                return Err(Error::new(line, format!("unexpected byte 0x{c:02x}")));
            }
        }
    }
    out.push((Token::End, line));
    Ok(out)
}

/// The end of a comment that begins at `start`.
fn end_of_comment(text: &str, start: usize, line: u32) -> Result<usize, Error> {
    let content = start + 2;
    let length = text[content..].find("*/");
    let length = length.ok_or_else(|| Error::new(line, "comment without end"))?;
    Ok(content + length + 2)
}

/// The string whose first quote is at `start`, and the offset after it. A quote after a backslash does not end it.
fn string(text: &str, start: usize, line: u32) -> Result<(Token<'_>, usize), Error> {
    let b = text.as_bytes();
    let unfinished = || Error::new(line, "string without end");
    let mut end = start + 1;
    while end < b.len() && b[end] != b'"' {
        if b[end] == b'\n' {
            return Err(unfinished());
        }
        end += 1 + usize::from(b[end] == b'\\');
    }
    let content = text.get(start + 1..end).ok_or_else(unfinished)?;
    Ok((Token::Text(content), end + 1))
}

/// The end of a name after a dot, which may contain `::`.
fn end_of_dotted(b: &[u8], start: usize) -> usize {
    let at = |i: usize| b.get(i).copied().unwrap_or(0);
    let mut end = start;
    loop {
        if is_word(at(end)) {
            end += 1;
        } else if at(end) == b':' && at(end + 1) == b':' && is_word(at(end + 2)) {
            end += 2;
        } else {
            return end;
        }
    }
}

fn number(text: &str, start: usize, line: u32) -> Result<(Token<'_>, usize), Error> {
    let b = text.as_bytes();
    let bad = || Error::new(line, "malformed number");
    let mut end = start;
    while end < b.len() && b[end].is_ascii_alphanumeric() {
        end += 1;
    }
    let word = &text[start..end];
    let lower = word.to_ascii_lowercase();
    if lower.starts_with("0f") && word.len() == 10 {
        return Ok((
            Token::Single(u32::from_str_radix(&word[2..], 16).map_err(|_| bad())?),
            end,
        ));
    }
    if lower.starts_with("0d") && word.len() == 18 {
        return Ok((
            Token::Double(u64::from_str_radix(&word[2..], 16).map_err(|_| bad())?),
            end,
        ));
    }
    let fraction =
        end < b.len() && b[end] == b'.' && !b.get(end + 1).is_some_and(u8::is_ascii_alphabetic);
    let exponent = !lower.starts_with("0x") && lower.contains('e');
    if fraction || exponent {
        if fraction {
            end += 1;
            while end < b.len() && b[end].is_ascii_alphanumeric() {
                end += 1;
            }
        }
        if b[end - 1].eq_ignore_ascii_case(&b'e') && end < b.len() && matches!(b[end], b'+' | b'-')
        {
            end += 1;
            while end < b.len() && b[end].is_ascii_digit() {
                end += 1;
            }
        }
        let v: f64 = text[start..end].parse().map_err(|_| bad())?;
        return Ok((Token::Double(v.to_bits()), end));
    }
    let digits = lower.strip_suffix('u').unwrap_or(&lower);
    let v = if let Some(h) = digits.strip_prefix("0x") {
        u64::from_str_radix(h, 16)
    } else if let Some(h) = digits.strip_prefix("0b") {
        u64::from_str_radix(h, 2)
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(&digits[1..], 8)
    } else {
        digits.parse()
    };
    let v = v.map_err(|_| bad())?;
    let token = match i64::try_from(v) {
        Ok(v) if digits.len() == lower.len() => Token::Integer(v),
        _ => Token::Unsigned(v),
    };
    Ok((token, end))
}
