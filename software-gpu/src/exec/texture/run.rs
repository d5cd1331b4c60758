// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The instructions: `tex`, `tld4`, `txq`, `suld`, `sust` and `suq`.

use std::sync::Arc;

use super::super::FaultKind;
use super::super::env::Env;
use super::super::lanes::{reg, set_pred};
use super::super::memory::Cell;
use super::super::program::{Inst, NONE, Stop};
use super::sample::{Lod, Wish};
use super::{
    BASE, COMPONENT_SHIFT, GATHER, GRADIENT, Geometry, LEVEL, MODE_SHIFT, Surface, Texture,
    WHOLE_BIT,
};

/// The content of `list` of a decoded `tex`: four destinations, a layer, three coordinates, a level or six derivatives.
pub(in super::super) const DESTINATIONS: usize = 4;
pub(in super::super) const LAYER: usize = 4;
pub(in super::super) const COORDINATES: usize = 5;
pub(in super::super) const EXTRA: usize = 8;

fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let lane = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            lane
        })
    })
}

fn no_object(lane: usize, what: &str, handle: u64) -> Stop {
    Stop {
        kind: FaultKind::NoObject(format!("{what} {handle:#x}")),
        lane,
    }
}

/// The registers of a decoded instruction.
///
/// # Safety
/// `EnvFn`'s contract: `place` is a register of `T`'s width in the file of `env`.
unsafe fn value<T: Copy>(env: &Env<'_, '_>, place: u32, lane: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { (*reg::<T>(env.regs, place))[lane] }
}

fn texture(env: &mut Env<'_, '_>, handle: u64, lane: usize) -> Result<Arc<Texture>, Stop> {
    let found = env.cache.texture(handle);
    found.ok_or_else(|| no_object(lane, "texture", handle))
}

fn surface(env: &mut Env<'_, '_>, handle: u64, lane: usize) -> Result<Arc<Surface>, Stop> {
    let found = env.cache.surface(handle);
    found.ok_or_else(|| no_object(lane, "surface", handle))
}

/// `tex` and `tld4`.
///
/// # Safety
/// `EnvFn`'s contract: the registers of `i` belong to the file of `env`.
pub(in super::super) unsafe fn sample(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let geometry = Geometry::from_number(i.imm);
    let is_whole = i.imm >> WHOLE_BIT & 1 != 0;
    let mode = i.imm >> MODE_SHIFT & 3;
    let channel = (i.imm >> COMPONENT_SHIFT & 3) as usize;
    let count = geometry.coordinates();
    for lane in lanes(mask) {
        // SAFETY: the caller's promise; the decoder has put registers of these widths into the list.
        let (handle, bits, layer, extra) = unsafe {
            let bits: [u32; 3] = std::array::from_fn(|k| match k < count {
                true => value::<u32>(env, i.list[COORDINATES + k], lane),
                false => 0,
            });
            let layer = match i.list[LAYER] {
                NONE => 0,
                place => value::<u32>(env, place, lane),
            };
            let extra: [f32; 6] = std::array::from_fn(|k| match i.list.get(EXTRA + k) {
                Some(&place) if place != NONE => f32::from_bits(value::<u32>(env, place, lane)),
                _ => 0.0,
            });
            (value::<u64>(env, i.a, lane), bits, layer, extra)
        };
        let texture = texture(env, handle, lane)?;
        let lod = match mode {
            BASE | GATHER => Lod::Base,
            LEVEL if is_whole => Lod::Level(extra[0].to_bits() as i32 as f32),
            LEVEL => Lod::Level(extra[0]),
            GRADIENT => Lod::Gradient(
                [extra[0], extra[1], extra[2]],
                [extra[3], extra[4], extra[5]],
            ),
            _ => Lod::Base,
        };
        let wish = Wish {
            geometry,
            at: bits.map(f32::from_bits),
            layer,
            lod,
        };
        let found = if mode == GATHER {
            texture.gather(env, lane, &wish, channel)?
        } else if is_whole {
            texture.fetch(env, lane, &wish, bits.map(|bits| bits as i32))?
        } else {
            texture.sample(env, lane, &wish)?
        };
        for (&to, value) in i.list[..DESTINATIONS].iter().zip(found) {
            if to != NONE {
                // SAFETY: the caller's promise.
                unsafe { (*reg::<u32>(env.regs, to))[lane] = value };
            }
        }
    }
    if i.d != NONE {
        // No texture here is sparse: all of it is resident. SAFETY: the caller's promise; `d` is a predicate.
        unsafe { set_pred(env.regs, i.d, mask, !0) };
    }
    Ok(())
}

