/* SPDX-License-Identifier: BSD-2-Clause */
/* Connection of the measuring process to one of its servers. */
#include "bench/workflow/workflow.h"

#include <string.h>

#include "bench/common/process.h"

static int start_local_source(struct workflow_connection *connection, const struct workflow_options *options,
			      struct pl_error *error)
{
	static const char *const arguments[] = { "bench",   "workflow",    "--server", "--once",
						 "--quiet", "127.0.0.1:0", NULL };

	return cli_child_start(&connection->child, arguments, &options->common, error);
}

int workflow_connection_open(struct workflow_connection *connection, struct workflow_options *options,
			     const char *address_given, struct pl_error *error)
{
	char address[300];
	int rc = address_given ? 0 : start_local_source(connection, options, error);

	connection->timeout = options->common.timeout ? options->common.timeout : 30 * CLI_NS_PER_S;
	if (rc == 0)
		rc = cli_address(address_given ? address_given : connection->child.address, address, sizeof(address),
				 error);
	if (rc == 0)
		rc = cli_open(&connection->context, &options->common, PL_PROGRESS_THREAD, error);
	if (rc == 0)
		rc = pl_region_allocate(connection->context, WORKFLOW_MESSAGE_MAX, PL_ACCESS_LOCAL,
					&connection->control, error);
	if (rc == 0)
		rc = pl_connect(connection->context, address, options->common.timeout, &connection->peer, error);
	return rc < 0 ? rc : cli_expect_program(connection->peer, CLI_PROGRAM_WORKFLOW, address, error);
}

void workflow_connection_close(struct workflow_connection *connection)
{
	pl_close(connection->context);
	cli_child_stop(&connection->child);
	connection->context = NULL;
	connection->peer = NULL;
}

static int send_workflow_message(struct workflow_connection *connection, const struct workflow_message *message,
				 struct pl_error *error)
{
	uint8_t buffer[WORKFLOW_MESSAGE_MAX];
	struct pl_operation *operation;
	int rc = pl_send_copy(connection->peer, WORKFLOW_MESSAGE_TAG, buffer, workflow_encode(message, buffer), NULL,
			      &operation, error);

	return rc < 0 ? rc : pl_wait(operation, UINT64_MAX, NULL, error);
}

static int decode_source_answer(const struct workflow_connection *connection, size_t length, enum workflow_type type,
				struct workflow_message *message, struct pl_error *error)
{
	int rc = workflow_decode(pl_region_address(connection->control), length, message);

	if (rc < 0)
		return cli_fail(error, rc, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT,
				"the server's answer is malformed");
	if (message->type == WORKFLOW_FAILED) {
		*error = message->error;
		return error->code;
	}
	if (message->type != type)
		return cli_fail(error, -EPROTO, "BENCH-PROTOCOL", NULL, BENCH_VERSION_HINT,
				"the server answered with a message of another type");
	return 0;
}

int workflow_request(struct workflow_connection *connection, struct workflow_message *message, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	enum workflow_type type = message->type;
	struct pl_operation *operation;
	struct pl_completion receipt;
	int rc;

	attributes.timeout = connection->timeout;
	rc = pl_receive(connection->peer, WORKFLOW_MESSAGE_TAG, UINT64_MAX,
			&(struct pl_buffer){ connection->control, 0, WORKFLOW_MESSAGE_MAX }, &attributes, &operation,
			error);
	if (rc < 0)
		return rc;
	rc = send_workflow_message(connection, message, error);
	if (rc < 0) {
		pl_cancel(operation);
		pl_wait(operation, UINT64_MAX, NULL, NULL);
		return rc;
	}
	rc = pl_wait(operation, UINT64_MAX, &receipt, error);
	return rc < 0 ? rc : decode_source_answer(connection, receipt.bytes, type, message, error);
}
