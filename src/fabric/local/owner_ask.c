/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Device memory of the peer that this process cannot open, because it has not loaded the driver, for example. The peer
 * copies between that memory and a region of this end, on request. The region is lent to the peer: its memory is mapped
 * there, behind a gate. A region stays lent until it is deregistered, the peer is closed, or an operation that a
 * request serves is cancelled.
 */
#include <unistd.h>

#include "fabric/local/local.h"

/* Region of this end that is lent to the peer. */
struct local_lent {
	struct pl_list link; /* of asking->lent; empty once it was taken back */
	struct pl_region *region; /* compared only */
	bool write;               /* the peer reads the region, for writes of this end */
	bool told;                /* a request had the key */
	bool declined;            /* the peer does not map the region */
	unsigned requests;
	struct pl_key *ending; /* of a region that was taken back, whose gate the peer held; or NULL */
	struct pl_lent lent;
};

/* Request without an answer. */
struct local_asked {
	struct pl_list link;
	struct pl_operation *operation; /* NULL: it was cancelled */
	struct local_lent *lent;
	uint32_t cookie;
};

/* State of an operation; in operation->fabric. */
struct local_ask {
	struct pl_work_item item;  /* its position: the first segment that was not requested */
	unsigned under_way;        /* requests without an answer */
	const char *staged_reason; /* reason of the route through the sockets */
	bool declined;             /* the owner cannot copy some of the bytes */
};
_Static_assert(sizeof(struct local_ask) <= PL_OPERATION_FABRIC_SPACE, "fits into an operation");

static const char reason_owner[] = "local: the process that owns the GPU memory copies";

static struct local_ask *ask_of(struct pl_operation *operation)
{
	return (struct local_ask *)operation->fabric;
}

/* -- lent regions ----------------------------------------------------------------------------------- */

static void lent_unuse(struct local_endpoint *endpoint, struct local_lent *lent)
{
	if (--lent->requests || !pl_list_empty(&lent->link))
		return;
	pl_key_release(lent->ending);
	pl_free(&endpoint->state->context->allocator, lent);
}

/* Takes a region back. Frees it, now or after the last request. */
static void lent_take_back(struct local_endpoint *endpoint, struct local_lent *lent)
{
	if (pl_list_empty(&lent->link))
		return;
	pl_list_remove(&lent->link);
	endpoint->asking.lent_count--;
	lent->ending = pl_grant_take_back(endpoint->base.peer, &lent->lent);
	lent->requests++;
	lent_unuse(endpoint, lent);
}

/* Returns true if there is room for another lent region. */
static bool lent_make_room(struct local_endpoint *endpoint)
{
	struct local_asking *asking = &endpoint->asking;
	struct local_lent *oldest;

	if (asking->lent_count < LOCAL_LENT_MAX)
		return true;
	oldest = pl_list_entry(asking->lent.prev, struct local_lent, link);
	if (oldest->requests)
		return false;
	lent_take_back(endpoint, oldest);
	return true;
}

/* True if the key says that the peer maps the region. */
static bool lent_is_mapped(const struct local_lent *lent)
{
	struct local_key key;

	return local_key_decode(lent->lent.key, lent->lent.key_length, &key) == 0 && (key.paths & LOCAL_PATH_MAPPED);
}

static struct local_lent *lent_new(struct local_endpoint *endpoint, struct pl_region *region, bool write)
{
	struct local_lent *lent;
	int rc;

	if (!lent_make_room(endpoint))
		return NULL;
	lent = pl_zalloc(&endpoint->state->context->allocator, sizeof(*lent));
	if (!lent)
		return NULL;
	rc = pl_grant_lend(region, write ? PL_ACCESS_READ : PL_ACCESS_WRITE, endpoint->base.peer, &lent->lent);
	if (rc < 0) {
		endpoint->asking.refused = rc == -EACCES;
		pl_free(&endpoint->state->context->allocator, lent);
		return NULL;
	}
	lent->region = region;
	lent->write = write;
	pl_list_init(&lent->link);
	pl_list_prepend(&endpoint->asking.lent, &lent->link);
	endpoint->asking.lent_count++;
	lent->declined = !lent_is_mapped(lent);
	return lent;
}

