// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The bytes of JPEGs, to and from the library.

use std::sync::Arc;

use gpgpu_protocol::{
    cuda::*,
    libraries::{
        Class, Kind,
        call::Value,
        nvjpeg::{
            MOST_KEPT, PIECE,
            form::{Batch, IMAGE_WORDS},
            status,
        },
    },
};

use super::{
    super::Call,
    objects::{Bytes, Locked, Named, Object, Step, host},
    take_bytes, with_objects,
};
use crate::cuda::driver;

/// Makes a buffer for bytes that are sent before a call.
pub fn begin(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    if !(1..=MOST_KEPT).contains(&words[2]) {
        return Err(status::INVALID_PARAMETER);
    }
    let named = Named::of(call, &[])?;
    let jpegs = &call.session.jpegs;
    let object = Object::new(Class::NvjpegBytes, 0, named.context);
    object.set_bytes(jpegs.room(words[2])?);
    jpegs.insert(call.word(1), object);
    Ok(())
}

/// Writes a piece of them.
pub fn fill(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (id, piece) = (call.word(1), take_bytes(call, 3));
    let at = usize::try_from(words[2]).map_err(|_| status::INVALID_PARAMETER)?;
    with_objects(call, &[], |_, locked| {
        let bytes = locked.own(id)?.bytes.as_mut();
        // Not after a call has them: the library may read them.
        let bytes = bytes.and_then(Arc::get_mut);
        let bytes = bytes.ok_or(status::INVALID_PARAMETER)?;
        let end = at.checked_add(piece.len());
        let to = end.and_then(|end| bytes.data.get_mut(at..end));
        to.ok_or(status::INVALID_PARAMETER)?.copy_from_slice(&piece);
        Ok(())
    })
}

/// The bytes that came with a call, or that were sent before it.
fn jpeg(call: &mut Call<'_>, locked: &mut Locked<'_>, with: Vec<u8>) -> Step<Arc<Bytes>> {
    let mut kinds = call.function.kinds.iter();
    let more = kinds.position(|kind| *kind == Kind::Object(Class::NvjpegBytes));
    let found = match more.map(|at| call.word(at)) {
        Some(id) if id != 0 && with.is_empty() => locked.own(id)?.bytes.clone(),
        Some(0) => Some(Arc::new(call.session.jpegs.keep(with)?)),
        _ => None,
    };
    let found = found.filter(|bytes| !bytes.data.is_empty());
    found.ok_or(status::INVALID_PARAMETER)
}

/// The address and the length of bytes, as arguments for the library.
fn place(bytes: &Bytes) -> [u64; 2] {
    [bytes.data.as_ptr() as u64, bytes.data.len() as u64]
}

/// Describes a JPEG.
pub fn info(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let with = take_bytes(call, 1);
    with_objects(call, &[], |call, locked| {
        let bytes = jpeg(call, locked, with)?;
        let [data, length] = place(&bytes);
        let all = [&[words[0], data, length], &words[3..]].concat();
        host("nvjpegGetImageInfo", &all)
    })
}

/// Decodes a JPEG.
pub fn decode(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (state, with) = (call.word(1), take_bytes(call, 2));
    with_objects(call, &[], |call, locked| {
        let bytes = jpeg(call, locked, with)?;
        let [data, length] = place(&bytes);
        let all = [&[words[0], words[1], data, length], &words[4..]].concat();
        let done = host("nvjpegDecode", &all);
        // The previous bytes are no longer needed: the library has finished with them, or has a copy.
        locked.own(state)?.bytes = Some(bytes);
        done
    })
}

/// Reads the tables of a batch's JPEGs.
pub fn parse_tables_of_batch(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (state, with) = (call.word(1), take_bytes(call, 2));
    with_objects(call, &[], |call, locked| {
        let bytes = jpeg(call, locked, with)?;
        let [data, length] = place(&bytes);
        let all = [words[0], words[1], data, length];
        let done = host("nvjpegDecodeBatchedParseJpegTables", &all);
        locked.own(state)?.set_tables(bytes, done.is_ok());
        done
    })
}

/// Parses a JPEG, its header or its tables, into a stream, which keeps the bytes.
pub fn parse(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let name = call.function.operation.name;
    let stream = call.word(words.len() - 1);
    let with = take_bytes(call, 1);
    with_objects(call, &[], |call, locked| {
        let bytes = jpeg(call, locked, with)?;
        let [data, length] = place(&bytes);
        let all = [&[words[0], data, length], &words[3..]].concat();
        let done = host(name, &all);
        let own = locked.own(stream)?;
        own.is_parsed = done.is_ok();
        match name {
            "nvjpegJpegStreamParseTables" => own.set_tables(bytes, done.is_ok()),
            _ => own.bytes = Some(bytes),
        }
        done
    })
}

