// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A.8: the functions of libraries.

use std::fmt::Write as _;

use gpgpu_protocol::{
    api::issued::ISSUED,
    codec::Shape,
    cuda::*,
    libraries::{Class, Function, Kind, Library, MAX_ARRAY, MAX_SCRATCH, SUCCESS, Width},
};

pub fn write(page: &mut String) {
    let _ = write!(
        page,
        "## A.8 Functions of libraries\n\n\
         NVIDIA's libraries have tables of their own. Their numbers share the space of A.5, and A.7 applies to them too. A \
         request has the function's arguments in the order of its C declaration, each by its kind:\n\n\
         | kind | in the request |\n|---|---|\n\
         | `handle[C]` | `u64`, id of the handle of class C (A.3) in whose context and stream the call runs |\n\
         | `object[C]` | `u64`, id of an object of class C, or 0 for NULL |\n\
         | `new[C]` | `u64`, id of the new object, which the client chose; its kind is C's |\n\
         | `gone[C]` | `u64`, id of the object of class C that ends |\n\
         | `stream` | `u64`, id of a stream |\n\
         | `i32` | `i32`: an `int` or an enumeration |\n\
         | `i64` | `i64`: an `int64_t`, a `long long` or a `size_t` |\n\
         | `f32`, `f64` | `u32`, `u64`: the bits of a `float` or a `double` by value |\n\
         | `device` | `u64`, a device address, or 0 |\n\
         | `scalar[W]` | in the pointer mode of the host: `bool` 1, then a byte string of W bytes, the value. In the mode of the device: `bool` 0, then `u64`, its device address. In either mode `bool` 0 and `u64` 0 for NULL |\n\
         | `in_out[W]` | as `scalar`; with `bool` 1 the reply has the value afterwards |\n\
         | `result[W]` | `bool` 1 alone, and the reply has the value; or `bool` 0, then `u64`, as `scalar` |\n\
         | `out[W]` | `bool`, whether the caller wants the value, which the reply then has; whatever the pointer mode |\n\
         | `array[W, n]` | a byte string of n times W bytes: values at a host address, as many as argument n says, at most {MAX_ARRAY} |\n\
         | `scalars[W, n]` | as `scalar`, of n values |\n\
         | `in[W]` | `bool` 1, then a byte string of W bytes, a value at a host address; `bool` 0 for NULL |\n\
         | `inout[W]` | as `in`, and the reply has the value afterwards |\n\
         | `list[W, n]` | as `in`, of n values, at most {MAX_ARRAY} |\n\
         | `outs[W, n]` | as `out`, of n values, at most {MAX_ARRAY} |\n\
         | `scratch[n]` | `bool`, whether the caller has host memory as a workspace of the library, of as many bytes as argument n, at most {MAX_SCRATCH} |\n\
         | `blob` | a byte string, whose form is specified with the library |\n\
         | `reply` | `bool`, whether the caller wants a byte string, which the reply then has |\n\n\
         W is a number of bytes; or the name of an argument that is a `cudaDataType`, and then the bytes of a value of that type, times a \
         number if there is one; or `computeType`, and then the bytes of a scalar of that `cublasComputeType_t`, twice as many if the argument `Ctype` is a complex \
         type, unless the compute type is of integers.\n\n\
         The reply is `i32`, the function's status, and a list of byte strings: one for each argument whose kind gives the reply a value and whose value the \
         caller wants, in the order of the arguments. Beside a status other than 0, the values of arguments that the library has not written are empty. The reply \
         is present whatever the result in the answer's head, which replaces the status if there is no reply, and which a posted function has as the kept error \
         (GPGPU-DEV-36): {SUCCESS} for success; by the statuses of each library {CUDA_ERROR_OUT_OF_MEMORY} for *out of memory*, {CUDA_ERROR_INVALID_VALUE} for *invalid value*, \
         {CUDA_ERROR_INVALID_HANDLE} for *no such handle* and *not initialised*, {CUDA_ERROR_NOT_SUPPORTED} for *not supported*; and {CUDA_ERROR_UNKNOWN} for others.\n\n\
         A function that does not complete by `wait` may use the ring, unless it has an argument of the kind `outs` or `reply`. Every function may use a wide ring. \
         A byte string that is not as long as W and n say is malformed. `gpgpuLongCall` fails with `CUDA_ERROR_INVALID_VALUE` for a malformed call, and for an \
         operation that is in no table of this section.\n\n\
         A function with the property `work` runs in the context of its handle and on the handle's stream, whatever the header's context. \
         A function with a `new` argument returns the library's status for a missing initialization if the host does not have the library.\n\n\
         - **GPGPU-DEV-69** The device MUST NOT use a number of a request as an address of its own memory. Values at host addresses are the bytes of the request, as \
         many as the table specifies.\n\
         - **GPGPU-DEV-70** If scalars and results of a request do not have the form of the handle's pointer mode, the device MUST NOT call the library; the status is \
         the library's for an invalid value.\n\n\
         In the tables of cuBLAS `handle`, `new` and `gone` without a class mean CublasHandle.\n\n\
         For the layout number (A.7) the field of an argument has a name made of the argument's name, its kind, and each word and sign in the kind's brackets, with a space \
         before each: `alpha scalar 4`, `m_array array 4 , group_count`. Its type is `u64`, `u32`, `i32`, `i64` or `bool` by its kind; a byte string for `array` and `blob`; and for `scalar`, `in_out`, `result`, \
         `scalars`, `in`, `inout` and `list` a structure of `is_here`, a `bool`, and `value`, a byte string. The reply is a structure of `status`, an `i32`, and `results`, a list of at most 16 byte strings.\n",
    );
    for library in Library::ALL {
        let _ = write!(
            page,
            "\n### lib{}\n\nStatuses: {}.\n\n{}{}\
             | number | function | completes | table | layout | arguments |\n|---|---|---|---|---|---|\n",
            library.name(),
            statuses(library),
            modes(library),
            super::forms::of(library),
        );
        for function in library.functions() {
            write_function(page, function);
        }
    }
    page.push('\n');
}

