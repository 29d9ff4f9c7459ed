/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory windows (type 2): one queue pair, and no other, reaches the grant. The region is registered once. An importing
 * peer gets a window for each rail, bound to that rail's queue pair; revoking invalidates it. The owner binds the
 * windows over the rails that are up, and then answers the import with their keys and the numbers of the connections.
 *
 * A window lives no longer than its queue pair. The importer asks for the key over each rail that comes up later, and is
 * answered over the same rail. The answer follows the bind request on the owner's queue pair, so the key is valid when
 * it arrives. An importer of an older release ignores the keys of the answer to the import, and asks over all rails.
 */
#include "fabric/verbs/data/signal.h"

/* Most unanswered questions of a peer. */
#define QUESTIONS_MAX 65536
/* Bind requests that fail in turn, each with its connection, before the device is taken to have no windows. */
#define BINDS_FAILED_MAX 4u
/* Length of windows that each device with windows can bind. */
#define SHORT_WINDOW (64u << 10)
/* Value that means "no key". */
#define NO_KEY UINT64_MAX

void verbs_mw_send(struct verbs_rail *rail, struct pl_list *list, enum pl_frame_type type, uint64_t key, uint64_t offset)
{
	struct verbs_work *work = verbs_work_only(rail, VERBS_FRAME);

	/* Without memory the asking peer waits until its operation times out. */
	if (!work)
		return;
	work->frame = (struct pl_frame){ .type = (uint8_t)type, .cookie = rail->index, .key = key, .offset = offset };
	pl_list_prepend(list, &work->link);
}

/* -- the owner ------------------------------------------------------------------------------------ */

#define REGISTERED "verbs: every peer of this context that learns its key reaches the grant, a registration: "

static const char no_windows[] = REGISTERED "the device has no memory windows of type 2";
static const char too_long[] = REGISTERED "the device's memory windows are not that long";
static const char not_bound[] = REGISTERED "the device did not bind a memory window, for which it may lack room now";

/* Returns NULL if a grant is to be reached by windows, else why not. */
static const char *mw_refusal(const struct pl_peer *peer, const struct verbs_device *device,
			      const struct pl_grant *grant)
{

	if (peer->context->options.narrow_grants == PL_OFF)
		return REGISTERED "narrow_grants is off";
	if (!verbs_mw_binds(&grant->region->memory))
		return REGISTERED "no window can be bound to a dma-buf or to memory of a GPU";
	/* The region's relaxed registration does not serve words that programs use to synchronise. */
	if (grant->rights & PL_ACCESS_ATOMIC)
		return REGISTERED "atomic operations need strictly ordered access";
	if (!atomic_load(&device->windows))
		return no_windows;
	if (grant->length > atomic_load(&device->window_max))
		return too_long;
	return peer->asks ? NULL : REGISTERED "the other end's release knows no memory windows";
}

int verbs_mw_add(struct verbs_rail *rail, struct pl_key *key, struct pl_region *region,
		 void (*release)(struct pl_registration *window))
{
	struct verbs_state *state = rail->endpoint->state;
	const struct pl_allocator *allocator = &state->context->allocator;
	struct verbs_mw *window;
	struct ibv_mr *mr;
	int rc = verbs_mw_base(state, rail->device, region, key->rights, &mr);

	if (rc < 0)
		return rc;
	/* An earlier call made the window, and waited for another device. */
	if (pl_registration_find(&key->registrations, rail))
		return 0;
	window = pl_zalloc(allocator, sizeof(*window));
	if (!window)
		return -ENOMEM;
	window->base = (struct pl_registration){
		.device = rail, .release = release, .finish = verbs_mw_finish, .timeless = true
	};
	window->allocator = allocator;
	window->region = region;
	window->operation = key->operation;
	pl_list_append(&key->registrations, &window->base.link);
	rail->endpoint->windowed = true;
	return 0;
}

int verbs_mw_make(struct verbs_rail *rail, struct pl_grant *grant, struct pl_key *key, const char **refusal)
{
	int rc;

	*refusal = mw_refusal(rail->endpoint->base.peer, rail->device, grant);
	rc = *refusal ? 0 : verbs_mw_add(rail, key, grant->region, verbs_mw_release);
	if (rc == -EINPROGRESS)
		return rc;
	if (rc == -EACCES)
		*refusal = REGISTERED "no window can be bound to memory that this process cannot write";
	else if (rc < 0)
		*refusal = REGISTERED "the device does not register the whole region";
	return 0;
}

