/* SPDX-License-Identifier: BSD-2-Clause */
/* Byte stream: transfers in the clear, over TLS with a pre-shared key, and sealed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/process.h"
#include "support/socket.h"
#include "support/stream_link.h"

#define RECORD_OVERHEAD 22 /* header, type and tag */

static void check_round_trip(struct stream_link *link)
{
	char first[3], second[16], big[65536] = { 0 };
	const struct iovec out[] = { { "", 0 }, { "hel", 3 }, { "", 0 }, { "lo, world", 9 }, { NULL, 0 } };
	const struct iovec in[] = { { NULL, 0 }, { first, 3 }, { NULL, 0 }, { second, sizeof(second) } };

	assert_int_equal(stream_read_some(&link->server, second, 1), -EAGAIN);
	assert_int_equal(link->server.want, EPOLLIN);
	assert_int_equal(pl_stream_write(&link->client, out, 5), 12);
	stream_await(&link->server);
	assert_int_equal(pl_stream_read(&link->server, in, 4), 12);
	assert_memory_equal(first, "hel", 3);
	assert_memory_equal(second, "lo, world", 9);
	assert_int_equal(pl_stream_write(&link->client, out, 1), 0);
	assert_int_equal(pl_stream_read(&link->client, in, 1), 0);
	while (stream_write_some(&link->server, big, sizeof(big)) != -EAGAIN)
		;
	assert_int_equal(link->server.want, EPOLLOUT);
}

