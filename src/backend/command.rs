// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Chains on the command queue.

use gpgpu_protocol::layout::{
    CommandAnswer, CommandHeader, MAX_ANSWER_BYTES, MAX_DATA_BYTES, MAX_STREAM_BYTES, status,
};

use super::{
    chain::Chain,
    client::{Phase, is_large},
    queue::Answer,
    vm::Vm,
};

impl Vm {
    /// Sends a command to its client's worker, or queues it.
    pub(super) fn command(&mut self, chain: Chain) {
        if chain.writable.bytes() < size_of::<CommandAnswer>() as u64 {
            return self.complete(chain, Answer::None);
        }
        let header = match check(&chain) {
            Ok(header) => header,
            Err(status) => return self.refuse_command(chain, status),
        };
        let id = header.client.get();
        match self.clients.get_mut(&id) {
            None => self.refuse_command(chain, status::NO_CLIENT),
            Some(client) => match client.phase {
                Phase::Waiting { .. } | Phase::Starting { .. } => {
                    self.refuse_command(chain, status::NO_CLIENT)
                }
                Phase::Live => {
                    let large = is_large(&header);
                    client.push_command(chain, header);
                    if large {
                        self.ask_for_movers();
                    }
                    self.pump(id);
                }
                Phase::Ending | Phase::Dead => {
                    self.complete(chain, Answer::refusal(status::CLIENT_DEAD));
                }
            },
        }
    }

    fn refuse_command(&mut self, chain: Chain, status: u32) {
        if self.log.allow() {
            tracing::warn!("A command was refused with status {status}");
        }
        self.complete(chain, Answer::refusal(status));
    }
}

/// Reads a command's header once, and checks it against the limits and against the chain.
fn check(chain: &Chain) -> Result<CommandHeader, u32> {
    let header: CommandHeader = chain.read_object(0).map_err(super::chain::Error::status)?;
    let stream = u64::from(header.stream_bytes.get());
    let answer = u64::from(header.answer_bytes.get());
    let (in_bytes, out_bytes) = (header.in_bytes.get(), header.out_bytes.get());
    if chain.misshapen || stream == 0 {
        return Err(status::MALFORMED);
    }
    if stream > MAX_STREAM_BYTES as u64
        || answer > MAX_ANSWER_BYTES as u64
        || in_bytes > MAX_DATA_BYTES as u64
        || out_bytes > MAX_DATA_BYTES as u64
    {
        return Err(status::LIMIT);
    }
    // The sums cannot overflow, because every part is within its limit.
    let readable = size_of::<CommandHeader>() as u64 + stream + in_bytes;
    let writable = size_of::<CommandAnswer>() as u64 + answer + out_bytes;
    if chain.readable.bytes() < readable || chain.writable.bytes() < writable {
        return Err(status::MALFORMED);
    }
    Ok(header)
}
