// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module images of the client: being transferred, complete, and kept for the next load of the same image.
//!
//! A program may load one image many times: into several contexts, on several GPUs, or again after a reset. It is
//! transferred once, as long as the worker still has it. Workers share no images.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;

/// The maximum size of images that are incomplete, or whose load has not ended yet, in bytes.
const MAX_BYTES: u64 = 2 << 30;

/// The maximum number of such images.
const MAX_IMAGES: usize = 1024;

/// The maximum size of kept images, in bytes.
const MAX_KEPT_BYTES: u64 = 64 << 20;

/// The maximum number of kept images: each is compared with a new one of its length.
const MAX_KEPT: usize = 4096;

/// The maximum number of loads at a time. A compilation occupies a core, and hundreds of megabytes.
const MAX_LOADING: usize = 8;

/// An image's BLAKE3 hash.
pub type Hash = [u8; 32];

/// An image in the driver's form: with a NUL at the end, because it may be text.
pub struct Image {
    bytes: Vec<u8>,
    hash: OnceLock<Hash>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.len())
    }
}

impl Image {
    /// An image that was transferred as a whole.
    pub fn new(mut whole: Vec<u8>) -> Self {
        whole.push(0);
        Self::with_its_nul(whole)
    }

    fn with_its_nul(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            hash: OnceLock::new(),
        }
    }

    /// The image, with a NUL behind it.
    pub fn with_nul(&self) -> &[u8] {
        &self.bytes
    }

    /// The original bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - 1]
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64 - 1
    }

    /// The hash, which is computed only if another image may be the same.
    fn hash(&self) -> &Hash {
        self.hash
            .get_or_init(|| *blake3::hash(&self.bytes[..self.bytes.len() - 1]).as_bytes())
    }
}

/// An incomplete image.
#[derive(Debug)]
struct Arriving {
    bytes: Vec<u8>,
    missing: u64,
}

#[derive(Debug, Default)]
struct State {
    arriving: HashMap<u64, Arriving>,
    arrived: HashMap<u64, Arc<Image>>,
    /// The number and size of the images that commands have taken and still hold.
    taken: usize,
    taken_bytes: u64,
    /// The most recently used image is the last.
    kept: VecDeque<Arc<Image>>,
}

impl State {
    fn check_room(&self, bytes: u64) -> Result<(), CUresult> {
        let arriving = self.arriving.values().map(|image| image.bytes.len() as u64);
        let arrived = self.arrived.values().map(|image| image.len());
        let held: u64 = arriving.chain(arrived).sum::<u64>() + self.taken_bytes;
        let count = self.arriving.len() + self.arrived.len() + self.taken;
        if count >= MAX_IMAGES || held.saturating_add(bytes) > MAX_BYTES {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(())
    }
}

/// A complete image of a command. If it was transferred before the command, it counts as an image in transit as long as
/// this lives: loads may wait for each other, and the guest could transfer more images meanwhile.
#[derive(Debug)]
pub struct Taken<'a> {
    image: Arc<Image>,
    counted_by: Option<&'a Images>,
}

impl Taken<'_> {
    /// An image that came beside the command. The guest has room for few of them, and they do not count.
    pub fn beside(image: Image) -> Self {
        Self {
            image: Arc::new(image),
            counted_by: None,
        }
    }
}

impl Deref for Taken<'_> {
    type Target = Arc<Image>;

    fn deref(&self) -> &Arc<Image> {
        &self.image
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(images) = self.counted_by {
            let mut state = images.lock();
            state.taken -= 1;
            state.taken_bytes -= self.image.len();
        }
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Images {
    state: Mutex<State>,
    loading: Mutex<usize>,
    loaded: Condvar,
}

/// A load in progress.
#[derive(Debug)]
pub struct Loading<'a>(&'a Images);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.loaded.notify_one();
    }
}

