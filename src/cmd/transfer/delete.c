/* SPDX-License-Identifier: BSD-2-Clause */
/* `peerlane delete`: deletes uploads of this client at a server. */
#include <stdlib.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/transfer/session.h"

enum { OPTION_NO_SYNC = 0x200 };

/* Result of one name. */
struct deleted {
	uint64_t size; /* bytes of the deleted files */
	int status;    /* 0 or a negative errno */
	struct pl_error error;
};

struct delete {
	struct cli_options common;
	const char *address;
	char **names;
	int count;
	bool no_sync;
	struct session session;
};

static error_t parse_delete_argument(int key, char *argument, struct argp_state *state)
{
	struct delete *delete = state->input;

	(void)argument;
	switch (key) {
	case OPTION_NO_SYNC:
		delete->no_sync = true;
		return 0;
	case ARGP_KEY_ARGS:
		delete->address = state->argv[state->next];
		delete->names = state->argv + state->next + 1;
		delete->count = state->argc - state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!delete->address)
			argp_error(state, "the ADDRESS of a server is missing");
		if (!delete->count)
			argp_error(state, "the NAME of an upload is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option delete_options[] = {
	{ "no-sync", OPTION_NO_SYNC, NULL, 0,
	  "Do not wait until the server's storage has the change; a crash can bring the file back", 1 },
	{ 0 },
};

static const struct cli_command delete_command = {
	.arguments = "ADDRESS NAME...",
	.summary = "Delete files that this identity has put to `peerlane serve` at ADDRESS.",
	.examples = {
		"peerlane delete --identity id.pem gpu1 results/run7.bin",
		"peerlane delete --identity id.pem gpu1 old.bin --json | jq '.files[].size'",
	},
	.notes = "The finished file and the unfinished upload of each NAME are deleted, if this identity has stored them.  "
		 "Without identities, the server must allow it with --allow-delete.\n",
	.options = delete_options,
	.parse = parse_delete_argument,
	.connection = true,
};

static void delete_name(struct delete *delete, const char *name, struct deleted *deleted)
{
	struct service_message request, answer;
	int rc = session_name(&request, SERVICE_DELETE, name, &deleted->error);

	if (delete->no_sync)
		request.flags = SERVICE_UNSYNCED;
	if (rc == 0)
		rc = session_call(&delete->session, &request, &answer, &deleted->error);
	deleted->status = rc;
	if (rc == 0)
		deleted->size = answer.size;
	else if (!deleted->error.object[0])
		snprintf(deleted->error.object, sizeof(deleted->error.object), "%s", name);
}

static void print_deleted(const struct delete *delete, const char *name, const struct deleted *deleted)
{
	char clean[CLI_ESCAPED(SERVICE_NAME_MAX)], size[CLI_UNIT_MAX];

	if (deleted->status < 0)
		cli_report(&deleted->error);
	if (deleted->status < 0 || delete->common.json || delete->common.quiet)
		return;
	printf("%s: deleted, %s\n", cli_escape(clean, sizeof(clean), name), cli_format_bytes(size, deleted->size));
	fflush(stdout);
}

static int print_deleted_json(const struct delete *delete, const struct deleted *deleted, int count)
{
	struct json_object *object = cli_json_begin(), *files = json_object_new_array();

	for (int i = 0; i < count; i++) {
		struct json_object *file = json_object_new_object();

		cli_json_add(file, "name", cli_json_text(delete->names[i]));
		cli_json_add(file, "size", json_object_new_uint64(deleted[i].size));
		cli_json_add(file, "error", deleted[i].status < 0 ? cli_json_error(&deleted[i].error) : NULL);
		cli_json_append(files, file);
	}
	cli_json_add(object, "address", cli_json_text(delete->session.info.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(delete->session.info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(delete->session.info.encrypted));
	cli_json_add(object, "files", files);
	return cli_json_results(object);
}

int pl_cli_delete(int argc, char **argv)
{
	struct delete delete = { .address = NULL };
	struct deleted *deleted;
	struct pl_error error;
	int count = 0, status = CLI_OK;

	cli_parse(&delete_command, argc, argv, &delete.common, &delete);
	deleted = calloc((size_t)delete.count, sizeof(*deleted));
	if (!deleted)
		cli_fail_errno(&error, -ENOMEM, "malloc", NULL);
	if (!deleted || session_open(&delete.session, &delete.common, delete.address, &error) < 0) {
		free(deleted);
		return cli_report_for(&delete.common, &error);
	}
	for (; count < delete.count && !delete.session.interrupted; count++) {
		delete_name(&delete, delete.names[count], &deleted[count]);
		print_deleted(&delete, delete.names[count], &deleted[count]);
		if (deleted[count].status < 0)
			status = CLI_FAILED;
	}
	session_close(&delete.session);
	if (delete.common.json && print_deleted_json(&delete, deleted, count) != CLI_OK)
		status = CLI_OUTPUT;
	free(deleted);
	return status;
}
