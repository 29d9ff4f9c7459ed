/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Facts that only the running machine can tell (limits, addresses, answers of libibverbs and libcuda), as lines "key
 * value". They are gathered once. A dump keeps them beside its files, so rows work the same for captures.
 */
#ifndef PL_DIAG_CHECK_FACTS_H
#define PL_DIAG_CHECK_FACTS_H

#include "topology/sysroot.h"

/* File of the facts in a dump, or in a folder that stands for a machine. */
#define PL_FACTS_PATH "/peerlane/facts"
#define PL_FACT_KEY_MAX 96
#define PL_FACT_VALUE_MAX 480

struct pl_facts;

struct pl_facts *pl_facts_new(void);
void pl_facts_free(struct pl_facts *facts);

/*
 * Sets a fact once: the first value stays. The value is formatted and cut to fit; line ends become spaces. Does nothing
 * without memory.
 */
void pl_facts_set(struct pl_facts *facts, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds facts from lines. Lines that are not "key value", and those beyond a limit of 4096, are ignored. */
void pl_facts_parse(struct pl_facts *facts, const char *text, size_t length);
/* Adds the facts that a dump or a folder has in PL_FACTS_PATH, if any. */
void pl_facts_load(struct pl_facts *facts, struct pl_sysroot *root);
/* Returns all facts as text, to be freed; NULL without memory. */
char *pl_facts_format(const struct pl_facts *facts, size_t *length);

/* Returns the value or NULL. The key is formatted. */
const char *pl_facts_get(const struct pl_facts *facts, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the value as a number; `otherwise` if it is unknown or no number. */
long long pl_facts_number(const struct pl_facts *facts, long long otherwise, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Returns keys and values in order; NULL at the end. */
const char *pl_facts_at(const struct pl_facts *facts, size_t index, const char **value);

#endif
