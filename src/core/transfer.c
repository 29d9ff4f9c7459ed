/* SPDX-License-Identifier: BSD-2-Clause */
/* Public calls that move bytes: they check arguments and hand the operation to the peer's home engine. */
#include <stdio.h>

#include "core/bulk_post.h"
#include "core/call.h"
#include "core/fastpath.h"

/* Takes what the attributes refer to, or discards the operation. */
static int take_attributes(struct pl_operation *operation, const char *call, struct pl_error *error)
{
	int rc = pl_operation_take_attributes(operation, call, error);

	if (rc < 0)
		pl_operation_discard(operation);
	return rc;
}

static void run_posted(struct pl_task *task)
{
	pl_operation_run(pl_operation_of_task(task));
}

static inline unsigned right_of(enum pl_kind kind)
{
	return kind == PL_KIND_WRITE ? PL_ACCESS_WRITE : PL_ACCESS_READ;
}

static int check_transfer(const struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *at, const char *call,
			  struct pl_error *error)
{
	int rc = pl_call_check_remote(peer, at->remote, at->remote_offset, at->length, right_of(kind), call, error);

	return rc < 0 ? rc : pl_call_check_local(peer->context, at->region, at->offset, at->length, call, error);
}

static int leave_without_memory(struct pl_peer *peer, struct pl_error *error)
{
	pl_engine_leave(peer->home);
	return pl_fail_memory(error, "operation");
}

/* Attributes with these flags refer to something that the call must take. */
#define REFERRING (PL_NOTIFY | PL_AFTER_STREAM)

/* Posts an operation of one segment by a task, unless its home is free now. */
static int submit_segment(struct pl_operation *operation, const struct pl_segment *segment, const char *call,
			  struct pl_operation **handle, struct pl_error *error)
{
	int rc = operation->attributes.flags & REFERRING ? take_attributes(operation, call, error) : 0;

	if (rc < 0)
		return rc;
	pl_fast_segment(operation, segment);
	pl_bulk_post_submit(operation, run_posted, handle);
	return 0;
}

PL_ALWAYS_INLINE struct pl_segment segment_of(const struct pl_transfer *at)
{
	return (struct pl_segment){ at->remote, at->region, at->remote_offset, at->offset, at->length };
}

/* Posts a transfer whose home is busy, or whose attributes refer to something. */
__attribute__((noinline)) static int transfer_by_task(struct pl_peer *peer, enum pl_kind kind,
						      const struct pl_transfer *at,
						      const struct pl_attributes *attributes,
						      struct pl_operation **handle, const char *call,
						      struct pl_error *error)
{
	const struct pl_segment segment = segment_of(at);
	struct pl_operation *operation;
	int rc = 0;

	if (attributes->flags & PL_NOTIFY)
		rc = pl_call_check_notify_data(peer, attributes->notify_data, attributes->notify_length, call, error);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, kind, attributes, error);
	return operation ? submit_segment(operation, &segment, call, handle, error) : -ENOMEM;
}

/* Does a transfer synchronously, if its fabric can. Out of line: its structure on the stack needs a canary. */
__attribute__((noinline)) static bool transfer_sync(struct pl_peer *peer, enum pl_kind kind,
						    const struct pl_transfer *at,
						    const struct pl_attributes *attributes,
						    struct pl_operation **handle)
{
	struct pl_sync_op sync = { .kind = kind, .segment = segment_of(at) };

	return pl_sync_try(peer, &sync, attributes, handle);
}

