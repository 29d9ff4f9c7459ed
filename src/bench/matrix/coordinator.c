/* SPDX-License-Identifier: BSD-2-Clause */
/* Rank 0 of a rendezvous: admits the other ranks, gathers their messages and answers them. */
#include <stdlib.h>
#include <string.h>

#include "bench/common/cursor.h"
#include "bench/matrix/rendezvous_internal.h"

#define SEATS_SPARE 64                     /* connections beside those of the ranks */
#define HELLO_TIMEOUT (10 * CLI_NS_PER_S)  /* in which a connection has to join */
#define REFUSED_TIMEOUT (2 * CLI_NS_PER_S) /* in which a refused rank reads the reason */
#define CLOSE_TIMEOUT (2 * CLI_NS_PER_S)   /* in which all ranks read the last answer */

/* -- seats ----------------------------------------------------------------------------------------- */

static struct seat *find_seat(struct rendezvous *rendezvous, const struct pl_peer *peer)
{
	for (size_t i = 0; i < rendezvous->seat_count; i++)
		if (rendezvous->seats[i].peer == peer)
			return &rendezvous->seats[i];
	return NULL;
}

static void clear_seat(struct rendezvous *rendezvous, struct seat *seat)
{
	if (seat->rank >= 0 && rendezvous->by_rank[seat->rank] == seat)
		rendezvous->by_rank[seat->rank] = NULL;
	pl_peer_close(seat->peer);
	inbox_clear(&seat->inbox);
	*seat = (struct seat){ .rank = -1 };
}

/* Returns the seat of a connection: a free one for a new connection, NULL if there is none. */
static struct seat *take_seat(struct rendezvous *rendezvous, struct pl_peer *peer)
{
	struct seat *seat = find_seat(rendezvous, peer);

	if (seat)
		return seat;
	seat = find_seat(rendezvous, NULL);
	if (seat)
		*seat = (struct seat){ .peer = peer, .rank = -1, .until = cli_now() + HELLO_TIMEOUT };
	else
		pl_peer_close(peer);
	return seat;
}

static void close_late_seats(struct rendezvous *rendezvous)
{
	for (size_t i = 0; i < rendezvous->seat_count; i++) {
		struct seat *seat = &rendezvous->seats[i];

		if (seat->peer && seat->rank < 0 && cli_now() >= seat->until)
			clear_seat(rendezvous, seat);
	}
}

/* Sends the reason and keeps the connection until it is read. */
static void refuse_seat(struct seat *seat, const struct pl_error *error)
{
	uint8_t bytes[sizeof(*error) + 32];
	struct cursor cursor = { .to = bytes };
	struct pl_error other;

	cursor_put_error(&cursor, error);
	rendezvous_send(seat->peer, RENDEZVOUS_NO, 0, bytes, (size_t)(cursor.to - bytes), &other);
	seat->rank = -1;
	seat->refused = true;
	seat->until = cli_now() + REFUSED_TIMEOUT;
	inbox_clear(&seat->inbox);
}

/* Tells all ranks of a loss, as some may wait for that rank. */
static void announce_loss(struct rendezvous *rendezvous, int rank)
{
	struct pl_error error;
	uint8_t bytes[4];

	cursor_put(&(struct cursor){ .to = bytes }, (uint32_t)rank, sizeof(bytes));
	for (int i = 1; i < rendezvous->world.size; i++)
		if (rendezvous->by_rank[i])
			rendezvous_send(rendezvous->by_rank[i]->peer, RENDEZVOUS_LOSS, 0, bytes, sizeof(bytes), &error);
}