/// The queries of `txq` and `suq`; the numbers go into `imm`.
const WIDTH: i64 = 0;
const HEIGHT: i64 = 1;
const DEPTH: i64 = 2;
const LEVELS: i64 = 3;
const ARRAY_SIZE: i64 = 4;
const SAMPLES: i64 = 5;

/// The number of a question of `txq` or `suq`.
pub(in super::super) fn question(name: &str) -> Option<i64> {
    Some(match name {
        "width" => WIDTH,
        "height" => HEIGHT,
        "depth" => DEPTH,
        "num_mipmap_levels" => LEVELS,
        "array_size" => ARRAY_SIZE,
        "num_samples" => SAMPLES,
        _ => return None,
    })
}

/// `txq`: `imm` is the question, `b` the level or no register.
///
/// # Safety
/// As for [`sample`].
pub(in super::super) unsafe fn query(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    for lane in lanes(mask) {
        // SAFETY: the caller's promise.
        let (handle, level) = unsafe {
            let level = match i.b {
                NONE => 0,
                place => value::<u32>(env, place, lane),
            };
            (value::<u64>(env, i.a, lane), level)
        };
        let texture = texture(env, handle, lane)?;
        let level = (level as usize).min(texture.levels.len() - 1);
        let image = &texture.levels[level];
        let layout = texture.layout;
        let answer = match i.imm {
            WIDTH => image.width,
            HEIGHT => image.height,
            DEPTH if layout.layered || layout.cube => 1,
            DEPTH => image.depth,
            LEVELS => texture.levels.len() as u32,
            ARRAY_SIZE if layout.cube => image.depth / 6,
            ARRAY_SIZE if layout.layered => image.depth,
            _ => 1,
        };
        // SAFETY: the caller's promise.
        unsafe { (*reg::<u32>(env.regs, i.d))[lane] = answer };
    }
    Ok(())
}

/// `suq`: `imm` is the question.
///
/// # Safety
/// As for [`sample`].
pub(in super::super) unsafe fn surface_query(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    for lane in lanes(mask) {
        // SAFETY: the caller's promise.
        let handle = unsafe { value::<u64>(env, i.a, lane) };
        let surface = surface(env, handle, lane)?;
        let (image, layout) = (&surface.image, surface.layout);
        let slices = layout.layered || layout.cube;
        let answer = match i.imm {
            WIDTH => image.width,
            HEIGHT => image.height,
            DEPTH if slices => 1,
            DEPTH => image.depth,
            ARRAY_SIZE if slices => image.depth,
            _ => 1,
        };
        // SAFETY: the caller's promise.
        unsafe { (*reg::<u32>(env.regs, i.d))[lane] = answer };
    }
    Ok(())
}

/// The effect of a surface's access outside; the numbers go into `imm`.
pub(in super::super) const TRAP: i64 = 0;
pub(in super::super) const CLAMP: i64 = 1;
pub(in super::super) const ZERO: i64 = 2;
/// Bits of `imm` of a surface's instruction: the geometry, the effect outside, and the bytes of a register's part.
pub(in super::super) const OUTSIDE_SHIFT: u32 = 4;
pub(in super::super) const BYTES_SHIFT: u32 = 8;

