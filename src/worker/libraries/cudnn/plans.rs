// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Plans that take long to build, which the worker keeps for the VM's other processes.
//!
//! cuDNN generates and compiles the kernels of some engines when it finalises a plan: 40 ms for an attention (cuDNN
//! 9.19, H200). The [text](super::texts) of such a plan contains the compiled kernels, and the library makes a plan from
//! it in 1 to 2 ms. So the worker stores the text as a file beside the driver's compiled code, under a hash of the
//! plan's description, the library, the GPU and the environment. A later plan of the same description is made from the
//! text, by any process of the VM. A text with an invalid seal is ignored.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use gpgpu_protocol::libraries::{
    Class, SUCCESS,
    cudnn::backend::{Values, element, kind, name},
};
use nix::{
    fcntl::{AT_FDCWD, renameat},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::{
    backend::{Room, text},
    descriptors::Raw,
    texts::Texts,
};
use crate::{
    cuda::driver,
    worker::{common::random, libraries::Call, places, session::Session, start::beside_cache},
};

/// The shortest time of a build whose plan is kept. A plan that is made from its text takes less.
const LEAST: Duration = Duration::from_millis(5);
/// The maximum number of plans that are kept for a VM. The oldest are removed first.
const MOST_PLANS: usize = 1 << 12;
/// The maximum size of a plan that is kept, in bytes.
const MOST_BYTES: usize = 256 << 10;
/// In a description: the type of elements of a query's result. No attribute has it.
const QUERIED: i32 = -1;
/// The first part of the files' names.
const PREFIX: &str = "cudnn-plan-";

/// The description of a descriptor: a hash of everything that was set in it and in the descriptors in it, in the order
/// of the calls. `None` if it is unknown. Of handles it contains the GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Description(Option<blake3::Hash>);

impl Description {
    /// Of a new descriptor of a type.
    pub fn new(kind: i32) -> Self {
        Self(Some(blake3::hash(&kind.to_le_bytes())))
    }

    fn add(&mut self, name: i32, of: i32, parts: &mut dyn Iterator<Item = &[u8]>) {
        let Some(before) = self.0 else { return };
        let mut hasher = blake3::Hasher::new();
        hasher.update(before.as_bytes());
        hasher.update(&name.to_le_bytes()).update(&of.to_le_bytes());
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        self.0 = Some(hasher.finalize());
    }

    /// Adds an attribute with elements of plain bytes.
    pub fn set(&mut self, name: i32, of: i32, elements: &[u8]) {
        self.add(name, of, &mut [elements].into_iter());
    }

    /// Adds an attribute whose elements are descriptors.
    pub fn set_descriptors(&mut self, name: i32, all: &[Self]) {
        let known: Option<Vec<_>> = all.iter().map(|of| of.0).collect();
        match known {
            Some(known) => self.add(
                name,
                element::DESCRIPTOR,
                &mut known.iter().map(|of| &of.as_bytes()[..]),
            ),
            None => self.lose(),
        }
    }

    /// The library has set the descriptor to one of those in an attribute of `parent`.
    pub fn become_part(&mut self, parent: Self, name: i32, at: usize) {
        let Some(parent) = parent.0 else {
            return self.lose();
        };
        let (parent, at) = (parent.as_bytes(), at.to_le_bytes());
        self.add(name, QUERIED, &mut [&parent[..], &at].into_iter());
    }

    /// The library may have changed the descriptor in an unknown way.
    pub fn lose(&mut self) {
        self.0 = None;
    }
}

/// A plan that can be kept: the name of its file, and the library's handle.
pub struct Place {
    file: String,
    handle: u64,
}

/// The plans that are kept.
#[derive(Debug)]
pub struct Plans {
    directory: PathBuf,
    /// The versions of the library and of the driver.
    versions: OnceLock<[i32; 2]>,
}

impl Default for Plans {
    fn default() -> Self {
        Self::of(beside_cache(""))
    }
}

/// The UUID of a context's GPU; `None` if the context has ended.
pub fn gpu_of(session: &Session, context: u64) -> Option<[u8; 16]> {
    let device = places::device_of(session, context).ok()?;
    let mut uuid = [0_u8; 16];
    // SAFETY: the pointer is to 16 bytes, as many as a UUID has, which live across the call.
    unsafe { driver::cuDeviceGetUuid_v2((&raw mut uuid).cast(), device).ok()? };
    Some(uuid)
}

/// The variables of the environment that can change plans. A program sets some of them while its worker runs.
fn variables() -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    const PREFIXES: [&[u8]; 3] = [b"CUDNN_", b"CUBLAS", b"NVIDIA_"];
    let changes = |name: &[u8]| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let mut all: Vec<_> = std::env::vars_os()
        .filter(|(name, _)| changes(name.as_bytes()))
        .collect();
    all.sort();
    let parts = all.iter().flat_map(|(name, value)| [name, value]);
    parts.fold(Vec::new(), |mut bytes, part| {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
        bytes
    })
}

