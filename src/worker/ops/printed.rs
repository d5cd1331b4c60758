// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What kernels print.

use gpgpu_protocol::{
    api::{Module, reply, request},
    codec::Blob,
};

use crate::worker::{
    dispatch::Outcome,
    grace,
    session::{Data, Session},
};

/// Takes what was printed.
pub fn gpgpuOutput(
    session: &Session,
    _: request::gpgpuOutput,
    _: Data,
) -> Outcome<reply::gpgpuOutput> {
    let ([output, error], more) = session.printed.take();
    Ok(reply::gpgpuOutput {
        output: Blob(output),
        error: Blob(error),
        more: more.into(),
    })
}

/// Whether a module or library may print. What may is looked for from then on.
pub fn gpgpuMayPrint(
    session: &Session,
    request: request::gpgpuMayPrint,
    _: Data,
) -> Outcome<reply::gpgpuMayPrint> {
    // A library's module prints if the library does.
    let module = session.objects.entry::<Module>(request.object);
    let library = module.map(|of| of.parent).filter(|parent| *parent != 0);
    grace::narrow(&[]);
    let prints = session
        .printing
        .may_print(library.unwrap_or(request.object));
    if prints {
        session.printed.expect();
    }
    Ok(reply::gpgpuMayPrint {
        prints: prints.into(),
        ..Default::default()
    })
}
