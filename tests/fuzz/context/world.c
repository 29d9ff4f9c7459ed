/* SPDX-License-Identifier: BSD-2-Clause */
#include "context/world.h"

#include <dirent.h>
#include <malloc.h>
#include <string.h>

#include "core/context.h"
#include "core/message.h"

/* Most memory of the victim, and most that may stay allocated after an input. */
#define MEMORY_MAX (24ull << 20)
#define GROWTH_MAX (1ull << 20)
#define PATIENCE (5 * PL_NS_PER_S)
#define HONEST_TIME PL_NS_PER_S
#define COMPLETIONS 16
#define INPUTS_OF_REGION 32

const char fuzz_key[32] = "the pre-shared key of the tests";

/* -- allocation ------------------------------------------------------------------------------------ */

static void count_block(struct usage *usage, void *pointer, bool more)
{
	uint64_t size = malloc_usable_size(pointer);

	usage->bytes += more ? size : -size;
	usage->blocks += more ? 1 : -1ull;
	REQUIRE(usage->bytes < MEMORY_MAX);
}

static void *counting_allocate(size_t size, void *user)
{
	void *pointer = malloc(size);

	REQUIRE(pointer);
	/* Memory that the library does not clear must not reach the intruder. */
	secret_fill(pointer, size);
	count_block(user, pointer, true);
	return pointer;
}

static void *counting_reallocate(void *old, size_t size, void *user)
{
	size_t before = old ? malloc_usable_size(old) : 0;
	uint8_t *pointer;

	if (old)
		count_block(user, old, false);
	pointer = realloc(old, size);
	REQUIRE(pointer);
	if (size > before)
		secret_fill(pointer + before, size - before);
	count_block(user, pointer, true);
	return pointer;
}

static void counting_release(void *pointer, void *user)
{
	if (pointer)
		count_block(user, pointer, false);
	free(pointer);
}

static unsigned count_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned count = 0;

	REQUIRE(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* -- progress -------------------------------------------------------------------------------------- */

static void take_completion(struct world *world, struct pl_completion *completion)
{
	if (completion->kind == PL_KIND_NOTIFIED) {
		pl_notification_free(world->victim, completion);
		return;
	}
	if (completion->kind == PL_KIND_LOST)
		return;
	REQUIRE(completion->status <= 0);
	if (completion->kind == PL_KIND_ACCEPT) {
		world->accepting = false;
		if (!world->peer)
			world->peer = completion->peer;
		else if (world->more_count < PEERS)
			world->more[world->more_count++] = completion->peer;
		else
			pl_peer_close(completion->peer);
		return;
	}
	REQUIRE(world->outstanding--);
	if (completion->kind == PL_KIND_CONNECT && completion->status == 0)
		world->peer = completion->peer;
	if (completion->kind == PL_KIND_IMPORT && completion->status == 0) {
		if (world->remote_count < REMOTES)
			world->remotes[world->remote_count++] = completion->remote;
		else
			pl_remote_release(completion->remote);
	}
}

static bool context_progress(struct pl_context *context, struct world *world)
{
	struct pl_completion completions[COMPLETIONS];
	bool any;
	int count;

	/* The next round asks epoll, also if sockets are polled. */
	context->engines[0]->round = 0;
	any = pl_engine_progress(context->engines[0]);
	while ((count = pl_poll(context, completions, COMPLETIONS)) > 0) {
		for (int i = 0; world && i < count; i++)
			take_completion(world, &completions[i]);
		any = true;
	}
	return any;
}

void world_check_limits(const struct world *world)
{
	const struct pl_peer *peer = world->peer;

	/* A lost peer has counted the message that violated the protocol. */
	if (peer && atomic_load(&peer->state) == PL_PEER_UP)
		REQUIRE(peer->arrived - atomic_load(&peer->consumed) <= PL_MESSAGE_WINDOW);
}

bool world_progress(struct world *world)
{
	unsigned idle = 0;
	bool any = false;

	for (unsigned i = 0; i < 1000 && idle < 2; i++) {
		bool did = context_progress(world->victim, world);

		any |= did;
		idle = did ? 0 : idle + 1;
	}
	if (!world->accepting && world->listener) {
		REQUIRE(pl_accept_start(world->listener, 0, NULL, NULL) == 0);
		world->accepting = true;
	}
	return any;
}

/* Drives both ends of the honest connection until the operation is done, and returns its status. */
static int honest_wait(struct world *world, struct pl_operation *operation, struct pl_completion *completion,
		       uint64_t patience)
{
	uint64_t end = fuzz_cpu_time() + patience;
	int rc;

	while ((rc = pl_test(operation, completion, NULL)) == -EINPROGRESS) {
		REQUIRE(fuzz_cpu_time() < end);
		context_progress(world->good, NULL);
		world_progress(world);
	}
	return rc;
}

/* -- opening --------------------------------------------------------------------------------------- */

static struct pl_context *open_context(bool keyed, const struct pl_allocator *allocator)
{
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_context *context;

	options.progress = PL_PROGRESS_MANUAL;
	options.fabric = "tcp";
	options.lanes = 2;
	options.allocator = allocator;
	if (keyed) {
		options.key = fuzz_key;
		options.key_length = sizeof(fuzz_key);
	}
	REQUIRE(pl_open(&context, &options, NULL) == 0);
	/* The processor's counter does not follow the clock of the tests. */
	context->engines[0]->clock.steady = false;
	return context;
}

static void share_region(struct world *world, unsigned region, unsigned rights, struct token *token)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;

	options.offset = BLOCK;
	options.length = SHARED;
	options.rights = rights;
	token->length = sizeof(token->bytes);
	token->rights = rights;
	REQUIRE(pl_region_share(world->memory[region].region, &options, token->bytes, &token->length, NULL) == 0);
}

