/* SPDX-License-Identifier: BSD-2-Clause */
/* Frames that a queue pair receives: wrong ones lose the peer, and each completion counts once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"
#include "support/fault_rig.h"

#define RECEIVED 7u
/* Most flushes of a peer that are under way. */
#define FLUSHES 65536u
/* Questions between two looks at unsent answers. */
#define ANSWERS 65536u

struct rig {
	struct fault_rig *base;
	struct verbs_endpoint *endpoint;
	struct pl_peer *peer;
	struct verbs_buffer buffer;
	uint8_t bytes[VERBS_BUFFER];
	size_t length; /* of the next message */
};

static void sweep_nothing(struct pl_endpoint *endpoint)
{
	(void)endpoint;
}

static const struct pl_fabric_ops no_fabric = { .name = "none", .sweep = sweep_nothing };

static void never(struct pl_timer *timer)
{
	(void)timer;
}

/* The peer may be lost: it has no operations, imports or streams. */
static void open_peer(struct pl_peer *peer)
{
	peer->ops = &no_fabric;
	peer->channel.open = false;
	atomic_store(&peer->state, PL_PEER_UP);
	pl_timer_init(&peer->timer, never);
	pl_timer_init(&peer->deadline, never);
	pl_list_init(&peer->operations);
	pl_list_init(&peer->fenced);
	pl_list_init(&peer->held_events);
	pl_list_init(&peer->turn_link);
	pl_list_init(&peer->backlog_link);
	pl_list_init(&peer->subscriptions);
	pl_list_init(&peer->subscribers);
	pl_list_init(&peer->listings);
	pl_list_init(&peer->remotes);
	pl_messages_init(peer);
	pl_imports_init(peer);
	pl_keys_init(peer);
}

static struct rig *rig_new(void)
{
	struct rig *rig = pl_zalloc(&pl_system_allocator, sizeof(*rig));
	struct verbs_rail *rails;

	assert_non_null(rig);
	rig->base = fault_rig_new();
	rig->endpoint = &rig->base->endpoint;
	rig->peer = &rig->base->peer;
	rig->endpoint->received = RECEIVED;
	/* Nothing is posted. */
	rig->endpoint->flushing = true;
	pl_timer_init(&rig->endpoint->gap.timer, verbs_gap_look);
	pl_list_init(&rig->endpoint->settling);
	rails = rig->endpoint->rails;
	for (unsigned i = 0; i < 2; i++) {
		pl_list_init(&rails[i].spent);
		rails[i].receives_posted = 10;
	}
	rig->buffer.bytes = rig->bytes;
	pl_list_init(&rig->buffer.link);
	open_peer(rig->peer);
	return rig;
}

