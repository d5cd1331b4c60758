// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Output of kernels.

use gpgpu_protocol::{
    api::{Function, Kernel, Module, Object, reply, request},
    codec::Blob,
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    grace,
    ops::module::text,
    session::{Data, Session},
};

/// Takes printed text.
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

/// The module or library whose image has the kernels of this one: for a library's module, the library.
fn loaded(session: &Session, object: u64) -> u64 {
    let module = session.objects.entry::<Module>(object);
    let library = module.map(|of| of.parent).filter(|parent| *parent != 0);
    library.unwrap_or(object)
}

/// Answers, and from now on searches images for kernels that print.
fn answer(session: &Session, prints: bool) -> u32 {
    if prints {
        session.printed.expect();
    }
    prints.into()
}

/// Whether a module or library may print.
pub fn gpgpuMayPrint(
    session: &Session,
    request: request::gpgpuMayPrint,
    _: Data,
) -> Outcome<reply::gpgpuMayPrint> {
    let image = loaded(session, request.object);
    grace::narrow(&[]);
    Ok(reply::gpgpuMayPrint {
        prints: answer(session, session.printing.may_print(image)),
        ..Default::default()
    })
}

/// Whether a function, or a kernel of a library, may print.
pub fn gpgpuFunctionPrints(
    session: &Session,
    request: request::gpgpuFunctionPrints,
    _: Data,
) -> Outcome<reply::gpgpuFunctionPrints> {
    let mut name = std::ptr::null();
    // SAFETY: the driver's handles, which live while this command uses them; the name is copied before it ends.
    let (parent, name) = unsafe {
        let (parent, found) = match session.objects.entry::<Kernel>(request.func) {
            Some(kernel) => {
                let raw = Kernel::handle(kernel.raw);
                (kernel.parent, driver::cuKernelGetName(&mut name, raw))
            }
            None => {
                let function = session.objects.entry::<Function>(request.func);
                let function = function.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                let raw = Function::handle(function.raw);
                (function.parent, driver::cuFuncGetName(&mut name, raw))
            }
        };
        (parent, found.ok().map(|()| text(name)))
    };
    let image = loaded(session, parent);
    grace::narrow(&[]);
    let prints = match name {
        Some(name) => session.printing.kernel_may_print(image, name.as_bytes()),
        // An older driver does not report names.
        None => session.printing.may_print(image),
    };
    Ok(reply::gpgpuFunctionPrints {
        prints: answer(session, prints),
        ..Default::default()
    })
}
