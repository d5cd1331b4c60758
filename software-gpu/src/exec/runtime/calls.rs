// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of the device runtime: their names, parameters and results.

use super::super::Launch;
use super::super::effects::illegal;
use super::super::env::{Env, GENERIC, LOCAL, PARAMETERS_WINDOW};
use super::super::lanes::each_until;
use super::super::memory::Cell;
use super::super::program::{Inst, Stop};
use super::copy::{self, Rows};
use super::error;
use super::{MOST_OBJECTS, Runtime};

/// One lane's call.
struct Call<'c, 'e, 'm> {
    env: &'c mut Env<'e, 'm>,
    lane: usize,
    /// The places of its parameters in local memory.
    places: &'c [u32],
}

/// The end of a call without a result: an error for the caller, or a fault.
enum Failed {
    Error(u32),
    Stop(Stop),
}

impl From<u32> for Failed {
    fn from(code: u32) -> Self {
        Self::Error(code)
    }
}

impl From<Stop> for Failed {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

type Outcome<T = u64> = Result<T, Failed>;
type Body = fn(&mut Call<'_, '_, '_>) -> Outcome;

/// The functions, without `cuda` or `__cudaCDP2` at the start and `_ptsz` at the end. Most results are errors; a body
/// returns 0 then.
const FUNCTIONS: [(&str, Body); 30] = [
    ("GetParameterBuffer", |c| {
        let bytes = c.long(1);
        let at = c.runtime().make_buffer(bytes, None)?;
        Ok(PARAMETERS_WINDOW + at)
    }),
    ("GetParameterBufferV2", |c| {
        let of = c.prepare(0, 1)?;
        let bytes = c.runtime().module.programs()[of.0].param_bytes as u64;
        let at = c.runtime().make_buffer(bytes, Some(of))?;
        Ok(PARAMETERS_WINDOW + at)
    }),
    ("LaunchDevice", |c| {
        let of = c.prepare(0, 2)?;
        c.launch(1, Some(of), 5)
    }),
    ("LaunchDeviceV2", |c| c.launch(0, None, 1)),
    ("GraphLaunch", |c| {
        let (graph, stream) = (c.long(0), c.long(1));
        match c.env.output.launch_graph(graph, stream) {
            Some(0) => Ok(0),
            Some(code) => Err(code.into()),
            // NVIDIA's runtime reads the graph's memory by its name.
            None => Err(illegal(c.lane, graph, 8).into()),
        }
    }),
    ("GetLastError", |c| {
        Ok(std::mem::take(&mut c.env.errors[c.lane]).into())
    }),
    ("PeekAtLastError", |c| Ok(c.env.errors[c.lane].into())),
    ("GetDevice", |c| {
        let (device, _) = c.env.output.device();
        c.give(0, device as u32)
    }),
    ("GetDeviceCount", |c| {
        let (_, count) = c.env.output.device();
        c.give(0, count)
    }),
    ("DeviceGetAttribute", |c| {
        let (attribute, device) = (c.word(1), c.word(2) as i32);
        let value = c.env.output.device_attribute(attribute, device)?;
        c.give(0, value as u32)
    }),
    ("DeviceGetLimit", |c| {
        let limit = c.env.output.limit(c.word(1));
        c.give(0, limit.ok_or(error::UNSUPPORTED_LIMIT)? as u64)
    }),
    ("DeviceGetCacheConfig", |c| c.give(0, 0_u32)),
    // Banks of four bytes.
    ("DeviceGetSharedMemConfig", |c| c.give(0, 1_u32)),
    ("RuntimeGetVersion", |c| c.give(0, 13000_u32)),
    ("StreamCreateWithFlags", stream_create),
    ("StreamDestroy", |c| {
        let stream = c.long(0);
        let known = c.runtime().state.lock().streams.remove(&stream);
        known.then_some(0).ok_or_else(no_handle)
    }),
    ("StreamWaitEvent", |c| {
        let state = c.runtime().state.lock();
        state.check_ordered(c.long(0))?;
        state.check_event(c.long(1))?;
        // All work runs in the order of the calls, so the recorded work is done before.
        Ok(0)
    }),
    ("EventCreateWithFlags", event_create),
    ("EventRecord", event_record),
    ("EventRecordWithFlags", event_record),
    ("EventDestroy", |c| {
        let event = c.long(0);
        let known = c.runtime().state.lock().events.remove(&event);
        known.then_some(0).ok_or_else(no_handle)
    }),
    ("FuncGetAttributes", function_attributes),
    ("Malloc", |c| {
        let bytes = c.long(1);
        let address = c.env.output.allocate(bytes);
        if address == 0 && bytes != 0 {
            return Err(error::MEMORY_ALLOCATION.into());
        }
        c.give(0, address)
    }),
    ("Free", |c| {
        let address = c.long(0);
        match address == 0 || c.env.output.free(address) {
            true => Ok(0),
            false => Err(error::INVALID_VALUE.into()),
        }
    }),
    ("MemcpyAsync", |c| {
        let (to, from) = (c.rows(0, None), c.rows(1, None));
        c.copy((to, from), (c.long(2), 1), (3, 4))
    }),
    ("Memcpy2DAsync", |c| {
        let (to, from) = (c.rows(0, Some(1)), c.rows(2, Some(3)));
        c.copy((to, from), (c.long(4), c.long(5)), (6, 7))
    }),
    ("MemsetAsync", |c| {
        let to = c.rows(0, None);
        c.fill((to, c.word(1)), (c.long(2), 1), 3)
    }),
    ("Memset2DAsync", |c| {
        let to = c.rows(0, Some(1));
        c.fill((to, c.word(2)), (c.long(3), c.long(4)), 5)
    }),
    ("OccupancyMaxActiveBlocksPerMultiprocessor", |c| {
        c.occupancy(0)
    }),
    ("OccupancyMaxActiveBlocksPerMultiprocessorWithFlags", |c| {
        let flags = c.word(4);
        c.occupancy(flags)
    }),
];

fn no_handle() -> Failed {
    error::INVALID_RESOURCE_HANDLE.into()
}

/// The number of a function in the table.
pub(in super::super) fn find(name: &str) -> Option<usize> {
    let bare = name
        .strip_prefix("__cudaCDP2")
        .or_else(|| name.strip_prefix("cuda"))?;
    let bare = bare.strip_suffix("_ptsz").unwrap_or(bare);
    FUNCTIONS.iter().position(|(of, _)| *of == bare)
}

/// Whether the device has this function of the device runtime.
pub fn is_function(name: &str) -> bool {
    find(name).is_some()
}

/// A call: `list` has the places of the parameters in local memory, `imm` that of the result, or a negative number, `d`
/// the bytes of the result, and `c` the function's number.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(in super::super) unsafe fn call(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let (name, body) = FUNCTIONS[i.c as usize];
    each_until(mask, |lane| {
        let mut call = Call {
            env: &mut *env,
            lane,
            places: &i.list,
        };
        let is_pointer = name.starts_with("GetParameterBuffer");
        let result = match body(&mut call) {
            Ok(result) => result,
            Err(Failed::Stop(stop)) => return Err(stop),
            Err(Failed::Error(code)) => {
                env.errors[lane] = code;
                // No buffer is the NULL pointer, and the error is found by `cudaGetLastError`.
                if is_pointer { 0 } else { code.into() }
            }
        };
        let Ok(at) = u64::try_from(i.imm) else {
            return Ok(());
        };
        let bytes = (i.d as usize).min(8);
        for (at, byte) in (at..).zip(&result.to_le_bytes()[..bytes]) {
            let to = env.host::<LOCAL>(lane, at, 1, true)?;
            // SAFETY: `host` answers for the pointer.
            unsafe { u8::store(to, *byte) };
        }
        Ok(())
    })
}

/// A value that a function returns through a pointer.
trait Given: Copy {
    type Bytes: AsRef<[u8]>;
    fn bytes(self) -> Self::Bytes;
}

impl Given for u32 {
    type Bytes = [u8; 4];
    fn bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }
}

