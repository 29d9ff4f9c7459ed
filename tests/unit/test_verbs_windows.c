/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keys of grants at both ends: one registration of the region for all windows, registrations of GPU memory, and answers
 * to imports that wait for bind requests. The device's calls are replaced; its calls refuse access flags as the kernel's
 * do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fabric/verbs/data/request.h"
#include "fabric/verbs/memory/near.h"

/* Flags that the kernel accepts for a dma-buf. */
#define DMABUF_ACCESS \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_RELAXED_ORDERING)
/* Flags for which the kernel needs writable memory (ib_access_writable()). */
#define NEEDS_WRITABLE \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)
#define GENERATION 5
#define GRANTS 10

/* -- the device ----------------------------------------------------------------------------------- */

static struct {
	unsigned registrations, dmabufs, windows; /* present */
	unsigned registered;                      /* in total, by address */
	struct ibv_send_wr bind;
	unsigned binds;
	bool full;      /* the queue pair takes no bind request */
	int refusal;    /* errno of ibv_alloc_mw(); 0: windows can be made */
	pthread_mutex_t *unheld; /* nobody holds it while a window is made */
	struct verbs_device *leaving; /* is lost while a window is made; NULL: none */
	bool read_only; /* the process cannot write its memory */
	const struct ibv_pd *used; /* of the last registration */
} card;

static struct ibv_mr *new_mr(size_t length)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	assert_non_null(mr);
	mr->length = length;
	mr->lkey = mr->rkey = 100 + card.registrations + card.dmabufs;
	return mr;
}

static struct ibv_mr *register_address(struct ibv_pd *pd, void *address, size_t length, uint64_t iova, unsigned access)
{
	const unsigned remote = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

	card.used = pd;
	/* Only registrations for peers have addresses of their own. */
	if (!(access & remote))
		assert_int_equal((uintptr_t)address, iova);
	if (card.read_only && (access & NEEDS_WRITABLE)) {
		errno = EFAULT;
		return NULL;
	}
	/* Remote rights belong to the windows. */
	if (access & IBV_ACCESS_MW_BIND)
		assert_int_equal(access & remote, 0);
	card.registrations++;
	card.registered++;
	return new_mr(length);
}

static struct ibv_mr *register_strict(struct ibv_pd *pd, void *address, size_t length, int access)
{
	return register_address(pd, address, length, (uintptr_t)address, (unsigned)access);
}

static struct ibv_mr *register_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
				      int access)
{
	struct ibv_mr *mr;

	(void)pd;
	(void)offset;
	(void)iova;
	assert_true(fd >= 0);
	if (access & ~DMABUF_ACCESS) {
		errno = EINVAL;
		return NULL;
	}
	card.dmabufs++;
	mr = new_mr(length);
	mr->handle = 1;
	return mr;
}

static int deregister(struct ibv_mr *mr)
{
	if (mr->handle)
		card.dmabufs--;
	else
		card.registrations--;
	free(mr);
	return 0;
}

static struct ibv_mw *alloc_window(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = card.refusal ? NULL : calloc(1, sizeof(*mw));

	/* The call of the kernel takes long. */
	assert_int_equal(pthread_mutex_trylock(card.unheld), 0);
	pthread_mutex_unlock(card.unheld);
	if (card.leaving)
		verbs_mrs_end(card.leaving);
	if (card.refusal) {
		errno = card.refusal;
		return NULL;
	}
	assert_non_null(mw);
	assert_int_equal(type, IBV_MW_TYPE_2);
	mw->context = pd->context;
	mw->pd = pd;
	mw->rkey = ++card.windows << 8;
	return mw;
}

static int dealloc_window(struct ibv_mw *mw)
{
	card.windows--;
	free(mw);
	return 0;
}

static int post_send(struct ibv_qp *pair, struct ibv_send_wr *request, struct ibv_send_wr **bad)
{
	(void)pair;
	assert_int_equal(request->opcode, IBV_WR_BIND_MW);
	assert_null(request->next);
	*bad = request;
	if (card.full)
		return ENOMEM;
	card.bind = *request;
	card.binds++;
	return 0;
}

