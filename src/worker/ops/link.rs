// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The just-in-time linker.

use std::{
    collections::HashMap,
    ffi::CString,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Context, JitLog, reply, request},
    cuda::*,
};

use super::{
    image::Jit,
    module::{c_name, image},
};
use crate::cuda::driver;
use crate::worker::{
    dispatch::{Failed, Outcome},
    grace::{self, Name},
    images::Image,
    session::{Data, Session},
};

/// The maximum number of a client's linkers, including those whose context has ended before them, because the driver
/// keeps their memory.
const MOST: usize = 4096;
/// The maximum size of the inputs of all linkers, in bytes.
const MOST_BYTES: usize = 1 << 30;

/// The maximum number of linkers at a time: each has a thread.
const MOST_ALIVE: usize = 128;
/// The stack size of such a thread in bytes, as for a program's threads: the compiler uses deep recursion.
const STACK_BYTES: usize = 8 << 20;

/// A call of the driver with a linker.
enum Call {
    /// `cuLinkAddData` with bytes of an image.
    Add {
        kind: CUjitInputType,
        image: Arc<Image>,
        length: usize,
        name: CString,
        jit: Jit,
    },
    /// `cuLinkComplete`.
    Complete,
    /// `cuLinkDestroy`.
    Destroy,
}

/// The result.
struct Answer {
    done: Result<(), CUresult>,
    /// The linker's logs so far.
    log: JitLog,
    /// The output: address and size of the driver's memory.
    made: Option<(usize, usize)>,
}

/// A driver's linker, in a thread of its own. The just-in-time compiler stores a linker's state by the thread that made
/// it: with linkers used by different threads of a pool, it crashes (observed with driver 580).
struct Desk {
    calls: Sender<Call>,
    answers: Receiver<Answer>,
}

impl Desk {
    /// Makes a linker in a context of the driver, and returns the result.
    fn new(context: u64, jit: Jit) -> Result<(Self, Answer), CUresult> {
        let (calls, to_do) = channel();
        let (answer, answers) = channel();
        let thread = thread::Builder::new()
            .name("linker".into())
            .stack_size(STACK_BYTES);
        thread
            .spawn(move || serve(context, jit, &to_do, &answer))
            .map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        let made = answers.recv().map_err(|_| CUDA_ERROR_UNKNOWN)?;
        Ok((Self { calls, answers }, made))
    }

    fn call(&self, call: Call) -> Result<Answer, CUresult> {
        self.calls.send(call).map_err(|_| CUDA_ERROR_UNKNOWN)?;
        self.answers.recv().map_err(|_| CUDA_ERROR_UNKNOWN)
    }
}

/// The main function of a linker's thread. It ends with the linker, or when there are no callers left because the
/// linker's context has ended.
fn serve(context: u64, mut jit: Jit, calls: &Receiver<Call>, answers: &Sender<Answer>) {
    let mut state = std::ptr::null_mut();
    // SAFETY: the context is the driver's, and the waiter for the answer keeps it.
    let mut done = unsafe { driver::cuCtxSetCurrent(context as CUcontext) };
    if done.is_ok() {
        let (count, options, values) = jit.arrays();
        // SAFETY: the arrays, and the logs' buffers, are kept as long as the linker.
        done = unsafe { driver::cuLinkCreate_v2(count, options, values, &mut state) };
    }
    let mut made = None;
    loop {
        let is_over = state.is_null();
        let log = jit.log();
        if answers.send(Answer { done, log, made }).is_err() || is_over {
            return;
        }
        let Ok(call) = calls.recv() else {
            return;
        };
        done = match call {
            Call::Add {
                kind,
                image,
                length,
                name,
                mut jit,
            } => {
                let (count, options, values) = jit.arrays();
                let from = image.with_nul().as_ptr().cast_mut().cast();
                let name = name.as_ptr();
                // SAFETY: the linker is the driver's and lives, and so does its context, which the waiter for the
                // answer keeps; the image has as many bytes, which the driver copies.
                unsafe {
                    driver::cuLinkAddData_v2(
                        state, kind, from, length, name, count, options, values,
                    )
                }
            }
            Call::Complete => {
                let (mut cubin, mut size) = (std::ptr::null_mut(), 0);
                // SAFETY: as above; the pointers live across the call.
                let completed = unsafe { driver::cuLinkComplete(state, &mut cubin, &mut size) };
                if completed.is_ok() {
                    made = Some((cubin as usize, size));
                }
                completed
            }
            Call::Destroy => {
                let gone = std::mem::replace(&mut state, std::ptr::null_mut());
                made = None;
                // SAFETY: as above, and no other thread reads the output: the caller has the linker's lock.
                unsafe { driver::cuLinkDestroy(gone) }
            }
        };
    }
}

/// A linker.
#[derive(Default)]
struct Link {
    /// `None` once it has ended.
    desk: Option<Desk>,
    is_over: bool,
    /// The size of its inputs in bytes.
    bytes: usize,
    /// As in [`Answer`].
    made: Option<(usize, usize)>,
}

/// A linker with its context.
#[derive(Clone, Default)]
struct Place {
    context: u64,
    link: Arc<Mutex<Link>>,
}

#[derive(Default)]
struct Table {
    links: HashMap<u64, Place>,
    /// The number of linkers whose context has ended before them.
    left: usize,
    /// The size of all inputs, including those of linkers of ended contexts.
    bytes: usize,
}

