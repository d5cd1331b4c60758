// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries and kernels.

use std::{
    ffi::{c_char, c_void},
    sync::Arc,
    time::Instant,
};

use gpgpu_protocol::{
    api::{Function, Kernel, Library, Module, Object, reply, request},
    cuda::*,
};

use super::{
    context::{in_some_context, where_it_is_loaded},
    function::{Described, attribute, params},
    image::{Jit, Needs},
    module::{c_name, image, names_of, text, unload},
};
use crate::cuda::driver;
use crate::worker::{
    dispatch::{Failed, Outcome},
    grace::{self, Name},
    objects::{Entry, Params},
    places::Places,
    session::{Data, Session},
};

fn library(session: &Session, id: u64) -> Result<CUlibrary, CUresult> {
    let library = Library::handle(session.objects.raw::<Library>(id)?);
    if library.is_null() {
        Err(CUDA_ERROR_INVALID_HANDLE)
    } else {
        Ok(library)
    }
}

/// The device of the current context, or the client's first device, by the driver's number.
pub fn device(session: &Session) -> CUdevice {
    let mut device = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    match unsafe { driver::cuCtxGetDevice(&mut device) } {
        Ok(()) => device,
        Err(_) => session.gpu(0).unwrap_or(0),
    }
}

/// `cuLibraryLoadData`.
pub fn cuLibraryLoadData(
    session: &Session,
    request: request::cuLibraryLoadData,
    data: Data,
) -> Outcome<reply::cuLibraryLoadData> {
    let begun = session.objects.begin::<Library>(request.library)?;
    let began = Instant::now();
    grace::narrow(&session.used());
    let _loading = session.images.loading();
    let image = image(session, request.image, data)?;
    let mut jit = Jit::new(&request.options)?;
    let needs = Needs::of(session, &image)?;
    let places = needs.map(|needs| Arc::new(Places::new(needs)));
    if let (Some(places), true) = (&places, session.current() != 0) {
        // The driver may load it there immediately.
        places.enter(session.device_memory, session.current())?;
    }
    let (count, options, values) = jit.arrays();
    let none: *mut *mut c_void = std::ptr::null_mut();
    let mut library = Library::handle(0);
    // SAFETY: the image ends with a NUL or by its own headers; the arrays live across the call. The driver copies
    // the image, for it is not told that the binary is preserved.
    let result = unsafe {
        let image = image.with_nul().as_ptr().cast::<c_void>();
        driver::cuLibraryLoadData(
            &mut library,
            image,
            options,
            values,
            count,
            none.cast(),
            none,
            0,
        )
    };
    let reply = reply::cuLibraryLoadData {
        log: jit.log(),
        ..Default::default()
    };
    if let Err(code) = result {
        return Err(Failed {
            code,
            reply: Some(reply),
        });
    }
    tracing::debug!("{:?} loaded in {:?}", *image, began.elapsed());
    if let Some(places) = places {
        session.charges.keep_library(request.library, places);
    }
    super::image::note_printing(session, request.library, &image);
    session.images.keep(Arc::clone(&image));
    if request.eager {
        load_now(library);
    }
    begun.finish(Entry::new(Library::id(library), 0));
    Ok(reply)
}

/// `cuLibraryUnload`.
pub fn cuLibraryUnload(
    session: &Session,
    request: request::cuLibraryUnload,
    _: Data,
) -> Outcome<reply::cuLibraryUnload> {
    let entry = session
        .objects
        .end_with_children::<Library>(request.library)?;
    // It may be loaded in any context.
    unload(session, request.library, &[Name::Contexts], || {
        // SAFETY: the handle is the driver's, and the library is no longer in use.
        unsafe { driver::cuLibraryUnload(Library::handle(entry.raw)) }
    })?;
    Ok(reply::cuLibraryUnload::default())
}

/// `cuLibraryGetKernel`, with all properties of the kernel that a launch needs. A program needs no context for this, but
/// the driver describes parameters only in one.
pub fn cuLibraryGetKernel(
    session: &Session,
    request: request::cuLibraryGetKernel,
    _: Data,
) -> Outcome<reply::cuLibraryGetKernel> {
    let places = session.charges.library(request.library);
    // The driver loads it there to answer queries about it.
    in_some_context(session, device(session), places.as_deref(), || {
        describe(session, request, places.clone())
    })
}

