/* SPDX-License-Identifier: BSD-2-Clause */
/* Several frames in one SEND: which go together, how they lie there, and what becomes of them when it comes back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"

#define HOST_KEY 7
#define GPU_KEY 8
#define WORKS 40

struct rig {
	struct pl_context context;
	struct verbs_state state;
	struct verbs_library library;
	struct verbs_device device;
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
	struct verbs_cq queue;
	struct verbs_buffer_pool pool;
	struct ibv_mr mr;
	struct verbs_buffer buffer;
	struct pl_region region;
	struct pl_operation operations[WORKS];
	struct verbs_rail *rail;
	bool packed; /* what was packed last: more than one */
	uint8_t bytes[VERBS_BUFFER];
	uint8_t payload[PL_EAGER_MAX];
	uint8_t memory[4096];
};

static const char *describe_status(enum ibv_wc_status status)
{
	return status == IBV_WC_LOC_PROT_ERR ? "local protection error" : "other";
}

static struct rig *rig_new(void)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	rig->context.allocator = pl_system_allocator;
	rig->state.context = &rig->context;
	rig->library.ibv_wc_status_str = describe_status;
	rig->state.library = &rig->library;
	rig->device.attributes.max_sge = 30;
	rig->peer.context = &rig->context;
	pl_event_log_init(&rig->peer.events, &pl_system_allocator);
	rig->peer.packs = rig->peer.headerless = true;
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.rail_count = 1;
	rig->endpoint.notified = (uint32_t)-VERBS_EARLY;
	pl_list_init(&rig->endpoint.waiting);
	rig->rail = &rig->endpoint.rails[0];
	rig->rail->endpoint = &rig->endpoint;
	rig->rail->device = &rig->device;
	rig->rail->queue = &rig->queue;
	rig->rail->link = VERBS_DRAINING;
	pl_list_init(&rig->rail->posted);
	pl_list_init(&rig->rail->held);
	pl_list_init(&rig->pool.free);
	rig->mr.lkey = HOST_KEY;
	rig->pool.mr = &rig->mr;
	rig->buffer.pool = &rig->pool;
	rig->buffer.bytes = rig->bytes;
	pl_list_init(&rig->buffer.link);
	rig->region.memory.address = rig->memory;
	for (size_t i = 0; i < sizeof(rig->payload); i++)
		rig->payload[i] = (uint8_t)(i * 7);
	return rig;
}

static void drop(struct rig *rig, struct pl_list *list)
{
	while (!pl_list_empty(list)) {
		struct verbs_work *work = pl_list_first(list, struct verbs_work, link);

		pl_list_remove(&work->link);
		work->buffer = NULL;
		verbs_work_free(&rig->endpoint, work);
	}
}

static void rig_free(struct rig *rig)
{
	drop(rig, &rig->endpoint.waiting);
	drop(rig, &rig->rail->held);
	pl_pool_drain(&rig->endpoint.spare, &pl_system_allocator);
	pl_event_log_destroy(&rig->peer.events);
	free(rig);
}

/* A message that waits, the n-th: its tag is n. */
static struct verbs_work *add(struct rig *rig, unsigned n, uint32_t length, bool gathered)
{
	struct verbs_work *work = verbs_work_take(&rig->endpoint, VERBS_FRAME, NULL);

	assert_non_null(work);
	work->frame = (struct pl_frame){ .type = PL_FRAME_EAGER, .key = n, .length = length };
	if (gathered) {
		work->gathered = true;
		work->region = &rig->region;
		work->offset = 100 * n;
		work->lkey = GPU_KEY;
		work->lkey_device = &rig->device;
		work->operation = &rig->operations[n];
		/* One more than there are, so that it does not complete. */
		atomic_init(&work->operation->pending, 2);
	} else {
		work->payload = rig->payload + n;
	}
	pl_list_append(&rig->endpoint.waiting, &work->link);
	return work;
}

/* As when the first is posted. */
static struct verbs_work *pack(struct rig *rig)
{
	struct verbs_work *first = pl_list_first(&rig->endpoint.waiting, struct verbs_work, link);

	pl_list_remove(&first->link);
	first->buffer = &rig->buffer;
	rig->packed = verbs_packs(&rig->endpoint, first);
	verbs_copy_frame(&rig->endpoint, first, rig->packed);
	if (rig->packed)
		verbs_pack(rig->rail, first);
	return first;
}

static unsigned waiting(const struct rig *rig)
{
	unsigned count = 0;

	pl_list_for_each(at, &rig->endpoint.waiting)
		count++;
	return count;
}

static void finish(struct rig *rig, struct verbs_work *work)
{
	work->buffer = NULL;
	verbs_work_free(&rig->endpoint, work);
	rig_free(rig);
}

