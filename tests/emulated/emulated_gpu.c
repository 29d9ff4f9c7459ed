/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * emulated_gpu PATH [CASE...]: correct and incorrect use of GPU memory, with both ends in one process.
 * PATH, dmabuf or address, is the access path of the card to the memory.  After each case no registration may remain
 * and no client may have broken a rule of the driver.  Many cases repeat sanity tests of gdrcopy, which maps GPU memory
 * for the processor.
 */
#include <errno.h>
#include <fcntl.h>
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

/* Both ends: one has host memory with a pattern, the other has the GPU. */
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

static int transfer_bytes_at(struct ends *ends, bool write, struct pl_remote *remote, size_t remote_offset,
			     size_t offset, size_t length)
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

/*
 * Writes the pattern and reads it back to the second half of the host memory.  Checks that the copy engine stays idle.
 */
static void there_and_back(struct ends *ends, struct pl_remote *remote, size_t at, size_t length)
{
	memset(ends->host.bytes + MIB, 0, MIB);
	check_number(transfer_bytes_at(ends, true, remote, at, 0, length), 0);
	check_number(transfer_bytes_at(ends, false, remote, at, MIB, length), 0);
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

/* Checks memory that was not written since its allocation. */
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

	/* No peer imported the region yet, so the card has not registered it. */
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

/* Shares ranges that begin and end within pages, so that their pages hold bytes outside the grant. */
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
		check_number(transfer_bytes_at(ends, true, remote, parts[i].length, 0, 1), -ERANGE);
		pl_remote_release(remote);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
}

/* Registers two regions of one GPU page.  The end of one region leaves the other usable. */
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

/* Checks that the token is void after deregistration and that the memory stays as it is. */
static void used_after_deregistration(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB);
	struct pl_remote *remote = share(&ends->environment, region, ends->environment.near_peer, NULL);

	check_number(pl_region_deregister(region), 0);
	emulated_check_registered(0);
	check(transfer_bytes_at(ends, true, remote, 0, 0, 4096) < 0);
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

/* Frees one of two allocations while its region exists. */
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

/* Registers memory in a thread that ends before the memory is used. */
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

/* Forks children while the memory is registered and after it is freed.  A child's end must not end the registration. */
static void forked_case(struct ends *ends)
{
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB);
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
		there_and_back(ends, remote, 7, MIB - 7);
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
	}
	pl_remote_release(remote);
}

static void hold_region(struct ends *ends, int told)
{
	struct pl_region *region = registered(ends, gpu_allocate(MIB), MIB);

	share(&ends->environment, region, ends->environment.near_peer, NULL);
	check_number(write(told, "x", 1), 1);
	pause();
}

/* Kills a process that has a region.  The kernel must release its registration. */
static void killed_case(struct ends *ends)
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
	for (int i = 0; i < 500 && emulated_dmabufs() + emulated_pins(); i++)
		sleep_ms(10);
	emulated_check_registered(0);
}

/* Leaves a region to the closing of its context. */
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

/*
 * Maps several handles next to each other, as PyTorch does.  A dma-buf or a pin covers one handle.  This driver shares
 * none.
 */
static void mapped(struct ends *ends)
{
	struct pl_region *region;
	struct pl_remote *remote;
	uint8_t *memory;

	gpu_kind = "private";
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

/* -- visibility ------------------------------------------------------------------------------------ */

/* Cost of one operation of 4 KiB: packets of both ends, and calls of the driver. */
struct cost {
	uint64_t packets;
	unsigned flushes;
	struct pl_receipt receipt;
};

static struct cost visible_transfer(struct ends *ends, bool write, struct pl_remote *remote, enum pl_visible visible)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	unsigned flushes = emulated_flushes();
	uint64_t packets = emulated_packets();
	struct pl_operation *operation;
	struct pl_error error;
	struct cost cost;

	attributes.visible = visible;
	attributes.flags = PL_REQUIRE_DIRECT;
	check_ok((write ? pl_write : pl_read)(ends->environment.near_peer, remote, 0, ends->host.region, 0, 4096,
					      &attributes, &operation, &error),
		 &error);
	check_number(await(&ends->environment, operation, &cost.receipt, &error), 0);
	check_number(cost.receipt.visible, visible);
	check(cost.receipt.visibility);
	cost.packets = emulated_packets_since(packets);
	cost.flushes = emulated_flushes() - flushes;
	return cost;
}

