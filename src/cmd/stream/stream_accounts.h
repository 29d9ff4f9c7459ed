/* SPDX-License-Identifier: BSD-2-Clause */
/* Accounts of a command that can end before its stream does. */
#ifndef PL_CMD_STREAM_STREAM_ACCOUNTS_H
#define PL_CMD_STREAM_STREAM_ACCOUNTS_H

#include <peerlane/stream.h>

#include "cmd/common/cli.h"

/* Frames of one instance of a stream that a command has used. Begins zeroed. */
struct stream_used {
	uint64_t frames;
	uint64_t next; /* sequence behind the last of them; 0: none was used */
	uint64_t lost; /* sequences before the last of them that were lost */
};

/* Adds a frame. Frames come in the order of their sequences. */
void stream_used_add(struct stream_used *used, const struct pl_frame_info *frame);
/*
 * Leaves out the sequences behind the last frame that was used: the command did not want them. The number of frames that
 * were lost before is exact. Their kinds are known only together with those behind: what was lost behind is taken off
 * `dropped` first, then off `rejected`, `lapped` and `missed`. `every`: as in struct pl_subscriber_options.
 */
void stream_accounts_cut(struct pl_accounts *accounts, const struct stream_used *used, uint64_t every);
/* Prints a warning and a remedy if the queue of the command was full (accounts_text.c). */
void stream_accounts_warn(const struct pl_accounts *accounts);
/* Returns the frames that were lost. */
uint64_t stream_accounts_lost(const struct pl_accounts *accounts);
/* Adds the lost frames of each kind to a line of results (accounts_text.c). */
void stream_accounts_add_lost(struct wrap_line *line, const struct pl_accounts *accounts);

#endif
