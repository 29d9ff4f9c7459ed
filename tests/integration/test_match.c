/* SPDX-License-Identifier: BSD-2-Clause */
/* Matching of messages with receives that a busy engine has not yet taken up; messages arrive under its lock. */
#include "core/message.h"
#include "support/cases.h"
#include "support/environment.h"

static const struct setting setting = {
	.name = "match",
	.fabric = "tcp",
	.host = "127.0.0.1",
	.progress = PL_PROGRESS_THREAD,
	.lanes = 1,
};

/* Posts a receive that the engine has not taken up when the message and then a notification arrive. */
static void queued_receive(void *tag)
{
	const struct pl_frame message = { .type = PL_FRAME_EAGER, .key = 7, .length = 8 };
	const struct pl_frame notification = { .type = PL_FRAME_NOTIFY, .offset = 9 };
	struct scenario_environment environment;
	struct pl_completion completions[3];
	const uint64_t word = 0x1122334455667788;
	bool others = tag != NULL;
	struct pl_engine *engine;
	struct buffer buffer;
	struct pl_error error;

	environment_open(&environment, &setting);
	buffer_open(&buffer, environment.far, 64, PL_ACCESS_LOCAL);
	engine = environment.far_peer->home;
	pl_engine_lock(engine);
	/* A receive with another tag does not match, and stays posted. */
	if (others)
		check_ok(pl_receive(environment.far_peer, 8, UINT64_MAX, &(struct pl_buffer){ buffer.region, 8, 8 },
				    NULL, NULL, &error),
			 &error);
	check_ok(pl_receive(environment.far_peer, 7, UINT64_MAX, &(struct pl_buffer){ buffer.region, 0, 8 }, NULL, NULL,
			    &error),
		 &error);
	check_number(pl_message_arrived(environment.far_peer, &message, &word), 0);
	check_number(pl_message_arrived(environment.far_peer, &notification, NULL), 0);
	pl_engine_unlock(engine);
	collect(&environment, environment.far, completions, 2);
	check_number(completions[0].kind, PL_KIND_RECEIVE);
	check_number(completions[0].tag, 7);
	check(bytes_equal(buffer.bytes, &word, 8));
	check_number(completions[1].kind, PL_KIND_NOTIFIED);
	check_number(completions[1].value, 9);
	if (others) {
		check_ok(pl_send_copy(environment.near_peer, 8, &word, 8, NULL, NULL, &error), &error);
		collect(&environment, environment.far, completions, 1);
		check_number(completions[0].tag, 8);
	}
	buffer_close(&buffer);
	environment_close(&environment);
}

static char others;
static const struct test_case cases[] = {
	{ "receive-queued", queued_receive, NULL, 20 },
	{ "receives-queued", queued_receive, &others, 20 },
};

int main(void)
{
	return cases_run("match", cases, sizeof(cases) / sizeof(cases[0]));
}
