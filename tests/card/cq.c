/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues and their channels. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "card/card.h"

#define LATE_MOST (2 * CARD_MILLISECOND)
#define POLL_MOST 32
/* Time of an entry that waits for the end of card_hold_received(). */
#define HELD UINT64_MAX

/* Queue whose completions of receives are held: card_hold_received(). NULL: none. */
static struct card_cq *held;
/* Queue that other peers fill: card_crowd(). NULL: none. */
static struct {
	struct card_cq *_Atomic cq;
	unsigned before; /* completions of others to come before its own */
} crowd;

struct channel {
	struct ibv_comp_channel base;
	int events; /* write end of the pipe */
};

/* -- events ---------------------------------------------------------------------------------------- */

static void cq_report(void *argument)
{
	struct card_cq *cq = argument;
	const struct channel *channel = (const struct channel *)cq->base.channel;
	struct ibv_cq *base = &cq->base;

	if (!cq->armed)
		return;
	cq->armed = false;
	if (!channel)
		return;
	cq->unacknowledged++;
	card_counts.completion_events++;
	if (write(channel->events, &base, sizeof(base)) < 0)
		abort();
}

/* Returns true if the entry can be polled at the time. */
static bool is_due(const struct card_cq *cq, const struct card_cqe *entry, uint64_t now)
{
	return entry->at == HELD ? cq != held : entry->at <= now;
}

void standin_card_hold_received(struct ibv_cq *cq)
{
	struct card_cq *before;

	pthread_mutex_lock(&card_lock);
	before = held;
	held = (struct card_cq *)cq;
	if (before && before->last == HELD) {
		before->last = 0;
		cq_report(before);
	}
	pthread_mutex_unlock(&card_lock);
}

void standin_card_hold_requests(struct ibv_cq *cq)
{
	atomic_store(&((struct card_cq *)cq)->stalled, true);
}

/* Does the requests that card_hold_requests() holds. */
static void cq_do_held(struct card_cq *cq)
{
	if (!atomic_exchange(&cq->stalled, false))
		return;
	for (struct card_qp *qp = card_qp_next(NULL); qp; qp = card_qp_next(qp))
		if (qp->base.send_cq == &cq->base)
			card_pump(qp);
}

void standin_card_crowd(struct ibv_cq *cq, unsigned before)
{
	pthread_mutex_lock(&card_lock);
	crowd.before = before;
	atomic_store(&crowd.cq, (struct card_cq *)cq);
	pthread_mutex_unlock(&card_lock);
}

/* Fills a poll from its entry `got` on with completions that name no queue pair, up to `count`. Returns their end. */
static int poll_crowd(int got, int count, struct ibv_wc *wc)
{
	for (; got < count; got++)
		wc[got] = (struct ibv_wc){ .status = IBV_WC_SUCCESS, .opcode = IBV_WC_SEND };
	return got;
}

/* Reports an entry at the time at which it can be polled. */
static void cq_report_at(struct card_cq *cq, uint64_t at)
{
	uint64_t now = card_now();
	bool late = card_happens(CARD_CHANNEL);

	if (at == HELD)
		return;
	if (late || at > now)
		card_after((at > now ? at - now : 0) + (late ? card_random(LATE_MOST) : 0), cq_report, cq);
	else
		cq_report(cq);
}

static void cq_push(struct card_cq *cq, const struct ibv_wc *wc, uint64_t retired)
{
	struct card_cqe *entry = &cq->ring[cq->head % cq->size];

	if (cq->head - cq->tail == cq->most) {
		if (!cq->overrun)
			fprintf(stderr, "stand-in card: a completion queue of %u entries overran\n", cq->most);
		cq->overrun = true;
		card_event((struct ibv_async_event){ .element.cq = &cq->base, .event_type = IBV_EVENT_CQ_ERR });
		return;
	}
	/* Entries keep their order: each comes at the time of the last one, or later. */
	if (cq == held && !retired)
		cq->last = HELD;
	else if (card_happens(CARD_LATE)) {
		uint64_t late = card_now() + card_random(LATE_MOST);

		cq->last = late > cq->last ? late : cq->last;
	}
	*entry = (struct card_cqe){ .wc = *wc, .retired = retired, .at = cq->last };
	cq->head++;
	card_counts.completions++;
	if (cq->armed)
		cq_report_at(cq, entry->at);
}

