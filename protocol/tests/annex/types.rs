// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoding of every type, with examples.

use std::fmt::{Debug, Write};

use gpgpu_protocol::{
    api::{JitOption, ParamInfo},
    codec::{Blob, Few, Malformed, Reader, Wire},
};

use super::{bytes, decoded, encoded};

const TYPES: &str = "\
## A.1 Encoding

Arguments and results consist of these types. Each takes a multiple of eight bytes, so the offset of every value from the
start of the arguments or results is a multiple of eight.

| type | bytes |
|---|---|
| `u8`, `u16`, `u32`, `u64` | the number as a `le64`, zero-extended |
| `i32`, `i64` | the number as a `le64`, sign-extended |
| `f32` | the 32 bits of the number (IEEE 754) as a `u32` |
| `bool` | 0 or 1 as a `u64` |
| byte string | its length as a `u64`, its bytes, zeros up to a multiple of eight |
| text | a byte string that is UTF-8, without a NUL at its end |
| array of *n* bytes | a byte string whose length is *n* |
| optional *T* | a `bool`; if it is true, the *T* |
| list of *T* | the number of values as a `u64`, then the values |
| list of *T*, at most *n* | the same |
| structure | its fields, in their order |
| nothing | no bytes |

Bytes are malformed (GPGPU-DEV-33) if a scalar does not fit its type, if a `bool` is neither 0 nor 1, if text is not UTF-8,
if an array has another length, if a list exceeds its maximum, or if bytes are missing or left over. A reader ignores the
padding of a byte string. A `u64` that counts bytes in memory is at most the range that the reader's platform can address;
here, that is any `u64`.

| type | value | bytes |
|---|---|---|
";

/// One example: the bytes are held against the codec, both ways.
fn example<T: Wire + PartialEq + Debug>(
    page: &mut String,
    of: &str,
    shown: &str,
    value: &T,
    hex: &str,
) {
    assert_eq!(super::hex(&encoded(value)), hex, "{shown}");
    assert_eq!(decoded::<T>(&bytes(hex)), *value, "{shown}");
    let _ = writeln!(page, "| {of} | {shown} | `{hex}` |");
}

pub fn write(page: &mut String) {
    page.push_str(TYPES);
    example(page, "`u8`", "200", &200_u8, "c800000000000000");
    example(page, "`u16`", "0x0901", &0x0901_u16, "0109000000000000");
    example(
        page,
        "`u32`",
        "0xdeadbeef",
        &0xdead_beef_u32,
        "efbeadde00000000",
    );
    example(
        page,
        "`u64`",
        "2⁶³ + 1",
        &((1 << 63) + 1_u64),
        "0100000000000080",
    );
    example(page, "`i32`", "-2", &-2_i32, "feffffffffffffff");
    example(page, "`i64`", "-2", &-2_i64, "feffffffffffffff");
    example(page, "`f32`", "-1.5", &-1.5_f32, "0000c0bf00000000");
    example(page, "`bool`", "true", &true, "0100000000000000");
    example(
        page,
        "byte string",
        "01 02 03",
        &Blob(vec![1, 2, 3]),
        "0300000000000000 0102030000000000",
    );
    example(
        page,
        "byte string",
        "of no bytes",
        &Blob(Vec::new()),
        "0000000000000000",
    );
    example(
        page,
        "text",
        "\"saxpy\"",
        &String::from("saxpy"),
        "0500000000000000 7361787079000000",
    );
    example(
        page,
        "array of 4 bytes",
        "01 02 03 04",
        &[1_u8, 2, 3, 4],
        "0400000000000000 0102030400000000",
    );
    example(
        page,
        "optional `u32`",
        "none",
        &None::<u32>,
        "0000000000000000",
    );
    example(
        page,
        "optional `u32`",
        "7",
        &Some(7_u32),
        "0100000000000000 0700000000000000",
    );
    example(
        page,
        "list of `i32`",
        "1, -1",
        &vec![1_i32, -1],
        "0200000000000000 0100000000000000 ffffffffffffffff",
    );
    example(
        page,
        "list of text",
        "\"a\", \"\"",
        &vec![String::from("a"), String::new()],
        "0200000000000000 0100000000000000 6100000000000000 0000000000000000",
    );
    example(
        page,
        "list of `u16`, at most 3",
        "5",
        &Few::<u16, 3>::first_of([5]),
        "0100000000000000 0500000000000000",
    );
    example(
        page,
        "structure `ParamInfo`",
        "`offset` 8, `size` 4",
        &ParamInfo { offset: 8, size: 4 },
        "0800000000000000 0400000000000000",
    );
    example(
        page,
        "list of `JitOption`",
        "one: `option` 7, `value` 2",
        &vec![JitOption {
            option: 7,
            value: 2,
        }],
        "0100000000000000 0700000000000000 0200000000000000",
    );
    example(page, "nothing", "", &(), "");
    page.push_str("\nThese are malformed:\n\n| type | bytes | why |\n|---|---|---|\n");
    malformed::<u32>(
        page,
        "`u32`",
        "0000000001000000",
        "2³² does not fit",
        Malformed::Range,
    );
    malformed::<i32>(
        page,
        "`i32`",
        "feffffff00000000",
        "not sign-extended",
        Malformed::Range,
    );
    malformed::<bool>(
        page,
        "`bool`",
        "0200000000000000",
        "neither 0 nor 1",
        Malformed::Range,
    );
    malformed::<String>(
        page,
        "text",
        "0100000000000000 ff00000000000000",
        "not UTF-8",
        Malformed::Text,
    );
    malformed::<[u8; 4]>(
        page,
        "array of 4 bytes",
        "0300000000000000 0102030000000000",
        "another length",
        Malformed::Range,
    );
    malformed::<Blob>(
        page,
        "byte string",
        "0900000000000000 0102030405060708",
        "bytes are missing",
        Malformed::Truncated,
    );
    malformed::<Few<u16, 1>>(
        page,
        "list of `u16`, at most 1",
        "0200000000000000 0500000000000000 0600000000000000",
        "too many",
        Malformed::Range,
    );
    malformed::<u8>(
        page,
        "`u8`",
        "0500000000000000 0000000000000000",
        "bytes are left over",
        Malformed::Trailing,
    );
    page.push('\n');
}

fn malformed<T: Wire + Debug + PartialEq>(
    page: &mut String,
    of: &str,
    hex: &str,
    why: &str,
    error: Malformed,
) {
    let bytes = bytes(hex);
    let mut reader = Reader::new(&bytes);
    let read = reader.get::<T>().and_then(|_| reader.end());
    assert_eq!(read, Err(error), "{of}: {why}");
    let _ = writeln!(page, "| {of} | `{hex}` | {why} |");
}
