// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Floating-point arithmetic that Rust's operators do not have: directed rounding, narrow formats, PTX's NaN rules.

use rustc_apfloat::{Float, Round, ieee::Double};

/// Rounding modes as const parameters.
pub(super) const RN: u8 = 0;
pub(super) const RZ: u8 = 1;
pub(super) const RM: u8 = 2;
pub(super) const RP: u8 = 3;
/// To nearest, ties away from zero (`.rna`).
pub(super) const RNA: u8 = 4;

/// The NaN that single-precision instructions return.
pub(super) const NAN32: f32 = f32::from_bits(0x7fff_ffff);
/// The NaN that double-precision instructions return.
pub(super) const NAN64: f64 = f64::from_bits(0xfff8_0000_0000_0000);

/// Subnormals to zero of the same sign.
#[inline(always)]
pub(super) fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        f32::from_bits(x.to_bits() & 0x8000_0000)
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn flush_if<const FTZ: bool>(x: f32) -> f32 {
    if FTZ { flush(x) } else { x }
}

/// The final step of every single-precision result: flush, saturation to 0..1, the one NaN.
#[inline(always)]
pub(super) fn finish<const FTZ: bool, const SAT: bool>(x: f32) -> f32 {
    let x = flush_if::<FTZ>(x);
    if SAT {
        // The comparison is false for NaN, so the result is zero.
        if x > 0.0 {
            if x < 1.0 { x } else { 1.0 }
        } else {
            0.0
        }
    } else if x.is_nan() {
        NAN32
    } else {
        x
    }
}

#[inline(always)]
pub(super) fn finish64(x: f64) -> f64 {
    if x.is_nan() { NAN64 } else { x }
}

