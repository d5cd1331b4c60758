// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions with arrays whose length is in a descriptor, or with values whose width is.

use std::ffi::{c_int, c_void};

use gpgpu_library::{
    Object, Status,
    forward::{self, Request, contents, settle},
    handle,
};
use gpgpu_protocol::libraries::{
    Function,
    cudnn::{MOST_DIMENSIONS, MOST_SEQUENCES, data_bytes, status},
};

use crate::{
    HANDLE,
    calls::free,
    enter, tensors,
    weights::{self, Question},
};

/// The functions that this file sends.
mod function {
    use gpgpu_protocol::libraries::{Function, Library::Cudnn};

    pub const SET_TENSOR: &Function = Cudnn.find("cudnnSetTensor");
    pub const TENSOR: &Function = Cudnn.find("cudnnGetTensorNdDescriptor");
    pub const RNN_DATA: &Function = Cudnn.find("cudnnSetRNNDataDescriptor");
    pub const WEIGHT: &Function = Cudnn.find("cudnnGetRNNWeightParams");
    pub const CTC_LOSS: &Function = Cudnn.find("cudnnCTCLoss");
    pub const CTC_WORKSPACE: &Function = Cudnn.find("cudnnGetCTCLossWorkspaceSize");
}

/// Values in the program's memory.
///
/// # Safety
///
/// The address has this number of values, if it is not NULL.
unsafe fn values<'a>(at: *const c_int, count: usize) -> Result<&'a [c_int], Status> {
    if at.is_null() {
        return Err(status::NULL_POINTER);
    }
    // SAFETY: promised by the caller.
    Ok(unsafe { std::slice::from_raw_parts(at, count) })
}

/// The first bytes at an address of the program, padded with zeros; `None` if it is NULL.
///
/// # Safety
///
/// The address has this number of bytes, if it is not NULL.
unsafe fn value<const N: usize>(at: *const c_void, bytes: usize) -> Option<[u8; N]> {
    let mut value = [0; N];
    if at.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping(at.cast(), value.as_mut_ptr(), bytes.min(N)) };
    Some(value)
}

fn address<const N: usize>(of: &Option<[u8; N]>) -> u64 {
    of.as_ref().map_or(0, |value| value.as_ptr() as u64)
}

fn bytes_of(values: &[&[c_int]]) -> Vec<u8> {
    let all = values.iter().copied().flatten();
    all.flat_map(|value| value.to_le_bytes()).collect()
}

/// `cudnnSetTensor`. The value is one element of the tensor.
///
/// # Safety
///
/// `valuePtr` is NULL or leads to an element.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudnnSetTensor(
    handle: Object,
    yDesc: Object,
    y: *mut c_void,
    valuePtr: *const c_void,
) -> Status {
    enter("cudnnSetTensor", || {
        let data = tensors::data(yDesc as u64).and_then(data_bytes);
        // SAFETY: promised by the caller.
        let value = unsafe { value::<16>(valuePtr, data.unwrap_or(4)) };
        let words = [handle as u64, yDesc as u64, y as u64, address(&value)];
        forward::send(function::SET_TENSOR, &words)
    })
}

/// `cudnnSetRNNDataDescriptor`.
///
/// # Safety
///
/// `seqLengthArray` has a length for each sequence of the batch, and `paddingFill` is NULL or leads to an element.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cudnnSetRNNDataDescriptor(
    rnnDataDesc: Object,
    dataType: c_int,
    layout: c_int,
    maxSeqLength: c_int,
    batchSize: c_int,
    vectorSize: c_int,
    seqLengthArray: *const c_int,
    paddingFill: *const c_void,
) -> Status {
    enter("cudnnSetRNNDataDescriptor", || {
        let batch = usize::try_from(batchSize).map_err(|_| status::BAD_PARAM)?;
        if batch > MOST_SEQUENCES {
            return Err(status::BAD_PARAM);
        }
        // SAFETY: promised by the caller.
        let lengths = unsafe { values(seqLengthArray, batch) }?;
        let width = data_bytes(dataType).ok_or(status::BAD_PARAM)?;
        // SAFETY: promised by the caller.
        let fill = unsafe { value::<8>(paddingFill, width) };
        let id = rnnDataDesc as u64;
        let sizes = [dataType, layout, maxSeqLength, batchSize, vectorSize];
        let [data, layout, longest, batch, size] = sizes.map(|of| of as u64);
        let words = [id, data, layout, longest, batch, size, 0, address(&fill)];
        let before = contents::of(id);
        // As for other functions that set a whole descriptor.
        contents::set(id, 0);
        let sent = Request {
            blob: &bytes_of(&[lengths]),
            ..Request::new(function::RNN_DATA, &words)
        }
        .send(free());
        if sent.is_err() {
            contents::set(id, before);
        }
        sent
    })
}

