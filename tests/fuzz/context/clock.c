/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time and random numbers of the context under test, so that an input has the same effect each time. The linker puts
 * these functions in place of the library's (--wrap).
 */
#include <time.h>

#include "context/world.h"

uint64_t __real_pl_now(void);
uint64_t __wrap_pl_now(void);
uint64_t __wrap_pl_wall_clock(void);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
void __wrap_pl_engine_sleep(struct pl_engine *engine, unsigned turn, uint64_t deadline);
int __wrap_pl_random(void *buffer, size_t length);

/* Each look at the clock takes a microsecond, so that loops with a deadline end. */
#define LOOK 1000u
#define WALL (1700000000ull * PL_NS_PER_S)

static uint64_t virtual_now;
static uint64_t random_state = 1;

uint64_t __wrap_pl_now(void)
{
	if (!virtual_now)
		virtual_now = __real_pl_now();
	virtual_now += LOOK;
	return virtual_now;
}

uint64_t __wrap_pl_wall_clock(void)
{
	return WALL + __wrap_pl_now();
}

/* Time passes for a close, which waits for the other end. That cannot answer meanwhile. */
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	virtual_now += (uint64_t)time->tv_sec * PL_NS_PER_S + (uint64_t)time->tv_nsec;
	return 0;
}

int __wrap_pl_random(void *buffer, size_t length)
{
	uint8_t *bytes = buffer;

	for (size_t i = 0; i < length; i++) {
		random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
		bytes[i] = (uint8_t)(random_state >> 56);
	}
	return 0;
}

void fuzz_random_restart(uint64_t seed)
{
	random_state = seed;
}

uint64_t fuzz_cpu_time(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * PL_NS_PER_S + (uint64_t)now.tv_nsec;
}

static void expire_timers(struct pl_engine *engine)
{
	pl_engine_lock(engine);
	pl_wheel_advance(&engine->wheel, virtual_now);
	pl_engine_unlock(engine);
}

/* Time passes for a call, too, that drives the context until the other end answers. */
void __wrap_pl_engine_sleep(struct pl_engine *engine, unsigned turn, uint64_t deadline)
{
	(void)turn;
	virtual_now += PL_MIN(deadline - PL_MIN(deadline, virtual_now), PL_NS_PER_MS);
	expire_timers(engine);
}

void fuzz_advance(struct world *world, uint64_t time)
{
	virtual_now += time;
	expire_timers(world->victim->engines[0]);
	expire_timers(world->good->engines[0]);
}
