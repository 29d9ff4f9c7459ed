/* SPDX-License-Identifier: BSD-2-Clause */
/* Clock that reads the processor's counter: with simulated counters of many rates, and with the machine's counter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/wall.h"

#define SOON 100 /* ticks between the two counter readings around a call of the kernel */

/* Returns the true time in nanoseconds after this number of ticks. */
static uint64_t true_time(double rate, uint64_t ticks)
{
	return 1000000000ull + (uint64_t)((double)ticks * rate);
}

/* Reads the clock as pl_clock_now() does, with a simulated counter. */
static uint64_t clock_look(struct pl_clock *clock, double rate, uint64_t ticks, bool *asked)
{
	*asked = ticks - clock->ticks >= clock->valid;
	return *asked ? pl_clock_learn(clock, ticks - SOON, true_time(rate, ticks), ticks)
		      : pl_clock_at(clock, ticks - clock->ticks);
}

static void check_counter(double gigahertz)
{
	const double rate = 1 / gigahertz;
	const uint64_t step = (uint64_t)(7000 * gigahertz), begin = 1ull << 40;
	struct pl_clock clock = { .steady = true };
	uint64_t last = 0, asked_late = 0, looks = 0;

	for (uint64_t ticks = begin; true_time(rate, ticks - begin) < 4 * PL_NS_PER_S; ticks += step) {
		uint64_t real = true_time(rate, ticks - begin), reported;
		bool asked;

		asked = ticks - clock.ticks >= clock.valid;
		reported = asked ? pl_clock_learn(&clock, ticks - SOON, real, ticks)
				 : pl_clock_at(&clock, ticks - clock.ticks);
		assert_true(reported >= last);
		assert_true(reported <= real + 1);
		assert_true(real - PL_MIN(real, reported) <= 150);
		last = reported;
		/* Once the clock knows the rate, it asks the kernel 1,000 times a second, not at each reading. */
		if (real > 2 * PL_NS_PER_S) {
			looks++;
			asked_late += asked;
		}
	}
	assert_true(asked_late * 50 < looks);
}

static void test_counters(void **state)
{
	(void)state;
	check_counter(0.9);
	check_counter(1.0);
	check_counter(2.4);
	check_counter(5.7);
}

/*
 * Changes the counter's rate at once, as the move of a virtual machine does.  The clock must notice the change, and its
 * errors must not add up until then.
 */
static void test_other_rate(void **state)
{
	struct pl_clock clock = { .steady = true };
	uint64_t ticks = 1000000, time = PL_NS_PER_S, reported, wrong = 0;

	(void)state;
	for (unsigned i = 0; i < 2000000; i++) {
		uint64_t past = 3000;

		if (i < 50000)
			past = 2000;
		ticks += past;
		time += 1000;
		past = ticks - clock.ticks;
		reported = past < clock.valid ? pl_clock_at(&clock, past)
					      : pl_clock_learn(&clock, ticks - SOON, time, ticks);
		assert_true(reported <= time + PL_NS_PER_MS);
		if (reported > time + 1 || reported + 200 < time)
			wrong = time;
	}
	assert_true(wrong > PL_NS_PER_S + 50 * PL_NS_PER_MS);
	assert_true(wrong < 2 * PL_NS_PER_S + 50 * PL_NS_PER_MS);
}

/*
 * Suspends the machine for `seconds` at a time of the measurement: the counter runs on, and the kernel's monotonic clock
 * stands still. The clock may be wrong until its next look at the kernel's, and must be right then.
 */
static void check_suspend(uint64_t seconds, uint64_t at)
{
	struct pl_clock clock = { .steady = true };
	uint64_t ticks = 1ull << 40, time = PL_NS_PER_S, end = at + 3 * PL_NS_PER_S, wrong = 0;

	for (uint64_t past = 0; past < end; past += 10000) {
		uint64_t reported;

		ticks += 30000;
		time += 10000;
		if (past == at)
			ticks += 3 * seconds * PL_NS_PER_S;
		reported = ticks - clock.ticks < clock.valid ? pl_clock_at(&clock, ticks - clock.ticks)
							     : pl_clock_learn(&clock, ticks - SOON, time, ticks);
		wrong += reported + PL_NS_PER_MS / 100 < time || reported > time + PL_NS_PER_MS / 100;
	}
	/* 10 us a look: a millisecond is 100 of them. */
	assert_true(wrong <= 100);
}

static void test_suspend(void **state)
{
	(void)state;
	for (uint64_t at = 0; at < 3 * PL_NS_PER_S; at += 90 * PL_NS_PER_MS) {
		check_suspend(1, at);
		check_suspend(60, at);
		check_suspend(3600, at);
		check_suspend(100000, at);
	}
}

