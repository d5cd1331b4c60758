// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Shared by the tests. */
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "driver.h"

void fail(const char *file, int line, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	printf("FAIL %s:%d: ", file, line);
	vprintf(format, list);
	printf(" (errno %d)\n", errno);
	va_end(list);
	fflush(stdout);
	_exit(1);
}

int open_file(void)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	return fd;
}

unsigned int open_client(int fd, uint64_t family)
{
	struct gpgpu_open arg = { .api_family = family, .version = 2 };

	CHECK_EQ(ioctl(fd, GPGPU_IOC_OPEN, &arg), 0);
	return arg.status;
}

int new_client(void)
{
	int fd = open_file();

	CHECK_EQ(open_client(fd, 1), GPGPU_STATUS_OK);
	return fd;
}

int orders = -1;

unsigned int tell(unsigned int verb, uint32_t argument)
{
	static pid_t owner;

	if (orders < 0 || owner != getpid()) {
		orders = open_file();
		owner = getpid();
	}
	return open_client(orders, (0x0badull << 48) | ((uint64_t)verb << 32) | argument) - TOLD;
}

void device_behaves(void)
{
	tell(CLOSE_STATUS, GPGPU_STATUS_OK);
	tell(CLOSE_BYTES, 8);
	tell(CLOSE_HOLD, 0);
	tell(OPEN_HOLD, 0);
}

void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

/* Pages that are pinned in the whole system. */
long pinned(void)
{
	char line[128];
	long sum = 0, value;
	FILE *file;
	int refresh;

	/* Each processor counts for itself until this is read. */
	refresh = open("/proc/sys/vm/stat_refresh", O_RDONLY);
	CHECK(refresh >= 0);
	CHECK_EQ(read(refresh, line, sizeof(line)), 0);
	close(refresh);
	file = fopen("/proc/vmstat", "r");
	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "nr_foll_pin_acquired %ld", &value) == 1)
			sum += value;
		if (sscanf(line, "nr_foll_pin_released %ld", &value) == 1)
			sum -= value;
	}
	fclose(file);
	return sum;
}

/* A number of /proc/self/status. */
long status_of(const char *name)
{
	char line[128], format[32];
	long value = -1;
	FILE *file = fopen("/proc/self/status", "r");

	CHECK(file);
	snprintf(format, sizeof(format), "%s: %%ld", name);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			break;
	fclose(file);
	return value;
}

void *memory(size_t bytes)
{
	void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	CHECK(address != MAP_FAILED);
	return address;
}

int register_memory(int fd, void *address, size_t bytes)
{
	struct gpgpu_register arg = { .address = (uintptr_t)address, .length = bytes };

	if (ioctl(fd, GPGPU_IOC_REGISTER, &arg))
		return -1;
	CHECK_EQ(arg.status, GPGPU_STATUS_OK);
	return 0;
}

/* Makes the call, or makes it again after it was interrupted. Returns an errno. */
int call(struct call *call)
{
	int rc;

	if (call->in_bytes && !call->data)
		call->data = memory(call->in_bytes);
	if (call->transfer) {
		call->move.stream_ptr = (uintptr_t)call->stream;
		call->move.stream_bytes = sizeof(call->stream);
		call->move.answer_ptr = (uintptr_t)call->answer;
		call->move.answer_bytes = call->answer_bytes;
		call->move.data_ptr = (uintptr_t)call->data;
		call->move.data_bytes = call->in_bytes;
		rc = ioctl(call->fd, GPGPU_IOC_TRANSFER, &call->move);
	} else {
		call->submit.stream_ptr = (uintptr_t)call->stream;
		call->submit.stream_bytes = sizeof(call->stream);
		call->submit.answer_ptr = (uintptr_t)call->answer;
		call->submit.answer_bytes = call->answer_bytes;
		call->submit.in_ptr = (uintptr_t)call->data;
		call->submit.in_bytes = call->in_bytes;
		call->submit.flags = call->flags;
		rc = ioctl(call->fd, GPGPU_IOC_SUBMIT, &call->submit);
	}
	return rc ? errno : 0;
}

static void *call_thread(void *arg)
{
	struct call *made = arg;

	made->tid = gettid();
	made->error = call(made);
	__sync_synchronize();
	made->over = 1;
	return NULL;
}

void start_call(struct call *made)
{
	made->over = 0;
	CHECK_EQ(pthread_create(&made->thread, NULL, call_thread, made), 0);
}

static void on_signal(int signal)
{
	(void)signal;
}

void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	CHECK_EQ(sigaction(SIGUSR1, &action, NULL), 0);
}

char thread_state(pid_t tid)
{
	char path[64], state = '?';
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	file = fopen(path, "r");
	if (!file)
		return '?';
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	fclose(file);
	return state;
}

void drop_privileges(size_t memlock)
{
	struct rlimit limit = { memlock, memlock };

	CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
	CHECK_EQ(setgid(1000), 0);
	CHECK_EQ(setuid(1000), 0);
	/* Its own /proc files are its own again. */
	CHECK_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* Runs `body` in a child, and returns its exit status. */
int in_child(void (*body)(void))
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		body();
		_exit(0);
	}
	CHECK_EQ(waitpid(child, &status, 0), child);
	return status;
}

int echo(int fd)
{
	struct call made = { .fd = fd, .stream = { ECHO }, .answer_bytes = 64 };

	return call(&made);
}

void interrupt_call(struct call *made, unsigned int key, unsigned int chains)
{
	start_call(made);
	UNTIL(tell(HELD, key) == chains);
	/* The device holds the chains of a call that is resumed before its thread is in the call. */
	UNTIL(pthread_kill(made->thread, SIGUSR1) == 0 && made->over);
	CHECK_EQ(pthread_join(made->thread, NULL), 0);
	CHECK_EQ(made->error, EINTR);
}

void end_orders(void)
{
	if (orders >= 0)
		close(orders);
	orders = -1;
}

#define PROBES "/sys/module/gpgpu_probes/parameters/"

void probe(const char *parameter, const char *command)
{
	char path[64];

	snprintf(path, sizeof(path), PROBES "%s", parameter);
	write_file(path, command);
}

long probed(const char *parameter)
{
	char path[64];
	long value;
	FILE *file;

	snprintf(path, sizeof(path), PROBES "%s", parameter);
	file = fopen(path, "r");
	CHECK(file);
	CHECK_EQ(fscanf(file, "%ld", &value), 1);
	fclose(file);
	return value;
}

static char bound[64];

void unbind(void)
{
	char target[256];
	ssize_t length;

	length = readlink("/sys/class/misc/virtio-gpgpu/device", target, sizeof(target) - 1);
	CHECK(length > 0);
	target[length] = 0;
	snprintf(bound, sizeof(bound), "%s", strrchr(target, '/') + 1);
	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/unbind", bound);
}

void bind_again(void)
{
	write_file("/sys/bus/virtio/drivers/virtio_gpgpu/bind", bound);
	end_orders();
}

void suspend(void)
{
	/* Init has to know: QEMU's power-off does not work after it. */
	close(open("/tmp/suspended", O_CREAT, 0600));
	write_file("/sys/class/rtc/rtc0/wakealarm", "0");
	/* Long enough to be asleep by then, or nothing would wake it. */
	write_file("/sys/class/rtc/rtc0/wakealarm", "+5");
	write_file("/sys/power/state", "mem");
}
