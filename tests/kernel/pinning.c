// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* The memory that a transfer pins at a time, and the time that the guest takes for it. */
#include "driver.h"

#define BYTES (32ul << 20)
#define ROUNDS 8
#define BATCH (512 * PAGE)
/* A block has at most 4 MiB, and may be shorter. */
#define BLOCKS (BYTES / (4ul << 20) + 1)
#define THP "/sys/kernel/mm/transparent_hugepage/"

/*
 * Functions of the kernel and of the driver; each is in those before it that the driver calls it from. The last is called for
 * each run, so a probe there takes longer than the function: it is counted, and not there when the others are timed.
 */
enum { WHOLE, WAIT, PIECE, PIN, LET_GO, UNPIN, FUNCTIONS };
static const char *const names[FUNCTIONS] = {
	"gpgpu_ioctl_transfer", "gpgpu_request_wait", "gpgpu_pin_piece",
	"pin_user_pages_fast", "gpgpu_unpin", "unpin_user_page_range_dirty_lock",
};

static struct {
	long calls, ns;
} costs[FUNCTIONS];

/* Watches the first `functions` of the functions. */
static void watch_costs(int functions)
{
	char command[512] = "";
	int i;

	for (i = 0; i < functions; i++) {
		strcat(command, names[i]);
		strcat(command, i + 1 < functions ? " " : "\n");
	}
	probe("time", command);
}

static void read_costs(int functions)
{
	FILE *file = fopen("/sys/module/gpgpu_probes/parameters/time", "r");
	char name[64];
	int i;

	CHECK(file);
	for (i = 0; i < functions; i++) {
		CHECK_EQ(fscanf(file, "%63s %ld %ld", name, &costs[i].calls, &costs[i].ns), 3);
		CHECK_EQ(strcmp(name, names[i]), 0);
	}
	fclose(file);
	probe("time", "\n");
}

/* Microseconds for 4 MiB. */
static double for_4_mib(long ns)
{
	return ns / 1e3 / (ROUNDS * (BYTES >> 22));
}

/* Memory in pages, folios or huge pages, all of it there. */
static void *memory_with(const char *kind, int advice)
{
	const size_t align = 2 << 20;
	char *address = mmap(NULL, BYTES + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(address != MAP_FAILED);
	address += align - (uintptr_t)address % align;
	if (madvise(address, BYTES, advice)) {
		printf("%s: not in this kernel\n", kind);
		return NULL;
	}
	memset(address, 1, BYTES);
	return address;
}

/* Memory in pages of which none follows another one: those between them are another mapping's. */
static void *scattered_memory(void)
{
	char *data, *between;
	size_t at;

	data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	between = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(data != MAP_FAILED && between != MAP_FAILED);
	CHECK_EQ(madvise(data, BYTES, MADV_NOHUGEPAGE), 0);
	CHECK_EQ(madvise(between, BYTES, MADV_NOHUGEPAGE), 0);
	for (at = 0; at < BYTES; at += PAGE)
		data[at] = between[at] = 1;
	return data;
}

/* Kilobytes of the memory that are in huge pages. */
static long huge_kib(const void *data)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned long start, end, at = (unsigned long)data;
	long kib, all = 0;
	char line[256];
	int inside = 0;

	CHECK(file);
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			inside = start < at + BYTES && end > at;
		else if (inside && sscanf(line, "AnonHugePages: %ld", &kib) == 1)
			all += kib;
	}
	fclose(file);
	return all;
}

/* Makes a move several times, and has what it costs in so many of the functions. */
static void watch_moves(struct call *moved, int functions)
{
	int i;

	watch_costs(functions);
	for (i = 0; i < ROUNDS; i++)
		CHECK_EQ(call(moved), 0);
	/* Pages of the last block may be released slightly later. */
	UNTIL(pinned() == 0);
	read_costs(functions);
	CHECK_EQ(costs[WHOLE].calls, ROUNDS);
	/* The memory is pinned in batches of the pages that one page of pointers holds; one may end at each block's end. */
	CHECK(costs[PIN].calls <= ROUNDS * (long)(BYTES / BATCH + BLOCKS));
	/* Blocks are as long as their runs allow: of single pages, the device takes two fewer than are in 4 MiB. */
	CHECK(costs[WAIT].calls <= ROUNDS * (long)(BLOCKS + 1));
}

/* Moves memory to the device, or from it, several times, and returns the number of runs of each move. */
static long cost_of(const char *kind, void *data, int from)
{
	struct call moved = { .fd = new_client(), .stream = { ECHO }, .transfer = 1, .data = data };
	long runs;

	moved.in_bytes = BYTES;
	moved.move.flags = from ? GPGPU_TRANSFER_OUT : 0;
	CHECK_EQ(call(&moved), 0);
	watch_moves(&moved, FUNCTIONS);
	runs = costs[UNPIN].calls;
	/* A run is unpinned at once, and a block is a run at the least. */
	CHECK(runs >= ROUNDS * (long)(BYTES >> 22));
	watch_moves(&moved, UNPIN);
	close(moved.fd);
	printf("%-13s %s device %6ld pins, %6ld runs; for 4 MiB: %7.1f us to pin, %7.1f to unpin, %7.1f else, %7.1f waiting\n", kind, from ? "from" : "to",
	       costs[PIN].calls / ROUNDS, runs / ROUNDS, for_4_mib(costs[PIECE].ns), for_4_mib(costs[LET_GO].ns),
	       for_4_mib(costs[WHOLE].ns - costs[WAIT].ns - costs[PIECE].ns - costs[LET_GO].ns), for_4_mib(costs[WAIT].ns));
	return runs / ROUNDS;
}

/*
 * A transfer pins pages in batches, and lets go of pages that lie side by side, as those of a huge page or of a large folio,
 * together. It prints the time that the guest takes for a copy, apart from that which it waits for the device.
 */
void costs_of_pinning(void)
{
	const char *const folios = THP "hugepages-64kB/enabled";
	void *data;
	int from;

	if ((data = memory_with("huge pages", MADV_HUGEPAGE)))
		for (from = 0; from < 2; from++) {
			long runs = cost_of("huge pages", data, from);

			/* The kernel may have had none. A block may end within one, which is in two runs then. */
			if (huge_kib(data) >= (long)(BYTES >> 10))
				CHECK(runs <= (long)((BYTES >> 21) + BLOCKS));
		}
	if (!access(folios, W_OK)) {
		write_file(THP "hugepages-2048kB/enabled", "never");
		write_file(folios, "always");
		if ((data = memory_with("64 KiB folios", MADV_HUGEPAGE)))
			for (from = 0; from < 2; from++)
				cost_of("64 KiB folios", data, from);
		write_file(folios, "never");
		write_file(THP "hugepages-2048kB/enabled", "inherit");
	}
	if ((data = memory_with("4 KiB pages", MADV_NOHUGEPAGE)))
		for (from = 0; from < 2; from++)
			cost_of("4 KiB pages", data, from);
	if ((data = scattered_memory()))
		for (from = 0; from < 2; from++)
			/* The kernel chooses the pages: a few may still be neighbours. */
			CHECK(cost_of("scattered", data, from) > (long)(BYTES / PAGE * 9 / 10));
}
