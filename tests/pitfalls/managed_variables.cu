// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The runtime's __managed__ variables (pitfall 12). No thread of the CPU touches them while a stream may.
#include "harness.h"
#include <cuda_runtime.h>

#define CKR(CALL)                                                                                                      \
    do {                                                                                                               \
        cudaError_t code_ = (CALL);                                                                                    \
        if (code_ != cudaSuccess)                                                                                      \
            pitfall::fail("%s:%d: %s returned %d (%s)", __FILE__, __LINE__, #CALL, (int)code_, cudaGetErrorName(code_)); \
    } while (0)

static const unsigned kWords = 3 << 20; // 12 MiB

struct Pair {
    unsigned *where;
    unsigned value;
};

__managed__ unsigned counter = 40;
__managed__ unsigned words[kWords];
__managed__ Pair pair = {nullptr, 5};
__device__ unsigned plain = 3;
// Small ones, which share pages with each other and with those above, and one that is longer than a page.
__managed__ unsigned char bytes[3] = {1, 2, 3};
__managed__ unsigned short wide[2500];
__managed__ double number = 0.5;

__global__ void count() { counter += 2; }
__global__ void fill(unsigned with) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < kWords; i += gridDim.x * blockDim.x)
        words[i] = words[i] * 2 + with;
}
__global__ void change() {
    bytes[1] += 10;
    wide[0] += 1;
    wide[2499] += 2;
    number *= 2;
    counter += 1;
}
__global__ void follow() { *pair.where += pair.value + plain; }

// By their names on both sides, without a call that allocates or copies.
PITFALL(12, managed_variables_are_one_on_both_sides) {
    EXPECT(counter == 40 && pair.value == 5 && pair.where == nullptr, "%u %u", counter, pair.value);
    counter = 1;
    count<<<1, 1>>>();
    CKR(cudaDeviceSynchronize());
    EXPECT(counter == 3, "the counter is %u", counter);
    for (unsigned i = 0; i < kWords; i++)
        words[i] = i;
    for (unsigned round = 0; round < 2; round++) {
        fill<<<64, 256>>>(7);
        CKR(cudaDeviceSynchronize());
    }
    for (unsigned i = 0; i < kWords; i++)
        EXPECT(words[i] == i * 4 + 21, "word %u is %u", i, words[i]);
    // A pointer in one of them that both sides follow.
    pair.where = &counter;
    follow<<<1, 1>>>();
    CKR(cudaDeviceSynchronize());
    EXPECT(counter == 11, "the counter is %u", counter);
}

// The runtime finds them by their symbols and by their addresses.
PITFALL(12, managed_variables_are_known_by_their_symbols) {
    void *address = nullptr;
    size_t bytes = 0;
    CKR(cudaGetSymbolAddress(&address, words));
    CKR(cudaGetSymbolSize(&bytes, words));
    EXPECT(address == (void *)words && bytes == sizeof words, "%zu bytes", bytes);
    cudaPointerAttributes attributes;
    CKR(cudaPointerGetAttributes(&attributes, &counter));
    EXPECT(attributes.type == cudaMemoryTypeManaged && attributes.hostPointer == &counter && attributes.devicePointer == &counter,
           "the type is %d", attributes.type);
    const unsigned nine = 9;
    CKR(cudaMemcpyToSymbol(counter, &nine, sizeof nine));
    CKR(cudaDeviceSynchronize());
    EXPECT(counter == 9, "the counter is %u", counter);
    counter = 10;
    unsigned got = 0;
    CKR(cudaMemcpyFromSymbol(&got, counter, sizeof got));
    EXPECT(got == 10, "the symbol has %u", got);
    CKR(cudaMemcpy(&words[5], &counter, sizeof counter, cudaMemcpyDefault));
    CKR(cudaDeviceSynchronize());
    EXPECT(words[5] == 10, "the word is %u", words[5]);
}

// Each keeps its value while its neighbours are changed, by the program and by kernels.
PITFALL(12, managed_variables_are_changed_beside_each_other) {
    counter = 7;
    for (unsigned round = 0; round < 4; round++) {
        change<<<1, 1>>>();
        CKR(cudaDeviceSynchronize());
        EXPECT(bytes[0] == 1 + round && bytes[1] == 12 + 10 * round && bytes[2] == 3, "%u %u %u", bytes[0], bytes[1], bytes[2]);
        EXPECT(wide[0] == 1 + round && wide[2499] == 2 + 12 * round && wide[1] == 0, "%u %u", wide[0], wide[2499]);
        EXPECT(number == (1 << round), "the number is %f", number);
        EXPECT(counter == 8 + round && pair.value == 5, "%u %u", counter, pair.value);
        bytes[0]++;
        wide[2499] += 10;
    }
    // On the software GPU nothing is prefetched.
    if (pitfall::backend() != "software")
        CKR(cudaMemPrefetchAsync(wide, sizeof wide, cudaMemLocation{cudaMemLocationTypeHost, 0}, 0, 0));
    CKR(cudaStreamSynchronize(0));
    EXPECT(wide[0] == 4 && wide[2499] == 48 && bytes[0] == 5, "%u %u %u", wide[0], wide[2499], bytes[0]);
}

PITFALL_MAIN
