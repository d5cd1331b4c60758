// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the tests: both libraries as a C program gets them, numbers of all types, and matrices to compare
//! with.
#![allow(dead_code, missing_docs)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use half::{bf16, f16};
use libloading::Library;
use num_complex::Complex;

pub type C32 = Complex<f32>;
pub type C64 = Complex<f64>;
pub type Handle = *mut c_void;

struct Libraries {
    cuda: Library,
    blas: Library,
}

fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let dir = exe.parent().unwrap();
        // SAFETY: our own libraries; their constructors do nothing. The second finds the first by its name.
        unsafe {
            Libraries {
                cuda: Library::new(dir.join("libsoftware_gpu.so")).unwrap(),
                blas: Library::new(dir.join("libsoftware_cublas.so")).unwrap(),
            }
        }
    })
}

/// The function with that name, from whichever library it is.
pub fn function<F: Copy>(name: &str) -> F {
    let both = libraries();
    let library = if name.starts_with("cublas") {
        &both.blas
    } else {
        &both.cuda
    };
    // SAFETY: the caller's arguments have the types of the function's by its C declaration.
    *unsafe { library.get::<F>(name.as_bytes()) }.expect(name)
}

pub fn is_exported(name: &str) -> bool {
    // SAFETY: only whether it is there is used.
    unsafe {
        libraries()
            .blas
            .get::<unsafe extern "C" fn()>(name.as_bytes())
    }
    .is_ok()
}

/// A call by name: the parameters have the arguments' types, which must be as wide as C's.
macro_rules! call {
    (@any $a:expr) => { _ };
    ($name:expr; $($a:expr),* $(,)?) => {{
        let f: unsafe extern "C" fn($($crate::common::call!(@any $a)),*) -> std::ffi::c_int =
            $crate::common::function($name);
        // SAFETY: pointers in these tests are NULL or valid where the function uses them; the rest may be anything.
        unsafe { f($($a),*) }
    }};
}

/// A call that must succeed.
macro_rules! ok {
    ($name:expr; $($a:expr),* $(,)?) => {
        assert_eq!($crate::common::call!($name; $($a),*), 0, "{}", $name)
    };
}
pub(crate) use {call, ok};

/// Makes the primary context current, and a handle in it.
pub fn handle() -> Handle {
    let mut context: *mut c_void = null_mut();
    ok!("cuInit"; 0u32);
    ok!("cuDevicePrimaryCtxRetain"; &mut context, 0);
    ok!("cuCtxSetCurrent"; context);
    let mut handle: Handle = null_mut();
    ok!("cublasCreate_v2"; &mut handle);
    handle
}

pub fn on_device(handle: Handle, is: bool) {
    ok!("cublasSetPointerMode_v2"; handle, c_int::from(is));
}

pub fn alloc(size: usize) -> u64 {
    let mut address = 0u64;
    ok!("cuMemAlloc_v2"; &mut address, size.max(1));
    address
}

pub fn upload<T: Copy>(values: &[T]) -> u64 {
    let address = alloc(size_of_val(values));
    write(address, values);
    address
}

pub fn write<T: Copy>(address: u64, values: &[T]) {
    ok!("cuMemcpyHtoD_v2"; address, values.as_ptr(), size_of_val(values));
}

pub fn download<T: Number>(address: u64, count: usize) -> Vec<T> {
    let mut values = vec![T::new(C64::default()); count];
    ok!("cuCtxSynchronize";);
    ok!("cuMemcpyDtoH_v2"; values.as_mut_ptr(), address, size_of::<T>() * count);
    values
}

/// A scalar at the place that the handle's mode says.
pub struct Scalar<T>(Box<T>, Option<u64>);

impl<T: Copy> Scalar<T> {
    pub fn new(value: T, on_device: bool) -> Self {
        Self(Box::new(value), on_device.then(|| upload(&[value])))
    }

    pub fn at(&self) -> u64 {
        self.1.unwrap_or(&raw const *self.0 as u64)
    }
}

/// A number of the tests' types, and as what they are compared.
pub trait Number: Copy + std::fmt::Debug + 'static {
    /// The letter in BLAS's names.
    const LETTER: &str;
    const COMPLEX: bool;
    const TOLERANCE: f64;
    fn new(value: C64) -> Self;
    fn value(self) -> C64;
}

