/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies between device memory of this end and regions of a peer that cannot open that memory. Each range is checked
 * against its key, as the sockets' requests are. A revocation drains the engine's copies, so a key that is not revoked
 * at the start of a copy keeps its memory until the copy's end. The peer's gate is held for each chunk.
 */
#include "fabric/local/local.h"

/* Most bytes of one queued copy. */
#define CHUNK (4u << 20)

/* Region that the peer lends to this end. */
struct local_borrowed {
	struct pl_list link;
	struct pl_remote remote; /* of this file only */
	uint64_t key;
	unsigned requests;
	bool revoked; /* freed with its last request */
};

struct served_range {
	struct pl_key *key; /* acquired */
	struct local_copy_range range;
};

/* Request of the peer. */
struct local_served {
	struct pl_list link;
	struct local_borrowed *borrowed;
	uint32_t cookie;
	bool write;           /* into memory of this end */
	unsigned count, next; /* ranges; the first one that is not copied whole */
	uint64_t done;        /* bytes of that one */
	uint64_t total;
	unsigned running; /* copies */
	enum pl_wire_status status;
	struct served_range ranges[];
};

/* -- the peer's regions ----------------------------------------------------------------------------- */

static const struct pl_allocator *allocator_of(const struct local_endpoint *endpoint)
{
	return &endpoint->state->context->allocator;
}

static struct local_access *access_of_borrowed(const struct local_borrowed *borrowed)
{
	return borrowed->remote.fabric_data;
}

static void borrowed_free(struct local_endpoint *endpoint, struct local_borrowed *borrowed)
{
	if (!pl_list_empty(&borrowed->link))
		endpoint->serving.borrowed_count--;
	pl_list_remove(&borrowed->link);
	if (borrowed->remote.forget)
		borrowed->remote.forget(&borrowed->remote);
	pl_free(allocator_of(endpoint), borrowed);
}

static struct local_borrowed *borrowed_find(struct local_endpoint *endpoint, uint64_t key)
{
	pl_list_for_each(at, &endpoint->serving.borrowed) {
		struct local_borrowed *borrowed = pl_list_entry(at, struct local_borrowed, link);

		if (borrowed->key != key || borrowed->revoked)
			continue;
		pl_list_remove(&borrowed->link);
		pl_list_prepend(&endpoint->serving.borrowed, &borrowed->link);
		return borrowed;
	}
	return NULL;
}

/* The peer lends few regions: this end forgets an old one, which the peer has taken back, or does not use. */
static bool borrowed_make_room(struct local_endpoint *endpoint)
{
	struct local_serving *serving = &endpoint->serving;

	if (serving->borrowed_count < 2 * LOCAL_LENT_MAX)
		return true;
	for (struct pl_list *at = serving->borrowed.prev; at != &serving->borrowed; at = at->prev) {
		struct local_borrowed *borrowed = pl_list_entry(at, struct local_borrowed, link);

		if (borrowed->requests)
			continue;
		borrowed_free(endpoint, borrowed);
		return true;
	}
	return false;
}

/* Returns NULL with a status if this end cannot access the region. */
static struct local_borrowed *borrowed_new(struct local_endpoint *endpoint, const struct pl_frame *frame,
					   const struct local_copy_request *request, enum pl_wire_status *status)
{
	struct local_borrowed *borrowed;

	*status = PL_WIRE_BUSY;
	if (!request->key_length || !borrowed_make_room(endpoint))
		return NULL;
	borrowed = pl_zalloc(allocator_of(endpoint), sizeof(*borrowed));
	if (!borrowed)
		return NULL;
	pl_list_init(&borrowed->link);
	borrowed->key = frame->key;
	borrowed->remote.context = endpoint->state->context;
	borrowed->remote.length = frame->offset;
	borrowed->remote.rights = frame->flags == PL_COPY_WRITE ? PL_ACCESS_READ : PL_ACCESS_WRITE;
	borrowed->remote.key_length = request->key_length;
	memcpy(borrowed->remote.key, request->key, request->key_length);
	pl_list_init(&borrowed->remote.link);
	pl_list_init(&borrowed->remote.peer_link);
	local_imported(&endpoint->base, &borrowed->remote);
	if (!borrowed->remote.fabric_data || access_of_borrowed(borrowed)->path != &local_mapped_path ||
	    access_of_borrowed(borrowed)->key != frame->key) {
		*status = PL_WIRE_UNSUPPORTED;
		borrowed_free(endpoint, borrowed);
		return NULL;
	}
	pl_list_prepend(&endpoint->serving.borrowed, &borrowed->link);
	endpoint->serving.borrowed_count++;
	return borrowed;
}

