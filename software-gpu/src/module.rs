// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Modules, libraries, and the kernels of both.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_FUNC_ATTRIBUTE_BINARY_VERSION, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA,
    CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_PTX,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_OUT_OF_MEMORY, CUdevice,
    CUfunction_attribute,
};

use crate::config::{Config, SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPTIN};
use crate::context::{self, Context};
use crate::driver;
use crate::exec::{LoadError, LoadedModule};
use crate::ffi::Result;
use crate::handle::Table;
use crate::image::Refused;
use crate::memory::Kind;
use crate::ptx::{self, Reference};
use crate::reference;

/// All modules.
pub static MODULES: Table<Module> = Table::new(0x30);
/// All functions: a kernel in one context each.
pub static FUNCTIONS: Table<Function> = Table::new(0xf0);
/// All libraries.
pub static LIBRARIES: Table<Library> = Table::new(0x1b);
/// All kernels of libraries.
pub static KERNELS: Table<Kernel> = Table::new(0x4e);

/// A module in a context.
pub struct Module {
    /// The handle.
    pub handle: u64,
    /// Its context, by id.
    pub context: u64,
    /// Its functions' handles, in the order of the text.
    pub functions: Vec<u64>,
    /// The library to which it belongs. Then only the library can unload it.
    pub library: Option<u64>,
    /// The executor's form.
    pub loaded: Arc<LoadedModule>,
    variables: Vec<u64>,
    /// The handles of its references that were requested, by name.
    references: Mutex<HashMap<String, u64>>,
}

/// The settings of `cuFuncSetAttribute`.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// The dynamic shared memory that a launch may request, in bytes, once set.
    pub dynamic_shared: Option<i32>,
    carveout: Option<i32>,
    cluster: [i32; 3],
    non_portable: i32,
    policy: i32,
}

/// A kernel in a context.
pub struct Function {
    /// The handle.
    pub handle: u64,
    /// Its context, by id.
    pub context: u64,
    /// The context's device.
    pub device: CUdevice,
    /// Its module's handle.
    pub module: u64,
    /// The name.
    pub name: CString,
    /// Shared with the [`Kernel`] from which it was made.
    pub attributes: Arc<Mutex<Attributes>>,
    /// The executor's form.
    pub loaded: Arc<LoadedModule>,
    index: usize,
}

/// A library: a module that appears in a context when it is first used there.
pub struct Library {
    /// The handle.
    pub handle: u64,
    /// Its kernels' handles, in the order of the text.
    pub kernels: Vec<u64>,
    image: Arc<ptx::Module>,
    modules: Mutex<HashMap<u64, Arc<Module>>>,
}

/// A kernel of a library.
pub struct Kernel {
    /// The handle.
    pub handle: u64,
    /// Its library's handle.
    pub library: u64,
    /// The name.
    pub name: CString,
    /// Of each device for which any were set or a function was made. Its functions there share them.
    attributes: Mutex<HashMap<CUdevice, Arc<Mutex<Attributes>>>>,
    image: Arc<ptx::Module>,
    index: usize,
}

fn c_name(kernel: &ptx::Kernel) -> CString {
    CString::new(kernel.name.as_str()).unwrap_or_default()
}

