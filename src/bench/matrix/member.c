/* SPDX-License-Identifier: BSD-2-Clause */
/* Rank of a rendezvous other than rank 0: joins, sends its part of each message, and waits for the answer. */
#include <string.h>
#include <unistd.h>

#include "bench/common/cursor.h"
#include "bench/common/numbers.h"
#include "bench/matrix/rendezvous_internal.h"

#define RETRY_FIRST (100 * CLI_NS_PER_MS) /* between two attempts to connect: first, last */
#define RETRY_LAST (2 * CLI_NS_PER_S)
#define ATTEMPT_TIMEOUT (5 * CLI_NS_PER_S)
#define ANSWER_SLACK (10 * CLI_NS_PER_S) /* rank 0 answers after it has waited for others */

/* True for errors that end when rank 0 has started, or its name and network are up. */
static bool may_start_later(const struct pl_error *error)
{
	switch (-error->code) {
	case EACCES:
	case EPERM:
	case EPROTO:
	case EPROTONOSUPPORT:
	case ENOMEM:
	case ENOTSUP:
		return false;
	case EINVAL:
		/* The name of a host may be known later, as that of a pod. */
		return strcmp(error->id, "ADDRESS-SYNTAX") != 0;
	default:
		return true;
	}
}

/* Sleeps between two attempts; ranks that began together spread. */
static void sleep_until_retry(const struct rendezvous *rendezvous, uint64_t *wait, uint64_t deadline)
{
	uint64_t random = bench_splitmix(cli_now() + (uint64_t)rendezvous->world.rank * BENCH_SPLITMIX_STEP);
	uint64_t now = cli_now(), sleep = *wait / 2 + random % *wait;

	*wait = CLI_MIN(*wait * 2, RETRY_LAST);
	if (now < deadline)
		usleep((useconds_t)(CLI_MIN(sleep, deadline - now) / 1000));
}

static int connect_to_first(struct rendezvous *rendezvous, struct pl_error *error)
{
	const char *address = rendezvous->options->membership->address;
	uint64_t wait = RETRY_FIRST, deadline = cli_now() + rendezvous->options->join_timeout;
	char last[sizeof(error->message)];
	int rc;

	for (;;) {
		rc = pl_connect(rendezvous->context, address, ATTEMPT_TIMEOUT, &rendezvous->peer, error);
		if (rc == 0 || !may_start_later(error))
			return rc;
		sleep_until_retry(rendezvous, &wait, deadline);
		if (cli_now() >= deadline)
			break;
	}
	memcpy(last, error->message, sizeof(last));
	return cli_fail(error, -ETIMEDOUT, "MATRIX-JOIN", address,
			"start rank 0 there, see its messages, or name its host with --rendezvous",
			"rank %d has not reached rank 0 within %.3g s: %.90s", rendezvous->world.rank,
			(double)rendezvous->options->join_timeout / CLI_NS_PER_S, last);
}

/* Takes a message that is no answer.  Returns false for an answer, which stays. */
static bool take_loss(struct rendezvous *rendezvous)
{
	struct inbox *inbox = &rendezvous->inbox;
	struct cursor cursor = { .from = inbox->bytes, .end = inbox->bytes + inbox->length };
	uint64_t rank;

	if (inbox->type != RENDEZVOUS_LOSS)
		return false;
	rank = cursor_get(&cursor, 4);
	if (!cursor.failed && rank < (uint64_t)rendezvous->world.size)
		rendezvous->world.lost[rank] = 1;
	inbox_clear(inbox);
	return true;
}

static int handle_member_events(struct rendezvous *rendezvous)
{
	struct pl_completion completion;
	int rc = 0;

	while (rc == 0 && !rendezvous->inbox.ready && pl_poll(rendezvous->context, &completion, 1) == 1) {
		/* Events of a connection that this rank has closed have no peer. */
		bool current = completion.peer && completion.peer == rendezvous->peer;

		if (completion.kind == PL_KIND_NOTIFIED) {
			if (current)
				rc = inbox_add(&rendezvous->inbox, &completion, RENDEZVOUS_MESSAGE_MAX);
			pl_notification_free(rendezvous->context, &completion);
			if (rc == 0 && rendezvous->inbox.ready)
				take_loss(rendezvous);
		}
		rendezvous->lost = rendezvous->lost || (current && completion.kind == PL_KIND_LOST);
	}
	return rc;
}

void member_notice(struct rendezvous *rendezvous)
{
	/* A wrong message shows in the next wait, as it stays in the inbox or leaves it without its answer. */
	handle_member_events(rendezvous);
	/* Without rank 0 no rank goes on. */
	if (rendezvous->lost)
		memset(rendezvous->world.lost, 1, (size_t)rendezvous->world.size);
}

/* Takes over the ranks that are left out.  Returns false for an answer to another message. */
static bool take_answer(struct rendezvous *rendezvous, void *answer, size_t length)
{
	const struct inbox *inbox = &rendezvous->inbox;

	if (inbox->type != RENDEZVOUS_ANSWER || inbox->sequence != rendezvous->sequence ||
	    inbox->length != RENDEZVOUS_LOSSES + length)
		return false;
	for (int i = 0; i < rendezvous->world.size; i++)
		rendezvous->world.gone[i] = inbox->bytes[i / 8] >> i % 8 & 1;
	if (length)
		memcpy(answer, inbox->bytes + RENDEZVOUS_LOSSES, length);
	rendezvous->sequence++;
	return true;
}

