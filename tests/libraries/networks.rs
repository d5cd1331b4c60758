// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that use cuDNN: the old API through cudarc's safe wrapper, which is another project's, and the
//! backend by its symbols. Numbers are small integers, so that results are exact.

use std::{
    ffi::{c_int, c_void},
    fmt::Debug,
    ptr::null_mut,
    sync::{Arc, OnceLock},
};

use cudarc::{
    cudnn::{ConvForward, Cudnn, CudnnDataType, sys},
    driver::{CudaContext, CudaSlice, CudaStream, DevicePtrMut, DeviceRepr, ValidAsZeroBits},
};
use libloading::Library;

use sys::{
    cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION as CORRELATION,
    cudnnTensorFormat_t::CUDNN_TENSOR_NCHW as PLANES,
};

/// Statuses of cuDNN.
const SUCCESS: c_int = 0;
const BAD_PARAM: c_int = 2000;
const NULL_POINTER: c_int = 2002;
const NOT_FINALIZED: c_int = 2004;
const ATTRIBUTE_TYPE: c_int = 2010;
const DESCRIPTOR_TYPE: c_int = 2012;
const NOT_SUPPORTED: c_int = 3000;

/// Numbers from -4 to 4.
fn numbers(count: usize, seed: i64) -> Vec<i16> {
    let number = |at: i64| ((at * 7 + seed * 5 + at * at * seed) % 9) as i16;
    let all = (0..count as i64).map(number);
    all.map(|number| (number + 9) % 9 - 4).collect()
}

/// A two-dimensional convolution.
struct Shape {
    images: usize,
    groups: usize,
    /// The channels and filters of a group.
    channels: usize,
    filters: usize,
    image: [usize; 2],
    window: [usize; 2],
    padding: usize,
    stride: usize,
    dilation: usize,
}

impl Shape {
    const ALL: [Self; 3] = [
        Self {
            images: 1,
            groups: 1,
            channels: 1,
            filters: 1,
            image: [3, 3],
            window: [2, 2],
            padding: 0,
            stride: 1,
            dilation: 1,
        },
        Self {
            images: 2,
            groups: 1,
            channels: 3,
            filters: 4,
            image: [7, 5],
            window: [3, 3],
            padding: 1,
            stride: 2,
            dilation: 1,
        },
        Self {
            images: 2,
            groups: 2,
            channels: 2,
            filters: 1,
            image: [6, 9],
            window: [2, 3],
            padding: 2,
            stride: 1,
            dilation: 2,
        },
    ];

    fn output(&self) -> [usize; 2] {
        let size = |at: usize| {
            let reach = self.dilation * (self.window[at] - 1) + 1;
            (self.image[at] + 2 * self.padding - reach) / self.stride + 1
        };
        [size(0), size(1)]
    }

    fn x(&self) -> [usize; 4] {
        let [h, w] = self.image;
        [self.images, self.groups * self.channels, h, w]
    }

    fn w(&self) -> [usize; 4] {
        let [h, w] = self.window;
        [self.groups * self.filters, self.channels, h, w]
    }

    fn y(&self) -> [usize; 4] {
        let [h, w] = self.output();
        [self.images, self.groups * self.filters, h, w]
    }

    /// The result of the convolution.
    fn convolve(&self, x: &[i16], w: &[i16]) -> Vec<i16> {
        let [_, all, h, v] = self.x();
        let [filters, channels, rows, columns] = self.w();
        let mut y = Vec::new();
        let [images, _, out_h, out_w] = self.y();
        for image in 0..images {
            for filter in 0..filters {
                let first = filter / self.filters * channels;
                for (row, column) in (0..out_h).flat_map(|r| (0..out_w).map(move |c| (r, c))) {
                    let mut sum = 0;
                    for channel in 0..channels {
                        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                            let at = |out: usize, of: usize, size: usize| {
                                let at = out * self.stride + of * self.dilation;
                                at.checked_sub(self.padding).filter(|at| *at < size)
                            };
                            if let (Some(r), Some(c)) = (at(row, i, h), at(column, j, v)) {
                                let plane = image * all + first + channel;
                                let tap = (filter * channels + channel) * rows + i;
                                sum += x[(plane * h + r) * v + c] * w[tap * columns + j];
                            }
                        }
                    }
                    y.push(sum);
                }
            }
        }
        y
    }
}

