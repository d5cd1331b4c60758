// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Properties and settings of contexts: queried once from the host, then cached until they are set.

use gpgpu_protocol::{
    api::{Context, Object, request},
    cuda::*,
};

use crate::{
    argument::OutPtr,
    client::{Client, client},
    context, cuda,
    ffi::Result,
    stores::{
        answers::{bit, local},
        context::answer,
        objects::Known,
        occupancy::reconfigure,
    },
    thread,
};

/// A property of a context, from the host unless it is cached.
pub fn ask(
    client: &Client,
    context: u64,
    which: usize,
    host: impl FnOnce() -> Result<u64>,
) -> Result<u64> {
    let known = || {
        let look = |object: &Known| match object {
            Known::Context(context) => context.answers.get(which),
            _ => None,
        };
        client.objects.look(context, look).flatten()
    };
    if let Some(value) = local(client, known) {
        return Ok(value);
    }
    match client.objects.context(context) {
        Some(context) if !client.is_corrupted() => context.answers.ask(which, host),
        _ => host(),
    }
}

/// Sends a change to the host that outdates some cached properties of the current context.
fn change<T>(client: &Client, untrue: u32, host: impl FnOnce() -> T) -> T {
    match client.objects.context(thread::home(client)) {
        Some(context) => context.answers.change(untrue, host),
        None => host(),
    }
}

/// The limits that only `cuCtxSetLimit` changes. Others may change while the program runs: for example, the driver
/// enlarges stacks for kernels that need it.
const LASTING_LIMITS: &[CUlimit] = &[
    CU_LIMIT_PRINTF_FIFO_SIZE,
    CU_LIMIT_MALLOC_HEAP_SIZE,
    CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
    CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
    CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
];

/// The context of a handle; NULL is the current one.
fn meant(ctx: CUcontext) -> u64 {
    if ctx.is_null() {
        thread::current_context()
    } else {
        Context::id(ctx)
    }
}

/// A query of the current context with one 32-bit result.
macro_rules! current {
    ($client:ident, $which:ident, $out:ident, $request:ident { $field:ident }) => {{
        let ask_host = |wanted| Ok($client.call(&request::$request { $field: wanted })?.$field);
        if $out.is_null() {
            // The host's driver defines the meaning of NULL.
            return ask_host(false).map(drop);
        }
        let value = ask($client, thread::home($client), answer::$which, || {
            ask_host(true).map(u64::from)
        })?;
        $out.set(value as u32)
    }};
}

cuda! {
    fn cuCtxGetFlags(flags: OutPtr<u32>) {
        let client = client()?;
        current!(client, FLAGS, flags, cuCtxGetFlags { flags })
    }

    fn cuCtxSetFlags(flags: u32) {
        let client = client()?;
        context::forget_primary_flags();
        let result = change(client, bit(answer::FLAGS), || client.call(&request::cuCtxSetFlags { flags }).map(drop));
        context::forget_primary_flags();
        result
    }

    fn cuCtxGetApiVersion(ctx: CUcontext, version: OutPtr<u32>) {
        let client = client()?;
        let ask_host = |wanted| Ok(client.call(&request::cuCtxGetApiVersion { ctx: Context::id(ctx), version: wanted })?.version);
        if version.is_null() {
            return ask_host(false).map(drop);
        }
        version.set(ask(client, meant(ctx), answer::API_VERSION, || ask_host(true).map(u64::from))? as u32)
    }

    fn cuCtxGetId(ctx: CUcontext, ctxId: OutPtr<u64>) {
        let client = client()?;
        let ask_host = |wanted| Ok(client.call(&request::cuCtxGetId { ctx: Context::id(ctx), ctxId: wanted })?.ctxId);
        if ctxId.is_null() {
            return ask_host(false).map(drop);
        }
        ctxId.set(ask(client, meant(ctx), answer::ID, || ask_host(true))?)
    }

    fn cuCtxGetStreamPriorityRange(leastPriority: OutPtr<i32>, greatestPriority: OutPtr<i32>) {
        let client = client()?;
        let context = thread::current_context();
        let ask_host = || client.call(&request::cuCtxGetStreamPriorityRange { leastPriority: true, greatestPriority: true });
        let least = ask(client, context, answer::LEAST_PRIORITY, || Ok(ask_host()?.leastPriority as u64))?;
        let greatest = ask(client, context, answer::GREATEST_PRIORITY, || Ok(ask_host()?.greatestPriority as u64))?;
        leastPriority.offer(least as i32);
        greatestPriority.offer(greatest as i32);
        Ok(())
    }

    fn cuCtxGetLimit(pvalue: OutPtr<usize>, limit: CUlimit) {
        let client = client()?;
        let ask_host = |wanted| Ok(client.call(&request::cuCtxGetLimit { pvalue: wanted, limit })?.pvalue);
        if pvalue.is_null() {
            return ask_host(false).map(drop);
        }
        if !LASTING_LIMITS.contains(&limit) {
            return pvalue.set(ask_host(true)?);
        }
        let which = answer::LIMITS + limit as usize;
        pvalue.set(ask(client, thread::home(client), which, || ask_host(true).map(|value| value as u64))? as usize)
    }

    fn cuCtxSetLimit(limit: CUlimit, value: usize) {
        let client = client()?;
        let limits = LASTING_LIMITS.iter().fold(0, |bits, limit| bits | bit(answer::LIMITS + *limit as usize));
        reconfigure(|| change(client, limits, || client.call(&request::cuCtxSetLimit { limit, value }).map(drop)))
    }

    fn cuCtxGetCacheConfig(pconfig: OutPtr<CUfunc_cache>) {
        let client = client()?;
        current!(client, CACHE_CONFIG, pconfig, cuCtxGetCacheConfig { pconfig })
    }

    fn cuCtxSetCacheConfig(config: CUfunc_cache) {
        let client = client()?;
        let untrue = bit(answer::CACHE_CONFIG);
        reconfigure(|| change(client, untrue, || client.call(&request::cuCtxSetCacheConfig { config }).map(drop)))
    }

    fn cuCtxGetSharedMemConfig(pConfig: OutPtr<CUsharedconfig>) {
        let client = client()?;
        current!(client, SHARED_CONFIG, pConfig, cuCtxGetSharedMemConfig { pConfig })
    }

    fn cuCtxSetSharedMemConfig(config: CUsharedconfig) {
        let client = client()?;
        let untrue = bit(answer::SHARED_CONFIG);
        reconfigure(|| change(client, untrue, || client.call(&request::cuCtxSetSharedMemConfig { config }).map(drop)))
    }
}
