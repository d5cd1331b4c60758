// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The log of failed calls: `cuLogsRegisterCallback` and the related functions.
//!
//! For a failed call NVIDIA's driver writes the details, and then a line with the call. This library writes only that
//! line, with the same text.

use std::{
    cell::Cell,
    collections::VecDeque,
    ffi::{CString, c_char, c_void},
    fs,
    io::Write,
    time::SystemTime,
};

use gpgpu_client::{local_time, put_out};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use crate::{
    argument::{OutPtr, Text},
    cuda,
    environment::log_file,
    ffi::Result,
};

/// The maximum size of the stored log in bytes, as with NVIDIA's driver.
const MOST_BYTES: usize = 25_600;
/// `CU_LOG_LEVEL_ERROR`.
const ERROR: u32 = 0;
/// The first line of a dump that omits lines.
const CUT: &str =
    "The provided buffer is not large enough to hold all messages. Some messages will be missing\n";
/// The first line of a dump whose oldest lines were dropped.
const LOST: &str = "The log has been truncated. Some messages are missing\n";

/// `CUlogsCallback`: the program's data, the level, the message with its NUL, and its length without it.
type Callback = unsafe extern "C" fn(*mut c_void, u32, *mut c_char, usize);

/// A function that the program registered.
#[derive(Clone, Copy)]
struct Registered {
    handle: usize,
    callback: Callback,
    /// The program's pointer, as a number: it is only passed back.
    data: usize,
}

/// The lines, and the callbacks for new ones.
struct Log {
    lines: VecDeque<String>,
    bytes: usize,
    /// The number of the next line.
    next: u32,
    callbacks: Vec<Registered>,
    handles: usize,
}

static LOG: Mutex<Log> = Mutex::new(Log {
    lines: VecDeque::new(),
    bytes: 0,
    next: 0,
    callbacks: Vec::new(),
    handles: 0,
});

fn log() -> MutexGuard<'static, Log> {
    LOG.lock()
}

