// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tensor maps. The driver encodes them on the CPU.

// A reply, which an error may contain, has a whole map.
#![allow(clippy::result_large_err)]

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{TensorForm, TensorMap, reply, request},
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// The maximum number of dimensions of a tensor.
const MOST: usize = 5;

/// A description of a tensor whose lists have the lengths that the driver expects.
struct Checked<'a> {
    form: &'a TensorForm,
    rank: u32,
    /// It is not read here. A kernel can read with the map only what it could read without: the process's page tables
    /// decide that.
    address: *mut c_void,
}

/// Checks that the lists of a description have matching lengths.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` if one is too short or too long.
fn check(form: &TensorForm) -> Result<Checked<'_>, CUresult> {
    let rank = form.dims.len();
    let (least, boxes, corners, modes) = match form.kind {
        0 => (1, rank, 0, 4),
        1 => (3, 2, rank.saturating_sub(2), 4),
        2 => (3, 2, 1, 5),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let fits = (least..=MOST).contains(&rank)
        && form.strides.len() + 1 == rank
        && form.element_strides.len() == rank
        && form.box_dims.len() == boxes
        && form.lower.len() == corners
        && form.upper.len() == corners
        && form.modes.len() == modes;
    if !fits {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Checked {
        form,
        rank: rank as u32,
        address: form.address as *mut c_void,
    })
}

impl Checked<'_> {
    fn encode(&self) -> Result<CUtensorMap, CUresult> {
        let form = self.form;
        let mut map = CUtensorMap { opaque: [0; 16] };
        let to = (&raw mut map).cast();
        let (dims, strides) = (form.dims.as_ptr(), form.strides.as_ptr());
        let steps = form.element_strides.as_ptr();
        // SAFETY: the lists are as long as the rank says, and the map lives across the call; the tensor's address is
        // not read.
        unsafe {
            match (&form.modes[..], form.kind) {
                (&[interleave, swizzle, promotion, fill], 0) => driver::cuTensorMapEncodeTiled(
                    to,
                    form.data_type,
                    self.rank,
                    self.address,
                    dims,
                    strides,
                    form.box_dims.as_ptr(),
                    steps,
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )?,
                (&[interleave, swizzle, promotion, fill], _) => driver::cuTensorMapEncodeIm2col(
                    to,
                    form.data_type,
                    self.rank,
                    self.address,
                    dims,
                    strides,
                    form.lower.as_ptr(),
                    form.upper.as_ptr(),
                    form.box_dims[0],
                    form.box_dims[1],
                    steps,
                    interleave,
                    swizzle,
                    promotion,
                    fill,
                )?,
                (&[interleave, mode, swizzle, promotion, fill], _) => {
                    driver::cuTensorMapEncodeIm2colWide(
                        to,
                        form.data_type,
                        self.rank,
                        self.address,
                        dims,
                        strides,
                        form.lower[0],
                        form.upper[0],
                        form.box_dims[0],
                        form.box_dims[1],
                        steps,
                        interleave,
                        mode,
                        swizzle,
                        promotion,
                        fill,
                    )?;
                }
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Ok(map)
    }
}

fn raise(map: CUtensorMap) -> TensorMap {
    TensorMap {
        bytes: zerocopy::transmute!(map.opaque),
    }
}

/// Encodes a tensor map.
pub fn gpgpuTensorMapEncode(
    _: &Session,
    request: request::gpgpuTensorMapEncode,
    _: Data,
) -> Outcome<reply::gpgpuTensorMapEncode> {
    let map = check(&request.form)?.encode()?;
    Ok(reply::gpgpuTensorMapEncode {
        map: raise(map),
        ..Default::default()
    })
}

/// `cuTensorMapReplaceAddress`.
pub fn gpgpuTensorMapReplaceAddress(
    _: &Session,
    request: request::gpgpuTensorMapReplaceAddress,
    _: Data,
) -> Outcome<reply::gpgpuTensorMapReplaceAddress> {
    let mut map = CUtensorMap {
        opaque: zerocopy::transmute!(request.old.bytes),
    };
    let address = request.address as *mut c_void;
    // SAFETY: the map lives across the call; it is a number to the driver, as the address is.
    unsafe { driver::cuTensorMapReplaceAddress((&raw mut map).cast(), address)? };
    Ok(reply::gpgpuTensorMapReplaceAddress {
        map: raise(map),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiled() -> TensorForm {
        TensorForm {
            dims: vec![64, 64],
            strides: vec![256],
            element_strides: vec![1; 2],
            box_dims: vec![16; 2],
            modes: vec![0; 4],
            ..TensorForm::default()
        }
    }

    #[test]
    fn lists_that_the_driver_would_read_past_are_refused() {
        assert!(check(&tiled()).is_ok());
        let wrong: [fn(&mut TensorForm); 9] = [
            |form| form.kind = 3,
            |form| form.dims.clear(),
            |form| form.dims = vec![1; 6],
            |form| form.strides.clear(),
            |form| form.element_strides.truncate(1),
            |form| form.box_dims.truncate(1),
            |form| form.lower.push(1),
            |form| form.modes.truncate(3),
            |form| form.kind = 1,
        ];
        for change in wrong {
            let mut form = tiled();
            change(&mut form);
            assert_eq!(check(&form).err(), Some(CUDA_ERROR_INVALID_VALUE));
        }
        let im2col = TensorForm {
            kind: 1,
            dims: vec![64; 4],
            strides: vec![256; 3],
            element_strides: vec![1; 4],
            box_dims: vec![16; 2],
            lower: vec![0; 2],
            upper: vec![0; 2],
            ..tiled()
        };
        assert!(check(&im2col).is_ok());
        let wide = TensorForm {
            kind: 2,
            lower: vec![0],
            upper: vec![0],
            modes: vec![0; 5],
            ..im2col
        };
        assert!(check(&wide).is_ok());
    }
}