impl Plans {
    fn of(directory: PathBuf) -> Self {
        Self {
            directory,
            versions: OnceLock::new(),
        }
    }

    /// The place of a plan with these handles and tensors by value; `None` if it is not to be kept.
    pub(super) fn place(
        &self,
        call: &Call<'_>,
        about: Description,
        handles: &[(u64, u64)],
        values: &Values,
    ) -> Option<Place> {
        let (about, [(id, handle)]) = (about.0?, handles) else {
            return None;
        };
        let entry = call.session.objects.entry_of(Class::CudnnHandle, *id)?;
        // A plan may suit the number of multiprocessors of a green context.
        let contexts = [entry.context, call.session.entered()];
        if contexts.iter().any(|of| call.session.has_greens(*of)) {
            return None;
        }
        // The library builds a plan for the handle's GPU, with the current context.
        let gpu = gpu_of(call.session, entry.context)?;
        let current = gpu_of(call.session, call.session.entered())?;
        if entry.raw != *handle || gpu != current {
            return None;
        }
        let [library, driver] = *self.versions.get_or_init(|| {
            let mut version = 0;
            // SAFETY: the pointer is to a value that lives across the call. Without an answer, the version is 0 in all
            // processes.
            let _ = unsafe { driver::cuDriverGetVersion(&mut version) };
            [call.cudnn("cudnnGetVersion", &[]) as i32, version]
        });
        let mut hasher = blake3::Hasher::new();
        hasher.update(about.as_bytes()).update(&gpu);
        hasher.update(&library.to_le_bytes());
        hasher.update(&driver.to_le_bytes());
        for part in [values.write(), variables()] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(&part);
        }
        Some(Place {
            file: format!("{PREFIX}{}", hasher.finalize().to_hex()),
            handle: *handle,
        })
    }

    /// Makes a plan from the text that is kept for it, if there is one and it has the tensors `values` by value.
    pub(super) fn load(
        &self,
        call: &Call<'_>,
        place: &Place,
        texts: &Texts,
        values: &Values,
    ) -> Option<Raw> {
        let sealed = read(&self.directory.join(&place.file), MOST_BYTES)?;
        let (text, of) = texts.open(&sealed, place.file.as_bytes())?;
        if of != *values {
            return None;
        }
        let plan = Raw::new(call, kind::PLAN).ok()?;
        let succeeds = |name, words: &[u64]| (call.cudnn(name, words) == SUCCESS).then_some(());
        let set = |name: i32, of: i32, count: usize, mut room: Room| {
            let words = [
                plan.value(),
                name as u64,
                of as u64,
                count as u64,
                room.address(),
            ];
            succeeds("cudnnBackendSetAttribute", &words)
        };
        let handle = Room::of([place.handle].into_iter());
        set(name::PLAN_HANDLE, element::HANDLE, 1, handle)?;
        set(
            name::PLAN_TEXT,
            element::CHAR,
            text.len(),
            Room::with(&text),
        )?;
        succeeds("cudnnBackendFinalize", &[plan.value()])?;
        tracing::debug!("A plan of cuDNN is made from {}", place.file);
        Some(plan)
    }

    /// Keeps a plan whose build took so long, if that is worth it.
    pub(super) fn keep(
        &self,
        call: &Call<'_>,
        place: &Place,
        texts: &Texts,
        (plan, values): (u64, &Values),
        took: Duration,
    ) {
        if took < LEAST {
            return;
        }
        let Ok(text) = text(call, plan) else { return };
        let sealed = texts.seal(&text, values, place.file.as_bytes());
        if sealed.len() > MOST_BYTES {
            return;
        }
        let stored = self.store(&place.file, &sealed);
        if let Err(error) = stored {
            tracing::debug!("Cannot keep a plan of cuDNN: {error}");
        }
    }

    fn store(&self, file: &str, text: &[u8]) -> io::Result<()> {
        self.make_room(MOST_PLANS)?;
        let mut number = [0; 8];
        random(&mut number).map_err(|_| io::ErrorKind::Other)?;
        let unfinished = format!("{PREFIX}{:016x}.new", u64::from_le_bytes(number));
        let unfinished = self.directory.join(unfinished);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut opened = options.open(&unfinished)?;
        // `std::fs` uses system calls that a worker does not have.
        let stored = opened.write_all(text).and_then(|()| {
            let path = self.directory.join(file);
            Ok(renameat(AT_FDCWD, &unfinished, AT_FDCWD, &path)?)
        });
        if stored.is_err() {
            let _ = unlinkat(AT_FDCWD, &unfinished, UnlinkatFlags::NoRemoveDir);
        }
        stored
    }

    /// Removes the oldest plans, an eighth of `most`, if there are so many.
    fn make_room(&self, most: usize) -> io::Result<()> {
        let kept = |of: &fs::DirEntry| {
            of.file_name()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
        };
        let all: Vec<_> = fs::read_dir(&self.directory)?
            .flatten()
            .filter(kept)
            .collect();
        if all.len() < most {
            return Ok(());
        }
        let when = |of: &fs::DirEntry| of.metadata().and_then(|of| of.modified());
        let mut all: Vec<_> = all
            .into_iter()
            .map(|of| (when(&of).unwrap_or(SystemTime::UNIX_EPOCH), of.path()))
            .collect();
        all.sort();
        for (_, path) in all.iter().take(most.div_ceil(8)) {
            // Another worker may have removed it.
            let _ = unlinkat(AT_FDCWD, path, UnlinkatFlags::NoRemoveDir);
        }
        Ok(())
    }
}

