// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sends a library's calls to the host, and returns their results.

use std::{cell::Cell, collections::HashMap, sync::OnceLock};

use foldhash::fast::RandomState;
use gpgpu_client::log::{self, Level};
use gpgpu_locks::{Mutex, MutexGuard, RwLock};
use gpgpu_protocol::{
    api::{Completion, Property},
    codec::{Blob, Few, Reader, Writer},
    cuda::{CU_STREAM_PER_THREAD, CUstream},
    libraries::{
        Class, Function, Kind, Library, SUCCESS,
        call::{self, PointerMode},
    },
};

use crate::{
    Object, Status, enter,
    handle::{self, Handle, Told, libcuda, sister},
    mix,
};

thread_local! {
    /// A buffer for requests, so that a call allocates nothing.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A call of a function, ready to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The function.
    pub function: &'static Function,
    /// A word for each argument. Any nonzero word asks for a `reply`.
    pub words: &'a [u64],
    /// The bytes of the argument that is a [`Kind::Blob`].
    pub blob: &'a [u8],
    /// Where scalars and results are: host or device.
    pub mode: PointerMode,
    /// The most bytes of a [`Kind::Reply`], if it can be longer than an answer.
    pub longest: usize,
}

impl<'a> Request<'a> {
    /// A call whose values are all in the program's memory.
    pub fn new(function: &'static Function, words: &'a [u64]) -> Self {
        Self {
            function,
            words,
            blob: &[],
            mode: PointerMode::Host,
            longest: 0,
        }
    }

    /// Writes the request and passes it to `send`.
    fn with_written<T>(self, send: impl FnOnce(&[u8]) -> Result<T, Status>) -> Result<T, Status> {
        let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
        room.clear();
        let mut writer = Writer::on(room);
        let (function, words) = (self.function, self.words);
        let put = call::put_with(function, words, self.blob, self.mode, &mut writer, copy);
        let request = writer.into_bytes();
        let sent = match put {
            Ok(()) => send(&request),
            Err(_) => Err(function.library().statuses().invalid_value),
        };
        let _ = ROOM.try_with(|room| room.set(request));
        sent
    }

    /// Sends the call, waits for its status and writes the results to the program's addresses.
    ///
    /// # Errors
    ///
    /// The library's status, or the status for libcuda's code.
    pub fn ask(self) -> Result<(), Status> {
        self.ask_for().map(drop)
    }

    /// Like [`Request::ask`], and returns the bytes of a [`Kind::Reply`], if the caller asked for it.
    ///
    /// # Errors
    ///
    /// As [`Request::ask`].
    pub fn ask_for(self) -> Result<Vec<u8>, Status> {
        let mut reply = Vec::new();
        let results = self.ask_host()?;
        for ((at, bytes), result) in self.places().zip(results) {
            match bytes {
                None => reply = result.0,
                // SAFETY: the program gives this address where the library writes so many bytes, by its C caller's
                // promise.
                Some(_) => unsafe { write(self.words[at], &result.0) },
            }
        }
        Ok(reply)
    }

    fn places(self) -> impl Iterator<Item = (usize, Option<usize>)> {
        call::results(self.function, self.words, self.mode)
    }

    /// The results, as many and as long as the caller asked for.
    fn ask_host(self) -> Result<Vec<Blob>, Status> {
        let library = self.function.library();
        let statuses = library.statuses();
        // Each result is preceded by its length.
        let each = self
            .places()
            .map(|(_, bytes)| bytes.unwrap_or(self.longest) + 16);
        let most = each.fold(16, usize::saturating_add);
        let answer = self.with_written(|request| {
            let operation = &self.function.operation;
            let read = |reply: &[u8]| {
                let mut reader = Reader::new(reply);
                let status: i32 = reader.get().ok()?;
                let results: Few<Blob, 16> = reader.get().ok()?;
                Some((status as Status, results.into_vec()))
            };
            let answer = match self.function.is_about_library() {
                true => libcuda(library)?.ask_host(operation, request, read),
                false => sister(library)?.call_for(operation, request, most, read),
            };
            answer.map_err(|code| statuses.of_code(code))
        });
        let (status, results) = answer?.ok_or(statuses.internal_error)?;
        if status != SUCCESS {
            for ((at, bytes), result) in self.places().zip(results) {
                // An empty one was not written. An older host sends zeros, or none if it lacks the function.
                if bytes == Some(result.0.len()) {
                    // SAFETY: as in `ask_for`.
                    unsafe { write(self.words[at], &result.0) };
                }
            }
            log::say(Level::Debug, || {
                format!("{} returns {status}", self.function.operation.name)
            });
            return Err(status);
        }
        let mut wanted = self.places();
        let fits = |result: &Blob| {
            let place = wanted.next();
            place.is_some_and(|(_, bytes)| bytes.is_none_or(|bytes| bytes == result.0.len()))
        };
        if !results.iter().all(fits) || wanted.next().is_some() {
            return Err(statuses.internal_error);
        }
        Ok(results)
    }

