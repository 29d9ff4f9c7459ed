/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Token bucket that several threads share. Takers get their portions in the order in which they ask, so that none of them
 * waits longer than all others together need.
 */
#ifndef PL_BUCKET_H
#define PL_BUCKET_H

#include <stdatomic.h>

#include "base/base.h"

/* Nanoseconds of unused units that a bucket keeps: takers may be late by this time without a loss. */
#define PL_BUCKET_DEPTH (100 * PL_NS_PER_MS)
/* Smallest rate of a bucket, in units a second. One portion then takes less time than a bucket keeps units. */
#define PL_BUCKET_RATE_MIN 65536u

struct pl_bucket {
	_Atomic uint64_t rate;  /* units a second; 0: no limit */
	_Atomic uint64_t taken; /* time until which all units are taken, in nanoseconds of pl_now() */
	_Atomic uint64_t waits; /* number of times that a taker had to wait */
};

/* Changes the rate. Units that were taken stay taken; no taker waits for those of another one any longer. */
void pl_bucket_set_rate(struct pl_bucket *bucket, uint64_t rate, uint64_t now);

/* Returns the units of one portion: few enough to share the rate fairly, many enough for efficient system calls. */
uint32_t pl_bucket_portion(uint64_t rate);

/* Takes units. Returns the time from which the caller may use them; at most `now`: at once. */
uint64_t pl_bucket_take(struct pl_bucket *bucket, uint64_t units, uint64_t now);

#endif
