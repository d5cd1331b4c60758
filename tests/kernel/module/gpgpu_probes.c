// SPDX-License-Identifier: GPL-2.0
/*
 * Operations that the driver's tests cannot do from user space: functions of the kernel
 * that fail, and a look at how the driver calls them. Kernel probes do both, so the
 * driver under test is the one that is installed. Each parameter is a command:
 *
 * fail     "FUNCTION VALUE TIMES": the next TIMES calls return VALUE and do nothing
 *          else. Reading gives how many of them are left.
 * stretch  "FUNCTION": counts its calls while interrupts are off. Reading gives the
 *          most calls without interrupts on in between.
 * time     "FUNCTION FUNCTION …": reading gives a line for each: its name, its calls
 *          and the nanoseconds in them.
 *
 * An empty line ends what a parameter has started.
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/objtool.h>
#include <linux/percpu.h>
#include <linux/string.h>
#include <linux/timekeeping.h>

#define NAME_BYTES 64

/* ---- fail */

/* The target of a call that fails: the function has done nothing yet. */
void gpgpu_probes_return(void);
asm(".pushsection .text\n"
    ".type gpgpu_probes_return, @function\n"
    ".globl gpgpu_probes_return\n"
    "gpgpu_probes_return:\n"
    ANNOTATE_NOENDBR "\n"
    ASM_RET "\n"
    ".size gpgpu_probes_return, .-gpgpu_probes_return\n"
    ".popsection\n");

static char fail_name[NAME_BYTES];
static struct kprobe fail_probe;
static atomic_t fail_left;
static long fail_value;

static int fail_handler(struct kprobe *probe, struct pt_regs *regs)
{
	if (atomic_dec_if_positive(&fail_left) < 0)
		return 0;
	regs_set_return_value(regs, fail_value);
	instruction_pointer_set(regs, (unsigned long)gpgpu_probes_return);
	return 1;
}

static void fail_end(void)
{
	if (fail_probe.pre_handler)
		unregister_kprobe(&fail_probe);
	memset(&fail_probe, 0, sizeof(fail_probe));
	atomic_set(&fail_left, 0);
}

static int fail_set(const char *text, const struct kernel_param *param)
{
	int times, words, err;

	fail_end();
	words = sscanf(text, "%63s %ld %d", fail_name, &fail_value, &times);
	if (!*fail_name)
		return 0;
	if (words != 3)
		return -EINVAL;
	fail_probe.symbol_name = fail_name;
	fail_probe.pre_handler = fail_handler;
	err = register_kprobe(&fail_probe);
	if (err) {
		memset(&fail_probe, 0, sizeof(fail_probe));
		return err;
	}
	atomic_set(&fail_left, times);
	return 0;
}

static int fail_get(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", atomic_read(&fail_left));
}

static const struct kernel_param_ops fail_ops = { .set = fail_set, .get = fail_get };
module_param_cb(fail, &fail_ops, NULL, 0600);

/* ---- stretch */

static char stretch_name[NAME_BYTES];
static struct kprobe stretch_probe, unlock_probe;
static DEFINE_PER_CPU(unsigned int, stretch_calls);
static atomic_t stretch_most;

static int stretch_handler(struct kprobe *probe, struct pt_regs *regs)
{
	unsigned int calls, most;

	if (regs->flags & X86_EFLAGS_IF) {
		this_cpu_write(stretch_calls, 0);
		return 0;
	}
	calls = this_cpu_inc_return(stretch_calls);
	most = atomic_read(&stretch_most);
	while (calls > most && !atomic_try_cmpxchg(&stretch_most, &most, calls))
		;
	return 0;
}

/* Its second argument says whether it enables interrupts. */
static int unlock_handler(struct kprobe *probe, struct pt_regs *regs)
{
	if (regs->si & X86_EFLAGS_IF)
		this_cpu_write(stretch_calls, 0);
	return 0;
}

