/* SPDX-License-Identifier: BSD-2-Clause */
/* Further lanes that cannot be opened: the peer goes on with the lanes that it has, and its initiator tries again. */
#include "fabric/tcp/tcp.h"

/* Pauses before attempts: each is twice the one before. */
#define PAUSE_FIRST (250 * PL_NS_PER_MS)
#define PAUSE_MAX (30 * PL_NS_PER_S)
/* Pause before another attempt of the first lane, until the time of the connect is over. */
#define PAUSE_OPENING (10 * PL_NS_PER_MS)

const char *tcp_lane_loss_reason(int code)
{
	switch (code) {
	case -EPIPE:
		return "the other end closed the socket";
	case -ECONNRESET:
		return "the connection was reset";
	case -ECONNREFUSED:
		return "no process listens at the other end's address";
	case -ETIMEDOUT:
		return "the other end did not answer or read in time";
	case -EPROTO:
	case -EMSGSIZE:
		return "the other end broke the protocol, or refused the socket";
	case -EUSERS:
		return "the other end has many peers, and takes no more lanes of this one: set lanes there "
		       "(pl_open(3))";
	case -EACCES:
		return "the other end did not prove the secret of the connection";
	case -ENOMEM:
		return "this end had no memory for the lane";
	case -EADDRNOTAVAIL:
		return "this host has no free port for a connection to the other end: widen "
		       "net.ipv4.ip_local_port_range";
	case -ENOSPC:
		return "this user has no free watch of epoll(7): raise fs.epoll.max_user_watches";
	case -EMFILE:
		return "this process has no free file descriptor: raise ulimit -n, or LimitNOFILE= of its unit";
	case -ENFILE:
		return "this host has no free file descriptor: raise fs.file-max";
	default:
		return "the socket failed";
	}
}

static void lane_retry(struct pl_timer *timer)
{
	struct tcp_lane *lane = pl_container_of(timer, struct tcp_lane, retry);

	if (lane->state == TCP_LANE_CONNECTING) {
		tcp_lane_dial(lane);
		return;
	}
	if (atomic_load(&lane->endpoint->base.peer->state) != PL_PEER_UP)
		return;
	atomic_fetch_add(&lane->endpoint->lanes_open, 1);
	tcp_lane_dial(lane);
}

void tcp_lane_init_retry(struct tcp_lane *lane)
{
	pl_timer_init(&lane->retry, lane_retry);
}

void tcp_lane_dial_again(struct tcp_lane *lane)
{
	pl_timer_set(lane->engine, &lane->retry, pl_now() + PAUSE_OPENING);
}

void tcp_lane_retry_later(struct tcp_lane *lane)
{
	/* Closes the socket now: an end may be out of descriptors, and the other end learns of the failure. */
	pl_stream_close(&lane->stream);
	lane->stream = (struct pl_stream){ .fd = -1 };
	lane->source.fd = -1;
	lane->head_have = 0;
	pl_free(&lane->endpoint->context->allocator, lane->auth);
	lane->auth = NULL;
	if (!lane->endpoint->base.peer->initiator) {
		pthread_mutex_lock(&lane->endpoint->lock);
		lane->vacant = true;
		pthread_mutex_unlock(&lane->endpoint->lock);
		return;
	}
	if (atomic_load(&lane->failure) == -EUSERS) {
		atomic_store(&lane->missing, 0);
		return;
	}
	atomic_store(&lane->missing, atomic_load(&lane->failure));
	lane->retry_pause = PL_MIN(PL_MAX(2 * lane->retry_pause, PAUSE_FIRST), PAUSE_MAX);
	pl_timer_set(lane->engine, &lane->retry, pl_now() + lane->retry_pause);
}

unsigned tcp_lanes_missing(struct pl_endpoint *base, int *status)
{
	struct tcp_endpoint *endpoint = tcp_endpoint_of(base);
	unsigned missing = 0;

	*status = 0;
	pthread_mutex_lock(&endpoint->lock);
	for (unsigned i = 1; i < TCP_SOCKETS_MAX; i++) {
		int failure = endpoint->lanes[i] ? atomic_load(&endpoint->lanes[i]->missing) : 0;

		if (!failure)
			continue;
		*status = failure;
		missing++;
	}
	pthread_mutex_unlock(&endpoint->lock);
	return missing;
}