/// Decodes a batch. The library reads as many values of each array as the state's batch size.
pub fn decode_batch(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let wrong = status::INVALID_PARAMETER;
    let (state, name) = (call.word(1), call.function.operation.name);
    let mut batch = Batch::get(&take_bytes(call, 2)).map_err(|_| wrong)?;
    let with = std::mem::take(&mut batch.data);
    let has_params = name == "nvjpegDecodeBatchedEx";
    let is_good = |id: u64| match has_params {
        true => Class::NvjpegDecodeParams.has(id),
        false => id == 0,
    };
    let mut params: Vec<u64> = batch.images.iter().map(|image| image.params).collect();
    if !params.iter().all(|id| is_good(*id)) {
        return Err(wrong);
    }
    if !has_params {
        params.clear();
    }
    // The library's pointers. They are looked up again below, under their locks.
    let named = Named::of(call, &params)?;
    with_objects(call, &params, |call, locked| {
        let bytes = jpeg(call, locked, with)?;
        let own = locked.own(state)?;
        if own.batch != batch.images.len() || batch.total() != Some(bytes.data.len() as u64) {
            return Err(wrong);
        }
        // A state that once had a larger batch may read that many.
        let most = own.most.max(own.batch);
        let (mut data, mut lengths) = (vec![0_u64; most], vec![0_u64; most]);
        let mut destinations = vec![[0_u64; IMAGE_WORDS]; most];
        let mut library_params = vec![0_u64; most];
        let mut at = bytes.data.as_ptr() as u64;
        for (place, image) in batch.images.iter().enumerate() {
            (data[place], lengths[place]) = (at, image.length);
            destinations[place] = image.destination;
            at += image.length;
            if has_params {
                library_params[place] = named.get(image.params)?.raw;
            }
        }
        let mut all = vec![
            words[0],
            words[1],
            data.as_ptr() as u64,
            lengths.as_ptr() as u64,
            destinations.as_ptr() as u64,
        ];
        if has_params {
            all.push(library_params.as_ptr() as u64);
        }
        all.push(words[4]);
        let done = host(name, &all);
        locked.own(state)?.bytes = Some(bytes);
        done
    })
}

/// Returns the length of the encoded JPEG, or a piece of it, once the GPU has done its part.
pub fn retrieve(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (state, room, from) = (call.word(1), words[2], words[3]);
    let is_wanted = matches!(call.values.last(), Some(Value::Bytes(_, true)));
    with_objects(call, &[], |call, locked| {
        let own = locked.own(state)?;
        if from == 0 || !is_wanted {
            let mut length = 0_u64;
            let ask = |data: u64, length: &mut u64| {
                let (name, length) = ("nvjpegEncodeRetrieveBitstream", &raw mut *length as u64);
                host(name, &[words[0], words[1], data, length, words[4]])
            };
            ask(0, &mut length)?;
            own.encoded = None;
            if !is_wanted {
                return answer(call, length, &[]);
            }
            // The library may write the whole JPEG, whatever length it is told.
            let mut bytes = call.session.jpegs.room(length)?;
            let mut given = room.min(length);
            ask(bytes.data.as_mut_ptr() as u64, &mut given)?;
            // SAFETY: the stream is the driver's, and named by this command.
            unsafe { driver::cuStreamSynchronize(words[4] as CUstream) }
                .map_err(|code| call.statuses().of_code(code))?;
            let given = usize::try_from(given).map_err(|_| status::INTERNAL_ERROR)?;
            if given > bytes.data.len() {
                return Err(status::INTERNAL_ERROR);
            }
            bytes.data.truncate(given);
            own.encoded = Some(bytes);
        }
        let encoded = own.encoded.as_ref().ok_or(status::INVALID_PARAMETER)?;
        let from = usize::try_from(from).map_err(|_| status::INVALID_PARAMETER)?;
        let rest = encoded.data.get(from..).ok_or(status::INVALID_PARAMETER)?;
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let piece = &rest[..rest.len().min(PIECE).min(room.saturating_sub(from))];
        let is_last = piece.len() == rest.len();
        answer(call, encoded.data.len() as u64, piece)?;
        if is_last {
            own.encoded = None;
        }
        Ok(())
    })
}

/// Returns the length of an encoded JPEG, and a piece of it.
fn answer(call: &mut Call<'_>, length: u64, piece: &[u8]) -> Step<()> {
    for (kind, value) in call.function.kinds.iter().zip(&mut call.values) {
        match (kind, value) {
            (Kind::Out(_), Value::Bytes(bytes, true)) => {
                bytes.copy_from_slice(&length.to_le_bytes());
            }
            (Kind::Reply, Value::Bytes(bytes, true)) => bytes.extend_from_slice(piece),
            _ => {}
        }
    }
    Ok(())
}
