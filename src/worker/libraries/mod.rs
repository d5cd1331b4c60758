// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of NVIDIA's libraries, which the operator's own copies execute.
//!
//! The tables of [`gpgpu_protocol::libraries`] describe the encoding of a call. A decoded call is a word for each
//! argument, so one function executes all calls ([`abi`]). Functions that need more have a part written by hand
//! ([`by_hand`]). A handle, a plan or a descriptor is an object like any other: an id that the guest chose, and the
//! library's value for it. A handle's stream and pointer mode are recorded as they were set in the library
//! ([`handles`]). The gate needs them, and so does the check that the library accesses no host memory at an address
//! from the guest.

mod abi;
mod cublaslt;
mod cudnn;
mod cufft;
mod curand;
mod cusparselt;
mod handles;
mod nvjpeg;
mod recording;

use std::{collections::HashMap, sync::LazyLock};

use gpgpu_protocol::{
    api::{Completion, Context, Gives, Object, Stream, object_kind},
    codec::{Blob, Malformed, Writer},
    cuda::*,
    libraries::{
        Class, Function, Kind, Library, SUCCESS, Statuses, Width,
        call::{self, PointerMode, Value},
        function, functions,
    },
};

use super::{
    charges::Owner,
    counts,
    dispatch::{Answer, Carried},
    executables::Refused,
    grace::{self, Ending, Name, Ticket},
    lease::{Named, current_gpu},
    objects::Entry,
    session::{Session, Way},
};
use crate::cuda::library;
use handles::State;
pub use recording::{Recorded, Wanted, record};
pub use {cudnn::Graphs, handles::Handles, nvjpeg::Jpegs};

/// The result of a call: the library's status, or the driver's error code if the library was not called.
type Outcome = Result<u32, CUresult>;

