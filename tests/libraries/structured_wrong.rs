// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that make invalid calls of cuSPARSELt, and that run without the library.

use cudarc::driver::sys::{self, CUresult};

use crate::{
    device::{begin, call, ok, upload, write},
    structured::{
        ALGORITHM, ALGORITHMS, ALPHA_VECTOR, BIAS, BY_ROWS, INVALID_VALUE, K, Layer, M, N, R_16F,
        RELU, Room, SINGLE, all_of_it, check, half_of_it, init, open, sums,
    },
};

const NOT_INITIALIZED: u32 = 1;

/// Structures with another content, a destroyed one, or none; invalid addresses; another thread that destroys a plan.
pub fn wrong() {
    begin();
    let lt = open();
    let [zeros, random] = [Room([0; 512]), Room::new()];
    let mut made = Room::new();
    let describe = |handle: *const Room, rows: i64, data: i32, order: i32| {
        let mut made = Room::new();
        call!(lt, "cusparseLtDenseDescriptorInit"; handle, &mut made, rows, K as i64, K as i64, 16_u32, data, order)
    };
    let handle = init(&lt);
    for none in [&zeros, &random] {
        assert_eq!(describe(none, 32, R_16F, BY_ROWS), NOT_INITIALIZED);
        assert_eq!(call!(lt, "cusparseLtDestroy"; none), NOT_INITIALIZED);
    }
    assert_eq!(
        describe(std::ptr::null(), 32, R_16F, BY_ROWS),
        INVALID_VALUE
    );
    // A handle's structure with one wrong bit.
    for byte in [0, 3, 7, 8, 12, 15] {
        let mut other = handle.clone();
        other.0[byte] ^= 0x40;
        let said = describe(&other, 32, R_16F, BY_ROWS);
        assert!(byte < 6 || said == NOT_INITIALIZED, "{byte}: {said}");
    }
    for (rows, data, order) in [
        (-1, R_16F, BY_ROWS),
        (i64::MIN, R_16F, BY_ROWS),
        (32, R_16F, 7),
    ] {
        assert_ne!(
            describe(&handle, rows, data, order),
            0,
            "{rows} {data} {order}"
        );
        assert_ne!(
            describe(&handle, rows, data, order),
            0,
            "{rows} {data} {order}"
        );
    }
    assert_ne!(describe(&handle, 32, 77, BY_ROWS), 0);
    assert_eq!(describe(&handle, 32, R_16F, BY_ROWS), 0);

    let mut layer = Layer::new(&lt, &handle, [R_16F, R_16F], false, BY_ROWS);
    let (a, b) = (half_of_it(0), all_of_it(0));
    let expected = sums(&a, &b);
    let [at_a, at_b] = layer.factors(&a, &b);
    let d = upload(&vec![0_u8; 2 * M * N]);
    let plan = layer.plan();
    let workspace = layer.workspace(&plan);
    let (one, zero) = (1.0_f32, 0.0_f32);
    let stream = 0_u64;
    let multiply = |handle: &Room, plan: *const Room, alpha: *const f32, a: u64, count: i32| call!(lt, "cusparseLtMatmul"; handle, plan, alpha, a, at_b, &zero, d, d, workspace, &stream, count);
    assert_eq!(multiply(&handle, &plan, &one, at_a, 1), 0);
    for none in [
        &zeros,
        &random,
        &handle,
        &layer.product,
        &layer.selection,
        &layer.matrices[0],
    ] {
        assert_eq!(multiply(&handle, none, &one, at_a, 1), INVALID_VALUE);
        assert_eq!(
            call!(lt, "cusparseLtMatmulPlanDestroy"; none),
            INVALID_VALUE
        );
    }
    assert_eq!(
        multiply(&handle, std::ptr::null(), &one, at_a, 1),
        INVALID_VALUE
    );
    assert_eq!(
        multiply(&handle, &plan, std::ptr::null(), at_a, 1),
        INVALID_VALUE
    );
    assert_eq!(multiply(&handle, &plan, &one, 0, 1), INVALID_VALUE);
    assert_eq!(multiply(&handle, &plan, &one, at_a, -1), INVALID_VALUE);
    // A plan belongs to its handle.
    let other = init(&lt);
    assert_eq!(multiply(&other, &plan, &one, at_a, 1), INVALID_VALUE);
    // A plan with an id that was never used.
    let mut never = plan.clone();
    never.0[10] ^= 0x55;
    assert_eq!(multiply(&handle, &never, &one, at_a, 1), INVALID_VALUE);

    let set = |of: &mut Room, number: i32, data: *const u64, bytes: usize| call!(lt, "cusparseLtMatmulDescSetAttribute"; &handle, of, number, data, bytes);
    let (is_set, two) = (1_u64, 2_u64);
    for (number, data, bytes) in [
        (-1, &raw const is_set, 4),
        (20, &raw const is_set, 4),
        (RELU, &raw const is_set, 8),
        (RELU, &raw const is_set, usize::MAX),
        (RELU, std::ptr::null(), 4),
        (BIAS, &raw const is_set, 4),
        (ALPHA_VECTOR, &raw const two, 4),
    ] {
        assert_eq!(
            set(&mut layer.product, number, data, bytes),
            INVALID_VALUE,
            "{number} {bytes}"
        );
    }
    let mut select = |number: i32, value: i32| call!(lt, "cusparseLtMatmulAlgSetAttribute"; &handle, &mut layer.selection, number, &value, 4_usize);
    for (number, value) in [
        (ALGORITHMS, 3),
        (6, 0),
        (-1, 0),
        (ALGORITHM, i32::MAX),
        (ALGORITHM, -1),
    ] {
        assert_eq!(select(number, value), INVALID_VALUE, "{number} {value}");
        assert_eq!(select(number, value), INVALID_VALUE, "{number} {value}");
    }
    assert_eq!(select(ALGORITHM, 0), 0);
    for algorithm in [1, -1] {
        assert_eq!(
            call!(lt, "cusparseLtMatmulAlgSelectionInit"; &handle, &mut made, &layer.product, algorithm),
            INVALID_VALUE
        );
    }
    let [of_a, of_b, of_d] = layer.matrices.clone();
    let mut pair = |a: &Room, b: &Room, d: &Room| call!(lt, "cusparseLtMatmulDescriptorInit"; &handle, &mut made, 0, 0, a, b, d, d, SINGLE);
    assert_eq!(pair(&of_a, &of_b, &of_d), 0);
    for [a, b, d] in [
        [&of_a, &of_d, &of_d],
        [&of_a, &of_b, &of_b],
        [&of_a, &of_b, &zeros],
        [&plan, &of_b, &of_d],
    ] {
        assert_ne!(pair(a, b, d), 0);
        assert_ne!(pair(a, b, d), 0);
    }
    ok!(lt, "cusparseLtMatDescriptorDestroy"; &of_a);
    assert_eq!(pair(&of_a, &of_b, &of_d), INVALID_VALUE);
    assert_eq!(
        call!(lt, "cusparseLtMatDescriptorDestroy"; &of_a),
        INVALID_VALUE
    );

    // Another thread destroys a copy of the plan: each product uses its plan, or is refused.
    for _ in 0..40 {
        let shared = layer.plan();
        let copy = shared.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin();
                for _ in 0..4 {
                    multiply(&handle, &copy, &one, at_a, 1);
                }
                settle();
            });
            scope.spawn(|| {
                begin();
                ok!(lt, "cusparseLtMatmulPlanDestroy"; &shared);
                settle();
            });
        });
        assert_eq!(multiply(&handle, &copy, &one, at_a, 1), INVALID_VALUE);
    }
    settle();
    write(d, &vec![0_u8; 2 * M * N]);
    assert_eq!(multiply(&handle, &plan, &one, at_a, 1), 0);
    check(&layer, BY_ROWS, d, &expected, "after all of it");
    let copy = handle.clone();
    ok!(lt, "cusparseLtDestroy"; &handle);
    for ended in [&handle, &copy] {
        assert_eq!(multiply(ended, &plan, &one, at_a, 1), NOT_INITIALIZED);
        assert_eq!(call!(lt, "cusparseLtDestroy"; ended), NOT_INITIALIZED);
    }
}

/// Takes the error of a refused post, if there is one.
fn settle() {
    // SAFETY: it takes no pointers.
    let said = unsafe { sys::cuCtxSynchronize() };
    assert!(
        matches!(
            said,
            CUresult::CUDA_SUCCESS | CUresult::CUDA_ERROR_INVALID_VALUE
        ),
        "{said:?}"
    );
}

/// On a host without cuSPARSELt.
pub fn without() {
    let lt = open();
    let mut handle = Room::new();
    for _ in 0..2 {
        assert_eq!(call!(lt, "cusparseLtInit"; &mut handle), NOT_INITIALIZED);
        assert_eq!(call!(lt, "cusparseLtDestroy"; &handle), NOT_INITIALIZED);
    }
}
