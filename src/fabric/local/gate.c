/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Gates. The owner shuts the gate, then looks for holders. The peer becomes a holder, then looks whether the gate is
 * open. Both orders are sequentially consistent, so the owner sees the holder, or the holder sees the shut gate.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fabric/local/local.h"

/* Looks at a held gate, with sched_yield() between, before the owner sleeps between looks. */
#define POLLS_BEFORE_SLEEP 1000
#define POLL_PAUSE_NS (50 * 1000)

/* Linux 5.14: allocates pages, or fails. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

/* Registration of an open gate at its key. */
struct gate_registration {
	struct pl_registration base;
	struct local_gates *gates;
	unsigned index;
	const struct pl_key *key; /* until the release; NULL: the peer has nothing to close */
	bool awaited;             /* true while the end of the registration waits for holders */
	uint64_t deadline;        /* deadline for copies under way; 0: not shut yet */
	bool report;              /* the peer must be told of the revocation of this key: */
	uint64_t id, length;
};

/* -- at the peer ---------------------------------------------------------------------------------- */

static _Atomic uint32_t *gate_take_holder_slot(struct local_gate *gate)
{
	for (unsigned i = 0; i < LOCAL_HOLDER_SLOTS; i++) {
		_Atomic uint32_t *slot = &gate->slots[i];

		if (!atomic_load_explicit(slot, memory_order_relaxed) && !atomic_exchange(slot, 1))
			return slot;
	}
	atomic_fetch_add(&gate->holders, 1);
	return &gate->holders;
}

_Atomic uint32_t *local_gate_enter(struct local_gate *gate, uint32_t number)
{
	_Atomic uint32_t *slot = gate_take_holder_slot(gate);

	if (atomic_load(&gate->open) == number)
		return slot;
	local_gate_leave(gate, slot);
	return NULL;
}

void local_gate_leave(struct local_gate *gate, _Atomic uint32_t *slot)
{
	if (slot == &gate->holders)
		local_gate_release(gate);
	else
		atomic_store_explicit(slot, 0, memory_order_release);
}

bool local_gate_hold(struct local_gate *gate, uint32_t number)
{
	atomic_fetch_add(&gate->holders, 1);
	if (atomic_load(&gate->open) == number)
		return true;
	local_gate_release(gate);
	return false;
}

void local_gate_release(struct local_gate *gate)
{
	atomic_fetch_sub_explicit(&gate->holders, 1, memory_order_release);
}

/* -- at both ends --------------------------------------------------------------------------------- */

bool local_gate_is_held(const struct local_gate *gate)
{
	uint32_t held = atomic_load(&gate->holders);

	for (unsigned i = 0; i < LOCAL_HOLDER_SLOTS; i++)
		held |= atomic_load(&gate->slots[i]);
	return held;
}

/* -- at the owner --------------------------------------------------------------------------------- */

static size_t gates_size(const struct local_gates *gates)
{
	return gates->count * sizeof(struct local_gate);
}

/* Allocates the page of a gate through the mapping. Returns 0 or a negative errno; -EINVAL: the kernel cannot do that. */
static int gate_populate(struct local_gate *gate)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return madvise((void *)((uintptr_t)gate & ~(page - 1)), page, MADV_POPULATE_WRITE) < 0 ? -errno : 0;
}