/* Posts a transfer of one range, with attributes of this release's size. */
PL_ALWAYS_INLINE int transfer_with(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *at,
				   const struct pl_attributes *attributes, struct pl_operation **handle,
				   const char *call, struct pl_error *error)
{
	struct pl_operation *operation;
	struct pl_segment segment;
	int rc = 0;

	if (!pl_call_peer_fits(peer))
		rc = pl_call_check_peer(peer, call, error);
	if (rc == 0 && !(pl_call_remote_fits(peer, at->remote, at->remote_offset, at->length, right_of(kind)) &&
			 pl_call_local_fits(peer, at->region, at->offset, at->length)))
		rc = check_transfer(peer, kind, at, call, error);
	if (rc < 0)
		return rc;
	if (peer->ops->sync_try && transfer_sync(peer, kind, at, attributes, handle))
		return 0;
	if ((attributes->flags & REFERRING) || pl_bulk_post_leaves(peer, kind, at->length) || !pl_fast_enter(peer))
		return transfer_by_task(peer, kind, at, attributes, handle, call, error);
	segment = segment_of(at);
	operation = pl_fast_new_held(peer, kind, attributes, &segment);
	if (!operation)
		return leave_without_memory(peer, error);
	pl_fast_submit(peer, operation, kind, handle);
	return 0;
}

/* The same with a copy of the attributes. */
__attribute__((noinline)) static int transfer_unusual(struct pl_peer *peer, enum pl_kind kind,
						      const struct pl_transfer *at, const struct pl_attributes *given,
						      struct pl_operation **handle, const char *call,
						      struct pl_error *error)
{
	struct pl_attributes copy;
	int rc = pl_call_copy_attributes(&copy, given, kind, call, error);

	return rc < 0 ? rc : transfer_with(peer, kind, at, &copy, handle, call, error);
}

PL_ALWAYS_INLINE int transfer(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *at,
			      const struct pl_attributes *given, struct pl_operation **handle, const char *call,
			      struct pl_error *error)
{
	const struct pl_attributes *attributes = pl_call_usual(given);

	if (!attributes)
		return transfer_unusual(peer, kind, at, given, handle, call, error);
	return transfer_with(peer, kind, at, attributes, handle, call, error);
}

static void fill_segments(struct pl_operation *operation, const struct pl_transfer *transfers, size_t count)
{
	struct pl_segment *segments = operation->segments;
	uint64_t total = 0;
	bool one_memory = true;

	for (size_t i = 0; i < count; i++) {
		bool region, remote;

		segments[i] = segment_of(&transfers[i]);
		total += segments[i].length;
		region = pl_segment_changes_region(segments, i);
		remote = pl_segment_changes_remote(segments, i);
		if (region)
			atomic_fetch_add(&segments[i].region->busy, 1);
		if (remote)
			atomic_fetch_add(&segments[i].remote->references, 1);
		one_memory &= i == 0 || !(region || remote);
	}
	operation->one_memory = one_memory;
	operation->segment_count = (unsigned)count;
	operation->total = total;
}

/* Checks all elements.  The error's object names the first wrong one, counted from 0. */
static int check_elements(const struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers,
			  size_t count, const char *call, struct pl_error *error)
{
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		const struct pl_transfer *at = &transfers[i];
		int rc;

		if (pl_call_remote_fits(peer, at->remote, at->remote_offset, at->length, right_of(kind)) &&
		    pl_call_local_fits(peer, at->region, at->offset, at->length) &&
		    !__builtin_add_overflow(total, at->length, &total))
			continue;
		rc = check_transfer(peer, kind, at, call, error);
		if (rc == 0)
			rc = pl_call_fail_length(error, call);
		if (error)
			snprintf(error->object, sizeof(error->object), "element %zu", i);
		return rc;
	}
	return 0;
}

int pl_transfer_check(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers, size_t count,
		      const char *call, struct pl_error *error)
{
	int rc = pl_call_check_peer(peer, call, error);

	if (rc == 0 && (count == 0 || count > PL_TRANSFERS_MAX))
		rc = pl_fail(error, -EINVAL, "TRANSFER-COUNT", call, NULL, "pass 1 to 1048576 elements", "%zu elements",
			     count);
	return rc < 0 ? rc : check_elements(peer, kind, transfers, count, call, error);
}

int pl_transfer_post_vector(struct pl_vector *vector, struct pl_segment *segments, const struct pl_attributes *given,
			    struct pl_operation **handle, struct pl_error *error)
{
	const struct pl_attributes *attributes;
	struct pl_peer *peer = vector->peer;
	struct pl_operation *operation;
	struct pl_attributes copy;
	int rc = pl_call_attributes(&attributes, &copy, given, vector->kind, "pl_vector_post", error);

