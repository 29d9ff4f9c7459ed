/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Source that cannot access the memory that it should write frames to: `peerlane bench workflow` skips the method,
 * reports the source's reason, and continues.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

#include "bench/workflow/workflow.h"

#define TIMEOUT (60 * CLI_NS_PER_S)
#define REASON "the source cannot access the memory"

struct source {
	struct pl_context *context;
	struct pl_peer *peer;
	struct pl_region *control, *ring;
};

/* Answers a request.  Refuses runs that have a token of the client's memory. */
static void fill_answer(struct source *source, struct workflow_message *message)
{
	size_t length = sizeof(message->token);
	struct pl_error error;

	if (message->type == WORKFLOW_SETUP) {
		check_ok(pl_region_allocate(source->context, (message->depth + 1) * workflow_stride(message->size),
					    PL_ACCESS_READ, &source->ring, &error),
			 &error);
		check_ok(pl_region_share(source->ring, NULL, message->token, &length, &error), &error);
		message->token_length = (uint16_t)length;
		message->machine.cores = 7;
	} else if (message->type == WORKFLOW_RUN && message->token_length) {
		message->type = WORKFLOW_FAILED;
		cli_fail(&message->error, -ENODEV, "NO-ACCESS", NULL, NULL, "%s", REASON);
	}
}

/* Serves the client until it says goodbye. */
static void serve_client(struct source *source)
{
	struct workflow_message message = { .type = WORKFLOW_SETUP };
	uint8_t buffer[WORKFLOW_MESSAGE_MAX];
	struct pl_error error;

	while (message.type != WORKFLOW_BYE) {
		struct pl_operation *operation;
		struct pl_completion receipt;

		check_ok(pl_receive(source->peer, WORKFLOW_MESSAGE_TAG, UINT64_MAX,
				    &(struct pl_buffer){ source->control, 0, WORKFLOW_MESSAGE_MAX }, NULL, &operation,
				    &error),
			 &error);
		check_ok(pl_wait(operation, TIMEOUT, &receipt, &error), &error);
		check(workflow_decode(pl_region_address(source->control), receipt.bytes, &message) == 0);
		fill_answer(source, &message);
		check_ok(pl_send_copy(source->peer, WORKFLOW_MESSAGE_TAG, buffer, workflow_encode(&message, buffer),
				      NULL, &operation, &error),
			 &error);
		check_ok(pl_wait(operation, TIMEOUT, NULL, &error), &error);
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
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error;
	char address[96], text[16384];
	size_t length;
	FILE *client;

	if (!getenv("PEERLANE")) {
		puts("skipped: PEERLANE does not name the command");
		return 77;
	}
	options.program = "peerlane bench workflow";
	check_ok(pl_open(&source.context, &options, &error), &error);
	check_ok(pl_region_allocate(source.context, WORKFLOW_MESSAGE_MAX, PL_ACCESS_LOCAL, &source.control, &error),
		 &error);
	check_ok(pl_listen(source.context, "127.0.0.1:0", &listener, &error), &error);
	pl_listener_address(listener, address, sizeof(address));
	client = start_client(address);
	check_ok(pl_accept(listener, TIMEOUT, &source.peer, &error), &error);
	serve_client(&source);
	length = fread(text, 1, sizeof(text) - 1, client);
	text[length] = '\0';
	check(pclose(client) == 0);
	check(strstr(text, "\"left_out\":[") || strstr(text, "\"left_out\": ["));
	check(strstr(text, "\"BP\"") && strstr(text, "NO-ACCESS") && strstr(text, REASON));
	/* The document describes the source's machine although the method was skipped. */
	check(strstr(text, "\"cores\":7") || strstr(text, "\"cores\": 7"));
	pl_close(source.context);
	return 0;
}
