// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Plans: the program's numbers for them, and their settings in the host's library.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use gpgpu_library::{
    Object, Status,
    forward::{self, Request, set_stream, stream_id},
    memory::DeviceMemory,
};
use gpgpu_locks::{Mutex, RwLock};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{Function, Library, cufft::status},
};

use crate::{LIBRARY, PLAN};

const CREATE: &Function = Library::Cufft.find("cufftCreate");
const DESTROY: &Function = Library::Cufft.find("cufftDestroy");
const SET_WORK_AREA: &Function = Library::Cufft.find("cufftSetWorkArea");

/// A `cufftHandle`.
pub type Number = i32;

/// The state of a plan.
#[derive(Debug)]
pub struct Plan {
    /// The host's object; 0 until the plan needs one. It is then made in the current context, because cuFFT chooses the
    /// device at that time.
    id: u64,
    /// Whether the plan allocates its work area itself.
    allocates: bool,
    /// The size of the work area that it needs, once it has a transform.
    needs: Option<u64>,
    /// The work area that was allocated for it, and its size.
    own: Option<(DeviceMemory, u64)>,
    /// The work area that was sent to the library; 0 for none.
    area: u64,
    /// The stream that was set before the object existed.
    stream: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            id: 0,
            allocates: true,
            needs: None,
            own: None,
            area: 0,
            stream: 0,
        }
    }
}

static PLANS: RwLock<BTreeMap<Number, Arc<Mutex<Plan>>>> = RwLock::new(BTreeMap::new());
/// The last number. Numbers start at 1 and are never reused.
static LAST: AtomicI32 = AtomicI32::new(0);

/// Adds a plan without a transform.
///
/// # Errors
///
/// There are no more numbers.
pub fn add() -> Result<Number, Status> {
    let next = |last: Number| last.checked_add(1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    let number = last.map_err(|_| status::ALLOC_FAILED)? + 1;
    let mut plans = PLANS.write();
    plans.insert(number, Arc::default());
    Ok(number)
}

/// The plan with a number.
///
/// # Errors
///
/// `CUFFT_INVALID_PLAN` if there is none.
pub fn find(number: Number) -> Result<Arc<Mutex<Plan>>, Status> {
    let plans = PLANS.read();
    plans.get(&number).cloned().ok_or(status::INVALID_PLAN)
}

/// Destroys a plan, and waits for its work.
///
/// # Errors
///
/// `CUFFT_INVALID_PLAN` if there is none, or the library's result.
pub fn end(number: Number) -> Result<(), Status> {
    let mut plans = PLANS.write();
    let plan = plans.remove(&number);
    drop(plans);
    let plan = plan.ok_or(status::INVALID_PLAN)?;
    // Take the lock first: another thread may be using the plan.
    let mut plan = plan.lock();
    if plan.id == 0 {
        return Ok(());
    }
    // If this fails, the plan's context was destroyed, and its work area with it.
    forward::send(DESTROY, &[plan.id])?;
    plan.id = 0;
    plan.needs = None;
    if let Some((area, _)) = plan.own.take() {
        area.free();
    }
    Ok(())
}

impl Plan {
    /// The id of its object, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// The library's result, or the result for libcuda's code.
    pub fn object(&mut self) -> Result<u64, Status> {
        if self.id == 0 {
            let mut made: Object = std::ptr::null_mut();
            forward::send(CREATE, &[&raw mut made as u64])?;
            self.id = made as u64;
            if self.stream != 0 {
                set_stream(PLAN, made, self.stream as CUstream)?;
            }
        }
        Ok(self.id)
    }

    /// The id of its object, if it has a transform.
    ///
    /// # Errors
    ///
    /// `CUFFT_INVALID_PLAN` if it has none.
    pub fn made(&self) -> Result<u64, Status> {
        match self.needs {
            Some(_) => Ok(self.id),
            None => Err(status::INVALID_PLAN),
        }
    }

    /// Records that the plan has a transform that needs a work area of this size. Allocates the area if the plan does
    /// so itself.
    ///
    /// # Errors
    ///
    /// There is no memory for it. The plan is unusable then.
    pub fn make(&mut self, bytes: u64) -> Result<(), Status> {
        self.needs = None;
        let has = self.own.as_ref().map_or(0, |(_, bytes)| *bytes);
        if self.allocates && bytes > has {
            let area = DeviceMemory::allocate(LIBRARY, bytes)?;
            let told = self.tell_area(area.address());
            let old = match told {
                Ok(()) => self.own.replace((area, bytes)),
                Err(_) => Some((area, bytes)),
            };
            if let Some((old, _)) = old {
                old.free();
            }
            told?;
        }
        self.needs = Some(bytes);
        Ok(())
    }

    /// Sets whether the plan allocates its work area itself.
    ///
    /// # Errors
    ///
    /// `CUFFT_INVALID_PLAN` if it has a transform.
    pub fn set_allocates(&mut self, allocates: bool) -> Result<(), Status> {
        if self.needs.is_some() {
            return Err(status::INVALID_PLAN);
        }
        self.allocates = allocates;
        Ok(())
    }

    /// Sets a work area that belongs to the program.
    ///
    /// # Errors
    ///
    /// The library's result, or the result for libcuda's code.
    pub fn set_area(&mut self, area: u64) -> Result<(), Status> {
        self.object()?;
        // From here on the plan uses the program's memory: the memory that was allocated for it is freed.
        self.allocates = false;
        if let Some((own, _)) = self.own.take() {
            self.tell_area(area)?;
            own.free();
            return Ok(());
        }
        if self.area != area {
            Request::new(SET_WORK_AREA, &[self.id, area]).post()?;
            self.area = area;
        }
        Ok(())
    }

    /// Sends a work area to the library, and waits for the answer.
    fn tell_area(&mut self, area: u64) -> Result<(), Status> {
        Request::new(SET_WORK_AREA, &[self.id, area]).ask()?;
        self.area = area;
        Ok(())
    }

    /// Sets its stream.
    ///
    /// # Errors
    ///
    /// There is no such stream.
    pub fn set_stream(&mut self, stream: u64) -> Result<(), Status> {
        if self.id != 0 {
            return set_stream(PLAN, self.id as Object, stream as CUstream);
        }
        stream_id(LIBRARY, stream)?;
        self.stream = stream;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_one_plans_for_ever() {
        let [one, other] = [add().unwrap(), add().unwrap()];
        assert!(one > 0 && one != other);
        assert!(find(one).is_ok());
        // The host never knew the plan, so its end needs no host.
        assert_eq!(end(one), Ok(()));
        assert_eq!(end(one), Err(status::INVALID_PLAN));
        assert!(find(one).is_err() && find(other).is_ok());
        assert_ne!(add().unwrap(), one);
        for number in [0, -1, Number::MIN, Number::MAX] {
            assert_eq!(find(number).err(), Some(status::INVALID_PLAN));
        }
    }

    #[test]
    fn a_plan_without_a_transform_computes_nothing() {
        let plan = find(add().unwrap()).unwrap();
        let mut plan = plan.lock();
        assert_eq!(plan.made(), Err(status::INVALID_PLAN));
        assert_eq!(plan.set_allocates(false), Ok(()));
        assert_eq!(plan.make(64), Ok(()));
        assert!(plan.made().is_ok());
        assert_eq!(plan.set_allocates(true), Err(status::INVALID_PLAN));
    }
}
