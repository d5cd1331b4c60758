// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process that uses CUDA and executes the commands on its standard input, line by line.

use std::{
    ffi::{CStr, c_void},
    io::BufRead,
    path::Path,
    ptr::null_mut,
};

use gpgpu_protocol::cuda::*;
use libloading::Library;

/// The variable with the path of libcuda; without it the process is no guest.
pub const LIBRARY: &str = "VIRTIO_GPGPU_TEST_GUEST";
/// The prefix of each answer.
pub const MARK: &str = "guest says: ";

const PTX: &CStr = c"
.version 8.0
.target sm_52
.address_size 64

.visible .entry put(.param .u64 to)
{
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    st.global.u32 [%d1], 42;
    ret;
}
";

/// Calls a function of the library.
macro_rules! call {
    ($library:expr, $name:literal, $($argument:expr => $ty:ty),*) => {{
        type Function = unsafe extern "C" fn($($ty),*) -> CUresult;
        // SAFETY: a symbol of this name has this signature in every libcuda.
        let function = unsafe { $library.get::<Function>($name) }.unwrap();
        // SAFETY: the pointers are to values that live across the call.
        match unsafe { function($($argument),*) } {
            CUDA_SUCCESS => Ok(()),
            code => Err(code),
        }
    }};
}

struct Guest {
    library: Library,
    /// The memory that the kernel last wrote to.
    place: CUdeviceptr,
}

impl Guest {
    /// The devices by the host's numbers, with which the software GPU's UUIDs end.
    fn devices(&self) -> Result<String, CUresult> {
        let mut count = 0;
        call!(self.library, b"cuDeviceGetCount", &mut count => *mut i32)?;
        let mut all = Vec::new();
        for device in 0..count {
            let mut uuid = CUuuid::default();
            call!(self.library, b"cuDeviceGetUuid_v2", &mut uuid => *mut CUuuid, device => CUdevice)?;
            all.push(char::from(uuid.bytes[15]).to_string());
        }
        Ok(all.join(" "))
    }

    fn enter(&self, device: CUdevice) -> Result<(), CUresult> {
        let mut context: CUcontext = null_mut();
        call!(self.library, b"cuDevicePrimaryCtxRetain", &mut context => *mut CUcontext, device => CUdevice)?;
        call!(self.library, b"cuCtxSetCurrent", context => CUcontext)
    }

    fn allocate(&self, bytes: usize) -> Result<CUdeviceptr, CUresult> {
        let mut place = 0;
        call!(self.library, b"cuMemAlloc_v2", &mut place => *mut CUdeviceptr, bytes => usize)?;
        Ok(place)
    }

    fn work(&mut self, device: CUdevice) -> Result<String, CUresult> {
        self.enter(device)?;
        let (mut module, mut function): (CUmodule, CUfunction) = (null_mut(), null_mut());
        call!(self.library, b"cuModuleLoadData", &mut module => *mut CUmodule, PTX.as_ptr().cast() => *const c_void)?;
        call!(self.library, b"cuModuleGetFunction",
            &mut function => *mut CUfunction, module => CUmodule, c"put".as_ptr() => *const std::ffi::c_char)?;
        self.place = self.allocate(4)?;
        let mut arguments: [*mut c_void; 1] = [(&raw mut self.place).cast()];
        call!(self.library, b"cuLaunchKernel", function => CUfunction, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32,
            0 => u32, null_mut() => CUstream, arguments.as_mut_ptr() => *mut *mut c_void, null_mut() => *mut *mut c_void)?;
        let (mut current, mut owner) = (-1, -1);
        call!(self.library, b"cuCtxGetDevice", &mut current => *mut CUdevice)?;
        call!(self.library, b"cuPointerGetAttribute", (&raw mut owner).cast() => *mut c_void,
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => CUpointer_attribute, self.place => CUdeviceptr)?;
        assert_eq!(current, owner);
        Ok(format!("device {current}, {}", self.again()?))
    }

    fn again(&self) -> Result<String, CUresult> {
        let mut value = 0_u32;
        call!(self.library, b"cuMemcpyDtoH_v2", (&raw mut value).cast() => *mut c_void, self.place => CUdeviceptr, 4 => usize)?;
        Ok(format!("value {value}"))
    }

    fn carry_out(&mut self, line: &str) -> Result<String, CUresult> {
        call!(self.library, b"cuInit", 0 => u32)?;
        let (what, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: i32 = number.parse().unwrap();
        match what {
            "devices" => self.devices(),
            "work" => self.work(number),
            "again" => self.again(),
            "allocate" => {
                if self.place == 0 {
                    self.work(0)?;
                }
                self.allocate((number as usize) << 20)?;
                Ok(CUDA_SUCCESS.to_string())
            }
            _ => panic!("{line}"),
        }
    }
}

/// Executes the commands on standard input, until it ends.
pub fn run(library: &Path) {
    // SAFETY: our own library; its initialisers are trusted.
    let library = unsafe { Library::new(library) }.unwrap();
    let mut guest = Guest { library, place: 0 };
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let answer = guest.carry_out(&line);
        println!("{MARK}{}", answer.unwrap_or_else(|code| code.to_string()));
    }
}
