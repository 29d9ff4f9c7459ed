/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * emulated_gpu WAY [CASE...]: what programs do with GPU memory, right and wrong, with both ends in one process and the
 * memory reached in that way, dmabuf or address.  After each case nothing is registered and nothing was done to the
 * driver that may not be.  Much of it is what gdrcopy, which maps GPU memory for the processor, has as its sanity tests.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emulated/emulated.h"
#include "support/environment.h"
#include "support/gpu.h"

#define MIB ((size_t)1 << 20)

static const struct setting setting = {
	.name = "emulated",
	.fabric = "verbs",
	.host = "10.0.0.2",
	.progress = PL_PROGRESS_THREAD,
	.streams = 1,
	.one_sided = true,
	.slow = true,
};

/* One end has memory of the host with a pattern, the other the GPU. */
struct ends {
	struct scenario_environment environment;
	struct buffer host;
};

static void open_ends(struct ends *ends)
{
	environment_open(&ends->environment, &setting);
	gpu_kind = NULL;
	buffer_open(&ends->host, ends->environment.near, 2 * MIB, PL_ACCESS_ALL);
	gpu_kind = "alloc";
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	emulated_copied();
}

static void close_ends(struct ends *ends)
{
	buffer_close(&ends->host);
	environment_close(&ends->environment);
}

static struct pl_region *registered(struct ends *ends, void *memory, size_t length)
{
	struct pl_region *region;
	struct pl_error error;

	check_ok(pl_region_register(ends->environment.far, memory, length, PL_ACCESS_ALL, &region, &error), &error);
	return region;
}

static int transfer(struct ends *ends, bool write, struct pl_remote *remote, size_t remote_offset, size_t offset,
		    size_t length)
{
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_operation *operation;
	struct pl_receipt receipt;
	struct pl_error error;
	int rc;

	direct.flags = PL_REQUIRE_DIRECT;
	rc = (write ? pl_write : pl_read)(ends->environment.near_peer, remote, remote_offset, ends->host.region, offset,
					  length, &direct, &operation, &error);
	if (rc == 0)
		rc = await(&ends->environment, operation, &receipt, &error);
	if (rc == 0)
		check_number(receipt.bytes_direct, length);
	return rc;
}

/* Writes the pattern there and reads it back to the second half of the host's memory, past the copy engine. */
static void there_and_back(struct ends *ends, struct pl_remote *remote, size_t at, size_t length)
{
	memset(ends->host.bytes + MIB, 0, MIB);
	check_number(transfer(ends, true, remote, at, 0, length), 0);
	check_number(transfer(ends, false, remote, at, MIB, length), 0);
	check_number(emulated_copied(), 0);
	pattern_check(ends->host.bytes + MIB, length, 1, 0);
}

static void check_memory(const uint8_t *memory, size_t length, uint64_t position)
{
	uint8_t *copy = malloc(length);

	check(copy);
	gpu_copy_out(memory, copy, length);
	pattern_check(copy, length, 1, position);
	free(copy);
	emulated_copied();
}

/* Memory that nobody wrote to since it was allocated. */
static void check_untouched(const uint8_t *memory, size_t length)
{
	uint8_t *copy = malloc(length);

	check(copy);
	gpu_copy_out(memory, copy, length);
	value_check(copy, length, 0xa5);
	free(copy);
	emulated_copied();
}

static void basic(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB);
	struct pl_remote *remote;

	/* Nobody has asked for it yet. */
	emulated_check_registered(0);
	remote = share(&ends->environment, region, ends->environment.near_peer, NULL);
	emulated_check_registered(1);
	there_and_back(ends, remote, 0, MIB);
	check_memory(memory, MIB, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	gpu_free(memory);
}

/* Parts that begin and end anywhere, so that pages come along which are not shared. */
static void unaligned(struct ends *ends)
{
	static const struct {
		size_t begin, length;
	} parts[] = { { 1, 1 }, { 4095, 2 }, { 65535, 2 }, { 65536, 65536 }, { 4097, 70001 }, { 100, MIB - 200 } };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		size_t begin = parts[i].begin, end = begin + parts[i].length;
		uint8_t *memory = gpu_allocate(MIB);
		struct pl_region *region = registered(ends, memory + begin, parts[i].length);
		struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

		there_and_back(ends, remote, 0, parts[i].length);
		check_untouched(memory, begin);
		check_memory(memory + begin, parts[i].length, 0);
		check_untouched(memory + end, MIB - end);
		check_number(transfer(ends, true, remote, parts[i].length, 0, 1), -ERANGE);
		pl_remote_release(remote);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
}

/* Two regions of one page of the GPU's; when one goes, the other stays. */
static void neighbours(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(4096);
	struct pl_region *one = registered(ends, memory, 1000), *other = registered(ends, memory + 1000, 1000);
	struct pl_remote *first = share(&ends->environment, one, ends->environment.near_peer, NULL);
	struct pl_remote *second = share(&ends->environment, other, ends->environment.near_peer, NULL);

	there_and_back(ends, second, 0, 1000);
	check_untouched(memory, 1000);
	check_memory(memory + 1000, 1000, 0);
	check_untouched(memory + 2000, 2096);
	check_number(pl_region_deregister(other), 0);
	emulated_check_registered(1);
	there_and_back(ends, first, 0, 1000);
	pl_remote_release(first);
	pl_remote_release(second);
	check_number(pl_region_deregister(one), 0);
	gpu_free(memory);
}