int verbs_mw_expect(const struct verbs_endpoint *endpoint, struct verbs_device *device, struct pl_grant *grant)
{
	struct ibv_mr *mr;

	if (mw_refusal(endpoint->base.peer, device, grant))
		return -ENOTSUP;
	return verbs_mw_base(endpoint->state, device, grant->region, grant->rights, &mr);
}

/* Window of the device for a key that needs one: made without grant_lock. */
struct fresh_mw {
	bool wanted, tried;
	struct ibv_mw *mw; /* NULL: none, or taken */
	int rc;            /* of the attempt to make it */
};

/* Posts the request that binds a new window. Returns 0 or a negative errno. */
static int bind_window(struct verbs_rail *rail, const struct pl_key *key, struct verbs_mw *window,
		       struct verbs_work *work, struct fresh_mw *fresh)
{
	struct ibv_send_wr *bad,
		request = { .wr_id = verbs_number_request(rail, work), .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_mr *mr;
	int rc;

	rc = verbs_mw_base(rail->endpoint->state, rail->device, window->region, key->rights, &mr);
	if (rc < 0)
		return rc;
	/* A window of an earlier connection ended with that. */
	if (!window->operation || !verbs_mw_take(rail, window)) {
		fresh->wanted = !fresh->tried;
		if (!fresh->mw)
			return fresh->rc;
		window->mw = fresh->mw;
		window->rkey = window->mw->rkey;
		fresh->mw = NULL;
	}
	window->rkey = ibv_inc_rkey(window->rkey);
	window->generation = rail->generation;
	request.bind_mw.mw = window->mw;
	request.bind_mw.rkey = window->rkey;
	request.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = mr,
		.addr = verbs_near_address(key),
		.length = key->length,
		.mw_access_flags = (key->rights & PL_ACCESS_READ ? IBV_ACCESS_REMOTE_READ : 0u) |
				   (key->rights & PL_ACCESS_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0u),
	};
	return -ibv_post_send(rail->qp, &request, &bad);
}

/*
 * Finds the key's window for this rail. Makes one for a rail that did not exist, or was not used, at the import. Returns
 * 0, or -EINPROGRESS while the region is being registered.
 */
static int find_window(struct verbs_rail *rail, struct pl_key *key, struct verbs_mw **window)
{
	struct pl_registration *found = pl_registration_find(&key->registrations, rail);
	const char *refusal;
	int rc = 0;

	if (!found && key->grant && verbs_key_serves_windows(key))
		rc = verbs_mw_make(rail, key->grant, key, &refusal);
	if (!found)
		found = pl_registration_find(&key->registrations, rail);
	*window = found ? pl_container_of(found, struct verbs_mw, base) : NULL;
	return rc;
}

/*
 * A driver refused a window. Notes what the device cannot do: windows of that length, or any windows at all. Other
 * failures may be over for the next key. Returns the reason for the event.
 */
static const char *note_refusal(struct verbs_device *device, const struct verbs_mw *window, uint64_t length, int rc)
{
	if (rc != -EOPNOTSUPP && rc != -ENOSYS && rc != -EINVAL)
		return not_bound;
	/* The device has allocated the window. */
	if (rc == -EOPNOTSUPP && window->mw && length > SHORT_WINDOW) {
		atomic_store(&device->window_max, PL_MIN(atomic_load(&device->window_max), length - 1));
		return too_long;
	}
	atomic_store(&device->windows, false);
	return no_windows;
}

/*
 * Finds the key of a window over this rail. Returns 1 if `work` was posted to bind it, 0 if not, or if a fresh window is
 * wanted, -EINPROGRESS if it must wait until the memory is registered.
 */
