// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A module placed in device memory and decoded for the executor.

use std::sync::Arc;

use super::LoadError;
use super::decode::{decode, function_address};
use super::program::Program;
use crate::ptx;

/// A module whose variables have addresses and whose kernels are decoded.
pub struct LoadedModule {
    module: Arc<ptx::Module>,
    addresses: Vec<u64>,
    initialisers: Vec<(u64, Vec<u8>)>,
    programs: Vec<Program>,
}

impl LoadedModule {
    /// Places every variable of `module` through `allocate`, which returns a device address aligned to
    /// [`ptx::Global::align`] (for [`ptx::Global::is_extern`] ones the address of another module's variable), and
    /// decodes every kernel. The caller writes [`Self::initialisers`] to device memory before the first launch.
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
        let programs = module
            .kernels
            .iter()
            .map(|k| decode(&module, &addresses, k))
            .collect::<Result<Vec<_>, _>>()?;
        let mut initialisers = Vec::new();
        for (g, &address) in module.globals.iter().zip(&addresses) {
            if g.is_extern {
                continue;
            }
            let mut bytes = g.initialiser.clone();
            bytes.resize(g.size, 0);
            for r in &g.relocations {
                let v = match r.target {
                    ptx::Symbol::Global(t) => addresses[t as usize],
                    ptx::Symbol::Function(f) => function_address(f as usize),
                    _ => 0,
                };
                let v = v.wrapping_add(r.addend as u64) >> r.shift;
                let end = r.offset + r.size.min(8);
                bytes[r.offset..end].copy_from_slice(&v.to_le_bytes()[..end - r.offset]);
            }
            initialisers.push((address, bytes));
        }
        Ok(Self {
            module,
            addresses,
            initialisers,
            programs,
        })
    }

    pub(super) fn programs(&self) -> &[Program] {
        &self.programs
    }

    /// The number of the kernel called `kernel`.
    pub(super) fn number(&self, kernel: &str) -> Option<usize> {
        self.programs.iter().position(|p| p.name == kernel)
    }

    /// The number of the kernel whose address is `address`.
    pub(super) fn kernel_at(&self, address: u64) -> Option<usize> {
        let function = |of: &ptx::Kernel| function_address(of.function) == address;
        self.module.kernels.iter().position(function)
    }

    /// Local memory in bytes that one thread of `kernel` needs, called functions included
    /// (`CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`).
    pub fn local_bytes(&self, kernel: &str) -> Option<usize> {
        self.number(kernel)
            .map(|number| self.programs[number].local)
    }

    /// Whether `kernel` may launch graphs.
    pub fn launches_graphs(&self, kernel: &str) -> bool {
        self.programs
            .iter()
            .any(|of| of.name == kernel && of.launches_graphs)
    }

    /// The module's text form.
    pub fn module(&self) -> &Arc<ptx::Module> {
        &self.module
    }

    /// Address and size in bytes of a variable (`cuModuleGetGlobal`), with any linkage.
    pub fn global_address(&self, name: &str) -> Option<(u64, usize)> {
        let (i, g) = self.module.global(name)?;
        Some((self.addresses[i], g.size))
    }

    /// Device address and full contents of every variable that this module defines, zeros included.
    pub fn initialisers(&self) -> &[(u64, Vec<u8>)] {
        &self.initialisers
    }
}
