/* SPDX-License-Identifier: BSD-2-Clause */
/* Sequences that a recording lacks between its frames: they were lost, or the publisher aborted or skipped them. */
#ifndef PL_CMD_STREAM_RECORDING_GAPS_H
#define PL_CMD_STREAM_RECORDING_GAPS_H

#include <json-c/json.h>
#include <stdint.h>
#include <stdio.h>

/* Gaps that are listed. Later ones are only counted. */
#define RECORDING_GAPS_MAX 64

struct recording_gap {
	uint64_t first, last; /* sequences */
};

struct recording_gaps {
	struct recording_gap list[RECORDING_GAPS_MAX];
	uint64_t count;     /* gaps */
	uint64_t sequences; /* in all of them */
	uint64_t next;      /* sequence that is expected */
};

/* Begins with the first sequence that is expected. */
void recording_gaps_begin(struct recording_gaps *gaps, uint64_t first);
/* Adds a frame, and the gap before it. Sequences rise. */
void recording_gaps_add(struct recording_gaps *gaps, uint64_t sequence);
/* Prints "missing: 5 to 7, 20" and a newline; nothing without gaps. */
void recording_gaps_print(FILE *to, const struct recording_gaps *gaps);
/* Returns { "count", "sequences", "ranges": [ [first, last], ... ] }. */
struct json_object *recording_gaps_json(const struct recording_gaps *gaps);

#endif
