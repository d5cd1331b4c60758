// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that solve dense systems with cuSOLVER, and that make invalid calls of it.

use std::{ffi::c_void, ptr::null_mut};

use libloading::Library;

use crate::{
    device::{begin, call, download, new_stream, ok, synchronize, upload, write},
    on_gpu,
};

type Object = *mut c_void;

const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 3;
const NOT_SUPPORTED: u32 = 9;

/// Rows and columns.
const N: usize = 8;

fn open() -> Library {
    // SAFETY: the initialisers of the library are this project's own.
    unsafe { Library::new("libcusolver.so.12") }.unwrap()
}

fn create(solver: &Library) -> Object {
    let mut handle: Object = null_mut();
    ok!(solver, "cusolverDnCreate"; &mut handle);
    handle
}

/// A matrix in column-major order, without a pattern, which depends on the seed.
fn general(rows: usize, columns: usize, seed: usize) -> Vec<f64> {
    let at = |at: usize| ((at * 37 + seed * 11 + 5) % 23) as f64 / 8.0 - 1.25;
    let diagonal = |at: usize| if at % rows == at / rows { 4.0 } else { 0.0 };
    (0..rows * columns)
        .map(|of| at(of) + diagonal(of))
        .collect()
}

/// A times B, or the transpose of A times B, in column-major order.
fn times(a: &[f64], rows: usize, b: &[f64], transposed: bool) -> Vec<f64> {
    let inner = a.len() / rows;
    let (rows, inner) = if transposed {
        (inner, rows)
    } else {
        (rows, inner)
    };
    let of = |row: usize, at: usize| match transposed {
        true => a[row * inner + at],
        false => a[at * rows + row],
    };
    let sum = |row: usize, column: &[f64]| (0..inner).map(|at| of(row, at) * column[at]).sum();
    b.chunks(inner)
        .flat_map(|column| (0..rows).map(move |row| sum(row, column)))
        .collect()
}

fn positive(seed: usize) -> Vec<f64> {
    let a = general(N, N, seed);
    let mut whole = times(&a, N, &a, true);
    (0..N).for_each(|at| whole[at * N + at] += 1.0);
    whole
}

#[track_caller]
fn assert_close(found: &[f64], right: &[f64]) {
    assert_eq!(found.len(), right.len());
    for (one, other) in found.iter().zip(right) {
        assert!((one - other).abs() < 1e-8, "{one} is not {other}");
    }
}

/// Systems in one stream; all calls but the first ones are posted.
pub fn systems() {
    begin();
    let solver = open();
    let (handle, stream, n) = (create(&solver), new_stream(), N as i32);
    ok!(solver, "cusolverDnSetStream"; handle, stream);
    let mut told = null_mut();
    ok!(solver, "cusolverDnGetStream"; handle, &mut told);
    assert_eq!(told, stream);
    let room = vec![0.0; N * N];
    let [at_a, at_b] = [upload(&room), upload(&room[..2 * N])];
    let (pivots, info) = (upload(&[0_i32; N]), upload(&[7_i32]));
    let mut lwork = 0;
    for seed in 0..6 {
        ok!(solver, "cusolverDnDpotrf_bufferSize"; handle, 1, n, at_a, n, &mut lwork);
        let work = upload(&vec![0.0; lwork as usize]);
        let (a, b) = (positive(seed), general(N, 2, seed + 1));
        write(at_a, &a);
        write(at_b, &b);
        ok!(solver, "cusolverDnDpotrf"; handle, 1, n, at_a, n, work, lwork, info);
        ok!(solver, "cusolverDnDpotrs"; handle, 1, n, 2, at_a, n, at_b, n, info);
        assert_close(&times(&a, N, &download(at_b, 2 * N), false), &b);
        assert_eq!(download::<i32>(info, 1), [0]);

        let a = general(N, N, seed);
        write(at_a, &a);
        ok!(solver, "cusolverDnDgetrf_bufferSize"; handle, n, n, at_a, n, &mut lwork);
        ok!(solver, "cusolverDnDgetrf"; handle, n, n, at_a, n, work, pivots, info);
        for operation in [0, 1] {
            write(at_b, &b);
            ok!(solver, "cusolverDnDgetrs"; handle, operation, n, 2, at_a, n, pivots, at_b, n, info);
            assert_close(&times(&a, N, &download(at_b, 2 * N), operation == 1), &b);
        }
    }
    // The error is in the result for the matrix, not in the call's status.
    write(at_a, &vec![-1.0; N * N]);
    ok!(solver, "cusolverDnDpotrf"; handle, 1, n, at_a, n, upload(&vec![0.0; lwork as usize]), lwork, info);
    assert_eq!(download::<i32>(info, 1), [1]);
    ok!(solver, "cusolverDnDestroy"; handle);
}