/* A notification that went with a write may be repeated, so few frames may follow it. */
static void test_behind_notification(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_work *first;

	(void)state;
	rig->endpoint.sent = rig->endpoint.notified = 5;
	for (unsigned i = 0; i < WORKS; i++)
		add(rig, i, 8, false);
	first = pack(rig);
	assert_int_equal(waiting(rig), WORKS - VERBS_NOTIFY_PACK);
	finish(rig, first);
}

/* The frame counts itself. */
static void test_far_behind_notification(void **state)
{
	(void)state;
	for (uint32_t behind = VERBS_EARLY - 1; behind <= VERBS_EARLY; behind++) {
		struct rig *rig = rig_new();
		struct verbs_work *first;

		rig->endpoint.notified = 1 - behind;
		for (unsigned i = 0; i < WORKS; i++)
			add(rig, i, 8, false);
		first = pack(rig);
		assert_int_equal(waiting(rig), WORKS - (behind < VERBS_EARLY ? VERBS_NOTIFY_PACK : VERBS_PACK));
		finish(rig, first);
	}
}

/* Frames that a SEND with others would break: each as the first and as the second one. */
static void test_kept_apart(void **state)
{
	enum { PLAIN, UNNUMBERED, OF_RAIL, BUILT, ALONE, ANSWERED, WRITE, KINDS };

	(void)state;
	for (unsigned kind = 0; kind < KINDS; kind++) {
		for (unsigned place = 0; place < 2; place++) {
			struct rig *rig = rig_new();
			struct verbs_work *works[2] = { add(rig, 0, 8, false), add(rig, 1, 8, false) },
					  *work = works[place];
			struct verbs_answer answer;

			if (kind == UNNUMBERED)
				work->frame.type = PL_FRAME_FENCED;
			work->only = kind == OF_RAIL ? rig->rail : NULL;
			work->built = kind == BUILT;
			work->alone = kind == ALONE;
			work->answer = kind == ANSWERED ? &answer : NULL;
			if (kind == WRITE)
				work->kind = VERBS_WRITE;
			pl_list_remove(&works[0]->link);
			assert_int_equal(verbs_packs(&rig->endpoint, works[0]), kind == PLAIN);
			work->kind = VERBS_FRAME;
			work->answer = NULL;
			finish(rig, works[0]);
		}
	}
}

static void test_copied(void **state)
{
	struct rig *rig = rig_new();
	struct ibv_sge pieces[VERBS_PIECES] = { 0 };
	const uint8_t *at = rig->bytes;
	struct verbs_work *first;

	(void)state;
	for (unsigned i = 0; i < WORKS; i++)
		add(rig, i, i, false);
	first = pack(rig);
	assert_int_equal(waiting(rig), WORKS - VERBS_PACK);
	assert_false(first->bare);
	for (unsigned i = 0; i < VERBS_PACK; i++) {
		struct pl_frame frame;

		assert_int_equal(pl_frame_decode(at, &frame), 0);
		assert_int_equal(frame.key, i);
		assert_int_equal(frame.length, i);
		assert_int_equal(frame.ack, i + 1);
		assert_memory_equal(at + PL_FRAME_HEADER, rig->payload + i, i);
		at += PL_FRAME_HEADER + i;
	}
	assert_int_equal(first->length, at - rig->bytes);
	assert_int_equal(verbs_fill_pieces(first, pieces), 1);
	assert_int_equal(pieces[0].length, first->length);
	assert_int_equal(pieces[0].lkey, HOST_KEY);
	finish(rig, first);
}

/* The receiver's buffers are of that size. */
static void test_room(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_work *first;

	(void)state;
	add(rig, 0, PL_EAGER_MAX - 2 * PL_FRAME_HEADER - 10, false);
	add(rig, 1, 5, false);
	add(rig, 2, 6, false);
	first = pack(rig);
	assert_int_equal(waiting(rig), 1);
	assert_int_equal(first->length, VERBS_BUFFER - PL_FRAME_HEADER - 5);
	finish(rig, first);
}

/* Frames may fill a buffer. */
static void test_full(void **state)
{
	(void)state;
	for (unsigned more = 0; more < 2; more++) {
		struct rig *rig = rig_new();
		struct verbs_work *first;

		add(rig, 0, PL_EAGER_MAX - PL_FRAME_HEADER - 5, false);
		add(rig, 1, 5 + more, false);
		first = pack(rig);
		assert_int_equal(waiting(rig), more);
		finish(rig, first);
	}
}

/* Alone without a header; so are those whose receiver does not take several. */
static void test_alone(void **state)
{
	(void)state;
	for (unsigned kind = 0; kind < 4; kind++) {
		struct rig *rig = rig_new();
		struct verbs_work *first, *second;

		add(rig, 0, 8, false);
		if (kind) {
			second = add(rig, 1, 8, kind == 2);
			second->built = kind == 3;
		}
		rig->peer.packs = kind != 1;
		first = pack(rig);
		assert_false(rig->packed);
		assert_true(first->bare);
		assert_int_equal(first->length, 8);
		assert_int_equal(waiting(rig), kind > 0);
		finish(rig, first);
	}
}

