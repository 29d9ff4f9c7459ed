/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a server does for a client.  As a source it has frames, which are read, or which it writes as soon as the
 * client says that there is room.  As a sink it reads each result as soon as it is told of it.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "bench/workflow/workflow.h"

#define BATCH 32

enum tag { TAG_CONTROL = 1, TAG_FRAME, TAG_OTHER };
#define TAG_SHIFT 56

static int fail(struct flow_server *server, const char *fact)
{
	return cli_fail(&server->error, -EPROTO, "BENCH-PROTOCOL", NULL,
			"use the same version of Peerlane at both ends", "%s", fact);
}

static int post_control(struct flow_server *server)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = (uint64_t)TAG_CONTROL << TAG_SHIFT;
	return pl_receive(server->peer, FLOW_MESSAGE_TAG, UINT64_MAX, server->control, 0, FLOW_MESSAGE_MAX, &attributes,
			  NULL, &server->error);
}

static int answer(struct flow_server *server, const struct flow_message *message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[FLOW_MESSAGE_MAX];

	attributes.user_data = (uint64_t)TAG_OTHER << TAG_SHIFT;
	return pl_send_copy(server->peer, FLOW_MESSAGE_TAG, buffer, flow_encode(message, buffer), &attributes, NULL,
			    &server->error);
}

static uint32_t *frame_of(const struct flow_server *server, uint64_t number)
{
	uint64_t offset = flow_content(number, server->setup.depth) * flow_stride(server->setup.size);

	return (uint32_t *)((uint8_t *)pl_region_address(server->ring) + offset);
}

/* -- what the client asks for ---------------------------------------------------------------------- */

static int set_up(struct flow_server *server, const struct flow_message *message)
{
	struct flow_message reply = { .type = FLOW_SETUP, .size = message->size, .depth = message->depth };
	size_t length = sizeof(reply.token);
	int rc;

	if (!flow_size_valid(message->size) || message->depth < 1 || message->depth > FLOW_DEPTH_MAX)
		return fail(server, "the client asks for frames of a size that there is not");
	pl_remote_release(server->remote);
	server->remote = NULL;
	pl_region_deregister(server->ring);
	server->ring = NULL;
	server->setup = *message;
	rc = pl_region_allocate(server->context, (message->depth + 1) * flow_stride(message->size), PL_ACCESS_READ,
				&server->ring, &server->error);
	if (rc == 0 && !message->sink)
		rc = pl_region_share(server->ring, NULL, reply.token, &length, &server->error);
	if (rc < 0)
		return rc;
	machine_read(&reply.machine);
	reply.token_length = message->sink ? 0 : (uint16_t)length;
	return answer(server, &reply);
}

static void fill(struct flow_server *server)
{
	uint64_t size = server->setup.size, seed = server->run.seed;

	for (uint32_t slot = 0; slot <= server->setup.depth; slot++)
		flow_frame_fill(frame_of(server, slot), size, seed, slot);
	if (server->run.fault == FLOW_FAULT_SOURCE)
		flow_frame_damage(frame_of(server, 1), size, seed);
}

/* What cannot be reached from here is no failure of this end: the client leaves that arm out. */
static int refuse_run(struct flow_server *server)
{
	struct flow_message refusal = { .type = FLOW_FAILED, .error = server->error };

	return answer(server, &refusal);
}

static int begin_run(struct flow_server *server, const struct flow_message *message)
{
	const struct flow_message ready = { .type = FLOW_RUN };
	uint64_t slots = message->depth * flow_stride(server->setup.size);

	if (!server->ring || message->depth < 1 || message->depth > server->setup.depth)
		return fail(server, "the client begins before it said what with");
	server->run = *message;
	server->begun = server->ended = server->allowed = 0;
	server->wrong = false;
	memset(&server->tally, 0, sizeof(server->tally));
	pl_remote_release(server->remote);
	server->remote = NULL;
	if (message->token_length) {
		int rc = pl_remote_import(server->peer, message->token, message->token_length, 0, &server->remote,
					  &server->error);

		if (rc < 0)
			return refuse_run(server);
		if (pl_remote_length(server->remote) < slots)
			return fail(server, "the client's memory is too small for its frames");
	}
	if (server->setup.sink)
		memset(pl_region_address(server->ring), 0, pl_region_length(server->ring));
	else
		fill(server);
	return answer(server, &ready);
}

/* A frame that has arrived at the sink. */
static void check_frame(struct flow_server *server, uint64_t number)
{
	uint32_t slot = flow_content(number, server->setup.depth);

	if (server->wrong || flow_result_equal(frame_of(server, number), server->setup.size, server->run.seed, slot,
					       true, &server->difference))
		return;
	server->wrong = true;
	server->difference.frame = number;
}

