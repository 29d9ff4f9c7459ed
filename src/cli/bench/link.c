/* SPDX-License-Identifier: BSD-2-Clause */
/* One end of a measurement: its region, its messages, its completions. */
#include <poll.h>
#include <string.h>
#include <sys/resource.h>

#include "cli/bench/bench.h"

#define BATCH 64
#define TAG_CONTROL 1u
#define TAG_DATA 2u

/* What a completion is, as its user_data. */
enum { OF_CONTROL = 1, OF_CONTROL_SENT, OF_OURS, OF_RECEIVE };

uint64_t bench_cpu_time(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * CLI_NS_PER_S +
	       ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000;
}

static int expect_message(struct bench_link *link, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;

	attributes.user_data = OF_CONTROL;
	attributes.timeout = UINT64_MAX;
	return pl_receive(link->peer, TAG_CONTROL, UINT64_MAX, link->control, 0, BENCH_MESSAGE_SIZE, &attributes, NULL,
			  error);
}

int bench_link_open(struct bench_link *link, struct pl_context *context, struct pl_peer *peer, bool manual,
		    uint64_t timeout, struct pl_error *error)
{
	int rc;

	memset(link, 0, sizeof(*link));
	link->context = context;
	link->peer = peer;
	link->manual = manual;
	link->timeout = timeout ? timeout : 30 * CLI_NS_PER_S;
	rc = pl_region_allocate(context, BENCH_MESSAGE_SIZE, PL_ACCESS_LOCAL, &link->control, error);
	return rc < 0 ? rc : expect_message(link, error);
}

void bench_link_close(struct bench_link *link)
{
	pl_remote_release(link->remote);
	pl_peer_close(link->peer);
	pl_region_deregister(link->region);
	pl_region_deregister(link->control);
	link->remote = NULL;
	link->peer = NULL;
	link->region = link->control = NULL;
}

int bench_link_room(struct bench_link *link, uint64_t area, struct bench_message *offer, struct pl_error *error)
{
	struct pl_grant_options grant = PL_GRANT_OPTIONS_INIT;
	size_t length = sizeof(offer->token);
	int rc;

	link->area = CLI_MAX(area, (uint64_t)BENCH_AREA_MIN);
	rc = pl_region_allocate(link->context, 2 * link->area, PL_ACCESS_ALL, &link->region, error);
	if (rc < 0)
		return rc;
	link->target = pl_region_address(link->region);
	link->source = link->target + link->area;
	grant.length = link->area;
	rc = pl_region_share(link->region, &grant, offer->token, &length, error);
	offer->token_length = (uint16_t)length;
	return rc;
}

int bench_link_import(struct bench_link *link, const struct bench_message *offer, struct pl_error *error)
{
	return pl_remote_import(link->peer, offer->token, offer->token_length, link->timeout, &link->remote, error);
}

int bench_link_say(struct bench_link *link, const struct bench_message *message, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	uint8_t buffer[BENCH_MESSAGE_SIZE];

	attributes.user_data = OF_CONTROL_SENT;
	bench_encode(message, buffer);
	return pl_send_copy(link->peer, TAG_CONTROL, buffer, sizeof(buffer), &attributes, NULL, error);
}

static void fail(struct bench_link *link, const struct pl_completion *completion)
{
	if (link->failure)
		return;
	link->failure = completion->receipt.status;
	link->error = completion->error;
}

static void message_arrived(struct bench_link *link, const struct pl_completion *completion)
{
	int rc;

	if (completion->receipt.status < 0) {
		fail(link, completion);
		return;
	}
	rc = bench_decode(pl_region_address(link->control), completion->receipt.bytes, &link->message);
	if (rc < 0)
		link->failure = cli_fail(&link->error, rc, "BENCH-PROTOCOL", NULL, "use the same release at both ends",
					 "the other end is no `peerlane bench`");
	else
		link->failure = expect_message(link, &link->error);
	link->arrived = true;
}

