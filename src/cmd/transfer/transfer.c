/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/units.h"

#define COPY_PIECE (8ull << 20)

error_t transfer_parse_option(struct transfer_command *command, int key, char *argument, struct argp_state *state)
{
	switch (key) {
	case 'm':
		command->memory = cli_parse_memory_kind("memory", argument, state);
		return 0;
	case 'V':
		command->verify = true;
		return 0;
	case TRANSFER_OPTION_EVENTS:
		command->common.events = true;
		return 0;
	case ARGP_KEY_ARGS:
		command->address = state->argv[state->next];
		command->names = state->argv + state->next + 1;
		command->count = state->argc - state->next - 1;
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!command->address)
			argp_error(state, "the ADDRESS of a server is missing");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

const char *transfer_last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int compare_last_names(const void *a, const void *b)
{
	return strcmp(transfer_last_name(*(const char *const *)a), transfer_last_name(*(const char *const *)b));
}

bool transfer_find_duplicate(char *const *paths, int count, const char **first, const char **second)
{
	const char **sorted = malloc((size_t)count * sizeof(*sorted));
	bool found = false;

	if (!sorted)
		return false;
	memcpy(sorted, paths, (size_t)count * sizeof(*sorted));
	qsort(sorted, (size_t)count, sizeof(*sorted), compare_last_names);
	for (int i = 1; i < count && !found; i++) {
		*first = sorted[i - 1];
		*second = sorted[i];
		/* A directory with a slash behind it has no last component. */
		found = *transfer_last_name(*first) && compare_last_names(first, second) == 0;
	}
	free(sorted);
	return found;
}

int transfer_add(struct transfer_command *command, const char *name, const char *file, struct pl_error *error)
{
	struct transfer *transfers = command->transfers;
	size_t count = command->transfer_count;

	/* Grows in steps of powers of two. */
	if ((count & (count - 1)) == 0)
		transfers = realloc(transfers, (count ? count * 2 : 1) * sizeof(*transfers));
	if (!transfers)
		return cli_fail_errno(error, -ENOMEM, "malloc", name);
	command->transfers = transfers;
	transfers[count] = (struct transfer){ .name = name, .file = file };
	command->transfer_count++;
	return 0;
}

static void print_result(const struct transfer_command *command, const struct transfer *transfer)
{
	if (transfer->status < 0)
		transfer_print_failure(transfer);
	else if (!command->common.json && !command->common.quiet)
		transfer_print(transfer);
}

/* Closes the connection and prints its events. */
static void close_transfer_session(struct transfer_command *command)
{
	struct session *session = &command->session;

	session_close(session);
	if (command->common.events && !command->common.json)
		cli_events_print(stderr, &session->events, session->address, true);
}

static enum cli_exit run_transfers(struct transfer_command *command,
				   size_t (*run)(void *user, struct transfer *transfers, size_t count), void *user)
{
	struct pl_error error;
	size_t count = 0;

	if (session_open(&command->session, &command->common, command->address, &error) < 0)
		return cli_report_for(&command->common, &error);
	if (command->expand && command->expand(user, &error) < 0) {
		close_transfer_session(command);
		return cli_report_for(&command->common, &error);
	}
	while (count < command->transfer_count && !command->session.interrupted) {
		size_t end = count + run(user, &command->transfers[count], command->transfer_count - count);

		for (; count < end; count++)
			print_result(command, &command->transfers[count]);
	}
	close_transfer_session(command);
	if (command->common.json && transfers_print_json(command->transfers, count, &command->session) != CLI_OK)
		return CLI_OUTPUT;
	return transfers_status(command->transfers, count);
}

enum cli_exit transfer_run_all(struct transfer_command *command,
			       size_t (*run)(void *user, struct transfer *transfers, size_t count), void *user)
{
	enum cli_exit status = run_transfers(command, run, user);

	free(command->transfers);
	return status;
}

/* Copies the file into GPU memory, in pieces, between which a signal can interrupt the command. */
static int fill_gpu_region(const struct pipeline *pipeline, const uint8_t *bytes, struct pl_error *error)
{
	int rc = 0;

	for (uint64_t at = 0; rc == 0 && at < pipeline->length; at += COPY_PIECE) {
		rc = pl_region_copy_in(pipeline->region, at, bytes + at, CLI_MIN(pipeline->length - at, COPY_PIECE),
				       error);
		if (rc == 0)
			rc = session_pump(pipeline->session, 0, error);
	}
	return rc;
}

/* Registers the mapping of the file, or allocates GPU memory for the remaining bytes. */
static int open_transfer_region(const struct transfer_command *command, const struct transfer *transfer,
				uint8_t *mapping, struct pipeline *pipeline, struct pl_error *error)
{
	struct pl_context *context = command->session.context;
	int rc;

	if (!command->memory) {
		pipeline->offset = transfer->resumed;
		return pl_region_register(context, mapping, transfer->size, PL_ACCESS_LOCAL, &pipeline->region, error);
	}
	pipeline->offset = 0;
	rc = pl_region_allocate_in(context, command->memory, pipeline->length, PL_ACCESS_LOCAL, &pipeline->region,
				   error);
	if (rc == 0 && pipeline->write)
		rc = fill_gpu_region(pipeline, mapping + transfer->resumed, error);
	return rc;
}

/* Tells advance() of a hole that ends at an offset. */
static int pass_hole(struct transfer *transfer, struct pipeline *pipeline, uint64_t end, struct pl_error *error)
{
	int rc = 0;

	transfer->base = end;
	transfer->hole = true;
	if (pipeline->advance)
		rc = pipeline->advance(pipeline->user, 0, error);
	transfer->hole = false;
	return rc;
}

/* Moves the bytes from `begin` to `end`, after a hole. */
static int move_range(struct transfer *transfer, struct pipeline *pipeline, uint64_t begin, uint64_t end,
		      struct pl_error *error)
{
	int rc = 0;

	begin = CLI_MAX(begin, transfer->resumed);
	if (begin >= end)
		return 0;
	rc = pass_hole(transfer, pipeline, begin, error);
	pipeline->offset = pipeline->remote_offset = begin;
	pipeline->length = end - begin;
	return rc == 0 ? pipeline_run(pipeline, &transfer->result, error) : rc;
}

static int move_data_ranges(struct transfer *transfer, struct pipeline *pipeline, struct pl_error *error)
{
	int rc = 0;

	for (size_t i = 0; i < transfer->data.count && rc == 0; i++) {
		const struct service_range *range = &transfer->data.ranges[i];

		rc = move_range(transfer, pipeline, range->offset, range->offset + range->length, error);
	}
	return rc == 0 ? pass_hole(transfer, pipeline, transfer->size, error) : rc;
}

int transfer_move_bytes(struct transfer_command *command, struct transfer *transfer,
			const struct service_message *grant, void *mapping, struct pipeline *pipeline,
			struct pl_error *error)
{
	int rc;

	pipeline->session = &command->session;
	pipeline->remote_offset = transfer->offset + transfer->resumed;
	transfer->base = transfer->resumed;
	pipeline->length = transfer->size - transfer->resumed;
	if (pipeline->length == 0)
		return 0;
	rc = session_import(pipeline->session, grant, &pipeline->remote, error);
	if (rc < 0)
		return rc;
	rc = open_transfer_region(command, transfer, mapping, pipeline, error);
	if (rc == 0)
		rc = transfer->sparse ? move_data_ranges(transfer, pipeline, error)
				      : pipeline_run(pipeline, &transfer->result, error);
	if (pipeline->region)
		pl_region_deregister(pipeline->region);
	pl_remote_release(pipeline->remote);
	return rc;
}

int transfer_compare_beginning(struct transfer_command *command, uint32_t handle, const uint8_t *bytes, uint64_t length,
			       bool *same, struct pl_error *error)
{
	struct service_message request = { .type = SERVICE_HASH, .handle = handle, .length = length }, answer;
	struct hash_state *state;
	struct session_request pending;
	struct pl_error ignored;
	struct hash local;
	int rc = 0, answered;

	if (length == 0)
		return 0;
	state = hash_begin();
	if (!state)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	rc = session_send_request(&command->session, &request, &pending, error);
	if (rc < 0) {
		hash_discard(state);
		return rc;
	}
	for (uint64_t at = 0; rc == 0 && at < length; at += COPY_PIECE) {
		hash_add(state, bytes + at, CLI_MIN(length - at, COPY_PIECE));
		rc = session_pump(&command->session, 0, error);
	}
	local = hash_end(state);
	/* The answer is received in any case: `pending` ends with this call. */
	answered = session_wait_answer(&command->session, &pending, &answer, rc < 0 ? &ignored : error);
	if (rc == 0)
		rc = answered;
	if (rc == 0)
		*same = hash_equal(local, (struct hash){ answer.hash[0], answer.hash[1] });
	return rc;
}

int transfer_compare_hashes(struct transfer *transfer, struct hash_state **local, const struct service_message *answer,
			    struct pl_error *error)
{
	struct hash remote_hash = { answer->hash[0], answer->hash[1] }, local_hash = hash_end(*local);

	*local = NULL;
	if (!hash_equal(local_hash, remote_hash))
		return cli_fail(error, -ESTALE, "HASH-MISMATCH", transfer->name,
				"transfer it again; if this repeats, check the memory and disks of both hosts",
				"the file here and the file at the server have different hashes");
	transfer->hash = local_hash;
	transfer->verified = true;
	return 0;
}
