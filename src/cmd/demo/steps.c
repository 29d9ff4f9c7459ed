/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps of the demonstration: pull files, push frames, write words. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/demo/demo.h"
#include "cmd/transfer/hash.h"
#include "cmd/transfer/progress.h"

#define PULL_PIECE (4ull << 20)
#define FRAMES_AT_ONCE 4
#define COMPARE_PIECE (256u << 10)
#define WRITES_WARM 200
#define WRITES 10000

/* -- pull --------------------------------------------------------------------------------------- */

struct pulling {
	struct demo *demo;
	struct progress progress;
	struct pl_region *region;
	uint64_t before; /* bytes of the files already pulled */
};

static int pull_advance(void *user, uint64_t done, struct pl_error *error)
{
	struct pulling *pulling = user;

	(void)error;
	progress_update(&pulling->progress, pulling->before + done);
	return 0;
}

/* Imports the token of an opened file and reads the file into the region. */
static int pull_bytes(struct pulling *pulling, const struct service_message *opened, const struct demo_file *file,
		      struct pl_error *error)
{
	struct session *session = &pulling->demo->session;
	struct pipeline pipeline = {
		.session = session,
		.region = pulling->region,
		.length = file->size,
		.piece = PULL_PIECE,
		.advance = pull_advance,
		.user = pulling,
	};
	int rc = session_import(session, opened, &pipeline.remote, error);

	if (rc < 0)
		return rc;
	rc = pipeline_run(&pipeline, &pulling->demo->pull.result, error);
	pl_remote_release(pipeline.remote);
	return rc;
}

static int fail_verification(struct pl_error *error, const char *object, uint64_t offset)
{
	return cli_fail(error, -EBADMSG, "VERIFY-FAILED", object,
			"check the memory of this machine, and report this error",
			"the received byte %llu differs from its source", (unsigned long long)offset);
}

static int compare_file_piece(int fd, const uint8_t *bytes, uint64_t offset, size_t length, const char *name,
			      struct pl_error *error)
{
	static const char call[] = "pread";
	uint8_t piece[COMPARE_PIECE];
	ssize_t got = pread(fd, piece, length, (off_t)offset);

	if (got < 0)
		return cli_fail_errno(error, -errno, call, name);
	if ((size_t)got != length)
		return cli_fail(error, -ESTALE, "FILE-CHANGED", name, "run the demo again", "the file was truncated");
	for (size_t i = 0; memcmp(piece, bytes + offset, length) && i < length; i++)
		if (piece[i] != bytes[offset + i])
			return fail_verification(error, name, offset + i);
	return 0;
}

/* Compares the received bytes with the file in the file system. */
static int compare_file(const struct demo_file *file, const uint8_t *bytes, struct pl_error *error)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return cli_fail_errno(error, -errno, "open", file->path);
	for (uint64_t offset = 0; rc == 0 && offset < file->size; offset += COMPARE_PIECE)
		rc = compare_file_piece(fd, bytes, offset, (size_t)CLI_MIN(file->size - offset, COMPARE_PIECE),
					file->name, error);
	close(fd);
	return rc;
}

static int pull_file(struct pulling *pulling, const struct demo_file *file, struct pl_error *error)
{
	struct demo *demo = pulling->demo;
	struct service_message request, opened, closed;
	int rc = session_name(&request, SERVICE_OPEN, file->name, error);

	if (rc == 0)
		rc = session_call(&demo->session, &request, &opened, error);
	if (rc < 0)
		return rc;
	if (opened.size != file->size)
		return cli_fail(error, -ESTALE, "FILE-CHANGED", file->path, "run the demo again",
				"the file changed during the demo");
	rc = pull_bytes(pulling, &opened, file, error);
	request = (struct service_message){ .type = SERVICE_CLOSE, .handle = opened.handle };
	if (rc == 0)
		rc = session_call(&demo->session, &request, &closed, error);
	if (rc == 0)
		rc = compare_file(file, pl_region_address(pulling->region), error);
	if (rc == 0) {
		demo->pull.count++;
		demo->pull.verified += file->size;
		pulling->before += file->size;
	}
	return rc;
}

int demo_pull(struct demo *demo, struct pl_error *error)
{
	struct pulling pulling = { .demo = demo };
	int rc = 0;

	/* The first file is the largest, so one region receives all files.  Bytes left from another file fail the comparison. */
	rc = pl_region_allocate(demo->session.context, demo->files.all[0].size, PL_ACCESS_LOCAL, &pulling.region,
				error);
	if (rc < 0)
		return rc;
	progress_begin(&pulling.progress, !demo->common.quiet, "pull", demo->files.bytes * demo->rounds, 0);
	for (unsigned round = 0; round < demo->rounds && rc == 0; round++)
		for (size_t i = 0; i < demo->files.count && rc == 0; i++)
			rc = pull_file(&pulling, &demo->files.all[i], error);
	progress_end(&pulling.progress);
	if (rc != -EINTR)
		pl_region_deregister(pulling.region);
	return rc;
}