void coordinator_leave_out(struct rendezvous *rendezvous, int rank, const char *reason)
{
	struct world_loss *loss = &rendezvous->world.losses[rank];
	struct seat *seat = rendezvous->by_rank[rank];
	struct pl_error error;

	if (rendezvous->world.gone[rank])
		return;
	rendezvous->world.gone[rank] = 1;
	snprintf(loss->reason, sizeof(loss->reason), "%s", reason);
	cli_printable(loss->reason, false);
	cli_warn("rank %d (%s) is left out: %s", rank, *loss->host ? loss->host : "host not known", loss->reason);
	rendezvous->by_rank[rank] = NULL;
	announce_loss(rendezvous, rank);
	if (!seat)
		return;
	cli_fail(&error, -ECANCELED, "MATRIX-LEFT-OUT", loss->host, "see the messages of rank 0",
		 "rank 0 has left rank %d out: %s", rank, loss->reason);
	refuse_seat(seat, &error);
}

/* -- joining --------------------------------------------------------------------------------------- */

/* Judges a rank that joins.  Returns 0, or the error that it gets. */
static int judge_hello(const struct rendezvous *rendezvous, const struct hello *hello, struct pl_error *error)
{
	const struct membership *own = rendezvous->options->membership;

	if (strcmp(hello->run, own->run))
		return cli_fail(error, -EINVAL, "MATRIX-DIFFERS", hello->host,
				"give each run an address of its own with --rendezvous",
				"rank 0 belongs to the run '%s', this rank to '%s'", own->run, hello->run);
	if (hello->size != own->size)
		return cli_fail(error, -EINVAL, "MATRIX-DIFFERS", hello->host, "give all ranks the same --ranks",
				"rank 0 has %d ranks, this rank has %d", own->size, hello->size);
	if (strcmp(hello->terms, rendezvous->options->terms))
		return cli_fail(error, -EINVAL, "MATRIX-DIFFERS", hello->host, RENDEZVOUS_HINT,
				"rank 0 has %.70s; this rank %.70s", rendezvous->options->terms, hello->terms);
	if (hello->rank <= 0 || hello->rank >= own->size)
		return cli_fail(error, -EINVAL, "MATRIX-RANK-TWICE", hello->host, "give each process a rank of its own",
				"rank %d is not one that may join", hello->rank);
	if (rendezvous->by_rank[hello->rank] && rendezvous->by_rank[hello->rank]->process != hello->process)
		return cli_fail(error, -EEXIST, "MATRIX-RANK-TWICE", hello->host, "give each process a rank of its own",
				"rank %d has joined from %s", hello->rank, rendezvous->world.losses[hello->rank].host);
	if (rendezvous->by_rank[hello->rank] && rendezvous->begun)
		return cli_fail(error, -ENOTCONN, "MATRIX-LATE", hello->host,
				"look for errors of the network, and run again",
				"the connection of rank %d was lost when the measurement had begun", hello->rank);
	if (rendezvous->begun || rendezvous->closing)
		return cli_fail(error, -ETIMEDOUT, "MATRIX-LATE", hello->host, "raise --join-timeout of all ranks",
				"the measurement has %s without rank %d", rendezvous->closing ? "ended" : "begun",
				hello->rank);
	return 0;
}

/* Keeps the address of this host that other hosts reach. */
static void note_own_address(struct rendezvous *rendezvous, struct pl_peer *peer)
{
	struct pl_peer_info info = PL_PEER_INFO_INIT;

	if (!*rendezvous->address && pl_peer_query(peer, &info) == 0 && !rendezvous_is_loopback(info.local_address))
		snprintf(rendezvous->address, sizeof(rendezvous->address), "%s", info.local_address);
}

