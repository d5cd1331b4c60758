// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Constant expressions (PTX ISA, "Constant Expressions").
//!
//! They are computed at once, in 64 bits. Where ptxas and the manual differ, as in the type of `a & b`, this does as
//! ptxas.

use super::lexer::Token;
use super::parser::{MAX_DEPTH, Parser};
use super::{Error, Operand};

/// The value of an expression, with its type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Constant {
    /// `.s64`
    Signed(i64),
    /// `.u64`
    Unsigned(u64),
    /// The bits of a constant written `0f…`, which is no part of larger expressions.
    Single(u32),
    /// `.f64`
    Double(f64),
}

impl From<bool> for Constant {
    fn from(is_true: bool) -> Self {
        Self::Signed(i64::from(is_true))
    }
}

impl From<Constant> for Operand {
    fn from(constant: Constant) -> Self {
        match constant {
            Constant::Signed(v) => Self::Integer(v),
            Constant::Unsigned(v) => Self::Integer(v as i64),
            Constant::Single(bits) => Self::Single(bits),
            Constant::Double(v) => Self::Double(v.to_bits()),
        }
    }
}

impl Constant {
    /// The bits of an integer.
    pub(super) fn integer(self) -> Result<u64, &'static str> {
        match self {
            Self::Signed(v) => Ok(v as u64),
            Self::Unsigned(v) => Ok(v),
            _ => Err("integer constant expected"),
        }
    }

    /// An integer of these bits, with this value's type.
    fn like(self, bits: u64) -> Self {
        match self {
            Self::Unsigned(_) => Self::Unsigned(bits),
            _ => Self::Signed(bits as i64),
        }
    }

    fn negated(self) -> Self {
        match self {
            Self::Signed(v) => Self::Signed(v.wrapping_neg()),
            Self::Unsigned(v) => Self::Unsigned(v.wrapping_neg()),
            Self::Single(bits) => Self::Single(bits ^ 1 << 31),
            Self::Double(v) => Self::Double(-v),
        }
    }
}

/// An operator with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binary {
    LogicalOr,
    LogicalAnd,
    Or,
    Xor,
    And,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    ShiftLeft,
    ShiftRight,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Binary {
    /// The operator that these two tokens begin with; its precedence, which is C's; and the number of its tokens.
    fn of(first: Token<'_>, second: Token<'_>) -> Option<(Self, u8, usize)> {
        let Token::Punct(first) = first else {
            // A name may begin with this character, so the lexer does not treat it as punctuation.
            return (first == Token::Word("%")).then_some((Self::Remainder, 10, 1));
        };
        let second = match second {
            Token::Punct(c) => c,
            _ => ' ',
        };
        Some(match (first, second) {
            ('|', '|') => (Self::LogicalOr, 1, 2),
            ('&', '&') => (Self::LogicalAnd, 2, 2),
            ('|', _) => (Self::Or, 3, 1),
            ('^', _) => (Self::Xor, 4, 1),
            ('&', _) => (Self::And, 5, 1),
            ('=', '=') => (Self::Equal, 6, 2),
            ('!', '=') => (Self::NotEqual, 6, 2),
            ('<', '<') => (Self::ShiftLeft, 8, 2),
            ('>', '>') => (Self::ShiftRight, 8, 2),
            ('<', '=') => (Self::LessOrEqual, 7, 2),
            ('>', '=') => (Self::GreaterOrEqual, 7, 2),
            ('<', _) => (Self::Less, 7, 1),
            ('>', _) => (Self::Greater, 7, 1),
            ('+', _) => (Self::Add, 9, 1),
            ('-', _) => (Self::Subtract, 9, 1),
            ('*', _) => (Self::Multiply, 10, 1),
            ('/', _) => (Self::Divide, 10, 1),
            _ => return None,
        })
    }

    fn compute(self, a: Constant, b: Constant) -> Result<Constant, &'static str> {
        if let (Constant::Double(a), Constant::Double(b)) = (a, b) {
            return self.of_doubles(a, b);
        }
        let (x, y) = match (a.integer(), b.integer()) {
            (Ok(x), Ok(y)) => (x, y),
            _ => return Err("types that do not go together in a constant expression"),
        };
        // If one operand is unsigned, both are taken so.
        let common = match (a, b) {
            (Constant::Signed(_), Constant::Signed(_)) => a,
            _ => Constant::Unsigned(0),
        };
        let is_signed = matches!(common, Constant::Signed(_));
        let order = match is_signed {
            true => (x as i64).cmp(&(y as i64)),
            false => x.cmp(&y),
        };
        if matches!(self, Self::Divide | Self::Remainder) && y == 0 {
            return Err("a constant expression has a division by zero");
        }
        Ok(match self {
            Self::LogicalOr => (x != 0 || y != 0).into(),
            Self::LogicalAnd => (x != 0 && y != 0).into(),
            Self::Or => common.like(x | y),
            Self::Xor => common.like(x ^ y),
            Self::And => common.like(x & y),
            Self::Equal => order.is_eq().into(),
            Self::NotEqual => order.is_ne().into(),
            Self::Less => order.is_lt().into(),
            Self::LessOrEqual => order.is_le().into(),
            Self::Greater => order.is_gt().into(),
            Self::GreaterOrEqual => order.is_ge().into(),
            // Only the lowest six bits of the shift distance count.
            Self::ShiftLeft => a.like(x.wrapping_shl(y as u32)),
            Self::ShiftRight => match a {
                Constant::Signed(v) => Constant::Signed(v.wrapping_shr(y as u32)),
                _ => Constant::Unsigned(x.wrapping_shr(y as u32)),
            },
            Self::Add => common.like(x.wrapping_add(y)),
            Self::Subtract => common.like(x.wrapping_sub(y)),
            Self::Multiply => common.like(x.wrapping_mul(y)),
            Self::Divide if is_signed => Constant::Signed((x as i64).wrapping_div(y as i64)),
            Self::Divide => Constant::Unsigned(x / y),
            // Unsigned whatever the operands are.
            Self::Remainder => Constant::Unsigned(x % y),
        })
    }

    fn of_doubles(self, a: f64, b: f64) -> Result<Constant, &'static str> {
        Ok(match self {
            Self::Equal => (a == b).into(),
            Self::NotEqual => (a != b).into(),
            Self::Less => (a < b).into(),
            Self::LessOrEqual => (a <= b).into(),
            Self::Greater => (a > b).into(),
            Self::GreaterOrEqual => (a >= b).into(),
            Self::Add => Constant::Double(a + b),
            Self::Subtract => Constant::Double(a - b),
            Self::Multiply => Constant::Double(a * b),
            Self::Divide => Constant::Double(a / b),
            _ => return Err("integer constant expected"),
        })
    }
}

