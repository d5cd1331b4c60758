// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest's program that uses cuBLASLt as frameworks do, and as none should.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};

use crate::device::upload;
use crate::symbols::{
    Blas, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, alloc, begin, cuda, new_stream, synchronize,
};

const NOT_SUPPORTED: u32 = 15;
/// Attributes of an operation.
const POINTER_MODE: u64 = 2;
const TRANSPOSE_A: u64 = 3;
const EPILOGUE: u64 = 7;
const BIAS: u64 = 8;
/// Rows of the result, columns of it, and the length of the sum.
const SHAPE: [usize; 3] = [12, 7, 20];

fn address<T: ?Sized>(of: &T) -> u64 {
    std::ptr::from_ref(of).cast::<c_void>() as u64
}

/// A `cublasLtMatmulHeuristicResult_t`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
struct Found {
    algorithm: [u64; 8],
    workspace: u64,
    state: u32,
    waves: f32,
    reserved: [u32; 4],
}

const NOTHING: Found = Found {
    algorithm: [0; 8],
    workspace: 99,
    state: 99,
    waves: 0.0,
    reserved: [0; 4],
};

fn set<T>(lt: &Blas, kind: &str, of: u64, attribute: u64, value: T) {
    let bytes = size_of::<T>() as u64;
    let words = [of, attribute, address(&value), bytes];
    let name = format!("cublasLt{kind}SetAttribute");
    assert_eq!(lt.call(&name, &words), SUCCESS, "{name} {attribute}");
}

fn make(lt: &Blas, name: &str, words: &[u64]) -> u64 {
    let mut made = 0_u64;
    let mut all = vec![(&raw mut made) as u64];
    all.extend_from_slice(words);
    assert_eq!(lt.call(name, &all), SUCCESS, "{name}");
    made
}

/// A layer with a bias and a ReLU, whose weights are transposed, and its matrices' layouts.
struct Layer {
    operation: u64,
    layouts: [u64; 4],
    at: [u64; 3],
}

impl Layer {
    fn new(lt: &Blas, bias: u64, at: [u64; 3]) -> Self {
        let [m, n, k] = SHAPE.map(|size| size as u64);
        let layout =
            |rows, columns| make(lt, "cublasLtMatrixLayoutCreate", &[0, rows, columns, rows]);
        let operation = make(lt, "cublasLtMatmulDescCreate", &[68, 0]);
        set(lt, "MatmulDesc", operation, TRANSPOSE_A, 1_u32);
        set(lt, "MatmulDesc", operation, EPILOGUE, 6_u32);
        set(lt, "MatmulDesc", operation, BIAS, bias);
        let result = layout(m, n);
        Self {
            operation,
            layouts: [layout(k, m), layout(k, n), result, result],
            at,
        }
    }

    fn end(self, lt: &Blas) {
        let [a, b, c, _] = self.layouts;
        let name = "cublasLtMatmulDescDestroy";
        assert_eq!(lt.call(name, &[self.operation]), SUCCESS);
        for layout in [a, b, c] {
            assert_eq!(lt.call("cublasLtMatrixLayoutDestroy", &[layout]), SUCCESS);
        }
    }

    fn find(&self, lt: &Blas, handle: u64) -> (u32, Found, u32) {
        let preference = make(lt, "cublasLtMatmulPreferenceCreate", &[]);
        set(lt, "MatmulPreference", preference, 1, 1_u64 << 20);
        let (mut found, mut count) = (NOTHING, 99_u32);
        let [a, b, c, d] = self.layouts;
        let (results, counted) = ((&raw mut found) as u64, (&raw mut count) as u64);
        let words = [
            handle,
            self.operation,
            a,
            b,
            c,
            d,
            preference,
            1,
            results,
            counted,
        ];
        let status = lt.call("cublasLtMatmulAlgoGetHeuristic", &words);
        assert_eq!(
            lt.call("cublasLtMatmulPreferenceDestroy", &[preference]),
            SUCCESS
        );
        (status, found, count)
    }

    fn run(&self, lt: &Blas, handle: u64, scalars: [u64; 2], algorithm: u64, stream: u64) -> u32 {
        let ([a, b, d], [of_a, of_b, of_c, of_d]) = (self.at, self.layouts);
        let [alpha, beta] = scalars;
        let words = [
            handle,
            self.operation,
            alpha,
            a,
            of_a,
            b,
            of_b,
            beta,
            d,
            of_c,
            d,
            of_d,
            algorithm,
            0,
            0,
            stream,
        ];
        lt.call("cublasLtMatmul", &words)
    }
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let number = |at: usize| ((at * 7 + seed * 5 + at * at * seed) % 9) as f32 - 4.0;
    (0..count).map(number).collect()
}

