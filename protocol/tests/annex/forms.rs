// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The content of the byte strings of A.8 that a function's row calls `blob` and `reply`.

use std::fmt::Write as _;

use gpgpu_protocol::libraries::{
    Library,
    cublaslt::{
        attributes::{Class, Holds},
        form::{ALGORITHM, MAX_RESULTS, MAX_SETTING, RESULT, SCALAR},
    },
    cudnn::{
        MOST_SEQUENCES,
        backend::{MOST_OPERANDS, VALUE_BYTES},
    },
    curand::{DIMENSIONS, PIECE as PIECE_OF_TABLE},
    cusparselt::{attributes as sparse, form::DENSE},
    nvjpeg::{COMPONENTS, DEVICE_BACKENDS, MOST_IMAGES, MOST_KEPT, MOST_PADDING, PIECE},
};

/// The forms of a library's byte strings; empty if none of its functions has one.
pub fn of(library: Library) -> String {
    match library {
        Library::CublasLt => cublaslt(),
        Library::Cudnn => cudnn(),
        Library::CusparseLt => cusparselt(),
        Library::Curand => curand(),
        Library::Nvjpeg => nvjpeg(),
        _ => String::new(),
    }
}

fn cublaslt() -> String {
    let mut text = format!(
        "A *descriptor* in a byte string is `u64`, the number of its attributes that differ from their defaults, and for each of these `u16`, its number, and `u64`, its value; \
         numbers ascend. The attributes of a class are those of the table below and no others, and a value has no more bits than its attribute. An *algorithm* is {ALGORITHM} bytes, eight words, \
         which only the library understands. An *optional* part is `bool`, and the part if that is 1.\n\n\
         The *descriptors of a product* are: the operation's; optionally that of its emulation, which stands for the attribute that holds its address; and the layouts of A, B, C and D.\n\n\
         A *scalar* is `bool` 1, `bool`, whether all of its bytes are 0, and {SCALAR} bytes, two words: its value, and zeros behind it; or `bool` 0 and `u64`, its device address. \
         Which of the two, the operation's pointer mode says (`cublasLtPointerMode_t`); in the mode `ALPHA_DEVICE_VECTOR_BETA_ZERO` beta is a value of zeros. NULL is an address of 0 in any mode.\n\n\
         | byte string | form |\n|---|---|\n\
         | `description` | the descriptors of the product; optionally an algorithm |\n\
         | `operands` | alpha and beta; the device addresses of A, B, C and D, `u64` each; `u64`, the workspace's device address; `u64`, its bytes. Scalars are where the plan's pointer mode says |\n\
         | `product` | a `description`, then `operands` |\n\
         | `transformation` | the transformation's descriptor; the layouts of A, B and C, each optional; alpha and beta; the device addresses of A, B and C |\n\
         | `question` of a heuristic | the descriptors of the product; optionally a preference; `u64`, how many results are wanted, 1 to {MAX_RESULTS}; `u64`, how many algorithms are given, at most as many; these algorithms |\n\
         | `question` of a check | the descriptors of the product; an algorithm |\n\
         | `results` | {RESULT} bytes for each result: a `cublasLtMatmulHeuristicResult_t` |\n\
         | `value` | the bytes of the capability or of the setting, at most {MAX_SETTING} |\n\n\
         `gpgpuLtPlan` has the device keep the descriptors and the algorithm of a product as a plan; `gpgpuLtPlanMatmul` computes the product of a plan as `cublasLtMatmul` does; `gpgpuLtPlanForget` ends a plan. \
         They are no functions of NVIDIA's library. A plan is in no context, and any handle takes it.\n\n\
         | class | attribute | bytes | default | holds |\n|---|--:|--:|--:|---|\n"
    );
    for class in Class::ALL {
        for of in class.attributes() {
            let _ = writeln!(
                text,
                "| {class:?} | {} | {} | {:#x} | {} |",
                of.number,
                of.bytes,
                of.default,
                match of.holds {
                    Holds::Value => "a number",
                    Holds::Device => "a device address",
                    Holds::Emulation => "a descriptor; does not travel",
                }
            );
        }
    }
    text.push('\n');
    text
}

fn cudnn() -> String {
    format!(
        "| byte string | form |\n|---|---|\n\
         | `value` of a version | `u64`, the number that the function returns |\n\
         | `seqLengthArray` | the lengths, `batchSize` times four bytes, little-endian; at most {MOST_SEQUENCES} |\n\
         | `sequences` | numbers of four bytes, little-endian and signed: how many sequences there are, at most {MOST_SEQUENCES}; how many labels each has; the length of each; all labels |\n\
         | `found` | the device addresses of the weight and of the bias, `u64` each, 0 for none; then for the weight's and for the bias's descriptor 18 numbers of four bytes: the type, how many dimensions, eight sizes, eight strides; zeros where there is no address |\n\
         | `elements` of an attribute that is set | the elements as wide as their type; handles and descriptors are ids of eight bytes |\n\
         | `descriptors` | for an attribute of descriptors the ids of those that become like the attribute's, as many as are asked for; else nothing |\n\
         | `elements` of an attribute that is asked for | the elements that there are, at most as many as are asked for |\n\
         | `values` | for a plan, the tensors that it has by value: the tensor's number, `i64`, and how many bytes its value has, `u64`, at most {VALUE_BYTES}; numbers ascend. For other descriptors nothing |\n\
         | `variantPack` | an optional `u64`, the workspace's device address; then for each tensor, at most {MOST_OPERANDS}, `i64`, its number, and either `bool` 0 and `u64`, its device address, or `bool` 1 and a byte string of {VALUE_BYTES} bytes, its value with zeros behind it |\n\n\
         The argument `isPosted` says that nobody reads the reply: what the library says of such an attribute, the descriptor's finalisation answers. Variant packs are the guest's alone, and no object. \
         A tensor is at a device address unless it is in the plan's `values`; of these an execution brings the value.\n\n"
    )
}

