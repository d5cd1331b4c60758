// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as a C program gets it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

type Raw = *mut c_void;

fn libraries() -> &'static [Library; 2] {
    static LIBRARIES: OnceLock<[Library; 2]> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let dir = exe.parent().unwrap();
        // SAFETY: our own libraries; their constructors do nothing. The second finds the first by its name.
        unsafe {
            let cuda = Library::new(dir.join("libsoftware_gpu.so")).unwrap();
            [
                cuda,
                Library::new(dir.join("libsoftware_cudnn.so")).unwrap(),
            ]
        }
    })
}

/// The function with that name, from whichever library it is.
fn function<F: Copy>(name: &str) -> F {
    let library = &libraries()[usize::from(name.starts_with("cudnn"))];
    // SAFETY: the caller's arguments have the types of the function's by its C declaration.
    *unsafe { library.get::<F>(name.as_bytes()) }.expect(name)
}

/// A call by name: the parameters have the arguments' types, which must be as wide as C's.
macro_rules! call {
    (@any $a:expr) => { _ };
    ($name:ident($($a:expr),* $(,)?)) => {{
        let f: unsafe extern "C" fn($(call!(@any $a)),*) -> c_int = function(stringify!($name));
        // SAFETY: pointers in these tests are NULL or valid where the function uses them; the rest may be anything.
        unsafe { f($($a),*) }
    }};
}

/// A call that must succeed.
macro_rules! ok {
    ($name:ident($($a:expr),* $(,)?)) => {
        assert_eq!(call!($name($($a),*)), 0, stringify!($name))
    };
}

const BAD_PARAM: c_int = 2000;
const NOT_FINALIZED: c_int = 2004;
const NOT_SUPPORTED: c_int = 3000;

/// A handle in the primary context.
fn handle() -> Raw {
    let (mut context, mut handle): (Raw, Raw) = (null_mut(), null_mut());
    ok!(cuInit(0_u32));
    ok!(cuDevicePrimaryCtxRetain(&mut context, 0));
    ok!(cuCtxSetCurrent(context));
    ok!(cudnnCreate(&mut handle));
    handle
}

fn upload(values: &[f32]) -> u64 {
    let mut address = 0_u64;
    ok!(cuMemAlloc_v2(&mut address, size_of_val(values)));
    ok!(cuMemcpyHtoD_v2(
        address,
        values.as_ptr(),
        size_of_val(values)
    ));
    address
}

fn download(address: u64, count: usize) -> Vec<f32> {
    let mut values = vec![0_f32; count];
    ok!(cuCtxSynchronize());
    ok!(cuMemcpyDtoH_v2(values.as_mut_ptr(), address, 4 * count));
    values
}

macro_rules! made {
    ($name:ident) => {{
        let mut made: Raw = null_mut();
        ok!($name(&mut made));
        made
    }};
}

fn tensor(sizes: [c_int; 4]) -> Raw {
    let tensor = made!(cudnnCreateTensorDescriptor);
    let [n, c, h, w] = sizes;
    ok!(cudnnSetTensor4dDescriptor(tensor, 0, 0, n, c, h, w));
    tensor
}

#[test]
fn a_convolution_is_added_to_what_was_there() {
    let handle = handle();
    let (x, y) = (tensor([1, 1, 3, 3]), tensor([1, 1, 2, 2]));
    let filter = made!(cudnnCreateFilterDescriptor);
    ok!(cudnnSetFilter4dDescriptor(filter, 0, 0, 1, 1, 2, 2));
    let how = made!(cudnnCreateConvolutionDescriptor);
    ok!(cudnnSetConvolution2dDescriptor(how, 0, 0, 1, 1, 1, 1, 1, 0));
    let mut sizes = [0_i32; 4];
    ok!(cudnnGetConvolutionNdForwardOutputDim(
        how,
        x,
        filter,
        4,
        sizes.as_mut_ptr()
    ));
    assert_eq!(sizes, [1, 1, 2, 2]);
    let mut bytes = 9_usize;
    ok!(cudnnGetConvolutionForwardWorkspaceSize(
        handle, x, filter, how, y, 0, &mut bytes
    ));
    assert_eq!(bytes, 0);
    let images: Vec<f32> = (1..=9).map(|of| of as f32).collect();
    let (x_at, w_at) = (upload(&images), upload(&[1.0, 0.0, 0.0, -1.0]));
    let y_at = upload(&[1.0, 2.0, 3.0, 4.0]);
    let (alpha, beta) = (2_f32, 10_f32);
    let forward = |y: Raw, algorithm: c_int| {
        call!(cudnnConvolutionForward(
            handle, &alpha, x, x_at, filter, w_at, how, algorithm, 0_u64, 0_usize, &beta, y, y_at
        ))
    };
    assert_eq!(forward(y, 0), 0);
    assert_eq!(download(y_at, 4), [2.0, 12.0, 22.0, 32.0]);
    assert_eq!(forward(y, 5), NOT_SUPPORTED);
    assert_eq!(forward(tensor([1, 1, 2, 3]), 0), BAD_PARAM);
    ok!(cudnnDestroyTensorDescriptor(y));
    assert_eq!(forward(y, 0), BAD_PARAM);
    assert_eq!(forward(null_mut(), 0), BAD_PARAM);
    ok!(cudnnDestroy(handle));
}

