/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/common/units.h"
#include "cmd/transfer/transfer.h"

void pipeline_result_add_json(struct json_object *object, const struct pipeline_result *result)
{
	double seconds = (double)result->nanoseconds / 1e9;

	cli_json_add(object, "bytes", json_object_new_uint64(result->bytes));
	cli_json_add(object, "seconds", json_object_new_double(seconds));
	cli_json_add(object, "bytes_per_second",
		     json_object_new_double(result->nanoseconds ? (double)result->bytes / seconds : 0));
	cli_json_add(object, "bytes_staged", json_object_new_uint64(result->staged));
	cli_json_add(object, "fabric", cli_json_text(result->fabric));
	cli_json_add(object, "route", cli_json_text(cli_route_name(result->route)));
	cli_json_add(object, "reason", cli_json_text(result->reason));
	cli_json_add(object, "lanes", json_object_new_int((int)result->lanes));
}

void transfer_print(const struct transfer *transfer)
{
	char name[CLI_ESCAPED(SERVICE_NAME_MAX)], size[CLI_UNIT_MAX], time[CLI_UNIT_MAX], rate[CLI_UNIT_MAX],
		kept[CLI_UNIT_MAX];
	char hash[HASH_TEXT_MAX];
	const struct pipeline_result *result = &transfer->result;

	printf("%s: %s", cli_escape(name, sizeof(name), transfer->file),
	       cli_format_bytes(size, transfer->sparse ? transfer->size : result->bytes));
	if (transfer->sparse)
		printf(" with %s of data", cli_format_bytes(size, result->bytes));
	printf(" in %s", cli_format_time(time, result->nanoseconds));
	if (result->bytes)
		printf(", %s", cli_format_rate(rate, result->bytes, result->nanoseconds));
	if (transfer->resumed)
		printf(", resumed after %s", cli_format_bytes(kept, transfer->resumed));
	putchar('\n');
	if (transfer->verified)
		printf("  verified: xxh128 %s\n", hash_format(transfer->hash, hash));
	if (result->staged)
		printf("  staged: %s\n", result->reason);
	fflush(stdout);
}

void transfer_print_failure(const struct transfer *transfer)
{
	char kept[CLI_UNIT_MAX], size[CLI_UNIT_MAX];
	struct pl_error error = transfer->error;

	if (!error.object[0])
		snprintf(error.object, sizeof(error.object), "%s", transfer->name);
	cli_report(&error);
	if (transfer->kept)
		fprintf(stderr, "  kept: %s of %s; repeat the command to resume\n",
			cli_format_bytes(kept, transfer->kept), cli_format_bytes(size, transfer->size));
}

static struct json_object *transfer_json(const struct transfer *transfer)
{
	struct json_object *object = json_object_new_object();
	char hash[HASH_TEXT_MAX];

	cli_json_add(object, "name", cli_json_text(transfer->name));
	cli_json_add(object, "file", cli_json_text(transfer->file));
	cli_json_add(object, "size", json_object_new_uint64(transfer->size));
	if (transfer->offset)
		cli_json_add(object, "offset", json_object_new_uint64(transfer->offset));
	cli_json_add(object, "resumed", json_object_new_uint64(transfer->resumed));
	cli_json_add(object, "kept", json_object_new_uint64(transfer->kept));
	pipeline_result_add_json(object, &transfer->result);
	cli_json_add(object, "verified", json_object_new_boolean(transfer->verified));
	cli_json_add(object, "xxh128", transfer->verified ? cli_json_text(hash_format(transfer->hash, hash)) : NULL);
	cli_json_add(object, "error", transfer->status < 0 ? cli_json_error(&transfer->error) : NULL);
	return object;
}

int transfers_print_json(const struct transfer *transfers, size_t count, const struct session *session)
{
	struct json_object *object = cli_json_begin(), *files = json_object_new_array();

	for (size_t i = 0; i < count; i++)
		cli_json_append(files, transfer_json(&transfers[i]));
	cli_json_add(object, "address", cli_json_text(session->info.address));
	cli_json_add(object, "authenticated", json_object_new_boolean(session->info.authenticated));
	cli_json_add(object, "encrypted", json_object_new_boolean(session->info.encrypted));
	cli_json_add(object, "files", files);
	if (session->with_events)
		cli_json_add(object, "events", cli_events_json(&session->events));
	return cli_json_results(object);
}

enum cli_exit transfers_status(const struct transfer *transfers, size_t count)
{
	enum cli_exit status = CLI_OK;

	for (size_t i = 0; i < count; i++) {
		if (transfers[i].status < 0)
			return CLI_FAILED;
		if (transfers[i].result.staged)
			status = CLI_DEGRADED;
	}
	return status;
}
