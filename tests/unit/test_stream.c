/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte stream: in the clear, and over TLS with a pre-shared key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/stream.h"
#include "support/process.h"
#include "support/socket.h"

#define KEY "0123456789abcdef"
#define RECORD_OVERHEAD 22 /* header, type and tag */

/* Both ends of a connection, each with the TLS context of a key. */
struct link {
	struct pl_stream client, server;
};

static struct pl_tls *tls, *other_tls; /* equal settings of two keys, made once for all tests */

/* Sets an alarm: a wait without end kills the program, which fails the test. */
static int arm_alarm(void **state)
{
	(void)state;
	alarm(120);
	ERR_clear_error();
	return 0;
}

static int open_settings(void **state)
{
	(void)state;
	return pl_tls_open(&pl_system_allocator, KEY, 16, &tls, NULL) |
	       pl_tls_open(&pl_system_allocator, "0123456789abcdeF", 16, &other_tls, NULL);
}

static int close_settings(void **state)
{
	(void)state;
	pl_tls_close(tls);
	pl_tls_close(other_tls);
	return 0;
}

static void make_sockets(int fd[2], bool tcp, int buffer)
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

static void open_link(struct link *link, bool tcp, int buffer, struct pl_tls *client, struct pl_tls *server)
{
	int fd[2];

	make_sockets(fd, tcp, buffer);
	assert_int_equal(pl_stream_open(&link->client, fd[0], client, false, NULL), 0);
	assert_int_equal(pl_stream_open(&link->server, fd[1], server, true, NULL), 0);
}

static void close_link(struct link *link)
{
	pl_stream_close(&link->client);
	pl_stream_close(&link->server);
	assert_int_equal(link->client.fd, -1);
	assert_true(ERR_peek_error() == 0);
}

static void wait_for_stream(struct pl_stream *stream)
{
	struct pollfd poll_fd = { stream->fd, stream->want == EPOLLIN ? POLLIN : POLLOUT, 0 };

	assert_true(stream->want == EPOLLIN || stream->want == EPOLLOUT);
	assert_true(poll(&poll_fd, 1, 10000) > 0);
}

/* Runs one step of a handshake that is in progress. */
static void handshake_step(struct pl_stream *stream, int *status, struct pl_error *error)
{
	if (*status != -EAGAIN)
		return;
	*status = pl_stream_handshake(stream, "the peer", error);
	assert_true(ERR_peek_error() == 0);
}

static void complete_handshake(struct link *link, int status[2], struct pl_error error[2])
{
	uint64_t deadline = clock_now() + 10 * SECOND;

	status[0] = status[1] = -EAGAIN;
	while (status[0] == -EAGAIN || status[1] == -EAGAIN) {
		assert_true(clock_now() < deadline);
		handshake_step(&link->client, &status[0], &error[0]);
		handshake_step(&link->server, &status[1], &error[1]);
	}
}

static void open_tls_link(struct link *link, bool tcp, int buffer)
{
	int status[2];
	struct pl_error error[2];

	open_link(link, tcp, buffer, tls, tls);
	complete_handshake(link, status, error);
	assert_int_equal(status[0], 0);
	assert_int_equal(status[1], 0);
	assert_int_equal(pl_stream_handshake(&link->client, "again", NULL), 0);
}

/* Continues the handshake at one end until it fails, and checks the failure. */
static void expect_failure(struct pl_stream *stream, int code, const char *id)
{
	struct pl_error error;
	int status = -EAGAIN;

	while (handshake_step(stream, &status, &error), status == -EAGAIN)
		wait_for_stream(stream);
	assert_int_equal(status, code);
	assert_int_equal(error.code, code);
	assert_string_equal(error.id, id);
	assert_string_equal(error.object, "the peer");
	assert_true(error.message[0] && error.hint[0]);
	assert_true(strlen(error.hint) < sizeof(error.hint) - 1);
}

