// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Prints every byte of the runtime's properties of device 0. They are the same for any two runtimes. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
int main(void) {
    struct cudaDeviceProp prop;
    int version = 0, value, error;
    memset(&prop, 0xaa, sizeof prop);
    printf("%d\n", cudaGetDeviceProperties(&prop, 0));
    cudaRuntimeGetVersion(&version);
    printf("%d, %zu bytes\n", version, sizeof prop);
    for (size_t i = 0; i < sizeof prop; i += 4) printf("%zu %08x\n", i, *(unsigned *)((char *)&prop + i));
    for (int i = 1; i < 150; i++) {
        value = -1;
        error = cudaDeviceGetAttribute(&value, (enum cudaDeviceAttr)i, 0);
        /* The clock rates of an idle GPU go up and down. */
        if (i != 13 && i != 36) printf("attribute %d: %d %d\n", i, error, value);
    }
    return 0;
}