fn expected(weights: &[f32], x: &[f32], bias: &[f32], alpha: f32) -> Vec<f32> {
    let [m, n, k] = SHAPE;
    let places = (0..n).flat_map(|column| (0..m).map(move |row| (row, column)));
    let value = |(row, column): (usize, usize)| {
        let sum: f32 = (0..k)
            .map(|at| weights[row * k + at] * x[column * k + at])
            .sum();
        (alpha * sum + bias[row]).max(0.0)
    };
    places.map(value).collect()
}

/// Products by handles of both libraries, with and without an algorithm, while descriptors come and go.
pub fn run() {
    begin();
    let (lt, blas) = (Blas::open_file("libcublasLt.so.13"), Blas::open());
    let [m, n, k] = SHAPE;
    let mut own = 0_u64;
    assert_eq!(lt.call("cublasLtCreate", &[(&raw mut own) as u64]), SUCCESS);
    let other = blas.create().unwrap();
    let stream = new_stream() as u64;
    let (weights, x, bias) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m, 3));
    let at = [upload(&weights), upload(&x), alloc(4 * m * n)];
    let layer = Layer::new(&lt, upload(&bias), at);
    let zero = 0_f32;
    let check = |handle: u64, alpha: f32, algorithm: u64, stream: u64| {
        cuda!(cuMemsetD8_v2(at[2], 0xff, 4 * m * n));
        // The stream waits for no other.
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        // The program's scalar is read by the call.
        let mut scalar = alpha;
        let scalars = [(&raw mut scalar) as u64, address(&zero)];
        let status = layer.run(&lt, handle, scalars, algorithm, stream);
        scalar = f32::NAN;
        std::hint::black_box(&scalar);
        assert_eq!(status, SUCCESS);
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        let mut got = vec![0_f32; m * n];
        cuda!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), at[2], 4 * m * n));
        assert_eq!(got, expected(&weights, &x, &bias, alpha));
    };
    for handle in [own, other] {
        // The second time the answer is this library's own.
        let (status, found, count) = layer.find(&lt, handle);
        assert_eq!((status, found.state, count), (SUCCESS, 0, 1));
        assert_eq!(layer.find(&lt, handle), (SUCCESS, found, 1));
        for round in 0..4 {
            let alpha = round as f32 - 1.0;
            for algorithm in [0, address(&found.algorithm)] {
                for stream in [stream, 0] {
                    check(handle, alpha, algorithm, stream);
                }
            }
        }
    }

    check_scalars(&lt, &layer, own);
    check_refusals(&lt, &layer, own, stream);
    check_algorithms(&lt, &layer, own);
    check_transformation(&lt, other, stream);
    check(own, 2.0, 0, stream);

    assert_eq!(lt.call("cublasLtDestroy", &[own]), SUCCESS);
    assert_eq!(layer.find(&lt, own).0, NOT_INITIALIZED);
    let one = 1_f32;
    let gone = layer.run(&lt, own, [address(&one), address(&zero)], 0, 0);
    assert_eq!(gone, NOT_INITIALIZED);
    assert_eq!(lt.call("cublasLtDestroy", &[own]), NOT_INITIALIZED);
    // No library of this process has made these.
    for none in [0, 1, other | 0x60, other + (50 << 8)] {
        let (status, ..) = layer.find(&lt, none);
        assert_eq!(status, NOT_INITIALIZED, "{none:#x}");
        let status = layer.run(&lt, none, [address(&one), address(&zero)], 0, 0);
        assert_eq!(status, NOT_INITIALIZED, "{none:#x}");
    }
    check(other, 3.0, 0, stream);
    assert_eq!(blas.call("cublasDestroy_v2", &[other]), SUCCESS);
}

/// Scalars on the device, by the descriptor, in the program's own room for it.
fn check_scalars(lt: &Blas, layer: &Layer, handle: u64) {
    let on_device = upload(&[1.0, 0.0]);
    let mut room = [0xeeee_u64; 40];
    let raw = room.as_mut_ptr() as u64;
    let words = [raw, 256, 68, 0];
    assert_eq!(lt.call("cublasLtMatmulDescInit_internal", &words), SUCCESS);
    assert!(room[32..].iter().all(|word| *word == 0xeeee));
    set(lt, "MatmulDesc", raw, TRANSPOSE_A, 1_u32);
    set(lt, "MatmulDesc", raw, POINTER_MODE, 1_u32);
    // A copy is another descriptor, and the same.
    let copy = room;
    set(lt, "MatmulDesc", raw, POINTER_MODE, 77_u32);
    let scalars = [on_device, on_device + 4];
    for (operation, right) in [(address(&copy), SUCCESS), (raw, INVALID_VALUE)] {
        let layer = Layer {
            operation,
            ..*layer
        };
        for _ in 0..2 {
            assert_eq!(layer.run(lt, handle, scalars, 0, 0), right);
        }
    }
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
}

