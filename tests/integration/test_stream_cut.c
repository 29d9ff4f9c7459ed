/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accounts of a stream whose connection is cut after each of its control messages: the first one of one run, the second one
 * of the next run, until a run needs fewer messages. The subscriber attaches to a new connection, and goes on to the end.
 *
 * With --all the runs are longer, and all ways are used over all fabrics.
 */
#include <stdio.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/proxy.h"

#define BYTES 3000u
#define SLOTS 4u
#define QUEUE 2u

static const struct setting cut_tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting cut_local = {
	.name = "local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Frames that are awaited one by one, and then frames that are published without a pause. */
static unsigned awaited = 3, burst = 5;
/*
 * Messages between two cuts over the local fabric, whose lanes do not pass the proxy. Both ends wait half a second for what these
 * may still bring.
 */
static unsigned local_step = 5;

/* A way for frames. */
struct way {
	const struct setting *setting;
	enum pl_overflow overflow;
	bool push, in_place;
	unsigned every;
};

struct rig {
	struct scenario_environment environment;
	const struct way *way;
	struct proxy proxy;
	atomic_bool armed;     /* control messages count */
	atomic_uint passed;    /* since then */
	unsigned at;           /* the message after which the connection is cut */
	struct pl_peer *first; /* the connection through the proxy, at the publisher */
	struct pl_publisher *publisher;
	struct pl_subscriber *subscriber;
	bool again;            /* the subscriber has another connection */
	uint64_t after, taken; /* sequence after the last frame that was taken, and their number */
};

static bool count_record(void *user)
{
	struct rig *rig = user;

	return atomic_load(&rig->armed) && atomic_fetch_add(&rig->passed, 1) + 1 == rig->at;
}

static bool was_cut(struct rig *rig)
{
	return atomic_load(&rig->passed) >= rig->at;
}

static void connect_again(struct rig *rig)
{
	struct scenario_environment *environment = &rig->environment;

	check(was_cut(rig) && !rig->again);
	rig->again = true;
	pl_peer_close(environment->near_peer);
	rig->first = environment->far_peer;
	connect_pair(environment, environment->near, environment->listener, &environment->near_peer,
		     &environment->far_peer);
}

static void subscribe(struct rig *rig)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;
	int rc;

	options.overflow = rig->way->overflow;
	options.push = rig->way->push;
	options.in_place = rig->way->in_place;
	options.every = rig->way->every;
	options.queue = QUEUE;
	rc = pl_subscriber_open(rig->environment.near_peer, "cut", &options, AMPLE_TIME, &rig->subscriber, &error);
	if (rc == 0)
		return;
	/* The cut was the answer's, or that of the question. */
	check_number(rc, -ENOTCONN);
	connect_again(rig);
	check_ok(pl_subscriber_open(rig->environment.near_peer, "cut", &options, AMPLE_TIME, &rig->subscriber, &error),
		 &error);
}

static void rig_open(struct rig *rig, const struct way *way, unsigned at)
{
	struct scenario_environment *environment = &rig->environment;
	struct pl_publisher_options options = PL_PUBLISHER_OPTIONS_INIT;
	struct pl_error error;

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	rig->at = at;
	environment_listen(environment, way->setting);
	proxy_start_recording(&rig->proxy, environment->address, count_record, rig);
	options.slot_bytes = BYTES;
	options.slots = SLOTS;
	options.allow_block = true;
	options.patience = UINT64_MAX;
	check_ok(pl_publisher_open(environment->far, "cut", &options, &rig->publisher, &error), &error);
	check_ok(pl_connect(environment->near, rig->proxy.address, AMPLE_TIME, &environment->near_peer, &error),
		 &error);
	check_ok(pl_accept(environment->listener, AMPLE_TIME, &environment->far_peer, &error), &error);
	atomic_store(&rig->armed, true);
	subscribe(rig);
}

static void rig_close(struct rig *rig)
{
	pl_subscriber_close(rig->subscriber);
	pl_publisher_close(rig->publisher);
	pl_peer_close(rig->first);
	environment_close(&rig->environment);
	proxy_stop(&rig->proxy);
}

/* -- frames ---------------------------------------------------------------------------------------------------------- */

