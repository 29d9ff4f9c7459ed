/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/transfer/pipeline.h"

#define DEPTH 6
#define PIECE_FIRST (256ull << 10)
#define PIECE_MAX (8ull << 20)
/* A piece that takes less than FAST is doubled, one that takes more than SLOW is halved. */
#define FAST (100 * CLI_NS_PER_MS)
#define SLOW (CLI_NS_PER_S)
#define IDLE_MS 100

/* Pipeline while it runs. */
struct running {
	const struct pipeline *pipeline;
	struct await slots[PIPELINE_DEPTH_MAX];
	uint64_t lengths[PIPELINE_DEPTH_MAX];
	unsigned depth;
	uint64_t first, next; /* numbers of the oldest piece under way and of the next piece */
	uint64_t posted, done;
	uint64_t piece;
};

static int post_piece(struct running *running, struct pl_error *error)
{
	const struct pipeline *pipeline = running->pipeline;
	unsigned slot = (unsigned)(running->next % running->depth);
	uint64_t length = CLI_MIN(running->piece, pipeline->length - running->posted);
	struct pl_attributes attributes = session_attributes(&running->slots[slot], 0);
	struct pl_transfer transfer = { pipeline->remote, pipeline->remote_offset + running->posted, pipeline->region,
					pipeline->offset + running->posted, length };
	int rc = (pipeline->write ? pl_write : pl_read)(pipeline->session->peer, &transfer, &attributes, NULL, error);

	if (rc < 0)
		return rc;
	running->lengths[slot] = length;
	running->posted += length;
	running->next++;
	return 0;
}

/* Adapts the size of pieces to the network: small pieces stay below the timeout, large pieces are efficient. */
static void adapt_piece_size(struct running *running, const struct pl_completion *receipt)
{
	uint64_t took = receipt->completed - receipt->posted;

	if (running->pipeline->piece)
		return;
	if (took < FAST)
		running->piece = CLI_MIN(running->piece * 2, PIECE_MAX);
	else if (took > SLOW)
		running->piece = CLI_MAX(running->piece / 2, PIECE_FIRST / 4);
}

static void add_receipt(struct pipeline_result *result, const struct pl_completion *receipt)
{
	result->bytes += receipt->bytes;
	result->staged += receipt->bytes_staged;
	if (receipt->route != PL_ROUTE_NONE && result->route != PL_ROUTE_STAGED) {
		result->route = receipt->route;
		result->reason = receipt->reason;
	}
	result->fabric = receipt->fabric;
	result->lanes = CLI_MAX(result->lanes, receipt->lanes);
}

/* Handles the completed pieces in order, from the oldest. */
static int complete_pieces(struct running *running, struct pipeline_result *result, struct pl_error *error)
{
	const struct pipeline *pipeline = running->pipeline;
	int rc = 0;

	while (rc == 0 && running->first < running->next) {
		unsigned slot = (unsigned)(running->first % running->depth);
		struct await *await = &running->slots[slot];

		if (!await->done)
			break;
		running->first++;
		if (await->status < 0) {
			*error = await->error;
			return await->status;
		}
		add_receipt(result, &await->completion);
		adapt_piece_size(running, &await->completion);
		running->done += running->lengths[slot];
		if (pipeline->advance)
			rc = pipeline->advance(pipeline->user, running->done, error);
	}
	return rc;
}

static int move_pieces(struct running *running, struct pipeline_result *result, struct pl_error *error)
{
	const struct pipeline *pipeline = running->pipeline;
	int rc = 0;

	while (rc == 0 && running->done < pipeline->length) {
		while (rc == 0 && running->next - running->first < running->depth && running->posted < pipeline->length)
			rc = post_piece(running, error);
		if (rc == 0 && !running->slots[running->first % running->depth].done)
			rc = session_pump(pipeline->session, IDLE_MS, error);
		if (rc == 0)
			rc = complete_pieces(running, result, error);
		if (rc == 0 && pipeline->idle)
			pipeline->idle(pipeline->user);
	}
	return rc;
}

int pipeline_run(const struct pipeline *pipeline, struct pipeline_result *result, struct pl_error *error)
{
	struct running running = {
		.pipeline = pipeline,
		.depth = pipeline->depth ? CLI_MIN(pipeline->depth, PIPELINE_DEPTH_MAX) : DEPTH,
		.piece = pipeline->piece ? pipeline->piece : PIECE_FIRST,
	};
	uint64_t begin = cli_now();
	int rc;

	if (!pipeline->session->peer)
		return cli_fail(error, -ENOTCONN, "CONNECTION-LOST", pipeline->session->address, NULL,
				"the connection is closed");
	rc = move_pieces(&running, result, error);
	for (; running.first < running.next; running.first++)
		session_drain(pipeline->session, &running.slots[running.first % running.depth]);
	result->nanoseconds += cli_now() - begin;
	return rc;
}
