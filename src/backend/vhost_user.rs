// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device as the vhost-user library sees it.
//!
//! The library has one thread for the VMM's messages, and one for the rings and all other events of the device. One
//! thread is enough for events, because each is handled under the lock of the device's state.
//!
//! A VMM takes the answer to a stopped or disabled ring as a promise that the device does not write to the guest's
//! memory. So the device answers once nothing writes for chains, no worker of a closed client remains, and the workers
//! of open clients [rest](super::rest). The vhost-user library expects a device to complete all chains first. This
//! device does not, because a command may wait without limit for the GPU or for another command of its guest. Chains in
//! flight continue with the ring, and are forgotten if the driver resets the device.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::layout::{Config, MAX_QUEUE_SIZE, NUM_QUEUES};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::VhostUserBackend;
use virtio_bindings::{
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};
use vm_memory::GuestAddressSpace;
use vmm_sys_util::{
    epoll::EventSet,
    event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier},
};
use zerocopy::IntoBytes;

use super::{
    lost_pages,
    queue::{Memory, Restart},
    ring::Ring,
    vm::Vm,
};
use crate::ipc::{self, device::ToDevice};

/// Events below this number belong to rings.
const QUEUE_EVENTS: u16 = NUM_QUEUES as u16;
/// A message of the supervisor. The library reserves the numbers up to [`NUM_QUEUES`].
pub const LINK_EVENT: u16 = 8;
/// The timer, which is set while the device waits for something; see [`TICK`].
pub const TIMER_EVENT: u16 = 9;
/// The device has remaining work.
pub const AGAIN_EVENT: u16 = 10;
/// A worker's channel; the slot is added.
pub const FIRST_CHANNEL_EVENT: u16 = 16;

/// The interval between two checks of workers that do not rest yet.
const LOOK: Duration = Duration::from_millis(1);
/// The interval of the timer while the device waits for something.
pub const TICK: Duration = Duration::from_secs(1);

/// The device's state, behind locks that threads take in order.
struct Shared {
    vm: Mutex<Vm>,
    /// Held while a thread waits for the state, so that a thread that takes the state repeatedly cannot overtake it.
    turn: Mutex<()>,
    /// Whether all clients are about to end, so that they need not rest.
    ends: Arc<AtomicBool>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vm> {
        let _turn = self.turn.lock();
        // A panic in one thread must not end the VM: the state is as consistent as it was.
        self.vm.lock()
    }

    /// Lets `act` change the device's state, and handles the consequences.
    fn with(&self, act: impl FnOnce(&mut Vm)) {
        let mut vm = self.lock();
        act(&mut vm);
        if vm.settle() {
            vm.watch.again();
        }
        if lost_pages::are_left() {
            // The pages of the rings themselves. The guest bears their loss.
            lost_pages::restore();
        }
    }

    /// Brings the workers to rest after the stop of a ring. See the module's documentation.
    fn rest(&self) {
        self.with(|vm| {
            vm.cancel_moves();
            // A VMM may announce a reset only in this way, after the driver has closed its clients. So the workers of
            // closed clients have to end. Workers of open clients rest, because the ring may continue.
            vm.rest();
            let is_awaited = || !self.ends.load(Ordering::SeqCst);
            wait_while(vm, |vm| vm.is_ending() || is_awaited() && vm.is_restless());
        });
    }
}

/// See the module's documentation.
pub struct Backend {
    shared: Arc<Shared>,
    config: Config,
    exit: Mutex<Option<(EventConsumer, EventNotifier)>>,
}

impl Backend {
    /// A back end for a device with this configuration space.
    ///
    /// # Errors
    /// The host is out of file descriptors.
    pub fn new(vm: Vm, config: Config) -> io::Result<Self> {
        let (vm, turn) = (Mutex::new(vm), Mutex::new(()));
        // Made here, where an error can be returned: without it, the library's thread would never end.
        let exit = new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)?;
        Ok(Self {
            shared: Arc::new(Shared {
                vm,
                turn,
                ends: Arc::default(),
            }),
            config,
            exit: Mutex::new(Some(exit)),
        })
    }

    /// To be set when all clients are about to end. A reset clears it.
    pub fn ends(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.shared.ends)
    }

    /// The device's state.
    pub fn lock(&self) -> MutexGuard<'_, Vm> {
        self.shared.lock()
    }

    fn with(&self, act: impl FnOnce(&mut Vm)) {
        self.shared.with(act);
    }

    fn hear_supervisor(&self) {
        loop {
            // A separate statement, so that the lock is free while the message is handled.
            let message = next_message(&self.lock());
            let Some(message) = message else { return };
            self.with(|vm| vm.supervisor_says(message));
        }
    }
}

/// Receives the supervisor's next message. If the supervisor has ended, this process ends too: without it there are no
/// workers, and nothing watches this process.
fn next_message(vm: &Vm) -> Option<ToDevice> {
    vm.receive_from_supervisor().unwrap_or_else(|error| {
        if !matches!(error, ipc::Error::Closed) {
            tracing::error!("The supervisor: {error}");
        }
        std::process::exit(1)
    })
}

/// Handles the end of the connection: ends all clients, and waits until nothing of them writes to the guest's memory.
/// Afterwards the VMM may connect again and reuse the memory.
pub fn finish(vm: &mut Vm) {
    vm.finish();
    wait_while(vm, Vm::is_leaving);
}

