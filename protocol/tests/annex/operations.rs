// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects, the rules for all operations, each operation, and structures.

use std::{collections::BTreeMap, fmt::Write};

use gpgpu_protocol::{
    api::{
        Argument, Context, Event, KINDS, Kernel, LAUNCH_ATTRIBUTES, MemPool, OPERATIONS, Operation,
        Property, Sensor, default_pool, device_of_default_pool, issued::ISSUED, object_id,
        object_kind,
    },
    codec::{Field, Shape, Structure},
    libraries::Class,
    ring::SLOT_ANSWER_BYTES,
};

use super::text;

const OBJECTS: &str = "\
## A.3 Objects

An object that lives on the host has an id, a `u64`:

| bits | |
|---|---|
| 0 to 7 | the number of its kind |
| 8 to 55 | a serial number |
| 56 to 63 | 0, except in the ids of devices' own memory pools |

The client chooses the id of each object that it makes. The command that makes the object contains the id, so the client
need not wait for an answer before it uses the object. An id is never reused (GPGPU-DRV-20). The reference library takes
serial numbers from one counter for all kinds, from 1 on. To make an object with an id of another kind, of 2⁵⁶ or more, or
of an existing object fails with `CUDA_ERROR_INVALID_VALUE`; beyond the limit of objects, it fails with
`CUDA_ERROR_OUT_OF_MEMORY`. Use of an id of no object, or of an object of another kind, fails with
`CUDA_ERROR_INVALID_CONTEXT` for a context, and with `CUDA_ERROR_INVALID_HANDLE` otherwise.

Special ids are no objects, and have the same meaning for each client: 0 is CUDA's NULL.

";

const OBJECTS_AFTER: &str = "
An object ends when it is destroyed or unloaded, or with its owner: objects made in a context end with the context,
functions with their module, kernels and modules with their library. If a command fails to end an object, the object
stays.

Other numbers do not have this form. Devices have the numbers of `gpgpuHello`. The client chooses the numbers of images
(`gpgpuImageWrite`) and host callbacks (`cuLaunchHostFunc`), unique among those that exist at a time. Device addresses are
those of the host's driver. Only `cuMemHostRegister_v2`, `cuMemHostUnregister` and `gpgpuRingSetup` take an address of the
process. In other operations, pinned memory has the address in the reply of `cuMemHostRegister_v2`.

Default streams of threads are not encoded: for `CU_STREAM_PER_THREAD`, and for NULL in a function with per-thread default
streams, the client makes a stream for the thread and the context.

### The context of a command

The header of each command names the calling thread's current context, or 0. Only the client knows the current context:
`cuCtxSetCurrent` and similar functions are local. Streams, events, modules and device memory are made in that context;
memory in a stream's order is made in the stream's context.

An id of no context fails with `CUDA_ERROR_CONTEXT_IS_DESTROYED`. Operations with the property `client` or `device` need no
context, and do not fail if the context is gone.

An operation with the property `work` or `order` runs in the context of its stream. If it has no stream, or one with a
special id, it runs in the context of its function. If it has no function either, or a kernel, it runs in the header's
context. If the header names none and there is no stream, it runs in the destination's context (`dstContext`). Without any
context it fails with `CUDA_ERROR_INVALID_CONTEXT`.

`thread`, in the header of a chain or of a record, is a number that the client chooses for the calling thread. It
distinguishes threads for the requirements on order, and has no other meaning.

";

