// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest program that uses cuBLASLt as frameworks do, and that makes invalid calls of it.

use std::ffi::c_void;

use cudarc::driver::sys::{self, CUresult};

use crate::device::upload;
use crate::on_gpu;
use crate::symbols::{
    Blas, INVALID_VALUE, NOT_INITIALIZED, SUCCESS, alloc, begin, cuda, new_stream, synchronize,
};

const NOT_SUPPORTED: u32 = 15;
/// Attributes of an operation.
const POINTER_MODE: u64 = 2;
const TRANSPOSE_A: u64 = 3;
const EPILOGUE: u64 = 7;
const BIAS: u64 = 8;
/// The rows and columns of the result, and the length of the sums.
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

/// Products with handles of both libraries, with and without an algorithm, while descriptors are made and destroyed.
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
        // The stream does not wait for others.
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
        // The call reads the program's scalar.
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
        // The second answer comes from this library's cache.
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

/// Scalars on the device, as the descriptor says, which is in the program's own memory.
fn check_scalars(lt: &Blas, layer: &Layer, handle: u64) {
    let on_device = upload(&[1.0, 0.0]);
    let mut room = [0xeeee_u64; 40];
    let raw = room.as_mut_ptr() as u64;
    let words = [raw, 256, 68, 0];
    assert_eq!(lt.call("cublasLtMatmulDescInit_internal", &words), SUCCESS);
    assert!(room[32..].iter().all(|word| *word == 0xeeee));
    set(lt, "MatmulDesc", raw, TRANSPOSE_A, 1_u32);
    set(lt, "MatmulDesc", raw, POINTER_MODE, 1_u32);
    // A copy is a separate, equal descriptor.
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
    let mut rounds = [const { Vec::new() }; 2];
    for all in &mut rounds {
        // Calls that the library refuses.
        for (layouts, right) in [
            ([doubles, b, c, d], NOT_SUPPORTED),
            ([a, b, small, small], INVALID_VALUE),
        ] {
            let layer = Layer { layouts, ..*layer };
            let said = layer.run(lt, handle, scalars, 0, stream);
            let found = layer.find(lt, handle);
            assert_eq!((said, found.0), (right, right), "{layouts:?}");
            all.push((said, Some(found)));
        }
        let said = layer.run(lt, handle, scalars, address(&garbage), stream);
        assert_eq!(said, NOT_SUPPORTED, "an algorithm that is none");
        all.push((said, None));
        // Calls that the guest's library refuses. NVIDIA's library reads scalars at any address, which crashes the
        // process.
        for scalars in [[0, scalars[1]], [scalars[0], 0]] {
            let said = layer.run(lt, handle, scalars, 0, stream);
            assert_eq!(said, INVALID_VALUE, "{scalars:?}");
        }
        for layouts in [[a, b, c, 0], [layer.operation, b, c, d]] {
            let layer = Layer { layouts, ..*layer };
            let said = layer.run(lt, handle, scalars, 0, stream);
            assert_eq!(said, INVALID_VALUE, "{layouts:?}");
            assert_eq!(layer.find(lt, handle).0, INVALID_VALUE, "{layouts:?}");
        }
        assert_eq!(layer.run(lt, handle, scalars, 0, 0x7777), INVALID_VALUE);
        let said = layer.run(lt, handle, scalars, 0, stream);
        assert_eq!(said, SUCCESS, "after {all:?}");
    }
    assert_eq!(rounds[0], rounds[1]);
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
    let version = lt.call("cublasLtGetVersion", &[]);
    assert!(version >= 130_000, "{version}");

    let (mut ids, mut count) = ([0_u32; 16], 0_u32);
    let (to, counted) = (ids.as_mut_ptr() as u64, (&raw mut count) as u64);
    let words = [handle, 68, 0, 0, 0, 0, 0, 16, to, counted];
    assert_eq!(lt.call("cublasLtMatmulAlgoGetIds", &words), SUCCESS);
    assert!((1..=16).contains(&count), "{count}");
    let (ids, others) = ids.split_at(count as usize);
    assert!(others.iter().all(|id| *id == 0), "{ids:?} {others:?}");
    if !on_gpu() {
        // A GPU has more than one.
        assert_eq!(ids, [1]);
    }
    let mut algorithm = [0_u64; 8];
    let algo = algorithm.as_mut_ptr() as u64;
    let init = |id: u64| {
        let words = [handle, 68, 0, 0, 0, 0, 0, id, algo];
        lt.call("cublasLtMatmulAlgoInit", &words)
    };
    assert_eq!(init(0x7fff_fff0), INVALID_VALUE);

    // A repeated query has the same answer, for any valid size of the buffer. Some algorithms of a GPU have no tiles.
    let mut tiles = [0_u32; 1 << 12];
    let mut bytes = 0_u64;
    let (to, size) = (tiles.as_mut_ptr() as u64, (&raw mut bytes) as u64);
    let name = "cublasLtMatmulAlgoCapGetAttribute";
    let has_tiles = |id: &&u32| {
        assert_eq!(init(u64::from(**id)), SUCCESS, "{id} of {ids:?}");
        let mut bytes = u64::MAX;
        let words = [algo, 6, 0, 0, (&raw mut bytes) as u64];
        assert_eq!(lt.call(name, &words), SUCCESS, "{id} of {ids:?}");
        assert!(bytes < 1 << 13 && bytes % 4 == 0, "{bytes} of {id}");
        bytes > 0
    };
    let found = ids.iter().find(has_tiles);
    assert!(found.is_some(), "none of {ids:?} has tiles");
    assert_eq!(lt.call(name, &[algo, 6, 0, 0, size]), SUCCESS);
    for _ in 0..2 {
        for (room, right) in [
            (0, SUCCESS),
            (bytes + 24, SUCCESS),
            (bytes, SUCCESS),
            (bytes - 1, INVALID_VALUE),
        ] {
            let mut written = bytes;
            let words = [algo, 6, to, room, (&raw mut written) as u64];
            assert_eq!(lt.call(name, &words), right, "{room} of {bytes}");
            assert_eq!(written, bytes, "{room}");
        }
    }
    let count = bytes as usize / 4;
    assert_eq!(tiles[count..], [0; 1 << 12][count..]);
    if !on_gpu() {
        assert_eq!(tiles[..3], [15, 20, 0]);
    }
    let name = "cublasLtMatmulAlgoConfigSetAttribute";
    let (first, last) = (tiles[0], tiles[count - 1]);
    for tile in [first, last, first, last] {
        assert_eq!(
            lt.call(name, &[algo, 1, address(&tile), 4]),
            SUCCESS,
            "{tile}"
        );
        let name = "cublasLtMatmulAlgoConfigGetAttribute";
        assert_eq!(lt.call(name, &[algo, 1, to, 4, size]), SUCCESS);
        assert_eq!(tiles[0], tile);
    }
    let wide = [0_u64; 4];
    for bytes in [0, 1, 2, 8, 9, 32] {
        let words = [algo, 1, address(&wide), bytes];
        assert_eq!(lt.call(name, &words), INVALID_VALUE, "{bytes}");
    }
    // An algorithm that can compute the layer, with no more memory than the query allowed.
    let (_, known, _) = layer.find(lt, handle);
    let mut found = NOTHING;
    let [a, b, c, d] = layer.layouts;
    let words = [
        handle,
        layer.operation,
        a,
        b,
        c,
        d,
        address(&known.algorithm),
        (&raw mut found) as u64,
    ];
    for _ in 0..2 {
        assert_eq!(lt.call("cublasLtMatmulAlgoCheck", &words), SUCCESS);
        assert!(found.state == 0 && found.workspace <= 1 << 20, "{found:?}");
        assert!(on_gpu() || found.workspace == 0, "{found:?}");
        assert_eq!(found.algorithm, [0; 8]);
        (found.state, found.workspace) = (99, 1 << 40);
    }
}

/// Converts rows to columns.
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
    // The guest's library refuses a matrix without a layout; NVIDIA's reads it at any address.
    for layouts in [[0, rows], [columns, 0]] {
        let [of_a, of_c] = layouts;
        let words = [
            handle, operation, two, from, of_a, zero, 0, 0, to, of_c, stream,
        ];
        let said = lt.call("cublasLtMatrixTransform", &words);
        assert_eq!(said, INVALID_VALUE, "{layouts:?}");
    }
}

/// More products than the library keeps descriptions for, which threads compute in turn, with descriptors that are made
/// and destroyed at the same addresses. Each result must be that of its own description.
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
            // The second round has few, so that their plans are used.
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