    /// Sends the call, which needs no answer.
    ///
    /// # Errors
    ///
    /// The status for libcuda's code.
    pub fn post(self) -> Result<(), Status> {
        let library = self.function.library();
        let sister = sister(library)?;
        self.with_written(|request| {
            let sent = sister.post(&self.function.operation, request);
            sent.map_err(|code| library.statuses().of_code(code))
        })
    }

    /// Sends the call by its completion. A post waits only if the library has not yet accepted a call of its form.
    ///
    /// # Errors
    ///
    /// As [`Request::ask`].
    pub fn send(self, known: &Handle) -> Result<(), Status> {
        let operation = &self.function.operation;
        if operation.is(Property::Pure) {
            return self.ask_once();
        }
        if operation.completion != Completion::Post {
            return self.ask();
        }
        let form = self.form();
        if known.has_accepted(form) {
            self.post()?;
        } else {
            self.ask()?;
            // The form includes the ids of objects that another thread has destroyed meanwhile. Such a form will not
            // occur again.
            if self.objects().all(contents::are_known) {
                known.accept(form);
            }
        }
        // A post whose first argument is a descriptor sets it.
        if let [Kind::Object(_), others @ ..] = self.function.kinds {
            if others.iter().all(|kind| *kind == Kind::Device) {
                let of = self.words[1..].iter().map(|word| address_form(*word));
                contents::set_addresses(self.words[0], operation.op, of.fold(0, mix));
            } else {
                contents::set(self.words[0], form);
            }
        }
        Ok(())
    }

    /// The objects that the call names.
    fn objects(self) -> impl Iterator<Item = u64> {
        let each = self.function.kinds.iter().zip(self.words);
        let named = each.filter(|(kind, word)| matches!(kind, Kind::Object(_)) && **word != 0);
        named.map(|(_, word)| *word)
    }

    /// Sends the call, unless a call of this form was answered before.
    fn ask_once(self) -> Result<(), Status> {
        // Handles may be on different devices.
        let handle = self.function.handle().map(|(at, _)| self.words[at]);
        let form: Box<[u64]> = self.parts().chain(handle).collect();
        let known = answers().get(&form).cloned();
        let results = match known {
            Some(results) => results,
            None => {
                let results = self.ask_host()?;
                let mut answers = answers();
                if answers.len() >= ANSWERS {
                    answers.clear();
                }
                answers.insert(form, results.clone());
                results
            }
        };
        for ((at, _), result) in self.places().zip(results) {
            // SAFETY: the program gives this address where the library writes so many bytes, by its C caller's promise.
            unsafe { write(self.words[at], &result.0) };
        }
        Ok(())
    }

    /// The words that determine the form of the call: all but addresses and the values of scalars.
    fn parts(self) -> impl Iterator<Item = u64> {
        let (function, words) = (self.function, self.words);
        let first = u64::from(function.operation.op) << 1 | self.mode as u64;
        let sets = matches!(function.kinds.first(), Some(Kind::Object(_)));
        let each = function.kinds.iter().zip(words).map(move |(kind, word)| {
            let bytes = |bytes: Option<usize>| match bytes {
                _ if *word == 0 => 0,
                // SAFETY: the program gives this address where the library reads so many bytes, by its C caller's
                // promise.
                Some(bytes) => unsafe { hash_at(*word, bytes) },
                None => 1,
            };
            match *kind {
                // An answer may depend on the handle's settings, and on its GPU.
                Kind::Handle(_) if function.operation.is(Property::Pure) => *word,
                // Accepted forms are kept for each handle.
                Kind::Handle(_) | Kind::New(_) => 0,
                Kind::I32 => u64::from(*word as u32),
                Kind::I64 | Kind::Stream | Kind::Gone(_) => *word,
                // A descriptor's settings.
                Kind::F32 | Kind::F64 if sets => *word,
                Kind::Object(_) => contents::of(*word),
                Kind::Device => address_form(*word),
                Kind::In(_) | Kind::Array(..) | Kind::List(..) => {
                    bytes(call::bytes_of(function, words, *kind))
                }
                _ => u64::from(*word == 0),
            }
        });
        std::iter::once(first)
            .chain(each)
            .chain(words_of(self.blob))
    }

