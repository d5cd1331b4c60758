// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The backend's descriptors: attributes by name, and the objects of finalised descriptors.
//!
//! A graph has one operation, a convolution or a pointwise one, and an operation has one engine without knobs.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{memory::Memory, memory::Outcome, objects::Objects};
use serde::{Deserialize, Serialize};

use crate::compute::{Convolution, Window};
use crate::handle::{Handle, Raw};
use crate::tensor::Tensor;
use crate::text;
use crate::types::{Data, Result, Status, require};

/// Kinds of descriptors (`cudnnBackendDescriptorType_t`).
pub(crate) mod kind {
    pub const POINTWISE: i32 = 0;
    pub const CONVOLUTION: i32 = 1;
    pub const ENGINE: i32 = 2;
    pub const CONFIG: i32 = 3;
    pub const HEURISTICS: i32 = 4;
    pub const PLAN: i32 = 5;
    pub const CONVOLUTION_FORWARD: i32 = 10;
    pub const POINTWISE_OPERATION: i32 = 13;
    pub const GRAPH: i32 = 15;
    pub const PACK: i32 = 16;
    pub const TENSOR: i32 = 17;
    /// The number of types that cuDNN has.
    pub const COUNT: i32 = 51;
}

/// Types of attributes that are looked at (`cudnnBackendAttributeType_t`).
pub(crate) mod element {
    pub const HANDLE: i32 = 0;
    pub const DATA_TYPE: i32 = 1;
    pub const BOOLEAN: i32 = 2;
    pub const INT64: i32 = 3;
    pub const FLOAT: i32 = 4;
    pub const DOUBLE: i32 = 5;
    pub const POINTER: i32 = 6;
    pub const CONVOLUTION_MODE: i32 = 7;
    pub const POINTWISE_MODE: i32 = 14;
    pub const DESCRIPTOR: i32 = 15;
    pub const CHAR: i32 = 24;
}

/// Names of attributes that are looked at (`cudnnBackendAttributeName_t`).
pub(crate) mod name {
    pub const POINTWISE_MODE: i32 = 0;
    pub const DILATIONS: i32 = 102;
    pub const STRIDES: i32 = 103;
    pub const POST_PADDINGS: i32 = 104;
    pub const PRE_PADDINGS: i32 = 105;
    pub const CONVOLUTION_MODE: i32 = 101;
    pub const HEURISTICS_GRAPH: i32 = 201;
    pub const HEURISTICS_RESULTS: i32 = 202;
    pub const CONFIG_ENGINE: i32 = 300;
    pub const CONFIG_WORKSPACE: i32 = 303;
    pub const PLAN_HANDLE: i32 = 400;
    pub const PLAN_CONFIG: i32 = 401;
    pub const PLAN_WORKSPACE: i32 = 402;
    pub const PLAN_TEXT: i32 = 405;
    pub const FORWARD_ALPHA: i32 = 700;
    pub const FORWARD_BETA: i32 = 701;
    pub const FORWARD_CONVOLUTION: i32 = 702;
    pub const FORWARD_W: i32 = 703;
    pub const FORWARD_X: i32 = 704;
    pub const FORWARD_Y: i32 = 705;
    pub const OPERATION_POINTWISE: i32 = 750;
    pub const OPERATION_X: i32 = 751;
    pub const OPERATION_B: i32 = 752;
    pub const OPERATION_Y: i32 = 753;
    pub const GRAPH_OPERATIONS: i32 = 801;
    pub const GRAPH_ENGINES: i32 = 802;
    pub const TENSOR_DATA: i32 = 901;
    pub const TENSOR_SIZES: i32 = 902;
    pub const TENSOR_STRIDES: i32 = 903;
    pub const TENSOR_ID: i32 = 906;
    pub const TENSOR_IS_BY_VALUE: i32 = 908;
    pub const PACK_IDS: i32 = 1000;
    pub const PACK_POINTERS: i32 = 1001;
    pub const ENGINE_GRAPH: i32 = 1300;
    pub const ENGINE_INDEX: i32 = 1301;
}

/// Bytes of an element of an attribute's type.
///
/// # Errors
/// `AttributeType` if there is no such type.
pub fn width(of: i32) -> Result<usize> {
    Ok(match of {
        element::BOOLEAN | element::CHAR => 1,
        element::HANDLE | element::INT64 | element::DOUBLE | element::POINTER => 8,
        element::DESCRIPTOR => 8,
        // Two integers of 64 bits each.
        26 => 16,
        1..=33 => 4,
        _ => return Err(Status::AttributeType),
    })
}

