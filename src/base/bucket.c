/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/bucket.h"

/* Limits of a portion, in units, and number of portions in a second between them. */
#define PORTION_MIN 4096u
#define PORTION_MAX (256u << 10)
#define PORTIONS_A_SECOND 40

/* Returns the nanoseconds in which that many units pass, rounded up; UINT64_MAX if the number does not fit. */
static uint64_t bucket_time_of(uint64_t units, uint64_t rate)
{
	uint64_t seconds = units / rate, rest = units % rate;
	uint64_t product, nanoseconds;

	if (seconds > UINT64_MAX / PL_NS_PER_S - 1)
		return UINT64_MAX;
	/* Divides first where the product does not fit. The rate is large then, and the error below one millionth. */
	if (rest <= UINT64_MAX / PL_NS_PER_S) {
		product = rest * PL_NS_PER_S;
		nanoseconds = product / rate + (product % rate != 0);
	} else {
		nanoseconds = rest / (rate / PL_NS_PER_S) + 1;
	}
	return seconds * PL_NS_PER_S + PL_MIN(nanoseconds, (uint64_t)PL_NS_PER_S);
}

void pl_bucket_set_rate(struct pl_bucket *bucket, uint64_t rate, uint64_t now)
{
	atomic_store(&bucket->taken, now);
	atomic_store(&bucket->rate, rate ? PL_MAX(rate, (uint64_t)PL_BUCKET_RATE_MIN) : 0);
}

uint32_t pl_bucket_portion(uint64_t rate)
{
	return (uint32_t)PL_MIN(PL_MAX(rate / PORTIONS_A_SECOND, (uint64_t)PORTION_MIN), (uint64_t)PORTION_MAX);
}

uint64_t pl_bucket_take(struct pl_bucket *bucket, uint64_t units, uint64_t now)
{
	uint64_t rate = atomic_load(&bucket->rate), taken = atomic_load(&bucket->taken), next;
	uint64_t oldest = now > PL_BUCKET_DEPTH ? now - PL_BUCKET_DEPTH : 0;

	if (!rate)
		return now;
	do {
		next = pl_deadline(PL_MAX(taken, oldest), bucket_time_of(units, rate));
	} while (!atomic_compare_exchange_weak(&bucket->taken, &taken, next));
	return next;
}
