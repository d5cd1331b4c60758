/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/* The kernels inside the program, as PTX; found at build time by -Wa,-I. */
    .section .rodata
    .globl kernels_ptx
    .balign 16
kernels_ptx:
    .incbin "kernels.ptx"
    .byte 0
    .section .note.GNU-stack,"",%progbits
