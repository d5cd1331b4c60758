/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* The compiled kernels inside the program, found at build time by -Wa,-I. */
    .section .rodata
    .globl kernels_fatbin
    .balign 16
kernels_fatbin:
    .incbin "kernels.fatbin"
    .globl kernels_ptx
    .balign 16
kernels_ptx:
    .incbin "kernels.ptx"
    .byte 0
    .section .note.GNU-stack,"",%progbits
