/* SPDX-License-Identifier: BSD-2-Clause */
/* What all documents of results begin with: what was run, when, and on what. */
#ifndef PL_CLI_RESULT_HEAD_H
#define PL_CLI_RESULT_HEAD_H

#include "cmd/common/output.h"

/* Lists have a newline after each member. */
struct machine {
	char host[64], kernel[64], processor[64];
	char gpus[160], cards[160];
	uint32_t cores;
	uint64_t memory; /* bytes */
};

/* From uname(2), /proc and /sys; what cannot be found out stays empty. */
void machine_read(struct machine *machine);
struct json_object *machine_json(const struct machine *machine);

/*
 * Adds "format", "kind", "version", "time" and "command".  argv[0] may have several words, as argp shows them
 * ("peerlane bench").
 */
void result_head(struct json_object *object, const char *kind, int argc, char **argv);

/* Adds "topology" and "check": what `peerlane topo --json` and `peerlane check --json` print; not what fails. */
void result_attach_machine(struct json_object *object);

#endif