static int find_key(struct verbs_rail *rail, struct verbs_work *work, uint64_t *answer, struct fresh_mw *fresh)
{
	struct pl_key *key = pl_key_alive(rail->endpoint->base.peer, work->frame.key);
	const char *reach = not_bound;
	struct verbs_mw *window;
	struct pl_list *list;
	uint32_t rkey = 0;
	int rc;

	*answer = NO_KEY;
	if (!key)
		return 0;
	list = verbs_registrations_of(key->grant, key);
	/* Another fabric may have exported the key. */
	if (!key->far_address)
		key->far_address = verbs_near_address(key);
	rc = find_window(rail, key, &window);
	if (rc < 0)
		return rc;
	verbs_note_exported(rail, key);
	if (window && window->mw && window->generation == rail->generation) {
		*answer = window->rkey;
		return 0;
	}
	if (window && !window->refused && atomic_load(&rail->device->windows)) {
		rc = bind_window(rail, key, window, work, fresh);
		if (fresh->wanted)
			return 0;
		if (rc == 0) {
			*answer = window->rkey;
			return 1;
		}
		if (rc == -EINPROGRESS)
			return rc;
		reach = note_refusal(rail->device, window, key->length, rc);
		/* The window may not have taken the fresh one. */
		if (window->mw)
			fresh->mw = window->mw;
		window->mw = NULL;
	}
	rc = verbs_export_at(rail->device, list, key, &rkey);
	if (rc == -EINPROGRESS)
		return rc;
	verbs_export_over(list);
	if (rc == 0) {
		*answer = rkey;
		if (window)
			pl_peer_note_key(key->peer, PL_EVENT_GRANTED, key->id, 0,
					 atomic_load(&rail->device->windows) ? reach : no_windows);
	}
	return 0;
}

/* Puts the key of a rail's window into the answer to an import, or into a rendezvous. */
static void answer_add_key(struct verbs_answer *answer, const struct verbs_rail *rail, uint32_t rkey)
{
	uint8_t *key = answer->for_message ? answer->message->copy : answer->imported.key;
	struct pl_writer writer;

	if (rail->index >= key[VERBS_KEY_COUNT])
		return;
	key[VERBS_KEY_MASK] |= verbs_bit_of(rail);
	pl_writer_init(&writer, key + VERBS_KEY_RKEYS + rail->index * sizeof(rkey), sizeof(rkey));
	pl_put_u32(&writer, rkey);
	pl_writer_init(&writer, key + verbs_key_connections(key[VERBS_KEY_COUNT]) + rail->index * sizeof(uint16_t),
		       sizeof(uint16_t));
	pl_put_u16(&writer, rail->generation);
}

/* Sends the answer to an import after its last bind request. */
static void answer_count_down(struct verbs_endpoint *endpoint, struct verbs_answer *answer)
{
	if (--answer->pending || answer->message)
		return;
	if (!answer->for_message && !verbs_finished(endpoint))
		pl_import_answer(endpoint->base.peer, &answer->imported);
	pl_free(&endpoint->state->context->allocator, answer);
}

bool verbs_hold_answer(struct pl_endpoint *base, const struct pl_imported *imported)
{
	struct verbs_endpoint *endpoint = verbs_endpoint_of(base);
	size_t at = verbs_key_windows(imported->key[VERBS_KEY_COUNT]);
	uint8_t windows = imported->key_length > at ? imported->key[at] : 0;
	struct verbs_answer *answer = windows ? pl_alloc(&endpoint->state->context->allocator, sizeof(*answer)) : NULL;
	struct pl_reader reader;

	if (!answer)
		return false;
	*answer = (struct verbs_answer){ .pending = 1, .imported = *imported };
	for (unsigned i = 0; i < endpoint->rail_count && endpoint->questions < QUESTIONS_MAX; i++) {
		struct verbs_rail *rail = &endpoint->rails[i];
		struct verbs_work *work = (windows & verbs_bit_of(rail)) && rail->link == VERBS_UP
						  ? verbs_work_only(rail, VERBS_BIND)
						  : NULL;

		if (!work)
			continue;
		pl_reader_init(&reader, imported->key, imported->key_length);
		work->frame.key = pl_get_u64(&reader);
		work->answer = answer;
		answer->pending++;
		endpoint->questions++;
		pl_list_append(&endpoint->again, &work->link);
	}
	verbs_flush(endpoint);
	answer_count_down(endpoint, answer);
	return true;
}

/* The key is known: a message gets it now, and an import when the window is bound. */
static void bind_posted(struct verbs_work *work)
{
	struct verbs_answer *answer = work->answer;

	if (!answer || !answer->for_message)
		return;
	answer->posted |= verbs_bit_of(work->only);
	if (answer->message)
		answer_add_key(answer, work->only, work->rkey);
}

static void bind_done(const struct verbs_work *work)
{
	if (work->answer && (!work->answer->for_message || work->answer->message))
		answer_add_key(work->answer, work->only, work->rkey);
}

