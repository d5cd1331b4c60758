// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The environment of one running warp: its registers, its windows into memory, its place in the grid.

use std::sync::Arc;

use super::FaultKind;
use super::lanes::{each, reg};
use super::memory::{Cell, Memory, Range};
use super::program::{Inst, LANES, Stop};
use super::texture::{Surface, Texture};

/// Generic addresses of `.local` begin here.
pub(super) const LOCAL_WINDOW: u64 = 1 << 60;
/// Generic addresses of `.shared` begin here.
pub(super) const SHARED_WINDOW: u64 = 2 << 60;
/// Generic addresses of kernel parameters begin here.
pub(super) const PARAM_WINDOW: u64 = 3 << 60;
/// The workspace of a cooperative launch (`%envreg1`, `%envreg2`).
pub(super) const GRID_WINDOW: u64 = 4 << 60;
/// The parameter buffers of launches by kernels begin here.
pub(super) const PARAMETERS_WINDOW: u64 = 6 << 60;
/// Addresses of functions begin here; no access reaches them.
pub(super) const FUNCTION_WINDOW: u64 = 5 << 60;

/// State spaces as const parameters of the accesses.
pub(super) const GENERIC: u8 = 0;
pub(super) const SHARED: u8 = 1;
pub(super) const LOCAL: u8 = 2;
pub(super) const PARAM: u8 = 3;

/// Recently used ranges of device memory, one set per worker thread.
pub(super) struct Cache<'a> {
    memory: &'a dyn Memory,
    generation: u64,
    ranges: [Range; 4],
    next: usize,
    /// The launch's last lookup: it stays valid until the launch ends.
    texture: Option<(u64, Arc<Texture>)>,
    surface: Option<(u64, Arc<Surface>)>,
}

const EMPTY: Range = Range {
    start: 0,
    end: 0,
    base: std::ptr::null_mut(),
    writable: false,
};

impl<'a> Cache<'a> {
    pub(super) fn new(memory: &'a dyn Memory) -> Self {
        Self {
            memory,
            generation: memory.generation(),
            ranges: [EMPTY; 4],
            next: 0,
            texture: None,
            surface: None,
        }
    }

    /// The texture that a handle names.
    pub(super) fn texture(&mut self, handle: u64) -> Option<Arc<Texture>> {
        match &self.texture {
            Some((of, texture)) if *of == handle => Some(texture.clone()),
            _ => {
                let texture = self.memory.texture(handle)?;
                self.texture = Some((handle, texture.clone()));
                Some(texture)
            }
        }
    }

    /// The surface that a handle names.
    pub(super) fn surface(&mut self, handle: u64) -> Option<Arc<Surface>> {
        match &self.surface {
            Some((of, surface)) if *of == handle => Some(surface.clone()),
            _ => {
                let surface = self.memory.surface(handle)?;
                self.surface = Some((handle, surface.clone()));
                Some(surface)
            }
        }
    }

    /// Forgets ranges that were removed meanwhile.
    pub(super) fn refresh(&mut self) {
        let g = self.memory.generation();
        if g != self.generation {
            self.generation = g;
            self.ranges = [EMPTY; 4];
        }
    }

    /// Host pointer for `len` bytes at `address`, which is aligned, or `None`.
    #[inline(always)]
    pub(super) fn host(&mut self, address: u64, len: u64, write: bool) -> Option<*mut u8> {
        for r in &self.ranges {
            let at = address.wrapping_sub(r.start);
            let size = r.end - r.start;
            if at < size && size - at >= len && (!write || r.writable) {
                // SAFETY: inside the range.
                return Some(unsafe { r.base.add(at as usize) });
            }
        }
        self.miss(address, len, write)
    }

    #[cold]
    fn miss(&mut self, address: u64, len: u64, write: bool) -> Option<*mut u8> {
        let r = self.memory.range_of(address)?;
        if r.base.is_null() || address < r.start || address >= r.end {
            return None;
        }
        if r.end - address < len || (write && !r.writable) {
            return None;
        }
        self.ranges[self.next] = r;
        self.next = (self.next + 1) % self.ranges.len();
        // SAFETY: inside the range.
        Some(unsafe { r.base.add((address - r.start) as usize) })
    }
}

