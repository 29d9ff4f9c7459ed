/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/clock.h"

#include <string.h>

#define SOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"

/*
 * VALID: time for which the counter is used after a look at the kernel's clock. MEASURE_*: shortest and longest time
 * from which the rate is taken. DOUBT: a counter that is ahead of the kernel by this much is wrong.
 */
#define VALID PL_NS_PER_MS
#define MEASURE_LEAST (10 * PL_NS_PER_MS)
#define MEASURE_MOST PL_NS_PER_S
#define DOUBT 10000
/* Measurements must be this exact. The rate is lower by the same share, so that the time never runs ahead. */
#define EXACT_SHIFT 14
/* Rates that differ by a larger share show that one of the clocks stood still, as the kernel's does while it is suspended. */
#define AGREE_SHIFT 10

void pl_clock_open(struct pl_clock *clock)
{
	memset(clock, 0, sizeof(*clock));
#ifdef PL_CLOCK_SOURCE
	char name[sizeof(PL_CLOCK_SOURCE)];

	pl_read_head(SOURCE, name, sizeof(name));
	clock->steady = !strcmp(name, PL_CLOCK_SOURCE);
#endif
}

static void begin_measurement(struct pl_clock *clock, uint64_t unsure, uint64_t time, uint64_t after)
{
	clock->since_ticks = after;
	clock->since_time = time;
	clock->since_unsure = unsure;
}

static bool rates_agree(uint64_t rate, uint64_t other)
{
	uint64_t distance = rate > other ? rate - other : other - rate;

	return distance <= other >> AGREE_SHIFT;
}

static void measure_rate(struct pl_clock *clock, uint64_t unsure, uint64_t time, uint64_t after)
{
	uint64_t ticks = after - clock->since_ticks, took = time - clock->since_time, rate;

	/* The counter was set back, too. */
	if (!clock->since_time || took > 2 * MEASURE_MOST || ticks >> 62) {
		begin_measurement(clock, unsure, time, after);
		return;
	}
	if (took < MEASURE_LEAST)
		return;
	if (unsure + clock->since_unsure > ticks >> EXACT_SHIFT) {
		if (unsure < clock->since_unsure)
			begin_measurement(clock, unsure, time, after);
		return;
	}
	rate = (took << 32) / ticks;
	rate -= rate >> EXACT_SHIFT;
	if (!rates_agree(rate, clock->candidate)) {
		clock->candidate = rate;
		clock->rate = clock->valid = 0;
		begin_measurement(clock, unsure, time, after);
		return;
	}
	clock->rate = clock->candidate = rate;
	if (took > MEASURE_MOST)
		begin_measurement(clock, unsure, time, after);
}

uint64_t pl_clock_learn(struct pl_clock *clock, uint64_t before, uint64_t time, uint64_t after)
{
	uint64_t past = after - clock->ticks, unsure = after - before;
	uint64_t told = clock->valid && past < 2 * clock->valid ? pl_clock_at(clock, past) : 0;

	measure_rate(clock, unsure, time, after);
	if (!clock->rate)
		return time;
	/* The next time is not earlier than the last one, unless the rate has changed. */
	if (told > time && told - time < DOUBT)
		time = told;
	clock->valid = ((uint64_t)VALID << 32) / clock->rate;
	/* Interrupted in between: the moment is not known. */
	if (unsure > clock->valid >> 10) {
		clock->valid = 0;
		return time;
	}
	clock->ticks = after;
	clock->time = time;
	return time;
}

uint64_t pl_clock_ask(struct pl_clock *clock)
{
	if (clock->steady) {
		uint64_t before = pl_clock_ticks(), time = pl_now();

		return pl_clock_learn(clock, before, time, pl_clock_ticks());
	}
	return pl_now();
}
