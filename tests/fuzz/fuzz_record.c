/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: steps of an end that has the keys of a sealed stream. A step is a type of record, two bytes for its length, and
 * its content; type 255 sends the content itself, and type 254 replaces the key. The other end must deliver the contents
 * of data records in order, and nothing else.
 */
#include "fuzz.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/sealed.h"

enum { RAW = 255, UPDATE = 254, SENT_MAX = 1 << 16 };

struct sealed_pair {
	int fd[2];
	struct pl_record_key key;
	struct pl_sealed *sealed;
	uint8_t sent[SENT_MAX];
	size_t sent_length, received;
	bool foreign; /* bytes that are no record were sent: nothing may be delivered after them */
};

static void pair_open(struct sealed_pair *pair)
{
	static const uint8_t secrets[2][PL_RECORD_SECRET] = { { 1 }, { 2 } };

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair->fd) == 0);
	REQUIRE(pl_record_key_open(&pair->key, secrets[0], true) == 0);
	REQUIRE(pl_sealed_open(&pl_system_allocator, pair->fd[1], secrets[1], secrets[0], &pair->sealed) == 0);
	pair->sealed->update_from = 2;
	pair->sealed->update_at = 16;
}

static void pair_close(struct sealed_pair *pair)
{
	pl_sealed_close(pair->sealed);
	pl_record_key_close(&pair->key);
	close(pair->fd[0]);
	close(pair->fd[1]);
}

static void send_step(struct sealed_pair *pair, uint8_t type, const uint8_t *content, size_t length)
{
	const struct iovec part = { (void *)content, length };
	uint8_t record[PL_RECORD_MAX];
	ssize_t size;

	if (type == UPDATE) {
		pl_record_key_update(&pair->key);
		return;
	}
	if (type == RAW) {
		pair->foreign |= length > 0;
		send(pair->fd[0], content, length, MSG_NOSIGNAL);
		return;
	}
	size = pl_record_seal(&pair->key, (enum pl_record_type)type, &part, 1, record);
	REQUIRE(size == (ssize_t)(length + PL_RECORD_OVERHEAD));
	REQUIRE(send(pair->fd[0], record, (size_t)size, MSG_NOSIGNAL) == size);
	if (type == PL_RECORD_DATA && !pair->foreign && pair->sent_length + length <= SENT_MAX) {
		memcpy(pair->sent + pair->sent_length, content, length);
		pair->sent_length += length;
	}
}

static void receive_all(struct sealed_pair *pair, size_t most)
{
	uint8_t got[1000];
	struct iovec vector = { got, most };
	ssize_t count;

	while ((count = pl_sealed_read(pair->sealed, &vector, 1, most % 2)) > 0) {
		REQUIRE(pair->received + (size_t)count <= pair->sent_length);
		REQUIRE(!memcmp(got, pair->sent + pair->received, (size_t)count));
		pair->received += (size_t)count;
	}
	REQUIRE(count == -EAGAIN || count == -EPROTO || count == -EPIPE || count == -ECONNRESET);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sealed_pair *pair = calloc(1, sizeof(*pair));
	int steps = 0;

	REQUIRE(pair);
	pair_open(pair);
	while (size >= 3 && steps++ < 64) {
		size_t length = PL_MIN((size_t)(data[1] | data[2] << 8) % 2048, size - 3);

		/* A padded content of type 0 may be a data record in disguise, of which this program keeps no account. */
		send_step(pair, data[0] ? data[0] : PL_RECORD_ALERT, data + 3, length);
		receive_all(pair, 1 + data[1] % 999u);
		data += 3 + length;
		size -= 3 + length;
	}
	shutdown(pair->fd[0], SHUT_WR);
	receive_all(pair, 1000);
	pair_close(pair);
	free(pair);
	return 0;
}
