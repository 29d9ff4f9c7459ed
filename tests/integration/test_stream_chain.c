/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Frames in a chain: each has the XXH3-128 of the one before, in its metadata and at the beginning of its payload. So a reader that
 * gets to the digest of the writer has got each byte of each frame, once, in order. Also through two levels of relays, which must
 * keep the times of capture.
 *
 * With --all, all cases pass 10,000 frames.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/gpu.h"

#define SLOT 6000u
#define FRAMES_MAX 10000u
#define READERS_MAX 9u
#define DIGEST sizeof(XXH128_hash_t)

static const struct setting chain_tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting chain_local = {
	.name = "local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

static unsigned frames = 1000;

struct way {
	const struct setting *setting;
	const char *memory;
	unsigned readers;
};

struct rig;

struct reader {
	struct rig *rig;
	struct pl_peer *peer;
	struct pl_subscriber *subscriber;
	pthread_t thread;
	XXH128_hash_t last;
	uint64_t *captured; /* FRAMES_MAX */
};

struct rig {
	struct scenario_environment environment;
	const struct way *way;
	struct pl_publisher *publisher;
	struct reader readers[READERS_MAX];
	unsigned count;
};

static uint64_t length_of(uint64_t sequence)
{
	if (sequence % 89 == 0)
		return 0;
	return sequence % 97 == 0 ? SLOT : sequence * 2467 % SLOT;
}

static XXH128_hash_t digest_of(const XXH128_hash_t *before, const uint8_t *payload, uint64_t length)
{
	/* The seed makes a difference between empty frames. */
	return XXH3_128bits_withSeed(payload, length, before->low64);
}

static void fill_payload(uint8_t *payload, uint64_t length, uint64_t sequence, const XXH128_hash_t *before)
{
	pattern_fill(payload, length, sequence, 0);
	memcpy(payload, before, length < DIGEST ? length : DIGEST);
}

/* Returns the digest of the last frame. */
static XXH128_hash_t write_chain(struct rig *rig)
{
	XXH128_hash_t last = { 0 };
	uint8_t payload[SLOT];
	struct pl_error error;

	for (uint64_t sequence = 0; sequence < frames; sequence++) {
		struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
		struct pl_frame_info info;
		struct pl_stream_frame *frame = loan_frame(rig->publisher, &info);

		check_number(info.sequence, sequence);
		options.length = length_of(sequence);
		options.metadata = &last;
		options.metadata_length = DIGEST;
		fill_payload(payload, options.length, sequence, &last);
		check_ok(pl_frame_copy_in(frame, 0, payload, options.length, &error), &error);
		check_ok(pl_frame_publish(frame, &options, &error), &error);
		last = digest_of(&last, payload, options.length);
	}
	check_ok(pl_publisher_end(rig->publisher, 0, &error), &error);
	return last;
}

static void read_frame(struct reader *reader, struct pl_stream_frame *frame, uint64_t sequence)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	uint8_t payload[SLOT];
	struct pl_error error;

	check_number(pl_frame_query(frame, &info), 0);
	check_number(info.sequence, sequence);
	check_number(info.length, length_of(sequence));
	check_number(info.lost_before, 0);
	check(info.metadata_length == DIGEST && !memcmp(info.metadata, &reader->last, DIGEST));
	check_ok(pl_frame_copy_out(frame, 0, payload, info.length, &error), &error);
	check(!memcmp(payload, &reader->last, info.length < DIGEST ? info.length : DIGEST));
	reader->last = digest_of(&reader->last, payload, info.length);
	reader->captured[sequence] = info.captured;
	pl_frame_release(frame);
}

static void *read_chain(void *argument)
{
	struct reader *reader = argument;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc;

	for (uint64_t sequence = 0; sequence < frames; sequence++) {
		rc = pl_subscriber_take(reader->subscriber, &frame, 1, AMPLE_TIME, &error);
		check_ok(rc < 0 ? rc : 0, &error);
		read_frame(reader, frame, sequence);
	}
	check_number(pl_subscriber_take(reader->subscriber, &frame, 1, AMPLE_TIME, &error), -ENODATA);
	check_number(exact_accounts(reader->subscriber).delivered, frames);
	return NULL;
}

/* Subscribes over a connection of its own, or over a given one. */
static void add_reader(struct rig *rig, struct pl_peer *peer)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct reader *reader = &rig->readers[rig->count++];
	struct pl_peer *far_peer;
	struct pl_error error;

	check(rig->count <= READERS_MAX);
	*reader = (struct reader){ .rig = rig, .peer = peer, .captured = calloc(FRAMES_MAX, sizeof(uint64_t)) };
	check(reader->captured);
	if (!peer)
		connect_pair(&rig->environment, rig->environment.near, rig->environment.listener, &reader->peer,
			     &far_peer);
	options.overflow = PL_OVERFLOW_BLOCK;
	options.memory = rig->way->memory;
	check_ok(pl_subscriber_open(reader->peer, "chain", &options, AMPLE_TIME, &reader->subscriber, &error), &error);
}

