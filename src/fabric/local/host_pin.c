/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mapped memory of the peer, locked for copies of this process's GPUs. Copies of locked memory run at the rate of the
 * bus; others go through the driver's buffers at a fraction of it. Locking takes about as long as one copy, so memory
 * is locked once as many bytes were copied as it has, as with frames in a ring.
 */
#include "fabric/local/local.h"

/* Smaller copies are as fast without locking. */
#define WORTHWHILE (256u << 10)

enum { UNTRIED, TRIED, LOCKED };

struct local_lock {
	struct pl_context *context;
	void *address;
	size_t length;
	atomic_uint_fast64_t copied;
	atomic_int state;
	const struct pl_memory_ops *ops; /* set once the memory is locked */
	void *holder;
};

struct local_lock *local_lock_new(struct pl_context *context, void *address, size_t length)
{
	struct local_lock *lock = length >= WORTHWHILE ? pl_zalloc(&context->allocator, sizeof(*lock)) : NULL;

	if (!lock)
		return NULL;
	lock->context = context;
	lock->address = address;
	lock->length = length;
	return lock;
}

void local_lock_shut(struct local_lock *lock)
{
	int locked = LOCKED;

	if (!lock || !atomic_compare_exchange_strong(&lock->state, &locked, TRIED))
		return;
	lock->ops->unpin(lock->holder, lock->address);
	pl_slots_return(&lock->context->slot_pool, lock->length);
}

void local_lock_free(struct local_lock *lock)
{
	if (!lock)
		return;
	local_lock_shut(lock);
	pl_free(&lock->context->allocator, lock);
}

/* Locks once, by the first thread that asks; concurrent copies use unlocked memory. */
static void try(struct local_lock *lock, const struct pl_memory *memory)
{
	int untried = UNTRIED;

	if (!atomic_compare_exchange_strong(&lock->state, &untried, TRIED) ||
	    !pl_slots_reserve(&lock->context->slot_pool, lock->length))
		return;
	if (memory->ops->pin(memory, lock->address, lock->length, &lock->holder) < 0) {
		pl_slots_return(&lock->context->slot_pool, lock->length);
		return;
	}
	lock->ops = memory->ops;
	atomic_store(&lock->state, LOCKED);
}

void local_lock_copies(struct local_lock *lock, const struct pl_memory *memory, size_t length)
{
	if (!lock || !memory->ops->pin || atomic_load_explicit(&lock->state, memory_order_relaxed) != UNTRIED)
		return;
	if (atomic_fetch_add_explicit(&lock->copied, length, memory_order_relaxed) >= lock->length)
		try(lock, memory);
}
