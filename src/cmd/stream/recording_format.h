/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Bytes of a recording: a file with the frames of a stream. Little-endian; reserved bytes are 0. docs/streams.md has the
 * tables. Everything begins at multiples of RECORDING_PAGE:
 *
 *   header    one page
 *   frames    each one page (head and metadata), then the payload
 *   index     a page (summary), then 16 bytes for each frame; then the trailer
 *
 * Decoders take untrusted bytes: they check the digest of each page, and that all fields are in range.
 */
#ifndef PL_CMD_STREAM_RECORDING_FORMAT_H
#define PL_CMD_STREAM_RECORDING_FORMAT_H

#include <stdbool.h>

#include <peerlane/stream.h>

#define RECORDING_VERSION 1
#define RECORDING_PAGE 4096u
#define RECORDING_ENTRY 16u
#define RECORDING_TRAILER 64u

struct recording_header {
	uint8_t instance[16]; /* of the stream */
	uint64_t created;     /* of the stream, CLOCK_REALTIME nanoseconds */
	uint64_t recorded;    /* beginning of the recording, the same */
	uint64_t slot_bytes;
	uint32_t slots, metadata_bytes;
	struct pl_layout layout;
	char content_type[PL_CONTENT_TYPE_SIZE];
	char name[PL_STREAM_NAME_SIZE];
};

struct recording_frame {
	uint64_t sequence, length, captured;
	uint64_t digest;         /* XXH3-64 of the payload */
	struct pl_layout layout; /* zero: that of the stream */
	const void *metadata;    /* of the caller, or in the decoded page */
	uint32_t metadata_length;
};

/* Reason for the end of a recording. */
enum recording_end {
	RECORDING_UNKNOWN = 0, /* the file has no index */
	RECORDING_ENDED,       /* the stream ended */
	RECORDING_COUNT,       /* --count */
	RECORDING_TIME,        /* --seconds */
	RECORDING_SIGNAL,
	RECORDING_LOST,   /* the publisher or the connection was lost */
	RECORDING_FULL,   /* the file could not grow */
	RECORDING_FAILED, /* another failure */
	RECORDING_ENDS,
};

struct recording_summary {
	uint64_t frames;
	uint64_t end; /* offset of the index */
	enum recording_end reason;
	struct pl_accounts accounts;
};

struct recording_entry {
	uint64_t sequence, offset;
};

struct recording_trailer {
	uint64_t index;  /* its offset */
	uint64_t bytes;  /* of the index */
	uint64_t digest; /* XXH3-64 of the index */
};

/* Decoders return -EINVAL for other bytes than the encoders write. `page` has RECORDING_PAGE bytes. */
void recording_header_encode(const struct recording_header *header, uint8_t *page);
int recording_header_decode(const uint8_t *page, struct recording_header *header);

/* The frame fits the header: pl_subscriber_take() returned it. */
void recording_frame_encode(const struct recording_frame *frame, uint8_t *page);
int recording_frame_decode(const uint8_t *page, const struct recording_header *header, struct recording_frame *frame);
/* Returns the bytes of a frame in the file: a page, and the payload up to the next multiple of the page. */
uint64_t recording_frame_bytes(uint64_t length);

void recording_summary_encode(const struct recording_summary *summary, uint8_t *page);
int recording_summary_decode(const uint8_t *page, struct recording_summary *summary);

void recording_entry_encode(const struct recording_entry *entry, uint8_t bytes[RECORDING_ENTRY]);
void recording_entry_decode(const uint8_t bytes[RECORDING_ENTRY], struct recording_entry *entry);

void recording_trailer_encode(const struct recording_trailer *trailer, uint8_t bytes[RECORDING_TRAILER]);
/* `size` is that of the file, which ends with these bytes. */
int recording_trailer_decode(const uint8_t bytes[RECORDING_TRAILER], uint64_t size, struct recording_trailer *trailer);

/* Returns "ended", "count", "seconds", "signal", "lost", "full", "failed" or "unknown". */
const char *recording_end_name(enum recording_end reason);

#endif
