/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Session of a server with one client.  A source offers frames, which the client reads, or which the source writes as
 * soon as the client has room.  A sink reads each result as soon as it is notified of it.
 */
#include "bench/workflow/workflow.h"

#include <poll.h>
#include <string.h>

#include "bench/common/process.h"

#define BATCH 32

enum tag { TAG_CONTROL = 1, TAG_FRAME, TAG_OTHER };
#define TAG_SHIFT 56

static int fail_workflow_protocol(struct workflow_server *server, const char *fact)
{
	return cli_fail(&server->error, -EPROTO, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT, "%s", fact);
}

static int post_control_receive(struct workflow_server *server)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = (uint64_t)TAG_CONTROL << TAG_SHIFT;
	return pl_receive(server->peer, WORKFLOW_MESSAGE_TAG, UINT64_MAX,
			  &(struct pl_buffer){ server->control, 0, WORKFLOW_MESSAGE_MAX }, &attributes, NULL,
			  &server->error);
}

static int send_session_answer(struct workflow_server *server, const struct workflow_message *message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[WORKFLOW_MESSAGE_MAX];

	attributes.user_data = (uint64_t)TAG_OTHER << TAG_SHIFT;
	return pl_send_copy(server->peer, WORKFLOW_MESSAGE_TAG, buffer, workflow_encode(message, buffer), &attributes,
			    NULL, &server->error);
}

static uint32_t *server_frame(const struct workflow_server *server, uint64_t number)
{
	uint64_t offset = workflow_content_slot(number, server->setup.depth) * workflow_stride(server->setup.size);

	return (uint32_t *)((uint8_t *)pl_region_address(server->ring) + offset);
}

static int set_up_frames(struct workflow_server *server, const struct workflow_message *message)
{
	struct workflow_message reply = { .type = WORKFLOW_SETUP, .size = message->size, .depth = message->depth };
	size_t length = sizeof(reply.token);
	int rc;

	if (!workflow_size_valid(message->size) || message->depth < 1 || message->depth > WORKFLOW_DEPTH_MAX)
		return fail_workflow_protocol(server, "the client requested an invalid frame size or depth");
	rc = workflow_stream_close(server);
	if (rc < 0)
		return rc;
	pl_remote_release(server->remote);
	server->remote = NULL;
	pl_region_deregister(server->ring);
	server->ring = NULL;
	server->setup = *message;
	rc = pl_region_allocate(server->context, (message->depth + 1) * workflow_stride(message->size), PL_ACCESS_READ,
				&server->ring, &server->error);
	if (rc == 0 && !message->sink)
		rc = pl_region_share(server->ring, NULL, reply.token, &length, &server->error);
	if (rc < 0)
		return rc;
	machine_read(&reply.machine);
	reply.token_length = message->sink ? 0 : (uint16_t)length;
	return send_session_answer(server, &reply);
}

static void fill_source_frames(struct workflow_server *server)
{
	uint64_t size = server->setup.size, seed = server->run.seed;

	for (uint32_t slot = 0; slot <= server->setup.depth; slot++)
		workflow_frame_fill(server_frame(server, slot), size, seed, slot);
	if (server->run.fault == WORKFLOW_FAULT_SOURCE)
		workflow_frame_damage(server_frame(server, 1), size, seed);
}

/*
 * Reports that the client's memory cannot be accessed from here; the client then skips the method, and the session goes
 * on.
 */
static int send_run_refusal(struct workflow_server *server)
{
	struct workflow_message refusal = { .type = WORKFLOW_FAILED, .error = server->error };

	return send_session_answer(server, &refusal);
}

static int begin_client_run(struct workflow_server *server, const struct workflow_message *message)
{
	const struct workflow_message ready = { .type = WORKFLOW_RUN };
	uint64_t slots = message->depth * workflow_stride(server->setup.size);
	int rc = workflow_stream_close(server);

	if (rc < 0)
		return rc;
	if (!server->ring || message->depth < 1 || message->depth > server->setup.depth)
		return fail_workflow_protocol(server, "the client started a run before a valid setup");
	server->run = *message;
	server->begun = server->ended = server->allowed = 0;
	server->wrong = false;
	memset(&server->totals, 0, sizeof(server->totals));
	pl_remote_release(server->remote);
	server->remote = NULL;
	if (message->token_length) {
		rc = pl_remote_import(server->peer, message->token, message->token_length, 0, &server->remote,
				      &server->error);
		if (rc < 0)
			return send_run_refusal(server);
		if (pl_remote_length(server->remote) < slots)
			return fail_workflow_protocol(server, "the client's memory is smaller than its ring of frames");
	}
	if (server->setup.sink)
		memset(pl_region_address(server->ring), 0, pl_region_length(server->ring));
	else if (message->stream)
		rc = workflow_stream_open(server);
	else
		fill_source_frames(server);
	return rc < 0 ? send_run_refusal(server) : send_session_answer(server, &ready);
}

/* Compares all words of a frame that the sink has read. */
static void check_sink_frame(struct workflow_server *server, uint64_t number)
{
	uint32_t slot = workflow_content_slot(number, server->setup.depth);

	if (server->wrong || workflow_result_equal(server_frame(server, number), server->setup.size, server->run.seed,
						   slot, true, &server->difference))
		return;
	server->wrong = true;
	server->difference.frame = number;
}