/* The token is of no use any more, and the memory stays as it is. */
static void used_after_deregistration(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB);
	struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	check(transfer(ends, true, remote, 0, 0, 4096) < 0);
	check_untouched(memory, MIB);
	pl_remote_release(remote);
	gpu_free(memory);
}

static void registered_after_free(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region;
	struct pl_error error;

	gpu_free(memory);
	check_status(pl_region_register(ends->environment.far, memory, MIB, PL_ACCESS_ALL, &region, &error), -EFAULT,
		     &error);
	check_text(error.id, "MEMORY-UNMAPPED");
}

/* Two allocations; one is freed under its region. */
static void one_of_two_freed(struct ends *ends)
{
	uint8_t *one = gpu_allocate(MIB), *other = gpu_allocate(MIB);
	struct pl_region *first = registered(ends, one, MIB), *second = registered(ends, other, MIB);
	struct pl_remote *remote = share(&ends->environment, first, ends->environment.near_peer, NULL);
	struct pl_remote *kept = share(&ends->environment, second, ends->environment.near_peer, NULL);

	gpu_free(one);
	there_and_back(ends, kept, 5, MIB - 5);
	pl_remote_release(remote);
	pl_remote_release(kept);
	check_number(pl_region_deregister(first), 0);
	check_number(pl_region_deregister(second), 0);
	gpu_free(other);
}

struct thread {
	struct ends *ends;
	uint8_t *memory;
	struct pl_region *region;
};

static void *register_there(void *argument)
{
	struct thread *thread = argument;

	thread->region = registered(thread->ends, thread->memory, MIB);
	return NULL;
}

/* By a thread that is gone when it is used. */
static void by_a_thread(struct ends *ends)
{
	struct thread thread = { .ends = ends, .memory = gpu_allocate(MIB) };
	struct pl_remote *remote;
	pthread_t id;

	check_number(pthread_create(&id, NULL, register_there, &thread), 0);
	check_number(pthread_join(id, NULL), 0);
	remote = share(&ends->environment, thread.region, ends->environment.near_peer, NULL);
	there_and_back(ends, remote, 0, MIB);
	pl_remote_release(remote);
	check_number(pl_region_deregister(thread.region), 0);
	gpu_free(thread.memory);
}

/* Children come and go, while the memory is registered and when it was freed; none takes anything along. */
static void forked(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB);
	struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

	for (int freed = 0; freed < 2; freed++) {
		pid_t child = fork();

		check(child >= 0);
		/* Its copy of the memory's addresses has nothing behind it. */
		if (!child)
			_exit(0);
		check_number(process_wait(child), 0);
		if (freed)
			break;
		emulated_check_registered(1);
		there_and_back(ends, remote, 7, MIB - 7);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
	pl_remote_release(remote);
}

static void hold(struct ends *ends, int told)
{
	struct pl_region *region = registered(ends, gpu_allocate(MIB), MIB);

	share(&ends->environment, region, ends->environment.near_peer, NULL);
	check_number(write(told, "x", 1), 1);
	pause();
}

/* A process with a region of its own is killed: the kernel takes it all back. */
static void killed(struct ends *ends)
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
		execlp("emulated_gpu", "emulated_gpu", emulated_way == WAY_DMABUF ? "dmabuf" : "address", "hold",
		       descriptor, NULL);
		_exit(127);
	}
	close(told[1]);
	check_number(read(told[0], &byte, 1), 1);
	close(told[0]);
	emulated_check_registered(1);
	process_kill(child, SIGKILL);
	for (int i = 0; i < 500 && emulated_dmabufs() + emulated_pins(); i++)
		sleep_ms(10);
	emulated_check_registered(0);
}

/* A region that is left to the closing of its context. */
static void left_open(struct ends *ends)
{
	struct pl_context *context = context_open(&setting);
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

/* Several handles side by side, as PyTorch has it: a dma-buf or a pin is of one. */
static void mapped(struct ends *ends)
{
	struct pl_region *region;
	struct pl_remote *remote;
	uint8_t *memory;

	gpu_kind = "mapped";
	memory = gpu_allocate(MIB);
	region = registered(ends, memory + 33, MIB - 33);
	remote = share(&ends->environment, region, ends->environment.near_peer, NULL);
	there_and_back(ends, remote, 0, MIB - 33);
	check_memory(memory + 33, MIB - 33, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	gpu_kind = "alloc";
}

static const struct {
	const char *name;
	void (*run)(struct ends *ends);
} cases[] = {
	{ "basic", basic },
	{ "unaligned", unaligned },
	{ "neighbours", neighbours },
	{ "used after deregistration", used_after_deregistration },
	{ "registered after free", registered_after_free },
	{ "one of two freed", one_of_two_freed },
	{ "by a thread", by_a_thread },
	{ "forked", forked },
	{ "killed", killed },
	{ "left open", left_open },
	{ "mapped", mapped },
};

int main(int count, char **arguments)
{
	struct ends ends;

	if (count < 2)
		return 2;
	emulated_open(arguments[1]);
	if (count == 4 && !strcmp(arguments[2], "hold")) {
		open_ends(&ends);
		hold(&ends, atoi(arguments[3]));
	}
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (count > 2 && strcmp(arguments[2], cases[i].name))
			continue;
		printf("%s\n", cases[i].name);
		open_ends(&ends);
		cases[i].run(&ends);
		close_ends(&ends);
		emulated_check_registered(0);
	}
	return 0;
}
