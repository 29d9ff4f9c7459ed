/* SPDX-License-Identifier: BSD-2-Clause */
/* Handshakes of the byte stream: wrong keys, foreign and damaged bytes, certificates, and the openssl program. */
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
#include <sys/socket.h>
#include <unistd.h>

#include "support/process.h"
#include "support/socket.h"
#include "support/stream_link.h"

static void test_key_mismatch(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct stream_link link;
		int status[2];
		struct pl_error error[2];

		stream_link_open(&link, tcp, 0, stream_tls, stream_other_tls);
		stream_link_handshake(&link, status, error);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(status[i], -EACCES);
			assert_string_equal(error[i].id, "AUTH-KEY-MISMATCH");
		}
		stream_link_close(&link);

		/* The server closes the connection as soon as the handshake fails, as servers do. */
		stream_link_open(&link, tcp, 0, stream_tls, stream_other_tls);
		assert_int_equal(pl_stream_handshake(&link.client, "x", NULL), -EAGAIN);
		stream_expect_failure(&link.server, -EACCES, "AUTH-KEY-MISMATCH");
		pl_stream_close(&link.server);
		stream_expect_failure(&link.client, -EACCES, "AUTH-KEY-MISMATCH");
		stream_link_close(&link);
	}
}

/* One end has a key and the other has none: both fail, and the end that can do something says what. */
static void test_one_key(void **state)
{
	struct pl_tls *none;

	(void)state;
	assert_int_equal(pl_tls_open(&pl_system_allocator, NULL, 0, &none, NULL), 0);
	assert_true(pl_tls_has_key(stream_tls) && !pl_tls_has_key(none));
	for (int keyed_client = 0; keyed_client < 2; keyed_client++) {
		struct stream_link link;
		int status[2];
		struct pl_error error[2];

		stream_link_open(&link, true, 0, keyed_client ? stream_tls : none, keyed_client ? none : stream_tls);
		stream_link_handshake(&link, status, error);
		assert_int_equal(status[0], -EACCES);
		assert_string_equal(error[0].id, keyed_client ? "AUTH-NO-KEY" : "AUTH-NEEDS-KEY");
		assert_true(status[1] < 0);
		stream_link_close(&link);
	}
	pl_tls_close(none);
}

/* Opens a TLS stream whose other end is a bare socket. */
static int open_half(struct pl_stream *stream, bool tcp, bool server)
{
	int fd[2];

	stream_sockets(fd, tcp, 0);
	assert_int_equal(pl_stream_open(stream, fd[0], stream_tls, server, NULL), 0);
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
		stream_expect_failure(&stream, -EPROTO, "AUTH-NO-TLS");
		stream_expect_failure(&stream, -EPROTO, "AUTH-NO-TLS");
		close(fd);
		pl_stream_close(&stream);
	}
}

/* An older release answers a TLS handshake by a refusal in the clear. */
static void test_older_release(void **state)
{
	struct pl_stream stream;
	int fd = open_half(&stream, true, false);

	(void)state;
	assert_true(socket_send(fd, "PLC1\2\0\0\0", 8));
	stream_expect_failure(&stream, -EPROTO, "PROTOCOL-VERSION");
	close(fd);
	pl_stream_close(&stream);
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
		stream_expect_failure(&stream, -EPROTO, "TLS-FAILED");
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
	stream_expect_failure(&stream, -ECONNRESET, "PEER-LOST");
	pl_stream_close(&stream);

	for (ssize_t cut = 0; cut < 2 * length; cut++) {
		struct pl_error error;
		int status;

		fd = open_half(&stream, false, true);
		if (cut < length) {
			assert_true(socket_send(fd, hello, (size_t)cut));
			close(fd);
			stream_expect_failure(&stream, -ECONNRESET, "PEER-LOST");
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
	stream_expect_failure(&stream, -EACCES, "AUTH-NO-KEY");
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
		stream_await(stream);
	assert_int_equal(pl_stream_handshake(stream, "x", NULL), 0);
	assert_int_equal(write(pipes[1], "ping\n", 5), 5);
	assert_int_equal(stream_read_waiting(stream, text, 5), 5);
	assert_memory_equal(text, "ping\n", 5);
	assert_int_equal(stream_write_some(stream, "pong\n", 5), 5);
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
	assert_int_equal(pl_tls_derive_key(STREAM_KEY, 16, key), 0);
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
		assert_int_equal(pl_stream_open(&stream, socket_accept(listener), stream_tls, true, NULL), 0);
		if (cases[i].code)
			stream_expect_failure(&stream, cases[i].code, cases[i].id);
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
		cmocka_unit_test_setup(test_key_mismatch, stream_alarm),
		cmocka_unit_test_setup(test_one_key, stream_alarm),
		cmocka_unit_test_setup(test_older_release, stream_alarm),
		cmocka_unit_test_setup(test_not_tls, stream_alarm),
		cmocka_unit_test_setup(test_garbage_in_tls, stream_alarm),
		cmocka_unit_test_setup(test_damaged_handshake, stream_alarm),
		cmocka_unit_test_setup(test_certificate_is_refused, stream_alarm),
		cmocka_unit_test_setup(test_openssl_client, stream_alarm),
	};

	return cmocka_run_group_tests_name("stream-handshake", tests, stream_keys_open, stream_keys_close);
}