static int end_client_run(struct workflow_server *server, const struct workflow_message *message)
{
	struct workflow_message reply = { .type = WORKFLOW_CHECK, .frames = server->ended, .totals = server->totals };
	uint64_t count = CLI_MIN(message->frames, (uint64_t)server->setup.depth + 1);
	int rc = workflow_stream_close(server);

	if (rc < 0)
		return rc;
	if (server->setup.sink && message->frames != server->ended)
		return fail_workflow_protocol(server, "the client's count of frames differs from the sink's");
	for (uint64_t i = 1; server->setup.sink && i <= count; i++)
		check_sink_frame(server, message->frames - i);
	reply.right = !server->wrong;
	reply.difference = server->difference;
	return send_session_answer(server, &reply);
}

static int handle_client_message(struct workflow_server *server, size_t length)
{
	static const struct workflow_message goodbye = { .type = WORKFLOW_BYE };
	struct workflow_message message;
	int rc = workflow_decode(pl_region_address(server->control), length, &message);

	if (rc < 0)
		return fail_workflow_protocol(server, "the client's message is malformed");
	rc = post_control_receive(server);
	if (rc < 0)
		return rc;
	switch (message.type) {
	case WORKFLOW_SETUP:
		return set_up_frames(server, &message);
	case WORKFLOW_RUN:
		return begin_client_run(server, &message);
	case WORKFLOW_CHECK:
		return end_client_run(server, &message);
	case WORKFLOW_BYE:
		server->leaving = true;
		return send_session_answer(server, &goodbye);
	default:
		return fail_workflow_protocol(server, "the client sent a request of unknown type");
	}
}

static int start_frame_transfer(struct workflow_server *server, uint64_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint64_t stride = workflow_stride(server->setup.size), remote_offset = number % server->run.depth * stride;
	uint64_t local_offset = workflow_content_slot(number, server->setup.depth) * stride;

	attributes.user_data = (uint64_t)TAG_FRAME << TAG_SHIFT | number;
	if (server->setup.sink)
		return pl_read(server->peer,
			       &(struct pl_transfer){ server->remote, remote_offset, server->ring, local_offset,
						      server->setup.size },
			       &attributes, NULL, &server->error);
	attributes.flags = PL_NOTIFY;
	attributes.notify = number + 1;
	attributes.visible = PL_VISIBLE_GPU_VISIBLE;
	return pl_write(
		server->peer,
		&(struct pl_transfer){ server->remote, remote_offset, server->ring, local_offset, server->setup.size },
		&attributes, NULL, &server->error);
}

/* Handles a notification: the number of frames that may be written, or that are ready to be read; or a subscription. */
static int handle_client_notification(struct workflow_server *server, uint64_t allowed)
{
	int rc = 0;

	if (server->stream.publisher)
		return workflow_stream_start(server);
	/* A slot may be free again before the completion of its last frame has arrived. */
	if (!server->remote || allowed < server->allowed || allowed - server->ended > 2 * server->run.depth)
		return fail_workflow_protocol(server, "the client allowed more frames than its ring holds");
	server->allowed = allowed;
	while (rc == 0 && server->begun < server->allowed)
		rc = start_frame_transfer(server, server->begun++);
	return rc;
}

static int complete_frame_transfer(struct workflow_server *server, const struct pl_completion *receipt)
{
	uint64_t number = receipt->user_data & ((1ull << TAG_SHIFT) - 1);
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	server->ended++;
	workflow_totals_add(&server->totals, receipt);
	if (!server->setup.sink)
		return 0;
	if (number < server->run.checked)
		check_sink_frame(server, number);
	attributes.user_data = (uint64_t)TAG_OTHER << TAG_SHIFT;
	return pl_notify(server->peer, number + 1, NULL, 0, &attributes, NULL, &server->error);
}

static int handle_session_completion(struct workflow_server *server, const struct pl_completion *completion)
{
	/* The control receive fails, too, when the peer is lost. */
	if (completion->kind == PL_KIND_LOST)
		return 0;
	if (completion->kind == PL_KIND_NOTIFIED)
		return handle_client_notification(server, completion->value);
	if (completion->status < 0) {
		server->gone = completion->user_data >> TAG_SHIFT == TAG_CONTROL;
		/* The client said goodbye, or was interrupted. */
		if (server->gone && server->leaving)
			return 0;
		return pl_completion_error(server->context, completion, &server->error);
	}
	switch (completion->user_data >> TAG_SHIFT) {
	case TAG_CONTROL:
		return handle_client_message(server, completion->bytes);
	case TAG_FRAME:
		return complete_frame_transfer(server, completion);
	default:
		return 0;
	}
}

int workflow_server_run(struct workflow_server *server)
{
	struct pollfd ready = { .fd = server->fd, .events = POLLIN };
	struct pl_completion completions[BATCH];
	int rc = post_control_receive(server);

	while (rc == 0 && !server->gone && !bench_signal_pending()) {
		int count = pl_poll(server->context, completions, BATCH);

		for (int i = 0; rc == 0 && i < count; i++)
			rc = handle_session_completion(server, &completions[i]);
		if (count < BATCH)
			poll(&ready, 1, WORKFLOW_POLL_MS);
	}
	return rc;
}
