// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device, its state and its orders.
//!
//! Orders are OPENs whose `api_family` begins with [`ORDER`]. They open nothing, and their answer's status is [`TOLD`]
//! plus a number. They use the control queue, so that they are served while the command queue is full. The verbs are in
//! [`order`]. Any other OPEN opens a client.
//!
//! A stream's first word says how its chain is handled: see [`verb`].

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use gpgpu_protocol::layout::{
    COMMAND_QUEUE, CONTROL_QUEUE, CommandHeader, Config, MAX_QUEUE_SIZE, NUM_QUEUES, control,
    status,
};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackendMut, VringRwLock, VringT};
use virtio_bindings::{
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};
use virtio_queue::{DescriptorChain, QueueOwnedT};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryLoadGuard, GuestMemoryMmap};
use vmm_sys_util::{
    epoll::EventSet,
    event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier},
};
use zerocopy::{FromBytes, IntoBytes, little_endian::U32};

/// The upper 16 bits of an OPEN's `api_family` that is an order. The next 16 are the verb, the lower 32 its argument.
const ORDER: u64 = 0x0bad;
/// The offset of an order's answer, to distinguish it from a status.
const TOLD: u32 = 0x0100_0000;

/// The bytes that the device writes to memory before it reports that a queue has stopped.
const LATE: u8 = 0xa5;

/// The device's orders.
mod order {
    /// Returns all chains that are held under this key, or under any if it is 0; answers with their number.
    pub const RELEASE: u16 = 1;
    /// The status of later CLOSEs, if it is below 0x100.
    pub const CLOSE_STATUS: u16 = 2;
    /// The number of bytes in the answers to later CLOSEs, at most 8.
    pub const CLOSE_BYTES: u16 = 3;
    /// The key under which later CLOSEs are held; 0: they are answered.
    pub const CLOSE_HOLD: u16 = 4;
    /// The number of CLOSEs.
    pub const CLOSES: u16 = 5;
    /// The number of notifications of the command queue by the driver.
    pub const NOTIFICATIONS: u16 = 6;
    /// The number of chains held under this key.
    pub const HELD: u16 = 7;
    /// The key under which later OPENs except orders are held; 0: they are answered.
    pub const OPEN_HOLD: u16 = 8;
    /// The number of reads of the configuration after the next stop that show no magic. Reads before the stop come from
    /// a driver that checks for another device in its place, at times of its own.
    pub const NO_MAGIC: u16 = 9;
    /// From now on it is another device with this number: it has no client, forgets the chains that it holds, and shows
    /// the number.
    pub const REPLACE: u16 = 10;
    /// The number of times that the driver has stopped the device.
    pub const STOPS: u16 = 11;
    /// The number of open clients.
    pub const CLIENTS: u16 = 12;
    /// The number of their regions.
    pub const REGIONS: u16 = 13;
    /// The number of reads of the configuration that show another version.
    pub const NO_VERSION: u16 = 14;
    /// The duration of the next stop of the command queue, in milliseconds. At its end, the device writes
    /// [`super::LATE`] to all memory that it may write to in the chains that it holds.
    pub const SLOW_STOP: u16 = 15;
    /// Returns the oldest chain that is held under this key.
    pub const RELEASE_ONE: u16 = 16;
}

/// The meaning of a stream's first word; the second one is its argument. With any other word, for example 0, the chain
/// is answered with all requested bytes, which are zeros.
mod verb {
    /// Hold the chain under a key, and finally answer it in that way.
    pub const HOLD: u32 = 1;
    /// Answer it in that way, with this used length.
    pub const USED: u32 = 2;
    /// Return its data repeatedly, with each byte inverted.
    pub const INVERT: u32 = 3;
}

type Memory = GuestMemoryLoadGuard<GuestMemoryMmap>;
type Chain = DescriptorChain<Memory>;

/// A chain and its future answer.
struct Held {
    queue: usize,
    key: u32,
    chain: Chain,
    answer: Vec<u8>,
    used: u32,
}

/// See the module's documentation.
pub struct Device {
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
    config: Config,
    next_client: u32,
    next_region: u32,
    /// Open clients, with the number of each one's regions.
    clients: BTreeMap<u32, u32>,
    held: Vec<Held>,
    close_status: u32,
    close_bytes: u32,
    close_hold: u32,
    open_hold: u32,
    closes: u32,
    notifications: u32,
    stops: u32,
    no_magic_once_stopped: u32,
    no_magic: AtomicU32,
    no_version: AtomicU32,
    slow_stop: u32,
}

impl Device {
    /// A device that has no faults yet.
    pub fn new(memory: GuestMemoryAtomic<GuestMemoryMmap>) -> Self {
        Self {
            memory,
            config: Config::current().of_instance(1),
            next_client: 1,
            next_region: 1,
            clients: BTreeMap::new(),
            held: Vec::new(),
            close_status: status::OK,
            close_bytes: 8,
            close_hold: 0,
            open_hold: 0,
            closes: 0,
            notifications: 0,
            stops: 0,
            no_magic_once_stopped: 0,
            no_magic: AtomicU32::new(0),
            no_version: AtomicU32::new(0),
            slow_stop: 0,
        }
    }

