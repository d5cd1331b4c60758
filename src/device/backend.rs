//! The device as the vhost-user library sees it.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::{Config, MAX_QUEUE_SIZE, NUM_QUEUES};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringRwLock};
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
    vm::Vm,
};
use crate::ipc::{self, device::ToDevice};

/// A message of the supervisor. The library keeps the numbers up to [`NUM_QUEUES`] for itself.
pub const LINK_EVENT: u16 = 8;
/// Time to look at clients that are being opened.
pub const TIMER_EVENT: u16 = 9;
/// A worker's channel; the slot is added.
pub const FIRST_CHANNEL_EVENT: u16 = 16;

/// How often the state looks at the clock while something is waited for.
const TICK: Duration = Duration::from_secs(1);

/// See the module's page.
pub struct Backend {
    vm: Mutex<Vm>,
    config: Config,
}

impl Backend {
    /// A back end for a device with this configuration space.
    pub fn new(vm: Vm, config: Config) -> Self {
        Self {
            vm: Mutex::new(vm),
            config,
        }
    }

    /// The device's state.
    pub fn lock(&self) -> MutexGuard<'_, Vm> {
        // A panic in one thread must not end the VM: the state is as good as it was.
        self.vm
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets `act` change the device's state, and sees to what follows from it.
    fn with(&self, act: impl FnOnce(&mut Vm)) {
        let mut vm = self.lock();
        act(&mut vm);
        let mut more = vm.settle();
        while more {
            // A driver that never stops making chains available does not keep others out.
            drop(vm);
            std::thread::yield_now();
            vm = self.lock();
            more = vm.resume();
        }
    }

    fn hear_supervisor(&self) {
        loop {
            // A statement of its own: the lock is free again while the message is handled.
            let message = next_message(&self.lock());
            let Some(message) = message else { return };
            self.with(|vm| vm.supervisor_says(message));
        }
    }
}

/// The next message of the supervisor. Without it there are no workers, and nobody would know of
/// this process, which therefore ends.
fn next_message(vm: &Vm) -> Option<ToDevice> {
    vm.receive_from_supervisor().unwrap_or_else(|error| {
        if !matches!(error, ipc::Error::Closed) {
            tracing::error!("The supervisor: {error}");
        }
        std::process::exit(1)
    })
}

/// The connection is closed: ends all clients, and waits until nothing of them writes to the guest's memory. The
/// VMM may connect again, and the memory is not this process's any more.
pub fn finish(vm: &mut Vm) {
    vm.finish();
    wait_while(vm, Vm::is_leaving);
}

/// Waits for movers, and for the end of workers. Nobody else has the device meanwhile.
///
/// There is no time limit: who waits takes memory back when this returns, and memory that is still written to is worse
/// than a VM that waits. The supervisor kills what does not end by itself, and says in the log what it cannot end.
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
        vm.wait_for_movers(tick - now);
    }
}

/// The bytes of the configuration space from `offset` on, zero past its end.
///
/// Always as many as asked for: a VMM may end its VM over an answer of another length.
pub fn config_bytes(config: &Config, offset: u32, size: u32) -> Vec<u8> {
    let bytes = config.as_bytes();
    let start = bytes.len().min(offset as usize);
    let end = bytes.len().min(start.saturating_add(size as usize));
    let mut part = bytes[start..end].to_vec();
    part.resize(size as usize, 0);
    part
}

impl VhostUserBackend for Backend {
    type Bitmap = ();
    type Vring = VringRwLock;

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
        // The VMM goes on once this is answered, and its guest may use all of its memory for something else.
        self.with(|vm| {
            vm.reset();
            wait_while(vm, Vm::is_leaving);
        });
    }

    fn set_event_idx(&self, _enabled: bool) {
        // The rings themselves keep it.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        config_bytes(&self.config, offset, size)
    }

    fn set_config(&self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        // The space is read-only, and a VMM may end its VM over an error.
        Ok(())
    }

    fn update_memory(&self, memory: Memory) -> io::Result<()> {
        let mut vm = self.lock();
        lost_pages::watch(&memory.memory().into_inner());
        vm.memory = memory;
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..NUM_QUEUES).map(|queue| 1 << queue).collect()
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        // A new pair each time: the library does not consume the event, so another thread of the
        // same pair would end at once.
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC)
            .inspect_err(|error| tracing::error!("No exit event: {error}"))
            .ok()
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        self.with(|vm| {
            if let Some(queue) = vm.queues.get_mut(queue as usize) {
                queue.stop();
            }
            // Once this is answered the device writes no more for the ring's chains, and neither may a mover. A VMM may
            // tell of a reset by nothing but this, and the driver has closed its clients before: so their workers have to
            // be gone. Those of clients that are open go on, for the ring may go on too.
            vm.cancel_moves();
            wait_while(vm, Vm::is_ending);
        });
        Ok(())
    }

    fn handle_event(
        &self,
        event: u16,
        _set: EventSet,
        vrings: &[VringRwLock],
        thread: usize,
    ) -> io::Result<()> {
        // An error or a panic would end the thread, and the VM would wait for ever.
        let lost = lost_pages::count();
        let handled = catch_unwind(AssertUnwindSafe(|| self.handle(event, vrings, thread)));
        if lost_pages::count() != lost {
            // Pages of the rings themselves, whose loss is the guest's.
            let _vm = self.lock();
            lost_pages::restore();
        }
        if handled.is_err() {
            tracing::error!("A bug: handling event {event} panicked");
        }
        Ok(())
    }
}

impl Backend {
    fn handle(&self, event: u16, vrings: &[VringRwLock], thread: usize) {
        match event {
            0 => self.with(|vm| {
                let (Some(queue), Some(vring)) = (vm.queues.get_mut(thread), vrings.first()) else {
                    return;
                };
                if queue.attach(vring) == Restart::Reset {
                    // The new driver's requests wait until nothing of the old one's is left; the VMM does not.
                    vm.reset();
                }
                vm.process(thread);
            }),
            LINK_EVENT => self.hear_supervisor(),
            TIMER_EVENT => self.with(|vm| vm.tick(Instant::now())),
            FIRST_CHANNEL_EVENT.. => {
                self.with(|vm| vm.worker_speaks(usize::from(event - FIRST_CHANNEL_EVENT)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpgpu_protocol::layout::CONFIG_SPACE_BYTES;

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