static ssize_t read_some(struct pl_stream *stream, void *data, size_t length)
{
	ssize_t got = pl_stream_read(stream, &(struct iovec){ data, length }, 1);

	assert_true(ERR_peek_error() == 0);
	return got;
}

static ssize_t write_some(struct pl_stream *stream, const void *data, size_t length)
{
	ssize_t sent = pl_stream_write(stream, &(struct iovec){ (void *)data, length }, 1);

	assert_true(ERR_peek_error() == 0);
	return sent;
}

static ssize_t read_waiting(struct pl_stream *stream, void *data, size_t length)
{
	ssize_t got;

	while ((got = read_some(stream, data, length)) == -EAGAIN)
		wait_for_stream(stream);
	return got;
}

static void check_round_trip(struct link *link)
{
	char first[3], second[16], big[65536] = { 0 };
	const struct iovec out[] = { { "", 0 }, { "hel", 3 }, { "", 0 }, { "lo, world", 9 }, { NULL, 0 } };
	const struct iovec in[] = { { NULL, 0 }, { first, 3 }, { NULL, 0 }, { second, sizeof(second) } };

	assert_int_equal(read_some(&link->server, second, 1), -EAGAIN);
	assert_int_equal(link->server.want, EPOLLIN);
	assert_int_equal(pl_stream_write(&link->client, out, 5), 12);
	wait_for_stream(&link->server);
	assert_int_equal(pl_stream_read(&link->server, in, 4), 12);
	assert_memory_equal(first, "hel", 3);
	assert_memory_equal(second, "lo, world", 9);
	assert_int_equal(pl_stream_write(&link->client, out, 1), 0);
	assert_int_equal(pl_stream_read(&link->client, in, 1), 0);
	while (write_some(&link->server, big, sizeof(big)) != -EAGAIN)
		;
	assert_int_equal(link->server.want, EPOLLOUT);
}

/* Checks that writes to a closed connection fail before they fill the socket's buffer, without SIGPIPE. */
static void check_broken(struct pl_stream *stream)
{
	char data[65536] = { 0 };
	ssize_t sent;

	for (int i = 0; i < 2; i++) {
		while ((sent = write_some(stream, data, sizeof(data))) > 0)
			;
		assert_true(sent == -EPIPE || sent == -ECONNRESET);
	}
}

static void test_plain(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct link link;
		char byte;

		open_link(&link, tcp, 0, NULL, NULL);
		assert_int_equal(pl_stream_handshake(&link.client, "x", NULL), 0);
		check_round_trip(&link);
		assert_false(pl_stream_pending(&link.client));
		close_link(&link);
		pl_stream_close(&link.client);

		open_link(&link, tcp, 0, NULL, NULL);
		pl_stream_close(&link.server);
		assert_int_equal(read_waiting(&link.client, &byte, 1), -EPIPE);
		check_broken(&link.client);
		close_link(&link);
	}
}

/* Writes more elements than the kernel takes in one call. */
static void test_many_elements(void **state)
{
	static struct iovec vector[3000];
	static char out[3000], in[3000];

	(void)state;
	for (int i = 0; i < 3000; i++)
		vector[i] = (struct iovec){ &out[i], i % 3 == 2 };
	for (int secure = 0; secure < 2; secure++) {
		struct link link;

		if (secure)
			open_tls_link(&link, false, 0);
		else
			open_link(&link, false, 0, NULL, NULL);
		assert_true(pl_stream_write(&link.client, vector, 3000) > 300);
		assert_true(read_some(&link.server, in, sizeof(in)) > 300);
		close_link(&link);
	}
}

