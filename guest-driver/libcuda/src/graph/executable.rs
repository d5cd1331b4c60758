// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's part of an executable graph, and the transfer of a list of steps.

use std::{
    ops::{Deref, DerefMut, Range},
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_graphs::{exec::Step, node::Work};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{GraphChange, GraphStep, Request, request},
    codec::{Blob, Writer},
    cuda::*,
};
use smallvec::SmallVec;

use super::{
    accepted::Place,
    lower::{Lowered, lower, put_change},
    note_printing,
};
use crate::{
    client::{Client, client},
    ffi::Result,
    image, thread,
};

/// A set of contexts.
pub(super) type Contexts = SmallVec<[u64; 1]>;

/// The contexts of steps.
pub(super) fn contexts(steps: &[GraphStep]) -> Contexts {
    let mut all = Contexts::new();
    for step in steps {
        if step.context != 0 && !all.contains(&step.context) {
            all.push(step.context);
        }
    }
    all
}

/// Makes the host end an object, unless it has ended with one of its contexts.
pub(super) fn end<R: Request>(contexts: &[u64], request: &R) {
    if let Ok(client) = client()
        && (contexts.iter()).all(|of| client.objects.context_device(*of).is_some())
    {
        let _ = client.post(request);
    }
}

/// The library's state of an executable graph.
pub struct Exec {
    pub(super) id: u64,
    /// The name by which kernels launch it, if they may.
    pub(super) handle: Option<u64>,
    /// Its contexts. The host ends it with the first of them.
    contexts: Contexts,
    now: Mutex<Now>,
    /// Whether a launch needs only one command in the present state.
    is_plain: AtomicBool,
    /// Dropped after the command that ends the graph on the host was sent.
    _place: Place,
}

/// The host's state of an executable graph.
pub(super) struct Now {
    pub lowered: Lowered,
    /// Whether the graph has changed in a way that the host cannot follow in place: it then gets the whole graph before
    /// the next launch.
    pub is_old: bool,
}

impl Now {
    fn is_plain(&self) -> bool {
        let lowered = &self.lowered;
        !self.is_old
            && !lowered.has_calls()
            && !lowered.prints()
            && lowered.events().next().is_none()
    }
}

/// The use of the host's state of an executable graph. A launch that begins during it takes more than one command.
pub(super) struct Use<'a> {
    now: MutexGuard<'a, Now>,
    is_plain: &'a AtomicBool,
}

impl Deref for Use<'_> {
    type Target = Now;

    fn deref(&self) -> &Now {
        &self.now
    }
}

impl DerefMut for Use<'_> {
    fn deref_mut(&mut self) -> &mut Now {
        &mut self.now
    }
}

impl Drop for Use<'_> {
    fn drop(&mut self) {
        self.is_plain.store(self.now.is_plain(), Ordering::Release);
    }
}

impl Exec {
    /// The graph with this id in these contexts, which the host has, or will have, as this list.
    pub(super) fn new(id: u64, contexts: Contexts, lowered: Lowered, place: Place) -> Self {
        let now = Now {
            lowered,
            is_old: false,
        };
        Self {
            id,
            handle: None,
            contexts,
            is_plain: now.is_plain().into(),
            now: Mutex::new(now),
            _place: place,
        }
    }

    /// The same, with the name by which kernels launch it.
    ///
    /// # Errors
    ///
    /// Those of the host.
    pub(super) fn named(mut self, client: &Client) -> Result<Self> {
        let exec = self.id;
        let reply = client.call(&request::gpgpuGraphHandle { exec, handle: true })?;
        self.handle = Some(reply.handle);
        note_printing(self.handle, &self.now().lowered);
        Ok(self)
    }