/// A refused call is refused every time.
fn check_refusals(lt: &Blas, layer: &Layer, handle: u64, stream: u64) {
    let (one, zero) = (1_f32, 0_f32);
    let scalars = [address(&one), address(&zero)];
    let small = make(lt, "cublasLtMatrixLayoutCreate", &[0, 2, 2, 2]);
    let doubles = make(lt, "cublasLtMatrixLayoutCreate", &[1, 20, 12, 20]);
    let [a, b, c, d] = layer.layouts;
    let garbage = [0x1234_u64; 8];
    for _ in 0..2 {
        for (layouts, right) in [
            ([a, b, small, small], INVALID_VALUE),
            ([a, b, c, 0], INVALID_VALUE),
            ([layer.operation, b, c, d], INVALID_VALUE),
            ([doubles, b, c, d], NOT_SUPPORTED),
        ] {
            let layer = Layer { layouts, ..*layer };
            assert_eq!(layer.run(lt, handle, scalars, 0, stream), right);
            assert_eq!(layer.find(lt, handle).0, right);
        }
        for scalars in [[0, scalars[1]], [scalars[0], 0]] {
            assert_eq!(layer.run(lt, handle, scalars, 0, stream), INVALID_VALUE);
        }
        let status = layer.run(lt, handle, scalars, address(&garbage), stream);
        assert_eq!(status, INVALID_VALUE);
        assert_eq!(layer.run(lt, handle, scalars, 0, 0x7777), INVALID_VALUE);
        assert_eq!(layer.run(lt, handle, scalars, 0, stream), SUCCESS);
    }
    for layout in [small, doubles] {
        assert_eq!(lt.call("cublasLtMatrixLayoutDestroy", &[layout]), SUCCESS);
    }
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
}

fn check_algorithms(lt: &Blas, layer: &Layer, handle: u64) {
    let mut version = 0_u32;
    let words = [0, (&raw mut version) as u64];
    assert_eq!(lt.call("cublasLtGetProperty", &words), SUCCESS);
    assert_eq!(version, 13);
    assert!(lt.call("cublasLtGetVersion", &[]) > 130_000);

    let (mut ids, mut count) = ([0_u32; 4], 0_u32);
    let (to, counted) = (ids.as_mut_ptr() as u64, (&raw mut count) as u64);
    let words = [handle, 68, 0, 0, 0, 0, 0, 4, to, counted];
    assert_eq!(lt.call("cublasLtMatmulAlgoGetIds", &words), SUCCESS);
    assert_eq!((ids, count), ([1, 0, 0, 0], 1));
    let mut algorithm = [0_u64; 8];
    let algo = algorithm.as_mut_ptr() as u64;
    let init = |id: u64| {
        let words = [handle, 68, 0, 0, 0, 0, 0, id, algo];
        lt.call("cublasLtMatmulAlgoInit", &words)
    };
    assert_eq!([init(7), init(1)], [INVALID_VALUE, SUCCESS]);

    // A repeated query has the same answer, for any right size of the room.
    let mut tiles = [0_u32; 8];
    let mut written = 0_u64;
    let (to, size) = (tiles.as_mut_ptr() as u64, (&raw mut written) as u64);
    for _ in 0..2 {
        for (room, right) in [
            (0, SUCCESS),
            (32, SUCCESS),
            (8, SUCCESS),
            (4, INVALID_VALUE),
        ] {
            let words = [algo, 6, to, room, size];
            let name = "cublasLtMatmulAlgoCapGetAttribute";
            assert_eq!(lt.call(name, &words), right, "{room}");
            assert_eq!(written, 8);
        }
    }
    assert_eq!(tiles[..3], [15, 20, 0]);
    let name = "cublasLtMatmulAlgoConfigSetAttribute";
    for tile in [15_u32, 20, 15, 20] {
        assert_eq!(lt.call(name, &[algo, 1, address(&tile), 4]), SUCCESS);
        let name = "cublasLtMatmulAlgoConfigGetAttribute";
        assert_eq!(lt.call(name, &[algo, 1, to, 4, size]), SUCCESS);
        assert_eq!(tiles[0], tile);
    }
    let wide = [0_u64; 4];
    for bytes in [0, 1, 2, 8, 9, 32] {
        let words = [algo, 1, address(&wide), bytes];
        assert_eq!(lt.call(name, &words), INVALID_VALUE, "{bytes}");
    }
    let mut found = NOTHING;
    let [a, b, c, d] = layer.layouts;
    let words = [
        handle,
        layer.operation,
        a,
        b,
        c,
        d,
        algo,
        (&raw mut found) as u64,
    ];
    for _ in 0..2 {
        assert_eq!(lt.call("cublasLtMatmulAlgoCheck", &words), SUCCESS);
        assert_eq!((found.state, found.workspace), (0, 0));
        assert_eq!(found.algorithm, [0; 8]);
    }
}

