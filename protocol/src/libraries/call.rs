// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoding of a call of a library's function as a request, and the decoding of a request.
//!
//! A call is a word for each argument, as a C caller passes it in a register. Data at a host address is sent with the
//! request; data on the device stays there.

use super::{Function, Kind, MAX_ARRAY, MAX_SCRATCH, Width};
use crate::codec::{Malformed, Reader, Writer};

/// The place of scalars and results (`cublasPointerMode_t` and the like).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PointerMode {
    /// In the memory of the program.
    #[default]
    Host,
    /// In device memory.
    Device,
}

/// The reason why a call cannot be encoded: its library would refuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// The size in bytes of an array with as many values as the argument with this number, as the library will read it.
fn array_bytes(function: &Function, words: &[u64], width: usize, count: u8) -> Option<usize> {
    let at = usize::from(count);
    let count = match function.kinds.get(at)? {
        // The upper half of the word is not part of an `int`.
        Kind::I32 => u64::from(*words.get(at)? as u32),
        _ => *words.get(at)?,
    };
    (count <= MAX_ARRAY).then(|| width * count as usize)
}

/// The number of bytes at a host address for an argument of a kind, from the call's words; `None` if the words do not
/// determine it.
pub fn bytes_of(function: &Function, words: &[u64], kind: Kind) -> Option<usize> {
    match kind {
        Kind::Array(of, count)
        | Kind::List(of, count)
        | Kind::Scalars(of, count)
        | Kind::Outs(of, count) => array_bytes(function, words, of.bytes(words)?, count),
        Kind::Scalar(of)
        | Kind::Result(of)
        | Kind::InOut(of)
        | Kind::In(of)
        | Kind::Out(of)
        | Kind::Update(of) => of.bytes(words),
        _ => None,
    }
}

/// Encodes a call as a request. `read` returns the bytes at a host address of the program.
///
/// # Errors
///
/// The type that determines the width of a value is invalid, or an array is too long or has no address.
pub fn put(
    function: &Function,
    words: &[u64],
    mode: PointerMode,
    writer: &mut Writer,
    read: impl FnMut(u64, &mut [u8]),
) -> Result<(), Refused> {
    put_with(function, words, &[], mode, writer, read)
}

/// The same, with the bytes of the argument that is a [`Kind::Blob`].
///
/// # Errors
///
/// As [`put`].
pub fn put_with(
    function: &Function,
    words: &[u64],
    blob: &[u8],
    mode: PointerMode,
    writer: &mut Writer,
    mut read: impl FnMut(u64, &mut [u8]),
) -> Result<(), Refused> {
    let mut here = |writer: &mut Writer, address: u64, bytes: usize| {
        writer.bytes_with(bytes, |to| read(address, to));
    };
    let is_host = mode == PointerMode::Host;
    let width = |width: Width| width.bytes(words).ok_or(Refused);
    let widths = |of: Width, count| array_bytes(function, words, width(of)?, count).ok_or(Refused);
    for (kind, &word) in function.kinds.iter().zip(words) {
        match *kind {
            Kind::Handle(_)
            | Kind::New(_)
            | Kind::Gone(_)
            | Kind::Object(_)
            | Kind::Stream
            | Kind::I64
            | Kind::F64
            | Kind::Device => writer.word(word),
            Kind::I32 => writer.word(i64::from(word as i32) as u64),
            Kind::F32 => writer.word(u64::from(word as u32)),
            Kind::Out(_) | Kind::Outs(..) | Kind::Scratch(_) | Kind::Reply => {
                if let Kind::Outs(of, count) = *kind
                    && word != 0
                {
                    widths(of, count)?;
                }
                if let Kind::Scratch(bytes) = *kind {
                    let bytes = words.get(usize::from(bytes));
                    if word != 0 && bytes.is_none_or(|bytes| *bytes > MAX_SCRATCH) {
                        return Err(Refused);
                    }
                }
                writer.word(u64::from(word != 0));
            }
            // NULL has no data: the library decides.
            Kind::In(_) | Kind::Update(_) | Kind::List(..) if word == 0 => writer.word(0),
            Kind::In(of) | Kind::Update(of) => {
                writer.word(1);
                here(writer, word, width(of)?);
            }
            Kind::List(of, count) => {
                writer.word(1);
                here(writer, word, widths(of, count)?);
            }
            Kind::Scalar(of) | Kind::InOut(of) if is_host && word != 0 => {
                writer.word(1);
                here(writer, word, width(of)?);
            }
            Kind::Result(of) if is_host && word != 0 => {
                width(of)?;
                writer.word(1);
            }
            Kind::Scalars(of, count) if is_host && word != 0 => {
                writer.word(1);
                here(writer, word, widths(of, count)?);
            }
            Kind::Scalar(_) | Kind::InOut(_) | Kind::Result(_) | Kind::Scalars(..) => {
                writer.word(0);
                writer.word(if is_host { 0 } else { word });
            }
            Kind::Array(of, count) => {
                let bytes = widths(of, count)?;
                if word == 0 && bytes != 0 {
                    return Err(Refused);
                }
                here(writer, word, bytes);
            }
            Kind::Blob => writer.bytes_with(blob.len(), |to| to.copy_from_slice(blob)),
        }
    }
    Ok(())
}

