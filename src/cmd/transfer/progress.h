/* SPDX-License-Identifier: BSD-2-Clause */
/* Progress line of a transfer on the terminal. */
#ifndef PL_CMD_TRANSFER_PROGRESS_H
#define PL_CMD_TRANSFER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool shown; /* set while standard error is a terminal and progress is requested */
	bool unicode;
	const char *label;
	uint64_t total;
	uint64_t done;
	uint64_t drawn_at;           /* time of the last drawing; 0: never */
	double rate;                 /* bytes per second, smoothed; 0: unknown */
	uint64_t rate_at, rate_done; /* time and bytes of the last measurement */
};

/* Starts with `done` of `total` bytes.  `label` must stay valid until progress_end(). */
void progress_begin(struct progress *progress, bool wanted, const char *label, uint64_t total, uint64_t done);
/* Draws the line, at most ten times a second. */
void progress_update(struct progress *progress, uint64_t done);
/* Removes the line. */
void progress_end(struct progress *progress);

#endif
