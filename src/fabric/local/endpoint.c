/* SPDX-License-Identifier: BSD-2-Clause */
/* Operations table of the local fabric. Operations that the processor cannot do itself go to the lanes. */
#include <sys/socket.h>

#include "fabric/local/local.h"
#include "fabric/tcp/tcp.h"

/* Longest wait under the engine's lock for running copies of a lost peer. A copied chunk takes less than 1 ms. */
#define COPY_WAIT_NS (10 * PL_NS_PER_MS)

/* Visibility and reason of messages, whose bytes go through the socket. */
static const char visibility[] = "local: the bytes were copied to their memory before the operation completed";
static const char reason[] = "local: through a socket of this host";

static int local_lane_dial(struct tcp_endpoint *lanes)
{
	return local_connect_to_listener(local_endpoint_of(lanes->base.peer->endpoint)->peer_invitation.name);
}

static int local_copy_frame(struct pl_peer *peer, const struct pl_frame *frame, const uint8_t *payload)
{
	struct local_endpoint *endpoint = local_endpoint_of(peer->endpoint);

	return frame->type == PL_FRAME_COPY ? local_copy_requested(endpoint, frame, payload)
					    : local_owner_answered(endpoint, frame);
}

static void endpoint_free(struct local_endpoint *endpoint)
{
	local_device_unpark(endpoint->state, endpoint);
	local_gates_put(endpoint->own_gates);
	pl_free(&endpoint->state->context->allocator, endpoint);
}

static int local_create(struct pl_peer *peer, struct pl_endpoint **result, struct pl_error *error)
{
	struct local_state *state = local_state_get(peer->context, error);
	struct local_endpoint *endpoint;
	struct pl_error failure;
	int rc;

	if (!state)
		return -ENOMEM;
	endpoint = pl_zalloc(&peer->context->allocator, sizeof(*endpoint));
	if (!endpoint)
		return pl_fail_memory(error, "connect");
	endpoint->base.peer = peer;
	endpoint->state = state;
	pl_list_init(&endpoint->direct_work);
	local_fd_socket_init(endpoint);
	local_asking_init(&endpoint->asking);
	local_serving_init(endpoint);
	endpoint->own_gates = local_gates_new(&peer->context->allocator, local_gate_count(peer), NULL);
	if (!endpoint->own_gates)
		endpoint->own_gates = local_gates_new(&peer->context->allocator, LOCAL_GATES_LEAST, &failure);
	rc = endpoint->own_gates ? pl_tcp_fabric.create(peer, &endpoint->lanes, error) : failure.code;
	if (!endpoint->own_gates && error)
		*error = failure;
	if (rc < 0) {
		endpoint_free(endpoint);
		return rc;
	}
	tcp_endpoint_of(endpoint->lanes)->dial = local_lane_dial;
	tcp_endpoint_of(endpoint->lanes)->copy_frame = local_copy_frame;
	tcp_endpoint_of(endpoint->lanes)->late_placed = local_late_frames_placed;
	*result = &endpoint->base;
	return 0;
}

static int local_describe(struct pl_endpoint *base, uint8_t blob[PL_FABRIC_BLOB_MAX])
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	uint8_t lanes[PL_FABRIC_BLOB_MAX];
	int length = pl_tcp_fabric.describe(endpoint->lanes, lanes);
	struct local_invitation invitation;

	local_invitation(endpoint->state, &invitation);
	local_invitation_encode(&invitation, blob);
	memcpy(blob + LOCAL_INVITATION, lanes, (size_t)length);
	return LOCAL_INVITATION + length;
}

static int local_connect(struct pl_endpoint *base, const uint8_t *blob, size_t length, struct pl_error *error)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);

	if (local_invitation_decode(blob, length, &endpoint->peer_invitation) < 0)
		return pl_fail(error, -EPROTO, "PROTOCOL", "hello", NULL, NULL,
			       "the other end's description of the local fabric is malformed");
	endpoint->lanes_length = length - LOCAL_INVITATION;
	memcpy(endpoint->lanes_blob, blob + LOCAL_INVITATION, endpoint->lanes_length);
	return local_fd_socket_connect(endpoint, error);
}

/* True if the kernel reports a peer process of the same user. Another user may have the key. */
static bool is_same_user(int fd)
{
	socklen_t length = sizeof(int);
	enum pl_refusal refusal;
	pid_t process;
	int domain;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX &&
	       local_identify_peer(fd, &process, &refusal) == 0;
}

static int local_join(struct pl_endpoint *base, struct pl_stream *stream, const uint8_t *bytes)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct pl_lane_hello hello;

	if (!is_same_user(stream->fd) || pl_lane_hello_decode(bytes, &hello) < 0) {
		pl_stream_close(stream);
		return -EPERM;
	}
	if (hello.lane == PL_LANE_FD_SOCKET)
		return local_fd_socket_join(endpoint, stream);
	return pl_tcp_fabric.join(endpoint->lanes, stream, bytes);
}

