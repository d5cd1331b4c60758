// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tensor maps: descriptions for a GPU's copies of tiles. Only the host's driver knows their encoding.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{TensorForm, TensorMap, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
};

/// The maximum number of dimensions of a tensor.
const MOST: u32 = 5;

fn list<T: Copy>(from: InPtr<T>, count: usize) -> Result<Vec<T>> {
    (0..count).map(|i| from.at(i)).collect()
}

/// The address at which the worker accesses a tensor.
pub fn far(client: &Client, address: *mut c_void) -> u64 {
    let address = address as u64;
    match client.pointers.find_whole(address, 1) {
        Some(range) if address.wrapping_sub(range.start) < range.bytes => range.far(address),
        _ => address,
    }
}

/// The common part of all kinds of maps: dimensions and steps.
fn tensor(
    data_type: u32,
    rank: u32,
    address: *mut c_void,
    dims: InPtr<u64>,
    strides: InPtr<u64>,
    steps: InPtr<u32>,
) -> Result<TensorForm> {
    let client = client()?;
    if !(1..=MOST).contains(&rank) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let rank = rank as usize;
    Ok(TensorForm {
        data_type,
        address: far(client, address),
        dims: list(dims, rank)?,
        strides: list(strides, rank - 1)?,
        element_strides: list(steps, rank)?,
        ..TensorForm::default()
    })
}

/// Where the map is stored. Its alignment matters when a kernel uses it, not here: NVIDIA's driver accepts any.
fn place(map: HostPtr) -> Result<HostPtr> {
    if map.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(map)
}

fn encode(map: HostPtr, form: TensorForm) -> Result {
    let map = place(map)?;
    let request = request::gpgpuTensorMapEncode { form, map: true };
    map.store(&client()?.call(&request)?.map.bytes);
    Ok(())
}

cuda! {
    #[allow(clippy::too_many_arguments)]
    fn cuTensorMapEncodeTiled(tensorMap: HostPtr, tensorDataType: u32, tensorRank: u32, globalAddress: *mut c_void, globalDim: InPtr<u64>, globalStrides: InPtr<u64>, boxDim: InPtr<u32>, elementStrides: InPtr<u32>, interleave: u32, swizzle: u32, l2Promotion: u32, oobFill: u32) {
        let form = tensor(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides)?;
        encode(tensorMap, TensorForm {
            kind: 0,
            box_dims: list(boxDim, tensorRank as usize)?,
            modes: vec![interleave, swizzle, l2Promotion, oobFill],
            ..form
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn cuTensorMapEncodeIm2col(tensorMap: HostPtr, tensorDataType: u32, tensorRank: u32, globalAddress: *mut c_void, globalDim: InPtr<u64>, globalStrides: InPtr<u64>, pixelBoxLowerCorner: InPtr<i32>, pixelBoxUpperCorner: InPtr<i32>, channelsPerPixel: u32, pixelsPerColumn: u32, elementStrides: InPtr<u32>, interleave: u32, swizzle: u32, l2Promotion: u32, oobFill: u32) {
        let form = tensor(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides)?;
        let corners = (tensorRank as usize).checked_sub(2).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        encode(tensorMap, TensorForm {
            kind: 1,
            box_dims: vec![channelsPerPixel, pixelsPerColumn],
            lower: list(pixelBoxLowerCorner, corners)?,
            upper: list(pixelBoxUpperCorner, corners)?,
            modes: vec![interleave, swizzle, l2Promotion, oobFill],
            ..form
        })
    }

    #[allow(clippy::too_many_arguments)]
    fn cuTensorMapEncodeIm2colWide(tensorMap: HostPtr, tensorDataType: u32, tensorRank: u32, globalAddress: *mut c_void, globalDim: InPtr<u64>, globalStrides: InPtr<u64>, pixelBoxLowerCornerWidth: i32, pixelBoxUpperCornerWidth: i32, channelsPerPixel: u32, pixelsPerColumn: u32, elementStrides: InPtr<u32>, interleave: u32, mode: u32, swizzle: u32, l2Promotion: u32, oobFill: u32) {
        let form = tensor(tensorDataType, tensorRank, globalAddress, globalDim, globalStrides, elementStrides)?;
        encode(tensorMap, TensorForm {
            kind: 2,
            box_dims: vec![channelsPerPixel, pixelsPerColumn],
            lower: vec![pixelBoxLowerCornerWidth],
            upper: vec![pixelBoxUpperCornerWidth],
            modes: vec![interleave, mode, swizzle, l2Promotion, oobFill],
            ..form
        })
    }

    fn cuTensorMapReplaceAddress(tensorMap: HostPtr, globalAddress: *mut c_void) {
        let client = client()?;
        let map = place(tensorMap)?;
        let mut old = TensorMap::default();
        let bytes = old.bytes.len();
        old.bytes.copy_from_slice(map.bytes(bytes));
        let request = request::gpgpuTensorMapReplaceAddress { old, address: far(client, globalAddress), map: true };
        map.store(&client.call(&request)?.map.bytes);
        Ok(())
    }
}
