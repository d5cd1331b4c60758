// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texts of cuDNN's plans (`CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION`), from which other plans can be made.
//!
//! The library trusts such a text, and the text does not list the tensors that are by value. So the worker seals each
//! text that the library returns: it adds the tensors that may be by value, and a keyed hash of them and the text, as
//! the first member of the text's JSON object. A text without a valid seal is refused. The key is a file beside the
//! driver's cache of the VM. So a program may store texts, and other processes of the VM may use them, as XLA's
//! persistent cache does. Without that directory, each worker has a key of its own.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use gpgpu_protocol::libraries::cudnn::backend::Values;
use nix::{
    errno::Errno,
    fcntl::{AT_FDCWD, RenameFlags, renameat, renameat2},
    unistd::{UnlinkatFlags, unlinkat},
};

use super::plans;
use crate::worker::{common::random, start::beside_cache};

/// The name of the key's file.
const KEY: &str = "plan-texts.key";
/// The member that holds the seal, up to its value.
const MEMBER: &[u8] = b"{\"virtio_gpgpu_seal\":\"";
/// The end of the member.
const END: &[u8] = b"\",";
/// The hexadecimal digits of a hash.
const DIGITS: usize = 2 * blake3::OUT_LEN;

type Key = [u8; blake3::KEY_LEN];

/// Makes and verifies seals.
#[derive(Debug)]
pub struct Texts {
    /// The file of the key.
    file: PathBuf,
    key: OnceLock<Option<Key>>,
}

impl Default for Texts {
    fn default() -> Self {
        Self::keyed_by(beside_cache(KEY))
    }
}

/// The text up to its last byte that is not NUL, because a program may keep or drop the final NUL.
fn trimmed(text: &[u8]) -> &[u8] {
    let last = text.iter().rposition(|byte| *byte != 0);
    &text[..last.map_or(0, |last| last + 1)]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = digits.as_chunks::<2>() else {
        return None;
    };
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? * 16 + digit(*low)?) as u8);
    pairs.iter().map(byte).collect()
}

