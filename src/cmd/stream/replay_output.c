/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane replay`. */
#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/replay.h"

static int print_replay_json(const struct replay *replay, const struct pl_error *error)
{
	struct json_object *object = cli_json_begin();
	double seconds = (double)(replay->end - replay->begin) / 1e9;

	cli_json_add(object, "event", cli_json_text("ended"));
	cli_json_add(object, "frames", json_object_new_uint64(replay->frames));
	cli_json_add(object, "bytes", json_object_new_uint64(replay->bytes));
	cli_json_add(object, "seconds", json_object_new_double(seconds));
	cli_json_add(object, "damaged", json_object_new_uint64(replay->damaged));
	cli_json_add(object, "unreported", json_object_new_uint64(replay->server.unreported));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	if (cli_json_end(object, false) == 0)
		return CLI_OK;
	cli_warn("there is no memory for the results as JSON");
	return CLI_OUTPUT;
}

static void print_replay_text(const struct replay *replay)
{
	char bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	uint64_t span = replay->end - replay->begin;

	printf("%llu frame%s, %s in %s, %s; damaged %llu\n", (unsigned long long)replay->frames,
	       cli_plural(replay->frames), cli_format_bytes(bytes, replay->bytes), cli_format_time(time, span),
	       cli_format_rate(rate, replay->bytes, span), (unsigned long long)replay->damaged);
}

int replay_print_totals(const struct replay *replay, const struct pl_error *error)
{
	int status = replay->damaged ? CLI_FAILED : CLI_OK;

	if (replay->options->common.json) {
		if (print_replay_json(replay, error) != CLI_OK)
			status = CLI_OUTPUT;
	} else {
		print_replay_text(replay);
	}
	stream_server_warn(&replay->server);
	return error ? cli_report(error) : status;
}
