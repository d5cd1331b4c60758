// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest: requests and data in its memory, and rings that may be invalid.

use super::*;

impl Rig {
    /// Writes bytes to the guest's heap for requests.
    pub(super) fn place(&mut self, bytes: &[u8]) -> u64 {
        let room = (bytes.len() as u64).next_multiple_of(64).max(256);
        if self.heap + room > HEAP.end {
            self.heap = HEAP.start;
        }
        let at = self.heap;
        self.heap += room;
        memory()
            .write_slice(bytes, GuestAddress(at))
            .expect("outside");
        at
    }

    pub(super) fn write<T: IntoBytes + Immutable>(&self, value: &T, at: u64) {
        let _ = memory().write_slice(value.as_bytes(), GuestAddress(at));
    }

    pub(super) fn write_descriptor(
        &self,
        at: u64,
        (address, len, flags): (u64, u32, u16),
        next: u16,
    ) {
        let rest = u64::from(len) | u64::from(flags) << 32 | u64::from(next) << 48;
        self.write(&[address, rest], at);
    }

    pub(super) fn publish(&self, queue: usize) {
        let base = queue as u64 * RING_BYTES;
        self.write(&self.avail[queue], base + AVAIL + 2);
    }

    /// Makes a chain available; `how` may break it.
    pub(super) fn chain(&mut self, queue: usize, parts: &[(u64, u32, u16)], how: u8) {
        let base = queue as u64 * RING_BYTES;
        let first = self.descriptor[queue];
        let indirect = how & 1 != 0;
        let table = if indirect { HEAP.end - 0x2000 } else { base };
        for (index, &(address, len, flags)) in parts.iter().enumerate() {
            let number = match indirect {
                true => index as u16,
                false => first.wrapping_add(index as u16) % QUEUE_SIZE,
            };
            let next = match (indirect, how & 2 != 0 && index + 1 == parts.len()) {
                // A loop.
                (true, true) => 0,
                (false, true) => first,
                _ => number.wrapping_add(1),
            };
            let more = index + 1 < parts.len() || how & 2 != 0;
            let flags = flags | if more { NEXT } else { 0 };
            let next = if indirect { next } else { next % QUEUE_SIZE };
            self.write_descriptor(table + u64::from(number) * 16, (address, len, flags), next);
        }
        let mut used = parts.len() as u16;
        if indirect {
            let len = parts.len() as u32 * 16;
            self.write_descriptor(base + u64::from(first) * 16, (table, len, INDIRECT), 0);
            used = 1;
        }
        self.descriptor[queue] = first.wrapping_add(used) % QUEUE_SIZE;
        let slot = u64::from(self.avail[queue] % QUEUE_SIZE);
        self.write(&first, base + AVAIL + 4 + slot * 2);
        self.avail[queue] = self.avail[queue].wrapping_add(1);
        self.publish(queue);
        if how & 4 == 0 {
            self.kick(queue);
        }
    }

    pub(super) fn request(&mut self, bytes: &[u8], how: u8) {
        let at = self.place(bytes);
        let answer = self.place(&[]);
        let short = u32::from(how >> 4);
        let parts = [
            (at, bytes.len() as u32 - short.min(bytes.len() as u32), 0),
            (answer, if how & 8 == 0 { 8 } else { short }, WRITE),
        ];
        self.chain(CONTROL_QUEUE, &parts, how);
    }

    pub(super) fn open(&mut self) {
        self.opened += 1;
        let open = Open {
            header: header(control::OPEN, 0),
            version: VERSION.into(),
            pid: 1.into(),
            api_family: api::issued::FAMILY.into(),
            name: *b"fuzz\0\0\0\0\0\0\0\0\0\0\0\0",
        };
        self.request(open.as_bytes(), 0);
    }

    pub(super) fn close(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        self.request(header(control::CLOSE, client).as_bytes(), 0);
    }

