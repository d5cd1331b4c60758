// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as a C program gets it: factors multiplied back, systems solved, and refused calls.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use gpgpu_stand_in::{call, ok, testing::Libraries};

type Handle = *mut c_void;

static LIBRARIES: Libraries = Libraries::new("libsoftware_cusolver.so");

fn handle() -> Handle {
    LIBRARIES.enter();
    let mut handle: Handle = null_mut();
    ok!(LIBRARIES, "cusolverDnCreate"; &mut handle);
    handle
}

fn upload<T: Copy>(values: &[T]) -> u64 {
    LIBRARIES.upload(values)
}

fn download<T: Copy + Default>(address: u64, count: usize) -> Vec<T> {
    LIBRARIES.download(address, count)
}

/// Columns one after the other.
#[derive(Clone)]
struct Matrix {
    rows: usize,
    values: Vec<f64>,
}

impl Matrix {
    fn new(rows: usize, columns: usize, of: impl Fn(usize, usize) -> f64) -> Self {
        let values = (0..rows * columns).map(|at| of(at % rows, at / rows));
        Self {
            rows,
            values: values.collect(),
        }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[column * self.rows + row]
    }

    fn columns(&self) -> usize {
        self.values.len() / self.rows
    }

    fn transposed(&self) -> Self {
        Self::new(self.columns(), self.rows, |row, column| {
            self.at(column, row)
        })
    }

    fn times(&self, other: &Self) -> Self {
        assert_eq!(self.columns(), other.rows);
        Self::new(self.rows, other.columns(), |row, column| {
            (0..other.rows)
                .map(|at| self.at(row, at) * other.at(at, column))
                .sum()
        })
    }

    #[track_caller]
    fn assert_is(&self, other: &Self) {
        assert_eq!(
            (self.rows, self.values.len()),
            (other.rows, other.values.len())
        );
        for (one, other) in self.values.iter().zip(&other.values) {
            assert!((one - other).abs() < 1e-9, "{one} is not {other}");
        }
    }
}

/// Something without a pattern, always the same.
fn general(rows: usize, columns: usize) -> Matrix {
    Matrix::new(rows, columns, |row, column| {
        (((row * 7 + column * 13 + 3) * 29) % 23) as f64 / 8.0 - 1.25
            + f64::from(u8::from(row == column)) * 3.0
    })
}

fn symmetric(order: usize) -> Matrix {
    let a = general(order, order);
    let mut whole = a.times(&a.transposed());
    (0..order).for_each(|at| whole.values[at * order + at] += 1.0);
    whole
}

fn info(address: u64) -> c_int {
    download::<c_int>(address, 1)[0]
}

#[test]
fn a_positive_definite_system_is_solved_by_either_triangle() {
    let (handle, n) = (handle(), 6);
    let a = symmetric(n);
    for uplo in [0, 1] {
        let (at_a, at_b, said) = (
            upload(&a.values),
            upload(&general(n, 2).values),
            upload(&[7_i32]),
        );
        let mut lwork = 0;
        ok!(LIBRARIES, "cusolverDnDpotrf_bufferSize"; handle, uplo, n as c_int, at_a, n as c_int, &mut lwork);
        let work = upload(&vec![0.0_f64; lwork as usize]);
        ok!(LIBRARIES, "cusolverDnDpotrf"; handle, uplo, n as c_int, at_a, n as c_int, work, lwork, said);
        assert_eq!(info(said), 0);
        ok!(LIBRARIES, "cusolverDnDpotrs"; handle, uplo, n as c_int, 2, at_a, n as c_int, at_b, n as c_int, said);
        let x = Matrix {
            rows: n,
            values: download(at_b, 2 * n),
        };
        a.times(&x).assert_is(&general(n, 2));
        // The other triangle is as it was.
        let factor = Matrix {
            rows: n,
            values: download(at_a, n * n),
        };
        let (row, column) = if uplo == 0 { (1, 4) } else { (4, 1) };
        assert_eq!(factor.at(row, column), a.at(row, column));
    }
    let mut bad = a.clone();
    bad.values[2 * n + 2] = -1.0;
    let (at_a, said) = (upload(&bad.values), upload(&[7_i32]));
    ok!(LIBRARIES, "cusolverDnDpotrf"; handle, 0, n as c_int, at_a, n as c_int, at_a, 64, said);
    assert_eq!(info(said), 3);
    ok!(LIBRARIES, "cusolverDnDestroy"; handle);
}

