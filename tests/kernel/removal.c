// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Removal and suspend: the device is reset. */
#include "driver.h"

/* ---- Removal */

static char bound[64];

static void find_device(void)
{
	char target[256];
	ssize_t length;

	length = readlink("/sys/class/misc/virtio-gpgpu/device", target, sizeof(target) - 1);
	CHECK(length > 0);
	target[length] = 0;
	snprintf(bound, sizeof(bound), "%s", strrchr(target, '/') + 1);
}

/* A reset ends what the device would not end: with it, everything is let go. */
void removed(void)
{
	struct call waiting = { .stream = { HOLD, 40 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct call left = { .stream = { HOLD, 41 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct pollfd poll_device;
	int fd = new_client();

	catch_signals();
	find_device();
	CHECK_EQ(register_memory(fd, memory(16 * PAGE), 16 * PAGE), 0);
	waiting.fd = new_client();
	left.fd = new_client();
	interrupt_call(&left, 41, 1);
	start_call(&waiting);
	UNTIL(tell(HELD, 40) == 1);
	tell(CLOSE_STATUS, GPGPU_STATUS_MALFORMED);
	write_file(SYSFS "close_timeout_ms", "100");
	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/unbind", bound);
	CHECK_EQ(pthread_join(waiting.thread, NULL), 0);
	CHECK_EQ(waiting.error, ENODEV);
	UNTIL(pinned() == 0);
	CHECK_EQ(status_of("VmPin"), 0);
	poll_device = (struct pollfd){ .fd = fd };
	CHECK_EQ(poll(&poll_device, 1, -1), 1);
	CHECK_EQ(poll_device.revents, POLLERR | POLLHUP);
	CHECK_EQ(echo(fd), ENODEV);
	CHECK(open(DEVICE, O_RDWR) < 0);

	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/bind", bound);
	write_file(SYSFS "close_timeout_ms", "3000");
	CHECK_EQ(echo(fd), ENODEV);
	fd = new_client();
	CHECK_EQ(echo(fd), 0);
	close(orders);
	orders = -1;
	device_behaves();
}

/* ---- Suspend */

/* Sleeps and is woken by the clock. */
static void suspend(void)
{
	/* Init has to know: QEMU's power-off does not work after it. */
	close(open("/tmp/suspended", O_CREAT, 0600));
	write_file("/sys/class/rtc/rtc0/wakealarm", "0");
	/* Long enough to be asleep by then, or nothing would wake it. */
	write_file("/sys/class/rtc/rtc0/wakealarm", "+5");
	write_file("/sys/power/state", "mem");
}

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
	close(orders);
	orders = -1;
	CHECK_EQ(tell(CLOSES, 0), closes + 2);
}

/* The device that is there afterwards is none that the driver knows. */
void not_restored(void)
{
	int fd;

	find_device();
	tell(NO_MAGIC, 1);
	suspend();
	fd = open_file();
	{
		struct gpgpu_open arg = { .api_family = 1, .version = 2 };

		CHECK_EQ(ioctl(fd, GPGPU_IOC_OPEN, &arg), -1);
		CHECK_EQ(errno, ENODEV);
	}
	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/unbind", bound);
	CHECK(open(DEVICE, O_RDWR) < 0);
	close(fd);
	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/bind", bound);
	fd = new_client();
	CHECK_EQ(echo(fd), 0);
}
