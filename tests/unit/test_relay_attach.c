/* SPDX-License-Identifier: BSD-2-Clause */
/* Work of a relay while its subscriber attaches to a publisher again. */
#include <stdio.h>
#include <string.h>

#include "cmd/stream/subscribe.h"
#include "support/cases.h"
#include "support/check.h"
#include "support/publishing.h"

/* Publisher that makes progress only while the subscriber's client does its work. */
struct restarted {
	struct publishing publishing;
	unsigned served;
};

static void serve_restarted(void *user)
{
	struct restarted *restarted = user;
	struct pl_completion completions[4];

	restarted->served++;
	while (pl_poll(restarted->publishing.context, completions, 4) == 4)
		;
}

static void restarted_open(struct restarted *restarted, const struct pl_publisher_options *stream)
{
	struct publishing *publishing = &restarted->publishing;
	struct pl_options options = PL_OPTIONS_INIT;
	struct pl_error error = { 0 };

	options.progress = PL_PROGRESS_MANUAL;
	options.fabric = "tcp";
	check_ok(pl_open(&publishing->context, &options, &error), &error);
	check_ok(pl_listen(publishing->context, "127.0.0.1:0", &publishing->listener, &error), &error);
	pl_listener_address(publishing->listener, publishing->address, sizeof(publishing->address));
	check_ok(pl_publisher_open(publishing->context, "cam0", stream, &publishing->publisher, &error), &error);
}

/* The publisher answers SUBSCRIBE only if the work goes on during the attachment. */
static void work_goes_on_while_a_subscriber_attaches(void *argument)
{
	struct pl_publisher_options stream = PL_PUBLISHER_OPTIONS_INIT;
	struct subscribe_options options = {
		.source = { .name = "cam0", .stream = PL_SUBSCRIBER_OPTIONS_INIT, .reconnect = 100 * CLI_NS_PER_S },
		.count = UINT64_MAX,
	};
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	struct subscribe subscribe = { 0 };
	struct restarted restarted = { 0 };
	struct publishing first = { 0 };
	struct stream_client_work work = { .serve = serve_restarted, .user = &restarted };
	struct pl_error error = { 0 };

	(void)argument;
	stream.slot_bytes = 64;
	publishing_open(&first, "cam0", &stream);
	restarted_open(&restarted, &stream);
	options.source.address = first.address;
	subscribe_init(&subscribe, &options);
	check_ok(subscribe_open(&subscribe, &error), &error);
	check(strlen(restarted.publishing.address) < sizeof(subscribe.client.address));
	strcpy(subscribe.client.address, restarted.publishing.address);
	work.fd = pl_fd(restarted.publishing.context);
	subscribe.client.work = &work;
	check_ok(subscribe_reconnect(&subscribe, &error), &error);
	check_number(subscribe.reconnects, 1);
	check(restarted.served > 0);
	check(pl_publisher_query(restarted.publishing.publisher, &info) == 0);
	check_number(info.subscribers, 1);
	subscribe_close(&subscribe);
	publishing_close(&restarted.publishing);
	publishing_close(&first);
}

int main(void)
{
	static const struct test_case cases[] = {
		{ "work goes on while a subscriber attaches", work_goes_on_while_a_subscriber_attaches, NULL, 300 },
	};

	return cases_run("relay attach", cases, sizeof(cases) / sizeof(cases[0]));
}
