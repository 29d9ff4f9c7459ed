/* SPDX-License-Identifier: BSD-2-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/stream_link.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/process.h"
#include "support/socket.h"

struct pl_tls *stream_tls, *stream_other_tls;

int stream_alarm(void **state)
{
	(void)state;
	alarm(200);
	ERR_clear_error();
	return 0;
}

int stream_keys_open(void **state)
{
	(void)state;
	return pl_tls_open(&pl_system_allocator, STREAM_KEY, 16, &stream_tls, NULL) |
	       pl_tls_open(&pl_system_allocator, "0123456789abcdeF", 16, &stream_other_tls, NULL);
}

int stream_keys_close(void **state)
{
	(void)state;
	pl_tls_close(stream_tls);
	pl_tls_close(stream_other_tls);
	return 0;
}

void stream_sockets(int fd[2], bool tcp, int buffer)
{
	if (tcp) {
		char address[32];
		int listener = socket_listen(address);

		if (buffer)
			setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
		fd[0] = socket_connect(address);
		fd[1] = socket_accept(listener);
		close(listener);
		assert_true(fd[0] >= 0);
	} else {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	}
	for (int i = 0; i < 2; i++) {
		if (buffer)
			setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
	}
}

void stream_link_open(struct stream_link *link, bool tcp, int buffer, struct pl_tls *client, struct pl_tls *server)
{
	int fd[2];

	stream_sockets(fd, tcp, buffer);
	assert_int_equal(pl_stream_open(&link->client, fd[0], client, false, NULL), 0);
	assert_int_equal(pl_stream_open(&link->server, fd[1], server, true, NULL), 0);
}

void stream_link_close(struct stream_link *link)
{
	pl_stream_close(&link->client);
	pl_stream_close(&link->server);
	assert_int_equal(link->client.fd, -1);
	assert_true(ERR_peek_error() == 0);
}

void stream_await(struct pl_stream *stream)
{
	struct pollfd poll_fd = { stream->fd, stream->want == EPOLLIN ? POLLIN : POLLOUT, 0 };

	assert_true(stream->want == EPOLLIN || stream->want == EPOLLOUT);
	assert_true(poll(&poll_fd, 1, (int)AMPLE_MS) > 0);
}

/* Runs one step of a handshake that is in progress. */
static void stream_handshake_step(struct pl_stream *stream, int *status, struct pl_error *error)
{
	if (*status != -EAGAIN)
		return;
	*status = pl_stream_handshake(stream, "the peer", error);
	assert_true(ERR_peek_error() == 0);
}

void stream_link_handshake(struct stream_link *link, int status[2], struct pl_error error[2])
{
	uint64_t deadline = clock_now() + AMPLE_TIME;

	status[0] = status[1] = -EAGAIN;
	while (status[0] == -EAGAIN || status[1] == -EAGAIN) {
		assert_true(clock_now() < deadline);
		stream_handshake_step(&link->client, &status[0], &error[0]);
		stream_handshake_step(&link->server, &status[1], &error[1]);
	}
}

void stream_link_open_tls(struct stream_link *link, bool tcp, int buffer)
{
	int status[2];
	struct pl_error error[2];

	stream_link_open(link, tcp, buffer, stream_tls, stream_tls);
	stream_link_handshake(link, status, error);
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
	assert_int_equal(pl_stream_handshake(&link->client, "again", NULL), 0);
}

void stream_link_open_sealed(struct stream_link *link, bool tcp, int buffer)
{
	static const uint8_t secrets[2][PL_SECRET] = { { 1 }, { 2 } };

	stream_link_open(link, tcp, buffer, NULL, NULL);
	assert_int_equal(pl_stream_seal(&link->client, &pl_system_allocator, secrets[0], secrets[1]), 0);
	assert_int_equal(pl_stream_seal(&link->server, &pl_system_allocator, secrets[1], secrets[0]), 0);
}

void stream_link_open_kind(struct stream_link *link, enum stream_kind kind, bool tcp, int buffer)
{
	if (kind == STREAM_TLS)
		stream_link_open_tls(link, tcp, buffer);
	else if (kind == STREAM_SEALED)
		stream_link_open_sealed(link, tcp, buffer);
	else
		stream_link_open(link, tcp, buffer, NULL, NULL);
}

void stream_expect_failure(struct pl_stream *stream, int code, const char *id)
{
	struct pl_error error;
	int status = -EAGAIN;

	while (stream_handshake_step(stream, &status, &error), status == -EAGAIN)
		stream_await(stream);
	assert_int_equal(status, code);
	assert_int_equal(error.code, code);
	assert_string_equal(error.id, id);
	assert_string_equal(error.object, "the peer");
	assert_true(error.message[0] && error.hint[0]);
	assert_true(strlen(error.hint) < sizeof(error.hint) - 1);
}

ssize_t stream_read_some(struct pl_stream *stream, void *data, size_t length)
{
	ssize_t got = pl_stream_read(stream, &(struct iovec){ data, length }, 1);

	assert_true(ERR_peek_error() == 0);
	return got;
}

ssize_t stream_write_some(struct pl_stream *stream, const void *data, size_t length)
{
	ssize_t sent = pl_stream_write(stream, &(struct iovec){ (void *)data, length }, 1);

	assert_true(ERR_peek_error() == 0);
	return sent;
}

ssize_t stream_read_waiting(struct pl_stream *stream, void *data, size_t length)
{
	ssize_t got;

	while ((got = stream_read_some(stream, data, length)) == -EAGAIN)
		stream_await(stream);
	return got;
}

void stream_check_broken(struct pl_stream *stream)
{
	char data[65536] = { 0 };
	ssize_t sent;

	for (int i = 0; i < 2; i++) {
		while ((sent = stream_write_some(stream, data, sizeof(data))) > 0)
			;
		assert_true(sent == -EPIPE || sent == -ECONNRESET);
	}
}
