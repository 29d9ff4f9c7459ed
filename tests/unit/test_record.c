/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of TLS 1.3 and sealed streams: known records, OpenSSL as the other end, and damaged records. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/sealed.h"
#include "control/socket_io.h"
#include "support/process.h"
#include "support/stream_link.h"

static size_t from_hex(const char *hex, uint8_t *bytes)
{
	size_t count = 0;
	unsigned byte;

	for (; *hex; hex += 2) {
		assert_int_equal(sscanf(hex, "%2x", &byte), 1);
		bytes[count++] = (uint8_t)byte;
	}
	return count;
}

/* Records of RFC 8448, section 3: 50 bytes of data in each direction, and the client's close_notify. */
static void test_known_records(void **state)
{
	static const struct {
		const char *secret, *record;
		unsigned number; /* of the record under its key */
		enum pl_record_type type;
	} known[] = {
		{ "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
		  "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b6297"
		  "4e1f5a6292a2977014bd1e3deae63aeebb21694915e4",
		  0, PL_RECORD_DATA },
		{ "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
		  "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3", 1, PL_RECORD_ALERT },
		{ "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
		  "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc4"
		  "9c4bf2e5f0a21c0047c2abf332540dd032e167c2955d",
		  1, PL_RECORD_DATA },
	};
	uint8_t data[50], alert[] = { 1, 0 };

	(void)state;
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)i;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		bool is_data = known[i].type == PL_RECORD_DATA;
		const struct iovec parts[] = { { is_data ? data : alert, is_data ? 49 : 1 },
					       { is_data ? data + 49 : alert + 1, 1 } };
		uint8_t secret[PL_RECORD_SECRET], record[128], made[128], type;
		struct pl_record_key seal, open;
		size_t length = from_hex(known[i].record, record);

		assert_int_equal(from_hex(known[i].secret, secret), sizeof(secret));
		assert_int_equal(pl_record_key_open(&seal, secret, true), 0);
		assert_int_equal(pl_record_key_open(&open, secret, false), 0);
		seal.sequence = open.sequence = known[i].number;
		assert_int_equal(pl_record_seal(&seal, known[i].type, parts, 2, made), length);
		assert_memory_equal(made, record, length);
		assert_int_equal(pl_record_length(record), length);
		assert_int_equal(pl_record_open(&open, record, length, (struct iovec){ NULL, 0 }, &type),
				 is_data ? 50 : 2);
		assert_int_equal(type, known[i].type);
		assert_memory_equal(record + PL_RECORD_HEADER, is_data ? data : alert, is_data ? 50 : 2);
		pl_record_key_close(&seal);
		pl_record_key_close(&open);
	}
}

/* -- OpenSSL as the other end --------------------------------------------------------------------------------------- */

/* Secrets of the two directions, as OpenSSL's key log names them. */
static uint8_t logged[2][PL_RECORD_SECRET];

static void log_secret(const SSL *ssl, const char *line)
{
	static const char *const labels[] = { "CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0" };

	(void)ssl;
	for (int i = 0; i < 2; i++)
		if (!strncmp(line, labels[i], strlen(labels[i])))
			assert_int_equal(from_hex(strrchr(line, ' ') + 1, logged[i]), PL_RECORD_SECRET);
}

static SSL *make_end(SSL_CTX *context, int fd, bool server)
{
	SSL *ssl = SSL_new(context);

	assert_int_equal(SSL_set_fd(ssl, fd), 1);
	if (server)
		SSL_set_accept_state(ssl);
	else
		SSL_set_connect_state(ssl);
	return ssl;
}

static unsigned accept_any_key(SSL *ssl, const char *hint, char *identity, unsigned identity_size, unsigned char *key,
			       unsigned key_size)
{
	(void)ssl;
	(void)hint;
	(void)key_size;
	snprintf(identity, identity_size, "x");
	memset(key, 7, 16);
	return 16;
}

static unsigned find_any_key(SSL *ssl, const char *identity, unsigned char *key, unsigned key_size)
{
	(void)ssl;
	(void)identity;
	(void)key_size;
	memset(key, 7, 16);
	return 16;
}