/* -- push --------------------------------------------------------------------------------------- */

struct pushing {
	struct demo *demo;
	struct progress progress;
	struct pl_region *region;
	struct pl_remote *remote;
	uint32_t handle;
	uint64_t seed;
};

/* Returns the next number of SplitMix64, which generates data faster than networks transfer it; period 2^64. */
static uint64_t next_demo_random(uint64_t *state)
{
	uint64_t mixed = *state += 0x9e3779b97f4a7c15ull;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
	return mixed ^ mixed >> 31;
}

/* Fills a frame: its number in the first and last word, pseudorandom words derived from it between them. */
static void fill_frame(uint64_t *words, uint64_t number, uint64_t seed)
{
	uint64_t state = seed ^ number * 0xd1342543de82ef95ull;
	size_t count = DEMO_FRAME / sizeof(*words);

	for (size_t i = 1; i + 1 < count; i++)
		words[i] = next_demo_random(&state);
	words[0] = words[count - 1] = number;
}

static int check_pushed_frame(struct pushing *pushing, unsigned slot, uint64_t number, struct pl_error *error)
{
	const uint8_t *frame = (const uint8_t *)pl_region_address(pushing->region) + slot * DEMO_FRAME;
	struct service_message answer, request = {
		.type = SERVICE_HASH,
		.handle = pushing->handle,
		.offset = slot * DEMO_FRAME,
		.length = DEMO_FRAME,
	};
	struct hash local_hash = hash_memory(frame, DEMO_FRAME);
	int rc = session_call(&pushing->demo->session, &request, &answer, error);

	if (rc < 0)
		return rc;
	if (!hash_equal(local_hash, (struct hash){ answer.hash[0], answer.hash[1] }))
		return cli_fail(error, -EBADMSG, "VERIFY-FAILED", DEMO_MEMORY,
				"check the memory of this machine, and report this error",
				"the received frame %llu differs from its source", (unsigned long long)number);
	pushing->demo->push.verified += DEMO_FRAME;
	pushing->demo->push.count++;
	return 0;
}

/* Fills, writes and checks `count` frames, at most one for each slot.  Only the writes are timed. */
static int push_frames(struct pushing *pushing, unsigned first, unsigned count, struct pl_error *error)
{
	struct pipeline pipeline = {
		.session = &pushing->demo->session,
		.write = true,
		.remote = pushing->remote,
		.region = pushing->region,
		.length = count * DEMO_FRAME,
		.piece = DEMO_FRAME,
		.depth = FRAMES_AT_ONCE,
	};
	uint64_t *frames = pl_region_address(pushing->region);
	int rc;

	for (unsigned i = 0; i < count; i++)
		fill_frame(frames + i * (DEMO_FRAME / sizeof(*frames)), first + i, pushing->seed);
	rc = pipeline_run(&pipeline, &pushing->demo->push.result, error);
	for (unsigned i = 0; i < count && rc == 0; i++) {
		rc = check_pushed_frame(pushing, i, first + i, error);
		progress_update(&pushing->progress, (first + i + 1) * DEMO_FRAME);
	}
	return rc;
}

/* Requests a token to write to the server's memory. */
static int open_demo_memory(struct demo *demo, struct service_message *answer, struct pl_error *error)
{
	struct service_message request;
	int rc = session_name(&request, SERVICE_CREATE, DEMO_MEMORY, error);

	request.size = DEMO_SLOTS * DEMO_FRAME;
	return rc < 0 ? rc : session_call(&demo->session, &request, answer, error);
}

int demo_push(struct demo *demo, struct pl_error *error)
{
	struct pushing pushing = { .demo = demo, .seed = cli_now() };
	struct service_message memory;
	int rc = open_demo_memory(demo, &memory, error);

	if (rc == 0)
		rc = session_import(&demo->session, &memory, &pushing.remote, error);
	if (rc == 0)
		rc = pl_region_allocate(demo->session.context, DEMO_SLOTS * DEMO_FRAME, PL_ACCESS_LOCAL,
					&pushing.region, error);
	if (rc < 0)
		return rc;
	pushing.handle = memory.handle;
	progress_begin(&pushing.progress, !demo->common.quiet, "push", demo->frames * DEMO_FRAME, 0);
	for (unsigned first = 0; first < demo->frames && rc == 0; first += DEMO_SLOTS)
		rc = push_frames(&pushing, first, CLI_MIN(demo->frames - first, DEMO_SLOTS), error);
	progress_end(&pushing.progress);
	pl_region_deregister(pushing.region);
	pl_remote_release(pushing.remote);
	return rc;
}

