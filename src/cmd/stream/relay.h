/* SPDX-License-Identifier: BSD-2-Clause */
/* State of `peerlane relay`: a subscriber whose frames are published again, with their sequences. */
#ifndef PL_CMD_STREAM_RELAY_H
#define PL_CMD_STREAM_RELAY_H

#include "cmd/stream/stream_server.h"
#include "cmd/stream/subscribe.h"
#include "cmd/stream/token_file.h"

struct relay_options {
	struct subscribe_options upstream; /* address, name and start of the stream that is relayed */
	const char *listen;
	const char *name;  /* of the own stream; NULL: that of the relayed one */
	uint64_t slots;    /* 0: those of the relayed stream */
	uint64_t patience; /* nanoseconds; 0: the default of the library */
	bool allow_block;
	struct stream_share share;
};

struct relay {
	const struct relay_options *options;
	struct subscribe subscribe;
	struct subscribe_forward forward;
	struct stream_server server;
	uint64_t lost; /* sequences that were skipped as lost */
};

/* Parses the command line (relay_options.c). */
void relay_parse_arguments(struct relay_options *options, int argc, char **argv);

#endif