#[test]
fn a_normalisation_has_a_scale_for_each_channel() {
    let handle = handle();
    let x = tensor([2, 2, 1, 1]);
    let derived = made!(cudnnCreateTensorDescriptor);
    ok!(cudnnDeriveBNTensorDescriptor(derived, x, 1));
    let (x_at, y_at) = (upload(&[1.0, 2.0, 3.0, 4.0]), upload(&[0.0; 4]));
    let of = [[2.0, 3.0], [1.0, 0.0], [1.0, 2.0], [4.0, 1.0]].map(|of| upload(&of));
    let (one, zero) = (1_f32, 0_f32);
    ok!(cudnnBatchNormalizationForwardInference(
        handle, 1, &one, &zero, x, x_at, x, y_at, derived, of[0], of[1], of[2], of[3], 0_f64
    ));
    assert_eq!(download(y_at, 4), [1.0, 0.0, 3.0, 6.0]);
    // There must be a scale for each channel.
    let wrong = call!(cudnnBatchNormalizationForwardInference(
        handle, 1, &one, &zero, x, x_at, x, y_at, x, of[0], of[1], of[2], of[3], 0_f64
    ));
    assert_eq!(wrong, BAD_PARAM);
}

fn backend(kind: c_int) -> Raw {
    let mut made: Raw = null_mut();
    ok!(cudnnBackendCreateDescriptor(kind, &mut made));
    made
}

fn set<T>(of: Raw, name: c_int, kind: c_int, values: &[T]) -> c_int {
    call!(cudnnBackendSetAttribute(
        of,
        name,
        kind,
        values.len() as i64,
        values.as_ptr()
    ))
}

fn graph_tensor(id: i64, sizes: &[i64], is_by_value: bool) -> Raw {
    let tensor = backend(17);
    let ones = vec![1_i64; sizes.len()];
    let strides = match is_by_value {
        true => ones,
        false => (0..sizes.len())
            .map(|at| sizes[at + 1..].iter().product())
            .collect(),
    };
    assert_eq!(set(tensor, 901, 1, &[0_i32]), 0);
    assert_eq!(set(tensor, 902, 3, sizes), 0);
    assert_eq!(set(tensor, 903, 3, &strides), 0);
    assert_eq!(set(tensor, 906, 3, &[id]), 0);
    assert_eq!(set(tensor, 908, 2, &[is_by_value]), 0);
    ok!(cudnnBackendFinalize(tensor));
    tensor
}

/// A plan of one operation, by the heuristics.
fn plan(handle: Raw, operation: Raw) -> Raw {
    ok!(cudnnBackendFinalize(operation));
    let graph = backend(15);
    assert_eq!(set(graph, 800, 0, &[handle]), 0);
    assert_eq!(set(graph, 801, 15, &[operation]), 0);
    ok!(cudnnBackendFinalize(graph));
    let heuristics = backend(4);
    assert_eq!(set(heuristics, 201, 15, &[graph]), 0);
    assert_eq!(set(heuristics, 200, 8, &[0_i32]), 0);
    ok!(cudnnBackendFinalize(heuristics));
    let mut count = 0_i64;
    let nowhere: *mut Raw = null_mut();
    ok!(cudnnBackendGetAttribute(
        heuristics, 202, 15, 0_i64, &mut count, nowhere
    ));
    assert_eq!(count, 1);
    let mut config = [backend(3)];
    ok!(cudnnBackendGetAttribute(
        heuristics,
        202,
        15,
        1_i64,
        &mut count,
        config.as_mut_ptr()
    ));
    let plan = backend(5);
    assert_eq!(set(plan, 400, 0, &[handle]), 0);
    assert_eq!(set(plan, 401, 15, &config), 0);
    ok!(cudnnBackendFinalize(plan));
    plan
}

fn pack(ids: &[i64], pointers: &[u64]) -> Raw {
    let pack = backend(16);
    assert_eq!(set(pack, 1001, 6, pointers), 0);
    assert_eq!(set(pack, 1000, 3, ids), 0);
    ok!(cudnnBackendFinalize(pack));
    pack
}