/// The place of an access: `None` if it does nothing. In `list` are the values, from `imm`'s count on the layer and
/// coordinates.
///
/// # Safety
/// As for [`sample`].
unsafe fn reach(
    env: &mut Env<'_, '_>,
    i: &Inst,
    lane: usize,
    values: usize,
    write: bool,
) -> Result<Option<*mut u8>, Stop> {
    let geometry = Geometry::from_number(i.imm);
    let outside = i.imm >> OUTSIDE_SHIFT & 3;
    let bytes = (i.imm >> BYTES_SHIFT & 15) as usize * values;
    // SAFETY: the caller's promise; the decoder has put them there.
    let (handle, layer, at) = unsafe {
        let layer = match i.list[values] {
            NONE => 0,
            place => value::<i32>(env, place, lane),
        };
        let at: [i32; 3] = std::array::from_fn(|k| match k < geometry.coordinates() {
            true => value::<i32>(env, i.list[values + 1 + k], lane),
            false => 0,
        });
        (value::<u64>(env, i.a, lane), layer, at)
    };
    let surface = surface(env, handle, lane)?;
    let image = surface.image;
    let element = surface.format.size() as i64;
    let z = if geometry.has_layer() { layer } else { at[2] };
    // Only whole elements of x count.
    let mut element_at = i64::from(at[0]).div_euclid(element);
    let (mut y, mut z) = (i64::from(at[1]), i64::from(z));
    let [width, height, depth] = [image.width, image.height, image.depth].map(i64::from);
    let is_inside = (0..width).contains(&element_at)
        && (0..height).contains(&y)
        && (0..depth).contains(&z)
        && element_at * element + bytes as i64 <= width * element;
    if !is_inside {
        match outside {
            ZERO => return Ok(None),
            CLAMP => {
                let whole = (bytes as i64 + element - 1) / element;
                element_at = element_at.clamp(0, (width - whole).max(0));
                (y, z) = (y.clamp(0, height - 1), z.clamp(0, depth - 1));
            }
            _ => {
                return Err(Stop {
                    kind: FaultKind::OutsideSurface,
                    lane,
                });
            }
        }
    }
    if element_at * element + bytes as i64 > width * element {
        return Ok(None);
    }
    let offset = (element_at * element) as usize;
    let place = (offset, y as u32, z as u32);
    image.host(env, lane, place, bytes, write).map(Some)
}

/// `suld.b`: `b` is how many values, `c` the bytes of their registers.
///
/// # Safety
/// As for [`sample`].
pub(in super::super) unsafe fn surface_load(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let (values, bytes) = (i.b as usize, (i.imm >> BYTES_SHIFT & 15) as usize);
    for lane in lanes(mask) {
        // SAFETY: the caller's promise; the result of `reach` is inside the image, and aligned as its elements are.
        unsafe {
            let from = reach(env, i, lane, values, false)?;
            for (k, &to) in i.list[..values].iter().enumerate() {
                if to == NONE {
                    continue;
                }
                let value = match from {
                    None => 0,
                    Some(from) => {
                        let from = from.add(k * bytes);
                        match bytes {
                            1 => part::<u8>(from).into(),
                            2 => part::<u16>(from).into(),
                            4 => part::<u32>(from).into(),
                            _ => part::<u64>(from),
                        }
                    }
                };
                match i.c {
                    2 => (*reg::<u16>(env.regs, to))[lane] = value as u16,
                    4 => (*reg::<u32>(env.regs, to))[lane] = value as u32,
                    1 => (*reg::<u8>(env.regs, to))[lane] = value as u8,
                    _ => (*reg::<u64>(env.regs, to))[lane] = value,
                }
            }
        }
    }
    Ok(())
}

/// # Safety
/// `from` is valid for reads.
unsafe fn part<T: Cell>(from: *const u8) -> T {
    if from.addr().is_multiple_of(size_of::<T>()) {
        // SAFETY: the caller's promise, and it is aligned.
        return unsafe { T::load(from) };
    }
    // SAFETY: the caller's promise.
    unsafe { from.cast::<T>().read_unaligned() }
}

/// # Safety
/// `to` is valid for writes.
unsafe fn set_part<T: Cell>(to: *mut u8, value: T) {
    if to.addr().is_multiple_of(size_of::<T>()) {
        // SAFETY: the caller's promise, and it is aligned.
        unsafe { T::store(to, value) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<T>().write_unaligned(value) };
    }
}

/// `sust.b`: as [`surface_load`].
///
/// # Safety
/// As for [`sample`].
pub(in super::super) unsafe fn surface_store(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let (values, bytes) = (i.b as usize, (i.imm >> BYTES_SHIFT & 15) as usize);
    for lane in lanes(mask) {
        // SAFETY: as in `surface_load`.
        unsafe {
            let Some(to) = reach(env, i, lane, values, true)? else {
                continue;
            };
            for (k, &from) in i.list[..values].iter().enumerate() {
                let value = match i.c {
                    1 => value::<u8>(env, from, lane).into(),
                    2 => value::<u16>(env, from, lane).into(),
                    4 => value::<u32>(env, from, lane).into(),
                    _ => value::<u64>(env, from, lane),
                };
                let to = to.add(k * bytes);
                match bytes {
                    1 => set_part(to, value as u8),
                    2 => set_part(to, value as u16),
                    4 => set_part(to, value as u32),
                    _ => set_part(to, value),
                }
            }
        }
    }
    Ok(())
}
