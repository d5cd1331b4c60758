//! A module placed in device memory and decoded for the executor.

use std::sync::Arc;

use super::LoadError;
use crate::ptx;

/// A module whose variables have addresses and whose kernels are decoded.
pub struct LoadedModule {
    module: Arc<ptx::Module>,
    addresses: Vec<u64>,
    initialisers: Vec<(u64, Vec<u8>)>,
}

impl LoadedModule {
    /// Places every variable of `module` through `allocate`, which gives a device address aligned to [`ptx::Global::align`]
    /// (for [`ptx::Global::is_extern`] ones the address of another module's variable), and decodes every kernel. The
    /// caller writes [`Self::initialisers`] to device memory before the first launch.
    ///
    /// # Errors
    /// [`LoadError::Ptx`] names the line of an instruction, modifier or operand that is not known.
    pub fn new<E>(
        module: Arc<ptx::Module>,
        mut allocate: impl FnMut(&ptx::Global) -> Result<u64, E>,
    ) -> Result<Self, LoadError<E>> {
        let addresses = module
            .globals
            .iter()
            .map(&mut allocate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(LoadError::Allocate)?;
        todo!()
    }

    /// The module's text form.
    pub fn module(&self) -> &Arc<ptx::Module> {
        &self.module
    }

    /// Address and size in bytes of a variable (`cuModuleGetGlobal`), whatever its linkage.
    pub fn global_address(&self, name: &str) -> Option<(u64, usize)> {
        let (i, g) = self.module.global(name)?;
        Some((self.addresses[i], g.size))
    }

    /// Device address and full contents of every variable that this module defines, zeros included.
    pub fn initialisers(&self) -> &[(u64, Vec<u8>)] {
        &self.initialisers
    }
}
