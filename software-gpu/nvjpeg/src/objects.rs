// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library's objects: numbers of settings.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use gpgpu_locks::Mutex;
use gpgpu_stand_in::{driver::Name, objects::Objects, work::Work};

use crate::decoded::{Channel, Format, Region};
use crate::encoded::Settings;
use crate::header::Header;
use crate::types::{Allocator, Result, Status, Subsampling};

/// An object, as a pointer of the caller.
pub type Raw = *mut c_void;

/// An `nvjpegHandle_t`.
pub struct Handle {
    /// The context of its work.
    pub work: Work,
    /// The multiples of bytes to which it rounds up: of device and of pinned memory.
    pub paddings: Mutex<[usize; 2]>,
}

/// An `nvjpegJpegState_t`.
pub struct State {
    /// The context of its work.
    pub work: Work,
    /// Its initialisation for batches: the number of images, and their format.
    pub batch: Mutex<Option<(usize, Format)>>,
    /// A JPEG that was decoded on the host, and is not on the device yet.
    pub decoded: Mutex<Option<Arc<Vec<Channel>>>>,
    /// The numbers of the buffers that are attached, of pinned and of device memory; 0 for none.
    pub attached: Mutex<[usize; 2]>,
}

impl State {
    /// Checks that the buffers that were attached are there, which NVIDIA's library does not check: it uses their
    /// memory.
    pub fn check_attached(&self) -> Result {
        let [pinned, device] = *self.attached.lock();
        let is_there = |all: &Objects<Buffer>, of| of == 0 || all.find(of).is_some();
        match is_there(&PINNED, pinned) && is_there(&DEVICE, device) {
            true => Ok(()),
            false => Err(Status::ExecutionFailed),
        }
    }
}

/// A caller's JPEG, which exists as long as the stream may be decoded.
#[derive(Clone, Copy)]
pub struct Data(*const u8, usize);

// SAFETY: the caller promises that the bytes are there, for every thread.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

impl Data {
    /// The bytes at an address.
    ///
    /// # Errors
    /// It is NULL, or empty.
    pub fn new(data: *const u8, length: usize) -> Result<Self> {
        match data.is_null() || length == 0 || length > isize::MAX as usize {
            true => Err(Status::InvalidParameter),
            false => Ok(Self(data, length)),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: by the API's contract they live as long as the object that has their address is used.
        unsafe { std::slice::from_raw_parts(self.0, self.1) }
    }
}

/// An `nvjpegJpegStream_t`.
#[derive(Default)]
pub struct Stream(pub Mutex<Option<(Header, Data)>>);

/// An `nvjpegDecodeParams_t`.
pub struct DecodeParams {
    /// The format.
    pub format: Mutex<Format>,
    /// The part that is decoded.
    pub region: Mutex<Region>,
}

/// A buffer, of device or of pinned memory: its allocator, its address and its size.
pub struct Buffer {
    /// The caller's allocator.
    pub allocator: Option<Allocator>,
    /// The memory.
    pub memory: Mutex<(usize, usize)>,
}

impl Buffer {
    /// Makes it as large as this.
    pub fn resize(&self, size: usize) -> Result {
        let mut memory = self.memory.lock();
        if memory.1 >= size {
            return Ok(());
        }
        self.give_back(*memory);
        *memory = (0, 0);
        let mut address = null_mut();
        if let Some(of) = self.allocator {
            // SAFETY: the caller's function takes these; the pointer is to a value that lives across the call.
            let said: c_int = unsafe { (of.malloc)(of.context, &mut address, size, null_mut()) };
            if said != 0 {
                return Err(Status::AllocatorFailure);
            }
        }
        *memory = (address as usize, size);
        Ok(())
    }

    fn give_back(&self, (address, size): (usize, usize)) {
        if let Some(of) = self.allocator.filter(|_| address != 0) {
            // SAFETY: the caller's function gets what the other one gave.
            unsafe { (of.free)(of.context, address as *mut c_void, size, null_mut()) };
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = *self.memory.lock();
        self.give_back(memory);
    }
}

/// An `nvjpegEncoderState_t`.
pub struct EncoderState {
    /// The context of its work.
    pub work: Work,
    /// The stream of its last image.
    pub stream: Mutex<Name>,
    /// The JPEG, once the work is done; empty if that failed.
    pub encoded: Arc<Mutex<Option<Vec<u8>>>>,
}

/// An `nvjpegEncoderParams_t`.
pub struct EncoderParams(pub Mutex<Settings>);

/// An `nvjpegJpegDecoder_t`.
pub struct Decoder;

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $first:literal;)*) => {$(
        $(#[$doc])*
        // As handles of the stand-in for cuBLAS: no addresses.
        pub static $name: Objects<$type> = Objects::new($first, 16);
    )*};
}

objects! {
    /// Handles.
    HANDLES: Handle = 0xC0A7_0000_0000_0000;
    /// States.
    STATES: State = 0xC0A7_1000_0000_0000;
    /// Streams.
    STREAMS: Stream = 0xC0A7_2000_0000_0000;
    /// Parameters of decoders.
    DECODE_PARAMS: DecodeParams = 0xC0A7_3000_0000_0000;
    /// Decoders.
    DECODERS: Decoder = 0xC0A7_4000_0000_0000;
    /// Buffers of pinned memory.
    PINNED: Buffer = 0xC0A7_5000_0000_0000;
    /// Buffers of device memory.
    DEVICE: Buffer = 0xC0A7_6000_0000_0000;
    /// States of encoders.
    ENCODER_STATES: EncoderState = 0xC0A7_7000_0000_0000;
    /// Parameters of encoders.
    ENCODER_PARAMS: EncoderParams = 0xC0A7_8000_0000_0000;
}

/// The object with a number.
pub fn find<T>(all: &Objects<T>, raw: Raw) -> Result<Arc<T>> {
    all.find(raw as usize).ok_or(Status::InvalidParameter)
}

/// Ends an object.
pub fn end<T>(all: &Objects<T>, raw: Raw) -> Result {
    let ended = all.remove(raw as usize);
    ended.map(drop).ok_or(Status::InvalidParameter)
}

/// The initial parameters of an encoder.
pub const SETTINGS: Settings = Settings {
    quality: 70,
    is_progressive: false,
    subsampling: Subsampling::Chroma(1, 1),
};