impl Given for u64 {
    type Bytes = [u8; 8];
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }
}

impl<'e> Call<'_, 'e, '_> {
    fn runtime(&self) -> &'e Runtime<'e> {
        self.env.runtime
    }

    fn long(&self, index: usize) -> u64 {
        self.env
            .parameter(self.lane, self.places.get(index).copied())
    }

    fn word(&self, index: usize) -> u32 {
        self.env
            .parameter_word(self.lane, self.places.get(index).copied())
    }

    /// A parameter of three words.
    fn dimensions(&self, index: usize) -> [u32; 3] {
        let at = self.places.get(index).copied();
        let word = |k: u32| at.map(|at| at + 4 * k);
        [0, 1, 2].map(|k| self.env.parameter_word(self.lane, word(k)))
    }

    /// Writes bytes at an address.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Outcome {
        for (k, byte) in bytes.iter().enumerate() {
            let at = address.wrapping_add(k as u64);
            let to = self.env.host::<GENERIC>(self.lane, at, 1, true)?;
            // SAFETY: `host` answers for the pointer.
            unsafe { u8::store(to, *byte) };
        }
        Ok(0)
    }

    /// Writes a value where a parameter points.
    fn give(&mut self, index: usize, value: impl Given) -> Outcome {
        match self.long(index) {
            0 => Err(error::INVALID_VALUE.into()),
            address => self.write(address, value.bytes().as_ref()),
        }
    }

    /// The kernel of the address in one parameter, and the shape that begins with another: grid, block, shared memory.
    fn prepare(&self, function: usize, shape: usize) -> Outcome<(usize, Launch)> {
        let launch = Launch {
            grid: self.dimensions(shape),
            block: self.dimensions(shape + 1),
            dynamic_shared_bytes: self.word(shape + 2) as usize,
            ..Launch::default()
        };
        Ok(self.runtime().prepare(self.long(function), launch)?)
    }

    fn launch(&self, buffer: usize, of: Option<(usize, Launch)>, stream: usize) -> Outcome {
        let address = self.long(buffer);
        let Some(at) = address.checked_sub(PARAMETERS_WINDOW) else {
            return Err(error::INVALID_VALUE.into());
        };
        self.runtime().launch(at, of, self.long(stream))?;
        Ok(0)
    }

    fn rows(&self, start: usize, pitch: Option<usize>) -> Rows {
        Rows {
            start: self.long(start),
            pitch: pitch.map_or(u64::MAX, |index| self.long(index)),
        }
    }

    /// Local, shared and parameter memory is not for these functions.
    fn check_rows(rows: Rows, width: u64) -> Outcome {
        if rows.start >= super::super::env::LOCAL_WINDOW {
            return Err(error::INVALID_VALUE.into());
        }
        if rows.pitch < width {
            return Err(error::INVALID_PITCH_VALUE.into());
        }
        Ok(0)
    }

    fn copy(
        &self,
        rows: (Rows, Rows),
        box_of: (u64, u64),
        (kind, stream): (usize, usize),
    ) -> Outcome {
        Self::check_rows(rows.0, box_of.0)?;
        Self::check_rows(rows.1, box_of.0)?;
        // `cudaMemcpyDefault` is the last kind.
        if self.word(kind) > 4 {
            return Err(error::INVALID_VALUE.into());
        }
        let call = move |memory: &dyn super::super::Memory, cancel: &_| {
            copy::copy((memory, cancel), rows, box_of)
        };
        self.runtime().queue(self.long(stream), Box::new(call))?;
        Ok(0)
    }

    fn fill(&self, (to, value): (Rows, u32), box_of: (u64, u64), stream: usize) -> Outcome {
        Self::check_rows(to, box_of.0)?;
        let call = move |memory: &dyn super::super::Memory, cancel: &_| {
            copy::fill((memory, cancel), (to, value as u8), box_of)
        };
        self.runtime().queue(self.long(stream), Box::new(call))?;
        Ok(0)
    }

    fn occupancy(&mut self, flags: u32) -> Outcome {
        let kernel = self.runtime().kernel(self.long(1))?;
        let (threads, shared) = (self.word(2), self.long(3));
        if flags > 1 || threads.cast_signed() <= 0 {
            return Err(error::INVALID_VALUE.into());
        }
        let blocks = self.env.output.active_blocks(
            kernel,
            threads,
            usize::try_from(shared).unwrap_or(usize::MAX),
        );
        self.give(0, blocks)
    }
}