    /// A number for the form of the call: the library accepts or refuses all calls of a form alike.
    fn form(self) -> u64 {
        // If two calls collide that differ in more than one word, the worst effect is an error that is reported late.
        self.parts().fold(0, mix)
    }
}

/// The part of an address on the device that determines a call's form: alignment decides which kernel runs, and in some
/// functions whether the call is accepted.
fn address_form(address: u64) -> u64 {
    u64::from(address.trailing_zeros().min(4)) << 1 | u64::from(address == 0)
}

/// Bytes as words; the last one is padded with zeros.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

/// Copies bytes from the program's memory.
fn copy(address: u64, to: &mut [u8]) {
    // SAFETY: the program gives this address where the library asks for so many bytes, by its C caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, to.as_mut_ptr(), to.len()) };
}

/// Writes a result to the program's address.
///
/// # Safety
///
/// There is room for the result.
unsafe fn write(address: u64, result: &[u8]) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(result.as_ptr(), address as *mut u8, result.len()) };
}

/// A hash of bytes in the program's memory.
///
/// # Safety
///
/// The address has this number of readable bytes.
unsafe fn hash_at(address: u64, bytes: usize) -> u64 {
    // SAFETY: promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, bytes) };
    words_of(bytes).fold(bytes.len() as u64, mix)
}

/// The settings of descriptors, each as a number: programs make descriptors with the same settings again and again.
pub mod contents {
    use super::*;

    /// The calls that have set an object.
    #[derive(Default)]
    struct Settings {
        /// A number for all of them.
        number: u64,
        /// A number for those before [`Self::addresses`].
        base: u64,
        /// The last call of each function that sets addresses only, with their form. Programs make such calls again and
        /// again.
        addresses: Vec<(u16, u64)>,
    }

    impl Settings {
        fn new(number: u64) -> Self {
            Self {
                number,
                base: number,
                addresses: Vec::new(),
            }
        }
    }

    static KNOWN: RwLock<Option<HashMap<u64, Settings, RandomState>>> = RwLock::new(None);

    /// The number of an object's settings, if it exists and they are known.
    pub fn find(id: u64) -> Option<u64> {
        let known = KNOWN.read();
        let settings = known.as_ref().and_then(|all| all.get(&id))?;
        Some(settings.number)
    }

    /// The number of an object's settings; its id if they are unknown.
    pub fn of(id: u64) -> u64 {
        find(id).unwrap_or(id)
    }

    /// Whether an object exists and its settings are known.
    pub fn are_known(id: u64) -> bool {
        find(id).is_some()
    }

    /// Records that a call of this form made an object.
    pub fn begin(id: u64, form: u64) {
        let mut known = KNOWN.write();
        let all = known.get_or_insert_default();
        all.insert(id, Settings::new(form));
    }

    /// Records that a call of this form set an object; the form includes the object's earlier settings. The settings of
    /// a destroyed object stay unknown.
    pub fn set(id: u64, form: u64) {
        let mut known = KNOWN.write();
        if let Some(place) = known.as_mut().and_then(|all| all.get_mut(&id)) {
            *place = Settings::new(form);
        }
    }

    /// The same for a function that sets the same addresses of the object each time, and nothing else.
    pub fn set_addresses(id: u64, function: u16, form: u64) {
        let mut known = KNOWN.write();
        if let Some(of) = known.as_mut().and_then(|all| all.get_mut(&id)) {
            of.addresses.retain(|(earlier, _)| *earlier != function);
            of.addresses.push((function, form));
            let calls = of.addresses.iter();
            of.number = calls.fold(of.base, |number, (function, form)| {
                mix(mix(number, u64::from(*function)), *form)
            });
        }
    }

    /// Records that an object was destroyed.
    pub fn forget(id: u64) {
        let mut known = KNOWN.write();
        if let Some(known) = known.as_mut() {
            known.remove(&id);
        }
    }
}

/// The most answers that are kept.
const ANSWERS: usize = 1 << 12;

/// Answers of functions whose answer depends only on the form of the call.
type Answers = HashMap<Box<[u64]>, Vec<Blob>>;

fn answers() -> MutexGuard<'static, Answers> {
    static KNOWN: OnceLock<Mutex<Answers>> = OnceLock::new();
    let known = KNOWN.get_or_init(Mutex::default);
    known.lock()
}

