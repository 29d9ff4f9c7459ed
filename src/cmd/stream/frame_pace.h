/* SPDX-License-Identifier: BSD-2-Clause */
/* Times of frames at a rate.  The period of most rates is no whole number of nanoseconds, and the rest adds up over days. */
#ifndef PL_CMD_STREAM_FRAME_PACE_H
#define PL_CMD_STREAM_FRAME_PACE_H

#include <stdint.h>

struct frame_pace {
	uint64_t next;   /* time of the next frame */
	uint64_t period; /* whole nanoseconds between frames; 0: no rate */
	double rest;     /* nanoseconds of a period beyond these */
	double due;      /* of the rests that are not in `next` yet, below 1 */
};

/* `rate`: frames a second; 0: none. */
static inline void frame_pace_begin(struct frame_pace *pace, double rate, uint64_t now)
{
	double period = rate > 0 ? 1e9 / rate : 0;

	*pace = (struct frame_pace){ .next = now, .period = (uint64_t)period };
	pace->rest = period - (double)pace->period;
}

static inline void frame_pace_advance(struct frame_pace *pace)
{
	pace->next += pace->period;
	pace->due += pace->rest;
	if (pace->due < 1)
		return;
	pace->next++;
	pace->due -= 1;
}

#endif