/// Room behind an array that a library writes: it may write more than the caller requested, for example for a
/// descriptor with eight dimensions.
const SLACK: usize = 128;

/// A decoded argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// The word itself.
    Word(u64),
    /// The address of these bytes; whether the reply returns them after the call.
    Bytes(Vec<u8>, bool),
}

/// Decodes a request: one value for each argument.
///
/// # Errors
///
/// The bytes are no valid request of the function, or a value has another width than the function's.
pub fn get(function: &Function, bytes: &[u8]) -> Result<Vec<Value>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut values = Vec::with_capacity(function.kinds.len());
    // Widths may depend on arguments that come later, so they are checked last.
    for kind in function.kinds {
        values.push(match kind {
            Kind::Handle(_)
            | Kind::New(_)
            | Kind::Gone(_)
            | Kind::Object(_)
            | Kind::Stream
            | Kind::I64
            | Kind::F64
            | Kind::Device => Value::Word(reader.word()?),
            Kind::I32 => Value::Word(i64::from(reader.get::<i32>()?) as u64),
            Kind::F32 => Value::Word(u64::from(reader.get::<u32>()?)),
            Kind::Array(..) | Kind::Blob => Value::Bytes(reader.bytes()?.to_vec(), false),
            Kind::Out(_) | Kind::Outs(..) | Kind::Reply => match reader.get::<bool>()? {
                true => Value::Bytes(Vec::new(), true),
                false => Value::Word(0),
            },
            Kind::Scratch(_) => match reader.get::<bool>()? {
                true => Value::Bytes(Vec::new(), false),
                false => Value::Word(0),
            },
            Kind::In(_) | Kind::Update(_) | Kind::List(..) => match reader.get::<bool>()? {
                true => Value::Bytes(reader.bytes()?.to_vec(), matches!(kind, Kind::Update(_))),
                false => Value::Word(0),
            },
            Kind::Scalar(_) | Kind::Scalars(..) | Kind::InOut(_) | Kind::Result(_)
                if !reader.get::<bool>()? =>
            {
                Value::Word(reader.word()?)
            }
            Kind::Scalar(_) | Kind::Scalars(..) => Value::Bytes(reader.bytes()?.to_vec(), false),
            Kind::InOut(_) => Value::Bytes(reader.bytes()?.to_vec(), true),
            Kind::Result(_) => Value::Bytes(Vec::new(), true),
        });
    }
    reader.end()?;
    let words: Vec<u64> = values
        .iter()
        .map(|value| match value {
            Value::Word(word) => *word,
            Value::Bytes(..) => 0,
        })
        .collect();
    let width = |width: Width| width.bytes(&words).ok_or(Malformed::Range);
    let widths =
        |of: Width, count| array_bytes(function, &words, width(of)?, count).ok_or(Malformed::Range);
    for (kind, value) in function.kinds.iter().zip(&mut values) {
        let Value::Bytes(bytes, _) = value else {
            continue;
        };
        match *kind {
            Kind::Scalar(of) | Kind::InOut(of) | Kind::In(of) | Kind::Update(of) => {
                is_width(bytes.len(), width(of)?)?;
            }
            Kind::Array(of, count) | Kind::Scalars(of, count) | Kind::List(of, count) => {
                is_width(bytes.len(), widths(of, count)?)?;
            }
            Kind::Result(of) | Kind::Out(of) => bytes.resize(width(of)?, 0),
            Kind::Outs(of, count) => {
                let length = widths(of, count)?;
                bytes.reserve_exact(length + SLACK);
                bytes.resize(length, 0);
            }
            Kind::Scratch(count) => {
                let wanted = words.get(usize::from(count)).copied().unwrap_or(0);
                if wanted > MAX_SCRATCH {
                    return Err(Malformed::Range);
                }
                // The kernel zeroes pages only when they are first touched.
                *bytes = vec![0; wanted as usize];
            }
            _ => {}
        }
    }
    Ok(values)
}