/// Places `image` in `context`. `symbols` are addresses for variables that the text declares `.extern`.
fn place(
    image: &Arc<ptx::Module>,
    context: &Context,
    symbols: &HashMap<String, u64>,
) -> std::result::Result<(LoadedModule, Vec<u64>), Refused> {
    let memory = &driver::get()
        .map_err(|code| Refused::new(code, "the driver is not initialised"))?
        .memory;
    let mut variables = Vec::new();
    let loaded = LoadedModule::new(image.clone(), |global| {
        if let Some(address) = symbols.get(&global.name).filter(|_| global.is_extern) {
            return Ok(*address);
        }
        if global.is_extern {
            let message = format!("unresolved external variable {}", global.name);
            return Err(Refused::new(CUDA_ERROR_INVALID_PTX, message));
        }
        let (size, owner) = (global.size.max(1) as u64, (context.id, context.device));
        let allocated = if global.is_managed {
            memory.allocate_variable(size, owner)
        } else {
            memory.allocate(size, Kind::Module, owner)
        };
        let allocation = allocated
            .map_err(|code| Refused::new(code, "no device memory for a module variable"))?;
        variables.push(allocation.start);
        Ok(allocation.start)
    });
    let undo = |variables: &[u64], refused: Refused| {
        drop_variables(variables);
        refused
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(LoadError::Allocate(refused)) => return Err(undo(&variables, refused)),
        Err(LoadError::Ptx(error)) => {
            let refused = Refused::new(CUDA_ERROR_INVALID_PTX, error.to_string());
            return Err(undo(&variables, refused));
        }
    };
    for (address, bytes) in loaded.initialisers() {
        let Some(pointer) = memory.host_pointer(*address, bytes.len() as u64, true) else {
            let refused = Refused::new(CUDA_ERROR_OUT_OF_MEMORY, "a variable has no memory");
            return Err(undo(&variables, refused));
        };
        // SAFETY: the range is inside a live allocation that no work can know of yet; `bytes` is ours.
        unsafe { pointer.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
    Ok((loaded, variables))
}

fn drop_variables(variables: &[u64]) {
    let Ok(driver) = driver::get() else { return };
    if variables.is_empty() {
        return;
    }
    // Launched work may use them to its end; a launch meanwhile is the caller's mistake, but must not harm this
    // process.
    context::wait_for_all();
    let gone: Vec<_> = variables
        .iter()
        .filter_map(|address| {
            driver.memory.remove(*address, |a| {
                matches!(a.kind, Kind::Module | Kind::ManagedModule)
            })
        })
        .collect();
    context::wait_for_all();
    for allocation in &gone {
        driver.memory.release(allocation);
    }
}

impl Module {
    /// Loads parsed PTX into a context.
    pub fn load(
        image: &Arc<ptx::Module>,
        context: &Context,
        symbols: &HashMap<String, u64>,
    ) -> std::result::Result<Arc<Self>, Refused> {
        Self::load_for(image, context, symbols, None)
    }

    fn load_for(
        image: &Arc<ptx::Module>,
        context: &Context,
        symbols: &HashMap<String, u64>,
        library: Option<(u64, &[u64])>,
    ) -> std::result::Result<Arc<Self>, Refused> {
        context.printed.put_out();
        let (loaded, variables) = place(image, context, symbols)?;
        let loaded = Arc::new(loaded);
        let module = MODULES.insert_with(|handle| {
            let functions = image.kernels.iter().enumerate().map(|(index, kernel)| {
                let kernel_handle = library.and_then(|(_, kernels)| kernels.get(index));
                let attributes = kernel_handle
                    .and_then(|k| KERNELS.get(*k))
                    .map(|k| k.settings(context.device))
                    .unwrap_or_default();
                let function = FUNCTIONS.insert_with(|function| Function {
                    handle: function,
                    context: context.id,
                    device: context.device,
                    module: handle,
                    name: c_name(kernel),
                    attributes,
                    loaded: loaded.clone(),
                    index,
                });
                function.handle
            });
            Self {
                handle,
                context: context.id,
                functions: functions.collect(),
                library: library.map(|(handle, _)| handle),
                loaded: loaded.clone(),
                variables,
                references: Mutex::default(),
            }
        });
        Ok(module)
    }

    /// Drops its resources. Launched work still runs to its end first, and so do the kernels that its kernels launch.
    pub fn unload(&self) {
        context::wait_for_context(self.context);
        MODULES.remove(self.handle);
        for function in &self.functions {
            FUNCTIONS.remove(*function);
        }
        drop_variables(&self.variables);
        for (_, reference) in self.references.lock().drain() {
            reference::remove(reference);
        }
        context::put_out(self.context);
    }

    /// The handle of a reference: the result of `make` for its address, at its first use.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn reference(
        &self,
        name: &str,
        kind: Reference,
        make: impl FnOnce(u64) -> u64,
    ) -> Result<u64> {
        let found = self.loaded.module().global(name);
        let (_, global) = found.ok_or(CUDA_ERROR_NOT_FOUND)?;
        if global.reference != Some(kind) {
            return Err(CUDA_ERROR_NOT_FOUND);
        }
        let (address, _) = self
            .loaded
            .global_address(name)
            .ok_or(CUDA_ERROR_NOT_FOUND)?;
        let mut references = self.references.lock();
        let handle = references.entry(name.to_owned());
        Ok(*handle.or_insert_with(|| make(address)))
    }

    /// The handle of the kernel called `name`.
    pub fn function(&self, name: &str) -> Result<u64> {
        position(self.loaded.module(), name).map(|index| self.functions[index])
    }

    /// Address and size of a variable of managed memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`.
    pub fn managed(&self, name: &str) -> Result<(u64, usize)> {
        let module = self.loaded.module();
        let is_managed = |global: &&ptx::Global| global.name == name && global.is_managed;
        module
            .globals
            .iter()
            .find(is_managed)
            .and_then(|_| self.loaded.global_address(name))
            .ok_or(CUDA_ERROR_NOT_FOUND)
    }

    /// Address and size of a variable. Its linkage does not matter: nvcc leaves `.visible` out where it compiles whole
    /// programs, and the host finds the variable all the same.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND`; `CUDA_ERROR_INVALID_VALUE` for a kernel's name or a reference's.
    pub fn global(&self, name: &str) -> Result<(u64, usize)> {
        let found = self.loaded.module().global(name);
        if found.is_some_and(|(_, global)| global.reference.is_some()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.loaded
            .global_address(name)
            .ok_or_else(|| match position(self.loaded.module(), name) {
                Ok(_) => CUDA_ERROR_INVALID_VALUE,
                Err(code) => code,
            })
    }
}

fn position(module: &ptx::Module, name: &str) -> Result<usize> {
    module
        .kernels
        .iter()
        .position(|k| k.name == name)
        .ok_or(CUDA_ERROR_NOT_FOUND)
}

impl Library {
    /// A library of parsed PTX.
    pub fn load(image: Arc<ptx::Module>) -> Arc<Self> {
        LIBRARIES.insert_with(|handle| {
            let kernels = image.kernels.iter().enumerate().map(|(index, kernel)| {
                let kernel = KERNELS.insert_with(|kernel_handle| Kernel {
                    handle: kernel_handle,
                    library: handle,
                    name: c_name(kernel),
                    attributes: Mutex::default(),
                    image: image.clone(),
                    index,
                });
                kernel.handle
            });
            Self {
                handle,
                kernels: kernels.collect(),
                image: image.clone(),
                modules: Mutex::default(),
            }
        })
    }

    /// The module that it is in `context`, placed there now if it was not.
    pub fn module(&self, context: &Context) -> Result<Arc<Module>> {
        let mut modules = self.modules.lock();
        if let Some(module) = modules.get(&context.id) {
            return Ok(module.clone());
        }
        let own = Some((self.handle, self.kernels.as_slice()));
        let module = Module::load_for(&self.image, context, &HashMap::new(), own)
            .map_err(|refused| refused.code)?;
        modules.insert(context.id, module.clone());
        Ok(module)
    }

    /// The handle of the kernel called `name`.
    pub fn kernel(&self, name: &str) -> Result<u64> {
        position(&self.image, name).map(|index| self.kernels[index])
    }

    /// Drops its resources, in all contexts.
    pub fn unload(&self) {
        LIBRARIES.remove(self.handle);
        for kernel in &self.kernels {
            KERNELS.remove(*kernel);
        }
        for (_, module) in self.modules.lock().drain() {
            module.unload();
        }
    }
}

/// Drops the modules and functions of a destroyed context.
pub fn forget_context(context: u64) {
    MODULES.remove_where(|m| m.context == context);
    FUNCTIONS.remove_where(|f| f.context == context);
    for library in LIBRARIES.all() {
        library.modules.lock().remove(&context);
    }
}

impl Kernel {
    /// The function that it is in `context`.
    pub fn function(&self, context: &Context) -> Result<Arc<Function>> {
        let library = LIBRARIES
            .get(self.library)
            .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        let module = library.module(context)?;
        FUNCTIONS
            .get(module.functions[self.index])
            .ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The text's description of it.
    pub fn info(&self) -> &ptx::Kernel {
        &self.image.kernels[self.index]
    }

    /// The attributes on a device.
    fn settings(&self, device: CUdevice) -> Arc<Mutex<Attributes>> {
        self.attributes.lock().entry(device).or_default().clone()
    }

    /// `cuKernelGetAttribute`.
    pub fn attribute(&self, attribute: CUfunction_attribute, device: CUdevice) -> Result<i32> {
        let settings = self.settings(device);
        let settings = settings.lock();
        get_attribute(&self.image, self.info(), &settings, attribute)
    }

    /// `cuKernelSetAttribute`.
    pub fn set_attribute(
        &self,
        attribute: CUfunction_attribute,
        value: i32,
        device: CUdevice,
    ) -> Result {
        let settings = self.settings(device);
        set_attribute(self.info(), &mut settings.lock(), attribute, value)
    }
}

impl Function {
    /// The function that `handle` names in `context`; a [`Kernel`]'s handle will do, as in CUDA.
    pub fn named(handle: u64, context: &Context) -> Result<Arc<Self>> {
        if let Some(kernel) = KERNELS.get(handle) {
            return kernel.function(context);
        }
        FUNCTIONS.get(handle).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The text's description of it.
    pub fn info(&self) -> &ptx::Kernel {
        &self.loaded.module().kernels[self.index]
    }

    /// A copy of the settings.
    pub fn settings(&self) -> Attributes {
        self.attributes.lock().clone()
    }

    /// `cuFuncGetAttribute`.
    pub fn attribute(&self, attribute: CUfunction_attribute) -> Result<i32> {
        let settings = self.attributes.lock();
        get_attribute(self.loaded.module(), self.info(), &settings, attribute)
    }

    /// `cuFuncSetAttribute`.
    pub fn set_attribute(&self, attribute: CUfunction_attribute, value: i32) -> Result {
        set_attribute(self.info(), &mut self.attributes.lock(), attribute, value)
    }

    /// The dynamic shared memory that a launch may request, in bytes.
    pub fn most_dynamic_shared(&self) -> usize {
        let set = self.settings().dynamic_shared;
        most_dynamic_shared(self.info(), set)
    }

    /// The cluster that the text or an attribute asks for, or `None`.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        let set = self.settings().cluster;
        self.info()
            .required_cluster
            .or_else(|| set.iter().all(|d| *d > 0).then(|| set.map(|d| d as u32)))
    }
}

fn most_dynamic_shared(info: &ptx::Kernel, set: Option<i32>) -> usize {
    match set {
        Some(bytes) => bytes as usize,
        None => SHARED_PER_BLOCK.saturating_sub(info.static_shared_bytes),
    }
}

fn get_attribute(
    module: &ptx::Module,
    info: &ptx::Kernel,
    set: &Attributes,
    attribute: CUfunction_attribute,
) -> Result<i32> {
    let required = info.required_cluster.map(|c| c.map(|d| d as i32));
    let cluster = required.unwrap_or(set.cluster);
    let value = match attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => info.max_threads as i32,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => info.static_shared_bytes as i32,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES => info.const_bytes as i32,
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => info.local_bytes as i32,
        CU_FUNC_ATTRIBUTE_NUM_REGS => info.registers as i32,
        CU_FUNC_ATTRIBUTE_PTX_VERSION => module.target as i32,
        CU_FUNC_ATTRIBUTE_BINARY_VERSION => Config::get().capability as i32,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            most_dynamic_shared(info, set.dynamic_shared) as i32
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => set.carveout.unwrap_or(-1),
        CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => 0,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => cluster[0],
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => cluster[1],
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => cluster[2],
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => set.non_portable,
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => set.policy,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(value)
}

fn set_attribute(
    info: &ptx::Kernel,
    set: &mut Attributes,
    attribute: CUfunction_attribute,
    value: i32,
) -> Result {
    let within = |range: std::ops::RangeInclusive<i32>| {
        range
            .contains(&value)
            .then_some(value)
            .ok_or(CUDA_ERROR_INVALID_VALUE)
    };
    match attribute {
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = SHARED_PER_BLOCK_OPTIN.saturating_sub(info.static_shared_bytes);
            set.dynamic_shared = Some(within(0..=most as i32)?);
        }
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            set.carveout = Some(within(-1..=100)?);
        }
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH
            if info.required_cluster.is_none() =>
        {
            let axis = (attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) as usize;
            set.cluster[axis] = within(0..=i32::MAX)?;
        }
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => set.non_portable = within(0..=1)?,
        CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => set.policy = within(0..=2)?,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}
