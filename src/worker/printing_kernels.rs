// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernels of the client that may print. A thread analyses each image while the driver loads it.
//!
//! A program whose kernels do not print need not wait for the driver if a word that the GPU writes is enough. So the
//! guest's library asks for each function once, at its first launch.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    thread,
};

use gpgpu_image::prints::Prints;
use gpgpu_locks::{Condvar, Mutex, MutexGuard};

use super::{images::Image, unpacking};

/// The maximum number of images that wait for the analysis, because their memory would not be needed otherwise.
const MOST_WAITING: usize = 64;
/// The maximum size of these images in bytes.
const MOST_BYTES: usize = 64 << 20;

/// The state of an image.
#[derive(Debug)]
enum Known {
    NotYet,
    Prints(Prints),
}

#[derive(Debug)]
struct Waiting {
    object: u64,
    image: Arc<Image>,
    capabilities: Vec<u32>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<u64, Known>,
    waiting: VecDeque<Waiting>,
    has_thread: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Printing {
    state: Mutex<State>,
    changed: Condvar,
}

impl Printing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Records that the module or library `object` was loaded from an image, for devices of these compute capabilities.
    /// If too many images wait, or no thread can be started, it counts as one that prints.
    pub fn note(&'static self, object: u64, image: &Arc<Image>, capabilities: Vec<u32>) {
        let mut state = self.lock();
        if !state.has_thread {
            let thread = thread::Builder::new().name("printing".into());
            state.has_thread = thread.spawn(|| self.look_on()).is_ok();
        }
        let bytes: usize = state
            .waiting
            .iter()
            .map(|of| of.image.with_nul().len())
            .sum();
        let has_room = state.waiting.len() < MOST_WAITING
            && bytes.saturating_add(image.with_nul().len()) <= MOST_BYTES;
        if !state.has_thread || !has_room {
            state.known.insert(object, Known::Prints(Prints::Any));
            return;
        }
        state.known.insert(object, Known::NotYet);
        state.waiting.push_back(Waiting {
            object,
            image: Arc::clone(image),
            capabilities,
        });
        self.changed.notify_all();
    }

    fn look_on(&self) {
        let mut state = self.lock();
        loop {
            let Some(next) = state.waiting.pop_front() else {
                state = self.changed.wait(state);
                continue;
            };
            drop(state);
            let image = next.image.bytes();
            let room = unpacking::room(image);
            let prints = Prints::of(image, &next.capabilities);
            drop(room);
            drop(next.image);
            state = self.lock();
            // The object may have ended by now.
            if let Some(known) = state.known.get_mut(&next.object) {
                *known = Known::Prints(prints);
            }
            self.changed.notify_all();
        }
    }

    /// Whether `of` holds for the printing kernels of an object's image, once they are known. An unknown object does
    /// not print.
    fn ask(&self, object: u64, of: impl FnOnce(&Prints) -> bool) -> bool {
        let is_open = |state: &mut State| matches!(state.known.get(&object), Some(Known::NotYet));
        let state = self.changed.wait_while(self.lock(), is_open);
        matches!(state.known.get(&object), Some(Known::Prints(prints)) if of(prints))
    }

    /// Whether any kernel of a module or library may print.
    pub fn may_print(&self, object: u64) -> bool {
        self.ask(object, Prints::any)
    }

    /// Whether the kernel of this name may print.
    pub fn kernel_may_print(&self, object: u64, name: &[u8]) -> bool {
        self.ask(object, |prints| prints.kernel(name))
    }

    /// Forgets a module or library that has ended.
    pub fn forget(&self, object: u64) {
        self.lock().known.remove(&object);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> Arc<Image> {
        Arc::new(Image::new(text.into()))
    }

    #[test]
    fn a_query_waits_until_the_image_was_searched() {
        let printing: &'static Printing = Box::leak(Box::default());
        let loud = ".extern .func vprintf (); .entry loud() { call vprintf; } .entry quiet() { }";
        printing.note(1, &image(loud), vec![90]);
        printing.note(2, &image("ret"), vec![90]);
        assert!(printing.may_print(1) && !printing.may_print(2));
        assert!(printing.kernel_may_print(1, b"loud"));
        assert!(!printing.kernel_may_print(1, b"quiet"));
        printing.forget(1);
        assert!(!printing.may_print(1), "nothing is known of it");
        printing.note(3, &image(&" ".repeat(MOST_BYTES)), vec![90]);
        assert!(printing.may_print(3), "too long to be kept for a look");
        assert!(printing.kernel_may_print(3, b"any"));
    }
}
