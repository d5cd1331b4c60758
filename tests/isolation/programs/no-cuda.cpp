// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A program that has libcuda loaded, and a thread, a child and dlsym as any program may, but no use for a GPU.
#include <cstdio>
#include <dlfcn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

int main() {
    void *own = dlopen(nullptr, RTLD_NOW);
    if (!own || !dlsym(own, "cuInit") || dlsym(own, "cuNoSuchFunction")) {
        puts("wrong: dlsym");
        return 1;
    }
    bool ran = false;
    std::thread([&] { ran = dlsym(RTLD_DEFAULT, "malloc") != nullptr; }).join();
    pid_t child = fork();
    if (child == 0)
        exit(dlsym(RTLD_DEFAULT, "cuInit") ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    if (!ran || status != 0) {
        puts("wrong: a thread or a child");
        return 1;
    }
    puts("done");
    return 0;
}