static void check_taken(struct rig *rig, struct pl_stream_frame *frame)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	check(pl_frame_query(frame, &info) == 0);
	check(info.sequence >= rig->after && info.length == BYTES);
	check_number(info.lost_before, info.sequence - rig->after);
	pattern_check(info.data, BYTES, info.sequence, 0);
	check(!(info.flags & PL_FRAME_OVERWRITTEN));
	check(!rig->way->every || info.sequence % rig->way->every == 0);
	rig->after = info.sequence + 1;
	rig->taken++;
	pl_frame_release(frame);
}

/* Attaches to another connection. Returns false if the subscriber knows all frames of a stream that has ended. */
static bool attach(struct rig *rig)
{
	struct pl_error error;
	int rc;

	connect_again(rig);
	rc = pl_subscriber_attach(rig->subscriber, rig->environment.near_peer, AMPLE_TIME, &error);
	if (rc == -ENODATA)
		return false;
	check_ok(rc, &error);
	return true;
}

/* Takes all frames that are ready. Returns false if none can come any more without another connection. */
static bool take_ready(struct rig *rig)
{
	struct pl_stream_frame *frame;
	int rc;

	while ((rc = pl_subscriber_take(rig->subscriber, &frame, 1, 0, NULL)) == 1)
		check_taken(rig, frame);
	check_one_of(rc, -EAGAIN, -ENOTCONN);
	return rc == -EAGAIN;
}

/* Takes frames until each one that is published has a fate. Attaches if the connection is lost. */
static void take_published(struct rig *rig)
{
	struct pl_publisher_info info = PL_PUBLISHER_INFO_INIT;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts accounts;

	check(pl_publisher_query(rig->publisher, &info) == 0);
	do {
		check(clock_now() < limit);
		if (!take_ready(rig))
			check(attach(rig));
		settle(&rig->environment, 1);
		accounts = exact_accounts(rig->subscriber);
	} while (accounts.next < info.published || accounts.pending);
}

static void publish_one(struct rig *rig)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;

	/* A ring that is held back. */
	if (pl_publisher_loan(rig->publisher, 0, &frame, &error) == -EAGAIN) {
		take_published(rig);
		check_ok(pl_publisher_loan(rig->publisher, AMPLE_TIME, &frame, &error), &error);
	}
	check(pl_frame_query(frame, &info) == 0);
	frame_fill(&info, BYTES);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
}

static void pass_frames(struct rig *rig)
{
	for (unsigned i = 0; i < awaited; i++) {
		publish_one(rig);
		take_published(rig);
	}
	for (unsigned i = 0; i < burst; i++)
		publish_one(rig);
	take_published(rig);
	/* Those that are published right before the end. */
	publish_one(rig);
	publish_one(rig);
}

static void take_to_end(struct rig *rig)
{
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc;

	for (;;) {
		rc = pl_subscriber_take(rig->subscriber, &frame, 1, AMPLE_TIME, &error);
		if (rc == 1) {
			check_taken(rig, frame);
		} else if (rc == -ENOTCONN) {
			if (!attach(rig))
				return;
		} else {
			check_number(rc, -ENODATA);
			return;
		}
	}
}

/* -- accounts -------------------------------------------------------------------------------------------------------- */

static void print_accounts(const char *end, const struct pl_accounts *accounts)
{
	fprintf(stderr,
		"%s: %llu to %llu: delivered %llu, lapped %llu, dropped %llu, rejected %llu, aborted %llu, "
		"missed %llu, unwanted %llu, pending %llu\n",
		end, (unsigned long long)accounts->first, (unsigned long long)accounts->next,
		(unsigned long long)accounts->delivered, (unsigned long long)accounts->lapped,
		(unsigned long long)accounts->dropped, (unsigned long long)accounts->rejected,
		(unsigned long long)accounts->aborted, (unsigned long long)accounts->missed,
		(unsigned long long)accounts->unwanted, (unsigned long long)accounts->pending);
}

static bool are_exact(const struct pl_accounts *accounts)
{
	return accounts->pending == 0 && accounts->delivered + accounts->lapped + accounts->dropped +
							 accounts->rejected + accounts->aborted + accounts->missed +
							 accounts->unwanted ==
						 accounts->next - accounts->first;
}

/* Returns the frames that `every` wants of all. */
static uint64_t wanted_of(const struct rig *rig, uint64_t frames)
{
	unsigned every = rig->way->every ? rig->way->every : 1;

	return (frames + every - 1) / every;
}