/// An attribute's elements.
#[derive(Clone)]
pub enum Value {
    /// Bytes of a type.
    Plain(i32, Vec<u8>),
    /// Descriptors.
    Descriptors(Vec<Arc<Descriptor>>),
}

/// A tensor of a graph.
#[derive(Clone, Serialize, Deserialize)]
struct Operand {
    id: i64,
    tensor: Tensor,
    is_by_value: bool,
}

/// The computation of an operation.
#[derive(Clone, Serialize, Deserialize)]
enum Computation {
    Convolution(Box<Convolution>, [f64; 2]),
    Sum,
    Product,
}

/// An operation: computed from the first two, into the third.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Operation {
    computation: Computation,
    operands: [Operand; 3],
}

/// The object of a finalised descriptor.
#[derive(Clone)]
enum Made {
    Other,
    Operand(Operand),
    Window(Window, bool),
    Pointwise(Computation),
    Operation(Arc<Operation>),
}

#[derive(Clone, Default)]
struct State {
    values: HashMap<i32, Value>,
    made: Option<Made>,
}

/// A descriptor of the backend.
pub struct Descriptor {
    kind: i32,
    state: Mutex<State>,
}

static DESCRIPTORS: Objects<Arc<Descriptor>> = Objects::new(0xCD44_0800_0000_0000, 16);

/// Makes a descriptor of a kind.
///
/// # Errors
/// `NotSupported` for unsupported kinds, `BadParam` for invalid ones.
pub fn create(of: i32) -> Result<Raw> {
    require((0..kind::COUNT).contains(&of))?;
    match of {
        kind::POINTWISE..=kind::PLAN
        | kind::CONVOLUTION_FORWARD
        | kind::POINTWISE_OPERATION
        | kind::GRAPH..=kind::TENSOR => {
            let state = Mutex::default();
            let descriptor = Arc::new(Descriptor { kind: of, state });
            Ok(DESCRIPTORS.add(descriptor) as Raw)
        }
        _ => Err(Status::NotSupported),
    }
}

/// Destroys a descriptor; others that were made from it keep its content.
///
/// # Errors
/// `BadParam` if there is none.
pub fn destroy(name: Raw) -> Result {
    let gone = DESCRIPTORS.remove(name as usize);
    gone.map(|_| ()).ok_or(Status::BadParam)
}

/// The descriptor behind a name.
///
/// # Errors
/// `BadParam` if there is none.
pub fn find(name: Raw) -> Result<Arc<Descriptor>> {
    let found = DESCRIPTORS.find(name as usize).ok_or(Status::BadParam)?;
    Ok(Arc::clone(&found))
}

impl State {
    fn bytes(&self, name: i32, of: i32) -> Result<&[u8]> {
        match self.values.get(&name) {
            Some(Value::Plain(it, bytes)) if *it == of => Ok(bytes),
            Some(_) => Err(Status::AttributeType),
            None => Err(Status::BadParam),
        }
    }

    fn wide(&self, name: i32, of: i32) -> Result<Vec<i64>> {
        let chunks = self.bytes(name, of)?.chunks_exact(8);
        Ok(chunks
            .map(|bytes| i64::from_ne_bytes(bytes.try_into().unwrap()))
            .collect())
    }

    fn one(&self, name: i32, of: i32) -> Result<i32> {
        let bytes = self.bytes(name, of)?.try_into();
        Ok(i32::from_ne_bytes(bytes.map_err(|_| Status::BadParam)?))
    }

    fn number(&self, name: i32) -> Result<f64> {
        match self.values.get(&name) {
            None => Err(Status::BadParam),
            Some(Value::Plain(element::FLOAT, bytes)) => {
                let bytes = bytes[..].try_into().map_err(|_| Status::BadParam)?;
                Ok(f32::from_ne_bytes(bytes).into())
            }
            Some(Value::Plain(element::DOUBLE, bytes)) => {
                let bytes = bytes[..].try_into().map_err(|_| Status::BadParam)?;
                Ok(f64::from_ne_bytes(bytes))
            }
            Some(_) => Err(Status::AttributeType),
        }
    }

