/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane fleet`: its subcommands and their options. */
#ifndef PL_CMD_FLEET_FLEET_H
#define PL_CMD_FLEET_FLEET_H

#include "cmd/fleet/output.h"

/* Options of `peerlane fleet check`, `topo` and `show`. */
struct fleet_options {
	struct cli_options common;
	enum fleet_kind kind;
	bool shows;      /* a saved run, in place of asking hosts */
	const char *run; /* to show */
	struct host_list hosts, excluded;
	const char *launch, *program, *output, *save;
	const char **files; /* of hosts */
	size_t file_count;
	const char **expected; /* values of --expect, passed on to the hosts */
	size_t expected_count;
	unsigned parallel;
	uint64_t timeout;
	enum pl_check_status fail_on;
	struct fleet_ignored *ignored;
	size_t ignored_count;
};

/* Options that name hosts and their launcher; the input is a struct fleet_options. */
extern const struct argp fleet_launch_argp;
/* Sets the defaults of these options. */
void fleet_options_init(struct fleet_options *options);
/* Reads the files of hosts, and moves the hosts to ask out of the options. */
int fleet_choose_hosts(struct fleet_options *options, struct host_list *hosts, struct pl_error *error);

/* Parses a command line into zeros, whose kind or `shows` is set; ends the process if it is wrong (options.c). */
void fleet_parse_arguments(struct fleet_options *options, int argc, char **argv);
/* Parses ID[:OBJECT][=REASON],... and adds what it accepts (options.c). */
int fleet_parse_ignored(struct fleet_ignored **ignored, size_t *count, const char *text, struct pl_error *error);
void fleet_free_options(struct fleet_options *options);

/* Asks all hosts, and fills the answers of the fleet (collect.c). */
int fleet_collect(struct fleet *fleet, const struct fleet_options *options, struct pl_error *error);

/* Line of progress (progress.c). */
struct fleet_progress {
	bool wanted, terminal;
	uint64_t begun, shown;
	size_t failed;
};

void fleet_progress_begin(struct fleet_progress *progress, bool wanted);
/* Shows the state of all hosts, if it is time. */
void fleet_progress_show(struct fleet_progress *progress, const struct host_list *hosts, const unsigned char *states);
/* Removes the line. */
void fleet_progress_end(struct fleet_progress *progress);

/* Subcommands; argv[0] is "peerlane fleet NAME". */
int fleet_check(int argc, char **argv);
int fleet_topo(int argc, char **argv);
int fleet_show(int argc, char **argv);
int fleet_compare(int argc, char **argv);
int fleet_bench(int argc, char **argv);

#endif
