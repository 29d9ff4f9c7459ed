/* SPDX-License-Identifier: BSD-2-Clause */
/* Server of a workflow: serves one client after the other. */
#include "bench/workflow/workflow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/common/process.h"
#include "cmd/common/output.h"

#define ACCEPT_WAIT (200 * CLI_NS_PER_MS)
#define CLOSE_TIMEOUT_MS 2000

/* Sends the error to the client and waits at most 2 s until it has read that: closing discards unsent data. */
static void send_workflow_failure(struct workflow_server *server)
{
	struct workflow_message message = { .type = WORKFLOW_FAILED, .error = server->error };
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint8_t buffer[WORKFLOW_MESSAGE_MAX];
	struct pl_operation *operation;

	if (pl_send_copy(server->peer, WORKFLOW_MESSAGE_TAG, buffer, workflow_encode(&message, buffer), NULL,
			 &operation, NULL) < 0)
		return;
	pl_wait(operation, CLI_NS_PER_S, NULL, NULL);
	for (int waited = 0; waited < CLOSE_TIMEOUT_MS && !bench_signal_pending(); waited += 10) {
		if (pl_peer_query(server->peer, &info) < 0 || !info.connected)
			break;
		usleep(10000);
	}
}

static void reset_workflow_server(struct workflow_server *server)
{
	struct pl_completion completions[16];

	workflow_stream_close(server);
	pl_remote_release(server->remote);
	pl_peer_close(server->peer);
	/* All operations have ended; their completions must not be taken for those of the next client. */
	while (pl_poll(server->context, completions, CLI_ARRAY_SIZE(completions)) > 0)
		;
	pl_region_deregister(server->ring);
	server->remote = NULL;
	server->peer = NULL;
	server->ring = NULL;
	server->leaving = server->gone = false;
	memset(&server->setup, 0, sizeof(server->setup));
}

static int serve_workflow_client(struct workflow_server *server, const struct workflow_options *options)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc;

	pl_peer_query(server->peer, &info);
	if (!options->common.quiet)
		printf("frames for %s\n", info.address);
	fflush(stdout);
	rc = workflow_server_run(server);
	if (rc < 0) {
		if (!server->gone)
			send_workflow_failure(server);
		/* The process that started this one reports the error. */
		if (options->announce < 0)
			cli_report(&server->error);
	}
	reset_workflow_server(server);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

static int serve_workflow_clients(struct workflow_server *server, const struct workflow_options *options,
				  struct pl_listener *listener)
{
	struct pl_error error;
	int status = CLI_OK;

	while (!bench_signal_pending()) {
		int rc = pl_accept(listener, ACCEPT_WAIT, &server->peer, &error);

		if (rc == -ETIMEDOUT)
			continue;
		if (rc < 0)
			return cli_report_for(&options->common, &error);
		status = serve_workflow_client(server, options);
		if (options->once)
			return status;
	}
	return CLI_OK;
}

static int open_workflow_server(struct workflow_server *server, const struct workflow_options *options,
				struct pl_error *error)
{
	struct cli_options common = options->common;
	int rc;

	common.program = CLI_PROGRAM_WORKFLOW;
	/* The signals are blocked before the library starts threads; bench_signal_pending() polls for them. */
	bench_block_signals();
	rc = cli_open(&server->context, &common, PL_PROGRESS_THREAD, error);
	if (rc < 0)
		return rc;
	server->fd = pl_fd(server->context);
	if (server->fd < 0)
		return cli_fail_errno(error, server->fd, "pl_fd", NULL);
	return pl_region_allocate(server->context, WORKFLOW_MESSAGE_MAX, PL_ACCESS_LOCAL, &server->control, error);
}

int workflow_serve(const struct workflow_options *options)
{
	const char *text = options->address;
	struct workflow_server server = { 0 };
	struct pl_listener *listener;
	struct pl_error error;
	char address[300];
	int rc;

	if (!text)
		text = bench_default_address(&options->common);
	rc = cli_address(text, address, sizeof(address), &error);
	if (rc == 0)
		rc = open_workflow_server(&server, options, &error);
	if (rc == 0)
		rc = pl_listen(server.context, address, &listener, &error);
	if (rc == 0) {
		bench_announce_address(&options->common, options->announce, listener);
		rc = serve_workflow_clients(&server, options, listener);
	} else {
		rc = cli_report_for(&options->common, &error);
	}
	pl_close(server.context);
	return rc;
}
