/* SPDX-License-Identifier: BSD-2-Clause */
/* Server: serves one client after the other. */
#include "bench/perf/perf.h"

#include <stdlib.h>

#include "bench/common/process.h"
#include "bench/perf/connections.h"
#include "bench/perf/control.h"
#include "bench/perf/options.h"
#include "bench/perf/pingpong.h"
#include "bench/perf/progress.h"
#include "bench/perf/receives.h"
#include "bench/perf/run.h"
#include "bench/perf/sequential.h"
#include "cmd/common/events.h"
#include "cmd/common/systemd.h"

#define ACCEPT_WAIT (200 * CLI_NS_PER_MS)

static int set_up_client_plan(struct bench_endpoint *ep)
{
	struct bench_message answer = { .type = BENCH_SETUP };
	int rc;

	bench_endpoint_free_memory(ep);
	if (!bench_plan_valid(&ep->peer->inbox.plan))
		return bench_fail(ep, -EINVAL, "BENCH-PLAN", NULL, BENCH_VERSION_HINT,
				  "the server cannot run this plan");
	ep->plan = ep->peer->inbox.plan;
	rc = bench_connections_accept(ep, ep->plan.connections);
	if (rc == 0)
		rc = bench_endpoint_allocate(ep);
	if (rc == 0)
		rc = bench_endpoint_grant(ep, &answer);
	if (rc == 0)
		rc = bench_endpoint_import(ep, &ep->peer->inbox);
	return rc < 0 ? rc : bench_control_send(ep, &answer);
}

/* Answers the client's first message, which may choose the kind of memory for this connection. */
static int answer_client_hello(struct bench_endpoint *ep)
{
	struct bench_message answer = { .type = BENCH_HELLO };

	if (ep->peer->inbox.memory[0])
		snprintf(ep->memory, sizeof(ep->memory), "%s", ep->peer->inbox.memory);
	snprintf(answer.memory, sizeof(answer.memory), "%s", ep->memory);
	machine_read(&answer.machine);
	return bench_control_send(ep, &answer);
}

static int wait_run_start(struct bench_endpoint *ep)
{
	return bench_wait_flag(ep, &ep->started, 0);
}

/* Runs the server's part until the client has finished; *result is this endpoint's. */
static int run_server_part(struct bench_endpoint *ep, struct bench_result *result)
{
	bool pingpong = bench_plan_pingpong(&ep->plan);
	int rc = 0;

	if (bench_operation_sequential(ep->plan.operation))
		rc = bench_sequential_server(ep);
	else if (pingpong)
		rc = bench_pingpong_server(ep);
	else if (ep->plan.both_ways)
		rc = bench_run_measure(ep, wait_run_start, result);
	if (rc == 0 && bench_endpoint_initiates(ep))
		rc = bench_receives_flush(ep);
	if (rc == 0)
		rc = bench_wait_flag(ep, &ep->finished, 0);
	if (rc == 0 && !ep->plan.both_ways)
		bench_usage_end(ep, result);
	return rc < 0 ? rc : bench_run_verify(ep, &result->verified);
}

/* True if the client's operations do not need this process. */
static bool can_server_sleep(struct bench_endpoint *ep)
{
	return ep->one_sided && !ep->plan.operation->server_busy && !ep->plan.both_ways &&
	       !bench_plan_pingpong(&ep->plan);
}

static int serve_run(struct bench_endpoint *ep)
{
	struct bench_message answer = { .type = BENCH_FINISH };
	int rc;

	if (!ep->exposed.region)
		return bench_fail(ep, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "the client sent no plan");
	ep->settings = ep->peer->inbox.settings;
	if (!ep->settings.iterations && !ep->settings.duration)
		return bench_fail(ep, -EINVAL, "BENCH-PLAN", NULL, NULL,
				  "the run has neither iterations nor a duration");
	rc = bench_run_prepare(ep);
	ep->in_run = true;
	ep->may_sleep = can_server_sleep(ep);
	if (rc == 0)
		rc = bench_control_send_type(ep, BENCH_PREPARE);
	if (rc == 0)
		rc = run_server_part(ep, &answer.result);
	ep->in_run = ep->may_sleep = false;
	return rc < 0 ? rc : bench_control_send(ep, &answer);
}

