/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages in turns.  Written ones are seen by looking at the memory that they are written to,
 * as a program that waits for one-sided writes does; sent ones by their receive.  Each has its
 * number, and the last of a run says so: written ones in their bytes, sent ones by their tag.
 */
#include "bench/perf/post.h"

#define LAST (1ull << 63)
/* Looks at memory between two looks for completions: while one is to come, and else for bad news. */
#define LOOKS_PER_PUMP 32
#define LOOKS_PER_CHECK 1024

/* Until so many of the own messages are under way at most. */
static int await_own(struct bench_end *end, uint64_t most)
{
	while (end->flow.posted - end->flow.completed > most) {
		int rc = bench_pump(end);

		if (rc == 0)
			rc = bench_spin(end, end->timeout);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Of a written message, which is the next to be posted. */
static inline int mark(struct bench_end *end, const struct bench_line *line, uint64_t value)
{
	size_t offset = line->free[line->free_count - 1] * end->layout.stride;

	bench_mark(end->own.bytes + offset, end->plan.size, value);
	return bench_buffer_bring(end, &end->own, offset, end->plan.size);
}

/* This and what awaits the answer are part of what is measured, so there are as few calls on the way as can be. */
static inline __attribute__((always_inline)) int send_turn(struct bench_end *end, uint64_t value)
{
	struct bench_line *line = &end->flow.lines[0];

	/* The answer can be here before the completion is; the message must not change until then. */
	if (!line->free_count && await_own(end, end->plan.depth - 1) < 0)
		return end->error.code;
	if (end->plan.op == BENCH_SEND)
		end->tag = BENCH_MESSAGE_TURN(value) | (value & LAST ? BENCH_MESSAGE_LAST : BENCH_MESSAGE_DATA);
	else if (mark(end, line, value) < 0)
		return end->error.code;
	return bench_post(end, line, false);
}

/* The number of the message, if it is the one that is due. */
static inline uint64_t look(const struct bench_end *end, const void *message, uint64_t turn)
{
	uint64_t size = end->plan.size, value = bench_marker(message, size);

	/* One marker is all that a message of a block has. */
	if ((value & ~LAST) != turn || (size >= BENCH_BLOCK && !bench_marked(message, size, value)))
		return 0;
	return value;
}

static inline int await_write(struct bench_end *end, uint64_t *value)
{
	const void *message = end->exposed.bytes;

	for (uint32_t looks = 1;; looks++) {
		/* The completion of the own message is taken while it is the other end's turn. */
		uint32_t between = end->flow.completed < end->flow.posted ? LOOKS_PER_PUMP : LOOKS_PER_CHECK;
		bool pump = looks % between == 1;
		int rc = 0;

		if (end->exposed.apart && bench_buffer_look(end, &end->exposed, end->plan.size) < 0)
			return end->error.code;
		*value = look(end, message, end->turn);
		if (*value)
			return 0;
		if (!pump && end->one_sided)
			continue;
		if (pump)
			rc = bench_pump(end);
		else
			pl_poll(end->context, NULL, 0);
		if (rc == 0)
			rc = bench_spin(end, end->timeout);
		if (rc < 0)
			return rc;
	}
}

static inline int await_message(struct bench_end *end, uint64_t *value)
{
	int rc = bench_receives_renew(end);

	if (rc < 0)
		return rc;
	while (end->received < end->turn) {
		rc = bench_pump(end);
		if (rc == 0)
			rc = bench_idle(end, end->timeout);
		if (rc < 0)
			return rc;
	}
	*value = end->turn | ((end->tag_arrived & BENCH_MESSAGE_LAST) == BENCH_MESSAGE_LAST ? LAST : 0);
	if (end->tag_arrived >> BENCH_MESSAGE_SHIFT << BENCH_MESSAGE_SHIFT != BENCH_MESSAGE_TURN(end->turn))
		return bench_fail(end, -EPROTO, "BENCH-PROTOCOL", NULL, NULL, "message %llu is not the one that is due",
				  (unsigned long long)end->turn);
	return 0;
}

static inline __attribute__((always_inline)) int await_turn(struct bench_end *end, uint64_t *value)
{
	uint64_t slot = end->plan.op == BENCH_WRITE ? 0 : (end->turn - 1) % CLI_MAX(end->layout.receives, 1);
	int rc = end->plan.op == BENCH_WRITE ? await_write(end, value) : await_message(end, value);

	if (rc == 0 && end->plan.touch)
		rc = bench_buffer_touch(end, &end->exposed, slot * end->layout.stride, end->plan.size);
	return rc;
}

static void begin(struct bench_end *end, struct stats *stats)
{
	struct bench_flow *flow = &end->flow;

	flow->stats = stats;
	flow->in_turns = flow->special = true;
	flow->first = UINT64_MAX;
	flow->turn = flow->duration = 0;
	bench_patience(end);
}

/*
 * The time of a turn is that between two messages of this end, of which the receipts tell, as they are looked at while it
 * is the other one's turn: no clock is read between a message and the answer to it.
 */
int bench_pingpong_lead(struct bench_end *end, uint64_t iterations, uint64_t duration, struct stats *stats)
{
	struct bench_flow *flow = &end->flow;
	uint64_t value = 0, rounds = 0, ended;
	bool last;
	int rc;

	begin(end, stats);
	do {
		rounds++;
		last = iterations ? rounds == iterations : flow->turn && flow->turn - flow->first >= duration;
		end->turn++;
		rc = send_turn(end, end->turn | (last && stats ? LAST : 0));
		if (rc == 0)
			rc = await_turn(end, &value);
		if (rc < 0)
			return rc;
	} while (!last);
	ended = cli_now();
	if (await_own(end, 0) < 0)
		return end->error.code;
	flow->last = ended;
	if (stats)
		stats_record(stats, (flow->last - flow->turn) / 2);
	flow->measured = 2 * rounds;
	return bench_receives_renew(end);
}

int bench_pingpong_follow(struct bench_end *end)
{
	uint64_t value = 0;

	begin(end, NULL);
	do {
		int rc;

		end->turn++;
		rc = await_turn(end, &value);
		if (rc == 0)
			rc = send_turn(end, value);
		if (rc < 0)
			return rc;
	} while (!(value & LAST));
	return bench_receives_renew(end);
}