    /// Executes an order and returns its number.
    fn obey(&mut self, verb: u16, argument: u32, vrings: &[VringRwLock]) -> io::Result<u32> {
        match verb {
            order::RELEASE => return self.release(argument, usize::MAX, vrings),
            order::RELEASE_ONE => return self.release(argument, 1, vrings),
            order::CLOSE_STATUS => self.close_status = argument,
            order::CLOSE_BYTES => self.close_bytes = argument.min(8),
            order::CLOSE_HOLD => self.close_hold = argument,
            order::CLOSES => return Ok(self.closes),
            order::NOTIFICATIONS => return Ok(self.notifications),
            order::HELD => {
                return Ok(self.held.iter().filter(|held| held.key == argument).count() as u32);
            }
            order::OPEN_HOLD => self.open_hold = argument,
            order::REPLACE => {
                self.config.instance = u64::from(argument).into();
                self.clients.clear();
                self.held.clear();
            }
            order::CLIENTS => return Ok(self.clients.len() as u32),
            order::REGIONS => return Ok(self.clients.values().sum()),
            order::STOPS => return Ok(self.stops),
            order::NO_MAGIC => self.no_magic_once_stopped = argument,
            order::NO_VERSION => self.no_version.store(argument, Ordering::Relaxed),
            order::SLOW_STOP => self.slow_stop = argument,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
        Ok(0)
    }

    /// Stops slowly, and uses the memory of its chains until then.
    fn stop_slowly(&mut self, queue: usize) -> io::Result<()> {
        let delay = std::mem::take(&mut self.slow_stop);
        if delay == 0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(delay.into()));
        let memory = self.memory.memory();
        for held in self.held.iter().filter(|held| held.queue == queue) {
            let mut writer = held
                .chain
                .clone()
                .writer(&memory)
                .map_err(io::Error::other)?;
            let bytes = vec![LATE; writer.available_bytes()];
            writer.write_all(&bytes)?;
        }
        Ok(())
    }

    fn release(&mut self, key: u32, mut limit: usize, vrings: &[VringRwLock]) -> io::Result<u32> {
        let all = std::mem::take(&mut self.held);
        let (released, held) = all.into_iter().partition(|held| {
            let chosen = limit > 0 && (key == 0 || held.key == key);
            limit -= usize::from(chosen);
            chosen
        });
        self.held = held;
        let released: Vec<Held> = released;
        for held in &released {
            self.finish(held, vrings)?;
        }
        Ok(released.len() as u32)
    }

    /// Writes the answer of a chain and returns it to the driver.
    fn finish(&self, held: &Held, vrings: &[VringRwLock]) -> io::Result<()> {
        let memory = self.memory.memory();
        let mut writer = held
            .chain
            .clone()
            .writer(&memory)
            .map_err(io::Error::other)?;
        let bytes = writer.available_bytes().min(held.answer.len());
        writer.write_all(&held.answer[..bytes])?;
        let vring = &vrings[held.queue];
        vring
            .add_used(held.chain.head_index(), held.used)
            .map_err(io::Error::other)?;
        if vring.needs_notification().map_err(io::Error::other)? {
            vring.signal_used_queue()?;
        }
        Ok(())
    }

    /// Answers a chain now, or when its key is released, if there is one.
    fn answer(&mut self, held: Held, vrings: &[VringRwLock]) -> io::Result<()> {
        if held.key == 0 {
            self.finish(&held, vrings)
        } else {
            self.held.push(held);
            Ok(())
        }
    }

    fn control(&mut self, chain: Chain, vrings: &[VringRwLock]) -> io::Result<()> {
        let request = readable(&chain, &self.memory.memory())?;
        let word = |at: usize| {
            request.get(at..at + 4).map_or(0, |bytes| {
                u32::from_le_bytes(bytes.try_into().unwrap_or_default())
            })
        };
        let (kind, client) = (word(0), word(4));
        let (mut code, mut value, mut used, mut key) = (status::OK, 0, 8, 0);
        match kind {
            control::OPEN if word(20) >> 16 == ORDER as u32 => {
                code = TOLD + self.obey(word(20) as u16, word(16), vrings)?;
            }
            control::OPEN => {
                value = self.next_client;
                self.next_client += 1;
                self.clients.insert(value, 0);
                key = self.open_hold;
            }
            control::CLOSE => {
                self.closes += 1;
                if self.clients.remove(&client).is_some() {
                    (code, used, key) = (self.close_status, self.close_bytes, self.close_hold);
                } else {
                    code = status::NO_CLIENT;
                }
            }
            control::REGISTER => {
                value = self.next_region;
                self.next_region += 1;
                *self.clients.entry(client).or_default() += 1;
            }
            control::UNREGISTER => {
                if let Some(regions) = self.clients.get_mut(&client) {
                    *regions = regions.saturating_sub(1);
                }
            }
            _ => code = status::UNKNOWN_REQUEST,
        }
        let answer = [U32::new(code), U32::new(value)].as_bytes().to_vec();
        let held = Held {
            queue: CONTROL_QUEUE,
            key,
            chain,
            answer,
            used,
        };
        self.answer(held, vrings)
    }

