// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Runs a CUDA program that was built as a module and is opened late, as Python opens its modules.
//
// The module is embedded (MODULE_IMAGE names its file). It has the CUDA runtime linked in, with its symbols, and `main`
// as an exported function. It is opened and closed once before, so that its kernels are registered twice.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    "module_begin: .incbin \"" MODULE_IMAGE "\"\n"
    "module_end:\n"
    ".previous\n");
extern const char module_begin[], module_end[];

static void* opened(const char* path) {
  void* module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (module) return module;
  fprintf(stderr, "%s\n", dlerror());
  exit(2);
}

int main(int argc, char** argv) {
  char path[] = "/tmp/late-XXXXXX";
  const int file = mkstemp(path);
  const size_t size = module_end - module_begin;
  if (file < 0 || write(file, module_begin, size) != (ssize_t)size || close(file)) {
    perror(path);
    return 2;
  }
  dlclose(opened(path));
  void* module = opened(path);
  unlink(path);
  int (*run)(int, char**) = (int (*)(int, char**))dlsym(module, "main");
  if (!run) {
    fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  const int status = run(argc, argv);
  dlclose(module);
  return status;
}
