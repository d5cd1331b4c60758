// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module images: their length, which CUDA's functions do not pass, and their transfer to the host.

use std::{borrow::Cow, collections::BTreeSet};

use gpgpu_client::{Connection, transport::Data};
use gpgpu_image::{
    Contents,
    bounds::WITHOUT_BYTES,
    fatbin::{self, Entry, Kind},
};
use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{JitLog, JitOption, Request, request},
    codec::Blob,
    cuda::*,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    client::Client,
    device::attribute,
    environment::{Environment, environment},
    ffi::Result,
};

fn word(image: HostPtr, offset: usize) -> u32 {
    let bytes = image.add(offset).bytes(4);
    u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn long(image: HostPtr, offset: usize) -> u64 {
    u64::from(word(image, offset)) | u64::from(word(image, offset + 4)) << 32
}

/// The bytes of an image to which a program points: a fatbin or its wrapper, a cubin, or PTX text.
pub fn contents<'a>(image: HostPtr) -> Result<&'a [u8]> {
    if image.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Text may be shorter than a magic number, so look byte by byte.
    if image.bytes(1)[0] == 0x7f && image.bytes(4) == b"\x7fELF" {
        return elf_length(image).map(|length| image.bytes(length));
    }
    let starts_with = |magic: u32| {
        magic
            .to_ne_bytes()
            .iter()
            .enumerate()
            .all(|(i, byte)| image.add(i).bytes(1)[0] == *byte)
    };
    if starts_with(fatbin::WRAPPER_MAGIC) {
        return contents(HostPtr::at(long(image, 8)));
    }
    if starts_with(fatbin::CONTAINER_MAGIC) {
        let header = (word(image, 4) >> 16) as usize;
        let length = usize::try_from(long(image, 8)).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
        return Ok(image.bytes(length.checked_add(header).ok_or(CUDA_ERROR_INVALID_IMAGE)?));
    }
    let mut length = 0;
    while image.add(length).bytes(1)[0] != 0 {
        length += 1;
    }
    Ok(image.bytes(length + 1))
}

/// The part of a module's or library's image that the process's devices can use, and that the environment variables
/// allow. A program's image contains code for every kind of GPU; only that for the host's GPUs has to be sent.
///
/// # Errors
///
/// `CUDA_ERROR_JIT_COMPILATION_DISABLED` if only text is left and compilation is disabled;
/// `CUDA_ERROR_NO_BINARY_FOR_GPU` if nothing is left because machine code is disabled. For a library, NVIDIA's driver
/// returns these errors when a kernel is looked up.
pub fn useful<'a>(client: &Client, image: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    let capability = |info| -> Result<u32> {
        let major = attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok((major * 10 + minor) as u32)
    };
    let capabilities: Result<Vec<_>> = client.hello.devices.iter().map(capability).collect();
    match capabilities {
        Ok(of) => allowed(image, &of, environment()),
        Err(_) => Ok(Cow::Borrowed(image)),
    }
}

fn allowed<'a>(image: &'a [u8], capabilities: &[u32], by: &Environment) -> Result<Cow<'a, [u8]>> {
    let whole = Cow::Borrowed(image);
    let Ok(entries) = fatbin::entries(&Contents(image)) else {
        let is_text = !image.starts_with(b"\x7fELF");
        let starts_with = |magic: u32| image.starts_with(&magic.to_ne_bytes());
        // An invalid container is sent as a whole, so that the driver returns its error.
        if by.disables_jit && is_text && !starts_with(fatbin::CONTAINER_MAGIC) {
            return Err(CUDA_ERROR_JIT_COMPILATION_DISABLED);
        }
        return Ok(whole);
    };
    let is_useful = |entry: &Entry| entry.is_useful(capabilities);
    let has = |kind| {
        let mut code = entries.iter().filter(|entry| is_useful(entry));
        code.any(|entry| entry.kind == kind)
    };
    let without = match (by.forces_jit, by.disables_jit) {
        (true, _) => Some(Kind::Cubin),
        (false, true) => Some(Kind::Ptx),
        (false, false) => None,
    };
    let is_left = |kind| without != Some(kind) && has(kind);
    if by.disables_jit && has(Kind::Ptx) && !is_left(Kind::Cubin) {
        return Err(CUDA_ERROR_JIT_COMPILATION_DISABLED);
    }
    if by.forces_jit && !has(Kind::Ptx) {
        return Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    let is_kept = |entry: &Entry| is_useful(entry) && without != Some(entry.kind);
    Ok(fatbin::with(image, &entries, is_kept).map_or(whole, Cow::Owned))
}

