/* SPDX-License-Identifier: BSD-2-Clause */
/* Head of all result documents: command, time, machine. */
#ifndef PL_BENCH_COMMON_RESULT_HEAD_H
#define PL_BENCH_COMMON_RESULT_HEAD_H

#include "cmd/common/output.h"

/* Hardware and system of a host.  Lists have a newline after each member. */
struct machine {
	char host[64], kernel[64], processor[64];
	char gpus[160], cards[160];
	uint32_t cores;
	uint64_t memory; /* bytes */
};

/* Reads uname(2), /proc and /sys; unknown values stay empty. */
void machine_read(struct machine *machine);
struct json_object *machine_json(const struct machine *machine);

/*
 * Adds "format", "kind", "version", "time" and "command". argv[0] may have several words, as argp prints them
 * ("peerlane bench").
 */
void result_head(struct json_object *object, const char *kind, int argc, char **argv);

/* Adds "topology" and "check", the outputs of `peerlane topo --json` and `peerlane check --json`, unless they fail. */
void result_attach_machine(struct json_object *object);

#endif