	if (rc == 0)
		rc = pl_call_check_peer(peer, "pl_vector_post", error);
	if (rc == 0 && (attributes->flags & PL_NOTIFY))
		rc = pl_call_check_notify_data(peer, attributes->notify_data, attributes->notify_length,
					       "pl_vector_post", error);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, vector->kind, attributes, error);
	if (!operation)
		return -ENOMEM;
	rc = take_attributes(operation, "pl_vector_post", error);
	if (rc < 0)
		return rc;
	operation->vector = vector;
	operation->segments = segments;
	operation->segment_count = (unsigned)vector->count;
	operation->total = vector->total;
	operation->one_memory = vector->one_memory;
	pl_operation_submit(operation, run_posted, handle);
	return 0;
}

static int transfer_many(struct pl_peer *peer, enum pl_kind kind, const struct pl_transfer *transfers, size_t count,
			 const struct pl_attributes *given, struct pl_operation **handle, const char *call,
			 struct pl_error *error)
{
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	int rc = pl_call_attributes(&attributes, &copy, given, kind, call, error);

	if (rc == 0)
		rc = pl_transfer_check(peer, kind, transfers, count, call, error);
	if (rc == 0 && (attributes->flags & PL_NOTIFY))
		rc = pl_call_check_notify_data(peer, attributes->notify_data, attributes->notify_length, call, error);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, kind, attributes, error);
	if (!operation)
		return -ENOMEM;
	operation->segments = pl_alloc(&peer->context->allocator, count * sizeof(struct pl_segment));
	if (!operation->segments) {
		pl_operation_discard(operation);
		return pl_fail_memory(error, call);
	}
	rc = take_attributes(operation, call, error);
	if (rc < 0)
		return rc;
	fill_segments(operation, transfers, count);
	pl_operation_submit(operation, run_posted, handle);
	return 0;
}

int pl_write(struct pl_peer *peer, const struct pl_transfer *one, const struct pl_attributes *attributes,
	     struct pl_operation **operation, struct pl_error *error)
{
	return transfer(peer, PL_KIND_WRITE, one, attributes, operation, "pl_write", error);
}

int pl_read(struct pl_peer *peer, const struct pl_transfer *one, const struct pl_attributes *attributes,
	    struct pl_operation **operation, struct pl_error *error)
{
	return transfer(peer, PL_KIND_READ, one, attributes, operation, "pl_read", error);
}

int pl_writev(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	      const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error)
{
	if (count == 1)
		return transfer(peer, PL_KIND_WRITE, transfers, attributes, operation, "pl_writev", error);
	return transfer_many(peer, PL_KIND_WRITE, transfers, count, attributes, operation, "pl_writev", error);
}

int pl_readv(struct pl_peer *peer, const struct pl_transfer *transfers, size_t count,
	     const struct pl_attributes *attributes, struct pl_operation **operation, struct pl_error *error)
{
	if (count == 1)
		return transfer(peer, PL_KIND_READ, transfers, attributes, operation, "pl_readv", error);
	return transfer_many(peer, PL_KIND_READ, transfers, count, attributes, operation, "pl_readv", error);
}

/* -- atomics ------------------------------------------------------------------------------------ */

static inline void set_operands(struct pl_operation *operation, const struct pl_sync_op *sync)
{
	operation->operand = sync->operand;
	operation->compare = sync->compare;
	operation->old = sync->old;
}

/* Posts an atomic operation whose home is busy, or which waits for a stream. */
static int atomic_by_task(struct pl_peer *peer, const struct pl_sync_op *sync, const struct pl_attributes *attributes,
			  struct pl_operation **handle, const char *call, struct pl_error *error)
{
	struct pl_operation *operation = pl_operation_new(peer->context, peer, sync->kind, attributes, error);

	if (!operation)
		return -ENOMEM;
	set_operands(operation, sync);
	return submit_segment(operation, &sync->segment, call, handle, error);
}

