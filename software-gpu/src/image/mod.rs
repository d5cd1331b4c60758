// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module images as programs pass them: PTX text, fatbins (bare or with their wrapper) and cubins.

mod fatbin;

use std::borrow::Cow;

use gpgpu_image::{Broken, ELF_MAGIC, Source};
use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_INVALID_PTX, CUDA_ERROR_NO_BINARY_FOR_GPU,
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUresult,
};

use crate::ffi::Pointer;
use crate::ptx;

/// PTX ISA version times ten of the newest compiler that was tried, NVRTC 13.5. A driver of CUDA 13.0 refuses text
/// above 9.0, but a user without a GPU has no other driver to go to, and Python packages bring the newest compiler.
const NEWEST_PTX: u32 = 95;
/// The newest target that PTX of that version can name.
const NEWEST_TARGET: u32 = 121;

/// The reason that an image was refused: CUDA's code, and words for the error log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The code that the loading function returns.
    pub code: CUresult,
    /// For `CU_JIT_ERROR_LOG_BUFFER`.
    pub message: String,
}

impl Refused {
    /// Refused with `code` because of `message`.
    pub fn new(code: CUresult, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    fn invalid(message: &str) -> Self {
        Self::new(CUDA_ERROR_INVALID_IMAGE, message)
    }
}

impl From<Broken> for Refused {
    fn from(broken: Broken) -> Self {
        Self::invalid(&broken.0)
    }
}

/// A file's contents.
struct Contents<'a>(&'a [u8]);

impl Source for Contents<'_> {
    type Error = Refused;

    fn bytes(&self, offset: usize, length: usize) -> Result<Cow<'_, [u8]>, Refused> {
        Ok(gpgpu_image::Contents(self.0).part(offset, length)?.into())
    }
}

/// The caller's memory.
struct Memory(Pointer<u8>);

impl Source for Memory {
    type Error = Refused;

    fn bytes(&self, offset: usize, length: usize) -> Result<Cow<'_, [u8]>, Refused> {
        self.0
            .at(offset)
            .array(length)
            .map(Cow::Owned)
            .map_err(|code| Refused::new(code, "the image is NULL"))
    }
}

/// The PTX text of an image in the caller's memory, for a device of `capability` (times ten).
pub fn from_memory(image: Pointer<u8>, capability: u32) -> Result<String, Refused> {
    let source = Memory(image);
    let magic = u32::from_le_bytes(first_four(&source)?);
    if magic == fatbin::WRAPPER_MAGIC {
        // The wrapper: magic, version, then the address of the container.
        let address = image.at(8).cast::<Pointer<u8>>();
        let container = address
            .get()
            .and_then(Pointer::required)
            .map_err(|_| Refused::invalid("the fatbin wrapper points nowhere"))?;
        return fatbin::best_ptx(&Memory(container), capability);
    }
    if let Some(result) = binary(&source, magic, capability) {
        return result;
    }
    let mut text = Vec::new();
    loop {
        match source.bytes(text.len(), 1)?[0] {
            0 => return as_text(&text),
            byte => text.push(byte),
        }
    }
}

/// The PTX text of an image in a file.
pub fn from_file(contents: &[u8], capability: u32) -> Result<String, Refused> {
    let source = Contents(contents);
    let magic = u32::from_le_bytes(first_four(&source)?);
    match binary(&source, magic, capability) {
        Some(result) => result,
        None => as_text(contents),
    }
}

// A string may be shorter than four bytes: nothing after its NUL is read.
fn first_four(source: &impl Source<Error = Refused>) -> Result<[u8; 4], Refused> {
    let mut first = [0; 4];
    for (i, byte) in first.iter_mut().enumerate() {
        *byte = source.bytes(i, 1)?[0];
        if *byte == 0 {
            break;
        }
    }
    Ok(first)
}

fn binary(
    source: &impl Source<Error = Refused>,
    magic: u32,
    capability: u32,
) -> Option<Result<String, Refused>> {
    match magic {
        fatbin::CONTAINER_MAGIC => Some(fatbin::best_ptx(source, capability)),
        ELF_MAGIC => Some(Err(Refused::new(
            CUDA_ERROR_NO_BINARY_FOR_GPU,
            "a cubin holds no PTX, and this device runs nothing else; build with code=compute_80",
        ))),
        _ => None,
    }
}