/// Device memory for this number of numbers.
fn room_of(numbers: i32) -> u64 {
    upload(&vec![0.0; numbers as usize])
}

/// Results at host addresses, options, and host workspaces.
pub fn values() {
    begin();
    let solver = open();
    let (handle, n) = (create(&solver), N as i32);
    let (a, mut params, mut options) = (positive(3), null_mut::<c_void>(), null_mut::<c_void>());
    let (w, s, info) = (upload(&[0.0; N]), upload(&[0.0; N]), upload(&[7_i32]));
    for _ in 0..3 {
        ok!(solver, "cusolverDnCreateParams"; &mut params);
        ok!(solver, "cusolverDnSetAdvOptions"; params, 0, 0);
        let at_a = upload(&a);
        let (mut device, mut host) = (0_usize, 0_usize);
        ok!(solver, "cusolverDnXsyevd_bufferSize"; handle, params, 1, 0, N as i64, 1, at_a, N as i64, 1, w, 1, &mut device, &mut host);
        // NVIDIA's library needs no host memory for this function.
        let (work, mut room) = (upload(&vec![0_u8; device]), vec![7_u8; host]);
        ok!(solver, "cusolverDnXsyevd"; handle, params, 1, 0, N as i64, 1, at_a, N as i64, 1, w, 1, work, device, room.as_mut_ptr(), host, info);
        let (values, vectors) = (download::<f64>(w, N), download::<f64>(at_a, N * N));
        assert!(values.is_sorted());
        let scaled = vectors
            .chunks(N)
            .zip(&values)
            .flat_map(|(column, by)| column.iter().map(move |of| of * by));
        assert_close(&times(&a, N, &vectors, false), &scaled.collect::<Vec<_>>());
        // The host's library has its own work space.
        assert!(room.iter().all(|byte| *byte == 7));

        let mut found = 0;
        write(at_a, &a);
        let mut lwork = 0;
        ok!(solver, "cusolverDnDsyevdx_bufferSize"; handle, 0, 1002, 0, n, at_a, n, 0.0, 0.0, 2, 4, &mut found, s, &mut lwork);
        found = -1;
        ok!(solver, "cusolverDnDsyevdx"; handle, 0, 1002, 0, n, at_a, n, 0.0, 0.0, 2, 4, &mut found, s, room_of(lwork), lwork, info);
        assert_eq!(found, 3);
        assert_close(&download(s, 3), &values[1..4]);

        ok!(solver, "cusolverDnCreateGesvdjInfo"; &mut options);
        ok!(solver, "cusolverDnXgesvdjSetTolerance"; options, 1e-10);
        ok!(solver, "cusolverDnXgesvdjSetMaxSweeps"; options, 20);
        write(at_a, &a);
        let [u, v] = [(); 2].map(|()| upload(&vec![0.0; N * N]));
        ok!(solver, "cusolverDnDgesvdj_bufferSize"; handle, 1, 0, n, n, at_a, n, s, u, n, v, n, &mut lwork, options);
        ok!(solver, "cusolverDnDgesvdj"; handle, 1, 0, n, n, at_a, n, s, u, n, v, n, room_of(lwork), lwork, info, options);
        let (mut sweeps, mut residual) = (0, -1.0);
        ok!(solver, "cusolverDnXgesvdjGetSweeps"; handle, options, &mut sweeps);
        ok!(solver, "cusolverDnXgesvdjGetResidual"; handle, options, &mut residual);
        // The tolerance is relative to the matrix.
        let is_small = (0.0..1e-8).contains(&residual);
        assert!(sweeps > 0 && is_small, "{sweeps} {residual}");
        // For a positive definite matrix these are the eigenvalues.
        let mut singular = download::<f64>(s, N);
        singular.reverse();
        assert_close(&singular, &values);

        write(at_a, &a);
        let mut norms = [1_f64; 2];
        let (rank, all) = (N as i32 - 2, (N * N) as i64);
        let batch = upload(&[&a[..], &a].concat());
        let [s, u, v] = [
            upload(&[0.0; 2 * N]),
            upload(&vec![0.0; 2 * N * N]),
            upload(&vec![0.0; 2 * N * N]),
        ];
        ok!(solver, "cusolverDnDgesvdaStridedBatched_bufferSize"; handle, 1, rank, n, n, batch, n, all, s, N as i64, u, n, all, v, n, all, &mut lwork, 2);
        ok!(solver, "cusolverDnDgesvdaStridedBatched"; handle, 1, rank, n, n, batch, n, all, s, N as i64, u, n, all, v, n, all, room_of(lwork), lwork,
            upload(&[0; 2]), norms.as_mut_ptr(), 2);
        // It is no error that some values were not requested.
        assert!(norms.iter().all(|norm| norm.abs() < 1e-8), "{norms:?}");
        ok!(solver, "cusolverDnDestroyParams"; params);
        ok!(solver, "cusolverDnDestroyGesvdjInfo"; options);
    }
    let (mut mode, mut version) = (0, 0);
    ok!(solver, "cusolverDnSetDeterministicMode"; handle, 2);
    ok!(solver, "cusolverDnGetDeterministicMode"; handle, &mut mode);
    ok!(solver, "cusolverGetVersion"; &mut version);
    assert!(mode == 2 && version > 11_000, "{mode} {version}");
    let (mut iterations, x) = (i32::MIN, upload(&[0.0; N]));
    let (at_a, b) = (upload(&a), upload(&general(N, 1, 1)));
    let (pivots, mut bytes) = (upload(&[0; N]), 0_usize);
    ok!(solver, "cusolverDnDDgesv_bufferSize"; handle, n, 1, at_a, n, pivots, b, n, x, n, 0_u64, &mut bytes);
    let work = upload(&vec![0_u8; bytes]);
    ok!(solver, "cusolverDnDDgesv"; handle, n, 1, at_a, n, pivots, b, n, x, n, work, bytes, &mut iterations, info);
    // A negative value says that the library has solved the system without iterations, and why.
    assert_ne!(iterations, i32::MIN);
    assert_close(&times(&a, N, &download(x, N), false), &general(N, 1, 1));
    ok!(solver, "cusolverDnDestroy"; handle);
}

