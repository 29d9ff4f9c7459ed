/* SPDX-License-Identifier: BSD-2-Clause */
/* Lists of an endpoint from which lanes take work: what home adds to them, and which lanes it wakes. */
#include "fabric/tcp/tcp.h"

/* Bytes of gathered operations that do not wait for the end of their batch, so that lanes begin meanwhile. */
#define GATHERED_BYTES (256u << 10)

void tcp_list_small_work(struct tcp_endpoint *endpoint, struct pl_list *work)
{
	pthread_mutex_lock(&endpoint->lock);
	pl_list_append(&endpoint->small_work, work);
	atomic_store(&endpoint->any_work, true);
	atomic_store(&endpoint->any_small, true);
	pthread_mutex_unlock(&endpoint->lock);
}

/*
 * Adds operations of `total` bytes to the list of all lanes; `small`: each has at most TCP_SMALL_MAX. Unless the lanes that work will
 * soon take them, wakes as many others as there are chunks for others. A lane that waits for the other end to read may wait for long.
 */
static void tcp_list_works(struct tcp_endpoint *endpoint, struct pl_list *works, uint64_t total, uint64_t chunks,
			   bool small)
{
	unsigned lanes, hungry, working;
	uint64_t waiting;

	pthread_mutex_lock(&endpoint->lock);
	pl_list_splice(&endpoint->work, works);
	atomic_store(&endpoint->any_work, true);
	waiting = endpoint->waiting += total;
	pthread_mutex_unlock(&endpoint->lock);
	lanes = atomic_load(&endpoint->bulk_lanes) & ~atomic_load(&endpoint->blocked);
	hungry = lanes & atomic_load(&endpoint->hungry);
	working = (unsigned)__builtin_popcount(lanes & ~hungry);
	if (working && waiting <= working * (uint64_t)TCP_LANE_SOON)
		return;
	chunks = tcp_wake_lanes(endpoint, hungry, false, chunks);
	if (working && small && waiting <= working * (uint64_t)TCP_LANE_SOON_ASLEEP)
		return;
	tcp_wake_lanes(endpoint, hungry, true, chunks);
}

void tcp_list_work(struct tcp_endpoint *endpoint, struct pl_list *work, uint64_t total, uint64_t chunks)
{
	struct pl_list works;

	pl_list_init(&works);
	pl_list_append(&works, work);
	tcp_list_works(endpoint, &works, total, chunks, total <= TCP_SMALL_MAX);
}

/* -- operations of a batch ------------------------------------------------------------------------- */

static void tcp_list_gathered_works(struct tcp_endpoint *endpoint)
{
	uint64_t bytes = endpoint->gathered_bytes;
	uint64_t chunks = endpoint->gathered_chunks;

	endpoint->gathered_bytes = endpoint->gathered_chunks = 0;
	/* All may be cancelled. */
	if (!pl_list_empty(&endpoint->gathered))
		tcp_list_works(endpoint, &endpoint->gathered, bytes, chunks, true);
}

static void tcp_gathering_ended(struct pl_batch_end *end)
{
	tcp_list_gathered_works(pl_container_of(end, struct tcp_endpoint, gathering_end));
}

bool tcp_gather_work(struct tcp_endpoint *endpoint, struct pl_list *work, uint64_t total, uint64_t chunks)
{
	struct pl_engine *home = endpoint->base.peer->home;

	if (!home->batching)
		return false;
	pl_list_append(&endpoint->gathered, work);
	endpoint->gathered_bytes += total;
	endpoint->gathered_chunks += chunks;
	if (pl_list_empty(&endpoint->gathering_end.link))
		pl_list_append(&home->batch_ends, &endpoint->gathering_end.link);
	if (endpoint->gathered_bytes >= GATHERED_BYTES)
		tcp_list_gathered_works(endpoint);
	return true;
}

void tcp_init_gathered(struct tcp_endpoint *endpoint)
{
	pl_list_init(&endpoint->gathered);
	pl_list_init(&endpoint->gathering_end.link);
	endpoint->gathering_end.run = tcp_gathering_ended;
}