    fn command(&mut self, chain: Chain, vrings: &[VringRwLock]) -> io::Result<()> {
        let request = readable(&chain, &self.memory.memory())?;
        let Ok((header, stream)) = CommandHeader::read_from_prefix(&request) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let word = |at: usize| {
            stream.get(at..at + 4).map_or(0, |bytes| {
                u32::from_le_bytes(bytes.try_into().unwrap_or_default())
            })
        };
        let known = self.clients.contains_key(&header.client.get());
        let (code, written, out) = if known {
            let out = header.out_bytes.get() as usize;
            (status::OK, header.answer_bytes.get(), out)
        } else {
            (status::NO_CLIENT, 0, 0)
        };
        let mut answer = [U32::new(code), U32::new(written)].as_bytes().to_vec();
        answer.resize(8 + written as usize + out, 0);
        let (mut used, mut key) = (answer.len() as u32, 0);
        match word(0) {
            verb::HOLD if known => key = word(4),
            verb::USED if known => used = word(4),
            verb::INVERT if known => {
                let data = stream.get(header.stream_bytes.get() as usize..);
                let bytes = data.unwrap_or_default().iter().cycle();
                for (to, byte) in answer[8 + written as usize..].iter_mut().zip(bytes) {
                    *to = !byte;
                }
            }
            _ => {}
        }
        let held = Held {
            queue: COMMAND_QUEUE,
            key,
            chain,
            answer,
            used,
        };
        self.answer(held, vrings)
    }

    fn serve(&mut self, queue: usize, vrings: &[VringRwLock]) -> io::Result<()> {
        let vring = &vrings[queue];
        loop {
            vring.disable_notification().map_err(io::Error::other)?;
            loop {
                let memory = self.memory.memory();
                let next = vring
                    .get_mut()
                    .get_queue_mut()
                    .iter(memory)
                    .map_err(io::Error::other)?
                    .next();
                let Some(chain) = next else { break };
                match queue {
                    CONTROL_QUEUE => self.control(chain, vrings)?,
                    COMMAND_QUEUE => self.command(chain, vrings)?,
                    // There are no buffers for events.
                    _ => {}
                }
            }
            if !vring.enable_notification().map_err(io::Error::other)? {
                return Ok(());
            }
        }
    }
}

/// All data that the driver has written to a chain.
fn readable(chain: &Chain, memory: &Memory) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut reader = chain.clone().reader(memory).map_err(io::Error::other)?;
    reader.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl VhostUserBackendMut for Device {
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
    }

    fn set_event_idx(&mut self, _enabled: bool) {
        // The rings keep it.
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut config = self.config;
        if self.no_magic.load(Ordering::Relaxed) > 0 {
            self.no_magic.fetch_sub(1, Ordering::Relaxed);
            config.magic = 0.into();
        }
        if self.no_version.load(Ordering::Relaxed) > 0 {
            self.no_version.fetch_sub(1, Ordering::Relaxed);
            config.version = 0.into();
        }
        let rest = config.as_bytes().iter().skip(offset as usize);
        let mut bytes: Vec<u8> = rest.take(size as usize).copied().collect();
        bytes.resize(size as usize, 0);
        bytes
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn update_memory(&mut self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        self.memory = memory;
        Ok(())
    }

    fn stop_vring(&mut self, queue: u32) -> io::Result<()> {
        if queue as usize == CONTROL_QUEUE {
            self.stops += 1;
            let no_magic = std::mem::take(&mut self.no_magic_once_stopped);
            self.no_magic.store(no_magic, Ordering::Relaxed);
            println!("stopped, {} clients open", self.clients.len());
            // Orders for answers outlive a reset, so that a test can make the reset fail.
            self.clients.clear();
        }
        if queue as usize == COMMAND_QUEUE {
            self.stop_slowly(COMMAND_QUEUE)?;
        }
        self.held.retain(|held| held.queue != queue as usize);
        Ok(())
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn handle_event(
        &mut self,
        event: u16,
        _set: EventSet,
        vrings: &[VringRwLock],
        _thread: usize,
    ) -> io::Result<()> {
        let queue = usize::from(event);
        if queue >= NUM_QUEUES {
            return Ok(());
        }
        self.notifications += u32::from(queue == COMMAND_QUEUE);
        // An error would end the thread. The guest's test notices the missing answer.
        if let Err(error) = self.serve(queue, vrings) {
            println!("queue {queue}: {error}");
        }
        Ok(())
    }
}
