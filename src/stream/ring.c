/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fields by offset.
 *
 * Header: 0 magic "PLSTREAM", 8 u32 version, 12 u32 length of the header, 16 instance[16], 32 u64 created, 40 u32 slots,
 * 44 u32 descriptor stride, 48 u64 slot bytes, 56 u64 slot stride, 64 u32 metadata bytes, 68 u32 memory (0: host),
 * 72 layout, 152 content type[64], 216 name[64]; zeros to the end.
 *
 * Layout: u8 code, u8 bits, u16 lanes, u32 dimensions, u64 shape[8]; 72 bytes, and 8 zeros in the header.
 *
 * Cursors: 0 u64 claimed, 8 u64 published, 16 u64 PL_RING_MARKS_CLAIMS (earlier releases wrote 0 or a time, which readers ignore),
 * 24 u32 state; zeros to the end.
 *
 * Descriptor: 0 u64 stamp (sequence + 1, bit 63 while it is being written), 8 u32 slot, 12 u32 flags, 16 u64 length,
 * 24 u64 captured, 32 u64 published, 40 u16 length of the metadata, 42 zeros, 48 layout (72 bytes), 120 u64 zero.
 */
#include "stream/ring.h"

#include <endian.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/prefetch.h"

static const uint8_t ring_magic[8] = "PLSTREAM";

#define OFFSET_LAYOUT 72
#define OFFSET_CONTENT 152
#define OFFSET_NAME 216
#define HEADER_USED 280

#define STAMP_WRITING (1ull << 63)
#define DESCRIPTOR_LAYOUT 48
#define DESCRIPTOR_RESERVED 120
#define DESCRIPTOR_FLAGS (PL_DESCRIPTOR_ABORTED | PL_DESCRIPTOR_LAYOUT | PL_DESCRIPTOR_REPLAY)

static void put16(uint8_t *at, uint16_t value)
{
	value = htole16(value);
	memcpy(at, &value, sizeof(value));
}

static void put32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void put64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

static uint16_t get16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static uint32_t get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static bool is_zero(const uint8_t *at, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (at[i])
			return false;
	return true;
}

/* -- names, layouts, geometry ----------------------------------------------------------------------- */

bool pl_stream_name_valid(const char *name)
{
	size_t length = name ? strnlen(name, PL_STREAM_NAME_SIZE) : 0;

	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
		      c == '_' || c == '-'))
			return false;
	}
	return length > 0 && length < PL_STREAM_NAME_SIZE;
}

bool pl_content_type_valid(const char *text)
{
	size_t length = strnlen(text, PL_CONTENT_TYPE_SIZE);

	for (size_t i = 0; i < length; i++)
		if (text[i] < ' ' || text[i] > '~')
			return false;
	return length < PL_CONTENT_TYPE_SIZE;
}

