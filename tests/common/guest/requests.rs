// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The requests of the guest driver, and their answers.

use std::ops::Range;

use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, CommandAnswer, CommandHeader, ControlHeader, EVENT_QUEUE,
        Event, Open, OpenAnswer, Register, RegisterAnswer, Run, Unregister, VERSION, control,
        status,
    },
};
use vm_memory::{Bytes, GuestAddress};
use zerocopy::IntoBytes;

use super::{Guest, Used};

impl Used {
    /// Status, answer and data of a command.
    pub fn split(&self, answer: u32) -> (u32, Vec<u8>, Vec<u8>) {
        let head: CommandAnswer = self.head();
        let len = head.answer_bytes.get() as usize;
        let data = self.bytes[8 + answer as usize..].to_vec();
        (head.status.get(), self.bytes[8..8 + len].to_vec(), data)
    }
}

impl Guest {
    /// Sends a control request of these bytes without waiting for its answer.
    pub fn post_control(&mut self, request: &[u8]) -> u16 {
        let at = self.alloc(request.len());
        self.memory.write_slice(request, GuestAddress(at)).unwrap();
        let answer = self.alloc(8);
        let (readable, writable) = ([(at, request.len() as u32)], [(answer, 8)]);
        let readable = if request.is_empty() {
            &[][..]
        } else {
            &readable[..]
        };
        let head = self.push_parts(CONTROL_QUEUE, readable, &writable);
        self.kick(CONTROL_QUEUE);
        head
    }

    /// Sends a control request, and waits for its answer.
    pub fn control(&mut self, request: &[u8]) -> Used {
        let head = self.post_control(request);
        self.wait(CONTROL_QUEUE, head)
    }

    /// An `OPEN` request like the driver's.
    pub fn open_request(version: u32, digest: u64) -> Open {
        let mut name = [0; 16];
        name[..4].copy_from_slice(b"test");
        Open {
            header: ControlHeader {
                kind: control::OPEN.into(),
                client: 0.into(),
            },
            version: version.into(),
            pid: 4711.into(),
            api_family: digest.into(),
            name,
        }
    }

    /// Sends an `OPEN`.
    pub fn post_open(&mut self) -> u16 {
        self.post_control(Self::open_request(VERSION, api::issued::FAMILY).as_bytes())
    }

    /// Opens a client.
    pub fn open(&mut self) -> u32 {
        let head = self.post_open();
        let answer: OpenAnswer = self.wait(CONTROL_QUEUE, head).head();
        assert_eq!(answer.status.get(), status::OK);
        assert_ne!(answer.client.get(), 0);
        answer.client.get()
    }

    /// A `CLOSE` request.
    pub fn close_request(client: u32) -> ControlHeader {
        ControlHeader {
            kind: control::CLOSE.into(),
            client: client.into(),
        }
    }

    /// Closes a client; returns the status.
    pub fn close(&mut self, client: u32) -> u32 {
        self.control(Self::close_request(client).as_bytes())
            .status()
    }