pub fn write_objects(page: &mut String) {
    page.push_str(OBJECTS);
    page.push_str("| kind | number | special ids | |\n|---|---|---|---|\n");
    for kind in KINDS {
        let special: Vec<_> = kind.special.iter().map(u64::to_string).collect();
        let special = match special.len() {
            0 => String::from("none"),
            _ => special.join(", "),
        };
        let (name, number, doc) = (kind.name, kind.number, text(kind.doc));
        let _ = writeln!(page, "| {name} | {number:#04x} | {special} | {doc} |");
    }
    for class in Class::ALL {
        let (name, number, doc) = (class.name(), class.number(), text(class.doc()));
        let _ = writeln!(page, "| {name} | {number:#04x} | none | {doc} |");
    }
    page.push_str("\n| object | id |\n|---|---|\n");
    let id = |page: &mut String, what: &str, id: u64, shown: &str, kind: u8| {
        assert_eq!(format!("{id:#x}"), shown, "{what}");
        assert_eq!(object_kind(id), kind);
        let _ = writeln!(page, "| {what} | `{shown}` |");
    };
    let number = |name: &str| {
        let kind = KINDS.iter().find(|kind| kind.name == name);
        kind.unwrap().number
    };
    let context = object_id::<Context>(2);
    id(
        page,
        "the context with serial number 2",
        context,
        "0x210",
        number("Context"),
    );
    let event = object_id::<Event>(0x1234);
    id(
        page,
        "the event with serial number 0x1234",
        event,
        "0x123470",
        number("Event"),
    );
    let kernel = object_id::<Kernel>(3);
    id(
        page,
        "the kernel with serial number 3",
        kernel,
        "0x350",
        number("Kernel"),
    );
    for (device, shown) in [(0, "0x100000000000080"), (1, "0x100000000000180")] {
        let pool = default_pool(device);
        assert_eq!(device_of_default_pool(pool), Some(device));
        let what =
            format!("the own memory pool of device {device}: its serial number is 2⁴⁸ + {device}");
        id(page, &what, pool, shown, number("MemPool"));
    }
    assert_eq!(object_id::<MemPool>(1 << 48), default_pool(0));
    page.push_str(OBJECTS_AFTER);
}

const RULES: &str = "\
## A.4 Requests, results and errors

The arguments of a command are one value: a structure of the fields in the column *request* of the operation's table, in
order. The results are a structure of the fields in the column *reply*. They follow the answer's `result` and `flags`.

A `bool` in the request whose field has a value in the reply says whether the caller wants that value. The reply has the
value in any case; an unwanted one is undefined. An operation that is a function of CUDA passes NULL for an unwanted value,
and fails as CUDA does. A client sets the `bool` if the program gave an address for the result, and in all operations that
are not CUDA's.

The answer to a failed command is its `result` alone, unless the operation's text says otherwise, and `out` is then
undefined.

An error without an answer is kept (GPGPU-DEV-36): the error of a command that is not the last of its stream, and of the
last one if its chain has `answer_bytes` of 0 or its record has no slot. Later commands of the stream are still executed.
Only the first such error is kept, whichever thread made the command. The next successful operation with the property
`observes` has the kept error as its result, without further results, although it was executed. Any operation may be sent
with or without a request for an answer: a client that is not sure that a `post` will succeed requests one.

A record's answer that names fences comes before its command is over, and reports no kept error. So if an error is kept,
the device answers a `fence` with 0xffffffff instead of the number of fences: the client sends the command again, by the
command queue, and gets the error there. The device may have begun the command the first time. An operation with the
property `block` is not executed twice: with fences, it succeeds, and the next operation that observes errors reports it.

### Data beside the stream

`in` and `out` belong to the chain. An operation without the property `input` does not read `in`, and one without `output`
does not write `out`. With `transfer`, the data may be longer than that of one chain (GPGPU-DEV-51, GPGPU-DRV-25);
otherwise, `data_offset` is 0. GPGPU-DRV-34 specifies the position of such a command in its stream.

### Properties

An operation of A.5 may use the ring if it is no `wait`, has none of the properties `client`, `input` and `output`, and its
reply has no unbounded byte string, text or list. A wide ring (`gpgpuRingWide`) also takes a `wait`, and an operation with
an unbounded reply. A.8 has the rule for functions of libraries. A bounded reply takes at most";

pub fn write_rules(page: &mut String) {
    page.push_str(RULES);
    let _ = writeln!(page, " {SLOT_ANSWER_BYTES} bytes with its head.\n");
    for of in OPERATIONS {
        let takes_data = of.is(Property::Input) || of.is(Property::Output);
        assert!(!(of.rings && takes_data), "{}", of.name);
        assert!(takes_data || !of.is(Property::Transfer), "{}", of.name);
        if of.rings {
            let bytes = 8 + most_bytes(of.description().reply).unwrap();
            assert!(bytes <= SLOT_ANSWER_BYTES, "{}: {bytes}", of.name);
        }
    }
    page.push_str("| property | |\n|---|---|\n");
    for property in Property::ALL {
        let doc = text(property.doc());
        let _ = writeln!(page, "| `{}` | {doc} |", property.word());
    }
    page.push_str("\nThe kinds of completion are those of virtio-gpgpu.md.\n\n");
}