trait Number:
    CudnnDataType + DeviceRepr + ValidAsZeroBits + From<i16> + Copy + PartialEq + Debug
{
}
impl Number for f32 {}
impl Number for f64 {}

fn from<T: Number>(values: &[i16]) -> Vec<T> {
    values.iter().copied().map(T::from).collect()
}

fn ints<const N: usize>(of: [usize; N]) -> [c_int; N] {
    of.map(|of| of as c_int)
}

fn convolve<T: Number>(dnn: &Arc<Cudnn>, stream: &Arc<CudaStream>, seed: i64) {
    for shape in Shape::ALL {
        let count = |of: [usize; 4]| of.iter().product::<usize>();
        let (x, w) = (
            numbers(count(shape.x()), seed),
            numbers(count(shape.w()), seed + 1),
        );
        let before = numbers(count(shape.y()), seed + 2);
        let right = shape.convolve(&x, &w);
        let right: Vec<i16> = right
            .into_iter()
            .zip(&before)
            .map(|(y, before)| 2 * y - before)
            .collect();
        let [padding, stride, dilation] =
            [shape.padding, shape.stride, shape.dilation].map(|of| [of as c_int; 2]);
        let how = dnn.create_conv2d::<T>(padding, stride, dilation, CORRELATION);
        let mut how = how.unwrap();
        how.set_group_count(shape.groups as c_int).unwrap();
        let of_x = dnn.create_4d_tensor::<T>(PLANES, ints(shape.x())).unwrap();
        let of_w = dnn.create_4d_filter::<T>(PLANES, ints(shape.w())).unwrap();
        let of_y = dnn.create_4d_tensor::<T>(PLANES, ints(shape.y())).unwrap();
        let forward = ConvForward {
            conv: &how,
            x: &of_x,
            w: &of_w,
            y: &of_y,
        };
        let algorithm = forward.pick_algorithm().unwrap();
        let room = forward.get_workspace_size(algorithm).unwrap();
        let mut room = stream.alloc_zeros::<u8>(room.max(1)).unwrap();
        let on_device = |values: &[i16]| stream.clone_htod(&from::<T>(values)).unwrap();
        let (x, w, mut y) = (on_device(&x), on_device(&w), on_device(&before));
        let factors = (T::from(2), T::from(-1));
        // SAFETY: the tensors are as large as their descriptors say.
        unsafe { forward.launch(algorithm, Some(&mut room), factors, &x, &w, &mut y) }.unwrap();
        assert_eq!(stream.clone_dtoh(&y).unwrap(), from::<T>(&right));
    }
}

/// Convolutions in both precisions, whose factors have different widths, from two threads.
pub fn convolutions() {
    let context = CudaContext::new(0).unwrap();
    let run = |seed: i64| {
        let stream = context.new_stream().unwrap();
        let dnn = Cudnn::new(stream.clone()).unwrap();
        for round in 0..3 {
            convolve::<f32>(&dnn, &stream, seed + round);
            convolve::<f64>(&dnn, &stream, seed + round);
        }
    };
    std::thread::scope(|scope| {
        for seed in [1, 5] {
            scope.spawn(move || run(seed));
        }
    });
    run(9);
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    // SAFETY: the initialisers of the library are this project's own.
    LIBRARY.get_or_init(|| unsafe { Library::new("libcudnn.so.9") }.unwrap())
}

type Raw = *mut c_void;

