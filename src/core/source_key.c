/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of large sends over fabrics whose export_key() needs no lock. Each large message makes, finds and ends a key, on several
 * engines. So these keys are in a table of their own, which only the home engine changes, and all engines read without a lock.
 *
 * The memory of a key is used again for another key of the peer, and freed with the peer. An engine finds a key by its index, takes
 * a reference unless the count is 0, and compares the id then: the memory may have become another key's before. Home writes the
 * members of a key while its count is 0, and stores the count last. The engine that ends the last reference lists the key as
 * unused. So home finds an unused key without looking at those that engines hold, which may be many.
 */
#include "core/fabric.h"

/* The table grows by a block: the first one has this many keys, each further one twice as many as the one before it. */
#define FIRST_BLOCK 8u
#define BLOCKS 13u

_Static_assert((FIRST_BLOCK << BLOCKS) - FIRST_BLOCK <= PL_KEYS_MAX, "most keys of a peer");

/* Whole cache lines: no two keys share one. A block begins at one, at which the members that frames use fill the first line of a key. */
struct place {
	struct pl_key key;
	uint8_t apart[3 * PL_CACHE_LINE - sizeof(struct pl_key)];
};
_Static_assert(offsetof(struct pl_key, peer) <= PL_CACHE_LINE, "members that frames use");

struct pl_source_keys {
	_Atomic(struct place *) blocks[BLOCKS]; /* NULL: not used yet */
	void *memory[BLOCKS];                   /* of the blocks */
	unsigned block_count;
	struct pl_key *spare; /* unused keys that home has taken from `unused`, or made. Linked by `spare` */
	_Atomic(struct pl_key *)
		unused; /* keys whose last reference has ended since; any engine adds, home takes all */
	struct pl_random_words random;
};

static unsigned first_index_of(unsigned block)
{
	return (FIRST_BLOCK << block) - FIRST_BLOCK;
}

/* Returns the key of an index, which may come from a peer; NULL: none. */
static struct pl_key *key_at(struct pl_peer *peer, uint32_t index)
{
	struct pl_source_keys *keys = atomic_load(&peer->source_keys);
	struct place *places;
	unsigned block;

	index &= (uint32_t)~PL_SOURCE_KEY;
	if (!keys || index >= first_index_of(BLOCKS))
		return NULL;
	block = 31u - (unsigned)__builtin_clz(index / FIRST_BLOCK + 1);
	places = atomic_load(&keys->blocks[block]);
	return places ? &places[index - first_index_of(block)].key : NULL;
}

/* Adds a block of spare keys, the one with the lowest index first. Returns false without memory, or at the limit. */
static bool add_block(struct pl_peer *peer, struct pl_source_keys *keys)
{
	unsigned first = first_index_of(keys->block_count), count = FIRST_BLOCK << keys->block_count;
	struct place *places;
	uint8_t *memory;

	if (keys->block_count == BLOCKS)
		return false;
	memory = pl_zalloc(&peer->context->allocator, count * sizeof(*places) + PL_CACHE_LINE);
	if (!memory)
		return false;
	places = (void *)(memory + -(uintptr_t)memory % PL_CACHE_LINE);
	for (unsigned i = count; i-- > 0;) {
		struct pl_key *key = &places[i].key;

		key->id = PL_SOURCE_KEY | (first + i);
		key->peer = peer;
		key->source = key->removed = true;
		pl_list_init(&key->grant_link);
		pl_list_init(&key->registrations);
		pl_list_init(&key->end_link);
		key->spare = keys->spare;
		keys->spare = key;
	}
	keys->memory[keys->block_count] = memory;
	atomic_store(&keys->blocks[keys->block_count++], places);
	return true;
}

/* Takes the keys that became unused. The next messages use those first, as they are still in the processor's cache. */
static void take_unused_keys(struct pl_source_keys *keys)
{
	struct pl_key *key = atomic_exchange_explicit(&keys->unused, NULL, memory_order_acquire);

	while (key) {
		struct pl_key *next = key->spare;

		key->spare = keys->spare;
		keys->spare = key;
		key = next;
	}
}

void pl_source_key_unused(struct pl_key *key)
{
	struct pl_source_keys *keys = atomic_load(&key->peer->source_keys);

	key->spare = atomic_load_explicit(&keys->unused, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&keys->unused, &key->spare, key, memory_order_release,
						      memory_order_relaxed))
		;
}

static struct pl_source_keys *source_keys_of(struct pl_peer *peer)
{
	struct pl_source_keys *keys = atomic_load(&peer->source_keys);

	if (keys)
		return keys;
	keys = pl_zalloc(&peer->context->allocator, sizeof(*keys));
	if (!keys)
		return NULL;
	atomic_store(&peer->source_keys, keys);
	return keys;
}

struct pl_key *pl_source_key_add(struct pl_peer *peer, struct pl_operation *operation)
{
	const struct pl_segment *segment = operation->segments;
	struct pl_source_keys *keys = source_keys_of(peer);
	struct pl_key *key;
	uint32_t random;

	if (!keys)
		return NULL;
	take_unused_keys(keys);
	if ((!keys->spare && !add_block(peer, keys)) || pl_random_word(&keys->random, &random) < 0)
		return NULL;
	key = keys->spare;
	keys->spare = key->spare;
	key->id = (uint64_t)random << 32 | (uint32_t)key->id;
	key->memory = &segment->region->memory;
	key->offset = segment->offset;
	key->length = segment->length;
	key->rights = PL_ACCESS_READ;
	key->removed = false;
	key->operation = operation;
	atomic_store_explicit(&key->revoked, false, memory_order_relaxed);
	atomic_fetch_add(&operation->pending, 1);
	operation->source_key = key->id;
	atomic_store_explicit(&key->references, 1, memory_order_release);
	return key;
}

void pl_source_key_destroy(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = key_at(peer, (uint32_t)id);

	if (!key || key->id != id || key->removed)
		return;
	atomic_store(&key->revoked, true);
	key->removed = true;
	pl_key_release(key);
}

struct pl_key *pl_source_key_hold(struct pl_peer *peer, uint64_t id)
{
	struct pl_key *key = key_at(peer, (uint32_t)id);
	unsigned references = key ? atomic_load(&key->references) : 0;

	do {
		if (!references)
			return NULL;
	} while (!atomic_compare_exchange_weak(&key->references, &references, references + 1));
	if (key->id == id)
		return key;
	pl_key_release(key);
	return NULL;
}

void pl_source_keys_free(struct pl_peer *peer)
{
	struct pl_source_keys *keys = atomic_load(&peer->source_keys);
	unsigned count = keys ? keys->block_count : 0;

	/* All are destroyed before any memory is freed: an unused one joins the list of those of all blocks. */
	for (unsigned index = 0; index < first_index_of(count); index++)
		pl_source_key_destroy(peer, key_at(peer, index)->id);
	for (unsigned block = 0; block < count; block++)
		pl_free(&peer->context->allocator, keys->memory[block]);
	pl_free(&peer->context->allocator, keys);
	atomic_store(&peer->source_keys, NULL);
}
