//! Calls of NVIDIA's libraries, which the operator's own copies carry out.
//!
//! The tables of [`gpgpu_protocol::libraries`] say how a call travels; a call here is a word for each argument, so one function
//! carries out all. A handle is an object like any other: an id that the guest chose, and what the library gave for it. Its stream and
//! its pointer mode are noted here as the library was told them, for the gate and for the check that nothing on
//! the host is read or written at an address that the guest gave.

use std::{
    collections::{HashMap, hash_map},
    ffi::c_void,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gpgpu_protocol::{
    api::{Completion, Context, CublasHandle, Gives, Object, Stream},
    codec::{Blob, Malformed, Writer},
    cuda::*,
    libraries::{
        Function, Kind, Library,
        call::{self, PointerMode, Value},
        function, status,
    },
};

use super::{
    charges::Owner,
    counts,
    dispatch::{Answer, Carried},
    grace::{self, Name},
    lease::{Named, current_gpu},
    objects::{Entry, Objects},
    session::Session,
};
use crate::cuda::library;

/// What a handle takes of a GPU's memory before it has computed anything, in bytes: cuBLAS took 68 MiB on an H100.
const HANDLE_BYTES: u64 = 96 << 20;

/// What the library was told of a handle.
#[derive(Debug, Default)]
struct State {
    /// The id of its stream.
    stream: u64,
    mode: PointerMode,
}

/// What becomes of an id.
#[derive(Debug)]
enum Place {
    /// A command is making the handle.
    Begun,
    /// It is there.
    Made(Arc<Mutex<State>>),
}

/// The handles' states, by id.
#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<u64, Place>>);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handles {
    fn of(&self, id: u64) -> Option<Arc<Mutex<State>>> {
        match locked(&self.0).get(&id)? {
            Place::Begun => None,
            Place::Made(state) => Some(Arc::clone(state)),
        }
    }

    /// Whether this is the state of the handle that has an id.
    fn is(&self, id: u64, state: &Arc<Mutex<State>>) -> bool {
        matches!(locked(&self.0).get(&id), Some(Place::Made(now)) if Arc::ptr_eq(now, state))
    }

    /// Takes an id for a handle that is about to be made, so that no other thread makes one with it: the state of one would be
    /// held for the other's.
    fn begin(&self, id: u64) -> Result<Begun<'_>, CUresult> {
        match locked(&self.0).entry(id) {
            hash_map::Entry::Occupied(_) => Err(CUDA_ERROR_INVALID_VALUE),
            hash_map::Entry::Vacant(place) => {
                place.insert(Place::Begun);
                Ok(Begun { handles: self, id })
            }
        }
    }

    /// Forgets the handles that are no objects any more: their context is gone.
    pub fn forget_ended(&self, session: &Session) {
        let is_there = |id: &u64| session.objects.live_context_of(*id).is_some();
        locked(&self.0).retain(|id, place| matches!(place, Place::Begun) || is_there(id));
    }
}

/// An id that is a handle's soon, or free again.
struct Begun<'a> {
    handles: &'a Handles,
    id: u64,
}

impl Begun<'_> {
    /// The handle is there.
    fn finish(self, objects: &Objects, entry: Entry) {
        let mut all = locked(&self.handles.0);
        objects.insert(self.id, entry);
        all.insert(self.id, Place::Made(Arc::default()));
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut all = locked(&self.handles.0);
        if let Some(Place::Begun) = all.get(&self.id) {
            all.remove(&self.id);
        }
    }
}

/// What a call comes to: the library's status, or the driver's code where the library was not called.
type Outcome = Result<u32, CUresult>;

/// Carries out a command of a library.
///
/// # Errors
///
/// There is no such operation, or the arguments are not its own.
pub fn carry_out(
    session: &Session,
    op: u16,
    context: u64,
    arguments: &[u8],
    by_ring: bool,
) -> Result<Carried, Malformed> {
    let (library, function) = function(op).ok_or(Malformed::Range)?;
    if by_ring && !function.operation.rings {
        return Err(Malformed::Range);
    }
    let mut call = Call {
        session,
        library,
        function,
        values: call::get(function, arguments)?,
    };
    let outcome = call.carry_out(context);
    let (result, status) = match outcome {
        Ok(status) => (as_code(status), status),
        Err(code) => (code, as_status(code)),
    };
    let mut writer = Writer::new();
    writer.put(&(status as i32));
    writer.put(&call.into_results());
    Ok(Carried::Done(Answer::with_reply(
        result,
        writer.into_bytes(),
    )))
}