static void test_key_lengths(void **state)
{
	static const uint8_t golden[32] = { 0x47, 0xe3, 0x34, 0x3d, 0xe8, 0xf3, 0x11, 0xef, 0x01, 0x2f, 0x3b,
					    0xc0, 0x66, 0xbf, 0xaf, 0xa2, 0x68, 0xd4, 0x6a, 0xa8, 0x95, 0x83,
					    0xd4, 0xef, 0x23, 0x5b, 0xf2, 0xa2, 0x76, 0xba, 0xba, 0xcb };
	static const size_t good[] = { 16, 17, 1024 }, bad[] = { 0, 15, 1025 };
	char key[1025] = { 1 };
	uint8_t derived[32];

	(void)state;
	assert_int_equal(pl_tls_derive_key(KEY, 16, derived), 0);
	assert_memory_equal(derived, golden, sizeof(golden));
	for (int i = 0; i < 3; i++) {
		struct pl_tls *made;
		struct pl_error error;

		assert_int_equal(pl_tls_open(&pl_system_allocator, key, good[i], &made, &error), 0);
		pl_tls_close(made);
		assert_int_equal(pl_tls_open(&pl_system_allocator, key, bad[i], &made, &error), -EINVAL);
		assert_string_equal(error.id, "OPTION");
		assert_null(made);
		pl_tls_close(made);
	}
}

static void *allocate_until(size_t size, void *user)
{
	int *left = user;

	return (*left)-- > 0 ? malloc(size) : NULL;
}

static void release_memory(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

static void test_no_memory(void **state)
{
	int left = 0, fd[2];
	const struct pl_allocator allocator = { .allocate = allocate_until, .release = release_memory, .user = &left };
	struct pl_stream stream;
	struct pl_tls *made;
	struct pl_error error;

	(void)state;
	assert_int_equal(pl_tls_open(&allocator, KEY, 16, &made, &error), -ENOMEM);
	left = 1;
	assert_int_equal(pl_tls_open(&allocator, KEY, 16, &made, &error), 0);
	make_sockets(fd, false, 0);
	assert_int_equal(pl_stream_open(&stream, fd[0], made, false, &error), -ENOMEM);
	assert_int_equal(error.code, -ENOMEM);
	assert_int_equal(stream.fd, -1);
	assert_int_equal(fcntl(fd[0], F_GETFD), -1);
	pl_stream_close(&stream);
	close(fd[1]);
	pl_tls_close(made);
}

static void test_tls(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct link link;
		char byte;

		open_tls_link(&link, tcp, 0);
		check_round_trip(&link);
		close_link(&link);

		open_tls_link(&link, tcp, 0);
		assert_int_equal(write_some(&link.server, "x", 1), 1);
		pl_stream_close(&link.server);
		assert_int_equal(read_waiting(&link.client, &byte, 1), 1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(read_waiting(&link.client, &byte, 1), -EPIPE);
		check_broken(&link.client);
		close_link(&link);
	}
}

static void test_key_mismatch(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct link link;
		int status[2];
		struct pl_error error[2];

		open_link(&link, tcp, 0, tls, other_tls);
		complete_handshake(&link, status, error);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(status[i], -EACCES);
			assert_string_equal(error[i].id, "AUTH-KEY-MISMATCH");
		}
		close_link(&link);

		/* The server closes the connection as soon as the handshake fails, as servers do. */
		open_link(&link, tcp, 0, tls, other_tls);
		assert_int_equal(pl_stream_handshake(&link.client, "x", NULL), -EAGAIN);
		expect_failure(&link.server, -EACCES, "AUTH-KEY-MISMATCH");
		pl_stream_close(&link.server);
		expect_failure(&link.client, -EACCES, "AUTH-KEY-MISMATCH");
		close_link(&link);
	}
}

/* Opens a TLS stream whose other end is a bare socket. */
static int open_half(struct pl_stream *stream, bool tcp, bool server)
{
	int fd[2];

	make_sockets(fd, tcp, 0);
	assert_int_equal(pl_stream_open(stream, fd[0], tls, server, NULL), 0);
	return fd[1];
}

