// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernels of a text that reach a function that the text only declares.
//!
//! A body is assumed to call each function that it names: a superset of its calls, except for calls through an address.
//! A body with such calls is assumed to reach all functions that any body or variable names.

use std::collections::HashMap;

use super::{
    PREPROCESSOR,
    tokens::{Token, Tokens},
};
use crate::Broken;

/// In place of a name, for a body that calls through an address.
const BY_ADDRESS: [&[u8]; 3] = [b"callprototype", b"calltargets", b"branchtargets"];

/// A function, or a kernel.
#[derive(Debug, Default)]
struct Body<'a> {
    is_kernel: bool,
    has_code: bool,
    names: Vec<&'a [u8]>,
    calls_by_address: bool,
}

/// The names of the kernels that may reach a function for whose name `counts` is true. `counts` is not called for
/// functions whose code is in the text.
///
/// # Errors
/// The text is not understood.
pub fn reaching(text: &[u8], counts: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, Broken> {
    let bodies = bodies(text)?;
    let mut callers: HashMap<&[u8], Vec<&[u8]>> = HashMap::new();
    let mut next = Vec::new();
    for (&name, body) in &bodies {
        for callee in &body.names {
            if bodies.contains_key(callee) {
                callers.entry(callee).or_default().push(name);
            }
        }
        if !body.has_code && counts(name) {
            next.push(name);
        }
    }
    let by_address = bodies.iter().filter(|(_, body)| body.calls_by_address);
    let mut by_address: Vec<_> = by_address.map(|(name, _)| *name).collect();
    let mut kernels = Vec::new();
    // Each name's callers are removed when they are visited, so no name is visited twice.
    while let Some(name) = next.pop() {
        next.append(&mut by_address);
        next.extend(callers.remove(name).unwrap_or_default());
        if bodies[name].is_kernel {
            kernels.push(name.to_vec());
        }
    }
    kernels.sort();
    kernels.dedup();
    Ok(kernels)
}

/// The functions and kernels of a text. Names outside bodies are no calls.
fn bodies(text: &[u8]) -> Result<HashMap<&[u8], Body<'_>>, Broken> {
    let mut tokens = Tokens::new(text);
    let mut bodies: HashMap<&[u8], Body<'_>> = HashMap::new();
    // The function whose header or body is being parsed.
    let (mut current, mut depth) = (None, 0_u32);
    while let Some(token) = tokens.next()? {
        match token {
            Token::Sign(b'#') => return Err(Broken::new("the text needs preprocessing")),
            Token::Dot(name) if PREPROCESSOR.iter().any(|part| name.starts_with(part)) => {
                return Err(Broken::new("the text needs preprocessing"));
            }
            // An alias can replace its function anywhere.
            Token::Dot(b"alias") => return Err(Broken::new("the text has aliases")),
            Token::Dot(kind @ (b"entry" | b"func")) if depth == 0 => {
                let name = name(&mut tokens)?;
                let body = bodies.entry(name).or_default();
                body.is_kernel |= kind == b"entry";
                current = Some(name);
            }
            Token::Dot(name) if BY_ADDRESS.contains(&name) => match current {
                Some(at) if depth > 0 => bodies.entry(at).or_default().calls_by_address = true,
                _ => return Err(Broken::new("a prototype outside of a function")),
            },
            Token::Sign(b'{') => {
                depth += 1;
                if let Some(at) = current {
                    bodies.entry(at).or_default().has_code = true;
                }
            }
            Token::Sign(b'}') => {
                depth = depth.checked_sub(1).ok_or_else(unbalanced)?;
                if depth == 0 {
                    current = None;
                }
            }
            Token::Sign(b';') if depth == 0 => current = None,
            Token::Word(word) if depth > 0 => {
                if let Some(at) = current {
                    bodies.entry(at).or_default().names.push(word);
                }
            }
            _ => {}
        }
    }
    Ok(bodies)
}

fn unbalanced() -> Broken {
    Broken::new("the braces of the text are not balanced")
}

/// The name of a function, after its directive and its result.
fn name<'a>(tokens: &mut Tokens<'a>) -> Result<&'a [u8], Broken> {
    let mut depth = 0_u32;
    while let Some(token) = tokens.next()? {
        match token {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') => depth = depth.checked_sub(1).ok_or_else(unbalanced)?,
            Token::Word(name) if depth == 0 => return Ok(name),
            _ => {}
        }
    }
    Err(Broken::new("a function has no name"))
}