/* Number of tries, of which the one with the fewest packets counts: a busy machine sends some packets twice. */
#define TRIES 4

static void keep_least(struct cost *least, struct cost cost)
{
	check_number(cost.flushes, least->flushes);
	if (cost.packets < least->packets)
		*least = cost;
}

/* Returns the cost of a transfer with this visibility.  Checks that it takes exactly `packets` more than without. */
static struct cost cost_of(struct ends *ends, bool write, struct pl_remote *remote, enum pl_visible visible,
			   uint64_t packets)
{
	struct cost plain = visible_transfer(ends, write, remote, PL_VISIBLE_ACKNOWLEDGED),
		    cost = visible_transfer(ends, write, remote, visible);

	check_number(plain.flushes, 0);
	for (unsigned i = 1; i < TRIES && cost.packets != plain.packets + packets; i++) {
		keep_least(&plain, visible_transfer(ends, write, remote, PL_VISIBLE_ACKNOWLEDGED));
		keep_least(&cost, visible_transfer(ends, write, remote, visible));
	}
	check_number(cost.packets, plain.packets + packets);
	return cost;
}

/*
 * Additional packets of a level of visibility: a read-back with its answer; a request to the peer, which reads back;
 * and a request to the peer, which calls the driver.
 */
#define READ_PACKETS 2
#define ASKED_PACKETS 6
#define DRIVER_PACKETS 4

/* Sets the ordering and reopens both ends, as the library queries a GPU once while any of its objects exists. */
static void order_anew(struct ends *ends, int ordering, int options)
{
	close_ends(ends);
	emulated_order(ordering, options);
	open_ends(ends);
}

static void visible_with(struct ends *ends, unsigned rights, enum pl_visible visible, uint64_t packets,
			 unsigned flushes)
{
	struct pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region;
	struct pl_remote *remote;
	struct cost cost;

	region = registered(ends, memory, MIB);
	grant.rights = rights;
	remote = share(&ends->environment, region, ends->environment.near_peer, &grant);
	/* This transfer makes all lasting objects, whose packets must not count. */
	visible_transfer(ends, true, remote, visible);
	pattern_fill(ends->host.bytes, MIB, 9, 0);
	cost = cost_of(ends, true, remote, visible, packets);
	check_number(cost.flushes, flushes);
	printf("rights %u: %s: %llu packets, %llu of them for visibility\n", rights, cost.receipt.visibility,
	       (unsigned long long)cost.packets, (unsigned long long)packets);
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	visible_transfer(ends, true, remote, visible);
	check_memory(memory, 4096, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	emulated_check_registered(0);
}

/* Checks that the bytes arrive, and that each visibility costs no more than the GPU and the grant require. */
static void visible(struct ends *ends)
{
	const unsigned both = PL_ACCESS_READ | PL_ACCESS_WRITE;

	order_anew(ends, 0, 0);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_GPU_VISIBLE, ASKED_PACKETS, 0);
	order_anew(ends, 0, 1);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, DRIVER_PACKETS, 1);
	visible_with(ends, both, PL_VISIBLE_PLACED, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_PLACED, ASKED_PACKETS, 0);
	order_anew(ends, 100, 1);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_GPU_VISIBLE, ASKED_PACKETS, 0);
	emulated_order(0, 1);
}