/// The statuses that a device gives by itself.
fn statuses(library: Library) -> String {
    let of = library.statuses();
    let all = [
        ("no such handle", of.bad_handle),
        ("not initialised", of.not_initialized),
        ("out of memory", of.alloc_failed),
        ("invalid value", of.invalid_value),
        ("execution failed", of.execution_failed),
        ("not supported", of.not_supported),
    ];
    all.map(|(text, status)| format!("{status} {text}"))
        .join(", ")
}

fn modes(library: Library) -> String {
    let mut text = String::new();
    for class in Class::ALL {
        let names = || library.functions().iter().map(|of| of.operation.name);
        let is_own = |name: &&str| names().any(|of| of == *name);
        if let Some(name) = class.sets_pointer_mode().filter(is_own) {
            let class = class.name();
            let _ = write!(
                text,
                "Pointer mode of {class}: `{name}`, 0 for the host, which is the mode of a new handle, and 1 for the device.\n\n"
            );
        }
    }
    text
}

fn write_function(page: &mut String, function: &Function) {
    let of = &function.operation;
    let issued = ISSUED.iter().find(|issued| issued.op == of.op).unwrap();
    let names: Vec<_> = of
        .description()
        .arguments
        .iter()
        .map(|argument| argument.name)
        .collect();
    let kinds = printed_kinds(function, &names);
    let arguments: Vec<_> = names
        .iter()
        .zip(&kinds)
        .map(|(name, kind)| format!("{name}: {kind}"))
        .collect();
    let properties: String = of
        .properties
        .iter()
        .map(|is| format!(" {}", is.word()))
        .collect();
    let _ = writeln!(
        page,
        "| {:#06x} | `{}` | {}{properties} | {} | {:#018x} | {} |",
        of.op,
        of.name,
        of.completion.word(),
        issued.table,
        of.layout(),
        arguments.join(", ")
    );
}