/// A warp's view.
pub(super) struct Env<'a, 'm> {
    pub(super) regs: *mut u8,
    pub(super) cache: &'a mut Cache<'m>,
    pub(super) shared: *mut u8,
    pub(super) shared_bytes: u64,
    /// Local memory of the warp, one lane's after the other.
    pub(super) local: *mut u8,
    pub(super) local_bytes: u64,
    pub(super) params: &'a [u8],
    pub(super) grid: &'a [u64; 8],
    /// Lanes of the warp that have not exited.
    pub(super) live: u32,
    /// Nanoseconds are counted from here.
    pub(super) epoch: std::time::Instant,
    /// The target of kernels' effects other than on memory.
    pub(super) output: &'a dyn super::Effects,
    /// The device runtime of the grid.
    pub(super) runtime: &'a super::runtime::Runtime<'a>,
    /// The last error of each lane from the device runtime.
    pub(super) errors: &'a mut [u32; LANES],
}

impl Env<'_, '_> {
    #[cold]
    fn illegal(&self, lane: usize, address: u64, len: usize, write: bool) -> Stop {
        let kind = if address & (len as u64 - 1) != 0 {
            FaultKind::MisalignedAddress { address, len }
        } else {
            FaultKind::IllegalAddress {
                address,
                len,
                write,
            }
        };
        Stop { kind, lane }
    }

    /// The host pointer of one lane's access.
    #[inline(always)]
    pub(super) fn host<const SPACE: u8>(
        &mut self,
        lane: usize,
        address: u64,
        len: usize,
        write: bool,
    ) -> Result<*mut u8, Stop> {
        let n = len as u64;
        if address & (n - 1) != 0 {
            return Err(self.illegal(lane, address, len, write));
        }
        let found = match SPACE {
            SHARED => self.in_shared(address, n),
            LOCAL => self.in_local(lane, address, n),
            PARAM => self.in_params(address, n, write),
            _ if address < LOCAL_WINDOW => self.cache.host(address, n, write),
            _ => self.in_window(lane, address, n, write),
        };
        match found {
            Some(p) => Ok(p),
            None => Err(self.illegal(lane, address, len, write)),
        }
    }

    #[inline(always)]
    fn in_shared(&self, at: u64, n: u64) -> Option<*mut u8> {
        // Shared addresses that went through a generic one keep its window.
        let at = if at >= SHARED_WINDOW {
            at - SHARED_WINDOW
        } else {
            at
        };
        // SAFETY: the offset is inside the block's shared memory.
        (at < self.shared_bytes && self.shared_bytes - at >= n)
            .then(|| unsafe { self.shared.add(at as usize) })
    }

    #[inline(always)]
    fn in_local(&self, lane: usize, at: u64, n: u64) -> Option<*mut u8> {
        // SAFETY: the offset is inside the lane's local memory.
        (at < self.local_bytes && self.local_bytes - at >= n).then(|| unsafe {
            self.local
                .add(lane * self.local_bytes as usize + at as usize)
        })
    }

    #[inline(always)]
    fn in_params(&self, at: u64, n: u64, write: bool) -> Option<*mut u8> {
        let size = self.params.len() as u64;
        // SAFETY: the offset is inside the parameters; they are only read.
        (!write && at < size && size - at >= n)
            .then(|| unsafe { self.params.as_ptr().add(at as usize).cast_mut() })
    }

    fn in_window(&self, lane: usize, address: u64, n: u64, write: bool) -> Option<*mut u8> {
        let at = address & (LOCAL_WINDOW - 1);
        match address >> 60 {
            1 => self.in_local(lane, at, n),
            2 => self.in_shared(at, n),
            3 => self.in_params(at, n, write),
            4 => {
                let size = size_of_val(self.grid) as u64;
                // SAFETY: the offset is inside the workspace, which is only used by atomic accesses.
                (at < size && size - at >= n)
                    .then(|| unsafe { self.grid.as_ptr().cast::<u8>().add(at as usize).cast_mut() })
            }
            6 => self.runtime.buffer(at, n),
            _ => None,
        }
    }

