/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* The text of dynamic_kernels.cu and NVIDIA's device runtime, which a linker needs for it, inside the program. */
    .section .rodata
    .globl dynamic_kernels_ptx
    .balign 16
dynamic_kernels_ptx:
    .incbin "dynamic_kernels.ptx"
    .byte 0
    .globl device_runtime
    .balign 16
device_runtime:
    .incbin "cudadevrt.a"
    .globl device_runtime_end
device_runtime_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
