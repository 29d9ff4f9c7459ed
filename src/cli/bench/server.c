/* SPDX-License-Identifier: BSD-2-Clause */
/* The other end of a measurement: has a region, answers pings, and otherwise only makes progress. */
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cli/bench/bench.h"
#include "cli/output.h"

#define LAST_BYTE_TELLS 32768
#define IDLE_TIME (600 * CLI_NS_PER_S)

struct server {
	const struct bench_options *options;
	struct pl_context *context;
	int signals;
};

static bool asked_to_end(const struct server *server)
{
	struct pollfd signals = { .fd = server->signals, .events = POLLIN };

	return poll(&signals, 1, 0) > 0;
}

/* -- while a size is measured ---------------------------------------------------------------------- */

/* The client writes its mark at the end of our target area, or notifies; we write back. */
static int pong_write(struct bench_link *link, uint64_t size, struct pl_error *error)
{
	bool by_notification = size > LAST_BYTE_TELLS;
	volatile uint8_t *last = link->target + size - 1;
	uint64_t notified = link->notified;
	uint8_t mark = 1;
	int rc = 0;

	while (rc == 0 && !link->arrived && !link->failure) {
		bench_link_pump(link, true);
		if (by_notification ? link->notified == notified : *last != mark)
			continue;
		notified = link->notified;
		link->source[size - 1] = mark;
		rc = bench_link_post(link, BENCH_WRITE, size, 1, by_notification, error);
		mark = (uint8_t)(link->posted % 255 + 1);
	}
	return rc;
}

static int pong_send(struct bench_link *link, uint64_t size, struct pl_error *error)
{
	uint64_t received = link->received;
	int rc = 0;

	while (rc == 0 && !link->arrived && !link->failure) {
		bench_link_pump(link, false);
		if (link->received == received)
			continue;
		received++;
		rc = bench_link_receive(link, 1, error);
		if (rc == 0)
			rc = bench_link_post(link, BENCH_SEND, size, 1, false, error);
	}
	return rc;
}

static int flow(struct bench_link *link, const struct bench_message *plan, struct pl_error *error)
{
	int rc = 0;

	while (rc == 0 && !link->arrived && !link->failure) {
		if (plan->operation == BENCH_SEND)
			rc = bench_link_receive(link, plan->depth, error);
		while (rc == 0 && plan->both_ways && link->posted - link->done < plan->depth)
			rc = bench_link_post(link, plan->operation, plan->size, 1, false, error);
		bench_link_pump(link, false);
	}
	return rc;
}

static int check_plan(const struct bench_link *link, const struct bench_message *plan, struct pl_error *error)
{
	bool atomic = plan->operation == BENCH_FETCH_ADD || plan->operation == BENCH_COMPARE_SWAP;

	if (plan->size == 0 || plan->size > link->area || (atomic && plan->size != 8) || plan->depth == 0 ||
	    (atomic && plan->both_ways))
		return cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, "use the same release at both ends",
				"the client asks for what cannot be measured");
	return 0;
}

/* One size, from START to STOP. */
static int serve_size(struct bench_link *link, struct pl_error *error)
{
	const struct bench_message plan = link->message;
	struct bench_message answer = { .type = BENCH_START, .operation = plan.operation };
	uint64_t cpu, begin;
	int rc = check_plan(link, &plan, error);

	if (rc < 0)
		return rc;
	link->posted = link->done = 0;
	/* Reads find something to compare; everything else starts from zeros. */
	memset(link->target, plan.operation == BENCH_READ ? (int)(plan.size % 251) + 1 : 0, plan.size);
	if (plan.operation == BENCH_SEND)
		rc = bench_link_receive(link, plan.latency ? 1 : plan.depth, error);
	link->arrived = false;
	if (rc == 0)
		rc = bench_link_say(link, &answer, error);
	cpu = bench_cpu_time();
	begin = cli_now();
	if (rc == 0 && plan.latency && plan.operation == BENCH_WRITE)
		rc = pong_write(link, plan.size, error);
	else if (rc == 0 && plan.latency && plan.operation == BENCH_SEND)
		rc = pong_send(link, plan.size, error);
	else if (rc == 0)
		rc = flow(link, &plan, error);
	answer.cpu = bench_cpu_time() - cpu;
	answer.time = cli_now() - begin;
	while (rc == 0 && !link->failure && link->done < link->posted)
		bench_link_pump(link, false);
	if (rc == 0 && link->failure) {
		*error = link->error;
		return link->failure;
	}
	answer.type = BENCH_STOP;
	answer.count = link->posted;
	if (plan.operation == BENCH_FETCH_ADD || plan.operation == BENCH_COMPARE_SWAP)
		memcpy(&answer.count, link->target, sizeof(answer.count));
	answer.hash = XXH3_64bits(link->target, plan.size);
	return rc == 0 ? bench_link_say(link, &answer, error) : rc;
}

/* -- clients --------------------------------------------------------------------------------------- */

static int set_up(struct bench_link *link, struct pl_error *error)
{
	struct bench_message offer = { .type = BENCH_SETUP, .operation = BENCH_WRITE };
	int rc;

	if (link->region)
		return cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "the client wants to begin twice");
	rc = bench_link_import(link, &link->message, error);
	if (rc == 0)
		rc = bench_link_room(link, link->message.size, &offer, error);
	return rc == 0 ? bench_link_say(link, &offer, error) : rc;
}

static int serve_client(const struct server *server, struct pl_peer *peer, struct pl_error *error)
{
	struct bench_link link;
	int rc = bench_link_open(&link, server->context, peer, server->options->manual, server->options->common.timeout,
				 error);

	while (rc == 0 && !asked_to_end(server)) {
		rc = bench_link_hear(&link, IDLE_TIME, error);
		if (rc == 0 && link.message.type == BENCH_SETUP)
			rc = set_up(&link, error);
		else if (rc == 0 && link.message.type == BENCH_START && link.region)
			rc = serve_size(&link, error);
		else if (rc == 0)
			rc = cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, "use the same release at both ends",
				      "the client says what does not belong here");
	}
	bench_link_close(&link);
	/* A client that is done simply leaves. */
	return rc == -ECONNRESET || rc == -ENOTCONN ? 0 : rc;
}

static int accept_clients(const struct server *server, struct pl_listener *listener, struct pl_error *error)
{
	int rc = 0;

	while (!asked_to_end(server)) {
		struct pl_peer *peer;

		rc = pl_accept(listener, CLI_NS_PER_S / 4, &peer, error);
		if (rc == -ETIMEDOUT)
			continue;
		if (rc == 0)
			rc = serve_client(server, peer, error);
		if (server->options->once)
			return rc;
		if (rc < 0)
			cli_report(error);
	}
	return 0;
}

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int bench_serve(const struct bench_options *options)
{
	struct server server = { .options = options, .signals = block_signals() };
	struct pl_listener *listener;
	struct pl_error error;
	char address[300];
	int rc = cli_address(options->address, address, sizeof(address), &error);

	if (rc == 0)
		rc = cli_open(&server.context, &options->common,
			      options->manual ? PL_PROGRESS_MANUAL : PL_PROGRESS_THREAD, &error);
	if (rc < 0)
		return cli_report_for(&options->common, &error);
	rc = pl_listen(server.context, address, &listener, &error);
	if (rc == 0) {
		pl_listener_address(listener, address, sizeof(address));
		printf("listening on %s\n", address);
		fflush(stdout);
		rc = accept_clients(&server, listener, &error);
	}
	pl_close(server.context);
	close(server.signals);
	return rc < 0 ? (int)cli_report_for(&options->common, &error) : (int)CLI_OK;
}
