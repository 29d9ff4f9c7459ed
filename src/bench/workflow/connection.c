/* SPDX-License-Identifier: BSD-2-Clause */
/* The connection of the process that measures with one of its servers. */
#include <string.h>

#include "bench/workflow/workflow.h"

static int start(struct flow_link *link, const struct flow_options *options, struct pl_error *error)
{
	static const char *const arguments[] = { "bench",   "workflow",    "--server", "--once",
						 "--quiet", "127.0.0.1:0", NULL };

	return cli_child_start(&link->child, arguments, &options->common, error);
}

int flow_link_open(struct flow_link *link, struct flow_options *options, const char *given, struct pl_error *error)
{
	char address[300];
	int rc = given ? 0 : start(link, options, error);

	link->timeout = options->common.timeout ? options->common.timeout : 30 * CLI_NS_PER_S;
	if (rc == 0)
		rc = cli_address(given ? given : link->child.address, address, sizeof(address), error);
	if (rc == 0)
		rc = cli_open(&link->context, &options->common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_region_allocate(link->context, FLOW_MESSAGE_MAX, PL_ACCESS_LOCAL, &link->control, error);
	return rc < 0 ? rc : pl_connect(link->context, address, options->common.timeout, &link->peer, error);
}

void flow_link_close(struct flow_link *link)
{
	pl_close(link->context);
	cli_child_stop(&link->child);
	link->context = NULL;
	link->peer = NULL;
}

static int send_message(struct flow_link *link, const struct flow_message *message, struct pl_error *error)
{
	uint8_t buffer[FLOW_MESSAGE_MAX];
	struct pl_operation *operation;
	int rc = pl_send_copy(link->peer, FLOW_MESSAGE_TAG, buffer, flow_encode(message, buffer), NULL, &operation,
			      error);

	return rc < 0 ? rc : pl_wait(operation, UINT64_MAX, NULL, error);
}

static int take_answer(const struct flow_link *link, size_t length, enum flow_type wanted, struct flow_message *message,
		       struct pl_error *error)
{
	int rc = flow_decode(pl_region_address(link->control), length, message);

	if (rc < 0)
		return cli_fail(error, rc, "BENCH-PROTOCOL", NULL, "use the same version of Peerlane at both ends",
				"the server's answer cannot be read");
	if (message->type == FLOW_FAILED) {
		*error = message->error;
		return error->code;
	}
	if (message->type != wanted)
		return cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, "use the same version of Peerlane at both ends",
				"the server answers something else than it was asked");
	return 0;
}

int flow_ask(struct flow_link *link, struct flow_message *message, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	enum flow_type wanted = message->type;
	struct pl_operation *operation;
	struct pl_receipt receipt;
	int rc;

	attributes.timeout = link->timeout;
	rc = pl_receive(link->peer, FLOW_MESSAGE_TAG, UINT64_MAX, link->control, 0, FLOW_MESSAGE_MAX, &attributes,
			&operation, error);
	if (rc < 0)
		return rc;
	rc = send_message(link, message, error);
	if (rc < 0) {
		pl_cancel(operation);
		pl_wait(operation, UINT64_MAX, NULL, NULL);
		return rc;
	}
	rc = pl_wait(operation, UINT64_MAX, &receipt, error);
	return rc < 0 ? rc : take_answer(link, receipt.bytes, wanted, message, error);
}