/* -- memory of a GPU ------------------------------------------------------------------------------ */

static int export_dmabuf(struct pl_memory *memory, size_t offset, size_t length, uint64_t *skew)
{
	(void)memory;
	(void)length;
	*skew = offset;
	return memfd_create("dma-buf", MFD_CLOEXEC);
}

static uint64_t no_identity(const struct pl_memory *memory)
{
	(void)memory;
	return 0;
}

static enum pl_memory_order native_order(const struct pl_memory *memory)
{
	(void)memory;
	return PL_ORDER_NATIVE;
}

static const struct pl_memory_ops gpu = { .name = "gpu",
					  .identity = no_identity,
					  .order = native_order,
					  .export_dmabuf = export_dmabuf };

/* -- an owner with one rail, or with two devices -------------------------------------------------- */

struct rig {
	struct verbs_library library;
	struct pl_context context;
	struct verbs_state state;
	struct verbs_device device, second_device;
	struct ibv_context verbs;
	struct ibv_pd pd, second_pd;
	struct verbs_port port, second_port;
	struct ibv_qp pair;
	struct verbs_cq queue;
	struct pl_peer peer;
	struct verbs_endpoint endpoint;
	struct pl_region region;
	struct pl_grant grants[GRANTS];
	struct pl_key keys[GRANTS];
	uint8_t blob[PL_KEY_BLOB_MAX];
	uint8_t memory[GRANTS * 64];
};

static void rig_open_device(struct rig *rig, struct verbs_device *device, struct ibv_pd *pd)
{
	pd->context = &rig->verbs;
	device->state = &rig->state;
	device->verbs = &rig->verbs;
	device->pd = pd;
	device->far_addresses = true;
	atomic_init(&device->windows, true);
	atomic_init(&device->window_max, VERBS_WINDOW_MAX);
	pl_list_init(&device->registrations);
	pl_list_init(&device->stuck_registrations);
	device->shared = verbs_mr_shared_open(&rig->state);
}

static void rig_open_rail(struct rig *rig, uint8_t number, struct verbs_port *port)
{
	struct verbs_rail *rail = &rig->endpoint.rails[number];

	*rail = (struct verbs_rail){ .endpoint = &rig->endpoint,
				     .index = number,
				     .near_port = number,
				     .device = port->device,
				     .queue = &rig->queue,
				     .port = port,
				     .qp = &rig->pair,
				     .link = VERBS_UP,
				     .generation = GENERATION };
	verbs_pace_open(&rail->pace);
	pl_list_init(&rail->starved_link);
	pl_list_init(&rail->posted);
	pl_list_init(&rail->held);
}

static void rig_open_endpoint(struct rig *rig)
{
	rig->pair.context = &rig->verbs;
	rig->port.device = &rig->device;
	rig->port.number = 1;
	rig_open_rail(rig, 0, &rig->port);
	rig->queue.room = 100;
	pl_list_init(&rig->queue.starved);
	rig->endpoint.base.peer = &rig->peer;
	rig->endpoint.state = &rig->state;
	rig->endpoint.rail_count = 1;
	pl_list_init(&rig->endpoint.waiting);
	pl_list_init(&rig->endpoint.again);
	pl_list_init(&rig->endpoint.registering);
	pl_list_init(&rig->endpoint.waiter_link);
	pl_list_init(&rig->endpoint.targets);
}