/* Reads into this end's GPU, which the device makes visible by a read over a loopback queue pair. */
static void visible_here(struct ends *ends)
{
	static const struct {
		int ordering, options;
		uint64_t packets;
		unsigned flushes;
	} orders[] = { { 0, 0, READ_PACKETS, 0 }, { 0, 1, 0, 1 }, { 100, 1, 0, 0 } };

	for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
		uint8_t *memory = gpu_allocate(MIB);
		struct pl_region *host, *region;
		struct buffer source;
		struct pl_remote *remote;
		struct pl_error error;
		struct cost cost;

		order_anew(ends, orders[i].ordering, orders[i].options);
		host = ends->host.region;
		gpu_kind = NULL;
		buffer_open(&source, ends->environment.far, MIB, PL_ACCESS_ALL);
		gpu_kind = "alloc";
		pattern_fill(source.bytes, MIB, 1, 0);
		remote = share(&ends->environment, source.region, ends->environment.near_peer, NULL);
		check_ok(pl_region_register(ends->environment.near, memory, MIB, PL_ACCESS_ALL, &region, &error),
			 &error);
		ends->host.region = region;
		visible_transfer(ends, false, remote, PL_VISIBLE_GPU_VISIBLE);
		cost = cost_of(ends, false, remote, PL_VISIBLE_GPU_VISIBLE, orders[i].packets);
		check_memory(memory, 4096, 0);
		printf("order %d, options %d: %s\n", orders[i].ordering, orders[i].options, cost.receipt.visibility);
		check_number(cost.flushes, orders[i].flushes);
		ends->host.region = host;
		check_number(pl_region_deregister(region), 0);
		gpu_free(memory);
		pl_remote_release(remote);
		buffer_close(&source);
	}
	emulated_order(0, 1);
}

static uint64_t notifying(struct ends *ends, struct pl_remote *remote, uint64_t value, size_t length)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t packets = emulated_packets();
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_receipt receipt;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	attributes.notify = value;
	check_ok(pl_write(ends->environment.near_peer, remote, 0, ends->host.region, 0, length, &attributes, &operation,
			  &error),
		 &error);
	complete(&ends->environment, operation, &receipt);
	collect(&ends->environment, ends->environment.far, &completion, 1);
	check_number(completion.receipt.kind, PL_KIND_NOTIFIED);
	check_number(completion.receipt.value, value);
	return emulated_packets_since(packets);
}

/*
 * Checks that a notification with a small value travels with its write, which saves a message and its acknowledgement.
 */
static void notified_case(struct ends *ends)
{
	uint64_t small = UINT64_MAX, large = UINT64_MAX;
	struct pl_remote *remote;
	struct buffer target;

	gpu_kind = NULL;
	buffer_open(&target, ends->environment.far, MIB, PL_ACCESS_ALL);
	gpu_kind = "alloc";
	remote = share(&ends->environment, target.region, ends->environment.near_peer, NULL);
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	notifying(ends, remote, 1, 4096);
	for (unsigned i = 0; i < TRIES && (!i || large != small + 2); i++) {
		const uint64_t packets = notifying(ends, remote, (1u << 22) - 1 - i, 1000),
			       more = notifying(ends, remote, (1u << 22) + i, 1000);

		small = packets < small ? packets : small;
		large = more < large ? more : large;
	}
	check_number(large - small, 2);
	pattern_check(target.bytes, 4096, 1, 0);
	pl_remote_release(remote);
	buffer_close(&target);
}

/* Sends from GPU memory at the far end.  The device reads the bytes itself.  A small `tag` travels without a header. */
static void send_from(struct ends *ends, struct pl_region *region, uint64_t tag, size_t offset, size_t length)
{
	struct pl_operation *sending, *receiving;
	struct pl_attributes direct = PL_ATTRIBUTES_INIT;
	struct pl_receipt receipt;
	struct pl_error error;

	direct.flags = PL_REQUIRE_DIRECT;
	memset(ends->host.bytes + MIB, 0, length);
	check_ok(pl_receive(ends->environment.near_peer, tag, UINT64_MAX, ends->host.region, MIB, length, NULL,
			    &receiving, &error),
		 &error);
	check_ok(pl_send(ends->environment.far_peer, tag, region, offset, length, &direct, &sending, &error), &error);
	check_ok(await(&ends->environment, sending, &receipt, &error), &error);
	check_number(receipt.bytes_direct, length);
	check_ok(await(&ends->environment, receiving, &receipt, &error), &error);
	check_number(receipt.bytes, length);
	check_number(emulated_copied(), 0);
	pattern_check(ends->host.bytes + MIB, length, 1, offset);
}

