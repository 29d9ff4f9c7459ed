/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * emulated_gpu PATH [CASE...]: correct and incorrect use of GPU memory, with both ends in one process.
 * PATH, dmabuf or address, is the access path of the card to the memory.  After each case no registration may remain
 * and no client may have broken a rule of the driver.  Many cases repeat sanity tests of gdrcopy, which maps GPU memory
 * for the processor.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated/gpu_ends.h"
#include "support/gpu.h"

static void basic(struct gpu_ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = gpu_ends_register(ends, memory, MIB);
	struct pl_remote *remote;

	/* No peer imported the region yet, so the card has not registered it. */
	emulated_check_registered(0);
	remote = share(&ends->environment, region, ends->environment.near_peer, NULL);
	emulated_check_registered(1);
	gpu_ends_round_trip(ends, remote, 0, MIB);
	gpu_check_pattern(memory, MIB, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	gpu_free(memory);
}

/* Shares ranges that begin and end within pages, so that their pages hold bytes outside the grant. */
static void unaligned(struct gpu_ends *ends)
{
	static const struct {
		size_t begin, length;
	} ranges[] = { { 1, 1 }, { 4095, 2 }, { 65535, 2 }, { 65536, 65536 }, { 4097, 70001 }, { 100, MIB - 200 } };

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		size_t begin = ranges[i].begin, end = begin + ranges[i].length;
		uint8_t *memory = gpu_allocate(MIB);
		struct pl_region *region = gpu_ends_register(ends, memory + begin, ranges[i].length);
		struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

		gpu_ends_round_trip(ends, remote, 0, ranges[i].length);
		gpu_check_untouched(memory, begin);
		gpu_check_pattern(memory + begin, ranges[i].length, 0);
		gpu_check_untouched(memory + end, MIB - end);
		check_number(gpu_ends_transfer(ends, true, remote, ranges[i].length, 0, 1), -ERANGE);
		pl_remote_release(remote);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
}

/* Registers two regions of one GPU page.  The end of one region leaves the other usable. */
static void neighbours(struct gpu_ends *ends)
{
	uint8_t *memory = gpu_allocate(4096);
	struct pl_region *one = gpu_ends_register(ends, memory, 1000),
			 *other = gpu_ends_register(ends, memory + 1000, 1000);
	struct pl_remote *first = share(&ends->environment, one, ends->environment.near_peer, NULL);
	struct pl_remote *second = share(&ends->environment, other, ends->environment.near_peer, NULL);

	gpu_ends_round_trip(ends, second, 0, 1000);
	gpu_check_untouched(memory, 1000);
	gpu_check_pattern(memory + 1000, 1000, 0);
	gpu_check_untouched(memory + 2000, 2096);
	check_number(pl_region_deregister(other), 0);
	emulated_check_registered(1);
	gpu_ends_round_trip(ends, first, 0, 1000);
	pl_remote_release(first);
	pl_remote_release(second);
	check_number(pl_region_deregister(one), 0);
	gpu_free(memory);
}

/* Checks that the token is void after deregistration and that the memory stays as it is. */
static void used_after_deregistration(struct gpu_ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = gpu_ends_register(ends, memory, MIB);
	struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	check(gpu_ends_transfer(ends, true, remote, 0, 0, 4096) < 0);
	gpu_check_untouched(memory, MIB);
	pl_remote_release(remote);
	gpu_free(memory);
}

static void registered_after_free(struct gpu_ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region;
	struct pl_error error;

	gpu_free(memory);
	check_status(pl_region_register(ends->environment.far, memory, MIB, PL_ACCESS_ALL, &region, &error), -EFAULT,
		     &error);
	check_text(error.id, "MEMORY-UNMAPPED");
}

/* Frees one of two allocations while its region exists. */
static void one_of_two_freed(struct gpu_ends *ends)
{
	uint8_t *one = gpu_allocate(MIB), *other = gpu_allocate(MIB);
	struct pl_region *first = gpu_ends_register(ends, one, MIB), *second = gpu_ends_register(ends, other, MIB);
	struct pl_remote *remote = share(&ends->environment, first, ends->environment.near_peer, NULL);
	struct pl_remote *kept = share(&ends->environment, second, ends->environment.near_peer, NULL);

	gpu_free(one);
	gpu_ends_round_trip(ends, kept, 5, MIB - 5);
	pl_remote_release(remote);
	pl_remote_release(kept);
	check_number(pl_region_deregister(first), 0);
	check_number(pl_region_deregister(second), 0);
	gpu_free(other);
}

struct thread {
	struct gpu_ends *ends;
	uint8_t *memory;
	struct pl_region *region;
};

static void *register_there(void *argument)
{
	struct thread *thread = argument;

	thread->region = gpu_ends_register(thread->ends, thread->memory, MIB);
	return NULL;
}

/* Registers memory in a thread that ends before the memory is used. */
static void by_a_thread(struct gpu_ends *ends)
{
	struct thread thread = { .ends = ends, .memory = gpu_allocate(MIB) };
	struct pl_remote *remote;
	pthread_t id;

	check_number(pthread_create(&id, NULL, register_there, &thread), 0);
	check_number(pthread_join(id, NULL), 0);
	remote = share(&ends->environment, thread.region, ends->environment.near_peer, NULL);
	gpu_ends_round_trip(ends, remote, 0, MIB);
	pl_remote_release(remote);
	check_number(pl_region_deregister(thread.region), 0);
	gpu_free(thread.memory);
}

/* Forks children while the memory is registered and after it is freed.  A child's end must not end the registration. */
static void forked_case(struct gpu_ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = gpu_ends_register(ends, memory, MIB);
	struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

	for (int freed = 0; freed < 2; freed++) {
		pid_t child = fork();

		check(child >= 0);
		/* The child's copy of the address range has no memory behind it. */
		if (!child)
			_exit(0);
		check_number(process_wait(child), 0);
		if (freed)
			break;
		emulated_check_registered(1);
		gpu_ends_round_trip(ends, remote, 7, MIB - 7);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
	pl_remote_release(remote);
}

static void hold_region(struct gpu_ends *ends, int told)
{
	struct pl_region *region = gpu_ends_register(ends, gpu_allocate(MIB), MIB);

	share(&ends->environment, region, ends->environment.near_peer, NULL);
	check_number(write(told, "x", 1), 1);
	pause();
}

/* Kills a process that has a region.  The kernel must release its registration. */
static void killed_case(struct gpu_ends *ends)
{
	int told[2];
	pid_t child;
	char byte;

	(void)ends;
	check_number(pipe(told), 0);
	child = fork();
	check(child >= 0);
	if (!child) {
		char descriptor[12];

		snprintf(descriptor, sizeof(descriptor), "%d", told[1]);
		execlp("emulated_gpu", "emulated_gpu", emulated_chosen_path == PATH_DMABUF ? "dmabuf" : "address",
		       "hold", descriptor, NULL);
		_exit(127);
	}
	close(told[1]);
	check_number(read(told[0], &byte, 1), 1);
	close(told[0]);
	emulated_check_registered(1);
	process_kill(child, SIGKILL);
	for (int i = 0; i < 6000 && emulated_dmabufs() + emulated_pins(); i++)
		sleep_ms(10);
	emulated_check_registered(0);
}

/* Leaves a region to the closing of its context. */
static void left_open(struct gpu_ends *ends)
{
	struct pl_context *context = context_open(&gpu_setting);
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region;
	struct pl_error error;

	(void)ends;
	check_ok(pl_region_register(context, memory, MIB, PL_ACCESS_ALL, &region, &error), &error);
	check_ok(pl_region_copy_in(region, 0, ends->host.bytes, 100, &error), &error);
	emulated_copied();
	pl_close(context);
	emulated_check_registered(0);
	gpu_free(memory);
}

/*
 * Maps several handles next to each other, as PyTorch does.  A dma-buf or a pin covers one handle.  This driver shares
 * none.
 */
static void mapped(struct gpu_ends *ends)
{
	struct pl_region *region;
	struct pl_remote *remote;
	uint8_t *memory;

	gpu_kind = "private";
	memory = gpu_allocate(MIB);
	region = gpu_ends_register(ends, memory + 33, MIB - 33);
	remote = share(&ends->environment, region, ends->environment.near_peer, NULL);
	gpu_ends_round_trip(ends, remote, 0, MIB - 33);
	gpu_check_pattern(memory + 33, MIB - 33, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	gpu_kind = "alloc";
}

static const struct {
	const char *name;
	void (*run)(struct gpu_ends *ends);
} cases[] = {
	{ "basic", basic },
	{ "unaligned", unaligned },
	{ "neighbours", neighbours },
	{ "used after deregistration", used_after_deregistration },
	{ "registered after free", registered_after_free },
	{ "one of two freed", one_of_two_freed },
	{ "by a thread", by_a_thread },
	{ "forked", forked_case },
	{ "killed", killed_case },
	{ "left open", left_open },
	{ "mapped", mapped },
	{ "visible", gpu_visible_case },
	{ "visible here", gpu_loopback_case },
	{ "notified", gpu_notified_case },
	{ "messages", gpu_messages_case },
	{ "dma-buf", gpu_dmabuf_case },
};

int main(int count, char **arguments)
{
	struct gpu_ends ends;

	if (count < 2)
		return 2;
	emulated_open(arguments[1]);
	if (count == 4 && !strcmp(arguments[2], "hold")) {
		gpu_ends_open(&ends);
		hold_region(&ends, atoi(arguments[3]));
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (count > 2 && strcmp(arguments[2], cases[i].name))
			continue;
		printf("%s\n", cases[i].name);
		gpu_ends_open(&ends);
		cases[i].run(&ends);
		gpu_ends_close(&ends);
		emulated_check_registered(0);
	}
	return 0;
}
