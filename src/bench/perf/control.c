/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/perf/control.h"

#include <unistd.h>

#include "bench/perf/progress.h"
#include "bench/perf/receives.h"
#include "bench/perf/run.h"

#define FAILURE_TIMEOUT (500 * CLI_NS_PER_MS)
#define CLOSE_TIMEOUT (2 * CLI_NS_PER_S)
#define CLOSE_POLL_US 200

struct bench_peer *bench_control_peer(const struct bench_endpoint *ep, uint32_t number)
{
	return &ep->peers[number / BENCH_POSTED_CONTROLS];
}

int bench_control_post(struct bench_endpoint *ep, uint32_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;
	int rc;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_CONTROL, number);
	rc = pl_receive(bench_control_peer(ep, number)->control, BENCH_MESSAGE_CONTROL, UINT64_MAX,
			&(struct pl_buffer){ ep->control, number * BENCH_MESSAGE_MAX, BENCH_MESSAGE_MAX }, &attributes,
			NULL, &error);
	return rc < 0 ? bench_fail_with(ep, &error) : 0;
}

int bench_control_send(struct bench_endpoint *ep, const struct bench_message *message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[BENCH_MESSAGE_MAX];
	size_t length = bench_message_encode(message, buffer);
	struct pl_error error;
	int rc;

	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_OTHER, 0);
	rc = pl_send_copy(ep->peer->control, BENCH_MESSAGE_CONTROL, buffer, length, &attributes, NULL, &error);
	bench_restart_timeout(ep);
	return rc < 0 ? bench_fail_with(ep, &error) : 0;
}

int bench_control_send_type(struct bench_endpoint *ep, enum bench_message_type type)
{
	return bench_control_send(ep, &(struct bench_message){ .type = type });
}

void bench_control_send_failure(struct bench_endpoint *ep)
{
	struct bench_message message = { .type = BENCH_FAILED, .error = ep->error };
	uint8_t buffer[BENCH_MESSAGE_MAX];
	struct pl_operation *operation;
	size_t length = bench_message_encode(&message, buffer);

	for (uint32_t i = 0; i < ep->peer_count; i++) {
		const struct bench_peer *peer = &ep->peers[i];

		if (peer->control && !peer->lost &&
		    pl_send_copy(peer->control, BENCH_MESSAGE_CONTROL, buffer, length, NULL, &operation, NULL) == 0)
			pl_wait(operation, FAILURE_TIMEOUT, NULL, NULL);
	}
}

/* Handles a message that the server receives during a run. */
static int handle_run_message(struct bench_endpoint *ep, const struct bench_message *message)
{
	if (!ep->in_run || (message->type == BENCH_GO && ep->started))
		return bench_fail_protocol(ep, "the peer sent GO or FINISH outside a run");
	if (message->type == BENCH_GO) {
		ep->started = true;
		bench_usage_begin(ep);
		return 0;
	}
	ep->finished = true;
	ep->peer->result = message->result;
	return 0;
}

static int handle_control_message(struct bench_endpoint *ep, struct bench_peer *peer,
				  const struct bench_message *message)
{
	if (message->type == BENCH_FAILED)
		return bench_fail_with(ep, &message->error);
	if (ep->server && (message->type == BENCH_GO || message->type == BENCH_FINISH))
		return handle_run_message(ep, message);
	if (peer->has_message)
		return bench_fail_protocol(ep, "the peer sent a request before it received the last answer");
	peer->inbox = *message;
	peer->has_message = true;
	return 0;
}

int bench_control_complete(struct bench_endpoint *ep, uint32_t number, uint64_t length)
{
	const uint8_t *bytes = (const uint8_t *)pl_region_address(ep->control) + number * BENCH_MESSAGE_MAX;
	struct bench_message message;
	int rc = bench_message_decode(bytes, length, &message);

	if (rc == -EPROTONOSUPPORT)
		return bench_fail_protocol(ep, "the peer uses another version of the benchmark's messages");
	if (rc < 0)
		return bench_fail_protocol(ep, "the peer sent a message that is not one of the benchmark");
	rc = handle_control_message(ep, bench_control_peer(ep, number), &message);
	return rc < 0 ? rc : bench_control_post(ep, number);
}

int bench_wait_flag(struct bench_endpoint *ep, const bool *flag, uint64_t timeout)
{
	while (!*flag) {
		int rc = bench_progress(ep);

		if (rc == 0)
			rc = bench_idle(ep, timeout);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int bench_control_receive(struct bench_endpoint *ep, uint64_t timeout)
{
	int rc = bench_wait_flag(ep, &ep->peer->has_message, timeout);

	if (rc == 0)
		ep->peer->has_message = false;
	return rc;
}

int bench_control_expect(struct bench_endpoint *ep, enum bench_message_type type, uint64_t timeout)
{
	int rc = bench_control_receive(ep, timeout);

	if (rc == 0 && ep->peer->inbox.type != type)
		return bench_fail_protocol(ep, "the peer answered with a message of another type");
	return rc;
}

void bench_wait_peer_close(struct bench_endpoint *ep)
{
	uint64_t deadline = cli_now() + CLOSE_TIMEOUT;

	ep->closing = true;
	while (ep->peer->control && !ep->peer->lost && cli_now() < deadline) {
		int count = pl_poll(ep->context, ep->completions, BENCH_BATCH);

		for (int i = 0; i < count; i++)
			if (ep->completions[i].user_data >> BENCH_TAG_SHIFT == BENCH_TAG_CONTROL &&
			    ep->completions[i].status < 0)
				ep->peer->lost = true;
		if (count == 0)
			usleep(CLOSE_POLL_US);
	}
}
