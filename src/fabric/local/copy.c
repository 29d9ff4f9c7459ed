/* SPDX-License-Identifier: BSD-2-Clause */
/* Copies by the processor of this end, over the mapped and process_vm access paths. */
#include <poll.h>
#include <sys/uio.h>

#include "base/memcheck.h"
#include "fabric/local/local.h"

/* -- mapped --------------------------------------------------------------------------------------- */

static int copy_mapped(const struct local_access *access, const struct local_range *range)
{
	uint8_t *remote = access->base + range->remote_offset;
	bool by_gpu = pl_memory_staged(range->memory);
	int rc;

	if (by_gpu) {
		local_host_pin_note_copy(access->pin, range->memory, range->length);
		if (!local_host_pin_hold(access->pin))
			return -EFAULT;
	}
	rc = range->write ? pl_memory_copy_out(range->memory, range->offset, remote, range->length)
			  : pl_memory_copy_in(range->memory, range->offset, remote, range->length);
	if (by_gpu)
		local_host_pin_put(access->pin);
	return rc;
}

/* -- process_vm ----------------------------------------------------------------------------------- */

/* True if the peer's process runs. The kernel may give the number of an ended process to another one. */
static bool peer_process_is_alive(const struct local_endpoint *endpoint)
{
	struct pollfd poll_fd = { .fd = endpoint->process_fd, .events = POLLIN };

	/* A call that a signal interrupts has found no event. */
	return poll(&poll_fd, 1, 0) <= 0;
}

/* Ranges that process_vm_readv(2) or process_vm_writev(2) has still to copy. Ranges of one index have one length. */
struct vm_ranges {
	struct iovec local[LOCAL_RANGES], remote[LOCAL_RANGES];
	unsigned first, count;
};

/* Takes `moved` bytes off the front. */
static void vm_ranges_advance(struct vm_ranges *ranges, size_t moved, bool write)
{
	for (; moved; ranges->first++) {
		struct iovec *local = &ranges->local[ranges->first], *remote = &ranges->remote[ranges->first];
		size_t part = PL_MIN(moved, local->iov_len);

		if (!write)
			pl_mark_written(local->iov_base, part);
		moved -= part;
		if (part == local->iov_len)
			continue;
		local->iov_base = (uint8_t *)local->iov_base + part;
		remote->iov_base = (uint8_t *)remote->iov_base + part;
		local->iov_len -= part;
		remote->iov_len = local->iov_len;
		return;
	}
}

static int vm_ranges_copy(struct vm_ranges *ranges, pid_t process, bool write)
{
	while (ranges->first < ranges->count) {
		const struct iovec *local = ranges->local + ranges->first, *remote = ranges->remote + ranges->first;
		unsigned count = ranges->count - ranges->first;
		ssize_t moved = write ? process_vm_writev(process, local, count, remote, count, 0)
				      : process_vm_readv(process, local, count, remote, count, 0);

		if (moved < 0)
			return errno == ESRCH ? -ECONNRESET : -errno;
		if (moved == 0)
			return -EFAULT;
		/* After a short copy, the next call returns the error. */
		vm_ranges_advance(ranges, (size_t)moved, write);
	}
	return 0;
}

static int copy_ranges_by_process_vm(const struct local_access *access, const struct local_range *ranges,
				     unsigned count)
{
	struct vm_ranges left;

	for (unsigned i = 0; i < count; i++) {
		left.local[i].iov_base = pl_memory_host_pointer(ranges[i].memory, ranges[i].offset);
		left.local[i].iov_len = ranges[i].length;
		left.remote[i].iov_base = access->base + ranges[i].remote_offset;
		left.remote[i].iov_len = ranges[i].length;
		if (!left.local[i].iov_base)
			return -ENOTSUP;
	}
	left.first = 0;
	left.count = count;
	return vm_ranges_copy(&left, access->endpoint->process, ranges->write);
}

static int copy_by_process_vm(const struct local_access *access, const struct local_range *range)
{
	return copy_ranges_by_process_vm(access, range, 1);
}

