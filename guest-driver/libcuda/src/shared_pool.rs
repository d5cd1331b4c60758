// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory pools that processes of a VM share.
//!
//! A pool's descriptor is [a file with its name](crate::ipc). The 64 bytes of an exported allocation are also a name.
//! An imported pool allocates nothing; memory that is opened with it is freed like the process's own memory.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{MemPool, Object, Request, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    ipc,
    stores::{
        pointers::{Kind, Origin, Range},
        pools::{Pool, Sharing},
    },
};

/// Whether the host shares memory pools.
pub fn is_served(client: &Client) -> bool {
    client.has(request::gpgpuPooledOpen::OP)
}

/// The id of an imported pool. If it was imported before, its existing id, as natively.
fn import(client: &Client, descriptor: i32) -> Result<u64> {
    let name = ipc::name_in(descriptor)?;
    let sharing = Sharing::Imported(name.clone());
    // Held during the call, so that two threads import it once.
    let mut table = client.pools.table();
    let mut known = table.made.iter();
    if let Some((id, _)) = known.find(|(_, pool)| pool.sharing == sharing) {
        return Ok(*id);
    }
    let id = client.new_id::<MemPool>();
    let request = request::gpgpuPoolImport {
        pool: id,
        name,
        dev: true,
    };
    // The name belongs to another kind of object, so the file is of another kind.
    let imported = client.call(&request).map_err(|code| match code {
        CUDA_ERROR_INVALID_VALUE => CUDA_ERROR_UNKNOWN,
        other => other,
    });
    let device = imported?.dev;
    table.made.insert(id, Pool { device, sharing });
    Ok(id)
}

/// Checks that the handle type is that of descriptors.
fn check_type(kind: CUmemAllocationHandleType, flags: u64) -> Result {
    match (kind, flags) {
        (CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cuda! {
    /// `cuMemPoolExportToShareableHandle`, to a descriptor, of a pool that was made for that.
    fn cuMemPoolExportToShareableHandle(handle_out: *mut c_void, pool: CUmemoryPool, handleType: CUmemAllocationHandleType, flags: u64) {
        let client = client()?;
        let descriptor = OutPtr::<i32>::nested(handle_out).required()?;
        check_type(handleType, flags)?;
        client.require(request::gpgpuPoolShare::OPERATION)?;
        let pool = MemPool::id(pool);
        if client.pools.sharing(pool) != Sharing::Exportable {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let shared = client.call(&request::gpgpuPoolShare { pool, name: true })?;
        descriptor.set(ipc::file_of(&shared.name)?)
    }

    /// `cuMemPoolImportFromShareableHandle`, from a descriptor, which the caller keeps.
    fn cuMemPoolImportFromShareableHandle(pool_out: OutPtr<CUmemoryPool>, handle: *mut c_void, handleType: CUmemAllocationHandleType, flags: u64) {
        let client = client()?;
        pool_out.required()?;
        if handleType == CU_MEM_HANDLE_TYPE_WIN32 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        check_type(handleType, flags)?;
        client.require(request::gpgpuPoolImport::OPERATION)?;
        // The descriptor is passed in place of the pointer.
        let id = import(client, handle.addr() as i32)?;
        pool_out.set(MemPool::handle(id))
    }

    /// `cuMemPoolExportPointer`, of an allocation of a pool that was made for that.
    fn cuMemPoolExportPointer(shareData_out: *mut c_void, ptr: CUdeviceptr) {
        let client = client()?;
        let data = OutPtr::<CUmemPoolPtrExportData>::nested(shareData_out).required()?;
        client.require(request::gpgpuPooledShare::OPERATION)?;
        let range = client.pointers.find(ptr).filter(|range| range.start == ptr);
        let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match range.origin {
            Origin::Pool { pool, .. } if client.pools.sharing(pool) == Sharing::Exportable => {}
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        let shared = client.call(&request::gpgpuPooledShare { dptr: ptr, name: true })?;
        data.set(CUmemPoolPtrExportData { reserved: ipc::handle(&shared.name)? })
    }

    /// `cuMemPoolImportPointer`: opens an allocation of an imported pool. An allocation that is already open is
    /// returned again, and is freed once.
    fn cuMemPoolImportPointer(ptr_out: OutPtr<CUdeviceptr>, pool: CUmemoryPool, shareData: *mut c_void) {
        let client = client()?;
        ptr_out.required()?;
        client.require(request::gpgpuPooledOpen::OPERATION)?;
        let context = ipc::current()?;
        let pool = MemPool::id(pool);
        if !matches!(client.pools.sharing(pool), Sharing::Imported(_)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let device = client.pools.device(pool)?;
        let name = ipc::name(InPtr::<CUmemPoolPtrExportData>::nested(shareData).get()?.reserved);
        let request = request::gpgpuPooledOpen { pool, name, dptr: true, bytes: true };
        let opened = client.allocate(|| client.call(&request))?;
        client.pointers.insert(Range {
            start: opened.dptr,
            bytes: opened.bytes,
            context,
            kind: Kind::Device,
            origin: Origin::Pool { pool, device },
        });
        ptr_out.set(opened.dptr)
    }
}
