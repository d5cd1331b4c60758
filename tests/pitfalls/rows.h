/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// One line of a differential table per call. A call that crashes the process's library, or never returns, has a row
// that reports this: both are facts to compare.
//
// After a crash inside the library its results are meaningless, because its locks may be held. So a separate process
// makes the table. When a row ends that process, another process makes the whole table again without the call. The
// printed table is that of the one process that reached the end.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

// The text before each row; and the rows that are not to be called, with what is known of them.
inline std::string row_prefix;
inline std::map<int, std::string> rows_known;
inline int rows_done = 0;

// Evaluates the call in the row, unless its end is already known. Each row is one line.
#define ROW(...)                                                                                                       \
    do {                                                                                                               \
        auto known_ = rows_known.find(rows_done++);                                                                    \
        if (known_ != rows_known.end()) {                                                                              \
            printf("%s%s -> %s\n", row_prefix.c_str(), #__VA_ARGS__, known_->second.c_str());                          \
            fflush(stdout);                                                                                            \
            break;                                                                                                     \
        }                                                                                                              \
        alarm(60);                                                                                                     \
        row(#__VA_ARGS__, __VA_ARGS__);                                                                                \
        fflush(stdout);                                                                                                \
        alarm(0);                                                                                                      \
    } while (0)

// Runs the program again with `arguments` and returns how it ended; its output is in `text`.
inline int run_again(std::vector<std::string> arguments, std::string &text) {
    int ends[2];
    if (pipe(ends) != 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        std::vector<char *> argv;
        for (auto &argument : arguments)
            argv.push_back(argument.data());
        argv.push_back(nullptr);
        execv("/proc/self/exe", argv.data());
        _exit(127);
    }
    close(ends[1]);
    text.clear();
    char buffer[4096];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
        text.append(buffer, got);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

// The program's main function: prints the table that `table` makes. `arguments` after the program's name are those of
// run_again: pairs of a row's number and its end.
inline int run_rows(int argc, char **argv, void (*table)()) {
    if (argc > 1) {
        for (int i = 2; i + 1 < argc; i += 2)
            rows_known[atoi(argv[i])] = argv[i + 1];
        table();
        printf("end\n");
        fflush(stdout);
        _exit(0); // how the process ends is not the table's
    }
    std::vector<std::string> arguments = {argv[0], "--rows"};
    for (;;) {
        std::string text;
        int status = run_again(arguments, text);
        bool whole = text.size() >= 4 && text.compare(text.size() - 4, 4, "end\n") == 0;
        if (whole) {
            text.resize(text.size() - 4);
            fputs(text.c_str(), stdout);
            return 0;
        }
        std::string row = std::to_string(std::count(text.begin(), text.end(), '\n'));
        bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127; // the loader: no such symbol
        bool again = arguments.size() > 2 && arguments[arguments.size() - 2] == row;
        if (again || !(WIFSIGNALED(status) || missing)) {
            fputs(text.c_str(), stdout); // what failed is not a row
            return 1;
        }
        arguments.push_back(row);
        arguments.push_back(missing ? "is not exported" : WTERMSIG(status) == SIGALRM ? "does not return" : "crashes");
    }
}