/* Receives into GPU memory, and checks the order, the bytes and the memory around them. */
static void receive_into(struct ends *ends, struct pl_region *region, const uint8_t *memory)
{
	enum { COUNT = 100, LENGTH = 40, STRIDE = 64 };
	struct pl_operation *operations[COUNT];
	uint8_t bytes[STRIDE];
	struct pl_error error;

	for (size_t i = 0; i < COUNT; i++)
		check_ok(pl_receive(ends->environment.far_peer, 0, 0, region, i * STRIDE, STRIDE, NULL, &operations[i],
				    &error),
			 &error);
	for (size_t i = 0; i < COUNT; i++)
		check_ok(pl_send_copy(ends->environment.near_peer, i, ends->host.bytes + i, LENGTH, NULL, NULL, &error),
			 &error);
	for (size_t i = 0; i < COUNT; i++) {
		struct pl_receipt receipt;

		check_ok(await(&ends->environment, operations[i], &receipt, &error), &error);
		check_number(receipt.tag, i);
		check_number(receipt.bytes_staged, LENGTH);
		gpu_copy_out(memory + i * STRIDE, bytes, sizeof(bytes));
		pattern_check(bytes, LENGTH, 1, i);
		value_check(bytes + LENGTH, STRIDE - LENGTH, 0xa5);
	}
	collect(&ends->environment, ends->environment.near, (struct pl_completion[COUNT]){ 0 }, COUNT);
	emulated_copied();
}

static void messages_case(struct ends *ends)
{
	static const size_t lengths[] = { 1, 8, 4096, PL_SEND_COPY_MAX };
	uint8_t *memory = gpu_allocate(MIB), *target = gpu_allocate(MIB);
	struct pl_region *region = registered(ends, memory, MIB), *there = registered(ends, target, MIB);

	gpu_copy_in(memory, ends->host.bytes, MIB);
	emulated_copied();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		send_from(ends, region, 7, 100 * i, lengths[i]);
		send_from(ends, region, UINT64_MAX - 1, 100 * i + 3, lengths[i]);
	}
	emulated_check_registered(1);
	receive_into(ends, there, target);
	check_number(pl_region_deregister(region), 0);
	check_number(pl_region_deregister(there), 0);
	gpu_free(memory);
	gpu_free(target);
}

/* -- dma-buf from the program ------------------------------------------------------------------------ */

#define PLACE ((size_t)8192 + 100)

static struct pl_region *register_exported(struct pl_context *context, uint8_t *memory, bool mappable, void *address)
{
	int fd = emulated_export(memory, MIB, mappable);
	struct pl_region *region;
	struct pl_error error;

	check_ok(pl_region_register_dmabuf(context, fd, PLACE, MIB - PLACE, address, PL_ACCESS_ALL, &region, &error),
		 &error);
	close(fd);
	check_number(pl_region_length(region), MIB - PLACE);
	return region;
}

/*
 * Lets a peer write, read and modify a dma-buf over any fabric.  The processor copies the memory if it can be mapped.
 */
