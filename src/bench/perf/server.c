/* SPDX-License-Identifier: BSD-2-Clause */
/* The end that is measured against: serves one client after the other. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/perf/endpoint.h"
#include "cmd/common/output.h"

#define ACCEPT_WAIT (200 * CLI_NS_PER_MS)

static int set_up(struct bench_end *end)
{
	struct bench_message answer = { .type = BENCH_SETUP };
	int rc;

	bench_end_free_memory(end);
	end->plan = end->far->inbox.plan;
	if (!bench_plan_valid(&end->plan))
		return bench_fail(end, -EINVAL, "BENCH-PLAN", NULL, "use the same version of Peerlane at both ends",
				  "the server does not measure such operations");
	rc = bench_links_accept(end, end->plan.peers);
	if (rc == 0)
		rc = bench_end_memory(end);
	if (rc == 0)
		rc = bench_end_share(end, &answer);
	if (rc == 0)
		rc = bench_end_import(end, &end->far->inbox);
	return rc < 0 ? rc : bench_send(end, &answer);
}

/* What the client asks for at first, of this connection. */
static int answer_hello(struct bench_end *end)
{
	struct bench_message answer = { .type = BENCH_HELLO };

	if (end->far->inbox.memory[0])
		snprintf(end->memory, sizeof(end->memory), "%s", end->far->inbox.memory);
	snprintf(answer.memory, sizeof(answer.memory), "%s", end->memory);
	machine_read(&answer.machine);
	return bench_send(end, &answer);
}

static int await_go(struct bench_end *end)
{
	return bench_await(end, &end->go, 0);
}

/* What the client asks for, until it has finished; *result is this end's. */
static int take_part(struct bench_end *end, struct bench_result *result)
{
	bool pingpong = bench_plan_pingpong(&end->plan);
	int rc = 0;

	if (bench_plan_single(&end->plan))
		rc = bench_single_follow(end);
	else if (pingpong)
		rc = bench_pingpong_follow(end);
	else if (end->plan.both_ways)
		rc = bench_run(end, await_go, result);
	if (rc == 0 && bench_active(end))
		rc = bench_receives_release(end);
	if (rc == 0)
		rc = bench_await(end, &end->finished, 0);
	if (rc == 0 && !end->plan.both_ways)
		bench_usage_end(end, result);
	return rc < 0 ? rc : bench_check(end, &result->verified);
}

/* Whether the client's operations need nothing of this process. */
static bool is_passive(struct bench_end *end)
{
	return end->one_sided && end->plan.op != BENCH_SEND && end->plan.op != BENCH_CONNECT && !end->plan.both_ways &&
	       !bench_plan_pingpong(&end->plan);
}

static int run(struct bench_end *end)
{
	struct bench_message answer = { .type = BENCH_FINISH };
	int rc;

	if (!end->exposed.region)
		return bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "the client did not say what to measure");
	end->length = end->far->inbox.length;
	if (!end->length.iterations && !end->length.duration)
		return bench_fail(end, -EINVAL, "BENCH-PLAN", NULL, NULL, "the client wants to measure nothing");
	rc = bench_prepare(end);
	end->busy = true;
	end->passive = is_passive(end);
	if (rc == 0)
		rc = bench_send_type(end, BENCH_PREPARE);
	if (rc == 0)
		rc = take_part(end, &answer.result);
	end->busy = end->passive = false;
	return rc < 0 ? rc : bench_send(end, &answer);
}

static int serve_requests(struct bench_end *end)
{
	int rc = bench_end_begin(end);

	while (rc == 0) {
		rc = bench_next(end, 0);
		if (rc < 0)
			break;
		switch (end->far->inbox.type) {
		case BENCH_HELLO:
			rc = answer_hello(end);
			break;
		case BENCH_SETUP:
			rc = set_up(end);
			break;
		case BENCH_PREPARE:
			rc = run(end);
			break;
		case BENCH_BYE:
			rc = bench_send_type(end, BENCH_BYE);
			if (rc == 0)
				bench_linger(end);
			return rc;
		default:
			rc = bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, NULL,
					"the client asks for nothing known");
		}
	}
	return rc;
}

/* CLI_OK if the client was served to its end. */
static int serve_client(struct bench_end *end, const struct bench_options *options)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc;

	pl_peer_query(end->far->peer, &info);
	if (!options->common.quiet)
		printf("measuring with %s\n", info.address);
	rc = serve_requests(end);
	if (rc < 0 && !end->interrupted) {
		/* Whoever started this process tells of it. */
		if (options->announce < 0)
			cli_report(&end->error);
		bench_send_failure(end);
		bench_linger(end);
	} else if (rc < 0) {
		bench_send_failure(end);
	}
	bench_end_reset(end);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

static int tell_address(const struct bench_options *options, struct pl_listener *listener)
{
	struct json_object *object;
	char address[80];

	pl_listener_address(listener, address, sizeof(address));
	if (options->announce >= 0) {
		dprintf(options->announce, "%s\n", address);
		close(options->announce);
	} else if (options->common.json) {
		object = json_object_new_object();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_print(object, false);
	} else if (!options->common.quiet) {
		printf("listening on %s\n", address);
	}
	return fflush(stdout);
}

static int serve_all(struct bench_end *end, const struct bench_options *options, struct pl_listener *listener)
{
	struct pl_error error;
	int status = CLI_OK;

	while (!bench_interrupted(end)) {
		int rc = pl_accept(listener, ACCEPT_WAIT, &end->far->peer, &error);

		if (rc == -ETIMEDOUT)
			continue;
		if (rc < 0)
			return cli_report_for(&options->common, &error);
		snprintf(end->memory, sizeof(end->memory), "%s", options->memory);
		status = serve_client(end, options);
		fflush(stdout);
		if (options->once)
			break;
	}
	return end->interrupted ? CLI_OK : status;
}

int bench_serve(const struct bench_options *options)
{
	const char *text = options->addresses[0];
	struct bench_end *end = bench_end_new();
	struct pl_listener *listener;
	struct pl_error error;
	char address[300];
	int rc;

	if (!end) {
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
		return cli_report_for(&options->common, &error);
	}
	/* Without a key only this host can come in. */
	if (!text)
		text = options->common.key_file || options->common.insecure ? ":" CLI_DEFAULT_PORT
									    : "127.0.0.1:" CLI_DEFAULT_PORT;
	rc = cli_address(text, address, sizeof(address), &error);
	if (rc == 0)
		rc = bench_place(options, &error);
	if (rc == 0)
		rc = bench_end_open(end, options, 1, &error);
	if (rc < 0) {
		free(end);
		return cli_report_for(&options->common, &error);
	}
	end->server = true;
	rc = pl_listen(end->context, address, &listener, &error);
	if (rc == 0) {
		end->listener = listener;
		tell_address(options, listener);
		rc = serve_all(end, options, listener);
	} else {
		rc = cli_report_for(&options->common, &error);
	}
	bench_end_close(end);
	free(end);
	return rc;
}
