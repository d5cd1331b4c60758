// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Error names and descriptions: static text for every code of CUDA.

use std::{
    collections::HashMap,
    ffi::{CString, c_char},
    sync::OnceLock,
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{api::request, cuda::*};

use crate::{argument::OutPtr, client::client, cuda};

type Texts = HashMap<CUresult, CString>;

fn names() -> &'static Texts {
    static NAMES: OnceLock<Texts> = OnceLock::new();
    NAMES.get_or_init(|| {
        RESULT_NAMES
            .iter()
            .map(|(code, name)| (*code, CString::new(*name).unwrap_or_default()))
            .collect()
    })
}

/// The host's own description; without a client, one derived from the name.
fn description(code: CUresult) -> *const c_char {
    static ASKED: Mutex<Option<HashMap<CUresult, &'static CString>>> = Mutex::new(None);
    static PLAIN: OnceLock<Texts> = OnceLock::new();
    let mut asked = ASKED.lock();
    let asked = asked.get_or_insert_default();
    if let Some(text) = asked.get(&code) {
        return text.as_ptr();
    }
    let told =
        client().and_then(|client| client.call(&request::gpgpuErrorText { code, text: true }));
    if let Some(text) = told.ok().and_then(|reply| CString::new(reply.text).ok()) {
        // Callers may keep the pointer for ever. There are about a hundred codes.
        let text: &'static CString = Box::leak(Box::new(text));
        asked.insert(code, text);
        return text.as_ptr();
    }
    let plain = PLAIN.get_or_init(|| {
        RESULT_NAMES
            .iter()
            .map(|(code, name)| {
                let words = name
                    .trim_start_matches("CUDA_ERROR_")
                    .trim_start_matches("CUDA_");
                (
                    *code,
                    CString::new(words.to_lowercase().replace('_', " ")).unwrap_or_default(),
                )
            })
            .collect()
    });
    plain
        .get(&code)
        .map_or(std::ptr::null(), |text| text.as_ptr())
}

cuda! {
    fn cuGetErrorName(error: CUresult, pStr: OutPtr<*const c_char>) {
        pStr.required()?;
        match names().get(&error) {
            Some(name) => pStr.set(name.as_ptr()),
            None => {
                pStr.offer(std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }

    fn cuGetErrorString(error: CUresult, pStr: OutPtr<*const c_char>) {
        pStr.required()?;
        match result_name(error) {
            Some(_) => pStr.set(description(error)),
            None => {
                pStr.offer(std::ptr::null());
                Err(CUDA_ERROR_INVALID_VALUE)
            }
        }
    }
}
