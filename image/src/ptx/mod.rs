// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device memory of PTX text.
//!
//! The parser reads only what that needs: the declarations of variables, and the number of instructions that compile to
//! much code. The text need not be correct. If the driver's compiler would accept the text, the parser has counted all
//! of its variables.

pub mod calls;
mod tokens;

use std::collections::HashSet;

use super::Broken;
use tokens::{Token, Tokens};

/// The declarations of a text, in bytes of device memory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    /// All `.global` and `.const` variables, including those within functions and those of managed memory.
    pub variables: u64,
    /// Those of managed memory.
    pub managed: u64,
    /// An estimate of the code, and of the memory for kernels' parameters.
    pub code: u64,
}

/// Undocumented directives of `ptxas`: they generate and skip text.
const PREPROCESSOR: &[&[u8]] = &[b"MACRO", b"IF", b"ELIF", b"ELSE", b"END"];

/// Instructions that compile to a long sequence of instructions.
const LONG: &[&[u8]] = &[
    b"div",
    b"rem",
    b"sqrt",
    b"rcp",
    b"rsqrt",
    b"sad",
    b"fns",
    b"atom",
    b"red",
    b"vadd",
    b"vsub",
    b"vabsdiff",
    b"vmin",
    b"vmax",
    b"vshl",
    b"vshr",
    b"vmad",
    b"vset",
];
/// The code of such an instruction: the longest one observed, a double-precision square root, takes 417 bytes.
const LONG_BYTES: u64 = 512;
/// The code of an unrolled loop. ptxas unrolls up to some 2000 instructions of 16 bytes.
const LOOP_BYTES: u64 = 32 << 10;
/// The code of a byte of other text: the shortest 64-bit multiplications take 7 bytes.
const TEXT_FACTOR: u64 = 8;
/// The pages of a kernel's code and of its parameters.
const KERNEL_BYTES: u64 = 8192;

/// Reads a text.
///
/// # Errors
/// A size is not a number, or a declaration cannot be parsed: only the driver's compiler can determine the memory.
pub fn declared(text: &[u8]) -> Result<Declared, Broken> {
    let mut reader = Reader::new(text)?;
    if reader.token != Some(Token::Dot(b"version")) {
        return Err(Broken::new("the text does not begin with .version"));
    }
    while let Some(token) = reader.token {
        reader.read(token)?;
    }
    let text = TEXT_FACTOR.saturating_mul((text.len() - reader.values) as u64);
    reader.declared.code = reader.declared.code.saturating_add(text);
    Ok(reader.declared)
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    token: Option<Token<'a>>,
    declared: Declared,
    /// Whether consecutive words with a leading dot are modifiers of an instruction, or of a parameter.
    is_no_declaration: bool,
    /// Whether the directive's arguments are names.
    is_in_target: bool,
    /// The largest alignment in the statement.
    alignment: u64,
    /// Whether the statement declares managed memory.
    is_managed: bool,
    /// The function's labels so far.
    labels: HashSet<&'a [u8]>,
    /// The bytes of the text that are initial values of variables.
    values: usize,
}

/// A variable that is being declared.
struct Variable {
    /// Bytes of an element.
    element: u64,
    alignment: u64,
    count: u64,
    /// Whether the array is as long as its initial value.
    is_open: bool,
}

impl Variable {
    fn bytes(&self) -> u64 {
        self.element
            .saturating_mul(self.count)
            .saturating_add(self.alignment)
    }
}

fn not_understood<T>() -> Result<T, Broken> {
    Err(Broken::new(
        "the declaration of a variable is not understood",
    ))
}

impl<'a> Reader<'a> {
    fn new(text: &'a [u8]) -> Result<Self, Broken> {
        let mut tokens = Tokens::new(text);
        Ok(Self {
            token: tokens.next()?,
            tokens,
            declared: Declared::default(),
            is_no_declaration: false,
            is_in_target: false,
            alignment: 0,
            is_managed: false,
            labels: HashSet::new(),
            values: 0,
        })
    }

