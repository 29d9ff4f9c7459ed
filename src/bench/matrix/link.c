/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/link.h"

#include <stdlib.h>

#define ACCEPT_SLICE (50 * CLI_NS_PER_MS) /* between two looks at lost ranks */
#define TAG_TIMEOUT (5 * CLI_NS_PER_S)    /* in which a connection tells its turn and rank */
#define TAG(turn, rank) ((uint64_t)(turn) << 32 | (uint32_t)(rank))

/* Connects and tells the other end the turn and the own rank. */
static void connect_link(const struct link_end *end, struct link *link, uint32_t turn, uint64_t deadline)
{
	uint64_t now = cli_now(), left = deadline > now ? deadline - now : 1;
	struct pl_operation *operation;

	link->rc = pl_connect(end->context, end->ends[link->rank].address, left, &link->peer, &link->error);
	if (link->rc == 0)
		link->rc =
			pl_send_copy(link->peer, TAG(turn, end->matrix->rank), NULL, 0, NULL, &operation, &link->error);
	if (link->rc == 0)
		link->rc = pl_wait(operation, left, NULL, &link->error);
}

static struct link *find_link(struct link *links, int count, uint64_t tag, uint32_t turn)
{
	for (int i = 0; i < count; i++)
		if (!links[i].peer && TAG(turn, links[i].rank) == tag)
			return &links[i];
	return NULL;
}

/* Reads the turn and rank of a new connection.  A connection of an earlier turn, whose rank gave up since, is closed. */
static void admit_link(struct pl_peer *peer, struct link *links, int count, uint32_t turn)
{
	struct pl_completion completion = { .status = 0 };
	struct pl_operation *operation;
	struct link *link = NULL;
	struct pl_error error;
	int rc = pl_receive(peer, 0, 0, NULL, NULL, &operation, &error);

	if (rc == 0)
		rc = pl_wait(operation, TAG_TIMEOUT, &completion, &error);
	if (rc == 0)
		link = find_link(links, count, completion.tag, turn);
	if (link)
		link->peer = peer;
	else
		pl_peer_close(peer);
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
			link->rc = cli_fail(&link->error, -ECONNRESET, "MATRIX-LOST", NULL, NULL,
					    "the connection of rank %d to rank 0 is lost", link->rank);
		else
			waiting = link;
	}
	return waiting;
}

static void accept_links(const struct link_end *end, struct link *links, int count, uint32_t turn, uint64_t deadline)
{
	struct link *waiting;

	while ((waiting = find_waiting_link(end, links, count))) {
		uint64_t now = cli_now();
		struct pl_peer *peer = NULL;
		struct pl_error error;
		int rc = pl_accept(end->listener, now < deadline ? CLI_MIN(deadline - now, ACCEPT_SLICE) : 0, &peer,
				   &error);

		if (rc == 0) {
			admit_link(peer, links, count, turn);
		} else if (rc != -ETIMEDOUT) {
			waiting->rc = rc;
			waiting->error = error;
		} else if (now >= deadline) {
			waiting->rc = cli_fail(&waiting->error, rc, "WAIT-TIMEOUT", NULL, NULL,
					       "rank %d has not connected within %.3g s", waiting->rank,
					       (double)end->options->step_timeout / CLI_NS_PER_S);
		}
	}
}

void links_connect(const struct link_end *end, struct link *links, int count, uint32_t turn)
{
	uint64_t timeout = end->options->step_timeout, deadline = cli_now() + timeout;

	for (int i = 0; i < count; i++)
		if (links[i].rank > end->matrix->rank)
			connect_link(end, &links[i], turn, deadline);
	accept_links(end, links, count, turn, deadline);
	for (int i = 0; i < count; i++) {
		const struct matrix_end *other = &end->ends[links[i].rank];

		if (links[i].rc == 0)
			links[i].rc = pl_remote_import(links[i].peer, other->token, other->token_length, timeout,
						       &links[i].remote, &links[i].error);
	}
}

void links_close(struct link *links, int count)
{
	for (int i = 0; i < count; i++) {
		pl_remote_release(links[i].remote);
		pl_peer_close(links[i].peer);
	}
}