static void open_memory(struct world *world)
{
	struct memory *memory = world->memory;
	size_t transfers = TRANSFER_MAX + BLOCK;

	memory_open(&memory[REGION_READABLE], world->victim, REGION, PL_ACCESS_READ);
	memory_open(&memory[REGION_WRITABLE], world->victim, REGION, PL_ACCESS_ALL);
	memory_open(&memory[REGION_HONEST], world->victim, REGION, PL_ACCESS_ALL);
	memory_open(&memory[REGION_SOURCE], world->victim, transfers, PL_ACCESS_LOCAL);
	memory_open(&memory[REGION_TARGET], world->victim, transfers, PL_ACCESS_LOCAL);
	memory_open(&memory[REGION_CHANGING], world->victim, REGION, PL_ACCESS_ALL);
	memory_open(&world->good_buffer, world->good, SHARED, PL_ACCESS_LOCAL);
	share_region(world, REGION_READABLE, PL_ACCESS_READ, &world->tokens[0]);
	share_region(world, REGION_WRITABLE, PL_ACCESS_WRITE, &world->tokens[1]);
	share_region(world, REGION_HONEST, PL_ACCESS_ALL, &world->good_token);
}

void world_open(struct world *world, bool keyed)
{
	const struct pl_allocator counting = { counting_allocate, counting_reallocate, counting_release,
					       &world->usage };
	struct pl_operation *operation;
	struct pl_completion completion;

	memset(world, 0, sizeof(*world));
	fuzz_random_restart(keyed ? 3 : 4);
	world->keyed = keyed;
	world->descriptors = count_descriptors();
	world->victim = open_context(keyed, &counting);
	world->good = open_context(keyed, NULL);
	REQUIRE(pl_listen(world->victim, "127.0.0.1:0", &world->listener, NULL) == 0);
	pl_listener_address(world->listener, world->address, sizeof(world->address));
	open_memory(world);
	publisher_open(world);
	world_progress(world);
	REQUIRE(pl_connect_start(world->good, world->address, 0, 0, &operation, NULL) == 0);
	REQUIRE(honest_wait(world, operation, &completion, PATIENCE) == 0);
	world->good_peer = completion.peer;
	while (!world->peer)
		world_progress(world);
	world->served = world->peer;
	world->peer = NULL;
	REQUIRE(pl_remote_import_start(world->good_peer, world->good_token.bytes, world->good_token.length, 0,
				       &operation, NULL) == 0);
	REQUIRE(honest_wait(world, operation, &completion, PATIENCE) == 0);
	world->good_remote = completion.remote;
	world->descriptors = count_descriptors() - world->descriptors;
}