    /// The host's present state of the graph.
    pub(super) fn now(&self) -> Use<'_> {
        let now = self.now.lock();
        self.is_plain.store(false, Ordering::Relaxed);
        Use {
            now,
            is_plain: &self.is_plain,
        }
    }

    /// Whether the host can make the whole graph again, possibly with another name.
    pub(super) fn can_be_made_anew(&self, now: &Now) -> bool {
        self.handle.is_none() && !now.lowered.is_updatable()
    }

    /// Whether a launch needs only one command.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        self.is_plain.load(Ordering::Acquire)
    }

    /// Makes the host make the whole graph again.
    pub(super) fn renew(&self, client: &Client, now: &mut Now, steps: &[Step]) -> Result {
        let (list, then) = lower(client, steps)?;
        let exec = self.id;
        send(
            client,
            &list,
            true,
            |steps| request::gpgpuGraphUpdateHere { exec, steps },
            |image| request::gpgpuGraphUpdate { exec, image },
        )?;
        now.lowered = then;
        now.is_old = false;
        note_printing(self.handle, &now.lowered);
        Ok(())
    }

    /// Changes only the values of these launches' parameters in the host's graph. The host cannot refuse this while the
    /// graph and the thread have their contexts, so the program does not wait for it. `false` if it has to be done in
    /// another way.
    pub(super) fn set_parameters(
        &self,
        client: &Client,
        now: &Now,
        steps: &[Step],
        changed: &[usize],
    ) -> Result<bool> {
        let lives = |context: &u64| client.objects.context_device(*context).is_some();
        // A kernel that launches the graph is not ordered with this.
        if now.is_old
            || self.handle.is_some()
            || !client.has(request::gpgpuGraphSetSteps::OP)
            || !client.rings_wide(BESIDE)
            || !thread::has_context(client)
            || !self.contexts.iter().all(lives)
        {
            return Ok(false);
        }
        if changed.is_empty() {
            return Ok(true);
        }
        let mut writer = Writer::on(Vec::with_capacity(COUNT + changed.len() * USUAL_CHANGE));
        writer.put(&changed.len());
        let mut ends = Vec::with_capacity(changed.len());
        let mut known = 0;
        for index in changed {
            let step = &steps[*index];
            let (Work::Kernel(kernel), Some(place)) = (&step.work, now.lowered.place(*index))
            else {
                return Ok(false);
            };
            if kernel.function != known {
                client.objects.function(kernel.function)?;
                known = kernel.function;
            }
            put_change(&mut writer, place, step.enabled, kernel)?;
            ends.push(writer.as_bytes().len());
        }
        let exec = self.id;
        if client.rings_wide(BESIDE + writer.as_bytes().len()) {
            let changes = Blob(writer.into_bytes());
            client.post(&request::gpgpuGraphSetSteps { exec, changes })?;
            return Ok(true);
        }
        let fits = |length| client.rings_wide(BESIDE + length);
        let Some(portions) = portions(&ends, fits) else {
            return Ok(false);
        };
        for (count, bytes) in portions {
            let mut list = Writer::new();
            list.put(&count);
            let mut list = list.into_bytes();
            list.extend_from_slice(&writer.as_bytes()[bytes]);
            let changes = Blob(list);
            client.post(&request::gpgpuGraphSetSteps { exec, changes })?;
        }
        Ok(true)
    }

    /// Changes only these steps in the host's graph; `false` if the host has not changed all of them. It may have
    /// changed some.
    pub(super) fn change(
        &self,
        client: &Client,
        now: &mut Now,
        steps: &[Step],
        changed: &[usize],
    ) -> Result<bool> {
        if now.is_old || !client.has(request::gpgpuGraphSetSteps::OP) {
            return Ok(false);
        }
        let mut all = Vec::with_capacity(changed.len());
        for index in changed {
            let Some((step, to, calls)) = now.lowered.single(client, steps, *index)? else {
                return Ok(false);
            };
            let mut writer = Writer::new();
            writer.put(&GraphChange { step, to });
            all.push((writer.into_bytes(), *index, calls));
        }
        while !all.is_empty() {
            let mut length = BESIDE;
            let fits = all.iter().take_while(|(bytes, ..)| {
                length += bytes.len();
                client.rings_wide(length)
            });
            // A change that does not fit into a record uses the command queue.
            let count = fits.count().max(1);
            let mut writer = Writer::new();
            writer.put(&count);
            let mut list = writer.into_bytes();
            all.iter()
                .take(count)
                .for_each(|(bytes, ..)| list.extend_from_slice(bytes));
            let exec = self.id;
            let changes = Blob(list);
            if client
                .call(&request::gpgpuGraphSetSteps { exec, changes })
                .is_err()
            {
                return Ok(false);
            }
            for (_, index, calls) in all.drain(..count) {
                now.lowered
                    .replace(client, index, &steps[index].work, calls)?;
            }
        }
        Ok(true)
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let hGraphExec = self.id;
        end(&self.contexts, &request::cuGraphExecDestroy { hGraphExec });
    }
}