/// The worker's part for a function that needs more than its row describes.
type ByHand = fn(&mut Call<'_>, &[u64]) -> Outcome;

/// The parts that are written by hand, by function. Each gets the arguments in the library's form, if they are words.
const BY_HAND: &[&[(&str, ByHand)]] = &[
    cublaslt::BY_HAND,
    cudnn::BY_HAND,
    cufft::BY_HAND,
    curand::BY_HAND,
    cusparselt::BY_HAND,
    nvjpeg::BY_HAND,
];

fn by_hand(function: &Function) -> Option<ByHand> {
    static BY_OPERATION: LazyLock<HashMap<u16, ByHand>> = LazyLock::new(|| {
        let parts = BY_HAND.iter().copied().flatten();
        let operation = |name| functions().find(|of| of.operation.name == name);
        // A test checks that each name is in a table.
        let known = parts.filter_map(|(name, part)| Some((operation(*name)?.operation.op, *part)));
        known.collect()
    });
    BY_OPERATION.get(&function.operation.op).copied()
}

/// Executes a command of a library.
///
/// # Errors
///
/// There is no such operation, or its arguments are invalid.
pub fn carry_out(
    session: &Session,
    op: u16,
    context: u64,
    arguments: &[u8],
    way: Way,
) -> Result<Carried, Malformed> {
    let (library, function) = function(op).ok_or(Malformed::Range)?;
    if !way.takes(&function.operation) {
        return Err(Malformed::Range);
    }
    let mut values = call::get(function, arguments)?;
    mark(library, function, &mut values);
    let mut call = Call {
        session,
        library,
        function,
        values,
        part: None,
        commands: Ok(0),
    };
    let outcome = call.carry_out(context);
    Ok(Carried::Done(call.into_answer(outcome)))
}

/// The version of the operator's copy of a library, as in `13.1.0`; `None` if there is no copy, or it does not report
/// one.
pub fn version(of: Library) -> Option<String> {
    let mut functions = of
        .functions()
        .iter()
        .map(|function| function.operation.name);
    let name = functions.find(|name| name.ends_with("GetProperty"))?;
    let function = library::Library::from(of).symbol(name).ok()?;
    // `libraryPropertyType`: major, minor, patch.
    let parts = [0_u64, 1, 2].map(|property| {
        let mut value = 0_i32;
        let words = [property, &raw mut value as u64];
        // SAFETY: each library's function of this name takes an `int` and the address of one, which lives across the
        // call.
        let status = unsafe { abi::call_with(function, &words, [0.0; abi::MOST_FLOATS]) };
        (status == SUCCESS).then_some(value)
    });
    let [major, minor, patch] = parts;
    Some(format!("{}.{}.{}", major?, minor?, patch?))
}

/// Decodes a call, or its answer, and encodes it again.
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

/// The target of an empty array's address. Some functions nevertheless read the first value, such as cuFFT for a
/// transform without dimensions.
static NOTHING: [u64; 16] = [0; 16];

/// The bytes of a marked result that the library has not written.
const UNTOUCHED: u8 = 0xa5;

/// Whether a result is one that [`mark`] marks: a position, a count or a code, which cannot have that value. Any bytes
/// may be those of a computed number.
fn is_marked(library: Library, kind: &Kind) -> bool {
    let word = Width::Bytes(4);
    match kind {
        Kind::Out(width) => {
            matches!(library, Library::Cublas | Library::Cusparse) && *width == word
        }
        Kind::Result(width) => library == Library::Cusparse && *width == word,
        _ => false,
    }
}

/// Marks some results, so that [`into_results`] finds those that the library has written.
fn mark(library: Library, function: &Function, values: &mut [Value]) {
    for (kind, value) in function.kinds.iter().zip(values) {
        if let Value::Bytes(bytes, true) = value
            && is_marked(library, kind)
        {
            bytes.fill(UNTOUCHED);
        }
    }
}

/// The results for the reply. Beside a status other than success, these are the marked ones that the library has
/// written, such as the position of a zero pivot; others are empty.
fn into_results(
    library: Library,
    function: &Function,
    values: Vec<Value>,
    status: u32,
) -> Vec<Blob> {
    let result = |(kind, value): (&Kind, Value)| {
        let Value::Bytes(mut bytes, true) = value else {
            return None;
        };
        let is_marked = is_marked(library, kind);
        let is_untouched = is_marked && bytes.iter().all(|byte| *byte == UNTOUCHED);
        if status == SUCCESS && is_untouched {
            bytes.fill(0);
        } else if status != SUCCESS && (is_untouched || !is_marked) {
            bytes.clear();
        }
        Some(Blob(bytes))
    };
    function
        .kinds
        .iter()
        .zip(values)
        .filter_map(result)
        .collect()
}

/// A call in progress.
struct Call<'a> {
    session: &'a Session,
    library: Library,
    function: &'static Function,
    values: Vec<Value>,
    /// The part that it becomes, if it is recorded.
    part: Option<Wanted>,
    /// The result of the recording: the number of commands, or the refusal.
    commands: Result<u64, Refused>,
}

