// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Answers, interrupts, notifications. */
#include "driver.h"

void answer_past_the_used_length(void)
{
	struct call made = { .stream = { USED, 8 + 16 }, .answer_bytes = 64 };

	made.fd = new_client();
	CHECK_EQ(call(&made), EIO);
	made.stream[1] = 8 + 64;
	CHECK_EQ(call(&made), 0);
	CHECK_EQ(made.submit.answer_bytes, 64);
	made.stream[1] = 7;
	CHECK_EQ(call(&made), EIO);
	made.stream[1] = 0;
	CHECK_EQ(call(&made), EIO);
	CHECK_EQ(echo(made.fd), 0);
}

/* The interrupts of the device, and those of them in which there was nothing to do. */
static void interrupts(long *all, long *unhandled)
{
	char line[512], *at;
	int irq, cpu;
	FILE *file = fopen("/proc/interrupts", "r");

	*all = *unhandled = 0;
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		char path[64], word[32];
		FILE *spurious;
		long count;

		if (!strstr(line, "virtio"))
			continue;
		irq = strtol(line, &at, 10);
		CHECK_EQ(*at++, ':');
		for (cpu = 0; cpu < sysconf(_SC_NPROCESSORS_ONLN); cpu++)
			*all += strtol(at, &at, 10);
		snprintf(path, sizeof(path), "/proc/irq/%d/spurious", irq);
		spurious = fopen(path, "r");
		CHECK(spurious);
		while (fscanf(spurious, "%31s %ld%*[^\n]", word, &count) == 2)
			if (!strcmp(word, "unhandled"))
				*unhandled += count;
		fclose(spurious);
	}
	fclose(file);
}

#define CALLS 2000

/* Short calls, made while another call sleeps, poll the virtqueue: the device sends no interrupt for them. */
void pollers_beside_a_sleeper(void)
{
	struct call sleeper = { .stream = { HOLD, 30 } };
	long all[2], unhandled[2];
	int i, fd = new_client();

	sleeper.fd = new_client();
	write_file(SYSFS "poll_us", "0");
	start_call(&sleeper);
	UNTIL(tell(HELD, 30) == 1);
	UNTIL(thread_state(sleeper.tid) == 'S');
	write_file(SYSFS "poll_us", "1000000");
	interrupts(&all[0], &unhandled[0]);
	for (i = 0; i < CALLS; i++)
		CHECK_EQ(echo(fd), 0);
	interrupts(&all[1], &unhandled[1]);
	write_file(SYSFS "poll_us", "50");
	CHECK_EQ(tell(RELEASE, 30), 1);
	CHECK_EQ(pthread_join(sleeper.thread, NULL), 0);
	CHECK_EQ(sleeper.error, 0);
	printf("%d calls: %ld interrupts, %ld of them for nothing\n", CALLS, all[1] - all[0], unhandled[1] - unhandled[0]);
	CHECK(all[1] - all[0] < CALLS / 4);
}

/* A client that was closed does not enable interrupts while another one's chain is pending. */
void interrupts_after_a_close(void)
{
	struct call pending = { .stream = { HOLD, 31 }, .flags = GPGPU_SUBMIT_NOWAIT };
	long all[2], unhandled;
	int i, fd = new_client();

	pending.fd = new_client();
	CHECK_EQ(call(&pending), 0);
	UNTIL(tell(HELD, 31) == 1);
	close(new_client());
	write_file(SYSFS "poll_us", "1000000");
	interrupts(&all[0], &unhandled);
	for (i = 0; i < CALLS; i++)
		CHECK_EQ(echo(fd), 0);
	interrupts(&all[1], &unhandled);
	write_file(SYSFS "poll_us", "50");
	CHECK_EQ(tell(RELEASE, 31), 1);
	printf("%d calls: %ld interrupts\n", CALLS, all[1] - all[0]);
	CHECK(all[1] - all[0] < CALLS / 4);
}

static void *fill_thread(void *arg)
{
	struct call *made = arg;
	int i;

	for (i = 0; i < 1025; i++)
		CHECK_EQ(call(made), 0);
	made->over = 1;
	return NULL;
}

/* A full virtqueue: who waits for room does not notify the device over and over. */
void full_virtqueue(void)
{
	struct call made = { .stream = { HOLD, 32 }, .flags = GPGPU_SUBMIT_NOWAIT };
	struct gpgpu_info info;
	unsigned int before, after, size;

	made.fd = new_client();
	CHECK_EQ(ioctl(made.fd, GPGPU_IOC_INFO, &info), 0);
	size = info.max_segments;
	CHECK_EQ(size, 1024);
	write_file(SYSFS "poll_us", "0");
	CHECK_EQ(pthread_create(&made.thread, NULL, fill_thread, &made), 0);
	UNTIL(tell(HELD, 32) == size);
	before = tell(NOTIFICATIONS, 0);
	/* Everybody who waits watches the virtqueue for a while. */
	write_file(SYSFS "poll_us", "200000");
	{
		struct call more = { .fd = new_client(), .stream = { ECHO }, .answer_bytes = 8 };

		start_call(&more);
		UNTIL(more.tid && thread_state(more.tid) == 'S');
		after = tell(NOTIFICATIONS, 0);
		write_file(SYSFS "poll_us", "50");
		CHECK_EQ(tell(RELEASE, 32), size);
		UNTIL(tell(HELD, 32) == 1025 - size);
		CHECK_EQ(tell(RELEASE, 32), 1025 - size);
		CHECK_EQ(pthread_join(more.thread, NULL), 0);
		CHECK_EQ(more.error, 0);
	}
	CHECK_EQ(pthread_join(made.thread, NULL), 0);
	printf("%u notifications while it was full\n", after - before);
	CHECK(after - before <= 2);
}