impl Parser<'_> {
    /// A constant, or an expression of constants.
    pub(super) fn constant(&mut self) -> Result<Constant, Error> {
        self.conditional(0)
    }

    /// The bits of an integer constant.
    pub(super) fn constant_integer(&mut self) -> Result<i64, Error> {
        let value = self.constant()?;
        let bits = value.integer();
        bits.map_or_else(|why| self.error(why), |bits| Ok(bits as i64))
    }

    /// What is added to a name or a register: zero if nothing is.
    pub(super) fn offset(&mut self) -> Result<i64, Error> {
        if self.accept('+') || self.peek() == Token::Punct('-') {
            return self.constant_integer();
        }
        Ok(0)
    }

    fn conditional(&mut self, depth: usize) -> Result<Constant, Error> {
        let condition = self.binary(0, depth)?;
        if !self.accept('?') {
            return Ok(condition);
        }
        let yes = self.conditional(depth + 1)?;
        self.expect(':')?;
        let no = self.conditional(depth + 1)?;
        match condition.integer() {
            Ok(0) => Ok(no),
            Ok(_) => Ok(yes),
            Err(why) => self.error(why),
        }
    }

    /// Operands with operators of more than this precedence between them.
    fn binary(&mut self, above: u8, depth: usize) -> Result<Constant, Error> {
        let mut left = self.unary(depth)?;
        while let Some((operator, precedence, tokens)) =
            Binary::of(self.peek(), self.peek_second()).filter(|of| of.1 > above)
        {
            for _ in 0..tokens {
                self.next();
            }
            let right = self.binary(precedence, depth)?;
            let value = operator.compute(left, right);
            left = value.or_else(|why| self.error(why))?;
        }
        Ok(left)
    }

    fn unary(&mut self, depth: usize) -> Result<Constant, Error> {
        if depth > MAX_DEPTH {
            return self.error("a constant expression is nested too deeply");
        }
        let line = self.line();
        let of_integer = |of: Constant| of.integer().map_err(|why| Error::new(line, why));
        Ok(match self.next() {
            Token::Integer(v) => Constant::Signed(v),
            Token::Unsigned(v) => Constant::Unsigned(v),
            Token::Single(bits) => Constant::Single(bits),
            Token::Double(bits) => Constant::Double(f64::from_bits(bits)),
            Token::Word("WARP_SZ") => Constant::Signed(32),
            Token::Punct('+') => self.unary(depth + 1)?,
            Token::Punct('-') => self.unary(depth + 1)?.negated(),
            Token::Punct('!') => (of_integer(self.unary(depth + 1)?)? == 0).into(),
            Token::Punct('~') => Constant::Unsigned(!of_integer(self.unary(depth + 1)?)?),
            Token::Punct('(') => match self.peek() {
                Token::Dot(to @ ("s64" | "u64")) => {
                    self.next();
                    self.expect(')')?;
                    let bits = of_integer(self.unary(depth + 1)?)?;
                    match to {
                        "s64" => Constant::Signed(bits as i64),
                        _ => Constant::Unsigned(bits),
                    }
                }
                _ => {
                    let value = self.conditional(depth + 1)?;
                    self.expect(')')?;
                    value
                }
            },
            t => {
                return Err(Error::new(
                    line,
                    format!("expected a constant, found {t:?}"),
                ));
            }
        })
    }
}