#[test]
fn a_general_system_is_solved_as_it_is_and_transposed() {
    let (handle, n) = (handle(), 7);
    let a = general(n, n);
    let (at_a, pivots, said) = (upload(&a.values), upload(&vec![0_i32; n]), upload(&[7_i32]));
    ok!(LIBRARIES, "cusolverDnDgetrf"; handle, n as c_int, n as c_int, at_a, n as c_int, 0_u64, pivots, said);
    assert_eq!(info(said), 0);
    for (operation, of) in [(0, a.clone()), (1, a.transposed())] {
        let b = upload(&general(n, 3).values);
        ok!(LIBRARIES, "cusolverDnDgetrs"; handle, operation, n as c_int, 3, at_a, n as c_int, pivots, b, n as c_int, said);
        let x = Matrix {
            rows: n,
            values: download(b, 3 * n),
        };
        of.times(&x).assert_is(&general(n, 3));
    }
    let (x, mut iterations) = (upload(&vec![0.0; n]), -1);
    let (at_a, b) = (upload(&a.values), upload(&general(n, 1).values));
    ok!(LIBRARIES, "cusolverDnDDgesv"; handle, n as c_int, 1, at_a, n as c_int, pivots, b, n as c_int, x, n as c_int, 0_u64, 256_usize, &mut iterations, said);
    assert_eq!(iterations, 1);
    a.times(&Matrix {
        rows: n,
        values: download(x, n),
    })
    .assert_is(&general(n, 1));
}

#[test]
fn a_least_squares_problem_is_solved_by_reflections() {
    let (handle, m, n) = (handle(), 8, 5);
    let a = general(m, n);
    let (at_a, tau, said) = (upload(&a.values), upload(&vec![0.0; n]), upload(&[7_i32]));
    ok!(LIBRARIES, "cusolverDnDgeqrf"; handle, m as c_int, n as c_int, at_a, m as c_int, tau, 0_u64, 64, said);
    let factors = Matrix {
        rows: m,
        values: download(at_a, m * n),
    };
    let r = Matrix::new(n, n, |row, column| {
        if row <= column {
            factors.at(row, column)
        } else {
            0.0
        }
    });
    let at_q = upload(&factors.values);
    ok!(LIBRARIES, "cusolverDnDorgqr"; handle, m as c_int, n as c_int, n as c_int, at_q, m as c_int, tau, 0_u64, 64, said);
    let q = Matrix {
        rows: m,
        values: download(at_q, m * n),
    };
    q.times(&r).assert_is(&a);
    q.transposed()
        .times(&q)
        .assert_is(&Matrix::new(n, n, |row, column| {
            f64::from(u8::from(row == column))
        }));
    // Q on the left and its adjoint on the right undo each other.
    let c = general(m, m);
    let at_c = upload(&c.values);
    for (side, operation) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        ok!(LIBRARIES, "cusolverDnDormqr"; handle, side, operation, m as c_int, m as c_int, n as c_int, at_a, m as c_int, tau, at_c, m as c_int, 0_u64, 64, said);
        if operation == 1 {
            Matrix {
                rows: m,
                values: download(at_c, m * m),
            }
            .assert_is(&c);
        }
    }
    ok!(LIBRARIES, "cusolverDnDormqr"; handle, 0, 1, m as c_int, n as c_int, n as c_int, at_a, m as c_int, tau, upload(&a.values), m as c_int, 0_u64, 64, said);
}