/// Calls a function of cuDNN. The parameters have the arguments' types, which must be as wide as C's.
macro_rules! dnn {
    (@any $a:expr) => { _ };
    ($name:ident($($a:expr),* $(,)?)) => {{
        // SAFETY: the function takes such arguments; pointers are NULL or valid, and the rest is refused where it is
        // wrong.
        unsafe {
            let function = library().get::<unsafe extern "C" fn($(dnn!(@any $a)),*) -> c_int>(stringify!($name).as_bytes());
            function.unwrap()($($a),*)
        }
    }};
}

fn made(create: impl FnOnce(&mut Raw) -> c_int) -> Raw {
    let mut made = null_mut();
    assert_eq!(create(&mut made), SUCCESS);
    made
}

fn handle() -> Raw {
    made(|to| dnn!(cudnnCreate(std::ptr::from_mut(to))))
}

fn backend(kind: c_int) -> Raw {
    made(|to| dnn!(cudnnBackendCreateDescriptor(kind, std::ptr::from_mut(to))))
}

fn set<T>(of: Raw, name: c_int, kind: c_int, values: &[T]) -> c_int {
    let (count, from) = (values.len() as i64, values.as_ptr());
    dnn!(cudnnBackendSetAttribute(of, name, kind, count, from))
}

#[track_caller]
fn has<T>(of: Raw, name: c_int, kind: c_int, values: &[T]) {
    assert_eq!(set(of, name, kind, values), SUCCESS, "attribute {name}");
}

#[track_caller]
fn finalize(of: Raw) -> Raw {
    assert_eq!(dnn!(cudnnBackendFinalize(of)), SUCCESS);
    of
}

fn tensor(id: i64, sizes: &[usize], is_by_value: bool) -> Raw {
    let sizes: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
    let strides: Vec<i64> = (0..sizes.len())
        .map(|at| sizes[at + 1..].iter().product())
        .collect();
    tensor_with(id, &sizes, &strides, is_by_value)
}

fn tensor_with(id: i64, sizes: &[i64], strides: &[i64], is_by_value: bool) -> Raw {
    let tensor = backend(17);
    has(tensor, 901, 1, &[0_i32]);
    has(tensor, 902, 3, sizes);
    has(tensor, 903, 3, strides);
    has(tensor, 906, 3, &[id]);
    has(tensor, 900, 3, &[16_i64]);
    has(tensor, 908, 2, &[is_by_value]);
    finalize(tensor)
}

fn graph(handle: Raw, operation: Raw) -> Raw {
    let graph = backend(15);
    has(graph, 800, 0, &[handle]);
    has(graph, 801, 15, &[finalize(operation)]);
    finalize(graph)
}

fn count(of: Raw, name: c_int, kind: c_int) -> i64 {
    let mut count = -1_i64;
    let (to, nowhere) = (&raw mut count, null_mut::<c_void>());
    let asked = dnn!(cudnnBackendGetAttribute(of, name, kind, 0_i64, to, nowhere));
    assert_eq!(asked, SUCCESS);
    count
}

/// The configurations that a mode of the heuristics finds, with all of their descriptors.
fn configurations(graph: Raw, mode: i32) -> (Vec<Raw>, Vec<Raw>) {
    let heuristics = backend(4);
    has(heuristics, 201, 15, &[graph]);
    has(heuristics, 200, 8, &[mode]);
    finalize(heuristics);
    let all = count(heuristics, 202, 15);
    let (mut configs, mut given): (Vec<Raw>, _) = ((0..all).map(|_| backend(3)).collect(), -1_i64);
    let (to, results) = (&raw mut given, configs.as_mut_ptr());
    let asked = dnn!(cudnnBackendGetAttribute(
        heuristics, 202, 15, all, to, results
    ));
    assert_eq!(asked, SUCCESS);
    // The earlier count is an upper bound: NVIDIA's library can leave some of them out.
    assert!((0..=all).contains(&given), "{given} of {all}");
    let found = configs[..given as usize].to_vec();
    configs.push(heuristics);
    (found, configs)
}