fn describe(
    session: &Session,
    request: request::cuLibraryGetKernel,
    places: Option<Arc<Places>>,
) -> Outcome<reply::cuLibraryGetKernel> {
    let begun = session.objects.begin::<Kernel>(request.kernel)?;
    let name = c_name(request.name)?;
    let mut kernel = Kernel::handle(0);
    // SAFETY: the library is the driver's and lives; the pointers live across the calls, here and below.
    unsafe {
        driver::cuLibraryGetKernel(
            &mut kernel,
            library(session, request.library)?,
            name.as_ptr(),
        )?
    };
    // SAFETY: as above.
    let params = params(|index, offset, size| unsafe {
        driver::cuKernelGetParamInfo(kernel, index, offset, size)
    })?;
    let dev = device(session);
    let attributes = (0..CU_FUNC_ATTRIBUTE_MAX)
        .map(|which| {
            attribute(|value| {
                // SAFETY: as above.
                unsafe { driver::cuKernelGetAttribute(value, which, kernel, dev) }
            })
        })
        .collect();
    let described = Described { params, attributes };
    let info = described.info();
    let entry = Entry {
        raw: Kernel::id(kernel),
        context: 0,
        parent: request.library,
        local: described.local(),
        params: Some(described.launched(places)),
    };
    begun.finish(entry);
    Ok(reply::cuLibraryGetKernel {
        info,
        ..Default::default()
    })
}

/// A function of the driver that looks up a library's variable by its name.
type LookUp =
    unsafe fn(*mut CUdeviceptr, *mut usize, CUlibrary, *const c_char) -> Result<(), CUresult>;

/// Looks up a variable: its address and size.
fn variable(
    session: &Session,
    id: u64,
    name: String,
    look_up: LookUp,
) -> Result<(CUdeviceptr, usize), CUresult> {
    let name = c_name(name)?;
    session.enter_library(id, session.current())?;
    let (mut dptr, mut bytes) = (0, 0);
    // SAFETY: the function is the driver's, and so is the library, which lives; the name ends with a NUL, and the
    // pointers are to values that live across the call.
    unsafe { look_up(&mut dptr, &mut bytes, library(session, id)?, name.as_ptr())? };
    let memory = &session.device_memory;
    memory.note_global(id, session.current(), dptr, bytes as u64);
    Ok((dptr, bytes))
}

/// `cuLibraryGetGlobal`.
pub fn cuLibraryGetGlobal(
    session: &Session,
    request: request::cuLibraryGetGlobal,
    _: Data,
) -> Outcome<reply::cuLibraryGetGlobal> {
    let request::cuLibraryGetGlobal { library, name, .. } = request;
    let (dptr, bytes) = variable(session, library, name, driver::cuLibraryGetGlobal)?;
    Ok(reply::cuLibraryGetGlobal {
        dptr,
        bytes,
        ..Default::default()
    })
}

/// `cuLibraryGetManaged`.
pub fn cuLibraryGetManaged(
    session: &Session,
    request: request::cuLibraryGetManaged,
    _: Data,
) -> Outcome<reply::cuLibraryGetManaged> {
    let request::cuLibraryGetManaged { library, name, .. } = request;
    let (dptr, bytes) = variable(session, library, name, driver::cuLibraryGetManaged)?;
    Ok(reply::cuLibraryGetManaged {
        dptr,
        bytes,
        ..Default::default()
    })
}

/// A library's kernels.
fn kernels(library: CUlibrary) -> Result<Vec<CUkernel>, CUresult> {
    let mut count = 0;
    // SAFETY: the library is the driver's and lives; the array is as long as it is said to be.
    unsafe {
        driver::cuLibraryGetKernelCount(&mut count, library)?;
        let mut kernels = vec![Kernel::handle(0); count as usize];
        driver::cuLibraryEnumerateKernels(kernels.as_mut_ptr(), count, library)?;
        Ok(kernels)
    }
}

/// Loads a library's kernels into the current context, if there is one.
fn load_now(library: CUlibrary) {
    let function = |kernel| {
        let mut function = Function::handle(0);
        // SAFETY: the kernel is one that the driver just gave; the pointer lives across the call.
        let found = unsafe { driver::cuKernelGetFunction(&mut function, kernel) };
        found.is_ok().then_some(function)
    };
    let functions: Vec<_> = kernels(library)
        .unwrap_or_default()
        .into_iter()
        .filter_map(function)
        .collect();
    super::module::load_now(&functions);
}

fn name_of(kernel: CUkernel) -> Result<String, CUresult> {
    let mut name = std::ptr::null();
    // SAFETY: the kernel is one that the driver just gave.
    unsafe {
        driver::cuKernelGetName(&mut name, kernel)?;
        Ok(text(name))
    }
}

/// The names of a library's kernels.
pub fn gpgpuLibraryKernels(
    session: &Session,
    request: request::gpgpuLibraryKernels,
    _: Data,
) -> Outcome<reply::gpgpuLibraryKernels> {
    let kernels = kernels(library(session, request.library)?)?;
    let names = kernels.into_iter().map(name_of);
    Ok(reply::gpgpuLibraryKernels {
        names: names.collect::<Result<_, _>>()?,
        ..Default::default()
    })
}