static void free_waiting(struct pl_list *list, struct verbs_endpoint *endpoint)
{
	while (!pl_list_empty(list)) {
		struct verbs_work *work = pl_list_first(list, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(endpoint, work);
	}
}

static void rig_free(struct rig *rig)
{
	pl_list_remove(&rig->buffer.link);
	free_waiting(&rig->endpoint->waiting, rig->endpoint);
	verbs_early_forget(rig->endpoint);
	fault_rig_free(rig->base);
	pl_free(&pl_system_allocator, rig);
}

static bool is_lost(const struct rig *rig)
{
	return verbs_is_lost(rig->endpoint);
}

static void add_frame(struct rig *rig, const struct pl_frame *frame)
{
	pl_frame_encode(frame, rig->bytes + rig->length);
	rig->length += PL_FRAME_HEADER;
}

/* The peer's question after a generation of a rail that is gone here: this end answers at once. */
static void add_question(struct rig *rig, unsigned rail)
{
	const struct pl_frame frame = { .type = PL_FRAME_FENCE, .cookie = rail, .offset = 1 };

	add_frame(rig, &frame);
}

/* Returns the number of questions that were taken. */
static unsigned answers(const struct rig *rig)
{
	unsigned count = 0;

	pl_list_for_each(at, &rig->endpoint->again)
		count += pl_list_entry(at, struct verbs_work, link)->frame.type == PL_FRAME_FENCED;
	return count;
}

static void poll_one(struct ibv_wc completion)
{
	fault_card.completion = completion;
	fault_card.completed = true;
}

/* Completes the receive of the rig's bytes with the first rail's queue pair. */
static struct ibv_wc completion_of(struct rig *rig)
{
	rig->buffer.posted = true;
	pl_list_remove(&rig->buffer.link);
	return (struct ibv_wc){ .wr_id = verbs_receive_id(&rig->buffer),
				.status = IBV_WC_SUCCESS,
				.opcode = IBV_WC_RECV,
				.byte_len = (uint32_t)rig->length,
				.qp_num = 7 };
}

static void receive(struct rig *rig, const struct ibv_wc *completion)
{
	poll_one(*completion);
	assert_int_equal(verbs_cq_poll(&rig->base->queue), 1);
	rig->length = 0;
}

static void receive_bytes(struct rig *rig)
{
	const struct ibv_wc completion = completion_of(rig);

	receive(rig, &completion);
}

/* -- several frames in one message ---------------------------------------------------------------- */

static void test_whole(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 1);
	add_question(rig, 0);
	add_question(rig, 1);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 3);
	/* The empty message that proves the path. */
	receive_bytes(rig);
	assert_int_equal(answers(rig), 3);
	assert_false(is_lost(rig));
	rig_free(rig);
}

/* A message that ends within a header loses the peer; frames before it were taken. */
static void test_cut_headers(void **state)
{
	(void)state;
	for (size_t cut = 1; cut < PL_FRAME_HEADER; cut++) {
		struct rig *rig = rig_new();

		add_question(rig, 0);
		add_question(rig, 1);
		rig->length -= cut;
		receive_bytes(rig);
		assert_int_equal(answers(rig), 1);
		assert_true(is_lost(rig));
		rig_free(rig);
	}
}

/* The payload of a frame ends with the message, or before it. */
static void test_payloads(void **state)
{
	const struct pl_frame frame = { .type = PL_FRAME_EAGER, .ack = RECEIVED + 2, .length = 10 };

	(void)state;
	for (size_t payload = 9; payload <= 10; payload++) {
		struct rig *rig = rig_new();

		add_frame(rig, &frame);
		rig->length += payload;
		receive_bytes(rig);
		assert_int_equal(is_lost(rig), payload < 10);
		/* A frame behind a gap is kept. */
		assert_int_equal(rig->endpoint->early_count, payload == 10);
		rig_free(rig);
	}
}

/* Nothing is taken behind a wrong frame. */
static void test_wrong_frame(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	add_question(rig, 2);
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 0);
	assert_true(is_lost(rig));
	rig_free(rig);
}

/* Bytes that are no frame, and frames of other fabrics. */
static void test_strange_frames(void **state)
{
	/* With the number of a repeated frame, which an end drops. */
	const struct pl_frame write = { .type = PL_FRAME_WRITE, .ack = RECEIVED };
	struct rig *rig = rig_new();

	(void)state;
	memset(rig->bytes, 0xff, PL_FRAME_HEADER);
	rig->length = PL_FRAME_HEADER;
	receive_bytes(rig);
	assert_true(is_lost(rig));
	rig_free(rig);
	rig = rig_new();
	add_frame(rig, &write);
	receive_bytes(rig);
	assert_true(is_lost(rig));
	rig_free(rig);
}

/* A completion that is neither that of a message nor of a notification. */
static void test_strange_completion(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_wc completion;

	(void)state;
	add_question(rig, 0);
	completion = completion_of(rig);
	completion.opcode = IBV_WC_SEND;
	receive(rig, &completion);
	assert_int_equal(answers(rig), 0);
	assert_true(is_lost(rig));
	rig_free(rig);
}

/* -- numbers -------------------------------------------------------------------------------------- */

