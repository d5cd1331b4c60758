// One row of a differential table per call. A row that crashes the process's library is a row that says so, and one that
// never returns ends the table: both are facts to compare.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <unistd.h>

inline sigjmp_buf row_start;
inline volatile const char *row_text;

inline void watch_rows() {
    struct sigaction action = {};
    action.sa_handler = [](int) { siglongjmp(row_start, 1); };
    for (int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE})
        sigaction(signal, &action, nullptr);
    action.sa_handler = [](int) {
        printf("%s -> does not return\n", (const char *)row_text);
        fflush(stdout);
        _exit(1);
    };
    sigaction(SIGALRM, &action, nullptr);
}

// Evaluates the call inside the row, so that a crash in it is the row's.
#define ROW(...)                                                                                                       \
    do {                                                                                                               \
        row_text = #__VA_ARGS__;                                                                                       \
        alarm(60);                                                                                                     \
        if (sigsetjmp(row_start, 1) == 0)                                                                              \
            row(#__VA_ARGS__, __VA_ARGS__);                                                                            \
        else                                                                                                           \
            printf("%s -> crashes\n", #__VA_ARGS__);                                                                   \
        alarm(0);                                                                                                      \
    } while (0)
