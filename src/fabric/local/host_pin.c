/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Mapped memory of the peer, and memory that the library allocated here, pinned for copies of this process's GPUs. Copies of pinned memory run at the rate of the
 * bus. Copies of other memory go through the driver's buffers at a fraction of that rate. Pinning takes about as long
 * as one copy. So memory is pinned after as many copied bytes as its length, or at once for a ring of frames
 * (local_lock_mapping()). If the context may lock no more memory, that is tried again after as many bytes, because other
 * mappings may have ended.
 */
#include "fabric/local/gpu_gather.h"

/* Shortest mapping that is pinned, in bytes: smaller copies are as fast without pinning. */
#define PIN_MIN (256u << 10)

/* LEAVING: the release has begun; LEFT: the driver unpins the memory, or has. */
enum { UNTRIED, TRIED, PINNED, LEAVING, LEFT };

struct local_host_pin {
	struct pl_region_kept kept; /* of a region of this process */
	struct pl_context *context;
	void *address;
	size_t length;
	bool read_only; /* the mapping */
	atomic_uint_fast64_t copied;
	atomic_int state;
	atomic_uint users;               /* copies and kernels of GPUs */
	atomic_bool limited;             /* the context may lock no more memory */
	atomic_bool refused;             /* by the driver */
	const struct pl_memory_ops *ops; /* set once the memory is pinned */
	void *holder;
};

struct local_host_pin *local_host_pin_new(struct pl_context *context, void *address, size_t length, bool read_only)
{
	struct local_host_pin *pin = length >= PIN_MIN ? pl_zalloc(&context->allocator, sizeof(*pin)) : NULL;

	if (!pin)
		return NULL;
	pin->context = context;
	pin->address = address;
	pin->length = length;
	pin->read_only = read_only;
	return pin;
}

/* Unpins memory that is to be released, unless a GPU uses it. */
static void unpin_unused(struct local_host_pin *pin)
{
	int leaving = LEAVING;

	if (atomic_load(&pin->users) || !atomic_compare_exchange_strong(&pin->state, &leaving, LEFT))
		return;
	pin->ops->unpin(pin->holder, pin->address);
	pl_slots_return(&pin->context->slot_pool, pin->length);
}

void local_host_pin_release(struct local_host_pin *pin)
{
	int pinned = PINNED;

	if (pin && atomic_compare_exchange_strong(&pin->state, &pinned, LEAVING))
		unpin_unused(pin);
}

bool local_host_pin_hold(struct local_host_pin *pin)
{
	if (!pin)
		return true;
	/* A release that does not see this user has changed the state before. */
	atomic_fetch_add(&pin->users, 1);
	if (atomic_load(&pin->state) < LEAVING)
		return true;
	local_host_pin_put(pin);
	return false;
}

void local_host_pin_put(struct local_host_pin *pin)
{
	if (pin && atomic_fetch_sub(&pin->users, 1) == 1)
		unpin_unused(pin);
}

void local_host_pin_free(struct local_host_pin *pin)
{
	if (!pin)
		return;
	local_host_pin_release(pin);
	pl_free(&pin->context->allocator, pin);
}

/* Pins the memory, in the first thread that asks. Concurrent copies use unpinned memory. */
static void host_pin_try(struct local_host_pin *pin, const struct pl_memory *memory)
{
	int untried = UNTRIED;

	if (!atomic_compare_exchange_strong(&pin->state, &untried, TRIED))
		return;
	atomic_store(&pin->limited, !pl_slots_reserve(&pin->context->slot_pool, pin->length));
	if (atomic_load(&pin->limited)) {
		atomic_store(&pin->copied, 0);
		atomic_store(&pin->state, UNTRIED);
		return;
	}
	if (memory->ops->pin(memory, pin->address, pin->length, pin->read_only, &pin->holder) < 0) {
		atomic_store(&pin->refused, true);
		pl_slots_return(&pin->context->slot_pool, pin->length);
		return;
	}
	pin->ops = memory->ops;
	atomic_store(&pin->state, PINNED);
}

void local_lock_mapping(struct pl_remote *remote, const struct pl_memory *memory)
{
	const struct local_access *access = remote->fabric_data;
	struct pl_error error;

	/* The pages of a revoked key may be those of this process already. */
	if (!access || !access->pin || !memory->ops->pin || local_access_hold_gate(access, &error) < 0)
		return;
	host_pin_try(access->pin, memory);
	local_gate_release(access->gate);
}

void local_host_pin_note_copy(struct local_host_pin *pin, const struct pl_memory *memory, size_t length)
{
	if (!pin || !memory->ops->pin || atomic_load_explicit(&pin->state, memory_order_relaxed) != UNTRIED)
		return;
	if (atomic_fetch_add_explicit(&pin->copied, length, memory_order_relaxed) >= pin->length)
		host_pin_try(pin, memory);
}

static void free_pin_of_region(struct pl_region_kept *kept)
{
	local_host_pin_free(pl_container_of(kept, struct local_host_pin, kept));
}

/* Makes the pin of a region on first use. NULL: the program owns the memory and may lock it, or there is no memory for the pin. */
static struct local_host_pin *pin_of_region(struct pl_region *region)
{
	struct pl_region_kept *kept = atomic_load(&region->kept);
	const struct pl_memory *memory = &region->memory;
	struct local_host_pin *pin;

	if (kept)
		return pl_container_of(kept, struct local_host_pin, kept);
	if (!memory->owned || memory->ops != &pl_host_memory)
		return NULL;
	pin = local_host_pin_new(region->context, memory->address, memory->length, false);
	if (!pin)
		return NULL;
	pin->kept.free = free_pin_of_region;
	if (atomic_compare_exchange_strong(&region->kept, &kept, &pin->kept))
		return pin;
	local_host_pin_free(pin);
	return pl_container_of(kept, struct local_host_pin, kept);
}

void local_region_note_copy(struct pl_region *region, const struct pl_memory *gpu, size_t length)
{
	local_host_pin_note_copy(pin_of_region(region), gpu, length);
}

/*
 * The lock of much memory takes longer than the owner waits for the holders of a gate that it shuts. No copy may begin afterwards, so
 * this one has begun before.
 */
void local_note_copy(const struct local_access *access, struct pl_region *region, size_t length)
{
	struct pl_memory *memory = &region->memory;

	if (!access->device)
		local_host_pin_note_copy(access->pin, memory, length);
	else if (!pl_memory_staged(memory))
		local_region_note_copy(region, local_device_memory(access->device, memory), length);
}

bool local_host_pin_is_locked(const struct local_host_pin *pin)
{
	return pin && atomic_load(&pin->state) == PINNED;
}

bool local_host_pin_limited(const struct local_host_pin *pin)
{
	return pin && atomic_load_explicit(&pin->limited, memory_order_relaxed);
}

bool local_host_pin_refused(const struct local_host_pin *pin)
{
	return pin && atomic_load_explicit(&pin->refused, memory_order_relaxed);
}
