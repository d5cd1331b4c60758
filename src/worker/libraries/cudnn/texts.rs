// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texts of cuDNN's plans (`CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION`), from which other plans can be made.
//!
//! The library trusts such a text, and the text does not list the tensors that are by value. So the worker seals each
//! text that the library returns: it adds the tensors that may be by value, and a keyed hash of them and the text, as
//! the first member of the text's JSON object. A text without a valid seal is refused. The key is a file beside the
//! driver's cache of the VM. So a program may store texts, and other processes of the VM may use them, as XLA's
//! persistent cache does. Without that directory, each worker has a key of its own.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use gpgpu_protocol::libraries::cudnn::backend::Values;

use crate::worker::{common::random, start::beside_cache};

/// The name of the key's file.
const KEY: &str = "plan-texts.key";
/// The member that holds the seal, up to its value.
const MEMBER: &[u8] = b"{\"virtio_gpgpu_seal\":\"";
/// The end of the member.
const END: &[u8] = b"\",";
/// The hexadecimal digits of a hash.
const DIGITS: usize = 2 * blake3::OUT_LEN;
/// The number of attempts to read the key. A worker that has made the file writes the key immediately.
const ATTEMPTS: u32 = 20;

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
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(file) {
        Ok(mut made) => {
            let mut key = Key::default();
            random(&mut key).map_err(|_| io::ErrorKind::Other)?;
            made.write_all(&key)?;
            return Ok(key);
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let mut attempts = 0;
    loop {
        let mut key = Vec::new();
        File::open(file)?.take(64).read_to_end(&mut key)?;
        match Key::try_from(key) {
            Ok(key) => return Ok(key),
            Err(_) if attempts == ATTEMPTS => return Err(io::ErrorKind::InvalidData.into()),
            Err(_) => {}
        }
        attempts += 1;
        std::thread::sleep(Duration::from_millis(5));
    }
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

    fn hash(&self, text: &[u8], values: &[u8]) -> Option<blake3::Hash> {
        let mut hasher = blake3::Hasher::new_keyed(self.key()?);
        hasher.update(&(values.len() as u64).to_le_bytes());
        hasher.update(values).update(trimmed(text));
        Some(hasher.finalize())
    }

    /// The sealed text of a plan with these tensors. A text that is not a JSON object is returned unchanged.
    pub fn seal(&self, text: &[u8], values: &Values) -> Vec<u8> {
        let values = values.write();
        match (text, self.hash(text, &values)) {
            ([b'{', rest @ ..], Some(hash)) => {
                let (hash, values) = (hash.to_hex(), hex(&values));
                [MEMBER, hash.as_bytes(), values.as_bytes(), END, rest].concat()
            }
            _ => text.to_vec(),
        }
    }

    /// The library's text of a sealed text, and the tensors that may be by value; `None` if the seal is missing or
    /// invalid.
    pub fn open(&self, text: &[u8]) -> Option<(Vec<u8>, Values)> {
        let rest = text.strip_prefix(MEMBER)?;
        let digits = rest.iter().position(|byte| *byte == b'"')?;
        let (seal, rest) = rest.split_at(digits);
        let (hash, values) = seal.split_at_checked(DIGITS)?;
        let (hash, values) = (blake3::Hash::from_hex(hash).ok()?, from_hex(values)?);
        let text = [b"{", rest.strip_prefix(END)?].concat();
        // This comparison takes the same time for every wrong hash.
        let is_right = self.hash(&text, &values)? == hash;
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
        let sealed = texts(0).seal(TEXT, &values());
        assert_ne!(sealed, TEXT);
        let (text, opened) = texts(0).open(&sealed).unwrap();
        assert_eq!((text.as_slice(), opened.write()), (TEXT, values().write()));
        // A program may drop the NUL.
        let short = &sealed[..sealed.len() - 1];
        assert_eq!(texts(0).open(short).unwrap().0, TEXT[..TEXT.len() - 1]);
        assert!(texts(1).open(&sealed).is_none());
    }

    #[test]
    fn a_changed_text_or_list_of_tensors_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let texts = Texts::keyed_by(directory.path().join(KEY));
        let sealed = texts.seal(TEXT, &values());
        for at in 0..sealed.len() - 1 {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(texts.open(&changed).is_none(), "byte {at}");
            assert!(texts.open(&sealed[..at]).is_none(), "{at} bytes");
        }
        assert!(texts.open(TEXT).is_none());
        // Two lists whose bytes are followed by the text's at different positions.
        let other = texts.seal(TEXT, &Values::default());
        assert!(texts.open(&other).is_some());
        assert_ne!(
            other[MEMBER.len()..][..DIGITS],
            sealed[MEMBER.len()..][..DIGITS]
        );
    }

    #[test]
    fn without_a_directory_a_process_opens_its_own_texts_alone() {
        let texts = || Texts::keyed_by(PathBuf::from("/proc/self/nowhere/key"));
        let (one, other) = (texts(), texts());
        let sealed = one.seal(TEXT, &values());
        assert!(one.open(&sealed).is_some() && other.open(&sealed).is_none());
        assert_eq!(one.seal(b"no object", &values()), b"no object");
    }

    #[test]
    fn a_file_that_holds_no_key_is_no_key() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(KEY);
        std::fs::write(&file, [1; 40]).unwrap();
        assert_eq!(
            key_in(&file).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
