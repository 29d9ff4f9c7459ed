/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fields by offset.
 *
 * Header: 0 magic "PLRECORD", 8 u32 version, 12 u32 4096, 16 instance[16], 32 u64 created, 40 u64 recorded, 48 u64 slot
 * bytes, 56 u32 slots, 60 u32 metadata bytes, 64 layout, 136 content type[64], 200 name[64], zeros, 4088 u64 digest.
 *
 * Frame: 0 magic "PLFRAME1", 8 u64 sequence, 16 u64 length, 24 u64 captured, 32 u64 digest of the payload, 40 u32 bytes of
 * metadata, 44 u32 zero, 48 layout, zeros, 192 metadata, zeros, 4088 u64 digest.
 *
 * Summary: 0 magic "PLINDEX1", 8 u64 frames, 16 u64 offset, 24 u32 reason, 28 u32 zero, 32 accounts (10 u64), zeros,
 * 4088 u64 digest.
 *
 * Trailer: 0 magic "PLEND001", 8 u64 index, 16 u64 bytes, 24 u64 digest of the index, zeros, 56 u64 digest.
 *
 * A digest is the XXH3-64 of all bytes before it. Layout: u8 code, u8 bits, u16 lanes, u32 dimensions, 8 u64 shape.
 */
#include "cmd/stream/recording_format.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cmd/common/cli.h"
#include "stream/ring.h"

#define PAGE_DIGEST (RECORDING_PAGE - 8)
#define HEADER_LAYOUT 64
#define HEADER_CONTENT 136
#define HEADER_NAME 200
#define HEADER_USED 264
#define FRAME_LAYOUT 48
#define FRAME_METADATA 192
#define SUMMARY_ACCOUNTS 32
#define SUMMARY_USED 112
#define TRAILER_USED 32
#define TRAILER_DIGEST (RECORDING_TRAILER - 8)
#define LAYOUT_BYTES 72

static void recording_put32(uint8_t *at, uint32_t value)
{
	value = htole32(value);
	memcpy(at, &value, sizeof(value));
}

static void recording_put64(uint8_t *at, uint64_t value)
{
	value = htole64(value);
	memcpy(at, &value, sizeof(value));
}

static uint32_t recording_get32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t recording_get64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

static bool recording_zeros(const uint8_t *begin, const uint8_t *end)
{
	while (begin < end)
		if (*begin++)
			return false;
	return true;
}

static void page_begin(uint8_t *page, const char *magic)
{
	memset(page, 0, RECORDING_PAGE);
	memcpy(page, magic, 8);
}

static void page_end(uint8_t *page)
{
	recording_put64(page + PAGE_DIGEST, XXH3_64bits(page, PAGE_DIGEST));
}

static bool page_whole(const uint8_t *page, const char *magic)
{
	return !memcmp(page, magic, 8) && recording_get64(page + PAGE_DIGEST) == XXH3_64bits(page, PAGE_DIGEST);
}

/* -- layouts ---------------------------------------------------------------------------------------- */

static void recording_layout_encode(const struct pl_layout *layout, uint8_t *at)
{
	at[0] = layout->code;
	at[1] = layout->bits;
	at[2] = (uint8_t)layout->lanes;
	at[3] = (uint8_t)(layout->lanes >> 8);
	recording_put32(at + 4, layout->dimensions);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		recording_put64(at + 8 + i * 8, layout->shape[i]);
}

static void recording_layout_decode(const uint8_t *at, struct pl_layout *layout)
{
	layout->code = at[0];
	layout->bits = at[1];
	layout->lanes = (uint16_t)(at[2] | at[3] << 8);
	layout->dimensions = recording_get32(at + 4);
	for (unsigned i = 0; i < PL_LAYOUT_DIMENSIONS_MAX; i++)
		layout->shape[i] = recording_get64(at + 8 + i * 8);
}

/* -- header ----------------------------------------------------------------------------------------- */

void recording_header_encode(const struct recording_header *header, uint8_t *page)
{
	page_begin(page, "PLRECORD");
	recording_put32(page + 8, RECORDING_VERSION);
	recording_put32(page + 12, RECORDING_PAGE);
	memcpy(page + 16, header->instance, sizeof(header->instance));
	recording_put64(page + 32, header->created);
	recording_put64(page + 40, header->recorded);
	recording_put64(page + 48, header->slot_bytes);
	recording_put32(page + 56, header->slots);
	recording_put32(page + 60, header->metadata_bytes);
	recording_layout_encode(&header->layout, page + HEADER_LAYOUT);
	memcpy(page + HEADER_CONTENT, header->content_type, strnlen(header->content_type, PL_CONTENT_TYPE_SIZE - 1));
	memcpy(page + HEADER_NAME, header->name, strnlen(header->name, PL_STREAM_NAME_SIZE - 1));
	page_end(page);
}

