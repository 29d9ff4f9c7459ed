/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of the connection: its memory, its messages, and the loop that all completions go through. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/perf/post.h"

#define SPINS_BETWEEN_CHECKS 1024u
#define ROUNDS_BEFORE_SLEEP 2000u
#define SLEEP_US 200
#define SLEEP_PASSIVE_US 5000
#define POLL_MS 50
#define FAREWELL (500 * CLI_NS_PER_MS)
#define LINGER (2 * CLI_NS_PER_S)

int bench_fail_as(struct bench_end *end, const struct pl_error *error)
{
	if (!end->error.code)
		end->error = *error;
	return end->error.code;
}

int bench_fail(struct bench_end *end, int code, const char *id, const char *object, const char *hint,
	       const char *format, ...)
{
	struct pl_error error;
	char text[sizeof(error.message)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	cli_fail(&error, code, id, object, hint, "%s", text);
	return bench_fail_as(end, &error);
}

static int protocol_error(struct bench_end *end, const char *fact)
{
	return bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, "use the same version of Peerlane at both ends", "%s",
			  fact);
}

/* -- opening and closing -------------------------------------------------------------------------- */

struct bench_end *bench_end_new(void)
{
	return aligned_alloc(_Alignof(struct bench_end), sizeof(struct bench_end));
}

int bench_end_open(struct bench_end *end, const struct bench_options *options, uint32_t fars, struct pl_error *error)
{
	bool manual = options->manual;
	struct pl_gpu_info gpu = PL_GPU_INFO_INIT;
	sigset_t set;
	struct cli_options common = options->common;
	int rc;

	memset(end, 0, sizeof(*end));
	/* Blocked before the library makes its threads; bench_interrupted() looks for them. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	end->manual = manual;
	end->huge = options->huge;
	snprintf(end->memory, sizeof(end->memory), "%s", options->memory);
	bench_cost_open(&end->cost, "/sys");
	/* Loads the driver, so that the library knows what is to come when it chooses the fabric. */
	if (strcmp(end->memory, "host"))
		pl_gpu_query(0, &gpu, NULL);
	end->fars = calloc(fars, sizeof(*end->fars));
	if (!end->fars)
		return cli_fail_errno(error, -ENOMEM, "calloc", NULL);
	end->far = end->fars;
	end->far_count = fars;
	end->timeout = options->common.timeout ? options->common.timeout : 30 * CLI_NS_PER_S;
	/* So that there is a difference between memory that is registered anew and memory that is new. */
	common.keep = options->plan.op == BENCH_REGISTER ? BENCH_SIZE_MAX : 0;
	rc = cli_open(&end->context, &common, manual ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD, error);
	if (rc == 0 && !manual) {
		end->fd = pl_fd(end->context);
		if (end->fd < 0)
			rc = cli_fail_errno(error, end->fd, "pl_fd", NULL);
	}
	if (rc == 0)
		rc = pl_region_allocate(end->context, (size_t)fars * BENCH_POSTED_CONTROLS * BENCH_MESSAGE_MAX,
					PL_ACCESS_LOCAL, &end->control, error);
	if (rc < 0)
		bench_end_close(end);
	return rc;
}

void bench_end_close(struct bench_end *end)
{
	if (end->context)
		bench_end_free_memory(end);
	pl_close(end->context);
	end->context = NULL;
	bench_cost_close(&end->cost);
	bench_samples_close(&end->samples);
	bench_flow_free(&end->flow);
	for (uint32_t i = 0; end->fars && i < end->far_count; i++)
		free(end->fars[i].stats);
	free(end->fars);
	end->fars = NULL;
}

static struct bench_far *far_of_control(const struct bench_end *end, uint32_t number)
{
	return &end->fars[number / BENCH_POSTED_CONTROLS];
}

static int post_control(struct bench_end *end, uint32_t number)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	struct pl_error error;
	int rc;

	attributes.timeout = UINT64_MAX;
	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_CONTROL, number);
	rc = pl_receive(far_of_control(end, number)->peer, BENCH_MESSAGE_CONTROL, UINT64_MAX, end->control,
			number * BENCH_MESSAGE_MAX, BENCH_MESSAGE_MAX, &attributes, NULL, &error);
	return rc < 0 ? bench_fail_as(end, &error) : 0;
}

