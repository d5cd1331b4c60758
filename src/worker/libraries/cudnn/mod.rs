// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuDNN: functions that need more than a row of its table.

mod backend;
mod descriptors;
mod plans;
mod texts;

use gpgpu_protocol::libraries::{
    Kind, SUCCESS,
    call::Value,
    cudnn::{MOST_DIMENSIONS, MOST_SEQUENCES, status},
};

pub use descriptors::Graphs;

use super::{ByHand, Call, Outcome};

/// The functions with a part in this file.
pub const BY_HAND: &[(&str, ByHand)] = &[
    ("cudnnGetVersion", version),
    ("cudnnGetMaxDeviceVersion", version),
    ("cudnnGetCudartVersion", version),
    ("cudnnSetRNNDataDescriptor", set_rnn_data),
    ("cudnnGetRNNWeightParams", weight_params),
    ("cudnnCTCLoss", ctc_loss),
    ("cudnnGetCTCLossWorkspaceSize", ctc_loss_workspace),
    ("cudnnBackendCreateDescriptor", backend::create),
    ("cudnnBackendDestroyDescriptor", backend::destroy),
    ("cudnnBackendSetAttribute", backend::set_attribute),
    ("cudnnBackendGetAttribute", backend::get_attribute),
    ("cudnnBackendFinalize", backend::finalize),
    ("cudnnBackendExecute", backend::execute),
    (
        "cudnnGetExecutionPlanWorkspaceSize",
        backend::workspace_size,
    ),
    // Arrays with one number for each dimension.
    ("cudnnSetTensorNdDescriptor", by_dimensions),
    ("cudnnSetTensorNdDescriptorEx", by_dimensions),
    ("cudnnSetFilterNdDescriptor", by_dimensions),
    ("cudnnSetConvolutionNdDescriptor", by_dimensions),
    ("cudnnSetPoolingNdDescriptor", by_dimensions),
    ("cudnnSetSpatialTransformerNdDescriptor", by_dimensions),
    ("cudnnSetTensorTransformDescriptor", by_dimensions),
];

impl Call<'_> {
    /// The bytes of an argument.
    fn bytes(&self, at: usize) -> &[u8] {
        match self.values.get(at) {
            Some(Value::Bytes(bytes, _)) => bytes,
            _ => &[],
        }
    }

    /// Returns an argument's bytes, if the caller wants them.
    fn answer(&mut self, at: usize, with: Vec<u8>) {
        if let Some(Value::Bytes(bytes, true)) = self.values.get_mut(at) {
            *bytes = with;
        }
    }

    /// Calls a function of cuDNN that takes no floating-point numbers.
    fn cudnn(&self, name: &'static str, words: &[u64]) -> u32 {
        const WORDS: &[Kind] = &[Kind::I64; 16];
        self.call_library(name, &WORDS[..words.len()], words)
    }

    /// A tensor's descriptor: its type, the number of its dimensions, their sizes and strides.
    fn tensor(&self, raw: u64) -> Result<[i32; 18], u32> {
        let mut said = [0_i32; 18];
        let to = (&raw mut said).cast::<i32>();
        let at = |at: usize| to.wrapping_add(at) as u64;
        let words = [raw, MOST_DIMENSIONS, at(0), at(1), at(2), at(10)];
        match self.cudnn("cudnnGetTensorNdDescriptor", &words) {
            // SAFETY: it is the array above, which lives.
            SUCCESS => Ok(unsafe { to.cast::<[i32; 18]>().read() }),
            status => Err(status),
        }
    }
}

/// A version as a number. The function returns no status.
fn version(call: &mut Call<'_>, _words: &[u64]) -> Outcome {
    let version = call.cudnn(call.function.operation.name, &[]);
    if version == status::NOT_SUPPORTED {
        // There is no library: no version has this number.
        return Ok(status::NOT_INITIALIZED);
    }
    call.answer(0, u64::from(version).to_le_bytes().to_vec());
    Ok(SUCCESS)
}

/// Checks the length of arrays with one number for each dimension, for which cuDNN has limited room.
fn by_dimensions(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let function = call.function;
    for kind in function.kinds {
        if let Kind::Array(_, count) | Kind::List(_, count) = kind
            && u64::from(words[usize::from(*count)] as u32) > MOST_DIMENSIONS
        {
            return Ok(status::NOT_SUPPORTED);
        }
    }
    Ok(call.call_library(function.operation.name, function.kinds, words))
}

/// The lengths belong to a batch, which may be long.
fn set_rnn_data(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let batch = words[4] as u32 as usize;
    if batch > MOST_SEQUENCES || call.bytes(6).len() != 4 * batch {
        return Ok(status::BAD_PARAM);
    }
    Ok(call.cudnn("cudnnSetRNNDataDescriptor", words))
}

