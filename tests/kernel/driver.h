// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * Shared by the tests of the guest's kernel driver. Each test makes the device of src/ misbehave, and checks the
 * driver's reaction.
 */
#ifndef DRIVER_TESTS_H
#define DRIVER_TESTS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/virtio_gpgpu.h>

#define PAGE 4096ul
#define DEVICE "/dev/virtio-gpgpu"
#define SYSFS "/sys/module/virtio_gpgpu/parameters/"

/* As in src/device.rs. */
enum { RELEASE = 1, CLOSE_STATUS, CLOSE_BYTES, CLOSE_HOLD, CLOSES, NOTIFICATIONS, HELD, OPEN_HOLD, NO_MAGIC,
       REPLACE, STOPS, CLIENTS, REGIONS, NO_VERSION, SLOW_STOP, RELEASE_ONE };
enum { ECHO, HOLD, USED, INVERT };
#define TOLD 0x01000000u
#define LATE 0xa5

#define CHECK(condition) ((condition) ? (void)0 : fail(__FILE_NAME__, __LINE__, "%s", #condition))
#define CHECK_EQ(a, b)                                                                      \
	do {                                                                                \
		long long a_ = (a), b_ = (b);                                               \
		if (a_ != b_)                                                               \
			fail(__FILE_NAME__, __LINE__, "%s is %lld, not %s, %lld", #a, a_, #b, b_);         \
	} while (0)
/* Waits for a condition that becomes true by itself; the limit is only a watchdog. */
#define UNTIL(condition)                                                                    \
	do {                                                                                \
		time_t end_ = time(NULL) + 60;                                              \
		while (!(condition)) {                                                      \
			if (time(NULL) > end_)                                              \
				fail(__FILE_NAME__, __LINE__, "never: %s", #condition);                    \
			usleep(1000);                                                       \
		}                                                                           \
	} while (0)

/* The file for tell(); with -1, it opens another one. */
extern int orders;

struct call {
	int fd;
	uint32_t stream[2];
	size_t in_bytes;
	uint32_t answer_bytes;
	uint32_t flags;
	int transfer;
	/* The outcome. */
	int error;
	struct gpgpu_submit submit;
	struct gpgpu_transfer move;
	pthread_t thread;
	pid_t tid;
	volatile int over;
	char answer[256];
	void *data;
};

/* Prints the reason, and ends the test. */
void fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4), noreturn));
int open_file(void);
/* Gives the status. */
unsigned int open_client(int fd, uint64_t family);
int new_client(void);
/* Tells the device something, over a file that never becomes a client. */
unsigned int tell(unsigned int verb, uint32_t argument);
/* The device was reset: orders need another file. */
void end_orders(void);
void device_behaves(void);
void write_file(const char *path, const char *text);
/* Pages that are pinned in the whole system. */
long pinned(void);
/* A number of /proc/self/status. */
long status_of(const char *name);
void *memory(size_t bytes);
/* As ioctl(). */
int register_memory(int fd, void *address, size_t bytes);
/* Makes the call, or makes it again after it was interrupted. Returns an errno. */
int call(struct call *call);
/* In a thread of its own. */
void start_call(struct call *made);
/* SIGUSR1 interrupts calls from here on. */
void catch_signals(void);
char thread_state(pid_t tid);
/* Gives a command to the module of module/. */
void probe(const char *parameter, const char *command);
/* Reads a parameter of that module. */
long probed(const char *parameter);
/* Unbinds the driver from its device, and binds it again. */
void unbind(void);
void bind_again(void);
/* Sleeps and is woken by the clock. */
void suspend(void);
void drop_privileges(size_t memlock);
/* Runs `body` in a child, and returns its exit status. */
int in_child(void (*body)(void));
/* A call that returns at once. */
int echo(int fd);
/* Starts or resumes a call, and interrupts it once the device holds this number of its chains under `key`. */
void interrupt_call(struct call *made, unsigned int key, unsigned int chains);

/* The tests. */
void close_refused(void);
void close_no_client(void);
void close_short(void);
void close_held(void);
void close_held_many(void);
void killed_while_opening(void);
void closed_by_an_exit(void);
void ends_with_exec(void);
void ends_with_its_opener(void);
void ends_though_passed_on(void);
void outlives_a_thread(void);
void many_at_once(void);
void data_both_ways(void);
void interrupted_submission(void);
void interrupted_transfer(void);
void one_over_the_limit(void);
void token_without_place(void);
void user_is_charged(void);
void process_is_charged(void);
void file_mappings(void);
void answer_past_the_used_length(void);
void pollers_beside_a_sleeper(void);
void interrupts_after_a_close(void);
void full_virtqueue(void);
void removed(void);
void slow_to_reset(void);
void suspended(void);
void suspended_while_opening(void);
void not_restored(void);
void restored_with_short_queues(void);
void restored_without_queues(void);
void pins_without_memory(void);
void pins_up_to_a_hole(void);
void chains_without_memory(void);
void many_end_at_once(void);
void costs_of_pinning(void);
void not_closed_before_a_reset(void);
void storm(void);
void replaced_under_a_call(void);
void replaced_between_calls(void);
void replaced_before_an_open(void);
void replaced_before_a_close(void);
void replaced_and_not_ready(void);
void replaced_and_says_nothing(void);

/* The program that the test of exec becomes. */
int executed(char **argv);

#endif /* DRIVER_TESTS_H */
