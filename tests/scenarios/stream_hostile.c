/* SPDX-License-Identifier: BSD-2-Clause */
/* Subscribers that write: their keys of the ring claim all rights, and allow reads. */
#include <stdlib.h>
#include <sys/mman.h>

#include <peerlane/stream.h>

#include "scenarios/scenario.h"
#include "support/frames.h"
#include "support/hostile_ring.h"

#define SLOT 5000u
#define SLOTS 4u

/* A ring, its contents, and a connection for one attempt. */
struct ring {
	struct scenario_environment *environment;
	struct pl_publisher *publisher;
	struct pump pump;
	struct buffer bytes; /* that are written */
	uint8_t *kept[2];    /* the control part, the payload */
};

static void ring_keep(struct ring *ring)
{
	for (unsigned i = 0; i < 2; i++) {
		size_t length;
		const uint8_t *bytes = ring_bytes(ring->publisher, i, &length);

		free(ring->kept[i]);
		ring->kept[i] = malloc(length);
		check(ring->kept[i]);
		memcpy(ring->kept[i], bytes, length);
	}
}

static void ring_check(const struct ring *ring)
{
	for (unsigned i = 0; i < 2; i++) {
		size_t length;
		const uint8_t *bytes = ring_bytes(ring->publisher, i, &length);

		check(!memcmp(bytes, ring->kept[i], length));
	}
}

static void ring_open(struct ring *ring, struct scenario_environment *environment)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(ring, 0, sizeof(*ring));
	ring->environment = environment;
	pump_start(environment, &ring->pump, environment->far);
	options.slot_bytes = SLOT;
	options.slots = SLOTS;
	check_ok(pl_publisher_open(environment->far, "ring", &options, &ring->publisher, &error), &error);
	for (unsigned i = 0; i < SLOTS; i++)
		publish_filled(ring->publisher, SLOT);
	buffer_open(&ring->bytes, environment->near, 64, PL_ACCESS_LOCAL);
	bytes_set(ring->bytes.bytes, 0x5a, 64);
}

static void ring_close(struct ring *ring)
{
	buffer_close(&ring->bytes);
	pump_stop(&ring->pump);
	pl_publisher_close(ring->publisher);
	for (unsigned i = 0; i < 2; i++)
		free(ring->kept[i]);
}

/* Subscribes to the history, and takes a frame: so the keys are there, and have been used. */
static struct pl_subscriber *ring_subscribe(struct ring *ring)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc;

	options.start = PL_START_LATEST;
	check_ok(pl_subscriber_open(ring->environment->near_peer, "ring", &options, AMPLE_TIME, &subscriber, &error),
		 &error);
	rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error);
	check_ok(rc < 0 ? rc : 0, &error);
	check(pl_frame_query(frame, &info) == 0 && info.length == SLOT);
	pattern_check(info.data, SLOT, info.sequence, 0);
	pl_frame_release(frame);
	return subscriber;
}

/* Posts one operation that changes memory of the ring. */
static int post_change(struct ring *ring, struct pl_remote *remote, unsigned kind, uint64_t offset,
		       struct pl_operation **operation, struct pl_error *error)
{
	struct pl_peer *peer = ring->environment->near_peer;
	const struct pl_transfer transfer = { remote, offset, ring->bytes.region, 0, 8 };
	const struct pl_atomic atomic = { .remote = remote, .remote_offset = offset, .operand = 1 };

	if (kind == 0)
		return pl_write(peer, &transfer, NULL, operation, error);
	return pl_fetch_add(peer, &atomic, NULL, operation, error);
}

/* The publisher's end refuses, by name, and nothing changes. */
static void try_change(struct ring *ring, bool payload, unsigned kind, uint64_t offset)
{
	struct pl_subscriber *subscriber = ring_subscribe(ring);
	struct pl_remote *remote = hostile_ring_key(subscriber, payload);
	struct pl_operation *operation;
	struct pl_error error;
	int rc;

	ring_keep(ring);
	rc = post_change(ring, remote, kind, offset, &operation, &error);
	if (rc == 0)
		rc = await(ring->environment, operation, NULL, &error);
	check_number(rc, -EACCES);
	check(!strcmp(error.id, "GRANT-RIGHTS") || !strcmp(error.id, "RDMA-REMOTE-ACCESS"));
	ring_check(ring);
	pl_subscriber_close(subscriber);
}

/*
 * The local fabric maps the ring, for reads, by a descriptor that allows no more. A program that stores there ends, and the kernel
 * refuses to let it write.
 */
static void try_mapping(struct ring *ring, bool payload)
{
	struct pl_subscriber *subscriber = ring_subscribe(ring);
	struct pl_remote *remote = hostile_ring_key(subscriber, payload);
	void *mapping = hostile_ring_mapping(remote);
	char permissions[8];

	check(mapping);
	mapping_permissions(mapping, permissions);
	check_text(permissions, "r--s");
	check(mprotect(mapping, 4096, PROT_READ | PROT_WRITE) < 0);
	check_number(errno, EACCES);
	pl_subscriber_close(subscriber);
}

static void hostile_writes(struct scenario_environment *environment)
{
	/* The header, the cursors, and the first descriptor. */
	static const uint64_t control[] = { 0, 4096, 4096 + 64 };
	struct ring ring;

	ring_open(&ring, environment);
	if (!strcmp(environment->setting->fabric, "local")) {
		try_mapping(&ring, false);
		try_mapping(&ring, true);
	} else {
		for (unsigned kind = 0; kind < 2; kind++) {
			for (unsigned i = 0; i < sizeof(control) / sizeof(control[0]); i++)
				try_change(&ring, false, kind, control[i]);
			try_change(&ring, true, kind, 4096);
		}
	}
	/* The publisher goes on. */
	publish_filled(ring.publisher, SLOT);
	pl_subscriber_close(ring_subscribe(&ring));
	ring_close(&ring);
}

const struct scenario stream_hostile_scenarios[] = {
	{ "stream-hostile-writes", hostile_writes, SCENARIO_SETTING },
	{ NULL, NULL, 0 },
};
