// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Modules.

use std::{
    ffi::{CStr, CString, c_void},
    sync::Arc,
    time::Instant,
};

use gpgpu_protocol::{
    api::{Function, Module, Object, reply, request},
    cuda::*,
};

use super::{function, image::Jit, library::device};
use crate::cuda::driver;
use crate::worker::{
    charges::Owner,
    dispatch::{Failed, Outcome},
    grace::{self, Ending, Name, Ticket, Unload},
    images::{Image, Taken},
    objects::Entry,
    session::{Data, Session},
};

/// The first bytes of the structure by which a program's code refers to a fatbin.
const WRAPPER_MAGIC: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// A name for the driver, with a NUL at the end.
pub fn c_name(name: String) -> Result<CString, CUresult> {
    CString::new(name).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

/// A static string of the driver as text.
///
/// # Safety
///
/// The pointer is one that the driver returned for a name, or NULL.
pub unsafe fn text(name: *const std::ffi::c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the driver's names are NUL-terminated and live as long as their object.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// The data beside a command, or what was transferred for it before. The result must live until the command no longer
/// needs it, because the guest's bound includes it so long.
pub fn transferred<'a>(session: &'a Session, id: u64, data: Data) -> Result<Taken<'a>, CUresult> {
    match id {
        0 => Ok(Taken::beside(Image::new(data.copied(1)))),
        id => session.images.take(id),
    }
}

/// The image of a load. A command takes it when it may load: before, one that came beside the command needs no copy.
pub fn image<'a>(session: &'a Session, id: u64, data: Data) -> Result<Taken<'a>, CUresult> {
    let image = transferred(session, id, data)?;
    // The wrapper of a fatbin contains an address, which would be the guest's and is invalid here.
    if image.with_nul().starts_with(&WRAPPER_MAGIC) {
        return Err(CUDA_ERROR_INVALID_IMAGE);
    }
    // The driver is not told the length of a module or library, so it would read the worker's memory behind it.
    gpgpu_image::bounds::check(image.bytes()).map_err(|broken| {
        if crate::worker::may_log() {
            tracing::info!("Image refused: {broken}");
        }
        CUDA_ERROR_INVALID_IMAGE
    })?;
    Ok(image)
}