static void rig_open_memory(struct rig *rig, const struct pl_memory_ops *ops)
{
	struct pl_memory host = { 0 };

	assert_int_equal(pl_memory_attach(&host, rig->memory, sizeof(rig->memory), NULL), 0);
	if (ops)
		host.ops = ops;
	rig->region = (struct pl_region){ .context = &rig->context, .memory = host, .access = PL_ACCESS_ALL };
	pl_list_init(&rig->region.registrations);
	for (unsigned i = 0; i < GRANTS; i++) {
		rig->grants[i] = (struct pl_grant){ .region = &rig->region, .rights = PL_ACCESS_READ | PL_ACCESS_WRITE };
		rig->keys[i] = (struct pl_key){ .id = i, .peer = &rig->peer, .memory = &rig->region.memory,
						.offset = 64ul * i, .length = 64, .rights = rig->grants[i].rights };
		pl_list_init(&rig->grants[i].registrations);
		pl_list_init(&rig->keys[i].registrations);
		assert_int_equal(pl_index_table_add(&pl_system_allocator, &rig->peer.keys, &rig->keys[i]), i);
	}
}

static struct rig *rig_new(const struct pl_memory_ops *ops)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	assert_non_null(rig);
	memset(&card, 0, sizeof(card));
	rig->library.ibv_reg_mr_iova2 = register_address;
	rig->library.ibv_reg_mr = register_strict;
	rig->library.ibv_reg_dmabuf_mr = register_dmabuf;
	rig->library.ibv_dereg_mr = deregister;
	rig->verbs.ops.alloc_mw = alloc_window;
	rig->verbs.ops.dealloc_mw = dealloc_window;
	rig->verbs.ops.post_send = post_send;
	rig->context.allocator = pl_system_allocator;
	rig->context.routes_known = true;
	pthread_mutex_init(&rig->context.grant_lock, NULL);
	card.unheld = &rig->context.grant_lock;
	rig->state.context = &rig->context;
	rig->state.library = &rig->library;
	pthread_mutex_init(&rig->state.lock, NULL);
	rig_open_device(rig, &rig->device, &rig->pd);
	rig->peer.context = &rig->context;
	rig->peer.asks = true;
	/* An answer cannot be sent: the peer is gone. */
	atomic_init(&rig->peer.state, PL_PEER_LOST);
	pl_event_log_init(&rig->peer.events, &pl_system_allocator);
	rig_open_endpoint(rig);
	rig_open_memory(rig, ops);
	return rig;
}

/* An owner with two devices. `near` is a mask of those near the memory; 0: both are alike. `rails` of them have a rail. */
static struct rig *rig_new_pair(unsigned near, unsigned rails, enum pl_choice narrow_grants)
{
	struct rig *rig = rig_new(NULL);

	rig_open_device(rig, &rig->second_device, &rig->second_pd);
	rig->second_port = (struct verbs_port){ .device = &rig->second_device, .number = 1, .place = 1 };
	rig_open_rail(rig, 1, &rig->second_port);
	rig->endpoint.rail_count = rails;
	rig->endpoint.ports[0] = &rig->port;
	rig->endpoint.ports[1] = &rig->second_port;
	rig->endpoint.port_count = 2;
	rig->endpoint.choices[0].rails = 1;
	rig->context.options.narrow_grants = narrow_grants;
	atomic_init(&rig->region.near, VERBS_NEAR_KNOWN | near);
	return rig;
}

static void rig_free(struct rig *rig)
{
	struct pl_list ended;

	pl_list_init(&ended);
	for (unsigned i = 0; i < GRANTS; i++) {
		pl_registrations_release(&rig->keys[i].registrations, &ended);
		pl_registrations_release(&rig->grants[i].registrations, &ended);
	}
	pl_registrations_release(&rig->region.registrations, &ended);
	pl_registrations_finish(&ended);
	pl_registration_cache_close(rig->device.shared);
	if (rig->second_device.shared)
		pl_registration_cache_close(rig->second_device.shared);
	assert_int_equal(card.registrations + card.dmabufs + card.windows, 0);
	while (!pl_list_empty(&rig->endpoint.again)) {
		struct verbs_work *work = pl_list_first(&rig->endpoint.again, struct verbs_work, link);

		pl_list_remove(&work->link);
		verbs_work_free(&rig->endpoint, work);
	}
	pl_pool_drain(&rig->endpoint.spare, &pl_system_allocator);
	pl_index_table_free(&pl_system_allocator, &rig->peer.keys);
	pl_event_log_destroy(&rig->peer.events);
	free(rig);
}

