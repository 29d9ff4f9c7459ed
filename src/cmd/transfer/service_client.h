/* SPDX-License-Identifier: BSD-2-Clause */
/* Clients of a server in the answers to WATCH. */
#ifndef PL_CMD_TRANSFER_SERVICE_CLIENT_H
#define PL_CMD_TRANSFER_SERVICE_CLIENT_H

#include "cmd/transfer/cursor.h"
#include "cmd/transfer/service.h"

struct service_client {
	uint64_t number;        /* of the client, from 1, in the order of connecting */
	uint64_t connected;     /* nanoseconds since it connected */
	uint64_t read, written; /* bytes, as the client reported */
	uint64_t requests;
	bool routes;             /* `direct` and `staged` are valid */
	uint64_t direct, staged; /* bytes that were moved without staging, and staged; others: unknown */
	uint32_t open;    /* names that it has open */
	char address[80]; /* host:port */
	char fabric[16];
	char identity[256];              /* name or fingerprint; "": none */
	char name[SERVICE_NAME_MAX + 1]; /* that it opened last, and has open; "": none */
};

/* Appends a client at *length.  Returns false if it does not fit into `size`. */
bool service_client_put(const struct service_client *client, uint8_t *buffer, size_t size, size_t *length);
/* Reads the client at *offset and advances *offset.  Returns false at the end. */
bool service_client_next(const struct service_message *message, size_t *offset, struct service_client *client);
/* Checks the clients of an answer, up to the end of the cursor: their numbers descend. */
void service_clients_decode(struct cursor *cursor, struct service_message *message);

#endif
