/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane subscribe`. */
#include <string.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/stream_json.h"
#include "cmd/stream/subscribe.h"

static const char *const end_names[] = {
	[SUBSCRIBE_ENDED] = "ended",
	[SUBSCRIBE_COUNT] = "count",
	[SUBSCRIBE_SIGNAL] = "signal",
	[SUBSCRIBE_FAILED] = "failed",
};

static struct json_object *latency_json(const struct subscribe *subscribe)
{
	struct json_object *object = json_object_new_object();
	const struct stats *latency = &subscribe->latency;

	cli_json_add(object, "minimum", json_object_new_uint64(latency->count ? latency->minimum : 0));
	cli_json_add(object, "p50", json_object_new_uint64(stats_percentile(latency, 50)));
	cli_json_add(object, "p99", json_object_new_uint64(stats_percentile(latency, 99)));
	cli_json_add(object, "maximum", json_object_new_uint64(latency->maximum));
	cli_json_add(object, "same_host", json_object_new_boolean(subscribe->client.info.same_host));
	return object;
}

/* Returns the sums of all instances.  Sequences of several instances have no common range. */
static struct json_object *accounts_json(const struct subscribe *subscribe, const struct pl_accounts *accounts)
{
	struct json_object *object = stream_json_accounts(accounts);

	if (subscribe->restarts) {
		cli_json_add(object, "first", NULL);
		cli_json_add(object, "next", NULL);
	}
	return object;
}

static const char *route_name(uint32_t route)
{
	return route == PL_ROUTE_STAGED ? "staged" : route == PL_ROUTE_DIRECT ? "direct" : "none";
}

static int print_subscribe_json(const struct subscribe *subscribe, const struct pl_accounts *accounts,
				const struct pl_error *error)
{
	const struct subscribe_forward *forward = subscribe->forward;
	const char *memory = subscribe->options->source.stream.memory;
	struct json_object *object = cli_json_begin();
	uint64_t span = subscribe->finish - subscribe->begin;
	double seconds = (double)span / 1e9;

	cli_json_add(object, "address", cli_json_text(subscribe->client.info.address));
	cli_json_add(object, "fabric", cli_json_text(subscribe->client.info.fabric));
	cli_json_add(object, "stream", stream_json_describe(&subscribe->info.stream, -1));
	cli_json_add(object, "memory", cli_json_text(memory ? memory : "host"));
	cli_json_add(object, "end", cli_json_text(end_names[subscribe->end]));
	cli_json_add(object, "frames", json_object_new_uint64(subscribe->frames));
	if (!forward)
		cli_json_add(object, "in_place", json_object_new_uint64(subscribe->in_place));
	cli_json_add(object, "bytes", json_object_new_uint64(subscribe->bytes));
	cli_json_add(object, "seconds", json_object_new_double(seconds));
	cli_json_add(object, "bytes_per_second", json_object_new_double(span ? (double)subscribe->bytes / seconds : 0));
	cli_json_add(object, "lost", json_object_new_uint64(stream_accounts_lost(accounts)));
	cli_json_add(object, "accounts", accounts_json(subscribe, accounts));
	cli_json_add(object, "latency_ns", latency_json(subscribe));
	cli_json_add(object, "route", cli_json_text(route_name(subscribe->info.route)));
	cli_json_add(object, "reason", cli_json_text_or_null(subscribe->info.reason));
	cli_json_add(object, "verified", json_object_new_boolean(subscribe->verified));
	cli_json_add(object, "written", json_object_new_uint64(subscribe->sink.frames));
	cli_json_add(object, "snapshots", json_object_new_uint64(subscribe->snapshot.written));
	cli_json_add(object, "reconnects", json_object_new_uint64(subscribe->reconnects));
	cli_json_add(object, "restarts", json_object_new_uint64(subscribe->restarts));
	if (forward) {
		cli_json_add(object, "event", cli_json_text("ended"));
		cli_json_add(object, "subscribers", stream_server_subscribers_json(forward->server));
		cli_json_add(object, "unreported", json_object_new_uint64(forward->server->unreported));
	}
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	/* A relay prints an object a line. */
	return forward ? (cli_json_end(object, false) == 0 ? CLI_OK : CLI_OUTPUT) : cli_json_results(object);
}

/* Prints how the frames came into, or out of, GPU memory. */
static void print_route(FILE *to, const struct subscribe *subscribe)
{
	const struct pl_subscriber_info *info = &subscribe->info;
	struct wrap_line line = { .length = 0 };

	if (!info->reason || (!frame_memory_is_gpu(subscribe->options->source.stream.memory) &&
			      !frame_memory_is_gpu(info->stream.memory)))
		return;
	wrap_line_add(&line, "route: %s, %s", route_name(info->route), info->reason);
	wrap_line_print(&line, to);
}

static void print_latency(FILE *to, const struct subscribe *subscribe)
{
	char half[CLI_UNIT_MAX], most[CLI_UNIT_MAX];
	struct wrap_line line = { .length = 0 };

	wrap_line_add(&line, "captured to taken: p50 %s, p99 %s%s",
		      cli_format_time(half, stats_percentile(&subscribe->latency, 50)),
		      cli_format_time(most, stats_percentile(&subscribe->latency, 99)),
		      subscribe->client.info.same_host ? "" : " (with the difference of the clocks of both hosts)");
	wrap_line_print(&line, to);
}

static void print_subscribe_text(FILE *to, const struct subscribe *subscribe, const struct pl_accounts *accounts)
{
	uint64_t span = subscribe->finish - subscribe->begin, lost = stream_accounts_lost(accounts);
	char bytes[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	struct wrap_line line = { .length = 0 };
	unsigned subscribers, demoted;

	wrap_line_add(&line, "%llu of %llu frame%s, %s, %s; ", (unsigned long long)subscribe->frames,
		      (unsigned long long)(subscribe->frames + lost), cli_plural(subscribe->frames + lost),
		      cli_format_bytes(bytes, subscribe->bytes), cli_format_rate(rate, subscribe->bytes, span));
	stream_accounts_add_lost(&line, accounts);
	if (subscribe->in_place)
		wrap_line_add(&line, "; in place %llu", (unsigned long long)subscribe->in_place);
	if (accounts->aborted)
		wrap_line_add(&line, "; aborted %llu", (unsigned long long)accounts->aborted);
	if (subscribe->reconnects)
		wrap_line_add(&line, "; reconnects %llu, restarts of the publisher %llu",
			      (unsigned long long)subscribe->reconnects, (unsigned long long)subscribe->restarts);
	if (subscribe->verified)
		wrap_line_add(&line, "; verified");
	if (subscribe->forward) {
		subscribers = stream_server_count_subscribers(subscribe->forward->server, &demoted);
		wrap_line_add(&line, "; subscribers %u, demoted %u", subscribers, demoted);
	}
	wrap_line_print(&line, to);
	if (subscribe->frames && !subscribe->options->source.common.quiet) {
		if (subscribe->latency.count)
			print_latency(to, subscribe);
		print_route(to, subscribe);
	}
	fflush(to);
}

int subscribe_print(const struct subscribe *subscribe, const struct pl_error *error)
{
	const struct subscribe_options *options = subscribe->options;
	struct pl_accounts accounts = subscribe_accounts(subscribe, !subscribe->over);
	bool frames_on_stdout = options->to && !strcmp(options->to, "-");
	int status = stream_accounts_lost(&accounts) || subscribe->restarts ? CLI_DEGRADED : CLI_OK;

	if (options->source.common.json) {
		if (print_subscribe_json(subscribe, &accounts, error) != CLI_OK)
			status = CLI_OUTPUT;
	} else {
		print_subscribe_text(frames_on_stdout ? stderr : stdout, subscribe, &accounts);
		if (!options->source.common.quiet)
			stream_accounts_warn(&accounts);
	}
	if (!error)
		return status;
	/* A reader of standard output that has closed its pipe gets no message. */
	if (!frames_on_stdout || !subscribe->sink.failed || error->code != -EPIPE)
		cli_report(error);
	return frames_on_stdout && subscribe->sink.failed ? CLI_OUTPUT : CLI_FAILED;
}
