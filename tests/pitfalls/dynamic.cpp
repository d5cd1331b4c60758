// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Kernels that launch kernels (pitfalls 4, 6, 24, 28, 30). The driver links their text with NVIDIA's device runtime.
#include "device_runtime.h"

extern "C" const char dynamic_kernels_ptx[];

struct Setup {
    Gpu gpu;
    CUmodule module;
    CUdeviceptr words;
    CUstream stream;

    Setup() {
        module = with_device_runtime(dynamic_kernels_ptx);
        words = device_words(4096);
        stream = new_stream();
    }

    CUfunction function(const char *name) const { return function_of(module, name); }

    std::vector<unsigned> read(size_t count) const {
        std::vector<unsigned> read(count);
        CK(cuMemcpyDtoHAsync(read.data(), words, count * 4, stream));
        CK(cuStreamSynchronize(stream));
        return read;
    }

    // The words that a kernel and all its launches have written. The stream continues when all of it is complete.
    std::vector<unsigned> run(const char *name, unsigned value, size_t count, unsigned blocks = 1, unsigned threads = 1) const {
        set_words(words, 0, 4096);
        LAUNCH(function(name), blocks, threads, stream, words, value);
        return read(count);
    }
};

#define EXPECT_ARE(WORDS, ...)                                                                                         \
    do {                                                                                                               \
        std::vector<unsigned> expected_{__VA_ARGS__};                                                                  \
        for (size_t at_ = 0; at_ < expected_.size(); at_++)                                                            \
            EXPECT((WORDS)[at_] == expected_[at_], "word %zu is %u, expected %u", at_, (WORDS)[at_], expected_[at_]);  \
    } while (0)

// A grid is complete when its children are, also for the host and the stream.
PITFALL(06, kernels_launch_kernels_from_all_threads) {
    Setup s;
    std::vector<unsigned> words = s.run("each", 9, 2049, 4, 64);
    EXPECT(words[0] == 2048, "%u threads of children", words[0]);
    EXPECT_WORDS(words.data() + 1, 2048, 9);
}

PITFALL(24, children_run_in_the_order_of_their_streams) {
    Setup s;
    std::vector<unsigned> words = s.run("in_order", 40, 41);
    EXPECT(words[0] == 40, "%u children", words[0]);
    for (unsigned i = 0; i < 40; i++)
        EXPECT(words[1 + i] == i, "child %u is %u", i, words[1 + i]);
    words = s.run("connected", 21, 3);
    EXPECT_ARE(words, 0, 42, 42);
}

PITFALL(06, tails_come_after_all_other_work) {
    Setup s;
    std::vector<unsigned> words = s.run("tail", 5, 4);
    EXPECT_ARE(words, 5, 5, 5, 5);
    words = s.run("again", 100, 1);
    EXPECT_ARE(words, 101);
}

PITFALL(04, kernels_queue_copies) {
    Setup s;
    std::vector<unsigned> words = s.run("moves", 7, 6);
    EXPECT_ARE(words, 0, 7, 0, 7, 0, 7);
}

// Errors are the launching thread's. The context, the stream and later launches are as before.
PITFALL(28, kernels_find_the_errors_of_their_launches) {
    Setup s;
    std::vector<unsigned> words = s.run("refused", 1025, 10);
    EXPECT(words[0] == 0, "a refused child has run");
    EXPECT(words[1] != 0 && words[1] == words[2], "the errors of too many threads are %u and %u", words[1], words[2]);
    EXPECT(words[3] == 0, "after it was taken the error is %u", words[3]);
    EXPECT(words[4] != 0, "a grid of no blocks was launched");
    EXPECT(words[6] == 0 && (int)words[7] == s.gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
           "the attribute is %u, error %u", words[7], words[6]);
    EXPECT(words[8] == 0 && words[9] >= 32 && words[9] <= 1024, "a block has %u threads, error %u", words[9], words[8]);
    pitfall::observed("threads=%u blocks=%u", words[1], words[4]);
    words = s.run("again", 1, 1);
    EXPECT_ARE(words, 2);
}

// The next node of a graph waits for the children of a kernel.
PITFALL(06, graphs_wait_for_the_children_of_their_kernels) {
    Setup s;
    CUgraph graph;
    CUgraphExec exec;
    unsigned value = 1;
    CUfunction each = s.function("each");
    CK(cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK(cuMemsetD32Async(s.words, 0, 64, s.stream));
    LAUNCH(each, 1, 1, s.stream, s.words, value);
    CK(cuMemcpyDtoDAsync(s.words + 4 * 100, s.words, 4, s.stream));
    CK(cuStreamEndCapture(s.stream, &graph));
    CK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; round < 3; round++) {
        CK(cuGraphLaunch(exec, s.stream));
        std::vector<unsigned> words = s.read(101);
        EXPECT(words[100] == 8, "in round %u the copy is %u", round, words[100]);
    }
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL(30, a_childs_fault_is_sticky) {
    Setup s;
    LAUNCH(s.function("broken"), 1, 1, s.stream, s.words, 0u);
    CK_IS(cuStreamSynchronize(s.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CK_IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL_MAIN
