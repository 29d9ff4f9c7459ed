/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Answers to READs of an end that reads as fast as this one sends, which then holds neither a close nor an engine. Both ends have
 * manual progress, so the order of events is fixed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>

#include "core/remote.h"
#include "fabric/tcp/tcp.h"
#include "support/cases.h"
#include "support/pair.h"

#define SIZE ((size_t)8 << 20)
#define CHUNK TCP_CHUNK_MAX
#define READS 8u
#define VALUE 77u

static const struct setting setting = {
	.name = "close-answers", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_MANUAL, .lanes = 1
};

static int watched = -1;     /* descriptor of the serving lane */
static bool full;            /* the socket takes nothing */
static bool hungry;          /* it takes all bytes, and drops them */
static size_t taken;         /* these bytes */
static bool notified;        /* a notification was at the end of a call's bytes */

static ssize_t take(const struct msghdr *message)
{
	const struct iovec *end = &message->msg_iov[message->msg_iovlen - 1];
	struct pl_frame last;
	size_t length = 0;

	if (full) {
		errno = EAGAIN;
		return -1;
	}
	for (size_t i = 0; i < message->msg_iovlen; i++)
		length += message->msg_iov[i].iov_len;
	if (end->iov_len >= PL_FRAME_HEADER &&
	    pl_frame_decode((uint8_t *)end->iov_base + end->iov_len - PL_FRAME_HEADER, &last) == 0)
		notified |= last.type == PL_FRAME_NOTIFY && last.offset == VALUE;
	taken += length;
	return (ssize_t)length;
}

/* Functions of the C library, replaced in this program. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	static ssize_t (*_Atomic next)(int, const struct msghdr *, int);

	if (!next)
		next = (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	return fd == watched && (full || hungry) ? take(message) : atomic_load(&next)(fd, message, flags);
}

ssize_t send(int fd, const void *bytes, size_t length, int flags)
{
	struct iovec vector = { .iov_base = (void *)bytes, .iov_len = length };
	const struct msghdr message = { .msg_iov = &vector, .msg_iovlen = 1 };

	return sendmsg(fd, &message, flags);
}

static struct tcp_lane *lane_of(const struct pl_peer *peer)
{
	return tcp_endpoint_of(peer->endpoint)->lanes[0];
}

/* Returns the lane that serves. */
static struct tcp_lane *begin(struct pair *pair)
{
	struct tcp_lane *server;

	pair_open(pair, &setting, SIZE);
	server = lane_of(pair->environment.far_peer);
	watched = server->source.fd;
	full = hungry = notified = false;
	taken = 0;
	return server;
}

static void end(struct pair *pair)
{
	watched = -1;
	pair_close(pair);
}

static struct pl_operation *start(struct pair *pair, enum pl_kind kind, size_t length)
{
	const struct pl_transfer transfer = { pair->remote, 0, pair->near.region, 0, length };
	struct pl_operation *operation;
	struct pl_error error;
	int rc = (kind == PL_KIND_READ ? pl_read : pl_write)(pair->environment.near_peer, &transfer, NULL, &operation,
							     &error);

	check_ok(rc, &error);
	return operation;
}

/* The close completes the answer that is partly sent, and sends the message behind all answers. */
static void dropped(void *unused)
{
	struct pl_operation *read;
	struct tcp_lane *server;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	server = begin(&pair);
	/* A rate keeps answers in the queue of a socket that has room. */
	pl_bucket_set_rate(&pair.environment.far_peer->bucket, PL_BUCKET_RATE_MIN, pl_now());
	read = start(&pair, PL_KIND_READ, SIZE);
	progress_until(&pair.environment, server->serving == SIZE / CHUNK);
	check_ok(pl_notify(pair.environment.far_peer, VALUE, NULL, 0, NULL, NULL, &error), &error);
	hungry = true;
	pl_peer_close(pair.environment.far_peer);
	pair.environment.far_peer = NULL;
	check(taken < 2 * CHUNK);
	check(notified);
	check(await(&pair.environment, read, NULL, &error) < 0);
	end(&pair);
}

/* The header of an answer that is dropped has told of a write. */
static void acknowledged(void *unused)
{
	struct pl_operation *write, *read;
	struct tcp_lane *server;
	struct pl_error error;
	struct pair pair;

	(void)unused;
	server = begin(&pair);
	full = true;
	write = start(&pair, PL_KIND_WRITE, 8);
	read = start(&pair, PL_KIND_READ, TCP_CHUNK_MIN);
	progress_until(&pair.environment, server->blocked && server->serving);
	check_number(server->placed_told, server->placed);
	tcp_lane_drop_answers(server);
	/* The acknowledgements replace the answer and its trailer. */
	check_number(server->queued, 2 * PL_FRAME_HEADER);
	full = false;
	complete(&pair.environment, write, NULL);
	pl_cancel(read);
	check_number(await(&pair.environment, read, NULL, &error), -ECANCELED);
	end(&pair);
}

/* A round of an engine ends although the socket would take more. */
static void bounded(void *unused)
{
	struct tcp_lane *server, *reader;
	struct pair pair;

	(void)unused;
	server = begin(&pair);
	reader = lane_of(pair.environment.near_peer);
	for (unsigned i = 0; i < READS; i++) {
		const struct pl_frame read = {
			.type = PL_FRAME_READ, .cookie = i, .key = pl_remote_key_id(pair.remote), .length = SIZE
		};

		tcp_lane_queue_piece(reader, tcp_piece_new(reader, &read));
	}
	tcp_lane_flush(reader);
	hungry = true;
	while (!taken)
		pl_poll(pair.environment.far, NULL, 0);
	check(taken < READS * SIZE);
	while (server->serving)
		pl_poll(pair.environment.far, NULL, 0);
	check(taken > READS * SIZE);
	end(&pair);
}

static const struct test_case cases[] = {
	{ "dropped", dropped, NULL, 60 },
	{ "acknowledged", acknowledged, NULL, 60 },
	{ "bounded", bounded, NULL, 60 },
};

int main(void)
{
	return cases_run("close-answers", cases, sizeof(cases) / sizeof(cases[0]));
}
