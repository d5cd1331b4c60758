// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device runtime's functions, in programs that link NVIDIA's library of that name.

#[path = "ptx/device.rs"]
mod device;

use device::{Device, Params, shape};
use software_gpu::exec::Launch;
use software_gpu::link::{Linker, is_device_runtime};

/// In each of eight rounds every block counts itself, and all blocks must see all others. `out[1]` counts threads that
/// do not; `out[2]` has the last result of the meeting.
const MEET: &str = "
.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b64 r) cudaCGGetIntrinsicHandle (.param .b32 p);
.extern .func (.param .b32 r) cudaCGSynchronize (.param .b64 p, .param .b32 q);

.visible .entry meet(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    { .param .b32 scope; .param .b64 handle;
      st.param.b32 [scope], 1;
      call (handle), cudaCGGetIntrinsicHandle, (scope);
      ld.param.b64 %d2, [handle]; }
    mov.u32 %r1, 0;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %nctaid.x;
ROUND:
    setp.eq.u32 %p, %r2, 0;
    @%p red.global.add.u32 [%d1], 1;
    { .param .b64 a; .param .b32 b; .param .b32 e;
      st.param.b64 [a], %d2;
      st.param.b32 [b], 0;
      call (e), cudaCGSynchronize, (a, b);
      ld.param.b32 %r4, [e]; }
    st.global.u32 [%d1+8], %r4;
    add.u32 %r1, %r1, 1;
    mul.lo.u32 %r5, %r1, %r3;
    ld.volatile.global.u32 %r6, [%d1];
    setp.ne.u32 %p, %r5, %r6;
    @%p red.global.add.u32 [%d1+4], 1;
    { .param .b64 a; .param .b32 b; .param .b32 e;
      st.param.b64 [a], %d2;
      st.param.b32 [b], 0;
      call (e), cudaCGSynchronize, (a, b); }
    setp.lt.u32 %p, %r1, 8;
    @%p bra ROUND;
    ret;
}
";

fn linked() -> Result<String, String> {
    let mut linker = Linker::default();
    let added = linker.add("kernels", MEET.to_owned(), 80);
    let added = added.and_then(|()| linker.add_device_runtime(80));
    let linked = added.and_then(|()| linker.complete(80));
    linked.map_err(|refused| refused.to_string())
}

fn meet(cooperative: bool) -> Vec<u32> {
    let mut d = Device::new(&linked().unwrap(), 1 << 20);
    let out = d.put(&[0u32; 3]);
    let launch = Launch {
        cooperative,
        ..shape(5, 70)
    };
    d.launch("meet", &launch, &Params::new().add(out)).unwrap();
    d.get(out, 3)
}

#[test]
fn the_blocks_of_a_cooperative_launch_meet() {
    assert_eq!(meet(true), [40, 0, 0]);
}

#[test]
fn no_meeting_is_an_error_where_the_launch_is_not_cooperative() {
    assert_eq!(meet(false)[2], 1);
}

#[test]
fn the_library_is_known_by_its_member() {
    assert!(is_device_runtime(b"!<arch>\n//  cuda_device_runtime.o/\n"));
    assert!(!is_device_runtime(b"!<arch>\nother.o/"));
    assert!(!is_device_runtime(b"cuda_device_runtime.o"));
    let mut linker = Linker::default();
    linker.add("kernels", MEET.to_owned(), 80).unwrap();
    let refused = linker.complete(80).unwrap_err();
    assert!(refused.message.contains("'cudaCGSynchronize'"), "{refused}");
}
