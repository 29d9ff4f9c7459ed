/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A source that does not reach the memory that frames are to be written to: `peerlane bench workflow` leaves that way
 * out, says so with the source's reason, and goes on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

#include "bench/workflow/workflow.h"

#define PATIENCE (60 * CLI_NS_PER_S)
#define REASON "this source has no way to that memory"

struct source {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control, *ring;
};

/* How this end answers: refused is what has a token, which is the client's memory. */
static void answer(struct source *source, struct flow_message *message)
{
	size_t length = sizeof(message->token);
	struct pl_error error;

	if (message->type == FLOW_SETUP) {
		check_ok(pl_region_allocate(source->context, (message->depth + 1) * flow_stride(message->size),
					    PL_ACCESS_READ, &source->ring, &error),
			 &error);
		check_ok(pl_region_share(source->ring, NULL, message->token, &length, &error), &error);
		message->token_length = (uint16_t)length;
		message->machine.cores = 7;
	} else if (message->type == FLOW_RUN && message->token_length) {
		message->type = FLOW_FAILED;
		cli_fail(&message->error, -ENODEV, "NO-WAY", NULL, NULL, "%s", REASON);
	}
}

/* Until the client says goodbye. */
static void serve(struct source *source)
{
	struct flow_message message = { .type = FLOW_SETUP };
	uint8_t buffer[FLOW_MESSAGE_MAX];
	struct pl_error error;

	while (message.type != FLOW_BYE) {
		struct pl_operation *operation;
		struct pl_receipt receipt;

		check_ok(pl_receive(source->peer, FLOW_MESSAGE_TAG, UINT64_MAX, source->control, 0, FLOW_MESSAGE_MAX,
				    NULL, &operation, &error),
			 &error);
		check_ok(pl_wait(operation, PATIENCE, &receipt, &error), &error);
		check(flow_decode(pl_region_address(source->control), receipt.bytes, &message) == 0);
		answer(source, &message);
		check_ok(pl_send_copy(source->peer, FLOW_MESSAGE_TAG, buffer, flow_encode(&message, buffer), NULL,
				      &operation, &error),
			 &error);
		check_ok(pl_wait(operation, PATIENCE, NULL, &error), &error);
	}
}

static FILE *start_client(const char *address)
{
	char command[512];
	FILE *output;

	snprintf(command, sizeof(command),
		 "unset PEERLANE_KEY_FILE; timeout 60 '%s' bench workflow --arms BP --size 4K --frames 3 --json %s",
		 getenv("PEERLANE"), address);
	output = popen(command, "re");
	check(output);
	return output;
}

int main(void)
{
	struct source source = { 0 };
	struct pl_listener *listener;
	struct pl_error error;
	char address[96], text[16384];
	size_t length;
	FILE *client;

	if (!getenv("PEERLANE")) {
		puts("skipped: there is no command, PEERLANE does not name it");
		return 77;
	}
	check_ok(pl_open(&source.context, NULL, &error), &error);
	check_ok(pl_region_allocate(source.context, FLOW_MESSAGE_MAX, PL_ACCESS_LOCAL, &source.control, &error),
		 &error);
	check_ok(pl_listen(source.context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	client = start_client(address);
	check_ok(pl_accept(listener, PATIENCE, &source.peer, &error), &error);
	serve(&source);
	length = fread(text, 1, sizeof(text) - 1, client);
	text[length] = '\0';
	check(pclose(client) == 0);
	check(strstr(text, "\"left_out\":[") || strstr(text, "\"left_out\": ["));
	check(strstr(text, "\"BP\"") && strstr(text, "NO-WAY") && strstr(text, REASON));
	/* What the source told of its machine is there all the same. */
	check(strstr(text, "\"cores\":7") || strstr(text, "\"cores\": 7"));
	pl_close(source.context);
	return 0;
}