/// The kinds of a function's arguments as the table has them, where layout numbers depend on it.
fn printed_kinds(function: &Function, names: &[&str]) -> Vec<String> {
    let arguments = function.operation.description().arguments;
    let kinds = function.kinds.iter().zip(arguments);
    kinds
        .map(|(kind, argument)| {
            let printed = kind_name(*kind, names);
            // A product, such as 4 * 5.
            match argument.travels.split_once(' ') {
                Some((kind, product)) if product.contains('*') => format!("{kind}[{product}]"),
                _ => printed,
            }
        })
        .collect()
}

/// The layout numbers depend on the names that this rule gives, so a reader has to be able to apply it.
#[test]
fn the_names_of_fields_follow_from_the_printed_arguments() {
    for function in Library::ALL.into_iter().flat_map(Library::functions) {
        let description = function.operation.description();
        let names: Vec<_> = description.arguments.iter().map(|of| of.name).collect();
        let Shape::Structure(request) = description.request else {
            assert!(names.is_empty(), "{}", function.operation.name);
            continue;
        };
        for ((field, name), kind) in request
            .fields
            .iter()
            .zip(&names)
            .zip(printed_kinds(function, &names))
        {
            let spaced = kind.replace('[', " ").replace(']', "").replace(',', " ,");
            let spaced: Vec<_> = spaced.split_whitespace().collect();
            let expected = format!("{name} {}", spaced.join(" "));
            assert_eq!(field.name, expected, "{}", function.operation.name);
        }
    }
}

fn kind_name(kind: Kind, names: &[&str]) -> String {
    let name = |at: u8| names[usize::from(at)];
    let width = |width: Width| match width {
        Width::Bytes(bytes) => bytes.to_string(),
        Width::Data { of, times: 1 } => name(of).to_owned(),
        Width::Data { of, times } => format!("{} * {times}", name(of)),
        Width::Compute { compute, .. } => name(compute).to_owned(),
    };
    match kind {
        Kind::Handle(Class::CublasHandle) => "handle".into(),
        Kind::New(Class::CublasHandle) => "new".into(),
        Kind::Gone(Class::CublasHandle) => "gone".into(),
        Kind::Handle(of) => format!("handle[{}]", of.name()),
        Kind::New(of) => format!("new[{}]", of.name()),
        Kind::Gone(of) => format!("gone[{}]", of.name()),
        Kind::Object(of) => format!("object[{}]", of.name()),
        Kind::Stream => "stream".into(),
        Kind::I32 => "i32".into(),
        Kind::I64 => "i64".into(),
        Kind::F32 => "f32".into(),
        Kind::F64 => "f64".into(),
        Kind::Device => "device".into(),
        Kind::Scalar(of) => format!("scalar[{}]", width(of)),
        Kind::Result(of) => format!("result[{}]", width(of)),
        Kind::InOut(of) => format!("in_out[{}]", width(of)),
        Kind::Out(of) => format!("out[{}]", width(of)),
        Kind::Array(of, count) => format!("array[{}, {}]", width(of), name(count)),
        Kind::Scalars(of, count) => format!("scalars[{}, {}]", width(of), name(count)),
        Kind::In(of) => format!("in[{}]", width(of)),
        Kind::Update(of) => format!("inout[{}]", width(of)),
        Kind::List(of, count) => format!("list[{}, {}]", width(of), name(count)),
        Kind::Outs(of, count) => format!("outs[{}, {}]", width(of), name(count)),
        Kind::Scratch(bytes) => format!("scratch[{}]", name(bytes)),
        Kind::Blob => "blob".into(),
        Kind::Reply => "reply".into(),
    }
}
