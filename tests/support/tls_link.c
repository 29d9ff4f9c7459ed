/* SPDX-License-Identifier: BSD-2-Clause */
#include "support/tls_link.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/check.h"

#define PATIENCE_MS 60000

/* Waits for the socket as the last call asked.  Returns false after the time. */
static bool wait_link(const struct tls_link *link, int milliseconds)
{
	struct pollfd ready = { .fd = link->stream.fd, .events = link->stream.want & EPOLLOUT ? POLLOUT : POLLIN };

	return poll(&ready, 1, milliseconds) > 0;
}

bool tls_link_open(struct tls_link *link, int fd, bool server)
{
	int rc;

	check_number(pl_tls_open(&pl_system_allocator, NULL, 0, &link->tls, NULL), 0);
	check_number(pl_stream_open(&link->stream, fd, link->tls, server, NULL), 0);
	do
		rc = pl_stream_handshake(&link->stream, NULL, NULL);
	while (rc == -EAGAIN && wait_link(link, PATIENCE_MS));
	return rc == 0;
}

bool tls_link_send(struct tls_link *link, const void *data, size_t length)
{
	struct iovec vector = { .iov_base = (void *)data, .iov_len = length };

	while (vector.iov_len) {
		ssize_t sent = pl_stream_write(&link->stream, &vector, 1);

		if (sent == -EAGAIN && wait_link(link, PATIENCE_MS))
			continue;
		if (sent < 0)
			return false;
		vector.iov_base = (char *)vector.iov_base + sent;
		vector.iov_len -= (size_t)sent;
	}
	return true;
}

bool tls_link_receive(struct tls_link *link, void *data, size_t length, unsigned milliseconds)
{
	struct iovec vector = { .iov_base = data, .iov_len = length };

	while (vector.iov_len) {
		ssize_t got = pl_stream_read(&link->stream, &vector, 1);

		if (got == -EAGAIN && wait_link(link, (int)milliseconds))
			continue;
		if (got < 0)
			return false;
		vector.iov_base = (char *)vector.iov_base + got;
		vector.iov_len -= (size_t)got;
	}
	return true;
}

void tls_link_close(struct tls_link *link)
{
	pl_stream_close(&link->stream);
	pl_tls_close(link->tls);
}

/* -- the thread --------------------------------------------------------------------------------------------------- */

#define BUFFER 65536

struct pump {
	struct tls_link link;
	int socket;
	/* Bytes that wait to be sent, in each direction. */
	char out[BUFFER], in[BUFFER];
	size_t out_begin, out_end, in_begin, in_end;
};

/* Moves bytes as far as possible.  Returns false at the end of either side. */
static bool move_bytes(struct pump *pump)
{
	ssize_t moved;

	if (pump->out_begin == pump->out_end) {
		moved = recv(pump->socket, pump->out, BUFFER, MSG_DONTWAIT);
		if (moved == 0 || (moved < 0 && errno != EAGAIN))
			return false;
		pump->out_begin = 0;
		pump->out_end = moved > 0 ? (size_t)moved : 0;
	}
	if (pump->out_begin < pump->out_end) {
		moved = pl_stream_write(&pump->link.stream,
					&(struct iovec){ pump->out + pump->out_begin, pump->out_end - pump->out_begin },
					1);
		if (moved < 0 && moved != -EAGAIN)
			return false;
		pump->out_begin += moved > 0 ? (size_t)moved : 0;
	}
	if (pump->in_begin == pump->in_end) {
		moved = pl_stream_read(&pump->link.stream, &(struct iovec){ pump->in, BUFFER }, 1);
		if (moved < 0 && moved != -EAGAIN)
			return false;
		pump->in_begin = 0;
		pump->in_end = moved > 0 ? (size_t)moved : 0;
	}
	if (pump->in_begin < pump->in_end) {
		moved = send(pump->socket, pump->in + pump->in_begin, pump->in_end - pump->in_begin,
			     MSG_DONTWAIT | MSG_NOSIGNAL);
		if (moved < 0 && errno != EAGAIN)
			return false;
		pump->in_begin += moved > 0 ? (size_t)moved : 0;
	}
	return true;
}

/* Threads that were started.  They end with their sockets; the process joins them at its end. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t *pumps;
static size_t pump_count;

static void join_pumps(void)
{
	for (size_t i = 0; i < pump_count; i++)
		pthread_join(pumps[i], NULL);
	free(pumps);
}

static void start_pump(struct pump *pump, void *(*run)(void *))
{
	pthread_mutex_lock(&lock);
	if (!pumps)
		atexit(join_pumps);
	pumps = realloc(pumps, (pump_count + 1) * sizeof(*pumps));
	check(pumps);
	check_number(pthread_create(&pumps[pump_count++], NULL, run, pump), 0);
	pthread_mutex_unlock(&lock);
}

static void *run_pump(void *argument)
{
	struct pump *pump = argument;

	while (move_bytes(pump)) {
		bool sending = pump->out_begin < pump->out_end, delivering = pump->in_begin < pump->in_end;
		struct pollfd ready[] = {
			{ pump->link.stream.fd, (short)((sending ? POLLOUT : 0) | (delivering ? 0 : POLLIN)), 0 },
			{ pump->socket, (short)((delivering ? POLLOUT : 0) | (sending ? 0 : POLLIN)), 0 },
		};

		if (!pl_stream_pending(&pump->link.stream) || delivering)
			poll(ready, 2, -1);
	}
	tls_link_close(&pump->link);
	close(pump->socket);
	free(pump);
	return NULL;
}

int tls_link_socket(struct tls_link *link)
{
	struct pump *pump = calloc(1, sizeof(*pump));
	int fds[2];

	check(pump);
	check_number(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	pump->link = *link;
	pump->socket = fds[1];
	start_pump(pump, run_pump);
	return fds[0];
}
