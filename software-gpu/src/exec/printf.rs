// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `printf` in kernels: the compiler calls `vprintf` with a format and a buffer of arguments, each as wide as C passes
//! it.

use std::ffi::{CString, c_char, c_int};

use super::env::{Env, GENERIC, LOCAL};
use super::lanes::each_until;
use super::program::{Inst, Stop};

/// The maximum number of arguments of one call; a further conversion is printed unchanged.
const MOST_ARGUMENTS: i32 = 32;
/// The widest field. One that is wider would not fit the buffer of a device.
const MOST_WIDTH: i32 = 1 << 20;

/// The arguments of one lane's call.
struct Arguments<'e, 'a, 'm> {
    env: &'e mut Env<'a, 'm>,
    lane: usize,
    next: u64,
    parsed: i32,
}

impl Arguments<'_, '_, '_> {
    /// Whether one more is taken.
    fn has_more(&self) -> bool {
        self.next != 0 && self.parsed < MOST_ARGUMENTS
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        let at = self.next.next_multiple_of(N as u64);
        let from = self.env.host::<GENERIC>(self.lane, at, N, false)?;
        self.next = at + N as u64;
        self.parsed += 1;
        // SAFETY: `host` answers for the pointer and the length.
        Ok(unsafe { from.cast::<[u8; N]>().read_unaligned() })
    }

    fn int(&mut self) -> Result<i32, Stop> {
        self.take().map(i32::from_ne_bytes)
    }

    fn long(&mut self) -> Result<i64, Stop> {
        self.take().map(i64::from_ne_bytes)
    }
}

/// A conversion of a format.
#[derive(Debug, Default)]
struct Conversion {
    flags: Vec<u8>,
    width: Option<Length>,
    precision: Option<Length>,
    is_long: bool,
    /// `h` or `hh`.
    short: usize,
    kind: u8,
}

#[derive(Debug, Clone, Copy)]
enum Length {
    Is(i32),
    Argument,
}

fn number(format: &mut &[u8]) -> Option<Length> {
    if let Some(rest) = format.strip_prefix(b"*") {
        *format = rest;
        return Some(Length::Argument);
    }
    let digits = format.iter().take_while(|c| c.is_ascii_digit()).count();
    let (number, rest) = format.split_at(digits);
    *format = rest;
    let value = number.iter().fold(0, |value: i32, digit| {
        value
            .saturating_mul(10)
            .saturating_add(i32::from(digit - b'0'))
    });
    (digits > 0).then_some(Length::Is(value))
}

impl Conversion {
    /// Parses a conversion after its `%`: flags, width, precision, size and type, in any combination. `None` if it is
    /// no conversion.
    fn parse(format: &mut &[u8]) -> Option<Self> {
        let mut rest = *format;
        let mut conversion = Self::default();
        while let Some(flag @ (b'#' | b' ' | b'0' | b'+' | b'-')) = rest.first() {
            if !conversion.flags.contains(flag) {
                conversion.flags.push(*flag);
            }
            rest = &rest[1..];
        }
        conversion.width = number(&mut rest);
        if let Some(behind) = rest.strip_prefix(b".") {
            rest = behind;
            conversion.precision = Some(number(&mut rest).unwrap_or(Length::Is(0)));
        }
        while let Some(size @ (b'h' | b'l')) = rest.first() {
            conversion.is_long |= *size == b'l';
            conversion.short += usize::from(*size == b'h');
            rest = &rest[1..];
        }
        conversion.kind = *rest.first()?;
        *format = &rest[1..];
        b"cdiouxXpeEfgGaAs"
            .contains(&conversion.kind)
            .then_some(conversion)
    }