static void test_not_tls(void **state)
{
	static const struct {
		const char *bytes;
		size_t length;
	} foreign[] = { { "PEERLANE\0\0\1", 11 },
			{ "GET / HTTP/1.0\r\n\r\n", 18 },
			{ "x", 1 },
			{ "\0", 1 },
			{ "\x16\x02\x01\0\1\1", 6 },
			{ "\x80\x2e\1\0\2", 5 },
			{ "\x17\3\3\0\1\1", 6 } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(foreign) * 4; i++) {
		struct pl_stream stream;
		int fd = open_half(&stream, i & 1, i & 2);

		assert_true(socket_send(fd, foreign[i / 4].bytes, foreign[i / 4].length));
		expect_failure(&stream, -EPROTO, "AUTH-NO-TLS");
		expect_failure(&stream, -EPROTO, "AUTH-NO-TLS");
		close(fd);
		pl_stream_close(&stream);
	}
}

/* Sends bytes that begin like TLS and continue with garbage. */
static void test_garbage_in_tls(void **state)
{
	static const char garbage[] = "\x16\3\1\0\x20"
				      "01234567890123456789012345678901";

	(void)state;
	for (int server = 0; server < 2; server++) {
		struct pl_stream stream;
		int fd = open_half(&stream, true, server);

		assert_true(socket_send(fd, garbage, sizeof(garbage) - 1));
		expect_failure(&stream, -EPROTO, "TLS-FAILED");
		close(fd);
		pl_stream_close(&stream);
	}
}

/* Cuts or changes the first flight of a client at every byte, then ends the connection. */
static void test_damaged_handshake(void **state)
{
	uint8_t hello[2048];
	ssize_t length;
	struct pl_stream stream;
	int fd = open_half(&stream, false, false);

	(void)state;
	assert_int_equal(pl_stream_handshake(&stream, "x", NULL), -EAGAIN);
	assert_int_equal(stream.want, EPOLLIN);
	length = recv(fd, hello, sizeof(hello), MSG_DONTWAIT);
	assert_true(length > 100 && length < (ssize_t)sizeof(hello));
	close(fd);
	expect_failure(&stream, -ECONNRESET, "PEER-LOST");
	pl_stream_close(&stream);

	for (ssize_t cut = 0; cut < 2 * length; cut++) {
		struct pl_error error;
		int status;

		fd = open_half(&stream, false, true);
		if (cut < length) {
			assert_true(socket_send(fd, hello, (size_t)cut));
			close(fd);
			expect_failure(&stream, -ECONNRESET, "PEER-LOST");
		} else {
			hello[cut - length] ^= 0x10;
			assert_true(socket_send(fd, hello, (size_t)length));
			hello[cut - length] ^= 0x10;
			status = pl_stream_handshake(&stream, "x", &error);
			close(fd);
			if (status == -EAGAIN)
				status = pl_stream_handshake(&stream, "x", &error);
			assert_true(status == -EACCES || status == -EPROTO || status == -ECONNRESET);
			assert_true(ERR_peek_error() == 0);
		}
		pl_stream_close(&stream);
	}
}

/* Returns byte number n of the content of each transfer. */
static uint8_t content(size_t n)
{
	return (uint8_t)((n * 2654435761u) >> 13 ^ n);
}

/* Splits `length` bytes at random into at most 8 elements.  Returns their number. */
static int split_elements(struct iovec vector[8], uint8_t *data, size_t length)
{
	int count = 0;

	while (count < 7 && length) {
		size_t part = rand() & 1 ? (size_t)rand() % 64 : (size_t)rand() % (length + 1);

		part = PL_MIN(part, length);
		vector[count++] = (struct iovec){ data, part };
		data += part;
		length -= part;
	}
	vector[count++] = (struct iovec){ data, length };
	return count;
}

#define TRANSFER (8u << 20)

/*
 * Offers bytes to the stream.  A repeated offer holds at least the bytes that one record takes.  Each offer has another
 * address and other elements.
 */