/// `cuModuleLoadDataEx`.
pub fn cuModuleLoadDataEx(
    session: &Session,
    request: request::cuModuleLoadDataEx,
    data: Data,
) -> Outcome<reply::cuModuleLoadDataEx> {
    let begun = session.objects.begin::<Module>(request.module)?;
    let began = Instant::now();
    grace::narrow(&session.used());
    let _loading = session.images.loading();
    let image = image(session, request.image, data)?;
    let mut jit = Jit::new(&request.options)?;
    let charge = super::image::reserve(session, device(session), &image)?;
    let (count, options, values) = jit.arrays();
    let mut module = Module::handle(0);
    // SAFETY: the image ends with a NUL or by its own headers; the arrays live across the call.
    let result = unsafe {
        driver::cuModuleLoadDataEx(
            &mut module,
            image.with_nul().as_ptr().cast::<c_void>(),
            count,
            options,
            values,
        )
    };
    let reply = reply::cuModuleLoadDataEx {
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
    session
        .charges
        .keep(Owner::Module(request.module), session.current(), charge);
    super::image::note_printing(session, request.module, &image);
    session.images.keep(Arc::clone(&image));
    if request.eager {
        load_now(&functions(module).unwrap_or_default());
    }
    begun.finish(Entry::new(Module::id(module), session.current()));
    Ok(reply)
}

/// `cuModuleUnload`.
pub fn cuModuleUnload(
    session: &Session,
    request: request::cuModuleUnload,
    _: Data,
) -> Outcome<reply::cuModuleUnload> {
    let entry = session.objects.end_with_children::<Module>(request.hmod)?;
    let [home, entered] = session.used();
    let used = [Name::Object(entry.context), home, entered];
    unload(session, request.hmod, &used, || {
        // SAFETY: the handle is the driver's, and the module is no longer in use.
        unsafe { driver::cuModuleUnload(Module::handle(entry.raw)) }
    })?;
    Ok(reply::cuModuleUnload::default())
}

/// Unloads a hidden module or library by `destroy`, once no other command uses it. The contexts in `used` do not end in
/// the meantime.
///
/// # Errors
///
/// Those of `destroy`; it then still exists.
pub fn unload(
    session: &Session,
    id: u64,
    used: &[Name],
    destroy: impl FnOnce() -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    session.device_memory.end_globals(id);
    let unload = Unload::begin();
    grace::narrow(used);
    unload.ticket().wait(Ending::Object(id));
    // Other commands may have looked up a global of it that was queried in the meantime.
    session.device_memory.end_globals(id);
    Ticket::now().wait(Ending::Object(id));
    let ended = destroy();
    match ended {
        Ok(()) => {
            session.device_memory.forget_globals(id);
            session.charges.forget(Owner::Module(id));
            session.printing.forget(id);
            session.charges.forget_library(id);
            session.objects.remove_with_children(id);
        }
        Err(_) => {
            session.device_memory.keep_globals(id);
            session.objects.keep_with_children(id);
        }
    }
    ended
}

/// The driver's module for an id.
pub fn module(session: &Session, id: u64) -> Result<CUmodule, CUresult> {
    let module = Module::handle(session.objects.raw::<Module>(id)?);
    if module.is_null() {
        Err(CUDA_ERROR_INVALID_HANDLE)
    } else {
        Ok(module)
    }
}

/// `cuModuleGetFunction`, with all properties of the function that a launch needs.
pub fn cuModuleGetFunction(
    session: &Session,
    request: request::cuModuleGetFunction,
    _: Data,
) -> Outcome<reply::cuModuleGetFunction> {
    let begun = session.objects.begin::<Function>(request.function)?;
    let name = c_name(request.name)?;
    let of = session.objects.entry::<Module>(request.hmod);
    let of = of.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let mut function = Function::handle(0);
    // SAFETY: the module is the driver's and lives; the pointers live across the call.
    unsafe {
        driver::cuModuleGetFunction(&mut function, module(session, request.hmod)?, name.as_ptr())?
    };
    let described = function::describe(function)?;
    let info = described.info();
    let entry = Entry {
        raw: Function::id(function),
        // That of the module: the current one may be another.
        context: of.context,
        parent: request.hmod,
        local: described.local(),
        params: Some(described.launched(None)),
    };
    begun.finish(entry);
    Ok(reply::cuModuleGetFunction {
        info,
        ..Default::default()
    })
}

/// `cuModuleGetGlobal`.
pub fn cuModuleGetGlobal_v2(
    session: &Session,
    request: request::cuModuleGetGlobal_v2,
    _: Data,
) -> Outcome<reply::cuModuleGetGlobal_v2> {
    let name = c_name(request.name)?;
    let (mut dptr, mut bytes) = (0, 0);
    // SAFETY: as above.
    unsafe {
        driver::cuModuleGetGlobal_v2(
            &mut dptr,
            &mut bytes,
            module(session, request.hmod)?,
            name.as_ptr(),
        )?
    };
    // A library's module ends with the library.
    let parent = session.objects.entry::<Module>(request.hmod);
    let owner = parent
        .map(|entry| entry.parent)
        .filter(|parent| *parent != 0);
    session.device_memory.note_global(
        owner.unwrap_or(request.hmod),
        session.current(),
        dptr,
        bytes as u64,
    );
    Ok(reply::cuModuleGetGlobal_v2 {
        dptr,
        bytes,
        ..Default::default()
    })
}

/// A module's functions.
fn functions(module: CUmodule) -> Result<Vec<CUfunction>, CUresult> {
    let mut count = 0;
    // SAFETY: the module is the driver's and lives; the array is as long as it is said to be.
    unsafe {
        driver::cuModuleGetFunctionCount(&mut count, module)?;
        let mut functions = vec![Function::handle(0); count as usize];
        driver::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module)?;
        Ok(functions)
    }
}

/// Loads functions that the driver would load at their first use. If one cannot be loaded, its use reports it.
pub fn load_now(functions: &[CUfunction]) {
    for function in functions {
        // SAFETY: the function is one that the driver just gave.
        let _ = unsafe { driver::cuFuncLoad(*function) };
    }
}

/// The maximum size of the names in an answer, if it has more than one.
const MOST_NAMES: usize = 48 << 10;

/// The names of objects, as many as fit into an answer.
///
/// # Errors
///
/// The driver's error code from `name`.
pub fn names_of<T>(
    objects: impl Iterator<Item = T>,
    name: impl Fn(T) -> Result<String, CUresult>,
) -> Result<Vec<String>, CUresult> {
    let (mut names, mut bytes) = (Vec::new(), 0);
    for object in objects {
        let name = name(object)?;
        // With its length, rounded up to a multiple of eight bytes.
        bytes += name.len() + 16;
        if bytes > MOST_NAMES && !names.is_empty() {
            break;
        }
        names.push(name);
    }
    Ok(names)
}

fn name_of(function: CUfunction) -> Result<String, CUresult> {
    let mut name = std::ptr::null();
    // SAFETY: the function is one that the driver just gave.
    unsafe {
        driver::cuFuncGetName(&mut name, function)?;
        Ok(text(name))
    }
}

