// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* CLOSE, and whose client it is. */
#include "driver.h"

/* ---- CLOSE */

static void close_stays_pinned(void)
{
	long before = pinned();
	unsigned int closes = tell(CLOSES, 0);
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	CHECK_EQ(pinned() - before, 16);
	close(fd);
	UNTIL(tell(CLOSES, 0) == closes + 1);
	device_behaves();
	/* Another client's end is not held up, and all that was to be let go is let go. */
	fd = new_client();
	CHECK_EQ(register_memory(fd, memory(3 * PAGE), 3 * PAGE), 0);
	close(fd);
	UNTIL(tell(CLOSES, 0) == closes + 2);
	UNTIL(pinned() - before == 16);
}

void close_refused(void)
{
	tell(CLOSE_STATUS, GPGPU_STATUS_MALFORMED);
	close_stays_pinned();
}

void close_no_client(void)
{
	tell(CLOSE_STATUS, GPGPU_STATUS_NO_CLIENT);
	close_stays_pinned();
}

void close_short(void)
{
	tell(CLOSE_BYTES, 4);
	close_stays_pinned();
}

void close_held(void)
{
	long before = pinned();

	write_file(SYSFS "close_timeout_ms", "0");
	tell(CLOSE_HOLD, 7);
	close_stays_pinned();
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(tell(RELEASE, 7), 1);
	UNTIL(pinned() == before);
}

/* More clients that the device does not close than a work queue runs works at a time. */
void close_held_many(void)
{
	unsigned int closes = tell(CLOSES, 0);
	long before = pinned();
	int i, fd;

	write_file(SYSFS "close_timeout_ms", "0");
	tell(CLOSE_HOLD, 8);
	for (i = 0; i < 600; i++)
		close(new_client());
	UNTIL(tell(CLOSES, 0) == closes + 600);
	device_behaves();
	fd = new_client();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	close(fd);
	UNTIL(pinned() == before);
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(tell(RELEASE, 8), 600);
}

static void *killed_open(void *arg)
{
	int fd = *(int *)arg;

	open_client(fd, 1);
	return NULL;
}

static void killed_while_opening_body(void)
{
	pthread_t thread;
	int fd = open_file();

	CHECK_EQ(pthread_create(&thread, NULL, killed_open, &fd), 0);
	UNTIL(tell(HELD, 9) == 1);
	raise(SIGKILL);
}

/* The client that came of it is closed. */
void killed_while_opening(void)
{
	unsigned int closes = tell(CLOSES, 0);

	write_file(SYSFS "close_timeout_ms", "0");
	tell(OPEN_HOLD, 9);
	CHECK(WIFSIGNALED(in_child(killed_while_opening_body)));
	CHECK_EQ(tell(CLOSES, 0), closes);
	CHECK_EQ(tell(RELEASE, 9), 1);
	UNTIL(tell(CLOSES, 0) == closes + 1);
	write_file(SYSFS "close_timeout_ms", "3000");
}

static void opens_many(void)
{
	int i;

	for (i = 0; i < 8; i++)
		new_client();
}

/* When a process exits, its clients are closed concurrently, not one after the other. */
void closed_by_an_exit(void)
{
	int status;
	pid_t child;

	write_file(SYSFS "close_timeout_ms", "600000");
	tell(CLOSE_HOLD, 10);
	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		opens_many();
		_exit(0);
	}
	UNTIL(tell(HELD, 10) == 8);
	/* It does not end before its clients have. */
	CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
	device_behaves();
	CHECK_EQ(tell(RELEASE, 10), 8);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
	write_file(SYSFS "close_timeout_ms", "3000");
}

/* ---- Whose client it is */

static void wait_for_byte(int fd)
{
	char byte;

	CHECK_EQ(read(fd, &byte, 1), 1);
}

static int to_child[2], from_child[2];

static void opens_and_executes(void)
{
	char in[16], out[16], device[16];
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	CHECK_EQ(fcntl(fd, F_SETFD, 0), 0);
	snprintf(in, sizeof(in), "%d", to_child[0]);
	snprintf(out, sizeof(out), "%d", from_child[1]);
	snprintf(device, sizeof(device), "%d", fd);
	execl("/proc/self/exe", "driver-tests", "--executed", in, out, device, NULL);
	CHECK(0);
}

/* The program that the one above executes: it has the file, and no way to use it. */
int executed(char **argv)
{
	int in = atoi(argv[0]), out = atoi(argv[1]), device = atoi(argv[2]);
	struct pollfd poll_device = { .fd = device };

	/* Its end was announced with the old address space. */
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	CHECK_EQ(echo(device), EPERM);
	CHECK_EQ(write(out, "", 1), 1);
	wait_for_byte(in);
	return 0;
}

void ends_with_exec(void)
{
	unsigned int closes = tell(CLOSES, 0);
	long before = pinned();
	int status;
	pid_t child;

	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(pipe(from_child), 0);
	child = fork();
	if (!child)
		opens_and_executes();
	wait_for_byte(from_child[0]);
	UNTIL(pinned() == before);
	CHECK_EQ(tell(CLOSES, 0), closes + 1);
	CHECK_EQ(write(to_child[1], "", 1), 1);
	CHECK_EQ(waitpid(child, &status, 0), child);
	CHECK_EQ(status, 0);
}