fn is_width(bytes: usize, width: usize) -> Result<(), Malformed> {
    if width == bytes {
        Ok(())
    } else {
        Err(Malformed::Range)
    }
}

/// The results that the reply to this request has: the argument's index and the number of bytes, `None` for a result of
/// variable length.
pub fn results(
    function: &Function,
    words: &[u64],
    mode: PointerMode,
) -> impl Iterator<Item = (usize, Option<usize>)> {
    let kinds = function.kinds.iter().zip(words).enumerate();
    kinds.filter_map(move |(at, (kind, word))| {
        if *word == 0 {
            return None;
        }
        match *kind {
            Kind::Reply => return Some((at, None)),
            Kind::Out(_) | Kind::Update(_) | Kind::Outs(..) => {}
            Kind::Result(_) | Kind::InOut(_) if mode == PointerMode::Host => {}
            _ => return None,
        }
        let bytes = bytes_of(function, words, *kind)?;
        Some((at, Some(bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::{Library, functions};

    fn find(name: &str) -> &'static Function {
        Library::Cublas.find(name)
    }

    fn request(function: &Function, words: &[u64], mode: PointerMode) -> Vec<u8> {
        let mut writer = Writer::new();
        // Each byte is the low byte of its address.
        let read = |address: u64, to: &mut [u8]| {
            for (byte, at) in to.iter_mut().zip(address..) {
                *byte = at as u8;
            }
        };
        put(function, words, mode, &mut writer, read).unwrap();
        writer.into_bytes()
    }

    #[test]
    fn scalars_travel_by_the_pointer_mode() {
        let axpy = find("cublasDaxpy_v2");
        let words = [0x190, (-5_i64) as u64, 0x40, 0x7000, 1, 0x8000, 1];
        let mut expected = words.map(Value::Word);
        expected[2] = Value::Bytes((0x40..0x48).collect(), false);
        let host = request(axpy, &words, PointerMode::Host);
        assert_eq!(get(axpy, &host).unwrap(), expected);
        expected[2] = Value::Word(0x40);
        let device = request(axpy, &words, PointerMode::Device);
        assert_eq!(get(axpy, &device).unwrap(), expected);
        // An `int` has no upper half.
        let words = words.map(|word| word & 0xffff_ffff | 0xabcd << 32);
        let values = get(axpy, &request(axpy, &words, PointerMode::Device)).unwrap();
        assert_eq!(values[1], Value::Word((-5_i64) as u64));
    }

    #[test]
    fn a_result_on_the_host_comes_with_the_reply() {
        let dot = find("cublasDdot_v2");
        let words = [0x190, 4, 0x7000, 1, 0x8000, 1, 0x66];
        let values = get(dot, &request(dot, &words, PointerMode::Host)).unwrap();
        assert_eq!(values[6], Value::Bytes(vec![0; 8], true));
        let all: Vec<_> = results(dot, &words, PointerMode::Host).collect();
        assert_eq!(all, [(6, Some(8))]);
        let values = get(dot, &request(dot, &words, PointerMode::Device)).unwrap();
        assert_eq!(values[6], Value::Word(0x66));
        assert_eq!(results(dot, &words, PointerMode::Device).count(), 0);
    }

    #[test]
    fn an_array_of_results_that_nobody_wants_may_have_any_length() {
        let svd = Library::Cusolver.find("cusolverDnSgesvdaStridedBatched");
        let (at, batch) = (svd.kinds.len() - 2, svd.kinds.len() - 1);
        let mut words = vec![1; svd.kinds.len()];
        (words[at], words[batch]) = (0, 2000);
        let values = get(svd, &request(svd, &words, PointerMode::Host)).unwrap();
        assert_eq!(values[at], Value::Word(0));
        words[at] = 0x40;
        let mut writer = Writer::new();
        assert!(put(svd, &words, PointerMode::Host, &mut writer, |_, _| ()).is_err());
    }

    /// GPGPU-DEV-69.
    #[test]
    fn a_width_is_the_functions_and_not_the_senders() {
        let axpy = find("cublasDaxpy_v2");
        let words = [0x190, 5, 0x40, 0x7000, 1, 0x8000, 1];
        let good = request(axpy, &words, PointerMode::Host);
        for wrong in [0_u64, 7, 9, 16, u64::MAX] {
            let mut bad = good.clone();
            bad[24..32].copy_from_slice(&wrong.to_le_bytes());
            assert!(get(axpy, &bad).is_err(), "{wrong}");
        }
        assert!(get(axpy, &good[..good.len() - 8]).is_err());
        assert!(get(axpy, &[good, vec![0; 8]].concat()).is_err());
    }

    #[test]
    fn arrays_on_the_host_are_as_long_as_the_count_says() {
        let grouped = find("cublasSgemmGroupedBatched");
        let count = grouped
            .operation
            .description()
            .arguments
            .iter()
            .position(|of| of.name == "group_count")
            .unwrap();
        let mut words = vec![0x100; grouped.kinds.len()];
        for (groups, is_good) in [(3, true), (MAX_ARRAY, true), (MAX_ARRAY + 1, false)] {
            words[count] = groups;
            let mut writer = Writer::new();
            let made = put(grouped, &words, PointerMode::Host, &mut writer, |_, _| {});
            assert_eq!(made.is_ok(), is_good, "{groups}");
            if is_good {
                let values = get(grouped, &writer.into_bytes()).unwrap();
                assert_eq!(values[1], Value::Bytes(vec![0; 4 * groups as usize], false));
            }
        }
    }

    #[test]
    fn a_wide_count_is_read_as_wide_as_the_library_reads_it() {
        let grouped = find("cublasSgemmGroupedBatched_64");
        let names = grouped.operation.description().arguments.iter();
        let count = names.clone().position(|of| of.name == "group_count");
        let count = count.unwrap();
        assert_eq!(grouped.kinds[count], Kind::I64);
        let mut words = vec![0x100; grouped.kinds.len()];
        let write = |words: &[u64], mode| {
            let mut writer = Writer::new();
            put(grouped, words, mode, &mut writer, |_, _| {}).map(|()| writer.into_bytes())
        };
        words[count] = 3;
        for mode in [PointerMode::Host, PointerMode::Device] {
            let good = write(&words, mode).unwrap();
            assert!(get(grouped, &good).is_ok());
            // Only three values are present: the library would read past them.
            let at = (0..good.len()).step_by(8);
            let mut counts = at.filter(|at| good[*at..*at + 8] == 3_u64.to_le_bytes());
            let at = counts.next_back().unwrap();
            for wide in [1 << 32 | 3, 1 << 63 | 3_u64] {
                let mut bad = good.clone();
                bad[at..at + 8].copy_from_slice(&wide.to_le_bytes());
                assert!(get(grouped, &bad).is_err(), "{wide:#x}");
            }
        }
        words[count] = 1 << 32 | 3;
        assert_eq!(write(&words, PointerMode::Host), Err(Refused));
    }

    #[test]
    fn every_function_takes_a_call_of_any_words() {
        for of in functions() {
            for word in [0, 1, 64, 4096] {
                let words = vec![word; of.kinds.len()];
                for mode in [PointerMode::Host, PointerMode::Device] {
                    let mut writer = Writer::new();
                    if put(of, &words, mode, &mut writer, |_, _| {}).is_ok() {
                        let bytes = writer.into_bytes();
                        let values = get(of, &bytes);
                        assert!(values.is_ok(), "{} of {word}", of.operation.name);
                        assert_eq!(values.unwrap().len(), words.len());
                    }
                }
            }
        }
    }
}
