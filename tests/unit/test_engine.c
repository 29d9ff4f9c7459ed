/* SPDX-License-Identifier: BSD-2-Clause */
/* Who sleeps in an engine without a thread is woken: by a call, by the deadline, and by what only polling shows. */
#include <pthread.h>

#include "engine/engine.h"
#include "support/cases.h"
#include "support/check.h"

static struct pl_engine *engine_open(void)
{
	struct pl_engine *engine;
	struct pl_error error;

	check_ok(pl_engine_open(&pl_system_allocator, false, 0, &engine, &error), &error);
	return engine;
}

static void engine_close(struct pl_engine *engine)
{
	pl_engine_stop(engine);
	pl_engine_close(engine);
}

static void until_deadline(void *unused)
{
	struct pl_engine *engine = engine_open();
	uint64_t deadline = pl_now() + 20 * PL_NS_PER_MS;

	(void)unused;
	pl_engine_sleep(engine, atomic_load(&engine->turn), deadline);
	check(pl_now() >= deadline);
	engine_close(engine);
}

static void *wake(void *engine)
{
	pl_engine_wake(engine);
	return NULL;
}

static void until_woken(void *unused)
{
	struct pl_engine *engine = engine_open();
	unsigned turn = atomic_load(&engine->turn);
	pthread_t thread;

	(void)unused;
	check_number(pthread_create(&thread, NULL, wake, engine), 0);
	pl_engine_sleep(engine, turn, UINT64_MAX);
	pthread_join(thread, NULL);
	engine_close(engine);
}

/* No descriptor tells when a copy of a GPU's is done, so each sleep ends at once, not only the first one. */
static void while_polling(void *unused)
{
	struct pl_engine *engine = engine_open();

	(void)unused;
	pl_engine_lock(engine);
	pl_engine_polling(engine, true);
	pl_engine_unlock(engine);
	for (int i = 0; i < 3; i++)
		pl_engine_sleep(engine, atomic_load(&engine->turn), UINT64_MAX);
	pl_engine_polling(engine, false);
	engine_close(engine);
}

static const struct test_case cases[] = {
	{ "sleep-until-deadline", until_deadline, NULL, 10 },
	{ "sleep-until-woken", until_woken, NULL, 10 },
	{ "sleep-while-polling", while_polling, NULL, 10 },
};

int main(void)
{
	return cases_run("engine", cases, sizeof(cases) / sizeof(cases[0]));
}