/// Rows to columns.
fn check_transformation(lt: &Blas, handle: u64, stream: u64) {
    let values = numbers(6, 4);
    let (from, to) = (upload(&values), alloc(24));
    let operation = make(lt, "cublasLtMatrixTransformDescCreate", &[0]);
    let columns = make(lt, "cublasLtMatrixLayoutCreate", &[0, 2, 3, 2]);
    let rows = make(lt, "cublasLtMatrixLayoutCreate", &[0, 2, 3, 3]);
    set(lt, "MatrixLayout", rows, 1, 1_u32);
    let (two, zero) = (2_f32, 0_f32);
    let (two, zero) = (address(&two), address(&zero));
    for _ in 0..2 {
        let words = [
            handle, operation, two, from, columns, zero, 0, 0, to, rows, stream,
        ];
        assert_eq!(lt.call("cublasLtMatrixTransform", &words), SUCCESS);
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        let mut got = [0_f32; 6];
        cuda!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), to, 24));
        let right = [0, 2, 4, 1, 3, 5].map(|at: usize| 2.0 * values[at]);
        assert_eq!(got, right);
    }
    let words = [
        handle, operation, two, from, 0, zero, 0, 0, to, rows, stream,
    ];
    assert_eq!(lt.call("cublasLtMatrixTransform", &words), INVALID_VALUE);
}

/// More products than the library keeps descriptions of, computed by threads in turn, with descriptors that come and go
/// at the same addresses. Each result is that of its own description.
pub fn plans() {
    const LAYERS: usize = 700;
    const ROUNDS: usize = 5;
    begin();
    let lt = Blas::open_file("libcublasLt.so.13");
    let [m, n, k] = SHAPE;
    let (weights, x) = (numbers(m * k, 1), numbers(k * n, 2));
    let (of_a, of_b) = (upload(&weights), upload(&x));
    let thread = |seed: usize| {
        begin();
        let (mut handle, stream) = (0_u64, new_stream() as u64);
        let to = (&raw mut handle) as u64;
        assert_eq!(lt.call("cublasLtCreate", &[to]), SUCCESS);
        let biases: Vec<Vec<f32>> = (0..LAYERS).map(|at| numbers(m, seed + at)).collect();
        let at = upload(&biases.concat());
        let results = alloc(4 * m * n * LAYERS);
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        for round in 0..ROUNDS {
            let alpha = round as f32 - 2.0;
            cuda!(cuMemsetD8_v2(results, 0xff, 4 * m * n * LAYERS));
            assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
            // The second round is of few, so that those are computed in a row.
            let layers = [LAYERS, 16][usize::from(round == 1)];
            for layer in 0..layers {
                let result = results + (4 * m * n * layer) as u64;
                let bias = at + (4 * m * layer) as u64;
                let layer = Layer::new(&lt, bias, [of_a, of_b, result]);
                let zero = 0_f32;
                let scalars = [address(&alpha), address(&zero)];
                assert_eq!(layer.run(&lt, handle, scalars, 0, stream), SUCCESS);
                layer.end(&lt);
            }
            assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
            let mut got = vec![0_f32; m * n * layers];
            let bytes = size_of_val(&got[..]);
            cuda!(cuMemcpyDtoH_v2(got.as_mut_ptr().cast(), results, bytes));
            for (layer, (got, bias)) in got.chunks(m * n).zip(&biases).enumerate() {
                let right = expected(&weights, &x, bias, alpha);
                assert_eq!(got, right, "thread {seed}, round {round}, layer {layer}");
            }
        }
        assert_eq!(lt.call("cublasLtDestroy", &[handle]), SUCCESS);
    };
    // The second pair finds the plans of the first.
    for pair in [[1, 2], [3, 4]] {
        std::thread::scope(|scope| {
            for seed in pair {
                scope.spawn(move || thread(seed));
            }
        });
    }
}
