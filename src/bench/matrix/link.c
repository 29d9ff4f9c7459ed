/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/link.h"

#include <stdlib.h>
#include <unistd.h>

#define ACCEPT_SLICE (50 * CLI_NS_PER_MS) /* between two looks at lost ranks */
#define CONNECT_SLICE CLI_NS_PER_MS       /* between two looks at links that connect */
#define TAG_TIMEOUT (5 * CLI_NS_PER_S)    /* in which a connection tells its turn and rank */
#define GREETINGS_MAX 64                  /* connections that have not told them yet */
#define TAG(turn, rank) ((uint64_t)(turn) << 32 | (uint32_t)(rank))

/* Accepted connection that has not told its turn and rank yet. */
struct greeting {
	struct pl_peer *peer;
	struct pl_operation *operation; /* receives them */
	uint64_t until;
};

/* Connecting of the links of a turn. */
struct meeting {
	const struct link_end *end;
	struct link *links;
	int count, greeting_count;
	uint32_t turn;
	uint64_t deadline;
	struct greeting greetings[GREETINGS_MAX]; /* the oldest first */
};

static uint64_t time_left(uint64_t deadline)
{
	uint64_t now = cli_now();

	return deadline > now ? deadline - now : 1;
}

static int fail_lost(struct link *link)
{
	return cli_fail(&link->error, -ECONNRESET, "MATRIX-LOST", NULL, NULL,
			"the connection of rank %d to rank 0 is lost", link->rank);
}

static void start_connect(const struct link_end *end, struct link *link, uint64_t deadline)
{
	if (world_lost(end->matrix->world, link->rank))
		link->rc = fail_lost(link);
	else
		link->rc = pl_connect_start(end->context, end->ends[link->rank].address, time_left(deadline), 0,
					    &link->operation, &link->error);
}

/* Tells the other end the turn and the own rank as soon as the connection is there. */
static void move_connect(const struct link_end *end, struct link *link, uint32_t turn, uint64_t deadline)
{
	bool lost = world_lost(end->matrix->world, link->rank), connecting = !link->peer;
	struct pl_completion completion = { .status = 0 };

	/* The attempt to connect ends in time by itself. */
	if (lost || (!connecting && cli_now() >= deadline))
		link->rc = pl_wait(link->operation, 1, &completion, &link->error);
	else
		link->rc = pl_test(link->operation, &completion, &link->error);
	if (link->rc == -EINPROGRESS) {
		link->rc = 0;
		return;
	}
	link->operation = NULL;
	if (link->rc == 0 && connecting) {
		link->peer = completion.peer;
		link->rc = pl_send_copy(link->peer, TAG(turn, end->matrix->rank), NULL, 0, NULL, &link->operation,
					&link->error);
	}
	if (lost && !link->operation)
		link->rc = fail_lost(link);
}

/* Moves all links that this rank connects.  Returns the last one that is not done, NULL if there is none. */
static struct link *move_connects(const struct link_end *end, struct link *links, int count, uint32_t turn,
				  uint64_t deadline)
{
	struct link *moving = NULL;

	for (int i = 0; i < count; i++) {
		if (links[i].operation)
			move_connect(end, &links[i], turn, deadline);
		moving = links[i].operation ? &links[i] : moving;
	}
	return moving;
}

static struct link *find_link(struct link *links, int count, uint64_t tag, uint32_t turn)
{
	for (int i = 0; i < count; i++)
		if (!links[i].peer && !links[i].operation && TAG(turn, links[i].rank) == tag)
			return &links[i];
	return NULL;
}

/*
 * Ends a greeting.  The connection becomes that of its link if it has told its turn and rank.  A connection of an earlier
 * turn, whose rank gave up since, is closed.
 */
static void end_greeting(struct meeting *meeting, int index, int rc, uint64_t tag)
{
	struct greeting *greeting = &meeting->greetings[index];
	struct link *link = rc == 0 ? find_link(meeting->links, meeting->count, tag, meeting->turn) : NULL;

	if (link)
		link->peer = greeting->peer;
	else
		pl_peer_close(greeting->peer);
	meeting->greeting_count--;
	for (int i = index; i < meeting->greeting_count; i++)
		meeting->greetings[i] = meeting->greetings[i + 1];
}

/* Ends a greeting, also if turn and rank have not come. */
static void cut_greeting(struct meeting *meeting, int index)
{
	struct pl_completion completion = { .status = 0 };
	struct pl_error error;
	int rc = pl_wait(meeting->greetings[index].operation, 1, &completion, &error);

	end_greeting(meeting, index, rc, completion.tag);
}