/* A frame that came before is dropped, and one that is too early waits. */
static void test_numbers(void **state)
{
	struct pl_frame frame = { .type = PL_FRAME_FLUSHED, .ack = RECEIVED };
	struct rig *rig = rig_new();

	(void)state;
	add_frame(rig, &frame);
	receive_bytes(rig);
	assert_int_equal(rig->endpoint->received, RECEIVED);
	assert_int_equal(rig->endpoint->early_count, 0);
	frame.ack = RECEIVED + 2;
	add_frame(rig, &frame);
	receive_bytes(rig);
	assert_int_equal(rig->endpoint->received, RECEIVED);
	assert_int_equal(rig->endpoint->early_count, 1);
	assert_false(is_lost(rig));
	rig_free(rig);
}

/* Returns true if an answer to a flush, which nobody waits for, leaves the peer up. */
static bool accepts_answer(uint64_t status, uint8_t flags)
{
	const struct pl_frame frame = {
		.type = PL_FRAME_FLUSHED, .flags = flags, .ack = RECEIVED + 1, .offset = status
	};
	struct rig *rig = rig_new();
	bool accepted;

	add_frame(rig, &frame);
	receive_bytes(rig);
	assert_int_equal(rig->endpoint->received, RECEIVED + 1);
	accepted = !is_lost(rig);
	rig_free(rig);
	return accepted;
}

/* Only a flush that was done tells how. */
static void test_flush_answers(void **state)
{
	(void)state;
	assert_true(accepts_answer(PL_WIRE_OK, 1));
	assert_true(accepts_answer(PL_WIRE_OK, PL_FLUSH_END - 1));
	assert_false(accepts_answer(PL_WIRE_OK, 0));
	assert_false(accepts_answer(PL_WIRE_OK, PL_FLUSH_END));
	assert_true(accepts_answer(PL_WIRE_UNKNOWN_KEY, 0));
	assert_true(accepts_answer(UINT32_MAX, 0));
	assert_false(accepts_answer((uint64_t)UINT32_MAX + 1, 0));
}

/* Returns true if a flush of an unknown key has an answer, false if the peer is lost. */
static bool asked(uint8_t level, unsigned under_way)
{
	const struct pl_frame frame = { .type = PL_FRAME_FLUSH, .flags = level, .ack = RECEIVED + 1, .key = 40 };
	struct rig *rig = rig_new();
	bool lost;

	rig->endpoint->flush_count = under_way;
	add_frame(rig, &frame);
	receive_bytes(rig);
	lost = is_lost(rig);
	assert_int_equal(pl_list_empty(&rig->endpoint->waiting) && pl_list_empty(&rig->endpoint->again), lost);
	rig_free(rig);
	return !lost;
}

/* A peer can ask for a limited number of flushes, of known levels. */
static void test_flush_questions(void **state)
{
	(void)state;
	assert_true(asked(PL_LEVEL_PLACED, 0));
	assert_true(asked(PL_LEVEL_GPU, 0));
	assert_false(asked(0, 0));
	assert_false(asked(PL_LEVEL_GPU + 1, 0));
	assert_true(asked(PL_LEVEL_GPU, FLUSHES - 1));
	assert_false(asked(PL_LEVEL_GPU, FLUSHES));
}

/* Asks for so many fences and flushes of an unknown key, in turn, while nothing is sent. */
static void ask_often(struct rig *rig, unsigned count)
{
	struct pl_frame flush = { .type = PL_FRAME_FLUSH, .flags = PL_LEVEL_GPU, .key = 40 };

	for (unsigned i = 0; i < count; i++) {
		if (i % 2 == 0) {
			add_question(rig, 0);
		} else {
			flush.ack = rig->endpoint->received + 1;
			add_frame(rig, &flush);
		}
		receive_bytes(rig);
		/* The only buffer was in this list alone, and is not posted. */
		rig->endpoint->rails[0].spent_count = 0;
	}
}