/// A plan of a graph, made from the first configuration of the heuristics that works, and the size of its workspace.
fn plan(handle: Raw, graph: Raw) -> (Raw, usize) {
    find_plan(handle, graph).unwrap_or_else(|refusals| panic!("no engine: {refusals:?}"))
}

/// The same; returns the engines' errors if none can do it.
fn find_plan(handle: Raw, graph: Raw) -> Result<(Raw, usize), Vec<c_int>> {
    // `CUDNN_HEUR_MODE_INSTANT` and `CUDNN_HEUR_MODE_FALLBACK`.
    let (configs, others): (Vec<_>, Vec<_>) = [0, 2]
        .into_iter()
        .map(|mode| configurations(graph, mode))
        .unzip();
    let mut refusals = vec![];
    let plans = configs.iter().flatten().find_map(|config| {
        let plan = backend(5);
        has(plan, 400, 0, &[handle]);
        has(plan, 401, 15, &[*config]);
        match dnn!(cudnnBackendFinalize(plan)) {
            SUCCESS => Some(plan),
            // This engine cannot do it; the next one may.
            refused => {
                assert!((3000..4000).contains(&refused), "{refused}");
                refusals.push(refused);
                None
            }
        }
    });
    for of in others.iter().flatten().chain([&graph]) {
        assert_eq!(dnn!(cudnnBackendDestroyDescriptor(*of)), SUCCESS);
    }
    let plan = plans.ok_or(refusals)?;
    let mut bytes = -1_i64;
    let (to, nowhere) = (&raw mut bytes, null_mut::<i64>());
    let asked = dnn!(cudnnBackendGetAttribute(plan, 402, 3, 1_i64, nowhere, to));
    assert_eq!(asked, SUCCESS);
    Ok((plan, bytes as usize))
}

/// The text of a plan.
fn text(plan: Raw) -> Vec<u8> {
    let all = count(plan, 405, 24);
    let mut text = vec![0_u8; all as usize];
    let (mut length, to) = (0_i64, text.as_mut_ptr());
    let length_to = &raw mut length;
    let asked = dnn!(cudnnBackendGetAttribute(plan, 405, 24, all, length_to, to));
    assert_eq!(asked, SUCCESS);
    assert!((1..=all).contains(&length), "{length} of {all}");
    assert!(text.contains(&b'{'), "{}", text.escape_ascii());
    text.truncate(length as usize);
    text
}

/// A plan that is made from a text.
fn from_text(handle: Raw, text: &[u8]) -> Raw {
    let plan = backend(5);
    has(plan, 405, 24, text);
    has(plan, 400, 0, &[handle]);
    finalize(plan)
}

fn pack(ids: &[i64], pointers: &[u64], room: u64) -> Raw {
    let pack = backend(16);
    has(pack, 1001, 6, pointers);
    has(pack, 1000, 3, ids);
    has(pack, 1003, 6, &[room]);
    finalize(pack)
}

fn execute(handle: Raw, plan: Raw, pack: Raw) -> c_int {
    dnn!(cudnnBackendExecute(handle, plan, pack))
}

/// A slice's address, for calls in its stream.
fn address(of: &mut CudaSlice<f32>, stream: &CudaStream) -> u64 {
    of.device_ptr_mut(stream).0
}

fn convolution(shape: &Shape) -> Raw {
    let how = backend(1);
    has(how, 100, 1, &[0_i32]);
    has(how, 101, 7, &[1_i32]);
    has(how, 106, 3, &[2_i64]);
    let sizes = [shape.dilation, shape.stride, shape.padding, shape.padding];
    for (name, value) in (102..).zip(sizes) {
        has(how, name, 3, &[value as i64; 2]);
    }
    finalize(how);
    let operation = backend(10);
    has(operation, 702, 15, &[how]);
    for (name, id, sizes) in [
        (704, 1, shape.x()),
        (703, 2, shape.w()),
        (705, 3, shape.y()),
    ] {
        has(operation, name, 15, &[tensor(id, &sizes, false)]);
    }
    has(operation, 700, 4, &[1_f32]);
    has(operation, 701, 4, &[0_f32]);
    operation
}