macro_rules! real {
    ($($t:ty, $letter:literal, $tolerance:literal, |$x:ident| $new:expr, |$y:ident| $value:expr;)*) => {$(
        impl Number for $t {
            const LETTER: &str = $letter;
            const COMPLEX: bool = false;
            const TOLERANCE: f64 = $tolerance;
            fn new(value: C64) -> Self {
                let $x = value.re;
                $new
            }
            fn value(self) -> C64 {
                let $y = self;
                C64::new($value, 0.0)
            }
        }
    )*};
}
real! {
    f32, "S", 1e-4, |x| x as f32, |x| x.into();
    f64, "D", 1e-11, |x| x, |x| x;
    f16, "H", 4e-3, |x| f16::from_f64(x), |x| x.to_f64();
    bf16, "B", 3e-2, |x| bf16::from_f64(x), |x| x.to_f64();
    i8, "I", 0.0, |x| x as i8, |x| x.into();
    i32, "J", 0.0, |x| x as i32, |x| x.into();
}

impl Number for C32 {
    const LETTER: &str = "C";
    const COMPLEX: bool = true;
    const TOLERANCE: f64 = 1e-4;
    fn new(value: C64) -> Self {
        C32::new(value.re as f32, value.im as f32)
    }
    fn value(self) -> C64 {
        C64::new(self.re.into(), self.im.into())
    }
}

impl Number for C64 {
    const LETTER: &str = "Z";
    const COMPLEX: bool = true;
    const TOLERANCE: f64 = 1e-11;
    fn new(value: C64) -> Self {
        value
    }
    fn value(self) -> C64 {
        self
    }
}

pub fn named<T: Number>(rest: &str) -> String {
    format!("cublas{}{rest}", T::LETTER)
}

/// Small multiples of a quarter, or whole numbers, always the same for a seed; no imaginary part for real types.
pub fn numbers<T: Number>(seed: u64, count: usize) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let scale = if T::TOLERANCE == 0.0 { 1.0 } else { 0.25 };
        ((state >> 40) % 17) as f64 * scale - 8.0 * scale
    };
    (0..count)
        .map(|_| T::new(C64::new(next(), next())))
        .collect()
}

#[track_caller]
pub fn assert_close<T: Number>(found: T, expected: C64, what: &str) {
    let found = found.value();
    let close = (found - expected).norm() <= T::TOLERANCE * expected.norm().max(1.0);
    assert!(close, "{what} {}: {found} is not {expected}", T::LETTER);
}

/// A value that cannot be a result: it reveals invalid reads and writes.
pub fn poison<T: Number>() -> T {
    T::new(C64::new(f64::NAN, f64::NAN))
}

/// A matrix in device memory with gaps after each column, and its expected content.
pub struct Matrix<T> {
    pub rows: usize,
    pub columns: usize,
    pub leading: usize,
    pub address: u64,
    pub values: Vec<C64>,
    marker: std::marker::PhantomData<T>,
}

impl<T: Number> Matrix<T> {
    pub fn new(seed: u64, rows: usize, columns: usize) -> Self {
        Self::of(&numbers::<T>(seed, rows * columns), rows, columns)
    }

    pub fn of(values: &[T], rows: usize, columns: usize) -> Self {
        Self::padded(values, rows, columns, 4 - rows % 4)
    }

    pub fn padded(values: &[T], rows: usize, columns: usize, room: usize) -> Self {
        let leading = rows + room;
        let mut all = Vec::new();
        for column in values.chunks(rows.max(1)) {
            all.extend_from_slice(column);
            all.extend(std::iter::repeat_n(poison::<T>(), leading - rows));
        }
        Self {
            rows,
            columns,
            leading,
            address: upload(&all),
            values: values.iter().map(|x| x.value()).collect(),
            marker: std::marker::PhantomData,
        }
    }

    pub fn ld(&self) -> c_int {
        self.leading as c_int
    }

    pub fn at(&self, row: usize, column: usize) -> C64 {
        self.values[column * self.rows + row]
    }

    /// The element of the matrix after an operation: 0 nothing, 1 transposed, 2 adjoint.
    pub fn op(&self, operation: c_int, row: usize, column: usize) -> C64 {
        match operation {
            0 => self.at(row, column),
            1 => self.at(column, row),
            _ => self.at(column, row).conj(),
        }
    }

    /// Reads the matrix from device memory, and checks that nothing was written below the columns.
    pub fn read(&self) -> Vec<T> {
        let all = download::<T>(self.address, self.leading * self.columns);
        let mut values = Vec::new();
        for column in all.chunks(self.leading.max(1)) {
            values.extend_from_slice(&column[..self.rows]);
            for x in &column[self.rows..] {
                assert!(format!("{x:?}") == format!("{:?}", poison::<T>()), "{x:?}");
            }
        }
        values
    }

    #[track_caller]
    pub fn assert_is(&self, expected: impl Fn(usize, usize) -> C64, what: &str) {
        for (i, found) in self.read().into_iter().enumerate() {
            let (row, column) = (i % self.rows, i / self.rows);
            let place = format!("{what} at {row}, {column}");
            assert_close(found, expected(row, column), &place);
        }
    }
}