void verbs_mw_work_done(struct verbs_work *work)
{
	if (work->kind == VERBS_BIND) {
		atomic_store(&work->only->device->binds_failed, 0);
		bind_done(work);
	} else {
		verbs_mw_invalidated(work);
	}
}

void verbs_mw_work_over(struct verbs_endpoint *endpoint, struct verbs_work *work)
{
	switch (work->kind) {
	case VERBS_BIND:
		endpoint->questions--;
		if (!work->answer)
			break;
		work->answer->posted &= (uint8_t)~verbs_bit_of(work->only);
		answer_count_down(endpoint, work->answer);
		break;
	case VERBS_INVALIDATE:
		if (work->window)
			verbs_mw_free(work->window);
		break;
	default:
		verbs_mw_message_left(endpoint, work);
		break;
	}
}

static void make_fresh(struct verbs_rail *rail, struct fresh_mw *fresh)
{
	fresh->mw = ibv_alloc_mw(rail->device->pd, IBV_MW_TYPE_2);
	fresh->rc = verbs_made(fresh->mw);
	fresh->tried = true;
	fresh->wanted = false;
}

void verbs_bind(struct verbs_rail *rail, struct verbs_work *work)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct pl_context *context = endpoint->state->context;
	uint64_t id = work->frame.key, answer;
	struct fresh_mw fresh = { .wanted = false };
	bool asked = !work->answer;
	int posted;

	/* The window must not be removed before it is posted. The driver's call that makes one takes long. */
	do {
		if (fresh.wanted)
			make_fresh(rail, &fresh);
		pthread_mutex_lock(&context->grant_lock);
		posted = find_key(rail, work, &answer, &fresh);
		pthread_mutex_unlock(&context->grant_lock);
	} while (fresh.wanted);
	verbs_mw_dealloc(rail, fresh.mw);
	if (posted == -EINPROGRESS) {
		pl_list_append(&endpoint->registering, &work->link);
		verbs_await_registration(endpoint);
		return;
	}
	work->rkey = (uint32_t)answer;
	if (posted) {
		verbs_mark_signaled(rail);
		rail->posted_count++;
		rail->queue->posted++;
		pl_list_append(&rail->posted, &work->link);
		bind_posted(work);
	} else {
		if (answer <= UINT32_MAX)
			bind_done(work);
		verbs_work_free(endpoint, work);
	}
	if (asked)
		verbs_mw_send(rail, &endpoint->waiting, PL_FRAME_KEY, id, answer);
}

void verbs_bind_failed(struct verbs_rail *rail, const struct verbs_work *work)
{
	struct pl_peer *peer = rail->endpoint->base.peer;
	struct pl_registration *found = NULL;
	const struct pl_key *key;

	pthread_mutex_lock(&peer->context->grant_lock);
	key = pl_key_alive(peer, work->frame.key);
	if (key)
		found = pl_registration_find(&key->registrations, rail);
	/* The device is not at fault if the window was removed meanwhile. */
	if (found) {
		pl_container_of(found, struct verbs_mw, base)->refused = true;
		if (atomic_fetch_add(&rail->device->binds_failed, 1) + 1 >= BINDS_FAILED_MAX)
			atomic_store(&rail->device->windows, false);
	}
	pthread_mutex_unlock(&peer->context->grant_lock);
}

static int key_asked(struct verbs_rail *rail, uint64_t id)
{
	struct verbs_endpoint *endpoint = rail->endpoint;
	struct verbs_work *work;

	if (endpoint->questions >= QUESTIONS_MAX)
		return -EPROTO;
	/* The peer asks again over the next connection. */
	if (rail->link != VERBS_UP)
		return 0;
	work = verbs_work_only(rail, VERBS_BIND);
	if (!work)
		return -ENOMEM;
	endpoint->questions++;
	work->frame.key = id;
	pl_list_append(&endpoint->again, &work->link);
	return 0;
}

int verbs_key_arrived(struct verbs_rail *rail, const struct pl_frame *frame)
{
	int rc = 0;

	if (frame->cookie != rail->index)
		return -EPROTO;
	if (frame->type == PL_FRAME_ASK_KEY)
		rc = key_asked(rail, frame->key);
	else
		verbs_key_told(rail, frame->key, frame->offset);
	verbs_flush(rail->endpoint);
	return rc;
}
