// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/* "driver-tests NAME" runs a test as root, and exits with 0 if it passed; without a name it lists the tests. */
#include "driver.h"

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
#define TEST(name) { #name, name }
	TEST(close_refused),
	TEST(close_no_client),
	TEST(close_short),
	TEST(close_held),
	TEST(close_held_many),
	TEST(killed_while_opening),
	TEST(closed_by_an_exit),
	TEST(ends_with_exec),
	TEST(ends_with_its_opener),
	TEST(ends_though_passed_on),
	TEST(outlives_a_thread),
	TEST(many_at_once),
	TEST(storm),
	TEST(data_both_ways),
	TEST(interrupted_submission),
	TEST(interrupted_transfer),
	TEST(one_over_the_limit),
	TEST(token_without_place),
	TEST(user_is_charged),
	TEST(process_is_charged),
	TEST(file_mappings),
	TEST(answer_past_the_used_length),
	TEST(pollers_beside_a_sleeper),
	TEST(interrupts_after_a_close),
	TEST(full_virtqueue),
	TEST(pins_without_memory),
	TEST(pins_up_to_a_hole),
	TEST(chains_without_memory),
	TEST(many_end_at_once),
	TEST(costs_of_pinning),
	TEST(removed),
	TEST(slow_to_reset),
	TEST(suspended),
	TEST(suspended_while_opening),
	TEST(not_restored),
	TEST(restored_with_short_queues),
	TEST(restored_without_queues),
	TEST(replaced_under_a_call),
	TEST(replaced_between_calls),
	TEST(replaced_before_an_open),
	TEST(replaced_before_a_close),
	TEST(replaced_and_not_ready),
	TEST(replaced_and_says_nothing),
	/* The last: memory stays pinned after it. */
	TEST(not_closed_before_a_reset),
};

int main(int argc, char **argv)
{
	size_t i;

	if (argc == 2 && !strcmp(argv[1], "--open-until-killed")) {
		CHECK_EQ(register_memory(new_client(), memory(16 * PAGE), 16 * PAGE), 0);
		puts("open");
		fflush(stdout);
		pause();
	}
	if (argc == 5 && !strcmp(argv[1], "--executed"))
		return executed(argv + 2);
	for (i = 0; i < sizeof(tests) / sizeof(*tests); i++) {
		if (argc < 2) {
			puts(tests[i].name);
		} else if (!strcmp(argv[1], tests[i].name)) {
			device_behaves();
			/* The remains of a test that failed. */
			tell(RELEASE, 0);
			tests[i].run();
			puts("PASS");
			return 0;
		}
	}
	return argc < 2 ? 0 : 2;
}