static SSL_CTX *make_context(void)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());

	SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
	SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
	SSL_CTX_set_num_tickets(context, 0);
	SSL_CTX_set_psk_client_callback(context, accept_any_key);
	SSL_CTX_set_psk_server_callback(context, find_any_key);
	SSL_CTX_set_keylog_callback(context, log_secret);
	return context;
}

/*
 * Shakes hands between two ends of OpenSSL. Then this code takes the place of one of them: `sealed` continues with its
 * secrets on its socket.
 */
static SSL *replace_one_end(SSL_CTX *context, bool server, int fd[2], struct pl_sealed **sealed)
{
	SSL *left, *right;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
	for (int i = 0; i < 2; i++)
		fcntl(fd[i], F_SETFL, O_NONBLOCK);
	left = make_end(context, fd[0], server);
	right = make_end(context, fd[1], !server);
	for (int i = 0; i < 20; i++) {
		SSL_do_handshake(left);
		SSL_do_handshake(right);
	}
	assert_true(SSL_is_init_finished(left) && SSL_is_init_finished(right));
	SSL_free(left);
	ERR_clear_error();
	assert_int_equal(pl_sealed_open(&pl_system_allocator, fd[0], logged[server], logged[!server], sealed), 0);
	return right;
}

/* Transfers in both directions with new keys on the way, which each end makes by itself and asks the other one for. */
static void test_with_openssl(void **state)
{
	static uint8_t sent[100000], got[sizeof(sent)];
	SSL_CTX *context = make_context();

	(void)state;
	for (size_t i = 0; i < sizeof(sent); i++)
		sent[i] = (uint8_t)(i * 31 + i / 256);
	for (int server = 0; server < 2; server++) {
		const struct iovec out[] = { { sent, 10 }, { sent + 10, sizeof(sent) - 10 } };
		struct pl_sealed *sealed;
		int fd[2];
		SSL *ssl = replace_one_end(context, server, fd, &sealed);

		sealed->update_at = 8;
		sealed->update_from = 1;
		for (int round = 0; round < 20; round++) {
			struct iovec in = { got, sizeof(got) };
			size_t done = 0, count;
			ssize_t rc;

			memset(got, 0, sizeof(got));
			assert_int_equal(pl_sealed_write(sealed, out, 2, round & 1), sizeof(sent));
			while (done < sizeof(got) && SSL_read_ex(ssl, got + done, sizeof(got) - done, &count) == 1) {
				done += count;
				pl_sealed_flush(sealed);
			}
			assert_int_equal(done, sizeof(got));
			assert_memory_equal(sent, got, sizeof(sent));

			memset(got, 0, sizeof(got));
			assert_int_equal(SSL_write_ex(ssl, sent, sizeof(sent), &count), 1);
			if (round % 2)
				assert_int_equal(SSL_key_update(ssl, round % 4 == 1 ? SSL_KEY_UPDATE_REQUESTED
										   : SSL_KEY_UPDATE_NOT_REQUESTED),
						 1);
			while (in.iov_len && (rc = pl_sealed_read(sealed, &in, 1, round & 1)) > 0) {
				in.iov_base = (uint8_t *)in.iov_base + rc;
				in.iov_len -= (size_t)rc;
			}
			assert_int_equal(in.iov_len, 0);
			assert_memory_equal(sent, got, sizeof(sent));
		}
		pl_sealed_end(sealed);
		assert_int_equal(SSL_read(ssl, got, 1), 0);
		assert_int_equal(SSL_get_error(ssl, 0), SSL_ERROR_ZERO_RETURN);
		SSL_shutdown(ssl);
		assert_int_equal(pl_sealed_read(sealed, &(struct iovec){ got, 1 }, 1, false), -EPIPE);
		pl_sealed_close(sealed);
		SSL_free(ssl);
		close(fd[0]);
		close(fd[1]);
	}
	SSL_CTX_free(context);
	ERR_clear_error();
}

