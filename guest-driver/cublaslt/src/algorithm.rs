// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries about algorithms, which the host's library answers.

use std::ffi::c_int;

use gpgpu_library::{
    Object, Status,
    forward::{Request, context, stream_id},
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function, MAX_ARRAY,
        cublaslt::{
            attributes::{Class, SEARCH_MODE},
            form::{
                ALGORITHM, Algorithm, Form, MAX_RESULTS, RESULT, Sink, put_check, put_question,
            },
            status,
        },
    },
};

use crate::{
    LIBRARY,
    answers::{Answer, answer},
    call::{Parts, on_handle, with_written},
    descriptor::{Descriptor, Raw, give},
    enter,
    recent::{self, Question},
    words::keeps_heuristics,
};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::CublasLt};

    pub const HEURISTIC: &Function = CublasLt.find("cublasLtMatmulAlgoGetHeuristic");
    pub const HEURISTIC_FOR_STREAM: &Function =
        CublasLt.find("cublasLtMatmulAlgoGetHeuristicForStream");
    pub const CHECK: &Function = CublasLt.find("cublasLtMatmulAlgoCheck");
    pub const CHECK_FOR_STREAM: &Function = CublasLt.find("cublasLtMatmulAlgoCheckForStream");
    pub const IDS: &Function = CublasLt.find("cublasLtMatmulAlgoGetIds");
    pub const INIT: &Function = CublasLt.find("cublasLtMatmulAlgoInit");
    pub const CAPABILITY: &Function = CublasLt.find("cublasLtMatmulAlgoCapGetAttribute");
    pub const GET: &Function = CublasLt.find("cublasLtMatmulAlgoConfigGetAttribute");
    pub const SET: &Function = CublasLt.find("cublasLtMatmulAlgoConfigSetAttribute");
}