static int serve_client_requests(struct bench_endpoint *ep)
{
	int rc = bench_endpoint_begin(ep);

	while (rc == 0) {
		rc = bench_control_receive(ep, 0);
		if (rc < 0)
			break;
		switch (ep->peer->inbox.type) {
		case BENCH_HELLO:
			rc = answer_client_hello(ep);
			break;
		case BENCH_SETUP:
			rc = set_up_client_plan(ep);
			break;
		case BENCH_PREPARE:
			rc = serve_run(ep);
			break;
		case BENCH_BYE:
			rc = bench_control_send_type(ep, BENCH_BYE);
			if (rc == 0)
				bench_wait_peer_close(ep);
			return rc;
		default:
			rc = bench_fail(ep, -EPROTO, "BENCH-PROTOCOL", NULL, NULL,
					"the client sent a request of unknown type");
		}
	}
	return rc;
}

/* Serves a client; returns CLI_OK if the client ended the connection in order. */
static int serve_bench_client(struct bench_endpoint *ep, const struct bench_options *options)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc;

	pl_peer_query(ep->peer->control, &info);
	if (!options->common.quiet) {
		printf("measuring with %s\n", info.address);
		/* A file that the output goes to has the line when the measurement begins. */
		fflush(stdout);
	}
	rc = serve_client_requests(ep);
	if (rc < 0 && !ep->interrupted) {
		/* The process that started this one reports the error. */
		if (options->announce < 0)
			cli_report(&ep->error);
		bench_control_send_failure(ep);
		bench_wait_peer_close(ep);
	} else if (rc < 0) {
		bench_control_send_failure(ep);
	}
	if (options->events) {
		struct cli_events events;

		cli_events_read(&events, ep->peer->control);
		cli_events_print(stderr, &events, info.address, true);
	}
	bench_endpoint_reset(ep);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

static int serve_bench_clients(struct bench_endpoint *ep, const struct bench_options *options,
			       struct pl_listener *listener)
{
	struct pl_error error;
	int status = CLI_OK;

	while (!bench_interrupted(ep)) {
		int rc = pl_accept(listener, ACCEPT_WAIT, &ep->peer->control, &error);

		if (rc == -ETIMEDOUT)
			continue;
		if (rc < 0)
			return cli_report_for(&options->common, &error);
		snprintf(ep->memory, sizeof(ep->memory), "%s", options->memory);
		status = serve_bench_client(ep, options);
		fflush(stdout);
		if (options->once)
			break;
	}
	return ep->interrupted ? CLI_OK : status;
}

/* Listens on the socket that a service manager passed, or else on the address. */
static int listen_for_bench_clients(struct bench_endpoint *ep, const char *address, struct pl_listener **listener,
				    struct pl_error *error)
{
	int fd = systemd_listen_fd();

	if (fd >= 0)
		return pl_listen_socket(ep->context, fd, listener, error);
	return pl_listen(ep->context, address, listener, error);
}

int bench_serve(const struct bench_options *options)
{
	const char *text = options->addresses[0];
	struct bench_endpoint *ep = bench_endpoint_new();
	struct pl_listener *listener;
	struct pl_error error;
	char address[300];
	int rc;

	if (!ep) {
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
		return cli_report_for(&options->common, &error);
	}
	if (!text)
		text = bench_default_address(&options->common);
	rc = cli_address(text, address, sizeof(address), &error);
	if (rc == 0)
		rc = bench_set_affinity(options, &error);
	if (rc == 0)
		rc = bench_endpoint_open(ep, options, 1, &error);
	if (rc < 0) {
		free(ep);
		return cli_report_for(&options->common, &error);
	}
	ep->server = true;
	rc = listen_for_bench_clients(ep, address, &listener, &error);
	if (rc == 0) {
		ep->listener = listener;
		bench_announce_address(&options->common, options->announce, listener);
		systemd_notify("READY=1\nSTATUS=waiting for a client");
		rc = serve_bench_clients(ep, options, listener);
		systemd_notify("STOPPING=1");
	} else {
		rc = cli_report_for(&options->common, &error);
	}
	bench_endpoint_close(ep);
	free(ep);
	return rc;
}