static void rig_open(struct rig *rig, const struct way *way)
{
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	/* A CUDA driver does not work after fork(2), so each case opens it. */
	if (way->memory && !gpu_open("alloc"))
		exit(SKIPPED);
	environment_listen(&rig->environment, way->setting);
	options.slot_bytes = SLOT;
	options.slots = 16;
	options.metadata_bytes = DIGEST;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	options.memory = way->memory;
	check_ok(pl_publisher_open(rig->environment.far, "chain", &options, &rig->publisher, &error), &error);
}

static void pass_chain(struct rig *rig)
{
	XXH128_hash_t last;

	for (unsigned i = 0; i < rig->count; i++)
		check(pthread_create(&rig->readers[i].thread, NULL, read_chain, &rig->readers[i]) == 0);
	last = write_chain(rig);
	for (unsigned i = 0; i < rig->count; i++) {
		struct reader *reader = &rig->readers[i];

		check(pthread_join(reader->thread, NULL) == 0);
		check(XXH128_isEqual(last, reader->last));
		check(!memcmp(reader->captured, rig->readers[0].captured, frames * sizeof(uint64_t)));
	}
}

static void rig_close(struct rig *rig)
{
	for (unsigned i = 0; i < rig->count; i++) {
		pl_subscriber_close(rig->readers[i].subscriber);
		free(rig->readers[i].captured);
	}
	pl_publisher_close(rig->publisher);
	environment_close(&rig->environment);
}

static void test_chain(void *argument)
{
	const struct way *way = argument;
	struct rig rig;

	rig_open(&rig, way);
	for (unsigned i = 0; i < way->readers; i++)
		add_reader(&rig, NULL);
	pass_chain(&rig);
	rig_close(&rig);
}

/* -- relays ------------------------------------------------------------------------------------------------------------ */

/* Starts `peerlane relay`, and stores the address at which it serves. */
static pid_t start_relay(const char *from, char address[96])
{
	static const char listening[] = "listening on ";
	const char *command = getenv("PEERLANE");
	char line[256];
	FILE *output;
	int fds[2];
	pid_t pid;

	check(pipe(fds) == 0);
	pid = process_fork();
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(command, command, "relay", from, "chain", "--listen", "127.0.0.1:0", "--overflow", "block",
		      "--allow-block", "--patience", "never", (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	output = fdopen(fds[0], "r");
	check(output && fgets(line, sizeof(line), output));
	check(!strncmp(line, listening, strlen(listening)));
	check(sscanf(line + strlen(listening), "%95s", address) == 1);
	/* The rest of its output is read nowhere, and short. */
	return pid;
}

/* A reader at the publisher, and others behind two relays: their digests and times of capture are equal. */
static void test_relays(void *argument)
{
	const struct way *way = argument;
	char first[96], second[96];
	struct pl_error error;
	struct pl_peer *peer;
	pid_t relays[2];
	struct rig rig;

	if (!getenv("PEERLANE")) {
		puts("PEERLANE names no command");
		exit(SKIPPED);
	}
	rig_open(&rig, way);
	add_reader(&rig, NULL);
	relays[0] = start_relay(rig.environment.address, first);
	relays[1] = start_relay(first, second);
	for (unsigned i = 0; i < way->readers; i++) {
		check_ok(pl_connect(rig.environment.near, second, AMPLE_TIME, &peer, &error), &error);
		add_reader(&rig, peer);
	}
	pass_chain(&rig);
	rig_close(&rig);
	for (unsigned i = 0; i < 2; i++)
		check_number(process_wait(relays[i]), 0);
}

#define WAY(...) (&(const struct way){ __VA_ARGS__ })

int main(int argc, char **argv)
{
	const struct test_case cases[] = {
		{ "tcp", test_chain, WAY(&chain_tcp, NULL, 1), 60 },
		{ "tcp 8", test_chain, WAY(&chain_tcp, NULL, 8), 60 },
		{ "local", test_chain, WAY(&chain_local, NULL, 1), 60 },
		{ "local 8", test_chain, WAY(&chain_local, NULL, 8), 60 },
		{ "gpu tcp", test_chain, WAY(&chain_tcp, "cuda", 1), 60 },
		{ "gpu tcp 8", test_chain, WAY(&chain_tcp, "cuda", 8), 60 },
		{ "gpu local", test_chain, WAY(&chain_local, "cuda", 1), 60 },
		{ "gpu local 8", test_chain, WAY(&chain_local, "cuda", 8), 60 },
		{ "relays tcp", test_relays, WAY(&chain_tcp, NULL, 1), 60 },
		{ "relays local 8", test_relays, WAY(&chain_local, NULL, 8), 60 },
	};

	if (argc > 1 && !strcmp(argv[1], "--all"))
		frames = FRAMES_MAX;
	return cases_run("stream_chain", cases, sizeof(cases) / sizeof(cases[0]));
}