static int post_atomic(struct pl_peer *peer, enum pl_kind kind, const struct pl_atomic *atomic,
		       const struct pl_attributes *given, struct pl_operation **handle, const char *call,
		       struct pl_error *error)
{
	struct pl_sync_op sync = {
		.kind = kind,
		.segment = { .remote = atomic->remote, .remote_offset = atomic->remote_offset, .length = 8 },
		.operand = atomic->operand,
		.compare = kind == PL_KIND_COMPARE_SWAP ? atomic->compare : 0,
		.old = atomic->old
	};
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	int rc = pl_call_attributes(&attributes, &copy, given, kind, call, error);

	if (rc == 0 && !pl_call_peer_fits(peer))
		rc = pl_call_check_peer(peer, call, error);
	if (rc == 0 && !pl_call_remote_fits(peer, atomic->remote, atomic->remote_offset, 8, PL_ACCESS_ATOMIC))
		rc = pl_call_check_remote(peer, atomic->remote, atomic->remote_offset, 8, PL_ACCESS_ATOMIC, call,
					  error);
	if (rc < 0)
		return rc;
	if (peer->ops->sync_try && pl_sync_try(peer, &sync, attributes, handle))
		return 0;
	if ((attributes->flags & REFERRING) || !pl_fast_enter(peer))
		return atomic_by_task(peer, &sync, attributes, handle, call, error);
	operation = pl_fast_new_held(peer, kind, attributes, &sync.segment);
	if (!operation)
		return leave_without_memory(peer, error);
	set_operands(operation, &sync);
	pl_fast_submit(peer, operation, kind, handle);
	return 0;
}

int pl_fetch_add(struct pl_peer *peer, const struct pl_atomic *atomic, const struct pl_attributes *attributes,
		 struct pl_operation **operation, struct pl_error *error)
{
	return post_atomic(peer, PL_KIND_FETCH_ADD, atomic, attributes, operation, "pl_fetch_add", error);
}

int pl_compare_swap(struct pl_peer *peer, const struct pl_atomic *atomic, const struct pl_attributes *attributes,
		    struct pl_operation **operation, struct pl_error *error)
{
	return post_atomic(peer, PL_KIND_COMPARE_SWAP, atomic, attributes, operation, "pl_compare_swap", error);
}

/* -- messages ----------------------------------------------------------------------------------- */

static inline struct pl_segment segment_of_buffer(const struct pl_buffer *buffer)
{
	return (struct pl_segment){ .region = buffer->region, .offset = buffer->offset, .length = buffer->length };
}

/* Posts a message whose home is busy, or which waits for a stream. */
static int send_by_task(struct pl_peer *peer, uint64_t tag, const struct pl_segment *segment,
			const struct pl_attributes *attributes, struct pl_operation **handle, struct pl_error *error)
{
	struct pl_operation *operation = pl_operation_new(peer->context, peer, PL_KIND_SEND, attributes, error);

	if (!operation)
		return -ENOMEM;
	operation->tag = operation->completion.tag = tag;
	return submit_segment(operation, segment, "pl_send", handle, error);
}

int pl_send(struct pl_peer *peer, uint64_t tag, const struct pl_buffer *buffer, const struct pl_attributes *given,
	    struct pl_operation **handle, struct pl_error *error)
{
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	struct pl_segment segment;
	int rc = pl_call_attributes(&attributes, &copy, given, PL_KIND_SEND, "pl_send", error);

	if (rc == 0 && (attributes->flags & PL_CONFIDENTIAL))
		rc = pl_call_bad_attributes(error, "pl_send", "PL_CONFIDENTIAL is a flag of pl_send_copy()");
	if (rc == 0 && !pl_call_peer_fits(peer))
		rc = pl_call_check_peer(peer, "pl_send", error);
	if (rc == 0 && !pl_call_local_fits(peer, buffer->region, buffer->offset, buffer->length))
		rc = pl_call_check_local(peer->context, buffer->region, buffer->offset, buffer->length, "pl_send",
					 error);
	if (rc < 0)
		return rc;
	segment = segment_of_buffer(buffer);
	if ((attributes->flags & REFERRING) || pl_bulk_post_leaves(peer, PL_KIND_SEND, segment.length) ||
	    !pl_fast_enter(peer))
		return send_by_task(peer, tag, &segment, attributes, handle, error);
	operation = pl_fast_new_held(peer, PL_KIND_SEND, attributes, &segment);
	if (!operation)
		return leave_without_memory(peer, error);
	operation->tag = operation->completion.tag = tag;
	pl_fast_submit(peer, operation, PL_KIND_SEND, handle);
	return 0;
}

