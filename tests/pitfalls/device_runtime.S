/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* NVIDIA's library of the device runtime inside the program, as in each that nvcc links with it; empty if there is none. */
    .section .rodata
    .globl device_runtime
    .balign 16
device_runtime:
    .incbin "cudadevrt.a"
    .globl device_runtime_end
device_runtime_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