    /// The addresses of `[a + imm]`.
    #[inline(always)]
    pub(super) fn addresses(&self, i: &Inst) -> [u64; LANES] {
        // SAFETY: `a` is a register of the width that `wide` says.
        unsafe {
            if i.wide {
                let a = reg::<u64>(self.regs, i.a);
                std::array::from_fn(|l| (*a)[l].wrapping_add(i.imm as u64))
            } else {
                let a = reg::<u32>(self.regs, i.a);
                // The sum has the width of the register: LLVM counts on its wrapping.
                std::array::from_fn(|l| u64::from((*a)[l].wrapping_add(i.imm as u32)))
            }
        }
    }
}

/// Widening of a loaded value to its register.
pub(super) trait Widen<D>: Cell {
    fn widen(self) -> D;
}
macro_rules! widen {
    ($($m:ty => $($d:ty),*;)*) => {$($(
        impl Widen<$d> for $m {
            #[inline(always)]
            fn widen(self) -> $d {
                self as $d
            }
        }
    )*)*};
}
widen! {
    u8 => u8, u16, u32, u64; i8 => u8, u16, u32, u64;
    u16 => u16, u32, u64; i16 => u16, u32, u64;
    u32 => u32, u64; i32 => u32, u64;
    u64 => u64;
}

/// `ld`: one element per entry of `list`.
///
/// # Safety
/// `EnvFn`'s contract: the registers of `i` belong to the file of `env`.
pub(super) unsafe fn load<M: Widen<D>, D: Copy, const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let size = size_of::<M>();
    let total = size * i.list.len();
    let addresses = env.addresses(i);
    // SAFETY: `together` and `host` answer for the pointers, the caller for the registers.
    unsafe {
        if let Some(place) = env.together::<SPACE>(&addresses, mask, total, false) {
            for (k, &d) in i.list.iter().enumerate() {
                if d != super::program::NONE {
                    let d = reg::<D>(env.regs, d);
                    each(mask, |l| {
                        (*d)[l] = M::load(place.of(addresses[l], l).add(k * size)).widen();
                    });
                }
            }
            return Ok(());
        }
        let mut m = mask;
        while m != 0 {
            let l = m.trailing_zeros() as usize;
            m &= m - 1;
            let p = env.host::<SPACE>(l, addresses[l], total, false)?;
            for (k, &d) in i.list.iter().enumerate() {
                if d != super::program::NONE {
                    (*reg::<D>(env.regs, d))[l] = M::load(p.add(k * size)).widen();
                }
            }
        }
    }
    Ok(())
}

/// `st`: one element per entry of `list`; of a register wider than the element, the low part is stored.
///
/// # Safety
/// As for [`load`].
pub(super) unsafe fn store<M: Cell, D: Copy + Narrow<M>, const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let size = size_of::<M>();
    let total = size * i.list.len();
    let addresses = env.addresses(i);
    // SAFETY: as in `load`.
    unsafe {
        if let Some(place) = env.together::<SPACE>(&addresses, mask, total, true) {
            for (k, &s) in i.list.iter().enumerate() {
                let s = reg::<D>(env.regs, s);
                each(mask, |l| {
                    M::store(place.of(addresses[l], l).add(k * size), (*s)[l].narrow());
                });
            }
            return Ok(());
        }
        let mut m = mask;
        while m != 0 {
            let l = m.trailing_zeros() as usize;
            m &= m - 1;
            let p = env.host::<SPACE>(l, addresses[l], total, true)?;
            for (k, &s) in i.list.iter().enumerate() {
                M::store(p.add(k * size), (*reg::<D>(env.regs, s))[l].narrow());
            }
        }
    }
    Ok(())
}

/// The low part of a register.
pub(super) trait Narrow<M> {
    fn narrow(self) -> M;
}
macro_rules! narrow {
    ($($d:ty => $($m:ty),*;)*) => {$($(
        impl Narrow<$m> for $d {
            #[inline(always)]
            fn narrow(self) -> $m {
                self as $m
            }
        }
    )*)*};
}
narrow! { u8 => u8; u16 => u8, u16; u32 => u8, u16, u32; u64 => u8, u16, u32, u64; }

/// Host memory that holds all addresses of one instruction.
#[derive(Clone, Copy)]
struct Place {
    base: *mut u8,
    least: u64,
    /// From one lane's memory to the next one's; zero for shared spaces.
    stride: usize,
}

impl Place {
    /// # Safety
    /// `address` is an active lane's that the place was made for.
    #[inline(always)]
    unsafe fn of(self, address: u64, lane: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe {
            self.base
                .add((address - self.least) as usize + lane * self.stride)
        }
    }
}

