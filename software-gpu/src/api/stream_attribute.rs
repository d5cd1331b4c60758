// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Attributes of streams: a set value can be read back.

use std::ffi::{c_uint, c_void};

use gpgpu_protocol::cuda::{
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, CUDA_ERROR_INVALID_VALUE, CUstream,
};

use crate::config::GREATEST_PRIORITY;
use crate::ffi::{Pointer, Result, export};
use crate::stream::Attributes;

/// `CUstreamAttrValue`, as bytes.
type Value = [u8; 64];

/// The largest window of `CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE` on devices that have one.
const LARGEST_WINDOW: usize = 128 << 20;
/// `CU_SYNC_POLICY_BLOCKING_SYNC`, the last of the policies.
const LAST_POLICY: u32 = 4;
/// Domains of memory synchronisation.
const DOMAINS: u8 = 4;

fn word(value: &Value, at: usize) -> u32 {
    u32::from_le_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]])
}

fn long(value: &Value, at: usize) -> u64 {
    u64::from(word(value, at)) | u64::from(word(value, at + 4)) << 32
}

/// Sets one of `attributes` to the caller's value.
fn set(attributes: &mut Attributes, which: c_uint, value: &Value) -> Result {
    match which {
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
            let share = f32::from_bits(word(value, 16));
            let properties = [word(value, 20), word(value, 24)];
            let bytes = long(value, 8) as usize;
            // Misses must not persist.
            let fits = bytes <= LARGEST_WINDOW
                && (0.0..=1.0).contains(&share)
                && properties[0] <= 2
                && properties[1] <= 1;
            if !fits {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            attributes.window = (long(value, 0), bytes, share, properties);
        }
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
            let policy = word(value, 0);
            if !(1..=LAST_POLICY).contains(&policy) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            attributes.synchronization = policy;
        }
        CU_LAUNCH_ATTRIBUTE_PRIORITY => {
            attributes.priority = (word(value, 0) as i32).clamp(GREATEST_PRIORITY, 0);
        }
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => {
            let domains = [value[0], value[1]];
            if domains.iter().any(|domain| *domain >= DOMAINS) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            attributes.domains = domains;
        }
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => {
            let domain = word(value, 0);
            if domain > 1 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            attributes.domain = domain;
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

fn get(attributes: &Attributes, which: c_uint) -> Result<Value> {
    let mut value = [0; 64];
    let mut put = |at: usize, bytes: &[u8]| value[at..at + bytes.len()].copy_from_slice(bytes);
    match which {
        CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
            let (address, bytes, share, properties) = attributes.window;
            put(0, &address.to_le_bytes());
            put(8, &(bytes as u64).to_le_bytes());
            put(16, &share.to_le_bytes());
            put(20, &properties[0].to_le_bytes());
            put(24, &properties[1].to_le_bytes());
        }
        CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY => {
            put(0, &attributes.synchronization.to_le_bytes());
        }
        CU_LAUNCH_ATTRIBUTE_PRIORITY => put(0, &attributes.priority.to_le_bytes()),
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP => put(0, &attributes.domains),
        CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN => put(0, &attributes.domain.to_le_bytes()),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(value)
}

export! {
    /// `cuStreamSetAttribute`.
    context fn cuStreamSetAttribute, cuStreamSetAttribute_ptsz(stream: CUstream, which: c_uint, value: Pointer<c_void>) |cx, null| {
        let stream = cx.stream(stream, null)?;
        let mut attributes = stream.attributes();
        set(&mut attributes, which, &value.cast::<Value>().get()?)?;
        stream.set_attributes(attributes);
        Ok(())
    }

    /// `cuStreamGetAttribute`.
    context fn cuStreamGetAttribute, cuStreamGetAttribute_ptsz(stream: CUstream, which: c_uint, value: Pointer<c_void>) |cx, null| {
        let stream = cx.stream(stream, null)?;
        value.cast::<Value>().set(get(&stream.attributes(), which)?)
    }

    /// `cuStreamCopyAttributes`.
    context fn cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz(to: CUstream, from: CUstream) |cx, null| {
        let (to, from) = (cx.stream(to, null)?, cx.stream(from, null)?);
        to.set_attributes(from.attributes());
        Ok(())
    }
}