static struct verbs_work *pack_gathered(struct rig *rig)
{
	for (unsigned i = 0; i < VERBS_PIECES; i++)
		add(rig, i, 8 + i, true);
	return pack(rig);
}

static void test_gathered(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_work *first = pack_gathered(rig), *next;
	struct ibv_sge pieces[VERBS_PIECES] = { 0 };
	uint32_t length = 0;

	(void)state;
	assert_int_equal(waiting(rig), VERBS_PIECES / 2);
	assert_int_equal(verbs_fill_pieces(first, pieces), VERBS_PIECES);
	for (unsigned i = 0; i < VERBS_PIECES / 2; i++) {
		const struct ibv_sge *header = &pieces[2 * i], *bytes = header + 1;
		struct pl_frame frame;

		assert_int_equal(header->length, PL_FRAME_HEADER);
		assert_int_equal(header->lkey, HOST_KEY);
		assert_int_equal(pl_frame_decode((const uint8_t *)(uintptr_t)header->addr, &frame), 0);
		assert_int_equal(frame.key, i);
		assert_int_equal(frame.ack, i + 1);
		assert_int_equal(bytes->addr, (uintptr_t)rig->memory + 100 * i);
		assert_int_equal(bytes->length, 8 + i);
		assert_int_equal(bytes->lkey, GPU_KEY);
		length += PL_FRAME_HEADER + 8 + i;
	}
	assert_int_equal(first->length, length);
	for (next = first->also; next; next = first->also) {
		first->also = next->also;
		verbs_work_free(&rig->endpoint, next);
	}
	finish(rig, first);
}

static void test_few_pieces(void **state)
{
	struct rig *rig = rig_new();
	struct verbs_work *first;

	(void)state;
	rig->device.attributes.max_sge = 3;
	first = pack_gathered(rig);
	assert_null(first->also);
	assert_int_equal(waiting(rig), VERBS_PIECES - 1);
	finish(rig, first);
}

static void post(struct rig *rig, struct verbs_work *work)
{
	verbs_account(rig->rail, work);
	pl_list_append(&rig->rail->posted, &work->link);
}

/* They keep their numbers and their order, and go alone; instead of one that was cancelled another frame does. */
static void expect_held(struct rig *rig, unsigned canceled)
{
	unsigned n = 0;

	assert_int_equal(rig->rail->frames, VERBS_PIECES / 2);
	pl_list_for_each(at, &rig->rail->held) {
		const struct verbs_work *work = pl_list_entry(at, struct verbs_work, link);

		assert_null(work->also);
		assert_true(work->counted);
		assert_false(work->built);
		assert_int_equal(work->frame.ack, n + 1);
		assert_int_equal(work->frame.type, n == canceled ? PL_FRAME_SKIP : PL_FRAME_EAGER);
		assert_int_equal(atomic_load(&rig->operations[n].pending), n == canceled ? 1 : 2);
		assert_int_equal(atomic_load(&rig->operations[n].status), 0);
		n++;
	}
	assert_int_equal(n, VERBS_PIECES / 2);
}

static void test_back(void **state)
{
	const unsigned canceled = 2;
	struct rig *rig = rig_new();

	(void)state;
	post(rig, pack_gathered(rig));
	atomic_store(&rig->operations[canceled].canceled, true);
	verbs_take_back(rig->rail);
	expect_held(rig, canceled);
	assert_int_equal(rig->rail->posted_bytes, 0);
	/* Once more: none is with others. */
	drop(rig, &rig->endpoint.waiting);
	pl_list_splice(&rig->endpoint.waiting, &rig->rail->held);
	for (unsigned i = 0; i < VERBS_PIECES / 2; i++) {
		struct verbs_work *work = pack(rig);

		assert_false(rig->packed);
		work->buffer = NULL;
		verbs_work_free(&rig->endpoint, work);
	}
	rig_free(rig);
}

/* Nobody knows whose fault it was. */
static void test_fault(void **state)
{
	const struct ibv_wc completion = { .status = IBV_WC_LOC_PROT_ERR };
	struct rig *rig = rig_new();

	(void)state;
	post(rig, pack_gathered(rig));
	verbs_work_failed(rig->rail, verbs_take_posted(rig->rail), &completion, true);
	expect_held(rig, WORKS);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_behind_notification),
		cmocka_unit_test(test_far_behind_notification),
		cmocka_unit_test(test_kept_apart),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_copied),
		cmocka_unit_test(test_room),
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_gathered),
		cmocka_unit_test(test_few_pieces),
		cmocka_unit_test(test_back),
		cmocka_unit_test(test_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
