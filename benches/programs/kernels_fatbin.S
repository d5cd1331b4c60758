/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The kernels' fatbin, in the program's own data; kernels.fatbin is found through the assembler's include path.
    .section .rodata
    .balign 64
    .globl bench_kernel_image
bench_kernel_image:
    .incbin "kernels.fatbin"
    .byte 0
    .section .note.GNU-stack, "", @progbits
