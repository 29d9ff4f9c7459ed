/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Accounts of a stream between two processes, one of which is killed, or stopped for a while, after each of the control messages.
 * A proxy in this process counts them.
 *
 * Each run hits the end after a later message, until a run needs fewer messages. With --all no message is left out.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <peerlane/stream.h>

#include "support/cases.h"
#include "support/environment.h"
#include "support/frames.h"
#include "support/proxy.h"

#define BYTES 3000u
#define SLOTS 4u
#define QUEUE 2u
#define FRAMES 12u

static const struct setting ends_tcp = {
	.name = "tcp", .fabric = "tcp", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};
static const struct setting ends_local = {
	.name = "local", .fabric = "local", .host = "127.0.0.1", .progress = PL_PROGRESS_THREAD, .lanes = 1
};

/* Control messages between two runs. */
static unsigned step = 3;

/* A way for frames, and what happens to the child. */
struct way {
	const struct setting *setting;
	enum pl_overflow overflow;
	bool push, in_place;
	unsigned every;
	int signal; /* SIGKILL or SIGSTOP */
};

struct rig {
	const struct way *way;
	struct pl_context *context;
	struct proxy proxy;
	atomic_bool armed;   /* control messages count */
	atomic_uint passed;  /* since then */
	atomic_bool stopped; /* the child stands still */
	unsigned at;         /* the message after which the child is hit */
	pid_t child;
	int from, to;          /* pipes of the child */
	uint64_t after, taken; /* sequence after the last frame that was taken, and their number */
};

static bool hit_child(void *user)
{
	struct rig *rig = user;

	if (!atomic_load(&rig->armed) || atomic_fetch_add(&rig->passed, 1) + 1 != rig->at)
		return false;
	if (rig->way->signal == SIGSTOP) {
		process_stop(rig->child);
		atomic_store(&rig->stopped, true);
	} else {
		kill(rig->child, SIGKILL);
	}
	return false;
}

static bool was_hit(struct rig *rig)
{
	return atomic_load(&rig->passed) >= rig->at;
}

static bool was_killed(struct rig *rig)
{
	return rig->way->signal == SIGKILL && was_hit(rig);
}

/* Returns true if the child stood still. */
static bool let_child_go_on(struct rig *rig)
{
	if (!atomic_exchange(&rig->stopped, false))
		return false;
	check(kill(rig->child, SIGCONT) == 0);
	return true;
}