/* Receives turn and rank of a new connection without waiting: a silent one delays no other. */
static void start_greeting(struct meeting *meeting, struct pl_peer *peer)
{
	struct greeting greeting = { .peer = peer, .until = cli_now() + TAG_TIMEOUT };
	struct pl_error error;

	if (meeting->greeting_count == GREETINGS_MAX)
		cut_greeting(meeting, 0);
	if (pl_receive(peer, 0, 0, NULL, NULL, &greeting.operation, &error) < 0)
		pl_peer_close(peer);
	else
		meeting->greetings[meeting->greeting_count++] = greeting;
}

static void move_greetings(struct meeting *meeting)
{
	for (int i = meeting->greeting_count - 1; i >= 0; i--) {
		struct pl_completion completion = { .status = 0 };
		struct pl_error error;
		int rc = pl_test(meeting->greetings[i].operation, &completion, &error);

		if (rc != -EINPROGRESS)
			end_greeting(meeting, i, rc, completion.tag);
		else if (cli_now() >= meeting->greetings[i].until)
			cut_greeting(meeting, i);
	}
}

/* Returns a link that waits for the other end; NULL if there is none.  Links to lost ranks fail. */
static struct link *find_waiting_link(const struct link_end *end, struct link *links, int count)
{
	struct link *waiting = NULL;

	for (int i = 0; i < count; i++) {
		struct link *link = &links[i];

		if (link->rank > end->matrix->rank || link->peer || link->rc < 0)
			continue;
		if (world_lost(end->matrix->world, link->rank))
			link->rc = fail_lost(link);
		else
			waiting = link;
	}
	return waiting;
}

/* Accepts a connection, if one comes within `slice` nanoseconds.  *waiting fails at the deadline. */
static void accept_link(struct meeting *meeting, uint64_t slice, struct link *waiting)
{
	uint64_t now = cli_now(), deadline = meeting->deadline;
	struct pl_peer *peer = NULL;
	struct pl_error error;
	int rc = pl_accept(meeting->end->listener, now < deadline ? CLI_MIN(deadline - now, slice) : 0, &peer, &error);

	if (rc == 0) {
		start_greeting(meeting, peer);
	} else if (rc != -ETIMEDOUT) {
		waiting->rc = rc;
		waiting->error = error;
	} else if (now >= deadline) {
		waiting->rc = cli_fail(&waiting->error, rc, "WAIT-TIMEOUT", NULL, NULL,
				       "rank %d has not connected within %.3g s", waiting->rank,
				       (double)meeting->end->options->step_timeout / CLI_NS_PER_S);
	}
}

/* Connects and accepts at the same time: a rank that cannot be reached delays no other link. */
static void meet(const struct link_end *end, struct link *links, int count, uint32_t turn)
{
	struct meeting meeting = { .end = end, .links = links, .count = count, .turn = turn };

	meeting.deadline = cli_now() + end->options->step_timeout;
	for (int i = 0; i < count; i++)
		if (links[i].rank > end->matrix->rank)
			start_connect(end, &links[i], meeting.deadline);
	for (;;) {
		struct link *moving = move_connects(end, links, count, turn, meeting.deadline), *waiting;

		move_greetings(&meeting);
		waiting = find_waiting_link(end, links, count);
		if (waiting)
			accept_link(&meeting, moving || meeting.greeting_count ? CONNECT_SLICE : ACCEPT_SLICE, waiting);
		else if (moving)
			usleep(CONNECT_SLICE / 1000);
		else
			break;
	}
	while (meeting.greeting_count)
		cut_greeting(&meeting, meeting.greeting_count - 1);
}

/* Imports the regions of all other ends within one timeout. */
static void import_regions(const struct link_end *end, struct link *links, int count)
{
	uint64_t deadline = cli_now() + end->options->step_timeout;
	struct pl_completion completion;

	for (int i = 0; i < count; i++) {
		const struct matrix_end *other = &end->ends[links[i].rank];

		if (links[i].rc == 0)
			links[i].rc = pl_remote_import_start(links[i].peer, other->token, other->token_length, 0,
							     &links[i].operation, &links[i].error);
	}
	for (int i = 0; i < count; i++) {
		if (!links[i].operation)
			continue;
		links[i].rc = pl_wait(links[i].operation, time_left(deadline), &completion, &links[i].error);
		links[i].operation = NULL;
		links[i].remote = links[i].rc == 0 ? completion.remote : NULL;
	}
}

void links_connect(const struct link_end *end, struct link *links, int count, uint32_t turn)
{
	meet(end, links, count, turn);
	import_regions(end, links, count);
}

void links_close(struct link *links, int count)
{
	for (int i = 0; i < count; i++) {
		pl_remote_release(links[i].remote);
		pl_peer_close(links[i].peer);
	}
}
