/* SPDX-License-Identifier: BSD-2-Clause */
/* Requests that wait for an answer. A cookie holds the request's index and generation. */
#include "fabric/tcp/finish.h"
#include "fabric/tcp/landing.h"
#include "fabric/tcp/operation_done.h"
#include "fabric/tcp/read_ahead.h"

static uint32_t request_cookie(const struct tcp_lane *lane, const struct tcp_request *request)
{
	return (uint32_t)request->generation << 16 | (uint32_t)(request - lane->requests);
}

struct tcp_request *tcp_request_new(struct tcp_lane *lane, uint32_t *cookie)
{
	if (!lane->requests) {
		lane->requests = pl_zalloc(lane->engine->allocator, TCP_REQUESTS_MAX * sizeof(*lane->requests));
		if (!lane->requests)
			return NULL;
	}
	for (unsigned i = 0; lane->request_count < TCP_REQUESTS_MAX && i < TCP_REQUESTS_MAX; i++) {
		/* Answers come in order, so the index after the last one is usually free. */
		unsigned index = (lane->next_request + i) % TCP_REQUESTS_MAX;
		struct tcp_request *request = &lane->requests[index];

		if (request->used)
			continue;
		lane->next_request = index + 1;
		lane->request_count++;
		*request = (struct tcp_request){ .used = true, .generation = (uint16_t)(request->generation + 1) };
		*cookie = request_cookie(lane, request);
		return request;
	}
	return NULL;
}

struct tcp_request *tcp_request_find(struct tcp_lane *lane, uint32_t cookie)
{
	unsigned index = cookie & 0xffff;
	struct tcp_request *request;

	if (!lane->requests || index >= TCP_REQUESTS_MAX)
		return NULL;
	request = &lane->requests[index];
	return request->used && request->generation == cookie >> 16 ? request : NULL;
}

void tcp_request_take_value(const struct tcp_request *request, uint64_t value)
{
	uint64_t *kept, seen;

	if (!request->operation)
		return;
	kept = &request->operation->completion.value;
	if (request->atomic)
		*kept = value;
	if (!request->trailing)
		return;
	/* Chunks of an operation arrive over several lanes, whose engines run at the same time. */
	seen = __atomic_load_n(kept, __ATOMIC_RELAXED);
	while (seen < value &&
	       !__atomic_compare_exchange_n(kept, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

void tcp_request_complete(struct tcp_lane *lane, struct tcp_request *request)
{
	struct pl_operation *operation = request->operation;

	tcp_request_leave_joint(lane, request, false);
	if (request->late)
		tcp_late_frame_placed(lane->endpoint);
	request->used = false;
	request->operation = NULL;
	lane->request_count--;
	lane->requests_sent--;
	lane->answered++;
	tcp_lane_count_requested(lane, -(int64_t)request->length);
	if (tcp_lane_times_requests(lane))
		tcp_flight_remove(&lane->flight, 0, request_cookie(lane, request), lane->engine);
	if (operation && request->fetch)
		tcp_lane_end_fetch(lane, operation);
	else if (operation)
		tcp_lane_operation_done(lane, operation);
}

void tcp_lane_sweep_requests(struct tcp_lane *lane, bool all)
{
	/* From the oldest on: requests take the indexes in turn. */
	for (unsigned i = 0; lane->requests && i < TCP_REQUESTS_MAX; i++) {
		struct tcp_request *request = &lane->requests[(lane->next_request + i) % TCP_REQUESTS_MAX];
		struct pl_operation *operation = request->operation;

		if (!request->used || !operation || !(all || atomic_load(&operation->canceled)))
			continue;
		tcp_request_leave_joint(lane, request, false);
		/* Keeps the request used, without an operation: the answer may still come. */
		request->operation = NULL;
		request->destination = NULL;
		if (request->atomic) {
			request->late = true;
			atomic_fetch_add(&lane->endpoint->late, 1);
		}
		pl_operation_pending_done(operation);
	}
}