/// The size of a list's length field, in bytes.
const COUNT: usize = 8;

/// The usual size of a change of a launch's parameters, in bytes.
const USUAL_CHANGE: usize = 256;

/// The maximum size of a command without its list of steps, in bytes.
const BESIDE: usize = 1024;

/// Divides a list, whose changes end at these offsets after its length field, into portions that fit into a record: the
/// number of changes in each, and the range of their bytes. `None` if a change is too long.
fn portions(ends: &[usize], fits: impl Fn(usize) -> bool) -> Option<Vec<(usize, Range<usize>)>> {
    let mut portions = Vec::new();
    let (mut from, mut rest) = (COUNT, ends);
    while !rest.is_empty() {
        let is_in = |end: &&usize| fits(COUNT + **end - from);
        let count = rest.iter().take_while(is_in).count();
        let last = *rest.get(count.checked_sub(1)?)?;
        portions.push((count, from..last));
        (from, rest) = (last, &rest[count..]);
    }
    Some(portions)
}

/// Sends a list of steps: in the command if that fits into the ring, otherwise like an image. `waits` determines
/// whether to wait for the host's answer through the ring.
pub(super) fn send<H: Request, R: Request>(
    client: &Client,
    steps: &Vec<GraphStep>,
    waits: bool,
    here: impl FnOnce(Blob) -> H,
    beside: impl FnOnce(u64) -> R,
) -> Result {
    let mut writer = Writer::new();
    writer.put(steps);
    let list = writer.into_bytes();
    if client.has(H::OP) && client.rings_wide(list.len() + BESIDE) {
        let request = here(Blob(list));
        return match waits {
            true => client.call(&request).map(drop),
            false => client.post(&request),
        };
    }
    match image::load(client, &list, beside)? {
        (CUDA_SUCCESS, _) => Ok(()),
        (code, _) => Err(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_in_one_portion_and_each_portion_fits() {
        let ends: Vec<usize> = (1..=10).map(|at| COUNT + 100 * at).collect();
        for most in [COUNT + 100, COUNT + 250, COUNT + 999, COUNT + 1000, 1 << 20] {
            let portions = portions(&ends, |length| length <= most).unwrap();
            let (mut from, mut changes) = (COUNT, 0);
            for (count, bytes) in &portions {
                assert_eq!(bytes.start, from);
                assert_eq!(bytes.len(), 100 * count);
                assert!(*count > 0 && COUNT + bytes.len() <= most);
                (from, changes) = (bytes.end, changes + count);
            }
            assert_eq!((from, changes), (COUNT + 1000, 10));
        }
        assert_eq!(portions(&ends, |length| length < COUNT + 100), None);
        assert_eq!(portions(&[], |_| false).unwrap().len(), 0);
        // The third is too long.
        let ends = [COUNT + 100, COUNT + 200, COUNT + 900];
        assert_eq!(portions(&ends, |length| length <= 400), None);
    }
}
