// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The macros that generate [`Function`](super::Function)s from a table's rows.

use super::{Kind, is_same};
use crate::codec::{Field, Shape, Structure};

/// The reply of every function: a status, and the results at host addresses.
pub(super) static REPLY: Shape = Shape::Structure(&Structure {
    name: "LibraryReply",
    doc: &["The result of a library's function."],
    fields: &[
        Field {
            name: "status",
            doc: &["The function's status."],
            shape: &Shape::Scalar("i32"),
        },
        Field {
            name: "results",
            doc: &[
                "The values that the host wrote for host addresses, in the order of the arguments.",
            ],
            shape: &Shape::List(&Shape::Bytes, Some(16)),
        },
    ],
});

/// Whether the results fit a reply slot of the ring. Functions whose results may be too long use the queue.
pub(super) const fn fits_slot(kinds: &[Kind]) -> bool {
    let mut at = 0;
    while at < kinds.len() {
        if matches!(kinds[at], Kind::Reply | Kind::Outs(..)) {
            return false;
        }
        at += 1;
    }
    true
}

pub(super) const fn index(names: &[&str], name: &str) -> u8 {
    let mut at = 0;
    while at < names.len() {
        if is_same(names[at], name) {
            return at as u8;
        }
        at += 1;
    }
    panic!("an argument's width is said by no argument of the function")
}

macro_rules! width {
    ($names:ident; computeType) => {
        Width::Compute {
            compute: index($names, "computeType"),
            of: index($names, "Ctype"),
        }
    };
    ($names:ident; $bytes:literal) => {
        Width::Bytes($bytes)
    };
    ($names:ident; $bytes:literal * $times:literal) => {
        Width::Bytes($bytes * $times)
    };
    ($names:ident; $of:ident) => {
        width!($names; $of * 1)
    };
    ($names:ident; $of:ident * $times:literal) => {
        Width::Data {
            of: index($names, stringify!($of)),
            times: $times,
        }
    };
}

macro_rules! kind {
    // cuBLAS's rows are older than the other classes, and the layout numbers of issued rows hash their words.
    ($names:ident; handle) => {
        Kind::Handle(Class::CublasHandle)
    };
    ($names:ident; new) => {
        Kind::New(Class::CublasHandle)
    };
    ($names:ident; gone) => {
        Kind::Gone(Class::CublasHandle)
    };
    ($names:ident; handle $class:ident) => {
        Kind::Handle(Class::$class)
    };
    ($names:ident; new $class:ident) => {
        Kind::New(Class::$class)
    };
    ($names:ident; gone $class:ident) => {
        Kind::Gone(Class::$class)
    };
    ($names:ident; object $class:ident) => {
        Kind::Object(Class::$class)
    };
    ($names:ident; stream) => {
        Kind::Stream
    };
    ($names:ident; i32) => {
        Kind::I32
    };
    ($names:ident; i64) => {
        Kind::I64
    };
    ($names:ident; f32) => {
        Kind::F32
    };
    ($names:ident; f64) => {
        Kind::F64
    };
    ($names:ident; device) => {
        Kind::Device
    };
    ($names:ident; scalar $($of:tt)*) => {
        Kind::Scalar(width!($names; $($of)*))
    };
    ($names:ident; result $($of:tt)*) => {
        Kind::Result(width!($names; $($of)*))
    };
    ($names:ident; in_out $($of:tt)*) => {
        Kind::InOut(width!($names; $($of)*))
    };
    ($names:ident; in $($of:tt)*) => {
        Kind::In(width!($names; $($of)*))
    };
    ($names:ident; inout $($of:tt)*) => {
        Kind::Update(width!($names; $($of)*))
    };
    ($names:ident; out $($of:tt)*) => {
        Kind::Out(width!($names; $($of)*))
    };
    ($names:ident; array $of:tt, $count:ident) => {
        Kind::Array(width!($names; $of), index($names, stringify!($count)))
    };
    ($names:ident; list $of:tt, $count:ident) => {
        Kind::List(width!($names; $of), index($names, stringify!($count)))
    };
    ($names:ident; outs $of:tt, $count:ident) => {
        Kind::Outs(width!($names; $of), index($names, stringify!($count)))
    };
    ($names:ident; scratch $bytes:ident) => {
        Kind::Scratch(index($names, stringify!($bytes)))
    };
    ($names:ident; blob) => {
        Kind::Blob
    };
    ($names:ident; reply) => {
        Kind::Reply
    };
    ($names:ident; scalars $of:tt, $count:ident) => {
        Kind::Scalars(width!($names; $of), index($names, stringify!($count)))
    };
}

macro_rules! completion {
    (post) => {
        Completion::Post
    };
    (call) => {
        Completion::Call
    };
    (wait) => {
        Completion::Wait
    };
}

macro_rules! property {
    (work) => {
        Property::Work
    };
    (pure) => {
        Property::Pure
    };
}

macro_rules! functions {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        &[$({
            #[allow(dead_code)]
            const NAMES: &[&str] = &[$(stringify!($arg)),*];
            &Function {
                operation: Operation {
                    op: $op,
                    completion: completion!($completion),
                    name: stringify!($name),
                    properties: Properties::of(&[$(property!($is)),*]),
                    rings: !matches!(completion!($completion), Completion::Wait)
                        && fits_slot(&[$(kind!(NAMES; $kind $($($of)*)?)),*]),
                    rings_wide: true,
                },
                kinds: &[$(kind!(NAMES; $kind $($($of)*)?)),*],
            }
        },)*]
    };
}

macro_rules! descriptions {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        &[$({
            #[allow(dead_code)]
            const NAMES: &[&str] = &[$(stringify!($arg)),*];
            &Description {
                style: stringify!($style),
                doc: &["The library's function of this name."],
                per_thread: &[],
                arguments: &[$(Argument {
                    name: stringify!($arg),
                    travels: stringify!($kind $($($of)*)?),
                }),*],
                request: &Shape::Structure(&Structure {
                    name: stringify!($name),
                    doc: &[],
                    // The kind is included, so that the layout number covers a value's width.
                    fields: &[$(Field {
                        name: concat!(stringify!($arg), " ", stringify!($kind) $(, $(" ", stringify!($of)),*)?),
                        doc: &[],
                        shape: kind!(NAMES; $kind $($($of)*)?).shape(),
                    }),*],
                }),
                reply: &REPLY,
            }
        },)*]
    };
}

/// Passes a table's rows to a macro.
macro_rules! table {
    ($with:ident, $to:ident) => {
        $crate::$with!($to)
    };
}

pub(super) use {completion, descriptions, functions, kind, property, table, width};