    fn descriptor(&self, name: i32, of: i32) -> Result<&Arc<Descriptor>> {
        match self.values.get(&name) {
            Some(Value::Descriptors(all)) => match &all[..] {
                [one] if one.kind == of => Ok(one),
                _ => Err(Status::BadParam),
            },
            Some(_) => Err(Status::AttributeType),
            None => Err(Status::BadParam),
        }
    }

    fn operand(&self, name: i32) -> Result<Operand> {
        match self.descriptor(name, kind::TENSOR)?.made()? {
            Made::Operand(operand) => Ok(operand),
            _ => Err(Status::BadParam),
        }
    }

    fn operation(&self, name: i32, of: i32) -> Result<Made> {
        match self.descriptor(name, of)?.made()? {
            Made::Operation(operation) => Ok(Made::Operation(operation)),
            _ => Err(Status::BadParam),
        }
    }

    fn tensor(&self) -> Result<Made> {
        let data = Data::new(self.one(name::TENSOR_DATA, element::DATA_TYPE)?)?;
        let sizes = self.wide(name::TENSOR_SIZES, element::INT64)?;
        let strides = self.wide(name::TENSOR_STRIDES, element::INT64)?;
        let [id] = self.wide(name::TENSOR_ID, element::INT64)?[..] else {
            return Err(Status::BadParam);
        };
        let is_by_value = match self.values.get(&name::TENSOR_IS_BY_VALUE) {
            None => false,
            Some(_) => self.bytes(name::TENSOR_IS_BY_VALUE, element::BOOLEAN)? != [0],
        };
        let tensor = Tensor::new(data, sizes, strides)?;
        require(!is_by_value || tensor.elements() == 1)?;
        Ok(Made::Operand(Operand {
            id,
            tensor,
            is_by_value,
        }))
    }

    fn window(&self) -> Result<Made> {
        let list = |name| self.wide(name, element::INT64);
        let window = Window {
            padding: list(name::PRE_PADDINGS)?,
            stride: list(name::STRIDES)?,
            dilation: list(name::DILATIONS)?,
        };
        if list(name::POST_PADDINGS)? != window.padding {
            return Err(Status::NotSupported);
        }
        let mode = self.one(name::CONVOLUTION_MODE, element::CONVOLUTION_MODE)?;
        Ok(Made::Window(window, mode == 0))
    }

    fn convolution(&self) -> Result<Made> {
        let how = self.descriptor(name::FORWARD_CONVOLUTION, kind::CONVOLUTION)?;
        let Made::Window(window, is_flipped) = how.made()? else {
            return Err(Status::BadParam);
        };
        let [x, w, y] =
            [name::FORWARD_X, name::FORWARD_W, name::FORWARD_Y].map(|name| self.operand(name));
        let (x, w, y) = (x?, w?, y?);
        let of_a_group = w.tensor.size(1);
        require(x.tensor.size(1) % of_a_group == 0)?;
        let groups = x.tensor.size(1) / of_a_group;
        let (sizes, filters) = (&x.tensor.sizes, &w.tensor.sizes);
        let (of, sizes) = Convolution::new(sizes, filters, &window, groups, is_flipped)?;
        require(sizes == y.tensor.sizes)?;
        let factors = [
            self.number(name::FORWARD_ALPHA)?,
            self.number(name::FORWARD_BETA)?,
        ];
        let computation = Computation::Convolution(Box::new(of), factors);
        let operands = [x, w, y];
        Ok(Made::Operation(Arc::new(Operation {
            computation,
            operands,
        })))
    }

    fn pointwise(&self) -> Result<Made> {
        let how = self.descriptor(name::OPERATION_POINTWISE, kind::POINTWISE)?;
        let Made::Pointwise(computation) = how.made()? else {
            return Err(Status::BadParam);
        };
        let x = self.operand(name::OPERATION_X)?;
        let b = self.operand(name::OPERATION_B)?;
        let y = self.operand(name::OPERATION_Y)?;
        let is_one = b.tensor.elements() == 1;
        require(x.tensor.sizes == y.tensor.sizes && !x.is_by_value && !y.is_by_value)?;
        require(is_one || b.tensor.sizes == x.tensor.sizes)?;
        let operands = [x, b, y];
        Ok(Made::Operation(Arc::new(Operation {
            computation,
            operands,
        })))
    }

