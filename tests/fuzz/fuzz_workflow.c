/* SPDX-License-Identifier: BSD-2-Clause */
/* Input: a message between the two ends of `peerlane bench workflow`. */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "bench/workflow/workflow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t again[WORKFLOW_MESSAGE_MAX];
	struct workflow_message message, second;
	size_t length;
	int rc;

	/* The command receives no longer message. */
	if (size > WORKFLOW_MESSAGE_MAX)
		return 0;
	rc = workflow_decode(data, size, &message);
	REQUIRE(rc == 0 || rc == -EPROTO || rc == -EPROTONOSUPPORT);
	if (rc)
		return 0;
	REQUIRE(message.type >= WORKFLOW_SETUP && message.type <= WORKFLOW_FAILED);
	REQUIRE(message.token_length <= PL_TOKEN_MAX && message.totals.route <= PL_ROUTE_STAGED);
	REQUIRE(message.type != WORKFLOW_FAILED || message.error.code < 0);
	/*
	 * Decoding removes terminal control characters from texts, so the bytes may differ, but the message must not.
	 */
	length = workflow_encode(&message, again);
	REQUIRE(length <= size);
	REQUIRE(workflow_decode(again, length, &second) == 0);
	REQUIRE(message.type == second.type && message.token_length == second.token_length);
	REQUIRE(message.seed == second.seed && message.frames == second.frames && message.depth == second.depth);
	REQUIRE(message.stream == second.stream);
	REQUIRE(!strcmp(message.error.message, second.error.message));
	REQUIRE(!strcmp(message.totals.reason, second.totals.reason));
	return 0;
}