/// The contents of a regular file of at most so many bytes; `None` if there is none.
pub fn read(path: &Path, most: usize) -> Option<Vec<u8>> {
    let mut options = OpenOptions::new();
    // Other workers of the VM write to the directory: they must not make this one wait, or follow a link.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file: File = options.read(true).custom_flags(flags).open(path).ok()?;
    let length = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    if length > most as u64 {
        return None;
    }
    file.take(length).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_differ_in_every_part() {
        let described = |kind, name, of, elements: &[u8]| {
            let mut about = Description::new(kind);
            about.set(name, of, elements);
            about
        };
        let one = described(17, 902, 3, &[1, 2]);
        assert_eq!(one, described(17, 902, 3, &[1, 2]));
        for other in [
            described(16, 902, 3, &[1, 2]),
            described(17, 903, 3, &[1, 2]),
            described(17, 902, 4, &[1, 2]),
            described(17, 902, 3, &[1]),
            described(17, 902, 3, &[1, 3]),
            described(17, 902, 3, &[]),
            Description::new(17),
        ] {
            assert_ne!(one, other);
        }
        // Two attributes are not one with the bytes of both, and their order counts.
        let both = |first: &[u8], second: &[u8]| {
            let mut about = described(17, 902, 3, first);
            about.set(902, 3, second);
            about
        };
        assert_ne!(both(&[1], &[2]), both(&[2], &[1]));
        assert_ne!(both(&[1], &[2]), both(&[1, 2], &[]));
    }

    #[test]
    fn a_descriptions_parts_are_whole_descriptions() {
        let part = |byte| {
            let mut about = Description::new(17);
            about.set(902, 3, &[byte]);
            about
        };
        let with = |parts: &[Description]| {
            let mut about = Description::new(10);
            about.set_descriptors(704, parts);
            about
        };
        assert_eq!(with(&[part(1), part(2)]), with(&[part(1), part(2)]));
        assert_ne!(with(&[part(1), part(2)]), with(&[part(2), part(1)]));
        assert_ne!(with(&[part(1)]), with(&[part(1), part(1)]));
        // What contains something unknown is unknown, for ever.
        let mut unknown = part(1);
        unknown.lose();
        let mut within = with(&[part(1), unknown]);
        within.set(902, 3, &[1]);
        assert_eq!(within, Description::default());
        // The results of heuristics differ by their position and by what was asked for.
        let result = |parent, at| {
            let mut about = Description::new(3);
            about.become_part(parent, 202, at);
            about
        };
        assert_ne!(result(part(1), 0), result(part(1), 1));
        assert_ne!(result(part(1), 0), result(part(2), 0));
        assert_eq!(result(unknown, 0), Description::default());
    }

    #[test]
    fn plans_are_kept_until_there_are_too_many() {
        let directory = tempfile::tempdir().unwrap();
        let plans = Plans::of(directory.path().into());
        let file = |number| format!("{PREFIX}{number}");
        for number in 0..16 {
            plans.store(&file(number), &[number; 3]).unwrap();
            let age = SystemTime::UNIX_EPOCH + Duration::from_secs(100 - u64::from(number));
            let opened = File::options()
                .write(true)
                .open(directory.path().join(file(number)));
            opened.unwrap().set_modified(age).unwrap();
        }
        fs::write(directory.path().join("index"), [7]).unwrap();
        let kept = |number| read(&directory.path().join(file(number)), MOST_BYTES);
        plans.make_room(17).unwrap();
        assert_eq!(kept(15), Some(vec![15; 3]));
        plans.make_room(16).unwrap();
        assert_eq!([15, 14, 13].map(kept), [None, None, Some(vec![13; 3])]);
        // The driver's files are not this module's.
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 15);
        // A later plan replaces the earlier one.
        plans.store(&file(3), &[9]).unwrap();
        assert_eq!(kept(3), Some(vec![9]));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 15);
    }

    #[test]
    fn only_regular_files_of_a_limited_length_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        fs::write(path("file"), [1; 9]).unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        fs::write(path("long"), vec![0; MOST_BYTES + 1]).unwrap();
        assert_eq!(read(&path("file"), 9), Some(vec![1; 9]));
        for wrong in ["link", "pipe", "long", "none"] {
            assert_eq!(read(&path(wrong), MOST_BYTES), None, "{wrong}");
        }
    }
}