    /// Advances to the next token.
    fn advance(&mut self) -> Result<Option<Token<'a>>, Broken> {
        self.token = self.tokens.next()?;
        Ok(self.token)
    }

    /// Advances past this sign.
    fn expect(&mut self, sign: u8) -> Result<(), Broken> {
        if self.token != Some(Token::Sign(sign)) {
            return not_understood();
        }
        self.advance().map(drop)
    }

    fn add_code(&mut self, bytes: u64) {
        self.declared.code = self.declared.code.saturating_add(bytes);
    }

    fn read(&mut self, token: Token<'a>) -> Result<(), Broken> {
        match token {
            Token::Dot(_) => {
                self.is_no_declaration = false;
                self.is_in_target = false;
                self.dots()
            }
            Token::Word(word) => self.word(word),
            // ptxas implements a part of C's preprocessor.
            Token::Sign(b'#') => Err(Broken::new("the text needs preprocessing")),
            Token::Sign(sign) => {
                if matches!(sign, b';' | b'{' | b'}') {
                    self.alignment = 0;
                    self.is_managed = false;
                }
                self.advance().map(drop)
            }
            Token::Number(_) | Token::Text => self.advance().map(drop),
        }
    }

    /// Parses a name and its qualifiers: modifiers, or the colon after a label.
    fn word(&mut self, word: &'a [u8]) -> Result<(), Broken> {
        // For example `vadd4`.
        if LONG.contains(
            &word
                .strip_suffix(b"2")
                .or(word.strip_suffix(b"4"))
                .unwrap_or(word),
        ) {
            self.add_code(LONG_BYTES);
        }
        self.advance()?;
        if self.token == Some(Token::Sign(b':')) {
            self.labels.insert(word);
        }
        // After the names of targets a directive may follow; after any other name only a modifier.
        if !self.is_in_target && matches!(self.token, Some(Token::Dot(_))) {
            self.is_no_declaration = true;
            self.dots()?;
        }
        if let (b"bra", Some(Token::Word(label))) = (word, self.token)
            && self.labels.contains(label)
        {
            self.add_code(LOOP_BYTES);
        }
        Ok(())
    }

    /// Parses consecutive words that begin with a dot.
    fn dots(&mut self) -> Result<(), Broken> {
        while let Some(Token::Dot(name)) = self.token {
            if PREPROCESSOR.iter().any(|prefix| name.starts_with(prefix)) {
                return Err(Broken::new("the text needs preprocessing"));
            }
            self.advance()?;
            match name {
                b"global" | b"const" if !self.is_no_declaration => return self.declaration(),
                b"param" if !self.is_no_declaration => {
                    self.is_no_declaration = true;
                    self.dots()?;
                    return self.parameter();
                }
                // These declare nothing in device memory, or each thread's own memory.
                b"reg" | b"shared" | b"local" | b"ptr" => self.is_no_declaration = true,
                b"target" => self.is_in_target = true,
                b"align" => self.align()?,
                b"managed" => self.is_managed = true,
                b"entry" | b"func" => {
                    self.labels.clear();
                    self.add_code(KERNEL_BYTES);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn align(&mut self) -> Result<(), Broken> {
        let Some(Token::Number(number)) = self.token else {
            return Ok(());
        };
        self.alignment = self.alignment.max(integer(number)?);
        self.advance().map(drop)
    }

    /// Parses a parameter after its type: kernels' parameters are in a constant bank.
    fn parameter(&mut self) -> Result<(), Broken> {
        if let Some(Token::Word(_)) = self.token {
            self.advance()?;
        }
        if self.token == Some(Token::Sign(b'['))
            && let Some(Token::Number(number)) = self.advance()?
        {
            let bytes = integer(number)?;
            self.add_code(bytes);
        }
        Ok(())
    }

    /// Parses a declaration after its state space: its variables, up to the `;`.
    fn declaration(&mut self) -> Result<(), Broken> {
        // Old text contains the constant's bank.
        if self.token == Some(Token::Sign(b'[')) {
            self.advance()?;
            self.advance()?;
            self.expect(b']')?;
        }
        let element = self.element()?;
        loop {
            let Some(Token::Word(_)) = self.token else {
                return not_understood();
            };
            self.advance()?;
            let mut variable = Variable {
                element,
                alignment: self.alignment.max(16),
                count: 1,
                is_open: false,
            };
            self.extents(&mut variable)?;
            if self.token == Some(Token::Sign(b'=')) {
                let before = self.tokens.left();
                let elements = self.initialiser()?;
                self.values += before - self.tokens.left();
                variable.count = match variable.is_open {
                    true => variable.count.saturating_mul(elements),
                    false => variable.count.max(elements),
                };
            }
            let all = self.declared.variables.saturating_add(variable.bytes());
            self.declared.variables = all;
            if self.is_managed {
                let managed = self.declared.managed.saturating_add(variable.bytes());
                self.declared.managed = managed;
            }
            match self.token {
                Some(Token::Sign(b',')) => self.advance()?,
                Some(Token::Sign(b';')) => return Ok(()),
                _ => return not_understood(),
            };
        }
    }

    /// The bytes of an element, from the words between a state space and a name.
    fn element(&mut self) -> Result<u64, Broken> {
        let (mut bytes, mut vector) = (None, 1);
        while let Some(Token::Dot(name)) = self.token {
            self.advance()?;
            match name {
                b"align" => self.align()?,
                b"attribute" => self.attribute()?,
                [b'v', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
                    vector = integer(digits)?;
                }
                name => bytes = Some(type_bytes(name)),
            }
        }
        match bytes {
            Some(bytes) => Ok(vector.saturating_mul(bytes)),
            None => not_understood(),
        }
    }

    /// Parses `(.managed)` and similar attributes.
    fn attribute(&mut self) -> Result<(), Broken> {
        self.expect(b'(')?;
        let mut depth = 1;
        while depth > 0 {
            match self.token {
                Some(Token::Sign(b'(')) => depth += 1,
                Some(Token::Sign(b')')) => depth -= 1,
                Some(Token::Sign(b';')) | None => return not_understood(),
                Some(Token::Dot(b"managed")) => self.is_managed = true,
                Some(_) => {}
            }
            self.advance()?;
        }
        Ok(())
    }

    /// Parses `[4][5]`, `[]` or `<4>` after a name.
    fn extents(&mut self, variable: &mut Variable) -> Result<(), Broken> {
        while let Some(Token::Sign(open @ (b'[' | b'<'))) = self.token {
            match self.advance()? {
                Some(Token::Sign(b']')) if open == b'[' => variable.is_open = true,
                Some(Token::Number(number)) => {
                    variable.count = variable.count.saturating_mul(integer(number)?);
                    self.advance()?;
                }
                _ => return Err(Broken::new("the size of a variable is not a number")),
            }
            self.expect(if open == b'[' { b']' } else { b'>' })?;
        }
        Ok(())
    }

    /// Skips a variable's initial value; returns an upper bound of the number of its elements.
    fn initialiser(&mut self) -> Result<u64, Broken> {
        let (mut depth, mut elements) = (0_u32, 1);
        loop {
            match self.advance()? {
                Some(Token::Sign(b'{' | b'(')) => depth += 1,
                Some(Token::Sign(b'}' | b')')) if depth > 0 => depth -= 1,
                Some(Token::Sign(b',')) if depth > 0 => elements += 1,
                Some(Token::Sign(b',' | b';')) if depth == 0 => return Ok(elements),
                // A cast in a constant expression.
                Some(Token::Dot(b"s64" | b"u64")) if depth > 0 => {}
                Some(Token::Sign(b';' | b'}' | b')' | b'#') | Token::Dot(_) | Token::Text)
                | None => return not_understood(),
                Some(_) => {}
            }
        }
    }
}

/// A literal integer of PTX: decimal, hexadecimal, octal or binary, with or without `U`.
fn integer(word: &[u8]) -> Result<u64, Broken> {
    let text = std::str::from_utf8(word).unwrap_or_default();
    let text = text.strip_suffix('U').unwrap_or(text);
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    u64::from_str_radix(digits, radix)
        .map_err(|_| Broken::new("the size of a variable is not a number"))
}

/// The bytes of a value of a type such as `b32`; 64 for a type that is no number, such as a texture.
fn type_bytes(name: &[u8]) -> u64 {
    let [b'b' | b'u' | b's' | b'f', bits @ ..] = name else {
        return 64;
    };
    // Two values in one, as in `f16x2`.
    let (bits, both) = match bits.strip_suffix(b"x2") {
        Some(bits) => (bits, 2),
        None => (bits, 1),
    };
    integer(bits).map_or(64, |bits| bits.saturating_mul(both).div_ceil(8))
}
