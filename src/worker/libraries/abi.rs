// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls C functions that are described only by the rows of their tables.

use std::ffi::c_void;

/// The maximum number of a function's arguments that are integers or pointers.
#[cfg(test)]
pub const MOST_WORDS: usize = 36;
/// The maximum number of floating-point arguments: all of them are in registers.
pub const MOST_FLOATS: usize = 4;

macro_rules! by_count {
    ($address:ident, $words:ident, $floats:ident; $($count:literal: $($word:ident)*;)*) => {
        match *$words {
            [] => {
                // SAFETY: the caller vouches for it.
                let function: unsafe extern "C" fn(f64, f64, f64, f64) -> u32 = unsafe { std::mem::transmute($address) };
                let [one, two, three, four] = $floats;
                // SAFETY: the caller vouches for it.
                unsafe { function(one, two, three, four) }
            }
            $([$($word),*] => {
                let function: unsafe extern "C" fn($(by_count!(@ $word)),*, f64, f64, f64, f64) -> u32 =
                    // SAFETY: the caller vouches for it.
                    unsafe { std::mem::transmute($address) };
                let [one, two, three, four] = $floats;
                // SAFETY: the caller vouches for it.
                unsafe { function($($word),*, one, two, three, four) }
            })*
            _ => unreachable!("a function of the tables has at most 36 arguments"),
        }
    };
    (@ $word:ident) => { u64 };
}

/// Calls a C function. In the ABIs of x86-64 and AArch64 an `int` is the low half of a word. Floating-point numbers
/// have registers of their own, so their position among the arguments does not matter, and surplus arguments are
/// ignored. A `float` is the low half of such a register.
///
/// # Safety
///
/// The function takes this many integers and pointers, and these floating-point numbers before any others, and the
/// values are valid for it.
pub unsafe fn call_with(address: *const c_void, words: &[u64], floats: [f64; MOST_FLOATS]) -> u32 {
    by_count! { address, words, floats;
        1: a;
        2: a b;
        3: a b c;
        4: a b c d;
        5: a b c d e;
        6: a b c d e f;
        7: a b c d e f g;
        8: a b c d e f g h;
        9: a b c d e f g h i;
        10: a b c d e f g h i j;
        11: a b c d e f g h i j k;
        12: a b c d e f g h i j k l;
        13: a b c d e f g h i j k l m;
        14: a b c d e f g h i j k l m n;
        15: a b c d e f g h i j k l m n o;
        16: a b c d e f g h i j k l m n o p;
        17: a b c d e f g h i j k l m n o p q;
        18: a b c d e f g h i j k l m n o p q r;
        19: a b c d e f g h i j k l m n o p q r s;
        20: a b c d e f g h i j k l m n o p q r s t;
        21: a b c d e f g h i j k l m n o p q r s t u;
        22: a b c d e f g h i j k l m n o p q r s t u v;
        23: a b c d e f g h i j k l m n o p q r s t u v w;
        24: a b c d e f g h i j k l m n o p q r s t u v w x;
        25: a b c d e f g h i j k l m n o p q r s t u v w x y;
        26: a b c d e f g h i j k l m n o p q r s t u v w x y z;
        27: a b c d e f g h i j k l m n o p q r s t u v w x y z aa;
        28: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab;
        29: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac;
        30: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad;
        31: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae;
        32: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae af;
        33: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae af ag;
        34: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae af ag ah;
        35: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae af ag ah ai;
        36: a b c d e f g h i j k l m n o p q r s t u v w x y z aa ab ac ad ae af ag ah ai aj;
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::libraries::Kind;

    use super::*;

    #[test]
    fn every_function_of_the_tables_can_be_called() {
        for of in gpgpu_protocol::libraries::functions() {
            let is_float = |kind: &&Kind| matches!(kind, Kind::F32 | Kind::F64);
            let floats = of.kinds.iter().filter(is_float).count();
            assert!(floats <= MOST_FLOATS, "{}", of.operation.name);
            assert!(
                of.kinds.len() - floats <= MOST_WORDS,
                "{}",
                of.operation.name
            );
        }
    }

    #[test]
    fn words_arrive_as_arguments_in_registers_and_on_the_stack() {
        extern "C" fn many(
            a: u64,
            b: i32,
            c: *const u8,
            d: i64,
            e: i32,
            f: i32,
            g: i32,
            h: i64,
            i: i32,
        ) -> u32 {
            let ints = [b, e, f, g, i].map(i64::from);
            let wide = [a as i64, c as i64, d, h];
            u32::from(ints == [-2, -5, 6, -7, -9] && wide == [1, 3, -4, 8])
        }
        let words = [1_i64, -2, 3, -4, -5, 6, -7, 8, -9].map(|word| word as u64);
        // SAFETY: the function takes nine such arguments.
        let arrived = unsafe { call_with(many as *const c_void, &words, [0.0; MOST_FLOATS]) };
        assert_eq!(arrived, 1);
    }

    #[test]
    fn floating_point_numbers_arrive_wherever_they_stand() {
        extern "C" fn mixed(a: i32, b: f32, c: u64, d: f64, e: i32, f: i32, g: i32, h: i64) -> u32 {
            u32::from((a, c, e, f, g, h) == (1, 3, 5, 6, 7, -8) && (b, d) == (-2.5, 4.25))
        }
        let words = [1_i64, 3, 5, 6, 7, -8].map(|word| word as u64);
        let float = f64::from_bits(u64::from((-2.5_f32).to_bits()));
        // SAFETY: the function takes six such arguments, a `float` and a `double`.
        let arrived = unsafe { call_with(mixed as *const c_void, &words, [float, 4.25, 0.0, 0.0]) };
        assert_eq!(arrived, 1);
    }
}