/* Checks writes of about as many bytes as one or several system calls send, with new keys on the way and little room in the socket. */
static void test_batches(void **state)
{
	static const size_t records[] = { 0, 1, 4, 5, 14, 15, 30, 31, 46, 47, 62, 70 };
	enum { ROOM = 71 * PL_RECORD_CONTENT };
	uint8_t *sent = malloc(ROOM), *got = malloc(ROOM);
	struct stream_link link;

	(void)state;
	assert_true(sent && got);
	for (size_t i = 0; i < ROOM; i++)
		sent[i] = (uint8_t)(i * 13 + i / 256 + i / PL_RECORD_CONTENT);
	stream_link_open_sealed(&link, true, 50000);
	link.client.sealed->update_at = 9;
	link.server.sealed->update_from = 1;
	for (size_t i = 0; i < 3 * PL_ARRAY_SIZE(records); i++) {
		size_t length = records[i / 3] * PL_RECORD_CONTENT + i % 3, done = 0;

		link.client.fragile = i & 1;
		memset(got, 0, length);
		for (size_t written = 0; done < length;) {
			/* Elements of odd lengths, without alignment. */
			const struct iovec parts[] = { { sent + written, (length - written) / 3 },
						       { NULL, 0 },
						       { sent + written + (length - written) / 3,
							 length - written - (length - written) / 3 } };
			ssize_t rc = written < length ? pl_stream_write(&link.client, parts, 3)
						      : pl_stream_flush(&link.client);

			assert_true(rc >= 0 || rc == -EAGAIN);
			written += written < length && rc > 0 ? (size_t)rc : 0;
			rc = stream_read_some(&link.server, got + done, length - done);
			assert_true(rc > 0 || rc == -EAGAIN);
			done += rc > 0 ? (size_t)rc : 0;
		}
		assert_false(pl_stream_unsent(&link.client));
		assert_memory_equal(sent, got, length);
	}
	stream_link_close(&link);
	free(sent);
	free(got);
}

/* Checks that the first system call of a large write sends few records, so that the other end begins early. */
static void test_first_batch(void **state)
{
	static uint8_t data[80 * PL_RECORD_CONTENT];
	struct stream_link link;

	(void)state;
	/* The sockets have room for less than a batch, so the write ends with the first one. */
	stream_link_open_sealed(&link, false, 1);
	assert_int_equal(stream_write_some(&link.client, data, sizeof(data)), 5 * PL_RECORD_CONTENT);
	assert_true(pl_stream_unsent(&link.client));
	stream_link_close(&link);
}

/* Returns the plain bytes that the other end could decrypt of what its kernel has: of full records only. */
static size_t usable_bytes(const struct stream_link *link)
{
	int received;

	assert_int_equal(ioctl(link->server.fd, FIONREAD, &received), 0);
	return (size_t)received / PL_RECORD_MAX * PL_RECORD_CONTENT;
}

/* Waits until this kernel knows all that the other end's kernel has, which may get more later. Returns the usable bytes. */
static size_t await_acknowledgements(const struct stream_link *link, size_t sealed)
{
	const struct pl_sealed *client = link->client.sealed;
	size_t left;
	int received;

	do {
		assert_int_equal(ioctl(link->server.fd, FIONREAD, &received), 0);
		left = client->unsent_length - client->unsent_at + pl_socket_unacknowledged(client->fd);
	} while (!received || (size_t)received + left != sealed);
	return (size_t)received / PL_RECORD_MAX * PL_RECORD_CONTENT;
}

/* Checks that bytes count as acknowledged once the other end's kernel has their whole records, and not earlier. */
static void check_acknowledged(int buffer)
{
	static uint8_t data[256 * PL_RECORD_CONTENT];
	struct stream_link link;
	size_t written, usable;

	stream_link_open_sealed(&link, true, buffer);
	/* Full records only. Neither the other end's kernel nor this one has all. */
	written = (size_t)stream_write_some(&link.client, data, sizeof(data));
	assert_in_range(written, PL_RECORD_CONTENT, sizeof(data) - 1);
	assert_true(pl_stream_unsent(&link.client));
	usable = await_acknowledgements(&link, written / PL_RECORD_CONTENT * PL_RECORD_MAX);
	for (size_t behind = 0; behind < written; behind += 100) {
		bool acknowledged = pl_stream_is_acknowledged(&link.client, pl_stream_position(&link.client, behind));

		assert_true(acknowledged ? written - behind <= usable_bytes(&link) : written - behind > usable);
	}
	stream_link_close(&link);
}

