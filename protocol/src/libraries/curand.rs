// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuRAND's host API (curand.h).
//!
//! Generation is sent by hand, because a generator may write its numbers to host memory. The tables of quasirandom
//! sequences are fetched in pieces: `from` is a piece's start in bytes.

use super::Statuses;

/// The functions' results (`curandStatus_t`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// There is no such generator.
    pub const NOT_INITIALIZED: u32 = 101;
    /// Memory ran out.
    pub const ALLOCATION_FAILED: u32 = 102;
    /// The generator's type is invalid, or does not support this.
    pub const TYPE_ERROR: u32 = 103;
    /// An argument is wrong.
    pub const OUT_OF_RANGE: u32 = 104;
    /// The GPU failed, or an object that the generator needs was destroyed.
    pub const LAUNCH_FAILURE: u32 = 201;
    /// The library is missing.
    pub const INITIALIZATION_FAILED: u32 = 203;
    /// The function does not exist here, or does not support this.
    pub const ARCH_MISMATCH: u32 = 204;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 999;
}

/// `curandStatus_t`. It has no status for an unsupported function; the nearest one concerns the GPU's architecture.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::NOT_INITIALIZED,
    not_initialized: status::INITIALIZATION_FAILED,
    alloc_failed: status::ALLOCATION_FAILED,
    invalid_value: status::OUT_OF_RANGE,
    execution_failed: status::LAUNCH_FAILURE,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::ARCH_MISMATCH,
    names: &[
        (0, c"CURAND_STATUS_SUCCESS", c"no errors"),
        (
            100,
            c"CURAND_STATUS_VERSION_MISMATCH",
            c"the header and the library have different versions",
        ),
        (
            101,
            c"CURAND_STATUS_NOT_INITIALIZED",
            c"the generator is not initialized",
        ),
        (102, c"CURAND_STATUS_ALLOCATION_FAILED", c"memory ran out"),
        (
            103,
            c"CURAND_STATUS_TYPE_ERROR",
            c"the generator is of the wrong type",
        ),
        (
            104,
            c"CURAND_STATUS_OUT_OF_RANGE",
            c"an argument is out of range",
        ),
        (
            105,
            c"CURAND_STATUS_LENGTH_NOT_MULTIPLE",
            c"the length is not a multiple of the dimension",
        ),
        (
            106,
            c"CURAND_STATUS_DOUBLE_PRECISION_REQUIRED",
            c"the GPU has no double precision",
        ),
        (201, c"CURAND_STATUS_LAUNCH_FAILURE", c"a kernel failed"),
        (
            202,
            c"CURAND_STATUS_PREEXISTING_FAILURE",
            c"there was a failure before",
        ),
        (
            203,
            c"CURAND_STATUS_INITIALIZATION_FAILED",
            c"the library could not be initialized",
        ),
        (
            204,
            c"CURAND_STATUS_ARCH_MISMATCH",
            c"the GPU does not support it",
        ),
        (
            999,
            c"CURAND_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
    ],
    unknown: (c"CURAND_STATUS_<unknown>", c"unknown status"),
};

/// The bytes of every piece of a table but the last. An answer has room for one piece.
pub const PIECE: usize = 60 << 10;

/// The dimensions of the tables of quasirandom sequences, from NVIDIA's documentation.
pub const DIMENSIONS: usize = 20_000;

/// Passes cuRAND's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_curand {
    ($callback:ident) => {
        $callback! {
            0x1c00 call guest curandCreateGenerator(generator: new[CurandGenerator], kind: i32);
            0x1c01 wait guest curandDestroyGenerator(generator: gone[CurandGenerator]);
            0x1c02 post guest curandSetStream(generator: handle[CurandGenerator], stream: stream);
            0x1c03 call guest curandGetVersion(version: out[4]) pure;
            0x1c04 call guest curandGetProperty(property: i32, value: out[4]) pure;
            0x1c05 call table curandSetPseudoRandomGeneratorSeed(generator: handle[CurandGenerator], seed: i64);
            0x1c06 call table curandSetGeneratorOffset(generator: handle[CurandGenerator], offset: i64);
            0x1c07 call guest curandSetGeneratorOrdering(generator: handle[CurandGenerator], order: i32);
            0x1c08 call guest curandSetQuasiRandomGeneratorDimensions(generator: handle[CurandGenerator], dimensions: i32);
            0x1c09 post table curandGenerateSeeds(generator: handle[CurandGenerator]) work;
            0x1c0a post guest curandGenerate(generator: handle[CurandGenerator], output: device, count: i64) work;
            0x1c0b post guest curandGenerateLongLong(generator: handle[CurandGenerator], output: device, count: i64) work;
            0x1c0c post guest curandGenerateUniform(generator: handle[CurandGenerator], output: device, count: i64) work;
            0x1c0d post guest curandGenerateUniformDouble(generator: handle[CurandGenerator], output: device, count: i64) work;
            0x1c0e post guest curandGenerateNormal(generator: handle[CurandGenerator], output: device, count: i64, mean: f32, stddev: f32) work;
            0x1c0f post guest curandGenerateNormalDouble(generator: handle[CurandGenerator], output: device, count: i64, mean: f64, stddev: f64) work;
            0x1c10 post guest curandGenerateLogNormal(generator: handle[CurandGenerator], output: device, count: i64, mean: f32, stddev: f32) work;
            0x1c11 post guest curandGenerateLogNormalDouble(generator: handle[CurandGenerator], output: device, count: i64, mean: f64, stddev: f64) work;
            0x1c12 post guest curandGeneratePoisson(generator: handle[CurandGenerator], output: device, count: i64, lambda: f64) work;
            0x1c13 post guest curandGeneratePoissonMethod(generator: handle[CurandGenerator], output: device, count: i64, lambda: f64, method: i32) work;
            0x1c14 call guest curandGetDirectionVectors32(set: i32, from: i64, piece: reply);
            0x1c15 call guest curandGetDirectionVectors64(set: i32, from: i64, piece: reply);
            0x1c16 call guest curandGetScrambleConstants32(from: i64, piece: reply);
            0x1c17 call guest curandGetScrambleConstants64(from: i64, piece: reply);
        }
    };
}
