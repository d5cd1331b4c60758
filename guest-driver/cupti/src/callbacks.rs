// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The callback API: one subscriber, whose function is called around the program's calls.
//!
//! Callbacks of the driver and runtime APIs are made. Those of the other domains (resources, synchronisation, NVTX,
//! states) may be enabled, and are never made.

use std::{
    ffi::{c_char, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{INVALID_PARAMETER, MULTIPLE_SUBSCRIBERS, Status};

use crate::{Outcome, enabled::Numbers, enter_here, give, numbers, profiler::profiler};

/// `CUpti_CallbackFunc`.
pub type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

/// `CUPTI_API_ENTER`.
pub const ENTER: u32 = 0;
/// `CUPTI_API_EXIT`.
pub const EXIT: u32 = 1;

/// `CUpti_CallbackData`.
#[derive(Debug)]
#[repr(C)]
pub struct Data {
    /// [`ENTER`] or [`EXIT`].
    pub site: u32,
    /// The function's name.
    pub name: *const c_char,
    /// Its arguments.
    pub arguments: *const c_void,
    /// Its result, at [`EXIT`].
    pub result: *mut c_void,
    /// The kernel's name for a launch of the driver API; NULL otherwise.
    pub symbol: *const c_char,
    /// The current context.
    pub context: *mut c_void,
    /// The number of that context.
    pub context_number: u32,
    /// A word that the subscriber may keep during the call.
    pub word: *mut u64,
    /// The call's number.
    pub correlation: u32,
}

/// The domains' numbers of callbacks, by the domains' numbers.
const DOMAINS: usize = 7;

#[derive(Debug, Clone, Copy)]
struct Subscriber {
    handle: usize,
    function: Option<Callback>,
    user: usize,
}

/// The subscriber of a process.
#[derive(Debug)]
pub struct Callbacks {
    subscriber: Mutex<Option<Subscriber>>,
    subscribed: AtomicUsize,
    enabled: [Numbers; DOMAINS],
}

/// One more than the largest number of a domain's callbacks; `None` for an unknown domain.
fn end_of(domain: u32) -> Option<u32> {
    match domain {
        1 | 2 => numbers::Api::of(domain).map(numbers::Api::count),
        3 => Some(24),
        4 => Some(3),
        5 => Some(Numbers::END),
        6 => Some(4),
        _ => None,
    }
}

impl Callbacks {
    /// No subscriber.
    pub const fn new() -> Self {
        Self {
            subscriber: Mutex::new(None),
            subscribed: AtomicUsize::new(0),
            enabled: [const { Numbers::new() }; DOMAINS],
        }
    }

    /// Makes a subscriber; returns its handle.
    pub fn subscribe(&self, function: Option<Callback>, user: usize) -> Result<usize, Status> {
        let mut subscriber = self.subscriber.lock();
        if subscriber.is_some() {
            return Err(MULTIPLE_SUBSCRIBERS);
        }
        // A handle is a pointer for the program. It differs from all earlier ones.
        let handle = (self.subscribed.fetch_add(1, Ordering::Relaxed) + 1) * 16;
        *subscriber = Some(Subscriber {
            handle,
            function,
            user,
        });
        Ok(handle)
    }

    fn check(&self, handle: usize) -> Outcome {
        let known = self.subscriber.lock().map(|subscriber| subscriber.handle);
        (known == Some(handle))
            .then_some(())
            .ok_or(INVALID_PARAMETER)
    }

    /// Removes the subscriber with a handle.
    pub fn unsubscribe(&self, handle: usize) -> Outcome {
        self.check(handle)?;
        self.clear();
        Ok(())
    }

    /// Removes the subscriber, if there is one.
    pub fn clear(&self) {
        *self.subscriber.lock() = None;
        for enabled in &self.enabled {
            enabled.set_all(false);
        }
    }

    fn domain(&self, domain: u32, number: u32) -> Result<&Numbers, Status> {
        let end = end_of(domain).ok_or(INVALID_PARAMETER)?;
        if number >= end {
            return Err(INVALID_PARAMETER);
        }
        self.enabled.get(domain as usize).ok_or(INVALID_PARAMETER)
    }

    /// Enables or disables a callback.
    pub fn enable(&self, handle: usize, domain: u32, number: u32, is_on: bool) -> Outcome {
        self.check(handle)?;
        self.domain(domain, number)?.set(number, is_on);
        Ok(())
    }

    /// Enables or disables all callbacks of a domain.
    pub fn enable_domain(&self, handle: usize, domain: u32, is_on: bool) -> Outcome {
        self.check(handle)?;
        self.domain(domain, 0)?.set_all(is_on);
        Ok(())
    }

    /// Whether a callback is enabled.
    pub fn state(&self, handle: usize, domain: u32, number: u32) -> Result<bool, Status> {
        self.check(handle)?;
        Ok(self.domain(domain, number)?.has(number))
    }

    /// Whether callbacks that are made are enabled.
    pub fn any(&self) -> bool {
        self.enabled[1].any() || self.enabled[2].any()
    }

    /// Whether a function's callbacks are enabled.
    #[inline]
    pub fn wants(&self, domain: u32, number: u32) -> bool {
        // All functions of a domain may be enabled, and this stands for those that are not reported.
        number != numbers::NONE
            && self
                .enabled
                .get(domain as usize)
                .is_some_and(|enabled| enabled.has(number))
    }

    /// Calls the subscriber.
    pub fn call(&self, domain: u32, number: u32, data: &Data) {
        let subscriber = *self.subscriber.lock();
        let Some(Subscriber { function, user, .. }) = subscriber else {
            return;
        };
        if let Some(function) = function {
            let data = (&raw const *data).cast();
            // SAFETY: the program has subscribed with the function for calls like this one.
            unsafe { function(user as *mut c_void, domain, number, data) };
        }
    }
}

/// `CUpti_SubscriberParams`.
#[derive(Debug)]
#[repr(C)]
pub struct Parameters {
    size: usize,
    name: *const c_char,
    other_name: *mut c_char,
    other_size: usize,
}

/// `cuptiSubscribe`: makes the process's one subscriber. It has no callbacks enabled.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `subscriber` is NULL, and with
/// `CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED` if there is a subscriber.
///
/// # Safety
///
/// `subscriber` is NULL or the caller's to write to. The function may be called by any thread until it is unsubscribed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe(
    subscriber: *mut *mut c_void,
    callback: Option<Callback>,
    userdata: *mut c_void,
) -> Status {
    enter_here(|| {
        if subscriber.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let handle = profiler()
            .callbacks
            .subscribe(callback, userdata as usize)?;
        // SAFETY: promised by the caller.
        unsafe { give(subscriber, handle as *mut c_void) }
    })
}

/// `cuptiSubscribe_v2`: [`cuptiSubscribe`]. If there is a subscriber already, the parameters' text becomes empty: names
/// are not kept.
///
/// Fails as that, and with `CUPTI_ERROR_INVALID_PARAMETER` if the parameters' size is 0.
///
/// # Safety
///
/// As for [`cuptiSubscribe`]; `pParams` is NULL or a structure of the size that it says, and its text is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSubscribe_v2(
    subscriber: *mut *mut c_void,
    callback: Option<Callback>,
    userdata: *mut c_void,
    pParams: *mut Parameters,
) -> Status {
    // SAFETY: promised by the caller.
    let parameters = unsafe { pParams.as_ref() };
    if parameters.is_some_and(|parameters| parameters.size == 0) {
        return enter_here(|| Err(INVALID_PARAMETER));
    }
    // SAFETY: promised by the caller.
    let status = unsafe { cuptiSubscribe(subscriber, callback, userdata) };
    let whole = parameters.filter(|parameters| parameters.size >= size_of::<Parameters>());
    if let Some(Parameters {
        other_name,
        other_size: 1..,
        ..
    }) = whole
        && status == MULTIPLE_SUBSCRIBERS
    {
        // SAFETY: promised by the caller.
        let _ = unsafe { give(*other_name, 0) };
    }
    status
}