#[test]
fn eigenvectors_make_the_matrix_again() {
    let (handle, n) = (handle(), 6);
    let a = symmetric(n);
    let (at_a, w, said) = (upload(&a.values), upload(&vec![0.0; n]), upload(&[7_i32]));
    ok!(LIBRARIES, "cusolverDnDsyevd"; handle, 1, 1, n as c_int, at_a, n as c_int, w, 0_u64, 64, said);
    let (vectors, values) = (
        Matrix {
            rows: n,
            values: download(at_a, n * n),
        },
        download::<f64>(w, n),
    );
    assert!(values.is_sorted() && info(said) == 0);
    let scaled = Matrix::new(n, n, |row, column| vectors.at(row, column) * values[column]);
    scaled.times(&vectors.transposed()).assert_is(&a);
    let (at_a, some, mut found) = (upload(&a.values), upload(&vec![0.0; n]), 0);
    ok!(LIBRARIES, "cusolverDnDsyevdx"; handle, 0, 1002, 0, n as c_int, at_a, n as c_int, 0.0_f64, 0.0_f64, 2, 4, &mut found, some, 0_u64, 64, said);
    assert_eq!(found, 3);
    let some = download::<f64>(some, 3);
    assert!(
        some.iter()
            .zip(&values[1..])
            .all(|(one, other)| (one - other).abs() < 1e-9)
    );
}

#[test]
fn singular_vectors_make_the_matrix_again() {
    let (handle, m, n) = (handle(), 7, 4);
    let a = general(m, n);
    // The vectors of either side may overwrite the matrix.
    for (left, right) in [(b'A', b'A'), (b'S', b'S'), (b'O', b'S'), (b'A', b'O')] {
        let columns = if left == b'A' { m } else { n };
        let (at_a, s, said) = (upload(&a.values), upload(&vec![0.0; n]), upload(&[7_i32]));
        let (u, vt) = (upload(&vec![0.0; m * columns]), upload(&vec![0.0; n * n]));
        ok!(LIBRARIES, "cusolverDnDgesvd"; handle, left as c_char, right as c_char, m as c_int, n as c_int, at_a, m as c_int, s, u, m as c_int, vt, n as c_int, 0_u64, 64, 0_u64, said);
        let over = Matrix {
            rows: m,
            values: download(at_a, m * n),
        };
        let u = match left {
            b'O' => Matrix::new(m, n, |row, column| over.at(row, column)),
            _ => Matrix {
                rows: m,
                values: download(u, m * columns),
            },
        };
        let vt = match right {
            b'O' => Matrix::new(n, n, |row, column| over.at(row, column)),
            _ => Matrix {
                rows: n,
                values: download(vt, n * n),
            },
        };
        let values = download::<f64>(s, n);
        assert!(values.is_sorted_by(|one, other| one >= other));
        u.transposed()
            .times(&u)
            .assert_is(&Matrix::new(columns, columns, |row, column| {
                f64::from(u8::from(row == column))
            }));
        let scaled = Matrix::new(m, n, |row, column| u.at(row, column) * values[column]);
        scaled.times(&vt).assert_is(&a);
    }
    let at_a = upload(&a.values);
    assert_eq!(
        call!(LIBRARIES, "cusolverDnDgesvd"; handle, b'O' as c_char, b'O' as c_char, m as c_int, n as c_int, at_a, m as c_int, at_a, 0_u64, m as c_int, 0_u64, n as c_int, 0_u64, 64, 0_u64, at_a),
        3
    );
    let mut options: Handle = null_mut();
    ok!(LIBRARIES, "cusolverDnCreateGesvdjInfo"; &mut options);
    ok!(LIBRARIES, "cusolverDnXgesvdjSetTolerance"; options, 1e-12_f64);
    let wide = a.transposed();
    let (at_a, s, said) = (
        upload(&wide.values),
        upload(&vec![0.0; n]),
        upload(&[7_i32]),
    );
    let (u, v) = (upload(&vec![0.0; n * n]), upload(&vec![0.0; m * n]));
    ok!(LIBRARIES, "cusolverDnDgesvdj"; handle, 1, 1, n as c_int, m as c_int, at_a, n as c_int, s, u, n as c_int, v, m as c_int, 0_u64, 64, said, options);
    let (u, v) = (
        Matrix {
            rows: n,
            values: download(u, n * n),
        },
        Matrix {
            rows: m,
            values: download(v, m * n),
        },
    );
    let values = download::<f64>(s, n);
    let scaled = Matrix::new(n, n, |row, column| u.at(row, column) * values[column]);
    scaled.times(&v.transposed()).assert_is(&wide);
    let (mut rounds, mut residual) = (0, 1.0);
    ok!(LIBRARIES, "cusolverDnXgesvdjGetSweeps"; handle, options, &mut rounds);
    ok!(LIBRARIES, "cusolverDnXgesvdjGetResidual"; handle, options, &mut residual);
    assert!(rounds == 1 && residual < 1e-12);
    ok!(LIBRARIES, "cusolverDnDestroyGesvdjInfo"; options);
    assert_eq!(
        call!(LIBRARIES, "cusolverDnXgesvdjSetTolerance"; options, 0.0_f64),
        3
    );
}

