// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles and the descriptors of the old API: numbers of settings.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use gpgpu_locks::{Mutex, MutexGuard};
pub use gpgpu_stand_in::call::{Answer, Argument};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome},
    objects::Objects,
    work::Work,
};

use crate::compute::{Pooling, Window};
use crate::tensor::Tensor;
use crate::types::{Data, Result, Status};

/// A handle or a descriptor, as a pointer in C.
pub type Raw = *mut c_void;

/// A handle's object.
pub struct Handle {
    work: Work,
    stream: Mutex<Name>,
}

/// Filters: how many, of how many channels, and their sizes.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The type of its elements.
    pub data: Data,
    /// `cudnnTensorFormat_t`.
    pub format: c_int,
    /// Filters, channels and sizes.
    pub sizes: Vec<i64>,
}

/// The properties of a convolution.
#[derive(Debug, Clone, Default)]
pub struct Convolution {
    /// The movement of the filter.
    pub window: Window,
    /// Whether the filter is flipped, as in the mathematical definition (`CUDNN_CONVOLUTION`).
    pub is_flipped: bool,
    /// The type of the computation.
    pub data: Data,
    /// Groups of channels, which do not see each other.
    pub groups: i64,
    /// `cudnnMathType_t`, which changes nothing.
    pub math: c_int,
}

/// The properties of a pooling.
#[derive(Debug, Clone, Default)]
pub struct Pool {
    /// The result of a window.
    pub mode: Pooling,
    /// The window's sizes.
    pub sizes: Vec<i64>,
    /// The movement of the window.
    pub window: Window,
}

/// A function of one number.
#[derive(Debug, Clone, Copy, Default)]
pub struct Activation {
    /// `cudnnActivationMode_t`.
    pub mode: c_int,
    /// `cudnnNanPropagation_t`, which changes nothing.
    pub nan: c_int,
    /// The ceiling, or the function's alpha.
    pub coefficient: f64,
}

// Objects look like addresses of pages that no process has, a page for each kind: an object of another library, or of
// another kind, is not found.
static HANDLES: Objects<Handle> = Objects::new(0xCD44_0000_0000_0000, 16);
static TENSORS: Objects<Mutex<Tensor>> = Objects::new(0xCD44_0100_0000_0000, 16);
static FILTERS: Objects<Mutex<Filter>> = Objects::new(0xCD44_0200_0000_0000, 16);
static CONVOLUTIONS: Objects<Mutex<Convolution>> = Objects::new(0xCD44_0300_0000_0000, 16);
static POOLS: Objects<Mutex<Pool>> = Objects::new(0xCD44_0400_0000_0000, 16);
static ACTIVATIONS: Objects<Mutex<Activation>> = Objects::new(0xCD44_0500_0000_0000, 16);

/// The content of a descriptor of the old API.
pub trait Described: Clone + Default + Send + 'static {
    /// The existing descriptors.
    fn all() -> &'static Objects<Mutex<Self>>;
}

macro_rules! described {
    ($($of:ty: $all:ident;)*) => {$(
        impl Described for $of {
            fn all() -> &'static Objects<Mutex<Self>> {
                &$all
            }
        }
    )*};
}

described! {
    Tensor: TENSORS;
    Filter: FILTERS;
    Convolution: CONVOLUTIONS;
    Pool: POOLS;
    Activation: ACTIVATIONS;
}

/// Makes a descriptor without content.
pub fn describe<T: Described>(out: Answer<Raw>) -> Result {
    if out.is_null() {
        return Err(Status::NullPointer);
    }
    out.set(T::all().add(Mutex::default()) as Raw)
}

/// Ends a descriptor.
pub fn forget<T: Described>(name: Raw) -> Result {
    let gone = T::all().remove(name as usize);
    gone.map(|_| ()).ok_or(Status::BadParam)
}

/// The content of a descriptor.
pub fn said<T: Described>(name: Raw) -> Result<T> {
    let found = T::all().find(name as usize).ok_or(Status::BadParam)?;
    let said = found.lock().clone();
    Ok(said)
}

/// Says something by a descriptor.
pub fn say<T: Described>(name: Raw, f: impl FnOnce(&mut T) -> Result) -> Result {
    let found = T::all().find(name as usize).ok_or(Status::BadParam)?;
    f(&mut found.lock())
}

/// Makes a handle in the current context.
pub fn create() -> Result<Raw> {
    let handle = Handle {
        work: Work::here().ok_or(Status::NotInitialized)?,
        stream: Mutex::new(Name(null_mut())),
    };
    Ok(HANDLES.add(handle) as Raw)
}

/// Destroys a handle after its work has ended, as `cudnnDestroy` does.
pub fn destroy(name: Raw) -> Result {
    let handle = HANDLES.remove(name as usize).ok_or(Status::BadParam)?;
    handle.work.wait(*handle.stream());
    Ok(())
}

/// The handle behind a name.
pub fn find(name: Raw) -> Result<Arc<Handle>> {
    HANDLES.find(name as usize).ok_or(Status::BadParam)
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

impl Handle {
    /// The stream of its work, to be read or changed.
    pub fn stream(&self) -> MutexGuard<'_, Name> {
        self.stream.lock()
    }

    /// Queues work in the handle's stream.
    pub fn run(&self, work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static) -> Result {
        let stream = *self.stream();
        Ok(self.work.queue(stream, false, work)?)
    }
}

/// The scaling factors of a call, whose width depends on the tensor's type.
pub fn factors(data: Data, factors: [Argument<f64>; 2]) -> Result<[f64; 2]> {
    let mut all = [0.0; 2];
    for (to, from) in all.iter_mut().zip(factors) {
        *to = match data {
            Data::Single => from.cast::<f32>().get::<Status>()?.into(),
            Data::Double => from.get::<Status>()?,
        };
    }
    Ok(all)
}
