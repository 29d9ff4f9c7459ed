/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies by the processor of this end, with each method. */
#include <poll.h>
#include <sys/uio.h>

#include "base/memcheck.h"
#include "fabric/local/local.h"

/* -- mapped --------------------------------------------------------------------------------------- */

static int move_mapped(const struct local_access *access, const struct local_move *move)
{
	uint8_t *there = access->base + move->remote_offset;

	local_lock_copies(access->lock, move->memory, move->length);
	return move->write ? pl_memory_copy_out(move->memory, move->offset, there, move->length)
			   : pl_memory_copy_in(move->memory, move->offset, there, move->length);
}

/* -- process_vm ----------------------------------------------------------------------------------- */

/* The number of a process that ended may belong to another one now. */
static bool is_alive(const struct local_endpoint *endpoint)
{
	struct pollfd poll_fd = { .fd = endpoint->process_fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 0;
}

static int move_by_kernel(const struct local_access *access, const struct local_move *move)
{
	struct iovec here = { .iov_base = pl_memory_host_pointer(move->memory, move->offset), .iov_len = move->length };
	struct iovec there = { .iov_base = access->base + move->remote_offset, .iov_len = move->length };

	if (!here.iov_base)
		return -ENOTSUP;
	if (!is_alive(access->endpoint))
		return -ECONNRESET;
	while (here.iov_len) {
		pid_t process = access->endpoint->process;
		ssize_t moved = move->write ? process_vm_writev(process, &here, 1, &there, 1, 0)
					    : process_vm_readv(process, &here, 1, &there, 1, 0);

		if (moved < 0)
			return errno == ESRCH ? -ECONNRESET : -errno;
		if (moved == 0)
			return -EFAULT;
		if (!move->write)
			pl_mark_written(here.iov_base, (size_t)moved);
		/* A short copy: the next call returns the error. */
		here.iov_base = (uint8_t *)here.iov_base + moved;
		there.iov_base = (uint8_t *)there.iov_base + moved;
		here.iov_len -= (size_t)moved;
		there.iov_len = here.iov_len;
	}
	return 0;
}

const struct local_way local_mapped_way = {
	.reason = "local: the region is mapped by both processes; the processor copies once",
	.move = move_mapped,
};
const struct local_way local_process_way = {
	.reason = "local: the kernel copies between the processes (process_vm_writev), as the library did not allocate "
		  "the region, or not all of it was granted",
	.move = move_by_kernel,
};
const struct local_way local_socket_way = {
	.reason = "local: through a socket, as the memory cannot be reached otherwise",
};
const struct local_way local_denied_way = {
	.reason = "local: through a socket, as the kernel does not let this process copy (process_vm_writev; see "
		  "kernel.yama.ptrace_scope)",
};

/* -- all ------------------------------------------------------------------------------------------ */

static int fail_local_copy(struct pl_error *error, enum pl_wire_status status)
{
	return pl_wire_fail(error, status, "transfer", NULL);
}

static bool has_expired(const struct local_access *access)
{
	return access->expires && pl_wall_clock() >= access->expires;
}

static int why_not(const struct local_access *access, struct pl_error *error)
{
	return fail_local_copy(error, has_expired(access) ? PL_WIRE_EXPIRED : PL_WIRE_UNKNOWN_KEY);
}

/* Enters the gate for a copy. Returns the holder slot, or NULL if the remote region must not be used. */
static _Atomic uint32_t *enter_access_gate(const struct local_access *access)
{
	return has_expired(access) ? NULL : local_gate_enter(access->gate, access->number);
}

int local_hold(const struct local_access *access, struct pl_error *error)
{
	if (!has_expired(access) && local_gate_hold(access->gate, access->number))
		return 0;
	return why_not(access, error);
}

int local_move_fail(struct pl_error *error, int code, bool write)
{
	if (code == -EFAULT)
		return pl_fail(error, code, write ? "MEMORY-UNREADABLE" : "MEMORY-UNWRITABLE", "transfer", NULL,
			       "keep the regions mapped, and files behind them whole, while they are used",
			       write ? "the memory cannot be read here, or not be written at the other end"
				     : "the memory cannot be written here, or not be read at the other end");
	if (code == -ECONNRESET)
		return pl_fail(error, code, "PEER-LOST", "transfer", NULL, "see whether the other process still runs",
			       "the other process has ended");
	return pl_fail(error, code, "LOCAL-DENIED", write ? "process_vm_writev" : "process_vm_readv", NULL,
		       "import the region again: sockets are used where this is not allowed",
		       "the kernel does not let this process copy any more: %s", strerror(-code));
}

int local_move(const struct local_access *access, const struct local_move *move, struct pl_error *error)
{
	_Atomic uint32_t *place = enter_access_gate(access);
	int rc = 0;

	if (!place)
		return why_not(access, error);
	if (move->length)
		rc = access->way->move(access, move);
	local_gate_leave(access->gate, place);
	return rc < 0 ? local_move_fail(error, rc, move->write) : 0;
}

int local_atomic(struct pl_sync_op *instant, struct pl_error *error)
{
	const struct local_access *access = instant->segment.remote->fabric_data;
	_Atomic uint32_t *place;
	uint64_t *word;

	if (access->way != &local_mapped_way)
		return -EAGAIN;
	word = (uint64_t *)(void *)(access->base + instant->segment.remote_offset);
	if ((uintptr_t)word % sizeof(*word))
		return fail_local_copy(error, PL_WIRE_MISALIGNED);
	place = enter_access_gate(access);
	if (!place)
		return why_not(access, error);
	if (instant->kind == PL_KIND_FETCH_ADD) {
		instant->value = __atomic_fetch_add(word, instant->operand, __ATOMIC_SEQ_CST);
	} else {
		instant->value = instant->compare;
		__atomic_compare_exchange_n(word, &instant->value, instant->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	local_gate_leave(access->gate, place);
	return 0;
}
