/* SPDX-License-Identifier: BSD-2-Clause */
/* Slot pool of a context: which users get the last locked slots. */
#include "staging/staging.h"
#include "support/cases.h"
#include "support/check.h"

#define SLOTS 16u

static int pin_nothing(const struct pl_memory *memory, void *address, size_t length, bool read_only, void **holder)
{
	(void)memory;
	(void)address;
	(void)length;
	(void)read_only;
	*holder = NULL;
	return 0;
}

static void unpin_nothing(void *holder, void *address)
{
	(void)holder;
	(void)address;
}

static int pin_refused(const struct pl_memory *memory, void *address, size_t length, bool read_only, void **holder)
{
	(void)memory;
	(void)address;
	(void)length;
	(void)read_only;
	(void)holder;
	return -ENOMEM;
}

static const struct pl_memory_ops lockable = { .name = "lockable", .pin = pin_nothing, .unpin = unpin_nothing };
static const struct pl_memory_ops refused = { .name = "refused", .pin = pin_refused, .unpin = unpin_nothing };

static void give_all(struct pl_slots *pool, struct pl_slot **slots, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		pl_slots_give(pool, slots[i]);
}

/* Users that have slots leave the last quarter to users that have none, which get ordinary memory only when that is used, too. */
static void last_quarter(void *unused)
{
	const struct pl_memory memory = { .ops = &lockable, .node = -1 };
	struct pl_slot *slots[SLOTS + 1];
	struct pl_slots pool = { 0 };
	unsigned count = 0;

	(void)unused;
	pl_slots_open(&pool, &pl_system_allocator, (size_t)SLOTS * PL_SLOT_SIZE);
	while (count < SLOTS && (slots[count] = pl_slots_take_more(&pool, &memory)))
		check(slots[count++]->pinned);
	check_number(count, SLOTS - SLOTS / 4);
	for (; count < SLOTS; count++) {
		slots[count] = pl_slots_take(&pool, &memory);
		check(slots[count] && slots[count]->pinned);
	}
	slots[count] = pl_slots_take(&pool, &memory);
	check(slots[count] && !slots[count]->pinned);
	check(!pl_slots_take_more(&pool, &memory));
	give_all(&pool, slots, SLOTS + 1);
	slots[0] = pl_slots_take_more(&pool, &memory);
	check(slots[0] && slots[0]->pinned);
	pl_slots_give(&pool, slots[0]);
	pl_slots_close(&pool);
}

/* Memory that others lock counts against the same limit. */
static void reserved_by_others(void *unused)
{
	const struct pl_memory memory = { .ops = &lockable, .node = -1 };
	struct pl_slot *slots[SLOTS];
	struct pl_slots pool = { 0 };
	unsigned count = 0;

	(void)unused;
	pl_slots_open(&pool, &pl_system_allocator, (size_t)SLOTS * PL_SLOT_SIZE);
	check(pl_slots_reserve(&pool, (size_t)SLOTS / 2 * PL_SLOT_SIZE));
	while (count < SLOTS && (slots[count] = pl_slots_take_more(&pool, &memory)))
		count++;
	check_number(count, SLOTS / 2 - SLOTS / 8);
	give_all(&pool, slots, count);
	pl_slots_return(&pool, (size_t)SLOTS / 2 * PL_SLOT_SIZE);
	pl_slots_close(&pool);
}

/* Without locked memory only ordinary slots are left. */
static void nothing_can_be_locked(void *unused)
{
	const struct pl_memory memory = { .ops = &refused, .node = -1 };
	struct pl_slots pool = { 0 };
	struct pl_slot *slot;

	(void)unused;
	pl_slots_open(&pool, &pl_system_allocator, (size_t)SLOTS * PL_SLOT_SIZE);
	check(!pl_slots_take_more(&pool, &memory));
	slot = pl_slots_take(&pool, &memory);
	check(slot && !slot->pinned);
	pl_slots_give(&pool, slot);
	pl_slots_close(&pool);
}

static const struct test_case cases[] = {
	{ "last-quarter", last_quarter, NULL, 30 },
	{ "reserved-by-others", reserved_by_others, NULL, 30 },
	{ "nothing-can-be-locked", nothing_can_be_locked, NULL, 30 },
};

int main(void)
{
	return cases_run("slot-pool", cases, PL_ARRAY_SIZE(cases));
}