/* A completion that names a receive of some time ago, which may have been posted again. */
static void repeat_receive(struct card_cq *cq, struct card_qp *qp, const struct ibv_wc *wc)
{
	struct ibv_wc other = *wc;

	if (qp->received_count >= CARD_RECEIVED && card_happens(CARD_STALE)) {
		other.wr_id = qp->received[card_random(CARD_RECEIVED)];
		cq_push(cq, &other, 0);
	}
	qp->received[qp->received_count++ % CARD_RECEIVED] = wc->wr_id;
}

void card_complete(struct ibv_cq *base, const struct ibv_wc *wc, uint64_t retired)
{
	struct card_cq *cq = (struct card_cq *)base;
	struct card_qp *qp = card_qp_find(wc->qp_num);
	struct ibv_wc other = *wc;

	if (card_happens(CARD_LOST))
		return;
	cq_push(cq, wc, retired);
	if (card_happens(CARD_DOUBLED))
		cq_push(cq, wc, retired);
	if (card_happens(CARD_WRONG_NUMBER)) {
		other.qp_num ^= 0x155555;
		cq_push(cq, &other, 0);
	}
	if (!qp)
		return;
	if (!retired) {
		repeat_receive(cq, qp, wc);
		return;
	}
	if (qp->last_wr_id && card_happens(CARD_STALE)) {
		other = *wc;
		other.wr_id = qp->last_wr_id;
		cq_push(cq, &other, 0);
	}
	qp->last_wr_id = wc->wr_id;
}

void card_purge(struct ibv_cq *base, uint32_t qp_num)
{
	struct card_cq *cq = (struct card_cq *)base;
	unsigned to = cq->tail;

	for (unsigned from = cq->tail; from != cq->head; from++)
		if (cq->ring[from % cq->size].wc.qp_num != qp_num)
			cq->ring[to++ % cq->size] = cq->ring[from % cq->size];
	cq->head = to;
}

int card_poll(struct ibv_cq *base, int count, struct ibv_wc *wc)
{
	struct card_cq *cq = (struct card_cq *)base;
	bool crowded = atomic_load(&crowd.cq) == cq;
	uint64_t now = 0;
	int got = 0;

	/* As with a card, whose driver reads memory: threads that poll in vain do not hinder the others. */
	if (atomic_load(&cq->head) == cq->tail && !crowded && !atomic_load(&cq->stalled))
		return 0;
	pthread_mutex_lock(&card_lock);
	cq_do_held(cq);
	if (card_happens(CARD_POLL)) {
		pthread_mutex_unlock(&card_lock);
		return -1;
	}
	if (crowded && crowd.before) {
		got = poll_crowd(0, crowd.before < (unsigned)count ? (int)crowd.before : count, wc);
		crowd.before -= (unsigned)got;
	}
	if (cq->last) {
		now = card_now();
		count = count > 1 ? 1 + (int)card_random((uint32_t)count) : count;
	}
	while (got < count && cq->head != cq->tail) {
		const struct card_cqe *entry = &cq->ring[cq->tail % cq->size];
		struct card_qp *qp = card_qp_find(entry->wc.qp_num);

		if (!is_due(cq, entry, now))
			break;
		if (qp && qp->retired < entry->retired)
			qp->retired = entry->retired;
		wc[got++] = entry->wc;
		cq->tail++;
	}
	if (crowded)
		got = poll_crowd(got, count, wc);
	/* As libmlx5 does at an entry of a queue pair that it does not know. */
	if (got && card_happens(CARD_POLL_BEHIND))
		got = -1;
	pthread_mutex_unlock(&card_lock);
	return got;
}