/* Starts the child, which runs `run` with its ends of two pipes. */
static void rig_start(struct rig *rig, const struct way *way, unsigned at,
		      void (*run)(const struct way *way, int to, int from))
{
	int up[2], down[2];

	memset(rig, 0, sizeof(*rig));
	rig->way = way;
	rig->at = at;
	signal(SIGPIPE, SIG_IGN);
	check(pipe(up) == 0 && pipe(down) == 0);
	rig->child = process_fork();
	if (rig->child == 0) {
		close(up[0]);
		close(down[1]);
		run(way, up[1], down[0]);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	rig->from = up[0];
	rig->to = down[1];
	rig->context = context_open(way->setting);
}

static void rig_end(struct rig *rig)
{
	int status;

	proxy_stop(&rig->proxy);
	let_child_go_on(rig);
	close(rig->to);
	status = process_wait(rig->child);
	check(was_killed(rig) ? WIFSIGNALED(status) : status == 0);
	close(rig->from);
	pl_close(rig->context);
}

static int publish_within(struct pl_publisher *publisher, uint64_t timeout)
{
	struct pl_frame_options options = PL_FRAME_OPTIONS_INIT;
	struct pl_frame_info info = PL_FRAME_INFO_INIT;
	struct pl_stream_frame *frame;
	struct pl_error error;
	int rc = pl_publisher_loan(publisher, timeout, &frame, &error);

	if (rc < 0)
		return rc;
	check(pl_frame_query(frame, &info) == 0);
	frame_fill(&info, BYTES);
	options.length = BYTES;
	check_ok(pl_frame_publish(frame, &options, &error), &error);
	return 0;
}

static int subscribe(const struct way *way, struct pl_peer *peer, struct pl_subscriber **subscriber)
{
	struct pl_subscriber_options options = PL_SUBSCRIBER_OPTIONS_INIT;
	struct pl_error error;

	options.overflow = way->overflow;
	options.push = way->push;
	options.in_place = way->in_place;
	options.every = way->every;
	options.queue = QUEUE;
	return pl_subscriber_open(peer, "ends", &options, AMPLE_TIME, subscriber, &error);
}

static void check_taken(struct rig *rig, struct pl_stream_frame *frame)
{
	struct pl_frame_info info = PL_FRAME_INFO_INIT;

	check(pl_frame_query(frame, &info) == 0);
	check(info.sequence >= rig->after && info.length == BYTES);
	check_number(info.lost_before, info.sequence - rig->after);
	pattern_check(info.data, BYTES, info.sequence, 0);
	check(!rig->way->every || info.sequence % rig->way->every == 0);
	rig->after = info.sequence + 1;
	rig->taken++;
	pl_frame_release(frame);
}

static bool are_exact(const struct pl_accounts *accounts)
{
	return accounts->pending == 0 && accounts->delivered + accounts->lapped + accounts->dropped +
							 accounts->rejected + accounts->aborted + accounts->missed +
							 accounts->unwanted ==
						 accounts->next - accounts->first;
}

static void run_all(const struct way *way, bool (*run)(const struct way *way, unsigned at))
{
	unsigned at = 1;

	if (way->in_place)
		require_second_mapping();
	while (run(way, at))
		at += step;
	printf("%u runs\n", at / step + 1);
	check(at > step);
}

/* -- the publisher is the child ----------------------------------------------------------------------------------------- */

/* Publishes a frame for each byte `p` of the parent, ends the stream for an `e`, and then waits for the end of the pipe. */
static void child_publish(const struct way *way, int to, int from)
{
	struct pl_context *context = context_open(way->setting);
	struct pl_publisher *publisher = open_blocking_publisher(context, "ends", BYTES, SLOTS);
	struct pl_listener *listener;
	struct pl_error error;
	char address[96], order;
	struct pl_peer *peer;

	listener = listener_open(way->setting, context, address);
	check(write(to, address, sizeof(address)) == sizeof(address));
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	while (read(from, &order, 1) == 1) {
		if (order == 'p')
			check_number(publish_within(publisher, AMPLE_TIME), 0);
		else
			check_ok(pl_publisher_end(publisher, AMPLE_TIME, &error), &error);
	}
	pl_close(context);
}

/* Takes what is ready. A child that stands still goes on then. Returns the last result. */
static int take_ready(struct rig *rig, struct pl_subscriber *subscriber)
{
	struct pl_stream_frame *frame;
	int rc;

	while ((rc = pl_subscriber_take(subscriber, &frame, 1, 0, NULL)) == 1)
		check_taken(rig, frame);
	exact_accounts(subscriber);
	let_child_go_on(rig);
	return rc;
}

/* Takes until `frames` frames have a fate, or none can come. Returns the last result. */
static int take_until(struct rig *rig, struct pl_subscriber *subscriber, uint64_t frames)
{
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts accounts;
	int rc;

	do {
		check(clock_now() < limit);
		rc = take_ready(rig, subscriber);
		sleep_ms(rc == -EAGAIN);
		accounts = exact_accounts(subscriber);
	} while (rc == -EAGAIN && (accounts.next < frames || accounts.pending));
	return rc;
}

static void check_subscriber(struct rig *rig, struct pl_subscriber *subscriber, int rc)
{
	struct pl_subscriber_info info = PL_SUBSCRIBER_INFO_INIT;
	const struct pl_accounts *accounts = &info.accounts;

	check_number(pl_subscriber_query(subscriber, &info), 0);
	check(are_exact(accounts) && accounts->first == 0 && accounts->next == info.stream.published);
	check_number(accounts->delivered, rig->taken);
	if (was_killed(rig)) {
		check_one_of(rc, -ENOTCONN, -ENODATA);
		return;
	}
	check_number(rc, -ENODATA);
	check_number(accounts->next, FRAMES);
	check_number(accounts->missed, 0);
	check(rig->way->overflow != PL_OVERFLOW_BLOCK || accounts->lapped + accounts->dropped == 0);
}

static bool hit_publisher(const struct way *way, unsigned at)
{
	struct pl_subscriber *subscriber = NULL;
	struct pl_stream_frame *frame;
	char address[96];
	struct pl_error error;
	struct pl_peer *peer;
	struct rig rig;
	int rc = 0;
	bool hit;

	rig_start(&rig, way, at, child_publish);
	check(read(rig.from, address, sizeof(address)) == sizeof(address));
	proxy_start_recording(&rig.proxy, address, hit_child, &rig);
	check_ok(pl_connect(rig.context, rig.proxy.address, AMPLE_TIME, &peer, &error), &error);
	if (way->signal == SIGKILL)
		atomic_store(&rig.armed, true);
	/* A stopped publisher answers no question, and nobody would let it go on. */
	rc = subscribe(way, peer, &subscriber);
	check(rc == 0 || (rc == -ENOTCONN && was_killed(&rig)));
	atomic_store(&rig.armed, true);
	for (unsigned i = 0; subscriber && i < FRAMES && rc != -ENOTCONN; i++) {
		(void)!write(rig.to, "p", 1);
		/* The first half one by one, the rest without a pause. */
		rc = i < FRAMES / 2 ? take_until(&rig, subscriber, i + 1) : take_ready(&rig, subscriber);
	}
	(void)!write(rig.to, "e", 1);
	if (subscriber) {
		/* Ends in any case: the kernel tells of the loss of a killed process. */
		rc = take_until(&rig, subscriber, UINT64_MAX);
		check_number(pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error), rc);
		check_subscriber(&rig, subscriber, rc);
		pl_subscriber_close(subscriber);
	}
	hit = was_hit(&rig);
	rig_end(&rig);
	return hit;
}