static void export_all(struct rig *rig)
{
	for (unsigned i = 0; i < GRANTS; i++)
		assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[i], &rig->keys[i], rig->blob) > 0);
}

/* Checks that the newest event tells who reaches the grants. */
static void expect_granted(struct rig *rig, const char *text)
{
	struct pl_event_record records[PL_EVENTS_MAX];
	size_t count = pl_event_log_read(&rig->peer.events, 0, sizeof(records[0]), records, PL_EVENTS_MAX);

	assert_true(count > 0);
	assert_int_equal(records[count - 1].event, PL_EVENT_GRANTED);
	assert_non_null(strstr(records[count - 1].text, text));
}

/* -- the owner ------------------------------------------------------------------------------------ */

static void test_one_registration(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	export_all(rig);
	assert_int_equal(card.registered, 1);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 0);
	assert_int_equal(rig->blob[verbs_key_windows(1)], 1);
	expect_granted(rig, "only this peer's queue pairs");
	rig_free(rig);
}

static void test_windows_are_off(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	rig->context.options.narrow_grants = PL_OFF;
	export_all(rig);
	assert_int_equal(card.registered, GRANTS);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 1);
	expect_granted(rig, "narrow_grants is off");
	rig_free(rig);
}

static void test_grants_without_windows(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	rig->grants[0].rights = rig->keys[0].rights = PL_ACCESS_ALL;
	assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[0], &rig->keys[0], rig->blob) > 0);
	expect_granted(rig, "atomic operations");
	rig->peer.asks = false;
	assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[1], &rig->keys[1], rig->blob) > 0);
	expect_granted(rig, "the other end's release");
	atomic_store(&rig->device.windows, false);
	assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[2], &rig->keys[2], rig->blob) > 0);
	expect_granted(rig, "the device has no memory windows");
	assert_int_equal(card.registered, 3);
	rig_free(rig);
}

/* No registration of GPU memory has a flag that the kernel refuses, and the card reaches the memory from both ends. */
static void test_gpu_memory(void **state)
{
	struct rig *rig = rig_new(&gpu);
	uint32_t lkey = 0;

	(void)state;
	export_all(rig);
	assert_int_equal(card.dmabufs, GRANTS);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 1);
	assert_int_equal(rig->blob[verbs_key_windows(1)], 0);
	expect_granted(rig, "no window can be bound to a dma-buf");
	assert_int_equal(verbs_local_key(&rig->state, &rig->device, &rig->region, true, &lkey), 0);
	assert_int_equal(card.dmabufs, GRANTS + 1);
	assert_int_equal(card.registered, 0);
	rig_free(rig);
}

/* The kernel binds no windows to read-only memory; the card still sends from it, and peers read it. */
static void test_read_only_memory(void **state)
{
	struct rig *rig = rig_new(NULL);
	uint32_t lkey = 0;

	(void)state;
	card.read_only = true;
	rig->grants[0].rights = rig->keys[0].rights = PL_ACCESS_READ;
	assert_int_equal(verbs_local_key(&rig->state, &rig->device, &rig->region, false, &lkey), 0);
	assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[0], &rig->keys[0], rig->blob) > 0);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 1);
	expect_granted(rig, "cannot write");
	rig_free(rig);
}

/* A thread may use its registration although the device is gone, so the registration must not look ended. */
static void test_end_while_registering(void **state)
{
	struct rig *rig = rig_new(NULL);
	struct verbs_mr made = { .failure = 0 }, pending = { .failure = -EINPROGRESS };

	(void)state;
	pl_list_append(&rig->device.registrations, &made.device_link);
	pl_list_append(&rig->device.registrations, &pending.device_link);
	verbs_mrs_end(&rig->device);
	assert_int_equal(made.failure, -ENODEV);
	assert_int_equal(pending.failure, -EINPROGRESS);
	rig_free(rig);
}

