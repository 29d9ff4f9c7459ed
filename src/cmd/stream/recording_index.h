/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Places of the frames of a recording, while it is written.  Frames at equal distances are one run, so frames of one size without
 * gaps take no memory, however many they are; others take about 4 bytes each.
 */
#ifndef PL_CMD_STREAM_RECORDING_INDEX_H
#define PL_CMD_STREAM_RECORDING_INDEX_H

#include <stdbool.h>

#include "cmd/stream/recording_format.h"

/* Frames that have the same distances from the ones before them. */
struct recording_run {
	uint64_t sequences, pages, frames;
};

struct recording_index {
	uint64_t count;
	uint8_t *runs; /* all but the last one, as numbers of seven bits a byte */
	size_t length, room;
	struct recording_run run; /* the last one */
	struct recording_entry last;
};

/* Makes room for one more frame.  Returns 0 or -ENOMEM. */
int recording_index_reserve(struct recording_index *index);
/* Adds a frame, for which there is room.  Its offset is a multiple of RECORDING_PAGE. */
void recording_index_add(struct recording_index *index, const struct recording_entry *entry);
void recording_index_free(struct recording_index *index);

/* Position in an index; initialised with zeros: before the first frame. */
struct recording_index_position {
	size_t at;
	bool in_last;
	struct recording_run run;
	struct recording_entry entry;
};

/* Steps to the next frame, and returns its entry; NULL: there is none. */
const struct recording_entry *recording_index_next(const struct recording_index *index,
						   struct recording_index_position *position);

#endif