static void test_plain(void **state)
{
	(void)state;
	for (int tcp = 0; tcp < 2; tcp++) {
		struct stream_link link;
		char byte;

		stream_link_open(&link, tcp, 0, NULL, NULL);
		assert_int_equal(pl_stream_handshake(&link.client, "x", NULL), 0);
		check_round_trip(&link);
		assert_false(pl_stream_pending(&link.client));
		stream_link_close(&link);
		pl_stream_close(&link.client);

		stream_link_open(&link, tcp, 0, NULL, NULL);
		pl_stream_close(&link.server);
		assert_int_equal(stream_read_waiting(&link.client, &byte, 1), -EPIPE);
		stream_check_broken(&link.client);
		stream_link_close(&link);
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
	for (int kind = 0; kind < STREAM_KINDS; kind++) {
		struct stream_link link;

		stream_link_open_kind(&link, kind, false, 0);
		assert_true(pl_stream_write(&link.client, vector, 3000) > 300);
		assert_true(stream_read_some(&link.server, in, sizeof(in)) > 300);
		stream_link_close(&link);
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
	assert_int_equal(pl_tls_derive_key(STREAM_KEY, 16, derived), 0);
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
	assert_int_equal(pl_tls_open(&allocator, STREAM_KEY, 16, &made, &error), -ENOMEM);
	left = 1;
	assert_int_equal(pl_tls_open(&allocator, STREAM_KEY, 16, &made, &error), 0);
	stream_sockets(fd, false, 0);
	assert_int_equal(pl_stream_open(&stream, fd[0], made, false, &error), -ENOMEM);
	assert_int_equal(error.code, -ENOMEM);
	/* The caller may watch the descriptor, so it closes the stream. */
	assert_int_equal(stream.fd, fd[0]);
	assert_true(fcntl(fd[0], F_GETFD) >= 0);
	pl_stream_close(&stream);
	assert_int_equal(fcntl(fd[0], F_GETFD), -1);
	close(fd[1]);
	pl_tls_close(made);
}

static void test_secure(void **state)
{
	(void)state;
	for (int turn = 0; turn < 4; turn++) {
		enum stream_kind kind = turn & 1 ? STREAM_TLS : STREAM_SEALED;
		struct stream_link link;
		bool tcp = turn & 2;
		char byte;

		stream_link_open_kind(&link, kind, tcp, 0);
		check_round_trip(&link);
		stream_link_close(&link);

		stream_link_open_kind(&link, kind, tcp, 0);
		assert_int_equal(stream_write_some(&link.server, "x", 1), 1);
		pl_stream_close(&link.server);
		assert_int_equal(stream_read_waiting(&link.client, &byte, 1), 1);
		for (int i = 0; i < 2; i++)
			assert_int_equal(stream_read_waiting(&link.client, &byte, 1), -EPIPE);
		stream_check_broken(&link.client);
		stream_link_close(&link);
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
		size_t piece = rand() & 1 ? (size_t)rand() % 64 : (size_t)rand() % (length + 1);

		piece = PL_MIN(piece, length);
		vector[count++] = (struct iovec){ data, piece };
		data += piece;
		length -= piece;
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

static void check_flush(struct pl_stream *stream)
{
	bool unsent = pl_stream_unsent(stream);
	int rc = pl_stream_flush(stream);

	assert_true(rc == 0 || (unsent && rc == -EAGAIN && stream->want == EPOLLOUT));
	assert_int_equal(pl_stream_unsent(stream), rc != 0);
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
	for (int turn = 0; turn < 2 * STREAM_KINDS; turn++) {
		uint64_t deadline = clock_now() + 60 * SECOND;
		size_t sent = 0, received = 0, offered = 0;
		struct stream_link link;

		stream_link_open_kind(&link, turn / 2, turn % 2, 5000);
		/* As for memory of files, with another way of copying. */
		link.server.fragile = link.client.fragile = turn % 2;
		while (received < TRANSFER) {
			assert_true(clock_now() < deadline);
			if (sent < TRANSFER)
				sent += send_some(&link.server, sent, &offered);
			else
				check_flush(&link.server);
			received += receive_some(&link.client, received);
		}
		assert_false(pl_stream_unsent(&link.server));
		assert_int_equal(sent, received);
		stream_link_close(&link);
	}
}

static void count_key_updates(int sent, int version, int type, const void *bytes, size_t length, SSL *ssl, void *user)
{
	(void)sent;
	(void)version;
	(void)ssl;
	if (type == SSL3_RT_HANDSHAKE && length && *(const uint8_t *)bytes == SSL3_MT_KEY_UPDATE)
		++*(unsigned *)user;
}

/* Checks that keys are replaced after a number of records, in both directions, also while the socket is full. */
static void test_key_update(void **state)
{
	(void)state;
	srand(2);
	for (int turn = 0; turn < 2; turn++) {
		uint64_t deadline = clock_now() + 60 * SECOND;
		size_t sent = 0, received = 0, offered = 0;
		struct pl_stream *from, *to;
		struct stream_link link;
		unsigned updates = 0;

		stream_link_open_tls(&link, true, 5000);
		from = turn ? &link.client : &link.server;
		to = turn ? &link.server : &link.client;
		assert_true(from->records_max >= 1u << 20 && from->records_max <= 1u << 24);
		from->records_max = 8;
		SSL_set_msg_callback(to->ssl, count_key_updates);
		SSL_set_msg_callback_arg(to->ssl, &updates);
		while (received < TRANSFER) {
			assert_true(clock_now() < deadline);
			if (sent < TRANSFER)
				sent += send_some(from, sent, &offered);
			received += receive_some(to, received);
		}
		/* A record has at most 16 KiB. */
		assert_true(updates >= TRANSFER / 16384 / 8 - 1);
		stream_link_close(&link);
	}
}

/* Checks that each KeyUpdate ends a read, so that other sockets get their turn between many of them. */
static void test_key_update_flood(void **state)
{
	struct stream_link link;
	unsigned waits = 0;
	char byte = 0;

	(void)state;
	stream_link_open_tls(&link, false, 0);
	for (unsigned i = 0; i < 100; i++) {
		assert_int_equal(SSL_key_update(link.client.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
		assert_int_equal(SSL_do_handshake(link.client.ssl), 1);
	}
	assert_int_equal(stream_write_some(&link.client, "x", 1), 1);
	for (; stream_read_some(&link.server, &byte, 1) == -EAGAIN; waits++)
		assert_int_equal(link.server.want, EPOLLIN);
	assert_int_equal(byte, 'x');
	assert_int_equal(waits, 100);
	stream_link_close(&link);
}

/* Checks that both ends export one secret for a context, and that no other connection or context gives the same. */
static void test_export(void **state)
{
	uint8_t contexts[2][PL_SECRET] = { { 1 }, { 2 } }, secrets[4][PL_SECRET], again[PL_SECRET];
	struct stream_link link, other;

	(void)state;
	stream_link_open_tls(&link, false, 0);
	stream_link_open_tls(&other, false, 0);
	for (int i = 0; i < 4; i++) {
		struct stream_link *from = i < 2 ? &link : &other;

		assert_int_equal(pl_stream_export(&from->client, PL_EXPORT_LANES, contexts[i % 2], secrets[i]), 0);
		assert_int_equal(pl_stream_export(&from->server, PL_EXPORT_LANES, contexts[i % 2], again), 0);
		assert_memory_equal(secrets[i], again, PL_SECRET);
		for (int j = 0; j < i; j++)
			assert_memory_not_equal(secrets[i], secrets[j], PL_SECRET);
	}
	stream_link_close(&other);
	stream_link_close(&link);
	stream_link_open(&link, false, 0, NULL, NULL);
	assert_int_equal(pl_stream_export(&link.client, PL_EXPORT_LANES, contexts[0], again), -EPROTO);
	stream_link_close(&link);
}

/* Checks that a header and its payload share one record, with all following bytes that fit. */
static void test_coalescing(void **state)
{
	static char data[40000];
	const struct iovec two[] = { { data, 32 }, { data, 1000 } };
	const struct iovec many[] = { { data, 1 }, { data, 16384 }, { data, 16384 }, { data, 0 }, { data, 2 } };
	struct stream_link link;
	int bytes;

	(void)state;
	stream_link_open_sealed(&link, false, 0);
	assert_int_equal(pl_stream_write(&link.client, two, 2), 1032);
	assert_int_equal(ioctl(link.server.fd, FIONREAD, &bytes), 0);
	assert_int_equal(bytes, 1032 + RECORD_OVERHEAD);
	assert_int_equal(stream_read_some(&link.server, data, sizeof(data)), 1032);
	assert_int_equal(pl_stream_write(&link.client, many, 5), 32771);
	assert_int_equal(ioctl(link.server.fd, FIONREAD, &bytes), 0);
	assert_int_equal(bytes, 32771 + 3 * RECORD_OVERHEAD);
	assert_true(stream_read_some(&link.server, data, sizeof(data)) >= 16384);
	stream_link_close(&link);
}

static void check_pending(enum stream_kind kind)
{
	char data[100] = { 0 }, half[60];
	struct stream_link link;

	stream_link_open_kind(&link, kind, false, 0);
	assert_int_equal(stream_write_some(&link.client, data, 100), 100);
	assert_false(pl_stream_pending(&link.server));
	assert_int_equal(stream_read_some(&link.server, data, 10), 10);
	assert_true(pl_stream_pending(&link.server));
	assert_int_equal(stream_read_some(&link.server, data, 100), 90);
	assert_false(pl_stream_pending(&link.server));

	/* Part of a record gives no bytes to read, and must not count as pending. */
	assert_int_equal(stream_write_some(&link.client, data, 100), 100);
	assert_int_equal(recv(link.server.fd, half, sizeof(half), MSG_DONTWAIT), sizeof(half));
	assert_int_equal(recv(link.server.fd, data, 62, MSG_DONTWAIT), 62);
	assert_int_equal(send(link.client.fd, half, sizeof(half), 0), sizeof(half));
	assert_int_equal(stream_read_some(&link.server, half, sizeof(half)), -EAGAIN);
	assert_false(pl_stream_pending(&link.server));
	stream_link_close(&link);
}

static void test_pending(void **state)
{
	(void)state;
	check_pending(STREAM_TLS);
	check_pending(STREAM_SEALED);
}

/* A read that took all bytes of the socket tells so. One that filled its buffer, or ended with a failure, does not. */
static void test_dry(void **state)
{
	struct stream_link link;
	char data[100] = { 1 };

	(void)state;
	stream_link_open_tls(&link, true, 0);
	assert_int_equal(stream_write_some(&link.client, data, 100), 100);
	assert_int_equal(stream_read_waiting(&link.server, data, 50), 50);
	assert_false(link.server.dry);
	assert_int_equal(stream_read_some(&link.server, data, 100), 50);
	assert_true(link.server.dry);
	pl_stream_close(&link.client);
	assert_true(stream_read_waiting(&link.server, data, 1) < 0);
	assert_false(link.server.dry);
	stream_link_close(&link);
}

/* Checks ends of a connection that are not orderly. */
static void check_cut_off(enum stream_kind kind)
{
	const struct linger reset = { 1, 0 };
	struct stream_link link;
	char byte;
	ssize_t got;

	stream_link_open_kind(&link, kind, true, 0);
	assert_int_equal(shutdown(link.server.fd, SHUT_WR), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(stream_read_waiting(&link.client, &byte, 1), -ECONNRESET);
	stream_link_close(&link);

	stream_link_open_kind(&link, kind, true, 0);
	setsockopt(link.server.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
	pl_stream_close(&link.server);
	for (int i = 0; i < 2; i++) {
		got = stream_read_waiting(&link.client, &byte, 1);
		assert_true(got == -ECONNRESET || got == -EPIPE);
	}
	stream_check_broken(&link.client);
	stream_link_close(&link);

	stream_link_open_kind(&link, kind, true, 0);
	assert_true(socket_send(link.server.fd,
				"\x17\3\3\0\x20"
				"01234567890123456789012345678901",
				37));
	for (int i = 0; i < 2; i++)
		assert_int_equal(stream_read_waiting(&link.client, &byte, 1), -EPROTO);
	stream_link_close(&link);
}

static void test_cut_off(void **state)
{
	(void)state;
	check_cut_off(STREAM_TLS);
	check_cut_off(STREAM_SEALED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_plain, stream_alarm),
		cmocka_unit_test_setup(test_many_elements, stream_alarm),
		cmocka_unit_test_setup(test_key_lengths, stream_alarm),
		cmocka_unit_test_setup(test_no_memory, stream_alarm),
		cmocka_unit_test_setup(test_secure, stream_alarm),
		cmocka_unit_test_setup(test_transfer, stream_alarm),
		cmocka_unit_test_setup(test_key_update, stream_alarm),
		cmocka_unit_test_setup(test_key_update_flood, stream_alarm),
		cmocka_unit_test_setup(test_export, stream_alarm),
		cmocka_unit_test_setup(test_coalescing, stream_alarm),
		cmocka_unit_test_setup(test_pending, stream_alarm),
		cmocka_unit_test_setup(test_dry, stream_alarm),
		cmocka_unit_test_setup(test_cut_off, stream_alarm),
	};

	return cmocka_run_group_tests_name("stream", tests, stream_keys_open, stream_keys_close);
}