static void use_dmabuf(struct scenario_environment *environment, struct buffer *host, bool mappable, bool address)
{
	static const char word[8] = { 1 };
	uint8_t *memory = gpu_allocate(MIB), bytes[1000];
	struct pl_region *region =
		register_exported(environment->far, memory, mappable, address ? memory + PLACE : NULL);
	bool reached = mappable || address;
	struct pl_operation *operation;
	struct pl_remote *remote;
	struct pl_receipt receipt;
	struct pl_error error;
	uint64_t old = 0;

	check_text(pl_region_memory(region), address ? "cuda" : "dma-buf");
	check(!pl_region_address(region) == !reached);
	remote = share(environment, region, environment->near_peer, NULL);
	pattern_fill(host->bytes, MIB, 1, 0);
	check_ok(pl_write(environment->near_peer, remote, 0, host->region, 0, MIB - PLACE, NULL, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	check_memory(memory + PLACE, MIB - PLACE, 0);
	check_untouched(memory, PLACE);
	check_ok(pl_read(environment->near_peer, remote, 1, host->region, MIB, 70000, NULL, &operation, &error),
		 &error);
	complete(environment, operation, &receipt);
	pattern_check(host->bytes + MIB, 70000, 1, 1);
	check_number(pl_region_copy_out(region, 5, bytes, sizeof(bytes), NULL), reached ? 0 : -EFAULT);
	if (reached) {
		pattern_check(bytes, sizeof(bytes), 1, 5);
		check_ok(pl_region_copy_in(region, 4, word, sizeof(word), &error), &error);
		check_ok(pl_fetch_add(environment->near_peer, remote, 4, 41, &old, NULL, &operation, &error), &error);
		complete(environment, operation, &receipt);
		check_number(old, 1);
	}
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	emulated_check_registered(0);
}

static void dmabufs_refused(struct ends *ends)
{
	struct pl_options options = setting_options(&setting);
	uint8_t *memory = gpu_allocate(MIB);
	int fd = emulated_export(memory, MIB, false), none = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct pl_context *tcp;
	struct pl_region *region;
	struct pl_error error;

	check_status(pl_region_register_dmabuf(ends->environment.far, fd, MIB - 10, 11, NULL, 0, &region, &error),
		     -ERANGE, &error);
	check_text(error.id, "DMABUF-RANGE");
	check_status(pl_region_register_dmabuf(ends->environment.far, none, 0, 10, NULL, 0, &region, &error), -EINVAL,
		     &error);
	check_text(error.id, "DMABUF-FD");
	close(none);
	check_status(pl_region_register_dmabuf(ends->environment.far, none, 0, 10, NULL, 0, &region, &error), -EBADF,
		     &error);
	/* Without a card no transport reaches this dma-buf. */
	options.fabric = "tcp";
	tcp = context_open_with(&options);
	check_status(pl_region_register_dmabuf(tcp, fd, 0, MIB, NULL, 0, &region, &error), -ENOTSUP, &error);
	check_text(error.id, "DMABUF-UNREACHABLE");
	pl_close(tcp);
	close(fd);
	gpu_free(memory);
	emulated_check_registered(0);
}

static void dmabuf_case(struct ends *ends)
{
	static const struct setting others[] = {
		{ .name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .streams = 1, .slow = true },
		{ .name = "local", .fabric = "local", .host = "127.0.0.1", .streams = 1, .slow = true },
	};

	/* A device of the other access path does not import a dma-buf. */
	for (unsigned kind = emulated_chosen_path == PATH_DMABUF ? 0 : 2; kind < 4; kind++)
		use_dmabuf(&ends->environment, &ends->host, kind % 2, kind / 2);
	dmabufs_refused(ends);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct scenario_environment environment;
		struct buffer host;

		environment_open(&environment, &others[i]);
		gpu_kind = NULL;
		buffer_open(&host, environment.near, 2 * MIB, PL_ACCESS_ALL);
		gpu_kind = "alloc";
		use_dmabuf(&environment, &host, true, false);
		use_dmabuf(&environment, &host, false, true);
		buffer_close(&host);
		environment_close(&environment);
	}
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
	{ "forked", forked_case },
	{ "killed", killed_case },
	{ "left open", left_open },
	{ "mapped", mapped },
	{ "visible", visible },
	{ "visible here", visible_here },
	{ "notified", notified_case },
	{ "messages", messages_case },
	{ "dma-buf", dmabuf_case },
};

int main(int count, char **arguments)
{
	struct ends ends;

	if (count < 2)
		return 2;
	emulated_open(arguments[1]);
	if (count == 4 && !strcmp(arguments[2], "hold")) {
		open_ends(&ends);
		hold_region(&ends, atoi(arguments[3]));
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
