/* SPDX-License-Identifier: BSD-2-Clause */
/* Pace of polling, with given times and outcomes of looks. */
#include "engine/pace.h"
#include "support/cases.h"
#include "support/check.h"

#define NOW (1000 * PL_NS_PER_S)

/* Notes a look at the time that the pace has set. Returns the length of the rest that follows; 0: none. */
static uint64_t look(struct pl_pace *pace, bool taken)
{
	uint64_t now = pace->look_at;

	check(pl_pace_is_due(pace, now));
	pl_pace_note(pace, now, taken);
	check(!pl_pace_is_due(pace, now));
	check(pl_pace_rests(pace, now) == taken);
	check(pl_pace_rested(pace) == taken);
	return taken ? pace->rest_end - now : 0;
}

static void idle_cores(void *unused)
{
	struct pl_pace pace = { .adapts = true, .look_at = NOW };

	(void)unused;
	check(!pl_pace_rests(&pace, NOW));
	for (unsigned i = 1; i <= 100; i++) {
		check_number(look(&pace, false), 0);
		check_number(pace.look_at, NOW + i * PL_PACE_LOOK_TIME);
		check(!pl_pace_is_due(&pace, pace.look_at - 1));
		check(!pl_pace_rests(&pace, pace.look_at));
	}
}

/* Polling goes on when the rest is over, and the next look is due then. */
static void one_loss(void *unused)
{
	struct pl_pace pace = { .adapts = true, .look_at = NOW };

	(void)unused;
	check_number(look(&pace, true), PL_PACE_REST_LEAST);
	check(pl_pace_rests(&pace, NOW + PL_PACE_REST_LEAST - 1));
	check(!pl_pace_is_due(&pace, NOW + PL_PACE_REST_LEAST - 1));
	check(!pl_pace_rests(&pace, NOW + PL_PACE_REST_LEAST));
	check(pl_pace_is_due(&pace, NOW + PL_PACE_REST_LEAST));
}

static void rests_grow_and_shrink(void *unused)
{
	struct pl_pace pace = { .adapts = true, .look_at = NOW };
	uint64_t rest = PL_PACE_REST_LEAST;

	(void)unused;
	for (unsigned i = 0; i < PL_PACE_DOUBLINGS; i++, rest *= 2)
		check_number(look(&pace, true), rest);
	for (unsigned i = 0; i < 100; i++)
		check_number(look(&pace, true), rest);
	/* Each look that finds no other thread halves the next rest, but not below the shortest. */
	look(&pace, false);
	look(&pace, false);
	check_number(look(&pace, true), rest / 4);
	for (unsigned i = 0; i < 100; i++)
		look(&pace, false);
	check_number(look(&pace, true), PL_PACE_REST_LEAST);
}

/* Looks that find other threads as often as not: most of the time is rest. */
static void every_second_look(void *unused)
{
	struct pl_pace pace = { .adapts = true, .look_at = NOW };
	uint64_t rests = 0;

	(void)unused;
	for (unsigned i = 0; i < 1000; i++)
		rests += look(&pace, i % 2);
	check(rests > (pace.look_at - NOW) * 3 / 4);
}

static void fixed(void *unused)
{
	struct pl_pace pace = { 0 };

	(void)unused;
	check(!pl_pace_is_due(&pace, UINT64_MAX));
	check(!pl_pace_rests(&pace, NOW));
}

static const struct test_case cases[] = {
	{ "idle-cores", idle_cores, NULL, 10 },
	{ "one-loss", one_loss, NULL, 10 },
	{ "rests-grow-and-shrink", rests_grow_and_shrink, NULL, 10 },
	{ "every-second-look", every_second_look, NULL, 10 },
	{ "fixed", fixed, NULL, 10 },
};

int main(void)
{
	return cases_run("pace", cases, sizeof(cases) / sizeof(cases[0]));
}