/* -- devices near the memory ---------------------------------------------------------------------- */

static void export_first(struct rig *rig)
{
	assert_true(verbs_export_key(&rig->endpoint.base, &rig->grants[0], &rig->keys[0], rig->blob) > 0);
}

/* Returns the mask of ports near the memory in the exported key. */
static unsigned exported_near(const struct rig *rig)
{
	return rig->blob[VERBS_KEY_COUNT + 1] | (unsigned)rig->blob[VERBS_KEY_COUNT + 2] << 8;
}

/* Only the rail of the device near the memory gets a key. */
static void test_near_rail(void **state)
{
	struct rig *rig = rig_new_pair(2, 2, PL_OFF);

	(void)state;
	export_first(rig);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 2);
	assert_int_equal(exported_near(rig), 2);
	assert_int_equal(card.registered, 1);
	assert_ptr_equal(card.used, &rig->second_pd);
	rig_free(rig);
}

/* A near device without a rail registers nothing while another near device has one. */
static void test_near_rail_of_two(void **state)
{
	struct rig *rig = rig_new_pair(3, 1, PL_OFF);

	(void)state;
	export_first(rig);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 1);
	assert_int_equal(exported_near(rig), 3);
	assert_int_equal(card.registered, 1);
	rig_free(rig);
}

/* The peer will ask for a key of the near device, which registers the memory now; the other rail gets no key. */
static void test_near_without_rail(void **state)
{
	struct rig *rig = rig_new_pair(2, 1, PL_OFF);

	(void)state;
	export_first(rig);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 0);
	assert_int_equal(exported_near(rig), 2);
	assert_int_equal(card.registered, 1);
	assert_ptr_equal(card.used, &rig->second_pd);
	assert_int_not_equal(rig->keys[0].far_address, (uintptr_t)rig->memory);
	rig_free(rig);
}

/* Windows of the rails to come have the addresses of the memory. */
static void test_near_windows_expected(void **state)
{
	struct rig *rig = rig_new_pair(2, 1, PL_DEFAULT);

	(void)state;
	export_first(rig);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 0);
	assert_int_equal(exported_near(rig), 2);
	assert_int_equal(rig->keys[0].far_address, (uintptr_t)rig->memory);
	assert_true(verbs_key_serves_windows(&rig->keys[0]));
	rig_free(rig);
}

/* The gaps between the addresses of grants are random, so that a peer cannot guess those of a later one. */
static void test_far_gaps(void **state)
{
	const uint64_t step = 65536;
	struct rig *rig = rig_new(NULL);
	unsigned guessed = 0;

	(void)state;
	rig->context.options.narrow_grants = PL_OFF;
	export_all(rig);
	for (unsigned i = 1; i < GRANTS; i++) {
		assert_true(rig->keys[i].far_address >= rig->keys[i - 1].far_address + step);
		guessed += rig->keys[i].far_address < rig->keys[i - 1].far_address + 3 * step;
	}
	assert_true(guessed < GRANTS - 1);
	rig_free(rig);
}

/* Memory to which all devices are alike has keys over the chosen rails alone. */
static void test_chosen_rails(void **state)
{
	struct rig *rig = rig_new_pair(0, 2, PL_OFF);

	(void)state;
	export_first(rig);
	assert_int_equal(rig->blob[VERBS_KEY_MASK], 1);
	assert_int_equal(card.registered, 1);
	assert_ptr_equal(card.used, &rig->pd);
	rig_free(rig);
}

/* -- answers that wait for windows ---------------------------------------------------------------- */