/* Returns the lent region, which is lent now if it was not. NULL: no memory, or too many are in use. */
static struct local_lent *lent_get(struct local_endpoint *endpoint, struct pl_region *region, bool write)
{
	pl_list_for_each(at, &endpoint->asking.lent) {
		struct local_lent *lent = pl_list_entry(at, struct local_lent, link);

		if (lent->region != region || lent->write != write)
			continue;
		if (!pl_grant_is_lent(endpoint->base.peer, &lent->lent, region)) {
			lent_take_back(endpoint, lent);
			break;
		}
		pl_list_remove(&lent->link);
		pl_list_prepend(&endpoint->asking.lent, &lent->link);
		return lent;
	}
	return lent_new(endpoint, region, write);
}

/* -- one request ------------------------------------------------------------------------------------ */

static bool range_extends(const struct local_copy_range *last, const struct local_copy_range *next)
{
	return last->key == next->key && last->key_offset + last->length == next->key_offset &&
	       last->offset + last->length == next->offset;
}

/* Fills a request with the operation's next segments of one region. */
static void fill_copy_request(struct pl_operation *operation, struct local_copy_request *request)
{
	struct pl_work_item *item = &ask_of(operation)->item;
	const struct pl_region *region = operation->segments[item->segment].region;

	request->count = 0;
	for (; item->segment < operation->segment_count; item->segment++) {
		const struct pl_segment *segment = &operation->segments[item->segment];
		struct local_copy_range next = { .key = pl_remote_key_id(segment->remote),
						 .key_offset = segment->remote_offset,
						 .offset = segment->offset,
						 .length = segment->length };

		if (segment->region != region)
			return;
		if (request->count && range_extends(&request->ranges[request->count - 1], &next))
			request->ranges[request->count - 1].length += next.length;
		else if (request->count == LOCAL_COPY_RANGES)
			return;
		/* A segment without bytes counts only if no other one has any: then the keys are checked. */
		else if (next.length || !operation->total)
			request->ranges[request->count++] = next;
	}
}

static void asked_free(struct local_endpoint *endpoint, struct local_asked *asked)
{
	pl_list_remove(&asked->link);
	endpoint->asking.request_count--;
	lent_unuse(endpoint, asked->lent);
	pl_free(&endpoint->state->context->allocator, asked);
}

static int send_copy_request(struct local_endpoint *endpoint, struct pl_operation *operation, struct local_lent *lent,
			     struct local_copy_request *request)
{
	bool write = operation->completion.kind == PL_KIND_WRITE;
	struct pl_frame frame = { .type = PL_FRAME_COPY,
				  .flags = write ? PL_COPY_WRITE : PL_COPY_READ,
				  .key = lent->lent.id,
				  .offset = lent->region->memory.length };
	uint8_t payload[PL_FRAME_SMALL_MAX];
	struct local_asked *asked;
	int rc;

	request->key_length = lent->told ? 0 : lent->lent.key_length;
	memcpy(request->key, lent->lent.key, request->key_length);
	frame.length = (uint32_t)local_copy_request_encode(request, payload);
	asked = pl_zalloc(&endpoint->state->context->allocator, sizeof(*asked));
	if (!asked)
		return -ENOMEM;
	asked->operation = operation;
	asked->lent = lent;
	asked->cookie = frame.cookie = ++endpoint->asking.cookie;
	lent->requests++;
	pl_list_append(&endpoint->asking.requests, &asked->link);
	endpoint->asking.request_count++;
	ask_of(operation)->under_way++;
	rc = pl_tcp_fabric.message(endpoint->lanes, &frame, payload, NULL);
	if (rc < 0) {
		ask_of(operation)->under_way--;
		asked_free(endpoint, asked);
		return rc;
	}
	lent->told = true;
	return 0;
}

/* Skips segments without bytes: a region that only they use is not lent. */
static void skip_empty_segments(const struct pl_operation *operation, struct pl_work_item *item)
{
	while (operation->total && item->segment < operation->segment_count &&
	       !operation->segments[item->segment].length)
		item->segment++;
}

