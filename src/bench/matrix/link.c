/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/matrix/link.h"

#include <stdlib.h>

#define TAG_TIMEOUT (5 * CLI_NS_PER_S) /* in which a connection tells its turn and rank */
#define TAG(turn, rank) ((uint64_t)(turn) << 32 | (uint32_t)(rank))

/* Connects and tells the other end the turn and the own rank. */
static void connect_link(const struct link_end *end, struct link *link, uint32_t turn, uint64_t deadline)
{
	uint64_t now = cli_now(), left = deadline > now ? deadline - now : 1;
	struct pl_operation *operation;

	link->rc = pl_connect(end->context, end->ends[link->rank].address, left, &link->peer, &link->error);
	if (link->rc == 0)
		link->rc = pl_send_copy(link->peer, TAG(turn, end->matrix->rank), NULL, 0, NULL, &operation,
					&link->error);
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

/* Accepts a link.  A connection of an earlier turn, whose rank gave up since, is closed. */
static int accept_link(const struct link_end *end, struct link *links, int count, uint32_t turn, uint64_t deadline,
		       struct pl_error *error)
{
	uint64_t now = cli_now(), left = deadline > now ? deadline - now : 0;
	struct pl_completion completion = { .status = 0 };
	struct pl_operation *operation;
	struct pl_peer *peer = NULL;
	struct link *link = NULL;
	struct pl_error other;
	int rc = pl_accept(end->listener, left, &peer, error);

	if (rc < 0)
		return rc;
	rc = pl_receive(peer, 0, 0, NULL, NULL, &operation, &other);
	if (rc == 0)
		rc = pl_wait(operation, CLI_MIN(left, TAG_TIMEOUT), &completion, &other);
	if (rc == 0)
		link = find_link(links, count, completion.tag, turn);
	if (link)
		link->peer = peer;
	else
		pl_peer_close(peer);
	return 0;
}

static void accept_links(const struct link_end *end, struct link *links, int count, uint32_t turn, uint64_t deadline)
{
	struct pl_error error;
	int missing = 0, rc = 0;

	do {
		missing = 0;
		for (int i = 0; i < count; i++)
			missing += links[i].rank < end->matrix->rank && !links[i].peer;
		if (missing)
			rc = accept_link(end, links, count, turn, deadline, &error);
	} while (missing && rc == 0);
	for (int i = 0; rc < 0 && i < count; i++)
		if (links[i].rank < end->matrix->rank && !links[i].peer) {
			links[i].rc = rc;
			links[i].error = error;
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