/* Exports a grant, and holds the answer to its import. */
static bool hold_grant(struct rig *rig, unsigned number)
{
	struct pl_imported answer = { .status = PL_WIRE_OK };
	int length;

	rig->keys[number].grant = &rig->grants[number];
	length = verbs_export_key(&rig->endpoint.base, &rig->grants[number], &rig->keys[number], answer.key);
	assert_true(length > 0);
	answer.key_length = (uint16_t)length;
	return verbs_hold_answer(&rig->endpoint.base, &answer);
}

static bool hold_first(struct rig *rig)
{
	return hold_grant(rig, 0);
}

static struct verbs_work *posted_bind(struct rig *rig)
{
	struct verbs_work *work = pl_list_first(&rig->endpoint.rails[0].posted, struct verbs_work, link);

	assert_int_equal(rig->endpoint.rails[0].posted_count, 1);
	assert_int_equal(work->kind, VERBS_BIND);
	return work;
}

/* The device has bound the window, or could not. */
static void end_bind(struct rig *rig, bool done)
{
	struct verbs_work *work = posted_bind(rig);

	if (done)
		verbs_mw_work_done(work);
	else
		verbs_bind_failed(&rig->endpoint.rails[0], work);
	verbs_work_free(&rig->endpoint, verbs_take_posted(&rig->endpoint.rails[0]));
}

