// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The settings of the GPU's core dumps. They are stored and returned as CUDA's documentation describes. No core dump
//! is ever written, because the host's driver would write it on the host, with memory that does not belong only to this
//! program.

use gpgpu_client::log;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

use crate::{
    argument::{HostPtr, OutPtr},
    client::client,
    cuda,
    ffi::Result,
    thread,
};

/// `CU_COREDUMP_ENABLE_ON_EXCEPTION`.
const ENABLE_ON_EXCEPTION: u32 = 1;
/// `CU_COREDUMP_TRIGGER_HOST`.
const TRIGGER_HOST: u32 = 2;
/// `CU_COREDUMP_LIGHTWEIGHT`.
const LIGHTWEIGHT: u32 = 3;
/// `CU_COREDUMP_ENABLE_USER_TRIGGER`.
const ENABLE_USER_TRIGGER: u32 = 4;
/// `CU_COREDUMP_FILE`.
const FILE: u32 = 5;
/// `CU_COREDUMP_PIPE`.
const PIPE: u32 = 6;
/// `CU_COREDUMP_GENERATION_FLAGS`.
const GENERATION_FLAGS: u32 = 7;

/// The maximum length of a file name, including its NUL.
const LONGEST_NAME: usize = 1024;

/// The settings of all contexts, or of one.
#[derive(Debug, Clone)]
struct Settings {
    on_exception: u8,
    trigger_host: u8,
    lightweight: u8,
    user_trigger: u8,
    file: Vec<u8>,
    pipe: Vec<u8>,
    flags: u32,
}

impl Settings {
    const fn new() -> Self {
        Self {
            on_exception: 0,
            trigger_host: 1,
            lightweight: 0,
            user_trigger: 0,
            file: Vec::new(),
            pipe: Vec::new(),
            flags: 0,
        }
    }

    /// A boolean setting.
    fn switch(&mut self, attribute: u32) -> Option<&mut u8> {
        match attribute {
            ENABLE_ON_EXCEPTION => Some(&mut self.on_exception),
            TRIGGER_HOST => Some(&mut self.trigger_host),
            LIGHTWEIGHT => Some(&mut self.lightweight),
            ENABLE_USER_TRIGGER => Some(&mut self.user_trigger),
            _ => None,
        }
    }

    fn get(&mut self, attribute: u32, value: HostPtr, size: OutPtr<usize>) -> Result {
        let room = size.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if let FILE | PIPE = attribute {
            if value.is_null() {
                return size.set(LONGEST_NAME);
            }
            let name = if attribute == FILE {
                &self.file
            } else {
                &self.pipe
            };
            let to = value.bytes_mut(room);
            if let Some(last) = room.checked_sub(1) {
                let length = name.len().min(last);
                to[..length].copy_from_slice(&name[..length]);
                to[length..].fill(0);
            }
            return Ok(());
        }
        let flags = self.flags.to_ne_bytes();
        let switch;
        let bytes: &[u8] = match attribute {
            GENERATION_FLAGS => &flags,
            _ => {
                switch = [*self.switch(attribute).ok_or(CUDA_ERROR_INVALID_VALUE)?];
                &switch
            }
        };
        if value.is_null() {
            return size.set(bytes.len());
        }
        if room != bytes.len() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        value.store(bytes);
        Ok(())
    }

