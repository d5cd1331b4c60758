// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Attributes of streams.

use gpgpu_protocol::{
    api::{LaunchAttribute, Object, Stream, request},
    cuda::*,
};

use crate::{
    argument::HostPtr, client::client, cuda, ffi::Result, launch::DefaultStream,
    stores::objects::Known, stream,
};

/// Bytes of `CUstreamAttrValue`.
const VALUE_BYTES: usize = 64;

fn get(shape: DefaultStream, stream: CUstream, attr: u32, value: HostPtr) -> Result {
    let client = client()?;
    if value.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let request = request::cuStreamGetAttribute {
        hStream: stream::lower(shape, stream)?,
        attr,
        value_out: true,
    };
    value.store(&client.call(&request)?.value_out.value);
    Ok(())
}

fn set(shape: DefaultStream, stream: CUstream, attr: u32, value: HostPtr) -> Result {
    let client = client()?;
    if value.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let id = stream::lower(shape, stream)?;
    let mut bytes = [0; VALUE_BYTES];
    bytes.copy_from_slice(value.bytes(VALUE_BYTES));
    let request = request::cuStreamSetAttribute {
        hStream: id,
        value: LaunchAttribute {
            id: attr,
            value: bytes,
        },
    };
    client.call(&request)?;
    forget(id);
    Ok(())
}

/// Drops the cached state of a stream, which may have changed.
fn forget(id: u64) {
    if let Ok(client) = client()
        && let Some(Known::Stream(stream)) = client.objects.get(id)
    {
        stream.answers.forget();
    }
}

fn copy(shape: DefaultStream, dst: CUstream, src: CUstream) -> Result {
    let client = client()?;
    let request = request::cuStreamCopyAttributes {
        dst: stream::lower(shape, dst)?,
        src: stream::lower(shape, src)?,
    };
    client.call(&request)?;
    forget(Stream::id(dst));
    Ok(())
}

cuda! {
    fn cuStreamGetAttribute(hStream: CUstream, attr: u32, value_out: HostPtr) {
        get(DefaultStream::Legacy, hStream, attr, value_out)
    }

    fn cuStreamGetAttribute_ptsz(hStream: CUstream, attr: u32, value_out: HostPtr) {
        get(DefaultStream::PerThread, hStream, attr, value_out)
    }

    fn cuStreamSetAttribute(hStream: CUstream, attr: u32, value: HostPtr) {
        set(DefaultStream::Legacy, hStream, attr, value)
    }

    fn cuStreamSetAttribute_ptsz(hStream: CUstream, attr: u32, value: HostPtr) {
        set(DefaultStream::PerThread, hStream, attr, value)
    }

    fn cuStreamCopyAttributes(dst: CUstream, src: CUstream) {
        copy(DefaultStream::Legacy, dst, src)
    }

    fn cuStreamCopyAttributes_ptsz(dst: CUstream, src: CUstream) {
        copy(DefaultStream::PerThread, dst, src)
    }
}