/// Forgets all answers, because a handle got a setting on which they may depend.
pub fn forget_answers() {
    answers().clear();
}

/// The accepted forms of calls without a handle.
fn free() -> &'static Handle {
    static FREE: OnceLock<Handle> = OnceLock::new();
    FREE.get_or_init(Handle::default)
}

/// Forwards a call with the program's arguments.
pub fn forward(function: &'static Function, words: &[u64]) -> Status {
    enter(function.library(), || send(function, words))
}

/// Sends a call of a function that is fully described by its row.
///
/// # Errors
///
/// As [`Request::ask`].
pub fn send(function: &'static Function, words: &[u64]) -> Result<(), Status> {
    if let Some((at, class)) = function.handle() {
        return handle::with(class, words[at] as Object, |handle| {
            let _settled = settle(class, words[at], handle)?;
            let mode = handle.mode();
            Request {
                mode,
                ..Request::new(function, words)
            }
            .send(handle)
        });
    }
    if let Some((at, class)) = function.ends() {
        return end(function, class, words, at);
    }
    if let Some((at, class)) = function.makes() {
        return make(function, class, words, at);
    }
    Request::new(function, words).send(free())
}

/// Makes an object, and gives the program its id.
fn make(function: &'static Function, class: Class, words: &[u64], at: usize) -> Result<(), Status> {
    let library = function.library();
    let statuses = library.statuses();
    if words[at] == 0 {
        return Err(statuses.invalid_value);
    }
    let mut sent = words.to_vec();
    sent[at] = new_object(class)?;
    let made = Request::new(function, &sent).send(free());
    made.map_err(|of| match of {
        // A host that predates the support of this library reports this.
        of if of == statuses.not_supported && class.is_handle() => statuses.not_initialized,
        other => other,
    })?;
    match class.is_handle() {
        true => handle::insert(sent[at]),
        false => contents::begin(sent[at], Request::new(function, &sent).form()),
    }
    // SAFETY: the program gives this address for the object, by its C caller's promise.
    unsafe { (words[at] as *mut Object).write(sent[at] as Object) };
    Ok(())
}

/// The id of the current context. If there is none, this makes one, as the runtime in NVIDIA's libraries does.
///
/// # Errors
///
/// The status for libcuda's code.
pub fn context(library: Library) -> Result<u64, Status> {
    let context = sister(library)?.context();
    context.map_err(|code| library.statuses().of_code(code))
}

/// The id of a stream.
///
/// # Errors
///
/// The library's status for an invalid value if there is no such stream.
pub fn stream_id(library: Library, stream: u64) -> Result<u64, Status> {
    let id = sister(library)?.stream(stream);
    id.map_err(|code| library.statuses().of_code(code))
}

/// A new id for an object. If objects of its class belong to a context, the thread has one afterwards, as in NVIDIA's
/// libraries.
///
/// # Errors
///
/// The status for libcuda's code.
pub fn new_object(class: Class) -> Result<u64, Status> {
    let library = class.library();
    match class.is_in_context() {
        true => {
            context(library)?;
        }
        false => {
            let initialised = sister(library)?.initialise();
            initialised.map_err(|code| library.statuses().of_code(code))?;
        }
    }
    let id = sister(library)?.new_id(class.number());
    id.map_err(|code| library.statuses().of_code(code))
}

/// Whether NVIDIA's library lets a program destroy NULL as an object of this class.
fn may_be_none(library: Library, class: Class) -> bool {
    match library {
        Library::Cudnn | Library::Cusparse => true,
        Library::Cusolver => {
            !class.is_handle() && !matches!(class, Class::IrsInfos | Class::IrsParams)
        }
        _ => false,
    }
}

/// Destroys an object.
fn end(function: &'static Function, class: Class, words: &[u64], at: usize) -> Result<(), Status> {
    // Nothing is sent, because a post's failure would show in another call.
    if words[at] == 0 {
        let library = function.library();
        return match may_be_none(library, class) {
            true => Ok(()),
            false => Err(library.statuses().bad_handle),
        };
    }
    if !class.is_handle() {
        contents::forget(words[at]);
        let request = Request::new(function, words);
        return match function.operation.completion {
            Completion::Post => request.post(),
            _ => request.ask(),
        };
    }
    let bad_handle = function.library().statuses().bad_handle;
    handle::remove(words[at] as Object).ok_or(bad_handle)?;
    Request::new(function, words).ask()
}