/* A peer that takes no answers is lost before these fill the memory. One that takes them may ask on. */
static void test_answers_not_taken(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	ask_often(rig, 2 * ANSWERS - 1);
	assert_false(is_lost(rig));
	free_waiting(&rig->endpoint->waiting, rig->endpoint);
	free_waiting(&rig->endpoint->again, rig->endpoint);
	ask_often(rig, ANSWERS);
	assert_false(is_lost(rig));
	ask_often(rig, ANSWERS);
	assert_true(is_lost(rig));
	assert_string_equal(rig->peer->loss.id, "PROTOCOL");
	rig_free(rig);
}

/* A frame without a header may be empty: it is not the message that proves the path. */
static void test_empty_bare_frame(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_wc completion = completion_of(rig);

	(void)state;
	completion.wc_flags = IBV_WC_WITH_IMM;
	completion.imm_data = htobe32(RECEIVED + 2);
	receive(rig, &completion);
	assert_int_equal(rig->endpoint->early_count, 1);
	assert_false(is_lost(rig));
	rig_free(rig);
}

/* The peer is lost at the fourth look that does not find the missing frame. */
static void test_missing_frame(void **state)
{
	const struct pl_frame frame = { .type = PL_FRAME_CREDIT, .ack = RECEIVED + 2 };
	struct rig *rig = rig_new();

	(void)state;
	add_frame(rig, &frame);
	receive_bytes(rig);
	for (unsigned i = 1; i <= 4; i++) {
		pl_timer_clear(rig->peer->home, &rig->endpoint->gap.timer);
		verbs_gap_look(&rig->endpoint->gap.timer);
		assert_int_equal(is_lost(rig), i == 4);
	}
	assert_string_equal(rig->peer->loss.id, "RDMA-MESSAGE-LOST");
	rig_free(rig);
}

/* Nothing is taken behind a wrong frame that was kept. */
static void test_wrong_kept_frame(void **state)
{
	struct pl_frame frame = { .type = PL_FRAME_FLUSHED, .ack = RECEIVED + 3, .offset = 1 };
	struct rig *rig = rig_new();

	(void)state;
	add_frame(rig, &frame);
	frame.ack = RECEIVED + 2;
	frame.offset = PL_WIRE_OK;
	add_frame(rig, &frame);
	receive_bytes(rig);
	assert_int_equal(rig->endpoint->early_count, 2);
	frame.ack = RECEIVED + 1;
	frame.offset = 1;
	add_frame(rig, &frame);
	receive_bytes(rig);
	assert_true(is_lost(rig));
	assert_int_equal(rig->endpoint->early_count, 1);
	rig_free(rig);
}

/* A frame that fills the gap lets the kept ones be taken, unless it is wrong. */
static void test_filled_gap(void **state)
{
	(void)state;
	for (uint64_t status = PL_WIRE_OK; status <= 1; status++) {
		struct pl_frame frame = { .type = PL_FRAME_FLUSHED, .ack = RECEIVED + 2, .offset = 1 };
		struct rig *rig = rig_new();

		add_frame(rig, &frame);
		receive_bytes(rig);
		frame.ack = RECEIVED + 1;
		frame.offset = status;
		add_frame(rig, &frame);
		receive_bytes(rig);
		assert_int_equal(is_lost(rig), status == PL_WIRE_OK);
		assert_int_equal(rig->endpoint->received, RECEIVED + (is_lost(rig) ? 1 : 2));
		assert_int_equal(rig->endpoint->early_count, is_lost(rig));
		rig_free(rig);
	}
}

/* -- completions ---------------------------------------------------------------------------------- */

