// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Objects that the program shares with other processes of its VM.
//!
//! The host assigns a name of 64 bytes to a shared object, and only the host decodes it. A CUDA IPC handle is such a
//! name. A descriptor is a sealed memfd that contains the name. So the program may pass it on in any way, and it keeps
//! nothing alive.

use std::{
    ffi::{c_char, c_void},
    fs::File,
    io::Write,
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd},
        unix::fs::FileExt,
    },
};

use gpgpu_protocol::{
    api::{Object, Physical, Request, request},
    codec::Blob,
    cuda::*,
};

use crate::{
    argument::OutPtr,
    client::{Client, client},
    cuda,
    ffi::Result,
    ipc_event, shared_pool,
    stores::pointers::{Kind, Origin, Range},
    thread,
};

/// The bytes of a name.
const NAME_BYTES: usize = 64;
/// The start of a descriptor's file, before the name.
const MARK: &[u8; 16] = b"virtio-gpgpu shr";
/// The seals of a descriptor's file: it cannot be written or resized.
const SEALS: i32 = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;

/// Whether the host shares memory between processes.
pub fn is_served(client: &Client) -> bool {
    client.has(request::gpgpuIpcOpen::OP)
}

/// The sharing feature that a device attribute reports; `None` for any other.
///
/// # Errors
///
/// As [`client`].
pub fn attribute(attribute: CUdevice_attribute) -> Result<Option<i32>> {
    match attribute {
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED => {
            Ok(Some(is_served(client()?).into()))
        }
        CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES if shared_pool::is_served(client()?) => {
            Ok(Some(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR as i32))
        }
        CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED => Ok(Some(ipc_event::is_served(client()?).into())),
        _ => Ok(None),
    }
}

/// The handle for a name.
pub fn handle(name: &Blob) -> Result<[c_char; NAME_BYTES]> {
    let name: &[u8; NAME_BYTES] = name
        .0
        .as_slice()
        .try_into()
        .map_err(|_| CUDA_ERROR_UNKNOWN)?;
    Ok(name.map(|byte| byte as c_char))
}

/// The name in a handle.
pub fn name(handle: [c_char; NAME_BYTES]) -> Blob {
    Blob(handle.map(|byte| byte as u8).to_vec())
}

/// Whether a range belongs to another process.
fn is_opened(range: &Range) -> bool {
    matches!(range.origin, Origin::Opened(_))
}

/// Checks that there is a current context.
pub fn current() -> Result<u64> {
    match thread::home(client()?) {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        context => Ok(context),
    }
}

fn open(dptr: OutPtr<CUdeviceptr>, from: CUipcMemHandle, flags: u32) -> Result {
    let client = client()?;
    let context = current()?;
    dptr.required()?;
    // Other flags have no effect, as natively.
    if flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let request = request::gpgpuIpcOpen {
        name: name(from.reserved),
        dptr: true,
        bytes: true,
        dev: true,
    };
    let opened = client.allocate(|| client.call(&request))?;
    let mut open = client.shareable.open();
    let again = client.pointers.find(opened.dptr);
    let again = again.is_some_and(|range| range.start == opened.dptr && is_opened(&range));
    let count = open.entry(opened.dptr).or_default();
    *count = if again { *count + 1 } else { 1 };
    client.pointers.insert(Range {
        start: opened.dptr,
        bytes: opened.bytes,
        context,
        kind: Kind::Device,
        origin: Origin::Opened(opened.dev),
    });
    dptr.set(opened.dptr)
}

/// A file that contains a name. The caller has to close the descriptor.
pub fn file_of(name: &Blob) -> Result<i32> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name of the file is a string that lives across the call.
    let fd = unsafe { libc::memfd_create(c"gpgpu-shared".as_ptr(), flags) };
    if fd < 0 {
        return Err(CUDA_ERROR_OPERATING_SYSTEM);
    }
    // SAFETY: the descriptor was just made, and no other code knows it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let written = file.write_all(&[MARK, name.0.as_slice()].concat());
    // SAFETY: takes numbers alone.
    let sealed = unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) };
    match (written, sealed) {
        (Ok(()), 0) => Ok(file.into_raw_fd()),
        _ => Err(CUDA_ERROR_OPERATING_SYSTEM),
    }
}

