/* SPDX-License-Identifier: BSD-2-Clause */
/* A mailbox whose writes fail at a chosen place: each message arrives once, or the connection is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/region.h"
#include "mailbox.c"

struct plugin plugin;

static struct {
	int results[2]; /* of the next writes */
	unsigned writes, losses;
} end;

int link_write_now(struct plugin_link *link, const struct pl_transfer *transfer)
{
	(void)link;
	(void)transfer;
	assert_in_range(end.writes, 0, 1);
	return end.results[end.writes++];
}

void link_lost(struct plugin_link *link, const char *reason)
{
	(void)reason;
	link->state = LINK_LOST;
	end.losses++;
}

void link_send(struct plugin_link *link, const struct message *message)
{
	(void)link;
	(void)message;
	fail();
}

void message_handle(struct plugin_link *link, const struct message *message)
{
	link_send(link, message);
}

void plugin_info(const char *format, ...)
{
	(void)format;
	fail();
}

struct attempt {
	int results[2];
	unsigned writes;
	bool put, lost;
};

static const struct attempt attempts[] = {
	{ { 0, 0 }, 2, true, false },
	/* The other end takes nothing: the caller sends a notification. */
	{ { -EACCES, 0 }, 1, false, false },
	{ { -ECANCELED, 0 }, 1, false, false },
	{ { 0, -EACCES }, 2, false, false },
	/* The other end may take the message. */
	{ { 0, -ECANCELED }, 2, false, true },
	{ { 0, -ETIMEDOUT }, 2, false, true },
};

static void test_uncertain_writes(void **state)
{
	static uint8_t inbox[MAILBOX_SIZE];
	static struct slot outbox;
	struct pl_region regions[2] = { { .memory.address = inbox }, { .memory.address = &outbox } };

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(attempts); i++) {
		struct plugin_link link = { .state = LINK_UP };
		struct mailbox mailbox = {
			.owner = &link, .inbox = &regions[0], .outbox = &regions[1], .mapped = true, .sends = true
		};

		link.mailbox = &mailbox;
		end.writes = end.losses = 0;
		memcpy(end.results, attempts[i].results, sizeof(end.results));
		assert_int_equal(mailbox_send(&link, 5, "text", 4), attempts[i].put);
		assert_int_equal(end.writes, attempts[i].writes);
		assert_int_equal(end.losses, attempts[i].lost);
		/* Later messages are notifications. */
		assert_int_equal(mailbox.mapped, attempts[i].put);
		assert_int_equal(mailbox.sent, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uncertain_writes),
	};

	return cmocka_run_group_tests_name("nccl mailbox", tests, NULL, NULL);
}
