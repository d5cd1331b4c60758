// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernel driver's device file (`guest-driver/kernel/uapi/linux/virtio_gpgpu.h`).

use std::{
    ffi::c_void,
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

use gpgpu_protocol::{
    api,
    layout::{MAGIC, VERSION, status},
};

use super::{Backing, DEVICE, Data, Failure, OpenError, Pinned, Submission, Transport, window};

#[repr(C)]
#[derive(Default)]
struct Info {
    magic: u32,
    version: u32,
    api_family: u64,
    max_clients: u32,
    max_stream_bytes: u32,
    max_answer_bytes: u32,
    max_runs: u32,
    max_data_bytes: u64,
    max_block_bytes: u64,
    max_segments: u32,
    copy_bytes: u32,
}

#[repr(C)]
#[derive(Default)]
struct Open {
    api_family: u64,
    version: u32,
    status: u32,
    client: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default)]
struct Submit {
    stream_ptr: u64,
    answer_ptr: u64,
    in_ptr: u64,
    out_ptr: u64,
    in_bytes: u64,
    out_bytes: u64,
    stream_bytes: u32,
    answer_bytes: u32,
    thread: u32,
    flags: u32,
    status: u32,
    reserved: u32,
    token: u64,
}

#[repr(C)]
#[derive(Default)]
struct Transfer {
    stream_ptr: u64,
    answer_ptr: u64,
    data_ptr: u64,
    data_bytes: u64,
    stream_bytes: u32,
    answer_bytes: u32,
    thread: u32,
    flags: u32,
    status: u32,
    reserved: u32,
    token: u64,
}

#[repr(C)]
#[derive(Default)]
struct Register {
    address: u64,
    length: u64,
    flags: u32,
    region: u32,
    status: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Default)]
struct Unregister {
    region: u32,
    status: u32,
}

const SUBMIT_NOWAIT: u32 = 1;
const TRANSFER_OUT: u32 = 1;
const REGISTER_READ_ONLY: u32 = 1;

const BASE: u32 = 0xe7;
const INFO: libc::Ioctl = libc::_IOR::<Info>(BASE, 0);
const OPEN: libc::Ioctl = libc::_IOWR::<Open>(BASE, 1);
const SUBMIT: libc::Ioctl = libc::_IOWR::<Submit>(BASE, 2);
const REGISTER: libc::Ioctl = libc::_IOWR::<Register>(BASE, 3);
const UNREGISTER: libc::Ioctl = libc::_IOWR::<Unregister>(BASE, 4);
const TRANSFER: libc::Ioctl = libc::_IOWR::<Transfer>(BASE, 5);

/// An open device file: a client of the device.
pub struct Device {
    file: File,
    block_bytes: usize,
    copy_bytes: usize,
}

impl Device {
    /// Opens the device file and makes this process a client.
    pub fn open() -> Result<Self, OpenError> {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(DEVICE);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => OpenError::NoDevice,
            _ => OpenError::Device(error),
        })?;
        let mut device = Self {
            file,
            block_bytes: 0,
            copy_bytes: 0,
        };
        let mut info = Info::default();
        device.ioctl(INFO, &mut info).map_err(OpenError::Refused)?;
        if (info.magic, info.version, info.api_family) != (MAGIC, VERSION, api::issued::FAMILY) {
            return Err(OpenError::Version);
        }
        device.block_bytes = info.max_block_bytes as usize;
        device.copy_bytes = info.copy_bytes as usize;
        let mut open = Open {
            api_family: api::issued::FAMILY,
            version: VERSION,
            ..Open::default()
        };
        device.ioctl(OPEN, &mut open).map_err(OpenError::Refused)?;
        check(open.status).map_err(OpenError::Refused)?;
        Ok(device)
    }

    /// Calls an ioctl. A signal does not end it: the driver resumes an interrupted submission by its token.
    fn ioctl<T>(&self, number: libc::Ioctl, argument: &mut T) -> Result<(), Failure> {
        loop {
            // SAFETY: `argument` is the structure of this ioctl, whose size its number holds, and
            // the buffers that a submission names are borrowed for longer than the call.
            let result =
                unsafe { libc::ioctl(self.file.as_raw_fd(), number, std::ptr::from_mut(argument)) };
            if result == 0 {
                return Ok(());
            }
            match Failure::last() {
                Failure::Os(libc::EINTR) => continue,
                failure => return Err(failure),
            }
        }
    }

    fn register(&self, address: u64, bytes: usize, flags: u32) -> Result<u32, Failure> {
        let mut register = Register {
            address,
            length: bytes as u64,
            flags,
            ..Register::default()
        };
        self.ioctl(REGISTER, &mut register)?;
        check(register.status)?;
        Ok(register.region)
    }
}

