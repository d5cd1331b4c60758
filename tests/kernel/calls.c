// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Calls that signals interrupt, what is charged, and mappings of files. */
#include <linux/loop.h>
#include "driver.h"

/* ---- Calls that were interrupted */

void interrupted_submission(void)
{
	struct call made = { .stream = { HOLD, 20 }, .in_bytes = 1 << 20, .answer_bytes = 64 };
	long before = pinned(), counted = status_of("VmPin");

	catch_signals();
	made.fd = new_client();
	interrupt_call(&made, 20, 1);
	CHECK(made.submit.token);
	CHECK_EQ(pinned() - before, 256);
	CHECK_EQ(status_of("VmPin") - counted, 1024);

	/* The device has finished it; the process need not return. */
	CHECK_EQ(tell(RELEASE, 20), 1);
	UNTIL(pinned() == before);
	UNTIL(status_of("VmPin") == counted);

	CHECK_EQ(call(&made), 0);
	CHECK_EQ(made.submit.status, GPGPU_STATUS_OK);
	CHECK_EQ(made.submit.answer_bytes, 64);
	close(made.fd);
}

/* Data travels both ways in one chain, each way copied or in pinned pages. */
void data_both_ways(void)
{
	const size_t sizes[] = { 100, 1 << 20 };
	int fd = new_client();
	size_t in, out, i;

	for (in = 0; in < 2; in++) {
		for (out = 0; out < 2; out++) {
			struct call made = { .fd = fd, .stream = { INVERT }, .in_bytes = sizes[in], .answer_bytes = 64 };
			unsigned char *from = memory(sizes[in]), *to = memory(sizes[out] + 1);

			for (i = 0; i < sizes[in]; i++)
				from[i] = i * 7 + i / 251;
			memset(to, 0x55, sizes[out] + 1);
			made.data = from;
			made.submit.out_ptr = (uintptr_t)to;
			made.submit.out_bytes = sizes[out];
			CHECK_EQ(call(&made), 0);
			CHECK_EQ(made.submit.status, GPGPU_STATUS_OK);
			for (i = 0; i < sizes[out]; i++)
				CHECK_EQ(to[i], (unsigned char)~from[i % sizes[in]]);
			CHECK_EQ(to[sizes[out]], 0x55);
		}
	}
	close(fd);
}

void interrupted_transfer(void)
{
	struct call made = { .stream = { HOLD, 21 }, .in_bytes = 64 << 20, .answer_bytes = 64, .transfer = 1 };
	long before = pinned(), counted = status_of("VmPin"), parked;
	unsigned int released;

	catch_signals();
	made.fd = new_client();
	interrupt_call(&made, 21, 8);
	parked = pinned() - before;
	CHECK(parked > 0);
	CHECK_EQ(status_of("VmPin") - counted, parked * 4);
	CHECK_EQ(tell(RELEASE, 21), 8);
	UNTIL(pinned() == before);
	UNTIL(status_of("VmPin") == counted);

	/* It continues from there. */
	start_call(&made);
	for (released = 8; !made.over; released += tell(RELEASE, 21))
		usleep(1000);
	CHECK(released > 8);
	CHECK_EQ(made.error, 0);
	CHECK_EQ(made.move.status, GPGPU_STATUS_OK);
	UNTIL(pinned() == before);
	close(made.fd);
}

/* While one call is over the limit, there is no room for a second one: the signal waits. */
static void no_room_for(struct call *second)
{
	start_call(second);
	UNTIL(tell(HELD, 23) == 1);
	CHECK_EQ(pthread_kill(second->thread, SIGUSR1), 0);
	UNTIL(second->over || thread_state(second->tid) == 'D');
	CHECK(!second->over);
	CHECK_EQ(tell(RELEASE, 23), 1);
	CHECK_EQ(pthread_join(second->thread, NULL), 0);
	CHECK_EQ(second->error, 0);
}

