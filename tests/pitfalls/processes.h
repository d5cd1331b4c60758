/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Tests of several processes. Each is forked before any of them calls CUDA.
#pragma once
#include "driver.h"
#include <functional>
#include <sys/socket.h>

// A process at the other end of a socket.
struct Peer {
    int socket = -1;

    template <typename T> void put(const T &value) const {
        EXPECT(write(socket, &value, sizeof value) == (ssize_t)sizeof value, "the other process is gone");
    }

    // False if the other process has ended.
    template <typename T> bool try_get(T &value) const {
        size_t got = 0;
        while (got < sizeof value) {
            ssize_t read_now = read(socket, (char *)&value + got, sizeof value - got);
            if (read_now <= 0)
                return false;
            got += read_now;
        }
        return true;
    }

    template <typename T> T get() const {
        T value;
        EXPECT(try_get(value), "the other process is gone");
        return value;
    }

    void go() const { put('g'); }
    void wait() const { get<char>(); }

    // Waits until the other process has ended.
    void wait_for_end() const {
        char byte;
        while (try_get(byte)) {
        }
    }

    void put_descriptor(int descriptor) const {
        char byte = 'd', control[CMSG_SPACE(sizeof descriptor)] = {};
        iovec part = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof descriptor);
        memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
        EXPECT(sendmsg(socket, &message, 0) == 1, "sendmsg: %s", strerror(errno));
    }

    int get_descriptor() const {
        char byte, control[CMSG_SPACE(sizeof(int))] = {};
        iovec part = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        EXPECT(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1, "the other process is gone");
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        EXPECT(head, "no descriptor came");
        int descriptor;
        memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
        return descriptor;
    }
};

// Starts a process that runs `other`; the caller has not called CUDA.
struct Other {
    Peer peer;
    pid_t pid = 0;

    explicit Other(const std::function<void(const Peer &)> &other) {
        int ends[2];
        EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
        pid = fork();
        if (pid == 0) {
            ::close(ends[0]);
            other(Peer{ends[1]});
            _exit(0);
        }
        ::close(ends[1]);
        peer.socket = ends[0];
    }

    // Waits for its successful exit.
    void join() const {
        int status = 0;
        EXPECT(waitpid(pid, &status, 0) == pid && status == 0, "the other process ended with %#x", status);
    }

    // Kills it, whatever it does.
    void kill() const {
        ::kill(pid, SIGKILL);
        int status = 0;
        EXPECT(waitpid(pid, &status, 0) == pid, "waitpid");
    }
};

inline void expect_words(CUdeviceptr words, size_t count, unsigned value) {
    std::vector<unsigned> got(count);
    CK(cuMemcpyDtoH(got.data(), words, count * 4));
    EXPECT_WORDS(got.data(), count, value);
}

inline void fill(const Gpu &gpu, CUdeviceptr words, unsigned count, unsigned value) {
    LAUNCH(gpu.function("fill"), (count + 255) / 256, 256, nullptr, words, value, count);
    CK(cuCtxSynchronize());
}