/// `a + b` as its rounded value and the rounding error.
#[inline(always)]
pub(super) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// Rounds the exact value `s + e` to single precision, where `s` is its double-precision rounding.
#[inline(always)]
pub(super) fn round32<const MODE: u8>(s: f64, e: f64) -> f32 {
    let r = s as f32;
    if !s.is_finite() {
        return r;
    }
    // The sign of r - (s + e); the first difference is exact.
    let over = if r.is_infinite() {
        f64::from(r)
    } else {
        (f64::from(r) - s) - e
    };
    let down = match MODE {
        RM => true,
        RP => false,
        _ => s > 0.0,
    };
    if MODE == RN {
        // Double rounding: s may sit on a tie that e breaks.
        let half = (f64::from(r) - s).abs();
        if e != 0.0 && half != 0.0 && !r.is_infinite() {
            let other = if f64::from(r) > s {
                r.next_down()
            } else {
                r.next_up()
            };
            if (f64::from(other) - s).abs() == half {
                let up = if other > r { other } else { r };
                let lo = if other > r { r } else { other };
                return if e > 0.0 { up } else { lo };
            }
        }
        return r;
    }
    if down && over > 0.0 {
        return r.next_down();
    }
    if !down && over < 0.0 {
        return r.next_up();
    }
    r
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(super) fn fma32<const MODE: u8>(a: f32, b: f32, c: f32) -> f32 {
    if MODE == RN {
        return a.mul_add(b, c);
    }
    let p = f64::from(a) * f64::from(b);
    let c = f64::from(c);
    let (s, e) = two_sum(p, c);
    if s == 0.0 {
        // Exact cancellation: the sign depends on the mode.
        return if p == 0.0 && c == 0.0 && p.is_sign_negative() == c.is_sign_negative() {
            s as f32
        } else if MODE == RM {
            -0.0
        } else {
            0.0
        };
    }
    round32::<MODE>(s, e)
}

#[inline(always)]
pub(super) fn add32<const MODE: u8>(a: f32, b: f32) -> f32 {
    if MODE == RN {
        a + b
    } else {
        fma32::<MODE>(a, 1.0, b)
    }
}

#[inline(always)]
pub(super) fn mul32<const MODE: u8>(a: f32, b: f32) -> f32 {
    if MODE == RN {
        a * b
    } else {
        round32::<MODE>(f64::from(a) * f64::from(b), 0.0)
    }
}

#[inline(always)]
pub(super) fn div32<const MODE: u8>(a: f32, b: f32) -> f32 {
    if MODE == RN {
        return a / b;
    }
    let (x, y) = (f64::from(a), f64::from(b));
    let q = x / y;
    if !q.is_finite() || q == 0.0 {
        return q as f32;
    }
    // The remainder is exact; its sign against y's is the error's.
    let r = (-q).mul_add(y, x);
    round32::<MODE>(q, r * y.signum() * f64::MIN_POSITIVE.sqrt())
}

#[inline(always)]
pub(super) fn sqrt32<const MODE: u8>(a: f32) -> f32 {
    // Said here, and not left to the check for NaN after it: the compiler takes every NaN for as good as another.
    if a < 0.0 || a.is_nan() {
        return NAN32;
    }
    if MODE == RN {
        return a.sqrt();
    }
    let x = f64::from(a);
    let s = x.sqrt();
    if !s.is_finite() || s == 0.0 {
        return s as f32;
    }
    round32::<MODE>(s, (-s).mul_add(s, x) / (2.0 * s))
}

fn mode(m: u8) -> Round {
    match m {
        RZ => Round::TowardZero,
        RM => Round::TowardNegative,
        RP => Round::TowardPositive,
        RNA => Round::NearestTiesToAway,
        _ => Round::NearestTiesToEven,
    }
}

fn wide(x: f64) -> Double {
    Double::from_bits(u128::from(x.to_bits()))
}

fn back(x: Double) -> f64 {
    f64::from_bits(x.to_bits() as u64)
}

#[inline(always)]
pub(super) fn add64<const MODE: u8>(a: f64, b: f64) -> f64 {
    if MODE == RN {
        a + b
    } else {
        back(wide(a).add_r(wide(b), mode(MODE)).value)
    }
}

#[inline(always)]
pub(super) fn mul64<const MODE: u8>(a: f64, b: f64) -> f64 {
    if MODE == RN {
        a * b
    } else {
        back(wide(a).mul_r(wide(b), mode(MODE)).value)
    }
}

#[inline(always)]
pub(super) fn div64<const MODE: u8>(a: f64, b: f64) -> f64 {
    if MODE == RN {
        a / b
    } else {
        back(wide(a).div_r(wide(b), mode(MODE)).value)
    }
}

#[inline(always)]
pub(super) fn fma64<const MODE: u8>(a: f64, b: f64, c: f64) -> f64 {
    if MODE == RN {
        a.mul_add(b, c)
    } else {
        back(wide(a).mul_add_r(wide(b), wide(c), mode(MODE)).value)
    }
}

#[inline(always)]
pub(super) fn sqrt64<const MODE: u8>(a: f64) -> f64 {
    // As in `sqrt32`. NaNs are included, because the result would be the argument's bits.
    if a < 0.0 || a.is_nan() {
        return NAN64;
    }
    let r = a.sqrt();
    if MODE == RN || !r.is_finite() || r == 0.0 {
        return r;
    }
    // Scaled so that the remainder neither underflows nor overflows.
    let k = if a < 1e-200 {
        2f64.powi(300)
    } else if a > 1e200 {
        2f64.powi(-300)
    } else {
        1.0
    };
    let x = a * k * k;
    let s = r * k;
    let e = (-s).mul_add(s, x);
    if MODE == RP && e > 0.0 {
        r.next_up()
    } else if MODE != RP && e < 0.0 {
        r.next_down()
    } else {
        r
    }
}

/// A binary format narrower than double precision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    /// Explicit mantissa bits.
    pub(super) mantissa: u32,
    /// Exponent bits.
    pub(super) exponent: u32,
    /// The NaN that conversions return.
    pub(super) nan: u64,
}

pub(super) const F16: Format = Format {
    mantissa: 10,
    exponent: 5,
    nan: 0x7fff,
};
pub(super) const BF16: Format = Format {
    mantissa: 7,
    exponent: 8,
    nan: 0x7fff,
};
pub(super) const F32: Format = Format {
    mantissa: 23,
    exponent: 8,
    nan: 0x7fff_ffff,
};