thread_local! {
    /// Whether the thread is in a callback of the program for a failure.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

impl Log {
    /// Stores a line, and drops the oldest ones if necessary.
    fn keep(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
        self.next = self.next.wrapping_add(1);
        while self.bytes > MOST_BYTES {
            let oldest = self.lines.pop_front();
            self.bytes -= oldest.map_or(0, |line| line.len());
        }
    }

    /// The number of the oldest line.
    fn first(&self) -> u32 {
        self.next.wrapping_sub(self.lines.len() as u32)
    }

    /// The lines from an iterator on, or all; and whether earlier lines were dropped.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an iterator beyond the end.
    fn from(&self, iterator: Option<u32>) -> Result<(Vec<&str>, bool)> {
        let back = match iterator {
            Some(iterator) => self.next.wrapping_sub(iterator) as i32,
            None => self.lines.len() as i32,
        };
        let back = usize::try_from(back).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let skipped = self.lines.len().saturating_sub(back);
        let lines = self.lines.iter().skip(skipped).map(String::as_str);
        let is_cut = match iterator {
            Some(_) => back > self.lines.len(),
            None => self.first() != 0,
        };
        Ok((lines.collect(), is_cut))
    }
}

/// The time of day and the thread, at the start of a line.
fn head() -> String {
    let (local, milliseconds) = local_time(SystemTime::now());
    // SAFETY: it has no arguments.
    let thread = unsafe { libc::pthread_self() };
    format!(
        "[{:02}:{:02}:{:02}.{milliseconds:03}][{thread}]",
        local.tm_hour, local.tm_min, local.tm_sec,
    )
}

/// Appends a line to a file, or writes it to the stream of this name, as `CUDA_LOG_FILE` is defined. A line that cannot
/// be written is lost.
fn note(file: &str, line: &str) {
    match file {
        "stdout" => put_out(line.as_bytes(), &[]),
        "stderr" => put_out(&[], line.as_bytes()),
        path => {
            let mut options = fs::OpenOptions::new();
            let opened = options.append(true).create(true).open(path);
            let _ = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}

/// Handles a failed call of the program: stores the line, and calls the callbacks.
#[cold]
pub fn failed(function: &str, code: CUresult) {
    let name = result_name(code).unwrap_or("CUDA_ERROR_UNKNOWN");
    let message = format!("Returning {code} ({name}) from {function}");
    let line = format!("{}[CUDA][E] {message}\n", head());
    if let Some(file) = log_file() {
        note(file, &line);
    }
    let callbacks = {
        let mut log = log();
        log.keep(line);
        log.callbacks.clone()
    };
    // A failing call in a callback would call the callback again, without end.
    if callbacks.is_empty() || TELLING.try_with(|telling| telling.replace(true)) != Ok(false) {
        return;
    }
    let length = message.len();
    let text = CString::new(message).unwrap_or_default().into_raw();
    for to in callbacks {
        // SAFETY: the program registered the function for these arguments, and the text lives across the call.
        unsafe { (to.callback)(to.data as *mut c_void, ERROR, text, length) };
    }
    // SAFETY: it is the text from above, whose length the program has no right to change.
    drop(unsafe { CString::from_raw(text) });
    let _ = TELLING.try_with(|telling| telling.set(false));
}

/// The lines that fit into a dump of `room` bytes, one of which is for the NUL; and whether there are any.
fn fitted(lines: &[&str], is_cut: bool, room: usize) -> (String, bool) {
    let mut text = String::from(if is_cut { LOST } else { "" });
    let all: usize = lines.iter().map(|line| line.len()).sum();
    if text.len() + all < room {
        text.extend(lines.iter().copied());
        return (text, true);
    }
    let mut left = room.saturating_sub(CUT.len() + 1);
    let newest = lines.iter().rev().take_while(|line| {
        let fits = line.len() <= left;
        left = left.saturating_sub(line.len());
        fits
    });
    let count = newest.count();
    if CUT.len() >= room {
        return (String::new(), false);
    }
    let kept = lines[lines.len() - count..].concat();
    (format!("{CUT}{kept}"), count > 0)
}

cuda! {
    fn cuLogsRegisterCallback(callbackFunc: *mut c_void, userData: *mut c_void, callback_out: OutPtr<*mut c_void>) {
        if callbackFunc.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: it is not NULL, and C's type of the parameter is that of such a function.
        let callback = unsafe { std::mem::transmute::<*mut c_void, Callback>(callbackFunc) };
        let mut log = log();
        log.handles += 1;
        let handle = log.handles;
        log.callbacks.push(Registered { handle, callback, data: userData as usize });
        callback_out.offer(handle as *mut c_void);
        Ok(())
    }

    fn cuLogsUnregisterCallback(callback: *mut c_void) {
        let mut log = log();
        let before = log.callbacks.len();
        log.callbacks.retain(|of| of.handle != callback as usize);
        if log.callbacks.len() == before {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    /// `cuLogsCurrent`. The driver accepts any flags.
    fn cuLogsCurrent(iterator_out: OutPtr<u32>, _flags: u32) {
        iterator_out.set(log().next)
    }

    fn cuLogsDumpToFile(iterator: OutPtr<u32>, pathToFile: Text, _flags: u32) {
        let path = pathToFile.get()?;
        let log = log();
        let (lines, is_cut) = log.from(iterator.read())?;
        let (text, _) = fitted(&lines, is_cut, usize::MAX);
        fs::write(path, text).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        iterator.offer(log.next);
        Ok(())
    }

    fn cuLogsDumpToMemory(iterator: OutPtr<u32>, buffer: OutPtr<c_char>, size: OutPtr<usize>, _flags: u32) {
        buffer.required()?;
        let room = size.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let log = log();
        size.offer(0);
        let (lines, is_cut) = log.from(iterator.read())?;
        if room == 0 {
            return if lines.is_empty() { Ok(()) } else { Err(CUDA_ERROR_INVALID_VALUE) };
        }
        let (text, is_whole) = fitted(&lines, is_cut, room);
        OutPtr::<u8>::nested(buffer.raw().cast()).set_text(&text, room)?;
        size.offer(text.len());
        if !is_whole {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        iterator.offer(log.next);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_lines(count: usize, length: usize) -> Log {
        let mut log = Log {
            lines: VecDeque::new(),
            bytes: 0,
            next: 0,
            callbacks: Vec::new(),
            handles: 0,
        };
        for line in 0..count {
            log.keep(format!("{line:>0$}\n", length - 1));
        }
        log
    }

    #[test]
    fn an_iterator_names_the_next_line_and_none_beyond_it() {
        let log = with_lines(3, 10);
        assert_eq!(log.from(Some(2)).unwrap().0.len(), 1);
        assert_eq!(log.from(Some(3)), Ok((vec![], false)));
        assert_eq!(log.from(Some(4)), Err(CUDA_ERROR_INVALID_VALUE));
        assert_eq!(log.from(None).unwrap().0.len(), 3);
    }

    #[test]
    fn the_oldest_lines_go_and_a_dump_that_lacks_them_says_so() {
        let log = with_lines(30, 1024);
        assert!(log.bytes <= MOST_BYTES);
        assert_eq!(log.first(), 5);
        let (lines, is_cut) = log.from(Some(0)).unwrap();
        assert!(is_cut && lines.len() == 25);
        assert!(fitted(&lines, is_cut, usize::MAX).0.starts_with(LOST));
        assert!(!log.from(Some(5)).unwrap().1);
    }

    #[test]
    fn a_small_buffer_has_the_newest_lines() {
        let lines = ["first\n", "second\n", "third\n"];
        assert_eq!(
            fitted(&lines, false, 20),
            ("first\nsecond\nthird\n".into(), true)
        );
        let room = CUT.len() + 1;
        assert_eq!(fitted(&lines, false, 19), (String::new(), false));
        let long = ["x\n"; 80];
        assert_eq!(fitted(&long, false, room), (CUT.into(), false));
        let (text, is_whole) = fitted(&long, false, room + 4);
        assert_eq!((text, is_whole), (format!("{CUT}x\nx\n"), true));
    }
}
