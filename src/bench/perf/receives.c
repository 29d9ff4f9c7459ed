/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/receives.h"

#include "bench/perf/progress.h"

uint32_t bench_receive_places(const struct bench_endpoint *ep)
{
	return ep->layout.turns ? (uint32_t)ep->layout.slots : ep->layout.receives;
}

/* Returns the peer of a receive.  Receives are numbered peer by peer. */
static struct bench_peer *receive_peer(const struct bench_endpoint *ep, uint32_t number)
{
	return &ep->peers[number / bench_receive_places(ep)];
}

static uint64_t receive_offset(const struct bench_endpoint *ep, uint32_t number)
{
	return bench_exposed_offset(ep, receive_peer(ep, number)) +
	       number % bench_receive_places(ep) % ep->layout.slots * ep->layout.stride;
}

/* Returns the number of the receive to post after one that took a message: with turns, that of the slot behind the last one. */
static uint32_t next_receive(const struct bench_endpoint *ep, uint32_t number)
{
	uint32_t places = bench_receive_places(ep);
	uint64_t posted = ep->layout.receives + receive_peer(ep, number)->received - 1;

	return ep->layout.turns ? number / places * places + (uint32_t)(posted % places) : number;
}

static int post_data_receive(struct bench_endpoint *ep, uint32_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t offset = receive_offset(ep, number);
	struct pl_error error;
	int rc;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_RECEIVE, number);
	rc = pl_receive(receive_peer(ep, number)->control, BENCH_MESSAGE_DATA, BENCH_MESSAGE_MASK,
			&(struct pl_buffer){ ep->exposed.region, offset, ep->plan.size }, &attributes, NULL, &error);
	if (rc < 0)
		return bench_fail_with(ep, &error);
	ep->posted_receives++;
	return 0;
}

int bench_receives_post(struct bench_endpoint *ep)
{
	int rc = 0;

	ep->received = 0;
	ep->repost = false;
	for (uint32_t i = 0; i < ep->peer_count; i++)
		ep->peers[i].received = 0;
	for (uint32_t i = 0; i < ep->peer_count; i++)
		for (uint32_t at = 0; rc == 0 && at < ep->layout.receives; at++)
			rc = post_data_receive(ep, i * bench_receive_places(ep) + at);
	return rc;
}

int bench_receives_complete(struct bench_endpoint *ep, uint32_t number, const struct pl_completion *receipt)
{
	uint64_t bytes = receipt->bytes;

	ep->posted_receives--;
	if (bytes == 0)
		return 0;
	ep->received++;
	ep->received_tag = receipt->tag;
	receive_peer(ep, number)->received++;
	if (bytes != ep->plan.size)
		return bench_fail(ep, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "a message of %llu bytes, not %llu",
				  (unsigned long long)bytes, (unsigned long long)ep->plan.size);
	if (ep->plan.touch && !ep->plan.latency)
		bench_buffer_read(ep, &ep->exposed, receive_offset(ep, number), bytes);
	if (!ep->plan.latency)
		return post_data_receive(ep, next_receive(ep, number));
	if (bench_receives_repost(ep) < 0)
		return ep->error.code;
	ep->repost_number = number;
	ep->repost = true;
	return 0;
}

int bench_receives_repost(struct bench_endpoint *ep)
{
	if (!ep->repost)
		return 0;
	ep->repost = false;
	return post_data_receive(ep, ep->repost_number);
}

int bench_receives_flush(struct bench_endpoint *ep)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;

	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_OTHER, 0);
	for (uint32_t i = 0; i < ep->layout.receives; i++)
		if (pl_send_copy(ep->peer->control, BENCH_MESSAGE_DATA, "", 0, &attributes, NULL, &error) < 0)
			return bench_fail_with(ep, &error);
	return 0;
}
