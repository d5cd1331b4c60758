// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Green contexts that are made, split again and destroyed while their streams have work and other commands use them.

use gpgpu_protocol::api::{Context, MultiprocessorSplit, REMAINING, Stream, object_id, request};

use super::{Attack, Sent};

impl Attack<'_> {
    /// A command about a green context. The first place's context is the primary one.
    pub fn greened(&mut self) -> Sent {
        let known = self.greens.clone();
        let green = self.pick(&known).unwrap_or(0);
        let home = self.places[0].context;
        match self.random.below(12) {
            0 => {
                let dev = self.random.below(3) as i32 - 1;
                Sent::new(&request::gpgpuDeviceMultiprocessors { dev, all: true }, 0)
            }
            1 => {
                let ctx = self.pick(&[green, home]).unwrap_or(0);
                Sent::new(
                    &request::gpgpuContextMultiprocessors { ctx, all: true },
                    ctx,
                )
            }
            2 | 3 => {
                let split = self.split(green);
                let split = request::gpgpuMultiprocessorSplit {
                    dev: 0,
                    split,
                    groups: true,
                    remaining: true,
                };
                Sent::new(&split, 0)
            }
            4..7 if known.len() < 8 => {
                let made = object_id::<Context>(self.next_serial());
                self.greens.push(made);
                let split = self.split(green);
                let count = u64::from(split.groups > 0) + self.random.below(3);
                let groups = (0..count.min(u64::from(split.groups)))
                    .map(|_| match self.random.below(4) {
                        0 => REMAINING,
                        1 => self.random.next() as u32,
                        _ => self.random.below(3) as u32,
                    })
                    .collect();
                let make = request::gpgpuGreenCtxCreate {
                    green: made,
                    dev: 0,
                    split,
                    groups,
                    flags: 1,
                };
                Sent::new(&make, home)
            }
            4..10 => {
                let stream = object_id::<Stream>(self.next_serial());
                self.places[0].streams.push(stream);
                let make = request::gpgpuGreenCtxStreamCreate {
                    stream,
                    green,
                    flags: 1,
                    priority: self.random.next() as i32,
                };
                Sent::new(&make, home)
            }
            _ => {
                if let Some(at) = known.iter().position(|id| *id == green) {
                    self.gone.push(self.greens.swap_remove(at));
                }
                let end = request::gpgpuGreenCtxDestroy { green };
                Sent::new(&end, self.pick(&[home, green]).unwrap_or(0))
            }
        }
    }

    /// A split of the whole device, or of a green context's part.
    fn split(&mut self, green: u64) -> MultiprocessorSplit {
        let counts = [0, 1, 2, 3, u32::MAX];
        MultiprocessorSplit {
            green: self.pick(&[0, 0, 0, green]).unwrap_or(0),
            groups: self.pick(&counts).unwrap_or(0),
            minimum: self.random.below(6) as u32,
            flags: self.random.below(5) as u32,
        }
    }
}
