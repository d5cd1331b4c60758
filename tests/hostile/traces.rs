// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Commands of a program that traces its work.

#![allow(non_snake_case)]

use gpgpu_protocol::api::request;

use super::{Attack, Place, Sent};
use crate::client::command;

impl Attack<'_> {
    /// A command for traces, or a launch that belongs to a traced call.
    pub fn traced(&mut self, place: &Place, hStream: u64) -> Sent {
        let context = place.context;
        match self.random.below(8) {
            0 => {
                let kinds = self.random.below(17) as u32;
                let version = true;
                Sent::new(&request::gpgpuTraceWork { kinds, version }, context)
            }
            1 => {
                let take = request::gpgpuTraceTake {
                    flush: self.random.below(2) as u32,
                    works: true,
                    names: true,
                    dropped: true,
                    more: true,
                };
                Sent::new(&take, context)
            }
            2 => Sent::new(&request::gpgpuTraceClock { now: true }, context),
            3 => {
                let numbers = request::gpgpuTraceNumbers {
                    hStream,
                    context: true,
                    stream: true,
                };
                Sent::new(&numbers, context)
            }
            _ => {
                let call = self.random.below(1 << 33) as u32;
                let launch = self.launch(place, hStream, 16);
                let call = command(&request::gpgpuTraceCall { call }, context);
                Sent {
                    bytes: [call, launch.bytes].concat(),
                    // The call's number; then, behind the launch's header, those of a launch.
                    words: Some(&[0, 3, 10, 11]),
                    ..launch
                }
            }
        }
    }
}
