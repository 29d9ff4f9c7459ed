/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/requests.h"

#include <stdlib.h>

#include "bench/common/numbers.h"
#include "bench/perf/progress.h"

#define LOCAL_SEED 1u
#define REMOTE_SEED 2u

/* Returns the slots 0 to count - 1 in a pseudo-random order that depends on the seed, or NULL. */
static uint32_t *shuffle_slots(uint64_t count, uint64_t seed)
{
	uint32_t *order = malloc(count * sizeof(*order));

	for (uint64_t i = 0; order && i < count; i++) {
		uint64_t other = bench_splitmix(seed += BENCH_SPLITMIX_STEP) % (i + 1);

		order[i] = order[other];
		order[other] = (uint32_t)i;
	}
	return order;
}

int bench_scatter_open(struct bench_scatter *scatter, uint64_t slots)
{
	scatter->local = shuffle_slots(slots, LOCAL_SEED);
	scatter->remote = shuffle_slots(slots, REMOTE_SEED);
	return scatter->local && scatter->remote ? 0 : -ENOMEM;
}

void bench_scatter_close(struct bench_scatter *scatter)
{
	free(scatter->local);
	free(scatter->remote);
	scatter->local = scatter->remote = NULL;
}

/* Fills the transfers of a request: a run of blocks, each at its slot of either end. */
static const struct pl_transfer *fill_blocks(struct bench_endpoint *ep, const struct bench_request *request,
					     uint32_t vector)
{
	const struct bench_scatter *scatter = &ep->pipeline.scatter;
	struct pl_remote *remote = ep->connections[request->connection].remote;
	struct pl_transfer *transfers = ep->pipeline.transfers;
	uint64_t stride = ep->layout.stride, first = request->remote / stride, base = request->peer * ep->layout.window;

	for (uint32_t i = 0; i < vector; i++)
		transfers[i] =
			(struct pl_transfer){ remote, scatter->remote[first + i] * stride, ep->local.region,
					      base + scatter->local[first + i] * stride, ep->plan.size };
	return transfers;
}

static int prepare_request(struct bench_endpoint *ep, uint32_t number)
{
	const struct bench_request *request = &ep->pipeline.requests[number];
	enum pl_kind kind = ep->plan.operation->reads ? PL_KIND_READ : PL_KIND_WRITE;
	struct pl_error error;

	if (pl_vector_prepare(ep->connections[request->connection].peer, kind,
			      fill_blocks(ep, request, ep->plan.vector), ep->plan.vector, &ep->pipeline.vectors[number],
			      &error) < 0)
		return bench_fail_with(ep, &error);
	return 0;
}

int bench_requests_prepare(struct bench_endpoint *ep)
{
	struct bench_pipeline *pipeline = &ep->pipeline;
	uint32_t total = ep->plan.depth * ep->peer_count;
	int rc = 0;

	if (!ep->plan.prepared || !bench_endpoint_initiates(ep) || pipeline->vectors)
		return 0;
	pipeline->vectors = calloc(total, sizeof(*pipeline->vectors));
	if (!pipeline->vectors)
		return bench_fail(ep, -ENOMEM, "NO-MEMORY", NULL, NULL, "no memory for %u prepared vectors", total);
	pipeline->vector_count = total;
	for (uint32_t number = 0; rc == 0 && number < total; number++)
		rc = prepare_request(ep, number);
	return rc;
}

int bench_requests_await(struct bench_endpoint *ep)
{
	uint64_t requests = ep->peer->result.operations;

	if (!ep->server || !ep->plan.operation->scattered)
		return 0;
	bench_restart_timeout(ep);
	while (ep->notified < requests) {
		int rc = bench_progress(ep);

		if (rc == 0)
			rc = bench_idle(ep, ep->timeout);
		if (rc < 0)
			return rc;
	}
	if (ep->notified > requests)
		return bench_fail_protocol(ep, "the peer sent more notifications than requests");
	return 0;
}

/* Adds the notification that the target gets once all blocks are moved. */
static const struct pl_attributes *request_attributes(struct bench_endpoint *ep, const struct bench_request *request,
						      uint64_t number)
{
	struct pl_attributes *attributes = &ep->pipeline.attributes;

	ep->peers[request->peer].requests++;
	attributes->flags |= PL_NOTIFY;
	attributes->notify = number;
	return attributes;
}

int bench_read_blocks(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number, uint32_t vector,
		      struct pl_error *error)
{
	const struct pl_attributes *attributes = request_attributes(ep, request, number);

	if (ep->pipeline.vectors)
		return pl_vector_post(ep->pipeline.vectors[number], 0, 0, attributes, NULL, error);
	return pl_readv(ep->connections[request->connection].peer, fill_blocks(ep, request, vector), vector, attributes,
			NULL, error);
}

int bench_write_blocks(struct bench_endpoint *ep, const struct bench_request *request, uint64_t number, uint32_t vector,
		       struct pl_error *error)
{
	const struct pl_attributes *attributes = request_attributes(ep, request, number);

	if (ep->pipeline.vectors)
		return pl_vector_post(ep->pipeline.vectors[number], 0, 0, attributes, NULL, error);
	return pl_writev(ep->connections[request->connection].peer, fill_blocks(ep, request, vector), vector,
			 attributes, NULL, error);
}
