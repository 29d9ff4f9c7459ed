/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory of the victim: which bytes may change, and which must not leave it. */
#include <string.h>
#include <sys/random.h>

#include "context/world.h"

#define PUBLIC 0x33
#define MARK 8u
#define FIRST_CHANGING 2u

#ifdef __clang__
/* The fuzzer must not learn the secret from the comparisons. */
#define UNOBSERVED __attribute__((no_sanitize("coverage")))
#else
#define UNOBSERVED
#endif

void memory_open(struct memory *memory, struct pl_context *context, size_t length, unsigned access)
{
	memory->bytes = calloc(1, length);
	memory->length = length;
	REQUIRE(memory->bytes);
	REQUIRE(pl_region_register(context, memory->bytes, length, access, &memory->region, NULL) == 0);
}

void memory_close(struct memory *memory)
{
	REQUIRE(pl_region_deregister(memory->region) == 0);
	free(memory->bytes);
}

/* Another one in each process: the intruder never sends it. */
static const uint8_t *secret_mark(void)
{
	static uint8_t mark[MARK];

	while (!mark[0])
		REQUIRE(getrandom(mark, sizeof(mark), 0) == sizeof(mark));
	return mark;
}

void secret_fill(uint8_t *bytes, size_t length)
{
	const uint8_t *mark = secret_mark();

	for (size_t at = 0; at < length; at += MARK)
		memcpy(bytes + at, mark, length - at < MARK ? length - at : MARK);
}

UNOBSERVED bool secret_intact(const uint8_t *bytes, size_t length)
{
	uint64_t mark, word, differ = 0;

	memcpy(&mark, secret_mark(), MARK);
	for (size_t at = 0; at < length; at += MARK) {
		memcpy(&word, bytes + at, MARK);
		differ |= word ^ mark;
	}
	return !differ;
}

UNOBSERVED static bool mark_inside(const uint8_t *bytes, size_t length, const uint8_t *mark)
{
	const uint8_t *at = bytes, *end = bytes + length;

	while (end - at >= (ptrdiff_t)MARK && (at = memchr(at, mark[0], (size_t)(end - at) - MARK + 1))) {
		unsigned same = 1;

		while (same < MARK && at[same] == mark[same])
			same++;
		if (same == MARK)
			return true;
		at++;
	}
	return false;
}

UNOBSERVED bool secret_inside(const uint8_t *bytes, size_t length)
{
	uint8_t marks[2 * MARK];

	/* Eight bytes of a block begin anywhere in the mark. */
	secret_fill(marks, sizeof(marks));
	for (unsigned i = 0; i < MARK; i++)
		if (mark_inside(bytes, length, marks + i))
			return true;
	return false;
}

uint64_t memory_digest(const uint8_t *bytes, size_t length)
{
	uint64_t digest = 14695981039346656037ull, word;

	for (size_t at = 0; at < length; at += sizeof(word)) {
		memcpy(&word, bytes + at, sizeof(word));
		digest = (digest ^ word) * 1099511628211ull;
	}
	return digest;
}

static bool filled_with(const uint8_t *bytes, size_t length, uint8_t value)
{
	return bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0;
}

void world_fill(struct world *world)
{
	struct memory *memory = world->memory;

	for (unsigned i = 0; i < REGIONS; i++)
		secret_fill(memory[i].bytes, memory[i].length);
	memset(memory[REGION_READABLE].bytes + BLOCK, PUBLIC, SHARED);
	memset(memory[REGION_HONEST].bytes + BLOCK, world->good_fill, SHARED);
	memset(memory[REGION_SOURCE].bytes, PUBLIC, TRANSFER_MAX);
	world->digest = memory_digest(memory[REGION_CHANGING].bytes, REGION);
}

static void check_surroundings(const struct memory *memory)
{
	REQUIRE(secret_intact(memory->bytes, BLOCK));
	REQUIRE(secret_intact(memory->bytes + BLOCK + SHARED, BLOCK));
}