static int end_run(struct flow_server *server, const struct flow_message *message)
{
	struct flow_message reply = { .type = FLOW_CHECK, .frames = server->ended, .tally = server->tally };
	uint64_t kept = CLI_MIN(message->frames, (uint64_t)server->setup.depth + 1);

	if (server->setup.sink && message->frames != server->ended)
		return fail(server, "the client counts other frames than arrived");
	for (uint64_t i = 1; server->setup.sink && i <= kept; i++)
		check_frame(server, message->frames - i);
	reply.right = !server->wrong;
	reply.difference = server->difference;
	return answer(server, &reply);
}

static int take_message(struct flow_server *server, size_t length)
{
	static const struct flow_message goodbye = { .type = FLOW_BYE };
	struct flow_message message;
	int rc = flow_decode(pl_region_address(server->control), length, &message);

	if (rc < 0)
		return fail(server, "the client's message cannot be read");
	rc = post_control(server);
	if (rc < 0)
		return rc;
	switch (message.type) {
	case FLOW_SETUP:
		return set_up(server, &message);
	case FLOW_RUN:
		return begin_run(server, &message);
	case FLOW_CHECK:
		return end_run(server, &message);
	case FLOW_BYE:
		server->leaving = true;
		return answer(server, &goodbye);
	default:
		return fail(server, "the client asks for nothing known");
	}
}

/* -- frames ---------------------------------------------------------------------------------------- */

static int move_frame(struct flow_server *server, uint64_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t stride = flow_stride(server->setup.size), theirs = number % server->run.depth * stride;
	uint64_t ours = flow_content(number, server->setup.depth) * stride;

	attributes.user_data = (uint64_t)TAG_FRAME << TAG_SHIFT | number;
	if (server->setup.sink)
		return pl_read(server->peer, server->remote, theirs, server->ring, ours, server->setup.size,
			       &attributes, NULL, &server->error);
	attributes.flags = PL_NOTIFY;
	attributes.notify = number + 1;
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	return pl_write(server->peer, server->remote, theirs, server->ring, ours, server->setup.size, &attributes, NULL,
			&server->error);
}

/* The client's word: so many frames may be written, or are there to be read. */
static int take_word(struct flow_server *server, uint64_t allowed)
{
	int rc = 0;

	/* Of what it has room for again, the completions may still be on their way here. */
	if (!server->remote || allowed < server->allowed || allowed - server->ended > 2 * server->run.depth)
		return fail(server, "the client allows frames for which there is no room");
	server->allowed = allowed;
	while (rc == 0 && server->begun < server->allowed)
		rc = move_frame(server, server->begun++);
	return rc;
}

static int frame_moved(struct flow_server *server, const struct pl_receipt *receipt)
{
	uint64_t number = receipt->user_data & ((1ull << TAG_SHIFT) - 1);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	server->ended++;
	flow_tally_add(&server->tally, receipt);
	if (!server->setup.sink)
		return 0;
	if (number < server->run.checked)
		check_frame(server, number);
	attributes.user_data = (uint64_t)TAG_OTHER << TAG_SHIFT;
	return pl_notify(server->peer, number + 1, &attributes, NULL, &server->error);
}

/* -- the loop -------------------------------------------------------------------------------------- */

static int take(struct flow_server *server, const struct pl_completion *completion)
{
	const struct pl_receipt *receipt = &completion->receipt;

	if (receipt->kind == PL_KIND_NOTIFIED)
		return take_word(server, receipt->value);
	if (receipt->status < 0) {
		server->gone = receipt->user_data >> TAG_SHIFT == TAG_CONTROL;
		/* It says goodbye, or just goes, as people's interrupts do. */
		if (server->gone && server->leaving)
			return 0;
		server->error = completion->error;
		return receipt->status;
	}
	switch (receipt->user_data >> TAG_SHIFT) {
	case TAG_CONTROL:
		return take_message(server, receipt->bytes);
	case TAG_FRAME:
		return frame_moved(server, receipt);
	default:
		return 0;
	}
}

bool flow_interrupted(void)
{
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, SIGINT) || sigismember(&set, SIGTERM);
}

int flow_server_run(struct flow_server *server)
{
	struct pollfd ready = { .fd = server->fd, .events = POLLIN };
	struct pl_completion completions[BATCH];
	int rc = post_control(server);

	while (rc == 0 && !server->gone && !flow_interrupted()) {
		int count = pl_poll(server->context, completions, BATCH);

		for (int i = 0; rc == 0 && i < count; i++)
			rc = take(server, &completions[i]);
		if (count < BATCH)
			poll(&ready, 1, FLOW_POLL_MS);
	}
	return rc;
}