/* Checks that an interrupted reading is not used: the clock asks the kernel until a reading is not interrupted. */
static void test_interrupted(void **state)
{
	struct pl_clock clock = { .steady = true };
	uint64_t ticks = 1 << 20;
	bool asked;

	(void)state;
	while (!clock.valid) {
		clock_look(&clock, 0.5, ticks, &asked);
		ticks += 20000;
		assert_true(ticks < 1ull << 32);
	}
	ticks += 2 * clock.valid;
	assert_int_equal(pl_clock_learn(&clock, ticks - 50000, true_time(0.5, ticks - 50000), ticks),
			 true_time(0.5, ticks - 50000));
	assert_int_equal(clock.valid, 0);
	assert_int_equal(clock_look(&clock, 0.5, ticks + 1000, &asked), true_time(0.5, ticks + 1000));
	assert_true(asked && clock.valid);
}

/* Sets the counter back, as a suspension of the machine does. */
static void test_set_back(void **state)
{
	struct pl_clock clock = { .steady = true };
	bool asked;

	(void)state;
	for (uint64_t ticks = 1ull << 50; !clock.valid; ticks += 10000)
		clock_look(&clock, 0.4, ticks, &asked);
	assert_int_equal(pl_clock_learn(&clock, 400, 1ull << 52, 500), 1ull << 52);
}

/* Checks that the machine's clock lies between two readings of the kernel's clock, with a tolerance of 20 us. */
static void test_real(void **state)
{
	struct pl_clock clock;
	uint64_t end = pl_now() + 60 * PL_NS_PER_MS, last = 0;

	(void)state;
	pl_clock_open(&clock);
	while (last < end) {
		uint64_t before = pl_now(), reported = pl_clock_now(&clock), after = pl_now();

		assert_true(reported >= last);
		assert_true(reported <= after);
		assert_true(reported + 20 * 1000 >= before);
		last = reported;
	}
}

/*
 * Checks that the processor's counter can be read, and that the clock learns its rate, whatever clock the kernel uses: an
 * emulated processor has a counter that the kernel does not know. A virtual machine may change the rate by some ppm.
 */
static void test_counter(void **state)
{
	struct pl_clock clock = { .steady = true };
	uint64_t end = pl_now() + 10 * PL_NS_PER_S, last = 0;
	unsigned counted = 0;

	(void)state;
#if !defined(__x86_64__) && !defined(__aarch64__)
	skip();
#endif
	assert_true(pl_clock_ticks() > 0);
	while (counted < 1000 && last < end) {
		uint64_t before = pl_now(), ticks = pl_clock_ticks(), reported;

		counted += clock.rate && ticks - clock.ticks < clock.valid;
		reported = pl_clock_now(&clock);
		assert_true(reported + 20 * 1000 >= before && reported <= pl_now() + 20 * 1000);
		last = reported;
	}
	assert_int_equal(counted, 1000);
}

/* Checks the time that follows from a moment of the clock, during its validity and afterwards. */
static void test_moment(void **state)
{
	const struct timespec pause = { .tv_nsec = 3000000 };
	struct pl_clock clock;
	uint64_t end = pl_now() + 60 * PL_NS_PER_MS, late = end + 10 * PL_NS_PER_S, reckoned = 0, last = 0;

	(void)state;
	pl_clock_open(&clock);
	/* On a busy machine this loop may not run for all of that time. */
	while (last < end || (clock.steady && reckoned <= 100 && last < late)) {
		uint64_t before = pl_now(), ticks = pl_clock_ticks();
		struct pl_moment moment = pl_clock_moment(&clock, ticks);
		uint64_t now = pl_moment_now(&moment), after = pl_now();

		assert_true(moment.time >= last && moment.time + 20 * 1000 >= before);
		assert_true(now >= moment.time && now <= after);
		reckoned += moment.valid > 0;
		last = moment.time;
	}
	if (clock.steady)
		assert_true(reckoned > 100);
	for (unsigned i = 0; i < 2; i++) {
		struct pl_moment moment = pl_clock_moment(&clock, pl_clock_ticks());
		uint64_t before = pl_now();

		nanosleep(&pause, NULL);
		assert_true(pl_moment_now(&moment) >= before + 3 * PL_NS_PER_MS);
	}
	/*
	 * The counter value is older than the clock's last reading, as if another thread had read the clock meanwhile.
	 */
	assert_int_equal(pl_clock_moment(&clock, clock.ticks - 1).valid, 0);
}

/* The wall clock by the counter is near the kernel's. */
static void test_wall(void **state)
{
	struct pl_wall wall;
	uint64_t begin = pl_now();

	(void)state;
	pl_wall_open(&wall);
	while (pl_now() - begin < 50 * PL_NS_PER_MS) {
		uint64_t before = pl_wall_clock(), now = pl_wall_now(&wall), after = pl_wall_clock();

		assert_true(now <= after + 2000);
		assert_true(before <= now + 2000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters),    cmocka_unit_test(test_other_rate), cmocka_unit_test(test_suspend),
		cmocka_unit_test(test_interrupted), cmocka_unit_test(test_set_back),   cmocka_unit_test(test_real),
		cmocka_unit_test(test_counter),     cmocka_unit_test(test_moment),     cmocka_unit_test(test_wall),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