int bench_end_begin(struct bench_end *end)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc = 0;

	pl_peer_query(end->far->peer, &info);
	end->one_sided = strcmp(info.fabric, "tcp") != 0;
	for (uint32_t i = 0; rc == 0 && i < BENCH_POSTED_CONTROLS; i++)
		rc = post_control(end, (uint32_t)(end->far - end->fars) * BENCH_POSTED_CONTROLS + i);
	bench_patience(end);
	return rc;
}

void bench_end_reset(struct bench_end *end)
{
	bench_links_close(end);
	for (uint32_t i = 0; i < end->far_count; i++) {
		pl_peer_close(end->fars[i].peer);
		memset(&end->fars[i], 0, sizeof(end->fars[i]));
	}
	/* What was under way has ended; its completions must not meet the next connection. */
	while (pl_poll(end->context, end->completions, BENCH_BATCH) > 0)
		;
	bench_end_free_memory(end);
	end->error.code = 0;
	end->go = end->finished = end->busy = end->leaving = false;
	end->receives = 0;
}

/* -- memory --------------------------------------------------------------------------------------- */

static unsigned access_of(enum bench_op op)
{
	switch (op) {
	case BENCH_WRITE:
	case BENCH_REGISTER:
		return PL_ACCESS_WRITE;
	case BENCH_READ:
		return PL_ACCESS_READ;
	case BENCH_SEND:
	case BENCH_CONNECT:
		return PL_ACCESS_LOCAL;
	default:
		return PL_ACCESS_ATOMIC;
	}
}

int bench_end_memory(struct bench_end *end)
{
	int rc;

	bench_plan_layout(&end->plan, &end->layout);
	rc = bench_buffer_open(end, &end->own, end->layout.window * end->far_count, PL_ACCESS_LOCAL);
	if (rc == 0)
		rc = bench_buffer_open(end, &end->exposed,
				       end->layout.window * (bench_passive(end) ? end->far_count : 1),
				       access_of(end->plan.op));
	if (rc < 0)
		return rc;
	/* Not zeros, and present: pages that come into being would be measured too. */
	if (bench_active(end))
		memset(end->own.bytes, 0x5a, end->own.length);
	if (bench_passive(end))
		memset(end->exposed.bytes, 0, end->exposed.length);
	rc = bench_buffer_bring(end, &end->own, 0, end->own.length);
	return rc < 0 ? rc : bench_flow_allocate(end);
}

int bench_end_share(struct bench_end *end, struct bench_message *message)
{
	struct pl_grant_options options = PL_GRANT_OPTIONS_INIT;
	size_t length = sizeof(message->token);
	struct pl_error error;

	message->token_length = 0;
	if (!access_of(end->plan.op))
		return 0;
	options.offset = bench_exposed_offset(end, end->far);
	options.length = end->layout.window;
	if (pl_region_share(end->exposed.region, &options, message->token, &length, &error) < 0)
		return bench_fail_as(end, &error);
	message->token_length = (uint16_t)length;
	return 0;
}

uint64_t bench_exposed_offset(const struct bench_end *end, const struct bench_far *far)
{
	return bench_passive(end) ? (uint64_t)(far - end->fars) * end->layout.window : 0;
}

int bench_end_import(struct bench_end *end, const struct bench_message *message)
{
	int rc;

	if (!access_of(end->plan.op))
		return 0;
	rc = bench_links_import(end, message->token, message->token_length);
	if (rc < 0)
		return rc;
	if (pl_remote_length(end->links[(end->far - end->fars) * end->plan.peers].remote) != end->layout.window)
		return protocol_error(end, "the other end's memory is not of the size agreed");
	return 0;
}

void bench_end_free_memory(struct bench_end *end)
{
	bench_links_release(end);
	bench_buffer_close(&end->own);
	bench_buffer_close(&end->exposed);
	bench_flow_free(&end->flow);
}