void local_borrowed_revoked(struct local_endpoint *endpoint, uint64_t key)
{
	struct local_borrowed *borrowed = borrowed_find(endpoint, key);

	if (!borrowed)
		return;
	borrowed->revoked = true;
	if (!borrowed->requests)
		borrowed_free(endpoint, borrowed);
}

/* -- a request -------------------------------------------------------------------------------------- */

static int answer_copy(struct local_endpoint *endpoint, uint32_t cookie, enum pl_wire_status status)
{
	struct pl_frame frame = { .type = PL_FRAME_COPIED, .cookie = cookie, .offset = status };

	return pl_tcp_fabric.message(endpoint->lanes, &frame, NULL, NULL);
}

static void served_free(struct local_endpoint *endpoint, struct local_served *served)
{
	struct local_borrowed *borrowed = served->borrowed;

	if (!pl_list_empty(&served->link))
		endpoint->serving.request_count--;
	pl_list_remove(&served->link);
	for (unsigned i = 0; i < served->count; i++)
		pl_key_release(served->ranges[i].key);
	if (--borrowed->requests == 0 && borrowed->revoked)
		borrowed_free(endpoint, borrowed);
	pl_free(allocator_of(endpoint), served);
}

static void served_end(struct local_endpoint *endpoint, struct local_served *served)
{
	uint32_t cookie = served->cookie;
	enum pl_wire_status status = served->status;
	struct pl_peer *peer = endpoint->base.peer;
	struct pl_error error;

	served_free(endpoint, served);
	if (atomic_load(&peer->state) != PL_PEER_UP || answer_copy(endpoint, cookie, status) == 0)
		return;
	/* Without an answer the other end would wait until its timeout. */
	pl_fail_memory(&error, "transfer");
	pl_peer_lose(peer, &error);
}

/* Acquires the keys of all ranges; the status says if one is refused. Takes over no range then. */
static void served_acquire(struct local_endpoint *endpoint, struct local_served *served,
			   const struct local_copy_request *request)
{
	unsigned right = served->write ? PL_ACCESS_WRITE : PL_ACCESS_READ;

	for (unsigned i = 0; i < request->count && served->status == PL_WIRE_OK; i++) {
		const struct local_copy_range *range = &request->ranges[i];
		struct pl_key *key = pl_key_acquire(endpoint->base.peer, range->key, range->key_offset, range->length,
						    right, &served->status);

		if (!key)
			return;
		served->ranges[i] = (struct served_range){ key, *range };
		served->count++;
		served->total += range->length;
		if (!pl_memory_staged(key->memory))
			served->status = PL_WIRE_UNSUPPORTED;
	}
}

/* True if the ranges lie in the peer's region, which it lends for this direction. */
static bool request_fits_region(const struct pl_frame *frame, const struct local_copy_request *request,
				const struct local_borrowed *borrowed)
{
	unsigned right = frame->flags == PL_COPY_WRITE ? PL_ACCESS_READ : PL_ACCESS_WRITE;

	if (borrowed && (borrowed->remote.rights != right || borrowed->remote.length != frame->offset))
		return false;
	for (unsigned i = 0; i < request->count; i++)
		if (pl_outside(request->ranges[i].offset, request->ranges[i].length, frame->offset))
			return false;
	return true;
}

/* -- copies ----------------------------------------------------------------------------------------- */

/* Chunk of a range. */
struct served_chunk {
	struct pl_key *key;
	size_t key_offset; /* in the key's memory */
	uint8_t *host;
	size_t length;
};

static void served_leave_region(const struct local_served *served)
{
	const struct local_access *access = access_of_borrowed(served->borrowed);

	local_host_pin_put(access->pin);
	local_gate_release(access->gate);
}

/* Takes the next chunk of at most `limit` bytes, and holds the gate of the peer's region. False: the request failed. */
static bool served_take_chunk(struct local_served *served, uint64_t limit, struct served_chunk *chunk)
{
	const struct served_range *at = &served->ranges[served->next];
	const struct local_access *access = access_of_borrowed(served->borrowed);
	uint64_t length = PL_MIN(at->range.length - served->done, limit);

	*chunk = (struct served_chunk){ .key = at->key,
					.key_offset = at->key->offset + at->range.key_offset + served->done,
					.host = access->base + at->range.offset + served->done,
					.length = length };
	if (atomic_load(&at->key->revoked))
		served->status = PL_WIRE_UNKNOWN_KEY;
	else if (at->key->expires && pl_wall_clock() >= at->key->expires)
		served->status = PL_WIRE_EXPIRED;
	else if (local_access_hold_gate(access, NULL) < 0)
		served->status = PL_WIRE_BUSY;
	else if (!local_host_pin_hold(access->pin)) {
		local_gate_release(access->gate);
		served->status = PL_WIRE_BUSY;
	}
	if (served->status != PL_WIRE_OK)
		return false;
	served->done += length;
	if (served->done == at->range.length) {
		served->next++;
		served->done = 0;
	}
	local_host_pin_note_copy(access->pin, chunk->key->memory, length);
	return true;
}

