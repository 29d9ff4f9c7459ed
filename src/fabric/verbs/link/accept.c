/* SPDX-License-Identifier: BSD-2-Clause */
/* Rails of an acceptor: connection requests move from the listener's engine to the peer's. */
#include "core/lane_auth.h"
#include "fabric/verbs/verbs.h"

/* A connection request. */
struct verbs_join {
	struct rdma_cm_id *id;
	struct pl_rail_hello hello;
	uint8_t request[PL_RAIL_HELLO];
	uint8_t reads; /* reads that the initiator wants to have under way */
};

static void reject_join(const struct verbs_library *library, struct rdma_cm_id *id)
{
	library->rdma_reject(id, NULL, 0);
	library->rdma_destroy_id(id);
}

static void join_free(struct verbs_rail *rail, struct verbs_join *join)
{
	if (!join)
		return;
	reject_join(verbs_library_of(rail), join->id);
	pl_free(&rail->endpoint->state->context->allocator, join);
}

void verbs_requested(struct verbs_cm *cm, struct rdma_cm_id *id, const uint8_t *bytes, uint8_t length, uint8_t reads)
{
	struct pl_context *context = cm->state->context;
	struct verbs_join *join = NULL;
	struct pl_peer *peer = NULL;
	struct pl_rail_hello hello;

	if (pl_rail_hello_decode(bytes, length, &hello) == 0)
		peer = pl_peer_by_index(context, hello.lane.peer_index);
	if (peer && peer->ops == &pl_verbs_fabric && hello.lane.version == PL_PROTOCOL_VERSION &&
	    pl_lane_auth_signed(peer, PL_LABEL_RAIL, bytes, PL_RAIL_HELLO))
		join = pl_zalloc(&context->allocator, sizeof(*join));
	if (join) {
		struct verbs_endpoint *endpoint = verbs_endpoint_of(peer->endpoint);
		struct verbs_rail *rail = &endpoint->rails[hello.index];

		*join = (struct verbs_join){ .id = id, .hello = hello, .reads = reads };
		memcpy(join->request, bytes, sizeof(join->request));
		id->context = rail;
		if (endpoint->cm == cm || !cm->state->library->rdma_migrate_id(id, endpoint->cm->channel)) {
			join_free(rail, atomic_exchange(&rail->joining, join));
			pl_engine_post(peer->home, &rail->join_task);
			id = NULL;
		} else {
			pl_free(&context->allocator, join);
		}
	}
	if (peer)
		pl_peer_unpin(peer);
	if (id)
		reject_join(cm->state->library, id);
}

/* Signs the answer to a request. Returns 0 or -EIO. */
static int make_welcome(const struct verbs_rail *rail, const struct verbs_join *join, uint8_t bytes[PL_RAIL_WELCOME])
{
	struct pl_rail_welcome welcome = { .renewals = rail->renewals };
	int rc = pl_lane_auth_answer(rail->endpoint->base.peer, join->request, sizeof(join->request), welcome.renewals,
				     welcome.tag);

	pl_rail_welcome_encode(&welcome, bytes);
	return rc;
}

void verbs_accept_joined(struct verbs_rail *rail)
{
	struct verbs_join *join = rail->joined;
	uint8_t wanted = join->reads, bytes[PL_RAIL_WELCOME];
	struct rdma_conn_param parameters = { .rnr_retry_count = VERBS_RECEIVER_RETRIES,
					      .private_data = bytes,
					      .private_data_len = sizeof(bytes) };
	const char *call = "rdma_accept";
	int rc;

	rail->joined = NULL;
	if (verbs_finished(rail->endpoint)) {
		join_free(rail, join);
		return;
	}
	rail->id = join->id;
	rail->generation = join->hello.lane.lane;
	rail->far_told = join->hello.renewals;
	rail->link = VERBS_CONNECTING;
	rc = verbs_qp_make(rail, &call);
	/* Afterwards, as a queue pair on another device counts as a renewal. */
	if (rc == 0)
		rc = make_welcome(rail, join, bytes);
	pl_free(&rail->endpoint->state->context->allocator, join);
	if (rc < 0) {
		verbs_library_of(rail)->rdma_reject(rail->id, NULL, 0);
		verbs_connect_failed(rail, rc, call);
		return;
	}
	parameters.responder_resources = parameters.initiator_depth = PL_MIN(verbs_qp_reads(rail->device), wanted);
	if (verbs_library_of(rail)->rdma_accept(rail->id, &parameters))
		verbs_connect_failed(rail, -errno, "rdma_accept");
}

/* The first request describes all rails; later ones must agree. -EPROTO */
static int read_join_rails(struct verbs_endpoint *endpoint, const struct pl_rail_hello *hello)
{
	if (endpoint->rail_count && hello->count != endpoint->rail_count)
		return -EPROTO;
	for (unsigned i = 0; i < hello->count; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];

		if (hello->addresses[i] >= endpoint->local_addr_count ||
		    (endpoint->rail_count && rail->address_index != hello->addresses[i]))
			return -EPROTO;
	}
	pthread_mutex_lock(&endpoint->state->lock);
	for (unsigned i = 0; i < hello->count && !endpoint->rail_count; i++) {
		endpoint->rails[i].address_index = hello->addresses[i];
		endpoint->rails[i].device = endpoint->local_addrs[hello->addresses[i]]->device;
	}
	pthread_mutex_unlock(&endpoint->state->lock);
	endpoint->rail_count = hello->count;
	return 0;
}

void verbs_join_run(struct pl_task *task)
{
	struct verbs_rail *rail = pl_container_of(task, struct verbs_rail, join_task);
	struct verbs_join *join = atomic_exchange(&rail->joining, NULL);
	uint16_t latest = rail->joined ? rail->joined->hello.lane.lane : rail->generation;

	if (!join)
		return;
	/* The initiator gave this attempt up and started the next. Numbers wrap around. */
	if (verbs_finished(rail->endpoint) || (int16_t)(join->hello.lane.lane - latest) <= 0 ||
	    read_join_rails(rail->endpoint, &join->hello) < 0) {
		join_free(rail, join);
		return;
	}
	join_free(rail, rail->joined);
	rail->joined = join;
	if (rail->link == VERBS_CONNECTING) {
		verbs_take_rest(rail);
		verbs_qp_drop(rail);
		rail->link = VERBS_DOWN;
		verbs_fence_quiet(rail);
	}
	if (rail->link == VERBS_DOWN)
		verbs_accept_joined(rail);
	else
		verbs_fail(rail, "the other end connects again");
}

void verbs_joins_drop(struct verbs_rail *rail)
{
	join_free(rail, atomic_exchange(&rail->joining, NULL));
	join_free(rail, rail->joined);
	rail->joined = NULL;
}
