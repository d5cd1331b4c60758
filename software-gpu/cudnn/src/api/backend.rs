// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The backend's API: descriptors with attributes.

use std::ffi::c_int;

use gpgpu_stand_in::call::{Answer, Argument};

use super::export;
use crate::graph::{self, Value, count, create, destroy, element, elements, execute, raw, width};
use crate::handle::{Raw, find};
use crate::types::{Result, Status};

fn words(from: Argument<u64>, count: usize) -> Result<Vec<Raw>> {
    let words = from.array::<Status>(count)?;
    Ok(words.into_iter().map(|word| word as usize as Raw).collect())
}

export! {
    /// Makes a descriptor of a kind.
    fn cudnnBackendCreateDescriptor(kind: c_int, out: Answer<Raw>) {
        if out.is_null() {
            return Err(Status::NullPointer);
        }
        out.set(create(kind)?)
    }

    /// Ends a descriptor.
    fn cudnnBackendDestroyDescriptor(descriptor: Raw) { destroy(descriptor) }

    /// Finalises a descriptor.
    fn cudnnBackendFinalize(descriptor: Raw) { graph::find(descriptor)?.finalize() }

    /// Sets an attribute.
    fn cudnnBackendSetAttribute(
        descriptor: Raw, name: c_int, kind: c_int, number: i64, from: Argument<u8>,
    ) {
        let descriptor = graph::find(descriptor)?;
        let number = count(number)?;
        let value = match kind {
            element::DESCRIPTOR => {
                let all = words(from.cast(), number)?.into_iter().map(graph::find);
                Value::Descriptors(all.collect::<Result<_>>()?)
            }
            _ => Value::Plain(kind, from.array::<Status>(number * width(kind)?)?),
        };
        if let Value::Plain(element::HANDLE, bytes) = &value {
            find(raw(bytes))?;
        }
        descriptor.set(name, value)
    }

    /// An attribute of a finalised descriptor. Descriptors are set to those of the caller's.
    fn cudnnBackendGetAttribute(
        descriptor: Raw, name: c_int, kind: c_int, asked: i64, number: Answer<i64>, to: Answer<u8>,
    ) {
        let value = graph::find(descriptor)?.get(name)?;
        let all = elements(&value)?;
        if !number.is_null() {
            number.at(0).set::<Status>(all.into())?;
        }
        let asked = count(asked)?.min(all as usize);
        if to.is_null() || asked == 0 {
            return Ok(());
        }
        match value {
            Value::Plain(of, _) if of != kind => Err(Status::AttributeType),
            Value::Plain(of, bytes) => {
                for (at, byte) in bytes[..asked * width(of)?].iter().enumerate() {
                    to.at(at).set::<Status>(*byte)?;
                }
                Ok(())
            }
            Value::Descriptors(_) if kind != element::DESCRIPTOR => Err(Status::AttributeType),
            Value::Descriptors(all) => {
                let places = words(to.as_argument().cast(), asked)?;
                for (place, of) in places.into_iter().zip(all) {
                    graph::find(place)?.become_like(&of)?;
                }
                Ok(())
            }
        }
    }

    /// Executes a plan with the pointers of a variant pack.
    fn cudnnBackendExecute(handle: Raw, plan: Raw, pack: Raw) {
        execute(&*find(handle)?, &*graph::find(plan)?, &*graph::find(pack)?)
    }
}