/* Sends the operation's next request. Returns 0 or a negative errno. */
static int ask_next(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	struct pl_work_item *item = &ask_of(operation)->item;
	struct local_copy_request request;
	struct local_lent *lent;

	skip_empty_segments(operation, item);
	if (item->segment == operation->segment_count)
		return 0;
	lent = lent_get(endpoint, operation->segments[item->segment].region,
			operation->completion.kind == PL_KIND_WRITE);
	if (!lent || lent->declined)
		return -ENOTSUP;
	fill_copy_request(operation, &request);
	return request.count ? send_copy_request(endpoint, operation, lent, &request) : 0;
}

/* -- the operation ---------------------------------------------------------------------------------- */

/* All requests are answered: the operation is done, or the sockets do it again. */
static void ask_end(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	const struct local_ask *ask = ask_of(operation);

	if (ask->declined && !atomic_load(&operation->status) && !atomic_load(&operation->canceled)) {
		operation->route_reason = ask->staged_reason;
		pl_tcp_fabric.post(endpoint->lanes, operation);
		return;
	}
	atomic_fetch_or(&operation->rails, 1);
	pl_operation_pending_done(operation);
}

static bool ask_has_more(struct pl_operation *operation)
{
	const struct local_ask *ask = ask_of(operation);

	return ask->item.segment < operation->segment_count && !ask->declined && !atomic_load(&operation->status) &&
	       !atomic_load(&operation->canceled);
}

/* Sends requests while the owner accepts more. */
static void asking_advance(struct local_endpoint *endpoint)
{
	struct local_asking *asking = &endpoint->asking;

	if (asking->advancing)
		return;
	asking->advancing = true;
	while (!pl_list_empty(&asking->operations) && asking->request_count < LOCAL_COPY_REQUESTS) {
		struct pl_operation *operation = pl_work_item_operation(asking->operations.next);

		if (ask_has_more(operation) && ask_next(endpoint, operation) < 0)
			ask_of(operation)->declined = true;
		if (ask_has_more(operation))
			continue;
		pl_list_remove(&ask_of(operation)->item.link);
		if (!ask_of(operation)->under_way)
			ask_end(endpoint, operation);
	}
	asking->advancing = false;
}

/* True if a segment is between this end's processor's memory and device memory that this end cannot open. */
static bool segment_suits_owner(const struct pl_segment *segment)
{
	const struct local_access *access = segment->remote->fabric_data;

	return access && access->path == &local_device_path && segment->region && !segment->region->memory.fragile &&
	       pl_memory_host_pointer(&segment->region->memory, 0) && segment->region->memory.owned;
}

bool local_owner_may_copy(const struct local_endpoint *endpoint, const struct pl_operation *operation)
{
	if (!endpoint->base.peer->owner_copies || endpoint->asking.refused || operation->total < LOCAL_OWNER_MIN ||
	    endpoint->process == getpid())
		return false;
	for (unsigned i = 0; i < operation->segment_count; i++)
		if (local_segment_changes_memory(operation, i) && !segment_suits_owner(&operation->segments[i]))
			return false;
	return true;
}

void local_owner_ask(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	struct local_ask *ask = ask_of(operation);

	*ask = (struct local_ask){ .staged_reason = operation->route_reason };
	operation->route_reason = reason_owner;
	pl_list_init(&ask->item.link);
	pl_list_append(&endpoint->asking.operations, &ask->item.link);
	asking_advance(endpoint);
}

/* -- answers and cancellations ---------------------------------------------------------------------- */

static void fail_asked_operation(struct pl_operation *operation, uint64_t status)
{
	struct pl_error error;

	if (status == PL_WIRE_MEMORY)
		local_copy_fail(&error, -EFAULT, operation->completion.kind == PL_KIND_WRITE);
	else
		pl_wire_fail(&error, (uint32_t)status, "transfer", NULL);
	pl_operation_fail(operation, error.code, &error);
}

