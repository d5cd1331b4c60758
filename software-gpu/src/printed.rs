// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The pending output of a context's kernels. A full buffer drops its oldest output.

use std::collections::VecDeque;

use gpgpu_locks::{Mutex, MutexGuard};

#[derive(Debug, Default)]
struct State {
    texts: VecDeque<Vec<u8>>,
    bytes: usize,
    limit: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Printed {
    state: Mutex<State>,
    /// Held while text is put out: it keeps its order.
    putting: Mutex<()>,
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
}

impl Printed {
    /// A buffer of this number of bytes.
    pub fn new(limit: usize) -> Self {
        let state = State {
            limit,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            putting: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// `CU_LIMIT_PRINTF_FIFO_SIZE`.
    pub fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Writes all of it to the process's standard output, after the process's own output.
    pub fn put_out(&self) {
        let _putting = self.putting.lock();
        let texts = {
            let mut state = self.lock();
            state.bytes = 0;
            std::mem::take(&mut state.texts)
        };
        if texts.is_empty() {
            return;
        }
        // SAFETY: the stream is the C library's, which any thread may use; each text is as long as it is said to be.
        unsafe {
            for text in texts {
                libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
            }
            libc::fflush(stdout);
        }
    }

    /// Adds the text of one call of `printf`.
    pub fn print(&self, text: Vec<u8>) {
        let mut state = self.lock();
        if text.len() > state.limit {
            return;
        }
        state.bytes += text.len();
        state.texts.push_back(text);
        while state.bytes > state.limit {
            let oldest = state.texts.pop_front();
            state.bytes -= oldest.map_or(0, |text| text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_buffer_drops_its_oldest_output() {
        let printed = Printed::new(10);
        for text in ["four", "five5", "six666", "longer than the buffer"] {
            printed.print(text.into());
        }
        assert_eq!(printed.lock().texts, [b"six666".to_vec()]);
        printed.set_limit(11);
        printed.print(b"12345".to_vec());
        let state = printed.lock();
        assert_eq!(state.texts, [b"six666".to_vec(), b"12345".to_vec()]);
    }
}