static void admit_seat(struct rendezvous *rendezvous, struct seat *seat)
{
	struct hello hello;
	struct pl_error error;
	int rc = seat->inbox.type == RENDEZVOUS_HELLO ? hello_decode(seat->inbox.bytes, seat->inbox.length, &hello)
						      : -EPROTO;

	if (rc < 0)
		rc = cli_fail(&error, rc, "MATRIX-PROTOCOL", NULL, RENDEZVOUS_HINT,
			      "rank 0 does not understand the first message of this rank");
	else
		rc = judge_hello(rendezvous, &hello, &error);
	inbox_clear(&seat->inbox);
	if (rc < 0) {
		struct pl_peer_info info = PL_PEER_INFO_INIT;

		pl_peer_query(seat->peer, &info);
		cli_warn("%s is refused: %s [%s]", info.address, error.message, error.id);
		refuse_seat(seat, &error);
		return;
	}
	/* A process that joins again has lost its connection, which rank 0 has not noticed yet. */
	if (rendezvous->by_rank[hello.rank])
		clear_seat(rendezvous, rendezvous->by_rank[hello.rank]);
	seat->rank = hello.rank;
	seat->process = hello.process;
	rendezvous->by_rank[hello.rank] = seat;
	snprintf(rendezvous->world.losses[hello.rank].host, sizeof(hello.host), "%s", hello.host);
	note_own_address(rendezvous, seat->peer);
}

/* -- events ---------------------------------------------------------------------------------------- */

/* A connection may have come before the listener was closed. */
static int accept_next(struct rendezvous *rendezvous, struct pl_error *error)
{
	return rendezvous->listener ? pl_accept_start(rendezvous->listener, 0, NULL, error) : 0;
}

static void lose_seat(struct rendezvous *rendezvous, struct seat *seat, const char *reason)
{
	int rank = seat->rank;

	clear_seat(rendezvous, seat);
	/* A rank that was lost before the begin may join again.  At the end, ranks close their connections. */
	if (rank >= 0 && rendezvous->begun && !rendezvous->closing)
		coordinator_leave_out(rendezvous, rank, reason);
}

static void take_rank_notification(struct rendezvous *rendezvous, struct pl_completion *completion)
{
	struct seat *seat = completion->peer ? take_seat(rendezvous, completion->peer) : NULL;
	bool wanted = seat && !seat->refused;
	size_t most = wanted && seat->rank >= 0 ? RENDEZVOUS_MESSAGE_MAX : PL_NOTIFY_DATA_MAX;
	int rc = wanted ? inbox_add(&seat->inbox, completion, most) : 0;

	pl_notification_free(rendezvous->context, completion);
	if (rc < 0)
		lose_seat(rendezvous, seat, "it sent a message that rank 0 does not understand");
	else if (wanted && seat->inbox.ready && seat->rank < 0)
		admit_seat(rendezvous, seat);
}

/* Handles all events that have come. */
static int handle_events(struct rendezvous *rendezvous, struct pl_error *error)
{
	struct pl_completion completion;
	struct seat *seat;
	int rc = 0;

	/* Handle one event at a time: it may close the peer of the next one. */
	while (rc == 0 && pl_poll(rendezvous->context, &completion, 1) == 1)
		switch (completion.kind) {
		case PL_KIND_ACCEPT:
			if (completion.status == 0)
				take_seat(rendezvous, completion.peer);
			rc = completion.status == -ECANCELED ? 0 : accept_next(rendezvous, error);
			break;
		case PL_KIND_NOTIFIED:
			take_rank_notification(rendezvous, &completion);
			break;
		case PL_KIND_LOST:
			seat = completion.peer ? find_seat(rendezvous, completion.peer) : NULL;
			if (seat)
				lose_seat(rendezvous, seat, "the connection is lost");
			break;
		default:
			break;
		}
	close_late_seats(rendezvous);
	return rc;
}

void coordinator_notice(struct rendezvous *rendezvous)
{
	struct pl_error error;

	/* An error shows again in the next message of all. */
	handle_events(rendezvous, &error);
}

/* Returns the number of other ranks that take part and have no message of this number at rank 0. */
static int count_missing(const struct rendezvous *rendezvous)
{
	int count = 0;

	for (int i = 1; i < rendezvous->world.size; i++)
		count += world_has(&rendezvous->world, i) &&
			 !(rendezvous->by_rank[i] && (!rendezvous->begun || rendezvous->by_rank[i]->inbox.ready));
	return count;
}

