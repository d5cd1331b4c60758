// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Loads and unloads plugin.so, and with it the runtime, again and again.
#include <cstdio>
#include <dlfcn.h>
int main(int, char **argv) {
    for (int i = 0; i < 20; i++) {
        void *plugin = dlopen(argv[1], RTLD_NOW);
        if (!plugin) return printf("%s\n", dlerror()), 1;
        int three = ((int (*)())dlsym(plugin, "run"))();
        if (three != 3) return printf("%d\n", three), 2;
        dlclose(plugin);
    }
    printf("ok plugin\n");
    return 0;
}
