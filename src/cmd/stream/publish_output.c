/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane publish`. */
#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/publish.h"

static int print_totals_json(const struct publish *publish, const struct pl_error *error)
{
	struct json_object *object = cli_json_begin();
	double seconds = (double)(publish->end - publish->begin) / 1e9;

	cli_json_add(object, "event", cli_json_text("ended"));
	cli_json_add(object, "frames", json_object_new_uint64(publish->frames));
	cli_json_add(object, "bytes", json_object_new_uint64(publish->bytes));
	cli_json_add(object, "seconds", json_object_new_double(seconds));
	cli_json_add(object, "frames_per_second",
		     json_object_new_double(seconds > 0 ? (double)publish->frames / seconds : 0));
	cli_json_add(object, "bytes_per_second",
		     json_object_new_double(seconds > 0 ? (double)publish->bytes / seconds : 0));
	cli_json_add(object, "refused", json_object_new_uint64(publish->refused));
	cli_json_add(object, "unreported", json_object_new_uint64(publish->server.unreported));
	cli_json_add(object, "subscribers", stream_server_subscribers_json(&publish->server));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	if (cli_json_end(object, false) == 0)
		return CLI_OK;
	cli_warn("there is no memory for the results as JSON");
	return CLI_OUTPUT;
}

static void print_totals_text(const struct publish *publish)
{
	char bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	uint64_t span = publish->end - publish->begin;
	unsigned demoted, count = stream_server_count_subscribers(&publish->server, &demoted);

	printf("%llu frame%s, %s in %s, %s; refused %llu; subscribers %u, demoted %u\n",
	       (unsigned long long)publish->frames, cli_plural(publish->frames),
	       cli_format_bytes(bytes, publish->bytes), cli_format_time(time, span),
	       cli_format_rate(rate, publish->bytes, span), (unsigned long long)publish->refused, count, demoted);
}

int publish_print_totals(const struct publish *publish, const struct pl_error *error)
{
	int status = CLI_OK;

	if (publish->options->common.json)
		status = print_totals_json(publish, error);
	else
		print_totals_text(publish);
	stream_server_warn(&publish->server);
	return status;
}