const struct local_path local_mapped_path = {
	.reason = "local: the region is mapped by both processes; the processor copies once",
	.copy = copy_mapped,
};
const struct local_path local_process_path = {
	.reason = "local: the kernel copies between the processes (process_vm_writev), as the library did not allocate "
		  "the region, or not all of it was granted",
	.copy = copy_by_process_vm,
	.copy_ranges = copy_ranges_by_process_vm,
};
const struct local_path local_socket_path = {
	.reason = "local: through a socket, as no other access path reaches the memory",
};
const struct local_path local_denied_path = {
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

static int fail_unusable_access(const struct local_access *access, struct pl_error *error)
{
	return fail_local_copy(error, has_expired(access) ? PL_WIRE_EXPIRED : PL_WIRE_UNKNOWN_KEY);
}

/* Enters the gate for a copy. Returns the holder slot, or NULL if the remote region must not be used. */
static _Atomic uint32_t *enter_access_gate(const struct local_access *access)
{
	return has_expired(access) ? NULL : local_gate_enter(access->gate, access->number);
}

int local_access_hold_gate(const struct local_access *access, struct pl_error *error)
{
	if (!has_expired(access) && local_gate_hold(access->gate, access->number))
		return 0;
	return fail_unusable_access(access, error);
}

int local_copy_fail(struct pl_error *error, int code, bool write)
{
	if (code == -EFAULT)
		return pl_fail(error, code, write ? "MEMORY-UNREADABLE" : "MEMORY-UNWRITABLE", "transfer", NULL,
			       "keep the regions mapped, and files behind them whole, while they are used",
			       write ? "the memory cannot be read at this end, or not be written at the other end"
				     : "the memory cannot be written at this end, or not be read at the other end");
	if (code == -ECONNRESET)
		return pl_fail(error, code, "PEER-LOST", "transfer", NULL, "check that the other process runs",
			       "the other process has ended");
	return pl_fail(error, code, "LOCAL-DENIED", write ? "process_vm_writev" : "process_vm_readv", NULL,
		       "import the region again, which selects sockets if the kernel forbids copies",
		       "the kernel forbids this process to copy: %s", strerror(-code));
}

/*
 * Asked before the thread enters the gate: a process that is stopped between entering and the kernel's copy does the copy
 * when it goes on, although the owner has given up waiting. Without another system call in between that is rare.
 */
static bool peer_process_is_lost(const struct local_access *access)
{
	return access->path == &local_process_path && !peer_process_is_alive(access->endpoint);
}

int local_copy_chunk(const struct local_access *access, const struct local_range *range, struct pl_error *error)
{
	bool lost = peer_process_is_lost(access);
	_Atomic uint32_t *slot = lost ? NULL : enter_access_gate(access);
	int rc = 0;

	if (lost)
		return local_copy_fail(error, -ECONNRESET, range->write);
	if (!slot)
		return fail_unusable_access(access, error);
	if (range->length)
		rc = access->path->copy(access, range);
	local_gate_leave(access->gate, slot);
	return rc < 0 ? local_copy_fail(error, rc, range->write) : 0;
}

int local_copy_ranges(const struct local_access *access, const struct local_range *ranges, unsigned count,
		      struct pl_error *error)
{
	bool lost = peer_process_is_lost(access);
	_Atomic uint32_t *slot = lost ? NULL : enter_access_gate(access);
	int rc;

	if (lost)
		return local_copy_fail(error, -ECONNRESET, ranges->write);
	if (!slot)
		return fail_unusable_access(access, error);
	rc = access->path->copy_ranges(access, ranges, count);
	local_gate_leave(access->gate, slot);
	return rc < 0 ? local_copy_fail(error, rc, ranges->write) : 0;
}

int local_atomic(struct pl_sync_op *sync_op, struct pl_error *error)
{
	const struct local_access *access = sync_op->segment.remote->fabric_data;
	_Atomic uint32_t *slot;
	uint64_t *word;

	if (access->path != &local_mapped_path)
		return -EAGAIN;
	word = (uint64_t *)(void *)(access->base + sync_op->segment.remote_offset);
	if ((uintptr_t)word % sizeof(*word))
		return fail_local_copy(error, PL_WIRE_MISALIGNED);
	slot = enter_access_gate(access);
	if (!slot)
		return fail_unusable_access(access, error);
	if (sync_op->kind == PL_KIND_FETCH_ADD) {
		sync_op->value = __atomic_fetch_add(word, sync_op->operand, __ATOMIC_SEQ_CST);
	} else {
		sync_op->value = sync_op->compare;
		__atomic_compare_exchange_n(word, &sync_op->value, sync_op->operand, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	}
	local_gate_leave(access->gate, slot);
	return 0;
}
