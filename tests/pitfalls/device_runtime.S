/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* NVIDIA's library of the device runtime inside the program, as in each that nvcc links with it. Found at build time by -Wa,-I. */
    .section .rodata
    .globl device_runtime
    .balign 16
device_runtime:
    .incbin "libcudadevrt.a"
    .globl device_runtime_end
device_runtime_end:
    .section .note.GNU-stack,"",%progbits