/* -- write -------------------------------------------------------------------------------------- */

struct writing {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_remote *remote;
	struct pl_region *region; /* contains `words` */
	uint64_t *words;          /* one word for each write */
	uint64_t *times;          /* latency of each write in ns */
};

static int compare_times(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static int time_word_write(struct writing *writing, unsigned index, struct pipeline_result *result,
			   struct pl_error *error)
{
	uint64_t offset = index * sizeof(*writing->words), begin = cli_now();
	struct pl_operation *operation;
	struct pl_completion receipt;
	int rc = pl_write(
		writing->peer,
		&(struct pl_transfer){ writing->remote, offset, writing->region, offset, sizeof(*writing->words) },
		NULL, &operation, error);

	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, &receipt, error);
	if (rc < 0)
		return rc;
	writing->times[index] = cli_now() - begin;
	result->nanoseconds += writing->times[index];
	result->bytes += receipt.bytes;
	result->staged += receipt.bytes_staged;
	result->route = receipt.route;
	result->fabric = receipt.fabric;
	result->reason = receipt.reason;
	result->lanes = receipt.lanes;
	return 0;
}

/* Reads all words back with one operation and compares them. */
static int check_written_words(struct writing *writing, struct pl_remote *remote, uint64_t seed, struct pl_error *error)
{
	struct pl_operation *operation;
	int rc;

	memset(writing->words, 0, WRITES * sizeof(*writing->words));
	rc = pl_read(writing->peer,
		     &(struct pl_transfer){ remote, 0, writing->region, 0, WRITES * sizeof(*writing->words) }, NULL,
		     &operation, error);
	if (rc == 0)
		rc = pl_wait(operation, UINT64_MAX, NULL, error);
	for (unsigned i = 0; i < WRITES && rc == 0; i++)
		if (writing->words[i] != next_demo_random(&seed))
			rc = fail_verification(error, DEMO_MEMORY, i * sizeof(*writing->words));
	return rc;
}

static int time_word_writes(struct demo *demo, struct writing *writing, struct pl_remote *readable,
			    struct pl_error *error)
{
	struct pipeline_result warm_up = { 0 };
	uint64_t seed = cli_now(), state = seed;
	int rc = 0;

	for (unsigned i = 0; i < WRITES; i++)
		writing->words[i] = next_demo_random(&state);
	for (unsigned i = 0; i < WRITES_WARM && rc == 0; i++)
		rc = time_word_write(writing, 0, &warm_up, error);
	for (unsigned i = 0; i < WRITES && rc == 0; i++)
		rc = time_word_write(writing, i, &demo->write.result, error);
	if (rc == 0)
		rc = check_written_words(writing, readable, seed, error);
	if (rc < 0)
		return rc;
	qsort(writing->times, WRITES, sizeof(*writing->times), compare_times);
	demo->write.count = WRITES;
	demo->write.verified = WRITES * sizeof(*writing->words);
	demo->write.min = writing->times[0];
	demo->write.median = writing->times[WRITES / 2];
	demo->write.p99 = writing->times[WRITES / 100 * 99];
	return 0;
}

/* Opens a second connection without progress threads, for the lowest latency. */
static int connect_for_latency(struct demo *demo, struct writing *writing, struct pl_error *error)
{
	int rc = cli_open(&writing->context, &demo->common, PL_PROGRESS_MANUAL, error);

	if (rc == 0)
		rc = pl_connect(writing->context, demo->server.address, 0, &writing->peer, error);
	if (rc == 0)
		rc = pl_region_allocate(writing->context, WRITES * sizeof(*writing->words), PL_ACCESS_LOCAL,
					&writing->region, error);
	if (rc == 0)
		writing->words = pl_region_address(writing->region);
	return rc;
}

int demo_write(struct demo *demo, struct pl_error *error)
{
	struct writing writing = { .times = calloc(WRITES, sizeof(*writing.times)) };
	struct service_message memory, request;
	struct pl_remote *readable = NULL;
	int rc =
		writing.times ? open_demo_memory(demo, &memory, error) : cli_fail_errno(error, -ENOMEM, "malloc", NULL);

	if (rc == 0)
		rc = connect_for_latency(demo, &writing, error);
	if (rc == 0)
		rc = pl_remote_import(writing.peer, memory.token, memory.token_length, 0, &writing.remote, error);
	if (rc == 0)
		rc = session_name(&request, SERVICE_OPEN, DEMO_MEMORY, error);
	if (rc == 0)
		rc = session_call(&demo->session, &request, &memory, error);
	if (rc == 0)
		rc = pl_remote_import(writing.peer, memory.token, memory.token_length, 0, &readable, error);
	if (rc == 0)
		rc = time_word_writes(demo, &writing, readable, error);
	pl_close(writing.context);
	free(writing.times);
	return rc;
}