bool bench_active(const struct bench_end *end)
{
	return !end->server || end->plan.both_ways || bench_plan_pingpong(&end->plan);
}

bool bench_passive(const struct bench_end *end)
{
	return end->server || end->plan.both_ways || bench_plan_pingpong(&end->plan);
}

/* -- messages ------------------------------------------------------------------------------------- */

int bench_send(struct bench_end *end, const struct bench_message *message)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[BENCH_MESSAGE_MAX];
	size_t length = bench_encode(message, buffer);
	struct pl_error error;
	int rc;

	attributes.user_data = BENCH_USER_DATA(BENCH_TAG_OTHER, 0);
	rc = pl_send_copy(end->far->peer, BENCH_MESSAGE_CONTROL, buffer, length, &attributes, NULL, &error);
	bench_patience(end);
	return rc < 0 ? bench_fail_as(end, &error) : 0;
}

int bench_send_type(struct bench_end *end, enum bench_type type)
{
	return bench_send(end, &(struct bench_message){ .type = type });
}

void bench_send_failure(struct bench_end *end)
{
	struct bench_message message = { .type = BENCH_FAILED, .error = end->error };
	uint8_t buffer[BENCH_MESSAGE_MAX];
	struct pl_operation *operation;
	size_t length = bench_encode(&message, buffer);

	for (uint32_t i = 0; i < end->far_count; i++) {
		const struct bench_far *far = &end->fars[i];

		if (far->peer && !far->lost &&
		    pl_send_copy(far->peer, BENCH_MESSAGE_CONTROL, buffer, length, NULL, &operation, NULL) == 0)
			pl_wait(operation, FAREWELL, NULL, NULL);
	}
}

/* What the server is told in the middle of a run. */
static int take_in_run(struct bench_end *end, const struct bench_message *message)
{
	if (!end->busy || (message->type == BENCH_GO && end->go))
		return protocol_error(end, "the other end tells of a run that it did not begin");
	if (message->type == BENCH_GO) {
		end->go = true;
		bench_usage_begin(end);
		return 0;
	}
	end->finished = true;
	end->far->result = message->result;
	return 0;
}

static int dispatch(struct bench_end *end, struct bench_far *far, const struct bench_message *message)
{
	if (message->type == BENCH_FAILED)
		return bench_fail_as(end, &message->error);
	if (end->server && (message->type == BENCH_GO || message->type == BENCH_FINISH))
		return take_in_run(end, message);
	if (far->arrived)
		return protocol_error(end, "the other end does not wait for answers");
	far->inbox = *message;
	far->arrived = true;
	return 0;
}

static int take_control(struct bench_end *end, uint32_t number, uint64_t length)
{
	const uint8_t *bytes = (const uint8_t *)pl_region_address(end->control) + number * BENCH_MESSAGE_MAX;
	struct bench_message message;
	int rc = bench_decode(bytes, length, &message);

	if (rc == -EPROTONOSUPPORT)
		return protocol_error(end, "the other end's version of this benchmark is another");
	if (rc < 0)
		return protocol_error(end, "the other end is no Peerlane benchmark");
	rc = dispatch(end, far_of_control(end, number), &message);
	return rc < 0 ? rc : post_control(end, number);
}