/// Objects of other classes, destroyed ones, and invalid sizes.
pub fn wrong() {
    begin();
    let solver = open();
    let (handle, n) = (create(&solver), N as i32);
    let [mut params, mut options] = [null_mut::<c_void>(); 2];
    ok!(solver, "cusolverDnCreateParams"; &mut params);
    ok!(solver, "cusolverDnCreateSyevjInfo"; &mut options);
    let a = positive(1);
    let (at_a, s, info) = (upload(&a), upload(&[0.0; N]), upload(&[7_i32]));
    let (mut device, mut host, mut lwork) = (0_usize, 0_usize, 0);
    // Also while another object is destroyed: an id never belongs to another object.
    let ended = {
        let mut ended = null_mut::<c_void>();
        ok!(solver, "cusolverDnCreateParams"; &mut ended);
        ok!(solver, "cusolverDnDestroyParams"; ended);
        ended
    };
    for wrong in [
        options,
        handle,
        ended,
        info as Object,
        (params as usize + 0x100) as Object,
        usize::MAX as Object,
    ] {
        let said = call!(solver, "cusolverDnXpotrf_bufferSize"; handle, wrong, 0, N as i64, 1, at_a, N as i64, 1, &mut device, &mut host);
        assert_eq!(said, INVALID_VALUE, "{wrong:?}");
        assert_eq!(
            call!(solver, "cusolverDnXgesvdjSetMaxSweeps"; wrong, 4),
            INVALID_VALUE
        );
    }
    ok!(solver, "cusolverDnXpotrf_bufferSize"; handle, params, 0, N as i64, 1, at_a, N as i64, 1, &mut device, &mut host);
    let work = upload(&vec![0_u8; device]);
    for none in [null_mut(), params, options, 0x1000 as Object] {
        assert_eq!(
            call!(solver, "cusolverDnDpotrf_bufferSize"; none, 0, n, at_a, n, &mut lwork),
            NOT_INITIALIZED
        );
        assert_eq!(call!(solver, "cusolverDnDestroy"; none), NOT_INITIALIZED);
    }
    for (rows, leading) in [(-1, n), (n, n - 1), (i32::MIN, i32::MAX)] {
        let said = call!(solver, "cusolverDnDpotrf_bufferSize"; handle, 0, rows, at_a, leading, &mut lwork);
        // NVIDIA's library lets the factorisation refuse some of them.
        if !on_gpu() {
            assert_eq!(said, INVALID_VALUE, "{rows} {leading}");
        }
        let said =
            call!(solver, "cusolverDnDpotrf"; handle, 0, rows, at_a, leading, work, 64, info);
        assert_eq!(said, INVALID_VALUE, "{rows} {leading}");
    }
    // More host memory than any client gets, and less than is needed, if any is.
    let mut room = vec![0_u8; host.max(1)];
    let too_few = [host.wrapping_sub(1), 0].into_iter();
    let too_few = too_few.filter(|bytes| *bytes < host);
    for bytes in [usize::MAX, 1 << 40, (1 << 30) + 1]
        .into_iter()
        .chain(too_few)
    {
        let said = call!(solver, "cusolverDnXpotrf"; handle, params, 0, N as i64, 1, at_a, N as i64, 1, work, device, room.as_mut_ptr(), bytes, info);
        assert_eq!(said, INVALID_VALUE, "{bytes}");
    }
    ok!(solver, "cusolverDnXpotrf"; handle, params, 0, N as i64, 1, at_a, N as i64, 1, work, device, room.as_mut_ptr(), host, info);
    // The result is at a host address; the call is refused without one.
    let mut count = 0;
    ok!(solver, "cusolverDnDsyevdx_bufferSize"; handle, 0, 1002, 0, n, at_a, n, 0.0, 0.0, 2, 4, &mut count, s, &mut lwork);
    let room = room_of(lwork);
    // NVIDIA's library need not check the address before it writes there, which crashes the caller.
    if !on_gpu() {
        assert_eq!(
            call!(solver, "cusolverDnDpotrf_bufferSize"; handle, 0, n, at_a, n, null_mut::<i32>()),
            INVALID_VALUE
        );
        assert_eq!(
            call!(solver, "cusolverDnDsyevdx"; handle, 0, 1002, 0, n, at_a, n, 0.0, 0.0, 2, 4, null_mut::<i32>(), s, room, lwork, info),
            INVALID_VALUE
        );
    }
    write(at_a, &a);
    count = -1;
    ok!(solver, "cusolverDnDsyevdx"; handle, 0, 1002, 0, n, at_a, n, 0.0, 0.0, 2, 4, &mut count, s, room, lwork, info);
    assert_eq!(count, 3);
    synchronize();
    // Exported, but refused.
    assert_eq!(
        call!(solver, "cusolverRfCreate"; null_mut::<c_void>()),
        NOT_SUPPORTED
    );
    assert_eq!(
        call!(solver, "cusolverSpDcsrlsvluHost"; handle),
        NOT_SUPPORTED
    );
    ok!(solver, "cusolverDnDestroy"; handle);
    assert_eq!(call!(solver, "cusolverDnDestroy"; handle), NOT_INITIALIZED);
}