static void test_publisher(void *argument)
{
	run_all(argument, hit_publisher);
}

/* -- the subscriber is the child ---------------------------------------------------------------------------------------- */

/* Tells `s` once it has subscribed, `t` for each frame that it takes, and its accounts at the end of the stream. */
static void child_subscribe(const struct way *way, int to, int from)
{
	struct rig rig = { .way = way };
	struct pl_context *context = context_open(way->setting);
	struct pl_subscriber *subscriber;
	struct pl_stream_frame *frame;
	char last[1 + sizeof(struct pl_accounts)] = "a", address[96];
	struct pl_accounts accounts;
	struct pl_error error;
	struct pl_peer *peer;
	int rc;

	check(read(from, address, sizeof(address)) == sizeof(address));
	check_ok(pl_connect(context, address, AMPLE_TIME, &peer, &error), &error);
	check_number(subscribe(way, peer, &subscriber), 0);
	check(write(to, "s", 1) == 1);
	while ((rc = pl_subscriber_take(subscriber, &frame, 1, AMPLE_TIME, &error)) == 1) {
		check_taken(&rig, frame);
		check(write(to, "t", 1) == 1);
	}
	check_number(rc, -ENODATA);
	accounts = exact_accounts(subscriber);
	check_number(accounts.delivered, rig.taken);
	/* By one call: a child that is stopped has written all or nothing. */
	memcpy(last + 1, &accounts, sizeof(accounts));
	check(write(to, last, sizeof(last)) == sizeof(last));
	check(read(from, address, 1) == 0);
	pl_close(context);
}

/* Waits for a byte of the child. Returns 0 if the child was killed, or stands still. */
static char await_child(struct rig *rig)
{
	struct pollfd event = { .fd = rig->from, .events = POLLIN };
	uint64_t limit = clock_now() + AMPLE_TIME;
	char byte;

	for (;;) {
		check(clock_now() < limit);
		if (poll(&event, 1, 5) > 0)
			return read(rig->from, &byte, 1) == 1 ? byte : 0;
		if (atomic_load(&rig->stopped))
			return 0;
	}
}

/* Publishes while the child stands still, as many frames as it lets. */
static unsigned publish_meanwhile(struct rig *rig, struct pl_publisher *publisher, unsigned next)
{
	int rc = 0;

	while (next < FRAMES && rc == 0) {
		rc = publish_within(publisher, 0);
		next += rc == 0;
	}
	check_one_of(rc, 0, -EAGAIN);
	check(rc == 0 || rig->way->overflow == PL_OVERFLOW_BLOCK);
	let_child_go_on(rig);
	return next;
}

static void publish_all(struct rig *rig, struct pl_publisher *publisher)
{
	bool one_by_one = true;

	for (unsigned i = 0; i < FRAMES;) {
		bool wanted = !rig->way->every || i % rig->way->every == 0;

		if (atomic_load(&rig->stopped)) {
			one_by_one = false;
			i = publish_meanwhile(rig, publisher, i);
			continue;
		}
		/* A ring that is held back by a child that was stopped just now. */
		if (publish_within(publisher, rig->way->signal == SIGSTOP ? SECOND / 1000 : AMPLE_TIME) < 0) {
			check_number(rig->way->signal, SIGSTOP);
			continue;
		}
		i++;
		one_by_one = one_by_one && i < FRAMES / 2;
		if (one_by_one && wanted && !await_child(rig))
			one_by_one = false;
	}
}