/// `cuptiUnsubscribe`: removes the subscriber.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown one.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiUnsubscribe(subscriber: *mut c_void) -> Status {
    enter_here(|| {
        profiler().callbacks.unsubscribe(subscriber as usize)?;
        profiler().switch()
    })
}

/// `cuptiEnableCallback`: enables or disables the callbacks of a function.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown subscriber, domain or number.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableCallback(
    enable: u32,
    subscriber: *mut c_void,
    domain: u32,
    cbid: u32,
) -> Status {
    enter_here(|| {
        let (callbacks, subscriber) = (&profiler().callbacks, subscriber as usize);
        callbacks.enable(subscriber, domain, cbid, enable != 0)?;
        profiler().switch()
    })
}

/// `cuptiEnableDomain`: enables or disables all callbacks of a domain.
///
/// Fails as [`cuptiEnableCallback`].
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableDomain(enable: u32, subscriber: *mut c_void, domain: u32) -> Status {
    enter_here(|| {
        let (callbacks, subscriber) = (&profiler().callbacks, subscriber as usize);
        callbacks.enable_domain(subscriber, domain, enable != 0)?;
        profiler().switch()
    })
}

/// `cuptiEnableAllDomains`: enables or disables all callbacks.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown subscriber.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiEnableAllDomains(enable: u32, subscriber: *mut c_void) -> Status {
    enter_here(|| {
        let (callbacks, subscriber) = (&profiler().callbacks, subscriber as usize);
        for domain in 1..DOMAINS as u32 {
            callbacks.enable_domain(subscriber, domain, enable != 0)?;
        }
        profiler().switch()
    })
}

/// `cuptiGetCallbackState`: whether the callbacks of a function are enabled.
///
/// Fails as [`cuptiEnableCallback`], and if `enable` is NULL.
///
/// # Safety
///
/// `enable` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCallbackState(
    enable: *mut u32,
    subscriber: *mut c_void,
    domain: u32,
    cbid: u32,
) -> Status {
    enter_here(|| {
        let callbacks = &profiler().callbacks;
        let is_on = callbacks.state(subscriber as usize, domain, cbid)?;
        // SAFETY: promised by the caller.
        unsafe { give(enable, u32::from(is_on)) }
    })
}

/// `cuptiSupportedDomains`: the domains whose callbacks are made.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if a pointer is NULL.
///
/// # Safety
///
/// The pointers are NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiSupportedDomains(
    domainCount: *mut usize,
    domainTable: *mut *mut u32,
) -> Status {
    /// A table that the program reads through a pointer without `const`.
    static MADE: [u32; 2] = [1, 2];
    enter_here(|| {
        if domainTable.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: promised by the caller.
        unsafe {
            give(domainCount, MADE.len())?;
            give(domainTable, MADE.as_ptr().cast_mut())
        }
    })
}

/// `cuptiFinalize`: ends the use of CUPTI. Nothing is enabled afterwards, the subscriber is gone, and all buffers are
/// completed.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiFinalize() -> Status {
    enter_here(|| {
        profiler().finish();
        Ok(())
    })
}

const _: () = assert!(size_of::<Data>() == 72 && null_mut::<u8>().is_null());