/// The library's answer to a query that `put` writes, from the cache if possible. `ask` sends the query.
fn ask_on(
    function: &'static Function,
    handle: Object,
    stream: Option<u64>,
    put: impl Fn(&mut dyn Sink),
    ask: impl FnOnce(Request<'_>) -> Result<Vec<u8>, Status>,
) -> Result<Answer, Status> {
    let op = function.operation.op;
    let ask = || {
        with_written(
            op,
            |formed| put(formed),
            |blob, _| {
                // The results are wanted; a stream is the last argument.
                let words = [handle as u64, 0, 1, stream.unwrap_or(0)];
                let words = &words[..function.kinds.len()];
                ask(Request {
                    blob,
                    ..Request::new(function, words)
                })
            },
        )
    };
    if !keeps_heuristics() {
        return Ok(ask()?.into());
    }
    let mut form = Form(vec![op.into(), handle as u64, stream.unwrap_or(0)]);
    put(&mut form);
    answer(form.0, ask)
}

/// The id of a call's stream, if the function has one.
fn stream_of(stream: Option<CUstream>) -> Result<Option<u64>, Status> {
    let id = |stream| stream_id(LIBRARY, stream as u64);
    stream.map(id).transpose()
}

/// Asks for algorithms.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoGetHeuristic`].
unsafe fn find(
    lightHandle: Object,
    described: (Raw, [Raw; 4]),
    preference: Raw,
    wanted: c_int,
    results: *mut u8,
    count: *mut c_int,
    stream: Option<CUstream>,
) -> Result<(), Status> {
    let function = match stream {
        None => function::HEURISTIC,
        Some(_) => function::HEURISTIC_FOR_STREAM,
    };
    on_handle(lightHandle, |_| {
        if wanted <= 0 || results.is_null() || count.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let wanted = (wanted as usize).min(MAX_RESULTS);
        // SAFETY: promised by the caller.
        let parts = unsafe { Parts::read(described.0, described.1) }?;
        let preference = match preference.is_null() {
            true => None,
            // SAFETY: promised by the caller.
            false => Some(unsafe { Descriptor::read(Class::Preference, preference) }?),
        };
        let is_limited = preference.is_some_and(|of| of.get(SEARCH_MODE) != 0);
        let stream = stream_of(stream)?;
        let question = match is_limited || !keeps_heuristics() {
            true => None,
            false => {
                let named = stream.unwrap_or(0);
                let words = [
                    function.operation.op.into(),
                    lightHandle as u64,
                    named,
                    wanted as u64,
                ];
                Question::new(&parts, preference.as_ref(), words)
            }
        };
        if let Some(found) = question.as_ref().and_then(recent::find) {
            // SAFETY: promised by the caller.
            unsafe { give_results(&found, results, count) };
            return Ok(());
        }
        let given: Vec<Algorithm> = (0..if is_limited { wanted } else { 0 })
            // SAFETY: the program has so many results, which begin with an algorithm each, by its C caller's promise.
            .map(|at| unsafe { results.add(at * RESULT).cast::<Algorithm>().read() })
            .collect();
        let put = |sink: &mut dyn Sink| {
            let (described, preference) = (parts.described(), preference.as_ref());
            put_question(sink, &described, preference, wanted as u64, &given);
        };
        let ask = |request: Request<'_>| request.ask_for();
        let found = ask_on(function, lightHandle, stream, put, ask)?;
        if found.len() > wanted * RESULT {
            return Err(status::INTERNAL_ERROR);
        }
        if let Some(question) = &question {
            recent::keep(question, &found);
        }
        // SAFETY: promised by the caller; there are no more results than are wanted.
        unsafe { give_results(&found, results, count) };
        Ok(())
    })
}

/// Gives a program results and their count.
///
/// # Safety
///
/// There is room for as many results, and for their count.
unsafe fn give_results(found: &[u8], results: *mut u8, count: *mut c_int) {
    // SAFETY: promised by the caller.
    unsafe {
        std::ptr::copy_nonoverlapping(found.as_ptr(), results, found.len());
        count.write((found.len() / RESULT) as c_int);
    }
}

/// `cublasLtMatmulAlgoGetHeuristic`.
///
/// # Safety
///
/// Descriptors are NULL or valid and unchanged meanwhile; the results and their count are NULL or writable.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    lightHandle: Object,
    operationDesc: Raw,
    Adesc: Raw,
    Bdesc: Raw,
    Cdesc: Raw,
    Ddesc: Raw,
    preference: Raw,
    requestedAlgoCount: c_int,
    heuristicResultsArray: *mut u8,
    returnAlgoCount: *mut c_int,
) -> Status {
    let described = (operationDesc, [Adesc, Bdesc, Cdesc, Ddesc]);
    let (wanted, results) = (requestedAlgoCount, heuristicResultsArray);
    // SAFETY: promised by the caller.
    enter(|| unsafe {
        find(
            lightHandle,
            described,
            preference,
            wanted,
            results,
            returnAlgoCount,
            None,
        )
    })
}

/// `cublasLtMatmulAlgoGetHeuristicForStream`.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoGetHeuristic`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristicForStream(
    lightHandle: Object,
    operationDesc: Raw,
    Adesc: Raw,
    Bdesc: Raw,
    Cdesc: Raw,
    Ddesc: Raw,
    preference: Raw,
    requestedAlgoCount: c_int,
    heuristicResultsArray: *mut u8,
    returnAlgoCount: *mut c_int,
    stream: CUstream,
) -> Status {
    let described = (operationDesc, [Adesc, Bdesc, Cdesc, Ddesc]);
    let (wanted, results) = (requestedAlgoCount, heuristicResultsArray);
    // SAFETY: promised by the caller.
    enter(|| unsafe {
        find(
            lightHandle,
            described,
            preference,
            wanted,
            results,
            returnAlgoCount,
            Some(stream),
        )
    })
}

/// Asks whether an algorithm can compute a product.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoCheck`].
unsafe fn check(
    lightHandle: Object,
    described: (Raw, [Raw; 4]),
    algo: *const Algorithm,
    result: *mut u8,
    stream: Option<CUstream>,
) -> Result<(), Status> {
    let function = match stream {
        None => function::CHECK,
        Some(_) => function::CHECK_FOR_STREAM,
    };
    on_handle(lightHandle, |_| {
        if algo.is_null() || result.is_null() {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller; an algorithm is bytes.
        let (parts, algorithm) = unsafe { (Parts::read(described.0, described.1)?, algo.read()) };
        let put = |sink: &mut dyn Sink| put_check(sink, &parts.described(), &algorithm);
        let ask = |request: Request<'_>| {
            let mut said = vec![0; RESULT];
            let mut words = request.words.to_vec();
            words[2] = said.as_mut_ptr() as u64;
            let words = &words[..];
            Request { words, ..request }.ask()?;
            Ok(said)
        };
        let said = ask_on(function, lightHandle, stream_of(stream)?, put, ask)?;
        // The program's algorithm stays as it is.
        let figures = &said[ALGORITHM..];
        // SAFETY: there is room for a result, by the C caller's promise.
        unsafe {
            let to = result.add(ALGORITHM);
            std::ptr::copy_nonoverlapping(figures.as_ptr(), to, figures.len());
        }
        Ok(())
    })
}