/// Least and greatest address of the active lanes, and the bits that any of them has.
#[inline(always)]
fn bounds_of(a: &[u64; LANES], mask: u32) -> (u64, u64, u64) {
    let (mut least, mut most, mut any) = (u64::MAX, 0, 0);
    for (l, &x) in a.iter().enumerate() {
        let on = 0u64.wrapping_sub(u64::from(mask >> l & 1));
        least = least.min(x | !on);
        most = most.max(x & on);
        any |= x & on;
    }
    (least, most, any)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn bounds_avx2(a: &[u64; LANES], mask: u32) -> (u64, u64, u64) {
    bounds_of(a, mask)
}

#[inline(always)]
fn bounds(a: &[u64; LANES], mask: u32) -> (u64, u64, u64) {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { bounds_avx2(a, mask) };
    }
    bounds_of(a, mask)
}

impl Env<'_, '_> {
    /// One place for the accesses of all active lanes, or `None` when lanes must be looked at one by one: because they
    /// are in different ranges, or because one of them is at fault.
    #[inline(always)]
    fn together<const SPACE: u8>(
        &mut self,
        addresses: &[u64; LANES],
        mask: u32,
        len: usize,
        write: bool,
    ) -> Option<Place> {
        if mask == 0 {
            return None;
        }
        let (least, most, any) = bounds(addresses, mask);
        let n = (most - least).checked_add(len as u64)?;
        if any & (len as u64 - 1) != 0 {
            return None;
        }
        let base = match SPACE {
            SHARED => self.in_shared(least, n)?,
            LOCAL => self.in_local(0, least, n)?,
            PARAM => self.in_params(least, n, write)?,
            _ if most < LOCAL_WINDOW => self.cache.host(least, n, write)?,
            _ => return None,
        };
        let stride = if SPACE == LOCAL {
            self.local_bytes as usize
        } else {
            0
        };
        Some(Place {
            base,
            least,
            stride,
        })
    }
}

/// Reads a special register into `d` at run time; `imm` is its number.
///
/// # Safety
/// As for [`load`].
pub(super) unsafe fn read_special(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    let v = match i.imm {
        // A nominal clock of 1 GHz.
        0 => env.epoch.elapsed().as_nanos() as u64,
        1 => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64),
        2 => env.epoch.elapsed().as_nanos() as u64 >> 32,
        4 => env.output.current_graph(),
        _ => u64::from(mask),
    };
    // SAFETY: the caller's promise.
    unsafe {
        if i.wide {
            each(mask, |l| (*reg::<u64>(env.regs, i.d))[l] = v);
        } else {
            each(mask, |l| (*reg::<u32>(env.regs, i.d))[l] = v as u32);
        }
    }
    Ok(())
}

impl Env<'_, '_> {
    /// A 64-bit parameter variable of one lane; zero if there is none.
    pub(super) fn parameter(&self, lane: usize, at: Option<u32>) -> u64 {
        let host = at.and_then(|at| self.in_local(lane, u64::from(at), 8));
        // SAFETY: `in_local` answers for the pointer; parameters may be placed at any alignment.
        host.map_or(0, |p| unsafe { p.cast::<u64>().read_unaligned() })
    }

    /// A 32-bit parameter variable of one lane; zero if there is none.
    pub(super) fn parameter_word(&self, lane: usize, at: Option<u32>) -> u32 {
        let host = at.and_then(|at| self.in_local(lane, u64::from(at), 4));
        // SAFETY: as above.
        host.map_or(0, |p| unsafe { p.cast::<u32>().read_unaligned() })
    }

    /// A NUL-terminated string at a generic address of one lane, truncated at 4 KiB or at the end of memory.
    pub(super) fn string_of(&mut self, lane: usize, address: u64) -> Vec<u8> {
        let mut s = Vec::new();
        while s.len() < 4096 {
            let at = address.wrapping_add(s.len() as u64);
            let Ok(p) = self.host::<GENERIC>(lane, at, 1, false) else {
                break;
            };
            // SAFETY: `host` answers for the pointer.
            match unsafe { u8::load(p) } {
                0 => break,
                c => s.push(c),
            }
        }
        s
    }
}
