/* SPDX-License-Identifier: BSD-2-Clause */
#include "card/virtual_time.h"

#include "engine/engine.h"

#define STEP 100u /* nanoseconds */

static _Atomic uint64_t virtual_now; /* 0: real time */

/* The linker gives the library's calls of these functions to __wrap_*, and calls of __real_* to the functions themselves. */
uint64_t __real_pl_now(void);
void __real_pl_clock_open(struct pl_clock *clock);
void __real_pl_engine_arm(struct pl_engine *engine, uint64_t when);

uint64_t __wrap_pl_now(void)
{
	return atomic_load(&virtual_now) ? atomic_fetch_add(&virtual_now, STEP) : __real_pl_now();
}

/* The processor's counter does not tell virtual time. */
void __wrap_pl_clock_open(struct pl_clock *clock)
{
	__real_pl_clock_open(clock);
	clock->steady &= !atomic_load(&virtual_now);
}

/* The kernel's timers do not know virtual time either. */
void __wrap_pl_engine_arm(struct pl_engine *engine, uint64_t when)
{
	if (!atomic_load(&virtual_now))
		__real_pl_engine_arm(engine, when);
}

void virtual_time_begin(void)
{
	atomic_store(&virtual_now, __real_pl_now());
}