    fn graph(&self) -> Result<Made> {
        let Some(Value::Descriptors(all)) = self.values.get(&name::GRAPH_OPERATIONS) else {
            return Err(Status::BadParam);
        };
        match &all[..] {
            [one] => match one.made()? {
                Made::Operation(operation) => Ok(Made::Operation(operation)),
                _ => Err(Status::BadParam),
            },
            [] => Err(Status::BadParam),
            _ => Err(Status::NotSupported),
        }
    }

    fn engine(&self) -> Result<Made> {
        let made = self.operation(name::ENGINE_GRAPH, kind::GRAPH)?;
        match self.wide(name::ENGINE_INDEX, element::INT64)?[..] {
            [0] => Ok(made),
            _ => Err(Status::NotSupported),
        }
    }

    // The object that it describes.
    fn make(&self, of: i32) -> Result<Made> {
        match of {
            kind::TENSOR => self.tensor(),
            kind::CONVOLUTION => self.window(),
            kind::POINTWISE => match self.one(name::POINTWISE_MODE, element::POINTWISE_MODE)? {
                0 => Ok(Made::Pointwise(Computation::Sum)),
                1 => Ok(Made::Pointwise(Computation::Product)),
                _ => Err(Status::NotSupported),
            },
            kind::CONVOLUTION_FORWARD => self.convolution(),
            kind::POINTWISE_OPERATION => self.pointwise(),
            kind::GRAPH => self.graph(),
            kind::HEURISTICS => self.operation(name::HEURISTICS_GRAPH, kind::GRAPH),
            kind::ENGINE => self.engine(),
            kind::CONFIG => self.operation(name::CONFIG_ENGINE, kind::ENGINE),
            kind::PLAN => {
                self.bytes(name::PLAN_HANDLE, element::HANDLE)?;
                if self.values.contains_key(&name::PLAN_TEXT) {
                    let plan = text::plan(self.bytes(name::PLAN_TEXT, element::CHAR)?)?;
                    return Ok(Made::Operation(Arc::new(plan)));
                }
                text::compile();
                self.operation(name::PLAN_CONFIG, kind::CONFIG)
            }
            kind::PACK => {
                let ids = self.wide(name::PACK_IDS, element::INT64)?;
                let pointers = self.wide(name::PACK_POINTERS, element::POINTER)?;
                require(ids.len() == pointers.len())?;
                Ok(Made::Other)
            }
            _ => Err(Status::NotSupported),
        }
    }
}

impl Descriptor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn made(&self) -> Result<Made> {
        self.state().made.clone().ok_or(Status::NotFinalized)
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `BadParam` once it is finalised.
    pub fn set(&self, name: i32, value: Value) -> Result {
        if let Value::Descriptors(all) = &value {
            for of in all {
                // One that is set as its own attribute is not finalised either.
                require(!std::ptr::eq(&**of, self))?;
                of.made()?;
            }
        }
        let mut state = self.state();
        require(state.made.is_none())?;
        state.values.insert(name, value);
        Ok(())
    }

    /// Finalises it.
    ///
    /// # Errors
    /// The error of its attributes.
    pub fn finalize(&self) -> Result {
        let mut state = self.state();
        require(state.made.is_none())?;
        state.made = Some(state.make(self.kind)?);
        Ok(())
    }

    /// An attribute of a finalised descriptor.
    ///
    /// # Errors
    /// `BadParam` if it has no attribute of that name, `NotInitialized` if it is not finalised.
    pub fn get(&self, of: i32) -> Result<Value> {
        let state = self.state();
        let Some(made) = &state.made else {
            return Err(Status::NotInitialized);
        };
        match (self.kind, of) {
            (kind::PLAN, name::PLAN_WORKSPACE) | (kind::CONFIG, name::CONFIG_WORKSPACE) => {
                Ok(Value::Plain(element::INT64, 0_i64.to_ne_bytes().into()))
            }
            (kind::GRAPH, name::GRAPH_ENGINES) => {
                Ok(Value::Plain(element::INT64, 1_i64.to_ne_bytes().into()))
            }
            (kind::PLAN, name::PLAN_TEXT) => match made {
                Made::Operation(plan) => Ok(Value::Plain(element::CHAR, text::of(plan)?)),
                _ => Err(Status::InternalError),
            },
            (kind::HEURISTICS, name::HEURISTICS_RESULTS) => {
                let graph = state.values[&name::HEURISTICS_GRAPH].clone();
                let index = Value::Plain(element::INT64, 0_i64.to_ne_bytes().into());
                let with = |kind, values: &[(i32, Value)]| {
                    let values: HashMap<_, _> = values.iter().cloned().collect();
                    let state = State {
                        values,
                        made: state.made.clone(),
                    };
                    let state = Mutex::new(state);
                    Value::Descriptors(vec![Arc::new(Descriptor { kind, state })])
                };
                let attributes = [(name::ENGINE_GRAPH, graph), (name::ENGINE_INDEX, index)];
                let engine = with(kind::ENGINE, &attributes);
                Ok(with(kind::CONFIG, &[(name::CONFIG_ENGINE, engine)]))
            }
            _ => state.values.get(&of).cloned().ok_or(Status::BadParam),
        }
    }