/* True if a text of a fixed size ends with zeros. */
static bool text_ends(const uint8_t *at, size_t size)
{
	const uint8_t *end = memchr(at, 0, size);

	return end && recording_zeros(end, at + size);
}

int recording_header_decode(const uint8_t *page, struct recording_header *header)
{
	memset(header, 0, sizeof(*header));
	if (!page_whole(page, "PLRECORD") || recording_get32(page + 8) != RECORDING_VERSION ||
	    recording_get32(page + 12) != RECORDING_PAGE || !recording_zeros(page + HEADER_USED, page + PAGE_DIGEST) ||
	    !text_ends(page + HEADER_CONTENT, PL_CONTENT_TYPE_SIZE) ||
	    !text_ends(page + HEADER_NAME, PL_STREAM_NAME_SIZE))
		return -EINVAL;
	memcpy(header->instance, page + 16, sizeof(header->instance));
	header->created = recording_get64(page + 32);
	header->recorded = recording_get64(page + 40);
	header->slot_bytes = recording_get64(page + 48);
	header->slots = recording_get32(page + 56);
	header->metadata_bytes = recording_get32(page + 60);
	recording_layout_decode(page + HEADER_LAYOUT, &header->layout);
	memcpy(header->content_type, page + HEADER_CONTENT, sizeof(header->content_type));
	memcpy(header->name, page + HEADER_NAME, sizeof(header->name));
	if (header->slot_bytes < 1 || header->slot_bytes > PL_RING_SLOT_MAX || header->slots < 2 ||
	    header->slots > PL_STREAM_SLOTS_MAX || header->metadata_bytes > PL_STREAM_METADATA_MAX ||
	    !pl_layout_valid(&header->layout) || pl_layout_bytes(&header->layout) > header->slot_bytes ||
	    !pl_stream_name_valid(header->name) || !pl_content_type_valid(header->content_type))
		return -EINVAL;
	return 0;
}

/* -- frames ----------------------------------------------------------------------------------------- */

void recording_frame_encode(const struct recording_frame *frame, uint8_t *page)
{
	page_begin(page, "PLFRAME1");
	recording_put64(page + 8, frame->sequence);
	recording_put64(page + 16, frame->length);
	recording_put64(page + 24, frame->captured);
	recording_put64(page + 32, frame->digest);
	recording_put32(page + 40, frame->metadata_length);
	recording_layout_encode(&frame->layout, page + FRAME_LAYOUT);
	if (frame->metadata_length)
		memcpy(page + FRAME_METADATA, frame->metadata, frame->metadata_length);
	page_end(page);
}

int recording_frame_decode(const uint8_t *page, const struct recording_header *header, struct recording_frame *frame)
{
	memset(frame, 0, sizeof(*frame));
	if (!page_whole(page, "PLFRAME1"))
		return -EINVAL;
	frame->sequence = recording_get64(page + 8);
	frame->length = recording_get64(page + 16);
	frame->captured = recording_get64(page + 24);
	frame->digest = recording_get64(page + 32);
	frame->metadata_length = recording_get32(page + 40);
	recording_layout_decode(page + FRAME_LAYOUT, &frame->layout);
	if (frame->sequence >= PL_RING_SEQUENCE_MAX || frame->length > header->slot_bytes ||
	    frame->metadata_length > header->metadata_bytes || !pl_layout_valid(&frame->layout) ||
	    pl_layout_bytes(&frame->layout) > frame->length || !recording_zeros(page + 44, page + 48) ||
	    !recording_zeros(page + FRAME_LAYOUT + LAYOUT_BYTES, page + FRAME_METADATA) ||
	    !recording_zeros(page + FRAME_METADATA + frame->metadata_length, page + PAGE_DIGEST))
		return -EINVAL;
	if (frame->metadata_length)
		frame->metadata = page + FRAME_METADATA;
	return 0;
}

