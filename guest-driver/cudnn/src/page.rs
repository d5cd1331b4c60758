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

`libcudnn.so.9`. [The rules for all libraries](../libraries.md#rules-for-all-libraries) apply. The host's copy must be
at least as new as the one with which the program was built. Programs check this: `cudnnGetVersion`,
`cudnnGetProperty` and `cudnnGetCudartVersion` return the host library's values. The host needs all files of the
package, because NVIDIA's library opens the others (`libcudnn_graph.so.9`, `libcudnn_ops.so.9` and so on) from its own
directory, and `libnvrtc`, for kernels that are compiled at run time.

The guest has only `libcudnn.so.9`. A program that is linked with it needs no other. A program that opens the others
from its own directory gets NVIDIA's own, which load and find the functions of libcuda that they need
(`cuTensorMapEncodeTiled` and others). No tested program has called them.

## Differences from NVIDIA's

- **Descriptors of the old API** are set by posts: the call that sets a wrong value returns the error as long as no
  value of the same form was accepted. Queries of a descriptor, and sizes of workspaces, ask the host once for each
  contents.
- **The backend.** Setting an attribute is a post once one of that name, type and number of elements was accepted for
  that type of descriptor. If the host's library refuses a later one, `cudnnBackendFinalize` returns the error.
  Finalizing always waits, and other threads go on meanwhile; a variant pack is handled entirely in the guest. An
  execution waits if the plan has not been executed with a pack of the same form, which includes the alignment of its
  addresses.
- **Values by address.** A tensor by value (`CUDNN_ATTR_TENSOR_IS_BY_VALUE`) in a plan is read when the plan is
  executed. If plan and pack differ in this, the execution returns `CUDNN_STATUS_BAD_PARAM`.
- **Texts of plans** (`CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION`). A process can make a plan from a text that it or
  another process of its VM has read from a plan, also from a file, as JAX's persistent cache does. The host seals each
  text by a member of its JSON object and refuses others with `CUDNN_STATUS_NOT_SUPPORTED`: the library would trust
  them. The host's key is a file beside the driver's cache of compiled code. Without that cache a text is for its own
  process.
- **Kept plans.** The host keeps the text of a plan whose build took 5 ms or more, such as those of attention on an H200
  (40 to 60 ms). All processes of the VM then get such a plan in 2 ms, if they describe the same graph in the same way.
  The plans are beside the driver's cache of compiled code, up to 4,096 for a VM; without that cache none is kept.
- **Refused attributes**, with `CUDNN_STATUS_NOT_SUPPORTED`: setting another one of type `CUDNN_TYPE_CHAR` (a kernel
  cache from a text), pointers outside variant packs, reading a handle, and a variant pack with other shapes than the
  graph's, more than 128 tensors by value, and more than 4 handles in a graph. A tensor by value needs a number, and a
  descriptor whose handle has ended cannot be finalized (`CUDNN_STATUS_BAD_PARAM`). A descriptor must be finalized before
  another one can refer to it
  (`CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED`), and must have the attribute's type
  (`CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE`): NVIDIA's library accepts other types, of which some crash the program.
  The known attributes for descriptors are those of version 9.28; others return `CUDNN_STATUS_NOT_SUPPORTED`.
- **`cudnnGetLastErrorString`** returns the function's name and its status. **`cudnnQueryRuntimeError`** always
  reports success: errors of kernels surface when the process synchronizes. **Callbacks** are stored and never called.
  The **version checks** succeed.
- **Not supported**: CUDA graphs of plans, the fused operations and the attention of the API before the backend,
  causal convolutions and operations of graph networks, `cudnnBackendInitialize`,
  `cudnnGetFoldedConvBackwardDataDescriptors`, `cudnnGetRNNDescriptor_v8` and `cudnnGetRNNDataDescriptor`.
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
