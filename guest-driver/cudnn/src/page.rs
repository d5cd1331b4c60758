// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cudnn.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    backend {
        cudnnBackendCreateDescriptor cudnnBackendDestroyDescriptor cudnnBackendSetAttribute
        cudnnBackendFinalize cudnnBackendGetAttribute cudnnBackendExecute
        cudnnGetExecutionPlanWorkspaceSize
    }
    sequences {
        cudnnSetTensor cudnnSetRNNDataDescriptor cudnnGetRNNWeightParams cudnnCTCLoss
        cudnnGetCTCLossWorkspaceSize
    }
    words {
        cudnnGetErrorString cudnnGetLastErrorString cudnnGetVersion cudnnGetMaxDeviceVersion
        cudnnGetCudartVersion cudnnGetProperty cudnnGraphVersionCheck cudnnOpsVersionCheck
        cudnnCnnVersionCheck cudnnAdvVersionCheck cudnnSubquadraticOpsVersionCheck
        cudnnQueryRuntimeError cudnnSetCallback cudnnGetCallback cudnnSetStream cudnnGetStream
    }
}

const TEXT: &str = "\
# cuDNN

`libcudnn.so.9`. [What holds for all libraries](../libraries.md) holds here too. The host's copy must be at least as new as the one that the program was built with, which programs \
check: `cudnnGetVersion`, `cudnnGetProperty` and `cudnnGetCudartVersion` say what the host's says. It needs all of the package's files, as NVIDIA's library opens the others (`libcudnn_graph.so.9`, \
`libcudnn_ops.so.9` and so on) from its own folder, and `libnvrtc`, for the kernels that are compiled when they are needed.

In the guest there is `libcudnn.so.9` alone. A program that is linked against it needs none of the others; one that opens those from its own folder gets NVIDIA's own, which are loaded and find the functions of libcuda that they ask for (`cuTensorMapEncodeTiled` and the like). No program that was run has called them.

## What differs from NVIDIA's

- **Descriptors of the old API** are set by posts: a wrong value is told by the call that sets it as long as none of the same form was accepted. What is asked about a descriptor, and sizes of workspaces, are asked of the host once for each contents.
- **The backend.** An attribute is set by a post once one of that name, type and number of elements was accepted for that type of descriptors. If the host's library refuses a later one, `cudnnBackendFinalize` says so. Finalising \
always waits, and other threads go on meanwhile; of a variant pack it is done in the guest, as all else of it. An execution waits if the plan has not been executed with a pack like this one, of which the addresses' alignment counts.
- **Values by address.** A tensor that is by value (`CUDNN_ATTR_TENSOR_IS_BY_VALUE`) in a plan is read when the plan is executed. An execution whose pack has it otherwise than the plan is `CUDNN_STATUS_BAD_PARAM`.
- **Attributes that are refused** with `CUDNN_STATUS_NOT_SUPPORTED`: those of type `CUDNN_TYPE_CHAR` when they are set (plans and kernel caches from a text; to get one as text works), pointers outside of variant packs, handles when they are \
asked for, and other shapes than the graph's in a variant pack. A descriptor must be finalised before another one can have it (`CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED`), and of the attribute's type (`CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE`): NVIDIA's takes others, of which some end the program. \
Attributes that take descriptors are those of version 9.28; others are `CUDNN_STATUS_NOT_SUPPORTED`.
- **`cudnnGetLastErrorString`** has the function's name and its status. **`cudnnQueryRuntimeError`** always says success: errors of kernels surface where the process synchronises. **Callbacks** are kept and never called. \
The **version checks** succeed.
- **`cudnnGetVersion`** and its like connect the process to the device, as `cuInit` does.
- **Not supported**: CUDA graphs of plans, the fused operations and the attention of before the backend, causal convolutions and operations of graph networks, `cudnnBackendInitialize`, `cudnnGetFoldedConvBackwardDataDescriptors`, `cudnnGetRNNDescriptor_v8` and \
`cudnnGetRNNDataDescriptor`.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cudnn", "cudnn"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
