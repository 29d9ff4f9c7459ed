/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Input: notifications that rank 0 of `peerlane bench --matrix` receives from one peer: 2 bytes of length, 8 of value, and
 * the data, for each.  HELLO is decoded.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/matrix/rendezvous_internal.h"

#define LENGTH_MAX (1u << 16)

static void check_hello(const struct inbox *inbox)
{
	uint8_t again[PL_NOTIFY_DATA_MAX];
	struct hello hello, second;
	int rc = hello_decode(inbox->bytes, inbox->length, &hello);
	size_t length;

	REQUIRE(rc == 0 || rc == -EPROTO || rc == -EPROTONOSUPPORT);
	if (rc)
		return;
	REQUIRE(hello.rank >= 0 && hello.size >= 0);
	length = hello_encode(&hello, again);
	REQUIRE(length <= sizeof(again) && hello_decode(again, length, &second) == 0);
	REQUIRE(second.rank == hello.rank && second.size == hello.size && second.process == hello.process &&
		!strcmp(second.run, hello.run) && !strcmp(second.host, hello.host) &&
		!strcmp(second.terms, hello.terms));
}

/* True if a notification is the next one of a message, or the first one of another. */
static bool continues_message(const struct inbox *before, const struct pl_completion *completion)
{
	uint32_t head[2];

	if (completion->data_length < sizeof(head))
		return false;
	memcpy(head, completion->data, sizeof(head));
	if (before->bytes && (head[0] != before->length || (uint32_t)completion->value != before->sequence))
		return false;
	return head[1] == before->got && head[0] <= LENGTH_MAX &&
	       head[1] + completion->data_length - sizeof(head) <= head[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct inbox inbox = { .bytes = NULL }, before;
	int rc = 0;

	while (rc == 0 && size >= 10) {
		size_t length = (size_t)data[0] | (size_t)data[1] << 8;
		struct pl_completion completion = { .kind = PL_KIND_NOTIFIED };

		memcpy(&completion.value, data + 2, sizeof(completion.value));
		data += 10;
		size -= 10;
		length = length < size ? length : size;
		length = length < PL_NOTIFY_DATA_MAX ? length : PL_NOTIFY_DATA_MAX;
		/* A copy of the exact length shows reads behind its end. */
		completion.data = malloc(length + !length);
		REQUIRE(completion.data);
		memcpy(completion.data, data, length);
		completion.data_length = (uint32_t)length;
		data += length;
		size -= length;
		before = inbox;
		rc = inbox_add(&inbox, &completion, LENGTH_MAX);
		REQUIRE(rc || continues_message(&before, &completion));
		free(completion.data);
		REQUIRE(rc == 0 || rc == -EPROTO || rc == -ENOMEM);
		REQUIRE(inbox.got <= inbox.length && (!inbox.ready || inbox.got == inbox.length));
		if (rc == 0 && inbox.ready) {
			if (inbox.type == RENDEZVOUS_HELLO)
				check_hello(&inbox);
			inbox_clear(&inbox);
		}
	}
	inbox_clear(&inbox);
	return 0;
}
