/* SPDX-License-Identifier: BSD-2-Clause */
/* Facts of one host, read from its document: they are compared with those of other hosts and other times. */
#ifndef PL_CMD_FLEET_FACTS_H
#define PL_CMD_FLEET_FACTS_H

#include "cmd/common/output.h"
#include "diag/check/check.h"

#define FACT_ID_MAX 64
#define FACT_OBJECT_MAX 96
#define FACT_VALUE_MAX 400

enum fact_kind {
	FACT_STATUS,  /* status of a check; no object */
	FACT_FINDING, /* finding of a check that is not OK */
	FACT_OBJECT,  /* a device is present */
	FACT_VALUE,   /* property of the machine or of a device */
};

struct fact {
	enum fact_kind kind;
	enum pl_check_status status; /* of checks and findings */
	char *id;                    /* a check, or a property such as "firmware" */
	char *object;                /* empty: the machine */
	char *value;
};

struct facts {
	struct fact *list; /* sorted by kind, id, object and value once they are read */
	size_t count, room;
	bool no_memory;
};

/* Adds a fact; texts are cut at their limits, and control characters replaced. */
void facts_add(struct facts *facts, enum fact_kind kind, enum pl_check_status status, const char *id,
	       const char *object, const char *value);
/* Adds the text of a member, unless it is unknown. */
void facts_add_text(struct facts *facts, const char *id, const char *object, struct json_object *from,
		    const char *name);
/* Adds a number and its unit; a negative one is unknown. */
void facts_add_number(struct facts *facts, const char *id, const char *object, int64_t number, const char *unit);
/* Adds the rate of a port or the speed of a link, in units of `divisor`; 0 or a negative one is unknown. */
void facts_add_rate(struct facts *facts, const char *id, const char *object, int64_t rate, double divisor,
		    const char *unit);
/* Adds the width of a device's link, as facts_add_rate() its speed. */
void facts_add_lanes(struct facts *facts, const char *object, int64_t lanes);
/* Sorts the facts. */
void facts_sort(struct facts *facts);
/* Compares kind, id and object; with values also these. */
int facts_compare(const struct fact *a, const struct fact *b, bool values);
/* Returns the first fact of this kind, id and object, or NULL. */
const struct fact *facts_find(const struct facts *facts, enum fact_kind kind, const char *id, const char *object);
/* Returns the first finding of a check, whose other findings follow; NULL if it has none. */
const struct fact *facts_first_finding(const struct facts *facts, const char *id);
void facts_free(struct facts *facts);

/* True if facts of this id are properties of hosts, no check. */
bool facts_is_property(const char *id);
/* Returns the properties, one after the other; NULL at the end. */
const char *facts_property_at(size_t index);

/* Reads the facts of an output of `peerlane check --json` (facts_check.c).  Members of wrong types are left out. */
void facts_read_check(struct facts *facts, struct json_object *document);
/* Reads the facts of an output of `peerlane topo --json` (facts_topo.c). */
void facts_read_topo(struct facts *facts, struct json_object *document);

/* -- members of documents, whose content is not trusted ------------------------------------------ */

/* Returns the number of a member; -1 if there is none. */
int64_t fleet_number(struct json_object *object, const char *name);
/* Returns an element of an array member; NULL behind its end. */
struct json_object *fleet_element(struct json_object *object, const char *name, size_t index);

#endif
