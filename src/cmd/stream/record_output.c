/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane record`. */
#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/record.h"
#include "cmd/stream/stream_json.h"

static int print_record_json(const struct record *record, const struct pl_accounts *accounts,
			     const struct pl_error *error)
{
	struct json_object *object = cli_json_begin();
	uint64_t span = record->finish - record->begin;
	double seconds = (double)span / 1e9;

	cli_json_add(object, "address", cli_json_text(record->client.info.address));
	cli_json_add(object, "fabric", cli_json_text(record->client.info.fabric));
	cli_json_add(object, "stream", stream_json_describe(&record->info.stream, -1));
	cli_json_add(object, "file", cli_json_text(record->options->to));
	cli_json_add(object, "end", cli_json_text(recording_end_name(record->end)));
	cli_json_add(object, "indexed", json_object_new_boolean(record->indexed));
	cli_json_add(object, "frames", json_object_new_uint64(record->used.frames));
	cli_json_add(object, "bytes", json_object_new_uint64(record->bytes));
	cli_json_add(object, "replayed", json_object_new_uint64(record->replayed));
	cli_json_add(object, "reconnects", json_object_new_uint64(record->reconnects));
	cli_json_add(object, "seconds", json_object_new_double(seconds));
	cli_json_add(object, "bytes_per_second", json_object_new_double(span ? (double)record->bytes / seconds : 0));
	cli_json_add(object, "lost", json_object_new_uint64(stream_accounts_lost(accounts)));
	cli_json_add(object, "accounts", stream_json_accounts(accounts));
	cli_json_add(object, "gaps", recording_gaps_json(&record->gaps));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	return cli_json_results(object);
}

static void print_record_text(const struct record *record, const struct pl_accounts *accounts)
{
	uint64_t span = record->finish - record->begin, lost = stream_accounts_lost(accounts);
	char bytes[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	struct wrap_line line = { .length = 0 };

	wrap_line_add(&line, "%llu of %llu frame%s, %s, %s; ", (unsigned long long)record->used.frames,
		      (unsigned long long)(record->used.frames + lost), cli_plural(record->used.frames + lost),
		      cli_format_bytes(bytes, record->bytes), cli_format_rate(rate, record->bytes, span));
	stream_accounts_add_lost(&line, accounts);
	if (accounts->aborted)
		wrap_line_add(&line, "; aborted %llu", (unsigned long long)accounts->aborted);
	if (record->reconnects)
		wrap_line_add(&line, "; reconnects %llu", (unsigned long long)record->reconnects);
	wrap_line_print(&line, stdout);
	if (lost)
		recording_gaps_print(stdout, &record->gaps);
}

int record_print(const struct record *record, const struct pl_error *error)
{
	struct pl_accounts accounts = record_accounts(record);
	int status = stream_accounts_lost(&accounts) ? CLI_DEGRADED : CLI_OK;

	if (record->options->source.common.json) {
		if (print_record_json(record, &accounts, error) != CLI_OK)
			status = CLI_OUTPUT;
	} else {
		print_record_text(record, &accounts);
		if (!record->options->source.common.quiet)
			stream_accounts_warn(&accounts);
	}
	return error ? cli_report(error) : status;
}