static unsigned changing_rights(const struct world *world)
{
	unsigned rights = 0;

	for (unsigned i = FIRST_CHANGING; i < TOKENS; i++)
		rights |= world->tokens[i].rights;
	return rights;
}

static void check_changing(const struct world *world)
{
	const uint8_t *bytes = world->memory[REGION_CHANGING].bytes;

	check_surroundings(&world->memory[REGION_CHANGING]);
	if (!(changing_rights(world) & (PL_ACCESS_WRITE | PL_ACCESS_ATOMIC)))
		REQUIRE(memory_digest(bytes, REGION) == world->digest);
}

void world_check_memory(const struct world *world)
{
	const struct memory *memory = world->memory;

	check_surroundings(&memory[REGION_READABLE]);
	REQUIRE(filled_with(memory[REGION_READABLE].bytes + BLOCK, SHARED, PUBLIC));
	check_surroundings(&memory[REGION_WRITABLE]);
	check_surroundings(&memory[REGION_HONEST]);
	REQUIRE(filled_with(memory[REGION_HONEST].bytes + BLOCK, SHARED, world->good_fill));
	REQUIRE(filled_with(memory[REGION_SOURCE].bytes, TRANSFER_MAX, PUBLIC));
	REQUIRE(secret_intact(memory[REGION_SOURCE].bytes + TRANSFER_MAX, BLOCK));
	REQUIRE(secret_intact(memory[REGION_TARGET].bytes + TRANSFER_MAX, BLOCK));
	check_changing(world);
}

/* The shared part is secret while no token allows to read it. */
static void changing_fill(struct world *world, unsigned before)
{
	uint8_t *shared = world->memory[REGION_CHANGING].bytes + BLOCK;
	unsigned readable = PL_ACCESS_READ | PL_ACCESS_ATOMIC, after = changing_rights(world);

	if ((before & readable) && !(after & readable))
		secret_fill(shared, SHARED);
	if (!(before & readable) && (after & readable))
		memset(shared, PUBLIC, SHARED);
	world->digest = memory_digest(world->memory[REGION_CHANGING].bytes, REGION);
}

void changing_share(struct world *world, unsigned rights, uint64_t lifetime)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	struct token *token = NULL;
	unsigned before;

	for (unsigned i = FIRST_CHANGING; i < TOKENS && !token; i++)
		if (!world->tokens[i].rights)
			token = &world->tokens[i];
	if (!token || !rights)
		return;
	check_changing(world);
	before = changing_rights(world);
	/* Before a peer can use the token. */
	token->rights = rights;
	changing_fill(world, before);
	options.offset = BLOCK;
	options.length = SHARED;
	options.rights = rights;
	options.lifetime = lifetime;
	token->length = sizeof(token->bytes);
	REQUIRE(pl_region_share(world->memory[REGION_CHANGING].region, &options, token->bytes, &token->length, NULL) ==
		0);
}

void changing_revoke(struct world *world, unsigned index)
{
	struct token *token = &world->tokens[index];
	unsigned before = changing_rights(world);

	if (index < FIRST_CHANGING || !token->rights)
		return;
	check_changing(world);
	REQUIRE(pl_region_revoke(world->memory[REGION_CHANGING].region, token->bytes, token->length) == 0);
	token->rights = 0;
	changing_fill(world, before);
}

void changing_deregister(struct world *world)
{
	struct memory *memory = &world->memory[REGION_CHANGING];

	check_changing(world);
	memory_close(memory);
	for (unsigned i = FIRST_CHANGING; i < TOKENS; i++)
		world->tokens[i].rights = 0;
	/* The freed memory is poisoned with AddressSanitizer. */
	memory_open(memory, world->victim, REGION, PL_ACCESS_ALL);
	secret_fill(memory->bytes, memory->length);
	world->digest = memory_digest(memory->bytes, REGION);
}
