/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages of a rendezvous.  The value of a notification has a mark, the type and the number of the message; its data
 * begin with the length of the message and their offset in it, 4 bytes each.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "bench/common/cursor.h"
#include "bench/matrix/rendezvous_internal.h"

#define MARK 0x504cull /* upper 16 bits of the value */
#define PART_HEAD 8u   /* bytes before the data of a notification */
#define PART_MAX ((size_t)PL_NOTIFY_DATA_MAX - PART_HEAD)
#define HELLO_MARK 0x58544d50u  /* "PMTX" */

static uint64_t notification_value(enum rendezvous_type type, uint32_t sequence)
{
	return MARK << 48 | (uint64_t)type << 32 | sequence;
}

int rendezvous_send(struct pl_peer *peer, enum rendezvous_type type, uint32_t sequence, const void *bytes,
		    size_t length, struct pl_error *error)
{
	uint8_t data[PL_NOTIFY_DATA_MAX];
	size_t at = 0;
	int rc;

	do {
		struct cursor cursor = { .to = data };
		size_t part = CLI_MIN(length - at, PART_MAX);

		cursor_put(&cursor, length, 4);
		cursor_put(&cursor, at, 4);
		if (part)
			memcpy(cursor.to, (const uint8_t *)bytes + at, part);
		rc = pl_notify(peer, notification_value(type, sequence), data, PART_HEAD + part, NULL, NULL, error);
		at += part;
	} while (rc == 0 && at < length);
	return rc;
}

/* Takes the head of a message from its first notification. */
static int begin_inbox(struct inbox *inbox, uint64_t value, size_t length)
{
	inbox->type = (uint8_t)(value >> 32);
	inbox->sequence = (uint32_t)value;
	inbox->length = length;
	inbox->got = 0;
	inbox->bytes = malloc(length + 1);
	return inbox->bytes ? 0 : -ENOMEM;
}

int inbox_add(struct inbox *inbox, const struct pl_completion *completion, size_t most)
{
	struct cursor cursor = { .from = completion->data };
	uint64_t value = completion->value;
	size_t length, at, part;
	int rc = 0;

	if (!completion->data || completion->data_length < PART_HEAD || value >> 40 != MARK << 8 || inbox->ready)
		return -EPROTO;
	cursor.end = cursor.from + completion->data_length;
	part = completion->data_length - PART_HEAD;
	length = cursor_get(&cursor, 4);
	at = cursor_get(&cursor, 4);
	if (length > most || at > length || part > length - at || (!part && length))
		return -EPROTO;
	if (!inbox->bytes)
		rc = begin_inbox(inbox, value, length);
	if (rc < 0)
		return rc;
	if (value != notification_value(inbox->type, inbox->sequence) || length != inbox->length || at != inbox->got)
		return -EPROTO;
	memcpy(inbox->bytes + at, cursor.from, part);
	inbox->got += part;
	inbox->ready = inbox->got == length;
	return 0;
}

void inbox_clear(struct inbox *inbox)
{
	free(inbox->bytes);
	*inbox = (struct inbox){ .bytes = NULL };
}

size_t hello_encode(const struct hello *hello, uint8_t bytes[PL_NOTIFY_DATA_MAX])
{
	struct cursor cursor = { .to = bytes };

	cursor_put(&cursor, HELLO_MARK, 4);
	cursor_put(&cursor, RENDEZVOUS_FORMAT, 2);
	cursor_put(&cursor, (uint32_t)hello->rank, 4);
	cursor_put(&cursor, (uint32_t)hello->size, 4);
	cursor_put(&cursor, hello->process, 8);
	cursor_put_text(&cursor, hello->run);
	cursor_put_text(&cursor, hello->host);
	cursor_put_text(&cursor, hello->terms);
	return (size_t)(cursor.to - bytes);
}

int hello_decode(const uint8_t *bytes, size_t length, struct hello *hello)
{
	struct cursor cursor = { .from = bytes, .end = bytes + length };
	uint64_t rank, size;

	if (cursor_get(&cursor, 4) != HELLO_MARK)
		return -EPROTO;
	if (cursor_get(&cursor, 2) != RENDEZVOUS_FORMAT)
		return -EPROTONOSUPPORT;
	rank = cursor_get(&cursor, 4);
	size = cursor_get(&cursor, 4);
	hello->process = cursor_get(&cursor, 8);
	cursor_get_text(&cursor, hello->run, sizeof(hello->run), false);
	cursor_get_text(&cursor, hello->host, sizeof(hello->host), false);
	cursor_get_text(&cursor, hello->terms, sizeof(hello->terms), false);
	hello->rank = (int)CLI_MIN(rank, (uint64_t)INT32_MAX);
	hello->size = (int)CLI_MIN(size, (uint64_t)INT32_MAX);
	return cursor.failed ? -EPROTO : 0;
}

bool rendezvous_sleep(const struct rendezvous *rendezvous, uint64_t deadline)
{
	struct pollfd poller = { .fd = pl_fd(rendezvous->context), .events = POLLIN };
	uint64_t now = cli_now(), wait;

	if (now >= deadline)
		return false;
	wait = (deadline - now) / CLI_NS_PER_MS + 1;
	poll(&poller, 1, (int)CLI_MIN(wait, (uint64_t)1000));
	return true;
}

bool rendezvous_is_loopback(const char *address)
{
	return !strncmp(address, "127.", 4) || !strncmp(address, "[::1]:", 6) || !strncmp(address, "localhost:", 10);
}