    /// Becomes like another one of its kind.
    ///
    /// # Errors
    /// `BadParam` if it is of another kind.
    pub fn become_like(&self, other: &Self) -> Result {
        require(self.kind == other.kind)?;
        let state = other.state().clone();
        *self.state() = state;
        Ok(())
    }
}

/// The place of an operand.
#[derive(Clone, Copy)]
enum Place {
    Device(u64),
    Value(f64),
}

fn place(operand: &Operand, ids: &[i64], pointers: &[i64]) -> Result<Place> {
    let at = ids.iter().position(|id| *id == operand.id);
    let pointer = pointers[at.ok_or(Status::BadParam)?] as u64;
    if pointer == 0 {
        return Err(Status::NullPointer);
    }
    if !operand.is_by_value {
        return Ok(Place::Device(pointer));
    }
    let pointer = pointer as *const c_void;
    // SAFETY: the caller says that this pointer leads to a value of this type.
    Ok(Place::Value(unsafe {
        match operand.tensor.data {
            Data::Single => pointer.cast::<f32>().read_unaligned().into(),
            Data::Double => pointer.cast::<f64>().read_unaligned(),
        }
    }))
}

fn read(memory: &Memory, operand: &Operand, place: &Place) -> Outcome<Vec<f64>> {
    match place {
        Place::Device(address) => operand.tensor.read(memory, *address),
        Place::Value(value) => Ok(vec![*value]),
    }
}

/// Executes a plan with the pointers of a variant pack.
///
/// # Errors
/// They are not finalised, or the pack lacks an operand.
pub fn execute(handle: &Handle, plan: &Descriptor, pack: &Descriptor) -> Result {
    require(plan.kind == kind::PLAN && pack.kind == kind::PACK)?;
    pack.made()?;
    let Made::Operation(operation) = plan.made()? else {
        return Err(Status::InternalError);
    };
    let (ids, pointers) = {
        let state = pack.state();
        let ids = state.wide(name::PACK_IDS, element::INT64)?;
        (ids, state.wide(name::PACK_POINTERS, element::POINTER)?)
    };
    let [a, b, y] = [0, 1, 2].map(|at| place(&operation.operands[at], &ids, &pointers));
    let (a, b) = (a?, b?);
    let Place::Device(y) = y? else {
        return Err(Status::BadParam);
    };
    handle.run(move |memory| {
        let [of_a, of_b, of_y] = &operation.operands;
        let (a, b) = (read(&memory, of_a, &a)?, read(&memory, of_b, &b)?);
        let both = || a.iter().zip(b.iter().cycle());
        let (values, factors) = match &operation.computation {
            Computation::Convolution(of, factors) => (of.run(&a, &b), *factors),
            Computation::Sum => (both().map(|(a, b)| a + b).collect(), [1.0, 0.0]),
            Computation::Product => (both().map(|(a, b)| a * b).collect(), [1.0, 0.0]),
        };
        of_y.tensor.write(&memory, y, values, factors)
    })
}

/// A handle's number, as attributes hold it.
pub fn raw(bytes: &[u8]) -> Raw {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    usize::from_ne_bytes(word) as Raw
}

/// The status of a call, for callers that count elements.
pub fn count(of: i64) -> Result<usize> {
    let count = usize::try_from(of).map_err(|_| Status::BadParam)?;
    require(count <= 1 << 20)?;
    Ok(count)
}

/// The number of elements of an attribute.
pub fn elements(value: &Value) -> Result<c_int> {
    Ok(match value {
        Value::Plain(of, bytes) => (bytes.len() / width(*of)?) as c_int,
        Value::Descriptors(all) => all.len() as c_int,
    })
}