static void completed(struct bench_link *link, const struct pl_completion *completion)
{
	const struct pl_receipt *receipt = &completion->receipt;

	if (receipt->kind == PL_KIND_NOTIFIED) {
		link->notified++;
		return;
	}
	switch (receipt->user_data) {
	case OF_CONTROL:
		message_arrived(link, completion);
		return;
	case OF_OURS:
		link->done++;
		link->last = *receipt;
		if (link->stats)
			stats_add(link->stats, receipt->completed - receipt->posted);
		break;
	case OF_RECEIVE:
		link->receives--;
		link->received++;
		break;
	default:
		break;
	}
	if (receipt->status < 0)
		fail(link, completion);
}

void bench_link_pump(struct bench_link *link, bool busy)
{
	struct pl_completion completions[BATCH];
	int count = pl_poll(link->context, completions, BATCH);

	if (count == 0 && !link->manual && !busy) {
		struct pollfd ready = { .fd = pl_fd(link->context), .events = POLLIN };

		poll(&ready, 1, 10);
		count = pl_poll(link->context, completions, BATCH);
	}
	for (int i = 0; i < count; i++)
		completed(link, &completions[i]);
}

int bench_link_hear(struct bench_link *link, uint64_t timeout, struct pl_error *error)
{
	uint64_t end = cli_now() + timeout;

	link->arrived = false;
	while (!link->arrived && !link->failure) {
		bench_link_pump(link, false);
		if (cli_now() > end)
			return cli_fail(error, -ETIMEDOUT, "BENCH-TIMEOUT", NULL, "see whether the other end still runs",
					"the other end does not answer");
	}
	if (link->failure) {
		*error = link->error;
		return link->failure;
	}
	return 0;
}

static int post_vector(struct bench_link *link, enum bench_operation operation, uint64_t size, unsigned vector,
		       const struct pl_attributes *attributes, struct pl_error *error)
{
	struct pl_transfer transfers[BENCH_VECTOR_MAX];

	for (unsigned i = 0; i < vector; i++)
		transfers[i] = (struct pl_transfer){ link->remote, 0, link->region, link->area, size };
	if (operation == BENCH_WRITE)
		return pl_writev(link->peer, transfers, vector, attributes, NULL, error);
	return pl_readv(link->peer, transfers, vector, attributes, NULL, error);
}

int bench_link_post(struct bench_link *link, enum bench_operation operation, uint64_t size, unsigned vector,
		    bool notify, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	int rc;

	attributes.user_data = OF_OURS;
	attributes.timeout = link->timeout;
	attributes.flags = notify ? PL_NOTIFY : 0;
	if (vector > 1)
		rc = post_vector(link, operation, size, vector, &attributes, error);
	else if (operation == BENCH_WRITE)
		rc = pl_write(link->peer, link->remote, 0, link->region, link->area, size, &attributes, NULL, error);
	else if (operation == BENCH_READ)
		rc = pl_read(link->peer, link->remote, 0, link->region, link->area, size, &attributes, NULL, error);
	else if (operation == BENCH_SEND)
		rc = pl_send(link->peer, TAG_DATA, link->region, link->area, size, &attributes, NULL, error);
	else if (operation == BENCH_FETCH_ADD)
		rc = pl_fetch_add(link->peer, link->remote, 0, 1, NULL, &attributes, NULL, error);
	else
		rc = pl_compare_swap(link->peer, link->remote, 0, link->posted, link->posted + 1, NULL, &attributes,
				     NULL, error);
	link->posted += rc == 0;
	return rc;
}

int bench_link_receive(struct bench_link *link, unsigned depth, struct pl_error *error)
{
	struct pl_attributes attributes = PL_ATTRIBUTES_INIT;
	int rc = 0;

	attributes.user_data = OF_RECEIVE;
	attributes.timeout = UINT64_MAX;
	while (rc == 0 && link->receives < depth) {
		rc = pl_receive(link->peer, TAG_DATA, UINT64_MAX, link->region, 0, link->area, &attributes, NULL, error);
		link->receives += rc == 0;
	}
	return rc;
}