static int holds_the_table(void *arg)
{
	(void)arg;
	wait_for_byte(to_child[0]);
	return 0;
}

/* A process that has the opener's table of files, and not its memory, lives on. */
static void shares_its_table(void)
{
	char *stack = memory(64 * PAGE);
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	CHECK(clone(holds_the_table, stack + 64 * PAGE, CLONE_FILES, NULL) > 0);
}

void ends_with_its_opener(void)
{
	long before = pinned();

	CHECK_EQ(pipe(to_child), 0);
	CHECK_EQ(in_child(shares_its_table), 0);
	UNTIL(pinned() == before);
	CHECK_EQ(write(to_child[1], "", 1), 1);
}

static int messages[2];

/* Sends its file to the parent, and exits. */
static void passes_it_on(void)
{
	char byte = 0, control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(64 * PAGE), 64 * PAGE), 0);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	CHECK_EQ(sendmsg(messages[1], &message, 0), 1);
}

/* A client that was passed on ends with its process, and is unusable for the receiver. */
void ends_though_passed_on(void)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1,
				  .msg_control = control, .msg_controllen = sizeof(control) };
	struct pollfd poll_device = {};
	long before = pinned();
	int fd;

	CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, messages), 0);
	CHECK_EQ(in_child(passes_it_on), 0);
	CHECK_EQ(recvmsg(messages[0], &message, 0), 1);
	CHECK(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	poll_device.fd = fd;
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	UNTIL(pinned() == before);
	CHECK_EQ(echo(fd), EPERM);
	CHECK_EQ(register_memory(fd, memory(PAGE), PAGE), -1);
	CHECK_EQ(errno, EPERM);
	CHECK_EQ(status_of("VmPin"), 0);
	close(fd);
}

static int table_copied[2];

static void *keeps_the_table(void *arg)
{
	(void)arg;
	wait_for_byte(table_copied[0]);
	return NULL;
}

/* A thread's end is not its process's, even if it has its own file table. */
void outlives_a_thread(void)
{
	int fd = new_client();
	pthread_t thread;

	CHECK_EQ(pipe(table_copied), 0);
	CHECK_EQ(pthread_create(&thread, NULL, keeps_the_table, NULL), 0);
	CHECK_EQ(unshare(CLONE_FILES), 0);
	CHECK_EQ(write(table_copied[1], "", 1), 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	/* The thread is joined before it has let go of its files. */
	UNTIL(status_of("Threads") == 1);
	CHECK_EQ(echo(fd), 0);
	CHECK_EQ(echo(fd), 0);
}

/* ---- Many at once */

/* A process with calls that the device holds, in one of the ways in which it may end. */
static void ends_somehow(unsigned int way)
{
	struct call calls[3] = {
		{ .stream = { HOLD, 60 }, .in_bytes = 16 << 20, .answer_bytes = 64, .transfer = 1 },
		{ .stream = { HOLD, 61 }, .in_bytes = 1 << 20, .answer_bytes = 64 },
		{ .stream = { HOLD, 62 }, .flags = GPGPU_SUBMIT_NOWAIT },
	};
	int i, fd = new_client();

	catch_signals();
	CHECK_EQ(register_memory(fd, memory(4 * PAGE), 4 * PAGE), 0);
	for (i = 0; i < 3; i++) {
		calls[i].fd = i == (int)(way % 3) ? new_client() : fd;
		start_call(&calls[i]);
		/* The tid is set before the call, because signals may arrive at any time. */
		UNTIL(calls[i].tid);
		if (way & 4)
			pthread_kill(calls[i].thread, SIGUSR1);
	}
	if (way & 8)
		close(fd);
	if (way & 16)
		execl("/proc/self/exe", "driver-tests", NULL);
	if (way & 32)
		raise(SIGKILL);
	_exit(0);
}

/* Processes end in different ways at the same time, while the device returns chains or not: nothing may stay behind. */
void many_at_once(void)
{
	const int children = 6, rounds = 32;
	long before = pinned(), counted = status_of("VmPin");
	int i, j, left = children;

	fflush(stdout);
	for (i = 0; i < children; i++) {
		if (fork())
			continue;
		CHECK(freopen("/dev/null", "w", stdout));
		for (j = 0; j < rounds; j++) {
			pid_t child = fork();

			if (!child)
				ends_somehow(i + 7 * j);
			CHECK_EQ(waitpid(child, NULL, 0), child);
		}
		_exit(0);
	}
	while (left) {
		int status;

		tell(RELEASE, 60);
		tell(RELEASE, 61);
		if (waitpid(-1, &status, WNOHANG) > 0) {
			CHECK_EQ(status, 0);
			left--;
		}
	}
	tell(RELEASE, 0);
	UNTIL(pinned() == before);
	CHECK_EQ(status_of("VmPin"), counted);
	CHECK_EQ(echo(new_client()), 0);
}
