/* SPDX-License-Identifier: BSD-2-Clause */
/* Values of options of the commands for streams. */
#ifndef PL_CMD_STREAM_OPTIONS_TEXT_H
#define PL_CMD_STREAM_OPTIONS_TEXT_H

#include <argp.h>

#include "cmd/stream/reconnect.h"

/* Parses a decimal number from least to most.  Returns 0 or -EINVAL. */
int stream_number_parse(const char *text, uint64_t least, uint64_t most, uint64_t *number);
/* Parses seconds above 0, or "never", which is UINT64_MAX nanoseconds.  Returns 0 or -EINVAL. */
int stream_patience_parse(const char *text, uint64_t *patience);
/* Parses "live", "latest", "history:N" or "sequence:N".  Returns 0 or -EINVAL. */
int stream_start_parse(const char *text, struct pl_subscriber_options *options);
/* Parses "drop-oldest", "drop-newest" or "block".  Returns 0 or -EINVAL. */
int stream_overflow_parse(const char *text, enum pl_overflow *overflow);
/* Ends the command with a usage error unless the source has an address and a valid name. */
void stream_source_check(const struct stream_source *source, const struct argp_state *state);

#endif