/// The rounded numbers of a result: some engines transform their tensors, and their results are not exact.
fn rounded(stream: &Arc<CudaStream>, of: &CudaSlice<f32>) -> Vec<i16> {
    let near = |value: &f32| {
        let whole = value.round();
        assert!((value - whole).abs() < 0.01, "{value}");
        whole as i16
    };
    stream.clone_dtoh(of).unwrap().iter().map(near).collect()
}

/// Executes a plan of a convolution and checks the result.
fn check(
    stream: &Arc<CudaStream>,
    handle: Raw,
    shape: &Shape,
    (plan, room): (Raw, u64),
    seed: i64,
) {
    let count = |of: [usize; 4]| of.iter().product::<usize>();
    let x = numbers(count(shape.x()), seed);
    let w = numbers(count(shape.w()), seed + 1);
    let right = shape.convolve(&x, &w);
    let mut x = stream.clone_htod(&from::<f32>(&x)).unwrap();
    let mut w = stream.clone_htod(&from::<f32>(&w)).unwrap();
    let mut y = stream.alloc_zeros::<f32>(right.len()).unwrap();
    let at = [&mut y, &mut w, &mut x].map(|of| address(of, stream));
    let pack = pack(&[3, 2, 1], &at, room);
    assert_eq!(execute(handle, plan, pack), SUCCESS);
    assert_eq!(dnn!(cudnnBackendDestroyDescriptor(pack)), SUCCESS);
    assert_eq!(rounded(stream, &y), right);
}

/// A query into a configuration that a plan has, about another graph, changes neither the plan nor the kept one.
fn query_again(stream: &Arc<CudaStream>, handle: Raw) {
    let [one, other] = [0, 1].map(|at| graph(handle, convolution(&Shape::ALL[at])));
    let ((mut configs, _), (_, others)) = (configurations(one, 0), configurations(other, 0));
    let plan = backend(5);
    has(plan, 400, 0, &[handle]);
    has(plan, 401, 15, &configs[..1]);
    let (heuristics, nowhere) = (*others.last().unwrap(), null_mut::<i64>());
    let to = configs.as_mut_ptr();
    let asked = dnn!(cudnnBackendGetAttribute(
        heuristics, 202, 15, 1_i64, nowhere, to
    ));
    assert_eq!(asked, SUCCESS);
    check(stream, handle, &Shape::ALL[0], (finalize(plan), 0), 9);
}

/// Builds plans, executes them, and reads their attributes back.
pub fn kept() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let handle = handle();
    assert_eq!(dnn!(cudnnSetStream(handle, stream.cu_stream())), SUCCESS);
    // Before a plan is kept.
    query_again(&stream, handle);
    for shape in Shape::ALL {
        let (plan, bytes) = plan(handle, graph(handle, convolution(&shape)));
        assert_eq!(bytes, 0);
        check(&stream, handle, &shape, (plan, 0), 5);
        // The configuration is one from which a plan can be made.
        let mut config = backend(3);
        let (nowhere, to) = (null_mut::<i64>(), &raw mut config);
        let asked = dnn!(cudnnBackendGetAttribute(plan, 401, 15, 1_i64, nowhere, to));
        assert_eq!(asked, SUCCESS);
        let again = backend(5);
        has(again, 400, 0, &[handle]);
        has(again, 401, 15, &[config]);
        finalize(again);
        // A query into a descriptor that the plan has leaves the plan as it is.
        let asked = dnn!(cudnnBackendGetAttribute(plan, 401, 15, 1_i64, nowhere, to));
        assert_eq!((asked, count(plan, 401, 15)), (SUCCESS, 1));
        check(&stream, handle, &shape, (again, 0), 6);
        check(&stream, handle, &shape, (plan, 0), 7);
        let copy = from_text(handle, &text(plan));
        for plan in [plan, again] {
            assert_eq!(dnn!(cudnnBackendDestroyDescriptor(plan)), SUCCESS);
        }
        check(&stream, handle, &shape, (copy, 0), 8);
    }
    let (plan, graph) = (backend(5), backend(15));
    has(plan, 400, 0, &[handle]);
    has(graph, 800, 0, &[handle]);
    has(graph, 801, 15, &[finalize(convolution(&Shape::ALL[0]))]);
    assert_eq!(dnn!(cudnnDestroy(handle)), SUCCESS);
    // The library would use the handle.
    for of in [plan, graph] {
        assert_eq!(dnn!(cudnnBackendFinalize(of)), BAD_PARAM);
    }
}

