//! Words that streams write and wait for.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use gpgpu_protocol::cuda::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUdeviceptr,
    CUstream,
};

use crate::border::{Result, export};
use crate::context::{self, Context};
use crate::driver;
use crate::memory::Place;
use crate::stream::Null;

/// `CU_STREAM_WAIT_VALUE_FLUSH`: there are no remote writes.
const FLUSH: u32 = 1 << 30;
const NO_MEMORY_BARRIER: u32 = 1;

/// A word in memory that the device can reach.
#[derive(Clone, Copy)]
struct Word {
    address: u64,
    bytes: u64,
}

impl Word {
    fn check(address: u64, bytes: u64, write: bool) -> Result<Self> {
        if !address.is_multiple_of(bytes) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match driver::get()?.memory.classify(address, bytes, write)? {
            Place::Known(_) => Ok(Self { address, bytes }),
            Place::Pageable => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    fn pointer(self, write: bool) -> Result<*mut u8> {
        let memory = &driver::get()?.memory;
        memory
            .host_pointer(self.address, self.bytes, write)
            .ok_or(CUDA_ERROR_ILLEGAL_ADDRESS)
    }

    fn load(self) -> Result<u64> {
        let p = self.pointer(false)?;
        // SAFETY: inside a live allocation and aligned; atomics of the same size are all that touches it here.
        Ok(unsafe {
            match self.bytes {
                4 => u64::from((*p.cast::<AtomicU32>()).load(Ordering::Acquire)),
                _ => (*p.cast::<AtomicU64>()).load(Ordering::Acquire),
            }
        })
    }

    fn store(self, value: u64) -> Result {
        let p = self.pointer(true)?;
        // SAFETY: as in `load`.
        unsafe {
            match self.bytes {
                4 => (*p.cast::<AtomicU32>()).store(value as u32, Ordering::Release),
                _ => (*p.cast::<AtomicU64>()).store(value, Ordering::Release),
            }
        }
        Ok(())
    }

    fn satisfied(self, value: u64, condition: u32) -> Result<bool> {
        let now = self.load()?;
        let mask = if self.bytes == 4 {
            u64::from(u32::MAX)
        } else {
            u64::MAX
        };
        Ok(match condition {
            0 if self.bytes == 4 => (now as i32).wrapping_sub(value as i32) >= 0,
            0 => (now as i64).wrapping_sub(value as i64) >= 0,
            1 => now == value,
            2 => now & value != 0,
            _ => !(now | value) & mask != 0,
        })
    }
}

fn write(
    cx: &Context,
    stream: (CUstream, Null),
    word: (u64, u64),
    value: u64,
    flags: c_uint,
) -> Result {
    let word = Word::check(word.0, word.1, true)?;
    if flags & !NO_MEMORY_BARRIER != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let stream = cx.own_stream(stream.0, stream.1)?;
    context::queue(&stream, Vec::new(), move || word.store(value)).map(|_| ())
}

fn wait(
    cx: &Context,
    stream: (CUstream, Null),
    word: (u64, u64),
    value: u64,
    flags: c_uint,
) -> Result {
    let word = Word::check(word.0, word.1, false)?;
    let condition = flags & !FLUSH;
    if condition > 3 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if flags & FLUSH != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let stream = cx.own_stream(stream.0, stream.1)?;
    context::queue(&stream, Vec::new(), move || {
        // Short waits are common between processes that share the word; long ones must not burn a core.
        let mut turns = 0u32;
        while !word.satisfied(value, condition)? {
            if driver::get().map_or(true, |d| d.cancel.load(Ordering::Relaxed)) {
                break;
            }
            turns = turns.saturating_add(1);
            match turns {
                0..=100 => std::hint::spin_loop(),
                101..=1000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        Ok(())
    })
    .map(|_| ())
}

export! {
    /// `cuStreamWriteValue32`.
    context fn cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        write(&cx, (stream, null), (address, 4), value.into(), flags)
    }

    /// As [`cuStreamWriteValue32_v2`].
    context fn cuStreamWriteValue32, cuStreamWriteValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        write(&cx, (stream, null), (address, 4), value.into(), flags)
    }

    /// `cuStreamWriteValue64`.
    context fn cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        write(&cx, (stream, null), (address, 8), value, flags)
    }

    /// As [`cuStreamWriteValue64_v2`].
    context fn cuStreamWriteValue64, cuStreamWriteValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        write(&cx, (stream, null), (address, 8), value, flags)
    }

    /// `cuStreamWaitValue32`.
    context fn cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        wait(&cx, (stream, null), (address, 4), value.into(), flags)
    }

    /// As [`cuStreamWaitValue32_v2`].
    context fn cuStreamWaitValue32, cuStreamWaitValue32_ptsz(stream: CUstream, address: CUdeviceptr, value: u32, flags: c_uint) |cx, null| {
        wait(&cx, (stream, null), (address, 4), value.into(), flags)
    }

    /// `cuStreamWaitValue64`.
    context fn cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        wait(&cx, (stream, null), (address, 8), value, flags)
    }

    /// As [`cuStreamWaitValue64_v2`].
    context fn cuStreamWaitValue64, cuStreamWaitValue64_ptsz(stream: CUstream, address: CUdeviceptr, value: u64, flags: c_uint) |cx, null| {
        wait(&cx, (stream, null), (address, 8), value, flags)
    }
}