/* Copies a small request at once. */
static void serve_now(struct local_served *served)
{
	struct served_chunk chunk;

	while (served->next < served->count && served->status == PL_WIRE_OK) {
		int rc = 0;

		if (!served_take_chunk(served, UINT64_MAX, &chunk))
			return;
		if (chunk.length)
			rc = served->write ? pl_memory_copy_in(chunk.key->memory, chunk.key_offset, chunk.host,
							       chunk.length)
					   : pl_memory_copy_out(chunk.key->memory, chunk.key_offset, chunk.host,
								chunk.length);
		served_leave_region(served);
		if (rc < 0)
			served->status = PL_WIRE_MEMORY;
	}
}

static bool served_has_more(const struct local_served *served)
{
	return served->next < served->count && served->status == PL_WIRE_OK;
}

static void serving_advance(struct local_endpoint *endpoint);

static void served_chunk_copied(struct pl_copy *base, int status)
{
	struct local_served_copy *copy = pl_container_of(base, struct local_served_copy, copy);
	struct local_served *served = copy->served;

	copy->served = NULL;
	served_leave_region(served);
	served->running--;
	if (status < 0 && served->status == PL_WIRE_OK)
		served->status = PL_WIRE_MEMORY;
	serving_advance(copy->endpoint);
}

/* Returns NULL without memory. */
static struct pl_copier *serving_copier(const struct local_endpoint *endpoint)
{
	return pl_context_copier(endpoint->state->context, endpoint->base.peer->home);
}

/* True if the driver copies the peer's region while this end waits. */
static bool served_blocks(const struct local_served *served)
{
	return !local_host_pin_is_locked(access_of_borrowed(served->borrowed)->pin);
}

/* True if the next copy may start, as the one of that number at once. Otherwise serving_advance() is called in a later round. */
static bool served_may_start(struct local_endpoint *endpoint, const struct local_served *served, unsigned started)
{
	struct pl_copier *copier = serving_copier(endpoint);
	uint64_t left = served->ranges[served->next].range.length - served->done;

	if (!copier || (!served_blocks(served) && started < LOCAL_SERVED_COPIES))
		return true;
	return pl_copier_may_block(copier, &endpoint->serving.more, PL_MIN(left, (uint64_t)PL_BLOCKING_MAX));
}

/* True if the whole request may be copied now, while the engine waits for the driver. Otherwise it takes its turn with others. */
static bool served_may_end_now(struct local_endpoint *endpoint, const struct local_served *served)
{
	struct pl_copier *copier = serving_copier(endpoint);

	if (served->total > LOCAL_SYNC_MAX || !pl_list_empty(&endpoint->serving.requests))
		return false;
	return !copier || pl_copier_may_block(copier, &endpoint->serving.more, (size_t)served->total);
}

static void serve_chunk(struct local_endpoint *endpoint, struct local_served *served, struct local_served_copy *copy)
{
	struct pl_copier *copier = serving_copier(endpoint);
	struct served_chunk chunk;

	if (!copier)
		served->status = PL_WIRE_BUSY;
	else if (served_take_chunk(served, served_blocks(served) ? PL_BLOCKING_MAX : CHUNK, &chunk) && !chunk.length)
		served_leave_region(served);
	else if (served->status == PL_WIRE_OK) {
		copy->served = served;
		served->running++;
		pl_copier_host(copier, &copy->copy, chunk.key->memory, chunk.key_offset, chunk.host, chunk.length,
			       served->write);
	}
}

/* Returns the first request with bytes to copy; NULL: none. Answers those that have ended. A lost peer ends all. */
static struct local_served *serving_next(struct local_endpoint *endpoint)
{
	bool lost = atomic_load(&endpoint->base.peer->state) != PL_PEER_UP;

	pl_list_for_each_safe(at, next, &endpoint->serving.requests) {
		struct local_served *served = pl_list_entry(at, struct local_served, link);

		if (lost && served->status == PL_WIRE_OK)
			served->status = PL_WIRE_CANCELED;
		if (served_has_more(served))
			return served;
		if (!served->running)
			served_end(endpoint, served);
	}
	return NULL;
}

static bool serving_continue(struct pl_watch *watch)
{
	struct local_serving *serving = pl_container_of(watch, struct local_serving, more);

	serving_advance(pl_container_of(serving, struct local_endpoint, serving));
	return true;
}