/// Sends a handle's stream to the library.
fn tell_stream(class: Class, handle: u64, stream: u64) -> Result<(), Status> {
    let Some(name) = class.sets_stream() else {
        return Ok(());
    };
    Request::new(class.library().find(name), &[handle, stream]).post()
}

/// Sets a handle's stream.
///
/// # Errors
///
/// The library's status for a bad handle, or for an invalid value if there is no such stream; the status for libcuda's
/// code.
pub fn set_stream(class: Class, handle: Object, stream: CUstream) -> Result<(), Status> {
    handle::with(class, handle, |known| {
        let id = stream_id(class.library(), stream as u64)?;
        let mut told = known.told();
        let is_new = told.give_stream(stream as usize, id);
        known.set_owed(&told);
        match is_new {
            true => tell_stream(class, handle as u64, id),
            false => Ok(()),
        }
    })
}

/// Gives a handle the stream of its next computation, if the library has another one. The caller keeps the result until
/// it has sent the computation.
///
/// # Errors
///
/// As [`set_stream`].
pub fn settle(
    class: Class,
    handle: u64,
    known: &Handle,
) -> Result<Option<MutexGuard<'_, Told>>, Status> {
    let own = || stream_id(class.library(), CU_STREAM_PER_THREAD as u64);
    known.settle(own, |told| {
        tell_stream(class, handle, told.stream_id())?;
        // The handle has lost its workspace.
        let Some((address, bytes)) = told.workspace() else {
            return Ok(());
        };
        const WORKSPACE: &Function = Library::Cublas.find("cublasSetWorkspace_v2");
        Request::new(WORKSPACE, &[handle, address, bytes]).post()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpgpu_protocol::libraries::functions;

    #[test]
    fn a_call_with_a_result_is_never_posted() {
        for function in functions() {
            let has_result = function.kinds.iter().any(|kind| kind.has_result());
            assert!(
                !has_result || function.operation.completion != Completion::Post,
                "{}",
                function.operation.name
            );
        }
    }

    fn form(name: &str, words: &[u64]) -> u64 {
        Request::new(Library::Cublas.find(name), words).form()
    }

    #[test]
    fn an_objects_settings_stand_for_it_until_it_ends() {
        let [one, other] = [0x191, 0x291];
        assert_ne!(contents::of(one), contents::of(other));
        contents::set(one, 7);
        assert!(!contents::are_known(one));
        for id in [one, other] {
            contents::begin(id, 7);
        }
        assert_eq!(contents::of(one), contents::of(other));
        contents::set(one, 8);
        assert_ne!(contents::of(one), contents::of(other));
        contents::forget(other);
        // A thread that still uses the object does this.
        contents::set(other, 8);
        assert_eq!(contents::of(other), other);
        assert!(contents::are_known(one) && !contents::are_known(other));
    }

    #[test]
    fn addresses_that_are_set_again_are_the_same_settings() {
        let id = 0x391;
        let after = |calls: &[(u16, u64)]| {
            for (function, form) in calls {
                contents::set_addresses(id, *function, *form);
            }
            contents::of(id)
        };
        contents::begin(id, 7);
        let first = after(&[(1, 8)]);
        assert_eq!(after(&[(1, 8)]), first);
        assert_ne!(after(&[(1, 9)]), first);
        assert_eq!(after(&[(1, 8)]), first);
        // Two functions may set the same address.
        let second = after(&[(2, 8)]);
        let third = after(&[(1, 8)]);
        assert!(first != second && second != third && first != third);
        assert_eq!(after(&[(2, 8)]), second);
        // The next settings follow these.
        contents::set(id, 7);
        assert_eq!(after(&[(1, 8)]), first);
    }

    #[test]
    fn the_form_of_a_call_has_sizes_and_not_addresses_or_scalars() {
        let scale = |n, alpha, x, step| form("cublasSscal_v2", &[0x190, n, alpha, x, step]);
        let of = scale(4, 0x1000, 0x7000, 1);
        assert_eq!(of, scale(4, 0x2000, 0x8000, 1));
        // The upper half of an `int` is undefined.
        assert_eq!(of, scale(4 | 7 << 32, 0x1000, 0x7000, 1));
        for other in [
            scale(5, 0x1000, 0x7000, 1),
            scale(4, 0x1000, 0x7000, 2),
            scale(4, 0x1000, 0x7004, 1),
            scale(4, 0x1000, 0, 1),
            scale(4, 0, 0x7000, 1),
            form("cublasDscal_v2", &[0x190, 4, 0x1000, 0x7000, 1]),
        ] {
            assert_ne!(of, other);
        }
    }
}
