/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reader of a recording. The file is untrusted: nothing is allocated by its numbers, and each frame is checked. Without an
 * index, as a killed writer leaves it, the reader finds the whole frames by their heads.
 */
#ifndef PL_CMD_STREAM_RECORDING_READER_H
#define PL_CMD_STREAM_RECORDING_READER_H

#include "cmd/stream/recording_format.h"

struct recording_reader {
	const char *path;
	int fd;
	struct recording_header header;
	bool indexed; /* the file has a whole index */
	/* Without an index the accounts are 0, and the reason is RECORDING_UNKNOWN. */
	struct recording_summary summary;
	uint64_t rest;   /* bytes behind the last whole frame, without an index: a frame that was cut, or damage */
	uint64_t at;     /* offset of the next frame */
	uint64_t number; /* frames before it */
	uint64_t next_sequence; /* least sequence that it can have */
	uint64_t payload;       /* offset of the payload of the last frame */
	uint8_t page[RECORDING_PAGE];
};

/* Opens a file. After a failure, the reader needs no recording_close(). Keeps `path`. */
int recording_open(struct recording_reader *reader, const char *path, struct pl_error *error);
/* The same of a descriptor, which the reader owns from now on. */
int recording_open_fd(struct recording_reader *reader, int fd, const char *path, struct pl_error *error);
void recording_close(struct recording_reader *reader);

/*
 * Reads the head of the next frame; its metadata is valid until the next call. Returns 1; 0 after the last frame; -EBADMSG
 * for a damaged head, after which the frames behind cannot be found; or a negative errno.
 */
int recording_next(struct recording_reader *reader, struct recording_frame *frame, struct pl_error *error);
/* Begins again with the first frame. */
void recording_rewind(struct recording_reader *reader);
/*
 * Reads the payload of the frame that recording_next() returned last, and checks its digest. `buffer` has frame->length
 * bytes; NULL: only checks. Returns 0; -EBADMSG for a damaged payload; or a negative errno.
 */
int recording_read(const struct recording_reader *reader, const struct recording_frame *frame, void *buffer,
		   struct pl_error *error);
/* Reads an entry of the index; number < summary.frames. Returns 0 or a negative errno. */
int recording_entry(const struct recording_reader *reader, uint64_t number, struct recording_entry *entry,
		    struct pl_error *error);

#endif