/* `ended`: the connection was there at the end, so the publisher has the subscriber's last report. */
static void check_accounts(struct rig *rig, bool ended)
{
	struct pl_subscription_info infos[4] = { PL_SUBSCRIPTION_INFO_INIT };
	uint64_t frames = awaited + burst + 2;
	struct pl_accounts here = exact_accounts(rig->subscriber);
	int count = pl_publisher_subscribers(rig->publisher, infos, 4);
	bool same = false, exact = are_exact(&here) && here.first == 0 && here.next == frames &&
				   here.delivered == rig->taken && here.unwanted == frames - wanted_of(rig, frames) &&
				   (rig->way->overflow != PL_OVERFLOW_BLOCK || here.lapped + here.dropped == 0) &&
				   (was_cut(rig) || here.missed == 0);

	for (int i = 0; i < count; i++) {
		exact = exact && are_exact(&infos[i].accounts) && infos[i].accounts.next <= frames;
		same = same || !memcmp(&infos[i].accounts, &here, sizeof(here));
	}
	if (exact && count > 0 && (same || !ended))
		return;
	fprintf(stderr, "cut after message %u, %llu frames taken\n", rig->at, (unsigned long long)rig->taken);
	print_accounts("subscriber", &here);
	for (int i = 0; i < count; i++)
		print_accounts(infos[i].ended ? "publisher, ended" : "publisher", &infos[i].accounts);
	check(exact);
	check(same);
}

/* Returns false if the run needed fewer messages. */
static bool run_with_cut(const struct way *way, unsigned at)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	struct pl_error error;
	struct rig rig;
	bool cut;

	rig_open(&rig, way, at);
	pass_frames(&rig);
	check_ok(pl_publisher_end(rig.publisher, 0, &error), &error);
	take_to_end(&rig);
	check_ok(pl_publisher_end(rig.publisher, AMPLE_TIME, &error), &error);
	check(pl_subscriber_query(rig.subscriber, &info) == 0);
	/* Without another connection, the first one may be cut after the last frame. */
	cut = was_cut(&rig);
	check_accounts(&rig, rig.again ? info.connected : !cut);
	rig_close(&rig);
	return cut;
}

static void test_cuts(void *argument)
{
	const struct way *way = argument;
	unsigned at = 1, step = way->setting == &cut_local ? local_step : 1;

	if (way->in_place)
		require_second_mapping();
	while (run_with_cut(way, at))
		at += step;
	printf("up to %u messages\n", at - 1);
	/* The question, its answer, and the report of all frames. */
	check(at > 3);
}

#define WAY(...) (&(const struct way){ __VA_ARGS__ })

int main(int argc, char **argv)
{
	const struct test_case cases[] = {
		{ "drop oldest", test_cuts, WAY(.setting = &cut_tcp), 60 },
		{ "block", test_cuts, WAY(.setting = &cut_tcp, .overflow = PL_OVERFLOW_BLOCK), 60 },
		{ "push drop oldest", test_cuts, WAY(.setting = &cut_tcp, .push = true), 60 },
		{ "push block", test_cuts, WAY(.setting = &cut_tcp, .overflow = PL_OVERFLOW_BLOCK, .push = true), 60 },
		{ "every", test_cuts, WAY(.setting = &cut_tcp, .every = 3), 60 },
		{ "push every", test_cuts, WAY(.setting = &cut_tcp, .push = true, .every = 3), 60 },
		{ "in place", test_cuts, WAY(.setting = &cut_local, .overflow = PL_OVERFLOW_BLOCK, .in_place = true),
		  60 },
		{ "in place every", test_cuts,
		  WAY(.setting = &cut_local, .overflow = PL_OVERFLOW_BLOCK, .in_place = true, .every = 3), 60 },
		{ "local drop oldest", test_cuts, WAY(.setting = &cut_local), 60 },
		{ "local block", test_cuts, WAY(.setting = &cut_local, .overflow = PL_OVERFLOW_BLOCK), 60 },
		{ "local push", test_cuts, WAY(.setting = &cut_local, .push = true), 60 },
	};
	size_t count = sizeof(cases) / sizeof(cases[0]);
	bool all = argc > 1 && !strcmp(argv[1], "--all");

	if (all) {
		awaited = 20;
		burst = 50;
		local_step = 1;
	}
	/* The last ones differ by their fabric alone. */
	return cases_run("stream_cut", cases, all ? count : count - 3);
}
