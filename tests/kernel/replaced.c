// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Another device takes the place of one with clients. The driver gets no notice. */
#include "driver.h"

/* The driver has found out: nothing is pinned, and a new client works, also after this. */
static void check_new_one_works(int old)
{
	struct pollfd poll_device = { .fd = old };
	unsigned int stops;
	int fd;

	UNTIL(pinned() == 0);
	CHECK_EQ(status_of("VmPin"), 0);
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	CHECK_EQ(echo(old), ENODEV);
	fd = new_client();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	CHECK_EQ(echo(fd), 0);
	stops = tell(STOPS, 0);
	close(new_client());
	CHECK_EQ(echo(fd), 0);
	CHECK_EQ(tell(STOPS, 0), stops);
	close(fd);
	UNTIL(pinned() == 0);
}

/* The answer that a call waits for never arrives: the driver polls the device by itself. */
void replaced_under_a_call(void)
{
	struct call waiting = { .stream = { HOLD, 60 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct call left = { .stream = { HOLD, 61 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	int fd = new_client();

	catch_signals();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	waiting.fd = new_client();
	left.fd = new_client();
	interrupt_call(&left, 61, 1);
	start_call(&waiting);
	UNTIL(tell(HELD, 60) == 1);
	tell(REPLACE, 2);
	CHECK_EQ(pthread_join(waiting.thread, NULL), 0);
	CHECK_EQ(waiting.error, ENODEV);
	CHECK_EQ(call(&left), ENODEV);
	check_new_one_works(fd);
}

/* A call is answered by a device that does not know its client. */
void replaced_between_calls(void)
{
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	tell(REPLACE, 3);
	CHECK_EQ(echo(fd), 0);
	UNTIL(echo(fd) == ENODEV);
	check_new_one_works(fd);
}

/* The first program that opens the new device gets a client that works. */
void replaced_before_an_open(void)
{
	int old = new_client(), early = open_file(), fd;

	CHECK_EQ(register_memory(old, memory(16 * PAGE), 16 * PAGE), 0);
	tell(REPLACE, 4);
	fd = new_client();
	CHECK_EQ(echo(old), ENODEV);
	CHECK_EQ(echo(fd), 0);
	/* A file that was open and had no client yet is as good. */
	CHECK_EQ(open_client(early, 1), GPGPU_STATUS_OK);
	CHECK_EQ(echo(early), 0);
	CHECK_EQ(echo(fd), 0);
	check_new_one_works(old);
}

/* The answer to a CLOSE of a client that the device never had does not release the client's memory. */
void replaced_before_a_close(void)
{
	int fd = new_client(), other = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	tell(REPLACE, 5);
	close(fd);
	UNTIL(echo(other) == ENODEV);
	check_new_one_works(other);
}

static int opens(void)
{
	struct gpgpu_open arg = { .api_family = 1, .version = 2 };
	int fd = open_file(), error;

	error = ioctl(fd, GPGPU_IOC_OPEN, &arg);
	close(fd);
	return !error;
}

/* The new device is not ready when the driver finds out. The driver tries again until it is. */
void replaced_and_not_ready(void)
{
	int old = new_client();

	CHECK_EQ(register_memory(old, memory(16 * PAGE), 16 * PAGE), 0);
	tell(NO_VERSION, 12);
	tell(REPLACE, 6);
	UNTIL(echo(old) == ENODEV);
	UNTIL(opens());
	check_new_one_works(old);
}

/* A device that shows no number is not reset, whatever it answers. */
void replaced_and_says_nothing(void)
{
	int fd = new_client(), other = new_client();
	unsigned int stops;

	tell(REPLACE, 0);
	stops = tell(STOPS, 0);
	CHECK_EQ(echo(fd), 0);
	CHECK_EQ(echo(other), 0);
	close(new_client());
	CHECK_EQ(echo(fd), 0);
	CHECK_EQ(tell(STOPS, 0), stops);
	/* The driver knew it as another one. */
	tell(REPLACE, 1);
	close(new_client());
}
