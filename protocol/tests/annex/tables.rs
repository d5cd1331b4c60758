// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The comparison of tables of different age.

use std::fmt::Write;

use gpgpu_protocol::{
    api::{
        Request, all_operations,
        issued::{FAMILY, ISSUED, KNOWN_AT_ONCE, first_table, known_from},
        request,
    },
    layout::MAX_ANSWER_BYTES,
};

use super::{bytes, hex};

const LAYOUT: &str = "\
### The layout number

The layout number covers an operation's completion, and the names and types of its arguments and results. It is the 64-bit
FNV-1a hash of a sequence of items, each followed by a byte `ff`: from 0xcbf29ce484222325 on, for each byte in turn, the
number is combined with the byte by exclusive or, and then multiplied by 0x100000001b3, modulo 2⁶⁴.

The items are: the word for the operation's completion (`post`, `call`, `fence` or `wait`), then the items of its request,
then the items of its reply. Both are structures that have a field for each argument in the operation's table, in order: if
a cell of the column *reply* is empty, the field has the type nothing.

| type | items |
|---|---|
| nothing | `nothing` |
| scalar | its name: `u8`, `u16`, `u32`, `u64`, `i32`, `i64`, `f32` or `bool` |
| array of *n* bytes | `array`, *n* |
| byte string | `bytes` |
| text | `text` |
| optional *T* | `optional`, the items of *T* |
| list of *T* | `list`, the items of *T* |
| list of *T*, at most *n* | `list of`, *n*, the items of *T* |
| structure | `structure`, the number of its fields, then for each field its name and the items of its type |

Words and names are ASCII, without delimiters; a number is a `le64`. The name of a structure is no item, nor are an
operation's number, name and properties, and the meaning of fields.

";

/// An item of the sequence, as the annex has it, and its bytes.
enum Item {
    Word(&'static str),
    Number(u64),
}

use Item::{Number, Word};

fn write_example(page: &mut String) {
    let items = [
        (Word("call"), "the completion"),
        (Word("structure"), "the request"),
        (Number(2), "its fields"),
        (Word("dptr"), ""),
        (Word("bool"), ""),
        (Word("bytesize"), ""),
        (Word("u64"), ""),
        (Word("structure"), "the reply"),
        (Number(2), "its fields"),
        (Word("dptr"), ""),
        (Word("u64"), ""),
        (Word("bytesize"), ""),
        (Word("nothing"), ""),
    ];
    page.push_str("The sequence of `cuMemAlloc_v2`:\n\n| item | bytes | |\n|---|---|---|\n");
    let mut sequence = Vec::new();
    for (item, what) in items {
        let (shown, mut part) = match item {
            Word(word) => (format!("`{word}`"), word.as_bytes().to_vec()),
            Number(number) => (number.to_string(), number.to_le_bytes().to_vec()),
        };
        part.push(0xff);
        let _ = writeln!(page, "| {shown} | `{}` | {what} |", hex(&part));
        sequence.extend(bytes(&hex(&part)));
    }
    // The hash in its own few lines, not by the codec's.
    let layout = sequence
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    assert_eq!(layout, 0x4afdbe475f02efbd, "{layout:#x}");
    assert_eq!(layout, request::cuMemAlloc_v2::OPERATION.layout());
    let _ = write!(page, "\nIts layout number is {layout:#018x}.\n\n");
}

pub fn write(page: &mut String) {
    const { assert!(KNOWN_AT_ONCE * 16 + 24 <= MAX_ANSWER_BYTES) };
    assert!(known_from(0).is_sorted_by_key(|known| known.op));
    let own = request::gpgpuOperations::OP;
    assert!(first_table().all(|known| known.op != own));
    let later = ISSUED.iter().map(|issued| issued.table).max().unwrap();
    let _ = write!(
        page,
        "## A.7 Comparison of tables\n\n\
         Tables grow, and the two sides need not have the same one. `api_family` identifies tables of one family, whose operations are \
         compared one by one. It is a constant for all tables of this annex, **{FAMILY:#018x}**. An OPEN with another one is refused \
         (GPGPU-DEV-18).\n\n\
         A guest library requests the device's operations before any other: by `gpgpuOperations` with `first` 0, and then, as \
         long as an answer has {KNOWN_AT_ONCE} operations, with `first` one above the last number of the answer (GPGPU-DEV-66). The \
         chain has room for {MAX_ANSWER_BYTES} bytes of answer. An operation can be used if both sides have it with the same layout number. The \
         library ignores operations of the device that it does not know. If the device lacks an operation, or has it with another layout, \
         the library works without it, or fails the program's call with `CUDA_ERROR_NOT_SUPPORTED` \
         (GPGPU-DRV-33). Without a common `gpgpuHello`, `cuInit` fails with `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH`.\n\n\
         A device from before `gpgpuOperations` answers it with MALFORMED (GPGPU-DEV-67). It has the operations of table 1, with the layouts of this annex, and no \
         others. An issued number is never reused (GPGPU-DEV-68): a change becomes a new operation with a new number. A property that is \
         added to an operation describes its existing effect, and changes neither arguments nor results.\n\n\
         There are {later} tables. "
    );
    let gone: Vec<_> = ISSUED
        .iter()
        .filter(|issued| !all_operations().any(|of| of.op == issued.op))
        .collect();
    if gone.is_empty() {
        page.push_str("All issued numbers are in A.5 and A.8.\n\n");
    } else {
        page.push_str("These issued numbers are in no table any more:\n\n");
        page.push_str("| number | name | table | layout |\n|---|---|---|---|\n");
        for issued in gone {
            let (op, name, table) = (issued.op, issued.name, issued.table);
            let _ = writeln!(
                page,
                "| {op:#06x} | {name} | {table} | {:#018x} |",
                issued.layout
            );
        }
        page.push('\n');
    }
    page.push_str(LAYOUT);
    write_example(page);
}
