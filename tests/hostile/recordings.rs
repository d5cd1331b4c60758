// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of cuBLAS that the host records with a workspace that the client chooses.

use gpgpu_protocol::{
    api::{GraphPart, object_id, request},
    codec::Blob,
    layout::status as device,
    libraries::call::PointerMode,
};

use crate::{
    client::{Client, command},
    libraries::{BYTES, beside, check_product, create, find, product, start, written},
    vmm,
};

/// After a call with a workspace that the library refuses, or that does not belong to the client, the handle's stream
/// is the same as before.
#[test]
fn pitfall_81_a_workspace_ends_with_the_call_that_it_is_for() {
    let Some(host) = start("") else { return };
    beside(&host, || {
        let mut guest = host.boot(0, vmm());
        let mut client = Client::open(&mut guest);
        let context = client.context();
        let at = [(); 3].map(|()| client.alloc(BYTES, context));
        let handle = create(&mut client, 1, context);
        let gemm = find("cublasSgemm_v2");
        let arguments = written(gemm, &product(handle, at), PointerMode::Host).unwrap();
        for (serial, (workspace, bytes)) in [
            (at[0] + 1, 4096),
            (257, 1),
            (256, 0),
            (at[0], u64::MAX),
            (u64::MAX, u64::MAX),
        ]
        .into_iter()
        .enumerate()
        {
            let request = request::gpgpuGraphRecordWith {
                part: object_id::<GraphPart>(serial as u64 + 1),
                op: gemm.operation.op.into(),
                arguments: Blob(arguments.clone()),
                workspace,
                bytes,
                result: true,
                reply: true,
                ended: true,
                commands: true,
                memory: true,
            };
            let (said, ..) = client.raw(&command(&request, context), 4096, &[], 0);
            assert_eq!(said, device::OK, "{workspace:#x}");
            check_product(&mut client, handle, at, context, serial as u64);
        }
        client.close();
    });
}