static void stretch_end(void)
{
	if (stretch_probe.pre_handler) {
		unregister_kprobe(&stretch_probe);
		unregister_kprobe(&unlock_probe);
	}
	memset(&stretch_probe, 0, sizeof(stretch_probe));
	memset(&unlock_probe, 0, sizeof(unlock_probe));
}

static int stretch_set(const char *text, const struct kernel_param *param)
{
	int cpu, err;

	stretch_end();
	sscanf(text, "%63s", stretch_name);
	if (!*stretch_name)
		return 0;
	for_each_possible_cpu(cpu)
		per_cpu(stretch_calls, cpu) = 0;
	atomic_set(&stretch_most, 0);
	unlock_probe.symbol_name = "_raw_spin_unlock_irqrestore";
	unlock_probe.pre_handler = unlock_handler;
	err = register_kprobe(&unlock_probe);
	if (err)
		goto clear;
	stretch_probe.symbol_name = stretch_name;
	stretch_probe.pre_handler = stretch_handler;
	err = register_kprobe(&stretch_probe);
	if (!err)
		return 0;
	unregister_kprobe(&unlock_probe);
clear:
	stretch_probe.pre_handler = NULL;
	stretch_end();
	return err;
}

static int stretch_get(char *text, const struct kernel_param *param)
{
	return sysfs_emit(text, "%d\n", atomic_read(&stretch_most));
}

static const struct kernel_param_ops stretch_ops = { .set = stretch_set, .get = stretch_get };
module_param_cb(stretch, &stretch_ops, NULL, 0600);

/* ---- time */

#define TIMERS 8

struct timer {
	struct kretprobe probe;
	char name[NAME_BYTES];
	atomic64_t calls;
	atomic64_t ns;
};

static struct timer timers[TIMERS];
static unsigned int num_timers;

static int timer_begin(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	*(u64 *)instance->data = ktime_get_mono_fast_ns();
	return 0;
}

static int timer_end(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	u64 ns = ktime_get_mono_fast_ns() - *(u64 *)instance->data;
	struct timer *timer = container_of(get_kretprobe(instance), struct timer, probe);

	atomic64_inc(&timer->calls);
	atomic64_add(ns, &timer->ns);
	return 0;
}

static void time_end(void)
{
	while (num_timers)
		unregister_kretprobe(&timers[--num_timers].probe);
	memset(timers, 0, sizeof(timers));
}

static int time_set(const char *text, const struct kernel_param *param)
{
	struct timer *timer;
	int at = 0, read, err;

	time_end();
	while (num_timers < TIMERS) {
		timer = &timers[num_timers];
		sscanf(text + at, "%63s%n", timer->name, &read);
		if (!*timer->name)
			break;
		at += read;
		timer->probe.kp.symbol_name = timer->name;
		timer->probe.entry_handler = timer_begin;
		timer->probe.handler = timer_end;
		timer->probe.data_size = sizeof(u64);
		timer->probe.maxactive = 64;
		err = register_kretprobe(&timer->probe);
		if (err) {
			time_end();
			return err;
		}
		num_timers++;
	}
	return 0;
}

static int time_get(char *text, const struct kernel_param *param)
{
	unsigned int i;
	int at = 0;

	for (i = 0; i < num_timers; i++)
		at += sysfs_emit_at(text, at, "%s %lld %lld\n", timers[i].name,
				    atomic64_read(&timers[i].calls),
				    atomic64_read(&timers[i].ns));
	return at;
}

static const struct kernel_param_ops time_ops = { .set = time_set, .get = time_get };
module_param_cb(time, &time_ops, NULL, 0600);

static int __init gpgpu_probes_init(void)
{
	return 0;
}
module_init(gpgpu_probes_init);

static void __exit gpgpu_probes_exit(void)
{
	fail_end();
	stretch_end();
	time_end();
}
module_exit(gpgpu_probes_exit);

MODULE_DESCRIPTION("Probes for the tests of virtio_gpgpu");
MODULE_LICENSE("GPL");