    /// A `REGISTER` request.
    pub fn register_request(
        client: u32,
        address: u64,
        length: u64,
        runs: &[(u64, u64)],
    ) -> Vec<u8> {
        let head = Register {
            header: ControlHeader {
                kind: control::REGISTER.into(),
                client: client.into(),
            },
            address: address.into(),
            length: length.into(),
            runs: (runs.len() as u32).into(),
            reserved: 0.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        for &(address, length) in runs {
            let run = Run {
                address: address.into(),
                length: length.into(),
            };
            bytes.extend_from_slice(run.as_bytes());
        }
        bytes
    }

    /// Registers memory; returns the region or a status.
    pub fn register(
        &mut self,
        client: u32,
        address: u64,
        length: u64,
        runs: &[(u64, u64)],
    ) -> Result<u32, u32> {
        let used = self.control(&Self::register_request(client, address, length, runs));
        let answer: RegisterAnswer = used.head();
        match answer.status.get() {
            status::OK => Ok(answer.region.get()),
            status => Err(status),
        }
    }

    /// An `UNREGISTER` request.
    pub fn unregister_request(client: u32, region: u32) -> Unregister {
        Unregister {
            header: ControlHeader {
                kind: control::UNREGISTER.into(),
                client: client.into(),
            },
            region: region.into(),
            reserved: 0.into(),
        }
    }

    /// Removes a registration; returns the status.
    pub fn unregister(&mut self, client: u32, region: u32) -> u32 {
        self.control(Self::unregister_request(client, region).as_bytes())
            .status()
    }

    /// A command's header.
    pub fn header(client: u32, stream: usize, answer: u32, input: u64, out: u64) -> CommandHeader {
        CommandHeader {
            client: client.into(),
            thread: 1.into(),
            stream_bytes: (stream as u32).into(),
            answer_bytes: answer.into(),
            in_bytes: input.into(),
            out_bytes: out.into(),
            data_offset: 0.into(),
        }
    }

    /// Sends a command without waiting for its answer. Data is split into pages, as by the driver.
    pub fn post(&mut self, client: u32, stream: &[u8], answer: u32, input: &[u8], out: u64) -> u16 {
        let header = Self::header(client, stream.len(), answer, input.len() as u64, out);
        const HEAD: usize = size_of::<CommandHeader>();
        let at = self.alloc(HEAD + stream.len());
        self.write_object(&header, at);
        self.memory
            .write_slice(stream, GuestAddress(at + HEAD as u64))
            .unwrap();
        let mut readable = vec![(at, (HEAD + stream.len()) as u32)];
        let data = self.alloc(input.len());
        self.memory.write_slice(input, GuestAddress(data)).unwrap();
        readable.extend(pages(data..data + input.len() as u64, self.indirect));
        let answer_at = self.alloc(8 + answer as usize);
        let mut writable = vec![(answer_at, 8 + answer)];
        let out_at = self.alloc(out as usize);
        writable.extend(pages(out_at..out_at + out, self.indirect));
        let head = self.push_parts(COMMAND_QUEUE, &readable, &writable);
        self.kick(COMMAND_QUEUE);
        head
    }

    /// Sends a command with this header and these sizes, which may be invalid.
    pub fn post_sizes(&mut self, header: &CommandHeader, readable: u32, writable: u32) -> u16 {
        let at = self.alloc(readable as usize);
        let answer = self.alloc(writable as usize);
        let bytes = &header.as_bytes()[..header.as_bytes().len().min(readable as usize)];
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
        let part = |at, len| if len > 0 { vec![(at, len)] } else { Vec::new() };
        let (readable, writable) = (part(at, readable), part(answer, writable));
        let head = self.push_parts(COMMAND_QUEUE, &readable, &writable);
        self.kick(COMMAND_QUEUE);
        head
    }

    /// Sends a command and waits for its answer; returns status, answer and data.
    pub fn command(
        &mut self,
        client: u32,
        stream: &[u8],
        answer: u32,
        input: &[u8],
        out: u64,
    ) -> (u32, Vec<u8>, Vec<u8>) {
        let head = self.post(client, stream, answer, input, out);
        let used = self.wait(COMMAND_QUEUE, head);
        used.split(answer)
    }

    /// Gives the device a buffer for an event.
    pub fn post_event_buffer(&mut self, bytes: u32) -> u16 {
        let at = self.alloc(bytes as usize);
        let head = self.push_parts(EVENT_QUEUE, &[], &[(at, bytes)]);
        self.kick(EVENT_QUEUE);
        head
    }

    /// Waits for an event.
    pub fn event(&mut self, head: u16) -> Event {
        let used = self.wait(EVENT_QUEUE, head);
        assert_eq!(used.len as usize, size_of::<Event>());
        used.head()
    }
}

/// A range, in one part or split into pages.
fn pages(range: Range<u64>, cut: bool) -> Vec<(u64, u32)> {
    let step = if cut { 4096 } else { usize::MAX };
    range
        .clone()
        .step_by(step)
        .map(|at| (at, (range.end - at).min(step as u64) as u32))
        .collect()
}
