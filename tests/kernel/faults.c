// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Functions of the kernel that fail, and how long interrupts are off. */
#include "driver.h"

/* A pin that fails for want of memory is no memory without pages: the call fails as well, and nothing is copied. */
void pins_without_memory(void)
{
	struct call made = { .fd = new_client(), .stream = { ECHO }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	struct call moved = { .fd = made.fd, .stream = { ECHO }, .in_bytes = 1 << 20, .transfer = 1 };
	void *address = memory(16 * PAGE);
	long before = pinned();

	probe("fail", "pin_user_pages_fast -12 1");
	CHECK_EQ(register_memory(made.fd, address, 16 * PAGE), -1);
	CHECK_EQ(errno, ENOMEM);
	CHECK_EQ(probed("fail"), 0);
	probe("fail", "pin_user_pages_fast -12 1");
	CHECK_EQ(call(&made), ENOMEM);
	CHECK_EQ(probed("fail"), 0);
	probe("fail", "pin_user_pages_fast -12 1");
	CHECK_EQ(call(&moved), ENOMEM);
	CHECK_EQ(probed("fail"), 0);
	CHECK_EQ(pinned(), before);
	CHECK_EQ(status_of("VmPin"), 0);

	CHECK_EQ(register_memory(made.fd, address, 16 * PAGE), 0);
	CHECK_EQ(call(&made), 0);
	CHECK_EQ(call(&moved), 0);
	close(made.fd);
	UNTIL(pinned() == before);
}

/* Pages before unmapped memory do not stay pinned. */
void pins_up_to_a_hole(void)
{
	const size_t bytes = 4 << 20, hole = bytes - 8 * PAGE;
	struct call made = { .fd = new_client(), .stream = { ECHO }, .in_bytes = bytes };
	struct call moved = { .fd = made.fd, .stream = { ECHO }, .in_bytes = bytes, .transfer = 1 };
	long before = pinned();

	made.data = memory(bytes);
	moved.data = made.data;
	CHECK_EQ(munmap(made.data + hole, bytes - hole), 0);
	CHECK_EQ(register_memory(made.fd, made.data, bytes), -1);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(call(&made), EFAULT);
	CHECK_EQ(call(&moved), EFAULT);
	UNTIL(pinned() == before);
	CHECK_EQ(status_of("VmPin"), 0);
	CHECK_EQ(echo(made.fd), 0);
}

#define ADDS 1000000

/*
 * Without memory for an indirect table a chain has no room in a virtqueue that is almost full. The kernel would notify
 * the device at each attempt to add it, so who waits for room does not attempt it over and over.
 */
void chains_without_memory(void)
{
	struct call held = { .fd = new_client(), .stream = { HOLD, 33 }, .flags = GPGPU_SUBMIT_NOWAIT };
	struct call made = { .fd = new_client(), .stream = { ECHO }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	long adds;
	int i;

	for (i = 0; i < 1023; i++)
		CHECK_EQ(call(&held), 0);
	UNTIL(tell(HELD, 33) == 1023);
	/* A waiting process watches the virtqueue for a while. */
	write_file(SYSFS "poll_us", "200000");
	/* No memory for a table, and no room without one. */
	probe("fail", "virtqueue_add_sgs -28 1000000");
	start_call(&made);
	UNTIL(made.tid && thread_state(made.tid) == 'S');
	adds = ADDS - probed("fail");
	probe("fail", "\n");
	write_file(SYSFS "poll_us", "50");
	printf("%ld attempts\n", adds);
	CHECK(adds >= 1 && adds <= 2);
	CHECK_EQ(tell(RELEASE, 33), 1023);
	CHECK_EQ(pthread_join(made.thread, NULL), 0);
	CHECK_EQ(made.error, 0);
	CHECK_EQ(made.submit.status, GPGPU_STATUS_OK);
}

#define MOVERS 16

/* However many requests end at once, interrupts are disabled only for a few of them at a time. */
void many_end_at_once(void)
{
	struct call held = { .fd = new_client(), .stream = { HOLD, 34 }, .flags = GPGPU_SUBMIT_NOWAIT };
	struct call movers[MOVERS];
	void *data = memory(32 << 20);
	int i, fd = new_client();
	long most;

	for (i = 0; i < 1024; i++)
		CHECK_EQ(call(&held), 0);
	UNTIL(tell(HELD, 34) == 1024);
	/* Each with as many blocks as can be, that wait for room. */
	write_file(SYSFS "blocks", "16");
	for (i = 0; i < MOVERS; i++) {
		movers[i] = (struct call){ .fd = fd, .stream = { ECHO }, .in_bytes = 32 << 20, .data = data, .transfer = 1 };
		start_call(&movers[i]);
		UNTIL(movers[i].tid && thread_state(movers[i].tid) == 'S');
	}
	write_file(SYSFS "blocks", "8");
	write_file(SYSFS "close_timeout_ms", "100");
	probe("stretch", "complete_all");
	unbind();
	most = probed("stretch");
	probe("stretch", "\n");
	write_file(SYSFS "close_timeout_ms", "3000");
	for (i = 0; i < MOVERS; i++) {
		CHECK_EQ(pthread_join(movers[i].thread, NULL), 0);
		CHECK_EQ(movers[i].error, ENODEV);
	}
	bind_again();
	printf("at most %ld at a time\n", most);
	CHECK(most >= 2 && most <= 64);
	UNTIL(pinned() == 0);
}