/* A device may repeat a completion, also after the buffer was posted again. */
static void test_repeated(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_wc completion;
	unsigned posted = rig->endpoint->rails[0].receives_posted;

	(void)state;
	add_question(rig, 0);
	completion = completion_of(rig);
	receive(rig, &completion);
	receive(rig, &completion);
	assert_int_equal(answers(rig), 1);
	assert_int_equal(rig->endpoint->rails[0].receives_posted, posted - 1);
	rig->buffer.posted = true;
	receive(rig, &completion);
	assert_int_equal(answers(rig), 1);
	assert_true(rig->buffer.posted);
	/* The device does not have the buffer. */
	add_question(rig, 0);
	completion = completion_of(rig);
	rig->buffer.posted = false;
	receive(rig, &completion);
	assert_int_equal(answers(rig), 1);
	rig_free(rig);
}

/* The queue pair is gone. Only a shared receive queue gets the buffer back. */
static void test_unknown_pair(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_wc completion;

	(void)state;
	add_question(rig, 0);
	completion = completion_of(rig);
	completion.qp_num = 77;
	receive(rig, &completion);
	assert_true(rig->buffer.posted);
	rig->base->queue.srq = &rig->base->srq;
	receive(rig, &completion);
	assert_false(rig->buffer.posted);
	assert_int_equal(rig->base->queue.spent_count, 1);
	assert_int_equal(answers(rig), 0);
	rig_free(rig);
}

/* A failed receive has no message, and its buffer is not posted again to the failed queue pair. */
static void test_failed_receive(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_wc completion;

	(void)state;
	add_question(rig, 0);
	completion = completion_of(rig);
	completion.status = IBV_WC_WR_FLUSH_ERR;
	receive(rig, &completion);
	assert_int_equal(answers(rig), 0);
	assert_int_equal(rig->endpoint->rails[0].spent_count, 0);
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 1);
	assert_int_equal(rig->endpoint->rails[0].spent_count, 1);
	rig_free(rig);
}

/* The receives of a lost peer have failed. A rail that is still up takes frames. */
static void test_lost_peer(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	atomic_store(&rig->peer->state, PL_PEER_LOST);
	rig->endpoint->rails[0].link = VERBS_DRAINING;
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 0);
	rig->endpoint->rails[0].link = VERBS_UP;
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 1);
	rig_free(rig);
}

/* Frames that arrived before a connection broke count. */
static void test_draining(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	rig->endpoint->rails[0].link = VERBS_DRAINING;
	add_question(rig, 0);
	receive_bytes(rig);
	assert_int_equal(answers(rig), 1);
	assert_false(is_lost(rig));
	rig_free(rig);
}

/* Frames without a number: answers of fences, and those of keys. */
static void test_unnumbered(void **state)
{
	static const enum pl_frame_type types[] = { PL_FRAME_FENCED, PL_FRAME_ASK_KEY, PL_FRAME_KEY };
	struct rig *rig = rig_new();

	(void)state;
	for (size_t i = 0; i < PL_ARRAY_SIZE(types); i++)
		add_frame(rig, &(struct pl_frame){ .type = (uint8_t)types[i] });
	receive_bytes(rig);
	assert_false(is_lost(rig));
	assert_int_equal(rig->endpoint->questions, 1);
	assert_int_equal(rig->endpoint->received, RECEIVED);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_cut_headers),
		cmocka_unit_test(test_payloads),
		cmocka_unit_test(test_wrong_frame),
		cmocka_unit_test(test_strange_frames),
		cmocka_unit_test(test_strange_completion),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_unknown_pair),
		cmocka_unit_test(test_failed_receive),
		cmocka_unit_test(test_lost_peer),
		cmocka_unit_test(test_draining),
		cmocka_unit_test(test_unnumbered),
		cmocka_unit_test(test_flush_answers),
		cmocka_unit_test(test_filled_gap),
		cmocka_unit_test(test_flush_questions),
		cmocka_unit_test(test_answers_not_taken),
		cmocka_unit_test(test_wrong_kept_frame),
		cmocka_unit_test(test_empty_bare_frame),
		cmocka_unit_test(test_missing_frame),
	};

	return cmocka_run_group_tests_name("verbs frames", tests, NULL, NULL);
}
