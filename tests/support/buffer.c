/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/buffer.h"

#include <endian.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "support/environment.h"
#include "support/gpu.h"

#define GUARD_VALUE 0xc7
#define HUGE_PAGE ((size_t)2 << 20)

/* Switches ThreadSanitizer off.  Some tests use memory on purpose while a transfer uses it. */
#define LOOKS_AT_SHARED __attribute__((no_sanitize("thread")))

static uint64_t mix(uint64_t value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
	return value ^ (value >> 31);
}

uint64_t random_next(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	return mix(*state);
}

/* Returns eight bytes of a pattern, the first byte in the low bits. */
static uint64_t pattern_word_at(uint64_t seed, uint64_t index)
{
	return mix(seed * 0x9e3779b97f4a7c15ull + index) & 0x7f7f7f7f7f7f7f7full;
}

static uint8_t pattern_byte(uint64_t seed, uint64_t position)
{
	return (uint8_t)(pattern_word_at(seed, position / 8) >> (position % 8 * 8));
}

/* Eight bytes at any address.  A sanitizer checks one access, and not eight. */
struct eight_bytes {
	uint64_t word;
} __attribute__((packed, may_alias));

static void store_word(uint8_t *to, uint64_t word)
{
	((struct eight_bytes *)to)->word = htole64(word);
}

void pattern_fill(uint8_t *bytes, size_t length, uint64_t seed, uint64_t position)
{
	size_t i = 0;

	for (; i < length && (position + i) % 8; i++)
		bytes[i] = pattern_byte(seed, position + i);
	for (; length - i >= 8; i += 8)
		store_word(bytes + i, pattern_word_at(seed, (position + i) / 8));
	for (; i < length; i++)
		bytes[i] = pattern_byte(seed, position + i);
	mirror_bring(bytes, length);
}

LOOKS_AT_SHARED static void store_shared(volatile uint8_t *to, uint8_t value)
{
	*to = value;
}

/* A suppression would not do: it needs the stack of the store, which ThreadSanitizer forgets after some other stores. */
void pattern_fill_shared(uint8_t *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = pattern_word_at(seed, i / 8);

		for (size_t j = i; j < length && j < i + 8; j++)
			store_shared(bytes + j, (uint8_t)(word >> (j - i) * 8));
	}
	mirror_bring(bytes, length);
}

/* Word with the value 1 in each byte. */
#define ONES (UINT64_MAX / 255)

LOOKS_AT_SHARED static uint64_t load_word(const uint8_t *from)
{
	return le64toh(((const struct eight_bytes *)from)->word);
}

/* Returns the index of the first byte that differs, or `length`. */
LOOKS_AT_SHARED static size_t pattern_mismatch(const uint8_t *bytes, size_t length, uint64_t seed, uint64_t position)
{
	size_t i = 0;

	mirror_fetch(bytes, length);
	while (i < length) {
		if ((position + i) % 8 == 0 && length - i >= 8 &&
		    load_word(bytes + i) == pattern_word_at(seed, (position + i) / 8)) {
			i += 8;
			continue;
		}
		if (bytes[i] != pattern_byte(seed, position + i))
			return i;
		i++;
	}
	return length;
}

bool pattern_matches(const uint8_t *bytes, size_t length, uint64_t seed, uint64_t position)
{
	return pattern_mismatch(bytes, length, seed, position) == length;
}

void pattern_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint64_t seed, uint64_t position)
{
	size_t at = pattern_mismatch(bytes, length, seed, position);

	if (at != length)
		check_failed(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", at, length, bytes[at],
			     pattern_byte(seed, position + at));
}

void value_check_at(const char *file, int line, const uint8_t *bytes, size_t length, uint8_t value)
{
	size_t i = 0;

	mirror_fetch(bytes, length);
	while (length - i >= 8 && load_word(bytes + i) == ONES * value)
		i += 8;
	for (; i < length; i++) {
		if (bytes[i] != value)
			check_failed(file, line, "byte %zu of %zu is 0x%02x, not 0x%02x", i, length, bytes[i], value);
	}
}

void bytes_set(uint8_t *bytes, uint8_t value, size_t length)
{
	memset(bytes, value, length);
	mirror_bring(bytes, length);
}

void bytes_put(uint8_t *bytes, const void *from, size_t length)
{
	memcpy(bytes, from, length);
	mirror_bring(bytes, length);
}

void bytes_get(const uint8_t *bytes, void *to, size_t length)
{
	mirror_fetch(bytes, length);
	memcpy(to, bytes, length);
}

