// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The properties of textures and surfaces that kernels get, and accesses outside. The rest is in
//! `tests/pitfalls/textures.cpp`.

mod common;

use std::ffi::{CString, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::{alloc, context, cuCtxSynchronize, cuLaunchKernel, function, module, ok, read};
use gpgpu_protocol::cuda::*;

unsafe extern "C" {
    fn cuArray3DCreate_v2(array: *mut CUarray, form: *const CUDA_ARRAY3D_DESCRIPTOR) -> CUresult;
    fn cuMipmappedArrayCreate(
        array: *mut CUmipmappedArray,
        form: *const CUDA_ARRAY3D_DESCRIPTOR,
        levels: c_uint,
    ) -> CUresult;
    fn cuTexObjectCreate(
        object: *mut CUtexObject,
        resource: *const CUDA_RESOURCE_DESC,
        texture: *const CUDA_TEXTURE_DESC,
        view: *const CUDA_RESOURCE_VIEW_DESC,
    ) -> CUresult;
    fn cuSurfObjectCreate(
        object: *mut CUsurfObject,
        resource: *const CUDA_RESOURCE_DESC,
    ) -> CUresult;
}

fn good(code: CUresult) {
    assert_eq!(code, CUDA_SUCCESS);
}

fn form(sizes: [usize; 3], flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: sizes[0],
        Height: sizes[1],
        Depth: sizes[2],
        Format: CU_AD_FORMAT_UNSIGNED_INT32,
        NumChannels: 1,
        Flags: flags,
    }
}

fn resource(kind: CUresourcetype, array: u64) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC {
        resType: kind,
        ..CUDA_RESOURCE_DESC::default()
    };
    resource.res.devPtr = array;
    resource
}

/// The value that instructions leave in `%r1`, of an object in `%d1`; an error is the launch's.
fn ask(object: u64, instructions: &str) -> Result<u32, CUresult> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry ask(.param .u64 object, .param .u64 out)\n{{\n\
         .reg .b32 %r<4>;\n.reg .b64 %d<4>;\nld.param.u64 %d1, [object];\nld.param.u64 %d2, [out];\nmov.u32 %r1, 0;\n\
         {instructions}\nst.global.u32 [%d2], %r1;\nret;\n}}\n"
    );
    let text = CString::new(text).unwrap();
    let function = function(module(&text), c"ask");
    let mut out = alloc(4);
    let mut parameters = [
        (&raw const object).cast_mut().cast::<c_void>(),
        (&raw mut out).cast(),
    ];
    let list = parameters.as_mut_ptr();
    let nothing = null_mut();
    // SAFETY: the parameters are those of the kernel, and live across the call.
    unsafe {
        good(cuLaunchKernel(
            function,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            nothing,
            list,
            null_mut(),
        ));
        match cuCtxSynchronize() {
            CUDA_SUCCESS => Ok(read(out, 1)[0]),
            code => Err(code),
        }
    }
}

#[test]
fn kernels_are_told_how_large_textures_and_surfaces_are() {
    context();
    let texture = |kind, array| {
        let mut object = 0;
        let how = CUDA_TEXTURE_DESC::default();
        // SAFETY: the pointers are to values that live across the call, or NULL.
        unsafe {
            good(cuTexObjectCreate(
                &mut object,
                &resource(kind, array),
                &how,
                null(),
            ))
        };
        object
    };
    let array = |sizes, flags| {
        let mut array = null_mut();
        // SAFETY: as above.
        unsafe { good(cuArray3DCreate_v2(&mut array, &form(sizes, flags))) };
        array as u64
    };
    let query = |object, what| ask(object, &format!("txq.{what}.b32 %r1, [%d1];")).unwrap();
    let volume = texture(CU_RESOURCE_TYPE_ARRAY, array([5, 6, 7], 0));
    assert_eq!(
        ["width", "height", "depth"].map(|what| query(volume, what)),
        [5, 6, 7]
    );
    let layers = texture(
        CU_RESOURCE_TYPE_ARRAY,
        array([5, 6, 7], CUDA_ARRAY3D_LAYERED),
    );
    assert_eq!(
        ["width", "height", "array_size"].map(|what| query(layers, what)),
        [5, 6, 7]
    );
    let mut mipmapped = null_mut();
    // SAFETY: as above.
    unsafe {
        good(cuMipmappedArrayCreate(
            &mut mipmapped,
            &form([16, 8, 0], 0),
            9,
        ))
    };
    let levels = texture(CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, mipmapped as u64);
    assert_eq!(query(levels, "num_mipmap_levels"), 5);
    assert_eq!(ask(levels, "txq.level.width.b32 %r1, [%d1], 2;"), Ok(4));
    let mut surface = 0;
    let of = resource(
        CU_RESOURCE_TYPE_ARRAY,
        array([5, 6, 7], CUDA_ARRAY3D_SURFACE_LDST),
    );
    ok!(cuSurfObjectCreate(&mut surface, &of));
    assert_eq!(ask(surface, "suq.depth.b32 %r1, [%d1];"), Ok(7));
    // Outside: nothing with `.zero`, the nearest with `.clamp`, and with `.trap` the end.
    let load = |mode, x| {
        let text = format!(
            "mov.u32 %r2, {x};\nmov.u32 %r3, 0;\nsuld.b.3d.b32.{mode} {{%r1}}, [%d1, {{%r2, %r3, %r3, %r3}}];"
        );
        ask(surface, &text)
    };
    let store =
        "mov.u32 %r1, 9;\nmov.u32 %r3, 0;\nsust.b.3d.b32.trap [%d1, {%r3, %r3, %r3, %r3}], {%r1};";
    assert_eq!(ask(surface, store), Ok(9));
    assert_eq!(
        [load("zero", -4), load("clamp", -4), load("trap", 0)],
        [Ok(0), Ok(9), Ok(9)]
    );
    assert_eq!(load("trap", 20), Err(CUDA_ERROR_LAUNCH_FAILED));
}