impl Images {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.loading.lock()
    }

    /// Waits until one more image may be loaded.
    pub fn loading(&self) -> Loading<'_> {
        let mut count = self.count();
        while *count >= MAX_LOADING {
            count = self.loaded.wait(count);
        }
        *count += 1;
        Loading(self)
    }

    /// Takes a part of `length` bytes of an image of `bytes` bytes, which `copy` copies. Parts may come in any order.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if it is not a part of such an image, `CUDA_ERROR_OUT_OF_MEMORY` above the limits.
    pub fn write(
        &self,
        id: u64,
        bytes: u64,
        (offset, length): (u64, usize),
        copy: impl FnOnce(&mut [u8]),
    ) -> Result<(), CUresult> {
        let mut state = self.lock();
        let fits = offset
            .checked_add(length as u64)
            .is_some_and(|end| end <= bytes);
        if !fits || length == 0 || id == 0 || state.arrived.contains_key(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !state.arriving.contains_key(&id) {
            state.check_room(bytes)?;
            let image = Arriving {
                bytes: vec![0; bytes as usize + 1],
                missing: bytes,
            };
            state.arriving.insert(id, image);
        }
        let image = state
            .arriving
            .get_mut(&id)
            .filter(|image| image.bytes.len() as u64 == bytes + 1)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        copy(&mut image.bytes[offset as usize..][..length]);
        // A client that sends a part twice gets an image with zeros in it, which affects only itself.
        image.missing = image.missing.saturating_sub(length as u64);
        if image.missing == 0
            && let Some(image) = state.arriving.remove(&id)
        {
            state
                .arrived
                .insert(id, Arc::new(Image::with_its_nul(image.bytes)));
        }
        Ok(())
    }

    /// Whether the same image is kept from an earlier load; it then counts as transferred with the number `id`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the limits.
    pub fn find(&self, id: u64, bytes: u64, hash: &[u8]) -> Result<bool, CUresult> {
        let candidates: Vec<_> = self
            .lock()
            .kept
            .iter()
            .filter(|image| image.len() == bytes)
            .cloned()
            .collect();
        // Hashing takes long, so it is done without the lock.
        let Some(image) = candidates.into_iter().find(|image| image.hash() == hash) else {
            return Ok(false);
        };
        let mut state = self.lock();
        state.check_room(bytes)?;
        state.arrived.insert(id, image);
        Ok(true)
    }

    /// Takes a complete image. It must be transferred again before it can be taken again. It counts as one in transit
    /// until the result is dropped.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no complete image with this number.
    pub fn take(&self, id: u64) -> Result<Taken<'_>, CUresult> {
        let mut state = self.lock();
        let image = state.arrived.remove(&id).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        state.taken += 1;
        state.taken_bytes += image.len();
        Ok(Taken {
            image,
            counted_by: Some(self),
        })
    }

    /// Keeps a loaded image, if it is not too large, in place of the least recently used ones.
    pub fn keep(&self, image: Arc<Image>) {
        if image.len() > MAX_KEPT_BYTES {
            return;
        }
        let mut state = self.lock();
        state.kept.retain(|kept| !Arc::ptr_eq(kept, &image));
        state.kept.push_back(image);
        let mut held: u64 = state.kept.iter().map(|image| image.len()).sum();
        while (held > MAX_KEPT_BYTES || state.kept.len() > MAX_KEPT)
            && let Some(oldest) = state.kept.pop_front()
        {
            held -= oldest.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    fn hash(bytes: &[u8]) -> Hash {
        *blake3::hash(bytes).as_bytes()
    }

    fn write(
        images: &Images,
        id: u64,
        bytes: u64,
        offset: u64,
        part: &[u8],
    ) -> Result<(), CUresult> {
        images.write(id, bytes, (offset, part.len()), |to| {
            to.copy_from_slice(part)
        })
    }

    #[test]
    fn an_image_arrives_in_parts_of_any_order_and_only_as_a_whole() {
        let images = Images::default();
        write(&images, 1, 5, 3, b"de").unwrap();
        assert_eq!(images.take(1).unwrap_err(), CUDA_ERROR_INVALID_VALUE);
        for (bytes, offset, part) in [(6, 0, &b"abc"[..]), (5, 3, b"def"), (5, u64::MAX, b"a")] {
            assert_eq!(
                write(&images, 1, bytes, offset, part),
                Err(CUDA_ERROR_INVALID_VALUE)
            );
        }
        write(&images, 1, 5, 0, b"abc").unwrap();
        assert_eq!(
            write(&images, 1, 5, 0, b"abc"),
            Err(CUDA_ERROR_INVALID_VALUE),
            "it is complete"
        );
        assert_eq!(images.take(1).unwrap().with_nul(), b"abcde\0");
        assert_eq!(images.take(1).unwrap_err(), CUDA_ERROR_INVALID_VALUE);
    }

    #[test]
    fn an_image_that_was_loaded_is_found_by_its_contents() {
        let images = Images::default();
        images.keep(Arc::new(Image::new(b"image one".to_vec())));
        images.keep(Arc::new(Image::new(b"image two".to_vec())));
        assert_eq!(images.find(7, 9, &hash(b"image six")), Ok(false));
        assert_eq!(images.find(7, 8, &hash(b"image two")), Ok(false));
        assert_eq!(images.find(7, 9, &hash(b"image two")), Ok(true));
        assert_eq!(images.take(7).unwrap().with_nul(), b"image two\0");
        assert_eq!(images.find(8, 9, b"short"), Ok(false));
    }

    #[test]
    fn the_cache_is_bounded_and_recently_used_images_stay() {
        let images = Images::default();
        let third = |byte| Arc::new(Image::new(vec![byte; MAX_KEPT_BYTES as usize / 3]));
        let all = [third(1), third(2), third(3)];
        for image in &all {
            images.keep(Arc::clone(image));
        }
        images.keep(Arc::clone(&all[0]));
        images.keep(third(4));
        let kept: Vec<u8> = images
            .lock()
            .kept
            .iter()
            .map(|image| image.bytes[0])
            .collect();
        assert_eq!(kept, [3, 1, 4]);
        images.keep(Arc::new(Image::new(vec![5; MAX_KEPT_BYTES as usize + 1])));
        assert_eq!(images.lock().kept.len(), 3);
    }

    #[test]
    fn however_small_the_images_are_no_more_than_so_many_are_kept() {
        let images = Images::default();
        let number = |number: usize| Arc::new(Image::new(number.to_le_bytes().to_vec()));
        images.lock().kept.extend((0..MAX_KEPT).map(number));
        images.keep(number(MAX_KEPT));
        images.keep(number(MAX_KEPT + 1));
        assert_eq!(images.lock().kept.len(), MAX_KEPT);
        let found = |number: usize| {
            let bytes = number.to_le_bytes();
            let found = images.find(1, bytes.len() as u64, &hash(&bytes));
            let _ = images.take(1);
            found
        };
        for (number, kept) in [(0, false), (1, false), (2, true), (MAX_KEPT + 1, true)] {
            assert_eq!(found(number), Ok(kept), "{number}");
        }
    }

    #[test]
    fn loads_wait_for_one_of_those_under_way_to_end() {
        let images = Images::default();
        let mut under_way: Vec<_> = (0..MAX_LOADING).map(|_| images.loading()).collect();
        let (begun, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let more = 4 * MAX_LOADING;
            for _ in 0..more {
                scope.spawn(|| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _loading = images.loading();
                    assert!(ended.load(Ordering::SeqCst), "one too many");
                    assert!(*images.count() <= MAX_LOADING);
                });
            }
            while begun.load(Ordering::SeqCst) < more {
                std::thread::yield_now();
            }
            ended.store(true, Ordering::SeqCst);
            under_way.pop();
        });
        drop(under_way);
        assert_eq!(*images.count(), 0);
    }

    #[test]
    fn images_count_until_their_load_has_ended() {
        let images = Images::default();
        let full = Err(CUDA_ERROR_OUT_OF_MEMORY);
        let count = |id| write(&images, id, 1, 0, b"a").and_then(|()| images.take(id));
        let mut taken: Vec<_> = (1..=MAX_IMAGES as u64)
            .map(|id| count(id).unwrap())
            .collect();
        assert_eq!(write(&images, 5000, 1, 0, b"a"), full);
        taken.pop();
        assert_eq!(write(&images, 5000, 1, 0, b"a"), Ok(()));
        drop(taken);
        drop(images.take(5000));

        let large = Image::new(vec![1; MAX_KEPT_BYTES as usize]);
        let hash = *large.hash();
        images.keep(Arc::new(large));
        let find = |id| images.find(id, MAX_KEPT_BYTES, &hash);
        let mut taken = Vec::new();
        for id in 1..=MAX_BYTES / MAX_KEPT_BYTES {
            assert_eq!(find(id), Ok(true));
            taken.push(images.take(id).unwrap());
        }
        assert_eq!(find(6000), Err(CUDA_ERROR_OUT_OF_MEMORY));
        assert_eq!(write(&images, 6000, 1, 0, b"a"), full);
        drop(taken);
        assert_eq!(find(6000), Ok(true));
        drop(images.take(6000));
        let state = images.lock();
        assert_eq!((state.taken, state.taken_bytes), (0, 0));
    }

    #[test]
    fn images_that_never_end_are_bounded() {
        let images = Images::default();
        assert_eq!(
            write(&images, 1, MAX_BYTES + 1, 0, b"a"),
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        );
        for id in 1..=MAX_IMAGES as u64 {
            write(&images, id, 2, 0, b"a").unwrap();
        }
        assert_eq!(
            write(&images, 5000, 2, 0, b"a"),
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        );
    }
}