/// Waits for movers and for the end of workers, under the device's lock.
///
/// There is no time limit: the VMM reuses memory when this returns, and a delayed VM is better than overwritten memory.
/// The supervisor kills a worker that does not end by itself, and logs one that it cannot kill.
fn wait_while(vm: &mut Vm, busy: impl Fn(&Vm) -> bool) {
    let mut tick = Instant::now() + TICK;
    while busy(vm) {
        if let Some(message) = next_message(vm) {
            vm.supervisor_says(message);
            continue;
        }
        let now = Instant::now();
        if now >= tick {
            vm.tick(now);
            tick = now + TICK;
        }
        let mut limit = tick - now;
        if vm.is_restless() {
            vm.hurry_rest();
            limit = limit.min(LOOK);
        }
        vm.wait_for_movers(limit);
    }
}

/// The bytes of the configuration space from `offset` on; zeros past its end.
///
/// Always returns `size` bytes: a VMM may end its VM if the answer has another length.
pub fn config_bytes(config: &Config, offset: u32, size: u32) -> Vec<u8> {
    let bytes = config.as_bytes();
    let start = bytes.len().min(offset as usize);
    let end = bytes.len().min(start.saturating_add(size as usize));
    let mut part = bytes[start..end].to_vec();
    part.resize(size as usize, 0);
    part
}

impl VhostUserBackend for Backend {
    // The device does not offer LOG_ALL, because its state is on a GPU and cannot migrate. So writes to the guest's
    // memory are not logged.
    type Bitmap = ();
    type Vring = Ring;

    fn num_queues(&self) -> usize {
        NUM_QUEUES
    }

    fn max_queue_size(&self) -> usize {
        MAX_QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::RESET_DEVICE
    }

    fn reset_device(&self) {
        // After this answer the VMM continues, and its guest may use all of its memory for other things.
        self.with(|vm| {
            vm.reset();
            wait_while(vm, Vm::is_leaving);
        });
        self.shared.ends.store(false, Ordering::SeqCst);
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The rings themselves store it.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        config_bytes(&self.config, offset, size)
    }

    fn set_config(&self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        // The space is read-only, and a VMM may end its VM on an error.
        Ok(())
    }

    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        // Before the lock is taken: its holder may wait for this.
        lost_pages::watch(&memory.memory().into_inner());
        self.with(|vm| vm.memory_changed(memory));
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        vec![(1 << NUM_QUEUES) - 1]
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        // The library asks once for each thread, and there is one thread.
        self.exit.lock().take()
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        if let Some(queue) = self.lock().queues.get_mut(queue as usize) {
            queue.stop();
        }
        self.shared.rest();
        Ok(())
    }

    fn handle_event(
        &self,
        event: u16,
        _set: EventSet,
        rings: &[Ring],
        _thread: usize,
    ) -> io::Result<()> {
        // An error or a panic would end the thread, and the VM would wait for ever.
        let handled = catch_unwind(AssertUnwindSafe(|| self.handle(event, rings)));
        if handled.is_err() {
            tracing::error!("Bug: the handler of event {event} panicked");
        }
        Ok(())
    }
}

impl Backend {
    fn handle(&self, event: u16, rings: &[Ring]) {
        match event {
            0..QUEUE_EVENTS => self.kicked(usize::from(event), rings),
            AGAIN_EVENT => self.with(|vm| {
                vm.resume();
            }),
            LINK_EVENT => self.hear_supervisor(),
            TIMER_EVENT => self.with(|vm| vm.tick(Instant::now())),
            FIRST_CHANNEL_EVENT.. => {
                self.with(|vm| vm.worker_speaks(usize::from(event - FIRST_CHANNEL_EVENT)));
            }
            _ => {}
        }
    }

    /// Handles the start, the enabling or a kick of a ring.
    fn kicked(&self, number: usize, rings: &[Ring]) {
        let Some(ring) = rings.get(number) else {
            return;
        };
        ring.when_switched(|| {
            // A weak reference, because the state owns the ring.
            let shared: Weak<Shared> = Arc::downgrade(&self.shared);
            move |is_enabled| match shared.upgrade() {
                Some(shared) if is_enabled => shared.with(Vm::go_on),
                Some(shared) => shared.rest(),
                None => {}
            }
        });
        self.with(|vm| {
            if vm.queues[number].attach(ring) == Restart::Reset {
                // The new driver's requests wait until nothing of the old driver is left. The VMM does not wait.
                vm.reset();
            }
            vm.go_on();
            vm.process(number);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpgpu_protocol::layout::CONFIG_SPACE_BYTES;
    use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

    use crate::{backend::Nothing, ipc::device::DeviceEnd};

    /// A thread without the event would never end. So it is made where an error can be returned.
    #[test]
    fn the_event_that_ends_the_rings_thread_is_there_before_the_thread() {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let (_supervisor, link) = ipc::pair().unwrap();
        let vm = Vm::new(memory, DeviceEnd::new(link), Box::new(Nothing));
        let backend = Backend::new(vm, Config::current()).unwrap();
        let (consumer, notifier) = backend.exit_event(0).unwrap();
        notifier.notify().unwrap();
        consumer.consume().unwrap();
        assert!(backend.exit_event(0).is_none(), "one that was not there");
    }

    #[test]
    fn config_reads_have_the_length_that_was_asked_for() {
        let config = Config::current();
        let whole = config_bytes(&config, 0, 64);
        assert_eq!(whole, config.as_bytes());
        for offset in [0, 1, 4, 7, 60, 63, 64, 65, 256, 4095, u32::MAX] {
            for size in [0, 1, 2, 4, 8, 63, 64, 65, 256, 4096] {
                let part = config_bytes(&config, offset, size);
                assert_eq!(part.len(), size as usize);
                for (at, byte) in part.iter().enumerate() {
                    let from = offset as usize + at;
                    let expected = if from < CONFIG_SPACE_BYTES {
                        whole[from]
                    } else {
                        0
                    };
                    assert_eq!(*byte, expected, "offset {offset}, size {size}");
                }
            }
        }
    }
}