/// Returns the places of a weight and a bias, and the library's settings of their descriptors, all in one call, because
/// programs query all weights of a network.
fn weight_params(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let [handle, rnn, layer, size, space, id, m, b, _] = *words else {
        return Ok(status::INTERNAL_ERROR);
    };
    let mut found = [0_u64; 2];
    let to = &raw mut found as u64;
    // A caller that wants only one of the two has no descriptor for the other. The library must then get no place for
    // its address.
    let place = |tensor, to| if tensor == 0 { 0 } else { to };
    let (weight, bias) = (place(m, to), place(b, to + 8));
    let all = [handle, rnn, layer, size, space, id, m, weight, b, bias];
    let status = call.cudnn("cudnnGetRNNWeightParams", &all);
    if status != SUCCESS {
        return Ok(status);
    }
    let mut reply: Vec<u8> = found.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (tensor, address) in [m, b].into_iter().zip(found) {
        // An entry without an address is empty, because a caller may want only one of the two.
        let said = match (tensor, address) {
            (0, _) | (_, 0) => [0; 18],
            _ => match call.tensor(tensor) {
                Ok(said) => said,
                Err(status) => return Ok(status),
            },
        };
        reply.extend(said.iter().flat_map(|value| value.to_le_bytes()));
    }
    call.answer(8, reply);
    Ok(SUCCESS)
}

/// The labels of a batch, their number for each sequence, and the length of each sequence.
struct Sequences {
    labels: Vec<i32>,
    label_lengths: Vec<i32>,
    input_lengths: Vec<i32>,
}

impl Sequences {
    /// Decodes the number of sequences, the numbers of labels, the lengths, and the labels. `None` for an invalid
    /// encoding.
    fn read(bytes: &[u8]) -> Option<Self> {
        let (values, rest) = bytes.as_chunks::<4>();
        let mut values = values.iter().map(|bytes| i32::from_le_bytes(*bytes));
        let batch = usize::try_from(values.next()?).ok()?;
        if batch > MOST_SEQUENCES || !rest.is_empty() || values.len() < 2 * batch {
            return None;
        }
        let label_lengths: Vec<i32> = values.by_ref().take(batch).collect();
        let input_lengths: Vec<i32> = values.by_ref().take(batch).collect();
        let labels: Vec<i32> = values.collect();
        let mut all = label_lengths.iter();
        let count = all.try_fold(0, |sum, length| Some(sum + u64::try_from(*length).ok()?));
        (count == Some(labels.len() as u64)).then_some(Self {
            labels,
            label_lengths,
            input_lengths,
        })
    }

    /// The sequences of a call, as many as its tensor of probabilities has: the library reads that many.
    fn of(call: &Call<'_>, at: usize, probabilities: u64) -> Result<Self, u32> {
        let all = Self::read(call.bytes(at)).ok_or(status::BAD_PARAM)?;
        let [_, dimensions, _, batch, ..] = call.tensor(probabilities)?;
        if dimensions < 2 || batch as usize != all.label_lengths.len() {
            return Err(status::BAD_PARAM);
        }
        Ok(all)
    }

    fn addresses(&self) -> [u64; 3] {
        [&self.labels, &self.label_lengths, &self.input_lengths].map(|of| of.as_ptr() as u64)
    }
}

fn ctc_loss(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let sequences = match Sequences::of(call, 3, words[1]) {
        Ok(sequences) => sequences,
        Err(status) => return Ok(status),
    };
    let all = [&words[..3], &sequences.addresses(), &words[4..]].concat();
    Ok(call.cudnn("cudnnCTCLoss", &all))
}

fn ctc_loss_workspace(call: &mut Call<'_>, words: &[u64]) -> Outcome {
    let sequences = match Sequences::of(call, 3, words[1]) {
        Ok(sequences) => sequences,
        Err(status) => return Ok(status),
    };
    let all = [&words[..3], &sequences.addresses(), &words[4..]].concat();
    Ok(call.cudnn("cudnnGetCTCLossWorkspaceSize", &all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_as_many_as_their_lengths_say() {
        let bytes = |values: &[i32]| -> Vec<u8> {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect()
        };
        let read = |values: &[i32]| Sequences::read(&bytes(values)).map(|of| of.labels);
        assert_eq!(read(&[2, 1, 2, 9, 9, 5, 6, 7]), Some(vec![5, 6, 7]));
        for wrong in [
            &[][..],
            &[-1],
            &[i32::MAX, 1],
            &[2, 1, 2, 9, 9, 5, 6],
            &[2, 1, 2, 9, 9, 5, 6, 7, 8],
            &[2, 4, -1, 9, 9, 5, 6, 7],
            &[2, 1],
        ] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