/// The names of a module's functions.
pub fn gpgpuModuleFunctions(
    session: &Session,
    request: request::gpgpuModuleFunctions,
    _: Data,
) -> Outcome<reply::gpgpuModuleFunctions> {
    let functions = functions(module(session, request.hmod)?)?;
    let names = functions.into_iter().map(name_of);
    Ok(reply::gpgpuModuleFunctions {
        names: names.collect::<Result<_, _>>()?,
        ..Default::default()
    })
}

/// Some of them.
pub fn gpgpuModuleFunctionNames(
    session: &Session,
    request: request::gpgpuModuleFunctionNames,
    _: Data,
) -> Outcome<reply::gpgpuModuleFunctionNames> {
    let functions = functions(module(session, request.hmod)?)?;
    let rest = functions.into_iter().skip(request.first as usize);
    Ok(reply::gpgpuModuleFunctionNames {
        names: names_of(rest, name_of)?,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::ops::{library::cuLibraryLoadData, link::gpgpuLinkAdd};
    use gpgpu_protocol::api::{Library, object_id};

    /// An image that begins like the wrapper of a fatbin contains an address that the driver would follow. It never
    /// reaches the driver, however it was transferred.
    #[test]
    fn the_wrapper_of_a_fatbin_is_no_image() {
        let session = Session::new(None);
        let wrapper = [0x4662_43b1_u32, 1, 0x1000, 0, 0, 0].map(u32::to_le_bytes);
        let bytes = wrapper.as_flattened();
        // It comes beside the command, or was transferred before.
        for (id, data) in [(0, beside(bytes)), (7, Data::none())] {
            let arrive = || {
                let _ = session.images.take(7);
                let part = (0, bytes.len());
                let copy = |to: &mut [u8]| to.copy_from_slice(bytes);
                session.images.write(7, bytes.len() as u64, part, copy)
            };
            arrive().unwrap();
            let module = request::cuModuleLoadDataEx {
                module: object_id::<Module>(1),
                image: id,
                options: Vec::new(),
                eager: false,
                log: false,
            };
            let module = cuModuleLoadDataEx(&session, module, data)
                .map(drop)
                .map_err(|failed| failed.code);
            arrive().unwrap();
            let library = request::cuLibraryLoadData {
                library: object_id::<Library>(1),
                image: id,
                options: Vec::new(),
                eager: false,
                log: false,
            };
            let library = cuLibraryLoadData(&session, library, data)
                .map(drop)
                .map_err(|failed| failed.code);
            assert_eq!(module, Err(CUDA_ERROR_INVALID_IMAGE));
            assert_eq!(library, Err(CUDA_ERROR_INVALID_IMAGE));
        }
        // The fatbin itself is a valid image.
        let fatbin = [0xba55_ed50_u32, 0x0010_0001, 0, 0].map(u32::to_le_bytes);
        let data = beside(fatbin.as_flattened());
        let image = image(&session, 0, data).unwrap();
        assert_eq!(image.bytes(), fatbin.as_flattened());
    }

    fn beside(bytes: &[u8]) -> Data {
        Data {
            input: bytes.as_ptr().cast(),
            input_bytes: bytes.len(),
            ..Data::none()
        }
    }

    /// No load gives the driver an image whose headers lead out of it.
    #[test]
    fn an_image_that_leaves_itself_is_refused() {
        let session = Session::new(None);
        let long_fatbin = [0xba55_ed50_u32, 0x0010_0001, 1 << 20, 0].map(u32::to_le_bytes);
        let mut cubin = [0; 64];
        cubin[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(image(&session, 0, beside(&cubin)).is_ok());
        // A table of one section at the end of the image.
        (cubin[40], cubin[58], cubin[60]) = (64, 64, 1);
        for bytes in [long_fatbin.as_flattened(), &cubin, &cubin[..63]] {
            let module = request::cuModuleLoadDataEx {
                module: object_id::<Module>(1),
                image: 0,
                options: Vec::new(),
                eager: false,
                log: false,
            };
            let library = request::cuLibraryLoadData {
                library: object_id::<Library>(1),
                image: 0,
                options: Vec::new(),
                eager: false,
                log: false,
            };
            let link = request::gpgpuLinkAdd {
                link: 1,
                kind: CU_JIT_INPUT_CUBIN,
                image: 0,
                name: String::new(),
                options: Vec::new(),
                log: false,
            };
            let module = cuModuleLoadDataEx(&session, module, beside(bytes)).map_err(|of| of.code);
            let library = cuLibraryLoadData(&session, library, beside(bytes)).map_err(|of| of.code);
            let link = gpgpuLinkAdd(&session, link, beside(bytes)).map_err(|of| of.code);
            for result in [module.map(drop), library.map(drop), link.map(drop)] {
                assert_eq!(result, Err(CUDA_ERROR_INVALID_IMAGE));
            }
        }
    }
}