fn as_text(bytes: &[u8]) -> Result<String, Refused> {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end])
        .map_err(|_| Refused::invalid("neither a fatbin nor a cubin nor text"))?;
    if !text.contains(".version") {
        return Err(Refused::invalid("the text has no .version: it is not PTX"));
    }
    Ok(text.to_owned())
}

/// Parses PTX text for a device of `capability` (times ten).
pub fn parse(text: &str, capability: u32) -> Result<ptx::Module, Refused> {
    let module = ptx::parse(text)
        .map_err(|error| Refused::new(CUDA_ERROR_INVALID_PTX, error.to_string()))?;
    if module.version > NEWEST_PTX {
        let message = format!(
            "PTX version {:.1} is newer than {:.1}",
            module.version as f32 / 10.0,
            NEWEST_PTX as f32 / 10.0
        );
        return Err(Refused::new(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, message));
    }
    if module.target > NEWEST_TARGET {
        let message = format!("unknown target sm_{}", module.target);
        return Err(Refused::new(CUDA_ERROR_INVALID_PTX, message));
    }
    if module.target > capability {
        let message = format!(
            "the text is for sm_{}, the device is sm_{capability}",
            module.target
        );
        return Err(Refused::new(CUDA_ERROR_NO_BINARY_FOR_GPU, message));
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If there is a limit, every loaded image is either refused or counted with all variables that are placed for it.
    /// The texts are inputs of the fuzzers, with something else in place of white space.
    #[test]
    fn every_placed_variable_is_counted() {
        const FRAGMENTS: &[&str] = &[
            "",
            "",
            "\n",
            "\r",
            "\u{1a}",
            "/**/",
            "//\n",
            "//*\n",
            "/*/ */",
            "// \\\n",
            "/* .global .b8 no[5]; */ ",
            " .global.b8 more[77]; ",
            ".const.b8 more[77];",
            ".visible.global.v4.f32 more[5] ;",
            " .file 1 \"x\" ",
            " .loc 1 1 1 ",
            " .loc 1 1 1, function_name x, inlined_at 1 1 1 ",
            " .attribute(.managed) ",
            " .align 64 ",
            " x ",
            " .pragma \"x\"; ",
            " .section .debug_x { .b8 1 } ",
            ".version 8.0",
            " .target sm_80 ",
            ";",
            "{",
            "}",
            "(",
            ")",
            ",",
            " = ",
            "1",
            "[7]",
            ".global",
            ".ptr .global",
            ".param .b64 ",
            " @p ",
            ":",
            "L:",
            " \"",
            "/*",
            "*/",
            "#",
            "1.",
            "0x",
            "%",
            "$",
        ];
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/ptx");
        let inputs = ["seed-small", "seed-gather", "seed-variables"];
        let inputs = inputs.map(|name| std::fs::read_to_string(directory.join(name)).unwrap());
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as usize % bound
        };
        let mut counted = 0;
        for round in 0..1500 {
            let mut text = inputs[round % inputs.len()].clone();
            for _ in 0..below(4).min(round / inputs.len()) {
                let spaces: Vec<_> = text.match_indices(char::is_whitespace).collect();
                let (at, space) = spaces[below(spaces.len())];
                let range = at..at + space.len();
                text.replace_range(range, FRAGMENTS[below(FRAGMENTS.len())]);
            }
            let Ok(module) = parse(&text, 90) else {
                continue;
            };
            if let Ok(bytes) = gpgpu_image::size::device_bytes(text.as_bytes(), 90) {
                assert!(bytes >= module.variable_bytes(), "{bytes} bytes for {text}");
                let variables = gpgpu_image::ptx::declared(text.as_bytes())
                    .unwrap()
                    .variables;
                assert!(
                    variables >= module.variable_bytes(),
                    "{variables} bytes for {text}"
                );
                counted += 1;
            }
        }
        assert!(counted > 250, "{counted}");
    }

    #[test]
    fn kinds_of_images_are_told_apart() {
        let code = |bytes: &[u8]| from_file(bytes, 80).map_err(|r| r.code);
        assert_eq!(
            code(b"// x\n.version 8.0\n.target sm_80\n\0rest").unwrap(),
            "// x\n.version 8.0\n.target sm_80\n"
        );
        assert_eq!(code(b"hello"), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(code(b""), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(code(&[0xff; 64]), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(
            code(b"\x7fELF\x02\x01\x01"),
            Err(CUDA_ERROR_NO_BINARY_FOR_GPU)
        );
    }
}