    fn put(&self, arguments: &mut Arguments<'_, '_, '_>, text: &mut Vec<u8>) -> Result<(), Stop> {
        let mut value = |length: Option<Length>| {
            Ok::<_, Stop>(match length {
                None => None,
                Some(Length::Is(value)) => Some(value),
                Some(Length::Argument) => Some(arguments.int()?),
            })
        };
        let (width, precision) = (value(self.width)?, value(self.precision)?);
        let mut spec = b"%".to_vec();
        spec.extend(&self.flags);
        if let Some(width) = width {
            let width = width.clamp(-MOST_WIDTH, MOST_WIDTH);
            spec.extend(width.to_string().bytes());
        }
        // A negative one counts as none.
        if let Some(precision) = precision.filter(|precision| *precision >= 0) {
            spec.extend(format!(".{}", precision.min(MOST_WIDTH)).bytes());
        }
        match self.kind {
            b'e' | b'E' | b'f' | b'g' | b'G' | b'a' | b'A' => {
                let value = f64::from_ne_bytes(arguments.take()?);
                // SAFETY: the conversion is of one `double`.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, value)
                });
            }
            b's' => {
                let address = arguments.long()? as u64;
                let string = match address {
                    0 => "(null)".into(),
                    _ => arguments.env.string_of(arguments.lane, address),
                };
                let string = CString::new(string).unwrap_or_default();
                // SAFETY: the conversion is of one string, which ends with a NUL.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, string.as_ptr())
                });
            }
            b'p' => {
                let value = arguments.long()? as *const u8;
                // SAFETY: the conversion is of one pointer, which is not followed.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, value)
                });
            }
            b'c' => {
                let value = arguments.int()?;
                // SAFETY: the conversion is of one `int`.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, value)
                });
            }
            _ if self.is_long => {
                let value = arguments.long()?;
                spec.extend(b"ll");
                // SAFETY: the conversion is of one `long long`.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, value)
                });
            }
            _ => {
                let value = arguments.int()?;
                spec.extend(std::iter::repeat_n(b'h', self.short.min(2)));
                // SAFETY: the conversion is of one `int`.
                format_by(spec, self.kind, text, |to, room, spec| unsafe {
                    libc::snprintf(to, room, spec, value)
                });
            }
        }
        Ok(())
    }
}

/// Appends the result of `write` for a conversion, which is `snprintf` with one argument.
fn format_by(
    mut spec: Vec<u8>,
    kind: u8,
    text: &mut Vec<u8>,
    write: impl Fn(*mut c_char, usize, *const c_char) -> c_int,
) {
    spec.push(kind);
    let spec = CString::new(spec).unwrap_or_default();
    let length = write(std::ptr::null_mut(), 0, spec.as_ptr());
    let Ok(length) = usize::try_from(length) else {
        return;
    };
    // Including room for the NUL.
    let mut made = vec![0_u8; length + 1];
    write(made.as_mut_ptr().cast(), made.len(), spec.as_ptr());
    text.extend(&made[..length]);
}

/// The text of one lane's call, and how many arguments it took.
fn text(format: &[u8], arguments: &mut Arguments<'_, '_, '_>) -> Result<Vec<u8>, Stop> {
    let mut text = Vec::new();
    let mut left = format;
    while let Some((&first, rest)) = left.split_first() {
        if first != b'%' {
            text.push(first);
            left = rest;
            continue;
        }
        if let Some(rest) = rest.strip_prefix(b"%") {
            text.push(b'%');
            left = rest;
            continue;
        }
        let mut behind = rest;
        let conversion = Conversion::parse(&mut behind);
        match conversion.filter(|_| arguments.has_more()) {
            Some(conversion) => {
                conversion.put(arguments, &mut text)?;
                left = behind;
            }
            None => {
                text.push(b'%');
                left = rest;
            }
        }
    }
    Ok(text)
}

/// `vprintf`: `list` has the places of its parameters in local memory, `imm` that of its result, or a negative number.
/// The result is the number of parsed arguments, or -1 without a format.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn vprintf(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    each_until(mask, |lane| print(env, i, lane))
}

fn print(env: &mut Env<'_, '_>, i: &Inst, lane: usize) -> Result<(), Stop> {
    let format = env.parameter(lane, i.list.first().copied());
    let mut parsed = -1;
    if format != 0 {
        let format = env.string_of(lane, format);
        let next = env.parameter(lane, i.list.get(1).copied());
        let mut arguments = Arguments {
            env,
            lane,
            next,
            parsed: 0,
        };
        let text = text(&format, &mut arguments)?;
        parsed = arguments.parsed;
        env.output.print(text);
    }
    if let Ok(result) = u64::try_from(i.imm) {
        let to = env.host::<LOCAL>(lane, result, 4, true)?;
        // SAFETY: `host` answers for the pointer and the length.
        unsafe { to.cast::<i32>().write_unaligned(parsed) };
    }
    Ok(())
}