/// The groups of operations, by the upper byte of their numbers.
const GROUPS: &[(u16, &str)] = &[
    (0x00, "The client and its ring"),
    (0x01, "Devices"),
    (0x02, "Contexts"),
    (0x03, "Memory"),
    (0x04, "Copies"),
    (0x05, "Fills"),
    (0x06, "Modules"),
    (0x07, "Libraries and kernels"),
    (0x08, "Functions"),
    (0x09, "Launches and host callbacks"),
    (0x0a, "Streams"),
    (0x0b, "Events"),
    (0x0d, "Usage of devices"),
    (0x0e, "Graphs"),
    (0x0f, "Arrays, textures and surfaces"),
    (0x0c, "Output of kernels"),
];

pub fn write_operations(page: &mut String) {
    let _ = write!(
        page,
        "## A.5 Operations\n\n\
         There are {} operations. Each has here: its kind of completion; whether it may use the ring; its properties; the first table that \
         has it and its layout number (A.7); its effect; and its arguments, in order. An operation with the name of a function of CUDA \
         has the effect of that function, except as specified here.\n",
        OPERATIONS.len(),
    );
    let mut written = 0;
    for (upper, title) in GROUPS {
        let _ = write!(page, "\n### {title}\n");
        let mut group: Vec<_> = OPERATIONS
            .iter()
            .filter(|of| of.op >> 8 == *upper)
            .collect();
        group.sort_unstable_by_key(|of| of.op);
        for of in group {
            write_operation(page, of);
            written += 1;
        }
    }
    assert_eq!(written, OPERATIONS.len(), "an operation is in no group");
    page.push('\n');
}

fn write_operation(page: &mut String, of: &Operation) {
    let name = of.name;
    let description = of.description();
    let doc = text(description.doc);
    assert!(!doc.is_empty(), "{name} has no documentation in the table");
    assert!(doc.ends_with('.'), "{name}: {doc}");
    let table = ISSUED
        .iter()
        .find(|issued| issued.op == of.op)
        .unwrap()
        .table;
    assert!(of.rings_wide || !of.rings, "{name}");
    let ring = if of.rings {
        "by the ring or the command queue"
    } else if of.rings_wide {
        "by a wide ring or the command queue"
    } else {
        "by the command queue alone"
    };
    let mut facts = format!("`{}`, {ring}", of.completion.word());
    let words: Vec<_> = of
        .properties
        .iter()
        .map(|is| format!("`{}`", is.word()))
        .collect();
    if !words.is_empty() {
        let _ = write!(facts, "; {}", words.join(" "));
    }
    let _ = write!(
        page,
        "\n#### {:#06x} {name}\n\n{facts}; table {table}, layout {:#018x}.\n\n{doc}\n\n",
        of.op,
        of.layout()
    );
    let (request, reply) = (fields(description.request), fields(description.reply));
    assert_eq!(request.len(), description.arguments.len());
    if request.is_empty() {
        page.push_str("No arguments and no results.\n");
        return;
    }
    page.push_str("| argument | request | reply |\n|---|---|---|\n");
    for ((argument, request), reply) in description.arguments.iter().zip(request).zip(reply) {
        assert_eq!((argument.name, argument.name), (request.name, reply.name));
        let request = in_request(argument, request.shape);
        let reply = match reply.shape {
            Shape::Nothing => String::new(),
            shape => type_of(shape),
        };
        let _ = writeln!(page, "| `{}` | {request} | {reply} |", argument.name);
    }
}