impl Call<'_> {
    fn into_answer(self, outcome: Outcome) -> Answer {
        let statuses = self.statuses();
        let (result, status) = match outcome {
            Ok(status) => (statuses.as_code(status), status),
            // The stream of a handle has ended.
            Err(code @ CUDA_ERROR_INVALID_HANDLE) => (code, statuses.execution_failed),
            Err(code) => (code, statuses.of_code(code)),
        };
        let mut writer = Writer::new();
        writer.put(&(status as i32));
        let results = into_results(self.library, self.function, self.values, status);
        writer.put(&results);
        Answer::with_reply(result, writer.into_bytes())
    }

    fn carry_out(&mut self, context: u64) -> Outcome {
        let function = self.function;
        if let Some((at, class)) = function.ends() {
            return self.end(at, class);
        }
        if let Some((at, class)) = function.handle() {
            return self.on_handle(at, class);
        }
        if let Some((at, class)) = function.makes() {
            return self.make(at, class, context);
        }
        if context != 0 {
            self.session.objects.raw::<Context>(context)?;
            self.session.enter(context)?;
        }
        match self.words()? {
            Some(words) => self.call(&words),
            None => Ok(self.statuses().invalid_value),
        }
    }

    fn statuses(&self) -> &'static Statuses {
        self.library.statuses()
    }

    /// The value of an argument; 0 for one that is in memory here.
    fn word(&self, at: usize) -> u64 {
        match self.values.get(at) {
            Some(Value::Word(word)) => *word,
            _ => 0,
        }
    }

    /// The arguments for the library, except the object that the call makes or ends: the values of handles, objects and
    /// streams, the addresses of values in this process, and words unchanged. `None` if an object does not exist.
    ///
    /// # Errors
    ///
    /// There is no such stream.
    fn words(&mut self) -> Result<Option<Vec<u64>>, CUresult> {
        let objects = &self.session.objects;
        let mut words = Vec::with_capacity(self.values.len());
        for (kind, value) in self.function.kinds.iter().zip(&mut self.values) {
            words.push(match (*kind, value) {
                (_, Value::Bytes(bytes, false)) if bytes.is_empty() => NOTHING.as_ptr() as u64,
                (_, Value::Bytes(bytes, _)) => bytes.as_mut_ptr() as u64,
                (Kind::Object(_), Value::Word(0)) => 0,
                (Kind::Object(class) | Kind::Handle(class), Value::Word(id)) => {
                    match objects.entry_of(class, *id) {
                        Some(entry) => entry.raw,
                        None => return Ok(None),
                    }
                }
                (Kind::Stream, Value::Word(id)) => objects.stream(*id)?.0,
                (_, Value::Word(word)) => *word,
            });
        }
        Ok(Some(words))
    }

    /// Calls the function with these arguments, or its part written by hand.
    fn call(&mut self, words: &[u64]) -> Outcome {
        match by_hand(self.function) {
            Some(part) => part(self, words),
            None => Ok(self.call_library(self.function.operation.name, self.function.kinds, words)),
        }
    }

    /// Calls a function of the library.
    fn call_library(&self, name: &'static str, kinds: &[Kind], words: &[u64]) -> u32 {
        let host = library::Library::from(self.library);
        let Ok(address) = host.symbol(name) else {
            return match self.function.makes() {
                Some((_, class)) if class.is_in_context() => self.statuses().not_initialized,
                _ => self.statuses().not_supported,
            };
        };
        let mut floats = [0.0; abi::MOST_FLOATS];
        let mut free = floats.iter_mut();
        let mut integers = Vec::with_capacity(words.len());
        for (kind, word) in kinds.iter().zip(words) {
            match kind {
                Kind::F32 | Kind::F64 => {
                    // A test counts the floating-point arguments of the tables.
                    if let Some(float) = free.next() {
                        *float = f64::from_bits(*word);
                    }
                }
                _ => integers.push(*word),
            }
        }
        // SAFETY: the table has the library's function as it is, with its floating-point numbers in their order.
        // Objects are the library's own and live; pointers are to buffers of the length that the function accesses,
        // which live across the call, or device addresses if the library takes them for such. The guest's other choices
        // can harm this process, which is the guest process's own, and no other.
        unsafe { abi::call_with(address, &integers, floats) }
    }

    /// Calls a function that makes an object with the id in its argument.
    fn call_to_make(
        &mut self,
        (at, class): (usize, Class),
        mut words: Vec<u64>,
        context: u64,
    ) -> Result<(u32, Option<Entry>), CUresult> {
        // Some objects of the libraries are an `int`.
        let mut raw = 0_u64;
        words[at] = &raw mut raw as u64;
        let status = self.call(&words)?;
        let context = if class.is_in_context() { context } else { 0 };
        Ok((
            status,
            (status == SUCCESS).then(|| Entry::new(raw, context)),
        ))
    }

    /// Makes an object, in a context if its class has one.
    fn make(&mut self, at: usize, class: Class, context: u64) -> Outcome {
        let (session, id) = (self.session, self.word(at));
        let object = session.objects.begin_of(class, id)?;
        let begun = class
            .is_handle()
            .then(|| session.handles.begin(id))
            .transpose()?;
        let mut charge = None;
        let mut own = 0;
        if class.is_in_context() {
            if context == 0 {
                return Err(CUDA_ERROR_INVALID_CONTEXT);
            }
            // An object that ended with its green context keeps its charge, which is not this object's.
            if session.charges.bytes(Owner::Handle(id)) != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            session.objects.raw::<Context>(context)?;
            session.enter(context)?;
            own = context;
            charge = session
                .device_memory
                .reserve(current_gpu()? as CUdevice, class.device_bytes())?;
        }
        let Some(words) = self.words()? else {
            return Ok(self.statuses().invalid_value);
        };
        let (status, made) = self.call_to_make((at, class), words, own)?;
        if let Some(entry) = made {
            // The library's objects remain when a green context ends.
            let home = session.objects.home(own);
            session.charges.keep(Owner::Handle(id), home, charge);
            match begun {
                Some(begun) => begun.finish(object, entry),
                None => object.finish(entry),
            }
        }
        Ok(status)
    }

    /// Ends an object, once no command of another thread uses it.
    fn end(&mut self, at: usize, class: Class) -> Outcome {
        let (session, id) = (self.session, self.word(at));
        let Some(entry) = session.objects.end_of(class, id) else {
            return Ok(self.statuses().bad_handle);
        };
        let state = session.handles.of(id);
        let alone = state.as_ref().map(|state| grace::lock(state));
        if class.is_in_context() {
            // First: an end of the context that begins after this waits for this command.
            grace::set_context(entry.context);
        }
        {
            // Another thread that has looked it up continues to use it, and may wait for the GPU.
            let _paused = grace::pause();
            Ticket::now().wait(Ending::Object(id));
        }
        let entered = match class.is_in_context() {
            true => session.enter(entry.context),
            false => Ok(()),
        };
        let outcome = entered.and_then(|()| {
            if let Some(state) = &alone {
                self.leave_ended_stream(class, entry.raw, state);
            }
            match self.words()? {
                Some(mut words) => {
                    words[at] = entry.raw;
                    self.call(&words)
                }
                None => Ok(self.statuses().invalid_value),
            }
        });
        session.handles.forget(id);
        session.charges.forget(Owner::Handle(id));
        session.objects.remove(id);
        outcome
    }

    /// Sets a handle's stream to the legacy stream if its own has ended: the library waits for the stream's work when
    /// the handle ends.
    fn leave_ended_stream(&self, class: Class, handle: u64, state: &State) {
        let stream = self.session.objects.entry::<Stream>(state.stream);
        let is_there = stream.is_some_and(|stream| stream.raw == state.raw);
        if Stream::SPECIAL.contains(&state.stream) || is_there {
            return;
        }
        if let Some(name) = class.sets_stream() {
            // The legacy stream.
            self.call_library(name, &[Kind::Handle(class), Kind::Stream], &[handle, 0]);
        }
    }

    /// A call on a handle, in its context and on its stream.
    fn on_handle(&mut self, at: usize, class: Class) -> Outcome {
        let (session, id) = (self.session, self.word(at));
        let bad_handle = self.statuses().bad_handle;
        if !class.takes(id) {
            return Ok(bad_handle);
        }
        // One library may accept the handle of another, so there may be two classes.
        let class = Class::from_number(object_kind(id)).unwrap_or(class);
        let Some(held) = session.handles.of(id) else {
            return Ok(bad_handle);
        };
        let mut state = grace::lock(&held);
        // Checked under the lock: the handle may have ended, and another one may have its id and another state.
        let find = || {
            let entry = session.objects.entry_of(class, id);
            entry.filter(|_| session.handles.is(id, &held))
        };
        let Some(entry) = find() else {
            return Ok(bad_handle);
        };
        // A recorded call submits no work to the GPU, and passes no gate.
        let gives = match self.part {
            Some(_) => Gives::Nothing,
            None => self.function.operation.gives(),
        };
        let _passage = if gives == Gives::Nothing {
            // First: an end of the context that begins after this waits for this command. The recording of a green
            // context's stream runs in that context.
            let stream = self.stream().unwrap_or(state.stream);
            // The library may nevertheless use the stream.
            session.objects.set_used(stream);
            let of = match self.part.map(|_| session.objects.live_context_of(stream)) {
                Some(Some(context)) if self.is_there(context, &entry) => context,
                _ => entry.context,
            };
            grace::set_context(of);
            session.enter(of)?;
            None
        } else {
            let stream = self.stream().unwrap_or(state.stream);
            let named = Named {
                stream: Some(stream),
                ..Named::default()
            };
            let passage = session.gates.enter(entry.context, &named, gives)?;
            // While it waited at the gate, the handle's context may have ended, and another handle may have its id.
            if find().is_none() {
                return Ok(bad_handle);
            }
            // The library has the driver's handle, which must still belong to a stream. The gate is that of the stream,
            // so the handle's work must be in the same context.
            let context = match self.stream() {
                Some(stream) => session.objects.stream(stream)?.1,
                None => state.stream_in(&session.objects)?.1,
            };
            if context != 0 && !self.is_there(context, &entry) {
                return Ok(self.statuses().invalid_value);
            }
            counts::launch();
            Some(passage)
        };
        self.check_addresses(state.mode)?;
        let makes = self.function.makes();
        let begun = makes.map(|(made, of)| session.objects.begin_of(of, self.word(made)));
        let begun = begun.transpose()?;
        let Some(words) = self.words()? else {
            return Ok(self.statuses().invalid_value);
        };
        if let Some(part) = self.part {
            self.narrow(&[id, state.stream, entry.context]);
            return self.record(part, class, &entry, &mut state, words);
        }
        if self.function.operation.completion == Completion::Wait {
            self.narrow(&[id, state.stream, entry.context]);
        }
        let own = |name: Option<&str>| name == Some(self.function.operation.name);
        if own(class.sets_stream()) {
            return self.set_stream(&words, &entry, &mut state);
        }
        if own(class.sets_pointer_mode()) {
            return self.set_pointer_mode(&words, &mut state);
        }
        let Some((made, of)) = makes else {
            let status = self.call(&words)?;
            self.note_workspace(status, &mut state);
            return Ok(status);
        };
        let (status, entry) = self.call_to_make((made, of), words, entry.context)?;
        if let (Some(entry), Some(begun)) = (entry, begun) {
            begun.finish(entry);
        }
        Ok(status)
    }

    /// Whether a handle can have a stream of this context: the context must be its own, or another part of the same
    /// one.
    fn is_there(&self, context: u64, handle: &Entry) -> bool {
        let objects = &self.session.objects;
        objects.home(context) == objects.home(handle.context)
    }

    /// The id of the stream in the arguments, if there is one.
    fn stream(&self) -> Option<u64> {
        let mut kinds = self.function.kinds.iter();
        let at = kinds.position(|kind| *kind == Kind::Stream)?;
        Some(self.word(at))
    }

    /// Declares that from here on the command uses these objects, and those in its arguments.
    fn narrow(&self, also: &[u64]) {
        let values = self.function.kinds.iter().zip(&self.values);
        let objects = values.filter_map(|(kind, value)| match (kind, value) {
            (Kind::Object(_) | Kind::Stream, Value::Word(id)) => Some(*id),
            _ => None,
        });
        let names: Vec<Name> = objects
            .chain(also.iter().copied())
            .map(Name::Object)
            .chain(self.session.used())
            .collect();
        grace::narrow(&names);
    }

    fn set_stream(&mut self, words: &[u64], entry: &Entry, state: &mut State) -> Outcome {
        let stream = self.word(1);
        let (_, context) = self.session.objects.stream(stream)?;
        // The gate is that of the stream, so the handle's work must be in the same context.
        if context != 0 && !self.is_there(context, entry) {
            return Ok(self.statuses().invalid_value);
        }
        let status = self.call(words)?;
        if status == SUCCESS {
            *state = State {
                stream,
                raw: words[1],
                workspace: None,
                ..*state
            };
        }
        Ok(status)
    }

    fn set_pointer_mode(&mut self, words: &[u64], state: &mut State) -> Outcome {
        let mode = match self.word(1) {
            0 => PointerMode::Host,
            1 => PointerMode::Device,
            _ => return Ok(self.statuses().invalid_value),
        };
        let status = self.call(words)?;
        if status == SUCCESS {
            state.mode = mode;
        }
        Ok(status)
    }

    /// Checks that scalars and results are where the library accesses them: bytes in this process if it takes host
    /// addresses, and device addresses otherwise. The library itself refuses NULL.
    fn check_addresses(&self, mode: PointerMode) -> Result<(), CUresult> {
        for (kind, value) in self.function.kinds.iter().zip(&self.values) {
            let is_good = match value {
                Value::Word(0) => true,
                Value::Word(_) => mode == PointerMode::Device,
                Value::Bytes(..) => mode == PointerMode::Host,
            };
            if kind.is_by_mode() && !is_good {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_set_a_stream_or_a_pointer_mode_have_two_arguments() {
        for class in Class::ALL {
            let kinds = |name: Option<&str>| {
                let found = functions().find(|of| name == Some(of.operation.name));
                found.map(|of| of.kinds)
            };
            if let Some(kinds) = kinds(class.sets_stream()) {
                assert_eq!(kinds, [Kind::Handle(*class), Kind::Stream]);
            }
            if let Some(kinds) = kinds(class.sets_pointer_mode()) {
                assert_eq!(kinds, [Kind::Handle(*class), Kind::I32]);
            }
        }
    }

    #[test]
    fn functions_written_by_hand_are_in_a_table() {
        for (name, _) in BY_HAND.iter().copied().flatten() {
            let mut all = functions();
            assert!(all.any(|of| of.operation.name == *name), "{name}");
        }
    }

    #[test]
    fn composed_functions_have_a_part_written_by_hand() {
        for of in functions() {
            assert!(
                !of.is_composed() || by_hand(of).is_some(),
                "{}",
                of.operation.name
            );
        }
    }

    #[test]
    fn results_beside_a_failure_are_those_that_the_library_has_written() {
        let function = Library::Cusparse.find("cusparseXcsrilu02_zeroPivot");
        let results = |written: Option<[u8; 4]>, status| {
            let mut values = vec![
                Value::Word(1),
                Value::Word(2),
                Value::Bytes(vec![0; 4], true),
            ];
            mark(Library::Cusparse, function, &mut values);
            if let Some(written) = written {
                values[2] = Value::Bytes(written.to_vec(), true);
            }
            let results = into_results(Library::Cusparse, function, values, status);
            results.into_iter().next_back().unwrap().0
        };
        let position = 0_i32.to_ne_bytes();
        assert_eq!(results(Some(position), 9), position);
        assert_eq!(results(Some(position), SUCCESS), position);
        assert_eq!(results(None, 9), [0; 0]);
        assert_eq!(results(None, SUCCESS), [0; 4]);
        // A computed number may have any bytes.
        let function = Library::Cublas.find("cublasDotEx");
        let mut values = vec![Value::Bytes(vec![UNTOUCHED; 2], true); function.kinds.len()];
        mark(Library::Cublas, function, &mut values);
        let results = into_results(Library::Cublas, function, values, SUCCESS);
        assert!(results.iter().all(|result| result.0 == [UNTOUCHED; 2]));
    }
}