static void one_over_the_limit_with(struct call *first, unsigned int chains)
{
	struct call second = { .stream = { HOLD, 23 }, .in_bytes = 1 << 20 };

	/* Whichever client of the process it is of. */
	first->fd = new_client();
	second.fd = new_client();
	interrupt_call(first, 22, chains);
	no_room_for(&second);

	/* It was resumed and interrupted, and has the same pages. */
	interrupt_call(first, 22, chains);
	no_room_for(&second);

	if (first->transfer) {
		/* And with another block, which has new pages. */
		CHECK_EQ(tell(RELEASE_ONE, 22), 1);
		interrupt_call(first, 22, chains);
		no_room_for(&second);
	}

	/* Once its pages are unpinned, the next call may be the one, even if this one is not resumed. */
	CHECK_EQ(tell(RELEASE, 22), chains);
	UNTIL(status_of("VmPin") == 0);
	interrupt_call(&second, 23, 1);
	CHECK_EQ(tell(RELEASE, 23), 1);
	CHECK_EQ(call(&second), 0);
	close(second.fd);

	start_call(first);
	while (!first->over) {
		tell(RELEASE, 22);
		usleep(1000);
	}
	CHECK_EQ(pthread_join(first->thread, NULL), 0);
	CHECK_EQ(first->error, 0);
	close(first->fd);
}

static void one_over_the_limit_body(void)
{
	struct call submission = { .stream = { HOLD, 22 }, .in_bytes = 1 << 20 };
	struct call transfer = { .stream = { HOLD, 22 }, .in_bytes = 64 << 20, .transfer = 1 };

	drop_privileges(64 << 10);
	catch_signals();
	one_over_the_limit_with(&submission, 1);
	one_over_the_limit_with(&transfer, 8);
}

void one_over_the_limit(void)
{
	CHECK_EQ(in_child(one_over_the_limit_body), 0);
}

/* The place for the token cannot be written: the call is waited for, and is not left without an owner. */
static void token_without_place_body(void)
{
	struct call made = { .stream = { HOLD, 24 }, .in_bytes = 1 << 20 };
	struct gpgpu_submit *place = memory(PAGE);
	long before = pinned();

	catch_signals();
	made.fd = new_client();
	made.data = memory(made.in_bytes);
	*place = (struct gpgpu_submit){ .stream_ptr = (uintptr_t)made.stream,
					.stream_bytes = sizeof(made.stream),
					.in_ptr = (uintptr_t)made.data,
					.in_bytes = made.in_bytes };
	CHECK_EQ(mprotect(place, PAGE, PROT_READ), 0);
	made.tid = getpid();
	fflush(stdout);
	if (!fork()) {
		char path[64], state = '?';

		UNTIL(tell(HELD, 24) == 1);
		CHECK_EQ(kill(made.tid, SIGUSR1), 0);
		snprintf(path, sizeof(path), "/proc/%d/stat", made.tid);
		while (state != 'D') {
			FILE *file = fopen(path, "r");

			CHECK(file);
			CHECK_EQ(fscanf(file, "%*d (%*[^)]) %c", &state), 1);
			fclose(file);
		}
		CHECK_EQ(tell(RELEASE, 24), 1);
		_exit(0);
	}
	CHECK_EQ(ioctl(made.fd, GPGPU_IOC_SUBMIT, place), -1);
	CHECK_EQ(errno, EFAULT);
	/* The driver's reaper unpins the pages of a call that was left: a moment after the call. */
	UNTIL(pinned() == before);
}

void token_without_place(void)
{
	CHECK_EQ(in_child(token_without_place_body), 0);
}

/* ---- Charges */

static void charges_more_body(void)
{
	int fd = new_client();

	CHECK_EQ(register_memory(fd, memory(768 << 10), 768 << 10), -1);
	CHECK_EQ(errno, ENOMEM);
	CHECK_EQ(register_memory(fd, memory(128 << 10), 128 << 10), 0);
}