/// Convolutions and products as graphs, from their tensors to executions that are posts.
pub fn graphs() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let handle = handle();
    let to = stream.cu_stream();
    assert_eq!(dnn!(cudnnSetStream(handle, to)), SUCCESS);
    for shape in Shape::ALL {
        let (plan, bytes) = plan(handle, graph(handle, convolution(&shape)));
        let mut room = stream.alloc_zeros::<f32>(bytes / 4 + 1).unwrap();
        let room = address(&mut room, &stream);
        // A plan that is made from another one's text computes the same.
        let plan = from_text(handle, &text(plan));
        for seed in 0..4 {
            check(&stream, handle, &shape, (plan, room), seed);
        }
    }

    // A factor at an address of the program, which is read at each execution. NVIDIA's engines only support some shapes
    // and strides.
    let shapes: [([i64; 4], [i64; 4]); 4] = [
        ([1, 2, 2, 3], [12, 6, 3, 1]),
        ([1, 16, 8, 8], [1024, 64, 8, 1]),
        ([1, 16, 8, 8], [1024, 1, 128, 16]),
        ([8, 64, 32, 32], [65536, 1, 2048, 64]),
    ];
    let scaled = |(sizes, strides): &([i64; 4], [i64; 4])| {
        let pointwise = backend(0);
        has(pointwise, 0, 14, &[1_i32]);
        has(pointwise, 1, 1, &[0_i32]);
        finalize(pointwise);
        let operation = backend(13);
        let whole = |id| tensor_with(id, sizes, strides, false);
        has(operation, 750, 15, &[pointwise]);
        has(operation, 751, 15, &[whole(1)]);
        has(operation, 752, 15, &[tensor(2, &[1, 1, 1, 1], true)]);
        has(operation, 753, 15, &[whole(3)]);
        let found = find_plan(handle, graph(handle, operation));
        found.map(|plan| (plan, sizes.iter().product::<i64>() as usize))
    };
    let found: Vec<_> = shapes.iter().map(scaled).collect();
    let said = format!("{found:?}");
    let ((plan, bytes), numbers_of_x) = found.into_iter().find_map(Result::ok).expect(&said);
    // It has the same tensors by value.
    let plan = from_text(handle, &text(plan));
    let mut room = stream.alloc_zeros::<f32>(bytes / 4 + 1).unwrap();
    let room = address(&mut room, &stream);
    let values = numbers(numbers_of_x, 3);
    let mut x = stream.clone_htod(&from::<f32>(&values)).unwrap();
    let mut y = stream.alloc_zeros::<f32>(numbers_of_x).unwrap();
    let [x, at_y] = [&mut x, &mut y].map(|of| address(of, &stream));
    for factor in [3_i16, -2, 7, 0, 5] {
        let mut value = f32::from(factor);
        let pack = pack(&[1, 2, 3], &[x, (&raw const value) as u64, at_y], room);
        assert_eq!(execute(handle, plan, pack), SUCCESS);
        // The execution already has its own copy.
        value += 1.0;
        assert_ne!(value, f32::from(factor));
        let right: Vec<i16> = values.iter().map(|value| value * factor).collect();
        assert_eq!(rounded(&stream, &y), right);
    }
    assert_eq!(dnn!(cudnnDestroy(handle)), SUCCESS);
}