/// The client's linkers, by ids that the guest has chosen.
#[derive(Default)]
pub struct Links(Mutex<Table>);

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links({})", self.lock().links.len())
    }
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    fn of(&self, id: u64) -> Result<Place, CUresult> {
        let place = self.lock().links.get(&id).cloned();
        place.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Handles the end of a context with its linkers, whose handles are not used again.
    pub fn forget_context(&self, context: u64) {
        let gone: Vec<_> = {
            let mut table = self.lock();
            let Table { links, left, .. } = &mut *table;
            let gone = links.extract_if(|_, place| place.context == context);
            let gone: Vec<_> = gone.map(|(_, place)| place.link).collect();
            *left += gone.len();
            gone
        };
        // No thread is in the driver with a linker of an ended context.
        for link in gone {
            let mut link = link.lock();
            (link.desk, link.made) = (None, None);
        }
    }
}

/// Uses a linker exclusively.
fn with<T>(
    session: &Session,
    id: u64,
    body: impl FnOnce(&Desk, &mut Link) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let Place { context, link } = session.links.of(id)?;
    let mut link = grace::lock(&link);
    // The linker's context does not end from here on.
    session.enter(context)?;
    grace::narrow(&[Name::Object(context)]);
    let desk = link.desk.take().ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let done = body(&desk, &mut link);
    if !link.is_over {
        link.desk = Some(desk);
    }
    done
}

/// The result of a call, with the linker's logs of it.
fn outcome<R>(
    done: Result<(Result<(), CUresult>, JitLog), CUresult>,
    reply: impl FnOnce(JitLog) -> R,
) -> Outcome<R> {
    match done? {
        (Ok(()), log) => Ok(reply(log)),
        (Err(code), log) => Err(Failed {
            code,
            reply: Some(reply(log)),
        }),
    }
}

/// `cuLinkCreate`.
pub fn gpgpuLinkCreate(
    session: &Session,
    request: request::gpgpuLinkCreate,
    _: Data,
) -> Outcome<reply::gpgpuLinkCreate> {
    let jit = Jit::new(&request.options)?;
    let context = session.current();
    let raw = session.objects.raw::<Context>(context)?;
    {
        let mut table = session.links.lock();
        if table.links.contains_key(&request.link) {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        if table.links.len() >= MOST_ALIVE || table.links.len() + table.left >= MOST {
            return Err(CUDA_ERROR_OUT_OF_MEMORY.into());
        }
        // Inserted now, so that no other thread makes one with the id.
        table.links.insert(request.link, Place::default());
    }
    let made = Desk::new(raw, jit).and_then(|(desk, answer)| answer.done.map(|()| desk));
    let mut table = session.links.lock();
    let desk = made.inspect_err(|_| drop(table.links.remove(&request.link)))?;
    let link = Link {
        desk: Some(desk),
        ..Link::default()
    };
    let link = Arc::new(Mutex::new(link));
    table.links.insert(request.link, Place { context, link });
    Ok(reply::gpgpuLinkCreate::default())
}

/// `cuLinkAddData`.
pub fn gpgpuLinkAdd(
    session: &Session,
    request: request::gpgpuLinkAdd,
    data: Data,
) -> Outcome<reply::gpgpuLinkAdd> {
    let _loading = session.images.loading();
    let image = image(session, request.image, data)?;
    let name = c_name(request.name)?;
    let jit = Jit::new(&request.options)?;
    let added = with(session, request.link, |desk, link| {
        // Text includes its NUL; binary data has none.
        let is_text = request.kind == CU_JIT_INPUT_PTX;
        let length = image.with_nul().len() - usize::from(!is_text);
        {
            let mut table = session.links.lock();
            if length > MOST_BYTES - table.bytes {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            table.bytes += length;
        }
        link.bytes += length;
        let answer = desk.call(Call::Add {
            kind: request.kind,
            image: Arc::clone(&image),
            length,
            name,
            jit,
        })?;
        Ok((answer.done, answer.log))
    });
    outcome(added, |log| reply::gpgpuLinkAdd {
        log,
        ..Default::default()
    })
}

/// `cuLinkComplete`.
pub fn gpgpuLinkComplete(
    session: &Session,
    request: request::gpgpuLinkComplete,
    _: Data,
) -> Outcome<reply::gpgpuLinkComplete> {
    let _loading = session.images.loading();
    let mut bytes = 0;
    let completed = with(session, request.link, |desk, link| {
        let answer = desk.call(Call::Complete)?;
        link.made = answer.made;
        bytes = answer.made.map_or(0, |(_, size)| size as u64);
        Ok((answer.done, answer.log))
    });
    outcome(completed, |log| reply::gpgpuLinkComplete {
        bytes,
        log,
        ..Default::default()
    })
}

/// A part of a linker's output.
pub fn gpgpuLinkRead(
    session: &Session,
    request: request::gpgpuLinkRead,
    data: Data,
) -> Outcome<reply::gpgpuLinkRead> {
    with(session, request.link, |_, link| {
        let (start, size) = link.made.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let from = usize::try_from(request.offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = from.checked_add(data.output_bytes);
        if end.is_none_or(|end| end > size) || data.offset != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the range lies in the driver's output, which it keeps as long as the linker, whose lock this thread
        // has; as many bytes of the staging area belong to this command.
        unsafe {
            let from = (start as *const u8).add(from);
            std::ptr::copy_nonoverlapping(from, data.output.cast(), data.output_bytes);
        }
        Ok(())
    })?;
    Ok(reply::gpgpuLinkRead::default())
}

/// `cuLinkDestroy`.
pub fn gpgpuLinkDestroy(
    session: &Session,
    request: request::gpgpuLinkDestroy,
    _: Data,
) -> Outcome<reply::gpgpuLinkDestroy> {
    with(session, request.link, |desk, link| {
        {
            let mut table = session.links.lock();
            table.links.remove(&request.link);
            table.bytes -= link.bytes;
        }
        (link.is_over, link.made) = (true, None);
        desk.call(Call::Destroy)?.done
    })?;
    Ok(reply::gpgpuLinkDestroy::default())
}
