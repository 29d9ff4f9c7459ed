/* SPDX-License-Identifier: BSD-2-Clause */
/* A line on the terminal that shows how far a transfer is. */
#ifndef PL_CLI_PROGRESS_H
#define PL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool shown; /* standard error is a terminal, and it is wanted */
	bool unicode;
	const char *label;
	uint64_t total;
	uint64_t done;
	uint64_t drawn; /* when */
	double rate;    /* bytes a second, smoothed; 0: not known */
	uint64_t rate_at, rate_done;
};

/* `label` must stay until progress_end(); `done` bytes of `total` are there already. */
void progress_begin(struct progress *progress, bool wanted, const char *label, uint64_t total, uint64_t done);
/* Draws it, at most ten times a second. */
void progress_update(struct progress *progress, uint64_t done);
/* Removes the line. */
void progress_end(struct progress *progress);

#endif