static int wait_for_ranks(struct rendezvous *rendezvous, uint64_t timeout, struct pl_error *error)
{
	uint64_t deadline = cli_now() + timeout;
	int rc = handle_events(rendezvous, error);

	while (rc == 0 && count_missing(rendezvous) && rendezvous_sleep(rendezvous, deadline)) {
		rc = handle_events(rendezvous, error);
		/* The results that a signal could lose have a thread of their own, which waits for signals (ending.c). */
		if (rc == 0 && !rendezvous->begun && cli_signal_pending())
			rc = cli_fail(error, -EINTR, "INTERRUPTED", NULL, NULL, "interrupted while ranks join");
	}
	return rc;
}

/* -- messages of all ------------------------------------------------------------------------------- */

/* Answers all ranks.  The loss of a rank shows in the next message. */
static int answer_ranks(struct rendezvous *rendezvous, const void *reply, size_t length, struct pl_error *error)
{
	uint8_t *bytes = calloc(1, RENDEZVOUS_LOSSES + length);
	struct pl_error other;

	if (!bytes)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	for (int i = 0; i < rendezvous->world.size; i++)
		if (rendezvous->world.gone[i])
			bytes[i / 8] |= (uint8_t)(1 << i % 8);
	if (length)
		memcpy(bytes + RENDEZVOUS_LOSSES, reply, length);
	for (int i = 1; i < rendezvous->world.size; i++)
		if (rendezvous->by_rank[i])
			rendezvous_send(rendezvous->by_rank[i]->peer, RENDEZVOUS_ANSWER, rendezvous->sequence, bytes,
					RENDEZVOUS_LOSSES + length, &other);
	rendezvous->sequence++;
	free(bytes);
	return 0;
}

/* Copies the parts of all ranks. */
static void take_parts(struct rendezvous *rendezvous, const void *own, size_t each, uint8_t *all)
{
	for (int i = 0; i < rendezvous->world.size; i++) {
		struct seat *seat = rendezvous->by_rank[i];
		const void *part = i == 0 ? own : NULL;

		if (seat && (seat->inbox.type != RENDEZVOUS_PART || seat->inbox.sequence != rendezvous->sequence ||
			     seat->inbox.length != each)) {
			lose_seat(rendezvous, seat, "it sent another message than rank 0 expected");
			seat = NULL;
		}
		part = seat ? seat->inbox.bytes : part;
		if (each && part)
			memcpy(all + (size_t)i * each, part, each);
		else if (each)
			memset(all + (size_t)i * each, 0, each);
		if (seat)
			inbox_clear(&seat->inbox);
	}
}

int coordinator_exchange(struct rendezvous *rendezvous, const void *own, size_t each, void *all, const void *reply,
			 size_t length, struct pl_error *error)
{
	struct world *world = &rendezvous->world;
	char reason[64];
	int rc = wait_for_ranks(rendezvous, world->patience, error);

	if (rc < 0)
		return rc;
	snprintf(reason, sizeof(reason), "it has not answered for %.3g s", (double)world->patience / CLI_NS_PER_S);
	for (int i = 1; i < world->size; i++)
		if (rendezvous->by_rank[i] && !rendezvous->by_rank[i]->inbox.ready)
			coordinator_leave_out(rendezvous, i, reason);
	take_parts(rendezvous, own, each, all);
	return answer_ranks(rendezvous, reply, length, error);
}

/* -- begin and end --------------------------------------------------------------------------------- */

/* Listens on all addresses of this host, or on loopback only if the address of the rendezvous is there. */
static int listen_for_ranks(struct rendezvous *rendezvous, struct pl_error *error)
{
	const char *address = rendezvous->options->membership->address, *colon = strrchr(address, ':');
	int rc = pl_listen(rendezvous->context, rendezvous_is_loopback(address) ? address : colon,
			   &rendezvous->listener, error);

	return rc < 0 ? rc : accept_next(rendezvous, error);
}