bool bytes_equal(const uint8_t *bytes, const void *with, size_t length)
{
	mirror_fetch(bytes, length);
	return !memcmp(bytes, with, length);
}

LOOKS_AT_SHARED bool bytes_contain(const uint8_t *bytes, size_t length, uint8_t value)
{
	size_t i = 0;

	mirror_fetch(bytes, length);
	for (; length - i >= 8; i += 8) {
		uint64_t difference = load_word(bytes + i) ^ ONES * value;

		/* Only a zero byte starts a borrow, so a set high bit proves that some byte is zero. */
		if ((difference - ONES) & ~difference & ONES << 7)
			return true;
	}
	for (; i < length; i++) {
		if (bytes[i] == value)
			return true;
	}
	return false;
}

LOOKS_AT_SHARED uint64_t bytes_digest(const uint8_t *bytes, size_t length)
{
	uint64_t digest = length;
	size_t i = 0;

	mirror_fetch(bytes, length);
	for (; length - i >= 8; i += 8) {
		digest = (digest ^ load_word(bytes + i)) * 0x9fb21c651e98df25ull;
		digest ^= digest >> 32;
	}
	for (; i < length; i++)
		digest = (digest ^ bytes[i]) * 0x9fb21c651e98df25ull;
	return digest;
}

/* Large memory has huge pages: on virtual machines, most of the time would go to page faults. */
static uint8_t *allocate(size_t length)
{
	bool large = length >= HUGE_PAGE;
	void *memory;

	check_number(posix_memalign(&memory, large ? HUGE_PAGE : 64, length), 0);
	if (large)
		madvise(memory, length / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
	return memory;
}

void buffer_open_bare(struct buffer *buffer, size_t length)
{
	buffer->memory = allocate(length + 2 * BUFFER_GUARD);
	buffer->bytes = buffer->memory + BUFFER_GUARD;
	buffer->length = length;
	buffer->region = NULL;
	memset(buffer->memory, GUARD_VALUE, BUFFER_GUARD);
	memset(buffer->bytes, POISON, length);
	memset(buffer->bytes + length, GUARD_VALUE, BUFFER_GUARD);
	buffer->address = buffer->bytes;
	buffer->device = NULL;
	if (!gpu_kind)
		return;
	buffer->device = gpu_allocate(length + 2 * BUFFER_GUARD);
	gpu_copy_in(buffer->device, buffer->memory, length + 2 * BUFFER_GUARD);
	mirror_add(buffer->memory, length + 2 * BUFFER_GUARD, buffer->device);
	buffer->address = (uint8_t *)buffer->device + BUFFER_GUARD;
}

bool buffers_allocated;

static void open_allocated(struct buffer *buffer, struct pl_context *context, size_t length, unsigned access)
{
	struct pl_error error;

	*buffer = (struct buffer){ .length = length };
	check_ok(pl_region_allocate(context, length, access, &buffer->region, &error), &error);
	buffer->bytes = pl_region_address(buffer->region);
	memset(buffer->bytes, POISON, length);
}

void buffer_open(struct buffer *buffer, struct pl_context *context, size_t length, unsigned access)
{
	struct pl_error error;

	/* Memory windows serve only grants without atomics. */
	if (narrow_grants)
		access &= ~(unsigned)PL_ACCESS_ATOMIC;
	if (buffers_allocated) {
		open_allocated(buffer, context, length, access);
		return;
	}
	buffer_open_bare(buffer, length);
	check_ok(pl_region_register(context, buffer->address, length, access, &buffer->region, &error), &error);
}

void buffer_check_guards(const struct buffer *buffer)
{
	size_t page = 4096, rest = (page - buffer->length % page) % page;

	if (!buffer->memory) {
		/*
		 * Bytes from the end of the buffer to the end of its last page are the guard.  The guard goes with the
		 * region.
		 */
		if (buffer->region)
			value_check(buffer->bytes + buffer->length, rest, 0);
		return;
	}
	value_check(buffer->memory, BUFFER_GUARD, GUARD_VALUE);
	value_check(buffer->bytes + buffer->length, BUFFER_GUARD, GUARD_VALUE);
}

void buffer_close_bare(struct buffer *buffer)
{
	buffer_check_guards(buffer);
	if (buffer->device) {
		mirror_remove(buffer->memory);
		gpu_free(buffer->device);
	}
	free(buffer->memory);
	*buffer = (struct buffer){ 0 };
}

void buffer_close(struct buffer *buffer)
{
	buffer_check_guards(buffer);
	check_number(pl_region_deregister(buffer->region), 0);
	buffer->region = NULL;
	buffer_close_bare(buffer);
}