/// Rounds the exact value `s + e` (`|e|` below half a unit of `s`) to a format; infinities and NaN included.
pub(super) fn narrow(s: f64, e: f64, rounding: u8, f: Format) -> u64 {
    let sign_bit = f.mantissa + f.exponent;
    let bits = s.to_bits();
    let negative = bits >> 63 != 0;
    let sign = u64::from(negative) << sign_bit;
    let top = ((1u64 << f.exponent) - 1) << f.mantissa;
    if s.is_nan() {
        return f.nan;
    }
    if s.is_infinite() {
        return sign | top;
    }
    if s == 0.0 {
        return sign;
    }
    let mut exponent = ((bits >> 52) & 0x7ff) as i32;
    let mut m = bits & ((1 << 52) - 1);
    if exponent == 0 {
        exponent = 1;
    } else {
        m |= 1 << 52;
    }
    // Value = m * 2^(exponent - 1075); three more bits below, the last one sticky.
    let mut m = m << 3;
    let mut exponent = exponent - 1075 - 3;
    if e != 0.0 {
        if (e > 0.0) == (s > 0.0) {
            m |= 1;
        } else {
            m -= 1;
        }
    }
    let shift = m.leading_zeros() as i32;
    m <<= shift;
    exponent -= shift;
    // Now the leading bit is bit 63: the value is m * 2^exponent, its magnitude's exponent is exponent + 63.
    let bias = (1i32 << (f.exponent - 1)) - 1;
    let mut biased = exponent + 63 + bias;
    let mut drop = 63 - f.mantissa as i32;
    if biased <= 0 {
        drop += 1 - biased;
        biased = 0;
    }
    let (mut kept, rest, half) = if drop > 64 {
        (0, 1u64, 2u64)
    } else if drop == 64 {
        (0, m, 1 << 63)
    } else {
        (m >> drop, m & ((1 << drop) - 1), 1u64 << (drop - 1))
    };
    let up = match rounding {
        RZ => false,
        RM => negative && rest != 0,
        RP => !negative && rest != 0,
        RNA => rest >= half,
        _ => rest > half || (rest == half && kept & 1 != 0),
    };
    kept += u64::from(up);
    // The hidden bit of normal numbers adds one to the exponent field.
    let mut out = if biased == 0 {
        kept
    } else {
        ((biased as u64 - 1) << f.mantissa) + kept
    };
    if biased as u64 >= (1 << f.exponent) - 1 || out >= top {
        let to_infinity = match rounding {
            RZ => false,
            RM => negative,
            RP => !negative,
            _ => true,
        };
        out = if to_infinity { top } else { top - 1 };
    }
    sign | out
}

/// The value of a narrow format's bits, exactly.
pub(super) fn widen(bits: u64, f: Format) -> f64 {
    let sign = if bits >> (f.mantissa + f.exponent) & 1 != 0 {
        -1.0
    } else {
        1.0
    };
    let field = (bits >> f.mantissa) & ((1 << f.exponent) - 1);
    let m = (bits & ((1 << f.mantissa) - 1)) as f64;
    let bias = (1i32 << (f.exponent - 1)) - 1;
    let one = (1u64 << f.mantissa) as f64;
    if field == (1 << f.exponent) - 1 {
        return if m == 0.0 {
            sign * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let power = |e: i32| f64::from_bits(((e + 1023) as u64) << 52);
    if field == 0 {
        sign * (m / one) * power(1 - bias)
    } else {
        sign * (1.0 + m / one) * power(field as i32 - bias)
    }
}

/// `min`: the other operand for a NaN (or NaN if `NAN`), -0 below +0.
#[inline(always)]
pub(super) fn min32<const NAN: bool>(a: f32, b: f32) -> f32 {
    if NAN && (a.is_nan() || b.is_nan()) {
        return NAN32;
    }
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

#[inline(always)]
pub(super) fn max32<const NAN: bool>(a: f32, b: f32) -> f32 {
    if NAN && (a.is_nan() || b.is_nan()) {
        return NAN32;
    }
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f32::from_bits(a.to_bits() & b.to_bits())
    } else if a > b {
        a
    } else {
        b
    }
}

#[inline(always)]
pub(super) fn min64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() | b.to_bits())
    } else if a < b {
        a
    } else {
        b
    }
}

#[inline(always)]
pub(super) fn max64(a: f64, b: f64) -> f64 {
    if a.is_nan() {
        b
    } else if b.is_nan() {
        a
    } else if a == b {
        f64::from_bits(a.to_bits() & b.to_bits())
    } else if a > b {
        a
    } else {
        b
    }
}
