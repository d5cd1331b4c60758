// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The requests of a guest's library to its worker, by the command queue or the ring, and the answers.
//!
//! Everything that can be decoded must be encoded as something that decodes to the same.
#![no_main]

use gpgpu_protocol::layout::StreamCommand;
use libfuzzer_sys::fuzz_target;
use vhost_device_gpgpu::worker::read_again;
use virtio_gpgpu_fuzz::input::Input;
use zerocopy::{FromBytes, IntoBytes};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let are_replies = input.u8() & 1 != 0;
    let stream = input.rest();
    let Ok(written) = read_again(stream, are_replies) else {
        return;
    };
    let mut rest = stream;
    for arguments in written {
        let (mut head, _) = StreamCommand::read_from_prefix(rest).expect("it was read before");
        rest = &rest[head.bytes.get() as usize..];
        head.bytes = ((size_of::<StreamCommand>() + arguments.len()) as u32).into();
        let again = read_again(&[head.as_bytes(), &arguments].concat(), are_replies);
        assert_eq!(again.as_deref(), Ok(&[arguments][..]));
    }
});