/* -- one input ------------------------------------------------------------------------------------- */

void world_begin(struct world *world)
{
	fuzz_random_restart(world->keyed ? 1 : 2);
	world->peer = NULL;
	world->outstanding = 0;
	world_fill(world);
}

/* The honest peer writes, and reads its bytes back, in a second. */
static void check_honest(struct world *world)
{
	struct pl_transfer transfer = { world->good_remote, 0, world->good_buffer.region, 0, SHARED };
	uint8_t fill = world->good_fill % 100 + 1;
	struct pl_operation *operation;
	struct pl_completion completion;

	memset(world->good_buffer.bytes, fill, SHARED);
	REQUIRE(pl_write(world->good_peer, &transfer, NULL, &operation, NULL) == 0);
	REQUIRE(honest_wait(world, operation, &completion, HONEST_TIME) == 0);
	world->good_fill = fill;
	memset(world->good_buffer.bytes, 0, SHARED);
	REQUIRE(pl_read(world->good_peer, &transfer, NULL, &operation, NULL) == 0);
	REQUIRE(honest_wait(world, operation, &completion, HONEST_TIME) == 0);
	REQUIRE(world->good_buffer.bytes[0] == fill && world->good_buffer.bytes[SHARED - 1] == fill);
	world_check_memory(world);
}

static void close_peers(struct world *world)
{
	uint64_t end = fuzz_cpu_time() + PATIENCE;

	for (unsigned i = 0; i < world->remote_count; i++)
		pl_remote_release(world->remotes[i]);
	world->remote_count = 0;
	for (unsigned user = 1; user <= FUZZ_USERS; user++)
		pl_cancel_posted(world->victim, user);
	/* Greetings and openings end, as their sockets are closed; only the honest peer stays. */
	do {
		world_progress(world);
		pl_peer_close(world->peer);
		world->peer = NULL;
		while (world->more_count)
			pl_peer_close(world->more[--world->more_count]);
		REQUIRE(fuzz_cpu_time() < end);
	} while (world_progress(world) || atomic_load(&world->victim->accepted) != 1 || world->outstanding);
}

void world_end(struct world *world)
{
	world_check_memory(world);
	publisher_check(world);
	close_peers(world);
	publisher_close(world);
	publisher_open(world);
	for (unsigned i = 0; i < TOKENS; i++)
		changing_revoke(world, i);
	/* A registration reads /proc/self/maps, which takes long. */
	if (world->inputs % INPUTS_OF_REGION == 0)
		changing_deregister(world);
	check_honest(world);
	world->inputs++;
	if (!world->idle_bytes || world->inputs < 3)
		world->idle_bytes = world->usage.bytes;
	REQUIRE(world->usage.bytes < world->idle_bytes + GROWTH_MAX);
}

void world_close(struct world *world)
{
	unsigned descriptors = count_descriptors();

	publisher_close(world);
	pl_listener_close(world->listener);
	world->listener = NULL;
	world_progress(world);
	pl_remote_release(world->good_remote);
	memory_close(&world->good_buffer);
	pl_close(world->good);
	pl_peer_close(world->served);
	for (unsigned i = 0; i < REGIONS; i++)
		memory_close(&world->memory[i]);
	pl_close(world->victim);
	REQUIRE(!world->usage.blocks && !world->usage.bytes);
	REQUIRE(descriptors - count_descriptors() == world->descriptors);
}