#[test]
fn generic_functions_use_both_workspaces() {
    let (handle, n) = (handle(), 5);
    let a = symmetric(n);
    let mut params: Handle = null_mut();
    ok!(LIBRARIES, "cusolverDnCreateParams"; &mut params);
    let (mut device, mut host) = (0_usize, 0_usize);
    let (at_a, said) = (upload(&a.values), upload(&[7_i32]));
    ok!(LIBRARIES, "cusolverDnXpotrf_bufferSize"; handle, params, 0, n as i64, 1, at_a, n as i64, 1, &mut device, &mut host);
    let mut room = vec![0_u8; host];
    let work = upload(&vec![0_u8; device]);
    ok!(LIBRARIES, "cusolverDnXpotrf"; handle, params, 0, n as i64, 1, at_a, n as i64, 1, work, device, room.as_mut_ptr(), host, said);
    assert!(host > 0 && room.iter().all(|byte| *byte != 0));
    let b = upload(&general(n, 1).values);
    ok!(LIBRARIES, "cusolverDnXpotrs"; handle, params, 0, n as i64, 1_i64, 1, at_a, n as i64, 1, b, n as i64, said);
    a.times(&Matrix {
        rows: n,
        values: download(b, n),
    })
    .assert_is(&general(n, 1));
    for bad in [null_mut(), handle, 0x10 as Handle] {
        let refused = call!(LIBRARIES, "cusolverDnXpotrf"; handle, bad, 0, n as i64, 1, at_a, n as i64, 1, work, device, room.as_mut_ptr(), host, said);
        assert_eq!(refused, 3);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let (handle, at) = (handle(), upload(&[0_u8; 256]));
    let mut lwork = 0;
    for (n, lda) in [(-1, 4), (4, 3), (0, 0)] {
        assert_eq!(
            call!(LIBRARIES, "cusolverDnDgetrf_bufferSize"; handle, n, n, at, lda, &mut lwork),
            3
        );
    }
    assert_eq!(
        call!(LIBRARIES, "cusolverDnDpotrf_bufferSize"; handle, 2, 4, at, 4, &mut lwork),
        3
    );
    for none in [null_mut(), 0x40 as Handle] {
        assert_eq!(
            call!(LIBRARIES, "cusolverDnDpotrf_bufferSize"; none, 0, 4, at, 4, &mut lwork),
            1
        );
    }
    ok!(LIBRARIES, "cusolverDnDestroy"; handle);
    assert_eq!(call!(LIBRARIES, "cusolverDnDestroy"; handle), 1);
}