/* Entries that come later create an event; those that can be polled now do not. */
int card_arm(struct ibv_cq *base, int solicited_only)
{
	struct card_cq *cq = (struct card_cq *)base;
	uint64_t now;

	(void)solicited_only;
	pthread_mutex_lock(&card_lock);
	cq->armed = true;
	now = cq->last ? card_now() : 0;
	for (unsigned i = cq->tail; i != cq->head; i++) {
		if (!is_due(cq, &cq->ring[i % cq->size], now)) {
			cq_report_at(cq, cq->ring[i % cq->size].at);
			break;
		}
	}
	pthread_mutex_unlock(&card_lock);
	return 0;
}

/* -- queues ---------------------------------------------------------------------------------------- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *user, struct ibv_comp_channel *channel,
			     int vector)
{
	struct card_cq *cq = calloc(1, sizeof(*cq));
	unsigned size = 1;

	if (!cq || entries < 1 || entries > card_cqe_most() || vector < 0 || vector >= context->num_comp_vectors) {
		free(cq);
		errno = EINVAL;
		return NULL;
	}
	while (size <= (unsigned)entries)
		size *= 2;
	cq->size = size;
	cq->most = card_character()->exact ? (unsigned)entries : size - 1;
	cq->ring = calloc(size, sizeof(*cq->ring));
	cq->base = (struct ibv_cq){ .context = context, .channel = channel, .cq_context = user, .cqe = (int)cq->most };
	pthread_mutex_lock(&card_lock);
	card_counts.cqs++;
	card_counts.vectors |= 1u << vector;
	pthread_mutex_unlock(&card_lock);
	return &cq->base;
}

int ibv_destroy_cq(struct ibv_cq *base)
{
	struct card_cq *cq = (struct card_cq *)base;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	/* libibverbs waits for the acknowledgement without end. */
	if (cq->unacknowledged) {
		const struct channel *channel = (const struct channel *)base->channel;
		struct ibv_cq *unread;

		/* Unread events are dropped. */
		while (read(channel->base.fd, &unread, sizeof(unread)) == sizeof(unread))
			((struct card_cq *)unread)->unacknowledged--;
		if (cq->unacknowledged)
			abort();
	}
	card_forget(cq);
	if (held == cq)
		held = NULL;
	if (atomic_load(&crowd.cq) == cq)
		atomic_store(&crowd.cq, NULL);
	card_counts.cqs--;
	pthread_mutex_unlock(&card_lock);
	free(cq->ring);
	free(cq);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	int ends[2];

	if (!channel || pipe2(ends, O_CLOEXEC) < 0) {
		free(channel);
		return NULL;
	}
	channel->base = (struct ibv_comp_channel){ .context = context, .fd = ends[0] };
	channel->events = ends[1];
	pthread_mutex_lock(&card_lock);
	card_counts.channels++;
	pthread_mutex_unlock(&card_lock);
	return &channel->base;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *base)
{
	struct channel *channel = (struct channel *)base;

	card_await_call(__func__);
	pthread_mutex_lock(&card_lock);
	card_counts.channels--;
	pthread_mutex_unlock(&card_lock);
	close(channel->events);
	close(base->fd);
	free(channel);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	if (read(channel->fd, cq, sizeof(*cq)) != sizeof(*cq))
		return -1;
	*context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *base, unsigned count)
{
	pthread_mutex_lock(&card_lock);
	((struct card_cq *)base)->unacknowledged -= count;
	pthread_mutex_unlock(&card_lock);
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_MW_BIND_ERR] = "memory management operation error",
		[IBV_WC_BAD_RESP_ERR] = "bad response error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_REM_ABORT_ERR] = "remote aborted error",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
		[IBV_WC_GENERAL_ERR] = "general error",
	};

	return status < sizeof(words) / sizeof(words[0]) && words[status] ? words[status] : "unknown";
}