static void test_held_answer(void **state)
{
	struct rig *rig = rig_new(NULL);
	struct verbs_work *work;

	(void)state;
	assert_true(hold_first(rig));
	assert_int_equal(card.binds, 1);
	assert_int_equal(card.bind.bind_mw.bind_info.addr, (uintptr_t)rig->memory);
	assert_int_equal(card.bind.bind_mw.bind_info.length, 64);
	assert_int_equal(card.bind.bind_mw.bind_info.mw_access_flags, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(rig->endpoint.questions, 1);
	work = posted_bind(rig);
	/* The device has not bound the window yet. */
	assert_int_equal(work->answer->imported.key[VERBS_KEY_MASK], 0);
	verbs_mw_work_done(work);
	assert_int_equal(work->answer->imported.key[VERBS_KEY_MASK], 1);
	assert_int_equal(work->answer->imported.key[verbs_key_connections(1)], GENERATION);
	verbs_work_free(&rig->endpoint, verbs_take_posted(&rig->endpoint.rails[0]));
	assert_int_equal(rig->endpoint.questions, 0);
	rig_free(rig);
}

/* The answer does not wait for a rail that is down, or for a device without room. */
static void test_answers_at_once(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	rig->endpoint.rails[0].link = VERBS_DOWN;
	hold_first(rig);
	assert_int_equal(card.binds, 0);
	assert_int_equal(rig->endpoint.questions, 0);
	rig->endpoint.rails[0].link = VERBS_UP;
	card.full = true;
	hold_first(rig);
	assert_int_equal(card.windows, 0);
	assert_int_equal(rig->endpoint.questions, 0);
	assert_true(atomic_load(&rig->device.windows));
	expect_granted(rig, "lack room now");
	rig_free(rig);
}

/* Imports a grant while ibv_alloc_mw() fails, and then the next one. Returns true if that one has a window. */
static bool next_is_bound(int refusal)
{
	struct rig *rig = rig_new(NULL);
	bool bound;

	card.refusal = refusal;
	hold_grant(rig, 0);
	assert_int_equal(card.binds, 0);
	/* The region's registration, and one of the grant. */
	assert_int_equal(card.registrations, 2);
	card.refusal = 0;
	hold_grant(rig, 1);
	bound = card.binds == 1;
	if (bound)
		end_bind(rig, true);
	rig_free(rig);
	return bound;
}

/* Only a device that knows no windows loses them all: others may lack room for a moment. */
static void test_refused_windows(void **state)
{
	(void)state;
	assert_true(next_is_bound(ENOMEM));
	assert_true(next_is_bound(EAGAIN));
	assert_false(next_is_bound(EOPNOTSUPP));
	assert_false(next_is_bound(ENOSYS));
	assert_false(next_is_bound(EINVAL));
}

/* A key whose bind request failed gets a registration; a device on which several fail in turn has no windows. */
static void test_failed_binds(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	hold_grant(rig, 0);
	end_bind(rig, false);
	/* Over the next connection. */
	rig->endpoint.rails[0].generation++;
	hold_grant(rig, 0);
	assert_int_equal(card.binds, 1);
	assert_int_equal(card.registrations, 2);
	for (unsigned i = 1; i < 4; i++) {
		hold_grant(rig, i);
		end_bind(rig, false);
	}
	assert_true(card.binds == 4 && !atomic_load(&rig->device.windows));
	rig_free(rig);
}

/* A bind request that is done shows that the device has windows. */
static void test_binds_between(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	for (unsigned i = 0; i < 8; i++) {
		hold_grant(rig, i);
		end_bind(rig, i == 3);
	}
	assert_true(card.binds == 8 && !atomic_load(&rig->device.windows));
	rig_free(rig);
}

/* A window that no key takes is deallocated. */
static void test_lost_between(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	card.leaving = &rig->device;
	hold_grant(rig, 0);
	assert_int_equal(card.binds, 0);
	assert_int_equal(card.windows, 0);
	rig_free(rig);
}

/* -- the importer --------------------------------------------------------------------------------- */

/* Imports a key with a window that is bound to a connection.  Returns the rails over which the end may use the key. */
static uint8_t import_bound(struct rig *rig, uint16_t generation, size_t cut)
{
	struct pl_remote remote = { .context = &rig->context };
	const struct verbs_remote_key *target;
	struct pl_writer writer;
	uint8_t present;

	pl_writer_init(&writer, remote.key, sizeof(remote.key));
	pl_put_u64(&writer, 1);
	pl_put_u64(&writer, 4096);
	pl_put_u8(&writer, 1);
	pl_put_u8(&writer, 1);
	pl_put_u16(&writer, 0);
	pl_put_u32(&writer, 77);
	pl_put_u8(&writer, 1);
	pl_put_u8(&writer, 0);
	pl_put_u16(&writer, generation);
	remote.key_length = (uint16_t)(writer.at - writer.begin - cut);
	target = verbs_remote_key_make(&remote, &rig->endpoint);
	assert_non_null(target);
	assert_int_equal(target->rkeys[0], 77);
	assert_int_equal(target->windows, 1);
	present = target->present;
	remote.forget(&remote);
	return present;
}

static void test_bound_key(void **state)
{
	struct rig *rig = rig_new(NULL);

	(void)state;
	assert_int_equal(import_bound(rig, GENERATION, 0), 1);
	assert_int_equal(import_bound(rig, GENERATION + 1, 0), 0);
	/* Of an earlier release: no numbers. */
	for (size_t cut = 1; cut <= 3; cut++)
		assert_int_equal(import_bound(rig, GENERATION, cut), 0);
	rig->endpoint.rails[0].link = VERBS_ASKING;
	assert_int_equal(import_bound(rig, GENERATION, 0), 0);
	rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_registration),
		cmocka_unit_test(test_windows_are_off),
		cmocka_unit_test(test_grants_without_windows),
		cmocka_unit_test(test_gpu_memory),
		cmocka_unit_test(test_read_only_memory),
		cmocka_unit_test(test_end_while_registering),
		cmocka_unit_test(test_near_rail),
		cmocka_unit_test(test_near_rail_of_two),
		cmocka_unit_test(test_near_without_rail),
		cmocka_unit_test(test_near_windows_expected),
		cmocka_unit_test(test_chosen_rails),
		cmocka_unit_test(test_far_gaps),
		cmocka_unit_test(test_held_answer),
		cmocka_unit_test(test_answers_at_once),
		cmocka_unit_test(test_refused_windows),
		cmocka_unit_test(test_failed_binds),
		cmocka_unit_test(test_binds_between),
		cmocka_unit_test(test_lost_between),
		cmocka_unit_test(test_bound_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
