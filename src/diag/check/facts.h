/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What only the running machine can say (limits, addresses, answers of libibverbs and libcuda), as lines "key value".
 * They are gathered once; a dump keeps them beside its files, so that rows need not know where a machine is.
 */
#ifndef PL_DIAG_CHECK_FACTS_H
#define PL_DIAG_CHECK_FACTS_H

#include "base/base.h"

/* Where a dump, or a folder that stands for a machine, has them. */
#define PL_FACTS_PATH "/peerlane/facts"
#define PL_FACT_KEY_MAX 96
#define PL_FACT_VALUE_MAX 480

struct pl_facts;

struct pl_facts *pl_facts_new(void);
void pl_facts_free(struct pl_facts *facts);

/* The value is formatted and cut to fit; what could end a line becomes a space.  A key is set once: the first value
 * stays.  Nothing happens without memory. */
void pl_facts_set(struct pl_facts *facts, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds what lines say; those that are no "key value" are ignored, as are those beyond a limit of 4096. */
void pl_facts_parse(struct pl_facts *facts, const char *text, size_t length);
/* All of them as text, to be freed; NULL without memory. */
char *pl_facts_format(const struct pl_facts *facts, size_t *length);

/* The value, or NULL.  The key is formatted. */
const char *pl_facts_get(const struct pl_facts *facts, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The value as a number; `otherwise` if it is none, or not known. */
long long pl_facts_number(const struct pl_facts *facts, long long otherwise, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Keys and values in order; NULL at the end. */
const char *pl_facts_at(const struct pl_facts *facts, size_t index, const char **value);

#endif