/// `cudnnGetRNNWeightParams`.
///
/// # Safety
///
/// `mAddr` and `bAddr` are NULL or the caller's to write to.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cudnnGetRNNWeightParams(
    handle: Object,
    rnnDesc: Object,
    pseudoLayer: i32,
    weightSpaceSize: usize,
    weightSpace: *const c_void,
    linLayerID: i32,
    mDesc: Object,
    mAddr: *mut *mut c_void,
    bDesc: Object,
    bAddr: *mut *mut c_void,
) -> Status {
    enter("cudnnGetRNNWeightParams", || {
        let descriptors = [mDesc, bDesc].map(|of| of as u64);
        let question = Question {
            handle: handle as u64,
            network: contents::of(rnnDesc as u64),
            layer: pseudoLayer,
            bytes: weightSpaceSize,
            id: linLayerID,
            wanted: descriptors.map(|of| of != 0),
        };
        let space = weightSpace as u64;
        let found = handle::with(HANDLE, handle, |_| {
            if let Some(known) = weights::known(&question, descriptors) {
                return known.tell(space, descriptors);
            }
            // PyTorch asks for only one of the two.
            let words = [
                handle as u64,
                rnnDesc as u64,
                pseudoLayer as u64,
                weightSpaceSize as u64,
                space,
                linLayerID as u64,
                descriptors[0],
                descriptors[1],
                1,
            ];
            let reply = Request::new(function::WEIGHT, &words).ask_for()?;
            let (found, said) = weights::read(&reply).ok_or(status::INTERNAL_ERROR)?;
            // Where there is no such parameter, cuDNN has emptied the descriptor, and the reply has zeros.
            for (descriptor, said) in descriptors.into_iter().zip(said) {
                if descriptor != 0 {
                    weights::note(descriptor, &said);
                }
            }
            if contents::are_known(rnnDesc as u64) {
                weights::learn(question, space, found, said);
            }
            Ok(found)
        })?;
        for (to, place) in [mAddr, bAddr].into_iter().zip(found) {
            if !to.is_null() {
                // SAFETY: promised by the caller.
                unsafe { to.write(place as *mut c_void) };
            }
        }
        Ok(())
    })
}

/// The number of sequences in a tensor of probabilities: the size of its second dimension.
fn batch_of(tensor: Object) -> Result<usize, Status> {
    let mut said = [0_i32; 18];
    let at = said.as_mut_ptr();
    let place = |of: usize| at.wrapping_add(of) as u64;
    let words = [
        tensor as u64,
        MOST_DIMENSIONS,
        place(0),
        place(1),
        place(2),
        place(10),
    ];
    forward::send(function::TENSOR, &words)?;
    // SAFETY: it is the array above, which was written through its address.
    let [_, dimensions, _, batch, ..] = unsafe { at.cast::<[i32; 18]>().read() };
    match usize::try_from(batch) {
        Ok(batch) if dimensions >= 2 && batch <= MOST_SEQUENCES => Ok(batch),
        _ => Err(status::BAD_PARAM),
    }
}

/// Encodes labels and lengths.
///
/// # Safety
///
/// There is a length for each sequence of the tensor, and the number of labels is the sum of the lengths.
unsafe fn sequences(
    tensor: Object,
    labels: *const c_int,
    label_lengths: *const c_int,
    input_lengths: *const c_int,
) -> Result<Vec<u8>, Status> {
    let batch = batch_of(tensor)?;
    // SAFETY: promised by the caller.
    let label_lengths = unsafe { values(label_lengths, batch) }?;
    // SAFETY: promised by the caller.
    let input_lengths = unsafe { values(input_lengths, batch) }?;
    let count = label_lengths.iter().try_fold(0_usize, |sum, length| {
        sum.checked_add(usize::try_from(*length).ok()?)
    });
    let count = count.filter(|count| *count <= 64 * MOST_SEQUENCES);
    // SAFETY: promised by the caller.
    let labels = unsafe { values(labels, count.ok_or(status::BAD_PARAM)?) }?;
    let head = [batch as c_int];
    Ok(bytes_of(&[&head, label_lengths, input_lengths, labels]))
}

fn ask(function: &'static Function, words: &[u64], blob: &[u8]) -> Result<(), Status> {
    handle::with(HANDLE, words[0] as Object, |known| {
        let _settled = settle(HANDLE, words[0], known)?;
        Request {
            blob,
            ..Request::new(function, words)
        }
        .ask()
    })
}

/// `cudnnCTCLoss`.
///
/// # Safety
///
/// The arrays on the host are as long as `probsDesc` and the lengths say.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cudnnCTCLoss(
    handle: Object,
    probsDesc: Object,
    probs: *const c_void,
    hostLabels: *const c_int,
    hostLabelLengths: *const c_int,
    hostInputLengths: *const c_int,
    costs: *mut c_void,
    gradientsDesc: Object,
    gradients: *mut c_void,
    algo: c_int,
    ctcLossDesc: Object,
    workspace: *mut c_void,
    workSpaceSizeInBytes: usize,
) -> Status {
    enter("cudnnCTCLoss", || {
        // SAFETY: promised by the caller.
        let all = unsafe { sequences(probsDesc, hostLabels, hostLabelLengths, hostInputLengths) }?;
        let words = [
            handle as u64,
            probsDesc as u64,
            probs as u64,
            0,
            costs as u64,
            gradientsDesc as u64,
            gradients as u64,
            algo as u64,
            ctcLossDesc as u64,
            workspace as u64,
            workSpaceSizeInBytes as u64,
        ];
        ask(function::CTC_LOSS, &words, &all)
    })
}

/// `cudnnGetCTCLossWorkspaceSize`.
///
/// # Safety
///
/// The arrays are as long as `probsDesc` and the lengths say, and `sizeInBytes` is the caller's to write to.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cudnnGetCTCLossWorkspaceSize(
    handle: Object,
    probsDesc: Object,
    gradientsDesc: Object,
    labels: *const c_int,
    labelLengths: *const c_int,
    inputLengths: *const c_int,
    algo: c_int,
    ctcLossDesc: Object,
    sizeInBytes: *mut usize,
) -> Status {
    enter("cudnnGetCTCLossWorkspaceSize", || {
        // SAFETY: promised by the caller.
        let all = unsafe { sequences(probsDesc, labels, labelLengths, inputLengths) }?;
        let words = [
            handle as u64,
            probsDesc as u64,
            gradientsDesc as u64,
            0,
            algo as u64,
            ctcLossDesc as u64,
            sizeInBytes as u64,
        ];
        ask(function::CTC_WORKSPACE, &words, &all)
    })
}
