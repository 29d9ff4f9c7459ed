/* SPDX-License-Identifier: BSD-2-Clause */
/* Visibility of bytes in GPU memory, and its cost in packets and in calls of the driver. */
#include <stdio.h>

#include "emulated/gpu_ends.h"
#include "support/gpu.h"

/* Cost of one operation of 4 KiB: packets of both ends, and calls of the driver. */
struct cost {
	uint64_t packets;
	unsigned flushes;
	struct pl_completion receipt;
};

static struct cost visible_transfer(struct gpu_ends *ends, bool write, struct pl_remote *remote,
				    enum pl_visible visible)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	unsigned flushes = emulated_flushes();
	uint64_t packets = emulated_packets();
	struct pl_operation *operation;
	struct pl_error error;
	struct cost cost;

	attributes.visible = visible;
	attributes.flags = PL_REQUIRE_DIRECT;
	check_ok((write ? pl_write : pl_read)(ends->environment.near_peer,
					      &(struct pl_transfer){ remote, 0, ends->host.region, 0, 4096 },
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
static struct cost cost_of(struct gpu_ends *ends, bool write, struct pl_remote *remote, enum pl_visible visible,
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
static void reopen_with_order(struct gpu_ends *ends, int ordering, int options)
{
	gpu_ends_close(ends);
	emulated_order(ordering, options);
	gpu_ends_open(ends);
}

static void visible_with(struct gpu_ends *ends, unsigned rights, enum pl_visible visible, uint64_t packets,
			 unsigned flushes)
{
	struct pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	uint8_t *memory = gpu_allocate(MIB);
	struct pl_region *region;
	struct pl_remote *remote;
	struct cost cost;

	region = gpu_ends_register(ends, memory, MIB);
	grant.rights = rights;
	remote = share(&ends->environment, region, ends->environment.near_peer, &grant);
	/* The first transfer makes all lasting objects, whose packets must not count. */
	visible_transfer(ends, true, remote, visible);
	pattern_fill(ends->host.bytes, MIB, 9, 0);
	cost = cost_of(ends, true, remote, visible, packets);
	check_number(cost.flushes, flushes);
	printf("rights %u: %s: %llu packets, %llu of them for visibility\n", rights, cost.receipt.visibility,
	       (unsigned long long)cost.packets, (unsigned long long)packets);
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	visible_transfer(ends, true, remote, visible);
	gpu_check_pattern(memory, 4096, 0);
	pl_remote_release(remote);
	check_number(pl_region_deregister(region), 0);
	gpu_free(memory);
	emulated_check_registered(0);
}

/* Checks that the bytes arrive, and that each visibility costs no more than the GPU and the grant require. */
void gpu_visible_case(struct gpu_ends *ends)
{
	const unsigned both = PL_ACCESS_READ | PL_ACCESS_WRITE;

	reopen_with_order(ends, 0, 0);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_GPU_VISIBLE, ASKED_PACKETS, 0);
	reopen_with_order(ends, 0, 1);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, DRIVER_PACKETS, 1);
	visible_with(ends, both, PL_VISIBLE_PLACED, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_PLACED, ASKED_PACKETS, 0);
	reopen_with_order(ends, 100, 1);
	visible_with(ends, both, PL_VISIBLE_GPU_VISIBLE, READ_PACKETS, 0);
	visible_with(ends, PL_ACCESS_WRITE, PL_VISIBLE_GPU_VISIBLE, ASKED_PACKETS, 0);
	emulated_order(0, 1);
}

/* Reads into this end's GPU, which the device makes visible by a read over a loopback queue pair. */
void gpu_loopback_case(struct gpu_ends *ends)
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

		reopen_with_order(ends, orders[i].ordering, orders[i].options);
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
		gpu_check_pattern(memory, 4096, 0);
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

static uint64_t count_notifying_packets(struct gpu_ends *ends, struct pl_remote *remote, uint64_t value, size_t length)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t packets = emulated_packets();
	struct pl_completion completion;
	struct pl_operation *operation;
	struct pl_completion receipt;
	struct pl_error error;

	attributes.flags = PL_NOTIFY;
	attributes.notify = value;
	check_ok(pl_write(ends->environment.near_peer, &(struct pl_transfer){ remote, 0, ends->host.region, 0, length },
			  &attributes, &operation, &error),
		 &error);
	complete(&ends->environment, operation, &receipt);
	collect(&ends->environment, ends->environment.far, &completion, 1);
	check_number(completion.kind, PL_KIND_NOTIFIED);
	check_number(completion.value, value);
	return emulated_packets_since(packets);
}

/*
 * Checks that a notification with a small value travels with its write, which saves a message and its acknowledgement.
 */
void gpu_notified_case(struct gpu_ends *ends)
{
	uint64_t small = UINT64_MAX, large = UINT64_MAX;
	struct pl_remote *remote;
	struct buffer target;

	gpu_kind = NULL;
	buffer_open(&target, ends->environment.far, MIB, PL_ACCESS_ALL);
	gpu_kind = "alloc";
	remote = share(&ends->environment, target.region, ends->environment.near_peer, NULL);
	pattern_fill(ends->host.bytes, MIB, 1, 0);
	count_notifying_packets(ends, remote, 1, 4096);
	for (unsigned i = 0; i < TRIES && (!i || large != small + 2); i++) {
		const uint64_t packets = count_notifying_packets(ends, remote, (1u << 22) - 1 - i, 1000),
			       more = count_notifying_packets(ends, remote, (1u << 22) + i, 1000);

		small = packets < small ? packets : small;
		large = more < large ? more : large;
	}
	check_number(large - small, 2);
	pattern_check(target.bytes, 4096, 1, 0);
	pl_remote_release(remote);
	buffer_close(&target);
}