/* The other kernel takes a different part of the last record with each size of the buffers. */
static void test_acknowledged(void **state)
{
	(void)state;
	for (int buffer = 60000; buffer <= 200000; buffer += 7000)
		check_acknowledged(buffer);
}

/* -- records that this code refuses ------------------------------------------------------------------------------- */

struct refusal {
	struct stream_link link;
	struct pl_record_key key; /* seals as the client */
};

static void refusal_open(struct refusal *refusal)
{
	static const uint8_t secret[PL_SECRET] = { 1 };

	stream_link_open_sealed(&refusal->link, false, 0);
	assert_int_equal(pl_record_key_open(&refusal->key, secret, true), 0);
}

static void refusal_close(struct refusal *refusal)
{
	pl_record_key_close(&refusal->key);
	stream_link_close(&refusal->link);
}

/* Sends a record; returns what a read of one byte then returns, twice the same. */
static ssize_t read_after(struct refusal *refusal, int type, const void *content, size_t length)
{
	const struct iovec part = { (void *)content, length };
	uint8_t record[PL_RECORD_MAX];
	ssize_t size = pl_record_seal(&refusal->key, (enum pl_record_type)type, &part, 1, record), got;
	char byte = 0;

	assert_int_equal(send(refusal->link.client.fd, record, (size_t)size, 0), size);
	got = stream_read_some(&refusal->link.server, &byte, 1);
	if (got < 0 && got != -EAGAIN)
		assert_int_equal(stream_read_some(&refusal->link.server, &byte, 1), got);
	return got;
}

static void test_refused_contents(void **state)
{
	static const struct {
		int type;
		const char *content;
		size_t length;
		ssize_t result;
	} cases[] = {
		{ PL_RECORD_DATA, "x", 1, 1 },
		{ PL_RECORD_DATA, "", 0, -EPROTO },
		{ PL_RECORD_ALERT, "\1\0", 2, -EPIPE },
		{ PL_RECORD_ALERT, "\2\24", 2, -EPROTO },
		{ PL_RECORD_ALERT, "\1", 1, -EPROTO },
		{ PL_RECORD_HANDSHAKE, "\30\0\0\1\0", 5, -EPROTO }, /* too early */
		{ PL_RECORD_HANDSHAKE, "\1\0\0\1\0", 5, -EPROTO },
		{ 20, "x", 1, -EPROTO },
		{ 0, "\0\0\0", 3, -EPROTO }, /* nothing but padding */
		{ 0, "x\27\0", 3, 1 },       /* padding */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct refusal refusal;

		refusal_open(&refusal);
		assert_int_equal(read_after(&refusal, cases[i].type, cases[i].content, cases[i].length),
				 cases[i].result);
		refusal_close(&refusal);
	}
}

