/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hashed timer wheel. Timers guard operations, and most operations succeed, so most timers are cleared before they
 * expire. Setting and clearing a timer take constant time. Expiry has the resolution of one tick.
 */
#include <unistd.h>

#include "engine/engine.h"

#define TICK_SHIFT 22 /* 4.2 ms */

static uint64_t tick_of(uint64_t time)
{
	return time >> TICK_SHIFT;
}

static unsigned slot_of(uint64_t deadline)
{
	return (unsigned)(tick_of(deadline) % PL_WHEEL_SLOTS);
}

void pl_wheel_init(struct pl_wheel *wheel, uint64_t now)
{
	memset(wheel, 0, sizeof(*wheel));
	wheel->tick = tick_of(now);
	for (unsigned i = 0; i < PL_WHEEL_SLOTS; i++)
		pl_list_init(&wheel->slots[i]);
}

static void wheel_insert(struct pl_wheel *wheel, struct pl_timer *timer)
{
	unsigned slot = slot_of(timer->deadline);

	pl_list_append(&wheel->slots[slot], &timer->link);
	wheel->occupied[slot / 64] |= 1ull << (slot % 64);
}

static void wheel_remove(struct pl_wheel *wheel, struct pl_timer *timer)
{
	unsigned slot = slot_of(timer->deadline);

	pl_list_remove(&timer->link);
	if (pl_list_empty(&wheel->slots[slot]))
		wheel->occupied[slot / 64] &= ~(1ull << (slot % 64));
}

void pl_timer_set(struct pl_engine *engine, struct pl_timer *timer, uint64_t deadline)
{
	pl_timer_clear(engine, timer);
	if (deadline == UINT64_MAX)
		return;
	if (engine->wheel.count++ == 0)
		engine->wheel.tick = tick_of(pl_now()); /* an empty wheel does not advance */
	/* Rounds up by one tick, so that no timer expires early. Skips slots that were served. */
	deadline = pl_deadline(deadline, 1ull << TICK_SHIFT);
	timer->deadline = PL_MAX(deadline, (engine->wheel.tick + 1) << TICK_SHIFT);
	wheel_insert(&engine->wheel, timer);
	if (timer->deadline < engine->armed)
		pl_engine_arm(engine, timer->deadline);
}

void pl_timer_clear(struct pl_engine *engine, struct pl_timer *timer)
{
	if (pl_list_empty(&timer->link))
		return;
	wheel_remove(&engine->wheel, timer);
	engine->wheel.count--;
}

static void serve_slot(struct pl_wheel *wheel, unsigned slot)
{
	struct pl_list due;

	pl_list_init(&due);
	pl_list_splice(&due, &wheel->slots[slot]);
	wheel->occupied[slot / 64] &= ~(1ull << (slot % 64));
	while (!pl_list_empty(&due)) {
		struct pl_timer *timer = pl_list_first(&due, struct pl_timer, link);

		pl_list_remove(&timer->link);
		if (tick_of(timer->deadline) > wheel->tick) {
			wheel_insert(wheel, timer);
			continue;
		}
		wheel->count--;
		timer->expire(timer);
	}
}

void pl_wheel_advance(struct pl_wheel *wheel, uint64_t now)
{
	uint64_t target = tick_of(now);

	/* After a long sleep one turn of the wheel reaches every slot. */
	if (target > wheel->tick + PL_WHEEL_SLOTS)
		wheel->tick = target - PL_WHEEL_SLOTS;
	while (wheel->count && wheel->tick < target) {
		unsigned slot;

		wheel->tick++;
		slot = (unsigned)(wheel->tick % PL_WHEEL_SLOTS);
		if (wheel->occupied[slot / 64] & (1ull << (slot % 64)))
			serve_slot(wheel, slot);
	}
}

uint64_t pl_wheel_next(const struct pl_wheel *wheel)
{
	if (wheel->count == 0)
		return UINT64_MAX;
	for (uint64_t ahead = 1; ahead <= PL_WHEEL_SLOTS; ahead++) {
		unsigned slot = (unsigned)((wheel->tick + ahead) % PL_WHEEL_SLOTS);

		if (wheel->occupied[slot / 64] == 0)
			ahead += 63 - slot % 64;
		else if (wheel->occupied[slot / 64] & (1ull << (slot % 64)))
			return (wheel->tick + ahead) << TICK_SHIFT;
	}
	return (wheel->tick + PL_WHEEL_SLOTS) << TICK_SHIFT;
}

void pl_timers_serve(struct pl_engine *engine)
{
	uint64_t value, next;

	(void)!read(engine->timer_fd, &value, sizeof(value));
	pl_engine_tick(engine);
	engine->armed = UINT64_MAX;
	pl_wheel_advance(&engine->wheel, pl_now());
	next = pl_wheel_next(&engine->wheel);
	if (next < engine->armed)
		pl_engine_arm(engine, next);
}