static void check_publisher(struct rig *rig, struct pl_publisher *publisher)
{
	struct pl_subscription_info info = PL_SUBSCRIPTION_INFO_INIT;
	const struct pl_accounts *accounts = &info.accounts;
	uint64_t limit = clock_now() + AMPLE_TIME;
	struct pl_accounts there;
	bool killed;
	char byte;

	do {
		check(clock_now() < limit);
		killed = was_killed(rig);
		check_number(pl_publisher_subscribers(publisher, &info, 1), 1);
	} while (killed && !info.ended);
	check(are_exact(accounts) && accounts->first == 0 && accounts->next <= FRAMES);
	if (killed) {
		check(!info.peer && !info.blocks);
		return;
	}
	check_number(accounts->next, FRAMES);
	check_number(accounts->missed, 0);
	while ((byte = await_child(rig)) == 't' || (byte == 0 && let_child_go_on(rig)))
		;
	/* By the message that reported its accounts. */
	if (byte == 0 && was_killed(rig))
		return;
	check(byte == 'a' && read(rig->from, &there, sizeof(there)) == sizeof(there));
	check(!memcmp(&there, accounts, sizeof(there)));
	check(rig->way->overflow != PL_OVERFLOW_BLOCK || there.delivered + there.unwanted == FRAMES);
}

static bool hit_subscriber(const struct way *way, unsigned at)
{
	struct pl_publisher *publisher;
	struct pl_listener *listener;
	char address[96];
	struct pl_error error;
	struct pl_peer *peer;
	struct rig rig;
	bool hit;

	rig_start(&rig, way, at, child_subscribe);
	publisher = open_blocking_publisher(rig.context, "ends", BYTES, SLOTS);
	listener = listener_open(way->setting, rig.context, address);
	proxy_start_recording(&rig.proxy, address, hit_child, &rig);
	snprintf(address, sizeof(address), "%s", rig.proxy.address);
	check(write(rig.to, address, sizeof(address)) == sizeof(address));
	check_ok(pl_accept(listener, AMPLE_TIME, &peer, &error), &error);
	check(await_child(&rig) == 's');
	atomic_store(&rig.armed, true);
	publish_all(&rig, publisher);
	check_ok(pl_publisher_end(publisher, 0, &error), &error);
	let_child_go_on(&rig);
	/* A child that is stopped by a message of the end. */
	for (uint64_t limit = clock_now() + AMPLE_TIME;
	     pl_publisher_end(publisher, SECOND / 100, &error) == -ETIMEDOUT;) {
		check(clock_now() < limit);
		let_child_go_on(&rig);
	}
	let_child_go_on(&rig);
	check_publisher(&rig, publisher);
	hit = was_hit(&rig);
	rig_end(&rig);
	return hit;
}

static void test_subscriber(void *argument)
{
	run_all(argument, hit_subscriber);
}

#define WAY(...) (&(const struct way){ __VA_ARGS__ })
#define ENDS(name, ...) \
	{ "killed publisher " name, test_publisher, WAY(.signal = SIGKILL, __VA_ARGS__), 60 }, \
		{ "stopped publisher " name, test_publisher, WAY(.signal = SIGSTOP, __VA_ARGS__), 60 }, \
		{ "killed subscriber " name, test_subscriber, WAY(.signal = SIGKILL, __VA_ARGS__), 60 }, \
	{ \
		"stopped subscriber " name, test_subscriber, WAY(.signal = SIGSTOP, __VA_ARGS__), 60 \
	}

int main(int argc, char **argv)
{
	const struct test_case cases[] = {
		ENDS("drop oldest", .setting = &ends_tcp),
		ENDS("block", .setting = &ends_tcp, .overflow = PL_OVERFLOW_BLOCK),
		ENDS("every", .setting = &ends_tcp, .every = 3),
		ENDS("push drop oldest", .setting = &ends_tcp, .push = true),
		ENDS("push block", .setting = &ends_tcp, .overflow = PL_OVERFLOW_BLOCK, .push = true),
		ENDS("push every", .setting = &ends_tcp, .push = true, .every = 3),
		ENDS("in place", .setting = &ends_local, .overflow = PL_OVERFLOW_BLOCK, .in_place = true),
		ENDS("in place every", .setting = &ends_local, .overflow = PL_OVERFLOW_BLOCK, .in_place = true,
		     .every = 3),
	};

	if (argc > 1 && !strcmp(argv[1], "--all"))
		step = 1;
	return cases_run("stream_ends", cases, sizeof(cases) / sizeof(cases[0]));
}
