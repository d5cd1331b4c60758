//! A call on its way to the host, and back.

use std::cell::Cell;

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::{
    api::Completion,
    codec::{Blob, Few, Reader, Writer},
    cuda::*,
    libraries::{
        Function, Kind, Library,
        call::{self, PointerMode},
        status,
    },
};

use crate::{
    Status,
    handle::{self, CublasHandle, Handle, sister},
    state::{enter, tell_stream},
};

/// The status that stands for a code of libcuda: the call did not come to cuBLAS.
pub fn status_of(code: CUresult) -> Status {
    match code {
        CUDA_ERROR_OUT_OF_MEMORY => status::ALLOC_FAILED,
        CUDA_ERROR_INVALID_VALUE | CUDA_ERROR_INVALID_HANDLE => status::INVALID_VALUE,
        CUDA_ERROR_NOT_SUPPORTED => status::NOT_SUPPORTED,
        CUDA_ERROR_NOT_INITIALIZED | CUDA_ERROR_NO_DEVICE | CUDA_ERROR_INVALID_CONTEXT => {
            status::NOT_INITIALIZED
        }
        _ => status::EXECUTION_FAILED,
    }
}

/// The function of a row, by its place in the table.
fn function(op: u16) -> &'static Function {
    let library = Library::Cublas;
    library.functions()[usize::from(op - library.first())]
}

thread_local! {
    /// Room for a request, so that a call allocates nothing.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes a request out of a call's words, and hands it over.
fn with_written<T>(
    function: &Function,
    words: &[u64],
    mode: PointerMode,
    send: impl FnOnce(&[u8]) -> Result<T, Status>,
) -> Result<T, Status> {
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.clear();
    let mut writer = Writer::on(room);
    let put = call::put(function, words, mode, &mut writer, |address, to| {
        // SAFETY: the program gives this address where cuBLAS asks for so many bytes, by its C caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len());
        }
    });
    let request = writer.into_bytes();
    let sent = match put {
        Ok(()) => send(&request),
        Err(_) => Err(status::INVALID_VALUE),
    };
    let _ = ROOM.try_with(|room| room.set(request));
    sent
}

/// Sends a call and waits for what it comes to; results go to where the program wants them.
///
/// # Errors
///
/// What cuBLAS returned, or what stands for libcuda's code.
pub fn ask(function: &Function, words: &[u64], mode: PointerMode) -> Result<(), Status> {
    let sister = sister()?;
    let answer = with_written(function, words, mode, |request| {
        let answer = sister.call(&function.operation, request, |reply| {
            let mut reader = Reader::new(reply);
            let status: i32 = reader.get().ok()?;
            let results: Few<Blob, 16> = reader.get().ok()?;
            Some((status as Status, results.into_vec()))
        });
        answer.map_err(status_of)
    });
    let (status, results) = answer?.ok_or(status::INTERNAL_ERROR)?;
    if status != status::SUCCESS {
        log::say(Level::Debug, || {
            format!("{} returns {status}", function.operation.name)
        });
        return Err(status);
    }
    for ((at, bytes), result) in call::results(function, words, mode).zip(results) {
        if result.0.len() != bytes {
            return Err(status::INTERNAL_ERROR);
        }
        // SAFETY: the program gives this address where cuBLAS writes so many bytes, by its C caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(result.0.as_ptr(), words[at] as *mut u8, bytes);
        }
    }
    Ok(())
}

/// Sends a call that needs no answer.
///
/// # Errors
///
/// What stands for libcuda's code.
pub fn post(function: &Function, words: &[u64], mode: PointerMode) -> Result<(), Status> {
    let sister = sister()?;
    with_written(function, words, mode, |request| {
        let sent = sister.post(&function.operation, request);
        sent.map_err(status_of)
    })
}

/// A number for calls that cuBLAS accepts or refuses alike: all but addresses and the values of scalars.
fn kind(function: &Function, words: &[u64], mode: PointerMode) -> u64 {
    let mut hash = u64::from(function.operation.op) << 1 | mode as u64;
    for (kind, word) in function.kinds.iter().zip(words).skip(1) {
        let word = match kind {
            Kind::I32 => u64::from(*word as u32),
            Kind::I64 | Kind::Stream => *word,
            // Alignment decides about kernels, and in some functions about what is accepted.
            Kind::Device => u64::from(word.trailing_zeros().min(4)) << 1 | u64::from(*word == 0),
            _ => u64::from(*word == 0),
        };
        // Each step is one to one: calls that differ in one word have different numbers. Where two others meet, the worse that comes
        // of it is an error that is told late.
        hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash
}

/// A call on a handle, as the program makes it.
pub fn forward(op: u16, words: &[u64]) -> Status {
    let handle = words[0] as CublasHandle;
    enter(|| handle::with(handle, |handle| forward_on(handle, function(op), words)))
}

/// Whether the caller waits each time. A `wait` runs beside what comes after it, also where its result stays on the device; and the
/// contents of arrays are no part of what was accepted.
fn needs_answer(function: &Function) -> bool {
    function.operation.completion == Completion::Wait
        || function
            .kinds
            .iter()
            .any(|kind| matches!(kind, Kind::Array(..)))
}

fn forward_on(handle: &Handle, function: &Function, words: &[u64]) -> Result<(), Status> {
    let mode = handle.mode();
    handle.settle(|stream| tell_stream(words[0] as CublasHandle, stream))?;
    if needs_answer(function) {
        return ask(function, words, mode);
    }
    let kind = kind(function, words, mode);
    if handle.has_accepted(kind) {
        return post(function, words, mode);
    }
    ask(function, words, mode)?;
    handle.accept(kind);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_result_is_never_posted() {
        for function in Library::Cublas.functions() {
            let has_result = function
                .kinds
                .iter()
                .any(|kind| matches!(kind, Kind::Result(_) | Kind::InOut(_) | Kind::Out(_)));
            assert!(
                !has_result || needs_answer(function) || function.operation.style == "guest",
                "{}",
                function.operation.name
            );
        }
    }
}