static void local_widen(struct pl_endpoint *base, unsigned lanes)
{
	pl_tcp_fabric.widen(local_endpoint_of(base)->lanes, lanes);
}

static int local_message(struct pl_endpoint *base, const struct pl_frame *frame, const void *payload,
			 struct pl_operation *operation)
{
	return pl_tcp_fabric.message(local_endpoint_of(base)->lanes, frame, payload, operation);
}

static void local_stopped(struct pl_endpoint *base)
{
	pl_tcp_fabric.stopped(local_endpoint_of(base)->lanes);
}

static bool local_send_last(struct pl_endpoint *base)
{
	return pl_tcp_fabric.send_last(local_endpoint_of(base)->lanes);
}

static void local_sweep(struct pl_endpoint *base)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);

	local_work_sweep(endpoint);
	pl_tcp_fabric.sweep(endpoint->lanes);
	/*
	 * The process of a lost peer may still run. A running copy ends before the loss is reported. A process that stopped
	 * during a copy delays the end of the keys, but not the engine.
	 */
	if (atomic_load(&base->peer->state) == PL_PEER_LOST && !endpoint->gates_shut) {
		endpoint->gates_shut = true;
		local_gates_shut(endpoint->own_gates);
		local_gates_await_holders(endpoint->own_gates, COPY_WAIT_NS);
	}
	local_owner_sweep(endpoint);
	local_serving_sweep(endpoint);
}

static bool local_drained(struct pl_endpoint *base)
{
	return pl_tcp_fabric.drained(local_endpoint_of(base)->lanes);
}

/* Opens the queues of a GPU that copies, so that the first transfer need not. */
static unsigned local_prepare(struct pl_endpoint *base, struct pl_region *region)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct pl_copier *copier =
		pl_memory_staged(&region->memory) ? pl_context_copier(endpoint->state->context, base->peer->home) : NULL;

	if (copier)
		pl_copier_prepare(copier, &region->memory);
	return 0;
}

static unsigned local_lanes(struct pl_endpoint *base)
{
	return pl_tcp_fabric.lanes(local_endpoint_of(base)->lanes);
}

static unsigned local_lanes_missing(struct pl_endpoint *base, int *status)
{
	return pl_tcp_fabric.lanes_missing(local_endpoint_of(base)->lanes, status);
}

/* Abandons the endpoint of a peer that never opened, which has no operations. */
static void local_abandon(struct pl_endpoint *base, struct pl_task *task)
{
	/* The peer's gates would begin a lane that nobody ends. */
	local_fd_socket_stop(local_endpoint_of(base));
	pl_tcp_fabric.abandon(local_endpoint_of(base)->lanes, task);
}

static void local_close(struct pl_endpoint *base)
{
	struct local_endpoint *endpoint = local_endpoint_of(base);
	struct pl_engine *home = base->peer->home;
	bool held = pl_engine_held(home);

	if (!held)
		pl_engine_lock(home);
	local_fd_socket_stop(endpoint);
	if (!held)
		pl_engine_unlock(home);
	local_work_sweep(endpoint);
	pl_tcp_fabric.close(endpoint->lanes);
	if (!held) {
		/* Waits for chunks that engines are copying. */
		pl_context_barrier(endpoint->state->context);
		pl_engine_lock(home);
	}
	local_serving_close(endpoint);
	local_fd_socket_close(endpoint);
	local_gates_shut(endpoint->own_gates);
	if (!held) {
		pl_engine_unlock(home);
		local_gates_await_holders(endpoint->own_gates, LOCAL_HOLDER_WAIT_NS);
		pl_engine_lock(home);
	}
	local_asking_close(endpoint);
	if (!held)
		pl_engine_unlock(home);
	endpoint_free(endpoint);
}

const struct pl_fabric_ops pl_local_fabric = {
	.name = "local",
	.reason = reason,
	.visible = PL_VISIBLE_GPU_VISIBLE,
	.visibility = visibility,
	.gathers_on_device = true,
	.serves = local_serves,
	.invite = local_invite,
	.suits = local_suits,
	.create = local_create,
	.describe = local_describe,
	.connect = local_connect,
	.join = local_join,
	.widen = local_widen,
	.post = local_post,
	.prepare = local_prepare,
	.message = local_message,
	.sweep = local_sweep,
	.stopped = local_stopped,
	.send_last = local_send_last,
	.drained = local_drained,
	.lanes = local_lanes,
	.lanes_missing = local_lanes_missing,
	.abandon = local_abandon,
	.close = local_close,
	.export_key = local_export_key,
	.sync_try = local_sync_try,
	.imported = local_imported,
	.map = local_map,
	.lock_mapping = local_lock_mapping,
	.close_state = local_state_close,
};
