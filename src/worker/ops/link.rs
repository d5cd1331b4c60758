// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The just-in-time linker.

use std::{
    collections::HashMap,
    ffi::c_void,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gpgpu_protocol::{
    api::{JitLog, reply, request},
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
    session::{Data, Session},
};

/// The most linkers of a client, with those whose context has ended before them: the driver keeps what these had.
const MOST: usize = 4096;
/// The most bytes of inputs of all of them.
const MOST_BYTES: usize = 1 << 30;

/// A linker.
#[derive(Default)]
struct Link {
    /// The driver's handle, or 0 once it has ended.
    raw: usize,
    /// The logs, which the driver writes to as long as it lives.
    jit: Option<Jit>,
    /// Of its inputs.
    bytes: usize,
    /// What it has made: address and bytes of the driver's memory.
    made: Option<(usize, usize)>,
}

// SAFETY: a linker is used by whoever has its lock; its addresses are not bound to a thread.
unsafe impl Send for Link {}

/// A linker, and the context that it is in.
#[derive(Clone, Default)]
struct Place {
    context: u64,
    link: Arc<Mutex<Link>>,
}

#[derive(Default)]
struct Table {
    links: HashMap<u64, Place>,
    /// Linkers whose context has ended before them.
    left: usize,
    /// Bytes of inputs, with those of the linkers that are left.
    bytes: usize,
}

/// The client's linkers, by the ids that the guest chose.
#[derive(Default)]
pub struct Links(Mutex<Table>);

impl std::fmt::Debug for Links {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Links({})", self.lock().links.len())
    }
}

impl Links {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, id: u64) -> Result<Place, CUresult> {
        let place = self.lock().links.get(&id).cloned();
        place.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// A context is gone, and its linkers with it: their handles are used no more.
    pub fn forget_context(&self, context: u64) {
        let gone: Vec<_> = {
            let mut table = self.lock();
            let Table { links, left, .. } = &mut *table;
            let gone = links.extract_if(|_, place| place.context == context);
            let gone: Vec<_> = gone.map(|(_, place)| place.link).collect();
            *left += gone.len();
            gone
        };
        // Nobody is in the driver with a linker of a context that has ended.
        for link in gone {
            link.lock().unwrap_or_else(PoisonError::into_inner).raw = 0;
        }
    }
}

/// Uses a linker, alone. What a thread does that waits for it meanwhile holds nothing up.
fn with<T>(
    session: &Session,
    id: u64,
    body: impl FnOnce(&mut Link) -> Result<T, CUresult>,
) -> Result<T, CUresult> {
    let Place { context, link } = session.links.of(id)?;
    let mut link = match link.try_lock() {
        Ok(link) => link,
        Err(_) => {
            let _paused = grace::pause();
            link.lock().unwrap_or_else(PoisonError::into_inner)
        }
    };
    // The driver goes by the linker's own context, which does not end from here on.
    session.enter(context)?;
    grace::narrow(&[Name::Object(context)]);
    if link.raw == 0 {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    body(&mut link)
}

impl Link {
    fn log(&self) -> JitLog {
        self.jit.as_ref().map_or_else(JitLog::default, Jit::log)
    }
}

/// What a call came to, with what the linker has said meanwhile.
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
    let mut jit = Jit::new(&request.options)?;
    let context = session.current();
    {
        let mut table = session.links.lock();
        if table.links.contains_key(&request.link) {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        if table.links.len() + table.left >= MOST {
            return Err(CUDA_ERROR_OUT_OF_MEMORY.into());
        }
        // Taken, so that no other thread makes one with it.
        table.links.insert(request.link, Place::default());
    }
    let mut raw = std::ptr::null_mut();
    let (count, options, values) = jit.arrays();
    // SAFETY: the arrays, and the logs' buffers, are kept as long as the linker.
    let made = unsafe { driver::cuLinkCreate_v2(count, options, values, &mut raw) };
    let mut table = session.links.lock();
    if let Err(code) = made {
        table.links.remove(&request.link);
        return Err(code.into());
    }
    let link = Link {
        raw: raw as usize,
        jit: Some(jit),
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
    let image = image(session, request.image, data)?;
    let name = c_name(request.name)?;
    let mut jit = Jit::new(&request.options)?;
    let _loading = session.images.loading();
    let added = with(session, request.link, |link| {
        let bytes = image.with_nul();
        // Text counts with its NUL; what is binary has none.
        let is_text = request.kind == CU_JIT_INPUT_PTX;
        let length = bytes.len() - usize::from(!is_text);
        {
            let mut table = session.links.lock();
            if length > MOST_BYTES - table.bytes {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            table.bytes += length;
        }
        link.bytes += length;
        let state = link.raw as *mut c_void;
        let (count, options, values) = jit.arrays();
        // SAFETY: the linker is the driver's and lives, for this thread has its lock; the driver copies what it is given, and reads
        // as many bytes as it is told.
        let added = unsafe {
            let from = bytes.as_ptr().cast_mut().cast();
            let name = name.as_ptr();
            driver::cuLinkAddData_v2(
                state,
                request.kind,
                from,
                length,
                name,
                count,
                options,
                values,
            )
        };
        Ok((added, link.log()))
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
    let completed = with(session, request.link, |link| {
        let (mut cubin, mut size) = (std::ptr::null_mut(), 0);
        let state = link.raw as *mut c_void;
        // SAFETY: as above; the pointers live across the call.
        let completed = unsafe { driver::cuLinkComplete(state, &mut cubin, &mut size) };
        if completed.is_ok() {
            link.made = Some((cubin as usize, size));
            bytes = size as u64;
        }
        Ok((completed, link.log()))
    });
    outcome(completed, |log| reply::gpgpuLinkComplete {
        bytes,
        log,
        ..Default::default()
    })
}

/// A part of what a linker has made.
pub fn gpgpuLinkRead(
    session: &Session,
    request: request::gpgpuLinkRead,
    data: Data,
) -> Outcome<reply::gpgpuLinkRead> {
    with(session, request.link, |link| {
        let (start, size) = link.made.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let from = usize::try_from(request.offset).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
        let end = from.checked_add(data.output_bytes);
        if end.is_none_or(|end| end > size) || data.offset != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the range lies in what the driver has made, which it keeps as long as the linker; as many bytes of the staging area belong to
        // this command.
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
    with(session, request.link, |link| {
        {
            let mut table = session.links.lock();
            table.links.remove(&request.link);
            table.bytes -= link.bytes;
        }
        let raw = std::mem::take(&mut link.raw) as *mut c_void;
        // SAFETY: nobody finds it any more, and who has found it finds no handle.
        unsafe { driver::cuLinkDestroy(raw) }
    })?;
    Ok(reply::gpgpuLinkDestroy::default())
}
