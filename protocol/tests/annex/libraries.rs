//! A.8: the functions of libraries.

use std::fmt::Write as _;

use gpgpu_protocol::{
    api::issued::ISSUED,
    libraries::{Function, Kind, Library, MAX_ARRAY, Width, status},
};

pub fn write(page: &mut String) {
    let _ = write!(
        page,
        "## A.8 Functions of libraries\n\n\
         NVIDIA's libraries have tables of their own. Their numbers are of the same space as those of A.5, and A.7 holds for them too. A \
         request has the function's arguments in the order of its C declaration, each by its kind:\n\n\
         | kind | in the request |\n|---|---|\n\
         | `handle`, `gone` | `u64`, id of a handle; `gone`: the handle ends |\n\
         | `new` | `u64`, id of the new handle, which the client chose; its kind is the library's |\n\
         | `stream` | `u64`, id of a stream |\n\
         | `i32` | `i32`: an `int` or an enumeration |\n\
         | `i64` | `i64`: an `int64_t`, a `long long` or a `size_t` |\n\
         | `device` | `u64`, a device address, or 0 |\n\
         | `scalar[W]` | in the pointer mode of the host: `bool` 1, then a byte string of W bytes, the value. In the mode of the device: `bool` 0, then `u64`, its device address. In either mode `bool` 0 and `u64` 0 for NULL |\n\
         | `in_out[W]` | as `scalar`; with `bool` 1 the reply has the value afterwards |\n\
         | `result[W]` | `bool` 1 alone, and the reply has the value; or `bool` 0, then `u64`, as `scalar` |\n\
         | `out[W]` | `bool`, whether the caller wants the value, which the reply then has; whatever the pointer mode |\n\
         | `array[W, n]` | a byte string of n times W bytes: values at a host address, as many as argument n says, at most {MAX_ARRAY} |\n\
         | `scalars[W, n]` | as `scalar`, of n values |\n\n\
         W is a number of bytes; or the name of an argument that is a `cudaDataType`, and then the bytes of a value of that type, times a \
         number if there is one; or `computeType`, and then the bytes of a scalar of that `cublasComputeType_t`, twice as many if the argument `Ctype` is a complex \
         type, unless the compute type is of integers.\n\n\
         The reply is `i32`, the function's status, and a list of byte strings: the values that it has, in the order of the arguments. It \
         is there whatever the result in the answer's head, which stands for the status where nobody reads a reply: 0 for success, and for a posted function \
         the error that is kept (GPGPU-DEV-36).\n\n\
         A function with the property `work` runs in the context of its handle and on the handle's stream; what the header says does not \
         count. A library that the host does not have makes `NOT_INITIALIZED` ({}) of the function with a `new` argument.\n\n\
         - **GPGPU-DEV-69** The device MUST NOT take a number of a request for an address of its own memory. Values at host addresses are the bytes of the request, as \
         many as the table says.\n\
         - **GPGPU-DEV-70** Where scalars and results of a request do not have the form of the handle's pointer mode, the library MUST NOT be called; the status is \
         `INVALID_VALUE` ({}).\n\n\
         For the layout number (A.7) the field of an argument has a name made of the argument's name, its kind, and each word and sign in the kind's brackets, with a space \
         before each: `alpha scalar 4`, `m_array array 4 , group_count`. Its type is `u64`, `i32`, `i64` or `bool` by its kind; a byte string for `array`; and for `scalar`, `in_out`, `result` \
         and `scalars` a structure of `is_here`, a `bool`, and `value`, a byte string. The reply is a structure of `status`, an `i32`, and `results`, a list of at most 16 byte strings.\n",
        status::NOT_INITIALIZED,
        status::INVALID_VALUE
    );
    for library in Library::ALL {
        let _ = write!(
            page,
            "\n### lib{}\n\nHandles have kind {:#04x}. Pointer mode: `{}`, 0 for the host, which is the mode of a new handle, and 1 for the device.\n\n\
             | number | function | completes | table | layout | arguments |\n|---|---|---|---|---|---|\n",
            library.name(),
            library.handle_kind(),
            library.sets_pointer_mode()
        );
        for function in library.functions() {
            write_function(page, function);
        }
    }
    page.push('\n');
}

fn write_function(page: &mut String, function: &Function) {
    let of = &function.operation;
    let issued = ISSUED.iter().find(|issued| issued.op == of.op).unwrap();
    let names: Vec<_> = of.arguments.iter().map(|argument| argument.name).collect();
    let arguments: Vec<_> = function
        .kinds
        .iter()
        .zip(&names)
        .map(|(kind, name)| format!("{name}: {}", kind_name(*kind, &names)))
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

fn kind_name(kind: Kind, names: &[&str]) -> String {
    let name = |at: u8| names[usize::from(at)];
    let width = |width: Width| match width {
        Width::Bytes(bytes) => bytes.to_string(),
        Width::Data { of, times: 1 } => name(of).to_owned(),
        Width::Data { of, times } => format!("{} * {times}", name(of)),
        Width::Compute { compute, .. } => name(compute).to_owned(),
    };
    match kind {
        Kind::Handle => "handle".into(),
        Kind::New => "new".into(),
        Kind::Gone => "gone".into(),
        Kind::Stream => "stream".into(),
        Kind::I32 => "i32".into(),
        Kind::I64 => "i64".into(),
        Kind::Device => "device".into(),
        Kind::Scalar(of) => format!("scalar[{}]", width(of)),
        Kind::Result(of) => format!("result[{}]", width(of)),
        Kind::InOut(of) => format!("in_out[{}]", width(of)),
        Kind::Out(of) => format!("out[{}]", width(of)),
        Kind::Array(of, count) => format!("array[{}, {}]", width(of), name(count)),
        Kind::Scalars(of, count) => format!("scalars[{}, {}]", width(of), name(count)),
    }
}