/// Reads a call, or what answers it; what can be read is as it is written.
///
/// # Errors
///
/// As [`carry_out`].
#[cfg(any(test, fuzzing))]
pub fn read_again(op: u16, is_reply: bool, bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    use gpgpu_protocol::codec::{Few, Reader};
    let (_, function) = function(op).ok_or(Malformed::Range)?;
    if is_reply {
        let mut reader = Reader::new(bytes);
        reader.get::<i32>()?;
        reader.get::<Few<Blob, 16>>()?;
        reader.end()?;
    } else {
        call::get(function, bytes)?;
    }
    Ok(bytes.to_vec())
}

/// What a posted call's caller is told at a later call, where the library's own status cannot be told.
fn as_code(of: u32) -> CUresult {
    match of {
        status::SUCCESS => CUDA_SUCCESS,
        status::ALLOC_FAILED => CUDA_ERROR_OUT_OF_MEMORY,
        status::INVALID_VALUE => CUDA_ERROR_INVALID_VALUE,
        status::NOT_INITIALIZED => CUDA_ERROR_INVALID_HANDLE,
        status::NOT_SUPPORTED => CUDA_ERROR_NOT_SUPPORTED,
        _ => CUDA_ERROR_UNKNOWN,
    }
}

/// What the library would say of it.
fn as_status(code: CUresult) -> u32 {
    match code {
        CUDA_ERROR_OUT_OF_MEMORY => status::ALLOC_FAILED,
        CUDA_ERROR_INVALID_VALUE => status::INVALID_VALUE,
        CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED => status::NOT_INITIALIZED,
        CUDA_ERROR_NOT_SUPPORTED => status::NOT_SUPPORTED,
        _ => status::EXECUTION_FAILED,
    }
}

struct Call<'a> {
    session: &'a Session,
    library: Library,
    function: &'static Function,
    values: Vec<Value>,
}