/// Some of them.
pub fn gpgpuLibraryKernelNames(
    session: &Session,
    request: request::gpgpuLibraryKernelNames,
    _: Data,
) -> Outcome<reply::gpgpuLibraryKernelNames> {
    let kernels = kernels(library(session, request.library)?)?;
    let rest = kernels.into_iter().skip(request.first as usize);
    Ok(reply::gpgpuLibraryKernelNames {
        names: names_of(rest, name_of)?,
        ..Default::default()
    })
}

/// `cuLibraryGetModule`: the library in the current context.
pub fn cuLibraryGetModule(
    session: &Session,
    request: request::cuLibraryGetModule,
    _: Data,
) -> Outcome<reply::cuLibraryGetModule> {
    let begun = session.objects.begin::<Module>(request.module)?;
    session.enter_library(request.library, session.current())?;
    let mut module = Module::handle(0);
    // SAFETY: as above.
    unsafe { driver::cuLibraryGetModule(&mut module, library(session, request.library)?)? };
    let entry = Entry {
        raw: Module::id(module),
        context: session.current(),
        parent: request.library,
        local: 0,
        params: None,
    };
    begun.finish(entry);
    Ok(reply::cuLibraryGetModule::default())
}

/// `cuKernelGetFunction`: the kernel in the current context.
pub fn cuKernelGetFunction(
    session: &Session,
    request: request::cuKernelGetFunction,
    _: Data,
) -> Outcome<reply::cuKernelGetFunction> {
    let begun = session.objects.begin::<Function>(request.function)?;
    let kernel = session
        .objects
        .entry::<Kernel>(request.kernel)
        .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    if let Some(places) = kernel.places() {
        places.enter(session.device_memory, session.current())?;
    }
    let mut function = Function::handle(0);
    // SAFETY: the kernel is the driver's and lives; the pointer lives across the call.
    unsafe { driver::cuKernelGetFunction(&mut function, Kernel::handle(kernel.raw))? };
    let entry = Entry {
        raw: Function::id(function),
        context: session.current(),
        parent: kernel.parent,
        local: kernel.local,
        params: Some(Arc::new(Params {
            list: kernel.params().to_vec(),
            // It belongs to this context.
            places: None,
        })),
    };
    begun.finish(entry);
    Ok(reply::cuKernelGetFunction::default())
}

/// `cuKernelGetAttribute`.
pub fn cuKernelGetAttribute(
    session: &Session,
    request: request::cuKernelGetAttribute,
    _: Data,
) -> Outcome<reply::cuKernelGetAttribute> {
    let kernel = Kernel::handle(session.objects.raw::<Kernel>(request.kernel)?);
    let dev = session.gpu(request.dev)?;
    let (mut value, mut to) = (0, std::ptr::null_mut());
    if request.pi {
        to = &raw mut value;
    }
    // SAFETY: the kernel is the driver's and lives; the pointer is to a value that lives across the call, or NULL.
    unsafe { driver::cuKernelGetAttribute(to, request.attrib, kernel, dev)? };
    Ok(reply::cuKernelGetAttribute {
        pi: value,
        ..Default::default()
    })
}

/// Calls `change` for a kernel and a device, by the driver's number. The driver may load the kernel's library for that.
fn change_kernel(
    session: &Session,
    id: u64,
    dev: i32,
    change: impl FnOnce(CUkernel, CUdevice) -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let kernel = Kernel::handle(session.objects.raw::<Kernel>(id)?);
    let dev = session.gpu(dev)?;
    let entry = session.objects.function(id)?;
    where_it_is_loaded(session, dev, entry.places(), || change(kernel, dev))
}

/// `cuKernelSetAttribute`.
pub fn cuKernelSetAttribute(
    session: &Session,
    request: request::cuKernelSetAttribute,
    _: Data,
) -> Outcome<reply::cuKernelSetAttribute> {
    // SAFETY: the kernel is the driver's and lives.
    let change = |kernel, dev| unsafe {
        driver::cuKernelSetAttribute(request.attrib, request.val, kernel, dev)
    };
    change_kernel(session, request.kernel, request.dev, change)?;
    Ok(reply::cuKernelSetAttribute::default())
}

/// `cuKernelSetCacheConfig`.
pub fn cuKernelSetCacheConfig(
    session: &Session,
    request: request::cuKernelSetCacheConfig,
    _: Data,
) -> Outcome<reply::cuKernelSetCacheConfig> {
    // SAFETY: the kernel is the driver's and lives.
    let change =
        |kernel, dev| unsafe { driver::cuKernelSetCacheConfig(kernel, request.config, dev) };
    change_kernel(session, request.kernel, request.dev, change)?;
    Ok(reply::cuKernelSetCacheConfig::default())
}