uint64_t recording_frame_bytes(uint64_t length)
{
	return RECORDING_PAGE + (length + RECORDING_PAGE - 1) / RECORDING_PAGE * RECORDING_PAGE;
}

/* -- index ------------------------------------------------------------------------------------------ */

void recording_summary_encode(const struct recording_summary *summary, uint8_t *page)
{
	const struct pl_accounts *accounts = &summary->accounts;
	const uint64_t numbers[] = { accounts->first,    accounts->next,     accounts->delivered, accounts->lapped,
				     accounts->dropped,  accounts->rejected, accounts->aborted,   accounts->missed,
				     accounts->unwanted, accounts->pending };

	page_begin(page, "PLINDEX1");
	recording_put64(page + 8, summary->frames);
	recording_put64(page + 16, summary->end);
	recording_put32(page + 24, summary->reason);
	for (unsigned i = 0; i < CLI_ARRAY_SIZE(numbers); i++)
		recording_put64(page + SUMMARY_ACCOUNTS + i * 8, numbers[i]);
	page_end(page);
}

int recording_summary_decode(const uint8_t *page, struct recording_summary *summary)
{
	struct pl_accounts *accounts = &summary->accounts;
	uint64_t *const numbers[] = { &accounts->first,    &accounts->next,     &accounts->delivered, &accounts->lapped,
				      &accounts->dropped,  &accounts->rejected, &accounts->aborted,   &accounts->missed,
				      &accounts->unwanted, &accounts->pending };

	memset(summary, 0, sizeof(*summary));
	summary->reason = (enum recording_end)recording_get32(page + 24);
	if (!page_whole(page, "PLINDEX1") || summary->reason == RECORDING_UNKNOWN ||
	    summary->reason >= RECORDING_ENDS || !recording_zeros(page + 28, page + SUMMARY_ACCOUNTS) ||
	    !recording_zeros(page + SUMMARY_USED, page + PAGE_DIGEST))
		return -EINVAL;
	summary->frames = recording_get64(page + 8);
	summary->end = recording_get64(page + 16);
	for (unsigned i = 0; i < CLI_ARRAY_SIZE(numbers); i++)
		*numbers[i] = recording_get64(page + SUMMARY_ACCOUNTS + i * 8);
	return 0;
}

void recording_entry_encode(const struct recording_entry *entry, uint8_t bytes[RECORDING_ENTRY])
{
	recording_put64(bytes, entry->sequence);
	recording_put64(bytes + 8, entry->offset);
}

void recording_entry_decode(const uint8_t bytes[RECORDING_ENTRY], struct recording_entry *entry)
{
	entry->sequence = recording_get64(bytes);
	entry->offset = recording_get64(bytes + 8);
}

void recording_trailer_encode(const struct recording_trailer *trailer, uint8_t bytes[RECORDING_TRAILER])
{
	memset(bytes, 0, RECORDING_TRAILER);
	memcpy(bytes, "PLEND001", 8);
	recording_put64(bytes + 8, trailer->index);
	recording_put64(bytes + 16, trailer->bytes);
	recording_put64(bytes + 24, trailer->digest);
	recording_put64(bytes + TRAILER_DIGEST, XXH3_64bits(bytes, TRAILER_DIGEST));
}

int recording_trailer_decode(const uint8_t bytes[RECORDING_TRAILER], uint64_t size, struct recording_trailer *trailer)
{
	uint64_t end;

	trailer->index = recording_get64(bytes + 8);
	trailer->bytes = recording_get64(bytes + 16);
	trailer->digest = recording_get64(bytes + 24);
	if (memcmp(bytes, "PLEND001", 8) || !recording_zeros(bytes + TRAILER_USED, bytes + TRAILER_DIGEST) ||
	    recording_get64(bytes + TRAILER_DIGEST) != XXH3_64bits(bytes, TRAILER_DIGEST) ||
	    __builtin_add_overflow(trailer->index, trailer->bytes, &end) ||
	    __builtin_add_overflow(end, RECORDING_TRAILER, &end) || end != size || trailer->index < RECORDING_PAGE ||
	    trailer->index % RECORDING_PAGE || trailer->bytes < RECORDING_PAGE)
		return -EINVAL;
	return 0;
}

const char *recording_end_name(enum recording_end reason)
{
	static const char *const names[] = {
		"unknown", "ended", "count", "seconds", "signal", "lost", "full", "failed"
	};

	return names[reason];
}