fn fields(shape: &'static Shape) -> &'static [Field] {
    match shape {
        Shape::Structure(structure) => structure.fields,
        other => panic!("{other:?} is no structure"),
    }
}

/// An argument's part of the request, by its kind in the table.
fn in_request(argument: &Argument, shape: &Shape) -> String {
    let travels: String = argument.travels.split_whitespace().collect();
    let (outer, inner) = match travels.split_once('<') {
        Some((outer, inner)) => (outer, inner.strip_suffix('>').unwrap()),
        None => (&*travels, ""),
    };
    let kind = |name: &str| {
        let kind = KINDS.iter().find(|kind| kind.name == name);
        kind.map(|kind| kind.name)
    };
    let shown = type_of(shape);
    match (outer, kind(inner), kind(outer)) {
        ("New", Some(kind), _) => format!("{shown}, id of the new {kind}"),
        ("Gone", Some(kind), _) => format!("{shown}, id of the {kind} that ends"),
        (_, _, Some(kind)) => format!("{shown}, id of a {kind}"),
        ("Out", ..) => format!("{shown}, whether it is wanted"),
        _ => shown,
    }
}

fn type_of(shape: &Shape) -> String {
    match shape {
        Shape::Nothing => String::from("nothing"),
        Shape::Scalar(name) => format!("`{name}`"),
        Shape::Array(length) => format!("array of {length} bytes"),
        Shape::Bytes => String::from("byte string"),
        Shape::Text => String::from("text"),
        Shape::Optional(of) => format!("optional {}", type_of(of)),
        Shape::List(of, None) => format!("list of {}", type_of(of)),
        Shape::List(of, Some(most)) => format!("list of {}, at most {most}", type_of(of)),
        Shape::Structure(of) => format!("[`{}`](#{})", of.name, of.name.to_lowercase()),
    }
}

/// The most bytes of a value, if there is a limit.
fn most_bytes(shape: &Shape) -> Option<usize> {
    Some(match shape {
        Shape::Nothing => 0,
        Shape::Scalar(_) => 8,
        Shape::Array(length) => 8 + length.next_multiple_of(8),
        Shape::Bytes | Shape::Text | Shape::List(_, None) => return None,
        Shape::Optional(of) => 8 + most_bytes(of)?,
        Shape::List(of, Some(most)) => 8 + most * most_bytes(of)?,
        Shape::Structure(of) => {
            let fields = of.fields.iter().map(|field| most_bytes(field.shape));
            fields.sum::<Option<usize>>()?
        }
    })
}

/// The structures that a value holds, by name.
fn collect(shape: &Shape, found: &mut BTreeMap<&'static str, &'static Structure>) {
    match shape {
        Shape::Optional(of) | Shape::List(of, _) => collect(of, found),
        Shape::Structure(of) => {
            found.insert(of.name, of);
            of.fields
                .iter()
                .for_each(|field| collect(field.shape, found));
        }
        _ => {}
    }
}

pub fn write_structures(page: &mut String) {
    let mut found = BTreeMap::new();
    for of in OPERATIONS {
        let of = of.description();
        for field in fields(of.request).iter().chain(fields(of.reply)) {
            collect(field.shape, &mut found);
        }
    }
    page.push_str("## A.6 Structures\n");
    for (name, of) in found {
        let doc = text(of.doc);
        assert!(!doc.is_empty(), "{name} has no documentation");
        let _ = write!(
            page,
            "\n### {name}\n\n{doc}\n\n| field | type | |\n|---|---|---|\n"
        );
        for field in of.fields {
            let (of, doc) = (type_of(field.shape), text(field.doc));
            assert!(
                !doc.is_empty(),
                "{name}: {} has no documentation",
                field.name
            );
            let _ = writeln!(page, "| `{}` | {of} | {doc} |", field.name);
        }
        if name == "SensorValue" {
            write_sensors(page);
        }
        if name == "LaunchAttribute" {
            let ids: Vec<_> = LAUNCH_ATTRIBUTES.iter().map(u32::to_string).collect();
            let _ = write!(
                page,
                "\nThese ids travel: {}. The device refuses any other with `CUDA_ERROR_NOT_SUPPORTED`.\n",
                ids.join(", ")
            );
        }
    }
    page.push('\n');
}

fn write_sensors(page: &mut String) {
    page.push_str("\nA client ignores a number that it does not know.\n\n| number | unit | sensor |\n|---|---|---|\n");
    for sensor in Sensor::ALL {
        let (number, unit, doc) = (sensor.number(), sensor.unit(), text(sensor.doc()));
        assert!(!doc.is_empty(), "{sensor:?} has no documentation");
        let _ = writeln!(page, "| {number} | {unit} | {doc} |");
    }
}
