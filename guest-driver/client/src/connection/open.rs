// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Opens a connection, and gets the description of the host.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64},
    time::Instant,
};

use gpgpu_protocol::{
    api::{
        Hello, Request, issued,
        issued::{KNOWN_AT_ONCE, Shared},
        request,
    },
    cuda::*,
    layout::{MAX_ANSWER_BYTES, status},
};

use super::{Connection, QueuedWaits};
use crate::{
    command::{decode, failed},
    ffi::Result,
    log::{self, Level},
    output::Output,
    ring::Ring,
    transport::{self, Failure, OpenError},
    work::Work,
};

/// If set to 0, the connection sets up no ring, and all commands use the command queue.
const RING_VARIABLE: &str = "VIRTIO_GPGPU_RING";

impl Connection {
    /// Connects to the device of the environment; also returns the constant properties of the host.
    ///
    /// # Errors
    ///
    /// The code that `cuInit` returns for the failure.
    pub fn open() -> Result<(Self, Hello)> {
        let wants_ring = std::env::var_os(RING_VARIABLE).is_none_or(|value| value != "0");
        Self::open_with(wants_ring)
    }

    /// The same without a ring, for clients with few requests and no GPU work.
    ///
    /// # Errors
    ///
    /// As [`Connection::open`].
    pub fn open_plain() -> Result<(Self, Hello)> {
        Self::open_with(false)
    }

    fn open_with(wants_ring: bool) -> Result<(Self, Hello)> {
        let began = Instant::now();
        let transport = transport::open().map_err(|problem| {
            log::say_once(Level::Error, problem.to_string());
            problem.code()
        })?;
        let connected = began.elapsed();
        let mut connection = Self {
            transport,
            shared: Shared::default(),
            ring: None,
            is_wide: false,
            serial: AtomicU64::new(1),
            corrupted: AtomicBool::new(false),
            deferred: AtomicU32::new(CUDA_SUCCESS),
            work: Work::default(),
            output: Output::default(),
            waits: QueuedWaits::default(),
        };
        connection.shared = connection.ask_for_operations()?;
        let hello = connection.call(&request::gpgpuHello { hello: true })?.hello;
        if wants_ring {
            connection.ring = connection.open_ring();
            connection.is_wide = connection.ring.is_some()
                && connection.shared.has(request::gpgpuRingWide::OP)
                && connection.shared.has(request::gpgpuRingAnswer::OP)
                && connection.call(&request::gpgpuRingWide {}).is_ok();
            if let Some(ring) = &connection.ring
                && connection.shared.has(request::gpgpuRingRelaxed::OP)
                && connection.call(&request::gpgpuRingRelaxed {}).is_ok()
            {
                ring.relax();
            }
        }
        log::say(Level::Debug, || {
            format!(
                "Start: connected in {connected:?}, ready in {:?}",
                began.elapsed()
            )
        });
        Ok((connection, hello))
    }

    /// The operations that this library and the host share. The host may be older or newer.
    fn ask_for_operations(&self) -> Result<Shared> {
        let mut shared = Shared::default();
        let mut answer = vec![0; MAX_ANSWER_BYTES];
        let mut first = 0;
        loop {
            let question = request::gpgpuOperations {
                first,
                operations: true,
            };
            let length = match self.ask(&question, &mut answer) {
                // The host does not know this request.
                Err(Failure::Status(status::MALFORMED)) => {
                    shared.add(issued::first_table());
                    break;
                }
                other => {
                    other.map_err(|failure| failed(request::gpgpuOperations::NAME, &failure))?
                }
            };
            let decoded = decode::<request::gpgpuOperations>(&answer[..length.min(answer.len())]);
            let (CUDA_SUCCESS, Some(reply)) = decoded? else {
                return Err(CUDA_ERROR_UNKNOWN);
            };
            let (count, last) = (reply.operations.len(), reply.operations.last());
            let next = last.map_or(0, |last| u32::from(last.op) + 1);
            shared.add(reply.operations);
            if count < KNOWN_AT_ONCE || next <= first {
                break;
            }
            first = next;
        }
        if shared.has(request::gpgpuHello::OP) {
            return Ok(shared);
        }
        log::say(Level::Error, || OpenError::Version.to_string());
        Err(OpenError::Version.code())
    }

    /// Makes a ring, if memory can be pinned for it. Without a ring everything works, but more slowly.
    fn open_ring(&self) -> Option<Ring> {
        let ring = Ring::new(&*self.transport)
            .inspect_err(|failure| log::say(Level::Info, || format!("No ring: {failure}")))
            .ok()?;
        let address = ring.address();
        match self.call(&request::gpgpuRingSetup { address }) {
            Ok(_) => Some(ring),
            Err(code) => {
                log::say(Level::Info, || format!("No ring: {code}"));
                None
            }
        }
    }
}