/// The length of an ELF file in memory, from its headers.
fn elf_length(image: HostPtr) -> Result<usize> {
    type Header = object::elf::FileHeader64<object::Endianness>;
    let invalid = CUDA_ERROR_INVALID_IMAGE;
    let header = Header::parse(image.bytes(size_of::<Header>())).map_err(|_| invalid)?;
    let endian = header.endian().map_err(|_| invalid)?;
    let table =
        |offset: u64, size: u16, count: u16| offset.checked_add(u64::from(size) * u64::from(count));
    let sections_end = table(
        header.e_shoff(endian),
        header.e_shentsize(endian),
        header.e_shnum(endian),
    )
    .ok_or(invalid)?;
    let segments_end = table(
        header.e_phoff(endian),
        header.e_phentsize(endian),
        header.e_phnum(endian),
    )
    .ok_or(invalid)?;
    let tables = image.bytes(usize::try_from(sections_end.max(segments_end)).map_err(|_| invalid)?);
    let mut end = tables.len() as u64;
    for section in header
        .section_headers(endian, tables)
        .map_err(|_| invalid)?
    {
        if WITHOUT_BYTES.contains(&section.sh_type(endian)) {
            continue;
        }
        if let Some((offset, size)) = section.file_range(endian) {
            end = end.max(offset.checked_add(size).ok_or(invalid)?);
        }
    }
    for segment in header
        .program_headers(endian, tables)
        .map_err(|_| invalid)?
    {
        let (offset, size) = segment.file_range(endian);
        end = end.max(offset.checked_add(size).ok_or(invalid)?);
    }
    usize::try_from(end).map_err(|_| invalid)
}

/// The minimum size of an image for which it pays to ask whether the host still has it.
const WORTH_ASKING: usize = 64 << 10;

/// Whether this process has sent an image of this length before. From now on it has.
fn sent_before(bytes: usize) -> bool {
    static LENGTHS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());
    let mut lengths = LENGTHS.lock();
    !lengths.insert(bytes)
}

/// Loads an image by a request that `make` makes from its number. A short image is sent with the request, a long one
/// before it, and one that the worker still has is not sent.
pub fn load<R: Request>(
    connection: &Connection,
    bytes: &[u8],
    request: impl FnOnce(u64) -> R,
) -> Result<(CUresult, Option<R::Reply>)> {
    let again = sent_before(bytes.len()) && bytes.len() >= WORTH_ASKING;
    let length = bytes.len() as u64;
    if again {
        let image = connection.new_serial();
        let find = request::gpgpuImageFind {
            image,
            bytes: length,
            hash: Blob(blake3::hash(bytes).as_bytes().to_vec()),
            known: true,
        };
        if connection.call(&find)?.known != 0 {
            return connection.exchange(&request(image), &[], &mut []);
        }
    }
    if bytes.len() <= connection.block_bytes() {
        return connection.exchange(&request(0), bytes, &mut []);
    }
    let image = connection.new_serial();
    let write = request::gpgpuImageWrite {
        image,
        bytes: length,
    };
    connection.transfer(&write, Data::In(bytes))?;
    connection.exchange(&request(image), &[], &mut [])
}

/// Reads an image from a file of the guest, with a NUL at its end because it may be text.
pub fn from_file(path: &str) -> Result<Vec<u8>> {
    let mut bytes = std::fs::read(path).map_err(|_| CUDA_ERROR_FILE_NOT_FOUND)?;
    bytes.push(0);
    Ok(bytes)
}

/// The options of a just-in-time link as a program passes them: two arrays, the second of which also receives results.
pub struct Jit {
    count: usize,
    options: InPtr<CUjit_option>,
    values: OutPtr<usize>,
    /// The sizes of the buffers for information and for errors. A linker answers several times, and each answer
    /// overwrites the size of a buffer by the length of the text.
    rooms: [usize; 2],
}