/// The name in a descriptor's file.
///
/// # Errors
///
/// `CUDA_ERROR_UNKNOWN` if it is not such a file, as natively.
pub fn name_in(fd: i32) -> Result<Blob> {
    // SAFETY: takes numbers alone; a descriptor that is none is refused.
    let own = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(CUDA_ERROR_UNKNOWN);
    }
    // SAFETY: the descriptor was just made, and no other code knows it.
    let file = unsafe { File::from_raw_fd(own) };
    // A file without the seals does not come from this library, and reading it could block.
    // SAFETY: takes numbers alone.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) } & SEALS != SEALS {
        return Err(CUDA_ERROR_UNKNOWN);
    }
    let mut bytes = [0; MARK.len() + NAME_BYTES];
    file.read_exact_at(&mut bytes, 0)
        .map_err(|_| CUDA_ERROR_UNKNOWN)?;
    match bytes.strip_prefix(MARK) {
        Some(name) => Ok(Blob(name.to_vec())),
        None => Err(CUDA_ERROR_UNKNOWN),
    }
}

cuda! {
    /// `cuIpcGetMemHandle` of memory from `cuMemAlloc`.
    fn cuIpcGetMemHandle(pHandle: OutPtr<CUipcMemHandle>, dptr: CUdeviceptr) {
        let client = client()?;
        current()?;
        pHandle.required()?;
        client.require(request::gpgpuIpcShare::OPERATION)?;
        let range = client.pointers.find(dptr).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if range.kind != Kind::Device || !matches!(range.origin, Origin::Call | Origin::Shared) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        client.pointers.share(range.start);
        let request = request::gpgpuIpcShare { dptr: range.start, bytes: range.bytes, name: true };
        let shared = client.call(&request)?;
        pHandle.set(CUipcMemHandle { reserved: handle(&shared.name)? })
    }

    /// `cuIpcOpenMemHandle` as before CUDA 11.
    fn cuIpcOpenMemHandle(pdptr: OutPtr<CUdeviceptr>, handle: CUipcMemHandle, Flags: u32) {
        open(pdptr, handle, Flags)
    }

    /// `cuIpcOpenMemHandle`.
    fn cuIpcOpenMemHandle_v2(pdptr: OutPtr<CUdeviceptr>, handle: CUipcMemHandle, Flags: u32) {
        open(pdptr, handle, Flags)
    }

    /// `cuIpcCloseMemHandle`. The memory exists until it was closed as often as it was opened.
    fn cuIpcCloseMemHandle(dptr: CUdeviceptr) {
        let client = client()?;
        current()?;
        let range = client.pointers.find(dptr).filter(|range| range.start == dptr && is_opened(range));
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // Forgotten before the host is called, like freed memory.
        let is_last = {
            let mut open = client.shareable.open();
            let count = open.get_mut(&dptr).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            *count -= 1;
            let is_last = *count == 0;
            if is_last {
                open.remove(&dptr);
                client.pointers.remove(dptr);
            }
            is_last
        };
        client.call(&request::cuIpcCloseMemHandle { dptr }).map(drop).inspect_err(|_| {
            let mut open = client.shareable.open();
            *open.entry(dptr).or_default() += 1;
            if is_last {
                client.pointers.insert(range);
            }
        })
    }

    /// `cuMemExportToShareableHandle`, to a descriptor.
    fn cuMemExportToShareableHandle(shareableHandle: *mut c_void, handle: CUmemGenericAllocationHandle, handleType: CUmemAllocationHandleType, flags: u64) {
        let client = client()?;
        let descriptor = OutPtr::<i32>::nested(shareableHandle).required()?;
        if flags != 0 || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        client.require(request::gpgpuPhysicalShare::OPERATION)?;
        let request = request::gpgpuPhysicalShare { handle: Physical::id(handle), name: true };
        descriptor.set(file_of(&client.call(&request)?.name)?)
    }

    /// `cuMemImportFromShareableHandle`, from a descriptor, which the caller keeps.
    fn cuMemImportFromShareableHandle(handle: OutPtr<CUmemGenericAllocationHandle>, osHandle: *mut c_void, shHandleType: CUmemAllocationHandleType) {
        let client = client()?;
        handle.required()?;
        match shHandleType {
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR => {}
            CU_MEM_HANDLE_TYPE_NONE => return Err(CUDA_ERROR_INVALID_VALUE),
            _ => return Err(CUDA_ERROR_NOT_SUPPORTED),
        }
        client.require(request::gpgpuPhysicalImport::OPERATION)?;
        // The descriptor is passed in place of the pointer.
        let name = name_in(osHandle.addr() as i32)?;
        let id = client.new_id::<Physical>();
        client.allocate(|| client.call(&request::gpgpuPhysicalImport { handle: id, name: name.clone(), dev: true, bytes: true }))?;
        handle.set(Physical::handle(id))
    }
}