/// Queries of descriptors, and uses of invalid or unfinished ones.
pub fn refusals() {
    // SAFETY: it takes nothing.
    let version = unsafe {
        let version = library().get::<unsafe extern "C" fn() -> usize>(b"cudnnGetVersion");
        version.unwrap()()
    };
    assert!(version / 10_000 == 9, "{version}");
    let mut minor = -1;
    assert_eq!(dnn!(cudnnGetProperty(1, &raw mut minor)), SUCCESS);
    assert_eq!(minor as usize, version / 100 % 100);
    let mut context = null_mut();
    // SAFETY: the pointers are to values that live across the calls.
    unsafe {
        use cudarc::driver::sys::*;
        assert_eq!(cuInit(0), CUresult::CUDA_SUCCESS);
        assert_eq!(
            cuDevicePrimaryCtxRetain(&mut context, 0),
            CUresult::CUDA_SUCCESS
        );
        assert_eq!(cuCtxSetCurrent(context), CUresult::CUDA_SUCCESS);
    }
    let handle = handle();
    let one = made(|to| dnn!(cudnnCreateTensorDescriptor(std::ptr::from_mut(to))));
    let other = made(|to| dnn!(cudnnCreateTensorDescriptor(std::ptr::from_mut(to))));
    let told = |of: Raw| {
        let (mut data, mut count) = (-1, -1);
        let (mut sizes, mut strides) = ([-1; 8], [-1; 8]);
        let (to, number) = (&raw mut data, &raw mut count);
        let (first, second) = (sizes.as_mut_ptr(), strides.as_mut_ptr());
        let said = dnn!(cudnnGetTensorNdDescriptor(of, 8, to, number, first, second));
        (said == SUCCESS).then(|| (data, sizes[..4].to_vec(), strides[..4].to_vec(), count))
    };
    // The same again, and a different one, of both kinds.
    for round in 0..3 {
        for (of, n) in [(one, 2), (other, 3), (one, 4), (other, 3)] {
            let set = dnn!(cudnnSetTensor4dDescriptor(of, 0, round % 2, n, 3, 4, 5));
            assert_eq!(set, SUCCESS);
            let right = (round % 2, vec![n, 3, 4, 5], vec![60, 20, 5, 1], 4);
            assert_eq!(told(of), Some(right));
            // A refused call changes nothing.
            let wrong = dnn!(cudnnSetTensor4dDescriptor(of, 0, round % 2, n, 0, 4, 5));
            assert_eq!(wrong, BAD_PARAM);
            assert_eq!(told(of).map(|told| told.1[0]), Some(n));
            let sizes = [1_i32; 9];
            let (from, count) = (sizes.as_ptr(), 9);
            let wrong = dnn!(cudnnSetTensorNdDescriptor(of, 0, count, from, from));
            assert_eq!(wrong, NOT_SUPPORTED);
        }
    }
    let bits = |of: f64| {
        let descriptor = made(|to| dnn!(cudnnCreateActivationDescriptor(std::ptr::from_mut(to))));
        assert_eq!(
            dnn!(cudnnSetActivationDescriptor(descriptor, 3, 0, of)),
            SUCCESS
        );
        let (mut mode, mut nan, mut told) = (-1, -1, -1_f64);
        let to = (&raw mut mode, &raw mut nan, &raw mut told);
        let said = dnn!(cudnnGetActivationDescriptor(descriptor, to.0, to.1, to.2));
        assert_eq!((said, mode, nan), (SUCCESS, 3, 0));
        told
    };
    assert_eq!([6.0, 7.5, 6.0].map(bits), [6.0, 7.5, 6.0]);

    assert_eq!(dnn!(cudnnDestroyTensorDescriptor(other)), SUCCESS);
    // A call is refused even if its arguments were accepted before.
    for _ in 0..2 {
        let set = dnn!(cudnnSetTensor4dDescriptor(other, 0, 0, 3, 3, 4, 5));
        assert_eq!(set, BAD_PARAM);
    }
    let none = |at: usize| at as Raw;
    for none in [other, null_mut(), handle, none(1), none(usize::MAX)] {
        assert_eq!(told(none), None);
        let right = if none.is_null() {
            NULL_POINTER
        } else {
            BAD_PARAM
        };
        assert_eq!(dnn!(cudnnBackendFinalize(none)), right);
        assert_eq!(dnn!(cudnnBackendDestroyDescriptor(none)), right);
        assert_eq!(set(none, 906, 3, &[1_i64]), right);
        if none != handle {
            assert_eq!(dnn!(cudnnSetStream(none, null_mut::<c_void>())), BAD_PARAM);
        }
    }

    let tensor = backend(17);
    assert_eq!(dnn!(cudnnBackendFinalize(tensor)), BAD_PARAM);
    assert_eq!(set(tensor, 906, 99, &[1_i64]), ATTRIBUTE_TYPE);
    assert_eq!(set(tensor, 906, 6, &[1_i64]), NOT_SUPPORTED);
    let operation = backend(13);
    // Unfinalised descriptors are refused, and so is a cycle.
    assert_eq!(set(operation, 751, 15, &[tensor]), NOT_FINALIZED);
    assert_eq!(set(operation, 751, 15, &[operation]), DESCRIPTOR_TYPE);
    assert_eq!(set(operation, 751, 15, &[null_mut::<c_void>()]), BAD_PARAM);
    let good = self::tensor(5, &[2, 2], false);
    assert_eq!(set(good, 906, 3, &[6_i64]), BAD_PARAM);
    assert_eq!(dnn!(cudnnBackendFinalize(good)), BAD_PARAM);
    // A program must skip an engine that does not exist.
    let graph = graph(handle, convolution(&Shape::ALL[0]));
    let engine = backend(2);
    has(engine, 1300, 15, &[graph]);
    has(engine, 1301, 3, &[1_i64 << 20]);
    let refused = dnn!(cudnnBackendFinalize(engine));
    assert!((BAD_PARAM..4000).contains(&refused), "{refused}");
    let (plan, _) = plan(handle, graph);
    // Texts that the library has not returned, or only in part, are refused.
    let text = text(plan);
    let part = &text[..text.len() / 2];
    let other = [&text[..text.len() - 1], b" }"].concat();
    for wrong in [b"{\"plan\": 0}", part, &other, b"", &vec![b' '; 70_000]] {
        assert_eq!(set(backend(5), 405, 24, wrong), NOT_SUPPORTED);
    }
    assert_eq!(set(backend(4), 405, 24, &text), BAD_PARAM);
    let pack = pack(&[1, 2], &[0x1000, 0x2000], 0);
    // A tensor is missing.
    assert_ne!(execute(handle, plan, pack), SUCCESS);
    assert_eq!(execute(handle, pack, plan), BAD_PARAM);
    assert_eq!(execute(handle, backend(5), pack), NOT_FINALIZED);
    assert_eq!(execute(handle, plan, backend(16)), NOT_FINALIZED);
    // The calls were refused at once, so no error is left.
    // SAFETY: it takes nothing.
    let after = unsafe { cudarc::driver::sys::cuCtxSynchronize() };
    assert_eq!(after, cudarc::driver::sys::CUresult::CUDA_SUCCESS);
    assert_eq!(dnn!(cudnnDestroy(handle)), SUCCESS);
    assert_eq!(dnn!(cudnnDestroy(handle)), BAD_PARAM);
}