    pub(super) fn register(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let how = input.u8();
        let address = input.number() << 12;
        let count = usize::from(input.u8() % 16);
        let runs: Vec<Run> = (0..count)
            .map(|_| Run {
                address: (input.number() << 12).into(),
                length: (input.number() << 12).into(),
            })
            .collect();
        let length: u64 = match how & 1 {
            0 => runs
                .iter()
                .fold(0, |sum: u64, run| sum.wrapping_add(run.length.get())),
            _ => input.number() << 12,
        };
        let register = Register {
            header: header(control::REGISTER, client),
            address: address.into(),
            length: length.into(),
            runs: match how & 2 {
                0 => count as u32,
                _ => input.u32(),
            }
            .into(),
            reserved: 0.into(),
        };
        let bytes = [register.as_bytes(), runs.as_bytes()].concat();
        self.request(&bytes, how & !3);
    }

    pub(super) fn unregister(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let unregister = Unregister {
            header: header(control::UNREGISTER, client),
            region: u32::from(input.u8()).into(),
            reserved: 0.into(),
        };
        self.request(unregister.as_bytes(), 0);
    }

    pub(super) fn raw_request(&mut self, input: &mut Input<'_>) {
        let how = input.u8();
        let length = input.u8();
        let bytes = input.bytes(length.into());
        self.request(bytes, how);
    }

    pub(super) fn command(&mut self, input: &mut Input<'_>) {
        let client = self.client(input);
        let how = input.u8();
        let length = input.u8();
        let stream = input.bytes(length.into());
        let (answer, data_in, data_out) = (input.number(), input.number(), input.number());
        let offset = input.number();
        let head = CommandHeader {
            client: client.into(),
            thread: 1.into(),
            stream_bytes: match how & 8 {
                0 => stream.len() as u32,
                _ => input.u32(),
            }
            .into(),
            answer_bytes: (answer as u32).into(),
            in_bytes: data_in.into(),
            out_bytes: data_out.into(),
            data_offset: offset.into(),
        };
        let bytes = [head.as_bytes(), stream].concat();
        let mut parts = vec![(self.place(&bytes), bytes.len() as u32, 0)];
        data_parts(data_in, 0, &mut parts);
        // The answers of all commands overlap.
        parts.push((DATA, 8u32.saturating_add(answer.min(1 << 20) as u32), WRITE));
        data_parts(data_out, WRITE, &mut parts);
        if how & 16 != 0 {
            parts.pop();
        }
        if how & 32 != 0 {
            parts.reverse();
        }
        self.chain(COMMAND_QUEUE, &parts, how);
    }

    pub(super) fn raw_descriptor(&mut self, input: &mut Input<'_>) {
        let queue = usize::from(input.u8()) % NUM_QUEUES;
        let index = u64::from(input.u8());
        let address = match input.number() {
            page @ 0..=255 => page << 10,
            other => other,
        };
        let (len, flags, next) = (input.number() as u32, input.u8().into(), input.u8().into());
        let at = queue as u64 * RING_BYTES + index * 16;
        self.write_descriptor(at, (address, len, flags), next);
    }

    /// A client, usually an existing one.
    pub(super) fn client(&self, input: &mut Input<'_>) -> u32 {
        let choice = input.u8();
        let known = self.workers.keys().chain(&self.asked);
        match choice {
            255 => input.u32(),
            _ => known
                .copied()
                .nth(usize::from(choice))
                .unwrap_or(u32::from(choice)),
        }
    }
}

fn header(kind: u32, client: u32) -> ControlHeader {
    ControlHeader {
        kind: kind.into(),
        client: client.into(),
    }
}

/// A VMM reads the configuration space of a device whose VM may have some number of clients.
pub(super) fn read_config(input: &mut Input<'_>) {
    let config = Config::with_clients(input.number() as u32);
    assert!(config.max_clients.get() as usize <= MAX_CLIENTS);
    let (offset, size) = (input.number() as u32, u32::from(input.u16()));
    let part = config_bytes(&config, offset, size);
    assert_eq!(part.len(), size as usize);
    let past = CONFIG_SPACE_BYTES.saturating_sub(offset as usize);
    assert!(part.iter().skip(past).all(|&byte| byte == 0));
}

/// Descriptors for this amount of data, which reuse the same pages.
fn data_parts(bytes: u64, flags: u16, parts: &mut Vec<(u64, u32, u16)>) {
    let mut left = bytes;
    let mut number = 0;
    while left > 0 && number < 96 {
        let len = left.min(DATA_PART);
        parts.push((DATA + number % DATA_PARTS * DATA_PART, len as u32, flags));
        left -= len;
        number += 1;
    }
}