impl Jit {
    /// The options of a load; none if there are no arrays.
    pub fn new(count: u32, options: InPtr<CUjit_option>, values: OutPtr<usize>) -> Result<Self> {
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // CUDA has a few dozen options. A count far above that is invalid.
        if count > 256 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut jit = Self {
            count: count as usize,
            options,
            values,
            rooms: [0; 2],
        };
        let sizes = [
            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        jit.rooms = sizes.map(|size| jit.value(size).unwrap_or(0));
        Ok(jit)
    }

    /// No options.
    pub fn none() -> Self {
        Self {
            count: 0,
            options: InPtr::nested(std::ptr::null()),
            values: OutPtr::nested(std::ptr::null_mut()),
            rooms: [0; 2],
        }
    }

    fn each(&self) -> impl Iterator<Item = (CUjit_option, OutPtr<usize>)> {
        (0..self.count).filter_map(|i| Some((self.options.at(i).ok()?, self.values.at(i))))
    }

    /// The options in the protocol's form.
    pub fn lower(&self) -> Vec<JitOption> {
        self.each()
            .map(|(option, value)| JitOption {
                option,
                value: value.read().unwrap_or(0) as u64,
            })
            .collect()
    }

    fn value(&self, wanted: CUjit_option) -> Option<usize> {
        self.each()
            .find(|(option, _)| *option == wanted)
            .and_then(|(_, value)| value.read())
    }

    /// Returns the linker's logs to the program.
    pub fn raise(&self, log: &JitLog) {
        for (option, value) in self.each() {
            match option {
                CU_JIT_WALL_TIME => value.offer(log.wall_time.to_bits() as usize),
                CU_JIT_THREADS_PER_BLOCK => value.offer(log.threads_per_block as usize),
                CU_JIT_INFO_LOG_BUFFER => {
                    Self::give_log(value, self.rooms[0], &log.info.0);
                }
                CU_JIT_ERROR_LOG_BUFFER => {
                    Self::give_log(value, self.rooms[1], &log.error.0);
                }
                _ => {}
            }
        }
        for (option, value) in self.each() {
            match option {
                CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES => {
                    value.offer(Self::given(self.rooms[0], &log.info.0));
                }
                CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => {
                    value.offer(Self::given(self.rooms[1], &log.error.0));
                }
                _ => {}
            }
        }
    }

    /// The number of bytes that a buffer got, as NVIDIA's driver returns it.
    fn given(room: usize, text: &[u8]) -> usize {
        match room {
            0 | 1 => 0,
            room => text.len().min(room),
        }
    }

    fn give_log(buffer: OutPtr<usize>, room: usize, text: &[u8]) {
        if let (Some(address), true) = (buffer.read(), room > 0) {
            let count = text.len().min(room - 1);
            let buffer = HostPtr::at(address as u64);
            buffer.store(&text[..count]);
            buffer.add(count).store(&[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: u16 = 1;
    const CUBIN: u16 = 2;

    fn container(kinds: &[u16]) -> Vec<u8> {
        let mut bytes = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0, 16, 0]);
        bytes.extend((kinds.len() as u64 * 64).to_le_bytes());
        for kind in kinds {
            let mut entry = [0; 64];
            entry[..2].copy_from_slice(&kind.to_le_bytes());
            entry[4] = 64;
            entry[28] = 90;
            bytes.extend(entry);
        }
        bytes
    }

    /// The results of NVIDIA's driver (580) on an H200 with an empty cache.
    #[test]
    fn variables_say_which_code_of_a_fatbin_is_used() {
        let by = |forces_jit, disables_jit| Environment {
            forces_jit,
            disables_jit,
            ..Environment::default()
        };
        let (both, machine, text) = (
            container(&[CUBIN, PTX]),
            container(&[CUBIN]),
            container(&[PTX]),
        );
        let of = |image: &[u8], by| allowed(image, &[90], &by).map(Cow::into_owned);
        let disabled = Err(CUDA_ERROR_JIT_COMPILATION_DISABLED);
        let nothing = Err(CUDA_ERROR_NO_BINARY_FOR_GPU);
        for image in [&both, &machine, &text] {
            assert_eq!(of(image, by(false, false)).as_ref(), Ok(image));
        }
        assert_eq!(of(&both, by(true, false)), Ok(text.clone()));
        assert_eq!(of(&machine, by(true, false)), nothing);
        assert_eq!(of(&text, by(true, false)), Ok(text.clone()));
        assert_eq!(of(&both, by(false, true)), Ok(machine.clone()));
        assert_eq!(of(&machine, by(false, true)), Ok(machine.clone()));
        assert_eq!(of(&text, by(false, true)), disabled);
        assert_eq!(of(&both, by(true, true)), disabled);
        assert_eq!(of(&machine, by(true, true)), nothing);
        // Machine code outside of a container is used nevertheless.
        let cubin = b"\x7fELF and so on".as_slice();
        assert_eq!(of(cubin, by(true, true)), Ok(cubin.to_vec()));
        assert_eq!(
            of(b".version 8.0", by(true, false)),
            Ok(b".version 8.0".to_vec())
        );
        assert_eq!(of(b".version 8.0", by(false, true)), disabled);
    }
}