static int gates_create(struct local_gates *gates)
{
	gates->fd = memfd_create("peerlane-gates", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (gates->fd < 0 || ftruncate(gates->fd, (off_t)gates_size(gates)) < 0 ||
	    fcntl(gates->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	gates->gates = mmap(NULL, gates_size(gates), PROT_READ | PROT_WRITE, MAP_SHARED, gates->fd, 0);
	return gates->gates == MAP_FAILED ? -errno : 0;
}

int local_fail_gates(int code, struct pl_error *error)
{
	if (pl_lacks_descriptor(code))
		return pl_fail_errno(error, code, "LOCAL-LIMIT", "memfd_create", NULL);
	return pl_fail(error, -ENOMEM, "LOCAL-LIMIT", "memfd_create", NULL,
		       "allow files of 256 KiB (ulimit -f), and memfd_create(2)",
		       "this process cannot create shared memory");
}

struct local_gates *local_gates_new(const struct pl_allocator *allocator, unsigned count, struct pl_error *error)
{
	struct local_gates *gates = pl_zalloc(allocator, sizeof(*gates));
	int rc;

	if (!gates) {
		pl_fail_memory(error, "connect");
		return NULL;
	}
	gates->allocator = allocator;
	gates->count = count;
	atomic_init(&gates->references, 1);
	atomic_init(&gates->process, -1);
	pthread_mutex_init(&gates->lock, NULL);
	gates->fd_socket = -1;
	gates->gates = MAP_FAILED;
	rc = gates_create(gates);
	if (rc < 0) {
		local_gates_put(gates);
		local_fail_gates(rc, error);
		return NULL;
	}
	return gates;
}

void local_gates_sent(struct local_gates *gates)
{
	if (gate_populate(gates->gates) < 0 || atomic_load(&gates->process) < 0)
		return;
	pthread_mutex_lock(&gates->lock);
	if (gates->fd >= 0)
		close(gates->fd);
	gates->fd = -1;
	pthread_mutex_unlock(&gates->lock);
}

void local_gates_put(struct local_gates *gates)
{
	if (!gates || atomic_fetch_sub(&gates->references, 1) != 1)
		return;
	if (gates->gates != MAP_FAILED)
		munmap(gates->gates, gates_size(gates));
	if (gates->fd >= 0)
		close(gates->fd);
	if (atomic_load(&gates->process) >= 0)
		close(atomic_load(&gates->process));
	pthread_mutex_destroy(&gates->lock);
	pl_free(gates->allocator, gates);
}

static bool holder_process_is_dead(int process)
{
	struct pollfd poll_fd = { .fd = process, .events = POLLIN };

	return process >= 0 && poll(&poll_fd, 1, 0) > 0;
}

/* True if the wait for this revocation must end: copies of a GPU end even if the peer does not report them. */
static bool gate_wait_is_over(struct local_gates *gates, uint64_t deadline)
{
	if (holder_process_is_dead(atomic_load(&gates->process)))
		atomic_store(&gates->dead, true);
	return pl_now() > deadline;
}

static void gate_await_holders(struct local_gates *gates, struct local_gate *gate, uint64_t deadline)
{
	struct timespec pause = { .tv_nsec = POLL_PAUSE_NS };

	for (unsigned rounds = 0; local_gate_is_held(gate) && !atomic_load(&gates->dead); rounds++) {
		if (rounds < POLLS_BEFORE_SLEEP && pl_now() <= deadline) {
			sched_yield();
			continue;
		}
		if (gate_wait_is_over(gates, deadline))
			break;
		nanosleep(&pause, NULL);
	}
}

void local_gates_shut(struct local_gates *gates)
{
	/* Before the gates are shut: a thread that ends a key finds the gate open, or the deadline. */
	if (!atomic_load(&gates->shut_until))
		atomic_store(&gates->shut_until, pl_now() + LOCAL_HOLDER_WAIT_NS);
	for (unsigned i = 0; i < gates->used; i++)
		atomic_store(&gates->gates[i].open, 0);
}

/* All gates are shut together, so that all running copies have the same deadline. */
void local_gates_await_holders(struct local_gates *gates, uint64_t most)
{
	uint64_t deadline = PL_MIN(atomic_load(&gates->shut_until), pl_now() + most);

	for (unsigned i = 0; i < gates->used; i++)
		gate_await_holders(gates, &gates->gates[i], deadline);
}

void local_gates_set_fd_socket(struct local_gates *gates, int fd_socket)
{
	pthread_mutex_lock(&gates->lock);
	gates->fd_socket = fd_socket;
	pthread_mutex_unlock(&gates->lock);
}

/*
 * Tells the peer to unmap the memory of a revoked key, so that the owner can free the memory. The record is lost if the
 * socket is full. Each record has a descriptor: here that of the gates, or the peer's own pidfd.
 */
static void gates_report_revoked(struct local_gates *gates, uint64_t key, uint64_t length)
{
	struct local_record record = { .type = LOCAL_RECORD_REVOKED, .key = key, .size = length };
	int fd;

	pthread_mutex_lock(&gates->lock);
	fd = gates->fd >= 0 ? gates->fd : atomic_load(&gates->process);
	if (gates->fd_socket >= 0)
		local_record_send(gates->fd_socket, &record, &fd, 1);
	pthread_mutex_unlock(&gates->lock);
}

static void gate_shut(struct pl_registration *base)
{
	struct gate_registration *registration = pl_container_of(base, struct gate_registration, base);
	uint64_t all_shut;

	if (registration->deadline)
		return;
	registration->deadline = pl_now() + LOCAL_HOLDER_WAIT_NS;
	/* A key that the peer released is not revoked. */
	if (registration->key && atomic_load(&registration->key->revoked)) {
		registration->report = true;
		registration->id = registration->key->id;
		registration->length = registration->key->length;
	}
	registration->awaited = atomic_exchange(&registration->gates->gates[registration->index].open, 0);
	/* The loss of the peer has shut the gate, and did not wait for its holders. */
	all_shut = atomic_load(&registration->gates->shut_until);
	if (!registration->awaited && all_shut) {
		registration->awaited = true;
		registration->deadline = all_shut;
	}
}

/* Without a wait. A holder that comes later finds the gate shut, or is hostile: it is not awaited. */
static bool gate_is_in_use(struct pl_registration *base)
{
	struct gate_registration *registration = pl_container_of(base, struct gate_registration, base);
	struct local_gates *gates = registration->gates;

	registration->awaited = registration->awaited && !atomic_load(&gates->dead) &&
				local_gate_is_held(&gates->gates[registration->index]) &&
				pl_now() <= registration->deadline;
	return registration->awaited;
}

/* A stopped or hostile holder delays only a thread that revokes the key: in other cases the key waits, until it is not in use. */
static void finish_gate_registration(struct pl_registration *base)
{
	struct gate_registration *registration = pl_container_of(base, struct gate_registration, base);
	struct local_gates *gates = registration->gates;

	if (registration->awaited)
		gate_await_holders(gates, &gates->gates[registration->index], registration->deadline);
	if (registration->report)
		gates_report_revoked(gates, registration->id, registration->length);
	pl_free(gates->allocator, registration);
	local_gates_put(gates);
}

/* Allocates the page of a gate through the descriptor. Some kernels undo the call at a signal. */
static int gate_allocate(const struct local_gates *gates, unsigned index)
{
	int rc;

	do
		rc = fallocate(gates->fd, 0, (off_t)(index * sizeof(struct local_gate)), sizeof(struct local_gate));
	while (rc < 0 && errno == EINTR);
	return rc < 0 ? -errno : 0;
}

/* Home, as local_gates_sent(). */
static int gate_prepare(struct local_gates *gates, unsigned index)
{
	/* Allocates the page now: a lack of pages is an error here and not a SIGBUS later. */
	int rc = gates->fd < 0 ? gate_populate(&gates->gates[index]) : gate_allocate(gates, index);

	if (rc < 0)
		return rc;
	/* A holder that did not leave (a thread that ended during a copy) would delay the new key as well. */
	return local_gate_is_held(&gates->gates[index]) ? -EBUSY : 0;
}

int local_gate_open(struct local_gates *gates, struct pl_key *key, uint32_t number, bool notify_peer)
{
	unsigned index = (uint32_t)key->id;
	struct gate_registration *registration;
	int rc = gate_prepare(gates, index);

	if (rc < 0)
		return rc;
	registration = pl_zalloc(gates->allocator, sizeof(*registration));
	if (!registration)
		return -ENOMEM;
	registration->gates = gates;
	registration->index = index;
	registration->key = notify_peer ? key : NULL;
	registration->base.device = gates;
	registration->base.shut = gate_shut;
	registration->base.in_use = gate_is_in_use;
	registration->base.release = gate_shut;
	registration->base.finish = finish_gate_registration;
	atomic_fetch_add(&gates->references, 1);
	pl_list_append(&key->registrations, &registration->base.link);
	gates->used = PL_MAX(gates->used, index + 1);
	atomic_store(&gates->gates[index].open, number);
	return 0;
}
