// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arrays, textures and surfaces with few ids, so that several commands use and destroy one at the same time.

#![allow(non_snake_case)]

use gpgpu_protocol::{
    api::{
        Array, ArrayForm, BoxCopy, BoxEnd, MipmappedArray, TextureForm, TextureResource,
        TextureView, object_id, request,
    },
    cuda::*,
};

use super::{Attack, Sent};

/// Bytes of a row of an array, its rows, and its slices.
const ROW: usize = 256;
const ROWS: usize = 4;
const SLICES: usize = 2;

fn form() -> ArrayForm {
    ArrayForm {
        width: ROW / 4,
        height: ROWS,
        depth: SLICES,
        format: CU_AD_FORMAT_FLOAT,
        channels: 1,
        flags: CUDA_ARRAY3D_SURFACE_LDST,
    }
}

impl Attack<'_> {
    /// A command for arrays and the objects by which kernels read them.
    pub fn pictured(&mut self, (context, hStream): (u64, u64), address: u64) -> Sent {
        let number = 1 + self.random.below(4);
        let array = object_id::<Array>(number);
        let other = object_id::<Array>(1 + self.random.below(4));
        let mipmap = object_id::<MipmappedArray>(1 + self.random.below(2));
        let of_array = BoxEnd {
            array,
            ..BoxEnd::default()
        };
        let of_memory = BoxEnd {
            address,
            // Too far for any memory, now and then.
            pitch: if self.random.below(8) == 0 {
                usize::MAX / ROWS
            } else {
                ROW
            },
            rows: ROWS,
            ..BoxEnd::default()
        };
        let of_other = BoxEnd {
            array: other,
            ..BoxEnd::default()
        };
        let (width, height, depth) = (ROW, ROWS, SLICES);
        let synchronous = self.random.below(2) == 0;
        let by_blocks = self.random.below(2) == 0;
        let end = if self.random.below(2) == 0 {
            of_array
        } else {
            of_memory
        };
        let bytes = width * height * depth;
        let resource = match self.random.below(3) {
            0 => TextureResource {
                kind: CU_RESOURCE_TYPE_LINEAR,
                address,
                format: CU_AD_FORMAT_FLOAT,
                channels: 1,
                width: 1024,
                ..TextureResource::default()
            },
            1 => TextureResource {
                kind: CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
                array: mipmap,
                ..TextureResource::default()
            },
            _ => TextureResource {
                array,
                ..TextureResource::default()
            },
        };
        match self.random.below(20) {
            0 | 1 => {
                let (form, made) = (form(), true);
                Sent::new(&request::gpgpuArrayCreate { array, form, made }, context)
            }
            2 => Sent::new(&request::cuArrayDestroy { hArray: array }, context),
            3 => {
                let make = request::gpgpuMipmappedArrayCreate {
                    mipmap,
                    form: form(),
                    levels: 3,
                    count: true,
                };
                Sent::new(&make, context)
            }
            4 => {
                let hMipmappedArray = mipmap;
                Sent::new(
                    &request::cuMipmappedArrayDestroy { hMipmappedArray },
                    context,
                )
            }
            5 => {
                let get = request::gpgpuMipmappedArrayLevel {
                    level: array,
                    mipmap,
                    number: 1,
                    made: true,
                };
                Sent::new(&get, context)
            }
            6 => {
                let get = request::gpgpuArrayPlane {
                    plane: other,
                    array,
                    number: 0,
                    made: true,
                };
                Sent::new(&get, context)
            }
            7..=9 => {
                let (dst, src) = match self.random.below(3) {
                    0 => (of_array, of_memory),
                    1 => (of_memory, of_array),
                    _ => (of_array, of_other),
                };
                let copy = BoxCopy {
                    dst,
                    src,
                    width,
                    height,
                    depth,
                };
                if by_blocks {
                    let copy = request::gpgpuBoxCopyAsync { copy, hStream };
                    return Sent::new(&copy, context);
                }
                let copy = request::gpgpuBoxCopy {
                    copy,
                    hStream,
                    synchronous,
                };
                Sent::new(&copy, context)
            }
            10 if by_blocks => {
                let copy = request::gpgpuBlockBoxIn {
                    to: end,
                    width,
                    height,
                    depth,
                    block: self.random.below(17) as u32,
                    hStream,
                };
                Sent::new(&copy, context)
            }
            11 if by_blocks => {
                let copy = request::gpgpuBlockBoxOut {
                    from: end,
                    width,
                    height,
                    depth,
                    block: self.random.below(17) as u32,
                    hStream,
                };
                Sent::new(&copy, context)
            }
            10 => {
                let copy = request::gpgpuBoxIn {
                    to: of_array,
                    width,
                    height,
                    depth,
                    hStream,
                    synchronous,
                };
                Sent::new(&copy, context).with(&vec![5; bytes], 0)
            }
            11 => {
                let copy = request::gpgpuBoxOut {
                    from: of_array,
                    width,
                    height,
                    depth,
                    hStream,
                };
                Sent::new(&copy, context).with(&[], bytes as u64)
            }
            12 => {
                let view = TextureView {
                    format: 0x16,
                    width: ROW / 4,
                    height: ROWS,
                    depth: SLICES,
                    ..TextureView::default()
                };
                let make = request::gpgpuTexObjectCreate {
                    object: true,
                    resource,
                    texture: TextureForm::default(),
                    view: synchronous.then_some(view),
                };
                Sent::new(&make, context)
            }
            13 => {
                let make = request::gpgpuSurfObjectCreate {
                    object: true,
                    resource,
                };
                Sent::new(&make, context)
            }
            14 => {
                let texObject = number;
                Sent::new(&request::cuTexObjectDestroy { texObject }, context)
            }
            15 => {
                let surfObject = number;
                Sent::new(&request::cuSurfObjectDestroy { surfObject }, context)
            }
            of => self.referred(of == 16, resource, context),
        }
    }

    /// A texture reference of a module, which other commands unload.
    fn referred(&mut self, asks: bool, resource: TextureResource, context: u64) -> Sent {
        let at = self.random.below(self.places.len() as u64) as usize;
        let modules = self.places[at].modules.clone();
        let hmod = self.pick(&modules).unwrap_or(0);
        let surface = self.random.below(3) == 0;
        let name = if surface { "area" } else { "line" }.to_owned();
        if asks {
            let ask = request::gpgpuModuleReference {
                hmod,
                name,
                surface,
            };
            return Sent::new(&ask, context);
        }
        if surface {
            let array = resource.array;
            let set = request::gpgpuSurfaceReferenceSet { hmod, name, array };
            return Sent::new(&set, context);
        }
        let set = request::gpgpuTextureReferenceSet {
            hmod: if self.random.below(4) == 0 { 0 } else { hmod },
            name,
            resource,
            texture: TextureForm::default(),
            offset: self.random.below(2) == 0,
        };
        Sent::new(&set, context)
    }
}