static size_t send_some(struct pl_stream *stream, size_t done, size_t *offered)
{
	static uint8_t buffers[2][100000], turn;
	struct iovec vector[8];
	size_t limit = PL_MIN(TRANSFER - done, sizeof(buffers[0]));
	size_t more = (size_t)rand() % (rand() & 1 ? limit + 1 : PL_MIN(limit + 1, 9000));
	size_t again = PL_MIN(*offered - done, 16384u);
	size_t length = PL_MAX(again, more);
	uint8_t *buffer = buffers[turn ^= 1];
	ssize_t sent;

	memset(buffers, 0xee, sizeof(buffers));
	for (size_t i = 0; i < length; i++)
		buffer[i] = content(done + i);
	*offered = done + length;
	sent = pl_stream_write(stream, vector, split_elements(vector, buffer, length));
	assert_true(ERR_peek_error() == 0);
	if (sent == -EAGAIN) {
		assert_int_equal(stream->want, EPOLLOUT);
		return 0;
	}
	assert_true(sent >= 0 && (size_t)sent <= length);
	return (size_t)sent;
}

static size_t receive_some(struct pl_stream *stream, size_t done)
{
	static uint8_t buffer[70000];
	struct iovec vector[8];
	ssize_t got = pl_stream_read(stream, vector, split_elements(vector, buffer, (size_t)rand() % sizeof(buffer)));

	assert_true(ERR_peek_error() == 0);
	if (got == -EAGAIN) {
		assert_int_equal(stream->want, EPOLLIN);
		return 0;
	}
	assert_true(got >= 0);
	for (ssize_t i = 0; i < got; i++)
		assert_int_equal(buffer[i], content(done + (size_t)i));
	return (size_t)got;
}

static void test_transfer(void **state)
{
	(void)state;
	srand(1);
	for (int kind = 0; kind < 4; kind++) {
		uint64_t deadline = clock_now() + 60 * SECOND;
		size_t sent = 0, received = 0, offered = 0;
		struct link link;

		if (kind & 1)
			open_tls_link(&link, kind & 2, 5000);
		else
			open_link(&link, kind & 2, 5000, NULL, NULL);
		while (received < TRANSFER) {
			assert_true(clock_now() < deadline);
			if (sent < TRANSFER)
				sent += send_some(&link.server, sent, &offered);
			received += receive_some(&link.client, received);
		}
		assert_int_equal(sent, received);
		close_link(&link);
	}
}

/* Checks that a header and its payload share one record, with all following bytes that fit. */
static void test_coalescing(void **state)
{
	static char data[40000];
	const struct iovec two[] = { { data, 32 }, { data, 1000 } };
	const struct iovec many[] = { { data, 1 }, { data, 16384 }, { data, 16384 }, { data, 0 }, { data, 2 } };
	struct link link;
	int bytes;

	(void)state;
	open_tls_link(&link, false, 0);
	assert_int_equal(pl_stream_write(&link.client, two, 2), 1032);
	assert_int_equal(ioctl(link.server.fd, FIONREAD, &bytes), 0);
	assert_int_equal(bytes, 1032 + RECORD_OVERHEAD);
	assert_int_equal(read_some(&link.server, data, sizeof(data)), 1032);
	assert_int_equal(pl_stream_write(&link.client, many, 5), 32771);
	assert_int_equal(ioctl(link.server.fd, FIONREAD, &bytes), 0);
	assert_int_equal(bytes, 32771 + 3 * RECORD_OVERHEAD);
	assert_int_equal(read_some(&link.server, data, sizeof(data)), 32771);
	close_link(&link);
}