    fn set(&mut self, attribute: u32, value: HostPtr, size: OutPtr<usize>) -> Result {
        let length = size.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let expected = match attribute {
            FILE | PIPE => length,
            GENERATION_FLAGS => 4,
            _ => {
                self.switch(attribute).ok_or(CUDA_ERROR_INVALID_VALUE)?;
                1
            }
        };
        if length != expected {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if attribute == PIPE && self.user_trigger != 0 {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        if value.is_null() {
            return Ok(());
        }
        let given = value.bytes(length);
        let name = || {
            let name = given.iter().copied().take(LONGEST_NAME - 1);
            name.take_while(|byte| *byte != 0).collect()
        };
        match attribute {
            FILE => self.file = name(),
            PIPE => self.pipe = name(),
            GENERATION_FLAGS => {
                self.flags = u32::from_ne_bytes(given.try_into().unwrap_or_default())
            }
            _ => {
                let is_on = u8::from(given[0] != 0);
                if let Some(switch) = self.switch(attribute) {
                    *switch = is_on;
                }
                if is_on != 0 && matches!(attribute, ENABLE_ON_EXCEPTION | ENABLE_USER_TRIGGER) {
                    log::refuse(NAME, "are set up, but none is written in a virtual machine");
                }
                if is_on != 0 && attribute == ENABLE_USER_TRIGGER && self.pipe.is_empty() {
                    self.pipe = default_pipe();
                }
            }
        }
        Ok(())
    }
}

/// The name in the message about dumps.
const NAME: &str = "Core dumps of the GPU";

/// The default pipe of the driver, with the names of the machine and the process.
fn default_pipe() -> Vec<u8> {
    let mut host = [0_u8; 256];
    // SAFETY: the buffer has the given length, and the call ends it with a NUL.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let host = host.split(|byte| *byte == 0).next().unwrap_or_default();
    [
        b"corepipe_",
        host,
        format!("_{}", std::process::id()).as_bytes(),
    ]
    .concat()
}

/// The settings of all contexts, and those of single contexts.
static SETTINGS: Mutex<(Settings, Vec<(u64, Settings)>)> =
    Mutex::new((Settings::new(), Vec::new()));

fn settings() -> MutexGuard<'static, (Settings, Vec<(u64, Settings)>)> {
    SETTINGS.lock()
}

/// The current context, whose settings are read or written: all except those of dumps that the user triggers.
fn context(attribute: u32) -> Result<u64> {
    let client = client()?;
    match thread::home(client) {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        _ if matches!(attribute, ENABLE_USER_TRIGGER | PIPE) => Err(CUDA_ERROR_INVALID_VALUE),
        context => Ok(context),
    }
}

cuda! {
    fn cuCoredumpGetAttribute(attrib: u32, value: HostPtr, size: OutPtr<usize>) {
        let context = context(attrib)?;
        let (all, own) = &mut *settings();
        let own = own.iter_mut().find(|(of, _)| *of == context);
        own.map_or(all, |(_, own)| own).get(attrib, value, size)
    }

    fn cuCoredumpGetAttributeGlobal(attrib: u32, value: HostPtr, size: OutPtr<usize>) {
        client()?;
        settings().0.get(attrib, value, size)
    }

    fn cuCoredumpSetAttribute(attrib: u32, value: HostPtr, size: OutPtr<usize>) {
        let context = context(attrib)?;
        let (all, own) = &mut *settings();
        let at = own.iter().position(|(of, _)| *of == context);
        let at = at.unwrap_or_else(|| {
            own.push((context, all.clone()));
            own.len() - 1
        });
        own[at].1.set(attrib, value, size)
    }

    fn cuCoredumpSetAttributeGlobal(attrib: u32, value: HostPtr, size: OutPtr<usize>) {
        client()?;
        settings().0.set(attrib, value, size)
    }
}

/// Forgets the settings of a context that has ended.
pub fn forget_context(context: u64) {
    settings().1.retain(|(of, _)| *of != context);
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    fn pointer<T>(value: &mut T) -> HostPtr {
        HostPtr::at(value as *mut T as u64)
    }

    #[test]
    fn a_setting_has_one_size_and_a_name_any() {
        let mut settings = Settings::new();
        let mut value = [0_u8; 8];
        for (attribute, bytes) in [(TRIGGER_HOST, 1), (GENERATION_FLAGS, 4)] {
            for mut size in 0..8_usize {
                let out = OutPtr::nested((&raw mut size).cast::<c_void>());
                let got = settings.get(attribute, pointer(&mut value), out);
                let expected = if size == bytes {
                    Ok(())
                } else {
                    Err(CUDA_ERROR_INVALID_VALUE)
                };
                assert_eq!(got, expected, "{attribute} {size}");
            }
        }
        let mut name = *b"/tmp/x\0\0";
        let mut size = 7_usize;
        let out = OutPtr::nested((&raw mut size).cast::<c_void>());
        settings.set(FILE, pointer(&mut name), out).unwrap();
        let mut size = 4_usize;
        let out = OutPtr::nested((&raw mut size).cast::<c_void>());
        settings.get(FILE, pointer(&mut value), out).unwrap();
        assert_eq!(&value[..4], b"/tm\0");
    }

    #[test]
    fn the_pipe_stays_once_somebody_may_call_for_dumps() {
        let mut settings = Settings::new();
        let (mut on, mut one) = (1_u8, 1_usize);
        let one = OutPtr::nested((&raw mut one).cast::<c_void>());
        settings
            .set(ENABLE_USER_TRIGGER, pointer(&mut on), one)
            .unwrap();
        assert!(settings.pipe.starts_with(b"corepipe_"));
        let mut name = *b"x";
        let refused = settings.set(PIPE, pointer(&mut name), one);
        assert_eq!(refused, Err(CUDA_ERROR_NOT_SUPPORTED));
    }
}
