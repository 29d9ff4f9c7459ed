/* SPDX-License-Identifier: BSD-2-Clause */
/* Changes of hosts between two saved answers. */
#ifndef PL_CMD_FLEET_CHANGES_H
#define PL_CMD_FLEET_CHANGES_H

#include "cmd/fleet/judge.h"
#include "cmd/fleet/saved.h"

/* Ranks of changes, in the order of the output. */
enum change_rank {
	CHANGE_FAIL, /* a check fails now */
	CHANGE_WARN,
	CHANGE_DEVICE, /* a device is missing, or new */
	CHANGE_VALUE,
	CHANGE_UNKNOWN,
	CHANGE_BETTER, /* a check that was not OK */
};

/* Change of one fact of one host. */
struct change {
	enum change_rank rank;
	const char *id;
	char *objects; /* in compressed form; empty: the machine */
	char *was, *now;
	bool text;   /* of a check: numbers in it do not divide groups */
	size_t host; /* index in changes.names */
};

/* Hosts with the same change. */
struct change_group {
	const struct change *change; /* of the first host */
	size_t count;                /* changes[0 .. count) of the sorted list are equal */
	bool numbers_vary;
};

struct changes {
	const struct saved *before, *after;
	struct fleet_ignored *ignored;
	size_t ignored_count;
	/* set by changes_find() */
	const char **names; /* hosts with two documents; the names belong to `before` */
	size_t name_count, changed, restarted;
	struct change *list; /* sorted by group and host */
	size_t count, room;
	struct change_group *groups;
	size_t group_count;
	const char **gone, **added;   /* hosts in one of them only */
	const char **silent, **spoke; /* hosts that have no document any more, and those that have one again */
	size_t gone_count, added_count, silent_count, spoke_count;
};

/* Compares both, and groups the changes.  Returns 0 or -ENOMEM. */
int changes_find(struct changes *changes);
/* True if anything differs. */
bool changes_exist(const struct changes *changes);
void changes_free(struct changes *changes);

/* Adds the changes of one host with two documents (change_facts.c).  Returns 0 or -ENOMEM. */
int changes_add_host(struct changes *changes, size_t host, const struct answer *before, const struct answer *after);

/*
 * Compares both runs, and prints the changes (change_output.c): as JSON with --json, as comma-separated values with `csv`, else as
 * a table.  Returns the exit status: CLI_FAILED if something changed, CLI_USAGE after a message if the runs are not of one kind.
 */
int changes_show(struct changes *changes, const struct cli_options *common, bool csv);
/* Returns the document that docs/fleet-changes.schema.json describes. */
struct json_object *changes_document(const struct changes *changes);

#endif
