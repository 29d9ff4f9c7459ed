/* SPDX-License-Identifier: BSD-2-Clause */
/* A server's life: one client after the other. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd/common/output.h"
#include "bench/workflow/workflow.h"

#define ACCEPT_WAIT (200 * CLI_NS_PER_MS)
#define LINGER_MS 2000

/* Tells the client why, and waits a little until it has read that: closing throws away what is on its way. */
static void say_failure(struct flow_server *server)
{
	struct flow_message message = { .type = FLOW_FAILED, .error = server->error };
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	uint8_t buffer[FLOW_MESSAGE_MAX];
	struct pl_operation *operation;

	if (pl_send_copy(server->peer, FLOW_MESSAGE_TAG, buffer, flow_encode(&message, buffer), NULL, &operation,
			 NULL) < 0)
		return;
	pl_wait(operation, CLI_NS_PER_S, NULL, NULL);
	for (int waited = 0; waited < LINGER_MS && !flow_interrupted(); waited += 10) {
		if (pl_peer_query(server->peer, &info) < 0 || !info.connected)
			break;
		usleep(10000);
	}
}

static void reset(struct flow_server *server)
{
	struct pl_completion completions[16];

	pl_remote_release(server->remote);
	pl_peer_close(server->peer);
	/* What was under way has ended; its completions must not meet the next client. */
	while (pl_poll(server->context, completions, CLI_ARRAY_SIZE(completions)) > 0)
		;
	pl_region_deregister(server->ring);
	server->remote = NULL;
	server->peer = NULL;
	server->ring = NULL;
	server->leaving = server->gone = false;
	memset(&server->setup, 0, sizeof(server->setup));
}

static int serve_client(struct flow_server *server, const struct flow_options *options)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;
	int rc;

	pl_peer_query(server->peer, &info);
	if (!options->common.quiet)
		printf("frames for %s\n", info.address);
	fflush(stdout);
	rc = flow_server_run(server);
	if (rc < 0) {
		if (!server->gone)
			say_failure(server);
		/* Whoever started this process tells of it. */
		if (options->announce < 0)
			cli_report(&server->error);
	}
	reset(server);
	return rc < 0 ? CLI_FAILED : CLI_OK;
}

static void tell_address(const struct flow_options *options, struct pl_listener *listener)
{
	char address[80];

	pl_listener_address(listener, address, sizeof(address));
	if (options->announce >= 0) {
		dprintf(options->announce, "%s\n", address);
		close(options->announce);
	} else if (options->common.json) {
		struct json_object *object = json_object_new_object();

		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_print(object, false);
	} else if (!options->common.quiet) {
		printf("listening on %s\n", address);
	}
	fflush(stdout);
}

static int serve_all(struct flow_server *server, const struct flow_options *options, struct pl_listener *listener)
{
	struct pl_error error;
	int status = CLI_OK;

	while (!flow_interrupted()) {
		int rc = pl_accept(listener, ACCEPT_WAIT, &server->peer, &error);

		if (rc == -ETIMEDOUT)
			continue;
		if (rc < 0)
			return cli_report_for(&options->common, &error);
		status = serve_client(server, options);
		if (options->once)
			return status;
	}
	return CLI_OK;
}

static int open_server(struct flow_server *server, const struct flow_options *options, struct pl_error *error)
{
	sigset_t set;
	int rc;

	/* Blocked before the library makes its threads; flow_interrupted() looks for them. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	rc = cli_open(&server->context, &options->common, PL_PROGRESS_THREAD, error);
	if (rc < 0)
		return rc;
	server->fd = pl_fd(server->context);
	if (server->fd < 0)
		return cli_fail_errno(error, server->fd, "pl_fd", NULL);
	return pl_region_allocate(server->context, FLOW_MESSAGE_MAX, PL_ACCESS_LOCAL, &server->control, error);
}

int flow_serve(const struct flow_options *options)
{
	const char *text = options->address;
	struct flow_server server = { 0 };
	struct pl_listener *listener;
	struct pl_error error;
	char address[300];
	int rc;

	/* Without a key only this host can come in. */
	if (!text)
		text = options->common.key_file || options->common.insecure ? ":" CLI_DEFAULT_PORT
									    : "127.0.0.1:" CLI_DEFAULT_PORT;
	rc = cli_address(text, address, sizeof(address), &error);
	if (rc == 0)
		rc = open_server(&server, options, &error);
	if (rc == 0)
		rc = pl_listen(server.context, address, &listener, &error);
	if (rc == 0) {
		tell_address(options, listener);
		rc = serve_all(&server, options, listener);
	} else {
		rc = cli_report_for(&options->common, &error);
	}
	pl_close(server.context);
	return rc;
}