fn check(answered: u32) -> Result<(), Failure> {
    if answered == status::OK {
        Ok(())
    } else {
        Err(Failure::Status(answered))
    }
}

impl Transport for Device {
    fn submit(&self, submission: Submission<'_>) -> Result<usize, Failure> {
        let mut submit = Submit {
            stream_ptr: submission.stream.as_ptr() as u64,
            answer_ptr: submission.answer.as_mut_ptr() as u64,
            in_ptr: submission.input.as_ptr() as u64,
            out_ptr: submission.output.as_mut_ptr() as u64,
            in_bytes: submission.input.len() as u64,
            out_bytes: submission.output.len() as u64,
            stream_bytes: submission.stream.len() as u32,
            answer_bytes: submission.answer.len() as u32,
            thread: submission.thread,
            ..Submit::default()
        };
        self.ioctl(SUBMIT, &mut submit)?;
        check(submit.status)?;
        Ok(submit.answer_bytes as usize)
    }

    fn post(&self, thread: u32, stream: &[u8]) -> Result<(), Failure> {
        let mut submit = Submit {
            stream_ptr: stream.as_ptr() as u64,
            stream_bytes: stream.len() as u32,
            thread,
            flags: SUBMIT_NOWAIT,
            ..Submit::default()
        };
        self.ioctl(SUBMIT, &mut submit)
    }

    fn transfer(
        &self,
        thread: u32,
        stream: &[u8],
        data: Data<'_>,
        answer: &mut [u8],
    ) -> Result<usize, Failure> {
        // Data that the driver copies in one exchange needs no blocks.
        let data = match data {
            Data::In(input) if input.len() <= self.copy_bytes => {
                return self.submit(Submission {
                    thread,
                    stream,
                    input,
                    answer,
                    output: &mut [],
                });
            }
            Data::Out(output) if output.len() <= self.copy_bytes => {
                return self.submit(Submission {
                    thread,
                    stream,
                    input: &[],
                    answer,
                    output,
                });
            }
            longer => longer,
        };
        let (data_ptr, data_bytes, flags) = match data {
            Data::In(from) => (from.as_ptr() as u64, from.len(), 0),
            Data::Out(to) => (to.as_mut_ptr() as u64, to.len(), TRANSFER_OUT),
        };
        let mut transfer = Transfer {
            stream_ptr: stream.as_ptr() as u64,
            answer_ptr: answer.as_mut_ptr() as u64,
            data_ptr,
            data_bytes: data_bytes as u64,
            stream_bytes: stream.len() as u32,
            answer_bytes: answer.len() as u32,
            thread,
            flags,
            ..Transfer::default()
        };
        self.ioctl(TRANSFER, &mut transfer)?;
        check(transfer.status)?;
        Ok(transfer.answer_bytes as usize)
    }

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn is_on_this_machine(&self) -> bool {
        false
    }