fn curand() -> String {
    format!(
        "| byte string | form |\n|---|---|\n\
         | `piece` | bytes of the library's table from place `from` on, at most {PIECE_OF_TABLE} of them; `from` is a number of bytes |\n\n\
         A table of direction vectors has {DIMENSIONS} dimensions, each of 32 vectors of four bytes or of 64 vectors of eight; one of scramble constants has a number of four or of eight bytes for each dimension. \
         With a `from` beyond the table's end the status is the library's for an invalid value.\n\n"
    )
}

fn cusparselt() -> String {
    let mut text = format!(
        "*Attributes* in a byte string are `u64`, how many were set, and for each of these `u64`, its number, and `u64`, its value; numbers ascend. The attributes of a class are those of the table \
         below and no others. A value has no more bits than its attribute, one that is a flag is 0 or 1, and one that the library tells is never set.\n\n\
         A *scalar* is `bool` 1 and `u32`, the bits of a single-precision number; or `bool` 0 and `u64`, its device address. It is the latter if the product's attribute {} (alpha), or {} (beta), is 1. NULL is an address of 0 in \
         any case.\n\n\
         | byte string | form |\n|---|---|\n\
         | `matrix` | `i64` rows, `i64` columns, `i64` leading dimension, `u32` alignment, `i32` type, `i32` order, `u32` sparsity, which is {DENSE:#x} for a dense matrix; its attributes |\n\
         | `product` | the matrices A, B, C and D; `i32` the operation on A, `i32` that on B, `i32` the compute type; its attributes |\n\
         | `selection` | the product; the attributes of the algorithm |\n\
         | `scalars` | alpha and beta |\n\
         | `found` | for each attribute of the algorithm that the search has found `u64`, its number, and `u64`, its value |\n\n\
         A plan is used with the handle that made it. A call with a descriptor asks whether the library accepts what it says, and leaves nothing behind. The `value` of an attribute is eight bytes, of which the first are its own.\n\n\
         | class | attribute | bytes | holds |\n|---|--:|--:|---|\n",
        sparse::ALPHA_VECTOR,
        sparse::BETA_VECTOR,
    );
    for class in sparse::Class::ALL {
        for (number, of) in class.attributes().iter().enumerate() {
            let holds = match of.holds {
                sparse::Holds::Value => "a number",
                sparse::Holds::Vector => "a flag",
                sparse::Holds::Device => "a device address",
                sparse::Holds::Told => "a number that the library tells",
            };
            let _ = writeln!(text, "| {class:?} | {number} | {} | {holds} |", of.bytes);
        }
    }
    text.push('\n');
    text
}

fn nvjpeg() -> String {
    let [hybrid, hardware] = DEVICE_BACKENDS;
    format!(
        "| byte string | form |\n|---|---|\n\
         | `data` | a JPEG; empty if `more` has its bytes |\n\
         | `images` | `u64`, how many images the batch has, at most {MOST_IMAGES}; for each of these `u64`, the bytes of its JPEG, the {} words of its `nvjpegImage_t`, and `u64`, the id of its NvjpegDecodeParams, or 0 in `nvjpegDecodeBatched`; then a byte string, the JPEGs one after the other, which is empty if `more` has them |\n\
         | `piece` of `gpgpuJpegBytesFill` | bytes that are written from place `at` on |\n\
         | `piece` of `nvjpegEncodeRetrieveBitstream` | the encoded JPEG's bytes from place `from` on, at most {PIECE}, and no more than `room` lets the caller have |\n\n\
         `gpgpuJpegBytes` makes room for JPEGs that are too long for a request, `gpgpuJpegBytesFill` writes a piece, and a call names the object as `more`; once a call keeps the bytes, none is written. `gpgpuJpegBytesEnd` ends the object. \
         They are no functions of NVIDIA's library. A device keeps at most {MOST_KEPT} bytes of JPEGs for a client; beyond that the status is that for lack of memory.\n\n\
         `destination` and `source` are an `nvjpegImage_t`: {COMPONENTS} device addresses, then {COMPONENTS} distances from row to row in bytes. The device keeps the bytes of a JPEG as long as the library may read them: with the stream that parsed them, and with the state that decodes them. \
         A batch has as many images as its state was last told; with another number the status is the library's for an invalid value. An object of the library ends once none uses it that can still be named, in whatever order the client ends them. All objects of a call are in one context.\n\n\
         `nvjpegEncodeRetrieveBitstream` tells the encoded JPEG's `length`. With `from` 0 and a wanted `piece` it takes the JPEG from the library, if `room` is enough for it; with another `from` it goes on with the same.\n\n\
         A backend is none of {hybrid} and {hardware}, which read JPEGs in device memory; a padding is at most {MOST_PADDING}.\n\n",
        2 * COMPONENTS,
    )
}