fn stream_create(c: &mut Call<'_, '_, '_>) -> Outcome {
    // Streams of a grid never wait for the NULL stream, and a program must request that: `cudaStreamNonBlocking`.
    if c.word(1) != 1 || c.long(0) == 0 {
        return Err(error::INVALID_VALUE.into());
    }
    let mut state = c.runtime().state.lock();
    if state.streams.len() >= MOST_OBJECTS {
        return Err(error::MEMORY_ALLOCATION.into());
    }
    let handle = state.new_handle();
    state.streams.insert(handle);
    drop(state);
    c.give(0, handle)
}

fn event_create(c: &mut Call<'_, '_, '_>) -> Outcome {
    // Events of a grid have no time, and a program must request that: `cudaEventDisableTiming`.
    if c.word(1) != 2 || c.long(0) == 0 {
        return Err(error::INVALID_VALUE.into());
    }
    let mut state = c.runtime().state.lock();
    if state.events.len() >= MOST_OBJECTS {
        return Err(error::MEMORY_ALLOCATION.into());
    }
    let handle = state.new_handle();
    state.events.insert(handle);
    drop(state);
    c.give(0, handle)
}

fn event_record(c: &mut Call<'_, '_, '_>) -> Outcome {
    let state = c.runtime().state.lock();
    state.check_ordered(c.long(1))?;
    state.check_event(c.long(0))?;
    Ok(0)
}

/// `cudaFuncGetAttributes`: three sizes of 64 bits, then words, in the order of the driver's attributes with these
/// numbers.
fn function_attributes(c: &mut Call<'_, '_, '_>) -> Outcome {
    const SIZES: [u32; 3] = [1, 2, 3];
    const WORDS: [u32; 13] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14];
    let kernel = c.runtime().kernel(c.long(1))?;
    let mut bytes = Vec::new();
    let value = |attribute| c.env.output.kernel_attribute(kernel, attribute);
    for attribute in SIZES {
        bytes.extend(i64::from(value(attribute)).to_le_bytes());
    }
    for attribute in WORDS {
        bytes.extend(value(attribute).to_le_bytes());
    }
    match c.long(0) {
        0 => Err(error::INVALID_VALUE.into()),
        address => c.write(address, &bytes),
    }
}