impl Call<'_> {
    fn carry_out(&mut self, context: u64) -> Outcome {
        match self.function.kinds.first() {
            Some(Kind::New) => self.make(context),
            Some(Kind::Gone) => self.end(),
            Some(Kind::Handle) => self.on_handle(),
            _ => self.call(&[]),
        }
    }

    /// The results that the reply has.
    fn into_results(self) -> Vec<Blob> {
        let wanted = self.values.into_iter().filter_map(|value| match value {
            Value::Bytes(bytes, true) => Some(Blob(bytes)),
            _ => None,
        });
        wanted.collect()
    }

    fn word(&self, at: usize) -> u64 {
        match self.values.get(at) {
            Some(Value::Word(word)) => *word,
            _ => 0,
        }
    }

    /// Calls the library, with these words in place of the first arguments.
    fn call(&mut self, first: &[u64]) -> Outcome {
        let host = library::Library::from(self.library);
        let Ok(address) = host.symbol(self.function.operation.name) else {
            return Ok(match self.function.kinds.first() {
                Some(Kind::New) => status::NOT_INITIALIZED,
                _ => status::NOT_SUPPORTED,
            });
        };
        let mut words: Vec<u64> = self
            .values
            .iter_mut()
            .map(|value| match value {
                Value::Word(word) => *word,
                Value::Bytes(bytes, _) => bytes.as_mut_ptr() as u64,
            })
            .collect();
        words[..first.len()].copy_from_slice(first);
        // SAFETY: the table has a word for each argument of the library's function, none of which is a floating-point number. Handles are
        // the library's own and live; pointers are to buffers as long as the function reads or writes, which live across
        // the call, or device addresses where the library takes them for such. What else the guest chose can cost
        // this process, which is the guest process's own, and nobody else.
        Ok(unsafe { call_with(address, &words) })
    }

    /// Makes a handle in a context.
    fn make(&mut self, context: u64) -> Outcome {
        let (session, id) = (self.session, self.word(0));
        session.objects.check_new::<CublasHandle>(id)?;
        let begun = session.handles.begin(id)?;
        if context == 0 {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        session.objects.raw::<Context>(context)?;
        session.enter(context)?;
        let charge = session
            .device_memory
            .reserve(current_gpu()? as CUdevice, HANDLE_BYTES)?;
        let mut raw = 0_u64;
        let status = self.call(&[&raw mut raw as u64])?;
        if status == status::SUCCESS {
            session.charges.keep(Owner::Handle(id), context, charge);
            begun.finish(&session.objects, Entry::new(raw, context));
        }
        Ok(status)
    }

    /// Ends a handle, once no other thread's command uses it.
    fn end(&mut self) -> Outcome {
        let (session, id) = (self.session, self.word(0));
        let Ok(entry) = session.objects.end::<CublasHandle>(id) else {
            return Ok(status::NOT_INITIALIZED);
        };
        let state = session.handles.of(id);
        let alone = state.as_ref().map(|state| lock(state));
        // First: an end of the context that begins from here on waits for this command.
        grace::set_context(entry.context);
        let entered = session.enter(entry.context);
        let outcome = entered.and_then(|()| {
            if let Some(state) = &alone {
                self.leave_ended_stream(entry.raw, state);
            }
            self.call(&[entry.raw])
        });
        locked(&session.handles.0).remove(&id);
        session.charges.forget(Owner::Handle(id));
        session.objects.remove(id);
        outcome
    }

    /// Takes a handle from its stream if that has ended: the library waits for the stream's work when the handle ends.
    fn leave_ended_stream(&self, handle: u64, state: &State) {
        let objects = &self.session.objects;
        if Stream::SPECIAL.contains(&state.stream)
            || objects.entry::<Stream>(state.stream).is_some()
        {
            return;
        }
        let host = library::Library::from(self.library);
        if let Ok(address) = host.symbol(self.library.sets_stream()) {
            // SAFETY: the function takes a handle, which is the library's own and lives, and a stream: here the legacy one.
            unsafe { call_with(address, &[handle, 0]) };
        }
    }

    /// What is called on a handle: in its context, and on its stream.
    fn on_handle(&mut self) -> Outcome {
        let (session, id) = (self.session, self.word(0));
        let Some(held) = session.handles.of(id) else {
            return Ok(status::NOT_INITIALIZED);
        };
        let mut state = lock(&held);
        // Behind the lock: it may have ended meanwhile, and another may have its id, whose state this is not.
        let is_held = || session.handles.is(id, &held);
        let entry = session.objects.entry::<CublasHandle>(id);
        let Some(entry) = entry.filter(|_| is_held()) else {
            return Ok(status::NOT_INITIALIZED);
        };
        let gives = self.function.operation.gives();
        let _passage = if gives == Gives::Nothing {
            // First: an end of the context that begins from here on waits for this command.
            grace::set_context(entry.context);
            session.enter(entry.context)?;
            None
        } else {
            let named = Named {
                stream: Some(state.stream),
                ..Named::default()
            };
            let passage = session.gates.enter(entry.context, &named, gives)?;
            // At the gate it may have waited until the handle's context had ended, and another had its id.
            let now = session.objects.entry::<CublasHandle>(id);
            if now.is_none() || !is_held() {
                return Ok(status::NOT_INITIALIZED);
            }
            // The library has its handle, which must be a stream's still.
            session.objects.stream(state.stream)?;
            counts::launch();
            Some(passage)
        };
        self.check_addresses(state.mode)?;
        if self.function.operation.completion == Completion::Wait {
            let used = [id, state.stream, entry.context];
            grace::narrow(&used.map(Name::Object));
        }
        match self.function.kinds {
            [Kind::Handle, Kind::Stream] => {
                let stream = self.word(1);
                let (raw, context) = session.objects.stream(stream)?;
                // The gate is the stream's, so the handle's work must be there too.
                if context != 0 && context != entry.context {
                    return Ok(status::INVALID_VALUE);
                }
                let status = self.call(&[entry.raw, raw])?;
                if status == status::SUCCESS {
                    state.stream = stream;
                }
                Ok(status)
            }
            _ if self.function.operation.name == self.library.sets_pointer_mode() => {
                let mode = match self.word(1) {
                    0 => PointerMode::Host,
                    1 => PointerMode::Device,
                    _ => return Ok(status::INVALID_VALUE),
                };
                let status = self.call(&[entry.raw])?;
                if status == status::SUCCESS {
                    state.mode = mode;
                }
                Ok(status)
            }
            _ => self.call(&[entry.raw]),
        }
    }

    /// Checks that scalars and results are where the library will look for them: bytes here where it takes host addresses, and
    /// addresses where it takes the device's. NULL it refuses by itself.
    fn check_addresses(&self, mode: PointerMode) -> Result<(), CUresult> {
        for (kind, value) in self.function.kinds.iter().zip(&self.values) {
            let by_mode = matches!(
                kind,
                Kind::Scalar(_) | Kind::Result(_) | Kind::InOut(_) | Kind::Scalars(..)
            );
            let is_good = match value {
                Value::Word(0) => true,
                Value::Word(_) => mode == PointerMode::Device,
                Value::Bytes(..) => mode == PointerMode::Host,
            };
            if by_mode && !is_good {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }
}

/// Locks a handle's state. Who has it may be waiting for the GPU, so a command that waits for it is outside.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    match state.try_lock() {
        Ok(state) => state,
        Err(_) => {
            let _paused = grace::pause();
            locked(state)
        }
    }
}