/// `cublasLtMatmulAlgoCheck`.
///
/// # Safety
///
/// Descriptors are NULL or valid and unchanged meanwhile; `algo` and `result` are NULL or valid.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    lightHandle: Object,
    operationDesc: Raw,
    Adesc: Raw,
    Bdesc: Raw,
    Cdesc: Raw,
    Ddesc: Raw,
    algo: *const Algorithm,
    result: *mut u8,
) -> Status {
    let described = (operationDesc, [Adesc, Bdesc, Cdesc, Ddesc]);
    // SAFETY: promised by the caller.
    enter(|| unsafe { check(lightHandle, described, algo, result, None) })
}

/// `cublasLtMatmulAlgoCheckForStream`.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoCheck`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheckForStream(
    lightHandle: Object,
    operationDesc: Raw,
    Adesc: Raw,
    Bdesc: Raw,
    Cdesc: Raw,
    Ddesc: Raw,
    algo: *const Algorithm,
    result: *mut u8,
    stream: CUstream,
) -> Status {
    let described = (operationDesc, [Adesc, Bdesc, Cdesc, Ddesc]);
    // SAFETY: promised by the caller.
    enter(|| unsafe { check(lightHandle, described, algo, result, Some(stream)) })
}

fn word(of: c_int) -> u64 {
    u64::from(of as u32)
}

/// `cublasLtMatmulAlgoGetIds`.
///
/// # Safety
///
/// There is room for as many numbers and for their count, or they are NULL.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetIds(
    lightHandle: Object,
    computeType: c_int,
    scaleType: c_int,
    Atype: c_int,
    Btype: c_int,
    Ctype: c_int,
    Dtype: c_int,
    requestedAlgoCount: c_int,
    algoIdsArray: *mut c_int,
    returnAlgoCount: *mut c_int,
) -> Status {
    enter(|| {
        on_handle(lightHandle, |_| {
            if requestedAlgoCount <= 0 || algoIdsArray.is_null() || returnAlgoCount.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let wanted = (requestedAlgoCount as u64).min(MAX_ARRAY);
            let (mut ids, mut count) = (vec![0; wanted as usize], 0);
            let types = [computeType, scaleType, Atype, Btype, Ctype, Dtype].map(word);
            let mut words = vec![lightHandle as u64];
            words.extend(types);
            words.extend([wanted, ids.as_mut_ptr() as u64, (&raw mut count) as u64]);
            Request::new(function::IDS, &words).ask()?;
            let found: &[c_int] = usize::try_from(count)
                .ok()
                .and_then(|count| ids.get(..count))
                .ok_or(status::INTERNAL_ERROR)?;
            // SAFETY: there is room for as many as are wanted, and for their count, by the C caller's promise.
            unsafe {
                std::ptr::copy_nonoverlapping(found.as_ptr(), algoIdsArray, found.len());
                returnAlgoCount.write(count);
            }
            Ok(())
        })
    })
}

/// `cublasLtMatmulAlgoInit`.
///
/// # Safety
///
/// `algo` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmulAlgoInit(
    lightHandle: Object,
    computeType: c_int,
    scaleType: c_int,
    Atype: c_int,
    Btype: c_int,
    Ctype: c_int,
    Dtype: c_int,
    algoId: c_int,
    algo: *mut Algorithm,
) -> Status {
    enter(|| {
        on_handle(lightHandle, |_| {
            if algo.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let types = [computeType, scaleType, Atype, Btype, Ctype, Dtype, algoId].map(word);
            let mut words = vec![lightHandle as u64];
            words.extend(types);
            words.push(algo as u64);
            Request::new(function::INIT, &words).ask()
        })
    })
}