static void test_pending(void **state)
{
	char data[100] = { 0 }, half[60];
	struct link link;

	(void)state;
	open_tls_link(&link, false, 0);
	assert_int_equal(write_some(&link.client, data, 100), 100);
	assert_false(pl_stream_pending(&link.server));
	assert_int_equal(read_some(&link.server, data, 10), 10);
	assert_true(pl_stream_pending(&link.server));
	assert_int_equal(read_some(&link.server, data, 100), 90);
	assert_false(pl_stream_pending(&link.server));

	/* Part of a record gives no bytes to read, and must not count as pending. */
	assert_int_equal(write_some(&link.client, data, 100), 100);
	assert_int_equal(recv(link.server.fd, half, sizeof(half), MSG_DONTWAIT), sizeof(half));
	assert_int_equal(recv(link.server.fd, data, 62, MSG_DONTWAIT), 62);
	assert_int_equal(send(link.client.fd, half, sizeof(half), 0), sizeof(half));
	assert_int_equal(read_some(&link.server, half, sizeof(half)), -EAGAIN);
	assert_false(pl_stream_pending(&link.server));
	close_link(&link);
}

/* Checks ends of a connection that are not orderly. */
static void test_cut_off(void **state)
{
	const struct linger reset = { 1, 0 };
	struct link link;
	char byte;
	ssize_t got;

	(void)state;
	open_tls_link(&link, true, 0);
	assert_int_equal(shutdown(link.server.fd, SHUT_WR), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(read_waiting(&link.client, &byte, 1), -ECONNRESET);
	close_link(&link);

	open_tls_link(&link, true, 0);
	setsockopt(link.server.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	pl_stream_close(&link.server);
	for (int i = 0; i < 2; i++) {
		got = read_waiting(&link.client, &byte, 1);
		assert_true(got == -ECONNRESET || got == -EPIPE);
	}
	check_broken(&link.client);
	close_link(&link);

	open_tls_link(&link, true, 0);
	assert_true(socket_send(link.server.fd,
				"\x17\3\3\0\x20"
				"01234567890123456789012345678901",
				37));
	for (int i = 0; i < 2; i++)
		assert_int_equal(read_waiting(&link.client, &byte, 1), -EPROTO);
	close_link(&link);
}

/* Checks that a server with a valid certificate and without the key is refused. */
static void test_certificate_is_refused(void **state)
{
	SSL_CTX *context = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *certificate = X509_new();
	struct pl_stream stream;
	SSL *server;
	int fd = open_half(&stream, false, false);

	(void)state;
	X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_set_pubkey(certificate, key);
	assert_true(X509_sign(certificate, key, EVP_sha256()) > 0);
	assert_int_equal(SSL_CTX_use_certificate(context, certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
	server = SSL_new(context);
	SSL_set_fd(server, fd);
	assert_int_equal(pl_stream_handshake(&stream, "x", NULL), -EAGAIN);
	assert_int_equal(SSL_accept(server), -1);
	ERR_clear_error();
	expect_failure(&stream, -EPROTO, "TLS-FAILED");
	pl_stream_close(&stream);
	SSL_free(server);
	SSL_CTX_free(context);
	EVP_PKEY_free(key);
	X509_free(certificate);
	close(fd);
}

/* -- the openssl program as a client ----------------------------------------------------------------------------- */

/* Starts the openssl client.  The test holds the other ends of its standard input and output. */
static pid_t start_openssl_client(const char *address, const char *key, const char *identity, const char *extra,
				  const int pipes[4])
{
	pid_t pid = process_fork();

	if (pid)
		return pid;
	dup2(pipes[0], 0);
	dup2(pipes[3], 1);
	if (!freopen("/dev/null", "w", stderr))
		_exit(127);
	if (key)
		execlp("openssl", "openssl", "s_client", "-quiet", "-connect", address, "-psk_identity", identity,
		       "-psk", key, extra, NULL);
	else
		execlp("openssl", "openssl", "s_client", "-quiet", "-connect", address, "-tls1_3", NULL);
	_exit(127);
}

static void expect_conversation(struct pl_stream *stream, const int pipes[4])
{
	char text[5];

	while (pl_stream_handshake(stream, "x", NULL) == -EAGAIN)
		wait_for_stream(stream);
	assert_int_equal(pl_stream_handshake(stream, "x", NULL), 0);
	assert_int_equal(write(pipes[1], "ping\n", 5), 5);
	assert_int_equal(read_waiting(stream, text, 5), 5);
	assert_memory_equal(text, "ping\n", 5);
	assert_int_equal(write_some(stream, "pong\n", 5), 5);
	assert_true(poll(&(struct pollfd){ pipes[2], POLLIN, 0 }, 1, 10000) > 0);
	assert_int_equal(read(pipes[2], text, 5), 5);
	assert_memory_equal(text, "pong\n", 5);
}

static void test_openssl_client(void **state)
{
	static const struct {
		bool psk, wrong;
		const char *identity, *extra;
		int code;
		const char *id;
	} cases[] = {
		{ true, false, "peerlane", "-tls1_3", 0, NULL },
		{ true, false, "peerlane", "-no_middlebox", 0, NULL },
		{ true, true, "peerlane", "-tls1_3", -EACCES, "AUTH-KEY-MISMATCH" },
		{ true, false, "peerlanf", "-tls1_3", -EPROTO, "TLS-FAILED" },
		{ true, false, "peerlan", "-tls1_3", -EPROTO, "TLS-FAILED" },
		{ true, false, "peerlane", "-tls1_2", -EPROTO, "TLS-FAILED" },
		{ false, false, NULL, NULL, -EPROTO, "TLS-FAILED" },
	};
	uint8_t key[32];
	char hex[65], address[32];
	int listener;

	(void)state;
	if (system("openssl version >/dev/null 2>&1"))
		skip();
	assert_int_equal(pl_tls_derive_key(KEY, 16, key), 0);
	listener = socket_listen(address);
	for (size_t i = 0; i < PL_ARRAY_SIZE(cases); i++) {
		struct pl_stream stream;
		int pipes[4];
		pid_t pid;

		for (int j = 0; j < 32; j++)
			snprintf(hex + 2 * j, 3, "%02x", key[j] ^ (cases[i].wrong && j == 31));
		assert_true(pipe2(pipes, O_CLOEXEC) == 0 && pipe2(pipes + 2, O_CLOEXEC) == 0);
		pid = start_openssl_client(address, cases[i].psk ? hex : NULL, cases[i].identity, cases[i].extra,
					   pipes);
		assert_true(poll(&(struct pollfd){ listener, POLLIN, 0 }, 1, 10000) > 0);
		assert_int_equal(pl_stream_open(&stream, socket_accept(listener), tls, true, NULL), 0);
		if (cases[i].code)
			expect_failure(&stream, cases[i].code, cases[i].id);
		else
			expect_conversation(&stream, pipes);
		pl_stream_close(&stream);
		process_kill(pid, SIGKILL);
		for (int j = 0; j < 4; j++)
			close(pipes[j]);
	}
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_plain, arm_alarm),
		cmocka_unit_test_setup(test_many_elements, arm_alarm),
		cmocka_unit_test_setup(test_key_lengths, arm_alarm),
		cmocka_unit_test_setup(test_no_memory, arm_alarm),
		cmocka_unit_test_setup(test_tls, arm_alarm),
		cmocka_unit_test_setup(test_key_mismatch, arm_alarm),
		cmocka_unit_test_setup(test_not_tls, arm_alarm),
		cmocka_unit_test_setup(test_garbage_in_tls, arm_alarm),
		cmocka_unit_test_setup(test_damaged_handshake, arm_alarm),
		cmocka_unit_test_setup(test_transfer, arm_alarm),
		cmocka_unit_test_setup(test_coalescing, arm_alarm),
		cmocka_unit_test_setup(test_pending, arm_alarm),
		cmocka_unit_test_setup(test_cut_off, arm_alarm),
		cmocka_unit_test_setup(test_certificate_is_refused, arm_alarm),
		cmocka_unit_test_setup(test_openssl_client, arm_alarm),
	};

	return cmocka_run_group_tests_name("stream", tests, open_settings, close_settings);
}