int pl_send_copy(struct pl_peer *peer, uint64_t tag, const void *data, size_t length, const struct pl_attributes *given,
		 struct pl_operation **handle, struct pl_error *error)
{
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	int rc = pl_call_attributes(&attributes, &copy, given, PL_KIND_SEND, "pl_send_copy", error);

	if (rc == 0)
		rc = pl_call_check_peer(peer, "pl_send_copy", error);
	if (rc == 0 && length > PL_SEND_COPY_MAX)
		rc = pl_fail(error, -EMSGSIZE, "MESSAGE-TOO-LONG", "pl_send_copy", NULL,
			     "register the memory and use pl_send()", "%zu bytes, at most %d can be copied", length,
			     PL_SEND_COPY_MAX);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, PL_KIND_SEND, attributes, error);
	if (!operation)
		return -ENOMEM;
	operation->copy = pl_alloc(&peer->context->allocator, length ? length : 1);
	if (!operation->copy) {
		pl_operation_discard(operation);
		return pl_fail_memory(error, "pl_send_copy");
	}
	if (length)
		memcpy(operation->copy, data, length);
	rc = take_attributes(operation, "pl_send_copy", error);
	if (rc < 0)
		return rc;
	operation->total = length;
	operation->tag = operation->completion.tag = tag;
	pl_operation_submit(operation, run_posted, handle);
	return 0;
}

int pl_notify(struct pl_peer *peer, uint64_t value, const void *data, size_t length, const struct pl_attributes *given,
	      struct pl_operation **handle, struct pl_error *error)
{
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	int rc = pl_call_attributes(&attributes, &copy, given, PL_KIND_NOTIFY, "pl_notify", error);

	if (rc == 0)
		rc = pl_call_check_peer(peer, "pl_notify", error);
	if (rc == 0)
		rc = pl_call_check_notify_data(peer, data, length, "pl_notify", error);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, PL_KIND_NOTIFY, attributes, error);
	if (!operation)
		return -ENOMEM;
	operation->attributes.notify = value;
	operation->attributes.notify_data = data;
	operation->attributes.notify_length = length;
	operation->completion.value = value;
	rc = take_attributes(operation, "pl_notify", error);
	if (rc < 0)
		return rc;
	pl_operation_submit(operation, run_posted, handle);
	return 0;
}

int pl_receive(struct pl_peer *peer, uint64_t tag, uint64_t mask, const struct pl_buffer *buffer,
	       const struct pl_attributes *given, struct pl_operation **handle, struct pl_error *error)
{
	const struct pl_buffer empty = { 0 };
	const struct pl_attributes *attributes;
	struct pl_operation *operation;
	struct pl_attributes copy;
	struct pl_segment segment;
	int rc = pl_call_attributes(&attributes, &copy, given, PL_KIND_RECEIVE, "pl_receive", error);

	buffer = buffer ? buffer : &empty;
	/* Messages that arrived before the loss can still be received, so pl_call_check_peer() is not called. */
	if (rc == 0 && (buffer->region || buffer->offset || buffer->length))
		rc = pl_call_check_local(peer->context, buffer->region, buffer->offset, buffer->length, "pl_receive",
					 error);
	if (rc < 0)
		return rc;
	operation = pl_operation_new(peer->context, peer, PL_KIND_RECEIVE, attributes, error);
	if (!operation)
		return -ENOMEM;
	segment = segment_of_buffer(buffer);
	pl_fast_segment(operation, &segment);
	operation->tag = tag;
	operation->mask = mask;
	pl_bulk_post_submit(operation, pl_receive_run, handle);
	return 0;
}