int bench_await(struct bench_end *end, const bool *told, uint64_t patience)
{
	while (!*told) {
		int rc = bench_pump(end);

		if (rc == 0)
			rc = bench_idle(end, patience);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int bench_next(struct bench_end *end, uint64_t patience)
{
	int rc = bench_await(end, &end->far->arrived, patience);

	if (rc == 0)
		end->far->arrived = false;
	return rc;
}

int bench_expect(struct bench_end *end, enum bench_type type, uint64_t patience)
{
	int rc = bench_next(end, patience);

	if (rc == 0 && end->far->inbox.type != type)
		return protocol_error(end, "the other end does not answer as agreed");
	return rc;
}

/* -- progress ------------------------------------------------------------------------------------- */

static inline void take(struct bench_end *end, const struct pl_completion *completion)
{
	const struct pl_receipt *receipt = &completion->receipt;
	uint32_t number = (uint32_t)receipt->user_data;

	if (receipt->status < 0) {
		if (receipt->user_data >> BENCH_TAG_SHIFT == BENCH_TAG_CONTROL)
			far_of_control(end, number)->lost = true;
		if (!end->leaving)
			bench_fail_as(end, &completion->error);
		return;
	}
	switch (receipt->user_data >> BENCH_TAG_SHIFT) {
	case BENCH_TAG_DATA:
		bench_flow_completed(end, receipt);
		break;
	case BENCH_TAG_RECEIVE:
		bench_received(end, number, receipt);
		break;
	case BENCH_TAG_CONTROL:
		take_control(end, number, receipt->bytes);
		break;
	}
}

void bench_take(struct bench_end *end, const struct pl_completion *completion)
{
	take(end, completion);
}

int bench_pump(struct bench_end *end)
{
	int count = pl_poll(end->context, end->completions, BENCH_BATCH);

	for (int i = 0; i < count; i++)
		take(end, &end->completions[i]);
	end->events += (uint64_t)count;
	if (count)
		end->rounds = 0;
	return end->error.code ? end->error.code : count;
}

void bench_linger(struct bench_end *end)
{
	uint64_t deadline = cli_now() + LINGER;

	end->leaving = true;
	while (end->far->peer && !end->far->lost && cli_now() < deadline) {
		int count = pl_poll(end->context, end->completions, BENCH_BATCH);

		for (int i = 0; i < count; i++)
			if (end->completions[i].receipt.user_data >> BENCH_TAG_SHIFT == BENCH_TAG_CONTROL &&
			    end->completions[i].receipt.status < 0)
				end->far->lost = true;
		if (count == 0)
			usleep(SLEEP_US);
	}
}

bool bench_interrupted(struct bench_end *end)
{
	sigset_t set;

	sigpending(&set);
	if (sigismember(&set, SIGINT) || sigismember(&set, SIGTERM))
		end->interrupted = true;
	return end->interrupted;
}

void bench_patience(struct bench_end *end)
{
	end->last_event = cli_now();
	end->events_seen = end->events;
}

int bench_signals(struct bench_end *end)
{
	if (bench_interrupted(end))
		return bench_fail(end, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted by a signal");
	return 1;
}

static int check(struct bench_end *end, uint64_t patience)
{
	int rc = bench_signals(end);

	if (rc < 0)
		return rc;
	if (end->events != end->events_seen) {
		bench_patience(end);
		return 0;
	}
	if (!patience || cli_now() - end->last_event < patience)
		return 0;
	return bench_fail(end, -ETIMEDOUT, "BENCH-SILENT", NULL,
			  "a server serves one client at a time: see what it does; --timeout allows more time",
			  "nothing came from the other end for %.3g s", (double)patience / 1e9);
}

int bench_spin(struct bench_end *end, uint64_t patience)
{
	end->rounds++;
	/* The library's threads need the processor. */
	if (!end->manual)
		sched_yield();
	return end->rounds % SPINS_BETWEEN_CHECKS ? 0 : check(end, patience);
}

/* Until something completed, or is to be posted. */
static void await_completion(const struct bench_end *end)
{
	struct pollfd ready = { .fd = end->fd, .events = POLLIN };
	uint64_t now = end->due ? cli_now() : 0, left = POLL_MS * CLI_NS_PER_MS;
	struct timespec time;

	if (end->due)
		left = end->due <= now ? 0 : CLI_MIN(end->due - now, left);
	time = (struct timespec){ .tv_nsec = (long)left };
	ppoll(&ready, 1, &time, NULL);
}

int bench_idle(struct bench_end *end, uint64_t patience)
{
	if (end->manual && !end->passive && (end->busy || end->rounds < ROUNDS_BEFORE_SLEEP))
		return bench_spin(end, patience);
	if (end->manual)
		usleep(end->passive ? SLEEP_PASSIVE_US : SLEEP_US);
	else
		await_completion(end);
	return check(end, patience);
}
