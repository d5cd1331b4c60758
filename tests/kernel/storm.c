// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* Many processes that use the driver while they are interrupted, fork, execute, unmap and are killed. */
#include "driver.h"

#define ACTORS 6
/* The number of processes in succession of each actor. */
#define LIVES 12
/* The maximum number of steps before a process ends by itself. */
#define STEPS 40
#define REGION (8 * PAGE)
#define MEMLOCK (64 * REGION)

struct region {
	void *address;
	uint32_t number;
};

static uint32_t state;

static unsigned int random_below(unsigned int limit)
{
	state = state * 1664525 + 1013904223;
	return (state >> 8) % limit;
}

static void *hold(void *arg)
{
	struct call *made = arg;

	made->tid = gettid();
	/* Until it is answered; a signal interrupts it, and it is resumed or not. */
	made->error = call(made);
	if (made->error == EINTR && made->submit.thread % 2)
		made->error = call(made);
	return NULL;
}

/* Calls that the device holds, of threads that signals hit. */
static void interrupted_calls(int fd, unsigned int key)
{
	struct call made[2];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		made[i] = (struct call){
			.fd = fd,
			.stream = { HOLD, key },
			.in_bytes = i ? 128 << 10 : 0,
			.answer_bytes = 64,
			.transfer = random_below(2),
			.submit.thread = i,
		};
		CHECK_EQ(pthread_create(&made[i].thread, NULL, hold, &made[i]), 0);
	}
	for (i = 0; i < 2; i++)
		pthread_kill(made[i].thread, SIGUSR1);
	tell(RELEASE, key);
	for (i = 0; i < 2; i++) {
		/* Requests that came to the device after the release. */
		while (pthread_tryjoin_np(made[i].thread, NULL)) {
			tell(RELEASE, key);
			sched_yield();
		}
		if (made[i].data)
			munmap(made[i].data, made[i].in_bytes);
	}
}

/* The main function of a process. It reports each step to the parent, which kills it after one of them. */
static void live(unsigned int seed, int steps)
{
	struct region regions[8] = { 0 };
	int step, status, fd = -1;
	struct region *region;
	pid_t child;

	state = seed;
	drop_privileges(MEMLOCK);
	catch_signals();
	for (step = 0; step < STEPS; step++) {
		if (write(steps, "", 1) != 1)
			return;
		if (fd < 0) {
			memset(regions, 0, sizeof(regions));
			fd = new_client();
		}
		region = &regions[random_below(8)];
		switch (random_below(9)) {
		case 0:
		case 1:
		case 2:
			if (!region->address) {
				struct gpgpu_register arg = { .length = REGION };

				region->address = memory(REGION);
				arg.address = (uintptr_t)region->address;
				if (!ioctl(fd, GPGPU_IOC_REGISTER, &arg))
					region->number = arg.region;
				else
					CHECK_EQ(errno, ENOMEM);
			}
			break;
		case 3:
			if (region->number) {
				struct gpgpu_unregister arg = { .region = region->number };

				CHECK_EQ(ioctl(fd, GPGPU_IOC_UNREGISTER, &arg), 0);
				region->number = 0;
			}
			break;
		case 4:
			if (region->address)
				munmap(region->address, REGION);
			region->address = NULL;
			break;
		case 5:
			CHECK_EQ(echo(fd), 0);
			break;
		case 6:
			interrupted_calls(fd, seed);
			break;
		case 7:
			child = fork();
			CHECK(child >= 0);
			if (!child) {
				/* The file is not its own. */
				_exit(echo(fd) != EPERM);
			}
			CHECK_EQ(waitpid(child, &status, 0), child);
			CHECK_EQ(status, 0);
			break;
		case 8:
			if (random_below(2)) {
				close(fd);
				fd = -1;
			} else if (step > STEPS / 2) {
				fcntl(fd, F_SETFD, 0);
				execl("/bin/true", "true", NULL);
				CHECK(!"executed");
			}
			break;
		}
	}
}

/* Starts one process after the other, and kills each at a random step, or lets it end. */
static void act(unsigned int actor)
{
	unsigned int life, steps;
	int ends[2], status;
	char byte;
	pid_t child;

	state = actor;
	for (life = 0; life < LIVES; life++) {
		steps = random_below(2 * STEPS);
		CHECK_EQ(pipe(ends), 0);
		child = fork();
		CHECK(child >= 0);
		if (!child) {
			close(ends[0]);
			live((actor + 1) << 16 | life, ends[1]);
			_exit(0);
		}
		close(ends[1]);
		while (steps && read(ends[0], &byte, 1) == 1)
			steps--;
		if (!steps)
			kill(child, SIGKILL);
		CHECK_EQ(waitpid(child, &status, 0), child);
		close(ends[0]);
		CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
	}
}

/* All that its user may lock can be locked: nothing is charged that is not there. */
static void has_the_whole_limit(void)
{
	drop_privileges(MEMLOCK);
	UNTIL(register_memory(new_client(), memory(MEMLOCK), MEMLOCK) == 0);
}

void storm(void)
{
	unsigned int clients = tell(CLIENTS, 0), regions = tell(REGIONS, 0), actor;
	long before = pinned();
	pid_t actors[ACTORS];
	int status;

	/* A killed process may have calls at the device, which ends them with its client. */
	fflush(stdout);
	for (actor = 0; actor < ACTORS; actor++) {
		actors[actor] = fork();
		CHECK(actors[actor] >= 0);
		if (!actors[actor]) {
			act(actor);
			_exit(0);
		}
	}
	for (actor = 0; actor < ACTORS; actor++) {
		CHECK_EQ(waitpid(actors[actor], &status, 0), actors[actor]);
		CHECK_EQ(status, 0);
	}
	UNTIL(tell(CLIENTS, 0) == clients);
	CHECK_EQ(tell(REGIONS, 0), regions);
	tell(RELEASE, 0);
	UNTIL(pinned() == before);
	CHECK_EQ(status_of("VmPin"), 0);
	CHECK_EQ(in_child(has_the_whole_limit), 0);
	UNTIL(pinned() == before);
}
