/* SPDX-License-Identifier: BSD-2-Clause */
/* Writer of a recording. At each moment the file has all frames that were appended, also after a kill. */
#ifndef PL_CMD_STREAM_RECORDING_WRITER_H
#define PL_CMD_STREAM_RECORDING_WRITER_H

#include "cmd/stream/recording_index.h"

struct recording_writer {
	const char *path;
	int fd;
	uint64_t end; /* offset of the next frame */
	struct recording_index index;
	uint64_t bytes; /* of payloads */
};

/*
 * Creates a file, and writes its header. Replaces an existing file only if `force`. Keeps `path`. After a failure no file
 * is left that was not there before.
 */
int recording_create(struct recording_writer *writer, const char *path, bool force,
		     const struct recording_header *header, struct pl_error *error);
/* Appends a frame, whose digest is ignored. After a failure the file ends with the frame before. */
int recording_append(struct recording_writer *writer, const struct recording_frame *frame, const void *payload,
		     struct pl_error *error);
/*
 * Writes the index, and closes the file. After a failure the file has all frames, and maybe no index; but the disk may lack frames, if the
 * failed call is fsync(2) or close(2).
 */
int recording_finish(struct recording_writer *writer, enum recording_end reason, const struct pl_accounts *accounts,
		     struct pl_error *error);

#endif