static int wait_for_answer(struct rendezvous *rendezvous, void *answer, size_t length, uint64_t timeout,
			   struct pl_error *error)
{
	const char *address = rendezvous->options->membership->address;
	uint64_t deadline = cli_now() + timeout;
	int rc = handle_member_events(rendezvous);

	while (rc == 0 && !rendezvous->inbox.ready && !rendezvous->lost && rendezvous_sleep(rendezvous, deadline))
		rc = handle_member_events(rendezvous);
	if (rc == -ENOMEM)
		return cli_fail_errno(error, rc, "malloc", NULL);
	if (rc == 0 && !rendezvous->inbox.ready && rendezvous->lost)
		return cli_fail(error, -ECONNRESET, "MATRIX-LOST", address, "see the messages of rank 0",
				"the connection to rank 0 is lost");
	if (rc == 0 && !rendezvous->inbox.ready)
		return cli_fail(error, -ETIMEDOUT, "MATRIX-LOST", address, "see the messages of rank 0",
				"rank 0 has not answered for %.3g s", (double)timeout / CLI_NS_PER_S);
	if (rc == 0 && rendezvous->inbox.type == RENDEZVOUS_NO) {
		struct cursor cursor = { .from = rendezvous->inbox.bytes,
					 .end = rendezvous->inbox.bytes + rendezvous->inbox.length };

		cursor_get_error(&cursor, error);
		rc = error->code;
	} else if (rc < 0 || !take_answer(rendezvous, answer, length)) {
		rc = cli_fail(error, -EPROTO, "MATRIX-PROTOCOL", address, RENDEZVOUS_HINT,
			      "rank 0 sent a message that this rank does not understand");
	}
	inbox_clear(&rendezvous->inbox);
	return rc;
}

static bool means_connection_lost(int rc)
{
	return rc == -ECONNRESET || rc == -ENOTCONN || rc == -EPIPE;
}

int member_exchange(struct rendezvous *rendezvous, const void *own, size_t each, void *answer, size_t length,
		    struct pl_error *error)
{
	int rc = rendezvous_send(rendezvous->peer, RENDEZVOUS_PART, rendezvous->sequence, own, each, error);

	/* After a loss the reason of rank 0 may be here. */
	if (rc < 0 && !means_connection_lost(rc))
		return rc;
	return wait_for_answer(rendezvous, answer, length, 2 * rendezvous->world.patience + ANSWER_SLACK, error);
}

/* Says who this rank is, and waits until all have joined. */
static int join_once(struct rendezvous *rendezvous, struct pl_error *error)
{
	const struct rendezvous_options *options = rendezvous->options;
	const struct membership *membership = options->membership;
	struct hello hello = { .rank = membership->rank, .size = membership->size, .process = rendezvous->process };
	uint8_t bytes[PL_NOTIFY_DATA_MAX];
	int rc = cli_expect_program(rendezvous->peer, CLI_PROGRAM_MATRIX, membership->address, error);

	if (rc < 0)
		return rc;
	memcpy(hello.run, membership->run, sizeof(hello.run));
	memcpy(hello.host, membership->host, sizeof(hello.host));
	memcpy(hello.terms, options->terms, sizeof(hello.terms));
	rc = rendezvous_send(rendezvous->peer, RENDEZVOUS_HELLO, 0, bytes, hello_encode(&hello, bytes), error);
	return rc < 0 ? rc : wait_for_answer(rendezvous, NULL, 0, options->join_timeout + ANSWER_SLACK, error);
}

/*
 * Connects again after the connection was lost.  Rank 0 closes that of a rank that was too slow to say who it is, and
 * loses those of a network that breaks for a moment.
 */
static int reconnect_to_first(struct rendezvous *rendezvous, struct pl_error *error)
{
	pl_peer_close(rendezvous->peer);
	rendezvous->peer = NULL;
	rendezvous->lost = false;
	inbox_clear(&rendezvous->inbox);
	return pl_connect(rendezvous->context, rendezvous->options->membership->address, ATTEMPT_TIMEOUT,
			  &rendezvous->peer, error);
}

/* Joins; after a loss connects again, until `deadline`.  The error is that of the last attempt to join. */
static int join_until(struct rendezvous *rendezvous, uint64_t deadline, struct pl_error *error)
{
	uint64_t wait = RETRY_FIRST;
	int rc = join_once(rendezvous, error);

	while (means_connection_lost(rc) && cli_now() < deadline) {
		struct pl_error other;
		int broken;

		sleep_until_retry(rendezvous, &wait, deadline);
		broken = reconnect_to_first(rendezvous, &other);
		/* Rank 0 was there: it has ended if nobody listens at its address. */
		if (broken < 0 && (broken == -ECONNREFUSED || !may_start_later(&other)))
			break;
		if (broken == 0)
			rc = join_once(rendezvous, error);
	}
	return rc;
}

int member_open(struct rendezvous *rendezvous, struct pl_error *error)
{
	uint64_t deadline = cli_now() + rendezvous->options->join_timeout;
	int rc = connect_to_first(rendezvous, error);

	return rc < 0 ? rc : join_until(rendezvous, deadline, error);
}
