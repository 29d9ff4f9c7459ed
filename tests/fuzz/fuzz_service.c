/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a message of the service that `peerlane serve` offers. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

/* The command is not part of the library, so its source is included. */
#include "cmd/transfer/service.c"
#include "cmd/transfer/service_client.c"

static void check_entries(const struct service_message *message)
{
	uint8_t again[SERVICE_ANSWER_MAX];
	struct service_entry entry;
	size_t offset = 0, length = 0;

	while (service_entry_next(message, &offset, &entry)) {
		REQUIRE(entry.name[0] && strlen(entry.name) <= SERVICE_NAME_MAX && entry.kind < SERVICE_KINDS);
		REQUIRE(service_entry_put(&entry, again, sizeof(again), &length));
		REQUIRE(length == offset && memcmp(again, message->entries, length) == 0);
	}
	REQUIRE(offset == message->entries_length);
}

static void check_files(const struct service_message *message)
{
	uint8_t again[SERVICE_ANSWER_MAX];
	struct service_file file;
	size_t offset = 0, before;

	while (before = offset, service_file_next(message, &offset, &file)) {
		size_t length = 0;

		REQUIRE(file.name[0] && strlen(file.name) <= SERVICE_NAME_MAX && file.mode <= FILE_MODE_MAX);
		REQUIRE(message->answer || !file.status);
		REQUIRE(service_file_put(&file, again, sizeof(again), &length) && length == offset - before);
		REQUIRE(file.status || memcmp(again, message->files + before, length) == 0);
	}
	REQUIRE(offset == message->files_length);
}

static void check_ranges(const struct service_message *message)
{
	struct service_range range;
	size_t offset = 0;
	uint64_t end = 0;

	while (service_range_next(message, &offset, &range)) {
		REQUIRE(range.length && range.offset >= end && range.length <= UINT64_MAX - range.offset);
		end = range.offset + range.length;
	}
	REQUIRE(offset == message->ranges_length);
}

static void check_clients(const struct service_message *message)
{
	uint8_t again[SERVICE_ANSWER_MAX];
	struct service_client client;
	size_t offset = 0, length = 0;
	uint64_t last = UINT64_MAX;

	while (service_client_next(message, &offset, &client)) {
		REQUIRE(client.number && client.number < last);
		REQUIRE(service_client_put(&client, again, sizeof(again), &length));
		REQUIRE(length == offset && memcmp(again, message->clients, length) == 0);
		last = client.number;
	}
	REQUIRE(offset == message->clients_length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[SERVICE_ANSWER_MAX];
	struct service_message message;
	int rc, length;

	/* The service receives no longer message. */
	if (size > SERVICE_ANSWER_MAX)
		return 0;
	rc = service_decode(data, size, &message);
	REQUIRE(rc == 0 || rc == -EPROTO);
	if (rc)
		return 0;
	REQUIRE(message.type >= SERVICE_LIST && message.type < SERVICE_TYPES);
	REQUIRE(message.token_length <= PL_TOKEN_MAX && strlen(message.name) <= SERVICE_NAME_MAX);
	REQUIRE(message.answer || !message.status);
	check_entries(&message);
	check_files(&message);
	check_ranges(&message);
	check_clients(&message);
	if (service_name_valid(message.name))
		REQUIRE(message.name[0] != '/' && !strstr(message.name, "/../"));
	length = service_encode(&message, again, sizeof(again));
	REQUIRE(length == (int)size);
	/* An unknown status decodes to a general failure.  All other bytes survive the round trip. */
	REQUIRE(message.status || memcmp(again, data, size) == 0);
	return 0;
}