bool pl_layout_valid(const struct pl_layout *layout)
{
	static const struct pl_layout none;

	if (layout->bits == 0)
		return !memcmp(layout, &none, sizeof(none));
	if (layout->code > PL_ELEMENT_BOOL || layout->code == 3 || layout->lanes == 0 ||
	    layout->dimensions > PL_LAYOUT_DIMENSIONS_MAX)
		return false;
	for (unsigned i = layout->dimensions; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		if (layout->shape[i])
			return false;
	return true;
}

uint64_t pl_layout_bytes(const struct pl_layout *layout)
{
	uint64_t bits = (uint64_t)layout->bits * layout->lanes;
	bool wraps = false;

	for (unsigned i = 0; i < layout->dimensions; i++)
		if (layout->shape[i] == 0)
			return 0;
	for (unsigned i = 0; i < layout->dimensions; i++)
		wraps |= __builtin_mul_overflow(bits, layout->shape[i], &bits);
	return wraps ? UINT64_MAX : bits / 8 + (bits % 8 != 0);
}

const struct pl_layout *pl_frame_layout(const struct pl_ring_descriptor *descriptor, const struct pl_layout *stream,
					uint64_t bytes)
{
	static const struct pl_layout none;

	if (descriptor->layout.bits)
		return &descriptor->layout;
	return bytes <= descriptor->length ? stream : &none;
}

int pl_ring_geometry_init(struct pl_ring_geometry *geometry)
{
	if (geometry->slots < 2 || geometry->slots > PL_STREAM_SLOTS_MAX || geometry->slot_bytes < 1 ||
	    geometry->slot_bytes > PL_RING_SLOT_MAX || geometry->metadata_bytes > PL_STREAM_METADATA_MAX)
		return -EINVAL;
	geometry->descriptor_stride = (PL_RING_DESCRIPTOR + geometry->metadata_bytes + 63) / 64 * 64;
	geometry->slot_stride = (geometry->slot_bytes + PL_RING_PAGE - 1) / PL_RING_PAGE * PL_RING_PAGE;
	return 0;
}

uint64_t pl_ring_control_size(const struct pl_ring_geometry *geometry)
{
	return PL_RING_HEADER + PL_RING_CURSORS + (uint64_t)geometry->slots * geometry->descriptor_stride;
}

uint64_t pl_ring_payload_size(const struct pl_ring_geometry *geometry)
{
	return geometry->slots * geometry->slot_stride;
}

uint64_t pl_ring_descriptor_offset(const struct pl_ring_geometry *geometry, uint64_t sequence)
{
	return PL_RING_HEADER + PL_RING_CURSORS +
	       (uint64_t)pl_ring_index(sequence, geometry->slots) * geometry->descriptor_stride;
}

uint64_t pl_ring_slot_offset(const struct pl_ring_geometry *geometry, uint64_t sequence)
{
	return pl_ring_index(sequence, geometry->slots) * geometry->slot_stride;
}

/* -- header ------------------------------------------------------------------------------------------ */

static void layout_encode(const struct pl_layout *layout, uint8_t *at)
{
	at[0] = layout->code;
	at[1] = layout->bits;
	put16(at + 2, layout->lanes);
	put32(at + 4, layout->dimensions);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		put64(at + 8 + i * 8, layout->shape[i]);
}

static void layout_decode(const uint8_t *at, struct pl_layout *layout)
{
	layout->code = at[0];
	layout->bits = at[1];
	layout->lanes = get16(at + 2);
	layout->dimensions = get32(at + 4);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		layout->shape[i] = get64(at + 8 + i * 8);
}

void pl_ring_header_encode(const struct pl_ring_header *header, uint8_t buffer[PL_RING_HEADER])
{
	memset(buffer, 0, PL_RING_HEADER);
	memcpy(buffer, ring_magic, sizeof(ring_magic));
	put32(buffer + 8, PL_RING_VERSION);
	put32(buffer + 12, PL_RING_HEADER);
	memcpy(buffer + 16, header->instance, sizeof(header->instance));
	put64(buffer + 32, header->created);
	put32(buffer + 40, header->geometry.slots);
	put32(buffer + 44, header->geometry.descriptor_stride);
	put64(buffer + 48, header->geometry.slot_bytes);
	put64(buffer + 56, header->geometry.slot_stride);
	put32(buffer + 64, header->geometry.metadata_bytes);
	put32(buffer + 68, header->gpu);
	layout_encode(&header->layout, buffer + OFFSET_LAYOUT);
	memcpy(buffer + OFFSET_CONTENT, header->content_type, strnlen(header->content_type, PL_CONTENT_TYPE_SIZE - 1));
	memcpy(buffer + OFFSET_NAME, header->name, strnlen(header->name, PL_STREAM_NAME_SIZE - 1));
}

/* Copies a string of a fixed size. Returns false if bytes follow its NUL. */
static bool header_text(const uint8_t *at, char *text, size_t size)
{
	memcpy(text, at, size);
	return text[size - 1] == 0 && is_zero(at + strlen(text), size - strlen(text));
}

int pl_ring_header_decode(const uint8_t buffer[PL_RING_HEADER], struct pl_ring_header *header)
{
	struct pl_ring_geometry *geometry = &header->geometry;
	struct pl_ring_geometry right;

	memset(header, 0, sizeof(*header));
	if (memcmp(buffer, ring_magic, sizeof(ring_magic)) || get32(buffer + 8) != PL_RING_VERSION ||
	    get32(buffer + 12) != PL_RING_HEADER || get32(buffer + 68) > 1 ||
	    !is_zero(buffer + OFFSET_LAYOUT + 72, 8) || !is_zero(buffer + HEADER_USED, PL_RING_HEADER - HEADER_USED))
		return -EPROTO;
	memcpy(header->instance, buffer + 16, sizeof(header->instance));
	header->created = get64(buffer + 32);
	geometry->slots = get32(buffer + 40);
	geometry->descriptor_stride = get32(buffer + 44);
	geometry->slot_bytes = get64(buffer + 48);
	geometry->slot_stride = get64(buffer + 56);
	geometry->metadata_bytes = get32(buffer + 64);
	header->gpu = get32(buffer + 68);
	layout_decode(buffer + OFFSET_LAYOUT, &header->layout);
	if (!header_text(buffer + OFFSET_CONTENT, header->content_type, sizeof(header->content_type)) ||
	    !header_text(buffer + OFFSET_NAME, header->name, sizeof(header->name)))
		return -EPROTO;
	right = *geometry;
	if (pl_ring_geometry_init(&right) < 0 || right.descriptor_stride != geometry->descriptor_stride ||
	    right.slot_stride != geometry->slot_stride || !pl_layout_valid(&header->layout) ||
	    pl_layout_bytes(&header->layout) > geometry->slot_bytes || !pl_stream_name_valid(header->name) ||
	    !pl_content_type_valid(header->content_type))
		return -EPROTO;
	return 0;
}

/* -- publisher --------------------------------------------------------------------------------------- */

static uint64_t *ring_word(const struct pl_ring *ring, uint64_t offset)
{
	return (uint64_t *)(void *)(ring->control + offset);
}

static void ring_store(struct pl_ring *ring, uint64_t offset, uint64_t value)
{
	__atomic_store_n(ring_word(ring, offset), htole64(value), __ATOMIC_RELEASE);
}

/* Orders all stores before it, also those past the cache that memcpy(3) makes, before all later ones. */
static void ring_fence(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_sfence();
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Orders the stores before it before all later ones, but for those past the cache. */
static void ring_order(void)
{
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

void pl_ring_init(struct pl_ring *ring, uint8_t *control, const struct pl_ring_header *header)
{
	ring->control = control;
	ring->geometry = header->geometry;
	ring->layout_end = 0;
	pl_ring_header_encode(header, control);
	ring_store(ring, PL_RING_HEADER + 16, PL_RING_MARKS_CLAIMS);
	pl_ring_set_state(ring, PL_STREAM_LIVE);
}

void pl_ring_claim(struct pl_ring *ring, uint64_t sequence)
{
	ring_store(ring, PL_RING_HEADER, sequence + 1);
	ring_store(ring, pl_ring_descriptor_offset(&ring->geometry, sequence), (sequence + 1) | STAMP_WRITING);
	ring_fence();
}

void pl_ring_claim_below(struct pl_ring *ring, uint64_t end)
{
	ring_store(ring, PL_RING_HEADER, end);
	ring_fence();
}

void pl_ring_prepare(const struct pl_ring *ring, uint64_t sequence)
{
	pl_prefetch_write(ring->control + pl_ring_descriptor_offset(&ring->geometry, sequence));
}

/* Writes all but the stamp and the layout. */
static void descriptor_encode_fields(const struct pl_ring_descriptor *descriptor, uint32_t slot, uint8_t *buffer)
{
	put32(buffer + 8, slot);
	put32(buffer + 12, descriptor->flags);
	put64(buffer + 16, descriptor->length);
	put64(buffer + 24, descriptor->captured);
	put64(buffer + 32, descriptor->published);
	put64(buffer + 40, descriptor->metadata_length);
}

/* Writes the rest behind the metadata's length. Most frames have no layout of their own. */
static void descriptor_encode_layout(const struct pl_ring_descriptor *descriptor, uint8_t *buffer)
{
	memset(buffer + DESCRIPTOR_LAYOUT, 0, PL_RING_DESCRIPTOR - DESCRIPTOR_LAYOUT);
	if (descriptor->layout.bits)
		layout_encode(&descriptor->layout, buffer + DESCRIPTOR_LAYOUT);
}

/*
 * Writes the layout of a frame. A slot whose last frame had none has zeros there, so a stream without such layouts writes one
 * cache line of each descriptor, and both ends keep the other one.
 */
static void ring_write_layout(struct pl_ring *ring, const struct pl_ring_descriptor *descriptor, uint8_t *buffer)
{
	if (descriptor->layout.bits)
		ring->layout_end = PL_MAX(ring->layout_end, descriptor->sequence + 1);
	if (descriptor->sequence < ring->layout_end + ring->geometry.slots)
		descriptor_encode_layout(descriptor, buffer);
}

void pl_ring_describe(struct pl_ring *ring, const struct pl_ring_descriptor *descriptor, const void *metadata)
{
	uint64_t offset = pl_ring_descriptor_offset(&ring->geometry, descriptor->sequence);

	/* The program may have written the payload past the cache. No such stores follow, so no other fence has to wait for them. */
	ring_fence();
	ring_store(ring, offset, (descriptor->sequence + 1) | STAMP_WRITING);
	ring_order();
	descriptor_encode_fields(descriptor, pl_ring_index(descriptor->sequence, ring->geometry.slots),
				 ring->control + offset);
	ring_write_layout(ring, descriptor, ring->control + offset);
	if (descriptor->metadata_length && metadata)
		memcpy(ring->control + offset + PL_RING_DESCRIPTOR, metadata, descriptor->metadata_length);
	ring_store(ring, offset, descriptor->sequence + 1);
}

void pl_ring_publish(struct pl_ring *ring, uint64_t published)
{
	ring_store(ring, PL_RING_HEADER + 8, published);
}

uint64_t pl_ring_skip(struct pl_ring *ring, uint64_t begin, uint64_t end, bool lost)
{
	struct pl_ring_descriptor aborted = { .flags = PL_DESCRIPTOR_ABORTED };
	uint64_t described = end - PL_MIN(end - begin, (uint64_t)ring->geometry.slots);

	aborted.published = pl_wall_clock();
	aborted.captured = lost ? 0 : aborted.published;
	/* A skip may leave out the round that clears the layouts of earlier frames. These descriptors clear them. */
	if (begin < ring->layout_end + ring->geometry.slots)
		ring->layout_end = PL_MAX(ring->layout_end, described);
	pl_ring_claim_below(ring, end);
	for (aborted.sequence = described; aborted.sequence < end; aborted.sequence++)
		pl_ring_describe(ring, &aborted, NULL);
	pl_ring_publish(ring, end);
	return described;
}

void pl_ring_set_state(struct pl_ring *ring, enum pl_stream_state state)
{
	ring_store(ring, PL_RING_HEADER + 24, state);
}

const uint64_t *pl_ring_claimed(const struct pl_ring *ring)
{
	return ring_word(ring, PL_RING_HEADER);
}

/* -- cursors and descriptors ------------------------------------------------------------------------- */

bool pl_ring_marks_claims(const uint8_t cursors[PL_RING_CURSORS])
{
	return get64(cursors + 16) == PL_RING_MARKS_CLAIMS;
}

bool pl_ring_stamp_holds(const uint8_t *descriptor, uint64_t sequence)
{
	const uint64_t *stamp = (const uint64_t *)(const void *)descriptor;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return le64toh(__atomic_load_n(stamp, __ATOMIC_RELAXED)) == sequence + 1;
}

int pl_ring_cursors_decode(const uint8_t buffer[PL_RING_CURSORS], struct pl_ring_cursors *cursors)
{
	cursors->claimed = get64(buffer);
	cursors->published = get64(buffer + 8);
	cursors->state = get32(buffer + 24);
	/* `claimed` is read first, so a later `published` may be larger. */
	if (cursors->claimed < cursors->published)
		cursors->claimed = cursors->published;
	if (cursors->claimed > PL_RING_SEQUENCE_MAX || cursors->state < PL_STREAM_LIVE ||
	    cursors->state > PL_STREAM_FAILED || !is_zero(buffer + 28, PL_RING_CURSORS - 28))
		return -EPROTO;
	return 0;
}

void pl_ring_descriptor_encode(const struct pl_ring_descriptor *descriptor, const struct pl_ring_geometry *geometry,
			       uint8_t buffer[PL_RING_DESCRIPTOR])
{
	put64(buffer, descriptor->sequence + 1);
	descriptor_encode_fields(descriptor, pl_ring_index(descriptor->sequence, geometry->slots), buffer);
	descriptor_encode_layout(descriptor, buffer);
}

/* True if bytes of the layout are not zero. */
static bool descriptor_has_layout(const uint8_t *buffer)
{
	uint64_t bits = 0;

	for (unsigned at = DESCRIPTOR_LAYOUT; at < DESCRIPTOR_RESERVED; at += 8)
		bits |= get64(buffer + at);
	return bits != 0;
}

/* Decodes the layout of a frame. Returns false for one that cannot be. */
static bool descriptor_decode_layout(const uint8_t *buffer, struct pl_ring_descriptor *descriptor)
{
	bool flagged = descriptor->flags & PL_DESCRIPTOR_LAYOUT;

	/* Most frames have none. */
	if (!descriptor_has_layout(buffer))
		return !flagged;
	layout_decode(buffer + DESCRIPTOR_LAYOUT, &descriptor->layout);
	/* A layout of elements without bits is valid only if all its bytes are zero. */
	return flagged && pl_layout_valid(&descriptor->layout) &&
	       pl_layout_bytes(&descriptor->layout) <= descriptor->length;
}

int pl_ring_descriptor_decode(const uint8_t buffer[PL_RING_DESCRIPTOR], const struct pl_ring_geometry *geometry,
			      uint64_t sequence, struct pl_ring_descriptor *descriptor)
{
	memset(descriptor, 0, sizeof(*descriptor));
	descriptor->sequence = sequence;
	descriptor->flags = get32(buffer + 12);
	descriptor->length = get64(buffer + 16);
	descriptor->captured = get64(buffer + 24);
	descriptor->published = get64(buffer + 32);
	descriptor->metadata_length = get16(buffer + 40);
	if (get64(buffer) != sequence + 1 || get32(buffer + 8) != pl_ring_index(sequence, geometry->slots) ||
	    (descriptor->flags & ~(uint32_t)DESCRIPTOR_FLAGS) || descriptor->length > geometry->slot_bytes ||
	    descriptor->metadata_length > geometry->metadata_bytes || get64(buffer + 40) >> 16 ||
	    get64(buffer + DESCRIPTOR_RESERVED) || !descriptor_decode_layout(buffer, descriptor))
		return -EPROTO;
	if ((descriptor->flags & PL_DESCRIPTOR_ABORTED) &&
	    (descriptor->flags != PL_DESCRIPTOR_ABORTED || descriptor->length || descriptor->metadata_length))
		return -EPROTO;
	return 0;
}
