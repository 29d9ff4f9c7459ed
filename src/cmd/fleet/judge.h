/* SPDX-License-Identifier: BSD-2-Clause */
/* Comparison of hosts with each other: what most hosts have is usual, and the rest stands out. */
#ifndef PL_CMD_FLEET_JUDGE_H
#define PL_CMD_FLEET_JUDGE_H

#include <stdio.h>

#include "cmd/fleet/answer.h"
#include "cmd/fleet/host_list.h"

/* Finding or difference that an operator accepts. */
struct fleet_ignored {
	char id[FACT_ID_MAX + 1];
	char object[FACT_OBJECT_MAX + 1]; /* empty: all objects */
	char reason[160];
	size_t used;
};

/* True if the operator accepts this; counts the use of the entry. */
bool fleet_is_ignored(struct fleet_ignored *ignored, size_t count, const char *id, const char *object);

/* States of rows and hosts, the worst first. */
enum row_state {
	ROW_FAIL,
	ROW_WARN,
	ROW_DIFFERS, /* from the usual value of a fact, from the usual status, or in its clock or name */
	ROW_UNKNOWN,
	ROW_SILENT, /* no document */
	ROW_WELL,
	ROW_STATES,
};

/* Finding, or value that differs. */
struct row_item {
	char *object; /* empty: the machine */
	char *text;
};

/* Row of one host: a check, a property, a note, or the reason of its silence. */
struct fleet_row {
	enum row_state state;
	bool outlier;       /* most hosts have another status or value */
	const char *id;     /* of a fact, a note or an outcome */
	const char *usual;  /* status of most hosts; NULL: none, or no check */
	size_t usual_count; /* hosts that have it */
	size_t host;
	struct row_item *items;
	size_t count;
	char *key; /* equal rows of several hosts have equal keys */
};

/* Rows of several hosts that are alike. */
struct fleet_group {
	const struct fleet_row *row; /* of the first host */
	size_t *hosts, host_count;   /* indices, ascending */
	bool numbers_vary;           /* the rows differ in numbers of their texts */
};

/* Property of machines without a usual value. */
struct fleet_mixture {
	const char *id;
	struct mixture_value {
		const char *value;
		size_t *hosts, host_count;
	} * values;
	size_t count;
};

struct fleet {
	enum fleet_kind kind;
	enum pl_check_status fail_on;
	struct host_list hosts;
	struct answer *answers; /* one for each host */
	struct fleet_ignored *ignored;
	size_t ignored_count;
	double seconds; /* of the whole run */
	/* set by fleet_judge() */
	struct fleet_row *rows;
	size_t row_count;
	struct fleet_group *groups; /* outliers first, silent hosts last */
	size_t group_count;
	struct fleet_mixture *mixtures;
	size_t mixture_count;
	enum row_state *states; /* of hosts: the worst of their rows */
	size_t counts[ROW_STATES];
};

/* Usual value of a fact. */
struct usual {
	const struct fact *fact; /* has the value; of FACT_OBJECT: the object */
	size_t count;            /* hosts with this value, or with this object */
	bool absent;             /* FACT_OBJECT: most hosts have no such object */
};

struct usuals {
	struct usual *list; /* sorted as facts are */
	size_t count;
};

/* Finds the usual values, and the mixtures of the fleet (usual.c).  Returns 0 or -ENOMEM. */
int usuals_find(struct usuals *usuals, struct fleet *fleet);
const struct usual *usuals_get(const struct usuals *usuals, const struct fact *fact);

/* Returns "FAIL", "WARN", "DIFFERS", "UNKNOWN", "NONE" or "OK". */
const char *row_state_name(enum row_state state);
/* True if the value of so many hosts is usual among `total`: 80 % of them, or all but one. */
bool fleet_is_usual(size_t count, size_t total);

/* Compares the answers, and groups what stands out.  Returns 0 or -ENOMEM. */
int fleet_judge(struct fleet *fleet);
/* Sorts rows into groups (groups.c).  Returns 0 or -ENOMEM. */
int fleet_group_rows(struct fleet *fleet);
/* Writes a text with HOST for each whole word that is the host's name: launchers put the name into their messages (groups.c). */
void fleet_write_without_host(FILE *file, const char *text, const char *host);
/* Returns the exit status of a judged fleet. */
int fleet_exit_status(const struct fleet *fleet);
/* Number of hosts with a document. */
size_t fleet_answered(const struct fleet *fleet);
void fleet_free(struct fleet *fleet);

#endif