/* A new key is taken after enough records, each of its two kinds once, and no other KeyUpdate. */
static void test_refused_key_updates(void **state)
{
	static const struct {
		const char *content;
		size_t length;
		bool right;
	} cases[] = {
		{ "\30\0\0\1\0", 5, true },
		{ "\30\0\0\1\1", 5, true },
		{ "\30\0\0\1\2", 5, false },
		{ "\30\0\0\1", 4, false },
		{ "\30\0\0\1\0\30", 6, false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct refusal refusal;

		refusal_open(&refusal);
		assert_true(refusal.link.server.sealed->update_from >= 1000);
		refusal.link.server.sealed->update_from = 2;
		for (int j = 0; j < 2; j++)
			assert_int_equal(read_after(&refusal, PL_RECORD_DATA, "x", 1), 1);
		assert_int_equal(read_after(&refusal, PL_RECORD_HANDSHAKE, cases[i].content, cases[i].length),
				 cases[i].right ? -EAGAIN : -EPROTO);
		if (cases[i].right) {
			assert_int_equal(pl_record_key_update(&refusal.key), 0);
			assert_int_equal(read_after(&refusal, PL_RECORD_DATA, "x", 1), 1);
			assert_int_equal(read_after(&refusal, PL_RECORD_HANDSHAKE, cases[i].content, cases[i].length),
					 -EPROTO);
		}
		refusal_close(&refusal);
	}
}

/* Checks that an end refuses more records under one key than may be sealed with it. */
static void test_worn_key(void **state)
{
	struct refusal refusal;

	(void)state;
	refusal_open(&refusal);
	assert_true(refusal.link.server.sealed->update_at >= 1u << 20);
	assert_true(refusal.link.server.sealed->update_at <= 1u << 23);
	refusal.link.server.sealed->update_at = 4;
	for (int i = 0; i < 8; i++)
		assert_int_equal(read_after(&refusal, PL_RECORD_DATA, "x", 1), 1);
	assert_int_equal(read_after(&refusal, PL_RECORD_DATA, "x", 1), -EPROTO);
	refusal_close(&refusal);
}

/* Checks that no byte of a damaged, repeated, left-out or reflected record is delivered. */
static void test_damaged(void **state)
{
	enum { SIZE = 100 + PL_RECORD_OVERHEAD };

	(void)state;
	for (int damage = 0; damage < SIZE + 3; damage++) {
		uint8_t data[100] = "content", record[2 * SIZE], got[200];
		const struct iovec part = { data, sizeof(data) };
		struct refusal refusal;
		ssize_t result, first = 0;

		refusal_open(&refusal);
		memset(got, 0xaa, sizeof(got));
		assert_int_equal(pl_record_seal(&refusal.key, PL_RECORD_DATA, &part, 1, record), SIZE);
		if (damage == SIZE) { /* repeated */
			memcpy(record + SIZE, record, SIZE);
			first = 100;
		} else if (damage == SIZE + 1) { /* the first one is missing */
			pl_record_seal(&refusal.key, PL_RECORD_DATA, &part, 1, record);
		} else if (damage == SIZE + 2) { /* of the other direction */
			struct pl_record_key other;

			assert_int_equal(pl_record_key_open(&other, (const uint8_t[PL_SECRET]){ 2 }, true), 0);
			pl_record_seal(&other, PL_RECORD_DATA, &part, 1, record);
			pl_record_key_close(&other);
		} else {
			record[damage] ^= 1;
		}
		assert_true(send(refusal.link.client.fd, record, damage == SIZE ? 2 * SIZE : SIZE, 0) > 0);
		shutdown(refusal.link.client.fd, SHUT_WR);
		result = stream_read_some(&refusal.link.server, got, sizeof(got));
		assert_int_equal(first ? result : 0, first);
		result = stream_read_some(&refusal.link.server, got, sizeof(got));
		/* A longer length is an incomplete record. */
		assert_true(result == -EPROTO || (result == -ECONNRESET && (damage == 3 || damage == 4)));
		for (size_t i = (size_t)first; i < sizeof(got); i++)
			assert_int_equal(got[i], 0xaa);
		refusal_close(&refusal);
	}
}

/* Checks memory that is not there: nothing is lost, and the connection goes on. */
static void test_missing_memory(void **state)
{
	long page = sysconf(_SC_PAGESIZE);
	char *memory = mmap(NULL, (size_t)(2 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stream_link link;
	char got[100];

	(void)state;
	assert_true(memory != MAP_FAILED);
	memset(memory, 'x', (size_t)page);
	munmap(memory + page, (size_t)page);
	stream_link_open_sealed(&link, false, 0);
	link.client.fragile = link.server.fragile = true;
	assert_int_equal(stream_write_some(&link.client, memory + page, 10), -EFAULT);
	assert_int_equal(stream_write_some(&link.client, memory + page - 50, 100), 50);
	assert_int_equal(stream_write_some(&link.client, "yyyyy", 5), 5);
	assert_int_equal(stream_read_some(&link.server, memory + page, 10), -EFAULT);
	assert_int_equal(stream_read_some(&link.server, memory + page - 5, 10), 5);
	assert_int_equal(stream_read_some(&link.server, memory + page, 10), -EFAULT);
	assert_true(pl_stream_pending(&link.server));
	assert_int_equal(stream_read_waiting(&link.server, got, sizeof(got)), 50);
	assert_memory_equal(got, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxyyyyy", 50);
	stream_link_close(&link);
	munmap(memory, (size_t)page);
}

/* Checks that an idle stream keeps no buffers, and that a large one does not stay. */
static void test_idle_memory(void **state)
{
	static char data[300000];
	struct stream_link link;
	size_t sent = 0, received = 0;

	(void)state;
	stream_link_open_sealed(&link, true, 0);
	while (sent < sizeof(data) || received < sizeof(data)) {
		ssize_t rc = stream_write_some(&link.client, data + sent, sizeof(data) - sent);

		sent += rc > 0 ? (size_t)rc : 0;
		rc = stream_read_some(&link.server, data, sizeof(data));
		received += rc > 0 ? (size_t)rc : 0;
	}
	assert_int_equal(stream_read_some(&link.server, data, sizeof(data)), -EAGAIN);
	assert_null(link.server.sealed->buffer);
	assert_null(link.client.sealed->unsent);
	assert_int_equal(stream_write_some(&link.client, "x", 1), 1);
	assert_int_equal(stream_read_waiting(&link.server, data, sizeof(data)), 1);
	assert_null(link.server.sealed->buffer);
	stream_link_close(&link);
}

/* Counts what is allocated. */
static void *allocate_counted(size_t size, void *user)
{
	unsigned *calls = user;

	++*calls;
	return malloc(size);
}

static void release_counted(void *pointer, void *user)
{
	(void)user;
	free(pointer);
}

/* Sends `length` bytes to the other end, which receives all of them, more than the socket has room for. */
static void pass_bytes(struct stream_link *link, char *data, size_t length)
{
	size_t sent = 0, received = 0;

	while (received < length) {
		ssize_t rc = sent < length ? stream_write_some(&link->client, data + sent, length - sent)
					   : pl_stream_flush(&link->client);

		sent += rc > 0 ? (size_t)rc : 0;
		rc = stream_read_some(&link->server, data, length);
		received += rc > 0 ? (size_t)rc : 0;
	}
	assert_int_equal(stream_read_some(&link->server, data, length), -EAGAIN);
}

/* Checks that idle streams keep no buffers, but give them to each other, so that busy ones allocate nothing. */
static void test_spare_buffers(void **state)
{
	static const uint8_t secrets[2][PL_SECRET] = { { 1 }, { 2 } };
	static char data[300000];
	unsigned calls = 0, before;
	const struct pl_allocator allocator = { .allocate = allocate_counted,
						.release = release_counted,
						.user = &calls };
	struct pl_spare_buffers spare = { 0 };
	struct stream_link links[2];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		stream_link_open(&links[i], true, 0, NULL, NULL);
		assert_int_equal(pl_stream_seal(&links[i].client, &allocator, secrets[0], secrets[1]), 0);
		assert_int_equal(pl_stream_seal(&links[i].server, &allocator, secrets[1], secrets[0]), 0);
		pl_stream_use_spare(&links[i].client, &spare);
		pl_stream_use_spare(&links[i].server, &spare);
	}
	before = calls;
	for (unsigned i = 0; i < 20; i++) {
		pass_bytes(&links[i % 2], data, sizeof(data));
		pass_bytes(&links[i % 2], data, 1);
		assert_null(links[i % 2].server.sealed->buffer);
		assert_null(links[i % 2].client.sealed->unsent);
	}
	assert_true(calls > before);
	/* Each allocated buffer is a spare one now. */
	assert_true(calls - before <= PL_SPARE_MAX || PL_SPARE_EACH == 0);
	stream_link_close(&links[0]);
	stream_link_close(&links[1]);
	pl_spare_drain(&spare, &allocator);
}

/* Positions in the socket's bytes: of the ends of records, whose numbers of bytes differ. */
static void test_positions(void **state)
{
	static uint8_t data[2 * PL_RECORD_CONTENT + 1];
	const uint64_t full = PL_RECORD_CONTENT + PL_RECORD_OVERHEAD, end = 2 * full + 1 + PL_RECORD_OVERHEAD;
	struct stream_link link;

	(void)state;
	stream_link_open_sealed(&link, true, 0);
	assert_int_equal(stream_write_some(&link.client, data, sizeof(data)), sizeof(data));
	assert_int_equal(pl_stream_position(&link.client, 0), end);
	assert_int_equal(pl_stream_position(&link.client, 1), 2 * full);
	assert_int_equal(pl_stream_position(&link.client, PL_RECORD_CONTENT), 2 * full);
	assert_int_equal(pl_stream_position(&link.client, PL_RECORD_CONTENT + 1), full);
	assert_int_equal(pl_stream_position(&link.client, 2 * PL_RECORD_CONTENT), full);
	assert_int_equal(stream_write_some(&link.client, data, 8), 8);
	assert_int_equal(pl_stream_position(&link.client, 7), end + 8 + PL_RECORD_OVERHEAD);
	stream_link_close(&link);
	stream_link_open(&link, true, 0, NULL, NULL);
	assert_int_equal(stream_write_some(&link.client, data, 20), 20);
	assert_int_equal(pl_stream_position(&link.client, 3), 17);
	stream_link_close(&link);
}

/* Counts the allocated bytes, which stand before each block. */
static void *allocate_measured(size_t size, void *user)
{
	size_t *total = user, *block = malloc(16 + size);

	assert_non_null(block);
	*block = size;
	*total += size;
	return (uint8_t *)block + 16;
}

static void release_measured(void *pointer, void *user)
{
	size_t *total = user, *block = (size_t *)((uint8_t *)pointer - 16);

	*total -= *block;
	free(block);
}

#define SLOW_STREAMS 80u
/* Bytes of a stream repeat after so many. */
#define PERIOD 251u

static uint8_t slow_bytes[4 << 20];

/* Streams of an engine whose other ends read nothing for a while, and then have only a part of a record. */
struct slow_streams {
	size_t memory;
	struct pl_allocator allocator;
	struct pl_spare_buffers spare;
	struct stream_link links[SLOW_STREAMS];
	size_t sent[SLOW_STREAMS], received[SLOW_STREAMS];
};

static void slow_streams_open(struct slow_streams *slow)
{
	static const uint8_t secrets[2][PL_SECRET] = { { 1 }, { 2 } };

	memset(slow, 0, sizeof(*slow));
	for (size_t i = 0; i < sizeof(slow_bytes); i++)
		slow_bytes[i] = (uint8_t)(i % PERIOD);
	slow->allocator = (struct pl_allocator){ .allocate = allocate_measured,
						 .release = release_measured,
						 .user = &slow->memory };
	for (unsigned i = 0; i < SLOW_STREAMS; i++) {
		struct stream_link *link = &slow->links[i];

		/* The room ends within different records. */
		stream_link_open(link, true, (int)(400000 + 3000 * i), NULL, NULL);
		assert_int_equal(pl_stream_seal(&link->client, &slow->allocator, secrets[0], secrets[1]), 0);
		assert_int_equal(pl_stream_seal(&link->server, &slow->allocator, secrets[1], secrets[0]), 0);
		pl_stream_use_spare(&link->client, &slow->spare);
		pl_stream_use_spare(&link->server, &slow->spare);
	}
}

/* Writes as much as the socket and the stream take. */
static void slow_stream_fill(struct slow_streams *slow, unsigned i)
{
	ssize_t rc;

	do {
		size_t at = slow->sent[i] % PERIOD;

		rc = stream_write_some(&slow->links[i].client, slow_bytes + at, sizeof(slow_bytes) - at);
		slow->sent[i] += rc > 0 ? (size_t)rc : 0;
	} while (rc > 0);
	assert_int_equal(rc, -EAGAIN);
}

/* Reads what has arrived, and checks it. */
static void slow_stream_read(struct slow_streams *slow, unsigned i)
{
	static uint8_t got[100000];
	ssize_t rc;

	while ((rc = stream_read_some(&slow->links[i].server, got, sizeof(got))) > 0) {
		assert_memory_equal(got, slow_bytes + slow->received[i] % PERIOD, (size_t)rc);
		slow->received[i] += (size_t)rc;
	}
	assert_int_equal(rc, -EAGAIN);
}

/* Returns the number of streams with more than a few unsent records. */
static unsigned count_large(const struct slow_streams *slow)
{
	unsigned count = 0;

	for (unsigned i = 0; i < SLOW_STREAMS; i++)
		count += slow->links[i].client.sealed->unsent &&
			 slow->links[i].client.sealed->unsent_size > 5 * PL_RECORD_MAX;
	return count;
}

/* Checks that many streams that wait keep little memory: each end a few records, and few of them more. */
static void test_slow_memory(void **state)
{
	const size_t few = 6 * PL_RECORD_MAX + 1000, more = 16 * PL_RECORD_MAX;
	struct slow_streams slow;
	size_t idle;

	(void)state;
	slow_streams_open(&slow);
	idle = slow.memory;
	for (unsigned i = 0; i < SLOW_STREAMS; i++)
		slow_stream_fill(&slow, i);
	for (unsigned i = 0; i < SLOW_STREAMS; i++)
		slow_stream_read(&slow, i);
	for (unsigned i = 0; i < SLOW_STREAMS; i++)
		slow_stream_fill(&slow, i);
	assert_true(count_large(&slow) <= PL_SPARE_KEPT);
	assert_true(slow.memory - idle <= SLOW_STREAMS * few + (PL_SPARE_KEPT + PL_SPARE_MAX) * more);
	for (unsigned i = 0; i < SLOW_STREAMS; i++) {
		while (slow.received[i] < slow.sent[i]) {
			pl_stream_flush(&slow.links[i].client);
			slow_stream_read(&slow, i);
		}
	}
	/* Nothing waits: all memory is spare. */
	assert_int_equal(slow.spare.kept, 0);
	pl_spare_drain(&slow.spare, &slow.allocator);
	assert_int_equal(slow.memory, idle);
	/* A stream that waits ends. */
	slow_stream_fill(&slow, 0);
	for (unsigned i = 0; i < SLOW_STREAMS; i++)
		stream_link_close(&slow.links[i]);
	assert_int_equal(slow.spare.kept, 0);
	pl_spare_drain(&slow.spare, &slow.allocator);
	assert_int_equal(slow.memory, 0);
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
	static const uint8_t secret[PL_SECRET];
	int left = 0;
	const struct pl_allocator allocator = { .allocate = allocate_until, .release = release_memory, .user = &left };
	struct stream_link link;
	char byte = 0;

	(void)state;
	stream_link_open(&link, false, 0, NULL, NULL);
	assert_int_equal(pl_stream_seal(&link.client, &allocator, secret, secret), -ENOMEM);
	left = 1;
	assert_int_equal(pl_stream_seal(&link.client, &allocator, secret, secret), 0);
	assert_int_equal(stream_read_some(&link.client, &byte, 1), -ENOMEM);
	assert_int_equal(stream_write_some(&link.client, &byte, 1), -ENOMEM);
	assert_false(pl_stream_unsent(&link.client));
	stream_link_close(&link);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_known_records, stream_alarm),
		cmocka_unit_test_setup(test_with_openssl, stream_alarm),
		cmocka_unit_test_setup(test_batches, stream_alarm),
		cmocka_unit_test_setup(test_first_batch, stream_alarm),
		cmocka_unit_test_setup(test_acknowledged, stream_alarm),
		cmocka_unit_test_setup(test_refused_contents, stream_alarm),
		cmocka_unit_test_setup(test_refused_key_updates, stream_alarm),
		cmocka_unit_test_setup(test_worn_key, stream_alarm),
		cmocka_unit_test_setup(test_damaged, stream_alarm),
		cmocka_unit_test_setup(test_missing_memory, stream_alarm),
		cmocka_unit_test_setup(test_idle_memory, stream_alarm),
		cmocka_unit_test_setup(test_spare_buffers, stream_alarm),
		cmocka_unit_test_setup(test_positions, stream_alarm),
		cmocka_unit_test_setup(test_slow_memory, stream_alarm),
		cmocka_unit_test_setup(test_no_memory, stream_alarm),
	};

	return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
