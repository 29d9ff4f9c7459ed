/* SPDX-License-Identifier: BSD-2-Clause */
/* Results of `peerlane publish`. */
#include <stdlib.h>

#include "cmd/common/output.h"
#include "cmd/common/units.h"
#include "cmd/stream/layout_text.h"
#include "cmd/stream/publish.h"
#include "cmd/stream/stream_json.h"

/* Subscribers that are described: those that a publisher can have, and 64 that have ended. */
#define SUBSCRIBERS_DESCRIBED (256 + 64)

int publish_print_listening(const struct publish *publish, struct pl_error *error)
{
	const struct publish_options *options = publish->options;
	char address[80], dtype[STREAM_DTYPE_MAX], shape[STREAM_SHAPE_MAX], bytes[CLI_UNIT_MAX];
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct json_object *object;
	int rc;

	pl_listener_address(publish->listener, address, sizeof(address));
	pl_publisher_query(publish->publisher, &info);
	if (options->common.json) {
		object = cli_json_begin();
		cli_json_add(object, "event", cli_json_text("listening"));
		cli_json_add(object, "address", cli_json_text(address));
		cli_json_add(object, "stream", stream_json_describe(&info));
		rc = cli_json_end(object, false);
		return rc < 0 ? cli_fail_errno(error, rc, "malloc", "standard output") : 0;
	}
	printf("listening on %s\n", address);
	if (!options->common.quiet)
		printf("publishing %s: %s %s, frames of %s, %llu slots\n", info.name,
		       stream_dtype_format(dtype, &info.layout), stream_shape_format(shape, &info.layout),
		       cli_format_bytes(bytes, info.slot_bytes), (unsigned long long)info.slots);
	fflush(stdout);
	return 0;
}

static struct json_object *subscription_json(const struct pl_subscription_info *info)
{
	struct json_object *object = json_object_new_object();
	struct pl_peer_info peer = PL_PEER_INFO_INIT;
	bool known = info->peer && pl_peer_query(info->peer, &peer) == 0;

	cli_json_add(object, "address", known ? cli_json_text(peer.address) : NULL);
	cli_json_add(object, "blocks", json_object_new_boolean(info->blocks));
	cli_json_add(object, "demoted", json_object_new_boolean(info->demoted));
	cli_json_add(object, "ended", json_object_new_boolean(info->ended));
	cli_json_add(object, "accounts", stream_json_accounts(&info->accounts));
	return object;
}

static struct json_object *subscriptions_json(const struct pl_subscription_info *infos, int count)
{
	struct json_object *array = json_object_new_array();

	for (int i = 0; i < count; i++)
		cli_json_append(array, subscription_json(&infos[i]));
	return array;
}

static int print_totals_json(const struct publish *publish, const struct pl_subscription_info *infos, int count,
			     const struct pl_error *error)
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
	cli_json_add(object, "unreported", json_object_new_uint64(publish->unreported));
	cli_json_add(object, "subscribers", subscriptions_json(infos, count));
	cli_json_add(object, "error", error ? cli_json_error(error) : NULL);
	if (cli_json_end(object, false) == 0)
		return CLI_OK;
	cli_warn("there is no memory for the results as JSON");
	return CLI_OUTPUT;
}

static void print_totals_text(const struct publish *publish, const struct pl_subscription_info *infos, int count)
{
	char bytes[CLI_UNIT_MAX], time[CLI_UNIT_MAX], rate[CLI_UNIT_MAX];
	uint64_t span = publish->end - publish->begin;
	unsigned demoted = 0;

	for (int i = 0; i < count; i++)
		demoted += infos[i].demoted;
	printf("%llu frames, %s in %s, %s; refused %llu; subscribers %d, demoted %u\n",
	       (unsigned long long)publish->frames, cli_format_bytes(bytes, publish->bytes),
	       cli_format_time(time, span), cli_format_rate(rate, publish->bytes, span),
	       (unsigned long long)publish->refused, count, demoted);
}

int publish_print_totals(const struct publish *publish, const struct pl_error *error)
{
	struct pl_subscription_info *infos = calloc(SUBSCRIBERS_DESCRIBED, sizeof(*infos));
	int count = 0, status = CLI_OK;

	if (infos) {
		infos[0].size = sizeof(*infos);
		count = CLI_MAX(pl_publisher_subscribers(publish->publisher, infos, SUBSCRIBERS_DESCRIBED), 0);
	}
	if (publish->options->common.json)
		status = print_totals_json(publish, infos, count, error);
	else
		print_totals_text(publish, infos, count);
	if (publish->unreported)
		cli_warn("%u subscribers have not taken all frames\n"
			 "  hint: allow them more time with --timeout",
			 publish->unreported);
	free(infos);
	return status;
}