static void user_is_charged_body(void)
{
	int fd;

	drop_privileges(1 << 20);
	fd = new_client();
	CHECK_EQ(register_memory(fd, memory(768 << 10), 768 << 10), 0);
	/* A child has its own charge. */
	CHECK_EQ(in_child(charges_more_body), 0);
	/* The charge ends once the device has released the memory. */
	close(fd);
	fd = new_client();
	UNTIL(register_memory(fd, memory(900 << 10), 900 << 10) == 0);
}

void user_is_charged(void)
{
	CHECK_EQ(in_child(user_is_charged_body), 0);
}

static void process_is_charged_body(void)
{
	void *address = memory(1 << 20);
	int fd;

	drop_privileges(1 << 20);
	fd = new_client();
	CHECK_EQ(register_memory(fd, address, 768 << 10), 0);
	CHECK_EQ(status_of("VmPin"), 768);
	CHECK_EQ(register_memory(fd, address + (768 << 10), 256 << 10), 0);
	CHECK_EQ(register_memory(fd, memory(PAGE), PAGE), -1);
	CHECK_EQ(errno, ENOMEM);
	CHECK_EQ(status_of("VmPin"), 1024);
}

void process_is_charged(void)
{
	long before = pinned();

	CHECK_EQ(in_child(process_is_charged_body), 0);
	UNTIL(pinned() == before);
}

/* ---- Files */

/* A disk in memory, with pages that the kernel writes back to it. */
static int make_disk(size_t bytes)
{
	char path[32];
	int control, number, file, disk;

	control = open("/dev/loop-control", O_RDWR);
	if (control < 0) {
		puts("SKIP the kernel has no loop devices");
		fflush(stdout);
		_exit(0);
	}
	number = ioctl(control, LOOP_CTL_GET_FREE);
	CHECK(number >= 0);
	close(control);
	snprintf(path, sizeof(path), "/dev/loop%d", number);
	disk = open(path, O_RDWR);
	CHECK(disk >= 0);
	file = open("/tmp/disk", O_RDWR | O_CREAT | O_TRUNC, 0600);
	CHECK(file >= 0);
	CHECK_EQ(ftruncate(file, bytes), 0);
	CHECK_EQ(ioctl(disk, LOOP_SET_FD, file), 0);
	close(file);
	return disk;
}

static void *map_file(int file, size_t bytes, int flags)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

	CHECK(address != MAP_FAILED);
	return address;
}

/* Memory that is written back behind the device's writes is not registered; a call may use it. */
void file_mappings(void)
{
	const size_t bytes = 64 * PAGE;
	int disk = make_disk(bytes), file = memfd_create("test", MFD_CLOEXEC), fd = new_client();
	struct call made = { .fd = fd, .stream = { ECHO }, .in_bytes = bytes };
	long before = pinned();
	void *shared = map_file(disk, bytes, MAP_SHARED);

	memset(shared, 1, bytes);
	CHECK_EQ(register_memory(fd, shared, bytes), -1);
	CHECK_EQ(errno, EFAULT);
	CHECK_EQ(pinned(), before);
	CHECK_EQ(status_of("VmPin"), 0);
	made.data = shared;
	CHECK_EQ(call(&made), 0);
	CHECK_EQ(made.submit.status, GPGPU_STATUS_OK);

	/* Its own copies, and files in memory, are as good as any. */
	CHECK_EQ(register_memory(fd, map_file(disk, bytes, MAP_PRIVATE), bytes), 0);
	CHECK_EQ(ftruncate(file, bytes), 0);
	CHECK_EQ(register_memory(fd, map_file(file, bytes, MAP_SHARED), bytes), 0);
	UNTIL(pinned() - before == 128);
	close(fd);
	UNTIL(pinned() == before);
	CHECK_EQ(ioctl(disk, LOOP_CLR_FD), 0);
}
