/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/service_client.h"

static void code_client(struct cursor *cursor, struct service_client *client)
{
	code_u64(cursor, &client->number);
	code_u64(cursor, &client->connected);
	code_u64(cursor, &client->read);
	code_u64(cursor, &client->written);
	code_u64(cursor, &client->requests);
	code_u32(cursor, &client->open);
	code_string(cursor, client->address, sizeof(client->address));
	code_string(cursor, client->fabric, sizeof(client->fabric));
	code_string(cursor, client->identity, sizeof(client->identity));
	code_string(cursor, client->name, sizeof(client->name));
	if (client->routes)
		code_u64(cursor, &client->direct);
	if (client->routes)
		code_u64(cursor, &client->staged);
}

bool service_client_put(const struct service_client *client, uint8_t *buffer, size_t size, size_t *length)
{
	struct cursor cursor = { .at = buffer + *length, .end = buffer + size, .writing = true };
	struct service_client copy = *client;

	code_client(&cursor, &copy);
	if (!cursor.bad)
		*length = (size_t)(cursor.at - buffer);
	return !cursor.bad;
}

bool service_client_next(const struct service_message *message, size_t *offset, struct service_client *client)
{
	struct cursor cursor = { 0 };

	if (*offset >= message->clients_length)
		return false;
	*client = (struct service_client){ .routes = message->more & SERVICE_MORE_ROUTES };
	cursor.at = (uint8_t *)(uintptr_t)message->clients + *offset;
	cursor.end = message->clients + message->clients_length;
	code_client(&cursor, client);
	*offset = (size_t)(cursor.at - message->clients);
	return !cursor.bad;
}

void service_clients_decode(struct cursor *cursor, struct service_message *message)
{
	uint64_t last = UINT64_MAX;
	struct service_client client = { .routes = message->more & SERVICE_MORE_ROUTES };

	message->clients = cursor->at;
	while (!cursor->bad && cursor->at < cursor->end) {
		code_client(cursor, &client);
		cursor->bad |= client.number >= last || client.number == 0;
		last = client.number;
	}
	message->clients_length = (size_t)(cursor->at - message->clients);
}
