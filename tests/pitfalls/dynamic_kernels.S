/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* The text of dynamic_kernels.cu inside the program. */
    .section .rodata
    .globl dynamic_kernels_ptx
    .balign 16
dynamic_kernels_ptx:
    .incbin "dynamic_kernels.ptx"
    .byte 0
    .section .note.GNU-stack,"",%progbits