    fn allocate(&self, bytes: usize) -> Result<Pinned, Failure> {
        let bytes = bytes
            .checked_next_multiple_of(4096)
            .ok_or(Failure::Os(libc::ENOMEM))?;
        let memory = window::map(bytes, None)?;
        // SAFETY: advice about a range that was just mapped. Huge pages make few runs; a child
        // of a fork must not share pages that the device writes.
        unsafe {
            libc::madvise(memory, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(memory, bytes, libc::MADV_DONTFORK);
        }
        match self.register(memory as u64, bytes, 0) {
            Ok(region) => Ok(Pinned {
                address: memory as u64,
                bytes,
                region,
                backing: Backing::Own,
            }),
            Err(failure) => {
                window::unmap(memory, bytes);
                Err(failure)
            }
        }
    }

    fn pin(&self, address: u64, bytes: usize, read_only: bool) -> Result<Pinned, Failure> {
        let region = self.register(
            address,
            bytes,
            if read_only { REGISTER_READ_ONLY } else { 0 },
        )?;
        Ok(Pinned {
            address,
            bytes,
            region,
            backing: Backing::Program,
        })
    }

    fn release(&self, pinned: Pinned) {
        let mut unregister = Unregister {
            region: pinned.region,
            status: 0,
        };
        // After a failure the pages stay pinned until the client ends, which costs only memory.
        let _ = self.ioctl(UNREGISTER, &mut unregister);
        if let Backing::Own = pinned.backing {
            window::unmap(pinned.address as *mut c_void, pinned.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = include_str!("../../../kernel/uapi/linux/virtio_gpgpu.h");

    /// The fields of a structure of the header with their offsets, and its size. No structure has padding.
    fn of_header(name: &str) -> (Vec<(&str, usize)>, usize) {
        let head = format!("\nstruct {name} {{\n");
        let (_, body) = HEADER.split_once(&head).unwrap();
        let (body, _) = body.split_once("};").unwrap();
        let mut fields = Vec::new();
        let mut end = 0;
        for line in body.lines() {
            let (ty, field) = line.trim().trim_end_matches(';').split_once(' ').unwrap();
            let bytes = match ty {
                "__u32" => 4,
                "__u64" => 8,
                other => panic!("{name}: {other}"),
            };
            assert_eq!(end % bytes, 0, "{name}.{field}");
            fields.push((field, end));
            end += bytes;
        }
        (fields, end)
    }

    macro_rules! same_layout {
        ($ty:ident, $name:literal: $($field:ident),*) => {
            let ours = [$((stringify!($field), std::mem::offset_of!($ty, $field))),*];
            assert_eq!(of_header($name), (ours.to_vec(), size_of::<$ty>()));
        };
    }

    #[test]
    fn structures_have_the_layouts_of_the_uapi_header() {
        same_layout!(Info, "gpgpu_info": magic, version, api_family, max_clients, max_stream_bytes, max_answer_bytes, max_runs, max_data_bytes, max_block_bytes, max_segments, copy_bytes);
        same_layout!(Open, "gpgpu_open": api_family, version, status, client, reserved);
        same_layout!(Submit, "gpgpu_submit": stream_ptr, answer_ptr, in_ptr, out_ptr, in_bytes, out_bytes, stream_bytes, answer_bytes, thread, flags, status, reserved, token);
        same_layout!(Transfer, "gpgpu_transfer": stream_ptr, answer_ptr, data_ptr, data_bytes, stream_bytes, answer_bytes, thread, flags, status, reserved, token);
        same_layout!(Register, "gpgpu_register": address, length, flags, region, status, reserved);
        same_layout!(Unregister, "gpgpu_unregister": region, status);
    }

    /// The number and the direction of an ioctl of the header.
    fn number_of_header(name: &str) -> (u32, bool) {
        let line = HEADER
            .lines()
            .find(|line| line.contains(&format!(" GPGPU_IOC_{name}\t")));
        let (macro_name, arguments) = line.unwrap().rsplit_once('(').unwrap();
        let number = arguments.split(", ").nth(1).unwrap();
        let number = u32::from_str_radix(number.trim_start_matches("0x"), 16).unwrap();
        (number, macro_name.ends_with("_IOWR"))
    }

    #[test]
    fn ioctls_have_the_numbers_of_the_uapi_header() {
        let ours = [
            ("INFO", INFO, size_of::<Info>()),
            ("OPEN", OPEN, size_of::<Open>()),
            ("SUBMIT", SUBMIT, size_of::<Submit>()),
            ("REGISTER", REGISTER, size_of::<Register>()),
            ("UNREGISTER", UNREGISTER, size_of::<Unregister>()),
            ("TRANSFER", TRANSFER, size_of::<Transfer>()),
        ];
        for (name, ours, bytes) in ours {
            let (number, writes) = number_of_header(name);
            let direction = if writes { 3 } else { 2 };
            let header = direction << 30 | (bytes as u32) << 16 | 0xe7 << 8 | number;
            assert_eq!(ours as u32, header, "{name}");
        }
    }
}
