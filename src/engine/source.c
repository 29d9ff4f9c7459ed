/* SPDX-License-Identifier: BSD-2-Clause */
/* Sources of an engine: epoll watches them, and the engine itself polls the hot ones. */
#include "engine/engine.h"

int pl_source_add(struct pl_engine *engine, struct pl_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	source->engine = engine;
	source->events = events;
	source->idle_rounds = 0;
	pl_list_init(&source->hot);
	pl_list_init(&source->due);
	if (epoll_ctl(engine->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0) {
		source->engine = NULL;
		return -errno;
	}
	return 0;
}

int pl_source_watch(struct pl_source *source, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = source };

	if (source->events == events)
		return 0;
	if (epoll_ctl(source->engine->epoll_fd, EPOLL_CTL_MOD, source->fd, &event) < 0)
		return -errno;
	source->events = events;
	return 0;
}

void pl_engine_cool(struct pl_engine *engine, struct pl_source *source)
{
	if (pl_list_empty(&source->hot))
		return;
	pl_list_remove(&source->hot);
	engine->hot_count--;
	engine->hot_memory -= source->memory;
}

void pl_source_remove(struct pl_source *source)
{
	struct pl_engine *engine = source->engine;

	if (!engine)
		return;
	pl_engine_cool(engine, source);
	if (!pl_list_empty(&source->due))
		atomic_fetch_sub(&engine->handed_count, 1);
	pl_list_remove(&source->due);
	epoll_ctl(engine->epoll_fd, EPOLL_CTL_DEL, source->fd, NULL);
	engine->removals++;
	source->engine = NULL;
}

/*
 * Returns the hot source that has been idle for the most rounds; NULL: all are busy, as is the one that is being served. Those
 * that only read memory stay hot: they cost no system call, and their devices would interrupt.
 */
static struct pl_source *find_idlest(const struct pl_engine *engine)
{
	struct pl_source *idlest = NULL;

	pl_list_for_each(at, &engine->hot) {
		struct pl_source *source = pl_list_entry(at, struct pl_source, hot);

		if (!source->memory && source->idle_rounds > (idlest ? idlest->idle_rounds : 0))
			idlest = source;
	}
	return idlest;
}

void pl_engine_make_hot(struct pl_engine *engine, struct pl_source *source)
{
	struct pl_source *replaced = NULL;

	/* A thread that polled sockets would call the kernel for each, where one epoll_wait() looks at all. */
	if (engine->threaded && !(engine->poll_time && source->memory))
		return;
	if (!source->pollable || !source->engine || (engine->crowded && !source->memory))
		return;
	if (engine->hot_count >= PL_ENGINE_HOT_MAX) {
		replaced = engine->threaded ? NULL : find_idlest(engine);
		if (!replaced)
			return;
		pl_engine_cool(engine, replaced);
		engine->replacements++;
	}
	engine->hot_end = pl_now() + engine->poll_time;
	pl_list_append(&engine->hot, &source->hot);
	engine->hot_count++;
	engine->hot_memory += source->memory;
	/* Comes last: it may heat the source that was replaced. */
	if (replaced && replaced->idle)
		replaced->idle(replaced);
}

void pl_engine_cool_all(struct pl_engine *engine)
{
	while (!pl_list_empty(&engine->hot)) {
		struct pl_source *source = pl_list_first(&engine->hot, struct pl_source, hot);

		pl_engine_cool(engine, source);
		/* The source may need idle() before its descriptor reports anything. */
		if (source->idle)
			source->idle(source);
	}
}

void pl_engine_note_crowd(struct pl_engine *engine, int events)
{
	bool crowded = events > PL_ENGINE_HOT_MAX && !engine->hot_memory;

	if (events <= 0 || crowded == engine->crowded)
		return;
	engine->crowded = crowded;
	if (crowded)
		pl_engine_cool_all(engine);
}
