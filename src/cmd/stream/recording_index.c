/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stream/recording_index.h"

#include <errno.h>
#include <stdlib.h>

#define ROOM_FIRST 4096u
/* Most bytes of a run: three numbers of 64 bits. */
#define RUN_MAX 30u

static void index_put_number(struct recording_index *index, uint64_t number)
{
	while (number >> 7) {
		index->runs[index->length++] = (uint8_t)(number | 0x80);
		number >>= 7;
	}
	index->runs[index->length++] = (uint8_t)number;
}

static uint64_t index_get_number(const struct recording_index *index, size_t *at)
{
	uint64_t number = 0;
	unsigned shift = 0;

	while (index->runs[*at] & 0x80) {
		number |= (uint64_t)(index->runs[(*at)++] & 0x7f) << shift;
		shift += 7;
	}
	return number | (uint64_t)index->runs[(*at)++] << shift;
}

int recording_index_reserve(struct recording_index *index)
{
	size_t room = index->room ? index->room * 2 : ROOM_FIRST;
	uint8_t *runs;

	if (index->room - index->length >= RUN_MAX)
		return 0;
	runs = realloc(index->runs, room);
	if (!runs)
		return -ENOMEM;
	index->runs = runs;
	index->room = room;
	return 0;
}

void recording_index_add(struct recording_index *index, const struct recording_entry *entry)
{
	struct recording_run *run = &index->run;
	uint64_t sequences = entry->sequence - index->last.sequence;
	uint64_t pages = (entry->offset - index->last.offset) / RECORDING_PAGE;

	if (run->frames && (run->sequences != sequences || run->pages != pages)) {
		index_put_number(index, run->sequences);
		index_put_number(index, run->pages);
		index_put_number(index, run->frames);
		run->frames = 0;
	}
	run->sequences = sequences;
	run->pages = pages;
	run->frames++;
	index->last = *entry;
	index->count++;
}

void recording_index_free(struct recording_index *index)
{
	free(index->runs);
	*index = (struct recording_index){ .runs = NULL };
}

const struct recording_entry *recording_index_next(const struct recording_index *index,
						   struct recording_index_position *position)
{
	struct recording_run *run = &position->run;

	if (!run->frames && position->at < index->length) {
		run->sequences = index_get_number(index, &position->at);
		run->pages = index_get_number(index, &position->at);
		run->frames = index_get_number(index, &position->at);
	} else if (!run->frames && !position->in_last) {
		*run = index->run;
		position->in_last = true;
	}
	if (!run->frames)
		return NULL;
	run->frames--;
	position->entry.sequence += run->sequences;
	position->entry.offset += run->pages * RECORDING_PAGE;
	return &position->entry;
}
