/* SPDX-License-Identifier: BSD-2-Clause */
/* Steps of the demonstration in host memory: pull files, push frames. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/demo/demo.h"
#include "cmd/transfer/hash.h"
#include "cmd/transfer/progress.h"

#define PULL_PIECE (4ull << 20)
#define COMPARE_PIECE (256u << 10)

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

int demo_fail_verification(struct pl_error *error, const char *object, uint64_t offset)
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
			return demo_fail_verification(error, name, offset + i);
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

uint64_t demo_next_random(uint64_t *state)
{
	uint64_t mixed = *state += 0x9e3779b97f4a7c15ull;

	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebull;
	return mixed ^ mixed >> 31;
}

void demo_fill_frame(uint64_t *words, uint64_t number, uint64_t seed)
{
	uint64_t state = seed ^ number * 0xd1342543de82ef95ull;
	size_t count = DEMO_FRAME / sizeof(*words);

	for (size_t i = 1; i + 1 < count; i++)
		words[i] = demo_next_random(&state);
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
		.depth = DEMO_FRAMES_AT_ONCE,
	};
	uint64_t *frames = pl_region_address(pushing->region);
	int rc;

	for (unsigned i = 0; i < count; i++)
		demo_fill_frame(frames + i * (DEMO_FRAME / sizeof(*frames)), first + i, pushing->seed);
	rc = pipeline_run(&pipeline, &pushing->demo->push.result, error);
	for (unsigned i = 0; i < count && rc == 0; i++) {
		rc = check_pushed_frame(pushing, i, first + i, error);
		progress_update(&pushing->progress, (first + i + 1) * DEMO_FRAME);
	}
	return rc;
}

int demo_open_memory(struct demo *demo, const char *name, uint64_t size, struct service_message *answer,
		     struct pl_error *error)
{
	struct service_message request;
	int rc = session_name(&request, size ? SERVICE_CREATE : SERVICE_OPEN, name, error);

	request.size = size;
	return rc < 0 ? rc : session_call(&demo->session, &request, answer, error);
}

int demo_push(struct demo *demo, struct pl_error *error)
{
	struct pushing pushing = { .demo = demo, .seed = cli_now() };
	struct service_message memory;
	int rc = demo_open_memory(demo, DEMO_MEMORY, DEMO_SLOTS * DEMO_FRAME, &memory, error);

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