/* A request of the operation has ended. */
static void ask_request_ended(struct local_endpoint *endpoint, struct pl_operation *operation)
{
	struct local_ask *ask = ask_of(operation);

	ask->under_way--;
	/* Nothing more is requested after a failure. */
	if (!ask_has_more(operation))
		pl_list_remove(&ask->item.link);
	if (!ask->under_way && pl_list_empty(&ask->item.link))
		ask_end(endpoint, operation);
}

int local_owner_answered(struct local_endpoint *endpoint, const struct pl_frame *frame)
{
	struct pl_operation *operation;
	struct local_asked *asked = NULL;

	pl_list_for_each(at, &endpoint->asking.requests) {
		asked = pl_list_entry(at, struct local_asked, link);
		if (asked->cookie == frame->cookie)
			break;
		asked = NULL;
	}
	if (!asked)
		return -EPROTO;
	operation = asked->operation;
	if (frame->offset == PL_WIRE_UNSUPPORTED)
		asked->lent->declined = true;
	/* The peer does not know the region any more: the next request has its key again. */
	if (frame->offset == PL_WIRE_BUSY)
		lent_take_back(endpoint, asked->lent);
	asked_free(endpoint, asked);
	if (operation) {
		if (frame->offset == PL_WIRE_UNSUPPORTED || frame->offset == PL_WIRE_BUSY)
			ask_of(operation)->declined = true;
		else if (frame->offset != PL_WIRE_OK)
			fail_asked_operation(operation, frame->offset);
		ask_request_ended(endpoint, operation);
	}
	asking_advance(endpoint);
	return 0;
}

/* Returns a cancelled request whose region was taken back, and is not in use any more. */
static struct local_asked *first_canceled_request(const struct local_asking *asking)
{
	pl_list_for_each(at, &asking->requests) {
		struct local_asked *asked = pl_list_entry(at, struct local_asked, link);

		if (asked->operation && atomic_load(&asked->operation->canceled) &&
		    !(asked->lent->ending && atomic_load(&asked->lent->ending->ending)))
			return asked;
	}
	return NULL;
}

/* Takes back the regions of all cancelled requests. Their operations end once the owner has left the regions. */
static void take_back_canceled_requests(struct local_endpoint *endpoint)
{
	pl_list_for_each(at, &endpoint->asking.requests) {
		const struct local_asked *asked = pl_list_entry(at, struct local_asked, link);

		if (asked->operation && atomic_load(&asked->operation->canceled))
			lent_take_back(endpoint, asked->lent);
	}
}

void local_owner_sweep(struct local_endpoint *endpoint)
{
	struct local_asking *asking = &endpoint->asking;
	struct local_asked *asked;
	struct pl_list dropped;

	pl_list_init(&dropped);
	pl_list_for_each_safe(at, next, &asking->operations) {
		if (!atomic_load(&pl_work_item_operation(at)->canceled))
			continue;
		pl_list_remove(at);
		pl_list_append(&dropped, at);
	}
	while (!pl_list_empty(&dropped)) {
		struct pl_operation *operation = pl_work_item_operation(dropped.next);

		pl_list_remove(dropped.next);
		if (!ask_of(operation)->under_way)
			ask_end(endpoint, operation);
	}
	/* The owner must copy nothing more: its access to the region ends. Other requests for it go through the sockets. */
	take_back_canceled_requests(endpoint);
	while ((asked = first_canceled_request(asking))) {
		struct pl_operation *operation = asked->operation;

		asked->operation = NULL;
		ask_request_ended(endpoint, operation);
	}
}

void local_asking_init(struct local_asking *asking)
{
	pl_list_init(&asking->operations);
	pl_list_init(&asking->requests);
	pl_list_init(&asking->lent);
}

void local_asking_close(struct local_endpoint *endpoint)
{
	struct local_asking *asking = &endpoint->asking;

	while (!pl_list_empty(&asking->requests)) {
		struct local_asked *asked = pl_list_first(&asking->requests, struct local_asked, link);
		struct pl_operation *operation = asked->operation;

		asked_free(endpoint, asked);
		if (operation)
			ask_request_ended(endpoint, operation);
	}
	while (!pl_list_empty(&asking->lent))
		lent_take_back(endpoint, pl_list_first(&asking->lent, struct local_lent, link));
}