/// Reads the key, or makes it if there is none.
fn key_in(file: &Path) -> io::Result<Key> {
    let known = || plans::read(file, blake3::KEY_LEN).and_then(|key| Key::try_from(key).ok());
    if let Some(key) = known() {
        return Ok(key);
    }
    let (mut key, mut number) = (Key::default(), [0; 8]);
    random(&mut key)
        .and_then(|()| random(&mut number))
        .map_err(|_| io::ErrorKind::Other)?;
    // A whole key takes the name: a worker that ends here leaves no part of one.
    let unfinished = file.with_extension(format!("{:016x}.new", u64::from_le_bytes(number)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut opened = options.open(&unfinished)?;
    let placed = opened.write_all(&key).and_then(|()| {
        let only_new = RenameFlags::RENAME_NOREPLACE;
        match renameat2(AT_FDCWD, &unfinished, AT_FDCWD, file, only_new) {
            // It is another worker's.
            Err(Errno::EEXIST) if known().is_some() => Err(io::ErrorKind::AlreadyExists.into()),
            // It holds no key, or the file system cannot do it so.
            Err(_) => Ok(renameat(AT_FDCWD, &unfinished, AT_FDCWD, file)?),
            Ok(()) => Ok(()),
        }
    });
    if let Err(error) = placed {
        let _ = unlinkat(AT_FDCWD, &unfinished, UnlinkatFlags::NoRemoveDir);
        return known().ok_or(error);
    }
    known().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

impl Texts {
    fn keyed_by(file: PathBuf) -> Self {
        Self {
            file,
            key: OnceLock::new(),
        }
    }

    /// The key; `None` if there is no source of secrets, in which case texts are not sealed.
    fn key(&self) -> Option<&Key> {
        let key = || {
            key_in(&self.file)
                .inspect_err(|error| tracing::debug!("Texts of plans are for one process: {error}"))
                .or_else(|_| {
                    let mut key = Key::default();
                    random(&mut key).map(|()| key)
                })
                .ok()
        };
        self.key.get_or_init(key).as_ref()
    }

    fn hash(&self, text: &[u8], values: &[u8], place: &[u8]) -> Option<blake3::Hash> {
        let mut hasher = blake3::Hasher::new_keyed(self.key()?);
        hasher.update(&(values.len() as u64).to_le_bytes());
        hasher.update(values).update(trimmed(text));
        // A text ends with `}`, and so differs from one with a place behind it.
        hasher.update(place);
        Some(hasher.finalize())
    }

    /// The sealed text of a plan with these tensors. A text that is not a JSON object is returned unchanged. The seal is
    /// valid at this place alone; programs get texts without one.
    pub fn seal(&self, text: &[u8], values: &Values, place: &[u8]) -> Vec<u8> {
        let values = values.write();
        match (text, self.hash(text, &values, place)) {
            ([b'{', rest @ ..], Some(hash)) => {
                let (hash, values) = (hash.to_hex(), hex(&values));
                [MEMBER, hash.as_bytes(), values.as_bytes(), END, rest].concat()
            }
            _ => text.to_vec(),
        }
    }

    /// The library's text of a sealed text, and the tensors that may be by value; `None` if the seal is missing or
    /// invalid.
    pub fn open(&self, text: &[u8], place: &[u8]) -> Option<(Vec<u8>, Values)> {
        let rest = text.strip_prefix(MEMBER)?;
        let digits = rest.iter().position(|byte| *byte == b'"')?;
        let (seal, rest) = rest.split_at(digits);
        let (hash, values) = seal.split_at_checked(DIGITS)?;
        let (hash, values) = (blake3::Hash::from_hex(hash).ok()?, from_hex(values)?);
        let text = [b"{", rest.strip_prefix(END)?].concat();
        // This comparison takes the same time for every wrong hash.
        let is_right = self.hash(&text, &values, place)? == hash;
        is_right.then_some((text, Values::read(&values).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"{\"plan\":{\"engine\":7}}\0";

    fn values() -> Values {
        let mut values = Values::default();
        values.add(3, Some(0));
        values.add(-9, None);
        values
    }

    #[test]
    fn another_process_of_the_vm_opens_a_sealed_text_and_another_vm_does_not() {
        let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let texts = |of: usize| Texts::keyed_by(directories[of].path().join(KEY));
        let sealed = texts(0).seal(TEXT, &values(), b"");
        assert_ne!(sealed, TEXT);
        let (text, opened) = texts(0).open(&sealed, b"").unwrap();
        assert_eq!((text.as_slice(), opened.write()), (TEXT, values().write()));
        // A program may drop the NUL.
        let short = &sealed[..sealed.len() - 1];
        assert_eq!(texts(0).open(short, b"").unwrap().0, TEXT[..TEXT.len() - 1]);
        assert!(texts(1).open(&sealed, b"").is_none());
    }

    #[test]
    fn a_changed_text_or_list_of_tensors_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let texts = Texts::keyed_by(directory.path().join(KEY));
        let sealed = texts.seal(TEXT, &values(), b"");
        for at in 0..sealed.len() - 1 {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(texts.open(&changed, b"").is_none(), "byte {at}");
            assert!(texts.open(&sealed[..at], b"").is_none(), "{at} bytes");
        }
        assert!(texts.open(TEXT, b"").is_none());
        // Two lists whose bytes are followed by the text's at different positions.
        let other = texts.seal(TEXT, &Values::default(), b"");
        assert!(texts.open(&other, b"").is_some());
        assert_ne!(
            other[MEMBER.len()..][..DIGITS],
            sealed[MEMBER.len()..][..DIGITS]
        );
    }

    #[test]
    fn without_a_directory_a_process_opens_its_own_texts_alone() {
        let texts = || Texts::keyed_by(PathBuf::from("/proc/self/nowhere/key"));
        let (one, other) = (texts(), texts());
        let sealed = one.seal(TEXT, &values(), b"");
        assert!(one.open(&sealed, b"").is_some() && other.open(&sealed, b"").is_none());
        assert_eq!(one.seal(b"no object", &values(), b""), b"no object");
    }

    #[test]
    fn a_seal_is_valid_at_its_place_alone() {
        let directory = tempfile::tempdir().unwrap();
        let texts = Texts::keyed_by(directory.path().join(KEY));
        let sealed = texts.seal(TEXT, &values(), b"place");
        assert!(texts.open(&sealed, b"place").is_some());
        assert!(texts.open(&sealed, b"").is_none() && texts.open(&sealed, b"other").is_none());
    }

    #[test]
    fn a_file_that_holds_no_key_is_replaced() {
        for wrong in [&[][..], &[1; 40]] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join(KEY);
            std::fs::write(&file, wrong).unwrap();
            let key = key_in(&file).unwrap();
            assert_eq!(key_in(&file).unwrap(), key);
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn workers_that_start_together_have_one_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(KEY);
        let keys: Vec<Key> = std::thread::scope(|scope| {
            let started = [(); 8].map(|()| scope.spawn(|| key_in(&file).unwrap()));
            started.map(|thread| thread.join().unwrap()).into()
        });
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