/* Goes on without the ranks that have not joined, if enough have. */
static int begin_with_present(struct rendezvous *rendezvous, struct pl_error *error)
{
	const struct rendezvous_options *options = rendezvous->options;
	struct world *world = &rendezvous->world;
	char reason[64];
	int joined = world->size - count_missing(rendezvous);

	rendezvous->begun = true;
	snprintf(reason, sizeof(reason), "it has not joined within %.3g s",
		 (double)options->join_timeout / CLI_NS_PER_S);
	for (int i = 1; i < world->size; i++)
		if (!rendezvous->by_rank[i])
			coordinator_leave_out(rendezvous, i, reason);
	if (joined < options->minimum)
		return cli_fail(error, -ETIMEDOUT, "MATRIX-FEW", options->membership->address,
				"see the messages of the other ranks; raise --join-timeout, or lower --minimum",
				"%d of %d ranks have joined within %.3g s, and at least %d are needed", joined,
				world->size, (double)options->join_timeout / CLI_NS_PER_S, options->minimum);
	return answer_ranks(rendezvous, NULL, 0, error);
}

/* Names hosts of ranks that may never join, as far as the launcher has listed them. */
static void name_expected_hosts(struct rendezvous *rendezvous)
{
	const struct membership *membership = rendezvous->options->membership;

	if (membership->hosts.count == (size_t)membership->size)
		for (int i = 0; i < membership->size; i++)
			snprintf(rendezvous->world.losses[i].host, sizeof(rendezvous->world.losses[i].host), "%.63s",
				 membership->hosts.names[i]);
	snprintf(rendezvous->world.losses[0].host, sizeof(rendezvous->world.losses[0].host), "%s", membership->host);
}

int coordinator_open(struct rendezvous *rendezvous, struct pl_error *error)
{
	size_t ranks = (size_t)rendezvous->world.size;
	int rc;

	rendezvous->seat_count = ranks + SEATS_SPARE;
	rendezvous->seats = calloc(rendezvous->seat_count, sizeof(*rendezvous->seats));
	rendezvous->by_rank = calloc(ranks, sizeof(struct seat *));
	rendezvous->world.losses = calloc(ranks, sizeof(*rendezvous->world.losses));
	if (!rendezvous->seats || !rendezvous->by_rank || !rendezvous->world.losses)
		return cli_fail_errno(error, -ENOMEM, "malloc", NULL);
	for (size_t i = 0; i < rendezvous->seat_count; i++)
		rendezvous->seats[i].rank = -1;
	name_expected_hosts(rendezvous);
	rc = listen_for_ranks(rendezvous, error);
	if (rc == 0)
		rc = wait_for_ranks(rendezvous, rendezvous->options->join_timeout, error);
	return rc < 0 ? rc : begin_with_present(rendezvous, error);
}

/* True if a rank may still have to read the last answer, or the reason of its refusal. */
static bool has_readers(const struct rendezvous *rendezvous)
{
	for (size_t i = 0; i < rendezvous->seat_count; i++)
		if (rendezvous->seats[i].peer && (rendezvous->world.ended || rendezvous->seats[i].refused))
			return true;
	return false;
}

void coordinator_close(struct rendezvous *rendezvous)
{
	uint64_t deadline = cli_now() + CLOSE_TIMEOUT;
	struct pl_error error;

	rendezvous->closing = true;
	if (rendezvous->listener)
		pl_listener_close(rendezvous->listener);
	rendezvous->listener = NULL;
	while (has_readers(rendezvous) && rendezvous_sleep(rendezvous, deadline) &&
	       handle_events(rendezvous, &error) == 0)
		;
	for (size_t i = 0; rendezvous->seats && i < rendezvous->seat_count; i++)
		inbox_clear(&rendezvous->seats[i].inbox);
	free(rendezvous->seats);
	free(rendezvous->by_rank);
	free(rendezvous->world.losses);
}