macro_rules! by_count {
    ($address:ident, $words:ident; $($count:literal: $($word:ident)*;)*) => {
        match *$words {
            $([$($word),*] => {
                let function: unsafe extern "C" fn($(by_count!(@ $word)),*) -> u32 =
                    // SAFETY: the caller vouches for it.
                    unsafe { std::mem::transmute($address) };
                // SAFETY: the caller vouches for it.
                unsafe { function($($word),*) }
            })*
            _ => unreachable!("a function of the tables has at most 25 arguments"),
        }
    };
    (@ $word:ident) => { u64 };
}

/// Calls a C function whose arguments are integers and pointers. In the ABI of x86-64 and of AArch64 an `int` is the low half of such
/// a word.
///
/// # Safety
///
/// It is such a function with so many arguments, and they are what it asks for.
unsafe fn call_with(address: *const c_void, words: &[u64]) -> u32 {
    by_count! { address, words;
        1: a;
        2: a b;
        3: a b c;
        4: a b c d;
        5: a b c d e;
        6: a b c d e f;
        7: a b c d e f g;
        8: a b c d e f g h;
        9: a b c d e f g h i;
        10: a b c d e f g h i j;
        11: a b c d e f g h i j k;
        12: a b c d e f g h i j k l;
        13: a b c d e f g h i j k l m;
        14: a b c d e f g h i j k l m n;
        15: a b c d e f g h i j k l m n o;
        16: a b c d e f g h i j k l m n o p;
        17: a b c d e f g h i j k l m n o p q;
        18: a b c d e f g h i j k l m n o p q r;
        19: a b c d e f g h i j k l m n o p q r s;
        20: a b c d e f g h i j k l m n o p q r s t;
        21: a b c d e f g h i j k l m n o p q r s t u;
        22: a b c d e f g h i j k l m n o p q r s t u v;
        23: a b c d e f g h i j k l m n o p q r s t u v w;
        24: a b c d e f g h i j k l m n o p q r s t u v w x;
        25: a b c d e f g h i j k l m n o p q r s t u v w x y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_handles_from_the_time_when_it_is_made() {
        let session = Session::new(None);
        let (handles, id) = (&session.handles, 0x190);
        let begun = handles.begin(id).unwrap();
        assert!(handles.of(id).is_none(), "it is not there yet");
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        // The end of some context is not the end of what is about to be in another.
        handles.forget_ended(&session);
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        drop(begun);
        let begun = handles.begin(id).expect("the first has failed");
        begun.finish(&session.objects, Entry::new(1, 0x110));
        let first = handles.of(id).expect("it is there");
        assert!(handles.is(id, &first));
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        session.objects.remove_context(0x110);
        handles.forget_ended(&session);
        assert!(handles.of(id).is_none() && !handles.is(id, &first));
        let begun = handles.begin(id).expect("its context has ended");
        begun.finish(&session.objects, Entry::new(1, 0x110));
        // Whoever waited for the first one's state has not the second one's.
        assert!(!handles.is(id, &first));
    }

    #[test]
    fn every_function_of_the_tables_can_be_called() {
        for of in gpgpu_protocol::libraries::functions() {
            assert!((1..=25).contains(&of.kinds.len()), "{}", of.operation.name);
        }
    }

    #[test]
    fn words_arrive_as_arguments_in_registers_and_on_the_stack() {
        extern "C" fn many(
            a: u64,
            b: i32,
            c: *const u8,
            d: i64,
            e: i32,
            f: i32,
            g: i32,
            h: i64,
            i: i32,
        ) -> u32 {
            let ints = [b, e, f, g, i].map(i64::from);
            let wide = [a as i64, c as i64, d, h];
            u32::from(ints == [-2, -5, 6, -7, -9] && wide == [1, 3, -4, 8])
        }
        let words = [1_i64, -2, 3, -4, -5, 6, -7, 8, -9].map(|word| word as u64);
        // SAFETY: the function takes nine such arguments.
        let arrived = unsafe { call_with(many as *const c_void, &words) };
        assert_eq!(arrived, 1);
    }

    #[test]
    fn a_status_and_a_code_say_the_same() {
        for (of, code) in [
            (status::SUCCESS, CUDA_SUCCESS),
            (status::ALLOC_FAILED, CUDA_ERROR_OUT_OF_MEMORY),
            (status::INVALID_VALUE, CUDA_ERROR_INVALID_VALUE),
            (status::NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED),
        ] {
            assert_eq!(as_code(of), code);
            if of != status::SUCCESS {
                assert_eq!(as_status(code), of);
            }
        }
    }
}