/// Queries the library about an algorithm in the current context, unless the answer is cached.
fn ask_of(
    function: &'static Function,
    algorithm: &Algorithm,
    also: &[u64],
    ask: impl FnOnce() -> Result<Vec<u8>, Status>,
) -> Result<Answer, Status> {
    let mut form = Form(vec![function.operation.op.into(), context(LIBRARY)?]);
    form.bytes(algorithm);
    form.0.extend_from_slice(also);
    answer(form.0, ask)
}

/// A capability or a setting of an algorithm.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoCapGetAttribute`].
unsafe fn get(
    function: &'static Function,
    algo: *const Algorithm,
    attr: c_int,
    to: (*mut u8, usize, *mut usize),
    may_be_roomier: bool,
) -> Result<(), Status> {
    if algo.is_null() {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: promised by the caller; an algorithm is bytes.
    let algorithm = unsafe { algo.read() };
    let value = ask_of(function, &algorithm, &[word(attr)], || {
        let words = [algorithm.as_ptr() as u64, word(attr), 1];
        Request::new(function, &words).ask_for()
    })?;
    let (to, bytes, written) = to;
    let is_right = |room| room == value.len() || may_be_roomier;
    // SAFETY: promised by the caller.
    unsafe { give(&value, to, bytes, written, is_right) }
}

/// The capabilities that are lists: tiles and stages. A program need not know their lengths.
const LISTS: [c_int; 2] = [6, 13];

/// `cublasLtMatmulAlgoCapGetAttribute`.
///
/// # Safety
///
/// `algo` is NULL or an algorithm; `buf` and `sizeWritten` are NULL or the caller's to write to, `buf` as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCapGetAttribute(
    algo: *const Algorithm,
    attr: c_int,
    buf: *mut u8,
    sizeInBytes: usize,
    sizeWritten: *mut usize,
) -> Status {
    let to = (buf, sizeInBytes, sizeWritten);
    // SAFETY: promised by the caller.
    enter(|| unsafe { get(function::CAPABILITY, algo, attr, to, LISTS.contains(&attr)) })
}

/// `cublasLtMatmulAlgoConfigGetAttribute`.
///
/// # Safety
///
/// As [`cublasLtMatmulAlgoCapGetAttribute`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algo: *const Algorithm,
    attr: c_int,
    buf: *mut u8,
    sizeInBytes: usize,
    sizeWritten: *mut usize,
) -> Status {
    let to = (buf, sizeInBytes, sizeWritten);
    // SAFETY: promised by the caller.
    enter(|| unsafe { get(function::GET, algo, attr, to, false) })
}

/// `cublasLtMatmulAlgoConfigSetAttribute`.
///
/// # Safety
///
/// `algo` is NULL or an algorithm, which is the caller's to write to; `buf` is NULL or as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoConfigSetAttribute(
    algo: *mut Algorithm,
    attr: c_int,
    buf: *const u8,
    sizeInBytes: usize,
) -> Status {
    enter(|| {
        let mut value = [0_u8; 8];
        if algo.is_null() || buf.is_null() || !(1..=value.len()).contains(&sizeInBytes) {
            return Err(status::INVALID_VALUE);
        }
        // SAFETY: promised by the caller; an algorithm is bytes.
        let mut algorithm = unsafe {
            std::ptr::copy_nonoverlapping(buf, value.as_mut_ptr(), sizeInBytes);
            algo.read()
        };
        let bytes = sizeInBytes as u64;
        let also = [word(attr), bytes, u64::from_le_bytes(value)];
        let before = algorithm;
        let changed = ask_of(function::SET, &before, &also, || {
            let (algo, buf) = (algorithm.as_mut_ptr() as u64, value.as_ptr() as u64);
            Request::new(function::SET, &[algo, word(attr), buf, bytes]).ask()?;
            Ok(algorithm.to_vec())
        })?;
        // SAFETY: as above; the answer is an algorithm's bytes.
        unsafe { std::ptr::copy_nonoverlapping(changed.as_ptr(), algo.cast(), ALGORITHM) };
        Ok(())
    })
}