/*
 * Starts copies of the oldest requests while there is room. Copies of memory that is not locked end at once, and have turns, so
 * that others get the engine.
 */
static void serving_advance(struct local_endpoint *endpoint)
{
	struct local_serving *serving = &endpoint->serving;
	struct local_served *served;
	unsigned started = 0;

	if (serving->advancing)
		return;
	serving->advancing = true;
	while ((served = serving_next(endpoint))) {
		struct local_served_copy *copy = serving->copies;

		while (copy < serving->copies + LOCAL_SERVED_COPIES && copy->served)
			copy++;
		if (copy == serving->copies + LOCAL_SERVED_COPIES)
			break;
		if (!served_may_start(endpoint, served, started))
			break;
		started++;
		serve_chunk(endpoint, served, copy);
	}
	serving->advancing = false;
}

static bool served_has_revoked_key(const struct local_served *served)
{
	for (unsigned i = 0; i < served->count; i++)
		if (atomic_load(&served->ranges[i].key->revoked))
			return true;
	return false;
}

void local_serving_sweep(struct local_endpoint *endpoint)
{
	/* The end of a large message waits for its key. */
	pl_list_for_each(at, &endpoint->serving.requests) {
		struct local_served *served = pl_list_entry(at, struct local_served, link);

		if (served->status == PL_WIRE_OK && served_has_revoked_key(served))
			served->status = PL_WIRE_UNKNOWN_KEY;
	}
	serving_advance(endpoint);
}

/* -- frames ----------------------------------------------------------------------------------------- */

static int serve_request(struct local_endpoint *endpoint, const struct pl_frame *frame,
			 const struct local_copy_request *request, struct local_borrowed *borrowed)
{
	struct local_serving *serving = &endpoint->serving;
	struct local_served *served =
		pl_zalloc(allocator_of(endpoint), sizeof(*served) + request->count * sizeof(served->ranges[0]));

	if (!served)
		return answer_copy(endpoint, frame->cookie, PL_WIRE_BUSY);
	pl_list_init(&served->link);
	served->borrowed = borrowed;
	served->cookie = frame->cookie;
	served->write = frame->flags == PL_COPY_WRITE;
	borrowed->requests++;
	served_acquire(endpoint, served, request);
	if (served->status != PL_WIRE_OK || served_may_end_now(endpoint, served)) {
		serve_now(served);
		served_end(endpoint, served);
		return 0;
	}
	pl_list_append(&serving->requests, &served->link);
	serving->request_count++;
	serving_advance(endpoint);
	return 0;
}

int local_copy_requested(struct local_endpoint *endpoint, const struct pl_frame *frame, const uint8_t *payload)
{
	struct local_serving *serving = &endpoint->serving;
	struct local_borrowed *borrowed = borrowed_find(endpoint, frame->key);
	struct local_copy_request request;
	enum pl_wire_status status;

	if ((frame->flags != PL_COPY_WRITE && frame->flags != PL_COPY_READ) || !endpoint->gates_received ||
	    serving->request_count >= LOCAL_COPY_REQUESTS ||
	    local_copy_request_decode(payload, frame->length, &request) < 0 ||
	    !request_fits_region(frame, &request, borrowed))
		return -EPROTO;
	if (!borrowed)
		borrowed = borrowed_new(endpoint, frame, &request, &status);
	if (!borrowed)
		return answer_copy(endpoint, frame->cookie, status);
	return serve_request(endpoint, frame, &request, borrowed);
}

void local_serving_init(struct local_endpoint *endpoint)
{
	struct local_serving *serving = &endpoint->serving;

	pl_list_init(&serving->requests);
	pl_list_init(&serving->borrowed);
	pl_watch_init(&serving->more, serving_continue);
	for (unsigned i = 0; i < LOCAL_SERVED_COPIES; i++) {
		pl_list_init(&serving->copies[i].copy.link);
		serving->copies[i].copy.done = served_chunk_copied;
		serving->copies[i].endpoint = endpoint;
	}
}

void local_serving_close(struct local_endpoint *endpoint)
{
	struct local_serving *serving = &endpoint->serving;

	serving->advancing = true;
	pl_watch_remove(&serving->more);
	if (!pl_list_empty(&serving->requests))
		pl_copier_drain(serving_copier(endpoint));
	while (!pl_list_empty(&serving->requests))
		served_free(endpoint, pl_list_first(&serving->requests, struct local_served, link));
	while (!pl_list_empty(&serving->borrowed))
		borrowed_free(endpoint, pl_list_first(&serving->borrowed, struct local_borrowed, link));
}
