//! The variables that PTX text declares in the device's memory.

use super::Broken;

/// A token: a word, which begins with a letter, a digit, `.`, `_`, `$` or `%`, or one other character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a [u8]),
    Sign(u8),
}

/// Splits the text; comments and strings are left out.
struct Tokens<'a> {
    rest: &'a [u8],
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%')
}

impl<'a> Tokens<'a> {
    fn skip_past(&mut self, end: &[u8]) {
        let found = self.rest.windows(end.len()).position(|part| part == end);
        self.rest = found.map_or(&[], |found| &self.rest[found + end.len()..]);
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let (first, rest) = self.rest.split_first()?;
            match first {
                b'/' if rest.starts_with(b"/") => self.skip_past(b"\n"),
                b'/' if rest.starts_with(b"*") => {
                    self.rest = &rest[1..];
                    self.skip_past(b"*/");
                }
                b'"' => {
                    self.rest = rest;
                    self.skip_past(b"\"");
                }
                space if space.is_ascii_whitespace() => self.rest = rest,
                word if is_word(*word) => {
                    let end = self.rest.iter().position(|byte| !is_word(*byte));
                    let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.rest = rest;
                    return Some(Token::Word(word));
                }
                sign => {
                    self.rest = rest;
                    return Some(Token::Sign(*sign));
                }
            }
        }
    }
}

/// A literal integer of PTX: decimal, hexadecimal, octal or binary, with or without `U`.
fn integer(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let text = text.strip_suffix('U').unwrap_or(text);
    let with = |digits: &str, radix| u64::from_str_radix(digits, radix).ok();
    match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => with(&text[2..], 16),
        [b'0', b'b' | b'B', ..] => with(&text[2..], 2),
        [b'0', _, ..] => with(&text[1..], 8),
        _ => with(text, 10),
    }
}

/// The bytes of a value of a type such as `.b32`; 64 for one that is no number, such as a texture's.
fn type_bytes(word: &[u8]) -> Option<u64> {
    let digits = word.iter().position(u8::is_ascii_digit)?;
    let bits = integer(&word[digits..]);
    match &word[..digits] {
        b".b" | b".u" | b".s" | b".f" => bits.map(|bits| bits.div_ceil(8)),
        // As in `.f16x2`, whose digits are not all digits.
        _ => None,
    }
}

/// The bytes of all `.global` and `.const` variables that the text declares.
///
/// # Errors
/// A size is not a number, so nobody can say what it is before the driver's compiler does.
pub fn variables(text: &[u8]) -> Result<u64, Broken> {
    let mut tokens = Tokens { rest: text };
    let mut total = 0_u64;
    let mut parentheses = 0_u32;
    while let Some(token) = tokens.next() {
        match token {
            Token::Sign(b'(') => parentheses += 1,
            Token::Sign(b')') => parentheses = parentheses.saturating_sub(1),
            // The language has these for a preprocessor, which the driver does not run.
            Token::Sign(b'#') => return Err(Broken::new("the text is to be preprocessed")),
            // Within parentheses it says where a parameter points.
            Token::Word(b".global" | b".const") if parentheses == 0 => {
                total = total.saturating_add(declaration(&mut tokens)?);
            }
            _ => {}
        }
    }
    Ok(total)
}

/// The rest of a declaration up to its `;`: what its variables take.
fn declaration(tokens: &mut Tokens<'_>) -> Result<u64, Broken> {
    let unknown = || Broken::new("the size of a variable is not a number");
    let began = tokens.rest.len();
    let (mut element, mut vector, mut alignment) = (64_u64, 1_u64, 16_u64);
    let (mut total, mut count) = (0_u64, 1_u64);
    let mut is_named = false;
    let mut is_open = false;
    while let Some(token) = tokens.next() {
        match token {
            Token::Word(b".align") => match tokens.next() {
                Some(Token::Word(word)) => {
                    alignment = alignment.max(integer(word).ok_or_else(unknown)?);
                }
                _ => return Err(unknown()),
            },
            Token::Word(b".v2") => vector = 2,
            Token::Word(b".v4") => vector = 4,
            Token::Word(b".v8") => vector = 8,
            Token::Word(word) if word.starts_with(b".") => {
                element = type_bytes(word).unwrap_or(element);
            }
            Token::Word(_) => is_named = true,
            Token::Sign(b'[') => match tokens.next() {
                Some(Token::Sign(b']')) => is_open = true,
                Some(Token::Word(word)) => {
                    let extent = integer(word).ok_or_else(unknown)?;
                    count = count.saturating_mul(extent);
                    if tokens.next() != Some(Token::Sign(b']')) {
                        return Err(unknown());
                    }
                }
                _ => return Err(unknown()),
            },
            // `name<100>` declares a hundred of them.
            Token::Sign(b'<') => match tokens.next() {
                Some(Token::Word(word)) => {
                    count = count.saturating_mul(integer(word).ok_or_else(unknown)?);
                }
                _ => return Err(unknown()),
            },
            Token::Sign(b'=') => {
                let end = initialiser(tokens);
                total = total.saturating_add(whole(element, vector, count, alignment));
                if is_open {
                    // Each element has at least one character, and a comma.
                    let characters = (began - tokens.rest.len()) as u64;
                    total = total.saturating_add(whole(element, vector, characters, alignment));
                }
                if end != Some(b',') {
                    return Ok(total);
                }
                (count, is_named, is_open) = (1, false, false);
            }
            Token::Sign(end @ (b',' | b';')) => {
                // Without a name it is no variable, as in a call's attributes.
                if is_named {
                    total = total.saturating_add(whole(element, vector, count, alignment));
                }
                if end == b';' {
                    return Ok(total);
                }
                (count, is_named, is_open) = (1, false, false);
            }
            Token::Sign(_) => {}
        }
    }
    Ok(total)
}

fn whole(element: u64, vector: u64, count: u64, alignment: u64) -> u64 {
    element
        .saturating_mul(vector)
        .saturating_mul(count)
        .saturating_add(alignment)
}

/// Skips what a variable is set to; the sign behind it.
fn initialiser(tokens: &mut Tokens<'_>) -> Option<u8> {
    let mut depth = 0_u32;
    for token in tokens {
        match token {
            Token::Sign(b'{' | b'(') => depth += 1,
            Token::Sign(b'}' | b')') => depth = depth.saturating_sub(1),
            Token::Sign(end @ (b',' | b';')) if depth == 0 => return Some(end),
            _ => {}
        }
    }
    None
}
