// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Removal and suspend: the device is reset. */
#include "driver.h"

/* ---- Removal */

/* A reset ends requests that the device would not end: everything is released. */
void removed(void)
{
	struct call waiting = { .stream = { HOLD, 40 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct call left = { .stream = { HOLD, 41 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct pollfd poll_device;
	int fd = new_client();

	catch_signals();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	waiting.fd = new_client();
	left.fd = new_client();
	interrupt_call(&left, 41, 1);
	start_call(&waiting);
	UNTIL(tell(HELD, 40) == 1);
	tell(CLOSE_STATUS, GPGPU_STATUS_MALFORMED);
	write_file(SYSFS "close_timeout_ms", "100");
	unbind();
	CHECK_EQ(pthread_join(waiting.thread, NULL), 0);
	CHECK_EQ(waiting.error, ENODEV);
	UNTIL(pinned() == 0);
	CHECK_EQ(status_of("VmPin"), 0);
	poll_device = (struct pollfd){ .fd = fd };
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	CHECK_EQ(echo(fd), ENODEV);
	CHECK(open(DEVICE, O_RDWR) < 0);

	bind_again();
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(echo(fd), ENODEV);
	fd = new_client();
	CHECK_EQ(echo(fd), 0);
	device_behaves();
}

static unsigned char *written;
static size_t not_late;

static void *waits_for_a_reset(void *arg)
{
	struct call *made = arg;
	size_t i;

	made->error = call(made);
	for (i = 0; i < made->submit.out_bytes; i++)
		not_late += written[i] != LATE;
	return NULL;
}

/* The device continues to write after it was told to stop: until it has stopped, its chains' memory stays allocated. */
void slow_to_reset(void)
{
	struct call waiting = { .stream = { HOLD, 43 }, .answer_bytes = 64 };
	struct call left = { .stream = { HOLD, 44 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	int fd = new_client();

	catch_signals();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	left.fd = new_client();
	interrupt_call(&left, 44, 1);
	waiting.fd = new_client();
	waiting.submit.out_bytes = 1 << 20;
	written = memory(waiting.submit.out_bytes);
	waiting.submit.out_ptr = (uintptr_t)written;
	CHECK_EQ(pthread_create(&waiting.thread, NULL, waits_for_a_reset, &waiting), 0);
	UNTIL(tell(HELD, 43) == 1);
	write_file(SYSFS "close_timeout_ms", "100");
	tell(SLOW_STOP, 2000);
	unbind();
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(pthread_join(waiting.thread, NULL), 0);
	CHECK_EQ(waiting.error, ENODEV);
	CHECK_EQ(not_late, 0);
	UNTIL(pinned() == 0);
	CHECK_EQ(status_of("VmPin"), 0);
	bind_again();
	CHECK_EQ(echo(new_client()), 0);
}

/* ---- Suspend */

void suspended(void)
{
	struct call left = { .stream = { HOLD, 50 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct pollfd poll_device;
	unsigned int closes = tell(CLOSES, 0);
	int fd = new_client();

	catch_signals();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	left.fd = new_client();
	interrupt_call(&left, 50, 1);
	suspend();
	UNTIL(pinned() == 0);
	CHECK_EQ(status_of("VmPin"), 0);
	poll_device = (struct pollfd){ .fd = fd };
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	CHECK_EQ(echo(fd), ENODEV);
	fd = new_client();
	CHECK_EQ(echo(fd), 0);
	/* Both were closed before the device was reset. */
	end_orders();
	CHECK_EQ(tell(CLOSES, 0), closes + 2);
}

static void *opens_and_waits(void *arg)
{
	struct call *made = arg;
	struct gpgpu_open open = { .api_family = 1, .version = 2 };

	made->tid = gettid();
	made->error = ioctl(made->fd, GPGPU_IOC_OPEN, &open) ? errno : 0;
	return NULL;
}

/* A thread that only a fatal signal ends, because the device does not answer, does not keep the system awake. */
void suspended_while_opening(void)
{
	struct call opening = { .fd = open_file() };

	tell(OPEN_HOLD, 51);
	CHECK_EQ(pthread_create(&opening.thread, NULL, opens_and_waits, &opening), 0);
	UNTIL(tell(HELD, 51) == 1);
	UNTIL(thread_state(opening.tid) == 'D');
	write_file(SYSFS "close_timeout_ms", "100");
	suspend();
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(pthread_join(opening.thread, NULL), 0);
	CHECK_EQ(opening.error, ENODEV);
	end_orders();
	device_behaves();
	CHECK_EQ(echo(new_client()), 0);
}

/* The device is out of service, until the driver is bound to it anew. */
static void check_out_of_service(void)
{
	struct gpgpu_open arg = { .api_family = 1, .version = 2 };
	int fd = open_file();

	CHECK_EQ(ioctl(fd, GPGPU_IOC_OPEN, &arg), -1);
	CHECK_EQ(errno, ENODEV);
	unbind();
	CHECK(open(DEVICE, O_RDWR) < 0);
	close(fd);
	bind_again();
	CHECK_EQ(echo(new_client()), 0);
}

/* Afterwards there is a device that the driver does not know. */
void not_restored(void)
{
	tell(NO_MAGIC, 1);
	suspend();
	check_out_of_service();
}

/* Its virtqueues are shorter afterwards: the driver accepts that. */
void restored_with_short_queues(void)
{
	struct call moved = { .stream = { ECHO }, .in_bytes = 1 << 20, .answer_bytes = 64, .transfer = 1 };
	struct call held = { .stream = { HOLD, 52 }, .flags = GPGPU_SUBMIT_NOWAIT };
	struct gpgpu_info info;
	int i;

	probe("fail", "vp_modern_get_queue_size 16 3");
	suspend();
	CHECK_EQ(probed("fail"), 0);
	end_orders();
	moved.fd = new_client();
	CHECK_EQ(ioctl(moved.fd, GPGPU_IOC_INFO, &info), 0);
	CHECK_EQ(info.max_segments, 16);
	CHECK_EQ(info.max_block_bytes, 8 * PAGE);
	CHECK_EQ(call(&moved), 0);
	CHECK_EQ(moved.move.status, GPGPU_STATUS_OK);
	held.fd = moved.fd;
	for (i = 0; i < 16; i++)
		CHECK_EQ(call(&held), 0);
	UNTIL(tell(HELD, 52) == 16);
	CHECK_EQ(tell(RELEASE, 52), 16);
	CHECK_EQ(echo(moved.fd), 0);

	unbind();
	bind_again();
	moved.fd = new_client();
	CHECK_EQ(ioctl(moved.fd, GPGPU_IOC_INFO, &info), 0);
	CHECK_EQ(info.max_segments, 1024);
}

/* Its virtqueues are too short afterwards, or do not exist. */
void restored_without_queues(void)
{
	probe("fail", "vp_modern_get_queue_size 8 3");
	suspend();
	CHECK_EQ(probed("fail"), 0);
	check_out_of_service();
	probe("fail", "vp_modern_get_queue_size 0 1");
	suspend();
	CHECK_EQ(probed("fail"), 0);
	check_out_of_service();
}

/* ---- A client that could not be closed */

/*
 * Its CLOSE has not come to the device before the reset. The device may not have taken it for one (QEMU reports it as
 * stopped queues), so the client may live on: its memory stays pinned.
 */
void not_closed_before_a_reset(void)
{
	long before = pinned();
	int fd = new_client(), other = new_client();

	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	CHECK_EQ(register_memory(other, memory(3 * PAGE), 3 * PAGE), 0);
	write_file(SYSFS "close_timeout_ms", "0");
	probe("fail", "virtqueue_add_sgs -5 1");
	close(fd);
	UNTIL(probed("fail") == 0);
	write_file(SYSFS "close_timeout_ms", "3000");
	unbind();
	UNTIL(pinned() - before == 16);
	CHECK_EQ(status_of("VmPin"), 64);
	bind_again();
	CHECK_EQ(echo(new_client()), 0);
	CHECK_EQ(pinned() - before, 16);
}