#[test]
fn a_graph_multiplies_by_a_value_of_the_host() {
    let handle = handle();
    let pointwise = backend(0);
    assert_eq!(set(pointwise, 0, 14, &[1_i32]), 0);
    ok!(cudnnBackendFinalize(pointwise));
    let operation = backend(13);
    assert_eq!(set(operation, 750, 15, &[pointwise]), 0);
    let x = graph_tensor(1, &[2, 2], false);
    assert_eq!(set(operation, 751, 15, &[x]), 0);
    assert_eq!(
        set(operation, 752, 15, &[graph_tensor(2, &[1, 1], true)]),
        0
    );
    assert_eq!(
        set(operation, 753, 15, &[graph_tensor(3, &[2, 2], false)]),
        0
    );
    // A cycle is impossible, because a descriptor must be finalised before another one can contain it.
    assert_eq!(set(operation, 751, 15, &[operation]), BAD_PARAM);
    assert_eq!(set(operation, 751, 15, &[backend(17)]), NOT_FINALIZED);
    let plan = plan(handle, operation);
    let (x, y) = (upload(&[1.0, 2.0, 3.0, 4.0]), upload(&[0.0; 4]));
    let factor = 3_f32;
    let pack = pack(&[1, 2, 3], &[x, (&raw const factor) as u64, y]);
    ok!(cudnnBackendExecute(handle, plan, pack));
    assert_eq!(download(y, 4), [3.0, 6.0, 9.0, 12.0]);
    let lacking = self::pack(&[1, 3], &[x, y]);
    assert_eq!(call!(cudnnBackendExecute(handle, plan, lacking)), BAD_PARAM);
    assert_eq!(call!(cudnnBackendExecute(handle, pack, plan)), BAD_PARAM);
    // A finalised descriptor cannot change.
    assert_ne!(set(plan, 400, 0, &[handle]), 0);
}

#[test]
fn a_graph_convolves() {
    let handle = handle();
    let how = backend(1);
    assert_eq!(set(how, 100, 1, &[0_i32]), 0);
    assert_eq!(set(how, 101, 7, &[1_i32]), 0);
    assert_eq!(set(how, 106, 3, &[2_i64]), 0);
    for (name, value) in [(102, 1_i64), (103, 1), (104, 0), (105, 0)] {
        assert_eq!(set(how, name, 3, &[value; 2]), 0);
    }
    ok!(cudnnBackendFinalize(how));
    let operation = backend(10);
    assert_eq!(set(operation, 702, 15, &[how]), 0);
    for (name, id, sizes) in [
        (704, 1_i64, [1, 1, 3, 3]),
        (703, 2, [1, 1, 2, 2]),
        (705, 3, [1, 1, 2, 2]),
    ] {
        assert_eq!(
            set(operation, name, 15, &[graph_tensor(id, &sizes, false)]),
            0
        );
    }
    assert_eq!(set(operation, 700, 4, &[1_f32]), 0);
    assert_eq!(set(operation, 701, 5, &[0_f64]), 0);
    let plan = plan(handle, operation);
    let images: Vec<f32> = (1..=9).map(|of| of as f32).collect();
    let (x, w, y) = (
        upload(&images),
        upload(&[1.0, 0.0, 0.0, -1.0]),
        upload(&[9.0; 4]),
    );
    ok!(cudnnBackendExecute(
        handle,
        plan,
        pack(&[3, 2, 1], &[y, w, x])
    ));
    assert_eq!(download(y, 4), [-4.0; 4]);
}

#[test]
fn wrong_attributes_are_refused() {
    let tensor = backend(17);
    assert_eq!(call!(cudnnBackendFinalize(tensor)), BAD_PARAM);
    let value = 0_u64;
    let set =
        |kind: c_int, count: i64| call!(cudnnBackendSetAttribute(tensor, 906, kind, count, &value));
    assert_eq!((set(3, -1), set(3, i64::MAX)), (BAD_PARAM, BAD_PARAM));
    assert_eq!(set(99, 1), 2010);
    let mut made: Raw = null_mut();
    assert_eq!(
        call!(cudnnBackendCreateDescriptor(51, &mut made)),
        BAD_PARAM
    );
    assert_eq!(
        call!(cudnnBackendCreateDescriptor(19, &mut made)),
        NOT_SUPPORTED
    );
    ok!(cudnnBackendDestroyDescriptor(tensor));
    assert_eq!(call!(cudnnBackendDestroyDescriptor(tensor)), BAD_PARAM);
}
